//! The inputs and outputs of a [`Swim`](super::Swim): plain data.

use std::net::SocketAddr;

use crate::model::ids::{Incarnation, Millis, NodeName};

/// Everything that can happen to a [`Swim`](super::Swim).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SwimInput<'a> {
    /// A datagram came in. An empty one does nothing; send one to yourself to wake the owner.
    Datagram {
        /// Its sender.
        from: SocketAddr,
        /// All of it.
        bytes: &'a [u8],
    },
    /// Time has passed. Due when [`next_deadline`](super::Swim::next_deadline) says so; may be given
    /// at any time.
    Tick,
    /// Get into the network of the node at this address: it is called at once, and then again in
    /// its turn like every known peer. A node that was given this counts as the joiner, should its
    /// name be taken, until it has been a member for `ESTABLISHED_AFTER_MS`.
    Join(SocketAddr),
    /// There was a peer at this address: it goes onto the durable list. A node that is given this
    /// when it starts counts as a joiner, too.
    KnownPeer {
        /// Its name, if known.
        name: Option<NodeName>,
        /// Its gossip address.
        addr: SocketAddr,
    },
    /// A link to this peer stands although it is not a member that is up: it goes onto the durable list, from which it may
    /// have been taken, and is called at once, since its turn may be far off. No effect if it is up.
    Linked {
        /// Its name.
        name: NodeName,
        /// Its gossip address.
        addr: SocketAddr,
    },
    /// Take this address off the durable list. If it belongs to a member, it is back on the list when
    /// that one next comes up.
    ForgetPeer(SocketAddr),
    /// Say goodbye to all members. Go on with the loop until
    /// [`next_deadline`](super::Swim::next_deadline) is `None`; that takes
    /// `BYE_TIMES` × `BYE_PERIOD_MS`.
    Leave,
}

/// What the owner has to do, or to report to others, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SwimOutput {
    /// Send a datagram. If that fails, drop it: everything that matters is repeated.
    Send {
        /// Where to.
        to: SocketAddr,
        /// All of it.
        bytes: Vec<u8>,
    },
    /// A node is up.
    MemberUp {
        /// Its name.
        name: NodeName,
        /// Its incarnation.
        incarnation: Incarnation,
        /// Its gossip address.
        addr: SocketAddr,
    },
    /// A node that was reported up is not there any more.
    MemberDown {
        /// Its name.
        name: NodeName,
        /// Its incarnation.
        incarnation: Incarnation,
        /// Its gossip address.
        addr: SocketAddr,
        /// Why.
        reason: DownReason,
    },
    /// Another live node has our name, and it stays. This machine has said goodbye and is silent from
    /// now on; make a new one to try again.
    Refused {
        /// The name that both have.
        name: NodeName,
        /// The other node's incarnation.
        incarnation: Incarnation,
        /// The other node's gossip address.
        holder: SocketAddr,
    },
    /// The others had declared us down, or still knew our address from before a restart, so we took
    /// a new generation. They see us come up; nothing needs to be done.
    IdentityRenewed {
        /// The new generation.
        generation: u32,
    },
    /// A datagram of another network came and was dropped. Reported once per sender and
    /// `STRANGER_PERIOD_MS`; the sender gets to know, too.
    NetworkMismatch {
        /// Its sender.
        from: SocketAddr,
        /// Its network's name.
        network: String,
    },
    /// A datagram of another version of this protocol came and was dropped. Reported as rarely.
    VersionMismatch {
        /// Its sender.
        from: SocketAddr,
        /// The version.
        version: u8,
    },
}

/// Why a member is not there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DownReason {
    /// It stopped answering. It may come back as it was.
    Failed,
    /// It said goodbye.
    Left,
    /// Another incarnation, or a node of another name, came up at its address: it was restarted.
    Replaced,
}

/// How a member is, for display.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// It answers.
    Up,
    /// It has not answered of late, and may still say that it lives. Counts as up.
    Suspect,
    /// It stopped answering.
    Down,
    /// It said goodbye.
    Left,
}

/// A member, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberInfo {
    /// Its name.
    pub name: NodeName,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Its gossip address.
    pub addr: SocketAddr,
    /// How it is.
    pub state: MemberState,
    /// When it went up or down, as last reported.
    pub since: Millis,
}

/// An entry of the durable list of peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerInfo {
    /// Its gossip address.
    pub addr: SocketAddr,
    /// Its name, once known.
    pub name: Option<NodeName>,
    /// Whether it ever was a member, as far as this node has seen. Those are worth storing.
    pub(crate) was_up: bool,
}

/// What happened so far, by count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SwimCounters {
    /// Datagrams given in, empty ones not counted.
    pub received: u64,
    /// Datagrams given out.
    pub(crate) sent: u64,
    /// Dropped: not ours, cut short, or absurd.
    pub malformed: u64,
    /// Dropped: of another network.
    pub other_network: u64,
    /// Dropped: of another protocol version.
    pub other_version: u64,
    /// Dropped: not meant for this address, or claiming to come from it; or a call to another address by one that is down.
    pub misdirected: u64,
    /// Dropped: the sender's name or address is held by another; it was told so.
    pub conflicts: u64,
    /// Dropped: it named unknown members, and the table is full.
    pub table_full: u64,
    /// How often this node renewed its identity.
    pub(crate) renewals: u64,
}

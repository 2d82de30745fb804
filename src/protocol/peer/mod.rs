//! What nodes say to each other over their links: the greeting ([`greeting`]), then messages.
//! Each message is one frame ([`super::frame`]) whose body is a MessagePack array; elements
//! behind those that this version knows are ignored, and so are kinds it does not know.

mod codec;
pub mod greeting;

use crate::model::ids::{NodeName, Tick, Tock};
use crate::model::seen::{Mark, SeenById};
use crate::protocol::record::{Record, RecordError};
pub use codec::{encode_change, encode_part, encode_topic};

/// Why a message was not understood. The link is closed: its sender is broken or hostile.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PeerError {
    /// Not the MessagePack that belongs there.
    #[error("bad message from a peer: {0}")]
    Read(#[from] crate::model::value::ReadError),
    /// A record that is wrong.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A list that is longer than anything honest.
    #[error("a peer's message has {count} {what}; at most {max} are allowed")]
    TooMany {
        /// What was counted.
        what: &'static str,
        /// How many there were.
        count: usize,
        /// How many are allowed.
        max: usize,
    },
    /// A counter out of range.
    #[error("a peer's message has the counter {0}, which is out of range")]
    Counter(u64),
    /// A set of ticks that is not sorted, or out of range.
    #[error("a peer's message has a set of ticks that is not sorted or out of range")]
    Ticks,
    /// A name that no node can have.
    #[error("a peer's message has a bad name: {0}")]
    Name(#[from] crate::model::ids::NameError),
    /// A topic that is no path.
    #[error("a peer's message has a bad topic: {0}")]
    Topic(#[from] crate::model::path::PathError),
}

/// A change that is pushed to all peers at once.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeMessage<'a> {
    /// The sender's mark at the very moment the entry was read (RULES 5).
    pub mark: Mark,
    /// The sender waits for the acknowledgement (`copies`), so it should come at once.
    pub ack_wanted: bool,
    /// The change.
    pub record: Record<'a>,
}

/// What a node has accounted for. Hearing it makes ticks missing, never seen (RULES 3).
#[derive(Debug, Clone, PartialEq)]
pub struct Digest {
    /// The sender serves clients: it has caught up with the network.
    pub ready: bool,
    /// The sender's tock.
    pub tock: Tock,
    /// The sender's mark.
    pub mark: Mark,
    /// What changed since the last digest, or everything.
    pub seen: SeenById,
}

/// Asks for everything that is not in `seen` (RULES 3).
#[derive(Debug, Clone, PartialEq)]
pub struct CatchUpAsk {
    /// Chosen by the asker; the answer carries it. A newer ask on a link replaces the older.
    pub id: u64,
    /// The asker's mark.
    pub mark: Mark,
    /// What the asker has accounted for.
    pub seen: SeenById,
}

/// Closes a catch-up: after all of the entries, the knowledge (RULES 3).
#[derive(Debug, Clone, PartialEq)]
pub struct CatchUpEnd {
    /// Of the ask.
    pub id: u64,
    /// The answerer's tock.
    pub tock: Tock,
    /// The answerer's mark at the snapshot's moment.
    pub mark: Mark,
    /// What the answerer had accounted for at the snapshot's moment.
    pub seen: SeenById,
}

/// Why a catch-up is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefuseReason {
    /// The answerer is behind the asker, across a purge.
    Behind,
    /// The asker is behind the answerer, across a purge; this version cannot answer that.
    AcrossPurge,
    /// The answerer serves as many as it can; ask another, or later.
    Busy,
    /// The answerer is itself still catching up.
    NotReady,
    /// A reason that this version does not know.
    Other(u64),
}

/// Everything that is said on a link after the greeting.
#[derive(Debug, Clone, PartialEq)]
pub enum PeerMessage<'a> {
    /// A change, pushed at once.
    Change(ChangeMessage<'a>),
    /// What the sender has accounted for.
    Digest(Digest),
    /// The receiver's own incarnation is accounted for at the sender up to this tick, without
    /// a hole: a cumulative acknowledgement.
    Ack(Tick),
    /// Asks for what is missing.
    CatchUpAsk(CatchUpAsk),
    /// Entries of an answer.
    CatchUpPart {
        /// Of the ask.
        id: u64,
        /// The answerer's mark at the snapshot's moment.
        mark: Mark,
        /// The entries.
        records: Vec<Record<'a>>,
    },
    /// The end of an answer.
    CatchUpEnd(CatchUpEnd),
    /// There is no answer, or no more of it.
    CatchUpRefused {
        /// Of the ask.
        id: u64,
        /// Why.
        reason: RefuseReason,
    },
    /// A message that a client sends to whoever monitors its topic; kept nowhere.
    Topic {
        /// Canonical path elements.
        topic: crate::model::path::Path,
        /// The bytes, usually MessagePack; not checked.
        data: &'a [u8],
    },
    /// A client removed a node that owns nothing from the views of clients.
    KillNode(NodeName),
    /// The sender goes away on purpose.
    Leave,
}

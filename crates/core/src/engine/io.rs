//! The inputs and outputs of the engine, as data. Outputs are in commit order: draining them into
//! queues under the exclusive guard gives log, peers and watchers one order.

use std::sync::Arc;

use super::repair::answer::ServeJob;
use crate::model::group::GroupConfig;
use crate::model::ids::{Event, Incarnation, Millis, NodeId, NodeName, Tock};
use crate::model::path::Path;
use crate::protocol::peer::{PeerMessage, RefuseReason};
use crate::replica::Committed;
use crate::replica::apply::Conflict;
use crate::replica::catch_up::CatchUpSnapshot;
use crate::replica::watch::Watchers;

/// Names one connection to a peer; given by the shell, never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u64);

/// Something that happened outside.
#[derive(Debug)]
pub enum Input<'a> {
    /// This node is the first of its network (or continues alone): it serves clients from now.
    Found,
    /// A link stands, greetings exchanged.
    LinkUp {
        /// The new link.
        link: LinkId,
        /// The peer.
        peer: NodeId,
    },
    /// A link is gone.
    LinkDown {
        /// Which.
        link: LinkId,
    },
    /// Messages that arrived on a link together.
    Messages {
        /// On which link.
        link: LinkId,
        /// In order of arrival.
        messages: Vec<PeerMessage<'a>>,
    },
    /// Bytes of long messages pass over a link, and none of them is whole yet: what is waited for may stand behind
    /// them. Only where the line is slow.
    Passing {
        /// On which link.
        link: LinkId,
        /// How many have passed since this was last said, in both directions.
        bytes: u64,
    },
    /// A link's queue had overflowed, was emptied, and has room again: the peer must learn what it
    /// missed.
    Lagged {
        /// Which link.
        link: LinkId,
    },
    /// SWIM reports that a member is up.
    MemberUp {
        /// Which.
        member: NodeId,
    },
    /// SWIM says that a member is gone.
    MemberDown {
        /// Which.
        member: NodeId,
    },
    /// An answer to [`Output::Persist`]: the state of that moment, or a later one, is safe.
    Persisted {
        /// Of the request.
        token: u64,
    },
    /// An answer to [`Output::NeedIncarnation`].
    Renewed {
        /// A fresh incarnation.
        incarnation: Incarnation,
    },
    /// Time has passed; wanted every [`super::TICK_INTERVAL_MS`].
    Tick,
}

/// Something to be done outside.
pub enum Output {
    /// A version is in the tree that was not there before.
    Commit(Committed),
    /// A frame for every linked peer; the bytes are shared.
    Broadcast {
        /// Header and body.
        frame: Arc<[u8]>,
    },
    /// A frame for some of the linked peers; the bytes are shared.
    Multicast {
        /// On which links.
        links: Vec<LinkId>,
        /// Header and body.
        frame: Arc<[u8]>,
    },
    /// A frame for one peer.
    Send {
        /// On which link.
        link: LinkId,
        /// Header and body.
        frame: Arc<[u8]>,
    },
    /// Part of a catch-up's answer, to be made below live traffic: send its frames until it is
    /// done. A newer one for the same link replaces it.
    Serve {
        /// On which link.
        link: LinkId,
        /// Owns its snapshot.
        job: Box<ServeJob>,
    },
    /// A snapshot that is not needed any more. Dropping it may take time: not under the guard.
    Discard(Arc<CatchUpSnapshot>),
    /// Entries that are in the tree no more, without an event that says so. For no link; for the
    /// log and for watchers: whatever takes entries out of the tree pushes this under the same
    /// guard, before whatever comes to these paths next.
    Gone {
        /// Tombstones that were purged: clients see no difference.
        purged: Vec<Committed>,
        /// Entries that were dropped because they had been deleted and purged elsewhere (replication rule
        /// 4a); those that had a value are new deletions for clients.
        dropped: Vec<Committed>,
    },
    /// What was accounted for, how far purges were applied, the Delete group's list or its
    /// decision changed by other means than commits: the log needs [`super::Engine::knowledge`]
    /// of this moment. The last output of what was done, and once, for each door.
    Knowledge,
    /// The state of this moment ([`super::Engine::image`]) must be made safe, then
    /// [`Input::Persisted`] is wanted. Only of nodes with a data directory.
    Persist {
        /// To be given back.
        token: u64,
    },
    /// A committed change for these watchers, oldest first.
    Notify {
        /// The watchers.
        watchers: Watchers,
        /// The change.
        change: Committed,
    },
    /// A conflict was found, and these watches may ask for it: it is in
    /// [`super::Engine::conflicts`].
    NotifyConflict {
        /// The watchers of its path.
        watchers: Watchers,
        /// Its number there.
        number: u64,
    },
    /// A client's message for all monitors of its topic here.
    Topic {
        /// Its topic.
        topic: Path,
        /// Its bytes.
        data: Arc<[u8]>,
    },
    /// A peer acknowledged more of this node's changes; `copies` may be fulfilled.
    AckProgress,
    /// A peer that serves clients now did not before, or the other way round.
    PeerReadiness,
    /// This node has caught up and serves clients from now.
    Ready,
    /// This identity is in use elsewhere; give a fresh incarnation with [`Input::Renewed`].
    NeedIncarnation,
    /// A link must be closed: its peer is broken, or says farewell.
    Close {
        /// Which.
        link: LinkId,
        /// Why, for the log.
        reason: CloseReason,
    },
    /// A report for the operator.
    Report(Report),
}

impl Output {
    /// Whether it is for some links, and so must not overtake what went to all of them before.
    #[must_use]
    pub fn is_for_some_links(&self) -> bool {
        matches!(
            self,
            Self::Multicast { .. } | Self::Send { .. } | Self::Serve { .. } | Self::Close { .. }
        )
    }
}

/// Why the engine wants a link closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// The peer went away on purpose.
    Left,
    /// More incarnations are known than the table holds.
    TableFull,
    /// The peer says that the clock is where no network brings it ([`super::far_clock`]); nothing of that was taken.
    ClockTooFar,
    /// Neither side wants the link: others do its work ([`super::overlay`]).
    Unneeded,
}

/// Reports for the operator; the shell logs them.
#[derive(Clone, Debug)]
pub enum Report {
    /// Two versions met, neither of which knew the other.
    Conflict(Box<Conflict>),
    /// A catch-up began.
    CatchUpStarted {
        /// From whom.
        peer: NodeName,
        /// How many ticks the peer has that were missing here.
        missing: u64,
    },
    /// A catch-up is done.
    CatchUpDone {
        /// From whom.
        peer: NodeName,
        /// How many entries came.
        entries: u64,
    },
    /// A catch-up came to nothing; another one follows.
    CatchUpFailed {
        /// From whom.
        peer: NodeName,
        /// Why.
        reason: CatchUpFailure,
    },
    /// Other nodes are housekeepers than before.
    HousekeepersChanged {
        /// Newest turn first.
        list: Vec<NodeName>,
    },
    /// Two sides of a split have met.
    ResyncStarted {
        /// The housekeepers of this node's side.
        ours: Vec<NodeName>,
        /// Those of the other.
        theirs: Vec<NodeName>,
    },
    /// This node fetches what it lacks from the other side.
    ResyncProgress {
        /// Entries that have come.
        entries: u64,
        /// Events that are still missing.
        remaining: u64,
    },
    /// Nothing is missing here any more.
    ResyncDone {
        /// Entries that this node has fetched.
        entries: u64,
        /// How long it took, milliseconds.
        lasted_ms: Millis,
    },
    /// Tombstones that were agreed on were dropped here.
    Purged {
        /// How many.
        tombstones: usize,
        /// The mark's component, now.
        to: Tock,
    },
    /// The Delete group has another member list.
    GroupChanged {
        /// Which.
        config: GroupConfig,
    },
    /// A peer has accounted for the same as this node, at the same mark, and holds something else:
    /// one event has two contents (replication rule 10). The entries are being compared and repaired.
    ContentsDiffer {
        /// Which peer.
        peer: NodeName,
    },
    /// One event had another content at a peer, and the entry was repaired here. A conflict follows
    /// if this node held another value there.
    ContentsMended {
        /// Which peer held the other content.
        peer: NodeName,
        /// Where.
        path: Path,
        /// The event.
        event: Event,
    },
    /// This node continues under a new incarnation.
    Renewed {
        /// Which.
        incarnation: Incarnation,
    },
}

/// Why a catch-up came to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CatchUpFailure {
    /// The peer refused.
    Refused(RefuseReason),
    /// An entry was refused, or this node's mark rose meanwhile: a purge lies between the two.
    AcrossPurge,
    /// Nothing came for too long.
    Silent,
    /// The peer knows more than this node takes in, or sends parts without end.
    TooMuch,
    /// The link broke.
    LinkDown,
}

/// Room for this many outputs is kept from one time to the next: those of a long batch of writes.
const OUTPUTS_KEPT: usize = 1024;

/// Outputs in order. Drained by the shell, or compared whole by a test.
#[derive(Default)]
pub struct Outbox {
    outputs: Vec<Output>,
}

impl Outbox {
    /// An empty outbox.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an output. Public so that shells can be tested with outputs that an engine seldom
    /// makes.
    pub fn push(&mut self, output: Output) {
        self.outputs.push(output);
    }

    /// All outputs, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Output> {
        self.outputs.iter()
    }

    /// Takes all outputs, in order; the room is kept for the next ones.
    pub fn drain(&mut self) -> impl Iterator<Item = Output> + '_ {
        self.outputs.drain(..)
    }

    /// Lets go of room that is seldom needed.
    pub fn shrink(&mut self) {
        self.outputs.shrink_to(OUTPUTS_KEPT);
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_for_some_links_must_not_overtake_what_went_to_all() {
        let (link, frame): (_, Arc<[u8]>) = (LinkId(1), Arc::from([0]));
        let for_some = [
            Output::Multicast { links: vec![link], frame: Arc::clone(&frame) },
            Output::Send { link, frame: Arc::clone(&frame) },
            Output::Serve { link, job: Box::new(ServeJob::nothing(1)) },
            Output::Close { link, reason: CloseReason::Left },
        ];
        assert!(for_some.iter().all(Output::is_for_some_links));
        let others = [Output::Broadcast { frame }, Output::Knowledge, Output::AckProgress];
        assert!(!others.iter().any(Output::is_for_some_links));
    }
}

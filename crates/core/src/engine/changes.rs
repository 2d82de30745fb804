//! The door for everything but clients' reads and writes: [`Engine::handle`] takes what happened outside
//! ([`Input`]) and what the node is asked to do (the types here), each with an answer of its own. Nothing
//! else changes an engine but [`Engine::write_batch`].

use super::delete::{ForgetError, RetireError};
use super::load::{LoadError, SavedFile};
use super::take_in::{TakeIn, TakenIn};
use super::{Engine, EngineWriteError, Image, Input, Outbox, Output};
use crate::model::entry::Entry;
use crate::model::ids::{Millis, NodeName, Tock};
use crate::model::path::Path;
use crate::protocol::saved_state::{SavedEntry, SavedState};
use crate::replica::across::AcrossFailure;
use crate::replica::shards::{CountedShards, ShardCount};
use crate::replica::watch::{WatchId, WatchScope};

/// Something that changes an engine; made by [`Engine::handle`] only.
pub trait Change {
    /// What whoever asked for it is told.
    type Answer;

    /// Makes the change. `now` is when; outputs go to `out`.
    fn make(self, engine: &mut Engine, now: Millis, out: &mut Outbox) -> Self::Answer;
}

impl Engine {
    /// Carries out a change. `now` never goes back: of an earlier time, the latest one counts.
    pub fn handle<C: Change>(&mut self, change: C, now: Millis, out: &mut Outbox) -> C::Answer {
        let now = now.max(self.peers.schedule.now);
        self.peers.schedule.now = now;
        let answer = change.make(self, now, out);
        if self.replica.is_usurped() && !self.asked_for_incarnation {
            self.asked_for_incarnation = true;
            out.push(Output::NeedIncarnation);
        }
        self.tell_knowledge(out);
        answer
    }
}

impl Change for Input<'_> {
    type Answer = ();

    fn make(self, engine: &mut Engine, now: Millis, out: &mut Outbox) {
        engine.on_input(self, now, out);
    }
}

/// Adds a watch. Take its snapshot of [`Engine::tree`] under the same guard, so that nothing older
/// follows something newer. None when there are too many.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddWatch(pub WatchScope);

impl Change for AddWatch {
    type Answer = Option<WatchId>;

    fn make(self, engine: &mut Engine, _: Millis, _: &mut Outbox) -> Self::Answer {
        engine.watch(self.0)
    }
}

/// Ends a watch; answers whether it was there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndWatch(pub WatchId);

impl Change for EndWatch {
    type Answer = bool;

    fn make(self, engine: &mut Engine, _: Millis, _: &mut Outbox) -> bool {
        engine.unwatch(self.0)
    }
}

/// Mints a fresh tock, for replies that must carry one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MintTock;

impl Change for MintTock {
    type Answer = Tock;

    fn make(self, engine: &mut Engine, _: Millis, _: &mut Outbox) -> Tock {
        engine.mint_tock()
    }
}

/// Sends a client's message to the monitors of its topic, on this node and on the others. Best effort:
/// nobody keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendTopic<'a> {
    /// Its topic.
    pub topic: &'a Path,
    /// Its bytes.
    pub data: &'a [u8],
}

impl Change for SendTopic<'_> {
    type Answer = ();

    fn make(self, engine: &mut Engine, _: Millis, out: &mut Outbox) {
        engine.send_topic(self.topic, self.data, out);
    }
}

/// Removes a node from the views of clients, here and at the peers, until it is heard of again. The
/// caller has checked that it is gone and owns nothing (see [`super::view`]). Answers whether there
/// was room on the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KillNode<'a>(pub &'a NodeName);

impl Change for KillNode<'_> {
    type Answer = bool;

    fn make(self, engine: &mut Engine, _: Millis, out: &mut Outbox) -> bool {
        engine.kill_node(self.0, out)
    }
}

/// Gives the root its first value, if it has none: what the operator asked for at the start, so no limit
/// on clients applies. Answers whether it had none.
///
/// # Errors
/// [`EngineWriteError`]; nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InitRoot<'a>(pub &'a [u8]);

impl Change for InitRoot<'_> {
    type Answer = Result<bool, EngineWriteError>;

    fn make(self, engine: &mut Engine, _: Millis, out: &mut Outbox) -> Self::Answer {
        engine.init_root(self.0, out)
    }
}

/// Says farewell to all peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SayFarewell;

impl Change for SayFarewell {
    type Answer = ();

    fn make(self, engine: &mut Engine, _: Millis, out: &mut Outbox) {
        engine.leave(out);
    }
}

/// From now on this node makes no event: the record that proves where its incarnation stopped is being
/// written (ARCHITECTURE.md, "No event twice"). For good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StopMakingEvents;

impl Change for StopMakingEvents {
    type Answer = ();

    fn make(self, engine: &mut Engine, _: Millis, _: &mut Outbox) {
        engine.stop_making_events();
    }
}

/// Says whether a linked peer cannot read paths with arrays as elements. As long as one is there,
/// clients make no such entries: a first one would cut that peer off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarArrayPaths(pub bool);

impl Change for BarArrayPaths {
    type Answer = ();

    fn make(self, engine: &mut Engine, _: Millis, _: &mut Outbox) {
        engine.bar_array_paths(self.0);
    }
}

/// This node is about to stop: if it is the only member of the Delete group and has no data directory,
/// it looks for a successor from the next tick on. Best effort.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BeginHandOver;

impl Change for BeginHandOver {
    type Answer = ();

    fn make(self, engine: &mut Engine, _: Millis, _: &mut Outbox) {
        engine.begin_hand_over();
    }
}

/// This node is to leave for good: it takes no more changes of clients, and looks for all members'
/// agreement from the next tick on. See [`Engine::retirement`] for how far that is.
///
/// # Errors
/// [`RetireError`]; nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BeginRetirement;

impl Change for BeginRetirement {
    type Answer = Result<(), RetireError>;

    fn make(self, engine: &mut Engine, _: Millis, out: &mut Outbox) -> Self::Answer {
        engine.begin_retirement(out)
    }
}

/// The node stays after all. Answers whether that is so: not if the list is without it already, or if all
/// have agreed and the disk is about to confirm it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CancelRetirement;

impl Change for CancelRetirement {
    type Answer = bool;

    fn make(self, engine: &mut Engine, _: Millis, _: &mut Outbox) -> bool {
        engine.cancel_retirement()
    }
}

/// Takes a member that will not come back off the Delete group's list, by force. What it alone had agreed
/// to or deleted may become a new change when it comes back after all (replication rule 8).
///
/// # Errors
/// [`ForgetError`]; nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForgetMember<'a>(pub &'a NodeName);

impl Change for ForgetMember<'_> {
    type Answer = Result<(), ForgetError>;

    fn make(self, engine: &mut Engine, _: Millis, out: &mut Outbox) -> Self::Answer {
        engine.forget_member(self.0, out)
    }
}

/// From now on a list is founded and taken over as the settings say.
#[cfg(any(test, feature = "planted-defects"))]
#[derive(Clone, Debug)]
pub struct SetDeletePatience<'a>(pub &'a super::delete::DeleteSettings);

#[cfg(any(test, feature = "planted-defects"))]
impl Change for SetDeletePatience<'_> {
    type Answer = ();

    fn make(self, engine: &mut Engine, _: Millis, _: &mut Outbox) {
        engine.set_delete_patience(self.0);
    }
}

/// Begins to keep sums of the virtual shards; see [`crate::replica::Replica::begin_shard_count`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BeginShardCount;

impl Change for BeginShardCount {
    type Answer = ShardCount;

    fn make(self, engine: &mut Engine, _: Millis, _: &mut Outbox) -> ShardCount {
        engine.replica.begin_shard_count()
    }
}

/// From now on there are sums; see [`crate::replica::Replica::end_shard_count`].
#[derive(Clone, Copy)]
pub struct EndShardCount<'a>(pub &'a CountedShards);

impl Change for EndShardCount<'_> {
    type Answer = ();

    fn make(self, engine: &mut Engine, _: Millis, _: &mut Outbox) {
        engine.replica.end_shard_count(self.0);
    }
}

/// Begins to take in a state of a node of this network, perhaps an old one (replication rule 9).
/// [`TakeInSome`] and [`EndTakeIn`] follow.
///
/// # Errors
/// [`AcrossFailure`]; nothing was changed.
pub struct BeginTakeIn(pub Image);

impl Change for BeginTakeIn {
    type Answer = Result<TakeIn, AcrossFailure>;

    fn make(self, engine: &mut Engine, _: Millis, _: &mut Outbox) -> Self::Answer {
        engine.begin_take_in(self.0)
    }
}

/// Takes some entries of such a state in: those of [`TakeIn::next_batch`].
///
/// # Errors
/// [`AcrossFailure`]; the entries before the one that failed are taken in.
pub struct TakeInSome<'a> {
    /// What [`BeginTakeIn`] gave.
    pub state: &'a mut TakeIn,
    /// The entries.
    pub entries: &'a [(Path, Entry)],
}

impl Change for TakeInSome<'_> {
    type Answer = Result<(), AcrossFailure>;

    fn make(self, engine: &mut Engine, _: Millis, out: &mut Outbox) -> Self::Answer {
        engine.take_in_some(self.state, self.entries, out)
    }
}

/// Ends it: takes over what that state had accounted for and how far it had purged.
///
/// # Errors
/// [`AcrossFailure`]; the entries stay taken in, nothing else was changed.
pub struct EndTakeIn<'a>(pub &'a TakeIn);

impl Change for EndTakeIn<'_> {
    type Answer = Result<TakenIn, AcrossFailure>;

    fn make(self, engine: &mut Engine, _: Millis, out: &mut Outbox) -> Self::Answer {
        engine.end_take_in(self.0, out)
    }
}

/// All of that at once, for small states and where nobody waits.
///
/// # Errors
/// [`AcrossFailure`]; the entries before the one that failed are taken in.
#[derive(Clone, Copy)]
pub struct LoadImage<'a>(pub &'a Image);

impl Change for LoadImage<'_> {
    type Answer = Result<TakenIn, AcrossFailure>;

    fn make(self, engine: &mut Engine, _: Millis, out: &mut Outbox) -> Self::Answer {
        engine.load_image(self.0, out)
    }
}

/// Takes entries of a saved state of the Python DistKV in, as if they had come from a peer.
///
/// # Errors
/// [`LoadError`]; the entries before the one that failed are taken in.
#[derive(Clone, Copy, Debug)]
pub struct LoadEntries<'a> {
    /// The file that they are from.
    pub file: &'a SavedFile,
    /// The entries.
    pub saved: &'a [SavedEntry],
}

impl Change for LoadEntries<'_> {
    type Answer = Result<(), LoadError>;

    fn make(self, engine: &mut Engine, _: Millis, out: &mut Outbox) -> Self::Answer {
        self.saved.iter().try_for_each(|saved| engine.load_entry(self.file, saved, out))
    }
}

/// Takes over what such a saved state says it had accounted for, after all of its entries.
///
/// # Errors
/// [`LoadError`]; nothing was changed.
#[derive(Clone, Copy, Debug)]
pub struct LoadState<'a> {
    /// The file that it is from.
    pub file: &'a SavedFile,
    /// What it says.
    pub state: &'a SavedState,
}

impl Change for LoadState<'_> {
    type Answer = Result<(), LoadError>;

    fn make(self, engine: &mut Engine, _: Millis, out: &mut Outbox) -> Self::Answer {
        engine.load_state(self.file, self.state, out)
    }
}

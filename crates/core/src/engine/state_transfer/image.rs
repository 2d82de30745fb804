//! A node's whole state at one moment, as data: what a restart needs, and what a snapshot file
//! holds (replication rule 9).

use crate::engine::far_clock::is_too_far;
use crate::engine::{Config, Decided, Engine, Outbox, Output};
use crate::model::group::GroupConfig;
use crate::model::ids::{NodeId, Tick, Tock};
use crate::model::seen::{Mark, Seen};
use crate::replica::Replica;
use crate::replica::come_back::ReplicaImage;

/// Everything that a node must not forget. O(1) to take; dropping it may take time.
#[derive(Clone)]
pub struct Image {
    /// Tree, seen, mark and counters.
    pub replica: ReplicaImage,
    /// The Delete group's member list.
    pub group: Option<GroupConfig>,
    /// What this node had decided as the group's coordinator, and had not announced yet.
    pub decided: Option<Decided>,
}

/// An [`Image`] without its tree and node table: what must be written down besides entries. Its
/// events and sets are in the indices of the engine's table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Knowledge {
    /// Whose it is, in which of its lives.
    pub id: NodeId,
    /// The last tick that `id` had used.
    pub tick: Tick,
    /// The network's counter as it was known.
    pub tock: Tock,
    /// The ticks that were accounted for.
    pub seen: Seen,
    /// How far purges were applied.
    pub mark: Mark,
    /// The Delete group's member list.
    pub group: Option<GroupConfig>,
    /// What this node had decided as the group's coordinator, and had not announced yet.
    pub decided: Option<Decided>,
}

impl Image {
    /// Whose state it is, in which of its lives.
    #[must_use]
    pub fn id(&self) -> &NodeId {
        &self.replica.id
    }

    /// Why it must not be taken in from a file, if its clock is too far ahead: a network whose clock is at its end can
    /// make no changes any more, and nothing turns a clock back. A file can be anybody's. `own`: the clock of whoever
    /// takes it in.
    #[must_use]
    pub fn clock_too_far(&self, own: Tock) -> Option<String> {
        let clock = self.replica.tock;
        is_too_far(clock, own).then(|| {
            format!(
                "the file's clock is at {clock}, near its end, after which nobody could make changes any more; no network \
                 brings it there by its changes. To take over its values alone: `distkv-node snapshot convert FILE --format \
                 jsonl --to LINES`, leave out the lines below :n, then `distkv-node import LINES`"
            )
        })
    }

    /// All but the tree and the node table.
    #[must_use]
    pub fn knowledge(&self) -> Knowledge {
        Knowledge {
            id: self.replica.id.clone(),
            tick: self.replica.tick,
            tock: self.replica.tock,
            seen: self.replica.seen.clone(),
            mark: self.replica.mark.clone(),
            group: self.group.clone(),
            decided: self.decided.clone(),
        }
    }
}

impl Engine {
    /// What must be written down besides entries, as of this moment. O(incarnations known).
    #[must_use]
    pub fn knowledge(&self) -> Knowledge {
        Knowledge {
            id: self.config.id.clone(),
            tick: self.replica.tick(),
            tock: self.replica.tock(),
            seen: self.replica.seen().clone(),
            mark: self.replica.mark().clone(),
            group: self.group().cloned(),
            decided: self.decided(),
        }
    }

    /// The state of this moment.
    #[must_use]
    pub fn image(&self) -> Image {
        Image {
            replica: self.replica.image(&self.config.id),
            group: self.group().cloned(),
            decided: self.decided(),
        }
    }

    /// Knowledge that a log cannot derive from entries alone has changed: the shell is told at the
    /// end of the operation ([`Engine::tell_knowledge`]).
    pub(in crate::engine) fn note_knowledge(&mut self) {
        self.knowledge_changed = true;
    }

    /// Every door that may have changed it ends with this.
    pub(in crate::engine) fn tell_knowledge(&mut self, out: &mut Outbox) {
        if std::mem::take(&mut self.knowledge_changed) {
            out.push(Output::Knowledge);
        }
    }

    /// From now on no event is made here, whoever asks for it: the record that proves where this
    /// incarnation stopped is being written (ARCHITECTURE.md, "No event twice"). For good.
    pub(in crate::engine) fn stop_making_events(&mut self) {
        self.replica.stop_making_events();
    }

    /// A node that comes back with a state of its own. `config.id` is a new incarnation (replication rule
    /// 9): the state may be older than what the image's incarnation has done. `None` when the node table is
    /// full.
    ///
    /// A decision in the image is carried out. The entries that this removes from the tree are in
    /// `out`, and must be in the next log, too: otherwise the log's state would be older than what
    /// it says was applied.
    #[must_use]
    pub fn restore(config: Config, image: &Image, out: &mut Outbox) -> Option<Self> {
        let replica = Replica::come_back(&image.replica, &config.id)?;
        let replica = replica.on_trial(config.chain_bound, config.defects);
        let mut engine = Self::new(config);
        // Nothing has recorded what became of the changes of before.
        engine.peers.note_shared(replica.tick());
        engine.replica = replica;
        engine.take_up_group(image.group.clone(), image.decided.clone(), out);
        Some(engine)
    }
}

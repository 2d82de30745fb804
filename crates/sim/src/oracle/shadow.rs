//! What the judge remembers of one node: how far its engine was looked at.

use smallvec::SmallVec;

use super::history::{Content, EventKey, EventNo, NONE, hash_value};
use crate::bits::Bits;
use crate::engine::Engine;
use crate::model::entry::Entry;
use crate::model::ids::{Event, NodeIndex};
use crate::model::seen::Mark;
use crate::model::tick_set::TickSet;

/// One node as it was when it was last looked at. What a restart keeps, an image of the disk keeps
/// of this, too.
#[derive(Clone, Default)]
pub(crate) struct Shadow {
    /// The lives that the engine's indices stand for.
    pub(super) lives: Vec<u32>,
    /// What it had accounted for, by the engine's indices.
    pub(super) seen: Vec<TickSet>,
    /// The version at each path.
    pub(super) held: Vec<EventNo>,
    /// How many of those there are.
    pub(super) held_count: usize,
    /// Per path the greatest version that it has accounted for.
    pub(super) tops: Vec<EventNo>,
    /// All events whose data has been here.
    pub(crate) owned: Bits,
    /// The versions that left its tree without an event: purged, or dropped because they had been purged
    /// elsewhere. Only where that happened can it be noticed that a deletion is undone.
    pub(super) emptied: Bits,
    pub(super) tock: u64,
    pub(super) mark: Mark,
    /// How many ticks were accounted for, and the sum over what was held; only if nothing else is
    /// checked.
    pub(super) sums: (u64, u64),
}

impl Shadow {
    /// The version that a path has here.
    pub(crate) fn held(&self, path: u32) -> EventNo {
        self.held.get(path as usize).copied().unwrap_or(NONE)
    }

    pub(super) fn set_held(&mut self, path: u32, event: EventNo) {
        let slot = slot(&mut self.held, path);
        self.held_count += usize::from(event != NONE);
        self.held_count -= usize::from(*slot != NONE);
        *slot = event;
    }

    pub(super) fn top(&self, path: u32) -> EventNo {
        self.tops.get(path as usize).copied().unwrap_or(NONE)
    }

    pub(super) fn set_top(&mut self, path: u32, event: EventNo) {
        *slot(&mut self.tops, path) = event;
    }

    /// All that was accounted for.
    pub(super) fn seen_keys(&self) -> impl Iterator<Item = EventKey> + '_ {
        let sets = self.lives.iter().zip(&self.seen);
        sets.flat_map(|(life, ticks)| ticks.iter().map(move |tick| (*life, tick)))
    }

    /// The life of a local index; none for an index that the table did not have when it was synced.
    pub(super) fn life(&self, node: NodeIndex) -> Option<u32> {
        self.lives.get(node.as_usize()).copied()
    }

    pub(crate) fn key(&self, event: Event) -> EventKey {
        (self.life(event.node).unwrap_or(u32::MAX), event.tick.get())
    }

    /// What an entry of this node says, in a form that does not depend on the node.
    pub(super) fn content(&self, entry: &Entry) -> Content {
        Content {
            tock: entry.tock().get(),
            value: entry.value().map(hash_value),
            chain: entry.events().map(|e| self.key(e)).collect::<SmallVec<_>>(),
            cut: entry.is_chain_cut(),
            reissue_of: entry.reissue_of().map(|e| self.key(e)),
        }
    }

    /// The key of a record's event, if its life is known here.
    pub(super) fn find(&self, engine: &Engine, event: (&str, u64, u64)) -> Option<EventKey> {
        let (name, incarnation, tick) = event;
        let incarnation = crate::model::ids::Incarnation(incarnation);
        let index = engine.table().find(name, incarnation)?;
        Some((self.life(index)?, tick))
    }
}

fn slot(list: &mut Vec<EventNo>, at: u32) -> &mut EventNo {
    let at = at as usize;
    if list.len() <= at {
        list.resize(at + 1, NONE);
    }
    &mut list[at]
}

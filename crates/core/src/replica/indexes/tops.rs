//! Replication rule 2, "on top again": how often this node has put one version on top of another one.
//!
//! A client that sends a write again to nodes that don't know it makes versions each of which overwrites what had
//! overwritten another: "greater" is no order among them then, and nodes of which each knows some of them could put one
//! above the other for ever. Each does so a few times only. That ends it, whatever they know: there is no end of
//! re-issues, but their origins are as many as there were writes.
//!
//! This is memory only, and bounded.

use std::collections::{HashMap, VecDeque};

use ahash::RandomState;

use crate::model::ids::Event;
use crate::tree::Tree;

/// How often a node puts one version on top of re-issues of the same other one. More than once is right where several
/// nodes re-issue what had been overwritten.
pub(in crate::replica) const TOPS_MAX: u8 = 4;
/// Most pairs of versions that are remembered; the oldest go first. About 6 MiB.
pub(in crate::replica) const TOP_PAIRS_MAX: usize = 1 << 16;

/// See the module.
pub(in crate::replica) struct Tops {
    /// By the origins of the version that was put on top and of the one below.
    counts: HashMap<(Event, Event), u8, RandomState>,
    /// Oldest first. Invariant: the keys of `counts`; at most [`TOP_PAIRS_MAX`].
    order: VecDeque<(Event, Event)>,
}

impl Tops {
    /// With hashes that are as hard to guess as the tree's.
    pub(in crate::replica) fn of(tree: &Tree) -> Self {
        Self { counts: HashMap::with_hasher(tree.hasher()), order: VecDeque::new() }
    }

    /// Whether the first one was put on top of the second one too often already.
    pub(in crate::replica) fn are_too_many(&self, pair: (Event, Event)) -> bool {
        self.counts.get(&pair).is_some_and(|count| *count >= TOPS_MAX)
    }

    /// Notes that it was put there.
    pub(in crate::replica) fn note(&mut self, pair: (Event, Event)) {
        if let Some(count) = self.counts.get_mut(&pair) {
            *count = count.saturating_add(1);
            return;
        }
        while self.order.len() >= TOP_PAIRS_MAX {
            let oldest = self.order.pop_front();
            oldest.and_then(|pair| self.counts.remove(&pair));
        }
        self.counts.insert(pair, 1);
        self.order.push_back(pair);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{NodeIndex, Tick};

    fn event(tick: u64) -> Event {
        Event { node: NodeIndex(0), tick: Tick::new(tick).unwrap() }
    }

    #[test]
    fn each_pair_has_its_count_in_each_direction() {
        let mut tops = Tops::of(&Tree::new(1));
        for _ in 0..TOPS_MAX {
            assert!(!tops.are_too_many((event(1), event(2))));
            tops.note((event(1), event(2)));
        }
        assert!(tops.are_too_many((event(1), event(2))));
        let others = [(event(2), event(1)), (event(1), event(3))];
        assert!(others.into_iter().all(|pair| !tops.are_too_many(pair)));
    }

    #[test]
    fn the_oldest_pairs_are_forgotten_first() {
        let mut tops = Tops::of(&Tree::new(1));
        for tick in 1..=TOP_PAIRS_MAX as u64 + 1 {
            tops.note((event(tick), event(1 << 40)));
        }
        assert_eq!((tops.counts.len(), tops.order.len()), (TOP_PAIRS_MAX, TOP_PAIRS_MAX));
        let is_known = |tick| tops.counts.contains_key(&(event(tick), event(1 << 40)));
        assert_eq!([1, 2, TOP_PAIRS_MAX as u64 + 1].map(is_known), [false, true, true]);
    }
}

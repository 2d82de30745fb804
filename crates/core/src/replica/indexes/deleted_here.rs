//! Replication rule 2, "a deletion is undone", where a re-issue holds the path already: what this node had
//! seen when the re-issue came to a path at which nothing was held. By (I) all events of that path among it
//! had been deleted.
//!
//! What is seen *now* does not tell: a node that took the re-issue, and afterwards another node's
//! knowledge, has also seen what lost to the re-issue there, in a conflict, and was deleted nowhere.
//!
//! This is memory only, and bounded. A node that has lost it reports less, never more.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use ahash::RandomState;

use crate::model::invariant::invariant;
use crate::model::path::Path;
use crate::model::seen::Seen;
use crate::tree::Tree;

/// Most paths that are remembered; the oldest go first. About 8 MiB.
pub(in crate::replica) const DELETED_HERE_MAX: usize = 1 << 16;
/// Most states of what was seen that are remembered, one for each purge or catch-up that re-issues came
/// after; the oldest go first, with their paths. A state shares its ticks with the present one, as far as
/// these are the same.
pub(in crate::replica) const DELETED_HERE_STATES_MAX: usize = 64;

/// See the module.
pub(in crate::replica) struct DeletedHere {
    /// By path the newest state, and its number.
    seen: HashMap<Path, (u64, Arc<Seen>), RandomState>,
    /// Oldest first; a path that was noted again stands here more than once. Invariant: all paths that
    /// `seen` has, with their numbers; at most [`DELETED_HERE_MAX`]; the numbers never go back.
    order: VecDeque<(u64, Path)>,
    /// The number of the present state.
    number: u64,
    /// The present state, if a path was noted with it.
    present: Option<Arc<Seen>>,
}

impl DeletedHere {
    /// With hashes that are as hard to guess as the tree's.
    pub(in crate::replica) fn of(tree: &Tree) -> Self {
        Self {
            seen: HashMap::with_hasher(tree.hasher()),
            order: VecDeque::new(),
            number: 0,
            present: None,
        }
    }

    /// Notes that nothing is held at a path, and what is seen. Until [`DeletedHere::begin_state`] a state
    /// that was given before is used again: less may have been seen then, at this path only what is still
    /// deleted.
    pub(in crate::replica) fn note(&mut self, path: &Path, seen: &Seen) {
        while self.order.len() >= DELETED_HERE_MAX {
            self.forget_oldest();
        }
        let present = self.present.get_or_insert_with(|| Arc::new(seen.clone()));
        self.seen.insert(path.clone(), (self.number, Arc::clone(present)));
        self.order.push_back((self.number, path.clone()));
        invariant!(
            self.seen.len() <= self.order.len(),
            "each path that is remembered has its turn"
        );
    }

    /// What is seen has grown by more than single events, or a mark has risen: the next path gets a state
    /// of its own.
    pub(in crate::replica) fn begin_state(&mut self) {
        if self.present.take().is_none() {
            return;
        }
        self.number += 1;
        let states_max = DELETED_HERE_STATES_MAX as u64;
        while self.order.front().is_some_and(|(number, _)| number + states_max <= self.number) {
            self.forget_oldest();
        }
    }

    /// What had been seen when nothing was held at a path, if a re-issue came there since.
    pub(in crate::replica) fn seen_at(&self, path: &Path) -> Option<&Arc<Seen>> {
        self.seen.get(path).map(|(_, seen)| seen)
    }

    fn forget_oldest(&mut self) {
        let Some((number, path)) = self.order.pop_front() else { return };
        if self.seen.get(&path).is_some_and(|(newest, _)| *newest == number) {
            self.seen.remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{Event, NodeIndex, Tick};

    fn path(number: usize) -> Path {
        format!("k{number}").parse().unwrap()
    }

    fn seen_up_to(tick: u64) -> Seen {
        let mut seen = Seen::new();
        for tick in 1..=tick {
            seen.insert(Event { node: NodeIndex(0), tick: Tick::new(tick).unwrap() });
        }
        seen
    }

    fn ticks_at(deleted: &DeletedHere, number: usize) -> Option<u64> {
        deleted.seen_at(&path(number)).map(|seen| seen.count())
    }

    #[test]
    fn paths_share_a_state_until_the_next_one_begins() {
        let mut deleted = DeletedHere::of(&Tree::new(1));
        deleted.begin_state();
        deleted.note(&path(1), &seen_up_to(1));
        deleted.note(&path(2), &seen_up_to(2));
        deleted.begin_state();
        deleted.begin_state();
        deleted.note(&path(2), &seen_up_to(3));
        assert_eq!([1, 2, 3].map(|at| ticks_at(&deleted, at)), [Some(1), Some(3), None]);
    }

    #[test]
    fn the_oldest_paths_are_forgotten_first() {
        let mut deleted = DeletedHere::of(&Tree::new(1));
        deleted.note(&path(0), &seen_up_to(1));
        deleted.begin_state();
        // Path 0 once more: its first turn must not take it away.
        for number in (0..DELETED_HERE_MAX).chain([DELETED_HERE_MAX]) {
            deleted.note(&path(number), &seen_up_to(2));
        }
        assert_eq!(deleted.order.len(), DELETED_HERE_MAX);
        assert_eq!([0, 1].map(|at| ticks_at(&deleted, at)), [None, Some(2)]);
        assert_eq!(deleted.seen.len(), DELETED_HERE_MAX);
        assert_eq!(ticks_at(&deleted, DELETED_HERE_MAX), Some(2));
    }

    #[test]
    fn the_oldest_states_are_forgotten_with_their_paths() {
        let mut deleted = DeletedHere::of(&Tree::new(1));
        for number in 0..DELETED_HERE_STATES_MAX + 2 {
            deleted.note(&path(number), &seen_up_to(number as u64 + 1));
            if number == 1 {
                deleted.note(&path(0), &seen_up_to(9));
            }
            deleted.begin_state();
        }
        assert_eq!(deleted.seen.len(), DELETED_HERE_STATES_MAX - 1);
        assert_eq!([0, 1, 2, 3].map(|at| ticks_at(&deleted, at)), [None, None, None, Some(4)]);
    }
}

//! The recent conflicts that were found at this node, for clients that ask (ARCHITECTURE.md,
//! invariant 4).
//!
//! A conflict is found where its two versions meet: at every node that held one when the other
//! arrived. So each node at which clients could read the losing version finds it, including the
//! node that made that version if it lives; a node that only ever saw the winner does not. Nodes do
//! not tell each other: to see all conflicts of a network, ask all of its nodes.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use crate::engine::{Engine, Outbox, Output};
use crate::model::ids::Event;
use crate::model::invariant::{OrBroken, invariant};
use crate::replica::apply::Conflict;

/// Most conflicts that are kept. A healed split can find many more; the log has them all, the
/// list is for looking at the last ones.
pub const CONFLICTS_MAX: usize = 1024;
/// Most bytes of the conflicts that are kept, values and paths together. It holds at least one
/// conflict between two of the greatest values (4 MiB each).
pub(crate) const CONFLICTS_BYTES_MAX: usize = 16 << 20;

/// A conflict, and when it was found.
#[derive(Debug)]
pub struct FoundConflict {
    /// Counts the conflicts found since the node's start: 1, 2, 3 … without holes.
    pub number: u64,
    /// The two versions.
    pub conflict: Conflict,
}

/// What dropping the oldest relies on.
const COUNTED: &str = "the bytes of conflicts are those of the list";

/// See the module. Oldest first.
#[derive(Default)]
pub struct Conflicts {
    /// Invariant: numbers without holes, the last one is `last`.
    list: VecDeque<Arc<FoundConflict>>,
    /// The newest events of winner and loser of each in `list`. Only looked up, never walked.
    pairs: HashSet<(Event, Event)>,
    /// Invariant: the sum of the costs of `list`.
    bytes: usize,
    last: u64,
}

impl Conflicts {
    /// Adds a conflict and returns its number, unless it is in the list already; drops the oldest
    /// ones if there are too many.
    fn record(&mut self, conflict: &Conflict) -> Option<u64> {
        if !self.pairs.insert(pair(conflict)) {
            return None;
        }
        self.last += 1;
        self.bytes += cost(conflict);
        let found = FoundConflict { number: self.last, conflict: conflict.clone() };
        self.list.push_back(Arc::new(found));
        while self.list.len() > CONFLICTS_MAX || self.bytes > CONFLICTS_BYTES_MAX {
            let oldest = self.list.pop_front().or_broken(COUNTED);
            self.bytes = self.bytes.checked_sub(cost(&oldest.conflict)).or_broken(COUNTED);
            let was_paired = self.pairs.remove(&pair(&oldest.conflict));
            invariant!(was_paired, "a conflict in the list is among the pairs");
        }
        Some(self.last)
    }

    /// The number of the last conflict that was found: how many there were since the node's
    /// start.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// How many are in the list; the others were dropped.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.list.len()
    }

    /// Those with greater numbers that are still kept, oldest first.
    pub fn since(&self, number: u64) -> impl DoubleEndedIterator<Item = &Arc<FoundConflict>> {
        let dropped = self.last - self.list.len() as u64;
        let skipped = usize::try_from(number.saturating_sub(dropped)).unwrap_or(usize::MAX);
        self.list.range(skipped.min(self.list.len())..)
    }
}

fn pair(conflict: &Conflict) -> (Event, Event) {
    (conflict.winner.newest(), conflict.loser.newest())
}

/// The memory of a conflict while it is kept: the versions are shared with the tree only as long as
/// they are there.
fn cost(conflict: &Conflict) -> usize {
    let versions = conflict.winner.memory_bytes() + conflict.loser.memory_bytes();
    conflict.path.as_bytes().len() + versions + 128
}

impl Engine {
    /// The recent conflicts that were found here.
    #[must_use]
    pub fn conflicts(&self) -> &Conflicts {
        &self.conflicts
    }

    /// Adds a conflict that was found, and notifies the watchers of its path; after the change that
    /// it made, if it made one.
    pub(in crate::engine) fn record_conflict(&mut self, conflict: &Conflict, out: &mut Outbox) {
        let Some(number) = self.conflicts.record(conflict) else { return };
        let watchers = self.watches.of(&conflict.path);
        if !watchers.is_empty() {
            out.push(Output::NotifyConflict { watchers, number });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::conflicts::*;
    use crate::model::chain::Chain;
    use crate::model::entry::{Entry, EntryParts};
    use crate::model::ids::{NodeIndex, Tick, Tock};
    use crate::model::limits::VALUE_BYTES_MAX;

    fn version(node: u32, tick: u64, bytes: usize) -> Entry {
        let event = Event { node: NodeIndex(node), tick: Tick::new(tick).unwrap() };
        Entry::new(&EntryParts {
            value: Some(&vec![7; bytes]),
            chain: &Chain::first(event),
            tock: Tock::new(tick).unwrap(),
            origin: None,
            time: None,
            extra: &[],
        })
    }

    fn conflict(tick: u64, bytes: usize) -> Conflict {
        Conflict {
            path: "a".parse().unwrap(),
            winner: version(2, tick, bytes),
            loser: version(1, tick, bytes),
            took_theirs: true,
        }
    }

    fn numbers(conflicts: &Conflicts, since: u64) -> Vec<u64> {
        conflicts.since(since).map(|found| found.number).collect()
    }

    #[test]
    fn conflicts_are_numbered_and_found_again_by_number() {
        let mut conflicts = Conflicts::default();
        assert_eq!((conflicts.last(), numbers(&conflicts, 0)), (0, vec![]));
        for tick in 1..=3 {
            conflicts.record(&conflict(tick, 1));
        }
        assert_eq!(numbers(&conflicts, 0), [1, 2, 3]);
        assert_eq!(numbers(&conflicts, 2), [3]);
        assert!(numbers(&conflicts, 3).is_empty());
        assert!(numbers(&conflicts, u64::MAX).is_empty());
    }

    #[test]
    fn one_pair_of_versions_is_recorded_once() {
        let mut conflicts = Conflicts::default();
        let mut again = conflict(1, 1);
        assert_eq!(conflicts.record(&again), Some(1));
        again.took_theirs = false;
        assert_eq!(conflicts.record(&again), None);
        // The other way round it is another one.
        std::mem::swap(&mut again.winner, &mut again.loser);
        assert_eq!(conflicts.record(&again), Some(2));
        assert_eq!((conflicts.last(), conflicts.kept()), (2, 2));
    }

    #[test]
    fn the_oldest_are_dropped_where_there_are_too_many() {
        let mut conflicts = Conflicts::default();
        for tick in 1..=CONFLICTS_MAX as u64 + 2 {
            conflicts.record(&conflict(tick, 1));
        }
        assert_eq!((conflicts.last(), conflicts.kept()), (CONFLICTS_MAX as u64 + 2, CONFLICTS_MAX));
        assert_eq!(numbers(&conflicts, 0).first(), Some(&3));
        assert_eq!(conflicts.pairs.len(), CONFLICTS_MAX);
    }

    #[test]
    fn the_oldest_are_dropped_where_they_take_too_much_and_the_greatest_has_room() {
        let mut conflicts = Conflicts::default();
        for tick in 1..=3 {
            conflicts.record(&conflict(tick, VALUE_BYTES_MAX));
        }
        assert_eq!(numbers(&conflicts, 0), [3]);
        assert!(conflicts.bytes <= CONFLICTS_BYTES_MAX);
        conflicts.record(&conflict(4, 1));
        assert_eq!(numbers(&conflicts, 0), [3, 4]);
    }
}

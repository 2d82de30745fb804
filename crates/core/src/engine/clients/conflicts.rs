//! The recent conflicts that were found at this node, for clients that ask (ARCHITECTURE.md,
//! invariant 4).
//!
//! A conflict is found where its two versions meet: at every node that held one when the other
//! arrived. So each node at which clients could read the losing version finds it, including the
//! node that made that version if it lives; a node that only ever saw the winner does not. Nodes do
//! not tell each other: to see all conflicts of a network, ask all of its nodes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use crate::engine::{Engine, Outbox, Output};
use crate::model::ids::Event;
use crate::model::invariant::{OrBroken, invariant};
use crate::model::path::Path;
use crate::model::path::bytes::first_element;
use crate::replica::apply::Conflict;

/// Most conflicts that are kept. A healed split, or two clients that write the same at two nodes, can find many more:
/// all are counted, and the list is for looking at the last ones.
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

/// What dropping one relies on.
const COUNTED: &str = "the bytes of conflicts are those of the list";
const LISTED: &str = "the oldest of a subtree is in the list of conflicts";

/// See the module. Where there are too many, the oldest of the subtree goes that has most: whoever writes below one
/// first element only pushes out none of the others, as long as those are fewer. All steps take a logarithm of
/// what is kept.
#[derive(Default)]
pub struct Conflicts {
    /// By number. The last one that was found is always there.
    list: BTreeMap<u64, Arc<FoundConflict>>,
    /// The newest events of winner and loser of each in `list`. Only looked up, never walked.
    pairs: HashSet<(Event, Event)>,
    /// Those in `list`, by the first elements of their paths. Only looked up, never walked.
    subtrees: HashMap<Box<[u8]>, Subtree>,
    /// Each of the subtrees, by how many it has, and by their bytes.
    by_count: BTreeSet<Rank>,
    by_bytes: BTreeSet<Rank>,
    /// Invariant: the sum of the costs of `list`.
    bytes: usize,
    last: u64,
}

/// How much a subtree has, and the number of its oldest, which stands for it. The last one has most, and of equal ones
/// the oldest.
type Rank = (usize, Reverse<u64>);

/// The conflicts below one first element.
#[derive(Default)]
struct Subtree {
    /// Oldest first.
    numbers: VecDeque<u64>,
    bytes: usize,
}

impl Subtree {
    /// By count, and by bytes; none if there are no conflicts.
    fn ranks(&self) -> Option<[Rank; 2]> {
        let oldest = Reverse(*self.numbers.front()?);
        Some([(self.numbers.len(), oldest), (self.bytes, oldest)])
    }
}

impl Conflicts {
    /// Adds a conflict and returns its number, unless it is in the list already; drops others
    /// if there are too many.
    fn record(&mut self, conflict: &Conflict) -> Option<u64> {
        if !self.pairs.insert(pair(conflict)) {
            return None;
        }
        self.last += 1;
        let number = self.last;
        self.bytes += cost(conflict);
        let found = FoundConflict { number, conflict: conflict.clone() };
        self.list.insert(number, Arc::new(found));
        self.change(&conflict.path, |subtree| {
            subtree.numbers.push_back(number);
            subtree.bytes += cost(conflict);
        });
        while let Some(oldest) = self.superfluous() {
            self.drop_one(oldest);
        }
        Some(number)
    }

    /// The number of the one to go, if there are too many. Never the last one: whoever watches has it still to come.
    fn superfluous(&self) -> Option<u64> {
        let ranks = if self.list.len() > CONFLICTS_MAX {
            &self.by_count
        } else if self.bytes > CONFLICTS_BYTES_MAX {
            &self.by_bytes
        } else {
            return None;
        };
        ranks.iter().rev().map(|(_, Reverse(oldest))| *oldest).find(|oldest| *oldest != self.last)
    }

    /// The oldest of a subtree.
    fn drop_one(&mut self, number: u64) {
        let found = self.list.remove(&number).or_broken(LISTED);
        let conflict = &found.conflict;
        self.bytes = self.bytes.checked_sub(cost(conflict)).or_broken(COUNTED);
        let was_paired = self.pairs.remove(&pair(conflict));
        invariant!(was_paired, "a conflict in the list is among the pairs");
        self.change(&conflict.path, |subtree| {
            let oldest = subtree.numbers.pop_front();
            invariant!(oldest == Some(number), "the oldest of a subtree goes first");
            subtree.bytes = subtree.bytes.checked_sub(cost(conflict)).or_broken(COUNTED);
        });
    }

    /// Changes what there is of a path's subtree.
    fn change(&mut self, path: &Path, change: impl FnOnce(&mut Subtree)) {
        // The root has none.
        let first = first_element(path.as_bytes()).unwrap_or_default();
        let subtree = self.subtrees.remove_entry(first);
        let (first, mut subtree) = subtree.unwrap_or_else(|| (first.into(), Subtree::default()));
        if let Some([count, bytes]) = subtree.ranks() {
            let was_ranked = self.by_count.remove(&count) && self.by_bytes.remove(&bytes);
            invariant!(was_ranked, "each subtree with conflicts has its ranks");
        }
        change(&mut subtree);
        if let Some([count, bytes]) = subtree.ranks() {
            self.by_count.insert(count);
            self.by_bytes.insert(bytes);
            self.subtrees.insert(first, subtree);
        }
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

    /// Those with greater numbers that are still kept, oldest first. Between two, and before the first, others may have
    /// been dropped.
    pub fn since(&self, number: u64) -> impl DoubleEndedIterator<Item = &Arc<FoundConflict>> {
        self.list.range((Bound::Excluded(number), Bound::Unbounded)).map(|(_, found)| found)
    }
}

fn pair(conflict: &Conflict) -> (Event, Event) {
    (conflict.winner.newest(), conflict.loser.newest())
}

/// The memory of a conflict while it is kept: the versions are shared with the tree only as long as
/// they are there. Its path may be all of its subtree's name.
fn cost(conflict: &Conflict) -> usize {
    let versions = conflict.winner.memory_bytes() + conflict.loser.memory_bytes();
    2 * conflict.path.as_bytes().len() + versions + 256
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
        conflict_at("a", tick, bytes)
    }

    fn conflict_at(path: &str, tick: u64, bytes: usize) -> Conflict {
        Conflict {
            path: path.parse().unwrap(),
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
    fn a_busy_subtree_does_not_push_out_the_others() {
        let mut conflicts = Conflicts::default();
        conflicts.record(&conflict_at("b.x", 1, 1));
        conflicts.record(&conflict_at("c.x", 2, 1));
        for tick in 3..5_000 {
            conflicts.record(&conflict_at("a.x", tick, 1));
        }
        assert_eq!((conflicts.last(), conflicts.kept()), (4_999, CONFLICTS_MAX));
        let told = numbers(&conflicts, 0);
        assert_eq!((told[..3].to_vec(), told.last()), (vec![1, 2, 3_978], Some(&4_999)));
        assert_eq!(numbers(&conflicts, 1)[0], 2);
        assert_eq!(numbers(&conflicts, 2)[0], 3_978, "those between were dropped");
        assert_eq!(numbers(&conflicts, 4_998), [4_999]);
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

    #[test]
    fn what_takes_too_much_gives_way_itself_and_the_last_one_is_always_there() {
        let mut conflicts = Conflicts::default();
        conflicts.record(&conflict_at("b.x", 1, 1));
        for tick in 2..=4 {
            conflicts.record(&conflict_at("a.x", tick, VALUE_BYTES_MAX));
        }
        assert_eq!(numbers(&conflicts, 0), [1, 4]);
        // The greatest, and all that there is of its subtree.
        conflicts.record(&conflict_at("c.x", 5, VALUE_BYTES_MAX - 9));
        assert_eq!(numbers(&conflicts, 0), [1, 5]);
        conflicts.record(&conflict_at("c.x", 6, VALUE_BYTES_MAX - 9));
        conflicts.record(&conflict_at("d.x", 7, VALUE_BYTES_MAX));
        assert_eq!(numbers(&conflicts, 0), [1, 7]);
        assert!(conflicts.bytes <= CONFLICTS_BYTES_MAX);
    }

    #[test]
    fn of_equally_busy_subtrees_the_oldest_goes_and_nothing_stays_of_one_without_conflicts() {
        let mut conflicts = Conflicts::default();
        for tick in 1..=3 * CONFLICTS_MAX as u64 {
            conflicts.record(&conflict_at(&format!("s{tick}.x"), tick, 1));
        }
        let kept: Vec<u64> = (2 * CONFLICTS_MAX as u64 + 1..=3 * CONFLICTS_MAX as u64).collect();
        assert_eq!(numbers(&conflicts, 0), kept);
        let sizes = [conflicts.subtrees.len(), conflicts.by_count.len(), conflicts.by_bytes.len()];
        assert_eq!(sizes, [CONFLICTS_MAX; 3]);
        // The root has no first element, and is one like the others.
        conflicts.record(&conflict_at(":", u64::from(u32::MAX), 1));
        assert_eq!(conflicts.kept(), CONFLICTS_MAX);
    }
}

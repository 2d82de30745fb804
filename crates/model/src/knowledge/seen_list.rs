//! Lists of seen ticks that are too long for one message. A list is sent in parts, or not at all;
//! it is never truncated silently, because a node that took a truncated list for a complete one
//! would conclude that the other side has never seen what is missing in it (replication rules 3 to
//! 5).

use crate::ids::{NodeIndex, NodeTable};
use crate::invariant::OrBroken;
use crate::seen::{Seen, SeenById};
use crate::tick_set::TickSet;

/// How long a list in one message may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListMax {
    /// Most incarnations; at least 1.
    pub incarnations: usize,
    /// Most ranges of ticks, of all incarnations together; at least 1.
    pub ranges: usize,
}

impl ListMax {
    /// Whether all of it fits.
    #[must_use]
    pub fn fits(self, seen: &Seen) -> bool {
        seen.iter().count() <= self.incarnations && seen.range_count() <= self.ranges
    }
}

/// Where a list continues: in the set of that incarnation, with the range that begins there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListAt {
    node: NodeIndex,
    tick: u64,
}

/// The beginning.
impl Default for ListAt {
    fn default() -> Self {
        Self { node: NodeIndex(0), tick: 0 }
    }
}

/// The part of a list that begins at `at`, and where the next part begins, if there is one.
#[must_use]
pub fn export_part(
    table: &NodeTable,
    seen: &Seen,
    at: ListAt,
    max: ListMax,
) -> (SeenById, Option<ListAt>) {
    let mut room = max.ranges.max(1);
    let mut part: SeenById = Vec::new();
    let mut next = None;
    for (node, ticks) in seen.iter_from(at.node) {
        let from = if node == at.node { at.tick } else { 0 };
        if room == 0 || part.len() >= max.incarnations.max(1) {
            next = Some(ListAt { node, tick: from });
            break;
        }
        let id = table.id(node);
        let (ticks, rest) = ticks.part(from, room);
        room -= ticks.range_count();
        if !ticks.is_empty() {
            part.push((id.clone(), ticks));
        }
        if let Some(tick) = rest {
            next = Some(ListAt { node, tick });
            break;
        }
    }
    part.sort_by(|a, b| a.0.cmp(&b.0));
    (part, next)
}

/// Splits a list into parts of at most the given number of items; an incarnation and a range count
/// as an item each. There is at least one part.
#[must_use]
pub fn split_list(list: &SeenById, items_max: usize) -> Vec<SeenById> {
    // Room for an incarnation with one range.
    let items_max = items_max.max(2);
    let mut parts = vec![Vec::new()];
    let mut room = items_max;
    for (id, ticks) in list {
        let mut at = Some(0);
        while let Some(from) = at {
            if room < 2 {
                parts.push(Vec::new());
                room = items_max;
            }
            let (part, next) = ticks.part(from, room - 1);
            room -= 1 + part.range_count();
            at = next;
            parts.last_mut().or_broken("there is a part").push((id.clone(), part));
        }
    }
    parts
}

/// The incarnations that a list names if it may not name all: those with the fewest ranges, of these
/// the ones that became known last, because they are the likeliest to go on.
#[must_use]
pub fn nodes_that_fit(seen: &Seen, max: ListMax) -> Vec<NodeIndex> {
    let mut by_length: Vec<(usize, NodeIndex)> =
        seen.iter().map(|(node, ticks): (_, &TickSet)| (ticks.range_count(), node)).collect();
    by_length.sort_by_key(|(ranges, node)| (*ranges, std::cmp::Reverse(*node)));
    let mut room = max.ranges;
    let fits = |(ranges, _): &(usize, NodeIndex)| {
        let fits = *ranges <= room;
        room -= if fits { *ranges } else { 0 };
        fits
    };
    by_length.into_iter().take(max.incarnations).take_while(fits).map(|(_, node)| node).collect()
}

#[cfg(test)]
mod tests {
    use crate::ids::{Event, Incarnation, NodeId, NodeName, Tick};
    use crate::seen::export_seen;
    use crate::seen_list::*;

    fn fragments(sets: &[u64]) -> (NodeTable, Seen) {
        let (mut table, mut seen) = (NodeTable::new(), Seen::new());
        for (at, ranges) in sets.iter().enumerate() {
            let name = NodeName::new(&format!("n{}", 9 - at)).unwrap();
            let node = table.intern(&NodeId { name, incarnation: Incarnation(1) }).unwrap();
            for tick in 0..*ranges {
                seen.insert(Event { node, tick: Tick::new(2 * tick + 1).unwrap() });
            }
        }
        (table, seen)
    }

    fn join(table: &NodeTable, parts: &[SeenById]) -> Seen {
        let mut seen = Seen::new();
        for (id, ticks) in parts.iter().flatten() {
            seen.union_node(table.find(id.name.as_str(), id.incarnation).unwrap(), ticks);
        }
        seen
    }

    #[test]
    fn the_parts_of_a_list_are_all_of_it() {
        let (table, seen) = fragments(&[1, 9, 4, 0, 2, 1, 1]);
        for (incarnations, ranges) in [(1, 1), (2, 4), (3, 3), (9, 2), (1, 99), (99, 99)] {
            let max = ListMax { incarnations, ranges };
            let (mut parts, mut at) = (Vec::new(), Some(ListAt::default()));
            while let Some(from) = at {
                let (part, next) = export_part(&table, &seen, from, max);
                let length: usize = part.iter().map(|(_, ticks)| ticks.range_count()).sum();
                assert!(length > 0 && length <= ranges && part.len() <= incarnations, "{part:?}");
                parts.push(part);
                at = next;
            }
            assert_eq!(join(&table, &parts), seen);
            assert_eq!(parts.len() == 1, max.fits(&seen));
        }
    }

    #[test]
    fn a_list_is_split_and_nothing_is_lost() {
        let (table, seen) = fragments(&[1, 9, 4, 0, 2]);
        let list = export_seen(&table, &seen);
        for items in [1, 2, 3, 7, 100] {
            let parts = split_list(&list, items);
            assert!(parts.iter().all(|part| !part.is_empty()));
            assert_eq!(join(&table, &parts), seen);
        }
        assert_eq!(split_list(&Vec::new(), 3), [Vec::new()]);
    }

    #[test]
    fn whoever_does_not_fit_is_not_named_at_all() {
        let (_, seen) = fragments(&[1, 9, 4, 1]);
        let named = |incarnations, ranges| nodes_that_fit(&seen, ListMax { incarnations, ranges });
        assert_eq!(named(9, 7), [3, 0, 2].map(NodeIndex));
        assert_eq!(named(2, 7), [3, 0].map(NodeIndex));
        assert_eq!(named(9, 0), []);
        assert_eq!(named(9, 15).len(), 4);
    }
}

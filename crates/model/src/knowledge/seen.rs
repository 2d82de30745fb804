//! What a node has accounted for: per incarnation the set of ticks it has seen (docs/replication-rules.md,
//! "State").

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{Event, NodeId, NodeIndex, NodeTable, Tick};
use crate::invariant::OrBroken;
pub use crate::mark::{Lineage, Mark};
use crate::tick_set::TickSet;

/// Per known incarnation the ticks that are accounted for. A clone is cheap: the sets are
/// shared until one side changes them.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Indexed by [`NodeIndex`]; shorter than the node table if nothing was seen of the last ones
    /// yet.
    sets: Vec<Arc<TickSet>>,
}

impl Seen {
    /// Nothing seen.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The ticks seen of one incarnation, if there are any.
    #[must_use]
    pub fn get(&self, node: NodeIndex) -> Option<&TickSet> {
        self.sets.get(node.as_usize()).map(|s| &**s).filter(|s| !s.is_empty())
    }

    /// Whether an event is accounted for.
    #[must_use]
    pub fn contains(&self, event: Event) -> bool {
        self.get(event.node).is_some_and(|s| s.contains(event.tick))
    }

    /// Accounts for an event; returns whether it was new.
    pub fn insert(&mut self, event: Event) -> bool {
        Arc::make_mut(self.slot(event.node)).insert(event.tick)
    }

    /// Accounts for a set of one incarnation's ticks; returns whether any was new.
    pub fn union_node(&mut self, node: NodeIndex, ticks: &TickSet) -> bool {
        let slot = self.slot(node);
        !slot.contains_all(ticks) && Arc::make_mut(slot).union_with(ticks)
    }

    /// Accounts for everything in another one; returns whether anything was new.
    pub fn union_with(&mut self, other: &Self) -> bool {
        other.iter().fold(false, |new, (node, ticks)| self.union_node(node, ticks) | new)
    }

    /// The ticks that are in this one and not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut result = Self::new();
        for (node, ticks) in self.iter() {
            let rest = match other.get(node) {
                // Usual, of nearly all incarnations: then nothing is computed.
                Some(theirs) if theirs == ticks => continue,
                Some(theirs) => ticks.difference(theirs),
                None => ticks.clone(),
            };
            if !rest.is_empty() {
                *result.slot(node) = Arc::new(rest);
            }
        }
        result
    }

    /// The ticks that are in this one and in the other.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut result = Self::new();
        for (node, ticks) in self.iter() {
            let Some(theirs) = other.get(node) else { continue };
            let both = ticks.intersection(theirs);
            if !both.is_empty() {
                *result.slot(node) = Arc::new(both);
            }
        }
        result
    }

    /// The ticks above the given tick of each incarnation; all ticks of incarnations that are not
    /// named.
    #[must_use]
    pub fn above(&self, contiguous: &BTreeMap<NodeIndex, Tick>) -> Self {
        let mut result = Self::new();
        for (at, ticks) in self.sets.iter().enumerate() {
            let node = NodeIndex(at as u32);
            match contiguous.get(&node) {
                _ if ticks.is_empty() => {}
                None => *result.slot(node) = Arc::clone(ticks),
                Some(tick) if ticks.max() <= tick.get() => {}
                Some(tick) => *result.slot(node) = Arc::new(ticks.above(tick.get())),
            }
        }
        result
    }

    /// The ticks below the highest of each incarnation that are not accounted for.
    #[must_use]
    pub fn holes(&self) -> Self {
        let mut result = Self::new();
        for (node, ticks) in self.iter() {
            // No holes: the usual case, and cheap to find out.
            if ticks.contiguous() < ticks.max() {
                *result.slot(node) = Arc::new(ticks.missing_below(ticks.max()));
            }
        }
        result
    }

    /// How many ticks there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.iter().map(|(_, ticks)| ticks.count()).sum()
    }

    /// Whether all of another one is accounted for here.
    #[must_use]
    pub fn contains_all(&self, other: &Self) -> bool {
        other.iter().all(|(node, ticks)| self.get(node).is_some_and(|s| s.contains_all(ticks)))
    }

    /// Whether nothing is accounted for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The incarnations of which something was seen, by index.
    pub fn iter(&self) -> impl Iterator<Item = (NodeIndex, &TickSet)> {
        self.sets
            .iter()
            .enumerate()
            .filter(|(_, s)| !s.is_empty())
            .map(|(i, s)| (NodeIndex(i as u32), &**s))
    }

    /// The incarnations from an index on of which something was seen.
    pub(crate) fn iter_from(&self, node: NodeIndex) -> impl Iterator<Item = (NodeIndex, &TickSet)> {
        let sets = self.sets.get(node.as_usize()..).unwrap_or_default();
        let indices = (node.0..).map(NodeIndex);
        indices.zip(sets).filter(|(_, s)| !s.is_empty()).map(|(node, s)| (node, &**s))
    }

    /// How many ranges there are: what a list of it costs.
    #[must_use]
    pub fn range_count(&self) -> usize {
        self.iter().map(|(_, ticks)| ticks.range_count()).sum()
    }

    /// The highest contiguous tick of an incarnation.
    #[must_use]
    pub fn contiguous(&self, node: NodeIndex) -> Tick {
        let contiguous = self.get(node).map_or(0, TickSet::contiguous);
        Tick::new(contiguous).or_broken("ticks that were seen are below 2^62")
    }

    fn slot(&mut self, node: NodeIndex) -> &mut Arc<TickSet> {
        let at = node.as_usize();
        if self.sets.len() <= at {
            self.sets.resize_with(at + 1, Arc::default);
        }
        // The resize above made the slot; a dense index is bounded by NODE_TABLE_MAX.
        #[allow(clippy::indexing_slicing, reason = "the line above made the slot")]
        &mut self.sets[at]
    }
}

/// Per incarnation a tick set, by identity: how [`Seen`] travels between nodes.
pub type SeenById = Vec<(NodeId, TickSet)>;

/// A form that another node understands, ordered by name and incarnation. It is complete, however
/// long: [`crate::seen_list`] splits it into messages.
#[must_use]
pub fn export_seen(table: &NodeTable, seen: &Seen) -> SeenById {
    export_some(table, seen, seen.iter().map(|(node, _)| node))
}

/// As [`export_seen`], for some incarnations only; those of which nothing was seen are left out.
#[must_use]
pub fn export_some(
    table: &NodeTable,
    seen: &Seen,
    nodes: impl IntoIterator<Item = NodeIndex>,
) -> SeenById {
    let of = |node| Some((table.id(node).clone(), seen.get(node)?.clone()));
    let mut result: SeenById = nodes.into_iter().filter_map(of).collect();
    result.sort_by(|a, b| a.0.cmp(&b.0));
    result
}

#[cfg(test)]
mod tests {
    use crate::ids::{Incarnation, NodeName};
    use crate::seen::*;

    fn tick(t: u64) -> Tick {
        Tick::new(t).unwrap()
    }

    #[test]
    fn a_clone_does_not_change_with_its_original() {
        let mut seen = Seen::new();
        let event = Event { node: NodeIndex(2), tick: tick(1) };
        assert!(seen.insert(event));
        let copy = seen.clone();
        assert!(seen.insert(Event { tick: tick(2), ..event }));
        assert!(!copy.contains(Event { tick: tick(2), ..event }));
        assert_eq!(seen.difference(&copy).iter().count(), 1);
        assert!(seen.contains_all(&copy) && !copy.contains_all(&seen));
    }

    #[test]
    fn seen_travels_by_identity_and_not_by_index() {
        let id = |n: &str| NodeId { name: NodeName::new(n).unwrap(), incarnation: Incarnation(7) };
        let (mut here, mut there) = (NodeTable::new(), NodeTable::new());
        let (a, b) = (here.intern(&id("a")).unwrap(), here.intern(&id("b")).unwrap());
        let mut seen = Seen::new();
        seen.insert(Event { node: a, tick: tick(1) });
        seen.insert(Event { node: b, tick: tick(5) });
        there.intern(&id("b")).unwrap();
        let mut moved = Seen::new();
        for (id, ticks) in export_seen(&here, &seen) {
            moved.union_node(there.intern(&id).unwrap(), &ticks);
        }
        let b_there = there.find("b", Incarnation(7)).unwrap();
        assert!(moved.contains(Event { node: b_there, tick: tick(5) }));
        assert_eq!(export_seen(&there, &moved), export_seen(&here, &seen));
    }

    #[test]
    fn what_is_in_doubt_is_what_lies_above_the_counters() {
        let (a, b) = (NodeIndex(0), NodeIndex(1));
        let mut seen = Seen::new();
        for (node, t) in [(a, 1), (a, 2), (a, 5), (b, 1), (b, 2)] {
            seen.insert(Event { node, tick: tick(t) });
        }
        let doubt = seen.above(&BTreeMap::from([(a, tick(1)), (b, tick(2))]));
        assert_eq!(
            doubt.iter().map(|(n, t)| (n, t.iter().collect())).collect::<Vec<_>>(),
            [(a, vec![2, 5])]
        );
        assert_eq!(seen.above(&BTreeMap::new()), seen);
        let holes = seen.holes();
        assert_eq!((holes.count(), holes.get(a).map(TickSet::max)), (2, Some(4)));
        assert_eq!(seen.intersection(&doubt), doubt);
    }
}

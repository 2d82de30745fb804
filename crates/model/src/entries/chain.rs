//! The chain of an entry: the events that last changed it, newest first, each incarnation
//! at most once, bounded in length. It decides one thing only: whether a version that lost had been
//! superseded or was a conflict.

use smallvec::SmallVec;

use crate::ids::Event;
use crate::invariant::costly_invariant;
use crate::limits::CHAIN_LEN_MAX;

/// Most events in a chain that is made here: [`CHAIN_LEN_MAX`], a constant of the protocol. The
/// simulator cuts chains sooner, so that what only happens to cut chains happens often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChainBound(usize);

impl Default for ChainBound {
    fn default() -> Self {
        Self(CHAIN_LEN_MAX)
    }
}

impl ChainBound {
    /// A bound of 1 to [`CHAIN_LEN_MAX`] events.
    #[cfg(any(test, feature = "planted-defects"))]
    #[must_use]
    pub fn shorter(events: usize) -> Self {
        Self(events.clamp(1, CHAIN_LEN_MAX))
    }

    /// How many events.
    #[must_use]
    pub fn get(self) -> usize {
        self.0
    }
}

/// The events that last changed an entry, newest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain {
    /// Invariant: 1 to [`CHAIN_LEN_MAX`] events.
    events: SmallVec<[Event; 2]>,
    /// Whether older events were dropped: the difference between "nothing before" and "not
    /// known any more", which clients can see.
    cut: bool,
}

impl Chain {
    /// The chain of an entry that was not there before.
    #[must_use]
    pub fn first(event: Event) -> Self {
        Self { events: smallvec::smallvec![event], cut: false }
    }

    /// A chain that came from outside; `None` if it is empty or too long.
    pub fn from_events(events: impl IntoIterator<Item = Event>, cut: bool) -> Option<Self> {
        let events: SmallVec<[Event; 2]> = events.into_iter().take(CHAIN_LEN_MAX + 1).collect();
        (!events.is_empty() && events.len() <= CHAIN_LEN_MAX).then_some(Self { events, cut })
    }

    /// Replication rule 1: the new event, then the old chain without events of this incarnation, cut to the
    /// bound.
    #[must_use]
    pub fn extended(&self, event: Event, bound: ChainBound) -> Self {
        let mut cut = self.cut;
        let mut events: SmallVec<[Event; 2]> = smallvec::smallvec![event];
        for old in &self.events {
            if old.node == event.node {
                // Left out because the newer event stands for it, so nothing is lost. An event of
                // an earlier life of this node stays: without it, that change would seem to be
                // unknown here.
                continue;
            }
            if events.len() >= bound.get() {
                cut = true;
                break;
            }
            events.push(*old);
        }
        costly_invariant!(
            events.iter().filter(|other| other.node == event.node).count() == 1,
            "a chain that is made here has one event of its maker"
        );
        costly_invariant!(events.len() <= CHAIN_LEN_MAX, "a chain has at most 8 events");
        Self { events, cut }
    }

    /// The newest event.
    #[must_use]
    pub fn newest(&self) -> Event {
        #[allow(clippy::indexing_slicing, reason = "a chain has at least one event")]
        self.events[0]
    }

    /// The events, newest first.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Whether older events were dropped at the bound.
    #[must_use]
    pub(crate) fn is_cut(&self) -> bool {
        self.cut
    }

    /// Whether this chain names the event, or a later one of the same incarnation
    /// (docs/replication-rules.md, "State", covers).
    #[cfg(test)]
    #[must_use]
    pub(crate) fn covers(&self, event: Event) -> bool {
        self.events.iter().any(|e| e.node == event.node && e.tick >= event.tick)
    }
}

#[cfg(test)]
mod tests {
    use crate::chain::*;
    use crate::ids::{Incarnation, NodeId, NodeName, NodeTable, Tick};

    const BOUND: ChainBound = ChainBound(CHAIN_LEN_MAX);

    fn table(names: &[(&str, u64)]) -> (NodeTable, Vec<crate::ids::NodeIndex>) {
        let mut table = NodeTable::new();
        let indices = names
            .iter()
            .map(|(n, i)| {
                let id = NodeId { name: NodeName::new(n).unwrap(), incarnation: Incarnation(*i) };
                table.intern(&id).unwrap()
            })
            .collect();
        (table, indices)
    }

    fn event(node: crate::ids::NodeIndex, tick: u64) -> Event {
        Event { node, tick: Tick::new(tick).unwrap() }
    }

    #[test]
    fn each_incarnation_is_in_a_chain_once() {
        let (_, n) = table(&[("a", 1), ("b", 1), ("a", 2)]);
        let chain = Chain::first(event(n[0], 1)).extended(event(n[1], 4), BOUND);
        assert_eq!(chain.events(), [event(n[1], 4), event(n[0], 1)]);
        let chain = chain.extended(event(n[2], 1), BOUND);
        assert_eq!(chain.events(), [event(n[2], 1), event(n[1], 4), event(n[0], 1)]);
        let chain = chain.extended(event(n[1], 5), BOUND);
        assert_eq!(chain.events(), [event(n[1], 5), event(n[2], 1), event(n[0], 1)]);
        assert!(!chain.is_cut());
    }

    #[test]
    fn a_chain_is_cut_at_its_bound_and_says_so() {
        let names: Vec<String> = (0..10).map(|i| format!("n{i}")).collect();
        let (_, n) = table(&names.iter().map(|s| (s.as_str(), 1)).collect::<Vec<_>>());
        let mut chain = Chain::first(event(n[0], 1));
        for node in &n[1..CHAIN_LEN_MAX] {
            chain = chain.extended(event(*node, 1), BOUND);
        }
        assert!(!chain.is_cut());
        chain = chain.extended(event(n[9], 1), BOUND);
        assert!(chain.is_cut());
        assert_eq!(chain.events().len(), CHAIN_LEN_MAX);
        assert!(!chain.covers(event(n[0], 1)), "the oldest event fell off");
    }

    #[test]
    fn a_later_event_of_an_incarnation_covers_the_earlier_ones() {
        let (_, n) = table(&[("a", 1), ("a", 2)]);
        let chain = Chain::first(event(n[0], 5));
        assert!(chain.covers(event(n[0], 5)) && chain.covers(event(n[0], 3)));
        assert!(!chain.covers(event(n[0], 6)) && !chain.covers(event(n[1], 1)));
    }
}

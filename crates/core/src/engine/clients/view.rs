//! What operators and clients can ask about the state: which node made which changes, and which of
//! them are present, superseded, deleted or missing (docs/client-protocol.md, "Actions"). All of it
//! is computed from a snapshot, outside of the lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::gossip::peers::Peer;
use crate::engine::{Engine, LinkId};
use crate::model::entry::Entry;
use crate::model::ids::{Event, NodeId, NodeIndex, NodeName, NodeTable, Tick, Tock};
use crate::model::path::Path;
use crate::model::seen::Seen;
use crate::model::tick_set::TickSet;
use crate::tree::Tree;

/// One moment of a node's state. Cheap to take (O(nodes)); its methods may walk the whole tree
/// and belong outside of the lock.
#[derive(Clone)]
pub struct StateView {
    /// All entries.
    pub tree: Tree,
    /// The known incarnations.
    pub table: Arc<NodeTable>,
    /// The ticks that are accounted for.
    pub seen: Seen,
    /// What any peer was heard to have accounted for.
    pub(crate) heard: Seen,
    /// What each linked peer is known to have accounted for.
    pub peers: Vec<PeerView>,
    /// Incarnations that membership says are up.
    pub(crate) members: Vec<NodeIndex>,
    /// The own incarnation.
    pub own: NodeIndex,
    /// The last own tick; none while the node is not ready.
    pub tick: Option<Tick>,
    /// The network's counter.
    pub tock: Tock,
    /// Names that clients removed from their views.
    pub killed: Arc<BTreeSet<NodeName>>,
}

/// One linked peer as the engine knows it.
#[derive(Clone)]
pub struct PeerView {
    /// The link.
    pub link: LinkId,
    /// Its life.
    pub id: NodeId,
    /// Whether it serves clients.
    pub ready: bool,
    /// This node's ticks that it has acknowledged.
    pub acked: Tick,
    /// What it has accounted for, by its digests.
    pub seen: Seen,
}

/// Tick sets by incarnation.
pub type TickSets = BTreeMap<NodeIndex, TickSet>;

impl Engine {
    /// Takes a view.
    #[must_use]
    pub fn view(&self) -> StateView {
        let mut heard = self.replica.seen().clone();
        let peers = self.peer_views();
        peers.iter().for_each(|peer| {
            heard.union_with(&peer.seen);
        });
        let table = self.replica.table();
        let find = |id: &NodeId| table.find(id.name.as_str(), id.incarnation);
        StateView {
            members: self.members.iter().filter_map(find).collect(),
            tree: self.replica.tree().clone(),
            table: Arc::clone(self.replica.table()),
            seen: self.replica.seen().clone(),
            heard,
            peers,
            own: self.replica.own(),
            tick: self.tick(),
            tock: self.replica.tock(),
            killed: Arc::clone(&self.killed),
        }
    }
}

impl Engine {
    /// The linked peers. Cheap: what they have seen is shared.
    #[must_use]
    pub fn peer_views(&self) -> Vec<PeerView> {
        let view = |(link, peer): (LinkId, &Peer)| PeerView {
            link,
            id: peer.id.clone(),
            ready: peer.ready,
            acked: peer.acked,
            seen: peer.seen.clone(),
        };
        self.peers.iter().map(view).collect()
    }
}

impl StateView {
    /// The incarnations that clients see, with their highest tick that was heard of (none if
    /// they never wrote), in the order of their names. Without those `left_out`.
    #[must_use]
    pub fn nodes(&self, left_out: &BTreeSet<NodeIndex>) -> Vec<(NodeIndex, Option<Tick>)> {
        let is_visible = |(node, id): &(NodeIndex, &NodeId)| {
            !left_out.contains(node) && !self.killed.contains(&id.name)
        };
        let mut nodes: Vec<(NodeIndex, &NodeId)> = self.table.iter().filter(is_visible).collect();
        nodes.sort_by(|a, b| a.1.cmp(b.1));
        nodes
            .into_iter()
            .map(|(node, _)| {
                let highest = self.heard.get(node).map(TickSet::max).and_then(Tick::new);
                (node, highest.filter(|t| *t > Tick::default()))
            })
            .collect()
    }

    /// The retired incarnations, as far as is known: not this node's own, not linked, not members,
    /// and no tick of them is missing. If they own no entries either, clients need not see them any
    /// more.
    #[must_use]
    pub fn over(&self) -> BTreeSet<NodeIndex> {
        let linked: BTreeSet<&NodeId> = self.peers.iter().map(|peer| &peer.id).collect();
        let is_complete = |node| match (self.heard.get(node), self.seen.get(node)) {
            (None, _) => true,
            (Some(heard), Some(seen)) => seen.contiguous() >= heard.max(),
            (Some(_), None) => false,
        };
        let nodes = self.table.iter().filter(|(node, id)| {
            *node != self.own
                && !linked.contains(id)
                && !self.members.contains(node)
                && is_complete(*node)
        });
        nodes.map(|(node, _)| node).collect()
    }

    /// The incarnations that stand in the chain of an entry. Walks the whole tree.
    #[must_use]
    pub fn standing(&self) -> BTreeSet<NodeIndex> {
        let mut stands = vec![false; self.table.len()];
        for (_, entry) in self.tree.all() {
            for event in entry.events() {
                if let Some(stands) = stands.get_mut(event.node.as_usize()) {
                    *stands = true;
                }
            }
        }
        let nodes = self.table.iter().map(|(node, _)| node);
        nodes.zip(stands).filter(|(_, stands)| *stands).map(|(node, _)| node).collect()
    }

    /// Ticks that a node has and that this node cannot account for. A tick that is unknown
    /// everywhere but lies below one that was heard of is missing, too.
    #[must_use]
    pub fn missing(&self) -> TickSets {
        let nothing = TickSet::new();
        self.heard
            .iter()
            .map(|(node, heard)| {
                let seen = self.seen.get(node).unwrap_or(&nothing);
                (node, seen.missing_below(heard.max()))
            })
            .filter(|(_, ticks)| !ticks.is_empty())
            .collect()
    }

    /// Ticks that this node has and that some linked peer was not heard to have.
    #[must_use]
    pub fn remote_missing(&self) -> TickSets {
        let mut result = TickSets::new();
        for peer in &self.peers {
            for (node, ticks) in self.seen.difference(&peer.seen).iter() {
                result.entry(node).or_default().union_with(ticks);
            }
        }
        result
    }

    /// The ticks in the chains of entries, and of tombstones only. Walks the whole tree.
    #[must_use]
    pub fn chain_ticks(&self) -> ChainTicks {
        ChainTicks::of(self.tree.all().map(|(_, entry)| entry), self.tree.len())
    }

    /// Ticks that are accounted for and in no entry's chain.
    #[must_use]
    pub fn superseded(&self, chains: &ChainTicks) -> TickSets {
        let nothing = TickSet::new();
        self.seen
            .iter()
            .map(|(node, seen)| {
                (node, seen.difference(chains.present.get(&node).unwrap_or(&nothing)))
            })
            .filter(|(_, ticks)| !ticks.is_empty())
            .collect()
    }

    /// The entry whose chain holds this event. Walks the tree.
    #[must_use]
    pub fn by_event(&self, event: Event) -> Option<(Path, Entry)> {
        if !self.seen.contains(event) {
            return None;
        }
        self.tree.all().find(|(_, entry)| entry.events().any(|e| e == event))
    }

    /// The ticks with which a node stands in the chains of entries (only as the newest event,
    /// if `current`), rising. Walks the whole tree.
    #[must_use]
    pub fn ticks_of(&self, nodes: &[NodeIndex], current: bool) -> TickSet {
        let mut ticks: Vec<Tick> = self
            .tree
            .all()
            .flat_map(|(_, entry)| {
                let count = if current { 1 } else { usize::MAX };
                entry
                    .events()
                    .take(count)
                    .filter(|e| nodes.contains(&e.node))
                    .map(|e| e.tick)
                    .collect::<Vec<_>>()
            })
            .collect();
        ticks.sort_unstable();
        ticks.into_iter().collect()
    }

    /// An entry whose newest event is one of these incarnations': why they cannot be removed
    /// from the views of clients. Walks the tree.
    #[must_use]
    pub fn owned_by(&self, nodes: &[NodeIndex]) -> Option<Event> {
        self.tree.all().map(|(_, e)| e.newest()).find(|e| nodes.contains(&e.node))
    }
}

impl ChainTicks {
    /// Of some entries, about `count` of them.
    pub fn of(entries: impl Iterator<Item = Entry>, count: usize) -> Self {
        let mut events: Vec<(Event, bool)> = Vec::with_capacity(count);
        for entry in entries {
            let tombstone = entry.is_tombstone();
            events.extend(entry.events().map(|event| (event, tombstone)));
        }
        // Sorted, each set grows at its end, however the entries were ordered.
        events.sort_unstable_by_key(|(e, _)| (e.node, e.tick));
        let mut result = Self::default();
        for (event, tombstone) in events {
            result.present.entry(event.node).or_default().insert(event.tick);
            if tombstone {
                result.deleted.entry(event.node).or_default().insert(event.tick);
            }
        }
        result
    }

    /// The incarnations that stand in the chain of an entry.
    #[must_use]
    pub fn standing(&self) -> BTreeSet<NodeIndex> {
        self.present.keys().copied().collect()
    }
}

/// See [`StateView::chain_ticks`].
#[derive(Default, Debug, PartialEq, Eq)]
pub struct ChainTicks {
    /// In the chains of entries, tombstones included.
    pub present: TickSets,
    /// In the chains of tombstones.
    pub deleted: TickSets,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::batch::write_one;
    use crate::engine::{Config, Input, Outbox};
    use crate::model::ids::Incarnation;
    use crate::replica::write::Write;

    fn write(engine: &mut Engine, path: &str, value: Option<&[u8]>) {
        let write = Write::new(path.parse::<Path>().unwrap(), value);
        write_one(engine, write, false, &mut Outbox::new()).unwrap();
    }

    fn event(node: NodeIndex, tick: u64) -> Event {
        Event { node, tick: Tick::new(tick).unwrap() }
    }

    /// Node `b` in its second life, which has made changes, as has its first one. Of a node `c` it has
    /// heard, and has nothing; of `d`, behind it, it has accounted for two ticks whose entries are gone.
    fn view() -> (StateView, [NodeIndex; 4]) {
        let id = |name: &str, incarnation| NodeId {
            name: NodeName::new(name).unwrap(),
            incarnation: Incarnation(incarnation),
        };
        let mut engine = Engine::new(Config::new(id("b", 1), 1));
        engine.handle(Input::Found, 0, &mut Outbox::new());
        for path in ["k", "k", "old"] {
            write(&mut engine, path, Some(&[1]));
        }
        let before = engine.own();
        engine.handle(Input::Renewed { incarnation: Incarnation(2) }, 0, &mut Outbox::new());
        write(&mut engine, "k", Some(&[2]));
        write(&mut engine, "gone", Some(&[2]));
        write(&mut engine, "gone", None);
        let [c, d] = ["c", "d"].map(|name| engine.replica.intern(&id(name, 1)).unwrap());
        for tick in [1, 2] {
            engine.replica.account_for(event(d, tick));
        }
        (engine.view(), [before, engine.own(), c, d])
    }

    fn sets<const N: usize>(sets: [(NodeIndex, &[u64]); N]) -> TickSets {
        let set = |ticks: &[u64]| ticks.iter().filter_map(|tick| Tick::new(*tick)).collect();
        sets.into_iter().map(|(node, ticks)| (node, set(ticks))).collect()
    }

    #[test]
    fn nodes_come_with_the_last_tick_that_was_heard_of_without_those_left_out() {
        let (view, [before, own, c, d]) = view();
        let nodes: Vec<(NodeIndex, u64)> = view
            .nodes(&BTreeSet::new())
            .into_iter()
            .map(|(node, tick)| (node, tick.map_or(0, Tick::get)))
            .collect();
        assert_eq!(nodes, [(before, 3), (own, 3), (c, 0), (d, 2)]);
        assert_eq!(view.nodes(&BTreeSet::new())[2].1, None, "it never wrote");
        let left: Vec<NodeIndex> =
            view.nodes(&BTreeSet::from([own, d])).into_iter().map(|(node, _)| node).collect();
        assert_eq!(left, [before, c]);
    }

    #[test]
    fn lives_that_are_over_are_all_but_the_own_those_that_are_here_and_those_with_missing_ticks() {
        let (mut view, [before, own, c, d]) = view();
        assert_eq!(view.over(), BTreeSet::from([before, c, d]));
        view.members.push(c);
        view.heard.insert(event(d, 3));
        assert_eq!(view.over(), BTreeSet::from([before]));
        view.own = before;
        assert_eq!(view.over(), BTreeSet::from([own]));
    }

    #[test]
    fn missing_ticks_are_those_heard_of_only_and_nothing_else_is_listed() {
        let (mut view, [.., d]) = view();
        assert_eq!(view.missing(), TickSets::new());
        view.heard.insert(event(d, 4));
        assert_eq!(view.missing(), sets([(d, &[3, 4])]));
    }

    #[test]
    fn what_stands_in_chains_and_what_does_not() {
        let (view, [before, own, _, d]) = view();
        assert_eq!(view.standing(), BTreeSet::from([before, own]));
        let chains = view.chain_ticks();
        assert_eq!(chains.present, sets([(before, &[2, 3]), (own, &[1, 3])]));
        assert_eq!(chains.deleted, sets([(own, &[3])]));
        assert_eq!(view.superseded(&chains), sets([(before, &[1]), (own, &[2]), (d, &[1, 2])]));
    }

    #[test]
    fn an_entry_is_found_by_each_event_of_its_chain() {
        let (view, [before, own, _, d]) = view();
        let path = |event| view.by_event(event).map(|(path, _)| path.to_string());
        assert_eq!(path(event(own, 1)), Some("k".into()));
        assert_eq!(path(event(before, 2)), Some("k".into()));
        assert_eq!(path(event(before, 3)), Some("old".into()));
        assert_eq!(
            (path(event(before, 1)), path(event(d, 1)), path(event(d, 9))),
            (None, None, None)
        );
    }

    #[test]
    fn the_ticks_of_a_node_are_those_in_chains_or_on_top_of_them() {
        let (view, [before, own, ..]) = view();
        let ticks = |nodes: &[NodeIndex], current| -> Vec<u64> {
            view.ticks_of(nodes, current).ranges().flat_map(|(from, to)| from..to).collect()
        };
        assert_eq!((ticks(&[before], false), ticks(&[before], true)), (vec![2, 3], vec![3]));
        assert_eq!((ticks(&[own], false), ticks(&[own], true)), (vec![1, 3], vec![1, 3]));
    }
}

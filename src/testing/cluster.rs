//! Several nodes, and whether they hold the same.

use std::collections::BTreeMap;

use super::{PATIENCE, loopback, wait_until};
use crate::client::{CallError, Client, ClientConfig, HostPort};
use crate::model::ids::{NodeId, NodeName, Tick, Tock};
use crate::model::path::Path;
use crate::model::seen::{SeenById, export_seen};
use crate::node::config::Config;
use crate::node::{Node, NodeError};

/// A version of an entry: its value (none: a tombstone), its tock, its chain.
pub type Version = (Option<Vec<u8>>, Tock, Vec<(NodeId, Tick)>);

/// All that must be the same on all nodes of a network in the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeState {
    /// Every entry, tombstones included.
    pub entries: BTreeMap<Path, Version>,
    /// The ticks that are accounted for.
    pub seen: SeenById,
}

impl NodeState {
    /// Of a node, now.
    #[must_use]
    pub fn of(node: &Node) -> Self {
        let (tree, table, seen) = node
            .hub()
            .read(|e| (e.tree().clone(), std::sync::Arc::clone(e.table()), e.seen().clone()));
        let entries = tree.all().map(|(path, entry)| {
            let chain = entry
                .events()
                .filter_map(|event| Some((table.get(event.node)?.clone(), event.tick)))
                .collect();
            (path, (entry.value().map(<[u8]>::to_vec), entry.tock(), chain))
        });
        let entries = entries.collect();
        // A table's order is the order of arrival, which differs.
        let mut seen = export_seen(&table, &seen);
        seen.sort_by(|a, b| a.0.cmp(&b.0));
        seen.retain(|(_, ticks)| !ticks.is_empty());
        Self { entries, seen }
    }
}

/// Nodes that should have come to hold the same, and do not.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the nodes {0} and {1} still differ: {2}")]
pub struct Differs(NodeName, NodeName, String);

/// Nodes in this process that form one network.
pub struct TestCluster {
    nodes: Vec<Node>,
}

impl TestCluster {
    /// `count` nodes named `n0`, `n1` …, each linked to every other and ready.
    ///
    /// # Errors
    /// What kept one of them from starting.
    pub async fn start(count: usize) -> Result<Self, NodeError> {
        let mut cluster = Self { nodes: Vec::new() };
        for _ in 0..count {
            cluster.add().await?;
        }
        cluster.linked().await;
        Ok(cluster)
    }

    /// Lets one more node join; returns its place once it is ready.
    ///
    /// # Errors
    /// What kept it from starting.
    pub async fn add(&mut self) -> Result<usize, NodeError> {
        let place = self.nodes.len();
        let name = NodeName::new(&format!("n{place}"))
            .map_err(|error| NodeError::Membership(error.to_string()))?;
        let peers = self.nodes.iter().take(2).map(|n| n.gossip_addr().to_string()).collect();
        self.add_with(loopback(name, peers)).await
    }

    /// Adds a node with settings of its own; returns its place once it is ready.
    ///
    /// # Errors
    /// What kept it from starting.
    pub(crate) async fn add_with(&mut self, config: Config) -> Result<usize, NodeError> {
        let node = Node::start(config).await?;
        node.ready().await.map_err(|reason| NodeError::Membership(reason.to_string()))?;
        Ok(self.push(node))
    }

    /// Adds a node that runs already; returns its place.
    pub fn push(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// The node at a place.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    #[allow(
        clippy::indexing_slicing,
        reason = "a test that asks for a node that is not there is wrong"
    )]
    pub fn node(&self, place: usize) -> &Node {
        &self.nodes[place]
    }

    /// All nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Takes a node out of the cluster without ending it; later ones move up. Dropping it is
    /// like a crash.
    #[must_use]
    pub fn take(&mut self, place: usize) -> Node {
        self.nodes.remove(place)
    }

    /// Takes the node of that name out, as [`TestCluster::take`] does; none if there is none.
    #[must_use]
    pub fn take_named(&mut self, name: &str) -> Option<Node> {
        let place = self.nodes.iter().position(|node| node.name().as_str() == name)?;
        Some(self.nodes.remove(place))
    }

    /// Where clients reach the nodes: what [`Client::connect`] takes.
    #[must_use]
    pub fn seeds(&self) -> Vec<HostPort> {
        self.nodes.iter().map(|node| HostPort::from(node.client_addr())).collect()
    }

    /// A client of the cluster.
    ///
    /// # Errors
    /// No node answers.
    pub async fn client(&self) -> Result<Client, CallError> {
        Client::connect(self.seeds(), ClientConfig::new()).await
    }

    /// Waits until each node is linked to every other, or in a large network to those that it
    /// wants; returns whether that came about.
    pub async fn linked(&self) -> bool {
        let others = self.nodes.len().saturating_sub(1);
        let is_linked = |node: &Node| {
            node.hub().read(|engine| match engine.wanted_links() {
                None => engine.link_count() == others,
                Some(wanted) => wanted.iter().all(|name| engine.is_linked(name)),
            })
        };
        wait_until(PATIENCE, || self.nodes.iter().all(is_linked)).await
    }

    /// Waits until all nodes hold the same, and nothing is missing anywhere.
    ///
    /// # Errors
    /// They still differ.
    pub async fn settled(&self) -> Result<(), Differs> {
        let mut difference = None;
        let settled = wait_until(PATIENCE, || {
            difference = self.difference();
            difference.is_none()
        });
        if settled.await { Ok(()) } else { difference.map_or(Ok(()), Err) }
    }

    /// The first difference between the first node and another.
    #[must_use]
    pub fn difference(&self) -> Option<Differs> {
        let (first, others) = self.nodes.split_first()?;
        // The cheap look comes first: this is asked again and again.
        let seen = |node: &Node| node.hub().read(|e| (e.tree().len(), e.seen().iter().count()));
        for other in others {
            let differs =
                |why: String| Some(Differs(first.name().clone(), other.name().clone(), why));
            if seen(first) != seen(other) {
                let (a, b) = (seen(first), seen(other));
                return differs(format!("{a:?} and {b:?} entries and incarnations"));
            }
            let (a, b) = (NodeState::of(first), NodeState::of(other));
            if a.seen != b.seen {
                return differs(format!("{:?} and {:?} are accounted for", a.seen, b.seen));
            }
            if let Some((path, version)) =
                a.entries.iter().find(|(path, version)| b.entries.get(*path) != Some(version))
            {
                let found = b.entries.get(path);
                return differs(format!("{version:?} and {found:?} at {path}"));
            }
            if a.entries.len() != b.entries.len() {
                return differs("the second has more entries".to_owned());
            }
        }
        let missing = |node: &&Node| !node.hub().read(|e| e.view()).missing().is_empty();
        let lacks = self.nodes.iter().find(missing)?;
        let why =
            format!("{:?} is missing at the second", lacks.hub().read(|e| e.view()).missing());
        Some(Differs(first.name().clone(), lacks.name().clone(), why))
    }

    /// Ends all nodes.
    pub async fn shutdown(self) {
        futures::future::join_all(self.nodes.iter().map(Node::shutdown)).await;
    }
}

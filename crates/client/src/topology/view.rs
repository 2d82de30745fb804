//! The nodes of a network as one node sees them, and the differences between two such views.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::message::{array_items, as_bool, as_str, as_u64, map_items};
use crate::model::host_port::HostPort;
use crate::pool::NodeIdentity;
use crate::retry::deviations::{Rule, is_broken};

/// Most nodes of a view that count; further ones are left out. More than any network has.
pub const NODES_MAX: usize = 1024;

/// How a node is, as the node that was asked sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeState {
    /// It is the one that was asked.
    Asked,
    /// It is linked, but membership does not know it yet.
    Joining,
    /// It answers.
    Up,
    /// It has not answered lately.
    Suspect,
    /// It does not answer.
    Down,
    /// It went away on purpose.
    Left,
    /// Nothing is known of it but that its agreement is needed for purging.
    Away,
    /// A word that this version does not know; or no node was asked, and it is a seed.
    Other(String),
}

/// The state of a seed where no node tells which nodes there are.
const SEED: &str = "seed";

impl NodeState {
    fn of(word: &str) -> NodeState {
        match word {
            "self" => NodeState::Asked,
            "joining" => NodeState::Joining,
            "up" => NodeState::Up,
            "suspect" => NodeState::Suspect,
            "down" => NodeState::Down,
            "left" => NodeState::Left,
            "away" => NodeState::Away,
            other => NodeState::Other(other.to_owned()),
        }
    }

    /// Whether it may answer requests. A node that is only suspected may.
    #[must_use]
    pub fn is_live(&self) -> bool {
        match self {
            NodeState::Asked
            | NodeState::Joining
            | NodeState::Up
            | NodeState::Suspect
            | NodeState::Other(_) => true,
            NodeState::Down | NodeState::Left | NodeState::Away => false,
        }
    }
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// Its name; of a seed that was never reached, its address.
    pub name: String,
    /// Its life; none if it is not known.
    pub incarnation: Option<u64>,
    /// Its address for clients; none if it is not known.
    pub client: Option<HostPort>,
    /// Its address for peers, which is never the one for clients.
    pub gossip: Option<String>,
    /// How it is. Two nodes may see that differently.
    pub state: NodeState,
    /// Whether it serves data.
    pub is_ready: bool,
    /// Its place among the housekeepers, from 1.
    pub housekeeper: Option<u64>,
}

impl NodeView {
    /// Whether requests should go to it.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.is_ready && self.state.is_live() && self.client.is_some()
    }

    /// Whether it is one of those of which a majority is a majority: it did not leave on purpose.
    #[must_use]
    pub fn counts(&self) -> bool {
        match is_broken(Rule::Majority) {
            true => self.state == NodeState::Asked,
            false => self.state != NodeState::Left,
        }
    }

    /// A node of which only the address is known.
    pub(super) fn seed(address: &HostPort, identity: Option<NodeIdentity>) -> NodeView {
        let identity = identity
            .unwrap_or_else(|| NodeIdentity { name: address.to_string(), incarnation: None });
        NodeView {
            name: identity.name,
            incarnation: identity.incarnation,
            client: Some(address.clone()),
            gossip: None,
            state: NodeState::Other(String::from(SEED)),
            is_ready: true,
            housekeeper: None,
        }
    }

    /// Whether no node was asked which one this is.
    pub(super) fn is_seed(&self) -> bool {
        matches!(&self.state, NodeState::Other(word) if word == SEED)
    }

    fn decode(bytes: &[u8]) -> Option<NodeView> {
        let mut fields = BTreeMap::new();
        for (key, value) in map_items(bytes) {
            fields.insert(as_str(key)?, value);
        }
        let text = |name: &str| fields.get(name).and_then(|value| as_str(value));
        let gossip = text("gossip").map(str::to_owned);
        let client = text("client").and_then(|text| HostPort::parse(text, None).ok());
        Some(NodeView {
            name: text("name")?.to_owned(),
            incarnation: fields.get("incarnation").and_then(|value| as_u64(value)),
            client: client.map(|client| reachable(client, gossip.as_deref())),
            gossip,
            state: NodeState::of(text("state").unwrap_or("")),
            is_ready: fields.get("ready").and_then(|value| as_bool(value)).unwrap_or(false),
            housekeeper: fields.get("housekeeper").and_then(|value| as_u64(value)),
        })
    }

    /// Which of two lives of one name counts: the present one.
    fn is_better_than(&self, other: &NodeView) -> bool {
        let rank = |node: &NodeView| (node.state.is_live(), node.is_ready, node.client.is_some());
        rank(self) > rank(other)
    }
}

/// Nobody can connect to "all addresses": then it is where its peers find it.
fn reachable(client: HostPort, gossip: Option<&str>) -> HostPort {
    let is_anywhere = client.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
    let gossip = gossip.and_then(|text| HostPort::parse(text, Some(0)).ok());
    match gossip {
        Some(gossip) if is_anywhere => HostPort { host: gossip.host, port: client.port },
        _ => client,
    }
}

/// A view as a node sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToldView {
    /// In the order of names, each once.
    pub(super) nodes: Vec<NodeView>,
    /// The node that sent it.
    pub(super) source: Option<String>,
}

impl ToldView {
    /// From the map `{epoch, nodes, id}`; `None` if it is not one. The node's own epoch means
    /// nothing to a client that asks several nodes, and is not read.
    pub(super) fn decode(bytes: &[u8]) -> Option<ToldView> {
        let (mut nodes, mut source) = (None, None);
        for (key, value) in map_items(bytes) {
            match as_str(key)? {
                "nodes" => nodes = Some(value),
                "id" => {
                    let name = map_items(value).find(|(key, _)| as_str(key) == Some("name"));
                    source = name.and_then(|(_, value)| as_str(value)).map(str::to_owned);
                }
                _ => {}
            }
        }
        let told = array_items(nodes?).take(NODES_MAX).filter_map(NodeView::decode);
        Some(ToldView { nodes: by_name(told), source })
    }

    /// Whether the node that sent it serves data: before that, it may not have heard of the others
    /// yet.
    pub(super) fn is_of_ready_node(&self) -> bool {
        let own = self.nodes.iter().find(|node| node.state == NodeState::Asked);
        own.is_some_and(|node| node.is_ready)
    }
}

/// In the order of names, each once.
pub(super) fn by_name(nodes: impl Iterator<Item = NodeView>) -> Vec<NodeView> {
    let mut best: BTreeMap<String, NodeView> = BTreeMap::new();
    for node in nodes {
        let is_best = best.get(&node.name).is_none_or(|other| node.is_better_than(other));
        if is_best {
            best.insert(node.name.clone(), node);
        }
    }
    best.into_values().collect()
}

/// A node of which something differs between two views: it is another life, or its state, its
/// readiness or an address changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeChange {
    /// As it was.
    pub before: NodeView,
    /// As it is.
    pub after: NodeView,
}

/// How two views differ; each list in the order of names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Differences {
    pub(super) added: Vec<NodeView>,
    pub(super) removed: Vec<NodeView>,
    pub(super) changed: Vec<NodeChange>,
}

impl Differences {
    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// What differs. Both lists are in the order of names.
pub(super) fn compare(old: &[NodeView], new: &[NodeView]) -> Differences {
    let mut names: BTreeMap<&str, (Option<&NodeView>, Option<&NodeView>)> = BTreeMap::new();
    for node in old {
        names.entry(&node.name).or_default().0 = Some(node);
    }
    for node in new {
        names.entry(&node.name).or_default().1 = Some(node);
    }
    let mut differences = Differences::default();
    for pair in names.into_values() {
        match pair {
            (None, Some(new)) => differences.added.push(new.clone()),
            (Some(old), None) => differences.removed.push(old.clone()),
            (Some(old), Some(new)) if !is_same(old, new) => {
                differences.changed.push(NodeChange { before: old.clone(), after: new.clone() });
            }
            (_, _) => {}
        }
    }
    differences
}

/// Whether there is no difference for a client. It does not matter which of them was asked: that
/// one is up.
fn is_same(old: &NodeView, new: &NodeView) -> bool {
    let seen = |node: &NodeView| match node.state {
        NodeState::Asked => NodeView { state: NodeState::Up, ..node.clone() },
        _ => node.clone(),
    };
    seen(old) == seen(new)
}

#[cfg(test)]
mod vectors;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Fields;
    use crate::model::value::{write_array_len, write_map_len, write_str};

    fn node(name: &str, state: &str, client: Option<&str>) -> Fields {
        let mut fields = Fields::new();
        fields.str("name", name).u64("incarnation", 7).str("gossip", "10.0.0.1:5");
        fields.str("state", state).bool("ready", true).nil("housekeeper").str("new", "?");
        match client {
            Some(client) => fields.str("client", client),
            None => fields.nil("client"),
        };
        fields
    }

    fn told(nodes: &[Fields]) -> ToldView {
        let mut bytes = Vec::new();
        write_map_len(3, &mut bytes);
        write_str("epoch", &mut bytes);
        bytes.push(5);
        write_str("nodes", &mut bytes);
        write_array_len(nodes.len(), &mut bytes);
        nodes.iter().for_each(|node| bytes.extend_from_slice(&node.encode()));
        write_str("id", &mut bytes);
        let mut id = Fields::new();
        bytes.extend_from_slice(&id.str("name", "n0").u64("incarnation", 7).encode());
        ToldView::decode(&bytes).unwrap()
    }

    #[test]
    fn a_view_is_read_and_what_is_new_in_it_is_skipped() {
        let view = told(&[
            node("n1", "up", Some("10.0.0.2:6")),
            node("n0", "self", Some("0.0.0.0:9")),
            node("n2", "down", None),
        ]);
        assert_eq!(view.source.as_deref(), Some("n0"));
        let names: Vec<&str> = view.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["n0", "n1", "n2"]);
        // At the address for peers, with the port for clients.
        assert_eq!(view.nodes[0].client, Some(HostPort::parse("10.0.0.1:9", None).unwrap()));
        let live: Vec<bool> = view.nodes.iter().map(NodeView::is_live).collect();
        assert_eq!(live, [true, true, false]);
        assert!(view.is_of_ready_node());
        assert_eq!(ToldView::decode(b"\x05"), None);
    }

    #[test]
    fn of_two_lives_of_a_name_the_one_that_goes_on_counts() {
        let view = told(&[node("a", "up", Some("h:1")), node("a", "left", Some("h:2"))]);
        assert_eq!(view.nodes.len(), 1);
        assert_eq!(view.nodes[0].state, NodeState::Up);
    }

    #[test]
    fn views_of_two_nodes_that_agree_do_not_differ() {
        let one = told(&[node("a", "self", Some("h:1")), node("b", "up", Some("h:2"))]);
        let two = told(&[node("a", "up", Some("h:1")), node("b", "self", Some("h:2"))]);
        assert!(compare(&one.nodes, &two.nodes).is_empty());
        let three = told(&[node("a", "suspect", Some("h:1")), node("c", "up", Some("h:3"))]);
        let Differences { added, removed, changed } = compare(&two.nodes, &three.nodes);
        assert_eq!((added[0].name.as_str(), added.len()), ("c", 1));
        assert_eq!((removed[0].name.as_str(), removed.len()), ("b", 1));
        assert_eq!((changed[0].after.name.as_str(), changed.len()), ("a", 1));
        assert_eq!(changed[0].before.state, NodeState::Up);
    }
}

//! The vectors of views: how nodes' reports are read, and how two of them differ.

use serde_json::{Value as Json, json};

use super::*;
use crate::message::Fields;
use crate::model::value::{write_array_len, write_map_len, write_str};
use crate::retry::vectors::{self, hex};

/// A node as a report has it; without what is none.
fn node(
    name: &str,
    incarnation: u64,
    (client, gossip): (Option<&str>, Option<&str>),
    state: &str,
    is_ready: bool,
) -> Fields {
    let mut fields = Fields::new();
    fields
        .str("name", name)
        .u64("incarnation", incarnation)
        .str("state", state)
        .bool("ready", is_ready);
    match client {
        Some(client) => fields.str("client", client),
        None => fields.nil("client"),
    };
    match gossip {
        Some(gossip) => fields.str("gossip", gossip),
        None => fields.nil("gossip"),
    };
    fields.nil("housekeeper").str("of a later version", "?");
    fields
}

fn report(source: Option<&str>, nodes: &[Fields]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_map_len(2 + usize::from(source.is_some()), &mut bytes);
    write_str("epoch", &mut bytes);
    bytes.push(5);
    write_str("nodes", &mut bytes);
    write_array_len(nodes.len(), &mut bytes);
    nodes.iter().for_each(|node| bytes.extend_from_slice(&node.encode()));
    if let Some(source) = source {
        write_str("id", &mut bytes);
        bytes.extend_from_slice(&Fields::new().str("name", source).u64("incarnation", 7).encode());
    }
    bytes
}

fn word(state: &NodeState) -> &str {
    match state {
        NodeState::Asked => "self",
        NodeState::Joining => "joining",
        NodeState::Up => "up",
        NodeState::Suspect => "suspect",
        NodeState::Down => "down",
        NodeState::Left => "left",
        NodeState::Away => "away",
        NodeState::Other(word) => word,
    }
}

fn shown(node: &NodeView) -> Json {
    json!({
        "name": node.name, "incarnation": node.incarnation, "client": node.client.as_ref().map(HostPort::to_string),
        "gossip": node.gossip, "state": word(&node.state), "ready": node.is_ready, "live": node.is_live(),
        "counts": node.counts(),
    })
}

#[test]
fn views_are_read_and_differ_as_their_vectors_say() {
    let at = |client| (Some(client), Some("10.0.0.1:27587"));
    let reports = [
        report(
            Some("n1"),
            &[
                node("n1", 7, at("10.0.0.1:27586"), "self", true),
                node("n2", 8, at("10.0.0.2:1"), "up", true),
            ],
        ),
        // The same, as the other one sees it, and in another order.
        report(
            Some("n2"),
            &[
                node("n2", 8, at("10.0.0.2:1"), "self", true),
                node("n1", 7, at("10.0.0.1:27586"), "up", true),
            ],
        ),
        report(
            Some("n1"),
            &[
                node("n1", 7, at("10.0.0.1:27586"), "self", true),
                node("n2", 8, at("10.0.0.2:1"), "suspect", true),
            ],
        ),
        report(
            Some("n1"),
            &[
                node("n1", 7, at("10.0.0.1:27586"), "self", true),
                node("n2", 9, at("10.0.0.2:1"), "down", true),
                node("n3", 1, at("0.0.0.0:27586"), "joining", false),
            ],
        ),
        // All addresses: where the peers find it.
        report(
            Some("n3"),
            &[
                node("n3", 1, at("0.0.0.0:27586"), "self", true),
                node("n4", 1, (Some("[::]:9"), Some("[::1]:5")), "up", true),
                node("n5", 1, (Some("0.0.0.0:9"), None), "up", true),
                node("n6", 1, (None, Some("10.0.0.6:5")), "up", true),
            ],
        ),
        // Two lives of one name; words of a later version, and none.
        report(
            None,
            &[
                node("n1", 1, at("10.0.0.1:1"), "left", true),
                node("n1", 2, at("10.0.0.1:2"), "up", true),
                node("n1", 3, at("10.0.0.1:3"), "up", false),
                node("n7", 1, at("h:7"), "resting", true),
                node("n8", 1, at("h:8"), "away", true),
            ],
        ),
        report(Some("n1"), &[]),
    ];
    let mut before: Vec<NodeView> = Vec::new();
    let rows: Vec<Json> = reports
        .iter()
        .map(|bytes| {
            let view = ToldView::decode(bytes).unwrap();
            let differences = compare(&before, &view.nodes);
            let names = |nodes: &[NodeView]| nodes.iter().map(|node| node.name.clone()).collect();
            let [added, removed]: [Vec<String>; 2] =
                [names(&differences.added), names(&differences.removed)];
            let changed = differences.changed.iter().map(|change| change.after.name.clone());
            let changed: Vec<String> = changed.collect();
            let nodes: Vec<Json> = view.nodes.iter().map(shown).collect();
            before = view.nodes;
            json!({
                "report": hex(bytes), "source": view.source, "nodes": nodes,
                "added": added, "removed": removed, "changed": changed,
            })
        })
        .collect();
    let about = "What a node reports (MessagePack), how a client reads it, and how it differs from the row before.";
    vectors::compare("views", about, &rows);
}

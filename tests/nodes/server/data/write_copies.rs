//! Writes that wait until peers have acknowledged them.

use distkv::engine::{Input, LinkId};
use distkv::model::ids::{Incarnation, NodeId, NodeName, Tick};
use distkv::protocol::peer::PeerMessage;

use crate::harness::{Node, fields, path, text};

fn add_peer(node: &Node, name: &str) -> LinkId {
    let (link, _) = node.hub.add_link();
    let peer = NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(1) };
    node.hub.handle(Input::LinkUp { link, peer }, 0);
    link
}

fn acknowledge(node: &Node, link: LinkId, tick: u64) {
    let messages = vec![PeerMessage::Ack(Tick::new(tick).unwrap())];
    node.hub.handle(Input::Messages { link, messages }, 1);
}

#[test]
fn the_reply_waits_for_the_copies_and_others_do_not_wait_for_it() {
    let node = Node::found("n1");
    let peers = [add_peer(&node, "p"), add_peer(&node, "q")];
    let mut client = node.connect();
    let seq = client.start(map! {
        "action": "set_value", "path": path("a"), "value": 1, "copies": 2
    });
    client.silence(seq);
    assert_eq!(client.get("a"), Some(1.into()), "it is made here already");
    acknowledge(&node, peers[0], 1);
    client.silence(seq);
    acknowledge(&node, peers[1], 1);
    let reply = client.reply(seq);
    assert_eq!(fields(&reply), ["changed", "chain", "tock", "seq"]);
}

#[test]
fn the_fate_is_unknown_when_the_time_is_over() {
    let node = Node::found("n1");
    add_peer(&node, "p");
    let mut client = node.connect();
    let write = |action: &str| {
        map! {"action": action, "path": path("a"), "copies": 1, "timeout": 0.05}
    };
    // Nothing is there, so nothing is made, and there is nothing to confirm.
    assert_eq!(client.ok(write("delete_value"))["changed"].as_bool(), Some(false));
    client.set("a", 1);
    let error = client.error(write("delete_value"));
    assert_eq!(text(&error, "code"), "unknown_fate");
    assert!(text(&error, "error").contains("made here"), "{error}");
    // A client may have tried before, and waited for longer than the node knows.
    assert!(text(&error, "error").contains("only 0 of 1 peer has confirmed it in time"), "{error}");
    assert_eq!(client.get("a"), None);
}

#[test]
fn a_change_that_was_made_already_waits_for_its_copies_too() {
    let node = Node::found("n1");
    let peer = add_peer(&node, "p");
    let mut client = node.connect();
    client.set("a", 1);
    let again = |timeout: f64| {
        map! {
            "action": "set_value", "path": path("a"), "value": 1, "idem": true, "copies": 1,
            "timeout": timeout
        }
    };
    assert_eq!(client.code(again(0.02)), "unknown_fate");
    acknowledge(&node, peer, 1);
    assert_eq!(client.ok(again(10.0))["changed"].as_bool(), Some(false));
}

#[test]
fn only_so_many_writes_may_wait() {
    let config = distkv::server::ServerConfig { open_requests_max: 3, ..Default::default() };
    let node = Node::found_with("n1", config);
    let mut client = node.connect();
    let set = |i: i64| map! {"action": "set_value", "path": path("a"), "value": i, "copies": 1};
    for i in 0..3 {
        client.start(set(i));
    }
    assert_eq!(client.code(set(3)), "too_many");
    assert_eq!(client.get("a"), Some(2.into()), "what was refused was not made");
}

#[test]
fn a_write_that_comes_again_waits_for_the_copies_of_the_one_that_was_made() {
    let node = Node::found("n1");
    let peer = add_peer(&node, "p");
    let mut client = node.connect();
    let write = |timeout: f64| {
        map! {
            "action": "set_value", "path": path("a"), "value": 1, "copies": 1,
            "timeout": timeout, "wid": crate::harness::Value::Binary(vec![1; 16]),
        }
    };
    for _ in 0..2 {
        assert_eq!(client.code(write(0.02)), "unknown_fate");
    }
    // Later ones count for nothing.
    client.set("a", 2);
    acknowledge(&node, peer, 1);
    let reply = client.ok(write(10.0));
    assert_eq!(
        (reply["repeated"].as_bool(), reply["chain"]["tick"].as_u64()),
        (Some(true), Some(1))
    );
}

//! The client port over real sockets: each action, flow control, pipelining, what is sent when.

#[macro_use]
#[path = "server/harness.rs"]
mod harness;

use harness::{Node, fields};

#[test]
fn greets_sets_gets_and_deletes() {
    let node = Node::found("n1");
    let mut client = node.connect();
    assert_eq!(client.hello["node"].as_str(), Some("n1"));
    let reply = client.ok(map! {"action": "set_value", "path": harness::path("a.b"), "value": 5});
    assert_eq!(fields(&reply), ["changed", "chain", "tock", "seq"]);
    let reply = client.ok(map! {"action": "get_value", "path": harness::path("a.b")});
    assert_eq!(reply["value"].as_i64(), Some(5));
    let reply = client.ok(map! {"action": "delete_value", "path": harness::path("a.b")});
    assert_eq!(reply["prev"].as_i64(), Some(5));
}

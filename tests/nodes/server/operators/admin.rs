//! What operators ask, what is not there yet, and the end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use distkv::rt;

use crate::harness::{Node, Value, array, fields, path, text};

#[test]
fn the_status_tells_what_the_node_holds() {
    let node = Node::found("n1");
    let (mut client, _other) = (node.connect(), node.connect());
    client.set("a", 1);
    client.set("b", 1);
    client.ok(map! {"action": "delete_value", "path": path("b")});
    let watch = client.start(map! {"action": "watch", "path": path("a")});
    client.reply(watch);
    let status = client.ok(map! {"action": "status"});
    let order = [
        "name",
        "life",
        "network",
        "version",
        "ready",
        "read_only",
        "uptime_ms",
        "time",
        "tick",
        "tock",
        "entries",
        "live_entries",
        "tombstones",
        "memory_bytes",
        "memory_max",
        "connections",
        "connections_max",
        "connections_kept",
        "watches",
        "members",
        "links",
        "client_memory",
        "catching_up",
        "counters",
        "housekeepers",
        "warnings",
        "purge_blocked",
        "silent",
        "client_log",
        "storage",
        "scheduled",
        "logins",
        "seq",
    ];
    assert_eq!(fields(&status), order);
    let number = |field: &str| status[field].as_u64().unwrap();
    assert_eq!((number("entries"), number("live_entries"), number("tombstones")), (2, 1, 1));
    assert_eq!((number("tick"), number("watches")), (3, 1));
    assert_eq!((number("connections"), number("connections_kept")), (2, 0));
    assert_eq!((text(&status, "name"), text(&status, "life")), ("n1", "n1~1"));
    assert_eq!(text(&status, "version"), "1.2.3");
    assert_eq!(status["counters"]["conflicts"].as_u64(), Some(0));
    assert!(status["counters"]["client_requests"].as_u64() >= Some(4));
    assert!(status["catching_up"].is_nil() && status["memory_max"].is_nil());
}

#[test]
fn the_members_are_listed() {
    let node = Node::found("n1");
    let reply = node.connect().ok(map! {"action": "members"});
    assert_eq!(fields(&reply), ["result", "warnings", "purge_blocked", "seq", "tock"]);
    let order = [
        "name",
        "life",
        "incarnation",
        "gossip",
        "client",
        "state",
        "linked",
        "secured",
        "ready",
        "lagging",
        "acked",
        "since_ms",
        "software",
        "housekeeper",
        "delete_member",
        "away_ms",
    ];
    assert_eq!(fields(&reply["result"][0]), order);
    assert_eq!(text(&reply["result"][0], "state"), "self");
}

#[test]
fn a_client_may_make_the_node_leave() {
    let node = Node::found("n1");
    let mut client = node.connect();
    assert_eq!(client.ok(map! {"action": "leave"})["result"].as_bool(), Some(true));
    assert!(node.info.left.load(Ordering::SeqCst));
}

#[test]
fn stopping_ends_streams_and_connections() {
    let node = Node::found("n1");
    let (mut client, mut idle) = (node.connect(), node.connect());
    let seq = client.start(map! {"action": "watch", "path": path("a")});
    client.reply(seq);
    let waiting =
        client.start(map! {"action": "set_value", "path": path("b"), "value": 1, "copies": 1});
    client.silence(waiting);
    rt::block_on(node.server.stop(Duration::from_secs(10)));
    assert_eq!(node.server.connections(), 0);
    assert_eq!(text(&client.reply(seq), "state"), "end");
    assert_eq!(text(&client.reply(waiting), "code"), "unknown_fate");
    assert!(client.receive().is_none() && idle.receive().is_none());
    assert!(std::net::TcpStream::connect(node.address()).is_err());
}

#[test]
fn requests_that_are_wrong_are_errors_of_their_own_only() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let error = client.error(map! {"action": "no_such_action", "path": path("a")});
    assert_eq!(fields(&error), ["error", "code", "seq", "tock"]);
    assert_eq!(text(&error, "code"), "unknown_action");
    for (bad, field) in [
        (map! {"action": "get_value"}, "path"),
        (map! {"action": "get_value", "path": 5}, "path"),
        (map! {"action": "get_value", "path": array([Value::from("a"), Value::Nil])}, "path"),
        (map! {"action": "get_value", "path": path("a"), "nchain": "x"}, "nchain"),
        (map! {"action": "get_value", "path": path("a"), "nchain": Value::Nil}, "nchain"),
        (map! {"action": "set_value", "path": path("a")}, "value"),
        (map! {"action": "set_value", "path": path("a"), "value": 1, "chain": 5}, "chain"),
        (map! {"action": "set_value", "path": path("a"), "value": 1, "copies": -1}, "copies"),
        (map! {"action": "set_value", "path": path("a"), "value": 1, "timeout": "x"}, "timeout"),
        (map! {"action": "get_tree", "path": path("a"), "max_depth": "x"}, "max_depth"),
        (map! {"action": "stop"}, "task"),
        (map! {"action": "enum_node", "node": 5}, "node"),
        (map! {"action": 5}, "action"),
        (map! {}, "action"),
    ] {
        let error = client.error(bad.clone());
        assert!(text(&error, "error").contains(field), "{bad}: {error}");
        assert_eq!(text(&error, "code"), "bad_request");
    }
    client.send(map! {"action": "get_tock"});
    let error = client.receive().unwrap();
    assert_eq!(fields(&error), ["error", "code", "tock"]);
    client.ok(map! {"action": "get_tock"});
}

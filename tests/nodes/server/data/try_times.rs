//! Requests that say until when they count (`by`, docs/client-protocol.md, "The time of a try").

use crate::harness::{Client, Node, Value, array, has, path};

/// Far more than a test takes, milliseconds.
const LATER: u64 = 1 << 40;

fn clock(client: &Client) -> u64 {
    client.hello["clock"].as_u64().expect("the greeting tells the node's clock")
}

/// All that changes something, each at a path that has a value.
fn changes(by: Value) -> Vec<Value> {
    let by = || by.clone();
    let set = || map! {"action": "set_value", "path": path("a.b"), "value": 2};
    vec![
        map! {"action": "set_value", "path": path("a.b"), "value": 2, "by": by()},
        map! {"action": "delete_value", "path": path("a.b"), "by": by()},
        map! {"action": "set_internal", "path": path("a"), "value": 2, "by": by()},
        map! {"action": "delete_internal", "path": path("a"), "by": by()},
        map! {"action": "batch", "ops": array([set()]), "by": by()},
        map! {"action": "delete_tree", "path": path("a"), "nchain": 0, "by": by()},
        map! {"action": "delete_tree", "path": path("a"), "nchain": 2, "by": by()},
        map! {"action": "msg_send", "topic": array(["t"]), "data": 1, "by": by()},
        map! {"action": "root", "path": path("a"), "by": by()},
    ]
}

#[test]
fn what_comes_later_than_it_counts_is_not_carried_out_and_is_told_the_clock() {
    let node = Node::found("n1");
    while clock(&node.connect()) == 0 {}
    let mut client = node.connect();
    client.set("a.b", 1);
    client.ok(map! {"action": "set_internal", "path": path("a"), "value": 1});
    let began = clock(&client);
    let tick = client.ok(map! {"action": "status"})["tick"].clone();
    for (number, request) in changes(0.into()).into_iter().enumerate() {
        let error = client.error(request);
        assert_eq!(error["code"].as_str(), Some("too_late"), "{number}: {error}");
        assert!(error["clock"].as_u64().unwrap() >= began, "{number}: {error}");
    }
    assert_eq!(client.ok(map! {"action": "status"})["tick"], tick, "nothing was changed");
    assert_eq!(client.get("a.b"), Some(1.into()));
    // Also in a stream.
    let error = client.error(map! {"action": "get_tree", "path": path("a"), "by": 0});
    assert!(error["code"].as_str() == Some("too_late") && error["clock"].is_u64(), "{error}");
}

#[test]
fn what_comes_in_time_is_carried_out() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let by = clock(&client) + LATER;
    for request in changes(by.into()).into_iter().filter(|r| r["nchain"] != Value::from(2)) {
        client.set("a.b", 1);
        assert!(!has(&client.ok(request), "clock"));
    }
    // As if it was not there.
    for by in [Value::Nil, u64::MAX.into()] {
        let set = map! {"action": "set_value", "path": path("c"), "value": 3, "by": by};
        client.ok(set);
    }
}

#[test]
fn reads_of_a_path_are_answered_however_late() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.set("a", 1);
    let get = client.ok(map! {"action": "get_value", "path": path("a"), "by": 0});
    assert_eq!(get["value"], 1.into());
}

#[test]
fn of_writes_that_come_together_each_has_its_own_time() {
    let node = Node::found("n1");
    while clock(&node.connect()) == 0 {}
    let mut client = node.connect();
    let set = |value: u64, by: u64| {
        map! {"action": "set_value", "path": path("a"), "value": value, "by": by}
    };
    let times = [LATER, 0, LATER, 0];
    let sent: Vec<_> = (1..).zip(times).map(|(at, by)| client.start(set(at, by))).collect();
    let is_late = |seq| client.reply(seq)["code"].as_str() == Some("too_late");
    let late: Vec<_> = sent.into_iter().map(is_late).collect();
    assert_eq!(late, [false, true, false, true]);
    assert_eq!(client.get("a"), Some(3.into()));
}

#[test]
fn a_time_that_is_none_is_refused() {
    let node = Node::found("n1");
    let mut client = node.connect();
    for by in [Value::from(-1), "soon".into(), array([1]), 1.0.into(), true.into()] {
        let set = map! {"action": "set_value", "path": path("a"), "value": 1, "by": by};
        let error = client.error(set);
        assert_eq!(error["code"].as_str(), Some("bad_request"), "{error}");
        assert!(error["error"].as_str().unwrap().contains("'by'"), "{error}");
    }
    assert_eq!(client.get("a"), None);
}

//! What a node tells about itself: get_state, reading by event, enum_node, kill_node,
//! check_deleted.

use distkv::engine::Input;
use distkv::model::ids::{Incarnation, NodeId, NodeName};

use crate::harness::{Node, Value, array, fields, has, path, text};

fn range(from: u64, to: u64) -> Value {
    array([from, to])
}

#[test]
fn ticks_move_from_present_to_known_and_to_deleted() {
    let node = Node::found("n1");
    let mut client = node.connect();
    for i in 0..6 {
        client.set(&format!("p.k{i}"), i);
    }
    client.set("p.k2", "again"); // 3 -> 7
    client.ok(map! {"action": "delete_value", "path": path("p.k3")}); // 4 -> 8
    let all = map! {
        "action": "get_state", "nodes": true, "superseded": true, "present": true,
        "deleted": true, "missing": true, "remote_missing": true, "node_drop": true
    };
    let reply = client.ok(all);
    let order = [
        "nodes",
        "known",
        "present",
        "deleted",
        "missing",
        "remote_missing",
        "node_drop",
        "node",
        "tock",
        "seq",
    ];
    assert_eq!(fields(&reply), order);
    assert_eq!(reply["nodes"], map! {"n1~1": 8});
    assert_eq!(reply["known"], map! {"n1~1": array([range(3, 5)])});
    assert_eq!(reply["present"], map! {"n1~1": array([range(1, 3), range(5, 9)])});
    assert_eq!(reply["deleted"], map! {"n1~1": array([8])});
    assert_eq!((&reply["missing"], &reply["node_drop"]), (&map! {}, &array::<Value>([])));
    assert_eq!(fields(&client.ok(map! {"action": "get_state"})), ["node", "tock", "seq"]);
}

#[test]
fn all_parts_come_at_once() {
    let node = Node::found("n1");
    let parts = [
        "nodes",
        "known",
        "present",
        "deleted",
        "missing",
        "remote_missing",
        "node_drop",
        "debug",
        "debugger",
        "conflicts",
        "housekeepers",
        "resync",
        "delete_group",
        "storage",
        "client_memory",
    ];
    let asked = parts.iter().map(|part| ((*part).into(), true.into()));
    let action = ("action".into(), "get_state".into());
    let reply = node.connect().ok(Value::Map(asked.chain([action]).collect()));
    let told = fields(&reply);
    assert_eq!(told[..parts.len()], parts);
    assert_eq!(told[parts.len()..], ["node", "tock", "seq"]);
}

#[test]
fn a_node_that_never_wrote_has_no_tick() {
    let node = Node::found("n1");
    let (link, _queue) = node.hub.add_link();
    let peer = NodeId { name: NodeName::new("n2").unwrap(), incarnation: Incarnation(5) };
    node.hub.handle(Input::LinkUp { link, peer }, 0);
    let mut client = node.connect();
    let reply = client.ok(map! {"action": "get_state", "nodes": true});
    assert_eq!(reply["nodes"], map! {"n1~1": 0, "n2~5": Value::Nil});
}

#[test]
fn an_entry_is_found_by_its_event() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.set("a.b", "one");
    let by_event = |tick: Value| map! {"action": "get_value", "node": "n1~1", "tick": tick};
    let reply = client.ok(by_event(1.into()));
    assert_eq!(fields(&reply), ["value", "tock", "path", "seq"]);
    assert_eq!(reply["path"], path("a.b"));
    client.ok(map! {"action": "delete_value", "path": path("a.b")});
    assert!(!has(&client.ok(by_event(2.into())), "value"));
    for tick in [Value::from(1), 3.into(), 0.into(), (-1).into(), (1u64 << 62).into()] {
        assert_eq!(client.code(by_event(tick)), "not_found");
    }
    for tick in [Value::from("x"), Value::Nil] {
        assert_eq!(client.code(by_event(tick)), "bad_request");
    }
    let unknown = map! {"action": "get_value", "node": "n1~2", "tick": 1};
    assert_eq!(client.code(unknown), "not_found");
    // A bare name would be another life after the next restart.
    let error = client.error(map! {"action": "get_value", "node": "n1", "tick": 1});
    assert_eq!(text(&error, "code"), "bad_request");
    assert!(text(&error, "error").contains("n1~LIFE"), "{error}");
}

#[test]
fn a_nodes_ticks_are_listed() {
    let node = Node::found("n1");
    let mut client = node.connect();
    for i in 0..4 {
        client.set(&format!("k{i}"), i);
    }
    client.set("k1", "again");
    let list = |max: Value| map! {"action": "enum_node", "node": "n1~1", "max": max};
    assert_eq!(client.ok(list(Value::Nil))["result"], array([1, 3, 4, 5]));
    assert_eq!(client.ok(list(2.into()))["result"], array([1, 3]));
    assert_eq!(client.code(map! {"action": "enum_node", "node": "nobody~1"}), "not_found");
    assert_eq!(client.code(map! {"action": "enum_node", "node": "n1"}), "bad_request");
}

#[test]
fn a_node_that_owns_entries_is_not_killed_and_one_that_does_not_vanishes() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.set("k", 1);
    assert_eq!(client.code(map! {"action": "kill_node", "node": "n1"}), "in_use");
    assert_eq!(client.code(map! {"action": "kill_node", "node": "n1~1"}), "in_use");
    for nobody in ["nobody", "nobody~1", "n1~2"] {
        assert_eq!(client.code(map! {"action": "kill_node", "node": nobody}), "not_found");
    }
    let (link, _queue) = node.hub.add_link();
    let peer = NodeId { name: NodeName::new("n2").unwrap(), incarnation: Incarnation(5) };
    node.hub.handle(Input::LinkUp { link, peer }, 0);
    assert_eq!(client.code(map! {"action": "kill_node", "node": "n2"}), "in_use");
    node.hub.handle(Input::LinkDown { link }, 0);
    // As `get_state` names it.
    let reply = client.ok(map! {"action": "kill_node", "node": "n2~5"});
    assert_eq!(fields(&reply), ["seq", "tock"]);
    let reply = client.ok(map! {"action": "get_state", "nodes": true, "node_drop": true});
    assert_eq!((&reply["nodes"], &reply["node_drop"]), (&map! {"n1~1": 1}, &array(["n2"])));
    assert_eq!(client.code(map! {"action": "enum_node", "node": "n2~5"}), "not_found");
}

#[test]
fn what_became_of_ticks_is_told_and_nothing_is_removed() {
    let node = Node::found("n1");
    let mut client = node.connect();
    for i in 0..4 {
        client.set(&format!("k{i}"), i);
    }
    client.set("k1", "again"); // 2 -> 5
    client.ok(map! {"action": "delete_value", "path": path("k2")}); // 3 -> 6
    let asked = map! {"n1~1": array([Value::from(2), range(3, 9)]), "nobody~9": array([7])};
    let reply = client.ok(map! {
        "action": "check_deleted", "nodes": asked, "iter": false, "nchain": -1
    });
    assert_eq!(fields(&reply), ["present", "known", "deleted", "missing", "seq", "tock"]);
    assert_eq!(reply["present"], map! {"n1~1": array([range(4, 7)])});
    assert_eq!(reply["known"], map! {"n1~1": array([range(2, 4)])});
    assert_eq!(reply["deleted"], map! {"n1~1": array([6])});
    assert_eq!(reply["missing"], map! {"n1~1": array([range(7, 9)]), "nobody~9": array([7])});
    assert_eq!(client.get("k0"), Some(0.into()));
    for bad in [
        map! {"action": "check_deleted"},
        map! {"action": "check_deleted", "nodes": array([1])},
        map! {"action": "check_deleted", "nodes": map! {"n1": array([1])}},
        map! {"action": "check_deleted", "nodes": map! {"n1~1": array([range(5, 1 << 63)])}},
    ] {
        assert_eq!(client.code(bad), "bad_request");
    }
    let nothing = client.ok(map! {"action": "check_deleted", "nodes": map! {}});
    assert_eq!(nothing["missing"], map! {});
}

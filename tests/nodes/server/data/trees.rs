//! Whole subtrees: get_tree, enum, delete_tree.

use distkv::server::ServerConfig;

use crate::harness::{Client, Node, Value, array, encode, fields, has, path, text};

const TREE: [(&str, i64); 7] =
    [("t", 0), ("t.a", 1), ("t.a.b", 2), ("t.a.b.c", 3), ("t.a.d", 4), ("t.e.f.g", 5), ("t.h", 6)];

fn plant(client: &mut Client) {
    for (at, value) in TREE {
        client.set(at, value);
    }
}

fn values(messages: &[Value]) -> Vec<i64> {
    messages.iter().map(|m| m["value"].as_i64().unwrap()).collect()
}

/// `path` and `depth` of each message.
fn places(messages: &[Value]) -> Vec<(Vec<String>, u64)> {
    let names = |m: &Value| {
        m["path"].as_array().unwrap().iter().map(|e| e.as_str().unwrap().to_owned()).collect()
    };
    messages.iter().map(|m| (names(m), m["depth"].as_u64().unwrap())).collect()
}

#[test]
fn a_tree_comes_parents_first_with_shortened_paths() {
    let node = Node::found("n1");
    let mut client = node.connect();
    plant(&mut client);
    let messages = client.stream(map! {"action": "get_tree", "path": path("t")});
    assert_eq!(values(&messages), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(fields(&messages[0]), ["value", "tock", "path", "depth", "seq"]);
    let want: [(&[&str], u64); 7] = [
        (&[], 0),
        (&["a"], 0),
        (&["b"], 1),
        (&["c"], 2),
        (&["d"], 1),
        (&["e", "f", "g"], 0),
        (&["h"], 0),
    ];
    let want: Vec<(Vec<String>, u64)> =
        want.iter().map(|(p, d)| (p.iter().map(|e| (*e).to_owned()).collect(), *d)).collect();
    assert_eq!(places(&messages), want);
    let chained = client.stream(map! {"action": "get_tree", "path": path("t"), "nchain": 1});
    assert_eq!(fields(&chained[1]), ["value", "chain", "tock", "path", "depth", "seq"]);
}

#[test]
fn whole_paths_are_extensions_and_cut_ones_arrays() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.set(":", 0);
    client.set("a.b", 1);
    client.set("a.c", 2);
    client.ok(map! {"action": "set_internal", "path": path("hidden"), "value": 1});
    let messages = client.stream(map! {"action": "get_tree", "path": path(":")});
    assert_eq!(messages.len(), 3, "the internal tree is not part of the whole");
    assert_eq!(messages[0]["path"], path(":"));
    assert_eq!(messages[1]["path"], path("a.b"));
    assert_eq!(messages[2]["path"], array(["c"]));
}

#[test]
fn depths_limit_a_tree() {
    let node = Node::found("n1");
    let mut client = node.connect();
    plant(&mut client);
    let mut limited = |min: Value, max: Value| {
        values(&client.stream(map! {
            "action": "get_tree", "path": path("t"), "min_depth": min, "max_depth": max
        }))
    };
    assert_eq!(limited(Value::Nil, 0.into()), [0]);
    assert_eq!(limited(Value::Nil, 1.into()), [0, 1, 6]);
    assert_eq!(limited(1.into(), 1.into()), [1, 6]);
    assert_eq!(limited(2.into(), 2.into()), [2, 4]);
    assert_eq!(limited(3.into(), (-1).into()), [3, 5]);
    assert!(limited(2.into(), 1.into()).is_empty());
}

#[test]
fn empty_nodes_come_only_if_asked_for() {
    let node = Node::found("n1");
    let mut client = node.connect();
    plant(&mut client);
    client.ok(map! {"action": "delete_value", "path": path("t.h")});
    let request = |empty: bool| map! {"action": "get_tree", "path": path("t"), "empty": empty};
    let all = client.stream(request(true));
    let bare: Vec<_> = all.iter().filter(|m| !has(m, "value")).map(|m| m["path"].clone()).collect();
    assert_eq!(bare, [array(["e"]), array(["f"]), array(["h"])]);
    assert_eq!(client.stream(request(false)).len(), 6);
}

#[test]
fn the_tree_of_a_deleted_entry_is_empty() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.set("gone", 1);
    client.ok(map! {"action": "delete_value", "path": path("gone")});
    assert!(client.stream(map! {"action": "get_tree", "path": path("gone")}).is_empty());
}

#[test]
fn a_tree_is_of_one_moment() {
    let node = Node::found("n1");
    let mut writer = node.connect();
    let mut reader = node.connect_with_qlen(5);
    for i in 0..50 {
        writer.set(&format!("x.k{i:02}"), "old");
    }
    let seq = reader.start(map! {"action": "get_tree", "path": path("x")});
    assert_eq!(text(&reader.reply(seq), "state"), "start");
    for i in 0..50 {
        writer.set(&format!("x.k{i:02}"), "new");
        writer.set(&format!("x.l{i:02}"), "new");
    }
    let mut count = 0;
    loop {
        let message = reader.reply(seq);
        if message["state"].as_str() == Some("end") {
            break;
        }
        assert_eq!(text(&message, "value"), "old");
        count += 1;
        reader.ack(seq, message["wseq"].as_u64().unwrap());
    }
    assert_eq!(count, 50);
}

#[test]
fn children_are_listed_with_and_without_data() {
    let node = Node::found("n1");
    let mut client = node.connect();
    plant(&mut client);
    let list = |data: bool, empty: bool| {
        map! {"action": "enum", "path": path("t"), "with_data": data, "empty": empty}
    };
    let reply = client.ok(list(false, false));
    assert_eq!(fields(&reply), ["result", "seq", "tock"]);
    assert_eq!(reply["result"], array(["a", "h"]));
    assert_eq!(client.ok(list(false, true))["result"], array(["a", "e", "h"]));
    assert_eq!(client.ok(list(true, false))["result"], map! {"a": 1, "h": 6});
    assert_eq!(client.ok(list(true, true))["result"], map! {"a": 1, "e": Value::Nil, "h": 6});
    assert_eq!(
        client.ok(map! {"action": "enumerate", "path": path("t.h")})["result"],
        array::<Value>([])
    );
    assert_eq!(client.ok(map! {"action": "enum", "path": path(":")})["result"], array(["t"]));
}

#[test]
fn a_long_list_is_complete_and_one_too_long_is_refused() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let big = "x".repeat(3 << 20);
    for i in 0..3000 {
        let seq = client.start(
            map! {"action": "set_value", "path": array([Value::from("l"), i.into()]), "value": i},
        );
        client.reply(seq);
    }
    let reply = client.ok(map! {"action": "enum", "path": path("l")});
    assert_eq!(reply["result"], array(0..3000));
    for i in 0..3 {
        client.set(&format!("big.k{i}"), big.as_str());
    }
    let list = map! {"action": "enum", "path": path("big"), "with_data": true};
    assert_eq!(client.code(list), "too_large");
    assert_eq!(client.ok(map! {"action": "enum", "path": path("big")})["result"][2], "k2".into());
}

#[test]
fn delete_tree_counts_what_had_a_value() {
    let node = Node::found("n1");
    let mut client = node.connect();
    plant(&mut client);
    let delete = |at: &str| map! {"action": "delete_tree", "path": path(at)};
    let reply = client.ok(delete("t.a"));
    assert_eq!(fields(&reply), ["changed", "seq", "tock"]);
    assert_eq!(reply["changed"].as_u64(), Some(4));
    assert_eq!(client.ok(delete("t"))["changed"].as_u64(), Some(3));
    assert_eq!(client.ok(delete("t"))["changed"].as_u64(), Some(0));
    assert_eq!(client.ok(delete("nowhere"))["changed"].as_u64(), Some(0));
    for at in [":", ":n"] {
        assert_eq!(client.code(delete(at)), "is_root");
    }
}

#[test]
fn delete_tree_of_many_entries_is_complete() {
    let node = Node::found("n1");
    let (mut client, mut other) = (node.connect(), node.connect());
    for i in 0..2000 {
        client.set(&format!("m.k{i}"), i);
    }
    let seq = client.start(map! {"action": "delete_tree", "path": path("m")});
    // Others are served meanwhile.
    other.set("other", 1);
    assert_eq!(client.reply(seq)["changed"].as_u64(), Some(2000));
    assert!(client.stream(map! {"action": "get_tree", "path": path("m")}).is_empty());
}

/// Both requests come together, so the second one is looked at when the first ones are deleted.
#[test]
fn a_delete_tree_that_is_stopped_says_how_many_it_has_deleted_and_leaves_the_rest() {
    let node = Node::found("n1");
    let mut client = node.connect();
    for i in 0..2000 {
        client.set(&format!("m.k{i}"), i);
    }
    let delete = map! {"action": "delete_tree", "path": path("m"), "seq": 9_000};
    let stop = map! {"action": "stop", "task": 9_000, "seq": 9_001};
    client.send_bytes(&[encode(&delete), encode(&stop)].concat());
    assert_eq!(client.reply(9_001)["result"].as_bool(), Some(true));
    let stopped = client.reply(9_000);
    assert_eq!(text(&stopped, "code"), "unknown_fate");
    let deleted = stopped["changed"].as_u64().unwrap();
    assert!(0 < deleted && deleted < 2000, "{stopped}");
    let left = client.stream(map! {"action": "get_tree", "path": path("m")});
    assert_eq!(left.len() as u64, 2000 - deleted);
}

/// Who deletes reads one number: it is no slow reader, however much goes.
#[test]
fn delete_tree_takes_more_than_is_kept_for_clients() {
    let config = ServerConfig { client_memory_max: 8 << 20, ..ServerConfig::default() };
    let node = Node::found_with("n1", config);
    let mut client = node.connect();
    for i in 0..600_u16 {
        client.set(&format!("m:{i}"), Value::Binary(vec![0; 100_000]));
    }
    let done = client.ok(map! {"action": "delete_tree", "path": path("m")});
    assert_eq!(done["changed"].as_u64(), Some(600));
    assert_eq!(node.hub.client_memory().view().closed, 0);
}

#[test]
fn delete_tree_streams_what_it_deletes() {
    let node = Node::found("n1");
    let mut client = node.connect();
    plant(&mut client);
    let seq = client.start(map! {"action": "delete_tree", "path": path("t"), "nchain": 2});
    let start = client.reply(seq);
    assert_eq!(fields(&start), ["seq", "state", "tock"]);
    let messages = client.rest(seq);
    assert_eq!(messages.len(), 7);
    let order = ["node", "tick", "prev", "path", "old_value", "tock", "seq", "depth"];
    assert_eq!(fields(&messages[0]), order);
    let ticks: Vec<_> = messages.iter().map(|m| m["tick"].as_u64().unwrap()).collect();
    assert_eq!(ticks, (8..15).collect::<Vec<_>>());
    assert_eq!(messages[3]["old_value"].as_i64(), Some(3));
    assert_eq!(messages[3]["depth"].as_u64(), Some(2));
    client.silence(seq);
}

//! Many operations in one request.

use distkv::engine::{Config, Input};
use distkv::model::ids::{Incarnation, NodeId, NodeName};

use crate::harness::{Client, Node, Value, array, fields, path, refusing, text};

fn batch(ops: impl IntoIterator<Item = Value>) -> Value {
    map! {"action": "batch", "ops": array(ops)}
}

fn get(at: &str) -> Value {
    map! {"action": "get_value", "path": path(at)}
}

fn set(at: &str, value: impl Into<Value>) -> Value {
    map! {"action": "set_value", "path": path(at), "value": value.into()}
}

fn with(request: Value, key: &str, value: impl Into<Value>) -> Value {
    let Value::Map(mut fields) = request else { panic!("no map") };
    fields.push((key.into(), value.into()));
    Value::Map(fields)
}

/// The results of a batch.
fn results(client: &mut Client, ops: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let reply = client.ok(batch(ops));
    assert_eq!(fields(&reply), ["results", "seq", "tock"]);
    reply["results"].as_array().unwrap().clone()
}

/// Their codes; "none" for what is no error.
fn codes(results: &[Value]) -> Vec<&str> {
    let code = |result| match fields(result)[..] {
        ["error", "code"] => text(result, "code"),
        _ => "none",
    };
    results.iter().map(code).collect()
}

#[test]
fn each_operation_is_answered_as_if_it_had_been_sent_alone() {
    let (node, alone) = (Node::found("n1"), Node::found("n1"));
    let (mut client, mut other) = (node.connect(), alone.connect());
    let chain = map! {"node": "n1~1", "tick": 1};
    let ops = [
        set("a", 1),
        get("a"),
        with(get("a"), "nchain", 3),
        with(set("a", 2), "chain", chain.clone()),
        with(set("a", 2), "chain", chain),
        with(set("a", 7), "chain", map! {"node": "n1", "tick": 2}),
        with(set("a", 2), "idem", true),
        with(with(set("a", 3), "prev", 2), "nchain", 0),
        get("nothing"),
        with(get("nothing"), "nchain", 1),
        map! {"action": "delete_value", "path": path("a")},
        map! {"action": "delete_value", "path": path("nothing")},
        map! {"action": "set_internal", "path": array(["x"]), "value": "i"},
        map! {"action": "get_internal", "path": array(["x"])},
        map! {"action": "delete_internal", "path": array(["x"])},
        set("b.c", 5),
        get("b"),
        set(":n.codec.x", 1),
    ];
    let results = results(&mut client, ops.clone());
    assert_eq!(results.len(), ops.len());
    for (op, result) in ops.into_iter().zip(results) {
        let Value::Map(mut expected) = other.request(op.clone()) else { panic!("no map") };
        let is_error = expected.iter().any(|(key, _)| key.as_str() == Some("error"));
        expected.retain(|(key, _)| {
            key.as_str() != Some("seq") && !(is_error && key.as_str() == Some("tock"))
        });
        let Value::Map(mut result) = result else { panic!("no map") };
        // Where there is no entry the tock is that of the end of the batch.
        let tells = |key: &Value, value: &Value| {
            ["value", "chain"].contains(&key.as_str().unwrap()) && !value.is_nil()
        };
        if !expected.iter().any(|(key, value)| tells(key, value)) {
            expected.retain(|(key, _)| key.as_str() != Some("tock"));
            result.retain(|(key, _)| key.as_str() != Some("tock"));
        }
        assert_eq!(result, expected, "{op}");
    }
}

#[test]
fn reads_see_the_writes_before_them_and_what_fails_stops_nothing() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let mut ops = Vec::new();
    for n in 0..300 {
        ops.extend([set("k", n), get("k"), with(set("k", 0), "chain", Value::Nil)]);
    }
    ops.push(map! {"action": "delete_value", "path": path("k")});
    ops.push(get("k"));
    let results = results(&mut client, ops);
    for n in 0..300 {
        assert_eq!(results[n * 3 + 1]["value"].as_u64(), Some(n as u64));
        assert_eq!(codes(&results[n * 3..n * 3 + 3]), ["none", "none", "already_exists"]);
    }
    assert_eq!(results[900]["changed"].as_bool(), Some(true));
    assert!(results[901]["value"].is_nil());
    let status = client.ok(map! {"action": "status"});
    assert_eq!(status["tick"].as_u64(), Some(301));
}

#[test]
fn write_ids_hold_within_a_batch_and_from_one_to_the_next() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let wid = |byte: u8| Value::Binary(vec![byte; 16]);
    let ops = || {
        [
            with(set("a", 1), "wid", wid(1)),
            with(set("a", 1), "wid", wid(1)),
            with(set("b", 1), "wid", wid(1)),
            with(map! {"action": "delete_value", "path": path("a")}, "wid", wid(2)),
        ]
    };
    let first = results(&mut client, ops());
    assert_eq!(codes(&first), ["none", "none", "wid_reused", "none"]);
    assert!(first[0]["repeated"].is_nil() && first[3]["repeated"].is_nil());
    assert_eq!(first[1]["repeated"].as_bool(), Some(true));
    assert_eq!(first[1]["chain"], first[0]["chain"]);
    let again = results(&mut client, ops());
    for at in [0, 1, 3] {
        assert_eq!(again[at]["repeated"].as_bool(), Some(true));
        assert_eq!(again[at]["tock"], first[at]["tock"]);
    }
    assert_eq!((client.get("a"), client.get("b")), (None, None));
}

#[test]
fn paths_begin_at_the_sessions_root() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.ok(map! {"action": "root", "path": path("top")});
    let internal = map! {"action": "set_internal", "path": array(["x"]), "value": 2};
    results(&mut client, [set("a", 1), internal]);
    let mut other = node.connect();
    assert_eq!(other.get("top.a"), Some(1.into()));
    assert_eq!(other.get("a"), None);
    let read = map! {"action": "get_internal", "path": array(["x"])};
    assert_eq!(other.ok(read)["value"].as_u64(), Some(2));
}

#[test]
fn watchers_and_others_see_what_a_batch_changed() {
    let node = Node::found("n1");
    let (mut client, mut watcher) = (node.connect(), node.connect());
    let seq = watcher.start(map! {"action": "watch", "path": path("w")});
    watcher.reply(seq);
    results(&mut client, (0..500).map(|n| set(&format!("w.k{n}"), n)));
    for n in 0..500 {
        assert_eq!(watcher.reply(seq)["value"].as_u64(), Some(n));
    }
}

#[test]
fn a_long_batch_lets_others_in_between_and_is_answered_whole() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let watch = client.start(map! {"action": "watch", "path": path("w")});
    assert_eq!(text(&client.reply(watch), "state"), "start");
    let deep = ".x".repeat(50) + &"y".repeat(50);
    let seq = client.start(batch((0..1_024).map(|n| set(&format!("w.k{n}{deep}"), n))));
    let behind = client.start(get(&format!("w.k1023{deep}")));
    let mut seen = Vec::new();
    let reply = loop {
        let message = client.receive().unwrap();
        if message["seq"].as_u64() == Some(seq) {
            break message;
        }
        assert_eq!(message["seq"].as_u64(), Some(watch), "what is behind it waits");
        seen.push(message["value"].as_u64().unwrap());
    };
    assert!(!seen.is_empty(), "the stream had no turn before the whole batch was done");
    let results = reply["results"].as_array().unwrap();
    assert_eq!(codes(results), ["none"; 1_024]);
    let ticks = results.iter().map(|result| result["chain"]["tick"].as_u64().unwrap());
    assert!(ticks.eq(1..=1_024));
    assert_eq!(client.reply(behind)["value"].as_u64(), Some(1_023));
    while seen.len() < 1_024 {
        seen.push(client.reply(watch)["value"].as_u64().unwrap());
    }
    assert!(seen.into_iter().eq(0..1_024));
}

#[test]
fn only_reads_and_writes_of_entries_can_be_in_a_batch() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.set("a", 1);
    let bad = [
        batch([get("a")]),
        map! {"action": "get_tree", "path": path("a")},
        map! {"action": "delete_tree", "path": path("a")},
        map! {"action": "watch", "path": path("a")},
        map! {"action": "get_tock"},
        map! {"action": "leave"},
        map! {"action": "get_value", "node": "n1~1", "tick": 1},
        map! {"action": "no_such_action"},
        map! {"action": 5},
        map! {},
        map! {"action": "get_value"},
        map! {"action": "set_value", "path": path("a")},
        with(set("a", 2), "copies", 1),
        with(set("a", 2), "wid", "x"),
        Value::Nil,
        Value::from(5),
        Value::from("get_value"),
        array([get("a")]),
        Value::Ext(3, vec![1]),
    ];
    let ops = bad.iter().flat_map(|bad| [bad.clone(), get("a")]);
    let results = results(&mut client, ops);
    for (pair, op) in results.chunks(2).zip(&bad) {
        assert_eq!(codes(pair), ["bad_request", "none"], "{op}");
        assert_eq!(pair[1]["value"].as_u64(), Some(1));
    }
}

#[test]
fn a_batch_that_is_none_or_too_long_is_refused_as_a_whole() {
    let node = Node::found("n1");
    let mut client = node.connect();
    for ops in [Value::Nil, 5.into(), "x".into(), map! {"a": 1}] {
        assert_eq!(client.code(map! {"action": "batch", "ops": ops}), "bad_request");
    }
    assert_eq!(client.code(map! {"action": "batch"}), "bad_request");
    assert!(results(&mut client, []).is_empty());
    let ops = |count: u32| (0..count).map(|n| set("a", n));
    let error = client.error(batch(ops(1_025)));
    assert_eq!(text(&error, "code"), "too_large");
    assert!(text(&error, "error").contains("1024"), "{error}");
    assert_eq!(client.get("a"), None, "nothing of it was done");
    assert_eq!(results(&mut client, ops(1_024)).len(), 1_024);
    assert_eq!(client.get("a"), Some(1_023.into()));
}

#[test]
fn a_reply_does_not_grow_without_bound() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.set("big", Value::Binary(vec![0; 4_000_000]));
    let ops = (0..1_000).map(|_| get("big")).chain([set("a", 1), Value::Nil]);
    let results = results(&mut client, ops);
    let codes = codes(&results);
    assert_eq!(codes[..3], ["none"; 3]);
    assert!(codes[3..1_001].iter().all(|code| *code == "too_large"));
    assert_eq!(codes[1_001], "bad_request");
    assert_eq!(client.get("a"), None, "what is refused is not done");
}

#[test]
fn a_node_that_may_not_answers_each_operation_so() {
    let own = NodeId { name: NodeName::new("n1").unwrap(), incarnation: Incarnation(1) };
    let config = Config { read_only: true, ..Config::new(own, 1) };
    let node = Node::with(config, refusing());
    let mut client = node.connect();
    let ops = || [get("a"), set("a", 1), get("a")];
    assert_eq!(codes(&results(&mut client, ops())), ["not_ready"; 3]);
    assert_eq!(codes(&results(&mut client, [get("a")])), ["not_ready"]);
    node.hub.handle(Input::Found, 0);
    assert_eq!(codes(&results(&mut client, ops())), ["none", "read_only", "none"]);
}

//! The table of virtual shards: rows for clients that route, figures for operators.

use distkv::engine::Config;
use distkv::engine::NO_LATER;
use distkv::engine::changes::{BeginShardCount, EndShardCount};
use distkv::model::ids::{Incarnation, NodeId, NodeName};
use distkv::model::shard::shard_of;

use crate::harness::{Client, Node, Value, fields, path, refusing, text};

fn prefer(client: &mut Client, shard: impl std::fmt::Display, value: impl Into<Value>) {
    let path = path(&format!("shards:{shard}"));
    client.ok(map! {"action": "set_internal", "path": path, "value": value.into()});
}

fn shard(text: &str) -> u64 {
    u64::from(shard_of(&text.parse().unwrap()))
}

/// A row's first and last shard, and whom it prefers.
fn runs(reply: &Value) -> Vec<(u64, u64, Option<String>)> {
    let rows = reply["result"].as_array().unwrap().iter();
    rows.map(|row| {
        let number = |name: &str| row[name].as_u64().unwrap();
        (number("first"), number("last"), row["prefer"].as_str().map(str::to_owned))
    })
    .collect()
}

fn detail(client: &mut Client) -> Vec<Value> {
    let reply = client.ok(map! {"action": "list_shards", "detail": true});
    assert_eq!(reply["next"], Value::Nil);
    reply["result"].as_array().unwrap().clone()
}

/// Of one shard; nil if it is not listed.
fn row(rows: &[Value], shard: u64) -> Value {
    rows.iter().find(|row| row["shard"].as_u64() == Some(shard)).cloned().unwrap_or(Value::Nil)
}

fn numbers(row: &Value, names: [&str; 4]) -> [u64; 4] {
    names.map(|name| row[name].as_u64().unwrap())
}

#[test]
fn rows_are_runs_of_shards_with_the_same_preference() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let all = client.ok(map! {"action": "list_shards"});
    assert_eq!(fields(&all), ["result", "next", "seq", "tock"]);
    assert_eq!(runs(&all), [(0, 1023, None)]);
    let whole = &all["result"][0];
    assert_eq!(fields(whole), ["id", "start", "end", "first", "last", "prefer"]);
    assert_eq!(whole["start"], Value::Binary(vec![0; 16]));
    assert_eq!(whole["end"], Value::Binary(vec![255; 16]));

    prefer(&mut client, 5, "n2");
    prefer(&mut client, 6, "n2");
    let split = client.ok(map! {"action": "list_shards"});
    let n2 = Some(String::from("n2"));
    assert_eq!(runs(&split), [(0, 4, None), (5, 6, n2), (7, 1023, None)]);
    let start = (5_u128 << 118).to_be_bytes().to_vec();
    let end = ((7_u128 << 118) - 1).to_be_bytes().to_vec();
    assert_eq!(split["result"][1]["start"], Value::Binary(start));
    assert_eq!(split["result"][1]["end"], Value::Binary(end));

    for shard in [5, 6] {
        let path = path(&format!("shards:{shard}"));
        client.ok(map! {"action": "delete_internal", "path": path});
    }
    let merged = client.ok(map! {"action": "list_shards"});
    assert_eq!(merged["result"], all["result"], "the same row again, with the same id");
}

#[test]
fn rows_come_page_by_page() {
    let node = Node::found("n1");
    let mut client = node.connect();
    for shard in [5, 7, 9] {
        prefer(&mut client, shard, "n2");
    }
    let whole = client.ok(map! {"action": "list_shards"});
    let mut rows = Vec::new();
    let mut after = Value::Nil;
    for page in 0..3 {
        let reply = client.ok(map! {"action": "list_shards", "limit": 3, "after": after});
        rows.extend(reply["result"].as_array().unwrap().clone());
        after = reply["next"].clone();
        assert_eq!(after.is_nil(), page == 2);
    }
    assert_eq!(Value::Array(rows), whole["result"]);

    let first = client.ok(map! {"action": "list_shards", "detail": true, "limit": 2});
    let numbers = |reply: &Value| -> Vec<u64> {
        let rows = reply["result"].as_array().unwrap().iter();
        rows.map(|row| row["shard"].as_u64().unwrap()).collect()
    };
    // Below nil there are entries now: that is a shard, too.
    let mut expected = [5, 7, 9, shard(":n.a")];
    expected.sort_unstable();
    assert_eq!(
        (numbers(&first), first["next"].as_u64()),
        (expected[..2].to_vec(), Some(expected[1]))
    );
    let next = first["next"].clone();
    let second = client.ok(map! {"action": "list_shards", "detail": true, "after": next});
    assert_eq!((numbers(&second), &second["next"]), (expected[2..].to_vec(), &Value::Nil));
}

#[test]
fn what_is_no_preference_is_ignored() {
    let node = Node::found("n1");
    let mut client = node.connect();
    prefer(&mut client, 1024, "n2");
    prefer(&mut client, "-1", "n2");
    prefer(&mut client, 5, 7);
    prefer(&mut client, 6, "no name");
    prefer(&mut client, 7, "");
    prefer(&mut client, "8.x", "n2");
    let text = path("shards.9");
    client.ok(map! {"action": "set_internal", "path": text, "value": "n2"});
    // Nor is the same outside of the system's own tree.
    client.set("shards:9", "n2");
    assert_eq!(runs(&client.ok(map! {"action": "list_shards"})), [(0, 1023, None)]);
}

#[test]
fn single_shards_tell_what_is_in_them_and_how_much_they_are_used() {
    let node = Node::found("n1");
    let mut client = node.connect();
    assert!(detail(&mut client).is_empty());
    client.set("a.x", 1);
    client.set("a.y", 2);
    client.ok(map! {"action": "delete_value", "path": path("a.y")});
    for _ in 0..4 {
        client.ok(map! {"action": "get_value", "path": path("a.x")});
    }
    client.ok(map! {"action": "get_value", "path": path("nothing")});
    let rows = detail(&mut client);
    let names = ["shard", "entries", "tombstones", "bytes", "reads", "writes", "hash", "prefer"];
    assert_eq!(fields(&rows[0]), names);
    let (of_a, of_nothing) = (row(&rows, shard("a")), row(&rows, shard("nothing")));
    let figures = ["entries", "tombstones", "reads", "writes"];
    assert_eq!(numbers(&of_a, figures), [2, 1, 4, 3]);
    assert_eq!(numbers(&of_nothing, figures), [0, 0, 1, 0]);
    assert_eq!((rows.len(), of_nothing["hash"].as_u64()), (2, Some(0)));
    let memory = client.ok(map! {"action": "status"})["memory_bytes"].clone();
    assert_eq!(of_a["bytes"], memory);

    // What was refused was no write.
    let set = map! {"action": "set_value", "path": path("a.x"), "value": 3, "chain": Value::Nil};
    client.request(set);
    client.ok(map! {"action": "delete_tree", "path": path("a")});
    prefer(&mut client, shard("a"), "n2");
    let of_a = row(&detail(&mut client), shard("a"));
    assert_eq!(numbers(&of_a, figures), [2, 2, 4, 4]);
    assert_eq!(text(&of_a, "prefer"), "n2");
}

#[test]
fn hashes_change_with_every_change_and_are_kept_up_to_date() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.set("a", 1);
    client.set("b", 1);
    let before = detail(&mut client);
    client.set("a", 1);
    let after = detail(&mut client);
    let hash = |rows: &[Value], key| row(rows, shard(key))["hash"].as_u64().unwrap();
    assert_ne!(hash(&before, "a"), hash(&after, "a"), "the same value, but another event");
    assert_eq!(hash(&before, "b"), hash(&after, "b"));
    let kept = node.hub.read(|engine| engine.shard_sums().unwrap().as_slice().to_vec());
    let count = node.hub.handle(BeginShardCount, NO_LATER).walk();
    node.hub.handle(EndShardCount(&count), NO_LATER);
    let counted = node.hub.read(|engine| engine.shard_sums().unwrap().as_slice().to_vec());
    assert_eq!(kept, counted);
}

#[test]
fn a_request_that_makes_no_sense_is_refused() {
    let node = Node::found("n1");
    let mut client = node.connect();
    for bad in [
        map! {"action": "list_shards", "after": Value::Binary(vec![0; 15])},
        map! {"action": "list_shards", "after": 5},
        map! {"action": "list_shards", "detail": true, "after": -1},
        map! {"action": "list_shards", "limit": 0},
        map! {"action": "list_shards", "limit": "x"},
    ] {
        assert_eq!(text(&client.request(bad.clone()), "code"), "bad_request", "{bad}");
    }
    let id = NodeId { name: NodeName::new("n1").unwrap(), incarnation: Incarnation(1) };
    let waiting = Node::with(Config::new(id, 1), refusing());
    let reply = waiting.connect().request(map! {"action": "list_shards"});
    assert_eq!(text(&reply, "code"), "not_ready");
}

//! `get_snapshot` and `restore`: whole states, piece by piece.

use std::io::Cursor;

use distkv::engine::changes::{BeginTakeIn, EndTakeIn, TakeInSome};
use distkv::engine::{Config, Input};
use distkv::model::ids::{Incarnation, NodeId, NodeName, Tock};
use distkv::server::ServerConfig;
use distkv::storage::{FileId, SnapshotSummary, read_snapshot, verify_snapshot, write_snapshot_to};

use crate::harness::{Client, Node, Value, array, fields, path, refusing, text};

/// All pieces of a stream, put together.
fn bytes_of(pieces: &[Value]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| piece["data"].as_slice().unwrap().to_vec()).collect()
}

fn fetch(node: &Node) -> Vec<u8> {
    bytes_of(&node.connect().stream(map! {"action": "get_snapshot"}))
}

fn verify(bytes: Vec<u8>) -> SnapshotSummary {
    verify_snapshot("test", Box::new(Cursor::new(bytes)), &mut |_| {}).unwrap()
}

fn piece(data: &[u8]) -> Value {
    map! {"action": "restore", "data": Value::Binary(data.to_vec())}
}

fn first(data: &[u8]) -> Value {
    map! {"action": "restore", "start": true, "data": Value::Binary(data.to_vec())}
}

fn last() -> Value {
    map! {"action": "restore", "last": true}
}

/// The snapshot of a node with some entries.
fn some_snapshot(name: &str, entries: &[(&str, u64)]) -> Vec<u8> {
    let node = Node::found(name);
    let mut client = node.connect();
    for (at, value) in entries {
        client.set(at, *value);
    }
    fetch(&node)
}

fn restore(client: &mut Client, bytes: &[u8]) -> Value {
    client.ok(first(bytes));
    client.ok(last())["result"].clone()
}

#[test]
fn a_snapshot_comes_in_pieces_and_holds_one_moment() {
    let node = Node::found("n1");
    let mut client = node.connect_with_qlen(3);
    for i in 0..300 {
        client.set(&format!("a:{i}"), Value::Binary(vec![i as u8; 3000]));
    }
    let seq = client.start(map! {"action": "get_snapshot"});
    assert_eq!(client.reply(seq)["state"].as_str(), Some("start"));
    let mut pieces = vec![client.reply(seq)];
    assert_eq!(fields(&pieces[0]), ["data", "seq", "wseq", "tock"]);
    // It waits for the client, and is not changed by what comes meanwhile.
    client.set("later", 1);
    client.silence(seq);
    let mut wseq = 2;
    loop {
        client.ack(seq, wseq);
        let message = client.reply(seq);
        wseq += 1;
        if message["state"].as_str() == Some("end") {
            break;
        }
        pieces.push(message);
    }
    assert!(pieces.len() > 10, "{}", pieces.len());
    let summary = verify(bytes_of(&pieces));
    assert_eq!((summary.entries, summary.tombstones), (300, 0));
    assert_eq!((summary.header.network.as_str(), summary.header.id.name.as_str()), ("test", "n1"));
    assert_eq!(summary.knowledge.tick.get(), 300);
}

#[test]
fn only_some_snapshots_are_made_at_once() {
    let node = Node::found("n1");
    let mut client = node.connect_with_qlen(3);
    client.set("a", Value::Binary(vec![0; 2 << 20]));
    let open: Vec<u64> = (0..4).map(|_| client.start(map! {"action": "get_snapshot"})).collect();
    for seq in &open {
        assert_eq!(client.reply(*seq)["state"].as_str(), Some("start"));
    }
    assert_eq!(client.code(map! {"action": "get_snapshot"}), "too_many");
    for seq in open {
        client.ok(map! {"action": "stop", "task": seq});
    }
    // Their threads notice when they want to go on.
    let mut other = node.connect();
    while other.request(map! {"action": "get_snapshot"})["state"].as_str() != Some("start") {}
}

#[test]
fn what_is_restored_is_there_and_watchers_hear_of_it() {
    let bytes = some_snapshot("other", &[("a", 1), ("b.c", 2)]);
    let node = Node::found("n1");
    let mut watcher = node.connect();
    let watch = watcher.start(map! {"action": "watch", "path": path(":")});
    watcher.reply(watch);
    let mut client = node.connect();
    // In pieces of any size.
    let (head, rest) = bytes.split_at(7);
    assert_eq!(client.ok(first(head))["result"].as_u64(), Some(7));
    let mut sent = 7;
    for part in rest.chunks(50) {
        sent += part.len() as u64;
        assert_eq!(client.ok(piece(part))["result"].as_u64(), Some(sent));
    }
    assert_eq!(client.get("a"), None, "not before all of it was read");
    let done = client.ok(last());
    assert_eq!(fields(&done), ["result", "seq", "tock"]);
    let counts = ["entries", "taken", "made", "dropped", "conflicts", "kept", "users", "lists"];
    assert_eq!(fields(&done["result"]), [&counts[..], &["access_left_out", "auth"]].concat());
    assert!(done["result"]["auth"].is_nil(), "nobody must log in");
    assert_eq!(
        (done["result"]["entries"].as_u64(), done["result"]["taken"].as_u64()),
        (Some(2), Some(2))
    );
    assert_eq!((client.get("a"), client.get("b.c")), (Some(1.into()), Some(2.into())));
    let heard = [watcher.reply(watch), watcher.reply(watch)];
    assert_eq!(heard.map(|change| change["value"].as_u64().unwrap()), [1, 2]);
    // The other node's changes are known as its own.
    let reply = client.ok(map! {"action": "get_value", "path": path("a"), "nchain": 1});
    assert_eq!(text(&reply["chain"], "node"), "other~1");
    assert_eq!(restore(&mut client, &bytes)["taken"].as_u64(), Some(0));
}

#[test]
fn nothing_of_what_is_bad_is_taken_in() {
    let bytes = some_snapshot("other", &[("a", 1), ("b", 2), ("c", 3)]);
    let node = Node::found("n1");
    let mut client = node.connect();
    assert_eq!(client.code(piece(&bytes)), "bad_request", "without a start");
    assert_eq!(client.code(last()), "bad_request");

    // Cut off; with something behind it; with a byte flipped anywhere.
    client.ok(first(&bytes[..bytes.len() - 1]));
    assert_eq!(client.code(last()), "bad_request");
    assert_eq!(client.code(last()), "bad_request", "it is given up");
    for at in (0..bytes.len()).step_by(7) {
        let mut bad = bytes.clone();
        bad[at] ^= 0x10;
        // Where the reader notices it before the end, the piece is refused.
        if client.request(first(&bad))["error"].is_nil() {
            assert_eq!(client.code(last()), "bad_request", "byte {at}");
        }
    }
    let mut long = bytes.clone();
    long.push(0);
    client.ok(first(&long));
    assert_eq!(client.code(last()), "bad_request");
    assert_eq!((client.get("a"), client.get("c")), (None, None));
    assert_eq!(restore(&mut client, &bytes)["taken"].as_u64(), Some(3), "the connection goes on");
}

#[test]
fn one_snapshot_is_restored_at_a_time() {
    let bytes = some_snapshot("other", &[("a", 1)]);
    let node = Node::found("n1");
    let (mut one, mut two) = (node.connect(), node.connect());
    one.ok(first(&bytes));
    assert_eq!(two.code(first(&bytes)), "too_many");
    // Another start of the same client takes the place of its own.
    one.ok(first(&bytes));
    one.ok(last());
    two.ok(first(&bytes));
    // Who goes makes room.
    drop(two);
    let mut three = node.connect();
    while three.request(first(&bytes))["error"].as_str().is_some() {}
    three.ok(last());
}

#[test]
fn a_snapshot_of_another_network_needs_a_word_more() {
    let bytes = some_snapshot("other", &[("a", 1)]);
    let strange = {
        let mut file = Cursor::new(bytes.clone());
        let (header, image) =
            distkv::storage::read_snapshot("test", Box::new(file.clone()), 1, &mut |_| {}).unwrap();
        file.get_mut().clear();
        let header = distkv::storage::FileHeader { network: "elsewhere".into(), ..header };
        let mut out = Vec::new();
        let id = distkv::storage::FileId::default();
        distkv::storage::snapshot::write_snapshot_to(&mut out, &header, id, &image, &mut |_| {})
            .unwrap();
        out
    };
    let node = Node::found("n1");
    let mut client = node.connect();
    client.ok(first(&strange));
    let error = client.error(last());
    assert!(text(&error, "error").contains("elsewhere"), "{error}");
    assert_eq!(client.get("a"), None);
    client.ok(first(&strange));
    client.ok(map! {"action": "restore", "last": true, "any_network": true});
    assert_eq!(client.get("a"), Some(1.into()));
}

#[test]
fn a_node_that_takes_no_changes_takes_no_snapshot() {
    let bytes = some_snapshot("other", &[("a", 1)]);
    let id = NodeId { name: NodeName::new("n1").unwrap(), incarnation: Incarnation(1) };
    let config = Config { read_only: true, ..Config::new(id, 1) };
    let node = Node::with(config, refusing());
    assert_eq!(node.connect().code(first(&bytes)), "not_ready");
    assert_eq!(node.connect().code(map! {"action": "get_snapshot"}), "not_ready");
    node.hub.handle(Input::Found, 0);
    assert_eq!(node.connect().code(first(&bytes)), "read_only");
    let strange = map! {"action": "restore", "start": 5, "data": array::<Value>([])};
    assert_eq!(node.connect().code(strange), "bad_request");
}

/// The same snapshot, from a node whose clock is there.
fn with_clock(bytes: Vec<u8>, tock: Tock) -> Vec<u8> {
    let source = Box::new(Cursor::new(bytes));
    let (header, mut image) = read_snapshot("test", source, 1, &mut |_| {}).unwrap();
    image.replica.tock = tock;
    let mut out = Vec::new();
    write_snapshot_to(&mut out, &header, FileId::default(), &image, &mut |_| {}).unwrap();
    out
}

#[test]
fn a_snapshot_whose_clock_is_near_its_end_is_not_taken_in() {
    let bytes = some_snapshot("other", &[("a", 1)]);
    let node = Node::found("n1");
    let mut client = node.connect();
    client.ok(first(&with_clock(bytes.clone(), Tock::MAX)));
    let error = client.error(last());
    assert_eq!(text(&error, "code"), "bad_request");
    assert!(text(&error, "error").contains("near its end"), "{error}");
    assert_eq!(client.get("a"), None);
    client.set("b", 2);
    restore(&mut client, &with_clock(bytes, Tock::new(1 << 60).unwrap()));
    client.set("a", 3);
    assert_eq!(client.get("a"), Some(3.into()));
}

#[test]
fn a_node_whose_clock_is_at_its_end_says_so() {
    let node = Node::found("n1");
    let mut client = node.connect();
    assert_eq!(client.ok(map! {"action": "status"})["warnings"], array::<Value>([]));
    // As a peer may bring it there.
    let bytes = with_clock(some_snapshot("other", &[("a", 1)]), Tock::MAX);
    let (_, image) = read_snapshot("test", Box::new(Cursor::new(bytes)), 1, &mut |_| {}).unwrap();
    let mut taken = node.hub.handle(BeginTakeIn(image), 0).unwrap();
    let entries = taken.next_batch(10);
    node.hub.handle(TakeInSome { state: &mut taken, entries: &entries }, 0).unwrap();
    node.hub.handle(EndTakeIn(&taken), 0).unwrap();
    assert_eq!(
        client.code(map! {"action": "set_value", "path": path("b"), "value": 1}),
        "no_event"
    );
    let warnings = client.ok(map! {"action": "status"})["warnings"].to_string();
    assert!(warnings.contains("a counter is at its end"), "{warnings}");
}

/// Bytes that a node keeps for its clients.
fn kept(node: &Node) -> usize {
    node.hub.client_memory().used()
}

#[test]
fn an_upload_counts_as_what_is_kept_for_clients_and_ends_where_there_is_no_room_for_it() {
    const MAX: usize = 32 << 20;
    let node = Node::found("other");
    let mut client = node.connect();
    for i in 0..200u8 {
        client.set(&format!("k:{i}"), Value::Binary(vec![i; 100_000]));
    }
    let bytes = fetch(&node);
    let config = ServerConfig { client_memory_max: MAX, ..ServerConfig::default() };
    let node = Node::found_with("n1", config);
    let (mut client, mut other) = (node.connect(), node.connect());
    let (head, rest) = bytes.split_at(1 << 20);
    client.ok(first(head));
    assert!(kept(&node) >= head.len(), "{} of {}", kept(&node), head.len());
    for part in rest.chunks(1 << 20) {
        client.ok(piece(part));
    }
    assert!(kept(&node) >= bytes.len(), "{} of {}", kept(&node), bytes.len());
    // Another start takes its place.
    assert_eq!(restore_in_pieces(&mut client, &bytes)["taken"].as_u64(), Some(200));
    assert!(kept(&node) < 8 << 20, "{}", kept(&node));
    assert_eq!(other.get("k:7"), Some(Value::Binary(vec![7; 100_000])), "nobody was closed");
    assert_eq!(node.hub.client_memory().view().closed, 0);

    // The same snapshot where there is no room for it.
    let config = ServerConfig { client_memory_max: 16 << 20, ..ServerConfig::default() };
    let node = Node::found_with("n2", config);
    let (mut client, mut other) = (node.connect(), node.connect());
    client.ok(first(head));
    let mut replies = rest.chunks(1 << 20).map(|part| client.request(piece(part)));
    let refused = replies.find(|reply| !reply["error"].is_nil()).unwrap();
    assert_eq!(text(&refused, "code"), "memory_full");
    assert!(text(&refused, "error").contains("--max-client-memory"), "{refused}");
    assert_eq!(client.code(last()), "bad_request", "the upload is over");
    assert_eq!((other.get("k:7"), node.hub.client_memory().view().closed), (None, 0));
}

fn restore_in_pieces(client: &mut Client, bytes: &[u8]) -> Value {
    client.ok(first(&[]));
    bytes.chunks(1 << 20).for_each(|part| drop(client.ok(piece(part))));
    client.ok(last())["result"].clone()
}

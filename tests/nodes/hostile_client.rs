//! Clients that do what they should not. Each gets a clear error where there is somebody to
//! tell, costs the node little, and disturbs nobody else.

use crate::harness;

use std::io::{Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distkv::hub::inbox::WATCH_QUEUE_BYTES_MAX;
use distkv::server::ServerConfig;
use harness::{Client, Node, Value, array, encode, fields, path, text};

/// Changes that go by while a client does not read.
const CHANGES: usize = if cfg!(debug_assertions) { 60_000 } else { 1_000_000 };

/// Memory is measured for the whole process, so these tests come one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of memory that this process really uses.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

/// Makes many changes below `w`, in batches.
fn make_changes(writer: &mut Client, count: usize) {
    for batch in 0..count.div_ceil(500) {
        let mut bytes = Vec::new();
        for i in 0..500u64 {
            bytes.extend(encode(&map! {
                "action": "set_value", "seq": i + 1, "nchain": 0,
                "path": array([Value::from("w"), (i % 100).into()]),
                "value": (batch as u64) * 500 + i,
            }));
        }
        writer.send_bytes(&bytes);
        for i in 0..500 {
            writer.reply(i + 1);
        }
    }
}

#[test]
fn what_is_no_message_ends_the_connection_with_a_reason() {
    let _alone = alone();
    let node = Node::found("n1");
    let mut bystander = node.connect();
    let garbage: Vec<(&str, Vec<u8>)> = vec![
        ("bad_message", b"\x01".to_vec()),
        ("bad_message", b"\xc0".to_vec()),
        ("bad_message", b"\x92\x01\x02".to_vec()),
        ("bad_message", b"\xa3abc".to_vec()),
        ("bad_message", b"\xd4\x2a\x00".to_vec()),
        ("bad_message", b"\xc1".to_vec()),
        ("bad_message", b"\x82\xa3seq\x05\xa6action\xc1".to_vec()),
        ("bad_message", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("too_large", b"\x81\xa3seq\xdb\xff\xff\xff\xff".to_vec()),
        ("too_large", b"\x81\xa3seq\xdd\xff\xff\xff\xff".to_vec()),
        ("too_large", b"\xdf\xff\xff\xff\xff".to_vec()),
        ("too_large", b"\x82\xa3seq\x05\xa5value\xc6\xff\xff\xff\xff".to_vec()),
        // More than what is thrown away of one message.
        ("too_large", b"\x82\xa3seq\x05\xa5value\xdd\x04\x00\x00\x00\xc0\xc0\xc0\xc0".to_vec()),
    ];
    for (code, bytes) in garbage {
        let before = memory();
        let mut client = node.connect();
        // The node may have closed before all of it is sent.
        let _ = client.stream.write_all(&bytes);
        let error = client.receive().unwrap();
        assert_eq!(fields(&error), ["error", "code", "tock"]);
        assert_eq!(text(&error, "code"), code, "{error}");
        assert!(client.receive().is_none(), "closed");
        assert!(memory() < before + (16 << 20), "no length is believed");
        bystander.set("a", 1);
    }
}

#[test]
fn requests_before_the_garbage_are_carried_out() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let mut bytes = encode(&map! {"action": "set_value", "seq": 1, "path": path("a"), "value": 1});
    bytes.push(0xc1);
    client.send_bytes(&bytes);
    assert_eq!(client.reply(1)["changed"].as_bool(), Some(true));
    assert_eq!(text(&client.receive().unwrap(), "code"), "bad_message");
    assert_eq!(node.connect().get("a"), Some(1.into()));
}

#[test]
fn maps_that_are_no_requests_are_errors_and_the_connection_stays() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let mut error = |message: Value| {
        client.send(message);
        client.receive().unwrap()
    };
    let cases = [
        (map! {"action": "get_tock"}, None),
        (map! {"action": "get_tock", "seq": -1}, None),
        (map! {"action": "get_tock", "seq": "x"}, None),
        (map! {"action": "get_tock", "seq": Value::Nil}, None),
        (map! {"action": "get_tock", "seq": true}, None),
        (map! {"action": "get_tock", "seq": 0}, Some(0)),
        (map! {"seq": 0, "qlen": "x"}, Some(0)),
        (map! {"seq": 5}, Some(5)),
        (map! {"seq": 5, "action": Value::Nil}, Some(5)),
        (map! {"seq": 5, "action": "no_such_action"}, Some(5)),
        (map! {"seq": 5, "state": "nonsense"}, Some(5)),
        (map! {"seq": 5, "state": "ack", "ack": "x"}, Some(5)),
        (map! {"seq": 5, "action": "get_value"}, Some(5)),
        (map! {"seq": 5, "action": "get_value", "path": "a.b"}, Some(5)),
        (
            map! {"seq": 5, "action": "get_value", "path": array([Value::from(1), Value::Nil, 2.into()])},
            Some(5),
        ),
        (map! {"seq": 5, "action": "get_value", "path": Value::Ext(3, vec![0xa5, b'x'])}, Some(5)),
        (map! {"seq": 5, "action": "get_value", "path": Value::Ext(3, vec![0xc1])}, Some(5)),
        (map! {"seq": 5, "action": "get_value", "path": Value::Ext(4, vec![1])}, Some(5)),
        (
            map! {"seq": 5, "action": "set_value", "path": path("a"), "value": 1, "nchain": "x"},
            Some(5),
        ),
        (
            map! {"seq": 5, "action": "set_value", "path": path("a"), "value": 1, "chain": "x"},
            Some(5),
        ),
        (
            map! {"seq": 5, "action": "set_value", "path": path("a"), "value": 1, "copies": 1.5},
            Some(5),
        ),
        (map! {"seq": 5, "action": "get_value", "node": "n1", "tick": 1.5}, Some(5)),
        (map! {"seq": 5, "action": "enum_node", "node": array([1])}, Some(5)),
    ];
    for (message, seq) in cases {
        let reply = error(message.clone());
        assert_eq!(reply["seq"].as_u64(), seq, "{message}: {reply}");
        assert!(!text(&reply, "error").is_empty() && !text(&reply, "code").is_empty());
    }
    assert_eq!(client.get("a"), None, "nothing was changed");
}

#[test]
fn a_message_of_nothing_but_repeated_fields_is_refused() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let mut message = b"\xde\x10\x00".to_vec();
    message.extend(b"\xa3seq\x01".repeat(0x1000));
    client.send_bytes(&message);
    assert_eq!(text(&client.receive().unwrap(), "code"), "bad_message");
}

#[test]
fn half_a_message_costs_what_has_arrived() {
    let _alone = alone();
    let node = Node::found("n1");
    let before = memory();
    let clients: Vec<Client> = (0..200)
        .map(|_| {
            let mut client = node.connect();
            // Announces 8,000,000 bytes and sends 1,000 of them.
            client.send_bytes(b"\x82\xa3seq\x01\xa5value\xc6\x00\x7a\x12\x00");
            client.send_bytes(&[7; 1000]);
            client
        })
        .collect();
    let mut other = node.connect();
    other.set("a", 1);
    assert_eq!(node.server.connections(), 201);
    assert!(memory() < before + (64 << 20), "{} MiB", (memory() - before) >> 20);
    drop(clients);
}

#[test]
fn memory_stays_bounded_while_a_watcher_does_not_read() {
    let _alone = alone();
    let node = Node::found("n1");
    let mut deaf = node.connect();
    deaf.start(map! {"action": "watch", "path": path("w"), "nchain": -1});
    let mut never_acks = node.connect_with_qlen(5);
    let paused = never_acks.start(map! {"action": "watch", "path": path("w")});
    assert_eq!(text(&never_acks.reply(paused), "state"), "start");
    let mut writer = node.connect();
    make_changes(&mut writer, 10_000);
    let before = memory();
    for _ in 0..10 {
        make_changes(&mut writer, CHANGES / 10);
        let waiting = node.hub.waiting_bytes();
        assert!(waiting <= 2 * WATCH_QUEUE_BYTES_MAX, "{waiting} bytes wait");
    }
    let grown = memory().saturating_sub(before);
    assert!(grown < 64 << 20, "{} MiB more after {CHANGES} changes", grown >> 20);
    // The one that never acknowledges is still served otherwise, and can end its stream.
    assert!(never_acks.get("w:7").is_some());
    let stop = never_acks.ok(map! {"action": "stop", "task": paused});
    assert_eq!(stop["result"].as_bool(), Some(true));
}

#[test]
fn a_client_that_never_reads_is_closed_after_a_while() {
    let config = ServerConfig { write_stall_ms: 300, ..ServerConfig::default() };
    let node = Node::found_with("n1", config);
    let mut other = node.connect();
    other.set("big", "x".repeat(1 << 20));
    let mut deaf = node.connect();
    // All at once: it may be closed as soon as the first answer does not fit.
    let get = encode(&map! {"action": "get_value", "seq": 1, "path": path("big")});
    deaf.send_bytes(&get.repeat(64));
    while node.server.connections() > 1 {
        other.set("a", 1);
    }
}

#[test]
fn a_client_that_only_sends_is_not_read_for_ever() {
    let _alone = alone();
    let node = Node::found("n1");
    let mut other = node.connect();
    other.set("big", "x".repeat(100_000));
    let before = memory();
    let mut deaf = node.connect();
    deaf.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let get = encode(&map! {"action": "get_value", "seq": 1, "path": path("big")}).repeat(1000);
    // It is stopped by its own full socket, because the node's output is full.
    let mut sent = 0;
    while deaf.stream.write_all(&get).is_ok() {
        sent += 1;
        assert!(sent < 1000, "the node reads on although nobody takes its answers");
    }
    assert!(memory() < before + (64 << 20));
    for i in 0..100 {
        other.set("a", i);
    }
}

#[test]
fn many_requests_at_once_leave_others_their_turn() {
    let node = Node::found("n1");
    let (mut busy, mut other) = (node.connect(), node.connect());
    let count = 20_000;
    let batch: Vec<u8> =
        encode(&map! {"action": "get_value", "seq": 1, "path": path("a")}).repeat(count);
    let mut reader = busy.stream.try_clone().unwrap();
    let answers = std::thread::spawn(move || {
        let (mut buffer, mut total) = ([0; 16 << 10], 0);
        while let Ok(bytes @ 1..) = reader.read(&mut buffer) {
            total += bytes;
        }
        total
    });
    let sender = std::thread::spawn(move || {
        for _ in 0..5 {
            busy.send_bytes(&batch);
        }
        busy.finish();
    });
    for i in 0..100 {
        other.set("b", i);
    }
    sender.join().unwrap();
    assert!(answers.join().unwrap() > 5 * count * 10);
}

#[test]
fn a_flood_of_batches_of_nothing_costs_little_memory() {
    let _alone = alone();
    let node = Node::found("n1");
    let mut client = node.connect();
    let ops = Value::Array(vec![Value::Nil; 1_024]);
    let one = encode(&map! {"action": "batch", "seq": 1, "ops": ops});
    let before = memory();
    client.send_bytes(&one.repeat(100));
    for _ in 0..100 {
        assert_eq!(client.reply(1)["results"].as_array().unwrap().len(), 1_024);
    }
    assert!(memory() < before + (32 << 20));
    assert_eq!(node.connect().get("a"), None);
}

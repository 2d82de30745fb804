//! A watcher that stops reading while a million changes go by: the node's memory stays bounded,
//! and when the watcher reads again it gets the latest of everything.

use crate::processes;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use processes::{Client, NodeProcess, array, field};
use rmpv::Value;

const CHANGES: usize = 1_000_000;
/// A busy machine makes fewer in this time: who reads nothing for a minute is given up.
const LOAD_TIME: Duration = Duration::from_secs(40);
const KEYS: usize = 1_000;
/// Requests that are sent before their replies are read.
const BATCH: usize = 500;
/// What the node may take more at the end than after the first tenth: the watch's queue (4 MiB),
/// the connection's output (1 MiB), the sockets' buffers, and what allocators keep. A million
/// changes of 100 bytes that were kept would be well over 200 MiB.
const GROWTH_MAX: usize = 48 << 20;

/// Sets values, and tells how many were set in the end.
fn load(client: &mut Client, from: usize, count: usize, until: Instant) -> usize {
    let mut next = from;
    while next < from + count && (Instant::now() < until || next == from) {
        for number in next..next + BATCH {
            let value = format!("{number:>100}");
            let key = format!("k{}", number % KEYS);
            let fields =
                [("path", array(&["busy", &key])), ("value", value.into()), ("nchain", 0.into())];
            client.send("set_value", &fields).unwrap();
        }
        for _ in 0..BATCH {
            let reply = client.receive().unwrap();
            assert_eq!(field(&reply, "error"), None, "{reply}");
        }
        next += BATCH;
    }
    next
}

#[test]
fn memory_stays_bounded_while_a_watcher_does_not_read() {
    let node = NodeProcess::run("n1");
    let mut watcher = node.connect();
    watcher.send("watch", &[("path", array(&["busy"]))]).unwrap();
    let started = watcher.receive().unwrap();
    assert_eq!(field(&started, "state"), Some("start".into()));

    let mut client = node.connect();
    let until = Instant::now() + LOAD_TIME;
    let tenth = load(&mut client, 0, CHANGES / 10, until);
    let before = node.resident_bytes();
    let made = load(&mut client, tenth, CHANGES - tenth, until);
    let after = node.resident_bytes();
    println!("resident: {before} bytes after {tenth}, {after} after {made} changes");
    assert!(after < before + GROWTH_MAX, "{before} -> {after} bytes");

    // The last change, at a path behind all others: a watch that starts over goes by paths.
    client.set(&["busy", "zzz"], Value::from("end"));
    let mut latest: BTreeMap<String, String> = BTreeMap::new();
    let mut previous: Vec<String> = Vec::new();
    let mut messages = 0;
    loop {
        let message = watcher.receive().unwrap();
        let depth = field(&message, "depth").unwrap().as_u64().unwrap() as usize;
        previous.truncate(depth);
        for element in field(&message, "path").unwrap().as_array().unwrap() {
            previous.push(element.as_str().unwrap().to_owned());
        }
        let value = field(&message, "value").unwrap().as_str().unwrap().trim().to_owned();
        messages += 1;
        if previous == ["zzz"] {
            break;
        }
        // Nothing older follows something newer.
        let number: u64 = value.parse().unwrap();
        if let Some(old) = latest.insert(previous.join("."), value) {
            assert!(old.parse::<u64>().unwrap() < number, "{old} before {number}");
        }
    }
    println!("the watcher got {messages} messages in the end");
    assert_eq!(latest.len(), KEYS);
    for number in made - KEYS..made {
        assert_eq!(latest[&format!("k{}", number % KEYS)], number.to_string());
    }
}

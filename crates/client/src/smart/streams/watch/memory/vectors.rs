//! The vectors of versions, and of what a watch remembers.

use serde_json::{Value as Json, json};

use super::*;
use crate::chain::{Chain, ChainEvent};
use crate::model::value::Value;
use crate::retry::vectors::{Numbers, compare};

/// Versions by (tock, life, tick).
const VERSIONS: [(u64, &str, Option<u64>); 14] = [
    (1, "z~9", Some(9)),
    (2, "a~1", None),
    (2, "a~1", Some(1)),
    (2, "a~1", Some(2)),
    (2, "a~2", Some(1)),
    (2, "a~10", Some(1)),
    (2, "a~e9001b2c3d4e", Some(1)),
    (2, "ab~1", Some(1)),
    (2, "b~222", Some(9)),
    (2, "b~1111", Some(5)),
    (2, "b~2222", Some(1)),
    (2, "é~1", Some(1)),
    (3, "a~1", Some(1)),
    (1 << 40, "a~1", Some(1)),
];

#[test]
fn versions_compare_as_their_vectors_say() {
    let version = |(tock, node, tick): (u64, &str, Option<u64>)| Version {
        tock,
        event: ChainEvent { node: node.into(), tick },
    };
    let mut rows = Vec::new();
    for one in VERSIONS {
        for other in VERSIONS {
            let order = version(one).compare(&version(other));
            rows.push(json!({ "one": one, "other": other, "order": order as i8 }));
        }
    }
    compare(
        "versions",
        "Which of two versions (tock, life, tick) is the greater: -1, 0 or 1.",
        &rows,
    );
}

#[test]
fn what_a_watch_remembers_is_what_its_vectors_say() {
    let mut numbers = Numbers(17);
    let mut rows = Vec::new();
    for (paths_max, bytes_max, steps) in [(4, 10_000, 120), (1_000, 1_200, 80), (8, 100_000, 160)] {
        let mut memory = Memory::new(paths_max, bytes_max);
        let mut told = Vec::new();
        for _ in 0..steps {
            told.push(step(&mut memory, &mut numbers));
        }
        rows.push(json!({ "paths_max": paths_max, "bytes_max": bytes_max, "steps": told }));
    }
    let about = "What a watch with these bounds remembers: in each row one step after the other, with what it says of the \
                 version (`look`), whether it still knows what it delivered (`whole`), and which paths it has not seen \
                 since another node began (`not_seen`). A value is one byte of MessagePack; without one it is a deletion.";
    compare("memory", about, &rows);
}

fn step(memory: &mut Memory, numbers: &mut Numbers) -> Json {
    let path = format!("p{}", numbers.next(7));
    let at: Path = path.parse().unwrap();
    let mut told = match numbers.next(20) {
        0 => {
            memory.begin_feed();
            json!({ "do": "begin_feed" })
        }
        1 => {
            memory.on_gone(&at);
            json!({ "do": "gone", "path": path })
        }
        2 if !memory.is_whole() => {
            memory.clear();
            json!({ "do": "clear" })
        }
        kind => {
            let tock = 1 + numbers.next(30);
            let node = ["a~1", "a~10", "b~2"][numbers.next(3) as usize];
            let value = (numbers.next(3) > 0).then(|| numbers.next(3) as u8);
            let entry = Entry {
                value: value.map(|value| Value::new(&[value]).unwrap()),
                chain: Some(Chain::of(node, tock)),
                tock,
                time_ms: None,
                node: String::from("told"),
            };
            let is_resuming = numbers.next(2) == 0;
            let look = memory.look(&at, &entry, is_resuming);
            let is_delivered = look == Look::New && kind % 5 != 0;
            if is_delivered {
                memory.on_delivered(&at, &entry);
            }
            let look = match look {
                Look::New => "new",
                Look::Known => "known",
                Look::Older => "older",
                Look::Doubtful => "doubtful",
            };
            json!({
                "do": "look", "path": path, "tock": tock, "node": node, "tick": tock, "value": value,
                "resuming": is_resuming, "look": look, "delivered": is_delivered,
            })
        }
    };
    let mut not_seen: Vec<String> = memory.not_seen().map(Path::to_string).collect();
    not_seen.sort();
    told["whole"] = json!(memory.is_whole());
    told["not_seen"] = json!(not_seen);
    told
}

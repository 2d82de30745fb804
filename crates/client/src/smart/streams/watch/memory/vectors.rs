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
    let sizes = [(4, 10_000, 160), (1_000, 1_200, 120), (8, 100_000, 200), (5, 100_000, 240)];
    for (paths_max, bytes_max, steps) in sizes {
        let memory = Memory::new(paths_max, bytes_max);
        let mut watch = Watch { memory, is_resuming: false, asked: None };
        let told: Vec<Json> = (0..steps).map(|_| watch.step(&mut numbers)).collect();
        rows.push(json!({ "paths_max": paths_max, "bytes_max": bytes_max, "steps": told }));
    }
    let about = "What a watch with these bounds remembers: in each row one step after the other, with what it says of the \
                 version (`look`), whether it still knows what it delivered (`whole`), and which paths it has not seen \
                 since another node began (`not_seen`). A value is one byte of MessagePack; without one it is a deletion. \
                 What is `delivered` has come by the stream. `gone`: the node was asked about this `version` of the path, \
                 and has answered, with this `tock` of its own, that nothing is there any more. The version is that of the \
                 value that was delivered, or the doubtful one of the step before.";
    compare("memory", about, &rows);
}

/// A watch at work.
struct Watch {
    memory: Memory,
    /// The state with which it continues at another node is still coming.
    is_resuming: bool,
    /// What the step before was in doubt of.
    asked: Option<(String, Version)>,
}

impl Watch {
    fn step(&mut self, numbers: &mut Numbers) -> Json {
        let path = format!("p{}", numbers.next(7));
        self.is_resuming &= numbers.next(6) > 0;
        let is_asked = numbers.next(2) > 0 && !self.is_resuming;
        let mut told = match (self.asked.take().filter(|_| is_asked), numbers.next(20)) {
            (Some((path, version)), _) => self.gone(&path, version, numbers),
            (None, 0) => {
                self.memory.begin_feed();
                self.is_resuming = true;
                json!({ "do": "begin_feed" })
            }
            (None, 1..4) if let Some(version) = self.value(&path).filter(|_| is_asked) => {
                self.gone(&path, version, numbers)
            }
            (None, 4) if !self.memory.is_whole() => {
                self.memory.clear();
                json!({ "do": "clear" })
            }
            (None, kind) => self.look(&path, kind % 5 > 0, numbers),
        };
        let mut not_seen: Vec<String> = self.memory.not_seen().map(Path::to_string).collect();
        not_seen.sort();
        told["whole"] = json!(self.memory.is_whole());
        told["not_seen"] = json!(not_seen);
        told
    }

    /// The version of a value that was delivered.
    fn value(&self, path: &str) -> Option<Version> {
        let known = self.memory.delivered.as_ref()?.get(&path.parse().unwrap())?;
        (!known.is_deleted).then(|| known.version.clone())
    }

    fn gone(&mut self, path: &str, version: Version, numbers: &mut Numbers) -> Json {
        let tock = version.tock + numbers.next(12);
        self.memory.on_gone(&path.parse().unwrap(), version.clone(), tock);
        let version = (version.tock, version.event.node, version.event.tick);
        json!({ "do": "gone", "path": path, "version": version, "tock": tock })
    }

    fn look(&mut self, path: &str, is_wanted: bool, numbers: &mut Numbers) -> Json {
        let at: Path = path.parse().unwrap();
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
        let look = self.memory.look(&at, &entry, self.is_resuming);
        let is_delivered = look == Look::New && is_wanted;
        if is_delivered {
            self.memory.on_delivered(&at, &entry, By::Feed);
        } else if look == Look::Doubtful {
            self.asked = entry.version().map(|version| (path.to_owned(), version));
        }
        let look = match look {
            Look::New => "new",
            Look::Known => "known",
            Look::Older => "older",
            Look::Doubtful => "doubtful",
        };
        json!({
            "do": "look", "path": path, "tock": tock, "node": node, "tick": tock, "value": value,
            "resuming": self.is_resuming, "look": look, "delivered": is_delivered,
        })
    }
}

//! The vectors by which the clients in other languages show that they decide as this one does: files of
//! `clients/conformance/vectors`, written by this code. A test of each compares the file with what the code says now;
//! `DISTKV_WRITE_VECTORS=1 cargo test -p distkv-client vectors` writes them anew.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::error::ServerError;
use crate::model::path::Path;
use crate::model::shard::shard_of;
use crate::model::value::SkipError;
use crate::retry::{Decision, ErrorClass, Idempotency, Reason, RetryPolicy, backoff};
use crate::router::{Candidate, Router};
use crate::splitter::Splitter;

/// Compares a file with what the code says, one row a line.
pub(crate) fn compare(name: &str, about: &str, rows: &[Json]) {
    let mut text = format!("{{\"about\": {},\n\"rows\": [\n", json!(about));
    for (number, row) in rows.iter().enumerate() {
        let end = if number + 1 == rows.len() { "\n" } else { ",\n" };
        write!(text, "{row}{end}").unwrap();
    }
    text.push_str("]}\n");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/conformance/vectors");
    let file = format!("{folder}/{name}.json");
    if std::env::var_os("DISTKV_WRITE_VECTORS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap();
    let differs = found.lines().zip(text.lines()).find(|(one, other)| one != other);
    assert!(found == text, "{file} is not what the code says now: {differs:?}");
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Numbers that look random, and are the same each time.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// A word for an error's class.
fn word_of(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Unavailable => "unavailable",
        ErrorClass::Overload => "overload",
        ErrorClass::Aborted => "aborted",
        ErrorClass::TryDeadline => "try_deadline",
        ErrorClass::FateUnknown => "fate_unknown",
        ErrorClass::UnknownThere => "unknown_there",
        ErrorClass::Busy => "busy",
        ErrorClass::Final => "final",
    }
}

const CLASSES: [ErrorClass; 8] = [
    ErrorClass::Unavailable,
    ErrorClass::Overload,
    ErrorClass::Aborted,
    ErrorClass::TryDeadline,
    ErrorClass::FateUnknown,
    ErrorClass::UnknownThere,
    ErrorClass::Busy,
    ErrorClass::Final,
];

#[test]
fn codes_have_the_classes_of_their_vectors() {
    let codes = [
        "bad_request",
        "bad_message",
        "unknown_action",
        "not_implemented",
        "too_large",
        "wid_reused",
        "given_up",
        "denied",
        "auth_required",
        "auth_failed",
        "is_root",
        "not_found",
        "already_exists",
        "is_new",
        "chain_mismatch",
        "data_mismatch",
        "type_mismatch",
        "in_use",
        "memory_full",
        "not_ready",
        "too_late",
        "read_only",
        "no_event",
        "too_many",
        "too_slow",
        "unknown_fate",
        "storage_failed",
        "internal",
        // Words that no node has yet.
        "",
        "not_ready ",
        "NOT_READY",
        "of_a_later_version",
    ];
    let rows = codes.map(|code| {
        let [class, made] = [false, true].map(|is_made| {
            let text = String::from("no");
            let error = ServerError { is_made, ..ServerError::new(Some(code.into()), text) };
            word_of(ErrorClass::of_server(&error))
        });
        json!({ "code": code, "class": class, "made": made })
    });
    let about = "What a node's word means for trying again, and with `made: true`; an unknown word is final.";
    compare("codes", about, &rows);
}

#[test]
fn decisions_are_those_of_their_vectors() {
    let policy = RetryPolicy::default();
    let mut rows = Vec::new();
    for class in CLASSES {
        for (idempotency, word) in [
            (Idempotency::Read, "read"),
            (Idempotency::Guarded, "guarded"),
            (Idempotency::Unguarded, "unguarded"),
        ] {
            for elapsed_ms in [0, 9_999] {
                let elapsed = Duration::from_millis(elapsed_ms);
                let decision = policy.decide(class, 1, elapsed, idempotency, 1 << 63);
                let decision = match decision {
                    Decision::RetryAfter { other_node: true, .. } => "elsewhere",
                    Decision::RetryAfter { other_node: false, .. } => "there",
                    Decision::GiveUp(Reason::Final) => "final",
                    Decision::GiveUp(Reason::FateUnknown) => "fate_unknown",
                    Decision::GiveUp(Reason::Deadline) => "deadline",
                };
                rows.push(json!({
                    "class": word_of(class), "request": word, "elapsed_ms": elapsed_ms, "decision": decision,
                }));
            }
        }
    }
    let about = "What becomes of a call whose first try failed so, by the default policy: the next try goes elsewhere, \
                 or there again; or why there is none.";
    compare("decisions", about, &rows);
}

#[test]
fn pauses_are_those_of_their_vectors() {
    let mut rows = Vec::new();
    for (first_ms, factor, longest_ms) in
        [(10, 2, 1_000), (1, 2, 1_000), (100, 2, 2_000), (1_000, 3, 30_000), (5, 1, 5)]
    {
        for failures in [1, 2, 3, 7, 8, 30, 70] {
            for random in [0, 1 << 62, 1 << 63, u64::MAX] {
                let [first, longest] = [first_ms, longest_ms].map(Duration::from_millis);
                let pause = backoff(first, factor, longest, failures, random);
                rows.push(json!({
                    "first_ms": first_ms, "factor": factor, "longest_ms": longest_ms, "failures": failures,
                    "random": random.to_string(), "pause_ns": u64::try_from(pause.as_nanos()).unwrap(),
                }));
            }
        }
    }
    let about = "How long is waited after so many failures; `random` is any of 64 bits.";
    compare("backoff", about, &rows);
}

#[test]
fn routes_are_those_of_their_vectors() {
    let mut rows = Vec::new();
    let sets: [&[(&str, bool)]; 6] = [
        &[("n1", true), ("n2", true), ("n3", true)],
        &[("n1", true), ("n2", false), ("n3", true)],
        &[("a", false), ("b", false)],
        &[("n1", true), ("n1", true), ("n2", true)],
        &[("Zürich", true), ("東京", true), ("10.0.0.1:27586", true), ("", true), ("n4", false)],
        &[],
    ];
    for nodes in sets {
        let candidates: Vec<Candidate> = nodes
            .iter()
            .map(|(name, is_live)| Candidate { name: (*name).to_owned(), is_live: *is_live })
            .collect();
        for prefer in [None, Some("n2"), Some("nobody")] {
            let router = Router::new(&candidates, &|shard| prefer.filter(|_| shard % 2 == 0));
            for shard in [0_u16, 1, 2, 309, 512, 1_023] {
                rows.push(json!({
                    "nodes": nodes, "prefer_of_even_shards": prefer, "shard": shard,
                    "preferred": router.preferred(shard), "order": router.order(shard).collect::<Vec<_>>(),
                }));
            }
        }
    }
    let about = "Which of the nodes (name, live) serves a shard, and in which order they are tried, as indices.";
    compare("routes", about, &rows);
}

#[test]
fn paths_have_the_bytes_of_their_vectors() {
    let file =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/conformance/vectors/path_text.json");
    let texts: Json = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let some = texts["both"].as_array().unwrap().iter().step_by(4);
    let rows: Vec<Json> = some
        .map(|row| {
            let text = row["text"].as_str().unwrap();
            let path: Path = text.parse().unwrap();
            json!({ "text": text, "bytes": hex(path.as_bytes()), "shard": shard_of(&path) })
        })
        .collect();
    let about = "The canonical bytes and the shard of paths, some of those of path_text.json.";
    compare("path_bytes", about, &rows);
}

#[test]
fn messages_end_where_their_vectors_say() {
    let nested = |levels: usize| {
        let mut bytes = b"\x81\xa1x".to_vec();
        bytes.extend(std::iter::repeat_n(0x91, levels));
        bytes.push(0xc0);
        bytes
    };
    let mut streams: Vec<Vec<u8>> = vec![
        b"\x80".to_vec(),
        b"\x81\xa3seq\x01\x82\xa3seq\xcd\x01\x00\xa5value\x93\x01\xc0\xa3abc".to_vec(),
        // Each kind of value.
        b"\x8f\x01\xc2\x02\xc3\x03\xc0\x04\x7f\x05\xff\x06\xcc\xff\x07\xcf\xff\xff\xff\xff\xff\xff\xff\xff\x08\
          \xd3\x80\0\0\0\0\0\0\0\x09\xca\x3f\x80\0\0\x0a\xcb\x3f\xf0\0\0\0\0\0\0\x0b\xd9\x01x\x0c\xda\0\x01y\x0d\
          \xdb\0\0\0\x01z\x0e\xc4\x02ab\x0f\xc5\0\x01c"
            .to_vec(),
        b"\x88\x01\xc6\0\0\0\x01d\x02\xd4\x05\x01\x03\xd5\x05\x01\x02\x04\xd6\x05\x01\x02\x03\x04\x05\xc7\x01\x05\
          \x09\x06\xc8\0\x01\x05\x09\x07\xdc\0\x02\x01\x02\x08\xde\0\x01\x01\x02"
            .to_vec(),
        // A map with an array as a key, and one with a map.
        b"\x82\x92\x01\x02\x03\x81\x01\x02\x03\x81\xa3seq\x05".to_vec(),
        nested(60),
        // What is not whole.
        b"\x82\xa3seq\x01\xa5val".to_vec(),
        b"\x81\xa3seq\x01\x81".to_vec(),
        // What is none: a byte without a meaning, lengths that nobody will send, levels without end.
        b"\x81\xa1x\xc1".to_vec(),
        b"\x81\xa3seq\x01\xc1".to_vec(),
        b"\x81\xa1x\xdb\xff\xff\xff\xff".to_vec(),
        b"\x81\xa1x\xc6\xff\xff\xff\xff".to_vec(),
        b"\x81\xa1x\xc9\xff\xff\xff\xff\x05".to_vec(),
        nested(5_000),
    ];
    let all: Vec<u8> = streams[..6].concat();
    streams.push(all);
    let rows: Vec<Json> = streams
        .iter()
        .map(|bytes| {
            let mut splitter = Splitter::new();
            splitter.push(bytes);
            let (mut messages, mut length) = (Vec::new(), 0);
            let end = loop {
                match splitter.next_value() {
                    Ok(Some(message)) => {
                        length += message.len();
                        messages.push(hex(message));
                    }
                    Ok(None) => break if length == bytes.len() { "whole" } else { "unfinished" },
                    Err(SkipError::TooLarge { .. }) => break "too_long",
                    Err(_) => break "error",
                }
            };
            json!({ "bytes": hex(bytes), "messages": messages, "end": end })
        })
        .collect();
    let about = "The messages of a stream, wherever it is cut into pieces, and how it ends: at the end of a message, in \
                 the middle of one, with bytes that are none, or with one that is to be longer than 64 MiB, which is \
                 refused at once, or when so many bytes have come.";
    compare("messages", about, &rows);
}

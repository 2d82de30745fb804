//! How keys, messages and handshakes are shown in scripts.

use distkv_core::protocol::frame::split_frame;
use distkv_model::value::Reader;
use distkv_secure::hand_over::HandOver;
use distkv_secure::key::{Key, KeyId};
use distkv_secure::key_ring::RingSummary;
use distkv_secure::link::SECURED;

/// The highest number of a key in a script.
const KEYS: u8 = 9;

pub(crate) fn key(name: &str) -> Key {
    let number: u8 = name.strip_prefix('k').unwrap().parse().unwrap();
    assert!((1..=KEYS).contains(&number));
    Key::new([number; 32])
}

pub(crate) fn name_of(id: KeyId) -> String {
    let number = (1..=KEYS).find(|number| Key::new([*number; 32]).id() == id);
    number.map_or_else(|| id.to_string(), |number| format!("k{number}"))
}

pub(crate) fn names_of(ids: impl IntoIterator<Item = KeyId>) -> String {
    let names: Vec<String> = ids.into_iter().map(name_of).collect();
    if names.is_empty() { "none".into() } else { names.join(" ") }
}

pub(crate) fn keys_of(ring: &RingSummary) -> String {
    let mark = |id: KeyId| if id == ring.primary { "*" } else { "" };
    let keys: Vec<String> =
        ring.ids.iter().map(|id| format!("{}{}", name_of(*id), mark(*id))).collect();
    keys.join(" ")
}

/// Texts name keys by their ids.
pub(crate) fn readable(text: &str) -> String {
    (1..=KEYS).fold(text.to_owned(), |text, number| {
        let id = Key::new([number; 32]).id();
        text.replace(&id.to_string(), &name_of(id))
    })
}

/// What a handshake frame shows to everybody.
pub(crate) fn clear(bytes: &[u8]) -> String {
    let Ok(Some(frame)) = split_frame(bytes, 4_096) else {
        return format!("{} bytes", bytes.len());
    };
    if frame.kind != SECURED {
        return format!("frame of kind {:#x}, in plaintext", frame.kind);
    }
    let mut reader = Reader::new(frame.body);
    let (fields, version) = (reader.read_array_len().unwrap(), reader.read_u64().unwrap());
    assert_eq!((fields, version), (4, 1));
    match reader.read_u64().unwrap() {
        0 => {
            let code = reader.read_u64().unwrap();
            let (ids, rest) = reader.read_bin().unwrap().as_chunks::<4>();
            assert!(rest.is_empty());
            format!("refusal {code}, keys {}", names_of(ids.iter().copied().map(KeyId)))
        }
        suite => {
            let id = KeyId(reader.read_bin().unwrap().try_into().unwrap());
            let noise = reader.read_bin().unwrap().len();
            format!("handshake, suite {suite}, key {}, {noise} bytes of noise", name_of(id))
        }
    }
}

/// What a message about keys says.
pub(crate) fn shown(message: &HandOver) -> String {
    let HandOver { handed, reports } = message;
    let mut parts = Vec::new();
    if !handed.keys.is_empty() {
        parts.push(format!("added {}", names_of(handed.keys.iter().map(Key::id))));
    }
    if let Some(used) = handed.used {
        parts.push(format!("use {} (order {})", name_of(used.id), used.count));
    }
    if !handed.removed.is_empty() {
        parts.push(format!("removed {}", names_of(handed.removed.iter().copied())));
    }
    parts.extend(reports.iter().map(|report| match report.is_gone {
        true => format!("{} is gone", report.name),
        false => format!("{} has {}", report.name, keys_of(&report.ring)),
    }));
    if parts.is_empty() { "nothing is ordered".to_owned() } else { parts.join("; ") }
}

//! How an entry is told: labels of its version, its chain, and all of it as JSON.

use distkv_http::header::HeaderValue;
use jiff::Timestamp;
use serde_json::{Map, Value as Json, json};

use super::client::Failure;
use super::told::{Held, Told, unreadable};
use crate::client::chain::ChainEvent;
use crate::client::{Chain, Fields, Message};
use crate::model::ids::Incarnation;
use crate::model::limits::CHAIN_LEN_MAX;
use crate::model::path::Path;
use crate::model::spelling::{LifeRef, NamedEvent};
use crate::protocol::json::{SAFE_INTEGER, safe_json_from_msgpack};

/// Events of a chain that are asked for: all that an entry can have.
const CHAIN_EVENTS: u64 = CHAIN_LEN_MAX as u64;
/// Most labels in one header field.
const LABELS_MAX: usize = 64;
/// The name in a precondition of a life that this node does not know: whatever it is, it is not the newest here.
const NOBODY: &str = "unknown";

/// The label of the version that this event made: `"e9001b2c3d4e-43"`. It never changes, and it says nothing of what a
/// node happens to know.
pub(super) fn etag(event: &ChainEvent) -> Option<String> {
    let life = LifeRef::parse(&event.node).ok()?;
    Some(format!("\"{:x}-{}\"", life.incarnation.0, event.tick?))
}

/// The label of the version that an event made, by the event's spelling.
pub(super) fn etag_of(event: &str) -> Option<String> {
    let NamedEvent { life, tick } = event.parse().ok()?;
    Some(format!("\"{:x}-{tick}\"", life.incarnation.0))
}

/// The event that a label names: the life's incarnation, and the tick.
fn parse_etag(label: &str) -> Option<(Incarnation, u64)> {
    let (incarnation, tick) = label.strip_prefix('"')?.strip_suffix('"')?.split_once('-')?;
    let is_hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    let is_one = !incarnation.is_empty() && incarnation.bytes().all(is_hex);
    let is_tick = !tick.is_empty() && tick.bytes().all(|c| c.is_ascii_digit());
    let incarnation = u64::from_str_radix(incarnation, 16).ok().filter(|_| is_one)?;
    Some((Incarnation(incarnation), tick.parse().ok().filter(|_| is_tick)?))
}

/// The labels of a field like `If-None-Match`.
pub(super) enum Labels {
    /// `*`: any.
    Any,
    /// One of these, as they were sent.
    These(Vec<String>),
}

impl Labels {
    /// From a field's values.
    pub(super) fn read<'v>(
        name: &str,
        values: impl Iterator<Item = &'v HeaderValue>,
    ) -> Result<Option<Self>, Failure> {
        let bad = || Failure::bad_request(format!("{name} must be labels, as ETag has them, or *"));
        let (mut labels, mut is_there) = (Vec::new(), false);
        for value in values {
            let text = value.to_str().map_err(|_| bad())?;
            is_there = true;
            // Empty members mean nothing (RFC 9110, section 5.6.1).
            let members = text.split(',').map(str::trim).filter(|label| !label.is_empty());
            labels.extend(members.map(str::to_owned));
        }
        match labels.as_slice() {
            [] if !is_there => Ok(None),
            // Without any label, it would be no precondition.
            [] => Err(bad()),
            [label] if label == "*" => Ok(Some(Self::Any)),
            labels if !labels.iter().all(|label| is_label(label)) => Err(bad()),
            labels if labels.len() > LABELS_MAX => {
                let count = labels.len();
                let text = format!("{name} has {count} labels; at most {LABELS_MAX} are taken");
                Err(Failure::bad_request(text))
            }
            labels => Ok(Some(Self::These(labels.to_vec()))),
        }
    }

    /// Whether the version with this label is one of them, be it as a weak one (`W/`).
    pub(super) fn have(&self, etag: &str) -> bool {
        match self {
            Self::Any => true,
            Self::These(labels) => {
                labels.iter().any(|label| label.strip_prefix("W/").unwrap_or(label) == etag)
            }
        }
    }
}

fn is_label(text: &str) -> bool {
    let bare = text.strip_prefix("W/").unwrap_or(text);
    bare.len() >= 2 && bare.starts_with('"') && bare.ends_with('"')
}

/// The chain that a precondition of this label asks for; `name_of` knows the nodes. A label of another kind is that of
/// no version here.
pub(super) fn chain_of(label: &str, name_of: impl Fn(Incarnation) -> Option<String>) -> Chain {
    let (incarnation, tick) = parse_etag(label).unwrap_or((Incarnation(0), 0));
    let name = name_of(incarnation).unwrap_or_else(|| String::from(NOBODY));
    let mut spelled = Vec::new();
    LifeRef { name: &name, incarnation }.spell_into(&mut spelled);
    Chain::of(&String::from_utf8_lossy(&spelled), tick)
}

/// The chain of a message, if it has one.
pub(super) fn chain(message: &Message) -> Option<Chain> {
    message.get("chain").and_then(|bytes| Chain::decode(bytes).ok().flatten())
}

/// An integer of ours.
pub(super) fn number(number: u64) -> Json {
    match number <= SAFE_INTEGER {
        true => number.into(),
        false => json!({"$int": number.to_string()}),
    }
}

/// A short MessagePack value as JSON: what a client has stored is [`Told`].
pub(super) fn value(bytes: &[u8]) -> Result<Json, Failure> {
    safe_json_from_msgpack(bytes).map_err(|error| unreadable(&error))
}

/// An entry's version, as a message has it: `value` unless it was deleted, `etag`, `chain` (events, newest first), `tock`,
/// `time` (when it was made) if it is known.
pub(super) fn version(message: &Message, told: &mut Told) {
    let value = message.get("value").map(|bytes| Held::Copied(bytes.to_vec()));
    version_with(message, value, told);
}

/// The same, whose value is not in the message.
pub(super) fn version_with(message: &Message, value: Option<Held>, told: &mut Told) {
    if let Some(value) = value {
        told.name("value").held(value);
    }
    let mut labels = Map::new();
    add_labels(message, &mut labels);
    told.fields(&labels);
}

/// Adds `etag`, `chain`, `tock` and, if it is known, `time`.
pub(super) fn add_labels(message: &Message, out: &mut Map<String, Json>) {
    if let Some(chain) = chain(message) {
        if let Some(etag) = etag(&chain.newest) {
            out.insert("etag".into(), etag.into());
        }
        out.insert("chain".into(), chain.events().map(ToString::to_string).collect());
    }
    if let Some(tock) = message.u64("tock") {
        out.insert("tock".into(), number(tock));
    }
    if let Some(time) = time(message) {
        out.insert("time".into(), time.into());
    }
}

/// When an entry was changed, as a message has it, for people: `2026-11-21T09:14:42.123Z`.
pub(super) fn time(message: &Message) -> Option<String> {
    time_of(message, "time")
}

/// The time in a message's field.
pub(super) fn time_of(message: &Message, field: &str) -> Option<String> {
    let ms = i64::try_from(message.u64(field)?).ok()?;
    Some(format!("{:.3}", Timestamp::from_millisecond(ms).ok()?))
}

/// Asks for an entry's chain, and for when it was changed.
pub(super) fn ask_for_chain(fields: &mut Fields) {
    fields.u64("nchain", CHAIN_EVENTS).bool("with_time", true);
}

/// The same as an object, with its path in front.
pub(super) fn entry(path: &Path, message: &Message, told: &mut Told) -> Result<(), Failure> {
    told.text("{").field("path", &path.to_string().into());
    version(message, told);
    told.text("}");
    Ok(())
}

/// All fields of a reply but its number.
pub(super) fn whole(message: &Message) -> Result<Json, Failure> {
    let mut json = value(message.as_bytes())?;
    if let Some(fields) = json.as_object_mut() {
        fields.remove("seq");
    }
    Ok(json)
}

/// The node's own answer has something that it should not have.
pub(super) fn broken(what: &str) -> Failure {
    Failure { code: "internal".into(), text: format!("{what} cannot be read") }
}

/// A conflict, as a message has it.
pub(super) fn conflict(path: &Path, message: &Message, told: &mut Told) -> Result<(), Failure> {
    told.text("{").field("path", &path.to_string().into());
    let broken = || broken("a conflict");
    let bytes = message.get("conflict").ok_or_else(broken)?;
    let conflict = Message::new(bytes).map_err(|_| broken())?;
    told.field("number", &number(conflict.u64("number").unwrap_or_default()));
    told.field("changed", &conflict.bool("changed").unwrap_or_default().into());
    for side in ["winner", "loser"] {
        let bytes = conflict.get(side).ok_or_else(broken)?;
        let message = Message::new(bytes).map_err(|_| broken())?;
        told.name(side).text("{");
        version(&message, told);
        told.text("}");
    }
    if let Some(dropped) = message.u64("dropped") {
        told.field("dropped", &number(dropped));
    }
    told.text("}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_a_life_and_a_tick_and_leads_back_to_them() {
        let event = ChainEvent { node: "n3~e9001b2c3d4e".into(), tick: Some(43) };
        let label = etag(&event).unwrap();
        assert_eq!(label, "\"e9001b2c3d4e-43\"");
        let name_of = |life: Incarnation| (life.0 == 0xe900_1b2c_3d4e).then(|| "n3".to_owned());
        assert_eq!(chain_of(&label, name_of).newest, event);
        for other in [
            "\"\"",
            "\"e9001b2c3d4e-44x\"",
            "W/\"e9001b2c3d4e-43\"",
            "\"E9001b2c3d4e-43\"",
            "\"-\"",
            "\"+1-+1\"",
        ] {
            assert_eq!(chain_of(other, name_of).newest.node, "unknown~0", "{other}");
        }
    }

    #[test]
    fn labels_are_lists_or_a_star() {
        let read = |texts: &[&str]| {
            let values: Vec<HeaderValue> =
                texts.iter().map(|text| HeaderValue::from_str(text).unwrap()).collect();
            Labels::read("If-Match", values.iter())
        };
        assert!(read(&[]).unwrap().is_none());
        assert!(matches!(read(&["*"]), Ok(Some(Labels::Any))));
        let labels = read(&["\"a\", W/\"b\"", "\"c\""]).unwrap().unwrap();
        assert!(labels.have("\"a\"") && labels.have("\"b\"") && labels.have("\"c\""));
        assert!(!labels.have("\"d\""));
        for wrong in ["", "a", "\"", "*, \"a\"", ",", " , ,"] {
            assert!(read(&[wrong]).is_err(), "{wrong}");
        }
        // Empty members mean nothing (RFC 9110, section 5.6.1), also where labels come in several fields.
        for texts in [&["\"a\","][..], &[", ,\"a\""], &["\"b\",,\"a\""], &["", "\"a\""]] {
            assert!(read(texts).unwrap().unwrap().have("\"a\""), "{texts:?}");
        }
        assert!(matches!(read(&["*,"]), Ok(Some(Labels::Any))));
        let many = |count: usize| read(&[&vec!["\"a\""; count].join(", ")]);
        assert!(many(64).unwrap().unwrap().have("\"a\""));
        let Err(said) = many(65) else { panic!("65 labels are taken") };
        assert_eq!(said.text, "If-Match has 65 labels; at most 64 are taken");
    }
}

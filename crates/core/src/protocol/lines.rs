//! Entries as lines of JSON: one object per line, for `jq`, editors and other programs.
//!
//! | field | what |
//! |---|---|
//! | `path` | in text form |
//! | `value` | as [`super::json`] has it, integers past 2^53 - 1 as text |
//! | `msgpack` | only if `value` does not come back in the same bytes: those, in base64 |
//! | `deleted` | `true` in place of a value: a tombstone |
//! | `chain` | the events that changed it, newest first, in their one spelling
//! ([`crate::model::spelling`]) |
//! | `cut` | `true` if the chain lost older events |
//! | `tock` | the change's |
//! | `time` | when the change was made, milliseconds since 1970, if its maker told it. For people: `check` does not
//! cover it |
//! | `origin` | of a re-issue: the event that first brought its value |
//! | `extra` | fields of the change that this version does not know, in base64 |
//! | `check` | two hashes, 16 digits each: of the fields that identify the version, and of its
//! value |
//!
//! A line with all of that is a version of an entry, as a node holds it. One with only `path` and
//! `value` says what somebody wants there. No line says what a node had accounted for: these files
//! are made to be cut, filtered and edited, and knowledge without its data would be wrong.
//!
//! An event has one value, everywhere and for good. So an edited line is not the version that it
//! names: `check` shows that ([`Standing`]), and its content is a change of its own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value as Json};
use xxhash_rust::xxh64::xxh64;

use super::json::{
    JsonError, json_from_msgpack, make_integers_safe, object_from_text, safe_json_from_msgpack,
    value_from_json,
};
use super::record::is_extra;
use crate::model::chain::Chain;
use crate::model::change_time::ChangeTime;
use crate::model::entry::{Entry, EntryParts};
use crate::model::ids::{Event, NodeId, NodeTable, Tick, Tock};
use crate::model::limits::{CHAIN_LEN_MAX, PATH_BYTES_MAX, VALUE_BYTES_MAX};
use crate::model::path::Path;
use crate::model::path_text::PathTextError;
use crate::model::spelling::{NamedEvent, SpellingError};
use crate::model::value::{Value, ValueError};

/// Longest line that is read. JSON is longer than the MessagePack that it becomes, with escapes
/// several times so; and the value may be there twice.
pub const LINE_BYTES_MAX: usize = 10 * VALUE_BYTES_MAX + 8 * PATH_BYTES_MAX;

/// What a line says.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Where.
    pub path: Path,
    /// The value; none if it was deleted.
    pub value: Option<Value>,
}

/// What a line with all its fields says more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The events that last changed the entry, newest first: 1 to [`CHAIN_LEN_MAX`].
    pub(crate) chain: Vec<(NodeId, Tick)>,
    /// Whether older ones were dropped.
    pub(crate) is_chain_cut: bool,
    /// The change's tock.
    pub tock: Tock,
    /// When it was made, if the line tells it; for people.
    pub(crate) time: Option<ChangeTime>,
    /// The event that first brought the value, of a re-issue.
    pub(crate) origin: Option<(NodeId, Tick)>,
    /// Unknown fields of the change.
    pub(crate) extra: Vec<u8>,
    /// Whether the version is a deletion, whatever the line has as its value now.
    is_deletion: bool,
    /// Whether the line is as it was written.
    pub(crate) standing: Standing,
}

/// How a line stands to the version that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is that version.
    AsWritten,
    /// It has another value in the place of that version's.
    OtherValue,
    /// Its path, chain, tock, or another field that identifies the version, was changed. None of
    /// these can be trusted.
    OtherVersion,
}

/// Why a line cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// It is no JSON object.
    #[error("{0}")]
    Json(#[from] JsonError),
    /// A field that must be there, or is something else.
    #[error("\"{field}\" must be {expected}")]
    Field {
        /// Its name.
        field: &'static str,
        /// What must be there.
        expected: &'static str,
    },
    /// The path's text.
    #[error("\"path\": {0}")]
    Path(#[from] PathTextError),
    /// The value's bytes.
    #[error("\"msgpack\": {0}")]
    Value(#[from] ValueError),
    /// Two values, and nothing that says which is meant.
    #[error("\"value\" and \"msgpack\" say different things; leave out the one that is not meant")]
    TwoValues,
    /// Neither a value nor `deleted`.
    #[error("\"value\" or \"deleted\": true is missing")]
    NoValue,
    /// It only says what is wanted.
    #[error(
        "without a whole \"chain\" and \"tock\" the line is no version of an entry; `import` \
         makes new changes of such lines"
    )]
    NoVersion,
}

/// Reads which value a line wants at which path. Its other fields do not matter.
///
/// # Errors
/// [`LineError`].
pub fn decode_line(text: &str) -> Result<Line, LineError> {
    decode_fields(&object_of_line(text)?)
}

/// The fields of a line. Errors have the column only: whoever reads the file knows which line it is.
fn object_of_line(text: &str) -> Result<Map<String, Json>, JsonError> {
    object_from_text(text).map_err(|error| match error {
        JsonError::Syntax(error) => error.of_line().into(),
        other => other,
    })
}

/// Reads a version of an entry.
///
/// # Errors
/// [`LineError`]; [`LineError::NoVersion`] for a line that is good otherwise.
pub fn decode_version(text: &str) -> Result<(Line, Version), LineError> {
    let fields = object_of_line(text)?;
    let line = decode_fields(&fields)?;
    let chain = fields.get("chain").and_then(Json::as_array).ok_or(LineError::NoVersion)?;
    let tock = fields.get("tock").filter(|tock| !tock.is_null()).ok_or(LineError::NoVersion)?;
    let chain: Vec<_> = chain.iter().map(event_of_chain).collect::<Result<_, _>>()?;
    let tock = unsigned(tock).and_then(Tock::new);
    let tock = tock.ok_or(LineError::Field {
        field: "tock",
        expected: "a whole number from 0 to 4611686018427387903",
    })?;
    if !(1..=CHAIN_LEN_MAX).contains(&chain.len()) {
        return Err(LineError::Field { field: "chain", expected: "1 to 8 events" });
    }
    let origin = match fields.get("origin") {
        None => None,
        Some(event) => Some(event.as_str().and_then(decode_event).ok_or(LineError::Field {
            field: "origin",
            expected: "an event, like \"n1~e9001b2c3d4e:5\"",
        })?),
    };
    let extra = match fields.get("extra") {
        None => Vec::new(),
        Some(extra) => base64_bytes(extra)
            .filter(|bytes| is_extra(bytes))
            .ok_or(LineError::Field { field: "extra", expected: "a change's fields in base64" })?,
    };
    let is_chain_cut = flag(&fields, "cut")?;
    // For people only: what is no time is none.
    let time = fields.get("time").and_then(Json::as_u64).and_then(ChangeTime::new);
    let (standing, check) = (Standing::AsWritten, read_check(&fields));
    let is_deletion = match check {
        Some((_, value)) => value == hash_of_value(None),
        None => line.value.is_none(),
    };
    let mut version =
        Version { chain, is_chain_cut, tock, time, origin, extra, is_deletion, standing };
    version.standing = match check {
        Some((which, _)) if which != hash_of_version(&line.path, &version) => {
            Standing::OtherVersion
        }
        Some((_, value)) if value == hash_of_value(line.value.as_ref().map(Value::as_bytes)) => {
            Standing::AsWritten
        }
        Some(_) => Standing::OtherValue,
        None => Standing::OtherVersion,
    };
    Ok((line, version))
}

/// The hashes of a line's version and value; `None` if there are none.
fn read_check(fields: &Map<String, Json>) -> Option<(u64, u64)> {
    let text = fields.get("check").and_then(Json::as_str)?;
    let (version, value) = text.split_at_checked(16).filter(|(_, value)| value.len() == 16)?;
    let hash = |digits| u64::from_str_radix(digits, 16).ok();
    Some((hash(version)?, hash(value)?))
}

/// Of all that says which version of which entry it is.
fn hash_of_version(path: &Path, version: &Version) -> u64 {
    let Version { chain, is_chain_cut, tock, origin, extra, time: _, is_deletion: _, standing: _ } =
        version;
    let mut bytes = Vec::with_capacity(256);
    let part = |part: &[u8], bytes: &mut Vec<u8>| {
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part);
    };
    part(path.as_bytes(), &mut bytes);
    part(extra, &mut bytes);
    bytes.extend_from_slice(&tock.get().to_le_bytes());
    bytes.extend_from_slice(&[u8::from(*is_chain_cut), u8::from(origin.is_some())]);
    for (id, tick) in origin.iter().chain(chain) {
        part(id.name.as_str().as_bytes(), &mut bytes);
        bytes.extend_from_slice(&id.incarnation.0.to_le_bytes());
        bytes.extend_from_slice(&tick.get().to_le_bytes());
    }
    xxh64(&bytes, 0)
}

fn hash_of_value(value: Option<&[u8]>) -> u64 {
    xxh64(value.unwrap_or_default(), u64::from(value.is_some()))
}

fn decode_fields(fields: &Map<String, Json>) -> Result<Line, LineError> {
    let path = fields.get("path").and_then(Json::as_str);
    let path = path.ok_or(LineError::Field { field: "path", expected: "a path's text" })?;
    let path = path.parse()?;
    if flag(fields, "deleted")? {
        return Ok(Line { path, value: None });
    }
    let json = fields.get("value");
    let Some(bytes) = fields.get("msgpack") else {
        let value = value_from_json(json.ok_or(LineError::NoValue)?)?;
        return Ok(Line { path, value: Some(value) });
    };
    let field = LineError::Field { field: "msgpack", expected: "base64 text" };
    let mut value = Value::new(&base64_bytes(bytes).ok_or(field)?)?;
    // Both say the same, unless one was edited; then the other is still as it was written.
    if let Some(json) = json
        && json_from_msgpack(value.as_bytes())? != *json
        && safe_json_from_msgpack(value.as_bytes())? != *json
    {
        match read_check(fields) {
            Some((_, hash)) if hash == hash_of_value(Some(value.as_bytes())) => {
                value = value_from_json(json)?;
            }
            Some(_) | None => return Err(LineError::TwoValues),
        }
    }
    Ok(Line { path, value: Some(value) })
}

/// A number, in either of the two forms of great ones.
fn unsigned(json: &Json) -> Option<u64> {
    json.as_u64().or_else(|| value_from_json(json).ok()?.reader().read_u64().ok())
}

fn flag(fields: &Map<String, Json>, field: &'static str) -> Result<bool, LineError> {
    match fields.get(field) {
        None => Ok(false),
        Some(flag) => flag.as_bool().ok_or(LineError::Field { field, expected: "true or false" }),
    }
}

fn base64_bytes(json: &Json) -> Option<Vec<u8>> {
    BASE64.decode(json.as_str()?).ok()
}

fn decode_event(text: &str) -> Option<(NodeId, Tick)> {
    let NamedEvent { life, tick } = text.parse().ok()?;
    Some((life, tick))
}

/// An event of a line's chain. One of a bare name is of no life, so the line says only what is wanted.
fn event_of_chain(event: &Json) -> Result<(NodeId, Tick), LineError> {
    let text = event.as_str().ok_or(LineError::NoVersion)?;
    match text.parse() {
        Ok(NamedEvent { life, tick }) => Ok((life, tick)),
        Err(SpellingError::Bare { .. }) => Err(LineError::NoVersion),
        Err(_) => Err(LineError::Field {
            field: "chain",
            expected: "events like \"n1~e9001b2c3d4e:5\", each with a tick from 1 to 4611686018427387903",
        }),
    }
}

fn event_json(event: Event, table: &NodeTable) -> Json {
    table.spell_event(event).into()
}

/// Appends an entry's line, with its line break.
pub(crate) fn write_line(path: &Path, entry: &Entry, table: &NodeTable, out: &mut Vec<u8>) {
    let fields = line_fields(path, entry, table);
    out.extend_from_slice(Json::Object(fields).to_string().as_bytes());
    out.push(b'\n');
}

/// All fields of an entry's line.
#[must_use]
pub fn line_fields(path: &Path, entry: &Entry, table: &NodeTable) -> Map<String, Json> {
    let mut fields = Map::new();
    fields.insert("path".into(), path.to_string().into());
    match entry.value() {
        None => drop(fields.insert("deleted".into(), true.into())),
        Some(value) => {
            let json = safe_json_from_msgpack(value).unwrap_or(Json::Null);
            let is_exact = value_from_json(&json).is_ok_and(|back| back.as_bytes() == value);
            fields.insert("value".into(), json);
            if !is_exact {
                fields.insert("msgpack".into(), BASE64.encode(value).into());
            }
        }
    }
    let chain = entry.events().map(|event| event_json(event, table)).collect();
    fields.insert("chain".into(), Json::Array(chain));
    if entry.is_chain_cut() {
        fields.insert("cut".into(), true.into());
    }
    let mut tock = entry.tock().get().into();
    make_integers_safe(&mut tock);
    fields.insert("tock".into(), tock);
    if let Some(time) = entry.time() {
        fields.insert("time".into(), time.ms().into());
    }
    if let Some(origin) = entry.reissue_of() {
        fields.insert("origin".into(), event_json(origin, table));
    }
    if !entry.extra().is_empty() {
        fields.insert("extra".into(), BASE64.encode(entry.extra()).into());
    }
    let version = hash_of_version(path, &Version::of(entry, table));
    let value = hash_of_value(entry.value());
    fields.insert("check".into(), format!("{version:016x}{value:016x}").into());
    fields
}

impl Version {
    /// An entry's, whose events are in the table's indices.
    fn of(entry: &Entry, table: &NodeTable) -> Version {
        let event = |event: Event| (table.id(event.node).clone(), event.tick);
        Version {
            chain: entry.events().map(event).collect(),
            is_chain_cut: entry.is_chain_cut(),
            tock: entry.tock(),
            time: entry.time(),
            origin: entry.reissue_of().map(event),
            extra: entry.extra().to_vec(),
            is_deletion: entry.is_tombstone(),
            standing: Standing::AsWritten,
        }
    }

    /// The version that the line names, for something to be made on top of it, in terms of a table: all
    /// but its value, which the line may not have any more. `None` if the table is full.
    #[must_use]
    pub(crate) fn base(&self, table: &mut NodeTable) -> Option<Entry> {
        let value = (!self.is_deletion).then(Value::nil);
        self.entry(value.as_ref(), table)
    }

    /// Its chain, in terms of a table; `None` if that is full.
    fn chain(&self, table: &mut NodeTable) -> Option<Chain> {
        let event =
            |(id, tick): &(NodeId, Tick)| Some(Event { node: table.intern(id)?, tick: *tick });
        let events: Vec<Event> = self.chain.iter().map(event).collect::<Option<_>>()?;
        Chain::from_events(events, self.is_chain_cut)
    }

    /// The entry, in terms of a table; `None` if that is full.
    #[must_use]
    pub(crate) fn entry(&self, value: Option<&Value>, table: &mut NodeTable) -> Option<Entry> {
        let chain = self.chain(table)?;
        let origin = match &self.origin {
            None => None,
            Some((id, tick)) => Some(Event { node: table.intern(id)?, tick: *tick }),
        };
        Some(Entry::new(&EntryParts {
            value: value.map(Value::as_bytes),
            chain: &chain,
            tock: self.tock,
            origin,
            time: self.time,
            extra: &self.extra,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{Incarnation, NodeName};
    use crate::model::value::arbitrary::any_rmpv;
    use proptest::prelude::*;

    fn id(name: &str, incarnation: u64) -> NodeId {
        NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(incarnation) }
    }

    #[test]
    fn an_error_names_the_column_and_leaves_names_in_the_line_as_they_are() {
        let error = |text: &str| decode_line(text).unwrap_err().to_string();
        let twice = "{\"path\":\"a\",\"k at line 1 column 2\":1,\"k at line 1 column 2\":2}";
        assert_eq!(
            error(twice),
            "not JSON: the key \"k at line 1 column 2\" is there twice at column 62"
        );
        assert_eq!(error("{\"path\":}"), "not JSON: expected value at column 9");
        assert_eq!(error("5"), "not JSON: no object");
    }

    fn round_trip(path: &str, value: Option<&[u8]>, with_all: bool) -> String {
        let mut table = NodeTable::new();
        let (a, b) = (table.intern(&id("a:b", 7)).unwrap(), table.intern(&id("b", !0)).unwrap());
        let event = |node, tick| Event { node, tick: Tick::new(tick).unwrap() };
        let chain = Chain::from_events([event(a, 5), event(b, 9)], with_all).unwrap();
        let entry = Entry::new(&EntryParts {
            value,
            chain: &chain,
            tock: Tock::new(17).unwrap(),
            origin: with_all.then(|| event(b, 2)),
            time: if with_all { ChangeTime::new(1_795_000_000_123) } else { None },
            extra: if with_all { b"\x01\x09\xa1x" } else { b"" },
        });
        let path: Path = path.parse().unwrap();
        let mut out = Vec::new();
        write_line(&path, &entry, &table, &mut out);
        let text = String::from_utf8(out).unwrap();
        let (line, version) = decode_version(&text).unwrap();
        assert_eq!(line.path, path);
        assert_eq!(version.entry(line.value.as_ref(), &mut table), Some(entry));
        assert_eq!(decode_line(&text).unwrap(), line);
        text
    }

    #[test]
    fn an_entry_survives_being_a_line() {
        let line = round_trip("site:1.lamp", Some(b"\x81\xa2on\xc3"), false);
        let expected = r#"{"path":"site:1.lamp","value":{"on":true},"chain":["a:b~7:5","b~ffffffffffffffff:9"],"tock":17,"check":""#;
        assert!(line.starts_with(expected), "{line}");
        let line = round_trip(":", None, true);
        assert!(line.contains(r#""deleted":true"#) && !line.contains("value"), "{line}");
    }

    #[test]
    fn bytes_that_json_would_change_come_along() {
        assert!(!round_trip("a", Some(b"\x05"), false).contains("msgpack"));
        for value in [&b"\xcd\x00\x05"[..], b"\xca\x3f\x80\x00\x00", b"\xd9\x01a"] {
            assert!(round_trip("a", Some(value), true).contains("msgpack"), "{value:x?}");
        }
    }

    proptest! {
        #[test]
        fn every_value_survives(value in any_rmpv()) {
            let mut bytes = Vec::new();
            rmpv::encode::write_value(&mut bytes, &value).unwrap();
            round_trip("a", Some(&bytes), false);
        }
    }

    #[test]
    fn what_was_edited_is_noticed() {
        let standing = |text: &str| decode_version(text).unwrap().1.standing;
        let line = round_trip("a.b", Some(b"\xca\x3f\x80\x00\x00"), true);
        assert_eq!(standing(&line), Standing::AsWritten);
        let edited = |from: &str, to: &str| {
            assert_eq!(line.matches(from).count(), 1, "{line}");
            line.replace(from, to)
        };
        // Also next to the bytes that the value had.
        let other = edited(r#""value":1.0"#, r#""value":2.5"#);
        assert_eq!(standing(&other), Standing::OtherValue);
        assert_eq!(decode_line(&other).unwrap().value, Some(value_from_json(&2.5.into()).unwrap()));
        let deleted = edited(r#""value":1.0"#, r#""deleted":true"#);
        assert_eq!(standing(&deleted), Standing::OtherValue);
        for (from, to) in [
            (r#""path":"a.b""#, r#""path":"a.c""#),
            (r#""tock":17"#, r#""tock":18"#),
            (":5", ":6"),
            (r#""cut":true"#, r#""cut":false"#),
            (r#""origin":"b~ffffffffffffffff:2","#, ""),
            (r#""extra":"#, r#""was":"#),
            (r#""check":"#, r#""was":"#),
        ] {
            assert_eq!(standing(&edited(from, to)), Standing::OtherVersion, "{from} {to}");
        }
        // The time is for people: with another one, without it, or with what is none, it is the same version.
        for to in [r#""time":5,"#, "", r#""time":"now","#, r#""time":18446744073709551615,"#] {
            let text = edited(r#""time":1795000000123,"#, to);
            assert_eq!(standing(&text), Standing::AsWritten, "{to}");
            let time = decode_version(&text).unwrap().1.time.map(ChangeTime::ms);
            assert_eq!(time, to.contains(":5").then_some(5), "{to}");
        }
        // If nothing says which of two values is meant, neither is taken.
        let both = r#"{"path":"a","value":2,"msgpack":"zQAF"}"#;
        assert_eq!(decode_line(both), Err(LineError::TwoValues));
        let same = r#"{"path":"a","value":5,"msgpack":"zQAF"}"#;
        assert_eq!(decode_line(same).unwrap().value.unwrap().as_bytes(), b"\xcd\x00\x05");
    }

    #[test]
    fn a_line_with_great_integers_is_as_it_was_written_in_both_forms() {
        // An array whose length is not in its shortest form, so that its bytes come along.
        let value = b"\xdc\x00\x01\xcf\x00\x20\x00\x00\x00\x00\x00\x01";
        let line = round_trip("a", Some(value), false);
        let text = r#"{"$int":"9007199254740993"}"#;
        assert_eq!(line.matches(text).count(), 1, "{line}");
        for form in [text, "9007199254740993"] {
            let (read, version) = decode_version(&line.replace(text, form)).unwrap();
            assert_eq!(read.value.unwrap().as_bytes(), value);
            assert_eq!(version.standing, Standing::AsWritten);
        }
        let tock = line.replace(r#""tock":17"#, r#""tock":{"$int":"17"}"#);
        assert_eq!(decode_version(&tock).unwrap().1.standing, Standing::AsWritten);
    }

    #[test]
    fn a_plain_line_says_what_is_wanted_and_no_more() {
        let line = decode_line(r#"{"path": "a.b", "value": [1, 2], "tock": 5, "x": 1}"#).unwrap();
        assert_eq!(line.value.unwrap().as_bytes(), b"\x92\x01\x02");
        let with_bare_name = r#"{"path":"a","value":1,"chain":["n1:5"],"tock":3}"#;
        assert_eq!(decode_version(with_bare_name).unwrap_err(), LineError::NoVersion);
        assert_eq!(decode_version(r#"{"path":"a","value":1}"#), Err(LineError::NoVersion));
        assert_eq!(decode_line(r#"{"path":"a"}"#), Err(LineError::NoValue));
    }

    #[test]
    fn a_chain_or_tock_that_is_out_of_range_is_told_with_the_range() {
        let told = |chain: &str, tock: &str| {
            let text = format!(r#"{{"path":"a","value":1,"chain":{chain},"tock":{tock}}}"#);
            decode_version(&text).map(drop).map_err(|error| error.to_string())
        };
        let good = r#"["n1~e9001b2c3d4e:5"]"#;
        assert_eq!(told(good, "4611686018427387903"), Ok(()));
        for tock in ["4611686018427387904", "-1", "1.5", r#""3""#] {
            let why = "\"tock\" must be a whole number from 0 to 4611686018427387903";
            assert_eq!(told(good, tock).unwrap_err(), why, "{tock}");
        }
        assert_eq!(told(r#"["n1~e9001b2c3d4e:4611686018427387903"]"#, "3"), Ok(()));
        for event in [
            "n1~e9001b2c3d4e:4611686018427387904",
            "n1~e9001b2c3d4e:0",
            "n1~e9001b2c3d4e",
            "n1~07:5",
        ] {
            let why = "\"chain\" must be events like \"n1~e9001b2c3d4e:5\", each with a tick from 1 to 4611686018427387903";
            assert_eq!(told(&format!("[{event:?}]"), "3").unwrap_err(), why, "{event}");
        }
    }

    #[test]
    fn what_is_no_line_is_refused_and_says_why() {
        for text in [
            "",
            "[]",
            "{",
            r#"{"value": 1}"#,
            r#"{"path": 5, "value": 1}"#,
            r#"{"path": "a:zz", "value": 1}"#,
            r#"{"path": "a", "msgpack": "?"}"#,
            r#"{"path": "a", "msgpack": "wQ=="}"#,
            r#"{"path": "a", "deleted": 5}"#,
        ] {
            assert!(decode_line(text).is_err(), "{text}");
        }
        let version = |more: &str| {
            decode_version(&format!(r#"{{"path":"a","value":1,"tock":3,{more}}}"#)).unwrap_err()
        };
        for more in [
            r#""chain":[]"#,
            r#""chain":["a~07:5"]"#,
            r#""chain":["a~7:0"]"#,
            r#""chain":["a~7:5"],"origin":5"#,
            r#""chain":["a~7:5"],"extra":"?""#,
            r#""chain":["a~7:5"],"extra":"AQIB""#,
            r#""chain":["a~7:5"],"cut":1"#,
        ] {
            assert!(!version(more).to_string().is_empty(), "{more}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let deep =
            format!(r#"{{"path":"a","value":{}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(decode_line(&deep), Err(LineError::Json(JsonError::TooDeep)));
    }
}

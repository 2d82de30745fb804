//! Requests to bytes and bytes to messages, pure.

use std::fmt;
use std::ops::Range;

use super::error::ServerError;
use crate::model::limits::{PATH_BYTES_MAX, VALUE_BYTES_MAX};
use crate::model::path::Path;
use crate::model::value::write::{
    write_bin, write_bool, write_f64, write_map_len, write_nil, write_str, write_u64,
};
use crate::model::value::{Kind, ReadError, Reader};

/// Longest request that is sent: two of the longest values (`value` and `prev`), a path, and
/// something for the rest. No node takes more.
pub const REQUEST_BYTES_MAX: usize = 2 * VALUE_BYTES_MAX + PATH_BYTES_MAX + 4096;

/// A value of a message that is longer may have so many parts that to pass over them takes long.
const LONG_BYTES: usize = 256;

/// Room for a request's small fields, so that they are put together without moving them.
const FIELDS_BYTES: usize = 48;

/// The fields of a request, next to its `action` and `seq`.
#[derive(Clone, Default)]
pub struct Fields {
    bytes: Vec<u8>,
    /// Invariant: `bytes` is this many pairs of a key and a value.
    count: usize,
}

/// How many there are: a login's have its secret.
impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fields({})", self.count)
    }
}

impl Fields {
    /// None yet.
    #[must_use]
    pub fn new() -> Fields {
        Fields::default()
    }

    /// Only a path, which is what most requests have.
    #[must_use]
    pub fn at(path: &Path) -> Fields {
        // For the path, and the few small fields that may follow.
        let bytes = Vec::with_capacity(path.as_bytes().len() + FIELDS_BYTES);
        let mut fields = Fields { bytes, count: 0 };
        fields.path("path", path);
        fields
    }

    /// How long they are, in bytes.
    pub(crate) fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a path, as an extension.
    pub fn path(&mut self, name: &str, path: &Path) -> &mut Fields {
        path.encode_ext3(self.key(name));
        self
    }

    /// Adds a string.
    pub fn str(&mut self, name: &str, text: &str) -> &mut Fields {
        write_str(text, self.key(name));
        self
    }

    /// Adds a boolean.
    pub fn bool(&mut self, name: &str, value: bool) -> &mut Fields {
        write_bool(value, self.key(name));
        self
    }

    /// Adds an integer.
    pub fn u64(&mut self, name: &str, number: u64) -> &mut Fields {
        write_u64(number, self.key(name));
        self
    }

    /// Adds a float.
    pub fn f64(&mut self, name: &str, number: f64) -> &mut Fields {
        write_f64(number, self.key(name));
        self
    }

    /// Adds a byte string.
    pub fn bin(&mut self, name: &str, bytes: &[u8]) -> &mut Fields {
        write_bin(bytes, self.key(name));
        self
    }

    /// Adds nil.
    pub fn nil(&mut self, name: &str) -> &mut Fields {
        write_nil(self.key(name));
        self
    }

    /// Adds one MessagePack value, which must be one ([`crate::model::value::Value`] is).
    pub fn raw(&mut self, name: &str, value: &[u8]) -> &mut Fields {
        self.key(name).extend_from_slice(value);
        self
    }

    /// Adds all of another's.
    pub(crate) fn append(&mut self, other: &Fields) -> &mut Fields {
        self.bytes.extend_from_slice(&other.bytes);
        self.count += other.count;
        self
    }

    /// The fields alone, as a map.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes.len() + 5);
        write_map_len(self.count, &mut out);
        out.extend_from_slice(&self.bytes);
        out
    }

    /// The whole request.
    #[must_use]
    pub fn encode_request(&self, seq: u64, action: &str) -> Vec<u8> {
        self.encode_request_by(seq, action, None)
    }

    /// The same; `by`: until when it counts, by the node's clock.
    pub(crate) fn encode_request_by(&self, seq: u64, action: &str, by: Option<u64>) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes.len() + action.len() + 44);
        write_map_len(self.count + 2 + usize::from(by.is_some()), &mut out);
        write_str("action", &mut out);
        write_str(action, &mut out);
        out.extend_from_slice(&self.bytes);
        if let Some(by) = by {
            write_str("by", &mut out);
            write_u64(by, &mut out);
        }
        write_str("seq", &mut out);
        write_u64(seq, &mut out);
        out
    }

    /// Starts a pair; the caller writes its value.
    fn key(&mut self, name: &str) -> &mut Vec<u8> {
        self.count += 1;
        write_str(name, &mut self.bytes);
        &mut self.bytes
    }
}

/// The acknowledgement of a stream's messages up to number `wseq`.
#[must_use]
pub fn encode_ack(seq: u64, wseq: u64) -> Vec<u8> {
    let mut fields = Fields::new();
    fields.u64("seq", seq).str("state", "ack").u64("ack", wseq);
    fields.encode()
}

/// The session's settings, which come before all requests: the length of the window of streams, 0 for no
/// flow control; and whether a node that is not ready is to refuse requests at once (`nowait`).
#[must_use]
pub fn encode_settings(qlen: u64, nowait: bool) -> Vec<u8> {
    let mut fields = Fields::new();
    fields.u64("seq", 0).u64("qlen", qlen);
    if nowait {
        fields.bool("nowait", true);
    }
    fields.encode()
}

/// One message from a node: a map, kept as the bytes that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Invariant: one map, whole, whose keys are all strings.
    bytes: Box<[u8]>,
    /// What `seq` says; 0 without it.
    seq: u64,
    /// What `tock` says; 0 without it.
    tock: u64,
    /// It has neither an `error` nor a `state`: it is an answer, or an item of a stream.
    is_plain: bool,
    /// Where its longest value is, if that is a long one: who looks for a field behind it passes over it in one step. Empty
    /// without one.
    long: Range<usize>,
}

impl Message {
    /// Checks and copies a message.
    ///
    /// # Errors
    /// It is no map, or has a key that is no string.
    pub fn new(bytes: &[u8]) -> Result<Message, ReadError> {
        let mut reader = Reader::new(bytes);
        let (mut seq, mut tock, mut is_plain) = (None, None, true);
        let (mut long, mut long_bytes) = (0..0, LONG_BYTES);
        // Most are short, and are asked for a few fields only: nothing is looked at for this in them.
        let may_have_long = bytes.len() > LONG_BYTES;
        for _ in 0..reader.read_map_len()? {
            // The names of the protocol are text.
            let name = reader.read_str_bytes()?;
            let start = if may_have_long { reader.position() } else { 0 };
            match name {
                b"seq" => {
                    let value = reader.read_raw()?;
                    seq.get_or_insert(as_u64(value).unwrap_or(0));
                }
                b"error" | b"state" => {
                    is_plain = false;
                    reader.skip()?;
                }
                b"tock" => {
                    let value = reader.read_raw()?;
                    tock.get_or_insert(as_u64(value).unwrap_or(0));
                }
                b"value" => reader.skip()?,
                other => {
                    std::str::from_utf8(other).map_err(|_| ReadError::NotUtf8)?;
                    reader.skip()?;
                }
            }
            if may_have_long && reader.position() - start > long_bytes {
                long = start..reader.position();
                long_bytes = long.len();
            }
        }
        reader.finish()?;
        let (seq, tock) = (seq.unwrap_or(0), tock.unwrap_or(0));
        Ok(Message { bytes: Box::from(bytes), seq, tock, is_plain, long })
    }

    /// The number of the request that it is about; 0 if it is about none.
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// The tock that it carries; 0 without one.
    pub(crate) fn tock(&self) -> u64 {
        self.tock
    }

    /// Whether it has neither an `error` nor a `state`.
    pub(crate) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// All of it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The fields in the order in which they came; values as their bytes.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        // The keys were found to be text when the message came.
        self.raw_fields().filter_map(|(key, value)| Some((std::str::from_utf8(key).ok()?, value)))
    }

    /// A field's value, as its bytes; `None` when there is no such field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let is_it = |(key, _): &(&[u8], &[u8])| *key == name.as_bytes();
        // Most have no long value, and to look for its place at each field was some per cent of the time.
        let found = match self.long.is_empty() {
            true => pairs(&self.bytes).find(is_it),
            false => self.raw_fields().find(is_it),
        };
        found.map(|(_, value)| value)
    }

    /// The fields, as their keys' text and their values' bytes.
    pub(crate) fn raw_fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut reader = Reader::new(&self.bytes);
        let count = reader.read_map_len().unwrap_or(0);
        let mut long = self.long.clone();
        (0..count).map_while(move |_| {
            let key = reader.read_str_bytes().ok()?;
            if long.is_empty() || reader.position() != long.start {
                return Some((key, reader.read_raw().ok()?));
            }
            reader = Reader::new(self.bytes.get(long.end..)?);
            // From here on places are others.
            let long = std::mem::take(&mut long);
            Some((key, self.bytes.get(long)?))
        })
    }

    /// A field that holds a string.
    #[must_use]
    pub fn str(&self, name: &str) -> Option<&str> {
        as_str(self.get(name)?)
    }

    /// A field that holds an integer from 0.
    #[must_use]
    pub fn u64(&self, name: &str) -> Option<u64> {
        as_u64(self.get(name)?)
    }

    /// A field that holds a boolean.
    #[must_use]
    pub fn bool(&self, name: &str) -> Option<bool> {
        as_bool(self.get(name)?)
    }

    /// The error that this message is, if it is one.
    #[must_use]
    pub fn error(&self) -> Option<ServerError> {
        if self.is_plain {
            return None;
        }
        let text = self.get("error")?;
        let text = as_str(text).unwrap_or("an error that is not told as text").to_owned();
        let (code, is_made) = (self.str("code").map(str::to_owned), self.bool("made"));
        let explain = self.get("explain").and_then(as_pair).map(Box::new);
        let changed = self.u64("changed");
        Some(ServerError { code, text, is_made: is_made == Some(true), changed, explain })
    }
}

/// The pairs of a map whose keys are strings.
fn pairs(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut reader = Reader::new(bytes);
    let count = reader.read_map_len().unwrap_or(0);
    (0..count).map_while(move |_| Some((reader.read_str_bytes().ok()?, reader.read_raw().ok()?)))
}

/// What a node says first (docs/client-protocol.md, "Start").
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// The node's name.
    pub node: String,
    /// The protocol's version, greatest part first.
    pub version: Vec<u64>,
    /// The node's tick; none on a node that cannot work yet.
    pub tick: Option<u64>,
    /// Whether the node says that it cannot work yet: its tick is nil.
    pub is_catching_up: bool,
    /// The network's tock, as the node knows it.
    pub tock: u64,
    /// The greatest window of flow control that the node grants; none if it does not say.
    pub qlen: Option<u64>,
    /// The way to log in that the node asks for first, if it does.
    pub auth: Option<String>,
    /// The node's part of the challenge for a login with the cluster's key, if it has one.
    pub nonce: Option<[u8; 32]>,
    /// The way to log in that the node will ask for soon, if it does not ask for one now.
    pub auth_soon: Option<String>,
    /// The name of its network; none from nodes that do not say it, like those of former versions.
    pub network: Option<String>,
    /// The node's own clock when it said this, in milliseconds from any beginning; none from nodes that do not say it.
    pub clock: Option<u64>,
}

impl Greeting {
    /// From a node's first message; `None` if it is no greeting.
    #[must_use]
    pub fn decode(message: &Message) -> Option<Greeting> {
        let version = array_items(message.get("version")?).filter_map(as_u64).collect();
        let auth = message.get("auth").and_then(|auth| array_items(auth).next());
        Some(Greeting {
            node: message.str("node")?.to_owned(),
            version,
            tick: message.u64("tick"),
            is_catching_up: message.get("tick") == Some(&[0xc0]),
            tock: message.u64("tock").unwrap_or(0),
            qlen: message.u64("qlen"),
            auth: auth.and_then(as_str).map(str::to_owned),
            nonce: message
                .get("nonce")
                .and_then(|nonce| Reader::new(nonce).read_bin().ok()?.try_into().ok()),
            auth_soon: message.str("auth_soon").map(str::to_owned),
            network: message.str("network").filter(|name| !name.is_empty()).map(str::to_owned),
            clock: message.u64("clock"),
        })
    }
}

/// The text of a MessagePack string.
#[must_use]
pub fn as_str(bytes: &[u8]) -> Option<&str> {
    Reader::new(bytes).read_str().ok()
}

/// Two strings, in an array.
fn as_pair(bytes: &[u8]) -> Option<(String, String)> {
    let mut reader = Reader::new(bytes);
    if reader.read_array_len().ok()? != 2 {
        return None;
    }
    let [first, second] = [reader.read_str(), reader.read_str()];
    Some((first.ok()?.to_owned(), second.ok()?.to_owned()))
}

/// The number of a MessagePack integer from 0.
#[must_use]
pub fn as_u64(bytes: &[u8]) -> Option<u64> {
    Reader::new(bytes).read_u64().ok()
}

/// A MessagePack boolean.
#[must_use]
pub fn as_bool(bytes: &[u8]) -> Option<bool> {
    Reader::new(bytes).read_bool().ok()
}

/// The items of a MessagePack array, as their bytes; none if it is no array.
pub fn array_items(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut reader = Reader::new(bytes);
    let count = match reader.peek_kind() {
        Ok(Kind::Array) => reader.read_array_len().unwrap_or(0),
        _ => 0,
    };
    (0..count).map_while(move |_| reader.read_raw().ok())
}

/// The pairs of a MessagePack map, as their bytes; none if it is no map.
pub fn map_items(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut reader = Reader::new(bytes);
    let count = match reader.peek_kind() {
        Ok(Kind::Map) => reader.read_map_len().unwrap_or(0),
        _ => 0,
    };
    (0..count).map_while(move |_| Some((reader.read_raw().ok()?, reader.read_raw().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_its_action_its_fields_and_its_seq() {
        let mut fields = Fields::at(&"a".parse().unwrap());
        fields.raw("value", &[0x05]).bool("idem", true).nil("chain");
        assert_eq!(
            fields.encode_request(3, "set_value"),
            b"\x86\xa6action\xa9set_value\xa4path\xd5\x03\xa1a\xa5value\x05\xa4idem\xc3\xa5chain\xc0\xa3seq\x03"
        );
    }

    #[test]
    fn the_fields_of_a_request_are_not_shown_as_a_login_has_its_secret_in_them() {
        let mut fields = Fields::new();
        fields.str("ident", "ann").str("secret", "hunter2");
        assert_eq!(format!("{fields:?} {fields:#?}"), "Fields(2) Fields(2)");
    }

    #[test]
    fn flow_control_is_asked_for_and_acknowledged_as_python_does() {
        assert_eq!(encode_settings(10, false), b"\x82\xa3seq\x00\xa4qlen\x0a");
        assert_eq!(encode_settings(0, true), b"\x83\xa3seq\x00\xa4qlen\x00\xa6nowait\xc3");
        assert_eq!(encode_ack(3, 4), b"\x83\xa3seq\x03\xa5state\xa3ack\xa3ack\x04");
    }

    #[test]
    fn a_python_server_s_greeting_is_read() {
        let bytes = b"\x86\xa3seq\x00\xa7version\x93\x00\x41\x00\xa4node\xa2n1\xa4tick\x01\xa4tock\x1a\xa4qlen\x0a";
        let greeting = Greeting::decode(&Message::new(bytes).unwrap()).unwrap();
        let expected = Greeting {
            node: "n1".into(),
            version: vec![0, 65, 0],
            tick: Some(1),
            is_catching_up: false,
            tock: 26,
            qlen: Some(10),
            auth: None,
            nonce: None,
            auth_soon: None,
            network: None,
            clock: None,
        };
        assert_eq!(greeting, expected);
    }

    #[test]
    fn a_greeting_may_tell_the_nodes_clock() {
        let clocks = [(&b"\xcd\x10\x00"[..], Some(4096)), (b"\xc0", None), (b"\xff", None)];
        for (clock, told) in clocks {
            let bytes = [b"\x83\xa7version\x91\x01\xa4node\xa1n\xa5clock", clock].concat();
            let greeting = Greeting::decode(&Message::new(&bytes).unwrap()).unwrap();
            assert_eq!(greeting.clock, told);
        }
    }

    #[test]
    fn a_request_may_say_until_when_it_counts() {
        let fields = Fields::at(&"a".parse().unwrap());
        assert_eq!(
            fields.encode_request_by(3, "delete_value", Some(5)),
            b"\x84\xa6action\xacdelete_value\xa4path\xd5\x03\xa1a\xa2by\x05\xa3seq\x03"
        );
    }

    #[test]
    fn a_greeting_may_name_the_network() {
        for (name, told) in [(&b"\xa5plant"[..], Some("plant")), (b"\xa0", None), (b"\x05", None)] {
            let bytes = [b"\x83\xa7version\x91\x01\xa4node\xa1n\xa7network", name].concat();
            let greeting = Greeting::decode(&Message::new(&bytes).unwrap()).unwrap();
            assert_eq!(greeting.network.as_deref(), told);
        }
    }

    #[test]
    fn a_node_that_cannot_work_yet_greets_without_a_tick() {
        let bytes = b"\x84\xa7version\x91\x01\xa4node\xa1n\xa4tick\xc0\xa4auth\x92\xa4root\xa1x";
        let greeting = Greeting::decode(&Message::new(bytes).unwrap()).unwrap();
        assert_eq!(greeting.tick, None);
        assert_eq!(greeting.auth.as_deref(), Some("root"));
    }

    #[test]
    fn the_longest_value_is_passed_over_and_all_fields_are_there() {
        let long = |count: usize| {
            let mut value = vec![0xdc];
            value.extend_from_slice(&u16::try_from(count).unwrap().to_be_bytes());
            value.resize(3 + count, 0x80);
            value
        };
        let values = [vec![5], long(LONG_BYTES), vec![6], long(1_000), vec![7], long(2), long(999)];
        for first in 0..values.len() {
            let mut fields = Fields::new();
            let mut sent = Vec::new();
            for (n, value) in values.iter().cycle().skip(first).take(values.len()).enumerate() {
                let name = format!("f{n}");
                fields.raw(&name, value);
                sent.push((name, value.as_slice()));
            }
            let message = Message::new(&fields.encode()).unwrap();
            assert_eq!(message.long.len(), 1_003);
            let told: Vec<_> =
                message.fields().map(|(name, value)| (name.to_owned(), value)).collect();
            assert_eq!(told, sent);
            for (name, value) in sent {
                assert_eq!(message.get(&name), Some(value));
            }
            assert_eq!(message.get("other"), None);
        }
        assert!(Message::new(b"\x81\xa1a\x05").unwrap().long.is_empty());
        // In one step: what is in it is not looked at.
        let mut fields = Fields::new();
        fields.raw("value", &long(1_000)).u64("behind", 7);
        let mut message = Message::new(&fields.encode()).unwrap();
        let parts = message.long.start + 3..message.long.end;
        message.bytes[parts].fill(0xc1);
        assert_eq!((message.u64("behind"), message.fields().count()), (Some(7), 2));
    }

    #[test]
    fn what_is_no_map_with_string_keys_is_no_message() {
        assert!(Message::new(b"\x05").is_err());
        assert!(Message::new(b"\x81\x05\x05").is_err());
        assert!(Message::new(b"\x81\xa1a").is_err());
        assert!(Message::new(b"\x80\x80").is_err());
        assert!(Message::new(b"\x80").is_ok());
    }

    #[test]
    fn errors_carry_whom_and_what_to_explain_or_nothing() {
        let mut bytes = b"\x82\xa5error\xa2no\xa7explain\x92\xa3joe\xa3b.x".to_vec();
        let explain = |bytes: &[u8]| Message::new(bytes).unwrap().error().unwrap().explain;
        assert_eq!(explain(&bytes), Some(Box::new((String::from("joe"), String::from("b.x")))));
        *bytes.last_mut().unwrap() = 0xff;
        assert_eq!(explain(&bytes), None);
        assert_eq!(explain(b"\x82\xa5error\xa2no\xa7explain\x91\xa3joe"), None);
        assert_eq!(explain(b"\x82\xa5error\xa2no\xa7explain\xa3joe"), None);
    }

    #[test]
    fn errors_carry_their_code() {
        let message = Message::new(b"\x82\xa5error\xa4What\xa4code\xa1c").unwrap();
        let error = message.error().unwrap();
        assert!(error.has_code("c"));
        assert_eq!(error.to_string(), "What");
        assert!(Message::new(b"\x81\xa5error\x05").unwrap().error().is_some());
        assert!(Message::new(b"\x80").unwrap().error().is_none());
    }
}

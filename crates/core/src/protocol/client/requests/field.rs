//! The fields of a client's message: found in one pass, kept as the bytes that they came in,
//! typed only when an action asks for them. So one that is wrong does not hide the request's
//! `seq`, wherever that stands.

use smallvec::SmallVec;

use super::coerce::{read_integer, read_truth};
use crate::model::limits::VALUE_BYTES_MAX;
use crate::model::path::PathBytes;
use crate::model::value::skip::SKIP_DEPTH_MAX;
use crate::model::value::{
    ReadError, Reader, SkipError, SkipLimits, Value, ValueError, skip_value,
};
use crate::protocol::client::error::{ClientError, ErrorCode};
use crate::protocol::client::word::fold;

// Each has its bit.
const _: () = assert!(Field::ALL.len() <= u128::BITS as usize);

/// Most fields of a message that have a meaning here. More can only be repetitions.
const FIELDS_MAX: usize = 96;
const _: () = assert!(Field::ALL.len() <= FIELDS_MAX);

macro_rules! fields {
    ($($name:ident = $word:literal,)*) => {
        /// A field that has a meaning in some message. Others are ignored.
        #[allow(missing_docs, reason = "the names are those of docs/client-protocol.md")]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Field {
            $($name,)*
        }

        impl Field {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The field of a name as it stands in a message.
            #[must_use]
            pub fn of(key: &[u8]) -> Option<Self> {
                #[allow(non_upper_case_globals, reason = "they are named after the fields")]
                mod words {
                    $(pub(super) const $name: u64 = crate::protocol::client::word::fold($word.as_bytes());)*
                }
                let field = match fold(key) {
                    $(words::$name => Self::$name,)*
                    _ => return None,
                };
                (field.name().as_bytes() == key).then_some(field)
            }

            /// The name on the wire.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }
        }
    };
}

fields! {
    Above = "above",
    Ack = "ack",
    Acl = "acl",
    Action = "action",
    After = "after",
    AnyNetwork = "any_network",
    By = "by",
    Grace = "grace_ms",
    Chain = "chain",
    ClientMemory = "client_memory",
    Conflicts = "conflicts",
    Copies = "copies",
    Current = "current",
    Data = "data",
    Debug = "debug",
    Debugger = "debugger",
    DeleteGroup = "delete_group",
    Deleted = "deleted",
    Depth = "depth",
    Detail = "detail",
    Empty = "empty",
    Fetch = "fetch",
    ForGood = "for_good",
    Force = "force",
    Format = "format",
    Full = "full",
    Housekeepers = "housekeepers",
    Idem = "idem",
    Kind = "kind",
    Ident = "ident",
    Known = "known",
    Last = "last",
    Length = "length",
    Limit = "limit",
    Max = "max",
    MaxDepth = "max_depth",
    MinDepth = "min_depth",
    Missing = "missing",
    Mode = "mode",
    NChain = "nchain",
    Node = "node",
    NodeDrop = "node_drop",
    Nodes = "nodes",
    Nonce = "nonce",
    NoWait = "nowait",
    Ops = "ops",
    Over = "over",
    Own = "own",
    Password = "password",
    Path = "path",
    Prefixes = "prefixes",
    Present = "present",
    Prev = "prev",
    Pubkey = "pubkey",
    Proof = "proof",
    QLen = "qlen",
    Raw = "raw",
    RemoteMissing = "remote_missing",
    Restart = "restart",
    Resync = "resync",
    Secret = "secret",
    Role = "role",
    Seq = "seq",
    Since = "since",
    Start = "start",
    State = "state",
    Storage = "storage",
    Superseded = "superseded",
    Task = "task",
    Tick = "tick",
    Time = "time",
    Timeout = "timeout",
    Tock = "tock",
    Topic = "topic",
    Typ = "typ",
    Step = "step",
    Value = "value",
    Wid = "wid",
    WithAuth = "with_auth",
    WithData = "with_data",
    WithTime = "with_time",
}

/// The fields of one message that have a meaning, in its bytes.
#[derive(Debug, Default)]
pub struct Fields<'a> {
    list: SmallVec<[(Field, &'a [u8]); 8]>,
    /// One bit for each field: those that are in the list.
    present: u128,
}

impl<'a> Fields<'a> {
    /// The usual message, quickly: a map of few fields that `bytes` begins with, all of it there and
    /// at most `bytes_max` long. Returns its length; its fields take the place of those that were here. None for
    /// whatever else, good or bad: then what is here has no meaning.
    #[must_use]
    pub fn find_usual(&mut self, bytes: &'a [u8], bytes_max: usize) -> Option<usize> {
        let Some(count @ 0x80..=0x8f) = bytes.first() else { return None };
        self.list.clear();
        self.present = 0;
        let mut at = 1;
        for _ in 0..count & 0x0f {
            let Some(length @ 0xa0..=0xbf) = bytes.get(at) else { return None };
            let value_at = at + 1 + usize::from(length & 0x1f);
            let key = bytes.get(at + 1..value_at)?;
            // The message is a level of its own.
            let limits = SkipLimits { depth_max: SKIP_DEPTH_MAX - 1, ..SkipLimits::NONE };
            at = value_at + skip_value(bytes.get(value_at..)?, limits).ok()?;
            if let Some(field) = Field::of(key) {
                self.push(field, bytes.get(value_at..at)?);
            }
        }
        (at <= bytes_max).then_some(at)
    }

    fn push(&mut self, field: Field, value: &'a [u8]) {
        self.present |= 1_u128 << field as u32;
        self.list.push((field, value));
    }

    /// Finds the fields of a complete message (a skipper found its end).
    ///
    /// # Errors
    /// It is not a map, or has too many fields.
    pub(crate) fn find(message: &'a [u8]) -> Result<Self, ClientError> {
        let mut reader = Reader::new(message);
        let bad = |e: ReadError| {
            ClientError::new(ErrorCode::BadMessage, format!("a message must be a map: {e}"))
        };
        let count = reader.read_map_len().map_err(bad)?;
        let mut fields = Self::default();
        for _ in 0..count {
            let known = match reader.read_str_bytes() {
                Ok(key) => Field::of(key),
                Err(_) => reader.skip().map(|()| None).map_err(bad)?,
            };
            let value = reader.read_raw().map_err(bad)?;
            if let Some(field) = known {
                if fields.list.len() >= FIELDS_MAX {
                    return Err(ClientError::new(
                        ErrorCode::BadMessage,
                        "a message repeats its fields too often",
                    ));
                }
                fields.push(field, value);
            }
        }
        Ok(fields)
    }

    /// A field's bytes: one MessagePack value. Of a field that comes twice, the last.
    #[inline]
    #[must_use]
    pub(crate) fn get(&self, field: Field) -> Option<&'a [u8]> {
        if self.present & (1_u128 << field as u32) == 0 {
            return None;
        }
        self.list.iter().rev().find(|(f, _)| *f == field).map(|(_, raw)| *raw)
    }

    /// As [`Fields::get`], with nil as good as not there.
    #[must_use]
    pub(crate) fn get_non_nil(&self, field: Field) -> Option<&'a [u8]> {
        self.get(field).filter(|raw| *raw != [0xc0])
    }

    /// A field that must be there.
    ///
    /// # Errors
    /// It is not.
    pub(crate) fn need(&self, field: Field) -> Result<&'a [u8], ClientError> {
        self.get(field).ok_or_else(|| {
            ClientError::bad_request(format!("the field '{}' is missing", field.name()))
        })
    }

    /// A flag: false if it is absent, else whether Python takes the value for true (nil, 0 and
    /// empty values are false; a non-empty string is true, whatever it says).
    ///
    /// # Errors
    /// The bytes hold no value.
    #[inline]
    pub(crate) fn flag(&self, field: Field) -> Result<bool, ClientError> {
        match self.get(field) {
            None => Ok(false),
            Some(raw) => Self::truth(field, raw),
        }
    }

    fn truth(field: Field, raw: &[u8]) -> Result<bool, ClientError> {
        read_truth(&mut Reader::new(raw)).map_err(|e| wrong(field, &e))
    }

    /// An integer, if the field is there. A boolean is 0 or 1, and a float without a fraction is an
    /// integer, too.
    ///
    /// # Errors
    /// It is something else.
    #[inline]
    pub(crate) fn int(&self, field: Field) -> Result<Option<i128>, ClientError> {
        match self.get(field) {
            None => Ok(None),
            // Nearly always: a natural number in one byte.
            Some([number @ ..=0x7f]) => Ok(Some(i128::from(*number))),
            Some(raw) => Self::integer(field, raw).map(Some),
        }
    }

    fn integer(field: Field, raw: &[u8]) -> Result<i128, ClientError> {
        read_integer(&mut Reader::new(raw)).map_err(|e| wrong(field, &e))
    }

    /// An integer, where nil is as good as not there.
    ///
    /// # Errors
    /// It is something else.
    pub(crate) fn int_or_nil(&self, field: Field) -> Result<Option<i128>, ClientError> {
        match self.get_non_nil(field) {
            Some(_) => self.int(field),
            None => Ok(None),
        }
    }

    /// A text that must be there.
    ///
    /// # Errors
    /// It is not, or is something else.
    pub(crate) fn text(&self, field: Field) -> Result<&'a str, ClientError> {
        Reader::new(self.need(field)?).read_str().map_err(|e| wrong(field, &e))
    }

    /// A text, if the field is there and not nil.
    ///
    /// # Errors
    /// It is something else.
    pub(crate) fn optional_text(&self, field: Field) -> Result<Option<&'a str>, ClientError> {
        self.get_non_nil(field).map(|_| self.text(field)).transpose()
    }

    /// A path that must be there, as an extension of type 3 or an array.
    ///
    /// # Errors
    /// It is not, or is something else.
    pub(crate) fn path(&self, field: Field) -> Result<PathBytes<'a>, ClientError> {
        PathBytes::from_msgpack_value(self.need(field)?)
            .map_err(|e| ClientError::bad_request(format!("bad field '{}': {e}", field.name())))
    }

    /// A value that is to be kept, or sent to other clients, if the field is there: within the
    /// limits of values, and such that every client can read it.
    ///
    /// # Errors
    /// It is too large or too deep, or not every client could read it.
    pub(crate) fn new_value(&self, field: Field) -> Result<Option<&'a [u8]>, ClientError> {
        self.checked_value(field, Value::check_readable)
    }

    /// A value that is only compared with what is there, if the field is there. So it may be one that
    /// is not taken any more: such a value, from before or from a peer, must be replaceable.
    ///
    /// # Errors
    /// It is too large or too deep.
    pub(crate) fn old_value(&self, field: Field) -> Result<Option<&'a [u8]>, ClientError> {
        self.checked_value(field, Value::check)
    }

    fn checked_value(
        &self,
        field: Field,
        check: impl Fn(&[u8]) -> Result<(), ValueError>,
    ) -> Result<Option<&'a [u8]>, ClientError> {
        let Some(raw) = self.get(field) else { return Ok(None) };
        let name = field.name();
        let why = match check(raw) {
            Ok(()) => return Ok(Some(raw)),
            Err(ValueError::Skip(e @ (SkipError::TooLarge { .. } | SkipError::TooDeep { .. }))) => {
                let text = format!("the field '{name}' is no value that can be kept: {e}");
                return Err(ClientError::new(ErrorCode::TooLarge, text));
            }
            Err(ValueError::Skip(e)) => e.to_string(),
            Err(ValueError::Unreadable(e)) => e.to_string(),
            Err(e @ ValueError::Trailing(_)) => e.to_string(),
        };
        Err(ClientError::bad_request(format!("bad field '{name}': {why}")))
    }

    /// Bytes within the limits of values, if the field is there and not nil.
    ///
    /// # Errors
    /// It is something else, or too large.
    pub(crate) fn bytes(&self, field: Field) -> Result<Option<&'a [u8]>, ClientError> {
        let Some(raw) = self.get_non_nil(field) else { return Ok(None) };
        let bytes = Reader::new(raw).read_bin().map_err(|e| wrong(field, &e))?;
        if bytes.len() > VALUE_BYTES_MAX {
            return Err(ClientError::new(
                ErrorCode::TooLarge,
                format!("the field '{}' has more than {VALUE_BYTES_MAX} bytes", field.name()),
            ));
        }
        Ok(Some(bytes))
    }
}

/// The error for a malformed field.
pub(in crate::protocol::client) fn wrong(field: Field, error: &ReadError) -> ClientError {
    ClientError::bad_request(format!("bad field '{}': {error}", field.name()))
}

/// The error for a value of another kind than expected.
pub(super) fn wrong_kind(raw: &[u8], expected: &'static str) -> ReadError {
    match Reader::new(raw).peek_kind() {
        Ok(found) => ReadError::WrongKind { expected, found },
        Err(e) => e,
    }
}

#[cfg(test)]
mod tests {
    use crate::protocol::client::field::*;

    fn parts<'a>(fields: &Fields<'a>) -> Vec<(Field, &'a [u8])> {
        fields.list.to_vec()
    }

    /// Found where those of another message were.
    fn find_usual(message: &[u8], bytes_max: usize) -> Option<(Fields<'_>, usize)> {
        let mut fields = Fields::find(b"\x81\xa3seq\x09").unwrap();
        fields.find_usual(message, bytes_max).map(|length| (fields, length))
    }

    #[test]
    fn the_usual_message_is_read_as_any_other_and_nothing_else_is_taken_for_one() {
        let deep = [&b"\x82\xa4path"[..], &[0x91; SKIP_DEPTH_MAX - 1], b"\xc0\xa3seq\x01"].concat();
        let too_deep = [&b"\x81\xa4path"[..], &[0x91; SKIP_DEPTH_MAX], b"\xc0"].concat();
        let wide = [&b"\xde\x00\x01\xa3seq\x01"[..]].concat();
        let usual: [&[u8]; 5] = [
            b"\x80",
            b"\x84\xa6action\xa9get_value\xa4path\xc7\x02\x03\xa1a\xa3seq\x07\xa5other\x92\x01\x02",
            b"\x83\xa3seq\x01\xa3seq\xcd\x01\x00\xa5value\xc4\x03abc",
            b"\x82\xa5value\x82\xa1a\x91\xc0\xa1b\xd9\x01x\xa3seq\x01",
            &deep,
        ];
        for message in usual {
            let (fields, length) = find_usual(message, message.len()).unwrap();
            assert_eq!(length, message.len());
            assert_eq!(parts(&fields), parts(&Fields::find(message).unwrap()));
            for (field, raw) in parts(&fields) {
                let last = parts(&fields).into_iter().rev().find(|(f, _)| *f == field).unwrap().1;
                assert_eq!((fields.get(field), raw.is_empty()), (Some(last), false));
            }
            let followed = [message, b"\x81\xa3"].concat();
            let (same, length) = find_usual(&followed, message.len()).unwrap();
            assert_eq!((parts(&same), length), (parts(&fields), message.len()));
            assert!(find_usual(message, message.len() - 1).is_none(), "too long");
            for cut in 0..message.len() {
                assert!(find_usual(&message[..cut], 1000).is_none(), "{cut}");
            }
        }
        let unusual: [&[u8]; 6] =
            [b"", b"\x90", b"\x81\x01\x01", b"\x81\xa3seq\xc1", &too_deep, &wide];
        for message in unusual {
            assert!(find_usual(message, 1000).is_none(), "{message:x?}");
        }
    }
}

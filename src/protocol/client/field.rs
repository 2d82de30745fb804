//! The fields of a client's message: found in one pass, kept as the bytes that they came in,
//! typed only when an action asks for them. So one that is wrong does not hide the request's
//! `seq`, wherever that stands.

use smallvec::SmallVec;

use super::error::{ClientError, ErrorCode};
use crate::model::limits::VALUE_BYTES_MAX;
use crate::model::path::PathBytes;
use crate::model::value::{Kind, ReadError, Reader, SkipError, SkipLimits, skip_value};

/// Most fields of a message that have a meaning here. More can only be repetitions.
const FIELDS_MAX: usize = 64;

macro_rules! fields {
    ($($name:ident = $word:literal,)*) => {
        /// A field that has a meaning in some message. Others are ignored.
        #[allow(missing_docs, reason = "the names are those of the wire; PROTOCOL explains them")]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Field {
            $($name,)*
        }

        impl Field {
            fn of(key: &[u8]) -> Option<Self> {
                // Compared as text, for which the compiler makes one comparison by length.
                match std::str::from_utf8(key).ok()? {
                    $($word => Some(Self::$name),)*
                    _ => None,
                }
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
    Ack = "ack",
    Action = "action",
    After = "after",
    AnyNetwork = "any_network",
    Chain = "chain",
    Conflicts = "conflicts",
    Copies = "copies",
    Current = "current",
    Data = "data",
    DeleteGroup = "delete_group",
    Deleted = "deleted",
    Depth = "depth",
    Detail = "detail",
    Empty = "empty",
    Fetch = "fetch",
    Format = "format",
    Full = "full",
    Housekeepers = "housekeepers",
    Idem = "idem",
    Known = "known",
    Last = "last",
    Limit = "limit",
    Max = "max",
    MaxDepth = "max_depth",
    MinDepth = "min_depth",
    Missing = "missing",
    NChain = "nchain",
    Node = "node",
    NodeDrop = "node_drop",
    Nodes = "nodes",
    Ops = "ops",
    Over = "over",
    Path = "path",
    Present = "present",
    Prev = "prev",
    QLen = "qlen",
    Raw = "raw",
    RemoteMissing = "remote_missing",
    Restart = "restart",
    Resync = "resync",
    Seq = "seq",
    Since = "since",
    Start = "start",
    State = "state",
    Storage = "storage",
    Superseded = "superseded",
    Task = "task",
    Tick = "tick",
    Timeout = "timeout",
    Tock = "tock",
    Topic = "topic",
    Value = "value",
    Wid = "wid",
    WithData = "with_data",
}

/// The fields of one message that have a meaning, in its bytes.
#[derive(Debug)]
pub struct Fields<'a> {
    list: SmallVec<[(Field, &'a [u8]); 8]>,
}

impl<'a> Fields<'a> {
    /// Finds the fields of a message, all of whose bytes are there (a skipper found its end).
    ///
    /// # Errors
    /// It is no map, or has more fields than make sense.
    pub fn find(message: &'a [u8]) -> Result<Self, ClientError> {
        let mut reader = Reader::new(message);
        let bad = |e: ReadError| {
            ClientError::new(ErrorCode::BadMessage, format!("a message must be a map: {e}"))
        };
        let count = reader.read_map_len().map_err(bad)?;
        let mut list = SmallVec::new();
        for _ in 0..count {
            let known = match reader.read_str_bytes() {
                Ok(key) => Field::of(key),
                Err(_) => reader.skip().map(|()| None).map_err(bad)?,
            };
            let value = reader.read_raw().map_err(bad)?;
            if let Some(field) = known {
                if list.len() >= FIELDS_MAX {
                    return Err(ClientError::new(
                        ErrorCode::BadMessage,
                        "a message repeats its fields too often",
                    ));
                }
                list.push((field, value));
            }
        }
        Ok(Self { list })
    }

    /// A field's bytes: one MessagePack value. Of a field that comes twice, the last.
    #[must_use]
    pub fn get(&self, field: Field) -> Option<&'a [u8]> {
        self.list.iter().rev().find(|(f, _)| *f == field).map(|(_, raw)| *raw)
    }

    /// As [`Fields::get`], with nil as good as not there.
    #[must_use]
    pub fn get_non_nil(&self, field: Field) -> Option<&'a [u8]> {
        self.get(field).filter(|raw| *raw != [0xc0])
    }

    /// A field that must be there.
    ///
    /// # Errors
    /// It is not.
    pub fn need(&self, field: Field) -> Result<&'a [u8], ClientError> {
        self.get(field).ok_or_else(|| {
            ClientError::bad_request(format!("the field '{}' is missing", field.name()))
        })
    }

    /// A flag: nil, not there, false and 0 are false.
    ///
    /// # Errors
    /// It is something else than a boolean, a number or nil.
    pub fn flag(&self, field: Field) -> Result<bool, ClientError> {
        let Some(raw) = self.get_non_nil(field) else { return Ok(false) };
        let mut reader = Reader::new(raw);
        match reader.peek_kind() {
            Ok(Kind::Bool) => reader.read_bool().map_err(|e| wrong(field, &e)),
            Ok(Kind::Int) => Ok(reader.read_int().map_err(|e| wrong(field, &e))? != 0),
            _ => Err(wrong(field, &wrong_kind(raw, "a boolean"))),
        }
    }

    /// An integer, if the field is there.
    ///
    /// # Errors
    /// It is something else.
    pub fn int(&self, field: Field) -> Result<Option<i128>, ClientError> {
        let Some(raw) = self.get(field) else { return Ok(None) };
        Reader::new(raw).read_int().map(Some).map_err(|e| wrong(field, &e))
    }

    /// An integer, where nil is as good as not there.
    ///
    /// # Errors
    /// It is something else.
    pub fn int_or_nil(&self, field: Field) -> Result<Option<i128>, ClientError> {
        match self.get_non_nil(field) {
            Some(_) => self.int(field),
            None => Ok(None),
        }
    }

    /// A text that must be there.
    ///
    /// # Errors
    /// It is not, or is something else.
    pub fn text(&self, field: Field) -> Result<&'a str, ClientError> {
        Reader::new(self.need(field)?).read_str().map_err(|e| wrong(field, &e))
    }

    /// A text, if the field is there and not nil.
    ///
    /// # Errors
    /// It is something else.
    pub fn optional_text(&self, field: Field) -> Result<Option<&'a str>, ClientError> {
        self.get_non_nil(field).map(|_| self.text(field)).transpose()
    }

    /// A path that must be there, as an extension of type 3 or an array.
    ///
    /// # Errors
    /// It is not, or is something else.
    pub fn path(&self, field: Field) -> Result<PathBytes<'a>, ClientError> {
        PathBytes::from_msgpack_value(self.need(field)?)
            .map_err(|e| ClientError::bad_request(format!("bad field '{}': {e}", field.name())))
    }

    /// A value within the limits of values, if the field is there.
    ///
    /// # Errors
    /// It is too large or too deep.
    pub fn value(&self, field: Field) -> Result<Option<&'a [u8]>, ClientError> {
        let Some(raw) = self.get(field) else { return Ok(None) };
        match skip_value(raw, SkipLimits::VALUE) {
            Ok(_) => Ok(Some(raw)),
            Err(e @ (SkipError::TooLarge { .. } | SkipError::TooDeep { .. })) => {
                Err(ClientError::new(
                    ErrorCode::TooLarge,
                    format!("the field '{}' is no value that can be kept: {e}", field.name()),
                ))
            }
            Err(e) => Err(ClientError::bad_request(format!("bad field '{}': {e}", field.name()))),
        }
    }

    /// Bytes within the limits of values, if the field is there and not nil.
    ///
    /// # Errors
    /// It is something else, or too large.
    pub fn bytes(&self, field: Field) -> Result<Option<&'a [u8]>, ClientError> {
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

/// The error for a field that is not what it must be.
pub(super) fn wrong(field: Field, error: &ReadError) -> ClientError {
    ClientError::bad_request(format!("bad field '{}': {error}", field.name()))
}

/// The error for a value of another kind than expected.
pub(super) fn wrong_kind(raw: &[u8], expected: &'static str) -> ReadError {
    match Reader::new(raw).peek_kind() {
        Ok(found) => ReadError::WrongKind { expected, found },
        Err(e) => e,
    }
}

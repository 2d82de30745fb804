//! The client protocol of distkv nodes (and of the Python DistKV), as the load generator speaks it.

use crate::client::{Fields, Message};
use crate::model::path::Path;
use crate::model::value::write::{write_bin, write_map_len, write_str, write_u64};
use crate::model::value::{ReadError, Reader, SkipError};
use crate::wire::{Answer, KEY_BYTES, Protocol, Tag, WireError, key_bytes};

/// The number of a stream's request, the only one of its connection.
pub const STREAM_SEQ: u64 = 1;
/// What this protocol is called in errors.
const NAME: &str = "the client protocol";

/// The client protocol, and where the keys are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DistKv {
    /// At the root: for servers that the measurement itself has started.
    Root,
    /// Below [`crate::place::PLACE`]: for nodes that hold other data, too.
    Place,
}

impl DistKv {
    /// What stands before the key in a path: the head of an extension of type 3, and the strings before
    /// the key's [`KEY_BYTES`].
    fn head(self) -> &'static [u8] {
        match self {
            Self::Root => b"\xc7\x11\x03\xb0",
            Self::Place => b"\xc7\x1e\x03\xacdistkv-bench\xb0",
        }
    }

    /// Appends the field `path`.
    fn path(self, key: u64, out: &mut Vec<u8>) {
        let key: [u8; KEY_BYTES] = key_bytes(key);
        write_str("path", out);
        out.extend_from_slice(self.head());
        out.extend_from_slice(&key);
    }
}

impl Protocol for DistKv {
    fn hello(self, _: u64, _: &mut Vec<u8>) {}

    fn numbers_rise(self) -> bool {
        false
    }

    fn get(self, key: u64, tag: Tag, out: &mut Vec<u8>) {
        write_map_len(4, out);
        write_str("action", out);
        write_str("get_value", out);
        self.path(key, out);
        write_str("nchain", out);
        write_u64(0, out);
        write_str("seq", out);
        write_u64(tag.seq, out);
    }

    fn set(self, key: u64, value: &[u8], tag: Tag, out: &mut Vec<u8>) {
        write_map_len(5, out);
        write_str("action", out);
        write_str("set_value", out);
        self.path(key, out);
        write_str("value", out);
        write_bin(value, out);
        write_str("nchain", out);
        write_u64(0, out);
        write_str("seq", out);
        write_u64(tag.seq, out);
    }

    fn answer(self, bytes: &[u8]) -> Result<Option<Answer>, WireError> {
        match read_answer(bytes) {
            Ok(answer) => Ok(Some(answer)),
            Err(ReadError::Truncated { .. } | ReadError::Skip(SkipError::Incomplete { .. })) => {
                Ok(None)
            }
            Err(error) => Err(WireError { protocol: NAME, why: Some(error.to_string()) }),
        }
    }
}

fn read_answer(bytes: &[u8]) -> Result<Answer, ReadError> {
    let mut reader = Reader::new(bytes);
    let (mut seq, mut is_error) = (None, false);
    for _ in 0..reader.read_map_len()? {
        match reader.read_str_bytes()? {
            b"seq" => seq = Some(reader.read_u64()?),
            key => {
                is_error |= key == b"error";
                reader.skip()?;
            }
        }
    }
    Ok(Answer { bytes: reader.position(), seq, is_error })
}

/// The request for a watch of all that is below a path; its number is [`STREAM_SEQ`].
#[must_use]
pub fn watch_request(path: &Path) -> Vec<u8> {
    let mut fields = Fields::at(path);
    fields.u64("nchain", 0).bool("fetch", false).encode_request(STREAM_SEQ, "watch")
}

/// Whether a message says that the stream of [`watch_request`] has begun.
#[must_use]
pub fn is_start(message: &Message) -> bool {
    message.u64("seq") == Some(STREAM_SEQ) && message.str("state") == Some("start")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_path(key: u64) -> Path {
        std::str::from_utf8(&key_bytes(key)).unwrap().parse().unwrap()
    }

    #[test]
    fn requests_are_what_the_client_library_says() {
        let mut out = Vec::new();
        DistKv::Root.get(7, Tag::from(1000), &mut out);
        let got = Message::new(&out).unwrap();
        let mut fields = Fields::at(&key_path(7));
        let expected = fields.u64("nchain", 0).encode_request(1000, "get_value");
        assert_eq!(got, Message::new(&expected).unwrap());
        out.clear();
        DistKv::Place.get(7, Tag::from(1000), &mut out);
        let below = crate::place::place().unwrap().join(&key_path(7)).unwrap();
        let mut fields = Fields::at(&below);
        let expected = fields.u64("nchain", 0).encode_request(1000, "get_value");
        assert_eq!(Message::new(&out).unwrap(), Message::new(&expected).unwrap());
        out.clear();
        DistKv::Root.set(123_456_789_012, &[5; 300], Tag::from(1), &mut out);
        let got = Message::new(&out).unwrap();
        let fields = Fields::at(&"key-123456789012".parse().unwrap()).encode();
        assert_eq!(got.get("path"), Message::new(&fields).unwrap().get("path"));
        assert_eq!((got.str("action"), got.u64("seq")), (Some("set_value"), Some(1)));
    }

    #[test]
    fn answers_are_known_when_they_are_whole_and_not_before() {
        let mut fields = Fields::new();
        fields.raw("value", &[0xc4, 3, 1, 2, 3]).u64("tock", 99).u64("seq", 70_000);
        let whole = fields.encode();
        for length in 0..whole.len() {
            assert_eq!(DistKv::Root.answer(&whole[..length]), Ok(None), "{length}");
        }
        let mut more = whole.clone();
        more.extend_from_slice(&whole);
        let answer = DistKv::Root.answer(&more).unwrap().unwrap();
        assert_eq!(answer, Answer { bytes: whole.len(), seq: Some(70_000), is_error: false });
        fields.str("error", "no");
        assert!(DistKv::Root.answer(&fields.encode()).unwrap().unwrap().is_error);
        assert!(DistKv::Root.answer(b"+OK\r\n").is_err());
    }
}

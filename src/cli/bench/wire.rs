//! What a load generator says, and how it knows an answer again: the client protocol, and Redis's.
//!
//! Written for speed, not for all of a protocol: requests are bytes that are put together, and of an
//! answer only its length, its number and whether it is an error are looked at.

use crate::model::value::write::{write_bin, write_map_len, write_str, write_u64};
use crate::model::value::{ReadError, Reader, SkipError};

/// A key's length: `key-` and twelve digits.
pub(super) const KEY_BYTES: usize = 16;
/// Longest line of an answer of Redis that is waited for.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Which protocol is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Protocol {
    /// A distkv-node, or a Python DistKV
    Distkv,
    /// A Redis, or what speaks like it
    Redis,
}

/// An answer that is here wholly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    /// How many bytes it has.
    pub(super) bytes: usize,
    /// The number of the request that it answers; none where answers come in the order of requests.
    pub(super) seq: Option<u64>,
    pub(super) is_error: bool,
}

/// What came is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum WireError {
    /// Not the client protocol.
    #[error("the answer is not of the client protocol: {0}")]
    Distkv(ReadError),
    /// Not Redis's.
    #[error("the answer is not of Redis's protocol")]
    Redis,
}

impl Protocol {
    /// Appends a read.
    pub(super) fn get(self, key: u64, seq: u64, out: &mut Vec<u8>) {
        let key = key_bytes(key);
        match self {
            Self::Distkv => {
                write_map_len(4, out);
                write_str("action", out);
                write_str("get_value", out);
                distkv_path(&key, out);
                write_str("nchain", out);
                write_u64(0, out);
                write_str("seq", out);
                write_u64(seq, out);
            }
            Self::Redis => {
                out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$16\r\n");
                out.extend_from_slice(&key);
                out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Appends a write.
    pub(super) fn set(self, key: u64, value: &[u8], seq: u64, out: &mut Vec<u8>) {
        let key = key_bytes(key);
        match self {
            Self::Distkv => {
                write_map_len(5, out);
                write_str("action", out);
                write_str("set_value", out);
                distkv_path(&key, out);
                write_str("value", out);
                write_bin(value, out);
                write_str("nchain", out);
                write_u64(0, out);
                write_str("seq", out);
                write_u64(seq, out);
            }
            Self::Redis => {
                out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$16\r\n");
                out.extend_from_slice(&key);
                out.extend_from_slice(format!("\r\n${}\r\n", value.len()).as_bytes());
                out.extend_from_slice(value);
                out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// The answer that some bytes begin with, if all of it is here.
    ///
    /// # Errors
    /// They do not begin with one.
    pub(super) fn answer(self, bytes: &[u8]) -> Result<Option<Answer>, WireError> {
        match self {
            Self::Distkv => match distkv_answer(bytes) {
                Ok(answer) => Ok(Some(answer)),
                Err(
                    ReadError::Truncated { .. } | ReadError::Skip(SkipError::Incomplete { .. }),
                ) => Ok(None),
                Err(error) => Err(WireError::Distkv(error)),
            },
            Self::Redis => redis_answer(bytes),
        }
    }
}

fn key_bytes(mut key: u64) -> [u8; KEY_BYTES] {
    let mut bytes = *b"key-000000000000";
    for digit in bytes.iter_mut().rev().take(12) {
        *digit = b'0' + (key % 10) as u8;
        key /= 10;
    }
    bytes
}

/// The field `path`: an extension of type 3 with one string of [`KEY_BYTES`].
fn distkv_path(key: &[u8; KEY_BYTES], out: &mut Vec<u8>) {
    const HEAD: [u8; 4] = [0xc7, KEY_BYTES as u8 + 1, 3, 0xa0 | KEY_BYTES as u8];
    write_str("path", out);
    out.extend_from_slice(&HEAD);
    out.extend_from_slice(key);
}

fn distkv_answer(bytes: &[u8]) -> Result<Answer, ReadError> {
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

fn redis_answer(bytes: &[u8]) -> Result<Option<Answer>, WireError> {
    let Some(end) = bytes.iter().take(LINE_BYTES_MAX).position(|&b| b == b'\n') else {
        return if bytes.len() < LINE_BYTES_MAX { Ok(None) } else { Err(WireError::Redis) };
    };
    let line = bytes.get(..end).unwrap_or_default();
    let answer = |bytes, is_error| Answer { bytes, seq: None, is_error };
    match line.split_first() {
        Some((b'+' | b':', _)) => Ok(Some(answer(end + 1, false))),
        Some((b'-', _)) => Ok(Some(answer(end + 1, true))),
        Some((b'$', length)) => {
            let text = std::str::from_utf8(length).map_err(|_| WireError::Redis)?;
            let length: i64 = text.trim_end().parse().map_err(|_| WireError::Redis)?;
            let Ok(length) = usize::try_from(length) else {
                return Ok(Some(answer(end + 1, false)));
            };
            let whole = (end + 3).saturating_add(length);
            Ok((bytes.len() >= whole).then(|| answer(whole, false)))
        }
        _ => Err(WireError::Redis),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Fields, Message};
    use crate::model::path::Path;

    fn key_path(key: u64) -> Path {
        std::str::from_utf8(&key_bytes(key)).unwrap().parse().unwrap()
    }

    #[test]
    fn requests_are_what_the_client_library_says() {
        let mut out = Vec::new();
        Protocol::Distkv.get(7, 1000, &mut out);
        let got = Message::new(&out).unwrap();
        let mut fields = Fields::at(&key_path(7));
        let expected = fields.u64("nchain", 0).encode_request(1000, "get_value");
        assert_eq!(got, Message::new(&expected).unwrap());
        out.clear();
        Protocol::Distkv.set(123_456_789_012, &[5; 300], 1, &mut out);
        let got = Message::new(&out).unwrap();
        assert_eq!(
            got.get("path"),
            Message::new(&{
                let fields = Fields::at(&"key-123456789012".parse().unwrap());
                fields.encode()
            })
            .unwrap()
            .get("path")
        );
        assert_eq!((got.str("action"), got.u64("seq")), (Some("set_value"), Some(1)));
    }

    #[test]
    fn answers_are_known_when_they_are_whole_and_not_before() {
        let mut fields = Fields::new();
        fields.raw("value", &[0xc4, 3, 1, 2, 3]).u64("tock", 99).u64("seq", 70_000);
        let whole = fields.encode();
        for length in 0..whole.len() {
            assert_eq!(Protocol::Distkv.answer(&whole[..length]), Ok(None), "{length}");
        }
        let mut more = whole.clone();
        more.extend_from_slice(&whole);
        let answer = Protocol::Distkv.answer(&more).unwrap().unwrap();
        assert_eq!(answer, Answer { bytes: whole.len(), seq: Some(70_000), is_error: false });
        fields.str("error", "no");
        assert!(Protocol::Distkv.answer(&fields.encode()).unwrap().unwrap().is_error);
        assert!(Protocol::Distkv.answer(b"+OK\r\n").is_err());
    }

    #[test]
    fn redis_answers_are_told_apart() {
        let answer =
            |bytes: &[u8]| Protocol::Redis.answer(bytes).map(|a| a.map(|a| (a.bytes, a.is_error)));
        assert_eq!(answer(b"+OK\r\n+OK\r\n"), Ok(Some((5, false))));
        assert_eq!(answer(b"-ERR no\r\n"), Ok(Some((9, true))));
        assert_eq!(answer(b"$3\r\nabc\r\n$"), Ok(Some((9, false))));
        assert_eq!(answer(b"$-1\r\n"), Ok(Some((5, false))));
        for incomplete in [&b""[..], b"+OK", b"$3\r\nabc\r", b"$3"] {
            assert_eq!(answer(incomplete), Ok(None));
        }
        assert!(answer(b"HTTP/1.1 200 OK\r\n").is_err());
        assert!(answer(b"$99999999999999999999\r\n").is_err());
    }
}

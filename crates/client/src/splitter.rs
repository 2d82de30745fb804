//! Where one message ends and the next begins: MessagePack has no frames around it, and messages
//! come in any number of pieces (docs/client-protocol.md, "Framing"). Each byte is looked at once.

use crate::model::value::skip::SKIP_DEPTH_MAX;
use crate::model::value::{SkipError, SkipLimits, Skipper};

/// Longest message that a client takes from a node: 64 MiB. One entry is far below it, but the
/// names and values of all children of a path (`enum`), or the ranges of a fragmented `get_state`,
/// come in one message.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The limits of a message.
const LIMITS: SkipLimits = SkipLimits { depth_max: SKIP_DEPTH_MAX, bytes_max: MESSAGE_BYTES_MAX };

/// Bytes in, whole MessagePack values out.
#[derive(Debug)]
pub struct Splitter {
    buffer: Vec<u8>,
    /// Where the first value that was not taken begins. Invariant: at most `buffer.len()`.
    start: usize,
    /// How far that value was looked at.
    skipper: Skipper,
}

impl Default for Splitter {
    fn default() -> Splitter {
        Splitter::new()
    }
}

impl Splitter {
    /// An empty one.
    #[must_use]
    pub fn new() -> Splitter {
        Splitter { buffer: Vec::new(), start: 0, skipper: Skipper::new(LIMITS) }
    }

    /// Takes in what arrived. Take out all values before the next call; then no more than one
    /// unfinished value is kept.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Whether there is a part of a value whose rest is still to come, once all whole ones were taken out.
    #[must_use]
    pub fn has_part(&self) -> bool {
        self.start < self.buffer.len()
    }

    /// The next whole value, if it is here.
    ///
    /// # Errors
    /// The bytes are no MessagePack, or announce more than the limits allow. The splitter is of
    /// no more use: where the next value begins is not known.
    pub fn next_value(&mut self) -> Result<Option<&[u8]>, SkipError> {
        let rest = self.buffer.get(self.start..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        let Some(length) = self.skipper.advance(rest)? else { return Ok(None) };
        let start = self.start;
        self.start += length;
        self.skipper.restart();
        Ok(self.buffer.get(start..self.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut splitter = Splitter::new();
        let mut values = Vec::new();
        for piece in pieces {
            splitter.push(piece);
            while let Some(value) = splitter.next_value().unwrap() {
                values.push(value.to_vec());
            }
        }
        values
    }

    #[test]
    fn values_are_found_however_they_are_cut() {
        let whole = b"\x81\xa1a\x01\x92\x01\xa3xyz\xc0";
        let expected = vec![b"\x81\xa1a\x01".to_vec(), b"\x92\x01\xa3xyz".to_vec(), vec![0xc0]];
        assert_eq!(values(&[whole]), expected);
        for cut in 0..whole.len() {
            let (a, b) = whole.split_at(cut);
            assert_eq!(values(&[a, b]), expected, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(values(&bytes), expected);
    }

    #[test]
    fn a_hostile_length_is_refused_before_its_bytes_come() {
        let mut splitter = Splitter::new();
        splitter.push(b"\xdb\xff\xff\xff\xff");
        assert!(matches!(splitter.next_value(), Err(SkipError::TooLarge { .. })));
    }

    #[test]
    fn what_was_taken_is_not_kept() {
        let mut splitter = Splitter::new();
        for _ in 0..1000 {
            splitter.push(&[0xa1]);
            assert_eq!(splitter.next_value(), Ok(None));
            splitter.push(b"x");
            assert_eq!(splitter.next_value(), Ok(Some(&b"\xa1x"[..])));
        }
        assert!(splitter.buffer.len() <= 2);
    }
}

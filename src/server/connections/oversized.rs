//! A message that is too deep or too long: its bytes are skipped as they arrive, so that it costs
//! no memory and the connection stays usable, and its `seq` is found, so that its sender gets an
//! answer.
//!
//! Nothing is nested here: to find the end of a MessagePack value it is enough to count the items that
//! must still come.

use crate::model::value::Reader;
use crate::model::value::skip::{Head, head};
use crate::protocol::client::{Action, BadMessage, ClientError};

/// Most bytes that are thrown away for one message: eight times what may be sent. What announces
/// more is taken for garbage.
const BYTES_MAX: usize = 64 << 20;
/// Items of up to this many bytes are examined when they are complete: numbers, names of fields and
/// actions. No head of an item is longer either.
const WHOLE_BYTES_MAX: usize = 32;

/// See the module.
pub(in crate::server) struct Oversized {
    error: ClientError,
    /// Bytes of the present item that must still arrive.
    rest: usize,
    /// Keys and values of the message itself that must still begin.
    top: usize,
    /// Items that must still begin within the present key or value, on all levels.
    inner: usize,
    /// Bytes that were thrown away.
    thrown: usize,
    /// The map's own head was seen.
    has_begun: bool,
    is_key: bool,
    /// The present key.
    key: Key,
    seq: Option<u64>,
    in_stream: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Seq,
    Action,
    Other,
}

/// How far it is.
pub(in crate::server) enum Progress {
    /// This many bytes can be skipped; more must arrive.
    More(usize),
    /// This many bytes can be skipped, and the message ends there.
    Whole(usize, BadMessage),
    /// The input is garbage.
    Hopeless,
}

impl Oversized {
    /// Begins with a message that was refused with this error; its first bytes are handed to
    /// [`Oversized::advance`] again.
    pub(in crate::server) fn new(error: ClientError) -> Self {
        Self {
            error,
            rest: 0,
            top: 1,
            inner: 0,
            thrown: 0,
            has_begun: false,
            is_key: false,
            key: Key::Other,
            seq: None,
            in_stream: false,
        }
    }

    /// Continues with what has arrived since.
    pub(in crate::server) fn advance(&mut self, bytes: &[u8]) -> Progress {
        let mut at = 0;
        loop {
            let here = self.rest.min(bytes.len() - at);
            (at, self.rest) = (at + here, self.rest - here);
            if self.rest > 0 {
                break;
            }
            if self.top == 0 && self.inner == 0 {
                return Progress::Whole(at, self.bad_message());
            }
            let left = bytes.get(at..).unwrap_or_default();
            let (size, items) = match head(bytes, at) {
                Head::Scalar(size) => (size, 0),
                Head::Items(size, items) => (size, items),
                Head::Invalid => return Progress::Hopeless,
            };
            if size > left.len() && size <= WHOLE_BYTES_MAX {
                break;
            }
            let item = left.get(..size.min(left.len())).unwrap_or_default();
            self.begin_item(item, items);
            let announced = self.thrown.saturating_add(at).saturating_add(size);
            let announced = announced.saturating_add(self.top).saturating_add(self.inner);
            if announced > BYTES_MAX {
                return Progress::Hopeless;
            }
            self.rest = size;
        }
        self.thrown += at;
        Progress::More(at)
    }

    /// Notes an item whose bytes begin like this and that has this many items within.
    fn begin_item(&mut self, item: &[u8], items: usize) {
        if self.inner > 0 {
            self.inner = self.inner.saturating_add(items) - 1;
            return;
        }
        self.top -= 1;
        if !self.has_begun {
            // The map itself: nothing but its keys and values is looked at.
            (self.has_begun, self.top, self.is_key) = (true, items, true);
            return;
        }
        self.inner = items;
        if self.is_key {
            self.key = match Reader::new(item).read_str() {
                Ok("seq") => Key::Seq,
                Ok("action") => Key::Action,
                _ => Key::Other,
            };
        } else {
            match self.key {
                Key::Seq => {
                    let seq = Reader::new(item).read_int().ok();
                    self.seq = seq.and_then(|seq| u64::try_from(seq).ok()).or(self.seq);
                }
                Key::Action => {
                    let name = Reader::new(item).read_str().unwrap_or_default();
                    self.in_stream =
                        Action::of(name.as_bytes()).is_some_and(Action::errs_in_stream);
                }
                Key::Other => {}
            }
        }
        self.is_key = !self.is_key;
    }

    fn bad_message(&self) -> BadMessage {
        BadMessage {
            seq: self.seq,
            in_stream: self.in_stream,
            is_fatal: false,
            error: self.error.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::client::ErrorCode;

    /// Feeds a message in pieces of this many bytes; returns what was found, and how many bytes it
    /// took.
    fn feed(message: &[u8], piece: usize) -> Option<(BadMessage, usize)> {
        let mut oversized = Oversized::new(ClientError::new(ErrorCode::TooLarge, "too deep"));
        let (mut start, mut end) = (0, 0);
        while end < message.len() {
            end = (end + piece).min(message.len());
            match oversized.advance(&message[start..end]) {
                Progress::More(bytes) => start += bytes,
                Progress::Whole(bytes, bad) => return Some((bad, start + bytes)),
                Progress::Hopeless => return None,
            }
            assert!(end - start < WHOLE_BYTES_MAX, "{} bytes are kept", end - start);
        }
        None
    }

    fn deep(depth: usize, behind: &[u8]) -> Vec<u8> {
        let mut message = b"\x83\xa6action\xa5watch\xa5value".to_vec();
        message.extend(b"\x91".repeat(depth));
        message.push(0xc0);
        message.extend(behind);
        message
    }

    #[test]
    fn the_end_and_the_number_are_found_wherever_the_pieces_end() {
        let mut message = deep(10_000, b"\xa3seq\xcd\x01\x02");
        let length = message.len();
        message.extend(b"\x81\xa3seq\x07");
        for piece in [1, 2, 3, 7, 100, message.len()] {
            let (bad, took) = feed(&message, piece).unwrap();
            assert_eq!(
                (bad.seq, bad.in_stream, bad.is_fatal, took),
                (Some(258), true, false, length)
            );
        }
    }

    #[test]
    fn a_seq_that_is_not_the_messages_own_is_not_taken() {
        let messages: [&[u8]; 2] = [
            b"\x82\xa5value\x91\x81\xa3seq\x09\xa1x\xa3seq",
            b"\x82\xa1x\x01\xa5value\x92\xa3seq\x09",
        ];
        for message in messages {
            for piece in [1, 5, 100] {
                let (bad, took) = feed(message, piece).unwrap();
                assert_eq!((bad.seq, took), (None, message.len()));
            }
        }
    }

    #[test]
    fn long_values_are_thrown_away_as_they_come() {
        let mut message = b"\x82\xa5value\xc6\x00\x98\x96\x80".to_vec();
        message.extend(vec![0xc1; 10_000_000]);
        message.extend(b"\xa3seq\x05");
        for piece in [1 << 10, 1 << 16, 10_000_000] {
            let (bad, took) = feed(&message, piece).unwrap();
            assert_eq!((bad.seq, took), (Some(5), message.len()));
        }
    }

    #[test]
    fn what_announces_more_than_anybody_sends_is_hopeless() {
        let announced: [&[u8]; 4] = [
            b"\x81\xa3seq\xdb\xff\xff\xff\xff",
            b"\xdf\xff\xff\xff\xff",
            b"\x81\xa1a\xdd\xff\xff\xff\xff",
            b"\x81\xa1a\xc1",
        ];
        for message in announced {
            assert!(feed(message, message.len()).is_none());
        }
        assert!(feed(&b"\xdd\x0f\xff\xff\xff".repeat(1000), 7).is_none());
    }
}

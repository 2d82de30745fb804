//! Bytes of a connection that have arrived and are not carried out yet: a buffer that messages are
//! cut from without scanning anything twice, and that is small while the client is idle.

use smallvec::{SmallVec, smallvec};

use crate::model::invariant::{OrBroken, invariant};
use crate::model::value::skip::SKIP_DEPTH_MAX;
use crate::model::value::{Kind, SkipError, SkipLimits, Skipper};
use crate::protocol::client::{BadMessage, ClientError, ErrorCode, Fields, decode, decode_fields};

use super::oversized::{Oversized, Progress};
use super::session::Decoded;

/// What looking at what has come relies on.
const WITHIN: &str = "what has come is within the buffer";

/// Bytes kept while nothing comes.
const IDLE_BYTES: usize = 4 << 10;
/// Bytes that the buffer grows to for many small messages; further for a long one.
const READ_BYTES: usize = 64 << 10;
/// A short message: room is made for as many of these as may have arrived, if they are many.
const MESSAGE_BYTES: usize = 48;
/// Fewer have their room made as they are found: usually it is one, which needs none.
const MANY_MESSAGES: usize = 8;
/// Most messages of one batch.
const BATCH_MESSAGES: usize = 256;

/// See the module.
pub(in crate::server) struct Input {
    /// All of it is initialised; the bytes that have arrived are `start..end`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// How far the message at `start` was looked at, if it is not whole.
    skipper: Option<Skipper>,
    message_bytes_max: usize,
    /// The message at `start` is too long or too deep, and is thrown away as it comes.
    oversized: Option<Oversized>,
    /// More of it must come before anything else can be done.
    is_starved: bool,
    /// The client sends nothing any more.
    pub(super) at_end: bool,
    total: u64,
}

/// Messages cut from the front of the buffer.
pub(in crate::server) struct Batch<'a> {
    /// In order. Usually a client waits for each answer, so that there is one.
    pub(in crate::server) messages: SmallVec<[Decoded<'a>; 1]>,
    /// Where each ends.
    pub(in crate::server) ends: SmallVec<[usize; 1]>,
    /// All that has arrived.
    bytes: &'a [u8],
}

impl Batch<'_> {
    /// A message's own bytes.
    pub(in crate::server) fn bytes_of(&self, index: usize) -> &[u8] {
        let end = |index: usize| self.ends.get(index).copied();
        let from = index.checked_sub(1).and_then(end).unwrap_or(0);
        self.bytes.get(from..end(index).unwrap_or(from)).unwrap_or_default()
    }
}

impl Input {
    pub(in crate::server) fn new(message_bytes_max: usize) -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            end: 0,
            skipper: None,
            message_bytes_max,
            oversized: None,
            is_starved: false,
            at_end: false,
            total: 0,
        }
    }

    /// All bytes that have ever been read.
    pub(in crate::server) fn total(&self) -> u64 {
        self.total
    }

    /// Whether nothing has arrived that is not carried out.
    pub(in crate::server) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether there may be messages that are whole.
    pub(in crate::server) fn has_more(&self) -> bool {
        !self.is_empty() && self.skipper.is_none() && !self.is_starved
    }

    /// Whether it should be read into: not while there is enough to do.
    pub(super) fn wants_more(&self) -> bool {
        !self.at_end && (self.end - self.start < READ_BYTES || self.skipper.is_some())
    }

    /// Whether the last read filled all the room.
    pub(super) fn is_full(&self) -> bool {
        !self.at_end && self.end == self.buffer.len()
    }

    /// Room to read into. Grows with the bytes that really arrive, not with announced lengths.
    pub(in crate::server) fn room(&mut self) -> &mut [u8] {
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
        if self.end == self.buffer.len() {
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            let size = self.buffer.len();
            if self.end * 2 > size || size == 0 {
                let grown = (size * 4).clamp(IDLE_BYTES, (size * 2).max(READ_BYTES));
                self.buffer.resize(grown, 0);
            }
        }
        self.buffer.get_mut(self.end..).or_broken(WITHIN)
    }

    /// Notes that this many bytes were read into the room.
    pub(in crate::server) fn filled(&mut self, bytes: usize) {
        self.end += bytes;
        self.total += bytes as u64;
        invariant!(self.end <= self.buffer.len(), "what was read fits into the room for it");
        self.is_starved = false;
        self.at_end |= bytes == 0;
    }

    /// All that has arrived, which is taken out: it was something else than messages.
    pub(super) fn take_all(&mut self) -> Vec<u8> {
        let arrived = self.buffer.get(self.start..self.end).or_broken(WITHIN).to_vec();
        (self.start, self.end, self.skipper, self.is_starved) = (0, 0, None, false);
        arrived
    }

    /// The first byte that has arrived and is not carried out.
    pub(super) fn first(&self) -> Option<u8> {
        self.buffer.get(self.start..self.end)?.first().copied()
    }

    /// Bytes of memory that it takes.
    pub(in crate::server) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Releases memory that is not needed while the client is idle.
    pub(in crate::server) fn shrink(&mut self) {
        if self.is_empty() && self.buffer.len() > IDLE_BYTES {
            self.buffer = Vec::new();
            (self.start, self.end) = (0, 0);
        }
    }

    /// The complete messages, as far as one batch goes. None if there is none yet. The last one is
    /// an error that closes the connection if the input cannot be a message.
    pub(in crate::server) fn batch(&mut self) -> Option<Batch<'_>> {
        if self.oversized.is_some() {
            return self.throw_away();
        }
        let arrived = self.buffer.get(self.start..self.end).or_broken(WITHIN);
        let limits = SkipLimits { depth_max: SKIP_DEPTH_MAX, bytes_max: self.message_bytes_max };
        let mut batch = Batch { messages: SmallVec::new(), ends: SmallVec::new(), bytes: arrived };
        let expected = arrived.len() / MESSAGE_BYTES;
        if expected >= MANY_MESSAGES {
            batch.messages.reserve_exact(expected.min(BATCH_MESSAGES));
            batch.ends.reserve_exact(expected.min(BATCH_MESSAGES));
        }
        let (mut at, mut fields) = (0, Fields::default());
        while batch.messages.len() < BATCH_MESSAGES && at < READ_BYTES {
            let Some(rest) = arrived.get(at..).filter(|rest| !rest.is_empty()) else { break };
            if self.skipper.is_none()
                && let Some(length) = fields.find_usual(rest, self.message_bytes_max)
            {
                at += length;
                batch.messages.push(decode_fields(&fields));
                batch.ends.push(at);
                continue;
            }
            let mut skipper = self.skipper.take().unwrap_or_else(|| Skipper::new(limits));
            let length = check_map(rest).and_then(|()| match skipper.advance(rest) {
                Err(error @ (SkipError::TooDeep { .. } | SkipError::TooLarge { .. })) => {
                    let text = format!("bad message: {error}; it was thrown away");
                    let error = ClientError::new(ErrorCode::TooLarge, text);
                    self.oversized = Some(Oversized::new(error));
                    Ok(None)
                }
                length => length.map_err(closing),
            });
            let end = match length {
                Ok(Some(length)) => at + length,
                Ok(None) => {
                    self.skipper = self.oversized.is_none().then_some(skipper);
                    break;
                }
                Err(error) => {
                    batch.messages.push(Err(BadMessage::fatal(error)));
                    batch.ends.push(arrived.len());
                    break;
                }
            };
            batch
                .messages
                .push(decode(arrived.get(at..end).or_broken("a message that is whole is here")));
            batch.ends.push(end);
            at = end;
        }
        if batch.messages.is_empty() { None } else { Some(batch) }
    }

    /// Skips the part of an oversized message that has arrived; at its end, that is the batch.
    fn throw_away(&mut self) -> Option<Batch<'_>> {
        let arrived = self.buffer.get(self.start..self.end).or_broken(WITHIN);
        let progress = self.oversized.as_mut()?.advance(arrived);
        let (end, bad) = match progress {
            Progress::More(bytes) => {
                self.start += bytes;
                self.is_starved = true;
                return None;
            }
            Progress::Whole(bytes, bad) => (bytes, bad),
            Progress::Hopeless => {
                let text = "bad message: it announces far more than a message may have; closing \
                            the connection";
                let error = ClientError::new(ErrorCode::TooLarge, text);
                (arrived.len(), BadMessage::fatal(error))
            }
        };
        (self.oversized, self.is_starved) = (None, false);
        Some(Batch { messages: smallvec![Err(bad)], ends: smallvec![end], bytes: arrived })
    }

    /// Removes this many bytes from the front: complete messages that are carried out. `all`:
    /// whether these were all of the last batch.
    pub(in crate::server) fn consume(&mut self, bytes: usize, all: bool) {
        self.start = (self.start + bytes).min(self.end);
        if !all {
            // They belong to a message further behind, and are found again.
            self.skipper = None;
            self.oversized = None;
        }
    }
}

/// What cannot become a map is refused at its first byte.
fn check_map(bytes: &[u8]) -> Result<(), ClientError> {
    match bytes.first().map(|marker| Kind::of(*marker)) {
        None | Some(Some(Kind::Map)) => Ok(()),
        Some(Some(kind)) => Err(ClientError::new(
            ErrorCode::BadMessage,
            format!("a message must be a MessagePack map, not {kind}; closing the connection"),
        )),
        Some(None) => Err(ClientError::new(
            ErrorCode::BadMessage,
            "a message must be a MessagePack map; this is no MessagePack; closing the connection",
        )),
    }
}

/// The error that ends a connection.
fn closing(error: SkipError) -> ClientError {
    let code = match error {
        SkipError::TooDeep { .. } | SkipError::TooLarge { .. } => ErrorCode::TooLarge,
        SkipError::Invalid { .. } | SkipError::Incomplete { .. } => ErrorCode::BadMessage,
    };
    ClientError::new(code, format!("bad message: {error}; closing the connection"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::client::{ClientMessage, Request};

    /// `{seq: n, action: "get_tock"}`
    fn get_tock(seq: u8) -> Vec<u8> {
        let mut message = b"\x82\xa3seq_\xa6action\xa8get_tock".to_vec();
        message[5] = seq;
        message
    }

    fn feed(input: &mut Input, bytes: &[u8]) {
        let mut bytes = bytes;
        while !bytes.is_empty() {
            let room = input.room();
            let (piece, rest) = bytes.split_at(room.len().min(7).min(bytes.len()));
            room[..piece.len()].copy_from_slice(piece);
            input.filled(piece.len());
            bytes = rest;
        }
    }

    fn seqs(batch: &Batch<'_>) -> Vec<u64> {
        let seq = |message: &Decoded<'_>| match message {
            Ok(ClientMessage::Request { seq, request: Request::GetTock, .. }) => *seq,
            other => panic!("{other:?}"),
        };
        batch.messages.iter().map(seq).collect()
    }

    #[test]
    fn what_is_too_long_behind_a_message_that_waits_does_not_take_that_one_with_it() {
        let mut input = Input::new(100);
        let long =
            [&b"\x83\xa3seq\x02\xa6action\xa8get_tock\xa1x\xc5\x01\x00"[..], &[7; 256]].concat();
        feed(&mut input, &[get_tock(1), long].concat());
        for _ in 0..3 {
            let batch = input.batch().unwrap();
            assert_eq!(seqs(&batch), [1]);
            drop(batch);
            input.consume(0, false);
        }
        let end = input.batch().unwrap().ends[0];
        input.consume(end, true);
        let batch = loop {
            if let Some(batch) = input.batch() {
                break batch;
            }
            assert!(input.has_more(), "it has come as a whole");
        };
        assert!(matches!(&batch.messages[..], [Err(bad)] if bad.seq == Some(2) && !bad.is_fatal));
    }

    #[test]
    fn messages_are_cut_wherever_the_pieces_end() {
        let mut input = Input::new(1000);
        let bytes = [get_tock(1), get_tock(2), get_tock(3)].concat();
        let (first, second) = bytes.split_at(30);
        feed(&mut input, first);
        let batch = input.batch().unwrap();
        assert_eq!(seqs(&batch), [1]);
        let end = batch.ends[0];
        drop(batch);
        input.consume(end, true);
        assert!(input.batch().is_none());
        feed(&mut input, second);
        let batch = input.batch().unwrap();
        assert_eq!(seqs(&batch), [2, 3]);
        let end = batch.ends[0];
        drop(batch);
        input.consume(end, false);
        assert_eq!(seqs(&input.batch().unwrap()), [3]);
    }

    #[test]
    fn what_comes_before_an_error_is_still_carried_out() {
        let mut input = Input::new(1000);
        feed(&mut input, &[get_tock(1), vec![0xc1]].concat());
        let batch = input.batch().unwrap();
        assert_eq!(batch.messages.len(), 2);
        let bad = batch.messages[1].as_ref().unwrap_err();
        assert_eq!((bad.is_fatal, bad.error.code), (true, ErrorCode::BadMessage));
    }

    #[test]
    fn an_announced_length_is_refused_before_its_bytes_come() {
        for announced in [&b"\x81\xa3seq\xdb\xff\xff\xff\xff"[..], b"\xdf\xff\xff\xff\xff"] {
            let mut input = Input::new(1000);
            feed(&mut input, announced);
            assert!(input.batch().is_none() && input.has_more(), "it looks how much is announced");
            let batch = input.batch().unwrap();
            let bad = batch.messages[0].as_ref().unwrap_err();
            assert_eq!((bad.is_fatal, bad.error.code), (true, ErrorCode::TooLarge));
            drop(batch);
            assert!(input.buffer.len() <= IDLE_BYTES);
        }
    }

    #[test]
    fn the_buffer_grows_with_what_arrives_and_shrinks_when_nothing_does() {
        let mut input = Input::new(1 << 20);
        let value = vec![0; 300_000];
        let mut message =
            b"\x83\xa3seq\x01\xa6action\xa8get_tock\xa5value\xc6\x00\x04\x93\xe0".to_vec();
        message.extend(value);
        feed(&mut input, &message);
        let batch = input.batch().unwrap();
        assert_eq!(seqs(&batch), [1]);
        drop(batch);
        assert!(input.buffer.len() < 2 * message.len());
        input.consume(message.len(), true);
        input.shrink();
        assert_eq!(input.buffer.len(), 0);
    }
}

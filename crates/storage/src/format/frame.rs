//! Frames, of which snapshots and logs consist. A frame has its length and a hash over its content;
//! both are bound to its place in the file.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | length n of the payload, little endian; 1 to [`FRAME_BYTES_MAX`] |
//! | 4 | check: the low half of xxHash64 over these 4 bytes; the seed is the frame's position |
//! | n | payload: MessagePack values, one after the other |
//! | 8 | xxHash64 over the payload, little endian; the seed is the frame's position |
//!
//! The position is that of the frame's first byte in the file. So no frame is valid in another
//! place, and the end of a frame is known for certain before its payload is trusted.

use std::io::Read;

use xxhash_rust::xxh64::{Xxh64, xxh64};

use crate::error::{FormatError, StorageError};
use crate::model::invariant::{OrBroken, invariant};

/// Most bytes of a payload. The longest record is an entry with the longest value (4 MiB); a frame
/// is closed as soon as it is longer than [`FRAME_BYTES_AIM`]. A reader never allocates more than
/// this for a length that a file announces.
pub(crate) const FRAME_BYTES_MAX: usize = 8 << 20;
/// A frame with this many bytes of payload gets no further record: readers hold one frame at a
/// time, and damage costs one.
pub(crate) const FRAME_BYTES_AIM: usize = 64 << 10;
/// Bytes before the payload.
const HEAD_BYTES: usize = 8;
/// Bytes behind it.
pub(crate) const TAIL_BYTES: usize = 8;
/// Bytes that are read at once.
const READ_BYTES: u64 = 1 << 20;
/// Lost writes show as zeros of whole pages: the system writes nothing smaller.
const PAGE_BYTES: u64 = 4096;

/// Begins a frame at the end of a buffer; its payload is to be appended next. Returns what
/// [`end_frame`] needs.
pub(super) fn begin_frame(out: &mut Vec<u8>) -> usize {
    let at = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    at
}

/// Ends the frame that was begun at `at` in the buffer and is at `position` in the file.
pub(super) fn end_frame(out: &mut Vec<u8>, at: usize, position: u64) {
    let payload = out.get(at + HEAD_BYTES..).or_broken("a frame that is ended was begun");
    // Else it would be on disk, and no start could read it.
    invariant!(
        (1..=FRAME_BYTES_MAX).contains(&payload.len()),
        "a frame that is written can be read",
        "{} bytes",
        payload.len()
    );
    let length = (payload.len() as u32).to_le_bytes();
    let hash = xxh64(payload, position).to_le_bytes();
    let head = out.get_mut(at..at + HEAD_BYTES).and_then(|head| head.split_at_mut_checked(4));
    let (length_slot, check_slot) = head.or_broken("a frame has a head");
    length_slot.copy_from_slice(&length);
    check_slot.copy_from_slice(&check(length, position).to_le_bytes());
    out.extend_from_slice(&hash);
}

fn check(length: [u8; 4], position: u64) -> u32 {
    xxh64(&length, position) as u32
}

/// The length that a head announces, if it is good.
fn read_head(head: [u8; HEAD_BYTES], position: u64) -> Result<usize, FormatError> {
    let [l0, l1, l2, l3, c0, c1, c2, c3] = head;
    let length = [l0, l1, l2, l3];
    if check(length, position) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return Err(FormatError::Head);
    }
    let length = u32::from_le_bytes(length) as usize;
    if length == 0 || length > FRAME_BYTES_MAX {
        return Err(FormatError::Length(length));
    }
    Ok(length)
}

/// What comes next in a file.
#[derive(Debug)]
pub(crate) enum Step {
    /// A whole, good frame; [`FrameReader::payload`] has its content.
    Frame {
        /// Its position.
        offset: u64,
    },
    /// Nothing: the file ends where a frame ends. More may follow later, if it is still being
    /// written.
    End,
    /// The file ends inside of a frame. The same holds.
    Incomplete,
    /// A frame that is not good.
    Bad(FormatError),
}

/// What follows an invalid frame.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Beyond {
    /// How many good frames.
    pub(crate) frames: u64,
    /// Whether the bad stretch before the first of them has zeros up to the end of a page, from the
    /// page's beginning or that of the bad frame: something that was never written.
    pub(crate) has_hole: bool,
    /// The greatest number that the caller found in one of them.
    pub(crate) claim: u64,
}

/// Reads a file frame by frame. Holds one frame at a time, and what was read ahead.
pub(crate) struct FrameReader {
    source: Box<dyn Read + Send>,
    file: String,
    buffer: Vec<u8>,
    /// Where in the buffer the next frame begins.
    start: usize,
    /// The same in the file.
    position: u64,
    /// The frame that was read last, in the buffer.
    last: std::ops::Range<usize>,
    /// Over all bytes of frames that were read, if wanted.
    hash: Option<Xxh64>,
}

impl FrameReader {
    pub(crate) fn new(file: &str, source: Box<dyn Read + Send>) -> Self {
        Self {
            source,
            file: file.to_owned(),
            buffer: Vec::new(),
            start: 0,
            position: 0,
            last: 0..0,
            hash: None,
        }
    }

    /// The same, which also hashes the whole file.
    pub(crate) fn hashing(mut self) -> Self {
        self.hash = Some(Xxh64::new(0));
        self
    }

    /// The file's name.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// The position after the last valid frame.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The payload of the frame that was read last.
    pub(crate) fn payload(&self) -> &[u8] {
        self.buffer.get(self.last.clone()).unwrap_or_default()
    }

    /// Whether the first frame contains most of a text at the place of its payload's first value, a
    /// string of less than 32 bytes.
    pub(super) fn looks_like(&self, text: &[u8]) -> bool {
        let found = self.buffer.get(self.start + HEAD_BYTES + 1..).unwrap_or_default();
        let same = found.iter().zip(text).filter(|(a, b)| a == b).count();
        same * 2 > text.len()
    }

    /// The hash of all before the frame that was read last.
    pub(crate) fn hash_before(&self) -> u64 {
        self.hash.as_ref().map_or(0, Xxh64::digest)
    }

    /// Reads the next frame.
    pub(crate) fn next(&mut self) -> Result<Step, StorageError> {
        self.hash_last();
        if !self.fill(HEAD_BYTES)? {
            let is_end = self.buffer.len() == self.start;
            return Ok(if is_end { Step::End } else { Step::Incomplete });
        }
        let length = match self.head() {
            Ok(length) => length,
            Err(problem) => return Ok(Step::Bad(problem)),
        };
        if !self.fill(HEAD_BYTES + length + TAIL_BYTES)? {
            return Ok(Step::Incomplete);
        }
        if !self.is_good(length) {
            return Ok(Step::Bad(FormatError::Hash));
        }
        let offset = self.position;
        self.last = self.start + HEAD_BYTES..self.start + HEAD_BYTES + length;
        self.start += HEAD_BYTES + length + TAIL_BYTES;
        self.position += (HEAD_BYTES + length + TAIL_BYTES) as u64;
        Ok(Step::Frame { offset })
    }

    /// Looks for good frames behind a bad one, to the end of the file. `claim` is shown the
    /// payload of each. The reader is of no use afterwards.
    pub(crate) fn look_beyond(
        &mut self,
        mut claim: impl FnMut(&[u8]) -> u64,
    ) -> Result<Beyond, StorageError> {
        let mut beyond = Beyond::default();
        let mut in_zeros = true;
        while self.fill(1)? {
            if self.fill(HEAD_BYTES)?
                && let Ok(length) = self.head()
                && self.fill(HEAD_BYTES + length + TAIL_BYTES)?
                && self.is_good(length)
            {
                let payload = self.start + HEAD_BYTES..self.start + HEAD_BYTES + length;
                let found = claim(self.buffer.get(payload).unwrap_or_default());
                beyond.claim = beyond.claim.max(found);
                beyond.frames += 1;
                self.start += HEAD_BYTES + length + TAIL_BYTES;
                self.position += (HEAD_BYTES + length + TAIL_BYTES) as u64;
                continue;
            }
            if beyond.frames == 0 {
                let is_zero = self.buffer.get(self.start) == Some(&0);
                in_zeros = is_zero && (in_zeros || self.position.is_multiple_of(PAGE_BYTES));
                beyond.has_hole |= in_zeros && (self.position + 1).is_multiple_of(PAGE_BYTES);
            }
            self.start += 1;
            self.position += 1;
        }
        Ok(beyond)
    }

    fn head(&self) -> Result<usize, FormatError> {
        let rest = self.buffer.get(self.start..).unwrap_or_default();
        let head = rest.first_chunk::<HEAD_BYTES>().ok_or(FormatError::Head)?;
        read_head(*head, self.position)
    }

    /// Whether a payload of that length at the start is followed by its hash; both are in the
    /// buffer.
    fn is_good(&self, length: usize) -> bool {
        let rest = self.buffer.get(self.start + HEAD_BYTES..).unwrap_or_default();
        let Some((payload, rest)) = rest.split_at_checked(length) else { return false };
        let expected = rest.first_chunk::<TAIL_BYTES>().map(|b| u64::from_le_bytes(*b));
        expected == Some(xxh64(payload, self.position))
    }

    /// Adds the last frame to the file's hash.
    fn hash_last(&mut self) {
        if let Some(hash) = &mut self.hash
            && !self.last.is_empty()
        {
            let frame = self.last.start - HEAD_BYTES..self.last.end + TAIL_BYTES;
            hash.update(self.buffer.get(frame).unwrap_or_default());
        }
        self.last = 0..0;
    }

    /// Fills the buffer with at least the given number of bytes from `start` on; false if the file
    /// ends before.
    fn fill(&mut self, wanted: usize) -> Result<bool, StorageError> {
        while self.buffer.len() - self.start < wanted {
            if self.start > 0 {
                self.buffer.drain(..self.start);
                self.start = 0;
                self.last = 0..0;
            }
            let mut part = self.source.by_ref().take(READ_BYTES);
            let read = part.read_to_end(&mut self.buffer);
            if read.map_err(StorageError::io(&self.file, "read"))? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use crate::frame::*;
    use std::io::Cursor;

    fn file(payloads: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for payload in payloads {
            let at = begin_frame(&mut out);
            out.extend_from_slice(payload);
            end_frame(&mut out, at, at as u64);
        }
        out
    }

    fn reader(bytes: &[u8]) -> FrameReader {
        FrameReader::new("file", Box::new(Cursor::new(bytes.to_vec())))
    }

    /// The payloads of all valid frames, and what came then.
    fn read(bytes: &[u8]) -> (Vec<Vec<u8>>, Step) {
        let mut reader = reader(bytes);
        let mut payloads = Vec::new();
        loop {
            match reader.next().unwrap() {
                Step::Frame { .. } => payloads.push(reader.payload().to_vec()),
                other => return (payloads, other),
            }
        }
    }

    #[test]
    fn frames_come_back_in_order_up_to_the_end_or_the_cut() {
        let bytes = file(&[b"one", b"two!", &[7; 100_000]]);
        let ends = [19, 39, bytes.len()];
        for cut in (0..60).chain([bytes.len() - 1, bytes.len()]) {
            let (payloads, step) = read(&bytes[..cut]);
            assert_eq!(payloads.len(), ends.iter().filter(|e| **e <= cut).count());
            let is_end = cut == 0 || ends.contains(&cut);
            assert_eq!(matches!(step, Step::End), is_end, "{cut}");
            assert_eq!(matches!(step, Step::Incomplete), !is_end, "{cut}");
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = file(&[b"one", b"two!"]);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let (payloads, step) = read(&bad);
            assert_eq!(payloads.len(), usize::from(bit / 8 >= 19), "{bit}");
            assert!(matches!(step, Step::Bad(_)), "{bit}: {step:?}");
        }
    }

    #[test]
    fn a_good_frame_in_another_place_is_bad() {
        let one = file(&[b"one"]);
        let twice = [one.clone(), one].concat();
        let (payloads, step) = read(&twice);
        assert_eq!(payloads.len(), 1);
        assert!(matches!(step, Step::Bad(FormatError::Head)));
    }

    #[test]
    fn no_room_is_made_for_a_length_that_is_only_announced() {
        for length in [0, FRAME_BYTES_MAX as u32 + 1, u32::MAX] {
            let mut bytes = length.to_le_bytes().to_vec();
            bytes.extend_from_slice(&check(length.to_le_bytes(), 0).to_le_bytes());
            let mut reader = reader(&bytes);
            assert!(matches!(reader.next(), Ok(Step::Bad(FormatError::Length(_)))));
            assert!(reader.buffer.capacity() <= READ_BYTES as usize);
        }
    }

    #[test]
    fn what_is_behind_a_bad_frame_is_found() {
        let mut bytes = file(&[b"one", b"two", b"three", &[9; 200]]);
        bytes[20] ^= 1;
        let mut reader = reader(&bytes);
        assert!(matches!(reader.next(), Ok(Step::Frame { offset: 0 })));
        assert!(matches!(reader.next(), Ok(Step::Bad(_))));
        let beyond = reader.look_beyond(|payload| u64::from(payload[0])).unwrap();
        assert_eq!(beyond, Beyond { frames: 2, has_hole: false, claim: u64::from(b't') });
    }

    #[test]
    fn a_page_that_was_never_written_is_told_from_a_flipped_bit() {
        let long = [9; 10_000];
        let bytes = file(&[b"one", &long, b"three"]);
        let beyond_of = |bytes: &[u8]| {
            let mut reader = reader(bytes);
            while matches!(reader.next(), Ok(Step::Frame { .. })) {}
            reader.look_beyond(|_| 0).unwrap()
        };
        let mut flipped = bytes.clone();
        flipped[5000] ^= 1;
        assert_eq!(beyond_of(&flipped), Beyond { frames: 1, has_hole: false, claim: 0 });
        let mut lost = bytes.clone();
        lost[4096..8192].fill(0);
        assert_eq!(beyond_of(&lost), Beyond { frames: 1, has_hole: true, claim: 0 });
        let mut shifted = bytes.clone();
        shifted[4097..8192].fill(0);
        assert_eq!(beyond_of(&shifted), Beyond { frames: 1, has_hole: false, claim: 0 });
        // The page's beginning was synced before, up to a frame's end.
        let mut lost = bytes;
        lost[19..4096].fill(0);
        assert_eq!(beyond_of(&lost), Beyond { frames: 1, has_hole: true, claim: 0 });
    }
}

//! Records: what is sent over a link after its handshake. Each is `u16 length ‖ ciphertext ‖ tag`, length
//! big endian and of what follows it; the nonce is the record's number, as Noise counts, and the key
//! is replaced by Noise's `REKEY` before each 2^20th record.
//!
//! A record that is missing, changed, repeated or out of order does not open. There is no record that ends
//! a link: what a cut connection leaves open is for the frames inside to notice.

use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use super::Suite;

/// Bytes before each record: its length.
pub const RECORD_HEADER_BYTES: usize = 2;
/// Most bytes of one record, its tag included.
pub const RECORD_BYTES_MAX: usize = 65_535;
/// Bytes of a record's tag.
const TAG_BYTES: usize = 16;
/// Most bytes that one record carries.
const PLAIN_BYTES_MAX: usize = RECORD_BYTES_MAX - TAG_BYTES;
/// After how many records the key is replaced.
const REKEY_RECORDS: u64 = 1 << 20;

/// Why a link cannot go on. The connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A record does not open: it was changed, repeated, left out or moved on the way.
    #[error("a record of the link is damaged: it was changed on the way")]
    Damaged,
    /// A record's length is not that of a record with content.
    #[error("a record of {0} bytes was announced; {least} to {RECORD_BYTES_MAX} are allowed", least = TAG_BYTES + 1)]
    Length(usize),
    /// This half has failed before, or has counted to the end.
    #[error("the link has ended")]
    Over,
}

/// The key and the counter of one direction.
pub(super) struct Direction {
    suite: Suite,
    key: LessSafeKey,
    /// The next record's number.
    pub(super) number: u64,
}

impl Direction {
    fn new(suite: Suite, key: &[u8; 32]) -> Self {
        Self { suite, key: aead_key(suite, key), number: 0 }
    }

    /// The nonce of the next record, whose key is then the right one; `None` at the end of all numbers.
    fn next(&mut self) -> Option<Nonce> {
        let number = self.number;
        // Noise keeps the greatest number for REKEY.
        self.number = number.checked_add(1)?;
        if number > 0 && number.is_multiple_of(REKEY_RECORDS) {
            self.rekey()?;
        }
        Some(nonce(self.suite, number))
    }

    /// Noise's REKEY: the new key is how the old one encrypts 32 zeros with the greatest number.
    fn rekey(&mut self) -> Option<()> {
        let mut key = Zeroizing::new([0; 32]);
        let last = nonce(self.suite, u64::MAX);
        let _tag = self.key.seal_in_place_separate_tag(last, Aad::empty(), &mut *key).ok()?;
        self.key = aead_key(self.suite, &key);
        Some(())
    }
}

fn aead_key(suite: Suite, key: &[u8; 32]) -> LessSafeKey {
    use distkv_model::invariant::OrBroken as _;
    let algorithm = match suite {
        Suite::AesGcm => &AES_256_GCM,
        Suite::ChaChaPoly => &CHACHA20_POLY1305,
    };
    LessSafeKey::new(UnboundKey::new(algorithm, key).or_broken("both suites have keys of 32 bytes"))
}

/// As Noise builds it: 4 zeros, then the number, big endian for AESGCM and little endian for ChaChaPoly.
fn nonce(suite: Suite, number: u64) -> Nonce {
    let [a, b, c, d, e, f, g, h] = match suite {
        Suite::AesGcm => number.to_be_bytes(),
        Suite::ChaChaPoly => number.to_le_bytes(),
    };
    Nonce::assume_unique_for_key([0, 0, 0, 0, a, b, c, d, e, f, g, h])
}

/// Seals what one side sends. It belongs to the task that writes.
pub struct Sealer {
    pub(super) direction: Direction,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").field("number", &self.direction.number).finish_non_exhaustive()
    }
}

impl Sealer {
    pub(super) fn new(suite: Suite, key: &[u8; 32]) -> Self {
        Self { direction: Direction::new(suite, key) }
    }

    /// Appends bytes as few records as possible. No bytes make no record.
    ///
    /// # Errors
    /// [`RecordError::Over`] after 2^64 records; `out` is as it was.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), RecordError> {
        self.seal_parts([plain], out)
    }

    /// The same for bytes that lie in several places, as if they lay one behind the other. Put what is
    /// sent together into one call: each record costs 18 bytes and a nonce.
    ///
    /// # Errors
    /// [`RecordError::Over`] after 2^64 records; `out` is as it was.
    pub fn seal_parts<'a>(
        &mut self,
        parts: impl IntoIterator<Item = &'a [u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        let before = out.len();
        self.append(parts, out).ok_or(RecordError::Over).inspect_err(|_| out.truncate(before))
    }

    fn append<'a>(
        &mut self,
        parts: impl IntoIterator<Item = &'a [u8]>,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        // Where the open record begins.
        let mut record = None;
        for mut part in parts {
            while !part.is_empty() {
                let start = *record.get_or_insert_with(|| {
                    out.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
                    out.len()
                });
                let room = PLAIN_BYTES_MAX.saturating_sub(out.len() - start);
                let (now, later) = part.split_at(room.min(part.len()));
                out.extend_from_slice(now);
                part = later;
                if now.len() == room {
                    self.close(start, out)?;
                    record = None;
                }
            }
        }
        match record {
            Some(start) => self.close(start, out),
            None => Some(()),
        }
    }

    /// Seals the record whose content begins at `start` and is the end of `out`.
    fn close(&mut self, start: usize, out: &mut Vec<u8>) -> Option<()> {
        let nonce = self.direction.next()?;
        let content = out.get_mut(start..)?;
        let length = u16::try_from(content.len() + TAG_BYTES).ok()?;
        let tag =
            self.direction.key.seal_in_place_separate_tag(nonce, Aad::empty(), content).ok()?;
        out.extend_from_slice(tag.as_ref());
        out.get_mut(start - RECORD_HEADER_BYTES..start)?.copy_from_slice(&length.to_be_bytes());
        Some(())
    }
}

/// Opens what the other side sends. It belongs to the task that reads.
pub struct Opener {
    pub(super) direction: Direction,
    /// Whether a record was opened.
    confirmed: bool,
    failed: bool,
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opener").field("number", &self.direction.number).finish_non_exhaustive()
    }
}

impl Opener {
    pub(super) fn new(suite: Suite, key: &[u8; 32]) -> Self {
        Self { direction: Direction::new(suite, key), confirmed: false, failed: false }
    }

    /// Whether a record was opened: only then an acceptor knows that its dialler is there and has the key.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Opens all whole records at the start of `input`, appends their content to `out`, and returns how many
    /// bytes of the input they were; keep the rest and put what is received behind it. `out` grows by less
    /// than the input, so a bound of the input bounds both. The input must have room for
    /// [`RECORD_HEADER_BYTES`] + [`RECORD_BYTES_MAX`], or a long record never becomes whole.
    ///
    /// # Errors
    /// [`RecordError`]; the link has ended, and every later call fails. What was appended before the
    /// damaged record is genuine and may be used.
    pub fn open(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, RecordError> {
        if self.failed {
            return Err(RecordError::Over);
        }
        let mut rest = input;
        loop {
            match self.open_one(rest, out) {
                Ok(Some(behind)) => rest = behind,
                Ok(None) => return Ok(input.len() - rest.len()),
                Err(error) => {
                    self.failed = true;
                    return Err(error);
                }
            }
        }
    }

    /// Opens the first record, and returns what is behind it; `None` if it is not whole.
    fn open_one<'a>(
        &mut self,
        input: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<&'a [u8]>, RecordError> {
        let Some((header, rest)) = input.split_first_chunk::<RECORD_HEADER_BYTES>() else {
            return Ok(None);
        };
        let length = usize::from(u16::from_be_bytes(*header));
        if length <= TAG_BYTES {
            return Err(RecordError::Length(length));
        }
        let Some((record, behind)) = rest.split_at_checked(length) else { return Ok(None) };
        let nonce = self.direction.next().ok_or(RecordError::Over)?;
        let start = out.len();
        out.extend_from_slice(record);
        let opened = out
            .get_mut(start..)
            .and_then(|record| self.direction.key.open_in_place(nonce, Aad::empty(), record).ok())
            .map(|plain| plain.len());
        // Without what did not open, and without the tag.
        out.truncate(start + opened.unwrap_or(0));
        match opened {
            Some(_) => {
                self.confirmed = true;
                Ok(Some(behind))
            }
            None => Err(RecordError::Damaged),
        }
    }
}

#[cfg(test)]
mod tests;

//! Finds the end of a MessagePack value without decoding it: iteratively, in bounded memory, and
//! refusing a value that is too deep or too large as soon as its head shows it, not when its bytes
//! have all arrived.
//!
//! [`skip_value`] works on bytes that are there; [`Skipper`] does the same for bytes that are still
//! arriving, and continues where it stopped instead of scanning anew at each chunk.

use crate::limits::{VALUE_BYTES_MAX, VALUE_DEPTH_MAX};

/// Deepest nesting that a skipper can follow: a value, inside a message of ours that may be some
/// levels deep itself. It bounds the skipper's memory, so [`SkipLimits::depth_max`] is cut to it.
pub const SKIP_DEPTH_MAX: usize = VALUE_DEPTH_MAX + 8;

/// What a skipper accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkipLimits {
    /// Deepest nesting; a scalar has depth 0, an array (also an empty one) at least 1.
    /// At most [`SKIP_DEPTH_MAX`] counts.
    pub depth_max: usize,
    /// Most bytes of the whole. At most `u32::MAX` counts.
    pub bytes_max: usize,
}

impl SkipLimits {
    /// The limits of an entry's value, constants of the protocol.
    pub const VALUE: SkipLimits =
        SkipLimits { depth_max: VALUE_DEPTH_MAX, bytes_max: VALUE_BYTES_MAX };

    /// No limit but the skipper's own, for bytes that are here already and were bounded before.
    pub const NONE: SkipLimits =
        SkipLimits { depth_max: SKIP_DEPTH_MAX, bytes_max: u32::MAX as usize };
}

/// Why no end of a value was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SkipError {
    /// The bytes are good so far, but end before the value does.
    #[error("the bytes end inside a MessagePack value, which takes at least {at_least}")]
    Incomplete {
        /// The value has at least this many bytes in all, counted from its first.
        at_least: usize,
    },
    /// The byte 0xc1, which MessagePack never uses.
    #[error("not MessagePack: byte 0xc1 at offset {offset}")]
    Invalid {
        /// Where, from the value's first byte.
        offset: usize,
    },
    /// Nested deeper than allowed.
    #[error("nested deeper than {depth_max}, at offset {offset}")]
    TooDeep {
        /// The limit that was in force.
        depth_max: usize,
        /// Where the level too many begins, from the value's first byte.
        offset: usize,
    },
    /// Longer than allowed according to its heads; its bytes need not have arrived.
    #[error("longer than {bytes_max} bytes, by the length announced at offset {offset}")]
    TooLarge {
        /// The limit that was in force.
        bytes_max: usize,
        /// Where the length too great stands, from the value's first byte.
        offset: usize,
    },
}

/// The length of the one value that `buf` starts with; what follows it is not looked at.
pub fn skip_value(buf: &[u8], limits: SkipLimits) -> Result<usize, SkipError> {
    // Spares what most values, as most fields of messages, do not need: room for levels.
    if let Head::Scalar(size) = head(buf, 0)
        && size <= buf.len().min(limits.bytes_max)
    {
        return Ok(size);
    }
    let mut skipper = Skipper::new(limits);
    match skipper.advance(buf)? {
        Some(end) => Ok(end),
        None => Err(SkipError::Incomplete { at_least: skipper.at_least() }),
    }
}

/// The length of the scalar that `buf` starts with, which must be complete; none for arrays, maps
/// and anything that is not MessagePack.
#[inline]
pub(crate) fn scalar_len(buf: &[u8]) -> Option<usize> {
    match head(buf, 0) {
        Head::Scalar(size) if size <= buf.len() => Some(size),
        Head::Scalar(_) | Head::Items(..) | Head::Invalid => None,
    }
}

/// A skipper for one value that arrives in pieces. Give it, each time, everything of the value
/// that has arrived so far; it remembers how far it got, so no item is skipped twice.
#[derive(Debug, Clone)]
pub struct Skipper {
    limits: SkipLimits,
    /// Start of the first item that is not skipped yet.
    offset: usize,
    /// Where the value can end at the earliest: `offset`, and one byte for each item that must
    /// still come, on all levels together. Invariant: at most `bytes_max`, unless that is 0.
    least: usize,
    /// As `least`, plus what the available part of the head at `offset` announces.
    at_least: usize,
    /// Levels that are open.
    depth: usize,
    /// Items that must still come on the innermost level; 0 only once the value is whole.
    left: u32,
    /// As above, for the levels around it, outermost first, up to `depth`.
    left_outside: [u32; SKIP_DEPTH_MAX],
}

impl Skipper {
    /// A skipper at the start of a value.
    pub fn new(limits: SkipLimits) -> Skipper {
        let limits = SkipLimits {
            depth_max: limits.depth_max.min(SKIP_DEPTH_MAX),
            bytes_max: limits.bytes_max.min(u32::MAX as usize),
        };
        let left_outside = [0; SKIP_DEPTH_MAX];
        Skipper { limits, offset: 0, least: 1, at_least: 1, depth: 0, left: 1, left_outside }
    }

    /// Is at the start of a value again, without making room for its levels anew.
    pub fn restart(&mut self) {
        (self.offset, self.least, self.at_least, self.depth, self.left) = (0, 1, 1, 0, 1);
    }

    /// Continues with `buf`, which holds the value from its first byte as far as it has arrived (it
    /// must never get shorter from call to call). `Some(length)` once the value is complete; what
    /// follows it is not read. `None`: more bytes are needed, [`Skipper::at_least`] in total.
    ///
    /// An error is final.
    pub fn advance(&mut self, buf: &[u8]) -> Result<Option<usize>, SkipError> {
        let SkipLimits { depth_max, bytes_max } = self.limits;
        let most = buf.len().min(bytes_max);
        let Skipper { mut offset, mut least, mut depth, mut left, .. } = *self;
        let outcome = loop {
            while left == 0 && depth > 0 {
                depth -= 1;
                left = self.left_outside.get(depth).copied().unwrap_or_default();
            }
            if left == 0 {
                break Ok(Some(offset));
            }
            // The usual: a small item of a value that is all here.
            let size = small_size(buf, offset);
            if size > 0 && least + (size - 1) <= most {
                (least, offset, left) = (least + (size - 1), offset + size, left - 1);
                continue;
            }
            let (size, items) = match head(buf, offset) {
                Head::Scalar(size) => (size, None),
                Head::Items(size, items) => (size, Some(items)),
                Head::Invalid => break Err(SkipError::Invalid { offset }),
            };
            // All that is announced, whether it is here or not.
            let announced = least.saturating_add(size - 1).saturating_add(items.unwrap_or(0));
            if announced > bytes_max {
                break Err(SkipError::TooLarge { bytes_max, offset });
            }
            if items.is_some() && depth >= depth_max {
                break Err(SkipError::TooDeep { depth_max, offset });
            }
            if buf.len().saturating_sub(offset) < size {
                self.at_least = announced;
                break Ok(None);
            }
            (least, offset, left) = (announced, offset + size, left - 1);
            if let Some(items) = items {
                if let Some(outside) = self.left_outside.get_mut(depth) {
                    *outside = left;
                }
                depth += 1;
                // Fits, since `announced` is not more than `bytes_max`.
                left = items as u32;
            }
        };
        (self.offset, self.least, self.depth, self.left) = (offset, least, depth, left);
        outcome
    }

    /// How many bytes the value takes at least, as far as is known, counted from its first byte,
    /// and at most [`SkipLimits::bytes_max`]: worth making room for.
    pub(crate) fn at_least(&self) -> usize {
        self.at_least
    }
}

/// What the head of an item says.
pub enum Head {
    /// A scalar of this many bytes in all; or a head that has not arrived, of that many.
    Scalar(usize),
    /// A head of this many bytes, then this many items.
    Items(usize, usize),
    /// 0xc1.
    Invalid,
}

/// Sizes of the items whose first byte says it all; 0 for the others.
#[allow(clippy::indexing_slicing, reason = "computed when compiling")]
static SIZES: [u8; 256] = {
    let mut sizes = [0; 256];
    let mut marker = 0;
    while marker < 256 {
        sizes[marker] = match marker {
            0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => 1,
            0xa0..=0xbf => 1 + (marker as u8 & 0x1f),
            0xcc | 0xd0 => 2,
            0xcd | 0xd1 | 0xd4 => 3,
            0xd5 => 4,
            0xca | 0xce | 0xd2 => 5,
            0xd6 => 6,
            0xcb | 0xcf | 0xd3 => 9,
            0xd7 => 10,
            0xd8 => 18,
            _ => 0,
        };
        marker += 1;
    }
    sizes
};

/// Reads the head of the item at `offset`: its marker and, if it has one, its length.
#[inline]
pub fn head(buf: &[u8], offset: usize) -> Head {
    let Some(&marker) = buf.get(offset) else { return Head::Scalar(1) };
    match small_size(buf, offset) {
        0 => long_head(marker, buf, offset),
        size => Head::Scalar(size),
    }
}

/// The size of the item at `offset` if its first byte says it all, else 0.
#[inline]
fn small_size(buf: &[u8], offset: usize) -> usize {
    let marker = buf.get(offset).copied().unwrap_or(0xc1);
    SIZES.get(usize::from(marker)).copied().unwrap_or_default().into()
}

/// As above, for types that [`SIZES`] does not cover.
fn long_head(marker: u8, buf: &[u8], offset: usize) -> Head {
    match marker {
        0x80..=0x8f => Head::Items(1, 2 * usize::from(marker & 0x0f)),
        0x90..=0x9f => Head::Items(1, usize::from(marker & 0x0f)),
        0xc4 | 0xd9 => sized::<1>(buf, offset, 0),
        0xc5 | 0xda => sized::<2>(buf, offset, 0),
        0xc6 | 0xdb => sized::<4>(buf, offset, 0),
        0xc7 => sized::<1>(buf, offset, 1),
        0xc8 => sized::<2>(buf, offset, 1),
        0xc9 => sized::<4>(buf, offset, 1),
        0xdc => counted::<2>(buf, offset, 1),
        0xdd => counted::<4>(buf, offset, 1),
        0xde => counted::<2>(buf, offset, 2),
        0xdf => counted::<4>(buf, offset, 2),
        _ => Head::Invalid,
    }
}

/// A string, byte string or extension whose length stands in the next `N` bytes, with `extra`
/// bytes between that and the content.
#[inline]
fn sized<const N: usize>(buf: &[u8], offset: usize, extra: usize) -> Head {
    match length::<N>(buf, offset) {
        Some(length) => Head::Scalar((1 + N + extra).saturating_add(length)),
        None => Head::Scalar(1 + N),
    }
}

/// An array (1 item per count) or map (2) whose count stands in the next `N` bytes.
#[inline]
fn counted<const N: usize>(buf: &[u8], offset: usize, items_per_count: usize) -> Head {
    match length::<N>(buf, offset) {
        Some(count) => Head::Items(1 + N, count.saturating_mul(items_per_count)),
        None => Head::Scalar(1 + N),
    }
}

/// The `N` bytes behind the marker, big-endian, if they are there.
#[inline]
fn length<const N: usize>(buf: &[u8], offset: usize) -> Option<usize> {
    let bytes: &[u8; N] = buf.get(offset + 1..)?.first_chunk()?;
    Some(bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
}

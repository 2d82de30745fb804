//! Finding the end of a MessagePack value without decoding it: iterative, in bounded memory,
//! and refusing what is too deep or too large as soon as its head says so, not when its bytes
//! have all arrived.
//!
//! [`skip_value`] looks at bytes that are there; [`Skipper`] does the same for bytes that are
//! still arriving, and goes on where it stopped instead of scanning anew at each chunk.

use crate::model::limits::{VALUE_BYTES_MAX, VALUE_DEPTH_MAX};

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
    /// Longer than allowed, by what its heads announce; its bytes need not have arrived.
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
    let mut skipper = Skipper::new(limits);
    match skipper.advance(buf)? {
        Some(end) => Ok(end),
        None => Err(SkipError::Incomplete { at_least: skipper.at_least() }),
    }
}

/// The length of the scalar that `buf` starts with, all of which must be there; none for arrays,
/// maps and what is no MessagePack.
#[inline]
pub(crate) fn scalar_len(buf: &[u8]) -> Option<usize> {
    let (&marker, body) = buf.split_first()?;
    match head(marker, body) {
        Head::Scalar(size) if size <= buf.len() => Some(size),
        Head::Scalar(_) | Head::Items(..) | Head::Partial(_) | Head::Invalid => None,
    }
}

/// A skipper for one value that arrives in pieces. Give it, each time, everything of the value
/// that has arrived so far; it remembers how far it got.
#[derive(Debug, Clone)]
pub struct Skipper {
    limits: SkipLimits,
    /// Start of the first item that is not skipped yet.
    offset: usize,
    /// Items that must still come, on all levels together. Each takes a byte at least.
    /// Invariant: offset + outstanding <= bytes_max <= u32::MAX, unless bytes_max is 0.
    outstanding: usize,
    /// Bytes that the unfinished item at `offset` needs, as far as its head told: at least 1.
    item_bytes: usize,
    /// Levels that are open; the value itself, on level 0, is none.
    depth: usize,
    /// Items that must still come, per level up to `depth`. Invariant: those sum up to `outstanding`.
    left: [u32; SKIP_DEPTH_MAX + 1],
}

/// What the head of an item says.
enum Head {
    /// A scalar of this many bytes in all.
    Scalar(usize),
    /// A head of this many bytes, then this many items.
    Items(usize, usize),
    /// The head itself has not arrived whole: it takes this many bytes.
    Partial(usize),
    /// 0xc1.
    Invalid,
}

impl Skipper {
    /// A skipper at the start of a value.
    pub fn new(limits: SkipLimits) -> Skipper {
        let limits = SkipLimits {
            depth_max: limits.depth_max.min(SKIP_DEPTH_MAX),
            bytes_max: limits.bytes_max.min(u32::MAX as usize),
        };
        let mut left = [0; SKIP_DEPTH_MAX + 1];
        left[0] = 1;
        Skipper { limits, offset: 0, outstanding: 1, item_bytes: 1, depth: 0, left }
    }

    /// Goes on with `buf`, which holds the value from its first byte as far as it has arrived
    /// (it must never get shorter from call to call). `Some(length)` once the value is whole; what
    /// follows it is not looked at. `None`: more is needed, [`Skipper::at_least`] in all.
    ///
    /// After an error the skipper is of no more use, but harmless.
    pub fn advance(&mut self, buf: &[u8]) -> Result<Option<usize>, SkipError> {
        while self.outstanding > 0 {
            let rest = buf.get(self.offset..).unwrap_or_default();
            let Some((&marker, body)) = rest.split_first() else {
                return self.wait_for(1);
            };
            match head(marker, body) {
                Head::Scalar(size) => {
                    if size > rest.len() {
                        return self.wait_for(size);
                    }
                    self.check_size(size - 1)?;
                    self.offset += size;
                    self.finish_item();
                }
                Head::Items(size, items) => self.open_level(size, items)?,
                Head::Partial(size) => return self.wait_for(size),
                Head::Invalid => return Err(SkipError::Invalid { offset: self.offset }),
            }
        }
        Ok(Some(self.offset))
    }

    /// How many bytes the value takes at least, as far as is known, counted from its first byte.
    /// Worth a buffer's growth: it is within [`SkipLimits::bytes_max`], and honest up to items
    /// that are themselves long.
    pub fn at_least(&self) -> usize {
        self.offset + (self.outstanding + self.item_bytes).saturating_sub(1)
    }

    /// How many bytes were skipped so far.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Notes that the item at `offset` takes `size` bytes or more, which are not all here.
    fn wait_for(&mut self, size: usize) -> Result<Option<usize>, SkipError> {
        self.check_size(size.saturating_sub(1))?;
        self.item_bytes = size;
        Ok(None)
    }

    /// Refuses what cannot fit: all that is outstanding takes a byte each, and `extra` on top.
    fn check_size(&self, extra: usize) -> Result<(), SkipError> {
        let bytes_max = self.limits.bytes_max;
        match self.offset.checked_add(self.outstanding).and_then(|n| n.checked_add(extra)) {
            Some(least) if least <= bytes_max => Ok(()),
            _ => Err(SkipError::TooLarge { bytes_max, offset: self.offset }),
        }
    }

    /// Takes the head of an array or a map at `offset` and goes one level down.
    fn open_level(&mut self, head_size: usize, items: usize) -> Result<(), SkipError> {
        let depth_max = self.limits.depth_max;
        if self.depth >= depth_max {
            return Err(SkipError::TooDeep { depth_max, offset: self.offset });
        }
        self.check_size((head_size - 1).saturating_add(items))?;
        self.offset += head_size;
        if items == 0 {
            self.finish_item();
            return Ok(());
        }
        // The container is done with: from here on its items stand for it.
        self.outstanding = self.outstanding - 1 + items;
        if let Some(left) = self.left.get_mut(self.depth) {
            *left = left.saturating_sub(1);
        }
        self.depth += 1;
        // Fits: `check_size` compared it with a limit of 32 bits. The slot is there: depth_max.
        if let Some(left) = self.left.get_mut(self.depth) {
            *left = items as u32;
        }
        Ok(())
    }

    /// Counts an item as done, and leaves the levels that it was the last of.
    fn finish_item(&mut self) {
        self.item_bytes = 1;
        self.outstanding -= 1;
        if let Some(left) = self.left.get_mut(self.depth) {
            *left = left.saturating_sub(1);
        }
        while self.depth > 0 && self.left.get(self.depth) == Some(&0) {
            self.depth -= 1;
        }
    }
}

/// Reads the head of an item: its marker, and of `body`, what follows it, the length if there is one.
#[inline]
fn head(marker: u8, body: &[u8]) -> Head {
    match marker {
        0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => Head::Scalar(1),
        0x80..=0x8f => Head::Items(1, 2 * usize::from(marker & 0x0f)),
        0x90..=0x9f => Head::Items(1, usize::from(marker & 0x0f)),
        0xa0..=0xbf => Head::Scalar(1 + usize::from(marker & 0x1f)),
        0xc1 => Head::Invalid,
        0xc4 | 0xd9 => sized::<1>(body, 0),
        0xc5 | 0xda => sized::<2>(body, 0),
        0xc6 | 0xdb => sized::<4>(body, 0),
        0xc7 => sized::<1>(body, 1),
        0xc8 => sized::<2>(body, 1),
        0xc9 => sized::<4>(body, 1),
        0xcc | 0xd0 => Head::Scalar(2),
        0xcd | 0xd1 | 0xd4 => Head::Scalar(3),
        0xca | 0xce | 0xd2 => Head::Scalar(5),
        0xcb | 0xcf | 0xd3 => Head::Scalar(9),
        0xd5 => Head::Scalar(4),
        0xd6 => Head::Scalar(6),
        0xd7 => Head::Scalar(10),
        0xd8 => Head::Scalar(18),
        0xdc => counted::<2>(body, 1),
        0xdd => counted::<4>(body, 1),
        0xde => counted::<2>(body, 2),
        0xdf => counted::<4>(body, 2),
    }
}

/// A string, byte string or extension whose length stands in the next `N` bytes, with `extra`
/// bytes between that and the content.
#[inline]
fn sized<const N: usize>(body: &[u8], extra: usize) -> Head {
    match length::<N>(body) {
        Some(length) => Head::Scalar((1 + N + extra).saturating_add(length)),
        None => Head::Partial(1 + N),
    }
}

/// An array (1 item per count) or map (2) whose count stands in the next `N` bytes.
#[inline]
fn counted<const N: usize>(body: &[u8], items_per_count: usize) -> Head {
    match length::<N>(body) {
        Some(count) => Head::Items(1 + N, count.saturating_mul(items_per_count)),
        None => Head::Partial(1 + N),
    }
}

/// `N` bytes, big-endian, if they are there.
#[inline]
fn length<const N: usize>(body: &[u8]) -> Option<usize> {
    let bytes: &[u8; N] = body.first_chunk()?;
    Some(bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
}

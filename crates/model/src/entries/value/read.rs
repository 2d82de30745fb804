//! A typed reader over MessagePack bytes, without allocation; the protocol decoders are built on
//! it.
//!
//! Each call takes one item, or leaves the reader where it was and returns the reason. Nothing here
//! recurses, and no announced length is trusted before its bytes are there.

use std::fmt;

use crate::value::skip::{SkipError, SkipLimits, scalar_len, skip_value};

/// What an item is, by its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// nil
    Nil,
    /// true or false
    Bool,
    /// an integer, of any width
    Int,
    /// a float, of either width
    Float,
    /// a string
    Str,
    /// a byte string
    Bin,
    /// an array
    Array,
    /// a map
    Map,
    /// an extension
    Ext,
}

impl Kind {
    /// What a first byte announces; none for 0xc1, which MessagePack never uses.
    pub fn of(marker: u8) -> Option<Kind> {
        Some(match marker {
            0x00..=0x7f | 0xcc..=0xd3 | 0xe0..=0xff => Kind::Int,
            0x80..=0x8f | 0xde | 0xdf => Kind::Map,
            0x90..=0x9f | 0xdc | 0xdd => Kind::Array,
            0xa0..=0xbf | 0xd9..=0xdb => Kind::Str,
            0xc0 => Kind::Nil,
            0xc1 => return None,
            0xc2 | 0xc3 => Kind::Bool,
            0xc4..=0xc6 => Kind::Bin,
            0xc7..=0xc9 | 0xd4..=0xd8 => Kind::Ext,
            0xca | 0xcb => Kind::Float,
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Nil => "nil",
            Kind::Bool => "a boolean",
            Kind::Int => "an integer",
            Kind::Float => "a float",
            Kind::Str => "a string",
            Kind::Bin => "a byte string",
            Kind::Array => "an array",
            Kind::Map => "a map",
            Kind::Ext => "an extension",
        })
    }
}

/// Why an item could not be read. The reader stays where it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The bytes end inside the item, or before it.
    #[error("the bytes end where {expected} was expected")]
    Truncated {
        /// What was asked for.
        expected: &'static str,
    },
    /// There is something else.
    #[error("expected {expected}, found {found}")]
    WrongKind {
        /// What was asked for.
        expected: &'static str,
        /// What is there.
        found: Kind,
    },
    /// An integer that does not fit what was asked for.
    #[error("expected {expected}, found {found}")]
    OutOfRange {
        /// What was asked for.
        expected: &'static str,
        /// What is there.
        found: i128,
    },
    /// A string that is not UTF-8.
    #[error("a string is not UTF-8")]
    NotUtf8,
    /// Not MessagePack, or past a limit.
    #[error(transparent)]
    Skip(#[from] SkipError),
    /// There is something behind the last item.
    #[error("{0} bytes follow the last item")]
    Trailing(usize),
}

/// Reads items from the front of some bytes.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
    /// How many bytes there were at first.
    total: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `buf`.
    #[inline]
    pub fn new(buf: &'a [u8]) -> Reader<'a> {
        Reader { rest: buf, total: buf.len() }
    }

    /// The bytes that were not read yet.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// How many bytes were read.
    #[inline]
    pub fn position(&self) -> usize {
        self.total - self.rest.len()
    }

    /// Whether all was read.
    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Ends reading: an error if anything is left.
    #[inline]
    pub fn finish(self) -> Result<(), ReadError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(ReadError::Trailing(left)),
        }
    }

    /// What the next item is; it is not taken.
    #[inline]
    pub fn peek_kind(&self) -> Result<Kind, ReadError> {
        let marker = self.marker("a value")?;
        Kind::of(marker).ok_or(ReadError::Skip(SkipError::Invalid { offset: 0 }))
    }

    /// Whether the next item is nil; if so it is taken.
    #[inline]
    pub fn take_nil(&mut self) -> bool {
        let is_nil = self.rest.first() == Some(&0xc0);
        if is_nil {
            self.advance(1);
        }
        is_nil
    }

    /// nil.
    #[inline]
    pub fn read_nil(&mut self) -> Result<(), ReadError> {
        if self.take_nil() { Ok(()) } else { Err(self.wrong("nil")) }
    }

    /// true or false.
    #[inline]
    pub fn read_bool(&mut self) -> Result<bool, ReadError> {
        let value = match self.marker("a boolean")? {
            0xc2 => false,
            0xc3 => true,
            _ => return Err(self.wrong("a boolean")),
        };
        self.advance(1);
        Ok(value)
    }

    /// An integer of any width from 0 to 2^64 - 1.
    #[inline]
    pub fn read_u64(&mut self) -> Result<u64, ReadError> {
        const EXPECTED: &str = "an integer from 0 to 2^64 - 1";
        let (value, size) = self.integer(EXPECTED)?;
        let fit = u64::try_from(value)
            .map_err(|_| ReadError::OutOfRange { expected: EXPECTED, found: value })?;
        self.advance(size);
        Ok(fit)
    }

    /// An integer of any width from -2^63 to 2^63 - 1.
    #[inline]
    pub fn read_i64(&mut self) -> Result<i64, ReadError> {
        const EXPECTED: &str = "an integer from -2^63 to 2^63 - 1";
        let (value, size) = self.integer(EXPECTED)?;
        let fit = i64::try_from(value)
            .map_err(|_| ReadError::OutOfRange { expected: EXPECTED, found: value })?;
        self.advance(size);
        Ok(fit)
    }

    /// Any integer, from -2^63 to 2^64 - 1.
    #[inline]
    pub fn read_int(&mut self) -> Result<i128, ReadError> {
        let (value, size) = self.integer("an integer")?;
        self.advance(size);
        Ok(value)
    }

    /// A float of either width.
    pub fn read_f64(&mut self) -> Result<f64, ReadError> {
        let marker = self.marker("a float")?;
        let (value, size) = match marker {
            0xca => (f64::from(f32::from_bits(u32::from_be_bytes(self.fixed("a float")?))), 5),
            0xcb => (f64::from_bits(u64::from_be_bytes(self.fixed("a float")?)), 9),
            _ => return Err(self.wrong("a float")),
        };
        self.advance(size);
        Ok(value)
    }

    /// A string, which must be UTF-8.
    #[inline]
    pub fn read_str(&mut self) -> Result<&'a str, ReadError> {
        let mut ahead = *self;
        let text = std::str::from_utf8(ahead.read_str_bytes()?).map_err(|_| ReadError::NotUtf8)?;
        *self = ahead;
        Ok(text)
    }

    /// A string's bytes, whatever they are.
    #[inline]
    pub fn read_str_bytes(&mut self) -> Result<&'a [u8], ReadError> {
        let expected = "a string";
        let (head, length) = match self.marker(expected)? {
            marker @ 0xa0..=0xbf => (1, usize::from(marker & 0x1f)),
            0xd9 => (2, self.length::<1>(expected)?),
            0xda => (3, self.length::<2>(expected)?),
            0xdb => (5, self.length::<4>(expected)?),
            _ => return Err(self.wrong(expected)),
        };
        self.content(head, length, expected)
    }

    /// A byte string.
    #[inline]
    pub fn read_bin(&mut self) -> Result<&'a [u8], ReadError> {
        let expected = "a byte string";
        let (head, length) = match self.marker(expected)? {
            0xc4 => (2, self.length::<1>(expected)?),
            0xc5 => (3, self.length::<2>(expected)?),
            0xc6 => (5, self.length::<4>(expected)?),
            _ => return Err(self.wrong(expected)),
        };
        self.content(head, length, expected)
    }

    /// An extension: its type and content.
    pub fn read_ext(&mut self) -> Result<(i8, &'a [u8]), ReadError> {
        let expected = "an extension";
        let (head, length) = match self.marker(expected)? {
            0xc7 => (3, self.length::<1>(expected)?),
            0xc8 => (4, self.length::<2>(expected)?),
            0xc9 => (6, self.length::<4>(expected)?),
            0xd4 => (2, 1),
            0xd5 => (2, 2),
            0xd6 => (2, 4),
            0xd7 => (2, 8),
            0xd8 => (2, 16),
            _ => return Err(self.wrong(expected)),
        };
        let kind = self.rest.get(head - 1).ok_or(ReadError::Truncated { expected })?;
        let kind = i8::from_be_bytes([*kind]);
        Ok((kind, self.content(head, length, expected)?))
    }

    /// The head of an array: how many items follow. The count is no more than the bytes that
    /// follow could hold, so it is safe to reserve room for it.
    #[inline]
    pub fn read_array_len(&mut self) -> Result<usize, ReadError> {
        let expected = "an array";
        let (head, count) = match self.marker(expected)? {
            marker @ 0x90..=0x9f => (1, usize::from(marker & 0x0f)),
            0xdc => (3, self.length::<2>(expected)?),
            0xdd => (5, self.length::<4>(expected)?),
            _ => return Err(self.wrong(expected)),
        };
        self.count(head, count, 1, "an array's items")
    }

    /// The head of a map: how many pairs of key and value follow. The count is no more than the
    /// bytes that follow could hold, so it is safe to reserve room for it.
    #[inline]
    pub fn read_map_len(&mut self) -> Result<usize, ReadError> {
        let expected = "a map";
        let (head, count) = match self.marker(expected)? {
            marker @ 0x80..=0x8f => (1, usize::from(marker & 0x0f)),
            0xde => (3, self.length::<2>(expected)?),
            0xdf => (5, self.length::<4>(expected)?),
            _ => return Err(self.wrong(expected)),
        };
        self.count(head, count, 2, "a map's items")
    }

    /// Any one value, as its bytes; nested up to [`SKIP_DEPTH_MAX`](crate::value::skip::SKIP_DEPTH_MAX).
    pub fn read_raw(&mut self) -> Result<&'a [u8], ReadError> {
        self.read_raw_within(SkipLimits::NONE)
    }

    /// Any one value within `limits`, as its bytes.
    pub fn read_raw_within(&mut self, limits: SkipLimits) -> Result<&'a [u8], ReadError> {
        let end = skip_value(self.rest, limits)?;
        self.content(0, end, "a value")
    }

    /// Skips any one value.
    #[inline]
    pub fn skip(&mut self) -> Result<(), ReadError> {
        // Most fields of messages are scalars.
        match scalar_len(self.rest) {
            Some(size) => self.content(0, size, "a value").map(|_| ()),
            None => self.read_raw().map(|_| ()),
        }
    }

    /// The next item's first byte.
    #[inline]
    fn marker(&self, expected: &'static str) -> Result<u8, ReadError> {
        self.rest.first().copied().ok_or(ReadError::Truncated { expected })
    }

    /// The error for an item of another type than the requested one.
    fn wrong(&self, expected: &'static str) -> ReadError {
        match self.peek_kind() {
            Ok(found) => ReadError::WrongKind { expected, found },
            Err(ReadError::Truncated { .. }) => ReadError::Truncated { expected },
            Err(invalid) => invalid,
        }
    }

    /// The integer at the front and its size in bytes.
    #[inline]
    fn integer(&self, expected: &'static str) -> Result<(i128, usize), ReadError> {
        Ok(match self.marker(expected)? {
            marker @ 0x00..=0x7f => (i128::from(marker), 1),
            marker @ 0xe0..=0xff => (i128::from(i8::from_be_bytes([marker])), 1),
            0xcc => (i128::from(u8::from_be_bytes(self.fixed(expected)?)), 2),
            0xcd => (i128::from(u16::from_be_bytes(self.fixed(expected)?)), 3),
            0xce => (i128::from(u32::from_be_bytes(self.fixed(expected)?)), 5),
            0xcf => (i128::from(u64::from_be_bytes(self.fixed(expected)?)), 9),
            0xd0 => (i128::from(i8::from_be_bytes(self.fixed(expected)?)), 2),
            0xd1 => (i128::from(i16::from_be_bytes(self.fixed(expected)?)), 3),
            0xd2 => (i128::from(i32::from_be_bytes(self.fixed(expected)?)), 5),
            0xd3 => (i128::from(i64::from_be_bytes(self.fixed(expected)?)), 9),
            _ => return Err(self.wrong(expected)),
        })
    }

    /// The `N` bytes behind the marker.
    #[inline]
    fn fixed<const N: usize>(&self, expected: &'static str) -> Result<[u8; N], ReadError> {
        let body = self.rest.get(1..).unwrap_or_default();
        body.first_chunk().copied().ok_or(ReadError::Truncated { expected })
    }

    /// The length of `N` bytes behind the marker.
    #[inline]
    fn length<const N: usize>(&self, expected: &'static str) -> Result<usize, ReadError> {
        let bytes: [u8; N] = self.fixed(expected)?;
        Ok(bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
    }

    /// Takes a head and the content behind it, and returns the content.
    #[inline]
    fn content(
        &mut self,
        head: usize,
        length: usize,
        expected: &'static str,
    ) -> Result<&'a [u8], ReadError> {
        let end = head.saturating_add(length);
        let content = self.rest.get(head..end).ok_or(ReadError::Truncated { expected })?;
        self.advance(end);
        Ok(content)
    }

    /// Takes the head of an array or map whose items (`per` each) could all be there.
    #[inline]
    fn count(
        &mut self,
        head: usize,
        count: usize,
        per: usize,
        expected: &'static str,
    ) -> Result<usize, ReadError> {
        if count.saturating_mul(per) > self.rest.len().saturating_sub(head) {
            return Err(ReadError::Truncated { expected });
        }
        self.advance(head);
        Ok(count)
    }

    /// Advances; callers have checked that the bytes are there.
    #[inline]
    fn advance(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }
}

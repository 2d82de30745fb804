//! A value: one MessagePack value, kept as the very bytes that the client sent.
//!
//! It is checked once, by the bounded skipper of [`skip`], and never decoded and encoded again, so
//! unknown extension types, integer widths and strings that are not UTF-8 survive exactly. (What some
//! clients cannot read is refused where clients store it, and nowhere else: [`readable`].) [`read`] and
//! [`mod@write`] are the typed readers and writers over such bytes that the protocols are made of.

pub(crate) mod equal;
pub(crate) mod read;
pub(crate) mod readable;
pub mod skip;
pub mod write;

#[cfg(any(test, feature = "arbitrary"))]
pub mod arbitrary;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

pub use crate::value::equal::values_equal;
pub use crate::value::read::{Kind, ReadError, Reader};
pub use crate::value::readable::Unreadable;
pub use crate::value::skip::{SkipError, SkipLimits, Skipper, skip_value};
pub use crate::value::write::{
    write_array_len, write_bin, write_bool, write_ext, write_f64, write_i64, write_map_len,
    write_nil, write_str, write_str_len, write_u64,
};

/// `nil` in MessagePack.
const NIL: u8 = 0xc0;

/// One MessagePack value in the bytes that it came in; cheap to clone.
///
/// Two values are equal if their bytes are: `0x05` and `0xcc05` differ.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Value {
    /// Invariant: exactly one value, within [`SkipLimits::VALUE`].
    bytes: Arc<[u8]>,
}

/// Why bytes are no value. Nothing was kept of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// The bytes end before the value does, are not MessagePack, or break a limit.
    #[error("bad value: {0}")]
    Skip(#[from] SkipError),
    /// There is something behind the value.
    #[error("bad value: {0} bytes follow it")]
    Trailing(usize),
    /// The Python DistKV's clients cannot read it. Only [`Value::check_readable`] says so.
    #[error("bad value: {0}")]
    Unreadable(#[from] Unreadable),
}

impl Value {
    /// Checks and copies `bytes`, which must be one value and nothing else, no deeper than
    /// [`VALUE_DEPTH_MAX`](crate::limits::VALUE_DEPTH_MAX) and no longer than
    /// [`VALUE_BYTES_MAX`](crate::limits::VALUE_BYTES_MAX).
    pub fn new(bytes: &[u8]) -> Result<Value, ValueError> {
        Value::check(bytes)?;
        Ok(Value { bytes: Arc::from(bytes) })
    }

    /// What [`Value::new`] checks, without making a value.
    pub fn check(bytes: &[u8]) -> Result<(), ValueError> {
        let end = skip_value(bytes, SkipLimits::VALUE)?;
        match bytes.len().saturating_sub(end) {
            0 => Ok(()),
            trailing => Err(ValueError::Trailing(trailing)),
        }
    }

    /// The value nil, which is not the same as "no value".
    pub fn nil() -> Value {
        Value { bytes: Arc::from([NIL]) }
    }

    /// Whether this is nil.
    pub fn is_nil(&self) -> bool {
        self.as_bytes() == [NIL]
    }

    /// The bytes, as they came.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A reader over the bytes.
    pub fn reader(&self) -> Reader<'_> {
        Reader::new(&self.bytes)
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl TryFrom<&[u8]> for Value {
    type Error = ValueError;

    fn try_from(bytes: &[u8]) -> Result<Value, ValueError> {
        Value::new(bytes)
    }
}

impl fmt::Debug for Value {
    /// The bytes in hex, cut short: values can be megabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 64;
        f.write_str("Value(")?;
        for byte in self.bytes.iter().take(SHOWN) {
            write!(f, "{byte:02x}")?;
        }
        match self.bytes.len().saturating_sub(SHOWN) {
            0 => f.write_str(")"),
            more => write!(f, "… {more} bytes more)"),
        }
    }
}

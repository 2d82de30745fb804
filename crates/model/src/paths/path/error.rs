//! Why something is no path.

use crate::limits::{PATH_BYTES_MAX, PATH_ELEMENTS_MAX, PATH_NESTING_MAX};
use crate::value::{ReadError, SkipError};

/// The extension type of integers of 2^64 and above (docs/client-protocol.md, "Framing").
const EXT_BIG_INTEGER: i8 = 2;

/// Why something is no path, or no longer one. Whatever was asked was not done, and nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The value is neither a path extension (type 3) nor an array.
    #[error("a path must be an array or a path extension, not {0}")]
    NotAPath(&'static str),
    /// One of the elements cannot be one.
    #[error("element {index} of the path {problem}")]
    Element {
        /// Which, from 0.
        index: usize,
        /// What is wrong with it.
        problem: ElementProblem,
    },
    /// Bytes that must be canonical have an element in a longer or other form than the one that
    /// paths are kept in.
    #[error("element {index} of the path is not in canonical form")]
    NotCanonical {
        /// Which, from 0.
        index: usize,
    },
    /// More elements than [`PATH_ELEMENTS_MAX`].
    #[error("the path has more than {PATH_ELEMENTS_MAX} elements")]
    TooManyElements,
    /// More bytes, in canonical form, than [`PATH_BYTES_MAX`].
    #[error("the path is longer than {PATH_BYTES_MAX} bytes")]
    TooLong,
    /// The value ends before the path does.
    #[error("the path's bytes end early")]
    Truncated,
    /// There is something behind the path.
    #[error("{0} bytes follow the path")]
    Trailing(usize),
}

/// What is wrong with an element, or with an item of an array that is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ElementProblem {
    /// nil marks the system's own tree and can only be the first element.
    #[error("is nil, which only the first one may be")]
    NilInside,
    /// Arrays in arrays, more than [`PATH_NESTING_MAX`] levels of them.
    #[error("nests arrays deeper than {PATH_NESTING_MAX} levels")]
    TooDeep,
    /// An array that is longer than any path can be.
    #[error("is longer than {PATH_BYTES_MAX} bytes")]
    TooLong,
    /// A map.
    #[error("is or holds a map; maps cannot be path elements")]
    Map,
    /// An extension, other than a path or a big integer.
    #[error("is or holds an extension (type {0}); only a path (type 3) can be a path element")]
    Ext(i8),
    /// An integer outside of -2^63 to 2^64 - 1 (in MessagePack: an extension of type 2).
    #[error("is or holds an integer outside of -2^63 to 2^64 - 1")]
    IntegerTooBig,
    /// NaN equals nothing, not even itself, so nothing could be found under it.
    #[error("is or holds a float that is not a number")]
    NotANumber,
    /// A string that is not UTF-8.
    #[error("is or holds a string that is not UTF-8; bytes must be sent as a byte string")]
    NotUtf8,
    /// The byte 0xc1, which MessagePack never uses.
    #[error("is or holds the byte 0xc1, which is not MessagePack")]
    Invalid,
    /// The bytes end inside it.
    #[error("is cut short")]
    Truncated,
}

impl ElementProblem {
    /// The error for the element of this number.
    pub(super) fn at(self, index: usize) -> PathError {
        PathError::Element { index, problem: self }
    }

    /// For an extension of this type, which is not a path.
    pub(super) fn of_ext(kind: i8) -> ElementProblem {
        match kind {
            EXT_BIG_INTEGER => ElementProblem::IntegerTooBig,
            kind => ElementProblem::Ext(kind),
        }
    }
}

impl From<ReadError> for ElementProblem {
    /// For items whose kind was looked at before they were read.
    fn from(error: ReadError) -> ElementProblem {
        match error {
            ReadError::NotUtf8 => ElementProblem::NotUtf8,
            ReadError::OutOfRange { .. } => ElementProblem::IntegerTooBig,
            ReadError::Skip(SkipError::Invalid { .. }) => ElementProblem::Invalid,
            ReadError::Truncated { .. }
            | ReadError::WrongKind { .. }
            | ReadError::Skip(_)
            | ReadError::Trailing(_) => ElementProblem::Truncated,
        }
    }
}

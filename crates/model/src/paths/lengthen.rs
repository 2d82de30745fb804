//! Shortened paths made whole again: a stream's messages carry how many elements, after the request's
//! path, they share with the message before, and only the rest (`docs/client-protocol.md`). Clients
//! and readers of the original's files need this; only nodes write such paths.

use crate::invariant::OrBroken;
use crate::path::{EXT_PATH, PathError};
use crate::value::{Kind, ReadError, Reader};

/// Restores whole paths from shortened ones.
///
/// It keeps elements as their bytes, whatever they are, so that an element that is not valid here
/// does not affect the paths behind it.
#[derive(Debug, Clone, Default)]
pub struct Lengthener {
    /// The last path's elements, one after the other.
    bytes: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
}

/// Why a shortened path makes no whole one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LengthenError {
    /// More elements are said to be shared than there were.
    #[error("the depth is {depth}, but the path before has only {elements} elements")]
    Depth {
        /// The depth that was given.
        depth: u64,
        /// What there was.
        elements: usize,
    },
    /// Neither an array nor an extension of type 3.
    #[error("a path must be an array or a path extension")]
    NotAPath,
    /// Not the MessagePack that belongs there.
    #[error("bad path: {0}")]
    Read(#[from] ReadError),
    /// An element that no path can have. Found by the code that makes a
    /// [`Path`](crate::path::Path) of the elements.
    #[error("bad path: {0}")]
    Path(#[from] PathError),
}

impl Lengthener {
    /// The whole path (below the request's) of a message with this `path`, one whole
    /// MessagePack value, and `depth`: its elements, one after the other, not checked for what
    /// they are ([`crate::path::Path::from_msgpack`] does that).
    ///
    /// # Errors
    /// [`LengthenError`]; the next path is then still measured from the last good one.
    pub fn lengthen(&mut self, path: &[u8], depth: u64) -> Result<&[u8], LengthenError> {
        let elements = self.ends.len();
        let kept = match usize::try_from(depth) {
            Ok(0) => 0,
            Ok(depth) if depth <= elements => {
                *self.ends.get(depth - 1).or_broken("each element has its end")
            }
            _ => return Err(LengthenError::Depth { depth, elements }),
        };
        let items = items(path)?;
        let mut reader = Reader::new(items);
        let mut ends = Vec::new();
        while !reader.is_at_end() {
            reader.skip()?;
            ends.push(kept + reader.position());
        }
        self.ends.retain(|end| *end <= kept);
        self.ends.extend(ends);
        self.bytes.truncate(kept);
        self.bytes.extend_from_slice(items);
        Ok(&self.bytes)
    }
}

/// The elements, one after the other, of a path value.
fn items(path: &[u8]) -> Result<&[u8], LengthenError> {
    let mut reader = Reader::new(path);
    match reader.peek_kind()? {
        Kind::Array => {
            reader.read_array_len()?;
            Ok(reader.rest())
        }
        Kind::Ext => match reader.read_ext()? {
            (EXT_PATH, content) => Ok(content),
            _ => Err(LengthenError::NotAPath),
        },
        _ => Err(LengthenError::NotAPath),
    }
}

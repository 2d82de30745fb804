//! Path shortening (PROTOCOL): a stream's messages carry how many elements, after the request's
//! path, they share with the message before, and only the rest of their path.

use super::reply::MessageWriter;
use crate::model::invariant::OrBroken;
use crate::model::path::bytes::{common_prefix, encode_array, encode_ext3};
use crate::model::path::{EXT_PATH, Path, PathError};
use crate::model::value::{Kind, ReadError, Reader};

/// What cutting a path's front off relies on.
const BELOW: &str = "the paths of a stream are at or below its top";

/// What the messages of one stream have in common.
#[derive(Debug, Clone)]
pub struct Shortener {
    /// Bytes at the start of each path that no message repeats: the session's root and the
    /// request's path.
    cut: usize,
    /// The last message's path, behind `cut`.
    last: Vec<u8>,
}

impl Shortener {
    /// For the stream of a request whose whole path (the session's root included) is `top`.
    #[must_use]
    pub fn new(top: &Path) -> Self {
        Self { cut: top.as_bytes().len(), last: Vec::new() }
    }

    /// How many bytes are cut off the front of each path.
    #[must_use]
    pub fn cut(&self) -> usize {
        self.cut
    }

    /// A message with this whole path was written without this shortener.
    pub fn pass(&mut self, whole: &Path) {
        self.last.clear();
        self.last.extend_from_slice(whole.as_bytes().get(self.cut..).or_broken(BELOW));
    }

    /// Adds `path` and `depth` for a whole path at or below the top. The path is an extension
    /// if nothing was cut off its front, else an array; clients take both.
    pub fn add_path(&mut self, whole: &Path, message: &mut MessageWriter<'_>) {
        let below = self.write_path(whole, message);
        message.u64("depth", below as u64);
    }

    /// Adds `path` only, and returns what `depth` is, for messages where that stands elsewhere.
    pub fn write_path(&mut self, whole: &Path, message: &mut MessageWriter<'_>) -> usize {
        let below = whole.as_bytes().get(self.cut..).or_broken(BELOW);
        let (shared, depth) = common_prefix(&self.last, below);
        let rest = below.get(shared..).or_broken(BELOW);
        let out = message.key("path");
        if self.cut == 0 && shared == 0 {
            encode_ext3(rest, out)
        } else {
            encode_array(rest, out)
        }
        self.pass(whole);
        depth
    }
}

/// The other direction: makes whole paths of shortened ones.
///
/// It keeps elements as their bytes, whatever they are, so that a path that cannot be one here
/// does no harm to those behind it.
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
        /// What was said.
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
    /// Elements that no path can have; told by those who make a [`Path`] of them.
    #[error("bad path: {0}")]
    Path(#[from] PathError),
}

impl Lengthener {
    /// The whole path (below the request's) of a message with this `path`, one whole
    /// MessagePack value, and `depth`: its elements, one after the other, not checked for what
    /// they are ([`Path::from_msgpack`] does that).
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

//! Path shortening (PROTOCOL): a stream's messages carry how many elements, after the request's
//! path, they share with the message before, and only the rest of their path.

use super::reply::MessageWriter;
use crate::model::path::bytes::{common_prefix, encode_array, encode_ext3};
use crate::model::path::{EXT_PATH, Path};
use crate::model::value::{Kind, Reader};

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

    /// Adds `path` and `depth` for a whole path at or below the top. The path is an extension
    /// if nothing was cut off its front, else an array; clients take both.
    pub fn add_path(&mut self, whole: &Path, message: &mut MessageWriter<'_>) {
        let below = self.write_path(whole, message);
        message.u64("depth", below as u64);
    }

    /// Adds `path` only, and returns what `depth` is, for messages where that stands elsewhere.
    pub fn write_path(&mut self, whole: &Path, message: &mut MessageWriter<'_>) -> usize {
        let below = whole.as_bytes().get(self.cut..).unwrap_or_default();
        let (shared, depth) = common_prefix(&self.last, below);
        let rest = below.get(shared..).unwrap_or_default();
        let out = message.key("path");
        if self.cut == 0 && shared == 0 {
            encode_ext3(rest, out)
        } else {
            encode_array(rest, out)
        }
        self.last.clear();
        self.last.extend_from_slice(below);
        depth
    }
}

/// The other direction: makes whole paths of shortened ones.
#[derive(Debug, Clone, Default)]
pub struct Lengthener {
    last: Path,
}

/// Why a shortened path makes no whole one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LengthenError {
    /// More elements are said to be shared than there were.
    #[error("the depth is {depth}, but the path before has only {elements} elements")]
    Depth {
        /// What was said.
        depth: usize,
        /// What there was.
        elements: usize,
    },
    /// No path.
    #[error(transparent)]
    Path(#[from] crate::model::path::PathError),
}

impl Lengthener {
    /// The whole path (below the request's) of a message with this `path`, one whole
    /// MessagePack value, and `depth`.
    ///
    /// # Errors
    /// [`LengthenError`]; the next path is then still measured from the last good one.
    pub fn lengthen(&mut self, path: &[u8], depth: usize) -> Result<Path, LengthenError> {
        let elements = self.last.len();
        if depth > elements {
            return Err(LengthenError::Depth { depth, elements });
        }
        let whole = if depth == 0 {
            Path::from_msgpack_value(path)?
        } else {
            // A rest may begin with anything but nil, as within a path; join checks that.
            let mut bytes = self.last.prefix(depth).as_bytes().to_vec();
            bytes.extend_from_slice(items(path)?);
            Path::from_msgpack(&bytes)?
        };
        self.last = whole.clone();
        Ok(whole)
    }
}

/// The elements, one after the other, of a path value.
fn items(path: &[u8]) -> Result<&[u8], crate::model::path::PathError> {
    let mut reader = Reader::new(path);
    let items = match reader.peek_kind() {
        Ok(Kind::Array) => reader.read_array_len().ok().map(|_| reader.rest()),
        Ok(Kind::Ext) => match reader.read_ext() {
            Ok((EXT_PATH, content)) => Some(content),
            _ => None,
        },
        _ => None,
    };
    match items {
        Some(items) => Ok(items),
        // Says exactly what is wrong with it.
        None => Path::from_msgpack_value(path).map(|_| &[][..]),
    }
}

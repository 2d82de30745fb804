//! Path shortening (docs/client-protocol.md, "Actions"): a stream's messages carry how many
//! elements, after the request's path, they share with the message before, and only the rest of
//! their path. A [`crate::model::lengthen::Lengthener`] restores whole paths.

use crate::model::path::Path;
use crate::model::path::bytes::{common_prefix, encode_array, encode_ext3};
use crate::protocol::client::reply::MessageWriter;

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
        self.last.extend_from_slice(whole.as_bytes().get(self.cut..).unwrap_or_default());
    }

    /// Adds `path` and `depth` for a whole path at or below the top. The path is an extension
    /// if nothing was cut off its front, else an array; clients take both.
    pub fn add_path(&mut self, whole: &Path, message: &mut MessageWriter<'_>) {
        let below = self.write_path(whole, message);
        message.u64("depth", below as u64);
    }

    /// Adds `path` only, and returns `depth`, for messages that have it in another place.
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
        self.pass(whole);
        depth
    }
}

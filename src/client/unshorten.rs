//! Whole paths from shortened ones: a stream's message says how many elements its path shares
//! with the one before it, and holds only the rest (PROTOCOL, path shortening).

use super::message::Message;
use crate::model::path::{Path, PathError};

/// The path of the last message of one stream.
#[derive(Debug, Default)]
pub struct Unshorten {
    last: Path,
}

/// Why a message's path is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnshortenError {
    /// The rest is no path, or the whole is none.
    #[error(transparent)]
    Path(#[from] PathError),
    /// It shares more than there is.
    #[error("a path shares {depth} elements with one of {length}")]
    Depth {
        /// What the message says.
        depth: u64,
        /// What the path before it has.
        length: usize,
    },
}

impl Unshorten {
    /// The message's path, seen from the path of the request; `None` when it has none. A path
    /// without a depth is whole, and does not count for the next one.
    ///
    /// # Errors
    /// The message has no good path. Nothing was changed.
    pub fn path(&mut self, message: &Message) -> Result<Option<Path>, UnshortenError> {
        let Some(rest) = message.get("path") else { return Ok(None) };
        let rest = Path::from_msgpack_value(rest)?;
        let Some(depth) = message.u64("depth") else { return Ok(Some(rest)) };
        let length = self.last.len();
        let shared = usize::try_from(depth)
            .ok()
            .filter(|shared| *shared <= length)
            .ok_or(UnshortenError::Depth { depth, length })?;
        self.last = self.last.prefix(shared).join(&rest)?;
        Ok(Some(self.last.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::message::Fields;

    fn message(depth: Option<u64>, rest: &str) -> Message {
        let mut fields = Fields::new();
        fields.path("path", &rest.parse().unwrap());
        if let Some(depth) = depth {
            fields.u64("depth", depth);
        }
        Message::new(&fields.encode()).unwrap()
    }

    #[test]
    fn each_path_builds_upon_the_one_before() {
        let mut paths = Unshorten::default();
        let mut next = |depth, rest| paths.path(&message(depth, rest)).unwrap().unwrap();
        let path = |text: &str| text.parse::<Path>().unwrap();
        assert_eq!(next(Some(0), "a"), path("a"));
        assert_eq!(next(Some(1), "b.c"), path("a.b.c"));
        assert_eq!(next(Some(2), ":"), path("a.b"));
        assert_eq!(next(None, "x.y"), path("x.y"));
        assert_eq!(next(Some(1), "z"), path("a.z"));
        assert_eq!(next(Some(0), ":"), path(":"));
    }

    #[test]
    fn a_depth_beyond_the_last_path_is_refused() {
        let mut paths = Unshorten::default();
        let error = paths.path(&message(Some(2), "a")).unwrap_err();
        assert_eq!(error, UnshortenError::Depth { depth: 2, length: 0 });
        let error = paths.path(&message(Some(u64::MAX), "a")).unwrap_err();
        assert!(matches!(error, UnshortenError::Depth { .. }));
    }

    #[test]
    fn a_message_without_a_path_has_none() {
        let message = Message::new(b"\x81\xa5depth\x01").unwrap();
        assert_eq!(Unshorten::default().path(&message), Ok(None));
    }
}

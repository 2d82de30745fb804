//! The page: what is at `/` and below `/web/`.

use crate::message::Reply;

/// The file at a path; none if there is no such file.
pub(crate) fn file(_path: &str) -> Option<Reply> {
    None
}

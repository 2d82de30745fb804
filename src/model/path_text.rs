//! The text form of paths (being refined).

use std::fmt;
use std::str::FromStr;

use super::path::{Path, PathError};

/// Why a text is no path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathTextError {
    /// The elements are good, the path of them is not.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl FromStr for Path {
    type Err = PathTextError;

    fn from_str(text: &str) -> Result<Path, PathTextError> {
        let mut path = Path::root();
        for part in text.split('.').filter(|_| text != ":") {
            path = path.push(part)?;
        }
        Ok(path)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.elements().collect::<Vec<_>>())
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Path({self})")
    }
}

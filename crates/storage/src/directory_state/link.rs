//! A directory's name that is a symbolic link to nowhere, as to a disk that is not mounted.

use std::fs;
use std::path::Path;

use crate::error::StorageError;
use crate::error::absent::is_absent;

/// So many links that lead to each other are followed, as many as Linux follows.
const LINKS_MAX: usize = 40;

/// What keeps a directory from being made, if it is a symbolic link that leads to nothing: the directory's own name, or
/// one above it.
#[must_use]
pub fn dangling_link(path: &Path) -> Option<StorageError> {
    let link = path.ancestors().find(|above| fs::symlink_metadata(above).is_ok())?;
    let leads_nowhere = fs::metadata(link).is_err_and(|error| is_absent(&error));
    if !leads_nowhere {
        return None;
    }
    let mut to = link.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(next) = fs::read_link(&to) else { break };
        to = to.parent().map_or_else(|| next.clone(), |folder| folder.join(&next));
    }
    Some(StorageError::DanglingLink {
        directory: path.display().to_string(),
        link: link.display().to_string(),
        to: to.display().to_string(),
    })
}

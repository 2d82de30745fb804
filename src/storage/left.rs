//! The data directory of a node that has left its network for good.
//!
//! The others have agreed to go on without it: they purge what it deleted or missed, and nobody waits for
//! it. So what it held must not come back as if it had been away for a while. A start on such a directory
//! puts all of it aside, in a folder of its own that nobody reads by itself, and begins with nothing.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::data_dir::DIRECTORY_MODE;
use super::disk::Disk;
use super::error::StorageError;
use super::identity::{IDENTITY_NAME, Identity, Life};
use super::recover::Files;

/// Puts the files of a life that has left for good aside; gives the folder that they are in then. None if
/// the directory's node has not left. A crash in between is gone on from by the next start.
///
/// # Errors
/// [`StorageError`]; some files may be moved already.
pub(super) fn set_aside(path: &Path, disk: &dyn Disk) -> Result<Option<PathBuf>, StorageError> {
    let files = Files::list(disk)?;
    let Some(entry) = &files.identity else { return Ok(None) };
    // One that cannot be read is for the start to complain of.
    let Ok((identity, _)) = Identity::load(disk, entry) else { return Ok(None) };
    let Life::Left { .. } = identity.life else { return Ok(None) };
    let folder = path.join(format!("left-{:016x}", identity.store));
    let shown = folder.display().to_string();
    make(&folder).map_err(StorageError::io(&shown, "make"))?;
    // The identity last: as long as it is there, the next start goes on here.
    let damaged = files.set_aside.iter().map(|(_, name)| name.as_str());
    for name in files.all().chain(damaged).chain([IDENTITY_NAME]) {
        let moved = fs::rename(path.join(name), folder.join(name));
        moved.map_err(StorageError::io(name, "set aside"))?;
    }
    let synced = File::open(&folder).and_then(|folder| folder.sync_all());
    synced.map_err(StorageError::io(&shown, "sync"))?;
    disk.sync_dir().map_err(StorageError::io("the data directory", "sync"))?;
    Ok(Some(folder))
}

fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(DIRECTORY_MODE).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

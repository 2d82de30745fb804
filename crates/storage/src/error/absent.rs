//! Files that are not there, and names with nothing to read behind them. Whoever takes such a file for none asks here, so that
//! all mean the same by it.

use std::fs::FileType;
use std::io;
use std::os::unix::fs::FileTypeExt;

use super::StorageError;
use crate::disk::Disk;

/// Whether the system says that there is nothing of that name.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// What was found, or none if there is nothing of that name.
///
/// # Errors
/// What else the system has said.
pub(crate) fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a file, if there is one of that name.
///
/// # Errors
/// [`StorageError::Io`]; the file is still there.
pub(crate) fn remove_if_there(disk: &dyn Disk, name: &str) -> Result<(), StorageError> {
    if_there(disk.remove(name)).map(|_| ()).map_err(StorageError::io(name, "remove"))
}

/// What was read of a file that others can stand in for; none if it is damaged, or if there is nothing to read.
///
/// # Errors
/// [`StorageError::Io`]: the disk failed, or this user may not read the file. It may be readable again.
pub(crate) fn if_usable<T>(read: Result<T, StorageError>) -> Result<Option<T>, StorageError> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(StorageError::Io { source, .. }) if has_no_content(&source) => Ok(None),
        Err(error @ StorageError::Io { .. }) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Whether there is nothing to read of that name, whatever the disk does: it is not there, leads nowhere, or is no file.
pub(crate) fn has_no_content(error: &io::Error) -> bool {
    leads_nowhere(error) || is_no_file(error)
}

/// Whether what was opened is not there: a symbolic link leads nowhere (ENOENT) or to itself (ELOOP), or a file was removed.
pub(crate) fn leads_nowhere(error: &io::Error) -> bool {
    const ELOOP: i32 = 40;
    is_absent(error) || error.raw_os_error() == Some(ELOOP)
}

/// Of a name that a file has otherwise, what else it is now.
#[derive(Debug, thiserror::Error)]
#[error("it is {0}, not a file")]
struct NoFile(&'static str);

/// The error of whoever opens what is no file. It is not opened: a pipe would block until somebody writes into it.
pub(crate) fn no_file(kind: FileType) -> io::Error {
    let what = match () {
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    io::Error::new(io::ErrorKind::InvalidInput, NoFile(what))
}

/// Whether it is that error.
pub(crate) fn is_no_file(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<NoFile>())
}

/// Whether the system says that a folder is where a file is, or is to be put.
pub(crate) fn is_folder(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::IsADirectory | io::ErrorKind::DirectoryNotEmpty)
}

//! What the storage needs of a disk: one directory of files that are written once, from beginning
//! to end, and are then read, renamed, truncated or removed.
//!
//! Two implementations: [`crate::directory::Directory`], a real one, and, in tests, a disk in
//! memory that counts, fails, fills, and forgets what was not synced.

use std::io::{self, Read, Write};

/// A directory.
pub trait Disk: Send + Sync {
    /// A new, empty file.
    ///
    /// # Errors
    /// As the system says; also if there is a file of that name.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// A file's content, from its beginning.
    ///
    /// # Errors
    /// As the system says; also if it is a folder, or something else that is no file.
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>>;

    /// All that there is, by name: also what is no file, so that whoever needs a file of that name does not go on without it.
    ///
    /// # Errors
    /// As the system says.
    fn list(&self) -> io::Result<Vec<DiskEntry>>;

    /// Gives a file another name; a file that has that name already is replaced. Safe after
    /// [`Disk::sync_dir`] only.
    ///
    /// # Errors
    /// As the system says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Takes a file away. Safe after [`Disk::sync_dir`] only.
    ///
    /// # Errors
    /// As the system says; [`io::ErrorKind::IsADirectory`] of a folder, which stays.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Truncates a file to the given number of bytes, and syncs it.
    ///
    /// # Errors
    /// As the system says.
    fn truncate(&self, name: &str, bytes: u64) -> io::Result<()>;

    /// Makes safe all that is in a file, whoever has written it.
    ///
    /// # Errors
    /// As the system says.
    fn sync_file(&self, name: &str) -> io::Result<()>;

    /// Makes safe which files there are, under which names.
    ///
    /// # Errors
    /// As the system says.
    fn sync_dir(&self) -> io::Result<()>;

    /// How much room there is. May take as long as the disk likes.
    ///
    /// # Errors
    /// As the system says; [`io::ErrorKind::Unsupported`] where nothing is known of it.
    fn room(&self) -> io::Result<Room> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// How much room the file system of a directory has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// What this user may still write, bytes.
    pub free: u64,
    /// All that it has, bytes; more than 0.
    pub size: u64,
}

/// A file that is being written.
pub trait DiskFile: Write + Send {
    /// Syncs everything that was written. After an error nothing is known of the bytes that were
    /// not synced before, even if a later sync succeeds.
    ///
    /// # Errors
    /// As the system says.
    fn sync(&mut self) -> io::Result<()>;

    /// Which file this is.
    ///
    /// # Errors
    /// As the system says.
    fn id(&self) -> io::Result<FileId>;
}

/// Which file something is, whatever its name: a copy is another one. A new name leaves it as
/// it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileId {
    /// The file system.
    pub device: u64,
    /// The file's number in it; used again after a file was removed.
    pub inode: u64,
    /// When it was made, nanoseconds since 1970; 0 where the file system does not say.
    pub born_ns: u64,
}

impl FileId {
    /// Whether both are the same file. If the times of creation are known, the device does not
    /// count: some systems renumber devices when they start.
    #[must_use]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let times = self.born_ns != 0 || other.born_ns != 0;
        self.inode == other.inode
            && self.born_ns == other.born_ns
            && (times || self.device == other.device)
    }
}

/// A file in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskEntry {
    /// Its name.
    pub name: String,
    /// How long it is.
    pub bytes: u64,
    /// Which file it is.
    pub(crate) id: FileId,
    /// When it was last changed in any way, nanoseconds since 1970. Unlike the time of the last
    /// write, it cannot be set, so it shows whether a file was put back over itself.
    pub(crate) changed_ns: u64,
}

#[cfg(test)]
mod tests {
    use crate::disk::*;

    #[test]
    fn a_copy_is_another_file_even_if_it_got_the_same_number() {
        let file = FileId { device: 1, inode: 7, born_ns: 5 };
        assert!(file.is_same(&FileId { device: 2, ..file }));
        assert!(!file.is_same(&FileId { born_ns: 6, ..file }));
        assert!(!file.is_same(&FileId { inode: 8, ..file }));
        let timeless = FileId { born_ns: 0, ..file };
        assert!(!timeless.is_same(&FileId { device: 2, ..timeless }));
        assert!(timeless.is_same(&timeless) && !timeless.is_same(&file));
    }
}

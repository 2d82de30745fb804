//! A real directory as a [`Disk`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::disk::{Disk, DiskEntry, DiskFile, FileId, Room};
use crate::error::absent::{is_absent, leads_nowhere, no_file};

/// Files hold all that the node holds: they are for its user only.
pub(crate) const FILE_MODE: u32 = 0o600;

/// A directory of the file system.
#[derive(Debug, Clone)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// The directory at a path; it should be there.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Disk for Directory {
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        let file =
            options.write(true).create_new(true).mode(FILE_MODE).open(self.path.join(name))?;
        Ok(Box::new(RealFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let path = self.path.join(name);
        let kind = fs::metadata(&path)?.file_type();
        if !kind.is_file() {
            return Err(no_file(kind));
        }
        Ok(Box::new(File::open(path)?))
    }

    fn list(&self) -> io::Result<Vec<DiskEntry>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            // What a link leads to is the file. One that leads nowhere, or to itself, is listed all the same, and so is what
            // is no file: whoever needs a file of that name has an error then, and does not go on without it.
            let metadata = match fs::metadata(entry.path()) {
                Err(error) if leads_nowhere(&error) => entry.metadata(),
                found => found,
            };
            let metadata = match metadata {
                Ok(metadata) => metadata,
                // It went away meanwhile.
                Err(error) if is_absent(&error) => continue,
                Err(error) => return Err(error),
            };
            let changed_ns = nanoseconds(metadata.ctime(), metadata.ctime_nsec());
            let (bytes, id) = (metadata.len(), FileId::of(&metadata));
            files.push(DiskEntry { name, bytes, id, changed_ns });
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn truncate(&self, name: &str, bytes: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(self.path.join(name))?;
        file.set_len(bytes)?;
        file.sync_all()
    }

    fn sync_file(&self, name: &str) -> io::Result<()> {
        OpenOptions::new().write(true).open(self.path.join(name))?.sync_all()
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn room(&self) -> io::Result<Room> {
        let found = rustix::fs::statvfs(&self.path)?;
        // Some file systems in user space, and some over a network, tell nothing and say 0.
        match found.f_blocks.saturating_mul(found.f_frsize) {
            0 => Err(io::ErrorKind::Unsupported.into()),
            size => Ok(Room { free: found.f_bavail.saturating_mul(found.f_frsize), size }),
        }
    }
}

struct RealFile(File);

impl Write for RealFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl DiskFile for RealFile {
    fn sync(&mut self) -> io::Result<()> {
        // The length of a file that grew is synced with its data; times need not be.
        self.0.sync_data()
    }

    fn id(&self) -> io::Result<FileId> {
        Ok(FileId::of(&self.0.metadata()?))
    }
}

impl FileId {
    /// The one of a real file.
    #[must_use]
    pub fn of(metadata: &fs::Metadata) -> Self {
        let born = metadata.created().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            born_ns: born.and_then(|t| u64::try_from(t.as_nanos()).ok()).unwrap_or(0),
        }
    }
}

fn nanoseconds(seconds: i64, nanoseconds: i64) -> u64 {
    let all = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
    u64::try_from(all).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use crate::directory::*;
    use crate::error::absent::is_no_file;

    #[test]
    fn a_file_keeps_its_id_under_another_name_and_a_copy_has_another() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Directory::new(folder.path());
        let write = |name| {
            let mut file = disk.create(name).unwrap();
            file.write_all(b"same").unwrap();
            file.sync().unwrap();
            file.id().unwrap()
        };
        let (first, copy) = (write("a"), write("copy"));
        assert!(!first.is_same(&copy));
        assert_eq!(disk.create("a").err().unwrap().kind(), io::ErrorKind::AlreadyExists);
        disk.rename("a", "b").unwrap();
        disk.sync_dir().unwrap();
        let entry = disk.list().unwrap().remove(0);
        assert_eq!((entry.name.as_str(), entry.bytes), ("b", 4));
        assert!(entry.id.is_same(&first));
        disk.truncate("b", 2).unwrap();
        disk.sync_file("b").unwrap();
        assert!(disk.sync_file("nothing").is_err());
        disk.remove("copy").unwrap();
        assert_eq!(disk.list().unwrap().len(), 1);
        let mut content = Vec::new();
        disk.open("b").unwrap().read_to_end(&mut content).unwrap();
        assert_eq!(content, b"sa");
    }

    #[test]
    fn a_directory_has_the_room_of_its_file_system_and_one_that_is_gone_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let room = Directory::new(folder.path()).room().unwrap();
        assert!(room.size > 0 && room.free <= room.size, "{room:?}");
        assert!(Directory::new(&folder.path().join("gone")).room().is_err());
        // It has files, and no blocks.
        let told = Directory::new(Path::new("/proc")).room().map_err(|error| error.kind());
        assert_eq!(told, Err(io::ErrorKind::Unsupported));
    }

    #[test]
    fn what_a_link_leads_to_is_a_file_and_nothing_of_a_file_s_name_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        fs::create_dir(&path).unwrap();
        let disk = Directory::new(&path);
        fs::write(folder.path().join("elsewhere"), b"data").unwrap();
        std::os::unix::fs::symlink("../elsewhere", path.join("a")).unwrap();
        std::os::unix::fs::symlink("nowhere", path.join("b")).unwrap();
        fs::create_dir(path.join("c")).unwrap();
        std::os::unix::fs::symlink("d", path.join("d")).unwrap();
        drop(std::os::unix::net::UnixListener::bind(path.join("e")).unwrap());
        let found = disk.list().unwrap();
        let names: Vec<&str> = found.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c", "d", "e"]);
        assert_eq!(found[0].bytes, 4);
        assert!(found[0].id.is_same(&FileId::of(&fs::metadata(path.join("a")).unwrap())));
        for name in ["b", "d"] {
            assert!(disk.open(name).is_err_and(|error| leads_nowhere(&error)), "{name}");
        }
        for name in ["c", "e"] {
            assert!(disk.open(name).is_err_and(|error| is_no_file(&error)), "{name}");
        }
    }
}

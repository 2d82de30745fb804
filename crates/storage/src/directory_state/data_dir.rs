//! A node's data directory: one node at a time (a lock), and the order in which files come and go.
//!
//! The order, at a start: [`DataDir::open`], [`DataDir::recover`], if
//! [`needs_snapshot`](crate::recover::NextLog) then [`DataDir::save`], then [`DataDir::begin_log`],
//! and only then anything may leave the node. While it runs: [`DataDir::rotate`], then a snapshot
//! of that moment's state with [`DataDir::save`] under the new log's number, then
//! [`DataDir::prune`]. After a failure: a snapshot under a new number, then a log of that number
//! that starts from it ([`LogStart::Snapshot`]). At the end: [`DataDir::stop`].

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::foreign::only_foreign;
use super::left_network::set_aside;
use super::link::dangling_link;
use crate::directory::{Directory, FILE_MODE};
use crate::disk::{Disk, FileId};
use crate::engine::{Image, Knowledge};
use crate::error::StorageError;
use crate::error::absent::{is_absent, is_folder, is_no_file};
use crate::header::{FileHeader, LogStart};
use crate::identity::{Identity, Life};
use crate::log::LogWriter;
use crate::model::ids::NodeTable;
use crate::past::{Keep, expendable};
use crate::recover::{Files, RecoverOptions, Recovered, recover};
use crate::snapshot::{Progress, SnapshotInfo, SnapshotReader, SnapshotSummary, write_snapshot};

/// The file that whoever uses a data directory has locked.
pub const LOCK_NAME: &str = "lock";
/// So much of it is read, to say which process that is.
const HOLDER_BYTES_MAX: u64 = 64;
/// For its user only: it holds all that the node holds.
pub(super) const DIRECTORY_MODE: u32 = 0o700;

/// A data directory in use.
pub struct DataDir {
    disk: Arc<dyn Disk>,
    /// Where it is, and its lock; none on a disk of a test.
    place: Option<Place>,
    /// Where the old files are now, if the directory's node had left for good.
    left: Option<PathBuf>,
}

impl DataDir {
    /// Takes a directory into use; it is created if it does not exist. If its node has left its
    /// network for good, its files are set aside ([`DataDir::left`]), and it is empty.
    ///
    /// # Errors
    /// [`StorageError::Foreign`] if it has files of something else and none of a node: nothing was written then.
    /// [`StorageError::DanglingLink`] if its name is a symbolic link to nowhere.
    /// [`StorageError::Locked`] if another node uses it; [`StorageError::Io`].
    pub fn open(path: &Path) -> Result<Self, StorageError> {
        let shown = path.display().to_string();
        make(path).map_err(|error| {
            dangling_link(path).unwrap_or_else(|| StorageError::io(&shown, "make")(error))
        })?;
        let foreign = only_foreign(path).map_err(StorageError::io(&shown, "list"))?;
        if let Some(names) = foreign {
            return Err(StorageError::Foreign { directory: shown, names });
        }
        let lock = lock(path, &shown)?;
        let disk = Directory::new(path);
        let left = set_aside(path, &disk)?;
        let place = Place::of(path, lock).map_err(StorageError::io(&shown, "look at"))?;
        Ok(Self { disk: Arc::new(disk), place: Some(place), left })
    }

    /// Checks that the directory is still where it was opened. Files are opened by name, so they would get into
    /// another one that was put there.
    ///
    /// # Errors
    /// [`StorageError::Replaced`]; nothing was written.
    pub fn check_place(&self) -> Result<(), StorageError> {
        match &self.place {
            Some(place) if !place.is_ours() => {
                Err(StorageError::Replaced { directory: place.path.display().to_string() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The same, and that a log in use is still there: what is written into a file that was removed is nowhere.
    ///
    /// # Errors
    /// [`StorageError::Replaced`], [`StorageError::LogGone`]; nothing was written.
    pub fn check_log(&self, log: &LogWriter) -> Result<(), StorageError> {
        self.check_place()?;
        let Some(place) = &self.place else { return Ok(()) };
        let is_ours = match fs::symlink_metadata(place.path.join(log.name())) {
            Ok(there) => log.is_in(&FileId::of(&there), there.len()),
            // Another error the next write tells.
            Err(error) => !is_absent(&error),
        };
        match is_ours {
            true => Ok(()),
            false => Err(StorageError::LogGone { file: log.name().to_owned() }),
        }
    }

    /// The folder in which the files of a node are that had left its network for good; none if it had
    /// not.
    #[must_use]
    pub fn left(&self) -> Option<&Path> {
        self.left.as_deref()
    }

    /// The same on any disk, without a lock; for tests.
    #[must_use]
    pub fn on(disk: Arc<dyn Disk>) -> Self {
        Self { disk, place: None, left: None }
    }

    /// Its files.
    #[must_use]
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Reads the directory ([`recover`]) and truncates incomplete ends, so that it can be
    /// continued.
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn recover(
        &self,
        network: &str,
        name: &str,
        options: &RecoverOptions,
        progress: &mut dyn FnMut(&str, Progress),
    ) -> Result<Recovered, StorageError> {
        let recovered = recover(&*self.disk, network, name, options, progress)?;
        recovered.repair(&*self.disk)?;
        Ok(recovered)
    }

    /// Begins a log and records that it exists. What is appended to it is safe once it is synced.
    ///
    /// # Errors
    /// [`StorageError`]; then there is no such log, or an unused one. Its number must not be used
    /// again.
    pub fn begin_log(
        &self,
        header: &FileHeader,
        start: LogStart,
        knowledge: &Knowledge,
        table: &NodeTable,
    ) -> Result<LogWriter, StorageError> {
        self.check_place()?;
        let log = LogWriter::create(&*self.disk, header, start, knowledge, table)?;
        self.note(header, Life::Running { log: header.number })?;
        Ok(log)
    }

    /// Closes a log and begins the next one, which continues it.
    ///
    /// # Errors
    /// [`StorageError`]; the log is closed, or has failed, and there is no next one, or an unused
    /// one.
    pub fn rotate(
        &self,
        log: LogWriter,
        header: &FileHeader,
        knowledge: &Knowledge,
        table: &NodeTable,
    ) -> Result<LogWriter, StorageError> {
        let start = log.close()?;
        self.begin_log(header, start, knowledge, table)
    }

    /// Ends the last log: the node stops in an orderly way. After this nothing may leave the node.
    ///
    /// # Errors
    /// [`StorageError`]; everything that was appended before may be safe or not.
    pub fn stop(
        &self,
        log: LogWriter,
        time_ms: u64,
        knowledge: &Knowledge,
        table: &NodeTable,
    ) -> Result<(), StorageError> {
        let (header, name) = (log.header().clone(), log.name().to_owned());
        let stopped = log.stop(time_ms, knowledge, table)?;
        let files = self.disk.list().map_err(StorageError::io("the data directory", "list"))?;
        let entry = files.into_iter().find(|entry| entry.name == name);
        let changed_ns = entry.map_or(0, |entry| entry.changed_ns);
        let (log, bytes) = (stopped.number, stopped.bytes);
        self.note(&header, Life::Stopped { log, bytes, changed_ns })
    }

    /// The node whose last log that was ([`DataDir::stop`]) does not come back.
    ///
    /// # Errors
    /// [`StorageError`]; the directory says that the node has stopped, or that it has left.
    pub fn note_left(&self, header: &FileHeader) -> Result<(), StorageError> {
        self.note(header, Life::Left { log: header.number })
    }

    fn note(&self, header: &FileHeader, life: Life) -> Result<(), StorageError> {
        self.check_place()?;
        let (network, name) = (header.network.clone(), header.id.name.clone());
        Identity { network, name, store: header.store, life }.store(&*self.disk)
    }

    /// Writes a snapshot, and reads it back. Takes long; can be done while the log is written.
    ///
    /// # Errors
    /// [`StorageError`]; there is no such snapshot.
    pub fn save(
        &self,
        header: &FileHeader,
        image: &Image,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<SnapshotInfo, StorageError> {
        self.check_place()?;
        let info = write_snapshot(&*self.disk, header, image, progress)?;
        match self.verify(&info) {
            Ok(()) => Ok(info),
            Err(error) => {
                // An invalid file must not take the place of a snapshot. The first error is the one
                // to report.
                let _ = self.disk.remove(&info.name);
                let _ = self.disk.sync_dir();
                Err(error)
            }
        }
    }

    fn verify(&self, info: &SnapshotInfo) -> Result<(), StorageError> {
        let reader = SnapshotReader::open(&*self.disk, info.number)?;
        let SnapshotSummary { header, entries, tombstones, bytes, .. } =
            reader.verify(&mut |_| {})?;
        let read = (header.number, entries, tombstones, bytes);
        if read == (info.number, info.entries, info.tombstones, info.bytes) {
            return Ok(());
        }
        Err(StorageError::NotVerified { file: info.name.clone() })
    }

    /// Removes files that need not be kept any more, now that the snapshot `verified` is known to
    /// be valid. Returns their names.
    ///
    /// # Errors
    /// [`StorageError::Io`]; some may be removed.
    pub fn prune(&self, verified: u64, keep: &Keep) -> Result<Vec<String>, StorageError> {
        self.check_place()?;
        let files = Files::list(&*self.disk)?;
        let old = expendable(&*self.disk, &files, verified, keep)?;
        let mut removed = Vec::new();
        for name in old {
            match self.disk.remove(&name) {
                Ok(()) => removed.push(name),
                // It is somebody's, with all that is in it; what else is old may go.
                Err(error) if is_folder(&error) => {}
                Err(error) => return Err(StorageError::io(&name, "remove")(error)),
            }
        }
        if !removed.is_empty() {
            self.disk.sync_dir().map_err(StorageError::io("the data directory", "sync"))?;
        }
        Ok(removed)
    }

    /// Removes history that is kept only for its age, because the disk is full; only if the newest
    /// snapshot is read and found valid. Returns whether there is more room now.
    ///
    /// # Errors
    /// [`StorageError`]; some may be removed.
    pub fn make_room(&self, snapshots: usize) -> Result<bool, StorageError> {
        let files = Files::list(&*self.disk)?;
        let Some((number, _)) = files.snapshots.last_key_value() else { return Ok(false) };
        let keep = Keep::snapshots(snapshots);
        let old = expendable(&*self.disk, &files, *number, &keep)?;
        // What is no file is not removed, so it is no reason to read a whole snapshot.
        let is_file = |name: &String| !self.disk.open(name).is_err_and(|error| is_no_file(&error));
        if !old.iter().any(is_file) {
            return Ok(false);
        }
        SnapshotReader::open(&*self.disk, *number)?.verify(&mut |_| {})?;
        Ok(!self.prune(*number, &keep)?.is_empty())
    }
}

/// Where a directory is, and what shows that it is still there.
struct Place {
    path: PathBuf,
    /// Locked as long as it is open.
    _lock: File,
    /// Device and inode of the lock's file, and of the directory.
    lock_id: (u64, u64),
    directory_id: (u64, u64),
}

impl Place {
    fn of(path: &Path, lock: File) -> io::Result<Self> {
        let (lock_id, directory_id) = (id_of(&lock.metadata()?), id_of(&fs::metadata(path)?));
        Ok(Self { path: path.to_owned(), _lock: lock, lock_id, directory_id })
    }

    /// Whether the same directory is still there. What cannot be looked at is not taken for another one: using it
    /// will fail.
    fn is_ours(&self) -> bool {
        match fs::symlink_metadata(self.path.join(LOCK_NAME)) {
            Ok(lock) => id_of(&lock) == self.lock_id,
            // Somebody may have tidied up.
            Err(error) if is_absent(&error) => match fs::metadata(&self.path) {
                Ok(directory) => id_of(&directory) == self.directory_id,
                Err(error) => !is_absent(&error),
            },
            Err(_) => true,
        }
    }
}

fn id_of(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Makes a directory, and those above it that are not there.
fn make(path: &Path) -> io::Result<()> {
    let parents = missing_parents(path, Path::is_dir);
    if parents.is_empty() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
    // Each new name survives a power cut only when the directory that it is in is synced.
    parents.into_iter().try_for_each(|parent| File::open(parent)?.sync_all())
}

/// The directories that get a new name when `path` is made, from the top down.
fn missing_parents(path: &Path, is_there: impl Fn(&Path) -> bool) -> Vec<&Path> {
    let here = Path::new(".");
    let mut parents: Vec<&Path> = (path.ancestors())
        .take_while(|path| !path.as_os_str().is_empty() && !is_there(path))
        .filter_map(Path::parent)
        .map(|parent| if parent.as_os_str().is_empty() { here } else { parent })
        .collect();
    parents.reverse();
    parents
}

fn lock(path: &Path, shown: &str) -> Result<File, StorageError> {
    let name = path.join(LOCK_NAME);
    let shown_lock = name.display().to_string();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
    let mut file = options.open(&name).map_err(StorageError::io(&shown_lock, "open"))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(StorageError::Locked { directory: shown.to_owned(), by: holder(&name) });
        }
        Err(TryLockError::Error(error)) => {
            return Err(StorageError::io(&shown_lock, "lock")(error));
        }
    }
    // For an operator who finds it locked. A full disk is no reason not to start.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "process {}", std::process::id()));
    Ok(file)
}

/// Which process has locked a file, by what it has written into it; none where that says nothing of the kind: a full disk
/// takes no line.
fn holder(lock: &Path) -> Option<u32> {
    let mut line = String::new();
    File::open(lock).ok()?.take(HOLDER_BYTES_MAX).read_to_string(&mut line).ok()?;
    line.trim().strip_prefix("process ")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use crate::data_dir::*;

    #[test]
    fn a_directory_is_made_and_used_by_one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let first = DataDir::open(&path).unwrap();
        let told = |path: &Path| DataDir::open(path).err().unwrap().to_string();
        let shown = path.display();
        let by = format!(
            "{shown}: another node uses this data directory (process {}); stop that node",
            std::process::id()
        );
        assert!(told(&path).starts_with(&by), "{}", told(&path));
        // Who it is need not be known.
        for line in ["", "process x", &"process 1".repeat(50)] {
            fs::write(path.join(LOCK_NAME), line).unwrap();
            let text = format!(
                "{shown}: another node uses this data directory (its file 'lock' is locked); stop"
            );
            assert!(told(&path).starts_with(&text), "{}", told(&path));
        }
        drop(first);
        DataDir::open(&path).unwrap();
    }

    #[test]
    fn a_lock_file_that_cannot_be_opened_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let lock = folder.path().join(LOCK_NAME);
        fs::create_dir(&lock).unwrap();
        fs::write(folder.path().join("identity"), "").unwrap();
        let told = DataDir::open(folder.path()).err().unwrap().to_string();
        let text = format!("{}: cannot open: ", lock.display());
        assert!(told.starts_with(&text) && told.contains("directory"), "{told}");
    }

    /// As to a disk that is not mounted.
    #[test]
    fn a_link_to_nowhere_is_called_that_and_a_file_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let shown = |name: &str| at(name).display().to_string();
        let told = |name: &str| DataDir::open(&at(name)).err().unwrap().to_string();
        symlink("disk/n1", at("link")).unwrap();
        symlink(at("link"), at("second")).unwrap();
        for name in ["link", "second"] {
            let says = "which does not exist (is the disk mounted?)";
            let text =
                format!("{}: it is a symbolic link to {}, {says}", shown(name), shown("disk/n1"));
            assert!(told(name).starts_with(&text), "{}", told(name));
        }
        let text = format!(
            "{}: {} is a symbolic link to {}, which does not exist",
            shown("link/a/b"),
            shown("link"),
            shown("disk/n1")
        );
        assert!(told("link/a/b").starts_with(&text), "{}", told("link/a/b"));
        fs::write(at("file"), "").unwrap();
        symlink(at("file"), at("to-file")).unwrap();
        symlink(at("round"), at("round")).unwrap();
        assert!(told("file").contains("it is a file"), "{}", told("file"));
        assert!(told("to-file").contains("it is a file"), "{}", told("to-file"));
        assert!(!told("round").contains("mounted"), "{}", told("round"));
        // Once the disk is there, it is as good as any.
        fs::create_dir_all(at("disk/n1")).unwrap();
        assert!(dangling_link(&at("second")).is_none());
        DataDir::open(&at("link/a/b")).unwrap();
    }

    #[test]
    fn another_directory_in_its_place_is_noticed_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (path, away) = (folder.path().join("data"), folder.path().join("away"));
        let held = DataDir::open(&path).unwrap();
        let is_replaced =
            || matches!(held.check_place(), Err(StorageError::Replaced { .. })).then_some(());
        held.check_place().unwrap();
        fs::rename(&path, &away).unwrap();
        is_replaced().unwrap();
        let other = DataDir::open(&path).unwrap();
        is_replaced().unwrap();
        other.check_place().unwrap();
        let error = held.prune(1, &Keep::snapshots(1)).unwrap_err();
        assert!(error.to_string().contains("put it back"), "{error}");
        // Another one may have been begun in the very directory, if only its lock was removed.
        assert!(error.to_string().contains("the file 'lock' in it"), "{error}");
        drop(other);
        fs::remove_dir_all(&path).unwrap();
        fs::rename(&away, &path).unwrap();
        held.check_place().unwrap();
        fs::remove_file(path.join(LOCK_NAME)).unwrap();
        held.check_place().unwrap();
    }

    #[test]
    fn every_directory_that_gets_a_new_name_is_synced() {
        let parents = |path, there: &[&str]| {
            let is_there = |path: &Path| there.iter().any(|there| path == Path::new(there));
            let parents = missing_parents(Path::new(path), is_there);
            parents.iter().map(|path| path.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(parents("/v/a/b/c", &["/", "/v"]), ["/v", "/v/a", "/v/a/b"]);
        assert_eq!(parents("/v/a", &["/", "/v"]), ["/v"]);
        assert_eq!(parents("a/b", &[]), [".", "a"]);
        assert_eq!(parents("a/../b", &["a", "a/.."]), ["a/.."]);
        assert!(parents("a", &["a"]).is_empty());
    }
}

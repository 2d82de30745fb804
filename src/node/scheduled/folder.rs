//! The files of scheduled snapshots: `NODE-20261123T030000Z.dkv`, written whole or not at all, verified, and removed
//! by number and age. Other files in the directory are left alone.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::engine::Image;
use crate::rt;
use crate::storage::snapshot::write_snapshot_to;
use crate::storage::{FileHeader, FileId, SnapshotReader, verify_snapshot};

/// How the moment is written in a file's name, in UTC.
const MOMENT: &str = "%Y%m%dT%H%M%SZ";
/// How names of snapshots end.
const SUFFIX: &str = ".dkv";
/// How names of files that are not whole yet end.
const PARTIAL: &str = ".partial";
/// A directory with more files is another one.
const FILES_MAX: usize = 100_000;

/// A directory for one node's scheduled snapshots.
pub(super) struct Folder {
    path: PathBuf,
    /// What the names of this node's files begin with.
    prefix: String,
    /// Locked as long as it is open, so that no node of the same name (and of another network, it may be) takes this one's
    /// files for its own.
    _lock: File,
}

/// A snapshot that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Made {
    /// Its file's name.
    pub(super) file: String,
    /// When, milliseconds since 1970, to the second.
    pub(super) time_ms: u64,
    /// Bytes.
    pub(super) bytes: u64,
    /// With tombstones; none if it was made before this start.
    pub(super) entries: Option<u64>,
}

/// What came of removing old snapshots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pruned {
    /// The names of those that were removed.
    pub(super) removed: Vec<String>,
    /// One stays though it is old, because all that were made since hold nothing.
    pub(super) spared: Option<String>,
}

impl Folder {
    /// Makes the directory if it is not there, and removes what a crash left half written.
    ///
    /// # Errors
    /// Those of the file system; also if no file can be made there, or another node of that name has its snapshots there.
    pub(super) fn open(path: &Path, node: &str) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let prefix = format!("{}-", plain(node));
        let lock = path.join(format!(".{prefix}lock"));
        let lock =
            File::options().write(true).create(true).truncate(false).mode(0o600).open(lock)?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let text = format!(
                    "another node named {node} has its snapshots there; give each a directory of its own"
                );
                return Err(io::Error::other(text));
            }
            // Without locks, as on some network file systems, it is up to the operator.
            Err(TryLockError::Error(_)) | Ok(()) => {}
        }
        let folder = Self { path: path.to_owned(), prefix, _lock: lock };
        for entry in folder.entries()? {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let whole = name.strip_suffix(PARTIAL);
            if whole.is_some_and(|whole| folder.moment_of(whole).is_some()) {
                fs::remove_file(path.join(&*name))?;
            }
        }
        // A directory that cannot be written to should be known at the start.
        let probe = folder.name_at(0)? + PARTIAL;
        folder.create(&probe)?;
        fs::remove_file(path.join(probe))?;
        Ok(folder)
    }

    /// This node's snapshots, in the order in which they were made, as far as their names tell: those of a time that
    /// is still to come are of a clock that was ahead, and count as older than all others.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn list(&self, now_ms: u64) -> io::Result<Vec<Made>> {
        let mut found = Vec::new();
        for entry in self.entries()? {
            let file = entry.file_name().to_string_lossy().into_owned();
            if let Some(time_ms) = self.moment_of(&file) {
                found.push(Made { file, time_ms, bytes: entry.metadata()?.len(), entries: None });
            }
        }
        found.sort_by_key(|made| (made.time_ms <= now_ms, made.time_ms));
        Ok(found)
    }

    /// Writes a snapshot, and reads it again before it gets its name.
    ///
    /// # Errors
    /// What failed, for people; nothing of it stays.
    pub(super) fn write(&self, header: &FileHeader, image: &Image) -> Result<Made, String> {
        let name = self.name_at(header.time_ms).map_err(|error| error.to_string())?;
        let partial = format!("{name}{PARTIAL}");
        let place = self.path.join(&partial);
        let failed = |error: io::Error| format!("{}: {error}", place.display());
        let written = (|| {
            let file = self.create(&partial).map_err(failed)?;
            let mut out = BufWriter::new(&file);
            let info = write_snapshot_to(&mut out, header, FileId::default(), image, &mut |_| {})
                .map_err(failed)?;
            out.flush().map_err(failed)?;
            drop(out);
            file.sync_all().map_err(failed)?;
            let source = File::open(&place).map_err(failed)?;
            verify_snapshot(&partial, Box::new(source), &mut |_| {})
                .map_err(|error| error.to_string())?;
            let whole = self.path.join(&name);
            if whole.exists() {
                return Err(format!("{}: it is there already, and stays", whole.display()));
            }
            fs::rename(&place, whole).map_err(failed)?;
            File::open(&self.path).and_then(|folder| folder.sync_all()).map_err(failed)?;
            let time_ms = header.time_ms;
            Ok(Made { file: name, time_ms, bytes: info.bytes, entries: Some(info.entries) })
        })();
        if written.is_err() {
            let _ = fs::remove_file(&place);
        }
        written
    }

    /// Removes snapshots that are neither among the newest `keep` nor younger than `keep_for`, which is counted by
    /// `age_time_ms` ([`distkv_durable::AgeClock`]): a snapshot that is made now counts, even if `now_ms` is wrong. Where none
    /// of those holds an entry, the newest one that does is spared: a node that has lost its data goes on to make snapshots.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn prune(
        &self,
        (now_ms, age_time_ms): (u64, u64),
        keep: usize,
        keep_for: Duration,
    ) -> io::Result<Pruned> {
        let all = self.list(now_ms)?;
        let (old, kept) = all.split_at(all.len().saturating_sub(keep));
        let newest = |of: &[Made]| of.iter().rev().find(|made| self.has_entries(made)).cloned();
        let spared = if newest(kept).is_some() { None } else { newest(old) };
        let young = rt::millis(keep_for);
        let mut removed = Vec::new();
        for made in old.iter().filter(|made| spared.as_ref() != Some(made)) {
            if age_time_ms.saturating_sub(made.time_ms) >= young {
                fs::remove_file(self.path.join(&made.file))?;
                removed.push(made.file.clone());
            }
        }
        Ok(Pruned { removed, spared: spared.map(|made| made.file) })
    }

    /// Whether a snapshot holds an entry, as its head says.
    fn has_entries(&self, made: &Made) -> bool {
        let opened = File::open(self.path.join(&made.file));
        let reader = opened.map(|file| SnapshotReader::new(&made.file, Box::new(file)));
        // One that cannot be read is of no use.
        matches!(reader, Ok(Ok(reader)) if reader.progress().total > 0)
    }

    /// All files.
    fn entries(&self) -> io::Result<Vec<fs::DirEntry>> {
        let found =
            fs::read_dir(&self.path)?.take(FILES_MAX + 1).collect::<io::Result<Vec<_>>>()?;
        match found.len() {
            0..=FILES_MAX => Ok(found),
            _ => {
                let text = format!("it has more than {FILES_MAX} files; take another one");
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
        }
    }

    fn create(&self, name: &str) -> io::Result<File> {
        // It has all data: only the node's user may read it.
        File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.path.join(name))
    }

    fn name_at(&self, time_ms: u64) -> io::Result<String> {
        let bad = || io::Error::other("the clock shows a time that no calendar has");
        let moment = i64::try_from(time_ms).map_err(|_| bad())?;
        let moment = Timestamp::from_millisecond(moment).map_err(|_| bad())?;
        Ok(format!("{}{}{SUFFIX}", self.prefix, moment.strftime(MOMENT)))
    }

    /// When the snapshot with this name was made; none if it is none of this node's.
    fn moment_of(&self, name: &str) -> Option<u64> {
        let moment = name.strip_prefix(&self.prefix)?.strip_suffix(SUFFIX)?;
        let moment = DateTime::strptime(MOMENT, moment).ok()?;
        let moment = TimeZone::UTC.to_timestamp(moment).ok()?;
        u64::try_from(moment.as_millisecond()).ok()
    }
}

/// A node's name as a part of a file's name: what could mean something there is written as `%` and its bytes.
fn plain(name: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    let bytes = name.bytes().map(|b| match is_plain(b) {
        true => char::from(b).to_string(),
        false => format!("%{b:02x}"),
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-21T00:00:00Z.
    const DAY_MS: u64 = 1_795_219_200_000;

    fn make(folder: &Folder, time_ms: u64) -> String {
        let name = folder.name_at(time_ms).unwrap();
        folder.create(&name).unwrap();
        name
    }

    #[test]
    fn of_two_nodes_with_one_name_the_second_one_takes_another_directory() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path(), "n1").unwrap();
        let refused = Folder::open(place.path(), "n1").map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains("another node named n1"), "{refused}");
        drop(folder);
        Folder::open(place.path(), "n1").unwrap();
    }

    #[test]
    fn number_and_age_decide_what_is_kept_and_other_files_stay() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path(), "n1").unwrap();
        let other = Folder::open(place.path(), "n1-b").unwrap();
        fs::write(place.path().join("n1-notes.dkv"), "").unwrap();
        make(&other, DAY_MS);
        let names: Vec<String> = (0..5).map(|n| make(&folder, DAY_MS + n * 3_600_000)).collect();
        assert_eq!(names[1], "n1-20261121T010000Z.dkv");
        let now = DAY_MS + 5 * 3_600_000;
        let hours = |n: u64| Duration::from_secs(n * 3_600);
        assert_eq!(folder.prune((now, now), 2, hours(6)).unwrap().removed, Vec::<String>::new());
        assert_eq!(folder.prune((now, now), 2, hours(4)).unwrap().removed, names[..2]);
        assert_eq!(folder.prune((now, now), 1, Duration::ZERO).unwrap().removed, names[2..4]);
        let left: Vec<String> =
            folder.list(now).unwrap().into_iter().map(|made| made.file).collect();
        assert_eq!(left, names[4..]);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 3 + 2, "and two locks");
    }

    /// Where a new one was removed at once, because those of the clock that was ahead looked newer.
    #[test]
    fn what_a_clock_that_was_ahead_has_made_gives_way_to_what_is_made_now() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path(), "n1").unwrap();
        let [before, ahead, later, now] =
            [0, 30, 31, 1].map(|day| make(&folder, DAY_MS + day * 86_400_000));
        let now_ms = DAY_MS + 86_400_000;
        let listed = |folder: &Folder| -> Vec<String> {
            folder.list(now_ms).unwrap().into_iter().map(|made| made.file).collect()
        };
        assert_eq!(listed(&folder), [&ahead, &later, &before, &now].map(Clone::clone));
        let a_week = Duration::from_secs(7 * 86_400);
        assert_eq!(
            folder.prune((now_ms, now_ms), 2, a_week).unwrap().removed,
            Vec::<String>::new()
        );
        assert_eq!(
            folder.prune((now_ms, now_ms), 2, Duration::ZERO).unwrap().removed,
            [ahead, later]
        );
        assert_eq!(listed(&folder), [before, now]);
    }

    #[test]
    fn a_moment_with_the_clock_ahead_makes_none_old() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path(), "n1").unwrap();
        let made = [0, 1, 2, 367].map(|day| make(&folder, DAY_MS + day * 86_400_000));
        let (ahead_ms, right_ms) = (DAY_MS + 367 * 86_400_000, DAY_MS + 2 * 86_400_000);
        let days = |n: u64| Duration::from_secs(n * 86_400);
        let removed = |days| folder.prune((ahead_ms, right_ms), 1, days).unwrap().removed;
        assert_eq!(removed(days(30)), Vec::<String>::new());
        assert_eq!(removed(days(2)), made[..1]);
        assert_eq!(
            removed(Duration::ZERO),
            made[1..3],
            "as many as are wanted, whatever their age"
        );
    }

    #[test]
    fn what_a_crash_left_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let half = place.path().join("n1-20261121T010000Z.dkv.partial");
        let foreign = place.path().join("notes.partial");
        fs::write(&half, "").unwrap();
        fs::write(&foreign, "").unwrap();
        Folder::open(place.path(), "n1").unwrap();
        assert!(!half.exists() && foreign.exists());
    }

    #[test]
    fn any_name_of_a_node_is_a_name_of_a_file() {
        assert_eq!(plain("n1.example"), "n1%2eexample");
        assert_eq!(plain("../ä"), "%2e%2e%2f%c3%a4");
    }
}

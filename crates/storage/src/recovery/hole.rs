//! Holes in the history of a directory: a log of it is missing or cut, is another node's, or cannot be read, and the next one
//! goes on from where it ended. A start does not notice, as a newer snapshot has all that came before it; but the states
//! between the hole and the next snapshot are lost.
//!
//! What a log begins with says how long the one before it was. So its head is read, and no more: that is done at each start.

use super::heads::Heads;
use super::recover::{Files, Owner, life_in, take_never_begun, take_unborn};
use crate::disk::{Disk, DiskEntry};
use crate::error::{FileKind, StorageError};
use crate::header::LogStart;
use crate::log::log_name;
use crate::past::first_base;
use crate::snapshot::{SnapshotReader, snapshot_name};

/// Most holes that are named; of the others, their number.
pub(crate) const HOLES_MAX: usize = 8;

/// The holes in a directory's history.
#[derive(Debug)]
pub struct Hole {
    /// What is wrong, the oldest first. Invariant: at least one, and at most [`HOLES_MAX`].
    pub(crate) problems: Vec<StorageError>,
    /// How many more there are.
    pub(crate) others: usize,
    /// The number of the snapshot from which on the history is whole.
    pub(crate) whole_from: u64,
}

impl Hole {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.problems.len() + self.others
    }

    /// What is wrong with each of them, the oldest first, at most [`HOLES_MAX`].
    pub fn told(&self) -> impl Iterator<Item = String> {
        self.problems.iter().map(StorageError::what)
    }

    /// All of that as a part of a sentence.
    pub(super) fn list(&self) -> String {
        let told: Vec<String> = self.told().collect();
        let named = match self.count() {
            1 => String::from("a hole"),
            count => format!("{count} holes"),
        };
        let others = match self.others {
            0 => String::new(),
            others => format!("; and {others} more"),
        };
        format!("{named}: {}{others}", told.join("; "))
    }
}

/// The holes in what leads to the snapshot that a start begins with, by its number. What follows that is the start's matter.
///
/// # Errors
/// [`StorageError::Io`]: a file is not there any more that was listed, or the directory cannot be listed.
pub(super) fn hole_before(
    disk: &dyn Disk,
    files: &Files,
    owner: Owner<'_>,
    from: u64,
) -> Result<Option<Hole>, StorageError> {
    let mut files = files.clone();
    let life = life_in(disk, &files);
    take_never_begun(disk, &mut files, life, 0)?;
    let mut heads = Heads::take_bad(disk, &mut files, owner)?;
    // What cannot be read of the oldest files makes the past shorter, and is no hole in it.
    let Ok(Some((base, _))) = first_base(disk, &files) else { return Ok(None) };
    let mut found: Option<Hole> = None;
    if base < from {
        for (number, problem) in broken_logs(disk, &files, &mut heads, base, from)? {
            let whole_from = next_snapshot(disk, &files, number.min(from), from);
            let hole = found.get_or_insert(Hole { problems: Vec::new(), others: 0, whole_from });
            hole.whole_from = whole_from;
            if hole.problems.len() < HOLES_MAX {
                hole.problems.push(problem);
            } else {
                hole.others += 1;
            }
        }
    }
    Ok(found)
}

/// What is wrong with a directory's snapshots and logs that their content alone does not show, by the files' names: those that
/// are another node's, or have another number; logs that are shorter than they were; what cannot be read.
///
/// # Errors
/// [`StorageError::Io`]: as of a start.
pub fn broken_files(
    disk: &dyn Disk,
    owner: Owner<'_>,
) -> Result<Vec<(String, StorageError)>, StorageError> {
    let mut files = Files::list(disk)?;
    let life = life_in(disk, &files);
    take_unborn(disk, &mut files, life)?;
    take_never_begun(disk, &mut files, life, 0)?;
    let mut heads = Heads::take_bad(disk, &mut files, owner)?;
    let bad_snapshots = std::mem::take(&mut heads.bad_snapshots).into_iter();
    let mut found: Vec<_> = bad_snapshots.map(|(n, error)| (snapshot_name(n), error)).collect();
    let base = first_base(disk, &files)?.map_or(0, |(base, _)| base);
    let logs = broken_logs(disk, &files, &mut heads, base, u64::MAX)?;
    found.extend(logs.into_iter().filter_map(|(_, error)| Some((error.file()?.to_owned(), error))));
    // What is before the beginning of the past is no hole, and not what it should be.
    found.extend(heads.bad_logs.into_iter().map(|(number, error)| (log_name(number), error)));
    found.retain(|(_, error)| {
        matches!(
            error,
            StorageError::Io { .. }
                | StorageError::OtherOwner { .. }
                | StorageError::Misnamed { .. }
                | StorageError::Missing { .. }
                | StorageError::Shortened { .. }
        )
    });
    Ok(found)
}

/// What is wrong with the logs from a base up to another number, and the number of the first snapshot that has all that is
/// lost with it. The logs that cannot be used are taken out of the heads.
fn broken_logs(
    disk: &dyn Disk,
    files: &Files,
    heads: &mut Heads,
    base: u64,
    to: u64,
) -> Result<Vec<(u64, StorageError)>, StorageError> {
    let mut found = Vec::new();
    let starts = heads.starts.range(base..=to).map(|(number, start)| (*number, Some(*start)));
    let bad = heads.bad_logs.range(base..=to).map(|(number, _)| (*number, None));
    let mut all: Vec<(u64, Option<LogStart>)> = starts.chain(bad).collect();
    all.sort_unstable_by_key(|(number, _)| *number);
    let mut before = None;
    for (number, start) in all {
        let problem = match start {
            // What it has itself is lost, too, and the snapshot of its number has nothing of that.
            None => heads.bad_logs.remove(&number).map(|problem| (number + 1, problem)),
            // The snapshot of its number has all that came before.
            Some(_) if before.is_none() && number == base => None,
            Some(LogStart::Empty | LogStart::Snapshot) => None,
            Some(LogStart::After { number: last, bytes }) => match files.logs.get(&last) {
                Some(entry) if before == Some(last) => broken_joint(disk, last, entry, bytes)?,
                // That was told.
                None if before == Some(last) => None,
                _ => {
                    let first = before.map_or(base, |before: u64| before + 1);
                    Some(StorageError::missing(first, last))
                }
            }
            .map(|problem| (number, problem)),
        };
        found.extend(problem);
        before = Some(number);
    }
    Ok(found)
}

/// Why a log that goes on from this one behind so many bytes does not.
fn broken_joint(
    disk: &dyn Disk,
    number: u64,
    entry: &DiskEntry,
    expected: u64,
) -> Result<Option<StorageError>, StorageError> {
    if entry.bytes == expected {
        return Ok(None);
    }
    // It may have grown since it was listed, by a node that has begun the next one meanwhile.
    let now = Files::list(disk)?.logs.get(&number).map_or(entry.bytes, |entry| entry.bytes);
    Ok((now != expected).then(|| other_end(number, now, now, expected)))
}

/// What is wrong with a log that is whole up to a byte, has so many bytes, and had another number of them when the next one
/// was begun. Whoever finds a log cut tells it with this, so that all name the same place.
pub(super) fn other_end(number: u64, whole: u64, bytes: u64, expected: u64) -> StorageError {
    let file = log_name(number);
    if whole < expected && bytes >= expected {
        return StorageError::Incomplete { file, kind: FileKind::Log, offset: whole };
    }
    StorageError::Shortened { file, offset: bytes, expected }
}

/// The first good snapshot from a number on; at the latest, that with which a start begins.
fn next_snapshot(disk: &dyn Disk, files: &Files, number: u64, from: u64) -> u64 {
    let mut later = files.snapshots.range(number..from);
    later.find(|(number, _)| is_good(disk, **number)).map_or(from, |(number, _)| *number)
}

/// Whether a snapshot's head can be read.
pub(super) fn is_good(disk: &dyn Disk, number: u64) -> bool {
    SnapshotReader::open(disk, number).is_ok()
}

//! Holes in the history of a directory: a log of it is missing or cut, or cannot be read, and the next one goes on from
//! where it ended. A start does not notice, as a newer snapshot has all that came before it; but the states between the hole
//! and the next snapshot are lost.
//!
//! What a log begins with says how long the one before it was. So its head is read, and no more: that is done at each start.

use std::io::ErrorKind;

use super::recover::{Files, life_in, take_never_begun};
use crate::disk::{Disk, DiskEntry};
use crate::error::StorageError;
use crate::header::LogStart;
use crate::log::{LogReader, log_name};
use crate::past::first_base;
use crate::snapshot::SnapshotReader;

/// The holes in a directory's history.
#[derive(Debug)]
pub struct Hole {
    /// What is wrong, at the oldest of them.
    pub(crate) first: StorageError,
    /// How many more there are.
    pub(crate) others: usize,
    /// The number of the snapshot from which on the history is whole.
    pub(crate) whole_from: u64,
}

/// The holes in what leads to the snapshot that a start begins with, by its number. What follows that is the start's matter.
///
/// # Errors
/// [`StorageError::Io`]: a file is not there any more that was listed, or the directory cannot be listed.
pub(super) fn hole_before(
    disk: &dyn Disk,
    files: &Files,
    from: u64,
) -> Result<Option<Hole>, StorageError> {
    // What cannot be read of the oldest files makes the past shorter, and is no hole in it.
    let Ok(Some((base, _))) = first_base(disk, files) else { return Ok(None) };
    if base >= from {
        return Ok(None);
    }
    let mut files = files.clone();
    let life = life_in(disk, &files);
    take_never_begun(disk, &mut files, life, base)?;
    let mut found: Option<Hole> = None;
    let mut before = None;
    for (number, entry) in files.logs.range(base..=from) {
        let head = match LogReader::open(disk, *number) {
            Err(error) if is_gone(&error) => return Err(error),
            head => head,
        };
        // What it has itself is lost, too, and the snapshot of its number has nothing of that.
        let lost_to = if head.is_err() { number + 1 } else { *number };
        let problem = match head.map(|log| log.start()) {
            // The next one finds the same if there is one; if not, the snapshot of its number follows.
            Err(error) => Some(error),
            // The snapshot of its number has all that came before.
            Ok(_) if before.is_none() && *number == base => None,
            Ok(LogStart::Empty | LogStart::Snapshot) => None,
            Ok(LogStart::After { number, bytes }) => broken_joint(disk, before, number, bytes)?,
        };
        if let Some(problem) = problem {
            let whole_from = next_snapshot(disk, &files, lost_to.min(from), from);
            let others = found.as_ref().map_or(0, |found| found.others + 1);
            let first = found.take().map_or(problem, |found| found.first);
            found = Some(Hole { first, others, whole_from });
        }
        before = Some((*number, entry));
    }
    Ok(found)
}

/// Why a log that continues this one, from so many bytes on, does not.
fn broken_joint(
    disk: &dyn Disk,
    before: Option<(u64, &DiskEntry)>,
    number: u64,
    bytes: u64,
) -> Result<Option<StorageError>, StorageError> {
    let file = log_name(number);
    let Some((_, entry)) = before.filter(|(before, _)| *before == number) else {
        return Ok(Some(StorageError::Missing { file }));
    };
    if entry.bytes == bytes {
        return Ok(None);
    }
    // It may have grown since it was listed, by a node that has begun the next one meanwhile.
    let now = Files::list(disk)?.logs.get(&number).map_or(entry.bytes, |entry| entry.bytes);
    let is_same = now == bytes;
    Ok((!is_same).then_some(StorageError::Shortened { file, offset: now, expected: bytes }))
}

/// The first good snapshot from a number on; at the latest, that with which a start begins.
fn next_snapshot(disk: &dyn Disk, files: &Files, number: u64, from: u64) -> u64 {
    let mut later = files.snapshots.range(number..from);
    later.find(|(_, entry)| is_good(disk, entry)).map_or(from, |(number, _)| *number)
}

/// Whether a snapshot's head can be read.
pub(super) fn is_good(disk: &dyn Disk, entry: &DiskEntry) -> bool {
    let name = entry.name.as_str();
    disk.open(name).is_ok_and(|source| SnapshotReader::new(name, source).is_ok())
}

/// Whether the file that could not be read is not there.
pub(super) fn is_gone(error: &StorageError) -> bool {
    matches!(error, StorageError::Io { source, .. } if source.kind() == ErrorKind::NotFound)
}

//! The past that a data directory keeps: how far back it reaches, and what of it may go.
//!
//! A state of the past is made of a *base* and the logs that follow it. A base is a snapshot, or
//! the empty state that the first log of all starts with.

use std::collections::BTreeMap;

use crate::disk::{Disk, DiskEntry};
use crate::error::StorageError;
use crate::error::absent::if_usable;
use crate::header::LogStart;
use crate::log::LogReader;
use crate::model::ids::Tock;
use crate::recover::{Files, Owner, Until};
use crate::recovery::heads::Heads;
use crate::recovery::passes;
use crate::snapshot::SnapshotReader;

/// Most files of the past that are kept for their age alone. A start lists the names of all.
const FILES_MAX: usize = 4_096;

/// How often something is read of a directory whose node removes files meanwhile, but not the oldest.
const IDLE_READS_MAX: usize = 8;
/// How often in all. A node removes old files one by one, the oldest first: each reading may meet one that has just gone.
const READS_MAX: usize = 1_024;

/// Reads something of the past. A node may use the directory, and remove files that it needs no longer: where reading has failed
/// and a file is gone since it began, it is done anew, with what there is then.
///
/// # Errors
/// What the reading has said, if no file is gone; [`StorageError::Removed`]: files went each time; [`StorageError::Io`]: the
/// directory cannot be listed.
pub fn read_past<T>(
    disk: &dyn Disk,
    mut read: impl FnMut() -> Result<T, StorageError>,
) -> Result<T, StorageError> {
    let mut before = Files::list(disk)?;
    let (mut reads, mut idle) = (0, 0);
    loop {
        let error = match read() {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        reads += 1;
        let now = Files::list(disk)?;
        let is_there = |name: &str| now.all().any(|other| other == name);
        if before.all().all(is_there) {
            return Err(error);
        }
        idle = if oldest_went(&before, &now) { 0 } else { idle + 1 };
        if reads >= READS_MAX || idle >= IDLE_READS_MAX {
            return Err(StorageError::Removed { problem: Box::new(error) });
        }
        before = now;
    }
}

/// Whether the oldest log, or the oldest snapshot, is another one than before.
fn oldest_went(before: &Files, now: &Files) -> bool {
    let oldest = |entries: &BTreeMap<u64, DiskEntry>| entries.keys().next().copied();
    oldest(&before.logs) < oldest(&now.logs) || oldest(&before.snapshots) < oldest(&now.snapshots)
}

/// What to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// This many snapshots, the newest, and the base before them: at least 1. They are kept
    /// whatever their age and size.
    pub snapshots: usize,
    /// The state at this time and at all later times, milliseconds since 1970.
    pub since_ms: u64,
    /// But only while all snapshots and logs together have no more bytes than this.
    pub bytes: u64,
}

impl Keep {
    /// No more than the given number of snapshots, and the base before them.
    #[must_use]
    pub(crate) fn snapshots(snapshots: usize) -> Self {
        Self { snapshots, since_ms: u64::MAX, bytes: 0 }
    }
}

/// A moment in a node's past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The node's time, milliseconds since 1970.
    pub time_ms: u64,
    /// The network's counter.
    pub tock: Tock,
}

impl Moment {
    /// Whether a wanted moment is before this one.
    fn is_after(&self, until: Until) -> bool {
        match until {
            Until::Time(time_ms) => time_ms < self.time_ms,
            Until::Tock(tock) => tock < self.tock,
        }
    }
}

/// How far back a directory reaches: the states at this and at all later moments can be replayed, if
/// no file between is damaged. `None` in a directory without a base. Files of others than the owner do not count.
///
/// # Errors
/// [`StorageError::Io`]: a file is not there any more that was listed, or the directory cannot be listed. One that is damaged
/// is no base.
pub fn reach(disk: &dyn Disk, owner: Owner<'_>) -> Result<Option<Moment>, StorageError> {
    let mut files = Files::list(disk)?;
    Heads::take_bad(disk, &mut files, owner)?;
    reach_of(disk, &files)
}

/// The same, of files that have been listed, and are the owner's.
///
/// # Errors
/// As [`reach`].
pub(crate) fn reach_of(disk: &dyn Disk, files: &Files) -> Result<Option<Moment>, StorageError> {
    Ok(first_base(disk, files)?.map(|(_, moment)| moment))
}

/// The oldest base, by its number, and its moment.
///
/// # Errors
/// As [`reach`].
pub(crate) fn first_base(
    disk: &dyn Disk,
    files: &Files,
) -> Result<Option<(u64, Moment)>, StorageError> {
    if let Some((number, _)) = files.logs.first_key_value()
        && let Some(moment) = if_usable(empty_base(disk, *number))?.flatten()
    {
        return Ok(Some((*number, moment)));
    }
    for number in files.snapshots.keys() {
        if let Some(moment) = if_usable(snapshot_moment(disk, *number))? {
            return Ok(Some((*number, moment)));
        }
    }
    Ok(None)
}

/// How far back a directory reaches, if a wanted moment is before that. `None` where there is a state of that moment: also
/// if the clock was ahead when the directory was begun, and what came later has an earlier time.
///
/// # Errors
/// As [`reach`].
pub fn reach_after(
    disk: &dyn Disk,
    owner: Owner<'_>,
    until: Until,
) -> Result<Option<Moment>, StorageError> {
    let mut files = Files::list(disk)?;
    Heads::take_bad(disk, &mut files, owner)?;
    let Some((base, first)) = first_base(disk, &files)? else { return Ok(None) };
    if !first.is_after(until) {
        return Ok(None);
    }
    let found = match until {
        Until::Time(time_ms) => passes::find(disk, &files, time_ms)?,
        Until::Tock(_) => None,
    };
    Ok(Some(first).filter(|_| found.is_none_or(|found| found.place.0 < base)))
}

/// The moment of a snapshot's state.
fn snapshot_moment(disk: &dyn Disk, number: u64) -> Result<Moment, StorageError> {
    let reader = SnapshotReader::open(disk, number)?;
    Ok(Moment { time_ms: reader.header().time_ms, tock: reader.knowledge().tock })
}

/// When a log began, if it starts with nothing.
fn empty_base(disk: &dyn Disk, number: u64) -> Result<Option<Moment>, StorageError> {
    let mut reader = LogReader::open(disk, number)?;
    if reader.start() != LogStart::Empty {
        return Ok(None);
    }
    let time_ms = reader.header().time_ms;
    let knowledge = reader.next()?.and_then(|batch| batch.knowledge);
    Ok(knowledge.map(|knowledge| Moment { time_ms, tock: knowledge.tock }))
}

/// The files that may be removed, in the order in which they should: snapshots first, so that none
/// is left without its logs, and the oldest first, so that the rest has no gap. Snapshots above
/// `verified` are not known to be valid: they stay, and no file is removed because of them.
pub(super) fn expendable(
    disk: &dyn Disk,
    files: &Files,
    verified: u64,
    keep: &Keep,
) -> Result<Vec<String>, StorageError> {
    let from = keep_from(disk, files, verified, keep)?;
    let snapshots = files.snapshots.range(..from).map(|(_, entry)| entry.name.clone());
    let logs = files.logs.range(..from).map(|(_, entry)| entry.name.clone());
    let bad = files.set_aside.iter().filter(|(n, _)| *n < from).map(|(_, name)| name.clone());
    Ok(snapshots.chain(logs).chain(bad).collect())
}

/// The number of the oldest base that is kept; 0 if all is.
fn keep_from(
    disk: &dyn Disk,
    files: &Files,
    verified: u64,
    keep: &Keep,
) -> Result<u64, StorageError> {
    // The base before the oldest of those that are kept by their number: else a snapshot would end
    // the past up to its own moment.
    let mut newest_first = files.snapshots.range(..=verified).rev();
    let Some((before, _)) = newest_first.nth(keep.snapshots.max(1)) else { return Ok(0) };
    let before = *before;
    for (number, _) in files.snapshots.range(..=before).rev() {
        let moment = if_usable(snapshot_moment(disk, *number))?;
        if moment.is_some_and(|moment| moment.time_ms <= keep.since_ms) {
            return Ok(fit(files, *number, before, keep.bytes));
        }
    }
    // Not even the oldest snapshot is so old: what leads to it stays, too.
    Ok(fit(files, 0, before, keep.bytes))
}

/// The first base from `from` on, at most `before`, with which files take no more bytes than the
/// given limit.
fn fit(files: &Files, from: u64, before: u64, bytes_max: u64) -> u64 {
    let kept: BTreeMap<(u64, bool), u64> = (files.logs.range(from..))
        .map(|(number, entry)| ((*number, true), entry.bytes))
        .chain(files.snapshots.range(from..).map(|(number, entry)| ((*number, false), entry.bytes)))
        .collect();
    let mut bytes = kept.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    let mut count = kept.len();
    let is_small = |bytes: u64, count: usize| bytes <= bytes_max && count <= FILES_MAX;
    if is_small(bytes, count) {
        return from;
    }
    for ((number, is_log), length) in kept {
        let is_base = !is_log && number > from;
        if number >= before || (is_base && is_small(bytes, count)) {
            return number.min(before);
        }
        (bytes, count) = (bytes.saturating_sub(length), count - 1);
    }
    before
}

#[cfg(test)]
mod tests {
    use crate::disk::FileId;
    use crate::past::*;

    fn files(snapshots: &[u64], logs: &[u64]) -> Files {
        let entry = |name: &str, number: u64| {
            let name = format!("{name}-{number}.dkv");
            (number, DiskEntry { name, bytes: 100, id: FileId::default(), changed_ns: 0 })
        };
        Files {
            snapshots: snapshots.iter().map(|n| entry("snapshot", *n)).collect(),
            logs: logs.iter().map(|n| entry("log", *n)).collect(),
            ..Files::default()
        }
    }

    #[test]
    fn what_is_too_much_goes_base_by_base_and_never_what_is_kept_anyway() {
        let files = files(&[3, 5, 7], &[1, 2, 3, 4, 5, 6, 7]);
        let fit = |bytes| fit(&files, 0, 7, bytes);
        assert_eq!(fit(1_000), 0);
        // Without logs 1 and 2.
        assert_eq!((fit(999), fit(800)), (3, 3));
        assert_eq!((fit(799), fit(500)), (5, 5));
        assert_eq!((fit(499), fit(0)), (7, 7));
    }

    #[test]
    fn so_many_files_are_too_many() {
        let numbers: Vec<u64> = (1..=FILES_MAX as u64).collect();
        let files = files(&numbers, &numbers);
        let last = FILES_MAX as u64;
        assert_eq!(fit(&files, 0, last, u64::MAX), last - last / 2 + 1);
    }
}

//! A moment of the past, and where in the logs it is.
//!
//! The times in a log are those of the node's clock, and a clock can be set back. So a time is behind the *last*
//! change that is not later: what a clock that was ahead has stamped with later times was made before it.

use crate::batch::Op;
use crate::disk::Disk;
use crate::error::StorageError;
use crate::log::{LogBatch, LogReader};
use crate::model::ids::Tock;
use crate::recover::Files;
use crate::snapshot::SnapshotReader;

/// A moment in the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Everything up to the last change that is not later than this time, milliseconds since 1970.
    Time(u64),
    /// Everything before the first change with a later tock.
    Tock(Tock),
}

/// Where the logs are to be read no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Behind that many bytes of the log of that number.
    Behind {
        /// The log's number; 0 stands for nothing at all.
        number: u64,
        /// Where the last batch that is wanted ends.
        end: u64,
    },
    /// Before the first change with a later tock.
    Tock(Tock),
}

impl Cut {
    /// Where a moment is in a directory: at its very beginning if everything is later.
    ///
    /// # Errors
    /// [`StorageError::Io`]: a file cannot be read. What is damaged counts as not there.
    pub(crate) fn find(disk: &dyn Disk, files: &Files, until: Until) -> Result<Self, StorageError> {
        Ok(match until {
            Until::Tock(tock) => Self::Tock(tock),
            Until::Time(time_ms) => {
                let (number, end) = position(disk, files, time_ms)?.unwrap_or_default();
                Self::Behind { number, end }
            }
        })
    }

    /// Takes out of a batch of the log of that number what is after the moment; returns whether that was anything, and
    /// so whether all that follows is later, too. Changes that were made together have one time, and a tock each: some
    /// may stay.
    pub fn apply(self, number: u64, batch: &mut LogBatch) -> bool {
        let kept = match self {
            Self::Behind { number: last, end } => ((number, batch.end) > (last, end)).then_some(0),
            Self::Tock(tock) => {
                let knows_later = batch.knowledge.as_ref().is_some_and(|k| k.tock > tock);
                let is_later = |op: &Op| match op {
                    Op::Put(change) => change.entry.tock() > tock,
                    // It has no tock of its own. What was known behind it is the first sign of when it was.
                    Op::Gone { .. } => knows_later,
                };
                let first = batch.ops.iter().position(is_later);
                first.or_else(|| knows_later.then_some(batch.ops.len()))
            }
        };
        let Some(kept) = kept else { return false };
        batch.ops.truncate(kept);
        // It is what was known behind all of the batch.
        batch.knowledge = None;
        true
    }
}

/// The log that has the last change which is not later than a time, and where it ends there. For a snapshot alone, the
/// beginning of the log of its number. None if everything is later.
pub(crate) fn position(
    disk: &dyn Disk,
    files: &Files,
    time_ms: u64,
) -> Result<Option<(u64, u64)>, StorageError> {
    let mut found = None;
    for (number, entry) in files.logs.iter().rev() {
        let source = disk.open(&entry.name).map_err(StorageError::io(&entry.name, "open"))?;
        let end = match LogReader::new(&entry.name, source) {
            Ok(log) => log.end_at(time_ms)?,
            Err(error @ StorageError::Io { .. }) => return Err(error),
            Err(_) => None,
        };
        if let Some(end) = end {
            found = Some((*number, end));
            break;
        }
    }
    for (number, entry) in files.snapshots.iter().rev() {
        if found.is_some_and(|(log, _)| log >= *number) {
            break;
        }
        let source = disk.open(&entry.name).map_err(StorageError::io(&entry.name, "open"))?;
        match SnapshotReader::new(&entry.name, source) {
            Ok(snapshot) if snapshot.header().time_ms <= time_ms => return Ok(Some((*number, 0))),
            Err(error @ StorageError::Io { .. }) => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(found)
}

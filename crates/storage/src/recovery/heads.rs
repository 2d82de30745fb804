//! The heads of a directory's files: which of them the history can use. A file may be another node's, or have another number
//! than its name, where files were mixed up; or it may be unreadable. A start refuses such a file where it needs it.
//! Whoever tells of the past goes without it, as without one that is damaged, and says what is wrong with it.

use std::collections::BTreeMap;
use std::io::Read as _;

use super::hole::other_end;
use super::recover::{Files, Owner};
use crate::disk::{Disk, DiskEntry};
use crate::error::absent::is_absent;
use crate::error::{FileKind, StorageError, is_too_many_files};
use crate::frame::FrameReader;
use crate::header::{Content, LogStart, ReadHeader, read_header};
use crate::log::LogReader;

/// Bytes that are read of a file for its first frame, which names a node and a network: far more than that has.
const HEAD_BYTES: u64 = 64 << 10;

/// What the heads of a directory's files say.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    /// How each log that can be used begins, by its number.
    pub(crate) starts: BTreeMap<u64, LogStart>,
    /// What is wrong with the logs that cannot be used.
    pub(crate) bad_logs: BTreeMap<u64, StorageError>,
    /// The same of snapshots.
    pub(crate) bad_snapshots: BTreeMap<u64, StorageError>,
}

impl Heads {
    /// Reads the heads, and takes the files that cannot be used off the list. To be called behind
    /// [`super::recover::take_unborn`] and [`super::recover::take_never_begun`]: what they take is no damage.
    ///
    /// # Errors
    /// [`StorageError::Io`]: a file is not there any more that was listed, or this process has too many files open.
    pub(crate) fn take_bad(
        disk: &dyn Disk,
        files: &mut Files,
        owner: Owner<'_>,
    ) -> Result<Self, StorageError> {
        let mut heads = Self::default();
        for (number, entry) in &files.logs {
            match read_head(disk, entry, FileKind::Log, owner, *number) {
                Ok(Content::Log(start)) => {
                    heads.starts.insert(*number, start);
                }
                Ok(Content::Snapshot(_)) => {
                    heads.starts.insert(*number, LogStart::Snapshot);
                }
                Err(error) => {
                    heads.bad_logs.insert(*number, lasting(disk, error)?);
                }
            }
        }
        for (number, entry) in &files.snapshots {
            if let Err(error) = read_head(disk, entry, FileKind::Snapshot, owner, *number) {
                heads.bad_snapshots.insert(*number, lasting(disk, error)?);
            }
        }
        for (number, error) in std::mem::take(&mut heads.bad_logs) {
            heads.bad_logs.insert(number, cut_or(disk, files, number, error));
        }
        files.logs.retain(|number, _| !heads.bad_logs.contains_key(number));
        files.snapshots.retain(|number, _| !heads.bad_snapshots.contains_key(number));
        Ok(heads)
    }
}

/// Reads the first frame of a file, and no more, and checks that it is what the file's name says.
fn read_head(
    disk: &dyn Disk,
    entry: &DiskEntry,
    kind: FileKind,
    owner: Owner<'_>,
    number: u64,
) -> Result<Content, StorageError> {
    let name = entry.name.as_str();
    let source = disk.open(name).map_err(StorageError::io(name, "open"))?;
    let mut frames = FrameReader::new(name, Box::new(source.take(HEAD_BYTES)));
    let ReadHeader { header, content, .. } = read_header(&mut frames, kind)?;
    owner.check(name, &header.network, header.id.name.as_str())?;
    if header.number != number {
        return Err(StorageError::Misnamed { file: name.to_owned(), found: header.number });
    }
    Ok(content)
}

/// What is wrong with a log, where the error is that something is missing at its end. The log that goes on from it says how long
/// it was; then that is told.
pub(super) fn cut_or(
    disk: &dyn Disk,
    files: &Files,
    number: u64,
    error: StorageError,
) -> StorageError {
    let StorageError::Incomplete { offset, .. } = error else { return error };
    let next = files.logs.range(number + 1..).next();
    let start = next.and_then(|(next, _)| LogReader::open(disk, *next).ok()).map(|log| log.start());
    match (files.logs.get(&number), start) {
        (Some(entry), Some(LogStart::After { number: before, bytes })) if before == number => {
            other_end(number, offset, entry.bytes, bytes)
        }
        _ => error,
    }
}

/// The error, if it tells of the file itself. Not where the file has gone since it was listed, or where this process has too
/// many files open.
pub(super) fn lasting(disk: &dyn Disk, error: StorageError) -> Result<StorageError, StorageError> {
    let is_passing = match &error {
        StorageError::Io { source, .. } if is_too_many_files(source) => true,
        // A link that leads nowhere is listed, and cannot be opened.
        StorageError::Io { file, source, .. } if is_absent(source) => {
            !Files::list(disk)?.all().any(|other| other == file)
        }
        _ => false,
    };
    if is_passing { Err(error) } else { Ok(error) }
}

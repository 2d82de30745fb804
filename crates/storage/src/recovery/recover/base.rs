//! What a start begins with: the newest good snapshot, or nothing, if the logs reach back to that.

use crate::disk::{Disk, DiskEntry};
use crate::error::StorageError;
use crate::header::LogStart;
use crate::log::LogReader;
use crate::recover::files::Files;
use crate::recover::{Owner, RecoverOptions};
use crate::recovery::moment::Cut;
use crate::replay::Replay;
use crate::snapshot::{Progress, SnapshotReader, read_snapshot_below};

/// The state to begin with.
pub(super) struct Base {
    pub(super) replay: Replay,
    /// The snapshot's number; logs from this on are to be read.
    pub(super) number: u64,
    /// Newer ones that are damaged, and why.
    pub(super) bad: Vec<(String, StorageError)>,
    /// Whether everything that there is was given up.
    pub(super) discarded: bool,
}

impl Base {
    /// For a start without anything.
    pub(super) fn nothing(options: &RecoverOptions) -> Self {
        let replay = Replay::new(options.hash_seed).only_below(options.below.clone());
        Self { replay, number: 0, bad: Vec::new(), discarded: true }
    }
}

pub(super) fn find(
    disk: &dyn Disk,
    files: &Files,
    owner: Owner<'_>,
    options: &RecoverOptions,
    cut: Option<Cut>,
    progress: &mut dyn FnMut(&str, Progress),
) -> Result<Base, StorageError> {
    let mut bad: Vec<(String, StorageError)> = Vec::new();
    for (number, entry) in files.snapshots.iter().rev() {
        match load(disk, *number, entry, owner, options, cut, progress) {
            Ok(Some(replay)) => {
                return Ok(Base { replay, number: *number, bad, discarded: false });
            }
            Ok(None) => {}
            // A disk that cannot be read may be readable again; that is for an operator to decide.
            Err(error @ StorageError::Io { .. }) if !options.discard_damaged => return Err(error),
            Err(error) if error.is_damage() => bad.push((entry.name.clone(), error)),
            Err(error) => return Err(error),
        }
    }
    let replay = Replay::new(options.hash_seed).only_below(options.below.clone());
    match files.logs.first_key_value() {
        None if bad.is_empty() => Ok(Base { replay, number: 0, bad, discarded: false }),
        Some((number, _)) if starts_empty(disk, *number)? => {
            Ok(Base { replay, number: *number, bad, discarded: false })
        }
        first_log => Err(no_base(first_log, bad)),
    }
}

/// A snapshot's state; none if it is newer than the wanted moment.
fn load(
    disk: &dyn Disk,
    number: u64,
    entry: &DiskEntry,
    owner: Owner<'_>,
    options: &RecoverOptions,
    cut: Option<Cut>,
    progress: &mut dyn FnMut(&str, Progress),
) -> Result<Option<Replay>, StorageError> {
    let name = entry.name.as_str();
    let open = || disk.open(name).map_err(StorageError::io(name, "open"));
    match cut {
        Some(Cut::Behind { number: last, .. }) if number > last => return Ok(None),
        Some(Cut::Tock(tock)) if SnapshotReader::new(name, open()?)?.knowledge().tock > tock => {
            return Ok(None);
        }
        Some(_) | None => {}
    }
    let mut told = |state: Progress| progress(name, state);
    let below = options.below.as_ref();
    let (header, image) = read_snapshot_below(name, open()?, below, options.hash_seed, &mut told)?;
    owner.check(name, &header.network, header.id.name.as_str())?;
    if header.number != number {
        return Err(StorageError::Misnamed { file: name.to_owned(), found: header.number });
    }
    Ok(Some(Replay::from_image(image, options.hash_seed).only_below(options.below.clone())))
}

fn starts_empty(disk: &dyn Disk, number: u64) -> Result<bool, StorageError> {
    Ok(LogReader::open(disk, number)?.start() == LogStart::Empty)
}

fn no_base(
    first_log: Option<(&u64, &DiskEntry)>,
    bad: Vec<(String, StorageError)>,
) -> StorageError {
    match (bad.into_iter().next(), first_log) {
        (Some((file, newest)), _) => {
            StorageError::NoGoodSnapshot { file, newest: Box::new(newest) }
        }
        (None, first_log) => {
            let (number, file) =
                first_log.map_or((0, String::new()), |(n, entry)| (*n, entry.name.clone()));
            StorageError::NeedsSnapshot { file, number }
        }
    }
}

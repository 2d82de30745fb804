//! What a start begins with: the newest good snapshot, or nothing, if the logs reach back to that.

use crate::disk::{Disk, DiskEntry};
use crate::error::StorageError;
use crate::error::absent::has_no_content;
use crate::header::LogStart;
use crate::log::LogReader;
use crate::recover::files::Files;
use crate::recover::{Owner, RecoverOptions};
use crate::recovery::heads::lasting;
use crate::recovery::moment::Cut;
use crate::replay::Replay;
use crate::snapshot::{Progress, SnapshotReader};

/// The state to begin with.
pub(super) struct Base {
    pub(super) replay: Replay,
    /// The snapshot's number; logs from this on are to be read.
    pub(super) number: u64,
    /// Newer ones that are of no use, and why: damaged, another node's, or links that lead nowhere.
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
            Err(error @ StorageError::Io { .. })
                if !options.discard_damaged && !is_no_file(&error) =>
            {
                return Err(error);
            }
            // If it is not this directory that is another node's, an older one has what is needed.
            Err(error) if error.is_of_the_file() => {
                let problem = lasting(disk, error)?;
                if is_only_copy(files, *number, &problem) && !options.discard_damaged {
                    let file = entry.name.clone();
                    return Err(StorageError::OnlyCopy { file, problem: Box::new(problem) });
                }
                bad.push((entry.name.clone(), problem));
            }
            Err(error) => return Err(error),
        }
    }
    let replay = Replay::new(options.hash_seed).only_below(options.below.clone());
    match files.logs.first_key_value() {
        None if bad.is_empty() => Ok(Base { replay, number: 0, bad, discarded: false }),
        Some((number, _)) if starts_empty(disk, *number)? => {
            Ok(Base { replay, number: *number, bad, discarded: false })
        }
        first_log => {
            let is_kept = |error: &StorageError| match error {
                StorageError::OtherOwner { .. } => true,
                StorageError::Io { .. } => !options.discard_damaged,
                _ => false,
            };
            match bad.iter().position(|(_, error)| is_kept(error)) {
                // Whoever has named a wrong directory must not be told to discard what is in it; and a disk may only not be
                // mounted.
                Some(place) => Err(bad.swap_remove(place).1),
                None => Err(no_base(first_log, bad)),
            }
        }
    }
}

/// Whether a damaged snapshot may have what is nowhere else. A node begins a log before it makes the snapshot of the same number;
/// where there is no such log, nor a later one, somebody put the snapshot there (`snapshot restore --into`), or the log before
/// it broke off (the disk was full).
fn is_only_copy(files: &Files, number: u64, problem: &StorageError) -> bool {
    let is_damaged = matches!(
        problem,
        StorageError::Damaged { .. }
            | StorageError::Incomplete { .. }
            | StorageError::NotOne { .. }
    );
    is_damaged && !files.logs.is_empty() && files.logs.keys().all(|log| *log < number)
}

/// Whether what is listed is a link that leads nowhere, a folder, or something else that is no file. It says nothing of the disk
/// that the directory is on.
fn is_no_file(error: &StorageError) -> bool {
    matches!(error, StorageError::Io { action: "open", source, .. } if has_no_content(source))
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
    if let Some(Cut::Behind { number: last, .. }) = cut
        && number > last
    {
        return Ok(None);
    }
    let reader = SnapshotReader::open(disk, number)?;
    if let Some(Cut::Tock(tock)) = cut
        && reader.knowledge().tock > tock
    {
        return Ok(None);
    }
    let mut told = |state: Progress| progress(name, state);
    let below = options.below.as_ref();
    let (header, image) = reader.into_image(below, options.hash_seed, &mut told)?;
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

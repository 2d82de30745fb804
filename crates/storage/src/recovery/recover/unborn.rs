//! Logs that were never begun: the node was interrupted, or the disk failed or was full, before their first batch was
//! whole.

use crate::disk::{Disk, DiskEntry};
use crate::error::StorageError;
use crate::frame::FrameReader;
use crate::header::LogStart;
use crate::identity::{Identity, Life};
use crate::log::LogReader;
use crate::recover::files::Files;
use crate::recovery::heads::lasting;

/// Takes logs off the end of the list that were just being begun when the node was interrupted;
/// gives back their names.
pub(in crate::recovery) fn take_unborn(
    disk: &dyn Disk,
    files: &mut Files,
    life: Option<Life>,
) -> Result<Vec<String>, StorageError> {
    let mut names = Vec::new();
    while let Some((number, entry)) = files.logs.last_key_value() {
        let was_safe = life.is_some_and(|life| life.synced(*number) > 0);
        if was_safe || !is_unborn(disk, entry)? {
            break;
        }
        let number = *number;
        names.push(entry.name.clone());
        // Its number stays used.
        files.set_aside.extend(files.logs.remove(&number).map(|entry| (number, entry.name)));
    }
    Ok(names)
}

/// Takes logs off the list, from a number on, that were never begun, and behind which the next one begins anew: the disk
/// was full, and the node went on with a snapshot when it had room again. Nothing goes on from them, so each is only a
/// part of the time at which nothing was logged. To be called behind [`take_unborn`].
pub(in crate::recovery) fn take_never_begun(
    disk: &dyn Disk,
    files: &mut Files,
    life: Option<Life>,
    from: u64,
) -> Result<Vec<String>, StorageError> {
    let noted = life.map(Life::log);
    let mut found = Vec::new();
    let mut is_anew_behind = false;
    for (number, entry) in files.logs.range(from..).rev() {
        // The identity names a log only when its first batch is safe. Of one that cannot be read, nobody knows.
        let is_never_begun = || match is_unborn(disk, entry) {
            Err(error) => lasting(disk, error).map(|_| false),
            Ok(found) => Ok(found),
        };
        if is_anew_behind && noted != Some(*number) && is_never_begun()? {
            found.push(*number);
        } else {
            is_anew_behind = begins_anew(disk, *number);
        }
    }
    let taken = found.iter().filter_map(|number| files.logs.remove(number));
    Ok(taken.map(|entry| entry.name).collect())
}

/// Whether a log begins with the snapshot of its number, and not where the one before it ended.
pub(in crate::recovery) fn begins_anew(disk: &dyn Disk, number: u64) -> bool {
    LogReader::open(disk, number).is_ok_and(|log| log.start() == LogStart::Snapshot)
}

/// The names of all logs of a directory that were never begun, and from which nothing goes on: no damage, whatever is in
/// them.
///
/// # Errors
/// [`StorageError::Io`]: a file cannot be read.
pub fn never_begun(disk: &dyn Disk) -> Result<Vec<String>, StorageError> {
    let mut files = Files::list(disk)?;
    let life = life_in(disk, &files);
    let mut names = take_unborn(disk, &mut files, life)?;
    names.extend(take_never_begun(disk, &mut files, life, 0)?);
    Ok(names)
}

/// What the identity says; none if it cannot be read.
pub(in crate::recovery) fn life_in(disk: &dyn Disk, files: &Files) -> Option<Life> {
    let entry = files.identity.as_ref()?;
    Identity::load(disk, entry).ok().map(|(identity, _)| identity.life)
}

/// Whether a log lacks its first batch, and nothing valid follows what is there.
fn is_unborn(disk: &dyn Disk, entry: &DiskEntry) -> Result<bool, StorageError> {
    let name = entry.name.as_str();
    let open = || disk.open(name).map_err(StorageError::io(name, "open"));
    match LogReader::new(name, open()?) {
        Ok(mut reader) => match reader.next() {
            Ok(None) => Ok(true),
            Ok(Some(_)) => Ok(false),
            Err(error) if error.is_bad_frame() => Ok(reader.look_beyond()?.frames == 0),
            Err(_) => Ok(false),
        },
        Err(StorageError::Io { file, action, source }) => {
            Err(StorageError::Io { file, action, source })
        }
        // Rubbish was never written by us; what a power cut leaves is the beginning of a frame,
        // or zeros.
        Err(error) if error.is_bad_frame() || entry.bytes == 0 => {
            Ok(FrameReader::new(name, open()?).look_beyond(|_| 0)?.frames == 0)
        }
        Err(_) => is_zero(disk, name),
    }
}

fn is_zero(disk: &dyn Disk, name: &str) -> Result<bool, StorageError> {
    let mut source = disk.open(name).map_err(StorageError::io(name, "open"))?;
    let mut buffer = [0; 4096];
    loop {
        match source.read(&mut buffer).map_err(StorageError::io(name, "read"))? {
            0 => return Ok(true),
            read if buffer.iter().take(read).any(|byte| *byte != 0) => return Ok(false),
            _ => {}
        }
    }
}

//! What a start reports to an operator, and what it does to files.

use crate::disk::Disk;
use crate::error::StorageError;
use crate::model::count::count_of;
use crate::recover::files::SET_ASIDE;

/// Something that an operator should read. The node starts all the same.
#[derive(Debug, thiserror::Error)]
pub enum Warning {
    /// The last log ended in something that was not whole.
    #[error(
        "{file}: {} from byte {offset} on {} being written when the node or the machine stopped",
        count_of(*bytes, "byte", "bytes"),
        if *bytes == 1 {
            "is not whole and was cut off: it was"
        } else {
            "are not whole and were cut off: they were"
        }
    )]
    TornTail {
        /// Which log.
        file: String,
        /// Where it ends now.
        offset: u64,
        /// How many bytes were cut off.
        bytes: u64,
    },
    /// A wanted moment at which nothing was logged.
    #[error(
        "nothing was logged in the {} s between the end of {file} and the beginning of {next} (the disk \
         failed, or the node did not run): the state is that at the end of {file}",
        to_ms.saturating_sub(*from_ms).div_ceil(1_000)
    )]
    Gap {
        /// The log before it.
        file: String,
        /// Until when it tells what happened, milliseconds since 1970.
        from_ms: u64,
        /// The log behind it.
        next: String,
        /// Its beginning, milliseconds since 1970.
        to_ms: u64,
    },
    /// A log that was just being begun.
    #[error("{file}: it was being begun when the node or the machine stopped; it is set aside")]
    Unborn {
        /// Which log.
        file: String,
    },
    /// A snapshot is damaged, but an older one and the logs had everything.
    #[error("{} (nothing is lost: the logs reach back to an older one; it is set aside)", .0.what())]
    BadSnapshot(Box<StorageError>),
    /// Damage was discarded on request.
    #[error("{} (left out, as you said, with what came after it)", .0.what())]
    Discarded(Box<StorageError>),
    /// No identity, but other files.
    #[error(
        "the data directory has no identity file: the node begins a new incarnation, and is \
         another member of the Delete group"
    )]
    NoIdentity,
    /// The directory is a copy.
    #[error(
        "the data directory was copied, or put back from a backup: the node begins a new \
         incarnation, and is another member of the Delete group"
    )]
    Copied,
    /// A newer log was there once.
    #[error(
        "the data directory had a log {log} once, which is not there now: this is an older state, \
         with which the node begins a new incarnation, as another member of the Delete group"
    )]
    Older {
        /// Its number.
        log: u64,
    },
}

/// What to do with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Repair {
    /// Truncate it to this many bytes.
    Cut { name: String, bytes: u64 },
    /// Rename it, so that it is not read again.
    SetAside(String),
    /// Take it away.
    Remove(String),
    /// Make safe what was read of it.
    Sync(String),
}

impl Repair {
    pub(super) fn carry_out(&self, disk: &dyn Disk) -> Result<(), StorageError> {
        match self {
            Self::Cut { name, bytes } => {
                disk.truncate(name, *bytes).map_err(StorageError::io(name, "cut"))
            }
            Self::SetAside(name) => disk
                .rename(name, &format!("{name}{SET_ASIDE}"))
                .map_err(StorageError::io(name, "set aside")),
            Self::Remove(name) => disk.remove(name).map_err(StorageError::io(name, "remove")),
            Self::Sync(name) => disk.sync_file(name).map_err(StorageError::io(name, "sync")),
        }
    }
}

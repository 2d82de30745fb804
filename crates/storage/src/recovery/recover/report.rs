//! What a start reports to an operator, and what it does to files.

use crate::disk::Disk;
use crate::error::StorageError;
use crate::error::absent::is_no_file;
use crate::model::count::count_of;
use crate::recover::files::SET_ASIDE;
use crate::recovery::hole::Hole;
use crate::recovery::moment::Doubt;
use crate::snapshot::snapshot_name;

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
    /// A wanted moment that is not clear by the node's clock.
    #[error(
        "{}",
        match .0 {
            Doubt::SetBack { .. } => "the node's clock was set back, so it is not clear which state is that of the moment: \
                this is the last that can be meant",
            Doubt::Leap { .. } => "the node's clock leapt over the moment, or its machine was suspended: this is the state before \
                that",
        }
    )]
    Unclear(Doubt),
    /// A log that was just being begun.
    #[error("{file}: it was being begun when the node or the machine stopped; it is set aside")]
    Unborn {
        /// Which log.
        file: String,
    },
    /// A snapshot is damaged, another node's, a link that leads nowhere, or no file, but an older one and the logs had everything.
    #[error("{} (nothing is lost: the logs reach back to an older one; it is set aside{})", .0.what(), aside(.0))]
    BadSnapshot(Box<StorageError>),
    /// A log that only the history needs is not what it was.
    #[error(
        "the history in the data directory has {}. A node starts with the directory, and all data is there, but the history is \
         whole only from {} on. Put {} back from a backup; or move all logs and snapshots with a number less than {} \
         away, and the history begins there",
        .0.list(),
        snapshot_name(.0.whole_from),
        if .0.count() == 1 { "the log" } else { "the logs" },
        .0.whole_from
    )]
    Hole(Box<Hole>),
    /// Damage was discarded on request.
    #[error("{} (left out, as you said, with what came after it)", .0.what())]
    Discarded(Box<StorageError>),
    /// No identity, but other files.
    #[error(
        "the data directory has no file `identity`: a node that starts with it keeps the data, and counts as a new member of \
         the Delete group (the nodes that agree on when deleted entries are removed for good)"
    )]
    NoIdentity,
    /// The directory is a copy.
    #[error(
        "the data directory was copied, or put back from a backup: a node that starts with it keeps the data, and counts as a \
         new member of the Delete group (the nodes that agree on when deleted entries are removed for good)"
    )]
    Copied,
    /// A newer log was there once.
    #[error(
        "the data directory had a log {log} once, which is not there now: this is an older state; a node that starts with \
         it counts as a new member of the Delete group (the nodes that agree on when deleted entries are removed for good)"
    )]
    Older {
        /// Its number.
        log: u64,
    },
}

/// Under which name a snapshot is set aside, and what to do with it.
fn aside(error: &StorageError) -> String {
    let Some(file) = error.file() else { return String::new() };
    match error {
        StorageError::OtherOwner { found_name, .. } => format!(
            " as {file}{SET_ASIDE}: move it to where node {found_name} has its files, or remove it"
        ),
        StorageError::Io { source, .. } if is_no_file(source) => {
            format!(" as {file}{SET_ASIDE}: move it to where it belongs, or remove it")
        }
        StorageError::Io { .. } => format!(
            " as {file}{SET_ASIDE}: if it is a symbolic link that leads nowhere, remove it; nobody needs it"
        ),
        _ => format!(" as {file}{SET_ASIDE}"),
    }
}

impl Warning {
    /// The same for whoever only reads a directory: it changes nothing there, and says what a start would do.
    #[must_use]
    pub fn for_reader(&self) -> String {
        match self {
            Self::BadSnapshot(error) => format!(
                "{} (nothing is lost: the logs reach back to an older one; a node that starts with the directory sets it aside)",
                error.what()
            ),
            Self::Unborn { file } => format!(
                "{file}: it was being begun when the node or the machine stopped; a node that starts with the directory sets it \
                 aside"
            ),
            Self::TornTail { file, offset, bytes } => format!(
                "{file}: {} from byte {offset} on {}; a node that starts with the directory cuts {} off",
                count_of(*bytes, "byte", "bytes"),
                if *bytes == 1 {
                    "is not whole: it was being written when the node or the machine stopped"
                } else {
                    "are not whole: they were being written when the node or the machine stopped"
                },
                if *bytes == 1 { "it" } else { "them" },
            ),
            other => other.to_string(),
        }
    }
}

/// A time in which a node does not surely know its state of a moment. Either it has logged nothing: the disk failed, or it did
/// not run, or its clock leapt ahead; the state is that at the beginning. Or its clock was set back; the state is the last that
/// can be meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PastGap {
    /// When something was logged for the last time, or to what the clock was set back: milliseconds since 1970.
    pub from_ms: u64,
    /// When logging began anew, none if it has not yet; or what the clock had shown before it was set back.
    pub to_ms: Option<u64>,
    /// Whether the clock was set back.
    pub is_set_back: bool,
}

impl From<Doubt> for PastGap {
    fn from(doubt: Doubt) -> Self {
        let (from_ms, to_ms, is_set_back) = match doubt {
            Doubt::SetBack { to_ms, until_ms } => (to_ms, until_ms, true),
            Doubt::Leap { from_ms, to_ms } => (from_ms, to_ms, false),
        };
        Self { from_ms, to_ms: Some(to_ms), is_set_back }
    }
}

impl PastGap {
    /// The gap of which reading the past has told.
    #[must_use]
    pub fn of_warnings(warnings: &[Warning]) -> Option<Self> {
        let doubt = warnings.iter().find_map(|warning| match warning {
            Warning::Unclear(doubt) => Some((*doubt).into()),
            _ => None,
        });
        let between_logs = || {
            warnings.iter().find_map(|warning| match warning {
                Warning::Gap { from_ms, to_ms, .. } => {
                    Some(Self { from_ms: *from_ms, to_ms: Some(*to_ms), is_set_back: false })
                }
                _ => None,
            })
        };
        doubt.or_else(between_logs)
    }
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

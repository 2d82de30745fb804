//! A node's data on disk, which survives a restart and a power failure: snapshots, event logs, and
//! the data directory that contains them. `docs/storage-format.md` draws the files.
//!
//! | file | what |
//! |---|---|
//! | [`disk`] | the interface of a disk; [`directory`] a real one, `memory_disk` one for tests |
//! | [`frame`] | frames: lengths and hashes, the same in all files; [`format::framing`] puts records into them |
//! | [`header`] | the first frame: what a file is, and whose |
//! | [`format::record`], [`format::knowledge`] | what is in the other frames |
//! | [`batch`] | what one change of the engine does: the unit of a log |
//! | [`log`] | the event log |
//! | [`snapshot`] | the snapshot |
//! | [`recover()`] | what a start finds, and what of it can be trusted |
//! | [`past`] | how far back a directory reaches, and which files may be removed |
//! | [`data_dir`] | the directory: lock, identity, numbers, pruning; `left` for one whose node left for good |
//!
//! Nothing here runs by itself: there is no clock, no randomness, and only one thread, which helps
//! a start ([`recovery::bulk`]). Files go through [`disk::Disk`], so that every failure can be tried.

use distkv_core::{engine, replica, tree};
use distkv_model as model;
use distkv_runtime as rt;

mod directory_state;
mod disks;
pub mod error;
mod format;
pub mod log;
mod recovery;
pub mod snapshot;
#[cfg(test)]
mod tests;

pub use batch::{Batch, Op};
pub use data_dir::DataDir;
pub use directory::Directory;
pub use directory_state::{data_dir, identity, past};
pub use disk::{Disk, DiskEntry, DiskFile, FileId};
#[cfg(any(test, feature = "planted-defects"))]
pub use disks::memory_disk;
pub use disks::{directory, disk};
pub use error::{FileKind, FormatError, StorageError};
pub use format::{batch, frame, header};
pub use header::{FORMAT_VERSION, FileHeader, LogStart};
pub use log::{LogBatch, LogReader, LogWriter, StoppedLog};
pub use past::{Keep, Moment};
pub use recover::{NextLog, RecoverOptions, Recovered, Until, Warning, recover};
#[cfg(any(test, feature = "planted-defects"))]
pub use recovery::listing;
pub use recovery::{recover, replay};
pub use replay::Replay;
pub use snapshot::{
    Progress, SnapshotInfo, SnapshotReader, SnapshotSummary, read_snapshot, verify_snapshot,
    write_snapshot, write_snapshot_as, write_snapshot_to,
};

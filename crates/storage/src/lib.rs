//! A node's data on disk, which survives a restart and a power failure: snapshots, event logs, and
//! the data directory that contains them. `docs/storage-format.md` draws the files.
//!
//! | folder | what |
//! |---|---|
//! | `disks` | the interface of a disk ([`disk`]); a real one ([`directory`]); one in memory for tests |
//! | `format` | frames, headers, and the records in them, the same in all files; a log's unit ([`batch`]) |
//! | [`log`] | the event log |
//! | [`snapshot`] | the snapshot |
//! | `recovery` | what a start finds, and what of it can be trusted ([`recover()`]) |
//! | `directory_state` | the directory ([`data_dir`]): lock, identity, which files there are and may go ([`past`]) |
//!
//! Nothing here runs by itself: there is no clock, no randomness, and only one thread, which helps
//! a start ([`recovery::bulk`]). Files go through [`disk::Disk`], so that every failure can be tried.

use distkv_core::{engine, replica, tree};
use distkv_model as model;
use distkv_runtime as rt;

mod directory_state;
mod disks;
mod error;
mod format;
pub mod log;
mod recovery;
pub mod snapshot;
#[cfg(test)]
mod tests;

pub use batch::{Batch, Op};
pub use data_dir::DataDir;
pub use directory::Directory;
pub use directory_state::{dangling_link, data_dir, identity, only_foreign, past};
pub use disk::{Disk, DiskEntry, DiskFile, FileId, Room};
#[cfg(any(test, feature = "planted-defects"))]
pub use disks::memory_disk;
pub use disks::{directory, disk};
pub use error::{FileKind, FormatError, StorageError};
pub use format::{batch, frame, header};
pub use header::{FileHeader, LogStart};
pub use log::{LogBatch, LogReader, LogWriter};
pub use past::{Keep, Moment};
pub use recover::{NextLog, Owner, RecoverOptions, Recovered, Until, Warning, recover};
pub use recovery::hole::broken_files;
#[cfg(any(test, feature = "planted-defects"))]
pub use recovery::listing;
pub use recovery::{history, moment, recover, replay};
pub use replay::Replay;
pub use snapshot::{
    Progress, SnapshotInfo, SnapshotReader, SnapshotSummary, read_snapshot, verify_snapshot,
    write_snapshot, write_snapshot_to,
};

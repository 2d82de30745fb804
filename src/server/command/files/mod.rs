//! Actions that read and write files: snapshots, logs, and how the disk is.

mod snapshot;
pub(super) mod storage;

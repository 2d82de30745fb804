//! Actions that read and write files: snapshots, logs, and how the disk is.

pub(in crate::server::command) mod snapshot;
pub(super) mod storage;

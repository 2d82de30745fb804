//! How a node's data is kept on disk, as operators are told: its log and snapshots, and those that it makes by a schedule.

use super::cluster::purge_block::show_ms;

/// How a node keeps its data on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorageStatus {
    /// The data directory.
    pub directory: String,
    /// The sync policy's word.
    pub sync: &'static str,
    /// The directory's id, as a member of the Delete group.
    pub store: u64,
    /// The number of the last batch of changes.
    pub appended: u64,
    /// Up to which batch the log is written, and synced.
    pub written: u64,
    /// The same: what survives a power cut.
    pub synced: u64,
    /// Bytes of changes that wait for the log.
    pub waiting_bytes: u64,
    /// Why logging fails, and for how long it has, milliseconds.
    pub failure: Option<(String, u64)>,
    /// How often it has failed.
    pub failures: u64,
    /// The log that is being written, and its length; none while there is none, because the disk fails.
    pub log: Option<(u64, u64)>,
    /// Bytes of all logs and snapshots; none if the disk does not tell.
    pub bytes: Option<u64>,
    /// What may still be written to the disk, and its size, bytes; none if it does not tell.
    pub room: Option<(u64, u64)>,
    /// One line for people, while the disk is nearly full.
    pub room_warning: Option<String>,
    /// Bytes that were logged since the last snapshot: what a start has to read.
    pub since_snapshot_bytes: u64,
    /// How far back the files reach: the oldest state that can be replayed, as its time in
    /// milliseconds since 1970 and its tock.
    pub past: Option<(u64, u64)>,
    /// The last snapshot that was made since the start.
    pub snapshot: Option<SnapshotStatus>,
    /// A snapshot is being made.
    pub is_saving: bool,
    /// Why the last snapshot was not made.
    pub snapshot_failure: Option<String>,
}

impl StorageStatus {
    /// One line for people, while the log fails.
    #[must_use]
    pub fn log_warning(&self) -> Option<String> {
        let (why, _) = self.failure.as_ref()?;
        let effect = match self.sync {
            "every-batch" => "changes of clients are refused until it can be",
            _ => "nothing is logged until it can be, so a restart loses changes",
        };
        Some(format!("the log of this node cannot be written: {why}; {effect}"))
    }

    /// One line for people, if the last snapshot has failed.
    #[must_use]
    pub fn snapshot_warning(&self) -> Option<String> {
        let why = self.snapshot_failure.as_ref()?;
        let log = if self.failure.is_some() { "" } else { ", the log goes on" };
        Some(format!("the last snapshot could not be made{log}: {why}"))
    }
}

/// How the snapshots are that a node makes by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScheduledStatus {
    /// When they are made.
    pub(crate) schedule: String,
    /// Where they are.
    pub(crate) directory: String,
    /// The newest one's file.
    pub(crate) file: Option<String>,
    /// When it was made, milliseconds since 1970.
    pub(crate) time_ms: Option<u64>,
    /// Its length.
    pub(crate) bytes: Option<u64>,
    /// Its entries, deleted ones included, if it was made since the start.
    pub(crate) entries: Option<u64>,
    /// When the next one is due, milliseconds since 1970.
    pub(crate) due_ms: u64,
    /// Why the last attempt has failed, if it has.
    pub(crate) failure: Option<String>,
    /// For how long one has been overdue, milliseconds, if one is.
    pub(crate) overdue_ms: Option<u64>,
}

impl ScheduledStatus {
    /// One line for people, while one is overdue.
    #[must_use]
    pub(crate) fn overdue_text(&self) -> Option<String> {
        let how_long = show_ms(self.overdue_ms?);
        let directory = &self.directory;
        Some(format!("a scheduled snapshot in {directory} has been due for {how_long}"))
    }

    /// One line for people, while there is something wrong.
    #[must_use]
    pub(crate) fn warning(&self) -> Option<String> {
        match &self.failure {
            Some(why) => Some(format!("the last scheduled snapshot could not be made: {why}")),
            None => self.overdue_text(),
        }
    }
}

/// A snapshot that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotStatus {
    /// Its file's name.
    pub(crate) file: String,
    /// Its entries, tombstones included.
    pub(crate) entries: u64,
    /// Its length.
    pub(crate) bytes: u64,
    /// When, in milliseconds since 1970, by the clock of then, which may have been ahead.
    pub(crate) time_ms: u64,
    /// How long ago, milliseconds; none if that is to come, by today's clock.
    pub(crate) age_ms: Option<u64>,
}

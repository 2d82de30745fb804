//! The status of the log's thread and the savers: shared with the rest of the node, and cheap to
//! read.

use distkv_metrics::{Histogram, Name};
use event_listener::Event;
use parking_lot::Mutex;

use super::room::LittleRoom;
use crate::model::ids::Millis;
use crate::storage::past::reach;
use crate::storage::{Disk, Moment, Owner, Room, SnapshotInfo};

/// Shared by the log's thread, the savers, and the code that displays it.
pub struct LogState {
    inner: Mutex<Inner>,
    ended: Event,
    /// How long writing and syncing took.
    pub sync_times: Histogram,
}

impl Default for LogState {
    fn default() -> Self {
        let sync_times = Histogram::of(Name::LogSyncSeconds);
        Self { inner: Mutex::default(), ended: Event::new(), sync_times }
    }
}

#[derive(Default)]
struct Inner {
    view: LogView,
    /// The requests for a snapshot of the state at this moment or later.
    wishes: Vec<SnapshotWish>,
    /// What became of the last saver, for the log's thread.
    saved: Option<Result<u64, ()>>,
    is_over: bool,
    /// The last record must be followed by a note that the node does not come back.
    leaves_for_good: bool,
}

/// How the log is, for operators.
#[derive(Clone, Debug, Default)]
pub struct LogView {
    /// The store's id.
    pub store: u64,
    /// The number and length of the log that is written; none while there is none, because the disk fails.
    pub log: Option<(u64, u64)>,
    /// Bytes of all logs and snapshots but the log that is written; none if the disk does not tell.
    pub older_bytes: Option<u64>,
    /// Those of them that are snapshots'.
    pub snapshot_bytes: Option<u64>,
    /// How much room the disk has; none if it does not tell.
    pub room: Option<Room>,
    /// While it is nearly full.
    pub little_room: Option<LittleRoom>,
    /// How far back the files reach.
    pub past: Option<Moment>,
    /// Bytes that were logged since the last snapshot.
    pub since_snapshot: u64,
    /// The newest good snapshot, and when it was begun, milliseconds since 1970.
    pub snapshot: Option<(SnapshotInfo, u64)>,
    /// A snapshot is being made.
    pub is_saving: bool,
    /// Why the last snapshot was not made.
    pub save_failure: Option<String>,
    /// Since when logging fails.
    pub failing_since: Option<Millis>,
    /// How often logging has failed.
    pub failures: u64,
    /// The directory says that the node has left its network for good.
    pub has_left: bool,
}

/// Callers that asked for a snapshot get its result here.
pub type SnapshotWish = std::sync::mpsc::SyncSender<Result<SnapshotInfo, String>>;

impl LogState {
    /// How the log is.
    #[must_use]
    pub fn view(&self) -> LogView {
        self.inner.lock().view.clone()
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut LogView)) {
        change(&mut self.inner.lock().view);
    }

    /// Looks how much the files take, and how far back they reach.
    pub(super) fn measure(&self, disk: &dyn Disk, owner: Owner<'_>, newest_log: &str) {
        let is_data = |name: &str| name.starts_with("log-") || name.starts_with("snapshot-");
        let is_other = |name: &str| is_data(name) && name != newest_log;
        let files = disk.list().ok();
        let bytes_of = |is: &dyn Fn(&str) -> bool| -> Option<u64> {
            let files = files.as_ref()?.iter();
            Some(files.filter(|file| is(&file.name)).map(|file| file.bytes).sum())
        };
        let bytes = bytes_of(&is_other);
        let snapshots = bytes_of(&|name| name.starts_with("snapshot-"));
        // What cannot be read tells nothing of the past; whoever needs it gets the error.
        let past = reach(disk, owner).ok().flatten();
        self.update(|view| {
            (view.older_bytes, view.snapshot_bytes, view.past) = (bytes, snapshots, past);
        });
    }

    /// When the log ends, the directory is to say that the node does not come back.
    pub fn leave_for_good(&self) {
        self.inner.lock().leaves_for_good = true;
    }

    pub(super) fn leaves_for_good(&self) -> bool {
        self.inner.lock().leaves_for_good
    }

    /// Requests a snapshot; false if there will be none any more.
    #[must_use]
    pub fn wish(&self, wish: SnapshotWish) -> bool {
        let mut inner = self.inner.lock();
        if !inner.is_over {
            inner.wishes.push(wish);
        }
        !inner.is_over
    }

    pub(super) fn has_wishes(&self) -> bool {
        !self.inner.lock().wishes.is_empty()
    }

    pub(super) fn take_wishes(&self) -> Vec<SnapshotWish> {
        std::mem::take(&mut self.inner.lock().wishes)
    }

    /// A saver is done.
    pub(super) fn note_saved(&self, saved: &Result<(SnapshotInfo, u64), String>) {
        let mut inner = self.inner.lock();
        inner.view.is_saving = false;
        match saved {
            Ok(snapshot) => {
                inner.view.snapshot = Some(snapshot.clone());
                inner.view.save_failure = None;
            }
            Err(why) => inner.view.save_failure = Some(why.clone()),
        }
        inner.saved = Some(saved.as_ref().map(|(info, _)| info.bytes).map_err(drop));
    }

    /// What became of the last saver, once: the snapshot's length.
    pub(super) fn take_saved(&self) -> Option<Result<u64, ()>> {
        self.inner.lock().saved.take()
    }

    /// The log's thread has ended: tasks that wait for it, or for a snapshot, wait no longer.
    pub fn note_end(&self) {
        let mut inner = self.inner.lock();
        inner.is_over = true;
        inner.wishes.clear();
        drop(inner);
        self.ended.notify(usize::MAX);
    }

    /// Waits until the log's thread has ended.
    pub async fn ended(&self) {
        loop {
            let listener = self.ended.listen();
            if self.inner.lock().is_over {
                return;
            }
            listener.await;
        }
    }
}

//! The data directory of a running node: opens it, and gives [`distkv_durable`]'s log a thread, a clock
//! and threads for snapshots; tells operators how it is.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use distkv_durable::state::{LogState, SnapshotWish};
pub(super) use distkv_durable::{LogSettings, Logger, Opened, Prepared, SaveJob, System};
use distkv_metrics::HistogramNumbers;
use parking_lot::Mutex;

use super::error::NodeError;
use crate::hub::Hub;
use crate::hub::log_queue::{LOG_QUEUE_BYTES_MAX, LogQueue};
use crate::model::defects::Defects;
use crate::model::ids::{Millis, NodeName};
use crate::node::config::{DataConfig, SyncPolicy};
use crate::rt;
use crate::server::{SnapshotStatus, StorageStatus};
use crate::storage::DataDir;

/// A disk that does nothing for this long counts as failed. Some take seconds for a sync under
/// load; peers close a link that is silent for 15 s.
const STALL_MS: Millis = 20_000;
/// Most samples of what is not synced that are kept: one each second while the disk does not keep up.
const UNSYNCED_SAMPLES_MAX: usize = 600;

/// How long who asks for the past waits for the disk to have all that was done until then.
const WRITE_PATIENCE: Duration = Duration::from_secs(1);

/// The system that this process runs on.
struct RealSystem;

impl System for RealSystem {
    fn now(&self) -> Millis {
        rt::now()
    }

    fn now_us(&self) -> u64 {
        rt::now_us()
    }

    fn awake_or_not(&self) -> Millis {
        rt::awake_or_not()
    }

    fn wall_clock_ms(&self) -> u64 {
        rt::wall_clock_ms()
    }

    fn random(&self) -> u64 {
        rt::random_u64()
    }

    fn save(&self, job: SaveJob) {
        job.spawn_by(|work| rt::spawn_background_thread("snapshot", work).map(drop));
    }
}

impl From<&DataConfig> for LogSettings {
    fn from(config: &DataConfig) -> Self {
        Self {
            sync: config.sync,
            rotate_bytes: config.rotate_bytes,
            rotate_after_ms: rt::millis(config.rotate_after),
            snapshot_after: config.snapshot_after,
            keep_snapshots: config.keep_snapshots,
            keep_for_ms: rt::millis(config.keep_for),
            keep_bytes: config.keep_bytes,
            discard_damaged: config.discard_damaged,
            queue_bytes: LOG_QUEUE_BYTES_MAX,
            defects: Defects::default(),
        }
    }
}

/// Opens and reads a data directory. Takes as long as that takes.
///
/// # Errors
/// [`NodeError::Storage`].
pub(super) fn open(
    config: &DataConfig,
    network: &str,
    name: &NodeName,
) -> Result<Opened, NodeError> {
    let failed = |source| NodeError::Storage { dir: config.dir.clone(), source: Box::new(source) };
    let dir = DataDir::open(&config.dir).map_err(failed)?;
    if let Some(folder) = dir.left() {
        tracing::warn!(
            "the node of this data directory has left its network for good, so this start begins with \
             nothing; what was there is in {}",
            folder.display()
        );
    }
    Opened::read(dir, LogSettings::from(config), (network, name), Arc::new(RealSystem))
        .map_err(failed)
}

/// The hub of a node that can begin, with its log running.
///
/// # Errors
/// [`NodeError::System`]: there is no thread for it.
pub(super) fn launch(
    prepared: Prepared,
    config: &DataConfig,
) -> Result<(Arc<Hub>, Durable), NodeError> {
    let (hub, logger) = prepared.into_logger();
    let failed = |source| NodeError::System { what: "the log's thread", source };
    Ok((hub, Durable::launch(logger, config).map_err(failed)?))
}

/// The running log of a node with a data directory.
pub(super) struct Durable {
    queue: Arc<LogQueue>,
    state: Arc<LogState>,
    stall: Mutex<Stall>,
    unsynced: Mutex<Unsynced>,
    directory: PathBuf,
    sync: SyncPolicy,
}

impl Durable {
    /// Starts the log's thread.
    ///
    /// # Errors
    /// The system has no thread to give.
    fn launch(logger: Logger, config: &DataConfig) -> io::Result<Self> {
        let (queue, state) = (logger.queue(), logger.state());
        let ending = Ending { queue: Arc::clone(&queue), state: Arc::clone(&state) };
        rt::spawn_thread("log", move || {
            // Also after a panic, no task may wait for what will not come.
            let _ending = ending;
            logger.run();
        })?;
        let directory = config.dir.clone();
        Ok(Self {
            queue,
            state,
            stall: Mutex::default(),
            unsynced: Mutex::default(),
            directory,
            sync: config.sync,
        })
    }

    /// Where the data is.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Waits until what was done before now is in the files, so that who asks for the past just after a change finds that;
    /// not for a disk that is slower than [`WRITE_PATIENCE`], nor while logging fails. Blocks the thread.
    pub(super) fn wait_written(&self) {
        self.queue.wait_written(WRITE_PATIENCE);
    }

    /// Requests a snapshot of now or later; false if there will be none any more.
    pub(super) fn wish(&self, wish: SnapshotWish) -> bool {
        let is_taken = self.state.wish(wish);
        self.queue.call();
        is_taken
    }

    /// For how long nothing could be logged, milliseconds; none while that works.
    pub(super) fn failing_ms(&self, now: Millis) -> Option<Millis> {
        let since = self.state.view().failing_since;
        // The queue knows of a failure before the log's thread does.
        let is_failing = since.is_some() || self.queue.failure().is_some();
        is_failing.then(|| since.map_or(0, |since| now.saturating_sub(since)))
    }

    /// The status for operators.
    pub(super) fn status(&self, now: Millis) -> StorageStatus {
        let view = self.state.view();
        let lasts = |since: Millis| now.saturating_sub(since);
        let failure = self.queue.failure().map(|failure| {
            (failure.why.to_string(), view.failing_since.map(lasts).unwrap_or_default())
        });
        let directory = self.directory.display().to_string();
        let room_warning =
            view.little_room.map(|little| format!("the disk of {directory} {little}"));
        StorageStatus {
            directory,
            sync: self.sync.word(),
            store: view.store,
            appended: self.queue.appended(),
            written: self.queue.written(),
            synced: self.queue.synced(),
            waiting_bytes: self.queue.bytes() as u64,
            failure,
            failures: view.failures,
            log: view.log,
            bytes: view.older_bytes.map(|older| older + view.log.map_or(0, |(_, bytes)| bytes)),
            room: view.room.map(|room| (room.free, room.size)),
            room_warning,
            since_snapshot_bytes: view.since_snapshot,
            past: view.past.map(|past| (past.time_ms, past.tock.get())),
            snapshot: view.snapshot.map(|(info, made_at)| SnapshotStatus {
                file: info.name,
                entries: info.entries,
                bytes: info.bytes,
                time_ms: made_at,
                age_ms: rt::wall_clock_ms().checked_sub(made_at),
            }),
            is_saving: view.is_saving,
            snapshot_failure: view.save_failure,
        }
    }

    /// How long writing and syncing took, since the start.
    pub(super) fn sync_times(&self) -> HistogramNumbers {
        self.state.sync_times.numbers()
    }

    /// Whether what clients are told must be on disk first.
    pub(super) fn gates(&self) -> bool {
        self.queue.gates()
    }

    /// Whether changes need not wait for the disk.
    pub(super) fn has_room(&self) -> bool {
        self.queue.has_room()
    }

    /// For how long the disk has had something to do and done nothing, milliseconds.
    pub(super) fn stands_ms(&self, now: Millis) -> Millis {
        let stands = self.stall.lock().stands;
        stands.map_or(0, |(_, since)| now.saturating_sub(since))
    }

    /// Since when there have been changes that a power cut would lose, milliseconds, to within the time between
    /// two calls of [`Self::watch`]; 0 if there are none.
    pub(super) fn unsynced_ms(&self, now: Millis) -> Millis {
        self.unsynced.lock().age_ms(self.queue.synced(), now)
    }

    /// Length of all logs, and of all snapshots, if the disk tells.
    pub(super) fn lengths(&self) -> Option<(u64, u64)> {
        let view = self.state.view();
        let (older, snapshots) = (view.older_bytes?, view.snapshot_bytes?);
        let log = view.log.map_or(0, |(_, bytes)| bytes);
        Some((older.saturating_sub(snapshots) + log, snapshots))
    }

    /// Checks that the disk still works. To be called a few times per second, but not at once after
    /// this process stood still.
    pub(super) fn watch(&self, now: Millis) {
        self.unsynced.lock().sample(self.queue.appended(), self.queue.synced(), now);
        let done = self.queue.is_behind().then(|| (self.queue.written(), self.queue.synced()));
        if self.stall.lock().look(done, now) {
            self.queue.fail(&format!("the disk has done nothing for {} s", STALL_MS / 1_000));
        }
    }

    /// This process stood still: what the disk did meanwhile is not known yet.
    pub(super) fn forgive(&self) {
        *self.stall.lock() = Stall::default();
    }

    /// Ends the log: everything that was changed is written, and that the node stopped, if the disk
    /// lets it be. No event is made after this. Waits for it, up to `patience`. Returns whether the directory has all.
    pub(super) async fn stop(&self, hub: &Hub, patience: Duration) -> bool {
        hub.stop_log();
        let is_in_time = rt::timeout(patience, self.state.ended()).await.is_some();
        if !is_in_time {
            tracing::warn!("the disk is too slow for a clean stop");
        }
        let has_all = is_in_time && self.state.view().failing_since.is_none();
        self.queue.close();
        has_all
    }

    /// Ends the log of a node that does not come back. Returns whether the directory says so now.
    pub(super) async fn stop_for_good(&self, hub: &Hub, patience: Duration) -> bool {
        self.state.leave_for_good();
        self.stop(hub, patience).await;
        self.state.view().has_left
    }

    /// Ends the log as a crash does.
    pub(super) fn abandon(&self) {
        self.queue.close();
    }
}

/// Wakes all waiting tasks when the log's thread has ended.
struct Ending {
    queue: Arc<LogQueue>,
    state: Arc<LogState>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.queue.close();
        self.state.note_end();
    }
}

/// Since when the disk has made no progress although it has work.
#[derive(Default)]
struct Stall {
    /// Its last progress, and when that was noticed first.
    stands: Option<((u64, u64), Millis)>,
}

impl Stall {
    /// `done`: its progress, if it has work. Returns whether it has stood too long.
    fn look(&mut self, done: Option<(u64, u64)>, now: Millis) -> bool {
        let Some(done) = done else {
            self.stands = None;
            return false;
        };
        match self.stands {
            Some((stood, since)) if stood == done => now.saturating_sub(since) >= STALL_MS,
            _ => {
                self.stands = Some((done, now));
                false
            }
        }
    }
}

/// When batches of changes were appended that are not synced, to within the time between two samples.
#[derive(Default)]
struct Unsynced {
    /// The number of the last batch, and when it was first seen; rising.
    samples: VecDeque<(u64, Millis)>,
}

impl Unsynced {
    /// To be called every second.
    fn sample(&mut self, appended: u64, synced: u64, now: Millis) {
        while self.samples.front().is_some_and(|(number, _)| *number <= synced) {
            self.samples.pop_front();
        }
        let is_new = self.samples.back().is_none_or(|(last, _)| *last < appended);
        // While the disk stands still, the oldest is what counts.
        if appended > synced && is_new && self.samples.len() < UNSYNCED_SAMPLES_MAX {
            self.samples.push_back((appended, now));
        }
    }

    fn age_ms(&self, synced: u64, now: Millis) -> Millis {
        let oldest = self.samples.iter().find(|(number, _)| *number > synced);
        oldest.map_or(0, |(_, since)| now.saturating_sub(*since))
    }
}

#[cfg(test)]
mod stall_tests {
    use super::*;

    #[test]
    fn the_oldest_unsynced_change_counts_and_what_is_synced_does_not() {
        let mut unsynced = Unsynced::default();
        unsynced.sample(5, 5, 1_000);
        assert_eq!(unsynced.age_ms(5, 1_500), 0);
        unsynced.sample(7, 5, 2_000);
        unsynced.sample(9, 5, 3_000);
        assert_eq!(unsynced.age_ms(5, 3_500), 1_500);
        assert_eq!(unsynced.age_ms(7, 3_500), 500, "synced since the last look");
        assert_eq!(unsynced.age_ms(9, 3_500), 0);
        unsynced.sample(9, 9, 4_000);
        assert!(unsynced.samples.is_empty());
        for second in 0..2 * UNSYNCED_SAMPLES_MAX as u64 {
            unsynced.sample(10 + second, 9, 5_000 + second * 1_000);
        }
        assert_eq!(unsynced.samples.len(), UNSYNCED_SAMPLES_MAX);
        assert_eq!(unsynced.age_ms(9, 105_000), 100_000);
    }

    #[test]
    fn only_a_disk_that_has_something_to_do_and_does_nothing_stands_still() {
        let mut stall = Stall::default();
        assert!(!stall.look(Some((1, 0)), 1_000));
        assert!(!stall.look(Some((1, 1)), 1_000 + STALL_MS), "it got further");
        assert!(!stall.look(None, 1_000 + 2 * STALL_MS));
        assert!(!stall.look(Some((1, 1)), 1_000 + 3 * STALL_MS));
        assert!(!stall.look(Some((1, 1)), 999 + 4 * STALL_MS));
        assert!(stall.look(Some((1, 1)), 1_000 + 4 * STALL_MS));
    }
}

//! The log's thread: appends the hub's batches, syncs as the policy says, begins new files, and has
//! snapshots made.
//!
//! Any error of the disk stops logging: the present file is not used any more, because nobody can
//! say what is in it. From time to time the thread tries to begin anew, with a snapshot of the
//! state of that moment and a log that starts from it. Only when both are synced is logging
//! reported to work again.

use std::sync::Arc;
use std::time::Duration;

use super::age_clock::{AgeClock, Known};
use super::room::{RoomWatch, needed};
use super::saver::{SaveJob, save};
use super::state::LogState;
use super::{LogSettings, SyncPolicy, System};
use crate::engine::delete::store_after_renewal;
use crate::engine::{Config, Image, Input, Knowledge};
use crate::hub::Hub;
use crate::hub::log_queue::{Cut, CutPurpose, LogItem, LogQueue, Taken};
use crate::model::defects::Defect;
use crate::model::ids::{Millis, NodeId, NodeTable};
use crate::model::invariant::{Planted, invariant, is_planted};
use crate::storage::{Batch, DataDir, FileHeader, LogStart, LogWriter, Op, Owner, StorageError};

/// Under `every second`: a sync begins this long after the first write that it is for. With the
/// time that the sync takes, that stays below a second on any disk that is not overloaded.
const SYNC_AFTER_MS: Millis = 500;
/// How long the thread sleeps when there is nothing to do.
const IDLE_MS: Millis = 1_000;
/// After a failure it is tried again so soon, and then less and less often.
const RETRY_MS: Millis = 1_000;
const RETRY_MS_MAX: Millis = 30_000;
/// While logging fails it is said this often.
const TELL_INTERVAL_MS: Millis = 600_000;
/// After this many logs a snapshot is made, however little is in them: each start, and each day,
/// begins one.
const FILES_MAX: usize = 64;
/// A snapshot that failed while the log continues is tried again after this time.
const SAVE_RETRY_MS: Millis = 60_000;
/// A sync that takes this long is logged, and another one only after some time.
const SLOW_MS: Millis = 1_000;
const COMPLAIN_INTERVAL_MS: Millis = 60_000;
/// When nothing was logged for so long, the log says that nothing was missed until then.
const MARK_AFTER_MS: Millis = 60_000;
/// How often it is looked whether the data directory is still where it was.
const PLACE_INTERVAL_MS: Millis = 2_000;
/// Most requests for a safe state that are open at once. The engine has two at most, and forgets
/// those before.
const REQUESTS_MAX: usize = 64;

/// What a start would have to read besides a snapshot.
#[derive(Clone, Copy, Default)]
pub(super) struct Logged {
    pub(super) bytes: u64,
    pub(super) files: usize,
}

/// What a start has found.
#[derive(Clone, Copy, Default)]
pub(super) struct Found {
    pub(super) logged: Logged,
    /// The newest snapshot's length.
    pub(super) snapshot_bytes: u64,
    /// What the log tells of the time.
    pub(super) known: Known,
}

/// What is needed to begin: the files, and whose they are.
pub(super) struct LogFiles {
    pub(super) dir: Arc<DataDir>,
    pub(super) network: String,
    /// The node, in the life that it is in.
    pub(super) id: NodeId,
    pub(super) store: u64,
    /// The greatest number that was used.
    pub(super) number: u64,
    pub(super) system: Arc<dyn System>,
}

impl LogFiles {
    /// Of the file that begins at a cut.
    fn next_header(&mut self, cut_ms: u64) -> FileHeader {
        self.number += 1;
        FileHeader { time_ms: cut_ms, ..self.header() }
    }

    pub(super) fn header(&self) -> FileHeader {
        FileHeader {
            number: self.number,
            network: self.network.clone(),
            id: self.id.clone(),
            store: self.store,
            time_ms: self.system.wall_clock_ms(),
        }
    }
}

/// Writes a node's log, one [`Logger::step`] after the other.
pub struct Logger {
    hub: Arc<Hub>,
    queue: Arc<LogQueue>,
    state: Arc<LogState>,
    settings: LogSettings,
    files: LogFiles,
    /// The present log; none while logging fails, or when the node has stopped.
    log: Option<LogWriter>,
    /// When it was begun.
    begun: Millis,
    /// When something was appended to a log for the last time.
    appended_at: Millis,
    /// The last batch that was appended.
    last: u64,
    /// The last one that is in an earlier log.
    last_before: u64,
    /// Since when something is appended and not synced.
    unsynced_since: Option<Millis>,
    /// The requests to make the state safe.
    requests: Vec<u64>,
    /// How often logging has failed, as far as was noticed here.
    failures: u64,
    /// The present log began anew, and that was not reported yet.
    is_recovering: bool,
    /// When to begin anew, and how long to wait after that.
    retry_at: Millis,
    retry_ms: Millis,
    /// When to say again that logging fails.
    tell_at: Millis,
    /// A cut is in the queue.
    is_cutting: bool,
    /// The bytes logged since the last snapshot, and their number before the one being made.
    since_snapshot: Logged,
    before_snapshot: Logged,
    /// The last snapshot's length.
    snapshot_bytes: u64,
    save_at: Millis,
    /// Not before this time is said again that the disk is slow.
    complain_at: Millis,
    /// When to look whether the data directory is still in its place.
    place_at: Millis,
    /// How much room the disk has.
    room: RoomWatch,
    /// What says how old files are.
    ages: AgeClock,
    system: Arc<dyn System>,
}

impl Logger {
    /// `log`: none if it could not be begun; then it is tried again.
    pub(super) fn new(
        hub: Arc<Hub>,
        queue: Arc<LogQueue>,
        settings: LogSettings,
        files: LogFiles,
        log: Option<LogWriter>,
        found: Found,
    ) -> Self {
        let state = Arc::new(LogState::default());
        state.update(|view| view.store = files.store);
        let system = Arc::clone(&files.system);
        let (wall_clock_ms, now) = (system.wall_clock_ms(), system.awake_or_not());
        Self {
            hub,
            queue,
            state,
            settings,
            files,
            log,
            begun: system.now(),
            appended_at: 0,
            last: 0,
            last_before: 0,
            unsynced_since: None,
            requests: Vec::new(),
            // Whatever failed before has not been noticed here.
            failures: 0,
            is_recovering: false,
            retry_at: 0,
            retry_ms: RETRY_MS,
            tell_at: 0,
            is_cutting: false,
            since_snapshot: found.logged,
            before_snapshot: Logged::default(),
            snapshot_bytes: found.snapshot_bytes,
            save_at: 0,
            complain_at: 0,
            place_at: 0,
            room: RoomWatch::default(),
            ages: AgeClock::new(found.known, wall_clock_ms, now),
            system,
        }
    }

    /// What it takes from.
    #[must_use]
    pub fn queue(&self) -> Arc<LogQueue> {
        Arc::clone(&self.queue)
    }

    /// What it tells.
    #[must_use]
    pub fn state(&self) -> Arc<LogState> {
        Arc::clone(&self.state)
    }

    /// Works until the node has ended.
    pub fn run(mut self) {
        self.measure();
        let mut patience = Duration::ZERO;
        while self.step(patience) {
            patience = Duration::from_millis(self.patience());
        }
    }

    /// Does what there is to do; waits for something that long. False when there will be nothing
    /// any more.
    pub fn step(&mut self, patience: Duration) -> bool {
        let Taken { items, requests, failures, is_over } = self.queue.take(patience);
        let now = self.system.now();
        if let Some(news) = self.ages.look(self.system.wall_clock_ms(), self.system.awake_or_not())
        {
            news.tell("snapshots or logs");
        }
        if failures != self.failures {
            self.failures = failures;
            let failure = self.queue.failure();
            self.on_failed(failure.as_ref().map_or("unknown", |failure| &failure.why));
        }
        self.requests.extend(requests);
        let mut items = items.into_iter();
        let done = items.by_ref().try_for_each(|item| self.carry_out(item, now));
        // What comes behind a failure is in no log, but in the snapshot with which logging begins anew;
        // who wants it to be safe is told then.
        for item in items {
            if let LogItem::Batch { persist, .. } = item {
                self.note_requests(persist);
            }
        }
        let done = done.and_then(|()| self.mark(now)).and_then(|()| self.make_safe(now));
        if let Err(error) = done {
            self.fail(&error);
        }
        if !is_over {
            self.maintain(now);
        }
        self.show();
        !is_over
    }

    fn carry_out(&mut self, item: LogItem, now: Millis) -> Result<(), StorageError> {
        match item {
            LogItem::Batch { number, batch, persist } => {
                self.note_requests(persist);
                self.append(number, batch, now)
            }
            LogItem::Cut(cut) => self.cut(*cut, now),
        }
    }

    fn note_requests(&mut self, requests: Vec<u64>) {
        self.requests.extend(requests);
        let too_many = self.requests.len().saturating_sub(REQUESTS_MAX);
        self.requests.drain(..too_many);
    }

    fn append(&mut self, number: u64, batch: Batch, now: Millis) -> Result<(), StorageError> {
        if self.log.is_none() {
            return Ok(());
        }
        let has_planted = |op: &Op| matches!(op, Op::Put(put) if put.path.to_string() == "planted");
        if is_planted(Planted::LogNumber) && batch.ops.iter().any(has_planted) {
            // Before the check: after it, the node would answer this write if another came at that moment.
            self.last += 1;
        }
        invariant!(
            number == self.last + 1,
            "a log's batches follow one another without a gap",
            "{number} after {}",
            self.last
        );
        self.write(&batch, now)?;
        self.last = number;
        match &batch.knowledge {
            Some(knowledge) if knowledge.id != self.files.id => {
                self.renew(knowledge, &batch.table, batch.time_ms, now)
            }
            _ => Ok(()),
        }
    }

    /// Once a minute while nothing happens, the log says so: else, of a node that is killed, all the time since its last
    /// change would count as one at which it was off.
    fn mark(&mut self, now: Millis) -> Result<(), StorageError> {
        if now.saturating_sub(self.begun.max(self.appended_at)) < MARK_AFTER_MS {
            return Ok(());
        }
        // What waits was done before, and is not in the log.
        let Some(time_ms) = self.queue.caught_up_ms() else { return Ok(()) };
        self.write(&Batch::nothing(time_ms), now)
    }

    /// Writes a batch to the log, if there is one.
    fn write(&mut self, batch: &Batch, now: Millis) -> Result<(), StorageError> {
        let Some(log) = &mut self.log else { return Ok(()) };
        self.since_snapshot.bytes += log.append(batch)?;
        self.appended_at = now;
        self.unsynced_since.get_or_insert(now);
        Ok(())
    }

    /// The node continues under a new incarnation, as another member of the Delete group: it must
    /// not come back as the old member.
    fn renew(
        &mut self,
        knowledge: &Knowledge,
        table: &NodeTable,
        time_ms: u64,
        now: Millis,
    ) -> Result<(), StorageError> {
        self.note_renewal(&knowledge.id);
        self.rotate(knowledge, table, time_ms, now)
    }

    fn note_renewal(&mut self, id: &NodeId) {
        self.files.id = id.clone();
        self.files.store = store_after_renewal(id.incarnation);
        let store = self.files.store;
        self.state.update(|view| view.store = store);
    }

    fn cut(&mut self, cut: Cut, now: Millis) -> Result<(), StorageError> {
        let Cut { number, image, purpose, time_ms } = cut;
        self.is_cutting = false;
        match purpose {
            CutPurpose::Rotate => {
                self.rotate(&image.knowledge(), &image.replica.table, time_ms, now)
            }
            CutPurpose::Snapshot => {
                self.rotate(&image.knowledge(), &image.replica.table, time_ms, now)?;
                self.save(image);
                Ok(())
            }
            CutPurpose::Anew => self.begin_anew(number, &image, time_ms, now),
            CutPurpose::Stop => self.stop(number, &image, time_ms),
        }
    }

    /// The log continues in another file, from a state of that time.
    fn rotate(
        &mut self,
        knowledge: &Knowledge,
        table: &NodeTable,
        time_ms: u64,
        now: Millis,
    ) -> Result<(), StorageError> {
        let Some(log) = self.log.take() else { return Ok(()) };
        let header = self.files.next_header(time_ms);
        self.log = Some(self.files.dir.rotate(log, &header, knowledge, table)?);
        self.begun = now;
        self.last_before = self.last;
        self.since_snapshot.files += 1;
        self.note_synced();
        self.measure();
        Ok(())
    }

    /// Has a snapshot made of the state at the beginning of the present log.
    fn save(&mut self, image: Image) {
        let Some(log) = &self.log else { return };
        let mut image = image;
        if self.settings.defects.has(Defect::SnapshotKnowsMore) {
            let later = self.hub.read(crate::engine::Engine::image);
            image.replica.seen = later.replica.seen;
            image.replica.table = later.replica.table;
        }
        self.before_snapshot = std::mem::take(&mut self.since_snapshot);
        let job = SaveJob {
            dir: Arc::clone(&self.files.dir),
            header: log.header().clone(),
            image,
            settings: self.settings,
            age_time_ms: self.ages.time_ms(),
            state: Arc::clone(&self.state),
            queue: Arc::clone(&self.queue),
            wishes: self.state.take_wishes(),
            system: Arc::clone(&self.system),
        };
        self.system.save(job);
    }

    /// Begins with a snapshot and a log that starts from it. Batches queued meanwhile wait.
    fn begin_anew(
        &mut self,
        number: u64,
        image: &Image,
        time_ms: u64,
        now: Millis,
    ) -> Result<(), StorageError> {
        if self.files.id != *image.id() {
            self.note_renewal(image.id());
        }
        let header = self.files.next_header(time_ms);
        let mut image = image.clone();
        if self.settings.defects.has(Defect::AnewWithoutData) {
            image.replica.tree =
                crate::engine::Engine::new(Config::new(image.id().clone(), 0)).image().replica.tree;
        }
        let image = &image;
        let keeping = (&self.settings, self.ages.time_ms());
        let info = save(&self.files.dir, &header, image, keeping, &*self.system)?;
        let (start, table) = (LogStart::Snapshot, &image.replica.table);
        let log = self.files.dir.begin_log(&header, start, &image.knowledge(), table)?;
        self.snapshot_bytes = info.bytes;
        self.state.note_saved(&Ok((info, header.time_ms)));
        let _ = self.state.take_saved();
        self.log = Some(log);
        self.begun = now;
        self.last = number;
        self.last_before = number;
        self.since_snapshot = Logged::default();
        self.is_recovering = true;
        self.unsynced_since = Some(now);
        self.measure();
        Ok(())
    }

    fn stop(&mut self, number: u64, image: &Image, time_ms: u64) -> Result<(), StorageError> {
        if self.log.is_none() {
            // Whoever has freed the disk stops the node next: the pause between two looks at it must not cost what came since.
            let anew = self.begin_anew(number, image, time_ms, self.system.now());
            anew.inspect_err(|_| {
                tracing::error!("the disk fails, so there is no record that this node has stopped");
            })?;
        }
        let Some(log) = self.log.take() else { return Ok(()) };
        let (knowledge, table, header) =
            (image.knowledge(), &image.replica.table, log.header().clone());
        self.files.dir.stop(log, time_ms, &knowledge, table)?;
        if self.state.leaves_for_good() {
            self.files.dir.note_left(&header)?;
            self.state.update(|view| view.has_left = true);
        }
        self.last = self.last.max(number);
        self.note_synced();
        tracing::debug!("the data directory says that this node has stopped");
        Ok(())
    }

    /// Writes what was appended, and syncs it if it is time or requested.
    fn make_safe(&mut self, now: Millis) -> Result<(), StorageError> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let began_us = self.system.now_us();
        log.flush()?;
        self.queue.publish_written(self.last);
        if self.settings.defects.has(Defect::BatchBeforeSync) {
            self.queue.publish_synced(self.last);
        }
        let due = self.unsynced_since.is_some_and(|since| match self.settings.sync {
            SyncPolicy::Never => false,
            SyncPolicy::EverySecond => now.saturating_sub(since) >= SYNC_AFTER_MS,
            SyncPolicy::EveryBatch => true,
        });
        if due || self.is_recovering || !self.requests.is_empty() {
            log.sync()?;
            self.state.sync_times.add_us(self.system.now_us().saturating_sub(began_us));
            let took_ms = self.system.now().saturating_sub(now);
            self.note_synced();
            self.complain(took_ms);
        }
        Ok(())
    }

    /// A disk that is slow makes clients wait, or is about to fail: an operator should know.
    fn complain(&mut self, took_ms: Millis) {
        let now = self.system.now();
        if took_ms >= SLOW_MS && now >= self.complain_at {
            self.complain_at = now + COMPLAIN_INTERVAL_MS;
            tracing::warn!(took_ms, "the disk is slow: it took so long to write and sync the log");
        }
    }

    /// Everything that was appended is safe now.
    fn note_synced(&mut self) {
        self.unsynced_since = None;
        if std::mem::take(&mut self.is_recovering) {
            self.queue.recover(self.last);
            if self.queue.failure().is_some() {
                return; // it has failed again meanwhile
            }
            self.retry_ms = RETRY_MS;
            self.state.update(|view| view.failing_since = None);
            tracing::info!("logging works again, from a new snapshot on");
        } else {
            self.queue.publish_synced(self.last);
        }
        for token in std::mem::take(&mut self.requests) {
            self.hub.handle(Input::Persisted { token }, self.system.now());
        }
    }

    /// The disk refused something.
    fn fail(&mut self, error: &StorageError) {
        let why = error.to_string();
        let is_first = self.state.view().failing_since.is_none();
        self.failures = self.queue.fail(&why);
        self.on_failed(&why);
        if is_first && error.is_full() {
            // The snapshot with which logging begins anew makes room, where there is something to remove.
            self.retry_at = self.system.now();
        }
    }

    /// Logging has failed, here or elsewhere.
    fn on_failed(&mut self, why: &str) {
        let now = self.system.now();
        self.log = None;
        self.unsynced_since = None;
        self.is_recovering = false;
        self.is_cutting = false;
        self.retry_at = now + self.retry_ms;
        self.retry_ms = (self.retry_ms * 2).min(RETRY_MS_MAX);
        let is_news = self.state.view().failing_since.is_none() || now >= self.tell_at;
        self.state.update(|view| {
            view.failures += 1;
            view.failing_since.get_or_insert(now);
        });
        // The file that was the log is one of the older ones now, or gone.
        self.show();
        self.measure();
        if !is_news {
            tracing::debug!("the log still cannot be written: {why}");
            return;
        }
        self.tell_at = now + TELL_INTERVAL_MS;
        if self.queue.gates() {
            tracing::error!(
                "the log cannot be written: {why}; changes of clients are refused until it can be"
            );
        } else {
            tracing::error!(
                "the log cannot be written: {why}; nothing is logged until it can be, but the node continues"
            );
        }
    }

    /// Begins files and snapshots when it is time for them.
    fn maintain(&mut self, now: Millis) {
        match self.state.take_saved() {
            None => {}
            Some(Ok(bytes)) => {
                self.snapshot_bytes = bytes;
                self.measure();
            }
            Some(Err(())) => {
                self.since_snapshot.bytes += self.before_snapshot.bytes;
                self.since_snapshot.files += self.before_snapshot.files;
                self.save_at = now + SAVE_RETRY_MS;
                self.measure();
            }
        }
        if let Some(log) = &self.log
            && now >= self.place_at
        {
            self.place_at = now + PLACE_INTERVAL_MS;
            if let Err(error) = self.files.dir.check_log(log) {
                self.fail(&error);
            }
        }
        let is_saving = self.state.view().is_saving;
        self.look_at_room(is_saving, now);
        let Some(log) = &self.log else {
            self.disappoint();
            if now >= self.retry_at && !self.is_cutting {
                self.is_cutting = true;
                self.hub.cut_log(CutPurpose::Anew);
            }
            return;
        };
        if self.is_cutting {
            return;
        }
        let wants_snapshot =
            self.state.has_wishes() || (self.is_snapshot_due() && now >= self.save_at);
        // An empty one never gets old: it would only be followed by an identical one.
        let is_old = self.last > self.last_before
            && now.saturating_sub(self.begun) >= self.settings.rotate_after_ms;
        let purpose = if wants_snapshot && !is_saving {
            CutPurpose::Snapshot
        } else if log.len() >= self.settings.rotate_bytes || is_old {
            CutPurpose::Rotate
        } else {
            return;
        };
        self.is_cutting = true;
        self.hub.cut_log(purpose);
    }

    /// Whether a start would have too much log to read. A snapshot is as long as the state is, so it
    /// is made only when there is as much log as that: else a big state would be written again and
    /// again.
    fn is_snapshot_due(&self) -> bool {
        let bytes = self.settings.snapshot_after.max(self.snapshot_bytes);
        self.since_snapshot.bytes >= bytes || self.since_snapshot.files >= FILES_MAX
    }

    /// While a snapshot is made, some of the room for it is taken already: then that tells nothing.
    fn look_at_room(&mut self, is_saving: bool, now: Millis) {
        let (after, since) = (self.settings.snapshot_after, self.since_snapshot.bytes);
        let needed = (!is_saving).then(|| needed(after, since, self.snapshot_bytes));
        self.room.look(&**self.files.dir.disk(), needed, now);
    }

    /// While logging fails there are no snapshots for anybody.
    fn disappoint(&self) {
        for wish in self.state.take_wishes() {
            let failure = self.queue.failure();
            let why = failure.map_or("the node stops".into(), |failure| failure.why);
            // A caller that does not wait any more needs no answer.
            let _ = wish.try_send(Err(format!("the log cannot be written: {why}")));
        }
    }

    /// For how many milliseconds there is nothing to do if nothing comes.
    #[must_use]
    pub fn patience(&self) -> Millis {
        let now = self.system.now();
        let left = |at: Millis| at.saturating_sub(now);
        let mut patience = IDLE_MS;
        if let Some(since) = self.unsynced_since
            && self.settings.sync == SyncPolicy::EverySecond
        {
            patience = patience.min(left(since + SYNC_AFTER_MS));
        }
        if self.log.is_none() {
            patience = patience.min(left(self.retry_at));
        } else if self.last > self.last_before
            && let Some(at) = self.begun.checked_add(self.settings.rotate_after_ms)
        {
            patience = patience.min(left(at));
        }
        patience
    }

    fn measure(&self) {
        let newest = self.log.as_ref().map(LogWriter::name).unwrap_or_default();
        let LogFiles { dir, network, id, .. } = &self.files;
        let owner = Owner { network, name: id.name.as_str() };
        self.state.measure(&**dir.disk(), owner, newest);
    }

    fn show(&self) {
        let (number, since) = (self.files.number, self.since_snapshot.bytes);
        let log = self.log.as_ref().map(|log| (number, log.len()));
        let (room, little) = (self.room.seen(), self.room.little());
        self.state.update(|view| {
            view.log = log;
            view.since_snapshot = since;
            (view.room, view.little_room) = (room, little);
        });
    }
}

#[cfg(test)]
impl Logger {
    /// The pause after a failure is over.
    pub(super) fn retry_now(&mut self) {
        self.retry_at = 0;
    }

    pub(super) fn open_requests(&self) -> &[u64] {
        &self.requests
    }
}

//! What waits for the event log: batches in commit order, bounded in bytes, and the log's progress.
//!
//! Under the engine's exclusive guard the hub pushes each change ([`LogQueue::push`]); a thread of
//! the node takes it ([`LogQueue::take`]), writes it, and publishes up to which batch the log is
//! written and synced. Batches are numbered from 1. A task that must not tell of unsynced changes
//! waits for a number ([`LogQueue::until_synced`]), without a lock.
//!
//! A task that is about to make changes waits for room before it takes the guard
//! ([`LogQueue::room`]): then it waits for this node's disk, and holds nobody up. Changes that come
//! without waiting have more room above that; when that is used up as well, logging stops, with a
//! warning.
//!
//! While logging has failed, batches are counted and not kept: the log begins anew from a snapshot
//! of a later state ([`LogQueue::recover`]), which has them all.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use event_listener::Event;
use parking_lot::{Condvar, Mutex};

use crate::engine::Image;
use crate::model::defects::{Defect, Defects};
use crate::model::invariant::{OrBroken, invariant};
use crate::storage::{Batch, Op};

/// While more bytes than this wait, tasks that make changes wait. A disk that stands still for a
/// second under the heaviest writing fits in.
pub const LOG_QUEUE_BYTES_MAX: usize = 64 << 20;
/// When more than this waits, logging stops: what a few links' last messages bring fits in.
const HARD_FACTOR: usize = 4;
/// What one batch costs beyond its changes, so that tiny batches are bounded too.
const BATCH_COST: usize = 384;
/// About this many bytes are taken at once: what was taken does not count in the queue's account.
const TAKE_BYTES: usize = 4 << 20;
/// How often who waits for the log's progress looks by itself: it is told without the lock, and may miss that.
const PROGRESS_LOOK: Duration = Duration::from_millis(5);
/// Most requests to make the state safe that are kept while logging has failed. The engine has
/// two open at most, and forgets those before.
const REQUESTS_MAX: usize = 16;

/// One thing to do for the log's thread.
#[allow(clippy::large_enum_variant, reason = "nearly all are batches")]
pub enum LogItem {
    /// Append what one change did.
    Batch {
        /// Its number.
        number: u64,
        /// The change, with the time when it was made.
        batch: Batch,
        /// Requests to make the state of this moment safe ([`crate::engine::Output::Persist`]).
        persist: Vec<u64>,
    },
    /// Everything before this belongs to an earlier file.
    Cut(Box<Cut>),
}

/// A place between two batches, and the state at it.
pub struct Cut {
    /// The last batch before it.
    pub number: u64,
    /// The state.
    pub image: Image,
    /// Its purpose.
    pub purpose: CutPurpose,
    /// When it was made, milliseconds since 1970.
    pub time_ms: u64,
}

/// Tells milliseconds since 1970, as the system's clock has it.
pub(crate) type WallClock = Box<dyn Fn() -> u64 + Send + Sync>;

/// Why the log is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutPurpose {
    /// The next file begins, and that is all.
    Rotate,
    /// A snapshot of this state is to be made, and the next file begins.
    Snapshot,
    /// As above, and what was before it is not in the log.
    Anew,
    /// The node stops, and makes no event after this.
    Stop,
}

/// Why logging does not work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogFailure {
    /// What went wrong, for people.
    pub why: Arc<str>,
    /// The last batch that was safe before.
    pub synced: u64,
}

/// The queue; see the module.
pub struct LogQueue {
    /// Whether nothing unsynced may be seen outside (sync policy `every batch`).
    gates: bool,
    bytes_max: usize,
    defects: Defects,
    clock: WallClock,
    continues_from_ms: u64,
    state: Mutex<State>,
    appended: AtomicU64,
    written: AtomicU64,
    synced: AtomicU64,
    bytes: AtomicUsize,
    failed: AtomicBool,
    /// There is something to do for the thread.
    work: Condvar,
    /// More was written, or logging fails.
    progress: Condvar,
    /// Fires when something was synced, when there is room, when logging fails or works again.
    changed: Event,
}

#[derive(Default)]
struct State {
    items: VecDeque<LogItem>,
    /// The cost of the items. [`LogQueue::bytes`] is the same, readable without the lock.
    bytes: usize,
    mode: Mode,
    /// Requests to make the state safe that came while logging had failed.
    requests: Vec<u64>,
    failure: Option<LogFailure>,
    /// Rises with each failure, so that the thread notices one that was not its own.
    failures: u64,
    /// The thread is wanted for something that is not in the queue.
    called: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Mode {
    /// Batches are kept.
    #[default]
    Open,
    /// Batches are counted.
    Failed,
    /// No thread takes them any more.
    Closed,
}

/// What pushing did.
#[derive(Default)]
pub(super) struct PushedBatch {
    /// The batch's number.
    pub(super) number: u64,
    /// What the queue gave up, to be dropped after the guard's release.
    pub(super) garbage: VecDeque<LogItem>,
}

/// What the thread got.
pub struct Taken {
    /// In order.
    pub items: Vec<LogItem>,
    /// Requests to make the state safe that are older than any item and still open.
    pub requests: Vec<u64>,
    /// How often logging has failed so far, for whatever reason.
    pub failures: u64,
    /// The node is gone, or has stopped: nothing more will come.
    pub is_over: bool,
}

impl LogQueue {
    /// A queue for a log. `gates`: nothing may be seen outside before it is synced.
    #[must_use]
    pub fn new(gates: bool) -> Self {
        Self::bounded(gates, LOG_QUEUE_BYTES_MAX, Defects::default())
    }

    /// With another bound, for tests and simulations.
    #[must_use]
    pub fn bounded(gates: bool, bytes_max: usize, defects: Defects) -> Self {
        Self {
            gates,
            bytes_max,
            defects,
            clock: Box::new(|| 0),
            continues_from_ms: 0,
            state: Mutex::default(),
            appended: AtomicU64::new(0),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            bytes: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            work: Condvar::new(),
            progress: Condvar::new(),
            changed: Event::new(),
        }
    }

    /// With a clock: what is pushed has the time when it was made, however late the disk gets it.
    /// Without one, all times are 0.
    #[must_use]
    pub fn stamped_by(self, clock: WallClock) -> Self {
        Self { clock, ..self }
    }

    /// Of a log that goes on after this time, the last one that its past tells of, in milliseconds since 1970.
    #[must_use]
    pub fn continuing_from(self, ms: u64) -> Self {
        Self { continues_from_ms: ms, ..self }
    }

    /// That time; 0 if there is none.
    #[must_use]
    pub fn continues_from_ms(&self) -> u64 {
        self.continues_from_ms
    }

    /// Whether nothing unsynced may be seen outside.
    #[must_use]
    pub fn gates(&self) -> bool {
        self.gates
    }

    /// The number of the last batch.
    #[must_use]
    pub fn appended(&self) -> u64 {
        self.appended.load(Ordering::Acquire)
    }

    /// Up to which batch the log is written: what survives this process.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Up to which batch the log is synced: what survives a power cut.
    #[must_use]
    pub fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Bytes that wait.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Why logging does not work, if it does not.
    #[must_use]
    pub fn failure(&self) -> Option<LogFailure> {
        if !self.failed.load(Ordering::Acquire) {
            return None;
        }
        self.state.lock().failure.clone()
    }

    /// How often logging has failed so far.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.state.lock().failures
    }

    /// Why a client's change must be refused, if it must.
    #[must_use]
    pub fn refusal(&self) -> Option<LogFailure> {
        if self.gates { self.failure() } else { None }
    }

    /// Whether changes may be made without waiting.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.bytes() < self.bytes_max
    }

    /// Waits until changes may be made.
    pub async fn room(&self) {
        self.wait(|| self.has_room().then_some(())).await;
    }

    /// Waits until a batch, and all before it, may be seen outside.
    ///
    /// # Errors
    /// Logging failed before it was safe. It will not be in the log as such.
    pub async fn until_synced(&self, number: u64) -> Result<(), LogFailure> {
        let is_done = || {
            if !self.gates || self.synced() >= number {
                return Some(Ok(()));
            }
            self.failure().map(Err)
        };
        self.wait(is_done).await
    }

    async fn wait<T>(&self, look: impl Fn() -> Option<T>) -> T {
        loop {
            if let Some(found) = look() {
                return found;
            }
            let listener = self.changed.listen();
            if let Some(found) = look() {
                return found;
            }
            listener.await;
        }
    }

    /// Appends what one change did. Under the engine's exclusive guard, before anything of it can
    /// be seen elsewhere.
    #[must_use]
    pub(super) fn push(&self, batch: Batch, persist: Vec<u64>) -> PushedBatch {
        let cost = cost_of(&batch);
        let mut state = self.state.lock();
        if state.mode == Mode::Closed {
            return PushedBatch { number: self.appended(), ..PushedBatch::default() };
        }
        let number = self.appended() + 1;
        self.appended.store(number, Ordering::Release);
        if state.mode == Mode::Failed {
            state.keep_requests(persist);
            return PushedBatch { number, ..PushedBatch::default() };
        }
        let batch = Batch { time_ms: (self.clock)(), ..batch };
        state.items.push_back(LogItem::Batch { number, batch, persist });
        self.set_bytes(&mut state, |bytes| bytes + cost);
        let mut garbage = VecDeque::new();
        let is_too_much = state.bytes > self.bytes_max.saturating_mul(HARD_FACTOR);
        if is_too_much && self.defects.has(Defect::LogQueueDrops) {
            garbage = std::mem::take(&mut state.items);
            self.set_bytes(&mut state, |_| 0);
        } else if is_too_much {
            let why = format!("{} bytes wait for the disk, which does not keep up", state.bytes);
            garbage = self.fail_locked(&mut state, &why);
        }
        drop(state);
        self.work.notify_one();
        PushedBatch { number, garbage }
    }

    /// Cuts the log here. With the engine's guard held, shared or exclusive, so that nothing is
    /// pushed meanwhile.
    pub(super) fn push_cut(&self, image: Image, purpose: CutPurpose) {
        let mut state = self.state.lock();
        match (state.mode, purpose) {
            (Mode::Closed, _) => return,
            (_, CutPurpose::Anew) => state.mode = Mode::Open,
            (_, CutPurpose::Stop) => state.mode = Mode::Closed,
            (Mode::Failed, _) => return,
            (Mode::Open, _) => {}
        }
        let cut = Cut { number: self.appended(), image, purpose, time_ms: (self.clock)() };
        state.items.push_back(LogItem::Cut(Box::new(cut)));
        drop(state);
        self.work.notify_one();
    }

    /// Calls the thread: there is something to do for it that is not in the queue.
    pub fn call(&self) {
        self.state.lock().called = true;
        self.work.notify_one();
    }

    /// For the thread: waits for something to do, but not longer than that.
    #[must_use]
    pub fn take(&self, patience: Duration) -> Taken {
        let mut state = self.state.lock();
        let is_idle = state.items.is_empty() && !state.called && state.mode != Mode::Closed;
        if is_idle && !patience.is_zero() {
            self.work.wait_for(&mut state, patience);
        }
        state.called = false;
        let (mut items, mut bytes) = (Vec::new(), 0);
        while bytes < TAKE_BYTES
            && let Some(item) = state.items.pop_front()
        {
            bytes += cost(&item);
            items.push(item);
        }
        let was_full = !self.has_room();
        self.set_bytes(&mut state, |all| all.checked_sub(bytes).or_broken(COUNTED));
        let is_over = state.mode == Mode::Closed && items.is_empty();
        let requests = match state.mode {
            Mode::Failed => Vec::new(),
            Mode::Open | Mode::Closed => std::mem::take(&mut state.requests),
        };
        let failures = state.failures;
        drop(state);
        if was_full && self.has_room() {
            self.changed.notify(usize::MAX);
        }
        Taken { items, requests, failures, is_over }
    }

    /// For the thread: the time, if it has taken all that was done before, and all of that is kept.
    #[must_use]
    pub fn caught_up_ms(&self) -> Option<u64> {
        // What is pushed from now on gets its time with the same lock, and so a later one.
        let state = self.state.lock();
        (state.mode == Mode::Open && state.items.is_empty()).then(|| (self.clock)())
    }

    fn set_bytes(&self, state: &mut State, change: impl FnOnce(usize) -> usize) {
        state.bytes = change(state.bytes);
        self.bytes.store(state.bytes, Ordering::Release);
    }

    /// Whether the log's thread has something in hand, or has something to take: then it should
    /// get further.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        let done = if self.gates { self.synced() } else { self.written() };
        done < self.appended() && !self.failed.load(Ordering::Acquire)
    }

    /// Up to this batch the log is written.
    pub fn publish_written(&self, number: u64) {
        invariant!(number <= self.appended(), "the log has batches that were appended");
        self.written.fetch_max(number, Ordering::AcqRel);
        self.progress.notify_all();
    }

    /// Waits until all that was pushed before now is written, but about as long as that at most, and not while logging
    /// fails: for who reads the files then. Returns whether it is. Blocks the thread.
    pub fn wait_written(&self, patience: Duration) -> bool {
        let target = self.appended();
        let is_done = || self.written() >= target || self.failed.load(Ordering::Acquire);
        let looks = patience.as_millis().div_ceil(PROGRESS_LOOK.as_millis());
        for _ in 0..looks {
            if is_done() {
                break;
            }
            let mut state = self.state.lock();
            if !is_done() {
                self.progress.wait_for(&mut state, PROGRESS_LOOK);
            }
        }
        self.written() >= target
    }

    /// Up to this batch the log is synced.
    pub fn publish_synced(&self, number: u64) {
        self.publish_written(number);
        self.synced.fetch_max(number, Ordering::AcqRel);
        self.changed.notify(usize::MAX);
    }

    /// Logging does not work (any more). Everything that waits is dropped, and waiting tasks are
    /// told. Returns how often it has failed so far.
    pub fn fail(&self, why: &str) -> u64 {
        let mut state = self.state.lock();
        if state.mode == Mode::Closed {
            return state.failures;
        }
        let garbage = self.fail_locked(&mut state, why);
        let failures = state.failures;
        drop(state);
        drop(garbage);
        self.work.notify_one();
        failures
    }

    /// Gives back what waited: dropping that may take time.
    fn fail_locked(&self, state: &mut State, why: &str) -> VecDeque<LogItem> {
        state.mode = Mode::Failed;
        state.failures += 1;
        // The first reason is the cause.
        let failure = LogFailure { why: why.into(), synced: self.synced() };
        state.failure.get_or_insert(failure);
        self.failed.store(true, Ordering::Release);
        self.set_bytes(state, |_| 0);
        let garbage = std::mem::take(&mut state.items);
        for item in &garbage {
            if let LogItem::Batch { persist, .. } = item {
                state.keep_requests(persist.iter().copied());
            }
        }
        self.changed.notify(usize::MAX);
        self.progress.notify_all();
        garbage
    }

    /// Logging works again: everything up to this batch is in a snapshot or in the log after it,
    /// and is synced. Not if it has failed again meanwhile.
    pub fn recover(&self, number: u64) {
        let mut state = self.state.lock();
        if state.mode != Mode::Failed {
            state.failure = None;
            self.failed.store(false, Ordering::Release);
            drop(state);
            self.publish_synced(number);
        }
    }

    /// Nothing is taken any more: the node is gone.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.mode = Mode::Closed;
        let garbage = std::mem::take(&mut state.items);
        let why = "the node has ended".into();
        state.failure.get_or_insert(LogFailure { why, synced: self.synced() });
        self.failed.store(true, Ordering::Release);
        self.set_bytes(&mut state, |_| 0);
        drop(state);
        drop(garbage);
        self.work.notify_one();
        self.changed.notify(usize::MAX);
    }
}

impl State {
    fn keep_requests(&mut self, requests: impl IntoIterator<Item = u64>) {
        self.requests.extend(requests);
        let too_many = self.requests.len().saturating_sub(REQUESTS_MAX);
        self.requests.drain(..too_many);
    }
}

/// What taking from the queue relies on.
const COUNTED: &str = "what waits for the log was counted when it was queued";

/// What an item costs in the queue.
fn cost(item: &LogItem) -> usize {
    match item {
        LogItem::Batch { batch, .. } => cost_of(batch),
        // There are few, and their content is the tree's.
        LogItem::Cut(_) => 0,
    }
}

fn cost_of(batch: &Batch) -> usize {
    BATCH_COST + batch.ops.iter().map(Op::bytes).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::engine::{Config, Engine};
    use crate::model::ids::{Event, Incarnation, NodeId, NodeIndex, NodeName, NodeTable, Tick};
    use distkv_runtime as rt;

    fn batch(bytes: usize) -> Batch {
        let newest = Event { node: NodeIndex(0), tick: Tick::default() };
        let path = "a".repeat(bytes.saturating_sub(BATCH_COST + 35).max(1)).parse().unwrap();
        let ops = vec![Op::Gone { path, newest }];
        Batch { time_ms: 0, table: Arc::new(NodeTable::new()), ops, knowledge: None }
    }

    fn image() -> Image {
        let id = NodeId { name: NodeName::new("a").unwrap(), incarnation: Incarnation(1) };
        Engine::new(Config::new(id, 1)).image()
    }

    fn push(queue: &LogQueue, bytes: usize, persist: &[u64]) -> (u64, usize) {
        let pushed = queue.push(batch(bytes), persist.to_vec());
        (pushed.number, pushed.garbage.len())
    }

    fn take(queue: &LogQueue) -> (Vec<String>, Vec<u64>, bool) {
        let Taken { items, requests, is_over, .. } = queue.take(Duration::ZERO);
        let shown = items.iter().map(|item| match item {
            LogItem::Batch { number, persist, .. } if persist.is_empty() => number.to_string(),
            LogItem::Batch { number, persist, .. } => format!("{number}{persist:?}"),
            LogItem::Cut(cut) => format!("{:?} after {}", cut.purpose, cut.number),
        });
        (shown.collect(), requests, is_over)
    }

    /// Whether it is there at once.
    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        rt::block_on(rt::timeout(Duration::ZERO, future))
    }

    #[test]
    fn batches_are_numbered_and_come_out_in_order_with_the_cuts_between_them() {
        let queue = LogQueue::new(false);
        assert_eq!(push(&queue, 10, &[]), (1, 0));
        queue.push_cut(image(), CutPurpose::Rotate);
        assert_eq!(push(&queue, 10, &[7]), (2, 0));
        assert!(queue.is_behind() && queue.bytes() > 0);
        let expected = ["1", "Rotate after 1", "2[7]"].map(String::from).to_vec();
        assert_eq!(take(&queue), (expected, vec![], false));
        assert_eq!((queue.bytes(), queue.appended(), queue.written()), (0, 2, 0));
        queue.publish_written(2);
        assert!(!queue.is_behind());
        queue.push_cut(image(), CutPurpose::Stop);
        assert_eq!(push(&queue, 10, &[]), (2, 0), "nobody takes it any more");
        assert_eq!(take(&queue), (vec!["Stop after 2".into()], vec![], false));
        assert!(take(&queue).2);
    }

    #[test]
    fn who_makes_changes_waits_for_room_and_goes_on_when_there_is_some() {
        let queue = Arc::new(LogQueue::bounded(false, 1_000, Defects::default()));
        assert_eq!(now(queue.room()), Some(()));
        push(&queue, 1_000, &[]);
        assert!(!queue.has_room());
        assert_eq!(now(queue.room()), None);
        let waiting = Arc::clone(&queue);
        let task = rt::spawn(async move { waiting.room().await });
        take(&queue);
        rt::block_on(task);
    }

    #[test]
    fn who_reads_the_files_waits_for_what_was_pushed_before() {
        let queue = Arc::new(LogQueue::new(false));
        let long = Duration::from_secs(60);
        assert!(queue.wait_written(Duration::ZERO), "nothing was pushed");
        push(&queue, 10, &[]);
        assert!(!queue.wait_written(PROGRESS_LOOK), "it is not written");
        let waiting = Arc::clone(&queue);
        let thread = thread::spawn(move || waiting.wait_written(long));
        queue.publish_written(1);
        assert!(thread.join().unwrap());
        push(&queue, 10, &[]);
        queue.fail("full");
        assert!(!queue.wait_written(long), "nor is it, before it works again");
        queue.push_cut(image(), CutPurpose::Anew);
        queue.recover(2);
        assert!(queue.wait_written(Duration::ZERO));
    }

    #[test]
    fn what_is_not_synced_is_waited_for_only_where_nothing_unsynced_may_be_seen() {
        let open = LogQueue::new(false);
        push(&open, 10, &[]);
        assert_eq!(now(open.until_synced(1)), Some(Ok(())));
        let gated = Arc::new(LogQueue::new(true));
        push(&gated, 10, &[]);
        push(&gated, 10, &[]);
        gated.publish_written(2);
        assert_eq!(now(gated.until_synced(1)), None);
        let waiting = Arc::clone(&gated);
        let task = rt::spawn(async move { waiting.until_synced(2).await });
        gated.publish_synced(1);
        assert_eq!(now(gated.until_synced(1)), Some(Ok(())));
        assert_eq!(now(gated.until_synced(2)), None);
        gated.publish_synced(2);
        assert_eq!(rt::block_on(task), Ok(()));
    }

    #[test]
    fn a_failure_is_told_to_who_waits_and_nothing_is_kept_until_the_log_begins_anew() {
        let queue = LogQueue::new(true);
        push(&queue, 10, &[]);
        take(&queue);
        queue.publish_synced(1);
        push(&queue, 10, &[5]);
        let failures = queue.fail("the disk is full");
        assert_eq!(push(&queue, 10, &[6]), (3, 0));
        assert_eq!((queue.bytes(), queue.has_room(), queue.is_behind()), (0, true, false));
        let failure = LogFailure { why: "the disk is full".into(), synced: 1 };
        assert_eq!(now(queue.until_synced(1)), Some(Ok(())));
        assert_eq!(now(queue.until_synced(2)), Some(Err(failure.clone())));
        assert_eq!(queue.refusal(), Some(failure));
        queue.fail("again");
        assert_eq!(queue.failure().unwrap().why.as_ref(), "the disk is full", "how it began");
        queue.push_cut(image(), CutPurpose::Rotate);
        let taken = queue.take(Duration::ZERO);
        assert!(taken.items.is_empty() && taken.failures == failures + 1);
        queue.push_cut(image(), CutPurpose::Anew);
        push(&queue, 10, &[]);
        let items = ["Anew after 3", "4"].map(String::from).to_vec();
        assert_eq!(take(&queue), (items, vec![5, 6], false), "requests are not forgotten");
        assert!(queue.failure().is_some(), "not yet");
        queue.recover(4);
        assert_eq!((queue.failure(), queue.synced()), (None, 4));
    }

    #[test]
    fn a_disk_that_does_not_keep_up_ends_logging_and_not_the_memory() {
        let queue = LogQueue::bounded(false, 1_000, Defects::default());
        for number in 1..=4 {
            assert_eq!(push(&queue, 1_000, &[]), (number, 0));
        }
        assert_eq!(push(&queue, 1_000, &[9]), (5, 5));
        assert!(queue.failure().is_some() && queue.refusal().is_none() && queue.has_room());
    }

    #[test]
    fn at_the_end_nobody_waits_for_what_will_not_come() {
        let queue = Arc::new(LogQueue::bounded(true, 100, Defects::default()));
        push(&queue, 200, &[]);
        let (first, second) = (Arc::clone(&queue), Arc::clone(&queue));
        let synced = rt::spawn(async move { first.until_synced(1).await });
        let room = rt::spawn(async move { second.room().await });
        queue.close();
        assert!(rt::block_on(synced).is_err());
        rt::block_on(room);
        assert!(queue.take(Duration::from_secs(60)).is_over);
    }
}

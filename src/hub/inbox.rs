//! What waits for one client connection: changes for its watches and messages for its
//! monitors, each bounded. A watch that overflows is emptied and remembers what its client has
//! had, so that it can start over from a snapshot: the client gets the latest state of
//! everything that changed meanwhile, in bounded memory, and nothing older afterwards.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use event_listener::Event;
use parking_lot::Mutex;

use crate::model::path::Path;
use crate::model::seen::Seen;
use crate::replica::Committed;
use crate::replica::watch::WatchId;

/// Most changes that wait for one watch.
pub const WATCH_QUEUE_MAX: usize = 16 << 10;
/// Most bytes of changes that wait for one watch.
pub const WATCH_QUEUE_BYTES_MAX: usize = 4 << 20;
/// Most messages that wait for one monitor; further ones are dropped and counted.
pub const MONITOR_QUEUE_MAX: usize = 1024;
/// Most bytes of messages that wait for one monitor.
pub const MONITOR_QUEUE_BYTES_MAX: usize = 4 << 20;

/// Most bytes that are taken at once, but for one change or message: what was taken is out of
/// the queue's account.
pub const TAKE_BYTES_MAX: usize = 256 << 10;

/// Names one monitor of one node; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MonitorId(pub u64);

/// The queues of one connection.
#[derive(Default)]
pub struct Inbox {
    state: Mutex<State>,
    /// Fires when something came.
    pub changed: Event,
}

#[derive(Default)]
struct State {
    watches: BTreeMap<WatchId, WatchQueue>,
    monitors: BTreeMap<MonitorId, MonitorQueue>,
}

#[derive(Default)]
struct WatchQueue {
    changes: VecDeque<Committed>,
    bytes: usize,
    /// After an overflow: what was accounted for when the first change was dropped, so what
    /// the client has had or will not miss.
    had: Option<Seen>,
}

#[derive(Default)]
struct MonitorQueue {
    messages: VecDeque<TopicMessage>,
    bytes: usize,
    dropped: u64,
}

/// A message's topic and its bytes, usually MessagePack.
pub type TopicMessage = (Path, Arc<[u8]>);

/// What waits for a watch.
#[derive(Debug)]
pub enum Waiting {
    /// These changes, oldest first; perhaps none.
    Changes(Vec<Committed>),
    /// It overflowed: start over with [`super::Hub::resume_watch`].
    Overflowed,
}

fn change_cost(change: &Committed) -> usize {
    change.path.as_bytes().len() + change.entry.memory_bytes() + 64
}

fn message_cost(topic: &Path, data: &[u8]) -> usize {
    topic.as_bytes().len() + data.len() + 64
}

impl Inbox {
    /// An inbox without watches.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn add_watch(&self, id: WatchId) {
        self.state.lock().watches.insert(id, WatchQueue::default());
    }

    pub(super) fn remove_watch(&self, id: WatchId) {
        self.state.lock().watches.remove(&id);
    }

    pub(super) fn add_monitor(&self, id: MonitorId) {
        self.state.lock().monitors.insert(id, MonitorQueue::default());
    }

    pub(super) fn remove_monitor(&self, id: MonitorId) {
        self.state.lock().monitors.remove(&id);
    }

    /// Queues a change. `seen` is the engine's, this change included. Tells whether the
    /// connection must be woken: it looks again by itself while something waits.
    #[must_use]
    pub(super) fn push_change(&self, id: WatchId, change: &Committed, seen: &Seen) -> bool {
        let mut state = self.state.lock();
        let Some(queue) = state.watches.get_mut(&id) else { return false };
        if queue.had.is_some() {
            return false;
        }
        let was_empty = queue.changes.is_empty();
        let cost = change_cost(change);
        if queue.changes.len() < WATCH_QUEUE_MAX && queue.bytes + cost <= WATCH_QUEUE_BYTES_MAX {
            queue.bytes += cost;
            queue.changes.push_back(change.clone());
            return was_empty;
        }
        // What is dropped now is what the client has not had.
        let mut dropped = Seen::new();
        for change in queue.changes.iter().chain([change]) {
            dropped.insert(change.entry.newest());
        }
        queue.had = Some(seen.difference(&dropped));
        queue.changes = VecDeque::new();
        queue.bytes = 0;
        true
    }

    pub(super) fn push_topic(&self, id: MonitorId, topic: &Path, data: &Arc<[u8]>) {
        let mut state = self.state.lock();
        let Some(queue) = state.monitors.get_mut(&id) else { return };
        let cost = message_cost(topic, data);
        if queue.messages.len() >= MONITOR_QUEUE_MAX || queue.bytes + cost > MONITOR_QUEUE_BYTES_MAX
        {
            queue.dropped += 1;
            return;
        }
        queue.bytes += cost;
        queue.messages.push_back((topic.clone(), Arc::clone(data)));
    }

    /// Takes at most `max` changes of a watch, and about [`TAKE_BYTES_MAX`] bytes of them.
    pub fn take_changes(&self, id: WatchId, max: usize) -> Waiting {
        let mut state = self.state.lock();
        let Some(queue) = state.watches.get_mut(&id) else {
            return Waiting::Changes(Vec::new());
        };
        if queue.had.is_some() {
            return Waiting::Overflowed;
        }
        let mut changes = Vec::new();
        let mut bytes = 0;
        while changes.len() < max
            && bytes < TAKE_BYTES_MAX
            && let Some(change) = queue.changes.pop_front()
        {
            bytes += change_cost(&change);
            changes.push(change);
        }
        queue.bytes = queue.bytes.saturating_sub(bytes);
        Waiting::Changes(changes)
    }

    /// Starts a watch's queue again after an overflow.
    pub(super) fn resume(&self, id: WatchId) -> Option<Seen> {
        self.state.lock().watches.get_mut(&id)?.had.take()
    }

    /// Takes at most `max` messages of a monitor (and about [`TAKE_BYTES_MAX`] bytes), oldest
    /// first, and how many were dropped
    /// since the last call because the client did not keep up.
    pub fn take_messages(&self, id: MonitorId, max: usize) -> (Vec<TopicMessage>, u64) {
        let mut state = self.state.lock();
        let Some(queue) = state.monitors.get_mut(&id) else { return (Vec::new(), 0) };
        let mut messages: Vec<TopicMessage> = Vec::new();
        let mut bytes = 0;
        while messages.len() < max
            && bytes < TAKE_BYTES_MAX
            && let Some((topic, data)) = queue.messages.pop_front()
        {
            bytes += message_cost(&topic, &data);
            messages.push((topic, data));
        }
        queue.bytes = queue.bytes.saturating_sub(bytes);
        (messages, std::mem::take(&mut queue.dropped))
    }

    /// Bytes that wait, all queues together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let state = self.state.lock();
        let watches: usize = state.watches.values().map(|q| q.bytes).sum();
        watches + state.monitors.values().map(|q| q.bytes).sum::<usize>()
    }
}

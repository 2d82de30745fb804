//! What waits for one client connection: changes for its watches and messages for its
//! monitors, each bounded. A watch that overflows is emptied and takes in nothing more until it
//! starts over from a snapshot ([`super::Hub::resume_watch`]): the client gets the latest state
//! of everything that changed meanwhile, and nothing older afterwards.
//!
//! ```text
//!            no room                       the moment's outputs are pushed
//! waiting ─────────────► Lapse::New ──────────────────────────────────────► Lapse::Settled
//!    ▲      (push_changes)   │ more of the same moment              (settle)        │
//!    │                       └► counts as dropped, too                              │
//!    └──────────────────────────────────────────────────────────────────────────────┘
//!                                  its stream starts over (resume)
//! ```
//!
//! What was dropped is not gone through here, under the engine's guard: it is handed over whole to the
//! log of what is gone ([`super::gone`]), where it counts as what is kept for clients, until the watch
//! starts over or ends.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use event_listener::Event;
use parking_lot::Mutex;

use super::bundle::{Bundle, ITEM_COST};
use super::client_memory::{Charge, ClientMemory, STEP_BYTES};
use crate::model::defects::{Defect, Defects};
use crate::model::invariant::OrBroken;
use crate::model::path::Path;
use crate::replica::Committed;
use crate::replica::watch::WatchId;

/// Most changes that wait for one watch.
pub const WATCH_QUEUE_MAX: usize = 16 << 10;
/// Most bytes of changes that wait for one watch.
pub const WATCH_QUEUE_BYTES_MAX: usize = 4 << 20;
/// Most messages that wait for one monitor; further ones are dropped and counted.
pub const MONITOR_QUEUE_MAX: usize = 1024;
/// Most bytes of messages that wait for one monitor; one message may exceed it alone.
pub(crate) const MONITOR_QUEUE_BYTES_MAX: usize = 4 << 20;

/// Most bytes that are taken at once, but for one item or message: what was taken does not count in
/// the queue's account any more.
pub(crate) const TAKE_BYTES_MAX: usize = 256 << 10;

/// What one place in a queue takes, whatever is queued there.
pub(super) const PLACE_BYTES: usize = 32;

/// Names one monitor of one node; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MonitorId(pub u64);

/// One queue of an inbox.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum QueueId {
    /// A watch's.
    Watch(WatchId),
    /// A monitor's.
    Monitor(MonitorId),
}

/// The queues in which there was nothing and is something now.
#[derive(Debug)]
pub enum Ready {
    /// These; a queue may be there twice, or be gone.
    These(Vec<QueueId>),
    /// Perhaps all: the stream has not asked for too long.
    All,
}

/// The queues of one connection.
#[derive(Default)]
pub struct Inbox {
    state: Mutex<State>,
    /// Fires when something came.
    pub changed: Event,
    limits: WatchLimits,
}

/// How much may wait for one watch.
#[derive(Clone, Copy)]
struct WatchLimits {
    changes: usize,
    bytes: usize,
    defects: Defects,
}

impl Default for WatchLimits {
    fn default() -> Self {
        let defects = Defects::default();
        Self { changes: WATCH_QUEUE_MAX, bytes: WATCH_QUEUE_BYTES_MAX, defects }
    }
}

#[derive(Default)]
struct State {
    watches: BTreeMap<WatchId, WatchQueue>,
    monitors: BTreeMap<MonitorId, MonitorQueue>,
    /// Queues that were empty and are not now, unless `is_ready_lost`.
    ready: Vec<QueueId>,
    is_ready_lost: bool,
    /// Items and messages in all queues.
    places: usize,
    /// The sums over the queues: tens of thousands of watches may be one connection's.
    bytes: usize,
    taken: usize,
    withheld: usize,
    /// Bytes charged for the places and for what is withheld, and where.
    charged: usize,
    memory: Option<Arc<ClientMemory>>,
}

/// The changes that wait for one watch.
#[derive(Default)]
pub(super) struct WatchQueue {
    content: WatchContent,
    items: VecDeque<WatchItem>,
    /// How many changes the items have.
    changes: usize,
    bytes: usize,
    /// Bytes of what was taken last: its stream holds it until it takes more. Of a watch that has
    /// lapsed: what is kept for it so that it can start over.
    taken: usize,
    /// Bytes that its stream keeps of what its client may not see at present.
    withheld: usize,
    lapse: Option<Lapse>,
}

/// What waits for a watch.
#[derive(Debug)]
pub enum WatchItem {
    /// Changes.
    Changes(Arc<Bundle>),
    /// The engine's list has conflicts that the watch may report now, up to this number. They are
    /// not queued themselves: the list is bounded, and what it drops is counted.
    ConflictsUpTo(u64),
}

impl WatchItem {
    fn cost(&self) -> usize {
        match self {
            Self::Changes(bundle) => bundle.cost(),
            Self::ConflictsUpTo(_) => ITEM_COST,
        }
    }

    fn changes(&self) -> usize {
        match self {
            Self::Changes(bundle) => bundle.changes().len(),
            Self::ConflictsUpTo(_) => 0,
        }
    }
}

impl WatchQueue {
    /// Returns the item if there is no room.
    fn push(&mut self, item: WatchItem, limits: &WatchLimits) -> Result<Pushed, WatchItem> {
        let was_empty = self.items.is_empty();
        let (cost, changes) = (item.cost(), item.changes());
        let is_full = self.changes + changes > limits.changes;
        if is_full || self.bytes + cost > limits.bytes {
            return Err(item);
        }
        self.changes += changes;
        self.bytes += cost;
        self.items.push_back(item);
        Ok(if was_empty { Pushed::Wake } else { Pushed::Quietly })
    }
}

/// What a watch is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WatchContent {
    /// Changes.
    #[default]
    Changes,
    /// Changes and conflicts.
    ChangesAndConflicts,
    /// Conflicts alone.
    Conflicts,
}

impl WatchContent {
    /// Whether changes are wanted.
    #[must_use]
    pub fn has_changes(self) -> bool {
        self != Self::Conflicts
    }

    /// Whether conflicts are wanted.
    #[must_use]
    pub fn has_conflicts(self) -> bool {
        self != Self::Changes
    }
}

/// What taking from a queue relies on.
const COUNTED: &str = "what waits was counted when it was queued";

/// The watch overflowed, and has not started over yet.
enum Lapse {
    /// Just now: more outputs of the same moment may follow, and count as dropped like those
    /// before them.
    New(Dropped),
    /// The hub knows what the client has had.
    Settled,
}

/// What a watch lost when it overflowed: what waited, and all of that moment that came after it.
#[derive(Default)]
pub(super) struct Dropped {
    items: VecDeque<WatchItem>,
    bytes: usize,
}

impl Dropped {
    fn add(&mut self, item: WatchItem) {
        self.bytes += item.cost();
        self.items.push_back(item);
    }

    /// How many items there are.
    pub(super) fn places(&self) -> usize {
        self.items.len()
    }

    /// What the items take, as they counted in the queue.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The changes, oldest first. They may be very many: not under a lock.
    pub(super) fn changes(&self) -> impl Iterator<Item = &Committed> {
        self.items.iter().flat_map(|item| match item {
            WatchItem::Changes(bundle) => bundle.changes(),
            WatchItem::ConflictsUpTo(_) => &[],
        })
    }

    /// Each change in a bundle of its own.
    #[cfg(test)]
    pub(super) fn of_changes(changes: &[Committed], memory: &Arc<ClientMemory>) -> Self {
        let mut dropped = Self::default();
        for change in changes {
            let mut collecting = super::bundle::Collecting::default();
            collecting.add(vec![WatchId(0)].into(), change.clone());
            let (_, bundle) = collecting.finish(memory).unwrap();
            dropped.add(WatchItem::Changes(bundle));
        }
        dropped
    }
}

/// What became of a change for a watch.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pushed {
    /// No wake-up is needed: the connection looks again by itself while something waits.
    Quietly,
    /// The connection must be woken.
    Wake,
    /// The same, and the watch has just lapsed: [`Inbox::settle`] it when all outputs of this
    /// moment are pushed.
    Lapsed,
}

/// The messages that wait for one monitor.
#[derive(Default)]
pub(super) struct MonitorQueue {
    messages: VecDeque<HeardMessage>,
    bytes: usize,
    /// Messages behind all of `messages` for which there was no room.
    dropped: u64,
}

/// A message of a monitor's queue.
#[derive(Debug)]
pub struct HeardMessage {
    /// How many messages just before it were dropped, because the client did not keep up.
    pub dropped: u64,
    /// The message itself.
    pub message: Arc<TopicMessage>,
}

/// A message that waits for monitors; all of them share it.
#[derive(Debug)]
pub struct TopicMessage {
    /// Its topic.
    pub topic: Path,
    /// Its bytes, usually MessagePack.
    pub data: Arc<[u8]>,
    _charge: Charge,
}

impl TopicMessage {
    pub(super) fn new(topic: &Path, data: &Arc<[u8]>, memory: &Arc<ClientMemory>) -> Arc<Self> {
        let charge = memory.charge(message_cost(topic, data));
        Arc::new(Self { topic: topic.clone(), data: Arc::clone(data), _charge: charge })
    }

    fn cost(&self) -> usize {
        message_cost(&self.topic, &self.data)
    }
}

/// What a watch finds when it looks for what waits.
#[derive(Debug)]
pub enum Waiting {
    /// This, oldest first; perhaps nothing.
    Items(Vec<WatchItem>),
    /// It overflowed: start over with [`super::Hub::resume_watch`].
    Overflowed,
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

    /// One in which fewer changes and bytes wait for each watch, for simulations.
    #[cfg(any(test, feature = "planted-defects"))]
    #[must_use]
    pub fn bounded(changes: usize, bytes: usize, defects: Defects) -> Self {
        Self { limits: WatchLimits { changes, bytes, defects }, ..Self::default() }
    }

    /// Charges the account with the queues' content from now on. Queued content charges itself.
    pub(super) fn charge_to(&self, memory: &Arc<ClientMemory>) {
        self.state.lock().memory = Some(Arc::clone(memory));
    }

    /// `conflicts`: the number of the last one.
    pub(super) fn add_watch(&self, id: WatchId, content: WatchContent, conflicts: u64) {
        let queue = WatchQueue { content, ..WatchQueue::default() };
        self.state.lock().watches.insert(id, queue);
        // Its client may have looked at the list just before.
        let _new = self.push_conflict(id, conflicts);
    }

    /// Returns the queue, to be freed when no lock is held.
    #[must_use]
    pub(super) fn remove_watch(&self, id: WatchId) -> Option<WatchQueue> {
        let mut state = self.state.lock();
        let removed = state.watches.remove(&id)?;
        state.places -= removed.items.len();
        state.bytes -= removed.bytes;
        state.taken -= removed.taken;
        state.withheld -= removed.withheld;
        state.account();
        Some(removed)
    }

    pub(super) fn add_monitor(&self, id: MonitorId) {
        self.state.lock().monitors.insert(id, MonitorQueue::default());
    }

    /// Returns the queue, to be freed when no lock is held.
    #[must_use]
    pub(super) fn remove_monitor(&self, id: MonitorId) -> Option<MonitorQueue> {
        let mut state = self.state.lock();
        let removed = state.monitors.remove(&id)?;
        state.places -= removed.messages.len();
        state.bytes -= removed.bytes;
        state.account();
        Some(removed)
    }

    /// Queues changes.
    pub(super) fn push_changes(&self, id: WatchId, bundle: &Arc<Bundle>) -> Pushed {
        let mut state = self.state.lock();
        let Some(queue) = state.watches.get_mut(&id) else { return Pushed::Quietly };
        if !queue.content.has_changes() {
            return Pushed::Quietly;
        }
        let item = WatchItem::Changes(Arc::clone(bundle));
        let before = queue.bytes;
        match &mut queue.lapse {
            None => {}
            Some(Lapse::New(dropped)) => {
                dropped.add(item);
                return Pushed::Quietly;
            }
            Some(Lapse::Settled) => return Pushed::Quietly,
        }
        match queue.push(item, &self.limits) {
            Ok(pushed) => {
                state.bytes += queue.bytes - before;
                state.places += 1;
                state.account();
                if pushed == Pushed::Wake {
                    state.note_ready(QueueId::Watch(id));
                }
                pushed
            }
            Err(item) => {
                // What is dropped now has not reached the client.
                let items = std::mem::take(&mut queue.items);
                let places = items.len();
                let mut dropped = Dropped { items, bytes: queue.bytes };
                dropped.add(item);
                (queue.changes, queue.bytes) = (0, 0);
                if self.limits.defects.has(Defect::WatchNotLapsed) {
                    state.bytes -= before;
                    state.places -= places;
                    return Pushed::Quietly;
                }
                queue.lapse = Some(Lapse::New(dropped));
                state.bytes -= before;
                state.places -= places;
                state.account();
                state.note_ready(QueueId::Watch(id));
                Pushed::Lapsed
            }
        }
    }

    /// Notes that conflicts up to this number were found; returns whether the connection must be
    /// woken. A watch that starts over is also told of those that it has missed.
    pub(super) fn push_conflict(&self, id: WatchId, number: u64) -> bool {
        let mut state = self.state.lock();
        let Some(queue) = state.watches.get_mut(&id) else { return false };
        if !queue.content.has_conflicts() || queue.lapse.is_some() {
            return false;
        }
        if let Some(WatchItem::ConflictsUpTo(last)) = queue.items.back_mut() {
            *last = number;
            return false;
        }
        let was_empty = queue.items.is_empty();
        let item = WatchItem::ConflictsUpTo(number);
        // Never too much: between two of these there is a change, which found room.
        let cost = item.cost();
        queue.bytes += cost;
        queue.items.push_back(item);
        state.bytes += cost;
        state.places += 1;
        state.account();
        if was_empty {
            state.note_ready(QueueId::Watch(id));
        }
        was_empty
    }

    /// All outputs of the moment in which a watch overflowed are pushed: takes what it lost.
    pub(super) fn settle(&self, id: WatchId) -> Option<Dropped> {
        let mut state = self.state.lock();
        let lapse = &mut state.watches.get_mut(&id)?.lapse;
        match lapse.replace(Lapse::Settled) {
            Some(Lapse::New(dropped)) => Some(dropped),
            was => {
                *lapse = was;
                None
            }
        }
    }

    /// So many bytes are kept for a watch that has lapsed, until it takes something again.
    pub(super) fn note_kept(&self, id: WatchId, bytes: usize) {
        let mut state = self.state.lock();
        let Some(queue) = state.watches.get_mut(&id) else { return };
        let before = std::mem::replace(&mut queue.taken, bytes);
        state.taken = state.taken + bytes - before;
    }

    /// So many bytes a watch's stream keeps of what its client may not see at present.
    pub fn note_withheld(&self, id: WatchId, bytes: usize) {
        let mut state = self.state.lock();
        let Some(queue) = state.watches.get_mut(&id) else { return };
        let before = std::mem::replace(&mut queue.withheld, bytes);
        state.withheld = state.withheld + bytes - before;
        state.account();
    }

    /// How many items wait for a watch; none if it has overflowed, or there is none.
    pub(super) fn waiting(&self, id: WatchId) -> Option<usize> {
        let state = self.state.lock();
        let queue = state.watches.get(&id).filter(|queue| queue.lapse.is_none())?;
        Some(queue.items.len())
    }

    /// Queues a message; false if there is no room for it.
    pub(super) fn push_topic(&self, id: MonitorId, message: &Arc<TopicMessage>) -> bool {
        let mut state = self.state.lock();
        let Some(queue) = state.monitors.get_mut(&id) else { return true };
        let cost = message.cost();
        // The longest message that is accepted costs more than the bound: where nothing waits, it is taken.
        let is_full = queue.messages.len() >= MONITOR_QUEUE_MAX
            || (queue.bytes + cost > MONITOR_QUEUE_BYTES_MAX && !queue.messages.is_empty());
        if is_full {
            queue.dropped += 1;
            return false;
        }
        queue.bytes += cost;
        let was_empty = queue.messages.is_empty();
        let dropped = std::mem::take(&mut queue.dropped);
        queue.messages.push_back(HeardMessage { dropped, message: Arc::clone(message) });
        state.bytes += cost;
        state.places += 1;
        state.account();
        if was_empty {
            state.note_ready(QueueId::Monitor(id));
        }
        true
    }

    /// The queues in which something came since the last call and that were empty before.
    pub fn take_ready(&self) -> Ready {
        let mut state = self.state.lock();
        let ready = std::mem::take(&mut state.ready);
        if std::mem::take(&mut state.is_ready_lost) { Ready::All } else { Ready::These(ready) }
    }

    /// Takes what waits for a watch, about [`TAKE_BYTES_MAX`] bytes of it at most.
    pub fn take_items(&self, id: WatchId) -> Waiting {
        self.take_first(id, usize::MAX)
    }

    /// The same, but no more than so many items.
    pub fn take_first(&self, id: WatchId, most: usize) -> Waiting {
        let mut state = self.state.lock();
        let Some(queue) = state.watches.get_mut(&id) else {
            return Waiting::Items(Vec::new());
        };
        if queue.lapse.is_some() {
            return Waiting::Overflowed;
        }
        let mut items = Vec::new();
        let mut bytes = 0;
        while bytes < TAKE_BYTES_MAX
            && items.len() < most
            && let Some(item) = queue.items.pop_front()
        {
            bytes += item.cost();
            queue.changes = queue.changes.checked_sub(item.changes()).or_broken(COUNTED);
            items.push(item);
        }
        queue.bytes = queue.bytes.checked_sub(bytes).or_broken(COUNTED);
        let before = std::mem::replace(&mut queue.taken, bytes);
        state.taken = state.taken + bytes - before;
        state.bytes -= bytes;
        state.places -= items.len();
        state.account();
        Waiting::Items(items)
    }

    /// Starts a watch's queue again after an overflow; returns whether there was one.
    /// `conflicts`: the number of the last one.
    pub(super) fn resume(&self, id: WatchId, conflicts: u64) -> bool {
        let was_lapsed = {
            let mut state = self.state.lock();
            state.watches.get_mut(&id).is_some_and(|queue| queue.lapse.take().is_some())
        };
        if was_lapsed {
            let _new = self.push_conflict(id, conflicts);
        }
        was_lapsed
    }

    /// Takes at most `max` messages of a monitor (and about [`TAKE_BYTES_MAX`] bytes), oldest first. Those that were
    /// dropped behind the last one that waits are told with the next one that finds room.
    pub fn take_messages(&self, id: MonitorId, max: usize) -> Vec<HeardMessage> {
        let mut state = self.state.lock();
        let Some(queue) = state.monitors.get_mut(&id) else { return Vec::new() };
        let mut messages = Vec::new();
        let mut bytes = 0;
        while messages.len() < max
            && bytes < TAKE_BYTES_MAX
            && let Some(heard) = queue.messages.pop_front()
        {
            bytes += heard.message.cost();
            messages.push(heard);
        }
        queue.bytes = queue.bytes.checked_sub(bytes).or_broken(COUNTED);
        state.bytes -= bytes;
        state.places -= messages.len();
        state.account();
        messages
    }

    /// Bytes that wait, all queues together.
    #[must_use]
    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Bytes that the connection keeps alive by what waits for it, was taken last or is withheld; shared
    /// ones included.
    pub(super) fn held(&self) -> usize {
        let state = self.state.lock();
        state.bytes + state.taken + state.withheld
    }
}

#[cfg(test)]
impl Inbox {
    /// What [`Inbox::bytes`] and [`Inbox::held`] are, queue by queue.
    pub(super) fn recount(&self) -> (usize, usize) {
        let state = self.state.lock();
        let watches = || state.watches.values();
        let monitors = state.monitors.values().map(|queue| queue.bytes);
        let bytes = watches().map(|queue| queue.bytes).chain(monitors).sum();
        (bytes, bytes + watches().map(|queue| queue.taken + queue.withheld).sum::<usize>())
    }
}

impl State {
    /// Each queue has at most two places in the list, as long as its connection takes from it.
    fn note_ready(&mut self, queue: QueueId) {
        if self.ready.len() >= 2 * (self.watches.len() + self.monitors.len()) {
            self.ready = Vec::new();
            self.is_ready_lost = true;
        }
        if !self.is_ready_lost {
            self.ready.push(queue);
        }
    }

    /// Charges the places, and what is withheld, as they are now, in steps.
    fn account(&mut self) {
        let Some(memory) = &self.memory else { return };
        let now = self.places * PLACE_BYTES + self.withheld;
        if now.abs_diff(self.charged) < STEP_BYTES {
            return;
        }
        if now > self.charged {
            memory.add(now - self.charged);
        } else {
            memory.sub(self.charged - now);
        }
        self.charged = now;
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(memory) = &self.memory {
            memory.sub(self.charged);
        }
    }
}

//! The one lock around the engine, and the bounded queues in which its outputs leave.
//!
//! Under the exclusive guard the outbox is drained, in commit order, into the queues of peers
//! ([`link_queue`]) and clients ([`inbox`]), and, first of all, of the event log ([`log_queue`]).
//! A push never blocks: a peer's queue that overflows is emptied and marked as lagging, a
//! watcher's starts over. Lock order is engine, then a queue, never back. Wakers fire after the
//! engine's guard is released, but for two that fire under it, once per trouble, and only make tasks
//! of the shell ready to run: that clients keep too much ([`ClientMemory::pressure`]), and that the
//! log was given up ([`log_queue`]).
//!
//! No guard lives across an await: every method here is synchronous and short. Snapshots that
//! a closure takes out of [`Hub::read`] are walked by the caller, outside.

use distkv_core::{engine, protocol, replica, tree};
pub use distkv_crowd::shares;
use distkv_model as model;
use distkv_storage as storage;

pub mod bundle;
pub mod client_memory;
mod closing;
pub mod gone;
mod guard;
pub mod inbox;
pub mod link_queue;
pub mod log_queue;
mod outputs;
mod pins;
mod policy_watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use event_listener::Event;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::engine::batch::write_one;
use crate::engine::changes::{AddWatch, EndWatch, StopMakingEvents};
use crate::engine::{
    BatchDone, BatchTerms, Change, CloseReason, Engine, EngineWriteError, LinkId, NO_LATER,
    Operation, Outbox, Output, Report,
};
#[cfg(any(test, feature = "planted-defects"))]
use crate::model::defects::Defects;
use crate::model::ids::Millis;
use crate::model::path::Path;
use crate::replica::watch::{WATCHES_MAX, WatchId, WatchScope};
use crate::replica::write::{Write, Written};
use crate::tree::Tree;
use client_memory::ClientMemory;
use closing::Closing;
pub use gone::Resumption;
use gone::{GoneLog, Resuming};
use guard::Guard;
use inbox::{Inbox, MonitorId, WatchContent};
use link_queue::{LinkQueue, QueuedTotal};
use log_queue::{CutPurpose, LogQueue};
pub use outputs::batch_of;
use outputs::{Aftermath, Monitor, Outputs, Wakes, Watching, split_dropped};
use policy_watch::PolicyWatch;
use shares::{Holder, Refusal, Shares};

/// Most monitors of topics, all clients together.
pub(crate) const MONITORS_MAX: usize = 1 << 15;
/// At most this many links are written to before a client gets its answer: each takes 5 to 10 µs.
const FEW_LINKS: usize = 8;

/// The shared heart of a running node.
pub struct Hub {
    guarded: Guard<Guarded>,
    outputs: Mutex<Outputs>,
    client_memory: Arc<ClientMemory>,
    /// Of a node with a data directory.
    log: Option<Arc<LogQueue>>,
    /// Fires when a peer acknowledged more; writes that wait for copies look again.
    pub acknowledged: Event,
    /// Fires when there are reports, links to close, or an incarnation is needed.
    pub attention: Event,
    /// Fires once, when the node starts to serve clients.
    pub became_ready: Event,
    /// Fires when the view of the cluster (its nodes, which serve clients, the housekeepers) may
    /// have changed. The shell fires it for what the engine does not know.
    pub cluster_changed: Event,
    /// Whether no client is served.
    pub closing: Closing,
    /// Which policies the data states.
    pub policies: PolicyWatch,
    needs_incarnation: AtomicBool,
    /// How often a few idle links got something to write.
    woke_few_links: AtomicU64,
}

/// What the lock is around.
struct Guarded {
    engine: Engine,
    /// Empty but while the exclusive guard is held: its room is used again.
    outbox: Outbox,
}

impl Hub {
    /// Puts an engine behind its lock.
    #[must_use]
    pub fn new(engine: Engine) -> Self {
        Self::with_log(engine, None)
    }

    /// As above, for a node with a data directory: changes go into the log's queue first.
    #[must_use]
    pub fn with_log(engine: Engine, log: Option<Arc<LogQueue>>) -> Self {
        let client_memory = Arc::new(ClientMemory::default());
        let gone = GoneLog::charged_to(&client_memory, engine.defects());
        let outputs = Outputs {
            client_memory: Arc::clone(&client_memory),
            gone,
            watch_shares: Shares::new(WATCHES_MAX),
            monitor_shares: Shares::new(MONITORS_MAX),
            ..Outputs::default()
        };
        Self {
            outputs: Mutex::new(outputs),
            client_memory,
            log,
            acknowledged: Event::new(),
            attention: Event::new(),
            became_ready: Event::new(),
            cluster_changed: Event::new(),
            closing: Closing::of(&engine),
            policies: PolicyWatch::of(&engine),
            needs_incarnation: AtomicBool::new(false),
            woke_few_links: AtomicU64::new(0),
            guarded: Guard::new(Guarded { engine, outbox: Outbox::new() }),
        }
    }

    /// The first door: many at once. Keep it short; take snapshots out and walk them outside.
    pub fn read<R>(&self, read: impl FnOnce(&Engine) -> R) -> R {
        self.guarded.read(|guarded| read(&guarded.engine))
    }

    /// The second door, one at a time: carries out a change, and queues what the engine wants done, in
    /// order, before the guard is released. `now` is when.
    pub fn handle<C: Change>(&self, change: C, now: Millis) -> C::Answer {
        self.change(|engine, out| engine.handle(change, now, out)).0
    }

    /// Carries out a change, and tells the number of the log's batch that has it: 0 if nothing of it is
    /// logged.
    pub fn handle_logged<C: Change>(&self, change: C, now: Millis) -> (C::Answer, u64) {
        self.change(|engine, out| engine.handle(change, now, out))
    }

    /// Carries out clients' operations ([`Engine::write_batch`]), and tells the number of the log's batch
    /// that has their changes: 0 if there are none, or no log.
    pub fn write_batch<'a>(
        &self,
        ops: impl IntoIterator<Item = Operation<'a>>,
        terms: BatchTerms,
    ) -> (BatchDone, u64) {
        // Put together before the guard is taken.
        let mut ops: SmallVec<[Operation<'a>; 2]> = ops.into_iter().collect();
        self.change(|engine, out| engine.write_batch(&mut ops, terms, out))
    }

    /// Makes one change that is no client's. `ack_wanted`: peers are to acknowledge it at once.
    ///
    /// # Errors
    /// [`EngineWriteError`]; nothing was changed.
    pub fn write(
        &self,
        write: Write<'_>,
        ack_wanted: bool,
    ) -> (Result<Written, EngineWriteError>, u64) {
        self.change(|engine, out| write_one(engine, write, ack_wanted, out))
    }

    /// Queues an output as if the engine had made it, for tests of queues.
    #[cfg(any(test, feature = "planted-defects"))]
    pub fn queue(&self, output: Output) {
        self.change(|_, out| out.push(output));
    }

    fn change<R>(&self, change: impl FnOnce(&mut Engine, &mut Outbox) -> R) -> (R, u64) {
        let mut wakes = Wakes::default();
        let mut number = 0;
        let result = self.guarded.write(|Guarded { engine, outbox }| {
            let result = change(engine, outbox);
            wakes.closing = self.closing.note(engine);
            wakes.policies = self.policies.note(engine);
            if !outbox.is_empty() {
                number = self.drain(engine, outbox, &mut wakes);
                outbox.shrink();
            }
            result
        });
        self.wake(wakes);
        (result, number)
    }

    /// The log's queue, of a node with a data directory.
    #[must_use]
    pub fn log(&self) -> Option<&Arc<LogQueue>> {
        self.log.as_ref()
    }

    /// What the node's clients cost in memory.
    #[must_use]
    pub fn client_memory(&self) -> &Arc<ClientMemory> {
        &self.client_memory
    }

    /// Cuts the node's own log at this moment.
    pub fn cut_log(&self, purpose: CutPurpose) {
        let Some(log) = &self.log else { return };
        // Changes are pushed under the exclusive guard: a shared one keeps them out.
        self.read(|engine| log.push_cut(engine.image(), purpose));
    }

    /// Ends the node's own log: no event is made after this moment.
    pub fn stop_log(&self) {
        let Some(log) = &self.log else { return };
        self.change(|engine, out| {
            engine.handle(StopMakingEvents, NO_LATER, out);
            log.push_cut(engine.image(), CutPurpose::Stop);
        });
    }

    /// From this moment on, what changes goes into another log, too; the state of the moment comes
    /// first.
    pub fn add_extra_log(&self, log: &Arc<LogQueue>) {
        self.read(|engine| {
            log.push_cut(engine.image(), CutPurpose::Snapshot);
            self.outputs.lock().extra_logs.push(Arc::clone(log));
        });
    }

    /// Nothing goes into that log any more. Its present content must still be taken.
    pub fn remove_extra_log(&self, log: &Arc<LogQueue>) {
        self.read(|engine| {
            self.outputs.lock().extra_logs.retain(|other| !Arc::ptr_eq(other, log));
            log.push_cut(engine.image(), CutPurpose::Stop);
        });
    }

    /// Gives the logs what they need of the outputs, before anything of it can be seen. Returns the
    /// number of the batch.
    fn push_to_logs(
        &self,
        outputs: &Outputs,
        engine: &Engine,
        outbox: &Outbox,
        wakes: &mut Wakes,
    ) -> u64 {
        if self.log.is_none() && outputs.extra_logs.is_empty() {
            return 0;
        }
        let Some((batch, persist)) = batch_of(engine, outbox) else { return 0 };
        for log in &outputs.extra_logs {
            wakes.unlogged.extend(log.push(batch.clone(), Vec::new()).garbage);
        }
        let Some(log) = &self.log else { return 0 };
        let pushed = log.push(batch, persist);
        wakes.unlogged.extend(pushed.garbage);
        pushed.number
    }

    fn drain(&self, engine: &Engine, outbox: &mut Outbox, wakes: &mut Wakes) -> u64 {
        let mut outputs = self.outputs.lock();
        let number = self.push_to_logs(&outputs, engine, outbox, wakes);
        outputs.note_replaced(engine, outbox);
        let mut aftermath = Aftermath::default();
        for output in outbox.drain() {
            if output.is_for_some_links() {
                outputs.push_frames(&mut aftermath, wakes);
            }
            match output {
                // The logs have these.
                Output::Commit(_) | Output::Knowledge | Output::Persist { .. } => {}
                Output::Broadcast { frame } => {
                    aftermath.frames.add(frame);
                    if aftermath.frames.is_full() {
                        outputs.push_frames(&mut aftermath, wakes);
                    }
                }
                Output::Multicast { links, frame } => {
                    for link in links {
                        if let Some(queue) = outputs.links.get(&link)
                            && queue.push(Arc::clone(&frame))
                        {
                            wakes.links.push(Arc::clone(queue));
                        }
                    }
                }
                Output::Send { link, frame } => {
                    if let Some(queue) = outputs.links.get(&link)
                        && queue.push(frame)
                    {
                        wakes.links.push(Arc::clone(queue));
                    }
                }
                Output::Serve { link, job } => {
                    if let Some(queue) = outputs.links.get(&link) {
                        wakes.garbage.extend(queue.serve(job).map(|old| *old));
                        wakes.links.push(Arc::clone(queue));
                    }
                }
                Output::Discard(snapshot) => wakes.snapshots.push(snapshot),
                Output::Notify { watchers, change } => {
                    outputs.notify(watchers, change, &mut aftermath, wakes);
                }
                Output::NotifyConflict { watchers, number } => {
                    outputs.tell(&mut aftermath, wakes);
                    for id in watchers.oldest_first().iter().copied() {
                        if let Some(watch) = outputs.watches.get(&id)
                            && watch.inbox.push_conflict(id, number)
                        {
                            wakes.inboxes.push(Arc::clone(&watch.inbox));
                        }
                    }
                }
                Output::Gone { purged, dropped } => {
                    let (values, tombstones) = split_dropped(dropped);
                    for deletion in &values {
                        let watchers = engine.watchers_of(&deletion.path);
                        outputs.notify(watchers, deletion.clone(), &mut aftermath, wakes);
                    }
                    aftermath.gone.extend([(purged, values), (tombstones, Vec::new())]);
                }
                Output::Topic { topic, data } => outputs.send_topic(&topic, &data, wakes),
                Output::AckProgress => wakes.acknowledged = true,
                Output::PeerReadiness => wakes.cluster = true,
                Output::Ready => {
                    wakes.cluster = true;
                    wakes.ready = true;
                    wakes.attention = true;
                }
                Output::NeedIncarnation => {
                    self.needs_incarnation.store(true, Ordering::Release);
                    wakes.attention = true;
                }
                Output::Close { link, reason } => {
                    if let Some(queue) = outputs.links.get(&link) {
                        queue.close(reason);
                        wakes.links.push(Arc::clone(queue));
                    }
                }
                Output::Report(report) => {
                    wakes.cluster |= matches!(
                        report,
                        Report::HousekeepersChanged { .. } | Report::Renewed { .. }
                    );
                    outputs.report(report);
                    wakes.attention = true;
                }
            }
        }
        outputs.push_frames(&mut aftermath, wakes);
        outputs.tell(&mut aftermath, wakes);
        outputs.settle(engine, aftermath, wakes);
        number
    }

    /// Rises when idle links have something to write, unless they are many: the task that made the
    /// change may let them go first then.
    #[must_use]
    pub fn woke_few_links(&self) -> u64 {
        self.woke_few_links.load(Ordering::Relaxed)
    }

    fn wake(&self, wakes: Wakes) {
        if (1..=FEW_LINKS).contains(&wakes.links.len()) {
            self.woke_few_links.fetch_add(1, Ordering::Relaxed);
        }
        for queue in wakes.links {
            queue.changed.notify(usize::MAX);
        }
        for inbox in wakes.inboxes {
            inbox.changed.notify(usize::MAX);
        }
        if wakes.acknowledged {
            self.acknowledged.notify(usize::MAX);
        }
        if wakes.ready {
            self.became_ready.notify(usize::MAX);
        }
        if wakes.attention {
            self.attention.notify(usize::MAX);
        }
        if wakes.closing {
            self.closing.changed.notify(usize::MAX);
        }
        if wakes.policies {
            self.policies.changed.notify(usize::MAX);
        }
        if wakes.cluster {
            self.cluster_changed.notify(usize::MAX);
        }
    }

    /// A new link's name and queue; nothing is queued for it before [`crate::engine::Input::LinkUp`] was
    /// handled. Remove it with [`Hub::remove_link`].
    pub fn add_link(&self) -> (LinkId, Arc<LinkQueue>) {
        self.add_queue(LinkQueue::new())
    }

    /// The same with another bound, which simulations set.
    #[cfg(any(test, feature = "planted-defects"))]
    pub fn add_bounded_link(&self, bytes_max: usize, defects: Defects) -> (LinkId, Arc<LinkQueue>) {
        self.add_queue(LinkQueue::bounded(bytes_max, defects))
    }

    fn add_queue(&self, queue: LinkQueue) -> (LinkId, Arc<LinkQueue>) {
        let mut outputs = self.outputs.lock();
        let link = LinkId(outputs.next_link);
        outputs.next_link += 1;
        let queue = Arc::new(queue);
        outputs.links.insert(link, Arc::clone(&queue));
        (link, queue)
    }

    /// Removes a link's queue. The engine is told with [`crate::engine::Input::LinkDown`].
    pub fn remove_link(&self, link: LinkId) {
        let mut outputs = self.outputs.lock();
        let Some(queue) = outputs.links.remove(&link) else { return };
        outputs.queued_before.add(queue.queued());
        drop(outputs);
        // What waited may be freed here, not under the lock.
        drop(queue);
    }

    /// What was queued for peers since the start.
    #[must_use]
    pub fn queued(&self) -> QueuedTotal {
        let outputs = self.outputs.lock();
        let mut total = outputs.queued_before;
        outputs.links.values().for_each(|queue| total.add(queue.queued()));
        total
    }

    /// What clients that did not keep up have missed since the start: how often a watch began again from the
    /// present state, and how many messages monitors did not get.
    #[must_use]
    pub fn missed(&self) -> (u64, u64) {
        let outputs = self.outputs.lock();
        (outputs.watch_restarts, outputs.messages_dropped)
    }

    /// Links whose queue overflowed and was not made good yet, for tests.
    #[cfg(any(test, feature = "planted-defects"))]
    #[must_use]
    pub fn lagging_links(&self) -> Vec<LinkId> {
        let outputs = self.outputs.lock();
        outputs.links.iter().filter(|(_, q)| q.is_lagging()).map(|(l, _)| *l).collect()
    }

    /// Adds a watch whose changes go to the inbox, and takes the snapshot of the same moment:
    /// what the snapshot lacks will come as a change, and nothing older follows.
    ///
    /// # Errors
    /// There are too many, or its holder has too many.
    pub fn watch(
        &self,
        scope: WatchScope,
        content: WatchContent,
        inbox: &Arc<Inbox>,
        holder: &Holder,
    ) -> Result<(WatchId, Tree), Refusal> {
        let added = self.change(|engine, out| {
            let holder = self.outputs.lock().watch_shares.take(holder)?;
            let Some(id) = engine.handle(AddWatch(scope), NO_LATER, out) else {
                self.outputs.lock().watch_shares.give_back(&holder);
                return Err(Refusal::Full);
            };
            inbox.add_watch(id, content, engine.conflicts().last());
            let watch = Watching { inbox: Arc::clone(inbox), holder };
            self.outputs.lock().watches.insert(id, watch);
            Ok((id, engine.tree().clone()))
        });
        added.0
    }

    /// Ends a watch.
    pub fn unwatch(&self, id: WatchId) {
        // What is freed is dropped after the guard's release.
        let _freed = self.change(|engine, out| {
            engine.handle(EndWatch(id), NO_LATER, out);
            let mut outputs = self.outputs.lock();
            let removed = outputs.watches.remove(&id).map(|watch| {
                outputs.watch_shares.give_back(&watch.holder);
                (watch.inbox.remove_watch(id), watch)
            });
            (removed, outputs.gone.end(id))
        });
    }

    /// For a watch that overflowed: starts its queue again and takes the snapshot of that
    /// moment. `None` if it had not overflowed.
    pub fn resume_watch(&self, id: WatchId, inbox: &Inbox) -> Option<Resumption> {
        // A shared guard keeps changes out as well, so queue, log and snapshot are of one
        // moment.
        let (resuming, _freed) = self.read(|engine| {
            let is_lapsed = inbox.resume(id, engine.conflicts().last());
            is_lapsed.then(|| {
                let mut outputs = self.outputs.lock();
                outputs.watch_restarts += 1;
                outputs.gone.resume(id, engine.tree().clone())
            })
        })?;
        // What the watch lost is gone through here, where nobody waits for it.
        let walk = resuming.map(Resuming::walk);
        Some(walk.map_or(Resumption::Lost, |walk| Resumption::From(Box::new(walk))))
    }

    /// For a watch whose client may see more than before: the snapshot of this moment, and how many of the items
    /// that wait for the watch are older. `None` if it overflowed, and so starts over first.
    pub fn look_again(&self, id: WatchId, inbox: &Inbox) -> Option<(Tree, usize)> {
        // A shared guard keeps changes out as well.
        self.read(|engine| Some((engine.tree().clone(), inbox.waiting(id)?)))
    }

    /// Adds a monitor for the topics that match a pattern ([`distkv_core::protocol::client::topic::topic_matches`]).
    ///
    /// # Errors
    /// There are too many, or its holder has too many.
    pub fn monitor(
        &self,
        pattern: Path,
        inbox: &Arc<Inbox>,
        holder: &Holder,
    ) -> Result<MonitorId, Refusal> {
        let mut outputs = self.outputs.lock();
        let holder = outputs.monitor_shares.take(holder)?;
        let id = MonitorId(outputs.next_monitor);
        outputs.next_monitor += 1;
        inbox.add_monitor(id);
        outputs.monitors.insert(id, Monitor { pattern, inbox: Arc::clone(inbox), holder });
        Ok(id)
    }

    /// Ends a monitor.
    pub fn unmonitor(&self, id: MonitorId) {
        let mut outputs = self.outputs.lock();
        let Some(monitor) = outputs.monitors.remove(&id) else { return };
        outputs.monitor_shares.give_back(&monitor.holder);
        let removed = monitor.inbox.remove_monitor(id);
        drop(outputs);
        // What waited is freed here, not under the lock.
        drop(removed);
    }

    /// Why clients, or some of them, may soon begin no watches or no monitors any more.
    #[must_use]
    pub fn scarce(&self) -> Vec<String> {
        let outputs = self.outputs.lock();
        let watches = outputs.watch_shares.scarce("watches");
        watches.into_iter().chain(outputs.monitor_shares.scarce("monitors")).collect()
    }

    /// How many monitors there are, for tests.
    #[cfg(any(test, feature = "planted-defects"))]
    #[must_use]
    pub fn monitor_count(&self) -> usize {
        self.outputs.lock().monitors.len()
    }

    /// Bytes that wait for clients in their inboxes, all together.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        let inboxes: BTreeMap<*const Inbox, Arc<Inbox>> = {
            let outputs = self.outputs.lock();
            let monitors = outputs.monitors.values().map(|monitor| &monitor.inbox);
            let all = outputs.watches.values().map(|watch| &watch.inbox).chain(monitors);
            all.map(|inbox| (Arc::as_ptr(inbox), Arc::clone(inbox))).collect()
        };
        inboxes.values().map(|inbox| inbox.bytes()).sum()
    }

    /// Takes the reports that wait for the log, and how many were dropped before them.
    #[must_use]
    pub fn take_reports(&self) -> (Vec<Report>, u64) {
        let mut outputs = self.outputs.lock();
        outputs.reports_bytes = 0;
        let dropped = std::mem::take(&mut outputs.reports_dropped);
        (std::mem::take(&mut outputs.reports), dropped)
    }

    /// Whether the engine asked for a fresh incarnation since the last call.
    #[must_use]
    pub fn take_incarnation_need(&self) -> bool {
        self.needs_incarnation.swap(false, Ordering::AcqRel)
    }

    /// Marks a link for closing, from outside of the engine.
    pub fn close_link(&self, link: LinkId, reason: CloseReason) {
        let queue = self.outputs.lock().links.get(&link).cloned();
        if let Some(queue) = queue {
            queue.close(reason);
            queue.changed.notify(usize::MAX);
        }
    }
}

#[cfg(test)]
mod tests;

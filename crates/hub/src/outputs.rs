//! Where the engine's outputs go, and what a moment's outputs leave behind: whom to wake when the guard is
//! released, and what must not be dropped under it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::bundle::Collecting;
use super::client_memory::ClientMemory;
use super::gone::{Freed, GoneLog, SeenThen};
use super::inbox::{Inbox, MonitorId, Pushed, TopicMessage};
use super::link_queue::{LinkQueue, QueuedTotal, Together};
use super::log_queue::{LogItem, LogQueue};
use super::shares::{Holder, Shares};
use crate::engine::{Engine, LinkId, Outbox, Output, Report, ServeJob};
use crate::model::path::Path;
use crate::protocol::client::topic::topic_matches;
use crate::replica::Committed;
use crate::replica::catch_up::CatchUpSnapshot;
use crate::replica::watch::{WatchId, Watchers};
use crate::storage::{Batch, Op};

/// Most reports that wait for the log; further ones are dropped and counted.
const REPORTS_MAX: usize = 4096;
/// Most bytes of the conflicts among them (one may exceed it alone): each holds two values.
const REPORTS_BYTES_MAX: usize = 16 << 20;

/// Where outputs go. Its lock is taken with the engine's exclusive guard held, and, each time for a
/// moment, to add, remove and close queues, to start a watch over, and to take reports and sums.
#[derive(Default)]
pub(super) struct Outputs {
    pub(super) links: BTreeMap<LinkId, Arc<LinkQueue>>,
    pub(super) watches: BTreeMap<WatchId, Watching>,
    pub(super) monitors: BTreeMap<MonitorId, Monitor>,
    /// Whose these are.
    pub(super) watch_shares: Shares,
    pub(super) monitor_shares: Shares,
    pub(super) next_link: u64,
    /// What was queued for links that are gone.
    pub(super) queued_before: QueuedTotal,
    /// Messages that monitors had no room for.
    pub(super) messages_dropped: u64,
    /// Times that a watch began again because its client did not keep up.
    pub(super) watch_restarts: u64,
    pub(super) next_monitor: u64,
    pub(super) reports: Vec<Report>,
    pub(super) reports_bytes: usize,
    pub(super) reports_dropped: u64,
    pub(super) gone: GoneLog,
    pub(super) client_memory: Arc<ClientMemory>,
    /// Of the tree, when the last outputs were drained.
    pub(super) replaced_bytes: u64,
    /// Logs beside the node's own, which somebody asked for.
    pub(super) extra_logs: Vec<Arc<LogQueue>>,
}

pub(super) struct Watching {
    pub(super) inbox: Arc<Inbox>,
    pub(super) holder: Arc<Holder>,
}

pub(super) struct Monitor {
    pub(super) pattern: Path,
    pub(super) inbox: Arc<Inbox>,
    pub(super) holder: Arc<Holder>,
}

/// Who must be woken after the guard is released.
#[derive(Default)]
pub(super) struct Wakes {
    pub(super) links: Vec<Arc<LinkQueue>>,
    pub(super) inboxes: Vec<Arc<Inbox>>,
    pub(super) acknowledged: bool,
    pub(super) attention: bool,
    pub(super) ready: bool,
    pub(super) cluster: bool,
    pub(super) closing: bool,
    pub(super) policies: bool,
    /// What was replaced, and must not be dropped under the guard.
    pub(super) garbage: Vec<ServeJob>,
    /// The same.
    pub(super) snapshots: Vec<Arc<CatchUpSnapshot>>,
    /// The same of entries that left the tree.
    pub(super) gone: Vec<Vec<Committed>>,
    pub(super) freed: Freed,
    /// The same of a log that could not keep up.
    pub(super) unlogged: VecDeque<LogItem>,
}

/// What is left to do at the end of a moment's outputs.
#[derive(Default)]
pub(super) struct Aftermath {
    /// Watches that overflowed.
    pub(super) lapsed: Vec<(WatchId, Arc<Inbox>)>,
    /// What left the tree: tombstones, and what tells watchers of values.
    pub(super) gone: Vec<(Vec<Committed>, Vec<Committed>)>,
    /// Changes that watches were not told of yet.
    pub(super) collecting: Collecting,
    /// What all links get and was not queued yet.
    pub(super) frames: Together,
}

impl Outputs {
    /// Charges the snapshots of streams with what was replaced.
    pub(super) fn note_replaced(&mut self, engine: &Engine, outbox: &Outbox) {
        let now = engine.tree().replaced_bytes();
        let before = std::mem::replace(&mut self.replaced_bytes, now);
        if !self.client_memory.has_pins() || now == before {
            return;
        }
        let replaced = usize::try_from(now.saturating_sub(before)).unwrap_or(usize::MAX);
        let paths = outbox.iter().filter_map(|output| match output {
            Output::Commit(change) => Some(change.path.as_bytes()),
            _ => None,
        });
        self.client_memory.note_changes(paths, replaced);
    }

    /// Queues what all links get.
    pub(super) fn push_frames(&self, aftermath: &mut Aftermath, wakes: &mut Wakes) {
        let Some((frames, count)) = aftermath.frames.take() else { return };
        for queue in self.links.values() {
            if queue.push_many(Arc::clone(&frames), count) {
                wakes.links.push(Arc::clone(queue));
            }
        }
    }

    /// Notes a change for watches. They are told when the next one is for others.
    pub(super) fn notify(
        &self,
        watchers: Watchers,
        change: Committed,
        aftermath: &mut Aftermath,
        wakes: &mut Wakes,
    ) {
        if watchers.is_empty() {
            return;
        }
        if !aftermath.collecting.takes(&watchers) {
            self.tell(aftermath, wakes);
        }
        aftermath.collecting.add(watchers, change);
    }

    /// Queues the changes that were noted.
    pub(super) fn tell(&self, aftermath: &mut Aftermath, wakes: &mut Wakes) {
        let Some((watchers, bundle)) = aftermath.collecting.finish(&self.client_memory) else {
            return;
        };
        for id in watchers.oldest_first().iter().copied() {
            let Some(Watching { inbox, .. }) = self.watches.get(&id) else { continue };
            match inbox.push_changes(id, &bundle) {
                Pushed::Quietly => continue,
                Pushed::Wake => {}
                Pushed::Lapsed => aftermath.lapsed.push((id, Arc::clone(inbox))),
            }
            wakes.inboxes.push(Arc::clone(inbox));
        }
    }

    pub(super) fn send_topic(&mut self, topic: &Path, data: &Arc<[u8]>, wakes: &mut Wakes) {
        let mut message = None;
        for (id, monitor) in &self.monitors {
            if topic_matches(&monitor.pattern, topic) {
                let message = message
                    .get_or_insert_with(|| TopicMessage::new(topic, data, &self.client_memory));
                if !monitor.inbox.push_topic(*id, message) {
                    self.messages_dropped += 1;
                }
                wakes.inboxes.push(Arc::clone(&monitor.inbox));
            }
        }
    }

    pub(super) fn report(&mut self, report: Report) {
        let bytes = match &report {
            Report::Conflict(c) => c.winner.memory_bytes() + c.loser.memory_bytes(),
            _ => 0,
        };
        let has_room = self.reports_bytes == 0 || self.reports_bytes + bytes <= REPORTS_BYTES_MAX;
        if self.reports.len() < REPORTS_MAX && has_room {
            self.reports_bytes += bytes;
            self.reports.push(report);
        } else {
            self.reports_dropped += 1;
        }
    }

    /// All outputs of a moment are pushed: only now what the engine has accounted for is what
    /// watches had or lost.
    pub(super) fn settle(&mut self, engine: &Engine, aftermath: Aftermath, wakes: &mut Wakes) {
        for (purged, dropped) in aftermath.gone {
            let watchers_of = |change: &Committed| engine.watchers_of(&change.path);
            wakes.freed.append(self.gone.add(&purged, &dropped, watchers_of));
            wakes.gone.extend([purged, dropped]);
        }
        if aftermath.lapsed.is_empty() {
            return;
        }
        // After the above: what watches that have just lapsed lost of it is among their own.
        let then = SeenThen::new(engine.seen().clone(), &self.client_memory);
        for (id, inbox) in aftermath.lapsed {
            let Some(dropped) = inbox.settle(id) else { continue };
            inbox.note_kept(id, self.gone.begin(id, Arc::clone(&then), dropped));
        }
    }
}

/// What a log needs of a moment's outputs, and the requests to make that moment's state safe; none
/// if there is nothing.
pub fn batch_of(engine: &Engine, outbox: &Outbox) -> Option<(Batch, Vec<u64>)> {
    let (mut ops, mut persist, mut is_told) = (Vec::new(), Vec::new(), false);
    for output in outbox.iter() {
        match output {
            Output::Commit(change) => ops.push(Op::Put(change.clone())),
            Output::Gone { purged, dropped } => {
                ops.extend(purged.iter().chain(dropped).map(Op::gone));
            }
            Output::Knowledge => is_told = true,
            Output::Persist { token } => persist.push(*token),
            _ => {}
        }
    }
    let knowledge = (is_told || !persist.is_empty()).then(|| engine.knowledge());
    if ops.is_empty() && knowledge.is_none() {
        return None;
    }
    let table = Arc::clone(engine.table());
    Some((Batch { time_ms: 0, table, ops, knowledge }, persist))
}

/// Of entries that were dropped: what tells watchers of those with a value, and the tombstones, of
/// which watchers were told when they were made.
pub(super) fn split_dropped(dropped: Vec<Committed>) -> (Vec<Committed>, Vec<Committed>) {
    let (tombstones, mut values): (Vec<_>, Vec<_>) =
        dropped.into_iter().partition(|change| change.entry.is_tombstone());
    for change in &mut values {
        change.entry = change.entry.without_value();
    }
    (values, tombstones)
}

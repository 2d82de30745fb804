//! The nodes of the network, kept up to date: from the seeds to a watch of the cluster view at one
//! node, and to the next node when that one is lost. Seeds always stay candidates.
//!
//! Epochs of two nodes cannot be compared, so the client counts its own: it rises when a view
//! differs from the one before, whichever node sent it, and only then. Nodes that have no such view
//! to watch (older ones) leave the client with its seeds.

mod config;
mod doubt;
mod follow;
mod routing;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use event_listener::Event;
use futures::future::{Either, select};
use parking_lot::{Mutex, RwLock};

use super::error::ClientError;
use super::pool::ConnectionPool;
use super::stats::{NodeStats, NodeTable};
use crate::model::host_port::HostPort;
use crate::model::ids::Millis;
use crate::rt;
pub use config::TopologyConfig;
use doubt::Doubts;
pub use routing::{PreferenceMove, Preferences, Routing, Target};
use view::{Differences, ToldView, by_name, compare};
pub use view::{NODES_MAX, NodeChange, NodeState, NodeView};

/// Most listeners of one client.
pub const LISTENERS_MAX: usize = 1024;

/// Which nodes there are; never changed, only replaced.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterView {
    /// Counted by this client: 0 before the first view, then it rises by 1 with each that differs.
    pub epoch: u64,
    /// In the order of names, each name once.
    pub nodes: Vec<NodeView>,
    /// The node that reported it first; none if only the seeds are known.
    pub source: Option<String>,
}

/// What listeners are told: how a view, or the overrides of preferred nodes, differ from those before.
/// One for each view; at least one of its lists has something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyChange {
    /// The client's epoch before; 0 if this is the first view.
    pub previous_epoch: u64,
    /// The client's epoch now: the same if only overrides changed, else greater by 1.
    pub epoch: u64,
    /// Nodes that were not there before, in the order of names.
    pub added: Vec<NodeView>,
    /// Nodes that are not there any more, in the order of names. A node that is down or has left is
    /// shown for a while still: that is a change.
    pub removed: Vec<NodeView>,
    /// Nodes of which something differs, in the order of names.
    pub changed: Vec<NodeChange>,
    /// Shards with another preferred node, in their order; none with the first view.
    pub moved: Vec<PreferenceMove>,
}

type ListenerFn = Arc<dyn Fn(&TopologyChange) + Send + Sync>;

/// Counters, and where the manager is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopologyStats {
    /// The client's epoch.
    pub epoch: u64,
    /// Nodes in the view, and how many of them are live.
    pub nodes: usize,
    /// The same.
    pub live: usize,
    /// Address of the node whose view is watched.
    pub watching: Option<String>,
    /// Views that came, also those that did not differ.
    pub views: u64,
    /// Times that a watched node was lost.
    pub lost: u64,
    /// Shards whose preferred node moved, all times together.
    pub moved: u64,
    /// Nodes know no cluster view, so the seeds are all there is.
    pub seeds_only: bool,
}

/// The manager. Dropping it ends its task.
#[derive(Debug)]
pub struct TopologyManager {
    shared: Arc<Shared>,
}

/// Keeps a listener. Dropping it takes the listener off; one that is being called finishes.
#[must_use = "dropping it takes the listener off"]
#[derive(Debug)]
pub struct TopologyListener {
    id: u64,
    shared: Arc<Shared>,
}

/// What the manager and its task share.
struct Shared {
    config: TopologyConfig,
    pool: ConnectionPool,
    seeds: Vec<HostPort>,
    /// When whoever waits for the first view gives up, by [`rt::now`].
    first_view_by: Option<Millis>,
    /// Replaced whole, under `state`.
    routing: RwLock<Arc<Routing>>,
    state: Mutex<State>,
    /// Taken after `state`.
    listeners: Mutex<Listeners>,
    /// Held while listeners are called, so that they hear of changes in order. Taken before
    /// `state`.
    telling: Mutex<()>,
    /// Notified when the view or the preferences changed, or the first attempt to get one ended.
    changed: Event,
    /// Whether the view has proved wrong.
    doubts: Doubts,
    stop: Event,
    is_stopped: AtomicBool,
    counted: NodeTable,
    /// How often a node was asked for its view.
    asked: AtomicU32,
    views: AtomicU64,
    lost: AtomicU64,
    moved: AtomicU64,
}

#[derive(Default)]
struct State {
    preferences: Arc<Preferences>,
    watching: Option<HostPort>,
    seeds_only: bool,
    /// Why the last round of candidates came to nothing; none while one is watched.
    failure: Option<ClientError>,
    /// And none of them lets this client in.
    all_refuse: bool,
}

#[derive(Default)]
struct Listeners {
    next: u64,
    all: BTreeMap<u64, ListenerFn>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Topology").field("seeds", &self.seeds).finish_non_exhaustive()
    }
}

impl TopologyManager {
    /// Begins to look for a node among the seeds.
    #[must_use]
    pub fn start(
        seeds: Vec<HostPort>,
        pool: ConnectionPool,
        config: TopologyConfig,
    ) -> TopologyManager {
        TopologyManager::start_within(None, seeds, pool, config)
    }

    /// The same, where a first view is of no use after this time: all seeds are asked within it, also if some of them are
    /// silent.
    pub(crate) fn start_within(
        patience: Option<Duration>,
        seeds: Vec<HostPort>,
        pool: ConnectionPool,
        config: TopologyConfig,
    ) -> TopologyManager {
        let first_view_by = patience.map(|patience| rt::now().saturating_add(rt::millis(patience)));
        let counted = NodeTable::default();
        let routing = Routing::of_seeds(&seeds, &counted);
        let shared = Arc::new(Shared {
            config: config.bounded(),
            pool,
            seeds,
            first_view_by,
            routing: RwLock::new(Arc::new(routing)),
            state: Mutex::default(),
            listeners: Mutex::default(),
            telling: Mutex::new(()),
            changed: Event::new(),
            doubts: Doubts::default(),
            stop: Event::new(),
            is_stopped: AtomicBool::new(false),
            counted,
            asked: AtomicU32::new(0),
            views: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            moved: AtomicU64::new(0),
        });
        let doubting = Arc::downgrade(&shared);
        shared.pool.on_misplaced(move |name| {
            if let Some(shared) = doubting.upgrade() {
                shared.on_misplaced(name);
            }
        });
        let task = Arc::clone(&shared);
        shared.pool.tasks().spawn(async move {
            let stopped = std::pin::pin!(task.stopped());
            let following = std::pin::pin!(follow::follow_views(&task));
            match select(stopped, following).await {
                Either::Left(_) | Either::Right(_) => {}
            }
        });
        TopologyManager { shared }
    }

    /// The view of now.
    #[must_use]
    pub fn view(&self) -> Arc<ClusterView> {
        Arc::clone(&self.shared.routing().view)
    }

    /// Which node is preferred for what, at present.
    #[must_use]
    pub fn routing(&self) -> Arc<Routing> {
        self.shared.routing()
    }

    /// Waits for the first view, or until no seed could be reached; the caller limits the time.
    ///
    /// # Errors
    /// Why the last of the seeds could not be reached. The manager keeps trying.
    pub async fn first_view(&self) -> Result<Arc<ClusterView>, ClientError> {
        loop {
            let changed = self.shared.changed.listen();
            let view = self.view();
            if view.epoch > 0 {
                return Ok(view);
            }
            if let Some(failure) = self.shared.state.lock().failure.clone() {
                return Err(failure);
            }
            changed.await;
        }
    }

    /// Waits for the first view, however often no node can be reached; the caller limits the time.
    ///
    /// # Errors
    /// [`ClientError::NoAccess`] as soon as all nodes refuse this client.
    pub(crate) async fn first_view_if_let_in(&self) -> Result<(), ClientError> {
        loop {
            let changed = self.shared.changed.listen();
            if self.view().epoch > 0 {
                return Ok(());
            }
            if let Some(refusal) = self.refusal_by_all() {
                return Err(refusal);
            }
            changed.await;
        }
    }

    /// Also that there is no file descriptor for a connection to any.
    fn refusal_by_all(&self) -> Option<ClientError> {
        let state = self.shared.state.lock();
        state.failure.clone().filter(|_| state.all_refuse)
    }

    /// Waits until the view's epoch is greater than this one.
    pub async fn newer_than(&self, epoch: u64) -> Arc<ClusterView> {
        loop {
            let changed = self.shared.changed.listen();
            let view = self.view();
            if view.epoch > epoch {
                return view;
            }
            changed.await;
        }
    }

    /// Calls `listener` for each change from now on, one after the other, on the manager's task (or in
    /// [`TopologyManager::prefer`], by whoever calls that): it must be quick and must not block. So it must not call
    /// [`TopologyManager::prefer`] itself, which waits until all listeners have been told of the change before: another
    /// task can. Its panics stop nothing. `None` when there are [`LISTENERS_MAX`] already.
    pub fn listen(
        &self,
        listener: impl Fn(&TopologyChange) + Send + Sync + 'static,
    ) -> Option<TopologyListener> {
        // A change is made under this lock, and told to those who listen then.
        let _state = self.shared.state.lock();
        let mut listeners = self.shared.listeners.lock();
        if listeners.all.len() >= LISTENERS_MAX {
            return None;
        }
        let id = listeners.next;
        listeners.next += 1;
        listeners.all.insert(id, Arc::new(listener));
        drop(listeners);
        Some(TopologyListener { id, shared: Arc::clone(&self.shared) })
    }

    /// Why no node could be reached the last time that all were tried, first of all if one refused this client; none while
    /// one is watched.
    #[must_use]
    pub fn failure(&self) -> Option<ClientError> {
        self.shared.state.lock().failure.clone()
    }

    /// How often a node was asked which nodes there are, each time by a connection.
    #[must_use]
    pub(crate) fn asked(&self) -> u32 {
        self.shared.asked.load(Ordering::Relaxed)
    }

    /// The overrides of preferred nodes in force.
    #[must_use]
    pub fn preferences(&self) -> Arc<Preferences> {
        Arc::clone(&self.shared.state.lock().preferences)
    }

    /// New overrides of preferred nodes: listeners are told which shards moved, before this returns. A listener must not
    /// call it.
    pub fn prefer(&self, preferences: Preferences) {
        self.shared.apply_preferences(preferences);
    }

    /// Ends the task. The view stays as it is.
    pub fn stop(&self) {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        self.shared.stop.notify(usize::MAX);
    }

    /// What went to each node.
    pub(crate) fn node_stats(&self) -> BTreeMap<String, NodeStats> {
        self.shared.counted.stats()
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> TopologyStats {
        let view = self.view();
        let state = self.shared.state.lock();
        TopologyStats {
            epoch: view.epoch,
            nodes: view.nodes.len(),
            live: view.nodes.iter().filter(|node| node.is_live()).count(),
            watching: state.watching.as_ref().map(HostPort::to_string),
            views: self.shared.views.load(Ordering::Relaxed),
            lost: self.shared.lost.load(Ordering::Relaxed),
            moved: self.shared.moved.load(Ordering::Relaxed),
            seeds_only: state.seeds_only,
        }
    }
}

impl Drop for TopologyManager {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Drop for TopologyListener {
    fn drop(&mut self) {
        self.shared.listeners.lock().all.remove(&self.id);
    }
}

impl Shared {
    fn routing(&self) -> Arc<Routing> {
        Arc::clone(&self.routing.read())
    }

    async fn stopped(&self) {
        loop {
            let listener = self.stop.listen();
            if self.is_stopped.load(Ordering::SeqCst) {
                return;
            }
            listener.await;
        }
    }

    /// Takes over a node's report.
    fn apply_view(&self, told: ToldView) {
        self.views.fetch_add(1, Ordering::Relaxed);
        let _telling = self.telling.lock();
        let mut state = self.state.lock();
        state.seeds_only = told.source.is_none();
        state.failure = None;
        let old = self.routing();
        let differences = compare(&old.view.nodes, &told.nodes);
        if differences.is_empty() && old.view.epoch > 0 {
            return;
        }
        let epoch = old.view.epoch + 1;
        let view = ClusterView { epoch, nodes: told.nodes, source: told.source };
        let preferences = Arc::clone(&state.preferences);
        let new = Routing::new(Arc::new(view), &self.seeds, preferences, &self.counted);
        let listeners = self.listeners();
        let new = self.publish(new);
        drop(state);
        self.pool.retain(|address| new.knows(address));
        let changed = differences.changed.iter().map(|change| &change.after);
        for node in differences.removed.iter().chain(changed).filter(|node| !node.is_live()) {
            if let Some(address) = &node.client {
                // Calls that wait there need not wait until the silence is noticed.
                self.pool.probe(address);
            }
        }
        self.tell(listeners, &old, &new, differences);
    }

    /// The seeds are all that is known.
    fn apply_seeds(&self) {
        let seed = |address| NodeView::seed(address, self.pool.identity(address));
        let nodes = by_name(self.seeds.iter().map(seed));
        self.apply_view(ToldView { nodes, source: None });
    }

    fn apply_preferences(&self, preferences: Preferences) {
        let _telling = self.telling.lock();
        let mut state = self.state.lock();
        if *state.preferences == preferences {
            return;
        }
        state.preferences = Arc::new(preferences);
        let old = self.routing();
        let view = Arc::clone(&old.view);
        let new = match view.epoch {
            // There are no names yet that could be preferred.
            0 => return,
            _ => {
                let preferences = Arc::clone(&state.preferences);
                Routing::new(view, &self.seeds, preferences, &self.counted)
            }
        };
        let listeners = self.listeners();
        let new = self.publish(new);
        drop(state);
        self.tell(listeners, &old, &new, Differences::default());
    }

    /// No candidate could be reached.
    fn on_failure(&self, failure: ClientError, all_refuse: bool) {
        let mut state = self.state.lock();
        (state.failure, state.all_refuse) = (Some(failure), all_refuse);
        drop(state);
        self.changed.notify(usize::MAX);
    }

    fn publish(&self, routing: Routing) -> Arc<Routing> {
        let routing = Arc::new(routing);
        *self.routing.write() = Arc::clone(&routing);
        self.changed.notify(usize::MAX);
        routing
    }

    /// Who hears of a change: who listens when it is made, and nobody who comes later and sees it already.
    /// To be called under the lock of `state`.
    fn listeners(&self) -> Vec<ListenerFn> {
        self.listeners.lock().all.values().cloned().collect()
    }

    fn tell(
        &self,
        listeners: Vec<ListenerFn>,
        old: &Routing,
        new: &Routing,
        differences: Differences,
    ) {
        let moved = match old.view.epoch {
            // There was no preferred node before.
            0 => Vec::new(),
            _ => old.moves_to(new),
        };
        self.moved.fetch_add(moved.len() as u64, Ordering::Relaxed);
        if listeners.is_empty() || (differences.is_empty() && moved.is_empty()) {
            return;
        }
        let Differences { added, removed, changed } = differences;
        let (previous_epoch, epoch) = (old.view.epoch, new.view.epoch);
        let change = TopologyChange { previous_epoch, epoch, added, removed, changed, moved };
        for listener in listeners {
            // The panic was reported already, by the hook.
            let _ = catch_unwind(AssertUnwindSafe(|| listener(&change)));
        }
    }
}

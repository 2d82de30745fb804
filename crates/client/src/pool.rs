//! Few connections to each node, shared by all calls, opened on first use.
//!
//! A call that needs a connection while one is being opened waits for that attempt, which continues
//! even if the call that began it is dropped. A failed attempt is remembered for a short while, so
//! that many callers do not dial a dead node again and again. A second connection is opened only
//! when the first is busy, and is waited for only where the first has no room left. Unused
//! connections are closed after a while, and a node that sends nothing while a call waits for it is
//! asked whether it is still alive.

mod connect;
mod keep;
mod named;
mod slot;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use event_listener::Event;
use futures::future::{Either, select};
use parking_lot::Mutex;

use super::connection::Connection;
use super::error::ClientError;
use super::stats::{count, of};
use crate::connection::clock::Clock;
use crate::connection::group::Group;
use crate::connection::{OwnNetwork, ShutOut, Use};
use crate::credentials::Access;
use crate::model::host_port::HostPort;
use crate::model::ids::Millis;
use crate::rt;
use connect::connect;
use named::Misplaced;
pub(crate) use slot::Attempt;
use slot::NodeSlot;

/// Most connections to one node.
pub const CONNECTIONS_PER_NODE_MAX: usize = 16;
/// Most nodes that are remembered. More than any network has; those without a connection are
/// dropped first.
const NODES_MAX: usize = 4096;

/// How connections are kept. How the client gets into the network is said apart from it ([`Access`]), so that who changes one
/// of these settings takes nothing of that away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    /// Connections to one node, 1 to [`CONNECTIONS_PER_NODE_MAX`]. On each there may be 3,840 streams (watches, monitors of
    /// messages, trees that are coming; the client's view is one of them), and 4,096 open requests in all. Where no node has
    /// a place for another stream, it ends with [`ClientError::TooManyStreams`].
    pub connections_per_node: usize,
    /// Open requests from which on a connection is busy, so that another one is opened. At least 1.
    pub busy_at: usize,
    /// A connection without open requests that was unused for this long is closed.
    pub idle_close: Duration,
    /// How long the result of a failed attempt to connect is given to all callers; doubles with
    /// each further failure, up to [`PoolConfig::failure_memory_max`].
    pub failure_memory: Duration,
    /// The longest that [`PoolConfig::failure_memory`] becomes.
    pub failure_memory_max: Duration,
    /// A node that sent nothing for this long while something is open is asked whether it is alive.
    pub probe_after: Duration,
    /// How long it may take to answer that; then its connection is closed.
    pub probe_timeout: Duration,
    /// How long connecting may take, the greeting and the login included.
    pub connect_timeout: Duration,
    /// How many messages of one stream may be under way, as [`Options::window`](crate::Options::window) says; 2 to 4,096. None: no
    /// flow control.
    pub window: Option<u64>,
    /// Whether a node that has no data yet refuses requests at once: see [`Options::nowait`](crate::Options::nowait).
    pub nowait: bool,
}

impl Default for PoolConfig {
    fn default() -> PoolConfig {
        PoolConfig {
            connections_per_node: 2,
            busy_at: 64,
            idle_close: Duration::from_secs(60),
            failure_memory: Duration::from_millis(100),
            failure_memory_max: Duration::from_secs(2),
            probe_after: Duration::from_secs(10),
            probe_timeout: Duration::from_secs(4),
            connect_timeout: Duration::from_secs(3),
            window: Some(64),
            // There are other nodes to go to.
            nowait: true,
        }
    }
}

/// The identity that a node reported.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeIdentity {
    /// Its name.
    pub name: String,
    /// Its life; none from a node that has no action `cluster`.
    pub incarnation: Option<u64>,
}

/// A connection of the pool. Hold it only as long as something is open on it.
#[derive(Debug)]
pub struct PooledConnection {
    connection: Connection,
    address: HostPort,
    identity: NodeIdentity,
    /// When it was last handed out.
    used: AtomicU64,
    /// A probe is under way.
    is_probed: AtomicBool,
}

impl PooledConnection {
    /// The connection itself.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The node at its other end.
    #[must_use]
    pub fn identity(&self) -> &NodeIdentity {
        &self.identity
    }

    /// Where that is.
    pub(crate) fn address(&self) -> &HostPort {
        &self.address
    }

    /// Whether this is the node that is meant; none: any is.
    fn is(&self, name: Option<&str>) -> bool {
        name.is_none_or(|name| self.identity.name == name)
    }
}

/// What a pool has done so far, and has now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Nodes with at least one connection.
    pub nodes: usize,
    /// Open connections.
    pub connections: usize,
    /// Requests and streams that are open on them.
    pub open_requests: usize,
    /// Connections that were opened.
    pub opened: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Times that a caller got a remembered failure.
    pub failures_remembered: u64,
    /// Connections that ended without the pool's doing.
    pub lost: u64,
    /// Connections that were closed because they were unused.
    pub idle_closed: u64,
    /// Times that a silent node was asked whether it is alive.
    pub probes: u64,
    /// Connections that were closed because it did not answer.
    pub silent_closed: u64,
}

/// The pool; clones share it. When the last is dropped, its connections end with their users.
#[derive(Debug, Clone)]
pub struct ConnectionPool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: PoolConfig,
    access: Access,
    nodes: Mutex<HashMap<HostPort, NodeSlot>>,
    /// Until when a failure is remembered, of whichever node; 0: there was none.
    failing_until: AtomicU64,
    is_closed: AtomicBool,
    /// Notified when the pool is closed.
    closed: Event,
    /// All that it does by itself, its connections' tasks included.
    tasks: Group,
    /// Which nodes are not where they are said to be.
    misplaced: Misplaced,
    /// What all nodes say.
    clock: Clock,
    /// The one network whose nodes are used; unset until it is known.
    network: OnceLock<OwnNetwork>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    opened: AtomicU64,
    failed: AtomicU64,
    failures_remembered: AtomicU64,
    lost: AtomicU64,
    idle_closed: AtomicU64,
    probes: AtomicU64,
    silent_closed: AtomicU64,
}

/// How a call gets its connection.
pub(crate) enum Plan {
    /// This one.
    Use(Arc<PooledConnection>),
    /// By this attempt, which is under way.
    Wait(Arc<Attempt>),
    /// Not at all.
    Fail(ClientError),
}

impl ConnectionPool {
    /// An empty one, with a task that looks after it. Where `access` names no network, that of the first node that lets the client
    /// in counts.
    #[must_use]
    pub fn new(config: PoolConfig, access: Access) -> ConnectionPool {
        let per_node = config.connections_per_node.clamp(1, CONNECTIONS_PER_NODE_MAX);
        let network = access.network().cloned();
        let network = network.map_or_else(OnceLock::new, OnceLock::from);
        let inner = Arc::new(Inner {
            network,
            config: PoolConfig { connections_per_node: per_node, ..config },
            access,
            nodes: Mutex::default(),
            failing_until: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            closed: Event::new(),
            tasks: Group::default(),
            misplaced: Misplaced::default(),
            clock: Clock::default(),
            counts: Counts::default(),
        });
        inner.tasks.spawn(keep::keep(Arc::downgrade(&inner)));
        ConnectionPool { inner }
    }

    /// A connection to this node: one that is open already if there is one that is not busy.
    /// Dropping this gives up waiting, not the attempt.
    ///
    /// # Errors
    /// Why no connection came about, or comes about just now. Nothing was sent.
    pub async fn get(&self, to: &HostPort) -> Result<Arc<PooledConnection>, ClientError> {
        self.get_named(to, None, Use::Call).await
    }

    /// Whether the last attempt to connect to a node failed so recently that
    /// [`ConnectionPool::get`] would not try again, or the node let a call wait in vain.
    #[must_use]
    pub fn is_failing(&self, node: &HostPort) -> bool {
        // Mostly none is, and then no clock is needed either.
        let until = self.inner.failing_until.load(Ordering::Relaxed);
        if until == 0 || rt::now() >= until {
            return false;
        }
        let nodes = self.inner.nodes.lock();
        nodes.get(node).is_some_and(|slot| slot.is_failing(rt::now()))
    }

    /// Reports that a call on this connection has waited in vain since `since` (by [`rt::now`]). If
    /// the node sent nothing at all meanwhile, other calls avoid it for a moment, and it is asked
    /// whether it is alive; without an answer the connection ends for all its users.
    pub fn on_timeout(&self, node: &HostPort, used: &Arc<PooledConnection>, since: Millis) {
        let is_heard = used.connection.heard_at() >= since || used.connection.is_hearing();
        if is_heard || used.connection.is_closed() {
            return;
        }
        let error = ClientError::Connect {
            address: node.to_string(),
            reason: String::from("it does not answer requests"),
        };
        self.inner.note_failure(node, error, rt::now());
        keep::start_probe(&self.inner, node, used);
    }

    /// Asks a node whether it is alive, on each of its connections, after a report that it is not.
    pub fn probe(&self, node: &HostPort) {
        let nodes = self.inner.nodes.lock();
        let open = nodes.get(node).map(|slot| slot.connections.clone()).unwrap_or_default();
        drop(nodes);
        open.iter().for_each(|used| keep::start_probe(&self.inner, node, used));
    }

    /// The node at an address, if it was connected to.
    #[must_use]
    pub fn identity(&self, node: &HostPort) -> Option<NodeIdentity> {
        self.inner.nodes.lock().get(node).and_then(|slot| slot.identity.clone())
    }

    /// Whether a node has said lately that it does not let the client in, and has not let it in since.
    pub(crate) fn is_shut_out(&self) -> bool {
        let nodes = self.inner.nodes.lock();
        nodes.values().any(|slot| slot.shut_out.stands(rt::now()))
    }

    /// Forgets the nodes that are none of these and have no connection.
    pub fn retain(&self, is_wanted: impl Fn(&HostPort) -> bool) {
        self.inner.nodes.lock().retain(|address, slot| is_wanted(address) || slot.is_in_use());
    }

    /// Ends all connections, for all their users. There are no new ones.
    pub fn close(&self) {
        self.inner.is_closed.store(true, Ordering::SeqCst);
        let nodes = std::mem::take(&mut *self.inner.nodes.lock());
        for slot in nodes.into_values() {
            slot.close("the client was closed");
        }
        self.inner.closed.notify(usize::MAX);
    }

    /// Ends the streams of all connections that would not end by themselves.
    pub(crate) fn end_endless(&self) {
        let nodes = self.inner.nodes.lock();
        let used = nodes.values().flat_map(|slot| &slot.connections);
        used.for_each(|used| used.connection.end_endless());
    }

    /// The tasks that go on for it.
    pub(crate) fn tasks(&self) -> &Group {
        &self.inner.tasks
    }

    /// What all nodes have said of the network's clock.
    pub(crate) fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// Whether it was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.is_closed.load(Ordering::SeqCst)
    }

    /// Waits until it is closed.
    pub(crate) async fn closed(&self) {
        self.inner.closed().await;
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let counts = &self.inner.counts;
        let mut stats = PoolStats {
            opened: of(&counts.opened),
            failed: of(&counts.failed),
            failures_remembered: of(&counts.failures_remembered),
            lost: of(&counts.lost),
            idle_closed: of(&counts.idle_closed),
            probes: of(&counts.probes),
            silent_closed: of(&counts.silent_closed),
            ..PoolStats::default()
        };
        for slot in self.inner.nodes.lock().values() {
            let open = slot.connections.iter().filter(|used| !used.connection.is_closed());
            let loads: Vec<usize> = open.map(|used| used.connection.open_requests()).collect();
            stats.nodes += usize::from(!loads.is_empty());
            stats.connections += loads.len();
            stats.open_requests += loads.iter().sum::<usize>();
        }
        stats
    }
}

impl Inner {
    /// Decides how the caller gets its connection, and begins an attempt where one is due.
    fn plan(self: &Arc<Inner>, to: &HostPort, name: Option<&str>, wanted: Use) -> Plan {
        let now = rt::now();
        let mut nodes = self.nodes.lock();
        if self.is_closed.load(Ordering::SeqCst) {
            return Plan::Fail(closed(to));
        }
        // The usual.
        if let Some(used) = nodes.get(to).and_then(|slot| slot.ready(self.config.busy_at, wanted))
            && used.is(name)
        {
            used.used.store(now, Ordering::Relaxed);
            return Plan::Use(Arc::clone(used));
        }
        if nodes.len() >= NODES_MAX && !nodes.contains_key(to) {
            nodes.retain(|_, slot| slot.is_in_use());
        }
        let slot = nodes.entry(to.clone()).or_default();
        let lost = slot.drop_closed();
        self.counts.lost.fetch_add(lost, Ordering::Relaxed);
        if let Some(name) = name
            && let Some(other) = slot.other_than(name)
        {
            let error = named::other_node(to, other);
            drop(nodes);
            self.misplaced.note(name);
            return Plan::Fail(error);
        }
        let best = slot.least_busy(name, wanted);
        let is_enough = match &best {
            Some((_, load)) => {
                load.is_some_and(|load| load < self.config.busy_at)
                    || slot.connections.len() >= self.config.connections_per_node
                    || slot.is_failing(now)
            }
            None => false,
        };
        if let (Some((best, load)), true) = (&best, is_enough) {
            if load.is_none() {
                if let Some(attempt) = &slot.attempt {
                    return Plan::Wait(Arc::clone(attempt));
                }
                if let (Use::Stream, Some(error)) =
                    (wanted, slot.too_many_streams(to, &self.config))
                {
                    return Plan::Fail(error);
                }
            }
            best.used.store(now, Ordering::Relaxed);
            return Plan::Use(Arc::clone(best));
        }
        if best.is_none()
            && let Some(error) = slot.remembered_failure(now)
        {
            count(&self.counts.failures_remembered);
            return Plan::Fail(error);
        }
        let attempt = match &slot.attempt {
            Some(attempt) => Arc::clone(attempt),
            None => {
                let attempt = Arc::new(Attempt::default());
                slot.attempt = Some(Arc::clone(&attempt));
                let shut_out = slot.shut_out.clone();
                let opening = open(Arc::clone(self), to.clone(), shut_out, Arc::clone(&attempt));
                self.tasks.spawn(opening);
                attempt
            }
        };
        match best {
            // It is busy, but there; the next caller gets the new one.
            Some((best, Some(_))) => {
                best.used.store(now, Ordering::Relaxed);
                Plan::Use(best)
            }
            Some((_, None)) | None => Plan::Wait(attempt),
        }
    }

    async fn closed(&self) {
        loop {
            let listener = self.closed.listen();
            if self.is_closed.load(Ordering::SeqCst) {
                return;
            }
            listener.await;
        }
    }

    fn note_failure(&self, node: &HostPort, error: ClientError, now: Millis) {
        if let Some(slot) = self.nodes.lock().get_mut(node) {
            let until = slot.note_failure(error, now, &self.config);
            self.failing_until.fetch_max(until, Ordering::Relaxed);
        }
    }
}

/// One attempt, whichever calls wait for it.
async fn open(inner: Arc<Inner>, to: HostPort, shut_out: ShutOut, attempt: Arc<Attempt>) {
    let connecting = connect(&inner, &to, &shut_out);
    let connected = match select(std::pin::pin!(connecting), std::pin::pin!(inner.closed())).await {
        Either::Left((connected, _)) => connected,
        Either::Right(_) => Err(closed(&to)),
    };
    let result = match connected {
        Ok((connection, identity)) => Ok(Arc::new(PooledConnection {
            connection,
            address: to.clone(),
            identity,
            used: AtomicU64::new(rt::now()),
            is_probed: AtomicBool::new(false),
        })),
        Err(error) => Err(error),
    };
    let result = inner.on_attempt(&to, &attempt, result);
    attempt.finish(result);
}

impl Inner {
    /// Records how an attempt ended; its waiters may get another result if the pool was closed
    /// meanwhile.
    fn on_attempt(
        &self,
        to: &HostPort,
        attempt: &Arc<Attempt>,
        result: Result<Arc<PooledConnection>, ClientError>,
    ) -> Result<Arc<PooledConnection>, ClientError> {
        let mut nodes = self.nodes.lock();
        if self.is_closed.load(Ordering::SeqCst) {
            if let Ok(used) = &result {
                used.connection.close("the client was closed");
            }
            return Err(closed(to));
        }
        let slot = nodes.entry(to.clone()).or_default();
        if slot.attempt.as_ref().is_some_and(|own| Arc::ptr_eq(own, attempt)) {
            slot.attempt = None;
        }
        match &result {
            Ok(used) => {
                count(&self.counts.opened);
                slot.failure = None;
                slot.identity = Some(used.identity.clone());
                slot.connections.push(Arc::clone(used));
            }
            Err(error) => {
                count(&self.counts.failed);
                let until = slot.note_failure(error.clone(), rt::now(), &self.config);
                self.failing_until.fetch_max(until, Ordering::Relaxed);
            }
        }
        result
    }
}

fn closed(to: &HostPort) -> ClientError {
    let reason = String::from("the client was closed");
    ClientError::Connect { address: to.to_string(), reason }
}

//! Client connections: the client port, and how clients' requests are carried out.
//!
//! | file | what |
//! |---|---|
//! | this one | the port: binding, accepting, stopping |
//! | [`config`] | what one client may do |
//! | `counts` | what the port counts for metrics and operators |
//! | [`info`] | what the port must know about the rest of the node |
//! | `connections` | accepting connections, moving their bytes, and the session of each |
//! | `command` | what the actions do, one file per family |
//! | [`local_client`] | a client in the same process, which HTTP asks through |
//! | `stream` | streams: turns, flow control, walks over snapshots |
//! | `past` | a state of the node's past |
//! | `snapshot_upload` | a snapshot that a client uploads |
//! | `storage_status` | how the node's data is kept on disk |
//! | `cluster` | what clients and operators are told of the network: nodes, shards, what blocks purging |
//! | [`access`] | who a client is, and what it may do |

pub mod access;
mod cluster;
mod command;
pub(crate) mod config;
mod connections;
pub(crate) mod counts;
mod error_text;
pub(crate) mod info;
pub(crate) mod local_client;
pub(crate) mod past;
mod snapshot_upload;
mod storage_status;
mod stream;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_lock::Semaphore;
use event_listener::Event;
use parking_lot::Mutex;

pub use cluster::{purge_block, shards};
pub(crate) use command::access::unenforced::{ignored_login, unenforced_warning};
pub(crate) use command::cluster::warnings::{Warning, WarningKind};
pub use config::ServerConfig;
pub(crate) use connections::session::KEPT_CONNECTIONS_MAX;
pub use connections::tls::TlsSettings;
pub(crate) use connections::tls::{IpNetwork, NetworkError};
pub(crate) use info::{
    ClientLogStatus, KeyOrder, KeyRefusal, KeysView, LeaveRefusal, NodeKeys, ScheduledStatus,
    SilentInfo, SilentMembers, SnapshotStatus,
};
pub use info::{
    FileFormat, FileJob, FileRefusal, FileReport, MemberInfo, MemberState, NodeInfo, NodeStatus,
    StorageStatus,
};
pub use past::PastRefusal;
pub(crate) use past::{PastState, moment_text};
pub(crate) use purge_block::PurgeBlock;

use crate::engine::Engine;
use crate::hub::Hub;
use crate::model::change_time::ChangeTime;
use crate::model::ids::Millis;
use crate::protocol::client::{ClientError, ErrorCode};
use access::logins::Logins;
use access::{Access, Identity, PolicyData};
use connections::session::not_ready;
use counts::Counts;
use local_client::LocalClient;

use crate::rt::{self, Task, TcpListener, TcpStream};

/// Now, by this node's clock: what people are told of the changes that are made in this moment. A batch has one.
fn change_time() -> Option<ChangeTime> {
    ChangeTime::new(rt::wall_clock_ms())
}

/// Jobs at once that walk the whole tree for a client; others wait.
const HEAVY_JOBS: usize = 2;
/// Connections at once whose streams look for something that they may send and have found nothing for a while; others wait.
/// So whoever asks for much of which nothing may be shown takes no more turns than a few other clients, by however many
/// connections.
const SEARCHES_MAX: usize = 2;
/// Connections that are refused at once, and kept until their clients have read why, when there are too many; further
/// ones are told, and closed.
pub(crate) const REFUSALS_MAX: usize = 64;
/// Most connections that are kept open to the very end because their clients sent the node away.
const LEAVERS_MAX: usize = 64;
/// The output that each connection may keep however many there are.
const OUTPUT_LEAST: usize = 64 << 10;

/// Why the client port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Another process listens there.
    #[error(
        "the client address {address} is in use; is another node running? Choose another one with --client"
    )]
    InUse {
        /// The address as given.
        address: String,
    },
    /// The address cannot be used.
    #[error("cannot listen for clients at {address}: {error}")]
    Bind {
        /// The address as given.
        address: String,
        /// What the system says.
        error: io::Error,
    },
}

/// What all connections share.
pub(crate) struct Shared {
    hub: Arc<Hub>,
    config: ServerConfig,
    info: Arc<dyn NodeInfo>,
    policy_data: PolicyData,
    logins: Logins,
    cluster: cluster::nodes::Cluster,
    heavy: Semaphore,
    searches: Arc<Semaphore>,
    standing: Arc<cluster::chain_incarnations::Standing>,
    shards: Arc<shards::ShardManager>,
    /// Snapshots that are being made for clients.
    downloads: Arc<AtomicUsize>,
    /// The snapshot that is being uploaded.
    upload_turn: Arc<snapshot_upload::UploadTurn>,
    /// Fires when the server stops.
    stopping: Event,
    is_stopping: AtomicBool,
    /// Nothing is sent to clients any more.
    is_abandoned: AtomicBool,
    connections: AtomicUsize,
    /// Those of them that have a place which is kept for the node's own machine.
    kept: AtomicUsize,
    /// Fires when a connection has ended.
    ended: Event,
    /// Connections of clients that asked the node to leave: their end tells them that it has gone.
    /// Invariant: at most [`LEAVERS_MAX`].
    leavers: Mutex<Vec<TcpStream>>,
    refusals: AtomicUsize,
    handshakes: connections::tls::Handshakes,
    accepted: AtomicU64,
    refused: AtomicU64,
    /// For the log: clients that were refused, and clients that were closed for the memory of all.
    refused_tally: connections::throttled_warning::Tally,
    closed_tally: connections::throttled_warning::Tally,
    pub(in crate::server) counts: Arc<Counts>,
    /// See [`Server::assume`].
    #[cfg(any(test, feature = "planted-defects"))]
    assumed: Mutex<Option<Identity>>,
    /// See [`Server::plant`].
    #[cfg(any(test, feature = "planted-defects"))]
    mistake: Mutex<Option<access::mistakes::Mistake>>,
}

impl Shared {
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Whether there are as many as there may be.
    fn is_full(&self) -> bool {
        self.connections().saturating_sub(self.kept_connections()) >= self.config.connections_max
    }

    /// Those of them that have a place which is kept for the node's own machine.
    fn kept_connections(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }

    /// The most output that one connection may keep now: less where many are connected.
    fn output_limit(&self) -> usize {
        let most = self.config.output_bytes_max;
        self.hub.client_memory().output_share(self.connections(), OUTPUT_LEAST, most)
    }

    /// Waits until changes may be made, if this node's disk does not keep up.
    async fn room(&self) {
        if let Some(log) = self.hub.log() {
            log.room().await;
        }
    }

    /// What a client may do, of the policies at this moment.
    fn access_of(&self, identity: &Identity) -> Access {
        Access {
            #[cfg(any(test, feature = "planted-defects"))]
            mistake: *self.mistake.lock(),
            ..self.policy_data.access_of(&self.hub, identity, self.is_secured())
        }
    }

    /// Whether clients must log in whatever the data says.
    fn is_secured(&self) -> bool {
        #[cfg(any(test, feature = "planted-defects"))]
        if self.assumed.lock().is_some() {
            return true;
        }
        self.logins.is_secured()
    }

    /// Whether clients may do nothing before they have shown who they are.
    fn must_log_in(&self) -> bool {
        self.is_secured() || (self.hub.closing.is_closed() && self.grace_ms().is_none())
    }

    /// For how long clients that have not logged in go on, in ms, although logins are switched on.
    fn grace_ms(&self) -> Option<Millis> {
        if self.is_secured() { None } else { self.policy_data.grace_ms(&self.hub) }
    }

    /// Why no user can log in now, if none can: this node does not know who is one.
    fn knows_no_users(&self) -> Option<ClientError> {
        match self.hub.read(Engine::is_ready) {
            true => self.isolation(),
            false => Some(not_ready()),
        }
    }

    /// Why users cannot log in now, if they cannot: this node has been alone for too long.
    fn isolation(&self) -> Option<ClientError> {
        let max = self.config.isolated_logins_ms?;
        let lasted = self.info.isolated_ms().filter(|lasted| *lasted >= max)?;
        let text = format!(
            "this node has had no link to any other for {} s, so it cannot know who was removed meanwhile, and lets \
             nobody log in without the cluster's key (--isolated-logins); log in at another node",
            lasted / 1_000
        );
        Some(ClientError::new(ErrorCode::NotReady, text))
    }

    /// Who a client is when it has connected.
    fn first_identity(&self) -> Identity {
        #[cfg(any(test, feature = "planted-defects"))]
        if let Some(assumed) = &*self.assumed.lock() {
            return assumed.clone();
        }
        Identity::Unknown
    }

    fn begin_to_stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        // Nobody goes on searching, so nobody needs to wait.
        self.searches.add_permits(self.config.connections_max);
        self.stopping.notify(usize::MAX);
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Acquire)
    }

    /// Keeps a connection open until the node has ended; closes it if there are too many.
    fn keep_to_the_end(&self, socket: TcpStream) {
        let mut leavers = self.leavers.lock();
        if leavers.len() < LEAVERS_MAX {
            leavers.push(socket);
        }
    }

    /// What the client port has counted since its start.
    fn counters(&self) -> [(&'static str, u64); 9] {
        let requests = self.counts.requests().iter().sum();
        let (received, sent) = self.counts.bytes();
        [
            ("client_requests", requests),
            ("client_connections_accepted", self.accepted.load(Ordering::Relaxed)),
            ("client_connections_refused", self.refused.load(Ordering::Relaxed)),
            ("client_connections_closed_for_memory", self.hub.client_memory().view().closed),
            ("client_bytes_waiting", self.hub.waiting_bytes() as u64),
            ("client_errors", self.counts.errors().map(|(_, count)| count).sum()),
            ("client_bytes_received", received),
            ("client_bytes_sent", sent),
            ("client_stalled", self.counts.stalled()),
        ]
    }
}

/// What the client port has counted since its start.
pub(crate) struct ClientCounts {
    /// Open connections.
    pub(crate) connections: usize,
    /// Connections that were accepted.
    pub(crate) accepted: u64,
    /// Connections that were refused.
    pub(crate) refused: u64,
    /// Requests, errors, bytes, times.
    pub(crate) all: Arc<Counts>,
    /// The busiest shard's share of the last minute.
    pub(crate) shard_busiest_ratio: f64,
}

/// The client port. Dropping it does not close it; see [`Server::stop`].
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Owns the listener; none once the port is closed.
    accepting: Mutex<Option<Task<()>>>,
}

impl Server {
    /// Opens the client port and serves clients. `address` is `host:port`; IPv4, IPv6
    /// (`[::1]:27586`) or a host's name; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ServerError`]; nothing is served then.
    pub async fn bind(
        address: &str,
        hub: Arc<Hub>,
        config: ServerConfig,
        info: Arc<dyn NodeInfo>,
    ) -> Result<Self, ServerError> {
        let failed = |error: io::Error| {
            let address = address.to_owned();
            match error.kind() {
                io::ErrorKind::AddrInUse => ServerError::InUse { address },
                _ => ServerError::Bind { address, error },
            }
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        Ok(Self::serve(listener, bound, hub, config, info))
    }

    /// Serves clients of a port that was opened before; `bound` is its address.
    #[must_use]
    pub(crate) fn serve(
        listener: TcpListener,
        bound: SocketAddr,
        hub: Arc<Hub>,
        config: ServerConfig,
        info: Arc<dyn NodeInfo>,
    ) -> Self {
        let logins = Logins::new(config.cluster_keys.clone(), config.connections_max);
        let handshakes = connections::tls::Handshakes::new(config.connections_max);
        let shared = Arc::new(Shared {
            hub,
            config,
            info,
            cluster: cluster::nodes::Cluster::default(),
            policy_data: PolicyData::default(),
            logins,
            heavy: Semaphore::new(HEAVY_JOBS),
            searches: Arc::new(Semaphore::new(SEARCHES_MAX)),
            standing: Arc::default(),
            shards: Arc::default(),
            downloads: Arc::default(),
            upload_turn: Arc::default(),
            stopping: Event::new(),
            is_stopping: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
            ended: Event::new(),
            leavers: Mutex::default(),
            refusals: AtomicUsize::new(0),
            handshakes,
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            refused_tally: connections::throttled_warning::Tally::default(),
            closed_tally: connections::throttled_warning::Tally::default(),
            counts: Arc::default(),
            #[cfg(any(test, feature = "planted-defects"))]
            assumed: Mutex::default(),
            #[cfg(any(test, feature = "planted-defects"))]
            mistake: Mutex::default(),
        });
        shared.policy_data.go_on(&shared.hub);
        let accepting =
            Mutex::new(Some(rt::spawn(connections::accept::accept(listener, Arc::clone(&shared)))));
        shared.hub.client_memory().set_max(shared.config.client_memory_max);
        let _detached = rt::spawn(connections::memory_pressure::relieve(Arc::clone(&shared)));
        let _detached = rt::spawn(cluster::nodes::follow(Arc::clone(&shared)));
        let _detached = rt::spawn(shards::keep_samples(Arc::clone(&shared)));
        let _detached = rt::spawn(access::present::shut_out(Arc::clone(&shared)));
        Self { address: bound, shared, accepting }
    }

    /// Where clients connect, with the port that was taken.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// For tests of what clients may do: from now on clients must have logged in, and those that connect have, as
    /// this. Those that are connected keep who they are.
    #[cfg(any(test, feature = "planted-defects"))]
    pub fn assume(&self, identity: Identity) {
        *self.shared.assumed.lock() = Some(identity);
    }

    /// For tests of tests: the node leaves a check of what clients may do out, for those that connect from now on.
    #[cfg(any(test, feature = "planted-defects"))]
    pub fn plant(&self, mistake: access::mistakes::Mistake) {
        *self.shared.mistake.lock() = Some(mistake);
    }

    /// A client in the same process, which has come from this address. It takes the place of no other.
    ///
    /// # Errors
    /// The node stops, has no memory for it, or too many clients must log in already.
    pub(crate) fn local_client(&self, address: SocketAddr) -> Result<LocalClient, ClientError> {
        LocalClient::open(Arc::clone(&self.shared), address)
    }

    /// What the port has counted, for metrics.
    pub(crate) fn counts(&self) -> ClientCounts {
        let shared = &self.shared;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ClientCounts {
            connections: shared.connections(),
            accepted: count(&shared.accepted),
            refused: count(&shared.refused),
            all: Arc::clone(&shared.counts),
            shard_busiest_ratio: shared.shards.busiest_ratio(),
        }
    }

    /// What the port knows about the rest of the node.
    pub(crate) fn info(&self) -> &dyn NodeInfo {
        &*self.shared.info
    }

    /// All that an operator should be warned of now.
    pub(crate) fn warnings(&self, now: Millis) -> Vec<Warning> {
        self.shared.warnings(now, 0)
    }

    /// How many requests there were for each virtual shard since the start.
    pub(crate) fn shard_uses(&self) -> Vec<u64> {
        let of = |shard| self.shared.shards.usage(shard).map_or(0, |used| used.reads + used.writes);
        (0..crate::model::shard::SHARD_COUNT).map(of).collect()
    }

    /// How many clients are connected.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections()
    }

    /// Ends at once: from now on no request is carried out, and nothing is sent. Connections are
    /// closed as soon as their tasks run.
    pub(crate) fn abandon(&self) {
        self.shared.is_abandoned.store(true, Ordering::Release);
        self.shared.begin_to_stop();
    }

    /// Closes the port, ends all streams, and gives clients a moment to read what is written.
    /// Returns when all connections have ended or that time is over. Clients that asked the node to
    /// leave keep their connection until [`Server::release_leavers`].
    pub async fn stop(&self, patience: Duration) {
        self.shared.begin_to_stop();
        let all_ended = async {
            loop {
                let ended = self.shared.ended.listen();
                if self.shared.connections() == 0 {
                    return;
                }
                ended.await;
            }
        };
        let _ = rt::timeout(patience, all_ended).await;
        let accepting = self.accepting.lock().take();
        if let Some(accepting) = accepting {
            accepting.cancel().await;
        }
    }

    /// Closes the connections of clients that asked the node to leave. They learn of its end in no
    /// other way, so this comes last, when its ports are free.
    pub(crate) fn release_leavers(&self) {
        self.shared.leavers.lock().clear();
    }
}

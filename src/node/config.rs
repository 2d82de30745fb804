//! What a node is started with. The command line and the configuration file fill it in.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use distkv_tls::Ca;

pub use distkv_durable::SyncPolicy;

pub use super::lifecycle::phase::StartPhase;
pub use super::scheduled::Schedule;
pub(crate) use super::scheduled::ScheduledConfig;
pub(crate) use super::security::{KeyConfig, KeyStore};
pub use crate::api::Token;
use crate::engine::delete::SAY_FOR_MS;
pub use crate::hub::client_memory::CLIENT_MEMORY;
pub use crate::model::host_port::CLIENT_PORT;
pub(crate) use crate::model::host_port::GOSSIP_PORT;
use crate::model::ids::NodeName;
use crate::model::value::Value;
pub(crate) use crate::server::config::OPEN_REQUESTS;
use crate::server::config::READY_WAIT_MS;
pub(crate) use crate::server::{IpNetwork, NetworkError};

/// The HTTP port unless told otherwise.
pub(crate) const HTTP_PORT: u16 = 27585;
/// The network's default name.
pub(crate) const NETWORK: &str = "distkv";

/// By default, how long a node that knows of peers looks for its network before it continues alone.
pub(crate) const PEER_WAIT: Duration = Duration::from_secs(10);
/// By default, how long a node without data that knows no peer waits for nodes that call it before
/// it founds a network: nodes of a network that it belonged to call again within a second.
pub(crate) const CALLED_WAIT: Duration = Duration::from_secs(2);

/// By default, how long requests of clients wait for a node to be ready.
pub(crate) const READY_WAIT: Duration = Duration::from_millis(READY_WAIT_MS);
/// By default, how long members that are down are remembered.
pub(crate) const FORGET_DOWN_AFTER: Duration = Duration::from_secs(600);
/// By default, how long deleted entries wait for a node that is away.
pub(crate) const PURGE_GRACE: Duration = Duration::from_millis(SAY_FOR_MS);

/// By default, the log continues in another file after this many bytes.
pub(crate) const ROTATE_BYTES: u64 = 64 << 20;
/// By default, the log continues in another file after this time.
pub(crate) const ROTATE_AFTER: Duration = Duration::from_secs(24 * 3600);
/// By default, a snapshot is made after this many bytes of log: a start reads that much in about a
/// second.
pub(crate) const SNAPSHOT_AFTER: u64 = 256 << 20;
/// By default, this many snapshots are kept: so a damaged one is no loss.
pub(crate) const KEEP_SNAPSHOTS: usize = 2;
/// By default, the state at any moment of this last time can be replayed.
pub(crate) const KEEP_FOR: Duration = Duration::from_secs(7 * 86_400);
/// But only while all files together take no more than this, by default.
pub(crate) const KEEP_BYTES: u64 = 1 << 30;

/// The settings of a node's start.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node's name, unique in its network.
    pub name: NodeName,
    /// The network's name; nodes of another one are refused.
    pub network: String,
    /// `host:port` for clients; port 0 takes a free one.
    pub client: String,
    /// `host:port` for peers, TCP and UDP; port 0 takes a free one.
    pub gossip: String,
    /// The host, or `host:port`, at which peers reach this node, if it differs from `gossip`. With
    /// a wildcard `gossip` and none here, the address of the route to the peer is taken.
    pub advertise: Option<String>,
    /// The host, or `host:port`, at which clients reach this node, if it differs from `client`: behind port
    /// forwarding, say. It is told as it is: clients look a name up, and nothing checks that it leads to this node.
    /// With none here, clients are told `client`, or with a wildcard there, the host at which peers reach this node.
    pub advertise_client: Option<String>,
    /// How it starts.
    pub start: Start,
    /// Addresses (`host:port`) of known peers, host names included.
    pub peers: Vec<String>,
    /// A file in which the known peers are kept across restarts.
    pub peer_file: Option<PathBuf>,
    /// How long a first node, or one with data, looks for the peers that it knows before it
    /// continues alone; zero: not at all, none: [`PEER_WAIT`].
    pub peer_wait: Option<Duration>,
    /// How long a first node that knows of no peer and has no data waits for nodes that call it before
    /// it founds a network; zero: not at all, none: [`CALLED_WAIT`].
    pub called_wait: Option<Duration>,
    /// Client writes are refused.
    pub read_only: bool,
    /// Bytes of entries from which on client writes that need more memory are refused.
    pub memory_max: Option<usize>,
    /// Bytes of memory that all clients together may cost.
    pub client_memory_max: usize,
    /// Most open requests of one client connection.
    pub open_requests_max: usize,
    /// Most client connections at once.
    pub connections_max: usize,
    /// How long requests of clients wait for this node to be ready before they are refused; zero: not
    /// at all.
    pub ready_wait: Duration,
    /// How long members that are down are shown, and remembered as what they were. They are
    /// called for longer than that: always.
    pub forget_down_after: Duration,
    /// For how long a node that is not in the Delete group, and is away, keeps deleted entries from
    /// being purged. Should be the same on all nodes: the coordinator's value counts.
    pub purge_grace: Duration,
    /// Where the node keeps its data, and how; none for one that keeps it in memory.
    pub data: Option<DataConfig>,
    /// The directory in which clients may have files written; none: they may not.
    pub client_files: Option<PathBuf>,
    /// Snapshots that the node makes by itself; none: it makes none but its data directory's.
    pub scheduled: Option<ScheduledConfig>,
    /// Whether `restore` is taken from other machines, too.
    pub remote_restore: bool,
    /// The cluster key; none: links and datagrams are neither sealed nor checked.
    pub key: Option<KeyConfig>,
    /// Without a key, ports may be opened where other machines reach them.
    pub insecure: bool,
    /// Clients are served although the data says that they must log in, which they cannot yet.
    pub ignore_auth: bool,
    /// The file in which logins, refusals and changes of who may do what are recorded; none: nowhere.
    pub audit: Option<PathBuf>,
    /// After how long without a link to any other node users cannot log in; none: they always can.
    pub isolated_logins: Option<Duration>,
    /// TLS at the client port; none: plain text.
    pub tls: Option<TlsConfig>,
    /// The port for metrics and health; none: there is none.
    pub http: Option<HttpConfig>,
    /// Where the start notes how far it has come.
    pub phase: StartPhase,
}

/// The HTTP port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpConfig {
    /// `host:port`; port 0 takes a free one.
    pub address: String,
    /// Hosts that requests may name, besides `localhost`, the address that they came in at, and the node's
    /// advertised hosts.
    pub names: Vec<String>,
    /// Lets programs change data by HTTP where clients need not log in; none: nobody does.
    pub write_token: Option<Token>,
}

/// How the client port uses TLS.
#[derive(Clone, Debug, Default)]
pub struct TlsConfig {
    /// The network's CA. The node issues its certificate from it, unless it has one of its own; certificates that
    /// it issued to users log these in.
    pub ca: Option<Arc<Ca>>,
    /// The operator's own certificate, with its chain, and its key: files in PEM.
    pub own: Option<(PathBuf, PathBuf)>,
    /// CAs of the operator's own, whose certificates log users in: a file in PEM.
    pub client_ca: Option<PathBuf>,
    /// Further names in a certificate that the node issues.
    pub names: Vec<String>,
    /// Whether clients on the node's own machine may use plain text.
    pub is_plain_at_home: bool,
    /// Other machines whose clients may.
    pub plain: Vec<IpNetwork>,
}

/// How a node keeps its data on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataConfig {
    /// The data directory. It is made if it is not there.
    pub dir: PathBuf,
    /// When changes are made safe.
    pub sync: SyncPolicy,
    /// The log continues in another file after this many bytes.
    pub rotate_bytes: u64,
    /// The log continues in another file after this time.
    pub rotate_after: Duration,
    /// A snapshot is made after this many bytes of log, and at least as many as the last one has.
    pub snapshot_after: u64,
    /// This many snapshots are kept, the newest, with everything that leads from the one before
    /// them to these; at least 1.
    pub keep_snapshots: usize,
    /// Older snapshots and logs are kept for this long,
    pub keep_for: Duration,
    /// while all files together take no more bytes than this.
    pub keep_bytes: u64,
    /// Truncate damaged files at the first corruption, and start with what is left.
    pub discard_damaged: bool,
}

impl DataConfig {
    /// The defaults for a directory.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            sync: SyncPolicy::default(),
            rotate_bytes: ROTATE_BYTES,
            rotate_after: ROTATE_AFTER,
            snapshot_after: SNAPSHOT_AFTER,
            keep_snapshots: KEEP_SNAPSHOTS,
            keep_for: KEEP_FOR,
            keep_bytes: KEEP_BYTES,
            discard_damaged: false,
        }
    }
}

/// How a node starts.
#[derive(Clone, Debug)]
pub enum Start {
    /// The first node of its network: looks for an existing network, then continues alone.
    Run {
        /// The root's value, set if the root has none.
        init: Option<Value>,
        /// A saved state (or change log) to read before serving.
        load: Option<PathBuf>,
    },
    /// Joins: serves nothing before it has caught up with one of its peers.
    Join,
    /// By what there is: with data it continues, and with known peers it joins them. Without either it founds
    /// a network if it is to, and does not start if not.
    ByWhatThereIs {
        /// Of a node without data: whether it founds a network. Where it knows peers, only once one of them has
        /// answered and all that answer wait for a network, too.
        found: bool,
        /// The root's value, set if the root has none.
        init: Option<Value>,
        /// A saved state (or change log) to read before it founds a network.
        load: Option<PathBuf>,
    },
}

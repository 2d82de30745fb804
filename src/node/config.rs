//! What a node is started with. The command line and the configuration file fill it in.

use std::path::PathBuf;
use std::time::Duration;

use crate::model::ids::NodeName;
use crate::model::value::Value;

/// Where clients connect unless told otherwise.
pub const CLIENT_PORT: u16 = 27586;
/// Where peers connect (TCP) and SWIM speaks (UDP) unless told otherwise.
pub const GOSSIP_PORT: u16 = 27587;
/// The network's name unless told otherwise.
pub const NETWORK: &str = "distkv";

/// How long members that are down are remembered unless told otherwise.
pub const FORGET_DOWN_AFTER: Duration = Duration::from_secs(600);

/// Everything that a node can be told at its start.
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
    /// The host, or `host:port`, at which peers reach this node, where that is not what
    /// `gossip` says. With a wildcard `gossip` and none here, the address of the route to the
    /// peer is taken.
    pub advertise: Option<String>,
    /// How it starts.
    pub start: Start,
    /// Addresses (`host:port`) of known peers, host names included.
    pub peers: Vec<String>,
    /// A file in which the known peers are kept across restarts.
    pub peer_file: Option<PathBuf>,
    /// Client writes are refused.
    pub read_only: bool,
    /// Bytes of entries above which client writes are refused.
    pub memory_max: Option<usize>,
    /// Most client connections at once.
    pub connections_max: usize,
    /// How long members that are down are shown, and remembered as what they were. They are
    /// called for longer than that: always.
    pub forget_down_after: Duration,
}

/// How a node starts.
#[derive(Clone, Debug)]
pub enum Start {
    /// The first node of its network: tries the known peers for a moment, then goes on alone.
    Run {
        /// The root's value, set if the root has none.
        init: Option<Value>,
        /// A saved state (or change log) to read before serving.
        load: Option<PathBuf>,
    },
    /// Joins: serves nothing before it has caught up with one of its peers.
    Join,
}

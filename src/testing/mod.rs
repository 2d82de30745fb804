//! Nodes and clusters in this process, on loopback ports that the system chooses, for users'
//! own tests. No call here sleeps for luck: all wait for a condition, with a deadline.
//!
//! ```
//! use distkv::model::{path::Path, value::Value};
//! use distkv::testing::{TestCluster, block_on};
//!
//! block_on(async {
//!     let cluster = TestCluster::start(2).await.unwrap();
//!     let path: Path = "lamp.kitchen".parse().unwrap();
//!     cluster.node(0).set(&path, &Value::new(&[0xc3]).unwrap()).unwrap();
//!     cluster.settled().await.unwrap();
//!     assert!(cluster.node(1).get(&path).is_some());
//!     cluster.shutdown().await;
//! });
//! ```

mod cluster;
mod ports;

use std::future::Future;
use std::process;
use std::time::Duration;

pub use cluster::{Differs, NodeState, TestCluster, Version};
pub use ports::free_addrs;

use crate::membership::NetworkName;
use crate::model::ids::NodeName;
use crate::node::config::{
    CLIENT_MEMORY, Config, FORGET_DOWN_AFTER, KeyConfig, NETWORK, OPEN_REQUESTS, READY_WAIT, Start,
    StartPhase,
};
use crate::rt;
use crate::secure::key::Key;
use crate::secure::key_file::KeyFile;
use crate::secure::key_ring::KeyRing;

/// How long a test waits for what should happen soon, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How often a condition is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Runs a future to its end on this thread.
pub fn block_on<F, T>(future: F) -> T
where
    F: Future<Output = T>,
{
    rt::block_on(future)
}

/// The settings of a node on loopback, with ports that the system chooses, in a network of this
/// process: a port that is freed may be taken by another program's node. A node without
/// `peers` is the first of its network; with some, it joins them.
#[must_use]
pub fn loopback(name: NodeName, peers: Vec<String>) -> Config {
    let (start, called_wait) = match peers.is_empty() {
        // There is no node that could call it.
        true => (Start::Run { init: None, load: None }, Some(Duration::ZERO)),
        false => (Start::Join, None),
    };
    Config {
        name,
        network: format!("{NETWORK}-test-{}", process::id()),
        client: "127.0.0.1:0".to_owned(),
        gossip: "127.0.0.1:0".to_owned(),
        advertise: None,
        advertise_client: None,
        start,
        peers,
        peer_file: None,
        peer_wait: None,
        called_wait,
        read_only: false,
        ignore_auth: false,
        audit: None,
        isolated_logins: None,
        phase: StartPhase::default(),
        key: None,
        insecure: false,
        tls: None,
        memory_max: None,
        client_memory_max: CLIENT_MEMORY,
        open_requests_max: OPEN_REQUESTS,
        connections_max: 1024,
        forget_down_after: FORGET_DOWN_AFTER,
        // Nodes of a test that are gone do not come back.
        purge_grace: Duration::from_secs(1),
        data: None,
        client_files: None,
        ready_wait: READY_WAIT,
        remote_restore: false,
        http: None,
        scheduled: None,
    }
}

/// The same settings with a cluster key of 32 such bytes, as all nodes of a secured network have it.
///
/// # Panics
/// The settings name no network that there can be.
#[must_use]
#[allow(clippy::expect_used, reason = "a test that names no network is wrong")]
pub fn secured(config: Config, secret: u8) -> Config {
    let network = NetworkName::new(&config.network).expect("a network's name");
    let ring = KeyRing::new(network, Key::new([secret; 32]));
    let file = KeyFile { ring, ca: None };
    let key = Some(KeyConfig { file, path: None, store: None, plaintext_peers: false });
    Config { key, ..config }
}

/// Waits until a condition holds; returns whether it came to hold within the time.
pub async fn wait_until(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = rt::now() + u64::try_from(patience.as_millis()).unwrap_or(u64::MAX / 2);
    loop {
        if condition() {
            return true;
        }
        if rt::now() >= deadline {
            return false;
        }
        rt::sleep(LOOK_INTERVAL).await;
    }
}

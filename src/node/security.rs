//! The cluster key of a running node: the ring that its links and datagrams use, and the file that it came
//! from.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::rt;
use crate::secure::key::{KeyId, Purpose};
use crate::secure::key_file::KeyFile;
use crate::secure::key_ring::KeyRing;
use crate::secure::link::{Ephemeral, Suites};
use crate::server::access::cluster_key::ClusterKeys;

/// The cluster key that a node is started with.
#[derive(Clone, Debug)]
pub struct KeyConfig {
    /// What the key file contains.
    pub file: KeyFile,
    /// The file itself, for whoever reads it again and hands it to
    /// [`Node::set_keys`](super::Node::set_keys).
    pub path: Option<PathBuf>,
    /// Links and datagrams of nodes without a key are taken, too, and nodes that take no sealed ones get
    /// plaintext: while a network moves to a key.
    pub plaintext_peers: bool,
}

/// The keys after a key file was handed in again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeysRead {
    /// The keys that are in the ring now.
    pub ids: Vec<KeyId>,
    /// The one that this node seals with.
    pub primary: KeyId,
    /// Whether the ring is another one than before.
    pub is_change: bool,
}

/// A key file is of another network than the running node.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is of network {file}, and this node of network {node}")]
pub struct OtherNetwork {
    /// The file's network.
    pub file: String,
    /// The node's.
    pub node: String,
}

/// What the parts of a secured node share.
pub(in crate::node) struct Keys {
    ring: Mutex<Arc<KeyRing>>,
    plaintext_peers: bool,
    suites: Suites,
    /// What clients prove to have.
    logins: ClusterKeys,
}

impl Keys {
    pub(in crate::node) fn new(config: KeyConfig) -> Self {
        Self {
            logins: ClusterKeys::new(for_logins(&config.file.ring)),
            ring: Mutex::new(Arc::new(config.file.ring)),
            plaintext_peers: config.plaintext_peers,
            suites: Suites::of_this_machine(),
        }
    }

    /// The present keys.
    pub(in crate::node) fn ring(&self) -> Arc<KeyRing> {
        Arc::clone(&self.ring.lock())
    }

    /// By which clients show that they have the cluster's key: those of the present ring, always.
    pub(in crate::node) fn logins(&self) -> ClusterKeys {
        self.logins.clone()
    }

    /// Whether nodes without a key are spoken to.
    pub(in crate::node) fn takes_plaintext(&self) -> bool {
        self.plaintext_peers
    }

    /// The ciphers of this machine.
    pub(in crate::node) fn suites(&self) -> Suites {
        self.suites
    }

    /// What a handshake needs, from the system.
    pub(in crate::node) fn ephemeral() -> std::io::Result<Ephemeral> {
        rt::random_bytes().map(Ephemeral::new)
    }

    /// Takes the keys of a file for all that is sealed and opened from now on. Links that stand go on: their
    /// keys are their own.
    ///
    /// # Errors
    /// [`OtherNetwork`]; the keys are as they were.
    pub(in crate::node) fn set(&self, file: KeyFile) -> Result<KeysRead, OtherNetwork> {
        let mut ring = self.ring.lock();
        if file.ring.network() != ring.network() {
            return Err(OtherNetwork {
                file: file.ring.network().as_str().to_owned(),
                node: ring.network().as_str().to_owned(),
            });
        }
        let is_change = **ring != file.ring;
        *ring = Arc::new(file.ring);
        self.logins.set(for_logins(&ring));
        Ok(told(&ring, is_change))
    }
}

fn for_logins(ring: &KeyRing) -> Vec<[u8; 32]> {
    ring.keys().iter().map(|key| *key.derive(Purpose::AdminLogin)).collect()
}

fn told(ring: &KeyRing, is_change: bool) -> KeysRead {
    let summary = ring.summary();
    KeysRead { ids: summary.ids, primary: summary.primary, is_change }
}

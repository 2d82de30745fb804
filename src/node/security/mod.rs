//! The cluster key of a running node: the ring that its links and datagrams use, and the file that it came
//! from.
//!
//! | file | what |
//! |---|---|
//! | this one | [`Keys`]: the ring, and what changes it: the file, an order, another node |
//! | `share` | the task that hands keys to other nodes, and takes theirs |

mod share;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use event_listener::Event;
use parking_lot::Mutex;

use crate::engine::LinkId;
use crate::model::ids::NodeName;
use crate::rt;
use crate::secure::hand_over::{HandOver, HandOverError, Report, trouble_text};
use crate::secure::key::{Key, KeyId, Purpose};
use crate::secure::key_file::KeyFile;
use crate::secure::key_ring::handed::{Handed, Merged};
use crate::secure::key_ring::{Applied, KeyRing, RingError, RingSummary};
use crate::secure::link::{Ephemeral, Suites};
use crate::secure::reports::Reports;
use crate::server::access::cluster_key::ClusterKeys;
pub(in crate::node) use share::share_keys;

/// The cluster key that a node is started with.
#[derive(Clone, Debug)]
pub struct KeyConfig {
    /// What the key file contains.
    pub file: KeyFile,
    /// The file itself, for whoever reads it again and hands it to
    /// [`Node::set_keys`](super::Node::set_keys).
    pub path: Option<PathBuf>,
    /// Keeps keys that come over the network. Without it a node has them until it ends, and the others are
    /// told so.
    pub store: Option<KeyStore>,
    /// Links and datagrams of nodes without a key are taken, too, and nodes that take no sealed ones get
    /// plaintext: while a network moves to a key.
    pub plaintext_peers: bool,
}

/// Puts what was ordered over the network, of the node's ring, into the key file, in which it may be already. Blocks. An
/// error is one line for people: what is wrong with which file.
#[derive(Clone)]
pub struct KeyStore(Arc<Store>);

type Store = dyn Fn(&KeyRing) -> Result<(), String> + Send + Sync;

impl KeyStore {
    /// By this function.
    pub(crate) fn new(
        store: impl Fn(&KeyRing) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(store))
    }
}

impl fmt::Debug for KeyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyStore")
    }
}

/// The keys after a key file was handed in again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KeysRead {
    /// The keys that are in the ring now.
    pub ids: Vec<KeyId>,
    /// The one that this node seals with.
    pub primary: KeyId,
    /// Whether the ring is another one than before.
    pub is_change: bool,
    /// Whether the file has another CA than the one that the node was started with, and uses until it ends.
    pub is_other_ca: bool,
    /// Whether the file has none of the keys that were known before: it was made anew, and nothing of the ring before is in
    /// force any more.
    pub is_replaced: bool,
    /// Whether the file lacked something that was ordered over the network and is put into it again.
    pub is_amended: bool,
}

/// A key file is of another network than the running node.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is of network {file}, and this node of network {node}")]
pub(crate) struct OtherNetwork {
    /// The file's network.
    pub file: String,
    /// The node's.
    pub node: String,
}

/// A change of the keys of all nodes.
pub(in crate::node) enum Order {
    Add(Key),
    Use(KeyId),
    Remove(KeyId),
    /// Of a key that only other nodes have.
    RemoveElsewhere(KeyId),
}

/// Why an order was not taken. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(in crate::node) enum OrderError {
    #[error("{0}")]
    Ring(#[from] RingError),
    /// After a restart, this node would not know of it.
    #[error("this node cannot keep it: {0}")]
    NotKept(String),
}

/// What the parts of a secured node share.
pub(in crate::node) struct Keys {
    name: NodeName,
    ring: Mutex<Arc<KeyRing>>,
    store: Option<KeyStore>,
    /// Why the keys that came over the network are not in the file.
    trouble: Mutex<Option<String>>,
    /// The file is to be compared with the ring.
    is_file_stale: AtomicBool,
    /// This node does not come back.
    is_gone: AtomicBool,
    plaintext_peers: bool,
    /// The certificate of the CA that the node was started with.
    ca: Option<Vec<u8>>,
    suites: Suites,
    /// What clients prove to have.
    logins: ClusterKeys,
    /// What peers have handed over and is not taken yet, the last of each link, and the key that the link is sealed with.
    heard: Mutex<BTreeMap<LinkId, (KeyId, Handed)>>,
    reports: Mutex<Reports>,
    /// Fires when there is something to take, or to tell.
    changed: Event,
}

impl Keys {
    pub(in crate::node) fn new(name: NodeName, config: KeyConfig) -> Self {
        Self {
            reports: Mutex::new(Reports::new(name.clone())),
            name,
            logins: ClusterKeys::new(for_logins(&config.file.ring)),
            ca: config.file.ca.map(|ca| ca.certificate),
            ring: Mutex::new(Arc::new(config.file.ring)),
            store: config.store,
            trouble: Mutex::default(),
            is_file_stale: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            plaintext_peers: config.plaintext_peers,
            suites: Suites::of_this_machine(),
            heard: Mutex::default(),
            changed: Event::new(),
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

    /// Takes the keys of a file for all that is sealed and opened from now on. What was ordered over the network
    /// stays in force, also where the file does not know of it: it may be an old copy. A file with none of the keys that
    /// are known is no copy; it replaces them all, because those before may be a thief's.
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
        let is_other_ca = file.ca.map(|ca| ca.certificate) != self.ca;
        let of_file = file.ring;
        let mut after = of_file.clone();
        let is_replaced = !of_file.is_related_to(&ring);
        if !is_replaced && let Err(error) = after.keep(&ring) {
            tracing::warn!("the key file and the keys of the network do not fit together: {error}");
        }
        let (is_change, is_amended) = (**ring != after, of_file != after);
        self.replace(&mut ring, after);
        self.is_file_stale.store(true, Ordering::Release);
        let RingSummary { ids, primary } = ring.summary();
        Ok(KeysRead { ids, primary, is_change, is_other_ca, is_replaced, is_amended })
    }

    fn replace(&self, ring: &mut Arc<KeyRing>, after: KeyRing) {
        if **ring != after {
            *ring = Arc::new(after);
            self.logins.set(for_logins(ring));
        }
        self.changed.notify(usize::MAX);
    }

    /// Changes the keys of this node, and then of all others. Blocks: first it is in the key file.
    ///
    /// # Errors
    /// [`OrderError`]; nothing was changed.
    pub(in crate::node) fn order(&self, order: Order) -> Result<Applied, OrderError> {
        let mut after = KeyRing::clone(&self.ring());
        let applied = match order {
            Order::Add(key) => after.order_add(key)?,
            Order::Use(id) => after.order_use(id)?,
            Order::Remove(id) => after.order_remove(id)?,
            Order::RemoveElsewhere(id) => after.order_remove_elsewhere(id)?,
        };
        self.keep(&after).map_err(OrderError::NotKept)?;
        let mut ring = self.ring.lock();
        if !ring.is_related_to(&after) {
            // The file was replaced meanwhile, and read.
            return Err(OrderError::Ring(RingError::Replaced));
        }
        self.merge(&mut ring, &after.handed())?;
        Ok(applied)
    }

    /// Puts what was ordered, of this ring, into the file. Blocks.
    fn keep(&self, ring: &KeyRing) -> Result<(), String> {
        let Some(KeyStore(store)) = &self.store else {
            return Err(String::from("it was started without a key file that could be written"));
        };
        store(ring)
    }

    /// Takes what was ordered over the network elsewhere and has come over a link that is sealed with this key. Nothing, if
    /// the key is none of this node's any more: what a thief says counts no longer.
    fn take(&self, by: KeyId, handed: &Handed) -> Result<Merged, RingError> {
        let mut ring = self.ring.lock();
        match ring.lookup(by) {
            Some(_) => self.merge(&mut ring, handed),
            None => Ok(Merged::default()),
        }
    }

    fn merge(&self, ring: &mut Arc<KeyRing>, handed: &Handed) -> Result<Merged, RingError> {
        let mut after = KeyRing::clone(ring);
        let merged = after.merge(handed)?;
        if **ring != after {
            self.replace(ring, after);
        }
        Ok(merged)
    }

    /// A peer has said something about keys, over a link that is sealed with this one.
    ///
    /// # Errors
    /// [`HandOverError`]: the link should be closed.
    pub(in crate::node) fn hear(
        &self,
        link: LinkId,
        by: KeyId,
        body: &[u8],
    ) -> Result<(), HandOverError> {
        let HandOver { handed, reports } = HandOver::decode(body, self.ring().network())?;
        // One for each link, and those are bounded.
        self.heard.lock().insert(link, (by, handed));
        let mut known = self.reports.lock();
        reports.into_iter().for_each(|report| known.take(report));
        self.changed.notify(usize::MAX);
        Ok(())
    }

    /// What nodes say of their keys, this one included.
    pub(in crate::node) fn reports(&self) -> Vec<Report> {
        self.refresh_report();
        self.reports.lock().all()
    }

    /// What this node says of itself is so at present.
    fn refresh_report(&self) {
        let (ring, trouble) = (self.ring(), self.trouble.lock().clone());
        let report = Report {
            name: self.name.clone(),
            at: rt::wall_clock_ms(),
            ring: ring.summary(),
            trouble: trouble.as_deref().map(trouble_text),
            is_gone: self.is_gone.load(Ordering::Acquire),
        };
        self.reports.lock().say(report);
    }

    /// A member does not come back: it does not count any more. It does as soon as it says something again.
    pub(in crate::node) fn forget(&self, name: &NodeName) {
        self.reports.lock().forget(name, rt::wall_clock_ms(), self.ring().summary());
        self.changed.notify(usize::MAX);
    }

    /// This node does not come back.
    pub(in crate::node) fn leave_for_good(&self) {
        self.is_gone.store(true, Ordering::Release);
        self.changed.notify(usize::MAX);
    }
}

fn for_logins(ring: &KeyRing) -> Vec<[u8; 32]> {
    ring.keys().iter().map(|key| *key.derive(Purpose::AdminLogin)).collect()
}

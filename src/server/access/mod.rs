//! Who a client is, and what it may do: looked up again whenever users or access lists change.
//!
//! | file | what |
//! |---|---|
//! | this one | [`Identity`]: how a client has shown who it is; [`Access`]: what follows from that at present;
//! [`Users`]: the data that says so, compiled |
//! | [`authorise`] | the hook that every request passes |
//! | [`methods`] | by which methods clients may log in at this node |
//! | [`cluster_key`] | the key that makes a client an admin, and a node secured |
//! | `guest` | what a connection keeps for its client's login |
//! | [`logins`] | what all logins share |
//! | [`strangers`] | bounds of connections that have not logged in |
//! | `present` | who is connected, to close those who may do nothing any more |
//!
//! A session makes its [`Access`] of the present policies before each batch of requests and each turn of its
//! streams. The engine carries out nothing that was checked against older ones
//! ([`crate::engine::BatchTerms::checked`]), so a change of a user or a list counts from the moment at which
//! it is in the tree.

pub mod authorise;
pub mod cluster_key;
pub(in crate::server) mod guest;
pub mod logins;
pub mod methods;
pub(in crate::server) mod present;
pub mod strangers;

use std::sync::Arc;

use distkv_access::acl::{Letters, Rights};
use distkv_access::users::{Directory, Role};
use parking_lot::Mutex;

use crate::engine::{Engine, Policies};
use crate::hub::Hub;
use crate::model::path::{Element, Path};

/// How a client has shown who it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Identity {
    /// Not at all.
    #[default]
    Unknown,
    /// It has the cluster's key.
    KeyHolder,
    /// It has logged in as a user.
    User {
        /// By this method.
        method: Arc<str>,
        /// The user's name.
        name: Arc<str>,
    },
}

/// What a client may do.
#[derive(Clone, Debug)]
pub struct Access {
    /// With the node as a whole; none: it must log in first.
    pub role: Option<Role>,
    /// With the data.
    pub rights: Arc<Rights>,
    /// The policies that say so.
    pub policies: Policies,
}

/// Policies that never are: an access of these is looked up again before it is used.
const NEVER: Policies = Policies { access: u64::MAX, types: u64::MAX };

impl Access {
    /// Of a client of whom nothing is known yet.
    #[must_use]
    pub fn unknown() -> Self {
        Self::nothing(NEVER)
    }

    /// Whether the client may see the entry at a whole path (canonical bytes): pass through all that lead
    /// there, and read it.
    #[must_use]
    pub fn may_read(&self, path: &[u8]) -> bool {
        let is_open = || self.rights.way(path, |_| true).is_ok();
        self.rights.is_everything() || (is_open() && self.rights.letters(path).has(Letters::READ))
    }

    /// Of a client that need not log in, or of an admin.
    #[must_use]
    pub fn everything(policies: Policies) -> Self {
        Self { role: Some(Role::Admin), rights: Arc::new(Rights::everything()), policies }
    }

    /// Of a client that must log in first.
    #[must_use]
    pub fn nothing(policies: Policies) -> Self {
        Self { role: None, rights: Arc::new(Rights::nothing()), policies }
    }

    /// Of a user.
    #[must_use]
    fn of_user(directory: &Directory, method: &str, name: &str, policies: Policies) -> Self {
        match directory.user(method, name) {
            Some(user) => {
                Self { role: Some(user.role), rights: directory.rights_of(user), policies }
            }
            // Removed, or revoked.
            None => Self::nothing(policies),
        }
    }

    /// Whether the client must log in before anything else.
    #[must_use]
    pub fn is_stranger(&self) -> bool {
        self.role.is_none()
    }
}

/// The users and access lists of the tree, compiled on demand and kept until they change.
#[derive(Default)]
pub struct Users {
    kept: Mutex<Option<(Policies, Arc<Directory>)>>,
}

impl Users {
    /// The present ones, with the policies that they are of. Walks the users and lists if they are others than
    /// the last time.
    #[must_use]
    pub fn now(&self, hub: &Hub) -> (Policies, Arc<Directory>) {
        let mut kept = self.kept.lock();
        let policies = hub.policies.now();
        if let Some((of, directory)) = &*kept
            && *of == policies
        {
            return (policies, Arc::clone(directory));
        }
        // The tree and its number are of one moment; the walk is outside of the guard.
        let look = |engine: &Engine| (engine.policies(), engine.tree().clone());
        let (policies, tree) = hub.read(look);
        let tops = ["auth", "acl"].map(|family| Path::system_root().push(Element::Str(family)));
        let entries = tops.iter().flatten().flat_map(|top| tree.subtree(top));
        let living = entries.filter_map(|(path, entry)| {
            entry.value().map(|value| (Path::clone(path), value, entry.newest()))
        });
        let directory = Arc::new(Directory::build(policies.access, living));
        *kept = Some((policies, Arc::clone(&directory)));
        (policies, directory)
    }

    /// What a client may do at present. `is_secured`: clients must log in whatever the data says.
    #[must_use]
    pub fn access_of(&self, hub: &Hub, identity: &Identity, is_secured: bool) -> Access {
        // Before anything else is looked at: what comes later is then looked at again.
        let policies = hub.policies.now();
        let must_log_in = is_secured || hub.closing.is_closed();
        match identity {
            Identity::KeyHolder => Access::everything(policies),
            _ if !must_log_in => Access::everything(policies),
            Identity::Unknown => Access::nothing(policies),
            Identity::User { method, name } => {
                let (policies, directory) = self.now(hub);
                if methods::serves(directory.login(), is_secured, method) {
                    Access::of_user(&directory, method, name, policies)
                } else {
                    Access::nothing(policies)
                }
            }
        }
    }
}

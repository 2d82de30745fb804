//! Who a client is, and what it may do: looked up again whenever users or access lists change.
//!
//! | file | what |
//! |---|---|
//! | this one | [`Identity`]: how a client has shown who it is; [`Access`]: what follows from that at present |
//! | [`authorise`] | the hook that every request passes |
//!
//! A session makes its [`Access`] of the present policies before each batch of requests and each turn of its
//! streams. The engine carries out nothing that was checked against older ones
//! ([`crate::engine::BatchTerms::checked`]), so a change of a user or a list counts from the moment at which
//! it is in the tree.

pub mod authorise;

use std::sync::Arc;

use distkv_access::acl::{Letters, Rights};

use crate::engine::Policies;

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

/// What a client may do with the node as a whole. Each may do what those before it may.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// It must log in first.
    Stranger,
    /// It may use data, as its access list allows.
    User,
    /// It may see how the node and the network are.
    Operator,
    /// It may do everything.
    Admin,
}

/// What a client may do.
#[derive(Clone, Debug)]
pub struct Access {
    /// With the node as a whole.
    pub role: Role,
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
        Self { role: Role::Admin, rights: Arc::new(Rights::everything()), policies }
    }

    /// Of a client that must log in first.
    #[must_use]
    pub fn nothing(policies: Policies) -> Self {
        Self { role: Role::Stranger, rights: Arc::new(Rights::nothing()), policies }
    }
}

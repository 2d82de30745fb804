//! Who a client is, and what it may do: looked up again whenever users or access lists change.
//!
//! | file | what |
//! |---|---|
//! | this one | [`Identity`]: how a client has shown who it is; [`Access`]: what follows from that at present;
//! [`PolicyData`]: the data that says so, compiled |
//! | [`types`] | which values fit where |
//! | [`authorise`] | the hook that every request passes |
//! | [`denial`] | what a refusal says |
//! | [`sight`] | what a stream may show, entry by entry |
//! | [`methods`] | by which methods clients may log in at this node |
//! | `grace` | for how long clients that have not logged in go on
//! | [`audit`] | who did what, for the audit log |
//! | [`cluster_key`] | the key that makes a client an admin, and a node secured |
//! | `guest` | what a connection keeps for its client's login |
//! | [`logins`] | what all logins share |
//! | [`mistakes`] | what tests leave out, to see that it is missed |
//! | [`strangers`] | bounds of connections that have not logged in |
//! | `throttle` | how guesses are slowed down, and where logins wait for each other |
//! | `present` | who is connected, to close those who may do nothing any more |
//!
//! A session makes its [`Access`] of the present policies before each batch of requests and each turn of its
//! streams. The engine carries out nothing that was checked against older ones
//! ([`crate::engine::BatchTerms::checked`]), so a change of a user or a list counts from the moment at which
//! it is in the tree.

pub(crate) mod audit;
pub(crate) mod authorise;
pub mod cluster_key;
pub(in crate::server) mod denial;
mod grace;
pub(in crate::server) mod guest;
pub(crate) mod logins;
pub(crate) mod methods;
pub mod mistakes;
pub(in crate::server) mod present;
pub(crate) mod sight;
pub mod strangers;
pub(in crate::server) mod throttle;
pub(crate) mod types;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use distkv_access::acl::{Letters, Rights};
use distkv_access::users::{Directory, Disconnect, Removal, Role, User};
use parking_lot::Mutex;

use crate::engine::{Engine, Policies};
use crate::hub::Hub;
use crate::model::entry::Entry;
use crate::model::ids::{Event, Millis};
use crate::model::path::{Element, Path};
use crate::rt;
use crate::server::Shared;
use crate::tree::Tree;
use denial::Whose;
use grace::{Clocks, Grace};
use types::TypeChecks;

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
        /// After which removal that user was made again. Who is made once more is another one: a node may hear of
        /// a removal and of a new user of that name at the same moment.
        after: Option<Removal>,
        /// Which end of that user's connections it has logged in after. With the next one, it may do nothing any more.
        disconnect: Option<Disconnect>,
    },
}

impl Identity {
    /// Of a client that has logged in as this user.
    #[must_use]
    pub(crate) fn of(user: &User) -> Self {
        let (method, name) = ((&*user.method).into(), (&*user.ident).into());
        Self::User { method, name, after: user.after, disconnect: user.disconnect }
    }

    /// The user that the client has logged in as; none: it has not, there is no such user any more, or that user's
    /// connections were ended since.
    #[must_use]
    pub(crate) fn user<'d>(&self, directory: &'d Directory) -> Option<&'d User> {
        let Self::User { disconnect, .. } = self else { return None };
        self.same_user(directory).filter(|user| user.disconnect == *disconnect)
    }

    /// Whether there still is the user that the client has logged in as, and somebody has ended its connections since.
    #[must_use]
    pub(crate) fn was_disconnected(&self, directory: &Directory) -> bool {
        self.same_user(directory).is_some() && self.user(directory).is_none()
    }

    fn same_user<'d>(&self, directory: &'d Directory) -> Option<&'d User> {
        let Self::User { method, name, after, .. } = self else { return None };
        directory.user(method, name).filter(|user| user.after == *after)
    }

    /// The user's name; none of others.
    #[must_use]
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::User { name, .. } => Some(name),
            Self::Unknown | Self::KeyHolder => None,
        }
    }

    /// Whether it is a user of this name.
    #[must_use]
    pub(crate) fn is_named(&self, by: &str, ident: &str) -> bool {
        matches!(self, Self::User { method, name, .. } if **method == *by && **name == *ident)
    }
}

/// What a client may do.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// With the node as a whole; none: it must log in first.
    pub(crate) role: Option<Role>,
    /// With the data.
    pub(crate) rights: Arc<Rights>,
    /// Of which user that is; none of others.
    pub(crate) whose: Option<Arc<Whose>>,
    /// The policies that say so.
    pub(crate) policies: Policies,
    /// What its values are checked by; none if there are no types.
    pub(crate) types: Option<Arc<TypeChecks>>,
    /// When it must be looked up again, whatever the policies are: because logins are needed from then on.
    pub(crate) until: Option<Millis>,
    /// What a test has planted.
    #[cfg(any(test, feature = "planted-defects"))]
    pub(crate) mistake: Option<mistakes::Mistake>,
}

/// Where users and access lists are, below nil.
const USERS: [&str; 2] = ["auth", "acl"];

/// How the canonical bytes of paths below nil begin.
const NIL: &[u8] = &[0xc0];

/// Policies that never are: an access of these is looked up again before it is used.
const NEVER: Policies = Policies { access: u64::MAX, types: u64::MAX };

impl Access {
    /// Of a client of whom nothing is known yet.
    #[must_use]
    pub(crate) fn unknown() -> Self {
        Self::nothing(NEVER)
    }

    /// Whether the client may see the entry at a whole path (canonical bytes): pass through all that lead
    /// there, and read it.
    #[must_use]
    pub(crate) fn may_read(&self, path: &[u8]) -> bool {
        let is_open = || self.rights.way(path, |_| true).is_ok();
        self.rights.is_everything() || (is_open() && self.rights.letters(path).has(Letters::READ))
    }

    /// Of a client that need not log in, or of an admin.
    #[must_use]
    pub(crate) fn everything(policies: Policies) -> Self {
        Self {
            role: Some(Role::Admin),
            rights: Arc::new(Rights::everything()),
            ..Self::nothing(policies)
        }
    }

    /// Of a client that must log in first.
    #[must_use]
    pub(crate) fn nothing(policies: Policies) -> Self {
        let rights = Arc::new(Rights::nothing());
        Self {
            role: None,
            rights,
            whose: None,
            policies,
            types: None,
            until: None,
            #[cfg(any(test, feature = "planted-defects"))]
            mistake: None,
        }
    }

    /// Of a user.
    #[must_use]
    fn of_user(directory: &Directory, user: &User, policies: Policies) -> Self {
        let whose = Some(Arc::new(Whose::of(directory, user)));
        let (role, rights) = (Some(user.role), directory.rights_of(user));
        Self { role, rights, whose, ..Self::nothing(policies) }
    }

    /// Whether any value may be set at a whole path (canonical bytes), and told: there are neither types nor an
    /// access list for that, and it is not one of the paths below nil, of which some have secrets, or a meaning.
    #[must_use]
    pub(crate) fn is_unchecked(&self, path: &[u8]) -> bool {
        self.types.is_none() && self.rights.is_everything() && !path.starts_with(NIL)
    }

    /// Whether there is nothing that the client may not do.
    #[inline]
    #[must_use]
    pub(crate) fn may_everything(&self) -> bool {
        self.role == Some(Role::Admin) && self.rights.is_everything()
    }

    /// Whether the client must log in before anything else.
    #[must_use]
    pub(crate) fn is_stranger(&self) -> bool {
        self.role.is_none()
    }
}

/// What the tree says of users, access lists and types, compiled on demand and kept until it changes.
#[derive(Default)]
pub(crate) struct PolicyData {
    kept: Mutex<Option<Compiled>>,
    grace: Grace,
}

/// All of it, of one moment.
#[derive(Clone)]
struct Compiled {
    policies: Policies,
    directory: Arc<Directory>,
    types: Arc<TypeChecks>,
}

impl PolicyData {
    /// The present one. Walks what has changed since the last time.
    fn now(&self, hub: &Hub) -> Compiled {
        let mut kept = self.kept.lock();
        let policies = hub.policies.now();
        if let Some(kept) = kept.as_ref().filter(|kept| kept.policies == policies) {
            return kept.clone();
        }
        // The tree and its number are of one moment; the walks are outside of the guard.
        let look = |engine: &Engine| (engine.policies(), engine.tree().clone());
        let (policies, tree) = hub.read(look);
        let before = kept.take();
        let of_before = |same: fn(&Policies) -> u64| {
            before.as_ref().filter(|before| same(&before.policies) == same(&policies))
        };
        let directory = match of_before(|policies| policies.access) {
            Some(before) => Arc::clone(&before.directory),
            None => {
                let built = Directory::build(policies.access, below(&tree, USERS));
                let known = before.as_ref().map(|before| &before.directory);
                Arc::new(match known {
                    Some(known) => built.after(known),
                    None => built,
                })
            }
        };
        let types = match of_before(|policies| policies.types) {
            Some(before) => Arc::clone(&before.types),
            None => {
                let entries = below(&tree, ["type", "match"]).map(|(path, value, _)| (path, value));
                let before = before.as_ref().map(|before| &*before.types);
                Arc::new(TypeChecks::build(entries, before))
            }
        };
        let compiled = Compiled { policies, directory, types };
        *kept = Some(compiled.clone());
        compiled
    }

    /// The users and access lists at present.
    #[must_use]
    pub(crate) fn directory(&self, hub: &Hub) -> Arc<Directory> {
        self.now(hub).directory
    }

    /// For how long clients that have not logged in go on, in ms, although the data says that they must log in.
    #[must_use]
    pub(crate) fn grace_ms(&self, hub: &Hub) -> Option<Millis> {
        if !hub.closing.is_closed() {
            return None;
        }
        self.grace_left(&self.directory(hub), rt::wall_clock_ms())
    }

    fn grace_left(&self, directory: &Directory, wall_ms: u64) -> Option<Millis> {
        let end_ms = directory.grace_end()?;
        let at = Clocks { wall_ms, now: rt::now() };
        self.grace.left(end_ms, directory.grace_left(wall_ms), at)
    }

    /// See [`Grace::settle`].
    pub(in crate::server) fn settle_grace(&self, shared: &Shared) -> Option<Duration> {
        self.grace.settle(shared, &self.directory(&shared.hub))
    }

    /// The node goes on with its data of before. What was over by the last time that its log tells of is over, also if
    /// the clock says otherwise now.
    pub(crate) fn go_on(&self, hub: &Hub) {
        let last_ms = hub.log().map_or(0, |log| log.continues_from_ms());
        if last_ms > 0 {
            self.grace_left(&self.directory(hub), last_ms);
        }
    }

    /// What a client may do at present. `is_secured`: clients must log in whatever the data says.
    #[must_use]
    pub(crate) fn access_of(&self, hub: &Hub, identity: &Identity, is_secured: bool) -> Access {
        let Compiled { policies, directory, types } = self.now(hub);
        let is_closed = hub.closing.is_closed();
        let may_be = is_closed && !is_secured;
        let grace = if may_be { self.grace_left(&directory, rt::wall_clock_ms()) } else { None };
        let must_log_in = is_secured || (is_closed && grace.is_none());
        let access = match identity {
            Identity::KeyHolder => Access::everything(policies),
            _ if !must_log_in => Access::everything(policies),
            Identity::Unknown => Access::nothing(policies),
            Identity::User { method, .. } => {
                let is_served = methods::serves(directory.login(), is_secured, method);
                match identity.user(&directory).filter(|_| is_served) {
                    Some(user) => Access::of_user(&directory, user, policies),
                    None => Access::nothing(policies),
                }
            }
        };
        let until = grace.map(|left| rt::now().saturating_add(left));
        Access { types: Some(types).filter(|types| !types.is_empty()), until, ..access }
    }
}

/// The living entries below some families, with the events that made them.
fn below<'t>(
    tree: &'t Tree,
    families: [&'static str; 2],
) -> impl Iterator<Item = (Path, &'t [u8], Event)> {
    entries_below(tree, families).filter_map(|(path, entry)| {
        entry.value().map(|value| (Path::clone(path), value, entry.newest()))
    })
}

/// The entries below some families, deleted ones among them.
fn entries_below<'t>(
    tree: &'t Tree,
    families: [&'static str; 2],
) -> impl Iterator<Item = (&'t Path, &'t Entry)> {
    let tops = families.map(|family| Path::system_root().push(Element::Str(family)));
    tops.into_iter().flatten().flat_map(|top| tree.subtree(&top))
}

/// The users and access lists of a tree once a file was taken in, of which what was changed later counts.
pub(in crate::server) fn directory_with<'t>(here: &'t Tree, file: &'t Tree) -> Directory {
    let mut entries: BTreeMap<&Path, &Entry> = BTreeMap::new();
    for (path, entry) in [here, file].into_iter().flat_map(|tree| entries_below(tree, USERS)) {
        let present = entries.entry(path).or_insert(entry);
        if present.tock() < entry.tock() {
            *present = entry;
        }
    }
    let valued = entries
        .into_iter()
        .filter_map(|(path, entry)| Some((path.clone(), entry.value()?, entry.newest())));
    Directory::build(0, valued)
}

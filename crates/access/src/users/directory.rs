//! All users and access lists of the tree, compiled: looked up by every request, replaced when `:n.auth` or
//! `:n.acl` change.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use distkv_model::ids::Event;
use distkv_model::meta::{Login, grace_end, login};
use distkv_model::path::Path;

use super::place::{ALL_DATA, Place, read_acl_name};
use super::record::{Disconnect, Record, Removal, Removals};
use super::roles::Role;
use crate::acl::{Acl, Rights};
use crate::secret::Secret;

/// Most users; further ones do not exist.
const USERS_MAX: usize = 65_536;
/// Most access lists; further ones do not exist, so their users may do nothing.
const LISTS_MAX: usize = 1_024;
/// Most warnings that are kept.
const WARNINGS_MAX: usize = 64;

/// Method and name.
type Name = (Box<str>, Box<str>);

/// A user, as of one moment.
#[derive(Clone, Debug)]
pub struct User {
    /// The method by which the user logs in.
    pub method: Box<str>,
    /// The user's name.
    pub ident: Box<str>,
    /// The role in force: an admin that has an access list is a user.
    pub role: Role,
    /// What the user has to prove.
    pub secret: Secret,
    /// The event that made the record, to which remembered logins are bound.
    pub event: Event,
    /// After which removal the user was made again; none: it was never removed. With another one, it is another user of
    /// that name.
    pub after: Option<Removal>,
    /// Under which end of the user's connections clients log in now; those of before may do nothing any more.
    pub disconnect: Option<Disconnect>,
    /// The name of the access list; none: there is none, or it cannot be read.
    pub acl: Option<Box<str>>,
}

/// What operators should know. The text is one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Warning {
    /// A user's record cannot be read: the user cannot log in.
    Record(Box<str>, Box<str>),
    /// A list does not say what holds where no pattern matches. In the original, that was everything.
    NoDefault(Box<str>),
    /// A list has too many patterns and allows nothing.
    TooManyPatterns(Box<str>),
    /// A user's list does not exist, so the user may do nothing.
    NoList(Box<str>, Box<str>),
    /// A user was removed, and there is a record of somebody who did not know of it: the user cannot log in.
    Removed(Box<str>, Box<str>),
    /// There are more users than are looked at.
    TooManyUsers,
    /// There are more lists than are looked at.
    TooManyLists,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(method, ident) => {
                write!(f, "the record of user {ident:?} (method {method:?}) cannot be read")
            }
            Self::NoDefault(name) => write!(
                f,
                "access list {name:?} has no pattern '#'. Where none of its patterns matches, nothing is \
                 allowed; the original allowed everything there"
            ),
            Self::TooManyPatterns(name) => {
                write!(f, "access list {name:?} has too many patterns and allows nothing")
            }
            Self::NoList(name, ident) => {
                write!(f, "there is no access list {name:?}, so user {ident:?} may do nothing")
            }
            Self::Removed(method, ident) => write!(
                f,
                "user {ident:?} (method {method:?}) was removed, and somebody who did not know of it, or a node of an older version, changed the \
                 user or made it again: nobody logs in so. Make the user anew (`distkv-node user add`), or remove it again \
                 (`distkv-node user remove`), either with `--method {method}`"
            ),
            Self::TooManyUsers => write!(f, "there are more than {USERS_MAX} users"),
            Self::TooManyLists => write!(f, "there are more than {LISTS_MAX} access lists"),
        }
    }
}

/// Longest time for which clients may go on without a login after logins were switched on, in ms.
pub const GRACE_MS_MAX: u64 = 604_800_000;

/// All users and lists.
#[derive(Debug)]
pub struct Directory {
    version: u64,
    login: Option<Login>,
    /// In ms since 1970.
    grace_end: Option<u64>,
    users: BTreeMap<Name, User>,
    lists: BTreeMap<Box<str>, Arc<Rights>>,
    everything: Arc<Rights>,
    all_data: Arc<Rights>,
    nothing: Arc<Rights>,
    warnings: Vec<Warning>,
}

impl Default for Directory {
    /// Of an empty tree.
    fn default() -> Self {
        Self::build(0, std::iter::empty())
    }
}

impl Directory {
    /// Compiles the entries below `:n.auth` and `:n.acl`, without deleted ones: whole path, value, and the
    /// event that made it, in any order. Other entries are passed over. Sessions compare `version` to see
    /// whether what they know is of this directory.
    #[must_use]
    pub fn build<'v>(
        version: u64,
        entries: impl IntoIterator<Item = (Path, &'v [u8], Event)>,
    ) -> Self {
        let mut gathered = Gathered::default();
        for (path, value, event) in entries {
            gathered.add(&path, value, event);
        }
        gathered.finish(version)
    }

    /// Has what is as it was from the directory before this one, so that whoever knows it sees that at once.
    #[must_use]
    pub fn after(mut self, before: &Self) -> Self {
        for (name, rights) in &mut self.lists {
            if let Some(known) = before.lists.get(name).filter(|known| known.are_those_of(rights)) {
                *rights = Arc::clone(known);
            }
        }
        // These are always the same.
        self.everything = Arc::clone(&before.everything);
        self.all_data = Arc::clone(&before.all_data);
        self.nothing = Arc::clone(&before.nothing);
        self
    }

    /// Which one this is.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// How clients must log in, as the data says; none: they need not.
    #[must_use]
    pub fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }

    /// For how long clients that have not logged in go on, in ms, although they must log in: none if it is over, or
    /// was not granted. `now`: ms since 1970. What is longer than [`GRACE_MS_MAX`] is taken for a mistake, and is none.
    #[must_use]
    pub fn grace_left(&self, now: u64) -> Option<u64> {
        self.grace_end()?.checked_sub(now).filter(|left| (1..=GRACE_MS_MAX).contains(left))
    }

    /// When that ends, or has ended, in ms since 1970.
    #[must_use]
    pub fn grace_end(&self) -> Option<u64> {
        self.grace_end.filter(|_| matches!(self.login, Some(Login::Method(_))))
    }

    /// A user; none: it does not exist, or was revoked.
    #[must_use]
    pub fn user(&self, method: &str, ident: &str) -> Option<&User> {
        self.users.get(&(method.into(), ident.into()))
    }

    /// All users, by method and name.
    pub fn users(&self) -> impl Iterator<Item = &User> {
        self.users.values()
    }

    /// What a user may do with data.
    #[must_use]
    pub fn rights_of(&self, user: &User) -> Arc<Rights> {
        let rights = match (user.role, &user.acl) {
            (Role::Admin, _) => &self.everything,
            (_, Some(name)) if **name == *ALL_DATA => &self.all_data,
            (_, Some(name)) => self.lists.get(name).unwrap_or(&self.nothing),
            (_, None) => &self.nothing,
        };
        Arc::clone(rights)
    }

    /// What an access list allows; none: there is no such list.
    #[must_use]
    pub fn list(&self, name: &str) -> Option<&Arc<Rights>> {
        if name == ALL_DATA { Some(&self.all_data) } else { self.lists.get(name) }
    }

    /// What operators should know.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }
}

/// What the entries say, each by itself.
#[derive(Default)]
struct Gathered {
    login: Option<Login>,
    grace_end: Option<u64>,
    records: BTreeMap<Name, (Record, Event)>,
    /// None for a name that cannot be read.
    acls: BTreeMap<Name, Option<Box<str>>>,
    removals: BTreeMap<Name, Removals>,
    /// None for a list that has too many patterns.
    lists: BTreeMap<Box<str>, Option<Acl>>,
    warnings: Vec<Warning>,
}

impl Gathered {
    fn add(&mut self, path: &Path, value: &[u8], event: Event) {
        let name = |method: &str, ident: &str| -> Name { (method.into(), ident.into()) };
        match Place::of(path) {
            Some(Place::Login) => (self.login, self.grace_end) = (login(value), grace_end(value)),
            Some(Place::User { method, ident }) => {
                let Ok(record) = Record::read(value) else {
                    return self.warn(Warning::Record(method.into(), ident.into()));
                };
                if self.records.len() >= USERS_MAX {
                    return self.warn(Warning::TooManyUsers);
                }
                self.records.insert(name(method, ident), (record, event));
            }
            // Too many of these are of users who do not exist; but whatever takes rights away must not get lost,
            // and the tree has them all anyway.
            Some(Place::UserAcl { method, ident }) => {
                self.acls.insert(name(method, ident), read_acl_name(value).map(Into::into));
            }
            Some(Place::Revoked { method, ident }) => {
                self.removals.entry(name(method, ident)).or_default().last = Some(value.into());
            }
            Some(Place::Removal { method, ident }) => {
                self.removals.entry(name(method, ident)).or_default().is_open = true;
            }
            Some(Place::Pattern { name, pattern }) => self.add_pattern(name, pattern, value),
            None => {}
        }
    }

    fn add_pattern(&mut self, name: &str, pattern: Path, value: &[u8]) {
        if !self.lists.contains_key(name) {
            if self.lists.len() >= LISTS_MAX {
                return self.warn(Warning::TooManyLists);
            }
            self.lists.insert(name.into(), Some(Acl::default()));
        }
        let Some(list) = self.lists.get_mut(name) else { return };
        if let Some(acl) = list
            && acl.insert(pattern, value).is_err()
        {
            *list = None;
            self.warn(Warning::TooManyPatterns(name.into()));
        }
    }

    fn warn(&mut self, warning: Warning) {
        if self.warnings.len() < WARNINGS_MAX && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn finish(mut self, version: u64) -> Directory {
        let mut lists = BTreeMap::new();
        let nothing = Arc::new(Rights::nothing());
        for (name, list) in std::mem::take(&mut self.lists) {
            let rights = match list {
                None => Arc::clone(&nothing),
                Some(acl) => {
                    if !acl.has_default() {
                        self.warn(Warning::NoDefault(name.clone()));
                    }
                    Arc::new(Rights::of(acl))
                }
            };
            lists.insert(name, rights);
        }
        let mut users = BTreeMap::new();
        for (name, (record, event)) in std::mem::take(&mut self.records) {
            if !self.removals.get(&name).is_none_or(|removals| record.is_in_force(removals)) {
                self.warn(Warning::Removed(name.0, name.1));
                continue;
            }
            let acl = self.acls.remove(&name);
            let role = match record.role.unwrap_or(Role::User) {
                // The record that makes it a user has not come here yet, or old tools wrote the list only.
                Role::Admin if acl.is_some() => Role::User,
                role => role,
            };
            let acl = acl.flatten();
            if let Some(list) = &acl
                && **list != *ALL_DATA
                && !lists.contains_key(list)
            {
                self.warn(Warning::NoList(list.clone(), name.1.clone()));
            }
            let (method, ident) = name.clone();
            let Record { secret, after, disconnect, .. } = record;
            let user = User { method, ident, role, secret, event, after, disconnect, acl };
            users.insert(name, user);
        }
        Directory {
            version,
            login: self.login,
            grace_end: self.grace_end,
            users,
            lists,
            everything: Arc::new(Rights::everything()),
            all_data: Arc::new(Rights::all_data()),
            nothing,
            warnings: self.warnings,
        }
    }
}

//! Roles, and which of them each action needs.

use std::fmt;

use distkv_core::protocol::client::Action;
use distkv_model::meta::Family;
use distkv_model::path::Element;
use distkv_model::path::bytes::elements;

/// What a user may do besides reading and changing data. Each may what those before it may.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// What the access list says, and asking where things are.
    User,
    /// Also looking at the nodes' state.
    Operator,
    /// Everything: below nil, users, files, the network.
    Admin,
}

impl Role {
    const NAMES: [(Self, &str); 3] =
        [(Self::User, "user"), (Self::Operator, "operator"), (Self::Admin, "admin")];

    /// The role of a name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::NAMES.into_iter().find(|(_, found)| *found == name).map(|(role, _)| role)
    }

    /// The name, as records have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether an action may be asked for before a login: it is part of one.
#[must_use]
pub fn is_before_login(action: Action) -> bool {
    matches!(action, Action::Auth | Action::DiffieHellman)
}

/// The least role that an action needs, wherever its path is; [`least_role_at`] knows of some that need less.
/// What an action does with data needs the letters of the access list as well.
///
/// [`Action::AuthSet`] is a user's for its own password only, [`Action::AuthDisconnect`] for its own connections,
/// [`Action::ListShards`] without details.
#[must_use]
pub fn least_role(action: Action) -> Role {
    use Action as A;
    match action {
        A::GetValue
        | A::SetValue
        | A::DeleteValue
        | A::DeleteTree
        | A::GetTree
        | A::Enum
        | A::Watch
        | A::Batch
        | A::Conflicts
        | A::MsgSend
        | A::MsgMonitor
        | A::Root
        | A::Stop
        | A::GetTock
        | A::Cluster
        | A::WatchCluster
        | A::ListShards
        | A::CheckDeleted
        | A::TestAcl
        | A::DiffieHellman
        | A::Auth
        | A::AuthInfo
        | A::AuthSet
        | A::AuthDisconnect => Role::User,
        A::Status | A::Members | A::GetState | A::EnumNode => Role::Operator,
        A::GetInternal
        | A::SetInternal
        | A::DeleteInternal
        | A::EnumInternal
        | A::GetTreeInternal
        | A::KillNode
        | A::ForgetMember
        | A::KeyList
        | A::Clients
        | A::History
        | A::KeyAdd
        | A::KeyUse
        | A::KeyRemove
        | A::GetSnapshot
        | A::Restore
        | A::Snapshot
        | A::LogStart
        | A::LogStop
        | A::Leave
        | A::Save
        | A::Log
        | A::Update
        | A::FakeInfo
        | A::FakeInfoSend
        | A::AuthGet
        | A::AuthList
        | A::AuthDelete
        | A::SetAuthTyp => Role::Admin,
    }
}

/// The least role for an action at a whole path, in canonical bytes: users may read type checks, and which
/// nodes are to serve which shards.
#[must_use]
pub fn least_role_at(action: Action, path: &[u8]) -> Role {
    let reads =
        matches!(action, Action::GetInternal | Action::EnumInternal | Action::GetTreeInternal);
    let is_open = matches!(Family::of(path), Some(Family::Type | Family::Match))
        || elements(path).take(2).eq([Element::Nil, Element::Str("shards")]);
    if reads && is_open { Role::User } else { least_role(action) }
}

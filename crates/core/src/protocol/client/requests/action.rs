//! The actions that a client may ask for.

use crate::protocol::client::word::fold;

macro_rules! actions {
    ($($(#[$doc:meta])* $name:ident = $($word:literal)|+,)*) => {
        /// What a request asks for.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Action {
            $($(#[$doc])* $name,)*
        }

        impl Action {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The action of a name as it stands in a request.
            #[must_use]
            pub fn of(name: &[u8]) -> Option<Self> {
                let number = fold(name);
                // The most frequent ones stand first.
                $($(if number == const { fold($word.as_bytes()) } && name == $word.as_bytes() {
                    return Some(Self::$name);
                })+)*
                None
            }

            /// The name; if there are several, the first.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => [$($word),+][0],)*
                }
            }
        }
    };
}

actions! {
    /// Reads one entry, by path or by event.
    GetValue = "get_value",
    /// Sets one entry's value.
    SetValue = "set_value",
    /// Deletes one entry's value.
    DeleteValue = "delete_value",
    /// Deletes all values of a subtree.
    DeleteTree = "delete_tree",
    /// Streams a subtree.
    GetTree = "get_tree",
    /// Lists children.
    Enum = "enum" | "enumerate",
    /// Streams the changes of a subtree.
    Watch = "watch",
    /// Ends a stream.
    Stop = "stop",
    /// Which ticks are present, superseded, deleted, missing.
    GetState = "get_state",
    /// A fresh tock.
    GetTock = "get_tock",
    /// A node's ticks in the chains of entries.
    EnumNode = "enum_node",
    /// Removes a node that owns nothing from what clients see.
    KillNode = "kill_node",
    /// Moves the session's root.
    Root = "root",
    /// As `get_value`, below nil.
    GetInternal = "get_internal",
    /// As `set_value`, below nil.
    SetInternal = "set_internal",
    /// As `delete_value`, below nil.
    DeleteInternal = "delete_internal",
    /// As `enum`, below nil.
    EnumInternal = "enum_internal",
    /// As `get_tree`, below nil.
    GetTreeInternal = "get_tree_internal",
    /// Sends a message to all monitors of its topic.
    MsgSend = "msg_send",
    /// Streams the messages of some topics.
    MsgMonitor = "msg_monitor",
    /// Checks which changes of some nodes are deleted here.
    CheckDeleted = "check_deleted",
    /// Ours: streams the recent conflicts.
    Conflicts = "conflicts",
    /// Ours: the node's health and counters.
    Status = "status",
    /// Ours: the network's members.
    Members = "members",
    /// Ours: who is connected, and what is asked for most.
    Clients = "clients",
    /// Ours: the changes of one entry, from the node's files.
    History = "history",
    /// Ours: the table of virtual shards.
    ListShards = "list_shards",
    /// Ours: many reads and writes of single entries.
    Batch = "batch",
    /// Ours: which nodes there are, for clients.
    Cluster = "cluster",
    /// Ours: streams the same, whenever it changes.
    WatchCluster = "watch_cluster",
    /// Ours: takes a member that does not come back off the Delete group's list.
    ForgetMember = "forget_member",
    /// Ours: which cluster keys the nodes have.
    KeyList = "key_list",
    /// Ours: adds a cluster key at every node.
    KeyAdd = "key_add",
    /// Ours: seals with another cluster key at every node.
    KeyUse = "key_use",
    /// Ours: removes a cluster key at every node.
    KeyRemove = "key_remove",
    /// Ours: streams the whole state, as the bytes of a snapshot file.
    GetSnapshot = "get_snapshot",
    /// Ours: takes a snapshot in, piece by piece.
    Restore = "restore",
    /// Ours: saves a snapshot, in the data directory or where clients may have files.
    Snapshot = "snapshot",
    /// Ours: logs changes to a file on the server.
    LogStart = "log_start",
    /// Ours: ends such a log.
    LogStop = "log_stop",
    /// Ours: the node leaves the network and ends.
    Leave = "leave",
    /// Writes the state to a file on the server.
    Save = "save",
    /// Logs changes to a file on the server.
    Log = "log",
    /// Replays a stored change.
    Update = "update",
    /// Makes this node believe the claims of another node. Refused.
    FakeInfo = "fake_info",
    /// Makes all other nodes believe it. Refused.
    FakeInfoSend = "fake_info_send",
    /// Agrees on a key under which passwords are sent.
    DiffieHellman = "diffie_hellman",
    /// The client says who it is.
    Auth = "auth",
    /// Which authentication method is in force; like the original, it does not answer that.
    AuthInfo = "auth_info",
    /// Whether there is a user.
    AuthGet = "auth_get",
    /// Makes a user, or changes one.
    AuthSet = "auth_set",
    /// Ours: ends a user's open connections, and may give it a new secret in the same change.
    AuthDisconnect = "auth_disconnect",
    /// Ours: removes a user for good.
    AuthDelete = "auth_delete",
    /// Streams the users.
    AuthList = "auth_list",
    /// Which method logins must use.
    SetAuthTyp = "set_auth_typ",
    /// What an access list allows.
    TestAcl = "test_acl",
}

impl Action {
    /// Whether errors must come within a stream: clients of these wait for its start before they
    /// look at anything else, and a bare error would leave them waiting for ever.
    #[must_use]
    pub fn errs_in_stream(self) -> bool {
        matches!(
            self,
            Self::GetTree
                | Self::GetTreeInternal
                | Self::Watch
                | Self::MsgMonitor
                | Self::Auth
                | Self::AuthList
        )
    }

    /// Whether it changes nothing, whatever becomes of its answer: so it can be asked again anywhere.
    #[must_use]
    pub fn only_reads(self) -> bool {
        matches!(
            self,
            Self::GetValue
                | Self::GetTree
                | Self::Enum
                | Self::Watch
                | Self::GetState
                | Self::EnumNode
                | Self::GetInternal
                | Self::EnumInternal
                | Self::GetTreeInternal
                | Self::MsgMonitor
                | Self::CheckDeleted
                | Self::Conflicts
                | Self::Status
                | Self::Members
                | Self::Clients
                | Self::History
                | Self::ListShards
                | Self::Cluster
                | Self::WatchCluster
                | Self::KeyList
                | Self::GetSnapshot
                | Self::AuthInfo
                | Self::AuthGet
                | Self::AuthList
                | Self::TestAcl
        )
    }

    /// Whether the request's path lies below nil, whatever the session's root is.
    #[must_use]
    pub(crate) fn is_internal(self) -> bool {
        matches!(
            self,
            Self::GetInternal
                | Self::SetInternal
                | Self::DeleteInternal
                | Self::EnumInternal
                | Self::GetTreeInternal
        )
    }
}

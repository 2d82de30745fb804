//! Typed requests, borrowing from the bytes that they came in.
//! [`decode`](mod@crate::protocol::client::decode) reads them.

use crate::model::ids::{Millis, Tick, Tock};
use crate::model::limits::CHAIN_LEN_MAX;
use crate::model::path::{Path, PathBytes};
use crate::model::tick_set::TickSet;
use crate::protocol::client::action::Action;
use crate::protocol::client::auth::AuthRequest;
use crate::protocol::client::batch::BatchRequest;
use crate::protocol::client::error::ClientError;
use crate::protocol::client::operator::{HistoryOf, ListClients};
use crate::protocol::client::shards::ListShards;
use crate::protocol::client::stored::{RestorePiece, StoredChange};
pub use crate::protocol::client::write::WriteRequest;

/// The longest that the others may take to agree that a node leaves for good: it keeps a thread of the
/// node busy meanwhile, and can be asked for again.
pub(crate) const LEAVE_TIMEOUT_MS_MAX: Millis = 60_000;

/// What a client's message is.
#[derive(Debug)]
pub enum ClientMessage<'a> {
    /// The session's settings (`seq` 0).
    Settings {
        /// The length of the window of streams; 0 for no flow control.
        qlen: u64,
        /// Ours: where the node is not ready, requests are refused at once. Others wait for it.
        nowait: bool,
    },
    /// A stream's messages have been taken in, up to this one.
    Ack {
        /// The stream's request.
        seq: u64,
        /// The last message's `wseq`.
        ack: u64,
    },
    /// The end of a stream that the client fed, or its part of a dialogue; there is nothing to answer.
    StreamEnd,
    /// A request.
    Request {
        /// Its number.
        seq: u64,
        /// Its name; some requests have several.
        action: Action,
        /// What is asked for.
        request: Request<'a>,
        /// Where the node's clock says more, nothing is to be carried out. [`Millis::MAX`] if the client does not say.
        by: Millis,
    },
}

/// Why a message cannot be taken.
#[derive(Debug)]
pub struct BadMessage {
    /// The request's number, where one was found.
    pub seq: Option<u64>,
    /// Whether the error must come within a stream ([`Action::errs_in_stream`]).
    pub in_stream: bool,
    /// Whether it is part of a login.
    pub is_login: bool,
    /// Whether the connection cannot continue: the rest of the input may be garbage.
    pub is_fatal: bool,
    /// What is wrong.
    pub error: ClientError,
}

impl BadMessage {
    /// Bytes after which the connection cannot go on.
    #[must_use]
    pub fn fatal(error: ClientError) -> Self {
        Self { seq: None, in_stream: false, is_login: false, is_fatal: true, error }
    }
}

/// How much of an entry's past a reply holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChainLength {
    /// At most this many events of the chain, the newest.
    pub events: usize,
    /// When the newest was made, too, if that is known.
    pub(crate) with_time: bool,
}

impl ChainLength {
    /// The whole chain.
    pub const WHOLE: Self = Self::of(usize::MAX);

    /// At most so many events, the newest, and no time.
    #[must_use]
    pub const fn of(events: usize) -> Self {
        Self { events, with_time: false }
    }

    /// Whether no chain is wanted.
    #[must_use]
    pub fn is_none(self) -> bool {
        self.events == 0
    }

    /// Whether the chain ends with nil also where it is cut off. The original's client asks for three events, and its
    /// mirrors die where they walk along a chain and its end is not there. There, a chain has a link for each node; here, one for
    /// each life, so that three are soon exceeded.
    pub(crate) fn always_ends(self) -> bool {
        (2..=CHAIN_LEN_MAX).contains(&self.events)
    }
}

/// A path of a request: below the session's root, or below nil (`internal`).
#[derive(Debug)]
pub struct RequestPath<'a> {
    /// The path as sent.
    pub path: PathBytes<'a>,
    /// Below nil, whatever the session's root is.
    pub internal: bool,
}

/// A part of a tree that is asked for.
#[derive(Debug)]
pub struct TreeScope<'a> {
    /// Its top.
    pub path: RequestPath<'a>,
    /// Fewest elements below the top.
    pub depth_min: usize,
    /// Most elements below the top.
    pub depth_max: Option<usize>,
    /// How much of each entry's chain is wanted.
    pub chain: ChainLength,
}

/// The parts of a node's state that are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "that is what the request is made of")]
pub struct StateParts {
    /// Each node's highest tick.
    pub nodes: bool,
    /// Superseded ticks.
    pub known: bool,
    /// Ticks in the chains of entries.
    pub present: bool,
    /// Ticks in the chains of tombstones.
    pub deleted: bool,
    /// Ticks that a node has and this one has not.
    pub missing: bool,
    /// Ticks that this node has and some peer has not.
    pub remote_missing: bool,
    /// Nodes that were removed from what clients see.
    pub node_drop: bool,
    /// What the original keeps for its developers: nothing.
    pub debug: bool,
    /// A debugger on the node's machine: there is none.
    pub debugger: bool,
    /// Ours: how many conflicts were found here.
    pub conflicts: bool,
    /// Ours: the elected list.
    pub housekeepers: bool,
    /// Ours: how the healing of a split goes.
    pub resync: bool,
    /// Ours: the nodes that must agree before tombstones are purged.
    pub delete_group: bool,
    /// Ours: how the node keeps its data on disk.
    pub storage: bool,
    /// Ours: what clients cost in memory.
    pub client_memory: bool,
    /// Ours: also retired incarnations that own no entries.
    pub over: bool,
}

impl StateParts {
    /// Whether all chains have to be looked at.
    #[must_use]
    pub fn walks(self) -> bool {
        self.known || self.present || self.deleted
    }
}

/// The field `conflicts` of a watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WatchConflicts {
    /// Changes alone.
    #[default]
    Without,
    /// Changes and conflicts.
    With,
    /// Conflicts alone.
    Only,
}

/// The fields of `test_acl`.
#[derive(Debug)]
pub struct AclTest<'a> {
    /// Where.
    pub path: RequestPath<'a>,
    /// What is to be allowed there, a letter.
    pub mode: &'a str,
    /// The name of the access list; none for the client's own.
    pub acl: Option<&'a str>,
}

/// Which state `get_snapshot` is to give.
#[derive(Debug, Default)]
pub struct SnapshotOf<'a> {
    /// A moment of the node's past. None: now.
    pub at: Option<PastMoment>,
    /// Of the past: only what is at and below this path.
    pub below: Option<PathBytes<'a>>,
}

/// A moment of a node's past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PastMoment {
    /// The node's time, milliseconds since 1970.
    Time(u64),
    /// The network's counter.
    Tock(Tock),
}

/// A change of the cluster's keys.
pub enum KeyChange<'a> {
    /// `key_add`.
    Add {
        /// The key's 32 bytes.
        secret: &'a [u8],
    },
    /// `key_use`.
    Use {
        /// The key's id, as sent.
        id: &'a str,
        /// Also if members lack it.
        force: bool,
    },
    /// `key_remove`.
    Remove {
        /// The key's id, as sent.
        id: &'a str,
        /// Also if members use it.
        force: bool,
    },
}

/// Says nothing of what is secret.
impl std::fmt::Debug for KeyChange<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Add { .. } => f.write_str("Add"),
            Self::Use { id, force } => write!(f, "Use({id:?}, force: {force})"),
            Self::Remove { id, force } => write!(f, "Remove({id:?}, force: {force})"),
        }
    }
}

/// What is asked for.
#[derive(Debug)]
pub enum Request<'a> {
    /// `get_value` by path, `get_internal`.
    Get {
        /// Where.
        path: RequestPath<'a>,
        /// How much of the chain is wanted.
        chain: ChainLength,
    },
    /// `get_value` by event.
    GetByEvent {
        /// The life that made it, as sent.
        node: &'a str,
        /// Its tick, as sent.
        tick: i128,
        /// How much of the chain is wanted.
        chain: ChainLength,
    },
    /// `set_value`, `delete_value`, `set_internal`, `delete_internal`.
    Write(WriteRequest<'a>),
    /// `delete_tree`: with a chain as a stream of the deleted entries, else their number.
    DeleteTree {
        /// The top.
        path: RequestPath<'a>,
        /// How much of the chains is wanted; none for the number only.
        chain: ChainLength,
        /// The greatest tock that the client has heard of.
        above: Tock,
    },
    /// `get_tree`, `get_tree_internal`.
    GetTree {
        /// Which part.
        scope: TreeScope<'a>,
        /// Also tombstones, and paths that have only something below them.
        empty: bool,
        /// Only what is behind this child of the top, and behind what is below that: one element.
        after: Option<PathBytes<'a>>,
    },
    /// `enum`, `enum_internal`.
    Enum {
        /// Whose children.
        path: RequestPath<'a>,
        /// Their values too.
        with_data: bool,
        /// Also tombstones, and paths that have only something below them.
        empty: bool,
    },
    /// `watch`.
    Watch {
        /// Which part.
        scope: TreeScope<'a>,
        /// First the state as it is.
        fetch: bool,
        /// The client asked to be told when the stream starts over because it was too slow.
        restart: bool,
        /// Whether the client asked for conflicts.
        conflicts: WatchConflicts,
    },
    /// `conflicts`.
    Conflicts {
        /// Below which path.
        scope: TreeScope<'a>,
        /// Only those with a greater number; 0 for all.
        since: u64,
        /// Only the last ones, up to this number; none for all.
        limit: Option<usize>,
    },
    /// `stop`; none for a task that cannot be one.
    Stop {
        /// The request whose stream is to end.
        task: Option<u64>,
    },
    /// `get_state`.
    GetState(StateParts),
    /// `get_tock`.
    GetTock,
    /// `enum_node`.
    EnumNode {
        /// A life of a node, as sent.
        node: &'a str,
        /// Most ticks in the reply; none for all.
        max: Option<usize>,
        /// Only where the node is an entry's newest.
        current: bool,
    },
    /// `kill_node`.
    KillNode {
        /// A node's name, or one of its lives, as sent.
        node: &'a str,
    },
    /// `check_deleted`: ticks by lives of nodes, in the order in which they were sent.
    CheckDeleted {
        /// The subject.
        nodes: Vec<(&'a str, TickSet)>,
    },
    /// `root`.
    Root {
        /// Where to, below the session's root of now.
        path: RequestPath<'a>,
    },
    /// `msg_send`.
    MsgSend {
        /// Only strings, one or more; neither "+" nor "#".
        topic: Path,
        /// The content.
        data: &'a [u8],
    },
    /// `msg_monitor`.
    MsgMonitor {
        /// Only strings, one or more; "+" and a final "#" as in MQTT.
        topic: Path,
        /// Messages are not decoded.
        raw: bool,
    },
    /// `status`.
    Status,
    /// `members`.
    Members,
    /// `clients`.
    Clients(ListClients),
    /// `history`.
    History(HistoryOf<'a>),
    /// `list_shards`.
    ListShards(ListShards),
    /// `batch`.
    Batch(BatchRequest<'a>),
    /// `cluster`.
    Cluster,
    /// `watch_cluster`.
    WatchCluster,
    /// `forget_member`.
    ForgetMember {
        /// The member's name.
        node: &'a str,
    },
    /// `key_list`.
    KeyList,
    /// `key_add`, `key_use`, `key_remove`.
    ChangeKeys(KeyChange<'a>),
    /// `get_snapshot`.
    GetSnapshot(SnapshotOf<'a>),
    /// `restore`.
    Restore(RestorePiece<'a>),
    /// `save`.
    Save {
        /// The file's name.
        file: &'a str,
        /// Also entries below nil.
        full: bool,
    },
    /// `log`; without a file no log any more.
    Log {
        /// The file's name.
        file: Option<&'a str>,
        /// First the state as it is.
        fetch: bool,
    },
    /// `update`.
    Update(StoredChange<'a>),
    /// `snapshot`; without a file in the data directory.
    Snapshot {
        /// The file's name.
        file: Option<&'a str>,
    },
    /// `log_start`.
    LogStart {
        /// The file's name.
        file: &'a str,
        /// As the Python DistKV does it.
        distkv: bool,
        /// First the state as it is.
        fetch: bool,
        /// In the place of a file that is there.
        force: bool,
    },
    /// `log_stop`.
    LogStop,
    /// `leave`.
    Leave {
        /// The node does not come back: how long the others may take to agree, milliseconds.
        for_good_ms: Option<u64>,
    },
    /// `auth_info`.
    AuthInfo,
    /// `test_acl`.
    TestAcl(AclTest<'a>),
    /// `fake_info`, `fake_info_send`.
    Forge,
    /// `diffie_hellman`, `auth`, `auth_list`, `auth_get`, `auth_set`, `auth_disconnect`, `set_auth_typ`.
    Auth(AuthRequest<'a>),
}

impl Request<'_> {
    /// Whether a node must have caught up with its network before it can carry this out.
    #[must_use]
    pub fn needs_ready(&self) -> bool {
        match self {
            Self::Get { .. }
            | Self::GetByEvent { .. }
            | Self::Write(_)
            | Self::Batch(_)
            | Self::DeleteTree { .. }
            | Self::GetTree { .. }
            | Self::Enum { .. }
            | Self::Watch { .. }
            | Self::EnumNode { .. }
            | Self::KillNode { .. }
            | Self::CheckDeleted { .. }
            | Self::Root { .. }
            | Self::ListShards(_)
            | Self::ForgetMember { .. }
            | Self::GetSnapshot(_)
            | Self::Restore(_)
            | Self::Save { .. }
            | Self::Log { .. }
            | Self::Update(_)
            | Self::Snapshot { .. }
            | Self::LogStart { .. }
            | Self::TestAcl(_)
            // Before, nobody knows whether the network's data says that clients must log in.
            | Self::MsgSend { .. }
            | Self::MsgMonitor { .. } => true,
            Self::Conflicts { .. }
            | Self::Stop { .. }
            | Self::GetState(_)
            | Self::GetTock
            | Self::Status
            | Self::Members
            | Self::Clients(_)
            | Self::History(_)
            | Self::Cluster
            | Self::WatchCluster
            | Self::LogStop
            | Self::Leave { .. }
            | Self::AuthInfo
            | Self::KeyList
            | Self::ChangeKeys(_)
            | Self::Forge
            | Self::Auth(_) => false,
        }
    }
}

/// A tick that could be one.
#[must_use]
pub fn tick_of(number: i128) -> Option<Tick> {
    u64::try_from(number).ok().and_then(Tick::new).filter(|tick| *tick > Tick::default())
}

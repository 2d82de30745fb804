//! Typed requests, borrowing from the bytes that they came in, and how a message is decoded.

use super::action::Action;
use super::batch::BatchRequest;
use super::coerce::{read_integer, read_natural};
use super::error::{ClientError, ErrorCode};
use super::field::{Field, Fields, wrong};
use super::shards::{ListShards, decode_list_shards};
use super::stored::{
    RestorePiece, StoredChange, decode_restore_piece, decode_stored_change, is_distkv_format,
};
use super::topic::{decode_msg_monitor, decode_msg_send};
pub use super::write::{COPIES_TIMEOUT_MS, COPIES_TIMEOUT_MS_MAX, WriteRequest};
use super::write::{decode_write, timeout};
use crate::model::ids::{Millis, Tick};
use crate::model::path::{Path, PathBytes};
use crate::model::tick_set::TickSet;
use crate::model::value::{Kind, ReadError, Reader};

/// The longest that the others may take to agree that a node leaves for good: it keeps a thread of the
/// node busy meanwhile, and can be asked for again.
pub const LEAVE_TIMEOUT_MS_MAX: Millis = 60_000;

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
    /// The end of a stream that the client fed; there is nothing to answer.
    StreamEnd,
    /// A request.
    Request {
        /// Its number.
        seq: u64,
        /// The action.
        request: Request<'a>,
    },
}

/// Why a message cannot be taken.
#[derive(Debug)]
pub struct BadMessage {
    /// The request's number, where one was found.
    pub seq: Option<u64>,
    /// Whether the error must come within a stream ([`Action::errs_in_stream`]).
    pub in_stream: bool,
    /// Whether the connection cannot continue: the rest of the input may be garbage.
    pub is_fatal: bool,
    /// What is wrong.
    pub error: ClientError,
}

impl BadMessage {
    /// Bytes after which the connection cannot go on.
    #[must_use]
    pub fn fatal(error: ClientError) -> Self {
        Self { seq: None, in_stream: false, is_fatal: true, error }
    }
}

/// How much of a chain a reply holds: at most this many events, the newest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChainLength(pub usize);

impl ChainLength {
    /// The whole chain.
    pub const WHOLE: Self = Self(usize::MAX);

    /// Whether no chain is wanted.
    #[must_use]
    pub fn is_none(self) -> bool {
        self.0 == 0
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

/// The parts that are requested.
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
    },
    /// `get_tree`, `get_tree_internal`.
    GetTree {
        /// Which part.
        scope: TreeScope<'a>,
        /// Also tombstones, and paths that have only something below them.
        empty: bool,
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
    /// `get_snapshot`.
    GetSnapshot,
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
    TestAcl {
        /// The access list to be tested; none for the client's own.
        acl: Option<&'a str>,
    },
    /// `fake_info`, `fake_info_send`.
    Forge(Action),
    /// An action that this version does not have.
    NotImplemented(Action),
}

impl Request<'_> {
    /// Whether errors must come within a stream; see [`Action::errs_in_stream`].
    #[must_use]
    pub fn errs_in_stream(&self) -> bool {
        match self {
            Self::GetTree { .. } | Self::Watch { .. } | Self::MsgMonitor { .. } => true,
            Self::NotImplemented(action) => action.errs_in_stream(),
            _ => false,
        }
    }

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
            | Self::GetSnapshot
            | Self::Restore(_)
            | Self::Save { .. }
            | Self::Log { .. }
            | Self::Update(_)
            | Self::Snapshot { .. }
            | Self::LogStart { .. }
            // Until then it is not known whether the network's data says that clients must log in.
            | Self::MsgSend { .. }
            | Self::MsgMonitor { .. } => true,
            Self::Conflicts { .. }
            | Self::Stop { .. }
            | Self::GetState(_)
            | Self::GetTock
            | Self::Status
            | Self::Members
            | Self::Cluster
            | Self::WatchCluster
            | Self::LogStop
            | Self::Leave { .. }
            | Self::AuthInfo
            | Self::TestAcl { .. }
            | Self::Forge(_)
            | Self::NotImplemented(_) => false,
        }
    }
}

/// Decodes one complete message, with nothing behind it.
///
/// # Errors
/// [`BadMessage`], with the request's `seq`, wherever in the message it is.
pub fn decode(message: &[u8]) -> Result<ClientMessage<'_>, BadMessage> {
    decode_fields(&Fields::find(message).map_err(BadMessage::fatal)?)
}

/// As [`decode`], for a message whose fields were found.
///
/// # Errors
/// As [`decode`].
pub fn decode_fields<'a>(fields: &Fields<'a>) -> Result<ClientMessage<'a>, BadMessage> {
    let bad = |seq, in_stream| move |error| BadMessage { seq, in_stream, is_fatal: false, error };
    let seq = decode_seq(fields).map_err(bad(None, false))?;
    if seq == 0 && fields.get(Field::Action).is_none() {
        let qlen = fields.int_or_nil(Field::QLen).map_err(bad(Some(0), false))?.unwrap_or(0);
        let qlen = u64::try_from(qlen.max(0)).unwrap_or(u64::MAX);
        let nowait = fields.flag(Field::NoWait).map_err(bad(Some(0), false))?;
        return Ok(ClientMessage::Settings { qlen, nowait });
    }
    if fields.get(Field::Action).is_none()
        && let Some(state) = fields.get(Field::State)
    {
        match Reader::new(state).read_str() {
            Ok("ack") => {
                let ack = fields.int(Field::Ack).map_err(bad(Some(seq), false))?.unwrap_or(0);
                return Ok(ClientMessage::Ack { seq, ack: u64::try_from(ack).unwrap_or(0) });
            }
            Ok("end") => return Ok(ClientMessage::StreamEnd),
            _ => {}
        }
    }
    if seq == 0 {
        let error = ClientError::bad_request("the field 'seq' of a request must be positive");
        return Err(bad(Some(0), false)(error));
    }
    let Some(action) = known_action(fields) else {
        let name = fields.text(Field::Action).map_err(bad(Some(seq), false))?;
        let name: String = name.chars().take(64).collect();
        let error =
            ClientError::new(ErrorCode::UnknownAction, format!("there is no action '{name}'"));
        return Err(bad(Some(seq), false)(error));
    };
    let request =
        decode_request(action, fields).map_err(bad(Some(seq), action.errs_in_stream()))?;
    Ok(ClientMessage::Request { seq, request })
}

fn known_action(fields: &Fields<'_>) -> Option<Action> {
    Action::of(Reader::new(fields.get(Field::Action)?).read_str_bytes().ok()?)
}

fn decode_seq(fields: &Fields<'_>) -> Result<u64, ClientError> {
    let raw = fields.need(Field::Seq)?;
    Reader::new(raw).read_u64().map_err(|e| wrong(Field::Seq, &e))
}

fn decode_request<'a>(action: Action, fields: &Fields<'a>) -> Result<Request<'a>, ClientError> {
    Ok(match action {
        Action::GetValue | Action::GetInternal => decode_get(action, fields)?,
        Action::SetValue | Action::SetInternal | Action::DeleteValue | Action::DeleteInternal => {
            Request::Write(decode_write(action, fields)?)
        }
        Action::DeleteTree => {
            Request::DeleteTree { path: path(action, fields)?, chain: chain_length(fields, 0)? }
        }
        Action::GetTree | Action::GetTreeInternal => {
            Request::GetTree { scope: scope(action, fields)?, empty: fields.flag(Field::Empty)? }
        }
        Action::Enum | Action::EnumInternal => Request::Enum {
            path: path(action, fields)?,
            with_data: fields.flag(Field::WithData)?,
            empty: fields.flag(Field::Empty)?,
        },
        Action::Watch => Request::Watch {
            scope: scope(action, fields)?,
            fetch: fields.flag(Field::Fetch)?,
            restart: fields.flag(Field::Restart)?,
            conflicts: watch_conflicts(fields)?,
        },
        Action::Conflicts => decode_conflicts(fields)?,
        Action::Stop => {
            let task = fields.need(Field::Task)?;
            Request::Stop { task: read_natural(&mut Reader::new(task)).ok() }
        }
        Action::GetState => Request::GetState(decode_state_parts(fields)?),
        Action::GetTock => Request::GetTock,
        Action::EnumNode => Request::EnumNode {
            node: fields.text(Field::Node)?,
            max: match fields.int_or_nil(Field::Max)? {
                Some(max) if max > 0 => usize::try_from(max).ok(),
                _ => None,
            },
            current: fields.flag(Field::Current)?,
        },
        Action::KillNode => Request::KillNode { node: fields.text(Field::Node)? },
        Action::CheckDeleted => {
            Request::CheckDeleted { nodes: ticks_by_node(fields.need(Field::Nodes)?)? }
        }
        Action::Root => Request::Root { path: path(action, fields)? },
        Action::MsgSend => decode_msg_send(fields)?,
        Action::MsgMonitor => decode_msg_monitor(fields)?,
        Action::Status => Request::Status,
        Action::Members => Request::Members,
        Action::ListShards => Request::ListShards(decode_list_shards(fields)?),
        Action::Batch => Request::Batch(BatchRequest::decode(fields)?),
        Action::Cluster => Request::Cluster,
        Action::WatchCluster => Request::WatchCluster,
        Action::ForgetMember => Request::ForgetMember { node: fields.text(Field::Node)? },
        Action::GetSnapshot => Request::GetSnapshot,
        Action::Restore => Request::Restore(decode_restore_piece(fields)?),
        Action::Save => {
            Request::Save { file: fields.text(Field::Path)?, full: fields.flag(Field::Full)? }
        }
        Action::Log => Request::Log {
            file: fields.optional_text(Field::Path)?,
            fetch: fields.flag(Field::Fetch)?,
        },
        Action::Update => Request::Update(decode_stored_change(fields)?),
        Action::Snapshot => Request::Snapshot { file: fields.optional_text(Field::Path)? },
        Action::LogStart => Request::LogStart {
            file: fields.text(Field::Path)?,
            distkv: is_distkv_format(fields)?,
            fetch: fields.flag(Field::Fetch)?,
        },
        Action::LogStop => Request::LogStop,
        Action::Leave => {
            let is_for_good = fields.flag(Field::ForGood)?;
            let timeout = timeout(fields)?.min(LEAVE_TIMEOUT_MS_MAX);
            Request::Leave { for_good_ms: is_for_good.then_some(timeout) }
        }
        Action::AuthInfo => Request::AuthInfo,
        Action::TestAcl => {
            fields.path(Field::Path)?;
            Request::TestAcl { acl: fields.optional_text(Field::Acl)? }
        }
        Action::FakeInfo | Action::FakeInfoSend => Request::Forge(action),
        Action::DiffieHellman
        | Action::Auth
        | Action::AuthGet
        | Action::AuthSet
        | Action::AuthList
        | Action::SetAuthTyp => Request::NotImplemented(action),
    })
}

pub(super) fn decode_get<'a>(
    action: Action,
    fields: &Fields<'a>,
) -> Result<Request<'a>, ClientError> {
    let chain = chain_length(fields, 0)?;
    if fields.get(Field::Node).is_some() && fields.get(Field::Path).is_none() {
        let tick = fields.need(Field::Tick)?;
        let tick = read_integer(&mut Reader::new(tick)).map_err(|e| wrong(Field::Tick, &e))?;
        return Ok(Request::GetByEvent { node: fields.text(Field::Node)?, tick, chain });
    }
    Ok(Request::Get { path: path(action, fields)?, chain })
}

fn decode_state_parts(fields: &Fields<'_>) -> Result<StateParts, ClientError> {
    Ok(StateParts {
        nodes: fields.flag(Field::Nodes)?,
        // `superseded` is answered as `known`.
        known: fields.flag(Field::Known)? | fields.flag(Field::Superseded)?,
        present: fields.flag(Field::Present)?,
        deleted: fields.flag(Field::Deleted)?,
        missing: fields.flag(Field::Missing)?,
        remote_missing: fields.flag(Field::RemoteMissing)?,
        node_drop: fields.flag(Field::NodeDrop)?,
        debug: fields.flag(Field::Debug)?,
        debugger: fields.flag(Field::Debugger)?,
        conflicts: fields.flag(Field::Conflicts)?,
        housekeepers: fields.flag(Field::Housekeepers)?,
        resync: fields.flag(Field::Resync)?,
        delete_group: fields.flag(Field::DeleteGroup)?,
        storage: fields.flag(Field::Storage)?,
        client_memory: fields.flag(Field::ClientMemory)?,
        over: fields.flag(Field::Over)?,
    })
}

/// The field `conflicts` of a watch: a flag, or the word "only".
fn watch_conflicts(fields: &Fields<'_>) -> Result<WatchConflicts, ClientError> {
    let word = fields.get_non_nil(Field::Conflicts).map(|raw| Reader::new(raw).read_str());
    match word {
        Some(Ok("only")) => Ok(WatchConflicts::Only),
        Some(Ok(_)) => {
            let text = "bad field 'conflicts': it must be true, false or 'only'";
            Err(ClientError::bad_request(text))
        }
        Some(Err(_)) | None => Ok(match fields.flag(Field::Conflicts)? {
            true => WatchConflicts::With,
            false => WatchConflicts::Without,
        }),
    }
}

fn decode_conflicts<'a>(fields: &Fields<'a>) -> Result<Request<'a>, ClientError> {
    // Without a path, all that the session sees.
    let raw = fields.get(Field::Path).unwrap_or(&[0x90]);
    let path = PathBytes::from_msgpack_value(raw)
        .map_err(|e| ClientError::bad_request(format!("bad field 'path': {e}")))?;
    let path = RequestPath { path, internal: false };
    // The makers of the versions belong to a conflict.
    let scope = scope_at(path, fields, 1)?;
    let since = fields.int_or_nil(Field::Since)?.unwrap_or(0);
    let limit = fields.int_or_nil(Field::Limit)?.filter(|limit| *limit >= 0);
    Ok(Request::Conflicts {
        scope,
        since: u64::try_from(since.max(0)).unwrap_or(u64::MAX),
        limit: limit.and_then(|limit| usize::try_from(limit).ok()),
    })
}

/// Sets of ticks by life: a map of lives, as sent, to ranges, as `get_state` has them.
fn ticks_by_node(raw: &[u8]) -> Result<Vec<(&str, TickSet)>, ClientError> {
    let bad = |e: String| ClientError::bad_request(format!("bad field 'nodes': {e}"));
    let read = |e: ReadError| bad(e.to_string());
    let mut reader = Reader::new(raw);
    let mut nodes = Vec::new();
    for _ in 0..reader.read_map_len().map_err(read)? {
        let life = reader.read_str().map_err(read)?;
        let mut ticks = TickSet::new();
        for _ in 0..reader.read_array_len().map_err(read)? {
            let (from, to) = match reader.peek_kind().map_err(read)? {
                Kind::Array => match reader.read_array_len().map_err(read)? {
                    2 => (
                        read_natural(&mut reader).map_err(read)?,
                        read_natural(&mut reader).map_err(read)?,
                    ),
                    _ => return Err(bad(String::from("a range has two ends"))),
                },
                _ => {
                    let tick = read_natural(&mut reader).map_err(read)?;
                    (tick, tick.saturating_add(1))
                }
            };
            if !ticks.insert_range(from, to) {
                return Err(bad(format!("{from} to {to} is out of the range of ticks")));
            }
        }
        nodes.push((life, ticks));
    }
    Ok(nodes)
}

pub(super) fn path<'a>(
    action: Action,
    fields: &Fields<'a>,
) -> Result<RequestPath<'a>, ClientError> {
    Ok(RequestPath { path: fields.path(Field::Path)?, internal: action.is_internal() })
}

fn scope<'a>(action: Action, fields: &Fields<'a>) -> Result<TreeScope<'a>, ClientError> {
    scope_at(path(action, fields)?, fields, 0)
}

fn scope_at<'a>(
    path: RequestPath<'a>,
    fields: &Fields<'a>,
    chain_default: usize,
) -> Result<TreeScope<'a>, ClientError> {
    // A depth below 0 is no limit.
    let depth = |field| -> Result<Option<usize>, ClientError> {
        Ok(fields.int_or_nil(field)?.and_then(|depth| usize::try_from(depth).ok()))
    };
    Ok(TreeScope {
        path,
        depth_min: depth(Field::MinDepth)?.unwrap_or(0),
        depth_max: depth(Field::MaxDepth)?,
        chain: chain_length(fields, chain_default)?,
    })
}

pub(super) fn chain_length(
    fields: &Fields<'_>,
    default: usize,
) -> Result<ChainLength, ClientError> {
    Ok(match fields.int(Field::NChain)? {
        None => ChainLength(default),
        Some(length) => usize::try_from(length).map_or(ChainLength::WHOLE, ChainLength),
    })
}

/// A tick that could be one.
#[must_use]
pub fn tick_of(number: i128) -> Option<Tick> {
    u64::try_from(number).ok().and_then(Tick::new).filter(|tick| *tick > Tick::default())
}

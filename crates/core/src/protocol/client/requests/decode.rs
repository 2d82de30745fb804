//! How a client's message is decoded into a typed [`Request`].

use super::coerce::{read_integer, read_natural};
use crate::model::ids::{Millis, Tock};
use crate::model::path::PathBytes;
use crate::model::tick_set::TickSet;
use crate::model::value::{Kind, ReadError, Reader};
use crate::protocol::client::action::Action;
use crate::protocol::client::auth::decode_auth;
use crate::protocol::client::batch::BatchRequest;
use crate::protocol::client::error::{ClientError, ErrorCode};
use crate::protocol::client::field::{Field, Fields, wrong};
use crate::protocol::client::operator::{decode_history, decode_list_clients};
use crate::protocol::client::request::{
    AclTest, BadMessage, ChainLength, ClientMessage, KeyChange, LEAVE_TIMEOUT_MS_MAX, PastMoment,
    Request, RequestPath, SnapshotOf, StateParts, TreeScope, WatchConflicts,
};
use crate::protocol::client::shards::decode_list_shards;
use crate::protocol::client::stored::{
    decode_restore_piece, decode_stored_change, is_distkv_format,
};
use crate::protocol::client::topic::{decode_msg_monitor, decode_msg_send};
use crate::protocol::client::write::{decode_write, heard_tock, timeout};

/// What `test_acl` asks for unless it says something else: passing through.
const ACL_MODE: &str = "x";

/// Decodes one message, all of whose bytes are there and nothing behind them.
///
/// # Errors
/// [`BadMessage`], with the request's `seq` wherever in the message that stands.
pub fn decode(message: &[u8]) -> Result<ClientMessage<'_>, BadMessage> {
    decode_fields(&Fields::find(message).map_err(BadMessage::fatal)?)
}

/// The same of a message whose fields were found.
///
/// # Errors
/// As [`decode`].
pub fn decode_fields<'a>(fields: &Fields<'a>) -> Result<ClientMessage<'a>, BadMessage> {
    let bad = |seq, in_stream| {
        move |error| BadMessage { seq, in_stream, is_login: false, is_fatal: false, error }
    };
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
    // The original's clients spell out what was in their request: see [`super::auth::UserChange::is_dialogue`].
    if fields.get(Field::Action).is_none() && fields.get(Field::Step).is_some() {
        return Ok(ClientMessage::StreamEnd);
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
    // A request is large: it is moved once.
    let by = decode_by(fields);
    match by.and_then(|by| Ok((by, decode_request(action, fields)?))) {
        Ok((by, request)) => Ok(ClientMessage::Request { seq, action, request, by }),
        Err(error) => {
            let is_login = matches!(action, Action::Auth | Action::DiffieHellman);
            let bad = bad(Some(seq), action.errs_in_stream())(error);
            Err(BadMessage { is_login, ..bad })
        }
    }
}

fn known_action(fields: &Fields<'_>) -> Option<Action> {
    Action::of(Reader::new(fields.get(Field::Action)?).read_str_bytes().ok()?)
}

fn decode_seq(fields: &Fields<'_>) -> Result<u64, ClientError> {
    let raw = fields.need(Field::Seq)?;
    Reader::new(raw).read_u64().map_err(|e| wrong(Field::Seq, &e))
}

/// Until when the request counts, by the node's clock.
fn decode_by(fields: &Fields<'_>) -> Result<Millis, ClientError> {
    let Some(raw) = fields.get_non_nil(Field::By) else { return Ok(Millis::MAX) };
    Reader::new(raw).read_u64().map_err(|e| wrong(Field::By, &e))
}

fn decode_snapshot_of<'a>(fields: &Fields<'a>) -> Result<SnapshotOf<'a>, ClientError> {
    let bad = |field: Field| {
        ClientError::bad_request(format!("'{}' is a natural number below 2^62", field.name()))
    };
    let natural = |field: Field| match fields.int_or_nil(field)? {
        Some(number) => u64::try_from(number).map(Some).map_err(|_| bad(field)),
        None => Ok(None),
    };
    let at = match (natural(Field::Time)?, natural(Field::Tock)?) {
        (Some(time_ms), None) => Some(PastMoment::Time(time_ms)),
        (None, Some(tock)) => {
            Some(PastMoment::Tock(Tock::new(tock).ok_or_else(|| bad(Field::Tock))?))
        }
        (None, None) => None,
        (Some(_), Some(_)) => {
            return Err(ClientError::bad_request("give 'time' or 'tock', not both"));
        }
    };
    let below = match fields.get(Field::Path) {
        Some(_) => Some(fields.path(Field::Path)?),
        None => None,
    };
    if below.is_some() && at.is_none() {
        let text = "'path' is for states of the past, with 'time' or 'tock'";
        return Err(ClientError::bad_request(text));
    }
    Ok(SnapshotOf { at, below })
}

fn decode_request<'a>(action: Action, fields: &Fields<'a>) -> Result<Request<'a>, ClientError> {
    Ok(match action {
        Action::GetValue | Action::GetInternal => decode_get(action, fields)?,
        Action::SetValue | Action::SetInternal | Action::DeleteValue | Action::DeleteInternal => {
            Request::Write(decode_write(action, fields)?)
        }
        Action::DeleteTree => Request::DeleteTree {
            path: path(action, fields)?,
            chain: chain_length(fields, 0)?,
            above: heard_tock(fields, Field::Above)?,
        },
        Action::GetTree | Action::GetTreeInternal => Request::GetTree {
            scope: scope(action, fields)?,
            empty: fields.flag(Field::Empty)?,
            after: element_after(fields)?,
        },
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
        Action::Clients => Request::Clients(decode_list_clients(fields)?),
        Action::History => Request::History(decode_history(fields)?),
        Action::ListShards => Request::ListShards(decode_list_shards(fields)?),
        Action::Batch => Request::Batch(BatchRequest::decode(fields)?),
        Action::Cluster => Request::Cluster,
        Action::WatchCluster => Request::WatchCluster,
        Action::ForgetMember => Request::ForgetMember { node: fields.text(Field::Node)? },
        Action::GetSnapshot => Request::GetSnapshot(decode_snapshot_of(fields)?),
        Action::KeyList => Request::KeyList,
        Action::KeyAdd => Request::ChangeKeys(KeyChange::Add {
            secret: fields.bytes(Field::Secret)?.ok_or_else(|| {
                ClientError::bad_request("the field 'secret' is missing: the key's 32 bytes")
            })?,
        }),
        Action::KeyUse => Request::ChangeKeys(KeyChange::Use {
            id: fields.text(Field::Ident)?,
            force: fields.flag(Field::Force)?,
        }),
        Action::KeyRemove => Request::ChangeKeys(KeyChange::Remove {
            id: fields.text(Field::Ident)?,
            force: fields.flag(Field::Force)?,
        }),
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
            force: fields.flag(Field::Force)?,
        },
        Action::LogStop => Request::LogStop,
        Action::Leave => {
            let is_for_good = fields.flag(Field::ForGood)?;
            let timeout = timeout(fields)?.min(LEAVE_TIMEOUT_MS_MAX);
            Request::Leave { for_good_ms: is_for_good.then_some(timeout) }
        }
        Action::AuthInfo => Request::AuthInfo,
        Action::TestAcl => Request::TestAcl(AclTest {
            path: path(action, fields)?,
            mode: match fields.optional_text(Field::Mode)? {
                None | Some("") => ACL_MODE,
                Some(mode) => mode,
            },
            acl: fields.optional_text(Field::Acl)?,
        }),
        Action::FakeInfo | Action::FakeInfoSend => Request::Forge,
        Action::DiffieHellman
        | Action::Auth
        | Action::AuthGet
        | Action::AuthSet
        | Action::AuthDisconnect
        | Action::AuthList
        | Action::AuthDelete
        | Action::SetAuthTyp => Request::Auth(decode_auth(action, fields)?),
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

/// The field `after` of a tree: one element.
fn element_after<'a>(fields: &Fields<'a>) -> Result<Option<PathBytes<'a>>, ClientError> {
    let Some(raw) = fields.get(Field::After) else { return Ok(None) };
    let bad = |e: String| ClientError::bad_request(format!("bad field 'after': {e}"));
    let element = PathBytes::from_msgpack(raw).map_err(|e| bad(e.to_string()))?;
    Ok(Some(element))
}

fn decode_conflicts<'a>(fields: &Fields<'a>) -> Result<Request<'a>, ClientError> {
    // Without a path, all that the session sees.
    let raw = fields.get(Field::Path).unwrap_or(&[0x90]);
    let path = PathBytes::from_msgpack_value(raw)
        .map_err(|e| ClientError::bad_request(format!("bad field 'path': {e}")))?;
    let path = RequestPath { path, internal: false };
    // Who made the versions belongs to a conflict.
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

pub(in crate::protocol::client) fn path<'a>(
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

#[inline]
pub(super) fn chain_length(
    fields: &Fields<'_>,
    default: usize,
) -> Result<ChainLength, ClientError> {
    let length = match fields.int(Field::NChain)? {
        None => ChainLength::of(default),
        Some(length) => usize::try_from(length).map_or(ChainLength::WHOLE, ChainLength::of),
    };
    Ok(ChainLength { with_time: fields.flag(Field::WithTime)?, ..length })
}

//! What single writes are answered with: replies in the original's order of fields, and errors with
//! the words that clients look for.

use crate::engine::EngineWriteError;
use crate::model::entry::Entry;
use crate::model::ids::Tock;
use crate::model::path::Path;
use crate::protocol::client::chain::ChainField;
use crate::protocol::client::reply::{write_error, write_error_result};
use crate::protocol::client::request::{ChainLength, WriteRequest};
use crate::protocol::client::{ClientError, ErrorCode, MessageWriter};
use crate::replica::write::{WriteError, Written};
use crate::replica::write_ids::Made;
use crate::server::connections::session::{Context, NodeNames};
use crate::server::error_text::{show_path, show_value};

/// An error that answers a request; a result within a batch's without `seq`, and without `tock`.
pub(super) fn write_refused(
    cx: &Context<'_>,
    error: &ClientError,
    seq: Option<u64>,
    tock: Tock,
    out: &mut Vec<u8>,
) {
    cx.shared.counts.note_error(error);
    match seq {
        Some(_) => write_error(error, seq, tock, out),
        None => write_error_result(error, out),
    }
}

/// The reply of a write that was carried out; a result within a batch's without `seq`. `names`:
/// needed where a chain is asked for. `hides_old`: the client may not read what was there.
pub(in crate::server::command) fn write_reply(
    seq: Option<u64>,
    write: &WriteRequest<'_>,
    hides_old: bool,
    written: &Written,
    names: Option<&NodeNames>,
    tock: Tock,
    out: &mut Vec<u8>,
) {
    // Of the events before its own one, such a client is told nothing either.
    let chain = if hides_old {
        ChainLength::of(write.reply_chain.events.min(1))
    } else {
        write.reply_chain
    };
    if let Some(made) = &written.repeated {
        return write_repeated(seq, chain, written.entry.as_ref(), made, names, out);
    }
    let tock = written.entry.as_ref().map_or(tock, Entry::tock);
    let was_there = !written.is_made && write.value.is_some();
    let mut message = MessageWriter::new(out);
    if was_there {
        // Nothing done because of `idem`: the original has another order here.
        message.tock(tock);
    }
    message.bool("changed", written.changed || (hides_old && written.is_made));
    if !was_there
        && !hides_old
        && write.chain == ChainField::Any
        && write.prev.is_none()
        && let Some(value) = written.old.as_ref().and_then(Entry::value)
    {
        message.raw("prev", value);
    }
    if let Some(names) = names.filter(|_| !chain.is_none()) {
        match written.entry.as_ref().filter(|_| written.is_made || !hides_old) {
            Some(entry) => {
                names.names().write_chain(entry, chain, message.key("chain"));
            }
            None => {
                message.nil("chain");
            }
        }
    }
    if !was_there {
        message.tock(tock);
    }
    message.seq(seq);
}

/// The reply to a write that had been made before: its result then, as far as that is known.
fn write_repeated(
    seq: Option<u64>,
    chain: ChainLength,
    entry: Option<&Entry>,
    made: &Made,
    names: Option<&NodeNames>,
    out: &mut Vec<u8>,
) {
    let mut message = MessageWriter::new(out);
    message.bool("changed", true);
    if let Some(names) = names.filter(|_| !chain.is_none()) {
        let names = names.names();
        names.write_chain_from(made.event, entry, chain, message.key("chain"));
    }
    message.tock(made.tock).bool("repeated", true).seq(seq);
}

/// The error of a write that was not made, with the words that clients look for. `hides_old`: as above.
pub(super) fn write_refusal(
    error: &EngineWriteError,
    write: &WriteRequest<'_>,
    hides_old: bool,
    path: &Path,
    names: &NodeNames,
) -> ClientError {
    let at = show_path(path);
    match error {
        EngineWriteError::Write(WriteError::AlreadyExists) => {
            ClientError::new(ErrorCode::AlreadyExists, format!("Entry already exists at {at}"))
        }
        EngineWriteError::Write(WriteError::IsNew) => {
            ClientError::new(ErrorCode::IsNew, format!("Entry is new at {at}"))
        }
        EngineWriteError::Write(WriteError::ChainMismatch { newest }) => {
            let newest = match hides_old {
                true => String::from("another one,"),
                false => names.names().table.spell_event(*newest).to_string(),
            };
            let wanted = match write.chain {
                ChainField::Newest { life, tick } => life.event(tick).to_string(),
                ChainField::Any | ChainField::New => String::from("nil"),
            };
            let text = format!("Chain is {newest} not {wanted} for {at}");
            ClientError::new(ErrorCode::ChainMismatch, text)
        }
        EngineWriteError::Write(WriteError::ValueMismatch { current }) => {
            let wanted = write.prev.map_or_else(String::new, show_value);
            let current = current.as_ref().and_then(Entry::value);
            let current = current.map_or_else(|| String::from("missing"), show_value);
            let text = if current == wanted {
                // Of arrays and maps only the kind is shown, of long texts the beginning.
                format!(
                    "Data is {current}, but not the one that was sent, at {at}; nothing was changed"
                )
            } else {
                format!("Data is {current}, not {wanted}, at {at}; nothing was changed")
            };
            ClientError::new(ErrorCode::DataMismatch, text)
        }
        EngineWriteError::Write(WriteError::IdReused) => {
            let text = format!("the 'wid' for {at} was used for another path or value before");
            ClientError::new(ErrorCode::WidReused, text)
        }
        other => engine_error(other),
    }
}

/// The error of a write that was not made, for reasons of the node.
pub(in crate::server) fn engine_error(error: &EngineWriteError) -> ClientError {
    let code = match error {
        EngineWriteError::NotReady | EngineWriteError::Leaving => ErrorCode::NotReady,
        EngineWriteError::ReadOnly => ErrorCode::ReadOnly,
        EngineWriteError::NotPermitted => ErrorCode::Denied,
        EngineWriteError::MemoryFull { .. } => ErrorCode::MemoryFull,
        EngineWriteError::TooManyCopies { .. } | EngineWriteError::OlderPeers => {
            ErrorCode::BadRequest
        }
        EngineWriteError::Write(WriteError::NoEvent) => ErrorCode::NoEvent,
        EngineWriteError::Write(WriteError::AlreadyExists) => ErrorCode::AlreadyExists,
        EngineWriteError::Write(WriteError::IsNew) => ErrorCode::IsNew,
        EngineWriteError::Write(WriteError::ChainMismatch { .. }) => ErrorCode::ChainMismatch,
        EngineWriteError::Write(WriteError::ValueMismatch { .. }) => ErrorCode::DataMismatch,
        EngineWriteError::Write(WriteError::IdReused) => ErrorCode::WidReused,
        EngineWriteError::Write(WriteError::GivenUp) => ErrorCode::GivenUp,
    };
    ClientError::new(code, error.to_string())
}

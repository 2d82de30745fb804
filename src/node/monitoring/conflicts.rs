//! A conflict's line in the log: all that there is to know of both versions, for as long as the
//! log is kept.

use crate::model::entry::Entry;
use crate::model::ids::{Event, NodeTable};
use crate::protocol::json::text_from_msgpack;
use crate::replica::apply::Conflict;

/// Longest value, in MessagePack, that the log shows as it is.
const SHOWN_VALUE_BYTES_MAX: usize = 256;
/// The log shows this many bytes of longer values.
const SHOWN_START_BYTES: usize = 64;

/// Writes the line. Whatever paths and values hold, it stays one line, without sequences that
/// drive a terminal: texts are quoted with escapes.
pub(in crate::node) fn log_conflict(conflict: &Conflict, table: &NodeTable) {
    let (winner, loser) = (&conflict.winner, &conflict.loser);
    if conflict.is_undone_deletion() {
        tracing::warn!(
            path = %conflict.path.to_string().escape_debug(),
            kept = event(winner.newest(), table),
            kept_chain = chain(winner, table),
            kept_tock = winner.tock().get(),
            kept_value = value(winner),
            lost_value = value(loser),
            deleted = event(loser.newest(), table),
            "conflict: a change did not know of a deletion, which was purged meanwhile"
        );
        return;
    }
    tracing::warn!(
        path = %conflict.path.to_string().escape_debug(),
        kept = event(winner.newest(), table),
        kept_chain = chain(winner, table),
        kept_tock = winner.tock().get(),
        kept_value = value(winner),
        lost = event(loser.newest(), table),
        lost_chain = chain(loser, table),
        lost_tock = loser.tock().get(),
        lost_value = value(loser),
        "conflict: two changes met that did not know of each other"
    );
}

fn event(event: Event, table: &NodeTable) -> String {
    table.spell_event(event)
}

/// The chain, newest event first, with dots at the place where it was cut.
fn chain(entry: &Entry, table: &NodeTable) -> String {
    let mut events: Vec<String> = entry.events().map(|e| event(e, table)).collect();
    if entry.is_chain_cut() {
        events.push(String::from("…"));
    }
    events.join(" ")
}

/// A value for people: as JSON, or the start of its bytes if it is long.
fn value(entry: &Entry) -> String {
    let Some(bytes) = entry.value() else { return String::from("(deleted)") };
    if bytes.len() > SHOWN_VALUE_BYTES_MAX {
        let start = bytes.get(..SHOWN_START_BYTES).unwrap_or_default();
        return format!("{}… ({} bytes)", start.escape_ascii(), bytes.len());
    }
    match text_from_msgpack(bytes) {
        Ok(text) => text,
        Err(_) => bytes.escape_ascii().to_string(),
    }
}

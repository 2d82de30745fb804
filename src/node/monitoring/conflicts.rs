//! A conflict's line in the log: all that there is to know of both versions, for as long as the
//! log is kept. Who may write at several nodes can make a hundred thousand in a few seconds, so beyond some a minute
//! they are counted.

use std::collections::HashMap;

use crate::engine::conflicts::CONFLICTS_MAX;
use crate::model::entry::Entry;
use crate::model::ids::{Event, Millis, NodeTable};
use crate::model::meta::shown;
use crate::model::path::Path;
use crate::model::path::bytes::first_element;
use crate::protocol::json::text_from_msgpack;
use crate::replica::apply::Conflict;

/// Longest value, in MessagePack, that the log shows as it is.
const SHOWN_VALUE_BYTES_MAX: usize = 256;
/// The log shows this many bytes of longer values.
const SHOWN_START_BYTES: usize = 64;

/// Most conflicts that have a line in a minute. Those below one first element have as many as are left for all others:
/// alone half of them, so a busy subtree takes no lines from the rest.
const CONFLICT_LINES_MAX: usize = 128;
/// The time of which that is the most, and after which the others are told as a count.
const WINDOW_MS: Millis = 60_000;

/// The log's lines about conflicts.
#[derive(Default)]
pub(in crate::node) struct ConflictLog {
    /// When the first conflict was noted after the last minute; none if nothing was since.
    began: Option<Millis>,
    /// How many have a line in this minute, by the first elements of their paths; and all together. Invariant: at most
    /// [`CONFLICT_LINES_MAX`].
    lines: HashMap<Box<[u8]>, usize>,
    written: usize,
    /// Those without a line.
    left_out: u64,
    /// Reports that the log could not take at all, of conflicts or others.
    dropped: u64,
}

/// What had no lines of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct LeftOut {
    conflicts: u64,
    reports: u64,
}

impl ConflictLog {
    /// Writes a conflict's line, or counts it. (At the level `debug` each has a line.)
    pub(in crate::node) fn log(&mut self, conflict: &Conflict, table: &NodeTable, now: Millis) {
        self.tell(now);
        if self.admits(&conflict.path, now) {
            warn(conflict, table);
        } else {
            debug(conflict, table);
        }
    }

    /// So many reports were dropped before they came here.
    pub(in crate::node) fn note_dropped(&mut self, count: u64, now: Millis) {
        self.began.get_or_insert(now);
        self.dropped += count;
    }

    /// Writes how many had no line, if there were any and the minute is over. At the end of time it is.
    pub(in crate::node) fn tell(&mut self, now: Millis) {
        let LeftOut { conflicts, reports } = self.take_due(now);
        if conflicts > 0 {
            tracing::warn!(
                conflicts,
                "so many further conflicts were found within a minute, and have no line each: `distkv-node conflicts` \
                 lists the last {CONFLICTS_MAX}, and with --log debug each has a line"
            );
        }
        if reports > 0 {
            tracing::warn!(
                reports,
                "so many reports, of conflicts most likely, came faster than the log could take them, and are lost \
                 to it; `distkv-node conflicts` and `distkv-node status` have what was counted"
            );
        }
    }

    /// In how long that is to be done; none if there is nothing to tell.
    pub(in crate::node) fn due_in(&self, now: Millis) -> Option<Millis> {
        let began = self.began.filter(|_| self.left_out > 0 || self.dropped > 0)?;
        Some((began + WINDOW_MS).saturating_sub(now))
    }

    fn take_due(&mut self, now: Millis) -> LeftOut {
        if self.began.is_none_or(|began| now.saturating_sub(began) < WINDOW_MS) {
            return LeftOut::default();
        }
        let over = std::mem::take(self);
        LeftOut { conflicts: over.left_out, reports: over.dropped }
    }

    /// Whether one more has a line.
    fn admits(&mut self, path: &Path, now: Millis) -> bool {
        self.began.get_or_insert(now);
        // The root has none.
        let first = first_element(path.as_bytes()).unwrap_or_default();
        let own = self.lines.get(first).copied().unwrap_or_default();
        let is_admitted = own < CONFLICT_LINES_MAX - self.written;
        if is_admitted {
            self.lines.insert(first.into(), own + 1);
            self.written += 1;
        } else {
            self.left_out += 1;
        }
        is_admitted
    }
}

/// Writes the line at a level. Whatever paths and values hold, it stays one line, without sequences that
/// drive a terminal: texts are quoted with escapes.
macro_rules! at_level {
    ($name:ident) => {
        fn $name(conflict: &Conflict, table: &NodeTable) {
            let (winner, loser) = (&conflict.winner, &conflict.loser);
            let path = conflict.path.as_bytes();
            if conflict.is_undone_deletion() {
                tracing::$name!(
                    path = %conflict.path.to_string().escape_debug(),
                    kept = event(winner.newest(), table),
                    kept_chain = chain(winner, table),
                    kept_tock = winner.tock().get(),
                    kept_value = value(path, winner),
                    lost_value = value(path, loser),
                    deleted = event(loser.newest(), table),
                    "conflict: a change did not know of a deletion, which was purged meanwhile"
                );
                return;
            }
            tracing::$name!(
                path = %conflict.path.to_string().escape_debug(),
                kept = event(winner.newest(), table),
                kept_chain = chain(winner, table),
                kept_tock = winner.tock().get(),
                kept_value = value(path, winner),
                lost = event(loser.newest(), table),
                lost_chain = chain(loser, table),
                lost_tock = loser.tock().get(),
                lost_value = value(path, loser),
                "conflict: two changes met that did not know of each other"
            );
        }
    };
}

at_level!(warn);
at_level!(debug);

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
fn value(path: &[u8], entry: &Entry) -> String {
    let Some(bytes) = entry.value().map(|value| shown(path, value)) else {
        return String::from("(deleted)");
    };
    if bytes.len() > SHOWN_VALUE_BYTES_MAX {
        let start = bytes.get(..SHOWN_START_BYTES).unwrap_or_default();
        return format!("{}… ({} bytes)", start.escape_ascii(), bytes.len());
    }
    match text_from_msgpack(bytes) {
        Ok(text) => text,
        Err(_) => bytes.escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many conflicts below a path have a line.
    fn lines(log: &mut ConflictLog, path: &str, count: usize, now: Millis) -> usize {
        let path = path.parse().unwrap();
        (0..count).filter(|_| log.admits(&path, now)).count()
    }

    #[test]
    fn a_flood_has_some_lines_a_minute_and_then_a_count() {
        let mut log = ConflictLog::default();
        assert_eq!((log.due_in(0), log.take_due(0)), (None, LeftOut::default()));
        assert_eq!(lines(&mut log, "a.x", 64, 1_000), 64);
        assert_eq!(log.due_in(1_000), None, "nothing was left out");
        assert_eq!(lines(&mut log, "a.y", 100_000, 2_000), 0);
        log.note_dropped(7, 2_000);
        assert_eq!((log.due_in(2_000), log.take_due(60_999)), (Some(59_000), LeftOut::default()));
        assert_eq!(log.take_due(61_000), LeftOut { conflicts: 100_000, reports: 7 });
        // And so on; but it is not told that there were none.
        assert_eq!(lines(&mut log, "a.y", 100, 62_000), 64);
        assert_eq!(log.take_due(Millis::MAX), LeftOut { conflicts: 36, reports: 0 });
        assert_eq!((log.due_in(70_000), log.take_due(Millis::MAX)), (None, LeftOut::default()));
    }

    #[test]
    fn a_busy_subtree_leaves_lines_to_the_others() {
        let mut log = ConflictLog::default();
        for (path, expected) in [("a.x", 64), ("b.x", 32), ("a.x", 0), ("c.x", 16), ("d.x", 8)] {
            assert_eq!(lines(&mut log, path, 1_000, 0), expected, "{path}");
        }
        let others = (0..1_000).map(|n| lines(&mut log, &format!("e{n}.x"), 1, 0));
        assert_eq!(others.sum::<usize>(), 8);
        assert_eq!(log.written, CONFLICT_LINES_MAX);
    }

    #[test]
    fn reports_that_never_came_are_told_without_any_conflict() {
        let mut log = ConflictLog::default();
        log.note_dropped(3, 500);
        assert_eq!((log.due_in(500), log.due_in(90_000)), (Some(WINDOW_MS), Some(0)));
        assert_eq!(log.take_due(60_500).reports, 3);
    }
}

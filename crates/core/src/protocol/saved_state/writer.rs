//! Writes saved states and change logs as the Python DistKV does (docs/client-protocol.md, "Saved state and
//! change log"), record by record.
//!
//! The makers of changes are lives of nodes, in their spelling ([`crate::model::spelling`]), which
//! the original takes for their names. The bare name says whose file it is, and no change has it:
//! so a life in such a file is always one of ours, and changes that a server of the original adds
//! under the bare name are never taken for changes of one of them.
//!
//! If the original cannot read back its own logs, these differ from them in ways that it accepts.
//! When it loads a log it skips deletions together with their paths, and so misreads the shortened
//! paths after them: here no path is shortened against a deletion's. A state record after the
//! deletion names the deleted ticks, which the original uses. But with the entry it then drops all
//! entries below it, and entries above it with nothing else below: so those are written once more,
//! as they were.

use std::collections::BTreeSet;

use crate::model::entry::Entry;
use crate::model::ids::{Event, NodeIndex, NodeName, NodeTable, Tick, Tock};
use crate::model::path::Path;
use crate::model::tick_set::TickSet;
use crate::model::value::write::{write_map_len, write_nil, write_str, write_u64};
use crate::protocol::client::MessageWriter;
use crate::protocol::client::chain::write_maker;
use crate::protocol::client::reply::write_ticks;
use crate::protocol::client::shorten::Shortener;
use crate::tree::Tree;

use super::python::check_entry;

/// Most entries that are written again with a deletion. It is rare that an entry with much below it
/// loses its own value, and keeps that.
const REPEATED_MAX: usize = 10_000;

/// What a state record says, in terms of a node table.
#[derive(Debug, Clone, Default)]
pub(crate) struct StateRecord {
    /// Nodes with their highest ticks; none for one that never wrote.
    pub(crate) nodes: Vec<(NodeIndex, Option<Tick>)>,
    /// Superseded ticks.
    pub known: Vec<(NodeIndex, TickSet)>,
    /// Ticks in the chains of tombstones.
    pub(crate) deleted: Vec<(NodeIndex, TickSet)>,
    /// The network's counter.
    pub(crate) tock: Tock,
}

/// Writes one file. Records are appended to a buffer; the caller carries that to the file.
#[derive(Debug)]
pub struct SavedStateWriter {
    /// The name of the node whose file it is.
    own: NodeName,
    paths: Shortener,
}

impl SavedStateWriter {
    /// A writer at the start of a file of a node.
    #[must_use]
    pub(crate) fn new(own: &NodeName) -> Self {
        Self { own: own.clone(), paths: Shortener::new(&Path::root()) }
    }

    /// Appends a state record: what the node knows. A file begins with one.
    pub(crate) fn write_state(
        &mut self,
        state: &StateRecord,
        table: &NodeTable,
        out: &mut Vec<u8>,
    ) {
        let nodes = &state.nodes;
        let bare = self.bare_names(nodes, table);
        let mut message = MessageWriter::new(out);
        let map = message.key("nodes");
        write_map_len(nodes.len() + bare.len(), map);
        for (node, tick) in nodes {
            write_maker(*node, table, map);
            match tick {
                Some(tick) => write_u64(tick.get(), map),
                None => write_nil(map),
            }
        }
        for name in bare {
            write_str(name.as_str(), map);
            write_u64(0, map);
        }
        for (field, sets) in [("known", &state.known), ("deleted", &state.deleted)] {
            let map = message.key(field);
            write_map_len(sets.len(), map);
            for (node, ticks) in sets {
                write_maker(*node, table, map);
                write_ticks(ticks, map);
            }
        }
        message.str("node", self.own.as_str()).tock(state.tock);
    }

    /// The names of all nodes of which the file has lives. The original starts a server on a file
    /// only if the file names the server: so these are there, too, as nodes that have not written
    /// yet.
    fn bare_names<'t>(
        &'t self,
        nodes: &[(NodeIndex, Option<Tick>)],
        table: &'t NodeTable,
    ) -> BTreeSet<&'t NodeName> {
        if nodes.is_empty() {
            return BTreeSet::new();
        }
        let names = nodes.iter().map(|(node, _)| &table.id(*node).name);
        names.chain([&self.own]).collect()
    }

    /// Appends an entry of a saved state. Tombstones have no place there: their ticks are in the
    /// state record.
    pub(crate) fn write_entry(
        &mut self,
        path: &Path,
        entry: &Entry,
        table: &NodeTable,
        out: &mut Vec<u8>,
    ) {
        let Some(value) = entry.value() else { return };
        let mut message = MessageWriter::new(out);
        message.raw("value", value);
        let events: Vec<Event> = entry.events().collect();
        write_links(&events, entry.is_chain_cut(), table, message.key("chain"));
        message.tock(entry.tock());
        self.paths.add_path(path, &mut message);
    }

    /// Appends a change of a log. `replaced` is the version that the change replaced, if it is
    /// known, and `tree` is the state with the change. Returns whether the original accepts it: not
    /// the deletion of an entry with very much below it.
    pub fn write_change(
        &mut self,
        path: &Path,
        entry: &Entry,
        replaced: Option<&Entry>,
        tree: &Tree,
        table: &NodeTable,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(value) = entry.value() else {
            return self.write_deletion(path, entry, replaced, tree, table, out);
        };
        self.write_change_record(path, entry, Some(value), table, out);
        true
    }

    fn write_deletion(
        &mut self,
        path: &Path,
        entry: &Entry,
        replaced: Option<&Entry>,
        tree: &Tree,
        table: &NodeTable,
        out: &mut Vec<u8>,
    ) -> bool {
        self.paths = Shortener::new(&Path::root());
        self.write_change_record(path, entry, None, table, out);
        self.paths = Shortener::new(&Path::root());
        let Some(forgotten) = forgotten_with(path, tree) else { return false };
        let mut deleted: Vec<(NodeIndex, TickSet)> = Vec::new();
        for event in entry.events().chain(replaced.into_iter().flat_map(Entry::events)) {
            match deleted.iter_mut().find(|(node, _)| *node == event.node) {
                Some((_, ticks)) => drop(ticks.insert(event.tick)),
                None => deleted.push((event.node, std::iter::once(event.tick).collect())),
            }
        }
        let state = StateRecord { deleted, tock: entry.tock(), ..StateRecord::default() };
        self.write_state(&state, table, out);
        for (path, entry) in &forgotten {
            self.write_change_record(path, entry, entry.value(), table, out);
        }
        true
    }

    fn write_change_record(
        &mut self,
        path: &Path,
        entry: &Entry,
        value: Option<&[u8]>,
        table: &NodeTable,
        out: &mut Vec<u8>,
    ) {
        let mut events = entry.events();
        let Some(newest) = events.next() else { return };
        let older: Vec<Event> = events.collect();
        let mut message = MessageWriter::new(out);
        write_maker(newest.node, table, message.key("node"));
        message.u64("tick", newest.tick.get());
        if !older.is_empty() || !entry.is_chain_cut() {
            let prev = message.key("prev");
            write_links(&older, entry.is_chain_cut(), table, prev);
        }
        let depth = self.paths.write_path(path, &mut message);
        if let Some(value) = value {
            message.raw("value", value);
        }
        message.tock(entry.tock()).u64("depth", depth as u64);
    }
}

/// The entries that the original drops when an entry is deleted, parents first; none if they are
/// too many to be written again.
fn forgotten_with(path: &Path, tree: &Tree) -> Option<Vec<(Path, Entry)>> {
    if path.is_root() {
        // The root stays, with all below it.
        return Some(Vec::new());
    }
    let is_there = |path: &Path, entry: &Entry| {
        entry.value().is_some_and(|value| check_entry(tree, path, value).is_ok())
    };
    let below: Vec<(Path, Entry)> = tree
        .subtree(path)
        .filter(|(path, entry)| is_there(path, entry))
        .take(REPEATED_MAX + 1)
        .map(|(path, entry)| (path.clone(), entry.clone()))
        .collect();
    if below.len() > REPEATED_MAX {
        return None;
    }
    // Above it: up to where something else is below.
    let mut child = path.clone();
    let mut forgotten = Vec::new();
    for length in (1..path.len()).rev() {
        let parent = path.prefix(length);
        let is_other = |other: &Path| *other != parent && !other.starts_with(&child);
        if tree.subtree(&parent).any(|(other, entry)| is_other(other) && is_there(other, entry)) {
            break;
        }
        if let Some(entry) = tree.get(parent.as_bytes()).filter(|entry| is_there(&parent, entry)) {
            forgotten.push((parent.clone(), entry.clone()));
        }
        child = parent;
    }
    forgotten.reverse();
    forgotten.extend(below);
    Some(forgotten)
}

/// Appends nested maps `{node, tick, prev}`; nil if there are no events.
fn write_links(events: &[Event], is_cut: bool, table: &NodeTable, out: &mut Vec<u8>) {
    for (at, event) in events.iter().enumerate() {
        let ends_here = is_cut && at + 1 == events.len();
        write_map_len(if ends_here { 2 } else { 3 }, out);
        write_str("node", out);
        write_maker(event.node, table, out);
        write_str("tick", out);
        write_u64(event.tick.get(), out);
        if ends_here {
            return;
        }
        write_str("prev", out);
        // The next event's map follows.
    }
    write_nil(out);
}

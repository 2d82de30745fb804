//! Writes saved states and change logs as the Python DistKV does (PROTOCOL, saved state and
//! change log), record by record.
//!
//! A file's nodes are named by their labels, as clients see them ([`NodeTable::label`]). Within
//! one file a node keeps the name that it got first, also when another life of it becomes known.
//!
//! Where the original's own logs cannot be read back by the original, these differ from them in ways
//! that it takes. When it loads a log it skips deletions, their paths too, and so mistakes the
//! shortened paths behind them: here no path is shortened against a deletion's. A state record
//! behind it names the ticks that are deleted; of that it takes notice, but it then forgets, with
//! the entry, all that is below it, and what is above it with nothing else below: so that is
//! written once more, as it was.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use crate::model::entry::Entry;
use crate::model::ids::{Event, NodeId, NodeIndex, NodeTable, Tick, Tock};
use crate::model::path::Path;
use crate::model::tick_set::TickSet;
use crate::model::tree::Tree;
use crate::model::value::write::{write_map_len, write_nil, write_str, write_u64};
use crate::protocol::client::MessageWriter;
use crate::protocol::client::reply::write_ticks;
use crate::protocol::client::shorten::Shortener;

use super::python::check_entry;

/// Most entries that are written again with a deletion. It is rare that an entry with much below it
/// loses its own value, and keeps that.
const REPEATED_MAX: usize = 10_000;

/// What a state record says, in terms of a node table.
#[derive(Debug, Clone, Default)]
pub struct StateRecord {
    /// Nodes with their highest ticks; none for one that never wrote.
    pub nodes: Vec<(NodeIndex, Option<Tick>)>,
    /// Superseded ticks.
    pub known: Vec<(NodeIndex, TickSet)>,
    /// Ticks in the chains of tombstones.
    pub deleted: Vec<(NodeIndex, TickSet)>,
    /// The network's counter.
    pub tock: Tock,
}

/// Writes one file. Records are appended to a buffer; the caller carries that to the file.
#[derive(Debug)]
pub struct SavedStateWriter {
    /// The label of the node whose file it is.
    own: String,
    labels: Labels,
    paths: Shortener,
}

impl SavedStateWriter {
    /// A writer at the start of a file of a node. One that is not in the table goes by its name.
    #[must_use]
    pub fn new(own: &NodeId, table: &NodeTable) -> Self {
        let mut labels = Labels::default();
        let own = match table.find(own.name.as_str(), own.incarnation) {
            Some(node) => labels.of(node, table).to_owned(),
            None => own.name.to_string(),
        };
        Self { own, labels, paths: Shortener::new(&Path::root()) }
    }

    /// Appends a state record: what the node knows. A file begins with one.
    pub fn write_state(&mut self, state: &StateRecord, table: &NodeTable, out: &mut Vec<u8>) {
        let nodes: Vec<_> = state
            .nodes
            .iter()
            .map(|(node, tick)| (self.labels.of(*node, table).to_owned(), *tick))
            .collect();
        let bare = self.bare_names(&nodes);
        let mut message = MessageWriter::new(out);
        let map = message.key("nodes");
        write_map_len(nodes.len() + bare.len(), map);
        for (label, tick) in nodes {
            write_str(&label, map);
            match tick {
                Some(tick) => write_u64(tick.get(), map),
                None => write_nil(map),
            }
        }
        for name in bare {
            write_str(&name, map);
            write_u64(0, map);
        }
        for (field, sets) in [("known", &state.known), ("deleted", &state.deleted)] {
            let map = message.key(field);
            write_map_len(sets.len(), map);
            for (node, ticks) in sets {
                write_str(self.labels.of(*node, table), map);
                write_ticks(ticks, map);
            }
        }
        message.str("node", &self.own).tock(state.tock);
    }

    /// Names that stand in the file with their lives only. The original starts a server on a file
    /// only if the file names it: so these are there too, as nodes that have not written yet.
    fn bare_names(&self, nodes: &[(String, Option<Tick>)]) -> Vec<String> {
        if nodes.is_empty() {
            return Vec::new();
        }
        let labels: HashSet<&str> = nodes.iter().map(|(label, _)| label.as_str()).collect();
        let all = labels.iter().copied().chain([self.own.as_str()]);
        let names = all.map(|label| label.split('~').next().unwrap_or(label));
        let mut bare: Vec<String> =
            names.filter(|name| !labels.contains(name)).map(str::to_owned).collect();
        bare.sort_unstable();
        bare.dedup();
        bare
    }

    /// Appends an entry of a saved state. Tombstones have no place there: their ticks are in the
    /// state record.
    pub fn write_entry(
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
        self.labels.write_links(&events, entry.is_chain_cut(), table, message.key("chain"));
        message.tock(entry.tock());
        self.paths.add_path(path, &mut message);
    }

    /// Appends a change of a log. `replaced` is what the change took the place of, where that is
    /// known, and `tree` is the state with the change. Tells whether the original takes notice of
    /// it: not of the deletion of an entry with very much below it.
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
        message.str("node", self.labels.of(newest.node, table));
        message.u64("tick", newest.tick.get());
        if !older.is_empty() || !entry.is_chain_cut() {
            let prev = message.key("prev");
            self.labels.write_links(&older, entry.is_chain_cut(), table, prev);
        }
        let depth = self.paths.write_path(path, &mut message);
        if let Some(value) = value {
            message.raw("value", value);
        }
        message.tock(entry.tock()).u64("depth", depth as u64);
    }
}

/// What the original forgets when it is told that an entry is deleted, parents first; none if that
/// is too much to be written again.
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

/// The names of a file's nodes. Each is fixed when it is first asked for.
#[derive(Debug, Default)]
struct Labels {
    given: HashMap<NodeIndex, String>,
    /// Invariant: those of `given`.
    used: HashSet<String>,
}

impl Labels {
    fn of(&mut self, node: NodeIndex, table: &NodeTable) -> &str {
        if !self.given.contains_key(&node) {
            let mut label = table.label(node);
            if self.used.contains(&label) {
                // It was another life's when that was the only one.
                if let Some(id) = table.get(node) {
                    label = id.name.to_string();
                    // Writing to a string cannot fail.
                    let _ = write!(label, "~{:016x}", id.incarnation.0);
                }
            }
            self.used.insert(label.clone());
            self.given.insert(node, label);
        }
        self.given.get(&node).map_or("", String::as_str)
    }

    /// Appends nested maps `{node, tick, prev}`; nil if there are no events.
    fn write_links(
        &mut self,
        events: &[Event],
        is_cut: bool,
        table: &NodeTable,
        out: &mut Vec<u8>,
    ) {
        for (at, event) in events.iter().enumerate() {
            let ends_here = is_cut && at + 1 == events.len();
            write_map_len(if ends_here { 2 } else { 3 }, out);
            write_str("node", out);
            write_str(self.of(event.node, table), out);
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
}

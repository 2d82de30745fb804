//! An image as a saved state of the Python DistKV: what that can hold, and an account of what it
//! cannot.
//!
//! - Nodes have no incarnations there; the spelling of a life serves as the name. A life that owns
//!   no entries and is not the only one of its name is left out.
//! - Tombstones are given by their ticks alone; purges and the Delete group are left out.
//! - An entry that the original could not load ([`python`]) is left out; its ticks are given as
//!   superseded, because a server would not start if they were missing.
//! - Re-issues lose the event that first brought their value, which only means something here.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::Image;
use crate::engine::exchange::{Entries, PIECE_BYTES};
use crate::engine::view::{ChainTicks, TickSets};
use crate::model::entry::Entry;
use crate::model::ids::{NodeIndex, NodeTable, Tick};
use crate::model::path::Path;
use crate::model::tick_set::TickSet;
use crate::protocol::saved_state::SavedStateWriter;
use crate::protocol::saved_state::python::{self, Inexpressible, RANK_LAST, rank_for_python};
use crate::protocol::saved_state::writer::StateRecord;

/// At most this many entries that are left out are named; the rest is counted.
pub const LEFT_OUT_NAMED_MAX: usize = 100;

/// What became of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportReport {
    /// Entries with a value that are in the file.
    pub entries: u64,
    /// Tombstones; only their ticks are in the file.
    pub tombstones: u64,
    /// Entries with a value that are not in the file.
    pub left_out: u64,
    /// The first of them, in the order of the tree, and why.
    pub named: Vec<(Path, Inexpressible)>,
    /// Lives of nodes of which the image knows several.
    pub lives: u64,
    /// Changes that the image cannot account for: a server of the original that loads the file asks
    /// others for them, and does not start without them unless told otherwise.
    pub missing: u64,
}

/// Makes the file, piece by piece.
pub struct SavedStateExport {
    image: Image,
    writer: SavedStateWriter,
    /// The first record, until it is written.
    state: Option<StateRecord>,
    left_out: BTreeSet<Path>,
    /// The walk, and its next entries.
    entries: Entries,
    rank: u8,
    report: ExportReport,
}

impl SavedStateExport {
    /// Looks at the whole image first: the file begins with what the rest of it holds.
    #[must_use]
    pub fn new(image: Image) -> Self {
        let mut report = ExportReport::default();
        let left_out = Self::find_left_out(&image, &mut report);
        let state = state_record(&image, &left_out, &mut report);
        let replica = &image.replica;
        Self {
            writer: SavedStateWriter::new(&replica.id.name),
            state: Some(state),
            left_out,
            entries: Entries::below(&replica.tree, &Path::root()),
            rank: 0,
            report,
            image,
        }
    }

    fn find_left_out(image: &Image, report: &mut ExportReport) -> BTreeSet<Path> {
        let tree = &image.replica.tree;
        let mut left_out: BTreeMap<Path, Inexpressible> = BTreeMap::new();
        for (path, entry) in tree.all() {
            let Some(value) = entry.value() else {
                report.tombstones += 1;
                continue;
            };
            match python::check_entry(tree, &path, value) {
                Ok(()) => report.entries += 1,
                Err(why) => drop(left_out.insert(path, why)),
            }
        }
        report.left_out = left_out.len() as u64;
        report.named = left_out
            .iter()
            .take(LEFT_OUT_NAMED_MAX)
            .map(|(path, why)| (path.clone(), why.clone()))
            .collect();
        left_out.into_keys().collect()
    }

    /// What is in the file; right from the start.
    #[must_use]
    pub fn report(&self) -> &ExportReport {
        &self.report
    }

    /// Appends what the node knows, if that is not written yet: what a file begins with.
    pub fn write_state(&mut self, out: &mut Vec<u8>) {
        if let Some(state) = self.state.take() {
            self.writer.write_state(&state, &self.image.replica.table, out);
        }
    }

    /// The writer of the file, with the names that it has given to nodes; used to continue it as a
    /// log.
    #[must_use]
    pub fn into_writer(self) -> SavedStateWriter {
        self.writer
    }

    /// Appends the next piece of the file; returns whether there is more.
    pub fn next_piece(&mut self, out: &mut Vec<u8>) -> bool {
        let from = out.len();
        self.write_state(out);
        let table = &self.image.replica.table;
        while out.len() - from < PIECE_BYTES {
            let Some((path, entry)) = self.entries.next() else {
                if self.rank == RANK_LAST {
                    return false;
                }
                self.rank += 1;
                self.entries = Entries::below(&self.image.replica.tree, &Path::system_root());
                continue;
            };
            if self.rank == 0 && path.is_system() {
                // Its turn comes later.
                self.entries.skip_subtree(&Path::system_root());
            } else if rank_for_python(&path) == self.rank && !self.left_out.contains(&path) {
                self.writer.write_entry(&path, &entry, table, out);
            }
        }
        true
    }
}

/// What the file's writer knows, as far as the file goes.
fn state_record(
    image: &Image,
    left_out: &BTreeSet<Path>,
    report: &mut ExportReport,
) -> StateRecord {
    let replica = &image.replica;
    let table: &NodeTable = &replica.table;
    let is_in = |(path, entry): (Path, Entry)| (!left_out.contains(&path)).then_some(entry);
    let chains = ChainTicks::of(replica.tree.all().filter_map(is_in), replica.tree.len());
    let own = table.find(replica.id.name.as_str(), replica.id.incarnation);
    let mut state = StateRecord { tock: replica.tock, ..StateRecord::default() };
    for (node, id) in table.iter() {
        let seen = replica.seen.get(node);
        let is_only = table.incarnations(id.name.as_str()).len() == 1;
        let owns = chains.present.contains_key(&node);
        if !(owns || Some(node) == own || (is_only && seen.is_some())) {
            continue;
        }
        report.lives += u64::from(!is_only);
        let seen = seen.cloned().unwrap_or_default();
        let highest = Tick::new(seen.max()).filter(|tick| *tick > Tick::default());
        state.nodes.push((node, highest));
        report.missing += seen.missing_below(seen.max()).count();
        let superseded = seen.difference(ticks_of(&chains.present, node, &TickSet::new()));
        if !superseded.is_empty() {
            state.known.push((node, superseded));
        }
        if let Some(deleted) = chains.deleted.get(&node) {
            state.deleted.push((node, deleted.clone()));
        }
    }
    state
}

fn ticks_of<'s>(sets: &'s TickSets, node: NodeIndex, nothing: &'s TickSet) -> &'s TickSet {
    sets.get(&node).unwrap_or(nothing)
}

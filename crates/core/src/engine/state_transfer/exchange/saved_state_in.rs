//! A saved state or a change log of the Python DistKV as an image. [`SavedFile`] says which lives its
//! nodes are, it has no mark and no Delete group: the "other file" of replication rule 9.

use std::collections::BTreeMap;
use std::sync::Arc;

use xxhash_rust::xxh64::xxh64;

use super::access::AccessPart;
use crate::engine::Image;
use crate::engine::load::SavedFile;
use crate::model::count::count_of;
use crate::model::entry::Entry;
use crate::model::ids::{Event, NodeId, NodeIndex, NodeName, NodeTable, Tick, Tock};
use crate::model::invariant::OrBroken;
use crate::model::path::Path;
use crate::model::seen::{Mark, Seen};
use crate::model::tick_set::TickSet;
use crate::protocol::saved_state::{
    SavedEntry, SavedNode, SavedRecord, SavedState, SavedStateError, SavedStateProblem,
    SavedStateReader, UnusableEntry,
};
use crate::replica::come_back::ReplicaImage;
use crate::tree::Tree;

/// What a file holds.
pub struct SavedImage {
    /// All of it that can be here.
    pub image: Image,
    /// Changes that were read, or left aside because they came after the moment asked for.
    pub changes: Changes,
    /// Entries that cannot be here: where in the file, and why.
    pub unusable: Vec<(u64, UnusableEntry)>,
    /// That the file ends within a record, whose beginning was left out: its writer was killed,
    /// probably.
    pub cut_off: Option<SavedStateError>,
    /// Whether it has changes: it is a log, which may be written still.
    pub is_log: bool,
    /// Of a saved state: changes that its writer knew, and that are in none of its records. The format has no end
    /// mark, so only this shows that a file was cut off between two entries; or its writer lacked them itself.
    pub lacking: u64,
}

/// How many changes (or entries) a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changes {
    /// That are in the image, or were until a later one of the file took their place.
    pub taken: u64,
    /// That are later than the moment asked for.
    pub(crate) later: u64,
}

/// Why a file makes no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SavedImageError {
    /// It is damaged, or no such file at all.
    #[error(transparent)]
    Read(#[from] SavedStateError),
    /// It names more nodes than a node can keep track of.
    #[error("the file names more nodes than a node can keep track of")]
    TableFull,
}

/// Reads a whole file. With `until`, only changes with at most this tock; what the file's writer
/// knew, which is more than that, is then left aside.
///
/// # Errors
/// [`SavedImageError`].
pub fn image_of_saved_state(
    content: &[u8],
    until: Option<Tock>,
) -> Result<SavedImage, SavedImageError> {
    let hash = xxh64(content, 0);
    // Nearly always the first record of the file.
    let first = SavedStateReader::read_all(content).find_map(|record| match record {
        Ok(SavedRecord::State(state)) => Some(state),
        _ => None,
    });
    let mut reading = Reading {
        file: SavedFile::new(hash, first.as_ref()),
        table: NodeTable::new(),
        tree: Tree::new(hash),
        seen: Seen::new(),
        tock: Tock::default(),
    };
    let (mut states, mut unusable, mut cut_off) = (Vec::new(), Vec::new(), None);
    let mut changes = Changes::default();
    let mut records = SavedStateReader::read_all(content);
    for record in records.by_ref() {
        match record {
            Ok(SavedRecord::Entry(entry)) if until.is_some_and(|until| entry.tock > until) => {
                changes.later += 1;
            }
            Ok(SavedRecord::Entry(entry)) => {
                changes.taken += 1;
                reading.take_entry(&entry)?;
            }
            Ok(SavedRecord::State(state)) => states.push(state),
            Ok(SavedRecord::Unusable { offset, reason }) => unusable.push((offset, reason)),
            Err(error) if matches!(error.problem, SavedStateProblem::CutOff(_)) => {
                cut_off = Some(error);
            }
            Err(error) => return Err(error.into()),
        }
    }
    let is_log = records.is_log();
    // Of entries that cannot be here, nobody knows the changes.
    let is_whole = !is_log && until.is_none() && unusable.is_empty();
    let ticks_of = |node: &SavedNode| {
        let known = reading.table.find(node.name().as_str(), reading.file.incarnation_of(node))?;
        reading.seen.get(known)
    };
    let lacking = first.as_ref().filter(|_| is_whole).map_or(0, |state| lacking(state, ticks_of));
    if until.is_none() {
        // Data before knowledge.
        states.iter().try_for_each(|state| reading.take_state(state))?;
    }
    let image = reading.finish(first.as_ref())?;
    Ok(SavedImage { image, changes, unusable, cut_off, is_log, lacking })
}

/// How many changes the writer of a saved state knew that are in none of its records: see [`SavedImage::lacking`]. `ticks_of`:
/// the ticks in the chains of the entries that were read, of a node. Says nothing of a log, nor of a file of which entries
/// cannot be here.
fn lacking<'t>(state: &SavedState, ticks_of: impl Fn(&SavedNode) -> Option<&'t TickSet>) -> u64 {
    let mut listed: BTreeMap<&SavedNode, TickSet> = BTreeMap::new();
    for (node, ticks) in state.known.iter().chain(&state.deleted) {
        listed.entry(node).or_default().union_with(ticks);
    }
    let lacking = state.nodes.iter().map(|(node, tick)| {
        let mut there = listed.remove(node).unwrap_or_default();
        if let Some(ticks) = ticks_of(node) {
            there.union_with(ticks);
        }
        there.missing_below(tick.map_or(0, Tick::get)).count()
    });
    // A file can name any ticks.
    lacking.fold(0, u64::saturating_add)
}

/// What people should know of a saved state that lacks so many changes; none if it lacks none.
#[must_use]
pub fn lacking_text(lacking: u64) -> Option<String> {
    let count = (lacking > 0).then(|| count_of(lacking, "change", "changes"))?;
    Some(format!(
        "{count} that its node knew are missing: the file was cut off between two entries, or the node lacked them, too"
    ))
}

/// What people should know of a file, gathered while its records are read one after the other.
#[derive(Default)]
pub struct Survey {
    /// The ticks in the chains of its entries.
    ticks: BTreeMap<SavedNode, TickSet>,
    /// Whether what is below nil has a value, by its newest version.
    system: BTreeMap<Path, (Tock, bool)>,
}

impl Survey {
    /// Takes in the next entry.
    pub fn note(&mut self, entry: &SavedEntry) {
        for (node, tick) in &entry.chain {
            match self.ticks.get_mut(node) {
                Some(ticks) => ticks.insert(*tick),
                None => self.ticks.entry(node.clone()).or_default().insert(*tick),
            };
        }
        if entry.path.is_system() {
            let (newest, has_value) = self.system.entry(entry.path.clone()).or_default();
            if entry.tock >= *newest {
                (*newest, *has_value) = (entry.tock, entry.value.is_some());
            }
        }
    }

    /// See [`SavedImage::lacking`].
    #[must_use]
    pub fn lacking(&self, state: &SavedState) -> u64 {
        lacking(state, |node| self.ticks.get(node))
    }

    /// Who may use the data.
    #[must_use]
    pub fn access(&self) -> AccessPart {
        let valued = self.system.iter().filter(|(_, (_, has_value))| *has_value);
        AccessPart::of_paths(valued.map(|(path, _)| path))
    }
}

/// The writer of a file that does not name one.
const NOBODY: &str = "nobody";

struct Reading {
    file: SavedFile,
    table: NodeTable,
    tree: Tree,
    seen: Seen,
    tock: Tock,
}

impl Reading {
    fn node(&mut self, node: &SavedNode) -> Result<NodeIndex, SavedImageError> {
        let id = NodeId { name: node.name().clone(), incarnation: self.file.incarnation_of(node) };
        self.table.intern(&id).ok_or(SavedImageError::TableFull)
    }

    fn take_entry(&mut self, saved: &SavedEntry) -> Result<(), SavedImageError> {
        let mut events = Vec::with_capacity(saved.chain.len());
        for (node, tick) in &saved.chain {
            let event = Event { node: self.node(node)?, tick: *tick };
            self.seen.insert(event);
            events.push(event);
        }
        let entry = saved.with_events(events);
        self.tock = self.tock.max(saved.tock);
        let stays = |old: &Entry| entry.compare(old, &self.table).is_le();
        if !self.tree.get(saved.path.as_bytes()).is_some_and(stays) {
            self.tree.insert(&saved.path, entry);
        }
        Ok(())
    }

    /// All ticks of its own nodes ([`SavedFile::is_own`]) are accounted for, up to the highest that the
    /// file names: also
    /// those of tombstones, of entries that cannot exist here, and any that the writer itself was
    /// missing. Nothing but this file could ever bring them.
    fn take_state(&mut self, state: &SavedState) -> Result<(), SavedImageError> {
        let mut highest: BTreeMap<&SavedNode, u64> = BTreeMap::new();
        let sets = state.known.iter().chain(&state.deleted);
        let named = sets.map(|(node, ticks)| (node, ticks.max()));
        let last = state.nodes.iter().map(|(node, tick)| (node, tick.map_or(0, Tick::get)));
        for (node, tick) in named.chain(last) {
            let known = highest.entry(node).or_default();
            *known = (*known).max(tick);
        }
        for (node, tick) in highest {
            if tick == 0 || !self.file.is_own(node) {
                continue;
            }
            let node = self.node(node)?;
            let entries = self.seen.get(node).map_or(0, TickSet::max);
            let all = TickSet::range(1, tick.max(entries) + 1);
            let all = all.or_broken("ticks that were read are below 2^62");
            self.seen.union_node(node, &all);
        }
        self.tock = self.tock.max(state.tock);
        Ok(())
    }

    fn finish(mut self, first: Option<&SavedState>) -> Result<Image, SavedImageError> {
        let node = match first {
            Some(state) => state.node.clone(),
            // Only entries, or nothing.
            None => NodeName::new(NOBODY)
                .map_err(|error| SavedStateProblem::Name(error.into()))
                .map_err(|problem| SavedStateError { offset: 0, problem })?
                .into(),
        };
        let own = self.node(&node)?;
        let id = NodeId { name: node.name().clone(), incarnation: self.file.incarnation_of(&node) };
        let tick = self.seen.get(own).and_then(|ticks| Tick::new(ticks.max())).unwrap_or_default();
        Ok(Image {
            replica: ReplicaImage {
                id,
                table: Arc::new(self.table),
                tree: self.tree,
                seen: self.seen,
                mark: Mark::default(),
                tick,
                tock: self.tock,
            },
            group: None,
            decided: None,
        })
    }
}

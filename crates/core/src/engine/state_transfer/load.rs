//! A saved state of the Python DistKV, taken into a node (replication rule 9, "any other file"):
//! its entries by rule 2 without refusing, then what the file's writer had accounted for, but no
//! mark.
//!
//! The file's nodes have no incarnations. They get one that is derived from the file's content
//! ([`SavedFile`]): so they are never mistaken for nodes of this network that have the same names,
//! and what one file's writer knew says nothing about the entries of another file. With one
//! incarnation for all files, two nodes that loaded different ones could differ for ever: a saved
//! state claims ticks of deleted entries, for which it holds no tombstones.
//!
//! A file that was written here names lives of nodes. Those stay what they are: events keep their
//! identity on the way to the Python DistKV and back. For the same reason as above, nothing is
//! accounted for of them but the events in the chains of the file's entries.
//!
//! The caller reads the file outside of the lock and hands over some entries at a time; data
//! before knowledge: the states come last, when all entries are in.

use std::collections::BTreeMap;

use xxhash_rust::xxh64::xxh64;

use crate::engine::{Engine, Outbox};
use crate::model::ids::{Event, Incarnation, NodeIndex, Tick};
use crate::model::invariant::OrBroken;
use crate::model::seen::{Mark, Seen};
use crate::model::tick_set::TickSet;
use crate::protocol::saved_state::{SavedEntry, SavedNode, SavedState};
use crate::replica::across::{Answers, Knowledge};

/// A file that is being taken in: which lives its nodes are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedFile {
    /// xxHash64 (seed 0) of all bytes of the file.
    hash: u64,
    /// A life under which a server of the original wrote the file, because it was given that name.
    /// Files that we write always name a bare name as their writer.
    usurped: Option<SavedNode>,
}

impl SavedFile {
    /// From the xxHash64 (seed 0) of all bytes of the file, and its first state record: the same
    /// file gives the same lives wherever it is loaded.
    #[must_use]
    pub fn new(xxh64: u64, first: Option<&SavedState>) -> Self {
        let usurped = first.map(|state| &state.node).filter(|node| node.life().is_some());
        Self { hash: xxh64, usurped: usurped.cloned() }
    }

    /// The incarnation of one of its nodes: the one that the file names, else one that is made of
    /// the file's content.
    #[must_use]
    pub(crate) fn incarnation_of(&self, node: &SavedNode) -> Incarnation {
        match node.life().filter(|_| !self.is_own(node)) {
            Some(incarnation) => incarnation,
            // Not the one of the bare name: these are two nodes of one file.
            None if node.life().is_some() => {
                Incarnation::of_random(xxh64(node.to_string().as_bytes(), self.hash))
            }
            None => Incarnation::of_random(self.hash),
        }
    }

    /// Whether a node's events can be in no other file and in no network, so that nothing but this
    /// file could ever bring those that it does not hold.
    #[must_use]
    pub fn is_own(&self, node: &SavedNode) -> bool {
        node.life().is_none() || self.usurped.as_ref() == Some(node)
    }
}

/// Why a file was not taken in (any further). Entries taken in before stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoadError {
    /// The node has applied purges: entries of the file that were purged here cannot be told from
    /// new ones.
    #[error("this node has dropped deleted entries already; load the file into a fresh node")]
    Purged,
    /// More nodes than the node table holds.
    #[error("more nodes are known than this node can keep track of")]
    TableFull,
    /// The file holds changes of this very life of the node that it has not made.
    #[error(
        "the file holds changes under this node's own identity; restart the node and try again"
    )]
    Identity,
}

impl Engine {
    /// Takes in an entry of a file.
    ///
    /// # Errors
    /// [`LoadError`]; this entry was not taken in.
    pub(in crate::engine) fn load_entry(
        &mut self,
        file: &SavedFile,
        saved: &SavedEntry,
        out: &mut Outbox,
    ) -> Result<(), LoadError> {
        if *self.mark() != Mark::default() {
            return Err(LoadError::Purged);
        }
        let mut events = Vec::with_capacity(saved.chain.len());
        for (node, tick) in &saved.chain {
            events.push(Event { node: self.saved_node(file, node)?, tick: *tick });
        }
        let entry = saved.with_events(events);
        // With marks that are equal, only what asks for an event of a node that can make none is refused.
        let taken = self.take_entry(&saved.path, &entry, &Mark::default(), out);
        if taken.refused { Err(LoadError::Identity) } else { Ok(()) }
    }

    /// Takes in what the file's writer knew, once all entries are in. All ticks of its own nodes
    /// ([`SavedFile::is_own`]) are accounted for, up to the highest that the file names: superseded ones, those of
    /// tombstones (of which a file has no entries), of entries that cannot exist here, and any
    /// that the writer itself was missing. Nothing but this file could ever bring them.
    ///
    /// # Errors
    /// [`LoadError`]; nothing of the state was taken in.
    pub(in crate::engine) fn load_state(
        &mut self,
        file: &SavedFile,
        state: &SavedState,
        out: &mut Outbox,
    ) -> Result<(), LoadError> {
        if *self.mark() != Mark::default() {
            return Err(LoadError::Purged);
        }
        let mut highest: BTreeMap<&SavedNode, u64> = BTreeMap::new();
        let sets = state.known.iter().chain(&state.deleted);
        let named = sets.map(|(name, ticks)| (name, ticks.max()));
        let last = state.nodes.iter().map(|(name, tick)| (name, tick.map_or(0, Tick::get)));
        for (name, tick) in named.chain(last) {
            let known = highest.entry(name).or_default();
            *known = (*known).max(tick);
        }
        let mut seen = Seen::new();
        for (name, tick) in highest {
            if tick == 0 || !file.is_own(name) {
                continue;
            }
            let node = self.saved_node(file, name)?;
            let entries = self.seen().get(node).map_or(0, TickSet::max);
            self.peers.note_change(node);
            let all = TickSet::range(1, tick.max(entries) + 1);
            let all = all.or_broken("ticks that were read are below 2^62");
            seen.union_node(node, &all);
        }
        let known = Knowledge { seen, mark: Mark::default(), tock: state.tock };
        // At equal marks there is nothing to drop or to re-issue.
        let across = self.replica.step_across(&known, &Answers::default());
        across.or_broken("a step between equal marks cannot fail");
        self.note_knowledge();
        self.tell_knowledge(out);
        Ok(())
    }

    fn saved_node(&mut self, file: &SavedFile, node: &SavedNode) -> Result<NodeIndex, LoadError> {
        let (name, incarnation) = (node.name().as_str(), file.incarnation_of(node));
        self.replica.intern_name(name, incarnation).ok_or(LoadError::TableFull)
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::load::*;
    use crate::engine::{Config, Input};
    use crate::model::entry::Entry;
    use crate::model::ids::{NodeId, NodeName};
    use crate::protocol::saved_state::{SavedRecord, SavedStateReader};

    const SAVED: &[u8] =
        include_bytes!("../../../../../tests/fixtures/distkv-files/saved-state.bin");
    const LOG: &[u8] = include_bytes!("../../../../../tests/fixtures/distkv-files/change-log.bin");

    fn file(content: &[u8]) -> SavedFile {
        SavedFile::new(xxhash_rust::xxh64::xxh64(content, 0), None)
    }

    fn life_of(content: &[u8], node: &str) -> Incarnation {
        file(content).incarnation_of(&SavedNode::new(node).unwrap())
    }

    fn load(engine: &mut Engine, content: &[u8]) {
        let mut out = Outbox::new();
        let mut states = Vec::new();
        for record in SavedStateReader::read_all(content) {
            match record.unwrap() {
                SavedRecord::Entry(entry) => {
                    engine.load_entry(&file(content), &entry, &mut out).unwrap();
                }
                SavedRecord::State(state) => states.push(state),
                SavedRecord::Unusable { .. } => {}
            }
        }
        states.iter().for_each(|state| engine.load_state(&file(content), state, &mut out).unwrap());
    }

    fn engine(name: &str) -> Engine {
        let id = NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(7) };
        Engine::new(Config::new(id, 1))
    }

    fn loaded(name: &str, content: &[u8]) -> Engine {
        let mut engine = engine(name);
        load(&mut engine, content);
        engine.handle(Input::Found, 0, &mut Outbox::new());
        engine
    }

    fn value<'e>(engine: &'e Engine, path: &str) -> Option<&'e [u8]> {
        let path: crate::model::path::Path = path.parse().unwrap();
        engine.get(path.as_bytes()).and_then(Entry::value)
    }

    #[test]
    fn a_saved_state_gives_its_tree_and_accounts_for_every_tick() {
        let engine = loaded("fresh", SAVED);
        assert_eq!((engine.tree().len(), engine.tree().live_len()), (1306, 1306));
        assert!(engine.tree().has_array_paths());
        assert_eq!(value(&engine, "hf4e31b06.sv.a.b.c"), Some(&[3][..]));
        assert_eq!(engine.tock().get(), 4412);
        let n1 = engine.table().find("n1", life_of(SAVED, "n1")).unwrap();
        let seen = engine.seen().get(n1).unwrap();
        assert_eq!((seen.max(), seen.missing_below(1357).count()), (1357, 0));
        let path: crate::model::path::Path = "hf4e31b06.sv".parse().unwrap();
        let chain = engine.get(path.as_bytes()).unwrap().chain();
        assert_eq!(chain.newest().node, n1);
        assert_eq!(engine.tick().unwrap().get(), 0, "no event was made for it");
    }

    #[test]
    fn a_change_log_gives_the_state_at_its_end() {
        let engine = loaded("fresh", LOG);
        assert_eq!(value(&engine, "ha9210dd7.lg.b"), Some(&[2][..]));
        let deleted: crate::model::path::Path = "ha9210dd7.lg.a".parse().unwrap();
        assert!(engine.get(deleted.as_bytes()).unwrap().is_tombstone());
        assert_eq!((engine.tree().len(), engine.tree().live_len()), (1309, 1308));
        // The changes after the last state record carry greater tocks.
        assert_eq!(engine.tock().get(), 4432);
    }

    #[test]
    fn loading_twice_changes_nothing_and_an_older_file_no_value() {
        let mut engine = loaded("fresh", LOG);
        let (tree, seen) = (engine.tree().clone(), engine.seen().clone());
        load(&mut engine, LOG);
        assert_eq!(engine.seen(), &seen);
        assert!(tree.all().all(|(path, entry)| engine.get(path.as_bytes()) == Some(&entry)));
        load(&mut engine, SAVED);
        assert!(tree.all().all(|(path, entry)| {
            engine.get(path.as_bytes()).and_then(Entry::value) == entry.value()
        }));
    }

    #[test]
    fn nodes_that_loaded_different_files_agree_when_they_meet() {
        let (mut a, mut b) = (loaded("a", SAVED), loaded("b", LOG));
        let gone: crate::model::path::Path = "ha9210dd7.lg.a".parse().unwrap();
        // What each has is streamed to the other, as a catch-up does it.
        for _ in 0..2 {
            move_all(&a, &mut b);
            move_all(&b, &mut a);
        }
        let values = |engine: &Engine| -> BTreeMap<crate::model::path::Path, Option<Vec<u8>>> {
            let value = |entry: &Entry| entry.value().map(<[u8]>::to_vec);
            engine.tree().all().map(|(path, entry)| (path, value(&entry))).collect()
        };
        assert_eq!(values(&a), values(&b));
        assert_eq!(a.get(gone.as_bytes()).and_then(Entry::value), None);
    }

    fn move_all(from: &Engine, to: &mut Engine) {
        let snapshot = from.replica.begin_catch_up(&BTreeMap::new(), &Mark::default()).unwrap();
        let snapshot = std::sync::Arc::new(snapshot);
        let mut stream = snapshot.stream(snapshot.knowledge().seen.clone());
        loop {
            let batch = stream.next_batch(1 << 16);
            for (path, entry) in &batch.entries {
                let mut bytes = Vec::new();
                let table = snapshot.table();
                crate::protocol::record::encode_record(path.as_bytes(), entry, table, &mut bytes);
                let mut reader = crate::model::value::Reader::new(&bytes);
                let record = crate::protocol::record::Record::decode(&mut reader).unwrap();
                to.take_record(&record, &Mark::default(), &mut Outbox::new()).unwrap();
            }
            if batch.last {
                return;
            }
        }
    }

    #[test]
    fn a_node_of_the_same_name_is_another_one() {
        let engine = loaded("n1", SAVED);
        assert_eq!(engine.table().spell(engine.own()), "n1~7");
        assert_eq!(engine.tick().unwrap().get(), 0);
    }

    #[test]
    fn what_a_file_s_writer_knew_is_told_for_the_log_once() {
        let mut engine = engine("fresh");
        for record in SavedStateReader::read_all(SAVED) {
            let mut out = Outbox::new();
            let is_state = match record.unwrap() {
                SavedRecord::Entry(entry) => {
                    engine.load_entry(&file(SAVED), &entry, &mut out).unwrap();
                    false
                }
                SavedRecord::State(state) => {
                    engine.load_state(&file(SAVED), &state, &mut out).unwrap();
                    true
                }
                SavedRecord::Unusable { .. } => false,
            };
            let told = out.drain().filter(|o| matches!(o, crate::engine::Output::Knowledge));
            assert_eq!(told.count(), usize::from(is_state));
        }
    }
}

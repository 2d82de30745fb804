//! A saved state of the Python DistKV, taken into a node (RULES 9, "any other file"): its
//! entries by rule 2 without refusing, then what the file's writer had accounted for, but no
//! mark. The file's nodes have no incarnations and get incarnation 0, so that they are never
//! mistaken for nodes of this network that have the same names.
//!
//! The caller reads the file outside of the lock and hands over some entries at a time; data
//! before knowledge: the states come last, when all entries are in.

use super::{Engine, Outbox};
use crate::model::chain::Chain;
use crate::model::entry::{Entry, EntryParts};
use crate::model::ids::{Event, Incarnation, NodeName};
use crate::model::seen::{Mark, Seen};
use crate::model::tick_set::TickSet;
use crate::model::value::Value;
use crate::protocol::saved_state::{SavedEntry, SavedState};

/// The incarnation of nodes that have none of their own.
pub const SAVED_INCARNATION: Incarnation = Incarnation(0);

/// Why a file was not taken in (any further). What was taken in before stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoadError {
    /// The node has applied purges: what of the file was purged here cannot be told from what
    /// is new.
    #[error("this node has dropped deleted entries already; load the file into a fresh node")]
    Purged,
    /// More nodes than the node table holds.
    #[error("more nodes are known than this node can keep track of")]
    TableFull,
}

impl Engine {
    /// Takes in an entry of a file.
    ///
    /// # Errors
    /// [`LoadError`]; this entry was not taken in.
    pub fn load_entry(&mut self, saved: &SavedEntry, out: &mut Outbox) -> Result<(), LoadError> {
        if *self.mark() != Mark::default() {
            return Err(LoadError::Purged);
        }
        let mut events = Vec::with_capacity(saved.chain.len());
        for (name, tick) in &saved.chain {
            events.push(Event { node: self.saved_node(name)?, tick: *tick });
        }
        // The reader gives 1 to CHAIN_LEN_MAX events.
        let Some(chain) = Chain::from_events(events, saved.is_chain_cut) else { return Ok(()) };
        let entry = Entry::new(&EntryParts {
            value: saved.value.as_ref().map(Value::as_bytes),
            chain: &chain,
            tock: saved.tock,
            origin: None,
            extra: &[],
        });
        // With marks that are equal, nothing is refused.
        let refused = self.take_entry(&saved.path, &entry, &Mark::default(), out);
        debug_assert!(!refused);
        Ok(())
    }

    /// Takes in what the file's writer knew, once all entries before it are in: superseded
    /// ticks and those of tombstones (of which a file has no entries) are accounted for.
    ///
    /// # Errors
    /// [`LoadError`]; nothing of the state was taken in.
    pub fn load_state(&mut self, state: &SavedState) -> Result<(), LoadError> {
        if *self.mark() != Mark::default() {
            return Err(LoadError::Purged);
        }
        let mut seen = Seen::new();
        let mut account = |engine: &mut Self, sets: &[(NodeName, TickSet)]| {
            for (name, ticks) in sets {
                let node = engine.saved_node(name)?;
                engine.peers.note_change(node);
                seen.union_node(node, ticks);
            }
            Ok(())
        };
        account(self, &state.known)?;
        account(self, &state.deleted)?;
        for (name, _) in &state.nodes {
            self.saved_node(name)?;
        }
        let adopted = self.replica.adopt(&seen, &Mark::default(), state.tock);
        debug_assert!(adopted);
        Ok(())
    }

    fn saved_node(&mut self, name: &NodeName) -> Result<crate::model::ids::NodeIndex, LoadError> {
        self.replica.intern_name(name.as_str(), SAVED_INCARNATION).ok_or(LoadError::TableFull)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Config, Input};
    use crate::model::ids::NodeId;
    use crate::protocol::saved_state::{SavedRecord, SavedStateReader};

    const SAVED: &[u8] = include_bytes!("../../tests/fixtures/distkv-files/saved-state.bin");
    const LOG: &[u8] = include_bytes!("../../tests/fixtures/distkv-files/change-log.bin");

    fn load(engine: &mut Engine, file: &[u8]) {
        let mut out = Outbox::new();
        let mut states = Vec::new();
        for record in SavedStateReader::read_all(file) {
            match record.unwrap() {
                SavedRecord::Entry(entry) => engine.load_entry(&entry, &mut out).unwrap(),
                SavedRecord::State(state) => states.push(state),
                SavedRecord::Unusable { .. } => {}
            }
        }
        states.iter().for_each(|state| engine.load_state(state).unwrap());
    }

    fn engine(name: &str) -> Engine {
        let id = NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(7) };
        Engine::new(Config { id, hash_seed: 1, read_only: false, memory_max: None })
    }

    fn loaded(name: &str, file: &[u8]) -> Engine {
        let mut engine = engine(name);
        load(&mut engine, file);
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
        // One of the file's 1306 entries has an array in its path.
        assert_eq!((engine.tree().len(), engine.tree().live_len()), (1305, 1305));
        assert_eq!(value(&engine, "hf4e31b06.sv.a.b.c"), Some(&[3][..]));
        assert_eq!(engine.tock().get(), 4412);
        let n1 = engine.table().find("n1", SAVED_INCARNATION).unwrap();
        let seen = engine.seen().get(n1).unwrap();
        // All but the tick of the entry that was left out.
        assert_eq!((seen.max(), seen.missing_below(1357).count()), (1357, 1));
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
        assert_eq!((engine.tree().len(), engine.tree().live_len()), (1308, 1307));
        // The changes behind the last state record carry greater tocks.
        assert_eq!(engine.tock().get(), 4432);
    }

    #[test]
    fn loading_twice_or_an_older_file_later_changes_nothing() {
        let mut engine = loaded("fresh", LOG);
        let (tree, seen) = (engine.tree().clone(), engine.seen().clone());
        load(&mut engine, LOG);
        load(&mut engine, SAVED);
        assert_eq!(engine.seen(), &seen);
        assert!(tree.all().all(|(path, entry)| engine.get(path.as_bytes()) == Some(&entry)));
        assert_eq!(engine.tree().len(), tree.len());
    }

    #[test]
    fn a_node_of_the_same_name_is_another_one() {
        let engine = loaded("n1", SAVED);
        assert_eq!(engine.table().label(engine.own()), "n1~0007");
        assert_eq!(engine.tick().unwrap().get(), 0);
    }
}

//! What a log would hold of an engine, replayed: every test of whole networks checks that it is
//! the engine's state, so that whatever changes it is told.

use std::collections::BTreeMap;

use crate::engine::{Engine, Knowledge, Output};
use crate::model::entry::Entry;
use crate::model::path::Path;

/// A log's replay. Events are in the engine's own indices.
#[derive(Default)]
pub(super) struct LogReplay {
    entries: BTreeMap<Path, Entry>,
    knowledge: Option<Knowledge>,
}

impl LogReplay {
    /// The start of a log: what the first frame and the snapshot before it hold.
    pub(super) fn begin(engine: &Engine) -> Self {
        let entries = engine.tree().all().collect();
        Self { entries, knowledge: Some(engine.knowledge()) }
    }

    /// Takes in one output, as the log's reader would.
    pub(super) fn note(&mut self, output: &Output, engine: &Engine) {
        match output {
            Output::Commit(change) => {
                if let Some(knowledge) = &mut self.knowledge {
                    for event in change.entry.events() {
                        knowledge.seen.insert(event);
                    }
                }
                self.entries.insert(change.path.clone(), change.entry.clone());
            }
            Output::Gone { purged, dropped } => {
                for gone in purged.iter().chain(dropped) {
                    let was = self.entries.remove(&gone.path);
                    assert_eq!(was.as_ref(), Some(&gone.entry), "what went was there");
                }
            }
            Output::Knowledge | Output::Persist { .. } => {
                self.knowledge = Some(engine.knowledge());
            }
            _ => {}
        }
    }

    /// All outputs of a moment are noted: whatever must not be behind its data is as the engine has
    /// it, and nothing is taken for seen that the engine has not accounted for.
    pub(super) fn check(&self, engine: &Engine) {
        let Some(replayed) = &self.knowledge else { return };
        let real = engine.knowledge();
        assert!(real.seen.contains_all(&replayed.seen), "more is known than there is");
        assert_eq!(
            (&replayed.mark, &replayed.group, &replayed.decided, &replayed.id),
            (&real.mark, &real.group, &real.decided, &real.id)
        );
    }

    /// The same of all entries.
    pub(super) fn check_entries(&self, engine: &Engine) {
        let real: BTreeMap<Path, Entry> = engine.tree().all().collect();
        assert!(self.entries == real, "the log has other entries than the tree");
    }
}

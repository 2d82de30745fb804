//! Builds a state from what logs say, batch by batch.

use std::sync::Arc;

use super::changes::Changes;
use crate::batch::Op;
use crate::engine::{Image, Knowledge};
use crate::log::LogBatch;
use crate::model::ids::{NodeIndex, NodeTable, Tick, Tock};
use crate::model::left_out::accounted_events;
use crate::model::path::Path;
use crate::replica::Committed;
use crate::replica::come_back::ReplicaImage;
use crate::tree::Tree;

/// A state on its way. Begins with a snapshot's or with nothing.
pub struct Replay {
    base: Tree,
    changes: Changes,
    hash_seed: u64,
    /// Lent to the reader of the log that is at work; empty meanwhile.
    table: NodeTable,
    knowledge: Option<Knowledge>,
    own: Option<NodeIndex>,
    /// At least that of every entry.
    tock: Tock,
    batches: u64,
    /// Nothing else is kept, if that is said.
    below: Option<Path>,
}

impl Replay {
    /// Begins with nothing; the seed is for the tree's hashes.
    #[must_use]
    pub fn new(hash_seed: u64) -> Self {
        Self {
            base: Tree::new(hash_seed),
            changes: Changes::default(),
            hash_seed,
            table: NodeTable::new(),
            knowledge: None,
            own: None,
            tock: Tock::default(),
            batches: 0,
            below: None,
        }
    }

    /// Keeps only what is at and below a path of what comes from now on, if one is given: a state to look at, and
    /// not to continue.
    #[must_use]
    pub(crate) fn only_below(self, below: Option<Path>) -> Self {
        Self { below, ..self }
    }

    /// Begins with a state; the seed is for the tree's hashes.
    #[must_use]
    pub fn from_image(image: Image, hash_seed: u64) -> Self {
        let knowledge = image.knowledge();
        let ReplicaImage { table, tree, tock, id, .. } = image.replica;
        let table = Arc::unwrap_or_clone(table);
        let own = table.find(id.name.as_str(), id.incarnation);
        let knowledge = Some(knowledge);
        Self { base: tree, table, knowledge, own, tock, ..Self::new(hash_seed) }
    }

    /// Lends the table to the reader of the next log.
    #[must_use]
    pub fn lend_table(&mut self) -> NodeTable {
        std::mem::take(&mut self.table)
    }

    /// Takes the table back when a log was read.
    pub fn take_table(&mut self, table: NodeTable) {
        self.table = table;
    }

    /// How many batches were taken in.
    #[must_use]
    pub(crate) fn batches(&self) -> u64 {
        self.batches
    }

    /// Whether a snapshot's knowledge is that of the state so far, by its counters: then nothing has happened between the two.
    /// Its events are in the indices of another table.
    #[must_use]
    pub(crate) fn knows_as_much_as(&self, other: &Knowledge) -> bool {
        let tock = self.tock;
        self.knowledge.as_ref().is_some_and(|own| {
            own.id == other.id
                && own.tick == other.tick
                && own.tock.max(tock) == other.tock
                && own.mark == other.mark
                && own.seen.count() == other.seen.count()
        })
    }

    /// Takes in a batch. `table` is the reader's. Entries that come before anything was known of
    /// their node are not accounted for: no log begins with them.
    pub fn apply(&mut self, batch: LogBatch, table: &NodeTable) {
        self.batches += 1;
        for op in batch.ops {
            match op {
                Op::Put(change) => self.put(change),
                Op::Gone { path, newest } if is_wanted(&self.below, &path) => {
                    self.changes.remove(path, newest);
                }
                Op::Gone { .. } => {}
            }
        }
        self.changes.bound(&self.base);
        if let Some(knowledge) = batch.knowledge {
            self.own = table.find(knowledge.id.name.as_str(), knowledge.id.incarnation);
            self.learn(knowledge);
        }
    }

    fn put(&mut self, Committed { path, entry }: Committed) {
        self.tock = self.tock.max(entry.tock());
        if let Some(knowledge) = &mut self.knowledge {
            for event in accounted_events(&entry) {
                knowledge.seen.insert(event);
            }
            let newest = entry.newest();
            if Some(newest.node) == self.own {
                knowledge.tick = knowledge.tick.max(newest.tick);
            }
        }
        if is_wanted(&self.below, &path) {
            self.changes.put(path, entry);
        }
    }

    fn learn(&mut self, mut new: Knowledge) {
        if let Some(old) = self.knowledge.take() {
            // Knowledge never shrinks, and the records contain all of it, so this changes nothing
            // unless a log was begun from another state than it says.
            new.seen.union_with(&old.seen);
            if new.id == old.id {
                new.tick = new.tick.max(old.tick);
            }
            new.tock = new.tock.max(old.tock);
        }
        self.knowledge = Some(new);
    }

    /// The state; `None` if no log said whose it is.
    #[must_use]
    pub fn into_image(self) -> Option<Image> {
        let Knowledge { id, tick, tock, seen, mark, group, decided } = self.knowledge?;
        // Every tick up to the last one is accounted for, so the last one is no less.
        let counted = self.own.and_then(|own| Tick::new(seen.get(own)?.max())).unwrap_or_default();
        let (tick, tock) = (tick.max(counted), tock.max(self.tock).max(mark.top()));
        let tree = self.changes.into_tree(self.base, self.hash_seed);
        let table = Arc::new(self.table);
        let replica = ReplicaImage { id, table, tree, seen, mark, tick, tock };
        Some(Image { replica, group, decided })
    }
}

fn is_wanted(below: &Option<Path>, path: &Path) -> bool {
    below.as_ref().is_none_or(|below| path.strip_prefix(below).is_some())
}

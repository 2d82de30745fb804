//! What one change of the engine does, as data: the unit that is in a log wholly or not at all.

use std::fmt;
use std::sync::Arc;

use crate::engine::Knowledge;
use crate::model::ids::{Event, NodeTable};
use crate::model::path::Path;
use crate::replica::Committed;

/// What was done under one exclusive guard.
#[derive(Clone)]
pub struct Batch {
    /// When, milliseconds since 1970; for people, and for replaying up to a moment.
    pub time_ms: u64,
    /// The incarnations that were known at its end; one table with those of earlier batches, so
    /// it only grows.
    pub table: Arc<NodeTable>,
    /// What happened to the tree, in commit order.
    pub ops: Vec<Op>,
    /// All that the node knew at its end, if that was changed by other means than by `ops`.
    pub knowledge: Option<Knowledge>,
}

impl Batch {
    /// Says that nothing happened until this time.
    #[must_use]
    pub fn nothing(time_ms: u64) -> Self {
        Self { time_ms, table: Arc::new(NodeTable::new()), ops: Vec::new(), knowledge: None }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("time_ms", &self.time_ms)
            .field("ops", &self.ops)
            .field("knowledge", &self.knowledge)
            .finish_non_exhaustive()
    }
}

/// One change of the tree.
#[derive(Clone, Debug)]
pub enum Op {
    /// A version that is in the tree now.
    Put(Committed),
    /// An entry that is in the tree no more, without an event that says so.
    Gone {
        /// Where it was.
        path: Path,
        /// Its newest event.
        newest: Event,
    },
}

impl Op {
    /// An entry that is in the tree no more.
    #[must_use]
    pub fn gone(change: &Committed) -> Self {
        Self::Gone { path: change.path.clone(), newest: change.entry.newest() }
    }

    /// Its approximate size in a log, and in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Put(change) => change.path.as_bytes().len() + change.entry.memory_bytes(),
            Self::Gone { path, .. } => path.as_bytes().len() + 32,
        }
    }
}

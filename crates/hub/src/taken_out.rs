//! What is taken out of a moment's outputs and state: for the log, and for watches that fell behind or
//! whose entries left the tree.

use std::sync::Arc;

use crate::engine::{Engine, Outbox, Output};
use crate::model::defects::Defect;
use crate::model::seen::Seen;
use crate::replica::Committed;
use crate::storage::{Batch, Op};

/// What a log needs of a moment's outputs, and the requests to make that moment's state safe; none
/// if there is nothing.
pub fn batch_of(engine: &Engine, outbox: &Outbox) -> Option<(Batch, Vec<u64>)> {
    let (mut ops, mut persist, mut is_told) = (Vec::new(), Vec::new(), false);
    for output in outbox.iter() {
        match output {
            Output::Commit(change) => ops.push(Op::Put(change.clone())),
            Output::Gone { purged, dropped } => {
                ops.extend(purged.iter().chain(dropped).map(Op::gone));
            }
            Output::Knowledge => is_told = true,
            Output::Persist { token } => persist.push(*token),
            _ => {}
        }
    }
    let knowledge = (is_told || !persist.is_empty()).then(|| engine.knowledge());
    if ops.is_empty() && knowledge.is_none() {
        return None;
    }
    let table = Arc::clone(engine.table());
    Some((Batch { time_ms: 0, table, ops, knowledge }, persist))
}

/// Of entries that were dropped: what tells watchers of those with a value, and the tombstones, of
/// which watchers were told when they were made.
pub(super) fn split_dropped(dropped: Vec<Committed>) -> (Vec<Committed>, Vec<Committed>) {
    let (tombstones, mut values): (Vec<_>, Vec<_>) =
        dropped.into_iter().partition(|change| change.entry.is_tombstone());
    for change in &mut values {
        change.entry = change.entry.without_value();
    }
    (values, tombstones)
}

/// What the client of a watch has had or will not miss when its queue has dropped these events.
pub(super) fn seen_without(engine: &Engine, dropped: &Seen) -> Seen {
    if engine.defects().has(Defect::ResumeSkipsLost) {
        return engine.seen().clone();
    }
    engine.seen().difference(dropped)
}

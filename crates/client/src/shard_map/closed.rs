//! Rows that are gone from the table. A caller that was given one can still ask for a while where
//! it was.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::snapshot::Snapshot;

/// Most rows that are kept; the oldest go first. Twice a whole table of our own nodes, which has at most
/// 1024 rows, so that one that changes as a whole is kept.
pub(super) const CLOSED_MAX: usize = 2048;

/// Rows that are gone, each for the same time.
#[derive(Debug)]
pub(super) struct ClosedRows {
    kept: Duration,
    ranges: HashMap<u64, Closed>,
    /// In the order in which they went. May name one twice, if it came back and went again: then its
    /// time in `ranges` is another one.
    order: VecDeque<(Duration, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct Closed {
    range: (u128, u128),
    at: Duration,
}

impl ClosedRows {
    pub(super) fn new(kept: Duration) -> ClosedRows {
        ClosedRows { kept, ranges: HashMap::new(), order: VecDeque::new() }
    }

    /// Remembers the rows of the old table that the new one does not have.
    pub(super) fn replace(&mut self, old: &Snapshot, new: &Snapshot, now: Duration) {
        for row in new.rows() {
            self.ranges.remove(&row.id);
        }
        for row in old.rows().iter().filter(|row| new.row(row.id).is_none()) {
            self.ranges.insert(row.id, Closed { range: (row.start, row.end), at: now });
            self.order.push_back((now, row.id));
        }
        while let Some((at, id)) = self.order.front().copied() {
            let is_there = self.ranges.get(&id).is_some_and(|closed| closed.at == at);
            let is_kept = self.is_kept(at, now) && self.order.len() <= CLOSED_MAX;
            if is_there && is_kept {
                break;
            }
            self.order.pop_front();
            if is_there {
                self.ranges.remove(&id);
            }
        }
    }

    /// Where a row lay that went not too long ago.
    pub(super) fn range(&self, id: u64, now: Duration) -> Option<(u128, u128)> {
        let closed = self.ranges.get(&id)?;
        self.is_kept(closed.at, now).then_some(closed.range)
    }

    /// How many can be asked for.
    pub(super) fn count(&self, now: Duration) -> usize {
        self.ranges.values().filter(|closed| self.is_kept(closed.at, now)).count()
    }

    pub(super) fn clear(&mut self) {
        self.ranges.clear();
        self.order.clear();
    }

    fn is_kept(&self, at: Duration, now: Duration) -> bool {
        now.saturating_sub(at) < self.kept
    }
}

//! One table of shards: rows that cover the whole space, in order, and the search in them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::listing::{Listing, ShardRow};

/// A whole table. Immutable.
#[derive(Debug)]
pub struct Snapshot {
    /// 1 for the first table of a map, and one more for each further one.
    pub number: u64,
    /// When its fetch was begun, by the map's clock: what changed later may not be in it.
    pub refreshed_at: Duration,
    rows: Vec<Arc<ShardRow>>,
    /// Index in `rows` by id.
    by_id: HashMap<u64, usize>,
}

impl Snapshot {
    /// Of a listing whose last page has come.
    pub(super) fn new(listing: Listing, number: u64, refreshed_at: Duration) -> Snapshot {
        let rows = listing.into_rows();
        let by_id = rows.iter().enumerate().map(|(index, row)| (row.id, index)).collect();
        Snapshot { number, refreshed_at, rows, by_id }
    }

    /// All rows, in order.
    #[must_use]
    pub fn rows(&self) -> &[Arc<ShardRow>] {
        &self.rows
    }

    /// The row in which a place lies: by binary search.
    #[must_use]
    pub fn predict(&self, place: u128) -> Option<&Arc<ShardRow>> {
        self.search(|row| row.end < place)
    }

    /// The row of this id.
    #[must_use]
    pub fn row(&self, id: u64) -> Option<&Arc<ShardRow>> {
        self.rows.get(*self.by_id.get(&id)?)
    }

    /// The first row that is not before the given place.
    pub(super) fn search(
        &self,
        mut is_before: impl FnMut(&ShardRow) -> bool,
    ) -> Option<&Arc<ShardRow>> {
        self.rows.get(self.rows.partition_point(|row| is_before(row)))
    }
}

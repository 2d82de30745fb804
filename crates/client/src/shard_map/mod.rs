//! A cached table of shards: ranges of a 128-bit space, fetched page by page by a given function,
//! and refreshed in the background when a caller finds that it is out of date.
//!
//! Queries are answered from memory, at once, and from the old table while a new one is fetched: a
//! slightly old table costs a detour, waiting would cost every caller time.
//!
//! ```text
//!            start()            listing is good
//!  INVALID ───────────► UPDATING ─────────────► READY
//!     ▲   ◄────────────    ▲ │                    │
//!     │    it failed       │ └ once more, if      │
//!     └── backoff 1 s…30 s ┘   a change was seen  │ invalidate()
//!                          ▲   in its middle      │
//!                          └──────────────────────┘        any ── close() ──► CLOSED
//! ```
//!
//! One task does all fetching, so there is never more than one fetch. A table dates from the moment
//! at which its fetch was begun: later changes may not be in it.
//!
//! | module | what |
//! |---|---|
//! | [`clock`] | time, randomness and tasks, as the map sees them |
//! | [`listing`] | pages become a table, or are refused: gaps, overlaps, bounds |
//! | [`snapshot`] | one table, and the search in it |
//! | `closed` | rows that are gone, for a minute |
//! | `refresh` | the task |

pub mod clock;
mod closed;
pub mod listing;
mod refresh;
pub mod snapshot;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use event_listener::Event;
use parking_lot::Mutex;

pub use clock::{Clock, SystemClock};
pub use listing::{ListShards, ListingError, Page, ShardRow};
pub use snapshot::Snapshot;

use closed::ClosedRows;

/// How a map goes about its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardMapConfig {
    /// How long to wait after a fetch failed; twice as long after each further one. Of each, a random
    /// part between half and all is waited.
    pub backoff_first: Duration,
    /// No wait is longer.
    pub backoff_max: Duration,
    /// How long a row that is gone can still be asked for.
    pub closed_kept: Duration,
    /// How long a fetch, all its pages together, may take.
    pub fetch_timeout: Duration,
    /// Fetch anew when the table is this old, even if no caller reports that it is out of date.
    pub refresh_every: Option<Duration>,
}

impl Default for ShardMapConfig {
    fn default() -> ShardMapConfig {
        ShardMapConfig {
            backoff_first: Duration::from_secs(1),
            backoff_max: Duration::from_secs(30),
            closed_kept: Duration::from_secs(60),
            fetch_timeout: Duration::from_secs(30),
            refresh_every: None,
        }
    }
}

/// What a map is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ShardMapState {
    /// There is no table, or one that is known to be out of date, and no fetch at the moment: the map was
    /// not started, or waits before it tries again. An old table still answers.
    Invalid,
    /// A table is being fetched; until it is here, the old one answers.
    Updating,
    /// No caller has reported that the table is out of date.
    Ready,
    /// No function lists the shards any more; final.
    Closed,
}

/// The map was closed; final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the shard map is closed")]
pub struct ShardMapClosed;

/// What a map has done, and has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShardMapStats {
    /// Fetches that were begun.
    pub fetches: u64,
    /// Of those, fetches that brought no table.
    pub failures: u64,
    /// Failures since the last table came.
    pub failures_in_row: u32,
    /// Why the last fetch that failed did so.
    pub last_failure: Option<String>,
    /// Calls of [`ShardMap::invalidate`].
    pub invalidations: u64,
    /// Of those, the ones that caused a fetch by themselves.
    pub invalidations_heard: u64,
    /// Rows in the table.
    pub rows: usize,
    /// Rows that are gone and can still be asked for.
    pub closed_rows: usize,
    /// When the fetch of the table was begun, by the map's clock; none without a table.
    pub refreshed_at: Option<Duration>,
}

/// A cached table of shards. Dropping it closes it.
#[derive(Debug)]
pub struct ShardMap<L, C>
where
    L: ListShards,
    C: Clock,
{
    shared: Arc<Shared<L, C>>,
}

/// What the map's handle shares with its task.
#[derive(Debug)]
struct Shared<L, C> {
    lister: L,
    clock: C,
    config: ShardMapConfig,
    inner: Mutex<Inner>,
    /// Notified whenever the phase or the table changes.
    changed: Event,
}

#[derive(Debug)]
struct Inner {
    phase: Phase,
    /// The table; an old one stays until the next one is whole.
    snapshot: Option<Arc<Snapshot>>,
    closed: ClosedRows,
    stats: ShardMapStats,
}

/// Where the map stands, more exactly than [`ShardMapState`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    NotStarted,
    /// A fetch is wanted and not begun yet: whatever was seen until it begins will be in it.
    Wanted,
    /// `again`: something was seen after `since`, which this fetch may have missed.
    Fetching {
        since: Duration,
        again: bool,
    },
    /// The last fetch has failed. One will follow, so nothing needs to be remembered.
    BackingOff,
    Idle,
    Closed,
}

impl<L, C> ShardMap<L, C>
where
    L: ListShards,
    C: Clock,
{
    /// A map without a table, which does nothing before [`ShardMap::start`].
    #[must_use]
    pub fn new(lister: L, clock: C, config: ShardMapConfig) -> ShardMap<L, C> {
        let inner = Inner {
            phase: Phase::NotStarted,
            snapshot: None,
            closed: ClosedRows::new(config.closed_kept),
            stats: ShardMapStats::default(),
        };
        let (inner, changed) = (Mutex::new(inner), Event::new());
        ShardMap { shared: Arc::new(Shared { lister, clock, config, inner, changed }) }
    }

    /// Begins to fetch. Once is enough, more is allowed.
    ///
    /// # Errors
    /// The map was closed; it stays so.
    pub fn start(&self) -> Result<(), ShardMapClosed> {
        {
            let mut inner = self.shared.inner.lock();
            match inner.phase {
                Phase::Closed => return Err(ShardMapClosed),
                Phase::NotStarted => inner.phase = Phase::Wanted,
                Phase::Wanted | Phase::Fetching { .. } | Phase::BackingOff | Phase::Idle => {
                    return Ok(());
                }
            }
        }
        let task = refresh::run(Arc::clone(&self.shared));
        self.shared.clock.spawn(Box::pin(task));
        Ok(())
    }

    /// What the map is doing.
    #[must_use]
    pub fn state(&self) -> ShardMapState {
        self.shared.inner.lock().phase.state()
    }

    /// The time by the map's clock: what to give to [`ShardMap::invalidate`] later.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.shared.clock.now()
    }

    /// The row that contains a place, as far as is known: none before the first table is there, and
    /// when the map is closed. O(log n), and never waits for a fetch.
    #[must_use]
    pub fn predict(&self, place: u128) -> Option<Arc<ShardRow>> {
        self.snapshot()?.predict(place).cloned()
    }

    /// The first and the last place of a row: of the table, or of one that was there within the last
    /// minute ([`ShardMapConfig::closed_kept`]).
    #[must_use]
    pub fn hashrange(&self, id: u64) -> Option<(u128, u128)> {
        let now = self.shared.clock.now();
        let inner = self.shared.inner.lock();
        let current = inner.snapshot.as_ref().and_then(|snapshot| snapshot.row(id));
        match current {
            Some(row) => Some((row.start, row.end)),
            None => inner.closed.range(id, now),
        }
    }

    /// The whole table; none before the first one is there, and when the map is closed.
    #[must_use]
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.shared.inner.lock().snapshot.clone()
    }

    /// Says that the table was found to be wrong: at `seen_at` by the map's clock, with the row `predicted`
    /// (if one was predicted). Nothing happens if the table is newer than that, or does not have that row
    /// any more. Else the table is fetched anew: once, however many say so. A fetch that was begun before
    /// `seen_at` may have missed the change, so another one follows it.
    pub fn invalidate(&self, seen_at: Duration, predicted: Option<u64>) {
        let mut inner = self.shared.inner.lock();
        inner.stats.invalidations += 1;
        let is_newer = inner.stats.refreshed_at.is_some_and(|refreshed| refreshed > seen_at);
        let is_gone = predicted.is_some_and(|id| !inner.has_row(id));
        if is_newer || is_gone {
            return;
        }
        match &mut inner.phase {
            Phase::Idle => inner.phase = Phase::Wanted,
            Phase::Fetching { since, again } if seen_at >= *since && !*again => *again = true,
            // Nothing is fetched, or the next fetch will include the change.
            Phase::NotStarted
            | Phase::Wanted
            | Phase::Fetching { .. }
            | Phase::BackingOff
            | Phase::Closed => return,
        }
        inner.stats.invalidations_heard += 1;
        drop(inner);
        self.shared.changed.notify(usize::MAX);
    }

    /// Waits until the map is [`ShardMapState::Ready`].
    ///
    /// # Errors
    /// The map is closed, or was while this waited.
    pub async fn ready(&self) -> Result<(), ShardMapClosed> {
        let is_ready = |inner: &Inner| (inner.phase == Phase::Idle).then_some(());
        self.shared.wait_for(is_ready).await
    }

    /// Waits for a table other than the one of this number ([`Snapshot::number`]); the first one is 1.
    ///
    /// # Errors
    /// The map is closed, or was while this waited.
    pub async fn changed(&self, number: u64) -> Result<Arc<Snapshot>, ShardMapClosed> {
        let is_other = |inner: &Inner| {
            inner.snapshot.as_ref().filter(|snapshot| snapshot.number != number).cloned()
        };
        self.shared.wait_for(is_other).await
    }

    /// Closes the map for good: no table, no fetch; a running fetch is given up.
    pub fn close(&self) {
        self.shared.close();
    }

    /// What the map has done, and has.
    #[must_use]
    pub fn stats(&self) -> ShardMapStats {
        let now = self.shared.clock.now();
        let inner = self.shared.inner.lock();
        let mut stats = inner.stats.clone();
        stats.rows = inner.snapshot.as_ref().map_or(0, |snapshot| snapshot.rows().len());
        stats.closed_rows = inner.closed.count(now);
        stats
    }
}

impl<L, C> Drop for ShardMap<L, C>
where
    L: ListShards,
    C: Clock,
{
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl<L, C> Shared<L, C> {
    /// Waits until `find` finds something, without missing a change in between.
    async fn wait_for<T>(
        &self,
        mut find: impl FnMut(&Inner) -> Option<T>,
    ) -> Result<T, ShardMapClosed> {
        loop {
            // Before the look, so that a change after it is heard.
            let listener = self.changed.listen();
            {
                let inner = self.inner.lock();
                if inner.phase == Phase::Closed {
                    return Err(ShardMapClosed);
                }
                if let Some(found) = find(&inner) {
                    return Ok(found);
                }
            }
            listener.await;
        }
    }

    fn close(&self) {
        let old = {
            let mut inner = self.inner.lock();
            inner.phase = Phase::Closed;
            inner.closed.clear();
            inner.stats.refreshed_at = None;
            inner.snapshot.take()
        };
        self.changed.notify(usize::MAX);
        drop(old);
    }
}

impl Inner {
    fn has_row(&self, id: u64) -> bool {
        self.snapshot.as_ref().is_some_and(|snapshot| snapshot.row(id).is_some())
    }
}

impl Phase {
    fn state(self) -> ShardMapState {
        match self {
            Phase::NotStarted | Phase::BackingOff => ShardMapState::Invalid,
            Phase::Wanted | Phase::Fetching { .. } => ShardMapState::Updating,
            Phase::Idle => ShardMapState::Ready,
            Phase::Closed => ShardMapState::Closed,
        }
    }
}

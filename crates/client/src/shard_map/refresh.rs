//! The task that fetches tables, one after the other, when they are wanted.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{self, Either};

use super::clock::Clock;
use super::listing::{ListShards, Listing, ListingError};
use super::snapshot::Snapshot;
use super::{Phase, ShardMapClosed, Shared};
use crate::retry::backoff;

/// Each wait after a failure is longer than the one before it by this factor.
const BACKOFF_FACTOR: u32 = 2;

/// What follows a fetch.
enum Next {
    /// Another fetch, or waiting until one is wanted.
    GoOn,
    /// A fetch after this wait.
    After(Duration),
}

/// Fetches until the map is closed.
pub(super) async fn run<L, C>(shared: Arc<Shared<L, C>>)
where
    L: ListShards,
    C: Clock,
{
    // Whatever ends early was closed.
    let _closed: Result<(), ShardMapClosed> = shared.refresh_for_ever().await;
}

impl<L, C> Shared<L, C>
where
    L: ListShards,
    C: Clock,
{
    async fn refresh_for_ever(&self) -> Result<(), ShardMapClosed> {
        loop {
            self.wait_until_wanted().await?;
            let since = self.begin()?;
            let outcome = self.unless_closed(self.fetch()).await?;
            match self.finish(since, outcome)? {
                Next::GoOn => {}
                Next::After(delay) => {
                    self.unless_closed(self.clock.sleep(delay)).await?;
                    self.want(Phase::BackingOff);
                }
            }
        }
    }

    /// Waits until a fetch is requested, or the table is so old that it is fetched anyway.
    async fn wait_until_wanted(&self) -> Result<(), ShardMapClosed> {
        let wanted = self.wait_for(|inner| (inner.phase == Phase::Wanted).then_some(()));
        let Some(age_max) = self.config.refresh_every else {
            return wanted.await;
        };
        let age = {
            let refreshed_at = self.inner.lock().stats.refreshed_at;
            refreshed_at.map_or(Duration::MAX, |at| self.clock.now().saturating_sub(at))
        };
        let too_old = self.clock.sleep(age_max.saturating_sub(age));
        match future::select(Box::pin(wanted), Box::pin(too_old)).await {
            Either::Left((wanted, _)) => wanted,
            Either::Right(((), _)) => {
                self.want(Phase::Idle);
                Ok(())
            }
        }
    }

    /// A fetch is wanted, if the map is still in this phase.
    fn want(&self, from: Phase) {
        let mut inner = self.inner.lock();
        if inner.phase == from {
            inner.phase = Phase::Wanted;
        }
    }

    /// Begins a fetch: changes seen from now on may not be in it.
    fn begin(&self) -> Result<Duration, ShardMapClosed> {
        let mut inner = self.inner.lock();
        if inner.phase == Phase::Closed {
            return Err(ShardMapClosed);
        }
        // The clock is read under the lock, so that no earlier observation arrives later.
        let since = self.clock.now();
        inner.phase = Phase::Fetching { since, again: false };
        inner.stats.fetches += 1;
        Ok(since)
    }

    /// All pages, in time.
    async fn fetch(&self) -> Result<Listing, ListingError> {
        let limit = self.clock.sleep(self.config.fetch_timeout);
        match future::select(Box::pin(self.list_all()), Box::pin(limit)).await {
            Either::Left((listing, _)) => listing,
            Either::Right(((), _)) => Err(ListingError::TimedOut),
        }
    }

    async fn list_all(&self) -> Result<Listing, ListingError> {
        let mut listing = Listing::default();
        let mut after = None;
        loop {
            let page = self.lister.list(after).await.map_err(|error| ListingError::Page {
                page: listing.pages() + 1,
                reason: error.to_string(),
            })?;
            after = page.next;
            if listing.push(page)? {
                return Ok(listing);
            }
        }
    }

    /// Puts the new table in the place of the old one, or leaves that and says how long to wait.
    fn finish(
        &self,
        since: Duration,
        outcome: Result<Listing, ListingError>,
    ) -> Result<Next, ShardMapClosed> {
        let now = self.clock.now();
        let random = self.clock.random();
        let (next, old) = {
            let mut inner = self.inner.lock();
            let inner = &mut *inner;
            let Phase::Fetching { again, .. } = inner.phase else {
                return Err(ShardMapClosed);
            };
            match outcome {
                Ok(listing) => {
                    let number = inner.snapshot.as_ref().map_or(0, |old| old.number) + 1;
                    let new = Arc::new(Snapshot::new(listing, number, since));
                    if let Some(old) = &inner.snapshot {
                        inner.closed.replace(old, &new, now);
                    }
                    inner.stats.refreshed_at = Some(since);
                    inner.stats.failures_in_row = 0;
                    inner.phase = if again { Phase::Wanted } else { Phase::Idle };
                    (Next::GoOn, inner.snapshot.replace(new))
                }
                Err(error) => {
                    inner.stats.failures += 1;
                    inner.stats.failures_in_row = inner.stats.failures_in_row.saturating_add(1);
                    inner.stats.last_failure = Some(error.to_string());
                    inner.phase = Phase::BackingOff;
                    let (first, longest) = (self.config.backoff_first, self.config.backoff_max);
                    let failures = inner.stats.failures_in_row;
                    (Next::After(backoff(first, BACKOFF_FACTOR, longest, failures, random)), None)
                }
            }
        };
        self.changed.notify(usize::MAX);
        // A big table takes a while to go: not under the lock.
        drop(old);
        Ok(next)
    }

    /// The future's output, unless the map is closed first.
    async fn unless_closed<F>(&self, future: F) -> Result<F::Output, ShardMapClosed>
    where
        F: Future + Send,
    {
        let closed = self.wait_for(|_| None::<()>);
        match future::select(Box::pin(closed), Box::pin(future)).await {
            Either::Left(_) => Err(ShardMapClosed),
            Either::Right((output, _)) => Ok(output),
        }
    }
}

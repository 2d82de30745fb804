//! Pages of a listing become a table, or are refused. While pages are fetched the shards may split and merge,
//! and then the pages do not fit together: that is found here, as is a server that never ends.

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

/// Most rows of a table. Our own nodes have at most 1024; others may use the map as well.
pub const ROWS_MAX: usize = 65_536;
/// Most pages of a listing: a server that sends rows one by one is refused soon.
pub const PAGES_MAX: usize = 4096;

/// One row: adjacent shards with the same preferred node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardRow {
    /// Another one for each row; a row that changes is another row.
    pub id: u64,
    /// The first place in the 128-bit space.
    pub start: u128,
    /// The last place, which belongs to it.
    pub end: u128,
    /// The first virtual shard.
    pub first: u16,
    /// The last virtual shard, which belongs to it.
    pub last: u16,
    /// The name of the node that is preferred, if an override says so.
    pub prefer: Option<String>,
}

/// One page of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Rows in ascending order.
    pub rows: Vec<ShardRow>,
    /// What to ask the next page with; none if this was the last one.
    pub next: Option<u128>,
}

/// The function that lists shards, page by page: whatever the transport is.
///
/// Any `Fn(Option<u128>) -> impl Future<Output = Result<Page, E>>` is one.
pub trait ListShards: Send + Sync + 'static {
    /// Why a page did not come.
    type Error: fmt::Display + Send;

    /// The first page, or the one behind `after`, which is the page before's [`Page::next`].
    fn list(&self, after: Option<u128>) -> impl Future<Output = Result<Page, Self::Error>> + Send;
}

impl<F, R, E> ListShards for F
where
    F: Fn(Option<u128>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Page, E>> + Send,
    E: fmt::Display + Send,
{
    type Error = E;

    fn list(&self, after: Option<u128>) -> impl Future<Output = Result<Page, E>> + Send {
        self(after)
    }
}

/// Why a listing brought no table. The old table stays.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListingError {
    /// A page did not come.
    #[error("page {page} of the list of shards: {reason}")]
    Page {
        /// Which one, from 1.
        page: usize,
        /// What the lister said.
        reason: String,
    },
    /// It took too long.
    #[error("the list of shards took too long")]
    TimedOut,
    /// Nothing covers this place.
    #[error("the list of shards has a gap at {0:#034x}")]
    Gap(u128),
    /// Two rows cover this place, or a row ends before it starts.
    #[error("the list of shards has an overlap at {0:#034x}")]
    Overlap(u128),
    /// Two rows have this id.
    #[error("the list of shards has the id {0:#x} twice")]
    SameId(u64),
    /// A page that is not the last one brought nothing new.
    #[error("page {0} of the list of shards does not lead on")]
    NoProgress(usize),
    /// More than [`PAGES_MAX`] pages.
    #[error("the list of shards has more than {PAGES_MAX} pages")]
    TooManyPages,
    /// More than [`ROWS_MAX`] rows.
    #[error("the list of shards has more than {ROWS_MAX} rows")]
    TooManyRows,
}

/// A listing of which some pages have come.
#[derive(Debug, Default)]
pub struct Listing {
    rows: Vec<Arc<ShardRow>>,
    ids: HashSet<u64>,
    pages: usize,
    last_token: Option<u128>,
}

impl Listing {
    /// Takes the next page. `true`: it was the last one.
    ///
    /// # Errors
    /// The page does not fit to those before it, or there is too much of it. The listing is of no use
    /// then.
    pub fn push(&mut self, page: Page) -> Result<bool, ListingError> {
        self.pages += 1;
        let before = self.rows.len();
        if page.rows.len() > ROWS_MAX - before {
            return Err(ListingError::TooManyRows);
        }
        for row in page.rows {
            self.push_row(row)?;
        }
        let Some(next) = page.next else {
            return self.check_end().map(|()| true);
        };
        let leads_on = self.rows.len() > before && self.last_token.is_none_or(|last| next > last);
        if !leads_on {
            return Err(ListingError::NoProgress(self.pages));
        }
        if self.pages >= PAGES_MAX {
            return Err(ListingError::TooManyPages);
        }
        self.last_token = Some(next);
        Ok(false)
    }

    /// How many pages have come.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// The rows, in order.
    #[must_use]
    pub fn into_rows(self) -> Vec<Arc<ShardRow>> {
        self.rows
    }

    fn push_row(&mut self, row: ShardRow) -> Result<(), ListingError> {
        if row.end < row.start {
            return Err(ListingError::Overlap(row.start));
        }
        let expected = match self.rows.last() {
            None => 0,
            // There is no place after the last one that a row could cover.
            Some(last) => last.end.checked_add(1).ok_or(ListingError::Overlap(row.start))?,
        };
        if row.start > expected {
            return Err(ListingError::Gap(expected));
        }
        if row.start < expected {
            return Err(ListingError::Overlap(row.start));
        }
        if !self.ids.insert(row.id) {
            return Err(ListingError::SameId(row.id));
        }
        self.rows.push(Arc::new(row));
        Ok(())
    }

    fn check_end(&self) -> Result<(), ListingError> {
        match self.rows.last() {
            None => Err(ListingError::Gap(0)),
            Some(last) => match last.end.checked_add(1) {
                None => Ok(()),
                Some(missing) => Err(ListingError::Gap(missing)),
            },
        }
    }
}

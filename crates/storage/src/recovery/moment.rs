//! A moment of the past, and where in the logs it is.
//!
//! The times in a log are those of the node's clock, and a clock can be wrong, and be set right. So a log may *pass* a time
//! more than once: it goes from a batch that is not later to one that is. The rule:
//!
//! 1. Where the log of a node that ran goes on with a time that is more than five minutes later, the clock leapt over what
//!    lies between: a node that runs logs something each minute. At all other passes the clock *showed* the time. (While the
//!    node was off, clocks went on.) So does the end of all logs, if it is not later than the time.
//! 2. The moment is at the last pass at which the clock showed it; at the last of all passes if it never did.
//! 3. That is in doubt ([`Doubt`]) if the clock had shown it at another pass before, and was set back by more than two
//!    seconds between the two; and if it never showed it. The place is told all the same.
//!
//! What that means for a clock that was wrong for a minute:
//!
//! - *Behind*, by an hour: the minute that it showed twice is in doubt, and so is the one that it did not show at all. The rest
//!   of the hour before is not. (The last batch that is not later is in the minute with the wrong clock, for all of that
//!   hour.)
//! - *Ahead*, by an hour or by years: what it leapt over is not in doubt once the right clock has shown it. The minute that it
//!   did not show is, and so is the one that it showed ahead of its time, once the right clock has shown that, too.
//!
//! [`crate::recovery::passes`] finds the passes. It reads all logs: what a clock showed once may be anywhere.

use crate::batch::Op;
use crate::disk::Disk;
use crate::error::StorageError;
use crate::log::LogBatch;
use crate::model::ids::Tock;
use crate::recover::Files;
use crate::recovery::passes;
pub use crate::recovery::passes::{Doubt, Passed, Passes};

/// A moment in the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Everything up to where the node's clock showed this time, milliseconds since 1970; see the module.
    Time(u64),
    /// Everything before the first change with a later tock.
    Tock(Tock),
}

/// Where the logs are to be read no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Behind that many bytes of the log of that number.
    Behind {
        /// The log's number; 0 stands for nothing at all.
        number: u64,
        /// Where the last batch that is wanted ends.
        end: u64,
    },
    /// Before the first change with a later tock.
    Tock(Tock),
}

impl Cut {
    /// Where a moment is in a directory: at its very beginning if everything is later. And whether that is in doubt.
    ///
    /// # Errors
    /// [`StorageError::Io`]: a file cannot be read. What is damaged counts as not there.
    pub(crate) fn find(
        disk: &dyn Disk,
        files: &Files,
        until: Until,
    ) -> Result<(Self, Option<Doubt>), StorageError> {
        Ok(match until {
            Until::Tock(tock) => (Self::Tock(tock), None),
            Until::Time(time_ms) => Self::behind(passes::find(disk, files, time_ms)?),
        })
    }

    /// Behind a place; at the very beginning if there is none.
    #[must_use]
    pub fn behind(passed: Option<Passed>) -> (Self, Option<Doubt>) {
        let (number, end) = passed.map(|passed| passed.place).unwrap_or_default();
        (Self::Behind { number, end }, passed.and_then(|passed| passed.doubt))
    }

    /// Takes out of a batch of the log of that number what is after the moment; returns whether that was anything, and
    /// so whether all that follows is later, too. Changes that were made together have one time, and a tock each: some
    /// may stay.
    pub fn apply(self, number: u64, batch: &mut LogBatch) -> bool {
        let kept = match self {
            Self::Behind { number: last, end } => ((number, batch.end) > (last, end)).then_some(0),
            Self::Tock(tock) => {
                let knows_later = batch.knowledge.as_ref().is_some_and(|k| k.tock > tock);
                let is_later = |op: &Op| match op {
                    Op::Put(change) => change.entry.tock() > tock,
                    // It has no tock of its own. What was known behind it is the first sign of when it was.
                    Op::Gone { .. } => knows_later,
                };
                let first = batch.ops.iter().position(is_later);
                first.or_else(|| knows_later.then_some(batch.ops.len()))
            }
        };
        let Some(kept) = kept else { return false };
        batch.ops.truncate(kept);
        // It is what was known behind all of the batch.
        batch.knowledge = None;
        true
    }
}

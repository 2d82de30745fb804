//! A state of a node's past, as the node gives it to the client port; or why there is none.

use jiff::Timestamp;

use crate::engine::Image;
use crate::storage::recover::PastGap;

/// The state of a past moment.
pub struct PastState {
    /// The state.
    pub image: Image,
    /// If this may not be the state of the moment.
    pub gap: Option<PastGap>,
}

/// Why a past state cannot be had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PastRefusal {
    /// The node keeps no data on disk.
    NoDataDirectory,
    /// What is kept begins later, at this moment.
    Before {
        /// The node's time, milliseconds since 1970.
        time_ms: u64,
        /// The network's counter.
        tock: u64,
    },
    /// By the node's clock, that moment is still to come.
    NotYet {
        /// What the clock says, milliseconds since 1970.
        now_ms: u64,
    },
    /// It cannot be read.
    Failed(String),
}

/// A moment, in milliseconds since 1970, for people: in UTC.
pub(crate) fn moment_text(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    let moment = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX);
    format!("{moment:.3}")
}

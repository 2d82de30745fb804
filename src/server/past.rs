//! A state of a node's past, as the node gives it to the client port; or why there is none.

use crate::engine::Image;

/// The state of a past moment.
pub struct PastState {
    /// The state.
    pub image: Image,
    /// If the moment is in a time of which the node has logged nothing: that time, at whose beginning the state was so.
    pub gap: Option<PastGap>,
}

/// A time of which a node has logged nothing: the disk failed, or it did not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PastGap {
    /// When something was logged for the last time, milliseconds since 1970.
    pub from_ms: u64,
    /// When logging began anew; none if it has not yet.
    pub to_ms: Option<u64>,
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

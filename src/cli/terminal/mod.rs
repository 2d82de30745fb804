//! What commands print, and how people write sizes, durations and moments.

pub(super) mod output;
pub(super) mod progress;
pub(super) mod times;
pub(super) mod units;

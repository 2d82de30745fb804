//! How a node gets what it lacks: catch-ups, asked for and answered; the healing of a split; contents
//! that differ.

pub(super) mod answer;
pub(super) mod ask;
pub(super) mod contents;
pub(super) mod election;
pub(super) mod resync;

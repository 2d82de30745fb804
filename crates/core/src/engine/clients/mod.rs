//! What clients read and change: the door for their reads and writes, and what they can ask about the
//! state.

pub mod batch;
pub(super) mod closed;
pub mod conflicts;
pub(super) mod lead;
pub mod view;
pub(super) mod write;

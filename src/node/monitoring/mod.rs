//! What a node writes to its log for operators: conflicts, and states that need their attention, each
//! said soon, repeatedly while it lasts, and when it is over.

pub(super) mod auth;
pub(super) mod conflicts;
pub(super) mod memory;
pub(super) mod plaintext;
pub(super) mod purge;

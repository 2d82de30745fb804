//! What a node writes to its log for operators: conflicts, and states that need their attention, each
//! said soon, repeatedly while it lasts, and when it is over. And the audit log, which has a file of its own.

pub(super) mod audit;
pub(super) mod auth;
pub(super) mod conflicts;
pub(super) mod isolation;
pub(super) mod memory;
pub(super) mod plaintext;
pub(super) mod purge;

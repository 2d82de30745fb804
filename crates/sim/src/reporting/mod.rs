//! What runs tell people: scripts, messages in words, counts.

pub(super) mod describe;
pub(super) mod script;
pub(super) mod stats;

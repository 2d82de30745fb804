//! Which node is asked, and whose answer counts.

pub(super) mod call;
mod majority;
pub(super) mod own_writes;
mod progress;
pub(super) mod read_modes;
pub(super) mod refusals;
pub(super) mod shard_table;
pub(super) mod tries;

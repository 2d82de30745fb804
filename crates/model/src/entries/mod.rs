//! Entries of the tree: value, chain, and what a chain leaves out.

pub mod chain;
pub mod change_time;
pub mod entry;
pub mod left_out;
pub mod meta;
pub(super) mod shared_bytes;
pub mod value;

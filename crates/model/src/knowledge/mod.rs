//! What nodes know of each other's changes: ticks seen, sums over them, purges applied.

pub mod mark;
pub mod seen;
pub mod seen_list;
pub mod seen_sum;
pub mod tick_set;

//! The vocabulary of the system, pure: no clock, randomness, socket, file or environment.

pub mod count;
pub mod defects;
mod entries;
pub mod group;
pub mod invariant;
mod knowledge;
pub mod limits;
mod names;
mod paths;
pub mod ping;
pub mod secrets;

pub use entries::shared_bytes::SHARED_BYTES_HEAD;
pub use entries::{chain, change_time, entry, left_out, meta, value};
pub use knowledge::{mark, seen, seen_list, seen_sum, tick_set};
pub use names::{host_port, ids, spelling, write_id};
pub use paths::{lengthen, path, path_text, shard, shard_memo};

//! The vocabulary of the system, pure: no clock, randomness, socket, file or environment.

pub mod chain;
pub mod defects;
pub mod entry;
pub mod group;
pub mod host_port;
pub mod ids;
pub mod invariant;
pub mod left_out;
pub mod lengthen;
pub mod limits;
pub mod mark;
pub mod meta;
pub mod path;
pub mod path_text;
pub mod ping;
pub mod seen;
pub mod seen_list;
pub mod seen_sum;
pub mod shard;
pub mod shard_memo;
mod shared_bytes;
pub mod spelling;
pub mod tick_set;
pub mod value;
pub mod write_id;

pub use shared_bytes::SHARED_BYTES_HEAD;

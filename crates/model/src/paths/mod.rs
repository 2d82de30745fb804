//! Paths: where an entry stands, how people type it, and which virtual shard it belongs to.

pub mod lengthen;
pub mod path;
pub mod path_text;
pub mod shard;
pub mod shard_memo;

//! What is derived from the state and kept up to date with it, so that it need not be searched: recent
//! changes, sums per shard, watches by path, the ids of recent writes, which writes were given up, what was put on top of what.

pub(in crate::replica) mod deleted_here;
pub(crate) mod given_up;
pub(crate) mod ring;
pub mod shards;
pub(in crate::replica) mod tops;
pub mod watch;
pub mod write_ids;

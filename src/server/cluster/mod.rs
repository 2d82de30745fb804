//! What the client port knows of the network, and tells clients and operators.
//!
//! | file | what |
//! |---|---|
//! | `nodes` | the nodes of the network, with an epoch; sent whenever they change |
//! | `chain_incarnations` | which incarnations are in chains, kept for a while |
//! | `prefixes` | the beginnings of paths that clients ask for most |
//! | [`shards`] | how much is read and written in each virtual shard |
//! | [`purge_block`] | warnings about the Delete group, such as a member that is away and blocks purging |

pub(super) mod chain_incarnations;
pub(super) mod nodes;
mod prefixes;
pub mod purge_block;
pub mod shards;

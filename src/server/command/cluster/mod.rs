//! Actions that ask about nodes and the network, or change who belongs to it.

pub(super) mod admin;
pub(super) mod clients;
mod delete_group;
mod keys;
mod nodes;
mod shards;
mod state;
pub(in crate::server) mod warnings;

//! A node's data directory as a whole: lock, identity, which files there are and which may go.

pub mod data_dir;
mod foreign;
pub mod identity;
mod left_network;
mod link;
pub mod past;

pub use foreign::only_foreign;
pub use link::dangling_link;

//! Actions on entries: reading, writing, watching and walking the tree.

pub(in crate::server) mod batch;
pub(in crate::server) mod copies;
mod recycled_entry;
mod root;
mod tree;
pub(in crate::server) mod value;
mod watch;
mod write_reply;

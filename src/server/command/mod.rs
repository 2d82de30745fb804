//! What the actions do, one file per family.

mod acl;
mod admin;
mod batch;
mod cluster;
mod delete_group;
mod message;
mod root;
mod shards;
mod show;
mod snapshot;
mod spare;
mod state;
mod storage;
mod tree;
pub(super) mod unenforced;
pub(super) mod value;
mod watch;
mod write_reply;

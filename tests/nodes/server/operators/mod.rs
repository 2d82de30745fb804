//! What operators and their tools ask and do over the client port: nodes, shards, state, files.

mod admin;
mod cluster;
mod members;
mod shards;
mod snapshots;
mod state;
mod storage;

//! The client port over real sockets: each action, flow control, pipelining, what is sent when.

mod admin;
mod batches;
mod closed;
mod cluster;
mod conflicts;
mod copies;
mod flow;
mod gates;
mod gone;
mod limits;
mod messages;
mod operators;
mod patience;
mod python_habits;
mod shards;
mod snapshots;
mod state;
mod storage;
mod trees;
mod values;
mod watches;
mod write_ids;

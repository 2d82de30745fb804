//! The client port over real sockets: each action, flow control, pipelining, what is sent when.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that finds something wrong has to fail"
)]

#[macro_use]
#[path = "server/harness.rs"]
mod harness;

#[path = "server/admin.rs"]
mod admin;
#[path = "server/batches.rs"]
mod batches;
#[path = "server/closed.rs"]
mod closed;
#[path = "server/cluster.rs"]
mod cluster;
#[path = "server/conflicts.rs"]
mod conflicts;
#[path = "server/copies.rs"]
mod copies;
#[path = "server/flow.rs"]
mod flow;
#[path = "server/gates.rs"]
mod gates;
#[path = "server/gone.rs"]
mod gone;
#[path = "server/limits.rs"]
mod limits;
#[path = "server/messages.rs"]
mod messages;
#[path = "server/operators.rs"]
mod operators;
#[path = "server/patience.rs"]
mod patience;
#[path = "server/python_habits.rs"]
mod python_habits;
#[path = "server/shards.rs"]
mod shards;
#[path = "server/snapshots.rs"]
mod snapshots;
#[path = "server/state.rs"]
mod state;
#[path = "server/storage.rs"]
mod storage;
#[path = "server/trees.rs"]
mod trees;
#[path = "server/values.rs"]
mod values;
#[path = "server/watches.rs"]
mod watches;
#[path = "server/write_ids.rs"]
mod write_ids;

//! The smart client against real nodes in this process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that finds something wrong has to fail"
)]

#[path = "client/batches.rs"]
mod batches;
#[path = "client/messages.rs"]
mod messages;
#[path = "client/ops.rs"]
mod ops;
#[path = "client/pool.rs"]
mod pool;
#[path = "client/reads.rs"]
mod reads;
#[path = "client/topology.rs"]
mod topology;
#[path = "client/watches.rs"]
mod watches;

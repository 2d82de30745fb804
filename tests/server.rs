//! The client port over real sockets: each action, flow control, pipelining, what is sent when.

#[macro_use]
#[path = "server/harness.rs"]
mod harness;

#[path = "server/admin.rs"]
mod admin;
#[path = "server/copies.rs"]
mod copies;
#[path = "server/flow.rs"]
mod flow;
#[path = "server/limits.rs"]
mod limits;
#[path = "server/messages.rs"]
mod messages;
#[path = "server/state.rs"]
mod state;
#[path = "server/trees.rs"]
mod trees;
#[path = "server/values.rs"]
mod values;
#[path = "server/watches.rs"]
mod watches;

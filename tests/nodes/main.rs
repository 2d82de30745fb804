//! Nodes and clients within this process: the client protocol over real sockets, the Rust client, small
//! clusters, and peers and clients that mean harm.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of what tests share")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that fails should say so at once, and may read the clock"
)]

#[macro_use]
mod harness;

mod client;
mod client_affinity;
mod client_threads;
mod cluster;
mod hostile_client;
mod hostile_peer;
mod in_process;
mod secured;
mod server;
mod sockets;
mod tls;

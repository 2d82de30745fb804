//! Nodes with data directories, as processes: stopped, killed, copied, on a disk that fills up, and
//! three of them as a network.
//!
//! What takes too long for every day is done on request:
//!
//! ```sh
//! # 200 times killed under load, for each sync policy, instead of a few times:
//! DISTKV_KILLS=200 cargo test --release --test durable killed -- --nocapture --test-threads=1
//! ```

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that fails should say so at once, and may read the clock"
)]

mod processes;

#[path = "durable/files.rs"]
mod files;
#[path = "durable/full_disk.rs"]
mod full_disk;
#[path = "durable/kills.rs"]
mod kills;
#[path = "durable/network.rs"]
mod network;
#[path = "durable/place.rs"]
mod place;
#[path = "durable/restarts.rs"]
mod restarts;
#[path = "durable/set_back.rs"]
mod set_back;

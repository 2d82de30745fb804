//! Nodes with data directories, as processes: stopped, killed, copied, on a disk that fills up, and
//! three of them as a network.
//!
//! What takes too long for every day is done on request:
//!
//! ```sh
//! # 200 times killed under load, for each sync policy, instead of a few times:
//! DISTKV_KILLS=200 cargo test --release --test program durable::kills -- --nocapture --test-threads=1
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that fails should say so at once, and may read the clock"
)]

mod files;
mod foreign;
mod full_disk;
mod holes;
mod kills;
mod network;
mod place;
mod restarts;
mod set_back;
mod strange_files;
mod wrong_clock;

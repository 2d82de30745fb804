//! The simulator: fixed seeds that must not fail, planted defects that must be found, and networks of many
//! nodes. `cargo nextest run -p distkv-sim` builds them optimised.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of what tests share")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that fails should say so at once, and may read the clock"
)]

mod scale;
mod seeds;

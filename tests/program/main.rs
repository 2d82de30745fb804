//! Real processes of the real program: its command line, its files, what kills it, and networks of nodes on
//! hosts of their own (network namespaces).

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of what tests share")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that fails should say so at once, and may read the clock"
)]

/// The whole name of a test function of the calling module, as the test harness knows it.
macro_rules! test_name {
    ($name:expr) => {
        &$crate::name_of(module_path!(), $name)
    };
}

mod black_box;
mod cli;
mod client_storm;
mod documented;
mod durable;
mod exhaustion;
mod fail_stop;
mod hosts;
mod http;
mod mapped;
mod netns;
mod processes;
mod secure;
mod service;
mod slow_line;
mod stalled_watcher;
mod survival;
mod tls;

/// A test function's name behind its module's, without the crate's.
fn name_of(module: &str, name: &str) -> String {
    let module = module.split_once("::").map_or("", |(_, module)| module);
    format!("{module}::{name}")
}

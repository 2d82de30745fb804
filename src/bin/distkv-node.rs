//! The program: everything is in the library's `cli`.

use std::process::ExitCode;

/// A quarter of the time of a busy node goes to the allocator; this one is the faster one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // For `tests/program/fail_stop.rs`; a real node is built without.
    #[cfg(feature = "planted-defects")]
    if let Ok(word) = std::env::var("DISTKV_TEST_PLANT") {
        assert!(distkv::model::invariant::plant(&word), "no such invariant: {word}");
    }
    distkv::cli::run(std::env::args_os())
}

//! Scripts of what nodes with keys say to each other, and of rotations: `tests/interaction/*.txt`. Each block is some
//! commands, a line `----`, and what they print, up to an empty line. The commands are in `interaction/driver.rs`.
//!
//! `DISTKV_REWRITE=1 cargo test -p distkv-secure --test interaction` writes what is printed into the scripts; each line
//! of the difference must be explained.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]
#![allow(clippy::indexing_slicing, reason = "a script that names what is not there must fail")]

#[path = "interaction/driver.rs"]
mod driver;
#[macro_use]
#[path = "../../core/src/engine/tests/interaction/script.rs"]
mod script;
#[path = "interaction/show.rs"]
mod show;

use std::path::{Path, PathBuf};

use driver::Network;

/// Where the scripts are.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interaction")
}

fn check(name: &str) {
    let mut network = Network::default();
    script::check(&folder(), name, |command| network.run(command, name));
}

scripts! {
    datagrams
    handshakes
    rotation
    rotation_at_both_sides_of_a_split
    rotation_by_hand
    rotation_while_one_is_away
}

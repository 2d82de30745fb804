//! What needs neither a network nor a disk: files of earlier versions, and what every source file and document
//! must keep to.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of what tests share")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that fails should say so at once, and may read the clock"
)]

mod characters;
mod frozen_files;
mod man_pages;
mod operated;
mod tidy;

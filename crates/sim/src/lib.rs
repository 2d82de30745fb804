//! The simulator: whole clusters of real engines in one thread, with a virtual clock, a network
//! that breaks, and nodes that come and go, all derived from one seed; and a judge that records
//! what really happened and reports after every step what is wrong.
//!
//! Pure and deterministic: the same seed gives the same run. Each seed draws its own plan: the
//! size, the speed of the network, the frequency of faults ([`profile`]). Then come its steps, then
//! everything is repaired ([`engines`]), and in the end all nodes must agree ([`oracle`]). A failing run
//! is shortened ([`shrink()`]) and printed as a script ([`reporting`]).
//!
//! [`whole`] does the same with whole nodes: hub, log, disk, membership and clients, with a judge of its
//! own that asks for what users are promised.
//!
//! `cargo run --profile sim -p distkv-sim --example simulate` runs many seeds, and with `--defects` finds the
//! first seed of each planted defect ([`crate::model::defects`], [`SOUGHT`]); the tests in `seeds.rs` run some
//! seeds, and see that the defects are found.

#![allow(
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "this is a test: what cannot be is its own mistake, and should end it at once"
)]

use distkv_core::{engine, membership, protocol, replica, tree, virtual_net};
use distkv_durable as durable;
use distkv_hub as hub;
use distkv_model as model;
use distkv_storage as storage;

mod bits;
mod engines;
mod flight;
mod oracle;
mod profile;
mod reporting;
mod rng;
pub mod scale;
mod shrink;
mod sought;
#[cfg(test)]
mod tests;
mod whole;

pub use oracle::Failure;
pub use profile::{Family, Focus, Options};
pub use reporting::stats::Stats;
pub use shrink::shrink;
pub use sought::{FOUND_BY_OTHER_TESTS, SOUGHT, Sought};
pub use whole::HELD_UP_FROM;

use engines::cluster::Cluster;

/// The result of one seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The first failure, if there was one.
    pub failure: Option<Failure>,
    /// How many steps the seed has.
    steps: usize,
    /// What happened, by count.
    pub stats: Stats,
    /// What happened, in lines for people, if they were asked for.
    pub script: Vec<String>,
}

/// Runs one seed.
#[must_use]
pub fn run(seed: u64, options: &Options) -> Outcome {
    run_without(seed, options, &[], false)
}

/// Runs one seed without some of its steps (true: left out), and writes the script if wanted.
#[must_use]
pub fn run_without(seed: u64, options: &Options, skipped: &[bool], wants_script: bool) -> Outcome {
    match options.family {
        Family::Nodes => whole::run(seed, options, skipped, wants_script),
        Family::Small | Family::Whole => Cluster::new(seed, options, skipped, wants_script).run(),
    }
}

//! How networks behave as they grow: time to form, time until a change is everywhere, messages and
//! bytes at rest and under load; and how soon a crash is seen. `docs/scale.md` has what came of it.
//!
//! ```sh
//! cargo run --release --example cluster_scale -- sim --nodes 100,1000
//! cargo run --release --example cluster_scale -- real --nodes 3,10,48,64
//! cargo run --release --example cluster_scale -- crash --seeds 500
//! cargo run --release --example cluster_scale -- kill --rounds 20
//! ```

#![allow(clippy::disallowed_methods, clippy::indexing_slicing, reason = "it measures")]

#[path = "../support/mod.rs"]
mod support;

mod crash;
mod real;
mod simulated;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// Most of what is simulated is many small allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure networks of many nodes.
#[derive(Parser)]
#[command(name = "cluster_scale")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Simulated networks with a virtual clock: real engines and real SWIM, no sockets.
    Sim(SimArguments),
    /// Real nodes on loopback sockets, all in this process.
    Real(RealArguments),
    /// How soon a crash is seen, simulated over many seeds, and whether there are false alarms.
    Crash(CrashArguments),
    /// How soon a crash is seen by real processes, one of which is killed.
    Kill(KillArguments),
}

/// What `real` is told.
#[derive(Args)]
struct RealArguments {
    /// How many nodes; several numbers are done one after the other.
    #[arg(long, value_delimiter = ',', default_value = "3,10,48,64")]
    nodes: Vec<usize>,
    /// Changes per second, in the whole network.
    #[arg(long, default_value_t = 1_000)]
    rate: u64,
    /// How long each phase is measured, seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Nothing is measured for so long after the network has formed, seconds.
    #[arg(long, default_value_t = 65)]
    settle: u64,
    /// How many changes are followed to every node.
    #[arg(long, default_value_t = 200)]
    changes: usize,
}

/// What `crash` is told.
#[derive(Args)]
struct CrashArguments {
    /// How many nodes.
    #[arg(long, default_value_t = 5)]
    nodes: usize,
    /// How many crashes, each with another seed.
    #[arg(long, default_value_t = 500)]
    seeds: u64,
    /// How many networks are watched for an hour without a crash.
    #[arg(long, default_value_t = 10)]
    hours: u64,
    /// How many of a thousand datagrams are lost.
    #[arg(long, default_value_t = 20)]
    loss_permille: u32,
}

/// What `kill` is told.
#[derive(Args)]
struct KillArguments {
    /// How many nodes, the one that is killed included.
    #[arg(long, default_value_t = 5)]
    nodes: usize,
    /// How often.
    #[arg(long, default_value_t = 20)]
    rounds: u64,
}

/// What `sim` is told.
#[derive(Args)]
struct SimArguments {
    /// How many nodes; several numbers are done one after the other.
    #[arg(long, value_delimiter = ',', default_value = "3,10,48,100,1000")]
    nodes: Vec<usize>,
    /// In larger networks not all nodes are linked with all.
    #[arg(long, default_value_t = distkv::engine::overlay::FULL_MESH_MAX)]
    full_mesh_max: usize,
    /// Changes per second, in the whole network.
    #[arg(long, default_value_t = 1_000)]
    rate: u64,
    /// How long each phase is measured, virtual seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// How many nodes make the changes; all if left out.
    #[arg(long)]
    writers: Option<usize>,
    /// Bytes of a change's value, 16 to 250.
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    /// How long a frame or datagram takes, at least and at most, microseconds.
    #[arg(long, value_delimiter = ',', num_args = 2, default_values_t = [200, 500])]
    hop_us: Vec<u64>,
    /// How many of a thousand datagrams are lost.
    #[arg(long, default_value_t = 0)]
    loss_permille: u32,
    /// Another network.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    if let Some(code) = support::nodes::become_node_if_asked() {
        return code;
    }
    let done = match Arguments::parse().what {
        What::Sim(arguments) => simulated::run(&arguments),
        What::Real(arguments) => real::run(&arguments),
        What::Crash(arguments) => crash::simulated(&arguments),
        What::Kill(arguments) => crash::killed(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cluster_scale: {error}");
            ExitCode::FAILURE
        }
    }
}

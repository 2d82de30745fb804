//! How networks behave as they grow: time to form, time until a change is everywhere, messages and
//! bytes at rest and under load; and how soon a crash is seen. `docs/scale.md` has what came of it.
//!
//! ```sh
//! cargo run --release --example cluster_scale -- sim --nodes 100,1000
//! cargo run --release --example cluster_scale -- real --nodes 3,10,48,64
//! cargo run --release --example cluster_scale -- crash --seeds 500
//! cargo run --release --example cluster_scale -- kill --rounds 20
//! ```

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "shared by several examples")]
mod support;

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
}

/// What `sim` is told.
#[derive(Args)]
pub struct SimArguments {
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
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cluster_scale: {error}");
            ExitCode::FAILURE
        }
    }
}

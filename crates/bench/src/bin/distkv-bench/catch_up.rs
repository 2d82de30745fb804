//! How long a fresh node takes until it has everything: one starts, joins, and leaves again.

use clap::Args;
use distkv_client::Fields;
use distkv_command::error::CliError;
use distkv_command::output::Output;
use distkv_command::remote::RemoteArgs;
use distkv_command::units::show_bytes;
use distkv_runtime as rt;
use serde_json::json;

use crate::compare::lab::{Lab, Pins};
use crate::stores::Store;
use crate::stores::distkv::{entries_of, start_fresh};

/// Measure how long a fresh node takes until it has everything
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-bench catch-up 127.0.0.1:27587          # of a node of this machine
  distkv-bench catch-up n1 --connect n1
  distkv-bench catch-up b.example.org --runs 5 --connect a.example.org

A node starts, joins through PEER, and leaves when it has everything. The time is from the \
start of its process until it serves clients: finding the network, fetching, and applying. \
--connect is asked for the network's name and the number of entries.")]
pub(super) struct CatchUpArgs {
    /// A node of the network, at its address for other nodes
    #[arg(value_name = "PEER")]
    peer: String,

    /// How often
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,

    #[command(flatten)]
    remote: RemoteArgs,
}

pub(super) fn run(args: &CatchUpArgs) -> Result<(), CliError> {
    let status = rt::block_on(async {
        args.remote.connect().await?.request("status", &Fields::new()).await
    })?;
    let (expected, bytes) = (status.u64("entries"), status.u64("memory_bytes"));
    let network = status.str("network").unwrap_or_default();
    let node = Store::ours()?;
    let lab = Lab::open(Pins::default())?;
    let mut output = Output::new(args.remote.json);
    let mut times = Vec::new();
    for n in 1..=args.runs {
        let name = format!("bench-{:08x}", rt::random_u64() as u32);
        let began = rt::now_us();
        let started = start_fresh(&node, &name, network, &args.peer, &lab);
        let server = started.inspect_err(|_| lab.stop_if_interrupted())?;
        let took = rt::now_us() - began;
        let found = entries_of(&server)?;
        server.child.leave();
        times.push(took);
        let ms = took as f64 / 1e3;
        output.either(
            || json!({"run": n, "ms": ms, "entries": found, "expected": expected}),
            || {
                let of = expected.map_or_else(String::new, |entries| format!(" of {entries}"));
                let size = bytes.map_or_else(String::new, |b| format!(", {}", show_bytes(b)));
                let found = found.unwrap_or_default();
                format!("run {n}: {ms:.0} ms, {found}{of} entries{size}")
            },
        )?;
        output.flush()?;
    }
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default() as f64 / 1e3;
    output.either(|| json!({"median_ms": median}), || format!("median: {median:.0} ms"))?;
    output.flush()
}

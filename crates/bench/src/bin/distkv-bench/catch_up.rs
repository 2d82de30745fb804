//! How long a fresh node takes until it has everything: one starts, joins, and leaves again.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clap::Args;
use distkv_bench::load::LoadError;
use distkv_client::{Fields, Message};
use distkv_command::error::CliError;
use distkv_command::output::Output;
use distkv_command::remote::RemoteArgs;
use distkv_command::units::show_bytes;
use distkv_model::host_port::{GOSSIP_PORT, HostPort};
use distkv_runtime as rt;
use serde_json::json;

use crate::compare::lab::{Lab, PATIENCE_WITH_FETCH, Pins};
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
--connect is asked for the network's name and the number of entries.

A run may take 5 minutes, or what --timeout says; then it is told whom the node does not reach, \
and why. The node leaves its network at the end, also after an error or Ctrl-C.")]
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
    let peer = HostPort::parse_remote(&args.peer, Some(GOSSIP_PORT));
    let peer = peer.map_err(|error| CliError::Usage(format!("PEER: {error}")))?;
    let status = rt::block_on(async {
        args.remote.connect().await?.request("status", &Fields::new()).await
    })?;
    // A node waits for a name to be known, and for a peer to come. Here it would wait in vain.
    addresses_of(&peer)?;
    let lab = Lab::open(Pins::default())?;
    let done = measure(args, &peer, &status, &lab);
    // Then there is nothing more to tell, and the node may still be leaving.
    lab.stop_if_interrupted();
    done
}

fn measure(
    args: &CatchUpArgs,
    peer: &HostPort,
    status: &Message,
    lab: &Lab,
) -> Result<(), CliError> {
    let (expected, bytes) = (status.u64("entries"), status.u64("memory_bytes"));
    let network = status.str("network").unwrap_or_default();
    let node = Store::ours()?;
    let patience = args.remote.timeout.unwrap_or(PATIENCE_WITH_FETCH);
    // Not before: a peer warns of connections on which nobody greets.
    let look = || reach(peer, args.remote.timeout_or_default());
    let mut output = Output::new(args.remote.json);
    let mut times = Vec::new();
    for n in 1..=args.runs {
        let name = format!("bench-{:08x}", rt::random_u64() as u32);
        let began = rt::now_us();
        let server = start_fresh(&node, &name, network, &args.peer, lab, (patience, &look))
            .map_err(|error| error.said(|text| format!("joining through {peer}: {text}")))?;
        let took = rt::now_us() - began;
        let found = entries_of(&server)?;
        // It leaves.
        drop(server);
        lab.stop_if_interrupted();
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

/// Whether anybody takes connections there.
fn reach(peer: &HostPort, patience: Duration) -> Result<(), CliError> {
    let addresses = addresses_of(peer)?;
    let share = patience / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let mut failed = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, share) {
            Ok(_) => return Ok(()),
            Err(error) => failed = Some(LoadError::Connect(address, error)),
        }
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

fn addresses_of(peer: &HostPort) -> Result<Vec<SocketAddr>, CliError> {
    let addresses = rt::block_on(rt::resolve(peer));
    addresses.map_err(|error| CliError::Failure(format!("cannot look up {peer}: {error}")))
}

//! How long a fresh node takes until it has everything: one joins, in this process, and leaves again.

use clap::Args;
use serde_json::json;

use crate::cli::error::CliError;
use crate::cli::output::Output;
use crate::cli::remote::RemoteArgs;
use crate::cli::settings::{Settings, StartKind};
use crate::cli::units::show_bytes;
use crate::client::Fields;
use crate::node::Node;
use crate::rt;

/// Measure how long a fresh node takes until it has everything
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node bench catch-up 127.0.0.1:27587
  distkv-node bench catch-up b.example.org --runs 5 --connect a.example.org

A node starts in this process, joins through PEER, and leaves when it has everything. The \
time is from its start until it serves clients: finding the network, fetching, and applying. \
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

pub(super) async fn run(args: CatchUpArgs, before: RemoteArgs) -> Result<(), CliError> {
    let remote = args.remote.or(before);
    let status = remote.connect().await?.request("status", &Fields::new()).await?;
    let (entries, bytes) = (status.u64("entries"), status.u64("memory_bytes"));
    let network = status.str("network").map(str::to_owned);
    let mut output = Output::new(remote.json);
    let mut times = Vec::new();
    for n in 0..args.runs {
        let settings = Settings {
            name: Some(format!("bench-{:08x}", rt::random_u64() as u32)),
            network: network.clone(),
            client: Some("127.0.0.1:0".to_owned()),
            gossip: Some("127.0.0.1:0".to_owned()),
            peers: Some(vec![args.peer.clone()]),
            ..Settings::default()
        };
        let config = settings.into_config(StartKind::Join, String::new)?;
        let began = rt::now_us();
        let node = Node::start(config).await;
        let node = node.map_err(|error| CliError::Failure(error.to_string()))?;
        let ready = node.ready().await;
        let took = rt::now_us() - began;
        let found = node.hub().read(|engine| engine.tree().len()) as u64;
        node.shutdown().await;
        ready.map_err(|reason| CliError::Failure(format!("the node has ended: {reason}")))?;
        times.push(took);
        let ms = took as f64 / 1e3;
        output.either(
            || json!({"run": n + 1, "ms": ms, "entries": found, "expected": entries}),
            || {
                let of = entries.map_or_else(String::new, |entries| format!(" of {entries}"));
                let size = bytes.map_or_else(String::new, |b| format!(", {}", show_bytes(b)));
                format!("run {}: {ms:.0} ms, {found}{of} entries{size}", n + 1)
            },
        )?;
        output.flush()?;
    }
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default() as f64 / 1e3;
    output.either(|| json!({"median_ms": median}), || format!("median: {median:.0} ms"))?;
    output.flush()
}

//! Measures what clients feel of a snapshot that is being made: latencies of writes while a node
//! saves and while it does not, in one run; the ratio of their p99s is what counts.
//!
//! ```sh
//! cargo run --release --example save_latency
//! cargo run --release --example save_latency -- --sync every-batch --rate 200 --dir /var/tmp
//! ```
//!
//! The node is a process of its own. Each writer sends one write at a time, anywhere among the
//! entries, so that a snapshot that is held meanwhile costs what it costs.

#![allow(clippy::disallowed_methods, reason = "it measures")]

mod support;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use distkv::client::{Connection, Fields};
use distkv::rt;
use support::figures::{bytes, median, percentile, thousands, time};
use support::load::{Writer, set_all};
use support::nodes::{self, Node};

/// The allocator of the real program, whose part the process plays.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What the entries are below.
const TOP: &str = "load";

/// Measure what clients feel of a snapshot
#[derive(Parser)]
#[command(name = "save_latency")]
struct Arguments {
    /// Entries that the node holds
    #[arg(long, default_value_t = 1_000_000)]
    entries: u64,

    /// About so many bytes per value
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,

    /// How often it is measured
    #[arg(long, default_value_t = 5)]
    runs: usize,

    /// Writers, each with a connection
    #[arg(long, default_value_t = 4)]
    writers: u64,

    /// Writes per second of each
    #[arg(long, default_value_t = 500)]
    rate: u64,

    /// The sync policy
    #[arg(long, default_value = "every-second")]
    sync: String,

    /// Where the data directory is made
    #[arg(long)]
    dir: Option<PathBuf>,
}

fn main() -> ExitCode {
    if let Some(ended) = nodes::become_node_if_asked() {
        return ended;
    }
    match measure(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("save_latency: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> Result<(), String> {
    let place = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::tempdir_in(place).map_err(|e| e.to_string())?;
    let data = folder.path().join("data");
    let data = data.to_str().ok_or("the directory's name is no text")?;
    // Snapshots only when they are asked for.
    let options =
        ["run", "--data-dir", data, "--sync", &arguments.sync, "--snapshot-after", "1TiB"];
    let node = Node::start("n1", &options)?;
    rt::block_on(measure_node(arguments, &node))
}

async fn measure_node(arguments: &Arguments, node: &Node) -> Result<(), String> {
    let operator = node.connect().await?;
    let began = rt::now_us();
    let numbers = 0..arguments.entries;
    let set = set_all(&operator, TOP, numbers, 0, arguments.value_bytes).await;
    set.map_err(|e| e.to_string())?;
    let took = time(rt::now_us() - began);
    println!("{} entries written in {took}", thousands(arguments.entries));
    // Once for the page cache, the allocator, and whatever else is slow the first time.
    save(&operator).await?;
    let mut ratios = Vec::new();
    for run in 1..=arguments.runs {
        ratios.push(measure_once(arguments, node, &operator, run).await?);
    }
    println!("median of {} runs: p99 is {:.2} times as long", arguments.runs, median(&ratios));
    Ok(())
}

/// Lets clients write while the node saves, and for as long before that; the p99s' ratio.
async fn measure_once(
    arguments: &Arguments,
    node: &Node,
    operator: &Connection,
    run: usize,
) -> Result<f64, String> {
    let start = |_| {
        let Arguments { entries, rate, value_bytes, .. } = *arguments;
        Writer::start_over(node.client, TOP, entries, rate, value_bytes)
    };
    let writers: Vec<Writer> = (0..arguments.writers).map(start).collect();
    rt::sleep(Duration::from_millis(300)).await;
    let quiet_from = rt::now_us();
    rt::sleep(Duration::from_secs(3)).await;
    let from = rt::now_us();
    let size = save(operator).await?;
    let until = rt::now_us();
    let (mut quiet, mut saving) = (Vec::new(), Vec::new());
    for writer in writers {
        for (sent, took) in writer.stop()? {
            match sent {
                sent if sent >= until || sent < quiet_from => {}
                sent if sent >= from => saving.push(took),
                _ => quiet.push(took),
            }
        }
    }
    let ratio = percentile(&mut saving, 0.99) as f64 / percentile(&mut quiet, 0.99).max(1) as f64;
    let show = |what: &str, latencies: &mut Vec<u64>| {
        let [half, most, max] = [0.5, 0.99, 1.0].map(|share| time(percentile(latencies, share)));
        println!("  {what}: p50 {half}, p99 {most}, max {max} of {} writes", latencies.len());
    };
    println!("run {run}: {} saved in {}, p99 {ratio:.2} times", bytes(size), time(until - from));
    show("before", &mut quiet);
    show("meanwhile", &mut saving);
    Ok(ratio)
}

/// Has the node make a snapshot; its length.
async fn save(operator: &Connection) -> Result<u64, String> {
    let reply = operator.request("snapshot", &Fields::new()).await.map_err(|e| e.to_string())?;
    let details = distkv::client::message::map_items(reply.get("result").unwrap_or_default());
    let size = details.filter(|(key, _)| distkv::client::message::as_str(key) == Some("bytes"));
    Ok(size.filter_map(|(_, value)| distkv::client::message::as_u64(value)).next().unwrap_or(0))
}

//! What it costs to bring two nodes together again that were cut off from each other: time,
//! bytes in each direction compared with what each had missed, and what clients that write
//! meanwhile feel of it.
//!
//! ```sh
//! cargo run --release --example resync_cost
//! cargo run --release --example resync_cost -- --entries 100000 --events 0,1000 --json
//! ```
//!
//! Two real nodes, each a process, with a proxy between them that counts and cuts. They hold the
//! same entries; then the wire is cut, each side makes changes of its own, and the wire is mended.
//!
//! *Missed* are, per direction, the changed entries as briefly as MessagePack can write them: path,
//! value, chain with names and ticks, tock. *Equal* is when each node accounts for every tick that
//! the other had made. Bytes are counted until half a second later, so that last words are in.
//! The pause until the nodes find each other again (they call about once a second) is told apart:
//! times and latencies begin with the first byte after the wire was mended.

#![allow(clippy::disallowed_methods, reason = "it measures")]

mod support;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use distkv::client::Connection;
use distkv::rt;
use serde_json::json;
use support::figures::{bytes, median, percentile, thousands, time};
use support::load::{self, Latency, Writer, wait_equal, wait_for_heads};
use support::nodes::{self, Node};
use support::proxy::Wire;

/// The allocator of the real program, whose part the processes play.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long the wire is listened to after the nodes are equal.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// The least time over which latencies are gathered.
const WINDOW_US: u64 = 1_000_000;

/// Measure what it costs to bring two nodes together again
#[derive(Parser)]
#[command(name = "resync_cost")]
struct Arguments {
    /// Equal entries on both nodes
    #[arg(long, default_value_t = 1_000_000)]
    entries: u64,

    /// Changes that each side makes while it is cut off; several cases
    #[arg(long, value_delimiter = ',', default_values_t = [0, 100, 10_000, 100_000])]
    events: Vec<u64>,

    /// About so many bytes per value
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,

    /// How often the latencies of writes are measured, with and without a resync in turn; 0: not
    #[arg(long, default_value_t = 5)]
    runs: usize,

    /// Writes per second at each node while that is measured
    #[arg(long, default_value_t = 1_000)]
    rate: u64,

    /// Print one line of JSON per case
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    if let Some(ended) = nodes::become_node_if_asked() {
        return ended;
    }
    match rt::block_on(run(&Arguments::parse())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("resync_cost: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The two nodes and the wire between them.
struct Pair {
    wire: Wire,
    nodes: [Node; 2],
    clients: [Connection; 2],
    /// Each change gets another value.
    round: u64,
    value_bytes: usize,
    entries: u64,
}

async fn run(arguments: &Arguments) -> Result<(), String> {
    let mut pair = Pair::start(arguments).await?;
    for events in arguments.events.iter().copied() {
        if events > arguments.entries / 2 {
            return Err(format!("{events} events per side are more than half of the entries"));
        }
        let cost = pair.measure_cost(events).await?;
        let mut runs = Vec::new();
        for _ in 0..arguments.runs {
            runs.push(pair.measure_latency(events, arguments.rate).await?);
        }
        report(events, &cost, &runs, arguments.json);
    }
    pair.check_equal().await
}

/// What one resync cost.
struct Cost {
    /// Until the first byte.
    linked_us: u64,
    /// From then until equal.
    equal_us: u64,
    /// What each node sent.
    sent: [u64; 2],
    /// What each node had that the other missed.
    missed: [u64; 2],
}

/// Latencies of writes without and with a resync: the 99th percentile at each node, and how many
/// writes it is of.
struct LatencyRun {
    without: [(u64, usize); 2],
    with: [(u64, usize); 2],
    resync_us: u64,
}

impl Pair {
    async fn start(arguments: &Arguments) -> Result<Pair, String> {
        let wire = Wire::new().map_err(|e| format!("no wire: {e}"))?;
        let [first, second] = [0, 1].map(|side| wire.advertised(side).to_string());
        let a = Node::start("a", &["run", "--advertise", &first])?;
        wire.lead_to(0, a.gossip);
        let to_a = a.connect().await?;
        let began = rt::now_us();
        let numbers = 0..arguments.entries;
        let loaded = load::set_all(&to_a, "load", numbers, 0, arguments.value_bytes).await;
        let loaded = loaded.map_err(|e| e.to_string())?;
        let load_us = rt::now_us() - began;
        let began = rt::now_us();
        let b = Node::start("b", &["join", &first, "--advertise", &second])?;
        wire.lead_to(1, b.gossip);
        let to_b = b.connect().await?;
        wait_equal(&[&to_a, &to_b], PATIENCE).await?;
        let join_us = rt::now_us() - began;
        if !arguments.json {
            let per_s = arguments.entries as f64 / (load_us as f64 / 1e6);
            println!(
                "{} entries of together {} written in {} ({} per second); the second node joined \
                 in {}, {} on the wire",
                thousands(arguments.entries),
                bytes(loaded),
                time(load_us),
                thousands(per_s as u64),
                time(join_us),
                bytes(wire.sent().iter().sum()),
            );
        }
        Ok(Pair {
            wire,
            nodes: [a, b],
            clients: [to_a, to_b],
            round: 0,
            value_bytes: arguments.value_bytes,
            entries: arguments.entries,
        })
    }

    fn both(&self) -> [&Connection; 2] {
        let [a, b] = &self.clients;
        [a, b]
    }

    /// Cuts the wire and lets each side make changes; returns how many bytes those have.
    async fn diverge(&mut self, events: u64) -> Result<[u64; 2], String> {
        self.wire.cut();
        self.round += 1;
        let half = self.entries / 2;
        let mut missed = [0; 2];
        for ((client, from), missed) in self.clients.iter().zip([0, half]).zip(&mut missed) {
            let numbers = from..from + events;
            *missed = load::set_all(client, "load", numbers, self.round, self.value_bytes)
                .await
                .map_err(|e| e.to_string())?;
        }
        Ok(missed)
    }

    /// Mends the wire; returns when, and when the first byte passed.
    async fn mend(&self) -> Result<(u64, u64), String> {
        let before: u64 = self.wire.sent().iter().sum();
        let mended = rt::now_us();
        self.wire.mend();
        while self.wire.sent().iter().sum::<u64>() == before {
            if rt::now_us() - mended > PATIENCE.as_micros() as u64 {
                return Err("the nodes do not find each other again".into());
            }
            rt::sleep(Duration::from_micros(500)).await;
        }
        Ok((mended, rt::now_us()))
    }

    async fn measure_cost(&mut self, events: u64) -> Result<Cost, String> {
        let missed = self.diverge(events).await?;
        let heads = load::all_heads(&self.both()).await.map_err(|e| e.to_string())?;
        let before = self.wire.sent();
        let (mended, linked) = self.mend().await?;
        wait_for_heads(&self.both(), &heads, PATIENCE).await?;
        let equal = rt::now_us();
        rt::sleep(LAST_WORDS).await;
        let after = self.wire.sent();
        let sent = [after[0] - before[0], after[1] - before[1]];
        Ok(Cost { linked_us: linked - mended, equal_us: equal - linked, sent, missed })
    }

    fn write(&self, rate: u64) -> [Writer; 2] {
        let [a, b] = &self.nodes;
        [(a, "live-a"), (b, "live-b")]
            .map(|(node, top)| Writer::start(node.client, top, rate, self.value_bytes))
    }

    async fn measure_latency(&mut self, events: u64, rate: u64) -> Result<LatencyRun, String> {
        // Alone, for as long as a resync takes at least.
        let writers = self.write(rate);
        rt::sleep(Duration::from_millis(300)).await;
        let from = rt::now_us();
        rt::sleep(Duration::from_micros(2 * WINDOW_US)).await;
        let without = p99s(writers, from, rt::now_us())?;

        self.diverge(events).await?;
        let writers = self.write(rate);
        rt::sleep(Duration::from_millis(300)).await;
        let heads = load::all_heads(&self.both()).await.map_err(|e| e.to_string())?;
        let (_, linked) = self.mend().await?;
        wait_for_heads(&self.both(), &heads, PATIENCE).await?;
        let equal = rt::now_us();
        let until = equal.max(linked + WINDOW_US);
        rt::sleep(Duration::from_micros(until - equal)).await;
        let with = p99s(writers, linked, until)?;
        wait_equal(&self.both(), PATIENCE).await?;
        Ok(LatencyRun { without, with, resync_us: equal - linked })
    }

    async fn check_equal(&self) -> Result<(), String> {
        wait_equal(&self.both(), PATIENCE).await?;
        let [a, b] = self.both();
        let a = load::fingerprint(a).await.map_err(|e| e.to_string())?;
        let b = load::fingerprint(b).await.map_err(|e| e.to_string())?;
        if a == b {
            return Ok(());
        }
        Err(format!("the nodes differ in the end: {a:?} and {b:?} are sum and number of entries"))
    }
}

fn p99s(writers: [Writer; 2], from: u64, until: u64) -> Result<[(u64, usize); 2], String> {
    let [a, b] = writers.map(Writer::stop);
    let p99 = |latencies: Vec<Latency>| {
        let within = latencies.iter().filter(|(sent, _)| (from..until).contains(sent));
        let mut times: Vec<u64> = within.map(|(_, took)| *took).collect();
        (percentile(&mut times, 0.99), times.len())
    };
    Ok([p99(a?), p99(b?)])
}

fn report(events: u64, cost: &Cost, runs: &[LatencyRun], as_json: bool) {
    let sent: u64 = cost.sent.iter().sum();
    let missed: u64 = cost.missed.iter().sum();
    let allowed = 3 * missed + (64 << 10);
    let factor = sent as f64 / missed.max(1) as f64;
    // Per run the worse of the two nodes; then the run in the middle.
    let ratio_of = |run: &LatencyRun| {
        let pairs = run.with.iter().zip(&run.without);
        pairs.map(|(with, without)| with.0 as f64 / without.0.max(1) as f64).fold(0.0, f64::max)
    };
    let ratios: Vec<f64> = runs.iter().map(ratio_of).collect();
    let ratio = median(&ratios);
    if as_json {
        let p99 = |side: &[(u64, usize); 2]| {
            let [a, b] = side;
            json!([{"us": a.0, "writes": a.1}, {"us": b.0, "writes": b.1}])
        };
        let runs: Vec<_> = runs
            .iter()
            .map(|run| {
                json!({
                    "without": p99(&run.without),
                    "with": p99(&run.with),
                    "resync_us": run.resync_us,
                    "ratio": ratio_of(run),
                })
            })
            .collect();
        let line = json!({
            "events_per_side": events,
            "linked_us": cost.linked_us,
            "equal_us": cost.equal_us,
            "sent_bytes": cost.sent,
            "missed_bytes": cost.missed,
            "allowed_bytes": allowed,
            "within": sent <= allowed,
            "latency_runs": runs,
            "latency_ratio_median": (!ratios.is_empty()).then_some(ratio),
        });
        println!("{line}");
        return;
    }
    println!(
        "\n{} different events per side:\n  linked again after {}, equal {} later\n  bytes: {} from a, \
         {} from b, together {}; missed {}: {factor:.2} times that; allowed {} ({})",
        thousands(events),
        time(cost.linked_us),
        time(cost.equal_us),
        thousands(cost.sent[0]),
        thousands(cost.sent[1]),
        bytes(sent),
        bytes(missed),
        bytes(allowed),
        if sent <= allowed { "within" } else { "TOO MANY" },
    );
    for (run, ratio) in runs.iter().zip(&ratios) {
        let [(a0, n0), (b0, _)] = run.without;
        let [(a1, n1), (b1, _)] = run.with;
        println!(
            "  p99 of writes: without {a0} and {b0} us ({n0} each), during a resync of {}: {a1} and \
             {b1} us ({n1} each): {ratio:.2} times",
            time(run.resync_us)
        );
    }
    if !ratios.is_empty() {
        println!("  median of {} runs: {ratio:.2} times", ratios.len());
    }
}

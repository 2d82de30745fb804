//! How soon a crash is seen: simulated, over many seeds, and with real processes that are killed.

use std::time::{Duration, Instant};

use distkv::client::message::{array_items, as_str, map_items};
use distkv::client::{Connection, Fields};
use distkv::testing::block_on;
use distkv_sim::scale::{Scale, ScaleOptions};

use super::support::figures::percentile;
use super::support::nodes::Node;
use super::{CrashArguments, KillArguments};

/// How long a crash may take to be seen.
const PATIENCE_MS: u64 = 30_000;

fn options(arguments: &CrashArguments, seed: u64) -> ScaleOptions {
    ScaleOptions {
        seed,
        hop_us: (1_000, 3_000),
        datagram_loss_permille: arguments.loss_permille,
        has_data: false,
        ..ScaleOptions::default()
    }
}

/// A crash at a different point of the probe period each, then whether anybody is ever taken for
/// dead who is not.
pub(crate) fn simulated(arguments: &CrashArguments) -> Result<(), String> {
    let (mut each, mut last) = (Vec::new(), Vec::new());
    for seed in 0..arguments.seeds {
        let mut net = Scale::new(options(arguments, seed));
        net.grow(arguments.nodes);
        if !net.run(PATIENCE_MS, Scale::all_see_all) {
            return Err(format!("seed {seed}: the nodes do not find each other"));
        }
        net.run(6_000 + seed * 37 % 5_000, |_| false);
        let (before, began) = (net.deaths().len(), net.now());
        net.kill(arguments.nodes - 1);
        if !net.run(PATIENCE_MS, |net| net.deaths().len() - before >= arguments.nodes - 1) {
            return Err(format!("seed {seed}: not all saw the crash"));
        }
        let took: Vec<u64> = net.deaths()[before..].iter().map(|d| (d.2 - began) / 1_000).collect();
        last.extend(took.iter().max());
        each.extend(took);
    }
    println!(
        "{} nodes, {} crashes, {} ‰ of the datagrams lost: seen by each after median {} ms, p99 {} \
         ms, max {} ms; by all after median {} ms, max {} ms",
        arguments.nodes,
        arguments.seeds,
        arguments.loss_permille,
        percentile(&mut each, 0.5),
        percentile(&mut each, 0.99),
        percentile(&mut each, 1.0),
        percentile(&mut last, 0.5),
        percentile(&mut last, 1.0),
    );
    let mut false_alarms = 0;
    for seed in 0..arguments.hours {
        let mut net = Scale::new(options(arguments, 1_000_000 + seed));
        net.grow(arguments.nodes);
        net.run(3_600_000, |_| false);
        false_alarms += net.deaths().len();
    }
    println!("{} networks for an hour each: {false_alarms} false alarms", arguments.hours);
    Ok(())
}

/// Real processes; the last one is killed as `kill -9` does it.
pub(crate) fn killed(arguments: &KillArguments) -> Result<(), String> {
    let first = Node::start("n0", &["run"])?;
    let to = first.gossip.to_string();
    let mut nodes = vec![first];
    for at in 1..arguments.nodes.max(2) - 1 {
        nodes.push(Node::start(&format!("n{at}"), &["join", &to])?);
    }
    let (mut each, mut last) = (Vec::new(), Vec::new());
    for round in 0..arguments.rounds {
        let name = format!("victim-{round}");
        let victim = Node::start(&name, &["join", &to])?;
        let took = block_on(async {
            let mut watched = Vec::new();
            for node in &nodes {
                watched.push(node.connect().await?);
            }
            wait(&watched, &name, "up").await?;
            // Another point of the probe period each time.
            let settles = Duration::from_millis(2_000 + round * 137 % 1_000);
            distkv::rt::sleep(settles).await;
            drop(victim);
            wait(&watched, &name, "down").await
        })?;
        let longest = took.iter().copied().max().unwrap_or(0);
        println!("round {round}: seen by all after {longest} ms");
        last.push(longest);
        each.extend(took);
    }
    println!(
        "{} processes, {} of them killed one after the other: seen by each after median {} ms, max {} \
         ms; by all after median {} ms, max {} ms",
        arguments.nodes,
        arguments.rounds,
        percentile(&mut each, 0.5),
        percentile(&mut each, 1.0),
        percentile(&mut last, 0.5),
        percentile(&mut last, 1.0),
    );
    Ok(())
}

/// How long it takes until each sees that node in that state, milliseconds.
async fn wait(nodes: &[Connection], name: &str, state: &str) -> Result<Vec<u64>, String> {
    let began = Instant::now();
    let mut took = vec![None; nodes.len()];
    while took.iter().any(Option::is_none) {
        if began.elapsed() > Duration::from_secs(60) {
            return Err(format!("{name} is not {state} for all after 60 s"));
        }
        for (node, took) in nodes.iter().zip(&mut took).filter(|(_, took)| took.is_none()) {
            if state_of(node, name).await?.as_deref() == Some(state) {
                *took = Some(began.elapsed().as_millis() as u64);
            }
        }
        distkv::rt::sleep(Duration::from_millis(5)).await;
    }
    Ok(took.into_iter().flatten().collect())
}

async fn state_of(node: &Connection, name: &str) -> Result<Option<String>, String> {
    let reply = node.request("cluster", &Fields::new()).await.map_err(|e| e.to_string())?;
    for member in array_items(reply.get("nodes").unwrap_or_default()) {
        let field = |wanted: &str| {
            map_items(member)
                .find(|(key, _)| as_str(key) == Some(wanted))
                .and_then(|(_, value)| as_str(value).map(str::to_owned))
        };
        if field("name").as_deref() == Some(name) {
            return Ok(field("state"));
        }
    }
    Ok(None)
}

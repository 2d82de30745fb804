//! What becomes of many deletions: how soon the Delete group has purged their tombstones on every
//! node, whether the memory comes back, and what a node does that was away during the purge and
//! comes back with the old values and with new changes of its own.
//!
//! ```sh
//! cargo run --release --example deletions
//! cargo run --release --example deletions -- --deletions 10000 --json
//! ```
//!
//! First three real nodes, each a process: entries that stay, then entries that go. Then two nodes
//! with a wire between them that is cut while one of them deletes and purges.

#![allow(clippy::disallowed_methods, reason = "it measures")]

mod support;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use distkv::client::{Connection, Fields};
use distkv::rt;
use serde_json::json;
use support::figures::{bytes, thousands, time};
use support::load;
use support::nodes::{self, Node};
use support::proxy::Wire;

/// The allocator of the real program, whose part the processes play.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long the nodes are left alone before their memory is measured: an allocator gives it back
/// with a delay.
const REST: Duration = Duration::from_secs(3);

/// Measure how deletions are purged
#[derive(Parser)]
#[command(name = "deletions")]
struct Arguments {
    /// Entries that stay
    #[arg(long, default_value_t = 200_000)]
    entries: u64,

    /// Entries that are made and deleted again
    #[arg(long, default_value_t = 100_000)]
    deletions: u64,

    /// About so many bytes per value
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,

    /// Changes that the node makes which is away
    #[arg(long, default_value_t = 1_000)]
    changes: u64,

    /// Print a line of JSON for each part
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    if let Some(ended) = nodes::become_node_if_asked() {
        return ended;
    }
    let arguments = Arguments::parse();
    let result = rt::block_on(async {
        purge_everywhere(&arguments).await?;
        come_back(&arguments).await
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("deletions: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn set(
    node: &Connection,
    top: &str,
    numbers: std::ops::Range<u64>,
    round: u64,
    arguments: &Arguments,
) -> Result<(), String> {
    let set = load::set_all(node, top, numbers, round, arguments.value_bytes).await;
    set.map(drop).map_err(|e| e.to_string())
}

/// Waits until none of the nodes has a tombstone; returns how long that took.
async fn wait_purged(nodes: &[&Connection]) -> Result<u64, String> {
    let began = rt::now_us();
    for node in nodes {
        while load::status(node, "tombstones").await? > 0 {
            if rt::now_us() - began > PATIENCE.as_micros() as u64 {
                return Err(format!("{} still has tombstones", node.address()));
            }
            rt::sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(rt::now_us() - began)
}

async fn purge_everywhere(arguments: &Arguments) -> Result<(), String> {
    let a = Node::start("a", &["run"])?;
    let to = a.gossip.to_string();
    let nodes = [a, Node::start("b", &["join", &to])?, Node::start("c", &["join", &to])?];
    let mut clients = Vec::new();
    for node in &nodes {
        clients.push(node.connect().await?);
    }
    let clients: Vec<&Connection> = clients.iter().collect();
    let [first, second, ..] = clients.as_slice() else { return Err("no nodes".into()) };
    set(first, "stays", 0..arguments.entries, 0, arguments).await?;
    load::wait_equal(&clients, PATIENCE).await?;
    rt::sleep(REST).await;
    let resident = || nodes.iter().map(Node::resident_bytes).collect::<Vec<_>>();
    let before = resident();
    set(first, "goes", 0..arguments.deletions, 0, arguments).await?;
    load::wait_equal(&clients, PATIENCE).await?;
    let most = resident();
    let began = rt::now_us();
    load::delete_all(second, "goes", 0..arguments.deletions).await.map_err(|e| e.to_string())?;
    load::wait_equal(&clients, PATIENCE).await?;
    let deleted_us = rt::now_us() - began;
    let purged_us = wait_purged(&clients).await?;
    rt::sleep(REST).await;
    let after = resident();
    let mut left = Vec::new();
    for node in &clients {
        left.push(load::status(node, "entries").await?);
    }
    let factor = |at: usize| {
        let [before, after] = [&before, &after].map(|all| all.get(at).copied().unwrap_or(0));
        after as f64 / before.max(1) as f64
    };
    if arguments.json {
        println!(
            "{}",
            json!({
                "part": "purge", "deletions": arguments.deletions, "entries_left": left,
                "deleted_us": deleted_us, "purged_us": purged_us,
                "resident_before": before, "resident_most": most, "resident_after": after,
            })
        );
        return Ok(());
    }
    println!(
        "{} deletions on three nodes in {}, purged on all {} later; entries left: {left:?}",
        thousands(arguments.deletions),
        time(deleted_us),
        time(purged_us),
    );
    for (at, node) in nodes.iter().enumerate() {
        let show = |all: &[u64]| bytes(all.get(at).copied().unwrap_or(0));
        println!(
            "  {}: resident {} before they were made, {} with them, {} after: {:.3} of before",
            node.name,
            show(&before),
            show(&most),
            show(&after),
            factor(at)
        );
    }
    Ok(())
}

async fn count(node: &Connection, top: &str, numbers: std::ops::Range<u64>) -> Result<u64, String> {
    let mut found = 0;
    for number in numbers {
        let reply = node.request("get_value", &Fields::at(&load::path(top, number))).await;
        found += u64::from(reply.map_err(|e| e.to_string())?.get("value").is_some());
    }
    Ok(found)
}

async fn come_back(arguments: &Arguments) -> Result<(), String> {
    let wire = Wire::new().map_err(|e| format!("no wire: {e}"))?;
    let [first, second] = [0, 1].map(|side| wire.advertised(side).to_string());
    let a = Node::start("a", &["run", "--advertise", &first])?;
    wire.lead_to(0, a.gossip);
    let c = Node::start("c", &["join", &first, "--advertise", &second])?;
    wire.lead_to(1, c.gossip);
    let (to_a, to_c) = (a.connect().await?, c.connect().await?);
    let both = [&to_a, &to_c];
    set(&to_a, "goes", 0..arguments.deletions, 0, arguments).await?;
    load::wait_equal(&both, PATIENCE).await?;
    wire.cut();
    let deletions = arguments.deletions;
    load::delete_all(&to_a, "goes", 0..deletions).await.map_err(|e| e.to_string())?;
    let purged_us = wait_purged(&[&to_a]).await?;
    // Of the changes made meanwhile, half are to what was deleted, half are new.
    let changed = arguments.changes / 2;
    set(&to_c, "goes", 0..changed.min(deletions), 1, arguments).await?;
    set(&to_c, "new", 0..changed, 1, arguments).await?;
    let old = load::status(&to_c, "live_entries").await?;
    wire.mend();
    let began = rt::now_us();
    load::wait_equal(&both, PATIENCE).await?;
    wait_purged(&both).await?;
    let equal_us = rt::now_us() - began;
    let mut live = Vec::new();
    for node in both {
        let changed = count(node, "goes", 0..changed.min(deletions)).await?;
        let new = count(node, "new", 0..arguments.changes / 2).await?;
        live.push((load::status(node, "live_entries").await?, changed, new));
    }
    let [print_a, print_c] = [load::fingerprint(&to_a).await, load::fingerprint(&to_c).await];
    let prints = (print_a.map_err(|e| e.to_string())?, print_c.map_err(|e| e.to_string())?);
    let expected = changed.min(deletions) + changed;
    let is_good = prints.0 == prints.1 && live.iter().all(|(all, _, _)| *all <= expected + 1);
    let survived = live.iter().all(|(_, a, b)| a + b == expected);
    if arguments.json {
        println!(
            "{}",
            json!({
                "part": "come back", "deletions": deletions, "purged_us": purged_us,
                "live_while_away": old, "live_after": live.iter().map(|l| l.0).collect::<Vec<_>>(),
                "equal": prints.0 == prints.1, "old_stay_dead": is_good, "new_live": survived,
                "equal_us": equal_us,
            })
        );
    } else {
        println!(
            "a node that was away while {} deletions were purged came back with {} live entries, \
             {} of them of its own: {} later both nodes hold {} and {} (root included)",
            thousands(deletions),
            thousands(old),
            thousands(expected),
            time(equal_us),
            thousands(live.first().map_or(0, |l| l.0)),
            thousands(live.last().map_or(0, |l| l.0)),
        );
    }
    if !is_good {
        return Err(format!("deleted entries came back: {live:?}, {prints:?}"));
    }
    if !survived {
        return Err(format!("new changes were deleted: {live:?} of {expected}"));
    }
    Ok(())
}

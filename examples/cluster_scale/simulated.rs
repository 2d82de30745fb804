//! Networks with a virtual clock: `distkv_sim::scale`.

use std::time::Duration;

use distkv::rt;
use distkv_sim::scale::{Class, Scale, ScaleOptions, Traffic};

use super::SimArguments;
use super::support::figures::percentile;

/// How long a network may take to form, virtual milliseconds.
const FORM_MS: u64 = 120_000;
/// Nothing is measured for so long: trees settle, and joiners' news are told.
const SETTLE_MS: u64 = 70_000;

pub(crate) fn run(arguments: &SimArguments) -> Result<(), String> {
    let (per_second, seconds) = (arguments.rate, arguments.seconds);
    println!(
        "links take {:?} µs; at rest {seconds} s, then {per_second} changes/s of {} bytes by {} \
         for {seconds} s\n",
        arguments.hop_us,
        arguments.value_bytes,
        arguments.writers.map_or_else(|| "everybody".to_owned(), |n| format!("{n} nodes")),
    );
    for nodes in &arguments.nodes {
        one(*nodes, arguments)?;
    }
    Ok(())
}

fn one(nodes: usize, arguments: &SimArguments) -> Result<(), String> {
    let began = rt::now();
    let mut net = Scale::new(ScaleOptions {
        seed: arguments.seed,
        full_mesh_max: arguments.full_mesh_max,
        hop_us: (arguments.hop_us[0], arguments.hop_us[1]),
        datagram_loss_permille: arguments.loss_permille,
        value_bytes: arguments.value_bytes,
        ..ScaleOptions::default()
    });
    let start = net.now();
    let since = |net: &Scale| (net.now() - start) as f64 / 1e6;
    net.grow(nodes);
    let formed = net.run(FORM_MS, |net| net.engines().all(|(_, engine)| engine.is_ready()));
    let ready = since(&net);
    // Of what everybody should see, 999 of a thousand.
    let nearly = net.run(FORM_MS, |net| net.seen_permille() >= 999);
    let nearly_seen = since(&net);
    let linked = net.run(FORM_MS, Scale::all_linked);
    let all_linked = since(&net);
    let seen = net.run(FORM_MS, Scale::all_see_all);
    let all_seen = since(&net);
    if !formed || !nearly || !seen || !linked {
        let permille = net.seen_permille();
        return Err(format!(
            "{nodes} nodes did not form a network: {formed} {nearly} {seen} {linked}, {permille} ‰, \
             {} deaths",
            net.deaths().len()
        ));
    }
    println!(
        "== {nodes} nodes: all ready after {ready:.1} s, 99.9 % see each other after \
         {nearly_seen:.1} s, all links as wanted after {all_linked:.1} s, all see all after \
         {all_seen:.1} s, {} false deaths",
        net.deaths().len()
    );
    let (mut links, mut links_max) = (0, 0);
    for (_, engine) in net.engines() {
        links += engine.link_count();
        links_max = links_max.max(engine.link_count());
    }
    println!("   links per node: mean {:.1}, max {links_max}", links as f64 / nodes as f64);
    // The first changes make the tree; digests forget the newcomers' news.
    (0..nodes.min(20)).for_each(|at| net.write_at(at * nodes / nodes.min(20)));
    net.run(SETTLE_MS, |_| false);
    net.take_traffic();
    let ms = arguments.seconds * 1_000;
    net.run(ms, |_| false);
    show("at rest", &net.take_traffic(), nodes, arguments.seconds);

    // One change at a time first: nothing is in anybody's way.
    net.measure(true);
    for at in 0..20 {
        net.write_at((at * 7919) % nodes);
        net.run(500, |_| false);
    }
    spread("one change at a time", &mut net, nodes, 20);
    net.measure(false);
    net.write(arguments.rate, arguments.writers.unwrap_or(nodes));
    net.run(3_000, |_| false);
    net.take_traffic();
    let before = Counts::of(&net);
    net.measure(true);
    net.run(ms, |_| false);
    let traffic = net.take_traffic();
    net.measure(false);
    let after = Counts::of(&net);
    net.write(0, 0);
    let agreed = net.run(30_000, Scale::all_agree);
    spread("under load", &mut net, nodes, (after.writes - before.writes) as usize);
    show("under load", &traffic, nodes, arguments.seconds);
    let changes = (after.writes - before.writes).max(1) as f64;
    println!(
        "   per change and node {:.3} second copies; {} prunes, {} grafts, {} catch-ups in all; all \
         the same in the end: {agreed}",
        (after.duplicates - before.duplicates) as f64 / changes / nodes as f64,
        after.prunes - before.prunes,
        after.grafts - before.grafts,
        after.catch_ups - before.catch_ups,
    );
    let took = Duration::from_millis(rt::now() - began);
    println!("   ({:.0} virtual seconds took {took:.1?})\n", since(&net));
    if agreed { Ok(()) } else { Err(format!("{nodes} nodes do not agree")) }
}

/// Sums of the engines' counters.
struct Counts {
    writes: u64,
    duplicates: u64,
    prunes: u64,
    grafts: u64,
    catch_ups: u64,
}

impl Counts {
    fn of(net: &Scale) -> Self {
        let sum = |get: fn(&distkv::engine::EngineCounters) -> u64| {
            net.engines().map(|(_, engine)| get(&engine.counters())).sum()
        };
        Self {
            writes: sum(|c| c.writes),
            duplicates: sum(|c| c.duplicates),
            prunes: sum(|c| c.prunes),
            grafts: sum(|c| c.grafts),
            catch_ups: sum(|c| c.catch_ups),
        }
    }
}

fn spread(what: &str, net: &mut Scale, nodes: usize, changes: usize) {
    let mut took: Vec<u64> = net.take_latencies().into_iter().map(u64::from).collect();
    let expected = changes * (nodes - 1);
    let ms = |us: u64| us as f64 / 1_000.0;
    println!(
        "   {what}: visible at another node after p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms ({} of \
         {expected})",
        ms(percentile(&mut took, 0.5)),
        ms(percentile(&mut took, 0.99)),
        ms(percentile(&mut took, 1.0)),
        took.len(),
    );
}

fn show(what: &str, traffic: &Traffic, nodes: usize, seconds: u64) {
    let per = |count: u64| count as f64 / nodes as f64 / seconds as f64;
    let (messages, bytes) = traffic.total();
    println!(
        "   {what}: each node sends {:.1} messages and {:.0} bytes per second",
        per(messages),
        per(bytes)
    );
    let parts: Vec<String> = Class::ALL
        .iter()
        .filter(|(class, _)| traffic.of(*class).0 > 0)
        .map(|(class, name)| {
            let (messages, bytes) = traffic.of(*class);
            format!("{name} {:.1}/s {:.0} B/s", per(messages), per(bytes))
        })
        .collect();
    println!("      {}", parts.join(", "));
}

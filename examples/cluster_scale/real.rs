//! Real nodes on loopback sockets, all in this process.

use std::thread;
use std::time::{Duration, Instant};

use distkv::client::HostPort;
use distkv::model::ids::NodeName;
use distkv::model::path::Path;
use distkv::model::value::Value;
use distkv::node::{Node, PeerTraffic};
use distkv::rt;
use distkv::testing::{TestCluster, block_on, loopback, wait_until};

use super::RealArguments;
use super::support::figures::percentile;

/// How long a network may take to form.
const FORM: Duration = Duration::from_secs(120);
/// Between two looks whether a change is there.
const LOOK: Duration = Duration::from_micros(50);

pub(crate) fn run(arguments: &RealArguments) -> Result<(), String> {
    for nodes in &arguments.nodes {
        block_on(one(*nodes, arguments))?;
    }
    Ok(())
}

async fn one(count: usize, arguments: &RealArguments) -> Result<(), String> {
    let began = Instant::now();
    let cluster = form(count).await?;
    let ready = began.elapsed();
    let nodes = cluster.nodes();
    let sees_all = |node: &Node| node.hub().read(|engine| engine.members().count()) + 1 == count;
    if !wait_until(FORM, || nodes.iter().all(sees_all)).await {
        return Err(format!("{count} nodes do not all see all"));
    }
    let seen = began.elapsed();
    if !cluster.linked().await {
        return Err(format!("{count} nodes do not get their links"));
    }
    println!(
        "== {count} real nodes: all ready after {ready:.1?}, all see all after {seen:.1?}, all \
         links after {:.1?}",
        began.elapsed()
    );
    (0..count).for_each(|at| drop(set(&nodes[at], 0, at as u64)));
    // Links that nobody needs any more go, and digests forget the newcomers' news.
    rt::sleep(Duration::from_secs(arguments.settle)).await;
    let links: usize = nodes.iter().map(|n| n.hub().read(|engine| engine.link_count())).sum();
    println!("   links per node: mean {:.1}", links as f64 / count as f64);
    let before = traffic(nodes);
    rt::sleep(Duration::from_secs(arguments.seconds)).await;
    show("at rest", before, traffic(nodes), count, arguments.seconds);
    spread("one change at a time", nodes, arguments.changes, Duration::from_millis(5), 1);

    let before = traffic(nodes);
    let cpu = cpu_seconds();
    let total = arguments.rate * arguments.seconds;
    let pause = Duration::from_millis(20);
    let changes = arguments.changes.min(arguments.seconds as usize * 20);
    // The nodes' tasks have threads of their own.
    let took = thread::scope(|scope| {
        let load = scope.spawn(|| make_load(nodes, arguments.rate, total));
        thread::sleep(Duration::from_millis(500));
        spread("under load", nodes, changes, pause, 2);
        load.join().unwrap_or_default()
    });
    show("under load", before, traffic(nodes), count, took.as_secs().max(1));
    println!(
        "   {:.0} changes/s were made; {:.2} CPU s per second for all nodes and this program",
        total as f64 / took.as_secs_f64(),
        (cpu_seconds() - cpu) / took.as_secs_f64()
    );
    let settling = Instant::now();
    cluster.settled().await.map_err(|error| error.to_string())?;
    println!("   all hold the same {:.1?} after the last change", settling.elapsed());
    let counters = nodes.iter().map(|node| node.hub().read(|engine| engine.counters()));
    let sums = counters.fold((0, 0, 0, 0), |s, c| {
        (s.0 + c.duplicates, s.1 + c.prunes, s.2 + c.grafts, s.3 + c.catch_ups)
    });
    println!(
        "   since the start: {} second copies, {} prunes, {} grafts, {} catch-ups\n",
        sums.0, sums.1, sums.2, sums.3
    );
    cluster.shutdown().await;
    Ok(())
}

/// Makes so many changes at that rate, each at the next node; returns how long it took.
fn make_load(nodes: &[Node], rate: u64, total: u64) -> Duration {
    let (start, mut made) = (Instant::now(), 0);
    while made < total {
        let due = (start.elapsed().as_micros() as u64 * rate / 1_000_000).min(total);
        while made < due {
            let _ = set(&nodes[made as usize % nodes.len()], 1, made);
            made += 1;
        }
        thread::sleep(Duration::from_millis(1));
    }
    start.elapsed()
}

/// Starts all but the first at once.
async fn form(count: usize) -> Result<TestCluster, String> {
    let mut cluster = TestCluster::start(1).await.map_err(|e| e.to_string())?;
    let seed = HostPort::from(cluster.node(0).gossip_addr()).to_string();
    let starts = (1..count).map(|at| {
        let seed = seed.clone();
        async move {
            let name = NodeName::new(&format!("n{at}")).map_err(|e| e.to_string())?;
            let node = Node::start(loopback(name, vec![seed])).await.map_err(|e| e.to_string())?;
            node.ready().await.map_err(|e| e.to_string())?;
            Ok::<Node, String>(node)
        }
    });
    for node in futures::future::join_all(starts).await {
        cluster.push(node?);
    }
    Ok(cluster)
}

fn path(top: i64, number: u64) -> Option<Path> {
    Path::root().push("scale").ok()?.push(top).ok()?.push((number % (1 << 32) % 10_000) as i64).ok()
}

fn set(node: &Node, top: i64, number: u64) -> Option<(Path, Value)> {
    let mut raw = vec![0xc4, 98];
    raw.extend_from_slice(&number.to_be_bytes());
    raw.resize(100, 7);
    let (path, value) = (path(top, number)?, Value::new(&raw).ok()?);
    node.set(&path, &value).ok()?;
    Some((path, value))
}

/// Makes changes one after the other; how long each takes from the write's return until each other
/// node has it. `round`: another one's values are others.
fn spread(what: &str, nodes: &[Node], changes: usize, pause: Duration, round: u64) {
    let (mut each, mut last) = (Vec::new(), Vec::new());
    for change in 0..changes {
        let maker = change * 7 % nodes.len();
        let Some((path, value)) = set(&nodes[maker], 2, round << 32 | change as u64) else {
            continue;
        };
        let made = Instant::now();
        let mut open: Vec<&Node> = nodes.iter().collect();
        open.swap_remove(maker);
        let mut longest = 0;
        while !open.is_empty() && made.elapsed() < Duration::from_secs(10) {
            open.retain(|node| {
                let has = node.get(&path).is_some_and(|found| found == value);
                if has {
                    longest = made.elapsed().as_micros() as u64;
                    each.push(longest);
                }
                !has
            });
            thread::sleep(LOOK);
        }
        last.push(longest);
        thread::sleep(pause);
    }
    let ms = |us: u64| us as f64 / 1_000.0;
    println!(
        "   {what}: from the write's reply to another node p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms; \
         to the last one p50 {:.2} ms, p99 {:.2} ms ({} changes)",
        ms(percentile(&mut each, 0.5)),
        ms(percentile(&mut each, 0.99)),
        ms(percentile(&mut each, 1.0)),
        ms(percentile(&mut last, 0.5)),
        ms(percentile(&mut last, 0.99)),
        last.len(),
    );
}

fn traffic(nodes: &[Node]) -> PeerTraffic {
    let mut sum = PeerTraffic::default();
    for one in nodes.iter().map(Node::peer_traffic) {
        sum.frames += one.frames;
        sum.frame_bytes += one.frame_bytes;
        sum.datagrams += one.datagrams;
        sum.datagram_bytes += one.datagram_bytes;
    }
    sum
}

fn show(what: &str, before: PeerTraffic, after: PeerTraffic, nodes: usize, seconds: u64) {
    let per = |a: u64, b: u64| (b - a) as f64 / nodes as f64 / seconds as f64;
    println!(
        "   {what}: each node sends {:.1} frames/s, {:.0} B/s; {:.1} datagrams/s, {:.0} B/s",
        per(before.frames, after.frames),
        per(before.frame_bytes, after.frame_bytes),
        per(before.datagrams, after.datagrams),
        per(before.datagram_bytes, after.datagram_bytes),
    );
}

/// User and system time of this process.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let rest = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        rest.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}

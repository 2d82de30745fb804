//! What is measured at one server: reads and writes, watchers, listing.

use distkv_bench::keys::{Distribution, Ops, Values};
use distkv_bench::load::{LoadError, Work};
use distkv_bench::measure::{Measured, fill, join, measure_those, nanos, start, usage, wait_until};
use distkv_bench::process::Usage;
use distkv_bench::sockets::CONNECT_TIMEOUT;
use distkv_command::error::CliError;
use distkv_runtime as rt;

use super::figures::WORK;
use super::lab::{Cores, Lab, Server};
use super::talk::{Counter, Talk};
use super::{Plan, VALUE_BYTES};
use crate::listen::{READ_BYTES, read_all, read_some};
use crate::store_protocol::StoreProtocol;
use crate::stores::{Kind, Store};

/// How many watchers there are, and how many writes in flight.
const WATCHERS: usize = 100;
const WRITES_IN_FLIGHT: usize = 100;
/// How many keys are written for watchers.
const WATCHED_KEYS: u64 = 10_000;
/// How many entries are listed, and how often.
const LISTED: u64 = 100_000;
const LISTINGS: usize = 5;

/// Memory per entry; then CPU, rate, latency for each of [`WORK`].
pub(super) fn requests(store: &Store, plan: Plan, lab: &Lab) -> Result<Vec<Option<f64>>, CliError> {
    let servers = store.start(1, lab, Cores::One)?;
    let server = only(store, &servers)?;
    let (targets, processes) = ([server.address], [server.process()]);
    let mut figures = Vec::new();
    if store.kind == Kind::Echo {
        figures.push(None);
    } else {
        let before = server.usage();
        fill(&targets, store.protocol(), &plan.shape(1, 1, 0.0, plan.keys))?;
        let after = server.usage();
        let grown = before.zip(after).map(|(a, b)| b.resident.saturating_sub(a.resident));
        figures.push(grown.map(|bytes| bytes as f64 / plan.keys as f64));
    }
    for (connections, depth, reads) in WORK {
        let shape = plan.shape(connections, depth, reads, plan.keys);
        let measured = measure_those(&targets, &processes, store.protocol(), &shape)?;
        if measured.tally.errors > 0 {
            return Err(store.failed("it answers with errors"));
        }
        figures.extend(figures_of(&measured, reads));
    }
    Ok(figures)
}

fn figures_of(measured: &Measured, reads: f64) -> [Option<f64>; 3] {
    let tally = &measured.tally;
    let times = if reads > 0.5 { &tally.reads } else { &tally.writes };
    let p99 = times.value_at_percentile(99.0) as f64 / 1e3;
    [measured.cpu_per_million(), Some(measured.per_second() / 1e3), Some(p99)]
}

fn only<'a>(store: &Store, servers: &'a [Server]) -> Result<&'a Server, CliError> {
    servers.first().ok_or_else(|| store.failed("there is none"))
}

/// Millions of deliveries per second, and what a million of them costs the servers.
pub(super) fn watchers(store: &Store, plan: Plan, lab: &Lab) -> Result<Vec<Option<f64>>, CliError> {
    let protocol = store.protocol_of_watchers();
    // Others are of use as three nodes only; there it is another node that is watched.
    let count = if matches!(protocol, StoreProtocol::Etcd | StoreProtocol::Nats) { 3 } else { 1 };
    let servers = store.start(count, lab, Cores::One)?;
    let watched = servers.last().ok_or_else(|| store.failed("there is none"))?.address;
    let mut talks = Vec::new();
    for _ in 0..WATCHERS {
        let mut talk = Talk::connect(protocol, watched)?;
        talk.watch()?;
        talks.push(talk);
    }
    let counted_from = rt::now_ns() + nanos(plan.warm_up);
    let end = counted_from.saturating_add(nanos(plan.duration));
    let work = Work {
        secure: None,
        timeout: CONNECT_TIMEOUT,
        protocol,
        targets: vec![only(store, &servers)?.address],
        depth: WRITES_IN_FLIGHT,
        ops: Ops::new(Distribution::Uniform, WATCHED_KEYS, 0.0, 1),
        values: Values::new(VALUE_BYTES, 1),
        counted_from,
        end,
        count: None,
    };
    let writer = start(work);
    let mark = protocol.mark_of_change();
    let counting = rt::spawn_thread("watchers", move || count_all(talks, mark, counted_from, end));
    wait_until(counted_from);
    let before = usage_of(&servers);
    wait_until(end);
    let after = usage_of(&servers);
    let counting = counting.map_err(LoadError::Poll)?;
    let deliveries = counting.join().map_err(|_| LoadError::Thread)??;
    join(vec![writer])?;
    if deliveries == 0.0 {
        return Err(store.failed("nothing is delivered"));
    }
    let cpu = before.zip(after).map(|(a, b)| (b.cpu_s - a.cpu_s) * 1e6 / deliveries);
    Ok(vec![Some(deliveries / plan.duration.as_secs_f64() / 1e6), cpu])
}

/// What several servers have used so far.
pub(crate) fn usage_of(servers: &[Server]) -> Option<Usage> {
    usage(&servers.iter().map(Server::process).collect::<Vec<_>>())
}

/// Reads what comes to all until the end. The changes that come to the first are counted, and of
/// the others the bytes, since all get the same.
fn count_all(talks: Vec<Talk>, mark: &[u8], counted_from: u64, end: u64) -> Result<f64, LoadError> {
    let (mut changes, mut bytes, mut bytes_of_first) = (0, 0, 0);
    let (mut buffer, mut counter) = (vec![0; READ_BYTES], Counter::new(mark));
    let connections = talks.into_iter().map(|talk| (talk.stream, talk.address));
    read_all(connections, end, |index, now, stream| {
        let length = read_some(stream, &mut buffer)?;
        let found = match index {
            0 => counter.count(buffer.get(..length).unwrap_or_default()),
            _ => 0,
        };
        if now >= counted_from {
            changes += found;
            bytes += length as u64;
            bytes_of_first += if index == 0 { length as u64 } else { 0 };
        }
        Ok(length == READ_BYTES)
    })?;
    Ok(changes as f64 * bytes as f64 / bytes_of_first.max(1) as f64)
}

/// Seconds until all of [`LISTED`] entries are here: the median of some.
pub(super) fn listing(store: &Store, plan: Plan, lab: &Lab) -> Result<Vec<Option<f64>>, CliError> {
    let listed = LISTED.min(plan.keys);
    let servers = store.start(1, lab, Cores::One)?;
    let server = only(store, &servers)?;
    fill(&[server.address], store.protocol(), &plan.shape(1, 1, 0.0, listed))?;
    let mut times = Vec::new();
    for _ in 0..LISTINGS {
        let mut talk = Talk::connect(store.protocol(), server.address)?;
        let began = rt::now_ns();
        let found = store.list(&mut talk, listed)?;
        times.push((rt::now_ns() - began) as f64 / 1e9);
        if found != listed {
            return Err(store.failed(&format!("it lists {found} entries of {listed}")));
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(vec![times.get(LISTINGS / 2).copied()])
}

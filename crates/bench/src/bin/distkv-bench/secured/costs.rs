//! CPU of requests: of this build and an older one, in plain text and by TLS, with open links and sealed ones.

use distkv_bench::args::Shape;
use distkv_bench::measure::{Measured, fill, measure_those};
use distkv_bench::sockets::Secure;
use distkv_client::Access;
use distkv_command::error::CliError;

use super::nodes::{Guard, Nodes};
use super::rows::{Row, Way};
use super::{SecuredArgs, Work};
use crate::compare::lab::{Cores, Server};
use crate::compare::one::usage_of;
use crate::compare::several::all_have;
use crate::stores::Store;

/// CPU is told in hundredths of a second: of fewer answers it says nothing.
const ANSWERS_LEAST: u64 = 5_000;
/// How many nodes there are where links are measured.
const NODES: usize = 3;

/// An older build, and this one.
pub(super) fn open(args: &SecuredArgs, nodes: &Nodes) -> Result<Vec<Row>, CliError> {
    let (before, now) = (nodes.store(args.before.as_deref()), nodes.store(None));
    let start = |store: &Store, own: &str| nodes.start(store, own, 1, Guard::Open, Cores::One);
    let (old, new) = (start(&before, "before")?, start(&now, "now")?);
    for servers in [&old, &new] {
        filled(args, &now, servers)?;
    }
    requests(args, "open", &now, |way, shape| {
        (if way == Way::Without { &old } else { &new }, shape)
    })
}

/// Plain text, and TLS, at the same node.
pub(super) fn tls(args: &SecuredArgs, nodes: &Nodes) -> Result<Vec<Row>, CliError> {
    let store = nodes.store(None);
    let servers = nodes.start(&store, "tls", 1, Guard::Sealed, Cores::One)?;
    filled(args, &store, &servers)?;
    let tls = nodes.admin()?.tls().cloned();
    let secure = tls.and_then(|tls| Secure::of(&Access::default().by_tls(tls), None));
    requests(args, "TLS", &store, |way, shape| {
        let secure = secure.clone().filter(|_| way == Way::With);
        (&servers, Shape { secure, ..shape })
    })
}

/// Open links, and sealed ones.
pub(super) fn links(args: &SecuredArgs, nodes: &Nodes) -> Result<Vec<Row>, CliError> {
    let store = nodes.store(None);
    let start = |own: &str, guard| nodes.start(&store, own, NODES, guard, Cores::All);
    let (open, sealed) = (start("open", Guard::Open)?, start("sealed", Guard::Sealed)?);
    for servers in [&open, &sealed] {
        filled(args, &store, servers)?;
    }
    let mut rows = Vec::new();
    let mut mark = 1;
    for work in Work::ALL.into_iter().filter(|work| work.reads < 0.5) {
        let name = format!("links of {NODES} nodes: {}: CPU s of all per million", work.name());
        let mut row = Row::new(name, 2);
        for pair in 0..args.pairs {
            for way in Way::of_pair(pair) {
                let servers = if way == Way::Without { &open } else { &sealed };
                mark += 1;
                row.add(way, replicated(args, &store, servers, work, mark)?);
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

/// CPU seconds of all nodes per million sets, until all have them.
fn replicated(
    args: &SecuredArgs,
    store: &Store,
    servers: &[Server],
    work: Work,
    mark: u64,
) -> Result<f64, CliError> {
    // All of it is counted, since what is on the way when counting begins would be counted, too.
    let shape = Shape { warm_up: std::time::Duration::ZERO, ..args.shape(work) };
    let before = usage_of(servers);
    let targets: Vec<_> = servers.iter().take(1).map(|server| server.address).collect();
    let measured = measure_those(&targets, &[], store.protocol(), &shape)?;
    all_have(store, servers, args.keys, mark)?;
    let after = usage_of(servers);
    check(store, &measured)?;
    let cpu = before.zip(after).map(|(before, after)| after.cpu_s - before.cpu_s);
    let cpu = cpu.ok_or_else(|| store.failed("its CPU cannot be read"))?;
    Ok(cpu * 1e6 / measured.tally.answers().max(1) as f64)
}

/// All kinds of requests at one server, in pairs. `how`: the servers and the load of each way.
fn requests<'s>(
    args: &SecuredArgs,
    what: &str,
    store: &Store,
    how: impl Fn(Way, Shape) -> (&'s Vec<Server>, Shape),
) -> Result<Vec<Row>, CliError> {
    let mut rows = Vec::new();
    for work in Work::ALL {
        let mut row = Row::new(format!("{what}: {}: CPU s per million", work.name()), 2);
        for pair in 0..args.pairs {
            for way in Way::of_pair(pair) {
                let (servers, shape) = how(way, args.shape(work));
                let targets: Vec<_> = servers.iter().map(|server| server.address).collect();
                let processes: Vec<_> = servers.iter().map(Server::process).collect();
                let measured = measure_those(&targets, &processes, store.protocol(), &shape)?;
                check(store, &measured)?;
                let cpu = measured.cpu_per_million();
                row.add(way, cpu.ok_or_else(|| store.failed("its CPU cannot be read"))?);
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Whether a measurement can be used.
fn check(store: &Store, measured: &Measured) -> Result<(), CliError> {
    if measured.tally.errors > 0 {
        return Err(store.failed("it answers with errors"));
    }
    if measured.tally.answers() < ANSWERS_LEAST {
        let text = format!(
            "fewer than {ANSWERS_LEAST} answers came; give a longer --warm-up (for the handshakes of TLS) or --duration"
        );
        return Err(store.failed(&text));
    }
    Ok(())
}

/// Sets every key once, at the first of some nodes, and waits until all have them.
fn filled(args: &SecuredArgs, store: &Store, servers: &[Server]) -> Result<(), CliError> {
    let targets: Vec<_> = servers.iter().take(1).map(|server| server.address).collect();
    fill(&targets, store.protocol(), &args.shape(Work { connections: 1, depth: 1, reads: 0.0 }))?;
    all_have(store, servers, args.keys, 1)
}

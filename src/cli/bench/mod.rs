//! `bench`: what a node, a network or another server can do, measured from outside.
//!
//! | file | what |
//! |---|---|
//! | this one | the command line, and one measurement: fill, warm up, measure |
//! | `load` | the load generator: connections on a thread |
//! | `wire` | the protocols that it speaks |
//! | `keys` | which key comes next |
//! | `place` | where it writes on a node, and that it is deleted again |
//! | `process` | what the server costs |
//! | `report` | tables and plots for people, JSON for programs |
//! | `echo` | a server that does nothing, to see what the generator can do |
//! | `streams` | propagation from node to node, and many watchers |
//! | `tree` | how long a listing takes |
//! | `catch_up` | how long a fresh node takes until it has everything |
//! | `compare` | the same work on other servers of this machine |
//! | `peers` | these servers: what they speak, and how they are started |

mod catch_up;
mod compare;
mod echo;
mod keys;
mod listen;
mod load;
mod peers;
mod place;
mod process;
mod report;
mod secure;
mod streams;
mod tree;
mod wire;

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::error::CliError;
use super::remote::{RemoteArgs, parse_address};
use super::units::{parse_bytes, parse_duration};
use crate::client::HostPort;
use crate::rt;
use keys::{Distribution, Ops, Values};
use load::{LoadError, Tally, Work};
use process::{Process, Usage};
use secure::Secure;
use wire::Protocol;

/// Most connections of one run: what a process may open by default.
const CONNECTIONS_MAX: usize = 10_000;
/// Most requests in flight on a connection.
const DEPTH_MAX: usize = 1_024;
/// Most threads that make load.
const THREADS_MAX: usize = 64;
/// So many requests are in flight on each connection that fills.
const FILL_DEPTH: usize = 64;
/// So many connections fill.
const FILL_CONNECTIONS: usize = 4;
/// So long is slept at most between two looks at whether the load is to end.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// How long filling may take.
const FILL_NS: u64 = 3_600_000_000_000;

/// Measure reads and writes, propagation, watchers, catching up; compare with other servers
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  distkv-node bench                       # 50 connections, 90 % reads
  distkv-node bench --depth 16 --reads 1  # 16 in flight on each, only reads
  distkv-node bench --target a --target b # connections spread over two nodes
  distkv-node bench --protocol redis --target 127.0.0.1:6379
  distkv-node bench propagation --connect a --watch b
  distkv-node bench watchers --count 100
  distkv-node bench tree                  # list all entries
  distkv-node bench catch-up 127.0.0.1:27587
  distkv-node bench compare               # beside Redis, etcd, NATS
  distkv-node bench echo                  # what the load generator can do

On a node it writes below `distkv-bench` only, and deletes that subtree at the end, also \
after an error or Ctrl-C; with --keep it stays. If the program is killed, delete it with \
`distkv-node delete distkv-bench --recursive`. Deleted entries take a little memory until \
the network purges them. On Redis, etcd and NATS the keys (key-000000000042) stay.

Each connection sends its next request when an answer has come, so latencies are those of \
that load. On one machine, pin the server to one core and this program to another \
(`taskset`), and look at the server's CPU seconds per million requests: the other figures \
depend on what else runs.

Exit code: 0 measured, 1 something failed, 2 usage, 130 interrupted.")]
pub(super) struct BenchArgs {
    #[command(subcommand)]
    what: Option<What>,

    #[command(flatten)]
    load: LoadArgs,

    #[command(flatten)]
    pub(super) remote: RemoteArgs,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    Propagation(streams::PropagationArgs),
    Watchers(streams::WatchersArgs),
    Tree(tree::TreeArgs),
    CatchUp(catch_up::CatchUpArgs),
    Compare(compare::CompareArgs),
    Echo(echo::EchoArgs),
}

/// What load is made.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
struct LoadArgs {
    /// A server; several times to spread the connections [default: the one of --connect]
    #[arg(long, value_name = "ADDR:PORT")]
    target: Vec<String>,

    /// What the server speaks
    #[arg(long, value_enum, default_value = "distkv")]
    protocol: Protocol,

    /// Leave below `distkv-bench` what was written to a node, for `bench tree` or `bench --no-fill`
    #[arg(long)]
    keep: bool,

    #[command(flatten)]
    shape: Shape,
}

/// The load's shape.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
struct Shape {
    /// Connections, all servers together
    #[arg(long, short = 'c', default_value_t = 50)]
    connections: usize,

    /// Requests in flight on each connection
    #[arg(long, short = 'd', default_value_t = 1)]
    depth: usize,

    /// Threads that make the load
    #[arg(long, default_value_t = 1)]
    threads: usize,

    /// The share of reads, from 0 (only writes) to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.9)]
    reads: f64,

    /// How many keys there are
    #[arg(long, default_value_t = 100_000)]
    keys: u64,

    /// How often each is used
    #[arg(long, value_enum, default_value = "uniform")]
    distribution: Distribution,

    /// The values' length, like 100 or 4K
    #[arg(long, value_name = "BYTES", default_value = "100", value_parser = parse_bytes)]
    value: usize,

    /// How long to measure
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    duration: Duration,

    /// Measure this many requests, but at most for the duration
    #[arg(long, value_name = "REQUESTS")]
    count: Option<u64>,

    /// How long to make load before measuring
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    warm_up: Duration,

    /// Do not set all keys first
    #[arg(long)]
    no_fill: bool,

    /// For the random choices: the same seed, the same requests
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// How the connections use TLS.
    #[arg(skip)]
    secure: Option<Secure>,
}

pub(super) fn run(args: BenchArgs) -> Result<(), CliError> {
    let BenchArgs { what, load, remote } = args;
    match what {
        None => run_load(&load, &remote),
        Some(What::Propagation(args)) => streams::propagation(args, remote),
        Some(What::Watchers(args)) => streams::watchers(args, remote),
        Some(What::Tree(args)) => tree::run(args, remote),
        Some(What::CatchUp(args)) => rt::block_on(catch_up::run(args, remote)),
        Some(What::Compare(args)) => compare::run(&args, remote.json),
        Some(What::Echo(args)) => echo::run(&args, remote.json),
    }
}

fn run_load(args: &LoadArgs, remote: &RemoteArgs) -> Result<(), CliError> {
    args.shape.check()?;
    let targets = if args.target.is_empty() {
        vec![remote.address()?]
    } else {
        let parse = |text: &String| parse_address("--target", text);
        args.target.iter().map(parse).collect::<Result<_, _>>()?
    };
    let access = remote.access()?;
    let host = match targets.as_slice() {
        [one] => Some(one.host.clone()),
        _ => None,
    };
    let secure = access.tls().cloned().map(|tls| Secure { tls, host });
    let shape = Shape { secure, ..args.shape.clone() };
    let to = targets.first().cloned();
    let targets = targets.iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
    let (protocol, at) = match (args.protocol, targets.first(), to) {
        (Protocol::Distkv, Some(node), Some(to)) => {
            (Protocol::DistkvPlace, Some(place::At { node: *node, to, access }))
        }
        (other, ..) => (other, None),
    };
    let measure_and_tell = || {
        let measured = measure(&targets, protocol, &shape)?;
        place::check_interrupted()?;
        report::load(&shape, &measured, remote.json)
    };
    match at {
        Some(at) => place::tidily(&at, args.keep, measure_and_tell),
        None => measure_and_tell(),
    }
}

/// The first address of a name.
fn resolve(target: &HostPort) -> Result<SocketAddr, CliError> {
    let addresses = rt::block_on(rt::resolve(target));
    let addresses =
        addresses.map_err(|e| CliError::Failure(format!("cannot look up {target}: {e}")))?;
    addresses.first().copied().ok_or_else(|| CliError::Failure(format!("{target} has no address")))
}

/// What came of a measurement.
struct Measured {
    tally: Tally,
    /// What the servers on this machine used meanwhile; none if there are none.
    cpu_s: Option<f64>,
    /// Their memory at the end.
    resident: Option<u64>,
}

impl Measured {
    /// Answers per second.
    fn per_second(&self) -> f64 {
        self.tally.answers() as f64 / (self.tally.spent.max(1) as f64 / 1e9)
    }

    /// CPU seconds of the servers per million answers.
    fn cpu_per_million(&self) -> Option<f64> {
        self.cpu_s.map(|cpu| cpu * 1e6 / self.tally.answers().max(1) as f64)
    }
}

impl Shape {
    fn check(&self) -> Result<(), CliError> {
        let within = |what: &str, value: usize, max: usize| {
            let is_good = (1..=max).contains(&value);
            let text = || CliError::Usage(format!("--{what} must be from 1 to {max}"));
            is_good.then_some(()).ok_or_else(text)
        };
        within("connections", self.connections, CONNECTIONS_MAX)?;
        within("depth", self.depth, DEPTH_MAX)?;
        within("threads", self.threads, THREADS_MAX)?;
        within("value", self.value, crate::model::limits::VALUE_BYTES_MAX - 16)?;
        if !(0.0..=1.0).contains(&self.reads) {
            return Err(CliError::Usage("--reads must be from 0 to 1, like 0.9".to_owned()));
        }
        if self.keys == 0 || self.keys > 1_000_000_000_000 {
            return Err(CliError::Usage("--keys must be from 1 to 10^12".to_owned()));
        }
        if self.duration.is_zero() {
            return Err(CliError::Usage("--duration must be longer than nothing".to_owned()));
        }
        Ok(())
    }
}

/// Fills, warms up, and measures.
fn measure(
    targets: &[SocketAddr],
    protocol: Protocol,
    shape: &Shape,
) -> Result<Measured, CliError> {
    // The first look at the clock, so that it counts from here.
    let _ = rt::now_ns();
    if !shape.no_fill {
        fill(targets, protocol, shape).map_err(failed)?;
        place::check_interrupted()?;
    }
    measure_those(targets, &processes(targets), protocol, shape)
}

/// Warms up and measures; the CPU and memory of some processes meanwhile.
fn measure_those(
    targets: &[SocketAddr],
    processes: &[Process],
    protocol: Protocol,
    shape: &Shape,
) -> Result<Measured, CliError> {
    let counted_from = rt::now_ns() + nanos(shape.warm_up);
    let end = counted_from.saturating_add(nanos(shape.duration));
    let threads = shape.threads.min(shape.connections);
    let work = |thread: usize| Work {
        protocol,
        secure: shape.secure.clone(),
        targets: (thread..shape.connections)
            .step_by(threads)
            .filter_map(|n| targets.get(n % targets.len()).copied())
            .collect(),
        depth: shape.depth,
        ops: Ops::new(shape.distribution, shape.keys, shape.reads, shape.seed + thread as u64),
        values: Values::new(shape.value, shape.seed),
        counted_from,
        end,
        count: shape.count.map(|count| count.div_ceil(threads as u64)),
    };
    let running: Vec<_> = (0..threads).map(|thread| start(work(thread))).collect();
    wait_until(counted_from);
    let before = usage(processes);
    let tally = join(running).map_err(failed)?;
    let after = usage(processes);
    let cpu_s = before.zip(after).map(|(before, after)| after.cpu_s - before.cpu_s);
    Ok(Measured { tally, cpu_s, resident: after.map(|usage| usage.resident) })
}

type Running = std::io::Result<std::thread::JoinHandle<Result<Tally, LoadError>>>;

fn start(work: Work) -> Running {
    rt::spawn_thread("bench", move || load::run(work))
}

fn join(running: Vec<Running>) -> Result<Tally, LoadError> {
    let mut tally = Tally::new()?;
    for thread in running {
        let done = thread.map_err(LoadError::Poll)?.join().map_err(|_| LoadError::Thread)??;
        tally.add(&done)?;
    }
    Ok(tally)
}

/// Sets every key once.
fn fill(targets: &[SocketAddr], protocol: Protocol, shape: &Shape) -> Result<Tally, LoadError> {
    let now = rt::now_ns();
    let target = targets.first().copied();
    let work = Work {
        protocol,
        secure: shape.secure.clone(),
        targets: target.into_iter().cycle().take(FILL_CONNECTIONS).collect(),
        depth: FILL_DEPTH,
        ops: Ops::fill(0, shape.keys, shape.seed),
        values: Values::new(shape.value, shape.seed),
        counted_from: now,
        end: now + FILL_NS,
        count: None,
    };
    let tally = load::run(work)?;
    if tally.errors > 0 { Err(LoadError::Refused(tally.errors)) } else { Ok(tally) }
}

/// The servers that run on this machine, each once; none unless all of them do.
fn processes(targets: &[SocketAddr]) -> Vec<Process> {
    let mut found = Vec::new();
    for target in targets {
        let Some(process) = Process::listening_at(*target) else { return Vec::new() };
        if !found.contains(&process) {
            found.push(process);
        }
    }
    found
}

fn usage(processes: &[Process]) -> Option<Usage> {
    let mut sum = Usage::default();
    for process in processes {
        let usage = process.usage()?;
        sum.cpu_s += usage.cpu_s;
        sum.resident += usage.resident;
    }
    (!processes.is_empty()).then_some(sum)
}

fn wait_until(time: u64) {
    while !place::is_interrupted()
        && let Some(left) = time.checked_sub(rt::now_ns()).filter(|left| *left > 0)
    {
        std::thread::sleep(Duration::from_nanos(left).min(SLEEP_MAX));
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}

fn failed(error: LoadError) -> CliError {
    CliError::Failure(error.to_string())
}

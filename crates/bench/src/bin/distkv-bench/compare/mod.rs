//! The same work on distkv-node and on the other servers that are installed, in turn, several rounds.
//!
//! | file | what |
//! |---|---|
//! | this one | the command line, and the rounds |
//! | `figures` | which rows there are, and the table |
//! | `lab` | the processes that are started, their cores and files |
//! | `talk` | a connection for what is done once |
//! | `one` | what is measured at one server |
//! | `several` | what is measured at several nodes |

pub(super) mod figures;
pub(super) mod lab;
pub(super) mod one;
pub(super) mod several;
pub(super) mod talk;

use std::time::Duration;

use clap::Args;
use distkv_bench::args::Shape;
use distkv_bench::keys::Distribution;
use distkv_bench::sockets::CONNECT_TIMEOUT;
use distkv_command::error::CliError;
use distkv_command::say;
use distkv_command::units::{parse_duration, parse_some_time};
use figures::{Contender, Form, Group};
use lab::{Cores, Lab, Pins};
use serde_json::json;

use crate::stores::{Kind, Store};

/// Compare distkv-node with the Redis, etcd, NATS that are installed
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-bench compare          # all of it, five times: about 20 minutes
  distkv-bench compare --quick  # all of it once, roughly: 2 minutes
  distkv-bench compare --only requests --with redis
  distkv-bench compare --rounds 3 --duration 3s --keys 100000 --markdown

Each server is started afresh for each group of rows, on loopback, in memory only (the files \
of etcd and NATS are on a memory disk if there is one), and is stopped afterwards, also on \
Ctrl-C. All get the same work from the same load generator, one after the other. Servers \
that are not installed are left out.

For GET, SET, watchers and listing the server runs on one core and the load on another \
(--server-cpu, --load-cpu; used by default with two cores or more; needs `taskset`); where \
several nodes take part, the system places them.

What is compared: keys of 16 bytes, values of 100. Replicated: Redis as a primary with two \
replicas, which answers before they have it; etcd and NATS as three nodes, which answer when \
two have it; all sets go to the first node. Visible: Redis reports the set by a keyspace \
event of its replica, the others by a watch at another node; half of the changes at each of \
the two. Watchers: Redis publishes the values to a channel; the others watch keys, etcd and \
NATS at another one of three nodes. Listing: Redis by SCAN and MGET, 1,000 at a time. A \
fresh node: from the start of its process until it has as many entries. The echo returns \
what it gets: no server can do better with this load generator.

The figures are medians of the rounds, with the least and the greatest; RATIO is ours \
divided by theirs. Measure a release build, and nothing else at the same time.")]
pub(super) struct CompareArgs {
    /// How often all of it is done [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,

    /// How long each measurement of a rate takes [default: 5s]
    #[arg(long, value_name = "DURATION", value_parser = parse_some_time)]
    duration: Option<Duration>,

    /// How long load is made before each [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    warm_up: Option<Duration>,

    /// How many keys [default: 1000000]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    keys: Option<u64>,

    /// One round, each measurement 1 s, 100,000 keys, where nothing else is said
    #[arg(long)]
    quick: bool,

    /// Only these rows
    #[arg(long, value_name = "GROUP", value_enum, value_delimiter = ',')]
    only: Vec<Group>,

    /// Only these servers next to distkv-node
    #[arg(long, value_name = "SERVER", value_enum, value_delimiter = ',')]
    with: Vec<Kind>,

    /// distkv-node alone
    #[arg(long, conflicts_with = "with")]
    alone: bool,

    /// The core that servers run on
    #[arg(long, value_name = "CORE")]
    server_cpu: Option<usize>,

    /// The core that makes the load
    #[arg(long, value_name = "CORE")]
    load_cpu: Option<usize>,

    /// Print a table for a document
    #[arg(long, conflicts_with = "json")]
    markdown: bool,

    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// What is done with each server.
#[derive(Debug, Clone, Copy)]
struct Plan {
    rounds: u32,
    duration: Duration,
    warm_up: Duration,
    keys: u64,
}

pub(super) fn run(args: &CompareArgs) -> Result<(), CliError> {
    let plan = args.plan();
    let groups: Vec<Group> =
        Group::ALL.into_iter().filter(|g| args.only.is_empty() || args.only.contains(g)).collect();
    let mut contenders = args.contenders(&groups)?;
    let lab = Lab::open(args.pins())?;
    for round in 1..=plan.rounds {
        for group in &groups {
            for contender in &mut contenders {
                if !contender.store.takes_part(*group) {
                    continue;
                }
                let name = contender.store.kind.program();
                say::line(&format!("round {round} of {}: {group:?} of {name}", plan.rounds));
                let measured = measure(&contender.store, *group, plan, &lab);
                match measured.inspect_err(|_| lab.stop_if_interrupted()) {
                    Ok(found) => contender.add(&groups, *group, &found),
                    Err(error) if contender.store.kind == Kind::Ours => return Err(error),
                    Err(error) => say::warning(&format!("{name} is left out here: {error}")),
                }
            }
        }
    }
    let form = match (args.json, args.markdown) {
        (true, _) => Form::Json,
        (false, true) => Form::Markdown,
        (false, false) => Form::Table,
    };
    let seconds = plan.duration.as_secs_f64();
    let about = json!({"rounds": plan.rounds, "keys": plan.keys, "seconds": seconds});
    figures::print(&contenders, &groups, form, &about)
}

/// The figures of a group's rows, of one server.
fn measure(
    store: &Store,
    group: Group,
    plan: Plan,
    lab: &Lab,
) -> Result<Vec<Option<f64>>, CliError> {
    lab.pin_load(match group {
        Group::Requests | Group::Watchers | Group::Listing => Cores::One,
        Group::Propagation | Group::Replication | Group::Fresh | Group::Crash => Cores::All,
    });
    match group {
        Group::Requests => one::requests(store, plan, lab),
        Group::Watchers => one::watchers(store, plan, lab),
        Group::Listing => one::listing(store, plan, lab),
        Group::Propagation => several::propagation(store, plan, lab),
        Group::Replication => several::replication(store, plan, lab),
        Group::Fresh => several::fresh(store, plan, lab),
        Group::Crash => several::crash(store, lab),
    }
}

impl CompareArgs {
    fn plan(&self) -> Plan {
        let (rounds, seconds, keys) = if self.quick { (1, 1, 100_000) } else { (5, 5, 1_000_000) };
        let warm_up = Duration::from_millis(if self.quick { 300 } else { 1_000 });
        Plan {
            rounds: self.rounds.unwrap_or(rounds),
            duration: self.duration.unwrap_or(Duration::from_secs(seconds)),
            warm_up: self.warm_up.unwrap_or(warm_up),
            keys: self.keys.unwrap_or(keys),
        }
    }

    /// distkv-node, then all others that are wanted and there. Says which are not.
    fn contenders(&self, groups: &[Group]) -> Result<Vec<Contender>, CliError> {
        let mut contenders = vec![Contender::new(Store::ours()?, groups)];
        for kind in Kind::OTHERS {
            let is_named = self.with.contains(&kind);
            if self.alone || !(is_named || self.with.is_empty()) {
                continue;
            }
            match Store::find(kind) {
                Some(store) if groups.iter().any(|group| store.takes_part(*group)) => {
                    contenders.push(Contender::new(store, groups));
                }
                Some(_) => {}
                None => say::line(&format!("{} is not installed: left out", kind.program())),
            }
        }
        Ok(contenders)
    }

    /// The cores of servers and of the load: two different ones, where there are two.
    fn pins(&self) -> Pins {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let two = cores > 1 && lab::find("taskset").is_some();
        let default = |core| two.then_some(core);
        Pins { server: self.server_cpu.or(default(0)), load: self.load_cpu.or(default(1)) }
    }
}

impl Plan {
    /// The load of one measurement.
    fn shape(self, connections: usize, depth: usize, reads: f64, keys: u64) -> Shape {
        Shape {
            connections,
            depth,
            threads: 1,
            reads,
            keys,
            distribution: Distribution::Uniform,
            value: VALUE_BYTES,
            duration: self.duration,
            count: None,
            warm_up: self.warm_up,
            no_fill: true,
            seed: 1,
            secure: None,
            timeout: CONNECT_TIMEOUT,
        }
    }
}

/// The values' length.
const VALUE_BYTES: usize = 100;

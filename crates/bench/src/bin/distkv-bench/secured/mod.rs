//! What security costs, and what strangers can do to a network: the same work in two ways, in turn, in one run.
//!
//! | file | what |
//! |---|---|
//! | this one | the command line, and which rows there are |
//! | `rows` | a row: its figures, and the table |
//! | `nodes` | the nodes that are started, open and with a key |
//! | `costs` | CPU of requests: another build, TLS, sealed links |
//! | `logins` | how many logins a node takes |
//! | `strangers` | how long members' writes take while strangers knock |

mod costs;
mod logins;
mod nodes;
mod rows;
mod strangers;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use distkv_bench::args::Shape;
use distkv_bench::keys::Distribution;
use distkv_bench::sockets::CONNECT_TIMEOUT;
use distkv_command::error::CliError;
use distkv_command::say;
use distkv_command::units::{parse_duration, parse_some_time};

use crate::compare::figures::Form;
use crate::compare::lab::{self, Cores, Lab, Pins};
use nodes::Nodes;
use rows::Row;

/// Measure what TLS, sealed links and logins cost, and what strangers do to writes
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-bench secured                       # all but `open`: about 10 minutes
  distkv-bench secured --only tls --pairs 9
  distkv-bench secured --only open --before path/to/an/older/distkv-node
  distkv-bench secured --only strangers --strangers 10000 --duration 10s

Each row is measured in pairs: once without, once with, every second pair the other way round, \
on nodes that run all the time. WITHOUT and WITH are medians with the least and the greatest; \
RATIO is the median of the pairs' ratios. The CPU is the servers' (of all nodes where there are \
several), in seconds per million requests. On a busy machine look at that ratio alone.

  open       an older build (--before), and this one; neither has a key
  tls        one node; clients in plain text, and by TLS
  links      three nodes without a key, and three with one; sets at the first
  logins     a node with a key: logins of users whose secret it has not seen yet (Argon2id), and \
of those that it has in its cache; and tokens beside the cluster's key
  strangers  two nodes with a key: one set at a time that waits for the other node; while so many \
connections (--strangers), evenly over the time, one by one or some at once (--together), begin a \
handshake at the gossip port and say no more, and without them

Nodes are started on loopback, in memory only, and are stopped afterwards, also on Ctrl-C. With \
two cores or more and `taskset`, nodes of `open`, `tls` and `logins` run on one core \
(--server-cpu), and the load on another (--load-cpu).")]
pub(super) struct SecuredArgs {
    /// Only these rows [default: all that can be measured]
    #[arg(long, value_name = "GROUP", value_enum, value_delimiter = ',')]
    only: Vec<Group>,

    /// How often each is done in both ways
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pairs: u32,

    /// How long each measurement takes
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = parse_some_time)]
    duration: Duration,

    /// How long load is made before each; the handshakes of TLS are in it
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    warm_up: Duration,

    /// How many keys
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    keys: u64,

    /// How many strangers come in each measurement
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    strangers: u32,

    /// How many of them come at the same moment
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    together: u32,

    /// The program of a node to compare `open` with
    #[arg(long, value_name = "PROGRAM")]
    before: Option<PathBuf>,

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

/// Rows that are measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Group {
    /// An older build, and this one
    Open,
    /// Plain text, and TLS
    Tls,
    /// Open links, and sealed ones
    Links,
    /// Logins
    Logins,
    /// Writes while strangers knock
    Strangers,
}

impl Group {
    const ALL: [Self; 5] = [Self::Open, Self::Tls, Self::Links, Self::Logins, Self::Strangers];

    /// Where what makes the load runs: nodes of one network need all cores.
    fn cores(self) -> Cores {
        match self {
            Self::Open | Self::Tls | Self::Logins => Cores::One,
            Self::Links | Self::Strangers => Cores::All,
        }
    }
}

pub(super) fn run(args: &SecuredArgs) -> Result<(), CliError> {
    if args.only.contains(&Group::Open) && args.before.is_none() {
        let text = "for the rows `open`, name an older program with --before";
        return Err(CliError::Usage(text.to_owned()));
    }
    let wanted = |group: &Group| match args.only.is_empty() {
        true => *group != Group::Open || args.before.is_some(),
        false => args.only.contains(group),
    };
    let lab = Lab::open(args.pins())?;
    let nodes = Nodes::new(&lab)?;
    let mut rows: Vec<Row> = Vec::new();
    for group in Group::ALL.into_iter().filter(wanted) {
        say::line(&format!("measuring {group:?}"));
        lab.pin_load(group.cores());
        let measured = match group {
            Group::Open => costs::open(args, &nodes),
            Group::Tls => costs::tls(args, &nodes),
            Group::Links => costs::links(args, &nodes),
            Group::Logins => logins::rows(args, &nodes),
            Group::Strangers => strangers::rows(args, &nodes),
        };
        rows.extend(measured.inspect_err(|_| lab.stop_if_interrupted())?);
    }
    rows::print(&rows, args.form(), args.pairs)
}

impl SecuredArgs {
    fn form(&self) -> Form {
        match (self.json, self.markdown) {
            (true, _) => Form::Json,
            (false, true) => Form::Markdown,
            (false, false) => Form::Table,
        }
    }

    /// The cores of servers and of the load: two different ones, where there are two.
    fn pins(&self) -> Pins {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let two = cores > 1 && lab::find("taskset").is_some();
        let default = |core| two.then_some(core);
        Pins { server: self.server_cpu.or(default(0)), load: self.load_cpu.or(default(1)) }
    }

    /// The load of one measurement.
    fn shape(&self, work: Work) -> Shape {
        Shape {
            connections: work.connections,
            depth: work.depth,
            threads: 1,
            reads: work.reads,
            keys: self.keys,
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

/// What is asked for.
#[derive(Debug, Clone, Copy)]
struct Work {
    connections: usize,
    depth: usize,
    /// The share of reads.
    reads: f64,
}

impl Work {
    const ALL: [Self; 4] = [
        Self { connections: 50, depth: 1, reads: 1.0 },
        Self { connections: 50, depth: 1, reads: 0.0 },
        Self { connections: 50, depth: 16, reads: 1.0 },
        Self { connections: 50, depth: 16, reads: 0.0 },
    ];

    fn name(self) -> String {
        let what = if self.reads > 0.5 { "GET" } else { "SET" };
        format!("{what}, {} x {}", self.connections, self.depth)
    }
}

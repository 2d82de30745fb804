//! The options of a load, and the measurement that they ask for.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;

use crate::client::HostPort;
use crate::command::error::CliError;
use crate::command::remote::{RemoteArgs, parse_address};
use crate::command::units::{parse_bytes, parse_duration, parse_some_time};
use crate::distkv::DistKv;
use crate::keys::Distribution;
use crate::measure::{measure, resolve};
use crate::sockets::{CONNECT_TIMEOUT, Secure};
use crate::wire::Protocol;
use crate::{place, report};

/// Most connections of one run: what a process may open by default.
const CONNECTIONS_MAX: usize = 10_000;
/// Most requests in flight on a connection.
pub const DEPTH_MAX: usize = 1_024;
/// Most threads that make load.
const THREADS_MAX: usize = 64;
/// Most keys.
const KEYS_MAX: u64 = 1_000_000_000_000;
/// What a value's own encoding may take of what a value may have.
const VALUE_HEAD_BYTES: usize = 16;

/// What load is made.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub struct LoadArgs {
    /// A server; several times to spread the connections [default: the one of --connect]
    #[arg(long, value_name = "ADDR:PORT")]
    target: Vec<String>,

    /// Leave below `distkv-bench` what was written to a node, for listing it or for --no-fill
    #[arg(long)]
    keep: bool,

    #[command(flatten)]
    shape: Shape,
}

impl LoadArgs {
    /// Measures nodes below a path of their own, and prints what it came to. What was written is
    /// deleted, unless it is to stay.
    ///
    /// # Errors
    /// The options make no sense, a node fails, or the person at the terminal interrupts.
    pub fn run_on_nodes(&self, remote: &RemoteArgs) -> Result<(), CliError> {
        let (names, access) = (self.names(remote)?, remote.access()?);
        let targets = names.iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
        let (Some(node), Some(to)) = (targets.first(), names.first()) else { return Ok(()) };
        let host = (names.len() == 1).then(|| to.host.clone());
        let secure = Secure::of(&access, host);
        let timeout = remote.timeout_or_default();
        let shape = Shape { secure, timeout, ..self.shape.clone() };
        let at = place::At { node: *node, to: to.clone(), access, timeout };
        place::tidily(&at, self.keep, || run_on(&shape, &targets, DistKv::Place, remote.json))
    }

    /// Measures servers that speak `protocol`, and prints what it came to. What was written stays.
    ///
    /// # Errors
    /// The options make no sense, or a server fails.
    pub fn run(&self, remote: &RemoteArgs, protocol: impl Protocol) -> Result<(), CliError> {
        let targets = self.names(remote)?.iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
        let shape = Shape { timeout: remote.timeout_or_default(), ..self.shape.clone() };
        run_on(&shape, &targets, protocol, remote.json)
    }

    /// The servers, at least one.
    fn names(&self, remote: &RemoteArgs) -> Result<Vec<HostPort>, CliError> {
        self.shape.check()?;
        if self.target.is_empty() {
            return Ok(vec![remote.address()?]);
        }
        self.target.iter().map(|text| parse_address("--target", text)).collect()
    }
}

fn run_on(
    shape: &Shape,
    targets: &[SocketAddr],
    protocol: impl Protocol,
    json: bool,
) -> Result<(), CliError> {
    let measured = measure(targets, protocol, shape)?;
    place::check_interrupted()?;
    report::load(shape, &measured, json)
}

/// The load's shape.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub struct Shape {
    /// Connections, all servers together
    #[arg(long, short = 'c', default_value_t = 50)]
    pub connections: usize,

    /// Requests in flight on each connection
    #[arg(long, short = 'd', default_value_t = 1)]
    pub depth: usize,

    /// Threads that make the load
    #[arg(long, default_value_t = 1)]
    pub threads: usize,

    /// The share of reads, from 0 (only writes) to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.9)]
    pub reads: f64,

    /// How many keys there are
    #[arg(long, default_value_t = 100_000)]
    pub keys: u64,

    /// How often each is used
    #[arg(long, value_enum, default_value = "uniform")]
    pub distribution: Distribution,

    /// The values' length, like 100 or 4K
    #[arg(long, value_name = "BYTES", default_value = "100", value_parser = parse_bytes)]
    pub value: usize,

    /// How long to measure
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_some_time)]
    pub duration: Duration,

    /// Measure this many requests, but at most for the duration
    #[arg(long, value_name = "REQUESTS", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// How long to make load before measuring
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    pub warm_up: Duration,

    /// Do not set all keys first
    #[arg(long)]
    pub no_fill: bool,

    /// For the random choices: the same seed, the same requests
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// How the connections get in.
    #[arg(skip)]
    pub secure: Option<Secure>,

    /// How long each may take for that.
    #[arg(skip = CONNECT_TIMEOUT)]
    pub timeout: Duration,
}

/// Whether values can have this length.
///
/// # Errors
/// [`CliError::Usage`]: they cannot.
pub fn check_value(bytes: usize) -> Result<(), CliError> {
    within("value", bytes, crate::model::limits::VALUE_BYTES_MAX - VALUE_HEAD_BYTES)
}

/// Whether an option is from 1 to this.
///
/// # Errors
/// [`CliError::Usage`] names the option, and its range.
pub fn within(what: &str, value: usize, max: usize) -> Result<(), CliError> {
    let text = || CliError::Usage(format!("--{what} must be from 1 to {max}"));
    (1..=max).contains(&value).then_some(()).ok_or_else(text)
}

impl Shape {
    /// Whether every option is within its range.
    ///
    /// # Errors
    /// [`CliError::Usage`] names the option, and its range.
    pub fn check(&self) -> Result<(), CliError> {
        within("connections", self.connections, CONNECTIONS_MAX)?;
        within("depth", self.depth, DEPTH_MAX)?;
        within("threads", self.threads, THREADS_MAX)?;
        check_value(self.value)?;
        if !(0.0..=1.0).contains(&self.reads) {
            return Err(CliError::Usage("--reads must be from 0 to 1, like 0.9".to_owned()));
        }
        if !(1..=KEYS_MAX).contains(&self.keys) {
            return Err(CliError::Usage("--keys must be from 1 to 10^12".to_owned()));
        }
        Ok(())
    }
}

//! The same work on this program and on the other servers that are installed, in turn, several rounds.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use clap::Args;
use serde_json::{Value as Json, json};

use super::wire::Protocol;
use super::{Measured, Shape, fill, measure, processes, usage};
use crate::cli::error::CliError;
use crate::cli::output::{Output, Table};
use crate::cli::units::parse_duration;
use crate::rt;

/// How long a server may take to start.
const PATIENCE_US: u64 = 20_000_000;
/// Programs that speak Redis's protocol.
const REDIS_LIKE: [&str; 3] = ["redis-server", "valkey-server", "keydb-server"];
/// Connections, requests in flight on each, the share of reads.
const WORK: [(usize, usize, f64); 6] =
    [(50, 1, 1.0), (50, 1, 0.0), (50, 16, 1.0), (50, 16, 0.0), (1, 100, 1.0), (1, 100, 0.0)];

/// Compare this program with the Redis (or Valkey, KeyDB) that is installed
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node bench compare
  distkv-node bench compare --rounds 3 --duration 3s --keys 100000
  distkv-node bench compare --server-cpu 0 --load-cpu 1 --json

Each server is started afresh in each round, on loopback, in memory only, and is ended afterwards.
All get the same requests from the same load generator. With --server-cpu and --load-cpu (on by
default where there are two cores or more) each runs on a core of its own; `taskset` is needed for
that. The figures are medians of the rounds, with the least and the greatest; RATIO is ours divided
by theirs.")]
pub(super) struct CompareArgs {
    /// How often all of it is done
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,

    /// How long each measurement takes
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_duration)]
    duration: Duration,

    /// How long load is made before each
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    warm_up: Duration,

    /// How many keys
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,

    /// The core that servers run on
    #[arg(long, value_name = "CORE")]
    server_cpu: Option<usize>,

    /// The core that makes the load
    #[arg(long, value_name = "CORE")]
    load_cpu: Option<usize>,

    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// A figure of a server, from each round.
#[derive(Debug, Clone, Default)]
struct Series(Vec<f64>);

impl Series {
    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    fn median(&self) -> Option<f64> {
        let sorted = self.sorted();
        sorted.get(sorted.len() / 2).copied()
    }

    fn show(&self, digits: usize) -> String {
        let sorted = self.sorted();
        match (sorted.first(), self.median(), sorted.last()) {
            (Some(least), Some(median), Some(greatest)) => {
                format!("{median:.digits$} ({least:.digits$}–{greatest:.digits$})")
            }
            _ => String::new(),
        }
    }

    fn json(&self) -> Json {
        let sorted = self.sorted();
        json!({"median": self.median(), "min": sorted.first(), "max": sorted.last()})
    }
}

/// What is known of a server in the end.
struct Contender {
    program: PathBuf,
    protocol: Protocol,
    /// By the row of the table.
    figures: Vec<Series>,
}

/// A row of the table: what it is, and digits behind the point.
fn rows() -> Vec<(String, usize)> {
    let mut rows = vec![("memory per entry, bytes".to_owned(), 0)];
    for (connections, depth, reads) in WORK {
        let what = if reads > 0.5 { "GET" } else { "SET" };
        let name = format!("{what}, {connections} x {depth} in flight");
        rows.push((format!("{name}: server CPU s per million"), 2));
        rows.push((format!("{name}: thousand per second"), 0));
        rows.push((format!("{name}: p99, us"), 0));
    }
    rows
}

pub(super) fn run(args: &CompareArgs, before: bool) -> Result<(), CliError> {
    let json = args.json || before;
    let (server_cpu, load_cpu) = args.cores();
    pin_self(load_cpu);
    let mut contenders = contenders()?;
    let mut output = Output::new(json);
    for round in 1..=args.rounds {
        for contender in &mut contenders {
            let name = contender.name();
            eprintln!("round {round} of {}: {name}", args.rounds);
            let figures = one_round(args, contender, server_cpu)?;
            contender.figures.iter_mut().zip(figures).for_each(|(all, figure)| {
                all.0.extend(figure);
            });
        }
    }
    if json {
        for contender in &contenders {
            let figures = rows().into_iter().zip(&contender.figures);
            let figures: serde_json::Map<_, _> =
                figures.map(|((name, _), series)| (name, series.json())).collect();
            let line = json!({
                "program": contender.name(), "rounds": args.rounds, "keys": args.keys,
                "figures": figures,
            });
            output.line(&line.to_string())?;
        }
        return output.flush();
    }
    print(&contenders, &mut output)?;
    output.flush()
}

fn print(contenders: &[Contender], output: &mut Output) -> Result<(), CliError> {
    let Some((ours, others)) = contenders.split_first() else { return Ok(()) };
    let names: Vec<String> = contenders.iter().map(Contender::name).collect();
    let mut head = vec!["FIGURE", ""];
    for (index, name) in names.iter().enumerate() {
        head.push(name.as_str());
        if index > 0 {
            head.push("RATIO");
        }
    }
    head.remove(1);
    let mut table = Table::with_head(&head);
    for (index, (name, digits)) in rows().into_iter().enumerate() {
        let Some(our) = ours.figures.get(index) else { continue };
        let mut cells = vec![name, our.show(digits)];
        for other in others {
            let their = other.figures.get(index).cloned().unwrap_or_default();
            let ratio = our.median().zip(their.median()).map(|(a, b)| format!("{:.2}", a / b));
            cells.extend([their.show(digits), ratio.unwrap_or_default()]);
        }
        table.row(cells);
    }
    table.print(output)?;
    if others.is_empty() {
        output.line(&format!("none of {} is installed", REDIS_LIKE.join(", ")))?;
    }
    Ok(())
}

/// This program, then all others that are there.
fn contenders() -> Result<Vec<Contender>, CliError> {
    let own = std::env::current_exe()
        .map_err(|error| CliError::Failure(format!("cannot find this program: {error}")))?;
    let new = |program, protocol| Contender {
        program,
        protocol,
        figures: vec![Series::default(); rows().len()],
    };
    let mut contenders = vec![new(own, Protocol::Distkv)];
    let others = REDIS_LIKE.iter().filter_map(|name| find(name));
    contenders.extend(others.map(|program| new(program, Protocol::Redis)));
    Ok(contenders)
}

/// Where a program is.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// All figures of one server, as in [`rows`]; none where nothing is known.
fn one_round(
    args: &CompareArgs,
    contender: &Contender,
    cpu: Option<usize>,
) -> Result<Vec<Option<f64>>, CliError> {
    let server = Server::start(contender, cpu)?;
    let targets = [server.address];
    let shape = |connections, depth, reads| Shape {
        connections,
        depth,
        threads: 1,
        reads,
        keys: args.keys,
        distribution: super::Distribution::Uniform,
        value: 100,
        duration: args.duration,
        count: None,
        warm_up: args.warm_up,
        no_fill: true,
        seed: 1,
    };
    let processes = processes(&targets);
    let before = usage(&processes);
    fill(&targets, contender.protocol, &shape(1, 1, 0.0)).map_err(super::failed)?;
    let after = usage(&processes);
    let grown = before.zip(after).map(|(before, after)| after.resident - before.resident);
    let mut figures = vec![grown.map(|bytes| bytes as f64 / args.keys as f64)];
    for (connections, depth, reads) in WORK {
        let shape = shape(connections, depth, reads);
        let measured = measure(&targets, contender.protocol, &shape)?;
        if measured.tally.errors > 0 {
            let text = format!("{} answered with errors", contender.name());
            return Err(CliError::Failure(text));
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

impl CompareArgs {
    /// The cores of servers and of the load: two different ones, where there are two.
    fn cores(&self) -> (Option<usize>, Option<usize>) {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let two = cores > 1 && find("taskset").is_some();
        let default = |core| two.then_some(core);
        (self.server_cpu.or(default(0)), self.load_cpu.or(default(1)))
    }
}

/// Binds this process to a core, threads to come included.
fn pin_self(cpu: Option<usize>) {
    let Some(cpu) = cpu else { return };
    let pid = std::process::id().to_string();
    let mut command = Command::new("taskset");
    command.args(["-a", "-p", "-c", &cpu.to_string(), &pid]).stdout(Stdio::null());
    if !command.status().is_ok_and(|status| status.success()) {
        eprintln!("warning: cannot bind the load to core {cpu}");
    }
}

impl Contender {
    fn name(&self) -> String {
        let name = self.program.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// A running server. It ends when this is dropped.
struct Server {
    child: Child,
    address: SocketAddr,
    _stdin: Option<ChildStdin>,
}

impl Server {
    fn start(contender: &Contender, cpu: Option<usize>) -> Result<Self, CliError> {
        let failed = |why: String| {
            CliError::Failure(format!("cannot start {}: {why}", contender.program.display()))
        };
        let mut command = pinned(&contender.program, cpu);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        match contender.protocol {
            Protocol::Distkv => {
                command.args(["run", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"]);
                command.args(["--name", "bench", "--network", "bench", "--json", "--log", "error"]);
                command.stdout(Stdio::piped());
            }
            Protocol::Redis => {
                command.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]);
                command.stdout(Stdio::null());
            }
        }
        let port = match contender.protocol {
            Protocol::Distkv => None,
            Protocol::Redis => {
                // Nobody tells which one it took: one that was free a moment ago.
                let free = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
                let address = free.map_err(|error| failed(error.to_string()))?;
                command.args(["--port", &address.port().to_string()]);
                Some(address)
            }
        };
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take();
        let address = match port {
            Some(address) => wait_for(address),
            None => stdout.and_then(said_address),
        };
        let mut server =
            Self { child, address: SocketAddr::from(([127, 0, 0, 1], 0)), _stdin: stdin };
        server.address = address.ok_or_else(|| failed("it does not get ready".to_owned()))?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pinned(program: &Path, cpu: Option<usize>) -> Command {
    match cpu {
        None => Command::new(program),
        Some(cpu) => {
            let mut command = Command::new("taskset");
            command.args(["-c", &cpu.to_string()]).arg(program);
            command
        }
    }
}

/// Waits until somebody listens.
fn wait_for(address: SocketAddr) -> Option<SocketAddr> {
    let until = rt::now_us() + PATIENCE_US;
    while rt::now_us() < until {
        if TcpStream::connect(address).is_ok() {
            return Some(address);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

/// The address for clients that a node tells when it is ready.
fn said_address(stdout: impl Read) -> Option<SocketAddr> {
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).ok()?;
    let said: Json = serde_json::from_str(&line).ok()?;
    said.get("client")?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_medians_with_their_ends() {
        let series = Series(vec![3.0, 1.0, 2.0]);
        assert_eq!(series.show(1), "2.0 (1.0–3.0)");
        assert_eq!(Series::default().show(1), "");
        assert_eq!(rows().len(), 1 + WORK.len() * 3);
    }

    #[test]
    fn what_is_not_installed_is_not_found() {
        assert_eq!(find("no-such-program-here"), None);
        assert!(find("sh").is_some());
    }
}

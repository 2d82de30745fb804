//! What a read costs the process that makes it: with the Rust client, and with the load generator, which routes
//! nothing and retries nothing. Both take turns, so that they see the same machine.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use distkv_bench::args::Shape;
use distkv_bench::distkv::DistKv;
use distkv_bench::keys::Distribution;
use distkv_bench::measure::{fill, measure_those, resolve};
use distkv_bench::place::{self, PLACE, check_interrupted};
use distkv_bench::sockets::Secure;
use distkv_bench::wire::key_bytes;
use distkv_client::{CallEnd, CallObserver, Client, ClientConfig, HostPort, Observer, Path};
use distkv_command::error::CliError;
use distkv_command::output::Output;
use distkv_command::remote::RemoteArgs;
use distkv_runtime as rt;
use futures::future::try_join_all;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

/// Calls in flight.
const IN_FLIGHT: [usize; 2] = [1, 100];
/// Bytes of the value that is read.
const VALUE_BYTES: usize = 32;
/// No run takes longer.
const RUN_MAX: Duration = Duration::from_secs(60);

/// Measure what a read costs the Rust client's process, beside the load generator
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-bench client
  distkv-bench client --calls 60000 --runs 5 --json

Reads of a value of 32 bytes, with 1 and with 100 calls in flight; the CPU time is that of this process, so the \
node must be another one. Rows take turns, and the first round warms up. `generator` is this program's own load \
on one connection; `thread` awaits all calls on one thread, `tasks` spawns one task of the client's runtime for \
each call in flight; `observed` has an observer; `own write` reads what this client wrote.")]
pub(super) struct ClientArgs {
    /// Calls of each run
    #[arg(long, value_name = "N", default_value_t = 60_000, value_parser = clap::value_parser!(u32).range(100..=100_000_000))]
    calls: u32,

    /// Runs of each row; medians are told
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,

    #[command(flatten)]
    remote: RemoteArgs,
}

pub(super) fn run(args: &ClientArgs) -> Result<(), CliError> {
    let (to, access) = (args.remote.address()?, args.remote.access()?);
    let node = resolve(&to)?;
    let secure = Secure::of(&access, Some(to.host.clone()));
    let timeout = args.remote.timeout_or_default();
    let at = place::At { node, to: to.clone(), access: access.clone(), timeout };
    let shape = Shape {
        connections: 1,
        depth: 1,
        threads: 1,
        reads: 1.0,
        keys: 1,
        distribution: Distribution::Uniform,
        value: VALUE_BYTES,
        duration: RUN_MAX,
        count: Some(u64::from(args.calls)),
        warm_up: Duration::ZERO,
        no_fill: true,
        seed: 1,
        secure,
        timeout,
    };
    place::tidily(&at, false, || {
        fill(&[node], DistKv::Place, &shape)?;
        let config = ClientConfig::new().access(access.clone());
        let clients = rt::block_on(Clients::connect(&to, &config))?;
        let rows = rounds(args, &clients, node, &shape)?;
        rt::block_on(clients.close());
        tell(&rows, args.remote.json)
    })
}

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    Generator,
    Thread,
    Tasks,
    Observed,
    OwnWrite,
}

impl Reader {
    const ALL: [Reader; 5] =
        [Reader::Generator, Reader::Thread, Reader::Tasks, Reader::Observed, Reader::OwnWrite];

    fn name(self) -> &'static str {
        match self {
            Reader::Generator => "generator",
            Reader::Thread => "client, thread",
            Reader::Tasks => "client, tasks",
            Reader::Observed => "client, tasks, observed",
            Reader::OwnWrite => "client, tasks, own write",
        }
    }
}

/// A reader with so many calls in flight, and what each run took: CPU and wall time in µs per call.
struct Row {
    reader: Reader,
    in_flight: usize,
    runs: Vec<(f64, f64)>,
}

impl Row {
    /// The medians.
    fn medians(&self) -> (f64, f64) {
        let median = |of: fn(&(f64, f64)) -> f64| {
            let mut all: Vec<f64> = self.runs.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied().unwrap_or_default()
        };
        (median(|run| run.0), median(|run| run.1))
    }
}

fn rounds(
    args: &ClientArgs,
    clients: &Clients,
    node: SocketAddr,
    shape: &Shape,
) -> Result<Vec<Row>, CliError> {
    let row = |(reader, in_flight)| Row { reader, in_flight, runs: Vec::new() };
    let all = Reader::ALL.into_iter().flat_map(|reader| IN_FLIGHT.map(|count| (reader, count)));
    let mut rows: Vec<Row> = all.map(row).collect();
    for round in 0..=args.runs {
        for row in &mut rows {
            check_interrupted()?;
            let calls = args.calls as usize / row.in_flight * row.in_flight;
            let (cpu, wall) = (cpu_us(), rt::now_ns());
            match row.reader {
                Reader::Generator => {
                    let shape = Shape { depth: row.in_flight, ..shape.clone() };
                    measure_those(&[node], &[], DistKv::Place, &shape)?;
                }
                reader => rt::block_on(clients.read(reader, row.in_flight, calls))?,
            }
            let took = |us: f64| us / calls as f64;
            let run = (took(cpu_us() - cpu), took((rt::now_ns() - wall) as f64 / 1e3));
            // The first one warms up.
            if round > 0 {
                row.runs.push(run);
            }
        }
    }
    Ok(rows)
}

fn tell(rows: &[Row], json: bool) -> Result<(), CliError> {
    let mut output = Output::new(json);
    if !json {
        output.line("CPU (and wall) time per read in us, medians")?;
    }
    for row in rows {
        let (name, (cpu, wall)) = (row.reader.name(), row.medians());
        output.either(
            || json!({"reader": name, "in_flight": row.in_flight, "cpu_us": cpu, "wall_us": wall}),
            || format!("{name:26} {:>4} in flight  {cpu:7.2}  ({wall:.2})", row.in_flight),
        )?;
    }
    output.flush()
}

/// What this process has used so far, in µs.
fn cpu_us() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 * 1e6 + spent.tv_nsec as f64 / 1e3
}

/// Clients of the node, which read one path each.
struct Clients {
    plain: Client,
    observed: Client,
    writer: Client,
    path: Path,
    own: Path,
}

impl Clients {
    async fn connect(to: &HostPort, config: &ClientConfig) -> Result<Clients, CliError> {
        let connect = |config: ClientConfig| Client::connect([to.clone()], config);
        let key = key_bytes(0);
        let path = |text: String| {
            let parsed = text.parse::<Path>();
            parsed.map_err(|error| CliError::Failure(format!("{text}: {error}")))
        };
        let clients = Clients {
            plain: connect(config.clone()).await?,
            observed: connect(config.clone().observer(Counting::default())).await?,
            writer: connect(config.clone()).await?,
            path: path(format!("{PLACE}.{}", String::from_utf8_lossy(&key)))?,
            own: path(format!("{PLACE}.own-write"))?,
        };
        clients.writer.put(&clients.own, &"x".repeat(VALUE_BYTES)).await?;
        Ok(clients)
    }

    /// Makes so many reads.
    async fn read(&self, reader: Reader, in_flight: usize, calls: usize) -> Result<(), CliError> {
        let (client, path) = match reader {
            Reader::Generator | Reader::Thread | Reader::Tasks => (&self.plain, &self.path),
            Reader::Observed => (&self.observed, &self.path),
            Reader::OwnWrite => (&self.writer, &self.own),
        };
        let each = |client: Client, path: Path| async move {
            for _ in 0..calls / in_flight {
                if client.get_raw(&path).await?.is_none() {
                    return Err(CliError::Failure(format!("{path} is gone")));
                }
            }
            Ok(())
        };
        let all = (0..in_flight).map(|_| each(client.clone(), path.clone()));
        match reader {
            Reader::Thread => try_join_all(all).await?,
            _ => try_join_all(all.map(rt::spawn)).await?,
        };
        Ok(())
    }

    async fn close(self) {
        for client in [self.plain, self.observed, self.writer] {
            client.close().await;
        }
    }
}

/// An observer that does as little as one can.
#[derive(Debug, Clone, Default)]
struct Counting(Arc<AtomicU64>);

impl Observer for Counting {
    fn call_begins(&self, _: &str) -> Option<Box<dyn CallObserver>> {
        Some(Box::new(self.clone()))
    }
}

impl CallObserver for Counting {
    fn call_ends(&mut self, _: &CallEnd<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

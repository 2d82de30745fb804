//! How long a change takes from node to node, and how many watchers a node can serve.
//!
//! Both read sockets themselves: what is measured is the node, not a client library.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clap::Args;
use distkv_bench::args::{DEPTH_MAX, check_value, within};
use distkv_bench::distkv::{DistKv, is_start, watch_request};
use distkv_bench::keys::{Distribution, Ops, Values};
use distkv_bench::load::{LATENCY_MAX, LoadError, Tally, Work};
use distkv_bench::measure::{join, nanos, resolve, start, usage, wait_until};
use distkv_bench::process::Process;
use distkv_bench::wire::{Protocol, Tag};
use distkv_bench::{place, report};
use distkv_client::splitter::Splitter;
use distkv_client::{ClientError, Message, ServerError};
use distkv_command::error::CliError;
use distkv_command::output::{Output, Table};
use distkv_command::remote::{RemoteArgs, parse_address};
use distkv_command::units::{parse_bytes, parse_duration, parse_some_time};
use distkv_model::value::skip::skip_value;
use distkv_model::value::{SkipError, SkipLimits};
use distkv_runtime as rt;
use hdrhistogram::Histogram;
use serde_json::json;

use super::listen::{READ_BYTES, read_all, read_some};

/// How long nothing may come before that is an error.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Changes that go before those that are measured.
const WARM_UP: u64 = 1_000;
/// Most watchers.
const WATCHERS_MAX: usize = 10_000;

/// Measure how long a change takes from one node until a watcher of another one has it
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-bench propagation --connect a --watch b
  distkv-bench propagation --watch b --changes 100000 --json

One change at a time, below `distkv-bench`: it is sent to the node of --connect, and the \
time stops when the watcher at --watch has it. With the same node at both ends, that is the \
node's own share. There is no login and no TLS, so it is for nodes that ask for neither.")]
pub(super) struct PropagationArgs {
    /// The node at which the changes are watched
    #[arg(long, value_name = "ADDR:PORT")]
    watch: String,

    /// How many changes
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    changes: u64,

    /// The values' length
    #[arg(long, value_name = "BYTES", default_value = "100", value_parser = parse_bytes)]
    value: usize,

    #[command(flatten)]
    remote: RemoteArgs,
}

/// Measure how many changes per second reach many watchers
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-bench watchers --count 100
  distkv-bench watchers --count 1000 --watch b

One connection writes below `distkv-bench`, --depth requests in flight; each watcher is a \
connection without flow control that watches that subtree. Deliveries are whole messages, \
counted at each watcher; at the first one, each is checked for a path, a value and a tock. \
There is no login and no TLS, so it is for nodes that ask for neither.")]
pub(super) struct WatchersArgs {
    /// How many watchers
    #[arg(long, value_name = "N", default_value_t = 100)]
    count: usize,

    /// The node at which they watch [default: the one of --connect]
    #[arg(long, value_name = "ADDR:PORT")]
    watch: Option<String>,

    /// Writes in flight
    #[arg(long, short = 'd', default_value_t = 100)]
    depth: usize,

    /// The values' length
    #[arg(long, value_name = "BYTES", default_value = "100", value_parser = parse_bytes)]
    value: usize,

    /// How many keys are written
    #[arg(long, default_value_t = 10_000)]
    keys: u64,

    /// How long to measure
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_some_time)]
    duration: Duration,

    /// How long to write before that
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    warm_up: Duration,

    #[command(flatten)]
    remote: RemoteArgs,
}

pub(super) fn propagation(args: &PropagationArgs) -> Result<(), CliError> {
    check_value(args.value)?;
    let remote = &args.remote;
    let (from, to) = (remote.address()?, parse_address("--watch", &args.watch)?);
    let (from, to) = (resolve(&from)?, resolve(&to)?);
    let measured =
        place::tidily(&place::At::plain(from, remote.timeout_or_default()), false, || {
            propagate(args, from, to, remote.json)
        });
    measured.map_err(without_login)
}

fn propagate(
    args: &PropagationArgs,
    from: SocketAddr,
    to: SocketAddr,
    json: bool,
) -> Result<(), CliError> {
    let mut writer = Line::connect(from)?;
    let mut watcher = Line::connect(to)?;
    watcher.watch()?;
    let values = Values::new(args.value, 1);
    let mut times = Histogram::<u64>::new_with_bounds(1, LATENCY_MAX, 3)
        .map_err(|e| CliError::Failure(e.to_string()))?;
    let mut request = Vec::new();
    for n in 1..=WARM_UP + args.changes {
        place::check_interrupted()?;
        request.clear();
        let value = values.at(n as usize % values.places());
        DistKv::Place.set(0, value, Tag::from(n), &mut request);
        let sent = rt::now_ns();
        writer.send(&request)?;
        watcher.until(|message| has_value(message, value))?;
        let taken = rt::now_ns() - sent;
        writer.until(|message| message.u64("seq") == Some(n))?;
        if n > WARM_UP {
            times.saturating_record(taken);
        }
    }
    let mut output = Output::new(json);
    if output.json {
        let (from, to) = (writer.address.to_string(), watcher.address.to_string());
        let times = report::latency_json(&times);
        output.line(&json!({"from": from, "to": to, "latency": times}).to_string())?;
    } else {
        let shown = |p| report::show_ns(times.value_at_percentile(p));
        let mut table = Table::with_head(&["CHANGES", "P50", "P90", "P99", "P99.9", "MAX"]);
        let max = report::show_ns(times.max());
        let count = times.len().to_string();
        table.row([count, shown(50.0), shown(90.0), shown(99.0), shown(99.9), max]);
        table.print(&mut output)?;
    }
    output.flush()
}

/// Whether a message is of a change to just this value. An earlier change may be told late.
fn has_value(message: &Message, value: &[u8]) -> bool {
    message.get("value").is_some_and(|found| found.ends_with(value))
}

pub(super) fn watchers(args: &WatchersArgs) -> Result<(), CliError> {
    within("count", args.count, WATCHERS_MAX)?;
    within("depth", args.depth, DEPTH_MAX)?;
    check_value(args.value)?;
    if args.keys == 0 {
        return Err(CliError::Usage("--keys must be 1 or more".to_owned()));
    }
    let remote = &args.remote;
    let target = resolve(&remote.address()?)?;
    let watched = args.watch.as_deref().map(|text| parse_address("--watch", text)).transpose()?;
    let watched = watched.as_ref().map(resolve).transpose()?.unwrap_or(target);
    let measured =
        place::tidily(&place::At::plain(target, remote.timeout_or_default()), false, || {
            watch_many(args, target, watched, remote)
        });
    measured.map_err(without_login)
}

fn watch_many(
    args: &WatchersArgs,
    target: SocketAddr,
    watched: SocketAddr,
    remote: &RemoteArgs,
) -> Result<(), CliError> {
    let mut lines = Vec::new();
    for _ in 0..args.count {
        let mut line = Line::connect(watched)?;
        line.watch()?;
        lines.push(line);
    }
    let counted_from = rt::now_ns() + nanos(args.warm_up);
    let end = counted_from.saturating_add(nanos(args.duration));
    let work = Work {
        secure: None,
        timeout: remote.timeout_or_default(),
        protocol: DistKv::Place,
        targets: vec![target],
        depth: args.depth,
        ops: Ops::new(Distribution::Uniform, args.keys, 0.0, 1),
        values: Values::new(args.value, 1),
        counted_from,
        end,
        count: None,
    };
    let writing = start(work);
    let reading = rt::spawn_thread("watchers", move || count(lines, counted_from, end));
    let process: Vec<Process> = Process::listening_at(watched).into_iter().collect();
    wait_until(counted_from);
    let used = usage(&process);
    let counted = reading.map_err(LoadError::Poll)?;
    let counted = counted.join().map_err(|_| LoadError::Thread)??;
    let cpu_s = used.zip(usage(&process)).map(|(before, after)| after.cpu_s - before.cpu_s);
    let tally = join(vec![writing])?;
    place::check_interrupted()?;
    report_watchers(args, remote, &counted, &tally, cpu_s)
}

fn report_watchers(
    args: &WatchersArgs,
    remote: &RemoteArgs,
    counted: &Counted,
    tally: &Tally,
    cpu_s: Option<f64>,
) -> Result<(), CliError> {
    let seconds = args.duration.as_secs_f64();
    let deliveries = counted.deliveries();
    let (per_second, writes) = (deliveries / seconds, tally.answers() as f64 / seconds);
    let cpu = cpu_s.map(|cpu| cpu * 1e6 / deliveries.max(1.0));
    let mut output = Output::new(remote.json);
    output.either(
        || {
            json!({
                "watchers": args.count, "depth": args.depth, "value_bytes": args.value,
                "seconds": seconds, "deliveries_per_second": per_second,
                "writes_per_second": writes, "errors": tally.errors,
                "bytes_received": counted.bytes, "slowest_share": counted.slowest_share(),
                "server_cpu_s": cpu_s, "server_cpu_s_per_million": cpu,
                "writes": report::latency_json(&tally.writes),
            })
        },
        || {
            let cpu = cpu.map_or_else(String::new, |cpu| {
                format!("; the node used {cpu:.3} s of CPU per million deliveries")
            });
            format!(
                "{per_second:.0} deliveries per second to {} watchers, {writes:.0} writes per \
                 second{cpu}\nthe slowest watcher got {:.1} % of what the first one got",
                args.count,
                counted.slowest_share() * 100.0
            )
        },
    )?;
    output.flush()
}

/// What came to all watchers.
struct Counted {
    /// Messages to each watcher.
    each: Vec<u64>,
    bytes: u64,
}

impl Counted {
    fn deliveries(&self) -> f64 {
        self.each.iter().sum::<u64>() as f64
    }

    fn slowest_share(&self) -> f64 {
        let first = self.each.first().copied().unwrap_or(0).max(1);
        self.each.iter().copied().min().unwrap_or(0) as f64 / first as f64
    }
}

/// Reads what comes to all watchers until the end, and counts it from a time on.
fn count(lines: Vec<Line>, counted_from: u64, end: u64) -> Result<Counted, LoadError> {
    let mut counted = Counted { each: vec![0; lines.len()], bytes: 0 };
    let mut buffer = vec![0; READ_BYTES];
    // What a watcher's last read left of a message.
    let mut begun: Vec<Vec<u8>> = vec![Vec::new(); lines.len()];
    let connections = lines.into_iter().map(|line| (line.stream, line.address));
    read_all(connections, end, |index, now, stream| {
        let Some((begun, each)) = begun.get_mut(index).zip(counted.each.get_mut(index)) else {
            return Ok(false);
        };
        let kept = begun.len();
        // A message may be longer than what is read at once.
        buffer.resize(buffer.len().max(kept + READ_BYTES / 2), 0);
        let (front, room) = buffer.split_at_mut_checked(kept).ok_or(io::ErrorKind::InvalidData)?;
        front.copy_from_slice(begun);
        let (length, room) = (read_some(stream, room)?, room.len());
        let mut rest = buffer.get(..kept + length).unwrap_or_default();
        let messages = count_messages(&mut rest, index == 0)?;
        begun.clear();
        begun.extend_from_slice(rest);
        if now >= counted_from {
            counted.bytes += length as u64;
            *each += messages;
        }
        Ok(length == room)
    })?;
    Ok(counted)
}

/// Takes whole messages off the front, and counts them. `checked`: each must be of a change.
fn count_messages(rest: &mut &[u8], checked: bool) -> io::Result<u64> {
    let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let mut messages = 0;
    loop {
        let length = match skip_value(rest, SkipLimits::NONE) {
            Ok(length) => length,
            Err(SkipError::Incomplete { .. }) => return Ok(messages),
            Err(error) => return Err(bad(&error.to_string())),
        };
        let Some((message, behind)) = rest.split_at_checked(length) else { return Ok(messages) };
        if checked {
            let message = Message::new(message).map_err(|error| bad(&error.to_string()))?;
            if ["path", "value", "tock"].iter().any(|field| message.get(field).is_none()) {
                return Err(bad("a message without path, value or tock"));
            }
        }
        *rest = behind;
        messages += 1;
    }
}

/// What is said where a node asks for a login, or for TLS: a [`Line`] has neither, whatever the options say.
pub(super) fn without_login(error: CliError) -> CliError {
    if !error.has_code("auth_required") {
        return error;
    }
    error.said(|_| {
        String::from(
            "a node asks for a login, or for TLS, and this measurement speaks the plain protocol without either, also with \
             --ticket, --key and --user: measure nodes that serve clients without a login. `distkv-bench` and `distkv-bench \
             client` log in",
        )
    })
}

/// A node's error, with its address.
pub(super) fn said_by(address: SocketAddr, error: ServerError) -> CliError {
    CliError::from(ClientError::Server(error)).said(|text| format!("{address}: {text}"))
}

/// A connection whose reads block.
pub(super) struct Line {
    pub(super) stream: TcpStream,
    pub(super) address: SocketAddr,
    splitter: Splitter,
    buffer: Vec<u8>,
}

impl Line {
    pub(super) fn connect(address: SocketAddr) -> Result<Self, CliError> {
        let connect = || {
            let stream = TcpStream::connect_timeout(&address, SILENCE_MAX)?;
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(SILENCE_MAX))?;
            stream.set_read_timeout(Some(SILENCE_MAX))?;
            io::Result::Ok(stream)
        };
        let stream = connect().map_err(|error| LoadError::Connect(address, error))?;
        let buffer = vec![0; READ_BYTES / 16];
        Ok(Self { stream, address, splitter: Splitter::new(), buffer })
    }

    /// Watches what is measured, and waits until that has begun.
    fn watch(&mut self) -> Result<(), CliError> {
        self.send(&watch_request(&place::place()?))?;
        self.until(is_start)
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.stream.write_all(bytes).map_err(|error| self.lost(error))
    }

    /// Reads until a message comes of which this is true.
    pub(super) fn until(&mut self, is_it: impl Fn(&Message) -> bool) -> Result<(), CliError> {
        loop {
            let address = self.address;
            if let Some(value) = self.splitter.next_value().map_err(|e| bad(address, &e))? {
                let message = Message::new(value).map_err(|e| bad(address, &e))?;
                if let Some(error) = message.error() {
                    return Err(said_by(address, error));
                }
                if is_it(&message) {
                    return Ok(());
                }
                continue;
            }
            let length = match self.stream.read(&mut self.buffer) {
                Ok(0) => return Err(self.lost(io::ErrorKind::UnexpectedEof.into())),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(LoadError::Silence.into());
                }
                Err(error) => return Err(self.lost(error)),
            };
            self.splitter.push(self.buffer.get(..length).unwrap_or_default());
        }
    }

    fn lost(&self, error: io::Error) -> CliError {
        LoadError::Lost(self.address, error).into()
    }
}

fn bad(address: SocketAddr, why: &dyn std::error::Error) -> CliError {
    CliError::Failure(format!("{address} does not speak the client protocol: {why}"))
}

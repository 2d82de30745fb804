//! One measurement: fill, warm up, measure.

use std::net::SocketAddr;
use std::time::Duration;

use crate::args::Shape;
use crate::client::HostPort;
use crate::command::error::CliError;
use crate::keys::{Ops, Values};
use crate::load::{LoadError, Tally, Work};
use crate::process::{Process, Usage};
use crate::wire::Protocol;
use crate::{load, place, rt};

/// So many requests are in flight on each connection that fills.
const FILL_DEPTH: usize = 64;
/// So many connections fill.
const FILL_CONNECTIONS: usize = 4;
/// So long is slept at most between two looks at whether the load is to end.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// How long filling may take.
const FILL_NS: u64 = 3_600_000_000_000;

/// The first address of a name.
///
/// # Errors
/// [`CliError::Failure`] says which name has none.
pub fn resolve(target: &HostPort) -> Result<SocketAddr, CliError> {
    let addresses = rt::block_on(rt::resolve(target));
    let addresses =
        addresses.map_err(|e| CliError::Failure(format!("cannot look up {target}: {e}")))?;
    addresses.first().copied().ok_or_else(|| CliError::Failure(format!("{target} has no address")))
}

/// What came of a measurement.
pub struct Measured {
    /// What the load generator counted.
    pub tally: Tally,
    /// What the servers on this machine used meanwhile; none if there are none.
    pub(crate) cpu_s: Option<f64>,
    /// Their memory at the end.
    pub(crate) resident: Option<u64>,
}

impl Measured {
    /// Answers per second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.tally.answers() as f64 / (self.tally.spent.max(1) as f64 / 1e9)
    }

    /// CPU seconds of the servers per million answers.
    #[must_use]
    pub fn cpu_per_million(&self) -> Option<f64> {
        self.cpu_s.map(|cpu| cpu * 1e6 / self.tally.answers().max(1) as f64)
    }
}

/// Fills, warms up, and measures. There must be one target at least.
///
/// # Errors
/// [`CliError::Failure`] if a server fails, [`CliError::Interrupted`] after a signal.
pub fn measure(
    targets: &[SocketAddr],
    protocol: impl Protocol,
    shape: &Shape,
) -> Result<Measured, CliError> {
    // The first look at the clock, so that it counts from here.
    let _ = rt::now_ns();
    if !shape.no_fill {
        fill(targets, protocol, shape)?;
        place::check_interrupted()?;
    }
    measure_those(targets, &processes(targets), protocol, shape)
}

/// Warms up and measures; the CPU and memory of some processes meanwhile.
///
/// # Errors
/// [`CliError::Failure`] if a server fails, or nothing was answered.
pub fn measure_those(
    targets: &[SocketAddr],
    processes: &[Process],
    protocol: impl Protocol,
    shape: &Shape,
) -> Result<Measured, CliError> {
    let counted_from = rt::now_ns() + nanos(shape.warm_up);
    let end = counted_from.saturating_add(nanos(shape.duration));
    let threads = shape.threads.min(shape.connections);
    // Together exactly as many as are wanted.
    let share = |count: u64, thread: usize| {
        (count / threads as u64) + u64::from((thread as u64) < count % threads as u64)
    };
    let work = |thread: usize| Work {
        secure: shape.secure.clone(),
        timeout: shape.timeout,
        protocol,
        targets: (thread..shape.connections)
            .step_by(threads)
            .filter_map(|n| targets.get(n.checked_rem(targets.len())?).copied())
            .collect(),
        depth: shape.depth,
        ops: Ops::new(shape.distribution, shape.keys, shape.reads, shape.seed + thread as u64),
        values: Values::new(shape.value, shape.seed),
        counted_from,
        end,
        count: shape.count.map(|count| share(count, thread)),
    };
    let running: Vec<_> = (0..threads).map(|thread| start(work(thread))).collect();
    wait_until(counted_from);
    let before = usage(processes);
    let tally = join(running)?;
    if tally.answers() == 0 {
        return Err(LoadError::Nothing.into());
    }
    let after = usage(processes);
    let cpu_s = before.zip(after).map(|(before, after)| after.cpu_s - before.cpu_s);
    Ok(Measured { tally, cpu_s, resident: after.map(|usage| usage.resident) })
}

/// A thread that makes load, unless the system refused it.
pub(crate) type Running = std::io::Result<std::thread::JoinHandle<Result<Tally, LoadError>>>;

/// Makes load on a thread of its own.
pub fn start<P: Protocol>(work: Work<P>) -> Running {
    rt::spawn_thread("bench", move || load::run(work))
}

/// Waits for threads that make load, and adds up what they did.
///
/// # Errors
/// That of the first thread that failed.
pub fn join(running: Vec<Running>) -> Result<Tally, LoadError> {
    let mut tally = Tally::new()?;
    for thread in running {
        let done = thread.map_err(LoadError::Poll)?.join().map_err(|_| LoadError::Thread)??;
        tally.add(&done)?;
    }
    Ok(tally)
}

/// Sets every key once.
///
/// # Errors
/// [`LoadError::Refused`] if a write was refused, and those of making load.
pub fn fill(
    targets: &[SocketAddr],
    protocol: impl Protocol,
    shape: &Shape,
) -> Result<Tally, LoadError> {
    let now = rt::now_ns();
    let target = targets.first().copied();
    let work = Work {
        secure: shape.secure.clone(),
        timeout: shape.timeout,
        protocol,
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

/// What some processes have used so far, together; none if one of them has ended, or there are none.
#[must_use]
pub fn usage(processes: &[Process]) -> Option<Usage> {
    let mut sum = Usage::default();
    for process in processes {
        let usage = process.usage()?;
        sum.cpu_s += usage.cpu_s;
        sum.resident += usage.resident;
    }
    (!processes.is_empty()).then_some(sum)
}

/// Sleeps until a time (as [`rt::now_ns`] tells it), or until a signal comes.
pub fn wait_until(time: u64) {
    while !place::is_interrupted()
        && let Some(left) = time.checked_sub(rt::now_ns()).filter(|left| *left > 0)
    {
        std::thread::sleep(Duration::from_nanos(left).min(SLEEP_MAX));
    }
}

/// A duration in nanoseconds; at most 146 years.
#[must_use]
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}

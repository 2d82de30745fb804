//! How long a member's writes take, until another member has them too, while strangers begin handshakes at its gossip
//! port and say no more; and how long without them.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use distkv_bench::load::LATENCY_MAX;
use distkv_client::{Connection, Fields};
use distkv_command::error::CliError;
use distkv_model::path::Path;
use distkv_runtime as rt;
use hdrhistogram::Histogram;
use rustix::process::{Resource, getrlimit};

use super::SecuredArgs;
use super::nodes::{Guard, Nodes};
use super::rows::{Row, Way};
use crate::compare::lab::{Cores, PATIENCE};

/// The beginning of a handshake: the length of its frame, and no more.
const BEGINNING: [u8; 4] = [0, 0, 0, 80];
/// Descriptors that are left to the rest of this process.
const SPARE: u64 = 128;
/// So many times as long as they should the strangers may take.
const LATE_FACTOR: u64 = 10;

/// The p50, p99 and the longest wait of writes; how many strangers there were.
pub(super) fn rows(args: &SecuredArgs, nodes: &Nodes) -> Result<Vec<Row>, CliError> {
    let store = nodes.store(None);
    let servers = nodes.start(&store, "member", 2, Guard::Secured, Cores::All)?;
    let first = servers.first().ok_or_else(|| store.failed("there is none"))?;
    let gossip: SocketAddr =
        first.inner.parse().map_err(|_| store.failed("it does not say where peers go"))?;
    let member = Nodes::connect(first, &nodes.admin()?)?;
    let what = "a member's write that another one has, too";
    let mut p50 = Row::new(format!("{what}: p50, us"), 0);
    let mut p99 = Row::new(format!("{what}: p99, us"), 0);
    let mut longest = Row::new(format!("{what}: longest, us"), 0);
    let mut came = Row::new("strangers that have begun a handshake", 0);
    let mut failed = Row::new("writes that failed", 0);
    write(&member, args.warm_up, None)?;
    for pair in 0..args.pairs {
        for way in Way::of_pair(pair) {
            let crowd = (way == Way::With).then(|| Crowd::begin(gossip, args)).transpose()?;
            let (times, failures) = write(&member, args.duration, crowd.as_ref())?;
            let strangers = crowd.map_or(0, Crowd::end);
            let us = |percentile| times.value_at_percentile(percentile) as f64 / 1e3;
            p50.add(way, us(50.0));
            p99.add(way, us(99.0));
            longest.add(way, times.max() as f64 / 1e3);
            came.add(way, f64::from(strangers));
            failed.add(way, failures as f64);
        }
    }
    Ok(vec![p50, p99, longest, came, failed])
}

/// Writes, one at a time, for so long; and until all of the crowd have come, who may be late on a busy machine.
fn write(
    member: &Connection,
    time: Duration,
    crowd: Option<&Crowd>,
) -> Result<(Histogram<u64>, u64), CliError> {
    let failure = |error: &dyn std::fmt::Display| CliError::Failure(error.to_string());
    let mut times =
        Histogram::<u64>::new_with_bounds(1, LATENCY_MAX, 3).map_err(|error| failure(&error))?;
    let path: Path = "lamp".parse().map_err(|error| failure(&error))?;
    let began = rt::now_ns();
    let time = time.as_nanos() as u64;
    let goes_on = || match rt::now_ns() - began {
        spent if spent < time => true,
        spent => {
            spent < LATE_FACTOR * time && crowd.is_some_and(|crowd| !crowd.thread.is_finished())
        }
    };
    let (mut number, mut failures) = (0_u64, 0);
    while goes_on() {
        let mut fields = Fields::at(&path);
        fields.u64("value", number).u64("nchain", 0).u64("copies", 1);
        fields.f64("timeout", PATIENCE.as_secs_f64());
        let began = rt::now_ns();
        if rt::block_on(member.request("set_value", &fields)).is_err() {
            failures += 1;
        }
        times.saturating_record((rt::now_ns() - began).max(1));
        number += 1;
    }
    Ok((times, failures))
}

/// Strangers that come one after the other. All stay, as far as this process may have connections and until the node
/// ends theirs.
struct Crowd {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<u32>,
}

impl Crowd {
    /// All of them, evenly over the time of a measurement.
    fn begin(gossip: SocketAddr, args: &SecuredArgs) -> Result<Self, CliError> {
        let (count, together, time) = (args.strangers, args.together, args.duration);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = usize::try_from(descriptors.saturating_sub(SPARE)).unwrap_or(usize::MAX).max(1);
        let began = rt::now_ns();
        let come = move || {
            let mut all: VecDeque<TcpStream> = VecDeque::new();
            let mut came = 0;
            while came < count && !over.load(Ordering::Relaxed) {
                for _ in 0..together.min(count - came) {
                    if all.len() >= most {
                        all.pop_front();
                    }
                    let Ok(stream) = TcpStream::connect(gossip) else { continue };
                    if (&stream).write_all(&BEGINNING).is_ok() {
                        came += 1;
                    }
                    all.push_back(stream);
                }
                let due = time.as_nanos() as f64 * f64::from(came) / f64::from(count);
                let ahead = (due as u64).saturating_sub(rt::now_ns() - began);
                std::thread::sleep(Duration::from_nanos(ahead));
            }
            came
        };
        let thread = rt::spawn_thread("strangers", come);
        let thread = thread.map_err(|error| CliError::Failure(error.to_string()))?;
        Ok(Self { is_over, thread })
    }

    /// Ends it; how many have come.
    fn end(self) -> u32 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or(0)
    }
}

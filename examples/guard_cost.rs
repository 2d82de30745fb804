//! What the one lock around the engine costs and allows: nanoseconds of CPU per operation under the
//! shared guard (reads) and under the exclusive one (writes), by one thread and by two at once.
//!
//! ```sh
//! cargo run --release --example guard_cost
//! cargo run --release --example guard_cost -- --threads 4 --seconds 5
//! ```
//!
//! What one thread needs under the exclusive guard is the part of a write that no other core can do at
//! the same time; docs/performance.md says what follows from that.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "it measures")]

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use distkv::engine::{BatchTerms, Operation, WriteOp};
use distkv::engine::{Config, Engine, Input, Outbox};
use distkv::hub::Hub;
use distkv::model::ids::{Incarnation, NodeId, NodeName};
use distkv::model::path::Path;
use distkv::model::value::write::write_bin;
use distkv::replica::write::Write;

/// The allocator of the real program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Reads or writes under one guard, as a connection with so many in flight does it.
const BATCH: usize = 16;

/// Measure the lock around the engine
#[derive(Parser)]
#[command(name = "guard_cost")]
struct Arguments {
    /// Entries
    #[arg(long, default_value_t = 1_000_000)]
    entries: u64,

    /// Threads, at most
    #[arg(long, default_value_t = 2)]
    threads: usize,

    /// How long each measurement takes
    #[arg(long, default_value_t = 2)]
    seconds: u64,
}

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Read,
    Write,
}

fn path(number: u64) -> Path {
    Path::root().push(format!("key-{number:012}").as_str()).unwrap()
}

/// As the server does it.
fn set_all(hub: &Hub, paths: &[Path], value: &[u8]) {
    let op = |path| Operation::Write(WriteOp::new(Write::new(path, Some(value))));
    black_box(hub.write_batch(paths.iter().map(op), BatchTerms::WHOLE));
}

/// Nanoseconds that this thread has run, and that it waited for a core.
fn spent() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let mut numbers = text.split_whitespace().map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// How many operations, nanoseconds of CPU, nanoseconds that it waited for anything but a core.
fn go_on(hub: &Hub, work: Work, seed: u64, entries: u64, is_over: &AtomicBool) -> [u64; 3] {
    let mut state = seed;
    let mut any = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        path((state >> 33) % entries)
    };
    let mut value = Vec::new();
    write_bin(&[7; 100], &mut value);
    // Made beforehand, so that nearly all of the time is spent under guards.
    let paths: Vec<Path> = (0..1 << 17).map(|_| any()).collect();
    let mut operations = 0;
    let ((run, queued), began) = (spent(), Instant::now());
    while !is_over.load(Ordering::Relaxed) {
        for batch in paths.chunks(BATCH) {
            match work {
                Work::Read => hub.read(|engine| {
                    engine.tree().get_many(batch.iter().map(Path::as_bytes), |entry| {
                        black_box(entry.cloned());
                    });
                }),
                Work::Write => set_all(hub, batch, &value),
            }
            operations += batch.len() as u64;
            if is_over.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    let (run, queued) = (spent().0 - run, spent().1 - queued);
    let waited = (began.elapsed().as_nanos() as u64).saturating_sub(run + queued);
    [operations, run, waited]
}

fn main() {
    let arguments = Arguments::parse();
    let id = NodeId { name: NodeName::new("node").unwrap(), incarnation: Incarnation(1) };
    let mut engine = Engine::new(Config::new(id, 7));
    engine.handle(Input::Found, 0, &mut Outbox::new());
    let hub = Hub::new(engine);
    let mut value = Vec::new();
    write_bin(&[7; 100], &mut value);
    (0..arguments.entries).for_each(|number| set_all(&hub, &[path(number)], &value));

    println!(
        "threads               ns of CPU per operation   million per second   waiting for the lock"
    );
    let most = arguments.threads.max(1);
    let (read, write) = (Work::Read, Work::Write);
    let mixed: Vec<Work> = [read, write].into_iter().cycle().take(most.max(2)).collect();
    let cases = [
        ("1 reads", vec![read]),
        ("all read", vec![read; most]),
        ("1 writes", vec![write]),
        ("all write", vec![write; most]),
        ("half of them write", mixed),
    ];
    for (name, works) in cases {
        let is_over = AtomicBool::new(false);
        let found: Vec<(Work, [u64; 3])> = thread::scope(|scope| {
            let start = |(seed, work): (usize, &Work)| {
                let (hub, is_over, work) = (&hub, &is_over, *work);
                let entries = arguments.entries;
                scope.spawn(move || (work, go_on(hub, work, seed as u64 + 1, entries, is_over)))
            };
            let threads: Vec<_> = works.iter().enumerate().map(start).collect();
            // The paths are made meanwhile, too.
            thread::sleep(Duration::from_secs(arguments.seconds));
            is_over.store(true, Ordering::Relaxed);
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (of, what) in [(Work::Read, "reads"), (Work::Write, "writes")] {
            let sum = |at: usize| {
                let those = found.iter().filter(|(work, _)| *work == of);
                those.map(|(_, figures)| figures.get(at).copied().unwrap_or(0)).sum::<u64>() as f64
            };
            let (operations, run, waited) = (sum(0), sum(1), sum(2));
            if operations > 0.0 {
                let rate = operations / arguments.seconds as f64 / 1e6;
                let share = waited / (run + waited) * 100.0;
                println!(
                    "{name:<20} {:>10.0} ({what}) {rate:>22.2} {share:>20.1} %",
                    run / operations
                );
            }
        }
    }
}

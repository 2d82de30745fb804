//! Runs the simulator: many seeds, each a whole cluster with a virtual clock and a network that
//! breaks. Exit status 1 if a seed failed; then it prints which, and the shortest script found.
//!
//! ```sh
//! cargo run --profile sim -p distkv-sim --example simulate -- --small --seeds 1000000
//! cargo run --profile sim -p distkv-sim --example simulate -- --small --trace 4711
//! cargo run --profile sim -p distkv-sim --example simulate -- --nodes --seeds 1000
//! cargo run --profile sim -p distkv-sim --example simulate -- --defect ties_by_arrival
//! cargo run --profile sim -p distkv-sim --example simulate -- --defects
//! ```

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::Parser;
use distkv_model::defects::{Defect, Defects};
use distkv_runtime as rt;
use distkv_sim::{
    FOUND_BY_OTHER_TESTS, Failure, Family, Focus, Options, Outcome, SOUGHT, Stats, run,
    run_without, shrink,
};

/// A run allocates much and keeps little: a quarter faster than with the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Prints a line; whoever has closed the other end (`head`) has seen enough.
macro_rules! say {
    ($($text:tt)*) => {{
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

/// Simulate clusters and check that they keep to the rules.
#[derive(Parser)]
#[command(name = "simulate")]
struct Arguments {
    /// Small networks: 3 to 5 nodes, 1 to 3 paths (the default).
    #[arg(long)]
    small: bool,
    /// Whole networks: 2 to 50 nodes, up to 3,000 paths.
    #[arg(long, conflicts_with = "small")]
    whole: bool,
    /// Whole nodes: 1 to 7, with disks, membership and clients, of which the others have engines alone.
    #[arg(long, conflicts_with_all = ["small", "whole"])]
    nodes: bool,
    /// How many seeds.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    start: u64,
    /// How many threads; as many as there are processors if left out.
    #[arg(long)]
    threads: Option<usize>,
    /// What to seek: any, calm, splits, crashes, overflows, forks, coordinators or rollbacks; whole nodes have all.
    #[arg(long, default_value = "any", value_parser = parse_focus, conflicts_with = "nodes")]
    profile: Focus,
    /// Run this seed alone, leave out what it does not need to fail, and print what happened.
    #[arg(long, value_name = "SEED")]
    trace: Option<u64>,
    /// With --trace: leave nothing out.
    #[arg(long, requires = "trace")]
    whole_script: bool,
    /// Plant a defect, which should then be found.
    #[arg(long, value_parser = parse_defect)]
    defect: Vec<Defect>,
    /// Look for the first seed that finds each planted defect (or each --defect), and print a table.
    #[arg(long, conflicts_with_all = ["small", "whole", "nodes", "seeds", "start", "profile", "trace", "json"])]
    defects: bool,
    /// Stop after so many failing seeds.
    #[arg(long, default_value_t = 20)]
    failures: usize,
    /// Print the result as one line of JSON.
    #[arg(long)]
    json: bool,
}

fn parse_focus(text: &str) -> Result<Focus, String> {
    let names: Vec<&str> = Focus::ALL.iter().map(|(name, _)| *name).collect();
    let found = Focus::ALL.iter().find(|(name, _)| *name == text);
    found.map(|(_, focus)| *focus).ok_or_else(|| format!("one of {}", names.join(", ")))
}

fn parse_defect(text: &str) -> Result<Defect, String> {
    let names: Vec<String> = Defect::ALL.iter().map(|d| d.name()).collect();
    let found = Defect::ALL.iter().find(|d| d.name() == text);
    found.copied().ok_or_else(|| format!("one of {}", names.join(", ")))
}

/// What all threads add to.
#[derive(Default)]
struct Shared {
    next: AtomicU64,
    done: AtomicU64,
    stop: AtomicBool,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    stats: Stats,
    failures: BTreeMap<u64, Failure>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let defects = arguments.defect.iter().fold(Defects::default(), |all, d| all.with(*d));
    let family = match (arguments.nodes, arguments.whole) {
        (true, _) => Family::Nodes,
        (_, true) => Family::Whole,
        _ => Family::Small,
    };
    let options = Options { family, focus: arguments.profile, defects };
    if arguments.start.checked_add(arguments.seeds).is_none() {
        eprintln!("error: there are no seeds past {}; give a smaller --start", u64::MAX);
        return ExitCode::from(2);
    }
    if !arguments.defects {
        note_elsewhere(&arguments.defect, family);
    }
    if let Some(seed) = arguments.trace {
        return trace(seed, &options, arguments.whole_script);
    }
    let threads = arguments
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    if arguments.defects {
        return first_seeds(&arguments.defect, threads);
    }
    let began = rt::now();
    let shared = Shared::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1))
            .map(|_| scope.spawn(|| work(&arguments, &options, &shared)))
            .collect();
        while workers.iter().any(|w| !w.is_finished()) {
            show_progress(&arguments, &shared, rt::now() - began);
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    let found = shared.found.into_inner().unwrap_or_default();
    report(&arguments, &options, &found, rt::now() - began);
    if found.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Says which defects are sought elsewhere: some are in parts of a node that not every network here has, and then a run
/// without a failing seed says nothing of them.
fn note_elsewhere(defects: &[Defect], family: Family) {
    for defect in defects {
        let name = defect.name();
        match SOUGHT.iter().find(|sought| sought.defect == *defect) {
            Some(sought) if sought.family == family => {}
            Some(sought) => eprintln!(
                "note: `{name}` is sought with {}, and may do nothing here",
                family_option(sought.family)
            ),
            None => {
                eprintln!("note: no seed finds `{name}`; other tests do (--defects says which)")
            }
        }
    }
}

fn family_option(family: Family) -> &'static str {
    match family {
        Family::Small => "--small",
        Family::Whole => "--whole",
        Family::Nodes => "--nodes",
    }
}

/// What to type to see a seed again.
fn repeat(seed: u64, options: &Options, defects: &[Defect]) -> String {
    let mut command = format!(
        "cargo run --profile sim -p distkv-sim --example simulate -- {} --trace {seed}",
        family_option(options.family)
    );
    let focus = Focus::ALL.iter().find(|(_, focus)| *focus == options.focus);
    if let Some((name, _)) = focus.filter(|(name, _)| *name != "any") {
        command.push_str(&format!(" --profile {name}"));
    }
    for defect in defects {
        command.push_str(&format!(" --defect {}", defect.name()));
    }
    command
}

/// Takes seeds until there are no more.
fn work(arguments: &Arguments, options: &Options, shared: &Shared) {
    /// Seeds that are taken at once.
    const BATCH: u64 = 64;
    let mut stats = Stats::default();
    loop {
        let from = shared.next.fetch_add(BATCH, Ordering::Relaxed);
        if from >= arguments.seeds || shared.stop.load(Ordering::Relaxed) {
            break;
        }
        for number in from..(from + BATCH).min(arguments.seeds) {
            let outcome = run(arguments.start + number, options);
            stats.add(&outcome.stats);
            shared.done.fetch_add(1, Ordering::Relaxed);
            if let (Some(failure), Ok(mut found)) = (outcome.failure, shared.found.lock()) {
                found.failures.insert(outcome.seed, failure);
                if found.failures.len() >= arguments.failures {
                    shared.stop.store(true, Ordering::Relaxed);
                }
            }
        }
    }
    if let Ok(mut found) = shared.found.lock() {
        found.stats.add(&stats);
    }
}

fn show_progress(arguments: &Arguments, shared: &Shared, ms: u64) {
    if arguments.json || !std::io::stderr().is_terminal() {
        return;
    }
    let done = shared.done.load(Ordering::Relaxed);
    let rate = done as f64 * 1_000.0 / ms.max(1) as f64;
    let left = (arguments.seeds - done) as f64 / rate.max(0.001);
    let failed = shared.found.lock().map_or(0, |found| found.failures.len());
    let width = 30 * done / arguments.seeds.max(1);
    eprint!(
        "\r\x1b[K[{:<30}] {done} of {} seeds, {rate:.0} per second, {left:.0} s left, {failed} \
         failed",
        "#".repeat(width as usize),
        arguments.seeds
    );
    let _ = std::io::stderr().flush();
}

fn report(arguments: &Arguments, options: &Options, found: &Found, ms: u64) {
    let Found { stats, failures } = found;
    let hours = stats.virtual_ms as f64 / 3_600_000.0;
    if arguments.json {
        let failing: Vec<String> = failures.keys().map(u64::to_string).collect();
        let counts: Vec<String> =
            stats.fields().iter().map(|(name, count)| format!("\"{name}\":{count}")).collect();
        say!(
            "{{\"start\":{},\"ms\":{ms},\"virtual_hours\":{hours:.2},\"failures\":{},\
             \"failing_seeds\":[{}],{}}}",
            arguments.start,
            failures.len(),
            failing.join(","),
            counts.join(",")
        );
        return;
    }
    say!(
        "{} seeds from {} in {:.1} s ({:.0} per second), {hours:.1} virtual hours: {} failed",
        stats.seeds,
        arguments.start,
        ms as f64 / 1_000.0,
        stats.seeds as f64 * 1_000.0 / ms.max(1) as f64,
        failures.len()
    );
    let counts: Vec<String> =
        stats.fields().iter().skip(2).map(|(name, count)| format!("{name} {count}")).collect();
    say!("{}", counts.join(", "));
    let mut by_check: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (seed, failure) in failures {
        by_check.entry(failure.check).or_default().push(*seed);
    }
    for (check, seeds) in &by_check {
        let shown: Vec<String> = seeds.iter().take(10).map(u64::to_string).collect();
        say!("  {:>6}  {check}: seeds {}", seeds.len(), shown.join(" "));
    }
    if let Some(seed) = failures.keys().next() {
        say!("the first of them, with what it needs to fail:");
        trace(*seed, options, false);
        say!("again: {}", repeat(*seed, options, &arguments.defect));
    }
}

/// Prints what happens in one seed.
fn trace(seed: u64, options: &Options, whole: bool) -> ExitCode {
    let skipped = if whole { None } else { shrink(seed, options) };
    let outcome = run_without(seed, options, skipped.as_deref().unwrap_or_default(), true);
    for line in &outcome.script {
        say!("{line}");
    }
    match outcome.failure {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            say!("seed {seed}: {}: {}", failure.check, failure.detail);
            ExitCode::FAILURE
        }
    }
}

/// Prints the first seed of each planted defect, as a table for documents; fails if one is not found within
/// its bound, or if its seed fails without it, too.
fn first_seeds(only: &[Defect], threads: usize) -> ExitCode {
    let is_wanted = |defect: Defect| only.is_empty() || only.contains(&defect);
    say!("| defect | sought in | first seed | within | what the judge says |");
    say!("|---|---|---:|---:|---|");
    let mut is_good = true;
    for sought in SOUGHT.iter().filter(|sought| is_wanted(sought.defect)) {
        let name = sought.defect.name();
        let options = |defects| Options { family: sought.family, focus: sought.focus, defects };
        let kind = match sought.family {
            Family::Small => "engines",
            Family::Whole => "many engines",
            Family::Nodes => "nodes",
        };
        let focus = Focus::ALL.iter().find(|(_, focus)| *focus == sought.focus);
        let focus = focus.map(|(name, _)| *name).filter(|name| *name != "any");
        let place = focus.map_or_else(|| kind.to_owned(), |focus| format!("{kind}, {focus}"));
        let planted = options(Defects::default().with(sought.defect));
        let Some((seed, failure)) = first_failure(&planted, sought.seeds + sought.from, threads)
        else {
            is_good = false;
            say!("| `{name}` | {place} | none | {} | **not found** |", sought.seeds);
            continue;
        };
        let is_clean = run(seed, &options(Defects::default())).failure.is_none();
        is_good &= is_clean;
        let also = if is_clean { "" } else { " (**the seed fails without the defect, too**)" };
        say!("| `{name}` | {place} | {seed} | {} | {}{also} |", sought.seeds, failure.check);
    }
    for (defect, tests) in FOUND_BY_OTHER_TESTS.iter().filter(|(defect, _)| is_wanted(*defect)) {
        say!("| `{}` | | | | no seed; found by `{tests}` |", defect.name());
    }
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The first of so many seeds that fails: all before it are good.
fn first_failure(options: &Options, seeds: u64, threads: usize) -> Option<(u64, Failure)> {
    let (next, end) = (AtomicU64::new(0), AtomicU64::new(seeds));
    let work = || {
        let mut found = None;
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end.load(Ordering::Relaxed) {
                return found;
            }
            let Outcome { failure: Some(failure), .. } = run(seed, options) else { continue };
            end.fetch_min(seed, Ordering::Relaxed);
            found = Some((seed, failure));
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let found = workers.into_iter().filter_map(|worker| worker.join().ok().flatten());
        found.min_by_key(|(seed, _)| *seed)
    })
}

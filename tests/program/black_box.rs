//! Real nodes under everything that goes wrong, judged from their clients' side only: what was
//! acknowledged, read and watched, and what all nodes hold in the end. Nodes are processes of the real
//! program on hosts of their own (network namespaces), each with a small disk; `black_box/run.rs` has
//! the list of faults, `black_box/checker.rs` what is promised.
//!
//! ```sh
//! # 200 random runs, four at a time; each says what was done to it, and is the same for its seed
//! DISTKV_RUNS=200 cargo test --profile sim --test program black_box::random -- --nocapture
//! # One of them again, step by step
//! DISTKV_RUN_SEED=17 cargo test --profile sim --test program black_box::random -- --nocapture
//! # Every second node is an older program at first, and is upgraded when it is started for the third time
//! DISTKV_RUN_OLDER=/usr/local/bin/distkv-node-0.0 DISTKV_RUNS=50 cargo test --profile sim --test program black_box::random -- --nocapture
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that fails should say so at once, and may read the clock"
)]

use crate::processes;

mod checker;
mod clients;
mod history;
use crate::hosts;
mod lies;
mod rng;
mod run;
mod session;
mod world;

use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use hosts::find_unshare;

/// Tells a child of a test which run it is.
const SEED: &str = "DISTKV_RUN_SEED";
/// Tells it that it is inside of its own namespaces.
const INSIDE: &str = "DISTKV_TEST_INSIDE_NETNS";
/// Faults of a run.
const FAULTS: usize = 4;
/// Histories made to find one for each lie. What clients do in a run hangs on its timing: now and then one
/// has nothing for some lie (seen once in about 30 runs, on a loaded machine).
const HISTORIES_TO_LIE_ABOUT: usize = 6;

fn number(variable: &str, default: u64) -> u64 {
    let set = std::env::var(variable).ok();
    set.map_or(default, |text| text.parse().expect("a number"))
}

/// Starts a run as a process with network, mounts and processes of its own, which all end with it.
fn spawn(test: &str, seed: u64, quiet: bool) -> Child {
    let program = std::env::current_exe().expect("this program has a path");
    let stdout = || if quiet { Stdio::piped() } else { Stdio::inherit() };
    Command::new("unshare")
        .args(find_unshare())
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(program)
        .args(["--exact", test_name!(test), "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .env(SEED, seed.to_string())
        .stdin(Stdio::null())
        .stdout(stdout())
        .stderr(stdout())
        .spawn()
        .expect("unshare ran before")
}

/// One run, inside of its own namespaces; prints what is wrong.
fn run_one(seed: u64, faults: usize) -> history::History {
    let folder = tempfile::tempdir().expect("a folder");
    let (history, done) = run::run(seed, faults, folder.path());
    let count = |is: fn(&history::Write) -> bool| history.writes.iter().filter(|w| is(w)).count();
    println!(
        "seed {seed}: {done:?}; {} writes acknowledged, {} refused, {} of unknown fate, {} reads, \
         {} changes watched, {} conflicts",
        count(|w| w.made().is_some()),
        count(|w| matches!(w.fate, history::Fate::Refused(_))),
        count(|w| w.fate == history::Fate::Unknown),
        history.reads.len(),
        history.watches.iter().map(|w| w.items.len()).sum::<usize>(),
        history.conflicts.len(),
    );
    let faults = checker::judge(&history);
    if !faults.is_empty() {
        let kept = std::env::temp_dir().join(format!("distkv-black-box-{seed}"));
        let _ = std::fs::remove_dir_all(&kept);
        let copied = Command::new("sh")
            .args(["-c", "mkdir -p \"$2\" && cp \"$1\"/*.log \"$2\"", "sh"])
            .args([folder.path(), kept.as_path()])
            .status();
        println!("logs of the nodes: {} ({copied:?})", kept.display());
    }
    for fault in faults.iter().take(10) {
        println!("WRONG {fault}");
    }
    assert!(faults.is_empty(), "seed {seed}: {} promises were broken", faults.len());
    history
}

#[test]
fn random_runs_keep_every_promise() {
    if std::env::var_os(INSIDE).is_some() {
        run_one(number(SEED, 0), FAULTS);
        return;
    }
    let test = "random_runs_keep_every_promise";
    if std::env::var_os(SEED).is_some() {
        let status = spawn(test, number(SEED, 0), false).wait().expect("it can be waited for");
        assert!(status.success(), "{status}");
        return;
    }
    let (first, runs) = (number("DISTKV_RUN_FIRST", 1), number("DISTKV_RUNS", 10));
    let (next, failed) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..number("DISTKV_RUN_JOBS", 4) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + runs {
                        return;
                    }
                    let child = spawn(test, seed, true);
                    let output = child.wait_with_output().expect("it can be waited for");
                    let said = String::from_utf8_lossy(&output.stdout).into_owned();
                    let sum = said.lines().filter(|line| line.starts_with("seed "));
                    sum.for_each(|line| println!("{line}"));
                    if !output.status.success() {
                        let error = String::from_utf8_lossy(&output.stderr).into_owned();
                        println!("== seed {seed} FAILED\n{said}\n{error}");
                        failed.lock().expect("not poisoned").push(seed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("not poisoned");
    println!("{runs} runs from seed {first}, {} failed: {failed:?}", failed.len());
    assert!(failed.is_empty(), "seeds {failed:?}");
}

/// What a run inside of its namespaces prints before the name of a lie that was found.
const FOUND: &str = "found: ";

/// Makes a history, and puts each lie into it that it gives a reason for: all must be found.
fn lie() {
    let folder = tempfile::tempdir().expect("a folder");
    // Cut once, so that there are conflicts.
    let stores = [world::Store::Memory; 3];
    let (history, _) = run::run_with(3, &[0, 0, 1], &stores, &[run::Fault::Cut], folder.path());
    assert_eq!(checker::judge(&history), Vec::<String>::new(), "the truth");
    for (name, tell) in lies::LIES {
        let mut told = history.clone();
        if !tell(&mut told) {
            println!("{name}: nothing to lie about in this history");
            continue;
        }
        let found = checker::judge(&told);
        println!("{name}: {:?}", found.first());
        assert!(!found.is_empty(), "not found: {name}");
        println!("\n{FOUND}{name}");
    }
}

#[test]
fn the_checker_finds_every_planted_lie() {
    if std::env::var_os(INSIDE).is_some() {
        return lie();
    }
    let mut untold: Vec<&str> = lies::LIES.iter().map(|(name, _)| *name).collect();
    for _ in 0..HISTORIES_TO_LIE_ABOUT {
        let child = spawn("the_checker_finds_every_planted_lie", 0, true);
        let output = child.wait_with_output().expect("it can be waited for");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}\n{error}");
        untold.retain(|name| !said.lines().any(|line| line.strip_prefix(FOUND) == Some(name)));
        if untold.is_empty() {
            return;
        }
    }
    panic!("nothing to lie about in {HISTORIES_TO_LIE_ABOUT} histories: {untold:?}");
}

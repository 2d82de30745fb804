//! A runtime that begins where the system gives nothing more says so, and begins later. Each test runs in a process of
//! its own: a runtime begins once.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails should say so at once")]

use std::process::Command;
use std::time::Duration;

use distkv_runtime as rt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Set in the process that a test is run in.
const CHILD: &str = "DISTKV_TEST_EXHAUSTED";

/// Runs a test in a process whose threads need more memory than it is given where it says so.
fn in_a_process_of_its_own(name: &str, test: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return test();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name, "--nocapture"]).env(CHILD, "1");
    child.env("RUST_MIN_STACK", (64 << 20).to_string()).env("RUST_BACKTRACE", "0");
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let passed = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(output.status.success() && passed, "{said}");
    // Neither a panic nor anything else is written again and again.
    assert!(said.len() < 16 << 10, "{} bytes: {}", said.len(), &said[..4096]);
}

/// Does something while a limit is so low, and lifts it again.
fn limited<T>(what: Resource, most: u64, work: impl FnOnce() -> T) -> T {
    let Rlimit { current, maximum } = getrlimit(what);
    setrlimit(what, Rlimit { current: Some(most), maximum }).unwrap();
    let done = work();
    setrlimit(what, Rlimit { current, maximum }).unwrap();
    done
}

/// Enough memory for everything but a thread.
fn memory_without_threads() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let kilobytes: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    (kilobytes << 10) + (8 << 20)
}

/// It cannot begin under the limit, with this reason; what is begun then is done later.
fn begins_later(what: Resource, most: u64, reason: &str) {
    let task = limited(what, most, || {
        let error = rt::start_if_needed().unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        assert!(error.contains("os error"), "{error}");
        let task = rt::spawn(async { 5 });
        assert!(rt::start_if_needed().is_err());
        task
    });
    rt::start_if_needed().unwrap();
    assert_eq!(rt::block_on(task), 5);
    assert_eq!(rt::block_on(rt::spawn_blocking(|| 6)), 6);
    rt::block_on(rt::sleep(Duration::from_millis(1)));
}

#[test]
fn without_threads_it_says_so_and_begins_later() {
    in_a_process_of_its_own("without_threads_it_says_so_and_begins_later", || {
        begins_later(Resource::As, memory_without_threads(), "no thread");
    });
}

#[test]
fn without_file_descriptors_it_says_so_and_begins_later() {
    in_a_process_of_its_own("without_file_descriptors_it_says_so_and_begins_later", || {
        begins_later(Resource::Nofile, 3, "no file descriptor");
    });
}

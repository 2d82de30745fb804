//! Scheduled snapshots of real nodes: made and verified, kept by number, not repeated by a restart, and loud when they
//! fail.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use distkv::testing::free_addrs;
use serde_json::Value as Json;

use crate::cli::command::run;
use crate::processes::wait_until;

use super::Service;

fn start(client: SocketAddr, dir: &Path, more: &[&str]) -> Service {
    let (client, dir) = (client.to_string(), dir.display().to_string());
    let node = ["run", "--name", "n1", "--peer-wait", "0s", "--gossip", "127.0.0.1:0"];
    let of = ["--client", &client, "--snapshot-dir", &dir, "--snapshot-schedule"];
    Service::start(&[&node[..], &of, more].concat(), &[])
}

fn status(client: SocketAddr) -> Option<Json> {
    let done = run(&["status", "--json", "--connect", &client.to_string()], &[], b"");
    serde_json::from_str(&done.stdout).ok()
}

/// The files of snapshots, by name; what is not whole yet is none.
fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".dkv"))
        .collect();
    names.sort();
    names
}

fn warnings(client: SocketAddr) -> String {
    status(client).map(|status| status["warnings"].to_string()).unwrap_or_default()
}

#[test]
fn they_are_made_verified_and_kept_by_number() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, [client]) = (folder.path().join("a/b"), free_addrs());
    let mut node = start(client, &dir, &["every 1s", "--snapshot-keep", "2"]);
    let set = ["set", "a", "1", "--connect", &client.to_string()];
    wait_until("a change", || (run(&set, &[], b"").code == 0).then_some(()));
    let first = wait_until("the first", || files(&dir).first().cloned());
    assert!(first.starts_with("n1-20") && first.ends_with("Z.dkv"), "{first}");
    // Two more, and the first is gone.
    wait_until("the first is removed", || (!files(&dir).contains(&first)).then_some(()));
    let made = files(&dir);
    assert!(made.len() <= 3, "{made:?}");
    let status = status(client).unwrap();
    assert!(status["scheduled"]["file"].as_str().unwrap() > first.as_str(), "{status}");
    assert_eq!(status["scheduled"]["schedule"], "every 1s");
    node.end();
    for file in files(&dir) {
        let done = run(&["snapshot", "verify", dir.join(&file).to_str().unwrap()], &[], b"");
        assert_eq!(done.code, 0, "{}", done.stdout);
        assert!(done.stdout.contains("good (snapshot, "), "{}", done.stdout);
    }
}

#[test]
fn a_failure_is_told_until_one_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, [client]) = (folder.path().join("snapshots"), free_addrs());
    let mut node = start(client, &dir, &["every 1s"]);
    wait_until("the first", || files(&dir).first().cloned());
    // As if the disk were gone.
    let away = folder.path().join("away");
    fs::rename(&dir, &away).unwrap();
    fs::write(&dir, "").unwrap();
    node.wait_for("the scheduled snapshot could not be made: ");
    let text = "the last scheduled snapshot could not be made: ";
    wait_until("status warns", || warnings(client).contains(text).then_some(()));
    fs::remove_file(&dir).unwrap();
    fs::rename(&away, &dir).unwrap();
    wait_until("status is content", || (!warnings(client).contains(text)).then_some(()));
    node.end();
}

#[test]
fn a_restart_neither_repeats_nor_forgets_one() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, [client]) = (folder.path().join("snapshots"), free_addrs());
    let mut node = start(client, &dir, &["every 1h"]);
    let first = wait_until("the first", || files(&dir).first().cloned());
    node.end();
    let mut node = start(client, &dir, &["every 1h"]);
    let scheduled = |of: Json| of["scheduled"].clone();
    let second = wait_until("status", || status(client).map(scheduled));
    assert_eq!(second["file"], first.as_str());
    let length = second["due_ms"].as_u64().unwrap() - second["time_ms"].as_u64().unwrap();
    assert_eq!(length, 3_600_000);
    node.end();
    // What was missed while the node was down is made at its start.
    let old = dir.join("n1-20261120T030000Z.dkv");
    fs::rename(dir.join(&first), &old).unwrap();
    let mut node = start(client, &dir, &["daily 03:00"]);
    wait_until("another", || (files(&dir).len() == 2).then_some(()));
    node.end();
}

#[test]
fn a_node_that_has_lost_its_data_keeps_the_last_one_that_holds_something() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, [client]) = (folder.path().join("snapshots"), free_addrs());
    let schedule = ["every 1s", "--snapshot-keep", "1"];
    let mut node = start(client, &dir, &schedule);
    let set = ["set", "a", "1", "--connect", &client.to_string()];
    wait_until("a change", || (run(&set, &[], b"").code == 0).then_some(()));
    let holds = |of: &Json| of["scheduled"]["entries"].as_u64().filter(|entries| *entries > 0);
    wait_until("one with it", || status(client).as_ref().and_then(holds));
    node.end();
    let good = files(&dir).pop().unwrap();
    // It was in memory.
    let mut node = start(client, &dir, &schedule);
    node.wait_for("all newer scheduled snapshots hold nothing, so this old one is kept");
    let empty = files(&dir).pop().unwrap();
    wait_until("an empty one is removed", || (!files(&dir).contains(&empty)).then_some(()));
    assert!(files(&dir).contains(&good), "{:?}", files(&dir));
    let done = run(&["set", "a", "2", "--connect", &client.to_string()], &[], b"");
    assert_eq!(done.code, 0, "{}", done.stderr);
    wait_until("it has given way", || (!files(&dir).contains(&good)).then_some(()));
    node.end();
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().display().to_string();
    for (options, words) in [
        (vec!["--snapshot-schedule", "sometimes", "--snapshot-dir", &dir], "is no schedule"),
        (vec!["--snapshot-schedule", "every 6h"], "needs --snapshot-dir"),
        (vec!["--snapshot-keep", "3"], "needs --snapshot-schedule"),
        (
            vec!["--snapshot-schedule", "every 6h", "--snapshot-dir", &dir, "--snapshot-keep", "0"],
            "must be 1 to",
        ),
    ] {
        let done = run(&[&["run", "--name", "n1"], &options[..]].concat(), &[], b"");
        assert_eq!(done.code, 2, "{options:?}: {}", done.stderr);
        assert!(done.stderr.contains(words), "{options:?}: {}", done.stderr);
    }
    let both = ["--snapshot-schedule", "every 6h", "--snapshot-dir", &dir, "--data-dir", &dir];
    let ports = ["run", "--name", "n1", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let done = run(&[&ports[..], &both].concat(), &[], b"");
    assert_eq!(done.code, 2, "{}", done.stderr);
    assert!(done.stderr.contains("it is used for other files"), "{}", done.stderr);
}

//! `leave --for-good`: a node with data that will not come back leaves the Delete group while it is here.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value as Json;

use crate::cli::command::{Done, ok, program, run};
use crate::processes::{NodeProcess, wait_until, within_patience};

fn at(client: SocketAddr, arguments: &[&str]) -> Done {
    run(&[arguments, &["--connect", &client.to_string()]].concat(), &[], b"")
}

/// A node with a data directory; the first one without a peer.
fn durable(name: &str, network: &str, peer: Option<&NodeProcess>, dir: &Path) -> NodeProcess {
    let gossip = peer.map(|peer| peer.gossip.to_string());
    let mut arguments = match &gossip {
        Some(gossip) => vec!["join", gossip],
        None => vec!["run", "--peer-wait", "0s"],
    };
    let dir = dir.to_str().unwrap();
    arguments.extend(["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--data-dir", dir]);
    NodeProcess::start_in(network, name, &arguments)
}

/// The members of the Delete group, as a node shows them.
fn group(node: &NodeProcess) -> Vec<String> {
    let members = ok(node, &["members", "--json"]);
    let rows = members.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    let listed = rows.filter(|row| row["delete_member"] == true);
    let mut names: Vec<String> = listed.map(|row| row["name"].as_str().unwrap().into()).collect();
    names.sort();
    names
}

fn tombstones(node: &NodeProcess) -> u64 {
    let status: Json = serde_json::from_str(&ok(node, &["status", "--json"])).unwrap();
    status["tombstones"].as_u64().unwrap()
}

fn wait_for_group(node: &NodeProcess, names: &[&str]) {
    wait_until("the Delete group is this one", || (group(node) == names).then_some(()));
}

fn three(network: &str, dirs: &[&Path; 3]) -> [NodeProcess; 3] {
    let network = format!("{network}-{}", std::process::id());
    let n1 = durable("n1", &network, None, dirs[0]);
    let n2 = durable("n2", &network, Some(&n1), dirs[1]);
    let n3 = durable("n3", &network, Some(&n1), dirs[2]);
    wait_for_group(&n1, &["n1", "n2", "n3"]);
    wait_for_group(&n3, &["n1", "n2", "n3"]);
    [n1, n2, n3]
}

#[test]
fn who_left_for_good_is_waited_for_by_no_purge_and_comes_back_as_a_newcomer() {
    let folder = tempfile::tempdir().unwrap();
    let dirs = ["d1", "d2", "d3"].map(|name| folder.path().join(name));
    let [n1, n2, mut n3] = three("for-good", &[&dirs[0], &dirs[1], &dirs[2]]);
    ok(&n3, &["set", "kept", "1", "--copies", "2"]);
    ok(&n3, &["set", "deleted", "1", "--copies", "2"]);
    let left = at(n3.client, &["leave", "--for-good"]);
    assert_eq!((left.code, left.stdout.as_str()), (0, "n3 has left for good\n"), "{}", left.stderr);
    assert!(n3.wait().success());
    for node in [&n1, &n2] {
        assert_eq!(group(node), ["n1", "n2"]);
    }
    // Without `members forget` and without waiting for the node that is gone.
    ok(&n1, &["delete", "deleted", "--copies", "1"]);
    wait_until("what is deleted is purged", || {
        ([&n1, &n2].iter().all(|node| tombstones(node) == 0)).then_some(())
    });
    let members = at(n1.client, &["members"]);
    assert!(!members.stdout.contains("warning"), "{}", members.stdout);
    tell_that_it_has_left(&n1.network, &dirs[2]);
    // What its directory holds does not come back; nor does its place.
    let again = durable("n3", &n1.network, Some(&n1), &dirs[2]);
    assert_eq!(ok(&again, &["get", "kept"]).trim(), "1");
    for node in [&n1, &n2, &again] {
        assert_eq!(at(node.client, &["get", "deleted"]).code, 1);
    }
    wait_for_group(&n1, &["n1", "n2", "n3"]);
    let log = again.log().join("\n");
    assert!(log.contains("has left its network for good") && log.contains("left-"), "{log}");
    let aside: Vec<_> = std::fs::read_dir(&dirs[2])
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("left-"))
        .collect();
    assert_eq!(aside.len(), 1);
    // It can still be read.
    let old = dirs[2].join(&aside[0]);
    let convert = ["snapshot", "convert", old.to_str().unwrap(), "--format", "jsonl", "--to", "-"];
    let lines = run(&convert, &[], b"");
    assert!(lines.stdout.contains("\"deleted\""), "{} {}", lines.stdout, lines.stderr);
}

/// What the directory of n3 holds is good, and no backup: that is said before a start moves it.
fn tell_that_it_has_left(network: &str, dir: &Path) {
    let says = "has left its network for good";
    let verified = run(&["snapshot", "verify", dir.to_str().unwrap()], &[], b"");
    assert_eq!(verified.code, 0, "{}", verified.stdout);
    let whole = verified.stdout.lines().last().unwrap();
    assert!(whole.contains("good (data directory; ") && whole.contains(says), "{whole}");
    let file = dir.parent().unwrap().join("n3.toml");
    // Whose it was does not matter any more.
    for name in ["n3", "n4"] {
        let ports = "client = \"127.0.0.1:0\"\ngossip = \"127.0.0.1:0\"";
        let text = format!("name = {name:?}\nnetwork = {network:?}\n{ports}\ndata-dir = {dir:?}\n");
        std::fs::write(&file, text).unwrap();
        let checked = run(&["config", "check", file.to_str().unwrap()], &[], b"");
        assert_eq!(checked.code, 0, "{}", checked.stdout);
        let warning = checked.stdout.lines().next().unwrap();
        assert!(warning.contains(":5: warning: data-dir: ") && warning.contains(says), "{warning}");
    }
}

#[test]
fn where_not_all_agree_the_node_stays_what_it_was_and_says_who_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let dirs = ["d1", "d2", "d3"].map(|name| folder.path().join(name));
    let [n1, mut n2, n3] = three("not-agreed", &[&dirs[0], &dirs[1], &dirs[2]]);
    n2.kill();
    wait_until("n2 is missed", || {
        at(n3.client, &["members"]).stdout.contains("missed").then_some(())
    });
    let left = at(n3.client, &["leave", "--for-good", "--timeout", "1s"]);
    assert_eq!(left.code, 3);
    for fact in ["n2", "nothing was changed", "members forget"] {
        assert!(left.stderr.contains(fact), "{}", left.stderr);
    }
    assert_eq!(group(&n3), ["n1", "n2", "n3"]);
    ok(&n3, &["set", "a", "1", "--copies", "1"]);
    // What the error says helps.
    ok(&n3, &["members", "forget", "n2", "--yes"]);
    assert_eq!(ok(&n3, &["leave", "--for-good"]), "n3 has left for good\n");
    assert_eq!(group(&n1), ["n1"]);
    // Nobody is left who could keep the data.
    let last = at(n1.client, &["leave", "--for-good"]);
    assert_eq!(last.code, 3);
    assert!(last.stderr.contains("(denied)") && last.stderr.contains("no other node"), "{last:?}");
    assert_eq!(ok(&n1, &["get", "a"]).trim(), "1");
}

#[test]
fn a_node_in_memory_can_leave_for_good_too() {
    let n1 = NodeProcess::run("n1");
    let mut n2 = NodeProcess::join("n2", &[&n1]);
    ok(&n1, &["wait", "--members", "2"]);
    ok(&n2, &["set", "a", "1"]);
    assert_eq!(ok(&n2, &["leave", "--for-good"]), "n2 has left for good\n");
    assert!(n2.wait().success());
    assert_eq!(ok(&n1, &["get", "a"]).trim(), "1");
}

#[test]
fn a_node_that_is_killed_while_it_leaves_for_good_blocks_nobody_and_can_be_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let dirs = ["d1", "d2", "d3"].map(|name| folder.path().join(name));
    let [n1, n2, mut n3] = three("killed", &[&dirs[0], &dirs[1], &dirs[2]]);
    ok(&n3, &["set", "a", "1", "--copies", "2"]);
    let connect = n3.client.to_string();
    let mut leave = program(&["leave", "--for-good", "--connect", &connect]).spawn().unwrap();
    // Agreed, and perhaps not yet written into its directory that it has left.
    wait_until("the others go on without it", || (group(&n1) == ["n1", "n2"]).then_some(()));
    n3.kill();
    leave.wait().unwrap();
    ok(&n1, &["delete", "a", "--copies", "1"]);
    let both = [&n1, &n2];
    if !within_patience(|| both.iter().all(|node| tombstones(node) == 0)) {
        let told = both.map(|node| (at(node.client, &["members"]).stdout, node.log()));
        panic!("what is deleted is never purged: {told:#?}");
    }
    let again = durable("n3", &n1.network, Some(&n1), &dirs[2]);
    wait_for_group(&n1, &["n1", "n2", "n3"]);
    for node in [&n1, &n2, &again] {
        assert_eq!(at(node.client, &["get", "a"]).code, 1, "it does not come back");
    }
    ok(&again, &["set", "b", "1", "--copies", "2"]);
}

/// Starts a node as somebody would who does not think of the others.
fn run_in(name: &str, network: &str, dir: &Path) -> NodeProcess {
    let dir = dir.to_str().unwrap();
    let any = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    NodeProcess::start_in(network, name, &[&["run", "--data-dir", dir][..], &any].concat())
}

#[test]
fn who_is_started_with_run_beside_the_peers_that_it_left_joins_them_and_founds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let dirs = ["d1", "d2", "d3"].map(|name| folder.path().join(name));
    let [mut n1, mut n2, n3] = three("run-again", &[&dirs[0], &dirs[1], &dirs[2]]);
    let network = n3.network.clone();
    ok(&n3, &["set", "a", "1", "--copies", "2"]);
    ok(&n2, &["leave", "--for-good"]);
    assert!(n2.wait().success());
    // The first node of all, too; it only goes for a while.
    ok(&n1, &["leave"]);
    assert!(n1.wait().success());
    ok(&n3, &["set", "a", "2"]);
    for (name, dir) in [("n2", &dirs[1]), ("n1", &dirs[0])] {
        let again = run_in(name, &network, dir);
        // It serves nobody before it has what the others have.
        assert_eq!(ok(&again, &["get", "a"]).trim(), "2", "{name}: {:#?}", again.log());
        let log = again.log().join("\n");
        assert!(!log.contains("founds a network") && !log.contains("continues alone"), "{log}");
        for node in [&again, &n3] {
            ok(node, &["wait", "--members", "2", "--timeout", "60s"]);
        }
        ok(&again, &["leave"]);
    }
}

#[test]
fn a_node_that_is_not_in_the_group_leaves_for_good_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let network = format!("not-in-group-{}", std::process::id());
    let n1 = durable("n1", &network, None, &folder.path().join("d1"));
    wait_for_group(&n1, &["n1"]);
    // Without a data directory, it never is.
    let gossip = n1.gossip.to_string();
    let arguments = ["join", &gossip, "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let mut n2 = NodeProcess::start_in(&network, "n2", &arguments);
    ok(&n2, &["wait", "--members", "2"]);
    wait_for_group(&n2, &["n1"]);
    ok(&n2, &["set", "a", "1"]);
    let left = at(n2.client, &["leave", "--for-good"]);
    assert_eq!((left.code, left.stdout.as_str()), (0, "n2 has left for good\n"), "{}", left.stderr);
    assert!(n2.wait().success());
    assert_eq!(ok(&n1, &["get", "a"]), "1\n");
}

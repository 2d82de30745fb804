//! `start`: what a node does by what it has and what its configuration says. Above all, when it founds no network.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use distkv::testing::free_addrs;
use rustix::fs::OFlags;

use crate::cli::command::run;
use crate::processes::{NodeProcess, wait_until};

use super::{PATIENCE, Service, write};

/// A configuration file; `more` are further lines.
pub(super) fn file(
    folder: &Path,
    name: &str,
    client: SocketAddr,
    gossip: SocketAddr,
    more: &str,
) -> String {
    let data = folder.join(name);
    let text = format!(
        "name = {name:?}\nnetwork = \"service\"\nclient = \"{client}\"\ngossip = \"{gossip}\"\n\
         data-dir = {data:?}\npeer-wait = \"1s\"\nready-wait = \"0s\"\n{more}\n"
    );
    write(&folder.join(format!("{name}.toml")), &text)
}

fn start(file: &str) -> Service {
    Service::start(&["start", "--config", file], &[])
}

fn at(client: SocketAddr, arguments: &[&str]) -> i32 {
    run(&[arguments, &["--connect", &client.to_string()]].concat(), &[], b"").code
}

fn serves(client: SocketAddr) {
    wait_until("it serves", || (at(client, &["status"]) == 0).then_some(()));
}

#[test]
fn a_node_that_knows_nobody_and_has_nothing_founds_only_where_it_is_to() {
    let folder = tempfile::tempdir().unwrap();
    let [client, gossip] = free_addrs();
    let plain = file(folder.path(), "n1", client, gossip, "");
    let mut refused = start(&plain);
    assert_eq!(refused.ended(), Some(2), "{}", refused.log());
    assert!(refused.log().contains("found = true"), "{}", refused.log());

    let founding = file(folder.path(), "n1", client, gossip, "found = true");
    let mut node = start(&founding);
    serves(client);
    assert_eq!(at(client, &["set", "a", "1"]), 0);
    node.end();

    // From now on its data says what it is, with the setting and without.
    for file in [&founding, &file(folder.path(), "n1", client, gossip, "")] {
        let mut node = start(file);
        serves(client);
        assert_eq!(at(client, &["get", "a"]), 0);
        node.end();
    }
}

#[test]
fn a_founder_whose_list_of_nodes_has_it_alone_founds_where_that_is_an_ip_address() {
    let folder = tempfile::tempdir().unwrap();
    let [client, gossip] = free_addrs();
    let founding = format!("found = true\npeers = [\"{gossip}\"]");
    let mut node = start(&file(folder.path(), "n1", client, gossip, &founding));
    serves(client);
    node.wait_for("its own only peer");
    node.end();

    // A name may be others', too, of which this one has answered.
    let [client, gossip] = free_addrs();
    let founding = format!("found = true\npeers = [\"localhost:{}\"]", gossip.port());
    let mut node = start(&file(folder.path(), "n2", client, gossip, &founding));
    assert_eq!(node.ended(), Some(3), "{}", node.log());
    assert!(node.log().contains("`start --found` and no peers"), "{}", node.log());
}

#[test]
fn a_node_without_data_never_founds_while_its_peers_are_out_of_reach() {
    let folder = tempfile::tempdir().unwrap();
    let [client, gossip, there, there_client] = free_addrs();
    let peers = format!("found = true\npeers = [\"{there}\"]");
    let config = file(folder.path(), "n1", client, gossip, &peers);
    // Also not at the second and third start, with what the first ones left behind.
    for _ in 0..3 {
        let mut node = start(&config);
        node.wait_for("no peer has answered yet");
        assert_ne!(at(client, &["status"]), 0);
        assert!(!node.log().contains("continues alone"), "{}", node.log());
        node.signal("KILL");
        node.ended();
    }
    let mut node = start(&config);
    // The network was there all the time.
    let there = there.to_string();
    let there_client = there_client.to_string();
    let other = ["run", "--peer-wait", "0s", "--client", &there_client, "--gossip", &there];
    let other = NodeProcess::start_in("service", "n2", &other);
    assert_eq!(at(other.client, &["set", "a", "1"]), 0);
    serves(client);
    assert_eq!(at(client, &["get", "a"]), 0);
    node.end();
}

#[test]
fn nodes_with_one_list_of_peers_found_one_network_when_they_are_started_together() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = [(); 3].map(|()| free_addrs());
    let peers = nodes.map(|[_, gossip]| format!("{:?}", gossip.to_string())).join(", ");
    let mut services: Vec<Service> = (1..)
        .zip(nodes)
        .map(|(number, [client, gossip])| {
            let more = format!("found = {}\npeers = [{peers}]", number == 2);
            start(&file(folder.path(), &format!("n{number}"), client, gossip, &more))
        })
        .collect();
    for [client, _] in nodes {
        let arguments = ["wait", "--members", "3"];
        let done = || (at(client, &arguments) == 0).then_some(());
        wait_until("all three are one network", done);
    }
    assert_eq!(at(nodes[0][0], &["set", "a", "1", "--copies", "2"]), 0);
    services.iter_mut().for_each(Service::end);
    // All of them again, from their data.
    let mut services: Vec<Service> = (1..=3)
        .map(|number| start(&folder.path().join(format!("n{number}.toml")).display().to_string()))
        .collect();
    for [client, _] in nodes {
        serves(client);
        assert_eq!(at(client, &["get", "a"]), 0);
    }
    services.iter_mut().for_each(Service::end);
}

/// Recipes for log files send them, and a node has nothing to do with them.
#[test]
fn signals_for_programs_with_log_files_do_not_end_a_node() {
    let [client, gossip] = free_addrs().map(|at| at.to_string());
    let arguments = ["run", "--name", "n1", "--insecure", "--client", &client, "--gossip", &gossip];
    let mut node = Service::start(&arguments, &[]);
    node.wait_for("started");
    for name in ["USR1", "USR2"] {
        node.signal(name);
        node.wait_for(&format!("SIG{name} means nothing to a node"));
    }
    node.end();
}

#[test]
fn init_and_load_are_for_the_founder() {
    for option in [["--init", "1"], ["--load", "nothing.bin"]] {
        let arguments = ["start", "--peer", "127.0.0.1:1", option[0], option[1]];
        let done = run(&arguments, &[], b"");
        assert_eq!(done.code, 2, "{}", done.stderr);
        assert!(done.stderr.contains("found = true"), "{}", done.stderr);
    }
}

/// A pipe with this name.
fn pipe(folder: &Path, name: &str) -> String {
    let pipe = folder.join(name);
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    pipe.to_str().unwrap().to_owned()
}

/// Waits until the node reads the pipe, which it does until what is returned is dropped.
fn hold(pipe: &str) -> File {
    // Nobody can write to it before somebody reads it.
    wait_until("the node reads it", || {
        let mut options = File::options();
        options.write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        options.open(pipe).ok()
    })
}

/// It has no node yet that could say so.
#[test]
fn a_start_that_is_stopped_says_so_and_what_it_was_doing() {
    let folder = tempfile::tempdir().unwrap();
    let path = pipe(folder.path(), "saved");
    let ports = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let arguments = [&["run", "--name", "n1", "--load", &path][..], &ports].concat();
    let mut node = Service::start(&arguments, &[]);
    let held = hold(&path);
    node.signal("TERM");
    assert_eq!(node.ended(), Some(0), "{}", node.log());
    drop(held);
    let log = node.log();
    for part in [
        "stopping before this node has started",
        "it was reading the file of --load",
        "asked to stop",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
}

#[test]
fn a_start_that_is_stopped_while_it_reads_its_settings_says_so() {
    let folder = tempfile::tempdir().unwrap();
    for (number, signal) in ["TERM", "INT"].into_iter().enumerate() {
        let path = pipe(folder.path(), &format!("config{number}"));
        let mut node = Service::start(&["run", "--config", &path], &[]);
        let held = hold(&path);
        node.signal(signal);
        assert_eq!(node.ended(), Some(0), "{signal}: {}", node.log());
        drop(held);
        let told = "stopping before this node has started; it was reading its settings\n";
        assert_eq!(node.log(), told, "{signal}");
    }
}

/// The signals that a process handles, by their numbers; none once it has ended.
fn handled(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

/// It is sent to a process that has only just begun to read its command line, which is so long that this takes a while.
#[test]
fn a_signal_that_comes_while_a_node_reads_its_command_line_is_heard() {
    const INT_HUP_USR_TERM: u64 = 1 << 1 | 1 | 1 << 9 | 1 << 11 | 1 << 14;
    const XFSZ: u64 = 1 << 24;
    let folder = tempfile::tempdir().unwrap();
    let path = pipe(folder.path(), "config");
    let mut arguments = vec!["run", "--config", &path];
    arguments.extend(std::iter::repeat_n("--peer=127.0.0.1:1", 5_000));
    for name in ["TERM", "USR1"] {
        let mut node = Service::start(&arguments, &[]);
        let (pid, mut set) = (node.child.id(), 0);
        // It is the last one of those that are set before that.
        let deadline = Instant::now() + PATIENCE;
        while set & XFSZ == 0 {
            assert!(Instant::now() < deadline && node.child.try_wait().unwrap().is_none());
            set = handled(pid);
        }
        assert_eq!(set & INT_HUP_USR_TERM, INT_HUP_USR_TERM, "{name}: {set:x}");
        node.signal(name);
        if name == "USR1" {
            let _held = hold(&path);
            node.signal("TERM");
        }
        assert_eq!(node.ended(), Some(0), "{name}: {}", node.log());
        let told = "stopping before this node has started; it was reading its settings\n";
        assert_eq!(node.log(), told, "{name}");
    }
}

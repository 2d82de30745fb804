//! A node's life as operators see it: what a node says before it has its data, who begins when a
//! whole network comes back, names that are taken, goodbyes, and what `members` shows of it all.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use distkv::testing::free_addrs;
use rmpv::Value;
use serde_json::Value as Json;

use crate::cli::command::{Done, ok, program, run};
use crate::processes::{Client, GOODBYE, NodeProcess, PATIENCE, array, field, wait_until};

/// The key that every node of a test's network has.
const KEY: [&str; 2] = ["a", "b"];

/// A process of a node that need not be ready. It is killed when this is dropped.
struct Starting {
    child: Child,
    client: SocketAddr,
    gossip: SocketAddr,
    _folder: tempfile::TempDir,
    log: PathBuf,
}

impl Starting {
    /// Starts it at these ports: `mode` and further arguments.
    fn at(node: &NodeProcess, name: &str, arguments: &[&str]) -> Self {
        Self::start(node.client, node.gossip, &node.network, name, arguments)
    }

    /// Starts it at free ports.
    fn new(network: &str, name: &str, arguments: &[&str]) -> Self {
        let [client, gossip] = free_addrs();
        Self::start(client, gossip, network, name, arguments)
    }

    fn start(
        client: SocketAddr,
        gossip: SocketAddr,
        network: &str,
        name: &str,
        arguments: &[&str],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let (at, peers_at) = (client.to_string(), gossip.to_string());
        let own = ["--client", &at, "--gossip", &peers_at, "--network", network, "--name", name];
        // Clients are to see that it is not ready.
        let refusing = ["--ready-wait", "0s"];
        let mut command = program(&[arguments, &own, &refusing].concat());
        command.stdout(Stdio::null()).stderr(File::create(&log).unwrap());
        let child = command.spawn().unwrap();
        Self { child, client, gossip, _folder: folder, log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Asks the node as fast as it can be asked, from the moment its port is open until it serves:
    /// it must not say that there is nothing, nor take a change, before it has the network's data.
    fn is_never_ready_while_empty(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        let mut refusals = 0;
        loop {
            assert!(Instant::now() < deadline, "never ready: {}", self.log());
            assert_eq!(self.child.try_wait().unwrap(), None, "{}", self.log());
            let Ok(mut client) = Client::try_connect(self.client) else { continue };
            let written = client.set(&["w"], Value::from(1));
            let is_written = field(&written, "error").is_none();
            let read = client.call("get_value", &[("path", array(&KEY))]);
            let value = field(&read, "value");
            assert!(!is_written || value.is_some(), "it took a change while it was empty");
            match field(&read, "code").as_ref().and_then(Value::as_str) {
                Some("not_ready") => refusals += 1,
                Some(code) => panic!("{code}: {read}"),
                None => {
                    assert_eq!(value, Some(Value::from(1)), "after {refusals} refusals: {read}");
                    return;
                }
            }
        }
    }

    /// The exit code, once it has ended by itself.
    fn ended(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let mut kill = std::process::Command::new("kill");
        assert!(kill.args(["-s", name, &pid]).status().unwrap().success());
    }

    fn is_ready(&self) -> bool {
        at(self.client, &["status"]).code == 0
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn at(client: SocketAddr, arguments: &[&str]) -> Done {
    run(&[arguments, &["--connect", &client.to_string()]].concat(), &[], b"")
}

/// Two nodes that have the key.
fn two() -> [NodeProcess; 2] {
    let n1 = NodeProcess::run("n1");
    let n2 = NodeProcess::join("n2", &[&n1]);
    ok(&n1, &["wait", "--members", "2"]);
    ok(&n2, &["wait", "--members", "2"]);
    ok(&n1, &["set", "a.b", "1", "--copies", "1"]);
    [n1, n2]
}

#[test]
fn a_first_node_that_restarts_empty_says_nothing_before_it_has_the_data() {
    let folder = tempfile::tempdir().unwrap();
    let peers = folder.path().join("peers");
    let [mut n1, n2] = two();
    std::fs::write(&peers, format!("{} n2\n", n2.gossip)).unwrap();
    let (peer, peers) = (n2.gossip.to_string(), peers.to_str().unwrap());
    let lost_disk = folder.path().join("data");
    let lost_disk = lost_disk.to_str().unwrap();
    // The last ones are told of nobody: the others call them.
    for arguments in [
        &["run", "--peer", &peer][..],
        &["run", "--peer-file", peers],
        &["run", "--peer-wait", "30s"],
        &["run", "--peer-wait", "30s", "--data-dir", lost_disk],
    ] {
        n1.kill();
        let mut again = Starting::at(&n1, "n1", arguments);
        again.is_never_ready_while_empty();
        // The next one takes its place.
        let _ = again.child.kill();
        let _ = again.child.wait();
        let _ = std::fs::remove_dir_all(lost_disk);
    }
}

#[test]
fn nodes_without_data_that_all_restart_make_one_network() {
    let network = format!("restart-{}", std::process::id());
    let ports: Vec<[SocketAddr; 2]> = (0..3).map(|_| free_addrs()).collect();
    let nodes: Vec<Starting> = (0..3)
        .map(|own| {
            let others = (0..3).filter(|other| *other != own);
            let others: Vec<String> = others.map(|other| ports[other][1].to_string()).collect();
            let mut arguments = vec!["run", "--init", "7"];
            others.iter().for_each(|other| arguments.extend(["--peer", other]));
            let [client, gossip] = ports[own];
            Starting::start(client, gossip, &network, &format!("n{own}"), &arguments)
        })
        .collect();
    for node in &nodes {
        let waited = at(node.client, &["wait", "--members", "3"]);
        assert_eq!(waited.code, 0, "{} {}", waited.stderr, node.log());
    }
    // The root was set by the one that began, and nobody overwrote it.
    let began = nodes.iter().filter(|node| node.log().contains("this node founds one")).count();
    assert_eq!(began, 1, "{:#?}", nodes.iter().map(Starting::log).collect::<Vec<_>>());
    let makers: Vec<Json> = nodes
        .iter()
        .map(|node| {
            let root = at(node.client, &["get", ":", "--json"]);
            serde_json::from_str(&root.stdout).unwrap_or_else(|e| panic!("{e}: {root:?}"))
        })
        .collect();
    assert!(makers.iter().all(|maker| *maker == makers[0]), "{makers:?}");
}

#[test]
fn of_nodes_that_all_restart_the_one_with_data_begins() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let network = format!("restart-data-{}", std::process::id());
    let [[c1, g1], [c2, g2]] = [free_addrs(), free_addrs()];
    let (p1, p2) = (g1.to_string(), g2.to_string());
    {
        let mut first = Starting::start(c2, g2, &network, "n2", &["run", "--data-dir", data]);
        assert_eq!(at(c2, &["wait"]).code, 0, "{}", first.log());
        assert_eq!(at(c2, &["set", "a.b", "1"]).code, 0);
        assert_eq!(at(c2, &["leave"]).code, 0);
        assert_eq!(first.ended(), Some(0));
    }
    // n1 has the smaller name, and nothing.
    let mut n1 = Starting::start(c1, g1, &network, "n1", &["run", "--peer", &p2]);
    let with_data = ["run", "--peer", &p1, "--data-dir", data];
    let mut n2 = Starting::start(c2, g2, &network, "n2", &with_data);
    n1.is_never_ready_while_empty();
    n2.is_never_ready_while_empty();
}

#[test]
fn a_node_whose_peers_do_not_answer_goes_on_alone_and_says_so() {
    let asked = Instant::now();
    let arguments = ["run", "--peer", "127.0.0.1:1", "--peer-wait", "1s"];
    let node = Starting::new("alone", "n1", &arguments);
    let waited = at(node.client, &["wait"]);
    assert_eq!(waited.code, 0, "{}", node.log());
    assert!(asked.elapsed() >= Duration::from_secs(1));
    let log = node.log();
    assert!(log.contains("WARN") && log.contains("continues alone"), "{log}");
    let warning = "warning: no peer has answered since this node was started: 127.0.0.1:1; it goes on alone, with what it \
                   has, and keeps calling";
    for command in ["wait", "status"] {
        let told = at(node.client, &[command]).stdout;
        assert!(told.lines().any(|line| line == warning), "{command}: {told}");
    }
    assert!(waited.stdout.contains(warning), "{waited:?}");
}

/// Its settings list all nodes of its network, as those of larger networks do.
#[test]
fn a_node_whose_only_peer_is_itself_warns_of_nothing() {
    let [client, gossip] = free_addrs();
    let peer = gossip.to_string();
    let arguments = ["run", "--peer", &peer, "--peer-wait", "1s"];
    let node = Starting::start(client, gossip, "alone", "n1", &arguments);
    let waited = at(node.client, &["wait"]);
    assert!(waited.code == 0 && !waited.stdout.contains("warning"), "{waited:?}");
    assert!(!at(node.client, &["status"]).stdout.contains("warning"));
}

/// One of its peers belongs to another network, and one is not up. Then a node of its own network comes.
#[test]
fn a_node_that_is_refused_and_goes_on_alone_is_warned_of_until_a_peer_takes_it_in() {
    let other = NodeProcess::run("n9");
    let refuses = other.gossip.to_string();
    let arguments = ["run", "--peer", &refuses, "--peer", "127.0.0.1:1", "--peer-wait", "1s"];
    let node = Starting::new("lonely", "n1", &arguments);
    let waited = at(node.client, &["wait"]);
    assert!(waited.code == 0 && waited.stdout.contains("\nwarning: no peer "), "{waited:?}");
    let warning = format!("no peer takes this node in: {refuses}: this is node n9 of network ");
    // The other one may answer late.
    for form in [&["wait"][..], &["wait", "--json"]] {
        wait_until("it is said who refuses it", || {
            at(node.client, form).stdout.contains(&warning).then_some(())
        });
    }
    let joins = ["join", &node.gossip.to_string()];
    let second = Starting::new("lonely", "n2", &joins);
    assert_eq!(at(second.client, &["wait", "--members", "2"]).code, 0, "{}", second.log());
    wait_until("nothing is warned of", || {
        let told = at(node.client, &["wait", "--members", "2"]).stdout;
        (told == "n1 is ready and sees 2 members\n").then_some(())
    });
}

#[test]
fn a_name_that_is_taken_is_never_ready_and_ends_at_once() {
    let [n1, n2] = two();
    let peer = n1.gossip.to_string();
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("data"), folder.path().join("copy"));
    // A copy of its disk names the peers, and has data to go on with.
    let durable = ["join", &peer, "--data-dir", data.to_str().unwrap()];
    let n2 = {
        drop(n2);
        let again = Starting::new(&n1.network, "n2", &durable);
        assert_eq!(at(again.client, &["wait", "--members", "2"]).code, 0, "{}", again.log());
        again
    };
    wait_until("its disk names the peers", || {
        std::fs::read_to_string(data.join("peers")).ok().filter(|text| text.contains(&peer))
    });
    std::fs::create_dir(&copy).unwrap();
    for file in std::fs::read_dir(&data).unwrap() {
        let file = file.unwrap();
        let copied = std::fs::copy(file.path(), copy.join(file.file_name()));
        // The node runs, and may replace a file meanwhile by one that it has written beside it.
        assert!(copied.is_ok() || !file.path().exists(), "{copied:?}");
    }
    let on_copy = ["run", "--data-dir", copy.to_str().unwrap()];
    for arguments in [&["join", &peer][..], &["run", "--peer", &peer], &on_copy] {
        let mut twin = Starting::new(&n1.network, "n2", arguments);
        let started = Instant::now();
        while twin.child.try_wait().unwrap().is_none() {
            if let Ok(mut client) = Client::try_connect(twin.client)
                && client
                    .send("set_value", &[("path", array(&KEY)), ("value", Value::from(2))])
                    .is_ok()
                && let Ok(reply) = client.receive()
            {
                assert!(field(&reply, "error").is_some(), "it took a change: {reply}");
            }
            assert!(started.elapsed() < PATIENCE, "{}", twin.log());
        }
        let log = twin.log();
        assert_eq!(twin.ended(), Some(3), "{log}");
        assert!(
            log.contains(&format!("the name \"n2\" is taken in network {:?}", n1.network)),
            "{log}"
        );
        assert!(log.contains(&n2.gossip.to_string()) && log.contains("--name"), "{log}");
        assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    }
    assert_eq!(at(n2.client, &["get", "a.b"]).stdout.trim(), "1");
}

#[test]
fn of_two_networks_that_meet_the_younger_node_of_a_name_ends() {
    let old = NodeProcess::run("n1");
    ok(&old, &["set", "a.b", "1"]);
    for is_young_first in [true, false] {
        let mut young = Starting::new(&old.network, "n1", &["run", "--peer-wait", "0s"]);
        assert_eq!(at(young.client, &["wait"]).code, 0, "{}", young.log());
        let mut peers = [young.gossip.to_string(), old.gossip.to_string()];
        if !is_young_first {
            peers.reverse();
        }
        let between = Starting::new(&old.network, "n2", &["join", &peers[0], &peers[1]]);
        assert_eq!(young.ended(), Some(3), "{}", young.log());
        assert!(young.log().contains("is taken"), "{}", young.log());
        wait_until("n2 has what the older n1 has", || {
            (at(between.client, &["get", "a.b"]).stdout.trim() == "1").then_some(())
        });
        assert!(between.is_ready());
        assert_eq!(ok(&old, &["get", "a.b"]).trim(), "1");
    }
}

#[test]
fn a_node_that_restarts_at_another_address_waits_until_its_old_life_is_over() {
    let [n1, mut n2] = two();
    n2.kill();
    let peer = n1.gossip.to_string();
    let mut again = Starting::new(&n1.network, "n2", &["join", &peer]);
    again.is_never_ready_while_empty();
    drop(n2);
}

#[test]
fn who_has_left_is_gone_for_good() {
    let [n1, n2] = two();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let peer = n1.gossip.to_string();
    let [client, gossip] = free_addrs();
    let arguments = ["join", &peer, "--data-dir", data.to_str().unwrap()];
    for round in 0..10 {
        // It fails at once if its ports or its directory are not free.
        let node = Starting::start(client, gossip, &n1.network, "n3", &arguments);
        assert_eq!(at(client, &["wait"]).code, 0, "round {round}: {}", node.log());
        let left = at(client, &["leave"]);
        assert_eq!((left.code, left.stdout.as_str()), (0, "n3 has left\n"), "{}", left.stderr);
    }
    assert_eq!(ok(&n2, &["get", "a.b"]).trim(), "1");
}

#[test]
fn a_node_that_ends_says_which_changes_nobody_else_has() {
    let [n1, n2] = two();
    let peer = n1.gossip.to_string();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let in_memory = ["join", &peer];
    let durable = ["join", &peer, "--data-dir", data.to_str().unwrap()];
    for (arguments, says) in [
        (&in_memory[..], "12 changes of this node are on no other node, as far as this one knows"),
        (&durable[..], "12 changes of this node are on no other node: the data directory has all"),
    ] {
        let mut node = Starting::new(&n1.network, "n3", arguments);
        assert_eq!(at(node.client, &["wait", "--members", "3"]).code, 0, "{}", node.log());
        at(node.client, &["set", "c", "0", "--copies", "2"]);
        // They stand still: what comes now they cannot take.
        [&n1, &n2].iter().for_each(|node| node.freeze());
        let mut client = Client::connect(node.client);
        (1..=12).for_each(|value| drop(client.set(&["c"], Value::from(value))));
        let asked = Instant::now();
        node.signal("TERM");
        assert_eq!(node.ended(), Some(0));
        assert!(asked.elapsed() < GOODBYE, "{:?}", asked.elapsed());
        [&n1, &n2].iter().for_each(|node| node.signal("CONT"));
        assert!(node.log().contains(says), "{}", node.log());
    }
    // Its directory is not where it was, so the node logs nothing any more.
    let mut node = Starting::new(&n1.network, "n3", &durable);
    assert_eq!(at(node.client, &["wait", "--members", "3"]).code, 0, "{}", node.log());
    at(node.client, &["set", "c", "0", "--copies", "2"]);
    std::fs::rename(&data, folder.path().join("elsewhere")).unwrap();
    wait_until("the node misses its directory", || {
        node.log().contains("put it back").then_some(())
    });
    [&n1, &n2].iter().for_each(|node| node.freeze());
    let mut client = Client::connect(node.client);
    (1..=12).for_each(|value| drop(client.set(&["c"], Value::from(value))));
    node.signal("TERM");
    assert_eq!(node.ended(), Some(1), "whoever started it is told");
    [&n1, &n2].iter().for_each(|node| node.signal("CONT"));
    let says =
        "12 changes of this node are on no other node, and the data directory may not have all";
    assert!(node.log().contains(says), "{}", node.log());
    // While one of them is there, it is waited for.
    let mut node = Starting::new(&n1.network, "n4", &in_memory);
    assert_eq!(at(node.client, &["wait", "--members", "3"]).code, 0, "{}", node.log());
    at(node.client, &["set", "d", "0", "--copies", "1"]);
    let mut client = Client::connect(node.client);
    (1..=1000).for_each(|value| drop(client.set(&["d"], Value::from(value))));
    node.signal("TERM");
    assert_eq!(node.ended(), Some(0));
    assert!(!node.log().contains("no other node"), "{}", node.log());
    wait_until("the last one came", || (ok(&n2, &["get", "d"]).trim() == "1000").then_some(()));
}

#[test]
fn members_show_one_row_for_a_node_that_was_restarted() {
    let [n1, mut n2] = two();
    let peer = n1.gossip.to_string();
    let rows = || -> Vec<Json> {
        let members = ok(&n1, &["members", "--json"]);
        let rows = members.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
        rows.filter(|row| row["name"] == "n2").collect()
    };
    let first = rows();
    n2.kill();
    wait_until("n2 is down", || (rows()[0]["state"] == "down").then_some(()));
    let down = rows();
    assert_eq!(
        (down.len(), &down[0]["ready"], &down[0]["linked"]),
        (1, &false.into(), &false.into())
    );
    // At its place, and at another one.
    let again = Starting::at(&n2, "n2", &["join", &peer]);
    let one_row = |node: &Starting, before: &Json| -> Json {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let rows = rows();
            assert_eq!(rows.len(), 1, "{rows:?}");
            let row = &rows[0];
            // That the life before is over may not have been noticed yet.
            let is_other = row["incarnation"] != *before;
            if is_other && row["ready"] == true && row["state"] == "up" {
                assert_eq!(row["gossip"], node.gossip.to_string(), "{row}");
                assert_eq!(row["client"], node.client.to_string(), "{row}");
                return row["incarnation"].clone();
            }
            assert!(Instant::now() < deadline, "{row}: {}", node.log());
        }
    };
    let second = one_row(&again, &first[0]["incarnation"]);
    drop(again);
    let third = Starting::new(&n1.network, "n2", &["join", &peer]);
    one_row(&third, &second);
}

#[test]
fn a_node_of_another_network_ends_instead_of_trying_for_ever() {
    let n1 = NodeProcess::run("n1");
    let peer = n1.gossip.to_string();
    for arguments in [&["join", &peer][..], &["run", "--peer", &peer]] {
        let mut stranger = Starting::new("other", "n2", arguments);
        assert_eq!(stranger.ended(), Some(3), "{}", stranger.log());
        let log = stranger.log();
        assert!(
            log.contains("error: no peer accepts this node") && log.contains("--network"),
            "{log}"
        );
        assert!(log.contains(&n1.network), "{log}");
    }
}

//! Nodes that are started again while members that they know of are not there, or refuse them: they miss them as they would have without
//! the restart.

use std::fs;
use std::process::Command;

use distkv::testing::free_addrs;
use rmpv::Value;

use super::{metric, silent, status};
use crate::processes::{NodeProcess, PROGRAM, field, wait_until};

/// A node with a data directory, which may be started again where it was.
struct Place {
    network: String,
    name: String,
    folder: tempfile::TempDir,
    options: Vec<String>,
}

impl Place {
    fn new(network: &str, name: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [client, gossip] = free_addrs().map(|address| address.to_string());
        let data = folder.path().join("data").to_str().unwrap().to_owned();
        let own = ["--data-dir", &data, "--client", &client, "--gossip", &gossip];
        let options = own.iter().chain(options).map(|option| (*option).to_owned()).collect();
        Self { network: network.to_owned(), name: name.to_owned(), folder, options }
    }

    fn start(&self, arguments: &[&str]) -> NodeProcess {
        let own = self.options.iter().map(String::as_str);
        let arguments: Vec<&str> = arguments.iter().copied().chain(own).collect();
        NodeProcess::start_in(&self.network, &self.name, &arguments)
    }

    /// The list of known peers.
    fn peers(&self) -> String {
        fs::read_to_string(self.folder.path().join("data/peers")).unwrap_or_default()
    }
}

/// The members of the Delete group, as a node knows them.
fn group(node: &NodeProcess) -> usize {
    let reply = node.connect().call("get_state", &[("delete_group", true.into())]);
    let group = field(&reply, "delete_group").unwrap();
    let members = field(&group, "members").filter(|members| !members.is_nil());
    members.map_or(0, |members| members.as_array().unwrap().len())
}

fn says(node: &NodeProcess, words: &str) -> bool {
    node.log().iter().any(|line| line.contains("WARN") && line.contains(words))
}

#[test]
fn who_restarts_into_a_split_misses_its_members_until_they_are_back_or_forgotten() {
    let network = format!("missed-{}", std::process::id());
    let places =
        ["n1", "n2", "n3"].map(|name| Place::new(&network, name, &["--http", "127.0.0.1:0"]));
    let mut first = places[0].start(&["run", "--peer-wait", "0s"]);
    let peer = first.gossip.to_string();
    let others = [&places[1], &places[2]].map(|place| place.start(&["join", &peer]));
    wait_until("all are in the Delete group", || (group(&first) == 3).then_some(()));
    wait_until("both are in the list of peers", || {
        let peers = places[0].peers();
        (peers.contains("n2") && peers.contains("n3")).then_some(())
    });
    others.iter().for_each(NodeProcess::freeze);
    first.kill();
    let first = places[0].start(&["run", "--peer-wait", "1s"]);
    assert_eq!(metric(&first, "distkv_ready"), 1.0);
    let (names, with, warnings) = wait_until("they are missed", || silent(&first));
    assert_eq!((names, with), (vec![String::from("n2"), String::from("n3")], Vec::new()));
    let text = "n2 and n3 have not been seen since this node started, ";
    assert!(warnings.contains(text) && warnings.contains("this node goes on alone"), "{warnings}");
    wait_until("so does the log", || says(&first, text).then_some(()));
    assert_eq!(metric(&first, "distkv_warnings{kind=\"split\"}"), 1.0);
    assert_eq!(metric(&first, "distkv_split_members"), 2.0);
    assert_eq!(metric(&first, "distkv_splits_total"), 1.0);
    // The same words where people look.
    let at = first.client.to_string();
    let members = Command::new(PROGRAM).args(["members", "--connect", &at]).output().unwrap();
    assert!(String::from_utf8(members.stdout).unwrap().contains(text));
    let forgotten = first.connect().call("forget_member", &[("node", "n3".into())]);
    assert_eq!(field(&forgotten, "result"), Some(Value::from(true)), "{forgotten}");
    let only = || silent(&first).filter(|(names, ..)| names.len() == 1);
    let (names, _, warnings) = wait_until("who is forgotten is not missed", only);
    assert_eq!(names, ["n2"]);
    assert!(warnings.contains("n2 has not been seen since this node started, "), "{warnings}");
    wait_until("the list of peers says so", || {
        let peers = places[0].peers();
        peers.lines().any(|line| line.contains(" n3 # not missed")).then_some(())
    });
    others[0].signal("CONT");
    wait_until("nobody is missed", || silent(&first).is_none().then_some(()));
    assert_eq!(metric(&first, "distkv_warnings{kind=\"split\"}"), 0.0);
    assert!(wait_until("the log says so", || says(&first, "are back").then_some(true)));
    let warnings = field(&status(&first), "warnings").unwrap().to_string();
    assert!(!warnings.contains("not been seen"), "{warnings}");
}

#[test]
fn who_is_refused_by_all_after_a_restart_is_told_so_and_misses_them() {
    let folder = tempfile::tempdir().unwrap();
    let network = format!("refused-{}", std::process::id());
    let [key, other] = ["key", "other"].map(|name| {
        let to = folder.path().join(name).to_str().unwrap().to_owned();
        let made = ["key", "new", "--network", &network, "--to", &to];
        assert!(Command::new(PROGRAM).args(made).output().unwrap().status.success());
        to
    });
    let [one, two] = ["n1", "n2"].map(|name| Place::new(&network, name, &[]));
    let mut first = one.start(&["run", "--peer-wait", "0s", "--key", &key]);
    let peer = first.gossip.to_string();
    let second = two.start(&["join", &peer, "--key", &key]);
    wait_until("both are in the Delete group", || (group(&first) == 2).then_some(()));
    wait_until("it is in the list of peers", || one.peers().contains("n2").then_some(()));
    first.kill();
    // Long enough that the peer has refused it, also on a busy machine.
    let first = one.start(&["run", "--peer-wait", "10s", "--key", &other]);
    let alone = "this node continues alone with what it has";
    let refused = wait_until("it goes on alone", || {
        first.log().into_iter().find(|line| line.contains(alone))
    });
    assert!(refused.contains("no peer takes this node in"), "{refused}");
    let at = second.gossip.to_string();
    assert!(refused.contains(&at) && refused.contains("primary key"), "{refused}");
    assert!(!refused.contains("has answered"), "{refused}");
    let (names, _, warnings) = wait_until("it is missed", || silent(&first));
    assert_eq!(names, ["n2"]);
    assert!(warnings.contains("; no link to n2: ") && warnings.contains("key"), "{warnings}");
}

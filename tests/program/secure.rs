//! Nodes with a cluster key, as real processes: who gets in and who does not, key files, moving a network
//! to a key, and changing the key of a running one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use distkv::testing::free_addrs;
use rmpv::Value;

use crate::processes::{self, NodeProcess, PROGRAM, field, wait_until};

mod audit;
mod certificate_logins;
mod certificates;
mod commands;
mod crowds;
mod keys;
mod links;
mod moving;
mod new_secrets;
mod own_ca;
mod plaintext_login;
mod rotate;
mod rotation;
mod shut_out;

/// A folder with key files of a network that no other test uses.
pub struct Keys {
    folder: tempfile::TempDir,
    pub network: String,
}

impl Keys {
    pub fn new() -> Self {
        static NETWORKS: AtomicUsize = AtomicUsize::new(0);
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let network = format!("secure-{}-{number}", std::process::id());
        Self { folder: tempfile::tempdir().unwrap(), network }
    }

    /// Where a file of that name is, or would be.
    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Makes a key file; its place and its key's id.
    pub fn make(&self, name: &str) -> (String, String) {
        let path = self.path(name);
        let (code, said) = program(&["key", "new", "--network", &self.network, "--to", &path]);
        assert_eq!(code, Some(0), "{said}");
        let id = said.split_whitespace().nth(1).unwrap().to_owned();
        assert_eq!(id.len(), 8, "{said}");
        (path, id)
    }

    /// The first node of the network, with these options.
    pub fn run(&self, name: &str, options: &[&str]) -> NodeProcess {
        // A test may start it again where it was.
        let [client, gossip] = free_addrs().map(|addr| addr.to_string());
        let own = ["run", "--peer-wait", "0s", "--client", &client, "--gossip", &gossip];
        NodeProcess::start_in(&self.network, name, &[&own[..], options].concat())
    }

    /// One that joins.
    pub fn join(&self, name: &str, peer: &NodeProcess, options: &[&str]) -> NodeProcess {
        let peer = peer.gossip.to_string();
        let [client, gossip] = free_addrs().map(|addr| addr.to_string());
        let own = ["join", &peer, "--client", &client, "--gossip", &gossip];
        NodeProcess::start_in(&self.network, name, &[&own[..], options].concat())
    }

    /// A node that is expected not to get in: its exit code, and what it said.
    pub fn refused(&self, peer: &NodeProcess, options: &[&str]) -> (Option<i32>, String) {
        let gossip = peer.gossip.to_string();
        let own = ["join", &gossip, "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
        program(&[&own[..], &["--name", "stranger"], options].concat())
    }
}

/// Runs the program to its end: its exit code, and all that it said.
pub fn program(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).stdin(Stdio::null()).env_remove("DISTKV_LOG");
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

/// The links of a node: the peer's name, and whether it is sealed.
pub fn links(node: &NodeProcess) -> BTreeMap<String, bool> {
    let reply = node.connect().call("members", &[]);
    let members = field(&reply, "result").unwrap();
    let is = |member: &Value, key| field(member, key).and_then(|v| v.as_bool()).unwrap();
    let text = |member: &Value, key| field(member, key).unwrap().as_str().unwrap().to_owned();
    members
        .as_array()
        .unwrap()
        .iter()
        .filter(|member| is(member, "linked"))
        .map(|member| (text(member, "name"), is(member, "secured")))
        .collect()
}

/// The names of the other members that a node sees up, by SWIM.
pub fn up(node: &NodeProcess) -> Vec<String> {
    let reply = node.connect().call("members", &[]);
    let members = field(&reply, "result").unwrap();
    let text = |member: &Value, key| field(member, key).unwrap().as_str().unwrap().to_owned();
    let is_up = |member: &&Value| text(member, "state") == "up";
    members.as_array().unwrap().iter().filter(is_up).map(|member| text(member, "name")).collect()
}

/// One of the counters of `status`.
pub fn counter(node: &NodeProcess, name: &str) -> u64 {
    let counters = field(&node.connect().call("status", &[]), "counters").unwrap();
    field(&counters, name).unwrap_or_else(|| panic!("no {name} in {counters}")).as_u64().unwrap()
}

/// Waits until each of the nodes has links to all others, sealed or not, and sees them up.
pub fn wait_for_links(nodes: &[&NodeProcess], sealed: bool) {
    wait_until("all are linked", || {
        let others = nodes.len() - 1;
        let is_linked = |node: &&NodeProcess| {
            let links = links(node);
            let up = up(node).len();
            links.len() == others && links.values().all(|is| *is == sealed) && up == others
        };
        nodes.iter().all(is_linked).then_some(())
    });
}

/// Waits until a node's log has a line with all of these words.
pub fn wait_for_log(node: &NodeProcess, words: &[&str]) {
    wait_until(&format!("{} logs {words:?}", node.name), || {
        let has_all = |line: &String| words.iter().all(|word| line.contains(word));
        node.log().iter().any(has_all).then_some(())
    });
}

/// Copies a key file to another node's, as `scp -p` would.
pub fn copy(from: &str, to: &str) {
    let (from, to) = (PathBuf::from(from), PathBuf::from(to));
    std::fs::copy(from, to).unwrap();
}

//! Real nodes of a scenario, each a process: they are killed, stopped and started again, and the node's program is
//! given commands about their users and keys.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use distkv::testing::free_addrs;
use rmpv::Value;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::play::Failure;
use crate::processes::{NodeProcess, PATIENCE, PROGRAM, field};
use crate::scenario::RealNodes;
use crate::step::Secret;

/// Certificates for tests.
pub(crate) const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls");

/// The variable that names another program of a node than the one that was built with this.
const NODE: &str = "DISTKV_NODE_BIN";

/// The nodes of one network. They end when this is dropped.
pub(crate) struct Cluster {
    program: String,
    network: String,
    told: RealNodes,
    nodes: Vec<Node>,
    /// For keys and secrets.
    folder: TempDir,
    /// By which the node's program logs in.
    admin: Vec<String>,
}

struct Node {
    process: NodeProcess,
    is_living: bool,
}

impl Cluster {
    /// Starts them, one after the other; each serves clients by then.
    pub(crate) fn start(told: RealNodes) -> Result<Cluster, Failure> {
        static NETWORKS: AtomicUsize = AtomicUsize::new(0);
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let network = format!("conformance-{}-{number}", std::process::id());
        let folder = TempDir::new().map_err(|error| Failure::Setup(error.to_string()))?;
        let program = std::env::var(NODE).ok().filter(|named| !named.is_empty());
        let program = program.unwrap_or_else(|| PROGRAM.to_owned());
        let nodes = Vec::new();
        let mut cluster = Cluster { program, network, told, nodes, folder, admin: Vec::new() };
        if told.key {
            let key = cluster.file("key");
            cluster.command(&["key", "new", "--network", &cluster.network, "--to", &key])?;
            cluster.admin = vec!["--key".to_owned(), key];
        }
        for _ in 0..told.count {
            cluster.add()?;
        }
        if told.users {
            cluster.make_users()?;
        }
        Ok(cluster)
    }

    /// The same nodes once more, with nothing of what these have seen.
    pub(crate) fn renew(&mut self) -> Result<(), Failure> {
        let told = self.told;
        self.nodes.clear();
        *self = Cluster::start(told)?;
        Ok(())
    }

    /// Where clients reach the nodes.
    pub(crate) fn seeds(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.process.client.to_string()).collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.process.name.clone()).collect()
    }

    /// Ends a node at once.
    pub(crate) fn kill(&mut self, name: &str) -> Result<(), Failure> {
        let node = self.named(name)?;
        node.process.kill();
        node.is_living = false;
        Ok(())
    }

    /// Stops a node's process without ending it.
    pub(crate) fn freeze(&mut self, name: &str) -> Result<(), Failure> {
        self.named(name)?.process.freeze();
        Ok(())
    }

    /// Lets it go on.
    pub(crate) fn thaw(&mut self, name: &str) -> Result<(), Failure> {
        self.named(name)?.process.signal("CONT");
        Ok(())
    }

    /// Starts a node that was killed again, at its addresses.
    pub(crate) fn rejoin(&mut self, name: &str) -> Result<(), Failure> {
        let old = &self.named(name)?.process;
        let (client, gossip) = (old.client.to_string(), old.gossip.to_string());
        let process = self.launch(name, &client, &gossip)?;
        *self.named(name)? = Node { process, is_living: true };
        Ok(())
    }

    /// Replaces the network's key.
    pub(crate) fn rotate(&self) -> Result<(), Failure> {
        let at = self.seeds().join(",");
        let before = self.as_admin(&["key", "list"], &at)?;
        self.as_admin(&["key", "rotate"], &at)?;
        match self.as_admin(&["key", "list"], &at)? == before {
            true => Err(Failure::Setup("the key was not exchanged".to_owned())),
            false => Ok(()),
        }
    }

    /// Replaces a user's secret.
    pub(crate) fn set_secret(&self, secret: &Secret) -> Result<(), Failure> {
        let file = self.write("secret", &secret.is)?;
        let command = ["user", "password", &secret.user, "--new-secret-file", &file];
        self.as_admin(&command, &self.first()?).map(drop)
    }

    /// The most conflicts that one node has found since it was started.
    pub(crate) fn conflicts(&self) -> Result<u64, Failure> {
        let mut most = 0;
        for node in &self.nodes {
            let state = node.process.connect().call("get_state", &[("conflicts", true.into())]);
            let found = field(&state, "conflicts").and_then(|told| field(&told, "found"));
            let found = found.as_ref().and_then(Value::as_u64);
            most = most.max(found.ok_or_else(|| {
                Failure::Setup(format!("{} does not count conflicts: {state}", node.process.name))
            })?);
        }
        Ok(most)
    }

    fn named(&mut self, name: &str) -> Result<&mut Node, Failure> {
        let found = self.nodes.iter_mut().find(|node| node.process.name == name);
        found.ok_or_else(|| Failure::Setup(format!("there is no node {name}")))
    }

    /// Starts one more node.
    fn add(&mut self) -> Result<(), Failure> {
        let [client, gossip] = free_addrs().map(|addr| addr.to_string());
        let name = format!("n{}", self.nodes.len() + 1);
        let process = self.launch(&name, &client, &gossip)?;
        self.nodes.push(Node { process, is_living: true });
        Ok(())
    }

    /// Starts a node: one that joins, where another lives.
    fn launch(&self, name: &str, client: &str, gossip: &str) -> Result<NodeProcess, Failure> {
        let living = self.nodes.iter().find(|node| node.is_living);
        let peer = living.map(|node| node.process.gossip.to_string());
        let mut arguments = match &peer {
            Some(peer) => vec!["join", peer],
            // Nobody is there who could call it.
            None => vec!["run", "--peer-wait", "0s"],
        };
        arguments.extend(["--client", client, "--gossip", gossip]);
        let (cert, cert_key) = (format!("{FIXTURES}/node.pem"), format!("{FIXTURES}/node.key"));
        if self.told.tls {
            arguments.extend(["--client-plaintext", "none"]);
            arguments.extend(["--cert", &cert, "--cert-key", &cert_key]);
        }
        // Each node writes its own file.
        let key = self.file(&format!("key-{name}"));
        if self.told.key {
            if !Path::new(&key).exists() {
                fs::copy(self.file("key"), &key).map_err(|e| Failure::Setup(e.to_string()))?;
            }
            arguments.extend(["--key", &key]);
        }
        Ok(NodeProcess::start_program(&self.program, &self.network, name, &arguments))
    }

    /// Users of a network: ann, an admin, and bob, who may read below `open`. Their secrets are their names.
    fn make_users(&mut self) -> Result<(), Failure> {
        let at = self.first()?;
        let (ann, bob) = (self.write("ann", "ann")?, self.write("bob", "bob")?);
        let new = ["user", "add", "ann", "--role", "admin", "--new-secret-file", &ann];
        self.as_admin(&new, &at)?;
        if self.admin.is_empty() {
            self.as_admin(&["auth", "on", "password"], &at)?;
            self.admin = ["--user", "ann", "--secret-file", &ann].map(str::to_owned).to_vec();
        }
        for pattern in ["open", "open.#"] {
            self.as_admin(&["acl", "set", "readers", pattern, "rxe"], &at)?;
        }
        let new = ["user", "add", "bob", "--acl", "readers", "--new-secret-file", &bob];
        self.as_admin(&new, &at).map(drop)
    }

    /// Where clients reach the first node.
    fn first(&self) -> Result<String, Failure> {
        let first = self.nodes.first().map(|node| node.process.client.to_string());
        first.ok_or_else(|| Failure::Setup("there is no node".to_owned()))
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) -> Result<String, Failure> {
        let file = self.file(name);
        fs::write(&file, text).map_err(|error| Failure::Setup(format!("{file}: {error}")))?;
        Ok(file)
    }

    /// A command about the network, by its admin; what it prints.
    fn as_admin(&self, command: &[&str], at: &str) -> Result<String, Failure> {
        let mut arguments = command.to_vec();
        arguments.extend(["--connect", at]);
        arguments.extend(self.admin.iter().map(String::as_str));
        self.command(&arguments)
    }

    /// A command of the node's program, which must work; what it prints.
    fn command(&self, arguments: &[&str]) -> Result<String, Failure> {
        let what = format!("distkv-node {}", arguments.join(" "));
        let mut command = Command::new(&self.program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = finish(command).map_err(|told| Failure::Setup(format!("{what}: {told}")))?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::Setup(format!("{what}: {told}")));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Runs a command to its end, for a bounded time.
fn finish(mut command: Command) -> Result<Output, String> {
    let child = command.spawn().map_err(|error| error.to_string())?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (done, end) = channel();
    thread::spawn(move || done.send(child.wait_with_output()));
    match end.recv_timeout(PATIENCE) {
        Ok(output) => output.map_err(|error| error.to_string()),
        Err(_) => {
            if let Some(pid) = pid {
                // It may have ended just now.
                let _ = kill_process(pid, Signal::KILL);
            }
            Err(format!("it has not ended within {} s", PATIENCE.as_secs()))
        }
    }
}

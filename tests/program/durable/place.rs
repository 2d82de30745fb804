//! A data directory, and the nodes that are started on it.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use distkv::testing::free_addrs;
use rmpv::Value;

use crate::processes::{Client, NodeProcess, PROGRAM, field};

/// The sync policies.
pub const POLICIES: [&str; 3] = ["never", "every-second", "every-batch"];

/// A network's name that no other test has.
pub fn new_network() -> String {
    static NETWORKS: AtomicUsize = AtomicUsize::new(0);
    let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
    format!("durable-{}-{number}", std::process::id())
}

/// A data directory.
pub struct Place {
    pub dir: PathBuf,
    pub name: String,
    pub network: String,
    pub sync: &'static str,
    /// Where peers reach its nodes, once one has been there: they look for it at that place.
    pub gossip: Cell<Option<SocketAddr>>,
    /// Further options.
    pub options: Vec<String>,
    _folder: Option<tempfile::TempDir>,
}

impl Place {
    pub fn new(name: &str, sync: &'static str) -> Self {
        Self::in_network(&new_network(), name, sync)
    }

    pub fn in_network(network: &str, name: &str, sync: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut place = Self::at(folder.path().join("data"), network, name, sync);
        place._folder = Some(folder);
        place
    }

    pub fn at(dir: PathBuf, network: &str, name: &str, sync: &'static str) -> Self {
        let (name, network) = (name.to_owned(), network.to_owned());
        let (gossip, options) = (Cell::new(None), Vec::new());
        Self { dir, name, network, sync, gossip, options, _folder: None }
    }

    fn arguments(&self, how: &[&str]) -> Vec<String> {
        let mut arguments: Vec<String> = how.iter().map(|a| (*a).to_owned()).collect();
        let dir = self.dir.to_str().unwrap();
        // One that nobody else takes until a node is there again.
        let gossip = self.gossip.get().unwrap_or_else(|| free_addrs::<1>()[0]).to_string();
        let own = [
            "--client",
            "127.0.0.1:0",
            "--gossip",
            &gossip,
            "--data-dir",
            dir,
            "--sync",
            self.sync,
        ];
        arguments.extend(own.map(str::to_owned));
        arguments.extend(self.options.iter().cloned());
        arguments
    }

    /// Starts a node; it goes on with whom it knows.
    pub fn run(&self) -> NodeProcess {
        self.start(&["run"])
    }

    /// Starts a node that knows nobody, whatever it knew before.
    pub fn run_alone(&self) -> NodeProcess {
        let nobody = self.dir.with_extension("no-peers");
        self.start(&["run", "--peer-file", nobody.to_str().unwrap()])
    }

    /// Starts a node that joins others.
    pub fn join(&self, peers: &[&NodeProcess]) -> NodeProcess {
        let addresses: Vec<String> = peers.iter().map(|p| p.gossip.to_string()).collect();
        let mut how = vec!["join"];
        how.extend(addresses.iter().map(String::as_str));
        self.start(&how)
    }

    /// Starts a node like that.
    pub fn start(&self, how: &[&str]) -> NodeProcess {
        let arguments = self.arguments(how);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        NodeProcess::start_in(&self.network, &self.name, &arguments)
    }

    /// The same, at the place where it was the last time.
    pub fn run_again(&self, node: &NodeProcess) -> NodeProcess {
        self.gossip.set(Some(node.gossip));
        self.run()
    }

    /// Starts a node that should refuse to, for what it finds; gives what it says.
    pub fn refusal(&self, how: &[&str]) -> String {
        self.refusal_with(1, how)
    }

    /// The same, with an exit code.
    pub fn refusal_with(&self, code: i32, how: &[&str]) -> String {
        let output = Command::new(PROGRAM)
            .args(self.arguments(how))
            .args(["--name", &self.name, "--network", &self.network])
            .stdin(Stdio::null())
            .output()
            .expect("the program runs");
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// A copy of the directory, as `cp -r` makes one.
    pub fn copy(&self) -> Place {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("copy");
        copy_dir(&self.dir, &dir);
        let mut copy = Self::at(dir, &self.network, &self.name, self.sync);
        copy._folder = Some(folder);
        copy
    }
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// The incarnation that a node is in.
pub fn incarnation(client: &mut Client) -> u64 {
    let reply = client.call("members", &[]);
    let members = field(&reply, "result").unwrap();
    let is_self = |m: &&Value| field(m, "state").unwrap().as_str() == Some("self");
    let own = members.as_array().unwrap().iter().find(is_self).unwrap().clone();
    field(&own, "incarnation").unwrap().as_u64().unwrap()
}

/// A part of what `status` says of the disk.
pub fn storage(client: &mut Client, key: &str) -> Value {
    let reply = client.call("status", &[]);
    field(&field(&reply, "storage").unwrap(), key).unwrap_or(Value::Nil)
}

/// A part of what `status` says.
pub fn status(client: &mut Client, key: &str) -> Value {
    field(&client.call("status", &[]), key).unwrap_or(Value::Nil)
}

/// The code of an error, if it is one.
pub fn code(reply: &Value) -> Option<String> {
    Some(field(reply, "code")?.as_str()?.to_owned())
}

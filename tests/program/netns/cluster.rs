//! A network of real nodes, one per host, and clients that write to them while they are cut off
//! from each other.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rmpv::Value;

use super::hosts::{Hosts, client_addr, gossip_addr};
use super::processes::{Client, NodeProcess, PATIENCE, array, field};

/// What a writer waits between two writes: about 300 per second and node.
const WRITE_INTERVAL: Duration = Duration::from_millis(3);
/// Paths of one writer's own.
const OWN_PATHS: u64 = 400;
/// Paths that all write to.
const SHARED_PATHS: u64 = 50;

/// The nodes, each on the host of the same number, named `n0`, `n1` …
pub struct Cluster {
    pub hosts: Hosts,
    pub nodes: Vec<NodeProcess>,
    pub clients: Vec<Client>,
}

/// What a node has accounted for, which must be the same everywhere: `known`, `present` and
/// `deleted`, each with the ticks of all nodes, one name after the other.
pub type Accounted = [Vec<(String, Value)>; 3];

impl Cluster {
    /// One node per host, each linked to every other. `options` go to every node.
    pub fn start(switches: &[usize], options: &[&str]) -> Self {
        let hosts = Hosts::new(switches);
        let mut nodes = Vec::new();
        for host in 0..switches.len() {
            nodes.push(start_node(&hosts, host, options));
        }
        let clients = nodes.iter().map(NodeProcess::connect).collect();
        let mut cluster = Self { hosts, nodes, clients };
        let others = cluster.nodes.len() - 1;
        cluster.wait("all are linked and up", |cluster| {
            (0..=others).all(|n| cluster.peers(n).len() == others)
        });
        cluster
    }

    /// Waits for something of the cluster; fails the test when it never comes.
    pub fn wait(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) -> Instant {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if done(self) {
                return Instant::now();
            }
            if Instant::now() >= deadline {
                self.show_logs(None);
                panic!("never: {what}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The members that a node sees up and has a link to, by name.
    pub fn peers(&mut self, node: usize) -> Vec<String> {
        let reply = self.clients[node].call("members", &[]);
        let members = field(&reply, "result").unwrap();
        let is_peer = |m: &&Value| {
            let text = |key| field(m, key).and_then(|v| v.as_str().map(str::to_owned));
            text("state").as_deref() == Some("up")
                && field(m, "linked").and_then(|l| l.as_bool()) == Some(true)
        };
        let name = |m: &Value| field(m, "name").unwrap().as_str().unwrap().to_owned();
        members.as_array().unwrap().iter().filter(is_peer).map(name).collect()
    }

    /// All members that a node shows, in any state but its own, with that state.
    pub fn members(&mut self, node: usize) -> BTreeMap<String, String> {
        let reply = self.clients[node].call("members", &[]);
        let members = field(&reply, "result").unwrap();
        let text = |m: &Value, key| field(m, key).unwrap().as_str().unwrap().to_owned();
        let all = members.as_array().unwrap().iter();
        all.map(|m| (text(m, "name"), text(m, "state"))).filter(|(_, s)| s != "self").collect()
    }

    /// How many of its own changes a node knows another to have, as that one told it over their
    /// link; none without a link.
    pub fn acked(&mut self, node: usize, by: usize) -> Option<u64> {
        let reply = self.clients[node].call("members", &[]);
        let members = field(&reply, "result").unwrap();
        let name = format!("n{by}");
        let is_it = |m: &&Value| field(m, "name").unwrap().as_str() == Some(&name);
        let member = members.as_array().unwrap().iter().find(is_it)?;
        field(member, "linked")?.as_bool().filter(|linked| *linked)?;
        field(member, "acked")?.as_u64()
    }

    /// Makes a change at a node; its tick.
    pub fn touch(&mut self, node: usize) -> u64 {
        let fields = [
            ("path", array(&["touched", &format!("n{node}")])),
            ("value", Value::from(format!("{:?}", Instant::now()))),
            ("nchain", Value::from(1)),
        ];
        let reply = self.clients[node].call("set_value", &fields);
        let chain = field(&reply, "chain").unwrap_or_else(|| panic!("{reply}"));
        field(&chain, "tick").unwrap().as_u64().unwrap()
    }

    /// Waits until the link between two nodes carries changes both ways: each has acknowledged a
    /// new change of the other over it.
    pub fn wait_for_link(&mut self, a: usize, b: usize) -> Instant {
        let (tick_a, tick_b) = (self.touch(a), self.touch(b));
        self.wait(&format!("n{a} and n{b} are linked"), |cluster| {
            cluster.acked(a, b) >= Some(tick_a) && cluster.acked(b, a) >= Some(tick_b)
        })
    }

    /// All that a node has accounted for; `None` while something is missing.
    pub fn accounted(&mut self, node: usize) -> Option<Accounted> {
        let parts = ["known", "present", "deleted", "missing"];
        let fields: Vec<_> = parts.iter().map(|part| (*part, Value::from(true))).collect();
        let state = self.clients[node].call("get_state", &fields);
        let ticks = |part: &str| {
            let map = field(&state, part).expect("asked for");
            let mut ticks: Vec<(String, Value)> = map
                .as_map()
                .unwrap()
                .iter()
                .map(|(k, v)| (k.as_str().unwrap().to_owned(), v.clone()))
                .collect();
            ticks.retain(|(_, ranges)| ranges.as_array().is_some_and(|r| !r.is_empty()));
            ticks.sort_by(|a, b| a.0.cmp(&b.0));
            ticks
        };
        if !ticks("missing").is_empty() {
            return None;
        }
        Some(["known", "present", "deleted"].map(ticks))
    }

    /// Whether all nodes account for the same, and miss nothing.
    pub fn is_equal(&mut self) -> bool {
        let Some(first) = self.accounted(0) else { return false };
        (1..self.nodes.len()).all(|n| self.accounted(n).as_ref() == Some(&first))
    }

    /// The whole tree of the first node, with chains and tocks, after a check that every other
    /// node has exactly the same.
    pub fn equal_tree(&mut self) -> Vec<(String, Value)> {
        let first = self.clients[0].tree(&[]);
        for n in 1..self.nodes.len() {
            let other = self.clients[n].tree(&[]);
            let differs = first.iter().zip(&other).find(|(a, b)| a != b);
            assert!(differs.is_none(), "n0 and n{n} differ: {differs:#?}");
            assert_eq!(first.len(), other.len(), "n0 and n{n} have trees of different size");
        }
        first
    }

    /// Who drives the healing of a split, as a node sees it.
    pub fn driver(&mut self, node: usize) -> Option<usize> {
        let state = self.clients[node].call("get_state", &[("resync", Value::from(true))]);
        let resync = field(&state, "resync")?;
        field(&resync, "driver")?.as_str()?.strip_prefix('n')?.parse().ok()
    }

    /// How many entries a node that drives has yet to get, as far as it knows.
    pub fn resync_remaining(&mut self, node: usize) -> Option<u64> {
        let state = self.clients[node].call("get_state", &[("resync", Value::from(true))]);
        field(&field(&state, "resync")?, "remaining")?.as_u64()
    }

    /// Writes that many entries of a node's own, many at once.
    pub fn write_many(&mut self, node: usize, count: u64) {
        for number in 0..count {
            let value = Value::from(format!("{number:0>200}"));
            let reply = self.clients[node].set(&["bulk", &format!("k{number}")], value);
            assert_eq!(field(&reply, "error"), None, "{reply}");
        }
    }

    /// Kills a node for good. The numbers of those behind it fall by one.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].kill();
        self.nodes.remove(node);
        self.clients.remove(node);
    }

    /// What `distkv-node conflicts` prints of a node.
    pub fn shown_conflicts(&self, node: usize) -> Vec<String> {
        let address = self.nodes[node].client.to_string();
        let output = Command::new(env!("CARGO_BIN_EXE_distkv-node"))
            .args(["conflicts", "--connect", &address])
            .output()
            .expect("the command runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    /// How many conflicts the nodes have reported, all together.
    pub fn conflicts(&self) -> usize {
        let logs = self.nodes.iter().flat_map(NodeProcess::log);
        logs.filter(|line| line.contains("conflict:")).count()
    }

    /// Prints what the nodes logged after a moment, or since they started.
    pub fn show_logs(&self, since: Option<Instant>) {
        for node in &self.nodes {
            let log = node.timed_log(since);
            for (at, line) in log.iter().filter(|(_, line)| !line.contains("conflict:")) {
                let after = since.map(|since| at.duration_since(since).as_millis());
                println!("{} {after:?} ms: {line}", node.name);
            }
        }
    }

    /// A writer at each node, until it is told to stop.
    pub fn write_everywhere(&self) -> Writers {
        let stop = Arc::new(AtomicBool::new(false));
        let write = |(n, node): (usize, &NodeProcess)| {
            let (stop, address, key) = (Arc::clone(&stop), node.client, node.key.clone());
            std::thread::spawn(move || write(n, address, key.as_deref(), &stop))
        };
        Writers { threads: self.nodes.iter().enumerate().map(write).collect(), stop }
    }
}

/// Starts the node of a host: the first one founds the network, the others join it.
pub fn start_node(hosts: &Hosts, host: usize, options: &[&str]) -> NodeProcess {
    let (client, gossip) = (client_addr(host).to_string(), gossip_addr(host).to_string());
    let first = gossip_addr(0).to_string();
    let mut arguments = vec!["--client", &client, "--gossip", &gossip];
    if !options.contains(&"--key") {
        arguments.push("--insecure");
    }
    if host == 0 {
        arguments.insert(0, "run");
    } else {
        arguments.splice(0..0, ["join", &first]);
    }
    arguments.extend(options);
    NodeProcess::start_by(&hosts.prefix(host), &format!("n{host}"), &arguments)
}

/// What a writer left on its own paths: the value of each, none where it deleted it last.
pub type Written = BTreeMap<String, Option<Value>>;

/// Threads that write.
pub struct Writers {
    threads: Vec<JoinHandle<(Written, u64)>>,
    stop: Arc<AtomicBool>,
}

impl Writers {
    /// Ends them; what they left behind, and how many writes they made.
    pub fn stop(self) -> (Vec<Written>, u64) {
        self.stop.store(true, Ordering::Relaxed);
        let done = self.threads.into_iter().map(|t| t.join().expect("the writer is well"));
        let (written, counts): (Vec<_>, Vec<_>) = done.unzip();
        (written, counts.iter().sum())
    }
}

fn write(n: usize, address: SocketAddr, key: Option<&str>, stop: &AtomicBool) -> (Written, u64) {
    let mut client = Client::enter(address, key);
    let mut written = Written::new();
    let mut count = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        count += 1;
        let value = Value::from(format!("n{n} wrote this as its {count}th"));
        let reply = if count.is_multiple_of(4) {
            client.set(&["shared", &format!("k{}", count / 4 % SHARED_PATHS)], value)
        } else {
            let path = ["own".to_owned(), format!("n{n}"), format!("k{}", count % OWN_PATHS)];
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            let dies = count.is_multiple_of(23) && written.contains_key(&path.join("/"));
            let left = (!dies).then(|| value.clone());
            written.insert(path.join("/"), left);
            if dies {
                client.call("delete_value", &[("path", array(&path))])
            } else {
                client.set(&path, value)
            }
        };
        assert_eq!(field(&reply, "error"), None, "{reply}");
        std::thread::sleep(WRITE_INTERVAL);
    }
    (written, count)
}

/// Checks that everything on the writers' own paths is as they left it.
pub fn check_own_paths(tree: &[(String, Value)], written: &[Written]) {
    let tree: BTreeMap<String, Value> = tree
        .iter()
        .filter_map(|(path, entry)| Some((path.replace('"', ""), field(entry, "value")?)))
        .collect();
    for (path, value) in written.iter().flatten() {
        let found = tree.get(path).filter(|v| !v.is_nil());
        assert_eq!(found, value.as_ref(), "at {path}");
    }
}

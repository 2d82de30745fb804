//! The nodes: real processes of the real program, each on a host of its own (a network namespace),
//! with a small disk of its own. Starts them, ends them, and keeps account of what may be lost
//! by that.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rmpv::Value;

use super::clients::Lives;
use super::history::{Conflict, Disturbance, Loss, parse_conflict};
use super::hosts::{Hosts, client_addr, gossip_addr};
use super::processes::{PROGRAM, field};
use super::rng::Rng;
use super::session::Session;

/// Size of each node's disk.
const DISK_BYTES: u64 = 24 << 20;
/// After a disturbance, links need a while until changes go at once again.
pub const CALM_AFTER: Duration = Duration::from_secs(6);
/// Names an older program, which every second node is until it is started for the third time.
const OLDER: &str = "DISTKV_RUN_OLDER";
/// How long a node may take until it serves, all others being there.
const READY_WITHIN: Duration = Duration::from_secs(40);

/// Where a node has its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Store {
    Memory,
    /// With this sync policy.
    Disk(&'static str),
}

impl Store {
    /// How much of the latest may be lost when the process is killed.
    fn lag(self) -> Option<Duration> {
        match self {
            Store::Memory => None,
            Store::Disk("every-batch") => Some(Duration::ZERO),
            Store::Disk("every-second") => Some(Duration::from_millis(1_500)),
            Store::Disk(_) => Some(Duration::from_secs(3)),
        }
    }
}

/// A directory as it was once.
struct Image {
    copy: PathBuf,
    kept_before: Option<Instant>,
}

pub struct Node {
    pub store: Store,
    pub is_forgotten: bool,
    process: Option<Child>,
    image: Option<Image>,
    /// Since when its disk takes nothing.
    full_since: Option<Instant>,
}

pub struct World {
    pub hosts: Hosts,
    pub nodes: Vec<Node>,
    pub lives: Lives,
    pub disturbances: Vec<Disturbance>,
    pub losses: Vec<Loss>,
    pub complaints: Vec<String>,
    pub began: Instant,
    folder: PathBuf,
    snapshot: Option<PathBuf>,
}

impl World {
    /// `switches`: which of the two switches each host is plugged into.
    pub fn start(switches: &[usize], stores: &[Store], folder: &Path) -> Self {
        // One host more: for a copy of a node.
        let plugs: Vec<usize> = switches.iter().copied().chain([0]).collect();
        let nodes = stores.iter().map(|store| Node {
            store: *store,
            is_forgotten: false,
            process: None,
            image: None,
            full_since: None,
        });
        let nodes: Vec<Node> = nodes.collect();
        let lives = Arc::new(nodes.iter().map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
        let mut world = Self {
            hosts: Hosts::new(&plugs),
            nodes,
            lives,
            disturbances: Vec::new(),
            losses: Vec::new(),
            complaints: Vec::new(),
            began: Instant::now(),
            folder: folder.to_owned(),
            snapshot: None,
        };
        for node in 0..world.nodes.len() {
            let disk = world.disk(node);
            std::fs::create_dir_all(&disk).expect("a folder");
            let size = format!("size={DISK_BYTES}");
            run(&["mount", "-t", "tmpfs", "-o", &size, "none", disk.to_str().expect("UTF-8")]);
            let how = if node == 0 { How::Found } else { How::Join };
            world.launch(node, how);
            world.wait_ready(node);
        }
        world
    }

    pub fn say(&self, text: &str) {
        println!("{:>6} ms  {text}", self.began.elapsed().as_millis());
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        (0..self.nodes.len()).map(client_addr).collect()
    }

    pub fn is_running(&self, node: usize) -> bool {
        self.nodes[node].process.is_some()
    }

    pub fn life(&self, node: usize) -> u64 {
        self.lives[node].load(Ordering::SeqCst)
    }

    fn disk(&self, node: usize) -> PathBuf {
        self.folder.join(format!("disk{node}"))
    }

    fn data(&self, node: usize) -> PathBuf {
        self.disk(node).join("data")
    }

    pub fn log_path(&self, node: usize) -> PathBuf {
        self.folder.join(format!("n{node}.log"))
    }

    /// What a node runs next.
    fn program(&self, node: usize) -> OsString {
        let older = std::env::var_os(OLDER).filter(|_| node % 2 == 1 && self.life(node) < 2);
        older.unwrap_or_else(|| PROGRAM.into())
    }

    /// The command line of a node, without what says where it listens.
    fn command(&self, host: usize, name: usize, data: Option<&Path>, how: How) -> Command {
        let prefix = self.hosts.prefix(host);
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).arg(self.program(name));
        let others = (0..self.nodes.len()).filter(|n| *n != name && !self.nodes[*n].is_forgotten);
        let others: Vec<String> = others.map(|n| gossip_addr(n).to_string()).collect();
        match how {
            How::Found => command.arg("run"),
            How::Join => command.arg("join").args(&others),
            How::Run => {
                command.arg("run");
                others.iter().fold(&mut command, |command, peer| command.args(["--peer", peer]))
            }
        };
        command
            .args(["--name", &format!("n{name}"), "--network", "black-box", "--remote-restore"])
            .args(["--client", &client_addr(host).to_string()])
            .args(["--gossip", &gossip_addr(host).to_string(), "--insecure"])
            // So that each conflict has a line.
            .args(["--log", "debug"]);
        if let (Some(data), Store::Disk(sync)) = (data, self.nodes[name].store) {
            command.arg("--data-dir").arg(data).args(["--sync", sync]);
        }
        command
    }

    /// Starts a node's process; it may take a while until it serves.
    pub fn launch(&mut self, node: usize, how: How) {
        let older = if self.program(node) == PROGRAM { "" } else { ", the older program" };
        self.say(&format!("n{node} starts ({how:?}{older})"));
        let data = self.data(node);
        let log = File::options().create(true).append(true).open(self.log_path(node));
        let log = log.expect("a log file");
        let process = self
            .command(node, node, Some(&data), how)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the node's program starts");
        self.lives[node].fetch_add(1, Ordering::SeqCst);
        self.nodes[node].process = Some(process);
    }

    /// Starts it again in one of the ways that operators have.
    pub fn relaunch(&mut self, node: usize, rng: &mut Rng) {
        let how = if rng.chance(50) { How::Run } else { How::Join };
        self.launch(node, how);
    }

    /// Waits until the node serves; notes a complaint when it never does.
    pub fn wait_ready(&mut self, node: usize) {
        let deadline = Instant::now() + READY_WITHIN;
        while Instant::now() < deadline {
            if self.status(node, "ready") == Some(Value::Boolean(true)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.complaints.push(format!("n{node} never serves: {}", self.log_end(node)));
    }

    /// A field of what `status` says of a node; none where it does not answer.
    pub fn status(&self, node: usize, key: &str) -> Option<Value> {
        let mut session = Session::connect(client_addr(node)).ok()?;
        let reply = session.call("status", &[]).ok()?;
        field(&field(&reply, "result").unwrap_or(reply), key)
    }

    /// Ends the process with a signal, and notes what may be lost by that.
    pub fn end(&mut self, node: usize, signal: &str) {
        self.say(&format!("n{node} gets {signal}"));
        let at = Instant::now();
        let Some(mut process) = self.nodes[node].process.take() else { return };
        run(&["kill", "-s", signal, &process.id().to_string()]);
        let deadline = at + Duration::from_secs(8);
        while process.try_wait().expect("it is ours").is_none() {
            if Instant::now() > deadline {
                self.complaints.push(format!("n{node} does not end on {signal}"));
                let _ = process.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let state = &self.nodes[node];
        let lag = match (signal, state.store) {
            (_, Store::Memory) => None,
            ("TERM", Store::Disk(_)) => Some(Duration::ZERO),
            (_, store) => store.lag(),
        };
        // A clean stop waits for the disk, and acknowledges nothing any more.
        let reference = if signal == "TERM" { Instant::now() } else { at };
        let kept_before = match (lag, state.full_since) {
            (None, _) => None,
            // Under this policy nothing is acknowledged while the disk takes nothing.
            (Some(lag), Some(full)) if state.store != Store::Disk("every-batch") => {
                Some(full.min(reference) - lag)
            }
            (Some(lag), _) => Some(reference - lag),
        };
        self.lose(node, kept_before, at);
    }

    /// Notes that a node may have lost what was acknowledged after `kept_before`.
    fn lose(&mut self, node: usize, kept_before: Option<Instant>, at: Instant) {
        let life = self.life(node);
        self.losses.push(Loss { node, life, kept_before, at, gone: Instant::now() });
    }

    /// Nodes may not reach each other between `from` and now, and for a while after.
    pub fn disturbed_since(&mut self, from: Instant) {
        self.disturbances.push(Disturbance { from, to: Instant::now() + CALM_AFTER });
    }

    pub fn signal(&self, node: usize, signal: &str) {
        if let Some(process) = &self.nodes[node].process {
            self.say(&format!("n{node} gets {signal}"));
            run(&["kill", "-s", signal, &process.id().to_string()]);
        }
    }

    /// Keeps a copy of a node's directory; the node must not be running.
    pub fn take_image(&mut self, node: usize) {
        let copy = self.folder.join(format!("image{node}"));
        let _ = std::fs::remove_dir_all(&copy);
        if self.copy_dir(&self.data(node), &copy) {
            let kept_before = self.losses.iter().rev().find(|l| l.node == node);
            let kept_before = kept_before.and_then(|l| l.kept_before);
            self.nodes[node].image = Some(Image { copy, kept_before });
            self.say(&format!("n{node}'s directory is copied"));
        }
    }

    pub fn has_image(&self, node: usize) -> bool {
        self.nodes[node].image.is_some()
    }

    /// Puts the older copy in the place of a node's directory; the node must not be running.
    pub fn roll_back(&mut self, node: usize) {
        let data = self.data(node);
        let Some(image) = &self.nodes[node].image else { return };
        let (copy, kept_before) = (image.copy.clone(), image.kept_before);
        std::fs::remove_dir_all(&data).expect("it is ours");
        self.copy_dir(&copy, &data);
        self.lose(node, kept_before, Instant::now());
        self.say(&format!("n{node}'s directory is an older one again"));
    }

    /// Takes all that a node has on its disk; the node must not be running.
    pub fn wipe(&mut self, node: usize) {
        let _ = std::fs::remove_dir_all(self.data(node));
        self.lose(node, None, Instant::now());
        self.say(&format!("n{node}'s disk is empty"));
    }

    /// Damages the end of the newest log, as a crash does; the node must not be running.
    pub fn tear(&mut self, node: usize, rng: &mut Rng) {
        let logs = std::fs::read_dir(self.data(node)).into_iter().flatten().flatten();
        let logs = logs.filter(|f| f.file_name().to_string_lossy().starts_with("log-"));
        let number = |f: &std::fs::DirEntry| {
            let name = f.file_name().to_string_lossy().into_owned();
            name.trim_start_matches("log-").trim_end_matches(".dkv").parse::<u64>().unwrap_or(0)
        };
        let Some(last) = logs.max_by_key(number) else { return };
        let length = last.metadata().expect("it is there").len();
        let file = File::options().append(true).open(last.path()).expect("it is ours");
        if rng.chance(50) {
            let garbage: Vec<u8> = (0..1 + rng.below(60)).map(|_| rng.next() as u8).collect();
            (&file).write_all(&garbage).expect("there is room");
            self.say(&format!("n{node}'s log ends in {} bytes of garbage", garbage.len()));
        } else {
            let cut = rng.below(150).min(length.saturating_sub(4_096));
            file.set_len(length - cut).expect("it is ours");
            self.lose(node, Some(Instant::now() - Duration::from_secs(6)), Instant::now());
            self.say(&format!("n{node}'s log lacks its last {cut} bytes"));
        }
    }

    /// Leaves no room on a node's disk.
    pub fn fill(&mut self, node: usize) {
        self.say(&format!("n{node}'s disk is full"));
        let ballast = File::create(self.disk(node).join("ballast")).expect("it is ours");
        let block = [0; 4_096];
        while (&ballast).write_all(&block).is_ok() {}
        self.nodes[node].full_since.get_or_insert(Instant::now());
    }

    /// Makes room again, and waits a while for the node to keep a log again.
    pub fn unfill(&mut self, node: usize) {
        let _ = std::fs::remove_file(self.disk(node).join("ballast"));
        self.say(&format!("n{node}'s disk has room"));
        let deadline = Instant::now() + Duration::from_secs(15);
        while Instant::now() < deadline {
            let storage = self.status(node, "storage");
            if storage.as_ref().and_then(|s| field(s, "failed")) == Some(Value::Nil) {
                self.nodes[node].full_since = None;
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Makes room while the node is down, and starts it again.
    pub fn unfill_and_restart(&mut self, node: usize, rng: &mut Rng) {
        let _ = std::fs::remove_file(self.disk(node).join("ballast"));
        self.nodes[node].full_since = None;
        self.say(&format!("n{node}'s disk has room"));
        self.relaunch(node, rng);
        self.wait_ready(node);
    }

    /// Starts a second process with a copy of a node's directory, on the spare host, under the same
    /// name, beside the first one. It must serve nobody.
    pub fn start_twin(&mut self, node: usize, lasts: Duration) {
        let spare = self.nodes.len();
        let copy = self.folder.join("twin");
        let _ = std::fs::remove_dir_all(&copy);
        if !self.copy_dir(&self.data(node), &copy) {
            return;
        }
        self.say(&format!("a copy of n{node} starts beside it"));
        let log = File::options().create(true).append(true).open(self.folder.join("twin.log"));
        let mut twin = self
            .command(spare, node, Some(&copy), How::Join)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("a log file"))
            .spawn()
            .expect("the node's program starts");
        let until = Instant::now() + lasts;
        while Instant::now() < until {
            if let Ok(mut session) = Session::connect(client_addr(spare)) {
                let fields = [
                    ("path", Value::Array(vec!["twin".into()])),
                    ("value", Value::from("not to be acknowledged")),
                ];
                let reply = session.call("set_value", &fields);
                if let Ok(reply) = reply
                    && field(&reply, "error").is_none()
                {
                    self.complaints.push(format!(
                        "a copy of n{node}, which was running, acknowledged a write: {reply}"
                    ));
                    break;
                }
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = twin.kill();
        let _ = twin.wait();
    }

    /// Saves the network's state with the real command.
    pub fn save(&mut self, node: usize) {
        let file = self.folder.join("saved.dkv");
        let _ = std::fs::remove_file(&file);
        let output = self.ask(node, &["snapshot", "save", "--to", file.to_str().expect("UTF-8")]);
        self.say(&format!("a snapshot is saved at n{node}: {}", output.status));
        self.snapshot = output.status.success().then_some(file);
    }

    /// Restores what was saved, into the running network.
    pub fn restore(&mut self, node: usize) {
        let Some(file) = self.snapshot.clone() else { return };
        let output = self.ask(node, &["snapshot", "restore", file.to_str().expect("UTF-8")]);
        self.say(&format!("the snapshot is restored at n{node}: {}", output.status));
    }

    /// Forgets a node that was killed, for good.
    pub fn forget(&mut self, node: usize, at: usize) {
        self.nodes[node].is_forgotten = true;
        self.wipe(node);
        let output = self.ask(at, &["members", "forget", &format!("n{node}"), "--yes"]);
        self.say(&format!("n{node} is forgotten at n{at}: {}", output.status));
    }

    /// Runs a command of the program against a node.
    pub fn ask(&self, node: usize, arguments: &[&str]) -> Output {
        let address = client_addr(node).to_string();
        Command::new(PROGRAM)
            .args(arguments)
            .env("DISTKV_CONNECT", &address)
            .stdin(Stdio::null())
            .output()
            .expect("the program runs")
    }

    /// The conflicts that all nodes have told of in their logs.
    pub fn conflicts(&self) -> Vec<Conflict> {
        let logs = (0..self.nodes.len()).filter_map(|n| std::fs::read(self.log_path(n)).ok());
        let logs = logs.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        logs.flat_map(|log| log.lines().filter_map(parse_conflict).collect::<Vec<_>>()).collect()
    }

    /// The last lines of a node's log.
    pub fn log_end(&self, node: usize) -> String {
        let log = std::fs::read(self.log_path(node)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).into_owned();
        let lines: Vec<&str> = log.lines().filter(|l| !l.contains("conflict:")).collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    fn copy_dir(&self, from: &Path, to: &Path) -> bool {
        let (from, to) = (from.to_str().expect("UTF-8"), to.to_str().expect("UTF-8"));
        // A running node may remove a file meanwhile.
        Command::new("cp").args(["-a", from, to]).output().is_ok_and(|o| o.status.success())
    }
}

/// How a node is started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// `run`, without any peer.
    Found,
    /// `run` with all others as `--peer`.
    Run,
    /// `join` with all others.
    Join,
}

impl Drop for World {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            if let Some(process) = &mut node.process {
                let _ = process.kill();
                let _ = process.wait();
            }
        }
        for node in 0..self.nodes.len() {
            let _ = Command::new("umount").arg(self.disk(node)).output();
        }
    }
}

/// Runs a command that must succeed.
pub fn run(command: &[&str]) {
    let output = Command::new(command[0]).args(&command[1..]).output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

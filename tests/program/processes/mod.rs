//! Real nodes as processes, and a plain client to talk to them: for tests that kill, stop and
//! restart. Everything waits for readiness, nothing sleeps for luck.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that fails should say so at once, and may read the clock"
)]

#[path = "../../nodes/sockets/pauses.rs"]
pub mod pauses;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use distkv::testing::free_addrs;
use rmpv::Value;

/// Longer than anything honest takes on a busy machine; a test that waits so long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How long a node may take to end. It promises 3 s; the rest is for a busy machine.
pub const GOODBYE: Duration = Duration::from_secs(10);

/// The program.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_distkv-node");

/// Files of the Python DistKV.
pub const DISTKV_FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/distkv-files");

/// The state of a Python DistKV.
pub const SAVED_STATE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/distkv-files/saved-state.bin");

/// The names of what is in a folder, sorted.
pub fn file_names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string();
    let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(|e| name(e).unwrap()).collect();
    names.sort();
    names
}

/// The program `distkv-bench`, beside [`PROGRAM`]: it is of another package, so a run of this test program alone
/// does not build it. Where it is missing, this does.
pub fn bench_program() -> PathBuf {
    let node = Path::new(PROGRAM);
    let bench = node.with_file_name("distkv-bench");
    if !bench.is_file() {
        let folder = node.parent().unwrap();
        let profile = match folder.file_name().unwrap().to_str().unwrap() {
            "debug" => "dev",
            other => other,
        };
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["build", "--quiet", "--offline", "--package", "distkv-bench"]);
        command.args(["--profile", profile, "--target-dir"]).arg(folder.parent().unwrap());
        command.current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(command.status().unwrap().success(), "build it: cargo build -p distkv-bench");
    }
    bench
}

/// A node that runs as a process of its own. It is killed when this is dropped.
pub struct NodeProcess {
    pub name: String,
    pub client: SocketAddr,
    pub gossip: SocketAddr,
    /// Its HTTP port, if it has one.
    pub http: Option<SocketAddr>,
    /// Each test's own: a freed port may be taken by another test's node.
    pub network: String,
    /// The file of its cluster key, if it has one.
    pub key: Option<String>,
    child: Child,
    log: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl NodeProcess {
    /// Starts the first node of a network.
    pub fn run(name: &str) -> Self {
        static NETWORKS: AtomicUsize = AtomicUsize::new(0);
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let network = format!("test-{}-{number}", std::process::id());
        // A test may start it again where it was.
        let [client, gossip] = free_addrs().map(|addr| addr.to_string());
        // Nobody is there who could call it.
        let arguments = ["run", "--peer-wait", "0s", "--client", &client, "--gossip", &gossip];
        Self::start_in(&network, name, &arguments)
    }

    /// Starts a node that joins.
    pub fn join(name: &str, peers: &[&NodeProcess]) -> Self {
        let [client, gossip] = free_addrs();
        Self::join_at(name, peers, client, gossip)
    }

    /// Starts a node that joins, at given addresses.
    pub fn join_at(
        name: &str,
        peers: &[&NodeProcess],
        client: SocketAddr,
        gossip: SocketAddr,
    ) -> Self {
        let (client, gossip) = (client.to_string(), gossip.to_string());
        let addresses: Vec<String> = peers.iter().map(|p| p.gossip.to_string()).collect();
        let mut arguments = vec!["join", "--client", &client, "--gossip", &gossip];
        arguments.extend(addresses.iter().map(String::as_str));
        Self::start_in(&peers[0].network, name, &arguments)
    }

    /// Starts a node with arguments of the test's own (and so in the default network, unless
    /// they say otherwise), and waits until it serves clients.
    pub fn start(name: &str, arguments: &[&str]) -> Self {
        Self::launch(&[PROGRAM], "distkv", name, arguments)
    }

    /// The same, started by another program that becomes the node's in the end.
    pub fn start_by(prefix: &[String], name: &str, arguments: &[&str]) -> Self {
        let mut command: Vec<&str> = prefix.iter().map(String::as_str).collect();
        command.push(PROGRAM);
        Self::launch(&command, "distkv", name, arguments)
    }

    /// The same in a network of that name.
    pub fn start_in(network: &str, name: &str, arguments: &[&str]) -> Self {
        Self::start_program(PROGRAM, network, name, arguments)
    }

    /// The same with another program of a node than [`PROGRAM`].
    pub fn start_program(program: &str, network: &str, name: &str, arguments: &[&str]) -> Self {
        Self::launch(&[program], network, name, &[arguments, &["--network", network]].concat())
    }

    fn launch(command: &[&str], network: &str, name: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(command[0])
            .args(&command[1..])
            .args(arguments)
            .args(["--name", name, "--json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the node's program starts");
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let sink = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                sink.lock().expect("not poisoned").push((Instant::now(), line));
            }
        });
        let first = first_line(child.stdout.take().expect("piped"));
        let ready: serde_json::Value = serde_json::from_str(&first).unwrap_or_else(|e| {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{name} said {first:?} ({e}); log: {:#?}", log.lock().unwrap())
        });
        let address = |key: &str| ready[key].as_str().unwrap().parse().unwrap();
        let (client, gossip) = (address("client"), address("gossip"));
        let http = ready["http"].as_str().map(|address| address.parse().unwrap());
        let behind_key = arguments.iter().skip_while(|argument| **argument != "--key").nth(1);
        let key = behind_key.map(|file| (*file).to_owned());
        Self { name: name.into(), client, gossip, http, network: network.into(), key, child, log }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What the node wrote to its log so far.
    pub fn log(&self) -> Vec<String> {
        self.log_since(None)
    }

    /// What it wrote after that moment.
    pub fn log_since(&self, since: Option<Instant>) -> Vec<String> {
        self.timed_log(since).into_iter().map(|(_, line)| line).collect()
    }

    /// The same, each line with the time at which it came.
    pub fn timed_log(&self, since: Option<Instant>) -> Vec<(Instant, String)> {
        let log = self.log.lock().unwrap();
        let is_new = |(at, _): &&(Instant, String)| since.is_none_or(|since| *at > since);
        log.iter().filter(is_new).cloned().collect()
    }

    /// SIGKILL: nothing is said to anybody.
    pub fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it can be waited for");
    }

    /// Sends a signal by name, to this process only.
    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Stops the process where it stands, until SIGCONT.
    pub fn freeze(&self) {
        freeze(self.pid());
    }

    /// Waits for the process to end by itself.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "{} does not end: {:#?}", self.name, self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// As an admin, where the node has a cluster key.
    pub fn connect(&self) -> Client {
        Client::enter(self.client, self.key.as_deref())
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> usize {
        let path = format!("/proc/{}/statm", self.pid());
        let text = std::fs::read_to_string(path).unwrap();
        text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }
}

/// Sends a signal by name, to this process only.
pub fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status();
    assert!(status.expect("kill runs").success());
}

/// Stops a process where it stands, until SIGCONT. A signal is not waited for: on a busy machine, threads go on for a
/// moment.
pub fn freeze(pid: u32) {
    signal(pid, "STOP");
    let tasks = format!("/proc/{pid}/task");
    wait_until("the process stands still", || {
        let mut tasks = std::fs::read_dir(&tasks).unwrap();
        let all = tasks.all(|task| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat"));
            // The state follows the name, which may have spaces. What has ended stands still, too.
            stat.map_or(true, |stat| stat.rsplit(") ").next().unwrap().starts_with(['T', 'Z', 'X']))
        });
        all.then_some(())
    });
}

/// The first line that a program says; nothing where it says none in time.
fn first_line(stdout: ChildStdout) -> String {
    let (said, line) = channel();
    std::thread::spawn(move || {
        let mut first = String::new();
        BufReader::new(stdout).read_line(&mut first).expect("readable");
        // Nobody may wait any more.
        let _ = said.send(first);
    });
    line.recv_timeout(PATIENCE).unwrap_or_default()
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A plain, blocking client: one socket, messages as they come.
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    seq: u64,
    pub greeting: Value,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).expect("the node takes connections")
    }

    /// As an admin, where the node asks those who have the cluster's key to prove it.
    pub fn enter(address: SocketAddr, key: Option<&str>) -> Self {
        let mut client = Self::connect(address);
        if let Some(file) = key.filter(|_| field(&client.greeting, "nonce").is_some()) {
            client.log_in_by_key(file);
        }
        client
    }

    pub fn try_connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut client = Self { stream, buffer: Vec::new(), seq: 0, greeting: Value::Nil };
        client.greeting = client.receive()?;
        Ok(client)
    }

    /// Logs in with what is in a key file now.
    fn log_in_by_key(&mut self, file: &str) {
        use distkv_access::secret::key::{Nonces, Side, prove};
        use distkv_secure::key::Purpose;
        let file = std::fs::read_to_string(file).unwrap();
        let file = distkv_secure::key_file::KeyFile::parse(&file).unwrap();
        let key = file.ring.primary().derive(Purpose::AdminLogin);
        let node = field(&self.greeting, "nonce").expect("the node has a cluster key");
        let node = node.as_slice().unwrap().try_into().unwrap();
        let nonces = Nonces { client: [7; 32], node };
        let proof = prove(&key, Side::Client, &nonces).to_vec();
        let nonce = Value::Binary(nonces.client.to_vec());
        let fields = [("typ", "key".into()), ("ident", "*".into()), ("nonce", nonce)];
        let fields = [&fields[..], &[("proof", Value::Binary(proof))]].concat();
        let seq = self.send("auth", &fields).unwrap();
        loop {
            let message = self.receive().expect("answered");
            assert_eq!(field(&message, "error"), None, "{message}");
            assert_eq!(field(&message, "seq"), Some(seq.into()), "{message}");
            if field(&message, "state").is_some_and(|state| state.as_str() == Some("end")) {
                return;
            }
        }
    }

    /// Sends a request and gives its number; fields are added to `action` and `seq`.
    pub fn send(&mut self, action: &str, fields: &[(&str, Value)]) -> std::io::Result<u64> {
        self.seq += 1;
        let mut map =
            vec![("action".into(), action.into()), (Value::from("seq"), Value::from(self.seq))];
        map.extend(fields.iter().map(|(k, v)| (Value::from(*k), v.clone())));
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, &Value::Map(map)).unwrap();
        self.stream.write_all(&bytes)?;
        Ok(self.seq)
    }

    /// The next message, whatever it is.
    pub fn receive(&mut self) -> std::io::Result<Value> {
        loop {
            let mut rest = self.buffer.as_slice();
            if let Ok(value) = rmpv::decode::read_value(&mut rest) {
                let used = self.buffer.len() - rest.len();
                self.buffer.drain(..used);
                return Ok(value);
            }
            let mut chunk = [0; 64 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
                // This process was stopped, and goes on.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a request and waits for its one reply; nothing else may be open.
    pub fn call(&mut self, action: &str, fields: &[(&str, Value)]) -> Value {
        self.send(action, fields).expect("sent");
        self.receive().expect("answered")
    }

    pub fn set(&mut self, path: &[&str], value: Value) -> Value {
        self.call("set_value", &[("path", array(path)), ("value", value)])
    }

    pub fn get(&mut self, path: &[&str]) -> Option<Value> {
        field(&self.call("get_value", &[("path", array(path))]), "value")
    }

    /// A whole subtree: path elements (joined by `/`) to the message's other fields, with paths
    /// made whole again.
    pub fn tree(&mut self, top: &[&str]) -> Vec<(String, Value)> {
        let fields = [("path", array(top)), ("nchain", Value::from(16))];
        self.send("get_tree", &fields).expect("sent");
        let mut items = Vec::new();
        let mut previous: Vec<String> = Vec::new();
        loop {
            let message = self.receive().expect("answered");
            match field(&message, "state").as_ref().and_then(Value::as_str) {
                Some("end") => return items,
                Some(_) => continue,
                None => {}
            }
            let depth = field(&message, "depth").and_then(|d| d.as_u64()).unwrap_or(0) as usize;
            previous.truncate(depth);
            let path = field(&message, "path").unwrap_or(Value::Array(Vec::new()));
            previous.extend(elements(&path).into_iter().map(|e| e.to_string()));
            let content = ["value", "chain", "tock"]
                .map(|key| (Value::from(key), field(&message, key).unwrap_or(Value::Nil)));
            items.push((previous.join("/"), Value::Map(content.to_vec())));
        }
    }
}

/// A path as a plain array.
pub fn array(path: &[&str]) -> Value {
    Value::Array(path.iter().map(|e| Value::from(*e)).collect())
}

fn elements(path: &Value) -> Vec<Value> {
    match path {
        Value::Array(elements) => elements.clone(),
        Value::Ext(3, bytes) => {
            let mut rest = bytes.as_slice();
            let mut elements = Vec::new();
            while !rest.is_empty() {
                elements.push(rmpv::decode::read_value(&mut rest).unwrap());
            }
            elements
        }
        other => panic!("{other} is no path"),
    }
}

/// A field of a message.
pub fn field(message: &Value, key: &str) -> Option<Value> {
    let map = message.as_map()?;
    map.iter().find(|(k, _)| k.as_str() == Some(key)).map(|(_, v)| v.clone())
}

/// Looks again until something holds; false when it never does.
pub fn within_patience(mut look: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !look() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Looks again until something holds; fails the test with `what` when it never does.
pub fn wait_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

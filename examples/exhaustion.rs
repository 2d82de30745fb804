//! Measures what a client that behaves feels while others take all they can get: descriptors, memory,
//! threads, requests. For each, a node of its own; the latencies of one client that reads and writes
//! an entry in turn, one request at a time; and how the node is afterwards.
//!
//! ```sh
//! cargo run --release --example exhaustion
//! cargo run --release --example exhaustion -- --seconds 10 --program path/to/another/distkv-node
//! ```
//!
//! It takes about 10 s and `--seconds` for each of the five rows. For the row of the threads it needs
//! `prlimit` and, as root, `setpriv` (Debian: util-linux), because the system does not limit root's.

#![allow(clippy::disallowed_methods, reason = "it measures")]

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use rmpv::Value;

/// The node may have so many descriptors where clients try to take them.
const DESCRIPTORS: &str = "256";
/// A reply that takes longer has not come.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two requests of the client that is measured.
const PAUSE: Duration = Duration::from_millis(2);
/// An ordinary user, for whom the system counts threads.
const USER: u32 = 54_321;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Measure what a client feels while others exhaust its node
#[derive(Parser)]
#[command(name = "exhaustion")]
struct Arguments {
    /// Seconds of measuring per row
    #[arg(long, default_value_t = 5)]
    seconds: u64,

    /// The node's program [default: the one beside this one]
    #[arg(long)]
    program: Option<PathBuf>,

    /// Only this row: nothing, descriptors, memory, threads or requests
    #[arg(long)]
    only: Option<String>,
}

/// What is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Nothing,
    Descriptors,
    Memory,
    Threads,
    Requests,
}

impl Taken {
    const ALL: [(Self, &str); 5] = [
        (Self::Nothing, "nothing"),
        (Self::Descriptors, "descriptors"),
        (Self::Memory, "memory"),
        (Self::Threads, "threads"),
        (Self::Requests, "requests"),
    ];
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Outcome<()> {
    let beside = || {
        let own = std::env::current_exe()?;
        let folder = own.parent().and_then(Path::parent).ok_or("this program is nowhere")?;
        Outcome::Ok(folder.join("distkv-node"))
    };
    let program = arguments.program.clone().map_or_else(beside, Ok)?;
    let columns = ["taken", "p50", "p99", "longest", "failed", "memory", "afterwards"];
    println!("{}", line(&columns.map(String::from)));
    for (taken, name) in Taken::ALL {
        if arguments.only.as_deref().is_none_or(|only| only == name) {
            let row = measure(taken, &program, Duration::from_secs(arguments.seconds))?;
            println!("{}", line(&[&[name.to_owned()], &row[..]].concat()));
        }
    }
    Ok(())
}

fn line(cells: &[String]) -> String {
    let widths = [12, 9, 9, 9, 14, 9, 0];
    let cells = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
    cells.collect::<Vec<_>>().join(" ").trim_end().to_owned()
}

/// One row: the latencies, what failed, the node's memory, and how it is afterwards.
fn measure(taken: Taken, program: &Path, time: Duration) -> Outcome<Vec<String>> {
    let node = Node::start(taken, program)?;
    let mut good = Client::connect(node.client)?;
    for i in 0..200 {
        good.call(
            "set_value",
            &[("path", path(&["tree", &format!("k{i}")])), ("value", filler())],
        )?;
    }
    let end = Arc::new(AtomicBool::new(false));
    let attacks = attack(taken, &node, &end)?;
    let (mut latencies, mut failed, mut resident) = (Vec::new(), 0, 0);
    let began = Instant::now();
    while began.elapsed() < time {
        for action in ["set_value", "get_value"] {
            let fields = [("path", path(&["good"])), ("value", Value::from("some value"))];
            let from = Instant::now();
            match good.call(action, &fields) {
                Ok(reply) if field(&reply, "error").is_none() => latencies.push(from.elapsed()),
                Ok(_) => failed += 1,
                Err(_) => {
                    failed += 1;
                    // A client that gets no answer comes again.
                    if let Ok(again) = Client::connect(node.client) {
                        good = again;
                    }
                }
            }
            std::thread::sleep(PAUSE);
        }
        resident = resident.max(node.resident_mib());
    }
    let afterwards = node.afterwards(taken, &mut good);
    end.store(true, Ordering::Relaxed);
    for attack in attacks {
        // What an attacker came to is of no interest.
        let _ = attack.join();
    }
    latencies.sort_unstable();
    let at = |share: f64| {
        let place = (latencies.len() as f64 * share) as usize;
        let found = latencies.get(place.min(latencies.len().saturating_sub(1)));
        found.map_or("-".into(), |time| format!("{:.2} ms", time.as_secs_f64() * 1e3))
    };
    let failed = format!("{failed} of {}", latencies.len() + failed);
    Ok(vec![at(0.5), at(0.99), at(1.0), failed, format!("{resident} MiB"), afterwards])
}

type Attack = std::thread::JoinHandle<()>;

/// Begins to take things, until `end`; returns when that is well under way.
fn attack(taken: Taken, node: &Node, end: &Arc<AtomicBool>) -> Outcome<Vec<Attack>> {
    let address = node.client;
    let begun = Arc::new(AtomicUsize::new(0));
    let start = |work: Box<dyn Fn() + Send>| {
        let (end, begun) = (Arc::clone(end), Arc::clone(&begun));
        std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                work();
                begun.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
        })
    };
    let attacks = match taken {
        Taken::Nothing => Vec::new(),
        Taken::Descriptors => {
            // Connections that are kept, and come again where they were closed.
            let kept = std::sync::Mutex::new(Vec::new());
            vec![start(Box::new(move || {
                let Ok(mut kept) = kept.lock() else { return };
                kept.retain(is_open);
                while kept.len() < 400
                    && let Ok(stream) = TcpStream::connect(address)
                {
                    kept.push(stream);
                }
            }))]
        }
        Taken::Memory => {
            let request = encode("get_tree", 1, &[("path", path(&["tree"]))]);
            let deaf = std::sync::Mutex::new(Vec::new());
            let open = start(Box::new(move || {
                let Ok(mut deaf) = deaf.lock() else { return };
                deaf.retain(is_open);
                while deaf.len() < 300
                    && let Ok(mut stream) = TcpStream::connect(address)
                {
                    let _ = stream.set_nonblocking(true);
                    for seq in 1..=100_u64 {
                        let mut request = request.clone();
                        if let Some(last) = request.last_mut() {
                            *last = u8::try_from(seq).unwrap_or(1);
                        }
                        let _ = stream.write(&request);
                    }
                    deaf.push(stream);
                }
            }));
            let write = start(Box::new(move || {
                let Ok(mut client) = Client::connect(address) else { return };
                for i in 0..20 {
                    let at = path(&["tree", &format!("k{i}")]);
                    let _ = client.call("set_value", &[("path", at), ("value", filler())]);
                }
            }));
            vec![open, write]
        }
        Taken::Threads => {
            node.limit_threads("--nproc=1:")?;
            let requests: [(&str, &str); 3] =
                [("snapshot", "x"), ("get_state", "present"), ("get_snapshot", "x")];
            let ask = move |(action, part): (&'static str, &'static str)| {
                move || {
                    let Ok(mut client) = Client::connect(address) else { return };
                    let _ = client.stream.set_read_timeout(Some(Duration::from_millis(300)));
                    let _ = client.call(action, &[(part, Value::from(true))]);
                }
            };
            requests.map(|request| start(Box::new(ask(request)))).into()
        }
        Taken::Requests => (0..4)
            .map(|_| {
                start(Box::new(move || {
                    let Ok(mut client) = Client::connect(address) else { return };
                    let _ = client.stream.set_write_timeout(Some(Duration::from_millis(300)));
                    let mut bytes = Vec::new();
                    for seq in 1..=20_000 {
                        let fields = [("path", path(&["none", "of", "it"]))];
                        bytes.extend(encode("watch", seq, &fields));
                        bytes.extend(encode("get_value", 100_000 + seq, &fields));
                    }
                    let _ = client.stream.write_all(&bytes);
                    let _ = io::copy(&mut client.stream.take(4 << 20), &mut io::sink());
                }))
            })
            .collect(),
    };
    let deadline = Instant::now() + PATIENCE;
    while begun.load(Ordering::Relaxed) < attacks.len() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(attacks)
}

/// Whether the other side has not closed it; takes nothing of what has come.
fn is_open(stream: &TcpStream) -> bool {
    let _ = stream.set_nonblocking(true);
    match stream.peek(&mut [0]) {
        Ok(count) => count > 0,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// A node in a process of its own, with a data directory. It is killed when this is dropped.
struct Node {
    child: Child,
    client: SocketAddr,
    gossip: String,
    network: String,
    program: PathBuf,
    dir: tempfile::TempDir,
}

impl Node {
    fn start(taken: Taken, program: &Path) -> Outcome<Self> {
        let dir = tempfile::tempdir()?;
        let mut program = program.to_owned();
        let mut prefix: Vec<String> = Vec::new();
        if taken == Taken::Descriptors {
            let script = format!("ulimit -n {DESCRIPTORS}; exec \"$@\"");
            prefix.extend(["sh".into(), "-c".into(), script, "sh".into()]);
        }
        if taken == Taken::Threads && is_root() {
            // The program may lie where only root can go.
            let copy = dir.path().join("program");
            std::fs::copy(&program, &copy)?;
            for path in [dir.path(), &copy] {
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
                std::os::unix::fs::chown(path, Some(USER), Some(USER))?;
            }
            program = copy;
            prefix.extend(as_ordinary_user());
        }
        let network = format!("exhaustion-{}-{}", std::process::id(), taken as u8);
        let data = dir.path().join("data").display().to_string();
        let mut command = prefix;
        command.push(program.display().to_string());
        let arguments = ["run", "--name", "n1", "--client", "127.0.0.1:0", "--gossip"];
        command.extend(arguments.map(String::from));
        let arguments = ["127.0.0.1:0", "--json", "--log", "off", "--network", &network];
        command.extend(arguments.map(String::from));
        command.extend(["--data-dir".into(), data]);
        let (child, client, gossip) = start_process(&command)?;
        Ok(Self { child, client, gossip, network, program, dir })
    }

    fn limit_threads(&self, limit: &str) -> Outcome<()> {
        let mut command = if is_root() { as_ordinary_user() } else { Vec::new() };
        let pid = self.child.id().to_string();
        command.extend(["prlimit".into(), "--pid".into(), pid, limit.into()]);
        let (first, rest) = command.split_first().ok_or("no command")?;
        let status = Command::new(first).args(rest).status()?;
        if status.success() { Ok(()) } else { Err("prlimit failed".into()) }
    }

    fn resident_mib(&self) -> u64 {
        let file = format!("/proc/{}/statm", self.child.id());
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
        (pages.unwrap_or(0) * 4096) >> 20
    }

    /// Whether the node can still do what needs a bit of everything.
    fn afterwards(&self, taken: Taken, good: &mut Client) -> String {
        let snapshot = match good.call("snapshot", &[]) {
            Ok(reply) => match field(&reply, "error") {
                None => "ok".to_owned(),
                Some(error) => error.as_str().unwrap_or_default().chars().take(70).collect(),
            },
            Err(error) => format!("no answer ({error})"),
        };
        if taken == Taken::Threads {
            return format!("snapshot: {snapshot}");
        }
        let data = self.dir.path().join("peer").display().to_string();
        let program = self.program.display().to_string();
        let join = [&program, "join", &self.gossip, "--name", "n2", "--client", "127.0.0.1:0"];
        let more = ["--gossip", "127.0.0.1:0", "--json", "--log", "off", "--network"];
        let mut command = ["timeout".to_owned(), "5".to_owned()].to_vec();
        command.extend([&join[..], &more[..]].concat().into_iter().map(String::from));
        command.extend([self.network.clone(), "--data-dir".into(), data]);
        // `timeout` ends it after 5 s, joined or not: then it has said nothing, or where it is.
        let joined = match start_process(&command) {
            Ok((mut child, ..)) => {
                let _ = child.wait();
                "a peer joined"
            }
            Err(_) => "NO PEER COULD JOIN",
        };
        format!("{joined}; snapshot: {snapshot}")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

fn as_ordinary_user() -> Vec<String> {
    let user = USER.to_string();
    ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"].map(String::from).to_vec()
}

/// Starts a node; returns when it serves.
fn start_process(command: &[String]) -> Outcome<(Child, SocketAddr, String)> {
    let (first, rest) = command.split_first().ok_or("no command")?;
    let mut child = Command::new(first)
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut ready = String::new();
    let stdout = child.stdout.take().ok_or("no output")?;
    BufReader::new(stdout).read_line(&mut ready)?;
    let address = |key: &str| {
        let json: serde_json::Value = serde_json::from_str(&ready).ok()?;
        Some(json.get(key)?.as_str()?.to_owned())
    };
    match address("client").zip(address("gossip")) {
        Some((client, gossip)) => Ok((child, client.parse()?, gossip)),
        None => {
            let _ = child.kill();
            let _ = child.wait();
            Err(format!("{} did not start", command.join(" ")).into())
        }
    }
}

/// A plain, blocking client.
struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    seq: u64,
}

impl Client {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut client = Self { stream, buffer: Vec::new(), seq: 0 };
        let greeting = client.receive()?;
        match field(&greeting, "error") {
            None => Ok(client),
            Some(error) => Err(io::Error::other(error.to_string())),
        }
    }

    fn call(&mut self, action: &str, fields: &[(&str, Value)]) -> io::Result<Value> {
        self.seq += 1;
        self.stream.write_all(&encode(action, self.seq, fields))?;
        self.receive()
    }

    fn receive(&mut self) -> io::Result<Value> {
        loop {
            let mut rest = self.buffer.as_slice();
            if let Ok(value) = rmpv::decode::read_value(&mut rest) {
                let used = self.buffer.len() - rest.len();
                self.buffer.drain(..used);
                return Ok(value);
            }
            let mut chunk = [0; 16 << 10];
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.buffer.extend_from_slice(chunk.get(..count).unwrap_or_default()),
            }
        }
    }
}

/// A request; `seq` comes last.
fn encode(action: &str, seq: u64, fields: &[(&str, Value)]) -> Vec<u8> {
    let mut map: Vec<(Value, Value)> = vec![("action".into(), action.into())];
    map.extend(fields.iter().map(|(key, value)| (Value::from(*key), value.clone())));
    map.push(("seq".into(), seq.into()));
    let mut bytes = Vec::new();
    // Into memory nothing fails.
    let _ = rmpv::encode::write_value(&mut bytes, &Value::Map(map));
    bytes
}

fn path(elements: &[&str]) -> Value {
    Value::Array(elements.iter().map(|element| Value::from(*element)).collect())
}

fn filler() -> Value {
    Value::from("x".repeat(50_000))
}

fn field(message: &Value, key: &str) -> Option<Value> {
    let map = message.as_map()?;
    map.iter().find(|(name, _)| name.as_str() == Some(key)).map(|(_, value)| value.clone())
}

//! Real nodes as processes: this program starts itself again with the command line of a node.
//! They end when this program does, however it ends.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use distkv::client::{Connection, HostPort, Options};

/// Tells this program that it is to be a node.
const AS_NODE: &str = "DISTKV_EXAMPLE_AS_NODE";

/// To be called first: where this process was started as a node, that is all it is.
pub fn become_node_if_asked() -> Option<ExitCode> {
    std::env::var_os(AS_NODE)?;
    std::thread::spawn(|| {
        // The other end is closed when the program that started us ends.
        let _ = std::io::stdin().read(&mut [0; 1]);
        std::process::exit(0);
    });
    Some(distkv::cli::run(std::env::args_os()))
}

/// A node. Dropping it is like pulling its plug.
pub struct Node {
    pub name: String,
    pub client: SocketAddr,
    pub gossip: SocketAddr,
    process: Child,
    _stdin: Option<ChildStdin>,
}

impl Node {
    /// Starts a node, and waits until it serves clients. `arguments` are those of the program;
    /// ports that are not told are chosen by the system.
    pub fn start(name: &str, arguments: &[&str]) -> Result<Node, String> {
        let failed = |what: &str, why: String| format!("node {name} {what}: {why}");
        let program =
            std::env::current_exe().map_err(|e| failed("has no program", e.to_string()))?;
        let mut given: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        for option in ["--client", "--gossip"] {
            if !arguments.contains(&option) {
                given.extend([option, "127.0.0.1:0"].map(OsString::from));
            }
        }
        let mut process = Command::new(program)
            .args(given)
            .args(["--name", name, "--json"])
            .env(AS_NODE, "1")
            .env("DISTKV_LOG", std::env::var("DISTKV_LOG").unwrap_or_else(|_| "off".into()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| failed("does not start", e.to_string()))?;
        let stdin = process.stdin.take();
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            let read = BufReader::new(stdout).read_line(&mut line);
            read.map_err(|e| failed("says nothing", e.to_string()))?;
        }
        let ready: serde_json::Value =
            serde_json::from_str(&line).map_err(|e| failed("did not start", e.to_string()))?;
        let address = |key: &str| {
            let text = ready.get(key).and_then(|v| v.as_str()).unwrap_or_default();
            text.parse::<SocketAddr>().map_err(|e| failed("has no address", e.to_string()))
        };
        let (client, gossip) = (address("client")?, address("gossip")?);
        Ok(Node { name: name.to_owned(), client, gossip, process, _stdin: stdin })
    }

    /// Connects to it.
    pub async fn connect(&self) -> Result<Connection, String> {
        let options = Options { window: Some(4096), ..Options::default() };
        let connected = Connection::connect(&HostPort::from(self.client), options).await;
        connected.map_err(|e| format!("node {}: {e}", self.name))
    }

    /// The process, for signals and `/proc`.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Resident memory, in bytes; 0 where the system does not tell.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

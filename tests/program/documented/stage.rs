//! Where scenes are played: hosts with the names that documents use, a folder to work in, and the
//! processes that a scene leaves running.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::hosts::{Hosts, gossip_addr};
use super::processes::{PATIENCE, PROGRAM, bench_program};

/// The hosts, by number, and what they are called.
const NAMES: [&str; 3] = [
    "n1 n1.example.org a a.example.org other",
    "n2 n2.example.org b b.example.org",
    "n3 n3.example.org",
];
/// Another address of the first host.
const OTHER_ADDRESS: &str = "10.0.0.1";

/// A line of a scene.
pub struct Row {
    /// On which host it is typed.
    host: usize,
    /// As it is printed, on one line.
    pub command: &'static str,
    act: Act,
}

/// What is done with a command, and what is expected of it.
enum Act {
    /// Run to its end.
    Run { codes: &'static [i32], says: &'static [&'static str] },
    /// Started, and left running once it says this.
    Up { says: &'static str },
    /// Started; when it says this, it is ended with Ctrl-C.
    Follow { says: &'static str },
    /// Started; when it says this, another command is run, and it ends by itself.
    Until { says: &'static str, then: &'static str },
    /// Takes too long here: only what its options are is checked.
    Parse,
    /// Not printed anywhere: the scene needs it.
    Hidden,
    /// Not printed: started, and left running once it says this.
    HiddenUp { says: &'static str },
    /// Not printed: ends what was left running on this host.
    Down,
}

/// `command` must end well, and say all of this.
pub const fn run(host: usize, command: &'static str, says: &'static [&'static str]) -> Row {
    Row { host, command, act: Act::Run { codes: &[0], says } }
}

/// The same, with an exit code that need not be 0.
pub const fn run_to(
    host: usize,
    command: &'static str,
    codes: &'static [i32],
    says: &'static [&'static str],
) -> Row {
    Row { host, command, act: Act::Run { codes, says } }
}

/// `command` runs on.
pub const fn up(host: usize, command: &'static str, says: &'static str) -> Row {
    Row { host, command, act: Act::Up { says } }
}

/// `command` runs until Ctrl-C.
pub const fn follow(host: usize, command: &'static str, says: &'static str) -> Row {
    Row { host, command, act: Act::Follow { says } }
}

/// `command` runs until another one has been run.
pub const fn until(
    host: usize,
    command: &'static str,
    says: &'static str,
    then: &'static str,
) -> Row {
    Row { host, command, act: Act::Until { says, then } }
}

/// `command` is understood; what it does is tested elsewhere, with smaller numbers.
pub const fn parse(command: &'static str) -> Row {
    Row { host: 0, command, act: Act::Parse }
}

/// Something that the scene needs besides.
pub const fn hidden(host: usize, command: &'static str) -> Row {
    Row { host, command, act: Act::Hidden }
}

/// Something that runs on, and that the scene needs besides.
pub const fn hidden_up(host: usize, command: &'static str, says: &'static str) -> Row {
    Row { host, command, act: Act::HiddenUp { says } }
}

/// What runs on a host ends.
pub const fn down(host: usize) -> Row {
    Row { host, command: "", act: Act::Down }
}

impl Row {
    /// Whether documents do not have it.
    pub fn is_hidden(&self) -> bool {
        matches!(self.act, Act::Hidden | Act::HiddenUp { .. } | Act::Down)
    }
}

/// A process that was left running.
struct Running {
    host: usize,
    child: Child,
    output: PathBuf,
    command: String,
}

struct Stage {
    hosts: Hosts,
    folder: tempfile::TempDir,
    running: Vec<Running>,
    count: usize,
}

/// Plays a scene, in a network of its own.
pub fn play(rows: &[Row]) {
    let mut stage = Stage::new();
    for row in rows {
        stage.perform(row);
    }
    stage.end(None);
}

impl Stage {
    fn new() -> Self {
        let has_jq = Command::new("jq").arg("--version").output().is_ok();
        assert!(has_jq, "documents pipe JSON into `jq`: install it (Debian: apt-get install jq)");
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let addresses = NAMES
            .iter()
            .enumerate()
            .map(|(host, names)| format!("{} {names}\n", gossip_addr(host).ip()));
        let table: String = addresses.collect();
        fs::write(at("hosts"), format!("127.0.0.1 localhost\n{table}")).unwrap();
        let release = at("work/target/release");
        for folder in [&at("bin"), &release] {
            fs::create_dir_all(folder).unwrap();
            symlink(PROGRAM, folder.join("distkv-node")).unwrap();
            symlink(bench_program(), folder.join("distkv-bench")).unwrap();
        }
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/distkv-files");
        fs::copy(files.join("saved-state.bin"), at("work/saved-state.bin")).unwrap();
        fs::copy(files.join("change-log.bin"), at("work/changes.bin")).unwrap();
        let tls = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls");
        for file in ["ca.pem", "node.pem", "node.key", "joe.pem", "joe.key", "joe.secret"] {
            fs::copy(tls.join(file), at("work").join(file)).unwrap();
        }
        fs::write(at("work/still.jpg"), b"\xff\xd8\xff").unwrap();
        // In a namespace of mounts that is this test's own.
        must(Command::new("mount").arg("--bind").arg(at("hosts")).arg("/etc/hosts"));
        must(Command::new("mount").args(["-t", "tmpfs", "none", "/var/lib"]));
        fs::create_dir("/var/lib/distkv").unwrap();
        let hosts = Hosts::new(&[0, 0, 0]);
        let stage = Self { hosts, folder, running: Vec::new(), count: 0 };
        stage.ip(0, &["addr", "add", &format!("{OTHER_ADDRESS}/32"), "dev", "lo"]);
        for host in 1..NAMES.len() {
            let via = gossip_addr(0).ip().to_string();
            stage.ip(host, &["route", "add", OTHER_ADDRESS, "via", &via]);
        }
        stage
    }

    fn ip(&self, host: usize, arguments: &[&str]) {
        let prefix = self.hosts.prefix(host);
        must(Command::new(&prefix[0]).args(&prefix[1..]).arg("ip").args(arguments));
    }

    fn perform(&mut self, row: &Row) {
        println!("host {}: {}", row.host, row.command);
        match &row.act {
            Act::Run { codes, says } => {
                let mut running = self.start(row.host, row.command);
                let status = running.wait();
                let said = running.said();
                let code = status.code().unwrap_or(-1);
                assert!(codes.contains(&code), "{}: exit code {code}\n{said}", row.command);
                for part in *says {
                    assert!(said.contains(part), "{}: no {part:?} in\n{said}", row.command);
                }
            }
            Act::Up { says } | Act::HiddenUp { says } => {
                let mut running = self.start(row.host, row.command);
                running.wait_for(says);
                self.running.push(running);
            }
            Act::Follow { says } => {
                let mut running = self.start(row.host, row.command);
                running.wait_for(says);
                running.interrupt();
            }
            Act::Until { says, then } => {
                let mut running = self.start(row.host, row.command);
                running.wait_for(says);
                self.perform(&hidden(row.host, then));
                assert!(running.wait().success(), "{}\n{}", row.command, running.said());
            }
            Act::Parse => {
                let help = format!("{} --help", row.command);
                let mut running = self.start(row.host, &help);
                assert!(running.wait().success(), "{}", running.said());
            }
            Act::Hidden => {
                let mut running = self.start(row.host, row.command);
                assert!(running.wait().success(), "{}\n{}", row.command, running.said());
            }
            Act::Down => self.end(Some(row.host)),
        }
    }

    /// Ends what was left running, on one host or on all, as Ctrl-C does.
    fn end(&mut self, host: Option<usize>) {
        let (end, stay) = std::mem::take(&mut self.running)
            .into_iter()
            .partition(|running: &Running| host.is_none_or(|host| running.host == host));
        self.running = stay;
        let end: Vec<Running> = end;
        end.into_iter().for_each(|mut running| running.interrupt());
    }

    /// A command as a newcomer types it, into a shell, on a host.
    fn start(&mut self, host: usize, command: &str) -> Running {
        self.count += 1;
        let output = self.folder.path().join(format!("output-{}", self.count));
        File::create(&output).unwrap();
        let append = || File::options().append(true).open(&output).unwrap();
        let prefix = self.hosts.prefix(host);
        // Where an alias is used, it was made before.
        let script = match command.starts_with("dk ") {
            true => {
                format!("shopt -s expand_aliases\nalias dk=target/release/distkv-node\n{command}")
            }
            false => command.to_owned(),
        };
        // As one would who works on a node with a cluster key.
        let has_key = self.running.iter().any(|node| node.command.contains("--key key"));
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.folder.path().join("bin").display().to_string();
        let child = Command::new(&prefix[0])
            .args(&prefix[1..])
            .args(["bash", "-c", &script])
            .current_dir(self.folder.path().join("work"))
            .env("PATH", format!("{bin}:{path}"))
            .env_remove("DISTKV_CONNECT")
            .env_remove("DISTKV_LOG")
            .env_remove("DISTKV_TICKET")
            .envs(has_key.then_some(("DISTKV_KEY", "key")))
            .stdin(Stdio::null())
            .stdout(append())
            .stderr(append())
            .process_group(0)
            .spawn()
            .unwrap();
        Running { host, child, output, command: command.to_owned() }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // A scene that fails leaves nothing behind.
        for running in &mut self.running {
            running.signal("KILL");
            let _ = running.child.wait();
        }
    }
}

impl Running {
    fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap()).into_owned()
    }

    fn signal(&self, name: &str) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-s", name, "--", &group]).status();
    }

    fn wait_for(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.said().contains(text) {
            let ended = self.child.try_wait().unwrap();
            let is_late = Instant::now() > deadline;
            if is_late || ended.is_some() {
                self.signal("KILL");
                panic!("{}: no {text:?} ({ended:?}) in\n{}", self.command, self.said());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + 2 * PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            if Instant::now() > deadline {
                self.signal("KILL");
                panic!("{}: does not end; it said\n{}", self.command, self.said());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ctrl-C: a node ends well; a command that follows something is ended by the signal.
    fn interrupt(&mut self) {
        self.signal("INT");
        let status = self.wait();
        let is_good = status.success() || status.code().is_none() || status.code() == Some(130);
        assert!(is_good, "{}: {status} after Ctrl-C\n{}", self.command, self.said());
    }
}

fn must(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
}

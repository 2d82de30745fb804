//! The servers that a comparison starts: on which cores they run, where their files are, and that
//! nothing of them stays, however it ends.

use std::fs::{self, DirBuilder};
use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use distkv_bench::process::{Process, Usage};
use distkv_bench::wire::Protocol;
use distkv_command::error::CliError;
use distkv_command::say;
use distkv_command::signals::on_ends;
use distkv_runtime as rt;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;

use super::talk::Talk;
use crate::stores::Store;

/// How long a server may take to start.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long an answer is waited for while a server starts, before it is asked again.
const AGAIN: Duration = Duration::from_millis(500);
/// How long a node may take to say goodbye; its own limit is shorter.
const GOODBYE_MAX: Duration = Duration::from_secs(10);
/// Memory disks, the best first; else the folder for temporary files.
const MEMORY_DISKS: [&str; 1] = ["/dev/shm"];
/// What a program that was ended by Ctrl-C exits with.
const INTERRUPTED: i32 = 130;

/// Where servers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cores {
    /// Wherever the system puts them.
    All,
    /// On the one of [`Pins`].
    One,
}

/// The cores of servers, and of what makes load.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pins {
    pub(crate) server: Option<usize>,
    pub(crate) load: Option<usize>,
}

/// All that runs and lies about because of a comparison. Gone when the last clone is.
#[derive(Clone)]
pub(crate) struct Lab(Arc<Inner>);

struct Inner {
    /// Those that run; none when no more may be started.
    children: Mutex<Option<Vec<Child>>>,
    folder: PathBuf,
    pins: Pins,
    /// How many cores this process had before it was bound to one.
    cores: usize,
    network: String,
}

impl Lab {
    /// From here on, SIGINT and SIGTERM end what was started, and then this process.
    pub(crate) fn open(pins: Pins) -> Result<Self, CliError> {
        let parent = MEMORY_DISKS.iter().map(PathBuf::from).find(|path| path.is_dir());
        let name = format!("distkv-bench-{:016x}", rt::random_u64());
        let folder = parent.unwrap_or_else(std::env::temp_dir).join(&name);
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|e| CliError::Failure(format!("cannot make {}: {e}", folder.display())))?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let children = Mutex::new(Some(Vec::new()));
        let lab = Self(Arc::new(Inner { children, folder, pins, cores, network: name }));
        let to_end = Arc::downgrade(&lab.0);
        on_ends(move |_| {
            if let Some(inner) = to_end.upgrade() {
                inner.end();
            }
            std::process::exit(INTERRUPTED);
        })?;
        Ok(lab)
    }

    /// A name for a network that no other run has.
    pub(crate) fn network(&self) -> String {
        self.0.network.clone()
    }

    /// After an interruption this does not return: that servers are gone then is no failure to be told, and the
    /// process ends as soon as nothing is left of them.
    pub(crate) fn stop_if_interrupted(&self) {
        while self.0.children.lock().is_none() {
            std::thread::park();
        }
    }

    /// A folder for a server.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf, CliError> {
        let folder = self.0.folder.join(name);
        let made = fs::create_dir_all(&folder);
        made.map_err(|e| CliError::Failure(format!("cannot make {}: {e}", folder.display())))?;
        Ok(folder)
    }

    /// A program that is to run on some cores, and to hear and say nothing.
    pub(crate) fn command(&self, program: &Path, cores: Cores) -> Command {
        let mut command = match self.0.pins.server.filter(|_| cores == Cores::One) {
            None => Command::new(program),
            Some(core) => {
                let mut command = Command::new("taskset");
                command.args(["-c", &core.to_string()]).arg(program);
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    /// Starts it; its output can be read if it was not said to be null.
    pub(crate) fn start(
        &self,
        store: &Store,
        mut command: Command,
    ) -> Result<(Running, Option<std::process::ChildStdout>), CliError> {
        let mut children = self.0.children.lock();
        let Some(children) = children.as_mut() else { return Err(store.failed("all is over")) };
        let mut child = command.spawn().map_err(|error| store.failed(&error.to_string()))?;
        let (pid, stdout) = (child.id(), child.stdout.take());
        children.push(child);
        Ok((Running { lab: self.clone(), pid }, stdout))
    }

    /// Starts it, and waits for the line of JSON that it says when it is ready.
    pub(crate) fn start_and_hear(
        &self,
        store: &Store,
        command: Command,
    ) -> Result<(Running, Json), CliError> {
        let (running, stdout) = self.start(store, command)?;
        let mut line = String::new();
        if let Some(stdout) = stdout {
            let read = BufReader::new(stdout).read_line(&mut line);
            read.map_err(|error| store.failed(&error.to_string()))?;
        }
        let said = serde_json::from_str(&line);
        Ok((running, said.map_err(|_| store.failed("it does not get ready"))?))
    }

    /// Binds this process to the core that makes load, or to none. What it starts inherits that, and so
    /// this comes first.
    pub(crate) fn pin_load(&self, cores: Cores) {
        let Pins { load: Some(core), .. } = self.0.pins else { return };
        let list = match cores {
            Cores::One => core.to_string(),
            Cores::All => format!("0-{}", self.0.cores.max(core + 1) - 1),
        };
        let pid = std::process::id().to_string();
        let mut command = Command::new("taskset");
        command.args(["-a", "-p", "-c", &list, &pid]).stdout(Stdio::null()).stderr(Stdio::null());
        if !command.status().is_ok_and(|status| status.success()) {
            say::warning(&format!("cannot bind the load to core {list}"));
        }
    }
}

impl Inner {
    /// Ends all children, by their ids, and removes their files.
    fn end(&self) {
        for mut child in self.children.lock().take().unwrap_or_default() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end();
    }
}

/// A child. It is ended when this is dropped.
pub(crate) struct Running {
    lab: Lab,
    pub(super) pid: u32,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut children = self.lab.0.children.lock();
        let Some(children) = children.as_mut() else { return };
        let Some(index) = children.iter().position(|child| child.id() == self.pid) else { return };
        let mut child = children.swap_remove(index);
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Running {
    /// Lets a node say goodbye to its network before it ends: SIGTERM, and a few seconds.
    pub(crate) fn leave(&self) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { return };
        if kill_process(pid, Signal::TERM).is_err() {
            return;
        }
        let until = rt::now_ns() + GOODBYE_MAX.as_nanos() as u64;
        while !self.has_ended() && rt::now_ns() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn has_ended(&self) -> bool {
        let mut children = self.lab.0.children.lock();
        let mut children = children.iter_mut().flatten();
        let child = children.find(|child| child.id() == self.pid);
        child.is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }
}

/// A running server.
pub(crate) struct Server {
    pub(crate) child: Running,
    /// Where clients go.
    pub(crate) address: SocketAddr,
    /// Where other servers go, if that must be told.
    pub(crate) inner: String,
}

impl Server {
    pub(crate) fn process(&self) -> Process {
        Process { pid: self.child.pid }
    }

    /// What it has used so far.
    pub(super) fn usage(&self) -> Option<Usage> {
        self.process().usage()
    }

    /// Waits until somebody listens.
    pub(crate) fn listens(&self, store: &Store) -> Result<(), CliError> {
        let until = rt::now_ns() + PATIENCE.as_nanos() as u64;
        while TcpStream::connect(self.address).is_err() {
            if rt::now_ns() > until {
                return Err(store.failed("it does not listen"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Waits until it answers a read.
    pub(crate) fn wait(&self, store: &Store) -> Result<(), CliError> {
        self.listens(store)?;
        let until = rt::now_ns() + PATIENCE.as_nanos() as u64;
        loop {
            let protocol = store.protocol();
            let asked = Talk::connect(protocol, self.address)
                .and_then(|talk| talk.with_patience(AGAIN))
                .and_then(|mut talk| talk.asks(|tag, out| protocol.get(0, tag, out)));
            match asked {
                Ok(_) => return Ok(()),
                Err(error) if rt::now_ns() > until => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

/// An address that was free a moment ago: most servers do not tell which one they took.
pub(crate) fn free_port() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr())
}

/// Where a program is.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // Servers are often where only an administrator looks.
    let more = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let mut folders = std::env::split_paths(&path).chain(more);
    folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_installed_is_not_found() {
        assert_eq!(find("no-such-program-here"), None);
        assert!(find("sh").is_some());
    }
}

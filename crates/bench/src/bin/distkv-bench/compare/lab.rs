//! The servers that a comparison starts: on which cores they run, where their files are, and that
//! nothing of them stays, however it ends.

use std::fs::{self, DirBuilder};
use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
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
/// The same for a node that fetches everything first.
pub(crate) const PATIENCE_WITH_FETCH: Duration = Duration::from_secs(300);
/// How long a start may take before it is looked why.
const SOON: Duration = Duration::from_secs(1);
/// How long a node may take to say goodbye; its own limit is shorter.
const GOODBYE_MAX: Duration = Duration::from_secs(10);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(5);
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
    children: Mutex<Option<Vec<Started>>>,
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
    pub(crate) fn start(&self, store: &Store, command: Command) -> Result<Running, CliError> {
        Ok(self.spawn(store, command, Goodbye::None)?.0)
    }

    fn spawn(
        &self,
        store: &Store,
        mut command: Command,
        goodbye: Goodbye,
    ) -> Result<(Running, Option<ChildStdout>, Option<ChildStderr>), CliError> {
        if goodbye == Goodbye::Said {
            // Ctrl-C is for this process, which tells the node once: a second signal would cut its farewell short.
            command.process_group(0);
        }
        let mut children = self.0.children.lock();
        let Some(children) = children.as_mut() else { return Err(store.failed("all is over")) };
        let mut child = command.spawn().map_err(|error| store.failed(&error.to_string()))?;
        let (pid, stdout, stderr) = (child.id(), child.stdout.take(), child.stderr.take());
        children.push(Started { child, goodbye, is_told: false });
        Ok((Running { lab: self.clone(), pid }, stdout, stderr))
    }

    /// Starts it, and waits for the line of JSON that it says when it is ready. If its standard error is piped, its
    /// last words are in the error.
    pub(crate) fn start_and_hear(
        &self,
        store: &Store,
        command: Command,
        wait: &Wait<'_>,
    ) -> Result<(Running, Json), CliError> {
        let (running, stdout, stderr) = self.spawn(store, command, wait.goodbye)?;
        let words = LastWords::listen(stderr).map_err(|error| store.failed(&error.to_string()))?;
        let heard = first_line(stdout, wait);
        let failed = |why: &str, words: Option<String>| {
            let words = words.map(|words| format!(": {words}")).unwrap_or_default();
            store.failed(&format!("{why}{words}"))
        };
        match heard {
            Ok(Some(line)) => match serde_json::from_str(&line) {
                Ok(said) => Ok((running, said)),
                // Its end, in most cases.
                Err(_) => {
                    drop(running);
                    Err(failed("it does not get ready", words.at_its_end()))
                }
            },
            Ok(None) => {
                let why = format!("it does not get ready within {:?}", wait.patience);
                // What it says when it is ended is not why.
                let words = words.so_far();
                drop(running);
                Err(failed(&why, words))
            }
            Err(error) => Err(error),
        }
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
        // While they are ended, others may see that all is over.
        let mut children = self.children.lock().take().unwrap_or_default();
        children.iter_mut().for_each(Started::tell);
        children.into_iter().for_each(Started::end);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether a server says goodbye before it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goodbye {
    /// To nobody: all that it knows ends, too.
    None,
    /// To a network that goes on without it.
    Said,
}

/// How a start is waited for.
pub(crate) struct Wait<'a> {
    /// How long it may take.
    pub(crate) patience: Duration,
    /// What is looked at once, if it takes longer than a moment. An error ends the wait.
    pub(crate) look: &'a dyn Fn() -> Result<(), CliError>,
    /// How it ends.
    pub(crate) goodbye: Goodbye,
}

impl Wait<'_> {
    /// For a server that nobody outside knows.
    pub(crate) const fn of(patience: Duration) -> Wait<'static> {
        Wait { patience, look: &|| Ok(()), goodbye: Goodbye::None }
    }
}

/// What a server says first; empty if it ends without a word, none if it takes too long.
fn first_line(stdout: Option<ChildStdout>, wait: &Wait<'_>) -> Result<Option<String>, CliError> {
    let Some(stdout) = stdout else { return Ok(Some(String::new())) };
    let (told, hears) = sync_channel(1);
    let failed = |error: io::Error| CliError::Failure(format!("no thread for a server: {error}"));
    rt::spawn_thread("hears", move || {
        let mut line = String::new();
        // What cannot be read is no line of JSON.
        let _ = BufReader::new(stdout).read_line(&mut line);
        let _ = told.send(line);
    })
    .map_err(failed)?;
    let soon = SOON.min(wait.patience);
    let mut heard = hears.recv_timeout(soon);
    if heard == Err(RecvTimeoutError::Timeout) {
        (wait.look)()?;
        heard = hears.recv_timeout(wait.patience.saturating_sub(soon));
    }
    match heard {
        Ok(line) => Ok(Some(line)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Ok(Some(String::new())),
    }
}

/// The last line that a server says on standard error, if that is piped.
struct LastWords {
    last: Arc<Mutex<Option<String>>>,
    listener: Option<std::thread::JoinHandle<()>>,
}

impl LastWords {
    fn listen(stderr: Option<ChildStderr>) -> io::Result<Self> {
        let last = Arc::new(Mutex::new(None));
        let Some(stderr) = stderr else { return Ok(Self { last, listener: None }) };
        let heard = Arc::clone(&last);
        let listener = rt::spawn_thread("last words", move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                *heard.lock() = Some(words_of(&line));
            }
        })?;
        Ok(Self { last, listener: Some(listener) })
    }

    fn so_far(&self) -> Option<String> {
        self.last.lock().clone()
    }

    /// Of one that has ended.
    fn at_its_end(self) -> Option<String> {
        if let Some(listener) = self.listener {
            let _ = listener.join();
        }
        self.last.lock().clone()
    }
}

/// What a line says: of a log's line without its time, level and module, and of an error of a command with `--json` its
/// text.
fn words_of(line: &str) -> String {
    if let Ok(said) = serde_json::from_str::<Json>(line)
        && let Some(text) = said.get("error").and_then(Json::as_str)
    {
        return text.to_owned();
    }
    let rest =
        line.split_once(": ").filter(|(head, _)| head.starts_with(|c: char| c.is_ascii_digit()));
    rest.map_or(line, |(_, rest)| rest).to_owned()
}

/// A child, and how it ends.
struct Started {
    child: Child,
    goodbye: Goodbye,
    /// It knows that it is to end. A second signal would end it at once.
    is_told: bool,
}

impl Started {
    /// Tells it to say goodbye, if it does that.
    fn tell(&mut self) {
        if self.goodbye == Goodbye::None || self.is_told || !self.runs() {
            return;
        }
        self.is_told = true;
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Lets it say goodbye, if it does that, for a few seconds, and ends it.
    fn end(mut self) {
        self.tell();
        let until = rt::now_ns() + GOODBYE_MAX.as_nanos() as u64;
        while self.is_told && self.runs() && rt::now_ns() < until {
            std::thread::sleep(LOOK);
        }
        self.kill();
    }

    fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A child. It is ended when this is dropped, as it ends.
pub(crate) struct Running {
    lab: Lab,
    pub(super) pid: u32,
}

impl Drop for Running {
    fn drop(&mut self) {
        let until = rt::now_ns() + GOODBYE_MAX.as_nanos() as u64;
        while !self.is_ended(until) {
            std::thread::sleep(LOOK);
        }
    }
}

impl Running {
    /// Ends it, unless it still says goodbye. Until it is gone it stays in the list: who is interrupted meanwhile waits
    /// for it, too.
    fn is_ended(&self, until: u64) -> bool {
        let mut children = self.lab.0.children.lock();
        let Some(children) = children.as_mut() else { return true };
        let is_own = |started: &Started| started.child.id() == self.pid;
        let Some(index) = children.iter().position(is_own) else { return true };
        let says_goodbye = children.get_mut(index).is_some_and(|started| {
            started.tell();
            started.is_told && started.runs() && rt::now_ns() < until
        });
        if !says_goodbye {
            children.swap_remove(index).kill();
        }
        !says_goodbye
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
    fn last_words_are_told_without_what_surrounds_them() {
        for (line, words) in [
            (
                "2026-11-27T21:16:45Z  INFO distkv::node: no peer: 10.0.0.9:27587: refused",
                "no peer: 10.0.0.9:27587: refused",
            ),
            (r#"{"error":"it is a client port","exit_code":1}"#, "it is a client port"),
            ("error: no memory", "error: no memory"),
            ("", ""),
        ] {
            assert_eq!(words_of(line), words);
        }
    }

    #[test]
    fn what_is_not_installed_is_not_found() {
        assert_eq!(find("no-such-program-here"), None);
        assert!(find("sh").is_some());
    }
}

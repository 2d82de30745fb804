//! Nodes as services: a start by what there is, the check of a configuration file, what a service manager and its
//! journal are told, restarts of one node after the other, and scheduled snapshots.

mod config;
mod notify;
mod rolling;
mod scheduled;
mod starts;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::processes::{PATIENCE, PROGRAM, signal};

/// A process whose log is read while it runs. It is killed when this is dropped.
struct Service {
    child: Child,
    log: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Service {
    fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).envs(environment.iter().copied());
        command.env_remove("DISTKV_LOG").stdin(Stdio::null()).stdout(Stdio::null());
        Self::of(command.stderr(Stdio::piped()))
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (lines, sink): (ChildStderr, _) = (child.stderr.take().unwrap(), Arc::clone(&log));
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                let mut log = sink.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        Self { child, log, reader: Some(reader) }
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    fn wait_for(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.log().contains(text) {
            let ended = self.child.try_wait().unwrap();
            let is_over = ended.is_some() || Instant::now() > deadline;
            assert!(!is_over, "no {text:?} ({ended:?}) in {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// The exit code, once it has ended and its log is read.
    fn ended(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.reader.take().into_iter().for_each(|reader| reader.join().unwrap());
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(&mut self) {
        self.signal("TERM");
        assert_eq!(self.ended(), Some(0), "{}", self.log());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write(path: &Path, text: &str) -> String {
    std::fs::write(path, text).unwrap();
    path.display().to_string()
}

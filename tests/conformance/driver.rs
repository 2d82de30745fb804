//! The process that has the clients of one language: lines of JSON go in and come out. It ends with its scenario,
//! and what it does not answer in time fails that, instead of holding up the run.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::play::Failure;

/// The variable that names the rule which a driver is to break.
const PLANTED: &str = "DISTKV_PLANTED";
/// How long a driver may take to end by itself.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// A longer answer is none.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// So much of the end of its log is shown.
const LOG_BYTES_MAX: usize = 4_000;
/// Answers that nobody has asked for yet.
const ANSWERS_MAX: usize = 16;

/// A driver. It is ended when this is dropped.
pub(crate) struct Driver {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
    log: File,
    /// All answers must be there by then.
    deadline: Instant,
}

impl Driver {
    /// Starts it by a shell's command; it breaks the planted rule, if there is one.
    pub(crate) fn start(
        command: &str,
        planted: Option<&str>,
        deadline: Instant,
    ) -> Result<Driver, Failure> {
        let told = |error: std::io::Error| Failure::Setup(format!("{command}: {error}"));
        let log = tempfile::tempfile().map_err(told)?;
        let mut process = Command::new("sh");
        process.args(["-c", &format!("exec {command}")]);
        process.current_dir(env!("CARGO_MANIFEST_DIR")).env_remove(PLANTED);
        process.envs(planted.map(|name| (PLANTED, name)));
        process.stdin(Stdio::piped()).stdout(Stdio::piped());
        process.stderr(log.try_clone().map_err(told)?);
        let mut child = process.spawn().map_err(told)?;
        let orders = child.stdin.take();
        let (said, answers) = sync_channel(ANSWERS_MAX);
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || read(stdout, &said));
        }
        Ok(Driver { child, orders, answers, log, deadline })
    }

    /// Gives an order; the answer.
    pub(crate) fn tell(&mut self, order: &Json) -> Result<Json, Failure> {
        let ended = || Failure::Client(format!("the driver has ended at {order}"));
        let orders = self.orders.as_mut().ok_or_else(ended)?;
        writeln!(orders, "{order}").and_then(|()| orders.flush()).map_err(|_| ended())?;
        let left = self.deadline.saturating_duration_since(Instant::now());
        let answer = match self.answers.recv_timeout(left) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Disconnected) => return Err(ended()),
            Err(RecvTimeoutError::Timeout) => {
                return Err(Failure::Client(format!("time is up: no answer to {order}")));
            }
        };
        let told = |error| Failure::Client(format!("{order} is answered with {answer:?}: {error}"));
        serde_json::from_str(&answer).map_err(told)
    }

    /// Until when all must have been answered.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The end of what it wrote to stderr.
    pub(crate) fn log(&self) -> String {
        let length = self.log.metadata().map_or(0, |file| file.len());
        let mut end = vec![0; LOG_BYTES_MAX];
        // The place where the driver writes on is not touched.
        let from = length.saturating_sub(u64::try_from(LOG_BYTES_MAX).unwrap_or(u64::MAX));
        match self.log.read_at(&mut end, from) {
            Ok(count) => String::from_utf8_lossy(end.get(..count).unwrap_or_default()).into_owned(),
            Err(error) => format!("its log cannot be read: {error}"),
        }
    }
}

impl Drop for Driver {
    /// The end of its input tells it to end. What it has failed to close dies with it.
    fn drop(&mut self) {
        self.orders = None;
        let deadline = Instant::now() + END_PATIENCE;
        for _ in 0..=ANSWERS_MAX {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.answers.recv_timeout(left).is_err() {
                break;
            }
        }
        // Its output has ended, or it takes too long.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Passes a driver's lines on, to the end.
fn read(stdout: ChildStdout, said: &SyncSender<String>) {
    let mut lines = BufReader::new(stdout);
    loop {
        let mut line = String::new();
        match (&mut lines).take(LINE_BYTES_MAX).read_line(&mut line) {
            Err(error) if error.kind() != ErrorKind::InvalidData => return,
            Ok(0) => return,
            // A line that is no text is an answer, too: a wrong one.
            Ok(_) | Err(_) => {}
        }
        if said.send(line).is_err() {
            return;
        }
    }
}

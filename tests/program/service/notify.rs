//! What a service manager is told, at a socket of the test's own, and how lines look in its journal.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Command, Stdio};

use crate::processes::{PATIENCE, PROGRAM, signal};

use super::Service;

const RUN: [&str; 8] =
    ["run", "--name", "n1", "--peer-wait", "0s", "--client", "127.0.0.1:0", "--gossip"];

struct Manager(UnixDatagram);

impl Manager {
    /// The next notice.
    fn next(&self) -> String {
        self.0.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut bytes = [0; 4096];
        let length = self.0.recv(&mut bytes).expect("the node says something");
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    /// All notices up to the one that has a line like this, with it.
    fn until(&self, line: &str) -> Vec<String> {
        let mut said = Vec::new();
        loop {
            let next = self.next();
            let is_it = next.lines().any(|told| told.starts_with(line));
            said.push(next);
            if is_it {
                return said;
            }
        }
    }
}

fn run_with<'a>(more: &[&'a str], environment: &[(&str, &str)]) -> Service {
    let arguments: Vec<&'a str> =
        RUN.into_iter().chain(["127.0.0.1:0"]).chain(more.iter().copied()).collect();
    Service::start(&arguments, environment)
}

#[test]
fn it_is_told_of_the_start_the_state_the_watchdog_and_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = Manager(UnixDatagram::bind(&path).unwrap());
    let environment = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "200000")];
    let data = folder.path().join("data").display().to_string();
    let mut node = run_with(&["--data-dir", &data], &environment);
    let said = manager.until("READY=1");
    assert!(said[0].starts_with("EXTEND_TIMEOUT_USEC="), "{said:?}");
    assert!(
        said.last().unwrap().contains("\nSTATUS=serves clients, linked to 0 nodes"),
        "{said:?}"
    );
    for _ in 0..5 {
        manager.until("WATCHDOG=1");
    }
    // A process that stands still tells it nothing: nothing new comes until it goes on.
    node.signal("STOP");
    manager.0.set_nonblocking(true).unwrap();
    while manager.0.recv(&mut [0; 4096]).is_ok() {}
    manager.0.set_nonblocking(false).unwrap();
    node.signal("CONT");
    manager.until("WATCHDOG=1");
    node.signal("TERM");
    let said = manager.until("STOPPING=1");
    assert!(said.last().unwrap().contains("STATUS=leaving"), "{said:?}");
    assert_eq!(node.ended(), Some(0), "{}", node.log());
}

#[test]
fn ready_does_not_wait_for_other_nodes() {
    let name = format!("distkv-test-{}-{:?}", std::process::id(), std::thread::current().id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let manager = Manager(UnixDatagram::bind_addr(&address).unwrap());
    let socket = format!("@{name}");
    // A watchdog of another process is none of its business.
    let environment =
        [("NOTIFY_SOCKET", socket.as_str()), ("WATCHDOG_USEC", "100000"), ("WATCHDOG_PID", "1")];
    let ports = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let join = ["join", "127.0.0.1:1", "--name", "n1"];
    let mut node = Service::start(&[&join[..], &ports].concat(), &environment);
    let said = manager.until("READY=1");
    assert!(said.last().unwrap().contains("STATUS=serves no clients: "), "{said:?}");
    node.signal("TERM");
    let said = manager.until("STOPPING=1");
    assert!(!said.iter().any(|said| said.contains("WATCHDOG")), "{said:?}");
    assert_eq!(node.ended(), Some(0), "{}", node.log());
}

#[test]
fn a_manager_that_is_not_there_is_no_trouble() {
    let mut node = run_with(&[], &[("NOTIFY_SOCKET", "/nowhere/notify"), ("WATCHDOG_USEC", "x")]);
    node.wait_for("started");
    node.end();
}

#[test]
fn the_start_line_says_what_the_node_is() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").display().to_string();
    let mut node = run_with(&["--data-dir", &data], &[]);
    node.wait_for("started");
    let log = node.log();
    let line = log.lines().find(|line| line.contains("started")).unwrap();
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    for part in
        [&version, "name=n1", "network=\"distkv\"", "client=127.0.0.1:", "gossip=127.0.0.1:"]
    {
        assert!(line.contains(part), "{part}: {line}");
    }
    for part in [data.as_str(), "(sync every-second)", "security=\"open\""] {
        assert!(line.contains(part), "{part}: {line}");
    }
    node.end();
}

/// Lines of a node whose standard error is the given kind of stream, and the first of them.
fn lines_in_journal(is_journal: bool, more: &[&str]) -> (Vec<String>, Option<i32>) {
    let (reader, writer) = std::io::pipe().unwrap();
    let writer = File::from(OwnedFd::from(writer));
    let meta = writer.metadata().unwrap();
    let inode = if is_journal { meta.ino() } else { meta.ino() + 1 };
    let mut child = Command::new(PROGRAM)
        .args(more)
        .env("JOURNAL_STREAM", format!("{}:{inode}", meta.dev()))
        .env_remove("DISTKV_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(writer)
        .spawn()
        .unwrap();
    let mut lines = Vec::new();
    for line in BufReader::new(reader).lines() {
        let line = line.unwrap();
        if line.contains("started") {
            signal(child.id(), "TERM");
        }
        lines.push(line);
    }
    (lines, child.wait().unwrap().code())
}

#[test]
fn lines_in_the_journal_begin_with_their_priority() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").display().to_string();
    let run: Vec<&str> = RUN.into_iter().chain(["127.0.0.1:0", "--data-dir", &data]).collect();
    let (lines, code) = lines_in_journal(true, &run);
    assert_eq!(code, Some(0), "{lines:?}");
    assert!(
        lines.iter().all(|line| line.starts_with("<6>") || line.starts_with("<4>")),
        "{lines:?}"
    );
    let started = lines.iter().find(|line| line.contains("started")).unwrap();
    // The journal has the time and the priority.
    assert!(started.starts_with("<6>distkv::"), "{started}");
    let run: Vec<&str> = RUN.into_iter().chain(["127.0.0.1:0", "--load", "/nowhere"]).collect();
    let (lines, code) = lines_in_journal(true, &run);
    let error = lines.last().unwrap();
    assert!(code != Some(0) && error.starts_with("<3>error: "), "{code:?} {lines:?}");
    // A journal that reads another stream.
    let run: Vec<&str> = RUN.into_iter().chain(["127.0.0.1:0"]).collect();
    let (lines, _) = lines_in_journal(false, &run);
    assert!(lines.iter().all(|line| !line.starts_with('<')), "{lines:?}");
    let told = [&run[..], &["--log-format", "journald"]].concat();
    let (lines, _) = lines_in_journal(false, &told);
    assert!(lines.iter().all(|line| line.starts_with('<')), "{lines:?}");
}

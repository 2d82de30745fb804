//! Commands with a ticket, and nodes of another network than the ticket's: those get nothing.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::cli::command::{cli, program};
use crate::processes::{NodeProcess, wait_until};

/// What came to a node.
#[derive(Default)]
struct Heard {
    connections: usize,
    bytes: Vec<u8>,
}

fn nothing_was_sent_to(heard: &Mutex<Heard>) {
    assert_eq!(String::from_utf8_lossy(&heard.lock().unwrap().bytes), "");
}

/// A node of the network "other", at which clients must log in; and what comes to it.
fn stray() -> (SocketAddr, Arc<Mutex<Heard>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, heard) = (listener.local_addr().unwrap(), Arc::<Mutex<Heard>>::default());
    let told = Arc::clone(&heard);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, told) = (stream.unwrap(), Arc::clone(&told));
            told.lock().unwrap().connections += 1;
            thread::spawn(move || {
                let greeting = b"\x87\xa3seq\x00\xa7version\x93\x00\x41\x00\xa4node\xa2n9\xa4tick\x01\xa4tock\x01\
                                 \xa4auth\x91\xa8password\xa7network\xa5other";
                let _ = stream.write_all(greeting);
                let mut chunk = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut chunk) {
                    told.lock().unwrap().bytes.extend(&chunk[..count]);
                }
            });
        }
    });
    (address, heard)
}

#[test]
fn another_network_s_node_gets_no_secret_from_any_command() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(file("secret"), "geheim\n").unwrap();
    let (stray, heard) = stray();
    let (stray, to) = (stray.to_string(), file("ticket"));
    let (secret, at) = (file("secret"), format!("@{}", file("ticket")));
    let login = ["--user", "ann", "--method", "password", "--secret", &secret];
    let made = ["ticket", "new", &stray, "--network", "own", "--to", &to];
    assert_eq!(cli(&[&made[..], &login].concat()).code, 0);
    let by_ticket = ["--ticket", at.as_str(), "--timeout", "10s"];
    let commands: [&[&str]; 8] = [
        &["get", "a"],
        &["set", "a", "1"],
        &["wait"],
        &["verify", &stray, &stray],
        &["top", "--once"],
        &["conflicts", "--all"],
        &["watch", "a"],
        &["bench", "--duration", "1s"],
    ];
    for command in commands {
        let done = cli(&[command, &by_ticket].concat());
        assert_ne!(done.code, 0, "{command:?}");
        let says =
            "is a node of the network \"other\", and this client is of \"own\", as its ticket says";
        assert!(done.stderr.contains(says), "{command:?}: {}", done.stderr);
        nothing_was_sent_to(&heard);
    }
}

#[test]
fn a_monitor_passes_another_network_s_node_over_when_its_own_was_restarted() {
    let (stray, heard) = stray();
    let mut node = NodeProcess::run("n1");
    let address = node.client.to_string();
    let both = format!("{address},{stray}");
    let mut monitor = program(&["monitor", "t", "--connect", &both]).spawn().unwrap();
    let mut said = BufReader::new(monitor.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.next().unwrap().starts_with("monitoring t at"));
    node.kill();
    assert!(said.next().unwrap().contains("is lost"));
    // What it has met first is what it goes back to.
    let tries = || (heard.lock().unwrap().connections >= 3).then_some(());
    wait_until("it has looked there again and again", tries);
    assert_eq!(monitor.try_wait().unwrap(), None, "it goes on looking");
    nothing_was_sent_to(&heard);
    monitor.kill().unwrap();
    monitor.wait().unwrap();
}

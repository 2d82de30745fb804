//! All that goes over the wires of a network, as somebody sees it who listens, and sent again by somebody who has
//! recorded it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value as Json;
use socket2::{Domain, Protocol, Socket, Type};

use super::cluster::start_node;
use super::hosts::{Hosts, gossip_addr, inside_own_network};
use crate::processes::{NodeProcess, PROGRAM, wait_until};

/// `ETH_P_ALL`: packets of all protocols.
const ALL_PROTOCOLS: u16 = 3;
const VALUE: &str = "a value that nobody may see";
const PATH: &str = "hiddenplace";
const USER: &str = "hiddenuser";
const SECRET: &str = "a-secret-that-nobody-may-see";
const VALUES: usize = 30;

/// One direction of a connection.
type Way = (SocketAddr, SocketAddr);

/// What was seen.
#[derive(Default)]
pub struct Seen {
    packets: Vec<Vec<u8>>,
    pub datagrams: Vec<(SocketAddr, Vec<u8>)>,
    /// By their place in the stream.
    segments: BTreeMap<Way, BTreeMap<u32, Vec<u8>>>,
}

impl Seen {
    /// Takes an Ethernet frame. Each is seen several times, on its way through the switches.
    fn take(&mut self, frame: &[u8]) {
        let Some(ip) = frame.get(14..).filter(|_| frame[12..14] == [8, 0]) else { return };
        let address = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&ip[at..at + 4]).unwrap());
        let header = usize::from(ip[0] & 15) * 4;
        let length = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let inner = &ip[header..length.clamp(header, ip.len())];
        let port = |at: usize| u16::from_be_bytes([inner[at], inner[at + 1]]);
        let way = || -> Way {
            let of = |ip: Ipv4Addr, port| SocketAddr::new(IpAddr::V4(ip), port);
            (of(address(12), port(0)), of(address(16), port(2)))
        };
        match ip[9] {
            6 => {
                let number = u32::from_be_bytes(inner[4..8].try_into().unwrap());
                let content = &inner[usize::from(inner[12] >> 4) * 4..];
                if !content.is_empty() {
                    let stream = self.segments.entry(way()).or_default();
                    stream.insert(number, content.to_vec());
                }
            }
            17 => {
                let datagram = (way().1, inner[8..].to_vec());
                if self.datagrams.last() != Some(&datagram) {
                    self.datagrams.push(datagram);
                }
            }
            _ => return,
        }
        self.packets.push(inner.to_vec());
    }

    /// All that was sent into each connection to a gossip port, one piece after the other.
    fn dialled(&self) -> Vec<(SocketAddr, Vec<u8>)> {
        let gossip = gossip_addr(0).port();
        let dialled = self.segments.iter().filter(|((_, to), _)| to.port() == gossip);
        dialled
            .map(|((_, to), pieces)| {
                let mut all = Vec::new();
                let mut next = None;
                for (number, piece) in pieces {
                    let again = next.map_or(0, |next: u32| next.saturating_sub(*number) as usize);
                    all.extend_from_slice(piece.get(again..).unwrap_or_default());
                    next = Some(number.wrapping_add(u32::try_from(piece.len()).unwrap()));
                }
                (*to, all)
            })
            .collect()
    }

    /// Which of these are somewhere in it.
    fn finds(&self, secrets: &[Vec<u8>]) -> BTreeSet<String> {
        let mut streams: Vec<Vec<u8>> = self.packets.clone();
        // What was cut into pieces on the way, too.
        streams.extend(self.segments.values().map(|s| s.values().flatten().copied().collect()));
        let is_in = |secret: &&Vec<u8>| {
            streams.iter().any(|s| s.windows(secret.len()).any(|w| w == secret.as_slice()))
        };
        let found = secrets.iter().filter(is_in);
        found.map(|secret| String::from_utf8_lossy(secret).into_owned()).collect()
    }
}

/// Listens to everything that the switches and cables carry, clients' included.
pub struct Listener {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

impl Listener {
    pub fn start() -> Self {
        let protocol = Protocol::from(i32::from(ALL_PROTOCOLS.to_be()));
        let mut socket = Socket::new(Domain::PACKET, Type::RAW, Some(protocol)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let _ = socket.set_recv_buffer_size(16 << 20);
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut seen, mut frame) = (Seen::default(), vec![0; 1 << 17]);
            while !is_over.load(Ordering::Relaxed) {
                if let Ok(length) = socket.read(&mut frame) {
                    seen.take(&frame[..length]);
                }
            }
            seen
        });
        Self { stop, thread }
    }

    pub fn end(self) -> Seen {
        // What was sent just now is still to come.
        std::thread::sleep(Duration::from_millis(300));
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

pub fn run(arguments: &[&str]) -> String {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).stdin(Stdio::null()).env_remove("DISTKV_KEY");
    let output = command.output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{arguments:?}: {said}");
    said
}

/// A command of who has the key, or of anybody where there is none.
fn ask(node: &NodeProcess, arguments: &[&str]) -> String {
    let client = node.client.to_string();
    let mut all = [arguments, &["--connect", &client]].concat();
    if let Some(file) = &node.key {
        all.extend(["--key", file.as_str()]);
    }
    run(&all)
}

/// The members that a node is linked to, and all that it knows.
fn members(node: &NodeProcess) -> BTreeMap<String, bool> {
    let rows = ask(node, &["members", "--json"]);
    let rows = rows.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    rows.map(|row| (row["name"].as_str().unwrap().to_owned(), row["linked"] == true)).collect()
}

pub fn counter(node: &NodeProcess, name: &str) -> u64 {
    let status: Json = serde_json::from_str(&ask(node, &["status", "--json"])).unwrap();
    status["counters"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {status}"))
}

fn wait_for_link(nodes: [&NodeProcess; 2]) {
    wait_until("they are linked", || {
        let is_linked = |node: &NodeProcess| members(node).values().any(|linked| *linked);
        nodes.into_iter().all(is_linked).then_some(())
    });
}

/// Writes at one node, reads at the other.
fn work(nodes: [&NodeProcess; 2]) {
    for number in 0..VALUES {
        let (at, value) = (format!("{PATH}.n{number}"), format!("\"{VALUE} {number}\""));
        ask(nodes[number % 2], &["set", &at, &value]);
    }
    wait_until("all has come", || {
        let all = |node| ask(node, &["tree", PATH]).matches(VALUE).count() == VALUES;
        nodes.into_iter().all(all).then_some(())
    });
}

fn plain_words() -> Vec<Vec<u8>> {
    [VALUE, PATH].map(|word| word.as_bytes().to_vec()).to_vec()
}

/// The secrets of a key file, as they are written and as they are.
fn secrets_of(file: &str) -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(file).unwrap();
    let words = text.split_whitespace().filter(|word| word.len() >= 32 && !word.starts_with('#'));
    let mut secrets = Vec::new();
    for word in words {
        secrets.push(word.as_bytes().to_vec());
        if word.len() == 64 {
            let byte = |at: usize| u8::from_str_radix(&word[at..at + 2], 16);
            secrets.extend((0..64).step_by(2).map(byte).collect::<Result<Vec<u8>, _>>().ok());
        }
    }
    assert!(!secrets.is_empty());
    secrets
}

/// Sends all again, as somebody without the key could, from an address of the same network.
fn replay(seen: &Seen) -> usize {
    let socket = UdpSocket::bind((Ipv4Addr::new(10, 77, 0, 200), 0)).unwrap();
    for (to, datagram) in &seen.datagrams {
        let _ = socket.send_to(datagram, to);
    }
    let dialled = seen.dialled();
    for (to, bytes) in &dialled {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let _ = stream.write_all(bytes);
        // Let it answer; what the answer is, only who has the key can say.
        let _ = stream.read(&mut [0; 4096]);
    }
    dialled.len()
}

#[test]
fn a_listener_sees_everything_of_an_open_network() {
    inside_own_network(test_name!("a_listener_sees_everything_of_an_open_network"), || {
        let hosts = Hosts::new(&[0, 1]);
        let listener = Listener::start();
        let (a, b) = (start_node(&hosts, 0, &[]), start_node(&hosts, 1, &[]));
        wait_for_link([&a, &b]);
        work([&a, &b]);
        // So what is not found in the other test is really not there.
        let seen = listener.end();
        assert_eq!(seen.finds(&plain_words()).len(), 2);
        assert!(!seen.datagrams.is_empty() && !seen.dialled().is_empty());
    });
}

#[test]
fn a_listener_learns_nothing_of_a_secured_network_and_what_it_sends_again_changes_nothing() {
    let name =
        "a_listener_learns_nothing_of_a_secured_network_and_what_it_sends_again_changes_nothing";
    inside_own_network(test_name!(name), || {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let files = [path("key-0"), path("key-1")];
        run(&["key", "new", "--network", "wire", "--to", &files[0]]);
        std::fs::copy(&files[0], &files[1]).unwrap();
        let hosts = Hosts::new(&[0, 1]);
        let start = |host: usize| start_node(&hosts, host, &["--key", &files[host]]);
        let listener = Listener::start();
        let (a, b) = (start(0), start(1));
        wait_for_link([&a, &b]);
        work([&a, &b]);
        // A user by a password, and its program.
        let (secret, ticket) = (path("secret"), path("ticket"));
        std::fs::write(&secret, SECRET).unwrap();
        ask(&a, &["acl", "set", "all", "#", "rwcdxen"]);
        ask(&a, &["user", "add", USER, "--acl", "all", "--new-secret-file", &secret]);
        let at = a.client.to_string();
        let options = ["--to", &ticket, "--address", &at, "--new-secret-file", &secret];
        ask(&a, &[&["user", "ticket", USER][..], &options].concat());
        let by_ticket = format!("@{ticket}");
        run(&["get", &format!("{PATH}.n1"), "--ticket", &by_ticket]);
        ask(&a, &["send", PATH, &format!("\"{VALUE}\"")]);
        let seen = listener.end();

        let mut words = plain_words();
        words.extend([SECRET, USER].map(|word| word.as_bytes().to_vec()));
        words.extend(secrets_of(&files[0]));
        assert_eq!(seen.finds(&words), BTreeSet::new());
        assert!(!seen.datagrams.is_empty() && !seen.dialled().is_empty());

        // All of it again: at once, and after a member has begun anew.
        run_ip("addr add 10.77.0.200/24 dev s0");
        ask(&a, &["set", &format!("{PATH}.n1"), "\"changed since\""]);
        let tree = ask(&a, &["tree", "--json", PATH]);
        wait_until("both have it", || (ask(&b, &["tree", "--json", PATH]) == tree).then_some(()));
        let check = |nodes: [&NodeProcess; 2], before: [u64; 2]| {
            for (node, before) in nodes.into_iter().zip(before) {
                wait_until("each replayed datagram is dropped", || {
                    let names = ["datagrams_repeated", "datagrams_not_taken"];
                    let dropped: u64 = names.iter().map(|name| counter(node, name)).sum();
                    (dropped > before).then_some(())
                });
                let expected =
                    [("n0".to_owned(), node.name != "n0"), ("n1".to_owned(), node.name != "n1")];
                wait_until("there are the two members", || {
                    (members(node) == BTreeMap::from(expected.clone())).then_some(())
                });
                assert_eq!(ask(node, &["tree", "--json", PATH]), tree);
            }
        };
        assert!(replay(&seen) > 0);
        check([&a, &b], [0, 0]);
        drop(b);
        let b = start(1);
        wait_for_link([&a, &b]);
        let dropped =
            |node| counter(node, "datagrams_repeated") + counter(node, "datagrams_not_taken");
        let before = [dropped(&a), dropped(&b)];
        replay(&seen);
        check([&a, &b], before);
    });
}

pub fn run_ip(line: &str) {
    assert!(Command::new("ip").args(line.split(' ')).status().unwrap().success(), "{line}");
}

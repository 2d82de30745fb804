//! Who takes much of the HTTP port, of connections, streams and long bodies, leaves others what they need.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rmpv::Value;
use socket2::{Domain, Socket, Type};

use super::asking::{ALONE, Answer, Events, ask};
use super::http;
use super::tickets::Secured;
use crate::hosts::{Hosts, client_addr, gossip_addr, inside_own_network};
use crate::processes::{NodeProcess, PATIENCE, wait_until};

/// The one who is greedy.
const GREEDY: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// Somebody else.
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);

/// A node on a host of its own, whose HTTP port everybody reaches.
struct Open {
    hosts: Hosts,
    _node: NodeProcess,
    http: SocketAddr,
}

impl Open {
    fn start() -> Self {
        let hosts = Hosts::new(&[0]);
        hosts.add_clients(0, [GREEDY, OTHER].into_iter());
        let (client, gossip) = (client_addr(0), gossip_addr(0).to_string());
        let http = SocketAddr::new(client.ip(), 27585);
        let client = client.to_string();
        let more = ["--peer-wait", "0s", "--insecure", "--http", "0.0.0.0:27585"];
        let own = ["run", "--client", &client, "--gossip", &gossip];
        let node = NodeProcess::start_by(&hosts.prefix(0), "n1", &[&own[..], &more].concat());
        Self { hosts, _node: node, http }
    }

    fn connect(&self, from: Ipv4Addr) -> TcpStream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        socket.connect(&self.http.into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn request(&self, target: &str) -> String {
        let http = self.http;
        format!("GET {target} HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\n\r\n")
    }

    /// What a request over this connection is answered, as far as it is wanted.
    fn begin(&self, mut stream: &TcpStream, target: &str) -> String {
        // It may have been closed already.
        let _ = stream.write_all(self.request(target).as_bytes());
        let mut line = String::new();
        let _ = BufReader::new(stream).read_line(&mut line);
        line
    }

    /// The whole answer.
    fn get(&self, from: Ipv4Addr, target: &str) -> String {
        let mut stream = self.connect(from);
        stream.write_all(self.request(target).as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    }

    /// What `/livez` says on the node's own machine.
    fn get_at_home(&self) -> String {
        let prefix = self.hosts.prefix(0);
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).args(["curl", "--silent", "--show-error", "--max-time", "60"]);
        let output = command.arg("http://127.0.0.1:27585/livez").output().expect("curl");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn is_open(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut read = stream.read(&mut [0; 1 << 10]);
    while matches!(read, Ok(1..)) {
        read = stream.read(&mut [0; 1 << 10]);
    }
    stream.set_nonblocking(false).unwrap();
    matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn one_address_that_opens_many_connections_or_streams_leaves_the_http_port_to_others() {
    let name = test_name!(
        "one_address_that_opens_many_connections_or_streams_leaves_the_http_port_to_others"
    );
    inside_own_network(name, || {
        let open = Open::start();
        let mut watch = open.connect(OTHER);
        assert!(open.begin(&watch, "/v1/kv/a?watch").contains(" 200 "));
        for round in 0..5 {
            // It takes its time between its connection and its request, as who is far away does.
            let slow = open.connect(OTHER);
            let mut crowd: Vec<_> = (0..200).map(|_| open.connect(GREEDY)).collect();
            wait_until("all of them have come in", || {
                let open = crowd.iter_mut().filter_map(|stream| is_open(stream).then_some(()));
                (open.count() < 64).then_some(())
            });
            let said = open.begin(&slow, "/livez");
            assert!(said.contains(" 200 "), "round {round}: {said:?}");
            assert_eq!(open.get_at_home().lines().count(), 2, "round {round}");
        }
        assert!(is_open(&mut watch), "a stream was closed for it");
        drop(watch);
        // Nor do its streams. (What it had is not all gone yet.)
        let begin = || {
            let stream = open.connect(GREEDY);
            let said = open.begin(&stream, "/v1/kv/a?watch");
            (!said.contains(" 429 ")).then_some((stream, said))
        };
        let mut streams = Vec::new();
        wait_until("it has all that it may have", || match begin() {
            None => (streams.len() == 16).then_some(()),
            Some((stream, said)) => {
                streams.extend(said.contains(" 200 ").then_some(stream));
                None
            }
        });
        let refused = open.get(GREEDY, "/v1/kv/a?tree");
        assert!(refused.contains(" 429 ") && refused.contains("clients at 10.99.0.1"), "{refused}");
        assert!(open.begin(&open.connect(OTHER), "/v1/kv/a?watch").contains(" 200 "));
        for target in ["/v1/kv/?tree", "/v1/conflicts"] {
            let said = open.get(OTHER, target);
            assert!(said.contains(" 200 "), "{target}: {said}");
        }
    });
}

/// A long body that has begun: its turn has come.
fn begin_long_body(address: SocketAddr, ticket: &str) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "PUT /v1/kv/long HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {ticket}\r\nContent-Length: 100000\r\n\
         Expect: 100-continue\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut line = String::new();
    let mut reader = BufReader::new(stream);
    reader.read_line(&mut line).unwrap();
    reader.read_line(&mut String::new()).unwrap();
    line.starts_with("HTTP/1.1 100 ").then(|| reader.into_inner())
}

#[test]
fn a_user_leaves_streams_and_long_bodies_to_others() {
    let secured = Secured::start();
    let greedy = secured.user("greedy", &["--acl", "*"]);
    let other = secured.user("other", &["--acl", "*"]);
    let streams: Vec<Events> =
        (0..16).map(|_| secured.ask(&greedy, "GET", "/v1/kv/a?watch").events()).collect();
    let refused = secured.get(&greedy, "/v1/kv/a?tree");
    assert_eq!((refused.status, refused.code().as_str()), (429, "too_many"));
    assert!(refused.text().contains("the user 'greedy' has 16 of the 32"), "{}", refused.text());
    let status = |target: &str| secured.get(&other, target).status;
    assert_eq!((status("/v1/kv/a?tree"), status("/v1/conflicts")), (200, 200));
    let _watch = secured.ask(&other, "GET", "/v1/kv/a?watch").events();
    drop(streams);
    wait_until("what it had is free", || {
        (secured.get(&greedy, "/v1/kv/a?tree").status == 200).then_some(())
    });

    let begin = |_| begin_long_body(secured.http(), &greedy);
    let mut slow: Vec<_> = (0..4).map(|n| begin(n).expect("it may have four")).collect();
    let body = format!("\"{}\"", "x".repeat(100_000));
    let put: Answer = ask(secured.http(), "PUT", "/v1/kv/b").bearer(&other).body(body).send();
    assert_eq!(put.status, 201, "{}", put.text());
    assert!(slow.iter_mut().all(is_open), "it waited for them");
}

#[test]
fn others_come_in_between_while_one_reads_as_many_trees_as_it_may() {
    const ENTRIES: usize = 4_000;
    const TREES: usize = 16;
    /// More would have been told while one small request waits if each tree had all that the node makes for it at once.
    const LINES_MAX: usize = TREES * 256;
    let node = NodeProcess::start("n1", &ALONE);
    let mut other = node.connect();
    for n in 0..ENTRIES {
        other.set(&["t", &n.to_string()], Value::from(n));
    }
    let mut waits = Vec::new();
    let deadline = Instant::now() + 4 * PATIENCE;
    // Of a round that is over before there was time to ask often, there are further ones.
    while waits.len() < 15 {
        assert!(Instant::now() < deadline, "too few requests while all trees are read: {waits:?}");
        let (told, reading) = (AtomicUsize::new(0), AtomicUsize::new(TREES));
        let read = || {
            let mut tree = ask(http(&node), "GET", "/v1/kv/t?tree").open();
            let mut part = vec![0; 4 << 10];
            loop {
                let count = tree.read(&mut part).unwrap();
                if count == 0 {
                    break;
                }
                let lines = part[..count].iter().filter(|byte| **byte == b'}').count();
                told.fetch_add(lines, Ordering::Relaxed);
            }
            reading.fetch_sub(1, Ordering::Relaxed);
        };
        std::thread::scope(|scope| {
            (0..TREES).for_each(|_| drop(scope.spawn(read)));
            loop {
                let before = told.load(Ordering::Relaxed);
                assert!(other.get(&["t", "7"]).is_some());
                let lines = told.load(Ordering::Relaxed) - before;
                if reading.load(Ordering::Relaxed) < TREES {
                    break;
                }
                if before > 0 {
                    waits.push(lines);
                }
            }
        });
    }
    waits.sort_unstable();
    let median = waits[waits.len() / 2];
    assert!(median < LINES_MAX, "{median} lines while one request waits: {waits:?}");
}

//! Many who come and say nothing, from many addresses: who has a secret gets in all the same.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};

use super::{Keys, program};
use crate::hosts::{Hosts, client_addr, gossip_addr, inside_own_network};
use crate::processes::{NodeProcess, PROGRAM, wait_until};

/// The beginning of a TLS handshake that goes no further.
const BEGUN: &[u8] = b"\x16\x03\x01\x02\x00\x01";

/// A node on a host of its own, and the test with many addresses at another one.
struct Place {
    hosts: Hosts,
    _keys: Keys,
    key: String,
    node: NodeProcess,
}

/// The test's addresses.
fn source(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, u8::try_from(number).unwrap())
}

impl Place {
    fn start(addresses: usize, options: &[&str]) -> Self {
        let hosts = Hosts::new(&[0]);
        hosts.add_clients(0, (0..addresses).map(source));
        let keys = Keys::new();
        let (key, _) = keys.make("key");
        let gossip = gossip_addr(0).to_string();
        let own = ["run", "--peer-wait", "0s", "--client", "0.0.0.0:27586", "--gossip", &gossip];
        let of_network = ["--key", &key, "--network", &keys.network];
        let arguments = [&own[..], &of_network, options].concat();
        let node = NodeProcess::start_by(&hosts.prefix(0), "n1", &arguments);
        Self { hosts, _keys: keys, key, node }
    }

    /// Connections that say this, as many as that from each address; those that were closed at once are among them.
    fn connect(&self, addresses: usize, each: usize, says: &[u8]) -> Vec<TcpStream> {
        let connect = |from: Ipv4Addr| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
            socket.connect(&client_addr(0).into()).unwrap();
            let mut stream = TcpStream::from(socket);
            // It may have been closed already.
            let _ = stream.write_all(says);
            stream
        };
        (0..each).flat_map(|_| (0..addresses).map(source)).map(connect).collect()
    }

    /// Who has the key gets in, from elsewhere and from the node's own machine.
    fn serves_the_key_holder(&self) {
        self.try_as_the_key_holder().unwrap();
    }

    /// The same while there are ever new ones in the crowd. At a moment at which the node has taken many in and has not
    /// begun to serve them, nobody gives way; then one has to come again.
    fn serves_the_key_holder_among(&self, addresses: usize, each: usize, says: &[u8]) {
        let mut crowd = Vec::new();
        wait_until("who has the key is served", || {
            crowd.extend(self.connect(addresses, each, says));
            self.try_as_the_key_holder().ok()
        });
    }

    fn try_as_the_key_holder(&self) -> Result<(), String> {
        let address = client_addr(0).to_string();
        let (code, said) = program(&["status", "--connect", &address, "--key", &self.key]);
        if code != Some(0) {
            return Err(said);
        }
        let prefix = self.hosts.prefix(0);
        let mut command = std::process::Command::new(&prefix[0]);
        command.args(&prefix[1..]).arg(PROGRAM);
        command.args(["status", "--connect", "127.0.0.1:27586", "--key", &self.key]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    }

    fn has_logged(&self, words: &str) {
        let lines = || self.node.log().into_iter().filter(|line| line.contains(words)).count();
        wait_until("it says so", || (lines() > 0).then_some(()));
        assert!(lines() < 3, "{:#?}", self.node.log());
    }
}

fn is_open(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut chunk = [0; 1 << 12];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn handshakes_that_are_begun_from_a_few_addresses_keep_nobody_out() {
    let name = "secure::crowds::handshakes_that_are_begun_from_a_few_addresses_keep_nobody_out";
    inside_own_network(name, || {
        let place = Place::start(3, &[]);
        let crowd = place.connect(3, 250, BEGUN);
        place.serves_the_key_holder();
        place.has_logged("TLS handshakes");
        drop(crowd);
    });
}

#[test]
fn connections_that_say_nothing_from_many_addresses_keep_nobody_out() {
    let name = "secure::crowds::connections_that_say_nothing_from_many_addresses_keep_nobody_out";
    inside_own_network(name, || {
        let place = Place::start(18, &["--client-plaintext", "10.99.0.0/16"]);
        let mut crowd = place.connect(18, 31, b"");
        place.serves_the_key_holder();
        place.has_logged("without having logged in");
        // Those that gave way were closed, and no others.
        let open = crowd.iter_mut().map(|stream| usize::from(is_open(stream))).sum::<usize>();
        assert!((510..=512).contains(&open), "{open} are open");
    });
}

/// Where there may be fewer connections than strangers, as after `ulimit -n 1024` also in their default number.
const FEW: [&str; 2] = ["--max-connections", "60"];

#[test]
fn strangers_keep_nobody_out_where_there_is_room_for_few_connections() {
    let name = "secure::crowds::strangers_keep_nobody_out_where_there_is_room_for_few_connections";
    inside_own_network(name, || {
        let place = Place::start(6, &FEW);
        for says in [&b""[..], BEGUN] {
            place.serves_the_key_holder_among(6, 20, says);
        }
    });
}

#[test]
fn strangers_in_plain_text_keep_nobody_out_where_there_is_room_for_few_connections() {
    let name = "secure::crowds::strangers_in_plain_text_keep_nobody_out_where_there_is_room_for_few_connections";
    inside_own_network(name, || {
        let place = Place::start(6, &[&FEW[..], &["--client-plaintext", "10.99.0.0/16"]].concat());
        place.serves_the_key_holder_among(6, 20, b"");
        place.has_logged("without having logged in");
    });
}

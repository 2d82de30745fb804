//! Somebody on the network who has no key sends the nodes, from the addresses of each other, what they asked or said in
//! earlier lives: those that restart meanwhile are members all the same.

use std::collections::BTreeSet;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rmpv::Value;
use socket2::{Domain, Protocol, Socket, Type};

use super::capture::{Listener, counter, run, run_ip};
use super::cluster::{Cluster, start_node};
use super::hosts::{gossip_addr, inside_own_network};
use crate::processes::field;

const NODES: usize = 3;
/// Datagrams to each node in each turn, so 1,000 a second.
const PER_TURN: usize = 5;
const TURN: Duration = Duration::from_millis(5);
/// How soon a node that has restarted is a member again, in everybody's eyes.
const UP_WITHIN: Duration = Duration::from_secs(10);

/// Everybody can see that an ask names no epoch of a receiver.
fn is_ask(datagram: &[u8]) -> bool {
    datagram.starts_with(b"dkvS\x01\x01") && datagram.get(26..34) == Some(&[0; 8])
}

/// A UDP packet over IPv4 from a forged address. The system adds what it does not say.
fn forged(from: SocketAddrV4, to: SocketAddrV4, datagram: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend(from.ip().octets());
    packet.extend(to.ip().octets());
    packet.extend(from.port().to_be_bytes());
    packet.extend(to.port().to_be_bytes());
    let length = u16::try_from(8 + datagram.len()).unwrap();
    packet.extend(length.to_be_bytes());
    packet.extend([0; 2]);
    packet.extend(datagram);
    packet
}

fn gossip(host: usize) -> SocketAddrV4 {
    let SocketAddr::V4(address) = gossip_addr(host) else { panic!("the hosts have IPv4") };
    address
}

/// A thread that sends recorded datagrams to all nodes.
struct Flood {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Flood {
    fn start(recorded: Vec<Vec<u8>>) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)).unwrap();
        socket.set_header_included_v4(true).unwrap();
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (is_over, count) = (Arc::clone(&stop), Arc::clone(&sent));
        let thread = std::thread::spawn(move || {
            let mut recorded = recorded.iter().cycle();
            let mut due = Instant::now();
            while !is_over.load(Ordering::Relaxed) {
                for (to, turn) in (0..NODES).flat_map(|to| (0..PER_TURN).map(move |n| (to, n))) {
                    let from = (to + 1 + turn % (NODES - 1)) % NODES;
                    let packet = forged(gossip(from), gossip(to), recorded.next().unwrap());
                    // While a node is not there, the system may say so.
                    let was_sent = socket.send_to(&packet, &gossip(to).into()).is_ok();
                    count.fetch_add(u64::from(was_sent), Ordering::Relaxed);
                }
                due += TURN;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        });
        Self { stop, sent, thread }
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

/// The lives that a node sees up, its own among them.
fn lives(cluster: &mut Cluster, node: usize) -> BTreeSet<String> {
    let reply = cluster.clients[node].call("members", &[]);
    let members = field(&reply, "result").unwrap();
    let text = |m: &Value, key| field(m, key).unwrap().as_str().unwrap().to_owned();
    let is_up = |m: &&Value| ["self", "up"].contains(&text(m, "state").as_str());
    members.as_array().unwrap().iter().filter(is_up).map(|m| text(m, "life")).collect()
}

/// Kills some nodes, starts them again, and tells how long it took from then until all see all up.
fn restart(cluster: &mut Cluster, hosts: &[usize], options: &[&str]) -> Duration {
    hosts.iter().for_each(|host| cluster.nodes[*host].kill());
    let began = Instant::now();
    for host in hosts {
        cluster.nodes[*host] = start_node(&cluster.hosts, *host, options);
        cluster.clients[*host] = cluster.nodes[*host].connect();
    }
    // What some see may be a former life.
    let all_up = |cluster: &mut Cluster| {
        let first = lives(cluster, 0);
        first.len() == NODES && (1..NODES).all(|node| lives(cluster, node) == first)
    };
    cluster.wait("all are up", all_up).duration_since(began)
}

#[test]
fn nodes_that_restart_in_a_flood_of_recorded_datagrams_are_members_within_seconds() {
    let name = "nodes_that_restart_in_a_flood_of_recorded_datagrams_are_members_within_seconds";
    inside_own_network(test_name!(name), || {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key").to_str().unwrap().to_owned();
        run(&["key", "new", "--network", "flood", "--to", &file]);
        let options = ["--key", &file, "--client-plaintext", "0.0.0.0/0"];
        let mut cluster = Cluster::start(&[0; NODES], &options);
        run_ip("addr add 10.77.0.200/24 dev s0");
        // Asks of several lives of each.
        let listener = Listener::start();
        let mut calm = Duration::ZERO;
        for host in [0, 1, 2, 0, 1, 2] {
            calm = calm.max(restart(&mut cluster, &[host], &options));
        }
        let seen = listener.end();
        let all: Vec<Vec<u8>> = seen.datagrams.into_iter().map(|(_, bytes)| bytes).collect();
        let asks: Vec<Vec<u8>> = all.iter().filter(|bytes| is_ask(bytes)).cloned().collect();
        assert!(asks.len() > NODES, "{} asks were recorded", asks.len());
        println!("{} asks in {} datagrams; calm: up after {calm:?}", asks.len(), all.len());

        for (what, recorded) in [("asks", asks), ("everything", all)] {
            let flood = Flood::start(recorded);
            cluster.wait("the flood comes to all", |cluster| {
                cluster.nodes.iter().all(|node| counter(node, "datagrams_not_taken") > 1_000)
            });
            for hosts in [&[1][..], &[0], &[2], &[0, 1, 2]] {
                let (since, before) = (Instant::now(), flood.sent());
                let took = restart(&mut cluster, hosts, &options);
                let rate = (flood.sent() - before) as f64 / since.elapsed().as_secs_f64();
                println!("{what}: nodes {hosts:?} are up after {took:?}, {rate:.0} a second");
                assert!(took < UP_WITHIN, "{what}: {hosts:?} after {took:?}, calm {calm:?}");
            }
            flood.end();
        }
    });
}

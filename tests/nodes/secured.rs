//! Networks with a cluster key, in process: what goes over sealed links arrives as it does over open ones,
//! and what is changed on the way does not.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use distkv::model::ids::NodeName;
use distkv::model::path::Path;
use distkv::model::value::Value;
use distkv::node::config::Config;
use distkv::node::{Node, NodeError};
use distkv::testing::{PATIENCE, TestCluster, block_on, loopback, secured, wait_until};

const SECRET: u8 = 7;

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

/// A byte string of so many bytes, as MessagePack.
fn bytes(count: u32) -> Value {
    let content = (0..count).map(|at| (at * 31 % 251) as u8);
    let head = [&[0xc6], count.to_be_bytes().as_slice()].concat();
    Value::new(&head.into_iter().chain(content).collect::<Vec<_>>()).unwrap()
}

fn joiner(name: &str, peer: SocketAddr) -> Config {
    loopback(NodeName::new(name).unwrap(), vec![peer.to_string()])
}

#[test]
fn changes_of_all_sizes_arrive_over_sealed_links_and_so_do_catch_ups() {
    block_on(async {
        let mut cluster = TestCluster::start_secured(3, SECRET).await.unwrap();
        // From less than a record to the largest value, some of them around a record's length.
        let sizes = [0, 1, 4_000, 65_400, 65_519, 65_536, 131_072, 1 << 20, (4 << 20) - 16];
        for (place, size) in sizes.into_iter().enumerate() {
            let at = path(&format!("sizes.n{place}"));
            cluster.node(place % 3).set(&at, &bytes(size)).unwrap();
        }
        for number in 0..2_000 {
            cluster.node(number % 3).set(&path(&format!("small.n{number}")), &bytes(8)).unwrap();
        }
        cluster.settled().await.unwrap();
        // All of it as a catch-up.
        let late = cluster.add().await.unwrap();
        cluster.settled().await.unwrap();
        for (place, size) in sizes.into_iter().enumerate() {
            let at = path(&format!("sizes.n{place}"));
            let entry = cluster.node(late).get(&at).unwrap();
            assert!(entry.as_bytes() == bytes(size).as_bytes(), "{size}");
        }
        cluster.shutdown().await;
    });
}

#[test]
fn nodes_with_and_without_a_key_and_with_another_never_link() {
    block_on(async {
        let cluster = TestCluster::start_secured(1, SECRET).await.unwrap();
        let gossip = cluster.node(0).gossip_addr();
        let open = Node::start(joiner("open", gossip)).await.unwrap();
        let other = Node::start(secured(joiner("other", gossip), SECRET + 1)).await.unwrap();
        let member = Node::start(secured(joiner("member", gossip), SECRET)).await.unwrap();
        member.ready().await.unwrap();
        // Both were refused at least once by now: the member came after them.
        let linked = |node: &Node| node.hub().read(|engine| engine.link_count());
        assert!(wait_until(PATIENCE, || linked(cluster.node(0)) == 1).await);
        assert_eq!((linked(&open), linked(&other), linked(&member)), (0, 0, 1));
        let ready = |node: &Node| node.hub().read(distkv::engine::Engine::is_ready);
        assert!(!ready(&open) && !ready(&other));
    });
}

#[test]
fn a_key_of_another_network_does_not_start_a_node() {
    block_on(async {
        let gossip = "127.0.0.1:1".parse().unwrap();
        let config =
            Config { network: "another".to_owned(), ..secured(joiner("a", gossip), SECRET) };
        let started = Node::start(config).await;
        assert!(matches!(started, Err(NodeError::KeyNetwork { .. })));
    });
}

/// Passes connections on to `to`, and flips a bit of each dialler's bytes at that place, `times` times.
fn flipping(to: SocketAddr, place: usize, times: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, flipped) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&flipped);
    std::thread::spawn(move || {
        for dialler in listener.incoming().map_while(Result::ok) {
            let Ok(acceptor) = TcpStream::connect(to) else { continue };
            let (from, back) = (acceptor.try_clone().unwrap(), dialler.try_clone().unwrap());
            std::thread::spawn(move || pass(from, back, |_, _| ()));
            let count = Arc::clone(&count);
            std::thread::spawn(move || {
                pass(dialler, acceptor, |before, bytes| {
                    let here = place.checked_sub(before).and_then(|at| bytes.get_mut(at));
                    if let Some(byte) = here.filter(|_| count.load(Ordering::SeqCst) < times) {
                        *byte ^= 0x10;
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                });
            });
        }
    });
    (at, flipped)
}

/// Passes bytes on until either side ends; `change` is told how many there were before.
fn pass(mut from: TcpStream, mut to: TcpStream, change: impl Fn(usize, &mut [u8])) {
    let (mut buffer, mut before) = ([0; 16 << 10], 0);
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        change(before, &mut buffer[..count]);
        before += count;
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}

#[test]
fn what_is_changed_on_the_way_ends_the_link_and_everything_arrives_all_the_same() {
    // In the handshake, in the greeting, in what follows.
    for place in [30, 70, 200, 5_000] {
        block_on(async {
            let cluster = TestCluster::start_secured(1, SECRET).await.unwrap();
            let first = cluster.node(0);
            let (proxy, flipped) = flipping(first.gossip_addr(), place, 2);
            let second = Node::start(secured(joiner("second", proxy), SECRET)).await.unwrap();
            second.ready().await.unwrap();
            for number in 0..200 {
                let at = path(&format!("from-second.n{number}"));
                second.set(&at, &bytes(500)).unwrap();
            }
            let same = || {
                (0..200).all(|number| {
                    let at = path(&format!("from-second.n{number}"));
                    let entry = first.get(&at);
                    entry.is_some_and(|entry| entry.as_bytes() == bytes(500).as_bytes())
                })
            };
            assert!(wait_until(PATIENCE, same).await, "{place}");
            assert!(flipped.load(Ordering::SeqCst) > 0, "{place}: nothing was changed");
            second.shutdown().await;
        });
    }
}

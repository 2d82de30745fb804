//! Nodes over real sockets, in this process, on ports that the system chooses. Nothing sleeps
//! for luck: every wait is for a condition, with a deadline.

use crate::sockets;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use distkv::client::{Connection, Fields, HostPort, Options};
use distkv::engine::NO_LATER;
use distkv::engine::changes::SendTopic;
use distkv::hub::inbox::{Inbox, TopicMessage};
use distkv::hub::shares::Holder;
use distkv::model::limits::VALUE_BYTES_MAX;
use distkv::model::value::Value;
use distkv::node::config::{Config, Start};
use distkv::node::{Node, NodeError, StopReason, Timing};
use distkv::replica::write::Write;
use distkv::testing::{
    NodeState, PATIENCE, TestCluster, block_on, free_addrs, loopback, wait_until,
};
use sockets::pauses::Pauses;
use sockets::{GOODBYE, Proxy, RawPeer, big_value, hello, log, name, number, path};

fn links(node: &Node) -> usize {
    node.hub().read(|e| e.link_count())
}

fn members(node: &Node) -> usize {
    node.hub().read(|e| e.members().count())
}

/// Starts a node at an address that a crashed one has not quite given back yet.
async fn start_again(config: &Config) -> Node {
    let mut started = None;
    while started.is_none() {
        started = match Node::start(config.clone()).await {
            Ok(node) => Some(node),
            Err(NodeError::InUse { .. }) => None,
            Err(error) => panic!("{error}"),
        };
    }
    started.unwrap()
}

#[test]
fn a_node_that_was_dropped_answers_nobody_any_more() {
    block_on(async {
        for _ in 0..200 {
            let node = Node::start(loopback(name("a"), Vec::new())).await.unwrap();
            node.ready().await.unwrap();
            let to = HostPort::from(node.client_addr());
            let client = Connection::connect(&to, Options::default()).await.unwrap();
            let mut fields = Fields::at(&path("k"));
            fields.u64("value", 1);
            client.request("set_value", &fields).await.unwrap();
            let hub = Arc::clone(node.hub());
            drop(node);
            assert!(client.request("set_value", &fields).await.is_err());
            assert_eq!(hub.read(|engine| engine.tick().map(|tick| tick.get())), Some(1));
        }
    });
}

#[test]
fn three_nodes_replicate_changes_and_deletions() {
    block_on(async {
        let cluster = TestCluster::start(3).await.unwrap();
        for at in 0..3 {
            let node = cluster.node(at);
            node.set(&path(&format!("from.{at}")), &number(at as u8)).unwrap();
            node.set(&path("shared"), &number(at as u8)).unwrap();
        }
        cluster.settled().await.unwrap();
        cluster.node(2).delete(&path("from.0")).unwrap();
        cluster.settled().await.unwrap();
        for node in cluster.nodes() {
            assert_eq!(node.get(&path("from.0")), None);
            assert_eq!(node.get(&path("from.1")), Some(number(1)));
            assert_eq!(node.get(&path("from.2")), Some(number(2)));
            assert!(node.get(&path("shared")).is_some());
        }
        cluster.shutdown().await;
    });
}

#[test]
fn a_fresh_node_has_everything_before_it_serves_tombstones_included() {
    block_on(async {
        let mut cluster = TestCluster::start(2).await.unwrap();
        for n in 0..2_000_u32 {
            let value = Value::new(&[&[0xce][..], &n.to_be_bytes()].concat()).unwrap();
            cluster.node((n % 2) as usize).set(&path(&format!("many.k{n}")), &value).unwrap();
        }
        cluster.settled().await.unwrap();
        for n in 0..100 {
            cluster.node(0).delete(&path(&format!("many.k{n}"))).unwrap();
        }
        let at = cluster.add().await.unwrap();
        let state = NodeState::of(cluster.node(at));
        assert_eq!(state.entries.len(), 2_000);
        assert_eq!(state.entries.values().filter(|(value, ..)| value.is_none()).count(), 100);
        cluster.settled().await.unwrap();
    });
}

#[test]
fn a_node_joins_and_another_comes_and_goes_while_everybody_writes() {
    block_on(async {
        let mut cluster = TestCluster::start(2).await.unwrap();
        for n in 0..20_000_u32 {
            let value = Value::new(&[&[0xce][..], &n.to_be_bytes()].concat()).unwrap();
            cluster.node(0).set(&path(&format!("old.k{n}")), &value).unwrap();
        }
        let writing = Arc::new(AtomicBool::new(true));
        let writers: Vec<_> = (0..2)
            .map(|at| {
                let (hub, writing) = (cluster.node(at).hub().clone(), Arc::clone(&writing));
                std::thread::spawn(move || {
                    let mut count = 0_u32;
                    while writing.load(Ordering::Relaxed) {
                        let path = path(&format!("busy.k{}", count % 500));
                        let value = [&[0xce][..], &count.to_be_bytes()].concat();
                        let write = Write::new(path, Some(&value));
                        count += 1;
                        // As clients do, it has only so many in flight.
                        let paced = count.is_multiple_of(32);
                        let written = hub.write(write, paced).0.unwrap();
                        let tick = written.made().unwrap().newest().tick;
                        while paced && hub.read(|e| e.copies(tick)) == 0 {
                            std::thread::yield_now();
                        }
                    }
                    count
                })
            })
            .collect();
        let peers = || vec![cluster.node(0).gossip_addr().to_string()];
        let mut config = loopback(name("visitor"), peers());
        for _ in 0..3 {
            let visitor = start_again(&config).await;
            config.gossip = visitor.gossip_addr().to_string();
            let started = Instant::now();
            visitor.ready().await.unwrap();
            println!("ready after {:?} under load", started.elapsed());
            drop(visitor);
        }
        let joiner = Node::start(loopback(name("joiner"), peers())).await.unwrap();
        joiner.ready().await.unwrap();
        writing.store(false, Ordering::Relaxed);
        let counts: Vec<u32> = writers.into_iter().map(|w| w.join().unwrap()).collect();
        println!("{counts:?} changes meanwhile");
        let joiner = cluster.push(joiner);
        cluster.settled().await.unwrap();
        assert!(NodeState::of(cluster.node(joiner)).entries.len() >= 20_000);
    });
}

#[test]
fn a_change_is_visible_elsewhere_at_once() {
    block_on(async {
        let cluster = TestCluster::start(3).await.unwrap();
        let (writer, reader) = (cluster.node(0), cluster.node(2));
        let mut next = 0_u32;
        let mut round = || {
            let mut times = Vec::new();
            for _ in 0..500 {
                next += 1;
                let (at, value) = (path("latency"), next.to_be_bytes());
                let value = Value::new(&[&[0xce][..], &value].concat()).unwrap();
                writer.set(&at, &value).unwrap();
                let written = Instant::now();
                while reader.get(&at).as_ref() != Some(&value) {
                    assert!(written.elapsed() < PATIENCE);
                    std::thread::yield_now();
                }
                times.push(written.elapsed());
            }
            times.sort();
            let (median, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
            println!("from the write to visible on another node: median {median:?}, p99 {p99:?}");
            median
        };
        // Far above what it takes (tens of microseconds), because tests share the machine; once in a while they leave it.
        let soon = (0..10).any(|_| round() < Duration::from_millis(50));
        assert!(soon, "a change waits for something");
    });
}

#[test]
fn nodes_of_different_networks_refuse_each_other() {
    let log = log();
    block_on(async {
        let prod = Node::start(loopback(name("prod1"), Vec::new())).await.unwrap();
        let other = |peer: &Node, name, network: &str| Config {
            network: network.into(),
            ..loopback(name, vec![peer.gossip_addr().to_string()])
        };
        let stage = Node::start(other(&prod, name("stage1"), "staging")).await.unwrap();
        let refused = || !log.lines(&["a peer refused this node", "\"distkv-test-"]).is_empty();
        assert!(wait_until(PATIENCE, refused).await, "the joiner is told");
        assert!(!log.lines(&["refused a peer", "stage1", "--network"]).is_empty());
        // The other way round: the one that dials is the one of the first network.
        let dialler = Node::start(other(&stage, name("prod2"), "distkv")).await.unwrap();
        let refused = || !log.lines(&["refused a peer", "prod2"]).is_empty();
        assert!(wait_until(PATIENCE, refused).await);
        for node in [&prod, &stage, &dialler] {
            assert_eq!((links(node), members(node)), (0, 0));
        }
        // A peer that tries for ever does not fill the log.
        for _ in 0..20 {
            let stranger = distkv::protocol::peer::greeting::Hello {
                network: "lab".into(),
                ..hello("lab1", 1)
            };
            let answer = RawPeer::connect(prod.gossip_addr()).exchange(&stranger);
            assert!(matches!(answer, distkv::protocol::peer::greeting::Greeting::Refusal(_)));
        }
        assert_eq!(log.lines(&["refused a peer", "lab1"]).len(), 1);
    });
}

#[test]
fn a_name_that_is_in_use_is_refused_to_the_newcomer() {
    block_on(async {
        let cluster = TestCluster::start(2).await.unwrap();
        let timing = Timing { name_patience_ms: 1_000, ..Timing::default() };
        let peers = vec![cluster.node(0).gossip_addr().to_string()];
        let twin = Node::start_with(loopback(name("n1"), peers), timing.clone()).await.unwrap();
        let reason = twin.ready().await.unwrap_err();
        let StopReason::NameInUse { name: taken, .. } = &reason else { panic!("{reason}") };
        assert_eq!(taken, "n1");
        let holder = cluster.node(1).gossip_addr().to_string();
        assert!(reason.to_string().contains(&holder), "{reason}");
        assert!(!reason.to_string().contains("restore DIR"), "it is in memory: {reason}");
        assert_eq!(twin.stopped().await, reason);
        // The holder itself says the same.
        let twin = loopback(name("n1"), vec![holder]);
        let twin = Node::start_with(twin, timing).await.unwrap();
        assert!(matches!(twin.stopped().await, StopReason::NameInUse { .. }));
        // Those who were there are as they were.
        assert!(cluster.linked().await);
        cluster.node(1).set(&path("a"), &number(1)).unwrap();
        cluster.settled().await.unwrap();
    });
}

#[test]
fn a_node_that_crashed_comes_back_under_its_name_and_address() {
    block_on(async {
        let mut cluster = TestCluster::start(3).await.unwrap();
        for at in 0..3 {
            cluster.node(at).set(&path(&format!("before.{at}")), &number(1)).unwrap();
        }
        cluster.settled().await.unwrap();
        let crashed = cluster.take(2);
        let gossip = crashed.gossip_addr().to_string();
        drop(crashed);
        cluster.node(0).set(&path("meanwhile"), &number(2)).unwrap();
        let peers = cluster.nodes().iter().map(|n| n.gossip_addr().to_string()).collect();
        let again = start_again(&Config { gossip, ..loopback(name("n2"), peers) }).await;
        again.ready().await.unwrap();
        assert_eq!(again.get(&path("before.2")), Some(number(1)), "its own change of before");
        assert_eq!(again.get(&path("meanwhile")), Some(number(2)));
        let all_linked = || links(&again) == 2 && cluster.nodes().iter().all(|n| links(n) == 2);
        assert!(wait_until(PATIENCE, all_linked).await);
        let all_up = || members(&again) == 2 && cluster.nodes().iter().all(|n| members(n) == 2);
        assert!(wait_until(PATIENCE, all_up).await);
        again.set(&path("after"), &number(3)).unwrap();
        let arrived = || cluster.nodes().iter().all(|n| n.get(&path("after")) == Some(number(3)));
        assert!(wait_until(PATIENCE, arrived).await);
    });
}

#[test]
fn two_first_nodes_that_know_each_other_make_one_network_with_one_link() {
    block_on(async {
        let timing = Timing { first_answer_ms: 300, ..Timing::default() };
        for round in 0..5 {
            let [a, b] = free_addrs();
            let config = |own: &str, at: SocketAddr, peer: SocketAddr| Config {
                gossip: at.to_string(),
                start: Start::Run { init: Some(number(round)), load: None },
                ..loopback(name(own), vec![peer.to_string()])
            };
            let starts = futures::future::join(
                Node::start_with(config("a", a, b), timing.clone()),
                Node::start_with(config("b", b, a), timing.clone()),
            );
            let (a, b) = starts.await;
            let (a, b) = (a.unwrap(), b.unwrap());
            a.ready().await.unwrap();
            b.ready().await.unwrap();
            assert!(wait_until(PATIENCE, || links(&a) == 1 && links(&b) == 1).await);
            a.set(&path("x.a"), &number(1)).unwrap();
            b.set(&path("x.b"), &number(2)).unwrap();
            let same = || {
                let (a, b) = (NodeState::of(&a), NodeState::of(&b));
                a.entries.len() == 3 && a == b
            };
            assert!(wait_until(PATIENCE, same).await, "{:?}", NodeState::of(&a));
            let makers = NodeState::of(&a).seen.len();
            assert_eq!(makers, 2, "the root was set by one of them");
            let root = NodeState::of(&a).entries[&path(":")].2.len();
            assert_eq!(root, 1, "and not overwritten by the other");
        }
    });
}

#[test]
fn a_link_that_lags_is_made_good() {
    let log = log();
    block_on(async {
        let target = Arc::new(OnceLock::new());
        let proxy = Proxy::start(Arc::clone(&target));
        let first =
            Config { advertise: Some(proxy.addr.to_string()), ..loopback(name("a"), Vec::new()) };
        let a = Node::start(first).await.unwrap();
        target.set(a.gossip_addr()).unwrap();
        let second = loopback(name("b"), vec![proxy.addr.to_string()]);
        let b = Node::start(second).await.unwrap();
        b.ready().await.unwrap();
        let c = Node::start(loopback(name("c"), vec![a.gossip_addr().to_string()])).await.unwrap();
        c.ready().await.unwrap();
        a.set(&path("before"), &number(1)).unwrap();
        assert!(wait_until(PATIENCE, || b.get(&path("before")).is_some()).await);
        proxy.pause(true);
        // More than the queue, both sockets and the proxy hold.
        for n in 0..400 {
            let started = Instant::now();
            a.set(&path(&format!("big.k{}", n % 40)), &big_value(64 << 10)).unwrap();
            // A link that takes nothing is given up after 15 s.
            assert!(started.elapsed() < Duration::from_secs(10), "the writer feels nothing");
        }
        a.set(&path("last"), &number(2)).unwrap();
        assert!(wait_until(PATIENCE, || !a.hub().lagging_links().is_empty()).await, "it lags");
        assert_eq!(b.get(&path("last")), None);
        proxy.pause(false);
        let same = || NodeState::of(&a) == NodeState::of(&b);
        assert!(wait_until(PATIENCE, || b.get(&path("last")).is_some() && same()).await);
        assert!(a.hub().lagging_links().is_empty());
        assert!(!log.lines(&["did not keep up", "peer=b"]).is_empty());
    });
}

#[test]
fn a_cut_link_is_dialled_again() {
    block_on(async {
        let target = Arc::new(OnceLock::new());
        let proxy = Proxy::start(Arc::clone(&target));
        let first =
            Config { advertise: Some(proxy.addr.to_string()), ..loopback(name("a"), Vec::new()) };
        let a = Node::start(first).await.unwrap();
        target.set(a.gossip_addr()).unwrap();
        let b = loopback(name("b"), vec![proxy.addr.to_string()]);
        let b = Node::start(b).await.unwrap();
        b.ready().await.unwrap();
        for round in 0..3_u8 {
            assert!(wait_until(PATIENCE, || links(&a) == 1 && links(&b) == 1).await);
            proxy.cut();
            a.set(&path("x"), &number(round)).unwrap();
            assert!(wait_until(PATIENCE, || b.get(&path("x")) == Some(number(round))).await);
        }
    });
}

#[test]
fn a_node_joins_through_any_of_several_peers_by_name() {
    block_on(async {
        let advertise = Some("localhost".to_owned());
        let first = Config { advertise, ..loopback(name("a"), Vec::new()) };
        let first = Node::start(first).await.unwrap();
        first.set(&path("x"), &number(1)).unwrap();
        let [dead] = free_addrs();
        let peers = vec![
            "no-such-host.invalid:27587".to_owned(),
            dead.to_string(),
            format!("localhost:{}", first.gossip_addr().port()),
        ];
        let joiner = Node::start(loopback(name("b"), peers)).await.unwrap();
        joiner.ready().await.unwrap();
        assert_eq!(joiner.get(&path("x")), Some(number(1)));
        // The third is told a name only, and finds the others by it.
        let peers = vec![joiner.gossip_addr().to_string()];
        let third = Node::start(loopback(name("c"), peers)).await.unwrap();
        let nodes = [&first, &joiner, &third];
        let found = || nodes.iter().all(|n| links(n) == 2 && members(n) == 2);
        assert!(wait_until(PATIENCE, found).await);
    });
}

#[test]
fn a_joiner_waits_for_a_peer_that_comes_later() {
    let log = log();
    block_on(async {
        let [later] = free_addrs();
        let joiner = Node::start(loopback(name("b"), vec![later.to_string()])).await.unwrap();
        let told = || !log.lines(&["no peer has answered yet", "refused"]).is_empty();
        assert!(wait_until(PATIENCE, told).await, "it says whom it tries and why in vain");
        let first = Config { gossip: later.to_string(), ..loopback(name("a"), Vec::new()) };
        let first = Node::start(first).await.unwrap();
        first.ready().await.unwrap();
        joiner.ready().await.unwrap();
    });
}

#[test]
fn nodes_bound_to_all_addresses_find_each_other() {
    block_on(async {
        let wildcard = |own: &str, peers: Vec<String>, bind: &str| Config {
            gossip: bind.to_owned(),
            insecure: true,
            ..loopback(name(own), peers)
        };
        let a = Node::start(wildcard("a", Vec::new(), "0.0.0.0:0")).await.unwrap();
        let peers = vec![format!("127.0.0.1:{}", a.gossip_addr().port())];
        let b = Node::start(wildcard("b", peers.clone(), "0.0.0.0:0")).await.unwrap();
        // An IPv6 socket that takes IPv4 as well.
        let c = Node::start(wildcard("c", peers, "[::]:0")).await.unwrap();
        for node in [&b, &c] {
            node.ready().await.unwrap();
        }
        let found = || [&a, &b, &c].iter().all(|n| links(n) == 2 && members(n) == 2);
        assert!(wait_until(PATIENCE, found).await);
        c.set(&path("x"), &number(1)).unwrap();
        assert!(wait_until(PATIENCE, || a.get(&path("x")).is_some()).await);
    });
}

#[test]
fn nodes_find_each_other_over_ipv6() {
    block_on(async {
        let v6 =
            |own: &str, peers| Config { gossip: "[::1]:0".into(), ..loopback(name(own), peers) };
        let a = Node::start(v6("a", Vec::new())).await.unwrap();
        let b = Node::start(v6("b", vec![a.gossip_addr().to_string()])).await.unwrap();
        b.ready().await.unwrap();
        assert!(a.gossip_addr().is_ipv6());
        assert!(wait_until(PATIENCE, || members(&a) == 1 && members(&b) == 1).await);
        b.set(&path("x"), &number(1)).unwrap();
        assert!(wait_until(PATIENCE, || a.get(&path("x")).is_some()).await);
    });
}

#[test]
fn a_first_node_that_restarts_joins_its_network_instead_of_founding_another() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("peers");
    block_on(async {
        let init = |n| Start::Run { init: Some(number(n)), load: None };
        let first = Config {
            start: init(1),
            peer_file: Some(file.clone()),
            ..loopback(name("a"), Vec::new())
        };
        let a = Node::start(first.clone()).await.unwrap();
        let gossip = a.gossip_addr().to_string();
        let b = Node::start(loopback(name("b"), vec![gossip.clone()])).await.unwrap();
        b.ready().await.unwrap();
        a.set(&path("x"), &number(7)).unwrap();
        assert!(wait_until(PATIENCE, || b.get(&path("x")).is_some()).await);
        let b_addr = b.gossip_addr().to_string();
        let stored = || std::fs::read_to_string(&file).is_ok_and(|t| t.contains(&b_addr));
        assert!(wait_until(PATIENCE, stored).await, "the peer file names it");
        drop(a);
        // By option.
        let again = Config {
            start: init(2),
            peers: vec![b_addr],
            gossip: gossip.clone(),
            peer_file: None,
            ..first.clone()
        };
        let a = start_again(&again).await;
        a.ready().await.unwrap();
        assert_eq!(a.get(&path("x")), Some(number(7)));
        assert_eq!(a.get(&path(":")), Some(number(1)), "the root has its value already");
        drop(a);
        // By the peer file alone.
        let a = start_again(&Config { start: init(3), gossip, ..first }).await;
        a.ready().await.unwrap();
        assert_eq!(a.get(&path("x")), Some(number(7)));
        assert_eq!(NodeState::of(&a).entries, NodeState::of(&b).entries);
    });
}

#[test]
fn a_first_node_whose_peers_are_gone_goes_on_alone_and_keeps_calling() {
    block_on(async {
        let [later] = free_addrs();
        let timing = Timing { no_answer_ms: 300, ..Timing::default() };
        let config = Config {
            start: Start::Run { init: None, load: None },
            ..loopback(name("a"), vec![later.to_string()])
        };
        let a = Node::start_with(config, timing).await.unwrap();
        a.ready().await.unwrap();
        a.set(&path("from.a"), &number(1)).unwrap();
        // The other one founded a network as well; they find each other all the same.
        let b = Config { gossip: later.to_string(), ..loopback(name("b"), Vec::new()) };
        let b = Node::start(b).await.unwrap();
        b.set(&path("from.b"), &number(2)).unwrap();
        let same = || {
            let (a, b) = (NodeState::of(&a), NodeState::of(&b));
            a.entries.len() == 2 && a == b
        };
        assert!(wait_until(PATIENCE, same).await);
    });
}

#[test]
fn who_leaves_is_gone_at_once_and_quickly() {
    let log = log();
    block_on(async {
        let mut cluster = TestCluster::start(3).await.unwrap();
        assert!(wait_until(PATIENCE, || cluster.nodes().iter().all(|n| members(n) == 2)).await);
        let leaver = cluster.take(2);
        leaver.set(&path("last.words"), &number(9)).unwrap();
        let started = Instant::now();
        leaver.shutdown().await;
        assert!(started.elapsed() < GOODBYE, "{:?}", started.elapsed());
        assert_eq!(leaver.stopped().await, StopReason::Requested);
        let gone = || cluster.nodes().iter().all(|n| members(n) == 1 && links(n) == 1);
        assert!(wait_until(PATIENCE, gone).await);
        assert!(!log.lines(&["member down", "it left"]).is_empty());
        let farewells = || log.lines(&["link closed", "peer=n2", "a farewell"]).len() >= 2;
        assert!(wait_until(PATIENCE, farewells).await);
        for node in cluster.nodes() {
            assert_eq!(node.get(&path("last.words")), Some(number(9)));
        }
    });
}

#[test]
fn who_crashes_is_seen_as_down_by_all_within_eight_seconds() {
    block_on(async {
        let pauses = Pauses::watch();
        let mut cluster = TestCluster::start(3).await.unwrap();
        assert!(wait_until(PATIENCE, || cluster.nodes().iter().all(|n| members(n) == 2)).await);
        drop(cluster.take(2));
        let crashed = Instant::now();
        let down = || cluster.nodes().iter().all(|n| members(n) == 1);
        assert!(wait_until(2 * PATIENCE, down).await);
        let (took, paused) = (crashed.elapsed(), pauses.lost());
        println!("seen as down by all after {took:?}, {paused:?} of it without a turn");
        assert!(took < Duration::from_secs(8) + 2 * paused, "{took:?}, {paused:?}");
    });
}

#[test]
fn copies_are_acknowledged_at_once() {
    block_on(async {
        let cluster = TestCluster::start(3).await.unwrap();
        let node = cluster.node(0);
        let mut medians = Vec::new();
        // On a busy machine they come late, too; but not each time.
        while medians.last().is_none_or(|median| *median >= Duration::from_millis(50)) {
            // Without being asked for, acknowledgements come every 100 ms.
            assert!(medians.len() < 20, "{medians:?}");
            let mut times = Vec::new();
            for n in 0..21 {
                let value = [n];
                let write = Write::new(path("x"), Some(&value));
                let written = node.hub().write(write, true).0.unwrap();
                let tick = written.made().unwrap().newest().tick;
                let started = Instant::now();
                let copies = || node.hub().read(|e| e.copies(tick)) == 2;
                assert!(wait_until(PATIENCE, copies).await);
                times.push(started.elapsed());
            }
            times.sort();
            medians.push(times[10]);
        }
    });
}

#[test]
fn messages_on_topics_reach_monitors_on_other_nodes() {
    block_on(async {
        let cluster = TestCluster::start(2).await.unwrap();
        let inbox = Arc::new(Inbox::new());
        let hub = cluster.node(1).hub();
        let monitor = hub.monitor(path("t.#"), &inbox, &Holder::KeyHolder).unwrap();
        // Also the longest.
        for data in [vec![1, 2], vec![7; VALUE_BYTES_MAX]] {
            let mut looks = 0_u32;
            let arrived = || {
                // One that finds its link broken, because a process stood still, is lost.
                if looks.is_multiple_of(500) {
                    let send = SendTopic { topic: &path("t.x"), data: &data };
                    cluster.node(0).hub().handle(send, NO_LATER);
                }
                looks += 1;
                let is_it = |it: &TopicMessage| it.topic == path("t.x") && *it.data == *data;
                inbox.take_messages(monitor, 10).iter().any(|heard| is_it(&heard.message))
            };
            assert!(wait_until(PATIENCE, arrived).await, "{}", data.len());
        }
    });
}

#[test]
fn what_cannot_work_is_refused_before_anything_runs() {
    block_on(async {
        let node = Node::start(loopback(name("a"), Vec::new())).await.unwrap();
        let base = || loopback(name("b"), Vec::new());
        let refused = async |config: Config| match Node::start(config).await {
            Ok(_) => panic!("it started"),
            Err(error) => error.to_string(),
        };
        let taken = node.gossip_addr().to_string();
        let error = refused(Config { gossip: taken.clone(), ..base() }).await;
        assert!(error.contains(&taken) && error.contains("in use"), "{error}");
        let taken = node.client_addr().to_string();
        let error = refused(Config { client: taken.clone(), ..base() }).await;
        assert!(error.contains("client") && error.contains("in use"), "{error}");
        let error = refused(Config { gossip: "nope.invalid:5".into(), ..base() }).await;
        assert!(error.contains("nope.invalid") && error.contains("resolved"), "{error}");
        let error = refused(Config { advertise: Some("0.0.0.0".into()), ..base() }).await;
        assert!(error.contains("advertised"), "{error}");
        let error = refused(Config { advertise_client: Some("[::]".into()), ..base() }).await;
        assert!(error.contains("advertised client"), "{error}");
        let error = refused(Config { peers: vec!["a:b:c".into()], ..base() }).await;
        assert!(error.contains("a:b:c") && error.contains("HOST:PORT"), "{error}");
        let error = refused(Config { network: String::new(), ..base() }).await;
        assert!(error.contains("network"), "{error}");
        let error = refused(Config { start: Start::Join, ..base() }).await;
        assert!(error.contains("at least one"), "{error}");
    });
}

#[test]
fn a_saved_state_is_there_before_clients_are_served_and_spreads() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/distkv-files/saved-state.bin");
    block_on(async {
        let load = |file: &std::path::Path| Config {
            start: Start::Run { init: Some(number(1)), load: Some(file.to_owned()) },
            ..loopback(name("a"), Vec::new())
        };
        let a = Node::start(load(file.as_ref())).await.unwrap();
        let entries = NodeState::of(&a).entries;
        assert!(entries.len() > 1_000, "{}", entries.len());
        let b = Node::start(loopback(name("b"), vec![a.gossip_addr().to_string()])).await.unwrap();
        b.ready().await.unwrap();
        assert_eq!(NodeState::of(&b).entries, entries);
        // Where the network is there, with its deletions, the same command line joins it.
        let here = Node::start(loopback(name("c"), Vec::new())).await.unwrap();
        here.ready().await.unwrap();
        let peers = vec![here.gossip_addr().to_string()];
        let again = Config { peers, name: name("d"), ..load(file.as_ref()) };
        let again = Node::start(again).await.unwrap();
        again.ready().await.unwrap();
        assert!(NodeState::of(&again).entries.len() <= 1, "the file was loaded");
        // A file that is bad half way is not loaded at all.
        let folder = tempfile::tempdir().unwrap();
        let bad = folder.path().join("bad");
        let mut bytes = std::fs::read(file).unwrap();
        let half = bytes.len() / 2;
        bytes[half..].fill(0xc1);
        std::fs::write(&bad, bytes).unwrap();
        for (file, why) in [(bad, "at byte"), (folder.path().join("none"), "No such file")] {
            let Err(error) = Node::start(load(&file)).await else { panic!("it started") };
            let error = error.to_string();
            assert!(error.contains(why) && error.contains(file.to_str().unwrap()), "{error}");
        }
    });
}

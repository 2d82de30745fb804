//! What strangers and broken peers do to the gossip port. Whatever it is, the node goes on for
//! everybody else, in bounded memory, and says once in its log what happened.

use crate::sockets;

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use distkv::model::ids::{Incarnation, NodeId, Tock};
use distkv::model::seen::Mark;
use distkv::model::tick_set::TickSet;
use distkv::model::value::{write_array_len, write_bool, write_str, write_u64};
use distkv::node::Node;
use distkv::protocol::frame::write_frame;
use distkv::protocol::peer::greeting::{Greeting, Hello, RefusalCode};
use distkv::protocol::peer::{CatchUpAsk, Digest, PeerMessage, RefuseReason, Unnamed};
use distkv::testing::{PATIENCE, TestCluster, block_on, loopback, wait_until};
use sockets::{GOODBYE, Log, RawPeer, big_value, hello, log, name, number, path};

/// A digest's kind on the wire.
const DIGEST: u8 = 2;

/// A cluster of two, what they log, and a check that they still work together.
struct Victims {
    cluster: TestCluster,
    log: Log,
    checks: u8,
}

impl Victims {
    async fn start() -> Self {
        let log = log();
        Self { cluster: TestCluster::start(2).await.unwrap(), log, checks: 0 }
    }

    /// The one that is attacked.
    fn node(&self) -> &Node {
        self.cluster.node(0)
    }

    async fn logged(&self, words: &[&str]) {
        let found = wait_until(PATIENCE, || !self.log.lines(words).is_empty()).await;
        assert!(found, "{words:?} are not in {:#?}", self.log.lines(&[]));
    }

    /// Writes at each are read at the other, and a newcomer is let in.
    async fn go_on(&mut self) {
        self.checks += 1;
        for (from, to) in [(0, 1), (1, 0)] {
            let at = path(&format!("check.{from}"));
            self.cluster.node(from).set(&at, &number(self.checks)).unwrap();
            let arrived = || self.cluster.node(to).get(&at) == Some(number(self.checks));
            assert!(wait_until(PATIENCE, arrived).await);
        }
        let peers = vec![self.node().gossip_addr().to_string()];
        let newcomer = loopback(name(&format!("late{}", self.checks)), peers);
        let newcomer = Node::start(newcomer).await.unwrap();
        let ready = futures::future::select(
            Box::pin(newcomer.ready()),
            Box::pin(wait_until(PATIENCE, || false)),
        );
        assert!(matches!(ready.await, futures::future::Either::Left((Ok(()), _))));
        newcomer.shutdown().await;
    }
}

fn digest(seen: Vec<(NodeId, TickSet)>) -> PeerMessage<'static> {
    let (tock, mark) = (Tock::default(), Mark::default());
    PeerMessage::Digest(Digest {
        ready: true,
        tock,
        mark,
        seen,
        unnamed: Unnamed::Unsaid,
        contents: None,
    })
}

/// Writes big values, none of which waits until a peer that takes nothing is given up (15 s), until one link lags and goes on lagging although
/// nothing more is written. How much that takes is up to luck: a link's writer that gets no turn
/// finds its queue emptied, and then the sockets have room for what follows.
async fn write_until_one_link_stands_still(node: &Node) {
    let deadline = Instant::now() + 2 * PATIENCE;
    for n in 0.. {
        let started = Instant::now();
        node.set(&path(&format!("big.k{}", n % 20)), &big_value(64 << 10)).unwrap();
        assert!(started.elapsed() < Duration::from_secs(10), "a write waited for a peer");
        let goes_on = || node.hub().lagging_links().len() != 1;
        if !goes_on() && !wait_until(Duration::from_millis(300), goes_on).await {
            return;
        }
        assert!(Instant::now() < deadline, "no link lags after {n} writes");
    }
}

/// A digest with one range of one incarnation, whatever its numbers.
fn raw_digest(own: &str, incarnation: u64, tock: u64, gap: u64, length: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_frame(DIGEST, &mut bytes, |out| {
        write_array_len(4, out);
        write_bool(true, out);
        write_u64(tock, out);
        write_array_len(0, out);
        write_array_len(1, out);
        write_array_len(4, out);
        write_str(own, out);
        write_u64(incarnation, out);
        write_u64(gap, out);
        write_u64(length, out);
    });
    bytes
}

#[test]
fn bytes_of_another_protocol_are_shown_and_the_connection_is_closed() {
    block_on(async {
        let mut victims = Victims::start().await;
        let to = victims.node().gossip_addr();
        // Each kind of complaint about a host appears once.
        let strangers: [(&[u8], Option<&str>); 5] = [
            (
                b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                Some("does not speak the peer protocol: it began with \"GET /"),
            ),
            (&[0xff; 64], None),
            (&[0, 0, 0, 0, 1], None),
            (&[0, 0, 0, 2, 0x20, 0x90], Some("first frame is of kind 32")),
            (&[0, 0, 0, 3, 0x44, 0xc1, 0xc1], None),
        ];
        for (bytes, words) in strangers {
            let mut stranger = RawPeer::connect(to);
            stranger.stream.write_all(bytes).unwrap();
            stranger.wait_for_end();
            if let Some(words) = words {
                victims.logged(&["gossip port was closed", "127.0.0.1", words]).await;
            }
        }
        assert_eq!(
            victims.log.lines(&["does not speak the peer protocol: it began with"]).len(),
            1
        );
        assert_eq!(victims.log.lines(&["gossip port was closed", "frame is of kind"]).len(), 1);
        victims.go_on().await;
    });
}

#[test]
fn half_a_greeting_costs_five_seconds_of_one_socket() {
    block_on(async {
        let mut victims = Victims::start().await;
        let to = victims.node().gossip_addr();
        let started = Instant::now();
        let mut half = RawPeer::connect(to);
        half.stream.write_all(&[0, 0, 1, 0, 0x44, 0x8b]).unwrap();
        // A crowd of such does not keep others out for longer either.
        let crowd: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(to).unwrap()).collect();
        victims.go_on().await;
        half.wait_for_end();
        assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
        victims.logged(&["gossip port was closed", "did not say who it is"]).await;
        drop(crowd);
    });
}

#[test]
fn absurd_numbers_close_the_link() {
    block_on(async {
        let mut victims = Victims::start().await;
        let to = victims.node().gossip_addr();
        let own = victims.node().hub().read(|e| e.id().clone());
        let cases: [(&str, Vec<u8>, &str); 6] = [
            ("evil1", vec![0xff; 16], "4294967295 bytes was announced"),
            ("evil2", raw_digest("x", 1, 1 << 62, 1, 1), "counter 4611686018427387904"),
            ("evil3", raw_digest("x", 1, 1, 1, 1 << 62), "ticks"),
            ("evil4", raw_digest("x", 1, 1, u64::MAX, u64::MAX), "ticks"),
            ("evil5", raw_digest("n0", own.incarnation.0, 1, 1, 1 << 63), "ticks"),
            ("evil6", raw_digest("a b", 1, 1, 1, 1), "bad name"),
        ];
        for (who, bytes, why) in cases {
            let mut evil = RawPeer::greet(to, &hello(who, 1));
            evil.stream.write_all(&bytes).unwrap();
            evil.wait_for_end();
            victims.logged(&["link closed", &format!("peer={who}"), why]).await;
        }
        assert_eq!(victims.node().hub().read(|e| e.id().clone()), own, "nothing was believed");
        victims.go_on().await;
    });
}

#[test]
fn a_peer_with_a_clock_that_no_network_reaches_is_named_once_and_not_believed() {
    block_on(async {
        let mut victims = Victims::start().await;
        let to = victims.node().gossip_addr();
        for tock in [(1 << 60) + 1, (1 << 62) - 1, (1 << 62) - 1] {
            let mut evil = RawPeer::greet(to, &hello("evil", 1));
            evil.stream.write_all(&raw_digest("x", 1, tock, 1, 1)).unwrap();
            evil.wait_for_end();
            victims.logged(&["link closed", "peer=evil", "clock is near its end"]).await;
        }
        assert_eq!(victims.log.lines(&["link closed", "clock is near its end"]).len(), 1);
        victims.go_on().await;
        let clock = victims.node().hub().read(|e| e.tock());
        assert!(clock < Tock::new(1_000).unwrap(), "{clock}");
    });
}

#[test]
fn a_peer_that_cannot_read_arrays_in_paths_is_linked_until_there_is_one() {
    block_on(async {
        let mut victims = Victims::start().await;
        let (to, hub) = (victims.node().gossip_addr(), victims.node().hub().clone());
        let old = Hello { versions: (2, 2), ..hello("old", 1) };
        let mut peer = RawPeer::greet(to, &old);
        assert!(wait_until(PATIENCE, || hub.read(|e| e.link_count()) == 2).await);
        victims.go_on().await;
        // Clients make none while it is there.
        let at = path("lamps:'kitchen',2");
        let refused = victims.node().set(&at, &number(1)).unwrap_err().to_string();
        assert!(refused.contains("linked to an older one; upgrade that first"), "{refused}");
        assert_eq!(victims.node().get(&at), None);
        // It comes from a node that does not know the old one.
        let other = victims.cluster.node(1);
        other.set(&at, &number(1)).unwrap();
        assert!(wait_until(PATIENCE, || victims.node().get(&at) == Some(number(1))).await);
        peer.wait_for_end();
        victims.logged(&["link closed", "peer=old", "arrays as elements"]).await;
        assert!(wait_until(PATIENCE, || hub.read(|e| e.link_count()) == 1).await);
        victims.node().set(&at, &number(2)).unwrap();
        for at in [to, other.gossip_addr()] {
            let Greeting::Refusal(refusal) = RawPeer::connect(at).exchange(&old) else {
                panic!("not refused")
            };
            assert_eq!(refusal.code, RefusalCode::Version, "{refusal}");
            assert!(refusal.text.contains("peer protocol 3 to 3, you speak 2 to 2; upgrade"));
        }
        victims.go_on().await;
    });
}

#[test]
fn a_tick_of_ours_that_we_never_used_makes_us_renew_and_go_on() {
    block_on(async {
        let mut victims = Victims::start().await;
        let hub = victims.node().hub().clone();
        let before = hub.read(|e| e.id().clone());
        victims.node().set(&path("old"), &number(1)).unwrap();
        let mut evil = RawPeer::greet(victims.node().gossip_addr(), &hello("evil", 1));
        evil.send(&digest(vec![(before.clone(), TickSet::range(1, 1 << 61).unwrap())]));
        let renewed = || hub.read(|e| e.id().incarnation != before.incarnation);
        assert!(wait_until(PATIENCE, renewed).await);
        victims.logged(&["new incarnation", "somebody else uses"]).await;
        // The link that lied is closed with all others; only honest ones come back.
        evil.wait_for_end();
        assert!(victims.cluster.linked().await);
        let known = || {
            let member = hub.read(|e| e.id().clone());
            victims.cluster.node(1).hub().read(|e| e.members().any(|m| *m == member))
        };
        assert!(wait_until(PATIENCE, known).await, "SWIM knows its new life");
        victims.go_on().await;
    });
}

#[test]
fn a_peer_that_never_reads_is_not_felt_and_is_closed() {
    block_on(async {
        let mut victims = Victims::start().await;
        let hub = victims.node().hub().clone();
        let _deaf = RawPeer::greet(victims.node().gossip_addr(), &hello("deaf", 1));
        assert!(wait_until(PATIENCE, || hub.read(|e| e.link_count()) == 2).await);
        write_until_one_link_stands_still(victims.node()).await;
        let started = Instant::now();
        victims.node().set(&path("last"), &number(1)).unwrap();
        let arrived = || victims.cluster.node(1).get(&path("last")).is_some();
        assert!(wait_until(PATIENCE, arrived).await);
        println!("the honest peer had it after {:?}", started.elapsed());
        let closed = || hub.read(|e| e.link_count()) == 1;
        assert!(wait_until(3 * PATIENCE, closed).await, "no progress for 15 s");
        victims.logged(&["link closed", "peer=deaf"]).await;
        victims.go_on().await;
    });
}

#[test]
fn a_node_that_leaves_does_not_wait_for_a_peer_that_never_reads() {
    block_on(async {
        let node = Node::start(loopback(name("a"), Vec::new())).await.unwrap();
        let _deaf = RawPeer::greet(node.gossip_addr(), &hello("deaf", 1));
        assert!(wait_until(PATIENCE, || node.hub().read(|e| e.link_count()) == 1).await);
        write_until_one_link_stands_still(&node).await;
        let started = Instant::now();
        node.shutdown().await;
        assert!(started.elapsed() < GOODBYE, "{:?}", started.elapsed());
    });
}

#[test]
fn what_a_peer_says_of_itself_cannot_forge_the_log() {
    block_on(async {
        let victims = Victims::start().await;
        let forger = distkv::protocol::peer::greeting::Hello {
            software: "1.0\nERROR all is lost\u{1b}[2J".into(),
            ..hello("forger", 1)
        };
        let _forger = RawPeer::greet(victims.node().gossip_addr(), &forger);
        victims.logged(&["linked", "forger", "1.0 ERROR all is lost"]).await;
        assert_eq!(victims.log.lines(&["\u{1b}"]), [""; 0]);
    });
}

#[test]
fn a_flood_of_names_ends_the_link_that_sends_it() {
    block_on(async {
        let victims = Victims::start().await;
        let node = victims.node();
        let mut evil = RawPeer::greet(node.gossip_addr(), &hello("flood", 1));
        let mut sent = 0;
        // Once nobody reads any more, the system takes some, and then nothing.
        evil.stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let closed = loop {
            let seen = (0..512)
                .map(|n| {
                    let id = NodeId { name: name("invented"), incarnation: Incarnation(sent + n) };
                    (id, TickSet::range(1, 2).unwrap())
                })
                .collect();
            let mut bytes = Vec::new();
            digest(seen).encode(&distkv::model::ids::NodeTable::new(), &mut bytes);
            if evil.stream.write_all(&bytes).is_err() {
                break true;
            }
            sent += 512;
            if sent > 1 << 20 {
                break false;
            }
        };
        assert!(closed, "{sent} names were taken");
        victims.logged(&["link closed", "peer=flood", "more incarnations"]).await;
        // Those who are known go on; there is no room for new ones.
        for (from, to) in [(0, 1), (1, 0)] {
            let at = path(&format!("check.{from}"));
            victims.cluster.node(from).set(&at, &number(1)).unwrap();
            assert!(wait_until(PATIENCE, || victims.cluster.node(to).get(&at).is_some()).await);
        }
    });
}

#[test]
fn peers_that_ask_for_everything_and_take_nothing_do_not_keep_a_joiner_out() {
    block_on(async {
        let mut victims = Victims::start().await;
        for n in 0..200 {
            victims.node().set(&path(&format!("big.k{n}")), &big_value(64 << 10)).unwrap();
        }
        // The other one's own need of a catch-up is over.
        victims.cluster.settled().await.unwrap();
        let to = victims.node().gossip_addr();
        // As many as a node answers at once.
        let greedy: Vec<RawPeer> = (0..4)
            .map(|n| {
                let mut peer = RawPeer::greet(to, &hello(&format!("greedy{n}"), 1));
                ask_for_all(&mut peer, 1, victims.node());
                peer
            })
            .collect();
        for peer in &greedy {
            // Its answer has begun: more is there than any digest.
            let mut piece = vec![0; 16 << 10];
            let begun = || peer.stream.peek(&mut piece).unwrap() == 16 << 10;
            assert!(wait_until(PATIENCE, begun).await);
        }
        // A fifth is told that the node is busy, instead of waiting.
        let mut fifth = RawPeer::greet(to, &hello("fifth", 1));
        let mut ask_id = 0;
        fifth.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let busy = wait_until(PATIENCE, || {
            ask_id += 1;
            ask_for_all(&mut fifth, ask_id, victims.node());
            fifth.heard_refusal(RefuseReason::Busy)
        });
        assert!(busy.await);
        drop(fifth);
        victims.go_on().await;
        for n in 0..4 {
            let who = format!("peer=greedy{n}");
            victims.logged(&["link closed", &who, "did not take"]).await;
        }
        drop(greedy);
    });
}

/// Counters that say that nothing is known, and at once that everything is missing.
fn ask_for_all(peer: &mut RawPeer, id: u64, node: &Node) {
    let (mark, contiguous) = (Mark::default(), Vec::new());
    let ask = CatchUpAsk { id, mark, contiguous, no_announcements: false };
    peer.send(&PeerMessage::CatchUpAsk(ask));
    let missing = node.hub().read(|e| vec![(e.id().clone(), TickSet::range(1, 1 << 40).unwrap())]);
    peer.send(&PeerMessage::CatchUpMissing { id, missing });
}

#[test]
fn asks_without_end_are_answered_one_at_a_time() {
    block_on(async {
        let mut victims = Victims::start().await;
        for n in 0..2_000 {
            victims.node().set(&path(&format!("many.k{n}")), &number(1)).unwrap();
        }
        // Nobody reads the answers.
        let mut greedy = RawPeer::greet(victims.node().gossip_addr(), &hello("greedy", 1));
        for id in 0..5_000 {
            ask_for_all(&mut greedy, id, victims.node());
        }
        victims.go_on().await;
    });
}

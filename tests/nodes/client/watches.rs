//! Watches that go on at another node, or say that they started over.

use std::collections::BTreeMap;
use std::time::Duration;

use distkv::client::smart::{Change, MonitorEvent, Watch, WatchEvent, WatchOptions};
use distkv::client::{Client, ClientConfig, Connection, Fields, HostPort, Options, PutOptions};
use distkv::model::ids::NodeName;
use distkv::model::path::Path;
use distkv::node::Node;
use distkv::rt::{self, TcpListener};
use distkv::testing::{PATIENCE, TestCluster, block_on, free_addrs, loopback, wait_until};

use super::ops::{connect, frail_node, is_of, path};

const FETCH: WatchOptions = WatchOptions { fetch: true, min_depth: None, max_depth: None };

async fn next(watch: &mut Watch) -> WatchEvent {
    let event = rt::timeout(PATIENCE, watch.next()).await;
    event.expect("nothing came").unwrap()
}

async fn change(watch: &mut Watch) -> Change {
    match next(watch).await {
        WatchEvent::Change(change) => change,
        other => panic!("{other:?}"),
    }
}

fn at(number: i64) -> Path {
    path("w").push(number).unwrap()
}

/// The place of the node that a watch hangs on.
fn place_of(cluster: &TestCluster, watch: &Watch) -> usize {
    let name = watch.node().unwrap();
    cluster.nodes().iter().position(|node| node.name().as_str() == name).unwrap()
}

/// What somebody who believes the watch thinks is there, until an event that ends it.
async fn follow(
    watch: &mut Watch,
    mirror: &mut BTreeMap<Path, i64>,
    is_end: impl Fn(&WatchEvent) -> bool,
) -> WatchEvent {
    loop {
        let event = next(watch).await;
        match &event {
            WatchEvent::Change(change) => match change.get::<i64>().unwrap() {
                Some(value) => drop(mirror.insert(change.path.clone(), value)),
                None => drop(mirror.remove(&change.path)),
            },
            WatchEvent::Restarted => mirror.clear(),
            WatchEvent::UpToDate | WatchEvent::Resumed { .. } => {}
        }
        if is_end(&event) {
            return event;
        }
    }
}

async fn put(client: &Client, number: i64, value: i64) {
    client.put_with(&at(number), &value, &PutOptions::new().copies(1)).await.unwrap();
}

#[test]
fn the_state_comes_first_and_then_changes() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        client.put(&at(1), &1).await.unwrap();
        client.put(&at(2), &2).await.unwrap();
        let mut watch = client.watch(&path("w"), FETCH).await.unwrap();
        assert_eq!(change(&mut watch).await.path, at(1));
        assert_eq!(change(&mut watch).await.get::<u8>().unwrap(), Some(2));
        assert_eq!(next(&mut watch).await, WatchEvent::UpToDate);
        client.put(&at(2), &3).await.unwrap();
        assert_eq!(change(&mut watch).await.get::<u8>().unwrap(), Some(3));
        client.delete(&at(1)).await.unwrap();
        let deleted = change(&mut watch).await;
        assert_eq!((deleted.path, deleted.value), (at(1), None));
        cluster.shutdown().await;
    });
}

#[test]
fn without_fetch_only_changes_come_also_after_its_node_died() {
    block_on(async {
        let mut cluster = TestCluster::start(3).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        put(&client, 1, 1).await;
        put(&client, 2, 2).await;
        let mut watch = client.watch(&path("w"), WatchOptions::default()).await.unwrap();
        assert_eq!(next(&mut watch).await, WatchEvent::UpToDate);
        cluster.settled().await.unwrap();
        drop(cluster.take(place_of(&cluster, &watch)));
        put(&client, 1, 10).await;
        let changed = change(&mut watch).await;
        assert_eq!((changed.path.clone(), changed.get::<u8>().unwrap()), (at(1), Some(10)));
        assert!(matches!(next(&mut watch).await, WatchEvent::Resumed { .. }));
        cluster.shutdown().await;
    });
}

/// What it has not been told of the first state, it cannot tell from what changed since.
#[test]
fn without_fetch_nothing_is_lost_either_if_its_node_dies_before_the_first_state_has_come() {
    block_on(async {
        let mut cluster = TestCluster::start(3).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        // More than a node sends before it is read.
        let long = "x".repeat(20_000);
        for number in 0..400 {
            client.put(&at(number).push("long").unwrap(), &long).await.unwrap();
        }
        for number in 0..3 {
            put(&client, number, 1).await;
        }
        cluster.settled().await.unwrap();
        let mut watch = client.watch(&path("w"), WatchOptions::default()).await.unwrap();
        for number in 0..3 {
            client.put_with(&at(number), &2, &PutOptions::new().copies(2)).await.unwrap();
        }
        drop(cluster.take(place_of(&cluster, &watch)));
        let mut is_restarted = false;
        let mut told = BTreeMap::new();
        loop {
            match next(&mut watch).await {
                WatchEvent::Restarted => is_restarted = true,
                WatchEvent::Change(change) if change.path.elements().count() == 2 => {
                    told.insert(change.path.clone(), change.get::<i64>().unwrap());
                }
                WatchEvent::UpToDate => break,
                WatchEvent::Change(_) | WatchEvent::Resumed { .. } => {}
            }
        }
        assert!(is_restarted);
        assert_eq!(told, (0..3).map(|number| (at(number), Some(2))).collect());
        cluster.shutdown().await;
    });
}

#[test]
fn it_goes_on_at_the_next_node_and_tells_what_happened_meanwhile_and_nothing_twice() {
    block_on(async {
        let mut cluster = TestCluster::start(3).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        for i in 0..50 {
            put(&client, i, i).await;
        }
        let mut watch = client.watch(&path("w"), FETCH).await.unwrap();
        let mut mirror = BTreeMap::new();
        follow(&mut watch, &mut mirror, |event| *event == WatchEvent::UpToDate).await;
        assert_eq!(mirror.len(), 50);
        cluster.settled().await.unwrap();
        // Nobody listens while the node dies and others are written to.
        drop(cluster.take(place_of(&cluster, &watch)));
        put(&client, 7, 700).await;
        put(&client, 100, 100).await;
        client.delete_with(&at(8), &PutOptions::new().copies(1)).await.unwrap();
        let mut told = Vec::new();
        let resumed = loop {
            match next(&mut watch).await {
                WatchEvent::Change(change) => told.push(change),
                other => break other,
            }
        };
        assert!(matches!(resumed, WatchEvent::Resumed { .. }), "{resumed:?}");
        told.sort_by(|a, b| a.path.as_bytes().cmp(b.path.as_bytes()));
        let told: Vec<_> = told.iter().map(|c| (c.path.clone(), c.get::<i64>().unwrap())).collect();
        assert_eq!(told, [(at(7), Some(700)), (at(8), None), (at(100), Some(100))]);
        // And changes go on.
        put(&client, 7, 701).await;
        assert_eq!(change(&mut watch).await.get::<i64>().unwrap(), Some(701));
        let stats = client.stats().watches;
        assert_eq!((stats.resumed, stats.restarted), (1, 0), "{stats:?}");
        assert!(stats.repeats >= 48);
        cluster.shutdown().await;
    });
}

#[test]
fn what_was_deleted_and_purged_meanwhile_is_told_as_deleted() {
    block_on(async {
        let mut cluster = TestCluster::start(2).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        // The first node alone agrees on purging, so the watch has to hang on the other one.
        let (mut watch, top) = loop {
            let top = Path::root().push(rt::now() as i64).unwrap();
            let watch = client.watch(&top, FETCH).await.unwrap();
            if watch.node() == Some("n1") {
                break (watch, top);
            }
        };
        let (stays, goes) = (top.push("stays").unwrap(), top.push("goes").unwrap());
        client.put(&stays, &1).await.unwrap();
        client.put(&goes, &2).await.unwrap();
        let mut mirror = BTreeMap::new();
        follow(&mut watch, &mut mirror, |event| match event {
            WatchEvent::Change(change) => change.path == goes,
            _ => false,
        })
        .await;
        cluster.settled().await.unwrap();
        drop(cluster.take(1));
        client.delete(&goes).await.unwrap();
        let is_purged =
            || cluster.node(0).hub().read(|engine| engine.get(goes.as_bytes()).is_none());
        assert!(wait_until(PATIENCE * 2, is_purged).await);
        let is_end = |event: &WatchEvent| matches!(event, WatchEvent::Resumed { .. });
        follow(&mut watch, &mut mirror, is_end).await;
        assert_eq!(mirror, BTreeMap::from([(stays, 1)]));
        assert_eq!(client.stats().watches.restarted, 0);
        cluster.shutdown().await;
    });
}

#[test]
fn under_writes_versions_of_a_path_come_in_order_while_nodes_die() {
    block_on(async {
        let mut cluster = TestCluster::start(4).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let mut watch = client.watch(&path("w"), FETCH).await.unwrap();
        let writer = client.clone();
        let writing = rt::spawn(async move {
            for value in 0..600 {
                put(&writer, value % 5, value).await;
            }
            put(&writer, 5, -1).await;
        });
        let (mut last, mut deaths, mut count, mut again) = (BTreeMap::new(), 0, 0, 0);
        loop {
            match next(&mut watch).await {
                WatchEvent::Change(change) => {
                    let value = change.get::<i64>().unwrap().unwrap();
                    if value == -1 {
                        break;
                    }
                    let before = last.insert(change.path.clone(), value);
                    // Once for each death the same may come again: what was in flight then was written
                    // once more at another node.
                    again += usize::from(before == Some(value));
                    assert!(again <= deaths, "{value} came twice");
                    assert!(before.is_none_or(|before| before <= value), "{before:?} {value}");
                    count += 1;
                    if count % 150 == 100 && deaths < 2 {
                        deaths += 1;
                        drop(cluster.take(place_of(&cluster, &watch)));
                    }
                }
                WatchEvent::UpToDate | WatchEvent::Resumed { .. } => {}
                // A version that only the dead node had, and that the one written in its place does not
                // overtake: the same tock, and a lesser name. Rare.
                WatchEvent::Restarted => last.clear(),
            }
        }
        writing.await;
        assert_eq!(deaths, 2);
        assert_eq!(last.into_values().collect::<Vec<_>>(), [595, 596, 597, 598, 599]);
        let watches = client.stats().watches;
        assert_eq!(watches.resumed + watches.restarted, 2);
        cluster.shutdown().await;
    });
}

#[test]
fn a_network_that_lost_everything_makes_it_start_over() {
    block_on(async {
        let mut config = loopback(NodeName::new("alone").unwrap(), Vec::new());
        // It is started there again.
        config.client = free_addrs::<1>()[0].to_string();
        let node = Node::start(config.clone()).await.unwrap();
        node.ready().await.unwrap();
        let patience = Duration::from_millis(200);
        let client = Client::connect(
            [node.client_addr().into()],
            ClientConfig::new().watch_patience(patience),
        );
        let client = client.await.unwrap();
        client.put(&at(1), &1).await.unwrap();
        let mut watch = client.watch(&path("w"), FETCH).await.unwrap();
        let mut mirror = BTreeMap::new();
        follow(&mut watch, &mut mirror, |event| *event == WatchEvent::UpToDate).await;
        node.shutdown().await;
        drop(node);
        let node = Node::start(config).await.unwrap();
        node.ready().await.unwrap();
        client.put(&at(2), &2).await.unwrap();
        follow(&mut watch, &mut mirror, |event| *event == WatchEvent::Restarted).await;
        follow(&mut watch, &mut mirror, |event| *event == WatchEvent::UpToDate).await;
        assert_eq!(mirror, BTreeMap::from([(at(2), 2)]));
        assert_eq!(client.stats().watches.restarted, 1);
        node.shutdown().await;
    });
}

/// What the next node told later, and older than what had been told, was taken for known, for ever.
#[test]
fn a_network_that_lost_a_deletion_and_goes_on_below_it_makes_it_start_over() {
    block_on(async {
        let mut config = loopback(NodeName::new("alone").unwrap(), Vec::new());
        // It is started there again.
        config.client = free_addrs::<1>()[0].to_string();
        let node = Node::start(config.clone()).await.unwrap();
        node.ready().await.unwrap();
        let patience = Duration::from_millis(200);
        let client = Client::connect(
            [node.client_addr().into()],
            ClientConfig::new().watch_patience(patience),
        );
        let client = client.await.unwrap();
        for value in 0..20 {
            client.put(&at(1), &value).await.unwrap();
        }
        let mut watch = client.watch(&path("w"), FETCH).await.unwrap();
        let mut mirror = BTreeMap::new();
        follow(&mut watch, &mut mirror, |event| *event == WatchEvent::UpToDate).await;
        client.delete(&at(1)).await.unwrap();
        assert_eq!(change(&mut watch).await.value, None);
        node.shutdown().await;
        drop(node);
        let node = Node::start(config).await.unwrap();
        node.ready().await.unwrap();
        let is_resumed = |event: &WatchEvent| matches!(event, WatchEvent::Resumed { .. });
        follow(&mut watch, &mut mirror, is_resumed).await;
        // What this client would write came after all that it knows.
        let other = Client::connect([node.client_addr().into()], ClientConfig::new());
        other.await.unwrap().put(&at(1), &9).await.unwrap();
        follow(&mut watch, &mut mirror, |event| *event == WatchEvent::Restarted).await;
        follow(&mut watch, &mut mirror, |event| *event == WatchEvent::UpToDate).await;
        assert_eq!(mirror, BTreeMap::from([(at(1), 9)]));
        node.shutdown().await;
    });
}

#[test]
fn more_than_it_remembers_makes_it_start_over() {
    block_on(async {
        let mut cluster = TestCluster::start(2).await.unwrap();
        let config = ClientConfig::new().watch_memory(20, 1 << 20);
        let client = connect(&cluster, config).await;
        for i in 0..30 {
            put(&client, i, i).await;
        }
        let mut watch = client.watch(&path("w"), FETCH).await.unwrap();
        let mut mirror = BTreeMap::new();
        follow(&mut watch, &mut mirror, |event| *event == WatchEvent::UpToDate).await;
        cluster.settled().await.unwrap();
        drop(cluster.take(place_of(&cluster, &watch)));
        assert_eq!(next(&mut watch).await, WatchEvent::Restarted);
        mirror.clear();
        follow(&mut watch, &mut mirror, |event| *event == WatchEvent::UpToDate).await;
        assert_eq!(mirror.len(), 30);
        cluster.shutdown().await;
    });
}

#[test]
fn a_watch_whose_waits_are_dropped_misses_nothing() {
    block_on(async {
        let mut cluster = TestCluster::start(3).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let mut watch = client.watch(&path("w"), FETCH).await.unwrap();
        let dies = place_of(&cluster, &watch);
        // At a node that lives on: what is in flight when a node dies is written once more elsewhere,
        // and would rightly be told once more.
        let lives = HostPort::from(cluster.node((dies + 1) % 3).client_addr());
        let writer = Connection::connect(&lives, Options::default()).await.unwrap();
        let writing = rt::spawn(async move {
            for number in 0..300 {
                let mut fields = Fields::at(&at(number));
                fields.u64("value", number.unsigned_abs());
                writer.request("set_value", &fields).await.unwrap();
            }
        });
        let mut seen = Vec::new();
        let mut round = 0;
        while seen.len() < 300 {
            round += 1;
            // Shorter than any answer from a node takes.
            let event = rt::timeout(Duration::from_micros(round % 100), watch.next()).await;
            match event.transpose().unwrap() {
                Some(WatchEvent::Change(change)) => {
                    seen.push(change.get::<i64>().unwrap().unwrap());
                    if seen.len() == 100 {
                        drop(cluster.take(dies));
                    }
                }
                Some(WatchEvent::Restarted) => panic!("it started over"),
                Some(WatchEvent::UpToDate | WatchEvent::Resumed { .. }) | None => {}
            }
        }
        writing.await;
        assert_eq!(client.stats().watches.resumed, 1);
        seen.sort_unstable();
        assert_eq!(seen, (0..300).collect::<Vec<_>>());
        cluster.shutdown().await;
    });
}

#[test]
fn closing_the_client_ends_its_watches() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let mut watch = client.watch(&path("w"), FETCH).await.unwrap();
        assert_eq!(next(&mut watch).await, WatchEvent::UpToDate);
        client.close();
        let ended = rt::timeout(PATIENCE, watch.next()).await.expect("it goes on");
        assert_eq!(ended.unwrap_err().code(), Some("closed"));
        assert_eq!(watch.next().await.unwrap_err().code(), Some("closed"));
        cluster.shutdown().await;
    });
}

/// A stream and its first message; behind it, the connection ends.
fn one_message(request: &[u8], seq: u64) -> Option<Vec<u8>> {
    let mut start = Fields::new();
    start.u64("seq", seq).str("state", "start");
    let mut message = Fields::new();
    message.u64("seq", seq).path("topic", &path("a")).raw("data", &[1]);
    is_of(request, "msg_monitor").then(|| [start.encode(), message.encode()].concat())
}

#[test]
fn a_stream_that_breaks_again_and_again_is_opened_after_longer_and_longer_pauses() {
    block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: HostPort = listener.local_addr().unwrap().into();
        let script = rt::spawn(frail_node(listener, one_message));
        let client = Client::connect(vec![address], ClientConfig::new()).await.unwrap();
        let begun = rt::now();
        let mut monitor = client.monitor(&path("a")).await.unwrap();
        for _ in 0..10 {
            while !matches!(monitor.next().await.unwrap(), MonitorEvent::Message(_)) {}
        }
        // None before the second one; then at least half of 10 ms, 20 ms and so on.
        let pauses: u64 = (0..8).map(|n| 5 << n).sum();
        assert!(rt::now() - begun >= pauses, "{}", rt::now() - begun);
        script.cancel().await;
    });
}

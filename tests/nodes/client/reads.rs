//! Whose answer a read takes.

mod majorities;
mod own_writes;
mod silent_nodes;

use std::time::Duration;

use distkv::client::retry::RetryPolicy;
use distkv::client::{Client, ClientConfig, GetOptions, PutOptions, ReadMode};
use distkv::model::host_port::HostPort;
use distkv::model::ids::NodeName;
use distkv::model::shard::shard_of;
use distkv::model::value::Value;
use distkv::node::Node;
use distkv::rt;
use distkv::testing::{PATIENCE, TestCluster, block_on, free_addrs, loopback, wait_until};

use super::ops::{connect, path};

fn hasty() -> RetryPolicy {
    RetryPolicy { total_deadline: Duration::from_secs(3), ..RetryPolicy::default() }
}

#[test]
fn reads_and_writes_of_a_shard_meet_at_one_node() {
    block_on(async {
        let cluster = TestCluster::start(3).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let mut nodes = std::collections::BTreeMap::new();
        for i in 0..60_i64 {
            let at = path("x").push(i % 5).unwrap();
            let written = client.put(&at, &i).await.unwrap();
            let entry = client.get_entry(&at).await.unwrap().unwrap();
            assert_eq!(written.node, entry.node);
            *nodes.entry(written.node).or_insert(0) += 1;
        }
        assert_eq!(nodes.len(), 1, "one first element, one shard: {nodes:?}");
        assert_eq!(client.stats().router.to_others, 0);
        cluster.shutdown().await;
    });
}

#[test]
fn any_asks_different_nodes() {
    block_on(async {
        let cluster = TestCluster::start(3).await.unwrap();
        let client = connect(&cluster, ClientConfig::new().read_mode(ReadMode::Any)).await;
        client.put_with(&path("a"), &1, &PutOptions::new().copies(2)).await.unwrap();
        let mut nodes = std::collections::BTreeSet::new();
        for _ in 0..200 {
            nodes.insert(client.get_entry(&path("a")).await.unwrap().unwrap().node);
        }
        assert_eq!(nodes.len(), 3);
        cluster.shutdown().await;
    });
}

#[test]
fn freshest_needs_a_majority_and_takes_the_newest() {
    block_on(async {
        let mut cluster = TestCluster::start(3).await.unwrap();
        let config = ClientConfig::new().read_mode(ReadMode::Freshest).retry(hasty());
        let client = connect(&cluster, config).await;
        assert_eq!(client.get_entry(&path("a")).await.unwrap(), None);
        for place in 0..3 {
            let value = Value::new(&[place as u8]).unwrap();
            cluster.node(place).set(&path("a"), &value).unwrap();
            cluster.settled().await.unwrap();
        }
        assert_eq!(client.get::<u8>(&path("a")).await.unwrap(), Some(2));
        drop(cluster.take(0));
        assert_eq!(client.get::<u8>(&path("a")).await.unwrap(), Some(2));
        drop(cluster.take(0));
        // Its connections end a moment later.
        let error = loop {
            if let Err(error) = client.get::<u8>(&path("a")).await {
                break error;
            }
            assert!(client.cluster_view().nodes.len() == 3, "{:?}", client.cluster_view());
        };
        assert_eq!(error.code(), Some("no_majority"), "{error}");
        // One node alone still answers other reads.
        let entry = client.get_entry_with(&path("a"), ReadMode::Preferred).await.unwrap().unwrap();
        assert_eq!(entry.node, "n2");
        cluster.shutdown().await;
    });
}

/// What it wrote once and is purged now is gone, not late: nobody has to be waited for because of it.
#[test]
fn freshest_does_not_wait_for_a_silent_node_because_of_what_is_purged() {
    block_on(async {
        let mut cluster = TestCluster::start(3).await.unwrap();
        let retry = RetryPolicy { try_deadline: PATIENCE, ..RetryPolicy::default() };
        let config = ClientConfig::new().retry(retry).own_write_patience(PATIENCE);
        let client = connect(&cluster, config).await;
        client.put_with(&path("a"), &1, &PutOptions::new().copies(2)).await.unwrap();
        client.delete_with(&path("a"), &PutOptions::new().copies(2)).await.unwrap();
        let is_purged = || {
            let holds =
                |node: &Node| node.hub().read(|engine| engine.get(path("a").as_bytes()).is_some());
            !cluster.nodes().iter().any(holds)
        };
        assert!(wait_until(PATIENCE * 2, is_purged).await);
        let home = client.preferred(&path("a"));
        let place =
            cluster.nodes().iter().position(|node| Some(node.name().as_str()) != home.as_deref());
        let gone = cluster.take(place.unwrap());
        let address = gone.client_addr();
        gone.shutdown().await;
        // Whoever connects hears nothing. Its name is in the view for a while.
        let _silent = std::net::TcpListener::bind(address).unwrap();
        let begun = rt::now();
        assert_eq!(client.get_entry_with(&path("a"), ReadMode::Freshest).await.unwrap(), None);
        assert!(rt::now() - begun < rt::millis(PATIENCE) / 2, "{} ms", rt::now() - begun);
        cluster.shutdown().await;
    });
}

/// Else a caller whose reads end before the client's patience does would never be answered.
#[test]
fn a_write_that_is_lost_is_given_up_however_short_the_reads_are() {
    block_on(async {
        let [address] = free_addrs::<1>().map(|address| address.to_string());
        let start = || {
            let mut config = loopback(NodeName::new("n1").unwrap(), Vec::new());
            config.client.clone_from(&address);
            Node::start(config)
        };
        let node = start().await.unwrap();
        node.ready().await.unwrap();
        let seeds = [HostPort::parse(&address, None).unwrap()];
        let client = Client::connect(seeds, ClientConfig::new()).await.unwrap();
        let [at, other] = ["a.1", "a.2"].map(path);
        for at in [&at, &other] {
            client.put(at, &1).await.unwrap();
        }
        // It keeps its data in memory.
        node.shutdown().await;
        let node = start().await.unwrap();
        node.ready().await.unwrap();
        let short = Duration::from_millis(300);
        // Given up by whoever called.
        let answered = rt::timeout(PATIENCE, async {
            loop {
                if let Some(Ok(found)) = rt::timeout(short, client.get::<u8>(&at)).await {
                    break found;
                }
            }
        });
        assert_eq!(answered.await, Some(None));
        // With a time of its own, a read takes what there is when that ends, and looks for the write the next time, too.
        let options = GetOptions::new().deadline(short);
        assert_eq!(client.get_with::<u8>(&other, options).await, Ok(None));
        let before = client.stats();
        assert_eq!(client.get_with::<u8>(&other, options).await, Ok(None));
        assert!(client.stats().reads.stale_answers > before.reads.stale_answers);
        node.shutdown().await;
    });
}

#[test]
fn a_client_reads_its_own_write_also_when_the_preferred_node_moves() {
    block_on(async {
        let mut cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        for i in 0..40_i64 {
            let at = path("a").push(i).unwrap();
            let at = distkv::model::path::Path::root().push(i).unwrap().join(&at).unwrap();
            client.put(&at, &i).await.unwrap();
        }
        // Half of the shards prefer the new node, which has everything when it is ready; reads of
        // what was written go on at the old one.
        cluster.add().await.unwrap();
        let view = client.cluster_view();
        if view.nodes.len() < 2 {
            let newer = || client.cluster_view().nodes.iter().filter(|n| n.is_live()).count() == 2;
            assert!(distkv::testing::wait_until(distkv::testing::PATIENCE, newer).await);
        }
        let mut moved = 0;
        for i in 0..40_i64 {
            let at = path("a").push(i).unwrap();
            let at = distkv::model::path::Path::root().push(i).unwrap().join(&at).unwrap();
            let entry = client.get_entry(&at).await.unwrap().unwrap();
            assert_eq!(entry.node, "n0");
            let written = client.put(&at, &(i + 1000)).await.unwrap();
            moved += u32::from(written.node == "n1");
            let entry = client.get_entry(&at).await.unwrap().unwrap();
            assert_eq!((entry.node.clone(), entry.get::<i64>().unwrap()), (written.node, i + 1000));
            assert!(shard_of(&at) < 1024);
        }
        assert!(moved > 5, "{moved}");
        cluster.shutdown().await;
    });
}

#[test]
fn conflicts_are_collected_from_all_nodes_once() {
    block_on(async {
        let cluster = TestCluster::start(2).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        // Both at once, again and again, until neither knew of the other.
        let found = loop {
            for place in 0..2 {
                let value = Value::new(&[place as u8]).unwrap();
                cluster.node(place).set(&path("c.d"), &value).unwrap();
            }
            cluster.settled().await.unwrap();
            let found = client.conflicts(&path("c")).await.unwrap();
            if !found.conflicts.is_empty() {
                break found;
            }
        };
        assert_eq!(found.nodes, ["n0", "n1"]);
        assert!(found.missing.is_empty());
        let first = &found.conflicts[0];
        assert_eq!(first.path, path("c.d"));
        assert!(first.winner.tock >= first.loser.tock);
        assert_ne!(first.winner.chain, first.loser.chain);
        let keys: std::collections::BTreeSet<_> = found
            .conflicts
            .iter()
            .map(|c| (c.winner.chain.clone().unwrap().to_string(), c.loser.tock))
            .collect();
        assert_eq!(keys.len(), found.conflicts.len());
        // The same as they come.
        let mut stream = client.conflict_stream(&path("c")).unwrap();
        let mut came = Vec::new();
        while let Some(conflict) = stream.next().await.unwrap() {
            came.push((conflict.winner.chain, conflict.loser.tock));
        }
        let pairs = found.conflicts.iter().map(|c| (c.winner.chain.clone(), c.loser.tock));
        let mut expected: Vec<_> = pairs.collect();
        came.sort_by_key(|pair| format!("{pair:?}"));
        expected.sort_by_key(|pair| format!("{pair:?}"));
        assert_eq!(came, expected);
        let nodes: std::collections::BTreeSet<_> = stream.nodes().iter().collect();
        assert_eq!((nodes.len(), stream.missing().len()), (2, 0));
        cluster.shutdown().await;
    });
}

#[test]
fn an_override_of_a_preferred_node_is_heeded() {
    block_on(async {
        let cluster = TestCluster::start(3).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let (at, shard) = (path("a.b"), shard_of(&path("a.b")));
        let own = client.put(&at, &1).await.unwrap().node;
        let other = ["n0", "n1", "n2"].into_iter().find(|name| *name != own).unwrap();
        let moves: std::sync::Arc<std::sync::Mutex<Vec<_>>> = Default::default();
        let sink = std::sync::Arc::clone(&moves);
        let _listener = client.on_topology_change(move |change| {
            sink.lock().unwrap().extend(change.moved.clone());
        });
        let rule = distkv::model::path::Path::system_root();
        let rule = rule.push("shards").unwrap().push(i64::from(shard)).unwrap();
        let name = Value::new(&[&[0xa2], other.as_bytes()].concat()).unwrap();
        cluster.node(0).set(&rule, &name).unwrap();
        cluster.settled().await.unwrap();
        let is_known = || client.stats().router.overrides == 1;
        let deadline = rt::now() + rt::millis(PATIENCE);
        while !is_known() {
            assert!(rt::now() < deadline, "{:?}", client.stats().shards);
            client.refresh_shards().await;
            rt::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(client.put(&at, &2).await.unwrap().node, other);
        assert_eq!(client.get::<u8>(&at).await.unwrap(), Some(2));
        let told: Vec<_> = std::mem::take(&mut *moves.lock().unwrap());
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!((told[0].shard, told[0].to.as_deref()), (shard, Some(other)));
        cluster.shutdown().await;
    });
}

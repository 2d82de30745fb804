//! What a client writes comes after all that it knows: two nodes that know nothing of each other, as when one has stood still
//! before it could tell the other.

use distkv::client::smart::{Batch, DeleteTreeOptions, RawRequest, WatchEvent, WatchOptions};
use distkv::client::{
    Client, ClientConfig, Connection, Fields, HostPort, Idempotency, Options, TopologyConfig,
};
use distkv::model::ids::NodeName;
use distkv::model::path::Path;
use distkv::model::shard::shard_of;
use distkv::node::Node;
use distkv::testing::{TestCluster, block_on, loopback};

use crate::client::ops::connect;

/// The node whose clock is ahead, and the one whose clock is behind.
const AHEAD: usize = 0;
const BEHIND: usize = 1;

/// Two nodes, and a client that takes them for one network, with a path for which each is preferred.
async fn strangers() -> (TestCluster, Client, Path, Path) {
    let mut cluster = TestCluster::start(1).await.unwrap();
    let other = Node::start(loopback(NodeName::new("n1").unwrap(), Vec::new())).await.unwrap();
    other.ready().await.unwrap();
    cluster.push(other);
    let only_seeds = TopologyConfig { only_seeds: true, ..TopologyConfig::default() };
    let client = connect(&cluster, ClientConfig::new().topology(only_seeds)).await;
    let preferred = |name: &str| {
        let mut paths = (0..1000_i64).map(|n| Path::root().push(n).unwrap());
        paths.find(|path| client.preferred(path).as_deref() == Some(name)).unwrap()
    };
    let (ahead, behind) = (preferred("n0"), preferred("n1"));
    (cluster, client, ahead, behind)
}

fn clock(cluster: &TestCluster, place: usize) -> u64 {
    cluster.node(place).hub().read(|engine| engine.tock().get())
}

/// Somebody else changes an entry at the node that is ahead, whose clock then shows this.
async fn change_there(cluster: &TestCluster, path: &Path, tock: u64) {
    let address: HostPort = cluster.node(AHEAD).client_addr().into();
    let connection = Connection::connect(&address, Options::default()).await.unwrap();
    let mut fields = Fields::at(path);
    fields.u64("value", tock).u64("above", tock - 1);
    connection.request("set_value", &fields).await.unwrap();
    assert_eq!(clock(cluster, AHEAD), tock);
}

#[test]
fn what_a_client_writes_elsewhere_is_newer_than_what_it_wrote_before() {
    block_on(async {
        let (mut cluster, client, ahead, _) = strangers().await;
        change_there(&cluster, &ahead, 1_000).await;
        let older = client.put(&ahead, &59).await.unwrap();
        assert_eq!((older.node.as_str(), older.tock), ("n0", 1_001));
        assert!(clock(&cluster, BEHIND) < older.tock);
        let gone = cluster.take(AHEAD);
        gone.shutdown().await;
        // A clone is the same client.
        let newer = client.clone().put(&ahead, &60).await.unwrap();
        assert_eq!((newer.node.as_str(), newer.tock), ("n1", 1_002));
        cluster.shutdown().await;
    });
}

#[test]
fn so_is_what_it_deletes_where_nothing_is_known_of_what_it_wrote() {
    block_on(async {
        let (mut cluster, client, ahead, _) = strangers().await;
        change_there(&cluster, &ahead, 1_000).await;
        let older = client.put(&ahead, &59).await.unwrap();
        cluster.take(AHEAD).shutdown().await;
        let newer = client.delete(&ahead).await.unwrap();
        assert_eq!((newer.node.as_str(), newer.tock, newer.changed), ("n1", older.tock + 1, false));
        assert!(newer.chain.is_some(), "a tombstone is there");
        let again = client.delete(&ahead).await.unwrap();
        assert_eq!(again.tock, newer.tock, "it is done");
        cluster.shutdown().await;
    });
}

#[test]
fn each_kind_of_change_comes_after_what_was_read() {
    block_on(async {
        let (cluster, client, ahead, behind) = strangers().await;
        let there = behind.push("t").unwrap();
        client.put(&there, &1).await.unwrap();
        let mut watch = client.watch(&ahead, WatchOptions::default()).await.unwrap();
        for number in 1..=8 {
            change_there(&cluster, &ahead, number * 1_000).await;
            if number % 2 == 0 {
                client.get::<u64>(&ahead).await.unwrap();
            } else {
                // What comes in a stream is heard, too.
                while !matches!(watch.next().await.unwrap(), WatchEvent::Change(change)
                    if change.tock == number * 1_000)
                {}
            }
            match number {
                1 | 2 => drop(client.put(&behind, &number).await.unwrap()),
                3 => drop(client.delete(&behind).await.unwrap()),
                4 => {
                    let mut batch = Batch::new();
                    batch.put(&behind, &1).unwrap().delete(&there);
                    client.batch(&batch).await.unwrap();
                }
                5 => {
                    let deleted = client.delete_tree(&behind, DeleteTreeOptions::default()).await;
                    assert_eq!(deleted.unwrap(), 1);
                }
                6 | 7 => {
                    let node = (number == 6).then_some("n1");
                    client.prefer_shard(shard_of(&behind), node).await.unwrap();
                }
                _ => {
                    let (mut fields, path) = (Fields::at(&behind), &behind);
                    let request = RawRequest {
                        action: "set_value",
                        fields: fields.u64("value", 1),
                        path,
                        idempotency: Idempotency::Unguarded,
                        needs_id: false,
                        try_deadline: None,
                    };
                    client.request(request).await.unwrap();
                }
            }
            let tock = clock(&cluster, BEHIND);
            assert!(tock > number * 1_000, "{number}: {tock}");
        }
        cluster.shutdown().await;
    });
}

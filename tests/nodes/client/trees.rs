//! Trees that stream, children, conflicts as they come, shards, write ids of texts, numbers of tries.

use std::collections::BTreeSet;
use std::time::Duration;

use distkv::client::*;
use distkv::testing::{TestCluster, block_on, free_addrs};
use futures::StreamExt;

use super::ops::{connect, path};

#[test]
fn a_tree_comes_entry_by_entry_whatever_its_size() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let mut batch = Batch::new();
        for i in 0..1000 {
            batch.put(&path("t").push(i).unwrap(), &i).unwrap();
        }
        client.batch(&batch).await.unwrap();
        let mut tree = client.tree_stream(&path("t"), TreeOptions::default()).await.unwrap();
        assert_eq!(tree.node(), "n0");
        let mut count = 0;
        loop {
            // Giving up a wait loses nothing.
            let given_up = distkv::rt::timeout(Duration::ZERO, tree.next()).await;
            let next = match given_up {
                Some(next) => next,
                None => tree.next().await,
            };
            let Some(found) = next.unwrap() else { break };
            assert_eq!(found.path, path("t").push(count).unwrap());
            assert_eq!(found.entry.get::<i64>().unwrap(), count);
            count += 1;
        }
        assert_eq!(count, 1000);
        assert_eq!(tree.next().await.unwrap(), None);
        // What is not read is no load, and what is dropped is stopped.
        let tree = client.tree_stream(&path("t"), TreeOptions::default()).await.unwrap();
        let mut tree = std::pin::pin!(tree.into_stream().take(3));
        while let Some(found) = tree.next().await {
            found.unwrap();
        }
        let options = TreeOptions { max_depth: Some(0), ..TreeOptions::default() };
        let mut none = client.tree_stream(&path("t"), options).await.unwrap();
        assert_eq!(none.next().await.unwrap(), None);
        cluster.shutdown().await;
    });
}

#[test]
fn a_tree_whose_node_is_lost_says_so() {
    block_on(async {
        let mut cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let mut batch = Batch::new();
        for i in 0..1000 {
            batch.put(&path("t").push(i).unwrap(), &i).unwrap();
        }
        client.batch(&batch).await.unwrap();
        let mut tree = client.tree_stream(&path("t"), TreeOptions::default()).await.unwrap();
        tree.next().await.unwrap().unwrap();
        drop(cluster.take(0));
        let error = loop {
            match tree.next().await {
                Ok(found) => assert!(found.is_some(), "the tree has ended as if it were whole"),
                Err(error) => break error,
            }
        };
        assert_eq!((error.code(), error.fate()), (Some("unavailable"), Fate::NotDone));
        assert_eq!(error.node(), Some("n0"));
        assert_eq!(tree.next().await.unwrap(), None);
    });
}

#[test]
fn children_are_what_is_directly_below_and_has_a_value() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        for text in ["t.a", "t:5", "t.b.c", "t.a.d", "t.x:.y"] {
            client.put(&path(text), &1).await.unwrap();
        }
        let told: BTreeSet<_> = client.children(&path("t")).await.unwrap().into_iter().collect();
        assert_eq!(told, BTreeSet::from([path("t.a"), path("t:5"), path("t.x:.y")]));
        assert_eq!(client.children(&path("nothing")).await.unwrap(), []);
        let root = client.children(&Path::root()).await.unwrap();
        assert_eq!(root, [], "nothing at the top has a value of its own");
        cluster.shutdown().await;
    });
}

#[test]
fn a_text_names_one_write() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let order = PutOptions::new().write_id("order 17");
        let first = client.put_with(&path("a"), &1, &order).await.unwrap();
        let second = client.put_with(&path("a"), &1, &order).await.unwrap();
        assert_eq!((first.repeated, second.repeated), (Repeated::No, Repeated::Yes));
        assert_eq!(second.chain.unwrap().newest, first.chain.unwrap().newest);
        let error = client.put_with(&path("a"), &2, &order).await.unwrap_err();
        assert_eq!(error.code(), Some("wid_reused"));
        cluster.shutdown().await;
    });
}

#[test]
fn a_call_makes_as_many_tries_as_it_may_and_takes_as_long() {
    block_on(async {
        let dead: HostPort = free_addrs::<1>()[0].into();
        let cluster = TestCluster::start(1).await.unwrap();
        let retry = RetryPolicy { attempts_max: Some(3), ..RetryPolicy::default() };
        let config = ClientConfig::new().retry(retry);
        let seeds = [cluster.seeds()[0].clone(), dead];
        let client = Client::connect(seeds, config).await.unwrap();
        client.put(&path("a"), &1).await.unwrap();
        let options = GetOptions::new().read_mode(ReadMode::Any).deadline(Duration::from_secs(5));
        assert_eq!(client.get_with(&path("a"), options).await.unwrap(), Some(1));
        assert_eq!(client.get_with(&path("a"), ReadMode::Freshest).await.unwrap(), Some(1));
        cluster.shutdown().await;
        let error = client.get::<u8>(&path("a")).await.unwrap_err();
        assert_eq!((error.attempts(), error.code()), (3, Some("unavailable")), "{error}");
        assert_eq!(client.stats().retry.deadlines, 1);
        // A deadline of its own counts, too: without time nothing is tried.
        let hasty = GetOptions::new().deadline(Duration::ZERO);
        let error = client.get_with::<u8>(&path("a"), hasty).await.unwrap_err();
        assert_eq!((error.attempts(), error.code()), (0, Some("unavailable")), "{error}");
    });
}

#[test]
fn shards_are_listed_and_moved() {
    block_on(async {
        let cluster = TestCluster::start(2).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let (at, shard) = (path("hello.world"), shard_of(&path("hello.world")));
        assert_eq!(client.list_shards().await.unwrap().len(), 1);
        let before = client.preferred(&at).unwrap();
        let other = if before == "n0" { "n1" } else { "n0" };
        client.prefer_shard(shard, Some(other)).await.unwrap();
        assert_eq!(client.preferred(&at).as_deref(), Some(other));
        assert_eq!(client.put(&at, &1).await.unwrap().node, other);
        let rows = client.list_shards().await.unwrap();
        let place = place_of(&at);
        let own = rows.iter().find(|row| row.start <= place && place <= row.end).unwrap();
        assert_eq!((own.first, own.last, own.prefer.as_deref()), (shard, shard, Some(other)));
        client.prefer_shard(shard, None).await.unwrap();
        assert_eq!(client.preferred(&at), Some(before));
        let error = client.prefer_shard(SHARD_COUNT, None).await.unwrap_err();
        assert_eq!(error.code(), Some("usage"));
        cluster.shutdown().await;
    });
}

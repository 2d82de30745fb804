//! Many operations in one request.

use distkv::client::smart::{Batch, BatchReply};
use distkv::client::{ClientConfig, PutOptions};
use distkv::model::value::Value;
use distkv::testing::{TestCluster, block_on};

use super::ops::{connect, path};

#[test]
fn operations_are_done_in_order_and_a_refusal_is_only_its_own() {
    block_on(async {
        let cluster = TestCluster::start(2).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let mut batch = Batch::new();
        batch.put(&path("b.x"), &1).unwrap().get(&path("b.x")).put(&path("b.y"), "two").unwrap();
        let value = Value::new(&[9]).unwrap();
        batch.put_raw(&path("b.x"), &value, &PutOptions::new().must_be_new());
        batch.delete(&path("b.y")).get(&path("b.y")).get(&path("b.z"));
        assert_eq!(batch.len(), 7);
        let replies = client.batch(&batch).await.unwrap();
        let BatchReply::Written(first) = &replies[0] else { panic!("{replies:?}") };
        assert!(first.changed && first.chain.is_some());
        let BatchReply::Read(read) = &replies[1] else { panic!("{replies:?}") };
        assert_eq!(read.get::<u64>().unwrap(), 1);
        let BatchReply::Refused(error) = &replies[3] else { panic!("{replies:?}") };
        assert!(error.has_code("already_exists"));
        assert!(matches!(&replies[4], BatchReply::Written(written) if written.changed));
        let BatchReply::Read(deleted) = &replies[5] else { panic!("{replies:?}") };
        assert!(deleted.value.is_none() && deleted.chain.is_some());
        let BatchReply::Read(nothing) = &replies[6] else { panic!("{replies:?}") };
        assert!(nothing.value.is_none() && nothing.chain.is_none());
        assert_eq!(client.get::<u64>(&path("b.x")).await.unwrap(), Some(1));
        cluster.shutdown().await;
    });
}

#[test]
fn a_batch_survives_the_death_of_its_node_and_is_done_once() {
    block_on(async {
        let mut cluster = TestCluster::start(3).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let mut batch = Batch::new();
        for i in 0..100_i64 {
            batch.put(&path("b").push(i).unwrap(), &i).unwrap();
        }
        let replies = client.batch(&batch).await.unwrap();
        let BatchReply::Written(first) = &replies[0] else { panic!("{replies:?}") };
        let place = first.node[1..].parse().unwrap();
        cluster.settled().await.unwrap();
        drop(cluster.take(place));
        let mut reads = Batch::new();
        for i in 0..100_i64 {
            reads.get(&path("b").push(i).unwrap());
        }
        for (i, reply) in client.batch(&reads).await.unwrap().iter().enumerate() {
            let BatchReply::Read(read) = reply else { panic!("{reply:?}") };
            assert_eq!(read.get::<usize>().unwrap(), i);
        }
        cluster.shutdown().await;
    });
}

#[test]
fn too_many_operations_are_refused_before_they_are_sent() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let mut batch = Batch::new();
        for _ in 0..1025 {
            batch.get(&path("a"));
        }
        let calls = client.stats().retry.calls;
        assert_eq!(client.batch(&batch).await.unwrap_err().code(), Some("usage"));
        assert!(client.batch(&Batch::new()).await.unwrap().is_empty());
        assert_eq!(client.stats().retry.calls, calls);
        cluster.shutdown().await;
    });
}

//! Nodes over real sockets, in this process, on ports that the system chooses. Nothing sleeps
//! for luck: every wait is for a condition, with a deadline.

use distkv::model::path::Path;
use distkv::model::value::Value;
use distkv::testing::{TestCluster, block_on};

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

fn number(n: u8) -> Value {
    Value::new(&[0xcc, n]).unwrap()
}

#[test]
fn three_nodes_replicate_changes_and_deletions() {
    block_on(async {
        let cluster = TestCluster::start(3).await.unwrap();
        assert!(cluster.linked().await);
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

//! Nodes that are silent, or only seem so, to reads that ask several at once. The nodes are scripted.

use std::time::Duration;

use distkv::client::{Client, ClientConfig, ReadMode, RetryPolicy};
use distkv::rt;
use distkv::testing::{PATIENCE, block_on, wait_until};

use super::super::ops::path;
use super::super::topology::scripted::Scripted;

/// A network of these nodes.
pub(super) fn nodes(count: usize) -> Vec<Scripted> {
    let nodes: Vec<_> = (1..=count).map(|number| Scripted::start(&format!("s{number}"))).collect();
    let named = nodes.iter().enumerate();
    let told: Vec<_> =
        named.map(|(i, node)| (format!("s{}", i + 1), node.address.clone())).collect();
    for node in &nodes {
        let told = told.clone();
        node.change(|state| state.told = told);
    }
    nodes
}

async fn connect(nodes: &[Scripted], retry: RetryPolicy) -> Client {
    let config = ClientConfig::new().retry(retry);
    Client::connect(nodes.iter().map(Scripted::seed), config).await.unwrap()
}

#[test]
fn a_node_that_lets_a_read_of_a_majority_wait_is_asked_whether_it_is_alive() {
    block_on(async {
        let nodes = nodes(2);
        let retry = RetryPolicy {
            try_deadline: Duration::from_millis(100),
            total_deadline: Duration::from_secs(1),
            ..RetryPolicy::default()
        };
        let client = connect(&nodes, retry).await;
        nodes[1].change(|state| state.is_silent = true);
        // As after any other call: otherwise that is only asked once nothing has come for 10 s. What the client asks by itself
        // may be answered meanwhile: then the node is not silent.
        let mut reads = 0;
        while client.stats().pool.probes == 0 {
            let read = client.get_entry_with(&path("p"), ReadMode::Freshest).await;
            assert_eq!(read.unwrap_err().code(), Some("no_majority"));
            reads += 1;
            assert!(reads < 5, "{:?}", client.stats().pool);
        }
        client.close().await;
    });
}

#[test]
fn conflicts_are_waited_for_behind_what_has_to_be_sent_before() {
    /// On the slowest line, that takes 6 s.
    const BIG: usize = 3 << 20;
    block_on(async {
        let nodes = nodes(1);
        // An item that has come is taken within it, also where something stands still for a while.
        let try_deadline = Duration::from_millis(2_500);
        let total_deadline = 10 * PATIENCE;
        let retry = RetryPolicy { try_deadline, total_deadline, ..RetryPolicy::default() };
        let client = connect(&nodes, retry).await;
        nodes[0].change(|state| (state.is_silent, state.holds_conflicts) = (true, true));
        let writer = client.clone();
        let upload = rt::spawn(async move { writer.put(&path("p"), &"x".repeat(BIG)).await });
        assert!(wait_until(PATIENCE, || nodes[0].asked("set_value") > 0).await);
        let reader = client.clone();
        let listing = rt::spawn(async move { reader.conflicts(&path("p")).await });
        assert!(wait_until(PATIENCE, || nodes[0].asked("conflicts") > 0).await);
        let asked = rt::now();
        assert!(wait_until(PATIENCE, || rt::now() > asked + 2_700).await);
        nodes[0].change(|state| state.holds_conflicts = false);
        let found = listing.await.unwrap();
        assert_eq!(found.nodes, ["s1"], "{:?}", found.missing);
        client.close().grace(Duration::ZERO).await;
        let _ = upload.await;
    });
}

//! What clients see of several real nodes: who is there, and what a write that is sent again to
//! another node comes to.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that finds something wrong has to fail"
)]

#[macro_use]
#[path = "server/harness.rs"]
mod harness;

use distkv::node::Node;
use distkv::testing::{TestCluster, block_on};
use harness::{Client, Value, text};

fn connect(node: &Node) -> Client {
    Client::new(node.client_addr(), 0)
}

/// The node of that name in a view.
fn of<'a>(view: &'a Value, name: &str) -> Option<&'a Value> {
    view["nodes"].as_array().unwrap().iter().find(|node| text(node, "name") == name)
}

/// Takes views until one is as wanted; epochs rise by what was told only.
fn until(client: &mut Client, seq: u64, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut last = 0;
    loop {
        let message = client.reply(seq);
        let view = message["cluster"].clone();
        let epoch = view["epoch"].as_u64().unwrap();
        assert!(epoch > last, "{message}");
        last = epoch;
        if wanted(&view) {
            return view;
        }
    }
}

fn watch(client: &mut Client) -> u64 {
    let seq = client.start(map! {"action": "watch_cluster"});
    assert_eq!(text(&client.reply(seq), "state"), "start");
    seq
}

#[test]
fn a_watcher_hears_of_nodes_that_come_serve_and_take_their_leave() {
    block_on(async {
        let mut cluster = TestCluster::start(2).await.unwrap();
        let mut client = connect(cluster.node(0));
        let seq = watch(&mut client);
        let serves = |view: &Value, name: &str, address: &str| {
            of(view, name).is_some_and(|node| {
                text(node, "state") == "up"
                    && node["ready"].as_bool() == Some(true)
                    && node["client"].as_str() == Some(address)
            })
        };
        let known = cluster.node(1).client_addr().to_string();
        let view = until(&mut client, seq, |view| serves(view, "n1", &known));
        assert_eq!(text(&view["id"], "name"), "n0");
        assert_eq!(of(&view, "n0").unwrap()["state"].as_str(), Some("self"));
        assert_eq!(
            of(&view, "n0").unwrap()["client"].as_str(),
            Some(cluster.node(0).client_addr().to_string().as_str())
        );
        assert_ne!(text(of(&view, "n1").unwrap(), "gossip"), known);
        let at = cluster.add().await.unwrap();
        let new = cluster.node(at).client_addr().to_string();
        until(&mut client, seq, |view| serves(view, "n2", &new));
        let has_housekeeper = |view: &Value| {
            let nodes = view["nodes"].as_array().unwrap();
            nodes.iter().any(|node| node["housekeeper"].as_u64() == Some(1))
        };
        let has_already = has_housekeeper(&client.ok(map! {"action": "cluster"}));
        if !has_already {
            until(&mut client, seq, has_housekeeper);
        }
        let leaving = cluster.take(at);
        leaving.shutdown().await;
        until(&mut client, seq, |view| {
            of(view, "n2").is_some_and(|node| {
                text(node, "state") == "left" && node["ready"].as_bool() == Some(false)
            })
        });
        cluster.shutdown().await;
        // The stream ends with its node, at the latest.
        client.rest(seq);
    });
}

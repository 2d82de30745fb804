//! What clients see of several real nodes: who is there, and what a write that is sent again to
//! another node comes to.

use crate::harness;

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

fn set(value: u64, copies: u64) -> Value {
    map! {
        "action": "set_value", "path": harness::path("k"), "value": value, "copies": copies,
        "nchain": 9, "wid": Value::Binary(vec![9; 16]),
    }
}

#[test]
fn a_write_that_comes_again_at_another_node_is_known_there_and_at_one_that_comes_later() {
    block_on(async {
        let mut cluster = TestCluster::start(2).await.unwrap();
        let [mut first, mut second] = [0, 1].map(|at| connect(cluster.node(at)));
        let made = first.ok(set(1, 1));
        let again = second.ok(set(1, 0));
        assert_eq!(again["repeated"].as_bool(), Some(true));
        assert_eq!((&again["chain"], &again["tock"]), (&made["chain"], &made["tock"]));
        assert_eq!(text(&second.error(set(2, 0)), "code"), "wid_reused");
        // The node that had it first counts as one that has it.
        assert_eq!(second.ok(set(1, 1))["repeated"].as_bool(), Some(true));
        assert_eq!(text(&second.error(with_timeout(set(1, 2))), "code"), "unknown_fate");
        // It comes with the catch-up.
        let at = cluster.add().await.unwrap();
        let mut third = connect(cluster.node(at));
        assert_eq!(third.ok(set(1, 0))["chain"], made["chain"]);
        // Overwritten by another node: the entry's chain still has the event.
        second.set("k", 5);
        cluster.settled().await.unwrap();
        for client in [&mut first, &mut second, &mut third] {
            let again = client.ok(set(1, 0));
            assert_eq!((&again["chain"], &again["tock"]), (&made["chain"], &made["tock"]));
            assert_eq!(again["chain"]["prev"], Value::Nil, "nothing was before it");
            assert_eq!(client.get("k"), Some(5.into()));
        }
        // And deleted.
        let delete = map! {
            "action": "delete_value", "path": harness::path("k"), "copies": 2,
            "wid": Value::Binary(vec![8; 16]),
        };
        third.ok(delete.clone());
        for client in [&mut first, &mut second, &mut third] {
            assert_eq!(client.ok(delete.clone())["repeated"].as_bool(), Some(true));
            assert_eq!(client.ok(set(1, 0))["repeated"].as_bool(), Some(true));
            assert_eq!(client.get("k"), None);
        }
        cluster.settled().await.unwrap();
        cluster.shutdown().await;
    });
}

fn with_timeout(request: Value) -> Value {
    let Value::Map(mut fields) = request else { panic!("no map") };
    fields.push(("timeout".into(), 0.3.into()));
    Value::Map(fields)
}

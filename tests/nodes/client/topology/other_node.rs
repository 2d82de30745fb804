//! An address at which another node answers than the one that a view has there. The nodes are scripted.

use std::time::{Duration, Instant};

use distkv::client::{
    CallError, Client, ClientConfig, PutOptions, ReadMode, RetryPolicy, TopologyConfig,
};
use distkv::model::path::Path;
use distkv::testing::{PATIENCE, block_on, wait_until};

use super::super::ops::path;
use super::scripted::Scripted;

/// Nodes `s1`, `s2` and so on, of which those in `misled` say that the first one is where the last one is.
fn nodes(count: usize, misled: &[usize]) -> Vec<Scripted> {
    let nodes: Vec<_> = (1..=count).map(|number| Scripted::start(&format!("s{number}"))).collect();
    let last = nodes[count - 1].address.clone();
    for (place, node) in nodes.iter().enumerate() {
        let named = nodes.iter().enumerate().map(|(place, node)| {
            let address = node.address.clone();
            (format!("s{}", place + 1), address)
        });
        let mut told: Vec<_> = named.collect();
        if misled.contains(&place) {
            told[0].1.clone_from(&last);
        }
        node.change(|state| state.told = told);
    }
    nodes
}

fn config() -> ClientConfig {
    let retry = RetryPolicy { initial_delay: Duration::from_millis(1), ..RetryPolicy::default() };
    ClientConfig::new().retry(retry)
}

async fn connect(nodes: &[Scripted], config: ClientConfig) -> Client {
    Client::connect(nodes.iter().map(Scripted::seed), config).await.unwrap()
}

/// A path whose calls go to this node first.
fn preferred(client: &Client, name: &str) -> Path {
    let mut paths = (0..1000).map(|number| path(&format!("p{number}")));
    paths.find(|path| client.preferred(path).as_deref() == Some(name)).unwrap()
}

fn views_asked(nodes: &[Scripted]) -> usize {
    nodes.iter().map(|node| node.asked("watch_cluster")).sum()
}

#[test]
fn another_node_is_not_counted_in_a_majority() {
    block_on(async {
        let nodes = nodes(3, &[0, 1, 2]);
        for node in &nodes[..2] {
            node.change(|state| state.held = Some(("new", 2)));
        }
        let retry =
            RetryPolicy { total_deadline: Duration::from_secs(3), ..RetryPolicy::default() };
        let client = connect(&nodes[1..], config().retry(retry)).await;
        let at = path("p");
        let read = || client.get_entry_with(&at, ReadMode::Freshest);
        let entry = read().await.unwrap().unwrap();
        assert_eq!(entry.tock, 2, "two of three answer");
        nodes[1].change(|state| state.held = None);
        let error = read().await.unwrap_err();
        let CallError::NoMajority { answered, needed, nodes, .. } = error else {
            panic!("{error}")
        };
        assert_eq!((answered, needed, nodes), (1, 2, 3));
        client.close().await;
    });
}

#[test]
fn conflicts_are_those_of_the_nodes_that_answer() {
    block_on(async {
        let nodes = nodes(3, &[0, 1, 2]);
        let client = connect(&nodes[1..], config()).await;
        let found = client.conflicts(&path("p")).await.unwrap();
        assert_eq!(found.nodes, ["s2", "s3"]);
        let [(missing, error)] = &found.missing[..] else { panic!("{found:?}") };
        assert_eq!(missing, "s1");
        let told = format!("{}: another node answers there, \"s3\"", nodes[2].address);
        assert!(error.to_string().ends_with(&told), "{error}");
        assert_eq!(nodes.iter().map(|node| node.asked("conflicts")).collect::<Vec<_>>(), [0, 1, 1]);
        client.close().await;
    });
}

#[test]
fn calls_go_on_at_another_node_also_at_the_one_that_answers_there() {
    block_on(async {
        let nodes = nodes(2, &[0, 1]);
        let client = connect(&nodes[1..], config()).await;
        let at = preferred(&client, "s1");
        let written = client.put(&at, &1).await.unwrap();
        assert_eq!((written.node.as_str(), written.attempts), ("s2", 2));
        // It is known by now that the first one is not there.
        for _ in 0..3 {
            let written = client.put(&at, &1).await.unwrap();
            assert_eq!((written.node.as_str(), written.attempts), ("s2", 1));
        }
        // What is made again at its node goes to that one.
        nodes[1].change(|state| state.refuses = vec!["unknown_fate"]);
        let confirmed = PutOptions::new().copies(1);
        let at = preferred(&client, "s2");
        let written = client.put_with(&at, &1, &confirmed).await.unwrap();
        assert_eq!((written.node.as_str(), written.attempts), ("s2", 2));
        // The connection is kept for the node that it is.
        assert_eq!(client.stats().pool.opened, 1);
        // Where nobody does it, what is wrong is told.
        nodes[1].change(|state| state.held = None);
        let error = client.put_with(&at, &1, &PutOptions::new().deadline(PATIENCE / 20)).await;
        assert_eq!(error.unwrap_err().code(), Some("unavailable"));
        client.close().await;
    });
}

#[test]
fn a_view_that_is_wrong_is_asked_for_anew_at_another_node() {
    block_on(async {
        let nodes = nodes(3, &[2]);
        let client = connect(&nodes[2..], config()).await;
        let at = preferred(&client, "s1");
        let place = || {
            let view = client.cluster_view();
            view.nodes.iter().find(|node| node.name == "s1").and_then(|node| node.client.clone())
        };
        assert_eq!(place(), Some(nodes[2].seed()));
        client.put(&at, &1).await.unwrap();
        assert!(wait_until(PATIENCE, || place() == Some(nodes[0].seed())).await);
        assert_eq!(client.put(&at, &1).await.unwrap().node, "s1");
        client.close().await;
    });
}

#[test]
fn a_view_that_stays_wrong_is_asked_for_anew_now_and_then_only() {
    block_on(async {
        let nodes = nodes(3, &[0, 1, 2]);
        let began = Instant::now();
        let client = connect(&nodes[1..], config()).await;
        client.conflicts(&path("p")).await.unwrap();
        assert!(wait_until(PATIENCE, || views_asked(&nodes) == 2).await);
        for _ in 0..20 {
            client.conflicts(&path("p")).await.unwrap();
        }
        let most = 2 + began.elapsed().as_secs() / 10;
        assert!(views_asked(&nodes) as u64 <= most, "{} of {most}", views_asked(&nodes));
        client.close().await;
    });
}

#[test]
fn a_node_with_a_new_name_is_found_where_it_was() {
    block_on(async {
        let nodes = nodes(1, &[]);
        let client = connect(&nodes, config()).await;
        assert_eq!(client.put(&path("p"), &1).await.unwrap().node, "s1");
        nodes[0].rename("new");
        let patient = PutOptions::new().deadline(PATIENCE);
        let written = client.put_with(&path("p"), &1, &patient).await.unwrap();
        assert_eq!(written.node, "new");
        let names: Vec<_> =
            client.cluster_view().nodes.iter().map(|node| node.name.clone()).collect();
        assert_eq!(names, ["new"]);
        client.close().await;
    });
}

#[test]
fn seeds_have_no_name_to_answer_to() {
    block_on(async {
        let nodes = nodes(1, &[]);
        let old_nodes_delay = Duration::from_secs(600);
        let topology =
            TopologyConfig { only_seeds: true, old_nodes_delay, ..TopologyConfig::default() };
        let client = connect(&nodes, config().topology(topology)).await;
        assert_eq!(client.put(&path("p"), &1).await.unwrap().node, "s1");
        nodes[0].rename("new");
        let patient = PutOptions::new().deadline(PATIENCE);
        let written = client.put_with(&path("p"), &1, &patient).await.unwrap();
        assert_eq!(written.node, "new");
        // The view is not asked for anew so soon.
        assert_eq!(client.cluster_view().nodes[0].name, "s1");
        client.close().await;
    });
}

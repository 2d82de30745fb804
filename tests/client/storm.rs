//! Many tasks read and write while nodes are killed and restarted; routing keeps conflicts rare.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distkv::client::smart::{Batch, BatchReply};
use distkv::client::topology::TopologyConfig;
use distkv::client::{Client, ClientConfig, HostPort, PutOptions};
use distkv::model::ids::NodeName;
use distkv::model::path::Path;
use distkv::node::Node;
use distkv::node::config::Config;
use distkv::rt;
use distkv::testing::{PATIENCE, TestCluster, block_on, loopback, wait_until};

use crate::ops::{connect, seeds};

const TASKS: i64 = 64;

/// How long the storm lasts; `DISTKV_STORM_SECONDS` says otherwise.
fn duration_ms() -> u64 {
    let seconds = std::env::var("DISTKV_STORM_SECONDS").ok().and_then(|text| text.parse().ok());
    seconds.unwrap_or(8) * 1000
}

async fn start(config: &Config) -> Node {
    for _ in 0..200 {
        // The port of the life before may still be taken.
        if let Ok(node) = Node::start(config.clone()).await {
            node.ready().await.unwrap();
            return node;
        }
        rt::sleep(Duration::from_millis(20)).await;
    }
    panic!("{} does not start again", config.name.as_str());
}

/// Three nodes with the settings by which each can be started again, at the same ports.
async fn start_three() -> (Vec<Node>, Vec<Config>) {
    let (mut nodes, mut configs) = (Vec::<Node>::new(), Vec::<Config>::new());
    for name in ["s0", "s1", "s2"] {
        let peers = nodes.iter().map(|node| node.gossip_addr().to_string()).collect();
        let mut config = loopback(NodeName::new(name).unwrap(), peers);
        let node = start(&config).await;
        config.client = node.client_addr().to_string();
        config.gossip = node.gossip_addr().to_string();
        nodes.push(node);
        configs.push(config);
    }
    let gossip: Vec<String> = configs.iter().map(|config| config.gossip.clone()).collect();
    for config in &mut configs {
        let own = config.gossip.clone();
        let peers = gossip.iter().filter(|address| **address != own).cloned().collect();
        let again = loopback(config.name.clone(), peers);
        *config = Config { client: config.client.clone(), gossip: own, ..again };
    }
    (nodes, configs)
}

fn key(task: i64) -> Path {
    Path::root().push(task).unwrap().push("counter").unwrap()
}

/// Writes rising numbers and reads each back; gives the last that was acknowledged.
async fn count_up(client: Client, task: i64, stop: Arc<AtomicBool>, done: Arc<AtomicU64>) -> i64 {
    let (mut last, options) = (0, PutOptions::new().copies(1));
    while !stop.load(Ordering::Relaxed) {
        client.put_with(&key(task), &(last + 1), &options).await.unwrap();
        last += 1;
        assert_eq!(client.get::<i64>(&key(task)).await.unwrap(), Some(last), "task {task}");
        done.fetch_add(1, Ordering::Relaxed);
    }
    last
}

#[test]
fn no_error_no_lost_write_and_no_stale_read_while_nodes_die_one_after_the_other() {
    block_on(async {
        let (mut nodes, configs) = start_three().await;
        let seeds: Vec<HostPort> = nodes.iter().map(|node| node.client_addr().into()).collect();
        let client = Client::connect(seeds, ClientConfig::new()).await.unwrap();
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let task =
            |task| rt::spawn(count_up(client.clone(), task, Arc::clone(&stop), Arc::clone(&done)));
        let tasks: Vec<_> = (0..TASKS).map(task).collect();
        let until = rt::now() + duration_ms();
        let mut kills = 0;
        while rt::now() < until {
            let place = kills % nodes.len();
            drop(nodes.remove(place));
            rt::sleep(Duration::from_millis(500)).await;
            nodes.insert(place, start(&configs[place]).await);
            kills += 1;
            // Only one at a time is down: what it had is elsewhere before the next one goes.
            let is_linked = |node: &Node| node.hub().read(|engine| engine.link_count()) == 2;
            assert!(wait_until(PATIENCE, || nodes.iter().all(is_linked)).await);
            let before = done.load(Ordering::Relaxed);
            assert!(wait_until(PATIENCE, || done.load(Ordering::Relaxed) > before + 64).await);
        }
        stop.store(true, Ordering::Relaxed);
        for (task, running) in tasks.into_iter().enumerate() {
            let last = running.await;
            let found = client.get::<i64>(&key(task as i64)).await.unwrap();
            assert_eq!(found, Some(last), "task {task}");
        }
        let stats = client.stats();
        assert!(kills >= 3, "{kills} kills");
        assert_eq!((stats.retry.deadlines, stats.reads.stale_taken), (0, 0), "{stats:?}");
        client.close();
        for node in &nodes {
            node.shutdown().await;
        }
    });
}

/// Three clients write the same paths; tells how many conflicts came of it.
async fn conflicts_of(clients: &[Client], cluster: &TestCluster, first: i64) -> usize {
    let mut writers = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        let client = client.clone();
        writers.push(rt::spawn(async move {
            for round in 0..60_i64 {
                let mut batch = Batch::new();
                for at in 0..8 {
                    let value = round * 3 + number as i64;
                    batch
                        .put(&Path::root().push(first).unwrap().push(at).unwrap(), &value)
                        .unwrap();
                }
                for reply in client.batch(&batch).await.unwrap() {
                    assert!(matches!(reply, BatchReply::Written(_)), "{reply:?}");
                }
            }
        }));
    }
    for writer in writers {
        writer.await;
    }
    cluster.settled().await.unwrap();
    let at = Path::root().push(first).unwrap();
    clients[0].conflicts(&at).await.unwrap().conflicts.len()
}

#[test]
fn routing_makes_conflicts_a_hundred_times_rarer() {
    block_on(async {
        let cluster = TestCluster::start(3).await.unwrap();
        let mut routed = Vec::new();
        for _ in 0..3 {
            routed.push(connect(&cluster, ClientConfig::new()).await);
        }
        let with = conflicts_of(&routed, &cluster, 1).await;
        // Each of these knows one node only: nobody meets.
        let only_seeds = TopologyConfig { only_seeds: true, ..TopologyConfig::default() };
        let mut single = Vec::new();
        for seed in seeds(&cluster) {
            let config = ClientConfig::new().topology(only_seeds);
            single.push(Client::connect([seed], config).await.unwrap());
        }
        let without = conflicts_of(&single, &cluster, 2).await;
        assert!(without >= 100 * with.max(1), "{with} with routing, {without} without");
        cluster.shutdown().await;
    });
}

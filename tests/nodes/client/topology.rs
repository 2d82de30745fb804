//! The cluster view of a client: from seeds to a watch, to the next node when that one is lost.

mod broken_views;
mod other_node;
pub(super) mod scripted;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distkv::client::pool::PoolConfig;
use distkv::client::topology::{
    ClusterView, NodeState, Preferences, TopologyChange, TopologyConfig, TopologyManager,
};
use distkv::client::{Access, ConnectionPool, HostPort};
use distkv::rt::{self, TcpListener};
use distkv::testing::{PATIENCE, TestCluster, block_on, free_addrs, wait_until};

fn seeds(cluster: &TestCluster, places: &[usize]) -> Vec<HostPort> {
    places.iter().map(|place| cluster.node(*place).client_addr().into()).collect()
}

fn start(seeds: Vec<HostPort>) -> TopologyManager {
    let pool = ConnectionPool::new(PoolConfig::default(), Access::default());
    TopologyManager::start(seeds, pool, TopologyConfig::default())
}

fn live(view: &ClusterView) -> Vec<&str> {
    view.nodes.iter().filter(|node| node.is_live()).map(|node| node.name.as_str()).collect()
}

/// Waits for a view with exactly these live nodes.
async fn until_live(topology: &TopologyManager, names: &[&str]) -> Arc<ClusterView> {
    let is_so = || live(&topology.view()) == names;
    assert!(wait_until(PATIENCE, is_so).await, "{:?}", topology.view());
    topology.view()
}

#[test]
fn from_one_seed_it_learns_all_nodes_and_their_client_addresses() {
    block_on(async {
        let cluster = TestCluster::start(3).await.unwrap();
        let topology = start(seeds(&cluster, &[1]));
        assert!(topology.first_view().await.unwrap().epoch >= 1);
        let view = until_live(&topology, &["n0", "n1", "n2"]).await;
        for (place, node) in view.nodes.iter().enumerate() {
            let running = cluster.node(place);
            assert_eq!(node.client, Some(running.client_addr().into()));
            assert_eq!(node.gossip, Some(running.gossip_addr().to_string()));
            assert!(node.incarnation.is_some());
        }
        cluster.shutdown().await;
    });
}

/// For what takes an election of three nodes: each of its turns takes seconds, and it begins anew where they have not
/// heard of each other for so long that they took each other for gone, as when the machine stands still.
const ELECTED: Duration = Duration::from_secs(90);

#[test]
fn the_epoch_rises_only_with_a_change_whoever_is_asked() {
    block_on(async {
        let mut cluster = TestCluster::start(3).await.unwrap();
        let topology = start(seeds(&cluster, &[0, 1, 2]));
        let view = until_live(&topology, &["n0", "n1", "n2"]).await;
        // It watches one of them; ending that connection makes it ask another one, who says the same.
        let pool = ConnectionPool::new(PoolConfig::default(), Access::default());
        let own = TopologyManager::start(seeds(&cluster, &[0]), pool.clone(), Default::default());
        until_live(&own, &["n0", "n1", "n2"]).await;
        // All nodes agree: nothing is about to change by itself.
        let each: Vec<_> = (0..3).map(|place| start(seeds(&cluster, &[place]))).collect();
        let settled = |view: &ClusterView| {
            let is_up = |state: &NodeState| matches!(state, NodeState::Up | NodeState::Asked);
            view.nodes.len() == 3
                && view.nodes.iter().all(|node| is_up(&node.state) && node.is_live())
                && view.nodes.iter().all(|node| node.housekeeper.is_some())
        };
        let places = |view: &ClusterView| -> Vec<_> {
            view.nodes.iter().map(|node| node.housekeeper).collect()
        };
        let agree = || {
            let views: Vec<_> = each.iter().chain([&own]).map(TopologyManager::view).collect();
            views.iter().all(|view| settled(view) && places(view) == places(&views[0]))
        };
        let heard: Arc<Mutex<Vec<TopologyChange>>> = Arc::default();
        let sink = Arc::clone(&heard);
        let listener = own.listen(move |change| sink.lock().unwrap().push(change.clone()));
        // Where the machine stands still meanwhile, the nodes may take each other for gone: then something has changed,
        // and it is asked once more. If asking another one makes a change, there is one each time.
        for turn in 1.. {
            assert!(wait_until(ELECTED, agree).await, "{:?}", own.view());
            heard.lock().unwrap().clear();
            let (own_view, before) = (own.view(), own.stats());
            for node in own_view.nodes.iter() {
                let used = pool.get(node.client.as_ref().unwrap()).await.unwrap();
                used.connection().close("the test wants it so");
            }
            assert!(wait_until(ELECTED, || own.stats().lost > before.lost).await);
            assert!(wait_until(ELECTED, || own.stats().views > before.views).await);
            let changes: Vec<_> = heard.lock().unwrap().drain(..).collect();
            let is_none = |change: &TopologyChange| {
                change.added.is_empty() && change.removed.is_empty() && change.changed.is_empty()
            };
            assert!(!changes.iter().any(is_none), "{changes:?}");
            if changes.is_empty() {
                assert_eq!(own.view().epoch, own_view.epoch, "{own_view:?} {:?}", own.view());
                break;
            }
            assert!(turn < 5, "{changes:?}");
        }
        drop(listener);
        // A change is another epoch.
        cluster.add().await.unwrap();
        assert!(topology.newer_than(view.epoch).await.epoch > view.epoch);
        until_live(&topology, &["n0", "n1", "n2", "n3"]).await;
        cluster.shutdown().await;
    });
}

#[test]
fn listeners_hear_of_each_view_once_until_they_are_dropped() {
    block_on(async {
        let mut cluster = TestCluster::start(1).await.unwrap();
        let topology = start(seeds(&cluster, &[0]));
        until_live(&topology, &["n0"]).await;
        let heard: Arc<Mutex<Vec<TopologyChange>>> = Arc::default();
        let sink = Arc::clone(&heard);
        // Whose panic stops nobody.
        let _failing = topology.listen(|_| panic!("the test wants it so"));
        let listener = topology.listen(move |change| sink.lock().unwrap().push(change.clone()));
        cluster.add().await.unwrap();
        until_live(&topology, &["n0", "n1"]).await;
        let moved_to_n1 = || {
            let heard = heard.lock().unwrap();
            let moves: Vec<_> = heard.iter().flat_map(|change| &change.moved).collect();
            let is_to_n1 = |from: &Option<String>, to: &Option<String>| {
                from.as_deref() == Some("n0") && to.as_deref() == Some("n1")
            };
            !moves.is_empty() && moves.iter().all(|moved| is_to_n1(&moved.from, &moved.to))
        };
        assert!(wait_until(PATIENCE, moved_to_n1).await, "{heard:?}");
        let changes = heard.lock().unwrap().clone();
        let comings = changes.iter().filter(|change| change.added.iter().any(|n| n.name == "n1"));
        assert_eq!(comings.count(), 1, "{changes:?}");
        for change in &changes {
            assert_eq!(change.epoch, change.previous_epoch + 1, "one for each view: {changes:?}");
        }
        // About half of the shards, and only from n0.
        let moved: u64 = topology.stats().moved;
        assert!((384..640).contains(&moved), "{moved}");
        // An override moves one more.
        let routing = topology.routing();
        let stays = (0..1024).find(|s| routing.router.preferred(*s) == Some(0)).unwrap();
        topology.prefer(Preferences::from([(stays, String::from("n1"))]));
        assert_eq!(topology.stats().moved, moved + 1);
        assert_eq!(topology.routing().router.preferred(stays), Some(1));
        let last = heard.lock().unwrap().last().cloned().unwrap();
        assert_eq!((last.previous_epoch, last.moved.len()), (last.epoch, 1));
        let count = heard.lock().unwrap().len();
        drop(listener);
        topology.prefer(Preferences::new());
        assert_eq!(topology.stats().moved, moved + 2);
        assert_eq!(heard.lock().unwrap().len(), count);
        cluster.shutdown().await;
    });
}

#[test]
fn it_goes_on_with_the_next_node_and_tells_that_the_first_is_gone() {
    block_on(async {
        let mut cluster = TestCluster::start(3).await.unwrap();
        let topology = start(seeds(&cluster, &[0]));
        until_live(&topology, &["n0", "n1", "n2"]).await;
        assert_eq!(
            topology.stats().watching,
            Some(cluster.node(0).client_addr().to_string()),
            "only the seed was known"
        );
        let gone = cluster.take(0);
        gone.shutdown().await;
        drop(gone);
        let view = until_live(&topology, &["n1", "n2"]).await;
        let old = view.nodes.iter().find(|node| node.name == "n0");
        assert!(old.is_none_or(|node| !matches!(node.state, NodeState::Up | NodeState::Asked)));
        assert!(topology.stats().lost >= 1);
        // Its seed stays a candidate.
        let routing = topology.routing();
        assert_eq!(routing.targets.len(), 3);
        cluster.shutdown().await;
    });
}

#[test]
fn without_any_node_it_says_why_and_goes_on_trying() {
    block_on(async {
        let dead: HostPort = free_addrs::<1>()[0].into();
        let topology = start(vec![dead.clone()]);
        let error = topology.first_view().await.unwrap_err();
        assert!(error.to_string().contains(&dead.to_string()), "{error}");
        assert_eq!(topology.view().epoch, 0);
        assert_eq!(topology.routing().targets[0].address, dead);
    });
}

/// A port that greets and knows no action, as an old node knows none of ours.
async fn old_node(listener: TcpListener) {
    use futures::{AsyncReadExt, AsyncWriteExt};
    while let Ok((mut stream, _)) = listener.accept().await {
        rt::spawn(async move {
            let mut fields = distkv::client::Fields::new();
            fields.u64("seq", 0).raw("version", b"\x93\x00\x41\x00").str("node", "old");
            fields.u64("tock", 2).u64("qlen", 0);
            stream.write_all(&fields.encode()).await.unwrap();
            let (mut seq, mut chunk) = (0, [0; 4096]);
            while stream.read(&mut chunk).await.is_ok_and(|count| count > 0) {
                seq += 1;
                let mut error = distkv::client::Fields::new();
                error.u64("seq", seq).str("error", "No such action");
                stream.write_all(&error.encode()).await.unwrap();
            }
        });
    }
}

#[test]
fn old_nodes_leave_it_with_its_seeds_under_their_names() {
    block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: HostPort = listener.local_addr().unwrap().into();
        let script = rt::spawn(old_node(listener));
        let topology = start(vec![address.clone()]);
        let view = topology.first_view().await.unwrap();
        assert_eq!((view.epoch, view.source.as_deref()), (1, None));
        assert_eq!(view.nodes[0].name, "old");
        assert_eq!(view.nodes[0].client, Some(address));
        assert!(topology.stats().seeds_only);
        script.cancel().await;
    });
}

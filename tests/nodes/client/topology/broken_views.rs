//! Views that end again and again, or once. The node is scripted.

use std::time::Duration;

use distkv::client::pool::PoolConfig;
use distkv::client::topology::{TopologyConfig, TopologyManager};
use distkv::client::{Access, ConnectionPool, HostPort};
use distkv::rt;
use distkv::testing::{PATIENCE, block_on, wait_until};

use super::scripted::Scripted;

/// A network of one.
fn node() -> Scripted {
    let node = Scripted::start("s1");
    let told = vec![(String::from("s1"), node.address.clone())];
    node.change(|state| state.told = told);
    node
}

/// Far longer than the test.
const LONG: Duration = Duration::from_secs(3_600);

#[test]
fn a_view_that_breaks_again_and_again_is_asked_for_after_longer_and_longer_pauses() {
    block_on(async {
        let node = node();
        node.change(|state| state.views_end = true);
        let retry_delay = Duration::from_millis(50);
        let config = TopologyConfig { retry_delay, retry_delay_max: LONG, ..Default::default() };
        let pool = ConnectionPool::new(PoolConfig::default(), Access::default());
        let began = rt::now();
        let topology = TopologyManager::start(vec![node.seed()], pool, config);
        assert!(wait_until(PATIENCE, || node.asked("watch_cluster") >= 6).await);
        // At least half of 50, 100, 200, 400 and 800 ms; each may be cut to a whole one.
        let took = rt::now() - began;
        assert!(took >= 770, "{took} ms");
        assert_eq!(topology.view().epoch, 1, "what it told counts all the same");
        assert!(topology.stats().lost >= 5);
    });
}

#[test]
fn a_view_that_has_lasted_is_asked_for_without_a_pause() {
    block_on(async {
        let node = node();
        let retry_delay_max = Duration::from_millis(1);
        let config = TopologyConfig { retry_delay: LONG, retry_delay_max, ..Default::default() };
        let pool = ConnectionPool::new(PoolConfig::default(), Access::default());
        let seed: HostPort = node.seed();
        let topology = TopologyManager::start(vec![seed.clone()], pool.clone(), config);
        topology.first_view().await.unwrap();
        let seen = rt::now();
        assert!(wait_until(PATIENCE, || rt::now() > seen + 1).await);
        pool.get(&seed).await.unwrap().connection().close("the test wants it so");
        assert!(wait_until(PATIENCE, || node.asked("watch_cluster") >= 2).await);
    });
}

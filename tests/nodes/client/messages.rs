//! Messages, and monitors that go on at another node.

use distkv::client::ClientConfig;
use distkv::client::smart::MonitorEvent;
use distkv::testing::{TestCluster, block_on};

use super::ops::{connect, path};

#[test]
fn messages_reach_monitors_also_after_their_node_died() {
    block_on(async {
        let mut cluster = TestCluster::start(3).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let mut monitor = client.monitor(&path("news.#")).await.unwrap();
        client.send(&path("news.local"), &("rain", 5)).await.unwrap();
        let MonitorEvent::Message(message) = monitor.next().await.unwrap() else { panic!() };
        assert_eq!(message.topic, path("news.local"));
        assert_eq!(message.get::<(String, u8)>().unwrap(), ("rain".into(), 5));
        assert_eq!(message.dropped, 0);
        let name = monitor.node().unwrap();
        let place = cluster.nodes().iter().position(|node| node.name().as_str() == name);
        drop(cluster.take(place.unwrap()));
        let gap = monitor.next().await.unwrap();
        assert!(matches!(gap, MonitorEvent::Gap { .. }), "{gap:?}");
        client.send(&path("news.late"), "sun").await.unwrap();
        let MonitorEvent::Message(message) = monitor.next().await.unwrap() else { panic!() };
        assert_eq!(message.get::<String>().unwrap(), "sun");
        cluster.shutdown().await;
    });
}

#[test]
fn who_asks_for_what_there_cannot_be_is_told_so_before_it_begins() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let error = client.monitor(&path("a.#.b")).await.map(drop).unwrap_err();
        assert_eq!((error.code(), error.attempts()), (Some("bad_request"), 1), "{error}");
        assert_eq!(error.node(), Some("n0"));
        // What has begun loses nothing by that, and misses nothing.
        let mut monitor = client.monitor(&path("a.#")).await.unwrap();
        for number in 0..3 {
            client.send(&path("a.b"), &number).await.unwrap();
        }
        for number in 0..3 {
            let MonitorEvent::Message(message) = monitor.next().await.unwrap() else { panic!() };
            assert_eq!(message.get::<u8>().unwrap(), number);
        }
        cluster.shutdown().await;
    });
}

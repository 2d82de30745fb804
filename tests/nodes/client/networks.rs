//! A client and two networks: what is for one of them never goes to the other, whoever is up.

use std::time::Duration;

use distkv::client::retry::RetryPolicy;
use distkv::client::*;
use distkv::model::ids::NodeName;
use distkv::node::Node;
use distkv::rt;
use distkv::testing::{PATIENCE, TestCluster, block_on, loopback};

use super::ops::{connect, path};

/// A node of a network of this name.
async fn cluster_of(network: &str) -> TestCluster {
    let mut config = loopback(NodeName::new("n0").unwrap(), Vec::new());
    network.clone_into(&mut config.network);
    let node = Node::start(config).await.unwrap();
    node.ready().await.unwrap();
    let mut cluster = TestCluster::start(0).await.unwrap();
    cluster.push(node);
    cluster
}

fn brief() -> ClientConfig {
    let total_deadline = Duration::from_secs(1);
    ClientConfig::new().retry(RetryPolicy { total_deadline, ..RetryPolicy::default() })
}

#[test]
fn a_write_whose_nodes_are_gone_does_not_go_to_another_network() {
    block_on(async {
        let (mut shop, staging) = (cluster_of("shop").await, cluster_of("staging").await);
        let seeds = [shop.seeds()[0].clone(), staging.seeds()[0].clone()];
        let first = Client::connect(seeds.clone(), brief()).await.unwrap();
        let named = Client::connect(seeds, brief().network("staging")).await.unwrap();
        first.put(&path("a"), &1).await.unwrap();
        named.put(&path("b"), &2).await.unwrap();
        drop(shop.take(0));
        let error = first.put(&path("a"), &3).await.unwrap_err();
        // Unknown, if it was sent before the connection was known to be lost.
        assert!(matches!(error.code(), Some("unavailable" | "fate_unknown")), "{error}");
        let other = connect(&staging, ClientConfig::new()).await;
        assert_eq!(other.get::<u8>(&path("a")).await.unwrap(), None);
        assert_eq!(other.get::<u8>(&path("b")).await.unwrap(), Some(2));
        // Who is connected to the other one does not notice.
        named.put(&path("b"), &4).await.unwrap();
        staging.shutdown().await;
    });
}

#[test]
fn who_finds_nodes_of_another_network_only_is_told_at_once() {
    block_on(async {
        let staging = cluster_of("staging").await;
        let address = staging.seeds()[0].clone();
        let config = ClientConfig::new().network("shop");
        let connecting = Client::connect([address.clone()], config.clone());
        let error = rt::timeout(PATIENCE / 2, connecting).await.unwrap().unwrap_err();
        assert_eq!((error.code(), error.fate()), (Some("no_access"), Fate::NotDone));
        let told = format!(
            "cannot use {address}: it is a node of the network \"staging\", and this client is of \"shop\""
        );
        assert!(error.to_string().starts_with(&told), "{error}");
        // As long as another seed may be one of its own, it is waited for.
        let late = ([address, HostPort::parse("127.0.0.1:1", None).unwrap()], config);
        let config = late.1.connect_deadline(Duration::from_millis(300));
        let error = Client::connect(late.0, config).await.unwrap_err();
        assert_eq!(error.code(), Some("unavailable"));
        assert!(error.to_string().contains(&told), "{error}");
        staging.shutdown().await;
    });
}

#[test]
fn a_ticket_says_of_which_network_its_client_is() {
    block_on(async {
        let staging = cluster_of("staging").await;
        let ticket = |network: &str| Ticket {
            addresses: vec![staging.seeds()[0].to_string()],
            network: network.to_owned(),
            login: None,
            ca: None,
            certificate: None,
        };
        let of = |network: &str, config: ClientConfig| {
            let ticket = ticket(network);
            async move { Client::connect_with_ticket(&ticket, config).await.map(drop) }
        };
        assert_eq!(of("staging", ClientConfig::new()).await, Ok(()));
        let error = of("shop", ClientConfig::new()).await.unwrap_err();
        assert_eq!(error.code(), Some("no_access"), "{error}");
        // What the program says counts more; and a ticket without a name says nothing.
        assert_eq!(of("shop", ClientConfig::new().network("staging")).await, Ok(()));
        assert_eq!(of("", ClientConfig::new()).await, Ok(()));
        staging.shutdown().await;
    });
}

//! A client and two networks: what is for one of them never goes to the other, whoever is up.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distkv::client::retry::RetryPolicy;
use distkv::client::*;
use distkv::model::ids::NodeName;
use distkv::node::Node;
use distkv::rt::{self, TcpListener};
use distkv::testing::{PATIENCE, TestCluster, block_on, free_addrs, loopback};
use futures::{AsyncReadExt, AsyncWriteExt};

use super::ops::{connect, path};

/// A node of a network of this name.
async fn cluster_of(network: &str) -> TestCluster {
    cluster_at(network, "127.0.0.1:0").await
}

/// The same, with this client port.
async fn cluster_at(network: &str, client: &str) -> TestCluster {
    let mut config = loopback(NodeName::new("n0").unwrap(), Vec::new());
    network.clone_into(&mut config.network);
    client.clone_into(&mut config.client);
    let node = Node::start(config).await.unwrap();
    node.ready().await.unwrap();
    let mut cluster = TestCluster::start(0).await.unwrap();
    cluster.push(node);
    cluster
}

fn brief() -> ClientConfig {
    let total_deadline = Duration::from_secs(4);
    // Who is back is tried again within that.
    let failure_memory_max = Duration::from_millis(50);
    let pool = PoolConfig { failure_memory_max, ..PoolConfig::default() };
    let retry = RetryPolicy { total_deadline, ..RetryPolicy::default() };
    ClientConfig::new().pool(pool).retry(retry)
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
            "cannot use {address}: it is a node of the network \"staging\", and this client is of \"shop\", as its configuration says"
        );
        assert!(error.to_string().starts_with(&told), "{error}");
        // As long as another seed may be one of its own, it is waited for.
        let late = ([address, HostPort::parse("127.0.0.1:1", None).unwrap()], config);
        let config = late.1.connect_deadline(Duration::from_secs(3));
        let error = Client::connect(late.0, config).await.unwrap_err();
        assert_eq!(error.code(), Some("unavailable"));
        assert!(error.to_string().contains(&told), "{error}");
        // Each seed that was asked is a try, in each round.
        assert!(error.attempts() > 1, "{error}");
        staging.shutdown().await;
    });
}

/// A node of another network, at which clients must log in. It says so, and passes on what is sent to it.
async fn stray(listener: TcpListener, heard: Arc<Mutex<Vec<u8>>>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut greeting = Fields::new();
        greeting.u64("seq", 0).raw("version", b"\x93\x00\x41\x00").str("node", "stray");
        // A tock that no clock of the client's own network will reach.
        greeting.u64("tock", 1 << 40).raw("auth", b"\x91\xa8password").str("network", "staging");
        let _ = stream.write_all(&greeting.encode()).await;
        let heard = Arc::clone(&heard);
        rt::spawn(async move {
            let mut chunk = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut chunk).await {
                heard.lock().unwrap().extend(&chunk[..count]);
            }
        });
    }
}

#[test]
fn a_stray_node_that_asks_for_a_login_gets_no_secret_and_ends_no_watch() {
    block_on(async {
        let [own] = free_addrs::<1>().map(|address| address.to_string());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let other: HostPort = listener.local_addr().unwrap().into();
        let heard = Arc::default();
        let script = rt::spawn(stray(listener, Arc::clone(&heard)));
        let mut shop = cluster_at("shop", &own).await;
        let seeds = [HostPort::parse(&own, None).unwrap(), other];
        let login = Login::user(Some("password"), "ann", Some("secret"));
        let client = Client::connect(seeds, brief().login(login)).await.unwrap();
        let mut watch = client.watch(&path("a"), WatchOptions::default()).await.unwrap();
        client.put(&path("a"), &1).await.unwrap();
        for written in [2, 3] {
            // All of the client's own nodes are restarted.
            drop(shop.take(0));
            let ended = rt::timeout(Duration::from_millis(300), async {
                loop {
                    if let Err(error) = watch.next().await {
                        break error;
                    }
                }
            });
            assert_eq!(ended.await, None);
            let error = client.put(&path("a"), &0).await.unwrap_err();
            assert_ne!(error.code(), Some("no_access"), "{error}");
            shop = cluster_at("shop", &own).await;
            let put = client.put(&path("a"), &written).await.unwrap();
            assert!(put.tock < 1 << 40, "the other network's clock counts");
            let told = rt::timeout(PATIENCE, async {
                loop {
                    if let WatchEvent::Change(change) = watch.next().await.unwrap()
                        && change.get::<u64>().unwrap() == Some(written)
                    {
                        break;
                    }
                }
            });
            told.await.expect("the watch goes on");
        }
        assert_eq!(*heard.lock().unwrap(), b"", "nothing is sent to another network's node");
        script.cancel().await;
        shop.shutdown().await;
    });
}

#[test]
fn a_node_that_lets_nobody_in_does_not_say_of_which_network_a_client_is() {
    block_on(async {
        let shop = cluster_of("shop").await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let other: HostPort = listener.local_addr().unwrap().into();
        let script = rt::spawn(refusing(listener));
        let seeds = [other, shop.seeds()[0].clone()];
        let client = Client::connect(seeds, brief()).await.unwrap();
        let put = client.put(&path("a"), &1).await.unwrap();
        assert!(put.tock < 1 << 40, "the other network's clock counts");
        script.cancel().await;
        shop.shutdown().await;
    });
}

/// A node of another network that refuses whatever is asked.
async fn refusing(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut greeting = Fields::new();
        greeting.u64("seq", 0).raw("version", b"\x93\x00\x41\x00").str("node", "stray");
        greeting.u64("tock", 1).str("network", "staging");
        let _ = stream.write_all(&greeting.encode()).await;
        let mut refusal = Fields::new();
        refusal.u64("seq", 1).str("error", "log in").str("code", "auth_required");
        refusal.u64("tock", 1 << 40);
        let _ = stream.write_all(&refusal.encode()).await;
    }
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

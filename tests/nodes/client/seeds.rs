//! Connecting where some of the seeds accept and say nothing, as frozen nodes do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distkv::client::{
    Client, ClientConfig, HostPort, Login, PoolConfig, ReadMode, RetryPolicy, TopologyConfig,
};
use distkv::rt::{self, TcpListener, TcpStream};
use distkv::testing::{PATIENCE, TestCluster, block_on, wait_until};
use futures::future::join;
use futures::io::copy;

/// Seeds that accept and say nothing, for as long as this is there.
struct Silent {
    addresses: Vec<HostPort>,
    /// Connections to all of them.
    accepted: Arc<AtomicUsize>,
}

impl Silent {
    async fn start(count: usize) -> Silent {
        let (mut addresses, accepted) = (Vec::new(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..count {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            addresses.push(listener.local_addr().unwrap().into());
            let accepted = Arc::clone(&accepted);
            let _detached = rt::spawn(async move {
                let mut kept = Vec::new();
                while let Ok((stream, _)) = listener.accept().await {
                    kept.push(stream);
                    accepted.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        Silent { addresses, accepted }
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

#[test]
fn one_seed_is_enough_behind_four_that_are_silent() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let silent = Silent::start(4).await;
        let seeds = silent.addresses.iter().cloned().chain(cluster.seeds());
        let client = Client::connect(seeds, ClientConfig::new()).await.unwrap();
        assert_eq!(client.cluster_view().source.as_deref(), Some("n0"));
        assert_eq!(silent.accepted(), 4);
        client.close();
        cluster.shutdown().await;
    });
}

#[test]
fn what_is_no_address_or_no_time_is_refused_at_once() {
    let refused = |host: &str, port, config| {
        let seeds =
            [HostPort { host: String::from("h"), port: 1 }, HostPort { host: host.into(), port }];
        let error = block_on(Client::connect(seeds, config)).unwrap_err();
        assert_eq!(error.code(), Some("usage"), "{error}");
        error.to_string()
    };
    assert!(refused("h", 0, ClientConfig::new()).contains("nothing listens at port 0"));
    let like = "give its zone, like [fe80::1%eth0]:1";
    assert!(refused("fe80::1", 1, ClientConfig::new()).contains(like));
    assert!(refused("", 1, ClientConfig::new()).contains("has no host"));
    assert!(refused("h1,h2", 1, ClientConfig::new()).contains("more than one address"));
    assert!(refused("distkv://h", 1, ClientConfig::new()).contains("is a URL"));
    let zero = Duration::ZERO;
    let retry = RetryPolicy::default();
    let pool = PoolConfig { connect_timeout: zero, ..PoolConfig::default() };
    let topology = TopologyConfig { retry_delay: zero, ..TopologyConfig::default() };
    for (name, config) in [
        ("connect_deadline", ClientConfig::new().connect_deadline(zero)),
        ("try_deadline", ClientConfig::new().retry(RetryPolicy { try_deadline: zero, ..retry })),
        (
            "total_deadline",
            ClientConfig::new().retry(RetryPolicy { total_deadline: zero, ..retry }),
        ),
        ("initial_delay", ClientConfig::new().retry(RetryPolicy { initial_delay: zero, ..retry })),
        ("delay_max", ClientConfig::new().retry(RetryPolicy { delay_max: zero, ..retry })),
        ("connect_timeout", ClientConfig::new().pool(pool)),
        ("retry_delay", ClientConfig::new().topology(topology)),
    ] {
        assert!(refused("h2", 1, config).contains(&format!("{name} must be longer")));
    }
}

#[test]
fn settings_that_are_out_of_their_range_are_refused_before_anything_is_sent() {
    let with_pool = |change: &dyn Fn(&mut PoolConfig)| {
        let mut pool = PoolConfig::default();
        change(&mut pool);
        ClientConfig::new().pool(pool)
    };
    let retry = RetryPolicy::default();
    let logged_in = |login| ClientConfig::new().login(login);
    let long = "s".repeat(4097);
    let too_long = Login::user(None, "ann", Some(&long));
    for (config, expected) in [
        (
            with_pool(&|pool| pool.connections_per_node = 0),
            "connections_per_node must be from 1 to 16, not 0",
        ),
        (
            with_pool(&|pool| pool.connections_per_node = 17),
            "connections_per_node must be from 1 to 16, not 17",
        ),
        (with_pool(&|pool| pool.busy_at = 0), "busy_at must be at least 1, not 0"),
        (with_pool(&|pool| pool.window = Some(1)), "window must be from 2 to 4096, not 1"),
        (with_pool(&|pool| pool.window = Some(4097)), "window must be from 2 to 4096, not 4097"),
        (
            ClientConfig::new().retry(RetryPolicy { factor: 0, ..retry }),
            "factor must be at least 1, not 0",
        ),
        (
            ClientConfig::new().retry(RetryPolicy { attempts_max: Some(0), ..retry }),
            "attempts_max must be at least 1, not 0",
        ),
        (
            ClientConfig::new()
                .read_mode(ReadMode::Freshest)
                .topology(TopologyConfig { only_seeds: true, ..TopologyConfig::default() }),
            "read_mode cannot be Freshest with only_seeds",
        ),
        (
            ClientConfig::new().shard_table_age(Duration::from_millis(99)),
            "shard_table_age must be at least 100 ms, not 99 ms",
        ),
        (logged_in(Login::user(None, "", None)), "a user's name must have 1 to 256 bytes, not 0"),
        (
            logged_in(Login::user(None, &long[..257], None)),
            "a user's name must have 1 to 256 bytes, not 257",
        ),
        (
            logged_in(Login::user(Some(""), "ann", None)),
            "a login's method must have 1 to 256 bytes, not 0",
        ),
        (logged_in(too_long), "a user's secret must have 0 to 4096 bytes, not 4097"),
    ] {
        let seed = HostPort { host: String::from("127.0.0.1"), port: 1 };
        let error = block_on(Client::connect([seed], config)).unwrap_err();
        assert_eq!(error.code(), Some("usage"), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// What it asks next does not break off what it has asked before.
#[test]
fn a_seed_that_answers_after_the_next_was_asked_is_used_at_once() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let silent = Arc::new(Silent::start(20).await);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let slow: HostPort = listener.local_addr().unwrap().into();
        let (others, node) = (Arc::clone(&silent), cluster.node(0).client_addr());
        let forwarding = rt::spawn(async move {
            let (client, _) = listener.accept().await.unwrap();
            assert!(wait_until(PATIENCE, || others.accepted() > 0).await);
            let node = TcpStream::connect(node).await.unwrap();
            let (mut to_node, mut to_client) = (node.clone(), client.clone());
            let _ = join(copy(client, &mut to_node), copy(node, &mut to_client)).await;
        });
        let seeds = [slow].into_iter().chain(silent.addresses.iter().cloned());
        // A second and a half for each of them.
        let config = ClientConfig::new()
            .connect_deadline(Duration::from_secs(33))
            .topology(TopologyConfig { first_view_timeout: PATIENCE, ..TopologyConfig::default() });
        let patient = PoolConfig { connect_timeout: PATIENCE, ..PoolConfig::default() };
        let client = Client::connect(seeds, config.pool(patient)).await.unwrap();
        assert!(silent.accepted() < 10, "{} were asked", silent.accepted());
        client.close();
        forwarding.cancel().await;
        cluster.shutdown().await;
    });
}

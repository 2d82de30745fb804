//! Connections are shared, opened once, remembered as failing, and closed when idle or silent.

use std::sync::Arc;
use std::time::Duration;

use distkv::client::pool::PoolConfig;
use distkv::client::{ConnectionPool, Fields, HostPort, Options};
use distkv::rt::{self, TcpListener};
use distkv::testing::{PATIENCE, TestCluster, block_on, free_addrs, wait_until};
use futures::FutureExt;
use futures::future::join_all;

fn quick() -> PoolConfig {
    PoolConfig {
        failure_memory: Duration::from_secs(60),
        failure_memory_max: Duration::from_secs(60),
        ..PoolConfig::default()
    }
}

fn address(cluster: &TestCluster, place: usize) -> HostPort {
    cluster.node(place).client_addr().into()
}

#[test]
fn many_callers_at_once_open_one_connection() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let (pool, to) = (ConnectionPool::new(quick()), address(&cluster, 0));
        let all = join_all((0..500).map(|_| pool.get(&to))).await;
        let first = all[0].as_ref().unwrap();
        assert!(all.iter().all(|used| Arc::ptr_eq(used.as_ref().unwrap(), first)));
        assert_eq!(first.identity().name, "n0");
        assert_eq!((pool.stats().opened, pool.stats().connections), (1, 1));
        cluster.shutdown().await;
    });
}

#[test]
fn whoever_gives_up_waiting_does_not_end_the_attempt() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let (pool, to) = (ConnectionPool::new(quick()), address(&cluster, 0));
        // Polled once, which begins the attempt, and dropped.
        assert!(pool.get(&to).now_or_never().is_none());
        pool.get(&to).await.unwrap();
        assert_eq!(pool.stats().opened, 1);
        cluster.shutdown().await;
    });
}

#[test]
fn a_failure_is_remembered_and_another_node_is_not_concerned() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let dead: HostPort = free_addrs::<1>()[0].into();
        let pool = ConnectionPool::new(quick());
        for _ in 0..100 {
            assert!(pool.get(&dead).await.is_err());
        }
        let stats = pool.stats();
        assert_eq!((stats.failed, stats.failures_remembered), (1, 99));
        assert!(pool.is_failing(&dead));
        pool.get(&address(&cluster, 0)).await.unwrap();
        cluster.shutdown().await;
    });
}

#[test]
fn a_busy_connection_gets_a_second_one_and_no_third() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let pool = ConnectionPool::new(PoolConfig { busy_at: 1, ..quick() });
        let to = address(&cluster, 0);
        let mut streams = Vec::new();
        for count in 1..=6 {
            let used = pool.get(&to).await.unwrap();
            let path = Fields::at(&"a".parse().unwrap());
            streams.push(used.connection().stream("watch", &path).await.unwrap());
            let opened = || pool.stats().connections == count.min(2);
            if count == 2 {
                assert!(wait_until(PATIENCE, opened).await, "{:?}", pool.stats());
            }
        }
        assert_eq!((pool.stats().connections, pool.stats().open_requests), (2, 6));
        drop(streams);
        cluster.shutdown().await;
    });
}

#[test]
fn an_idle_connection_is_closed_and_one_with_a_stream_is_not() {
    block_on(async {
        let cluster = TestCluster::start(2).await.unwrap();
        let pool = ConnectionPool::new(PoolConfig { idle_close: Duration::ZERO, ..quick() });
        let used = pool.get(&address(&cluster, 0)).await.unwrap();
        let path = Fields::at(&"a".parse().unwrap());
        let mut watch = used.connection().stream("watch", &path).await.unwrap();
        drop(pool.get(&address(&cluster, 1)).await.unwrap());
        assert!(wait_until(PATIENCE, || pool.stats().idle_closed == 1).await);
        assert_eq!(pool.stats().connections, 1);
        let fields = Fields::at(&"a".parse().unwrap());
        let mut set = fields.clone();
        used.connection().request("set_value", set.raw("value", &[1])).await.unwrap();
        assert!(watch.next().await.unwrap().is_some());
        drop((watch, used));
        assert!(wait_until(PATIENCE, || pool.stats().connections == 0).await);
        cluster.shutdown().await;
    });
}

/// A port that greets, answers one request, and is silent from then on.
async fn greet_and_fall_silent(listener: TcpListener) {
    use futures::{AsyncReadExt, AsyncWriteExt};
    let mut open = Vec::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut fields = Fields::new();
        fields.u64("seq", 0).raw("version", b"\x93\x00\x41\x00").str("node", "mute");
        fields.u64("tock", 2);
        stream.write_all(&fields.encode()).await.unwrap();
        let (mut heard, mut chunk) = (Vec::new(), [0; 4096]);
        while !heard.ends_with(b"\xa3seq\x01") {
            let count = stream.read(&mut chunk).await.unwrap();
            heard.extend_from_slice(&chunk[..count]);
        }
        let mut error = Fields::new();
        error.u64("seq", 1).str("error", "No such action").str("code", "unknown_action");
        stream.write_all(&error.encode()).await.unwrap();
        open.push(stream);
    }
}

#[test]
fn a_node_that_falls_silent_loses_its_connection_and_its_callers() {
    block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mute: HostPort = listener.local_addr().unwrap().into();
        let script = rt::spawn(greet_and_fall_silent(listener));
        let pool = ConnectionPool::new(PoolConfig {
            probe_after: Duration::from_secs(1),
            probe_timeout: Duration::from_secs(1),
            ..quick()
        });
        let used = pool.get(&mute).await.unwrap();
        assert_eq!(used.identity().name, "mute");
        assert_eq!(used.identity().incarnation, None);
        let fields = Fields::at(&"a".parse().unwrap());
        let answer = used.connection().request("get_value", &fields).await;
        assert!(answer.unwrap_err().to_string().contains("does not answer"));
        assert_eq!(pool.stats().silent_closed, 1);
        assert!(pool.is_failing(&mute));
        script.cancel().await;
    });
}

#[test]
fn a_caller_s_timeout_makes_others_avoid_a_silent_node_at_once() {
    block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mute: HostPort = listener.local_addr().unwrap().into();
        let script = rt::spawn(greet_and_fall_silent(listener));
        let pool = ConnectionPool::new(quick());
        let used = pool.get(&mute).await.unwrap();
        let since = rt::now() + 1;
        assert!(!pool.is_failing(&mute));
        pool.on_timeout(&mute, &used, since);
        assert!(pool.is_failing(&mute));
        script.cancel().await;
    });
}

#[test]
fn a_closed_pool_ends_everything_and_opens_nothing() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let (pool, to) = (ConnectionPool::new(quick()), address(&cluster, 0));
        let used = pool.get(&to).await.unwrap();
        pool.close();
        assert!(used.connection().is_closed());
        assert!(pool.get(&to).await.unwrap_err().to_string().contains("closed"));
        cluster.shutdown().await;
    });
}

#[test]
fn it_works_on_another_executor_and_from_plain_threads() {
    let cluster = block_on(TestCluster::start(1)).unwrap();
    let options = Options::default();
    let pool = ConnectionPool::new(PoolConfig { options, ..quick() });
    let to = address(&cluster, 0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let used = distkv_client::block_on(pool.get(&to)).unwrap();
                let fields = Fields::at(&"a".parse().unwrap());
                let asking = used.connection().request("get_value", &fields);
                distkv_client::block_on(asking).unwrap();
            });
        }
    });
    assert_eq!(pool.stats().opened, 1);
    block_on(cluster.shutdown());
}

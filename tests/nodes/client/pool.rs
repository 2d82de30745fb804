//! Connections are shared, opened once, remembered as failing, and closed when idle or silent; streams leave room for calls.

use std::sync::Arc;
use std::time::Duration;

use distkv::client::pool::PoolConfig;
use distkv::client::smart::{CallError, Fate, Watch, WatchOptions};
use distkv::client::{Access, Client, ClientConfig, ConnectionPool, Fields, HostPort, RetryPolicy};
use distkv::model::path::Path;
use distkv::rt::{self, TcpListener};
use distkv::testing::{PATIENCE, TestCluster, block_on, free_addrs, wait_until};
use futures::FutureExt;
use futures::future::join_all;

use super::ops::{connect, path};

fn quick() -> PoolConfig {
    PoolConfig {
        failure_memory: Duration::from_secs(60),
        failure_memory_max: Duration::from_secs(60),
        ..PoolConfig::default()
    }
}

fn new_pool(config: PoolConfig) -> ConnectionPool {
    ConnectionPool::new(config, Access::default())
}

fn address(cluster: &TestCluster, place: usize) -> HostPort {
    cluster.node(place).client_addr().into()
}

#[test]
fn many_callers_at_once_open_one_connection() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let (pool, to) = (new_pool(quick()), address(&cluster, 0));
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
        let (pool, to) = (new_pool(quick()), address(&cluster, 0));
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
        let pool = new_pool(quick());
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
        let pool = new_pool(PoolConfig { busy_at: 1, ..quick() });
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
        let pool = new_pool(PoolConfig { idle_close: Duration::ZERO, ..quick() });
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
        let pool = new_pool(PoolConfig {
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
        let pool = new_pool(quick());
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
        let (pool, to) = (new_pool(quick()), address(&cluster, 0));
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
    let pool = new_pool(quick());
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

/// Streams for which there is room on one connection, of the 4,096 requests that may be open on it.
const ROOM: usize = 3_840;

/// Opens watches until there is no room for more: those, and the error.
async fn fill(client: &Client, path: &Path) -> (Vec<Watch>, CallError) {
    let mut watches = Vec::new();
    loop {
        match client.watch(path, WatchOptions::default()).await {
            Ok(watch) => watches.push(watch),
            Err(error) => return (watches, error),
        }
        assert!(watches.len() < 100_000, "there is room without end");
    }
}

/// With a time for each call that no test waits for.
fn with_room(pool: PoolConfig) -> ClientConfig {
    let time = Duration::from_secs(60);
    ClientConfig::new()
        .retry(RetryPolicy { try_deadline: time, total_deadline: time, ..RetryPolicy::default() })
        .pool(pool)
}

#[test]
fn streams_leave_room_for_calls_and_who_finds_none_is_told_the_setting() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        // There is no second connection before there must be.
        let pool = PoolConfig { busy_at: 100_000, ..PoolConfig::default() };
        let client = connect(&cluster, with_room(pool)).await;
        let (mut watches, error) = fill(&client, &path("a")).await;
        assert_eq!(watches.len(), 2 * ROOM - 1, "the client's view is one: {error}");
        let text = error.to_string();
        for told in [
            "7680 watches",
            "2 connections",
            "3840 on each",
            "`connections_per_node` is 2, and may be up to 16",
        ] {
            assert!(text.contains(told), "{text}");
        }
        assert!(!text.contains("in time") && error.has_code("too_many_streams"), "{text}");
        assert_eq!((error.attempts(), error.fate()), (1, Fate::NotDone));
        let failures = || client.stats().router.nodes.values().map(|node| node.failures).sum();
        let before: u64 = failures();
        assert_eq!(before, 1, "no stream or call that found a connection full has failed a try");
        let monitor = client.monitor(&path("a")).await;
        assert!(monitor.is_err_and(|error| error.has_code("too_many_streams")));
        for _ in 0..3 {
            client.put(&path("a"), &1).await.unwrap();
        }
        assert_eq!(failures() - before, 1, "of the monitor");
        watches.pop();
        let is_there = async || client.watch(&path("b"), WatchOptions::default()).await.is_ok();
        assert!(is_there().await, "a stream that ends leaves its place");
        drop(watches);
        cluster.shutdown().await;
    });
}

#[test]
fn a_stream_goes_to_another_node_where_one_has_no_room() {
    block_on(async {
        let cluster = TestCluster::start(2).await.unwrap();
        let pool = PoolConfig { connections_per_node: 1, ..PoolConfig::default() };
        let client = connect(&cluster, with_room(pool)).await;
        let (watches, error) = fill(&client, &path("a")).await;
        assert_eq!(watches.len(), 2 * ROOM - 1, "{error}");
        assert!(error.attempts() == 2 && error.has_code("too_many_streams"), "{error}");
        drop(watches);
        cluster.shutdown().await;
    });
}

//! What clients share with the rest of their process: the thread, where their pauses between tries are no pauses; and what the
//! system gives, where that is no thread or no file descriptor when they are first used.

use std::future::Future;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::process::Command;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use distkv::client::*;
use distkv::rt;
use distkv::testing::{PATIENCE, TestCluster, block_on, wait_until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

async fn connect(cluster: &TestCluster, config: ClientConfig) -> Client {
    Client::connect(cluster.seeds(), config).await.unwrap()
}

const SHORTEST: Duration = Duration::from_nanos(1);
/// For so long each try at a node that is gone fails at once.
const MEMORY: Duration = Duration::from_secs(5);

/// Failures are remembered for long.
fn mindful() -> ClientConfig {
    let pool =
        PoolConfig { failure_memory: MEMORY, failure_memory_max: MEMORY, ..PoolConfig::default() };
    ClientConfig::new().pool(pool)
}

/// Tries without end, which hardly pause.
fn restless() -> ClientConfig {
    let retry = RetryPolicy {
        initial_delay: SHORTEST,
        delay_max: SHORTEST,
        total_deadline: 100 * PATIENCE,
        ..RetryPolicy::default()
    };
    mindful().retry(retry)
}

/// How long one look at a future takes, at most, of many.
fn longest_look<T>(future: impl Future<Output = T>) -> Duration {
    let mut future = pin!(future);
    let mut longest = Duration::ZERO;
    for _ in 0..1000 {
        let begun = Instant::now();
        let is_over = future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        longest = longest.max(begun.elapsed());
        assert!(!is_over, "it has given up");
        std::thread::yield_now();
    }
    longest
}

#[test]
fn who_tries_again_without_a_pause_lets_others_go_first() {
    let (mut cluster, client) = block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, restless()).await;
        client.put(&path("a"), &1).await.unwrap();
        (cluster, client)
    });
    let mut watch = block_on(client.watch(&path("a"), WatchOptions::default())).unwrap();
    drop(cluster.take(0));
    let is_gone = || client.stats().pool.connections == 0 && client.stats().pool.failed > 0;
    assert!(block_on(wait_until(PATIENCE, is_gone)), "{:?}", client.stats().pool);
    // All of this is over long before the failure is forgotten: until then nothing stands in the way of a try.
    let a = path("a");
    assert!(longest_look(client.put(&a, &2)) < MEMORY / 2);
    assert!(longest_look(client.get_with::<u8>(&a, ReadMode::Freshest)) < MEMORY / 2);
    assert!(
        longest_look(async {
            while let Ok(event) = watch.next().await {
                assert!(matches!(event, WatchEvent::UpToDate | WatchEvent::Restarted), "{event:?}");
            }
        }) < MEMORY / 2
    );
    client.close();
}

/// How often something was done since, where it is done once in this time at the most.
fn is_rare(count: u64, since: Instant, interval: Duration) -> bool {
    u128::from(count) <= since.elapsed().as_nanos() / interval.as_nanos() + 2
}

#[test]
fn who_looks_for_nodes_without_a_pause_pauses() {
    block_on(async {
        let mut cluster = TestCluster::start(1).await.unwrap();
        let topology = TopologyConfig {
            retry_delay: SHORTEST,
            retry_delay_max: SHORTEST,
            old_nodes_delay: SHORTEST,
            ..TopologyConfig::default()
        };
        let seeds_only = TopologyConfig { only_seeds: true, ..topology };
        let begun = Instant::now();
        let client = Client::connect(cluster.seeds(), mindful().topology(seeds_only)).await;
        let client = client.unwrap();
        assert!(wait_until(PATIENCE, || client.stats().topology.views >= 5).await);
        rt::sleep(Duration::from_millis(100)).await;
        let views = client.stats().topology.views;
        assert!(is_rare(views, begun, Duration::from_millis(10)), "{views}");
        client.close().await;

        let config = mindful().topology(topology);
        let client = connect(&cluster, config).await;
        let begun = Instant::now();
        drop(cluster.take(0));
        assert!(wait_until(PATIENCE, || client.stats().pool.failures_remembered >= 5).await);
        rt::sleep(Duration::from_millis(100)).await;
        // From half of the pause to all of it.
        let failed = client.stats().pool.failures_remembered;
        assert!(is_rare(failed, begun, Duration::from_micros(500)), "{failed}");
        client.close().await;
    });
}

/// Set in the process that a test is run in.
const CHILD: &str = "DISTKV_TEST_STARVED";

/// Runs a test in a process whose threads need much memory, and in which nothing has begun.
fn in_a_process_of_its_own(name: &str, test: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return test();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", &format!("client_threads::{name}"), "--nocapture"]);
    let output = child.env(CHILD, "1").env("RUST_MIN_STACK", "67108864").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let passed = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(output.status.success() && passed, "{said}");
    assert!(!said.contains("panicked"), "{said}");
}

/// A client that cannot be told why, and one that begins when the limit is lifted.
fn is_told_and_connects_later(what: Resource, most: u64, reason: &str) {
    let Rlimit { current, maximum } = getrlimit(what);
    setrlimit(what, Rlimit { current: Some(most), maximum }).unwrap();
    let dead = || ["127.0.0.1:1".parse::<HostPort>().unwrap()];
    // It is told at once.
    let config = ClientConfig::new().connect_deadline(100 * PATIENCE);
    for _ in 0..2 {
        let error = block_on(Client::connect(dead(), config.clone())).unwrap_err();
        assert_eq!((error.code(), error.attempts()), (Some("unavailable"), 0), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    setrlimit(what, Rlimit { current, maximum }).unwrap();
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let client = Client::connect(cluster.seeds(), ClientConfig::new()).await.unwrap();
        client.put(&path("a"), &1).await.unwrap();
        rt::sleep(Duration::from_millis(1)).await;
        client.close().await;
        cluster.shutdown().await;
    });
}

#[test]
fn who_finds_no_thread_is_told_so_and_connects_later() {
    in_a_process_of_its_own("who_finds_no_thread_is_told_so_and_connects_later", || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
        let kilobytes: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
        let most = (kilobytes << 10) + (16 << 20);
        is_told_and_connects_later(Resource::As, most, "gives this process no thread");
    });
}

#[test]
fn who_finds_no_file_descriptor_is_told_so_and_connects_later() {
    in_a_process_of_its_own("who_finds_no_file_descriptor_is_told_so_and_connects_later", || {
        is_told_and_connects_later(Resource::Nofile, 3, "gives this process no file descriptor");
    });
}

#[test]
fn who_finds_no_file_descriptor_for_a_connection_is_told_so_at_once() {
    let name = "who_finds_no_file_descriptor_for_a_connection_is_told_so_at_once";
    in_a_process_of_its_own(name, || {
        block_on(async {
            let cluster = TestCluster::start(1).await.unwrap();
            connect(&cluster, ClientConfig::new()).await.close().await;
            let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
            // All below the lowest free one are in use.
            let lowest = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
            let most = Some(u64::try_from(lowest).unwrap());
            setrlimit(Resource::Nofile, Rlimit { current: most, maximum }).unwrap();
            let config = ClientConfig::new().connect_deadline(100 * PATIENCE);
            let seeds = ["127.0.0.1:1", "127.0.0.2:1"].map(|seed| seed.parse().unwrap());
            let connecting = rt::timeout(PATIENCE, Client::connect(seeds, config));
            let error = connecting.await.expect("it is not told at once").unwrap_err();
            setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
            assert_eq!(error.code(), Some("unavailable"), "{error}");
            let told = error.to_string();
            assert!(told.contains("gives this process no file descriptor"), "{told}");
            assert!(!told.contains("cannot connect"), "{told}");
            let client = Client::connect(cluster.seeds(), ClientConfig::new()).await.unwrap();
            client.close().await;
            cluster.shutdown().await;
        });
    });
}

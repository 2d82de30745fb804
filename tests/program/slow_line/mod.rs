//! A line on which one message takes longer than a node without an answer is trusted: between nodes, and between a client and a
//! node, it arrives all the same, once, and what follows it, too.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use distkv::client::{
    Client, ClientConfig, Fate, GetOptions, HostPort, Repeated, RetryPolicy, TopologyConfig,
    TreeOptions,
};
use distkv::model::path::Path;
use distkv::rt;
use distkv::testing::free_addrs;
use rmpv::Value;

use crate::processes::{NodeProcess, field, wait_until};

/// Between what passes, in each direction.
const PAUSE: Duration = Duration::from_millis(8);
/// So many bytes pass at a time, about as many as a packet has: far fewer than are a sign that much comes. 256 KB per second.
const PIECE: usize = 2 << 10;
/// 1 MB per second, twice as much as a client takes for granted.
const CLIENTS_PIECE: usize = 8 << 10;
/// A value that takes eight seconds.
const VALUE_BYTES: usize = 2 << 20;
const LONGER_THAN: Duration = Duration::from_secs(6);

/// Carries connections to a target at that rate. What waits does so in the system's buffers, so who sends has soon
/// written everything and hears nothing for long.
fn slow_way_to(target: SocketAddr, piece: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let Ok(far) = TcpStream::connect(target) else { continue };
            let ends = (near.try_clone().unwrap(), far.try_clone().unwrap());
            for (from, to) in [(near, far), (ends.1, ends.0)] {
                std::thread::spawn(move || carry(from, to, piece));
            }
        }
    });
    addr
}

fn carry(mut from: TcpStream, mut to: TcpStream, piece: usize) {
    to.set_nodelay(true).unwrap();
    let mut piece = vec![0; piece];
    // When the next piece may pass. On a busy machine a pause ends late; the next one is so much shorter, so that the rate
    // stays what it is.
    let mut due = Instant::now();
    loop {
        let began = Instant::now();
        let Ok(count @ 1..) = from.read(&mut piece) else { break };
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
        let passed = Instant::now();
        // Nothing came for a while, or nobody took it: that gives no right to hurry.
        if passed - began > PAUSE {
            due = passed;
        }
        due += PAUSE;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// A node that peers reach by a slow way only.
fn start(network: &str, name: &str, peers: &[&str]) -> (NodeProcess, String) {
    let [client, gossip] = free_addrs();
    let way = slow_way_to(gossip, PIECE).to_string();
    let (client, gossip) = (client.to_string(), gossip.to_string());
    let mut arguments = vec![if peers.is_empty() { "run" } else { "join" }, "--insecure"];
    arguments.extend(["--client", &client, "--gossip", &gossip, "--advertise", &way]);
    if peers.is_empty() {
        arguments.extend(["--peer-wait", "0s"]);
    }
    arguments.extend(peers);
    (NodeProcess::start_in(network, name, &arguments), way)
}

#[test]
fn a_value_that_takes_long_arrives_over_one_link_and_small_changes_follow() {
    let network = format!("slow-{}", std::process::id());
    let (first, way) = start(&network, "n1", &[]);
    let (second, _) = start(&network, "n2", &[&way]);
    let (mut writer, mut reader) = (first.connect(), second.connect());
    let arrive = |reader: &mut crate::processes::Client, path: &[&str], value: &Value| {
        wait_until("it arrives", || (reader.get(path).as_ref() == Some(value)).then_some(()));
    };
    writer.set(&["before"], 1.into());
    arrive(&mut reader, &["before"], &1.into());

    let began = Instant::now();
    let value = Value::Binary(vec![7; VALUE_BYTES]);
    let answer = writer.set(&["big"], value.clone());
    assert_eq!(field(&answer, "error"), None, "{answer}");
    writer.set(&["small"], 2.into());
    arrive(&mut reader, &["small"], &2.into());
    assert!(began.elapsed() > LONGER_THAN, "the line is not slow: {:?}", began.elapsed());
    arrive(&mut reader, &["big"], &value);

    for node in [&first, &second] {
        let links = node.log().into_iter().filter(|line| line.contains(" linked ")).count();
        assert_eq!(links, 1, "{:#?}", node.log());
    }
}

#[test]
fn a_client_writes_and_reads_what_takes_longer_than_a_try() {
    const TRY: Duration = Duration::from_secs(1);
    let node = NodeProcess::start_in("slow-client", "n1", &["run", "--client", "127.0.0.1:0"]);
    let way: HostPort = slow_way_to(node.client, CLIENTS_PIECE).to_string().parse().unwrap();
    let retry = RetryPolicy {
        try_deadline: TRY,
        total_deadline: Duration::from_secs(60),
        ..RetryPolicy::default()
    };
    let topology = TopologyConfig { only_seeds: true, ..TopologyConfig::default() };
    let config = ClientConfig::new().retry(retry).topology(topology);
    rt::block_on(async {
        let client = Client::connect([way], config).await.unwrap();
        let path: Path = "big".parse().unwrap();
        let value = "x".repeat(3 << 19);
        let began = Instant::now();
        let written = client.put(&path, &value).await.unwrap();
        assert!(began.elapsed() > TRY, "the line is not slow: {:?}", began.elapsed());
        assert_eq!((written.attempts, written.repeated), (1, Repeated::No));
        let began = Instant::now();
        assert_eq!(client.get::<String>(&path).await.unwrap().as_ref(), Some(&value));
        assert!(began.elapsed() > TRY, "the line is not slow: {:?}", began.elapsed());
        // Whose time is over while its answer is arriving has not met a silent node.
        let hurried = GetOptions::new().deadline(TRY / 2);
        let late = client.get_with::<String>(&path, hurried).await.unwrap_err();
        assert_eq!(late.fate(), Fate::NotDone);
        let tree = client.tree(&path, TreeOptions::default()).await.unwrap();
        assert_eq!(tree.len(), 1);
        let stats = client.stats();
        assert_eq!((stats.retry.retries, stats.pool.probes), (0, 0));
    });
}

//! How long a scrape of `/metrics` takes at a node with many links that knows many incarnations: from the request to the
//! whole answer, by way of the real HTTP port. All nodes run in this process and on this machine, so idle times of
//! other work do not help it. 48 links and 1,000 incarnations should take 5 ms at most. 47 links are the most that
//! stand: of more than 48 nodes not all are linked (`FULL_MESH_MAX`), and those that are not needed end soon.
//!
//! ```sh
//! cargo run --profile measure --example scrape_cost
//! cargo run --profile measure --example scrape_cost -- --links 8 --incarnations 100
//! ```
//!
//! A debug build takes very long: to start the nodes, not to be scraped. `docs/performance.md` has figures.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "it measures")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Parser;
use distkv::engine::batch::write_one;
use distkv::engine::{Config, Engine, Image, Input, Outbox};
use distkv::model::ids::{Incarnation, NodeId, NodeName};
use distkv::model::path::Path as KeyPath;
use distkv::node::Node;
use distkv::node::config::{DataConfig, HttpConfig};
use distkv::replica::write::Write as EntryWrite;
use distkv::storage::{Directory, FileHeader, write_snapshot};
use distkv::testing::{TestCluster, block_on, loopback, wait_until};

/// The allocator of the real program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure a scrape of /metrics
#[derive(Parser)]
#[command(name = "scrape_cost")]
struct Arguments {
    /// How many links the node has
    #[arg(long, default_value_t = 47)]
    links: usize,

    /// How many incarnations it knows, its own and the other nodes' not counted
    #[arg(long, default_value_t = 1_000)]
    incarnations: u64,

    /// How many seconds to wait before that: all nodes have just been started in this process
    #[arg(long, default_value_t = 10)]
    settle: u64,

    /// How often it is scraped
    #[arg(long, default_value_t = 1_000)]
    scrapes: usize,
}

fn main() {
    let arguments = Arguments::parse();
    let folder = tempfile::tempdir().unwrap();
    let mut config = loopback(NodeName::new("n0").unwrap(), Vec::new());
    put_state(folder.path(), &config.network, arguments.incarnations);
    config.data = Some(DataConfig::new(folder.path().to_owned()));
    config.http = Some(HttpConfig {
        address: "127.0.0.1:0".to_owned(),
        names: Vec::new(),
        write_token: None,
    });
    block_on(async {
        let node = Node::start(config).await.unwrap();
        node.ready().await.unwrap();
        let http = node.http_addr().unwrap();
        let mut cluster = TestCluster::start(0).await.unwrap();
        cluster.push(node);
        for _ in 0..arguments.links {
            cluster.add().await.unwrap();
        }
        let wanted = format!("\ndistkv_links {}\n", arguments.links);
        let is_linked = wait_until(Duration::from_secs(60), || scrape(http).1.contains(&wanted));
        assert!(is_linked.await, "not linked to all");
        std::thread::sleep(Duration::from_secs(arguments.settle));
        let mut times: Vec<Duration> = (0..arguments.scrapes).map(|_| scrape(http).0).collect();
        times.sort();
        let at = |part: usize| times.get(times.len() * part / 100).or(times.last()).unwrap();
        let text = scrape(http).1;
        assert!(text.contains(&wanted), "links have ended meanwhile");
        let lines = text.lines().filter(|line| !line.starts_with('#')).count();
        println!(
            "{} links, {} incarnations, {lines} series: median {:?}, 90 of 100 {:?}, longest {:?}",
            arguments.links,
            arguments.incarnations,
            at(50),
            at(90),
            times.last().unwrap()
        );
        cluster.shutdown().await;
    });
}

/// A data directory with a state in which so many incarnations have made a change each.
fn put_state(folder: &Path, network: &str, incarnations: u64) {
    let name = NodeName::new("n0").unwrap();
    let id = NodeId { name: name.clone(), incarnation: Incarnation(1) };
    let mut engine = Engine::new(Config::new(id.clone(), 0x5eed));
    let mut out = Outbox::new();
    engine.handle(Input::Found, 0, &mut out);
    let mut last = id;
    for number in 1..=incarnations {
        let path = KeyPath::root().push(format!("key-{number}").as_str()).unwrap();
        write_one(&mut engine, EntryWrite::new(path, Some(&[7])), false, &mut out).unwrap();
        last.incarnation = Incarnation(1 + number);
        engine.handle(Input::Renewed { incarnation: last.incarnation }, 0, &mut out);
        out.drain().for_each(drop);
    }
    let image: Image = engine.image();
    let header =
        FileHeader { number: 1, network: network.to_owned(), id: last, store: 0, time_ms: 1 };
    write_snapshot(&Directory::new(folder), &header, &image, &mut |_| {}).unwrap();
}

/// How long a scrape took, and what it told.
fn scrape(address: SocketAddr) -> (Duration, String) {
    let mut socket = TcpStream::connect(address).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let began = Instant::now();
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    (began.elapsed(), answer)
}

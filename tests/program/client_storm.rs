//! The smart client while nodes are killed and come back, one after the other: no error reaches its
//! callers, no acknowledged write is lost, and a task reads what it wrote. All tasks also write some shared paths:
//! how many conflicts that makes is compared with writes at random nodes.
//!
//! A few seconds as a test, and no comparison. `DISTKV_TEST_STORM_SECONDS=30` is the real one: a kill every 4 s, and the
//! same again at random nodes.

use crate::processes;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use distkv::client::{Client, ClientConfig, HostPort, PutOptions, RetryPolicy, TopologyConfig};
use distkv::model::path::Path;
use distkv::rt;
use processes::NodeProcess;

const TASKS: u64 = 64;
const CLIENTS: usize = 4;
/// Keys of each task.
const KEYS: u64 = 4;
/// Keys that all tasks write.
const SHARED_KEYS: u64 = 8;

/// What all tasks share.
#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    /// Rises when a node is killed, and when one has come back.
    disturbances: AtomicU64,
    writes: AtomicU64,
    shared_writes: AtomicU64,
    reads: AtomicU64,
    errors: Mutex<Vec<String>>,
    /// Reads of something older than what the task had written, while no node died.
    stale: Mutex<Vec<String>>,
    /// The same, while one did.
    stale_meanwhile: AtomicU64,
    /// The last acknowledged value of each key.
    acknowledged: Mutex<HashMap<String, u64>>,
}

fn address(node: &NodeProcess) -> HostPort {
    HostPort::from(node.client)
}

/// How long the storm lasts, if the real one is wanted.
fn seconds() -> Option<u64> {
    std::env::var("DISTKV_TEST_STORM_SECONDS").ok().and_then(|text| text.parse().ok())
}

/// Writes and reads keys of its own, a number each that only rises.
async fn work(client: Client, anywhere: Option<[Client; 3]>, shared: Arc<Shared>, task: u64) {
    let mut number = 0_u64;
    while !shared.is_over.load(Ordering::Relaxed) {
        number += 1;
        let key = format!("storm-{task}-{}", number % KEYS);
        let path: Path = Path::root().push(key.as_str()).unwrap();
        let before = shared.disturbances.load(Ordering::SeqCst);
        // A node that is killed takes along what it alone has: so a copy is asked for.
        let options = PutOptions::new().copies(1);
        if let Err(error) = client.put_with(&path, &number, &options).await {
            shared.errors.lock().unwrap().push(format!("writing {key}: {error}"));
            return;
        }
        shared.writes.fetch_add(1, Ordering::Relaxed);
        shared.acknowledged.lock().unwrap().insert(key.clone(), number);
        let text = format!("shared-{}", number % SHARED_KEYS);
        let at: Path = Path::root().push(text.as_str()).unwrap();
        let value = (task, number);
        let written = match &anywhere {
            Some(nodes) => nodes[rt::random_u64() as usize % nodes.len()].put(&at, &value).await,
            None => client.put(&at, &value).await,
        };
        match written {
            Ok(_) => drop(shared.shared_writes.fetch_add(1, Ordering::Relaxed)),
            // A node that was chosen at random may be dead.
            Err(_) if anywhere.is_some() => {}
            Err(error) => {
                shared.errors.lock().unwrap().push(format!("writing {text}: {error}"));
                return;
            }
        }
        let found = match client.get::<u64>(&path).await {
            Ok(found) => found,
            Err(error) => {
                shared.errors.lock().unwrap().push(format!("reading {key}: {error}"));
                return;
            }
        };
        shared.reads.fetch_add(1, Ordering::Relaxed);
        if found != Some(number) {
            if shared.disturbances.load(Ordering::SeqCst) == before && before.is_multiple_of(2) {
                let text = format!("{key}: wrote {number}, read {found:?}");
                shared.stale.lock().unwrap().push(text);
            } else {
                shared.stale_meanwhile.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// How many conflicts a node has found since its start.
fn conflicts(node: &NodeProcess) -> u64 {
    let state = node.connect().call("get_state", &[("conflicts", rmpv::Value::from(true))]);
    let counts = state.as_map().unwrap().iter().find(|pair| pair.0.as_str() == Some("conflicts"));
    let counts = counts.and_then(|pair| pair.1.as_map()).unwrap();
    let found = counts.iter().find(|pair| pair.0.as_str() == Some("found"));
    found.and_then(|pair| pair.1.as_u64()).unwrap()
}

/// A client of one node, which gives up at once.
fn of_one(node: &NodeProcess) -> Client {
    let topology = TopologyConfig { only_seeds: true, ..TopologyConfig::default() };
    let retry = RetryPolicy { attempts_max: Some(1), ..RetryPolicy::default() };
    let config = ClientConfig::new().topology(topology).retry(retry);
    rt::block_on(Client::connect([address(node)], config)).unwrap()
}

#[test]
fn nobody_notices_that_nodes_are_killed_and_come_back() {
    let Some(seconds) = seconds() else {
        storm(Duration::from_secs(4), Duration::from_millis(300), false);
        return;
    };
    let [routed, random] = [false, true]
        .map(|is_random| storm(Duration::from_secs(seconds), Duration::from_secs(2), is_random));
    assert!(random >= 100 * routed.max(1), "{routed} conflicts with routing, {random} without");
}

/// Kills a node, and has it come back, after so long each time; returns how many conflicts the nodes have found.
/// `is_random`: the shared keys are written at random nodes.
fn storm(lasts: Duration, pause: Duration, is_random: bool) -> u64 {
    let first = NodeProcess::run("n0");
    let mut nodes = vec![first];
    for name in ["n1", "n2"] {
        let peers: Vec<&NodeProcess> = nodes.iter().collect();
        let node = NodeProcess::join(name, &peers);
        nodes.push(node);
    }
    let shared = Arc::new(Shared::default());
    let seeds: Vec<HostPort> = nodes.iter().map(address).collect();
    let clients: Vec<Client> = (0..CLIENTS)
        .map(|_| rt::block_on(Client::connect(seeds.clone(), ClientConfig::new())).unwrap())
        .collect();
    let anywhere = is_random.then(|| [0, 1, 2].map(|index| of_one(&nodes[index])));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let client = clients[task as usize % CLIENTS].clone();
            rt::spawn(work(client, anywhere.clone(), Arc::clone(&shared), task))
        })
        .collect();
    let (began, mut kills, mut found) = (Instant::now(), 0, 0);
    // Each node at least once.
    while kills < 3 || began.elapsed() < lasts {
        std::thread::sleep(pause);
        // Odd while a node is gone.
        shared.disturbances.fetch_add(1, Ordering::SeqCst);
        let mut gone = nodes.remove(0);
        found += conflicts(&gone);
        gone.kill();
        kills += 1;
        let peers: Vec<&NodeProcess> = nodes.iter().collect();
        // Where its client expects it.
        let (client, gossip) = match is_random {
            true => (gone.client, "127.0.0.1:0".parse().unwrap()),
            false => ("127.0.0.1:0".parse().unwrap(), "127.0.0.1:0".parse().unwrap()),
        };
        let back = NodeProcess::join_at(&gone.name, &peers, client, gossip);
        nodes.push(back);
        std::thread::sleep(pause);
        shared.disturbances.fetch_add(1, Ordering::SeqCst);
    }
    shared.is_over.store(true, Ordering::Relaxed);
    tasks.into_iter().for_each(rt::block_on);
    found += nodes.iter().map(conflicts).sum::<u64>();
    let stats: Vec<_> = clients.iter().map(|client| client.stats()).collect();
    let retries: u64 = stats.iter().map(|stats| stats.retry.retries).sum();
    println!(
        "shared keys at {} nodes: {kills} kills in {:.1} s: {} writes, {} shared writes, {} reads, {retries} retries, \
         {} stale reads while a node was dying, {found} conflicts",
        if is_random { "random" } else { "preferred" },
        began.elapsed().as_secs_f64(),
        shared.writes.load(Ordering::Relaxed),
        shared.shared_writes.load(Ordering::Relaxed),
        shared.reads.load(Ordering::Relaxed),
        shared.stale_meanwhile.load(Ordering::Relaxed),
    );
    assert_eq!(*shared.errors.lock().unwrap(), Vec::<String>::new());
    assert_eq!(*shared.stale.lock().unwrap(), Vec::<String>::new());
    assert!(retries > 0, "{stats:#?}");

    // Everything acknowledged is everywhere, in the end.
    for node in &nodes {
        let mut client = node.connect();
        let acknowledged = shared.acknowledged.lock().unwrap();
        for (key, number) in acknowledged.iter() {
            processes::wait_until(&format!("{key} is {number} on {}", node.name), || {
                let found = client.call(
                    "get_value",
                    &[("path", rmpv::Value::Array(vec![rmpv::Value::from(key.as_str())]))],
                );
                let entry =
                    found.as_map().unwrap().iter().find(|pair| pair.0.as_str() == Some("value"));
                (entry.and_then(|pair| pair.1.as_u64()) == Some(*number)).then_some(())
            });
        }
    }
    for client in clients {
        rt::block_on(client.close().into_future());
        assert_eq!(client.stats().tasks, 0);
    }
    found
}

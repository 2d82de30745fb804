//! What routing is for: writers of one path meet at one node, so conflicts are rare.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use distkv::client::{Client, ClientConfig, Connection, Fields, HostPort, Options};
use distkv::model::path::Path;
use distkv::rt;
use distkv::testing::{TestCluster, block_on};

/// Clients, tasks of each, and writes of each task; half as many reads come between.
const CLIENTS: usize = 3;
const TASKS: usize = 8;
const WRITES: u64 = 500;
/// Paths, which all of them write.
const PATHS: u64 = 50;

fn path(random: u64) -> Path {
    Path::root().push(format!("shared-{}", random % PATHS).as_str()).unwrap()
}

/// xorshift: the same choices in each run.
fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

/// How many conflicts all nodes have found.
fn conflicts(cluster: &TestCluster) -> u64 {
    let found = |address: &HostPort| {
        let connection = block_on(Connection::connect(address, Options::default())).unwrap();
        let mut fields = Fields::new();
        let reply = block_on(connection.request("get_state", fields.bool("conflicts", true)));
        let reply = reply.unwrap();
        let counts = distkv::client::Message::new(reply.get("conflicts").unwrap()).unwrap();
        counts.u64("found").unwrap()
    };
    cluster.seeds().iter().map(found).sum()
}

/// The mixed load, by the smart client, or by connections each of which is to a node that was chosen at
/// random for the request.
async fn load(cluster: &TestCluster, is_routed: bool) {
    let seeds = cluster.seeds();
    let done = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for client in 0..CLIENTS {
        let smart = Client::connect(seeds.clone(), ClientConfig::new()).await.unwrap();
        let mut plain = Vec::new();
        for seed in &seeds {
            plain.push(Connection::connect(seed, Options::default()).await.unwrap());
        }
        for task in 0..TASKS {
            let (smart, plain, done) = (smart.clone(), plain.clone(), Arc::clone(&done));
            let mut random = 0x9e37_79b9_7f4a_7c15 ^ (1 + client as u64 * 100 + task as u64) << 20;
            tasks.push(rt::spawn(async move {
                for n in 0..WRITES {
                    let (write, read) = (path(next(&mut random)), path(next(&mut random)));
                    let node = &plain[next(&mut random) as usize % plain.len()];
                    if is_routed {
                        smart.put(&write, &n).await.unwrap();
                    } else {
                        let mut fields = Fields::at(&write);
                        fields.u64("value", n).u64("nchain", 0);
                        node.request("set_value", &fields).await.unwrap();
                    }
                    if n % 2 == 0 && is_routed {
                        smart.get::<u64>(&read).await.unwrap();
                    } else if n % 2 == 0 {
                        node.request("get_value", &Fields::at(&read)).await.unwrap();
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
    }
    for task in tasks {
        task.await;
    }
    assert_eq!(done.load(Ordering::Relaxed), CLIENTS as u64 * TASKS as u64 * WRITES);
}

#[test]
fn with_routing_conflicts_are_a_hundred_times_fewer_than_with_random_nodes() {
    let counted: Vec<u64> = [true, false]
        .into_iter()
        .map(|is_routed| {
            let cluster = block_on(TestCluster::start(3)).unwrap();
            block_on(load(&cluster, is_routed));
            block_on(cluster.settled()).unwrap();
            let found = conflicts(&cluster);
            block_on(cluster.shutdown());
            found
        })
        .collect();
    let (routed, random) = (counted[0], counted[1]);
    println!(
        "{} writes to {PATHS} paths: {routed} conflicts with routing, {random} with random nodes",
        CLIENTS as u64 * TASKS as u64 * WRITES
    );
    // Also if there is none with routing, there must have been enough without it to tell.
    assert!(random >= 100 * routed.max(1), "{routed} conflicts with routing, {random} without");
}

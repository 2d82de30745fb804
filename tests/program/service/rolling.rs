//! An upgrade of a running network, as README says: one node after the other is stopped and started, under load. No
//! request of the smart client fails, and nothing that was acknowledged is lost.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use distkv::client::{Client, ClientConfig, HostPort, PutOptions};
use distkv::model::path::Path;
use distkv::rt;
use distkv::testing::free_addrs;

use crate::cli::command::run;
use crate::processes::{wait_until, within_patience};

use super::Service;
use super::starts::file;

const TASKS: u64 = 16;

#[derive(Default)]
struct Load {
    is_over: AtomicBool,
    done: AtomicU64,
    errors: Mutex<Vec<String>>,
}

/// Writes a rising number and reads it, until told to stop. The last number that was acknowledged.
async fn work(client: Client, load: Arc<Load>, task: u64) -> u64 {
    let path: Path = Path::root().push(format!("rolling-{task}").as_str()).unwrap();
    let mut number = 0_u64;
    while !load.is_over.load(Ordering::Relaxed) {
        let wrote = client.put_with(&path, &(number + 1), &PutOptions::new().copies(1)).await;
        match wrote {
            Ok(_) => number += 1,
            Err(error) => load.errors.lock().unwrap().push(format!("writing: {error}")),
        }
        if let Err(error) = client.get::<u64>(&path).await {
            load.errors.lock().unwrap().push(format!("reading: {error}"));
        }
        load.done.fetch_add(1, Ordering::Relaxed);
    }
    number
}

fn wait_for_all(nodes: &[[SocketAddr; 2]], services: &[Service]) {
    for [client, _] in nodes {
        let connect = client.to_string();
        let arguments = ["wait", "--members", "3", "--connect", &connect, "--timeout", "5s"];
        let are_there = within_patience(|| run(&arguments, &[], b"").code == 0);
        let logs = || services.iter().map(Service::log).collect::<Vec<_>>().join("\n");
        assert!(are_there, "not three members at {client}:\n{}", logs());
    }
}

#[test]
fn a_rolling_restart_fails_no_request() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = [(); 3].map(|()| free_addrs());
    let peers = nodes.map(|[_, gossip]| format!("{:?}", gossip.to_string())).join(", ");
    let files: Vec<String> = (1..)
        .zip(nodes)
        .map(|(number, [client, gossip])| {
            let more = format!("found = {}\npeers = [{peers}]", number == 1);
            file(folder.path(), &format!("n{number}"), client, gossip, &more)
        })
        .collect();
    let start = |file: &String| Service::start(&["start", "--config", file], &[]);
    let mut services: Vec<Service> = files.iter().map(start).collect();
    wait_for_all(&nodes, &services);

    let seeds: Vec<HostPort> = nodes.iter().map(|[client, _]| HostPort::from(*client)).collect();
    let clients: Vec<Client> = (0..2)
        .map(|_| rt::block_on(Client::connect(seeds.clone(), ClientConfig::new())).unwrap())
        .collect();
    let load = Arc::new(Load::default());
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let client = clients[task as usize % clients.len()].clone();
            rt::spawn(work(client, Arc::clone(&load), task))
        })
        .collect();
    let served = || load.done.load(Ordering::Relaxed);
    for (at, file) in files.iter().enumerate() {
        let before = served();
        wait_until("there is load", || (served() > before + 100).then_some(()));
        services[at].end();
        services[at] = start(file);
        wait_for_all(&nodes, &services);
    }
    let before = served();
    wait_until("there is load", || (served() > before + 100).then_some(()));
    load.is_over.store(true, Ordering::Relaxed);
    let last: Vec<u64> = tasks.into_iter().map(rt::block_on).collect();
    assert_eq!(*load.errors.lock().unwrap(), Vec::<String>::new());
    for (task, number) in last.into_iter().enumerate() {
        for [client, _] in nodes {
            let path = format!("rolling-{task}");
            let connect = client.to_string();
            let arguments = ["get", &path, "--connect", &connect];
            wait_until(&format!("{path} is {number} at {client}"), || {
                (run(&arguments, &[], b"").stdout.trim() == number.to_string()).then_some(())
            });
        }
    }
    services.iter_mut().for_each(Service::end);
}

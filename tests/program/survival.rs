//! Three real processes under load: one is killed and comes back, one is stopped; afterwards
//! all agree and nothing was lost silently.

use crate::processes;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use distkv::testing::free_addrs;
use processes::pauses::Pauses;
use processes::{
    Client, GOODBYE, NodeProcess, PATIENCE, array, field, wait_until, within_patience,
};
use rmpv::Value;

/// Writes of all clients together.
const WRITES: usize = 20_000;
/// Few enough that the clients' writes meet.
const PATHS: usize = 400;
/// Requests that a client has open at once.
const WINDOW: usize = 32;

/// What a node acknowledged: the change's event, and the chain that it stands on.
#[derive(Clone, Debug)]
struct Acknowledged {
    path: String,
    event: (String, u64),
    chain: Vec<(String, u64)>,
}

fn chain_of(message: &Value) -> Vec<(String, u64)> {
    let mut events = Vec::new();
    let mut at = field(message, "chain");
    while let Some(chain) = at.filter(|c| !c.is_nil()) {
        let node = field(&chain, "node").unwrap().as_str().unwrap().to_owned();
        events.push((node, field(&chain, "tick").unwrap().as_u64().unwrap()));
        at = field(&chain, "prev");
    }
    events
}

fn covers(chain: &[(String, u64)], event: &(String, u64)) -> bool {
    chain.iter().any(|(node, tick)| *node == event.0 && *tick >= event.1)
}

/// Writes its share through one node, with reconnects; gives back what was acknowledged.
fn write_share(
    writer: usize,
    address: SocketAddr,
    count: usize,
    done: &AtomicUsize,
) -> Vec<Acknowledged> {
    let mut acknowledged = Vec::new();
    let mut next = 0;
    let mut random = writer as u64 * 7919 + 17;
    while next < count {
        // While the node is down, or catches up, there is nobody to write to.
        let mut client = wait_until("the writer's node takes writes", || {
            let client = Client::try_connect(address).ok()?;
            (!field(&client.greeting, "tick")?.is_nil()).then_some(client)
        });
        let mut open: BTreeMap<u64, String> = BTreeMap::new();
        let lost = loop {
            while open.len() < WINDOW && next < count {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1442695040888963407);
                let path = format!("k{}", (random >> 33) as usize % PATHS);
                let value = Value::from(format!("writer {writer}, change {next}"));
                let fields = [
                    ("path", array(&["load", &path])),
                    ("value", value),
                    ("nchain", Value::from(16)),
                ];
                match client.send("set_value", &fields) {
                    Ok(seq) => open.insert(seq, path),
                    Err(_) => break,
                };
                next += 1;
                done.fetch_add(1, Ordering::Relaxed);
            }
            if open.is_empty() {
                break false;
            }
            let Ok(reply) = client.receive() else { break true };
            assert_eq!(field(&reply, "error"), None, "{reply}");
            let path = open.remove(&field(&reply, "seq").unwrap().as_u64().unwrap()).unwrap();
            let chain = chain_of(&reply);
            acknowledged.push(Acknowledged { path, event: chain[0].clone(), chain });
        };
        assert!(!lost || writer == 2, "only the killed node's connection may break");
    }
    acknowledged
}

fn state(client: &mut Client, key: &str) -> Value {
    field(&client.call("get_state", &[(key, Value::from(true))]), key).unwrap()
}

/// Map keys in one order, so that maps can be compared.
fn sorted(map: &Value) -> Vec<(String, Value)> {
    let mut items: Vec<(String, Value)> =
        map.as_map().unwrap().iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
    items.sort_by(|a, b| a.0.cmp(&b.0));
    items
}

/// A node in whose log each conflict has a line, however many there are.
fn member(name: &str, peers: &[&NodeProcess], addresses: &[String; 2]) -> NodeProcess {
    let [client, gossip] = addresses;
    let network = format!("survival-{}", std::process::id());
    let mut arguments =
        vec!["run", "--log", "debug", "--client", client, "--gossip", gossip, "--peer-wait", "0s"];
    let peers: Vec<String> = peers.iter().map(|peer| peer.gossip.to_string()).collect();
    if !peers.is_empty() {
        arguments[0] = "join";
        arguments.truncate(7);
        arguments.extend(peers.iter().map(String::as_str));
    }
    NodeProcess::start_in(&network, name, &arguments)
}

#[test]
fn a_killed_node_comes_back_and_everybody_agrees() {
    let own = free_addrs::<6>().map(|address| address.to_string());
    let [a, b, c] = [0, 2, 4].map(|at| [own[at].clone(), own[at + 1].clone()]);
    let n1 = member("n1", &[], &a);
    let n2 = member("n2", &[&n1], &b);
    let mut n3 = member("n3", &[&n1, &n2], &c);
    let done = Arc::new(AtomicUsize::new(0));
    let writers: Vec<_> = [n1.client, n2.client, n3.client]
        .into_iter()
        .enumerate()
        .map(|(writer, address)| {
            let done = Arc::clone(&done);
            std::thread::spawn(move || write_share(writer, address, WRITES / 3 + 1, &done))
        })
        .collect();

    wait_until("half of the writes are made", || {
        (done.load(Ordering::Relaxed) >= WRITES / 2).then_some(())
    });
    n3.kill();
    let n3 = member("n3", &[&n1, &n2], &c);

    let shares: Vec<Vec<Acknowledged>> =
        writers.into_iter().map(|w| w.join().expect("the writer is done")).collect();
    let mut clients = [n1.connect(), n2.connect(), n3.connect()];
    let tree = wait_until("the three trees are equal, chains and tocks included", || {
        let trees = clients.each_mut().map(|c| c.tree(&["load"]));
        let known = clients.each_mut().map(|c| sorted(&state(c, "known")));
        let equal = trees[0] == trees[1] && trees[1] == trees[2];
        (equal && known[0] == known[1] && known[1] == known[2]).then(|| trees[0].clone())
    });
    for client in &mut clients {
        let missing = state(client, "missing");
        assert_eq!(missing.as_map().map(Vec::len), Some(0), "ticks are missing: {missing}");
    }
    let written: usize = shares.iter().map(Vec::len).sum();
    assert!(written > WRITES * 9 / 10, "{written} writes were acknowledged");
    check_nothing_lost(&tree, &shares, &[&n1, &n2, &n3]);
}

/// A field of a log line.
fn log_field(line: &str, key: &str) -> Option<String> {
    let (_, rest) = line.split_once(&format!(" {key}="))?;
    Some(rest.split_whitespace().next()?.trim_matches('"').to_owned())
}

/// Each write that a survivor acknowledged is on top, or superseded by a change that knew it,
/// or stands in a conflict report of some node, or is known to a change that does.
fn check_nothing_lost(
    tree: &[(String, Value)],
    shares: &[Vec<Acknowledged>],
    nodes: &[&NodeProcess],
) {
    // What the nodes log comes over other pipes than what they answer.
    let mut found = silent_losses(tree, shares, nodes);
    within_patience(|| {
        found = silent_losses(tree, shares, nodes);
        found.1.is_empty()
    });
    let (reported, silent) = found;
    let count: usize = shares.iter().map(Vec::len).sum();
    println!("{count} acknowledged, {reported} lost a conflict that was reported");
    assert!(silent.is_empty(), "{} were lost silently, e.g. {:?}", silent.len(), silent[0]);
}

/// How many were superseded and are reported so far, and those that are not.
fn silent_losses(
    tree: &[(String, Value)],
    shares: &[Vec<Acknowledged>],
    nodes: &[&NodeProcess],
) -> (usize, Vec<Acknowledged>) {
    let tops: BTreeMap<&str, Vec<(String, u64)>> =
        tree.iter().map(|(path, entry)| (path.trim_matches('"'), chain_of(entry))).collect();
    // By path and event, which is spelled the same in the log and in replies.
    let reports: BTreeSet<(String, String)> = nodes
        .iter()
        .flat_map(|n| n.log())
        .filter(|line| line.contains("conflict"))
        .filter_map(|line| Some((log_field(&line, "path")?, log_field(&line, "lost")?)))
        .collect();
    let all: Vec<&Acknowledged> = shares.iter().flatten().collect();
    let mut reported = 0;
    let mut silent = Vec::new();
    for write in shares.iter().take(2).flatten() {
        if covers(&tops[write.path.as_str()], &write.event) {
            continue;
        }
        let is_reported = all
            .iter()
            .filter(|w| w.path == write.path && covers(&w.chain, &write.event))
            .any(|w| {
                let event = format!("{}:{}", w.event.0, w.event.1);
                reports.contains(&(format!("load.{}", w.path), event))
            });
        if is_reported {
            reported += 1;
        } else {
            silent.push(write.clone());
        }
    }
    (reported, silent)
}

#[test]
fn a_killed_member_is_seen_as_down_within_eight_seconds() {
    let pauses = Pauses::watch();
    let n1 = NodeProcess::run("n1");
    let n2 = NodeProcess::join("n2", &[&n1]);
    let mut n3 = NodeProcess::join("n3", &[&n1]);
    let mut clients = [n1.connect(), n2.connect()];
    let state_of = |client: &mut Client| -> Option<String> {
        let members = field(&client.call("members", &[]), "result")?;
        let member = members
            .as_array()?
            .iter()
            .find(|m| field(m, "name").is_some_and(|n| n.as_str() == Some("n3")))?
            .clone();
        Some(field(&member, "state")?.as_str()?.to_owned())
    };
    for client in &mut clients {
        wait_until("n3 is up", || (state_of(client)? == "up").then_some(()));
    }
    n3.kill();
    let killed = Instant::now();
    for client in &mut clients {
        wait_until("n3 is down", || (state_of(client)? == "down").then_some(()));
    }
    let took = killed.elapsed();
    println!("seen as down by all after {took:?}");
    let paused = pauses.lost();
    assert!(
        took <= Duration::from_secs(8) + 2 * paused,
        "{took:?}, {paused:?} of it without a turn"
    );
}

#[test]
fn a_stopped_member_delays_nobody_and_catches_up_afterwards() {
    let n1 = NodeProcess::run("n1");
    let n2 = NodeProcess::join("n2", &[&n1]);
    let n3 = NodeProcess::join("n3", &[&n1]);
    let mut client = n1.connect();
    n3.freeze();
    // More than the link's queue and the sockets' buffers hold, so that it must overflow.
    let big = Value::Binary(vec![7; 64 << 10]);
    let mut slowest = Duration::ZERO;
    for i in 0..400 {
        let started = Instant::now();
        let reply = client.set(&["stopped", &format!("k{}", i % 50)], big.clone());
        assert_eq!(field(&reply, "error"), None, "{reply}");
        slowest = slowest.max(started.elapsed());
    }
    let last = client.set(&["stopped", "last"], Value::from(1));
    assert_eq!(field(&last, "error"), None);
    let mut second = n2.connect();
    wait_until("n2 has it all", || second.get(&["stopped", "last"]));
    println!("slowest of 400 writes while a member was stopped: {slowest:?}");
    // A link that takes nothing is given up after 15 s.
    assert!(slowest < Duration::from_secs(10), "{slowest:?}");
    n3.signal("CONT");
    let mut third = n3.connect();
    wait_until("the stopped node has it all again", || {
        (third.tree(&["stopped"]) == client.tree(&["stopped"])).then_some(())
    });
}

#[test]
fn a_terminated_node_says_farewell_and_ends_quickly() {
    let n1 = NodeProcess::run("n1");
    let mut n2 = NodeProcess::join("n2", &[&n1]);
    let mut client = n1.connect();
    let members = |client: &mut Client| {
        let reply = client.call("members", &[]);
        let members = field(&reply, "result").unwrap();
        members
            .as_array()
            .unwrap()
            .iter()
            .filter(|m| field(m, "name").is_some_and(|n| n.as_str() == Some("n2")))
            .find_map(|m| Some(field(m, "state")?.as_str()?.to_owned()))
    };
    wait_until("n2 is up", || (members(&mut client)? == "up").then_some(()));
    n2.signal("TERM");
    let started = Instant::now();
    assert!(n2.wait().success());
    let took = started.elapsed();
    assert!(took < GOODBYE, "{took:?}");
    wait_until("n2 is known to have left", || {
        let state = members(&mut client);
        (state.is_none() || state.as_deref() == Some("left")).then_some(())
    });
    assert!(started.elapsed() < PATIENCE);
}

#[test]
fn a_node_that_stood_still_makes_no_change_whose_time_is_over() {
    let node = NodeProcess::run("n1");
    let mut client = node.connect();
    client.set(&["a", "b"], Value::from(1));
    let mut late = node.connect();
    let clock = field(&late.greeting, "clock").and_then(|clock| clock.as_u64()).unwrap();
    let told = Instant::now();
    node.freeze();
    // Where the node reads it at once, it is in time: so it must be the node's stillness that makes it late.
    let by = ("by", (clock + told.elapsed().as_millis() as u64 + 200).into());
    let set = [("path", array(&["a", "b"])), ("value", 2.into()), by.clone()];
    let delete = [("path", array(&["a"])), ("nchain", 0.into()), by];
    late.send("set_value", &set).unwrap();
    late.send("delete_tree", &delete).unwrap();
    let by = told + Duration::from_millis(201) + told.elapsed();
    std::thread::sleep(by.saturating_duration_since(Instant::now()));
    node.signal("CONT");
    for _ in 0..2 {
        let reply = late.receive().unwrap();
        assert_eq!(field(&reply, "code"), Some("too_late".into()), "{reply}");
    }
    assert_eq!(client.get(&["a", "b"]), Some(1.into()));
}

//! `kill -9` at random moments under full write load. After each, the node comes back alone, and
//! is looked at: what must be there, what may be missing, and that nothing is half there. A peer
//! that sees it all knows whether an event was ever used twice.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rmpv::Value;

use super::place::{Place, code, incarnation};
use crate::processes::{Client, NodeProcess, array, field, wait_until};

/// Connections that write.
const WRITERS: usize = 4;
/// Writes that each of them has under way.
const PIPELINE: usize = 8;
/// How long a node is written to at most before it is killed.
const LIFE_MAX_MS: u64 = 250;
/// Then another network begins: every write is to a new key, and each life reads all of them again.
const KILLS_OF_A_NETWORK: usize = 20;

/// How often, for each policy.
fn kills() -> usize {
    let set = std::env::var("DISTKV_KILLS").ok();
    set.map_or(4, |count| count.parse().expect("a number"))
}

/// Random numbers that are the same each time.
struct Rng(u64);

impl Rng {
    fn below(&mut self, max: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % max
    }
}

/// A value that shows whether it is whole: its key, again and again.
fn value_of(key: u64) -> Value {
    let times = 4 + key % 40;
    Value::Array((0..times).map(|_| Value::from(key)).collect())
}

/// One acknowledged write.
#[derive(Clone, Copy)]
struct Acked {
    key: u64,
    tick: u64,
    at: Instant,
}

/// Writes without pause, each time to another key, until the node is gone.
fn write(
    node: &NodeProcess,
    keys: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
) -> JoinHandle<Vec<Acked>> {
    let address = node.client;
    std::thread::spawn(move || {
        let mut acked = Vec::new();
        let Ok(mut client) = Client::try_connect(address) else { return acked };
        let mut open: HashMap<u64, u64> = HashMap::new();
        while !is_over.load(Ordering::Relaxed) {
            while open.len() < PIPELINE {
                let key = keys.fetch_add(1, Ordering::Relaxed);
                let path = array(&["w", &(key % 97).to_string(), &key.to_string()]);
                let fields = [("path", path), ("value", value_of(key))];
                let Ok(seq) = client.send("set_value", &fields) else { return acked };
                open.insert(seq, key);
            }
            let Ok(reply) = client.receive() else { return acked };
            let seq = field(&reply, "seq").and_then(|seq| seq.as_u64()).unwrap();
            let key = open.remove(&seq).unwrap();
            assert_eq!(code(&reply), None, "{reply}");
            let tick = field(&field(&reply, "chain").unwrap(), "tick").unwrap();
            acked.push(Acked { key, tick: tick.as_u64().unwrap(), at: Instant::now() });
        }
        acked
    })
}

/// All keys of a node; each value must be whole.
fn whole_keys(client: &mut Client) -> HashSet<u64> {
    let mut keys = HashSet::new();
    for (path, entry) in client.tree(&["w"]) {
        let key: u64 = path.rsplit('/').next().unwrap().trim_matches('"').parse().unwrap();
        assert_eq!(field(&entry, "value"), Some(value_of(key)), "half written");
        keys.insert(key);
    }
    keys
}

/// Nothing that is known of is without its data, and nothing is missing of which more is known.
fn check_accounts(client: &mut Client) {
    let parts = ["nodes", "known", "present", "deleted", "missing"];
    let fields: Vec<(&str, Value)> = parts.iter().map(|p| (*p, Value::from(true))).collect();
    let state = client.call("get_state", &fields);
    let missing = field(&state, "missing").unwrap();
    assert!(missing.as_map().unwrap().is_empty(), "{missing}");
    // Each write has its own key, so nothing is ever superseded.
    let known = field(&state, "known").unwrap();
    let is_own = |life: &Value| life.as_str().unwrap().starts_with("n1~");
    for (life, ticks) in known.as_map().unwrap().iter().filter(|(life, _)| is_own(life)) {
        // But for what it wrote alone, to one path.
        let count = ticks.as_array().unwrap().len();
        assert!(count <= 1, "{life}: known, but without data: {ticks}");
    }
}

/// No event stands for two changes: each entry here has its own.
fn check_events(client: &mut Client) {
    let mut events = HashMap::new();
    for (path, entry) in client.tree(&["w"]) {
        let chain = field(&entry, "chain").unwrap();
        let event = (
            field(&chain, "node").unwrap().to_string(),
            field(&chain, "tick").unwrap().to_string(),
        );
        if let Some(other) = events.insert(event.clone(), path.clone()) {
            panic!("{event:?} made both {other} and {path}");
        }
    }
}

/// What a test of one policy keeps in mind.
struct Storm {
    place: Place,
    rng: Rng,
    keys: Arc<AtomicU64>,
    /// Everything that was found on the disk so far.
    safe: HashSet<u64>,
    /// Lives that were killed: none may come back.
    killed: HashSet<u64>,
    /// Every change of each life, by its client's account.
    events: HashMap<(u64, u64), String>,
    lost: usize,
}

impl Storm {
    fn note_event(&mut self, life: u64, tick: u64, what: String) {
        if let Some(before) = self.events.insert((life, tick), what.clone()) {
            panic!("tick {tick} of {life:x} made both {before} and {what}");
        }
    }

    fn note_start(&mut self, node: &NodeProcess) -> u64 {
        let life = incarnation(&mut node.connect());
        assert!(!self.killed.contains(&life), "a life that was killed came back");
        life
    }

    /// A life among others, under load, to its sudden end.
    fn live(&mut self, witness: &NodeProcess, ms: u64) -> (Vec<Acked>, Instant) {
        let mut node = self.place.join(&[witness]);
        let life = self.note_start(&node);
        let is_over = Arc::new(AtomicBool::new(false));
        let writer = |_| write(&node, Arc::clone(&self.keys), Arc::clone(&is_over));
        let writers: Vec<_> = (0..WRITERS).map(writer).collect();
        std::thread::sleep(Duration::from_millis(ms));
        node.kill();
        let killed = Instant::now();
        is_over.store(true, Ordering::Relaxed);
        self.killed.insert(life);
        let acked: Vec<Acked> = writers.into_iter().flat_map(|w| w.join().unwrap()).collect();
        for write in &acked {
            self.note_event(life, write.tick, format!("key {}", write.key));
        }
        (acked, killed)
    }

    /// The next life, alone: is looked at, writes something of which nobody hears, and goes in
    /// one way or the other.
    fn look(&mut self, acked: &[Acked], is_promised: impl Fn(&Acked) -> bool) {
        let mut alone = self.place.run_alone();
        let life = self.note_start(&alone);
        // What it logs comes over another pipe.
        wait_until("it says how it was stopped", || {
            let is_it = |line: &String| line.contains("was not stopped cleanly");
            alone.log().iter().any(is_it).then_some(())
        });
        let log = alone.log();
        let mut client = alone.connect();
        let there = whole_keys(&mut client);
        check_accounts(&mut client);
        for Acked { key, .. } in acked.iter().filter(|write| is_promised(write)) {
            assert!(there.contains(key), "{key} was acknowledged, and is gone: {log:#?}");
        }
        self.lost += acked.iter().filter(|write| !there.contains(&write.key)).count();
        assert!(self.safe.is_subset(&there), "what was on the disk before stays there");
        self.safe.extend(there);
        let reply = client.set(&["alone"], Value::from(life));
        let tick = field(&field(&reply, "chain").unwrap(), "tick").unwrap().as_u64().unwrap();
        self.note_event(life, tick, "alone".into());
        if self.rng.below(2) == 0 {
            self.killed.insert(life);
            alone.kill();
        } else {
            alone.signal("TERM");
            assert!(alone.wait().success());
        }
    }
}

/// `is_promised`: whether a write must be there, of which the client heard so long before the node
/// was killed. `long`: how long the longer lives are, milliseconds.
fn storm(sync: &'static str, long: u64, is_promised: impl Fn(Duration) -> bool) {
    let (mut writes, mut lost) = (0, 0);
    for first in (0..kills()).step_by(KILLS_OF_A_NETWORK) {
        let count = KILLS_OF_A_NETWORK.min(kills() - first);
        let (these, of_them) = storm_over_a_network(sync, first as u64, count, long, &is_promised);
        writes += these;
        lost += of_them;
    }
    println!(
        "{sync}: {} kills, {writes} acknowledged writes, {lost} of them not on the disk",
        kills()
    );
}

/// How many writes were acknowledged, and how many of them were not there (and need not be).
fn storm_over_a_network(
    sync: &'static str,
    seed: u64,
    kills: usize,
    long: u64,
    is_promised: &impl Fn(Duration) -> bool,
) -> (usize, usize) {
    let place = Place::new("n1", sync);
    let arguments = ["run", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let witness = NodeProcess::start_in(&place.network, "witness", &arguments);
    let mut storm = Storm {
        place,
        rng: Rng(0x5eed ^ sync.len() as u64 ^ (seed << 32)),
        keys: Arc::default(),
        safe: HashSet::new(),
        killed: HashSet::new(),
        events: HashMap::new(),
        lost: 0,
    };
    let mut writes = 0;
    for round in 0..kills {
        let least = if round % 4 == 3 { long } else { 0 };
        let ms = least + storm.rng.below(LIFE_MAX_MS);
        let (acked, killed) = storm.live(&witness, ms);
        writes += acked.len();
        storm.look(&acked, |write| is_promised(killed.saturating_duration_since(write.at)));
    }
    let node = storm.place.join(&[&witness]);
    storm.note_start(&node);
    let (mut client, mut other) = (node.connect(), witness.connect());
    wait_until("both are equal", || (client.tree(&[]) == other.tree(&[])).then_some(()));
    check_events(&mut other);
    (writes, storm.lost)
}

#[test]
fn killed_under_every_batch_a_node_has_all_that_it_acknowledged() {
    storm("every-batch", 0, |_| true);
}

#[test]
fn killed_under_every_second_a_node_lacks_at_most_the_last_second() {
    storm("every-second", 1_100, |before| before >= Duration::from_secs(1));
}

#[test]
fn killed_under_never_a_node_has_nothing_half_and_uses_no_event_twice() {
    storm("never", 0, |_| false);
}

//! What the parts of the hot path cost: decoding, looking up, setting, taking in what peers send, tick
//! sets, walks, snapshots. `cargo bench --bench parts`; `cargo bench --bench parts -- get` for some.
//!
//! Seconds depend on who else is at work. Instructions do not: `benches/instructions.sh` counts
//! them with callgrind (`--names`, `--once NAME`).

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "it measures")]

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use distkv::client::Fields;
use distkv::engine::{Config, Engine, Outbox};
use distkv::hub::Hub;
use distkv::model::chain::Chain;
use distkv::model::change_time::ChangeTime;
use distkv::model::entry::{Entry, EntryParts};
use distkv::model::ids::{Event, Incarnation, NodeId, NodeIndex, NodeName, NodeTable, Tick, Tock};
use distkv::model::path::Path;
use distkv::model::seen::Mark;
use distkv::model::tick_set::TickSet;
use distkv::model::value::write::write_bin;
use distkv::protocol::client::{Fields as MessageFields, decode_fields};
use distkv::replica::Replica;
use distkv::replica::write::Write;
use distkv::tree::Tree;

/// The allocator of the real program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Requests of a batch: what a connection with so many in flight sends at once.
const BATCH: u64 = 16;
/// Of what is made in the thousands.
const MANY: u64 = 1_000;
/// How many entries there are when seconds are measured, when instructions are counted (callgrind
/// takes fifty times as long), and when a test only tries that all of it works.
const ENTRIES: u64 = 1_000_000;
const ENTRIES_ONCE: u64 = 20_000;
const ENTRIES_TRIED: u64 = 1_000;

/// One thing that is measured: what does it so often.
struct Part {
    operations: u64,
    work: Box<dyn FnMut()>,
}

/// Makes a part, with so many entries.
type Make = fn(u64) -> Part;

const PARTS: [(&str, Make); 16] = [
    ("decode a batch of gets", |_| decode_batch(&get_request)),
    ("decode a batch of sets", |_| decode_batch(&set_request)),
    ("get, one at a time", get_each),
    ("get, a batch together", get_together),
    ("set, overwriting", set_over),
    ("set, creating", |_| set_new()),
    ("apply a remote change", apply_remote),
    ("tick set: insert in order", |_| ticks_in_order()),
    ("tick set: insert, every other first", |_| ticks_with_holes()),
    ("tick set: contains, 1,000 ranges", |_| ticks_contains()),
    ("tick set: union of 1,000 ranges", |_| ticks_union()),
    ("tree: walk in order", walk_in_order),
    ("tree: walk in any order", walk_in_any_order),
    ("tree: overwrite", overwrite),
    ("tree: overwrite, a snapshot every 1,000", overwrite_with_snapshots),
    ("tree: take and drop a snapshot", snapshot),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|argument| argument == "--names") {
        PARTS.iter().for_each(|(name, _)| println!("{name}"));
        return;
    }
    if let Some(at) = arguments.iter().position(|argument| argument == "--once") {
        let wanted = arguments.get(at + 1);
        let (_, make) =
            PARTS.iter().find(|(name, _)| Some(*name) == wanted.map(String::as_str)).unwrap();
        let mut part = make(ENTRIES_ONCE);
        let times = MANY.div_ceil(part.operations);
        // What is made on first use is made now.
        (part.work)();
        measured(times, &mut part.work);
        println!("{}", times * part.operations);
        return;
    }
    // `cargo bench` says so; a test run does not.
    let is_measured = arguments.iter().any(|argument| argument == "--bench");
    let entries = if is_measured { ENTRIES } else { ENTRIES_TRIED };
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("parts");
    for (name, make) in PARTS {
        // Made when it runs, so that a filter spares the others.
        let mut part = None;
        let operations = if name.starts_with("tree: walk") { entries } else { make_small(make) };
        group.throughput(Throughput::Elements(operations));
        group.bench_function(name, |bencher| {
            let part = part.get_or_insert_with(|| make(entries));
            bencher.iter(|| (part.work)());
        });
    }
    group.finish();
    criterion.final_summary();
}

/// How many operations a part does at once.
fn make_small(make: Make) -> u64 {
    make(MANY).operations
}

/// Callgrind collects only what happens in here.
#[inline(never)]
fn measured(times: u64, work: &mut dyn FnMut()) {
    let work = black_box(work);
    (0..times).for_each(|_| work());
}

/// Numbers in no order that could be learnt.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

fn path(number: u64) -> Path {
    Path::root().push(format!("key-{number:012}").as_str()).unwrap()
}

fn value() -> Vec<u8> {
    let mut value = Vec::new();
    write_bin(&[7; 100], &mut value);
    value
}

fn entry(node: NodeIndex, number: u64, value: &[u8]) -> Entry {
    let chain = Chain::first(Event { node, tick: Tick::new(number + 1).unwrap() });
    let tock = Tock::new(number + 1).unwrap();
    Entry::new(&EntryParts {
        value: Some(value),
        chain: &chain,
        tock,
        origin: None,
        time: some_time(),
        extra: &[],
    })
}

/// As changes of clients have one.
fn some_time() -> Option<ChangeTime> {
    ChangeTime::new(1_795_000_000_123)
}

fn first_node() -> NodeIndex {
    NodeTable::new().intern(&node("bench")).unwrap()
}

fn node(name: &str) -> NodeId {
    NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(1) }
}

fn tree(entries: u64) -> Tree {
    let (mut tree, value, node) = (Tree::new(7), value(), first_node());
    for number in 0..entries {
        tree.insert(&path(number), entry(node, number, &value));
    }
    tree
}

fn get_request(number: u64) -> Vec<u8> {
    let mut fields = Fields::at(&path(number));
    fields.u64("nchain", 0).encode_request(number + 1, "get_value")
}

fn set_request(number: u64) -> Vec<u8> {
    let mut fields = Fields::at(&path(number));
    fields.raw("value", &value()).u64("nchain", 0).encode_request(number + 1, "set_value")
}

/// As a connection does it: where each message ends, then what it is.
fn decode_batch(request: &dyn Fn(u64) -> Vec<u8>) -> Part {
    let bytes: Vec<u8> = (0..BATCH).flat_map(request).collect();
    let work = move || {
        let (mut rest, mut fields) = (bytes.as_slice(), MessageFields::default());
        while !rest.is_empty() {
            let length = fields.find_usual(rest, bytes.len()).unwrap();
            black_box(decode_fields(&fields).unwrap());
            rest = rest.get(length..).unwrap();
        }
    };
    Part { operations: BATCH, work: Box::new(work) }
}

fn batch_of_paths(entries: u64) -> impl FnMut() -> Vec<Path> {
    // Made beforehand, so that it is the look-up that is measured.
    let mut random = Random(1);
    let batches: Vec<Vec<Path>> =
        (0..4_096).map(|_| (0..BATCH).map(|_| path(random.below(entries))).collect()).collect();
    let mut next = 0;
    move || {
        next = (next + 1) % batches.len();
        batches.get(next).cloned().unwrap_or_default()
    }
}

fn get_each(entries: u64) -> Part {
    let (tree, mut paths) = (tree(entries), batch_of_paths(entries));
    let work = move || {
        for path in paths() {
            black_box(tree.get(path.as_bytes()).unwrap());
        }
    };
    Part { operations: BATCH, work: Box::new(work) }
}

fn get_together(entries: u64) -> Part {
    let (tree, mut paths) = (tree(entries), batch_of_paths(entries));
    let work = move || {
        tree.get_many(paths().iter().map(Path::as_bytes), |entry| {
            black_box(entry.unwrap());
        });
    };
    Part { operations: BATCH, work: Box::new(work) }
}

fn hub() -> Hub {
    let mut engine = Engine::new(Config::new(node("bench"), 7));
    engine.handle(distkv::engine::Input::Found, 0, &mut Outbox::new());
    Hub::new(engine)
}

fn set(hub: &Hub, path: Path, value: &[u8]) {
    let write = Write { time: some_time(), ..Write::new(path, Some(value)) };
    black_box(hub.write(write, false).0.unwrap());
}

/// A write as a connection makes it, without peers and watchers: its own guard, its own event.
fn set_over(entries: u64) -> Part {
    let (hub, value, mut paths) = (hub(), value(), batch_of_paths(entries));
    (0..entries).for_each(|number| set(&hub, path(number), &value));
    let work = move || paths().into_iter().for_each(|path| set(&hub, path, &value));
    Part { operations: BATCH, work: Box::new(work) }
}

fn set_new() -> Part {
    let value = value();
    let paths: Vec<Path> = (0..10 * MANY).map(path).collect();
    let work = move || {
        let hub = hub();
        paths.iter().for_each(|path| set(&hub, path.clone(), &value));
    };
    Part { operations: 10 * MANY, work: Box::new(work) }
}

/// Each has an event of its own, on an entry that is there.
fn apply_remote(entries: u64) -> Part {
    let (mut replica, value) = (Replica::new(&node("here"), 7), value());
    let peer = replica.intern(&node("there")).unwrap();
    let mark = Mark::default();
    let mut number = 0;
    while number < entries {
        let _ = replica.apply(&path(number), &entry(peer, number, &value), &mark);
        number += 1;
    }
    let mut paths = batch_of_paths(entries);
    let work = move || {
        for path in paths() {
            let entry = entry(peer, number, &value);
            let _ = black_box(replica.apply(&path, &entry, &mark));
            number += 1;
        }
    };
    Part { operations: BATCH, work: Box::new(work) }
}

fn ticks(numbers: impl Iterator<Item = u64>) -> TickSet {
    let mut set = TickSet::new();
    for number in numbers {
        set.insert(Tick::new(number).unwrap());
    }
    set
}

fn ticks_in_order() -> Part {
    Part { operations: MANY, work: Box::new(|| drop(black_box(ticks(1..=MANY)))) }
}

fn ticks_with_holes() -> Part {
    let numbers = || (1..=MANY / 2).map(|n| 2 * n).chain((1..=MANY / 2).map(|n| 2 * n - 1));
    Part { operations: MANY, work: Box::new(move || drop(black_box(ticks(numbers())))) }
}

fn ticks_contains() -> Part {
    let set = ticks((1..=MANY).map(|n| 3 * n));
    let mut random = Random(2);
    let work = move || {
        for _ in 0..MANY {
            let tick = Tick::new(1 + random.below(3 * MANY)).unwrap();
            black_box(set.contains(tick));
        }
    };
    Part { operations: MANY, work: Box::new(work) }
}

fn ticks_union() -> Part {
    let (one, other) = (ticks((1..=MANY).map(|n| 4 * n)), ticks((1..=MANY).map(|n| 4 * n + 2)));
    let work = move || {
        let mut all = one.clone();
        black_box(all.union_with(&other));
    };
    Part { operations: 1, work: Box::new(work) }
}

fn walk_in_order(entries: u64) -> Part {
    let tree = tree(entries);
    let work = move || assert_eq!(tree.subtree(&Path::root()).count() as u64, entries);
    Part { operations: entries, work: Box::new(work) }
}

fn walk_in_any_order(entries: u64) -> Part {
    let tree = tree(entries);
    let work = move || assert_eq!(tree.all().count() as u64, entries);
    Part { operations: entries, work: Box::new(work) }
}

fn overwrite(entries: u64) -> Part {
    let (mut tree, value, mut random) = (tree(entries), value(), Random(3));
    let node = first_node();
    let work = move || {
        for number in 0..MANY {
            let path = path(random.below(entries));
            black_box(tree.insert(&path, entry(node, number, &value)));
        }
    };
    Part { operations: MANY, work: Box::new(work) }
}

fn overwrite_with_snapshots(entries: u64) -> Part {
    let (mut tree, value, mut random) = (tree(entries), value(), Random(4));
    let node = first_node();
    let mut snapshot = tree.clone();
    let work = move || {
        snapshot.clone_from(&tree);
        for number in 0..MANY {
            let path = path(random.below(entries));
            black_box(tree.insert(&path, entry(node, number, &value)));
        }
        black_box(&snapshot);
    };
    Part { operations: MANY, work: Box::new(work) }
}

fn snapshot(entries: u64) -> Part {
    let tree = tree(entries);
    Part { operations: 1, work: Box::new(move || drop(black_box(tree.clone()))) }
}

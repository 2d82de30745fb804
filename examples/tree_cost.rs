//! What the tree costs: nanoseconds per operation, and resident memory per entry, part by part, also
//! after most entries were removed again.
//!
//! ```sh
//! cargo run --release --example tree_cost
//! cargo run --release --example tree_cost -- --parts
//! cargo run --release --example tree_cost -- --parts --times --value-bytes 96
//! cargo run --release --example tree_cost -- --removed any
//! cargo run --release --example tree_cost -- --entries 5000000 --json
//! ```

#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "it measures")]

use std::hint::black_box;
use std::time::Instant;

use clap::Parser;
use distkv::model::chain::Chain;
use distkv::model::change_time::ChangeTime;
use distkv::model::entry::{Entry, EntryParts};
use distkv::model::ids::{Event, Incarnation, NodeId, NodeIndex, NodeName, NodeTable, Tick, Tock};
use distkv::model::path::Path;
use distkv::model::value::write_str;
use distkv::tree::Tree;

/// The allocator of the real program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure what the tree costs
#[derive(Parser)]
#[command(name = "tree_cost")]
struct Arguments {
    /// Entries with keys of 16 bytes
    #[arg(long, default_value_t = 1_000_000)]
    entries: u64,

    /// Bytes per value
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,

    /// With the wall-clock time of each entry's change, as nodes keep it
    #[arg(long)]
    times: bool,

    /// What an entry's memory is made of, instead of times
    #[arg(long)]
    parts: bool,

    /// What is still resident when nine of ten entries were removed, instead of times
    #[arg(long, value_enum)]
    removed: Option<Removed>,

    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

/// Which entries are removed.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Removed {
    /// Those that came last
    Last,
    /// Any: most pages of the allocator keep something
    Any,
}

fn path(number: u64) -> Path {
    Path::root().push(format!("key:{number:012}").as_str()).unwrap()
}

fn entry(node: NodeIndex, number: u64, arguments: &Arguments) -> Entry {
    let tick = Tick::new(number + 1).unwrap();
    let chain = Chain::first(Event { node, tick });
    let mut value = Vec::new();
    write_str(&"v".repeat(arguments.value_bytes), &mut value);
    let tock = Tock::new(number + 1).unwrap();
    Entry::new(&EntryParts {
        value: Some(&value),
        chain: &chain,
        tock,
        origin: None,
        // Half a minute apart.
        time: arguments
            .times
            .then(|| ChangeTime::new(1_790_000_000_000 + number * 30_000))
            .flatten(),
        extra: &[],
    })
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn main() {
    let arguments = Arguments::parse();
    let count = arguments.entries.max(1);
    // A walk over all numbers in no order: an odd step that shares no factor with the count.
    let mut step = (0x9e37_79b9 % count) | 1;
    while gcd(step, count) != 1 {
        step += 2;
    }
    if arguments.parts {
        return parts(&arguments, step);
    }
    if let Some(removed) = arguments.removed {
        return after_removing(&arguments, removed, step);
    }
    let shuffled = |round: u64| (0..count).map(move |i| (i * step + round) % count);
    let id = NodeId { name: NodeName::new("node").unwrap(), incarnation: Incarnation(1) };
    let node = NodeTable::new().intern(&id).unwrap();
    let make = |number| entry(node, number, &arguments);
    let mut figures: Vec<(&str, f64)> = Vec::new();
    let mut tree = Tree::new(7);
    let before = resident_bytes();
    let mut timed = |name, tree: &mut Tree, work: &mut dyn FnMut(&mut Tree)| {
        let began = Instant::now();
        work(tree);
        figures.push((name, began.elapsed().as_nanos() as f64 / count as f64));
    };
    timed("insert", &mut tree, &mut |tree| {
        for number in shuffled(0) {
            tree.insert(&path(number), make(number));
        }
    });
    let full = resident_bytes();
    timed("make path and entry", &mut tree, &mut |_| {
        for number in shuffled(1) {
            black_box((path(number), make(number)));
        }
    });
    timed("make path and get", &mut tree, &mut |tree| {
        for number in shuffled(2) {
            black_box(tree.get(path(number).as_bytes()).unwrap());
        }
    });
    timed("overwrite", &mut tree, &mut |tree| {
        for number in shuffled(3) {
            tree.insert(&path(number), make(number));
        }
    });
    timed("overwrite, a snapshot every 10,000", &mut tree, &mut |tree| {
        let mut snapshot = tree.clone();
        for (at, number) in shuffled(4).enumerate() {
            if at % 10_000 == 0 {
                snapshot = tree.clone();
            }
            tree.insert(&path(number), make(number));
        }
        black_box(snapshot);
    });
    timed("walk in any order", &mut tree, &mut |tree| {
        assert_eq!(tree.all().count() as u64, count);
    });
    timed("walk in order", &mut tree, &mut |tree| {
        assert_eq!(tree.subtree(&Path::root()).count() as u64, count);
    });
    timed("remove nine of ten", &mut tree, &mut |tree| {
        for number in shuffled(0).skip((count / 10) as usize) {
            tree.remove(&path(number)).unwrap();
        }
    });
    let per_entry = (full - before) as f64 / count as f64;
    if arguments.json {
        let times: Vec<String> =
            figures.iter().map(|(name, ns)| format!("\"{name}\":{ns:.1}")).collect();
        println!(
            "{{\"entries\":{count},\"bytes_per_entry\":{per_entry:.1},\
             \"ns\":{{{}}}}}",
            times.join(",")
        );
        return;
    }
    println!("{count} entries: {per_entry:.0} bytes each");
    for (name, ns) in figures {
        println!("  {name:<36} {ns:>8.0} ns");
    }
}

/// What the memory of an entry is made of. Each part is made while those before it are there, so that
/// nothing takes what another one has left.
fn parts(arguments: &Arguments, step: u64) {
    let count = arguments.entries.max(1);
    let id = NodeId { name: NodeName::new("node").unwrap(), incarnation: Incarnation(1) };
    let node = NodeTable::new().intern(&id).unwrap();
    let mut rows: Vec<(&str, f64, String)> = Vec::new();
    let mut row = |name, bytes: f64, about: String| rows.push((name, bytes / count as f64, about));
    let numbers = || (0..count).map(move |i| i * step % count);

    let room = count as f64 * 16.0;
    let (paths, bytes) = growth(|| numbers().map(path).collect::<Vec<Path>>());
    let asked = 16 + paths.first().map_or(0, |path| path.as_bytes().len());
    row("the path's allocation", bytes - room, format!("{asked} asked for: counts 16, the path"));
    let make = |number| entry(node, number, arguments);
    let (entries, bytes) = growth(|| numbers().map(make).collect::<Vec<Entry>>());
    let length = entries.first().map_or(0, |entry| entry.value().map_or(0, <[u8]>::len));
    let time = if arguments.times { 4 } else { 0 };
    let asked = 16 + 16 + 12 + time + length;
    let about =
        format!("{asked} asked for: counts 16, head 16, one event 12, time {time}, value {length}");
    row("the entry's allocation", bytes - room, about);
    let (order, of_order) = growth(|| {
        // One by one, as they come: collected, its nodes would be fuller.
        let mut order = im::OrdSet::new();
        paths.iter().for_each(|path| drop(order.insert(path.clone())));
        order
    });
    row("the ordered set of paths", of_order, "8 for a path, and nodes' holes".to_owned());
    let (mut tree, of_tree) = growth(|| {
        let mut tree = Tree::new(7);
        for (path, entry) in paths.iter().zip(&entries) {
            tree.insert(path, entry.clone());
        }
        tree
    });
    let about = "16 for path and entry, 4 of the hash, and holes".to_owned();
    row("the table by hash", of_tree - of_order, about);
    let per_entry: f64 = rows.iter().map(|(_, bytes, _)| bytes).sum();

    drop((order, entries));
    let mut more: Vec<(&str, f64)> = vec![("all of it", per_entry)];
    let before = resident_bytes();
    for path in &paths {
        let tombstone = tree.get(path.as_bytes()).unwrap().without_value();
        tree.insert(path, tombstone);
    }
    settle();
    let saved = before as f64 - resident_bytes() as f64;
    more.push(("less for each that becomes a tombstone", saved / count as f64));
    drop(paths);
    drop(tree);
    settle();
    if arguments.json {
        let all = rows.iter().map(|(name, bytes, _)| (*name, *bytes)).chain(more);
        let all: Vec<String> = all.map(|(name, bytes)| format!("\"{name}\":{bytes:.1}")).collect();
        println!("{{\"entries\":{count},\"bytes\":{{{}}}}}", all.join(","));
        return;
    }
    for (name, bytes, about) in rows {
        println!("{bytes:>8.1}  {name:<28} {about}");
    }
    more.iter().for_each(|(name, bytes)| println!("{bytes:>8.1}  {name}"));
}

/// What a tree keeps that was never overwritten, in a process that did nothing else.
fn after_removing(arguments: &Arguments, removed: Removed, step: u64) {
    let count = arguments.entries.max(1);
    let id = NodeId { name: NodeName::new("node").unwrap(), incarnation: Incarnation(1) };
    let node = NodeTable::new().intern(&id).unwrap();
    let inserted = || (0..count).map(move |i| i * step % count);
    let before = resident_bytes();
    let mut tree = Tree::new(7);
    for number in inserted() {
        tree.insert(&path(number), entry(node, number, arguments));
    }
    let full = resident_bytes() - before;
    for (at, number) in inserted().enumerate() {
        let is_left = match removed {
            Removed::Last => (at as u64) < count / 10,
            Removed::Any => number < count / 10,
        };
        if !is_left {
            tree.remove(&path(number)).unwrap();
        }
    }
    settle();
    let (left, entries) = (resident_bytes().saturating_sub(before), tree.len().max(1));
    let per_left = left as f64 / entries as f64;
    if arguments.json {
        println!("{{\"full\":{full},\"left\":{left},\"bytes_per_entry_left\":{per_left:.1}}}");
        return;
    }
    println!(
        "{count} entries took {full} bytes; {entries} of them take {left}, {per_left:.0} each"
    );
}

/// What is made, and by how many bytes the process grew with it.
fn growth<T>(make: impl FnOnce() -> T) -> (T, f64) {
    let before = resident_bytes();
    let made = make();
    (made, resident_bytes() as f64 - before as f64)
}

/// The allocator gives back what is free when it is used, after a while.
fn settle() {
    std::thread::sleep(std::time::Duration::from_millis(300));
    for number in 0..1_000 {
        black_box(path(number));
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

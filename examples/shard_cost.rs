//! What virtual shards cost a node: nanoseconds per read and write, with and without the sums that
//! nodes are compared by, and per entry when these are counted.
//!
//! ```sh
//! cargo run --release --example shard_cost
//! cargo run --release --example shard_cost -- --entries 100000
//! ```

#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "it measures")]

use std::hint::black_box;
use std::time::Instant;

use clap::Parser;
use distkv::model::ids::{Incarnation, NodeId, NodeName};
use distkv::model::path::Path;
use distkv::model::shard::shard_of_bytes;
use distkv::replica::Replica;
use distkv::replica::write::Write;
use distkv::server::shards::ShardManager;

/// The allocator of the real program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// So often each is measured; the best counts, since the machine does other things too.
const ROUNDS: usize = 5;

/// Measure what virtual shards cost
#[derive(Parser)]
#[command(name = "shard_cost")]
struct Arguments {
    /// Entries with flat keys of 16 bytes
    #[arg(long, default_value_t = 1_000_000)]
    entries: usize,
}

/// Nanoseconds per path of the best round.
fn best(paths: &[Path], mut each: impl FnMut(&Path)) -> f64 {
    let rounds = (0..ROUNDS).map(|_| {
        let began = Instant::now();
        paths.iter().for_each(&mut each);
        began.elapsed().as_nanos() as f64 / paths.len().max(1) as f64
    });
    rounds.fold(f64::INFINITY, f64::min)
}

fn write(replica: &mut Replica, path: &Path) {
    let mut write = Write::new(path, Some(&[1]));
    black_box(replica.write(&mut write).unwrap());
}

fn main() {
    let arguments = Arguments::parse();
    let path = |number: usize| Path::root().push(format!("key:{number:012}").as_str()).unwrap();
    let paths: Vec<Path> = (0..arguments.entries).map(path).collect();
    let id = NodeId { name: NodeName::new("node").unwrap(), incarnation: Incarnation(1) };
    let mut replica = Replica::new(&id, 7);
    paths.iter().for_each(|path| write(&mut replica, path));
    let manager = ShardManager::default();
    let few = paths.get(..paths.len().min(1_000)).unwrap_or_default();
    let mut figures = vec![
        (
            "a path's shard",
            best(&paths, |path| {
                black_box(shard_of_bytes(path.as_bytes()));
            }),
        ),
        ("count a read, a thousand keys", best(few, |path| manager.note_reads(path.as_bytes(), 1))),
        ("count a read", best(&paths, |path| manager.note_reads(path.as_bytes(), 1))),
        ("overwrite", best(&paths, |path| write(&mut replica, path))),
        ("overwrite, a thousand keys", best(few, |path| write(&mut replica, path))),
    ];
    let lookup = best(&paths, |path| {
        black_box(replica.tree().get(path.as_bytes()));
    });
    figures.push(("look up, for comparison", lookup));
    let began = Instant::now();
    let counted = replica.begin_shard_count().walk();
    let walk = began.elapsed().as_nanos() as f64 / paths.len().max(1) as f64;
    replica.end_shard_count(&counted);
    figures.extend([
        ("overwrite, with sums", best(&paths, |path| write(&mut replica, path))),
        ("the same, a thousand keys", best(few, |path| write(&mut replica, path))),
        ("count the sums, per entry", walk),
    ]);
    println!("{} entries", paths.len());
    for (name, ns) in figures {
        println!("  {name:<32} {ns:>8.1} ns");
    }
}

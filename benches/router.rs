//! What routing costs: from a path to the node that serves it (hash, jump, look-up in the table). For a
//! path of one element at most 25 ns. `cargo bench --bench router`.
//!
//! One path again and again is the best case, since the processor learns how often the hash jumps. The
//! same paths in an order that cannot be learned are what a program does that also does other things;
//! of 65,536 paths hardly any is in a cache, be it the processor's or the router's.

use std::hint::black_box;

use criterion::Criterion;
use distkv::client::router::{Candidate, Router};
use distkv::model::path::Path;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    route(&mut criterion);
    make(&mut criterion);
    criterion.final_summary();
}

fn nodes(count: usize) -> Vec<Candidate> {
    (0..count).map(|n| Candidate { name: format!("node-{n}"), is_live: true }).collect()
}

fn path(text: &str) -> Path {
    Path::root().push(text).unwrap_or_default()
}

fn route(criterion: &mut Criterion) {
    let router = Router::new(&nodes(5), &|_| None);
    let mut group = criterion.benchmark_group("route");
    let one = path("user:123");
    group.bench_function("one flat path", |bencher| {
        bencher.iter(|| router.preferred(Router::shard(black_box(&one))));
    });
    let deep = ["metrics", "host-17", "disk", "sda"]
        .into_iter()
        .fold(Path::root(), |path, name| path.push(name).unwrap_or_default());
    group.bench_function("one deep path", |bencher| {
        bencher.iter(|| router.preferred(Router::shard(black_box(&deep))));
    });
    for count in [64_u64, 1000, 1 << 16] {
        let paths: Vec<Path> = (0..count).map(|n| path(&format!("key-{n}"))).collect();
        // An order that does not come back soon.
        let mut state = 1_u64;
        let order: Vec<&Path> = (0..1 << 16)
            .filter_map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                paths.get(((state >> 33) % count) as usize)
            })
            .collect();
        let mut next = order.iter().cycle();
        group.bench_function(format!("flat paths, any of {count}"), |bencher| {
            bencher.iter(|| router.preferred(Router::shard(next.next()?)));
        });
    }
    group.finish();
}

fn make(criterion: &mut Criterion) {
    let nodes = nodes(5);
    criterion.bench_function("make the table of 5 nodes", |bencher| {
        bencher.iter(|| Router::new(black_box(&nodes), &|_| None));
    });
}

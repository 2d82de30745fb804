//! Which node is preferred for a shard (stand-in until the real one is merged).

use crate::model::path::Path;
use crate::model::shard::{SHARD_COUNT, shard_of};
use xxhash_rust::xxh64::xxh64;

/// What the router must know of a node.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Whether it is asked before those that are not.
    pub is_live: bool,
}

/// Made anew when nodes or overrides change.
pub struct Router {
    orders: Vec<Vec<usize>>,
    names: Vec<String>,
}

impl Router {
    /// For these nodes.
    pub fn new<'a>(nodes: &[Candidate], prefer: &dyn Fn(u16) -> Option<&'a str>) -> Router {
        let orders = (0..SHARD_COUNT).map(|shard| {
            let mut order: Vec<usize> = (0..nodes.len()).collect();
            order.sort_by_key(|i| {
                let node = nodes.get(*i);
                let is_live = node.is_some_and(|n| n.is_live);
                let name = node.map_or("", |n| n.name.as_str());
                let preferred = is_live && prefer(shard) == Some(name);
                (!preferred, !is_live, xxh64(name.as_bytes(), u64::from(shard)))
            });
            order
        });
        Router { orders: orders.collect(), names: nodes.iter().map(|n| n.name.clone()).collect() }
    }

    /// The shard of a path.
    pub fn shard(path: &Path) -> u16 {
        shard_of(path)
    }

    /// The first.
    pub fn preferred(&self, shard: u16) -> Option<usize> {
        self.order(shard).next()
    }

    /// All in order.
    pub fn order(&self, shard: u16) -> impl Iterator<Item = usize> + '_ {
        self.orders.get(usize::from(shard)).into_iter().flatten().copied()
    }

    /// What moved.
    pub fn moved<'a>(
        &'a self,
        newer: &'a Router,
    ) -> impl Iterator<Item = (u16, Option<&'a str>, Option<&'a str>)> + 'a {
        let name =
            |r: &'a Router, s| r.preferred(s).and_then(|i| r.names.get(i)).map(String::as_str);
        (0..SHARD_COUNT).map(move |s| (s, name(self, s), name(newer, s))).filter(|(_, a, b)| a != b)
    }
}

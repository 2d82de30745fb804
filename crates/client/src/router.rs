//! Which node serves a path, and which ones come next if it does not.
//!
//! Every node can serve every path. The router only sees to it that all clients take a path to the
//! same node: its writers then meet there, and a client reads its own writes. A path has a shard
//! ([`crate::model::shard`]); a shard has a preferred node: the one that an override names, else the first
//! live one by rendezvous hashing, so that a node that goes moves its own shards and no others.
//!
//! The rank of a node for a shard is `mix(h + (shard + 1) * 0x9e3779b97f4a7c15)` modulo 2^64, greatest
//! first, where h is xxHash64 with seed 0 of the node's name and `mix` is the finalizer of
//! splitmix64. Equal ranks are decided by the name. Clients that rank otherwise would write the same
//! paths at other nodes, so this may not change.

use std::cmp::Reverse;

use crate::model::path::Path;
use crate::model::shard::{SHARD_COUNT, hash_key};
use crate::model::shard_memo::recent_shard_of_bytes;
use crate::retry::deviations::{Rule, is_broken};

/// Most nodes that are considered; further ones are left out. The table is rebuilt at each change
/// of the cluster, which takes a few milliseconds for this many.
pub const NODES_MAX: usize = 4096;

/// In the table: no node.
const NOBODY: u16 = u16::MAX;

/// What the router must know of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The node's name, by which it is ranked.
    pub name: String,
    /// Whether it is thought to serve clients now.
    pub is_live: bool,
}

/// Which nodes serve which shards. Immutable: made anew when nodes or overrides change.
#[derive(Debug, Clone)]
pub struct Router {
    nodes: Vec<Node>,
    /// Per shard the index of the preferred node, or [`NOBODY`].
    preferred: Box<[u16]>,
}

#[derive(Debug, Clone)]
struct Node {
    name: String,
    hash: u64,
    is_live: bool,
}

impl Router {
    /// The table for these nodes; `prefer` returns a shard's override, if it has one. An override
    /// counts only while the node that it names is live.
    #[must_use]
    pub fn new<'a>(nodes: &[Candidate], prefer: &dyn Fn(u16) -> Option<&'a str>) -> Router {
        let nodes = nodes.iter().take(NODES_MAX).map(|candidate| Node {
            name: candidate.name.clone(),
            hash: hash_key(candidate.name.as_bytes()),
            is_live: candidate.is_live,
        });
        let mut router = Router { nodes: nodes.collect(), preferred: Box::default() };
        router.preferred =
            (0..SHARD_COUNT).map(|shard| router.decide_preferred(shard, prefer(shard))).collect();
        router
    }

    /// The shard of a path: [`shard_of`](crate::model::shard::shard_of), faster for first elements that
    /// come again.
    #[must_use]
    #[inline]
    pub fn shard(path: &Path) -> u16 {
        recent_shard_of_bytes(path.as_bytes())
    }

    /// The node that serves a shard, as an index into the nodes given; none if no node is live, or if
    /// there is no such shard.
    #[must_use]
    #[inline]
    pub fn preferred(&self, shard: u16) -> Option<usize> {
        let index = *self.preferred.get(usize::from(shard))?;
        (index != NOBODY).then_some(usize::from(index))
    }

    /// All nodes, each once, as indices into the given nodes: the preferred one, the other live
    /// ones by their rank, and then those that are not live, since their state may have changed.
    /// Allocates nothing. Each step looks at all nodes, since callers rarely take more than two.
    #[must_use]
    pub fn order(&self, shard: u16) -> Order<'_> {
        Order { router: self, shard, group: Group::Preferred, last: None }
    }

    /// The shards that another node serves in `newer`, by names: which, until now, from now on.
    pub fn moved<'a>(
        &'a self,
        newer: &'a Router,
    ) -> impl Iterator<Item = (u16, Option<&'a str>, Option<&'a str>)> {
        (0..SHARD_COUNT)
            .map(|shard| (shard, self.preferred_name(shard), newer.preferred_name(shard)))
            .filter(|(_, before, after)| before != after)
    }

    fn preferred_name(&self, shard: u16) -> Option<&str> {
        Some(self.nodes.get(self.preferred(shard)?)?.name.as_str())
    }

    fn decide_preferred(&self, shard: u16, prefer: Option<&str>) -> u16 {
        let wanted = |node: &Node| node.is_live && Some(node.name.as_str()) == prefer;
        let index = match self.nodes.iter().position(wanted) {
            Some(index) => Some(index),
            None => self.next_of(shard, true, None, None),
        };
        // At most NODES_MAX, so it fits.
        index.map_or(NOBODY, |index| index as u16)
    }

    /// The first live (or not live) node behind `last` by rank, `except` left out.
    fn next_of(
        &self,
        shard: u16,
        is_live: bool,
        last: Option<usize>,
        except: Option<usize>,
    ) -> Option<usize> {
        let last = last.and_then(|index| Some(self.nodes.get(index)?.place(shard, index)));
        let places = self.nodes.iter().enumerate().filter_map(|(index, node)| {
            let fits = node.is_live == is_live && Some(index) != except;
            fits.then(|| node.place(shard, index))
        });
        let behind = places.filter(|place| last.is_none_or(|last| *place > last));
        behind.min().map(|place| place.index)
    }
}

impl Node {
    fn place(&self, shard: u16, index: usize) -> Place<'_> {
        Place { rank: Reverse(rank(self.hash, shard)), name: &self.name, index }
    }
}

/// Where a node stands for a shard; the least is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place<'a> {
    rank: Reverse<u64>,
    name: &'a str,
    /// Two nodes of one name are still visited once each.
    index: usize,
}

/// The rank of a node for a shard, from the hash of its name: see the head of this file.
fn rank(name: u64, shard: u16) -> u64 {
    let step = (u64::from(shard) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut x = name.wrapping_add(step);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    if is_broken(Rule::Rank) { !x } else { x }
}

/// All nodes in the order in which they are tried for one shard; made by [`Router::order`].
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    router: &'a Router,
    shard: u16,
    group: Group,
    /// The last node of this group that was returned.
    last: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
enum Group {
    Preferred,
    Live,
    NotLive,
    Over,
}

impl Iterator for Order<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let preferred = self.router.preferred(self.shard);
        if matches!(self.group, Group::Preferred) {
            self.group = Group::Live;
            if preferred.is_some() {
                return preferred;
            }
        }
        if matches!(self.group, Group::Live) {
            self.last = self.router.next_of(self.shard, true, self.last, preferred);
            if self.last.is_some() {
                return self.last;
            }
            self.group = Group::NotLive;
        }
        if matches!(self.group, Group::NotLive) {
            self.last = self.router.next_of(self.shard, false, self.last, preferred);
            if self.last.is_some() {
                return self.last;
            }
            self.group = Group::Over;
        }
        None
    }
}

impl std::iter::FusedIterator for Order<'_> {}

#[cfg(test)]
mod tests;

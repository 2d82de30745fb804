//! Sums over the entries of each virtual shard: how many there are, how big, and a hash by which
//! two nodes prove that they hold the same. The sums are commutative: whatever changes an entry
//! takes the old version off and adds the new one, and a sum over a snapshot can be joined with
//! one over what has changed since.

use std::ops::{AddAssign, SubAssign};

use xxhash_rust::xxh64::xxh64;

use super::entry::Entry;
use super::ids::{Event, NodeIndex, NodeTable, Tock};
use super::path::Path;
use super::seen_sum::share_key;
use super::shard::SHARD_COUNT;
use super::shard_memo::recent_shard_of_bytes;
use super::tree::Tree;

/// The sums over one shard's entries. All arithmetic is modulo 2^64, so that a part of a sum may be
/// negative on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShardSum {
    /// Entries, tombstones included.
    pub entries: u64,
    /// Those of them that are tombstones.
    pub tombstones: u64,
    /// Bytes that they take in memory, as [`Tree::memory_bytes`] counts them.
    pub bytes: u64,
    /// The sum of [`version_hash`] over the entries: the same on every node that holds the same
    /// versions. Of two different sets the hashes are the same with a probability of 2^-64: good
    /// enough against chance; nobody gains by making them so.
    pub hash: u64,
}

impl ShardSum {
    /// Of one entry; `key` is [`share_key`] of the newest event's incarnation.
    fn of(path: &Path, path_hash: u64, entry: &Entry, key: u64) -> Self {
        Self {
            entries: 1,
            tombstones: u64::from(entry.is_tombstone()),
            bytes: Tree::cost(path, entry) as u64,
            hash: version_hash(path_hash, key, entry.newest(), entry.tock()),
        }
    }
}

impl AddAssign for ShardSum {
    fn add_assign(&mut self, other: Self) {
        self.entries = self.entries.wrapping_add(other.entries);
        self.tombstones = self.tombstones.wrapping_add(other.tombstones);
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.hash = self.hash.wrapping_add(other.hash);
    }
}

impl SubAssign for ShardSum {
    fn sub_assign(&mut self, other: Self) {
        self.entries = self.entries.wrapping_sub(other.entries);
        self.tombstones = self.tombstones.wrapping_sub(other.tombstones);
        self.bytes = self.bytes.wrapping_sub(other.bytes);
        self.hash = self.hash.wrapping_sub(other.hash);
    }
}

/// The hash of one version: of its path (xxHash64 of its canonical bytes, seed 0), of who made it
/// ([`share_key`], the tick) and of its tock. Nodes compare sums of it, so it may not change.
fn version_hash(path: u64, key: u64, newest: Event, tock: Tock) -> u64 {
    let hash = mix(path.wrapping_add(key.rotate_left(32)));
    mix(mix(hash ^ newest.tick.get()) ^ tock.get())
}

/// Spreads every bit over all of them (the finalizer of MurmurHash3).
fn mix(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// The sums of all shards.
pub struct ShardSums {
    /// Invariant: [`SHARD_COUNT`] of them.
    sums: Box<[ShardSum]>,
    /// Each known incarnation's part of its hashes, by its index; filled as they are met.
    keys: Vec<u64>,
}

impl Default for ShardSums {
    fn default() -> Self {
        Self { sums: vec![ShardSum::default(); usize::from(SHARD_COUNT)].into(), keys: Vec::new() }
    }
}

impl ShardSums {
    /// Over all entries of a tree, whose events are in the table's indices. Walks it.
    #[must_use]
    pub fn of(tree: &Tree, table: &NodeTable) -> Self {
        let mut sums = Self::default();
        for (path, entry) in tree.all() {
            sums.replace(table, &path, None, Some(&entry));
        }
        sums
    }

    /// Notes that there was `old` at a path, and is `new` now.
    pub fn replace(
        &mut self,
        table: &NodeTable,
        path: &Path,
        old: Option<&Entry>,
        new: Option<&Entry>,
    ) {
        let path_hash = xxh64(path.as_bytes(), 0);
        let mut of =
            |entry: &Entry| ShardSum::of(path, path_hash, entry, self.key(table, entry.newest()));
        let (old, new) = (old.map(&mut of), new.map(&mut of));
        let shard = recent_shard_of_bytes(path.as_bytes());
        let Some(sum) = self.sums.get_mut(usize::from(shard)) else { return };
        if let Some(old) = old {
            *sum -= old;
        }
        if let Some(new) = new {
            *sum += new;
        }
    }

    fn key(&mut self, table: &NodeTable, event: Event) -> u64 {
        if let Some(key) = self.keys.get(event.node.as_usize()) {
            return *key;
        }
        self.learn_keys(table, event.node)
    }

    /// The table only grows, and an index stands for the same incarnation for good.
    #[cold]
    fn learn_keys(&mut self, table: &NodeTable, node: NodeIndex) -> u64 {
        let unknown = table.iter().skip(self.keys.len());
        self.keys.extend(unknown.map(|(_, id)| share_key(id)));
        // All events of a tree are in its table; one that is not would count the same anywhere.
        self.keys.get(node.as_usize()).copied().unwrap_or_default()
    }

    /// Joins with sums over other entries.
    pub fn merge(&mut self, other: &Self) {
        for (own, other) in self.sums.iter_mut().zip(&other.sums) {
            *own += *other;
        }
    }

    /// By shard, from 0 on.
    #[must_use]
    pub fn as_slice(&self) -> &[ShardSum] {
        &self.sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::chain::Chain;
    use crate::model::entry::EntryParts;
    use crate::model::ids::{Incarnation, NodeId, NodeName, Tick};

    fn table(names: &[(&str, u64)]) -> NodeTable {
        let mut table = NodeTable::new();
        for (name, life) in names {
            let id = NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(*life) };
            table.intern(&id).unwrap();
        }
        table
    }

    fn entry(node: u32, tick: u64, tock: u64, value: Option<&[u8]>) -> Entry {
        let event = Event { node: NodeIndex(node), tick: Tick::new(tick).unwrap() };
        let (chain, tock) = (Chain::first(event), Tock::new(tock).unwrap());
        Entry::new(&EntryParts { value, chain: &chain, tock, origin: None, extra: &[] })
    }

    /// The only sum that is not empty, after one entry.
    fn sum_of(table: &NodeTable, path: &str, entry: &Entry) -> ShardSum {
        let mut sums = ShardSums::default();
        sums.replace(table, &path.parse().unwrap(), None, Some(entry));
        let mut all = sums.as_slice().iter().filter(|sum| **sum != ShardSum::default());
        let sum = *all.next().unwrap();
        assert_eq!(all.next(), None);
        sum
    }

    #[test]
    fn a_hash_tells_paths_makers_lives_ticks_and_tocks_apart() {
        let table = table(&[("a", 1), ("b", 1), ("a", 2)]);
        let hash = |path, node, tick, tock| {
            sum_of(&table, path, &entry(node, tick, tock, Some(&[1]))).hash
        };
        let one = hash("k", 0, 5, 7);
        for other in [
            hash("k.x", 0, 5, 7),
            hash("k", 1, 5, 7),
            hash("k", 2, 5, 7),
            hash("k", 0, 7, 7),
            hash("k", 0, 5, 8),
            hash("k", 0, 7, 5),
        ] {
            assert_ne!(other, one);
        }
        // What two entries have exchanged does not cancel out.
        let sum = |a: u64, b: u64| a.wrapping_add(b);
        assert_ne!(sum(hash("k", 0, 5, 7), hash("l", 0, 6, 8)), {
            sum(hash("k", 0, 6, 8), hash("l", 0, 5, 7))
        });
    }

    #[test]
    fn a_hash_does_not_depend_on_the_order_in_which_a_node_came_to_know_others() {
        let here = sum_of(&table(&[("a", 1), ("b", 9)]), "k", &entry(1, 5, 7, None));
        let there = sum_of(&table(&[("b", 9), ("c", 3)]), "k", &entry(0, 5, 7, None));
        assert_eq!(here, there);
    }

    #[test]
    fn hashes_stay_what_they_are() {
        let sum = sum_of(&table(&[("n1", 0x1234)]), "site.lamp", &entry(0, 5, 7, Some(&[1])));
        assert_eq!(sum.hash, 18_439_897_093_803_786_702);
    }

    #[test]
    fn parts_of_a_sum_can_be_joined_whichever_comes_first() {
        let table = table(&[("a", 1)]);
        let path = "k".parse().unwrap();
        let (old, new) = (entry(0, 1, 1, None), entry(0, 2, 2, Some(&[1])));
        let (mut before, mut since) = (ShardSums::default(), ShardSums::default());
        since.replace(&table, &path, Some(&old), Some(&new));
        before.replace(&table, &path, None, Some(&old));
        since.merge(&before);
        let sums: Vec<_> = since.as_slice().iter().filter(|s| s.entries > 0).collect();
        assert_eq!(sums, [&sum_of(&table, "k", &new)]);
        since.replace(&table, &path, Some(&new), None);
        assert!(since.as_slice().iter().all(|sum| *sum == ShardSum::default()));
    }
}

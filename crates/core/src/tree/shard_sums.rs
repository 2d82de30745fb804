//! Sums over the entries of each virtual shard: their number, their size, and a hash over their
//! contents, by which two nodes prove that they hold the same. The sums are commutative: a change
//! of an entry subtracts the old version and adds the new one, and a sum over a snapshot can be
//! joined with one over the changes since.

use std::ops::{AddAssign, SubAssign};

use super::Tree;
use super::content_sums::{IncarnationKeys, ReplacedHashes, path_hash};
use crate::model::entry::Entry;
use crate::model::ids::NodeTable;
use crate::model::invariant::{OrBroken, costly_invariant};
use crate::model::path::Path;
use crate::model::shard::SHARD_COUNT;
use crate::model::shard_memo::recent_shard_of_bytes;

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
    /// The sum of [`IncarnationKeys::content_hash`] over the entries: the same on every node that
    /// holds the same versions with the same values.
    pub hash: u64,
}

impl ShardSum {
    /// Of one entry with that content hash.
    fn of(path: &Path, entry: &Entry, hash: u64) -> Self {
        Self {
            entries: 1,
            tombstones: u64::from(entry.is_tombstone()),
            bytes: Tree::cost(path, entry) as u64,
            hash,
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

/// The sums of all shards.
pub struct ShardSums {
    /// Invariant: [`SHARD_COUNT`] of them.
    sums: Box<[ShardSum]>,
}

impl Default for ShardSums {
    fn default() -> Self {
        Self { sums: vec![ShardSum::default(); usize::from(SHARD_COUNT)].into() }
    }
}

impl ShardSums {
    /// Over all entries of a tree, whose events are in the table's indices. Walks it.
    #[must_use]
    pub fn of(tree: &Tree, table: &NodeTable) -> Self {
        let (mut sums, mut keys) = (Self::default(), IncarnationKeys::default());
        for (path, entry) in tree.all() {
            let at = path_hash(path.as_bytes());
            let new = Some(keys.content_hash(table, at, &entry));
            sums.replace(&path, None, Some(&entry), ReplacedHashes { path: at, old: None, new });
        }
        sums
    }

    /// Notes that there was `old` at a path, and is `new` now; `hashes` are those of the two.
    pub fn replace(
        &mut self,
        path: &Path,
        old: Option<&Entry>,
        new: Option<&Entry>,
        hashes: ReplacedHashes,
    ) {
        let shard = recent_shard_of_bytes(path.as_bytes());
        costly_invariant!(
            (old.is_some(), new.is_some()) == (hashes.old.is_some(), hashes.new.is_some()),
            "a version is summed up with its hash"
        );
        let sum = self.sums.get_mut(usize::from(shard)).or_broken("there is a sum for each shard");
        if let Some((old, hash)) = old.zip(hashes.old) {
            *sum -= ShardSum::of(path, old, hash);
        }
        if let Some((new, hash)) = new.zip(hashes.new) {
            *sum += ShardSum::of(path, new, hash);
        }
    }

    /// Joins with sums over other entries.
    pub(crate) fn merge(&mut self, other: &Self) {
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
    use crate::model::ids::{Event, Incarnation, NodeId, NodeIndex, NodeName, Tick, Tock};
    use crate::tree::content_sums::ContentSums;

    fn entry(tick: u64, value: Option<&[u8]>) -> Entry {
        let event = Event { node: NodeIndex(0), tick: Tick::new(tick).unwrap() };
        let (chain, tock) = (Chain::first(event), Tock::new(tick).unwrap());
        Entry::new(&EntryParts { value, chain: &chain, tock, origin: None, time: None, extra: &[] })
    }

    #[test]
    fn parts_of_a_sum_can_be_joined_whichever_comes_first() {
        let mut table = NodeTable::new();
        let name = NodeName::new("a").unwrap();
        table.intern(&NodeId { name, incarnation: Incarnation(1) }).unwrap();
        let path: Path = "k".parse().unwrap();
        let mut contents = ContentSums::default();
        let mut replace = |sums: &mut ShardSums, old: Option<&Entry>, new: Option<&Entry>| {
            let hashes = contents.replace(&table, &path, old, new);
            sums.replace(&path, old, new, hashes);
        };
        let (old, new) = (entry(1, None), entry(2, Some(&[1])));
        let (mut before, mut since) = (ShardSums::default(), ShardSums::default());
        let mut only_new = ShardSums::default();
        replace(&mut since, Some(&old), Some(&new));
        replace(&mut before, None, Some(&old));
        replace(&mut only_new, None, Some(&new));
        since.merge(&before);
        assert_eq!(since.as_slice(), only_new.as_slice());
        assert_ne!(since.as_slice(), before.as_slice());
        replace(&mut since, Some(&new), None);
        assert!(since.as_slice().iter().all(|sum| *sum == ShardSum::default()));
    }
}

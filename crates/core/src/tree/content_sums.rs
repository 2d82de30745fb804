//! Hashes over the contents of entries, and sums of them that are kept up to date with every change
//! (replication rule 10). Two nodes that have accounted for the same events at the same mark hold
//! the same entries, unless one event has two contents; comparing their sums shows that.
//!
//! A sum is kept per *bucket*, by the hash of the path, so that a difference is narrowed down to a
//! thousandth of the entries with one message. The sums are commutative: whatever changes an entry
//! subtracts the old version's hash and adds the new one's.

use xxhash_rust::xxh3::xxh3_64;

use super::Tree;
use crate::model::entry::Entry;
use crate::model::ids::{Event, NodeIndex, NodeTable};
use crate::model::invariant::OrBroken;
use crate::model::path::Path;
use crate::model::seen_sum::share_key;

/// Buckets of a node's contents: 8 KiB. With a million entries, a bucket holds a thousand.
pub(crate) const BUCKET_COUNT: usize = 1_024;

/// Each known incarnation's part of a hash, by its index; the same on every node, whatever the
/// index there.
#[derive(Clone, Default)]
pub(crate) struct IncarnationKeys {
    /// Filled as incarnations are met.
    keys: Vec<u64>,
}

impl IncarnationKeys {
    fn key(&mut self, table: &NodeTable, node: NodeIndex) -> u64 {
        match self.keys.get(node.as_usize()) {
            Some(key) => *key,
            None => self.learn(table, node),
        }
    }

    /// The table only grows, and an index stands for the same incarnation for good.
    #[cold]
    fn learn(&mut self, table: &NodeTable, node: NodeIndex) -> u64 {
        let unknown = table.iter().skip(self.keys.len());
        self.keys.extend(unknown.map(|(_, id)| share_key(id)));
        let key = self.keys.get(node.as_usize());
        *key.or_broken("the events of a tree are of incarnations in its node table")
    }

    /// The hash of one version: of its path, whole chain, tock and origin, and of its value and all
    /// other fields of its record. It is the same on every node that holds the same version. The
    /// hashes of two different versions are equal with a probability of 2^-64: good enough against
    /// chance, and nobody gains by forging one.
    ///
    /// Nodes compare sums of it, so it may not change. `path` is [`path_hash`].
    pub(crate) fn content_hash(&mut self, table: &NodeTable, path: u64, entry: &Entry) -> u64 {
        let mut event = |hash: u64, event: Event| {
            let key = self.key(table, event.node);
            mix(hash ^ key.wrapping_add(event.tick.get().wrapping_mul(TICK_FACTOR)))
        };
        let mut hash = mix(path ^ entry.tock().get().wrapping_mul(TOCK_FACTOR));
        hash = entry.events().fold(hash, &mut event);
        if let Some(origin) = entry.reissue_of() {
            hash = event(!hash, origin);
        }
        let value = entry.value();
        // So that nothing can pass from the value to what follows it, or to the chain.
        let kind = u64::from(value.is_some()) | u64::from(entry.is_chain_cut()) << 1;
        let shape = kind << 48 | (entry.events().len() as u64) << 40 | entry.value_len() as u64;
        mix(mix(hash ^ shape) ^ xxh3_64(entry.content_tail()))
    }
}

/// Odd numbers that keep small ticks and tocks from cancelling each other out.
const TICK_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const TOCK_FACTOR: u64 = 0xc2b2_ae3d_27d4_eb4f;

/// The hash of a path: XXH3 (64 bits, seed 0) of its canonical bytes.
#[must_use]
pub(crate) fn path_hash(path: &[u8]) -> u64 {
    xxh3_64(path)
}

/// The bucket of a path with that hash.
#[must_use]
pub(crate) fn bucket_of(path_hash: u64) -> u16 {
    (path_hash >> (64 - BUCKET_COUNT.trailing_zeros())) as u16
}

/// Spreads every bit over all of them (the finalizer of MurmurHash3).
fn mix(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// The hashes of the two versions of one change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplacedHashes {
    /// Of the path.
    pub(crate) path: u64,
    /// Of the old version.
    pub(crate) old: Option<u64>,
    /// Of the new version.
    pub(crate) new: Option<u64>,
}

/// The sums over a node's whole tree. Arithmetic is modulo 2^64.
#[derive(Clone)]
pub struct ContentSums {
    /// Invariant: [`BUCKET_COUNT`] of them; each is the sum of its entries' hashes.
    buckets: Box<[u64]>,
    /// Invariant: the sum of the buckets.
    total: u64,
    keys: IncarnationKeys,
}

impl Default for ContentSums {
    fn default() -> Self {
        let buckets = vec![0; BUCKET_COUNT].into();
        Self { buckets, total: 0, keys: IncarnationKeys::default() }
    }
}

impl ContentSums {
    /// Over all entries of a tree, whose events are in the table's indices. Walks it.
    #[must_use]
    pub fn of(tree: &Tree, table: &NodeTable) -> Self {
        let mut sums = Self::default();
        for (path, entry) in tree.all() {
            let _ = sums.replace(table, &path, None, Some(&entry));
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
    ) -> ReplacedHashes {
        let path = path_hash(path.as_bytes());
        let mut hash = |entry: &Entry| self.keys.content_hash(table, path, entry);
        let (old, new) = (old.map(&mut hash), new.map(&mut hash));
        let change = new.unwrap_or(0).wrapping_sub(old.unwrap_or(0));
        let sum = self.buckets.get_mut(usize::from(bucket_of(path)));
        let sum = sum.or_broken("there is a sum for each bucket");
        *sum = sum.wrapping_add(change);
        self.total = self.total.wrapping_add(change);
        ReplacedHashes { path, old, new }
    }

    /// The hash of one version at a path.
    pub(crate) fn hash_of(&mut self, table: &NodeTable, path: &[u8], entry: &Entry) -> u64 {
        self.keys.content_hash(table, path_hash(path), entry)
    }

    /// The sum over everything.
    #[must_use]
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// By bucket, from 0 on.
    #[must_use]
    pub(crate) fn buckets(&self) -> &[u64] {
        &self.buckets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::chain::Chain;
    use crate::model::change_time::ChangeTime;
    use crate::model::entry::EntryParts;
    use crate::model::ids::{Incarnation, NodeId, NodeName, Tick, Tock};

    fn table(names: &[(&str, u64)]) -> NodeTable {
        let mut table = NodeTable::new();
        for (name, life) in names {
            let id = NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(*life) };
            table.intern(&id).unwrap();
        }
        table
    }

    fn event(node: u32, tick: u64) -> Event {
        Event { node: NodeIndex(node), tick: Tick::new(tick).unwrap() }
    }

    struct Version<'a> {
        path: &'a str,
        events: &'a [(u32, u64)],
        cut: bool,
        tock: u64,
        value: Option<&'a [u8]>,
        origin: Option<(u32, u64)>,
        extra: &'a [u8],
    }

    const ONE: Version<'_> = Version {
        path: "k",
        events: &[(0, 5), (1, 2)],
        cut: false,
        tock: 7,
        value: Some(&[0x91, 1]),
        origin: None,
        extra: &[],
    };

    fn hash(table: &NodeTable, v: &Version<'_>) -> u64 {
        let events = v.events.iter().map(|(node, tick)| event(*node, *tick));
        let chain = Chain::from_events(events, v.cut).unwrap();
        let (tock, origin) = (Tock::new(v.tock).unwrap(), v.origin.map(|(n, t)| event(n, t)));
        let entry = Entry::new(&EntryParts {
            value: v.value,
            chain: &chain,
            tock,
            origin,
            time: None,
            extra: v.extra,
        });
        let path: Path = v.path.parse().unwrap();
        ContentSums::default().hash_of(table, path.as_bytes(), &entry)
    }

    #[test]
    fn a_hash_tells_every_part_of_a_version() {
        let table = table(&[("a", 1), ("b", 1), ("a", 2)]);
        let others = [
            Version { path: "l", ..ONE },
            Version { events: &[(0, 6), (1, 2)], ..ONE },
            Version { events: &[(2, 5), (1, 2)], ..ONE },
            Version { events: &[(0, 5), (1, 3)], ..ONE },
            Version { events: &[(0, 5)], ..ONE },
            Version { cut: true, ..ONE },
            Version { tock: 8, ..ONE },
            Version { value: Some(&[0x91, 2]), ..ONE },
            Version { value: Some(&[0x91]), extra: &[1], ..ONE },
            Version { value: None, ..ONE },
            Version { value: None, extra: &[0x91, 1], ..ONE },
            Version { origin: Some((0, 5)), ..ONE },
            Version { extra: &[1], ..ONE },
        ];
        let mut hashes: Vec<u64> = others.iter().map(|v| hash(&table, v)).collect();
        hashes.push(hash(&table, &ONE));
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), others.len() + 1);
    }

    #[test]
    fn a_hash_does_not_depend_on_the_time() {
        let table = table(&[("a", 1), ("b", 1)]);
        for (value, extra) in
            [(Some(&[0x91, 1][..]), &[1, 9, 0xc0][..]), (None, &[]), (Some(&[1]), &[])]
        {
            let chain = Chain::from_events([event(0, 5), event(1, 2)], true).unwrap();
            let (tock, origin) = (Tock::new(7).unwrap(), Some(event(1, 1)));
            let hash = |ms: Option<u64>| {
                let time = ms.and_then(ChangeTime::new);
                let parts = EntryParts { value, chain: &chain, tock, origin, time, extra };
                ContentSums::default().hash_of(&table, b"k", &Entry::new(&parts))
            };
            assert_eq!(hash(Some(1_795_000_000_123)), hash(None));
        }
    }

    #[test]
    fn a_hash_does_not_depend_on_the_order_in_which_a_node_came_to_know_others() {
        let here = hash(&table(&[("a", 1), ("b", 9)]), &ONE);
        let there = table(&[("b", 9), ("c", 3), ("a", 1)]);
        assert_eq!(hash(&there, &Version { events: &[(2, 5), (0, 2)], ..ONE }), here);
    }

    #[test]
    fn hashes_stay_what_they_are() {
        assert_eq!(hash(&table(&[("n1", 0x1234), ("n2", 7)]), &ONE), 16_556_510_680_957_649_230);
    }

    #[test]
    fn sums_go_back_to_nothing_with_the_last_entry() {
        let table = table(&[("a", 1), ("b", 1)]);
        let path: Path = "k".parse().unwrap();
        let chain = Chain::first(event(0, 5));
        let entry = Entry::new(&EntryParts {
            value: Some(&[1]),
            chain: &chain,
            tock: Tock::new(7).unwrap(),
            origin: None,
            time: None,
            extra: &[],
        });
        let mut sums = ContentSums::default();
        let put = sums.replace(&table, &path, None, Some(&entry));
        assert_eq!((put.new, put.old), (Some(sums.total()), None));
        assert_ne!(sums.total(), 0);
        let _ = sums.replace(&table, &path, Some(&entry), None);
        assert_eq!(sums.total(), 0);
        assert!(sums.buckets().iter().all(|sum| *sum == 0));
    }
}

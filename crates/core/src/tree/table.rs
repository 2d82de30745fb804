//! A hash table with O(1) snapshots: linear hashing (Litwin 1980) over a persistent vector
//! ([`super::directory`]) of small buckets.
//!
//! The table has any number of buckets, not only a power of two, and grows or shrinks by one bucket
//! at a time. So no insertion pays for all of them, buckets stay nearly as full as wished, and the
//! memory follows the number of entries down as well as up. A tree of hash nodes (as in `imbl`)
//! does not do that: it took 450 bytes per entry of which half were holes, and kept most of them
//! when entries were removed.

use triomphe::Arc;

use ahash::RandomState;
use smallvec::SmallVec;

use super::directory::Directory;
use crate::model::entry::Entry;
use crate::model::invariant::{OrBroken, costly_invariant, invariant};
use crate::model::path::Path;

/// Entries per bucket, on average, above which a bucket is added. Fewer cost memory, more cost time
/// to look through, and to copy when a snapshot shares them.
const GROW_ABOVE: usize = 14;
/// Entries per bucket, on average, below which one is taken away. Well below the other, so that
/// nothing is moved to and fro.
const SHRINK_BELOW: usize = 11;
/// Hashes that a bucket holds in place; a few in a hundred buckets have more.
const HASHES_IN_PLACE: usize = 20;

/// A bucket's slots grow and shrink by this number.
const SLOTS_STEP: usize = 4;

/// Most entries for which buckets are made beforehand: 300,000 buckets of 120 bytes.
const EXPECTED_MAX: usize = 1 << 22;

/// This many paths are looked up together: about as many loads as a processor has under way at
/// once.
const LOOKED_UP_AT_ONCE: usize = 16;

type Slot = (Path, Entry);

/// Where a path is in a table, or belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    hash: u32,
    /// Which of its bucket's slots, if it exists.
    at: Option<usize>,
    /// The table's arrangement when it was looked for.
    arrangement: u64,
}

/// What look-ups rely on.
const BUCKETS: &str = "each hash leads to a bucket";
const ALIKE: &str = "a bucket's hashes and slots are alike";

/// Entries whose hashes lead to the same bucket. `hashes` and `slots` have the same length and
/// order.
#[derive(Clone, Default)]
struct Bucket {
    hashes: SmallVec<[u32; HASHES_IN_PLACE]>,
    slots: Vec<Slot>,
}

impl Bucket {
    fn place(&self, hash: u32, path: &[u8]) -> Option<usize> {
        let mut from = 0;
        loop {
            let rest = self.hashes.get(from..)?;
            let at = from + rest.iter().position(|h| *h == hash)?;
            let (found, entry) = self.slots.get(at).or_broken(ALIKE);
            // It is nearly always the right one: path and entry come together.
            std::hint::black_box(entry.touch());
            if found.as_bytes() == path {
                return Some(at);
            }
            from = at + 1;
        }
    }

    fn push(&mut self, hash: u32, slot: Slot) {
        if self.slots.len() == self.slots.capacity() {
            // Doubling would leave holes in a million buckets; and few sizes, so that what one bucket
            // has left another can use.
            self.slots.reserve_exact(SLOTS_STEP);
        }
        self.hashes.push(hash);
        self.slots.push(slot);
    }

    fn swap_remove(&mut self, at: usize) -> Slot {
        self.hashes.swap_remove(at);
        let slot = self.slots.swap_remove(at);
        if self.slots.capacity() >= self.slots.len() + 2 * SLOTS_STEP {
            self.slots.shrink_to(self.slots.len().next_multiple_of(SLOTS_STEP));
        }
        slot
    }
}

/// Entries by path. A clone is a snapshot that shares everything until one of the two changes.
#[derive(Clone)]
pub(super) struct Table {
    hasher: RandomState,
    /// Never empty.
    buckets: Directory<Bucket>,
    len: usize,
    /// Rises whenever an entry comes or goes: while it is the same, every entry is where it was.
    arrangement: u64,
}

impl Table {
    pub(super) fn new(hasher: RandomState) -> Self {
        let buckets = std::iter::once(Bucket::default()).collect();
        Self { hasher, buckets, len: 0, arrangement: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn hasher(&self) -> RandomState {
        self.hasher.clone()
    }

    fn hash(&self, path: &[u8]) -> u32 {
        self.hasher.hash_one(path) as u32
    }

    /// The bucket that a hash leads to.
    #[inline]
    fn bucket(&self, hash: u32) -> &Bucket {
        self.buckets.get(bucket_of(hash, self.buckets.len())).or_broken(BUCKETS)
    }

    /// The entry at a path given as canonical bytes, with the path as it is stored.
    pub(super) fn get(&self, path: &[u8]) -> Option<(&Path, &Entry)> {
        let hash = self.hash(path);
        let bucket = self.bucket(hash);
        let (path, entry) = bucket.slots.get(bucket.place(hash, path)?).or_broken(ALIKE);
        Some((path, entry))
    }

    /// Where a path is, or belongs.
    pub(super) fn find(&self, path: &[u8]) -> Spot {
        let hash = self.hash(path);
        let at = self.bucket(hash).place(hash, path);
        Spot { hash, at, arrangement: self.arrangement }
    }

    /// The same, if it was found before and may still be true.
    pub(super) fn find_again(&self, path: &[u8], before: Option<Spot>) -> Spot {
        before
            .filter(|spot| {
                let at_path = || self.get_at(spot).is_some_and(|(p, _)| p.as_bytes() == path);
                spot.arrangement == self.arrangement && spot.at.is_some() && at_path()
            })
            .unwrap_or_else(|| self.find(path))
    }

    /// The entry at a spot that was found since the last change.
    pub(super) fn get_at(&self, spot: &Spot) -> Option<(&Path, &Entry)> {
        invariant!(
            spot.arrangement == self.arrangement,
            "nothing has moved since a path was looked for"
        );
        let (path, entry) = self.bucket(spot.hash).slots.get(spot.at?).or_broken(ALIKE);
        Some((path, entry))
    }

    /// Looks up many paths; reports each result with the path's position among them.
    ///
    /// Each look-up waits for memory four or five times, one after the other. Here each step is done for
    /// some paths before the next one, so that the processor waits for all of them at once.
    pub(super) fn get_many<'t, 'p>(
        &'t self,
        paths: impl Iterator<Item = &'p [u8]>,
        mut found: impl FnMut(usize, Spot, Option<&'t Entry>),
    ) {
        let mut all = paths.fuse();
        let mut first = 0;
        loop {
            let paths: SmallVec<[&[u8]; LOOKED_UP_AT_ONCE]> =
                all.by_ref().take(LOOKED_UP_AT_ONCE).collect();
            if paths.is_empty() {
                return;
            }
            let mut buckets: [Option<(u32, &'t Bucket)>; LOOKED_UP_AT_ONCE] = Default::default();
            for (bucket, path) in buckets.iter_mut().zip(&paths) {
                let hash = self.hash(path);
                *bucket = Some((hash, self.bucket(hash)));
            }
            let mut slots: [Option<(usize, &'t Slot)>; LOOKED_UP_AT_ONCE] = Default::default();
            for (slot, bucket) in slots.iter_mut().zip(&buckets) {
                let Some((hash, bucket)) = bucket else { continue };
                let at = bucket.hashes.iter().position(|h| h == hash);
                *slot = at.map(|at| (at, bucket.slots.get(at).or_broken(ALIKE)));
            }
            let mut keys: [&'t [u8]; LOOKED_UP_AT_ONCE] = Default::default();
            let mut touched = 0;
            for (key, slot) in keys.iter_mut().zip(&slots) {
                let Some((_, (path, entry))) = slot else { continue };
                *key = path.as_bytes();
                // Taking a reference counts it, and a counter is not changed before all earlier
                // loads are done: without this they would wait one after the other.
                touched ^= key.first().copied().unwrap_or_default() ^ entry.touch();
            }
            std::hint::black_box(touched);
            for (at, path) in paths.iter().enumerate() {
                let (slot, key, bucket) = (slots.get(at), keys.get(at), buckets.get(at));
                let (hash, bucket) = bucket.copied().flatten().or_broken(BUCKETS);
                let place = match slot.copied().flatten() {
                    None => None,
                    Some((place, _)) if key == Some(path) => Some(place),
                    // Another path has the same hash.
                    Some(_) => bucket.place(hash, path),
                };
                let entry = place.map(|place| &bucket.slots.get(place).or_broken(ALIKE).1);
                let spot = Spot { hash, at: place, arrangement: self.arrangement };
                found(first + at, spot, entry);
            }
            first += paths.len();
        }
    }

    /// Puts an entry at a path that was looked up since the last change; returns the old one.
    pub(super) fn put(&mut self, spot: &Spot, path: &Path, entry: Entry) -> Option<Entry> {
        invariant!(
            spot.arrangement == self.arrangement,
            "nothing has moved since a path was looked for"
        );
        costly_invariant!(
            self.hash(path.as_bytes()) == spot.hash,
            "an entry is put where its own path was looked for"
        );
        let bucket = self.buckets.get_mut(bucket_of(spot.hash, self.buckets.len()));
        let bucket = bucket.or_broken(BUCKETS);
        if let Some(at) = spot.at {
            let (there, slot) = bucket.slots.get_mut(at).or_broken(ALIKE);
            costly_invariant!(there == path, "an entry replaces one of the same path");
            return Some(std::mem::replace(slot, entry));
        }
        bucket.push(spot.hash, (path.clone(), entry));
        self.arrangement += 1;
        self.len += 1;
        if self.len > self.buckets.len() * GROW_ABOVE {
            self.grow();
        }
        None
    }

    /// Puts an entry at a path; returns the old one.
    #[cfg(test)]
    fn insert(&mut self, path: &Path, entry: Entry) -> Option<Entry> {
        let spot = self.find(path.as_bytes());
        self.put(&spot, path, entry)
    }

    /// Takes an entry out and returns it.
    pub(super) fn remove(&mut self, path: &[u8]) -> Option<Entry> {
        let hash = self.hash(path);
        let bucket = bucket_of(hash, self.buckets.len());
        // Nothing is copied for one that is not there.
        let at = self.bucket(hash).place(hash, path)?;
        let (_, entry) = self.buckets.get_mut(bucket).or_broken(BUCKETS).swap_remove(at);
        self.arrangement += 1;
        self.len -= 1;
        if self.buckets.len() > 1 && self.len < (self.buckets.len() - 1) * SHRINK_BELOW {
            self.shrink();
        }
        Some(entry)
    }

    /// Adds a bucket, and moves to it what belongs there now: all of it is in one other bucket.
    fn grow(&mut self) {
        let new = self.buckets.len();
        let mut added = Bucket::default();
        let source = self.buckets.get_mut(buddy(new)).or_broken(BUCKETS);
        let mut at = 0;
        while let Some(hash) = source.hashes.get(at).copied() {
            if bucket_of(hash, new + 1) == new {
                added.push(hash, source.swap_remove(at));
            } else {
                at += 1;
            }
        }
        self.buckets.push(added);
    }

    /// Removes the last bucket; its content returns to where it came from.
    fn shrink(&mut self) {
        let last = Arc::unwrap_or_clone(self.buckets.pop().or_broken(BUCKETS));
        let target = self.buckets.get_mut(buddy(self.buckets.len())).or_broken(BUCKETS);
        invariant!(last.hashes.len() == last.slots.len(), "a bucket's hashes and slots are alike");
        for (hash, slot) in last.hashes.into_iter().zip(last.slots) {
            target.push(hash, slot);
        }
    }

    /// Checks all of it, for tests and the simulator: every entry is found where its hash leads to.
    #[cfg(any(test, feature = "planted-defects"))]
    pub(super) fn check(&self) {
        let mut len = 0;
        for number in 0..self.buckets.len() {
            let bucket = self.buckets.get(number).or_broken(BUCKETS);
            invariant!(
                bucket.hashes.len() == bucket.slots.len(),
                "a bucket's hashes and slots are alike"
            );
            for (hash, (path, _)) in bucket.hashes.iter().zip(&bucket.slots) {
                invariant!(*hash == self.hash(path.as_bytes()), "a slot stands at its path's hash");
                let place = bucket_of(*hash, self.buckets.len());
                invariant!(place == number, "a slot is in the bucket that its hash leads to");
            }
            len += bucket.slots.len();
        }
        invariant!(len == self.len, "a table's length is that of its buckets together");
    }

    /// All entries, in the order of the buckets.
    pub(super) fn into_all(self) -> All {
        All { buckets: self.buckets, bucket: 0, slot: 0, current: None }
    }
}

/// A table that is filled at once: its buckets are made beforehand, nothing is moved, and nothing is
/// shared yet.
pub(super) struct Filling {
    hasher: RandomState,
    buckets: Vec<Bucket>,
    len: usize,
}

impl Filling {
    /// For about the given number of entries. An expectation above [`EXPECTED_MAX`] is cut to it.
    pub(super) fn new(hasher: RandomState, expected: usize) -> Self {
        let buckets = expected.min(EXPECTED_MAX).div_ceil(GROW_ABOVE).max(1);
        Self { hasher, buckets: vec![Bucket::default(); buckets], len: 0 }
    }

    /// Adds an entry; each path once.
    pub(super) fn push(&mut self, path: Path, entry: Entry) {
        let hash = self.hasher.hash_one(path.as_bytes()) as u32;
        let at = bucket_of(hash, self.buckets.len());
        let bucket = self.buckets.get_mut(at).or_broken(BUCKETS);
        if bucket.slots.capacity() == 0 {
            bucket.slots.reserve_exact(SHRINK_BELOW.next_multiple_of(SLOTS_STEP));
        }
        bucket.push(hash, (path, entry));
        self.len += 1;
    }

    /// The table, with as many buckets as it should have.
    pub(super) fn finish(self) -> Table {
        let buckets = self.buckets.into_iter().collect();
        let mut table = Table { hasher: self.hasher, buckets, len: self.len, arrangement: 0 };
        while table.len > table.buckets.len() * GROW_ABOVE {
            table.grow();
        }
        while table.buckets.len() > 1 && table.len < (table.buckets.len() - 1) * SHRINK_BELOW {
            table.shrink();
        }
        table
    }
}

/// The bucket that a hash leads to among the given number of buckets: its last bits, as many as
/// number them all, or one bit less if that bucket does not exist yet.
fn bucket_of(hash: u32, buckets: usize) -> usize {
    let mask = buckets.next_power_of_two() - 1;
    let at = hash as usize & mask;
    if at < buckets { at } else { at & (mask >> 1) }
}

/// Where the content of a bucket is while the bucket does not exist: the same number without its
/// highest bit.
fn buddy(bucket: usize) -> usize {
    bucket - (bucket.next_power_of_two() / if bucket.is_power_of_two() { 1 } else { 2 })
}

/// All entries of a snapshot.
pub(super) struct All {
    buckets: Directory<Bucket>,
    bucket: usize,
    slot: usize,
    current: Option<Arc<Bucket>>,
}

impl Iterator for All {
    type Item = Slot;

    fn next(&mut self) -> Option<Slot> {
        loop {
            if let Some(bucket) = &self.current {
                if let Some(slot) = bucket.slots.get(self.slot) {
                    self.slot += 1;
                    return Some(slot.clone());
                }
                self.bucket += 1;
                self.slot = 0;
            }
            self.current = Some(Arc::clone(self.buckets.get_shared(self.bucket)?));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::chain::Chain;
    use crate::model::entry::EntryParts;
    use crate::model::ids::{Event, NodeIndex, Tick, Tock};

    fn table() -> Table {
        Table::new(RandomState::with_seeds(1, 2, 3, 4))
    }

    fn path(number: u32) -> Path {
        format!("k{number}").parse().unwrap()
    }

    fn entry(tock: u64) -> Entry {
        let chain = Chain::first(Event { node: NodeIndex(0), tick: Tick::new(1).unwrap() });
        let tock = Tock::new(tock).unwrap();
        Entry::new(&EntryParts {
            value: None,
            chain: &chain,
            tock,
            origin: None,
            time: None,
            extra: &[],
        })
    }

    #[test]
    fn every_hash_leads_to_a_bucket_and_moves_only_to_the_added_one() {
        for buckets in 1..200_usize {
            assert!(buddy(buckets) < buckets);
            for hash in (0..100_000_u32).step_by(37) {
                let (before, after) = (bucket_of(hash, buckets), bucket_of(hash, buckets + 1));
                assert!(before < buckets && (after == before || after == buckets));
                assert!(after == before || before == buddy(buckets));
            }
        }
    }

    #[test]
    fn it_grows_and_shrinks_with_its_entries_and_finds_all_of_them() {
        let mut table = table();
        for number in 0..5_000 {
            assert_eq!(table.insert(&path(number), entry(1)), None);
        }
        assert_eq!(table.insert(&path(7), entry(2)), Some(entry(1)));
        assert_eq!((table.len(), table.buckets.len()), (5_000, 5_000_usize.div_ceil(GROW_ABOVE)));
        for number in 0..5_000 {
            let found = table.get(path(number).as_bytes()).unwrap();
            assert_eq!(found, (&path(number), &entry(if number == 7 { 2 } else { 1 })));
        }
        let snapshot = table.clone();
        for number in 0..4_990 {
            assert!(table.remove(path(number).as_bytes()).is_some());
            assert!(table.remove(path(number).as_bytes()).is_none());
        }
        assert_eq!((table.len(), table.buckets.len()), (10, 1));
        assert!(table.get(path(4_989).as_bytes()).is_none());
        assert!(table.get(path(4_990).as_bytes()).is_some());
        assert_eq!(table.into_all().count(), 10);
        let mut all: Vec<_> = snapshot.into_all().map(|(path, _)| path).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 5_000);
    }

    #[test]
    fn a_table_filled_at_once_is_like_one_that_grew_whatever_was_expected() {
        let mut grown = table();
        (0..3_000).for_each(|number| drop(grown.insert(&path(number), entry(1))));
        for expected in [0, 100, 3_000, 50_000] {
            let mut filling = Filling::new(RandomState::with_seeds(1, 2, 3, 4), expected);
            (0..3_000).for_each(|number| filling.push(path(number), entry(1)));
            let mut filled = filling.finish();
            let (len, buckets) = (filled.len(), filled.buckets.len());
            assert!(len <= buckets * GROW_ABOVE && len >= (buckets - 1) * SHRINK_BELOW);
            for number in 0..3_000 {
                assert_eq!(filled.remove(path(number).as_bytes()), Some(entry(1)), "{number}");
            }
            assert_eq!((filled.len(), filled.buckets.len()), (0, 1));
        }
        assert!(Filling::new(grown.hasher, usize::MAX).buckets.len() < EXPECTED_MAX);
    }

    #[test]
    fn many_are_looked_up_at_once_as_one_by_one() {
        let mut table = table();
        (0..3_000).step_by(2).for_each(|number| drop(table.insert(&path(number), entry(1))));
        let paths: Vec<Path> = (0..3_000).map(path).collect();
        for length in [0, 1, 15, 16, 17, 100, 3_000] {
            let wanted: Vec<&[u8]> = paths.iter().take(length).map(Path::as_bytes).collect();
            let mut found = vec![None; length];
            table.get_many(wanted.iter().copied(), |at, spot, entry| {
                let there = table.get_at(&spot).map(|(path, _)| path.as_bytes());
                assert_eq!(there, entry.map(|_| wanted[at]));
                assert_eq!(found[at].replace(entry.is_some()), None, "{at} was told twice");
            });
            let expected: Vec<_> = (0..length).map(|number| Some(number % 2 == 0)).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn many_that_share_a_hash_are_told_apart() {
        let mut table = table();
        let mut bucket = Bucket::default();
        (0..5).for_each(|number| {
            bucket.push(table.hash(path(0).as_bytes()), (path(number), entry(1)))
        });
        bucket.slots.swap(0, 4);
        table.buckets = std::iter::once(bucket).collect();
        table.get_many([path(0).as_bytes()].into_iter(), |_, _, entry| assert!(entry.is_some()));
    }

    #[test]
    fn hashes_that_are_alike_are_told_apart_by_their_paths() {
        let mut bucket = Bucket::default();
        for number in 0..40 {
            bucket.push(7, (path(number), entry(1)));
        }
        for number in 0..40 {
            assert_eq!(bucket.place(7, path(number).as_bytes()), Some(number as usize));
        }
        assert_eq!(bucket.place(7, path(40).as_bytes()), None);
        assert_eq!(bucket.place(8, path(1).as_bytes()), None);
    }

    #[test]
    fn memory_follows_the_entries_down() {
        let mut bucket = Bucket::default();
        for number in 0..100 {
            bucket.push(number, (path(number), entry(1)));
        }
        assert!(bucket.slots.capacity() < 100 + SLOTS_STEP);
        while !bucket.slots.is_empty() {
            bucket.swap_remove(0);
        }
        assert!(bucket.slots.capacity() < 2 * SLOTS_STEP);
    }
}

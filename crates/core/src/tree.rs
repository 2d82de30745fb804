//! The tree: all entries by path, with O(1) snapshots. Point reads go by hash; an ordered set
//! of the same paths serves listings and changes only when a path is created or purged, never
//! when it is overwritten. No map type leaves this file.

pub mod bulk;
pub(crate) mod content_sums;
mod directory;
#[cfg(test)]
mod map_tests;
pub mod shard_sums;
mod table;

use std::cmp::Ordering;
use std::ops::Bound;

use ahash::RandomState;
use equivalent::{Comparable, Equivalent};
use smallvec::SmallVec;

use crate::model::SHARED_BYTES_HEAD;
use crate::model::entry::Entry;
use crate::model::ids::Tock;
use crate::model::invariant::{OrBroken, Planted, invariant, is_planted};
use crate::model::path::bytes::has_array;
use crate::model::path::{Path, cmp_paths};
pub(crate) use table::Spot;
use table::Table;

/// Bytes that one entry costs beyond its own and its path's allocation: the slots in the hash
/// map and the ordered set, with their nodes' share, and what the allocator rounds up. Measured at
/// one million entries (`docs/memory.md`); used for the memory estimate only.
const SLOT_BYTES: usize = 66;
/// As above, for a tombstone's place in the index by tock.
const TOMBSTONE_BYTES: usize = 32;

/// Why a path of the order or of the index of tombstones is looked up without asking whether it is there.
const IN_TABLE: &str = "table and order hold the same paths";

/// A place in the order of paths.
#[derive(Clone, Debug)]
enum Place {
    /// At the path itself.
    At(Path),
    /// After the path, before anything below it.
    Behind(Path),
    /// After the path and everything below it.
    BehindSubtree(Path),
}

impl Equivalent<Path> for Place {
    fn equivalent(&self, path: &Path) -> bool {
        matches!(self, Self::At(p) if p == path)
    }
}

impl Comparable<Path> for Place {
    fn compare(&self, path: &Path) -> Ordering {
        let (own, behind) = match self {
            Self::At(p) => return cmp_paths(p.as_bytes(), path.as_bytes()),
            Self::Behind(p) => (p, p == path),
            Self::BehindSubtree(p) => (p, path.starts_with(p)),
        };
        if behind { Ordering::Greater } else { cmp_paths(own.as_bytes(), path.as_bytes()) }
    }
}

/// All entries by path. A clone is a snapshot: O(1), consistent, and unaffected by later changes to
/// the original. Dropping a big snapshot that outlived many changes takes time; do that where no
/// task waits for it.
#[derive(Clone)]
pub struct Tree {
    entries: Table,
    order: im::OrdSet<Path>,
    /// The tombstones by tock, so that agreeing on a purge and carrying it out cost what there
    /// is to purge. Changes only when an entry becomes a tombstone or ceases to be one.
    tombstones: im::OrdSet<(Tock, Path)>,
    /// Entries that are not tombstones.
    live: usize,
    /// Estimated memory in bytes.
    memory: usize,
    /// Rises with every change.
    version: u64,
    /// Bytes of all versions that were replaced or taken out so far.
    replaced: u64,
    /// Whether there is, or was, a path with an array in it.
    has_array_paths: bool,
}

/// What the tree's sums and indices take of an entry.
struct Noted {
    bytes: usize,
    /// The tock of a tombstone.
    deleted_at: Option<Tock>,
}

impl Noted {
    fn of(entry: &Entry) -> Self {
        let deleted_at = entry.is_tombstone().then(|| entry.tock());
        Self { bytes: entry.memory_bytes(), deleted_at }
    }
}

impl Tree {
    /// An empty tree. The seed makes its hashes hard to guess for clients; it comes from
    /// outside, so that runs can be repeated.
    #[must_use]
    pub fn new(hash_seed: u64) -> Self {
        Self {
            entries: Table::new(hasher(hash_seed)),
            order: im::OrdSet::new(),
            tombstones: im::OrdSet::new(),
            live: 0,
            memory: 0,
            version: 0,
            replaced: 0,
            has_array_paths: false,
        }
    }

    /// The entry at a path given as canonical bytes; tombstones included.
    #[must_use]
    pub fn get(&self, path: &[u8]) -> Option<&Entry> {
        self.entries.get(path).map(|(_, entry)| entry)
    }

    /// The entries at many paths, faster than one by one: tells of each in order.
    pub fn get_many<'t, 'p>(
        &'t self,
        paths: impl Iterator<Item = &'p [u8]>,
        mut found: impl FnMut(Option<&'t Entry>),
    ) {
        self.entries.get_many(paths, |_, _, entry| found(entry));
    }

    /// Where many paths are, faster than one by one: tells of each in order.
    pub(crate) fn find_many<'p>(
        &self,
        paths: impl Iterator<Item = &'p [u8]>,
        mut found: impl FnMut(Spot),
    ) {
        self.entries.get_many(paths, |_, spot, _| found(spot));
    }

    /// Where a path is, or belongs, for [`Tree::put`]. `before`: where it was, if that is known: it
    /// saves the look-up unless an entry came or went since.
    #[must_use]
    pub(crate) fn find(&self, path: &[u8], before: Option<Spot>) -> Spot {
        self.entries.find_again(path, before)
    }

    /// The entry at a path that was looked up since the last change, with the path as it is stored.
    #[must_use]
    pub(crate) fn get_at(&self, spot: &Spot) -> Option<(&Path, &Entry)> {
        self.entries.get_at(spot)
    }

    /// [`Tree::get`], with the path as it is stored.
    #[must_use]
    pub(crate) fn get_with_path(&self, path: &[u8]) -> Option<(&Path, &Entry)> {
        self.entries.get(path)
    }

    /// Entries, tombstones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry, not even a tombstone.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.len() == 0
    }

    /// Entries with a value.
    #[must_use]
    pub fn live_len(&self) -> usize {
        self.live
    }

    /// Estimated memory of all entries, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.memory
    }

    /// Rises with every change: while it is the same, so is everything in this tree and its
    /// clones. It says nothing of other trees.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Bytes of all versions that were replaced or taken out of this tree so far: older snapshots may
    /// hold them still.
    #[must_use]
    pub fn replaced_bytes(&self) -> u64 {
        self.replaced
    }

    /// Whether a path in this tree has an array as an element, or one had that left it since. Peers
    /// of an older version cannot read such paths.
    #[must_use]
    pub fn has_array_paths(&self) -> bool {
        self.has_array_paths
    }

    /// Puts an entry at a path; returns the old one.
    pub fn insert(&mut self, path: &Path, entry: Entry) -> Option<Entry> {
        let spot = self.entries.find(path.as_bytes());
        self.put(&spot, path, entry)
    }

    /// The same at a path that was looked for since the last change.
    pub(crate) fn put(&mut self, spot: &Spot, path: &Path, entry: Entry) -> Option<Entry> {
        self.version += 1;
        let new = Noted::of(&entry);
        let old = self.entries.put(spot, path, entry);
        match &old {
            // In this order: two tombstones of the same tock have the same place in the index.
            Some(old) => self.note_gone(path, Noted::of(old)),
            None => {
                self.memory += Self::path_cost(path);
                self.has_array_paths = self.has_array_paths || has_array(path.as_bytes());
                let is_forgotten = is_planted(Planted::Order) && path.to_string() == "planted";
                let before = if is_forgotten { None } else { self.order.insert(path.clone()) };
                invariant!(before.is_none(), "a path that is new in the table is new in the order");
            }
        }
        self.note_new(path, new);
        self.check_sizes();
        old
    }

    /// Takes an entry out (a purge) and returns it.
    pub fn remove(&mut self, path: &Path) -> Option<Entry> {
        let old = self.entries.remove(path.as_bytes())?;
        self.version += 1;
        let before = self.order.remove(path);
        invariant!(before.is_some(), "a path in the table is in the order");
        self.note_gone(path, Noted::of(&old));
        self.release(Self::path_cost(path));
        self.check_sizes();
        Some(old)
    }

    fn note_new(&mut self, path: &Path, new: Noted) {
        self.memory += new.bytes;
        if let Some(tock) = new.deleted_at {
            self.memory += TOMBSTONE_BYTES;
            let before = self.tombstones.insert((tock, path.clone()));
            invariant!(
                before.is_none(),
                "a tombstone that is new is not in the index of tombstones"
            );
        } else {
            self.live += 1;
        }
    }

    /// What two of its parts say of one thing must agree after every change.
    fn check_sizes(&self) {
        let len = self.entries.len();
        invariant!(len == self.order.len(), "table and order hold the same paths");
        invariant!(
            len == self.live + self.tombstones.len(),
            "an entry is live, or in the index of tombstones"
        );
    }

    fn release(&mut self, bytes: usize) {
        let memory = self.memory.checked_sub(bytes);
        self.memory = memory.or_broken("an entry's memory was counted when it came");
    }

    /// Checks all of it, for tests and the simulator: table, order, index of tombstones and sums
    /// say the same. Walks everything.
    #[cfg(any(test, feature = "planted-defects"))]
    pub fn check(&self) {
        self.entries.check();
        self.check_sizes();
        let (mut live, mut memory) = (0, 0);
        for path in &self.order {
            let (stored, entry) = self.entries.get(path.as_bytes()).or_broken(IN_TABLE);
            invariant!(stored == path, "table and order hold the same paths");
            memory += Self::cost(path, entry);
            if entry.is_tombstone() {
                let place = (entry.tock(), path.clone());
                let is_noted = self.tombstones.contains(&place);
                invariant!(is_noted, "a tombstone is in the index of tombstones, by its tock");
            } else {
                live += 1;
            }
        }
        invariant!(live == self.live, "the live entries are counted");
        invariant!(memory == self.memory, "a tree's memory is that of its entries");
    }

    fn note_gone(&mut self, path: &Path, old: Noted) {
        self.release(old.bytes);
        self.replaced += old.bytes as u64;
        if let Some(tock) = old.deleted_at {
            self.release(TOMBSTONE_BYTES);
            let before = self.tombstones.remove(&(tock, path.clone()));
            invariant!(before.is_some(), "a tombstone is in the index of tombstones, by its tock");
        } else {
            self.live = self.live.checked_sub(1).or_broken("the live entries are counted");
        }
    }

    /// Entries without a value.
    #[must_use]
    pub fn tombstone_len(&self) -> usize {
        self.entries.len() - self.live
    }

    /// The tombstones whose tock is at most `to`, by tock.
    pub(crate) fn tombstones_up_to(&self, to: Tock) -> impl Iterator<Item = (&Path, &Entry)> {
        self.tombstones
            .iter()
            .take_while(move |(tock, _)| *tock <= to)
            .map(|(_, path)| self.entries.get(path.as_bytes()).or_broken(IN_TABLE))
    }

    /// What one entry adds to [`Tree::memory_bytes`].
    #[must_use]
    pub(crate) fn cost(path: &Path, entry: &Entry) -> usize {
        let index = if entry.is_tombstone() { TOMBSTONE_BYTES } else { 0 };
        Self::path_cost(path) + entry.memory_bytes() + index
    }

    fn path_cost(path: &Path) -> usize {
        path.as_bytes().len() + SHARED_BYTES_HEAD + SLOT_BYTES
    }

    /// Walks a subtree in order, its own path first; tombstones included.
    pub fn subtree<'a>(
        &'a self,
        top: &Path,
    ) -> impl Iterator<Item = (&'a Path, &'a Entry)> + use<'a> {
        let top = top.clone();
        self.range(Place::At(top.clone())).take_while(move |(path, _)| path.starts_with(&top))
    }

    fn range(&self, from: Place) -> impl Iterator<Item = (&Path, &Entry)> {
        self.order
            .range((Bound::Included(from), Bound::Unbounded))
            .map(|path| self.entries.get(path.as_bytes()).or_broken(IN_TABLE))
    }

    /// A walk over a snapshot of a subtree, in order, that can be interrupted.
    #[must_use]
    pub fn walk(&self, top: &Path) -> Walk {
        Walk { tree: self.clone(), top: top.clone(), next: Some(Place::At(top.clone())) }
    }

    /// How its paths are hashed: seeded, and so of use for other tables that a client can fill.
    #[must_use]
    pub fn hasher(&self) -> RandomState {
        self.entries.hasher()
    }

    /// All entries of a snapshot, in no useful order (but in the same order for the same seed
    /// and history); the quickest way through everything.
    #[must_use]
    pub fn all(&self) -> AllEntries {
        AllEntries(self.entries.clone().into_all())
    }
}

fn hasher(hash_seed: u64) -> RandomState {
    RandomState::with_seeds(
        hash_seed,
        hash_seed.rotate_left(17) ^ 0x9e37_79b9_7f4a_7c15,
        hash_seed.rotate_left(31) ^ 0xd1b5_4a32_d192_ed03,
        hash_seed.rotate_left(47) ^ 0x94d0_49bb_1331_11eb,
    )
}

/// All entries of a snapshot; see [`Tree::all`].
pub struct AllEntries(table::All);

impl Iterator for AllEntries {
    type Item = (Path, Entry);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

/// An ordered walk over a snapshot of a subtree that can be interrupted and resumed, so that a
/// slow client costs no more than a place in the tree.
pub struct Walk {
    tree: Tree,
    top: Path,
    /// Where to go on; none at the end.
    next: Option<Place>,
}

impl Walk {
    /// The next entries in order, at most `max`; tombstones included. Empty at the end only
    /// (or if `max` is 0). Finding the place again costs O(log n) per call, not per entry.
    pub fn next_batch(&mut self, max: usize) -> Vec<(Path, Entry)> {
        let Some(from) = self.next.clone() else { return Vec::new() };
        let tree = &self.tree;
        let paths: SmallVec<[&Path; 64]> = tree
            .order
            .range((Bound::Included(from), Bound::Unbounded))
            .take_while(|path| path.starts_with(&self.top))
            .take(max)
            .collect();
        let mut batch: Vec<(Path, Entry)> = Vec::with_capacity(paths.len());
        tree.entries.get_many(paths.iter().map(|path| path.as_bytes()), |at, _, entry| {
            let (path, entry) = paths.get(at).zip(entry).or_broken(IN_TABLE);
            batch.push((Path::clone(path), entry.clone()));
        });
        self.next = match batch.last() {
            Some((path, _)) => Some(Place::Behind(path.clone())),
            None if max == 0 => self.next.take(),
            None => None,
        };
        batch
    }

    /// Continues after everything below a path: how children are listed without visiting their
    /// descendants.
    pub fn skip_subtree(&mut self, path: &Path) {
        self.next = Some(Place::BehindSubtree(path.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::chain::Chain;
    use crate::model::entry::EntryParts;
    use crate::model::ids::{Event, NodeIndex, Tick, Tock};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn entry(value: Option<u8>) -> Entry {
        let chain = Chain::first(Event { node: NodeIndex(0), tick: Tick::new(1).unwrap() });
        let bytes = value.map(|v| [v & 0x7f]);
        Entry::new(&EntryParts {
            value: bytes.as_ref().map(|b| &b[..]),
            chain: &chain,
            tock: Tock::new(1).unwrap(),
            origin: None,
            time: None,
            extra: &[],
        })
    }

    fn path(text: &str) -> Path {
        text.parse().unwrap()
    }

    #[test]
    fn look_ups_by_bytes_and_by_path_agree() {
        let mut tree = Tree::new(1);
        for i in 0..100 {
            tree.insert(&path(&format!("a.b{i}")), entry(Some(i)));
        }
        for i in 0..100 {
            let p = path(&format!("a.b{i}"));
            assert_eq!(tree.get(p.as_bytes()), Some(&entry(Some(i))));
        }
        assert_eq!(tree.get(path("a").as_bytes()), None);
    }

    #[test]
    fn a_snapshot_does_not_see_later_changes() {
        let mut tree = Tree::new(1);
        tree.insert(&path("a"), entry(Some(1)));
        let snapshot = tree.clone();
        tree.insert(&path("a"), entry(Some(2)));
        tree.insert(&path("b"), entry(None));
        assert_eq!((snapshot.len(), snapshot.live_len()), (1, 1));
        assert_eq!((tree.len(), tree.live_len()), (2, 1));
        assert_eq!(snapshot.get(path("a").as_bytes()), Some(&entry(Some(1))));
    }

    #[test]
    fn a_walk_goes_on_where_it_stopped_and_can_skip_subtrees() {
        let mut tree = Tree::new(1);
        for p in ["x", "x.a", "x.a.b", "x.a.c", "x.d", "y"] {
            tree.insert(&path(p), entry(Some(0)));
        }
        let mut walk = tree.walk(&path("x"));
        let mut all = Vec::new();
        loop {
            let batch = walk.next_batch(2);
            if batch.is_empty() {
                break;
            }
            all.extend(batch.into_iter().map(|(p, _)| p.to_string()));
        }
        assert_eq!(all, ["x", "x.a", "x.a.b", "x.a.c", "x.d"]);
        let mut walk = tree.walk(&path("x"));
        walk.skip_subtree(&path("x.a"));
        assert_eq!(walk.next_batch(9), [(path("x.d"), entry(Some(0)))]);
    }

    #[test]
    fn a_tombstone_in_the_place_of_another_is_found_by_its_tock() {
        let mut tree = Tree::new(1);
        for _ in 0..2 {
            tree.insert(&path("a"), entry(None));
            assert_eq!(tree.tombstones_up_to(Tock::new(1).unwrap()).count(), 1);
        }
        tree.insert(&path("a"), entry(Some(1)));
        assert_eq!(tree.tombstones_up_to(Tock::new(1).unwrap()).count(), 0);
    }

    #[test]
    fn memory_returns_to_zero_when_everything_is_purged() {
        let mut tree = Tree::new(1);
        for i in 0..50u8 {
            tree.insert(&path(&format!("k{i}")), entry(Some(i)));
            tree.insert(&path(&format!("k{i}")), entry(None));
        }
        assert!(tree.memory_bytes() > 0);
        for i in 0..50u8 {
            assert!(tree.remove(&path(&format!("k{i}"))).is_some());
        }
        assert_eq!((tree.memory_bytes(), tree.len(), tree.live_len()), (0, 0, 0));
    }

    proptest! {
        #[test]
        fn a_tree_behaves_like_an_ordered_map(
            ops in proptest::collection::vec(
                ("[ab]{0,2}(\\.[ab]{1,2}){0,2}", proptest::option::of(0u8..100), any::<bool>()),
                0..60),
        ) {
            let mut tree = Tree::new(7);
            let mut model: BTreeMap<Path, Entry> = BTreeMap::new();
            for (text, value, remove) in ops {
                let text = if text.is_empty() { ":".into() } else { text };
                let Ok(p) = text.parse::<Path>() else { continue };
                if remove {
                    prop_assert_eq!(tree.remove(&p), model.remove(&p));
                } else {
                    prop_assert_eq!(tree.insert(&p, entry(value)), model.insert(p, entry(value)));
                }
            }
            let all: Vec<_> =
                tree.subtree(&Path::root()).map(|(p, e)| (p.clone(), e.clone())).collect();
            prop_assert_eq!(&all, &model.into_iter().collect::<Vec<_>>());
            let mut unordered: Vec<_> = tree.all().collect();
            unordered.sort_by(|a, b| a.0.cmp(&b.0));
            prop_assert_eq!(&unordered, &all);
            let live = all.iter().filter(|(_, e)| !e.is_tombstone()).count();
            prop_assert_eq!(tree.live_len(), live);
            let tombstones = tree.tombstones_up_to(Tock::new(1).unwrap()).count();
            prop_assert_eq!(tombstones, all.len() - live);
        }
    }
}

//! Which client watches what: finds the watchers of a changed path in time that depends on the
//! path's depth, not on the number of watchers.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use ahash::RandomState;
use smallvec::SmallVec;

use crate::model::invariant::{OrBroken, invariant};
use crate::model::path::Path;

/// Most watches of one node, all clients together. Each costs a place here and a bounded queue
/// at its connection.
pub const WATCHES_MAX: usize = 1 << 16;

/// Names one watch of one node; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WatchId(pub u64);

/// The changes that a watch asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchScope {
    /// The top of the watched subtree.
    pub top: Path,
    /// Fewest elements below the top, 0 for the top itself.
    pub depth_min: usize,
    /// Most elements below the top; none for no limit.
    pub depth_max: Option<usize>,
}

impl WatchScope {
    /// Whether a path at this depth below the top is wanted.
    #[must_use]
    pub fn wants_depth(&self, depth: usize) -> bool {
        depth >= self.depth_min && self.depth_max.is_none_or(|max| depth <= max)
    }

    /// Whether a path is in scope. The system's own tree is not part of a watch of the root.
    #[must_use]
    pub fn wants(&self, path: &Path) -> bool {
        path.starts_with(&self.top)
            && path.is_system() == self.top.is_system()
            && self.wants_depth(path.len() - self.top.len())
    }
}

/// The watches that ask for a path. Cheap to make, to clone and to compare with those of another path, however many they are:
/// all watches of one path that want the same depths share one list, until one of them begins or ends.
#[derive(Clone, Debug, Default)]
pub struct Watchers {
    /// None is empty; each is rising; no watch is in two.
    lists: SmallVec<[Arc<[WatchId]>; 1]>,
}

impl Watchers {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lists.iter().map(|list| list.len()).sum()
    }

    /// Whether a watch is one of them.
    #[must_use]
    pub fn contains(&self, id: WatchId) -> bool {
        self.lists.iter().any(|list| list.binary_search(&id).is_ok())
    }

    /// All of them, in no order across lists.
    pub fn iter(&self) -> impl Iterator<Item = WatchId> + '_ {
        self.lists.iter().flat_map(|list| list.iter().copied())
    }

    /// All of them, oldest first.
    #[must_use]
    pub fn oldest_first(&self) -> Cow<'_, [WatchId]> {
        match self.lists.as_slice() {
            [list] => Cow::Borrowed(list),
            _ => {
                let mut all: Vec<WatchId> = self.iter().collect();
                all.sort_unstable();
                Cow::Owned(all)
            }
        }
    }

    /// Whether both are the same lists: at once where they are shared.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let mut pairs = self.lists.iter().zip(&other.lists);
        self.lists.len() == other.lists.len() && pairs.all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
    }
}

impl From<Vec<WatchId>> for Watchers {
    fn from(mut ids: Vec<WatchId>) -> Self {
        ids.sort_unstable();
        let list = (!ids.is_empty()).then(|| Arc::from(ids));
        Self { lists: list.into_iter().collect() }
    }
}

/// What ending a watch relies on.
const BY_TOP: &str = "a watch is also found by the path that it watches";

/// All watches, by the path that they watch.
pub struct Watches {
    /// By the watched path's canonical bytes, so that prefixes of a path are looked up without
    /// an allocation.
    by_top: HashMap<Box<[u8]>, Vec<Alike>, RandomState>,
    scopes: HashMap<WatchId, WatchScope, RandomState>,
    next: u64,
}

/// Watches of one path that want the same depths: whether a change is for them is asked once.
struct Alike {
    scope: WatchScope,
    /// A client may have tens of thousands here that all end when it goes, one after the other.
    ids: BTreeSet<WatchId>,
    /// The same as a list, from the first change after one of them has begun or ended.
    list: OnceLock<Arc<[WatchId]>>,
}

impl Alike {
    fn list(&self) -> &Arc<[WatchId]> {
        self.list.get_or_init(|| self.ids.iter().copied().collect())
    }
}

impl Watches {
    /// No watches. The seed keeps clients from choosing paths whose hashes collide.
    #[must_use]
    pub(crate) fn new(hash_seed: u64) -> Self {
        let hasher = RandomState::with_seeds(hash_seed, 1, 2, 3);
        Self {
            by_top: HashMap::with_hasher(hasher.clone()),
            scopes: HashMap::with_hasher(hasher),
            next: 1,
        }
    }

    /// How many there are.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.scopes.len()
    }

    /// Whether there is none.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.scopes.is_empty()
    }

    /// Adds a watch; `None`, and no change, when there are [`WATCHES_MAX`] already.
    pub(crate) fn add(&mut self, scope: WatchScope) -> Option<WatchId> {
        if self.scopes.len() >= WATCHES_MAX {
            return None;
        }
        let id = WatchId(self.next);
        self.next += 1;
        let at_top = self.by_top.entry(scope.top.as_bytes().into()).or_default();
        match at_top.iter_mut().find(|alike| alike.scope == scope) {
            Some(alike) => {
                alike.ids.insert(id);
                alike.list.take();
            }
            None => {
                let (scope, ids) = (scope.clone(), BTreeSet::from([id]));
                at_top.push(Alike { scope, ids, list: OnceLock::new() });
            }
        }
        self.scopes.insert(id, scope);
        Some(id)
    }

    /// Ends a watch; returns whether it existed.
    pub(crate) fn remove(&mut self, id: WatchId) -> bool {
        let Some(scope) = self.scopes.remove(&id) else { return false };
        let at_top = self.by_top.get_mut(scope.top.as_bytes()).or_broken(BY_TOP);
        let at = at_top.iter().position(|alike| alike.scope == scope).or_broken(BY_TOP);
        let alike = at_top.get_mut(at).or_broken(BY_TOP);
        let was_there = alike.ids.remove(&id);
        alike.list.take();
        invariant!(was_there, "a watch is also found by the path that it watches");
        if alike.ids.is_empty() {
            at_top.swap_remove(at);
        }
        if at_top.is_empty() {
            self.by_top.remove(scope.top.as_bytes());
        }
        true
    }

    /// The watches that ask for a change at a path.
    #[must_use]
    pub fn of(&self, path: &Path) -> Watchers {
        let mut found = Watchers::default();
        if self.by_top.is_empty() {
            return found;
        }
        for end in std::iter::once(0).chain(path.element_ends()) {
            let top = path.as_bytes().get(..end).or_broken("an element ends within its path");
            for alike in self.by_top.get(top).into_iter().flatten() {
                if alike.scope.wants(path) {
                    found.lists.push(Arc::clone(alike.list()));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use crate::replica::watch::*;

    fn scope(top: &str, min: usize, max: Option<usize>) -> WatchScope {
        WatchScope { top: top.parse().unwrap(), depth_min: min, depth_max: max }
    }

    fn path(text: &str) -> Path {
        text.parse().unwrap()
    }

    #[test]
    fn a_watch_hears_of_its_subtree_within_its_depths() {
        let mut watches = Watches::new(1);
        let all = watches.add(scope(":", 0, None)).unwrap();
        let a = watches.add(scope("a", 0, None)).unwrap();
        let children = watches.add(scope("a", 1, Some(1))).unwrap();
        assert_eq!(*watches.of(&path("a")).oldest_first(), [all, a]);
        assert_eq!(*watches.of(&path("a.b")).oldest_first(), [all, a, children]);
        assert_eq!(*watches.of(&path("a.b.c")).oldest_first(), [all, a]);
        assert_eq!(*watches.of(&path("ab")).oldest_first(), [all]);
        assert!(watches.remove(a) && !watches.remove(a));
        assert_eq!(*watches.of(&path("a")).oldest_first(), [all]);
    }

    #[test]
    fn the_root_watch_does_not_hear_of_the_system_tree() {
        let mut watches = Watches::new(1);
        let root = watches.add(scope(":", 0, None)).unwrap();
        let system = watches.add(scope(":n", 0, None)).unwrap();
        assert_eq!(*watches.of(&path(":n.type")).oldest_first(), [system]);
        assert_eq!(*watches.of(&path("type")).oldest_first(), [root]);
    }

    #[test]
    fn watches_are_told_in_the_order_in_which_they_began_wherever_they_are() {
        let mut watches = Watches::new(1);
        let ids = ["a", "a.b", ":", "a"].map(|top| watches.add(scope(top, 0, None)).unwrap());
        assert_eq!(*watches.of(&path("a.b")).oldest_first(), ids);
    }

    #[test]
    fn watches_of_the_same_end_one_by_one_and_leave_nothing() {
        let mut watches = Watches::new(1);
        let all: Vec<_> = (0..3).map(|_| watches.add(scope("a", 0, None)).unwrap()).collect();
        let other = watches.add(scope("a", 1, None)).unwrap();
        for (at, id) in [(1, all[1]), (2, all[2]), (0, all[0])] {
            assert!(watches.remove(id), "{at}");
            assert!(!watches.of(&path("a")).contains(id));
        }
        assert_eq!(watches.by_top.values().map(Vec::len).sum::<usize>(), 1);
        assert!(watches.remove(other));
        assert!(watches.is_empty() && watches.by_top.is_empty());
    }

    #[test]
    fn changes_for_the_same_watches_share_one_list_until_a_watch_begins_or_ends() {
        let mut watches = Watches::new(1);
        let ids: Vec<_> = (0..3).map(|_| watches.add(scope(":", 0, None)).unwrap()).collect();
        let other = watches.add(scope("a", 0, None)).unwrap();
        let of = |watches: &Watches, at: &str| watches.of(&path(at));
        let before = of(&watches, "b");
        assert!(before.is_same(&of(&watches, "c.d")) && !before.is_same(&of(&watches, "a")));
        assert!(of(&watches, "a").is_same(&of(&watches, "a.b")));
        assert_eq!((before.len(), of(&watches, "a").len()), (3, 4));
        assert!(of(&watches, "a").contains(other) && !before.contains(other));
        let new = watches.add(scope(":", 0, None)).unwrap();
        assert_eq!(*of(&watches, "b").oldest_first(), [ids[0], ids[1], ids[2], new]);
        assert!(watches.remove(ids[1]));
        assert_eq!(*of(&watches, "a").oldest_first(), [ids[0], ids[2], other, new]);
        assert_eq!(*before.oldest_first(), ids[..], "what was found stays as it was");
    }
}

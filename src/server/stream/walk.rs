//! A walk over the part of a snapshot that a client asked for.

use std::collections::VecDeque;

use super::Garbage;
use crate::hub::client_memory::Pin;
use crate::model::entry::Entry;
use crate::model::ids::Tock;
use crate::model::path::{Path, common_elements};
use crate::model::seen::Seen;
use crate::replica::watch::WatchScope;
use crate::server::access::sight::Sight;
use crate::tree::{Tree, Walk};

/// Entries fetched at once: finding the place again is paid once for this many.
const BATCH: usize = 64;
/// Entries that a walk passes over before it gives way to others, however many it finds in between.
const LOOK_MAX: usize = 1024;
/// Snapshots of more entries than this are dropped where no task waits for it.
const BIG_TREE: usize = 4096;

/// What of a subtree is wanted.
pub(in crate::server) enum Include {
    /// Entries with a value.
    Values,
    /// Also tombstones, and paths that have only something below them.
    Empty,
    /// Entries, tombstones included, whose newest event is not in this set.
    Lacking(Seen),
    /// Entries with a value that these rights do not show; without any, all with a value.
    Hidden(Option<Sight>),
}

/// One step of a walk.
pub(in crate::server) struct Item {
    /// Where, the whole path.
    pub(in crate::server) path: Path,
    /// The entry; none if there are only entries below.
    pub(in crate::server) entry: Option<Entry>,
    /// The entry's tock, or that of the first entry below.
    pub(in crate::server) tock: Tock,
}

/// What a walk found.
pub(in crate::server) enum Look {
    /// The next item.
    Item(Item),
    /// Nothing yet, but it is not at its end.
    Busy,
    /// It is at its end.
    End,
}

/// See the module. Owns its snapshot.
pub(in crate::server) struct ScopeWalk {
    walk: Walk,
    scope: WatchScope,
    top_len: usize,
    include: Include,
    batch: std::vec::IntoIter<(Path, Entry)>,
    ready: VecDeque<Item>,
    /// Entries that were passed over since it last gave way.
    passed_over: usize,
    /// The last entry's path, for [`Include::Empty`].
    last: Option<Path>,
    ended: bool,
    is_big: bool,
    /// Something in scope was not shown.
    withheld: bool,
    /// Charges the connection with what the snapshot holds.
    pin: Option<Pin>,
}

impl ScopeWalk {
    pub(in crate::server) fn new(tree: &Tree, scope: WatchScope, include: Include) -> Self {
        Self {
            walk: tree.walk(&scope.top),
            top_len: scope.top.len(),
            scope,
            include,
            batch: Vec::new().into_iter(),
            ready: VecDeque::new(),
            passed_over: 0,
            last: None,
            ended: false,
            is_big: tree.len() > BIG_TREE,
            withheld: false,
            pin: None,
        }
    }

    /// What the snapshot holds is charged like this.
    pub(in crate::server) fn pinned_by(self, pin: Pin) -> Self {
        Self { pin: Some(pin), ..self }
    }

    /// Leaves out everything up to this path's subtree, which is one below the top, and that subtree. To be asked
    /// before anything else.
    pub(in crate::server) fn begin_behind(&mut self, path: &Path) {
        self.walk.skip_subtree(path);
    }

    /// Gives way after so many entries that it passes over, [`LOOK_MAX`] at most. Later it does so after [`LOOK_MAX`] again.
    pub(in crate::server) fn give_way_after(&mut self, most: usize) {
        self.passed_over = LOOK_MAX.saturating_sub(most);
    }

    /// Gives up the snapshot.
    pub(in crate::server) fn discard(mut self) -> Option<Garbage> {
        drop(self.pin.take());
        if self.is_big { Some(Box::new(self)) } else { None }
    }

    /// Whether it has come to something in scope that the client's rights do not show. What lies in parts that
    /// it could pass over does not count.
    pub(in crate::server) fn has_withheld(&self) -> bool {
        self.withheld
    }

    /// The client's rights are others than before: what has waited since then must be shown by these, too.
    pub(in crate::server) fn check_again(&mut self, sight: &mut Sight) {
        // The paths that lead to an entry wait before it; some of them without it.
        let entry = self.last.as_ref().or(self.ready.back().map(|item| &item.path));
        if !self.ready.is_empty() && entry.is_some_and(|path| !sight.shows(path)) {
            self.ready.clear();
        }
    }

    /// The next item that the client's rights show, in the tree's order.
    pub(in crate::server) fn next(&mut self, sight: &mut Sight) -> Look {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Look::Item(item);
            }
            if self.passed_over >= LOOK_MAX {
                self.passed_over = 0;
                return Look::Busy;
            }
            if let Some((path, entry)) = self.batch.next() {
                self.consider(path, entry, sight);
                if self.ready.is_empty() {
                    self.passed_over += 1;
                }
            } else if self.ended {
                return Look::End;
            } else {
                self.fetch(sight);
            }
        }
    }

    /// Gives back the item that [`Self::next`] has just given.
    pub(in crate::server) fn put_back(&mut self, item: Item) {
        self.ready.push_front(item);
    }

    fn fetch(&mut self, sight: &mut Sight) {
        let batch = self.walk.next_batch(BATCH);
        match batch.last() {
            None => self.ended = true,
            Some((path, _)) if self.is_hidden(path) => {
                self.walk.skip_subtree(&Path::system_root());
            }
            Some((path, _)) => {
                let closed = sight.closed_at(path);
                let deep = self.too_deep(path, sight);
                // Of two, the one above the other.
                if let Some(top) = closed.into_iter().chain(deep).min_by_key(Path::len) {
                    self.walk.skip_subtree(&top);
                }
            }
        }
        self.batch = batch.into_iter();
    }

    /// What is above a path that is too deep, if nothing more is to be found below that.
    fn too_deep(&self, path: &Path, sight: &Sight) -> Option<Path> {
        let deepest = self.top_len.saturating_add(self.scope.depth_max?);
        if path.len() <= deepest {
            return None;
        }
        let above = path.prefix(deepest);
        // It is found by way of an entry below that is shown.
        let is_found = || self.last.as_ref().is_some_and(|last| last.starts_with(&above));
        let is_done = sight.is_everything()
            || !matches!(self.include, Include::Empty)
            || !self.scope.wants_depth(deepest - self.top_len)
            || is_found();
        is_done.then_some(above)
    }

    /// The system's own tree is not part of the whole.
    fn is_hidden(&self, path: &Path) -> bool {
        path.is_system() && !self.scope.top.is_system()
    }

    fn consider(&mut self, path: Path, entry: Entry, sight: &mut Sight) {
        if self.is_hidden(&path) {
            return;
        }
        let len = path.len();
        let is_wanted = match &mut self.include {
            Include::Values | Include::Hidden(None) => !entry.is_tombstone(),
            Include::Empty => true,
            Include::Lacking(had) => !had.contains(entry.newest()),
            Include::Hidden(Some(before)) => !entry.is_tombstone() && !before.shows(&path),
        };
        if !is_wanted {
            return;
        }
        // Nor do the paths that lead there show that there is something.
        if !sight.shows(&path) {
            self.withheld = true;
            return;
        }
        if matches!(self.include, Include::Empty) {
            self.add_inner(&path, len, entry.tock());
        }
        if self.scope.wants_depth(len - self.top_len) {
            let tock = entry.tock();
            self.ready.push_back(Item { path, entry: Some(entry), tock });
        }
    }

    /// Adds the paths between the last entry's and this one's that have no entry themselves.
    fn add_inner(&mut self, path: &Path, len: usize, tock: Tock) {
        let first = match &self.last {
            Some(last) => common_elements(last.as_bytes(), path.as_bytes()) + 1,
            None => self.top_len,
        };
        for elements in first.max(self.top_len)..len {
            if self.scope.wants_depth(elements - self.top_len) {
                self.ready.push_back(Item { path: path.prefix(elements), entry: None, tock });
            }
        }
        self.last = Some(path.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use std::sync::Arc;

    use distkv_access::acl::{Acl, Rights};
    use distkv_access::users::Role;
    use proptest::prelude::*;

    use super::*;
    use crate::model::chain::Chain;
    use crate::model::entry::EntryParts;
    use crate::model::ids::{Event, NodeIndex, Tick};
    use crate::protocol::client::Action;
    use crate::server::access::Access;

    fn entry(tick: u64, has_value: bool) -> Entry {
        let tick = Tick::new(tick).unwrap();
        Entry::new(&EntryParts {
            value: has_value.then_some(&[5]),
            chain: &Chain::first(Event { node: NodeIndex(0), tick }),
            tock: Tock::new(tick.get()).unwrap(),
            origin: None,
            time: None,
            extra: &[],
        })
    }

    fn scope(top: &str, depth_min: usize, depth_max: Option<usize>) -> WatchScope {
        WatchScope { top: top.parse().unwrap(), depth_min, depth_max }
    }

    fn everything() -> Sight {
        Sight::new(Action::GetTree, Path::root())
    }

    /// What a walk finds: paths, and whether there is an entry.
    fn walked(tree: &Tree, scope: WatchScope, include: Include) -> Vec<(String, bool)> {
        let mut walk = ScopeWalk::new(tree, scope, include);
        let mut found = Vec::new();
        let mut sight = everything();
        loop {
            match walk.next(&mut sight) {
                Look::Item(item) => found.push((item.path.to_string(), item.entry.is_some())),
                Look::Busy => {}
                Look::End => return found,
            }
        }
    }

    #[test]
    fn a_walk_jumps_over_what_is_too_deep_and_over_the_system_tree() {
        let mut tree = Tree::new(1);
        for child in 0..3 {
            for below in 0..500 {
                let path = format!("a:{child}:{below}.x").parse().unwrap();
                tree.insert(&path, entry(1, true));
                tree.insert(&format!(":n:{below}").parse().unwrap(), entry(1, true));
            }
            tree.insert(&format!("a:{child}").parse().unwrap(), entry(1, true));
        }
        let children = [":0", ":1", ":2"].map(|c| (format!("a{c}"), true));
        assert_eq!(walked(&tree, scope("a", 0, Some(1)), Include::Values), children);
        assert_eq!(walked(&tree, scope(":", 0, Some(2)), Include::Values), children);
        assert_eq!(walked(&tree, scope(":n", 0, None), Include::Values).len(), 500);
    }

    #[test]
    fn a_walk_that_finds_nothing_gives_way() {
        let mut tree = Tree::new(1);
        for i in 0..=BIG_TREE {
            tree.insert(&format!("a:{i}").parse().unwrap(), entry(1, false));
        }
        let mut walk = ScopeWalk::new(&tree, scope("a", 0, None), Include::Values);
        assert!(matches!(walk.next(&mut everything()), Look::Busy));
        assert!(walk.discard().is_some(), "a big snapshot is dropped elsewhere");
    }

    #[test]
    fn a_walk_gives_way_however_much_it_finds_in_between() {
        const EVERY: usize = 100;
        let mut tree = Tree::new(1);
        for i in 0..3 * LOOK_MAX {
            tree.insert(&format!("a:{i}").parse().unwrap(), entry(1, i % EVERY == 0));
        }
        let mut walk = ScopeWalk::new(&tree, scope("a", 0, None), Include::Values);
        let mut until_busy = || {
            let mut found = 0;
            while let Look::Item(_) = walk.next(&mut everything()) {
                found += 1;
            }
            found
        };
        let (first, second) = (until_busy(), until_busy());
        assert!(first > 1 && first <= LOOK_MAX / EVERY + 1, "{first}");
        assert!(second > 1 && second <= LOOK_MAX / EVERY + 1, "{second}");
    }

    #[test]
    fn a_walk_passes_over_what_is_forbidden_without_looking_at_it() {
        let mut tree = Tree::new(1);
        for i in 0..2 * LOOK_MAX {
            tree.insert(&format!("a.m:{i}").parse().unwrap(), entry(1, true));
        }
        tree.insert(&"a.z".parse().unwrap(), entry(1, true));
        for (pattern, letters) in [("a.m", "re"), ("a.m", "rx"), ("a.m", ""), ("q", "")] {
            let lists = [("a", "xe"), ("a.z", "r"), (pattern, letters)];
            let value =
                |letters: &str| [&[0xa0 | letters.len() as u8], letters.as_bytes()].concat();
            let mut acl = Acl::default();
            for (pattern, letters) in lists {
                acl.insert(pattern.parse().unwrap(), &value(letters)).unwrap();
            }
            let rights = Arc::new(Rights::of(acl));
            let access = Access { role: Some(Role::User), rights, ..Access::unknown() };
            let mut sight = Sight::new(Action::GetTree, "a".parse().unwrap());
            assert!(sight.refresh(&access).unwrap().is_some());
            let mut walk = ScopeWalk::new(&tree, scope("a", 0, None), Include::Values);
            let mut next = || match walk.next(&mut sight) {
                Look::Item(item) => Some(item.path.to_string()),
                Look::End => None,
                Look::Busy => panic!("it looked at all of it"),
            };
            assert_eq!(next().as_deref(), Some("a.z"));
            assert_eq!(next(), None);
        }
    }

    proptest! {
        #[test]
        fn a_walk_finds_what_a_plain_search_finds(
            entries in proptest::collection::btree_map(
                "[ab](\\.[ab]){0,4}", (1u64..100, any::<bool>()), 0..40),
            top in "[ab](\\.[ab]){0,1}|:",
            depth_min in 0usize..3,
            depth_max in proptest::option::of(0usize..4),
            which in 0usize..3,
        ) {
            let mut tree = Tree::new(3);
            let mut had = Seen::new();
            for (path, (tick, has_value)) in &entries {
                tree.insert(&path.parse().unwrap(), entry(*tick, *has_value));
                if tick % 2 == 0 {
                    had.insert(Event { node: NodeIndex(0), tick: Tick::new(*tick).unwrap() });
                }
            }
            let scope = scope(&top, depth_min, depth_max);
            let mut want: BTreeMap<Path, bool> = BTreeMap::new();
            for (text, (tick, has_value)) in &entries {
                let path: Path = text.parse().unwrap();
                if !path.starts_with(&scope.top) {
                    continue;
                }
                let wanted = match which {
                    0 => *has_value,
                    1 => true,
                    _ => tick % 2 == 1,
                };
                if wanted && scope.wants(&path) {
                    want.insert(path.clone(), true);
                }
                for elements in scope.top.len()..path.len() {
                    let inner = path.prefix(elements);
                    if which == 1 && scope.wants(&inner) {
                        let has_entry = entries.contains_key(&inner.to_string());
                        want.insert(inner, has_entry);
                    }
                }
            }
            let include = match which {
                0 => Include::Values,
                1 => Include::Empty,
                _ => Include::Lacking(had),
            };
            let want: Vec<_> = want.into_iter().map(|(p, e)| (p.to_string(), e)).collect();
            prop_assert_eq!(walked(&tree, scope, include), want);
        }
    }
}

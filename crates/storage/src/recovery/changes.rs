//! What logs do to a tree, gathered: a tree is slow at growing entry by entry. They are sorted by
//! path and merged when all is in, and whenever that saves much.

use super::bulk::BulkTree;
use crate::model::entry::Entry;
use crate::model::ids::Event;
use crate::model::invariant::OrBroken;
use crate::model::path::{OrderPrefix, Path, order_prefix};
use crate::tree::Tree;

/// This many changes are in one piece of the list, so that it grows without being copied.
const PIECE: usize = 1 << 14;
/// A list with fewer changes is merged only at the end.
const MERGED_FROM: usize = if cfg!(test) { 3 * PIECE } else { 1 << 21 };

/// Changes in their order.
#[derive(Default)]
pub(crate) struct Changes {
    /// What is sorted, so that sorting need not load each path from memory: the beginnings of
    /// paths, and the positions of the changes in the list.
    keys: Vec<(OrderPrefix, u32)>,
    /// The list; all pieces but the last have [`PIECE`] changes. A merged change is none.
    pieces: Vec<Vec<Option<(Path, What)>>>,
    /// How many there were after they were last merged.
    merged: usize,
}

enum What {
    /// A version, and whether it is a tombstone.
    Put(Entry, bool),
    /// It leaves the tree, if this is its newest event.
    Gone(Event),
    /// It has left the tree, whatever it was.
    Removed,
}

impl Changes {
    /// A version that is in the tree now.
    pub(crate) fn put(&mut self, path: Path, entry: Entry) {
        let is_tombstone = entry.is_tombstone();
        self.push(path, What::Put(entry, is_tombstone));
    }

    /// An entry that is in the tree no more.
    pub(crate) fn remove(&mut self, path: Path, newest: Event) {
        self.push(path, What::Gone(newest));
    }

    fn push(&mut self, path: Path, what: What) {
        // Far fewer than 2^32: `bound` keeps it at twice what the tree has.
        self.keys.push((order_prefix(path.as_bytes()), self.keys.len() as u32));
        match self.pieces.last_mut().filter(|piece| piece.len() < PIECE) {
            Some(piece) => piece.push(Some((path, what))),
            None => {
                let mut piece = Vec::with_capacity(PIECE);
                piece.push(Some((path, what)));
                self.pieces.push(piece);
            }
        }
    }

    /// Keeps the list from growing without end where the same entries change again and again.
    pub(crate) fn bound(&mut self, base: &Tree) {
        if self.keys.len() < MERGED_FROM.max(self.merged * 2) {
            return;
        }
        let mut merging = std::mem::take(self).merge();
        while let Some((path, what)) = merging.next(base) {
            self.push(path, what);
        }
        self.merged = self.keys.len();
    }

    /// The base with all changes. The seed is for the tree's hashes.
    pub(super) fn into_tree(self, base: Tree, hash_seed: u64) -> Tree {
        let mut merging = self.merge();
        if base.is_empty() {
            let mut tree = BulkTree::new(hash_seed, merging.keys.len());
            while let Some((path, what)) = merging.next(&base) {
                if let What::Put(entry, is_tombstone) = what {
                    tree.push(path, entry, is_tombstone);
                }
            }
            return tree.finish();
        }
        let mut tree = base;
        while let Some((path, what)) = merging.next(&tree) {
            match what {
                What::Put(entry, _) => drop(tree.insert(&path, entry)),
                What::Gone(_) | What::Removed => drop(tree.remove(&path)),
            }
        }
        tree
    }

    fn merge(mut self) -> Merging {
        let mut keys = std::mem::take(&mut self.keys);
        keys.sort_unstable_by(|a, b| {
            let by_path = || self.path(a.1).cmp(&self.path(b.1));
            a.0.cmp(&b.0).then_with(by_path).then(a.1.cmp(&b.1))
        });
        Merging { keys: keys.into_iter(), changes: self, last: None, prefix: None }
    }

    fn take(&mut self, at: u32) -> Option<(Path, What)> {
        self.pieces.get_mut(at as usize / PIECE)?.get_mut(at as usize % PIECE)?.take()
    }

    fn path(&self, at: u32) -> Option<&Path> {
        let change = self.pieces.get(at as usize / PIECE)?.get(at as usize % PIECE)?.as_ref();
        change.map(|(path, _)| path)
    }
}

/// Changes that are being merged.
struct Merging {
    /// In the order of paths, then in that in which they happened.
    keys: std::vec::IntoIter<(OrderPrefix, u32)>,
    changes: Changes,
    /// What the changes of a path came to so far, and that path's beginning.
    last: Option<(Path, What)>,
    prefix: Option<OrderPrefix>,
}

impl Merging {
    /// What all changes of the next path come to: an entry, or that it has left. The paths come in
    /// their order; `base` must be as it was at those that did not come yet.
    fn next(&mut self, base: &Tree) -> Option<(Path, What)> {
        for (prefix, at) in self.keys.by_ref() {
            let change = self.changes.take(at);
            let (path, what) = change.or_broken("each change is merged once");
            let before = match &self.last {
                Some((last, what)) if self.prefix == Some(prefix) && *last == path => Some(what),
                _ => None,
            };
            let is_same = before.is_some();
            let what = match what {
                What::Put(..) | What::Removed => what,
                What::Gone(newest) => {
                    let before = match before {
                        Some(What::Put(entry, _)) => Some(entry),
                        Some(What::Gone(_) | What::Removed) => None,
                        None => base.get(path.as_bytes()),
                    };
                    if before.is_none_or(|entry| entry.newest() != newest) {
                        // A newer change of the path stays.
                        continue;
                    }
                    What::Removed
                }
            };
            self.prefix = Some(prefix);
            let done = self.last.replace((path, what)).filter(|_| !is_same);
            if done.is_some() {
                return done;
            }
        }
        self.last.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::chain::Chain;
    use crate::model::entry::EntryParts;
    use crate::model::ids::{NodeIndex, Tick, Tock};
    use proptest::prelude::*;

    fn event(tick: u64) -> Event {
        Event { node: NodeIndex(0), tick: Tick::new(tick).unwrap() }
    }

    fn entry(tick: u64) -> Entry {
        Entry::new(&EntryParts {
            value: (!tick.is_multiple_of(5)).then_some(&[1]),
            chain: &Chain::first(event(tick)),
            tock: Tock::new(tick).unwrap(),
            origin: None,
            time: None,
            extra: &[],
        })
    }

    fn path(n: usize) -> Path {
        format!("a-name-that-is-longer-than-a-prefix.{n}").parse().unwrap()
    }

    /// What happens to which path: a new version, its newest one leaves, or an older one would.
    fn steps() -> impl Strategy<Value = Vec<(usize, u8)>> {
        proptest::collection::vec((0_usize..12, 0_u8..4), 0..200)
    }

    proptest! {
        #[test]
        fn merged_changes_do_what_they_do_one_by_one(
            before in 0_usize..8, steps in steps(), merged_at in 0_usize..200,
        ) {
            let mut tree = Tree::new(1);
            for n in 0..before {
                tree.insert(&path(n), entry(n as u64 + 1));
            }
            let (base, mut changes) = (tree.clone(), Changes::default());
            for (at, (n, what)) in steps.into_iter().enumerate() {
                let newest = tree.get(path(n).as_bytes()).map(Entry::newest);
                match (what, newest) {
                    (2, Some(newest)) => {
                        tree.remove(&path(n));
                        changes.remove(path(n), newest);
                    }
                    (3, _) => changes.remove(path(n), event(1 << 40)),
                    _ => {
                        let entry = entry(100 + at as u64);
                        tree.insert(&path(n), entry.clone());
                        changes.put(path(n), entry);
                    }
                }
                if at == merged_at {
                    let mut merging = std::mem::take(&mut changes).merge();
                    while let Some((path, what)) = merging.next(&base) {
                        changes.push(path, what);
                    }
                }
            }
            let again = changes.into_tree(base, 2);
            let all = |tree: &Tree| {
                let root = Path::root();
                tree.subtree(&root).map(|(p, e)| (p.clone(), e.clone())).collect::<Vec<_>>()
            };
            prop_assert_eq!(all(&again), all(&tree));
            prop_assert_eq!(again.memory_bytes(), tree.memory_bytes());
            prop_assert_eq!(again.live_len(), tree.live_len());
        }
    }

    #[test]
    fn a_list_of_the_same_entries_again_and_again_stays_short() {
        let base = Tree::new(1);
        let mut changes = Changes::default();
        for n in 0..MERGED_FROM + PIECE {
            changes.put(path(n % 3), entry(n as u64 + 1));
            changes.bound(&base);
        }
        assert!(changes.keys.len() < 2 * PIECE, "{}", changes.keys.len());
        let tree = changes.into_tree(base, 1);
        assert_eq!(tree.len(), 3);
    }
}

//! A tree of very many entries at once: its hash map and its ordered set can be built apart, by
//! two threads.

use super::table::Filling;
use super::{TOMBSTONE_BYTES, Tree, hasher};
use crate::model::entry::Entry;
use crate::model::ids::Tock;
use crate::model::invariant::{costly_invariant, invariant};
use crate::model::path::Path;
use crate::model::path::bytes::has_array;

/// The entries by path, without their order.
pub struct EntriesBuilder {
    entries: Filling,
}

/// The order of paths, the tombstones, and the sums over all entries.
#[derive(Default)]
pub struct OrderBuilder {
    order: im::OrdSet<Path>,
    tombstones: im::OrdSet<(Tock, Path)>,
    live: usize,
    memory: usize,
    has_array_paths: bool,
}

impl EntriesBuilder {
    /// Empty, with room for about the given number of entries; for the seed see [`Tree::new`].
    #[must_use]
    pub fn new(hash_seed: u64, expected: usize) -> Self {
        Self { entries: Filling::new(hasher(hash_seed), expected) }
    }

    /// Adds an entry; each path once.
    pub fn push(&mut self, path: Path, entry: Entry) {
        self.entries.push(path, entry);
    }
}

impl OrderBuilder {
    /// Adds an entry; fastest in the order of paths. The caller says whether it is a tombstone,
    /// because a caller that has sorted very many entries knows it without loading the entry.
    pub fn push(&mut self, path: &Path, entry: &Entry, is_tombstone: bool) {
        costly_invariant!(
            entry.is_tombstone() == is_tombstone,
            "whether an entry is a tombstone is told as it is"
        );
        self.memory += Tree::path_cost(path) + entry.memory_bytes();
        self.has_array_paths = self.has_array_paths || has_array(path.as_bytes());
        self.order.insert(path.clone());
        if is_tombstone {
            self.memory += TOMBSTONE_BYTES;
            self.tombstones.insert((entry.tock(), path.clone()));
        } else {
            self.live += 1;
        }
    }
}

impl Tree {
    /// The tree of the entries that were added to both.
    #[must_use]
    pub fn assemble(entries: EntriesBuilder, order: OrderBuilder) -> Self {
        let entries = entries.entries.finish();
        let OrderBuilder { order, tombstones, live, memory, has_array_paths } = order;
        invariant!(entries.len() == order.len(), "table and order hold the same paths");
        invariant!(
            entries.len() == live + tombstones.len(),
            "an entry is live, or in the index of tombstones"
        );
        Self { entries, order, tombstones, live, memory, version: 1, replaced: 0, has_array_paths }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::chain::Chain;
    use crate::model::entry::EntryParts;
    use crate::model::ids::{Event, NodeIndex, Tick};

    #[test]
    fn a_tree_built_at_once_is_the_one_built_entry_by_entry() {
        let mut one_by_one = Tree::new(3);
        let (mut entries, mut order) = (EntriesBuilder::new(3, 400), OrderBuilder::default());
        for n in 0..500_u64 {
            let path: Path = format!("k{}.{n}", n % 7).parse().unwrap();
            let event = Event { node: NodeIndex(0), tick: Tick::new(n + 1).unwrap() };
            let entry = Entry::new(&EntryParts {
                value: (n % 3 != 0).then_some(&[7]),
                chain: &Chain::first(event),
                tock: Tock::new(n / 2).unwrap(),
                origin: None,
                time: None,
                extra: &[],
            });
            one_by_one.insert(&path, entry.clone());
            order.push(&path, &entry, entry.is_tombstone());
            entries.push(path, entry);
        }
        let tree = Tree::assemble(entries, order);
        let all = |tree: &Tree| {
            let root = Path::root();
            tree.subtree(&root).map(|(p, e)| (p.clone(), e.clone())).collect::<Vec<_>>()
        };
        assert_eq!(all(&tree), all(&one_by_one));
        let measures = |t: &Tree| (t.len(), t.live_len(), t.tombstone_len(), t.memory_bytes());
        assert_eq!(measures(&tree), measures(&one_by_one));
        let up_to = |t: &Tree| t.tombstones_up_to(Tock::new(99).unwrap()).count();
        assert_eq!(up_to(&tree), up_to(&one_by_one));
        assert!(tree.version() > 0);
    }

    #[test]
    fn a_path_with_an_array_is_noticed_and_not_forgotten() {
        let event = Event { node: NodeIndex(0), tick: Tick::new(1).unwrap() };
        let entry = Entry::new(&EntryParts {
            value: Some(&[7]),
            chain: &Chain::first(event),
            tock: Tock::new(1).unwrap(),
            origin: None,
            time: None,
            extra: &[],
        });
        let (plain, array): (Path, Path) = ("a.b:1".parse().unwrap(), "a:'b',1.c".parse().unwrap());
        let mut one_by_one = Tree::new(3);
        one_by_one.insert(&plain, entry.clone());
        assert!(!one_by_one.has_array_paths());
        one_by_one.insert(&array, entry.clone());
        assert!(one_by_one.has_array_paths());
        one_by_one.remove(&array);
        assert!(one_by_one.has_array_paths() && one_by_one.clone().has_array_paths());
        for (path, expected) in [(plain, false), (array, true)] {
            let (mut entries, mut order) = (EntriesBuilder::new(3, 1), OrderBuilder::default());
            order.push(&path, &entry, false);
            entries.push(path, entry.clone());
            assert_eq!(Tree::assemble(entries, order).has_array_paths(), expected);
        }
    }
}

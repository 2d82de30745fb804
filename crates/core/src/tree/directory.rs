//! A persistent vector that grows and shrinks at its end: a tree of nodes of a fixed width, all
//! items at the same depth. It holds the table's buckets.
//!
//! `imbl::Vector`, which it stands in for, can do much more (concatenate, insert in the middle), and
//! pays for that at each look-up with sizes kept in its nodes. Here an item's place is in the bits of
//! its number: a look-up is one load per level. The figures are in `docs/performance.md`.

use triomphe::Arc;

use crate::model::invariant::{OrBroken, costly_invariant};

/// Bits of an item's number that choose the way at each level.
const BITS: u32 = 6;
/// Children of a node. When a snapshot shares it, a change copies one node of each level.
const FAN: usize = 1 << BITS;

/// What look-ups rely on.
const FILLED: &str = "a directory has all of its items and the nodes on the way to them";
const FAN_WIDE: &str = "a node has a place for each turn";

#[derive(Clone)]
enum Node<T> {
    Inner([Option<Arc<Node<T>>>; FAN]),
    Leaf([Option<Arc<T>>; FAN]),
}

/// See the module. A clone is a snapshot that shares everything until one of the two changes.
#[derive(Clone)]
pub(super) struct Directory<T> {
    root: Arc<Node<T>>,
    /// Levels of inner nodes above the leaves.
    height: u32,
    len: usize,
}

fn no_children<C>() -> [Option<C>; FAN] {
    [const { None }; FAN]
}

/// The child that is on the way, of a node whose children have this many levels below them.
fn turn(at: usize, level: u32) -> usize {
    (at >> (level * BITS)) % FAN
}

impl<T> Default for Directory<T> {
    fn default() -> Self {
        Self { root: Arc::new(Node::Leaf(no_children())), height: 0, len: 0 }
    }
}

impl<T: Clone> Directory<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How many fit at this height.
    fn capacity(&self) -> usize {
        FAN.saturating_pow(self.height + 1)
    }

    pub(super) fn get(&self, at: usize) -> Option<&T> {
        self.get_shared(at).map(|item| &**item)
    }

    pub(super) fn get_shared(&self, at: usize) -> Option<&Arc<T>> {
        if at >= self.len {
            return None;
        }
        let (mut node, mut level) = (&*self.root, self.height);
        loop {
            match node {
                Node::Inner(children) => {
                    let child = children.get(turn(at, level)).and_then(Option::as_deref);
                    node = child.or_broken(FILLED);
                }
                Node::Leaf(items) => {
                    let item = items.get(turn(at, 0)).and_then(Option::as_ref);
                    return Some(item.or_broken(FILLED));
                }
            }
            level = level.saturating_sub(1);
        }
    }

    /// An item to change; what snapshots share on the way to it, and it itself, is copied first.
    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        if at >= self.len {
            return None;
        }
        Some(Arc::make_mut(self.slot(at).as_mut().or_broken(FILLED)))
    }

    /// An item's place, with the nodes on the way to it, which are made if they are not there. For
    /// numbers that fit.
    fn slot(&mut self, at: usize) -> &mut Option<Arc<T>> {
        costly_invariant!(at < self.capacity(), "there is room for an item that is added");
        let (mut node, mut level) = (Arc::make_mut(&mut self.root), self.height);
        loop {
            match node {
                Node::Inner(children) => {
                    let child = children.get_mut(turn(at, level)).or_broken(FAN_WIDE);
                    level = level.saturating_sub(1);
                    let child = child.get_or_insert_with(|| {
                        Arc::new(match level {
                            0 => Node::Leaf(no_children()),
                            _ => Node::Inner(no_children()),
                        })
                    });
                    node = Arc::make_mut(child);
                }
                Node::Leaf(items) => return items.get_mut(turn(at, 0)).or_broken(FAN_WIDE),
            }
        }
    }

    /// Adds an item after the last.
    pub(super) fn push(&mut self, item: T) {
        if self.len == self.capacity() {
            let mut children = no_children();
            *children.first_mut().or_broken(FAN_WIDE) = Some(Arc::clone(&self.root));
            self.root = Arc::new(Node::Inner(children));
            self.height += 1;
        }
        let at = self.len;
        let before = self.slot(at).replace(Arc::new(item));
        costly_invariant!(before.is_none(), "there is nothing behind the last item");
        self.len += 1;
    }

    /// Takes the last item away.
    pub(super) fn pop(&mut self) -> Option<Arc<T>> {
        let at = self.len.checked_sub(1)?;
        let item = self.slot(at).take().or_broken(FILLED);
        self.len = at;
        self.cut();
        Some(item)
    }

    /// Lets go of nodes that nothing is in any more.
    fn cut(&mut self) {
        // The first item that does not exist: if it is the first of a node, that node is empty.
        let (at, mut level) = (self.len, self.height);
        let mut node = Arc::make_mut(&mut self.root);
        while let Node::Inner(children) = node {
            let child = children.get_mut(turn(at, level)).or_broken(FAN_WIDE);
            if at % FAN.saturating_pow(level) == 0 {
                *child = None;
                break;
            }
            let Some(child) = child else { break };
            (node, level) = (Arc::make_mut(child), level.saturating_sub(1));
        }
        while self.height > 0 && self.len <= FAN.saturating_pow(self.height) {
            let Node::Inner(children) = &*self.root else { break };
            let first = children.first().and_then(Option::as_ref).or_broken(FILLED);
            self.root = Arc::clone(first);
            self.height -= 1;
        }
    }
}

impl<T: Clone> FromIterator<T> for Directory<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut directory = Self::default();
        items.into_iter().for_each(|item| directory.push(item));
        directory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes<T>(node: &Node<T>) -> usize {
        match node {
            Node::Inner(children) => 1 + children.iter().flatten().map(|n| nodes(n)).sum::<usize>(),
            Node::Leaf(_) => 1,
        }
    }

    /// As many nodes as the given number of items needs, with at most one empty one.
    fn assert_tight(directory: &Directory<usize>) {
        let (mut needed, mut row) = (0, directory.len);
        for _ in 0..=directory.height {
            row = row.div_ceil(FAN).max(1);
            needed += row;
        }
        assert_eq!(nodes(&directory.root), needed, "{} items", directory.len);
        assert!(directory.height == 0 || directory.len > FAN.pow(directory.height));
    }

    #[test]
    fn it_holds_what_was_pushed_while_it_grows_and_shrinks() {
        let most = FAN * FAN * 2 + 5;
        let mut directory = Directory::default();
        for at in 0..most {
            assert_eq!((directory.len(), directory.get(at)), (at, None));
            directory.push(at);
            if at % 97 == 0 || at < 70 {
                assert_tight(&directory);
            }
        }
        assert!((0..most).all(|at| directory.get(at) == Some(&at)));
        let all: Directory<usize> = (0..most).collect();
        assert!((0..most).all(|at| all.get(at) == Some(&at)));
        for at in (0..most).rev() {
            assert_eq!(directory.pop().as_deref(), Some(&at));
            assert_eq!((directory.get(at), directory.get(usize::MAX)), (None, None));
            assert!(at == 0 || directory.get(at - 1) == Some(&(at - 1)));
            if at % 97 == 0 || at < 70 || at.is_multiple_of(FAN) {
                assert_tight(&directory);
            }
        }
        assert_eq!((directory.pop(), directory.len()), (None, 0));
        assert!(directory.get_mut(0).is_none());
    }

    #[test]
    fn a_snapshot_does_not_see_what_comes_after_it() {
        let most = FAN * FAN + 100;
        let mut directory: Directory<usize> = (0..most).collect();
        let snapshot = directory.clone();
        for at in 0..most {
            *directory.get_mut(at).unwrap() += 1;
        }
        let later = directory.clone();
        (0..200).for_each(|_| drop(directory.pop()));
        (0..50).for_each(|_| directory.push(0));
        assert!((0..most).all(|at| snapshot.get(at) == Some(&at)));
        assert!((0..most).all(|at| later.get(at) == Some(&(at + 1))));
        let expected = |at| if at < most - 200 { at + 1 } else { 0 };
        assert!((0..most - 150).all(|at| directory.get(at) == Some(&expected(at))));
        assert_eq!(directory.len(), most - 150);
    }
}

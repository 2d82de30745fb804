//! A walk over the part of a snapshot that a client asked for.

use std::collections::VecDeque;

use super::Garbage;
use crate::model::entry::Entry;
use crate::model::ids::Tock;
use crate::model::path::{Path, common_elements};
use crate::model::seen::Seen;
use crate::model::tree::{Tree, Walk};
use crate::replica::watch::WatchScope;

/// Entries fetched at once: finding the place again is paid once for so many.
const BATCH: usize = 64;
/// Entries that one call looks at, so that a walk which finds nothing gives way to others.
const LOOK_MAX: usize = 4096;
/// Snapshots of more entries than this are dropped where nobody waits.
const BIG_TREE: usize = 4096;

/// What of a subtree is wanted.
pub(in crate::server) enum Include {
    /// Entries with a value.
    Values,
    /// Also tombstones, and paths that have only something below them.
    Empty,
    /// Entries, tombstones included, whose newest event is not in this set.
    Lacking(Seen),
}

/// One step of a walk.
pub(in crate::server) struct Item {
    /// Where, the whole path.
    pub(in crate::server) path: Path,
    /// What is there; none where there is only something below.
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
    /// The last entry's path, for [`Include::Empty`].
    last: Option<Path>,
    ended: bool,
    is_big: bool,
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
            last: None,
            ended: false,
            is_big: tree.len() > BIG_TREE,
        }
    }

    /// Gives up the snapshot.
    pub(in crate::server) fn discard(self) -> Option<Garbage> {
        if self.is_big { Some(Box::new(self)) } else { None }
    }

    /// The next item, in the tree's order.
    pub(in crate::server) fn next(&mut self) -> Look {
        for _ in 0..LOOK_MAX {
            if let Some(item) = self.ready.pop_front() {
                return Look::Item(item);
            }
            if let Some((path, entry)) = self.batch.next() {
                self.consider(path, entry);
            } else if self.ended {
                return Look::End;
            } else {
                self.fetch();
            }
        }
        Look::Busy
    }

    fn fetch(&mut self) {
        let batch = self.walk.next_batch(BATCH);
        match batch.last() {
            None => self.ended = true,
            Some((path, _)) if self.is_hidden(path) => {
                self.walk.skip_subtree(&Path::system_root());
            }
            Some((path, _)) => {
                if let Some(max) = self.scope.depth_max
                    && let deepest = self.top_len.saturating_add(max)
                    && path.len() > deepest
                {
                    self.walk.skip_subtree(&path.prefix(deepest));
                }
            }
        }
        self.batch = batch.into_iter();
    }

    /// The system's own tree is not part of the whole.
    fn is_hidden(&self, path: &Path) -> bool {
        path.is_system() && !self.scope.top.is_system()
    }

    fn consider(&mut self, path: Path, entry: Entry) {
        if self.is_hidden(&path) {
            return;
        }
        let len = path.len();
        match &self.include {
            Include::Values if entry.is_tombstone() => return,
            Include::Lacking(had) if had.contains(entry.newest()) => return,
            Include::Empty => self.add_inner(&path, len, entry.tock()),
            Include::Values | Include::Lacking(_) => {}
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

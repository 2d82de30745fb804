//! Deletions that a watch was not told of, because its client may not read there at present. The client may have the
//! entries from a time when it could. If it may read there again, a snapshot shows it all that is there, but not what
//! has gone: a tombstone may have been purged by then. So deletions are kept until they can be told; bounded, and
//! where there are too many it is known that some are missing.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::hub::inbox::Inbox;
use crate::model::entry::Entry;
use crate::model::path::Path;
use crate::replica::Committed;
use crate::replica::watch::WatchId;
use crate::server::access::sight::Sight;
use crate::tree::Tree;

/// Most deletions that are kept for one watch.
const WITHHELD_MAX: usize = 4096;
/// Most bytes of them.
const WITHHELD_BYTES_MAX: usize = 1 << 20;
/// What one takes beside its path and its tombstone, about.
const PLACE_BYTES: usize = 64;

/// See the module. Its memory is counted as its connection's.
pub(super) struct Withheld {
    id: WatchId,
    inbox: Arc<Inbox>,
    /// By path, the tombstone of the last deletion. What was created again may be there, too.
    deletions: BTreeMap<Path, Entry>,
    bytes: usize,
    /// Some were given up, or not seen.
    is_incomplete: bool,
}

fn cost(path: &Path, entry: &Entry) -> usize {
    path.as_bytes().len() + entry.memory_bytes() + PLACE_BYTES
}

impl Withheld {
    /// Nothing yet.
    pub(super) fn new(id: WatchId, inbox: &Arc<Inbox>) -> Self {
        let inbox = Arc::clone(inbox);
        Self { id, inbox, deletions: BTreeMap::new(), bytes: 0, is_incomplete: false }
    }

    /// A change that is not told.
    pub(super) fn note(&mut self, change: &Committed) {
        let Committed { path, entry } = change;
        if self.is_incomplete || !entry.is_tombstone() {
            return;
        }
        self.bytes += cost(path, entry);
        if let Some(before) = self.deletions.insert(path.clone(), entry.clone()) {
            self.bytes -= cost(path, &before);
        }
        if self.deletions.len() > WITHHELD_MAX || self.bytes > WITHHELD_BYTES_MAX {
            self.give_up();
        }
        self.inbox.note_withheld(self.id, self.bytes);
    }

    /// Deletions may have been overlooked, so it is of no use any more.
    pub(super) fn give_up(&mut self) {
        (self.deletions, self.bytes, self.is_incomplete) = (BTreeMap::new(), 0, true);
        self.inbox.note_withheld(self.id, 0);
    }

    /// Those of entries that are shown now and have no value in this tree: they are still kept. None if it is not
    /// known which there are.
    pub(super) fn shown(&self, tree: &Tree, sight: &mut Sight) -> Option<Vec<Committed>> {
        if self.is_incomplete {
            return None;
        }
        let gone = self.deletions.iter().filter_map(|(path, entry)| {
            let newest = tree.get(path.as_bytes()).unwrap_or(entry);
            let is_told = newest.is_tombstone() && sight.shows(path);
            is_told.then(|| Committed { path: path.clone(), entry: newest.clone() })
        });
        Some(gone.collect())
    }

    /// Forgets those of entries that are shown: the client has been told of all of them.
    pub(super) fn forget_shown(&mut self, sight: &mut Sight) {
        self.deletions.retain(|path, _| !sight.shows(path));
        self.bytes = self.deletions.iter().map(|(path, entry)| cost(path, entry)).sum();
        self.inbox.note_withheld(self.id, self.bytes);
    }
}

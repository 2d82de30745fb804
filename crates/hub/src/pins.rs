//! Which snapshot of a stream holds which old versions of entries.
//!
//! A version that was replaced between two snapshots is held by the first of the two, if it was
//! there by then, and by those before it. So each has the versions that were replaced before the
//! next one came, but never more than its own tree; and the sum over all is what they keep alive
//! together. When a snapshot goes, the one before it may still hold its versions, so that one
//! takes them over.

use std::collections::{BTreeMap, HashSet};
use std::hash::BuildHasher;

/// What one overwritten entry keeps alive beside itself: its bucket of the table, and its part of
/// the nodes above the bucket.
pub(super) const NODE_BYTES: usize = 448;
/// Most paths that are remembered as overwritten since the newest snapshot; beyond, each change
/// counts.
const TOUCHED_MAX: usize = 1 << 17;

/// The snapshots that streams hold, oldest first. See the module.
#[derive(Default)]
pub(super) struct Pins {
    held: BTreeMap<u64, Pinned>,
    next: u64,
    /// Hashes of the paths that were written since the newest: writing one of them again replaces a
    /// version that no snapshot has.
    touched: HashSet<u64>,
}

struct Pinned {
    /// Whose it is.
    account: u64,
    tree_bytes: usize,
    /// The bytes that were replaced since, until the next one came. Invariant: at most
    /// `tree_bytes`, and what goes with it.
    bytes: usize,
}

impl Pinned {
    fn add(&mut self, bytes: usize) -> usize {
        let before = self.bytes;
        // The nodes of the old tree are in its estimated size already.
        self.bytes = (self.bytes + bytes).min(self.tree_bytes);
        self.bytes - before
    }
}

impl Pins {
    /// A connection's stream holds a snapshot of a tree of that size; returns its number.
    pub(super) fn add(&mut self, account: u64, tree_bytes: usize) -> u64 {
        let number = self.next;
        self.next += 1;
        self.touched.clear();
        self.held.insert(number, Pinned { account, tree_bytes, bytes: 0 });
        number
    }

    /// How many snapshots there are.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Entries at these paths were written; `replaced`: the bytes of all the versions that went. Returns
    /// by how much the sum grew.
    pub(super) fn note_changes<'p>(
        &mut self,
        paths: impl Iterator<Item = &'p [u8]>,
        replaced: usize,
    ) -> usize {
        let Some((_, newest)) = self.held.iter_mut().next_back() else { return 0 };
        let (mut all, mut new) = (0, 0);
        for path in paths {
            all += 1;
            let is_full = self.touched.len() >= TOUCHED_MAX;
            let hash = self.touched.hasher().hash_one(path);
            if is_full || self.touched.insert(hash) {
                new += 1;
            }
        }
        if all == 0 || replaced == 0 {
            return 0;
        }
        newest.add(replaced / all * new + new * NODE_BYTES)
    }

    /// A snapshot is held no more. Returns by how much the sum shrinks.
    pub(super) fn remove(&mut self, number: u64) -> usize {
        let Some(gone) = self.held.remove(&number) else { return 0 };
        // Those before it hold the same, as far as it was there by then.
        match self.held.range_mut(..number).next_back() {
            Some((_, before)) => gone.bytes - before.add(gone.bytes).min(gone.bytes),
            None => gone.bytes,
        }
    }

    /// What each connection's snapshots keep alive.
    pub(super) fn by_account(&self) -> BTreeMap<u64, usize> {
        let (mut sum, mut by_account) = (0, BTreeMap::new());
        for pinned in self.held.values().rev() {
            sum += pinned.bytes;
            // The oldest one comes last.
            by_account.insert(pinned.account, sum);
        }
        by_account
    }
}

//! What a watch has delivered, so that it can continue at another node: the last delivered version
//! of each path. Bounded; it reports if it cannot tell any more.
//!
//! A *feed* is the stream of one node. What that node answers to a question is ahead of what still
//! waits in the feed: so what comes there may be the past of what was delivered.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};

use xxhash_rust::xxh64::xxh64;

use crate::model::path::Path;
use crate::retry::deviations::{Rule, is_broken};
use crate::smart::operations::entry::{Entry, Version};

/// Deletions that are remembered, so that nothing older comes back after them.
const DELETIONS_MAX: usize = 8192;
/// What an entry costs beside its path, about.
const ENTRY_BYTES: usize = 160;

/// How an arriving version compares with the delivered one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// It is new.
    New,
    /// It was delivered, or it is the past of what this feed's node was seen to hold.
    Known,
    /// Something newer was delivered, and this feed's node was not seen to hold it.
    Older,
    /// Whether it is older than what was delivered is not known any more.
    Doubtful,
}

/// How a version was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// By a feed: nothing older comes behind it there.
    Feed,
    /// By an answer to a question: the feed still has what is older.
    Answer,
}

/// What was delivered last for a path.
#[derive(Debug, Clone)]
struct Delivered {
    version: Version,
    /// Of the value: an event that is used twice, by two lives of a node that cannot be told apart,
    /// is recognised as different.
    hash: u64,
    is_deleted: bool,
    /// The last feed in which the path was seen.
    seen: u32,
    /// The last feed whose node was seen to hold this version, or a later one.
    held: u32,
    /// The feed in which it came; none if it came by an answer.
    came: Option<u32>,
    /// Set if a node answered that nothing is there any more: then it is deleted, by a version that nobody told.
    gone: Option<Gone>,
}

/// A node's answer that it has nothing of a path any more.
#[derive(Debug, Clone, Copy)]
struct Gone {
    /// The node's own tock then. What it had before has none that is greater.
    tock: u64,
    /// That node's feed. Of what comes in a later one, this says nothing.
    feed: u32,
    /// The version is that of a deletion: it has come since.
    is_deletion: bool,
}

impl Delivered {
    /// Whether what comes in this feed can be compared with it.
    fn counts_in(&self, feed: u32) -> bool {
        self.gone.is_none_or(|gone| gone.feed == feed || gone.is_deletion)
    }

    /// Whether this is the version that has deleted it, as far as that is known.
    fn is_deletion(&self, version: &Version) -> bool {
        let is_known = self.gone.is_none_or(|gone| gone.is_deletion);
        self.is_deleted && is_known && self.version == *version
    }

    /// What it has deleted has no greater tock than this.
    fn deletes_until(&self) -> u64 {
        self.gone.map_or(self.version.tock, |gone| gone.tock.max(self.version.tock))
    }

    /// Compares a version that comes in this feed.
    fn look(&mut self, version: Version, entry: &Entry, feed: u32) -> Look {
        self.seen = feed;
        if let Some(gone) = self.gone.filter(|gone| gone.feed == feed) {
            return self.look_behind(gone, version, entry);
        }
        match version.compare(&self.version) {
            Ordering::Greater => Look::New,
            // No feed is ahead of its node.
            Ordering::Less if self.held == feed => Look::Known,
            Ordering::Less => Look::Older,
            Ordering::Equal => {
                let is_deleted = entry.value.is_none();
                if self.is_deleted != is_deleted || self.hash != hash_of(entry) {
                    return Look::New;
                }
                self.held = feed;
                Look::Known
            }
        }
    }

    /// Compares a version that comes behind the answer that nothing is there any more.
    fn look_behind(&mut self, gone: Gone, version: Version, entry: &Entry) -> Look {
        if version.compare(&self.version).is_le() {
            return Look::Known;
        }
        if entry.value.is_none() {
            // That it is deleted was told already. There may be a later deletion, so the answer counts on.
            self.version = version;
            self.gone = Some(Gone { is_deletion: true, ..gone });
            return Look::Known;
        }
        // It was created again, if the node did not have it before its answer.
        if version.tock > gone.tock { Look::New } else { Look::Doubtful }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Memory {
    paths_max: usize,
    bytes_max: usize,
    /// None after a bound was exceeded: nothing is known until everything starts over.
    delivered: Option<HashMap<Path, Delivered>>,
    bytes: usize,
    /// And until which tock they delete something. Oldest first; those that were written again since are skipped.
    deletions: VecDeque<(Path, u64)>,
    /// The greatest tock of a deletion that was forgotten: a version that is not remembered and not
    /// newer may be older than that deletion.
    forgotten: u64,
    /// The same, of those only that did not come in this feed: no others are ahead of it.
    forgotten_ahead: u64,
    /// The feed of now.
    feed: u32,
    /// The feed in which the first came of what is remembered, or was until a bound was exceeded.
    began: u32,
}

impl Memory {
    pub(super) fn new(paths_max: usize, bytes_max: usize) -> Memory {
        Memory {
            paths_max,
            bytes_max,
            delivered: Some(HashMap::new()),
            bytes: 0,
            deletions: VecDeque::new(),
            forgotten: 0,
            forgotten_ahead: 0,
            feed: 0,
            began: 0,
        }
    }

    /// Forgets everything; everything is new.
    pub(super) fn clear(&mut self) {
        *self = Memory { feed: self.feed, ..Memory::new(self.paths_max, self.bytes_max) };
    }

    /// Whether it knows what was delivered.
    pub(super) fn is_whole(&self) -> bool {
        self.delivered.is_some()
    }

    /// Whether a bound was exceeded when it knew something of an earlier feed: if the state of this one is still coming,
    /// what of that is gone cannot be found out any more.
    pub(super) fn has_lost_earlier(&self) -> bool {
        !self.is_whole() && self.began != self.feed
    }

    /// Another node begins to send its state.
    pub(super) fn begin_feed(&mut self) {
        self.feed = self.feed.wrapping_add(1);
        self.forgotten_ahead = self.forgotten;
    }

    /// Compares an arriving version, and notes that the path was seen in this feed. `is_resuming`: it is of the state
    /// with which a watch continues, which comes in no order.
    pub(super) fn look(&mut self, path: &Path, entry: &Entry, is_resuming: bool) -> Look {
        let Some(delivered) = &mut self.delivered else { return Look::New };
        if is_broken(Rule::Twice) {
            return Look::New;
        }
        let Some(version) = entry.version() else { return Look::New };
        let feed = self.feed;
        let Some(known) = delivered.get_mut(path).filter(|known| known.counts_in(feed)) else {
            let may_be_older = match is_resuming {
                true => version.tock <= self.forgotten,
                // A deletion that is told once more does no harm.
                false => entry.value.is_some() && version.tock <= self.forgotten_ahead,
            };
            return if may_be_older { Look::Doubtful } else { Look::New };
        };
        let before = known.deletes_until();
        let look = known.look(version, entry, feed);
        let after = known.deletes_until();
        if after != before {
            self.queue_deletion(path, after);
        }
        look
    }

    /// Remembers a version that is delivered now.
    pub(super) fn on_delivered(&mut self, path: &Path, entry: &Entry, by: By) {
        let Some(version) = entry.version() else { return };
        let (is_deleted, hash) = (entry.value.is_none(), hash_of(entry));
        let (seen, held) = (self.feed, self.feed);
        let came = (by == By::Feed).then_some(self.feed);
        self.remember(path, Delivered { version, hash, is_deleted, seen, held, came, gone: None });
    }

    /// This feed's node has answered that it holds the version that was delivered.
    pub(super) fn on_held(&mut self, path: &Path) {
        if let Some(known) = self.delivered.as_mut().and_then(|all| all.get_mut(path)) {
            known.held = self.feed;
        }
    }

    /// This feed's node, asked about this version, has answered that nothing is there any more; `tock` is its own. False
    /// if nobody need be told, because a deletion was delivered already.
    pub(super) fn on_gone(&mut self, path: &Path, version: Version, tock: u64) -> bool {
        let known = self.delivered.as_ref().and_then(|all| all.get(path));
        let is_news = known.is_none_or(|known| !known.is_deleted);
        let is_deletion = known.is_some_and(|known| known.is_deletion(&version));
        let gone = Some(Gone { tock, feed: self.feed, is_deletion });
        let (seen, held) = (self.feed, self.feed);
        let marked = Delivered { version, hash: 0, is_deleted: true, seen, held, came: None, gone };
        self.remember(path, marked);
        is_news
    }

    /// The paths whose values were delivered and that were not seen in this feed.
    pub(super) fn not_seen(&self) -> impl Iterator<Item = &Path> {
        let all = self.delivered.iter().flatten();
        all.filter(|(_, known)| known.seen != self.feed && !known.is_deleted).map(|(path, _)| path)
    }

    /// The version that was delivered last.
    pub(super) fn version(&self, path: &Path) -> Option<&Version> {
        Some(&self.delivered.as_ref()?.get(path)?.version)
    }

    fn remember(&mut self, path: &Path, now: Delivered) {
        let Some(delivered) = &mut self.delivered else { return };
        let deletion = now.is_deleted.then(|| now.deletes_until());
        if delivered.is_empty() {
            self.began = self.feed;
        }
        if delivered.insert(path.clone(), now).is_none() {
            self.bytes += path.as_bytes().len() + ENTRY_BYTES;
        }
        if let Some(until) = deletion {
            self.queue_deletion(path, until);
        }
        while self.is_full() && !self.deletions.is_empty() {
            self.forget_deletion();
        }
        if self.is_full() {
            let began = self.began;
            self.clear();
            (self.delivered, self.began) = (None, began);
        }
    }

    fn queue_deletion(&mut self, path: &Path, until: u64) {
        self.deletions.push_back((path.clone(), until));
        while self.deletions.len() > DELETIONS_MAX.min(self.paths_max) {
            self.forget_deletion();
        }
    }

    fn forget_deletion(&mut self) {
        let Some((path, until)) = self.deletions.pop_front() else { return };
        let Some(delivered) = &mut self.delivered else { return };
        let is_current = |known: &&Delivered| known.is_deleted && known.deletes_until() == until;
        let Some(known) = delivered.get(&path).filter(is_current) else { return };
        self.forgotten = self.forgotten.max(until);
        if known.came != Some(self.feed) {
            self.forgotten_ahead = self.forgotten_ahead.max(until);
        }
        delivered.remove(&path);
        self.bytes -= path.as_bytes().len() + ENTRY_BYTES;
    }

    fn is_full(&self) -> bool {
        let count = self.delivered.as_ref().map_or(0, HashMap::len);
        count > self.paths_max || self.bytes > self.bytes_max
    }
}

fn hash_of(entry: &Entry) -> u64 {
    entry.value.as_ref().map_or(0, |value| xxh64(value.as_bytes(), 0))
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;

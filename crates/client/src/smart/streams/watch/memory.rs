//! What a watch has delivered, so that it can continue at another node: the last delivered version
//! of each path. Bounded; it reports if it cannot tell any more.

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
    /// It was delivered.
    Known,
    /// Something newer was delivered.
    Older,
    /// Whether it was delivered is not known any more.
    Doubtful,
}

/// What was delivered last for a path.
#[derive(Debug, Clone)]
struct Delivered {
    version: Version,
    /// Of the value: an event that is used twice, by two lives of a node that cannot be told apart,
    /// is recognised as different.
    hash: u64,
    is_deleted: bool,
    /// The last feed in which this was seen.
    feed: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Memory {
    paths_max: usize,
    bytes_max: usize,
    /// None after a bound was exceeded: nothing is known until everything starts over.
    delivered: Option<HashMap<Path, Delivered>>,
    bytes: usize,
    /// Oldest first; those that were written again since are skipped.
    deletions: VecDeque<(Path, u64)>,
    /// The greatest tock of a deletion that was forgotten: a version that is not remembered and not
    /// newer may be older than that deletion.
    forgotten: u64,
    /// The feed of now.
    feed: u32,
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
            feed: 0,
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

    /// Another node begins to send its state.
    pub(super) fn begin_feed(&mut self) {
        self.feed = self.feed.wrapping_add(1);
    }

    /// Compares an arriving version, and notes that the path was seen in this feed.
    pub(super) fn look(&mut self, path: &Path, entry: &Entry, is_resuming: bool) -> Look {
        let Some(delivered) = &mut self.delivered else { return Look::New };
        if is_broken(Rule::Twice) {
            return Look::New;
        }
        let Some(version) = entry.version() else { return Look::New };
        let Some(known) = delivered.get_mut(path) else {
            let may_be_older = is_resuming && version.tock <= self.forgotten;
            return if may_be_older { Look::Doubtful } else { Look::New };
        };
        known.feed = self.feed;
        match version.compare(&known.version) {
            Ordering::Greater => Look::New,
            Ordering::Less => Look::Older,
            Ordering::Equal => {
                let is_same =
                    known.is_deleted == entry.value.is_none() && known.hash == hash_of(entry);
                if is_same { Look::Known } else { Look::New }
            }
        }
    }

    /// Remembers a version that is delivered now.
    pub(super) fn on_delivered(&mut self, path: &Path, entry: &Entry) {
        let Some(version) = entry.version() else { return };
        let Some(delivered) = &mut self.delivered else { return };
        let is_deleted = entry.value.is_none();
        let tock = version.tock;
        let now = Delivered { version, hash: hash_of(entry), is_deleted, feed: self.feed };
        if delivered.insert(path.clone(), now).is_none() {
            self.bytes += path.as_bytes().len() + ENTRY_BYTES;
        }
        if is_deleted {
            self.deletions.push_back((path.clone(), tock));
            while self.deletions.len() > DELETIONS_MAX.min(self.paths_max) {
                self.forget_deletion();
            }
        }
        while self.is_full() && !self.deletions.is_empty() {
            self.forget_deletion();
        }
        if self.is_full() {
            self.clear();
            self.delivered = None;
        }
    }

    /// It is gone, and it is unknown since which version.
    pub(super) fn on_gone(&mut self, path: &Path) {
        if let Some(delivered) = &mut self.delivered
            && delivered.remove(path).is_some()
        {
            self.bytes -= path.as_bytes().len() + ENTRY_BYTES;
        }
    }

    /// The paths whose values were delivered and that were not seen in this feed.
    pub(super) fn not_seen(&self) -> impl Iterator<Item = &Path> {
        let all = self.delivered.iter().flatten();
        all.filter(|(_, known)| known.feed != self.feed && !known.is_deleted).map(|(path, _)| path)
    }

    /// The version that was delivered last.
    pub(super) fn version(&self, path: &Path) -> Option<&Version> {
        Some(&self.delivered.as_ref()?.get(path)?.version)
    }

    fn is_full(&self) -> bool {
        let count = self.delivered.as_ref().map_or(0, HashMap::len);
        count > self.paths_max || self.bytes > self.bytes_max
    }

    fn forget_deletion(&mut self) {
        let Some((path, tock)) = self.deletions.pop_front() else { return };
        let is_current = |known: &Delivered| known.is_deleted && known.version.tock == tock;
        if self.delivered.as_ref().and_then(|all| all.get(&path)).is_some_and(is_current) {
            self.forgotten = self.forgotten.max(tock);
            self.on_gone(&path);
        }
    }
}

fn hash_of(entry: &Entry) -> u64 {
    entry.value.as_ref().map_or(0, |value| xxh64(value.as_bytes(), 0))
}

#[cfg(test)]
mod vectors;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::Chain;
    use crate::model::value::Value;

    fn entry(value: Option<u8>, tock: u64, node: &str) -> Entry {
        Entry {
            value: value.map(|value| Value::new(&[value]).unwrap()),
            chain: Some(Chain::of(node, tock)),
            tock,
            time_ms: None,
            node: String::from("told"),
        }
    }

    fn path(number: i64) -> Path {
        Path::root().push(number).unwrap()
    }

    #[test]
    fn versions_are_new_known_or_older() {
        let mut memory = Memory::new(10, 10_000);
        assert_eq!(memory.look(&path(1), &entry(Some(1), 5, "a~1234"), false), Look::New);
        memory.on_delivered(&path(1), &entry(Some(1), 5, "a~1234"));
        assert_eq!(memory.look(&path(1), &entry(Some(1), 5, "a~1234"), true), Look::Known);
        assert_eq!(memory.look(&path(1), &entry(Some(1), 5, "a~1235"), true), Look::New);
        assert_eq!(memory.look(&path(1), &entry(Some(1), 5, "a~123"), true), Look::Older);
        assert_eq!(memory.look(&path(1), &entry(Some(2), 5, "a~1234"), true), Look::New);
        assert_eq!(memory.look(&path(1), &entry(Some(1), 5, "b~1"), true), Look::New);
        assert_eq!(memory.look(&path(1), &entry(Some(1), 4, "z~1"), true), Look::Older);
        memory.on_delivered(&path(1), &entry(None, 6, "a~1234"));
        assert_eq!(memory.look(&path(1), &entry(Some(1), 5, "a~1234"), true), Look::Older);
    }

    #[test]
    fn what_a_feed_does_not_show_is_found() {
        let mut memory = Memory::new(10, 10_000);
        memory.on_delivered(&path(1), &entry(Some(1), 1, "a"));
        memory.on_delivered(&path(2), &entry(Some(1), 2, "a"));
        memory.on_delivered(&path(3), &entry(None, 3, "a"));
        memory.begin_feed();
        assert_eq!(memory.look(&path(1), &entry(Some(1), 1, "a"), true), Look::Known);
        assert_eq!(memory.not_seen().collect::<Vec<_>>(), [&path(2)]);
        memory.on_gone(&path(2));
        assert_eq!(memory.not_seen().count(), 0);
    }

    #[test]
    fn forgotten_deletions_leave_doubt_and_too_many_values_end_it() {
        let mut memory = Memory::new(4, 10_000);
        for i in 0..10 {
            memory.on_delivered(&path(i), &entry(None, 100 + i as u64, "a"));
        }
        assert!(memory.is_whole());
        memory.begin_feed();
        assert_eq!(memory.look(&path(0), &entry(Some(1), 50, "a"), true), Look::Doubtful);
        assert_eq!(memory.look(&path(0), &entry(Some(1), 200, "a"), true), Look::New);
        assert_eq!(memory.look(&path(0), &entry(Some(1), 50, "a"), false), Look::New);
        for i in 0..5 {
            memory.on_delivered(&path(20 + i), &entry(Some(1), 300 + i as u64, "a"));
        }
        assert!(!memory.is_whole());
        memory.clear();
        assert!(memory.is_whole());
        let mut tight = Memory::new(1000, 400);
        for i in 0..3 {
            tight.on_delivered(&path(i), &entry(Some(1), 1, "a"));
        }
        assert!(!tight.is_whole());
    }
}

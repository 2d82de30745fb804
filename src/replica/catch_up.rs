//! RULES 3, the answering side: from one O(1) snapshot (tree, seen, mark of the same moment)
//! the entries whose newest event the asker has not seen, tombstones included; then the
//! snapshot's own knowledge, which the asker takes only when all of the data is in.

use std::sync::Arc;

use super::Replica;
use super::ring::RingWalk;
use crate::model::entry::Entry;
use crate::model::ids::{NodeTable, Tock};
use crate::model::path::Path;
use crate::model::seen::{Mark, Seen};
use crate::model::tree::{AllEntries, Tree};

/// Entries that one call of [`CatchUpStream::next_batch`] looks at, so that a walk which finds
/// nothing new still gives way to others.
const LOOK_MAX: usize = 4096;

/// Why a catch-up is not answered. The asker should turn to another node, or wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CatchUpRefusal {
    /// The answerer has applied fewer purges than the asker: it has to catch up first.
    Behind,
    /// The asker has applied fewer purges: it needs RULES 4, which this version cannot answer.
    AcrossPurge,
}

/// An answer under way. Owns its snapshot, so it outlives the guard under which it was made.
pub struct CatchUpStream {
    tree: Tree,
    table: Arc<NodeTable>,
    asker: Seen,
    source: Source,
    seen: Seen,
    mark: Mark,
    tock: Tock,
    done: bool,
}

enum Source {
    /// All that the asker lacks is among the recent changes.
    Ring(RingWalk),
    /// It may be anywhere.
    Walk(AllEntries),
}

/// A piece of the answer.
pub struct CatchUpBatch {
    /// Entries that the asker has not seen; may be empty although more is to come.
    pub entries: Vec<(Path, Entry)>,
    /// Whether this was the last piece, after which the knowledge may be sent.
    pub last: bool,
}

impl Replica {
    /// RULES 3: takes the snapshot and prepares the answer. O(nodes), not O(entries).
    ///
    /// # Errors
    /// [`CatchUpRefusal`] where a purge lies between the two.
    pub fn answer_catch_up(
        &self,
        asker_seen: &Seen,
        asker_mark: &Mark,
    ) -> Result<CatchUpStream, CatchUpRefusal> {
        if asker_mark.ahead_of(&self.mark) > Tock::default() {
            return Err(CatchUpRefusal::Behind);
        }
        if self.mark.ahead_of(asker_mark) > Tock::default() && !asker_seen.is_empty() {
            return Err(CatchUpRefusal::AcrossPurge);
        }
        let missing = self.seen.difference(asker_seen);
        let source = if self.ring.reaches(&missing) {
            Source::Ring(self.ring.snapshot())
        } else {
            Source::Walk(self.tree.all())
        };
        Ok(CatchUpStream {
            tree: self.tree.clone(),
            table: Arc::clone(&self.table),
            asker: asker_seen.clone(),
            source,
            seen: self.seen.clone(),
            mark: self.mark.clone(),
            tock: self.tock,
            done: false,
        })
    }
}

impl CatchUpStream {
    /// The next entries, about `bytes_max` bytes of them (at least one entry if there is one).
    pub fn next_batch(&mut self, bytes_max: usize) -> CatchUpBatch {
        let mut entries = Vec::new();
        let mut bytes = 0;
        for _ in 0..LOOK_MAX {
            if bytes >= bytes_max {
                return CatchUpBatch { entries, last: false };
            }
            match self.next_entry() {
                Next::Entry(path, entry) => {
                    bytes += path.as_bytes().len() + entry.memory_bytes();
                    entries.push((path, entry));
                }
                Next::Skip => {}
                Next::End => {
                    self.done = true;
                    return CatchUpBatch { entries, last: true };
                }
            }
        }
        CatchUpBatch { entries, last: false }
    }

    fn next_entry(&mut self) -> Next {
        match &mut self.source {
            Source::Ring(walk) => {
                let Some((event, path)) = walk.next() else { return Next::End };
                if self.asker.contains(event) {
                    return Next::Skip;
                }
                match self.tree.get(path.as_bytes()) {
                    // Only where it is still the newest: else the ring holds the newer one too.
                    Some(entry) if entry.newest() == event => Next::Entry(path, entry.clone()),
                    _ => Next::Skip,
                }
            }
            Source::Walk(all) => match all.next() {
                None => Next::End,
                Some((_, entry)) if self.asker.contains(entry.newest()) => Next::Skip,
                Some((path, entry)) => Next::Entry(path, entry),
            },
        }
    }

    /// The knowledge of the snapshot's moment, once the last batch was taken; none before
    /// (data before knowledge).
    #[must_use]
    pub fn knowledge(&self) -> Option<(&Seen, &Mark, Tock)> {
        self.done.then_some((&self.seen, &self.mark, self.tock))
    }

    /// The mark of the snapshot's moment.
    #[must_use]
    pub fn mark(&self) -> &Mark {
        &self.mark
    }

    /// The incarnations that the entries' events refer to.
    #[must_use]
    pub fn table(&self) -> &NodeTable {
        &self.table
    }
}

enum Next {
    Entry(Path, Entry),
    Skip,
    End,
}

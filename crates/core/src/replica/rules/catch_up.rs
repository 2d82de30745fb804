//! Replication rules 3 and 4, the answering side: everything comes from one O(1) snapshot (tree, seen, mark
//! of the same moment). First what is known, clipped to what the asker's counters leave in doubt; then the
//! entries that it says are missing there, tombstones included; then, across a purge, what has become of
//! the entries that it names.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::defects::{Defect, Defects};
use crate::model::entry::Entry;
use crate::model::ids::{NodeIndex, NodeTable, Tick, Tock};
use crate::model::path::Path;
use crate::model::seen::{Mark, Seen, SeenById};
use crate::model::seen_list::{ListAt, ListMax, export_part};
use crate::replica::Replica;
use crate::replica::across::{Knowledge, Names};
use crate::replica::ring::{RingSnapshot, RingWalk};
use crate::tree::{AllEntries, Tree, Walk};

/// Entries that one call of [`CatchUpStream::next_batch`] or [`Verdict::go_on`] looks at, so that a
/// walk which finds nothing new still gives way to others.
const LOOK_MAX: usize = 4096;

/// Entries that a walk in the order of paths looks up at once.
const WALK_BATCH: usize = 64;

/// The answerer has applied fewer purges than the asker: it has to catch up first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Behind;

/// The moment from which one asker is answered. Dropping it may take time.
pub struct CatchUpSnapshot {
    tree: Tree,
    table: Arc<NodeTable>,
    ring: RingSnapshot,
    /// What the asker is told, and adopts in the end.
    knowledge: Knowledge,
    /// The asker is behind, across a purge.
    is_across: bool,
    defects: Defects,
}

impl Replica {
    /// Replication rule 3: takes the snapshot. O(nodes), not O(entries). `contiguous`: per incarnation the
    /// tick up to which the asker has seen all.
    ///
    /// # Errors
    /// [`Behind`], unless each side is ahead of the other in some lineage (replication rule 8).
    pub(crate) fn begin_catch_up(
        &self,
        contiguous: &BTreeMap<NodeIndex, Tick>,
        asker_mark: &Mark,
    ) -> Result<CatchUpSnapshot, Behind> {
        let asker_is_behind = self.mark.ahead_of(asker_mark) > Tock::default();
        if asker_mark.ahead_of(&self.mark) > Tock::default() && !asker_is_behind {
            return Err(Behind);
        }
        // Across a purge the asker has to know of all its entries whether they were seen here.
        let seen = if asker_is_behind { self.seen.clone() } else { self.clipped(contiguous) };
        Ok(CatchUpSnapshot {
            tree: self.tree.clone(),
            table: Arc::clone(&self.table),
            ring: self.ring.snapshot(),
            knowledge: Knowledge { seen, mark: self.mark.clone(), tock: self.tock },
            is_across: asker_is_behind,
            defects: self.defects,
        })
    }

    /// What the asker's counters leave in doubt.
    fn clipped(&self, contiguous: &BTreeMap<NodeIndex, Tick>) -> Seen {
        if self.defects.has(Defect::ListOffByOne) {
            let higher = contiguous.iter().map(|(node, t)| (*node, t.next().unwrap_or(*t)));
            return self.seen.above(&higher.collect());
        }
        self.seen.above(contiguous)
    }
}

impl CatchUpSnapshot {
    /// What the asker may take over when all of the data is in, and not before.
    #[must_use]
    pub(crate) fn knowledge(&self) -> &Knowledge {
        &self.knowledge
    }

    /// The known ticks, in parts: the part that begins at `at`, and where the next one begins, if
    /// there is one.
    #[must_use]
    pub(crate) fn known_part(&self, at: ListAt, max: ListMax) -> (SeenById, Option<ListAt>) {
        let (part, next) = export_part(&self.table, &self.knowledge.seen, at, max);
        let is_clipped = self.is_across && self.defects.has(Defect::KnownClipped);
        (part, next.filter(|_| !is_clipped))
    }

    /// The incarnations that events refer to.
    #[must_use]
    pub(crate) fn table(&self) -> &NodeTable {
        &self.table
    }

    /// The entries whose newest event is among the missing ones.
    #[must_use]
    pub(crate) fn stream(self: &Arc<Self>, missing: Seen) -> CatchUpStream {
        let source = if self.ring.reaches(&missing) {
            Source::Ring(self.ring.walk())
        } else if missing.count() >= self.tree.len() as u64 / 2 {
            Source::Ordered(InOrder::of(&self.tree, &Path::root()))
        } else {
            Source::Walk(self.tree.all())
        };
        let system = Some(Box::new(InOrder::of(&self.tree, &Path::system_root())));
        CatchUpStream { snapshot: Arc::clone(self), missing, system, source }
    }

    /// Whether nothing is held at a path. A tombstone is something.
    fn is_empty_at(&self, path: &Path) -> bool {
        match self.tree.get(path.as_bytes()) {
            None => true,
            Some(entry) => entry.value().is_none() && self.defects.has(Defect::TombstoneIsEmpty),
        }
    }

    /// What has become of the entries that the asker names.
    #[must_use]
    pub(crate) fn verdict(self: &Arc<Self>, names: Names) -> Verdict {
        let empty = names
            .paths
            .iter()
            .enumerate()
            .filter(|(_, path)| self.is_empty_at(path))
            .map(|(at, _)| at)
            .collect();
        let walk = (!names.events.is_empty()).then(|| self.tree.all());
        Verdict { snapshot: Arc::clone(self), named: names.events, held: Seen::new(), walk, empty }
    }
}

enum Source {
    /// All that the asker lacks is among the recent changes.
    Ring(RingWalk),
    /// It may be anywhere.
    Walk(AllEntries),
    /// It is most of the tree. In the order of paths, which is the fastest to take in: each path is
    /// inserted after the one before it.
    Ordered(InOrder),
}

/// The entries at and below a path, in the order of paths.
struct InOrder {
    walk: Walk,
    batch: std::vec::IntoIter<(Path, Entry)>,
}

impl InOrder {
    fn of(tree: &Tree, top: &Path) -> Self {
        Self { walk: tree.walk(top), batch: Vec::new().into_iter() }
    }

    fn next(&mut self) -> Option<(Path, Entry)> {
        self.batch.next().or_else(|| {
            self.batch = self.walk.next_batch(WALK_BATCH).into_iter();
            self.batch.next()
        })
    }
}

/// The data of an answer, under way. Owns its snapshot, so it outlives the guard under which it
/// was made.
pub(crate) struct CatchUpStream {
    snapshot: Arc<CatchUpSnapshot>,
    missing: Seen,
    /// What belongs to the system comes first, until all of it has come: who was removed may do nothing any more, however much
    /// else there is to send.
    system: Option<Box<InOrder>>,
    source: Source,
}

/// A piece of the answer.
pub(crate) struct CatchUpBatch {
    /// Entries that the asker has not seen; may be empty although more is to come.
    pub(crate) entries: Vec<(Path, Entry)>,
    /// Whether this was the last piece.
    pub(crate) last: bool,
}

impl CatchUpStream {
    /// The next entries, about `bytes_max` bytes of them (at least one entry if there is one).
    pub(crate) fn next_batch(&mut self, bytes_max: usize) -> CatchUpBatch {
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
                Next::End => return CatchUpBatch { entries, last: true },
            }
        }
        CatchUpBatch { entries, last: false }
    }

    fn next_entry(&mut self) -> Next {
        if let Some(system) = &mut self.system {
            match Next::of(system.next(), &self.missing) {
                Next::End => self.system = None,
                next => return next,
            }
        }
        match self.next_of_source() {
            // It has come.
            Next::Entry(path, _) if path.is_system() => Next::Skip,
            next => next,
        }
    }

    fn next_of_source(&mut self) -> Next {
        match &mut self.source {
            Source::Ring(walk) => {
                let Some((event, path)) = walk.next_change() else { return Next::End };
                if !self.missing.contains(event) {
                    return Next::Skip;
                }
                match self.snapshot.tree.get_with_path(path) {
                    // Only if it is still the newest; otherwise the ring also holds the newer one.
                    Some((path, entry)) if entry.newest() == event => {
                        Next::Entry(path.clone(), entry.clone())
                    }
                    _ => Next::Skip,
                }
            }
            Source::Walk(all) => Next::of(all.next(), &self.missing),
            Source::Ordered(all) => Next::of(all.next(), &self.missing),
        }
    }

    /// The moment that the entries are of.
    #[must_use]
    pub(crate) fn snapshot(&self) -> &Arc<CatchUpSnapshot> {
        &self.snapshot
    }
}

enum Next {
    Entry(Path, Entry),
    Skip,
    End,
}

impl Next {
    fn of(next: Option<(Path, Entry)>, missing: &Seen) -> Self {
        match next {
            None => Self::End,
            Some((_, entry)) if !missing.contains(entry.newest()) => Self::Skip,
            Some((path, entry)) => Self::Entry(path, entry),
        }
    }
}

/// Replication rule 4, the answer to what the asker names, under way.
pub(crate) struct Verdict {
    snapshot: Arc<CatchUpSnapshot>,
    named: Seen,
    held: Seen,
    walk: Option<AllEntries>,
    empty: Vec<usize>,
}

impl Verdict {
    /// Looks at some more entries; returns whether all have been looked at.
    pub(crate) fn go_on(&mut self) -> bool {
        let Some(walk) = &mut self.walk else { return true };
        for _ in 0..LOOK_MAX {
            let Some((_, entry)) = walk.next() else {
                self.walk = None;
                return true;
            };
            if self.named.contains(entry.newest()) {
                self.held.insert(entry.newest());
            }
        }
        false
    }

    /// The named events that are no entry's newest here, once all is looked at.
    #[must_use]
    pub(crate) fn gone(&self) -> Seen {
        self.named.difference(&self.held)
    }

    /// The places in the list of named paths where nothing is held.
    #[must_use]
    pub(crate) fn empty(&self) -> &[usize] {
        &self.empty
    }

    /// The moment that the answer is of.
    #[must_use]
    pub(crate) fn snapshot(&self) -> &Arc<CatchUpSnapshot> {
        &self.snapshot
    }
}

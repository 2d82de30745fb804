//! Replication rule 4, the asking side, and the end of replication rule 3: what a node does when the whole
//! stream is in. Across a purge (this node, X, is behind the answerer, S) it names the entries that S may
//! have purged, and with S's answers takes one step on its tree and mark of that moment.

use std::collections::BTreeMap;

use crate::model::defects::{Defect, Defects};
use crate::model::entry::Entry;
use crate::model::ids::Tock;
use crate::model::invariant::{COSTLY, costly_invariant, invariant};
use crate::model::path::Path;
use crate::model::seen::{Mark, Seen};
use crate::replica::apply::Conflict;
use crate::replica::{Committed, Replica};

/// What the answerer had at the snapshot's moment: taken over only when all its data is in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Knowledge {
    /// What it had accounted for. Across a purge all of it; otherwise at least what the asker had
    /// not accounted for.
    pub seen: Seen,
    /// How far it had applied purges.
    pub mark: Mark,
    /// Its tock.
    pub tock: Tock,
}

/// Entries of the asker that the answerer may have purged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Names {
    /// Newest events that the answerer has seen: does it still hold them?
    pub(crate) events: Seen,
    /// Paths of entries that the answerer has not seen: does it hold anything there?
    pub(crate) paths: Vec<Path>,
}

/// How many names go into one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamesMax {
    /// Most events: their answer may need a range for each second of them.
    pub events: u64,
    /// Most paths.
    pub paths: usize,
    /// Most bytes of paths, about.
    pub bytes: usize,
}

/// What the answerer has said of the asker's entries, all from the same snapshot.
#[derive(Clone, Default, Debug)]
pub(crate) struct Answers {
    events: Seen,
    gone: Seen,
    /// By path, whether the answerer holds anything there.
    paths: BTreeMap<Path, bool>,
}

impl Answers {
    /// Takes in the answer to some names: the events that the answerer does not hold any more,
    /// and the places in `names.paths` where it holds nothing.
    pub(crate) fn take(&mut self, names: &Names, gone: &Seen, empty: &[usize]) {
        self.events.union_with(&names.events);
        self.gone.union_with(gone);
        self.paths.extend(names.paths.iter().map(|path| (path.clone(), true)));
        for path in empty.iter().filter_map(|at| names.paths.get(*at)) {
            self.paths.insert(path.clone(), false);
        }
    }
}

/// What replication rule 4 says of one entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Stays,
    /// 4a: it was purged there.
    Dropped,
    /// 4b: it was changed here while cut off.
    Reissued,
    /// The answerer was not asked about it: it came since.
    Unanswered,
}

/// What the step did.
#[derive(Debug, Default)]
pub(crate) struct Across {
    /// Entries that are gone without an event, tombstones and values (replication rule 4a).
    pub(crate) dropped: Vec<Committed>,
    /// Re-issues (replication rule 4b). If there are any, the answerer must catch up from this node at
    /// once, before the re-issues are pushed to others (replication rule 4d).
    pub(crate) reissued: Vec<Committed>,
    /// Of the re-issues those that undo a deletion which was purged at the answerer.
    pub(crate) conflicts: Vec<Conflict>,
}

/// Why the step was not taken. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcrossFailure {
    /// There are entries about which the answerer must be asked (again).
    Unanswered,
    /// This node's mark has risen above the answerer's meanwhile: the stream is given up.
    Overtaken,
    /// Re-issues are needed, and this node cannot make events now.
    NoEvent,
}

fn fate(
    entry: &Entry,
    path: &Path,
    purged_below: Tock,
    their: &Seen,
    answers: &Answers,
    defects: Defects,
) -> Fate {
    let newest = entry.newest();
    if entry.tock() > purged_below {
        return Fate::Stays;
    }
    if their.contains(newest) {
        return match (answers.gone.contains(newest), answers.events.contains(newest)) {
            (true, _) if defects.has(Defect::NoDrop) => Fate::Stays,
            (true, _) => Fate::Dropped,
            (false, true) => Fate::Stays,
            (false, false) => Fate::Unanswered,
        };
    }
    match answers.paths.get(path) {
        Some(true) => Fate::Stays,
        Some(false) if defects.has(Defect::NoReissue) => Fate::Stays,
        Some(false) if defects.has(Defect::DropUnseen) => Fate::Dropped,
        Some(false) => Fate::Reissued,
        None => Fate::Unanswered,
    }
}

/// What is dropped (replication rule 4a), and what is re-issued (4b), each with whether its origin
/// was seen there.
type Doomed = (Vec<Path>, Vec<(Path, bool)>);

impl Replica {
    /// Replication rule 4: names entries with tock <= hi(S, X) that were not answered yet, up to
    /// the given limit. Walks the tree.
    #[must_use]
    pub(crate) fn name_unanswered(
        &self,
        their: &Knowledge,
        answers: &Answers,
        max: NamesMax,
    ) -> Names {
        let purged_below = self.purged_below(their);
        let mut names = Names::default();
        if purged_below == Tock::default() {
            return names;
        }
        let (mut events, mut bytes) = (0, 0);
        for (path, entry) in self.tree.all() {
            if fate(&entry, &path, purged_below, &their.seen, answers, self.defects)
                != Fate::Unanswered
            {
                continue;
            }
            if their.seen.contains(entry.newest()) {
                if events < max.events {
                    events += u64::from(names.events.insert(entry.newest()));
                }
            } else if names.paths.len() < max.paths && bytes < max.bytes {
                bytes += path.as_bytes().len();
                names.paths.push(path);
            }
        }
        names
    }

    /// Replication rules 3 and 4, the step at the end: when the whole stream is in, none of it refused.
    ///
    /// # Errors
    /// [`AcrossFailure`]; nothing was changed.
    pub(crate) fn step_across(
        &mut self,
        their: &Knowledge,
        answers: &Answers,
    ) -> Result<Across, AcrossFailure> {
        let purged_below = self.check_not_overtaken(their)?;
        let mut across = Across::default();
        if purged_below > Tock::default() {
            let (drops, reissues) = self.doomed(their, purged_below, answers)?;
            across = self.drop_and_reissue(their, drops, reissues)?;
        }
        self.take_knowledge(their);
        Ok(across)
    }

    /// hi(S, X) of this moment, unless only this node is ahead.
    pub(super) fn check_not_overtaken(&self, their: &Knowledge) -> Result<Tock, AcrossFailure> {
        let purged_below = self.purged_below(their);
        let is_behind = purged_below > Tock::default();
        if !is_behind && self.mark.ahead_of(&their.mark) > Tock::default() {
            return Err(AcrossFailure::Overtaken);
        }
        Ok(purged_below)
    }

    /// Replication rule 4c.
    pub(in crate::replica) fn take_knowledge(&mut self, their: &Knowledge) {
        self.check_own_seen(&their.seen);
        self.seen.union_with(&their.seen);
        let before = COSTLY.then(|| self.mark.clone());
        self.mark.raise_all(&their.mark);
        self.deleted_here.begin_state();
        costly_invariant!(
            before.is_none_or(|before| before.ahead_of(&self.mark) == Tock::default()),
            "a mark never goes back"
        );
        if !self.defects.has(Defect::TockNotRaised) {
            self.hear_tock(their.tock.max(self.mark.top()));
            invariant!(self.mark.top() <= self.tock, "the own tock is at least the mark");
        }
    }

    /// hi(S, X) of this moment.
    pub(super) fn purged_below(&self, their: &Knowledge) -> Tock {
        if self.defects.has(Defect::MarkBeforeEnd) {
            return their.mark.top();
        }
        their.mark.ahead_of(&self.mark)
    }

    /// For planted defects only: what replication rule 3 forbids.
    pub(crate) fn see_without_data(&mut self, seen: &Seen) {
        self.seen.union_with(seen);
    }

    /// For planted defects only: what replication rule 3 forbids.
    pub(crate) fn raise_mark_early(&mut self, mark: &Mark) {
        self.mark.raise_all(mark);
    }

    /// Replication rule 6: here S is the side where the path is empty.
    pub(super) fn is_origin_seen(entry: &Entry, their: &Knowledge) -> bool {
        entry.reissue_of().is_some_and(|origin| their.seen.contains(origin))
    }

    /// What replication rules 4a and 4b are about. Walks the tree.
    fn doomed(
        &self,
        their: &Knowledge,
        purged_below: Tock,
        answers: &Answers,
    ) -> Result<Doomed, AcrossFailure> {
        let (mut drops, mut reissues) = (Vec::new(), Vec::new());
        for (path, entry) in self.tree.all() {
            match fate(&entry, &path, purged_below, &their.seen, answers, self.defects) {
                Fate::Stays => {}
                Fate::Dropped => drops.push(path),
                Fate::Reissued => reissues.push((path, Self::is_origin_seen(&entry, their))),
                Fate::Unanswered => return Err(AcrossFailure::Unanswered),
            }
        }
        Ok((drops, reissues))
    }

    /// Replication rules 4a and 4b, carried out. A re-issue is given with whether its origin was seen
    /// there.
    pub(super) fn drop_and_reissue(
        &mut self,
        their: &Knowledge,
        mut drops: Vec<Path>,
        mut reissues: Vec<(Path, bool)>,
    ) -> Result<Across, AcrossFailure> {
        let floor = self.mark.top().max(their.mark.top());
        if !reissues.is_empty() && !self.can_reissue(reissues.len(), floor) {
            return Err(AcrossFailure::NoEvent);
        }
        // The order of a hash map must not decide about ticks.
        drops.sort_unstable();
        reissues.sort_unstable();
        let dropped = drops.iter().map(|path| self.drop_entry(path)).collect();
        let mut across = Across { dropped, ..Across::default() };
        self.deleted_here.begin_state();
        for (path, origin_seen) in &reissues {
            // What S has seen and does not hold was deleted there.
            let old = self.tree.get(path.as_bytes());
            let deleted = old.and_then(|old| self.deletion_undone_by(old, &their.seen));
            self.deleted_here.note(path, &their.seen);
            let committed = self.reissue(path, floor, *origin_seen);
            if let Some(deleted) = deleted
                && !committed.entry.is_tombstone()
            {
                let conflict = Conflict::undone(path, &committed.entry, deleted, false);
                across.conflicts.push(conflict);
            }
            across.reissued.push(committed);
        }
        Ok(across)
    }
}

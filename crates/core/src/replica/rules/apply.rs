//! Replication rule 2, carried out: takes in a version that was pushed or streamed.

use crate::model::chain::Chain;
use crate::model::defects::Defect;
use crate::model::entry::{Entry, EntryParts};
use crate::model::ids::{Event, Tock};
use crate::model::invariant::{OrBroken, invariant};
use crate::model::left_out::{LeftOut, accounted_events};
use crate::model::path::Path;
use crate::model::seen::{Mark, Seen};
use crate::replica::decide::{
    ApplyDecision, decide_apply, undone_by, undone_over, was_made_over_deletion_of,
};
use crate::replica::{Committed, Replica};

/// Whoever needs an event asks whether there is one before anything is accounted for.
const ASKED: &str = "an event that was asked for can be made";

/// What became of a version that arrived.
#[must_use]
#[derive(Debug)]
pub enum Applied {
    /// Its newest event was accounted for already. Not an error: gossip repeats itself.
    AlreadyKnown,
    /// It is at or below a purge that this node has applied and the sender had not. It stays
    /// unseen; a stream that holds it is aborted. Nothing was changed.
    Refused,
    /// It was accounted for and lost to the version in hand, which had superseded it.
    Superseded,
    /// It was accounted for, and the tree changed.
    Taken(Committed),
    /// The tree changed because the greater version only re-issued what the other had
    /// overwritten, or was another copy of that write: this node made a new event that puts the
    /// other on top again. Or a copy of a write came to an empty path that had been seen here,
    /// and so was deleted: then the event is a deletion. It must be pushed like a change of its own.
    /// If there is a conflict, it undoes a deletion.
    OnTopAgain(Committed, Option<Box<Conflict>>),
    /// It came to an empty path from a sender on another lineage, and this node re-issued it on
    /// the sender's behalf (replication rule 8). The re-issue is what is in the tree; if there is a
    /// conflict, it undoes a deletion.
    Reissued(Committed, Option<Box<Conflict>>),
    /// It was accounted for, and one of the two versions lost without having been superseded; or
    /// it undoes a deletion that was purged here. Both must be reported.
    Conflict(Box<Conflict>),
}

/// Two versions, neither of which knew the other. Of a deletion that was purged there is nothing
/// left to show: see [`Conflict::undone`].
#[derive(Clone, Debug)]
pub struct Conflict {
    /// Where.
    pub path: Path,
    /// The greater version, which stays.
    pub winner: Entry,
    /// The lesser version, which is gone.
    pub loser: Entry,
    /// Whether the version that arrived is the winner, so that the tree changed.
    pub took_theirs: bool,
}

impl Conflict {
    /// A version that came to a path on top of an event that had been deleted and purged
    /// there. The loser stands for that deletion: a tombstone with the tock 0, which no entry has,
    /// and a cut chain of the event that was deleted.
    pub(in crate::replica) fn undone(
        path: &Path,
        winner: &Entry,
        deleted: Event,
        took_theirs: bool,
    ) -> Self {
        let chain = Chain::from_events([deleted], true);
        let chain = chain.or_broken("one event is a chain");
        let loser = Entry::new(&EntryParts {
            value: None,
            chain: &chain,
            tock: Tock::default(),
            origin: None,
            time: None,
            extra: &[],
        });
        Self { path: path.clone(), winner: winner.clone(), loser, took_theirs }
    }

    /// Whether what lost is a deletion that was purged.
    #[must_use]
    pub fn is_undone_deletion(&self) -> bool {
        self.loser.tock() == Tock::default()
    }
}

impl Replica {
    /// Replication rule 2 for one version, which came from a node whose mark at the moment of sending was
    /// `sender_mark`.
    pub fn apply(&mut self, path: &Path, theirs: &Entry, sender_mark: &Mark) -> Applied {
        if self.seen.contains(theirs.newest()) {
            return Applied::AlreadyKnown;
        }
        let purged_below = self.mark.ahead_of(sender_mark);
        let is_below = purged_below > Tock::default() && theirs.tock() <= purged_below;
        if is_below && !self.defects.has(Defect::PushNotRefused) {
            self.check_own_chain(theirs);
            return Applied::Refused;
        }
        self.apply_unrefused(path, theirs)
    }

    pub(super) fn check_own_chain(&mut self, entry: &Entry) {
        for event in entry.events() {
            self.check_own(event);
        }
    }

    /// Replication rule 2 for a version that was not seen, and whose tock is no reason to refuse
    /// it.
    pub(super) fn apply_unrefused(&mut self, path: &Path, theirs: &Entry) -> Applied {
        self.check_own_chain(theirs);
        // Also of one that loses or is refused: it was made, and must not be made again.
        self.write_ids.note(path, theirs);
        let spot = self.tree.find(path.as_bytes(), None);
        let Some((kept, ours)) = self.tree.get_at(&spot).map(|(p, e)| (p.clone(), e.clone()))
        else {
            if self.is_deleted_copy(path, theirs) {
                if self.next_event_above(theirs.tock()).is_some() {
                    return self.delete_copy(path, theirs);
                }
                if self.usurped {
                    return Applied::Refused;
                }
            }
            let deleted = self.deletion_undone_by(theirs, &self.seen);
            if theirs.reissue_of().is_some() {
                self.deleted_here.note(path, &self.seen);
            }
            self.account_for_theirs(theirs);
            let taken = self.commit_at(&spot, path.clone(), theirs.clone()).0;
            return match deleted {
                Some(deleted) => {
                    Applied::Conflict(Box::new(Conflict::undone(path, theirs, deleted, true)))
                }
                None => Applied::Taken(taken),
            };
        };
        let mut decision = self.decide(path, &ours, theirs);
        if decision.makes_an_event() && self.next_event_above(theirs.tock()).is_none() {
            if self.usurped {
                // Not now: it stays unseen, and comes again when this node has a new identity.
                return Applied::Refused;
            }
            // Never again: this node is going, or its counters are used up.
            decision = decision.without_event();
        }
        let deleted = self.deletion_undone_over(path, &ours, theirs, decision);
        self.account_for_theirs(theirs);
        match decision {
            ApplyDecision::TakeTheirs => {
                // With the path that is in the tree: so that of the message is freed at once.
                let (committed, old) = self.commit_at(&spot, kept, theirs.clone());
                self.room = old;
                match deleted {
                    Some(deleted) => {
                        Applied::Conflict(Box::new(Conflict::undone(path, theirs, deleted, true)))
                    }
                    None => Applied::Taken(committed),
                }
            }
            ApplyDecision::KeepOurs => Applied::Superseded,
            ApplyDecision::ConflictTakeTheirs => {
                self.commit(path.clone(), theirs.clone());
                Self::conflict(path, theirs, &ours, true)
            }
            ApplyDecision::ConflictKeepOurs => Self::conflict(path, &ours, theirs, false),
            ApplyDecision::PutOursOnTop => {
                Applied::OnTopAgain(self.put_on_top(path, &ours, theirs), None)
            }
            ApplyDecision::PutTheirsOnTop => {
                let committed = self.put_on_top(path, theirs, &ours);
                let undone = |event| Conflict::undone(path, &committed.entry, event, false);
                let deleted = deleted.filter(|_| !committed.entry.is_tombstone());
                let conflict = deleted.map(undone).map(Box::new);
                Applied::OnTopAgain(committed, conflict)
            }
        }
    }

    fn account_for_theirs(&mut self, theirs: &Entry) {
        for event in accounted_events(theirs) {
            self.seen.insert(event);
        }
        self.hear_tock(theirs.tock());
    }

    /// See [`undone_by`].
    pub(super) fn deletion_undone_by(&self, version: &Entry, seen: &Seen) -> Option<Event> {
        if self.defects.has(Defect::UndoneInSilence) { None } else { undone_by(version, seen) }
    }

    /// See [`undone_over`]: where theirs stays, or is put on top, and nothing is reported as yet.
    fn deletion_undone_over(
        &self,
        path: &Path,
        ours: &Entry,
        theirs: &Entry,
        decision: ApplyDecision,
    ) -> Option<Event> {
        let stays = matches!(decision, ApplyDecision::TakeTheirs | ApplyDecision::PutTheirsOnTop);
        if !stays || self.defects.has(Defect::UndoneInSilence) {
            return None;
        }
        undone_over(ours, theirs, self.deleted_here.seen_at(path)?)
    }

    /// Whether a version that comes to an empty path is a copy of a write that was seen here: then that
    /// was deleted.
    fn is_deleted_copy(&self, path: &Path, theirs: &Entry) -> bool {
        let is_seen = |event| self.seen.contains(event);
        !theirs.is_tombstone() && self.write_ids.copies_of(path, theirs).into_iter().any(is_seen)
    }

    /// Replication rule 2, a copy at an empty path: a plain tombstone on top of it.
    fn delete_copy(&mut self, path: &Path, theirs: &Entry) -> Applied {
        self.account_for_theirs(theirs);
        Applied::OnTopAgain(self.put_tombstone_on(path, theirs), None)
    }

    /// A plain tombstone on top of a copy of a write. The own tock is at least the copy's.
    fn put_tombstone_on(&mut self, path: &Path, copy: &Entry) -> Committed {
        let (event, tock) = self.next_event().or_broken(ASKED);
        let chain = copy.chain().extended(event, self.chain_bound);
        let left_out = LeftOut::on_top_of(copy, event, self.chain_bound);
        let extra = &left_out.put_into(&[])[..];
        let parts =
            EntryParts { value: None, chain: &chain, tock, origin: None, time: None, extra };
        self.account_for_own(event, tock, &chain);
        self.commit(path.clone(), Entry::new(&parts))
    }

    fn decide(&self, path: &Path, ours: &Entry, theirs: &Entry) -> ApplyDecision {
        if self.defects.has(Defect::TiesByArrival) && ours.tock() == theirs.tock() {
            return ApplyDecision::ConflictTakeTheirs;
        }
        let copies = |entry: &Entry| self.write_ids.copies_of(path, entry);
        let decision = decide_apply(ours, theirs, &self.table, copies);
        let are_too_many = match decision {
            ApplyDecision::PutOursOnTop => self.tops.are_too_many(Self::top_pair(ours, theirs)),
            ApplyDecision::PutTheirsOnTop => self.tops.are_too_many(Self::top_pair(theirs, ours)),
            _ => false,
        };
        if are_too_many { decision.without_event() } else { decision }
    }

    fn conflict(path: &Path, winner: &Entry, loser: &Entry, took_theirs: bool) -> Applied {
        Applied::Conflict(Box::new(Conflict {
            path: path.clone(),
            winner: winner.clone(),
            loser: loser.clone(),
            took_theirs,
        }))
    }

    /// By what it is counted how often the lesser one was put on top of the greater one: their origins. Where a tombstone
    /// is put there instead, which is a new origin each time, by that of the lesser one alone.
    fn top_pair(lesser: &Entry, greater: &Entry) -> (Event, Event) {
        let is_deleted = was_made_over_deletion_of(greater, lesser);
        (lesser.origin(), if is_deleted { lesser } else { greater }.origin())
    }

    /// Replication rule 2, "on top again": a new event, then w's newest, then l's chain; l's value and
    /// origin; tock = max(own tock, w's, l's) + 1. Where w's maker knew that l had been deleted, a tombstone on w.
    fn put_on_top(&mut self, path: &Path, lesser: &Entry, greater: &Entry) -> Committed {
        self.hear_tock(greater.tock().max(lesser.tock()));
        self.tops.note(Self::top_pair(lesser, greater));
        if was_made_over_deletion_of(greater, lesser) {
            return self.put_tombstone_on(path, greater);
        }
        let (event, tock) = self.next_event().or_broken(ASKED);
        // As if the greater one had been made on top of the lesser: so no node takes them for
        // versions that do not know each other, or puts the greater one on top once more.
        let extended = |old: &Entry, event, tock| {
            let left_out = LeftOut::on_top_of(old, event, self.chain_bound);
            Entry::new(&EntryParts {
                value: lesser.value(),
                chain: &old.chain().extended(event, self.chain_bound),
                tock,
                origin: Some(lesser.origin()),
                // That of the value, which stays: nobody has changed it.
                time: lesser.time(),
                extra: &left_out.put_into(lesser.extra()),
            })
        };
        let entry = extended(&extended(lesser, greater.newest(), greater.tock()), event, tock);
        let chain = entry.chain();
        self.account_for_own(event, tock, &chain);
        self.commit(path.clone(), entry)
    }

    /// The event and tock that this node's next change would have; `None` when a counter is
    /// used up or the identity is in doubt. Nothing is changed.
    pub(super) fn next_event(&self) -> Option<(Event, Tock)> {
        self.next_event_above(Tock::default())
    }

    /// The same where the change's tock must be above another one, too.
    pub(super) fn next_event_above(&self, other: Tock) -> Option<(Event, Tock)> {
        if self.usurped || self.is_stopped {
            return None;
        }
        let tock = self.tock.max(other).next()?;
        Some((Event { node: self.own, tick: self.tick.next()? }, tock))
    }

    /// Takes the event and tock into use.
    pub(super) fn account_for_own(&mut self, event: Event, tock: Tock, chain: &Chain) {
        invariant!(event.node == self.own, "an event that is made here is of this life");
        invariant!(self.tick.next() == Some(event.tick), "own ticks are used one after the other");
        invariant!(self.tock <= tock, "the own tock never goes back");
        self.tick = event.tick;
        self.tock = tock;
        let is_new = self.seen.insert(event);
        invariant!(is_new || !self.is_sound(), "no event is made twice");
        for event in chain.events() {
            self.seen.insert(*event);
        }
    }
}

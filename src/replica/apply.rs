//! RULES 2, carried out: takes in a version that was pushed or streamed.

use super::decide::{ApplyDecision, decide_apply};
use super::{Committed, Replica};
use crate::model::chain::Chain;
use crate::model::defects::Defect;
use crate::model::entry::{Entry, EntryParts};
use crate::model::ids::{Event, Tock};
use crate::model::path::Path;
use crate::model::seen::Mark;

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
    /// overwritten: this node made a new event that puts the other on top again. It must be
    /// pushed like a change of its own.
    OnTopAgain(Committed),
    /// It came to an empty path from a sender on another lineage, and this node re-issued it on
    /// the sender's behalf (RULES 8). The re-issue is what is in the tree.
    Reissued(Committed),
    /// It was accounted for, and one of the two versions lost without having been superseded.
    /// Both must be reported.
    Conflict(Box<Conflict>),
}

/// Two versions, neither of which knew the other.
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

impl Replica {
    /// RULES 2 for one version, which came from a node whose mark at the moment of sending was
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

    /// RULES 2 for a version that was not seen, where refusing is out of the question.
    pub(super) fn apply_unrefused(&mut self, path: &Path, theirs: &Entry) -> Applied {
        self.check_own_chain(theirs);
        for event in theirs.events() {
            self.seen.insert(event);
        }
        self.hear_tock(theirs.tock());
        // Also of one that loses: it was made, and must not be made again.
        self.write_ids.note(path, theirs);
        let spot = self.tree.find(path.as_bytes(), None);
        let Some((kept, ours)) = self.tree.get_at(&spot).map(|(p, e)| (p.clone(), e.clone()))
        else {
            return Applied::Taken(self.commit_at(&spot, path.clone(), theirs.clone()).0);
        };
        match self.decide(&ours, theirs) {
            ApplyDecision::TakeTheirs => {
                // With the path that is in the tree: so that of the message is freed at once.
                let (committed, old) = self.commit_at(&spot, kept, theirs.clone());
                self.room = old;
                Applied::Taken(committed)
            }
            ApplyDecision::KeepOurs => Applied::Superseded,
            ApplyDecision::ConflictTakeTheirs => {
                self.commit(path.clone(), theirs.clone());
                Self::conflict(path, theirs, &ours, true)
            }
            ApplyDecision::ConflictKeepOurs => Self::conflict(path, &ours, theirs, false),
            ApplyDecision::PutOursOnTop => self.put_on_top(path, &ours, theirs.tock()),
            ApplyDecision::PutTheirsOnTop => self.put_on_top(path, theirs, ours.tock()),
        }
    }

    fn decide(&self, ours: &Entry, theirs: &Entry) -> ApplyDecision {
        if self.defects.has(Defect::TiesByArrival) && ours.tock() == theirs.tock() {
            return ApplyDecision::ConflictTakeTheirs;
        }
        decide_apply(ours, theirs, &self.table)
    }

    fn conflict(path: &Path, winner: &Entry, loser: &Entry, took_theirs: bool) -> Applied {
        Applied::Conflict(Box::new(Conflict {
            path: path.clone(),
            winner: winner.clone(),
            loser: loser.clone(),
            took_theirs,
        }))
    }

    /// RULES 2, "on top again": a new event, then l's chain; l's value and origin; tock =
    /// max(own tock, w's, l's) + 1.
    fn put_on_top(&mut self, path: &Path, lesser: &Entry, greater_tock: Tock) -> Applied {
        self.hear_tock(greater_tock);
        self.hear_tock(lesser.tock());
        let Some((event, tock)) = self.next_event() else {
            // The counters are used up (2^62): nothing can be made here any more; the version
            // stays as it is, and another node will put it on top.
            return Applied::Superseded;
        };
        let chain = lesser.chain().extended(event, self.chain_bound);
        let entry = Entry::new(&EntryParts {
            value: lesser.value(),
            chain: &chain,
            tock,
            origin: Some(lesser.origin()),
            extra: lesser.extra(),
        });
        self.account_for_own(event, tock, &chain);
        Applied::OnTopAgain(self.commit(path.clone(), entry))
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
        self.tick = event.tick;
        self.tock = tock;
        for event in chain.events() {
            self.seen.insert(*event);
        }
    }
}

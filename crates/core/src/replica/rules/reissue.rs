//! Replication rule 6: a re-issue, a new event on top of an old entry, which carries an old value across a
//! purge; and replication rule 8, "on its behalf": the same for an entry of a sender that stands on another
//! lineage.

use crate::model::defects::Defect;
use crate::model::entry::{Entry, EntryParts};
use crate::model::ids::{Event, Tick, Tock};
use crate::model::invariant::{OrBroken, invariant};
use crate::model::left_out::LeftOut;
use crate::model::path::Path;
use crate::model::seen::Mark;
use crate::model::write_id::WriteId;
use crate::replica::apply::{Applied, Conflict};
use crate::replica::{Committed, Replica};

impl Replica {
    /// Replication rule 6 for the entry at a path: same value and origin, tock = max(`floor`, the old
    /// tock) + 1, where `floor` is the greatest component of all marks of both sides.
    ///
    /// `origin_seen`: the side where the path is empty has seen the entry's origin. Then a value
    /// that is itself a re-issue was deleted there, and a plain tombstone is written instead.
    ///
    /// There is an entry, and the event can be made ([`Replica::can_reissue`]).
    pub(in crate::replica) fn reissue(
        &mut self,
        path: &Path,
        floor: Tock,
        origin_seen: bool,
    ) -> Committed {
        let old = self.tree.get(path.as_bytes()).or_broken("what is re-issued is held").clone();
        let (event, _) = self.next_event().or_broken("a re-issue that was asked for can be made");
        let tock = floor.max(old.tock()).next();
        let tock = tock.or_broken("a re-issue that was asked for can be made");
        let dies = !old.is_tombstone()
            && old.reissue_of().is_some()
            && origin_seen
            && !self.defects.has(Defect::ReissueOutlivesDeletion);
        let names_origin = !dies && !self.defects.has(Defect::ReissueWithoutOrigin);
        let chain = old.chain().extended(event, self.chain_bound);
        let left_out = LeftOut::on_top_of(&old, event, self.chain_bound);
        // The deletion is not what the client with that id wrote.
        let without_id = if dies { Some(WriteId::taken_out_of(old.extra())) } else { None };
        let entry = Entry::new(&EntryParts {
            value: if dies { None } else { old.value() },
            chain: &chain,
            tock,
            origin: names_origin.then(|| old.origin()),
            // A re-issue is no change that anybody made: it tells when its value was set.
            time: if dies { None } else { old.time() },
            extra: &left_out.put_into(without_id.as_deref().unwrap_or(old.extra())),
        });
        self.account_for_own(event, self.tock.max(tock), &chain);
        self.commit(path.clone(), entry)
    }

    /// Whether so many re-issues can be made, of entries whose tocks are at most `floor`.
    pub(super) fn can_reissue(&self, count: usize, floor: Tock) -> bool {
        let Some(above) = floor.next() else { return false };
        let has_tock = self.tock.max(above).next().is_some();
        let last = u64::try_from(count).ok().and_then(|count| self.tick.get().checked_add(count));
        has_tock && last.and_then(Tick::new).is_some() && self.can_make_events()
    }

    /// Replication rule 8: a streamed entry of a sender that is behind this node in some lineage,
    /// and ahead in another; also replication rule 9 for an entry of a file. It is never refused.
    /// If it wins at an empty path with a tock at or below the purges that the sender has not
    /// applied, this node re-issues it on the sender's behalf.
    pub(crate) fn apply_on_behalf(
        &mut self,
        path: &Path,
        theirs: &Entry,
        sender_mark: &Mark,
    ) -> Applied {
        if self.seen.contains(theirs.newest()) {
            return Applied::AlreadyKnown;
        }
        // First of all: a node that meets its own identity here can make no event, and must not be
        // left with an entry that needs a re-issue.
        self.check_own_chain(theirs);
        let purged_below = self.mark.ahead_of(sender_mark);
        let was_empty = self.tree.get(path.as_bytes()).is_none();
        // This side is the one where the path is empty; what it had seen before counts.
        let origin_seen = theirs.reissue_of().is_some_and(|origin| self.seen.contains(origin));
        let reissues = was_empty && theirs.tock() <= purged_below;
        if reissues && !self.can_reissue(1, self.mark.top()) {
            return Applied::Refused;
        }
        if reissues {
            self.deleted_here.note(path, &self.seen);
        }
        let applied = self.apply_unrefused(path, theirs);
        // If nothing was there, the conflict is that a deletion was undone.
        let is_in = matches!(applied, Applied::Taken(_) | Applied::Conflict(_));
        if reissues && is_in {
            let committed = self.reissue(path, self.mark.top(), origin_seen);
            let conflict = match applied {
                Applied::Conflict(conflict) if !committed.entry.is_tombstone() => {
                    let winner = committed.entry.clone();
                    Some(Box::new(Conflict { winner, ..*conflict }))
                }
                _ => None,
            };
            return Applied::Reissued(committed, conflict);
        }
        applied
    }

    /// Whether this node can make events now; not while its identity is in doubt.
    #[must_use]
    pub(crate) fn can_make_events(&self) -> bool {
        self.next_event().is_some()
    }

    /// Accounts for an event that is no entry's (see [`Replica::burn_event`]).
    pub(crate) fn account_for(&mut self, event: Event) {
        self.check_own(event);
        self.seen.insert(event);
    }

    /// Uses up a tick for something that is no entry (a new lineage's name, replication rule 7): the event
    /// is superseded from the start. `None`, and nothing is changed, where none can be made.
    pub(crate) fn burn_event(&mut self) -> Option<Event> {
        let (event, _) = self.next_event()?;
        self.tick = event.tick;
        let is_new = self.seen.insert(event);
        invariant!(is_new || !self.is_sound(), "no event is made twice");
        Some(event)
    }
}

//! Replication rule 2, the choice: which of two versions stays, and what becomes of the lesser one. Pure:
//! nothing is changed here; [`crate::replica::apply`] carries it out.

use std::cmp::Ordering;

use crate::model::entry::Entry;
use crate::model::ids::{Event, NodeTable};
use crate::model::left_out::LeftOut;
use crate::model::seen::Seen;
use crate::model::write_id::WriteId;
use crate::replica::write_ids::Copies;

/// What to do with a version that arrived for a path that already has one.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ApplyDecision {
    /// Theirs is greater and supersedes ours (or has the same origin): take it.
    TakeTheirs,
    /// Ours is greater and supersedes theirs (or has the same origin): keep it.
    KeepOurs,
    /// Theirs is greater, and its chain lacks ours: take it and report the conflict.
    ConflictTakeTheirs,
    /// Ours is greater, and its chain lacks theirs: keep it and report the conflict.
    ConflictKeepOurs,
    /// Theirs is greater, but only re-issues what ours had overwritten: put ours on top again.
    PutOursOnTop,
    /// Ours is greater, but only re-issues what theirs had overwritten: put theirs on top.
    PutTheirsOnTop,
}

/// Replication rule 2, "a deletion undone": the newest event on top of which a version was made and that a
/// node has seen which holds nothing at the path. By (I) that was deleted there, and the tombstone purged.
/// None where the version's maker knew of a deletion since, or the version is one itself.
pub(super) fn undone_by(version: &Entry, seen: &Seen) -> Option<Event> {
    if version.is_tombstone() {
        return None;
    }
    named_by(version).find(|event| seen.contains(*event))
}

/// The same where something is held that the version replaces: `seen` is what had been seen when nothing was
/// held at the path ([`crate::replica::deleted_here`]). None either where what is held was made on top of a newer event
/// that the version names: that was looked at when it came.
pub(super) fn undone_over(held: &Entry, version: &Entry, seen: &Seen) -> Option<Event> {
    if version.is_tombstone() {
        return None;
    }
    let stands_on = |event| held.reissue_of() == Some(event) || named_by(held).any(|e| e == event);
    let named = named_by(version).filter(|event| *event != held.newest());
    let mut unknown = named.take_while(|event| !stands_on(*event));
    unknown.find(|event| seen.contains(*event))
}

/// names(v): the events on top of which a version was made, newest first, as far as it tells, and none that
/// had been deleted when it was made.
fn named_by(version: &Entry) -> impl Iterator<Item = Event> {
    let left_out = LeftOut::of(version);
    let named = move |(at, event)| {
        let is_deleted = left_out.is_before_deletion(at);
        (!is_deleted).then(|| [Some(event).filter(|_| at > 0), left_out.oldest(at, event)])
    };
    version.events().enumerate().map_while(named).flatten().flatten()
}

/// Whether a version was made on top of a deletion of another one, as far as it tells: it names that one, or a later event
/// of its incarnation, among those that had been deleted; or of that incarnation only events that came after the deletion,
/// and all of them later.
pub(super) fn was_made_over_deletion_of(version: &Entry, other: &Entry) -> bool {
    let (left_out, newest) = (LeftOut::of(version), other.newest());
    let is_it = |(at, event): (usize, Event)| {
        if left_out.is_before_deletion(at) {
            return event.tick >= newest.tick;
        }
        let oldest = left_out.oldest(at, event).unwrap_or(event);
        left_out.has_deletion() && newest.tick < oldest.tick
    };
    let mut named = version.events().enumerate().filter(|(_, event)| event.node == newest.node);
    !other.is_tombstone() && named.any(is_it)
}

impl ApplyDecision {
    /// Whether this node makes a new event.
    pub(super) fn makes_an_event(self) -> bool {
        matches!(self, Self::PutOursOnTop | Self::PutTheirsOnTop)
    }

    /// The remaining choice if no event can be made any more: the greater version stays, so that
    /// nothing less is held than is accounted for; the lesser one is lost, and reported.
    pub(super) fn without_event(self) -> Self {
        match self {
            Self::PutOursOnTop => Self::ConflictTakeTheirs,
            Self::PutTheirsOnTop => Self::ConflictKeepOurs,
            other => other,
        }
    }
}

/// Chooses between the version in hand and one that arrived. Total and independent of the order
/// of arrival: swapping the two gives the mirrored decision.
///
/// `copies`: the events of other copies of an entry's write that this node knows. Nodes that know
/// fewer may choose otherwise; what they hold is at least as great all the same, and a node that
/// knows more corrects it.
pub(super) fn decide_apply(
    ours: &Entry,
    theirs: &Entry,
    table: &NodeTable,
    copies: impl Fn(&Entry) -> Copies,
) -> ApplyDecision {
    let theirs_wins = theirs.compare(ours, table) == Ordering::Greater;
    let (winner, loser) = if theirs_wins { (theirs, ours) } else { (ours, theirs) };
    let (quiet, conflict, on_top) = if theirs_wins {
        use ApplyDecision::{ConflictTakeTheirs, PutOursOnTop, TakeTheirs};
        (TakeTheirs, ConflictTakeTheirs, PutOursOnTop)
    } else {
        use ApplyDecision::{ConflictKeepOurs, KeepOurs, PutTheirsOnTop};
        (KeepOurs, ConflictKeepOurs, PutTheirsOnTop)
    };
    // A version that was put on top of another names it, and stays there whatever else the two say.
    let is_on_top = winner.reissue_of().is_some() && winner.events().any(|e| e == loser.newest());
    if is_on_top || are_one_write(winner, loser) {
        return quiet;
    }
    let covers = |a: &Entry, b: &Entry| {
        a.covers(b) || copies(b).into_iter().any(|event| a.covers_event(event))
    };
    match (covers(loser, winner), covers(winner, loser)) {
        // Each was put on top of what the other one says, by nodes neither of which knew all: one has to stay.
        (true, true) if winner.reissue_of().is_some() => conflict,
        (true, _) => on_top,
        (false, true) => quiet,
        (false, false) => conflict,
    }
}

/// Whether two versions are of one origin: one of them re-issues the other or both a third, or a
/// client has sent one write to two nodes.
fn are_one_write(a: &Entry, b: &Entry) -> bool {
    if a.origin() == b.origin() {
        return true;
    }
    let id = WriteId::of_extra(a.extra());
    // A client may have used an id twice by mistake.
    id.is_some() && id == WriteId::of_extra(b.extra()) && a.value() == b.value()
}

#[cfg(test)]
mod tests {
    use crate::model::chain::Chain;
    use crate::model::entry::EntryParts;
    use crate::model::ids::{Event, Incarnation, NodeId, NodeIndex, NodeName, Tick, Tock};
    use crate::replica::decide::*;
    use proptest::prelude::*;

    fn table() -> NodeTable {
        let mut table = NodeTable::new();
        for name in ["c", "a", "b"] {
            let name = NodeName::new(name).unwrap();
            table.intern(&NodeId { name, incarnation: Incarnation(1) }).unwrap();
        }
        table
    }

    fn decide(ours: &Entry, theirs: &Entry, table: &NodeTable) -> ApplyDecision {
        decide_apply(ours, theirs, table, |_| Copies::new())
    }

    fn event((node, tick): (u32, u64)) -> Event {
        Event { node: NodeIndex(node), tick: Tick::new(tick).unwrap() }
    }

    fn entry(events: &[(u32, u64)], origin: Option<(u32, u64)>, tock: u64) -> Entry {
        let chain = Chain::from_events(events.iter().copied().map(event), false).unwrap();
        Entry::new(&EntryParts {
            value: Some(&[0xc0]),
            chain: &chain,
            tock: Tock::new(tock).unwrap(),
            origin: origin.map(event),
            time: None,
            extra: &[],
        })
    }

    #[test]
    fn the_later_change_that_names_the_older_wins_quietly() {
        let (old, new) = (entry(&[(0, 1)], None, 1), entry(&[(1, 1), (0, 1)], None, 2));
        assert_eq!(decide(&old, &new, &table()), ApplyDecision::TakeTheirs);
        assert_eq!(decide(&new, &old, &table()), ApplyDecision::KeepOurs);
    }

    #[test]
    fn versions_that_do_not_know_each_other_are_a_conflict() {
        let (a, b) = (entry(&[(0, 1)], None, 1), entry(&[(1, 1)], None, 2));
        assert_eq!(decide(&a, &b, &table()), ApplyDecision::ConflictTakeTheirs);
        assert_eq!(decide(&b, &a, &table()), ApplyDecision::ConflictKeepOurs);
    }

    #[test]
    fn equal_tocks_are_decided_by_name_and_not_by_arrival() {
        // Index 0 is "c", index 1 is "a": the table's order is not the names' order.
        let (c, a) = (entry(&[(0, 1)], None, 3), entry(&[(1, 9)], None, 3));
        assert_eq!(decide(&a, &c, &table()), ApplyDecision::ConflictTakeTheirs);
        assert_eq!(decide(&c, &a, &table()), ApplyDecision::ConflictKeepOurs);
    }

    #[test]
    fn a_re_issue_of_what_was_overwritten_does_not_stay_on_top() {
        // "a" wrote 1, "b" overwrote it; "c" re-issues a's 1 with a greater tock.
        let newer = entry(&[(2, 1), (1, 1)], None, 2);
        let reissue = entry(&[(0, 1), (1, 1)], Some((1, 1)), 5);
        assert_eq!(decide(&newer, &reissue, &table()), ApplyDecision::PutOursOnTop);
        assert_eq!(decide(&reissue, &newer, &table()), ApplyDecision::PutTheirsOnTop);
    }

    #[test]
    fn two_re_issues_of_one_value_are_no_conflict() {
        let (a, b) = (entry(&[(0, 1)], Some((2, 7)), 5), entry(&[(1, 1)], Some((2, 7)), 6));
        assert_eq!(decide(&a, &b, &table()), ApplyDecision::TakeTheirs);
        assert_eq!(decide(&b, &a, &table()), ApplyDecision::KeepOurs);
    }

    #[test]
    fn a_copy_of_a_write_is_no_conflict_and_does_not_beat_what_overwrote_another_copy() {
        let id = WriteId([7; 16]);
        let copy = |of: &Entry| {
            let (chain, tock, value) = (&of.chain(), of.tock(), of.value());
            Entry::new(&EntryParts {
                value,
                chain,
                tock,
                origin: None,
                time: None,
                extra: &id.to_extra(),
            })
        };
        let (first, second) = (copy(&entry(&[(0, 1)], None, 1)), copy(&entry(&[(1, 1)], None, 9)));
        assert_eq!(decide(&first, &second, &table()), ApplyDecision::TakeTheirs);
        assert_eq!(decide(&second, &first, &table()), ApplyDecision::KeepOurs);
        // "b" has overwritten the first copy.
        let over = entry(&[(2, 1), (0, 1)], None, 2);
        let known = |entry: &Entry| {
            let is_copy = WriteId::of_extra(entry.extra()).is_some();
            [first.newest(), second.newest()].into_iter().filter(|_| is_copy).collect()
        };
        let decide_knowing = |a, b| decide_apply(a, b, &table(), known);
        assert_eq!(decide_knowing(&over, &second), ApplyDecision::PutOursOnTop);
        assert_eq!(decide_knowing(&second, &over), ApplyDecision::PutTheirsOnTop);
        // A node that does not know of the first copy sees two changes that know nothing of each
        // other.
        assert_eq!(decide(&over, &second, &table()), ApplyDecision::ConflictTakeTheirs);
        // A later one that is greater is above the second copy, too.
        let later = entry(&[(2, 2), (0, 1)], None, 10);
        assert_eq!(decide_knowing(&second, &later), ApplyDecision::TakeTheirs);
        // A version that was put on top stays there, even if the other one had it in its chain.
        let blind = copy(&entry(&[(1, 2), (2, 1), (0, 1)], None, 11));
        let top = entry(&[(0, 2), (1, 2), (2, 1)], Some((2, 1)), 12);
        assert_eq!(decide_knowing(&over, &blind), ApplyDecision::PutOursOnTop);
        assert_eq!(decide_knowing(&blind, &top), ApplyDecision::TakeTheirs);
        assert_eq!(decide(&blind, &top, &table()), ApplyDecision::TakeTheirs);
    }

    #[test]
    fn of_two_re_issues_that_each_cover_the_other_the_greater_stays_and_it_is_a_conflict() {
        // "c" wrote 1, "a" overwrote it with 2, and then made once more what a client had sent before 1. "c" put 2 on
        // top of that; "b", which had never met 2, put 1 there.
        let two = entry(&[(0, 2), (1, 2)], Some((1, 1)), 9);
        let one = entry(&[(2, 1), (1, 2), (0, 1)], Some((0, 1)), 9);
        assert!(two.covers(&one) && one.covers(&two));
        assert_eq!(decide(&one, &two, &table()), ApplyDecision::ConflictTakeTheirs);
        assert_eq!(decide(&two, &one, &table()), ApplyDecision::ConflictKeepOurs);
    }

    proptest! {
        #[test]
        fn a_decision_is_the_same_from_both_sides(
            a in (0u32..3, 1u64..4, 1u64..4), b in (0u32..3, 1u64..4, 1u64..4),
            tail in proptest::collection::vec((0u32..3, 1u64..4), 0..2),
        ) {
            prop_assume!((a.0, a.1) != (b.0, b.1));
            let x = entry(&[(a.0, a.1)], None, a.2);
            let events: Vec<_> = std::iter::once((b.0, b.1)).chain(tail).collect();
            let y = entry(&events, None, b.2);
            let mirrored = match decide(&y, &x, &table()) {
                ApplyDecision::TakeTheirs => ApplyDecision::KeepOurs,
                ApplyDecision::KeepOurs => ApplyDecision::TakeTheirs,
                ApplyDecision::ConflictTakeTheirs => ApplyDecision::ConflictKeepOurs,
                ApplyDecision::ConflictKeepOurs => ApplyDecision::ConflictTakeTheirs,
                ApplyDecision::PutOursOnTop => ApplyDecision::PutTheirsOnTop,
                ApplyDecision::PutTheirsOnTop => ApplyDecision::PutOursOnTop,
            };
            prop_assert_eq!(decide(&x, &y, &table()), mirrored);
        }
    }
}

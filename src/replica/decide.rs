//! RULES 2, the choice: which of two versions stays, and what becomes of the lesser one. Pure:
//! nothing is changed here; [`super::apply`] carries it out.

use std::cmp::Ordering;

use crate::model::entry::Entry;
use crate::model::ids::NodeTable;

/// What is to be done with a version that arrived for a path where there is one already.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ApplyDecision {
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

/// Chooses between the version in hand and one that arrived. Total and independent of the order
/// of arrival: swapping the two gives the mirrored decision.
pub fn decide_apply(ours: &Entry, theirs: &Entry, table: &NodeTable) -> ApplyDecision {
    let theirs_wins = theirs.compare(ours, table) == Ordering::Greater;
    let (winner, loser) = if theirs_wins { (theirs, ours) } else { (ours, theirs) };
    if winner.origin() == loser.origin() {
        return if theirs_wins { ApplyDecision::TakeTheirs } else { ApplyDecision::KeepOurs };
    }
    if loser.covers(winner) {
        return if theirs_wins {
            ApplyDecision::PutOursOnTop
        } else {
            ApplyDecision::PutTheirsOnTop
        };
    }
    match (theirs_wins, winner.covers(loser)) {
        (true, true) => ApplyDecision::TakeTheirs,
        (false, true) => ApplyDecision::KeepOurs,
        (true, false) => ApplyDecision::ConflictTakeTheirs,
        (false, false) => ApplyDecision::ConflictKeepOurs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::chain::Chain;
    use crate::model::entry::EntryParts;
    use crate::model::ids::{Event, Incarnation, NodeId, NodeIndex, NodeName, Tick, Tock};
    use proptest::prelude::*;

    fn table() -> NodeTable {
        let mut table = NodeTable::new();
        for name in ["c", "a", "b"] {
            let name = NodeName::new(name).unwrap();
            table.intern(&NodeId { name, incarnation: Incarnation(1) }).unwrap();
        }
        table
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
            extra: &[],
        })
    }

    #[test]
    fn the_later_change_that_names_the_older_wins_quietly() {
        let (old, new) = (entry(&[(0, 1)], None, 1), entry(&[(1, 1), (0, 1)], None, 2));
        assert_eq!(decide_apply(&old, &new, &table()), ApplyDecision::TakeTheirs);
        assert_eq!(decide_apply(&new, &old, &table()), ApplyDecision::KeepOurs);
    }

    #[test]
    fn versions_that_do_not_know_each_other_are_a_conflict() {
        let (a, b) = (entry(&[(0, 1)], None, 1), entry(&[(1, 1)], None, 2));
        assert_eq!(decide_apply(&a, &b, &table()), ApplyDecision::ConflictTakeTheirs);
        assert_eq!(decide_apply(&b, &a, &table()), ApplyDecision::ConflictKeepOurs);
    }

    #[test]
    fn equal_tocks_are_decided_by_name_and_not_by_arrival() {
        // Index 0 is "c", index 1 is "a": the table's order is not the names' order.
        let (c, a) = (entry(&[(0, 1)], None, 3), entry(&[(1, 9)], None, 3));
        assert_eq!(decide_apply(&a, &c, &table()), ApplyDecision::ConflictTakeTheirs);
        assert_eq!(decide_apply(&c, &a, &table()), ApplyDecision::ConflictKeepOurs);
    }

    #[test]
    fn a_re_issue_of_what_was_overwritten_does_not_stay_on_top() {
        // "a" wrote 1, "b" overwrote it; "c" re-issues a's 1 with a greater tock.
        let newer = entry(&[(2, 1), (1, 1)], None, 2);
        let reissue = entry(&[(0, 1), (1, 1)], Some((1, 1)), 5);
        assert_eq!(decide_apply(&newer, &reissue, &table()), ApplyDecision::PutOursOnTop);
        assert_eq!(decide_apply(&reissue, &newer, &table()), ApplyDecision::PutTheirsOnTop);
    }

    #[test]
    fn two_re_issues_of_one_value_are_no_conflict() {
        let (a, b) = (entry(&[(0, 1)], Some((2, 7)), 5), entry(&[(1, 1)], Some((2, 7)), 6));
        assert_eq!(decide_apply(&a, &b, &table()), ApplyDecision::TakeTheirs);
        assert_eq!(decide_apply(&b, &a, &table()), ApplyDecision::KeepOurs);
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
            let mirrored = match decide_apply(&y, &x, &table()) {
                ApplyDecision::TakeTheirs => ApplyDecision::KeepOurs,
                ApplyDecision::KeepOurs => ApplyDecision::TakeTheirs,
                ApplyDecision::ConflictTakeTheirs => ApplyDecision::ConflictKeepOurs,
                ApplyDecision::ConflictKeepOurs => ApplyDecision::ConflictTakeTheirs,
                ApplyDecision::PutOursOnTop => ApplyDecision::PutTheirsOnTop,
                ApplyDecision::PutTheirsOnTop => ApplyDecision::PutOursOnTop,
            };
            prop_assert_eq!(decide_apply(&x, &y, &table()), mirrored);
        }
    }
}

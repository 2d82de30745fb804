//! RULES 5: purging tombstones that the Delete group has agreed on, the check of RULES 7 that
//! a member makes before it agrees, and what a coordinator proposes.

use super::{Committed, Replica};
use crate::model::defects::Defect;
use crate::model::ids::Tock;
use crate::model::path::Path;
use crate::model::seen::{Lineage, Seen};

/// A tock pair of one lineage and the tick sets behind it: what a round is about, and, once all
/// have agreed, what is announced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TockPair {
    /// Of which succession of decisions.
    pub lineage: Lineage,
    /// The mark at which one has to stand.
    pub from: Tock,
    /// The mark that follows it.
    pub to: Tock,
    /// V: what one has to have seen.
    pub seen: Seen,
}

/// What to do with an announcement, or what to answer to a proposal.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PurgeDecision {
    /// All conditions hold.
    Apply,
    /// This node stands at `to` or beyond already.
    Done,
    /// This node does not stand at `from`.
    OtherMark,
    /// This node has not seen all of V.
    NotSeen,
    /// There is a tombstone at or below `to` here that is not in V (asked of members only).
    OtherTombstone,
}

impl Replica {
    /// RULES 5: whether an announcement can be applied here.
    pub fn decide_purge(&self, pair: &TockPair) -> PurgeDecision {
        let mark = self.mark.get(&pair.lineage);
        if mark >= pair.to {
            PurgeDecision::Done
        } else if mark != pair.from {
            PurgeDecision::OtherMark
        } else if !self.seen.contains_all(&pair.seen) && !self.defects.has(Defect::PurgeUnseen) {
            PurgeDecision::NotSeen
        } else {
            PurgeDecision::Apply
        }
    }

    /// RULES 7: whether a member can agree: as [`Replica::decide_purge`], and all its
    /// tombstones with tock <= `to` are in V.
    pub fn decide_agree(&self, pair: &TockPair) -> PurgeDecision {
        let decision = self.decide_purge(pair);
        let covers_all = || {
            self.tree.tombstones_up_to(pair.to).all(|(_, entry)| pair.seen.contains(entry.newest()))
        };
        if decision == PurgeDecision::Apply && !covers_all() {
            return PurgeDecision::OtherTombstone;
        }
        decision
    }

    /// RULES 5, carried out; only legal after [`PurgeDecision::Apply`]. Drops the tombstones that
    /// are in V with tock <= `to` and gives them back; mark = `to`, own tock >= `to`.
    pub fn apply_purge(&mut self, pair: &TockPair) -> Vec<Committed> {
        let gone: Vec<Committed> = self
            .tree
            .tombstones_up_to(pair.to)
            .filter(|(_, entry)| pair.seen.contains(entry.newest()))
            .map(|(path, entry)| Committed { path: path.clone(), entry: entry.clone() })
            .collect();
        for Committed { path, .. } in &gone {
            self.take_out(path);
        }
        self.mark.raise(&pair.lineage, pair.to);
        if !self.defects.has(Defect::TockNotRaised) {
            self.hear_tock(pair.to);
        }
        gone
    }

    /// RULES 7: the pair that this node would propose as coordinator, about `tombstones_max`
    /// tombstones at once; none while there is no tombstone to drop. V is its seen exactly;
    /// holes that nobody can fill are out of it by themselves.
    #[must_use]
    pub fn propose_pair(&self, lineage: &Lineage, tombstones_max: usize) -> Option<TockPair> {
        let from = self.mark.get(lineage);
        let everything = Tock::new(u64::MAX >> 2).unwrap_or(self.tock);
        let last = self.tree.tombstones_up_to(everything).take(tombstones_max.max(1)).last();
        let (_, last) = last?;
        let to = last.tock().max(from.next()?);
        Some(TockPair { lineage: lineage.clone(), from, to, seen: self.seen.clone() })
    }

    /// RULES 7: a pair that drops nothing that has to be dropped, for a planned change of the
    /// member list; `None` when the counter is used up.
    #[must_use]
    pub fn empty_pair(&self, lineage: &Lineage) -> Option<TockPair> {
        let from = self.mark.get(lineage);
        let to = from.next()?;
        Some(TockPair { lineage: lineage.clone(), from, to, seen: self.seen.clone() })
    }

    /// Takes an entry out of the tree: RULES 4a. No event is made for it.
    pub(super) fn drop_entry(&mut self, path: &Path) -> Option<Committed> {
        let entry = self.take_out(path)?;
        Some(Committed { path: path.clone(), entry })
    }
}

//! Replication rule 5: purging tombstones that the Delete group has agreed on, the check of replication
//! rule 7 that a member makes before it agrees, and what a coordinator proposes.

use crate::model::defects::Defect;
use crate::model::ids::Tock;
use crate::model::invariant::invariant;
use crate::model::mark::{Component, Implied, Lineage, Mark, PurgeId};
use crate::model::seen::Seen;
use crate::replica::{Committed, Replica};

/// A tock pair of one lineage and the tick sets behind it: the subject of a round, and, once all
/// have agreed, of an announcement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TockPair {
    /// Of which succession of decisions.
    pub lineage: Lineage,
    /// Where one has to stand in that lineage, as a whole: at the same purge, not only at its tock.
    pub from: Component,
    /// The tock of the mark that follows.
    pub to: Tock,
    /// Which purge this is; none for one that was decided before purges had ids.
    pub id: Option<PurgeId>,
    /// What else one has to have applied: the mark's other components at the coordinator. They
    /// are implied by this purge from then on.
    pub base: Vec<(Lineage, Component)>,
    /// V: what one has to have seen.
    pub seen: Seen,
}

impl TockPair {
    /// Where one stands in the lineage after it.
    #[must_use]
    pub(crate) fn reached(&self) -> Component {
        Component::new(self.to, self.id)
    }

    /// Components that every node may leave out of marks that name this purge or a later one of its
    /// lineage.
    #[must_use]
    pub(crate) fn implied(&self) -> Vec<Implied> {
        let fact = |(lineage, component): &(Lineage, Component)| Implied {
            lineage: lineage.clone(),
            component: component.clone(),
            by: self.lineage.clone(),
            at: self.reached(),
        };
        self.base.iter().map(fact).collect()
    }

    /// Whether a node with this mark stands where the pair begins.
    #[must_use]
    pub(crate) fn begins_at(&self, mark: &Mark) -> bool {
        mark.component(&self.lineage) == self.from
            && self.base.iter().all(|(lineage, c)| mark.component(lineage).includes(c))
    }

    /// Raises a mark over the purge.
    pub(crate) fn raise(&self, mark: &mut Mark) {
        mark.raise(&self.lineage, &self.reached());
        mark.learn(&self.implied());
    }
}

/// What to do with an announcement, or what to answer to a proposal.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PurgeDecision {
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
    /// Replication rule 5: whether an announcement can be applied here.
    pub(crate) fn decide_purge(&self, pair: &TockPair) -> PurgeDecision {
        if self.mark.component(&pair.lineage).includes(&pair.reached()) {
            PurgeDecision::Done
        } else if !pair.begins_at(&self.mark) && !self.defects.has(Defect::FromNotAsked) {
            PurgeDecision::OtherMark
        } else if !self.seen.contains_all(&pair.seen) && !self.defects.has(Defect::PurgeUnseen) {
            PurgeDecision::NotSeen
        } else {
            PurgeDecision::Apply
        }
    }

    /// Replication rule 7: whether a member can agree: as [`Replica::decide_purge`], and all its
    /// tombstones with tock <= `to` are in V.
    pub(crate) fn decide_agree(&self, pair: &TockPair) -> PurgeDecision {
        let decision = self.decide_purge(pair);
        let covers_all = || {
            self.tree.tombstones_up_to(pair.to).all(|(_, entry)| pair.seen.contains(entry.newest()))
        };
        if decision == PurgeDecision::Apply && !covers_all() {
            return PurgeDecision::OtherTombstone;
        }
        decision
    }

    /// Replication rule 5, carried out; only legal after [`PurgeDecision::Apply`]. Drops the tombstones
    /// that are in V with tock <= `to` and gives them back; mark = `to`, own tock >= `to`.
    pub(crate) fn apply_purge(&mut self, pair: &TockPair) -> Vec<Committed> {
        let decision = self.decide_purge(pair);
        invariant!(
            decision == PurgeDecision::Apply,
            "a purge is applied where its conditions hold",
            "{decision:?}"
        );
        let gone: Vec<Committed> = self
            .tree
            .tombstones_up_to(pair.to)
            .filter(|(_, entry)| pair.seen.contains(entry.newest()))
            .map(|(path, entry)| Committed { path: path.clone(), entry: entry.clone() })
            .collect();
        for Committed { path, .. } in &gone {
            let entry = self.take_out(path);
            invariant!(entry.is_some(), "what is purged is held");
        }
        pair.raise(&mut self.mark);
        self.deleted_here.begin_state();
        if !self.defects.has(Defect::TockNotRaised) {
            self.hear_tock(pair.to);
            invariant!(self.mark.top() <= self.tock, "the own tock is at least the mark");
        }
        gone
    }

    /// Adds facts about what may be left out of marks; returns whether anything was new.
    pub(crate) fn learn_implied(&mut self, implied: &[Implied]) -> bool {
        self.mark.learn(implied)
    }

    /// Replication rule 7: the pair that this node would propose as coordinator, for about
    /// `tombstones_max` tombstones at once; none if there is no tombstone to drop. V is its seen
    /// exactly, so holes that cannot be filled are left out of it.
    #[must_use]
    pub(crate) fn propose_pair(
        &self,
        lineage: &Lineage,
        id: Option<PurgeId>,
        tombstones_max: usize,
    ) -> Option<TockPair> {
        let from = self.mark.component(lineage);
        let last = self.tree.tombstones_up_to(Tock::MAX).take(tombstones_max.max(1)).last();
        let (_, last) = last?;
        let to = last.tock().max(self.above_mark()?);
        Some(self.pair_to(lineage, from, to, id))
    }

    /// Replication rule 7: a pair that drops nothing that has to be dropped, for a planned change of the
    /// member list; `None` when the counter is used up.
    #[must_use]
    pub(crate) fn empty_pair(&self, lineage: &Lineage, id: Option<PurgeId>) -> Option<TockPair> {
        let from = self.mark.component(lineage);
        let to = self.above_mark()?;
        Some(self.pair_to(lineage, from, to, id))
    }

    /// Every purge is above the whole mark, so that it can stand on all of it: a purge implies lesser
    /// components only, and leaves one component.
    fn above_mark(&self) -> Option<Tock> {
        self.mark.top().next()
    }

    fn pair_to(
        &self,
        lineage: &Lineage,
        from: Component,
        to: Tock,
        id: Option<PurgeId>,
    ) -> TockPair {
        let others = self.mark.components().filter(|(of, _)| *of != lineage);
        let base = others.map(|(of, c)| (of.clone(), c.clone())).collect();
        TockPair { lineage: lineage.clone(), from, to, id, base, seen: self.seen.clone() }
    }
}

//! RULES 7: a round. The coordinator fixes `from`, `to` and V and proposes them; each member
//! agrees after it has persisted what it agrees to; when all have agreed, the coordinator checks
//! the same for itself, persists its decision, applies it and announces it. A planned change of
//! the member list rides on a round that all old and new members agree to.

use std::collections::BTreeSet;

use super::holes::Holes;
use super::{Engine, Member};
use crate::engine::{LinkId, Outbox, Output};
use crate::model::defects::Defect;
use crate::model::group::{GroupConfig, RoundId};
use crate::model::ids::{Millis, NodeName};
use crate::model::seen::{Seen, export_seen};
use crate::protocol::peer::{PeerMessage, Proposal};
use crate::replica::purge::{PurgeDecision, TockPair};

/// A round that not all have agreed to by then is given up; the next one tries again.
const ROUND_TIMEOUT_MS: Millis = 5_000;
/// After a round that failed the next one waits so long.
const RETRY_MS: Millis = 1_000;

/// A round that this node coordinates.
pub(super) struct Round {
    id: RoundId,
    pair: TockPair,
    next: Option<GroupConfig>,
    /// Who has not agreed yet.
    open: BTreeSet<NodeName>,
    began: Millis,
}

/// What this node agrees to once it is persisted.
pub(super) struct Agreeing {
    pub(super) token: u64,
    pub(super) link: LinkId,
    round: RoundId,
}

/// What this node has decided as coordinator; carried out once it is persisted.
pub(super) struct Deciding {
    pub(super) token: u64,
    pub(super) decided: Decided,
}

/// A purge that all have agreed to: what a coordinator must not forget before it has announced it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decided {
    /// The purge.
    pub pair: TockPair,
    /// The member list that comes with it, if it changes.
    pub next: Option<GroupConfig>,
}

impl Engine {
    pub(super) fn on_round_tick(&mut self, now: Millis, out: &mut Outbox) {
        let timed_out = |r: &mut Round| now.saturating_sub(r.began) >= ROUND_TIMEOUT_MS;
        if self.delete.round.take_if(timed_out).is_some() {
            self.delete.round_due = now + RETRY_MS;
        }
        if std::mem::take(&mut self.delete.rests) {
            self.delete.round_due = now + self.delete.settings.interval_ms;
        }
        if now >= self.delete.round_due {
            self.start_round(now, out);
        }
    }

    /// Begins a round if this node coordinates, there is something to agree on, and all who must
    /// agree are there.
    fn start_round(&mut self, now: Millis, out: &mut Outbox) {
        if !self.ready || self.delete.round.is_some() || self.delete.deciding.is_some() {
            return;
        }
        let Some(config) = self.delete.config.clone() else { return };
        if !self.is_elected_coordinator() || !config.members().contains(&self.as_member()) {
            return;
        }
        let next = self.planned_change(&config);
        if next.is_none() && self.replica.tree().tombstone_len() == 0 {
            return;
        }
        let everybody = participants(&config, next.as_ref());
        if everybody.iter().any(|m| *m != self.as_member() && self.link_of(m).is_none()) {
            return;
        }
        let Holes::Closed { lost } = self.look_at_holes(now) else { return };
        let batch = self.delete.settings.batch_max;
        let mut pair = self.replica.propose_pair(&config.lineage, batch);
        if pair.is_none() && next.is_some() {
            pair = self.replica.empty_pair(&config.lineage);
        }
        let Some(pair) = pair else { return };
        self.delete.round_due = now + self.delete.settings.interval_ms;
        self.delete.next_round += 1;
        let id = RoundId {
            coordinator: self.config.id.clone(),
            number: self.delete.next_round,
            version: config.version,
        };
        let me = self.as_member();
        let open: BTreeSet<NodeName> =
            everybody.iter().filter(|m| **m != me).map(|m| m.name.clone()).collect();
        self.propose(&id, &pair, &lost, next.as_ref(), &everybody, out);
        self.delete.round = Some(Round { id, pair, next, open, began: now });
        self.decide_round(now, out);
    }

    fn propose(
        &mut self,
        id: &RoundId,
        pair: &TockPair,
        lost: &Seen,
        next: Option<&GroupConfig>,
        everybody: &[Member],
        out: &mut Outbox,
    ) {
        let proposal = Proposal {
            round: id.clone(),
            pair: self.export_pair(pair),
            lost: export_seen(self.table(), lost),
            next: next.cloned(),
        };
        for member in everybody {
            if let Some(link) = self.link_of(member) {
                self.send(link, &PeerMessage::Propose(proposal.clone()), out);
            }
        }
    }

    /// A member's side: agrees if all conditions hold, and only after it has persisted.
    pub(in crate::engine) fn on_propose(
        &mut self,
        link: LinkId,
        proposal: &Proposal,
        out: &mut Outbox,
    ) {
        if !self.can_agree(proposal) {
            self.send(link, &PeerMessage::Disagree(proposal.round.clone()), out);
            return;
        }
        let token = self.delete.token();
        let agreeing = Agreeing { token, link, round: proposal.round.clone() };
        if self.delete.settings.store.is_some() {
            self.delete.agreeing = Some(agreeing);
            out.push(Output::Persist { token });
        } else {
            // Nothing outlives this process: to restart is to be another member.
            self.agree(&agreeing, out);
        }
    }

    fn can_agree(&mut self, proposal: &Proposal) -> bool {
        let me = self.as_member();
        let Some(config) = self.delete.config.clone() else { return false };
        let is_concerned = participants(&config, proposal.next.as_ref()).contains(&me);
        let Some(lost) = self.replica.intern_seen(&proposal.lost) else { return false };
        let Some(pair) = self.intern_pair(&proposal.pair) else { return false };
        self.ready
            && is_concerned
            && config.version == proposal.round.version
            && config.lineage == pair.lineage
            // A hole that is none here is not lost.
            && self.replica.seen().intersection(&lost).is_empty()
            && self.replica.decide_agree(&pair) == PurgeDecision::Apply
    }

    pub(super) fn agree(&mut self, agreeing: &Agreeing, out: &mut Outbox) {
        let me = self.as_member();
        let agree = PeerMessage::Agree { round: agreeing.round.clone(), member: me };
        self.send(agreeing.link, &agree, out);
    }

    pub(in crate::engine) fn on_agree(
        &mut self,
        round: &RoundId,
        member: &Member,
        now: Millis,
        out: &mut Outbox,
    ) {
        let Some(current) = self.delete.round.as_mut().filter(|r| r.id == *round) else { return };
        current.open.remove(&member.name);
        self.decide_round(now, out);
    }

    pub(in crate::engine) fn on_disagree(&mut self, round: &RoundId, now: Millis) {
        if self.delete.round.take_if(|r| r.id == *round).is_some() {
            self.delete.round_due = now + RETRY_MS.min(self.delete.settings.interval_ms);
        }
    }

    /// All have agreed: checks the same for itself, and decides.
    fn decide_round(&mut self, now: Millis, out: &mut Outbox) {
        let Some(round) = self.delete.round.take_if(|r| r.open.is_empty()) else { return };
        let config = self.delete.config.as_ref();
        let stands = config
            .is_some_and(|c| c.version == round.id.version && c.lineage == round.pair.lineage);
        if !stands
            || round.id.coordinator != self.config.id
            || self.replica.decide_agree(&round.pair) != PurgeDecision::Apply
        {
            return;
        }
        let token = self.delete.token();
        let decided = Decided { pair: round.pair, next: round.next };
        let deciding = Deciding { token, decided };
        let is_safe_first = !self.config.defects.has(Defect::CoordinatorOlder);
        if self.delete.settings.store.is_some() && is_safe_first {
            self.delete.deciding = Some(deciding);
            out.push(Output::Persist { token });
        } else {
            self.carry_out_decision(deciding, now, out);
        }
    }

    /// Applies and announces what was decided and persisted.
    pub(super) fn carry_out_decision(&mut self, deciding: Deciding, now: Millis, out: &mut Outbox) {
        let Decided { pair, next } = deciding.decided;
        if self.replica.decide_purge(&pair) != PurgeDecision::Apply {
            return;
        }
        let announcement = self.export_pair(&pair);
        self.apply_pair(pair, out);
        self.broadcast(&PeerMessage::Announce(announcement), out);
        if let Some(next) = next {
            self.take_config(next, out);
            self.broadcast_group(out);
        }
        if self.replica.tree().tombstone_len() > 0 {
            // There was more than fits one round.
            self.delete.rests = false;
            self.delete.round_due = now;
        }
    }
}

/// Who must agree: all old and all new members.
fn participants(config: &GroupConfig, next: Option<&GroupConfig>) -> Vec<Member> {
    let mut all: BTreeSet<Member> = config.members().iter().cloned().collect();
    all.extend(next.into_iter().flat_map(GroupConfig::members).cloned());
    all.into_iter().collect()
}

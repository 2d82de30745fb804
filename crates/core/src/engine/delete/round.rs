//! Replication rule 7: a round. The coordinator fixes `from`, `to` and V and proposes them; each member
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
use crate::protocol::peer::{PeerMessage, Proposal};
use crate::replica::purge::{PurgeDecision, TockPair};

/// A round that not all have agreed to by then is given up; the next one tries again.
const ROUND_TIMEOUT_MS: Millis = 5_000;
/// A member that has not seen all of V waits this long for it before it disagrees: less than a
/// round lasts.
const PATIENCE_MS: Millis = 2_000;
/// The pause after a round that failed.
const RETRY_MS: Millis = 1_000;
/// The same where a node waits for being taken in, or for handing over.
const RETRY_SOON_MS: Millis = 200;

/// A round that this node coordinates.
pub(super) struct Round {
    id: RoundId,
    pair: TockPair,
    next: Option<GroupConfig>,
    /// The nodes that have not agreed yet.
    open: BTreeSet<Member>,
    began: Millis,
}

impl Round {
    /// Whether the list that comes with it has this member.
    pub(super) fn takes_in(&self, member: &Member) -> bool {
        self.next.as_ref().is_some_and(|next| next.members().contains(member))
    }
}

/// A member's answer to a proposal.
enum Answer {
    Agrees(TockPair),
    /// It has not seen all of V.
    NotYet,
    Disagrees,
}

/// A proposal whose V is not all here yet.
pub(super) struct Proposed {
    pub(super) link: LinkId,
    proposal: Proposal,
    since: Millis,
}

/// What this node agrees to once it is persisted.
pub(super) struct Agreeing {
    pub(super) token: u64,
    pub(super) link: LinkId,
    round: RoundId,
    pair: TockPair,
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
        if let Some(round) = self.delete.round.take_if(timed_out) {
            self.note_unanswered(&round);
            self.note_failure(now);
        }
        if std::mem::take(&mut self.delete.rests) {
            self.delete.round_due = now + self.delete.settings.interval_ms;
        }
        // A node that is taken in, or takes over, need not wait for the next turn.
        if now >= self.delete.round_due || (now >= self.delete.retry_due && self.admits_now()) {
            self.start_round(now, out);
        }
    }

    /// Begins a round if this node coordinates, there is something to agree on, and all nodes that
    /// must agree are here.
    fn start_round(&mut self, now: Millis, out: &mut Outbox) {
        if !self.ready || self.delete.round.is_some() || self.delete.deciding.is_some() {
            return;
        }
        let Some(config) = self.delete.config.clone() else { return };
        let me = self.as_member();
        let is_alone = self.delete.hands_over && *config.members() == [me.clone()];
        let is_asked = self.is_elected_coordinator() || is_alone || self.wants_to_retire();
        if !is_asked || !config.members().contains(&me) {
            return;
        }
        let next = self.planned_change(&config);
        if next.is_none() && self.replica.tree().tombstone_len() == 0 {
            return;
        }
        let mut everybody = participants(&config, next.as_ref());
        if next.is_none() {
            everybody.extend(self.witnesses().cloned());
        }
        if everybody.iter().any(|m| *m != me && self.link_of(m).is_none()) {
            // Who is away is known anyway, and nobody else is asked meanwhile.
            return self.delete.unanswered.clear();
        }
        if self.look_at_holes(now) == Holes::Open {
            return;
        }
        let batch = self.delete.settings.batch_max;
        let id = RoundId {
            coordinator: self.config.id.clone(),
            number: self.delete.next_round + 1,
            version: config.version,
        };
        // A change of the list comes without tombstones: it does not wait for nodes that are not on
        // the list.
        let pair = match &next {
            Some(_) => self.replica.empty_pair(&config.lineage, id.purge_id()),
            None => self.replica.propose_pair(&config.lineage, id.purge_id(), batch),
        };
        let Some(pair) = pair else { return };
        if !pair.from.includes(&config.since) {
            return;
        }
        let next = next.map(|next| next.from_purge_on(pair.reached()));
        self.delete.round_due = now + self.delete.settings.interval_ms;
        self.delete.next_round += 1;
        let open: BTreeSet<Member> = everybody.iter().filter(|m| **m != me).cloned().collect();
        self.propose(&id, &pair, next.as_ref(), &everybody, out);
        self.delete.round = Some(Round { id, pair, next, open, began: now });
        self.decide_round(now, out);
    }

    fn propose(
        &mut self,
        id: &RoundId,
        pair: &TockPair,
        next: Option<&GroupConfig>,
        everybody: &BTreeSet<Member>,
        out: &mut Outbox,
    ) {
        let proposal =
            Proposal { round: id.clone(), pair: self.export_pair(pair), next: next.cloned() };
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
        now: Millis,
        out: &mut Outbox,
    ) {
        self.delete.proposed = None;
        match self.can_agree(proposal, now) {
            Answer::Agrees(pair) => self.persist_agreement(link, proposal, pair, out),
            Answer::NotYet => {
                let proposed = Proposed { link, proposal: proposal.clone(), since: now };
                self.delete.proposed = Some(proposed);
            }
            Answer::Disagrees => {
                self.send(link, &PeerMessage::Disagree(proposal.round.clone()), out);
            }
        }
    }

    /// The proposal may fit by now.
    pub(super) fn retry_proposed(&mut self, now: Millis, out: &mut Outbox) {
        let Some(Proposed { link, proposal, since }) = self.delete.proposed.take() else { return };
        match self.can_agree(&proposal, now) {
            Answer::Agrees(pair) => self.persist_agreement(link, &proposal, pair, out),
            Answer::NotYet if now.saturating_sub(since) < PATIENCE_MS => {
                self.delete.proposed = Some(Proposed { link, proposal, since });
            }
            Answer::NotYet | Answer::Disagrees => {
                self.send(link, &PeerMessage::Disagree(proposal.round), out);
            }
        }
    }

    fn persist_agreement(
        &mut self,
        link: LinkId,
        proposal: &Proposal,
        pair: TockPair,
        out: &mut Outbox,
    ) {
        let token = self.delete.token();
        let agreeing = Agreeing { token, link, round: proposal.round.clone(), pair };
        let is_safe_first = !self.config.defects.has(Defect::AgreeBeforePersist);
        if self.delete.settings.store.is_some() && is_safe_first {
            self.delete.agreeing = Some(agreeing);
            out.push(Output::Persist { token });
        } else {
            // Nothing outlives this process: after a restart it is another member.
            self.agree(&agreeing, out);
        }
    }

    /// Whether this node agrees. It need not be on the list: a node that was here lately is asked, too.
    fn can_agree(&mut self, proposal: &Proposal, now: Millis) -> Answer {
        let Some(config) = self.delete.config.clone() else { return Answer::Disagrees };
        // The rest of V is not known here: it is on its way, nearly always.
        let Some(pair) = self.intern_pair(&proposal.pair) else { return Answer::NotYet };
        // The coordinator may have been restarted, and not know who was here. A change of the list waits for nobody.
        let awaits = proposal.next.is_none() && !self.awaited(now).is_empty();
        let may_agree = self.ready
            && !awaits
            && !self.coordinates()
            && self.is_version_of(&config, &proposal.round)
            && config.lineage == pair.lineage
            && proposal.round.purge_id() == pair.id
            && !(self.is_retired() && self.would_be_taken_in(proposal))
            && pair.from.includes(&config.since)
            // A hole that is none here is not lost.
            && self.replica.seen().intersection(&pair.seen.holes()).is_empty();
        if !may_agree {
            return Answer::Disagrees;
        }
        match self.replica.decide_agree(&pair) {
            PurgeDecision::Apply => Answer::Agrees(pair),
            // It is on its way, nearly always.
            PurgeDecision::NotSeen => Answer::NotYet,
            PurgeDecision::Done | PurgeDecision::OtherMark | PurgeDecision::OtherTombstone => {
                Answer::Disagrees
            }
        }
    }

    /// Whether a round is of those that agree by this list.
    fn is_version_of(&self, config: &GroupConfig, round: &RoundId) -> bool {
        config.version == round.version || self.config.defects.has(Defect::ListVersionUnchecked)
    }

    /// How many members come before this node, by name.
    fn own_place(&self) -> u64 {
        let me = self.as_listed();
        let members = self.delete.config.iter().flat_map(GroupConfig::members);
        members.take_while(|member| **member < me).count() as u64
    }

    /// Whether a proposed list has this node.
    fn would_be_taken_in(&self, proposal: &Proposal) -> bool {
        let me = self.as_listed();
        proposal.next.as_ref().is_some_and(|next| next.members().contains(&me))
    }

    /// Whether a round of this node's own is under way, or decided and not applied yet. Until then
    /// it agrees to no other: of two coordinators that both agree to the other's round, each has
    /// agreed before its own began, which is impossible. So at most one purge begins at any mark.
    fn coordinates(&self) -> bool {
        self.delete.round.is_some() || self.delete.deciding.is_some()
    }

    /// What was agreed to is persisted: the coordinator is told, if the agreement still holds.
    pub(super) fn agree(&mut self, agreeing: &Agreeing, out: &mut Outbox) {
        if self.replica.decide_agree(&agreeing.pair) != PurgeDecision::Apply {
            let disagree = PeerMessage::Disagree(agreeing.round.clone());
            return self.send(agreeing.link, &disagree, out);
        }
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
        current.open.remove(member);
        self.delete.unanswered.remove(&member.name);
        self.decide_round(now, out);
    }

    pub(in crate::engine) fn on_disagree(&mut self, round: &RoundId, now: Millis) {
        if self.delete.round.take_if(|r| r.id == *round).is_some() {
            self.note_failure(now);
        }
    }

    /// A round's time is over: who has not agreed may be unable to. A member whose disk has failed persists nothing.
    fn note_unanswered(&mut self, round: &Round) {
        let names: BTreeSet<&NodeName> = round.open.iter().map(|member| &member.name).collect();
        self.delete.unanswered.retain(|name, _| names.contains(name));
        for name in names {
            self.delete.unanswered.entry(name.clone()).or_insert(round.began);
        }
    }

    fn note_failure(&mut self, now: Millis) {
        self.delete.round_due = now + RETRY_MS.min(self.delete.settings.interval_ms);
        // Several nodes that leave for good disturb each other's rounds until one begins before the
        // others.
        let place = if self.wants_to_retire() { self.own_place() } else { 0 };
        self.delete.retry_due = now + RETRY_SOON_MS * (1 + place);
    }

    /// Whether the list must be changed: a node with data is here, or this one hands over.
    fn admits_now(&self) -> bool {
        let config = self.delete.config.as_ref();
        config.is_some_and(|c| self.planned_change(c).is_some())
    }

    /// All have agreed: checks its own state in the same way, and decides.
    fn decide_round(&mut self, now: Millis, out: &mut Outbox) {
        let Some(round) = self.delete.round.take_if(|r| r.open.is_empty()) else { return };
        let config = self.delete.config.as_ref();
        let stands = config
            .is_some_and(|c| self.is_version_of(c, &round.id) && c.lineage == round.pair.lineage);
        let agrees = self.config.defects.has(Defect::CoordinatorUnchecked)
            || self.replica.decide_agree(&round.pair) == PurgeDecision::Apply;
        if !stands || round.id.coordinator != self.config.id || !agrees {
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

    /// Applies and announces the decision that was persisted.
    pub(super) fn carry_out_decision(&mut self, deciding: Deciding, now: Millis, out: &mut Outbox) {
        let Decided { pair, next } = deciding.decided;
        if self.replica.decide_purge(&pair) != PurgeDecision::Apply {
            return;
        }
        let announcement = self.export_pair(&pair);
        let leaves_out = !pair.base.is_empty();
        self.apply_pair(pair, out);
        self.broadcast(&PeerMessage::Announce(announcement), out);
        let changes = next.is_some_and(|next| self.take_config(next, out));
        if changes || leaves_out {
            self.broadcast_group(out);
        }
        if self.replica.tree().tombstone_len() > 0 {
            // There was more than fits one round.
            self.delete.rests = false;
            self.delete.round_due = now;
        }
    }
}

/// The nodes that must agree: all old and all new members.
fn participants(config: &GroupConfig, next: Option<&GroupConfig>) -> BTreeSet<Member> {
    let mut all: BTreeSet<Member> = config.members().iter().cloned().collect();
    all.extend(next.into_iter().flat_map(GroupConfig::members).cloned());
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Config, Input};
    use crate::model::ids::{Event, Incarnation, NodeId, Tick};

    #[test]
    fn a_hole_that_nobody_fills_holds_rounds_up_as_long_as_somebody_has_what_is_missing() {
        let id =
            |name: &str| NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(1) };
        let mut engine = Engine::new(Config::new(id("b"), 1));
        engine.handle(Input::Found, 0, &mut Outbox::new());
        let node = engine.replica.intern(&id("c")).unwrap();
        let event = |tick| Event { node, tick: Tick::new(tick).unwrap() };
        engine.replica.account_for(event(2));
        assert_eq!(engine.look_at_holes(0), Holes::Open);
        let (link, late) = (LinkId(1), engine.delete.settings.lost_after_ms);
        engine.handle(Input::LinkUp { link, peer: id("p") }, 0, &mut Outbox::new());
        assert_eq!(engine.look_at_holes(late - 1), Holes::Open);
        assert_eq!(engine.look_at_holes(late), Holes::Closed);
        engine.peers.get_mut(link).unwrap().seen.insert(event(1));
        assert_eq!(engine.look_at_holes(late), Holes::Open);
    }
}

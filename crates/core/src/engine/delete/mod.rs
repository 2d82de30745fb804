//! Replication rule 7: which nodes must agree to a purge, and how the Delete group agrees.
//!
//! | part | where |
//! |---|---|
//! | the member list, founding, planned and forced changes | [`group`] |
//! | a round: propose, agree, decide, announce | [`round`] |
//! | nodes that are not on the list and were here lately | [`witness`] |
//! | the only member stops: it hands over | [`hand_over`] |
//! | a member leaves for good | [`retire`] |
//! | announcements: applied, kept, offered to nodes that are behind (replication rule 5) |
//! [`announce`] |
//! | holes in V: waiting for them, and giving them up as lost | [`holes`] |

pub(super) mod announce;
pub(super) mod group;
pub(super) mod hand_over;
pub(super) mod holes;
pub(super) mod retire;
pub(super) mod round;
pub(super) mod witness;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Engine, LinkId, Outbox};
use crate::model::defects::{Defect, Defects};
use crate::model::group::{GROUP_MEMBERS_MAX, GroupConfig, Member};
use crate::model::ids::{Incarnation, Millis, NodeName};
use crate::replica::purge::{PurgeDecision, TockPair};
use holes::HoleWatch;
use retire::Retiring;
use round::{Agreeing, Deciding, Proposed, Round};
use witness::{Retired, Witnesses};

pub use group::{ForgetError, GroupView};
pub use retire::{RetireError, Retirement};
pub use round::Decided;

/// By default, a node that is away and not on the list has a say for this long.
pub const SAY_FOR_MS: Millis = 300_000;

/// How the Delete group works. The defaults suit everybody but tests.
#[derive(Clone, Debug)]
pub struct DeleteSettings {
    /// The data directory's id; none for a node without one.
    pub store: Option<u64>,
    /// A coordinator's turn, milliseconds, the same on all nodes: longer than a round takes.
    pub cycle_ms: Millis,
    /// Rounds begin this often while there is something to purge, milliseconds.
    pub interval_ms: Millis,
    /// Most tombstones that one round drops: they go under one guard.
    pub batch_max: usize,
    /// How many announcements are kept for nodes that are behind.
    pub kept_max: usize,
    /// A network without a member list waits this long for a node that has one.
    pub found_after_ms: Millis,
    /// In a network without data directories the one member is replaced when it was away for this
    /// long.
    pub takeover_after_ms: Millis,
    /// A hole that could not be filled for this long is given up as lost.
    pub lost_after_ms: Millis,
    /// A node that is away and not on the list keeps tombstones from being purged for this long.
    pub say_for_ms: Millis,
}

impl Default for DeleteSettings {
    fn default() -> Self {
        Self {
            store: None,
            cycle_ms: 3_000,
            interval_ms: 10_000,
            batch_max: 4_096,
            kept_max: 64,
            found_after_ms: 5_000,
            takeover_after_ms: 3_600_000,
            lost_after_ms: 10_000,
            say_for_ms: SAY_FOR_MS,
        }
    }
}

/// This node's part in the Delete group.
pub(super) struct DeleteGroup {
    settings: DeleteSettings,
    /// The greatest list that this node has heard of. Must be kept over a restart.
    config: Option<GroupConfig>,
    /// Every linked peer, as a member.
    peers: BTreeMap<LinkId, Member>,
    /// Applied announcements, oldest first.
    kept: VecDeque<TockPair>,
    /// Announcements whose V is not all here yet.
    waiting: VecDeque<TockPair>,
    round: Option<Round>,
    /// The last proposal that this node may agree to once it has seen more.
    proposed: Option<Proposed>,
    /// What this node is about to agree to, once it is persisted.
    agreeing: Option<Agreeing>,
    /// What this node as coordinator has decided, until it is persisted. Must be kept over a
    /// restart.
    deciding: Option<Deciding>,
    holes: HoleWatch,
    next_token: u64,
    next_round: u64,
    round_due: Millis,
    /// No round is begun before this time, also where one is wanted at once.
    retry_due: Millis,
    /// A purge was applied: the next round is due one interval from the next tick.
    rests: bool,
    /// Since when this node has been ready without a list.
    without_list_since: Option<Millis>,
    /// Members that are not linked, and since when.
    away: BTreeMap<NodeName, Millis>,
    /// Nodes that are here and did not agree to the last round of this node before its time was over, and since when
    /// that has been so; none once anything is purged. At most as many as must agree.
    unanswered: BTreeMap<NodeName, Millis>,
    /// Nodes that are here, have a data directory, and are not on the list, and since when. At most as
    /// many as there are links, and this node.
    left_out: BTreeMap<NodeName, Millis>,
    witnesses: Witnesses,
    retired: Retired,
    /// Nodes that were on a former list and are not on this one, by name. At most [`GROUP_MEMBERS_MAX`].
    taken_off: BTreeSet<NodeName>,
    /// Since when no node here has applied the purge from which on the list is in force.
    stranded_since: Option<Millis>,
    /// This node is about to stop.
    hands_over: bool,
    /// This node is to leave for good.
    retires: Option<Retiring>,
}

impl DeleteGroup {
    pub(super) fn new(settings: DeleteSettings) -> Self {
        Self {
            settings,
            config: None,
            peers: BTreeMap::new(),
            kept: VecDeque::new(),
            waiting: VecDeque::new(),
            round: None,
            proposed: None,
            agreeing: None,
            deciding: None,
            holes: HoleWatch::default(),
            next_token: 0,
            next_round: 0,
            round_due: 0,
            retry_due: 0,
            rests: false,
            without_list_since: None,
            away: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            left_out: BTreeMap::new(),
            witnesses: Witnesses::new(),
            retired: Retired::new(),
            taken_off: BTreeSet::new(),
            stranded_since: None,
            hands_over: false,
            retires: None,
        }
    }

    /// This disk was copied, and another node is the member that it made this node: with an id of
    /// its own it is a newcomer, so that two nodes never continue in one lineage.
    pub(super) fn on_renewed(&mut self, incarnation: Incarnation, defects: Defects) {
        if defects.has(Defect::StoreKept) {
            return;
        }
        if let Some(store) = &mut self.settings.store {
            *store = store_after_renewal(incarnation);
        }
        self.round = None;
        self.proposed = None;
        self.agreeing = None;
        self.deciding = None;
    }

    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }
}

/// The id that a node's data directory gets when the node continues under this incarnation, because
/// another node uses its former one: it is another member of the group.
#[must_use]
pub fn store_after_renewal(incarnation: Incarnation) -> u64 {
    incarnation.0
}

impl Engine {
    /// From now on a list is founded and taken over as `settings` say.
    #[cfg(any(test, feature = "planted-defects"))]
    pub(in crate::engine) fn set_delete_patience(&mut self, settings: &DeleteSettings) {
        self.delete.settings.found_after_ms = settings.found_after_ms;
        self.delete.settings.takeover_after_ms = settings.takeover_after_ms;
        self.delete.settings.say_for_ms = settings.say_for_ms;
    }

    pub(super) fn on_delete_tick(&mut self, now: Millis, out: &mut Outbox) {
        self.retry_waiting(out);
        self.on_group_tick(now, out);
        self.retry_proposed(now, out);
        self.on_round_tick(now, out);
    }

    pub(super) fn on_delete_link_down(&mut self, link: LinkId) {
        self.delete.peers.remove(&link);
        self.forget_confirmation(link);
        // A round that waits for this link's answer will time out; one more try costs nothing.
        if self.delete.agreeing.as_ref().is_some_and(|a| a.link == link) {
            self.delete.agreeing = None;
        }
        self.delete.proposed.take_if(|p| p.link == link);
    }

    /// A state was persisted: whatever waited for it continues.
    pub(super) fn on_persisted(&mut self, token: u64, now: Millis, out: &mut Outbox) {
        if let Some(agreeing) = self.delete.agreeing.take_if(|a| a.token == token) {
            self.agree(&agreeing, out);
        }
        if let Some(deciding) = self.delete.deciding.take_if(|d| d.token == token) {
            self.note_knowledge();
            self.carry_out_decision(deciding, now, out);
        }
    }

    /// The last purges that were applied here, oldest first.
    pub fn applied_pairs(&self) -> impl Iterator<Item = &TockPair> {
        self.delete.kept.iter()
    }

    /// The data directory's id, of a node that has one: what makes it a certain member.
    #[must_use]
    pub fn store(&self) -> Option<u64> {
        self.delete.settings.store
    }

    /// The member list in force.
    #[must_use]
    pub fn group(&self) -> Option<&GroupConfig> {
        self.delete.config.as_ref()
    }

    /// What must survive a restart besides the list.
    pub(super) fn decided(&self) -> Option<Decided> {
        self.delete.deciding.as_ref().map(|d| d.decided.clone())
    }

    /// Whether a node of that name is on the list, or was on one of the former lists of this life; of those, as many are
    /// remembered as fit on a list.
    #[must_use]
    pub fn was_listed(&self, name: &NodeName) -> bool {
        let is_listed = self.group().is_some_and(|config| config.member(name).is_some());
        is_listed || self.delete.taken_off.contains(name)
    }

    /// The list changes to `next`.
    fn note_taken_off(&mut self, next: &GroupConfig) {
        let current = self.delete.config.iter().flat_map(GroupConfig::members);
        self.delete.taken_off.extend(current.map(|member| member.name.clone()));
        self.delete.taken_off.retain(|name| next.member(name).is_none());
        while self.delete.taken_off.len() > GROUP_MEMBERS_MAX {
            self.delete.taken_off.pop_first();
        }
    }

    /// After a restart: the list, and a decision that was persisted and may have been announced.
    /// `out` says what it takes out of the tree.
    pub(super) fn take_up_group(
        &mut self,
        config: Option<GroupConfig>,
        decided: Option<Decided>,
        out: &mut Outbox,
    ) {
        self.delete.config = config;
        self.spread.stale = true;
        let decided = decided.filter(|_| !self.config.defects.has(Defect::DecisionForgotten));
        let Some(Decided { pair, next }) = decided else { return };
        if self.replica.decide_purge(&pair) == PurgeDecision::Apply {
            self.apply_pair(pair, out);
            if next.is_some() {
                self.delete.config = next;
            }
        }
    }
}

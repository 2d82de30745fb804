//! Replication rule 7: the member list. Which node founds it, which one coordinates, when it is
//! changed as planned, and when by force, which starts a new lineage, named by an event of its
//! maker.

use std::collections::BTreeSet;

use super::Engine;
use crate::engine::{LinkId, Outbox, Output, Report};
use crate::model::defects::Defect;
use crate::model::group::{GROUP_MEMBERS_MAX, GroupConfig, Member};
use crate::model::ids::{Event, Millis, NodeId, NodeName};
use crate::model::mark::{Implied, Lineage, Mark};
use crate::protocol::peer::{GroupHello, PeerMessage};

/// What operators and clients see of the Delete group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupView {
    /// The member list, if there is one.
    pub config: Option<GroupConfig>,
    /// Members that are not there, and for how long, milliseconds. While there is one, nothing
    /// is purged.
    pub away: Vec<(Member, Millis)>,
    /// Nodes that are here and did not agree to the last round of this node before its time was over, by name, and for how
    /// long that has been so, milliseconds; none once anything is purged. Members take turns in beginning rounds.
    pub unanswered: Vec<(NodeName, Millis)>,
    /// Tombstones that wait for being purged.
    pub tombstones: usize,
    /// Nodes that are not on the list, were here lately and are away, and for how long, milliseconds.
    /// Nothing is purged until they are back, or were away for too long.
    pub awaited: Vec<(NodeName, Millis)>,
    /// Nodes that are here, have a data directory, and are not on the list, by name, and for how long,
    /// milliseconds; none while there is no list. A node that has just come is taken in within seconds.
    pub left_out: Vec<(NodeName, Millis)>,
    /// How many lineages the mark names.
    pub lineages: usize,
}

/// Why a member was not taken off the list. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ForgetError {
    /// The node has not caught up with its network yet.
    #[error("this node has not caught up with its network yet; try again, or another node")]
    NotReady,
    /// It is not on the list.
    #[error("no node of that name is known here; see `distkv-node members`")]
    NotAMember,
    /// It is linked.
    #[error(
        "that node is up and linked; stop it first if it is to be forgotten; if it is down already, its link \
         has not timed out yet: try again in a few seconds"
    )]
    IsHere,
    /// It is this node.
    #[error(
        "this is the node itself; `distkv-node leave --for-good` has it leave and takes it off the list"
    )]
    IsThis,
    /// No event can be made now.
    #[error("this node cannot make changes now; try again, or another node")]
    NoEvent,
}

impl Engine {
    /// This node as a member of the group, as it presents itself.
    pub(in crate::engine) fn as_member(&self) -> Member {
        if self.is_retired() {
            let id = &self.config.id;
            return Member { name: id.name.clone(), store: id.incarnation.0, durable: false };
        }
        self.as_listed()
    }

    /// This node as it stands on the list, if it does.
    pub(super) fn as_listed(&self) -> Member {
        let store = self.delete.settings.store;
        Member {
            name: self.config.id.name.clone(),
            store: store.unwrap_or(self.config.id.incarnation.0),
            durable: store.is_some(),
        }
    }

    /// What operators and clients see of the Delete group.
    #[must_use]
    pub fn group_view(&self, now: Millis) -> GroupView {
        let config = self.delete.config.clone();
        let members = config.iter().flat_map(GroupConfig::members);
        let away = members.filter_map(|member| {
            let since = self.delete.away.get(&member.name)?;
            Some((member.clone(), now.saturating_sub(*since)))
        });
        // One that is not here any more is away.
        let here = |name: &NodeName| !self.delete.away.contains_key(name);
        let unanswered = self.delete.unanswered.iter().filter(|(name, _)| here(name));
        let unanswered = unanswered.map(|(name, since)| (name.clone(), now.saturating_sub(*since)));
        // Before there is a list nothing is purged, so no node is left out.
        let left_out = config.iter().flat_map(|config| self.newcomers(Some(config)));
        let lasts = |name: &NodeName| {
            let since = self.delete.left_out.get(name);
            since.map_or(0, |since| now.saturating_sub(*since))
        };
        let left_out = left_out.map(|member| (member.name.clone(), lasts(&member.name))).collect();
        GroupView {
            away: away.collect(),
            unanswered: unanswered.collect(),
            tombstones: self.replica.tree().tombstone_len(),
            awaited: self.awaited(now),
            left_out,
            lineages: self.replica.mark().len(),
            config,
        }
    }

    /// Removes a member that will not come back from the list, by force. Changes that only it had
    /// agreed to or deleted may count as new when it comes back after all (replication rule 8).
    ///
    /// # Errors
    /// [`ForgetError`]; nothing was changed.
    pub(in crate::engine) fn forget_member(
        &mut self,
        name: &NodeName,
        out: &mut Outbox,
    ) -> Result<(), ForgetError> {
        if !self.ready {
            return Err(ForgetError::NotReady);
        }
        let config = self.delete.config.as_ref().ok_or(ForgetError::NotAMember)?;
        let member = config.member(name).cloned().ok_or(ForgetError::NotAMember)?;
        if member == self.as_member() {
            return Err(ForgetError::IsThis);
        }
        if self.is_here(&member) {
            return Err(ForgetError::IsHere);
        }
        let rest = config.members().iter().filter(|m| m.name != *name).cloned().collect();
        let is_changed = self.force_change(rest, out);
        self.tell_knowledge(out);
        if is_changed { Ok(()) } else { Err(ForgetError::NoEvent) }
    }

    /// A forced change, or the first list of all: always a new lineage, so that two sides never
    /// go on in one. Without members left, this node becomes the only one.
    fn force_change(&mut self, mut members: Vec<Member>, out: &mut Outbox) -> bool {
        if members.is_empty() {
            members.push(self.as_member());
        }
        let version = self.delete.config.as_ref().map_or(0, |c| c.version).saturating_add(1);
        let Some(event) = self.replica.burn_event() else { return false };
        self.peers.note_change(event.node);
        self.peers.note_burnt(event.tick);
        self.note_knowledge();
        let mut lineage = Lineage(Some((self.config.id.clone(), event.tick)));
        if self.config.defects.has(Defect::OneLineage)
            && let Some(config) = &self.delete.config
        {
            lineage = config.lineage.clone();
        }
        let Some(config) = GroupConfig::new(version, lineage, members) else { return false };
        self.take_config(config, out);
        self.broadcast_group(out);
        true
    }

    /// Adopts a list if it is greater than the one in force; returns whether it was.
    pub(super) fn take_config(&mut self, config: GroupConfig, out: &mut Outbox) -> bool {
        if self.delete.config.as_ref().is_some_and(|current| !config.supersedes(current)) {
            return false;
        }
        out.push(Output::Report(Report::GroupChanged { config: config.clone() }));
        // The event that names the lineage is no entry's: the list is all there is of it.
        if let Lineage(Some((id, tick))) = &config.lineage
            && let Some(node) = self.replica.intern(id)
        {
            self.replica.account_for(Event { node, tick: *tick });
            self.peers.note_change(node);
        }
        self.note_retired(&config);
        self.note_taken_off(&config);
        self.delete.config = Some(config);
        self.spread.stale = true;
        self.note_knowledge();
        self.delete.round = None;
        self.delete.away.clear();
        self.delete.unanswered.clear();
        self.delete.stranded_since = None;
        self.update_retirement();
        true
    }

    /// The link to a member: that node, with that store.
    pub(super) fn link_of(&self, member: &Member) -> Option<LinkId> {
        self.delete.peers.iter().find(|(_, m)| *m == member).map(|(link, _)| *link)
    }

    /// Whether a member is here: linked, or, if no link is needed, alive as SWIM sees it.
    fn is_here(&self, member: &Member) -> bool {
        let is_it = |id: &NodeId| {
            id.name == member.name && (member.durable || id.incarnation.0 == member.store)
        };
        let need_not_be = self.wanted_links().is_some_and(|wanted| !wanted.contains(&member.name));
        self.link_of(member).is_some() || (need_not_be && self.members.iter().any(is_it))
    }

    /// A planned change that is due: a node with a data directory that is not on the list yet,
    /// or a member without one that is not needed any more.
    pub(super) fn planned_change(&self, config: &GroupConfig) -> Option<GroupConfig> {
        if self.wants_to_retire() {
            return self.without_this(config);
        }
        if let Some(handed_over) = self.handed_over(config) {
            return Some(handed_over);
        }
        let mut members = config.members().to_vec();
        for newcomer in self.newcomers(Some(config)) {
            members.retain(|m| m.durable && m.name != newcomer.name);
            if members.len() < GROUP_MEMBERS_MAX {
                members.push(newcomer);
            }
        }
        if members == config.members() {
            return None;
        }
        GroupConfig::new(config.version.checked_add(1)?, config.lineage.clone(), members)
    }

    /// Nodes with data directories that are here, serve clients, and are not on the list, by name.
    fn newcomers(&self, config: Option<&GroupConfig>) -> impl Iterator<Item = Member> {
        let me = self.ready.then(|| self.as_member());
        let ready = |link: &LinkId| self.peers.get(*link).is_some_and(|p| p.ready);
        let here = self.delete.peers.iter().filter(|(link, _)| ready(link)).map(|(_, m)| m);
        let is_new = |m: &&Member| m.durable && !config.is_some_and(|c| c.members().contains(m));
        let new = here.chain(&me).filter(is_new).cloned();
        new.collect::<BTreeSet<Member>>().into_iter()
    }

    pub(super) fn on_group_tick(&mut self, now: Millis, out: &mut Outbox) {
        if !self.ready || self.is_retired() {
            return;
        }
        let Some(config) = self.delete.config.clone() else {
            self.delete.left_out.clear();
            self.note_witnesses(None, now);
            let since = *self.delete.without_list_since.get_or_insert(now);
            if now.saturating_sub(since) >= self.delete.settings.found_after_ms
                && self.is_first_candidate()
            {
                self.force_change(vec![self.as_member()], out);
            }
            return;
        };
        let me = self.as_member();
        if let Some(listed) = config.member(&me.name)
            && *listed != me
        {
            // This node came back without the record of what it had agreed to (replication rule 9).
            let rest = config.members().iter().filter(|m| m.name != me.name).cloned().collect();
            self.force_change(rest, out);
            return;
        }
        self.note_away(&config, now);
        self.note_left_out(&config, now);
        self.note_witnesses(Some(&config), now);
        self.take_over(&config, now, out);
    }

    fn note_away(&mut self, config: &GroupConfig, now: Millis) {
        let me = self.as_member();
        for member in config.members() {
            if *member == me || self.is_here(member) {
                self.delete.away.remove(&member.name);
            } else {
                self.delete.away.entry(member.name.clone()).or_insert(now);
            }
        }
    }

    fn note_left_out(&mut self, config: &GroupConfig, now: Millis) {
        let names: BTreeSet<NodeName> = self.newcomers(Some(config)).map(|m| m.name).collect();
        let left_out = &mut self.delete.left_out;
        left_out.retain(|name, _| names.contains(name));
        for name in names {
            left_out.entry(name).or_insert(now);
        }
    }

    /// In a network without data directories: the one member was away for too long.
    fn take_over(&mut self, config: &GroupConfig, now: Millis, out: &mut Outbox) {
        // A node with data need not wait for one without: that is gone when it is restarted.
        let settings = &self.delete.settings;
        let after = if settings.store.is_some() {
            settings.takeover_after_ms.min(settings.say_for_ms)
        } else {
            settings.takeover_after_ms
        };
        let gone = |m: &Member| {
            let since = self.delete.away.get(&m.name);
            !m.durable && since.is_some_and(|s| now.saturating_sub(*s) >= after)
        };
        if config.members().iter().all(gone) && self.is_first_candidate() {
            self.force_change(vec![self.as_member()], out);
            return;
        }
        // The maker of this list is gone, with the purge from which on it is in force.
        let has_applied = |mark: &Mark| mark.component(&config.lineage).includes(&config.since);
        let is_stranded = config.members().contains(&self.as_member())
            && !has_applied(self.replica.mark())
            && !self.peers.iter().any(|(_, peer)| has_applied(&peer.mark));
        if !is_stranded {
            self.delete.stranded_since = None;
            return;
        }
        let since = *self.delete.stranded_since.get_or_insert(now);
        if now.saturating_sub(since) >= self.delete.settings.takeover_after_ms {
            self.force_change(config.members().to_vec(), out);
        }
    }

    /// Whether this node is the first, by name, of those that could found a list: those with a
    /// data directory, if there are any.
    fn is_first_candidate(&self) -> bool {
        let me = self.as_member();
        let ready = |link: &LinkId| self.peers.get(*link).is_some_and(|p| p.ready);
        let rank = |m: &Member| (!m.durable, m.name.clone());
        let mut others = self.delete.peers.iter().filter(|(l, _)| ready(l)).map(|(_, m)| m);
        others.all(|m| rank(&me) < rank(m))
    }

    /// Tells a peer this node's identity and its list.
    pub(in crate::engine) fn greet_group(&self, link: LinkId, out: &mut Outbox) {
        self.send(link, &PeerMessage::Group(self.group_hello()), out);
    }

    pub(super) fn broadcast_group(&self, out: &mut Outbox) {
        self.broadcast(&PeerMessage::Group(self.group_hello()), out);
    }

    fn group_hello(&self) -> GroupHello {
        GroupHello {
            member: self.as_member(),
            config: self.delete.config.clone(),
            implied: self.replica.mark().implied().to_vec(),
        }
    }

    /// Adds facts about what may be left out of marks; returns whether anything was new.
    pub(super) fn learn_implied(&mut self, implied: &[Implied]) -> bool {
        let is_news = self.replica.learn_implied(implied);
        if is_news {
            self.note_knowledge();
        }
        is_news
    }

    pub(in crate::engine) fn on_group(
        &mut self,
        link: LinkId,
        hello: &GroupHello,
        out: &mut Outbox,
    ) {
        // A peer speaks for itself only.
        let speaks = self.peers.get(link).is_some_and(|p| p.id.name == hello.member.name);
        let before = match speaks {
            true => self.delete.peers.insert(link, hello.member.clone()),
            false => None,
        };
        let retires = before.filter(|before| before.durable && !hello.member.durable);
        if let Some(before) = &retires {
            self.do_not_take_in(before);
        }
        // Every node passes it on once: not all are linked to its maker.
        let mut is_news = self.learn_implied(&hello.implied);
        if let Some(config) = &hello.config {
            is_news |= self.take_config(config.clone(), out);
        }
        self.note_confirmation(link, hello.config.as_ref());
        if is_news {
            self.broadcast_group(out);
        } else if retires.is_some() {
            // It leaves for good, and waits until it is known that it is not to be taken in.
            self.send(link, &PeerMessage::Group(self.group_hello()), out);
        }
    }

    /// A node that may be about to be taken in says that it leaves for good.
    fn do_not_take_in(&mut self, newcomer: &Member) {
        let is_listed = self.delete.config.as_ref().is_some_and(|c| c.members().contains(newcomer));
        if !is_listed {
            self.delete.round.take_if(|round| round.takes_in(newcomer));
        }
    }
}

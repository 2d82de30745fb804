//! The machine: foca, its timers, the durable list of peers and the reported state, behind one
//! entry point. `receive.rs` judges datagrams.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::BufMut;
use foca::{Codec, Foca, Header, Member, Message, NoCustomBroadcast, State};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::config::SwimConfig;
use super::effects::Effects;
use super::error::MembershipError;
use super::io::{MemberInfo, PeerInfo, SwimCounters, SwimInput, SwimOutput};
use super::members::identity::{Identity, canonical_addr, is_unicast};
use super::members::peers::PeerList;
use super::members::roster::Roster;
use super::members::strangers::Strangers;
use super::timers::Timers;
use super::wire::codec::IdentityCodec;
use super::wire::datagram::{Conflict, Envelope, Kind, encode_bye};
use crate::model::ids::{Incarnation, Millis, NodeName};

/// A node that joined counts as having its place in the network after this time as a member: by
/// then all nodes know each other, and a rival of its name would have been found.
const ESTABLISHED_AFTER_MS: Millis = 5_000;
/// How often a leaving node says goodbye to every member, against packet loss.
const BYE_TIMES: u32 = 3;
/// The time between its goodbyes.
const BYE_PERIOD_MS: Millis = 100;
/// Most members that are remembered, those that are down included. Datagrams that would add more
/// are dropped: a peer must not fill the memory with invented members.
pub(crate) const MEMBERS_MAX: usize = 2048;
/// A tick that comes later than this after its deadline means that this process stood still. It
/// then gives every suspect as much more time, since it could not hear them either.
const STALL_MS: Millis = 1_000;

/// For this long after a member came up, another is asked for its list of members with every call
/// to a missing peer: one datagram does not hold the list of a large network, and when many nodes
/// start at once, all lists are short.
const FEED_AFTER_CHANGE_MS: Millis = 5_000;
/// That much longer for each member, and of this many members one is asked at a time: an answer
/// names some 25 at random, and unknown members become rarer among known ones.
const FEED_PER_MEMBER_MS: Millis = 20;
const FEED_MEMBERS: usize = 125;

/// Where the machine is in its life.
#[derive(Debug)]
pub(super) enum Phase {
    Running,
    /// Said goodbye, or was refused; answers every datagram with a goodbye.
    Gone {
        last: Identity,
        targets: Vec<SocketAddr>,
        byes_left: u32,
        next_bye: Millis,
    },
}

/// After a renewal, members that do not let us in for so long are taken for gone.
const OUTSIDE_PATIENCE_MS: Millis = 10_000;

/// Whether this node has its place in the network, should another have its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It knew no peer when it started, and was never asked to join one.
    Founder,
    /// It knew a peer or was asked, and no member has let it in yet.
    Joining,
    /// A member did, at that time.
    Member { since: Millis },
}

/// One node's membership, without sockets, threads or clock. See the [module](super) for how to
/// drive it.
pub struct Swim {
    pub(super) foca: Foca<Identity, IdentityCodec, SmallRng, NoCustomBroadcast>,
    pub(super) effects: Effects,
    pub(super) phase: Phase,
    pub(super) place: Place,
    pub(super) peers: PeerList,
    pub(super) strangers: Strangers,
    pub(super) counters: SwimCounters,
    /// Others refuse us because of our name: since when, when last, and when the holder was last
    /// asked about it.
    pub(super) refusals: Option<super::receive::Refusals>,
    timers: Timers,
    roster: Roster,
    /// Members found down, and when.
    pub(super) down_since: BTreeMap<SocketAddr, (Identity, Millis)>,
    /// Who is to be called next because others say that it is up.
    pub(super) disputed: Option<SocketAddr>,
    announce_period_ms: Millis,
    remove_down_after_ms: Millis,
    /// Since when nobody has let us in under a new identity.
    outside_since: Option<Millis>,
    /// Up to when other members are asked for their lists.
    feed_until: Millis,
    feeds: usize,
    /// When the first input came.
    started: Option<Millis>,
    /// `None` until the first input.
    next_announce: Option<Millis>,
    /// The first call comes at a random point of the period, so that nodes that start together
    /// do not call together.
    announce_offset_ms: Millis,
    /// The latest time seen: time that runs backwards stands still.
    now: Millis,
}

impl Swim {
    /// A machine that knows no peer. `seed` decides whom it probes when; give each node its own.
    ///
    /// # Errors
    /// [`MembershipError::Setting`] for settings that cannot work, [`MembershipError::Address`]
    /// for an identity that others could not reach.
    pub fn new(config: SwimConfig, identity: Identity, seed: u64) -> Result<Self, MembershipError> {
        let identity = Identity { addr: canonical_addr(identity.addr), ..identity };
        if !is_unicast(&identity.addr) {
            return Err(MembershipError::Address { addr: identity.addr });
        }
        let envelope = Envelope::new(config.network.clone());
        let foca_config = config.to_foca(envelope.body_bytes_max())?;
        let mut rng = SmallRng::seed_from_u64(seed);
        let announce_offset_ms = rng.random_range(0..config.announce_period_ms);
        Ok(Self {
            foca: Foca::new(identity, foca_config, rng, IdentityCodec),
            effects: Effects::new(envelope),
            phase: Phase::Running,
            place: Place::Founder,
            peers: PeerList::default(),
            strangers: Strangers::default(),
            counters: SwimCounters::default(),
            refusals: None,
            timers: Timers::default(),
            roster: Roster::default(),
            down_since: BTreeMap::new(),
            disputed: None,
            outside_since: None,
            announce_period_ms: config.announce_period_ms,
            remove_down_after_ms: config.remove_down_after_ms,
            feed_until: 0,
            feeds: 0,
            started: None,
            next_announce: None,
            announce_offset_ms,
            now: 0,
        })
    }

    /// The one way to change anything: takes an input and appends what follows from it to `out`.
    /// Never fails and never panics on what a datagram holds.
    pub fn handle(&mut self, input: SwimInput<'_>, now: Millis, out: &mut Vec<SwimOutput>) {
        self.now = self.now.max(now);
        let started = *self.started.get_or_insert(self.now);
        self.next_announce.get_or_insert(started.saturating_add(self.announce_offset_ms));
        self.mark_place();
        let first = out.len();
        match (input, matches!(self.phase, Phase::Running)) {
            (SwimInput::Datagram { from, bytes }, _) => self.on_datagram(from, bytes, out),
            (SwimInput::Tick, true) => self.on_tick(out),
            (SwimInput::Tick, false) => self.on_tick_gone(out),
            (SwimInput::Join(addr), true) => self.on_join(canonical_addr(addr), out),
            (SwimInput::KnownPeer { name, addr }, true) => {
                self.on_known_peer(name, canonical_addr(addr));
            }
            (SwimInput::Linked { name, addr }, true) => {
                self.on_linked(name, canonical_addr(addr), out);
            }
            (SwimInput::Leave, true) => self.say_goodbye(out),
            (SwimInput::ForgetPeer(addr), _) => self.peers.forget(&canonical_addr(addr)),
            // The machine that follows one that was refused gets the list.
            (SwimInput::KnownPeer { name, addr }, false) => {
                self.add_peer(name, canonical_addr(addr));
            }
            (SwimInput::Linked { name, addr }, false) => {
                self.add_peer(Some(name), canonical_addr(addr));
            }
            (SwimInput::Join(_) | SwimInput::Leave, false) => {}
        }
        let is_send = |output: &&SwimOutput| matches!(output, SwimOutput::Send { .. });
        self.counters.sent += out.iter().skip(first).filter(is_send).count() as u64;
    }

    /// When the next [`SwimInput::Tick`] is due, on the clock that `handle` is given; in the past
    /// if it is due already. `None` once goodbye has been said: nothing more will come.
    pub fn next_deadline(&self) -> Option<Millis> {
        match &self.phase {
            Phase::Running => {
                let announce = self.next_announce.unwrap_or(0);
                Some(self.timers.next_deadline().map_or(announce, |timer| timer.min(announce)))
            }
            Phase::Gone { byes_left: 0, .. } => None,
            Phase::Gone { next_bye, .. } => Some(*next_bye),
        }
    }

    /// This node's identity, as renewed by now.
    #[cfg(test)]
    pub(crate) fn identity(&self) -> &Identity {
        self.foca.identity()
    }

    /// The other members for display, in order of addresses; those that are down for as long as
    /// the settings say.
    pub fn members(&self) -> Vec<MemberInfo> {
        self.roster.members(|addr| {
            self.member_at(addr).is_some_and(|member| member.state() == State::Suspect)
        })
    }

    /// The durable list of peers, for storing, in order of addresses.
    pub fn peers(&self) -> Vec<PeerInfo> {
        self.peers.iter().collect()
    }

    /// What happened so far, by count.
    pub fn counters(&self) -> SwimCounters {
        self.counters
    }

    /// The latest time that was given.
    pub(super) fn now(&self) -> Millis {
        self.now
    }

    pub(super) fn member_at(&self, addr: &SocketAddr) -> Option<&Member<Identity>> {
        self.foca.iter_membership_state().find(|member| member.id().addr == *addr)
    }

    /// Whether we have our place in the network, see [`Place`].
    pub(super) fn is_established(&self) -> bool {
        match self.place {
            Place::Founder => true,
            Place::Joining => false,
            Place::Member { since } => self.now.saturating_sub(since) >= ESTABLISHED_AFTER_MS,
        }
    }

    /// Marks outgoing datagrams from now on with whether we have our place.
    fn mark_place(&mut self) {
        self.effects.kind = if self.is_established() { Kind::Swim } else { Kind::SwimJoining };
    }

    fn can_call(&self, addr: &SocketAddr) -> bool {
        is_unicast(addr) && *addr != self.foca.identity().addr
    }

    fn on_join(&mut self, addr: SocketAddr, out: &mut Vec<SwimOutput>) {
        if !self.can_call(&addr) {
            return;
        }
        self.become_joiner();
        self.peers.add(addr, None);
        self.peers.on_called(&addr, self.now);
        self.announce_to(addr, out);
    }

    fn on_known_peer(&mut self, name: Option<NodeName>, addr: SocketAddr) {
        if !self.can_call(&addr) {
            return;
        }
        let age = self.now.saturating_sub(self.started.unwrap_or(self.now));
        if age < ESTABLISHED_AFTER_MS {
            self.become_joiner(); // a restart: there may still be a network, where our name is taken
        }
        self.add_peer(name, addr);
    }

    /// Puts it on the durable list, if it is an address that can be called.
    fn add_peer(&mut self, name: Option<NodeName>, addr: SocketAddr) {
        if self.can_call(&addr) {
            self.peers.add(addr, name);
        }
    }

    fn on_linked(&mut self, name: NodeName, addr: SocketAddr, out: &mut Vec<SwimOutput>) {
        let is_up = |member: &Member<Identity>| {
            member.state() != State::Down && !member.id().leaving && member.id().name == name
        };
        if !self.can_call(&addr) || self.member_at(&addr).is_some_and(is_up) {
            return;
        }
        self.on_known_peer(Some(name), addr);
        self.peers.on_called(&addr, self.now);
        self.announce_to(addr, out);
    }

    fn become_joiner(&mut self) {
        if self.place == Place::Founder && self.foca.num_members() == 0 {
            self.place = Place::Joining;
            self.mark_place();
        }
    }

    fn on_tick(&mut self, out: &mut Vec<SwimOutput>) {
        let late = self.now.saturating_sub(self.next_deadline().unwrap_or(self.now));
        if late > STALL_MS {
            self.timers.postpone_suspicions(late);
        }
        for timer in self.timers.take_due(self.now) {
            if !self.is_worth_firing(&timer) {
                continue;
            }
            // The only errors are about a probe that was cut short, by a change of identity or a
            // late tick; foca has recovered when it says so.
            let _ = self.foca.handle_timer(timer, &mut self.effects);
            self.settle(out);
        }
        if self.next_announce.is_some_and(|at| at <= self.now) {
            self.next_announce = Some(self.now + self.announce_period_ms);
            if let Some(addr) = self.peers.next_to_call(self.now, self.foca.num_members() == 0) {
                self.announce_to(addr, out);
            }
            if let Some(addr) = self.disputed.take() {
                self.announce_to(addr, out);
            }
            if self.now < self.feed_until {
                let times = 1 + self.foca.num_members() / FEED_MEMBERS;
                (0..times).for_each(|_| self.ask_for_feed(out));
            } else if self.effects.is_outside {
                // Who told us that we are down, or had our name, may have refused us, and those that we
                // believe to be up are not on the list of those that are called.
                self.ask_for_feed(out);
            }
            self.give_up_silent(out);
            self.remind_suspects(out);
            self.remove_long_down();
        }
    }

    /// Nobody lets us in under a new identity: those that we believe to be up are not there, and foca, which
    /// does not probe, would never find out. Until then a node that came with one of their names is refused.
    fn give_up_silent(&mut self, out: &mut Vec<SwimOutput>) {
        if !self.effects.is_outside {
            self.outside_since = None;
            return;
        }
        let since = *self.outside_since.get_or_insert(self.now);
        if self.now.saturating_sub(since) < OUTSIDE_PATIENCE_MS {
            return;
        }
        self.outside_since = None;
        let silent: Vec<_> =
            self.foca.iter_members().map(|member| Member::down(member.id().clone())).collect();
        // For us alone: others know better. An error would be about one of them, which then stays.
        let _ = self.foca.apply_many(silent.into_iter(), false, &mut self.effects);
        self.settle(out);
    }

    /// Tells suspects of the suspicion directly, so that they can refute it. foca only spreads it a
    /// few times when it is new; a suspect that missed that remains one, and the next lost probe
    /// would finish it. That happens after a renewal of ours, for example.
    fn remind_suspects(&mut self, out: &mut Vec<SwimOutput>) {
        let suspects = self.foca.iter_members().filter(|m| m.state() == State::Suspect);
        for suspect in suspects {
            let header = Header {
                src: self.foca.identity().clone(),
                // The lowest says nothing new about us; foca does not reveal the true one.
                src_incarnation: 0,
                dst: suspect.id().clone(),
                message: Message::Gossip,
            };
            let mut body = Vec::new();
            let encoded = IdentityCodec.encode_header(&header, &mut body).and_then(|()| {
                body.put_u16(1);
                IdentityCodec.encode_member(suspect, &mut body)
            });
            if encoded.is_ok() {
                let bytes = self.effects.envelope.seal(self.effects.kind, &body);
                out.push(SwimOutput::Send { to: suspect.id().addr, bytes });
            }
        }
    }

    /// foca 2.0 tells a suspect that it is down when its time is up, even if it has long refuted
    /// that; the healthy member then renews itself needlessly, at 2 % loss every few seconds. So
    /// such a timer fires only if the suspicion still stands.
    fn is_worth_firing(&self, timer: &foca::Timer<Identity>) -> bool {
        let foca::Timer::ChangeSuspectToDown { member_id, incarnation, .. } = timer else {
            return true;
        };
        self.member_at(&member_id.addr).is_some_and(|member| {
            member.id() == member_id
                && member.incarnation() == *incarnation
                && member.state() == State::Suspect
        })
    }

    /// Calls a node whose identity is not known: foca's request to join, which only the address
    /// has to fit.
    pub(super) fn announce_to(&mut self, addr: SocketAddr, out: &mut Vec<SwimOutput>) {
        let name = self.foca.identity().name.clone();
        let unknown = Identity::new(addr, name, Incarnation(0));
        let _ = self.foca.announce(unknown, &mut self.effects);
        self.settle(out);
    }

    /// Asks one member, in turn, whom it knows.
    fn ask_for_feed(&mut self, out: &mut Vec<SwimOutput>) {
        self.feeds = self.feeds.wrapping_add(1);
        let turn = self.feeds % self.foca.num_members().max(1);
        let member = self.foca.iter_members().nth(turn).map(|member| member.id().addr);
        if let Some(addr) = member {
            self.announce_to(addr, out);
        }
    }

    /// Turns what foca did into outputs. To be called after every call into foca.
    pub(super) fn settle(&mut self, out: &mut Vec<SwimOutput>) {
        for (after, timer) in self.effects.timers.drain(..) {
            self.timers.arm(self.now.saturating_add(after), timer);
        }
        out.extend(self.effects.sends.drain(..).map(|(to, bytes)| SwimOutput::Send { to, bytes }));
        if std::mem::take(&mut self.effects.became_active) {
            self.refusals = None;
            if self.place == Place::Joining {
                self.place = Place::Member { since: self.now };
            }
        }
        if std::mem::take(&mut self.effects.rejoined) {
            self.counters.renewals += 1;
            let generation = self.foca.identity().generation;
            out.push(SwimOutput::IdentityRenewed { generation });
        }
        for addr in std::mem::take(&mut self.effects.touched) {
            self.reconcile(addr, out);
        }
    }

    /// Reports what changed at an address, and keeps the list of peers up to date.
    fn reconcile(&mut self, addr: SocketAddr, out: &mut Vec<SwimOutput>) {
        let me = self.foca.identity().clone();
        let Some(member) = self.member_at(&addr).cloned() else { return };
        if addr == me.addr {
            return; // foca remembers what we were before we renewed ourselves
        }
        let first = out.len();
        self.roster.reconcile(&member, self.now, out);
        if out.iter().skip(first).any(|output| matches!(output, SwimOutput::MemberUp { .. })) {
            let members = self.foca.num_members() as Millis;
            let lasts = FEED_AFTER_CHANGE_MS + members * FEED_PER_MEMBER_MS;
            self.feed_until = self.now.saturating_add(lasts);
        }
        let id = member.id();
        if id.leaving {
            self.peers.forget(&addr);
        } else if member.state() == State::Down {
            self.peers.on_failed(&addr, self.now);
        } else {
            self.peers.on_up(addr, &id.name, self.now);
            if id.name == me.name {
                self.tell_conflict(id, &me, self.is_established(), out);
            }
        }
    }

    /// Tells `loser` which node has its name or address.
    pub(super) fn tell_conflict(
        &mut self,
        loser: &Identity,
        holder: &Identity,
        established: bool,
        out: &mut Vec<SwimOutput>,
    ) {
        let sender = self.foca.identity().addr;
        let conflict =
            Conflict { sender, loser: loser.clone(), holder: holder.clone(), established };
        if let Ok(body) = conflict.encode() {
            let bytes = self.effects.envelope.seal(Kind::Conflict, &body);
            out.push(SwimOutput::Send { to: loser.addr, bytes });
        }
    }

    /// Leaves: tells every member directly, now and a few times more, since the process may end
    /// before gossip would have spread it.
    pub(super) fn say_goodbye(&mut self, out: &mut Vec<SwimOutput>) {
        let last = self.foca.identity().leaving();
        let targets = self.foca.iter_members().map(|member| member.id().addr).collect::<Vec<_>>();
        let byes_left = if targets.is_empty() { 0 } else { BYE_TIMES };
        self.timers.clear();
        self.phase = Phase::Gone { last, targets, byes_left, next_bye: self.now };
        self.on_tick_gone(out);
    }

    fn on_tick_gone(&mut self, out: &mut Vec<SwimOutput>) {
        let now = self.now;
        let Phase::Gone { last, targets, byes_left, next_bye } = &mut self.phase else { return };
        if *byes_left == 0 || *next_bye > now {
            return;
        }
        *byes_left -= 1;
        *next_bye = now + BYE_PERIOD_MS;
        if let Ok(body) = encode_bye(last) {
            let bytes = self.effects.envelope.seal(Kind::Bye, &body);
            let send = |to: &SocketAddr| SwimOutput::Send { to: *to, bytes: bytes.clone() };
            out.extend(targets.iter().map(send));
        }
    }

    /// Lets foca forget those that have been down for long. The list of peers does not.
    fn remove_long_down(&mut self) {
        let now = self.now;
        let mut still_down = BTreeMap::new();
        let mut expired = Vec::new();
        for member in self.foca.iter_membership_state().filter(|m| m.state() == State::Down) {
            let id = member.id();
            let since = match self.down_since.get(&id.addr) {
                Some((known, since)) if known == id => *since,
                _ => now,
            };
            if now.saturating_sub(since) >= self.remove_down_after_ms {
                expired.push(id.clone());
            } else {
                still_down.insert(id.addr, (id.clone(), since));
            }
        }
        self.down_since = still_down;
        for id in expired {
            self.roster.remove_down(&id.addr);
            let _ = self.foca.handle_timer(foca::Timer::RemoveDown(id), &mut self.effects);
        }
    }
}

impl std::fmt::Debug for Swim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Swim")
            .field("identity", self.foca.identity())
            .field("active", &self.foca.num_members())
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}

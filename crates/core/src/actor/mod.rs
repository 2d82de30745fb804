//! The election: which members are on a short list, and which of them holds the tag. Pure and
//! deterministic; it knows nothing of keys, and several groups run side by side, each with an
//! [`Actor`] per member.
//!
//! # How it works
//!
//! Members take turns. The member whose turn it is pings, and all others, hearing it, stay silent;
//! there is only one ping per cycle. A ping claims the next turn and carries the *history*: the
//! members that took the last turns, newest first, each name once, up to a bounded number. That
//! history is the elected list. When the list is full its members take turns among themselves, the
//! oldest next, so that the list stays as it is; a newcomer gets a turn, and so comes on the list,
//! while it has room.
//!
//! - **Collisions.** Of two claims the greater one counts: by turn, then value, then name
//!   (`contest`). So all that hear both follow the same one, in whatever order they came.
//! - **Takeover.** If a member is silent at its turn, the others wait one gap; then the next on the
//!   list takes over (`pacing` has the whole order). A member that let three turns in a row pass is
//!   taken off the list (`roster`), or at once if it is known to be gone
//!   ([`Actor::on_member_down`]).
//! - **Start.** A member listens for one to two cycles, then claims the first turn: one that is
//!   alone elects itself, and of many that start together one does, the others fill the list.
//! - **Ready.** A member that is not ready says so with a ping without value. It claims a turn only
//!   if no ready member did for several cycles, and the first ready one that hears it takes over at
//!   once: it holds the tag, and stays on the list, only if there is no ready member. A holder that
//!   is no longer ready loses the tag at once, and the next one takes over.
//! - **Healed splits.** A history that shares no name with ours is that of another group:
//!   [`ActorEvent::Recover`]. The two become one, in the same way on every member that heard both.
//!   The meeting is reported for some turns, so that members that never heard the other history
//!   themselves report it, too (`reunion`). Nothing is recovered if one of the two has only started
//!   (fewer than eight turns), or has no ready member.
//!
//! # Guarantees
//!
//! - If every ping arrives within half a gap, at most one member that can be heard by all holds the
//!   tag at any time. None does for one gap at each change of turns: a claim is contested first.
//! - If pings are lost or late, or groups meet, more than one can hold it, each until it hears any
//!   claim greater than its own. The holder of the greater claim repeats it to a member that
//!   contests it, and every turn repeats it.
//! - While one can hear the others but not be heard by them, `Recover` is repeated about every
//!   dozen turns: the two sides meet again and again, and never become one.
//! - A split that is over before the lists of its sides have parted (three turns per name, at once
//!   with [`Actor::on_member_down`]) is not noticed.
//!
//! # Driving it
//!
//! 1. Make one per group; [`Actor::set_ready`] when the node may be elected.
//! 2. [`Actor::on_tick`] at the start, and then at [`Actor::next_deadline`] or every 50 ms or so; a
//!    tick that comes late by more than a cycle counts as a frozen node, which has to listen first.
//! 3. Broadcast each [`ActorOutput::Send`]; give what arrives to [`Actor::on_ping`].
//! 4. When a link to a member comes up, send it [`Actor::greeting`] at once, which it gives to
//!    `on_ping` like any other ping: a healed split is noticed then, not only with the next turn.
//! 5. Pass a time that never goes back.

mod contest;
mod hear;
mod io;
mod pacing;
mod reunion;
mod roster;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use rand::SeedableRng;
use rand::rngs::SmallRng;

pub(crate) use io::{ActorConfig, ActorEvent, ActorOutput, Role};

use contest::Claim;
use pacing::Standing;
use reunion::Reunions;
use roster::Roster;

use crate::model::ids::{Millis, NodeName};
use crate::model::ping::{ConfigVersion, GroupId, Ping};

/// Whether this member holds the tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tag {
    Free,
    /// Claimed; held from then on, if no member contests it.
    Claimed(Millis),
    Held,
}

/// Why this member repeats what it knows, out of turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Occasion {
    /// Another member claimed what it holds.
    Contest,
    /// Two histories have met.
    Meeting,
    /// Another member has an older configuration.
    Config,
}

/// One member's part in the election of one group; see the module's documentation.
#[derive(Debug)]
pub(crate) struct Actor {
    group: GroupId,
    me: NodeName,
    role: Role,
    /// Invariant: all its values are in range.
    config: ConfigVersion,
    value: u64,
    is_ready: bool,
    rng: SmallRng,
    /// The greatest claim that this member knows of.
    claim: Option<Claim>,
    /// Waits are measured from here: when the claim was made or heard; before there is one, the
    /// start. `None` before the first input that has a time.
    since: Option<Millis>,
    /// Follows `claim`; empty without one.
    roster: Roster,
    reunions: Reunions,
    /// Invariant: not `Free` only if `claim` is this member's own and it is active.
    tag: Tag,
    /// When to claim the next turn (if passive: to forget the history); `None`: to be worked out.
    claim_at: Option<Millis>,
    /// When to repeat what it knows, out of turn.
    say_at: Option<(Millis, Occasion)>,
    said_at: Option<Millis>,
    /// The turn's holder is gone: no member need wait for the end of the cycle.
    is_turn_over: bool,
    /// The configuration was set here and must be sent.
    has_new_config: bool,
    /// The members on the list as last reported.
    reported: BTreeSet<NodeName>,
}

impl Actor {
    /// A member that is not ready, of value 0, and knows no other yet. `seed` should differ between
    /// members: it keeps those that start together from claiming together.
    #[must_use]
    pub(crate) fn new(config: ActorConfig, me: NodeName, role: Role, seed: u64) -> Self {
        Self {
            group: config.group,
            me,
            role,
            config: config.shared.clamped(),
            value: 0,
            is_ready: false,
            rng: SmallRng::seed_from_u64(seed),
            claim: None,
            since: None,
            roster: Roster::default(),
            reunions: Reunions::default(),
            tag: Tag::Free,
            claim_at: None,
            say_at: None,
            said_at: None,
            is_turn_over: false,
            has_new_config: false,
            reported: BTreeSet::new(),
        }
    }

    /// The elected list, newest first; the first is whose turn it is, and holds the tag or is
    /// about to. At most as long as the configuration says.
    pub(crate) fn list(&self) -> impl Iterator<Item = &NodeName> {
        self.roster.names()
    }

    /// Whether this member holds the tag.
    #[must_use]
    pub(crate) fn is_tagged(&self) -> bool {
        self.tag == Tag::Held
    }

    /// The number of the turn that this member knows of; 0 if of none.
    #[must_use]
    pub(crate) fn turn(&self) -> u64 {
        self.claim.as_ref().map_or(0, Claim::turn)
    }

    /// When [`Actor::on_tick`] has something to do; `None` before the first tick, which is due at
    /// once.
    #[must_use]
    pub(crate) fn next_deadline(&self) -> Option<Millis> {
        let tag_at = match self.tag {
            Tag::Claimed(at) => Some(at),
            Tag::Free | Tag::Held => None,
        };
        let say_at = self.say_at.map(|(at, _)| at);
        self.claim_at.and_then(|at| [Some(at), tag_at, say_at].into_iter().flatten().min())
    }

    /// What this member knows, without claiming anything: to be sent to a peer whose link has just
    /// come up. Also a passive member's.
    #[must_use]
    pub(crate) fn greeting(&self) -> Ping {
        Ping {
            group: self.group,
            sender: self.me.clone(),
            turn: self.turn(),
            value: self.claim.as_ref().and_then(Claim::value),
            history: self.claim.iter().flat_map(Claim::history).cloned().collect(),
            meetings: self.reunions.meetings().to_vec(),
            config: self.config,
        }
    }

    /// Whether this member may be elected. Takes effect with the next tick or ping.
    pub(crate) fn set_ready(&mut self, is_ready: bool) {
        if self.is_ready != is_ready {
            self.is_ready = is_ready;
            self.claim_at = None;
        }
    }

    /// What this member does in its group. Takes effect with the next tick or ping.
    pub(crate) fn set_role(&mut self, role: Role) {
        if self.role != role {
            self.role = role;
            self.claim_at = None;
        }
    }

    /// A hint: a member is known to be gone. It is taken off the list, and stays off until it is
    /// heard itself; if it is its turn, the next one takes over at once. Takes effect with the next
    /// tick or ping.
    pub(crate) fn on_member_down(&mut self, name: &NodeName) {
        if *name == self.me {
            return;
        }
        self.reunions.on_gone(name);
        if self.roster.on_gone(name) {
            self.claim_at = None;
            self.is_turn_over |= self.claim.as_ref().is_some_and(|claim| claim.holder() == name);
        }
    }

    /// Time has passed.
    pub(crate) fn on_tick(&mut self, now: Millis, out: &mut Vec<ActorOutput>) {
        self.settle(now, out);
        if self.next_deadline().is_some_and(|at| at.saturating_add(self.config.cycle_ms) < now) {
            self.on_stall(now, out);
        }
        if matches!(self.tag, Tag::Claimed(at) if at <= now) {
            self.tag = Tag::Held;
            out.push(ActorOutput::Event(ActorEvent::Tagged));
        }
        if self.say_at.is_some_and(|(at, _)| at <= now) {
            self.say(now, out);
        }
        if self.claim_at.is_some_and(|at| at <= now) {
            match self.role {
                Role::Active => self.claim_turn(now, out),
                Role::Passive => self.forget(now, out),
            }
        }
        self.settle(now, out);
    }

    /// What follows from a change, whichever it was.
    fn settle(&mut self, now: Millis, out: &mut Vec<ActorOutput>) {
        self.since.get_or_insert(now);
        let was_ready = self.claim.as_ref().is_some_and(|claim| claim.value().is_some());
        if self.role == Role::Passive || (was_ready && !self.is_ready) {
            self.untag(out);
        }
        if std::mem::take(&mut self.has_new_config) {
            self.say_by(now, Occasion::Config);
        }
        if self.role == Role::Passive {
            self.say_at = None;
        }
        if self.claim_at.is_none() {
            self.plan(now);
        }
        let is_as_reported = self.roster.len() == self.reported.len()
            && self.roster.names().all(|name| self.reported.contains(name));
        if !is_as_reported {
            self.reported = self.roster.names().cloned().collect();
            let list = self.roster.names().cloned().collect();
            out.push(ActorOutput::Event(ActorEvent::ListChanged(list)));
        }
    }

    /// Works out when to claim the next turn.
    fn plan(&mut self, now: Millis) {
        let mut since = self.since.unwrap_or(now);
        if std::mem::take(&mut self.is_turn_over) {
            since = since.min(now.saturating_sub(self.config.cycle_ms));
            self.since = Some(since);
        }
        let standing = Standing {
            is_ready: self.is_ready,
            is_holder_ready: self.claim.as_ref().map(|claim| claim.value().is_some()),
            place: self.roster.place(&self.me),
            listed: self.roster.len(),
        };
        let wait_ms = match self.role {
            Role::Active => pacing::wait_ms(standing, &self.config, &mut self.rng),
            Role::Passive => pacing::forget_ms(&self.config),
        };
        let mut at = since.saturating_add(wait_ms);
        if at < now && standing.is_holder_ready != Some(true) {
            // Just become ready: others may have, too, so these waits begin now.
            at = now.saturating_add(wait_ms);
        }
        self.claim_at = Some(at.max(now));
    }

    /// This node stood still while the others continued: its plans are long outdated.
    fn on_stall(&mut self, now: Millis, out: &mut Vec<ActorOutput>) {
        self.untag(out);
        self.say_at = None;
        self.since = Some(now);
        self.plan(now);
    }

    fn claim_turn(&mut self, now: Millis, out: &mut Vec<ActorOutput>) {
        let mut turn = 1;
        if let Some(last) = &self.claim {
            turn = last.turn() + 1;
            // A ready member that follows one that is not ready waits for no other.
            if last.value().is_some() || !self.is_ready {
                self.roster.on_turn(&self.me, self.config.list_len);
            }
        }
        let value = self.is_ready.then_some(self.value);
        let others = self.roster.present().filter(|name| *name != self.me);
        let others = others.take(self.config.list_len - 1);
        match Claim::new(turn, value, &self.me, others) {
            Some(claim) => {
                self.follow(claim, now, out);
                if self.tag == Tag::Free {
                    let tag_ms = pacing::tag_ms(self.is_ready, &self.config);
                    self.tag = Tag::Claimed(now.saturating_add(tag_ms));
                }
                self.say(now, out);
            }
            None => self.forget(now, out),
        }
    }

    /// Starts again from nothing.
    fn forget(&mut self, now: Millis, out: &mut Vec<ActorOutput>) {
        self.untag(out);
        self.claim = None;
        self.roster.clear();
        self.reunions = Reunions::default();
        self.since = Some(now);
        self.claim_at = None;
    }

    /// From now on this claim counts.
    fn follow(&mut self, claim: Claim, now: Millis, out: &mut Vec<ActorOutput>) {
        if *claim.holder() != self.me {
            self.untag(out);
        }
        self.roster.follow(&claim, self.config.list_len, now);
        if claim.turn() != self.turn() {
            self.reunions.on_turn(claim.turn());
        }
        self.claim = Some(claim);
        self.since = Some(now);
        self.is_turn_over = false;
        self.claim_at = None;
    }

    fn untag(&mut self, out: &mut Vec<ActorOutput>) {
        if std::mem::replace(&mut self.tag, Tag::Free) == Tag::Held {
            out.push(ActorOutput::Event(ActorEvent::Untagged));
        }
    }

    fn say(&mut self, now: Millis, out: &mut Vec<ActorOutput>) {
        self.say_at = None;
        self.said_at = Some(now);
        out.push(ActorOutput::Send(self.greeting()));
    }

    fn say_by(&mut self, at: Millis, occasion: Occasion) {
        if self.say_at.is_none_or(|(planned, _)| at < planned) {
            self.say_at = Some((at, occasion));
        }
    }

    fn follow_config(&mut self, config: ConfigVersion) {
        self.config = config;
        self.roster.truncate(config.list_len);
        self.claim_at = None;
    }
}

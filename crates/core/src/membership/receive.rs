//! What a datagram does: judged from the outside in, and given to foca last.

use std::net::SocketAddr;

use bytes::Buf;
use foca::{Codec, Header, Member, Message, State};

use super::io::SwimOutput;
use super::members::admission::{Admission, Rivalry, decide_admission, decide_rivalry};
use super::members::identity::{Identity, canonical_addr};
use super::swim::{MEMBERS_MAX, Phase, Swim};
use super::wire::codec::IdentityCodec;
use super::wire::datagram::{Conflict, Kind, Opened, decode_bye, encode_bye};
use crate::model::ids::Millis;

/// A generation from a conflict notice is accepted up to here. Above, the address is lost until the
/// others forget it (`remove_down_after_ms`); but own renewals can then never run out.
const GENERATION_LEARN_MAX: u32 = 1 << 31;
/// How long a joiner whose name is taken keeps trying when the holder itself does not answer. The
/// holder may have crashed just now, which the others know within 8 s.
pub(crate) const REFUSAL_PATIENCE_MS: Millis = 10_000;
/// Refusals further apart than this have nothing to do with each other.
const REFUSAL_GAP_MS: Millis = 5_000;
/// A holder is asked at most this often.
const ASK_HOLDER_PERIOD_MS: Millis = 500;

/// A member that has been down for us for this long, and that others say is up, is called. Before that, the others may
/// simply not have heard that it is down.
const DISPUTED_AFTER_MS: Millis = 10_000;

/// Refusals by others than the holder of our name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refusals {
    first: Millis,
    last: Millis,
    holder_asked: Millis,
}

impl Swim {
    pub(super) fn on_datagram(
        &mut self,
        from: SocketAddr,
        bytes: &[u8],
        out: &mut Vec<SwimOutput>,
    ) {
        if bytes.is_empty() {
            return;
        }
        self.counters.received += 1;
        let from = canonical_addr(from);
        match self.effects.envelope.open(bytes) {
            Err(_) => self.counters.malformed += 1,
            Ok(Opened::OtherVersion(version)) => {
                self.counters.other_version += 1;
                if self.strangers.is_news(from, self.now()) {
                    out.push(SwimOutput::VersionMismatch { from, version });
                }
            }
            Ok(Opened::OtherNetwork { network, kind }) => {
                self.counters.other_network += 1;
                if self.strangers.is_news(from, self.now()) {
                    out.push(SwimOutput::NetworkMismatch { from, network });
                    if kind != Some(Kind::Stranger) {
                        let bytes = self.effects.envelope.seal(Kind::Stranger, &[]);
                        out.push(SwimOutput::Send { to: from, bytes });
                    }
                }
            }
            Ok(Opened::Ours { kind, body }) => self.on_ours(kind, body, out),
        }
    }

    fn on_ours(&mut self, kind: Kind, body: &[u8], out: &mut Vec<SwimOutput>) {
        match (kind, &self.phase) {
            (Kind::Swim | Kind::SwimJoining, Phase::Running) => {
                self.on_swim(kind == Kind::Swim, body, out);
            }
            (Kind::Swim | Kind::SwimJoining, Phase::Gone { .. }) => self.on_swim_gone(body, out),
            (Kind::Conflict, Phase::Running) => match Conflict::decode(body) {
                Ok(conflict) => self.on_conflict(conflict, out),
                Err(_) => self.counters.malformed += 1,
            },
            (Kind::Bye, Phase::Running) => match decode_bye(body) {
                Ok(last) => self.on_bye(last, out),
                Err(_) => self.counters.malformed += 1,
            },
            (Kind::Conflict | Kind::Bye, Phase::Gone { .. }) => {}
            // An empty envelope of our own network says nothing.
            (Kind::Stranger, _) => self.counters.malformed += 1,
        }
    }

    fn on_swim(&mut self, established: bool, body: &[u8], out: &mut Vec<SwimOutput>) {
        let mut rest = body;
        let Ok(header) = IdentityCodec.decode_header(&mut rest) else {
            self.counters.malformed += 1;
            return;
        };
        let me = self.foca.identity().clone();
        if header.src.addr == me.addr || header.src.leaving {
            self.counters.misdirected += 1;
            return;
        }
        let readdressed = if header.dst.addr == me.addr {
            None
        } else if let Some(bytes) = readdress(&header, &me) {
            Some(bytes)
        } else {
            self.counters.misdirected += 1;
            return;
        };
        let sender = header.src;
        match decide_admission(&me, &sender, self.foca.iter_membership_state()) {
            Admission::Admit => {}
            Admission::OurName => {
                self.counters.conflicts += 1;
                return self.on_rival(&sender, established, out);
            }
            Admission::AddrHeld(holder) | Admission::NameHeld(holder) => {
                self.counters.conflicts += 1;
                return self.tell_conflict(&sender, &holder, true, out);
            }
        }
        if readdressed.is_some() && self.has_failed_before(&sender) {
            self.counters.misdirected += 1;
            return;
        }
        if !self.has_room_for(&sender, rest) {
            self.counters.table_full += 1;
            return;
        }
        self.note_disputed(rest);
        let body = readdressed.as_deref().unwrap_or(body);
        if self.foca.handle_data(body, &mut self.effects).is_err() {
            self.counters.malformed += 1;
        }
        let renewed = self.effects.rejoined;
        self.settle(out);
        if renewed {
            // The node that told us that we are down can let us in at once.
            self.announce_to(sender.addr, out);
        }
    }

    /// Whether we have this process down, in an identity that it has renewed since. A call of such a one to an address that we
    /// do not advertise does not bring it up: it was a member, and was told that it is down, so it knows the advertised one
    /// and calls that one, too. If only the other arrives, it cannot answer our probes, and would go down and up for ever.
    fn has_failed_before(&self, sender: &Identity) -> bool {
        self.member_at(&sender.addr).is_some_and(|member| {
            let known = member.id();
            let is_down = member.state() == State::Down && !known.leaving;
            is_down && known != sender && known.is_same_process(sender)
        })
    }

    /// A node still takes us for a member.
    fn on_swim_gone(&mut self, body: &[u8], out: &mut Vec<SwimOutput>) {
        let Phase::Gone { last, .. } = &self.phase else { return };
        let Ok(header) = IdentityCodec.decode_header(body) else {
            self.counters.malformed += 1;
            return;
        };
        if header.src.addr != last.addr
            && header.dst.addr == last.addr
            && let Ok(body) = encode_bye(last)
        {
            let bytes = self.effects.envelope.seal(Kind::Bye, &body);
            out.push(SwimOutput::Send { to: header.src.addr, bytes });
        }
    }

    /// Whether the members named in a datagram are known, or there is room for more.
    fn has_room_for(&self, sender: &Identity, updates: &[u8]) -> bool {
        if self.foca.iter_membership_state().len() < MEMBERS_MAX {
            return true;
        }
        if self.member_at(&sender.addr).is_none() {
            return false;
        }
        members_in(updates).all(|member| {
            member.id().addr == self.foca.identity().addr
                || self.member_at(&member.id().addr).is_some()
        })
    }

    /// Notes whom a member says to be up, although we have had it down for a while in an identity that this one
    /// does not beat. News of others cannot correct that, only the node itself, by a higher generation, and it learns
    /// from nobody but us that it needs one; the list of peers may lack it. So it is to be called.
    fn note_disputed(&mut self, updates: &[u8]) {
        if self.down_since.is_empty() {
            return;
        }
        let is_disputed = |member: &Member<Identity>| {
            let id = member.id();
            let down = self.down_since.get(&id.addr);
            let is_up = member.state() != State::Down && !id.leaving;
            is_up
                && down.is_some_and(|(known, since)| {
                    !id.beats(known) && self.now().saturating_sub(*since) >= DISPUTED_AFTER_MS
                })
        };
        if let Some(member) = members_in(updates).find(is_disputed) {
            self.disputed = Some(member.id().addr);
        }
    }

    /// Another live node has our name: one of us goes.
    fn on_rival(&mut self, rival: &Identity, established: bool, out: &mut Vec<SwimOutput>) {
        let me = self.foca.identity().clone();
        let our_place = self.is_established();
        match decide_rivalry((&me, our_place), (rival, established)) {
            Rivalry::WeStay => self.tell_conflict(rival, &me, our_place, out),
            Rivalry::WeYield => self.yield_to(rival, out),
        }
    }

    fn yield_to(&mut self, rival: &Identity, out: &mut Vec<SwimOutput>) {
        out.push(SwimOutput::Refused {
            name: rival.name.clone(),
            incarnation: rival.incarnation,
            holder: rival.addr,
        });
        self.say_goodbye(out);
    }

    fn on_conflict(&mut self, conflict: Conflict, out: &mut Vec<SwimOutput>) {
        let me = self.foca.identity().clone();
        let holder = &conflict.holder;
        if !conflict.loser.is_same_process(&me) {
            self.counters.misdirected += 1;
        } else if holder.addr == me.addr {
            self.renew_above(&me, &conflict, out);
        } else if holder.name != me.name {
            self.counters.malformed += 1;
        } else if conflict.is_from_holder() {
            self.on_rival(holder, conflict.established, out);
        } else {
            self.on_refusal_by_third(holder, out);
        }
    }

    /// Our address is remembered under an identity that beats ours: from before a restart, or
    /// because we were declared down or left. Known its generation, we can go above it.
    fn renew_above(&mut self, me: &Identity, conflict: &Conflict, out: &mut Vec<SwimOutput>) {
        let holder = &conflict.holder;
        if !holder.beats(me) || holder.generation > GENERATION_LEARN_MAX {
            return; // we have renewed ourselves since, or must wait until it is forgotten
        }
        let Some(renewed) = me.renewed_above(holder.generation) else { return };
        if self.foca.change_identity(renewed, &mut self.effects).is_ok() {
            self.effects.note_rejoined();
        }
        self.settle(out);
        self.announce_to(conflict.sender, out);
    }

    /// A member refuses us because it knows another node of our name as live. That may be out of
    /// date, so the holder itself is asked: its answer decides, at once. If it stays silent, it is
    /// either dead, and the members will know soon, or cut off from us.
    fn on_refusal_by_third(&mut self, holder: &Identity, out: &mut Vec<SwimOutput>) {
        let now = self.now();
        let before = self.refusals.filter(|r| now.saturating_sub(r.last) < REFUSAL_GAP_MS);
        let first = before.map_or(now, |r| r.first);
        if now.saturating_sub(first) >= REFUSAL_PATIENCE_MS && !self.is_established() {
            return self.yield_to(holder, out);
        }
        let asked = before.map(|r| r.holder_asked);
        let ask = asked.is_none_or(|at| now.saturating_sub(at) >= ASK_HOLDER_PERIOD_MS);
        let holder_asked = if ask { now } else { asked.unwrap_or(now) };
        self.refusals = Some(Refusals { first, last: now, holder_asked });
        if ask {
            self.announce_to(holder.addr, out);
        }
    }

    /// A member left.
    fn on_bye(&mut self, last: Identity, out: &mut Vec<SwimOutput>) {
        if last.addr == self.foca.identity().addr {
            self.counters.misdirected += 1;
        } else if self.member_at(&last.addr).is_some() {
            let gone = std::iter::once(Member::down(last));
            if self.foca.apply_many(gone, true, &mut self.effects).is_err() {
                self.counters.malformed += 1;
            }
            self.settle(out);
        } else {
            // Not a member (any more), but it may be on the list.
            self.peers.forget(&last.addr);
        }
    }
}

/// The members that a datagram names behind its header, up to the first one that cannot be read.
fn members_in(mut updates: &[u8]) -> impl Iterator<Item = Member<Identity>> {
    let count = updates.try_get_u16().unwrap_or(0);
    (0..count).map_while(move |_| IdentityCodec.decode_member(&mut updates).ok())
}

/// A call to another address than the advertised one that reached us nevertheless: a host has many
/// addresses and names, and a joining node may know any of them. foca would not accept it.
fn readdress(header: &Header<Identity>, me: &Identity) -> Option<Vec<u8>> {
    if header.message != Message::Announce {
        return None;
    }
    let mut bytes = Vec::new();
    let header = Header { dst: me.clone(), ..header.clone() };
    IdentityCodec.encode_header(&header, &mut bytes).ok()?;
    Some(bytes)
}

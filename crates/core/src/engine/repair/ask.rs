//! Replication rules 3 and 4 in motion, the asking side: when to ask whom for a catch-up, and the four
//! steps of one: counters out, known in; missing out, data in; across a purge names out, verdicts in;
//! then the step. Lists that are too long for a message go in parts: the asker asks for each when
//! it has dealt with the one before it, so that neither side has more than one on its way. One
//! catch-up is under way at a time; a hole that one peer does not fill is mended with another.
//!
//! Each answer brings this node further, or a timer must run out before it asks that peer again: two
//! nodes that answer each other at once, without getting anywhere, would never stop. `engine/tests/endless.rs`.

use crate::engine::take_in::TOUCHED_AT_ONCE;
use crate::engine::{CatchUpFailure, Engine, LinkId, Outbox, Output, Report};
use crate::model::defects::Defect;
use crate::model::ids::{Millis, Tock};
use crate::model::seen::{Mark, Seen};
use crate::model::seen_list::{ListAt, export_part};
use crate::protocol::peer::{
    CatchUpAsk, CatchUpKnown, CatchUpNames, CatchUpVerdict, PeerMessage, RefuseReason,
};
use crate::protocol::record::Record;
use crate::replica::across::{AcrossFailure, Knowledge};
use crate::replica::crossing::Crossing;

/// A tick that a peer has and that is missing here is a hole after this time; until then it is
/// probably on its way. Longer than a push takes, shorter than anybody notices.
pub(in crate::engine) const HOLE_AFTER_MS: Millis = 200;
/// The same where changes are passed on: a dozen links, each of which may take a while.
const HOLE_AFTER_RELAYED_MS: Millis = 300;
/// A catch-up that was silent for this long is given up: nothing of it came, and no bytes passed on the link behind
/// which it could stand.
pub(in crate::engine) const SILENCE_MS: Millis = 5_000;
/// Most bytes that an answer is waited for while they pass: in each direction the message that was being written
/// and a full queue may stand before it. After more, the question or the answer is lost.
pub(in crate::engine) const PASSED_BYTES_MAX: u64 = 16 << 20;
/// A peer that failed us is not asked again for this long, if there is another.
pub(in crate::engine) const AVOID_MS: Millis = 1_000;

/// The catch-up under way, as the asking side.
#[derive(Default)]
pub(in crate::engine) struct Repair {
    active: Option<Active>,
    next_id: u64,
}

impl Repair {
    /// Whether none is under way.
    pub(in crate::engine) fn is_idle(&self) -> bool {
        self.active.is_none()
    }
}

struct Active {
    link: LinkId,
    id: u64,
    /// This node's mark when it asked.
    mark: Mark,
    /// It asked for the data itself: announcements had not helped.
    no_announcements: bool,
    /// When something last came, or bytes that it may stand behind.
    heard: Millis,
    /// How many such bytes have passed since something came.
    passed: u64,
    entries: u64,
    /// Those of the present stream: each list of missing events has one.
    streamed: u64,
    /// The number of missing events in the parts that have been sent.
    missing: u64,
    /// An entry was refused: the knowledge at the end must not be taken (replication rule 3).
    refused: bool,
    /// Events were made here on the answerer's behalf (replication rule 8).
    reissued: bool,
    stage: Stage,
}

impl Active {
    /// Something of it came.
    fn hear(&mut self, now: Millis) {
        (self.heard, self.passed) = (now, 0);
    }
}

enum Stage {
    /// Counters are out, or another part of what is known is requested; the parts that came so far.
    Asked(Told),
    /// Missing is out, data comes in.
    Streaming {
        their: Told,
        /// The missing events of this part of what is known.
        missing: Seen,
        /// From here on they have not been asked for.
        unasked: Option<ListAt>,
        /// There are more parts.
        more: bool,
    },
    /// Names are out.
    Naming(Box<Crossing>),
}

/// The parts of the answerer's knowledge that have arrived.
#[derive(Default)]
struct Told {
    seen: Seen,
    mark: Mark,
    tock: Tock,
    /// In how many ranges: bounded, whatever the peer says.
    ranges: usize,
}

/// How far a catch-up is, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CatchUpProgress {
    /// With whom.
    pub link: LinkId,
    /// Entries that have come.
    pub entries: u64,
    /// Events that were missing when it began; several may be of one entry.
    pub(crate) missing: u64,
}

impl Engine {
    /// Whether this node is catching up, from which link, and how far it is.
    #[must_use]
    pub fn catch_up_progress(&self) -> Option<CatchUpProgress> {
        self.repair.active.as_ref().map(|a| CatchUpProgress {
            link: a.link,
            entries: a.entries,
            missing: a.missing,
        })
    }

    pub(in crate::engine) fn on_repair_tick(&mut self, now: Millis, out: &mut Outbox) {
        if let Some(active) = &self.repair.active
            && now.saturating_sub(active.heard) >= SILENCE_MS
        {
            self.fail_repair(CatchUpFailure::Silent, now, out);
        }
        self.start_repair(now, out);
    }

    /// Bytes pass on a link, which the catch-up may have to wait for.
    pub(in crate::engine) fn on_repair_passing(&mut self, link: LinkId, bytes: u64, now: Millis) {
        let Some(active) = self.repair.active.as_mut().filter(|a| a.link == link) else { return };
        active.passed = active.passed.saturating_add(bytes);
        if active.passed <= PASSED_BYTES_MAX {
            active.heard = now;
        }
    }

    pub(in crate::engine) fn on_repair_link_down(
        &mut self,
        link: LinkId,
        now: Millis,
        out: &mut Outbox,
    ) {
        if self.repair.active.as_ref().is_some_and(|a| a.link == link) {
            self.fail_repair(CatchUpFailure::LinkDown, now, out);
            self.start_repair(now, out);
        }
    }

    /// Asks the best peer for a catch-up, if one is needed and none is under way.
    pub(in crate::engine) fn start_repair(&mut self, now: Millis, out: &mut Outbox) {
        if self.repair.active.is_some() || self.replica.is_usurped() {
            return;
        }
        let Some((link, missing)) = self.choose_peer(now) else { return };
        let id = self.repair.next_id;
        self.repair.next_id += 1;
        let Some(peer) = self.peers.get_mut(link) else { return };
        peer.invited = false;
        let mark = self.replica.mark().clone();
        let (name, no_announcements) =
            (peer.id.name.clone(), peer.announced_in_vain.as_ref() == Some(&mark));
        if self.ready && missing > 0 {
            // Changes that came that way too late should have been pushed.
            self.graft(link, now, out);
        }
        self.repair.active = Some(Active {
            link,
            id,
            mark: mark.clone(),
            no_announcements,
            heard: now,
            passed: 0,
            entries: 0,
            streamed: 0,
            missing: 0,
            refused: false,
            reissued: false,
            stage: Stage::Asked(Told::default()),
        });
        let contiguous = self.contiguous_by_id();
        let ask = CatchUpAsk { id, mark, contiguous, no_announcements };
        self.send(link, &PeerMessage::CatchUpAsk(ask), out);
        out.push(Output::Report(Report::CatchUpStarted { peer: name, missing }));
    }

    /// The peer to ask: one that has re-issues for us; while this node is not ready, any peer that
    /// is; afterwards one that has what has been missing here for too long, or whose mark has been
    /// ahead for too long.
    fn choose_peer(&mut self, now: Millis) -> Option<(LinkId, u64)> {
        let hole_after = if self.spread.is_tree() { HOLE_AFTER_RELAYED_MS } else { HOLE_AFTER_MS };
        let held = self.ready && self.resync.holds(now);
        let driver = self.resync_driver();
        let (seen, mark) = (self.replica.seen(), self.replica.mark());
        let mut best: Option<(LinkId, u64)> = None;
        for (link, peer) in self.peers.iter_mut() {
            let mut missing = 0;
            if let Some((since, ticks)) = &peer.suspect
                && now.saturating_sub(*since) >= hole_after
            {
                let still = ticks.difference(seen);
                missing = still.count();
                peer.suspect = (!still.is_empty()).then_some((*since, still));
            }
            if peer.mark.ahead_of(mark) == Tock::default() {
                peer.ahead_since = None;
            }
            let ahead = peer.ahead_since.is_some_and(|s| now.saturating_sub(s) >= hole_after);
            let wants_list = peer.heard.wants_catch_up(now);
            let wanted = if self.ready {
                missing > 0 || ahead || peer.invited || wants_list
            } else {
                peer.ready
            };
            if !wanted || now < peer.avoid_until || (held && !peer.invited) {
                continue;
            }
            // A node that has fetched from the other side already saves the way there.
            if self.ready && (peer.invited || driver == Some(link)) {
                return Some((link, missing));
            }
            if best.is_none_or(|(_, most)| missing > most) {
                best = Some((link, missing));
            }
        }
        best
    }

    pub(super) fn fail_repair(&mut self, reason: CatchUpFailure, now: Millis, out: &mut Outbox) {
        let Some(active) = self.repair.active.take() else { return };
        self.replica.abandon_crossing();
        if reason != CatchUpFailure::LinkDown {
            self.send(active.link, &PeerMessage::CatchUpDone { id: active.id }, out);
        }
        if let Some(peer) = self.peers.get_mut(active.link) {
            peer.avoid_until = now + AVOID_MS;
            if reason == CatchUpFailure::Silent && matches!(active.stage, Stage::Asked(_)) {
                // Perhaps it answered with more announcements than the link's queue holds: then they were
                // dropped, with the answer, and would be again.
                peer.announced_in_vain = Some(active.mark);
            }
            let peer = peer.id.name.clone();
            out.push(Output::Report(Report::CatchUpFailed { peer, reason }));
        }
        if active.reissued {
            self.send(active.link, &PeerMessage::CatchUpInvite, out);
        }
    }

    fn active(&mut self, link: LinkId, id: u64) -> Option<&mut Active> {
        self.repair.active.as_mut().filter(|a| a.link == link && a.id == id)
    }

    /// Step 2: what the answerer knows, or a part of it. It makes ticks missing, never seen (replication
    /// rule 3).
    pub(in crate::engine) fn on_catch_up_known(
        &mut self,
        link: LinkId,
        known: &CatchUpKnown,
        now: Millis,
        out: &mut Outbox,
    ) {
        let Some(mut their) = self.told_so_far(link, known.id) else { return };
        let Some(part) = self.replica.intern_seen(&known.seen) else {
            out.push(Output::Close { link, reason: crate::engine::CloseReason::TableFull });
            return;
        };
        self.replica.check_own_seen(&part);
        // Entries written here from now on are above all that they have purged.
        if !self.config.defects.has(Defect::TockNotRaised) {
            self.replica.hear_tock(known.tock.max(known.mark.top()));
        }
        if self.config.defects.has(Defect::MarkBeforeEnd) {
            self.replica.raise_mark_early(&known.mark);
        }
        let is_news = their.seen.union_with(&part);
        their.ranges += part.range_count();
        if (known.more && !is_news) || their.ranges > self.config.lists.known_ranges {
            return self.fail_repair(CatchUpFailure::TooMuch, now, out);
        }
        (their.mark, their.tock) = (known.mark.clone(), known.tock);
        let missing = part.difference(self.replica.seen());
        let Some(active) = self.active(link, known.id) else { return };
        active.hear(now);
        active.missing += missing.count();
        let unasked = (!missing.is_empty()).then(ListAt::default);
        active.stage = Stage::Streaming { their, missing, unasked, more: known.more };
        self.go_on_streaming(link, known.id, now, out);
    }

    /// The parts of an answer so far, if another may come; none if none is expected.
    fn told_so_far(&mut self, link: LinkId, id: u64) -> Option<Told> {
        let Stage::Asked(told) = &mut self.active(link, id)?.stage else { return None };
        Some(std::mem::take(told))
    }

    /// Asks for the next of the missing events, else for the next part of what is known; when all
    /// data is in, continues with replication rule 4.
    fn go_on_streaming(&mut self, link: LinkId, id: u64, now: Millis, out: &mut Outbox) {
        let max = self.config.lists.list;
        let Some(active) = self.repair.active.as_mut().filter(|a| a.link == link && a.id == id)
        else {
            return;
        };
        let Stage::Streaming { missing, unasked, more, .. } = &mut active.stage else { return };
        if let Some(at) = unasked.take() {
            let (missing, next) = export_part(self.replica.table(), missing, at, max);
            *unasked = next;
            active.streamed = 0;
            return self.send(link, &PeerMessage::CatchUpMissing { id, missing }, out);
        }
        let more = *more;
        let stage = std::mem::replace(&mut active.stage, Stage::Asked(Told::default()));
        let Stage::Streaming { their, .. } = stage else { return };
        if more {
            active.stage = Stage::Asked(their);
            return self.send(link, &PeerMessage::CatchUpMore { id }, out);
        }
        let Told { mut seen, mark, tock, .. } = their;
        if self.config.defects.has(Defect::KnowledgeAfterSnapshot)
            && let Some(peer) = self.peers.get(link)
        {
            seen.union_with(&peer.seen);
        }
        let crossing = Box::new(self.replica.begin_crossing(Knowledge { seen, mark, tock }));
        self.name_or_step(link, id, crossing, now, out);
    }

    /// Step 4: data.
    pub(in crate::engine) fn on_catch_up_part(
        &mut self,
        link: LinkId,
        id: u64,
        mark: &Mark,
        records: &[Record<'_>],
        now: Millis,
        out: &mut Outbox,
    ) {
        // Parts of a catch-up that was given up are changes like any others; taking them in
        // is harmless and useful. Only its knowledge must not be taken.
        let own = self.replica.mark();
        let crossed = own.ahead_of(mark) > Tock::default() && mark.ahead_of(own) > Tock::default();
        let (mut refused, mut reissued) = (false, false);
        let is_current = self.active(link, id).is_some();
        self.counters.catch_up_entries += records.len() as u64;
        for (at, record) in records.iter().enumerate() {
            if at % TOUCHED_AT_ONCE == 0 {
                let next = records.get(at..).into_iter().flatten();
                self.touch(next.take(TOUCHED_AT_ONCE));
            }
            let taken = if crossed && is_current {
                self.take_record_on_behalf(record, mark, out)
            } else {
                self.take_record(record, mark, out)
            };
            match taken {
                Some(taken) => {
                    refused |= taken.refused;
                    reissued |= taken.reissued;
                }
                None => {
                    let reason = crate::engine::CloseReason::TableFull;
                    out.push(Output::Close { link, reason });
                    return;
                }
            }
        }
        if let Some(active) = self.active(link, id) {
            active.hear(now);
            active.entries += records.len() as u64;
            active.streamed += records.len() as u64;
            active.refused |= refused;
            active.reissued |= reissued;
        }
    }

    /// The data is complete: by count, so that a part that was lost is noticed.
    pub(in crate::engine) fn on_catch_up_end(
        &mut self,
        link: LinkId,
        id: u64,
        entries: u64,
        now: Millis,
        out: &mut Outbox,
    ) {
        let Some(active) = self.active(link, id) else { return };
        active.hear(now);
        // Replication rule 3: only when all of it has been applied, none refused, is S's seen taken.
        if active.refused || active.streamed != entries {
            return self.fail_repair(CatchUpFailure::AcrossPurge, now, out);
        }
        self.go_on_streaming(link, id, now, out);
    }

    /// Replication rule 4: answers to names.
    pub(in crate::engine) fn on_catch_up_verdict(
        &mut self,
        link: LinkId,
        verdict: &CatchUpVerdict,
        now: Millis,
        out: &mut Outbox,
    ) {
        let id = verdict.id;
        let Some(active) = self.active(link, id) else { return };
        active.hear(now);
        let stage = std::mem::replace(&mut active.stage, Stage::Asked(Told::default()));
        let Stage::Naming(mut crossing) = stage else {
            active.stage = stage;
            return;
        };
        crossing.take(&verdict.empty);
        self.name_or_step(link, id, crossing, now, out);
    }

    /// Names what is not answered yet, or takes the step of replication rule 4.
    fn name_or_step(
        &mut self,
        link: LinkId,
        id: u64,
        mut crossing: Box<Crossing>,
        now: Millis,
        out: &mut Outbox,
    ) {
        loop {
            if let Some(paths) = self.replica.next_names(&mut crossing, self.config.lists.names) {
                // Even if there are none: the answer says that this node can continue, and the
                // answerer does not forget this node meanwhile.
                let message = CatchUpNames { id, events: Default::default(), paths };
                self.send(link, &PeerMessage::CatchUpNames(message), out);
                if let Some(active) = self.active(link, id) {
                    active.stage = Stage::Naming(crossing);
                }
                return;
            }
            match self.replica.end_crossing(&mut crossing) {
                Ok(across) => {
                    self.note_known(&crossing.their().seen);
                    self.note_knowledge();
                    if let Some(peer) = self.peers.get_mut(link) {
                        peer.seen.union_with(&crossing.their().seen);
                        peer.heard.has_caught_up();
                    }
                    let made = !across.reissued.is_empty();
                    self.publish_across(across, out);
                    return self.finish_repair(made, now, out);
                }
                // There are names again.
                Err(AcrossFailure::Unanswered) => {}
                Err(AcrossFailure::Overtaken | AcrossFailure::NoEvent) => {
                    return self.fail_repair(CatchUpFailure::AcrossPurge, now, out);
                }
            }
        }
    }

    /// The step was taken.
    fn finish_repair(&mut self, made: bool, now: Millis, out: &mut Outbox) {
        let Some(active) = self.repair.active.take() else { return };
        let link = active.link;
        let from_own_side = self.resync_driver() == Some(link);
        self.counters.catch_ups += 1;
        self.spread.tell_all = true;
        self.note_asked(link);
        self.send(link, &PeerMessage::CatchUpDone { id: active.id }, out);
        if made || active.reissued {
            // Replication rule 4d: S at once catches up from X. The re-issues are not pushed: others hear
            // of them by the digest, and fetch them from either.
            self.send(link, &PeerMessage::CatchUpInvite, out);
        }
        if let Some(peer) = self.peers.get_mut(link) {
            peer.suspect = None;
            // If it is still ahead, it was not when it was asked: not at once again.
            peer.ahead_since = peer.ahead_since.map(|_| now);
            let (peer, entries) = (peer.id.name.clone(), active.entries);
            out.push(Output::Report(Report::CatchUpDone { peer, entries }));
        }
        self.become_ready(out);
        self.on_resync_fetched(active.entries, from_own_side, now, out);
        self.start_repair(now, out);
    }

    /// Digests should name these incarnations.
    fn note_known(&mut self, seen: &Seen) {
        for (node, _) in seen.iter() {
            self.peers.note_change(node);
        }
    }

    /// The answerer invites: it has re-issues for this node.
    pub(in crate::engine) fn on_catch_up_invite(
        &mut self,
        link: LinkId,
        now: Millis,
        out: &mut Outbox,
    ) {
        if let Some(peer) = self.peers.get_mut(link) {
            peer.invited = true;
            peer.avoid_until = 0;
        }
        self.start_repair(now, out);
    }

    pub(in crate::engine) fn on_catch_up_refused(
        &mut self,
        link: LinkId,
        id: u64,
        reason: RefuseReason,
        now: Millis,
        out: &mut Outbox,
    ) {
        let Some(active) = self.active(link, id) else { return };
        if reason == RefuseReason::Announced && !active.no_announcements {
            // The announcements came before this on the same link; they were applied, or not. What the
            // peer was last heard to have applied may be older, so only this node's own mark tells.
            let asked_at = std::mem::take(&mut active.mark);
            self.repair.active = None;
            let is_in_vain = *self.replica.mark() == asked_at;
            if let Some(peer) = self.peers.get_mut(link) {
                peer.announced_in_vain = is_in_vain.then_some(asked_at);
            }
        } else {
            self.fail_repair(CatchUpFailure::Refused(reason), now, out);
        }
        self.start_repair(now, out);
    }
}

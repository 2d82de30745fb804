//! RULES 3 in motion: when to ask whom for a catch-up, the answers as they come in, and the
//! asks of others. One catch-up is under way at a time; a hole that one peer does not fill is
//! mended with another.

use super::{CatchUpFailure, Engine, LinkId, Outbox, Output, Report};
use crate::model::ids::Millis;
use crate::model::seen::{Mark, Seen, export_seen};
use crate::protocol::peer::{CatchUpAsk, CatchUpEnd, PeerMessage, RefuseReason};
use crate::protocol::record::Record;
use crate::replica::catch_up::CatchUpRefusal;

/// A tick that a peer has and that is missing here is a hole after this time; until then it is
/// probably on its way. Longer than a push takes, shorter than anybody notices.
pub(super) const HOLE_AFTER_MS: Millis = 200;
/// A catch-up of which nothing came for so long is given up.
pub(super) const SILENCE_MS: Millis = 5_000;
/// A peer that failed us is not asked again for so long, if there is another.
pub(super) const AVOID_MS: Millis = 1_000;

/// The catch-up under way, as the asking side.
#[derive(Default)]
pub(super) struct Repair {
    active: Option<Active>,
    next_id: u64,
}

struct Active {
    link: LinkId,
    id: u64,
    /// When something last came.
    heard: Millis,
    entries: u64,
    /// An entry was refused: the knowledge at the end must not be taken (RULES 3).
    refused: bool,
}

impl Engine {
    /// Whether this node is catching up, from which link, and how many entries have come.
    #[must_use]
    pub fn catch_up_progress(&self) -> Option<(LinkId, u64)> {
        self.repair.active.as_ref().map(|a| (a.link, a.entries))
    }

    pub(super) fn on_repair_tick(&mut self, now: Millis, out: &mut Outbox) {
        if let Some(active) = &self.repair.active
            && now.saturating_sub(active.heard) >= SILENCE_MS
        {
            self.fail_repair(CatchUpFailure::Silent, now, out);
        }
        self.start_repair(now, out);
    }

    pub(super) fn on_repair_link_down(&mut self, link: LinkId, now: Millis, out: &mut Outbox) {
        if self.repair.active.as_ref().is_some_and(|a| a.link == link) {
            self.fail_repair(CatchUpFailure::LinkDown, now, out);
            self.start_repair(now, out);
        }
    }

    /// Asks the best peer for a catch-up, if one is needed and none is under way.
    pub(super) fn start_repair(&mut self, now: Millis, out: &mut Outbox) {
        if self.repair.active.is_some() {
            return;
        }
        let Some((link, missing)) = self.choose_peer(now) else { return };
        let id = self.repair.next_id;
        self.repair.next_id += 1;
        self.repair.active = Some(Active { link, id, heard: now, entries: 0, refused: false });
        let ask = CatchUpAsk {
            id,
            mark: self.replica.mark().clone(),
            seen: export_seen(self.replica.table(), self.replica.seen()),
        };
        self.send(link, &PeerMessage::CatchUpAsk(ask), out);
        if let Some(peer) = self.peers.get(link) {
            let peer = peer.id.name.clone();
            out.push(Output::Report(Report::CatchUpStarted { peer, missing }));
        }
    }

    /// Whom to ask: while this node is not ready, any peer that is; afterwards one that has
    /// what has been missing here for too long.
    fn choose_peer(&mut self, now: Millis) -> Option<(LinkId, u64)> {
        let seen = self.replica.seen();
        let mut best: Option<(LinkId, u64)> = None;
        for (link, peer) in self.peers.iter_mut() {
            let mut missing = 0;
            if let Some((since, ticks)) = &peer.suspect
                && now.saturating_sub(*since) >= HOLE_AFTER_MS
            {
                let still = ticks.difference(seen);
                missing = still.iter().map(|(_, t)| t.count()).sum();
                peer.suspect = (!still.is_empty()).then_some((*since, still));
            }
            let wanted = if self.ready { missing > 0 } else { peer.ready };
            if wanted && now >= peer.avoid_until && best.is_none_or(|(_, most)| missing > most) {
                best = Some((link, missing));
            }
        }
        best
    }

    fn fail_repair(&mut self, reason: CatchUpFailure, now: Millis, out: &mut Outbox) {
        let Some(active) = self.repair.active.take() else { return };
        if let Some(peer) = self.peers.get_mut(active.link) {
            peer.avoid_until = now + AVOID_MS;
            let peer = peer.id.name.clone();
            out.push(Output::Report(Report::CatchUpFailed { peer, reason }));
        }
    }

    fn active(&mut self, link: LinkId, id: u64) -> Option<&mut Active> {
        self.repair.active.as_mut().filter(|a| a.link == link && a.id == id)
    }

    pub(super) fn on_catch_up_part(
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
        let mut refused = false;
        for record in records {
            match self.take_record(record, mark, out) {
                Some(was_refused) => refused |= was_refused,
                None => {
                    let reason = super::CloseReason::TableFull;
                    out.push(Output::Close { link, reason });
                    return;
                }
            }
        }
        if let Some(active) = self.active(link, id) {
            active.heard = now;
            active.entries += records.len() as u64;
            active.refused |= refused;
        }
    }

    pub(super) fn on_catch_up_end(
        &mut self,
        link: LinkId,
        end: &CatchUpEnd,
        now: Millis,
        out: &mut Outbox,
    ) {
        let Some(active) = self.active(link, end.id) else { return };
        let (entries, refused) = (active.entries, active.refused);
        // RULES 3: only when all of it has been applied, none refused, is S's seen taken.
        let taken = !refused
            && match self.replica.intern_seen(&end.seen) {
                Some(seen) => self.adopt(&seen, &end.mark, end.tock),
                None => false,
            };
        if !taken {
            self.fail_repair(CatchUpFailure::AcrossPurge, now, out);
            return;
        }
        self.repair.active = None;
        self.counters.catch_ups += 1;
        if let Some(peer) = self.peers.get_mut(link) {
            peer.suspect = None;
            let peer = peer.id.name.clone();
            out.push(Output::Report(Report::CatchUpDone { peer, entries }));
        }
        if !self.ready {
            self.ready = true;
            out.push(Output::Ready);
            // The others should know at once that this one can be asked now.
            let seen = self.told_seen();
            self.broadcast_digest(&seen, out);
        }
        self.start_repair(now, out);
    }

    fn adopt(&mut self, seen: &Seen, mark: &Mark, tock: crate::model::ids::Tock) -> bool {
        let news = seen.difference(self.replica.seen());
        for (node, _) in news.iter() {
            self.peers.note_change(node);
        }
        self.replica.adopt(seen, mark, tock)
    }

    pub(super) fn on_catch_up_refused(
        &mut self,
        link: LinkId,
        id: u64,
        reason: RefuseReason,
        now: Millis,
        out: &mut Outbox,
    ) {
        if self.active(link, id).is_some() {
            self.fail_repair(CatchUpFailure::Refused(reason), now, out);
            self.start_repair(now, out);
        }
    }

    /// The answering side: from one snapshot, which the shell walks below live traffic.
    pub(super) fn on_catch_up_ask(&mut self, link: LinkId, ask: &CatchUpAsk, out: &mut Outbox) {
        let reason = if !self.ready {
            RefuseReason::NotReady
        } else if let Some(seen) = self.replica.intern_seen(&ask.seen) {
            match self.replica.answer_catch_up(&seen, &ask.mark) {
                Ok(stream) => {
                    self.counters.catch_ups_served += 1;
                    let stream = Box::new(stream);
                    out.push(Output::Serve { link, id: ask.id, stream });
                    return;
                }
                Err(CatchUpRefusal::Behind) => RefuseReason::Behind,
                Err(CatchUpRefusal::AcrossPurge) => RefuseReason::AcrossPurge,
            }
        } else {
            RefuseReason::Busy
        };
        self.send(link, &PeerMessage::CatchUpRefused { id: ask.id, reason }, out);
    }
}

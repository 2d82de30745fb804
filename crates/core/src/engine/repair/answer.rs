//! The answering side of a catch-up: keeps one snapshot per link while its peer needs it, and
//! makes jobs that the shell carries out piece by piece, below live traffic and outside of the
//! lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::contents::ListJob;
use crate::engine::{Engine, LinkId, Outbox, Output};
use crate::model::ids::{Millis, NodeIndex, Tick, Tock};
use crate::model::seen::{SeenById, export_seen};
use crate::model::seen_list::{ListAt, ListMax};
use crate::protocol::peer::{
    CatchUpAsk, CatchUpKnown, CatchUpNames, CatchUpVerdict, PeerMessage, RefuseReason, encode_part,
};
use crate::replica::across::Names;
use crate::replica::catch_up::{Behind, CatchUpSnapshot, CatchUpStream, Verdict};

/// A snapshot whose asker is silent for this long is given up: it keeps old entries in memory.
const IDLE_MS: Millis = 60_000;

/// A peer that is being answered.
pub(in crate::engine) struct Serving {
    id: u64,
    snapshot: Arc<CatchUpSnapshot>,
    heard: Millis,
    /// Where the known ticks continue, if not all of them were sent.
    untold: Option<ListAt>,
}

impl Serving {
    /// The next part of what is known; none when all of it was sent.
    fn next_known(&mut self, max: ListMax) -> Option<CatchUpKnown> {
        let (seen, next) = self.snapshot.known_part(self.untold.take()?, max);
        self.untold = next;
        let knowledge = self.snapshot.knowledge();
        let (tock, mark) = (knowledge.tock, knowledge.mark.clone());
        Some(CatchUpKnown { id: self.id, tock, mark, seen, more: next.is_some() })
    }
}

/// Part of an answer that is being made. Owns its snapshot, so it outlives the engine's guard.
pub struct ServeJob {
    id: u64,
    work: Work,
}

enum Work {
    Data { stream: CatchUpStream, sent: u64 },
    Verdict { verdict: Verdict, ranges_max: usize },
    List(Box<ListJob>),
}

/// The number of a job that answers no ask.
const NO_ASK: u64 = u64::MAX;

impl ServeJob {
    /// An answer of an empty node, for tests of queues.
    #[allow(clippy::unwrap_used, reason = "for tests: nothing in it can be refused")]
    #[must_use]
    #[cfg(any(test, feature = "planted-defects"))]
    pub fn nothing(id: u64) -> Self {
        use crate::model::ids::{Incarnation, NodeId, NodeName};
        let name = NodeName::new("a").unwrap();
        let replica =
            crate::replica::Replica::new(&NodeId { name, incarnation: Incarnation(1) }, 1);
        let snapshot = replica.begin_catch_up(&BTreeMap::new(), replica.mark()).unwrap();
        let stream = Arc::new(snapshot).stream(crate::model::seen::Seen::new());
        Self { id, work: Work::Data { stream, sent: 0 } }
    }

    /// A list of contents.
    pub(in crate::engine) fn list(job: ListJob) -> Self {
        Self { id: NO_ASK, work: Work::List(Box::new(job)) }
    }

    /// Of which ask.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Appends the next frames, about `bytes_max` bytes; there may be none although more will
    /// follow. Returns whether the job is done.
    pub fn next_frames(&mut self, bytes_max: usize, out: &mut Vec<u8>) -> bool {
        match &mut self.work {
            Work::Data { stream, sent } => {
                let batch = stream.next_batch(bytes_max);
                *sent += batch.entries.len() as u64;
                let snapshot = stream.snapshot();
                if !batch.entries.is_empty() {
                    let mark = &snapshot.knowledge().mark;
                    encode_part(self.id, mark, &batch.entries, snapshot.table(), out);
                }
                if batch.last {
                    let end = PeerMessage::CatchUpEnd { id: self.id, entries: *sent };
                    end.encode(snapshot.table(), out);
                }
                batch.last
            }
            Work::Verdict { verdict, ranges_max } => {
                let done = verdict.go_on();
                if done {
                    let (table, gone) = (verdict.snapshot().table(), verdict.gone());
                    let message = if gone.range_count() <= *ranges_max {
                        let (gone, empty) = (export_seen(table, &gone), verdict.empty().to_vec());
                        PeerMessage::CatchUpVerdict(CatchUpVerdict { id: self.id, gone, empty })
                    } else {
                        let reason = RefuseReason::TooLong;
                        PeerMessage::CatchUpRefused { id: self.id, reason }
                    };
                    message.encode(table, out);
                }
                done
            }
            Work::List(list) => list.next_frame(bytes_max, out),
        }
    }
}

impl Engine {
    /// Step 1 came in; step 2 goes out, with the snapshot from which all the rest is answered.
    pub(in crate::engine) fn on_catch_up_ask(
        &mut self,
        link: LinkId,
        ask: &CatchUpAsk,
        now: Millis,
        out: &mut Outbox,
    ) {
        self.stop_serving(link, out);
        match self.begin_serving(link, ask, now, out) {
            Ok(known) => {
                self.counters.catch_ups_served += 1;
                self.send(link, &PeerMessage::CatchUpKnown(known), out);
            }
            Err(reason) => {
                if reason == RefuseReason::Behind
                    && self.catch_up_progress().is_none_or(|progress| progress.link != link)
                    && let Some(peer) = self.peers.get_mut(link)
                {
                    // Replication rule 3: this node has to catch up first; any other node that it
                    // leaves that to may wait for it in turn.
                    peer.invited = true;
                }
                self.send(link, &PeerMessage::CatchUpRefused { id: ask.id, reason }, out);
            }
        }
    }

    fn begin_serving(
        &mut self,
        link: LinkId,
        ask: &CatchUpAsk,
        now: Millis,
        out: &mut Outbox,
    ) -> Result<CatchUpKnown, RefuseReason> {
        // A node that is not ready knows little, but what it knows is true; and it may be the only
        // one that has applied a purge, and cannot catch up from a node that has not.
        let is_ahead = self.replica.mark().ahead_of(&ask.mark) > Tock::default();
        if !self.ready && !is_ahead {
            return Err(RefuseReason::NotReady);
        }
        let mut contiguous: BTreeMap<NodeIndex, Tick> = BTreeMap::new();
        for (id, tick) in &ask.contiguous {
            contiguous.insert(self.replica.intern(id).ok_or(RefuseReason::Busy)?, *tick);
        }
        if !ask.no_announcements && self.offer_announcements(link, &ask.mark, &contiguous, out) {
            return Err(RefuseReason::Announced);
        }
        let snapshot = self
            .replica
            .begin_catch_up(&contiguous, &ask.mark)
            .map_err(|Behind| RefuseReason::Behind)?;
        let snapshot = Arc::new(snapshot);
        let mut serving =
            Serving { id: ask.id, snapshot, heard: now, untold: Some(ListAt::default()) };
        let known = serving.next_known(self.config.lists.list);
        if let Some(peer) = self.peers.get_mut(link) {
            peer.serving = Some(serving);
        }
        known.ok_or(RefuseReason::Busy)
    }

    /// The asker has dealt with the last part: the next part of what is known goes out.
    pub(in crate::engine) fn on_catch_up_more(
        &mut self,
        link: LinkId,
        id: u64,
        now: Millis,
        out: &mut Outbox,
    ) {
        let max = self.config.lists.list;
        let Some(known) = self.serving(link, id, now).and_then(|s| s.next_known(max)) else {
            return;
        };
        self.send(link, &PeerMessage::CatchUpKnown(known), out);
    }

    /// Step 3 came in: the data goes out.
    pub(in crate::engine) fn on_catch_up_missing(
        &mut self,
        link: LinkId,
        id: u64,
        missing: &SeenById,
        now: Millis,
        out: &mut Outbox,
    ) {
        let Some(missing) = self.replica.intern_seen(missing) else { return };
        let Some(serving) = self.serving(link, id, now) else { return };
        let work = Work::Data { stream: serving.snapshot.stream(missing), sent: 0 };
        out.push(Output::Serve { link, job: Box::new(ServeJob { id, work }) });
    }

    /// Replication rule 4: the asker names entries that may have been purged here.
    pub(in crate::engine) fn on_catch_up_names(
        &mut self,
        link: LinkId,
        names: CatchUpNames,
        now: Millis,
        out: &mut Outbox,
    ) {
        let Some(events) = self.replica.intern_seen(&names.events) else { return };
        let (id, ranges_max) = (names.id, self.config.lists.verdict_ranges);
        let Some(serving) = self.serving(link, id, now) else { return };
        let verdict = serving.snapshot.verdict(Names { events, paths: names.paths });
        let work = Work::Verdict { verdict, ranges_max };
        out.push(Output::Serve { link, job: Box::new(ServeJob { id, work }) });
    }

    pub(in crate::engine) fn on_catch_up_done(&mut self, link: LinkId, id: u64, out: &mut Outbox) {
        let is_it = |serving: &Serving| serving.id == id;
        if self.peers.get(link).and_then(|p| p.serving.as_ref()).is_some_and(is_it) {
            self.stop_serving(link, out);
        }
    }

    fn serving(&mut self, link: LinkId, id: u64, now: Millis) -> Option<&mut Serving> {
        let serving = self.peers.get_mut(link)?.serving.as_mut().filter(|s| s.id == id)?;
        serving.heard = now;
        Some(serving)
    }

    pub(in crate::engine) fn stop_serving(&mut self, link: LinkId, out: &mut Outbox) {
        if let Some(peer) = self.peers.get_mut(link)
            && let Some(serving) = peer.serving.take()
        {
            out.push(Output::Discard(serving.snapshot));
        }
    }

    /// Lets go of snapshots whose askers are silent.
    pub(in crate::engine) fn on_serve_tick(&mut self, now: Millis, out: &mut Outbox) {
        for (_, peer) in self.peers.iter_mut() {
            let idle = |s: &mut Serving| now.saturating_sub(s.heard) >= IDLE_MS;
            if let Some(serving) = peer.serving.take_if(idle) {
                out.push(Output::Discard(serving.snapshot));
            }
        }
    }

    /// The own counters, for step 1: as many as a message may have. For incarnations that are left
    /// out the answer says more, so nothing is lost by truncating this list.
    pub(super) fn contiguous_by_id(&self) -> Vec<(crate::model::ids::NodeId, Tick)> {
        let mut counters: Vec<_> = self
            .replica
            .seen()
            .iter()
            .filter_map(|(node, ticks)| {
                let tick = Tick::new(ticks.contiguous()).filter(|t| *t > Tick::default())?;
                Some((self.table().id(node).clone(), tick))
            })
            .collect();
        // A table's order is the order of arrival, which differs from node to node.
        counters.sort_unstable();
        counters.truncate(self.config.lists.counters);
        counters
    }
}

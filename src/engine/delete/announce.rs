//! RULES 5: announcements of purges. A node that stands at `from` and has seen V applies them;
//! each that was applied is kept for a while and offered, in order, to whoever is behind.

use std::collections::BTreeMap;

use super::Engine;
use crate::engine::{LinkId, Outbox, Output, Report};
use crate::model::ids::{NodeIndex, Tick, Tock};
use crate::model::seen::{Mark, Seen, export_seen};
use crate::protocol::peer::{PairById, PeerMessage};
use crate::replica::purge::{PurgeDecision, TockPair};

/// Announcements that wait for their V at most; who needs more goes by RULES 4.
const WAITING_MAX: usize = 16;

impl Engine {
    /// An announcement came in.
    pub(in crate::engine) fn on_announce(&mut self, pair: &PairById, out: &mut Outbox) {
        let Some(pair) = self.intern_pair(pair) else { return };
        self.take_announcement(pair, out);
    }

    pub(in crate::engine) fn intern_pair(&mut self, pair: &PairById) -> Option<TockPair> {
        Some(TockPair {
            lineage: pair.lineage.clone(),
            from: pair.from,
            to: pair.to,
            seen: self.replica.intern_seen(&pair.seen)?,
        })
    }

    pub(in crate::engine) fn export_pair(&self, pair: &TockPair) -> PairById {
        PairById {
            lineage: pair.lineage.clone(),
            from: pair.from,
            to: pair.to,
            seen: export_seen(self.table(), &pair.seen),
        }
    }

    fn take_announcement(&mut self, pair: TockPair, out: &mut Outbox) {
        match self.replica.decide_purge(&pair) {
            PurgeDecision::Apply => {
                self.apply_and_pass_on(pair, out);
                self.retry_waiting(out);
            }
            // What is on its way may make it fit; if not, RULES 4 does.
            PurgeDecision::NotSeen | PurgeDecision::OtherMark => {
                if self.delete.waiting.len() >= WAITING_MAX {
                    self.delete.waiting.pop_front();
                }
                if !self.delete.waiting.contains(&pair) {
                    self.delete.waiting.push_back(pair);
                }
            }
            PurgeDecision::Done | PurgeDecision::OtherTombstone => {}
        }
    }

    /// Tries the announcements that wait, as long as that helps.
    pub(super) fn retry_waiting(&mut self, out: &mut Outbox) {
        loop {
            let replica = &self.replica;
            self.delete.waiting.retain(|pair| replica.decide_purge(pair) != PurgeDecision::Done);
            let fits = |pair: &TockPair| replica.decide_purge(pair) == PurgeDecision::Apply;
            let Some(at) = self.delete.waiting.iter().position(fits) else { return };
            if let Some(pair) = self.delete.waiting.remove(at) {
                self.apply_and_pass_on(pair, out);
            }
        }
    }

    /// Where not all are linked with the coordinator, whoever applies a pair tells its peers, once.
    fn apply_and_pass_on(&mut self, pair: TockPair, out: &mut Outbox) {
        let announcement = self.spread.is_tree().then(|| self.export_pair(&pair));
        self.apply_pair(pair, out);
        if let Some(announcement) = announcement {
            self.broadcast(&PeerMessage::Announce(announcement), out);
        }
    }

    /// Applies a pair that may be applied, and keeps it.
    pub(super) fn apply_pair(&mut self, pair: TockPair, out: &mut Outbox) {
        let purged = self.replica.apply_purge(&pair);
        self.counters.purges += 1;
        self.counters.purged += purged.len() as u64;
        if !purged.is_empty() {
            out.push(Output::Report(Report::Purged { tombstones: purged.len(), to: pair.to }));
            out.push(Output::Gone { purged, dropped: Vec::new() });
        }
        if self.delete.kept.len() >= self.delete.settings.kept_max {
            self.delete.kept.pop_front();
        }
        self.delete.kept.push_back(pair);
        self.note_knowledge();
        // Whoever coordinates next need not begin at once.
        self.delete.rests = true;
    }

    /// Offers a peer that is behind the announcements that it missed, if they bring it here and
    /// it can take them as far as is known. Tells whether it did.
    pub(in crate::engine) fn offer_announcements(
        &mut self,
        link: LinkId,
        asker_mark: &Mark,
        contiguous: &BTreeMap<NodeIndex, Tick>,
        out: &mut Outbox,
    ) -> bool {
        if self.replica.mark().ahead_of(asker_mark) == Tock::default() {
            return false;
        }
        let Some(peer) = self.peers.get(link) else { return false };
        let has_seen = |v: &Seen| {
            v.above(contiguous).iter().all(|(node, ticks)| {
                peer.seen.get(node).is_some_and(|theirs| theirs.contains_all(ticks))
            })
        };
        let mut mark = asker_mark.clone();
        let mut chain = Vec::new();
        for pair in &self.delete.kept {
            if mark.get(&pair.lineage) == pair.from && has_seen(&pair.seen) {
                mark.raise(&pair.lineage, pair.to);
                chain.push(self.export_pair(pair));
            }
        }
        if self.replica.mark().ahead_of(&mark) > Tock::default() {
            return false;
        }
        for pair in chain {
            self.send(link, &PeerMessage::Announce(pair), out);
        }
        true
    }
}

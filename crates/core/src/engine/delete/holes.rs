//! Replication rule 7: V is a range 1..n per incarnation. A hole blocks the round until a full round of
//! catch-ups among all that can be reached has changed nothing; then it is *lost*: still unseen,
//! named in the round, left out of V; if it turns up after all, it counts as new.

use std::collections::BTreeSet;

use super::Engine;
use crate::engine::LinkId;
use crate::model::ids::Millis;
use crate::model::seen::Seen;

/// What the coordinator knows of the holes in its seen.
#[derive(Default)]
pub(super) struct HoleWatch {
    /// The holes as they were when the watch began.
    holes: Seen,
    since: Millis,
    /// Peers with whom no catch-up was finished since.
    to_ask: BTreeSet<LinkId>,
}

/// Whether a round can begin.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Holes {
    /// There are none, or those that are left are lost: V goes without them.
    Closed,
    /// They may be filled still.
    Open,
}

impl Engine {
    /// Looks at the holes; asks all that can be reached before it gives one up.
    pub(super) fn look_at_holes(&mut self, now: Millis) -> Holes {
        let holes = self.replica.seen().holes();
        if holes.is_empty() {
            self.delete.holes = HoleWatch::default();
            return Holes::Closed;
        }
        let watch = &mut self.delete.holes;
        if watch.holes != holes {
            // Something changed: a new round of catch-ups.
            let to_ask = self.peers.iter().filter(|(_, p)| p.ready).map(|(l, _)| l).collect();
            *watch = HoleWatch { holes, since: now, to_ask };
            for link in &watch.to_ask {
                if let Some(peer) = self.peers.get_mut(*link) {
                    peer.invited = true;
                }
            }
            return Holes::Open;
        }
        let somebody_has = self.peers.iter().any(|(_, p)| !p.seen.intersection(&holes).is_empty());
        let asked_all = watch.to_ask.iter().all(|link| self.peers.get(*link).is_none());
        if self.repair.is_idle() {
            // Some may have refused, or the link broke: they are asked again.
            for link in &watch.to_ask {
                if let Some(peer) = self.peers.get_mut(*link) {
                    peer.invited = true;
                }
            }
        }
        let watch = &self.delete.holes;
        let waited = now.saturating_sub(watch.since) >= self.delete.settings.lost_after_ms;
        if waited && asked_all && !somebody_has && self.repair.is_idle() {
            Holes::Closed
        } else {
            Holes::Open
        }
    }

    /// A catch-up with a peer was finished: nothing more to be had there.
    pub(in crate::engine) fn note_asked(&mut self, link: LinkId) {
        self.delete.holes.to_ask.remove(&link);
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Config, Input, Outbox};
    use crate::model::ids::{Event, Incarnation, NodeId, NodeName, Tick};
    use crate::protocol::peer::PeerMessage;

    #[test]
    fn a_hole_is_not_given_up_while_a_catch_up_may_fill_it() {
        let id =
            |name: &str| NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(1) };
        let mut engine = Engine::new(Config::new(id("me"), 1));
        let out = &mut Outbox::new();
        engine.handle(Input::Found, 0, out);
        let node = engine.replica.intern(&id("other")).unwrap();
        engine.replica.account_for(Event { node, tick: Tick::new(2).unwrap() });
        assert!(engine.look_at_holes(0) == Holes::Open);
        let (link, late) = (LinkId(1), engine.delete.settings.lost_after_ms);
        engine.handle(Input::LinkUp { link, peer: id("peer") }, late, out);
        let messages = vec![PeerMessage::CatchUpInvite];
        engine.handle(Input::Messages { link, messages }, late, out);
        assert!(engine.catch_up_progress().is_some());
        assert!(engine.look_at_holes(late) == Holes::Open);
        engine.handle(Input::LinkDown { link }, late, out);
        assert!(engine.look_at_holes(late) == Holes::Closed);
    }
}

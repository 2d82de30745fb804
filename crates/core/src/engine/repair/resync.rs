//! Healing a split (docs/replication.md): which node asks which other, and in which order. The
//! exchange itself is the catch-up in four steps of [`super::ask`]; this lets a whole network do
//! it without every node asking the other side at once.
//!
//! When two histories of the housekeepers' election meet that share nothing, a split has healed
//! ([`Engine::on_recover`]). On each side the first housekeeper asks the other side at once and
//! reports its progress to all; the rest of its side waits, and fetches from it when it is done. If
//! it falls silent or dies on the way, the next one takes over: each waits longer than the one
//! before it, and nodes that are no housekeepers wait longest. So in the end any node asks any
//! other, and nothing depends on the election.

use crate::engine::{Engine, LinkId, Outbox, Output, Report};
use crate::model::defects::Defect;
use crate::model::ids::{Millis, NodeName, Tock};
use crate::protocol::peer::{PeerMessage, ResyncStatus};

/// How long each waits for the one before it on the list.
pub(in crate::engine) const PATIENCE_MS: Millis = 700;
/// How often the driving housekeeper reports its progress.
const STATUS_INTERVAL_MS: Millis = 250;
/// A resync lasts at least this long: until then the last of the other side may have come.
const LASTS_MS_MIN: Millis = 2_000;

/// A split that is healing, as this node sees it.
#[derive(Default)]
pub(in crate::engine) struct Resync {
    healing: Option<Healing>,
}

struct Healing {
    began: Millis,
    /// This node's place on its side's list; the list's length for nodes that are not on it.
    place: u64,
    ours: Vec<NodeName>,
    /// This node does not ask before this time.
    hold_until: Millis,
    /// The housekeeper of this side that was last heard to ask, and its latest report.
    driver: Option<(NodeName, ResyncStatus)>,
    status_due: Millis,
    /// Entries that were fetched by this node.
    entries: u64,
}

/// A resync as clients and operators see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResyncView {
    /// For how long it has been going on, milliseconds.
    pub lasts_ms: Millis,
    /// The housekeepers of this node's side, as they were when the sides met.
    pub ours: Vec<NodeName>,
    /// The node of this side that asks the other, if it was heard to.
    pub driver: Option<NodeName>,
    /// Events that it still lacks.
    pub driver_remaining: u64,
    /// Entries that it has fetched.
    pub driver_entries: u64,
    /// Events that were heard of and are still missing at this node.
    pub remaining: u64,
    /// Entries that this node has fetched.
    pub entries: u64,
}

impl Resync {
    /// Whether this node leaves asking to others for now.
    pub(in crate::engine) fn holds(&self, now: Millis) -> bool {
        self.healing.as_ref().is_some_and(|h| now < h.hold_until)
    }

    pub(super) fn note_entries(&mut self, entries: u64) {
        if let Some(healing) = &mut self.healing {
            healing.entries += entries;
        }
    }
}

impl Engine {
    /// Two histories met. `priority`: this node's place on its own side's list `ours`.
    pub(super) fn on_recover(
        &mut self,
        priority: Option<usize>,
        ours: Vec<NodeName>,
        theirs: Vec<NodeName>,
        now: Millis,
        out: &mut Outbox,
    ) {
        let place = priority.unwrap_or(ours.len()) as u64;
        self.counters.resyncs += 1;
        out.push(Output::Report(Report::ResyncStarted { ours: ours.clone(), theirs }));
        // A split during a resync, or of many parts: it begins anew, but no node waits longer.
        let before = self.resync.healing.take();
        let entries = before.as_ref().map_or(0, |h| h.entries);
        let began = before.as_ref().map_or(now, |h| h.began);
        self.resync.healing = Some(Healing {
            began,
            place,
            ours,
            hold_until: now + place * PATIENCE_MS,
            driver: before.and_then(|h| h.driver),
            status_due: now,
            entries,
        });
    }

    /// How the resync goes, if there is one.
    #[must_use]
    pub fn resync_view(&self, now: Millis) -> Option<ResyncView> {
        let healing = self.resync.healing.as_ref()?;
        let status = healing.driver.as_ref().map(|(_, status)| status);
        Some(ResyncView {
            lasts_ms: now.saturating_sub(healing.began),
            ours: healing.ours.clone(),
            driver: healing.driver.as_ref().map(|(name, _)| name.clone()),
            driver_remaining: status.map_or(0, |s| s.remaining),
            driver_entries: status.map_or(0, |s| s.entries),
            remaining: self.missing_count(),
            entries: healing.entries,
        })
    }

    /// For how long the present resync has been going on, milliseconds; none if there is none.
    #[must_use]
    pub fn resync_lasts_ms(&self, now: Millis) -> Option<Millis> {
        self.resync.healing.as_ref().map(|healing| now.saturating_sub(healing.began))
    }

    /// Events that linked peers were heard to have and that are missing here.
    fn missing_count(&self) -> u64 {
        let mut missing = crate::model::seen::Seen::new();
        for (_, peer) in self.peers.iter() {
            missing.union_with(&peer.seen.difference(self.replica.seen()));
        }
        missing.count()
    }

    /// The link to the one of this side that has asked the others: to be asked first.
    pub(super) fn resync_driver(&self) -> Option<LinkId> {
        let (driver, _) = self.resync.healing.as_ref()?.driver.as_ref()?;
        self.peers.iter().find(|(_, p)| p.id.name == *driver).map(|(link, _)| link)
    }

    /// A housekeeper reports its progress.
    pub(in crate::engine) fn on_resync_status(
        &mut self,
        name: NodeName,
        status: ResyncStatus,
        now: Millis,
        out: &mut Outbox,
    ) {
        let link = self.peers.iter().find(|(_, p)| p.id.name == name).map(|(link, _)| link);
        let Some(healing) = &mut self.resync.healing else { return };
        if !healing.ours.contains(&name) {
            return;
        }
        let done = status.is_done;
        healing.hold_until =
            if done { now } else { now + PATIENCE_MS * healing.place.saturating_add(1) };
        if self.config.defects.has(Defect::ResyncStops) && !done {
            healing.hold_until = Millis::MAX;
        }
        healing.driver = Some((name, status));
        if done {
            // It has told what it has now, right before this: no need to wait and see.
            if let Some(peer) = link.and_then(|link| self.peers.get_mut(link)) {
                peer.invited |= !self.replica.seen().contains_all(&peer.seen)
                    || peer.mark.ahead_of(self.replica.mark()) > Tock::default();
            }
            self.start_repair(now, out);
        }
    }

    /// The driving housekeeper is gone: the next need not wait for its silence.
    pub(in crate::engine) fn on_resync_link_down(&mut self, name: &NodeName, now: Millis) {
        if self.config.defects.has(Defect::ResyncStops) {
            return;
        }
        let Some(healing) = &mut self.resync.healing else { return };
        let waits = healing.hold_until > now;
        if waits && healing.driver.as_ref().is_some_and(|(driver, _)| driver == name) {
            healing.driver = None;
            healing.hold_until =
                healing.hold_until.min(now + PATIENCE_MS * healing.place.saturating_sub(1));
        }
    }

    pub(in crate::engine) fn on_resync_tick(&mut self, now: Millis, out: &mut Outbox) {
        let Some(healing) = &self.resync.healing else { return };
        let (began, due) = (healing.began, now >= healing.status_due && now >= healing.hold_until);
        if due
            && let Some(progress) = self.catch_up_progress()
            && self.resync_driver() != Some(progress.link)
        {
            self.send_resync_status(progress.entries, false, now, out);
            out.push(Output::Report(Report::ResyncProgress {
                entries: progress.entries,
                remaining: self.missing_count(),
            }));
        }
        if now.saturating_sub(began) >= LASTS_MS_MIN && !self.lacks_anything() {
            let entries = self.resync.healing.take().map_or(0, |h| h.entries);
            let lasted_ms = now.saturating_sub(began);
            out.push(Output::Report(Report::ResyncDone { entries, lasted_ms }));
        }
    }

    /// Whether a linked peer is known to have what this node has not.
    #[must_use]
    pub fn lacks_anything(&self) -> bool {
        self.catch_up_progress().is_some()
            || self.peers.iter().any(|(_, peer)| {
                peer.ready
                    && (peer.invited
                        || peer.mark.ahead_of(self.replica.mark()) > Tock::default()
                        || !self.replica.seen().contains_all(&peer.seen))
            })
    }

    /// Reports to all how far this node is with asking the other side.
    pub(super) fn send_resync_status(
        &mut self,
        entries: u64,
        is_done: bool,
        now: Millis,
        out: &mut Outbox,
    ) {
        let remaining = self.missing_count();
        let Some(healing) = &mut self.resync.healing else { return };
        healing.status_due = now + STATUS_INTERVAL_MS;
        let status = ResyncStatus { entries, remaining, is_done };
        self.flood(&PeerMessage::Resync(status), true, out);
    }

    /// This node has finished a catch-up while a split heals. If it was with the other side, the
    /// rest of its own can fetch from this node now.
    pub(super) fn on_resync_fetched(
        &mut self,
        entries: u64,
        from_own_side: bool,
        now: Millis,
        out: &mut Outbox,
    ) {
        self.resync.note_entries(entries);
        if self.resync.healing.is_some() && !from_own_side {
            // The digest first, so that nodes that hear of the end know what there is to fetch.
            let seen = self.told_seen();
            self.broadcast_digest(&seen, out);
            self.send_resync_status(entries, true, now, out);
        }
    }
}

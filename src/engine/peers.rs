//! The linked peers: what each has accounted for, digests, acknowledgements, and the changes
//! that arrive from them.

use std::collections::{BTreeMap, BTreeSet};

use super::{CloseReason, Engine, LinkId, Outbox, Output, Report};
use crate::model::entry::Entry;
use crate::model::ids::{Event, Millis, NodeId, NodeIndex, Tick};
use crate::model::path::Path;
use crate::model::seen::{EXPORT_RANGES_MAX, Mark, Seen, SeenById, export_seen};
use crate::model::tick_set::TickSet;
use crate::protocol::peer::{ChangeMessage, Digest, PeerMessage};
use crate::protocol::record::Record;
use crate::replica::apply::Applied;

/// A digest of what changed goes out this often while something changes.
pub(super) const DIGEST_INTERVAL_MS: Millis = 200;
/// A digest of everything goes out this often, also when nothing changes.
pub(super) const DIGEST_FULL_INTERVAL_MS: Millis = 5_000;
/// Acknowledgements that nobody waits for go out this often.
pub(super) const ACK_INTERVAL_MS: Millis = 100;
/// Incarnations and ranges per digest message; more of them go into several messages. At most
/// 18 bytes for a range and about 100 for an incarnation: 72 to 400 KiB.
const DIGEST_ITEMS_MAX: usize = 4_096;

/// One linked peer.
pub(super) struct Peer {
    pub(super) id: NodeId,
    /// What it said that it has accounted for. Only ever grows while the link stands.
    pub(super) seen: Seen,
    /// The latest that it said of its purges.
    pub(super) mark: Mark,
    /// Whether it serves clients.
    pub(super) ready: bool,
    /// This node's ticks up to here are accounted for there. Never goes back, except to 0 when
    /// this node takes a new incarnation.
    pub(super) acked: Tick,
    /// Its acknowledgements are of the present incarnation: that is the one it was greeted
    /// with. Digests name the incarnation, acknowledgements don't.
    acks_count: bool,
    /// The last acknowledgement that was sent to it.
    ack_sent: Tick,
    ack_wanted: bool,
    /// Ticks that it has and that were missing here, and since when.
    pub(super) suspect: Option<(Millis, Seen)>,
    /// No catch-up is asked of it before this time.
    pub(super) avoid_until: Millis,
}

/// All linked peers.
#[derive(Default)]
pub(super) struct Peers {
    links: BTreeMap<LinkId, Peer>,
    /// Incarnations of which something was accounted for since the last digest.
    changed: BTreeSet<NodeIndex>,
    digest_due: Millis,
    digest_full_due: Millis,
    ack_due: Millis,
}

impl Peers {
    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (LinkId, &Peer)> {
        self.links.iter().map(|(link, peer)| (*link, peer))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (LinkId, &mut Peer)> {
        self.links.iter_mut().map(|(link, peer)| (*link, peer))
    }

    pub(super) fn get(&self, link: LinkId) -> Option<&Peer> {
        self.links.get(&link)
    }

    pub(super) fn get_mut(&mut self, link: LinkId) -> Option<&mut Peer> {
        self.links.get_mut(&link)
    }

    pub(super) fn note_change(&mut self, node: NodeIndex) {
        self.changed.insert(node);
    }

    /// This node has a new incarnation, of which nobody has acknowledged anything.
    pub(super) fn on_renewed(&mut self) {
        for peer in self.links.values_mut() {
            peer.acked = Tick::default();
            peer.acks_count = false;
        }
    }
}

impl Engine {
    pub(super) fn on_link_up(&mut self, link: LinkId, id: NodeId, out: &mut Outbox) {
        self.replica.intern(&id);
        self.revive(&id.name);
        let peer = Peer {
            id,
            seen: Seen::new(),
            mark: Mark::default(),
            ready: false,
            acked: Tick::default(),
            acks_count: true,
            ack_sent: Tick::default(),
            ack_wanted: false,
            suspect: None,
            avoid_until: 0,
        };
        self.peers.links.insert(link, peer);
        self.send_digest(link, out);
    }

    pub(super) fn on_link_down(&mut self, link: LinkId, now: Millis, out: &mut Outbox) {
        self.peers.links.remove(&link);
        self.on_repair_link_down(link, now, out);
    }

    pub(super) fn on_messages(
        &mut self,
        link: LinkId,
        messages: Vec<PeerMessage<'_>>,
        now: Millis,
        out: &mut Outbox,
    ) {
        for message in messages {
            // A link that was closed meanwhile has nothing more to say.
            if self.peers.get(link).is_none() {
                return;
            }
            match message {
                PeerMessage::Change(change) => self.on_change(link, &change, out),
                PeerMessage::Digest(digest) => self.on_digest(link, &digest, now, out),
                PeerMessage::Ack(tick) => self.on_ack(link, tick, out),
                PeerMessage::CatchUpAsk(ask) => self.on_catch_up_ask(link, &ask, out),
                PeerMessage::CatchUpPart { id, mark, records } => {
                    self.on_catch_up_part(link, id, &mark, &records, now, out);
                }
                PeerMessage::CatchUpEnd(end) => self.on_catch_up_end(link, &end, now, out),
                PeerMessage::CatchUpRefused { id, reason } => {
                    self.on_catch_up_refused(link, id, reason, now, out);
                }
                PeerMessage::Topic { topic, data } => {
                    out.push(Output::Topic { topic, data: data.into() });
                }
                PeerMessage::KillNode(name) => {
                    if name != self.config.id.name {
                        self.hide(name);
                    }
                }
                PeerMessage::Leave => {
                    out.push(Output::Close { link, reason: CloseReason::Left });
                }
            }
        }
        self.send_wanted_ack(link, out);
    }

    fn on_change(&mut self, link: LinkId, change: &ChangeMessage<'_>, out: &mut Outbox) {
        if let Some(peer) = self.peers.get_mut(link) {
            peer.ack_wanted |= change.ack_wanted;
        }
        if self.take_record(&change.record, &change.mark, out).is_none() {
            out.push(Output::Close { link, reason: CloseReason::TableFull });
        }
    }

    /// RULES 2 for a record from a peer; tells whether it was refused. `None` when the node
    /// table is full.
    pub(super) fn take_record(
        &mut self,
        record: &Record<'_>,
        mark: &Mark,
        out: &mut Outbox,
    ) -> Option<bool> {
        let replica = &mut self.replica;
        let entry = record.to_entry_with(|event| {
            let node = replica.intern_name(event.name, event.incarnation)?;
            Some(Event { node, tick: event.tick })
        })?;
        Some(self.take_entry(&record.path, &entry, mark, out))
    }

    /// RULES 2 for a version that is not of this node's making; tells whether it was refused.
    pub(super) fn take_entry(
        &mut self,
        path: &Path,
        entry: &Entry,
        mark: &Mark,
        out: &mut Outbox,
    ) -> bool {
        for event in entry.events() {
            self.peers.changed.insert(event.node);
        }
        match self.replica.apply(path, entry, mark) {
            Applied::AlreadyKnown | Applied::Superseded => {}
            Applied::Refused => return true,
            Applied::Taken(change) => {
                self.counters.applied += 1;
                self.publish(change, out);
            }
            Applied::OnTopAgain(change) => {
                self.counters.applied += 1;
                self.push_change(&change, false, out);
                self.publish(change, out);
            }
            Applied::Conflict(conflict) => {
                self.counters.conflicts += 1;
                if conflict.took_theirs {
                    self.counters.applied += 1;
                    let (path, entry) = (conflict.path.clone(), conflict.winner.clone());
                    self.publish(crate::replica::Committed { path, entry }, out);
                }
                self.record_conflict(&conflict, out);
                out.push(Output::Report(Report::Conflict(conflict)));
            }
        }
        false
    }

    fn on_ack(&mut self, link: LinkId, tick: Tick, out: &mut Outbox) {
        let own = self.replica.tick();
        if let Some(peer) = self.peers.get_mut(link)
            && peer.acks_count
            // Nobody can have more of this incarnation than it made.
            && tick <= own
            && tick > peer.acked
        {
            peer.acked = tick;
            out.push(Output::AckProgress);
        }
    }

    fn on_digest(&mut self, link: LinkId, digest: &Digest, now: Millis, out: &mut Outbox) {
        let Some(theirs) = self.replica.intern_seen(&digest.seen) else {
            out.push(Output::Close { link, reason: CloseReason::TableFull });
            return;
        };
        self.replica.check_own_seen(&theirs);
        self.replica.hear_tock(digest.tock);
        let own = self.replica.own();
        let missing = theirs.difference(self.replica.seen());
        let Some(peer) = self.peers.get_mut(link) else { return };
        peer.ready = digest.ready;
        peer.mark = digest.mark.clone();
        peer.seen.union_with(&theirs);
        let acked = peer.seen.contiguous(own);
        if acked > peer.acked && acked <= self.replica.tick() {
            peer.acked = acked;
            out.push(Output::AckProgress);
        }
        if peer.suspect.is_none() && !missing.is_empty() {
            // Probably only on its way here; if it is still missing later, it is a hole.
            peer.suspect = Some((now, missing));
        }
        if !self.ready && digest.ready {
            self.start_repair(now, out);
        }
    }

    /// Everything that is accounted for here, for others. Nothing while this node is not ready:
    /// nobody fetches from it, what it has is in fragments, and it makes no changes.
    pub(super) fn told_seen(&self) -> SeenById {
        if !self.ready {
            return Vec::new();
        }
        export_seen(self.replica.table(), self.replica.seen())
    }

    /// Sends everything that is accounted for here to one peer.
    pub(super) fn send_digest(&mut self, link: LinkId, out: &mut Outbox) {
        let seen = self.told_seen();
        for message in self.digests(&seen) {
            self.send(link, &message, out);
        }
    }

    fn digests(&self, seen: &SeenById) -> Vec<PeerMessage<'static>> {
        let digest = |seen: &[_]| {
            PeerMessage::Digest(Digest {
                ready: self.ready,
                tock: self.replica.tock(),
                mark: self.replica.mark().clone(),
                seen: seen.to_vec(),
            })
        };
        let mut messages = Vec::new();
        let mut rest = seen.as_slice();
        while messages.is_empty() || !rest.is_empty() {
            let mut items = 0;
            let fits = |(_, ticks): &&(NodeId, TickSet)| {
                items += 1 + ticks.range_count();
                items <= DIGEST_ITEMS_MAX
            };
            // One incarnation may exceed it alone; its ranges are bounded elsewhere.
            let count = rest.iter().take_while(fits).count().max(1).min(rest.len());
            let (now, later) = rest.split_at(count);
            messages.push(digest(now));
            rest = later;
        }
        messages
    }

    /// Acknowledges at once what the peer's client waits for.
    fn send_wanted_ack(&mut self, link: LinkId, out: &mut Outbox) {
        let Some(peer) = self.peers.get_mut(link) else { return };
        if std::mem::take(&mut peer.ack_wanted) {
            self.send_ack(link, out);
        }
    }

    fn send_ack(&mut self, link: LinkId, out: &mut Outbox) {
        let Some(peer) = self.peers.get(link) else { return };
        let table = self.replica.table();
        let Some(index) = table.find(peer.id.name.as_str(), peer.id.incarnation) else { return };
        let tick = self.replica.seen().contiguous(index);
        if tick <= peer.ack_sent {
            return;
        }
        self.send(link, &PeerMessage::Ack(tick), out);
        if let Some(peer) = self.peers.get_mut(link) {
            peer.ack_sent = tick;
        }
    }

    pub(super) fn on_tick(&mut self, now: Millis, out: &mut Outbox) {
        if now >= self.peers.ack_due {
            self.peers.ack_due = now + ACK_INTERVAL_MS;
            let links: Vec<LinkId> = self.peers.links.keys().copied().collect();
            for link in links {
                self.send_ack(link, out);
            }
        }
        if now >= self.peers.digest_full_due {
            self.peers.digest_full_due = now + DIGEST_FULL_INTERVAL_MS;
            self.peers.digest_due = now + DIGEST_INTERVAL_MS;
            self.peers.changed.clear();
            let seen = self.told_seen();
            self.broadcast_digest(&seen, out);
        } else if self.ready && now >= self.peers.digest_due && !self.peers.changed.is_empty() {
            self.peers.digest_due = now + DIGEST_INTERVAL_MS;
            let changed = std::mem::take(&mut self.peers.changed);
            let seen: SeenById = changed
                .into_iter()
                .filter_map(|node| {
                    let ticks = self.replica.seen().get(node)?.prefix(EXPORT_RANGES_MAX);
                    Some((self.replica.table().get(node)?.clone(), ticks))
                })
                .collect();
            self.broadcast_digest(&seen, out);
        }
        self.on_repair_tick(now, out);
    }

    pub(super) fn broadcast_digest(&mut self, seen: &SeenById, out: &mut Outbox) {
        for message in self.digests(seen) {
            self.broadcast(&message, out);
        }
    }
}

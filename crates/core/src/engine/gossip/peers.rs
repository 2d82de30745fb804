//! The linked peers: what each has accounted for, acknowledgements, and the changes that arrive
//! from them.

use std::collections::{BTreeMap, VecDeque};

use super::digest::{Extents, Heard, Schedule};
use super::spread::LinkEdge;
use crate::engine::far_clock::is_too_far;
use crate::engine::repair::answer::Serving;
use crate::engine::repair::contents::PeerContents;
use crate::engine::take_in::TOUCHED_AT_ONCE;
use crate::engine::{CloseReason, Engine, LinkId, Outbox, Output, Report};
use crate::model::entry::Entry;
use crate::model::ids::{Event, Millis, NodeId, NodeIndex, Tick};
use crate::model::path::Path;
use crate::model::seen::{Mark, Seen};
use crate::protocol::peer::{ChangeMessage, PeerMessage};
use crate::protocol::record::Record;
use crate::replica::Committed;
use crate::replica::across::Across;
use crate::replica::apply::{Applied, Conflict};

/// How often acknowledgements go out that no write waits for.
pub(super) const ACK_INTERVAL_MS: Millis = 100;
/// Most of this node's ticks that are remembered as no changes of entries, until a peer has them.
const BURNT_TICKS_MAX: usize = 64;

/// One linked peer.
pub(in crate::engine) struct Peer {
    pub(in crate::engine) id: NodeId,
    /// The ticks that it said it has accounted for. Only ever grows while the link stands.
    pub(in crate::engine) seen: Seen,
    /// The latest that it said of its purges.
    pub(in crate::engine) mark: Mark,
    /// Whether it serves clients.
    pub(in crate::engine) ready: bool,
    /// This node's ticks up to here are accounted for there. Never goes back, except to 0 when
    /// this node takes a new incarnation.
    pub(in crate::engine) acked: Tick,
    /// Its acknowledgements are of the present incarnation: that is the one it was greeted
    /// with. Digests name the incarnation, acknowledgements don't.
    acks_count: bool,
    /// The last acknowledgement that was sent to it.
    ack_sent: Tick,
    ack_wanted: bool,
    /// Ticks that it has and that were missing here, and since when.
    pub(in crate::engine) suspect: Option<(Millis, Seen)>,
    /// No catch-up is asked of it before this time.
    pub(in crate::engine) avoid_until: Millis,
    /// Since when its mark has been ahead of this node's.
    pub(in crate::engine) ahead_since: Option<Millis>,
    /// It has re-issues for this node (replication rule 4d), or must be asked for another reason.
    pub(in crate::engine) invited: bool,
    /// This node's mark, at which the announcements that it sent did not help, or it did not answer at all.
    /// As long as this node stands there, it asks for the data itself.
    pub(in crate::engine) announced_in_vain: Option<Mark>,
    /// The snapshot from which it is being answered.
    pub(in crate::engine) serving: Option<Serving>,
    /// What its digests have said of the incarnations that they do not name.
    pub(in crate::engine) heard: Heard,
    /// What both sides think of the link.
    pub(in crate::engine) edge: LinkEdge,
    /// How its contents compare.
    pub(in crate::engine) contents: PeerContents,
    /// How many changes were known here ([`EngineCounters::changes`](crate::engine::EngineCounters::changes)) when
    /// something last came from it. It sends a digest or an acknowledgement soon after each change that it has.
    pub(in crate::engine) changes_then: u64,
}

/// What became of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::engine) struct Taken {
    /// It was refused (replication rule 2).
    pub(in crate::engine) refused: bool,
    /// It was re-issued on the sender's behalf (replication rule 8).
    pub(in crate::engine) reissued: bool,
}

/// All linked peers.
#[derive(Default)]
pub(in crate::engine) struct Peers {
    links: BTreeMap<LinkId, Peer>,
    /// The part of the own seen that digests name.
    pub(in crate::engine) extents: Extents,
    pub(in crate::engine) schedule: Schedule,
    ack_due: Millis,
    /// This node's ticks up to here are accounted for at some peer, or were made before its start.
    shared: Tick,
    /// Those above it that are no change of an entry, ascending.
    burnt: VecDeque<Tick>,
}

impl Peers {
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = (LinkId, &Peer)> {
        self.links.iter().map(|(link, peer)| (*link, peer))
    }

    pub(in crate::engine) fn iter_mut(&mut self) -> impl Iterator<Item = (LinkId, &mut Peer)> {
        self.links.iter_mut().map(|(link, peer)| (*link, peer))
    }

    pub(in crate::engine) fn get(&self, link: LinkId) -> Option<&Peer> {
        self.links.get(&link)
    }

    pub(in crate::engine) fn get_mut(&mut self, link: LinkId) -> Option<&mut Peer> {
        self.links.get_mut(&link)
    }

    /// Something of this incarnation may have been accounted for: digests should name it.
    pub(in crate::engine) fn note_change(&mut self, node: NodeIndex) {
        self.extents.note(node);
    }

    /// Some peer has accounted for this node's ticks up to that one.
    pub(in crate::engine) fn note_shared(&mut self, tick: Tick) {
        self.shared = self.shared.max(tick);
        self.burnt.retain(|burnt| *burnt > self.shared);
    }

    /// This tick of this node, its newest, is no change of an entry.
    pub(in crate::engine) fn note_burnt(&mut self, tick: Tick) {
        if self.burnt.len() == BURNT_TICKS_MAX {
            self.burnt.pop_front();
        }
        self.burnt.push_back(tick);
    }

    /// How many changes of entries no peer has accounted for, if this is the newest tick; none if a peer has more than that.
    pub(in crate::engine) fn unshared(&self, newest: Tick) -> Option<u64> {
        newest.get().checked_sub(self.shared.get())?.checked_sub(self.burnt.len() as u64)
    }

    /// This node has a new incarnation, of which no peer has acknowledged anything.
    pub(in crate::engine) fn on_renewed(&mut self) {
        self.shared = Tick::default();
        self.burnt.clear();
        for peer in self.links.values_mut() {
            peer.acked = Tick::default();
            peer.acks_count = false;
        }
    }
}

impl Engine {
    /// Says whether a linked peer cannot read paths with arrays as elements. As long as one is there,
    /// clients make no such entries: a first one would cut that peer off.
    pub(in crate::engine) fn bar_array_paths(&mut self, barred: bool) {
        self.array_paths_barred = barred;
    }

    pub(in crate::engine) fn on_link_up(&mut self, link: LinkId, id: NodeId, out: &mut Outbox) {
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
            ahead_since: None,
            invited: false,
            announced_in_vain: None,
            serving: None,
            heard: Heard::default(),
            edge: LinkEdge::default(),
            contents: PeerContents::default(),
            changes_then: self.counters.changes(),
        };
        self.peers.links.insert(link, peer);
        self.greet_edge(link, out);
        self.greet_elections(link, out);
        self.greet_group(link, out);
        self.tell_killed(link, out);
        self.send_digest(link, out);
    }

    pub(in crate::engine) fn on_link_down(&mut self, link: LinkId, now: Millis, out: &mut Outbox) {
        self.stop_serving(link, out);
        if let Some(peer) = self.peers.links.remove(&link) {
            self.on_resync_link_down(&peer.id.name, now);
            self.on_name_gone(&peer.id.name);
            self.on_spread_link_down(&peer, out);
        }
        self.on_delete_link_down(link);
        self.on_repair_link_down(link, now, out);
    }

    /// What came from that peer was taken in.
    pub(in crate::engine) fn note_word(&mut self, link: LinkId) {
        let changes = self.counters.changes();
        if let Some(peer) = self.peers.get_mut(link) {
            peer.changes_then = changes;
        }
    }

    pub(in crate::engine) fn on_messages(
        &mut self,
        link: LinkId,
        messages: Vec<PeerMessage<'_>>,
        now: Millis,
        out: &mut Outbox,
    ) {
        let (mut messages, mut touched) = (messages.into_iter(), 0);
        while let Some(first) = messages.as_slice().first() {
            if touched == 0 && matches!(first, PeerMessage::Change(_)) {
                let next = messages.as_slice().iter().take(TOUCHED_AT_ONCE);
                touched = next.len();
                self.touch(next.filter_map(PeerMessage::as_record));
            }
            touched = touched.saturating_sub(1);
            let Some(message) = messages.next() else { break };
            // A link that was closed meanwhile has nothing more to say.
            if self.peers.get(link).is_none() {
                return;
            }
            // Here and nowhere else, so that no kind of message is forgotten: every one passes this.
            if is_too_far(message.top_tock(), self.replica.tock()) {
                out.push(Output::Close { link, reason: CloseReason::ClockTooFar });
                break;
            }
            match message {
                PeerMessage::Change(change) => self.on_change(link, &change, now, out),
                PeerMessage::Digest(digest) => self.on_digest(link, &digest, now, out),
                PeerMessage::DigestWanted => self.on_digest_wanted(link, now, out),
                PeerMessage::Ack(tick) => self.on_ack(link, tick, out),
                PeerMessage::CatchUpAsk(ask) => self.on_catch_up_ask(link, &ask, now, out),
                PeerMessage::CatchUpKnown(known) => self.on_catch_up_known(link, &known, now, out),
                PeerMessage::CatchUpMore { id } => self.on_catch_up_more(link, id, now, out),
                PeerMessage::CatchUpMissing { id, missing } => {
                    self.on_catch_up_missing(link, id, &missing, now, out);
                }
                PeerMessage::CatchUpPart { id, mark, records } => {
                    self.on_catch_up_part(link, id, &mark, &records, now, out);
                }
                PeerMessage::CatchUpEnd { id, entries } => {
                    self.on_catch_up_end(link, id, entries, now, out);
                }
                PeerMessage::CatchUpNames(names) => self.on_catch_up_names(link, names, now, out),
                PeerMessage::CatchUpVerdict(verdict) => {
                    self.on_catch_up_verdict(link, &verdict, now, out);
                }
                PeerMessage::CatchUpDone { id } => self.on_catch_up_done(link, id, out),
                PeerMessage::CatchUpInvite => self.on_catch_up_invite(link, now, out),
                PeerMessage::Ping(ping) => self.on_ping(&ping, now, out),
                PeerMessage::Resync(status) => {
                    if let Some(name) = self.peers.get(link).map(|p| p.id.name.clone()) {
                        self.on_resync_status(name, status, now, out);
                    }
                }
                PeerMessage::Edge(edge) => self.on_edge(link, edge, out),
                PeerMessage::Relayed(relayed) => self.on_relayed(link, relayed, now, out),
                PeerMessage::Group(hello) => self.on_group(link, &hello, out),
                PeerMessage::Propose(proposal) => self.on_propose(link, &proposal, now, out),
                PeerMessage::Agree { round, member } => self.on_agree(&round, &member, now, out),
                PeerMessage::Disagree(round) => self.on_disagree(&round, now),
                PeerMessage::Announce(pair) => self.on_announce(&pair, out),
                PeerMessage::CatchUpRefused { id, reason } => {
                    self.on_catch_up_refused(link, id, reason, now, out);
                }
                PeerMessage::Topic { topic, data } => {
                    out.push(Output::Topic { topic, data: data.into() });
                }
                PeerMessage::KillNode(name) => self.on_kill_node(name, out),
                PeerMessage::ContentsAsk(ask) => self.on_contents_ask(link, &ask, out),
                PeerMessage::ContentsList(list) => self.on_contents_list(link, list, out),
                PeerMessage::ContentsWant(paths) => self.on_contents_want(link, &paths, out),
                PeerMessage::ContentsVersions { mark, records } => {
                    self.on_contents_versions(link, &mark, &records, out);
                }
                PeerMessage::Leave => {
                    self.forget_witness(link);
                    out.push(Output::Close { link, reason: CloseReason::Left });
                }
            }
        }
        if self.spread.is_tree() {
            let wanted = self.peers.links.iter().filter(|(_, peer)| peer.ack_wanted);
            let links: Vec<LinkId> = wanted.map(|(link, _)| *link).collect();
            links.into_iter().for_each(|link| self.send_wanted_ack(link, out));
        } else {
            self.send_wanted_ack(link, out);
        }
    }

    fn on_change(
        &mut self,
        link: LinkId,
        change: &ChangeMessage<'_>,
        now: Millis,
        out: &mut Outbox,
    ) {
        if let Some(peer) = self.peers.get_mut(link) {
            peer.ack_wanted |= change.ack_wanted;
        }
        let Some(entry) = self.intern_record(&change.record) else {
            out.push(Output::Close { link, reason: CloseReason::TableFull });
            return;
        };
        if !self.spread.is_tree() {
            self.take_entry(&change.record.path, &entry, &change.mark, out);
            return;
        }
        let was_seen = self.replica.seen().contains(entry.newest());
        let taken = self.take_entry(&change.record.path, &entry, &change.mark, out);
        self.pass_on(link, change, &entry, (!was_seen).then_some(taken), now, out);
        if change.ack_wanted {
            // Its maker waits, whichever node passed it on.
            self.want_ack_of(&entry);
        }
    }

    fn want_ack_of(&mut self, entry: &Entry) {
        let maker = self.replica.table().id(entry.newest().node);
        let is_maker = |peer: &&mut Peer| peer.id == *maker;
        self.peers.links.values_mut().filter(is_maker).for_each(|peer| peer.ack_wanted = true);
    }

    /// Replication rule 2 for a record from a peer. `None` when the node table is full.
    pub(in crate::engine) fn take_record(
        &mut self,
        record: &Record<'_>,
        mark: &Mark,
        out: &mut Outbox,
    ) -> Option<Taken> {
        let entry = self.intern_record(record)?;
        Some(self.take_entry(&record.path, &entry, mark, out))
    }

    /// Replication rule 8 for a streamed record of a sender on another lineage. `None` when the node table
    /// is full.
    pub(in crate::engine) fn take_record_on_behalf(
        &mut self,
        record: &Record<'_>,
        mark: &Mark,
        out: &mut Outbox,
    ) -> Option<Taken> {
        let entry = self.intern_record(record)?;
        self.note_chain(&entry);
        let applied = self.replica.apply_on_behalf(&record.path, &entry, mark);
        Some(self.publish_applied(applied, out))
    }

    pub(in crate::engine) fn intern_record(&mut self, record: &Record<'_>) -> Option<Entry> {
        let replica = &mut self.replica;
        record.to_entry_with(replica.take_room(), |event| {
            let node = replica.intern_name(event.name, event.incarnation)?;
            Some(Event { node, tick: event.tick })
        })
    }

    /// Replication rule 2 for a version that is not of this node's making.
    pub(in crate::engine) fn take_entry(
        &mut self,
        path: &Path,
        entry: &Entry,
        mark: &Mark,
        out: &mut Outbox,
    ) -> Taken {
        self.note_chain(entry);
        let applied = self.replica.apply(path, entry, mark);
        self.publish_applied(applied, out)
    }

    pub(in crate::engine) fn note_chain(&mut self, entry: &Entry) {
        for event in entry.events() {
            self.peers.note_change(event.node);
        }
    }

    /// Notifies clients here of what became of a version.
    pub(in crate::engine) fn publish_applied(
        &mut self,
        applied: Applied,
        out: &mut Outbox,
    ) -> Taken {
        let mut taken = Taken::default();
        match applied {
            Applied::AlreadyKnown | Applied::Superseded => {}
            Applied::Refused => taken.refused = true,
            Applied::Taken(change) => {
                self.counters.applied += 1;
                self.publish(change, out);
            }
            Applied::OnTopAgain(change, conflict) => {
                self.counters.applied += 1;
                self.push_change(&change, false, out);
                self.publish(change, out);
                if let Some(conflict) = conflict {
                    self.tell_conflict(conflict, out);
                }
            }
            Applied::Reissued(change, conflict) => {
                self.note_reissue(change, out);
                taken.reissued = true;
                if let Some(conflict) = conflict {
                    self.tell_conflict(conflict, out);
                }
            }
            Applied::Conflict(conflict) => {
                if conflict.took_theirs {
                    self.counters.applied += 1;
                    let (path, entry) = (conflict.path.clone(), conflict.winner.clone());
                    self.publish(Committed { path, entry }, out);
                }
                self.tell_conflict(conflict, out);
            }
        }
        taken
    }

    /// Reports a conflict, after the change that it made.
    fn tell_conflict(&mut self, conflict: Box<Conflict>, out: &mut Outbox) {
        self.counters.conflicts += 1;
        self.record_conflict(&conflict, out);
        out.push(Output::Report(Report::Conflict(conflict)));
    }

    /// Clients here are told of a re-issue, but it is not pushed (replication rule 4d): peers learn
    /// of it by the digest.
    fn note_reissue(&mut self, change: Committed, out: &mut Outbox) {
        self.counters.reissued += 1;
        self.peers.note_change(change.entry.newest().node);
        self.publish(change, out);
    }

    /// Reports what the step of replication rule 4 did.
    pub(in crate::engine) fn publish_across(&mut self, across: Across, out: &mut Outbox) {
        if !across.dropped.is_empty() {
            self.counters.dropped += across.dropped.len() as u64;
            out.push(Output::Gone { purged: Vec::new(), dropped: across.dropped });
        }
        for change in across.reissued {
            self.note_reissue(change, out);
        }
        for conflict in across.conflicts {
            self.tell_conflict(Box::new(conflict), out);
        }
    }

    fn on_ack(&mut self, link: LinkId, tick: Tick, out: &mut Outbox) {
        let own = self.replica.tick();
        if let Some(peer) = self.peers.get_mut(link)
            && peer.acks_count
            // No peer can have more of this incarnation than it made.
            && tick <= own
            && tick > peer.acked
        {
            peer.acked = tick;
            self.peers.note_shared(tick);
            out.push(Output::AckProgress);
        }
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

    pub(in crate::engine) fn on_tick(&mut self, now: Millis, out: &mut Outbox) {
        if now >= self.peers.ack_due {
            self.peers.ack_due = now + ACK_INTERVAL_MS;
            let links: Vec<LinkId> = self.peers.links.keys().copied().collect();
            for link in links {
                self.send_ack(link, out);
            }
        }
        self.on_spread_tick(now, out);
        self.on_digest_tick(now, out);
        self.on_election_tick(now, out);
        self.on_serve_tick(now, out);
        self.on_delete_tick(now, out);
        self.on_repair_tick(now, out);
        self.on_resync_tick(now, out);
    }
}

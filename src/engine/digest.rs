//! Digests: what a node tells its peers of what it has accounted for (RULES, "Sparing").
//!
//! A full digest names the incarnations that matter: those that are linked or members, those of
//! which something was accounted for lately, and those with holes. All others, nearly all of which
//! are over, are covered by one sum ([`crate::model::seen_sum`]). Whoever has another sum wants the
//! whole list, once per sum: then it knows what it lacks, or that it lacks nothing. An answer
//! never causes a question, so two nodes that both lack something ask each other once.
//!
//! In a network of more than a dozen nodes, those that are merely there are left to the sum, too: a
//! list of all members to each peer every few seconds would be most of what is said. What has changed here lately, and has not arrived at
//! the peer yet, must then not look like a difference: a peer that does not name an incarnation has
//! had nothing of it for a minute, so it is compared with what this node had before.

use std::collections::{BTreeMap, BTreeSet};

use super::{CloseReason, Engine, LinkId, Outbox, Output};
use crate::model::defects::Defect;
use crate::model::ids::{Millis, NodeId, NodeIndex, Tock};
use crate::model::seen::{Seen, SeenById, export_seen, export_some};
use crate::model::seen_sum::{Extent, SeenSum, Share, share_key};
use crate::model::tick_set::TickSet;
use crate::protocol::peer::{Digest, PeerMessage, Unnamed};
use crate::replica::Replica;

/// A digest of what changed goes out this often while something changes.
const CHANGES_INTERVAL_MS: Millis = 200;
/// The same in larger networks, for as many links, or incarnations, as there are times of this.
const CHANGES_FEW: usize = 12;
/// But so often in any case.
const CHANGES_INTERVAL_MAX_MS: Millis = 1_000;
/// In larger networks, members are not named only because they are there.
const MEMBERS_NAMED_MAX: usize = 12;
/// A full digest goes out this often, also when nothing changes.
const FULL_INTERVAL_MS: Millis = 5_000;
/// Incarnations and ranges per digest message; more of them go into several messages. At most
/// 18 bytes for a range and about 100 for an incarnation: 72 to 400 KiB.
const DIGEST_ITEMS_MAX: usize = 4_096;
/// So long an incarnation is named after something of it was accounted for: what peers learn at
/// different times should be found by its name, and not by asking for the whole list.
const RECENT_MS: Millis = 60_000;
/// Most incarnations that are named only because something of them was accounted for lately. A
/// node that has just caught up with all of a long history leaves them to the sum.
const RECENT_NAMED_MAX: usize = 1_024;
/// Incarnations that are looked at with each tick although nobody said that they changed.
const LOOK_AROUND: usize = 1_024;
/// A node wants a whole list at most this often, from whomever.
const WANT_INTERVAL_MS: Millis = 1_000;
/// The same from one peer: a list may take a while to come.
const WANT_AGAIN_MS: Millis = 5_000;
/// A whole list is sent to one peer at most this often. With 65,536 incarnations it has 3 MB.
const LIST_INTERVAL_MS: Millis = 2_000;

/// What a node tells: incarnations by name, and what there is besides.
#[derive(Default)]
pub(super) struct Told {
    seen: SeenById,
    unnamed: Unnamed,
}

/// What the own sum is made of.
#[derive(Default)]
pub(super) struct Extents {
    /// By index, as they were when last looked at. Invariant: `sum` is over their shares.
    known: Vec<Known>,
    sum: SeenSum,
    /// Of these something may have been accounted for since they were looked at.
    noted: BTreeSet<NodeIndex>,
    /// The last of them.
    noted_last: Option<NodeIndex>,
    /// Of these something was accounted for since the last digest.
    changed: BTreeSet<NodeIndex>,
    /// The same, within [`RECENT_MS`].
    recent: BTreeMap<NodeIndex, Recent>,
    holed: BTreeSet<NodeIndex>,
    /// Where looking around goes on.
    cursor: usize,
}

/// An incarnation of which something was accounted for lately.
#[derive(Clone, Copy)]
struct Recent {
    /// When that was last.
    at: Millis,
    /// What it added to the sum before all that.
    before: Share,
}

/// One incarnation of [`Extents`].
struct Known {
    key: u64,
    extent: Extent,
}

impl Known {
    fn share(&self) -> Share {
        Share::of(self.key, self.extent)
    }
}

impl Extents {
    /// Something of this incarnation may have been accounted for. A hint: what was forgotten is
    /// found by looking around.
    pub(super) fn note(&mut self, node: NodeIndex) {
        // Nearly always the same as before.
        if self.noted_last != Some(node) {
            self.noted_last = Some(node);
            self.noted.insert(node);
        }
    }

    /// Brings the sum up to date. Costs what was noted.
    fn refresh(&mut self, replica: &Replica, now: Millis) {
        for (node, id) in replica.table().iter().skip(self.known.len()) {
            self.known.push(Known { key: share_key(id), extent: Extent::Nothing });
            self.noted.insert(node);
        }
        self.noted_last = None;
        for node in std::mem::take(&mut self.noted) {
            self.look_at(node, true, replica, now);
        }
    }

    /// Looks at some that nobody noted, each at its turn.
    fn look_around(&mut self, replica: &Replica, now: Millis) {
        self.refresh(replica, now);
        for at in self.cursor..(self.cursor + LOOK_AROUND).min(self.known.len()) {
            self.look_at(NodeIndex(at as u32), false, replica, now);
        }
        self.cursor += LOOK_AROUND;
        if self.cursor >= self.known.len() {
            self.cursor = 0;
        }
        self.recent.retain(|_, recent| now.saturating_sub(recent.at) < RECENT_MS);
    }

    fn look_at(&mut self, node: NodeIndex, noted: bool, replica: &Replica, now: Millis) {
        let Some(known) = self.known.get_mut(node.as_usize()) else { return };
        let extent = Extent::of(replica.seen().get(node));
        // What changes between holes does not show in the extent.
        if extent == known.extent && !(noted && extent == Extent::Holed) {
            return;
        }
        let before = known.share();
        self.sum.remove(before);
        known.extent = extent;
        self.sum.add(known.share());
        if extent == Extent::Holed {
            self.holed.insert(node);
        } else {
            self.holed.remove(&node);
        }
        self.changed.insert(node);
        self.recent.entry(node).or_insert(Recent { at: now, before }).at = now;
    }

    /// The sum over all but these.
    fn without(&self, named: &BTreeSet<NodeIndex>) -> SeenSum {
        let mut sum = self.sum;
        for known in named.iter().filter_map(|node| self.known.get(node.as_usize())) {
            sum.remove(known.share());
        }
        sum
    }

    /// The same, as it was for a peer to which nothing of what came here lately has come: it would
    /// have named that. What came half of the time ago that one names things for is at rest.
    fn before_lately(&self, named: &BTreeSet<NodeIndex>, now: Millis) -> SeenSum {
        let mut sum = self.without(named);
        for (node, recent) in &self.recent {
            if !named.contains(node)
                && now.saturating_sub(recent.at) < RECENT_MS / 2
                && let Some(known) = self.known.get(node.as_usize())
            {
                sum.remove(known.share());
                sum.add(recent.before);
            }
        }
        sum
    }
}

/// What a peer's digests have said of what they do not name.
#[derive(Default)]
pub(super) struct Heard {
    /// Named so far in a digest of which parts follow.
    named: BTreeSet<NodeIndex>,
    /// All that this sum of the peer's is over is in what it is known to have seen.
    understood: Option<SeenSum>,
    /// The whole list was asked for because of this sum, then.
    wanted: Option<(SeenSum, Millis)>,
    /// No whole list is sent to it before this time.
    list_due: Millis,
}

/// When which digest is due, for all peers.
#[derive(Default)]
pub(super) struct Schedule {
    /// When the last digest went out.
    told_at: Millis,
    full_due: Millis,
    /// No whole list is asked for before this time.
    want_due: Millis,
    /// The latest time that was heard of.
    pub(super) now: Millis,
}

impl Engine {
    /// What is accounted for here, for others. Nothing while this node is not ready: nobody
    /// fetches from it, what it has is in fragments, and it makes no changes.
    pub(super) fn told_seen(&mut self) -> Told {
        if !self.ready {
            return Told::default();
        }
        self.peers.extents.refresh(&self.replica, self.peers.schedule.now);
        let mut named = self.matter_always();
        let recent = &self.peers.extents.recent;
        if recent.len() <= RECENT_NAMED_MAX {
            named.extend(recent.keys());
        }
        let unnamed = Unnamed::Sum(self.peers.extents.without(&named));
        Told { seen: export_some(self.table(), self.seen(), named), unnamed }
    }

    /// Incarnations that may go on, or that have holes.
    fn matter_always(&self) -> BTreeSet<NodeIndex> {
        let table = self.replica.table();
        let find = |id: &NodeId| table.find(id.name.as_str(), id.incarnation);
        let mut nodes = BTreeSet::new();
        if self.link_count().max(self.members.len()) <= MEMBERS_NAMED_MAX {
            let linked = self.peers.iter().map(|(_, peer)| &peer.id);
            nodes.extend(linked.chain(&self.members).filter_map(find));
        }
        nodes.insert(self.own());
        nodes.extend(&self.peers.extents.holed);
        nodes
    }

    /// What was accounted for since the last digest.
    fn told_changes(&mut self) -> Told {
        let mut changed = std::mem::take(&mut self.peers.extents.changed);
        if changed.len() > RECENT_NAMED_MAX {
            let matter = self.matter_always();
            changed.retain(|node| matter.contains(node));
        }
        Told { seen: export_some(self.table(), self.seen(), changed), unnamed: Unnamed::Unsaid }
    }

    pub(super) fn on_digest_tick(&mut self, now: Millis, out: &mut Outbox) {
        self.peers.extents.look_around(&self.replica, now);
        let interval = self.changes_interval();
        let schedule = &mut self.peers.schedule;
        if now >= schedule.full_due {
            schedule.full_due = now + FULL_INTERVAL_MS;
            schedule.told_at = now;
            let told = self.told_seen();
            self.peers.extents.changed.clear();
            self.broadcast_digest(&told, out);
        } else if self.ready
            && now >= schedule.told_at + interval
            && !self.peers.extents.changed.is_empty()
        {
            schedule.told_at = now;
            let told = self.told_changes();
            match self.digest_links() {
                None => self.broadcast_digest(&told, out),
                Some(links) => links.iter().for_each(|link| self.send_told(*link, &told, out)),
            }
        }
    }

    /// How long after the last digest the next one of what changed is due. What it costs grows with
    /// links and with incarnations; what it is for, a frame that got lost, is rare.
    fn changes_interval(&self) -> Millis {
        let links = if self.spread.is_tree() { 0 } else { self.link_count() };
        let times = links.max(self.peers.extents.changed.len()).div_ceil(CHANGES_FEW).max(1);
        (CHANGES_INTERVAL_MS * times as Millis).min(CHANGES_INTERVAL_MAX_MS)
    }

    /// Sends a full digest to one peer.
    pub(super) fn send_digest(&mut self, link: LinkId, out: &mut Outbox) {
        let told = self.told_seen();
        self.send_told(link, &told, out);
    }

    fn send_told(&self, link: LinkId, told: &Told, out: &mut Outbox) {
        for message in self.digests(told) {
            self.send(link, &message, out);
        }
    }

    pub(super) fn broadcast_digest(&mut self, told: &Told, out: &mut Outbox) {
        for message in self.digests(told) {
            self.broadcast(&message, out);
        }
    }

    fn digests(&self, told: &Told) -> Vec<PeerMessage<'static>> {
        let digest = |seen: &[_], unnamed| {
            PeerMessage::Digest(Digest {
                ready: self.ready,
                tock: self.replica.tock(),
                mark: self.replica.mark().clone(),
                seen: seen.to_vec(),
                unnamed,
            })
        };
        let mut messages = Vec::new();
        let mut rest = told.seen.as_slice();
        while messages.is_empty() || !rest.is_empty() {
            let mut items = 0;
            let fits = |(_, ticks): &&(NodeId, TickSet)| {
                items += 1 + ticks.range_count();
                items <= DIGEST_ITEMS_MAX
            };
            // One incarnation may exceed it alone; its ranges are bounded elsewhere.
            let count = rest.iter().take_while(fits).count().max(1).min(rest.len());
            let (now, later) = rest.split_at(count);
            let unnamed = match told.unnamed {
                Unnamed::Sum(_) if !later.is_empty() => Unnamed::Follows,
                unnamed => unnamed,
            };
            messages.push(digest(now, unnamed));
            rest = later;
        }
        messages
    }

    pub(super) fn on_digest(
        &mut self,
        link: LinkId,
        digest: &Digest,
        now: Millis,
        out: &mut Outbox,
    ) {
        let Some(theirs) = self.replica.intern_seen(&digest.seen) else {
            out.push(Output::Close { link, reason: CloseReason::TableFull });
            return;
        };
        self.replica.check_own_seen(&theirs);
        if !self.config.defects.has(Defect::TockNotRaised) {
            self.replica.hear_tock(digest.tock);
        }
        if self.config.defects.has(Defect::KnowledgeBeforeData) {
            self.replica.see_without_data(&theirs);
        }
        let missing = theirs.difference(self.replica.seen());
        let Some(peer) = self.peers.get_mut(link) else { return };
        if std::mem::replace(&mut peer.ready, digest.ready) != digest.ready {
            out.push(Output::PeerReadiness);
        }
        peer.mark = digest.mark.clone();
        if peer.mark.ahead_of(self.replica.mark()) == Tock::default() {
            peer.ahead_since = None;
        } else {
            peer.ahead_since.get_or_insert(now);
        }
        peer.seen.union_with(&theirs);
        peer.suspect_of(missing, now);
        self.on_unnamed(link, digest, now, out);
        self.note_acked_by_digest(link, out);
        if !self.ready && digest.ready {
            self.start_repair(now, out);
        }
    }

    fn note_acked_by_digest(&mut self, link: LinkId, out: &mut Outbox) {
        let (own, tick) = (self.replica.own(), self.replica.tick());
        let Some(peer) = self.peers.get_mut(link) else { return };
        let acked = peer.seen.contiguous(own);
        if acked > peer.acked && acked <= tick {
            peer.acked = acked;
            out.push(Output::AckProgress);
        }
    }

    /// What a digest says of the rest.
    fn on_unnamed(&mut self, link: LinkId, digest: &Digest, now: Millis, out: &mut Outbox) {
        if digest.unnamed == Unnamed::Unsaid {
            return;
        }
        let table = self.replica.table();
        let find = |(id, _): &(NodeId, TickSet)| table.find(id.name.as_str(), id.incarnation);
        let named: Vec<NodeIndex> = digest.seen.iter().filter_map(find).collect();
        let Some(peer) = self.peers.get_mut(link) else { return };
        peer.heard.named.extend(named);
        if let Unnamed::Sum(sum) = digest.unnamed {
            let named = std::mem::take(&mut peer.heard.named);
            self.on_sum(link, sum, &named, now, out);
        }
    }

    fn on_sum(
        &mut self,
        link: LinkId,
        sum: SeenSum,
        named: &BTreeSet<NodeIndex>,
        now: Millis,
        out: &mut Outbox,
    ) {
        self.peers.extents.refresh(&self.replica, now);
        let own = self.peers.extents.without(named);
        let lacks_recent_only = self.peers.extents.before_lately(named, now) == sum;
        let may_want = self.ready
            && now >= self.peers.schedule.want_due
            // The other side of a split that heals is asked by one of this side.
            && !self.resync.holds(now);
        let Some(peer) = self.peers.get_mut(link) else { return };
        if sum.count == 0 {
            // It named everything: what was asked for has come.
            if let Some((wanted, _)) = peer.heard.wanted.take() {
                peer.heard.understood = Some(wanted);
            }
            return;
        }
        if own == sum {
            if peer.heard.understood != Some(sum) {
                peer.heard.understood = Some(sum);
                peer.has_seen_all_but(self.replica.seen(), named);
            }
            return;
        }
        if lacks_recent_only {
            return;
        }
        if peer.heard.understood == Some(sum) {
            // What it has besides is known, so either it lacks something, or this node does.
            let missing = peer.seen.difference(self.replica.seen());
            peer.suspect_of(missing, now);
            return;
        }
        let waits = |(_, at): &(SeenSum, Millis)| now.saturating_sub(*at) < WANT_AGAIN_MS;
        if may_want && !peer.heard.wanted.as_ref().is_some_and(waits) {
            peer.heard.wanted = Some((sum, now));
            self.peers.schedule.want_due = now + WANT_INTERVAL_MS;
            self.send(link, &PeerMessage::DigestWanted, out);
        }
    }

    /// A peer wants to know everything.
    pub(super) fn on_digest_wanted(&mut self, link: LinkId, now: Millis, out: &mut Outbox) {
        let is_ready = self.ready;
        let Some(peer) = self.peers.get_mut(link) else { return };
        if !is_ready || now < peer.heard.list_due {
            return;
        }
        peer.heard.list_due = now + LIST_INTERVAL_MS;
        let seen = export_seen(self.table(), self.seen());
        let told = Told { seen, unnamed: Unnamed::Sum(SeenSum::default()) };
        self.send_told(link, &told, out);
    }
}

impl super::peers::Peer {
    /// It has what is missing here. Probably that is only on its way; if it is still missing
    /// later, it is a hole.
    fn suspect_of(&mut self, missing: Seen, now: Millis) {
        if self.suspect.is_none() && !missing.is_empty() {
            self.suspect = Some((now, missing));
        }
    }

    /// Its sum shows that it has seen exactly what this node has, of all that it did not name.
    fn has_seen_all_but(&mut self, own: &Seen, named: &BTreeSet<NodeIndex>) {
        for (node, ticks) in own.iter().filter(|(node, _)| !named.contains(node)) {
            self.seen.union_node(node, ticks);
        }
    }
}

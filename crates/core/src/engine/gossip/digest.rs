//! Digests: what a node tells its peers of what it has accounted for (docs/replication-rules.md,
//! "Optimizations").
//!
//! A full digest names the incarnations that matter: those that are linked or members, those with
//! holes, and those of which something was accounted for recently; as many as fit, each with all
//! its ticks or not at all. All others, most of which are retired, are covered by one sum
//! ([`crate::model::seen_sum`]). A node with another sum asks for the whole list, once per sum:
//! then it knows what it lacks, or that it lacks nothing. An answer never causes a question, so two
//! nodes that both lack something ask each other once. If the whole list is too long, the asking
//! node catches up instead, which delivers the list in parts.
//!
//! In a network of more than a dozen nodes, members are not named merely because they exist; the
//! sum covers them, too. A list of all members to each peer every few seconds would be most of the
//! traffic. Changes that came here recently, and have not reached the peer yet, must then not look
//! like a difference: a peer that does not name an incarnation has had nothing of it for a minute,
//! so its sum is compared with what this node had before.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::repair::ask::HOLE_AFTER_MS;
use crate::engine::{CloseReason, Engine, LinkId, Outbox, Output};
use crate::model::defects::Defect;
use crate::model::ids::{Millis, NodeId, NodeIndex, Tock};
use crate::model::invariant::OrBroken;
use crate::model::seen::{Seen, SeenById, export_seen, export_some};
use crate::model::seen_list::split_list;
use crate::model::seen_sum::{Extent, SeenSum, Share, share_key};
use crate::model::tick_set::TickSet;
use crate::protocol::peer::{ContentsTold, Digest, PeerMessage, Unnamed};
use crate::replica::Replica;

/// A digest of what changed goes out this often while something changes.
const CHANGES_INTERVAL_MS: Millis = 200;
/// The same in larger networks, for as many links, or incarnations, as there are times of this.
const CHANGES_FEW: usize = 12;
/// But so often in any case.
const CHANGES_INTERVAL_MAX_MS: Millis = 1_000;
/// In larger networks, members are not named merely because they exist.
const MEMBERS_NAMED_MAX: usize = 12;
/// A full digest goes out this often, also when nothing changes.
const FULL_INTERVAL_MS: Millis = 5_000;
/// How long an incarnation is named after something of it was accounted for: a difference in what
/// peers learned at different times should be found by name, without a request for the whole list.
const RECENT_MS: Millis = 60_000;
/// Most incarnations that are named only because something of them was accounted for lately. A
/// node that has just caught up with all of a long history leaves them to the sum.
const RECENT_NAMED_MAX: usize = 1_024;
/// Incarnations that are looked at with each tick although no change was noted.
const LOOK_AROUND: usize = 1_024;
/// A node wants a whole list at most this often, from whomever.
const WANT_INTERVAL_MS: Millis = 1_000;
/// The same from one peer: a list may take a while to come.
const WANT_AGAIN_MS: Millis = 5_000;
/// A whole list is sent to one peer at most this often. With 65,536 incarnations it has 3 MB.
const LIST_INTERVAL_MS: Millis = 2_000;

/// What a node tells: incarnations by name, and the number of the others.
#[derive(Default)]
pub(in crate::engine) struct Told {
    seen: SeenById,
    unnamed: Unnamed,
    contents: Option<ContentsTold>,
}

/// What look-ups in [`Extents::known`] rely on.
const KNOWN: &str = "the incarnations of the node table are among the known ones";

/// What the own sum is made of.
#[derive(Default)]
pub(in crate::engine) struct Extents {
    /// By index, as they were when last looked at. Invariant: `sum` is over the shares of those
    /// without holes.
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
    /// Where looking around continues.
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
    /// How many ticks were seen: a set with as many is the same set, because it only grows.
    count: u64,
    shape: Shape,
}

/// What an incarnation adds to a sum.
enum Shape {
    /// It has no holes.
    Whole(Share),
    /// It has holes. Its share takes a while to compute, and is not needed while digests name it:
    /// the share at the time when it had this many ticks.
    Holed(Option<(u64, Share)>),
}

impl Known {
    /// What it last added, as far as that is known.
    fn share(&self) -> Share {
        match self.shape {
            Shape::Whole(share) | Shape::Holed(Some((_, share))) => share,
            Shape::Holed(None) => Share::default(),
        }
    }

    /// What it adds now.
    fn share_now(&mut self, ticks: Option<&TickSet>, replica: &Replica) -> Share {
        let count = ticks.map_or(0, TickSet::count);
        match &mut self.shape {
            Shape::Whole(share) => *share,
            Shape::Holed(Some((at, share))) if *at == count => *share,
            Shape::Holed(cached) => cached.insert((count, share_of(self.key, ticks, replica))).1,
        }
    }
}

fn share_of(key: u64, ticks: Option<&TickSet>, replica: &Replica) -> Share {
    if replica.has(Defect::SumsWithoutTicks) && ticks.is_some() {
        return Share::of(key, TickSet::range(1, 2).as_ref());
    }
    Share::of(key, ticks)
}

impl Extents {
    /// Something of this incarnation may have been accounted for. A hint: what is not noted is
    /// found by looking around.
    pub(in crate::engine) fn note(&mut self, node: NodeIndex) {
        // Nearly always the same as before.
        if self.noted_last != Some(node) {
            self.noted_last = Some(node);
            self.noted.insert(node);
        }
    }

    /// Brings the sum up to date. Costs as much as was noted.
    fn refresh(&mut self, replica: &Replica, now: Millis) {
        for (node, id) in replica.table().iter().skip(self.known.len()) {
            let shape = Shape::Whole(Share::default());
            self.known.push(Known { key: share_key(id), count: 0, shape });
            self.noted.insert(node);
        }
        self.noted_last = None;
        for node in std::mem::take(&mut self.noted) {
            self.look_at(node, replica, now);
        }
    }

    /// Looks at some incarnations that were not noted, in turn.
    fn look_around(&mut self, replica: &Replica, now: Millis) {
        self.refresh(replica, now);
        for at in self.cursor..(self.cursor + LOOK_AROUND).min(self.known.len()) {
            self.look_at(NodeIndex(at as u32), replica, now);
        }
        self.cursor += LOOK_AROUND;
        if self.cursor >= self.known.len() {
            self.cursor = 0;
        }
        self.recent.retain(|_, recent| now.saturating_sub(recent.at) < RECENT_MS);
    }

    fn look_at(&mut self, node: NodeIndex, replica: &Replica, now: Millis) {
        let known = self.known.get_mut(node.as_usize()).or_broken(KNOWN);
        let ticks = replica.seen().get(node);
        let count = ticks.map_or(0, TickSet::count);
        if count == known.count {
            return;
        }
        known.count = count;
        let before = known.share();
        if let Shape::Whole(share) = known.shape {
            self.sum.remove(share);
        }
        if Extent::of(ticks) == Extent::Holed {
            known.shape = Shape::Holed(None);
            self.holed.insert(node);
        } else {
            let share = share_of(known.key, ticks, replica);
            known.shape = Shape::Whole(share);
            self.sum.add(share);
            self.holed.remove(&node);
        }
        self.changed.insert(node);
        self.recent.entry(node).or_insert(Recent { at: now, before }).at = now;
    }

    /// [`Replica::seen_fingerprint`], as far as was looked at: what costs nearly nothing.
    pub(in crate::engine) fn fingerprint(&mut self, replica: &Replica) -> u64 {
        if replica.has(Defect::SumsWithoutTicks) {
            return replica.seen_fingerprint();
        }
        self.without(&BTreeSet::new(), replica).hash
    }

    /// The sum over all but these.
    fn without(&mut self, named: &BTreeSet<NodeIndex>, replica: &Replica) -> SeenSum {
        let mut sum = self.sum;
        for node in named {
            let known = self.known.get(node.as_usize()).or_broken(KNOWN);
            if let Shape::Whole(share) = known.shape {
                sum.remove(share);
            }
        }
        for node in self.holed.iter().filter(|node| !named.contains(node)) {
            let known = self.known.get_mut(node.as_usize()).or_broken(KNOWN);
            sum.add(known.share_now(replica.seen().get(*node), replica));
        }
        sum
    }

    /// As `now_sum`, for a peer that has received none of the recent changes: it would have named
    /// those incarnations. Changes older than half of the time for which incarnations are named are
    /// taken as settled.
    fn before_lately(&self, now_sum: SeenSum, named: &BTreeSet<NodeIndex>, now: Millis) -> SeenSum {
        let mut sum = now_sum;
        for (node, recent) in &self.recent {
            if !named.contains(node) && now.saturating_sub(recent.at) < RECENT_MS / 2 {
                let known = self.known.get(node.as_usize()).or_broken(KNOWN);
                sum.remove(known.share());
                sum.add(recent.before);
            }
        }
        sum
    }
}

/// What a peer's digests have said of the incarnations that they do not name.
#[derive(Default)]
pub(in crate::engine) struct Heard {
    /// Named so far in a digest of which parts follow.
    named: BTreeSet<NodeIndex>,
    /// Everything that this sum of the peer covers is in what it is known to have seen.
    understood: Option<SeenSum>,
    /// The whole list was asked for because of this sum, then.
    wanted: Option<(SeenSum, Millis)>,
    /// Its whole list is too long: from this time on, a catch-up is needed to learn what this sum
    /// covers.
    list_due: Millis,
    /// Its whole list is too long: a catch-up, begun after this, must deliver what this sum covers.
    too_long: Option<(SeenSum, Millis)>,
}

impl Heard {
    /// Whether only a catch-up can tell what it has.
    pub(in crate::engine) fn wants_catch_up(&self, now: Millis) -> bool {
        self.too_long.is_some_and(|(_, from)| now >= from)
    }

    /// All that it had when it was asked is known now.
    pub(in crate::engine) fn has_caught_up(&mut self) {
        if let Some((sum, _)) = self.too_long.take() {
            self.understood = Some(sum);
        }
    }
}

/// When which digest is due, for all peers.
#[derive(Default)]
pub(in crate::engine) struct Schedule {
    /// When the last digest went out.
    told_at: Millis,
    full_due: Millis,
    /// No whole list is asked for before this time.
    want_due: Millis,
    /// The latest time that was heard of.
    pub(in crate::engine) now: Millis,
}

impl Engine {
    /// What is accounted for here, for others. Nothing while this node is not ready: no node
    /// fetches from it, its state is incomplete, and it makes no changes.
    pub(in crate::engine) fn told_seen(&mut self) -> Told {
        if !self.ready {
            return Told::default();
        }
        self.peers.extents.refresh(&self.replica, self.peers.schedule.now);
        let mut matter = self.matter_always();
        let recent = &self.peers.extents.recent;
        if recent.len() <= RECENT_NAMED_MAX {
            matter.extend(recent.keys());
        }
        let named = self.fitting(matter);
        let unnamed = Unnamed::Sum(self.peers.extents.without(&named, &self.replica));
        let contents = self.contents_told();
        Told { seen: export_some(self.table(), self.seen(), named), unnamed, contents }
    }

    /// As many of these as a digest may name, each with all its ticks; the first ones matter most.
    fn fitting(&self, nodes: Vec<NodeIndex>) -> BTreeSet<NodeIndex> {
        let mut room = self.config.lists.digest;
        let mut named = BTreeSet::new();
        for node in nodes {
            let items = 1 + self.seen().get(node).map_or(0, TickSet::range_count);
            if items <= room && named.insert(node) {
                room -= items;
            }
        }
        named
    }

    /// Incarnations that may go on, or that have holes.
    fn matter_always(&self) -> Vec<NodeIndex> {
        let table = self.replica.table();
        let find = |id: &NodeId| table.find(id.name.as_str(), id.incarnation);
        let mut nodes = vec![self.own()];
        if self.link_count().max(self.members.len()) <= MEMBERS_NAMED_MAX {
            let linked = self.peers.iter().map(|(_, peer)| &peer.id);
            nodes.extend(linked.chain(&self.members).filter_map(find));
        }
        nodes.extend(&self.peers.extents.holed);
        nodes
    }

    /// What was accounted for since the last digest. The next full digest has the rest, if it does
    /// not fit.
    fn told_changes(&mut self) -> Told {
        let mut changed = std::mem::take(&mut self.peers.extents.changed);
        if changed.len() > RECENT_NAMED_MAX {
            let matter: BTreeSet<NodeIndex> = self.matter_always().into_iter().collect();
            changed.retain(|node| matter.contains(node));
        }
        let named = self.fitting(changed.into_iter().collect());
        let seen = export_some(self.table(), self.seen(), named);
        Told { seen, unnamed: Unnamed::Unsaid, contents: None }
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

    /// How long after the last digest the next one of changes is due. Its cost grows with links and
    /// incarnations, and the loss of a frame, which it is for, is rare.
    fn changes_interval(&self) -> Millis {
        let links = if self.spread.is_tree() { 0 } else { self.link_count() };
        let times = links.max(self.peers.extents.changed.len()).div_ceil(CHANGES_FEW).max(1);
        (CHANGES_INTERVAL_MS * times as Millis).min(CHANGES_INTERVAL_MAX_MS)
    }

    /// Sends a full digest to one peer.
    pub(in crate::engine) fn send_digest(&mut self, link: LinkId, out: &mut Outbox) {
        let told = self.told_seen();
        self.send_told(link, &told, out);
    }

    fn send_told(&self, link: LinkId, told: &Told, out: &mut Outbox) {
        for message in self.digests(told) {
            self.send(link, &message, out);
        }
    }

    pub(in crate::engine) fn broadcast_digest(&mut self, told: &Told, out: &mut Outbox) {
        for message in self.digests(told) {
            self.broadcast(&message, out);
        }
    }

    fn digests(&self, told: &Told) -> Vec<PeerMessage<'static>> {
        let digest = |seen: SeenById, unnamed, contents| {
            PeerMessage::Digest(Digest {
                ready: self.ready,
                tock: self.replica.tock(),
                mark: self.replica.mark().clone(),
                seen,
                unnamed,
                contents,
            })
        };
        let mut parts = split_list(&told.seen, self.config.lists.digest_message);
        let last = parts.pop().or_broken("a list that is split has a part");
        let unnamed = match told.unnamed {
            Unnamed::Sum(_) => Unnamed::Follows,
            unnamed => unnamed,
        };
        let firsts = parts.into_iter().map(|part| digest(part, unnamed, None));
        firsts.chain([digest(last, told.unnamed, told.contents)]).collect()
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
        if let Some(told) = digest.contents {
            self.peers.extents.refresh(&self.replica, now);
            self.on_contents_told(link, &digest.mark, told, now, out);
        }
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
            self.peers.note_shared(acked);
            out.push(Output::AckProgress);
        }
    }

    /// What a digest says of the rest.
    fn on_unnamed(&mut self, link: LinkId, digest: &Digest, now: Millis, out: &mut Outbox) {
        match digest.unnamed {
            Unnamed::Unsaid => return,
            Unnamed::TooLong => return self.on_too_long(link, now),
            Unnamed::Follows | Unnamed::Sum(_) => {}
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
        let extents = &mut self.peers.extents;
        extents.refresh(&self.replica, now);
        let own = extents.without(named, &self.replica);
        let lacks_recent_only = extents.before_lately(own, named, now) == sum;
        let may_want = self.ready
            && now >= self.peers.schedule.want_due
            // The other side of a split that heals is asked by one of this side.
            && !self.resync.holds(now);
        let Some(peer) = self.peers.get_mut(link) else { return };
        if sum.count == 0 {
            // It named everything: the requested list has arrived.
            if let Some((wanted, _)) = peer.heard.wanted.take() {
                peer.heard.understood = Some(wanted);
            }
            return;
        }
        if own == sum {
            peer.heard.too_long = None;
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
        let is_asked = peer.heard.too_long.is_some();
        if may_want && !is_asked && !peer.heard.wanted.as_ref().is_some_and(waits) {
            peer.heard.wanted = Some((sum, now));
            self.peers.schedule.want_due = now + WANT_INTERVAL_MS;
            self.counters.digest_differences += 1;
            self.send(link, &PeerMessage::DigestWanted, out);
        }
    }

    /// The whole list that was asked for is too long: catching up tells it in parts.
    fn on_too_long(&mut self, link: LinkId, now: Millis) {
        let Some(peer) = self.peers.get_mut(link) else { return };
        if let Some((sum, _)) = peer.heard.wanted.take() {
            // What this node lacks may be on its way.
            peer.heard.too_long = Some((sum, now + HOLE_AFTER_MS));
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
        let told = if self.config.lists.list.fits(self.seen()) {
            let seen = export_seen(self.table(), self.seen());
            Told { seen, unnamed: Unnamed::Sum(SeenSum::default()), contents: None }
        } else {
            Told { seen: SeenById::new(), unnamed: Unnamed::TooLong, contents: None }
        };
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

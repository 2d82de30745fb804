//! How changes and messages reach nodes that have no link to their maker (docs/replication.md, "More
//! than 48 nodes"): over a tree of *eager* links, which digests repair. The idea is Plumtree's.
//!
//! - Each link is eager or lazy, for both sides. A change that is new here goes on to all eager
//!   links but the one that it came over, with the mark that its maker gave it (replication rules
//!   2, 5: it is the maker's push, only later). A change that is accounted for already goes
//!   nowhere.
//! - A link that brings a second copy closes a circle: it becomes lazy. After one change from
//!   anywhere the eager links are a tree.
//! - Lazy links have digests of what changed. A hole that one of them shows is repaired by the
//!   ordinary catch-up, and makes that link eager.
//! - A node that loses an eager link makes its lazy ones eager, so that the next change finds its
//!   way round at once, and makes the tree anew.
//!
//! A node that does not pass on changes (it is of an earlier version, or still takes the network
//! for small) is linked with all; its links are not part of the tree.
//!
//! A fresh link is eager. Whether a link is wanted at all is decided in [`crate::engine::overlay`]; it
//! stays as long as one side wants it. Messages to all (elections, a resync's progress) go over all
//! links in an envelope with a number ([`Relayed`]), because they must arrive even if no change
//! would show that the tree is broken. Announcements of purges, member lists and removed names are
//! passed on by every node that learns something from them, and need no envelope.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::peers::{Peer, Taken};
use crate::engine::overlay::{Mesh, neighbours};
use crate::engine::{CloseReason, Engine, EngineWriteError, LinkId, Outbox, Output, encode};
use crate::model::defects::Defect;
use crate::model::entry::Entry;
use crate::model::group::{GROUP_MEMBERS_MAX, GroupConfig};
use crate::model::ids::{Event, Millis, NodeId, NodeIndex, NodeName, Tick};
use crate::protocol::frame::{BODY_BYTES_MAX, split_frame};
use crate::protocol::peer::{ChangeMessage, Edge, PeerMessage, Relayed, encode_change};
use crate::replica::write::Write;

/// How long a link that neither side wants stays before it is closed: views of the membership
/// differ for a moment, and changes on their way should arrive.
const LINGER_MS: Millis = 5_000;
/// The latest pushes are remembered, so that a second copy is told from a change that a catch-up
/// brought: 4 s at 1,000 changes per second, far longer than a copy takes.
const LIVE_MAX: usize = 4_096;
/// How often a peer that keeps pushing over a lazy link is told that it is one.
const PRUNE_AGAIN_MS: Millis = 1_000;
/// A node makes a lazy link eager because of a hole at most this often: one is enough, and on a machine
/// that is overloaded everything comes late.
const GRAFT_INTERVAL_MS: Millis = 2_000;
/// The wanted links are computed anew at most this often: a thousand members may come in a second.
const LOOK_INTERVAL_MS: Millis = 200;
/// Most origins whose relayed messages are told apart; the one that was silent for longest goes.
const ORIGINS_MAX: usize = 1_024;
/// How far behind the latest of its origin a message may come.
const WINDOW: u64 = 64;

/// What both sides of a link think of it.
pub(in crate::engine) struct LinkEdge {
    /// Changes are pushed over it.
    eager: bool,
    /// The peer knows of edges.
    speaks: bool,
    /// It passes on changes that are pushed to it. If not, it is linked with all nodes, and so
    /// pushes its changes itself and gets those of others from their makers.
    relays: bool,
    peer_wants: bool,
    told: Option<Edge>,
    pruned_at: Millis,
    unneeded_since: Option<Millis>,
}

impl Default for LinkEdge {
    fn default() -> Self {
        Self {
            eager: true,
            speaks: false,
            relays: false,
            peer_wants: true,
            told: None,
            pruned_at: 0,
            unneeded_since: None,
        }
    }
}

/// This node's part in passing on.
#[derive(Default)]
pub(in crate::engine) struct Spread {
    mesh: Mesh,
    /// The nodes to be linked with; none: with all.
    wanted: Option<Arc<BTreeSet<NodeName>>>,
    /// The wanted links must be computed anew.
    pub(in crate::engine) stale: bool,
    look_due: Millis,
    graft_due: Millis,
    /// A change came that will not be pushed to any peer: the next digest of changes is for all
    /// links.
    pub(in crate::engine) tell_all: bool,
    live: Live,
    /// The last number of an own message that is passed on.
    number: u64,
    origins: Origins,
}

impl Spread {
    /// Whether this node passes on changes that are pushed to it.
    pub(in crate::engine) fn is_tree(&self) -> bool {
        self.mesh == Mesh::Tree
    }
}

/// The last events that came as pushes, and over which link first; none for the own ones.
#[derive(Default)]
struct Live {
    from: BTreeMap<(NodeIndex, Tick), Option<LinkId>>,
    order: VecDeque<(NodeIndex, Tick)>,
}

impl Live {
    fn note(&mut self, event: Event, from: Option<LinkId>) {
        let event = (event.node, event.tick);
        if self.from.insert(event, from).is_some() {
            return;
        }
        self.order.push_back(event);
        if self.order.len() > LIVE_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.from.remove(&oldest);
        }
    }
}

/// What was passed on already, per life of a node.
#[derive(Default)]
struct Origins(BTreeMap<NodeId, Window>);

struct Window {
    highest: u64,
    /// Bit n: `highest` - n has come.
    bits: u64,
    heard: Millis,
}

impl Origins {
    /// Whether this message comes for the first time; it counts as having come from here on.
    fn is_news(&mut self, origin: &NodeId, number: u64, now: Millis) -> bool {
        let Some(window) = self.0.get_mut(origin) else {
            if self.0.len() >= ORIGINS_MAX {
                let oldest = self.0.iter().min_by_key(|(_, w)| w.heard).map(|(id, _)| id.clone());
                if let Some(id) = oldest {
                    self.0.remove(&id);
                }
            }
            self.0.insert(origin.clone(), Window { highest: number, bits: 1, heard: now });
            return true;
        };
        window.heard = now;
        if number > window.highest {
            let ahead = number - window.highest;
            window.bits = if ahead < WINDOW { window.bits << ahead } else { 0 } | 1;
            window.highest = number;
            return true;
        }
        let behind = window.highest - number;
        let bit = if behind < WINDOW { 1 << behind } else { return false };
        let is_news = window.bits & bit == 0;
        window.bits |= bit;
        is_news
    }
}

/// How a node takes part in spreading, for operators and measurements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpreadView {
    /// With whom it wants links.
    pub mesh: Mesh,
    /// Links over which changes are pushed.
    pub eager: usize,
    /// The others.
    pub lazy: usize,
}

impl Engine {
    /// The nodes to be linked with; none: with all.
    #[must_use]
    pub fn wanted_links(&self) -> Option<&Arc<BTreeSet<NodeName>>> {
        self.spread.wanted.as_ref()
    }

    /// How this node takes part in spreading.
    #[must_use]
    pub fn spread_view(&self) -> SpreadView {
        let eager = self.peers.iter().filter(|(_, peer)| peer.edge.eager).count();
        SpreadView { mesh: self.spread.mesh, eager, lazy: self.link_count() - eager }
    }

    /// The most copies of a change that can be waited for; none in a full mesh, because missing
    /// nodes may come. Only neighbours acknowledge.
    #[must_use]
    pub fn copies_max(&self) -> Option<usize> {
        self.spread.is_tree().then(|| self.link_count())
    }

    /// Whether this many peers can confirm a write; to be asked before it is made.
    ///
    /// # Errors
    /// [`EngineWriteError::TooManyCopies`], unless the write was made already.
    pub(crate) fn check_copies(
        &self,
        write: &Write<'_>,
        copies: usize,
    ) -> Result<(), EngineWriteError> {
        match self.copies_max().filter(|max| copies > *max) {
            Some(max) if self.replica.find_made(write)?.is_none() => {
                Err(EngineWriteError::TooManyCopies { wanted: copies, max })
            }
            _ => Ok(()),
        }
    }

    fn wants(&self, name: &NodeName) -> bool {
        self.spread.wanted.as_ref().is_none_or(|wanted| wanted.contains(name))
    }

    /// Whether a node of that name is up although it has no link, which it need not have.
    pub(in crate::engine) fn is_there_unlinked(&self, name: &NodeName) -> bool {
        self.spread.is_tree() && self.is_member(name)
    }

    pub(in crate::engine) fn is_member(&self, name: &NodeName) -> bool {
        self.members.iter().any(|member| member.name == *name)
    }

    pub(super) fn on_spread_tick(&mut self, now: Millis, out: &mut Outbox) {
        if self.spread.stale && now >= self.spread.look_due {
            self.spread.stale = false;
            self.spread.look_due = now + LOOK_INTERVAL_MS;
            self.work_out_wanted();
        }
        let (mut lost, mut close) = (false, Vec::new());
        let is_tree = self.spread.is_tree();
        let busy = self.catch_up_progress().map(|progress| progress.link);
        let wanted = self.spread.wanted.clone();
        for (link, peer) in self.peers.iter_mut() {
            let wants = wanted.as_ref().is_none_or(|wanted| wanted.contains(&peer.id.name));
            if wants || !peer.edge.speaks || peer.edge.peer_wants || !self.ready {
                peer.edge.unneeded_since = None;
                continue;
            }
            let since = *peer.edge.unneeded_since.get_or_insert(now);
            lost |= std::mem::take(&mut peer.edge.eager);
            let is_busy = peer.serving.is_some() || busy == Some(link);
            if now.saturating_sub(since) >= LINGER_MS && !is_busy {
                close.push(link);
            }
        }
        if lost || (is_tree && self.peers.iter().all(|(_, peer)| !peer.edge.eager)) {
            self.graft_all();
        }
        let links: Vec<LinkId> = self.peers.iter().map(|(link, _)| link).collect();
        for link in links {
            let speaks = self.peers.get(link).is_some_and(|peer| peer.edge.speaks);
            if is_tree || speaks {
                self.tell_edge(link, false, out);
            }
        }
        let closed = |link| Output::Close { link, reason: CloseReason::Unneeded };
        close.into_iter().for_each(|link| out.push(closed(link)));
    }

    fn work_out_wanted(&mut self) {
        let own = &self.config.id.name;
        let others: BTreeSet<&NodeName> =
            self.members.iter().map(|id| &id.name).filter(|name| *name != own).collect();
        let mesh = self.spread.mesh.next(others.len() + 1, self.config.full_mesh_max);
        let wanted = (mesh == Mesh::Tree).then(|| {
            let mut wanted = neighbours(own, others.iter().copied());
            wanted.extend(self.group_links());
            if self.config.defects.has(Defect::OverlayLosesWay) {
                let half = |name: &NodeName| name.as_str().bytes().map(u32::from).sum::<u32>() % 2;
                wanted.retain(|name| half(name) == half(own));
            }
            Arc::new(wanted)
        });
        if mesh == Mesh::Full && self.spread.mesh == Mesh::Tree {
            // From now on makers reach all nodes themselves.
            self.graft_all();
        }
        self.spread.mesh = mesh;
        self.spread.wanted = wanted;
    }

    /// Rounds of replication rule 7 are not relayed: members of the Delete group are linked with
    /// each other, and with nodes that are to become members.
    fn group_links(&self) -> Vec<NodeName> {
        let me = self.as_member();
        let concerns_me = |config: &&GroupConfig| {
            let is_full = config.members().len() >= GROUP_MEMBERS_MAX;
            config.members().contains(&me) || (me.durable && !is_full)
        };
        let config = self.group().filter(concerns_me);
        let members = config.iter().flat_map(|config| config.members());
        members.map(|member| member.name.clone()).filter(|name| *name != me.name).collect()
    }

    /// A new link: its peer should know at once what this node thinks of it.
    pub(super) fn greet_edge(&mut self, link: LinkId, out: &mut Outbox) {
        if self.spread.is_tree() {
            self.tell_edge(link, false, out);
        }
    }

    /// Tells a peer what this node thinks of the link, if that is new or must be repeated.
    fn tell_edge(&mut self, link: LinkId, again: bool, out: &mut Outbox) {
        let Some(peer) = self.peers.get(link) else { return };
        // A node without data keeps any link that it has.
        let wanted = !self.ready || self.wants(&peer.id.name);
        let edge = Edge { wanted, eager: peer.edge.eager, relays: self.spread.is_tree() };
        if !again && peer.edge.told == Some(edge) {
            return;
        }
        self.send(link, &PeerMessage::Edge(edge), out);
        if let Some(peer) = self.peers.get_mut(link) {
            peer.edge.told = Some(edge);
        }
    }

    pub(super) fn on_edge(&mut self, link: LinkId, edge: Edge, out: &mut Outbox) {
        let Some(peer) = self.peers.get_mut(link) else { return };
        peer.edge.speaks = true;
        peer.edge.relays = edge.relays;
        peer.edge.peer_wants = edge.wanted;
        peer.edge.eager = edge.eager;
        if let Some(told) = &mut peer.edge.told {
            // It need not hear its own message.
            told.eager = edge.eager;
        }
        self.tell_edge(link, false, out);
    }

    /// Changes are pushed over this link from now on, by both sides.
    pub(in crate::engine) fn graft(&mut self, link: LinkId, now: Millis, out: &mut Outbox) {
        let is_due = now >= self.spread.graft_due;
        let Some(peer) = self.peers.get_mut(link) else { return };
        if !self.spread.is_tree() || !peer.edge.relays || !is_due {
            return;
        }
        self.spread.graft_due = now + GRAFT_INTERVAL_MS;
        peer.edge.eager = true;
        self.counters.grafts += 1;
        // Also if it was eager in this node's eyes: both sides may have thought otherwise.
        self.tell_edge(link, true, out);
    }

    /// The way round what was lost is not known; the next change finds it. The peers are told with
    /// the next tick.
    fn graft_all(&mut self) {
        for (_, peer) in self.peers.iter_mut() {
            if !peer.edge.eager && peer.edge.unneeded_since.is_none() {
                peer.edge.eager = true;
                self.counters.grafts += 1;
            }
        }
    }

    /// This link brought what another had brought before.
    fn prune(&mut self, link: LinkId, now: Millis, out: &mut Outbox) {
        let Some(peer) = self.peers.get_mut(link) else { return };
        let edge = &mut peer.edge;
        let again = !edge.eager && now.saturating_sub(edge.pruned_at) >= PRUNE_AGAIN_MS;
        if !edge.relays || (!edge.eager && !again) {
            return;
        }
        edge.eager = false;
        edge.pruned_at = now;
        self.counters.prunes += 1;
        self.tell_edge(link, again, out);
    }

    /// A link is gone.
    pub(super) fn on_spread_link_down(&mut self, peer: &Peer, out: &mut Outbox) {
        if self.spread.is_tree() && peer.edge.eager && peer.edge.relays {
            self.graft_all();
            let links: Vec<LinkId> = self.peers.iter().map(|(link, _)| link).collect();
            links.into_iter().for_each(|link| self.tell_edge(link, false, out));
        }
    }

    /// A change of this node goes to all over whose links changes are pushed.
    pub(in crate::engine) fn push_own(&mut self, event: Event, frame: Arc<[u8]>, out: &mut Outbox) {
        if self.spread.is_tree() {
            self.spread.live.note(event, None);
        }
        // A node that does not pass on changes learns only of what makers push.
        let is_tree = self.spread.is_tree();
        let is_pushed = |peer: &Peer| !is_tree || peer.edge.eager || !peer.edge.relays;
        if self.peers.iter().all(|(_, peer)| is_pushed(peer)) {
            out.push(Output::Broadcast { frame });
        } else {
            self.multicast(is_pushed, frame, out);
        }
    }

    fn multicast(&self, wanted: impl Fn(&Peer) -> bool, frame: Arc<[u8]>, out: &mut Outbox) {
        let chosen = self.peers.iter().filter(|(_, peer)| wanted(peer));
        let links: Vec<LinkId> = chosen.map(|(link, _)| link).collect();
        if !links.is_empty() {
            out.push(Output::Multicast { links, frame });
        }
    }

    /// A change was taken in that had been pushed over a link. None: it had been before that.
    pub(in crate::engine) fn pass_on(
        &mut self,
        link: LinkId,
        change: &ChangeMessage<'_>,
        entry: &Entry,
        taken: Option<Taken>,
        now: Millis,
        out: &mut Outbox,
    ) {
        if self.peers.get(link).is_none_or(|peer| !peer.edge.relays) {
            // It pushes to all nodes itself. That link is not part of the tree.
            return;
        }
        let event = entry.newest();
        let Some(taken) = taken else {
            let Some(first) = self.spread.live.from.get(&(event.node, event.tick)).copied() else {
                return;
            };
            self.counters.duplicates += u64::from(first != Some(link));
            // A circle is closed only if the other half of it stands still.
            let stands = |first| self.peers.get(first).is_some_and(|peer| peer.edge.eager);
            if first != Some(link) && first.is_none_or(stands) {
                self.prune(link, now, out);
            }
            return;
        };
        if taken.refused {
            return;
        }
        if let Some(peer) = self.peers.get_mut(link)
            && peer.edge.unneeded_since.is_none()
            && now.saturating_sub(peer.edge.pruned_at) >= PRUNE_AGAIN_MS
        {
            // The peer takes a link for eager that this node took for lazy: two said something at
            // the same time. It is needed, so the peer is right.
            peer.edge.eager = true;
            peer.edge.told.iter_mut().for_each(|told| told.eager = true);
        }
        self.spread.live.note(event, Some(link));
        let maker = self.table().id(event.node);
        let chosen = self.peers.iter().filter(|(to, peer)| {
            *to != link && peer.edge.eager && peer.edge.relays && *maker != peer.id
        });
        let links: Vec<LinkId> = chosen.map(|(to, _)| to).collect();
        if links.is_empty() {
            return;
        }
        let path = &change.record.path;
        let mut frame = Vec::with_capacity(path.as_bytes().len() + entry.memory_bytes() + 64);
        encode_change(&change.mark, change.ack_wanted, path, entry, self.table(), &mut frame);
        self.counters.relayed += 1;
        out.push(Output::Multicast { links, frame: frame.into() });
    }

    /// Sends something to all nodes, linked or not. `wide`: over all links; else over the tree.
    pub(in crate::engine) fn flood(
        &mut self,
        message: &PeerMessage<'_>,
        wide: bool,
        out: &mut Outbox,
    ) {
        if !self.spread.is_tree() {
            return self.broadcast(message, out);
        }
        self.spread.number += 1;
        let frame = encode(message, self.table());
        let (origin, number) = (self.config.id.clone(), self.spread.number);
        let relayed = Relayed { origin, number, wide, frame: &frame };
        let envelope = encode(&PeerMessage::Relayed(relayed), self.table());
        self.multicast(|p| p.edge.speaks && (wide || p.edge.eager), envelope, out);
        self.multicast(|p| !p.edge.speaks, frame, out);
    }

    /// Something that is passed on came in.
    pub(super) fn on_relayed(
        &mut self,
        link: LinkId,
        relayed: Relayed<'_>,
        now: Millis,
        out: &mut Outbox,
    ) {
        let is_own = relayed.origin == self.config.id;
        if is_own || !self.spread.origins.is_news(&relayed.origin, relayed.number, now) {
            if !relayed.wide && self.spread.is_tree() {
                self.prune(link, now, out);
            }
            return;
        }
        let frame = split_frame(relayed.frame, BODY_BYTES_MAX).ok().flatten();
        let Some(Ok(Some(message))) = frame.map(|frame| PeerMessage::decode(&frame)) else {
            return;
        };
        match message {
            PeerMessage::Ping(ping) => self.on_ping(&ping, now, out),
            PeerMessage::Resync(status) => {
                self.on_resync_status(relayed.origin.name.clone(), status, now, out);
            }
            PeerMessage::Topic { topic, data } => {
                out.push(Output::Topic { topic, data: data.into() });
            }
            // Nothing else is sent to all.
            _ => return,
        }
        let wide = relayed.wide;
        let envelope = encode(&PeerMessage::Relayed(relayed), self.table());
        let chosen = self
            .peers
            .iter()
            .filter(|(to, peer)| *to != link && peer.edge.speaks && (wide || peer.edge.eager));
        let links: Vec<LinkId> = chosen.map(|(to, _)| to).collect();
        if !links.is_empty() {
            out.push(Output::Multicast { links, frame: envelope });
        }
    }

    /// The links that digests of what changed are for; none: all. Over an eager link comes what
    /// changed itself.
    pub(super) fn digest_links(&mut self) -> Option<Vec<LinkId>> {
        if !self.spread.is_tree() || std::mem::take(&mut self.spread.tell_all) {
            return None;
        }
        let lazy = self.peers.iter().filter(|(_, p)| !p.edge.eager || !p.edge.relays);
        Some(lazy.map(|(link, _)| link).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::Incarnation;

    fn id(at: u64) -> NodeId {
        NodeId { name: NodeName::new(&format!("n{at}")).unwrap(), incarnation: Incarnation(at) }
    }

    #[test]
    fn each_message_is_news_once_also_out_of_order() {
        let mut origins = Origins::default();
        let mut news = |number| origins.is_news(&id(1), number, 0);
        assert!(news(5) && news(7) && news(6));
        assert!(!news(5) && !news(6) && !news(7));
        assert!(news(100) && !news(7), "too far behind to tell");
        assert!(news(99) && !news(99) && news(37) && !news(36));
        assert!(news(100 + WINDOW) && !news(100));
    }

    #[test]
    fn memories_are_bounded() {
        let mut origins = Origins::default();
        for at in 0..=ORIGINS_MAX as u64 {
            assert!(origins.is_news(&id(at), 1, at));
        }
        assert_eq!(origins.0.len(), ORIGINS_MAX);
        assert!(!origins.0.contains_key(&id(0)));
        let mut live = Live::default();
        let event = |tick| Event { node: NodeIndex(0), tick: Tick::new(tick).unwrap() };
        (1..=LIVE_MAX as u64 + 9).for_each(|tick| {
            live.note(event(tick), None);
            live.note(event(tick), Some(LinkId(1)));
        });
        assert_eq!((live.from.len(), live.order.len()), (LIVE_MAX, LIVE_MAX));
    }
}

//! One node's whole state behind two doors: `&self` methods read, [`Engine::handle`] and
//! [`Engine::write_batch`] change. Pure and deterministic: time, randomness and messages come in,
//! and what is to be done comes out as data ([`Outbox`]). The same engine runs in a real node
//! and in tests with a virtual clock.
//!
//! The caller's duties:
//! 1. Keep the engine behind one reader-writer lock; drain the outbox under the exclusive
//!    guard into bounded queues, in order, without ever blocking.
//! 2. Call [`Engine::handle`] with [`Input::Tick`] every [`TICK_INTERVAL_MS`].
//! 3. Pass a time that never goes back.
//! 4. Keep frames on one link in order.
//! 5. Walk snapshots ([`Engine::tree`], cloned) only outside of the lock.

pub mod changes;
mod clients;
pub mod delete;
pub mod far_clock;
mod gossip;
mod io;
mod repair;
mod state_transfer;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use batch::{BatchDone, BatchTerms, NodeNames, Operation, Outcome, WriteOp};
pub use changes::Change;
pub use clients::closed::Closed;
use clients::lead::ClockLead;
pub use clients::write::{EngineWriteError, MemoryExcess};
pub use clients::{batch, conflicts, view};
use conflicts::Conflicts;
pub use delete::Decided;
use delete::{DeleteGroup, DeleteSettings};
use gossip::peers::Peers;
use gossip::spread::Spread;
pub use gossip::spread::SpreadView;
pub use gossip::{lists, overlay};
pub use io::{CatchUpFailure, CloseReason, Input, LinkId, Outbox, Output, Report};
use lists::ListCaps;
pub use repair::answer::ServeJob;
pub use repair::ask::CatchUpProgress;
use repair::ask::Repair;
use repair::election::Elections;
use repair::resync::Resync;
pub use repair::resync::ResyncView;
pub use state_transfer::image::{Image, Knowledge};
pub use state_transfer::{exchange, load, take_in};

use crate::model::chain::ChainBound;
use crate::model::defects::Defects;
use crate::model::entry::Entry;
use crate::model::ids::{
    Event, Incarnation, Millis, NodeId, NodeIndex, NodeName, NodeTable, Tick, Tock,
};
use crate::model::invariant::OrBroken;
use crate::model::path::Path;
use crate::model::seen::{Mark, Seen};
use crate::protocol::peer::PeerMessage;
pub use crate::replica::Policies;
use crate::replica::watch::{WatchId, WatchScope, Watchers, Watches};
use crate::replica::{Committed, Replica};
use crate::tree::Tree;
use crate::tree::shard_sums::ShardSums;

/// A time for changes that do not depend on time: the latest one that the engine was told counts.
pub const NO_LATER: Millis = 0;

/// How often the engine wants to know that time has passed.
pub const TICK_INTERVAL_MS: Millis = 50;

/// Most nodes that clients have removed from their views. A retired life that owns no entries is
/// hidden automatically; this is for those that are still in chains. A newcomer is told all of
/// them.
pub const KILLED_MAX: usize = 1_024;
/// What an engine is made with.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node's name and incarnation: a new one at each start (replication rule 9).
    pub id: NodeId,
    /// From a random source: makes hashes hard to guess.
    pub hash_seed: u64,
    /// Client writes are refused; changes from peers are taken.
    pub read_only: bool,
    /// Clients are served although the data says that they must log in.
    pub ignore_auth: bool,
    /// Bytes of entries from which on client writes that need more memory are refused; deletions,
    /// and changes that do not make their entry bigger, are taken. None for no limit. Changes from
    /// peers are always taken: refusing them would be divergence.
    pub memory_max: Option<usize>,
    /// How the Delete group works.
    pub delete: DeleteSettings,
    /// In a network of more nodes not all are linked with all; the same on every node.
    pub full_mesh_max: usize,
    /// How long lists to peers are; only tests and the simulator want them shorter.
    pub lists: ListCaps,
    /// Where chains are cut; only the simulator wants them shorter.
    pub chain_bound: ChainBound,
    /// None, but in tests and simulations.
    pub defects: Defects,
}

impl Config {
    /// A node that takes writes without limits.
    #[must_use]
    pub fn new(id: NodeId, hash_seed: u64) -> Self {
        Self {
            id,
            hash_seed,
            read_only: false,
            ignore_auth: false,
            memory_max: None,
            delete: DeleteSettings::default(),
            full_mesh_max: overlay::FULL_MESH_MAX,
            lists: ListCaps::default(),
            chain_bound: ChainBound::default(),
            defects: Defects::default(),
        }
    }
}

/// One node's state; see the module's documentation for the caller's duties.
pub struct Engine {
    config: Config,
    replica: Replica,
    watches: Watches,
    peers: Peers,
    repair: Repair,
    resync: Resync,
    elections: Elections,
    delete: DeleteGroup,
    spread: Spread,
    /// Invariant: false until the node founded its network or finished a catch-up, then true
    /// for good.
    ready: bool,
    /// How many changes were known when it became so.
    changes_at_ready: u64,
    /// Names that clients removed from their views. Shared with the code that encodes for clients.
    killed: Arc<BTreeSet<NodeName>>,
    /// Members as SWIM sees them, without this node.
    members: BTreeSet<NodeId>,
    counters: EngineCounters,
    conflicts: Conflicts,
    clock_lead: ClockLead,
    asked_for_incarnation: bool,
    /// See [`Engine::bar_array_paths`].
    array_paths_barred: bool,
    /// See [`Output::Knowledge`].
    knowledge_changed: bool,
    /// Room in which frames of changes are put together.
    frame: Vec<u8>,
}

/// Counts since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EngineCounters {
    /// Events that this node made.
    pub writes: u64,
    /// Versions taken in from peers that changed the tree.
    pub applied: u64,
    /// Conflicts found.
    pub conflicts: u64,
    /// Catch-ups finished, as the asking side.
    pub catch_ups: u64,
    /// Catch-ups answered.
    pub catch_ups_served: u64,
    /// Splits that healed: meetings of two sides.
    pub resyncs: u64,
    /// Purges applied.
    pub purges: u64,
    /// Tombstones that were dropped by purges.
    pub purged: u64,
    /// Entries that were dropped because they had been purged elsewhere (replication rule 4a).
    pub dropped: u64,
    /// Entries that were changed here while cut off and re-issued (replication rules 4b, 8).
    pub reissued: u64,
    /// Changes of others that were passed on.
    pub relayed: u64,
    /// Changes that came a second time, over another link.
    pub duplicates: u64,
    /// Links over which changes are not pushed any more, because of that.
    pub prunes: u64,
    /// Links over which they are again.
    pub grafts: u64,
    /// Times that a peer was found to hold something else although it has accounted for the same
    /// (replication rule 10).
    pub contents_differed: u64,
    /// Entries that were repaired here because of that.
    pub contents_mended: u64,
    /// Entries that came in answers to catch-ups.
    pub catch_up_entries: u64,
    /// Times that a peer was asked for its whole list of what it has seen, because its digest did not say what
    /// it has besides.
    pub digest_differences: u64,
}

impl EngineCounters {
    /// Changes of data that came to be known here: made here, or taken in from peers. It never decreases. What nodes account
    /// for among themselves, such as a lineage's events, is not among them.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.writes + self.applied
    }
}

impl Engine {
    /// An empty node that is not ready yet: it waits for [`Input::Found`] or for a peer to
    /// catch up from.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            replica: Replica::new(&config.id, config.hash_seed)
                .on_trial(config.chain_bound, config.defects),
            watches: Watches::new(config.hash_seed),
            peers: Peers::default(),
            repair: Repair::default(),
            resync: Resync::default(),
            elections: Elections::new(&config.id.name, config.hash_seed, config.delete.cycle_ms),
            delete: DeleteGroup::new(config.delete.clone()),
            spread: Spread::default(),
            ready: false,
            changes_at_ready: 0,
            killed: Arc::default(),
            members: BTreeSet::new(),
            counters: EngineCounters::default(),
            conflicts: Conflicts::default(),
            clock_lead: ClockLead::default(),
            asked_for_incarnation: false,
            array_paths_barred: false,
            knowledge_changed: false,
            config,
            frame: Vec::new(),
        }
    }

    /// The entry at a path in canonical bytes; tombstones included.
    #[must_use]
    pub fn get(&self, path: &[u8]) -> Option<&Entry> {
        self.replica.tree().get(path)
    }

    /// The tree; a clone is an O(1) snapshot.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        self.replica.tree()
    }

    /// The known incarnations, which entries' events refer to.
    #[must_use]
    pub fn table(&self) -> &Arc<NodeTable> {
        self.replica.table()
    }

    /// The ticks that are accounted for.
    #[must_use]
    pub fn seen(&self) -> &Seen {
        self.replica.seen()
    }

    /// How far purges were applied.
    #[must_use]
    pub fn mark(&self) -> &Mark {
        self.replica.mark()
    }

    /// This node's name and incarnation; it changes when the node must renew itself.
    #[must_use]
    pub fn id(&self) -> &NodeId {
        &self.config.id
    }

    /// The own incarnation's index.
    #[must_use]
    pub fn own(&self) -> NodeIndex {
        self.replica.own()
    }

    /// The last tick that this node used; none while it is not ready.
    #[must_use]
    pub fn tick(&self) -> Option<Tick> {
        self.ready.then(|| self.replica.tick())
    }

    /// The network's counter as far as this node knows it.
    #[must_use]
    pub fn tock(&self) -> Tock {
        self.replica.tock()
    }

    /// Whether the node serves clients.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// How many changes ([`EngineCounters::changes`]) were known when the node began to serve clients; none: it does not yet.
    #[must_use]
    pub fn changes_at_ready(&self) -> Option<u64> {
        self.ready.then_some(self.changes_at_ready)
    }

    /// Whether client writes are refused by configuration.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.config.read_only
    }

    /// What was planted in this node; nothing, but in tests and simulations.
    #[must_use]
    pub fn defects(&self) -> Defects {
        self.config.defects
    }

    /// Counts since the start.
    #[must_use]
    pub fn counters(&self) -> EngineCounters {
        self.counters
    }

    /// How many changes ([`EngineCounters::changes`]) were known here when something last came over that link. What
    /// came to be known since, the peer may lack.
    #[must_use]
    pub fn last_word(&self, link: LinkId) -> Option<u64> {
        self.peers.get(link).map(|peer| peer.changes_then)
    }

    /// That of each peer.
    pub fn last_words(&self) -> impl Iterator<Item = (&NodeName, u64)> {
        self.peers.iter().map(|(_, peer)| (&peer.id.name, peer.changes_then))
    }

    /// Members as SWIM sees them, without this node.
    pub fn members(&self) -> impl Iterator<Item = &NodeId> {
        self.members.iter()
    }

    /// Names that clients removed from their views.
    #[must_use]
    pub(crate) fn killed(&self) -> &Arc<BTreeSet<NodeName>> {
        &self.killed
    }

    /// How many watches there are.
    #[must_use]
    pub fn watch_count(&self) -> usize {
        self.watches.len()
    }

    /// How many peers have acknowledged this node's change with that tick.
    #[must_use]
    pub fn copies(&self, tick: Tick) -> usize {
        self.peers.iter().filter(|(_, p)| p.acked >= tick).count()
    }

    /// Checks what must hold between two inputs, for tests and the simulator. Walks everything.
    #[cfg(any(test, feature = "planted-defects"))]
    pub fn check(&self) {
        self.replica.check();
    }

    /// How many linked peers are known to hold a change: of this node's own those that have
    /// acknowledged it, of another's those that have accounted for it, and its maker.
    #[must_use]
    pub fn copies_of(&self, event: Event) -> usize {
        if event.node == self.own() {
            return self.copies(event.tick);
        }
        let maker = self.table().id(event.node);
        self.peers.iter().filter(|(_, p)| p.seen.contains(event) || p.id == *maker).count()
    }

    /// How many changes of entries this node has made since its start that no other node has acknowledged, as
    /// far as it knows. Those of an identity that it has given up are not counted.
    #[must_use]
    pub fn unshared_changes(&self) -> u64 {
        let unshared = self.peers.unshared(self.replica.tick());
        unshared.or_broken("no peer has acknowledged more than was made")
    }

    /// How many peers are linked.
    #[must_use]
    pub fn link_count(&self) -> usize {
        self.peers.iter().count()
    }

    /// Whether a linked peer serves clients: there is a network to catch up with.
    #[must_use]
    pub fn has_ready_peer(&self) -> bool {
        self.peers.iter().any(|(_, p)| p.ready)
    }

    /// Sums over the entries of each virtual shard, for comparing nodes; none before they were
    /// first requested.
    #[must_use]
    pub fn shard_sums(&self) -> Option<&ShardSums> {
        self.replica.shard_sums()
    }

    /// Mints a fresh tock, for replies that must carry one.
    pub(super) fn mint_tock(&mut self) -> Tock {
        self.replica.mint_tock()
    }

    /// Sends a client's message to whoever monitors its topic, here and at the peers. Best
    /// effort: it is kept nowhere.
    pub(super) fn send_topic(&mut self, topic: &Path, data: &[u8], out: &mut Outbox) {
        if !self.peers.is_empty() {
            self.flood(&PeerMessage::Topic { topic: topic.clone(), data }, false, out);
        }
        out.push(Output::Topic { topic: topic.clone(), data: data.into() });
    }

    /// Adds a watch; the caller takes its snapshot of [`Engine::tree`] under the same guard,
    /// so that nothing older follows something newer. `None` when there are too many.
    pub(super) fn watch(&mut self, scope: WatchScope) -> Option<WatchId> {
        self.watches.add(scope)
    }

    /// Ends a watch; tells whether it was there.
    pub(super) fn unwatch(&mut self, id: WatchId) -> bool {
        self.watches.remove(id)
    }

    /// The watches that ask for a path.
    #[must_use]
    pub fn watchers_of(&self, path: &Path) -> Watchers {
        self.watches.of(path)
    }

    /// Removes a node from the views of clients, here and at the peers, until it is heard of again.
    /// The caller has checked that it is gone and owns no entries (see [`view`]). Returns whether
    /// there was room on the list.
    #[must_use]
    pub(super) fn kill_node(&mut self, name: &NodeName, out: &mut Outbox) -> bool {
        let hidden = self.hide(name.clone());
        if hidden {
            self.broadcast(&PeerMessage::KillNode(name.clone()), out);
        }
        hidden
    }

    /// A peer's client removed a node, perhaps long ago. A node that is linked here exists.
    fn on_kill_node(&mut self, name: NodeName, out: &mut Outbox) {
        let is_linked = name == self.config.id.name || self.is_linked(&name);
        if is_linked || self.is_there_unlinked(&name) {
            return;
        }
        let is_news = !self.killed.contains(&name);
        if self.hide(name.clone()) && is_news && self.spread.is_tree() {
            self.broadcast(&PeerMessage::KillNode(name), out);
        }
    }

    /// Tells a peer which nodes clients have removed: it may have joined since, or been away.
    fn tell_killed(&self, link: LinkId, out: &mut Outbox) {
        for name in self.killed.iter() {
            self.send(link, &PeerMessage::KillNode(name.clone()), out);
        }
    }

    /// Whether a node of that name is linked.
    #[must_use]
    pub fn is_linked(&self, name: &NodeName) -> bool {
        self.peers.iter().any(|(_, peer)| peer.id.name == *name)
    }

    /// Says farewell to all peers.
    pub(super) fn leave(&mut self, out: &mut Outbox) {
        self.broadcast(&PeerMessage::Leave, out);
    }

    /// Something happened outside.
    fn on_input(&mut self, input: Input<'_>, now: Millis, out: &mut Outbox) {
        match input {
            Input::Found => self.become_ready(out),
            Input::LinkUp { link, peer } => self.on_link_up(link, peer, out),
            Input::LinkDown { link } => self.on_link_down(link, now, out),
            Input::Messages { link, messages } => {
                self.on_messages(link, messages, now, out);
                self.note_word(link);
            }
            Input::Passing { link, bytes } => self.on_repair_passing(link, bytes, now),
            Input::Lagged { link } => {
                self.greet_elections(link, out);
                self.greet_group(link, out);
                self.send_digest(link, out);
            }
            Input::Persisted { token } => self.on_persisted(token, now, out),
            Input::MemberUp { member } => {
                self.revive(&member.name);
                self.members.insert(member);
                self.spread.stale = true;
            }
            Input::MemberDown { member } => {
                self.members.remove(&member);
                self.spread.stale = true;
                self.on_name_gone(&member.name);
            }
            Input::Renewed { incarnation } => self.on_renewed(incarnation, out),
            Input::Tick => self.on_tick(now, out),
        }
    }

    /// Clients do not see a node any more, if there is room on the list.
    fn hide(&mut self, name: NodeName) -> bool {
        let is_full = self.killed.len() >= KILLED_MAX && !self.killed.contains(&name);
        if !is_full {
            Arc::make_mut(&mut self.killed).insert(name);
        }
        !is_full
    }

    /// Clients see a node again that they had removed: it is heard of.
    fn revive(&mut self, name: &NodeName) {
        if self.killed.contains(name) {
            Arc::make_mut(&mut self.killed).remove(name);
        }
    }

    /// The node founds its network, or has caught up: it serves clients from now on.
    fn become_ready(&mut self, out: &mut Outbox) {
        if !self.ready {
            self.ready = true;
            self.changes_at_ready = self.counters.changes();
            out.push(Output::Ready);
            // The others should know at once that this one can be asked now.
            let seen = self.told_seen();
            self.broadcast_digest(&seen, out);
        }
    }

    fn on_renewed(&mut self, incarnation: Incarnation, out: &mut Outbox) {
        let id = NodeId { name: self.config.id.name.clone(), incarnation };
        self.asked_for_incarnation = false;
        if self.replica.renew(&id) {
            self.config.id = id;
            self.peers.on_renewed();
            self.delete.on_renewed(incarnation, self.config.defects);
            self.note_knowledge();
            out.push(Output::Report(Report::Renewed { incarnation }));
        }
    }

    /// Notifies watchers (and later the log) of a change.
    fn publish(&mut self, change: Committed, out: &mut Outbox) {
        if !self.killed.is_empty() {
            // It owns something now.
            let maker = self.table().id(change.entry.newest().node).name.clone();
            self.revive(&maker);
        }
        let watchers = self.watches.of(&change.path);
        if !watchers.is_empty() {
            out.push(Output::Notify { watchers, change: change.clone() });
        }
        out.push(Output::Commit(change));
    }

    fn broadcast(&self, message: &PeerMessage<'_>, out: &mut Outbox) {
        if !self.peers.is_empty() {
            out.push(Output::Broadcast { frame: encode(message, self.replica.table()) });
        }
    }

    fn send(&self, link: LinkId, message: &PeerMessage<'_>, out: &mut Outbox) {
        out.push(Output::Send { link, frame: encode(message, self.replica.table()) });
    }
}

fn encode(message: &PeerMessage<'_>, table: &NodeTable) -> Arc<[u8]> {
    let mut frame = Vec::new();
    message.encode(table, &mut frame);
    frame.into()
}

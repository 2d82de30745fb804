//! The replicated state of one node and the rules that change it, pure. Each of the replication rules
//! (docs/replication-rules.md) is in one place:
//!
//! | rule | where |
//! |---|---|
//! | State, the invariant (I) | this file |
//! | 1 Write | [`mod@write`] |
//! | 2 Apply | [`decide`] chooses, [`apply`] carries out; [`deleted_here`] and [`tops`] remember |
//! | 3 Catch-up | [`catch_up`], the answer; [`across`], the asking side's step at the end |
//! | 4 Across a purge | [`crossing`] and [`across`]; the answer is in [`catch_up`] |
//! | 5 Purge | [`purge`] |
//! | 6 Re-issue | [`reissue`](rules::reissue) |
//! | 7 Who may purge | `engine::delete`; what a member checks is in [`purge`] |
//! | 8 Two lineages | [`reissue`](rules::reissue) (on its behalf), then [`across`] |
//! | 9 Coming back | [`come_back`] |
//! | 10 Contents | [`contents`] |

mod indexes;
mod policies;
mod rules;
#[cfg(test)]
mod tests;

pub(crate) use indexes::ring;
use indexes::{deleted_here, tops};
pub use indexes::{shards, watch, write_ids};
pub(crate) use rules::crossing;
pub use rules::{across, apply, catch_up, come_back, contents, decide, purge, write};

use std::sync::Arc;

use crate::model::chain::ChainBound;
use crate::model::defects::{Defect, Defects};
use crate::model::entry::Entry;
use crate::model::ids::{Event, Incarnation, NodeId, NodeIndex, NodeName, NodeTable, Tick, Tock};
use crate::model::invariant::{OrBroken, costly_invariant, invariant};
use crate::model::meta::{AUTH_PATH, Login, login};
use crate::model::path::Path;
use crate::model::seen::{Mark, Seen, SeenById};
use crate::model::seen_sum::{fingerprint, share_key};
use crate::tree::content_sums::ContentSums;
use crate::tree::{Spot, Tree};
use crossing::Changed;
use deleted_here::DeletedHere;
pub use policies::Policies;
use ring::Ring;
use shards::Upkeep;
use tops::Tops;
use write_ids::WriteIds;

/// What one node holds.
///
/// The invariant (I): if tick t of path p is in `seen`, then the tree holds at p a version at
/// least as great as t's, or holds nothing there and a tombstone at least as great was purged
/// at a mark that this node has reached.
pub struct Replica {
    /// Shared with the snapshots that outlive the guard; copied when a new incarnation becomes
    /// known while one is alive.
    table: Arc<NodeTable>,
    own: NodeIndex,
    tree: Tree,
    seen: Seen,
    mark: Mark,
    /// The last tick that this incarnation used. Invariant: never goes back; every tick up to
    /// it is in `seen`.
    tick: Tick,
    /// Invariant: at least every tock of an entry, and every component of `mark`.
    tock: Tock,
    ring: Ring,
    write_ids: WriteIds,
    deleted_here: DeletedHere,
    tops: Tops,
    changed: Changed,
    /// A tick of this incarnation above `tick` was met: another node uses this identity.
    usurped: bool,
    /// No event is made any more.
    is_stopped: bool,
    chain_bound: ChainBound,
    defects: Defects,
    /// Invariant: the sums over `tree`.
    contents: ContentSums,
    /// Invariant: what the entry at [`AUTH_PATH`] says.
    login: Option<Login>,
    policies: Policies,
    /// Not part of the state: it is computed from the tree on the first request.
    shards: Upkeep,
    /// Nor this: the entry that was overwritten last, for [`Entry::new_in`].
    room: Option<Entry>,
}

/// A version that was not in the tree before: to be logged, pushed, and sent to watchers.
#[derive(Clone, Debug)]
pub struct Committed {
    /// Where.
    pub path: Path,
    /// The version that is there now.
    pub entry: Entry,
}

impl Replica {
    /// An empty state. The hash seed comes from outside (see [`Tree::new`]).
    #[must_use]
    pub fn new(id: &NodeId, hash_seed: u64) -> Self {
        let mut table = NodeTable::new();
        let own = table.intern(id).or_broken("an empty node table has room");
        let tree = Tree::new(hash_seed);
        Self {
            table: Arc::new(table),
            own,
            write_ids: WriteIds::of(&tree),
            deleted_here: DeletedHere::of(&tree),
            tops: Tops::of(&tree),
            changed: Changed::default(),
            tree,
            seen: Seen::new(),
            mark: Mark::default(),
            tick: Tick::default(),
            tock: Tock::default(),
            ring: Ring::new(),
            usurped: false,
            is_stopped: false,
            chain_bound: ChainBound::default(),
            defects: Defects::default(),
            contents: ContentSums::default(),
            login: None,
            policies: Policies::default(),
            shards: Upkeep::default(),
            room: None,
        }
    }

    /// The same with what only simulations and tests set.
    #[must_use]
    pub(crate) fn on_trial(mut self, chain_bound: ChainBound, defects: Defects) -> Self {
        self.chain_bound = chain_bound;
        self.defects = defects;
        self
    }

    /// Whether a defect is planted.
    pub(crate) fn has(&self, defect: Defect) -> bool {
        self.defects.has(defect)
    }

    /// The known incarnations.
    #[must_use]
    pub(crate) fn table(&self) -> &Arc<NodeTable> {
        &self.table
    }

    /// This node's own incarnation.
    #[must_use]
    pub(crate) fn own(&self) -> NodeIndex {
        self.own
    }

    /// The tree; clone it for a snapshot.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// An entry that was overwritten and that is not used any more: the next one can be made in its
    /// memory.
    pub(crate) fn take_room(&mut self) -> Option<Entry> {
        self.room.take()
    }

    /// How clients must log in, as the tree says; none: they need not.
    #[must_use]
    pub(crate) fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }

    /// How often the data that says who may do what has changed.
    #[must_use]
    pub(crate) fn policies(&self) -> Policies {
        self.policies
    }

    /// The ticks that are accounted for.
    #[must_use]
    pub(crate) fn seen(&self) -> &Seen {
        &self.seen
    }

    /// How far purges were applied.
    #[must_use]
    pub(crate) fn mark(&self) -> &Mark {
        &self.mark
    }

    /// The last tick that this incarnation used; 0 before its first change.
    #[must_use]
    pub(crate) fn tick(&self) -> Tick {
        self.tick
    }

    /// The network's counter as far as this node knows it.
    #[must_use]
    pub(crate) fn tock(&self) -> Tock {
        self.tock
    }

    /// Mints a fresh tock, for replies that must carry one.
    pub(crate) fn mint_tock(&mut self) -> Tock {
        if let Some(next) = self.tock.next() {
            self.tock = next;
        }
        self.tock
    }

    /// Raises the own tock to one that was heard.
    pub(crate) fn hear_tock(&mut self, tock: Tock) {
        self.tock = self.tock.max(tock);
    }

    /// A sum over all that is accounted for: equal on any two nodes that have accounted for the
    /// same, whatever their indices. O(incarnations).
    #[must_use]
    pub(crate) fn seen_fingerprint(&self) -> u64 {
        let ids = self.seen.iter().map(|(node, ticks)| (self.table.id(node), ticks));
        ids.fold(0, |sum, (id, ticks)| sum.wrapping_add(fingerprint(share_key(id), ticks)))
    }

    /// Adds an incarnation to the table; `None` when the table is full.
    pub fn intern(&mut self, id: &NodeId) -> Option<NodeIndex> {
        if let Some(index) = self.table.find(id.name.as_str(), id.incarnation) {
            return Some(index);
        }
        Arc::make_mut(&mut self.table).intern(id)
    }

    /// As above, without a [`NodeId`]: no allocation for one that is known.
    pub(crate) fn intern_name(
        &mut self,
        name: &str,
        incarnation: Incarnation,
    ) -> Option<NodeIndex> {
        match self.table.find(name, incarnation) {
            Some(index) => Some(index),
            None => self.intern(&NodeId { name: NodeName::new(name).ok()?, incarnation }),
        }
    }

    /// Translates what a peer has seen into local indices; `None` when the table is full.
    pub(crate) fn intern_seen(&mut self, seen: &SeenById) -> Option<Seen> {
        let mut result = Seen::new();
        for (id, ticks) in seen {
            result.union_node(self.intern(id)?, ticks);
        }
        Some(result)
    }

    /// Whether this identity was met with a tick that it has not used: a cloned disk. A node
    /// that finds out must stop writing and renew (ARCHITECTURE.md, invariant 2).
    #[must_use]
    pub(crate) fn is_usurped(&self) -> bool {
        self.usurped
    }

    /// Continues under a new incarnation. The state stays; the old incarnation's ticks are an
    /// ordinary peer's from now on.
    pub(crate) fn renew(&mut self, id: &NodeId) -> bool {
        let Some(index) = self.intern(id) else { return false };
        if index == self.own || self.seen.get(index).is_some() {
            return false;
        }
        self.own = index;
        self.tick = Tick::default();
        self.usurped = false;
        true
    }

    /// From now on no event is made; for good.
    pub(crate) fn stop_making_events(&mut self) {
        self.is_stopped = true;
    }

    /// Notes that a peer mentioned an event. Only a tick of our own that we never used matters
    /// here. Hearing changes nothing else (replication rule 3: data before knowledge).
    pub(crate) fn check_own(&mut self, event: Event) {
        if event.node == self.own && event.tick > self.tick {
            self.usurped = true;
        }
    }

    /// As above, for a set of ticks.
    pub(crate) fn check_own_seen(&mut self, seen: &Seen) {
        if seen.get(self.own).is_some_and(|ticks| ticks.max() > self.tick.get()) {
            self.usurped = true;
        }
    }

    /// Puts a version into the tree and remembers it as recent.
    fn commit(&mut self, path: Path, entry: Entry) -> Committed {
        let spot = self.tree.find(path.as_bytes(), None);
        self.commit_at(&spot, path, entry).0
    }

    /// As above, at a path that was looked up since the last change; also returns what was there.
    fn commit_at(&mut self, spot: &Spot, path: Path, entry: Entry) -> (Committed, Option<Entry>) {
        invariant!(entry.tock() <= self.tock, "the own tock is at least that of every entry");
        costly_invariant!(
            !self.is_sound() || self.seen.contains(entry.newest()),
            "what is held is accounted for"
        );
        self.ring.push(entry.newest(), &path);
        self.changed.note(&path);
        let old = self.tree.put(spot, &path, entry.clone());
        costly_invariant!(
            !self.is_sound()
                || old.as_ref().is_none_or(|old| entry.compare(old, &self.table).is_ge()),
            "a version is replaced by a greater one, or by another content of it",
            "{old:?} by {entry:?} at {path}"
        );
        self.note_change(&path, old.as_ref(), Some(&entry));
        (Committed { path, entry }, old)
    }

    /// Takes an entry out of the tree.
    fn take_out(&mut self, path: &Path) -> Option<Entry> {
        let entry = self.tree.remove(path)?;
        self.note_change(path, Some(&entry), None);
        Some(entry)
    }

    /// Whether no defect is planted: those break invariants, for the simulator's oracle to find.
    fn is_sound(&self) -> bool {
        self.defects == Defects::default()
    }

    /// Checks what must hold between two inputs, for tests and the simulator. Walks everything.
    #[cfg(any(test, feature = "planted-defects"))]
    pub fn check(&self) {
        self.tree.check();
        let contents = ContentSums::of(&self.tree, &self.table);
        invariant!(contents.buckets() == self.contents.buckets(), "the sums are over the tree");
        invariant!(contents.total() == self.contents.total(), "the sums are over the tree");
        let login = login_of(self.tree.get(AUTH_PATH));
        invariant!(login == self.login, "the login is what the tree says");
        if !self.is_sound() {
            return;
        }
        invariant!(self.mark.top() <= self.tock, "the own tock is at least the mark");
        let own = self.seen.contiguous(self.own);
        invariant!(self.tick <= own, "all ticks that this life has used are accounted for");
        for (path, entry) in self.tree.all() {
            invariant!(entry.tock() <= self.tock, "the own tock is at least that of every entry");
            let is_seen = self.seen.contains(entry.newest());
            invariant!(is_seen, "what is held is accounted for", "{entry:?} at {path}");
        }
    }

    /// Keeps the sums up to date: there was `old` at a path, and is `new` now.
    fn note_change(&mut self, path: &Path, old: Option<&Entry>, new: Option<&Entry>) {
        if path.as_bytes() == AUTH_PATH {
            self.login = login_of(new);
        }
        self.policies.note_change(path.as_bytes());
        let hashes = self.contents.replace(&self.table, path, old, new);
        self.shards.note(path, old, new, hashes);
    }
}

/// How clients must log in, as the entry at [`AUTH_PATH`] says. A deleted one says nothing.
fn login_of(entry: Option<&Entry>) -> Option<Login> {
    entry.and_then(Entry::value).and_then(login)
}

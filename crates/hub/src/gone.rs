//! What left the tree without an event while some watch was lapsed (it overflowed and has not
//! started over yet). A watch that starts over sends what the snapshot has and its client has
//! not; that an entry is gone altogether the snapshot cannot show. So as long as a watch is
//! lapsed, and only then, what leaves the tree is logged here; bounded, and a watch whose part
//! of the log was given up is lost: its stream ends, and its client has to start again.
//!
//! What a watch lost when it overflowed is handed over as it is, bundles that it shares with other
//! watches. It is gone through when the watch starts over, by its own connection and without a lock
//! (`Resuming::walk`): thousands of watches can overflow in one moment, and each has lost thousands
//! of changes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::client_memory::{Charge, ClientMemory};
use super::inbox::{Dropped, PLACE_BYTES};
use crate::model::defects::{Defect, Defects};
use crate::model::invariant::OrBroken;
use crate::model::seen::Seen;
use crate::replica::Committed;
use crate::replica::watch::{WatchId, WatchScope, Watchers};
use crate::tree::Tree;

/// Most entries of the log, for all lapsed watches together.
pub const GONE_LOG_MAX: usize = 1 << 16;
/// Most bytes of the log, for all lapsed watches together. A path and a tombstone of a few
/// hundred bytes are usual.
pub(crate) const GONE_LOG_BYTES_MAX: usize = 16 << 20;
/// Of up to this many lapsed watches it is looked up whether their clients know of a purged
/// tombstone; with more, it is logged without looking: purging must not take long if many clients
/// hang.
const CHECKED_LAPSES_MAX: usize = 64;
/// What one incarnation costs in a copy of what the engine has seen: a reference, and its part of the
/// sets that the engine has changed since.
const SET_BYTES: usize = 16;

/// An entry that left the tree.
#[derive(Debug)]
pub(super) struct Gone {
    /// What clients receive: a tombstone.
    deletion: Committed,
    /// It was a value (replication rule 4a): no client had been told of a deletion before.
    was_value: bool,
}

/// Entries that left the tree together; shared with the walks that go over them.
pub(super) type Chunk = Arc<GoneTogether>;

/// See [`Chunk`]. Counted as what is kept for clients as long as somebody holds it.
pub(super) struct GoneTogether {
    entries: Vec<Gone>,
    bytes: usize,
    _charge: Charge,
}

/// What the engine had accounted for in the moment in which watches lapsed, which share it. Counted as
/// what is kept for clients as long as somebody holds it.
pub(super) struct SeenThen {
    seen: Seen,
    _charge: Charge,
}

impl SeenThen {
    pub(super) fn new(seen: Seen, memory: &Arc<ClientMemory>) -> Arc<Self> {
        let charge = memory.charge(seen_cost(&seen));
        Arc::new(Self { seen, _charge: charge })
    }
}

/// What becomes of a watch that overflowed.
struct Lapse {
    /// Its client has had this, but for what was dropped.
    then: Arc<SeenThen>,
    dropped: Dropped,
    /// The first chunk of the log that counts for it.
    from: u64,
    /// Of its places in `dropped`: the bundles count themselves.
    _charge: Charge,
}

/// See the module. Under the hub's lock, and cheap for the lock's other users: dropped memory is
/// handed out, to be freed elsewhere.
#[derive(Default)]
pub(super) struct GoneLog {
    chunks: VecDeque<Chunk>,
    /// The number of the chunk that comes next; chunks are numbered from 0 on.
    next: u64,
    /// Invariants: the sums over `chunks`, at most the bounds.
    entries: usize,
    bytes: usize,
    /// Those that can still start over. Invariant: while it is empty, so is `chunks`.
    lapses: BTreeMap<WatchId, Lapse>,
    /// How many of them need the log from each chunk on: tens of thousands may lapse together, and end one by one.
    /// Invariant: the counts over `lapses`, none of them 0.
    needed: BTreeMap<u64, usize>,
    /// Where all of this is counted.
    memory: Arc<ClientMemory>,
    defects: Defects,
}

/// Memory that should be freed where no task waits for it.
#[must_use]
#[derive(Default)]
pub(super) struct Freed {
    chunks: Vec<Chunk>,
    lapses: Vec<Lapse>,
}

impl Freed {
    pub(super) fn append(&mut self, mut other: Self) {
        self.chunks.append(&mut other.chunks);
        self.lapses.append(&mut other.lapses);
    }
}

fn cost(change: &Committed) -> usize {
    change.path.as_bytes().len() + change.entry.memory_bytes() + 64
}

/// About what a copy of what the engine has seen takes. Of the sets of ticks most are the engine's own.
fn seen_cost(seen: &Seen) -> usize {
    seen.iter().count() * SET_BYTES
}

impl GoneLog {
    /// An empty one, whose memory is counted there.
    pub(super) fn charged_to(memory: &Arc<ClientMemory>, defects: Defects) -> Self {
        Self { memory: Arc::clone(memory), defects, ..Self::default() }
    }

    /// A watch overflowed: `then` is what the engine had accounted for when all outputs of that
    /// moment were pushed, `dropped` what of it the client has not had. Tells how many bytes the
    /// watch keeps alive, those that it shares with others included.
    pub(super) fn begin(&mut self, id: WatchId, then: Arc<SeenThen>, dropped: Dropped) -> usize {
        let places = dropped.places() * PLACE_BYTES;
        let bytes = places + dropped.bytes();
        let charge = self.memory.charge(places);
        let lapse = Lapse { then, dropped, from: self.next, _charge: charge };
        *self.needed.entry(lapse.from).or_default() += 1;
        if let Some(before) = self.lapses.insert(id, lapse) {
            self.note_unneeded(&before);
        }
        bytes
    }

    fn remove(&mut self, id: WatchId) -> Option<Lapse> {
        let lapse = self.lapses.remove(&id)?;
        self.note_unneeded(&lapse);
        Some(lapse)
    }

    fn note_unneeded(&mut self, lapse: &Lapse) {
        let count = self.needed.get_mut(&lapse.from).or_broken("who needs a chunk is counted");
        *count -= 1;
        if *count == 0 {
            self.needed.remove(&lapse.from);
        }
    }

    /// The watch starts over from this tree; `None` if it cannot, because more left the tree
    /// meanwhile than is logged. The second part is to be freed elsewhere.
    pub(super) fn resume(&mut self, id: WatchId, tree: Tree) -> (Option<Resuming>, Freed) {
        let Some(lapse) = self.remove(id) else { return (None, Freed::default()) };
        let first = self.next - self.chunks.len() as u64;
        let skipped = lapse.from.checked_sub(first).or_broken("what a lapsed watch needs is kept");
        let skipped = usize::try_from(skipped).or_broken("so many chunks are in memory");
        let chunks: Vec<Chunk> = self.chunks.iter().skip(skipped).cloned().collect();
        let (memory, defects) = (Arc::clone(&self.memory), self.defects);
        (Some(Resuming { lapse, chunks, tree, memory, defects }), self.forget())
    }

    /// The watch has ended.
    pub(super) fn end(&mut self, id: WatchId) -> Freed {
        let Some(lapse) = self.remove(id) else { return Freed::default() };
        let mut freed = self.forget();
        freed.lapses.push(lapse);
        freed
    }

    /// Entries left the tree: tombstones (`purged`), and values, as the tombstones that stand for
    /// them (`dropped`). `watchers_of` tells which watches ask for a change, lapsed or not.
    pub(super) fn add(
        &mut self,
        purged: &[Committed],
        dropped: &[Committed],
        watchers_of: impl Fn(&Committed) -> Watchers,
    ) -> Freed {
        if self.lapses.is_empty() {
            return Freed::default();
        }
        // Entries that leave together mostly have the same watchers, who may be many.
        let mut last = (Watchers::default(), false);
        let mut is_wanted = |change: &Committed| {
            let watchers = watchers_of(change);
            if !last.0.is_same(&watchers) {
                let is_wanted = self.has_lapsed(&watchers);
                last = (watchers, is_wanted);
            }
            last.1
        };
        let purged = purged.iter().filter(|change| self.is_news(change)).map(|c| (c, false));
        let entries: Vec<Gone> = purged
            .chain(dropped.iter().map(|c| (c, true)))
            .filter(|(change, _)| is_wanted(change))
            .map(|(change, was_value)| Gone { deletion: change.clone(), was_value })
            .collect();
        if entries.is_empty() {
            return Freed::default();
        }
        let bytes = entries.iter().map(|gone| cost(&gone.deletion)).sum();
        self.entries += entries.len();
        self.bytes += bytes;
        let _charge = self.memory.charge(bytes);
        self.chunks.push_back(Arc::new(GoneTogether { entries, bytes, _charge }));
        self.next += 1;
        self.keep_bounds()
    }

    /// Whether one of these watches has lapsed.
    fn has_lapsed(&self, watchers: &Watchers) -> bool {
        if self.lapses.len() < watchers.len() {
            self.lapses.keys().any(|id| watchers.contains(*id))
        } else {
            watchers.iter().any(|id| self.lapses.contains_key(&id))
        }
    }

    /// Whether some client may not know of a deletion, nor find it among what was dropped from its
    /// queue: usually none, because purges come long after the deletions.
    fn is_news(&self, deletion: &Committed) -> bool {
        let newest = deletion.entry.newest();
        self.lapses.len() > CHECKED_LAPSES_MAX
            || self.lapses.values().any(|lapse| !lapse.then.seen.contains(newest))
    }

    /// Gives up the oldest chunks if there is too much, and the watches that needed them.
    fn keep_bounds(&mut self) -> Freed {
        let mut freed = Freed::default();
        while self.entries > GONE_LOG_MAX || self.bytes > GONE_LOG_BYTES_MAX {
            freed.chunks.push(self.pop().or_broken("what is counted is kept"));
        }
        let first = self.next - self.chunks.len() as u64;
        if self.needed.first_key_value().is_some_and(|(from, _)| *from < first) {
            let lost = self.lapses.iter().filter(|(_, lapse)| lapse.from < first);
            let lost: Vec<WatchId> = lost.map(|(id, _)| *id).collect();
            freed.lapses.extend(lost.iter().filter_map(|id| self.remove(*id)));
        }
        freed.append(self.forget());
        freed
    }

    /// Drops the chunks that no lapsed watch needs.
    fn forget(&mut self) -> Freed {
        let needed = self.needed.first_key_value().map_or(self.next, |(from, _)| *from);
        let mut freed = Freed::default();
        while self.next - (self.chunks.len() as u64) < needed
            && let Some(chunk) = self.pop()
        {
            freed.chunks.push(chunk);
        }
        freed
    }

    fn pop(&mut self) -> Option<Chunk> {
        let chunk = self.chunks.pop_front()?;
        self.entries -= chunk.entries.len();
        self.bytes -= chunk.bytes;
        Some(chunk)
    }
}

/// What a look at the log found.
#[derive(Debug)]
pub enum GoneLook {
    /// The client must be told of this deletion.
    Tell(Committed),
    /// It need not be told of this one.
    Skip,
    /// That was all.
    End,
}

/// What a watch that overflowed can do.
pub enum Resumption {
    /// Start over: send its client what the walk finds gone, and what the walk's snapshot has and
    /// the client does not; then continue.
    From(Box<GoneWalk>),
    /// Nothing: more left the tree meanwhile than could be kept for it. Its client must start
    /// the watch again.
    Lost,
}

/// A watch that starts over, and what is still to be gone through for it.
pub(super) struct Resuming {
    lapse: Lapse,
    chunks: Vec<Chunk>,
    tree: Tree,
    memory: Arc<ClientMemory>,
    defects: Defects,
}

impl Resuming {
    /// Goes through what was dropped from the watch's queue. Not under a lock: it may be much.
    pub(super) fn walk(self) -> GoneWalk {
        let Self { lapse: Lapse { then, dropped, .. }, mut chunks, tree, memory, defects } = self;
        let (mut lost, mut own, mut own_events) = (Seen::new(), Vec::new(), Seen::new());
        for change in dropped.changes() {
            lost.insert(change.entry.newest());
            // The snapshot shows the others.
            if change.entry.is_tombstone() && tree.get(change.path.as_bytes()).is_none() {
                own_events.insert(change.entry.newest());
                own.push(change.clone());
            }
        }
        let had = if defects.has(Defect::ResumeSkipsLost) {
            then.seen.clone()
        } else {
            then.seen.difference(&lost)
        };
        if defects.has(Defect::ResumeSkipsGone) {
            (own, chunks) = (Vec::new(), Vec::new());
        }
        let bytes = seen_cost(&had) + own.iter().map(cost).sum::<usize>();
        let _charge = memory.charge(bytes);
        GoneWalk { own: own.into_iter(), own_events, chunks, next: (0, 0), had, tree, _charge }
    }
}

/// Goes over what left the tree while a watch was lapsed, in order. Owns its part of the log and
/// the snapshot from which the watch starts over.
pub struct GoneWalk {
    /// Deletions that were dropped from its queue and that the snapshot shows no more.
    own: std::vec::IntoIter<Committed>,
    /// The events of all of these: the log may have them once more.
    own_events: Seen,
    chunks: Vec<Chunk>,
    /// The chunk, and the entry in it, that come next.
    next: (usize, usize),
    had: Seen,
    tree: Tree,
    _charge: Charge,
}

impl GoneWalk {
    /// What the watch's client has had or will not miss: it lacks the snapshot's entries whose
    /// newest event is not in here.
    #[must_use]
    pub fn had(&self) -> &Seen {
        &self.had
    }

    /// The snapshot.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Looks at the next entry.
    pub fn look(&mut self, scope: &WatchScope) -> GoneLook {
        // The watch's own ones were in its scope, and its client has not had them.
        if let Some(deletion) = self.own.next() {
            return GoneLook::Tell(deletion);
        }
        let (chunk, at) = self.next;
        let Some(together) = self.chunks.get(chunk) else { return GoneLook::End };
        let Some(gone) = together.entries.get(at) else {
            self.next = (chunk + 1, 0);
            return GoneLook::Skip;
        };
        self.next = (chunk, at + 1);
        // A value that was dropped has the event with which the client got to know it.
        let newest = gone.deletion.entry.newest();
        let is_known = !gone.was_value && self.had.contains(newest);
        if is_known || self.own_events.contains(newest) || !scope.wants(&gone.deletion.path) {
            return GoneLook::Skip;
        }
        let deletion = gone.deletion.clone();
        self.tell_if_gone(deletion)
    }

    /// If the snapshot has the entry again, that is enough.
    fn tell_if_gone(&self, deletion: Committed) -> GoneLook {
        match self.tree.get(deletion.path.as_bytes()) {
            Some(_) => GoneLook::Skip,
            None => GoneLook::Tell(deletion),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::chain::Chain;
    use crate::model::entry::{Entry, EntryParts};
    use crate::model::ids::{Event, NodeIndex, Tick, Tock};

    fn event(tick: u64) -> Event {
        Event { node: NodeIndex(0), tick: Tick::new(tick).unwrap() }
    }

    fn deletion(path: &str, tick: u64) -> Committed {
        let entry = Entry::new(&EntryParts {
            value: None,
            chain: &Chain::first(event(tick)),
            tock: Tock::new(tick).unwrap(),
            origin: None,
            time: None,
            extra: &[],
        });
        Committed { path: path.parse().unwrap(), entry }
    }

    fn seen(ticks: impl IntoIterator<Item = u64>) -> Seen {
        let mut seen = Seen::new();
        for tick in ticks {
            seen.insert(event(tick));
        }
        seen
    }

    /// What a watch of everything receives when it starts over from a tree.
    fn told(log: &mut GoneLog, id: u64, tree: &Tree) -> Option<Vec<String>> {
        let scope = WatchScope { top: "a".parse().unwrap(), depth_min: 0, depth_max: None };
        let mut walk = log.resume(WatchId(id), tree.clone()).0?.walk();
        let mut told = Vec::new();
        loop {
            match walk.look(&scope) {
                GoneLook::Tell(deletion) => told.push(deletion.path.to_string()),
                GoneLook::Skip => {}
                GoneLook::End => return Some(told),
            }
        }
    }

    /// A watch lapses when the engine has seen this, and what is dropped with it these changes.
    fn begin(log: &mut GoneLog, id: u64, seen: Seen, dropped: &[Committed]) -> usize {
        let then = SeenThen::new(seen, &log.memory);
        log.begin(WatchId(id), then, Dropped::of_changes(dropped, &log.memory))
    }

    fn everybody(_: &Committed) -> Watchers {
        (1..=3).map(WatchId).collect::<Vec<_>>().into()
    }

    #[test]
    fn nothing_is_logged_while_no_watch_is_lapsed() {
        let mut log = GoneLog::default();
        let _freed = log.add(&[deletion("a", 1)], &[deletion("b", 2)], everybody);
        assert_eq!((log.chunks.len(), log.entries, log.bytes), (0, 0, 0));
        begin(&mut log, 1, seen([]), &[]);
        assert_eq!(told(&mut log, 1, &Tree::new(1)), Some(vec![]), "it was before its time");
    }

    #[test]
    fn a_client_is_told_what_it_cannot_know_and_the_snapshot_cannot_show() {
        let mut log = GoneLog::default();
        let dropped = [deletion("a.own", 9), deletion("a.back", 8)];
        begin(&mut log, 1, seen([1, 2, 8, 9]), &dropped);
        let purged = [
            deletion("a.known", 1),
            deletion("a.own", 9),
            deletion("a.news", 3),
            deletion("b", 3),
            deletion("a.back", 4),
        ];
        let _freed = log.add(&purged, &[deletion("a.value", 2)], everybody);
        let mut tree = Tree::new(1);
        let back = deletion("a.back", 7);
        tree.insert(&back.path, back.entry);
        assert_eq!(
            told(&mut log, 1, &tree),
            Some(["a.own", "a.news", "a.value"].map(String::from).to_vec())
        );
    }

    #[test]
    fn each_watch_is_told_of_its_own_time_and_the_log_is_empty_when_all_are_through() {
        let mut log = GoneLog::default();
        begin(&mut log, 1, seen([]), &[]);
        let _freed = log.add(&[deletion("a.one", 1)], &[], everybody);
        begin(&mut log, 2, seen([]), &[]);
        let _freed = log.add(&[deletion("a.two", 2)], &[], everybody);
        begin(&mut log, 3, seen([]), &[]);
        let tree = Tree::new(1);
        assert_eq!(told(&mut log, 1, &tree), Some(vec!["a.one".into(), "a.two".into()]));
        assert_eq!(log.chunks.len(), 1, "the other watches do not need the first");
        assert_eq!(told(&mut log, 2, &tree), Some(vec!["a.two".into()]));
        assert_eq!((log.chunks.len(), log.entries, log.bytes), (0, 0, 0));
        let _freed = log.end(WatchId(3));
        assert!(log.lapses.is_empty());
    }

    #[test]
    fn what_is_kept_for_lapsed_watches_counts_until_the_last_of_them_is_through() {
        let memory = Arc::new(ClientMemory::default());
        let mut log = GoneLog::charged_to(&memory, Defects::default());
        let own = [deletion("a.own", 1)];
        let kept = begin(&mut log, 1, seen([1]), &own);
        assert_eq!(kept, PLACE_BYTES + cost(&own[0]));
        let bytes = SET_BYTES + kept;
        assert_eq!(memory.used(), bytes);
        begin(&mut log, 2, seen([]), &[]);
        let gone = [deletion("a.one", 2), deletion("a.two", 3)];
        let _freed = log.add(&gone, &[], everybody);
        let both = gone.iter().map(cost).sum::<usize>();
        assert_eq!(memory.used(), bytes + both, "once, however many watches wait for it");
        // One starts over: what it goes through is kept until it is through.
        let (resuming, freed) = log.resume(WatchId(1), Tree::new(1));
        assert!(freed.chunks.is_empty());
        drop(log.end(WatchId(2)));
        assert_eq!(memory.used(), bytes + both);
        let walk = resuming.map(Resuming::walk);
        assert_eq!(memory.used(), cost(&own[0]) + both, "only what is to be told");
        drop(walk);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn what_no_lapsed_watch_wants_is_not_logged() {
        let mut log = GoneLog::default();
        begin(&mut log, 1, seen([1]), &[]);
        let _freed = log.add(&[deletion("a", 2)], &[deletion("a", 3)], |_| vec![WatchId(2)].into());
        let _freed = log.add(&[deletion("a", 1)], &[], everybody);
        assert_eq!(log.entries, 0);
    }

    #[test]
    fn a_watch_whose_part_of_the_log_was_given_up_is_lost_and_later_ones_are_not() {
        let mut log = GoneLog::default();
        begin(&mut log, 1, seen([]), &[]);
        let many = |from: usize, count: usize| -> Vec<Committed> {
            (from..from + count).map(|n| deletion(&format!("a:{n}"), 1 + n as u64)).collect()
        };
        let _freed = log.add(&many(0, GONE_LOG_MAX), &[], everybody);
        begin(&mut log, 2, seen([]), &[]);
        assert!(log.lapses.contains_key(&WatchId(1)), "that much has room");
        let freed = log.add(&many(GONE_LOG_MAX, 1), &[], everybody);
        assert_eq!((freed.chunks.len(), freed.lapses.len(), log.entries), (1, 1, 1));
        let tree = Tree::new(1);
        assert_eq!(told(&mut log, 1, &tree), None);
        assert_eq!(told(&mut log, 2, &tree), Some(vec![format!("a:{GONE_LOG_MAX}")]));

        // By bytes, and all at once: no watch can be served, and nothing is kept.
        begin(&mut log, 3, seen([]), &[]);
        let long = format!("a.{}", "x".repeat(4000));
        let greedy: Vec<_> = (1..=5000).map(|tick| deletion(&long, tick)).collect();
        let _freed = log.add(&greedy, &[], everybody);
        assert_eq!((log.chunks.len(), log.entries, log.bytes), (0, 0, 0));
        assert_eq!(told(&mut log, 3, &tree), None);
    }
}

//! The checks after every step of a node: that no event id stands for two changes, that its
//! counters never go back, and the invariant (I) of docs/replication-rules.md, "State", in its
//! strong form.

use smallvec::SmallVec;

use super::history::{Content, EventKey, EventNo, NO_PATH, NONE, hash_value};
use super::shadow::Shadow;
use super::{Failure, Oracle, Purge};
use crate::bits::Bits;
use crate::engine::{Engine, Image};
use crate::engines::disk::Saved;
use crate::model::ids::{Event, NodeIndex, Tick};
use crate::model::path::Path;
use crate::model::seen::{Mark, Seen};
use crate::protocol::record::Record;
use crate::replica::Committed;
use crate::replica::apply::Conflict;

/// Up to this many paths, all are checked after every step.
const PATHS_ALWAYS: usize = 4;

type ChainKeys = SmallVec<[EventKey; 4]>;

/// A record in a message, as it came.
pub(crate) struct Arrival<'a> {
    event: (&'a str, u64, u64),
    path: Path,
    tock: u64,
    value: Option<u64>,
}

impl<'a> Arrival<'a> {
    pub(crate) fn new(record: &Record<'a>) -> Option<Self> {
        let newest = record.events.first()?;
        Some(Self {
            event: (newest.name, newest.incarnation.0, newest.tick.get()),
            path: record.path.clone(),
            tock: record.tock.get(),
            value: record.value.map(hash_value),
        })
    }
}

impl Oracle {
    /// Learns which lives the engine's indices stand for. To be called before any other question
    /// about what an engine did.
    pub(crate) fn sync_table(&mut self, shadow: &mut Shadow, engine: &Engine) {
        let table = engine.table();
        while shadow.lives.len() < table.len() {
            let Some(id) = table.get(NodeIndex(shadow.lives.len() as u32)) else { return };
            shadow.lives.push(self.history.life(id));
        }
    }

    /// Records that a node has just been given. They are what re-issued versions may be made of.
    pub(crate) fn on_arrivals(
        &mut self,
        shadow: &mut Shadow,
        engine: &Engine,
        arrivals: &[Arrival<'_>],
    ) {
        self.arriving.clear();
        if self.only_end {
            return;
        }
        for arrival in arrivals {
            let Some(key) = shadow.find(engine, arrival.event) else { continue };
            let Some(event) = self.history.find(key) else {
                let label = self.history.key_label(key);
                return self.fail("a record came that nobody made", label);
            };
            let made = self.history.get(event);
            let path = self.history.paths().get(made.path as usize);
            if (path, made.content.tock, made.content.value)
                != (Some(&arrival.path), arrival.tock, arrival.value)
            {
                let label = self.history.label(event);
                return self.fail("an event id stands for two changes", label);
            }
            self.arriving.push(event);
            if contains(engine.seen(), shadow, key) {
                shadow.owned.insert(event);
            }
        }
    }

    /// A node is about to be given a file.
    pub(crate) fn on_file(&mut self, saved: &Shadow, image: &Image) {
        if self.only_end {
            return;
        }
        let newest = image.replica.tree.all().map(|(_, entry)| saved.key(entry.newest()));
        self.arriving = newest.filter_map(|key| self.history.find(key)).collect();
    }

    /// What a node has accounted for of what it was given has been there.
    pub(crate) fn own_arrivals(&mut self, shadow: &mut Shadow, engine: &Engine) {
        for event in self.arriving.clone() {
            if contains(engine.seen(), shadow, self.history.get(event).key) {
                shadow.owned.insert(event);
            }
        }
    }

    /// No message is being handled any more.
    pub(crate) fn after_message(&mut self) {
        self.arriving.clear();
    }

    /// A version is in the tree of a node that was not there before. Gives back its event, in words.
    pub(crate) fn on_commit(
        &mut self,
        shadow: &mut Shadow,
        engine: &Engine,
        change: &Committed,
        wants_label: bool,
    ) -> String {
        if self.only_end {
            let key = self.history.key_label(shadow.key(change.entry.newest()));
            return format!("{key}@{} {}", change.entry.tock(), change.path);
        }
        let event = self.note_commit(shadow, engine, change);
        if wants_label { self.history.label(event) } else { String::new() }
    }

    fn note_commit(&mut self, shadow: &mut Shadow, engine: &Engine, change: &Committed) -> EventNo {
        let key = shadow.key(change.entry.newest());
        let content = shadow.content(&change.entry);
        let path = self.history.path(&change.path);
        let event = match self.history.find(key) {
            Some(event) => {
                let made = self.history.get(event);
                if made.path != path || made.content != content {
                    let detail = format!(
                        "{} is also {content:?} at {}",
                        self.history.label(event),
                        change.path
                    );
                    self.fail("an event id stands for two changes", detail);
                }
                event
            }
            None => self.on_made(shadow, engine, key, path, content),
        };
        if engine.tock() < change.entry.tock() {
            let detail = format!("{} above {}", self.history.label(event), engine.tock());
            self.fail("the own tock is below an entry's", detail);
        }
        shadow.set_held(path, event);
        shadow.owned.insert(event);
        self.dirty.push(path);
        event
    }

    /// A node has made an event.
    fn on_made(
        &mut self,
        shadow: &Shadow,
        engine: &Engine,
        key: EventKey,
        path: u32,
        content: Content,
    ) -> EventNo {
        let mut parents: SmallVec<[EventNo; 2]> = SmallVec::new();
        let here = [shadow.held(path)].into_iter().chain(self.arriving.iter().copied());
        for event in here.filter(|e| *e != NONE) {
            if self.history.get(event).path == path && !parents.contains(&event) {
                parents.push(event);
            }
        }
        self.reissues += u64::from(content.reissue_of.is_some());
        let chain_is_right = self.is_chain_right(&content, &parents);
        let event = self.history.add(key, path, content, parents);
        if shadow.life(engine.own()) != Some(key.0) {
            let label = self.history.label(event);
            self.fail("a node made an event of another one's", label);
        }
        if !chain_is_right {
            let label = self.history.label(event);
            self.fail("a new chain is not the old one with the new event", label);
        }
        let not_above = self.history.get(event).parents.iter();
        let not_above = not_above.copied().find(|p| !self.history.is_greater(event, *p));
        if let Some(parent) = not_above {
            let detail = format!("{} on {}", self.history.label(event), self.history.label(parent));
            self.fail("a new version is not above the one that it replaces", detail);
        }
        event
    }

    /// Replication rule 1: the new event, then the old chain without events of this incarnation, cut to the
    /// bound.
    fn is_chain_right(&self, content: &Content, parents: &[EventNo]) -> bool {
        let Some((newest, older)) = content.chain.split_first() else { return false };
        if parents.is_empty() {
            return older.is_empty() && !content.cut;
        }
        let is_right = |(chain, cut): (ChainKeys, bool)| chain[..] == *older && cut == content.cut;
        parents.iter().any(|parent| {
            let old = &self.history.get(*parent).content;
            let plain = self.older_than(newest, &old.chain, old.cut);
            // Put on top again: as if the other parent had been made on top of this one.
            let mut others = parents.iter().filter(|other| *other != parent);
            is_right(plain)
                || others.any(|other| {
                    let other = self.history.get(*other).key;
                    let (mut chain, cut) = self.older_than(&other, &old.chain, old.cut);
                    chain.insert(0, other);
                    is_right(self.older_than(newest, &chain, cut))
                })
        })
    }

    /// What follows a new event in the chain.
    fn older_than(&self, newest: &EventKey, chain: &[EventKey], cut: bool) -> (ChainKeys, bool) {
        let kept = chain.iter().filter(|k| k.0 != newest.0);
        let room = self.chain_bound.get() - 1;
        let cut = cut || kept.clone().count() > room;
        (kept.take(room).copied().collect(), cut)
    }

    /// A node has reported a conflict.
    pub(crate) fn on_conflict(&mut self, shadow: &Shadow, conflict: &Conflict) {
        if self.only_end {
            return;
        }
        let key = |event: Event| shadow.key(event);
        let winner = self.history.find(key(conflict.winner.newest()));
        let loser = self.history.find(key(conflict.loser.newest()));
        let (Some(winner), Some(loser)) = (winner, loser) else {
            return self
                .fail("a conflict was reported of what nobody made", conflict.path.to_string());
        };
        if conflict.is_undone_deletion() {
            return self.on_undone_deletion(winner, loser);
        }
        self.reported.insert(loser);
        let is_needless = self.history.ancestors([winner])[loser as usize];
        self.needless_reports += u64::from(is_needless);
    }

    /// A node has reported that a deletion was undone which is in no tree any more.
    fn on_undone_deletion(&mut self, winner: EventNo, deleted: EventNo) {
        let below = self.history.ancestors([winner]);
        if self.history.is_tombstone(winner) || !below[deleted as usize] {
            let label = self.history.label(winner);
            return self.fail("a deletion was said to be undone by what did not undo it", label);
        }
        self.undone.insert(winner);
        let path = self.history.get(winner).path;
        let purged =
            self.purged_tombstones().filter(|purged| self.history.get(*purged).path == path);
        let above: Vec<_> =
            purged.filter(|purged| !self.history.is_greater(deleted, *purged)).collect();
        if above.is_empty() {
            let label = self.history.label(deleted);
            self.fail("a deletion was said to be undone where none was purged", label);
        }
        let is_needless = above.iter().all(|deletion| below[*deletion as usize]);
        self.needless_reports += u64::from(is_needless);
    }

    /// Entries are in a node's tree no more.
    pub(crate) fn on_gone(&mut self, shadow: &mut Shadow, gone: &[Committed]) {
        if self.only_end {
            return;
        }
        for Committed { path, entry } in gone {
            let path = self.history.path(path);
            let event = self.history.find(shadow.key(entry.newest()));
            if event != Some(shadow.held(path)) {
                let label = self.history.label(shadow.held(path));
                self.fail("an entry is said to be gone that was not there", label);
            }
            if let Some(event) = event {
                shadow.emptied.insert(event);
            }
            shadow.set_held(path, NONE);
            self.dirty.push(path);
        }
    }

    /// The purges that a node has applied: what tombstones may be gone, and from which mark on.
    fn note_purges(&mut self, shadow: &Shadow, engine: &Engine) {
        for pair in engine.applied_pairs() {
            let (from, to) = (pair.from.tock().get(), pair.to.get());
            let seen = hash_seen(&pair.seen, shadow);
            let is_it =
                |p: &Purge| (p.from, p.to, p.seen) == (from, to, seen) && p.lineage == pair.lineage;
            if self.purges.iter().any(is_it) {
                continue;
            }
            let (mut tombstones, mut covered) = (Vec::new(), Bits::default());
            for (node, set) in pair.seen.iter() {
                let life = shadow.life(node).unwrap_or(u32::MAX);
                for event in set.iter().filter_map(|tick| self.history.find((life, tick))) {
                    covered.insert(event);
                    let made = self.history.get(event);
                    let is_tombstone = made.path != NO_PATH && made.content.value.is_none();
                    if is_tombstone && made.content.tock <= to {
                        tombstones.push(event);
                    }
                }
            }
            let lineage = pair.lineage.clone();
            self.purges.push(Purge { lineage, from, to, seen, tombstones, covered });
        }
    }

    /// Checks a node after it did something; returns whether its entries or knowledge have changed.
    pub(crate) fn check_step(&mut self, name: &str, shadow: &mut Shadow, engine: &Engine) -> bool {
        if engine.tree().len() <= PATHS_ALWAYS {
            engine.check();
        }
        if self.only_end {
            let sums = (engine.seen().count(), engine.contents_sum());
            let changed = shadow.sums != sums || shadow.mark != *engine.mark();
            shadow.sums = sums;
            shadow.mark = engine.mark().clone();
            return changed;
        }
        let mut changed = self.check_seen(name, shadow, engine);
        if shadow.mark != *engine.mark() {
            changed = true;
            self.note_purges(shadow, engine);
            self.check_mark(name, shadow, engine);
            self.dirty.clear();
            self.dirty.extend(0..self.history.paths().len() as u32);
        }
        if engine.tock().get() < shadow.tock {
            let detail = format!("{name}: {} after {}", engine.tock(), shadow.tock);
            self.fail("a tock went back", detail);
        }
        shadow.tock = engine.tock().get();
        changed |= !self.dirty.is_empty();
        if self.history.paths().len() <= PATHS_ALWAYS {
            for path in 0..self.history.paths().len() as u32 {
                self.check_path(name, shadow, engine, path);
            }
            self.dirty.clear();
        } else {
            while let Some(path) = self.dirty.pop() {
                self.check_path(name, shadow, engine, path);
            }
        }
        if engine.tree().len() != shadow.held_count {
            let detail = format!("{name} holds {}, not {}", engine.tree().len(), shadow.held_count);
            self.fail("entries came or went unnoticed", detail);
        }
        changed
    }

    /// Looks at everything that a node holds, not only at what changed.
    pub(crate) fn check_whole(&mut self, name: &str, shadow: &mut Shadow, engine: &Engine) {
        self.dirty.clear();
        self.dirty.extend(0..self.history.paths().len() as u32);
        self.check_step(name, shadow, engine);
        engine.check();
    }

    /// What is accounted for only ever grows, by events that were made, and has all own ticks.
    fn check_seen(&mut self, name: &str, shadow: &mut Shadow, engine: &Engine) -> bool {
        let mut changed = false;
        for (node, ticks) in engine.seen().iter() {
            let at = node.as_usize();
            if shadow.seen.len() <= at {
                shadow.seen.resize_with(at + 1, Default::default);
            }
            if shadow.seen[at] == *ticks {
                continue;
            }
            changed = true;
            if !ticks.contains_all(&shadow.seen[at]) {
                self.fail("what is accounted for went back", format!("at {name}"));
            }
            let life = shadow.life(node).unwrap_or(u32::MAX);
            for tick in ticks.difference(&shadow.seen[at]).iter() {
                let Some(event) = self.history.find((life, tick)) else {
                    if node == engine.own() {
                        // A node may use up a tick for something that is no entry.
                        self.history.add_burned((life, tick));
                        continue;
                    }
                    let detail = format!("{} at {name}", self.history.key_label((life, tick)));
                    self.fail("a tick is accounted for that nobody used", detail);
                    break;
                };
                let path = self.history.get(event).path;
                if path == NO_PATH {
                    continue;
                }
                if self.history.is_greater(event, shadow.top(path)) {
                    shadow.set_top(path, event);
                }
                self.dirty.push(path);
            }
            shadow.seen[at] = ticks.clone();
        }
        let own = engine.seen().contiguous(engine.own());
        if engine.tick().is_some_and(|tick| tick > own) {
            self.fail("own ticks are not accounted for", format!("at {name} from {own} on"));
        }
        changed
    }

    fn check_mark(&mut self, name: &str, shadow: &mut Shadow, engine: &Engine) {
        let mark = engine.mark();
        if shadow.mark.ahead_of(mark).get() > 0 {
            self.fail("a mark went back", format!("at {name}"));
        }
        if mark.iter().any(|(_, tock)| tock > engine.tock()) {
            self.fail("the own tock is below the mark", format!("at {name}"));
        }
        shadow.mark = mark.clone();
    }

    /// The invariant (I), strong: if a tick of a path is accounted for, then what is held there is
    /// at least as great, or nothing is and a tombstone at least as great was purged at a mark that
    /// this node has reached.
    fn check_path(&mut self, name: &str, shadow: &mut Shadow, engine: &Engine, path: u32) {
        let bytes = self.history.paths()[path as usize].as_bytes();
        let held = match engine.get(bytes) {
            None => NONE,
            Some(entry) => match self.history.find(shadow.key(entry.newest())) {
                Some(event) => event,
                None => {
                    return self.fail("an entry is held that nobody made", format!("at {name}"));
                }
            },
        };
        if held != shadow.held(path) {
            shadow.set_held(path, held);
        }
        let top = shadow.top(path);
        let check = if held == top {
            return;
        } else if self.history.is_greater(held, top) {
            "an entry is held that is not accounted for"
        } else if held != NONE {
            if self.is_purged(path, top, None) {
                "an older value came back over a purged tombstone"
            } else {
                "(I) less is held than is accounted for"
            }
        } else if !self.is_purged(path, top, Some(engine.mark())) {
            "(I) nothing is held of what is accounted for and was not purged"
        } else {
            return;
        };
        let detail = format!(
            "{name} holds {}, has accounted for {}",
            self.history.label(held),
            self.history.label(top)
        );
        self.fail(check, detail);
    }

    /// Whether a tombstone at least as great as an event was purged, at a mark that was reached.
    fn is_purged(&self, path: u32, event: EventNo, reached: Option<&Mark>) -> bool {
        let reached_by =
            |purge: &&Purge| reached.is_none_or(|mark| mark.get(&purge.lineage).get() >= purge.to);
        self.purges.iter().filter(reached_by).flat_map(|p| &p.tombstones).any(|tombstone| {
            self.history.get(*tombstone).path == path && !self.history.is_greater(event, *tombstone)
        })
    }

    /// Marks all events that are older than a tombstone that was purged, or are one.
    pub(super) fn purged_tombstones(&self) -> impl Iterator<Item = EventNo> + '_ {
        self.purges.iter().flat_map(|p| p.tombstones.iter().copied())
    }

    /// A state that a log gives: of the former entries, only what it accounts for is still there.
    pub(crate) fn own_what_was_seen(&self, saved: &mut Saved) {
        let mut owned = Bits::default();
        for (node, ticks) in saved.image.replica.seen.iter() {
            let life = saved.shadow.life(node).unwrap_or(u32::MAX);
            let events = ticks.iter().filter_map(|tick| self.history.find((life, tick)));
            for event in events.filter(|event| saved.shadow.owned.contains(*event)) {
                owned.insert(event);
            }
        }
        saved.shadow.owned = owned;
    }

    /// Takes the failure out.
    pub(crate) fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }
}

/// What a tick set is remembered by, whatever the local indices.
fn hash_seen(seen: &Seen, shadow: &Shadow) -> u64 {
    let mut hash = 0u64;
    for (node, ticks) in seen.iter() {
        let life = u64::from(shadow.life(node).unwrap_or(u32::MAX));
        for (from, to) in ticks.ranges() {
            let range = [life, from, to].map(u64::to_le_bytes).concat();
            // A sum: the order of the lives must not matter.
            hash = hash.wrapping_add(hash_value(&range));
        }
    }
    hash
}

fn contains(seen: &Seen, shadow: &Shadow, (life, tick): EventKey) -> bool {
    let index = shadow.lives.iter().position(|l| *l == life);
    index
        .zip(Tick::new(tick))
        .is_some_and(|(index, tick)| seen.contains(Event { node: NodeIndex(index as u32), tick }))
}

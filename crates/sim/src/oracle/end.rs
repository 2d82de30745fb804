//! The checks when the network has healed and nothing changes any more: all nodes are equal,
//! nothing acknowledged was lost silently, nothing deleted came back, nothing new was deleted.

use std::collections::BTreeMap;

use super::history::{EventNo, NONE};
use super::shadow::Shadow;
use super::{Oracle, Purge};
use crate::bits::Bits;
use crate::engine::Engine;
use crate::model::entry::Entry;
use crate::model::path::Path;
use crate::model::seen::export_seen;
use crate::model::tick_set::TickSet;
use crate::protocol::record::encode_record;

/// A node that is up in the end.
pub(crate) struct Survivor<'a> {
    pub(crate) name: &'a str,
    pub(crate) shadow: &'a Shadow,
    pub(crate) engine: &'a Engine,
}

impl Oracle {
    /// Judges the end.
    pub(crate) fn check_end(&mut self, survivors: &[Survivor<'_>]) {
        let Some(first) = survivors.first() else { return };
        if self.only_end {
            return survivors.iter().for_each(|survivor| self.check_same(first, survivor));
        }
        let (mut owned, mut emptied) = (Bits::default(), Bits::default());
        for survivor in survivors {
            owned.union_with(&survivor.shadow.owned);
            emptied.union_with(&survivor.shadow.emptied);
        }
        for survivor in survivors {
            self.check_at_rest(survivor, &owned);
            self.check_equal(first, survivor);
        }
        if self.failure.is_some() {
            return;
        }
        self.check_nothing_lost(first.shadow, &owned);
        self.check_paths(first.shadow, &owned, &emptied);
    }

    /// Ready, with nothing under way and nothing missing that a survivor had. (What only nodes had
    /// that are gone, or that lost their state, stays missing.)
    fn check_at_rest(&mut self, survivor: &Survivor<'_>, owned: &Bits) {
        let Survivor { name, shadow, engine } = survivor;
        if !engine.is_ready() {
            self.fail("a node is not ready in the end", (*name).to_owned());
        }
        if engine.catch_up_progress().is_some() {
            self.fail("a catch-up is under way in the end", (*name).to_owned());
        }
        for (node, ticks) in engine.view().missing() {
            let life = shadow.life(node).unwrap_or(u32::MAX);
            let had = ticks.iter().filter_map(|tick| self.history.find((life, tick)));
            if let Some(event) = had.into_iter().find(|event| owned.contains(*event)) {
                let detail = format!("{name} lacks {}", self.history.label(event));
                self.fail("events are missing in the end", detail);
            }
        }
    }

    /// What must hold although events were used twice: all hold the same, to the last byte.
    fn check_same(&mut self, a: &Survivor<'_>, b: &Survivor<'_>) {
        let names = || format!("{} and {}", a.name, b.name);
        if a.engine.mark() != b.engine.mark() {
            self.fail("marks differ in the end", names());
        }
        if everything(a.engine) != everything(b.engine) {
            self.fail("trees differ in the end", names());
        }
        let seen = |engine: &Engine| export_seen(engine.table(), engine.seen());
        if seen(a.engine) != seen(b.engine) {
            self.fail("what is accounted for differs in the end", names());
        }
        if a.engine.contents_sum() != b.engine.contents_sum() {
            self.fail("sums differ where contents are the same", names());
        }
        if !b.engine.contents_differ().is_empty() {
            self.fail("a difference is still told of in the end", b.name.to_owned());
        }
    }

    fn check_equal(&mut self, a: &Survivor<'_>, b: &Survivor<'_>) {
        if a.engine.mark() != b.engine.mark() {
            let detail =
                format!("{} {:?}, {} {:?}", a.name, a.engine.mark(), b.name, b.engine.mark());
            self.fail("marks differ in the end", detail);
        }
        if a.engine.group() != b.engine.group() {
            let detail =
                format!("{} {:?}, {} {:?}", a.name, a.engine.group(), b.name, b.engine.group());
            self.fail("member lists differ in the end", detail);
        }
        for path in 0..self.history.paths().len() as u32 {
            let (x, y) = (a.shadow.held(path), b.shadow.held(path));
            if x != y {
                let (x, y) = (self.history.label(x), self.history.label(y));
                let detail = format!("{} holds {x}, {} {y}", a.name, b.name);
                return self.fail("trees differ in the end", detail);
            }
        }
        if seen(a.shadow) != seen(b.shadow) {
            let detail = format!("{} and {}", a.name, b.name);
            self.fail("what is accounted for differs in the end", detail);
        }
    }

    /// Every change that a survivor had is there, or was replaced by one that knew it, or was
    /// deleted knowingly, or lost a conflict that was reported.
    fn check_nothing_lost(&mut self, end: &Shadow, owned: &Bits) {
        let held = end.held.iter().copied().filter(|e| *e != NONE);
        let accounted = self
            .history
            .ancestors(held.chain(self.purged_tombstones()).chain(self.reported.iter()));
        let lost = owned.iter().find(|event| {
            // Of a re-issue only the carried event matters.
            let origin = self.history.get(*event).origin;
            !accounted[origin as usize]
        });
        if let Some(event) = lost {
            let made = self.history.get(event);
            let detail = format!(
                "{}; there is {}",
                self.history.label(event),
                self.history.label(end.held(made.path))
            );
            self.fail("a change was lost silently", detail);
        }
    }

    fn check_paths(&mut self, end: &Shadow, owned: &Bits, emptied: &Bits) {
        let mut known = owned.clone();
        for key in end.seen_keys() {
            if let Some(event) = self.history.find(key) {
                known.insert(event);
            }
        }
        let mut by_path: Vec<Vec<EventNo>> = vec![Vec::new(); self.history.paths().len()];
        for (event, made) in self.history.events().iter().enumerate() {
            if let Some(events) = by_path.get_mut(made.path as usize) {
                events.push(event as EventNo);
            }
        }
        let mut purged_top = vec![NONE; by_path.len()];
        for tombstone in self.purged_tombstones() {
            let top = &mut purged_top[self.history.get(tombstone).path as usize];
            if self.history.is_greater(tombstone, *top) {
                *top = tombstone;
            }
        }
        let below_purged = self.history.ancestors(self.purged_tombstones());
        for (path, events) in by_path.iter().enumerate() {
            let top = end.held(path as u32);
            let is_dead = top == NONE || self.history.is_tombstone(top);
            if is_dead {
                let purged = (purged_top[path], &below_purged[..]);
                self.check_deletion(top, purged, events, owned);
            }
            if top != NONE {
                self.check_no_resurrection(top, events, &known);
            }
            if !is_dead {
                self.check_undone(top, events, &known, emptied);
            }
        }
    }

    /// If there is no value any more: each value that a survivor had is below a tombstone, or was
    /// known to it.
    fn check_deletion(
        &mut self,
        top: EventNo,
        (purged_top, below_purged): (EventNo, &[bool]),
        events: &[EventNo],
        owned: &Bits,
    ) {
        let history = &self.history;
        let below_top = (top != NONE).then(|| self.marked_ancestors(top, events));
        let is_deleted = |value: EventNo| {
            (top != NONE && history.is_greater(top, value))
                || below_top.as_ref().is_some_and(|m| m.contains(value))
                || (purged_top != NONE && history.is_greater(purged_top, value))
                || below_purged[value as usize]
        };
        let values = events.iter().copied().filter(|e| owned.contains(*e));
        let found = values.filter(|e| !history.is_tombstone(*e)).find(|value| !is_deleted(*value));
        if let Some(value) = found {
            let detail = format!("{}; there is {}", history.label(value), history.label(top));
            self.fail("a change was deleted by a deletion that is older", detail);
        }
    }

    /// A present value was not replaced by any known version, and not deleted.
    fn check_no_resurrection(&mut self, top: EventNo, events: &[EventNo], known: &Bits) {
        let history = &self.history;
        // Events on top of it have greater numbers, and their parents are of the same path.
        let mut above = Bits::default();
        above.insert(top);
        let mut wrong = None;
        for event in events.iter().copied().filter(|e| *e > top) {
            if history.get(event).parents.iter().any(|p| above.contains(*p)) {
                above.insert(event);
                if known.contains(event) {
                    wrong = Some(("what is there in the end was replaced by", event));
                    break;
                }
            }
        }
        let tombstones = events.iter().copied().filter(|e| known.contains(*e));
        let deleted = tombstones
            .filter(|e| history.is_tombstone(*e))
            .find(|e| *e != top && history.is_greater(*e, top));
        let wrong =
            wrong.or(deleted.map(|event| ("what is there in the end was deleted by", event)));
        if let Some((what, event)) = wrong {
            let detail = format!("{}: {what} {}", history.label(top), history.label(event));
            self.fail("something came back", detail);
        }
    }

    /// A value that is there although the version that it was made on top of had been deleted and
    /// purged: a conflict was reported, for it or for what it replaced, unless a chain was cut on
    /// the way.
    fn check_undone(&mut self, top: EventNo, events: &[EventNo], seen: &Bits, emptied: &Bits) {
        let below = self.marked_ancestors(top, events);
        // A value that was put on top of a re-issue again was not made on top of it.
        let value_below = self.marked_ancestors(self.history.get(top).origin, events);
        let path = self.history.get(top).path;
        // Of what was before a deletion that it knew it is known that it was deleted.
        let mut known = Bits::default();
        for event in below.iter().filter(|event| self.history.is_tombstone(*event)) {
            known.union_with(&self.marked_ancestors(event, events));
        }
        let is_undone = |deletion: &EventNo| {
            let is_there = self.history.get(*deletion).path == path && seen.contains(*deletion);
            if !is_there || below.contains(*deletion) {
                return false;
            }
            let before = self.marked_ancestors(*deletion, events);
            // Where all that had purged it are gone with their memory, nobody is left to notice.
            if !emptied.contains(*deletion) && !before.iter().any(|event| emptied.contains(event)) {
                return false;
            }
            // If no node that agreed to the purge had seen a version, no node can know that it was
            // deleted. What they see later, when they agree to the next one, tells nothing: it is gone by then.
            let has = |purge: &Purge| purge.tombstones.contains(deletion);
            let is_first = |purge: &Purge| {
                let is_earlier = |p: &Purge| p.lineage == purge.lineage && p.to <= purge.from;
                !self.purges.iter().any(|earlier| is_earlier(earlier) && has(earlier))
            };
            let agreed: Vec<&Purge> =
                self.purges.iter().filter(|purge| has(purge) && is_first(purge)).collect();
            let is_covered = |event| agreed.iter().any(|purge| purge.covered.contains(event));
            let shared =
                |event| value_below.contains(event) && !known.contains(event) && is_covered(event);
            before.iter().any(shared)
        };
        let undone: Vec<EventNo> = self.purged_tombstones().filter(is_undone).collect();
        // Also where what undid it was a re-issue of something that was overwritten since.
        let is_below = |event| below.contains(event);
        let is_told =
            self.undone.iter().any(|e| is_below(e) || is_below(self.history.get(e).origin));
        let is_cut = below.iter().any(|event| self.history.get(event).content.cut);
        if undone.is_empty() || is_told || is_cut {
            return;
        }
        let lost = self.history.ancestors(self.reported.iter());
        // A version made there after the purge may have lost to it: then that was reported.
        let is_lost = |deletion: &EventNo| {
            let told = self.reported.iter().filter(|e| self.history.get(*e).path == path);
            lost[*deletion as usize]
                || told.into_iter().any(|e| self.history.is_greater(e, *deletion))
        };
        if let Some(deletion) = undone.into_iter().find(|deletion| !is_lost(deletion)) {
            let (top, deletion) = (self.history.label(top), self.history.label(deletion));
            self.fail("a purged deletion was undone silently", format!("{deletion} by {top}"));
        }
    }

    /// An event and all that it was made on top of, of the events of one path.
    fn marked_ancestors(&self, of: EventNo, events: &[EventNo]) -> Bits {
        let mut marked = Bits::default();
        marked.insert(of);
        for event in events.iter().rev().copied() {
            if marked.contains(event) {
                for parent in &self.history.get(event).parents {
                    marked.insert(*parent);
                }
            }
        }
        marked
    }
}

/// All entries, whatever the engine's indices.
fn everything(engine: &Engine) -> Vec<(Path, Vec<u8>)> {
    let record = |path: &Path, entry: &Entry| {
        let mut bytes = Vec::new();
        encode_record(path.as_bytes(), entry, engine.table(), &mut bytes);
        bytes
    };
    let all = engine.tree().subtree(&Path::root());
    all.map(|(path, entry)| (path.clone(), record(path, entry))).collect()
}

/// What a node has accounted for, by life.
fn seen(shadow: &Shadow) -> BTreeMap<u32, &TickSet> {
    let sets = shadow.lives.iter().copied().zip(&shadow.seen);
    sets.filter(|(_, ticks)| !ticks.is_empty()).collect()
}

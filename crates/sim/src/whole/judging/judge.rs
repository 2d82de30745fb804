//! The judge of whole nodes: keeps aside what was made, what clients were told and what was reported,
//! and says what is wrong.

use std::collections::{BTreeMap, BTreeSet};

use super::view::{EventId, Version, event_id, version};
use crate::Failure;
use crate::engine::Report;
use crate::model::ids::{NodeId, NodeTable};
use crate::model::path::Path;
use crate::storage::{Batch, Op};
use crate::whole::clients::requests::number_of;

/// A change that a client was told of.
pub(in crate::whole) struct Acked {
    /// The request that it was.
    pub(in crate::whole) request: u32,
    pub(in crate::whole) path: Path,
    pub(in crate::whole) tock: u64,
    /// None for a deletion.
    pub(in crate::whole) value: Option<u32>,
    /// What was there before, as far as its client was told.
    pub(in crate::whole) old: Option<u32>,
    /// It is lost, in a way that users are told of.
    pub(in crate::whole) is_excused: bool,
}

/// A report that a value won a conflict.
struct Win {
    /// How many conflicts had been reported by then, this one among them.
    report: u64,
    /// The value had been put on top again (rule 2).
    is_reissued: bool,
    /// What lost; None for a deletion.
    loser: Option<u32>,
}

/// See the module.
#[derive(Default)]
pub(in crate::whole) struct Judge {
    /// What was wrong first.
    pub(in crate::whole) failure: Option<Failure>,
    /// All events that were ever committed, and what they are.
    events: BTreeMap<EventId, (Path, u64, Option<Vec<u8>>)>,
    /// By path and life, up to which tick its changes were replaced by somebody who knew them.
    replaced: BTreeMap<(Path, NodeId), u64>,
    acked: BTreeMap<EventId, Acked>,
    /// Of those, how many conflicts had been reported before.
    reported_before: BTreeMap<EventId, u64>,
    /// The events that each request made: more than one where it was sent again.
    made: BTreeMap<u32, Vec<EventId>>,
    /// The newest events of what lost in conflicts that were reported.
    losers: BTreeSet<EventId>,
    /// Values that were reported to undo a deletion which had been purged, and where.
    undone: BTreeSet<(Path, u32)>,
    /// What values were reported to have won over, and where.
    wins: BTreeMap<(Path, u32), Vec<Win>>,
    pub(in crate::whole) conflicts: u64,
    pub(in crate::whole) purged: u64,
}

impl Judge {
    pub(in crate::whole) fn fail(&mut self, check: &'static str, detail: String) {
        self.failure.get_or_insert(Failure { check, detail });
    }

    pub(in crate::whole) fn event_count(&self) -> u64 {
        self.events.len() as u64
    }

    /// A node has done this; gives back what it has committed.
    pub(in crate::whole) fn on_batch(
        &mut self,
        own: &NodeId,
        batch: &Batch,
    ) -> Vec<(Path, Version)> {
        let mut committed = Vec::new();
        for op in &batch.ops {
            let Op::Put(change) = op else { continue };
            let (path, found) = (change.path.clone(), version(&batch.table, &change.entry));
            let is = (path.clone(), found.tock, found.value.clone());
            match self.events.get(&found.event) {
                None => {
                    self.events.insert(found.event.clone(), is);
                }
                Some(known) if *known != is => {
                    let detail = format!("{found:?} at {path} of {own:?}, and {known:?}");
                    self.fail("an event has two contents", detail);
                }
                Some(_) => {}
            }
            let (newest, tick) = &found.event;
            self.replace(&path, newest, tick - 1);
            for event in change.entry.events().skip(1) {
                let (id, tick) = event_id(&batch.table, event);
                self.replace(&path, &id, tick);
            }
            committed.push((path, found));
        }
        committed
    }

    fn replace(&mut self, path: &Path, life: &NodeId, tick: u64) {
        let known = self.replaced.entry((path.clone(), life.clone())).or_default();
        *known = tick.max(*known);
    }

    /// A node has told its operators this; says whether it changes anything.
    pub(in crate::whole) fn on_report(&mut self, table: &NodeTable, report: &Report) -> bool {
        match report {
            Report::Conflict(conflict) => {
                self.conflicts += 1;
                self.losers.insert(event_id(table, conflict.loser.newest()));
                if let Some(value) = conflict.winner.value() {
                    let place = (conflict.path.clone(), number_of(value));
                    if conflict.is_undone_deletion() {
                        self.undone.insert(place.clone());
                    }
                    self.wins.entry(place).or_default().push(Win {
                        report: self.conflicts,
                        is_reissued: conflict.winner.reissue_of().is_some(),
                        loser: conflict.loser.value().map(number_of),
                    });
                }
                true
            }
            Report::ContentsDiffer { peer } => {
                let detail = format!("it and {peer}");
                self.fail("nodes that know the same hold something else", detail);
                false
            }
            Report::Purged { tombstones, .. } => {
                self.purged += *tombstones as u64;
                true
            }
            Report::GroupChanged { .. } | Report::Renewed { .. } | Report::CatchUpDone { .. } => {
                true
            }
            _ => false,
        }
    }

    /// A client was told that its change is made.
    pub(in crate::whole) fn ack(&mut self, event: EventId, acked: Acked) {
        self.reported_before.entry(event.clone()).or_insert(self.conflicts);
        self.acked.entry(event).or_insert(acked);
    }

    /// A request was carried out once more.
    pub(in crate::whole) fn note_made(&mut self, request: u32, event: EventId) {
        self.made.entry(request).or_default().push(event);
    }

    /// The changes that clients were told of, without those that are lost.
    pub(in crate::whole) fn acked(&self) -> impl Iterator<Item = &EventId> {
        self.acked.iter().filter(|(_, acked)| !acked.is_excused).map(|(event, _)| event)
    }

    /// A change is lost in a way that users are told of.
    pub(in crate::whole) fn excuse(&mut self, event: &EventId) {
        if let Some(acked) = self.acked.get_mut(event) {
            acked.is_excused = true;
        }
    }

    /// Whether an event set a value.
    pub(in crate::whole) fn is_value(&self, event: &EventId) -> bool {
        self.events.get(event).is_some_and(|(_, _, value)| value.is_some())
    }

    /// The events of a life.
    pub(in crate::whole) fn made_by(&self, life: &NodeId) -> impl Iterator<Item = EventId> {
        let range = (life.clone(), 0)..=(life.clone(), u64::MAX);
        self.events.range(range).map(|(event, _)| event.clone())
    }

    /// Everything is over: what clients were told must be there, or have been replaced, or disputed.
    /// `knows`: whether the nodes have accounted for an event.
    pub(super) fn judge_changes(
        &mut self,
        held: &BTreeMap<Path, Version>,
        mark_top: u64,
        knows: impl Fn(&EventId) -> bool,
    ) {
        let mut wrong = None;
        for (event, acked) in self.acked.iter().filter(|(_, acked)| !acked.is_excused) {
            let now = held.get(&acked.path);
            let number = now.and_then(|now| now.value.as_deref()).map(number_of);
            let detail = || {
                let (id, tick) = event;
                format!(
                    "{} = {:?} tock {} ({}~{:04x}:{tick}); there is {now:?}",
                    acked.path,
                    acked.value,
                    acked.tock,
                    id.name,
                    id.incarnation.0 & 0xffff
                )
            };
            if !knows(event) {
                wrong = Some(("a change that a client was told of is unknown", detail()));
            } else if now.map_or(mark_top, |now| now.tock) < acked.tock {
                wrong = Some(("a change that a client was told of is undone", detail()));
            } else if self.is_lost(event, acked, now, mark_top) {
                wrong = Some(("a change is lost, and nobody was told", detail()));
            } else if acked.value.is_none()
                && number.is_some()
                && number == acked.old
                // A copy of a change does not beat what came on top of the first one.
                && number.is_some_and(|number| self.is_made_once(number))
                && self.is_made_once(acked.request)
                && !self.has_lost(event, acked)
                && !number.is_some_and(|n| self.is_told_to_be_back(event, &acked.path, n))
            {
                wrong = Some(("what was deleted has come back, and nobody was told", detail()));
            }
            if wrong.is_some() {
                break;
            }
        }
        if let Some((check, detail)) = wrong {
            self.fail(check, detail);
        }
    }

    /// Whether a change is neither there nor replaced by somebody who knew it, and no conflict tells that
    /// it lost.
    fn is_lost(
        &self,
        event: &EventId,
        acked: &Acked,
        now: Option<&Version>,
        mark_top: u64,
    ) -> bool {
        let is_there = match now {
            Some(now) => {
                let number = now.value.as_deref().map(number_of);
                now.event == *event || number == acked.value
            }
            None => acked.value.is_none(),
        };
        if acked.value.is_none() && acked.tock <= mark_top {
            // Purged, perhaps; whether what it had deleted is back is asked elsewhere.
            return false;
        }
        let is_replaced = |(life, tick): &EventId| {
            let to = self.replaced.get(&(acked.path.clone(), life.clone()));
            to.is_some_and(|to| to >= tick)
        };
        // Copies of one write are one change.
        let copies = self.made.get(&acked.request);
        let is_replaced = is_replaced(event) || copies.into_iter().flatten().any(is_replaced);
        !is_there && !is_replaced && !self.has_lost(event, acked)
    }

    /// Whether a report says that a value is there in place of a deletion: of one that was purged, or, since a client was
    /// told of this deletion, of another one at the same path, or of a value that had itself won over one. Where what a
    /// client had put in the place of this deletion lost to those, that is all there is to tell: nobody knows any more in
    /// what order it was.
    fn is_told_to_be_back(&self, deletion: &EventId, path: &Path, number: u32) -> bool {
        let before = self.reported_before.get(deletion);
        let wins = |number: u32| {
            let wins = self.wins.get(&(path.clone(), number)).into_iter().flatten();
            wins.filter(move |win| Some(&win.report) > before)
        };
        let mut losers: Vec<Option<u32>> =
            wins(number).filter(|win| win.is_reissued).map(|win| win.loser).collect();
        let mut seen = BTreeSet::from([number]);
        while let Some(loser) = losers.pop() {
            let Some(value) = loser else { return true };
            if seen.insert(value) {
                losers.extend(wins(value).map(|win| win.loser));
            }
        }
        self.undone.contains(&(path.clone(), number))
    }

    fn is_made_once(&self, request: u32) -> bool {
        self.made.get(&request).is_some_and(|made| made.len() == 1)
    }

    /// Whether a conflict that a change, or a copy of it, has lost was reported.
    fn has_lost(&self, event: &EventId, acked: &Acked) -> bool {
        let copies = self.made.get(&acked.request).into_iter().flatten();
        copies.chain([event]).any(|event| self.losers.contains(event))
    }
}

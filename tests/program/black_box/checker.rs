//! Judges a history, by what users are promised and nothing else:
//!
//! 1. In the end all nodes hold the same.
//! 2. Each acknowledged change is there in the end, or was replaced by one that knew of it, or a
//!    node reported it as the loser of a conflict, or its node lost it where that may be (it died
//!    before the others could have got it, and its disk did not have it yet).
//! 3. So a deletion stays: whatever it knew of does not come back.
//! 4. A compare-and-set is made on top of exactly the change that its client named.
//! 5. Reads give only what was written; at one node they never go back, and find what the same node
//!    has acknowledged and what had time to spread.
//! 6. A watch tells every change that its node acknowledged, each path's in order, and ends with what
//!    is there in the end.
//! 7. One event is one change: never two paths, values or chains. (A watch tells with a value's event that it
//!    is gone where its node never had the deletion: it was purged while the node was cut off.)

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use super::history::{Conflict, EventId, Fate, History, Loss, Version, Wish, Write};

/// How long a change may take to be everywhere, with nothing in its way on a busy machine.
const SPREADS_WITHIN: Duration = Duration::from_secs(3);
/// How long a watcher may be behind.
const WATCH_LAG: Duration = Duration::from_secs(3);

/// All that is wrong with a history; empty if nothing is.
pub fn judge(history: &History) -> Vec<String> {
    let mut faults = history.complaints.clone();
    faults.extend(check_trees(history));
    faults.extend(check_events(history));
    let known = Known::of(history);
    faults.extend(check_writes(history, &known));
    faults.extend(check_compare_and_set(history));
    faults.extend(check_reads(history));
    faults.extend(check_watches(history));
    faults
}

/// 1.
fn check_trees(history: &History) -> Vec<String> {
    let mut trees = history.trees.iter();
    let Some((first, tree)) = trees.next() else { return vec!["no tree at the end".into()] };
    let differ = trees.filter(|(_, other)| *other != tree);
    differ.map(|(n, _)| format!("1: n{first} and n{n} differ in the end")).collect()
}

/// 7.
fn check_events(history: &History) -> Vec<String> {
    let mut faults = Vec::new();
    let mut seen: HashMap<&EventId, (&str, &Version)> = HashMap::new();
    for (path, version) in all_versions(history) {
        let (other_path, other) = *seen.entry(version.event()).or_insert((path, version));
        let same_chain = version.chain.iter().zip(&other.chain).all(|(a, b)| a == b);
        if other_path != path
            || !same_chain
            || other.value != version.value && !is_removal(history, path, version, other)
        {
            faults.push(format!(
                "7: one event is two changes: {other_path} {other:?} and {path} {version:?}"
            ));
        }
    }
    faults
}

/// Whether one of two versions of an event is a watch's word that the other one, a value, is not there any
/// more: it was deleted, and the deletion purged, while the watch's node was cut off. Nobody there knows the
/// deletion's own event, so the message carries the value's.
fn is_removal(history: &History, path: &str, a: &Version, b: &Version) -> bool {
    let (removal, value) = if a.value.is_none() { (a, b) } else { (b, a) };
    let watched = || {
        let mut items = history.watches.iter().flat_map(|w| &w.items);
        items.any(|(_, at, version)| at == path && version == removal)
    };
    let above = |write: &Write| match &write.fate {
        Fate::Made(deletion) => deletion.tock > value.tock,
        Fate::Unknown => true,
        Fate::Refused(_) | Fate::Nothing => false,
    };
    let deleted = || {
        let mut writes = history.writes.iter();
        writes.any(|w| w.path == path && w.wish == Wish::Delete && above(w))
    };
    value.value.is_some() && removal.tock == value.tock && watched() && deleted()
}

/// Every version that anybody was told of.
fn all_versions(history: &History) -> impl Iterator<Item = (&str, &Version)> {
    let made = history.writes.iter().filter_map(|w| Some((w.path.as_str(), w.made()?)));
    let read = history.reads.iter().filter_map(|r| Some((r.path.as_str(), r.version.as_ref()?)));
    let items = history.watches.iter().flat_map(|w| &w.items);
    let watched = items.map(|(_, path, version)| (path.as_str(), version));
    let kept = history.trees.values().flatten().map(|(path, v)| (path.as_str(), v));
    made.chain(read).chain(watched).chain(kept)
}

/// A version, and the write that made it, if a client knows.
struct Step<'a> {
    version: &'a Version,
    write: Option<&'a Write>,
}

impl Step<'_> {
    /// Whether whoever made this version had the other one before his eyes, where the chain does not
    /// say: it names each life once, so what the same life made before is told by the write's reply
    /// or condition instead.
    fn knew_own(&self, other: &Version) -> bool {
        if self.version.is_cut {
            return other.tock < self.version.tock;
        }
        let Some(write) = self.write else { return false };
        let on_nothing = match &write.wish {
            Wish::SetNew => true,
            Wish::Set => write.over.is_none(),
            Wish::Delete | Wish::SetIf(_) => false,
        };
        if on_nothing && other.value.is_none() && other.tock < self.version.tock {
            // Its maker found nothing. A deletion that was purged by then is in no chain.
            return true;
        }
        let (life, tick) = other.event();
        if self.version.event().0 != *life || self.version.event().1 <= *tick {
            return false;
        }
        match &write.wish {
            Wish::SetIf(event) => event == other.event(),
            Wish::SetNew => other.value.is_none(),
            // On top of a deletion no value is told.
            Wish::Set | Wish::Delete => write.over == other.value,
        }
    }
}

/// What is known of each path.
struct Known<'a> {
    steps: BTreeMap<&'a str, Vec<Step<'a>>>,
    /// Writes of unknown fate.
    unknown: BTreeMap<&'a str, Vec<&'a Write>>,
}

impl<'a> Known<'a> {
    fn of(history: &'a History) -> Self {
        let mut steps: BTreeMap<&str, BTreeMap<&EventId, Step<'_>>> = BTreeMap::new();
        let mut unknown: BTreeMap<&str, Vec<&Write>> = BTreeMap::new();
        for write in &history.writes {
            if let Some(version) = write.made() {
                let step = Step { version, write: Some(write) };
                steps.entry(&write.path).or_default().insert(version.event(), step);
            } else if write.fate == Fate::Unknown {
                unknown.entry(&write.path).or_default().push(write);
            }
        }
        for (path, version) in all_versions(history) {
            let step = Step { version, write: None };
            steps.entry(path).or_default().entry(version.event()).or_insert(step);
        }
        let steps = steps.into_iter().map(|(p, s)| (p, s.into_values().collect())).collect();
        Self { steps, unknown }
    }
}

/// 2 and 3.
fn check_writes(history: &History, known: &Known<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    let Some(end) = history.trees.values().next() else { return faults };
    let mut conflicts: BTreeMap<&str, Vec<&Conflict>> = BTreeMap::new();
    for conflict in &history.conflicts {
        conflicts.entry(conflict.path.as_str()).or_default().push(conflict);
    }
    let empty = (Vec::new(), Vec::new(), Vec::new());
    let mut accounts: BTreeMap<&str, Account<'_>> = BTreeMap::new();
    for write in &history.writes {
        let Some(made) = write.made() else { continue };
        let path = write.path.as_str();
        let account = accounts.entry(path).or_insert_with(|| {
            Account::of(
                end.get(path),
                known.steps.get(path).unwrap_or(&empty.0),
                known.unknown.get(path).unwrap_or(&empty.1),
                conflicts.get(path).unwrap_or(&empty.2),
            )
        });
        if account.held.contains(made.event())
            || account.may_be_replaced(write)
            || may_be_lost(history, write)
        {
            continue;
        }
        let lost: Vec<_> = account.lost.iter().map(|c| (&c.lost_chain, &c.lost_value)).collect();
        faults.push(format!(
            "2: acknowledged and gone: {write:?}; in the end {:?}; reported lost {lost:?}",
            account.last
        ));
    }
    faults
}

/// What became of the versions of one path.
struct Account<'a> {
    last: Option<&'a Version>,
    unknown: &'a [&'a Write],
    lost: &'a [&'a Conflict],
    steps: &'a [Step<'a>],
    /// The versions that are there in the end, or were reported as lost, or were replaced by one that
    /// knew of them and of which the same is true.
    held: HashSet<EventId>,
}

impl<'a> Account<'a> {
    fn of(
        last: Option<&'a Version>,
        steps: &'a [Step<'a>],
        unknown: &'a [&'a Write],
        lost: &'a [&'a Conflict],
    ) -> Self {
        let mut account = Self { last, unknown, lost, steps, held: HashSet::new() };
        let by_event: HashMap<&EventId, &Step<'_>> =
            steps.iter().map(|step| (step.version.event(), step)).collect();
        let mut next: Vec<&Step<'_>> =
            steps.iter().filter(|step| account.is_accounted_for(step.version)).collect();
        while let Some(step) = next.pop() {
            if !account.held.insert(step.version.event().clone()) {
                continue;
            }
            for event in &step.version.chain[1..] {
                match by_event.get(event) {
                    Some(before) => next.push(before),
                    None => drop(account.held.insert(event.clone())),
                }
            }
            next.extend(steps.iter().filter(|before| {
                !account.held.contains(before.version.event()) && step.knew_own(before.version)
            }));
        }
        account
    }

    /// Whether a version is there in the end, or was reported as lost.
    fn is_accounted_for(&self, version: &Version) -> bool {
        let is_last = match self.last {
            // A re-issue is another event with the same value.
            Some(last) => last.value == version.value || last.names(version.event()),
            None => version.value.is_none(),
        };
        let shown = version.value.as_ref().map(|v| format!("\"{v}\""));
        is_last
            || self.lost.iter().any(|c| {
                c.lost_chain.contains(version.event()) || shown.as_ref() == Some(&c.lost_value)
            })
    }

    /// Whether a write of unknown fate at the same node may have replaced this one, and is not gone
    /// itself.
    fn may_be_replaced(&self, write: &Write) -> bool {
        let of = |u: &&&Write| (u.node, u.life) == (write.node, write.life) && u.end >= write.start;
        self.unknown.iter().filter(of).any(|u| match &u.value {
            // Nobody was told of the deletion's event.
            None => self.last.is_none_or(|last| last.value != write.value),
            Some(value) => {
                self.last.is_some_and(|last| last.value.as_ref() == Some(value))
                    || self.lost.iter().any(|c| c.lost_value == format!("\"{value}\""))
                    || self.steps.iter().any(|step| {
                        let is_over = step.write.is_some_and(|w| w.over.as_ref() == Some(value));
                        let is_it = step.version.value.as_ref() == Some(value);
                        (is_over || is_it) && self.held.contains(step.version.event())
                    })
            }
        })
    }
}

/// Whether a node may have lost the write together with everybody who could have had it.
fn may_be_lost(history: &History, write: &Write) -> bool {
    let of = |loss: &&Loss| loss.node == write.node && loss.life >= write.life;
    history.losses.iter().filter(of).any(|loss| {
        // Started again since: then what the disk kept is with the node again, unless it was put
        // back to an older state.
        let spread = last_calm(history, loss.at);
        let safe = match (loss.kept_before, spread) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        safe.is_none_or(|safe| write.end > safe) && write.start <= loss.gone
    })
}

/// The last moment before `at` of which everything had time to spread to all nodes before `at`.
fn last_calm(history: &History, at: Instant) -> Option<Instant> {
    let mut disturbances: Vec<_> = history.disturbances.iter().filter(|d| d.from < at).collect();
    disturbances.sort_by_key(|d| d.from);
    let mut end = at;
    for disturbance in disturbances.iter().rev() {
        if disturbance.to + SPREADS_WITHIN <= end {
            break;
        }
        end = end.min(disturbance.from);
    }
    // What is before it is calm, as far as it goes back: at least to the end of the warm-up.
    end.checked_sub(SPREADS_WITHIN)
}

/// 4.
fn check_compare_and_set(history: &History) -> Vec<String> {
    let mut faults = Vec::new();
    for write in &history.writes {
        let (Wish::SetIf(wanted), Some(made)) = (&write.wish, write.made()) else { continue };
        // Events of the same life leave the chain.
        let below = made.chain.get(1);
        let is_own = wanted.0 == made.event().0;
        if below != Some(wanted) && !(is_own && wanted.1 < made.event().1) {
            faults.push(format!("4: made on top of something else than was asked for: {write:?}"));
        }
    }
    // Two that named the same event at the same node: one of them lost an update.
    let mut taken: HashMap<(&str, &EventId, usize, u64), &Write> = HashMap::new();
    for write in &history.writes {
        let (Wish::SetIf(wanted), Some(_)) = (&write.wish, write.made()) else { continue };
        let key = (write.path.as_str(), wanted, write.node, write.life);
        if let Some(other) = taken.insert(key, write) {
            faults.push(format!("4: both were made on one version: {other:?} and {write:?}"));
        }
    }
    faults
}

/// 5.
fn check_reads(history: &History) -> Vec<String> {
    let mut faults = Vec::new();
    let mut writers: HashMap<(&str, &str), &Write> = HashMap::new();
    let mut deletions: BTreeMap<&str, Instant> = BTreeMap::new();
    let mut sets: BTreeMap<&str, Vec<&Write>> = BTreeMap::new();
    for write in &history.writes {
        match &write.value {
            Some(value) => {
                writers.insert((&write.path, value), write);
                sets.entry(&write.path).or_default().push(write);
            }
            None if write.is_possible() => {
                let first = deletions.entry(&write.path).or_insert(write.start);
                *first = write.start.min(*first);
            }
            None => {}
        }
    }
    for read in &history.reads {
        let path = read.path.as_str();
        match read.version.as_ref().and_then(|v| v.value.as_deref()) {
            Some(value) => match writers.get(&(path, value)) {
                Some(write) if write.start <= read.end && write.is_possible() => {}
                Some(write) => {
                    faults.push(format!("5: read before it was made: {read:?} {write:?}"))
                }
                None => faults.push(format!("5: nobody wrote that: {read:?}")),
            },
            None if deletions.get(path).is_some_and(|first| *first <= read.end) => {}
            None => {
                let spread = last_calm(history, read.start);
                let before = |w: &&&Write| {
                    w.made().is_some()
                        && (spread.is_some_and(|calm| w.end <= calm)
                            || ((w.node, w.life) == (read.node, read.life) && w.end <= read.start))
                };
                let there = sets.get(path).into_iter().flatten().find(before);
                if let Some(there) = there.filter(|w| !may_be_lost(history, w)) {
                    faults.push(format!("5: not found: {read:?}, but there was {there:?}"));
                }
            }
        }
    }
    faults.extend(check_order(history));
    faults
}

/// At one node, a path's tock never goes back.
fn check_order(history: &History) -> Vec<String> {
    // (start, end, tock) of all that one node told of a path.
    type Told = Vec<(Instant, Instant, u64)>;
    let mut told: BTreeMap<(usize, u64, &str), Told> = BTreeMap::new();
    for read in &history.reads {
        let Some(version) = &read.version else { continue };
        let key = (read.node, read.life, read.path.as_str());
        told.entry(key).or_default().push((read.start, read.end, version.tock));
    }
    for write in &history.writes {
        let Some(version) = write.made() else { continue };
        let key = (write.node, write.life, write.path.as_str());
        told.entry(key).or_default().push((write.start, write.end, version.tock));
    }
    let mut faults = Vec::new();
    for ((node, life, path), mut told) in told {
        told.sort();
        let mut ended: Vec<(Instant, u64)> = told.iter().map(|t| (t.1, t.2)).collect();
        ended.sort();
        let (mut at, mut greatest) = (0, 0);
        for (start, _, tock) in told {
            while let Some((end, earlier)) = ended.get(at).filter(|(end, _)| *end < start) {
                greatest = greatest.max(*earlier);
                let _ = end;
                at += 1;
            }
            if tock < greatest {
                faults.push(format!(
                    "5: {path} at n{node} (start {life}) goes back from tock {greatest} to {tock}"
                ));
                break;
            }
        }
    }
    faults
}

/// 6.
fn check_watches(history: &History) -> Vec<String> {
    let mut faults = Vec::new();
    let end = history.trees.values().next();
    for watch in &history.watches {
        let name = format!("6: the watch at n{} (start {})", watch.node, watch.life);
        let mut last: BTreeMap<&str, &Version> = BTreeMap::new();
        let mut told = BTreeSet::new();
        for (_, path, version) in &watch.items {
            told.insert((path.as_str(), version.event()));
            let Some(before) = last.insert(path, version) else { continue };
            if version.tock < before.tock {
                faults.push(format!("{name} goes back at {path}: {before:?}, then {version:?}"));
            } else if version == before && !watch.restarted {
                faults.push(format!("{name} tells the same twice at {path}: {version:?}"));
            }
        }
        let Some(since) = watch.up_to_date else { continue };
        let is_due = |w: &&Write| {
            (w.node, w.life) == (watch.node, watch.life)
                && w.start >= since
                && w.end + WATCH_LAG <= watch.end
        };
        for write in history.writes.iter().filter(is_due) {
            let Some(made) = write.made() else { continue };
            if !watch.restarted && !told.contains(&(write.path.as_str(), made.event())) {
                faults.push(format!("{name} never told of {write:?}"));
            }
        }
        let (true, Some(end)) = (watch.is_open, end) else { continue };
        for (path, version) in &last {
            let there = end.get(*path).and_then(|v| v.value.as_ref());
            if there != version.value.as_ref() {
                faults.push(format!(
                    "{name} ends with {version:?} at {path}, but there is {there:?}"
                ));
            }
        }
        for path in end.keys().filter(|path| !last.contains_key(path.as_str())) {
            faults.push(format!("{name} never told of {path}"));
        }
    }
    faults
}

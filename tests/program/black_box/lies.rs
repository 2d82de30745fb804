//! Lies that a bad store might tell, each put into a true history: the checker must find every one.

use super::history::{History, Version, Wish};

/// A lie: its name, and how it is told. Gives false where the history has nothing to lie about.
pub type Lie = (&'static str, fn(&mut History) -> bool);

pub const LIES: [Lie; 12] = [
    ("an acknowledged write is not there", lost_write),
    ("a deleted entry is back", back_from_the_dead),
    ("one node differs", divergence),
    ("a compare-and-set ignores its condition", blind_compare_and_set),
    ("a conflict is not reported", silent_conflict),
    ("a read gives what nobody wrote", invented_value),
    ("a read goes back", stale_read),
    ("a read finds nothing", empty_read),
    ("a watch skips a change", skipped_change),
    ("a watch swaps two changes", swapped_changes),
    ("a watch tells a change twice", doubled_change),
    ("an event is used twice", event_used_twice),
];

/// The greatest path for which something holds in all nodes' trees at the end.
fn at_the_end(history: &History, fits: impl Fn(&str, &Version) -> bool) -> Option<String> {
    let tree = history.trees.values().next()?;
    tree.iter().rev().find(|(path, version)| fits(path, version)).map(|(path, _)| path.clone())
}

fn lost_write(history: &mut History) -> bool {
    let is_acknowledged = |path: &str, version: &Version| {
        history.writes.iter().any(|w| w.path == path && w.made() == Some(version))
    };
    let is_deleted = |path: &str| {
        history.writes.iter().any(|w| w.path == path && w.wish == Wish::Delete && w.is_possible())
    };
    let Some(path) = at_the_end(history, |p, v| is_acknowledged(p, v) && !is_deleted(p))
        .or_else(|| at_the_end(history, is_acknowledged))
    else {
        return false;
    };
    for tree in history.trees.values_mut() {
        tree.remove(&path);
    }
    true
}

fn back_from_the_dead(history: &mut History) -> bool {
    let tree = history.trees.values().next().cloned().unwrap_or_default();
    let gone = history.writes.iter().find_map(|w| {
        let deletion =
            w.made().filter(|_| w.wish == Wish::Delete && !tree.contains_key(&w.path))?;
        let before = history.writes.iter().find(|o| {
            o.path == w.path
                && o.value.is_some()
                && o.made().is_some_and(|m| deletion.names(m.event()))
        })?;
        Some((w.path.clone(), before.made()?.clone()))
    });
    let Some((path, version)) = gone else { return false };
    for tree in history.trees.values_mut() {
        tree.insert(path.clone(), version.clone());
    }
    true
}

fn divergence(history: &mut History) -> bool {
    let Some(path) = at_the_end(history, |_, _| true) else { return false };
    let Some(tree) = history.trees.values_mut().next_back() else { return false };
    tree.get_mut(&path).is_some_and(|version| {
        version.value = Some(String::from("something else"));
        true
    })
}

fn blind_compare_and_set(history: &mut History) -> bool {
    // A write on top of a change is said to have been asked for on top of another one.
    let others: Vec<_> =
        history.writes.iter().filter_map(|w| Some(w.made()?.event().clone())).collect();
    for write in &mut history.writes {
        let Some(made) = write.made() else { continue };
        let Some(below) = made.chain.get(1) else { continue };
        let own = &made.event().0;
        if let Some(other) = others.iter().find(|e| *e != below && e.0 != *own) {
            write.wish = Wish::SetIf(other.clone());
            return true;
        }
    }
    false
}

fn silent_conflict(history: &mut History) -> bool {
    let had = !history.conflicts.is_empty();
    history.conflicts.clear();
    had
}

fn invented_value(history: &mut History) -> bool {
    let version = history.reads.iter_mut().find_map(|r| r.version.as_mut());
    version.is_some_and(|version| {
        version.value = Some(String::from("from nowhere"));
        true
    })
}

fn stale_read(history: &mut History) -> bool {
    let earlier = history.reads.clone();
    let later = history.reads.iter_mut().rev().find_map(|later| {
        let now = later.version.as_ref()?.tock;
        let before = earlier.iter().find(|e| {
            (e.node, e.life, &e.path) == (later.node, later.life, &later.path)
                && e.version.as_ref().is_some_and(|v| v.tock < now)
        })?;
        // Something between them has been told already.
        let between = earlier.iter().any(|b| {
            (b.node, b.life, &b.path) == (later.node, later.life, &later.path)
                && b.end < later.start
                && b.version.as_ref().map(|v| v.tock) > before.version.as_ref().map(|v| v.tock)
        });
        between.then(|| later.version.clone_from(&before.version))
    });
    later.is_some()
}

fn empty_read(history: &mut History) -> bool {
    let deleted: Vec<String> =
        history.writes.iter().filter(|w| w.wish == Wish::Delete).map(|w| w.path.clone()).collect();
    let sets: Vec<_> = history.writes.iter().filter(|w| w.made().is_some()).cloned().collect();
    let read = history.reads.iter_mut().find(|r| {
        !deleted.contains(&r.path)
            && sets
                .iter()
                .any(|w| (w.node, w.life, &w.path) == (r.node, r.life, &r.path) && w.end < r.start)
    });
    match read {
        Some(read) => {
            read.version = None;
            true
        }
        None => false,
    }
}

fn skipped_change(history: &mut History) -> bool {
    let own = |h: &History, watch: &super::history::Watch, version: &Version| {
        h.writes.iter().any(|w| {
            (w.node, w.life) == (watch.node, watch.life)
                && w.made().is_some_and(|m| m.event() == version.event())
                && watch.up_to_date.is_some_and(|at| w.start >= at)
                && w.end + std::time::Duration::from_secs(4) < watch.end
        })
    };
    let found = history.watches.iter().enumerate().find_map(|(n, watch)| {
        let at = watch.items.iter().position(|(_, _, version)| own(history, watch, version))?;
        (!watch.restarted).then_some((n, at))
    });
    let Some((n, at)) = found else { return false };
    history.watches[n].items.remove(at);
    true
}

fn swapped_changes(history: &mut History) -> bool {
    for watch in &mut history.watches {
        for at in 0..watch.items.len() {
            let (_, path, version) = &watch.items[at];
            let next = (at + 1..watch.items.len())
                .find(|n| watch.items[*n].1 == *path && watch.items[*n].2.tock > version.tock);
            if let Some(next) = next {
                watch.items.swap(at, next);
                return true;
            }
        }
    }
    false
}

fn doubled_change(history: &mut History) -> bool {
    let watch = history.watches.iter_mut().find(|w| !w.restarted && !w.items.is_empty());
    watch.is_some_and(|watch| {
        let last = watch.items[watch.items.len() - 1].clone();
        watch.items.push(last);
        true
    })
}

fn event_used_twice(history: &mut History) -> bool {
    let events: Vec<_> = history.writes.iter().filter_map(|w| w.made().cloned()).take(2).collect();
    let [first, second] = &events[..] else { return false };
    for write in &mut history.writes {
        if write.made() == Some(second) {
            let again = Version { chain: first.chain.clone(), ..second.clone() };
            write.fate = super::history::Fate::Made(again);
            return true;
        }
    }
    false
}

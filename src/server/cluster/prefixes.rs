//! Which beginnings of paths clients ask for most, found by samples in bounded memory: space-saving (Metwally, Agrawal,
//! El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams", 2005) over the first two elements
//! of the paths. What is told is an estimate: never too low by more than chance, and too high by `over` at most.

use std::cell::Cell;
use std::collections::HashMap;

use parking_lot::Mutex;

use crate::model::ids::Millis;
use crate::model::path::Path;

/// So many beginnings are counted at once. One that has a greater share than 1 of these is surely among them.
const PREFIXES_MAX: usize = 256;
/// One request in so many is looked at.
const SAMPLED: u64 = 64;
/// Elements of a beginning.
const ELEMENTS: usize = 2;
/// A beginning that is longer is counted by its first element; one whose first element is longer is not counted.
const PREFIX_BYTES_MAX: usize = 256;
/// Counts are halved this often, so that what was asked for long ago fades.
const FADE_MS: Millis = 60_000;

/// See the module.
#[derive(Default)]
pub(in crate::server) struct Prefixes {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By canonical bytes. Invariant: at most [`PREFIXES_MAX`].
    counts: HashMap<Box<[u8]>, Count>,
    least: Least,
    faded_at: Option<Millis>,
}

/// Which beginnings have the least count: where most are asked for once, many do, so that all are walked once for many
/// that are given up. Counts only grow until they are halved, so those that still have this count have the least.
#[derive(Default)]
struct Least {
    requests: u64,
    /// Those that had this count when all were walked; some may have grown since. At most [`PREFIXES_MAX`].
    prefixes: Vec<Box<[u8]>>,
}

/// About how often a beginning was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::server) struct Count {
    /// Requests, those of long ago counted less.
    pub(in crate::server) requests: u64,
    /// So many of them may belong to others.
    pub(in crate::server) over: u64,
}

impl Prefixes {
    /// This many requests are for a path in canonical bytes; most of them are not looked at.
    pub(super) fn note(&self, path: &[u8], count: u64) {
        thread_local! {
            static LEFT: Cell<u64> = const { Cell::new(SAMPLED) };
        }
        let left = LEFT.get();
        if count < left {
            LEFT.set(left - count);
            return;
        }
        LEFT.set(SAMPLED);
        // Nobody waits for it: what cannot be counted now is one sample less.
        if let Some(mut state) = self.state.try_lock() {
            state.add(path, SAMPLED.max(count));
        }
    }

    /// To be called every second.
    pub(super) fn fade(&self, now: Millis) {
        let mut state = self.state.lock();
        let since = *state.faded_at.get_or_insert(now);
        if now.saturating_sub(since) >= FADE_MS {
            state.faded_at = Some(now);
            state.halve();
        }
    }

    /// What is asked for most, by canonical bytes, the most first.
    pub(in crate::server) fn busiest(&self) -> Vec<(Box<[u8]>, Count)> {
        let state = self.state.lock();
        let mut all: Vec<_> = state.counts.iter().map(|(path, c)| (path.clone(), *c)).collect();
        drop(state);
        all.sort_unstable_by(|a, b| b.1.requests.cmp(&a.1.requests).then_with(|| a.0.cmp(&b.0)));
        all
    }
}

impl State {
    fn add(&mut self, path: &[u8], requests: u64) {
        let Some(prefix) = prefix_of(path) else { return };
        if let Some(count) = self.counts.get_mut(prefix) {
            count.requests = count.requests.saturating_add(requests);
            return;
        }
        let over = if self.counts.len() < PREFIXES_MAX { 0 } else { self.give_up_least() };
        let requests = requests.saturating_add(over);
        self.counts.insert(prefix.into(), Count { requests, over });
    }

    /// Gives up one that was asked for least, and returns how often that was.
    fn give_up_least(&mut self) -> u64 {
        let Least { requests, prefixes } = &mut self.least;
        let counts = &mut self.counts;
        let mut is_walked = false;
        loop {
            while let Some(prefix) = prefixes.pop() {
                if counts.get(&prefix).is_some_and(|count| count.requests == *requests) {
                    counts.remove(&prefix);
                    return *requests;
                }
            }
            if is_walked {
                return 0;
            }
            is_walked = true;
            *requests = counts.values().map(|count| count.requests).min().unwrap_or_default();
            let least = counts.iter().filter(|(_, count)| count.requests == *requests);
            prefixes.extend(least.map(|(prefix, _)| prefix.clone()));
        }
    }

    fn halve(&mut self) {
        self.least.prefixes.clear();
        self.counts.retain(|_, count| {
            (count.requests, count.over) = (count.requests / 2, count.over / 2);
            count.requests > 0
        });
    }
}

/// The beginning of a path that is counted; none for the root, and where it is too long.
fn prefix_of(path: &[u8]) -> Option<&[u8]> {
    let is_short = |end: &usize| *end <= PREFIX_BYTES_MAX;
    let whole = Path::from_canonical(path).ok()?;
    let end = whole.element_ends().take(ELEMENTS).take_while(is_short).last()?;
    path.get(..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Path {
        text.parse().unwrap()
    }

    fn names(prefixes: &Prefixes) -> Vec<(String, u64)> {
        let name = |path: &[u8]| Path::from_canonical(path).unwrap().to_string();
        prefixes.busiest().iter().map(|(path, c)| (name(path), c.requests)).collect()
    }

    #[test]
    fn paths_are_counted_by_their_first_two_elements() {
        let prefixes = Prefixes::default();
        for text in ["a.b.c", "a.b.d.e", "a.b", "x", ":"] {
            prefixes.state.lock().add(path(text).as_bytes(), 2);
        }
        let long = "y".repeat(200);
        prefixes.state.lock().add(path(&format!("{long}.{long}")).as_bytes(), 1);
        prefixes.state.lock().add(path(&long.repeat(2)).as_bytes(), 1);
        let expected = [("a.b".to_owned(), 6), ("x".to_owned(), 2), (long, 1)];
        assert_eq!(names(&prefixes), expected);
    }

    #[test]
    fn what_is_asked_for_often_stays_among_many_others_and_fades_later() {
        let prefixes = Prefixes::default();
        for n in 0..10_000 {
            prefixes.state.lock().add(path(&format!("rare.{n}")).as_bytes(), 1);
            if n % 4 == 0 {
                prefixes.state.lock().add(path("often.x.y").as_bytes(), 1);
            }
        }
        let found = prefixes.busiest();
        assert_eq!(found.len(), PREFIXES_MAX);
        let (first, count) = &found[0];
        assert_eq!(Path::from_canonical(first).unwrap(), path("often.x"));
        assert!(count.requests >= 2_500 && count.requests - count.over <= 2_500, "{count:?}");
        prefixes.fade(0);
        prefixes.fade(FADE_MS - 1);
        assert_eq!(prefixes.busiest()[0].1, *count);
        prefixes.fade(FADE_MS);
        assert_eq!(prefixes.busiest()[0].1.requests, count.requests / 2);
        for minute in 2..30 {
            prefixes.fade(minute * FADE_MS);
        }
        assert_eq!(prefixes.busiest(), []);
    }

    #[test]
    fn what_is_given_up_was_asked_for_least() {
        let mut state = State::default();
        for n in 0..PREFIXES_MAX {
            state.add(path(&format!("old.{n}")).as_bytes(), 1 + n as u64 % 7);
        }
        for n in 0..5_000_u64 {
            if n % 3 == 0 {
                // Some grow, also of those that would have been next.
                let often = path(&format!("new.{}", n.saturating_sub(n % 40)));
                state.add(often.as_bytes(), 1 + n % 5);
            }
            if n % 1_000 == 999 {
                state.halve();
            }
            let before = state.counts.clone();
            let new = path(&format!("new.{n}"));
            state.add(new.as_bytes(), 2 + n % 3);
            let gone: Vec<_> =
                before.iter().filter(|(prefix, _)| !state.counts.contains_key(*prefix)).collect();
            if before.len() < PREFIXES_MAX || before.contains_key(new.as_bytes()) {
                assert!(gone.is_empty(), "{n}: {gone:?}");
                continue;
            }
            let least = before.values().map(|count| count.requests).min().unwrap();
            assert_eq!(gone.len(), 1, "{n}");
            assert_eq!(gone[0].1.requests, least, "{n}");
            let count = state.counts[new.as_bytes()];
            assert_eq!(count, Count { requests: least + 2 + n % 3, over: least }, "{n}");
            assert!(state.least.prefixes.len() <= PREFIXES_MAX);
        }
    }

    #[test]
    fn one_request_in_so_many_stands_for_all_of_them() {
        let prefixes = Prefixes::default();
        for _ in 0..SAMPLED * 10 {
            prefixes.note(path("a").as_bytes(), 1);
        }
        assert_eq!(names(&prefixes), [("a".to_owned(), SAMPLED * 10)]);
        prefixes.note(path("b").as_bytes(), SAMPLED * 3);
        assert_eq!(names(&prefixes)[1], ("b".to_owned(), SAMPLED * 3));
    }
}

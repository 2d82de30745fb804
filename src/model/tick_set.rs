//! A set of ticks of one incarnation, as sorted ranges. Gossip makes these sets nearly
//! gap-free, so a set is almost always one range.

use smallvec::SmallVec;

use super::ids::Tick;
use super::limits::COUNTER_LIMIT;

/// A set of ticks, kept as sorted, disjoint, non-adjacent half-open ranges.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TickSet {
    /// Invariant: each `(from, to)` has `0 < from < to <= 2^62`, and each `from` is greater
    /// than the `to` before it.
    ranges: SmallVec<[(u64, u64); 1]>,
}

impl TickSet {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The set of `from..to`; empty when `to <= from`. `None` when a bound is out of range
    /// (ticks start at 1 and end below 2^62).
    #[must_use]
    pub fn range(from: u64, to: u64) -> Option<Self> {
        let mut set = Self::new();
        set.insert_range(from, to).then_some(set)
    }

    /// Whether there is no tick in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many ticks are in the set.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.ranges.iter().map(|(from, to)| to - from).sum()
    }

    /// How many ranges the set needs: what it costs to keep and to send.
    #[must_use]
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// The half-open ranges, rising.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().copied()
    }

    /// The ticks, rising. Mind the size: a range may span 2^62.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.ranges.iter().flat_map(|(from, to)| *from..*to)
    }

    /// The greatest tick, 0 if there is none.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.ranges.last().map_or(0, |(_, to)| to - 1)
    }

    /// The greatest n for which all of 1..=n are in the set.
    #[must_use]
    pub fn contiguous(&self) -> u64 {
        match self.ranges.first() {
            Some((1, to)) => to - 1,
            _ => 0,
        }
    }

    /// Whether a tick is in the set.
    #[must_use]
    pub fn contains(&self, tick: Tick) -> bool {
        self.contains_raw(tick.get())
    }

    fn contains_raw(&self, tick: u64) -> bool {
        let at = self.ranges.partition_point(|(_, to)| *to <= tick);
        self.ranges.get(at).is_some_and(|(from, _)| *from <= tick)
    }

    /// Whether all of another set is in this one.
    #[must_use]
    pub fn contains_all(&self, other: &Self) -> bool {
        other.ranges.iter().all(|(from, to)| {
            let at = self.ranges.partition_point(|(_, end)| *end <= *from);
            self.ranges.get(at).is_some_and(|(f, t)| f <= from && to <= t)
        })
    }

    /// Adds a tick; tells whether it was new. Tick 0 stands for "none" and is never in a set.
    pub fn insert(&mut self, tick: Tick) -> bool {
        let tick = tick.get();
        if tick == 0 || self.contains_raw(tick) {
            return false;
        }
        // Nearly always the tick after the last one.
        if let Some(last) = self.ranges.last_mut()
            && last.1 == tick
        {
            last.1 = tick + 1;
            return true;
        }
        self.insert_range(tick, tick + 1)
    }

    /// Adds `from..to`. `false`, and no change, when a bound is out of range.
    pub fn insert_range(&mut self, from: u64, to: u64) -> bool {
        if from == 0 || to > COUNTER_LIMIT {
            return false;
        }
        if to <= from {
            return true;
        }
        // All ranges that overlap or touch from..to melt into one.
        let first = self.ranges.partition_point(|(_, end)| *end < from);
        let last = self.ranges.partition_point(|(start, _)| *start <= to);
        let mut merged = (from, to);
        if let Some(touched) = self.ranges.get(first..last) {
            for (start, end) in touched {
                merged = (merged.0.min(*start), merged.1.max(*end));
            }
        }
        if first < last {
            if let Some(slot) = self.ranges.get_mut(first) {
                *slot = merged;
            }
            self.ranges.drain(first + 1..last);
        } else {
            self.ranges.insert(first, merged);
        }
        true
    }

    /// Adds all of another set; tells whether anything was new.
    pub fn union_with(&mut self, other: &Self) -> bool {
        if self.contains_all(other) {
            return false;
        }
        if self.ranges.len().min(other.ranges.len()) < 8 {
            for (from, to) in &other.ranges {
                self.insert_range(*from, *to);
            }
            return true;
        }
        // Both are fragmented: one linear merge instead of many inserts into the middle.
        let mut all: Vec<(u64, u64)> =
            self.ranges.iter().chain(other.ranges.iter()).copied().collect();
        all.sort_unstable();
        let mut merged: SmallVec<[(u64, u64); 1]> = SmallVec::new();
        for (from, to) in all {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        self.ranges = merged;
        true
    }

    /// What is in this set and not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut ranges = SmallVec::new();
        let mut skip = other.ranges.iter().peekable();
        for (from, to) in &self.ranges {
            let mut at = *from;
            while let Some((start, end)) = skip.peek() {
                if *end <= at {
                    skip.next();
                    continue;
                }
                if *start >= *to {
                    break;
                }
                if *start > at {
                    ranges.push((at, *start));
                }
                at = at.max(*end);
                if at >= *to {
                    break;
                }
                skip.next();
            }
            if at < *to {
                ranges.push((at, *to));
            }
        }
        Self { ranges }
    }

    /// The first so many ranges of the set.
    #[must_use]
    pub fn prefix(&self, ranges: usize) -> Self {
        Self { ranges: self.ranges.iter().take(ranges).copied().collect() }
    }

    /// The ticks from 1 to `highest` that are not in the set.
    #[must_use]
    pub fn missing_below(&self, highest: u64) -> Self {
        match Self::range(1, highest.saturating_add(1)) {
            Some(all) => all.difference(self),
            None => Self::new(),
        }
    }
}

impl FromIterator<Tick> for TickSet {
    fn from_iter<I: IntoIterator<Item = Tick>>(ticks: I) -> Self {
        let mut set = Self::new();
        for tick in ticks {
            set.insert(tick);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn set(ticks: &[u64]) -> TickSet {
        ticks.iter().map(|t| Tick::new(*t).unwrap()).collect()
    }

    #[test]
    fn neighbours_melt_into_one_range() {
        let s = set(&[1, 3, 2, 7]);
        assert_eq!(s.ranges().collect::<Vec<_>>(), [(1, 4), (7, 8)]);
        assert_eq!((s.contiguous(), s.max(), s.count()), (3, 7, 4));
        assert_eq!(s.missing_below(8).iter().collect::<Vec<_>>(), [4, 5, 6, 8]);
    }

    #[test]
    fn a_prefix_keeps_the_first_ranges() {
        let s = set(&[1, 2, 5, 9]);
        assert_eq!(s.prefix(2).ranges().collect::<Vec<_>>(), [(1, 3), (5, 6)]);
        assert_eq!(s.prefix(9), s);
        assert!(s.prefix(0).is_empty());
    }

    #[test]
    fn bounds_out_of_range_are_refused() {
        assert!(TickSet::range(0, 5).is_none());
        assert!(TickSet::range(1, (1 << 62) + 1).is_none());
        assert_eq!(TickSet::range(1, 1 << 62).unwrap().count(), (1 << 62) - 1);
        assert!(!TickSet::new().insert(Tick::default()));
    }

    fn check(s: &TickSet, model: &BTreeSet<u64>) {
        assert_eq!(s.iter().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
        let ranges: Vec<_> = s.ranges().collect();
        assert!(ranges.iter().all(|(from, to)| from < to));
        assert!(ranges.windows(2).all(|w| w[0].1 < w[1].0), "{ranges:?}");
    }

    proptest! {
        #[test]
        fn a_tick_set_behaves_like_a_set_of_numbers(
            a in proptest::collection::btree_set(1u64..200, 0..80),
            b in proptest::collection::btree_set(1u64..200, 0..80),
            from in 1u64..200, len in 0u64..40,
        ) {
            let (sa, sb) = (set(&a.iter().copied().collect::<Vec<_>>()),
                            set(&b.iter().rev().copied().collect::<Vec<_>>()));
            check(&sa, &a);
            check(&sb, &b);
            check(&sa.difference(&sb), &a.difference(&b).copied().collect());
            let mut union = sa.clone();
            prop_assert_eq!(union.union_with(&sb), !b.is_subset(&a));
            check(&union, &a.union(&b).copied().collect());
            prop_assert_eq!(sa.contains_all(&sb), b.is_subset(&a));
            let mut ranged = sa.clone();
            ranged.insert_range(from, from + len);
            check(&ranged, &a.iter().copied().chain(from..from + len).collect());
            for t in 1..200 {
                prop_assert_eq!(sa.contains(Tick::new(t).unwrap()), a.contains(&t));
            }
        }
    }
}

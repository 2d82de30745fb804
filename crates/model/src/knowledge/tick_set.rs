//! A set of ticks of one incarnation, as sorted ranges. Gossip makes these sets nearly
//! gap-free, so a set is almost always one range.

#[cfg(test)]
mod set_tests;

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::ids::Tick;
use crate::invariant::{OrBroken, costly_invariant};
use crate::limits::COUNTER_LIMIT;

/// With this many ranges or more they are kept in a tree: while a node catches up, ticks arrive in
/// the order of paths, and a set of a million of them has half a million ranges meanwhile.
const RANGES_LISTED_MAX: usize = 512;

/// The invariant of the ranges of a set.
const SORTED: &str = "ranges of ticks rise and are apart";

/// A set of ticks, kept as sorted, disjoint, non-adjacent half-open ranges.
#[derive(Clone, Default, Debug)]
pub struct TickSet {
    /// Invariant: each `(from, to)` has `0 < from < to <= 2^62`, and each `from` is greater
    /// than the `to` before it.
    ranges: Ranges,
    /// Invariant: how many ticks are in `ranges`. A set only ever grows while a node runs, so two
    /// looks at it that find the same count have seen the same set.
    count: u64,
}

/// The ranges, whichever way there are fewer steps.
#[derive(Clone, Debug)]
enum Ranges {
    Listed(SmallVec<[(u64, u64); 1]>),
    /// From each start to its end.
    Tree(BTreeMap<u64, u64>),
}

impl Default for Ranges {
    fn default() -> Self {
        Self::Listed(SmallVec::new())
    }
}

impl Ranges {
    /// Of ranges that are sorted and apart.
    fn from_sorted(ranges: SmallVec<[(u64, u64); 1]>) -> Self {
        if ranges.len() > RANGES_LISTED_MAX {
            Self::Tree(ranges.into_iter().collect())
        } else {
            Self::Listed(ranges)
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Listed(ranges) => ranges.len(),
            Self::Tree(ranges) => ranges.len(),
        }
    }

    fn iter(&self) -> RangeIter<'_> {
        self.iter_from(0)
    }

    /// The ranges that begin at `at` or later.
    fn iter_from(&self, at: u64) -> RangeIter<'_> {
        match self {
            Self::Listed(ranges) => {
                let first = ranges.partition_point(|(from, _)| *from < at);
                RangeIter::Listed(ranges.get(first..).or_broken(SORTED).iter())
            }
            Self::Tree(ranges) => RangeIter::Tree(ranges.range(at..)),
        }
    }

    fn last(&self) -> Option<(u64, u64)> {
        match self {
            Self::Listed(ranges) => ranges.last().copied(),
            Self::Tree(ranges) => ranges.last_key_value().map(|(from, to)| (*from, *to)),
        }
    }

    /// The last range that begins at `at` or before.
    fn before(&self, at: u64) -> Option<(u64, u64)> {
        match self {
            Self::Listed(ranges) => {
                let behind = ranges.partition_point(|(from, _)| *from <= at);
                ranges.get(behind.checked_sub(1)?).copied()
            }
            Self::Tree(ranges) => ranges.range(..=at).next_back().map(|(from, to)| (*from, *to)),
        }
    }

    /// Adds a non-empty range and merges all ranges that overlap or touch it. Returns how many
    /// ticks are new.
    fn insert(&mut self, from: u64, to: u64) -> u64 {
        match self {
            Self::Listed(ranges) => {
                let new = insert_listed(ranges, from, to);
                if ranges.len() > RANGES_LISTED_MAX {
                    *self = Self::from_sorted(std::mem::take(ranges));
                }
                new
            }
            Self::Tree(ranges) => {
                let new = insert_tree(ranges, from, to);
                // Far below, so that it does not go to and fro.
                if ranges.len() < RANGES_LISTED_MAX / 4 {
                    *self = Self::Listed(std::mem::take(ranges).into_iter().collect());
                }
                new
            }
        }
    }
}

fn insert_listed(ranges: &mut SmallVec<[(u64, u64); 1]>, from: u64, to: u64) -> u64 {
    // Nearly always the tick after the last one.
    if let Some(last) = ranges.last_mut()
        && last.1 == from
    {
        last.1 = to;
        return to - from;
    }
    let first = ranges.partition_point(|(_, end)| *end < from);
    let last = ranges.partition_point(|(start, _)| *start <= to);
    let (mut merged, mut before) = ((from, to), 0);
    for (start, end) in ranges.get(first..last).or_broken(SORTED) {
        before += end - start;
        merged = (merged.0.min(*start), merged.1.max(*end));
    }
    if first < last {
        *ranges.get_mut(first).or_broken(SORTED) = merged;
        ranges.drain(first + 1..last);
    } else {
        ranges.insert(first, merged);
    }
    let is_apart = |pair: &[(u64, u64)]| matches!(pair, [(_, end), (start, _)] if end < start);
    let around = first.saturating_sub(1)..ranges.len().min(first + 2);
    costly_invariant!(
        ranges.get(around).or_broken(SORTED).windows(2).all(is_apart),
        "ranges of ticks rise and are apart"
    );
    merged.1 - merged.0 - before
}

fn insert_tree(ranges: &mut BTreeMap<u64, u64>, from: u64, to: u64) -> u64 {
    let (mut merged, mut before) = ((from, to), 0);
    if let Some((start, end)) = ranges.range(..=from).next_back()
        && *end >= from
    {
        before += end - start;
        merged = (*start, to.max(*end));
    }
    while let Some((start, end)) = ranges.range(merged.0 + 1..=merged.1).next() {
        let (start, end) = (*start, *end);
        before += end - start;
        merged.1 = merged.1.max(end);
        ranges.remove(&start);
    }
    ranges.insert(merged.0, merged.1);
    costly_invariant!(
        ranges.range(..merged.0).next_back().is_none_or(|(_, end)| *end < merged.0),
        "ranges of ticks rise and are apart"
    );
    costly_invariant!(
        ranges.range(merged.0 + 1..).next().is_none_or(|(start, _)| merged.1 < *start),
        "ranges of ticks rise and are apart"
    );
    merged.1 - merged.0 - before
}

/// See [`TickSet::ranges`].
#[derive(Clone)]
enum RangeIter<'a> {
    Listed(std::slice::Iter<'a, (u64, u64)>),
    Tree(std::collections::btree_map::Range<'a, u64, u64>),
}

impl Iterator for RangeIter<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        match self {
            Self::Listed(ranges) => ranges.next().copied(),
            Self::Tree(ranges) => ranges.next().map(|(from, to)| (*from, *to)),
        }
    }
}

impl PartialEq for TickSet {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count
            && match (&self.ranges, &other.ranges) {
                (Ranges::Listed(ours), Ranges::Listed(theirs)) => ours == theirs,
                (ours, theirs) => ours.len() == theirs.len() && ours.iter().eq(theirs.iter()),
            }
    }
}

impl Eq for TickSet {}

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

    /// The set of these half-open ranges. `None` unless they are rising, apart, and in range.
    #[must_use]
    pub fn from_ranges(ranges: impl IntoIterator<Item = (u64, u64)>) -> Option<Self> {
        let ranges: SmallVec<[(u64, u64); 1]> = ranges.into_iter().collect();
        let mut end = 0;
        for (from, to) in &ranges {
            if *from <= end || to <= from || *to > COUNTER_LIMIT {
                return None;
            }
            end = *to;
        }
        Some(Self::from_sorted(ranges))
    }

    /// Whether there is no tick in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.len() == 0
    }

    /// How many ticks are in the set.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Of ranges that are sorted, apart and in range.
    fn from_sorted(ranges: SmallVec<[(u64, u64); 1]>) -> Self {
        costly_invariant!(
            ranges.windows(2).all(|pair| matches!(pair, [(_, end), (start, _)] if end < start)),
            "ranges of ticks rise and are apart"
        );
        costly_invariant!(
            ranges.iter().all(|(from, to)| 0 < *from && from < to && *to <= COUNTER_LIMIT),
            "a range of ticks is not empty, and within 1 and 2^62"
        );
        let count = ranges.iter().map(|(from, to)| to - from).sum();
        Self { ranges: Ranges::from_sorted(ranges), count }
    }

    /// How many ranges the set needs, which determines its size in memory and in messages.
    #[must_use]
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// The half-open ranges, rising.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + Clone + '_ {
        self.ranges.iter()
    }

    /// The ticks, rising. Mind the size: a range may span 2^62.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.ranges().flat_map(|(from, to)| from..to)
    }

    /// The greatest tick, 0 if there is none.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.ranges.last().map_or(0, |(_, to)| to - 1)
    }

    /// The greatest n for which all of 1..=n are in the set.
    #[must_use]
    pub fn contiguous(&self) -> u64 {
        match self.ranges().next() {
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
        self.ranges.before(tick).is_some_and(|(_, to)| tick < to)
    }

    /// Whether all of another set is in this one.
    #[must_use]
    pub fn contains_all(&self, other: &Self) -> bool {
        other.ranges().all(|(from, to)| self.ranges.before(from).is_some_and(|(_, end)| to <= end))
    }

    /// Adds a tick; returns whether it was new. Tick 0 stands for "none" and is never in a set.
    pub fn insert(&mut self, tick: Tick) -> bool {
        let tick = tick.get();
        if tick == 0 || self.contains_raw(tick) {
            return false;
        }
        self.insert_range(tick, tick + 1)
    }

    /// Adds `from..to`. `false`, and no change, when a bound is out of range.
    pub fn insert_range(&mut self, from: u64, to: u64) -> bool {
        if from == 0 || to > COUNTER_LIMIT {
            return false;
        }
        if to > from {
            self.count += self.ranges.insert(from, to);
        }
        true
    }

    /// Adds all ticks of another set; returns whether any was new.
    pub fn union_with(&mut self, other: &Self) -> bool {
        if self.contains_all(other) {
            return false;
        }
        if self.is_empty() {
            *self = other.clone();
            return true;
        }
        // A part of a long list, or a short set: the place of each range is searched.
        let is_little = other.ranges.len() < 8 || other.ranges.len() < self.ranges.len() / 16;
        if is_little || self.ranges.len() < 8 {
            for (from, to) in other.ranges() {
                self.insert_range(from, to);
            }
            return true;
        }
        // Both are fragmented: one linear merge instead of many inserts into the middle.
        let mut all: Vec<(u64, u64)> = self.ranges().chain(other.ranges()).collect();
        all.sort_unstable();
        let mut merged: SmallVec<[(u64, u64); 1]> = SmallVec::new();
        for (from, to) in all {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        *self = Self::from_sorted(merged);
        true
    }

    /// The ticks that are in this set and not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut ranges = SmallVec::new();
        let mut skip = other.ranges().peekable();
        for (from, to) in self.ranges() {
            let mut at = from;
            while let Some((start, end)) = skip.peek().copied() {
                if end <= at {
                    skip.next();
                    continue;
                }
                if start >= to {
                    break;
                }
                if start > at {
                    ranges.push((at, start));
                }
                at = at.max(end);
                if at >= to {
                    break;
                }
                skip.next();
            }
            if at < to {
                ranges.push((at, to));
            }
        }
        Self::from_sorted(ranges)
    }

    /// The ticks that are in both sets.
    #[must_use]
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        self.difference(&self.difference(other))
    }

    /// The ticks above a tick.
    #[must_use]
    pub(crate) fn above(&self, tick: u64) -> Self {
        match Self::range(1, tick.saturating_add(1)) {
            Some(below) => self.difference(&below),
            None => self.clone(),
        }
    }

    /// A part of the set, for lists that are sent in several messages: at most the given number of
    /// ranges, from the first one that begins at `from` or later. Also the place where the next
    /// part begins, if there is one.
    #[must_use]
    pub(crate) fn part(&self, from: u64, ranges_max: usize) -> (Self, Option<u64>) {
        let mut ranges = self.ranges.iter_from(from);
        let part: SmallVec<[(u64, u64); 1]> = ranges.by_ref().take(ranges_max).collect();
        let next = ranges.next().map(|(from, _)| from);
        (Self::from_sorted(part), next)
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
    use crate::tick_set::*;
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
    fn the_parts_of_a_set_are_all_of_it() {
        let s = set(&[1, 2, 5, 9]);
        assert_eq!(s.part(0, 2), (set(&[1, 2, 5]), Some(9)));
        assert_eq!(s.part(9, 2), (set(&[9]), None));
        assert_eq!(s.part(0, 9), (s.clone(), None));
        let many: TickSet = scattered(RANGES_LISTED_MAX as u64 * 2).collect();
        let (mut whole, mut at) = (TickSet::new(), Some(0));
        while let Some(from) = at {
            let (part, next) = many.part(from, 100);
            assert!(part.range_count() <= 100 && whole.union_with(&part));
            at = next;
        }
        assert_eq!(whole, many);
    }

    #[test]
    fn a_set_is_clipped_and_cut_with_another() {
        let s = set(&[1, 2, 3, 5, 9]);
        assert_eq!(s.above(2), set(&[3, 5, 9]));
        assert_eq!(s.above(0), s);
        assert_eq!(s.above(9), set(&[]));
        assert_eq!(s.intersection(&set(&[2, 4, 5])), set(&[2, 5]));
        assert_eq!(s.intersection(&set(&[])), set(&[]));
    }

    #[test]
    fn only_ranges_that_are_sorted_and_apart_are_a_set() {
        let s = set(&[1, 2, 5, 9]);
        assert_eq!(TickSet::from_ranges(s.ranges()), Some(s));
        assert_eq!(TickSet::from_ranges([]), Some(TickSet::new()));
        let bad = [&[(0, 2)][..], &[(2, 2)], &[(1, 3), (3, 4)], &[(5, 6), (1, 2)], &[(3, 1)]];
        assert!(bad.iter().all(|ranges| TickSet::from_ranges(ranges.iter().copied()).is_none()));
        assert!(TickSet::from_ranges([(1, (1 << 62) + 1)]).is_none());
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
        assert_eq!(s.count(), model.len() as u64);
    }

    /// Ticks that are all apart, in an order without order.
    fn scattered(count: u64) -> impl Iterator<Item = Tick> {
        (0..count).map(move |i| Tick::new((i * 7919 % count) * 2 + 1).unwrap())
    }

    #[test]
    fn a_set_of_many_ranges_is_the_same_set() {
        let count = RANGES_LISTED_MAX as u64 * 4;
        let mut many = TickSet::new();
        let mut model = BTreeSet::new();
        for tick in scattered(count) {
            assert!(many.insert(tick));
            assert!(!many.insert(tick));
            model.insert(tick.get());
        }
        check(&many, &model);
        assert!(matches!(many.ranges, Ranges::Tree(_)));
        assert_eq!((many.max(), many.contiguous()), (count * 2 - 1, 1));
        let (few, _) = many.part(0, 10);
        assert!(matches!(few.ranges, Ranges::Listed(_)));
        assert!(many.contains_all(&few) && !few.contains_all(&many));
        assert_eq!(many.difference(&few).range_count(), count as usize - 10);
        let mut both = few.clone();
        assert!(both.union_with(&many));
        assert_eq!(both, many);
        // The gaps fill, and it is one range again.
        for tick in scattered(count) {
            assert!(many.insert(Tick::new(tick.get() + 1).unwrap()));
        }
        assert_eq!(many, TickSet::range(1, count * 2 + 1).unwrap());
        assert!(matches!(many.ranges, Ranges::Listed(_)));
    }

    #[test]
    fn a_tree_of_ranges_and_a_list_of_them_are_equal() {
        let ticks: Vec<Tick> = scattered(RANGES_LISTED_MAX as u64 + 1).collect();
        let mut tree: TickSet = ticks.iter().copied().collect();
        assert!(matches!(tree.ranges, Ranges::Tree(_)));
        tree.insert_range(1, 200);
        let (list, _) = tree.part(0, usize::MAX);
        assert!(matches!(list.ranges, Ranges::Listed(_)));
        assert!(matches!(tree.ranges, Ranges::Tree(_)));
        assert_eq!(tree, list);
    }

    proptest! {
        #[test]
        fn ranges_in_a_tree_melt_as_in_a_list(
            inserts in proptest::collection::vec((1u64..400, 1u64..20), 0..120),
        ) {
            let mut tree = BTreeMap::new();
            let mut list = SmallVec::new();
            for (from, length) in inserts {
                insert_tree(&mut tree, from, from + length);
                insert_listed(&mut list, from, from + length);
                prop_assert_eq!(tree.iter().map(|(f, t)| (*f, *t)).collect::<Vec<_>>(), list.to_vec());
            }
        }

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

//! A histogram that threads may add to at any time without waiting for each other.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::table::{Kind, Name};

/// Durations by size. The bounds are those of the table's metric; one bucket more is for what is longer.
#[derive(Debug)]
pub struct Histogram {
    bounds_us: &'static [u64],
    counts: Vec<AtomicU64>,
    sum_us: AtomicU64,
}

/// A histogram at one moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HistogramNumbers {
    /// The upper bound of each bucket in seconds, the last one infinite, and how many durations it has; not
    /// added up.
    pub(crate) buckets: Vec<(f64, u64)>,
    /// The sum of all durations, seconds.
    pub sum: f64,
    /// How many there are.
    pub count: u64,
}

impl Histogram {
    /// An empty one; `bounds_us` are microseconds, rising.
    #[must_use]
    pub fn new(bounds_us: &'static [u64]) -> Self {
        let counts = (0..=bounds_us.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds_us, counts, sum_us: AtomicU64::new(0) }
    }

    /// An empty one with the bounds that the table has for a metric; none of its own if that is no histogram.
    #[must_use]
    pub fn of(name: Name) -> Self {
        match name.metric().map(|metric| metric.kind) {
            Some(Kind::Histogram(bounds_us)) => Self::new(bounds_us),
            _ => Self::new(&[]),
        }
    }

    /// Adds a duration in microseconds.
    pub fn add_us(&self, us: u64) {
        let place = self.bounds_us.partition_point(|bound| *bound < us);
        if let Some(count) = self.counts.get(place) {
            count.fetch_add(1, Ordering::Relaxed);
            self.sum_us.fetch_add(us, Ordering::Relaxed);
        }
    }

    /// What was added so far.
    #[must_use]
    pub fn numbers(&self) -> HistogramNumbers {
        let bounds = self.bounds_us.iter().map(|us| seconds(*us)).chain([f64::INFINITY]);
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        HistogramNumbers { buckets, sum: seconds(self.sum_us.load(Ordering::Relaxed)), count }
    }
}

impl HistogramNumbers {
    /// An empty one with such bounds, microseconds.
    #[must_use]
    pub(crate) fn empty(bounds_us: &'static [u64]) -> Self {
        Histogram::new(bounds_us).numbers()
    }

    /// What was added since an earlier moment of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = earlier.buckets.iter().map(|(_, count)| *count).chain(std::iter::repeat(0));
        let grown =
            |((bound, now), before): (&(f64, u64), u64)| (*bound, now.saturating_sub(before));
        Self {
            buckets: self.buckets.iter().zip(before).map(grown).collect(),
            sum: (self.sum - earlier.sum).max(0.0),
            count: self.count.saturating_sub(earlier.count),
        }
    }

    /// The time within which that part of the durations stayed (0.5: half of them), seconds. Within a bucket they
    /// are taken to lie evenly; of those above the last bound nothing is known, so that bound is told. None if
    /// there are none.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a quantile is an estimate")]
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let wanted = part.clamp(0.0, 1.0) * self.count as f64;
        let (mut below, mut from) = (0_u64, 0.0);
        for (bound, count) in &self.buckets {
            let until = below.saturating_add(*count);
            if *count > 0 && until as f64 >= wanted {
                let share = (wanted - below as f64).max(0.0) / *count as f64;
                return Some(if bound.is_finite() { from + (bound - from) * share } else { from });
            }
            (below, from) = (until, if bound.is_finite() { *bound } else { from });
        }
        None
    }
}

#[allow(clippy::cast_precision_loss, reason = "microseconds of centuries are exact")]
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_in_the_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::new(&[100, 1_000]);
        for us in [0, 100, 101, 1_000, 5_000_000] {
            histogram.add_us(us);
        }
        let numbers = histogram.numbers();
        assert_eq!(numbers.buckets, [(0.0001, 2), (0.001, 2), (f64::INFINITY, 1)]);
        assert_eq!(numbers.count, 5);
        assert!((numbers.sum - 5.001_201).abs() < 1e-9, "{}", numbers.sum);
        assert_eq!(HistogramNumbers::empty(&[100]).count, 0);
    }
    #[test]
    fn a_quantile_lies_in_its_bucket_and_nothing_has_none() {
        let histogram = Histogram::new(&[100, 1_000, 2_000]);
        assert_eq!(histogram.numbers().quantile(0.5), None);
        let near = |numbers: &HistogramNumbers, part: f64, wanted: f64| {
            let found = numbers.quantile(part).unwrap();
            assert!((found - wanted).abs() < 1e-9, "{part}: {found} {wanted}");
        };
        (0..90).for_each(|_| histogram.add_us(50));
        (0..10).for_each(|_| histogram.add_us(1_500));
        let first = histogram.numbers();
        near(&first, 0.0, 0.0);
        near(&first, 0.45, 0.000_05);
        near(&first, 0.9, 0.000_1);
        near(&first, 0.95, 0.001_5);
        near(&first, 1.0, 0.002);
        near(&first, 7.0, 0.002);
        // Only what came later counts, and what is longer than all bounds is at least as long as the last one.
        histogram.add_us(9_000);
        let later = histogram.numbers().since(&first);
        assert_eq!(later.count, 1);
        assert!((later.sum - 0.009).abs() < 1e-9, "{}", later.sum);
        near(&later, 0.5, 0.002);
        assert_eq!(first.since(&first).quantile(0.5), None);
        assert_eq!(HistogramNumbers::default().quantile(0.5), None);
    }
}

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
    pub buckets: Vec<(f64, u64)>,
    /// The sum of all durations, seconds.
    pub sum: f64,
    /// How many there are.
    pub count: u64,
}

impl Histogram {
    /// An empty one; `bounds_us` are microseconds, rising.
    #[must_use]
    pub(crate) fn new(bounds_us: &'static [u64]) -> Self {
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
}

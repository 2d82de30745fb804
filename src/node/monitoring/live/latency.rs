//! How long answers took, and syncs of the log, second by second for ten minutes: half of them within one time, 99 %
//! within another, as the histograms of the metrics say.

use std::array;
use std::collections::VecDeque;

use distkv_metrics::HistogramNumbers;
use serde_json::{Value as Json, json};

use super::rates::{LIVE_SECONDS_MAX, micros};
use crate::node::Inner;

/// A second's times are those of so many seconds up to it: only one answer in 16 is timed, and of one second there
/// are too few.
const LATENCY_SPAN_SECONDS: usize = 10;

/// How many histograms there are.
pub(super) const COUNT: usize = 6;

/// What they are of; the requests in the order of `TimedKind`.
const KEPT: [&str; COUNT] = [
    "reads",
    "writes",
    "writes with copies",
    "lists, watches",
    "other requests",
    "syncs of the log",
];

/// The histograms at one moment.
pub(super) type Times = [HistogramNumbers; COUNT];

/// Microseconds within which half stayed, and 99 %, and of how many.
type Quantiles = (u64, u64, u64);

/// See the module.
#[derive(Default)]
pub(super) struct Latency {
    /// As they were at the last seconds, the oldest first.
    moments: VecDeque<Times>,
    kept: VecDeque<[Option<Quantiles>; COUNT]>,
}

impl Latency {
    /// To be called every second.
    pub(super) fn add(&mut self, times: Times) {
        let first = self.moments.front().unwrap_or(&times);
        self.kept.push_back(array::from_fn(|at| {
            let (now, before) = (times.get(at)?, first.get(at)?);
            let span = now.since(before);
            Some((micros(span.quantile(0.5)?), micros(span.quantile(0.99)?), span.count))
        }));
        while self.kept.len() > LIVE_SECONDS_MAX {
            self.kept.pop_front();
        }
        self.moments.push_back(times);
        while self.moments.len() > LATENCY_SPAN_SECONDS {
            self.moments.pop_front();
        }
    }

    /// What they are of.
    pub(super) fn names() -> Json {
        json!(KEPT)
    }

    /// The last so many seconds: for each kind the two times and the number, or null if there was none.
    pub(super) fn last(&self, seconds: usize) -> Json {
        let from = self.kept.len().saturating_sub(seconds);
        self.kept.range(from..).map(|second| json!(second)).collect()
    }
}

/// The histograms of this moment.
pub(super) fn times(inner: &Inner) -> Times {
    let counts = inner.server.counts();
    let mut answers = counts.all.times().map(|(_, times)| times);
    let syncs = inner.durable.as_ref().map(|durable| durable.sync_times());
    array::from_fn(|at| {
        let is_last = at + 1 == COUNT;
        if is_last { syncs.clone() } else { answers.next() }.unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use distkv_metrics::Histogram;

    const BOUNDS: &[u64] = &[100, 1_000, 10_000];

    fn of(reads: &Histogram) -> Times {
        let mut times = Times::default();
        times[0] = reads.numbers();
        times
    }

    #[test]
    fn a_second_tells_of_the_answers_of_the_last_ten_and_of_none_where_there_were_none() {
        let (mut latency, reads) = (Latency::default(), Histogram::new(BOUNDS));
        // What was before the first second is not of this time.
        reads.add_us(9_000);
        latency.add(of(&reads));
        assert_eq!(latency.last(1)[0], json!([null, null, null, null, null, null]));
        (0..99).for_each(|_| reads.add_us(60));
        reads.add_us(5_000);
        latency.add(of(&reads));
        assert_eq!(latency.last(1)[0][0], json!([50, 100, 100]));
        assert_eq!(latency.last(1)[0][1], Json::Null);
        for _ in 0..LATENCY_SPAN_SECONDS - 1 {
            latency.add(of(&reads));
        }
        assert_eq!(latency.last(1)[0][0], json!([50, 100, 100]));
        latency.add(of(&reads));
        assert_eq!(latency.last(1)[0][0], Json::Null, "ten seconds later");
        assert_eq!(latency.last(3).as_array().map(Vec::len), Some(3));
    }

    #[test]
    fn ten_minutes_are_kept() {
        let mut latency = Latency::default();
        (0..2 * LIVE_SECONDS_MAX).for_each(|_| latency.add(Times::default()));
        assert_eq!(latency.last(usize::MAX).as_array().map(Vec::len), Some(LIVE_SECONDS_MAX));
        assert_eq!(latency.moments.len(), LATENCY_SPAN_SECONDS);
        assert_eq!(latency.last(0), json!([]));
        assert_eq!(Latency::names().as_array().map(Vec::len), Some(COUNT));
    }
}

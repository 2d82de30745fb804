//! The numbers of one moment, by metric and labels.

use std::collections::BTreeMap;

use crate::histogram::HistogramNumbers;
use crate::table::{Kind, Label, METRICS, Metric, Name};

/// Most series that one metric with free labels has; further ones are left out. A node has at most 256 links.
const SERIES_MAX: usize = 256;

/// A number.
#[derive(Clone, PartialEq, Debug)]
pub enum Number {
    /// A count.
    Whole(u64),
    /// A measure.
    Real(f64),
    /// Durations by size.
    Histogram(HistogramNumbers),
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<usize> for Number {
    fn from(number: usize) -> Self {
        Self::Whole(number as u64)
    }
}

impl From<bool> for Number {
    fn from(number: bool) -> Self {
        Self::Whole(u64::from(number))
    }
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl From<HistogramNumbers> for Number {
    fn from(number: HistogramNumbers) -> Self {
        Self::Histogram(number)
    }
}

/// The series of a metric: values of its labels, in their order, with the number.
pub type Series = BTreeMap<Vec<String>, Number>;

/// All metrics at one moment. Every series whose labels are known is there from the beginning, with 0.
#[derive(Clone, PartialEq, Debug)]
pub struct Numbers {
    series: BTreeMap<Name, Series>,
}

impl Default for Numbers {
    fn default() -> Self {
        let series = METRICS.iter().map(|metric| (metric.name, first_series(metric)));
        Self { series: series.collect() }
    }
}

impl Numbers {
    /// Sets a number. `labels`: the values of the metric's labels, in their order.
    pub fn set(&mut self, name: Name, labels: &[&str], number: impl Into<Number>) {
        let series = self.series.entry(name).or_default();
        let key: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        if series.len() < SERIES_MAX || series.contains_key(&key) {
            series.insert(key, number.into());
        }
    }

    /// A metric's series.
    pub(crate) fn series(&self, name: Name) -> impl Iterator<Item = (&[String], &Number)> {
        let series = self.series.get(&name).into_iter().flatten();
        series.map(|(labels, number)| (labels.as_slice(), number))
    }
}

/// What a metric has before anything was set.
fn first_series(metric: &Metric) -> Series {
    let mut keys: Vec<Vec<String>> = vec![Vec::new()];
    for label in metric.labels {
        let Label::Fixed(_, values) = label else { return Series::new() };
        let with = |key: &Vec<String>, value: &&str| {
            let mut key = key.clone();
            key.push((*value).to_owned());
            key
        };
        keys = keys.iter().flat_map(|key| values.iter().map(move |v| with(key, v))).collect();
    }
    let zero = match metric.kind {
        Kind::Counter | Kind::Gauge => Number::Whole(0),
        Kind::Histogram(bounds) => Number::Histogram(HistogramNumbers::empty(bounds)),
    };
    keys.into_iter().map(|key| (key, zero.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_series_is_there_with_zero_and_no_other() {
        let numbers = Numbers::default();
        let of = |name| numbers.series(name).map(|(l, n)| (l.join(","), n.clone()));
        let conflicts: Vec<_> = of(Name::Conflicts).collect();
        assert_eq!(conflicts, [(String::new(), Number::Whole(0))]);
        let entries: Vec<_> = of(Name::Entries).collect();
        let zero = Number::Whole(0);
        assert_eq!(entries, [("deleted".into(), zero.clone()), ("live".into(), zero)]);
        assert_eq!(of(Name::LinkQueueBytes).count(), 0);
        assert_eq!(of(Name::LogSyncSeconds).count(), 1);
    }

    #[test]
    fn there_are_never_more_series_than_may_be() {
        let mut numbers = Numbers::default();
        for peer in 0..SERIES_MAX + 10 {
            numbers.set(Name::LinkQueueBytes, &[&peer.to_string()], 1_u64);
        }
        assert_eq!(numbers.series(Name::LinkQueueBytes).count(), SERIES_MAX);
        numbers.set(Name::LinkQueueBytes, &["0"], 7_u64);
        let first = numbers.series(Name::LinkQueueBytes).next().unwrap();
        assert_eq!(first, (&[String::from("0")][..], &Number::Whole(7)));
    }
}

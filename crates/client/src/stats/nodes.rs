//! What went to each node, and how long it took to answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;

use super::{count, of};

/// Buckets of a histogram; the last one has everything from about 67 s on.
pub const LATENCY_BUCKETS: usize = 28;

/// Most nodes with counters; further ones have none.
const COUNTED_NODES_MAX: usize = 4096;

/// What went to one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// Tries that were begun there, also those that were not sent, since the node had failed just now.
    pub tries: u64,
    /// Those of them that did not succeed, whatever the reason is: also a refusal that a program expects, as of
    /// [`must_be_new`](crate::PutOptions::must_be_new) where there is an entry.
    pub failures: u64,
    /// Those of them that were answered, by time: bucket `i` has those that took 2^(i-1) to 2^i - 1 µs.
    pub latency: [u64; LATENCY_BUCKETS],
}

impl NodeStats {
    /// An upper bound of the time that this share (0 to 1) of the answered tries took; zero without any.
    ///
    /// ```
    /// use std::time::Duration;
    /// use distkv_client::NodeStats;
    ///
    /// let mut node = NodeStats::default();
    /// node.latency[7] = 99; // 64 to 127 µs
    /// node.latency[11] = 1; // 1,024 to 2,047 µs
    /// assert_eq!(node.quantile(0.5), Duration::from_micros(128));
    /// assert_eq!(node.quantile(1.0), Duration::from_micros(2048));
    /// ```
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        let all: u64 = self.latency.iter().sum();
        let wanted = share * all as f64;
        let mut seen = 0;
        for (bucket, count) in self.latency.iter().enumerate() {
            seen += count;
            if seen > 0 && seen as f64 >= wanted {
                return Duration::from_micros(1 << bucket);
            }
        }
        Duration::ZERO
    }
}

/// The counters behind it. Equal to each other, so that what has them compares by the rest.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeCounts {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    tries: AtomicU64,
    failures: AtomicU64,
    latency: [AtomicU64; LATENCY_BUCKETS],
}

impl PartialEq for NodeCounts {
    fn eq(&self, _: &NodeCounts) -> bool {
        true
    }
}

impl Eq for NodeCounts {}

impl NodeCounts {
    pub(crate) fn on_try(&self) {
        count(&self.inner.tries);
    }

    pub(crate) fn on_failure(&self) {
        count(&self.inner.failures);
    }

    /// A try was answered after so many microseconds.
    pub(crate) fn on_answer(&self, took_us: u64) {
        let bucket = (u64::BITS - took_us.leading_zeros()) as usize;
        if let Some(counter) = self.inner.latency.get(bucket.min(LATENCY_BUCKETS - 1)) {
            count(counter);
        }
    }

    fn stats(&self) -> NodeStats {
        let mut stats = NodeStats {
            tries: of(&self.inner.tries),
            failures: of(&self.inner.failures),
            ..NodeStats::default()
        };
        stats.latency.iter_mut().zip(&self.inner.latency).for_each(|(to, from)| *to = of(from));
        stats
    }
}

/// The counters of all nodes that there ever were, by their names.
#[derive(Debug, Default)]
pub(crate) struct NodeTable {
    nodes: Mutex<BTreeMap<String, NodeCounts>>,
}

impl NodeTable {
    /// A node's; of one too many, some that nobody sees.
    pub(crate) fn of(&self, name: &str) -> NodeCounts {
        let mut nodes = self.nodes.lock();
        match nodes.get(name) {
            Some(counts) => counts.clone(),
            None if nodes.len() >= COUNTED_NODES_MAX => NodeCounts::default(),
            None => nodes.entry(name.to_owned()).or_default().clone(),
        }
    }

    /// Of all nodes to which something went.
    pub(crate) fn stats(&self) -> BTreeMap<String, NodeStats> {
        let nodes = self.nodes.lock();
        let all = nodes.iter().map(|(name, counts)| (name.clone(), counts.stats()));
        all.filter(|(_, stats)| stats.tries > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_by_powers_of_two() {
        let table = NodeTable::default();
        let counts = table.of("n1");
        for took in [0, 1, 2, 3, 4, 127, 128, u64::MAX] {
            counts.on_try();
            counts.on_answer(took);
        }
        counts.on_try();
        table.of("n1").on_failure();
        let _never_used = table.of("n2");
        let stats = table.stats();
        assert_eq!(stats.len(), 1);
        let node = stats["n1"];
        assert_eq!((node.tries, node.failures), (9, 1));
        assert_eq!(node.latency[..5], [1, 1, 2, 1, 0]);
        assert_eq!((node.latency[7], node.latency[8]), (1, 1));
        assert_eq!(node.latency[LATENCY_BUCKETS - 1], 1);
        assert_eq!(node.quantile(0.0), Duration::from_micros(1));
        assert_eq!(node.quantile(0.5), Duration::from_micros(4));
        assert_eq!(node.quantile(1.0), Duration::from_micros(1 << (LATENCY_BUCKETS - 1)));
        assert_eq!(NodeStats::default().quantile(0.9), Duration::ZERO);
    }

    #[test]
    fn the_table_does_not_grow_without_end() {
        let table = NodeTable::default();
        for i in 0..COUNTED_NODES_MAX + 10 {
            table.of(&i.to_string()).on_try();
        }
        assert_eq!(table.stats().len(), COUNTED_NODES_MAX);
    }
}

//! What a client has done so far: counters for people and for tests.

mod nodes;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::pool::PoolStats;
use super::retry::{ErrorClass, Reason};
use super::shard_map::ShardMapStats;
use super::topology::TopologyStats;
pub use nodes::{LATENCY_BUCKETS, NodeStats};
pub(crate) use nodes::{NodeCounts, NodeTable};

/// Everything; each part is of its own moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientStats {
    /// Where tries went.
    pub router: RouterStats,
    /// Connections.
    pub pool: PoolStats,
    /// The cluster view.
    pub topology: TopologyStats,
    /// Calls and their tries.
    pub retry: RetryStats,
    /// Reads, and what this client wrote.
    pub reads: ReadStats,
    /// Watches.
    pub watches: WatchStats,
    /// The table of overrides of preferred nodes.
    pub shards: ShardMapStats,
    /// Tasks of the client that go on at present; none once [`Client::close`](crate::Client::close) has returned.
    pub tasks: usize,
}

/// Where tries went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouterStats {
    /// To the node that is preferred for the path.
    pub to_preferred: u64,
    /// To another one.
    pub to_others: u64,
    /// Overrides of preferred nodes in force.
    pub overrides: u64,
    /// What went to each node, by its name, also to those that are gone; of 4,096 nodes at most. A node that was
    /// never reached has its address as its name.
    pub nodes: BTreeMap<String, NodeStats>,
    /// How many shards have this node as their preferred one, by its name.
    pub shards: BTreeMap<String, u64>,
}

/// Calls and their tries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetryStats {
    /// Calls that went to nodes.
    pub calls: u64,
    /// Tries after the first of a call.
    pub retries: u64,
    /// Tries that failed since the node could not do it now, and did not: also those that were not sent, since it could not be
    /// reached, or had failed just now.
    pub unavailable: u64,
    /// Tries that failed since the node had too much to do.
    pub overload: u64,
    /// Tries that a node gave up.
    pub aborted: u64,
    /// Tries that took too long.
    pub timed_out: u64,
    /// Tries that may have been carried out.
    pub fate_unknown: u64,
    /// Tries that a node refused for good, also by a precondition.
    pub refused: u64,
    /// Calls that ended since their time was up, or after as many tries as there may be.
    pub deadlines: u64,
    /// Calls that ended since another try could have done it twice.
    pub unsafe_to_retry: u64,
}

/// Reads, and what this client wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadStats {
    /// Answers that were older than what this client wrote, so that another node was asked.
    pub stale_answers: u64,
    /// Reads whose answer was taken although it was: the node that took the write was gone.
    pub stale_taken: u64,
}

/// Watches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WatchStats {
    /// Times that a watch lost its node.
    pub lost: u64,
    /// Times that one continued at another node where it was.
    pub resumed: u64,
    /// Times that one had to start over.
    pub restarted: u64,
    /// Versions that came again and were not delivered.
    pub repeats: u64,
}

/// The counters behind them.
#[derive(Debug, Default)]
pub(super) struct Counts {
    calls: AtomicU64,
    retries: AtomicU64,
    to_preferred: AtomicU64,
    to_others: AtomicU64,
    unavailable: AtomicU64,
    overload: AtomicU64,
    aborted: AtomicU64,
    timed_out: AtomicU64,
    fate_unknown: AtomicU64,
    refused: AtomicU64,
    deadlines: AtomicU64,
    unsafe_to_retry: AtomicU64,
    pub(super) stale_answers: AtomicU64,
    pub(super) stale_taken: AtomicU64,
    pub(super) watches_lost: AtomicU64,
    pub(super) watches_resumed: AtomicU64,
    pub(super) watches_restarted: AtomicU64,
    pub(super) watch_repeats: AtomicU64,
}

/// Counts one.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What it counts to.
pub(super) fn of(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Counts {
    pub(super) fn call(&self) {
        count(&self.calls);
    }

    pub(super) fn on_try(&self, attempt: u32, is_preferred: bool) {
        count(if is_preferred { &self.to_preferred } else { &self.to_others });
        if attempt > 1 {
            count(&self.retries);
        }
    }

    pub(super) fn on_failure(&self, class: ErrorClass) {
        count(match class {
            ErrorClass::Unavailable => &self.unavailable,
            ErrorClass::Overload | ErrorClass::Busy => &self.overload,
            ErrorClass::Aborted => &self.aborted,
            ErrorClass::TryDeadline => &self.timed_out,
            ErrorClass::FateUnknown | ErrorClass::UnknownThere => &self.fate_unknown,
            ErrorClass::Final => &self.refused,
        });
    }

    pub(super) fn give_up(&self, reason: Reason) {
        match reason {
            Reason::Deadline => count(&self.deadlines),
            Reason::FateUnknown => count(&self.unsafe_to_retry),
            Reason::Final => {}
        }
    }

    pub(super) fn router(&self) -> RouterStats {
        RouterStats {
            to_preferred: of(&self.to_preferred),
            to_others: of(&self.to_others),
            ..RouterStats::default()
        }
    }

    pub(super) fn retry(&self) -> RetryStats {
        RetryStats {
            calls: of(&self.calls),
            retries: of(&self.retries),
            unavailable: of(&self.unavailable),
            overload: of(&self.overload),
            aborted: of(&self.aborted),
            timed_out: of(&self.timed_out),
            fate_unknown: of(&self.fate_unknown),
            refused: of(&self.refused),
            deadlines: of(&self.deadlines),
            unsafe_to_retry: of(&self.unsafe_to_retry),
        }
    }

    pub(super) fn reads(&self) -> ReadStats {
        ReadStats { stale_answers: of(&self.stale_answers), stale_taken: of(&self.stale_taken) }
    }

    pub(super) fn watches(&self) -> WatchStats {
        WatchStats {
            lost: of(&self.watches_lost),
            resumed: of(&self.watches_resumed),
            restarted: of(&self.watches_restarted),
            repeats: of(&self.watch_repeats),
        }
    }
}

//! How the view of the cluster is followed.

use std::time::Duration;

/// The shortest pause after no candidate could be reached: one task of the process looks for the nodes of all clients.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(1);
/// The shortest time after which nodes without a view are asked again.
const OLD_NODES_DELAY_MIN: Duration = Duration::from_millis(10);

/// How the manager behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopologyConfig {
    /// How long a node may take to begin to send its view.
    pub first_view_timeout: Duration,
    /// The wait after no candidate could be reached; doubles up to the next. At least 1 ms.
    pub retry_delay: Duration,
    /// The longest that [`TopologyConfig::retry_delay`] becomes. At least 1 ms.
    pub retry_delay_max: Duration,
    /// How often nodes without a view are asked again: after 10 ms at the earliest.
    pub old_nodes_delay: Duration,
    /// Use only the seeds, whatever nodes report: for networks where the reported addresses cannot
    /// be reached. Without a view there is no read mode `freshest`.
    pub only_seeds: bool,
}

impl Default for TopologyConfig {
    fn default() -> TopologyConfig {
        TopologyConfig {
            first_view_timeout: Duration::from_secs(3),
            retry_delay: Duration::from_millis(50),
            retry_delay_max: Duration::from_secs(1),
            old_nodes_delay: Duration::from_secs(10),
            only_seeds: false,
        }
    }
}

impl TopologyConfig {
    /// With pauses that leave the thread, and the nodes, time for something else.
    pub(super) fn bounded(self) -> TopologyConfig {
        TopologyConfig {
            retry_delay: self.retry_delay.max(RETRY_DELAY_MIN),
            retry_delay_max: self.retry_delay_max.max(RETRY_DELAY_MIN),
            old_nodes_delay: self.old_nodes_delay.max(OLD_NODES_DELAY_MIN),
            ..self
        }
    }
}

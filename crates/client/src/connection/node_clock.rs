//! The clock of the node at the other end, by which a request says until when it counts (docs/client-protocol.md, "The time
//! of a try"): what a network, or a node that stood still, delivers later is not carried out.
//!
//! What is counted is never ahead of the node's clock, so that nothing counts longer than it should. It may be behind: by as
//! long as a message of the node was on its way, and a little more each hour. Then the node refuses what is still
//! waited for, and says what its clock is.

use std::time::Duration;

use parking_lot::Mutex;

use crate::model::ids::Millis;
use crate::rt;

/// Of so many milliseconds one is left out: the clocks of two machines differ by less.
const SLACK: u64 = 4096;
/// What the node's clock and the count of it are rounded down by, together, milliseconds.
const ROUNDED: u64 = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct NodeClock(Mutex<Option<Told>>);

/// What the node has said last.
#[derive(Debug, Clone, Copy)]
struct Told {
    /// By the node's clock.
    clock: u64,
    /// By this process's.
    at: Millis,
}

impl Told {
    /// The least that the node's clock can say at that time of this process.
    fn now(self, at: Millis) -> u64 {
        let since = at.saturating_sub(self.at);
        self.clock.saturating_add(since - since.div_ceil(SLACK))
    }
}

impl NodeClock {
    /// That of a greeting; nodes of former versions do not tell it.
    pub(super) fn new(greeted: Option<u64>) -> NodeClock {
        NodeClock(Mutex::new(greeted.map(|clock| Told { clock, at: rt::now() })))
    }

    /// The node has said what its clock is. Whether that is ahead of what was counted.
    pub(super) fn hear(&self, clock: u64) -> bool {
        let at = rt::now();
        let mut told = self.0.lock();
        let is_ahead = told.is_some_and(|told| told.now(at) < clock);
        if is_ahead {
            *told = Some(Told { clock, at });
        }
        is_ahead
    }

    /// What the node's clock will say after this time; none if the node does not tell it. All that was rounded down on the
    /// way is added: else what has a millisecond would always be too late.
    pub(super) fn after(&self, time: Duration) -> Option<u64> {
        let told = (*self.0.lock())?;
        let time = u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Some(told.now(rt::now()).saturating_add(time).saturating_add(ROUNDED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_clock_is_counted_on_and_never_ahead_of_it() {
        let told = Told { clock: 1_000, at: 50 };
        assert_eq!(
            [50, 51, 52, 50 + 4096, 50 + 4097].map(|at| told.now(at)),
            [1_000, 1_000, 1_001, 5_095, 5_095]
        );
        assert_eq!(told.now(7), 1_000, "never back");
        assert_eq!(Told { clock: u64::MAX, at: 0 }.now(9), u64::MAX);
    }

    #[test]
    fn only_what_is_ahead_of_what_was_counted_is_heard() {
        let clock = NodeClock::new(Some(1 << 40));
        let soon = || clock.after(Duration::ZERO).unwrap();
        assert!(!clock.hear(5));
        assert!((1 << 40..1 << 41).contains(&soon()));
        assert!(clock.hear(1 << 42));
        assert!((1 << 42..1 << 43).contains(&soon()));
        assert_eq!(clock.after(Duration::MAX), Some(u64::MAX));
    }

    #[test]
    fn of_a_node_that_tells_no_clock_nothing_is_known() {
        let clock = NodeClock::new(None);
        assert!(!clock.hear(7));
        assert_eq!(clock.after(Duration::ZERO), None);
    }
}

//! The greatest tock that a client has heard of, Lamport's clock: what it writes says so, and comes after all that it knows,
//! at whichever node. Without that, a node whose own clock is behind would let the write lose to an older one of the
//! same client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::message::Fields;
use crate::model::ids::Tock;
use crate::retry::deviations::{Rule, is_broken};

/// See the module; clones share it. All connections of a client hear.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock(Arc<AtomicU64>);

impl Clock {
    /// A node has answered with this tock, or has sent it in a stream.
    pub(crate) fn hear(&self, tock: u64) {
        // What is out of their range no node would take.
        if tock > self.latest() && Tock::new(tock).is_some() {
            self.0.fetch_max(tock, Ordering::Relaxed);
        }
    }

    fn latest(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The field of a write: it comes after what was heard.
    pub(crate) fn write_into(&self, to: &mut Fields) {
        let latest = self.latest();
        if latest > 0 && !is_broken(Rule::OwnOrder) {
            to.u64("above", latest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_counts_and_nothing_that_is_no_tock() {
        let clock = Clock::default();
        for tock in [5, 3, 1 << 62, u64::MAX] {
            clock.clone().hear(tock);
        }
        let mut fields = Fields::new();
        clock.write_into(&mut fields);
        assert_eq!(fields.encode(), b"\x81\xa5above\x05");
    }
}

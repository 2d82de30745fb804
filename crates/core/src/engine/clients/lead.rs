//! How far clients may move this node's clock (docs/client-protocol.md, "A client's own order").
//!
//! A client says which tock it has heard of, and nothing proves that. One that says what it likes must not bring the
//! clock near its end, where nobody can change anything any more. So all clients of a node together have an allowance,
//! which grows with time: in the long run they move its clock no faster than a busy network does by its changes.

use crate::model::ids::{Millis, Tock};

/// The most by which clients may move the clock at once: more than a network makes changes in many hours in which one of
/// its nodes is cut off.
pub(in crate::engine) const CLOCK_LEAD_MAX: u64 = 1 << 32;
/// By so much the allowance grows in a millisecond. If a thousand nodes used up all of it without a pause, the
/// clock would last for more than a hundred years.
const CLOCK_LEAD_PER_MS: u64 = 1 << 10;

/// What is left of the allowance.
#[derive(Debug)]
pub(in crate::engine) struct ClockLead {
    left: u64,
    /// Of this time.
    at: Millis,
}

impl Default for ClockLead {
    fn default() -> Self {
        Self { left: CLOCK_LEAD_MAX, at: 0 }
    }
}

impl ClockLead {
    fn left(&self, now: Millis) -> u64 {
        let grown = now.saturating_sub(self.at).saturating_mul(CLOCK_LEAD_PER_MS);
        self.left.saturating_add(grown).min(CLOCK_LEAD_MAX)
    }

    /// What of a tock that a client has heard of counts at a node with this clock: all of it, or nothing.
    pub(in crate::engine) fn believed(&self, heard: Tock, clock: Tock, now: Millis) -> Tock {
        match lead(heard, clock) <= self.left(now) {
            true => heard,
            false => Tock::default(),
        }
    }

    /// A change was made above a tock that counts; the clock was at that before.
    pub(in crate::engine) fn take(&mut self, heard: Tock, clock: Tock, now: Millis) {
        let lead = lead(heard, clock);
        if lead > 0 {
            *self = Self { left: self.left(now).saturating_sub(lead), at: now };
        }
    }
}

fn lead(heard: Tock, clock: Tock) -> u64 {
    heard.get().saturating_sub(clock.get())
}

//! What happens when: a heap of events, in the order of their times, and at the same time in the
//! order in which they were planned. The virtual clock jumps from one to the next.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::model::ids::Millis;

/// The events to come.
pub(super) struct Schedule<T> {
    heap: BinaryHeap<Planned<T>>,
    planned: u64,
    now: Millis,
}

struct Planned<T> {
    at: Millis,
    sequence: u64,
    what: T,
}

impl<T> Schedule<T> {
    /// Nothing is planned yet.
    pub(super) fn new(now: Millis) -> Self {
        Self { heap: BinaryHeap::new(), planned: 0, now }
    }

    /// The virtual clock.
    pub(super) fn now(&self) -> Millis {
        self.now
    }

    /// Plans an event; what lies in the past happens next.
    pub(super) fn plan(&mut self, at: Millis, what: T) {
        self.planned += 1;
        self.heap.push(Planned { at: at.max(self.now), sequence: self.planned, what });
    }

    /// Turns the clock to the next event and takes it.
    pub(super) fn next(&mut self) -> Option<T> {
        let planned = self.heap.pop()?;
        self.now = planned.at;
        Some(planned.what)
    }
}

impl<T> Ord for Planned<T> {
    /// The earliest is the greatest, as the heap wants it.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl<T> PartialOrd for Planned<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Planned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Planned<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_of_planning() {
        let mut schedule = Schedule::new(10);
        for (at, what) in [(30, 'c'), (20, 'a'), (30, 'd'), (5, 'x'), (20, 'b')] {
            schedule.plan(at, what);
        }
        let mut order = Vec::new();
        while let Some(what) = schedule.next() {
            order.push((schedule.now(), what));
        }
        assert_eq!(order, [(10, 'x'), (20, 'a'), (20, 'b'), (30, 'c'), (30, 'd')]);
    }
}

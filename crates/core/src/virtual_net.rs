//! What every simulated network has: a virtual clock with the events to come ([`Schedule`]), and who hears
//! nothing of whom ([`Cuts`]). The tests of the election and of membership use it, and the simulator; a node
//! is built without.

use std::cmp::Ordering;
use std::collections::{BTreeSet, BinaryHeap};

/// What happens when: events in the order of their times, and at the same time in the order in which they
/// were planned. The virtual clock jumps from one to the next. Its unit is the caller's.
pub struct Schedule<T> {
    heap: BinaryHeap<Planned<T>>,
    planned: u64,
    now: u64,
}

struct Planned<T> {
    at: u64,
    sequence: u64,
    what: T,
}

impl<T> Schedule<T> {
    /// Nothing is planned yet.
    #[must_use]
    pub fn new(now: u64) -> Self {
        Self { heap: BinaryHeap::new(), planned: 0, now }
    }

    /// The virtual clock.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Plans an event; what lies in the past happens next.
    pub fn plan(&mut self, at: u64, what: T) {
        self.planned += 1;
        self.heap.push(Planned { at: at.max(self.now), sequence: self.planned, what });
    }

    /// When the next event is.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|planned| planned.at)
    }

    /// Turns the clock to the next event and takes it.
    #[expect(clippy::should_implement_trait, reason = "the clock turns: it is no iteration")]
    pub fn next(&mut self) -> Option<T> {
        let planned = self.heap.pop()?;
        self.now = planned.at;
        Some(planned.what)
    }

    /// Turns the clock on to a time before which nothing happens.
    #[cfg(test)]
    pub(crate) fn turn_to(&mut self, at: u64) {
        self.now = self.now.max(at);
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

/// Directions between nodes, by number, in which nothing gets through.
#[derive(Default)]
pub struct Cuts(BTreeSet<(usize, usize)>);

impl Cuts {
    /// Nothing gets from one node to another any more; tells whether that is new.
    pub fn cut(&mut self, from: usize, to: usize) -> bool {
        self.0.insert((from, to))
    }

    /// Nothing gets from either node to the other any more; tells whether that is new.
    pub fn cut_both(&mut self, a: usize, b: usize) -> bool {
        // Both, in any case.
        self.cut(a, b) | self.cut(b, a)
    }

    /// Everything gets from one node to another.
    pub fn mend(&mut self, from: usize, to: usize) {
        self.0.remove(&(from, to));
    }

    /// Everything gets everywhere; gives the directions in which it did not.
    pub fn heal(&mut self) -> impl Iterator<Item = (usize, usize)> + use<> {
        std::mem::take(&mut self.0).into_iter()
    }

    /// Whether nothing gets from one node to another.
    #[must_use]
    pub fn is_cut(&self, from: usize, to: usize) -> bool {
        self.0.contains(&(from, to))
    }

    /// Whether nothing gets through in one of the two directions.
    #[must_use]
    pub fn is_cut_somehow(&self, a: usize, b: usize) -> bool {
        self.is_cut(a, b) || self.is_cut(b, a)
    }

    /// Whether everything gets everywhere.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_of_planning() {
        let mut schedule = Schedule::new(10);
        for (at, what) in [(30, 'c'), (20, 'a'), (30, 'd'), (5, 'x'), (20, 'b')] {
            schedule.plan(at, what);
        }
        assert_eq!(schedule.next_at(), Some(10), "what lies in the past happens next");
        let mut order = Vec::new();
        while let Some(what) = schedule.next() {
            order.push((schedule.now(), what));
        }
        assert_eq!(order, [(10, 'x'), (20, 'a'), (20, 'b'), (30, 'c'), (30, 'd')]);
        schedule.turn_to(20);
        assert_eq!(schedule.now(), 30, "it never goes back");
        schedule.turn_to(40);
        assert_eq!(schedule.now(), 40);
    }

    #[test]
    fn a_cut_has_a_direction() {
        let mut cuts = Cuts::default();
        assert!(cuts.cut(1, 2) && !cuts.cut(1, 2));
        assert!(cuts.is_cut(1, 2) && !cuts.is_cut(2, 1) && cuts.is_cut_somehow(2, 1));
        assert!(cuts.cut_both(1, 2), "one direction is new");
        assert!(!cuts.cut_both(2, 1));
        cuts.mend(1, 2);
        assert_eq!(cuts.heal().collect::<Vec<_>>(), [(2, 1)]);
        assert!(cuts.is_empty());
    }
}

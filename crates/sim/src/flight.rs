//! What is under way in one direction of a connection. It keeps its order (TCP): nothing overtakes.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::protocol::frame::{BODY_BYTES_MAX, split_frame};

/// Frames on their way, with the times of their arrivals, in the unit of the network's clock.
#[derive(Clone, Default)]
pub(crate) struct Flight {
    frames: VecDeque<(u64, Arc<[u8]>)>,
    /// The latest time of arrival so far.
    last: u64,
    /// An arrival is planned.
    is_planned: bool,
}

impl Flight {
    /// A frame sets out that arrives then, or with the one before it if that is later.
    pub(crate) fn send(&mut self, arrives: u64, frame: Arc<[u8]>) {
        self.last = self.last.max(arrives);
        self.frames.push_back((self.last, frame));
    }

    /// How many are under way.
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// When the last one that ever set out arrives.
    pub(crate) fn last_arrival(&self) -> u64 {
        self.last
    }

    /// The time of the next arrival, if it must be planned now: there is one, and none is planned.
    pub(crate) fn plan(&mut self) -> Option<u64> {
        let (at, _) = self.frames.front().filter(|_| !self.is_planned)?;
        self.is_planned = true;
        Some(*at)
    }

    /// The planned arrival is here.
    pub(crate) fn is_due(&mut self) {
        self.is_planned = false;
    }

    /// The frame that arrives next, if that is by then.
    pub(crate) fn take(&mut self, by: u64) -> Option<Arc<[u8]>> {
        self.frames.pop_front_if(|(at, _)| *at <= by).map(|(_, frame)| frame)
    }

    /// The connection breaks: only so many of them arrive.
    pub(crate) fn cut(&mut self, arrive: usize) {
        self.frames.truncate(arrive);
    }
}

/// Frames that were written at once, each by itself, so that a connection can break between two of them.
pub(crate) fn frames_of(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let frame = split_frame(bytes, BODY_BYTES_MAX).ok().flatten()?;
        let (frame, rest) = bytes.split_at(frame.length);
        bytes = rest;
        Some(frame)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overtakes_and_one_arrival_is_planned_at_a_time() {
        let frame = |byte: u8| -> Arc<[u8]> { Arc::from([byte]) };
        let mut flight = Flight::default();
        assert_eq!(flight.plan(), None);
        flight.send(30, frame(1));
        flight.send(20, frame(2));
        flight.send(40, frame(3));
        assert_eq!((flight.plan(), flight.plan()), (Some(30), None));
        assert_eq!(flight.take(29), None);
        flight.is_due();
        let arrived: Vec<_> = std::iter::from_fn(|| flight.take(30)).collect();
        assert_eq!(arrived, [frame(1), frame(2)]);
        assert_eq!(flight.plan(), Some(40));
        flight.cut(0);
        flight.is_due();
        assert_eq!((flight.len(), flight.plan(), flight.last_arrival()), (0, None, 40));
    }
}

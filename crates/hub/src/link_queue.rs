//! What waits to be written to one peer: frames, bounded in bytes, and with lower priority a
//! catch-up that is being answered. The engine only ever tries to push; if a peer does not keep up,
//! its queue is emptied and marked as lagging, and the peer later fetches what it missed.

use std::collections::VecDeque;
use std::sync::Arc;

use event_listener::Event;
use parking_lot::Mutex;

use crate::engine::{CloseReason, ServeJob};
use crate::model::defects::{Defect, Defects};
use crate::model::invariant::OrBroken;

/// Most bytes that wait for one peer. Above a burst of ten thousand small changes, and far
/// below what would be felt with 48 peers that all stand still (one frame may exceed it alone).
const LINK_QUEUE_BYTES_MAX: usize = 4 << 20;
/// What one frame costs beyond its bytes, so that tiny frames are bounded too.
const FRAME_COST: usize = 48;

/// Frames of one moment are joined up to about this many bytes. A queue that overflows drops all it
/// has, so this is no loss; it is what a writer takes at once.
const TOGETHER_BYTES: usize = 64 << 10;

/// A catch-up that waits gets its turn after this many batches of frames: under heavy writing there
/// are always frames, and a joining node would never finish.
const FRAME_BATCHES_MAX: u32 = 8;

/// The queue of one link. Every method is short and never blocks.
pub struct LinkQueue {
    state: Mutex<State>,
    bytes_max: usize,
    defects: Defects,
    /// Fires when there may be something to do.
    pub changed: Event,
}

#[derive(Default)]
struct State {
    frames: VecDeque<Frames>,
    bytes: usize,
    lagging: bool,
    dropped: u64,
    /// What was queued since the link was made.
    queued: QueuedTotal,
    serve: Option<Box<ServeJob>>,
    /// Batches of frames that went out while the catch-up waited.
    frame_batches: u32,
    close: Option<CloseReason>,
}

/// Frames, one behind the other, in one allocation that all queues share.
struct Frames {
    bytes: Arc<[u8]>,
    count: u32,
}

/// Frames of one moment that go to the same links, put together: each queue takes them at once.
#[derive(Default)]
pub(super) struct Together {
    first: Option<Arc<[u8]>>,
    /// All of them, if there are more than one.
    all: Vec<u8>,
    count: u32,
}

impl Together {
    /// Adds a frame. Take them out when [`Self::is_full`].
    pub(super) fn add(&mut self, frame: Arc<[u8]>) {
        self.count += 1;
        match &self.first {
            None => self.first = Some(frame),
            Some(first) => {
                if self.all.is_empty() {
                    self.all.extend_from_slice(first);
                }
                self.all.extend_from_slice(&frame);
            }
        }
    }

    /// Whether no more should be added.
    pub(super) fn is_full(&self) -> bool {
        let first = self.first.as_ref().map_or(0, |first| first.len());
        self.all.len().max(first) >= TOGETHER_BYTES
    }

    /// Takes them out, and how many they are.
    pub(super) fn take(&mut self) -> Option<(Arc<[u8]>, u32)> {
        let Self { first, all, count } = std::mem::take(self);
        let first = first?;
        Some((if all.is_empty() { first } else { all.into() }, count))
    }
}

/// Frames that were queued for peers, and their bytes; without answers to catch-ups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueuedTotal {
    /// How many frames.
    pub frames: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// How often a queue was emptied because it was full.
    pub overflows: u64,
}

impl QueuedTotal {
    /// Adds what another queue had.
    pub(crate) fn add(&mut self, other: Self) {
        self.frames += other.frames;
        self.bytes += other.bytes;
        self.overflows += other.overflows;
    }
}

/// What the writer should do next.
pub enum LinkWork {
    /// Write these frames, in this order.
    Frames(Vec<Arc<[u8]>>),
    /// The queue had overflowed and is empty now: tell the engine
    /// ([`crate::engine::Input::Lagged`]), which queues a digest.
    Lagged,
    /// Nothing else waits, or it is its turn: send the next part of this catch-up, then hand it
    /// back with [`LinkQueue::put_back`] unless it is done.
    Serve(Box<ServeJob>),
    /// Close the link.
    Close(CloseReason),
    /// Wait for [`LinkQueue::changed`] (listen first, then look again).
    Wait,
}

impl LinkQueue {
    pub(super) fn new() -> Self {
        Self::bounded(LINK_QUEUE_BYTES_MAX, Defects::default())
    }

    /// With another bound, which simulations set.
    pub fn bounded(bytes_max: usize, defects: Defects) -> Self {
        Self { state: Mutex::default(), bytes_max, defects, changed: Event::new() }
    }

    /// Most bytes that wait.
    #[cfg(any(test, feature = "planted-defects"))]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Sets another bound; what waits stays.
    #[cfg(any(test, feature = "planted-defects"))]
    pub fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Queues a frame; drops everything and marks the link as lagging on overflow. Returns whether
    /// the writer must be woken: it looks again by itself while frames wait.
    #[must_use]
    pub fn push(&self, frame: Arc<[u8]>) -> bool {
        self.push_many(frame, 1)
    }

    /// As above, for several frames, one behind the other.
    #[must_use]
    pub(super) fn push_many(&self, frame: Arc<[u8]>, count: u32) -> bool {
        let mut state = self.state.lock();
        if state.lagging {
            state.dropped += u64::from(count);
            return false;
        }
        let was_empty = state.frames.is_empty();
        let cost = frame.len() + FRAME_COST;
        if state.bytes + cost > self.bytes_max && !state.frames.is_empty() {
            state.lagging = !self.defects.has(Defect::LagNotMarked);
            let waited: u64 = state.frames.iter().map(|frames| u64::from(frames.count)).sum();
            state.dropped += waited + u64::from(count);
            state.queued.overflows += 1;
            state.frames.clear();
            state.bytes = 0;
            return true;
        }
        state.bytes += cost;
        state.queued.add(QueuedTotal {
            frames: u64::from(count),
            bytes: frame.len() as u64,
            overflows: 0,
        });
        state.frames.push_back(Frames { bytes: frame, count });
        was_empty
    }

    /// Takes a catch-up to answer; gives back the one that it replaces, which may hold the last
    /// snapshot of a big tree and must not be dropped under the engine's guard.
    #[must_use]
    pub fn serve(&self, job: Box<ServeJob>) -> Option<Box<ServeJob>> {
        self.state.lock().serve.replace(job)
    }

    /// Ends the link, with this reason.
    pub fn close(&self, reason: CloseReason) {
        self.state.lock().close = Some(reason);
    }

    /// Whether frames were dropped and the peer does not know yet.
    #[must_use]
    pub fn is_lagging(&self) -> bool {
        self.state.lock().lagging
    }

    /// How many frames were dropped since the link stands.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.state.lock().dropped
    }

    /// What was queued since the link was made.
    #[must_use]
    pub(crate) fn queued(&self) -> QueuedTotal {
        self.state.lock().queued
    }

    /// Bytes that wait.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// What to do next; frames of about `bytes_max` bytes at once. Queued frames go out even when
    /// the link is being closed, so that a farewell arrives.
    pub fn next(&self, bytes_max: usize) -> LinkWork {
        let mut state = self.state.lock();
        if state.frame_batches >= FRAME_BATCHES_MAX && state.close.is_none() {
            state.frame_batches = 0;
            if let Some(job) = state.serve.take() {
                return LinkWork::Serve(job);
            }
        }
        let mut frames = Vec::new();
        let mut taken = 0;
        while taken < bytes_max
            && let Some(Frames { bytes: frame, .. }) = state.frames.pop_front()
        {
            taken += frame.len();
            let left = state.bytes.checked_sub(frame.len() + FRAME_COST);
            state.bytes = left.or_broken("a frame's bytes were counted when it was queued");
            frames.push(frame);
        }
        if !frames.is_empty() {
            state.frame_batches = if state.serve.is_some() { state.frame_batches + 1 } else { 0 };
            return LinkWork::Frames(frames);
        }
        if let Some(reason) = state.close.clone() {
            return LinkWork::Close(reason);
        }
        if std::mem::take(&mut state.lagging) {
            return LinkWork::Lagged;
        }
        state.frame_batches = 0;
        match state.serve.take() {
            Some(job) => LinkWork::Serve(job),
            None => LinkWork::Wait,
        }
    }

    /// Hands back an unfinished catch-up, unless a newer one came meanwhile; returns whether it is
    /// still wanted. A stream that is not taken back should be dropped on a blocking thread if it
    /// is big.
    pub fn put_back(&self, job: Box<ServeJob>) -> Option<Box<ServeJob>> {
        let mut state = self.state.lock();
        if state.serve.is_some() {
            return Some(job);
        }
        state.serve = Some(job);
        None
    }

    /// Why the link is being closed, if it is.
    #[must_use]
    pub fn closing(&self) -> Option<CloseReason> {
        self.state.lock().close.clone()
    }

    /// Takes the waiting catch-up out when the link has ended: it may hold the last snapshot of a
    /// big tree, to be dropped on a blocking thread.
    pub fn take_serve(&self) -> Option<Box<ServeJob>> {
        self.state.lock().serve.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(size: usize) -> Arc<[u8]> {
        vec![0; size].into()
    }

    #[test]
    fn an_overflow_empties_the_queue_and_tells_the_peer_once() {
        let queue = LinkQueue::new();
        for _ in 0..5 {
            let _ = queue.push(frame(1 << 20));
        }
        assert!(queue.is_lagging());
        // Three fit; the fourth empties the queue, the fifth finds it lagging.
        assert_eq!((queue.bytes(), queue.dropped()), (0, 5));
        let _ = queue.push(frame(10));
        assert!(matches!(queue.next(1 << 20), LinkWork::Lagged));
        assert!(matches!(queue.next(1 << 20), LinkWork::Wait));
        let _ = queue.push(frame(10));
        assert!(matches!(queue.next(1 << 20), LinkWork::Frames(f) if f.len() == 1));
    }

    #[test]
    fn frames_that_are_put_together_keep_their_order_and_are_counted_each() {
        let mut together = Together::default();
        assert!(together.take().is_none());
        together.add(frame(1));
        assert!(matches!(together.take(), Some((one, 1)) if *one == [0]));
        [[1, 2], [3, 4], [5, 6]].iter().for_each(|bytes| together.add(bytes[..].into()));
        assert!(!together.is_full());
        let (all, count) = together.take().unwrap();
        assert_eq!((&*all, count), (&[1, 2, 3, 4, 5, 6][..], 3));
        together.add(frame(TOGETHER_BYTES));
        assert!(together.is_full());
        let queue = LinkQueue::bounded(10, Defects::default());
        assert!(queue.push_many(all, count));
        let _ = queue.push_many(frame(10), 2);
        assert_eq!((queue.bytes(), queue.dropped()), (0, 5));
    }

    #[test]
    fn tiny_frames_are_bounded_too() {
        let queue = LinkQueue::new();
        for _ in 0..LINK_QUEUE_BYTES_MAX / FRAME_COST + 1 {
            let _ = queue.push(frame(0));
        }
        assert!(queue.is_lagging());
    }

    fn job(id: u64) -> Box<ServeJob> {
        Box::new(ServeJob::nothing(id))
    }

    #[test]
    fn frames_go_first_but_do_not_starve_a_catch_up() {
        let queue = LinkQueue::new();
        assert!(queue.serve(job(7)).is_none());
        let mut served = 0;
        for _ in 0..100 {
            let _ = queue.push(frame(10));
            let _ = queue.push(frame(10));
            match queue.next(1) {
                LinkWork::Frames(_) => {}
                LinkWork::Serve(job) => {
                    served += 1;
                    assert_eq!(job.id(), 7);
                    assert!(queue.put_back(job).is_none());
                }
                _ => panic!("something else"),
            }
        }
        assert_eq!(served, 100 / (FRAME_BATCHES_MAX + 1));
    }

    #[test]
    fn a_farewell_goes_out_before_the_link_closes() {
        let queue = LinkQueue::new();
        let _ = queue.push(frame(10));
        queue.close(CloseReason::Left);
        assert!(matches!(queue.next(1), LinkWork::Frames(_)));
        assert!(matches!(queue.next(1), LinkWork::Close(CloseReason::Left)));
    }
}

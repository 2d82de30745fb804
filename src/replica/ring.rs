//! The recent changes, so that a catch-up costs what the difference costs: whoever lacks only
//! ticks that the ring still holds is served from it, without a walk over the tree.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::model::ids::{Event, NodeIndex};
use crate::model::path::Path;
use crate::model::seen::Seen;

/// Changes per chunk. A snapshot shares whole chunks; only the open one is ever copied.
const CHUNK: usize = 1024;
/// Most full chunks: 131,072 changes at 32 bytes, 4 MiB. Whoever lacks more than that is
/// served by a walk, which then costs about what the difference costs anyway.
const CHUNKS_MAX: usize = 128;

type Item = (Event, Path);

/// The recent changes in the order in which they were applied here.
#[derive(Default)]
pub struct Ring {
    /// Oldest first; the last one is open.
    chunks: VecDeque<Arc<Vec<Item>>>,
    /// Per incarnation the highest tick that fell out of the ring.
    fallen: Vec<u64>,
}

impl Ring {
    /// An empty ring.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A ring of a state that came from elsewhere: of what was seen until now it holds nothing.
    #[must_use]
    pub fn after(seen: &Seen) -> Self {
        let mut ring = Self::default();
        for (node, ticks) in seen.iter() {
            ring.note_tick_fallen(node, ticks.max());
        }
        ring
    }

    /// Remembers a change.
    pub fn push(&mut self, event: Event, path: Path) {
        if self.chunks.back().is_none_or(|c| c.len() >= CHUNK) {
            if self.chunks.len() >= CHUNKS_MAX
                && let Some(oldest) = self.chunks.pop_front()
            {
                self.note_fallen(&oldest);
            }
            self.chunks.push_back(Arc::default());
        }
        if let Some(open) = self.chunks.back_mut() {
            Arc::make_mut(open).push((event, path));
        }
    }

    fn note_fallen(&mut self, chunk: &[Item]) {
        for (event, _) in chunk {
            self.note_tick_fallen(event.node, event.tick.get());
        }
    }

    fn note_tick_fallen(&mut self, node: NodeIndex, tick: u64) {
        let at = node.as_usize();
        if self.fallen.len() <= at {
            self.fallen.resize(at + 1, 0);
        }
        if let Some(highest) = self.fallen.get_mut(at) {
            *highest = (*highest).max(tick);
        }
    }

    /// A snapshot. Costs one reference per [`CHUNK`] changes.
    #[must_use]
    pub fn snapshot(&self) -> RingSnapshot {
        RingSnapshot { chunks: self.chunks.clone(), fallen: self.fallen.clone() }
    }
}

/// The ring of one moment.
pub struct RingSnapshot {
    chunks: VecDeque<Arc<Vec<Item>>>,
    fallen: Vec<u64>,
}

impl RingSnapshot {
    /// Whether every change among the missing ticks is still in the ring (if it ever was an
    /// entry's newest here). A tick at or below one that fell out may be anywhere.
    #[must_use]
    pub fn reaches(&self, missing: &Seen) -> bool {
        missing.iter().all(|(node, ticks)| {
            let lowest = ticks.ranges().next().map_or(u64::MAX, |(from, _)| from);
            lowest > self.fallen.get(node.as_usize()).copied().unwrap_or(0)
        })
    }

    /// The changes, oldest first.
    #[must_use]
    pub fn walk(&self) -> RingWalk {
        RingWalk { chunks: self.chunks.clone(), at: 0 }
    }
}

/// A snapshot of the ring that is being walked.
pub struct RingWalk {
    chunks: VecDeque<Arc<Vec<Item>>>,
    /// Place in the first chunk.
    at: usize,
}

impl Iterator for RingWalk {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            let chunk = self.chunks.front()?;
            if let Some(item) = chunk.get(self.at) {
                self.at += 1;
                return Some(item.clone());
            }
            self.chunks.pop_front();
            self.at = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::Tick;

    fn event(tick: u64) -> Event {
        Event { node: NodeIndex(3), tick: Tick::new(tick).unwrap() }
    }

    fn seen(ticks: impl IntoIterator<Item = u64>) -> Seen {
        let mut seen = Seen::new();
        for t in ticks {
            seen.insert(event(t));
        }
        seen
    }

    #[test]
    fn a_ring_reaches_back_exactly_as_far_as_it_remembers() {
        let mut ring = Ring::new();
        let total = (CHUNK * (CHUNKS_MAX + 2)) as u64;
        for t in 1..=total {
            ring.push(event(t), Path::root());
        }
        let held: Vec<u64> = ring.snapshot().walk().map(|(e, _)| e.tick.get()).collect();
        assert_eq!(held.len(), CHUNK * CHUNKS_MAX);
        assert_eq!(held.last(), Some(&total));
        assert!(ring.snapshot().reaches(&seen([held[0], total])));
        assert!(!ring.snapshot().reaches(&seen([held[0] - 1])));
        assert!(ring.snapshot().reaches(&Seen::new()));
    }

    #[test]
    fn a_snapshot_keeps_what_the_ring_drops() {
        let mut ring = Ring::new();
        ring.push(event(1), Path::root());
        let snapshot = ring.snapshot();
        ring.push(event(2), Path::root());
        assert_eq!(snapshot.walk().count(), 1);
        assert_eq!(ring.snapshot().walk().count(), 2);
    }
}

//! The recent changes, so that the cost of a catch-up is that of the difference: a node that lacks
//! only ticks that the ring still holds is served from it, without a walk over the tree.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::model::ids::{Event, NodeIndex};
use crate::model::invariant::OrBroken;
use crate::model::path::Path;
use crate::model::seen::Seen;

/// Changes per chunk. A snapshot shares whole chunks; only the open one is ever copied.
const CHUNK: usize = 1024;
/// Bytes of paths after which a chunk is full, however few changes it has.
const CHUNK_BYTES: usize = 64 << 10;
/// Most full chunks: 131,072 changes; with 20 bytes of path each 5 MiB, and never more than 11. A
/// node that lacks more than that is served by a walk, which then costs about as much as the
/// difference anyway.
const CHUNKS_MAX: usize = 128;

/// Some changes. Their paths are copied one behind the other: a reference to each path would be
/// counted somewhere in memory whenever a change comes or goes, which waits for that memory.
#[derive(Clone, Default)]
struct Chunk {
    /// With the end of its path in `paths`.
    events: Vec<(Event, usize)>,
    paths: Vec<u8>,
}

impl Chunk {
    fn is_full(&self) -> bool {
        self.events.len() >= CHUNK || self.paths.len() >= CHUNK_BYTES
    }

    fn push(&mut self, event: Event, path: &[u8]) {
        self.paths.extend_from_slice(path);
        self.events.push((event, self.paths.len()));
    }

    fn get(&self, at: usize) -> Option<(Event, &[u8])> {
        let (event, end) = *self.events.get(at)?;
        let before = at.checked_sub(1).and_then(|before| self.events.get(before));
        let from = before.map_or(0, |(_, end)| *end);
        Some((event, self.paths.get(from..end).or_broken("a change's path is in its chunk")))
    }

    fn clear(&mut self) {
        self.events.clear();
        self.paths.clear();
    }
}

/// The recent changes in the order in which they were applied here.
#[derive(Default)]
pub(crate) struct Ring {
    /// Oldest first; the last one is open.
    chunks: VecDeque<Arc<Chunk>>,
    /// Per incarnation the highest tick that fell out of the ring.
    fallen: Vec<u64>,
}

impl Ring {
    /// An empty ring.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A ring for a state that came from elsewhere: it holds nothing of what was seen until now.
    #[must_use]
    pub(crate) fn after(seen: &Seen) -> Self {
        let mut ring = Self::default();
        for (node, ticks) in seen.iter() {
            ring.note_tick_fallen(node, ticks.max());
        }
        ring
    }

    /// Remembers a change.
    pub(crate) fn push(&mut self, event: Event, path: &Path) {
        if self.chunks.back().is_none_or(|chunk| chunk.is_full()) {
            let next = self.take_oldest().unwrap_or_default();
            self.chunks.push_back(next);
        }
        let open = self.chunks.back_mut().or_broken("the last chunk is open");
        Arc::make_mut(open).push(event, path.as_bytes());
    }

    /// Has the oldest chunk fall out, if there are enough; gives its room, if it can be used again.
    fn take_oldest(&mut self) -> Option<Arc<Chunk>> {
        if self.chunks.len() < CHUNKS_MAX {
            return None;
        }
        let mut oldest = self.chunks.pop_front()?;
        for (event, _) in &oldest.events {
            self.note_tick_fallen(event.node, event.tick.get());
        }
        Arc::get_mut(&mut oldest)?.clear();
        Some(oldest)
    }

    fn note_tick_fallen(&mut self, node: NodeIndex, tick: u64) {
        let at = node.as_usize();
        if self.fallen.len() <= at {
            self.fallen.resize(at + 1, 0);
        }
        let highest = self.fallen.get_mut(at).or_broken("there was room made");
        *highest = (*highest).max(tick);
    }

    /// A snapshot. Costs one reference per [`CHUNK`] changes.
    #[must_use]
    pub(crate) fn snapshot(&self) -> RingSnapshot {
        RingSnapshot { chunks: self.chunks.clone(), fallen: self.fallen.clone() }
    }
}

/// The ring of one moment.
pub(crate) struct RingSnapshot {
    chunks: VecDeque<Arc<Chunk>>,
    fallen: Vec<u64>,
}

impl RingSnapshot {
    /// Whether every change among the missing ticks is still in the ring (if it ever was an
    /// entry's newest here). A tick at or below one that fell out may be anywhere.
    #[must_use]
    pub(crate) fn reaches(&self, missing: &Seen) -> bool {
        missing.iter().all(|(node, ticks)| {
            let lowest = ticks.ranges().next().map_or(u64::MAX, |(from, _)| from);
            lowest > self.fallen.get(node.as_usize()).copied().unwrap_or(0)
        })
    }

    /// The changes, oldest first.
    #[must_use]
    pub(crate) fn walk(&self) -> RingWalk {
        RingWalk { chunks: self.chunks.clone(), at: 0 }
    }
}

/// A snapshot of the ring that is being walked.
pub(crate) struct RingWalk {
    chunks: VecDeque<Arc<Chunk>>,
    /// Place in the first chunk.
    at: usize,
}

impl RingWalk {
    /// The next change, and its path in canonical bytes.
    pub(crate) fn next_change(&mut self) -> Option<(Event, &[u8])> {
        while self.chunks.front()?.events.len() <= self.at {
            self.chunks.pop_front();
            self.at = 0;
        }
        let at = self.at;
        self.at += 1;
        self.chunks.front()?.get(at)
    }
}

#[cfg(test)]
mod tests {
    use crate::model::ids::Tick;
    use crate::replica::ring::*;

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

    fn path(tick: u64) -> Path {
        format!("k{tick}").parse().unwrap()
    }

    fn ticks(snapshot: &RingSnapshot) -> Vec<u64> {
        let (mut walk, mut ticks) = (snapshot.walk(), Vec::new());
        while let Some((event, path_bytes)) = walk.next_change() {
            let tick = event.tick.get();
            assert!(path_bytes == path(tick).as_bytes() || path_bytes.len() > 900);
            ticks.push(tick);
        }
        ticks
    }

    #[test]
    fn a_ring_reaches_back_exactly_as_far_as_it_remembers() {
        let mut ring = Ring::new();
        let total = (CHUNK * (CHUNKS_MAX + 2)) as u64;
        for t in 1..=total {
            ring.push(event(t), &path(t));
        }
        let held = ticks(&ring.snapshot());
        assert_eq!(held.len(), CHUNK * CHUNKS_MAX);
        assert_eq!(held.last(), Some(&total));
        assert!(ring.snapshot().reaches(&seen([held[0], total])));
        assert!(!ring.snapshot().reaches(&seen([held[0] - 1])));
        assert!(ring.snapshot().reaches(&Seen::new()));
    }

    #[test]
    fn a_snapshot_keeps_what_the_ring_drops() {
        let mut ring = Ring::new();
        ring.push(event(1), &path(1));
        let snapshot = ring.snapshot();
        ring.push(event(2), &Path::root());
        assert_eq!(ticks(&snapshot), [1]);
        let mut walk = ring.snapshot().walk();
        assert_eq!(walk.next_change(), Some((event(1), path(1).as_bytes())));
        assert_eq!(walk.next_change(), Some((event(2), &[][..])));
        assert_eq!(walk.next_change(), None);
        assert_eq!(walk.next_change(), None);
        for t in 3..=(CHUNK * (CHUNKS_MAX + 2)) as u64 {
            ring.push(event(t), &path(t));
        }
        assert_eq!(ticks(&snapshot), [1]);
    }

    #[test]
    fn long_paths_make_chunks_of_fewer_changes() {
        let long: Path = "x".repeat(1000).parse().unwrap();
        let mut ring = Ring::new();
        for t in 1..=(CHUNK * CHUNKS_MAX) as u64 {
            ring.push(event(t), &long);
        }
        let bytes: usize = ring.chunks.iter().map(|chunk| chunk.paths.len()).sum();
        assert!(bytes <= CHUNKS_MAX * (CHUNK_BYTES + long.as_bytes().len()), "{bytes}");
        let held = ticks(&ring.snapshot());
        assert!(!ring.snapshot().reaches(&seen([held[0] - 1])));
        assert!(ring.snapshot().reaches(&seen(held)));
    }

    #[test]
    fn what_fell_out_of_one_incarnation_s_changes_is_remembered_for_all_others() {
        let mut ring = Ring::new();
        for (node, tick) in [(7, 50), (3, 9), (7, 20)] {
            ring.note_tick_fallen(NodeIndex(node), tick);
        }
        for (node, tick, reaches) in [(7, 50, false), (7, 51, true), (3, 9, false), (3, 10, true)] {
            let mut missing = Seen::new();
            missing.insert(Event { node: NodeIndex(node), tick: Tick::new(tick).unwrap() });
            assert_eq!(ring.snapshot().reaches(&missing), reaches, "{tick} of {node}");
        }
    }
}

//! How much clients read and write in each virtual shard, and the first request for the sums over
//! its entries.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::prefixes::Prefixes;

use crate::engine::NO_LATER;
use crate::engine::changes::{BeginShardCount, EndShardCount};
use crate::hub::Hub;
use crate::model::ids::Millis;
use crate::model::shard::SHARD_COUNT;
use crate::model::shard_memo::recent_shard_of_bytes;
use crate::rt;
use crate::server::Shared;

/// Requests are spread over this many tables of counters, so that threads seldom share a cache
/// line.
const STRIPES: usize = 4;
/// The use of all shards is kept for a minute, a sample for every ten seconds.
const SAMPLES_MAX: usize = 6;
const SAMPLE_MS: Millis = 10_000;
/// Between two looks whether it is time for one.
const SAMPLE_PAUSE: Duration = Duration::from_secs(1);

/// The counters of all shards: 64 KiB. One per client port.
pub struct ShardManager {
    /// A table for each stripe. Invariant: [`SHARD_COUNT`] counters in each.
    stripes: [Box<[Counters]>; STRIPES],
    /// Held while the sums are being counted: other requests wait for the same walk.
    counting: Mutex<()>,
    /// What was used up to some moments, the oldest first.
    samples: Mutex<VecDeque<(Millis, Box<[u64]>)>>,
    /// What is asked for most.
    pub(in crate::server) prefixes: Prefixes,
}

/// What clients asked for in one shard since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ShardUse {
    /// Entries that were asked for.
    pub(crate) reads: u64,
    /// Entries that were to be changed, and for which no precondition or limit forbade it.
    pub(crate) writes: u64,
}

#[derive(Default)]
struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
}

impl Default for ShardManager {
    fn default() -> Self {
        let table = || (0..SHARD_COUNT).map(|_| Counters::default()).collect();
        Self {
            stripes: std::array::from_fn(|_| table()),
            counting: Mutex::new(()),
            samples: Mutex::default(),
            prefixes: Prefixes::default(),
        }
    }
}

/// This many requests of a batch longer than [`EACH_COUNTED_MAX`] are counted as if all were for
/// the path of one of them: finding a path's shard takes longer than finding its entry.
const SAMPLED: usize = 4;
/// Of batches up to this length each request is counted in its own shard.
const EACH_COUNTED_MAX: usize = 8;

/// Which requests of a batch are counted, and as how many. The sum is that of all; over many
/// batches each place in a batch has its turn.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Sample {
    /// Of how many.
    len: usize,
    /// Which of [`SAMPLED`] stands for the others.
    turn: usize,
}

impl Sample {
    /// For a batch of this length.
    pub(in crate::server) fn new(len: usize) -> Self {
        thread_local! {
            static TURN: Cell<usize> = const { Cell::new(0) };
        }
        Self { len, turn: TURN.replace(TURN.get().wrapping_add(1)) }
    }

    /// As how many the request at this place counts.
    pub(in crate::server) fn weight(self, at: usize) -> u64 {
        if self.len <= EACH_COUNTED_MAX {
            return 1;
        }
        let first = at - at % SAMPLED;
        let group = SAMPLED.min(self.len.saturating_sub(first)).max(1);
        if at - first == self.turn % group { group as u64 } else { 0 }
    }
}

impl ShardManager {
    /// Counts this many reads of a path in canonical bytes.
    pub fn note_reads(&self, path: &[u8], count: u64) {
        if count > 0
            && let Some(counters) = self.counters(path)
        {
            self.prefixes.note(path, count);
            counters.reads.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Counts this many changes at a path in canonical bytes.
    pub(crate) fn note_writes(&self, path: &[u8], count: u64) {
        if count > 0
            && let Some(counters) = self.counters(path)
        {
            self.prefixes.note(path, count);
            counters.writes.fetch_add(count, Ordering::Relaxed);
        }
    }

    fn counters(&self, path: &[u8]) -> Option<&Counters> {
        let stripe = self.stripes.get(thread_number() % STRIPES)?;
        stripe.get(usize::from(recent_shard_of_bytes(path)))
    }

    /// The requests for a shard; none if it was never used.
    #[must_use]
    pub(crate) fn usage(&self, shard: u16) -> Option<ShardUse> {
        let mut sum = ShardUse::default();
        for stripe in &self.stripes {
            let counters = stripe.get(usize::from(shard))?;
            sum.reads += counters.reads.load(Ordering::Relaxed);
            sum.writes += counters.writes.load(Ordering::Relaxed);
        }
        (sum != ShardUse::default()).then_some(sum)
    }

    /// To be called every second. Keeps what was used up to now, for [`Self::busiest_ratio`].
    fn sample(&self, now: Millis) {
        self.prefixes.fade(now);
        let mut samples = self.samples.lock();
        if samples.back().is_some_and(|(at, _)| now.saturating_sub(*at) < SAMPLE_MS) {
            return;
        }
        if samples.len() >= SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back((now, self.totals()));
    }

    /// Requests of all kinds, by shard.
    fn totals(&self) -> Box<[u64]> {
        let of = |counters: &Counters| {
            counters.reads.load(Ordering::Relaxed) + counters.writes.load(Ordering::Relaxed)
        };
        let mut totals = vec![0; usize::from(SHARD_COUNT)];
        for stripe in &self.stripes {
            for (total, counters) in totals.iter_mut().zip(stripe) {
                *total += of(counters);
            }
        }
        totals.into()
    }

    /// The share of the busiest shard in what was used during the last minute, at least 50 s of it; 0 if that was
    /// nothing.
    #[allow(clippy::cast_precision_loss, reason = "a share need not be exact")]
    pub(crate) fn busiest_ratio(&self) -> f64 {
        let now = self.totals();
        let samples = self.samples.lock();
        let nothing: Box<[u64]> = Box::default();
        let before = samples.front().map_or(&nothing, |(_, totals)| totals);
        let used = now.iter().zip(before.iter().chain(std::iter::repeat(&0)));
        let (sum, most) = used
            .map(|(now, before)| now.saturating_sub(*before))
            .fold((0_u64, 0_u64), |(sum, most), used| (sum.saturating_add(used), most.max(used)));
        if sum == 0 { 0.0 } else { most as f64 / sum as f64 }
    }

    /// Has the sums over the entries counted, unless they are kept already. Walks the whole tree,
    /// outside of the guard: for threads that may take long.
    pub(crate) fn count(&self, hub: &Hub) {
        let _turn = self.counting.lock();
        if hub.read(|engine| engine.shard_sums().is_some()) {
            return;
        }
        let counted = hub.handle(BeginShardCount, NO_LATER).walk();
        hub.handle(EndShardCount(&counted), NO_LATER);
    }
}

/// Keeps what measures of the last minute are made of, until the server stops.
pub(in crate::server) async fn keep_samples(shared: Arc<Shared>) {
    while !shared.is_stopping() {
        shared.shards.sample(rt::now());
        let _stopping = rt::timeout(SAMPLE_PAUSE, shared.stopping.listen()).await;
    }
}

/// A small number that is this thread's for good, for spreading counters.
pub(in crate::server) fn thread_number() -> usize {
    thread_local! {
        static NUMBER: usize = {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            NEXT.fetch_add(1, Ordering::Relaxed)
        };
    }
    NUMBER.with(|number| *number)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use crate::engine::{Config, Engine, Input};
    use crate::model::ids::{Incarnation, NodeId, NodeName};
    use crate::model::path::Path;
    use crate::model::shard::shard_of_bytes;
    use crate::replica::write::Write;
    use crate::server::shards::*;
    use crate::tree::shard_sums::ShardSums;

    fn path(text: &str) -> Path {
        text.parse().unwrap()
    }

    #[test]
    fn a_sample_counts_as_many_as_there_are_and_each_place_has_its_turn() {
        for len in 0..70 {
            let mut turns = vec![0; len];
            for _ in 0..SAMPLED * 3 {
                let sample = Sample::new(len);
                let weights: Vec<u64> = (0..len).map(|at| sample.weight(at)).collect();
                assert_eq!(weights.iter().sum::<u64>(), len as u64);
                turns.iter_mut().zip(weights).for_each(|(turns, weight)| *turns += weight);
            }
            assert!(turns.iter().all(|turns| *turns > 0), "{len}: {turns:?}");
        }
    }

    #[test]
    fn the_busiest_share_is_that_of_the_last_minute() {
        let manager = ShardManager::default();
        assert_eq!(manager.busiest_ratio(), 0.0);
        let (a, b) = (path("a"), path("b"));
        assert_ne!(shard_of_bytes(a.as_bytes()), shard_of_bytes(b.as_bytes()));
        manager.note_reads(a.as_bytes(), 30);
        manager.note_writes(b.as_bytes(), 10);
        assert_eq!(manager.busiest_ratio(), 0.75);
        for second in 0..61 {
            manager.sample(second * 1_000);
        }
        assert_eq!(manager.busiest_ratio(), 0.0, "that was more than a minute ago");
        manager.note_writes(b.as_bytes(), 10);
        assert_eq!(manager.busiest_ratio(), 1.0);
        assert_eq!(manager.samples.lock().len(), SAMPLES_MAX);
    }

    #[test]
    fn nothing_is_lost_however_many_count_in_a_shard_at_once() {
        const THREADS: usize = 8;
        let paths: Vec<Path> = (0..200).map(|k| path(&format!("k{k}"))).collect();
        let shards: std::collections::BTreeSet<u16> =
            paths.iter().map(|path| shard_of_bytes(path.as_bytes())).collect();
        let (manager, barrier) = (ShardManager::default(), Barrier::new(THREADS));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (manager, barrier, paths) = (&manager, &barrier, &paths);
                scope.spawn(move || {
                    for path in paths {
                        // All at once, at every shard.
                        barrier.wait();
                        if thread % 2 == 0 {
                            manager.note_reads(path.as_bytes(), 1);
                        } else {
                            manager.note_writes(path.as_bytes(), 1);
                        }
                    }
                });
            }
        });
        let uses: Vec<ShardUse> = (0..SHARD_COUNT).filter_map(|s| manager.usage(s)).collect();
        assert_eq!(uses.len(), shards.len(), "unused ones tell nothing");
        let sums = uses.iter().fold((0, 0), |(r, w), sum| (r + sum.reads, w + sum.writes));
        assert_eq!(sums, (800, 800));
    }

    #[test]
    fn what_is_below_one_first_element_is_counted_together() {
        let manager = ShardManager::default();
        manager.note_reads(path("a").as_bytes(), 1);
        manager.note_reads(path("a.b.c").as_bytes(), 1);
        manager.note_writes(path("a.d").as_bytes(), 1);
        let shard = shard_of_bytes(path("a").as_bytes());
        assert_eq!(manager.usage(shard), Some(ShardUse { reads: 2, writes: 1 }));
        assert_eq!(manager.usage(shard + 1), None);
        assert_eq!(manager.usage(SHARD_COUNT), None);
    }

    #[test]
    fn counting_while_others_write_misses_nothing() {
        let id = NodeId { name: NodeName::new("a").unwrap(), incarnation: Incarnation(1) };
        let hub = Hub::new(Engine::new(Config::new(id, 1)));
        hub.handle(Input::Found, 0);
        let write = |from: u32| {
            for k in from..from + 2_000 {
                let path = path(&format!("k{}", k % 3_000));
                let write = Write::new(path, Some(&[1]));
                hub.write(write, false).0.unwrap();
            }
        };
        write(0);
        let manager = ShardManager::default();
        std::thread::scope(|scope| {
            scope.spawn(|| write(1_000));
            scope.spawn(|| write(2_500));
            for _ in 0..2 {
                scope.spawn(|| manager.count(&hub));
            }
        });
        let (kept, tree, table) = hub.read(|engine| {
            let sums = engine.shard_sums().map(|sums| sums.as_slice().to_vec());
            (sums.unwrap(), engine.tree().clone(), engine.table().clone())
        });
        assert_eq!(kept, ShardSums::of(&tree, &table).as_slice());
    }
}

//! How much clients read and write in each virtual shard, and who has the sums over its entries
//! counted. A shard's counters are made when it is first used: most nodes use few of them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use crate::hub::Hub;
use crate::model::shard::SHARD_COUNT;
use crate::model::shard_memo::recent_shard_of_bytes;

/// Over so many counters one shard's requests are spread, so that threads seldom share a cache
/// line. All shards used, that is 512 KiB.
const STRIPES: usize = 4;

/// The counters of all shards. One per client port.
pub struct ShardManager {
    /// Invariant: [`SHARD_COUNT`] of them.
    slots: Box<[OnceLock<Box<ShardCounters>>]>,
    /// Slots that were filled.
    made: AtomicUsize,
    /// Held by who has the sums counted: others who want them wait for the same walk.
    counting: Mutex<()>,
}

/// What clients asked for in one shard since it was first used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShardUse {
    /// Entries that were asked for.
    pub reads: u64,
    /// Entries that were to be changed, and for which no precondition or limit forbade it.
    pub writes: u64,
}

#[derive(Default)]
struct ShardCounters {
    stripes: [CachePadded<Stripe>; STRIPES],
}

#[derive(Default)]
struct Stripe {
    reads: AtomicU64,
    writes: AtomicU64,
}

impl Default for ShardManager {
    fn default() -> Self {
        Self {
            slots: (0..SHARD_COUNT).map(|_| OnceLock::new()).collect(),
            made: AtomicUsize::new(0),
            counting: Mutex::new(()),
        }
    }
}

impl ShardManager {
    /// Counts a read of a path in canonical bytes.
    pub fn note_read(&self, path: &[u8]) {
        if let Some(stripe) = self.stripe(path) {
            stripe.reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a change at a path in canonical bytes.
    pub fn note_write(&self, path: &[u8]) {
        if let Some(stripe) = self.stripe(path) {
            stripe.writes.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn stripe(&self, path: &[u8]) -> Option<&Stripe> {
        let slot = self.slots.get(usize::from(recent_shard_of_bytes(path)))?;
        let counters = slot.get_or_init(|| {
            self.made.fetch_add(1, Ordering::Relaxed);
            Box::default()
        });
        let stripe = counters.stripes.get(thread_number() % STRIPES)?;
        Some(stripe)
    }

    /// How many shards were used.
    #[must_use]
    pub fn used(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// What was asked for in a shard; none if it was never used.
    #[must_use]
    pub fn usage(&self, shard: u16) -> Option<ShardUse> {
        let counters = self.slots.get(usize::from(shard))?.get()?;
        let mut sum = ShardUse::default();
        for stripe in &counters.stripes {
            sum.reads += stripe.reads.load(Ordering::Relaxed);
            sum.writes += stripe.writes.load(Ordering::Relaxed);
        }
        Some(sum)
    }

    /// Has the sums over the entries counted, unless they are kept already. Walks the whole tree,
    /// outside of the guard: for threads that may take long.
    pub fn count(&self, hub: &Hub) {
        let _turn = self.counting.lock();
        if hub.read(|engine| engine.shard_sums().is_some()) {
            return;
        }
        let counted = hub.change(|engine, _| engine.begin_shard_count()).walk();
        hub.change(|engine, _| engine.end_shard_count(&counted));
    }
}

/// A small number that is this thread's for good, for spreading counters.
pub(super) fn thread_number() -> usize {
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

    use super::*;
    use crate::engine::{Config, Engine, Input};
    use crate::model::ids::{Incarnation, NodeId, NodeName};
    use crate::model::path::Path;
    use crate::model::shard::shard_of_bytes;
    use crate::model::shard_sums::ShardSums;
    use crate::replica::write::{Precondition, Write};

    fn path(text: &str) -> Path {
        text.parse().unwrap()
    }

    #[test]
    fn a_shard_s_counters_are_made_once_however_many_begin_with_it() {
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
                            manager.note_read(path.as_bytes());
                        } else {
                            manager.note_write(path.as_bytes());
                        }
                    }
                });
            }
        });
        assert_eq!(manager.used(), shards.len());
        let uses: Vec<ShardUse> = (0..SHARD_COUNT).filter_map(|s| manager.usage(s)).collect();
        assert_eq!(uses.len(), shards.len(), "unused ones have no counters");
        // Were counters made twice, what was counted in the first would be gone.
        let sums = uses.iter().fold((0, 0), |(r, w), sum| (r + sum.reads, w + sum.writes));
        assert_eq!(sums, (800, 800));
    }

    #[test]
    fn what_is_below_one_first_element_is_counted_together() {
        let manager = ShardManager::default();
        manager.note_read(path("a").as_bytes());
        manager.note_read(path("a.b.c").as_bytes());
        manager.note_write(path("a.d").as_bytes());
        let shard = shard_of_bytes(path("a").as_bytes());
        assert_eq!(manager.usage(shard), Some(ShardUse { reads: 2, writes: 1 }));
        assert_eq!((manager.used(), manager.usage(1024)), (1, None));
    }

    #[test]
    fn counting_while_others_write_misses_nothing() {
        let id = NodeId { name: NodeName::new("a").unwrap(), incarnation: Incarnation(1) };
        let hub = Hub::new(Engine::new(Config::new(id, 1)));
        hub.handle(Input::Found, 0);
        let write = |from: u32| {
            for k in from..from + 2_000 {
                let precondition = Precondition::default();
                let path = path(&format!("k{}", k % 3_000));
                let write = Write {
                    path,
                    value: Some(&[1]),
                    precondition,
                    idempotent: false,
                    write_id: None,
                };
                hub.change(|engine, out| engine.write(write, false, out)).unwrap();
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

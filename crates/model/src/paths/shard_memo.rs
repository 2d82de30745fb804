//! Shards by hash, remembered: jump consistent hash takes longer than all else that is done to find a
//! path's shard, and most requests are for few first elements.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::shard::{SHARD_COUNT, hash_of_bytes, shard_of_hash};

/// Hashes that are remembered: 32 KiB. A power of two, and greater than [`SHARD_COUNT`].
const SLOTS: usize = 4_096;
/// Where a slot has the shard; above it, and in the slot's place, is the hash.
const SHARD_MASK: u64 = SHARD_COUNT as u64 - 1;
const _: () = assert!(SHARD_COUNT.is_power_of_two() && SLOTS.is_power_of_two());
const _: () = assert!(SLOTS >= SHARD_COUNT as usize);

/// The one that all of a process share: whose shards are asked for does not matter.
static RECENT: ShardMemo = ShardMemo::new();

/// The result of [`crate::shard::shard_of_bytes`], faster for hashes that were requested recently.
#[inline]
pub fn recent_shard_of_bytes(path: &[u8]) -> u16 {
    RECENT.shard_of_hash(hash_of_bytes(path))
}

/// Threads may share it, and overwrite each other's slots: a slot is one number, which contains the
/// hash that it is for.
struct ShardMemo {
    /// A slot's place is the hash modulo [`SLOTS`]; it holds the hash, with the shard in the place of
    /// the bits that say no more than the place does. So a hash is never mistaken for another.
    /// 0 is nothing yet; a hash that would be kept as that is not remembered.
    slots: [AtomicU64; SLOTS],
}

impl ShardMemo {
    /// One that remembers nothing yet.
    const fn new() -> Self {
        Self { slots: [const { AtomicU64::new(0) }; SLOTS] }
    }

    /// The shard of a hash.
    #[inline]
    fn shard_of_hash(&self, hash: u64) -> u16 {
        let Some(slot) = self.slots.get(hash as usize % SLOTS) else { return shard_of_hash(hash) };
        let known = slot.load(Ordering::Relaxed);
        if known != 0 && (known ^ hash) & !SHARD_MASK == 0 {
            return (known & SHARD_MASK) as u16;
        }
        let shard = shard_of_hash(hash);
        slot.store((hash & !SHARD_MASK) | u64::from(shard), Ordering::Relaxed);
        shard
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::path::Path;
    use crate::shard::{jump_hash, shard_of};
    use crate::shard_memo::*;

    #[test]
    fn nothing_is_remembered_before_it_was_asked_for() {
        // The hashes that are nearest to what unused slots hold.
        for hash in (0..2 * SLOTS as u64).chain((0..64).map(|bit| 1 << bit)).chain([u64::MAX]) {
            let memo = ShardMemo::new();
            let expected = jump_hash(hash, u32::from(SHARD_COUNT)) as u16;
            assert_eq!(memo.shard_of_hash(hash), expected, "{hash}");
            assert_eq!(memo.shard_of_hash(hash), expected, "{hash} again");
        }
    }

    #[test]
    fn threads_that_overwrite_each_other_s_slots_get_their_own_shards() {
        let memo = ShardMemo::new();
        let step = SLOTS as u64;
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let memo = &memo;
                scope.spawn(move || {
                    for round in 0..2000 {
                        for slot in [0, 1, 5, 1023, 1024, 2047] {
                            for high in [0, 1, 2, 3, 1 << 40, (1 << 51) - 1 - thread, round % 7] {
                                let hash = high * step + slot;
                                assert_eq!(memo.shard_of_hash(hash), shard_of_hash(hash), "{hash}");
                            }
                        }
                    }
                });
            }
        });
    }

    proptest! {
        #[test]
        fn hashes_that_share_a_place_are_told_apart(
            hashes in proptest::collection::vec((0u64..4, 0u64..4, any::<u16>()), 1..200),
        ) {
            let memo = ShardMemo::new();
            for (low, high, middle) in hashes {
                let hash = low | (u64::from(middle) << 8) | (high << 62);
                prop_assert_eq!(memo.shard_of_hash(hash), jump_hash(hash, 1024) as u16);
            }
        }

        #[test]
        fn paths_have_the_shards_that_they_have(keys in proptest::collection::vec(".{0,9}", 1..50)) {
            for key in keys.iter().chain(&keys) {
                let path = Path::root().push(key.as_str()).unwrap();
                prop_assert_eq!(recent_shard_of_bytes(path.as_bytes()), shard_of(&path));
            }
        }
    }
}

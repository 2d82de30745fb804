//! Shards by hash, remembered: jump consistent hash takes longer than all else that is done to find a
//! path's shard, and most requests are for few first elements.

use std::sync::atomic::{AtomicU64, Ordering};

use super::shard::{SHARD_COUNT, hash_of_bytes, shard_of_hash};

/// Hashes that are remembered: 32 KiB. A power of two, and greater than [`SHARD_COUNT`].
const SLOTS: usize = 4_096;
/// Where a slot has the shard; above it, and in the slot's place, is the hash.
const SHARD_MASK: u64 = SHARD_COUNT as u64 - 1;

/// What [`super::shard::shard_of_bytes`] tells, and quicker for hashes that were asked for lately.
/// Threads may share it.
pub struct ShardMemo {
    /// A slot's place is the hash modulo [`SLOTS`]; it holds the hash, with the shard in the place of
    /// the bits that say no more than the place does. So a hash is never mistaken for another.
    slots: Box<[AtomicU64]>,
}

impl Default for ShardMemo {
    fn default() -> Self {
        // Nothing yet: hashes that do not belong to their places.
        let unused =
            |place: usize| if place < usize::from(SHARD_COUNT) { SHARD_MASK + 1 } else { 0 };
        Self { slots: (0..SLOTS).map(|place| AtomicU64::new(unused(place))).collect() }
    }
}

impl ShardMemo {
    /// The shard of a path in canonical bytes.
    pub fn shard_of_bytes(&self, path: &[u8]) -> u16 {
        self.shard_of_hash(hash_of_bytes(path))
    }

    fn shard_of_hash(&self, hash: u64) -> u16 {
        let place = hash % SLOTS as u64;
        let Some(slot) = self.slots.get(place as usize) else { return 0 };
        let known = slot.load(Ordering::Relaxed);
        if (known ^ hash) & !SHARD_MASK == 0 {
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

    use super::*;
    use crate::model::path::Path;
    use crate::model::shard::{jump_hash, shard_of};

    #[test]
    fn nothing_is_remembered_before_it_was_asked_for() {
        // The hashes that are nearest to what unused slots hold.
        for hash in (0..2 * SLOTS as u64).chain((0..64).map(|bit| 1 << bit)).chain([u64::MAX]) {
            let memo = ShardMemo::default();
            let expected = jump_hash(hash, u32::from(SHARD_COUNT)) as u16;
            assert_eq!(memo.shard_of_hash(hash), expected, "{hash}");
            assert_eq!(memo.shard_of_hash(hash), expected, "{hash} again");
        }
    }

    proptest! {
        #[test]
        fn hashes_that_share_a_place_are_told_apart(
            hashes in proptest::collection::vec((0u64..4, 0u64..4, any::<u16>()), 1..200),
        ) {
            let memo = ShardMemo::default();
            for (low, high, middle) in hashes {
                let hash = low | (u64::from(middle) << 8) | (high << 62);
                prop_assert_eq!(memo.shard_of_hash(hash), jump_hash(hash, 1024) as u16);
            }
        }

        #[test]
        fn paths_have_the_shards_that_they_have(keys in proptest::collection::vec(".{0,9}", 1..50)) {
            let memo = ShardMemo::default();
            for key in keys.iter().chain(&keys) {
                let path = Path::root().push(key.as_str()).unwrap();
                prop_assert_eq!(memo.shard_of_bytes(path.as_bytes()), shard_of(&path));
            }
        }
    }
}

//! Which virtual shard a path belongs to: a unit of affinity, not of ownership (DESIGN, clients).
//!
//! xxHash64 with seed 0 over the first element (a string's UTF-8 without its MessagePack head, any
//! other element's canonical MessagePack), then jump consistent hash (Lamping and Veach, 2014).
//! All of a subtree is thus in one shard. The root has no first element: the empty string's hash
//! stands for it, so it shares the shard of the path whose first element is the empty string.
//! Other implementations compute the same shards, so nothing here may change.

use xxhash_rust::xxh64::xxh64;

use super::path::{Element, Path, bytes};

/// How many virtual shards there are, in every network.
pub const SHARD_COUNT: u16 = 1024;

/// The shard of a path, from 0 to [`SHARD_COUNT`] - 1.
pub fn shard_of(path: &Path) -> u16 {
    shard_of_bytes(path.as_bytes())
}

/// The shard of a path in canonical bytes.
pub fn shard_of_bytes(path: &[u8]) -> u16 {
    // Below SHARD_COUNT, so it fits.
    jump_hash(hash_of_bytes(path), u32::from(SHARD_COUNT)) as u16
}

/// The hash of a path in canonical bytes, by which it gets its shard.
pub fn hash_of_bytes(path: &[u8]) -> u64 {
    match bytes::elements(path).next() {
        Some(Element::Str(text)) => hash_key(text.as_bytes()),
        _ => hash_key(bytes::first_element(path).unwrap_or_default()),
    }
}

/// xxHash64 with seed 0.
pub fn hash_key(key: &[u8]) -> u64 {
    xxh64(key, 0)
}

/// Jump consistent hash: the bucket, from 0 to `buckets` - 1, of a hash. 0 if there are no buckets.
///
/// In the form (b + 1) * (2^31 / d): it rounds differently from ((b + 1) * 2^31) / d in rare
/// cases, and other implementations use this one.
pub fn jump_hash(hash: u64, buckets: u32) -> u32 {
    const SCALE: f64 = (1_u64 << 31) as f64;
    let mut key = hash;
    let (mut bucket, mut next) = (0_i64, 0_i64);
    while next < i64::from(buckets) {
        bucket = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let divisor = ((key >> 33) + 1) as f64;
        next = ((bucket + 1) as f64 * (SCALE / divisor)) as i64;
    }
    bucket as u32
}

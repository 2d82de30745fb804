//! Which virtual shard a path belongs to: a unit of affinity, not of ownership (docs/client-protocol.md,
//! "Virtual shards").
//!
//! xxHash64 with seed 0 over the first element (a string's UTF-8 without its MessagePack head, any
//! other element's canonical MessagePack), then jump consistent hash (Lamping and Veach, 2014).
//! All of a subtree is thus in one shard. The root has no first element: the empty string's hash
//! stands for it, so it shares the shard of the path whose first element is the empty string.
//! Other implementations compute the same shards, so nothing here may change.

use xxhash_rust::xxh64::xxh64;

use crate::invariant::OrBroken;
use crate::path::{Element, Path, bytes};
use crate::value::Reader;

/// How many virtual shards there are, in every network.
pub const SHARD_COUNT: u16 = 1024;

/// The shard of a path, from 0 to [`SHARD_COUNT`] - 1.
pub fn shard_of(path: &Path) -> u16 {
    shard_of_bytes(path.as_bytes())
}

/// The shard of a path in canonical bytes.
pub fn shard_of_bytes(path: &[u8]) -> u16 {
    shard_of_hash(hash_of_bytes(path))
}

/// The hash of a path in canonical bytes, by which it gets its shard.
pub(crate) fn hash_of_bytes(path: &[u8]) -> u64 {
    // A string's bytes as they stand: that they are UTF-8 was checked when they became a path.
    match Reader::new(path).read_str_bytes() {
        Ok(text) => hash_key(text),
        Err(_) => hash_key(bytes::first_element(path).unwrap_or_default()),
    }
}

/// The shard of a hash: [`jump_hash`] over [`SHARD_COUNT`] buckets, to the bit, in about half the time.
///
/// What takes long in the plain form is that each jump turns an integer into a float and back before
/// the next one can begin. Here the quotients, which do not depend on each other, become integers
/// with 43 binary places, and a jump is an integer multiplication. That cuts off less than
/// one unit of the last place from the quotient, so less than [`SHARD_COUNT`] units from the
/// product, which the plain form in turn rounds by half a unit at most (it is below 2^10, and a
/// double has 53 bits). So both have the same integer part, unless the product is closer than
/// that below an integer: then, about once in 2^30 hashes, the plain form decides.
pub(crate) fn shard_of_hash(hash: u64) -> u16 {
    const SHARDS: u64 = SHARD_COUNT as u64;
    /// Quotients below `SHARD_COUNT` keep 53 bits; times `SHARD_COUNT` that fits in 64.
    const FRACTION_BITS: u32 = 43;
    const SCALE: f64 = (1_u64 << 31) as f64 * (1_u64 << FRACTION_BITS) as f64;
    let mut key = hash;
    let mut bucket = 0_u64;
    loop {
        key = next_key(key);
        let divisor = (key >> 33) + 1;
        if divisor <= (1 << 31) / SHARDS {
            // The quotient is SHARD_COUNT or more: out of range from every bucket.
            return bucket as u16;
        }
        let quotient = (SCALE / divisor as f64) as i64 as u64;
        let product = (bucket + 1) * quotient;
        let next = product >> FRACTION_BITS;
        if next != (product + 2 * SHARDS) >> FRACTION_BITS {
            // Below SHARD_COUNT, so it fits.
            return jump_hash(hash, u32::from(SHARD_COUNT)) as u16;
        }
        if next >= SHARDS {
            return bucket as u16;
        }
        bucket = next;
    }
}

/// Below this path, in the system's own tree, are the preferences that operators have set.
pub fn preferences_path() -> Path {
    let path = Path::from_elements([Element::Nil, Element::Str("shards")]);
    path.or_broken("the path of preferences is within all limits")
}

/// The entry that names the node which clients of a shard should prefer: its value is a string, the
/// node's name.
pub fn preference_path(shard: u16) -> Path {
    let path = preferences_path().push(Element::Int(i128::from(shard)));
    path.or_broken("the path of a preference is within all limits")
}

/// xxHash64 with seed 0.
pub fn hash_key(key: &[u8]) -> u64 {
    xxh64(key, 0)
}

/// Jump consistent hash: the bucket, from 0 to `buckets` - 1, of a hash. 0 if there are no buckets.
///
/// In the form (b + 1) * (2^31 / d): it rounds differently from ((b + 1) * 2^31) / d in rare
/// cases, and other implementations use this one.
pub(crate) fn jump_hash(hash: u64, buckets: u32) -> u32 {
    const SCALE: f64 = (1_u64 << 31) as f64;
    let mut key = hash;
    let (mut bucket, mut next) = (0_i64, 0_i64);
    while next < i64::from(buckets) {
        bucket = next;
        key = next_key(key);
        let divisor = ((key >> 33) + 1) as f64;
        next = ((bucket + 1) as f64 * (SCALE / divisor)) as i64;
    }
    bucket as u32
}

/// The generator of the jumps (the paper's).
fn next_key(key: u64) -> u64 {
    key.wrapping_mul(MULTIPLIER).wrapping_add(1)
}

/// The paper's.
const MULTIPLIER: u64 = 2_862_933_555_777_941_757;

#[cfg(test)]
mod tests;

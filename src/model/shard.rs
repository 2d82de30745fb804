//! Which virtual shard a path belongs to: a unit of affinity, not of ownership (DESIGN, clients).
//!
//! xxHash64 with seed 0 over the first element (a string's UTF-8 without its MessagePack head, any
//! other element's canonical MessagePack), then jump consistent hash (Lamping and Veach, 2014).
//! All of a subtree is thus in one shard. The root has no first element: the empty string's hash
//! stands for it, so it shares the shard of the path whose first element is the empty string.
//! Other implementations compute the same shards, so nothing here may change.

use xxhash_rust::xxh64::xxh64;

use super::path::{Element, Path, bytes};
use super::value::Reader;

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
    // As they stand: that strings are UTF-8 was checked when the path was made.
    match Reader::new(path).read_str_bytes() {
        Ok(text) => hash_key(text),
        Err(_) => hash_key(bytes::first_element(path).unwrap_or_default()),
    }
}

/// Below this path, in the system's own tree, are the preferences that operators have set.
pub fn preferences_path() -> Path {
    // Within all limits, so it cannot fail.
    Path::from_elements([Element::Nil, Element::Str("shards")]).unwrap_or_default()
}

/// Where it says which node clients of a shard should prefer: a string, the node's name.
pub fn preference_path(shard: u16) -> Path {
    preferences_path().push(Element::Int(i128::from(shard))).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with other implementations; shared by all that route by these shards.
    fn vectors() -> serde_json::Value {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/hash-vectors.json");
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
    }

    #[test]
    fn keys_hash_and_shard_as_elsewhere() {
        let vectors = vectors();
        let keys = vectors["keys"].as_array().unwrap();
        assert_eq!(keys.len(), 25);
        for row in keys {
            let key = row["key"].as_str().unwrap();
            let hash = hash_key(key.as_bytes());
            assert_eq!(hash.to_string(), row["xxh64"].as_str().unwrap(), "{row}");
            assert_eq!(u64::from(jump_hash(hash, 1024)), row["shard_1024"], "{row}");
            assert_eq!(u64::from(jump_hash(hash, 256)), row["shard_256"], "{row}");
            let below = Path::root().push(key).unwrap().push("below").unwrap();
            assert_eq!(u64::from(shard_of(&below)), row["shard_1024"], "{row}");
        }
    }

    #[test]
    fn hashes_jump_to_buckets_as_elsewhere() {
        let vectors = vectors();
        let rows = vectors["jump"].as_array().unwrap();
        assert_eq!(rows.len(), 9);
        for row in rows {
            let hash: u64 = row["hash"].as_str().unwrap().parse().unwrap();
            assert_eq!(u64::from(jump_hash(hash, 100)), row["buckets_100"], "{row}");
            assert_eq!(u64::from(jump_hash(hash, 1024)), row["buckets_1024"], "{row}");
        }
    }

    #[test]
    fn elements_other_than_strings_hash_as_their_canonical_messagepack() {
        let shard = |text: &str| shard_of(&text.parse().unwrap());
        let of_bytes = |bytes: &[u8]| jump_hash(hash_key(bytes), 1024) as u16;
        assert_eq!(shard(":5"), of_bytes(&[5]));
        assert_eq!(shard(":300:t"), of_bytes(&[0xcd, 1, 44]));
        assert_eq!(shard(":n.a"), of_bytes(&[0xc0]));
        assert_eq!(shard(":va.b"), of_bytes(&[0xc4, 1, b'a']));
        assert_eq!(shard(":1:.5"), of_bytes(&[0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn the_root_shares_the_shard_of_the_empty_string() {
        assert_eq!(shard_of(&Path::root()), shard_of(&":e".parse().unwrap()));
        assert_eq!(hash_of_bytes(b""), hash_key(b""));
    }

    #[test]
    fn buckets_at_the_edges_are_within_their_range() {
        for hash in [0, 1, u64::MAX, 1 << 63, 15_853_151_322_020_650_993] {
            for buckets in [0, 1, 2, 1024, u32::MAX] {
                assert!(jump_hash(hash, buckets) < buckets.max(1));
            }
        }
    }
}

//! Tests of the shards: against other implementations, and against what the paper says of them.

use crate::shard::*;

/// Computed with other implementations; shared by all that route by these shards.
fn vectors() -> serde_json::Value {
    let file =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/conformance/vectors/hashes.json");
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

#[test]
fn the_fast_form_is_the_plain_one() {
    for number in 0..200_000_u64 {
        let hash = hash_key(&number.to_le_bytes());
        assert_eq!(u32::from(shard_of_hash(hash)), jump_hash(hash, 1024), "{hash}");
    }
    for row in vectors()["jump"].as_array().unwrap() {
        let hash: u64 = row["hash"].as_str().unwrap().parse().unwrap();
        assert_eq!(u64::from(shard_of_hash(hash)), row["buckets_1024"], "{row}");
    }
}

/// The hash whose generator is at `key` after so many jumps.
fn hash_before(key: u64, jumps: u32) -> u64 {
    // Newton's iteration: each step doubles the number of right bits.
    let inverse = (0..6)
        .fold(MULTIPLIER, |x, _| x.wrapping_mul(2_u64.wrapping_sub(MULTIPLIER.wrapping_mul(x))));
    (0..jumps).fold(key, |key, _| key.wrapping_sub(1).wrapping_mul(inverse))
}

#[test]
fn the_fast_form_is_the_plain_one_where_jumps_are_close_to_an_integer() {
    // Divisors around all those for which a jump from `bucket` ends just at, or just before, a bucket.
    let mut close = 0;
    for jumps in 1..=3 {
        for bucket in 1..=64_u64 {
            for end in (bucket..=1024).step_by(if bucket == 1 { 1 } else { 37 }) {
                for divisor in (bucket << 31) / end - 2..=(bucket << 31) / end + 2 {
                    let Some(high) = divisor.checked_sub(1).filter(|high| *high < 1 << 31) else {
                        continue;
                    };
                    let hash = hash_before((high << 33) | 0x1_2345_6789, jumps);
                    assert_eq!(u32::from(shard_of_hash(hash)), jump_hash(hash, 1024), "{hash}");
                    close += 1;
                }
            }
        }
    }
    assert!(close > 20_000, "{close}");
}

#[test]
fn a_quotient_that_was_rounded_down_makes_the_jump_end_short() {
    // 49 * (1 / 49) is below 1 in doubles, and so are these: here the form matters, and the fast one
    // has to ask the plain one.
    for places in [49_u64, 98, 103, 107, 161, 187, 196, 197] {
        for end in [256_u64, 512] {
            let divisor = places * (1 << 31) / end;
            assert_eq!(divisor * end, places << 31, "an exact multiple");
            // One jump to the bucket before, and this divisor for the next one.
            let hash = (0..10_000_000_u64)
                .map(|low| hash_before((divisor - 1) << 33 | low, 2))
                .find(|hash| (1_u64 << 31) / ((next_key(*hash) >> 33) + 1) == places - 1)
                .unwrap();
            assert_eq!(u64::from(jump_hash(hash, end as u32)), end - 1, "{hash}");
            assert_eq!(u32::from(shard_of_hash(hash)), jump_hash(hash, 1024), "{hash}");
        }
    }
}

#[test]
fn hashes_spread_evenly_over_the_buckets() {
    const PER_BUCKET: u32 = 1000;
    for buckets in [2_u32, 3, 10, 100, 1024] {
        let mut counts = vec![0_u32; buckets as usize];
        for number in 0..u64::from(buckets * PER_BUCKET) {
            let key = format!("key-{number}");
            counts[jump_hash(hash_key(key.as_bytes()), buckets) as usize] += 1;
        }
        // Chi square: its mean is the degrees of freedom, its variance twice as much.
        let chi_square: f64 = counts
            .iter()
            .map(|count| (f64::from(*count) - f64::from(PER_BUCKET)).powi(2))
            .sum::<f64>()
            / f64::from(PER_BUCKET);
        let freedom = f64::from(buckets - 1);
        assert!(chi_square < freedom + 4.0 * (2.0 * freedom).sqrt(), "{buckets}: {chi_square}");
    }
}

#[test]
fn one_bucket_more_moves_its_share_and_only_into_it() {
    const HASHES: u64 = 100_000;
    for buckets in (1..=16).chain([31, 99, 100, 255, 511, 1022, 1023]) {
        let mut moved = 0_u32;
        for number in 0..HASHES {
            let hash = hash_key(&number.to_be_bytes());
            let (before, after) = (jump_hash(hash, buckets), jump_hash(hash, buckets + 1));
            if before != after {
                assert_eq!(after, buckets, "{hash} moved between buckets that were there");
                moved += 1;
            }
        }
        // Exactly one in N + 1 is expected; the count is binomial.
        let share = 1.0 / f64::from(buckets + 1);
        let expected = HASHES as f64 * share;
        let deviation = (expected * (1.0 - share)).sqrt();
        let off = (f64::from(moved) - expected).abs();
        assert!(off < 4.0 * deviation, "{buckets}: {moved} instead of {expected}");
    }
}

//! Which key comes next, what is done with it, and the values that are written.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, Zipf};

/// How often each key is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Distribution {
    /// Each as often as the others
    Uniform,
    /// Few of them most of the time (Zipf, exponent 0.99)
    Zipf,
}

/// The exponent of the skewed distribution: that of the YCSB paper (Cooper et al., 2010).
const ZIPF_EXPONENT: f64 = 0.99;
/// Values are cut from so many random bytes, so that nobody can compress them away.
const POOL_BYTES: usize = 1 << 20;

/// One thing to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Op {
    /// Of which key.
    pub(crate) key: u64,
    /// Whether the key is set; else it is read.
    pub(crate) is_write: bool,
}

/// What is to be done, one after the other.
pub struct Ops {
    random: SmallRng,
    keys: u64,
    zipf: Option<Zipf<f64>>,
    /// Of 2^32 ops so many are reads.
    reads: u64,
    /// While there are keys left that are to be set once each: the next, and the end.
    filling: Option<(u64, u64)>,
}

impl Ops {
    /// `keys` of them, at least one; `reads`: the share of reads, from 0 to 1.
    #[must_use]
    pub fn new(distribution: Distribution, keys: u64, reads: f64, seed: u64) -> Self {
        let zipf = match distribution {
            Distribution::Uniform => None,
            Distribution::Zipf => Zipf::new(keys.max(1) as f64, ZIPF_EXPONENT).ok(),
        };
        let reads = (reads.clamp(0.0, 1.0) * (1_u64 << 32) as f64) as u64;
        let random = SmallRng::seed_from_u64(seed);
        Self { random, keys: keys.max(1), zipf, reads, filling: None }
    }

    /// Sets the keys from `first` to before `end`, and then nothing.
    #[must_use]
    pub fn fill(first: u64, end: u64, seed: u64) -> Self {
        let ops = Self::new(Distribution::Uniform, end, 0.0, seed);
        Self { filling: Some((first, end)), ..ops }
    }

    /// The next; none when all keys are set that were to be.
    pub(crate) fn next(&mut self) -> Option<Op> {
        if let Some((next, end)) = &mut self.filling {
            let key = *next;
            *next += 1;
            return (key < *end).then_some(Op { key, is_write: true });
        }
        let random: u64 = self.random.random();
        let is_write = (random & 0xffff_ffff) >= self.reads;
        let key = match &self.zipf {
            // From 1; scattered, so that the frequent keys are not neighbours.
            Some(zipf) => scatter(zipf.sample(&mut self.random) as u64 - 1) % self.keys,
            None => {
                ((u128::from(self.random.random::<u64>()) * u128::from(self.keys)) >> 64) as u64
            }
        };
        Some(Op { key, is_write })
    }

    /// Where in a pool of values the next one begins.
    pub(crate) fn place(&mut self, places: usize) -> usize {
        let random = u64::from(self.random.random::<u32>());
        ((random * places as u64) >> 32) as usize
    }
}

fn scatter(rank: u64) -> u64 {
    xxhash_rust::xxh64::xxh64(&rank.to_le_bytes(), 0)
}

/// Random bytes to cut values from.
pub struct Values {
    pool: Vec<u8>,
    bytes: usize,
}

impl Values {
    /// Values of so many bytes.
    #[must_use]
    pub fn new(bytes: usize, seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut pool = vec![0; POOL_BYTES + bytes];
        random.fill(&mut pool[..]);
        Self { pool, bytes }
    }

    /// How many different ones there are.
    #[must_use]
    pub fn places(&self) -> usize {
        POOL_BYTES
    }

    /// One of them.
    #[must_use]
    pub fn at(&self, place: usize) -> &[u8] {
        self.pool.get(place..place + self.bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(distribution: Distribution) -> Vec<u64> {
        let mut ops = Ops::new(distribution, 100, 0.25, 1);
        let mut counts = vec![0; 100];
        let mut writes = 0;
        for _ in 0..100_000 {
            let op = ops.next().unwrap();
            counts[op.key as usize] += 1;
            writes += u64::from(op.is_write);
        }
        assert!((74_000..76_000).contains(&writes), "{writes}");
        counts.sort_unstable();
        counts
    }

    #[test]
    fn uniform_keys_are_all_alike_and_zipf_s_are_not() {
        let uniform = counts(Distribution::Uniform);
        assert!(uniform[0] > 800 && uniform[99] < 1_200, "{uniform:?}");
        let zipf = counts(Distribution::Zipf);
        // The most frequent of 100 has 1 / sum(1 / k^0.99), about 19 %.
        assert!((17_000..24_000).contains(&zipf[99]), "{zipf:?}");
        assert!(zipf[0] < 500, "{zipf:?}");
    }

    #[test]
    fn filling_sets_each_key_once_and_ends() {
        let mut ops = Ops::fill(3, 6, 1);
        let all: Vec<Op> = std::iter::from_fn(|| ops.next()).collect();
        assert_eq!(all, [3, 4, 5].map(|key| Op { key, is_write: true }));
        assert_eq!(ops.next(), None);
    }

    #[test]
    fn values_have_their_length_wherever_they_are_cut() {
        let values = Values::new(100, 1);
        assert_eq!(values.at(0).len(), 100);
        assert_eq!(values.at(values.places() - 1).len(), 100);
        assert_ne!(values.at(0), values.at(1));
    }
}

//! Random numbers that are the same everywhere for the same seed: SplitMix64. Each step of a run
//! draws from a stream of its own, so that a step that is left out changes little of the others.

/// A stream of random numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    /// One of many streams of a seed.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut rng = Self(seed ^ stream.wrapping_add(1).wrapping_mul(0xa24b_aed4_963e_e407));
        // Neighbouring seeds and streams differ in few bits before the first step.
        rng.0 = rng.next();
        rng
    }

    /// Any 64 bits.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to, but not including, `count`; 0 if that is 0.
    pub(super) fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.next()) * count as u128) >> 64) as usize
    }

    /// From `from` to `to`, both included.
    pub(super) fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) as usize + 1) as u64
    }

    /// True this many times of a hundred.
    pub(super) fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < percent as usize
    }

    /// One of several.
    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// An index, with the frequency of its weight; 0 if all weights are 0.
    pub(super) fn weighted(&mut self, weights: &[u32]) -> usize {
        let total: u32 = weights.iter().sum();
        let mut at = self.below(total as usize) as u32;
        for (index, weight) in weights.iter().enumerate() {
            if at < *weight {
                return index;
            }
            at -= weight;
        }
        0
    }

    /// Any order.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_in_their_range_and_reach_both_ends() {
        let mut rng = Rng::new(1, 2);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[rng.within(3, 7) as usize - 3] += 1;
        }
        assert!(seen.iter().all(|n| *n > 100), "{seen:?}");
        assert_eq!((rng.below(0), rng.within(4, 4)), (0, 4));
    }

    #[test]
    fn weights_decide_how_often() {
        let mut rng = Rng::new(7, 0);
        let mut seen = [0; 3];
        for _ in 0..1000 {
            seen[rng.weighted(&[1, 0, 9])] += 1;
        }
        assert!(seen[0] > 50 && seen[1] == 0 && seen[2] > 800, "{seen:?}");
    }

    #[test]
    fn neighbouring_streams_have_nothing_in_common() {
        let first: Vec<u64> = (0..100).map(|s| Rng::new(s, 0).next() >> 56).collect();
        let mut different = first.clone();
        different.sort_unstable();
        different.dedup();
        assert!(different.len() > 70, "{first:?}");
    }
}

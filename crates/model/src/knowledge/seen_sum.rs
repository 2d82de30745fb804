//! A short sum over the ticks seen of many incarnations, by which two nodes find out that they
//! agree on all of them without naming a single one (docs/replication-rules.md, "Optimizations":
//! retired incarnations stay out of the digests, covered by a hash).

use std::collections::BTreeSet;

use xxhash_rust::xxh64::{Xxh64, xxh64};

use crate::ids::{NodeId, NodeIndex, NodeTable};
use crate::seen::Seen;
use crate::tick_set::TickSet;

/// The sum over a set of incarnations. It does not depend on their order, so an incarnation can
/// be added and taken away again, and two nodes may know them under different indices.
///
/// Of two different sets the sums are the same with a probability of 2^-64: good enough against
/// chance, and peers are trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SeenSum {
    /// The sum of the shares' hashes, modulo 2^64.
    pub hash: u64,
    /// How many incarnations there are in it.
    pub count: u64,
}

impl SeenSum {
    /// Adds an incarnation's share. An empty one changes nothing.
    pub fn add(&mut self, share: Share) {
        if let Some(hash) = share.0 {
            self.hash = self.hash.wrapping_add(hash);
            self.count = self.count.wrapping_add(1);
        }
    }

    /// Takes a share away that was added before.
    pub fn remove(&mut self, share: Share) {
        if let Some(hash) = share.0 {
            self.hash = self.hash.wrapping_sub(hash);
            self.count = self.count.wrapping_sub(1);
        }
    }
}

/// What one incarnation contributes to a sum; nothing while nothing was seen of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Share(Option<u64>);

impl Share {
    /// Of an incarnation of which these ticks were seen; `key` is [`share_key`] of its identity.
    /// Takes as long as there are ranges.
    #[must_use]
    pub fn of(key: u64, ticks: Option<&TickSet>) -> Self {
        match (Extent::of(ticks), ticks) {
            (Extent::Nothing, _) | (_, None) => Self(None),
            (Extent::Whole(highest), _) => Self(Some(xxh64(&highest.to_le_bytes(), key))),
            (Extent::Holed, Some(ticks)) => {
                let mut hash = Xxh64::new(key);
                for (from, to) in ticks.ranges() {
                    hash.update(&from.to_le_bytes());
                    hash.update(&to.to_le_bytes());
                }
                Self(Some(hash.digest()))
            }
        }
    }
}

/// The sum over all that was seen of the incarnations that are not named.
#[must_use]
pub fn sum_of_rest(table: &NodeTable, seen: &Seen, named: &BTreeSet<NodeIndex>) -> SeenSum {
    let mut sum = SeenSum::default();
    for (node, ticks) in seen.iter().filter(|(node, _)| !named.contains(node)) {
        sum.add(Share::of(share_key(table.id(node)), Some(ticks)));
    }
    sum
}

/// What an incarnation with these seen ticks contributes to a sum that distinguishes any two
/// different sets, also sets with holes; 0 if nothing was seen of it.
#[must_use]
pub fn fingerprint(key: u64, ticks: &TickSet) -> u64 {
    Share::of(key, Some(ticks)).0.unwrap_or(0)
}

/// An incarnation's part of its share: the same on every node, whatever its index there.
#[must_use]
pub fn share_key(id: &NodeId) -> u64 {
    xxh64(id.name.as_str().as_bytes(), id.incarnation.0)
}

/// What was seen of one incarnation, as far as it is known without a look at the ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Extent {
    /// No tick.
    #[default]
    Nothing,
    /// All ticks from 1 to this one.
    Whole(u64),
    /// There are holes: its share takes a while to find out.
    Holed,
}

impl Extent {
    /// Of a set of ticks.
    #[must_use]
    pub fn of(ticks: Option<&TickSet>) -> Self {
        match ticks.map(|ticks| (ticks.contiguous(), ticks.max())) {
            None | Some((_, 0)) => Self::Nothing,
            Some((contiguous, highest)) if contiguous == highest => Self::Whole(highest),
            Some(_) => Self::Holed,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ids::{Incarnation, NodeName};
    use crate::seen_sum::*;
    use proptest::prelude::*;

    fn share(name: &str, incarnation: u64, highest: u64) -> Share {
        let id =
            NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(incarnation) };
        Share::of(share_key(&id), TickSet::range(1, highest + 1).as_ref())
    }

    fn sum(shares: &[Share]) -> SeenSum {
        let mut sum = SeenSum::default();
        shares.iter().for_each(|share| sum.add(*share));
        sum
    }

    #[test]
    fn a_sum_tells_names_incarnations_and_ticks_apart() {
        let one = sum(&[share("a", 1, 5)]);
        for other in [share("b", 1, 5), share("a", 2, 5), share("a", 1, 6)] {
            assert_ne!(sum(&[other]), one);
        }
        // A swap between two of them does not cancel out.
        let crossed = [share("a", 1, 6), share("b", 1, 5)];
        assert_ne!(sum(&crossed), sum(&[share("a", 1, 5), share("b", 1, 6)]));
    }

    #[test]
    fn a_fingerprint_tells_sets_with_holes_apart() {
        let print = |ranges: &[(u64, u64)]| {
            let mut set = TickSet::new();
            ranges.iter().for_each(|(from, to)| assert!(set.insert_range(*from, *to)));
            fingerprint(7, &set)
        };
        assert_eq!(print(&[]), 0);
        let sets: [&[(u64, u64)]; 5] =
            [&[(1, 5)], &[(1, 6)], &[(1, 5), (7, 8)], &[(1, 5), (7, 9)], &[(1, 4), (7, 8)]];
        let mut prints: Vec<u64> = sets.into_iter().map(print).collect();
        prints.sort_unstable();
        prints.dedup();
        assert_eq!(prints.len(), 5);
    }

    #[test]
    fn an_extent_is_whole_only_without_holes() {
        let ticks = |ranges: &[(u64, u64)]| {
            let mut set = TickSet::new();
            ranges.iter().for_each(|(from, to)| assert!(set.insert_range(*from, *to)));
            Extent::of(Some(&set))
        };
        assert_eq!(Extent::of(None), Extent::Nothing);
        assert_eq!(ticks(&[]), Extent::Nothing);
        assert_eq!(ticks(&[(1, 5)]), Extent::Whole(4));
        assert_eq!(ticks(&[(1, 5), (7, 8)]), Extent::Holed);
        assert_eq!(ticks(&[(2, 5)]), Extent::Holed);
        assert_eq!(sum(&[Share::of(7, None)]), SeenSum::default());
    }

    #[test]
    fn sets_with_other_holes_have_other_shares() {
        let share = |ranges: &[(u64, u64)]| {
            let mut set = TickSet::new();
            ranges.iter().for_each(|(from, to)| assert!(set.insert_range(*from, *to)));
            Share::of(7, Some(&set))
        };
        let all = [&[(1, 5)][..], &[(2, 5)], &[(1, 2), (3, 5)], &[(1, 3), (4, 5)], &[(1, 2)]];
        for (at, one) in all.iter().enumerate() {
            assert_eq!(share(one), share(one));
            assert!(all[..at].iter().all(|other| share(other) != share(one)), "{one:?}");
        }
    }

    proptest! {
        #[test]
        fn what_was_added_in_any_order_can_be_taken_away_again(
            all in proptest::collection::vec((0u64..9, 1u64..9), 0..12), cut in 0usize..12,
        ) {
            let shares: Vec<Share> = all.iter().map(|(i, n)| share("a", *i, *n)).collect();
            let (kept, gone) = shares.split_at(cut.min(shares.len()));
            let mut rest = sum(&[gone, kept].concat());
            prop_assert_eq!(rest, sum(&shares));
            gone.iter().for_each(|share| rest.remove(*share));
            prop_assert_eq!(rest, sum(kept));
        }
    }
}

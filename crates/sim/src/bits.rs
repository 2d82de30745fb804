//! A set of small numbers.

/// A set of small numbers that grows as needed.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub(super) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    pub(super) fn contains(&self, number: u32) -> bool {
        self.words.get(number as usize / 64).is_some_and(|w| w >> (number % 64) & 1 == 1)
    }

    /// Adds a number; returns whether it was new.
    pub(super) fn insert(&mut self, number: u32) -> bool {
        let at = number as usize / 64;
        if self.words.len() <= at {
            self.words.resize(at + 1, 0);
        }
        let bit = 1 << (number % 64);
        let is_new = self.words[at] & bit == 0;
        self.words[at] |= bit;
        is_new
    }

    pub(super) fn union_with(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    /// The numbers, rising.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(at, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at as u32 * 64 + bit)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_into_it() {
        let (mut a, mut b) = (Bits::default(), Bits::default());
        assert!(a.insert(3) && a.insert(200) && !a.insert(3));
        assert!(b.insert(64));
        b.union_with(&a);
        assert_eq!(b.iter().collect::<Vec<_>>(), [3, 64, 200]);
        assert!(b.contains(64) && !a.contains(64) && !a.contains(10_000));
    }
}

//! Which `ask`s came before. A node sends each of them once, with a higher counter than all that it sent before, so
//! whoever sends recorded ones again can have each of them taken for a new one only once.

use std::collections::BTreeMap;

use super::pace::{NEW_ASKS_PER_SECOND_MAX, Pace};
use super::seal::Nonce;

/// Most lives of askers that are told apart. If there are more, all are forgotten.
pub(super) const ASKERS_MAX: usize = 4_096;

/// The `ask`s that came here.
#[derive(Debug, Default)]
pub(super) struct Asks {
    /// The highest counter, by asker's epoch; at most `ASKERS_MAX`. Nothing tells whether an asker lives, so
    /// these are no windows: they keep nothing out, and may be forgotten.
    newest: BTreeMap<u64, u64>,
    answered: Pace,
}

impl Asks {
    /// Notes an `ask`. Whether it is a new one: later than all of this asker that came here.
    pub(super) fn note(&mut self, ask: Nonce) -> bool {
        if !self.newest.contains_key(&ask.sender) && self.newest.len() >= ASKERS_MAX {
            self.newest.clear();
        }
        let newest = self.newest.entry(ask.sender).or_default();
        let is_new = ask.counter > *newest;
        *newest = ask.counter.max(*newest);
        is_new
    }

    /// Whether one more new one may be answered now, beyond what its address may get.
    pub(super) fn allows_new(&mut self, now: u64) -> bool {
        self.answered.allows_of(NEW_ASKS_PER_SECOND_MAX, now)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.newest.len()
    }
}

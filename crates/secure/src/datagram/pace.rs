//! At most 10 answers a second to one address, however many addresses ask; besides, of new `ask`s, so many from all
//! peers together.

use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Most `ask`s, and most `tell`s, to one address within a second.
pub(super) const PER_SECOND_MAX: u32 = 10;
/// Most strangers' addresses whose pace is kept.
pub(super) const STRANGERS_MAX: usize = 1_024;
/// Most `tell`s within a second to peers that got more than their share, if their `ask`s are new.
pub(super) const NEW_ASKS_PER_SECOND_MAX: u32 = 1_024;
const SECOND_MS: u64 = 1_000;
/// How often a full table is looked through for idle addresses.
const LOOK_MS: u64 = 100;

/// How often something was done lately.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    since: u64,
    count: u32,
}

impl Pace {
    /// Whether it may be done once more, now (milliseconds), for one address; if so, it counts.
    pub(super) fn allows(&mut self, now: u64) -> bool {
        self.allows_of(PER_SECOND_MAX, now)
    }

    /// The same where `most` a second are allowed.
    pub(super) fn allows_of(&mut self, most: u32, now: u64) -> bool {
        if self.is_idle(now) {
            *self = Self { since: now, count: 0 };
        }
        let is_allowed = self.count < most;
        self.count += u32::from(is_allowed);
        is_allowed
    }

    fn is_idle(&self, now: u64) -> bool {
        now.saturating_sub(self.since) >= SECOND_MS
    }
}

/// The pace of answers to addresses that are not peers.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    /// At most `STRANGERS_MAX`.
    paces: BTreeMap<SocketAddr, Pace>,
    /// Before this moment, it is of no use to look for idle ones again.
    full_until: u64,
}

impl Strangers {
    /// Whether this address may be answered now. If there are too many at once, further ones get no answer
    /// within this second.
    pub(super) fn allows(&mut self, from: SocketAddr, now: u64) -> bool {
        if !self.paces.contains_key(&from) && self.paces.len() >= STRANGERS_MAX {
            if now >= self.full_until {
                self.paces.retain(|_, pace| !pace.is_idle(now));
                self.full_until = now + LOOK_MS;
            }
            if self.paces.len() >= STRANGERS_MAX {
                return false;
            }
        }
        self.paces.entry(from).or_default().allows(now)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.paces.len()
    }
}

//! At most 10 answers a second to one address, however many addresses ask.

use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Most `ask`s, and most `tell`s, to one address within a second.
pub(super) const PER_SECOND_MAX: u32 = 10;
/// Most strangers' addresses whose pace is kept.
pub(super) const STRANGERS_MAX: usize = 1_024;
const SECOND_MS: u64 = 1_000;

/// How often something was done lately.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    since: u64,
    count: u32,
}

impl Pace {
    /// Whether it may be done once more, now (milliseconds); if so, it counts.
    pub(super) fn allows(&mut self, now: u64) -> bool {
        if self.is_idle(now) {
            *self = Self { since: now, count: 0 };
        }
        self.count += u32::from(self.count < PER_SECOND_MAX + 1);
        self.count <= PER_SECOND_MAX
    }

    fn is_idle(&self, now: u64) -> bool {
        now.saturating_sub(self.since) >= SECOND_MS
    }
}

/// The pace of answers to addresses that are not peers.
#[derive(Debug, Default)]
pub(super) struct Strangers(BTreeMap<SocketAddr, Pace>);

impl Strangers {
    /// Whether this address may be answered now. If there are too many at once, further ones get no answer
    /// within this second.
    pub(super) fn allows(&mut self, from: SocketAddr, now: u64) -> bool {
        if !self.0.contains_key(&from) && self.0.len() >= STRANGERS_MAX {
            self.0.retain(|_, pace| !pace.is_idle(now));
            if self.0.len() >= STRANGERS_MAX {
                return false;
            }
        }
        self.0.entry(from).or_default().allows(now)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

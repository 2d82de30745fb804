//! How many of the available file descriptors clients may use. The rest is reserved for the node's
//! own files, for links, and for telling refused clients: a node whose clients have taken the last
//! descriptor could neither log nor link.

use rustix::process::{Resource, getrlimit};

use crate::node::link::{GREETINGS_MAX, LINKS_MAX};
use crate::server::REFUSALS_MAX;

/// Standard streams, the reactor, ports, the log, a snapshot that is written and read again, files
/// for clients, name look-ups.
const OWN_FILES: usize = 32;

/// What of the descriptors is for what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::node) struct Shares {
    /// How many the system allows.
    pub(in crate::node) limit: usize,
    /// Client connections.
    pub(in crate::node) clients: usize,
    /// Connections of clients that are told that there are too many.
    pub(in crate::node) refusals: usize,
    /// Connections to the gossip port that have not greeted.
    pub(in crate::node) strangers: usize,
}

impl Shares {
    /// With the system's present limit, for a node that wants this many clients, and `others` for HTTP.
    pub(in crate::node) fn now(clients_wanted: usize, others: usize) -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        // Of a small limit, not more than a quarter.
        Self { limit, ..Self::of(limit - others.min(limit / 4), clients_wanted) }
    }

    /// Clients get the rest of the limit; if it is small, half of it.
    fn of(limit: usize, clients_wanted: usize) -> Self {
        let reserve = (OWN_FILES + LINKS_MAX + GREETINGS_MAX + REFUSALS_MAX).min(limit / 2);
        let links = reserve.saturating_sub(OWN_FILES);
        Self {
            limit,
            clients: clients_wanted.min(limit - reserve).max(1),
            refusals: (links / 8).clamp(1, REFUSALS_MAX),
            strangers: (links / 2).clamp(1, GREETINGS_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_what_they_want_where_there_is_enough_for_everybody() {
        let shares = Shares::of(20_000, 10_000);
        assert_eq!((shares.clients, shares.refusals, shares.strangers), (10_000, 64, 256));
    }

    #[test]
    fn a_small_limit_is_shared() {
        let shares = Shares::of(128, 10_000);
        assert_eq!((shares.clients, shares.refusals, shares.strangers), (64, 4, 16));
        assert_eq!(Shares::of(1024, 10_000).clients, 512);
        assert_eq!(Shares::of(1024, 100).clients, 100);
        for limit in 0..100 {
            assert!(Shares::of(limit, 10_000).clients <= limit.max(1));
        }
    }
}

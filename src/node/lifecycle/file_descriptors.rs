//! How many of the available file descriptors clients may use, and who comes by HTTP. The rest is reserved for the node's
//! own files, for links, for telling refused clients, and for those who look what is wrong: a node whose clients have
//! taken the last descriptor could neither log nor link.

use distkv_http::HTTP_CONNECTIONS_MAX;
use rustix::process::{Resource, getrlimit};

use crate::node::link::{GREETINGS_MAX, LINKS_MAX};
use crate::server::{KEPT_CONNECTIONS_MAX, REFUSALS_MAX};

/// Standard streams, the reactor, ports, the log, a snapshot that is written and read again, files
/// for clients, name look-ups.
const OWN_FILES: usize = 32;
/// Descriptors for each HTTP connection there may be: one that was closed to make room for it may not have ended yet.
const FOR_EACH_HTTP: usize = 2;

/// What of the descriptors is for what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::node) struct Shares {
    /// How many the system allows.
    pub(in crate::node) limit: usize,
    /// Client connections.
    pub(in crate::node) clients: usize,
    /// HTTP connections, without those that are on their way out.
    pub(in crate::node) http: usize,
    /// Connections of clients that are told that there are too many.
    pub(in crate::node) refusals: usize,
    /// Clients of this machine that look what is wrong when there is no room for others.
    pub(in crate::node) kept: usize,
    /// Connections to the gossip port that have not greeted.
    pub(in crate::node) strangers: usize,
}

impl Shares {
    /// With the system's present limit, for a node that wants this many clients.
    pub(in crate::node) fn now(clients_wanted: usize, has_http: bool) -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self::of(usize::try_from(limit).unwrap_or(usize::MAX), clients_wanted, has_http)
    }

    /// HTTP gets a quarter of a small limit. Clients get what the node itself does not need; if it is small, half of the rest.
    fn of(limit: usize, clients_wanted: usize, has_http: bool) -> Self {
        let http = if has_http { HTTP_CONNECTIONS_MAX.min(limit / 4 / FOR_EACH_HTTP) } else { 0 };
        let rest = limit - http * FOR_EACH_HTTP;
        let all = OWN_FILES + LINKS_MAX + GREETINGS_MAX + REFUSALS_MAX + KEPT_CONNECTIONS_MAX;
        let reserve = all.min(rest / 2);
        let links = reserve.saturating_sub(OWN_FILES);
        Self {
            limit,
            clients: clients_wanted.min(rest - reserve).max(1),
            http,
            refusals: (links / 8).clamp(1, REFUSALS_MAX),
            kept: (links / 8).clamp(2, KEPT_CONNECTIONS_MAX),
            strangers: (links / 2).clamp(1, GREETINGS_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_what_they_want_where_there_is_enough_for_everybody() {
        let shares = Shares::of(20_000, 10_000, true);
        assert_eq!(shares.http, HTTP_CONNECTIONS_MAX);
        assert_eq!((shares.clients, shares.refusals, shares.strangers), (10_000, 64, 256));
    }

    #[test]
    fn a_small_limit_is_shared() {
        let shares = Shares::of(128, 10_000, false);
        assert_eq!((shares.clients, shares.refusals, shares.strangers), (64, 4, 16));
        assert_eq!(Shares::of(1024, 10_000, false).clients, 512);
        assert_eq!(Shares::of(1024, 100, false).clients, 100);
        for limit in 0..100 {
            assert!(Shares::of(limit, 10_000, false).clients <= limit.max(1));
        }
    }

    #[test]
    fn clients_and_http_together_leave_what_the_node_needs() {
        for limit in 100..20_000 {
            let shares = Shares::of(limit, 10_000, true);
            let taken = shares.clients + shares.http * FOR_EACH_HTTP;
            let taken = taken + shares.refusals + shares.kept + shares.strangers;
            assert!(limit - taken >= OWN_FILES, "{limit}: {shares:?}");
        }
    }
}

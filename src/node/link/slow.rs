//! Messages that were given up half-way because their link ended: once is nothing, but where it happens again, the
//! line is too slow for what goes over it, or never whole for long enough. Pure; time comes in.

use std::collections::BTreeMap;

use super::arrivals::{GAP_LONG_MS, RATE_LEAST};
use crate::model::count::count_of;
use crate::model::ids::{Millis, NodeName};

/// A message that was under way for less than this says nothing about the line.
pub(super) const UNDER_WAY_MS: Millis = 2_000;
/// Nor does a shorter one, in bytes: where it did not get through, next to nothing did, so the peer stood still or was out
/// of reach. At [`RATE_LEAST`] it takes 16 s.
const LONG_LEAST: usize = 16 << 10;
/// What happened longer ago is forgotten.
const MEMORY_MS: Millis = 600_000;
/// So often it must have happened.
const TIMES_LEAST: u64 = 2;
/// Most peers of which it is remembered.
const SLOW_PEERS_MAX: usize = 256;

/// The messages given up of late, by peer, and whether they came from it.
#[derive(Debug, Default)]
pub(in crate::node) struct GivenUp {
    of: BTreeMap<(NodeName, bool), Times>,
}

#[derive(Debug)]
struct Times {
    count: u64,
    /// The longest of them.
    bytes: usize,
    last: Millis,
}

impl GivenUp {
    /// A message of about so many bytes, from that peer or to it, did not get through. Returns a warning where it
    /// is not the first.
    pub(super) fn note(
        &mut self,
        peer: &NodeName,
        is_from: bool,
        bytes: usize,
        now: Millis,
    ) -> Option<String> {
        if bytes < LONG_LEAST {
            return None;
        }
        self.of.retain(|_, times| now.saturating_sub(times.last) < MEMORY_MS);
        let key = (peer.clone(), is_from);
        if self.of.len() >= SLOW_PEERS_MAX && !self.of.contains_key(&key) {
            return None;
        }
        let times = self.of.entry(key).or_insert(Times { count: 0, bytes: 0, last: now });
        (times.count, times.last) = (times.count + 1, now);
        times.bytes = times.bytes.max(bytes);
        times.warning(peer, is_from)
    }

    /// What an operator should know, one line each.
    pub(in crate::node) fn warnings(&self, now: Millis) -> Vec<String> {
        let lately = self.of.iter().filter(|(_, t)| now.saturating_sub(t.last) < MEMORY_MS);
        lately.filter_map(|((peer, is_from), times)| times.warning(peer, *is_from)).collect()
    }
}

impl Times {
    fn warning(&self, peer: &NodeName, is_from: bool) -> Option<String> {
        (self.count >= TIMES_LEAST).then(|| {
            format!(
                "the link with {peer} has ended {} in the middle of a long message {} it, of {} at most: the line \
                 is too slow, or breaks (fewer than {RATE_LEAST} bytes per second, or none for {} s, end a link)",
                count_of(self.count, "time", "times"),
                if is_from { "from" } else { "to" },
                count_of(self.bytes as u64, "byte", "bytes"),
                GAP_LONG_MS / 1_000,
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> NodeName {
        NodeName::new(text).unwrap()
    }

    #[test]
    fn it_is_told_when_it_happens_again_and_forgotten_later() {
        let mut given_up = GivenUp::default();
        let (n1, n2) = (name("n1"), name("n2"));
        assert_eq!(given_up.note(&n1, true, 50_000, 0), None);
        assert_eq!(given_up.note(&n1, false, 50_000, 1), None, "another direction");
        assert_eq!(given_up.note(&n2, true, 50_000, 2), None, "another peer");
        assert_eq!(given_up.warnings(3), [""; 0]);
        for _ in 0..3 {
            assert_eq!(given_up.note(&n1, true, 235, 3), None, "a short one");
        }
        let told = given_up.note(&n1, true, 40_000, 3).unwrap();
        assert!(told.contains("with n1 has ended 2 times"), "{told}");
        assert!(told.contains("from it, of 50000 bytes at most"), "{told}");
        assert!(told.contains("fewer than 1024 bytes per second, or none for 5 s"), "{told}");
        assert_eq!(given_up.warnings(4), [told]);
        assert_eq!(given_up.warnings(3 + MEMORY_MS), [""; 0]);
        assert_eq!(given_up.note(&n1, true, 90_000, 3 + MEMORY_MS), None, "the first one again");
    }

    #[test]
    fn no_more_peers_are_remembered_than_a_node_has_links() {
        let mut given_up = GivenUp::default();
        for number in 0..2 * SLOW_PEERS_MAX {
            given_up.note(&name(&format!("n{number}")), true, LONG_LEAST, 0);
        }
        assert_eq!(given_up.of.len(), SLOW_PEERS_MAX);
    }
}

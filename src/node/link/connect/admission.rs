//! Which connection to a peer stays: a pure decision, the same on both sides.
//!
//! One link per pair: where both dial at once, the connection that the node with the smaller
//! name dialled stays. One live node per name: a newcomer at another address is refused; at the
//! same address it is the same node, restarted.

use std::net::SocketAddr;

use crate::model::ids::{Incarnation, Millis, NodeName};

/// Two connections between the same two lives within this time are two dials that crossed.
/// Later, a second one means that the peer has lost the first.
pub(super) const CROSSING_MS: Millis = 2_000;

/// One end of a connection whose greetings fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::node::link) struct Party<'a> {
    pub(in crate::node::link) incarnation: Incarnation,
    /// The gossip address of its greeting.
    pub(in crate::node::link) gossip: &'a str,
    /// Whether this node dialled it.
    pub(in crate::node::link) dialled: bool,
}

/// What SWIM knows of a live node of the same name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::node::link) struct LiveMember {
    pub(in crate::node::link) incarnation: Incarnation,
    pub(in crate::node::link) addr: SocketAddr,
}

/// What to do with a new connection.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(in crate::node::link) enum Admission {
    /// It is the first.
    Take,
    /// It takes the place of the link that stands.
    Replace,
    /// The link that stands stays.
    AlreadyLinked,
    /// Another live node has that name, here.
    NameInUse(String),
}

/// Decides about a new connection between this node (`own`) and the one named `peer`.
/// `candidate_addrs` is what the candidate's gossip address resolves to.
pub(in crate::node::link) fn decide_admission(
    own: &NodeName,
    peer: &NodeName,
    candidate: &Party<'_>,
    candidate_addrs: &[SocketAddr],
    linked: Option<(&Party<'_>, Millis)>,
    member: Option<LiveMember>,
) -> Admission {
    if let Some((standing, age_ms)) = linked {
        if standing.incarnation != candidate.incarnation {
            return if standing.gossip == candidate.gossip {
                Admission::Replace
            } else {
                Admission::NameInUse(standing.gossip.to_owned())
            };
        }
        let smaller_dialled = candidate.dialled == (own < peer);
        let crossed = standing.dialled != candidate.dialled;
        return if age_ms >= CROSSING_MS || (crossed && smaller_dialled) {
            Admission::Replace
        } else {
            Admission::AlreadyLinked
        };
    }
    match member {
        Some(member)
            if member.incarnation != candidate.incarnation
                && !candidate_addrs.contains(&member.addr) =>
        {
            Admission::NameInUse(member.addr.to_string())
        }
        _ => Admission::Take,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> NodeName {
        NodeName::new(text).unwrap()
    }

    fn party(incarnation: u64, gossip: &str, dialled: bool) -> Party<'_> {
        Party { incarnation: Incarnation(incarnation), gossip, dialled }
    }

    /// Both ends of two connections between a and b, taken in either order at each end.
    #[test]
    fn both_ends_keep_the_connection_that_the_smaller_name_dialled() {
        for (own, peer) in [("a", "b"), ("b", "a")] {
            let decide = |first_dialled: bool| {
                let standing = party(1, "x:1", first_dialled);
                let candidate = party(1, "x:1", !first_dialled);
                let linked = Some((&standing, 10));
                decide_admission(&name(own), &name(peer), &candidate, &[], linked, None)
            };
            // "Dialled by the smaller" is "dialled by me" for a and "not by me" for b.
            let keeps_first = (own == "a", Admission::AlreadyLinked);
            let takes_second = (own != "a", Admission::Replace);
            for (first_dialled, expected) in [keeps_first, takes_second] {
                assert_eq!(decide(first_dialled), expected, "{own} {first_dialled}");
            }
        }
    }

    #[test]
    fn a_second_dial_of_the_same_side_waits_its_turn_unless_the_first_is_old() {
        let (standing, candidate) = (party(1, "x:1", false), party(1, "x:1", false));
        let decide = |age| {
            let linked = Some((&standing, age));
            decide_admission(&name("a"), &name("b"), &candidate, &[], linked, None)
        };
        assert_eq!(decide(CROSSING_MS - 1), Admission::AlreadyLinked);
        assert_eq!(decide(CROSSING_MS), Admission::Replace);
    }

    #[test]
    fn a_restart_replaces_its_former_self_and_a_stranger_of_that_name_does_not() {
        let standing = party(1, "x:1", true);
        let decide = |candidate: &Party<'_>| {
            let linked = Some((&standing, 5));
            decide_admission(&name("a"), &name("b"), candidate, &[], linked, None)
        };
        assert_eq!(decide(&party(2, "x:1", false)), Admission::Replace);
        assert_eq!(decide(&party(2, "y:1", false)), Admission::NameInUse("x:1".into()));
        let moved = decide(&party(1, "y:1", true));
        assert_eq!(moved, Admission::AlreadyLinked, "the same life seen over another route");
    }

    #[test]
    fn a_name_that_is_only_known_to_be_up_is_in_use_as_well() {
        let addr: SocketAddr = "10.0.0.1:5".parse().unwrap();
        let member = Some(LiveMember { incarnation: Incarnation(1), addr });
        let decide = |incarnation, addrs: &[SocketAddr]| {
            let candidate = party(incarnation, "h:5", false);
            decide_admission(&name("a"), &name("b"), &candidate, addrs, None, member)
        };
        assert_eq!(decide(1, &[]), Admission::Take);
        assert_eq!(decide(2, &[addr]), Admission::Take);
        assert_eq!(decide(2, &[]), Admission::NameInUse("10.0.0.1:5".into()));
        let candidate = party(2, "h:5", false);
        let free = decide_admission(&name("a"), &name("b"), &candidate, &[], None, None);
        assert_eq!(free, Admission::Take);
    }
}

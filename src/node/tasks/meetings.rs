//! Which meetings of two lists of housekeepers are the end of a split.
//!
//! Lists also lose each other where nobody was away: when the link of two nodes is made anew, or a node stands still for a
//! moment, each takes the other off its list, and a moment later the lists meet. That is worth a line for those who look
//! for details only.

use crate::membership::{MemberInfo, MemberState};
use crate::model::ids::{Millis, NodeName};

/// A member that has been up for so long was not away when the lists met: after a split they meet within seconds.
const BACK_MS: Millis = 60_000;

/// See the module.
#[derive(Default)]
pub(super) struct Meetings {
    /// Of those since the last healing, one was the end of a split.
    is_split: bool,
}

impl Meetings {
    /// Two sides have met. Whether the other one was away.
    pub(super) fn on_met(
        &mut self,
        theirs: &[NodeName],
        members: &[MemberInfo],
        now: Millis,
    ) -> bool {
        let is_split = theirs.iter().any(|name| !was_here(name, members, now));
        self.is_split |= is_split;
        is_split
    }

    /// Nothing is missing any more. Whether that heals a split: one side was away, or had something that the other lacked.
    pub(super) fn on_healed(&mut self, entries: u64) -> bool {
        std::mem::take(&mut self.is_split) || entries > 0
    }
}

fn was_here(name: &NodeName, members: &[MemberInfo], now: Millis) -> bool {
    members.iter().any(|member| {
        let is_up = matches!(member.state, MemberState::Up | MemberState::Suspect);
        member.name == *name && is_up && now.saturating_sub(member.since) >= BACK_MS
    })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::model::ids::Incarnation;

    fn name(text: &str) -> NodeName {
        NodeName::new(text).unwrap()
    }

    fn member(text: &str, state: MemberState, since: Millis) -> MemberInfo {
        let addr = SocketAddr::from(([127, 0, 0, 1], 1));
        MemberInfo { name: name(text), incarnation: Incarnation::of_random(1), addr, state, since }
    }

    #[test]
    fn only_who_was_away_makes_it_a_split() {
        use MemberState::{Down, Suspect, Up};
        let now = 100_000;
        let of = |theirs: &[&str], members: &[MemberInfo]| {
            let theirs: Vec<_> = theirs.iter().map(|text| name(text)).collect();
            Meetings::default().on_met(&theirs, members, now)
        };
        assert!(!of(&["b"], &[member("b", Up, 0)]), "a link was made anew");
        assert!(!of(&["b"], &[member("b", Suspect, 0)]), "it, or this node, stood still");
        assert!(of(&["b"], &[member("b", Up, 95_000)]), "it came back");
        assert!(of(&["b"], &[member("b", Down, 0)]) && of(&["b"], &[]), "it is about to");
        assert!(of(&["b", "c"], &[member("b", Up, 0), member("c", Up, 95_000)]));
    }

    #[test]
    fn each_split_is_healed_once() {
        let (here, now) = ([member("b", MemberState::Up, 0)], 100_000);
        let mut meetings = Meetings::default();
        meetings.on_met(&[name("c")], &here, now);
        meetings.on_met(&[name("b")], &here, now);
        assert!(meetings.on_healed(0));
        meetings.on_met(&[name("b")], &here, now);
        assert!(!meetings.on_healed(0));
        assert!(meetings.on_healed(5), "something was missing all the same");
    }
}

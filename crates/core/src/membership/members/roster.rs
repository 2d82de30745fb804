//! The reported state of each member, so that every change is reported exactly once.
//!
//! foca's notifications only say where to look. The report is the difference between what foca now
//! holds for an address and what was reported last; so a renewed generation is nothing, and a new
//! incarnation is one node going down and another coming up, in whatever steps foca got there.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use foca::{Member, State};

use super::identity::Identity;
use crate::membership::io::{DownReason, MemberInfo, MemberState, SwimOutput};
use crate::model::ids::{Incarnation, Millis, NodeName};

#[derive(Debug, Clone)]
struct Entry {
    name: NodeName,
    incarnation: Incarnation,
    /// `None` while it is up.
    down: Option<DownReason>,
    since: Millis,
}

/// The members as last reported, those that are down included until they are removed.
#[derive(Debug, Default)]
pub(in crate::membership) struct Roster {
    entries: BTreeMap<SocketAddr, Entry>,
}

/// What a member's identity and state mean to others than foca.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Up,
    Down(DownReason),
}

fn standing(member: &Member<Identity>) -> Standing {
    if member.id().leaving {
        Standing::Down(DownReason::Left)
    } else if member.state() == State::Down {
        Standing::Down(DownReason::Failed)
    } else {
        Standing::Up
    }
}

impl Roster {
    /// Reports how `member` differs from what was reported at its address.
    pub(in crate::membership) fn reconcile(
        &mut self,
        member: &Member<Identity>,
        now: Millis,
        out: &mut Vec<SwimOutput>,
    ) {
        let id = member.id();
        let standing = standing(member);
        if let Some(old) = self.entries.get_mut(&id.addr) {
            let is_same = old.name == id.name && old.incarnation == id.incarnation;
            let reason = match (is_same, standing) {
                (true, Standing::Up) if old.down.is_none() => return,
                (true, Standing::Down(reason)) => Some(reason),
                (true, Standing::Up) => None,
                (false, _) => Some(DownReason::Replaced),
            };
            match (old.down, reason) {
                (None, Some(reason)) => {
                    old.down = Some(reason);
                    old.since = now;
                    out.push(SwimOutput::MemberDown {
                        name: old.name.clone(),
                        incarnation: old.incarnation,
                        addr: id.addr,
                        reason,
                    });
                }
                // It was thought to have failed, but had left.
                (Some(_), Some(DownReason::Left)) => old.down = Some(DownReason::Left),
                _ => {}
            }
        }
        if standing == Standing::Up {
            self.report_up(id, now, out);
        }
    }

    fn report_up(&mut self, id: &Identity, now: Millis, out: &mut Vec<SwimOutput>) {
        let (name, incarnation) = (id.name.clone(), id.incarnation);
        out.push(SwimOutput::MemberUp { name: name.clone(), incarnation, addr: id.addr });
        self.entries.insert(id.addr, Entry { name, incarnation, down: None, since: now });
    }

    /// No longer shows a member that is down.
    pub(in crate::membership) fn remove_down(&mut self, addr: &SocketAddr) {
        if self.entries.get(addr).is_some_and(|entry| entry.down.is_some()) {
            self.entries.remove(addr);
        }
    }

    /// The members, for display, in order of addresses.
    pub(in crate::membership) fn members(
        &self,
        is_suspect: impl Fn(&SocketAddr) -> bool,
    ) -> Vec<MemberInfo> {
        let info = |(addr, entry): (&SocketAddr, &Entry)| MemberInfo {
            name: entry.name.clone(),
            incarnation: entry.incarnation,
            addr: *addr,
            state: match entry.down {
                None if is_suspect(addr) => MemberState::Suspect,
                None => MemberState::Up,
                Some(DownReason::Left) => MemberState::Left,
                Some(DownReason::Failed | DownReason::Replaced) => MemberState::Down,
            },
            since: entry.since,
        };
        self.entries.iter().map(info).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(incarnation: u64, generation: u32) -> Identity {
        let addr = "10.0.0.1:5".parse().unwrap();
        let id = Identity::new(addr, NodeName::new("a").unwrap(), Incarnation(incarnation));
        Identity { generation, ..id }
    }

    fn reports(roster: &mut Roster, member: Member<Identity>) -> Vec<String> {
        let mut out = Vec::new();
        roster.reconcile(&member, 5, &mut out);
        let short = |output: &SwimOutput| match output {
            SwimOutput::MemberUp { incarnation, .. } => format!("up {}", incarnation.0),
            SwimOutput::MemberDown { incarnation, reason, .. } => {
                format!("down {} {reason:?}", incarnation.0)
            }
            other => format!("{other:?}"),
        };
        out.iter().map(short).collect()
    }

    #[test]
    fn every_change_is_reported_once_and_a_renewal_is_none() {
        let mut roster = Roster::default();
        let up = |id| Member::alive(id);
        assert_eq!(reports(&mut roster, up(identity(1, 0))), ["up 1"]);
        assert_eq!(reports(&mut roster, up(identity(1, 0))), [""; 0]);
        assert_eq!(reports(&mut roster, up(identity(1, 1))), [""; 0]);
        let suspect = Member::new(identity(1, 1), 0, State::Suspect);
        assert_eq!(reports(&mut roster, suspect), [""; 0]);
        assert_eq!(reports(&mut roster, Member::down(identity(1, 1))), ["down 1 Failed"]);
        assert_eq!(reports(&mut roster, Member::down(identity(1, 1))), [""; 0]);
        assert_eq!(reports(&mut roster, up(identity(1, 2))), ["up 1"]);
        assert_eq!(reports(&mut roster, up(identity(2, 3))), ["down 1 Replaced", "up 2"]);
        assert_eq!(reports(&mut roster, up(identity(2, 3).leaving())), ["down 2 Left"]);
        assert_eq!(reports(&mut roster, Member::down(identity(2, 3).leaving())), [""; 0]);
        assert_eq!(reports(&mut roster, Member::down(identity(9, 9))), [""; 0], "never was up");
    }

    #[test]
    fn one_that_seemed_to_fail_but_left_is_shown_as_left() {
        let mut roster = Roster::default();
        reports(&mut roster, Member::alive(identity(1, 0)));
        reports(&mut roster, Member::down(identity(1, 0)));
        let state = |roster: &Roster| roster.members(|_| false)[0].state;
        assert_eq!(state(&roster), MemberState::Down);
        assert_eq!(reports(&mut roster, Member::down(identity(1, 0).leaving())), [""; 0]);
        assert_eq!(state(&roster), MemberState::Left);
    }
}

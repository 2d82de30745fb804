//! foca's timers, one slot for each thing that can be waited for.
//!
//! foca hands out timers and makes old ones void with a token of one byte. A heap would grow with
//! whatever a peer can provoke, and an old timer could come round to a token in use again. In
//! slots a new timer replaces the void one: there are never more than a few, plus one per suspect.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use foca::Timer;

use super::members::identity::Identity;
use crate::model::ids::Millis;

/// The event that is waited for. Timers that are due at the same time fire in this order; foca
/// wants the indirect probe before the next direct one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Slot {
    IndirectProbe,
    Probe,
    SuspectToDown(SocketAddr),
    Announce,
    AnnounceDown,
    Gossip,
    RemoveDown(SocketAddr),
}

impl Slot {
    fn of(timer: &Timer<Identity>) -> Self {
        match timer {
            Timer::SendIndirectProbe { .. } => Self::IndirectProbe,
            Timer::ProbeRandomMember(_) => Self::Probe,
            Timer::ChangeSuspectToDown { member_id, .. } => Self::SuspectToDown(member_id.addr),
            Timer::PeriodicAnnounce(_) => Self::Announce,
            Timer::PeriodicAnnounceDown(_) => Self::AnnounceDown,
            Timer::PeriodicGossip(_) => Self::Gossip,
            Timer::RemoveDown(identity) => Self::RemoveDown(identity.addr),
        }
    }
}

/// The timers that are armed.
#[derive(Debug, Default)]
pub(super) struct Timers {
    slots: BTreeMap<Slot, (Millis, Timer<Identity>)>,
}

impl Timers {
    /// Arms a timer, in place of an older one for the same thing. A suspicion that is armed
    /// already keeps its earlier deadline: foca raises it again with every failed probe.
    pub(super) fn arm(&mut self, at: Millis, timer: Timer<Identity>) {
        let slot = Slot::of(&timer);
        if let (Slot::SuspectToDown(_), Some((_, armed))) = (slot, self.slots.get(&slot))
            && is_same_suspicion(armed, &timer)
        {
            return;
        }
        self.slots.insert(slot, (at, timer));
    }

    /// When the next one is due.
    pub(super) fn next_deadline(&self) -> Option<Millis> {
        self.slots.values().map(|(at, _)| *at).min()
    }

    /// Takes out the timers that are due, in order.
    pub(super) fn take_due(&mut self, now: Millis) -> Vec<Timer<Identity>> {
        let mut due: Vec<(Millis, Slot)> = self
            .slots
            .iter()
            .filter(|(_, (at, _))| *at <= now)
            .map(|(slot, (at, _))| (*at, *slot))
            .collect();
        due.sort_unstable();
        due.iter().filter_map(|(_, slot)| self.slots.remove(slot)).map(|(_, timer)| timer).collect()
    }

    /// Gives every suspect that much longer: its answer could not be heard for that long.
    pub(super) fn postpone_suspicions(&mut self, by: Millis) {
        for (slot, (at, _)) in &mut self.slots {
            if matches!(slot, Slot::SuspectToDown(_)) {
                *at = at.saturating_add(by);
            }
        }
    }

    /// Disarms everything.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
    }
}

/// The same member, foca incarnation and token.
fn is_same_suspicion(armed: &Timer<Identity>, new: &Timer<Identity>) -> bool {
    matches!(armed, Timer::ChangeSuspectToDown { .. }) && armed == new
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{Incarnation, NodeName};

    fn suspicion(incarnation: u16, token: u8) -> Timer<Identity> {
        let addr = "10.0.0.1:5".parse().unwrap();
        let member_id = Identity::new(addr, NodeName::new("a").unwrap(), Incarnation(7));
        Timer::ChangeSuspectToDown { member_id, incarnation, token }
    }

    #[test]
    fn a_repeated_suspicion_keeps_the_first_deadline_and_a_new_one_replaces_it() {
        let mut timers = Timers::default();
        timers.arm(100, suspicion(0, 0));
        timers.arm(200, suspicion(0, 0));
        assert_eq!(timers.next_deadline(), Some(100));
        timers.arm(300, suspicion(1, 0));
        assert_eq!(timers.next_deadline(), Some(300));
        timers.arm(400, suspicion(1, 1));
        assert_eq!(timers.take_due(1000), vec![suspicion(1, 1)]);
        assert_eq!(timers.next_deadline(), None);
    }

    #[test]
    fn due_timers_come_in_the_order_of_their_deadlines_indirect_probes_first() {
        let mut timers = Timers::default();
        timers.arm(5, Timer::PeriodicGossip(0));
        timers.arm(7, Timer::ProbeRandomMember(0));
        let Timer::ChangeSuspectToDown { member_id, .. } = suspicion(0, 0) else { panic!() };
        timers.arm(7, Timer::SendIndirectProbe { probed_id: member_id, token: 0 });
        timers.arm(8, Timer::PeriodicAnnounce(0));
        let due = timers.take_due(7);
        assert!(matches!(
            due.as_slice(),
            [
                Timer::PeriodicGossip(_),
                Timer::SendIndirectProbe { .. },
                Timer::ProbeRandomMember(_)
            ]
        ));
        assert_eq!(timers.next_deadline(), Some(8));
    }

    #[test]
    fn only_suspicions_are_postponed() {
        let mut timers = Timers::default();
        timers.arm(5, Timer::PeriodicGossip(0));
        timers.arm(5, suspicion(0, 0));
        timers.postpone_suspicions(10);
        assert_eq!(timers.take_due(5), vec![Timer::PeriodicGossip(0)]);
        assert_eq!(timers.next_deadline(), Some(15));
    }
}

//! SWIM of each node: its timers, its datagrams, and what its engine is told.

use std::net::SocketAddr;

use crate::engine::Input;
use crate::membership::{Identity, NetworkName, Swim, SwimConfig, SwimInput, SwimOutput};
use crate::model::ids::{Incarnation, Millis, NodeId, NodeName};
use crate::whole::{Happening, Whole, note};

/// A datagram takes as long as a frame, and at least this.
const HOP_MS: Millis = 1;

/// A machine for a process at this address.
pub(in crate::whole) fn machine(
    addr: SocketAddr,
    name: NodeName,
    incarnation: Incarnation,
    seed: u64,
) -> Swim {
    let network = NetworkName::new("net").expect("it is a name");
    let identity = Identity::new(addr, name, incarnation);
    Swim::new(SwimConfig::lan(network), identity, seed).expect("settings are good")
}

impl Whole<'_> {
    pub(in crate::whole) fn on_swim(&mut self, slot: usize, number: u64) {
        let now = self.now();
        let Some(process) = self.slots[slot].running(number) else { return };
        if process.frozen {
            process.wake_at = None;
            return;
        }
        if process.wake_at.take_if(|at| *at <= now).is_some() {
            self.give_swim(slot, SwimInput::Tick);
        }
    }

    pub(in crate::whole) fn on_datagram(&mut self, from: SocketAddr, to: usize, bytes: &[u8]) {
        if self.slots[to].is_awake() {
            self.give_swim(to, SwimInput::Datagram { from, bytes });
        }
    }

    pub(in crate::whole) fn give_swim(&mut self, slot: usize, input: SwimInput<'_>) {
        let now = self.now();
        let Some(process) = &mut self.slots[slot].process else { return };
        let number = process.number;
        let mut out = Vec::new();
        process.swim.handle(input, now, &mut out);
        if let Some(deadline) = process.swim.next_deadline() {
            let wake = deadline.max(now + 1);
            if process.wake_at.is_none_or(|planned| wake < planned || planned < now) {
                process.wake_at = Some(wake);
                self.schedule.plan(wake, Happening::Swim { slot, process: number });
            }
        }
        let mut is_refused = false;
        for output in out {
            match output {
                SwimOutput::Send { to, bytes } => self.send_datagram(slot, to, bytes),
                SwimOutput::MemberUp { name, incarnation, addr } => {
                    if let Some(process) = &mut self.slots[slot].process {
                        process.up.insert(addr, name.clone());
                    }
                    self.handle(slot, Input::MemberUp { member: NodeId { name, incarnation } });
                }
                SwimOutput::MemberDown { name, incarnation, addr, .. } => {
                    if let Some(process) = &mut self.slots[slot].process
                        && process.up.get(&addr) == Some(&name)
                    {
                        process.up.remove(&addr);
                    }
                    self.handle(slot, Input::MemberDown { member: NodeId { name, incarnation } });
                }
                SwimOutput::Refused { .. } => is_refused = true,
                SwimOutput::IdentityRenewed { .. }
                | SwimOutput::NetworkMismatch { .. }
                | SwimOutput::VersionMismatch { .. } => {}
            }
        }
        // Its last words are among what was sent.
        if is_refused {
            note!(self, "{} is refused: its name is in use", self.slots[slot].label);
            self.give_way(slot);
        }
    }

    fn send_datagram(&mut self, slot: usize, to: SocketAddr, bytes: Vec<u8>) {
        let Some(to) = self.slots.iter().position(|slot| slot.addr == to) else { return };
        let loss = if self.is_healing() { 0 } else { self.plan.loss_permille };
        if self.cuts.is_cut(slot, to) || self.rng.below(1_000) < loss as usize {
            return;
        }
        let (least, most) = if self.is_healing() { (1, 1) } else { self.plan.delay_ms };
        let at = self.now() + self.rng.within(least, most).max(HOP_MS);
        let from = self.slots[slot].addr;
        self.schedule.plan(at, Happening::Datagram { from, to, bytes });
    }
}

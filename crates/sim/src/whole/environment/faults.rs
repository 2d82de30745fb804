//! The faults of a run, one after the other, as its plan weighs them.

use crate::model::ids::{Millis, NodeName};
use crate::rng::Rng;
use crate::storage::memory_disk::Fault as DiskFault;
use crate::whole::lives::End;
use crate::whole::plan::{FAULTS, Fault};
use crate::whole::{Happening, Whole, note};

/// Streams of random numbers of the steps come behind those of the run.
const STEP_STREAMS: u64 = 16;
/// A disk fails at one of so many next operations, when it is to fail in the middle of something.
const OPERATIONS: u64 = 40;

impl Whole<'_> {
    pub(in crate::whole) fn on_step(&mut self, number: usize, skipped: &[bool]) {
        if number >= self.plan.steps {
            self.rng = Rng::new(self.seed, 2);
            return self.heal();
        }
        self.rng = Rng::new(self.seed, STEP_STREAMS + number as u64);
        let weights = self.plan.weights.clone();
        let (fault, _) = FAULTS[self.rng.weighted(&weights)];
        let slot = self.rng.below(self.slots.len());
        if !skipped.get(number).copied().unwrap_or(false) {
            self.fault(fault, slot);
        }
        let gap = self.plan.gap_ms;
        let at = self.now() + self.rng.within(gap / 4, gap * 2);
        self.schedule.plan(at, Happening::Step(number + 1));
    }

    fn fault(&mut self, fault: Fault, slot: usize) {
        note!(self, "{fault:?} at {}", self.slots[slot].label);
        let until = self.now() + self.rng.within(50, 6_000);
        match fault {
            Fault::PowerCut => self.kill(slot, End::PowerCut),
            Fault::Kill => self.kill(slot, End::Killed),
            Fault::Stop => self.stop(slot),
            Fault::CutWhileWriting => {
                self.fail_disk(slot, DiskFault::Broken, OPERATIONS, true);
            }
            Fault::DiskFails => {
                let kinds = [DiskFault::Once, DiskFault::Broken, DiskFault::Full, DiskFault::Full];
                let kind = self.rng.pick(&kinds);
                self.fail_disk(slot, kind, OPERATIONS / 2, false);
            }
            Fault::DiskStalls => {
                if let Some(process) = &mut self.slots[slot].process {
                    process.disk_stalled_until = until;
                    process.log_planned = None;
                    process.was_slow = true;
                }
                self.touch(slot);
            }
            Fault::BackUp => self.back_up(slot),
            Fault::SetBack => self.set_back(slot),
            Fault::Copy => self.copy(slot),
            Fault::Restore => self.restore(slot),
            Fault::Lose => {
                // Somebody must stay.
                if self.slots.iter().filter(|slot| !slot.gone).count() > 1 {
                    self.lose(slot);
                }
            }
            Fault::Forget => self.forget_away(slot),
            Fault::Split => self.split(),
            Fault::Break => {
                let links = self.slots[slot].process.as_ref().map(|p| &p.links);
                let wires: Vec<usize> = links.iter().flat_map(|l| l.values().copied()).collect();
                if let Some(wire) = wires.get(self.rng.below(wires.len())) {
                    self.break_wire(*wire);
                }
            }
            Fault::Stall => self.stall(slot, until),
            Fault::Freeze => self.freeze(slot),
            Fault::Jump => {
                let skew = self.rng.next() >> self.rng.within(24, 40);
                let back = self.rng.percent(50);
                if let Some(process) = &self.slots[slot].process {
                    process.system.set_skew(if back { skew.wrapping_neg() } else { skew });
                }
            }
            Fault::Mend => drop(self.cuts.heal()),
            Fault::SlowWatch => {
                let watcher = self.rng.below(self.watchers.len());
                self.watchers[watcher].pause(until);
            }
        }
    }

    fn stall(&mut self, slot: usize, until: Millis) {
        let links = self.slots[slot].process.as_ref().map(|process| &process.links);
        let wires: Vec<usize> = links.iter().flat_map(|l| l.values().copied()).collect();
        for wire in wires {
            if let Some(side) = self.wires[wire].side_of(slot) {
                self.wires[wire].ends[side].stalled_until = until;
            }
        }
    }

    fn split(&mut self) {
        let sides: Vec<bool> = self.slots.iter().map(|_| self.rng.percent(50)).collect();
        for a in 0..sides.len() {
            for b in 0..a {
                if sides[a] != sides[b] {
                    self.cut_off(a, b);
                }
            }
        }
        if self.script.is_some() {
            let side: Vec<&str> = self
                .slots
                .iter()
                .zip(&sides)
                .filter(|(_, side)| **side)
                .map(|(slot, _)| slot.label.as_str())
                .collect();
            let text = format!("  {} hear nothing of the others", side.join(" "));
            self.note(&text);
        }
    }

    fn forget_away(&mut self, slot: usize) {
        let now = self.now();
        let Some(process) = &self.slots[slot].process else { return };
        let away = process.hub.read(|engine| engine.group_view(now).away);
        let names: Vec<NodeName> = away.into_iter().map(|(member, _)| member.name).collect();
        if let Some(name) = names.get(self.rng.below(names.len())) {
            self.forget(slot, name);
        }
    }
}

//! The directories of whole nodes: the turns of the log's thread and of the one that makes snapshots,
//! disks that fail, copies of directories and what becomes of them.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Image;
use crate::engine::changes::LoadImage;
use crate::model::ids::{Millis, NodeName};
use crate::storage::memory_disk::{Fault, MemoryDisk};
use crate::storage::{DataDir, Disk, RecoverOptions};
use crate::whole::lives::End;
use crate::whole::node::BACKUPS_MAX;
use crate::whole::{COPIES_MAX, Happening, Whole, note};

/// The thread's turns while there is nothing to do.
const IDLE_MS: Millis = 1_000;

impl Whole<'_> {
    pub(super) fn back_up(&mut self, slot: usize) {
        let at = &mut self.slots[slot];
        if at.sync.is_none() || at.backups.len() >= BACKUPS_MAX || at.is_up() && at.disk_fails {
            return;
        }
        let copy = if self.rng.percent(50) { at.disk.copy() } else { at.disk.fork() };
        copy.set_fault(None);
        at.backups.push(copy);
        note!(self, "{}: its directory is backed up", self.slots[slot].label);
    }

    /// An old copy of a directory takes its place.
    pub(super) fn set_back(&mut self, slot: usize) {
        let at = self.rng.below(self.slots[slot].backups.len());
        let Some(backup) = self.slots[slot].backups.get(at).map(MemoryDisk::copy) else { return };
        self.kill(slot, End::PowerCut);
        let at = &mut self.slots[slot];
        at.disk = backup;
        at.disk_fails = false;
        // Nobody promises anything of what came after.
        at.must.clear();
        self.stats.restored += 1;
        note!(self, "{}: its directory is set back", self.slots[slot].label);
    }

    /// A running node takes in what an old copy of some directory holds.
    pub(in crate::whole) fn restore(&mut self, slot: usize) {
        let backups = self
            .slots
            .iter()
            .flat_map(|at| at.backups.iter().map(|disk| (at.name.clone(), disk.clone())));
        let backups: Vec<_> = backups.collect();
        let Some((name, disk)) = backups.get(self.rng.below(backups.len())) else { return };
        let Ok(image) = read_disk(disk, name) else { return };
        let now = self.now();
        let Some(process) = &self.slots[slot].process else { return };
        if !process.is_ready() || process.frozen {
            return;
        }
        let taken = process.hub.handle(LoadImage(&image), now);
        let label = &self.slots[slot].label;
        note!(self, "{label} takes in an old state of {name}: {:?}", taken.map(drop));
        self.stats.files_loaded += 1;
        self.touch(slot);
    }

    /// A copy of a directory is taken into use at another place, beside its original or for it.
    pub(in crate::whole) fn copy(&mut self, slot: usize) {
        let at = &self.slots[slot];
        let copies = self.slots.len() - self.plan.nodes.len();
        if at.sync.is_none() || at.gone || copies >= COPIES_MAX || at.disk_fails {
            return;
        }
        let (name, sync, founds) = (at.name.as_str().to_owned(), at.sync, at.founds);
        let disk = at.disk.copy();
        disk.set_fault(None);
        if self.rng.percent(50) {
            self.lose(slot);
        }
        let copy = self.add_slot(&name, "'", sync, founds);
        self.slots[copy].disk = disk;
        note!(self, "{} is a copy of {}", self.slots[copy].label, self.slots[slot].label);
        self.start(copy);
    }

    /// Plans the next turn of the log's thread: soon if there is something in the queue.
    pub(in crate::whole) fn plan_log(&mut self, slot: usize, number: u64) {
        let (least, most) = if self.is_healing() { (0, 1) } else { self.plan.disk_ms };
        let pause = self.rng.within(least, most);
        let now = self.schedule.now();
        let Some(process) = self.slots[slot].running(number) else { return };
        let (Some(logger), Some(log)) = (&process.logger, &process.log) else { return };
        process.system.turn(now);
        let has_work = log.bytes() > 0 || log.is_behind();
        let patience = if has_work { pause } else { logger.patience().min(IDLE_MS) };
        let at = (now + patience).max(process.disk_stalled_until).max(now + 1);
        if process.log_planned.is_none_or(|planned| planned > at || planned < now) {
            process.log_planned = Some(at);
            self.schedule.plan(at, Happening::Log { slot, process: number });
        }
    }

    /// A turn of the log's thread.
    pub(in crate::whole) fn on_log(&mut self, slot: usize, number: u64) {
        let now = self.now();
        let disk_fails = self.slots[slot].disk_fails;
        let Some(process) = self.slots[slot].running(number) else { return };
        if process.log_planned != Some(now) {
            return;
        }
        process.log_planned = None;
        if process.frozen {
            return;
        }
        let Some(logger) = &mut process.logger else { return };
        let failures = process.log.as_ref().map_or(0, |log| log.failures());
        process.system.turn(now);
        logger.step(Duration::ZERO);
        let jobs = process.system.take_jobs();
        let has_failed = process.failures() > failures;
        let (is_saving, dies) = (!jobs.is_empty(), process.dies_with_disk);
        process.jobs.extend(jobs);
        if has_failed {
            self.stats.disk_failures += 1;
            note!(self, "{}: logging fails", self.slots[slot].label);
        }
        if has_failed && !disk_fails && !dies {
            self.check_failure(slot);
        }
        if is_saving {
            let pause = self.rng.within(self.plan.disk_ms.0, self.plan.disk_ms.1 * 20);
            let at = self.now() + pause;
            self.schedule.plan(at, Happening::Save { slot, process: number });
        }
        if has_failed && dies {
            self.slots[slot].disk.set_fault(None);
            return self.kill(slot, End::PowerCut);
        }
        self.touch(slot);
    }

    /// Logging may fail only where the disk does, or does not keep up.
    fn check_failure(&mut self, slot: usize) {
        let at = &self.slots[slot];
        let Some(failure) = at.process.as_ref().and_then(|p| p.log.as_ref()?.failure()) else {
            return;
        };
        if !failure.why.contains("told to fail") && !failure.why.contains("keep up") {
            let detail = format!("{}: {}", at.label, failure.why);
            self.judge.fail("logging fails on a disk that works", detail);
        }
    }

    /// The thread that makes a snapshot.
    pub(in crate::whole) fn on_save(&mut self, slot: usize, number: u64) {
        let now = self.now();
        let Some(process) = self.slots[slot].running(number) else { return };
        process.system.turn(now);
        for job in std::mem::take(&mut process.jobs) {
            job();
            self.stats.snapshots += 1;
        }
        let has_died = process.dies_with_disk
            && process.logger.as_ref().is_some_and(|l| l.state().view().save_failure.is_some());
        if has_died {
            self.slots[slot].disk.set_fault(None);
            return self.kill(slot, End::PowerCut);
        }
        if !self.is_healing() && self.rng.percent(self.plan.cuts_after_save) {
            return self.kill(slot, End::PowerCut);
        }
        self.touch(slot);
    }

    /// The disk begins to fail.
    pub(super) fn fail_disk(&mut self, slot: usize, fault: Fault, within: u64, dies: bool) {
        let at = &mut self.slots[slot];
        let Some(process) = &mut at.process else { return };
        let first = at.disk.operations() + 1 + self.rng.below(within as usize) as u64;
        at.disk.set_fault(Some((first, fault)));
        process.dies_with_disk |= dies;
        process.was_slow = true;
        at.disk_fails |= !dies;
        note!(self, "{}: its disk is {fault:?} from operation {first} on", self.slots[slot].label);
        if !dies {
            let at = self.now() + self.rng.within(100, 6_000);
            self.schedule.plan(at, Happening::MendDisk(slot));
        }
    }

    pub(in crate::whole) fn mend_disk(&mut self, slot: usize) {
        if std::mem::take(&mut self.slots[slot].disk_fails) {
            note!(self, "{}: its disk works again", self.slots[slot].label);
            self.slots[slot].disk.set_fault(None);
        }
        self.touch(slot);
    }

    /// What a restart would find on a node's disk now, if its power failed.
    pub(in crate::whole) fn recovered(&self, slot: usize) -> Result<Image, String> {
        let at = &self.slots[slot];
        let disk = at.disk.fork();
        disk.crash(&mut || false);
        read_disk(&disk, &at.name)
    }
}

/// What a directory holds.
fn read_disk(disk: &MemoryDisk, name: &NodeName) -> Result<Image, String> {
    let dir = DataDir::on(Arc::new(disk.fork()) as Arc<dyn Disk>);
    let options = RecoverOptions {
        discard_damaged: false,
        hash_seed: 1,
        new_store: 1,
        until: None,
        below: None,
        puts_state: false,
    };
    let recovered = dir.recover("net", name.as_str(), &options, &mut |_, _| {});
    let image = recovered.map_err(|error| error.to_string())?.image;
    image.ok_or_else(|| "there is nothing".to_owned())
}

//! Starts and ends of processes, and what their directories must have after that.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::environment::membership::machine;
use super::environment::system::SimSystem;
use super::node::{Process, Slot};
use super::{Happening, Whole, note};
use crate::durable::{LogSettings, Logger, Opened, SyncPolicy, System};
use crate::engine::changes::{ForgetMember, SayFarewell};
use crate::engine::{self, Engine, Input, NO_LATER, TICK_INTERVAL_MS};
use crate::hub::Hub;
use crate::hub::log_queue::LogQueue;
use crate::membership::SwimInput;
use crate::model::ids::{Incarnation, Millis, NodeId, NodeName};
use crate::storage::DataDir;
use crate::storage::memory_disk::MemoryDisk;

/// A first node founds its network when it has waited so long for one that is there.
const FOUND_AFTER_MS: Millis = 400;
/// A node that comes back goes on alone when it has looked so long.
const PATIENCE_MS: Millis = 5_000;
/// How often it looks.
const LOOK_MS: Millis = 250;
/// A node that could not be started is started again after this time.
const RESTART_MS: Millis = 500;
/// `every-second` keeps its promise with this much to spare for the disk and the thread's turns.
const SECOND_MS: Millis = 1_000;

/// How a process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// With the machine: what was not synced is lost, in part.
    PowerCut,
    /// By itself: what it has written stays.
    Killed,
}

impl Whole<'_> {
    pub(super) fn add_slot(
        &mut self,
        name: &str,
        mark: &str,
        sync: Option<SyncPolicy>,
        founds: bool,
    ) -> usize {
        let at = self.slots.len();
        self.slots.push(Slot {
            name: NodeName::new(name).expect("labels are names"),
            label: format!("{name}{mark}"),
            addr: SocketAddr::from(([10, 0, 0, at as u8 + 1], 27_587)),
            sync,
            disk: MemoryDisk::new(),
            process: None,
            backups: Vec::new(),
            gone: false,
            must: BTreeSet::new(),
            knew: BTreeSet::new(),
            disk_fails: false,
            founds,
        });
        at
    }

    /// Starts a node's process, if it is to run and does not.
    pub(super) fn start(&mut self, slot: usize) {
        let at = &self.slots[slot];
        if at.is_up() || at.gone {
            return;
        }
        self.processes += 1;
        let number = self.processes;
        let skew = if self.rng.percent(10) { self.rng.next() >> 32 } else { 0 };
        let system = Arc::new(SimSystem::new(self.now(), skew, self.rng.next()));
        let (defects, hash_seed) = (self.options.defects, self.plan.hash_seed);
        let (delete, full_mesh_max) = (self.plan.delete.clone(), self.plan.full_mesh_max);
        let configure = |id: NodeId| engine::Config {
            delete: delete.clone(),
            full_mesh_max,
            defects,
            ..engine::Config::new(id, hash_seed)
        };
        let name = at.name.clone();
        let (hub, logger) = match at.sync {
            Some(sync) => {
                let settings = LogSettings { sync, ..self.plan.log };
                let dir = DataDir::on(Arc::new(at.disk.clone()));
                let asked: Arc<dyn System> = Arc::<SimSystem>::clone(&system);
                let opened = Opened::read(dir, settings, ("net", &name), asked);
                let prepared = match opened {
                    Ok(opened) => opened.prepare(&name, configure).expect("there are few lives"),
                    Err(error) => return self.on_no_start(slot, &error.to_string()),
                };
                let (hub, logger) = prepared.into_logger();
                (hub, Some(logger))
            }
            None => {
                let incarnation = Incarnation::of_random(system.random());
                let id = NodeId { name: name.clone(), incarnation };
                (Arc::new(Hub::new(Engine::new(configure(id)))), None)
            }
        };
        let observer = Arc::new(LogQueue::new(false));
        hub.add_extra_log(&observer);
        let _ = observer.take(Duration::ZERO);
        let incarnation = hub.read(|engine| engine.id().incarnation);
        note!(self, "{} starts as {:04x}", self.slots[slot].label, incarnation.0 & 0xffff);
        let addr = self.slots[slot].addr;
        let swim = machine(addr, name, incarnation, self.rng.next());
        let log = logger.as_ref().map(Logger::queue);
        self.slots[slot].process = Some(Process {
            number,
            started_at: self.now(),
            hub,
            logger,
            log,
            system,
            observer,
            swim,
            wake_at: None,
            up: BTreeMap::new(),
            links: BTreeMap::new(),
            dialling: BTreeSet::new(),
            frozen: false,
            log_planned: None,
            disk_stalled_until: 0,
            jobs: Vec::new(),
            dies_with_disk: false,
            told: Vec::new(),
            committed: BTreeSet::new(),
            was_slow: false,
        });
        self.on_started(slot, number);
    }

    fn on_started(&mut self, slot: usize, number: u64) {
        self.changed_at = self.now();
        self.check_recovered(slot);
        for other in 0..self.slots.len() {
            if other != slot {
                let addr = self.slots[other].addr;
                self.give_swim(slot, SwimInput::Join(addr));
            }
        }
        self.give_swim(slot, SwimInput::Tick);
        let now = self.now();
        let offset = self.rng.within(0, TICK_INTERVAL_MS);
        self.schedule.plan(now + offset, Happening::Tick { slot, process: number });
        self.schedule.plan(now + 2 + offset, Happening::Dial { slot, process: number });
        let is_first = self.slots[slot].founds && self.processes <= self.plan.nodes.len() as u64;
        let patience = if is_first { FOUND_AFTER_MS } else { PATIENCE_MS };
        self.schedule.plan(now + patience, Happening::Begin { slot, process: number });
        self.plan_log(slot, number);
        self.touch(slot);
    }

    /// A directory must be readable whatever happened to it, unless its disk fails just now.
    fn on_no_start(&mut self, slot: usize, why: &str) {
        let label = &self.slots[slot].label;
        if !self.slots[slot].disk_fails {
            let detail = format!("{label}: {why}");
            return self.judge.fail("a node does not start from its own directory", detail);
        }
        note!(self, "{label} cannot start: {why}");
        let at = self.now() + RESTART_MS;
        self.schedule.plan(at, Happening::Start(slot));
    }

    /// Looks whether a node has come back with all that its directory must have, and what is lost for
    /// good with what it has not.
    fn check_recovered(&mut self, slot: usize) {
        let at = &self.slots[slot];
        let Some(process) = &at.process else { return };
        if let Some((id, tick)) = at.must.iter().find(|event| !process.knows(event)) {
            let detail =
                format!("{}: {}~{:04x}:{tick}", at.label, id.name, id.incarnation.0 & 0xffff);
            return self.judge.fail("a node comes back without what its disk must have", detail);
        }
        self.give_up_lost(slot);
    }

    /// What a node knew and does not know any more is lost for good if nobody else has it: a policy
    /// that allows it, a disk that was set back, a memory that is gone.
    fn give_up_lost(&mut self, slot: usize) {
        let knew = std::mem::take(&mut self.slots[slot].knew);
        let running = || self.slots.iter().filter_map(|slot| slot.process.as_ref());
        for event in knew {
            if !running().any(|process| process.knows(&event)) {
                self.judge.excuse(&event);
            }
        }
    }

    /// Ends a process without warning.
    pub(super) fn kill(&mut self, slot: usize, end: End) {
        self.observe(slot);
        let Some(process) = self.slots[slot].process.take() else { return };
        note!(self, "{}: {end:?}", self.slots[slot].label);
        self.note_must(slot, &process, end);
        let at = &mut self.slots[slot];
        at.knew.extend(self.judge.acked().filter(|event| process.knows(event)).cloned());
        // What the process had in its hands does not reach the disk any more.
        let disk = at.disk.fork();
        drop(process);
        at.disk = disk;
        if end == End::PowerCut {
            let rng = &mut self.rng;
            let percent = rng.pick(&[0, 30, 100]);
            at.disk.crash(&mut || rng.percent(percent));
        }
        if !at.disk_fails {
            at.disk.set_fault(None);
        }
        self.after_end(slot);
    }

    fn after_end(&mut self, slot: usize) {
        self.drop_ends(slot);
        self.changed_at = self.now();
        let at = self.now() + if self.is_healing() { 50 } else { self.rng.within(20, 6_000) };
        self.schedule.plan(at, Happening::Start(slot));
    }

    /// Notes what the directory must have after this, by the policy's promise.
    fn note_must(&mut self, slot: usize, process: &Process, end: End) {
        let Some(log) = &process.log else { return };
        let now = self.now();
        let sync = self.slots[slot].sync;
        let has_failed = process.failures() > 0;
        let safe = match end {
            End::PowerCut => log.synced(),
            End::Killed if has_failed => log.synced(),
            End::Killed => log.written(),
        };
        let promises_second = sync == Some(SyncPolicy::EverySecond) && !process.was_slow;
        // What came from elsewhere and lost here is known, and in no log.
        let logged = process.told.iter().filter(|told| process.committed.contains(&told.event));
        for told in logged {
            let is_old = now > told.at + SECOND_MS + self.plan.disk_ms.1 * 3;
            if told.number <= safe {
                self.slots[slot].must.insert(told.event.clone());
            } else if sync == Some(SyncPolicy::EveryBatch)
                || (promises_second && is_old && !has_failed)
            {
                let (id, tick) = &told.event;
                let detail = format!(
                    "{}: {}:{tick} of batch {} was told at {} and is not synced at {now}",
                    self.slots[slot].label, id.name, told.number, told.at
                );
                self.judge.fail("a node told of what it had not made safe in time", detail);
            }
        }
        if sync == Some(SyncPolicy::EveryBatch) && !has_failed {
            // Whatever of it others know must be there.
            let own = process.hub.read(|engine| engine.id().clone());
            let mine: Vec<_> = self.judge.made_by(&own).collect();
            for event in mine {
                let is_known =
                    |other: &Slot| other.process.as_ref().is_some_and(|p| p.knows(&event));
                if self.slots.iter().any(is_known) {
                    self.slots[slot].must.insert(event);
                }
            }
        }
    }

    /// Ends a node as `leave` or a signal does: it says farewell, and its last record says that it has
    /// stopped.
    pub(super) fn stop(&mut self, slot: usize) {
        if !self.slots[slot].is_awake() {
            return;
        }
        note!(self, "{} stops", self.slots[slot].label);
        let now = self.now();
        if let Some(process) = &self.slots[slot].process {
            process.hub.handle(SayFarewell, now);
        }
        self.give_swim(slot, SwimInput::Leave);
        self.look_after(slot);
        let Some(process) = &mut self.slots[slot].process else { return };
        process.system.turn(now);
        process.hub.stop_log();
        if let Some(logger) = &mut process.logger {
            while logger.step(Duration::ZERO) {}
        }
        // Whatever was safe before is, and nothing was made after it.
        self.kill(slot, End::Killed);
    }

    /// Of two nodes of one name the one that started later gives way.
    pub(super) fn stop_younger(&mut self, a: usize, b: usize) {
        let since = |slot: usize| self.slots[slot].process.as_ref().map_or(0, |p| p.started_at);
        self.give_way(if since(a) > since(b) { a } else { b });
    }

    /// A node ends because its name is in use. Whoever runs it tries again.
    pub(super) fn give_way(&mut self, slot: usize) {
        note!(self, "{} gives way", self.slots[slot].label);
        self.kill(slot, End::Killed);
    }

    /// A node does not come back, and its disk is lost.
    pub(super) fn lose(&mut self, slot: usize) {
        if self.slots[slot].gone {
            return;
        }
        self.kill(slot, End::PowerCut);
        note!(self, "{} is gone", self.slots[slot].label);
        self.slots[slot].gone = true;
        self.slots[slot].must.clear();
        self.give_up_lost(slot);
    }

    /// A node that is not ready looks whether it may begin alone: nobody that it is linked with serves,
    /// and of those that wait as it does it has seen most.
    pub(super) fn on_begin(&mut self, slot: usize, number: u64) {
        let Some(process) = self.slots[slot].running(number) else { return };
        if process.is_ready() {
            return;
        }
        let linked: Vec<usize> = process.links.keys().copied().collect();
        let has_network = process.hub.read(Engine::has_ready_peer);
        let at = &self.slots[slot];
        let rank = |at: &Slot| {
            let tock = at.process.as_ref().map_or(0, |p| p.hub.read(Engine::tock).get());
            (std::cmp::Reverse(tock), at.name.clone())
        };
        let may = |at: &Slot| at.founds || (at.sync.is_some() && rank(at).0.0 > 0);
        let is_first = linked.iter().all(|other| {
            let other = &self.slots[*other];
            !may(other) || rank(at) < rank(other)
        });
        if may(at) && is_first && !has_network {
            note!(self, "{} founds", self.slots[slot].label);
            self.handle(slot, Input::Found);
        }
        let again = self.now() + LOOK_MS;
        self.schedule.plan(again, Happening::Begin { slot, process: number });
    }

    /// The engine has met itself: it goes on as another life.
    pub(super) fn renew(&mut self, slot: usize) {
        let addr = self.slots[slot].addr;
        let (now, seed) = (self.now(), self.rng.next());
        let Some(process) = &mut self.slots[slot].process else { return };
        let incarnation = Incarnation::of_random(process.system.random());
        process.hub.handle(Input::Renewed { incarnation }, now);
        let name = process.hub.read(|engine| engine.id().name.clone());
        process.swim = machine(addr, name, incarnation, seed);
        process.wake_at = None;
        process.up.clear();
        self.stats.renewals += 1;
        note!(self, "{} goes on as {:04x}", self.slots[slot].label, incarnation.0 & 0xffff);
        for other in 0..self.slots.len() {
            if other != slot {
                let addr = self.slots[other].addr;
                self.give_swim(slot, SwimInput::Join(addr));
            }
        }
        self.touch(slot);
    }

    pub(super) fn on_tick(&mut self, slot: usize, number: u64) {
        let now = self.now();
        let Some(process) = self.slots[slot].running(number) else { return };
        if !process.frozen {
            process.system.turn(now);
            self.handle(slot, Input::Tick);
        }
        self.schedule.plan(now + TICK_INTERVAL_MS, Happening::Tick { slot, process: number });
    }

    pub(super) fn freeze(&mut self, slot: usize) {
        let until = self.now() + self.rng.within(100, 8_000);
        let Some(process) = &mut self.slots[slot].process else { return };
        (process.frozen, process.was_slow) = (true, true);
        let number = process.number;
        note!(self, "{} stands still", self.slots[slot].label);
        self.schedule.plan(until, Happening::Thaw { slot, process: number });
    }

    pub(super) fn thaw(&mut self, slot: usize, number: u64) {
        let now = self.now();
        let Some(process) = self.slots[slot].running(number) else { return };
        if std::mem::take(&mut process.frozen) {
            process.log_planned = None;
            process.wake_at = Some(now);
            self.schedule.plan(now, Happening::Swim { slot, process: number });
            note!(self, "{} goes on", self.slots[slot].label);
            self.touch(slot);
        }
    }

    /// An operator at one node takes a member off the Delete group's list.
    pub(super) fn forget(&mut self, slot: usize, name: &NodeName) {
        let Some(process) = &self.slots[slot].process else { return };
        if process.hub.handle(ForgetMember(name), NO_LATER).is_ok() {
            note!(self, "{} forgets {name}", self.slots[slot].label);
            self.stats.forgotten += 1;
            self.touch(slot);
        }
    }
}

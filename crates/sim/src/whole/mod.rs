//! Whole nodes: engine, hub with all its queues, the log that [`crate::durable`] writes on a disk in
//! memory, and SWIM, in virtual time; and clients that write, retry and watch. The network, the disks,
//! the clocks and the processes go wrong in all ways that the [`plan`] has, and the judge
//! ([`judging`]) asks for what users are promised.
//!
//! What a real node's tasks do around these parts (who dials whom, who waits for a sync, what a watch's
//! stream does) is done here by the same calls, in the order that the seed says: [`environment`] for
//! links, disks, clocks and membership, [`lives`] for starts and ends, [`clients`] for what is at the
//! other end of a client's connection.

mod clients;
mod environment;
mod judging;
mod lives;
mod node;
mod plan;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use clients::requests::{Client, Wish};
use clients::watches::Watcher;
use environment::wires::Wire;
use judging::judge::Judge;
use node::Slot;
pub use plan::HELD_UP_FROM;
use plan::Plan;

use super::reporting::script::Script;
use super::rng::Rng;
use super::{Failure, Options, Outcome, Stats};
use crate::engine::Input;
use crate::hub::log_queue::LogItem;
use crate::model::ids::Millis;
use crate::virtual_net::{Cuts, Schedule};

/// The virtual clock of a run begins here.
const START_MS: Millis = 1_000;
/// Most nodes that are copies.
const COPIES_MAX: usize = 2;
/// Most happenings of one run: it does not end otherwise.
const HAPPENINGS_MAX: u64 = 4_000_000;
/// Clients begin when the nodes have found each other.
const CLIENTS_AFTER_MS: Millis = 3_000;

/// What can happen. `process` is the number of the process that it was planned for.
#[derive(Debug)]
enum Happening {
    /// The next fault.
    Step(usize),
    /// An engine is told that time has passed.
    Tick { slot: usize, process: u64 },
    /// The log's thread has its turn.
    Log { slot: usize, process: u64 },
    /// A snapshot is written.
    Save { slot: usize, process: u64 },
    /// SWIM's timer.
    Swim { slot: usize, process: u64 },
    /// A datagram arrives.
    Datagram { from: SocketAddr, to: usize, bytes: Vec<u8> },
    /// A node looks whom to dial.
    Dial { slot: usize, process: u64 },
    /// A dialled connection is greeted.
    Connect { from: usize, to: usize, process: u64 },
    /// Something arrives over a wire, written by that side.
    Arrive { wire: usize, side: usize },
    /// The writer of a side looks whether it can write.
    Look { wire: usize, side: usize },
    /// A side notices that its connection is broken, or silent for too long.
    Notice { wire: usize, side: usize },
    /// A node that is not ready looks whether it may begin alone.
    Begin { slot: usize, process: u64 },
    /// A node is started again.
    Start(usize),
    /// A frozen process goes on.
    Thaw { slot: usize, process: u64 },
    /// A disk works again.
    MendDisk(usize),
    /// A client has its turn.
    Client(usize),
    /// A client's try arrives that was held up.
    Late { slot: usize, process: u64, wish: Wish },
    /// A watch's client reads.
    Watch(usize),
    /// An operator looks who is gone.
    Operate,
    /// Is it over?
    Judge,
}

/// Which part of a run it is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// Since when, and how many events there were then.
    Healing {
        since: Millis,
        events: u64,
    },
    Over,
}

struct Whole<'a> {
    seed: u64,
    options: &'a Options,
    plan: Plan,
    schedule: Schedule<Happening>,
    rng: Rng,
    /// For tries that are held up.
    aside: Rng,
    slots: Vec<Slot>,
    wires: Vec<Wire>,
    /// Pairs that hear nothing of each other: always both ways.
    cuts: Cuts,
    clients: Vec<Client>,
    watchers: Vec<Watcher>,
    judge: Judge,
    script: Option<Script>,
    stats: Stats,
    phase: Phase,
    /// When something last changed that matters in the end.
    changed_at: Millis,
    /// Nodes in which something may have happened.
    touched: VecDeque<usize>,
    processes: u64,
    /// How many requests clients had.
    requests: u32,
}

/// Adds a line to the script, which is made only if there is one.
macro_rules! note {
    ($whole:expr, $($text:tt)*) => {
        if $whole.script.is_some() {
            let text = format!($($text)*);
            $whole.note(&text);
        }
    };
}
use note;

/// Runs one seed.
pub(super) fn run(seed: u64, options: &Options, skipped: &[bool], wants_script: bool) -> Outcome {
    Whole::new(seed, options, wants_script).run(skipped)
}

impl<'a> Whole<'a> {
    fn new(seed: u64, options: &'a Options, wants_script: bool) -> Self {
        let plan = Plan {
            held_up: plan::held_up(seed),
            ..Plan::draw(options.defects, &mut Rng::new(seed, 0))
        };
        Self {
            seed,
            options,
            schedule: Schedule::new(START_MS),
            rng: Rng::new(seed, 1),
            aside: Rng::new(seed, 3),
            slots: Vec::new(),
            wires: Vec::new(),
            cuts: Cuts::default(),
            clients: Vec::new(),
            watchers: Vec::new(),
            judge: Judge::default(),
            script: wants_script.then(Script::default),
            stats: Stats { seeds: 1, ..Stats::default() },
            phase: Phase::Running,
            changed_at: START_MS,
            touched: VecDeque::new(),
            processes: 0,
            requests: 0,
            plan,
        }
    }

    fn run(mut self, skipped: &[bool]) -> Outcome {
        // A broken invariant is a failure like any other.
        let broken = catch_unwind(AssertUnwindSafe(|| self.run_to_end(skipped))).err();
        let failure =
            broken.map(|panic| Failure::of_panic(&*panic)).or_else(|| self.judge.failure.take());
        if let Some(failure) = &failure {
            note!(self, "WRONG: {}: {}", failure.check, failure.detail);
        }
        self.stats.virtual_ms = self.now() - START_MS;
        self.stats.events = self.judge.event_count();
        self.stats.conflicts = self.judge.conflicts;
        let script = self.script.map(Script::into_lines).unwrap_or_default();
        Outcome { seed: self.seed, failure, steps: self.plan.steps, stats: self.stats, script }
    }

    fn run_to_end(&mut self, skipped: &[bool]) {
        self.begin();
        let mut happened = 0;
        while self.phase != Phase::Over && self.judge.failure.is_none() {
            let Some(happening) = self.schedule.next() else { break };
            happened += 1;
            if happened > HAPPENINGS_MAX {
                self.judge.fail("a run does not end", format!("{happened} happenings"));
            }
            self.happen(happening, skipped);
            self.settle();
        }
    }

    fn begin(&mut self) {
        note!(
            self,
            "{:?}; {} paths, {} clients, {} watches, a fault every {} ms, links of {} bytes, watches of \
             {} changes, all linked up to {}; {:?}; {:?}",
            self.plan.nodes,
            self.plan.paths,
            self.plan.clients,
            self.plan.watches,
            self.plan.gap_ms,
            self.plan.link_bytes,
            self.plan.watch_changes,
            self.plan.full_mesh_max,
            self.plan.log,
            self.plan.delete
        );
        for at in 0..self.plan.nodes.len() {
            let sync = self.plan.nodes[at];
            let slot = self.add_slot(&super::engines::cluster::node_label(at), "", sync, at == 0);
            self.start(slot);
        }
        let at = self.now() + CLIENTS_AFTER_MS;
        for client in 0..self.plan.clients {
            self.clients.push(Client::new(client));
            self.schedule.plan(at + client as u64, Happening::Client(client));
        }
        for watcher in 0..self.plan.watches {
            let top = if self.rng.percent(50) { "k" } else { "k:1" };
            self.watchers.push(Watcher::new(top));
            self.schedule.plan(at + watcher as u64, Happening::Watch(watcher));
        }
        self.schedule.plan(at, Happening::Step(0));
    }

    fn happen(&mut self, happening: Happening, skipped: &[bool]) {
        match happening {
            Happening::Step(number) => self.on_step(number, skipped),
            Happening::Tick { slot, process } => self.on_tick(slot, process),
            Happening::Log { slot, process } => self.on_log(slot, process),
            Happening::Save { slot, process } => self.on_save(slot, process),
            Happening::Swim { slot, process } => self.on_swim(slot, process),
            Happening::Datagram { from, to, bytes } => self.on_datagram(from, to, &bytes),
            Happening::Dial { slot, process } => self.on_dial(slot, process),
            Happening::Connect { from, to, process } => self.on_connect(from, to, process),
            Happening::Arrive { wire, side } => self.on_arrive(wire, side),
            Happening::Look { wire, side } => self.write_out(wire, side),
            Happening::Notice { wire, side } => self.on_notice(wire, side),
            Happening::Begin { slot, process } => self.on_begin(slot, process),
            Happening::Start(slot) => self.start(slot),
            Happening::Thaw { slot, process } => self.thaw(slot, process),
            Happening::MendDisk(slot) => self.mend_disk(slot),
            Happening::Client(client) => self.on_client(client),
            Happening::Late { slot, process, wish } => self.on_late(slot, process, wish),
            Happening::Watch(watcher) => self.on_watch(watcher),
            Happening::Operate => self.operate(),
            Happening::Judge => self.on_judge(),
        }
    }

    /// Looks after all nodes in which something may have happened, until nothing happens any more.
    fn settle(&mut self) {
        while let Some(slot) = self.touched.pop_front() {
            if self.judge.failure.is_some() {
                return;
            }
            self.look_after(slot);
        }
    }

    fn touch(&mut self, slot: usize) {
        if self.touched.back() != Some(&slot) {
            self.touched.push_back(slot);
        }
    }

    /// Does what a node's tasks would be woken for.
    fn look_after(&mut self, slot: usize) {
        self.observe(slot);
        let Some(process) = &mut self.slots[slot].process else { return };
        let number = process.number;
        if process.hub.take_incarnation_need() {
            self.renew(slot);
        }
        self.plan_log(slot, number);
        let wires: Vec<usize> = match &self.slots[slot].process {
            Some(process) => process.links.values().copied().collect(),
            None => return,
        };
        for wire in wires {
            if let Some(side) = self.wires[wire].side_of(slot) {
                self.write_out(wire, side);
            }
        }
    }

    /// Shows the judge what a node has committed and reported.
    fn observe(&mut self, slot: usize) {
        let label = self.slots[slot].label.clone();
        let Some(process) = &mut self.slots[slot].process else { return };
        let (reports, _) = process.hub.take_reports();
        let (own, table) =
            process.hub.read(|engine| (engine.id().clone(), Arc::clone(engine.table())));
        let items = process.observer.take(std::time::Duration::ZERO).items;
        let mut is_news = false;
        for item in items {
            let LogItem::Batch { batch, .. } = item else { continue };
            is_news |= !batch.ops.is_empty();
            let committed = self.judge.on_batch(&own, &batch);
            for (path, version) in committed {
                process.committed.insert(version.event.clone());
                let (node, number) = (slot, process.number);
                for watcher in &mut self.watchers {
                    watcher.expect((node, number), &path, &version);
                }
                if let Some(script) = &mut self.script {
                    let (id, tick) = &version.event;
                    let life = id.incarnation.0 & 0xffff;
                    let value = version.value.as_deref().map(clients::requests::number_of);
                    let text = format!(
                        "  {label} has {path} = {value:?} ({}~{life:04x}:{tick} tock {})",
                        id.name, version.tock
                    );
                    script.note(self.schedule.now(), &text);
                }
            }
        }
        if is_news {
            self.changed_at = self.schedule.now();
        }
        for report in reports {
            let change = self.judge.on_report(&table, &report);
            if change {
                self.changed_at = self.schedule.now();
            }
            note!(self, "  {label} reports {report:?}");
        }
    }

    /// Tells an engine what happened.
    fn handle(&mut self, slot: usize, input: Input<'_>) {
        let now = self.now();
        if let Some(process) = &self.slots[slot].process {
            process.hub.handle(input, now);
            self.touch(slot);
        }
    }

    fn now(&self) -> Millis {
        self.schedule.now()
    }

    fn is_healing(&self) -> bool {
        self.phase != Phase::Running
    }

    fn note(&mut self, text: &str) {
        let now = self.now();
        if let Some(script) = &mut self.script {
            script.note(now, text);
        }
    }
}

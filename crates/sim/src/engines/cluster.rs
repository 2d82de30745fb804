//! A simulated cluster: its parts, and the loop that takes one event after the other. The effects
//! of events are elsewhere: [`super::links`] moves frames, [`super::lives`] starts and stops nodes,
//! [`super::steps`] writes and breaks things, [`super::healing`] ends it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::disk::Saved;
use super::endless_talk::Moment;
use super::network::Network;
use super::node::Node;
use super::steps::Echo;
use crate::engine::{Engine, Input, Outbox, Output, Report};
use crate::model::ids::{Incarnation, Millis, NodeName};
use crate::oracle::{Failure, Oracle};
use crate::profile::{Focus, Options, Plan};
use crate::replica::Committed;
use crate::reporting::describe;
use crate::reporting::script::Script;
use crate::rng::Rng;
use crate::virtual_net::Schedule;
use crate::{Outcome, Stats};

/// The virtual clock of a run begins here.
const START_MS: Millis = 1_000;
/// Streams of random numbers: of the plan, of healing; each step has its own after them.
const PLAN_STREAM: u64 = 0;
const HEALING_STREAM: u64 = 1;
const STEP_STREAMS: u64 = 16;
/// The network's numbers are of another family than those of the steps.
const NETWORK_SEED: u64 = 0x5bd1_e995_7b93_1d01;
/// Most nodes that join, besides the initial ones, and most copied disks.
pub(super) const EXTRA_NODES_MAX: usize = 3;

/// What can happen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Happening {
    /// The step with this number.
    Step(usize),
    /// The next frame written at an end arrives at the other one.
    Arrive(u32),
    /// The writer of an end looks whether it can write.
    Look(u32),
    /// An engine is told that time has passed.
    Tick { node: usize, process: u32 },
    /// One of two nodes dials the other.
    Dial(usize, usize),
    /// An end notices that the connection is broken.
    Notice(u32),
    /// An end has heard nothing for too long, if nothing gets through.
    Silence(u32),
    /// A frozen node continues.
    Thaw { node: usize, process: u32 },
    /// A fresh incarnation is ready for the node that asked for one.
    Renew { node: usize, process: u32 },
    /// What a node asked to be made safe is safe.
    Persisted { node: usize, process: u32, token: u64 },
    /// Operators look whether members of the Delete group are gone.
    Operate,
    /// Is it over?
    Judge,
}

/// Which part of a run it is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Steps are being made.
    Running,
    /// Everything is repaired, and the remaining work is completed.
    Healing { since: Millis },
    /// The run has ended.
    Over,
}

/// A simulated cluster.
pub(crate) struct Cluster<'a> {
    pub(crate) seed: u64,
    pub(crate) options: &'a Options,
    pub(crate) plan: Plan,
    pub(crate) schedule: Schedule<Happening>,
    pub(crate) network: Network,
    pub(crate) nodes: Vec<Node>,
    pub(crate) oracle: Oracle,
    /// Of the network; begun anew with each step.
    pub(crate) rng: Rng,
    pub(crate) script: Option<Script>,
    pub(crate) stats: Stats,
    pub(crate) phase: Phase,
    pub(crate) moment: Moment,
    /// When something last changed that matters in the end.
    pub(crate) changed_at: Millis,
    /// Ends that may have something to write.
    pub(crate) to_look: VecDeque<u32>,
    pub(crate) outboxes: Vec<Outbox>,
    /// Pushes that may come a second time.
    pub(crate) echoes: Vec<Echo>,
    pub(crate) incarnations: u64,
    /// Nodes that joined on the way.
    pub(crate) joined: usize,
    /// How long the next step has to wait.
    pub(crate) pause_ms: Millis,
    /// How many values were written: each is another one.
    pub(crate) values: u32,
    /// How many data directories there were.
    pub(crate) stores: u64,
    /// Files that were saved, to be fed in anywhere.
    pub(crate) files: Vec<Saved>,
    /// Steps to leave out.
    skipped: &'a [bool],
}

/// Adds a line to the script, which is made only if there is one.
macro_rules! note {
    ($cluster:expr, $($text:tt)*) => {
        if $cluster.script.is_some() {
            let text = format!($($text)*);
            $cluster.note(&text);
        }
    };
}
pub(crate) use note;

impl<'a> Cluster<'a> {
    pub(crate) fn new(
        seed: u64,
        options: &'a Options,
        skipped: &'a [bool],
        wants_script: bool,
    ) -> Self {
        let plan = Plan::draw(options, &mut Rng::new(seed, PLAN_STREAM));
        Self {
            seed,
            options,
            schedule: Schedule::new(START_MS),
            network: Network::default(),
            nodes: Vec::new(),
            oracle: Oracle::new(plan.chain_bound, options.focus == Focus::Rollbacks),
            rng: Rng::new(seed ^ NETWORK_SEED, PLAN_STREAM),
            script: wants_script.then(Script::default),
            stats: Stats { seeds: 1, ..Stats::default() },
            phase: Phase::Running,
            moment: Moment::default(),
            changed_at: START_MS,
            to_look: VecDeque::new(),
            outboxes: Vec::new(),
            echoes: Vec::new(),
            incarnations: 0,
            joined: 0,
            pause_ms: 0,
            values: 0,
            stores: 0,
            files: Vec::new(),
            skipped,
            plan,
        }
    }

    /// Runs to the end, or to the first thing that is wrong.
    pub(crate) fn run(mut self) -> Outcome {
        // A broken invariant is a failure like any other: it has a seed, and a script.
        let broken = catch_unwind(AssertUnwindSafe(|| self.run_to_end())).err();
        let failure = match broken {
            None => self.oracle.take_failure().filter(|_| self.stats.undecided == 0),
            Some(panic) => Some(Failure::of_panic(&*panic)),
        };
        if let Some(Failure { check, detail }) = &failure {
            note!(self, "WRONG: {check}: {detail}");
        }
        self.stats.virtual_ms = self.now() - START_MS;
        self.stats.events = self.oracle.history.len() as u64;
        self.stats.reissues = self.oracle.reissues;
        self.stats.needless_reports = self.oracle.needless_reports;
        let script = self.script.map(Script::into_lines).unwrap_or_default();
        Outcome { seed: self.seed, failure, steps: self.plan.steps, stats: self.stats, script }
    }

    fn run_to_end(&mut self) {
        self.begin();
        while self.phase != Phase::Over && self.oracle.failure().is_none() {
            let Some(happening) = self.schedule.next() else { break };
            self.happen(happening);
            self.write_out();
        }
    }

    fn begin(&mut self) {
        let plan = &self.plan;
        note!(
            self,
            "{} nodes, {} paths, {} steps, chains of {}; {}; a step every {} ms, frames take {} to \
             {} ms, queues of {} bytes, silence after {} ms",
            plan.nodes,
            plan.paths,
            plan.steps,
            plan.chain_bound.get(),
            if plan.all_found { "all found" } else { "the first founds" },
            plan.gap_ms,
            plan.delay_ms.0,
            plan.delay_ms.1,
            plan.queue_bytes,
            plan.silence_ms
        );
        for at in 0..self.plan.nodes {
            let founds = at == 0 || self.plan.all_found;
            let node = self.add_node(&node_label(at), founds, self.plan.has_disk[at]);
            debug_assert_eq!(node, at);
        }
        for a in 0..self.nodes.len() {
            for b in 0..a {
                let at = self.now() + self.rng.within(0, 5);
                self.schedule.plan(at, Happening::Dial(a, b));
            }
        }
        let first = self.now() + 10;
        self.schedule.plan(first, Happening::Step(0));
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Step(number) => self.on_step_due(number),
            Happening::Arrive(end) => self.on_arrive(end),
            Happening::Look(end) => {
                self.network.end_mut(end).look_planned = false;
                self.to_look.push_back(end);
            }
            Happening::Tick { node, process } => self.on_tick(node, process),
            Happening::Dial(a, b) => self.on_dial(a, b),
            Happening::Notice(end) => self.on_notice(end),
            Happening::Silence(end) => self.on_silence(end),
            Happening::Thaw { node, process } => self.on_thaw(node, process),
            Happening::Renew { node, process } => self.on_renew(node, process),
            Happening::Persisted { node, process, token } => {
                self.on_persisted(node, process, token);
            }
            Happening::Operate => self.operate(),
            Happening::Judge => self.on_judge(),
        }
    }

    fn on_step_due(&mut self, number: usize) {
        if number >= self.plan.steps {
            self.rng = Rng::new(self.seed ^ NETWORK_SEED, HEALING_STREAM);
            self.heal();
            return;
        }
        let mut rng = Rng::new(self.seed, STEP_STREAMS + number as u64);
        self.rng = Rng::new(self.seed ^ NETWORK_SEED, STEP_STREAMS + number as u64);
        if !self.skipped.get(number).copied().unwrap_or(false) {
            self.step(number, &mut rng);
        }
        let gap = self.plan.gap_ms;
        let pause = match rng.below(20) {
            0..7 => 0,
            7..19 => rng.within(gap / 4, gap * 2),
            _ => rng.within(gap, gap * 20),
        };
        let at = self.now() + pause.max(self.pause_ms);
        self.pause_ms = 0;
        self.schedule.plan(at, Happening::Step(number + 1));
    }

    pub(crate) fn now(&self) -> Millis {
        self.schedule.now()
    }

    pub(crate) fn is_healing(&self) -> bool {
        self.phase != Phase::Running
    }

    pub(crate) fn note(&mut self, text: &str) {
        let now = self.now();
        if let Some(script) = &mut self.script {
            script.note(now, text);
        }
    }

    pub(super) fn next_incarnation(&mut self) -> Incarnation {
        self.incarnations += 1;
        if self.plan.any_incarnation {
            // Different, in no order: an odd factor gives back what it was given only once.
            Incarnation(self.incarnations.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8)
        } else {
            Incarnation(self.incarnations)
        }
    }

    /// Gives an engine an input, carries out its outputs, and checks it.
    pub(crate) fn handle(&mut self, node: usize, input: Input<'_>) {
        let now = self.now();
        self.change(node, |engine, out| engine.handle(input, now, out));
    }

    /// Changes an engine, carries out its outputs, and checks it.
    pub(crate) fn change<R>(
        &mut self,
        node: usize,
        change: impl FnOnce(&mut Engine, &mut Outbox) -> R,
    ) -> Option<R> {
        let mut out = self.outboxes.pop().unwrap_or_default();
        let at = &mut self.nodes[node];
        let engine = at.engine.as_mut()?;
        let result = change(engine, &mut out);
        self.oracle.sync_table(&mut at.shadow, engine);
        if !out.is_empty() {
            self.perform(node, &mut out);
        }
        self.outboxes.push(out);
        self.check(node);
        Some(result)
    }

    /// What a shell does with outputs.
    pub(crate) fn perform(&mut self, node: usize, out: &mut Outbox) {
        let at = &mut self.nodes[node];
        if let Some(engine) = &at.engine {
            at.log.push(engine, out);
        }
        for output in out.drain() {
            match output {
                Output::Commit(change) => {
                    let at = &mut self.nodes[node];
                    let Some(engine) = &at.engine else { continue };
                    let is_own = change.entry.newest().node == engine.own();
                    let wants = self.script.is_some();
                    let label = self.oracle.on_commit(&mut at.shadow, engine, &change, wants);
                    if is_own && at.copied_at.is_some() {
                        self.give_up();
                    }
                    note!(self, "  {} has {label}", self.nodes[node].label);
                }
                Output::Broadcast { frame } => {
                    for at in 0..self.nodes[node].ends.len() {
                        let end = self.nodes[node].ends[at];
                        self.queue_frame(end, frame.clone());
                    }
                }
                Output::Multicast { links, frame } => {
                    for link in links {
                        self.queue_frame(link.0 as u32, frame.clone());
                    }
                }
                Output::Send { link, frame } => self.queue_frame(link.0 as u32, frame),
                Output::Serve { link, job } => self.serve(link.0 as u32, job),
                Output::Gone { purged, dropped } => {
                    self.stats.purged += purged.len() as u64;
                    self.stats.dropped_entries += dropped.len() as u64;
                    self.on_gone(node, "purges", &purged);
                    self.on_gone(node, "drops", &dropped);
                }
                Output::Persist { token } => self.persist(node, token),
                // Nobody watches, monitors, logs or waits for copies here, and memory does not
                // matter.
                Output::Knowledge
                | Output::Notify { .. }
                | Output::NotifyConflict { .. }
                | Output::Topic { .. }
                | Output::AckProgress
                | Output::PeerReadiness
                | Output::Discard(_) => {}
                Output::Ready => {
                    self.changed_at = self.now();
                    note!(self, "  {} is ready", self.nodes[node].label);
                }
                Output::NeedIncarnation => {
                    let at = self.now() + self.rng.pick(&[0, 1, 100, 1_000]);
                    let process = self.nodes[node].process;
                    self.schedule.plan(at, Happening::Renew { node, process });
                    note!(self, "  {} meets itself", self.nodes[node].label);
                }
                Output::Close { link, reason } => {
                    let end = link.0 as u32;
                    if let Some(queue) = &self.network.end(end).queue {
                        queue.close(reason);
                    }
                    self.to_look.push_back(end);
                }
                Output::Report(report) => self.on_report(node, &report),
            }
        }
    }

    fn on_gone(&mut self, node: usize, what: &str, gone: &[Committed]) {
        if gone.is_empty() {
            return;
        }
        if self.script.is_some() {
            let shadow = &self.nodes[node].shadow;
            let labels: Vec<String> = gone
                .iter()
                .map(|c| self.oracle.history.key_label(shadow.key(c.entry.newest())))
                .collect();
            note!(self, "  {} {what} {}", self.nodes[node].label, labels.join(" "));
        }
        self.oracle.on_gone(&mut self.nodes[node].shadow, gone);
    }

    fn on_report(&mut self, node: usize, report: &Report) {
        match report {
            Report::HousekeepersChanged { .. }
            | Report::Purged { .. }
            | Report::ResyncStarted { .. }
            | Report::ResyncProgress { .. }
            | Report::ResyncDone { .. } => {
                note!(self, "  {} {report:?}", self.nodes[node].label);
            }
            Report::ContentsDiffer { peer } => {
                self.stats.contents_differed += 1;
                if !self.oracle.only_end {
                    // Whatever the reason: no event was used twice.
                    let detail = format!("{} and {peer}", self.nodes[node].label);
                    self.oracle.fail("nodes that know the same hold something else", detail);
                }
                note!(self, "  {} holds something else than {peer}", self.nodes[node].label);
            }
            Report::ContentsMended { peer, path, event } => {
                self.stats.contents_mended += 1;
                self.changed_at = self.now();
                let key = self.nodes[node].shadow.key(*event);
                note!(
                    self,
                    "  {} repairs {path}: {} has another content at {peer}",
                    self.nodes[node].label,
                    self.oracle.history.key_label(key)
                );
            }
            Report::GroupChanged { config } => {
                self.stats.group_changes += 1;
                self.changed_at = self.now();
                note!(
                    self,
                    "  {} has list {}: {}",
                    self.nodes[node].label,
                    config.version,
                    describe::group(config)
                );
            }
            Report::Conflict(conflict) => {
                self.stats.conflicts += 1;
                self.oracle.on_conflict(&self.nodes[node].shadow, conflict);
                note!(self, "  {} reports a conflict at {}", self.nodes[node].label, conflict.path);
            }
            Report::CatchUpStarted { peer, missing } => {
                note!(
                    self,
                    "  {} asks {peer} for a catch-up ({missing} ticks)",
                    self.nodes[node].label
                );
            }
            Report::CatchUpDone { peer, entries } => {
                self.stats.catch_ups += 1;
                note!(
                    self,
                    "  {} has caught up with {peer} ({entries} entries)",
                    self.nodes[node].label
                );
            }
            Report::CatchUpFailed { peer, reason } => {
                self.stats.catch_ups_failed += 1;
                note!(
                    self,
                    "  {}'s catch-up from {peer} failed: {reason:?}",
                    self.nodes[node].label
                );
            }
            Report::Renewed { incarnation } => {
                self.stats.renewals += 1;
                note!(self, "  {} goes on as {:x}", self.nodes[node].label, incarnation.0);
            }
        }
    }

    /// Has the judge look at a node.
    pub(crate) fn check(&mut self, node: usize) {
        let now = self.schedule.now();
        let at = &mut self.nodes[node];
        if let Some(engine) = &at.engine
            && self.oracle.check_step(&at.label, &mut at.shadow, engine)
        {
            self.changed_at = now;
        }
        at.log.note_place(&at.shadow);
        let (Some(copied), Some(engine)) = (at.copied_at, &at.engine) else { return };
        let id = engine.id();
        let own = engine.group().and_then(|g| g.member(&id.name));
        let is_member = own.is_some_and(|m| !m.durable && m.store == id.incarnation.0);
        if is_member || engine.tick().is_some_and(|tick| tick > copied) {
            self.give_up();
        }
    }

    /// A copy has made an event before it met itself. Not even a client is needed for that: it may
    /// change the Delete group's list, or re-issue. Now two changes may have one id. Or it is the
    /// Delete group's member in memory, twice: nodes without a disk are not copied in real life.
    fn give_up(&mut self) {
        note!(self, "a copy acts for its original before it met it; nothing can be said");
        self.stats.undecided = 1;
        self.phase = Phase::Over;
    }
}

/// A, B, … Z, A1, B1, …
pub(crate) fn node_label(at: usize) -> String {
    let letter = char::from(b'A' + (at % 26) as u8);
    if at < 26 { letter.to_string() } else { format!("{letter}{}", at / 26) }
}

/// A label as a node's name.
pub(super) fn node_name(label: &str) -> NodeName {
    NodeName::new(label).expect("labels are names")
}

//! The steps of a run: clients' writes, and faults. Each step has its own random numbers, so that
//! leaving one out changes the others as little as possible.

use std::sync::Arc;

use super::cluster::{Cluster, Happening, note};
use crate::engine::batch::write_one;
use crate::engine::changes::ForgetMember;
use crate::engine::{EngineWriteError, NO_LATER};
use crate::model::ids::NodeName;
use crate::model::path::Path;
use crate::profile::Focus;
use crate::replica::write::{ChainCondition, Precondition, Write, WriteError};
use crate::rng::Rng;

/// A kind of step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A client sets a value.
    Write,
    /// A client deletes one.
    Delete,
    /// Several changes at once.
    Burst,
    /// A push comes a second time, late, over whatever link stands then.
    Echo,
    /// A connection breaks.
    Break,
    /// The network falls into parts.
    Split,
    /// It is whole again.
    Mend,
    /// Nothing gets from one node to another, only back.
    OneWay,
    /// Nothing is written at an end for a while.
    Stall,
    /// A process stands still for a while.
    Freeze,
    /// A node goes down.
    Crash,
    /// A node comes back.
    Back,
    /// A new node joins.
    Join,
    /// A node leaves for good.
    Leave,
    /// A disk is copied to a second machine.
    Twin,
    /// A catch-up that is under way is disturbed.
    Disturb,
    /// A node's disk gets a snapshot.
    Snapshot,
    /// A node's state is saved to a file.
    Save,
    /// A file is fed into a node.
    Load,
    /// An operator takes a member that is away off the Delete group's list.
    Forget,
    /// Nothing happens for a while.
    Pause,
}

impl Step {
    /// All of them, with their usual weights.
    pub(crate) const ALL: [(Self, u32); 21] = [
        (Self::Write, 24),
        (Self::Delete, 10),
        (Self::Burst, 2),
        (Self::Echo, 3),
        (Self::Break, 3),
        (Self::Split, 3),
        (Self::Mend, 2),
        (Self::OneWay, 1),
        (Self::Stall, 2),
        (Self::Freeze, 1),
        (Self::Crash, 2),
        (Self::Back, 4),
        (Self::Join, 1),
        (Self::Leave, 1),
        (Self::Twin, 1),
        (Self::Disturb, 3),
        (Self::Snapshot, 3),
        (Self::Save, 1),
        (Self::Load, 1),
        (Self::Forget, 1),
        (Self::Pause, 4),
    ];
}

/// A push that may come again.
pub(crate) struct Echo {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) frame: Arc<[u8]>,
}

/// Draw again so often where a step would have nothing to do.
const DRAWS: usize = 6;
/// Most files that are kept.
const FILES_MAX: usize = 3;
/// At least this many nodes stay.
const NODES_MIN: usize = 2;

impl Cluster<'_> {
    /// Makes one step.
    pub(crate) fn step(&mut self, number: usize, rng: &mut Rng) {
        let mut step = Step::Write;
        for _ in 0..DRAWS {
            step = Step::ALL[rng.weighted(&self.plan.weights)].0;
            if self.has_object(step) {
                break;
            }
        }
        note!(self, "[{number}] {step:?}");
        let node = self.draw_node(rng, step);
        match step {
            Step::Write => self.write(node, rng, false),
            Step::Delete => self.write(node, rng, true),
            Step::Burst => {
                for _ in 0..rng.within(3, 12) {
                    let delete = rng.percent(30);
                    self.write(node, rng, delete);
                }
            }
            Step::Echo => self.echo(rng),
            Step::Break => self.break_any(node, rng),
            Step::Split => self.split(rng),
            Step::Mend => self.mend(),
            Step::OneWay => self.cut_one_way(node, rng),
            Step::Stall => self.stall(node, rng),
            Step::Freeze => {
                let for_ms = rng.pick(&[50, 300, 1_000, 6_000]);
                self.freeze(node, for_ms);
            }
            Step::Crash => self.crash_step(node, rng),
            Step::Back => {
                let goes_alone =
                    matches!(self.options.focus, Focus::Coordinators | Focus::Rollbacks);
                if goes_alone && rng.percent(60) {
                    // It purges on before it hears what it had announced; or it uses events again
                    // before it meets itself.
                    self.cut_off(node);
                }
                self.come_back(node, rng);
            }
            Step::Join => self.join(),
            Step::Leave => {
                if self.nodes[node].is_awake() && self.may_lose(node) {
                    self.leave(node);
                }
            }
            Step::Twin => self.start_twin(node),
            Step::Disturb => self.disturb(rng),
            Step::Snapshot => {
                if let Some(saved) = self.nodes[node].save() {
                    self.nodes[node].disk.save(saved);
                }
            }
            Step::Save => {
                if let Some(saved) = self.nodes[node].save() {
                    self.files.truncate(FILES_MAX - 1);
                    self.files.push(saved);
                }
            }
            Step::Load => {
                let number = rng.below(self.files.len());
                self.load_file(node, number);
            }
            Step::Forget => self.forget_any(node, rng),
            Step::Pause => self.pause_ms = rng.pick(&[100, 500, 1_500, 4_000]),
        }
    }

    /// Whether there is something that a step could be done to.
    fn has_object(&self, step: Step) -> bool {
        match step {
            Step::Back => self.nodes.iter().any(|n| !n.is_up() && !n.gone),
            Step::Echo => !self.echoes.is_empty(),
            Step::Mend => !self.network.cuts.is_empty(),
            Step::Load => !self.files.is_empty(),
            Step::Disturb => self.nodes.iter().any(|n| n.serving > 0),
            _ => true,
        }
    }

    /// A node for a step: one that is up, or down for [`Step::Back`], if there is one.
    fn draw_node(&self, rng: &mut Rng, step: Step) -> usize {
        let mut node = 0;
        for _ in 0..4 {
            node = rng.below(self.nodes.len());
            let at = &self.nodes[node];
            let wanted = match (step, self.options.focus) {
                (Step::Crash | Step::Snapshot | Step::Delete, Focus::Coordinators) => {
                    at.disk.store.is_some()
                }
                _ => true,
            };
            let fits =
                if step == Step::Back { !at.is_up() && !at.gone } else { at.is_awake() && wanted };
            if fits {
                break;
            }
        }
        node
    }

    /// Whether enough nodes stay without this one.
    fn may_lose(&self, node: usize) -> bool {
        let others = self.nodes.iter().enumerate().filter(|(at, n)| *at != node && !n.gone);
        others.count() >= NODES_MIN
    }

    /// The path with this number.
    pub(crate) fn path(number: usize) -> Path {
        let text = match number {
            0 => "x".to_owned(),
            1 => "y".to_owned(),
            2 => "x.y".to_owned(),
            n => format!("p{}.{}", n % 7, n),
        };
        text.parse().expect("these are paths")
    }

    /// A client changes something at a node.
    fn write(&mut self, node: usize, rng: &mut Rng, delete: bool) {
        let path = Self::path(rng.below(self.plan.paths));
        self.values += 1;
        let mut value = vec![0xce];
        value.extend_from_slice(&self.values.to_be_bytes());
        let (chain, wants) = self.draw_condition(node, &path, rng);
        if !self.nodes[node].is_awake() || self.nodes[node].copied_at.is_some() {
            return;
        }
        let precondition = Precondition::chain(chain);
        let value = (!delete).then_some(&value[..]);
        let write = Write { precondition, ..Write::new(path, value) };
        let ack_wanted = rng.percent(20);
        let result = self.change(node, |engine, out| write_one(engine, write, ack_wanted, out));
        let fits = match result {
            Some(Ok(_)) => wants != Some(false),
            Some(Err(EngineWriteError::NotReady)) => !self.nodes[node].is_ready(),
            // The identity is in doubt.
            Some(Err(EngineWriteError::Write(WriteError::NoEvent))) => true,
            Some(Err(EngineWriteError::Write(_))) => wants == Some(false),
            Some(Err(_)) => false,
            None => true,
        };
        if !fits {
            let detail = format!("at {}: {:?}", self.nodes[node].label, result.map(|r| r.err()));
            self.oracle.fail("a precondition was not kept to", detail);
        }
    }

    /// Sometimes a precondition, and whether it holds.
    fn draw_condition(
        &mut self,
        node: usize,
        path: &Path,
        rng: &mut Rng,
    ) -> (ChainCondition, Option<bool>) {
        let condition = rng.below(20);
        let at = &self.nodes[node];
        let Some(engine) = at.engine.as_ref().filter(|e| e.is_ready()) else {
            return (ChainCondition::Any, None);
        };
        let live = engine.get(path.as_bytes()).filter(|e| !e.is_tombstone());
        match condition {
            0 => (ChainCondition::MustBeNew, Some(live.is_none())),
            1 => match live {
                Some(entry) => (ChainCondition::Newest(entry.newest()), Some(true)),
                None => (ChainCondition::Unknown, Some(false)),
            },
            _ => (ChainCondition::Any, None),
        }
    }

    /// A push that came once comes again.
    fn echo(&mut self, rng: &mut Rng) {
        if self.echoes.is_empty() {
            return;
        }
        let at = rng.below(self.echoes.len());
        let echo = self.echoes.swap_remove(at);
        let end = self.nodes[echo.to].ends.iter().copied();
        let end = end.into_iter().find(|end| self.network.peer(*end) == echo.from);
        if let Some(end) = end
            && self.nodes[echo.to].is_awake()
        {
            self.deliver(echo.from, echo.to, end, &echo.frame);
        }
    }

    fn break_any(&mut self, node: usize, rng: &mut Rng) {
        let ends = &self.nodes[node].ends;
        if !ends.is_empty() {
            let end = ends[rng.below(ends.len())];
            note!(self, "{} breaks", self.link_label(end));
            self.break_link(end);
        }
    }

    /// The network falls into parts of any shape, or a part of a part falls off.
    fn split(&mut self, rng: &mut Rng) {
        let parts = rng.pick(&[2, 2, 2, 3, 4]);
        let part_of: Vec<usize> = (0..self.slots()).map(|_| rng.below(parts)).collect();
        let adds = rng.percent(30);
        for (a, part) in part_of.iter().enumerate() {
            for (b, other) in part_of.iter().enumerate() {
                if part != other {
                    self.network.cuts.cut(a, b);
                } else if !adds {
                    self.network.cuts.mend(a, b);
                }
            }
        }
        note!(self, "parts: {}", self.parts_label());
        self.after_block();
    }

    fn cut_off(&mut self, node: usize) {
        for other in (0..self.slots()).filter(|other| *other != node) {
            self.network.cuts.cut_both(node, other);
        }
        note!(self, "{} is cut off", self.nodes[node].label);
        self.after_block();
    }

    fn mend(&mut self) {
        drop(self.network.cuts.heal());
        self.after_block();
    }

    fn cut_one_way(&mut self, from: usize, rng: &mut Rng) {
        let to = rng.below(self.nodes.len());
        if from != to {
            note!(self, "nothing gets from {} to {}", self.nodes[from].label, self.nodes[to].label);
            self.network.cuts.cut(from, to);
            self.after_block();
        }
    }

    /// The effects of a change of reachability.
    pub(super) fn after_block(&mut self) {
        for end in self.network.ends() {
            let (node, peer) = (self.network.end(end).node, self.network.peer(end));
            self.plan_arrival(end);
            if self.network.end(end).open && self.network.is_cut(node, peer) {
                let silence = self.plan.silence_ms;
                let at = self.now() + self.rng.within(silence / 2, silence);
                self.schedule.plan(at, Happening::Silence(end));
            }
        }
        for node in 0..self.nodes.len() {
            for other in 0..node {
                if !self.network.is_cut(node, other) {
                    self.dial_later(node, other);
                }
            }
        }
    }

    fn stall(&mut self, node: usize, rng: &mut Rng) {
        let ends = &self.nodes[node].ends;
        let for_ms = rng.pick(&[20, 200, 1_000, 5_000]);
        if !ends.is_empty() {
            let end = ends[rng.below(ends.len())];
            note!(self, "{} stalls for {for_ms} ms", self.link_label(end));
            let until = self.now() + for_ms;
            self.network.end_mut(end).stalled_until = until;
        }
    }

    fn crash_step(&mut self, node: usize, rng: &mut Rng) {
        let for_good = rng.percent(15) && self.may_lose(node);
        let others_up = self.nodes.iter().enumerate().any(|(at, n)| at != node && n.is_up());
        if !self.nodes[node].is_up() || !others_up {
            return;
        }
        note!(
            self,
            "{} goes down{}",
            self.nodes[node].label,
            if for_good { " for good" } else { "" }
        );
        self.nodes[node].gone = for_good;
        self.crash(node);
    }

    /// An operator believes that a member of the Delete group that is away will not come back.
    fn forget_any(&mut self, node: usize, rng: &mut Rng) {
        let now = self.now();
        let at = &self.nodes[node];
        let Some(engine) = at.engine.as_ref().filter(|_| at.is_awake()) else { return };
        let away = engine.group_view(now).away;
        if away.is_empty() {
            return;
        }
        let name = away[rng.below(away.len())].0.name.clone();
        self.forget(node, &name);
    }

    /// A member is taken off the Delete group's list at a node.
    pub(crate) fn forget(&mut self, node: usize, name: &NodeName) {
        note!(self, "{} forgets {name}", self.nodes[node].label);
        let result =
            self.change(node, |engine, out| engine.handle(ForgetMember(name), NO_LATER, out));
        self.stats.forgotten += u64::from(matches!(result, Some(Ok(()))));
    }

    /// A fault for a node that asks for, or answers, a catch-up.
    fn disturb(&mut self, rng: &mut Rng) {
        let serving: Vec<u32> =
            self.network.ends().filter(|end| self.network.end(*end).serving).collect();
        if serving.is_empty() {
            return;
        }
        let end = serving[rng.below(serving.len())];
        let (node, peer) = (self.network.end(end).node, self.network.peer(end));
        match rng.below(6) {
            0 => self.crash_step(node, rng),
            1 => self.crash_step(peer, rng),
            2 => {
                let for_ms = rng.pick(&[300, 6_000]);
                self.freeze(node, for_ms);
            }
            3 => {
                note!(
                    self,
                    "nothing gets from {} to {}",
                    self.nodes[node].label,
                    self.nodes[peer].label
                );
                self.network.cuts.cut(node, peer);
                self.after_block();
            }
            4 => self.split(rng),
            _ => {
                note!(self, "{} breaks", self.link_label(end));
                self.break_link(end);
            }
        }
    }

    /// For people: which node reaches which.
    fn parts_label(&self) -> String {
        let mut parts: Vec<Vec<usize>> = Vec::new();
        for node in 0..self.nodes.len() {
            match parts.iter_mut().find(|p| !self.network.is_cut(p[0], node)) {
                Some(part) => part.push(node),
                None => parts.push(vec![node]),
            }
        }
        let label = |part: &Vec<usize>| -> String {
            part.iter().map(|n| self.nodes[*n].label.as_str()).collect::<Vec<_>>().join(" ")
        };
        parts.iter().map(label).collect::<Vec<_>>().join(" | ")
    }
}

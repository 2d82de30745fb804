//! Nodes that come and go: starts, crashes, restarts, copied disks, frozen processes, and the
//! clock of each engine.

use std::collections::BTreeMap;

use super::cluster::{Cluster, Happening, node_label, node_name, note};
use super::disk::Saved;
use super::event_log::EventLog;
use super::network::Network;
use super::node::Node;
use crate::engine::changes::{LoadImage, SayFarewell, SetDeletePatience};
use crate::engine::delete::DeleteSettings;
use crate::engine::{Config, Engine, Image, Input, NO_LATER, Outbox};
use crate::model::defects::Defect;
use crate::model::ids::{Incarnation, Millis, NodeId};
use crate::oracle::shadow::Shadow;
use crate::profile::Focus;
use crate::rng::Rng;

/// So often a node stops between the moment at which its state is safe and the one at which it hears
/// of that.
const STOPS_PERCENT: u32 = 5;
/// What logs and disks do is drawn from numbers of their own: other draws stay as they are.
const LUCK_SEED: u64 = 0x6c6f_675f_7461_696c;

/// How a node comes back (replication rule 9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// With all that it had.
    Log,
    /// With an older state, but none before what it last agreed to: it lost the end of its log, or
    /// its directory was set back.
    Old,
    /// With any older state; then its data directory is another one.
    Backup,
    /// With nothing.
    Empty,
}

impl Way {
    /// All of them, the usual ones more than once.
    const ALL: &[Self] = &[
        Self::Log,
        Self::Log,
        Self::Log,
        Self::Old,
        Self::Old,
        Self::Old,
        Self::Backup,
        Self::Empty,
        Self::Empty,
    ];

    fn is_open(self, node: &Node) -> bool {
        match self {
            Self::Log => node.disk.store.is_some(),
            Self::Old => !node.disk.usable().is_empty(),
            Self::Backup => !node.disk.all().is_empty(),
            Self::Empty => true,
        }
    }
}

impl Cluster<'_> {
    /// Adds a node and starts it, with nothing.
    pub(super) fn add_node(&mut self, label: &str, founds: bool, has_disk: bool) -> usize {
        let node = self.nodes.len();
        let mut new = Node::new(node_name(label), label.to_owned());
        new.disk.store = has_disk.then(|| self.next_store());
        self.nodes.push(new);
        let incarnation = self.next_incarnation();
        self.start(node, incarnation, None, founds);
        node
    }

    fn next_store(&mut self) -> u64 {
        self.stores += 1;
        self.stores
    }

    /// Starts a node's process, with a state of its own or with nothing.
    fn start(
        &mut self,
        node: usize,
        incarnation: Incarnation,
        state: Option<&Saved>,
        founds: bool,
    ) {
        let full_mesh_max = self.full_mesh_max(node);
        let at = &mut self.nodes[node];
        let id = NodeId { name: at.name.clone(), incarnation };
        let mut delete = DeleteSettings { store: at.disk.store, ..self.plan.delete.clone() };
        if at.copied_at.is_some() {
            // That takes an event, which it must not make.
            delete.found_after_ms = Millis::MAX;
            delete.takeover_after_ms = Millis::MAX;
        }
        let config = Config {
            chain_bound: self.plan.chain_bound,
            defects: self.options.defects,
            delete,
            lists: self.plan.lists,
            full_mesh_max,
            ..Config::new(id, self.plan.hash_seed ^ node as u64)
        };
        at.shadow = Shadow::default();
        let engine = match state {
            None => Engine::new(config),
            Some(Saved { image, shadow }) => {
                self.stats.restored += 1;
                at.shadow.owned = shadow.owned.clone();
                let mut out = Outbox::new();
                Engine::restore(config, image, &mut out).expect("the table is not full")
            }
        };
        self.oracle.sync_table(&mut at.shadow, &engine);
        self.oracle.check_whole(&at.label, &mut at.shadow, &engine);
        at.log = match at.disk.store {
            Some(_) => EventLog::begin(engine.image(), self.plan.hash_seed ^ node as u64),
            None => EventLog::default(),
        };
        at.engine = Some(engine);
        self.begin_process(node);
        if founds {
            self.handle(node, Input::Found);
        }
    }

    /// What every start of a process has in common.
    fn begin_process(&mut self, node: usize) {
        let at = &mut self.nodes[node];
        at.process += 1;
        at.wanted = None;
        at.frozen = false;
        at.serving = 0;
        let process = at.process;
        // Not all clocks strike together.
        let first = self.now() + self.rng.within(0, self.plan.tick_ms);
        self.schedule.plan(first, Happening::Tick { node, process });
        self.changed_at = self.now();
    }

    pub(crate) fn on_tick(&mut self, node: usize, process: u32) {
        if self.nodes[node].process != process || !self.nodes[node].is_awake() {
            return;
        }
        self.look_at_members(node);
        self.handle(node, Input::Tick);
        let at = self.now() + self.plan.tick_ms;
        self.schedule.plan(at, Happening::Tick { node, process });
    }

    /// A node goes down, at once and without a word.
    pub(crate) fn crash(&mut self, node: usize) {
        for end in self.nodes[node].ends.clone() {
            self.drop_end(end);
        }
        let at = &mut self.nodes[node];
        at.last = at.save();
        if let (Some(told), Some(last)) = (at.log.whole(), &mut at.last) {
            if let Some(what) = difference(&told, &last.image) {
                self.oracle.fail("the log tells another state", format!("{what} of {}", at.label));
            }
            last.image = told;
            self.oracle.own_what_was_seen(last);
        }
        at.engine = None;
        at.frozen = false;
        at.disk.writing.clear();
        self.changed_at = self.now();
        // Data still under way to it reaches no node.
        for end in self.network.ends() {
            if self.network.peer(end) == node {
                self.plan_arrival(end);
            }
        }
    }

    /// A node that is down comes back.
    pub(super) fn come_back(&mut self, node: usize, rng: &mut Rng) {
        let at = &self.nodes[node];
        if at.is_up() || at.gone {
            return;
        }
        let Some(last) = self.nodes[node].last.take() else { return };
        let mut ways = Way::ALL.to_vec();
        ways.retain(|way| way.is_open(&self.nodes[node]));
        let mut way = rng.pick(&ways);
        if self.options.focus == Focus::Coordinators
            && Way::Old.is_open(&self.nodes[node])
            && rng.percent(70)
        {
            way = Way::Old;
        }
        // It may be started as the first of a network, although there is one.
        let founds = rng.percent(self.plan.founds_percent);
        let choice = |from: &[Saved], rng: &mut Rng| from[rng.below(from.len())].clone();
        let state = match way {
            Way::Log => Some(self.state_of_log(node, last.clone())),
            Way::Old => Some(choice(self.nodes[node].disk.usable(), rng)),
            Way::Backup => Some(choice(self.nodes[node].disk.all(), rng)),
            Way::Empty => None,
        };
        if matches!(way, Way::Backup | Way::Empty) && self.nodes[node].disk.store.is_some() {
            let store = self.next_store();
            self.nodes[node].disk.replace(Some(store), state.clone());
        } else if way == Way::Log {
            self.nodes[node].disk.save(state.clone().unwrap_or_else(|| last.clone()));
        }
        let mut incarnation = self.next_incarnation();
        if self.has(Defect::TickReused) {
            incarnation = last.image.id().incarnation;
        }
        // A resumed virtual machine, whatever else: the life that the state names continues,
        // although it may have made further ticks already.
        let keeps = self.has(Defect::IncarnationKept) || self.options.focus == Focus::Rollbacks;
        if let Some(state) = state.as_ref().filter(|_| keeps) {
            incarnation = state.image.id().incarnation;
        }
        note!(
            self,
            "{} comes back: {way:?}{}",
            self.nodes[node].label,
            if founds { ", on its own" } else { "" }
        );
        self.start(node, incarnation, state.as_ref(), founds);
        self.dial_all(node);
    }

    fn luck(&self) -> Rng {
        Rng::new(self.seed ^ LUCK_SEED, self.now())
    }

    /// What a node's log gives after a crash: all of it, or as much as there is without its
    /// unsynced end.
    fn state_of_log(&mut self, node: usize, last: Saved) -> Saved {
        let mut luck = self.luck();
        let log = std::mem::take(&mut self.nodes[node].log);
        if luck.percent(50) {
            return last;
        }
        let Some((image, shadow)) = log.part(luck.next()) else { return last };
        self.stats.logs_cut += 1;
        note!(self, "the end of the log of {} is lost", self.nodes[node].label);
        let mut saved = Saved { image, shadow };
        self.oracle.own_what_was_seen(&mut saved);
        saved
    }

    /// A node asked for its state to be made safe.
    pub(super) fn persist(&mut self, node: usize, token: u64) {
        let Some(saved) = self.nodes[node].save() else { return };
        self.nodes[node].disk.writing.push((token, saved));
        self.nodes[node].log.note_asked(token);
        let process = self.nodes[node].process;
        let at = self.now() + self.rng.pick(&[0, 0, 1, 20, 500]);
        self.schedule.plan(at, Happening::Persisted { node, process, token });
    }

    pub(super) fn on_persisted(&mut self, node: usize, process: u32, token: u64) {
        let at = &mut self.nodes[node];
        if at.process != process || !at.is_up() {
            return;
        }
        if at.frozen {
            let later = self.now() + 100;
            return self.schedule.plan(later, Happening::Persisted { node, process, token });
        }
        if at.disk.finish_writing(token) {
            at.log.note_safe(token);
            if !self.is_healing() && self.luck().percent(STOPS_PERCENT) {
                self.stats.stopped_when_safe += 1;
                note!(
                    self,
                    "{} stops before it hears that its state is safe",
                    self.nodes[node].label
                );
                return self.crash(node);
            }
            self.handle(node, Input::Persisted { token });
        }
    }

    /// A file with some node's state is fed into a node.
    pub(super) fn load_file(&mut self, node: usize, number: usize) {
        let Some(file) = self.files.get(number).cloned() else { return };
        let at = &self.nodes[node];
        if !at.is_awake() {
            return;
        }
        note!(self, "{} takes in a file of {}", at.label, file.image.id().name);
        self.stats.files_loaded += 1;
        self.oracle.on_file(&file.shadow, &file.image);
        self.change(node, |engine, out| engine.handle(LoadImage(&file.image), NO_LATER, out));
        let at = &mut self.nodes[node];
        if let Some(engine) = &at.engine {
            self.oracle.own_arrivals(&mut at.shadow, engine);
        }
        self.oracle.after_message();
    }

    /// A node that has not been there before joins.
    pub(crate) fn join(&mut self) {
        if self.joined >= super::cluster::EXTRA_NODES_MAX || self.nodes.len() >= self.slots() {
            return;
        }
        self.joined += 1;
        let label = node_label(self.nodes.len());
        note!(self, "{label} joins");
        let has_disk = self.rng.percent(40);
        let node = self.add_node(&label, false, has_disk);
        self.dial_all(node);
    }

    /// How many nodes there is room for.
    pub(crate) fn slots(&self) -> usize {
        self.plan.nodes + super::cluster::EXTRA_NODES_MAX
    }

    /// A node says farewell and is gone for good.
    pub(crate) fn leave(&mut self, node: usize) {
        note!(self, "{} leaves", self.nodes[node].label);
        self.change(node, |engine, out| engine.handle(SayFarewell, NO_LATER, out));
        self.write_out();
        for end in self.nodes[node].ends.clone() {
            // Its last words are under way; nothing cuts them short.
            let flight = self.network.end(end).flight.clone();
            self.drop_end(end);
            self.network.end_mut(end).flight = flight;
            self.plan_arrival(end);
        }
        self.nodes[node].gone = true;
        self.crash(node);
    }

    /// A second machine starts with a copy of a node's disk: the same name and incarnation. Until
    /// it has found out, it makes no changes, because then nothing could tell them apart. It is not
    /// the member of the Delete group that the original is: a copied record of what a member agreed
    /// to would let two nodes agree for one (replication rule 7), and no rule could repair that.
    pub(super) fn start_twin(&mut self, of: usize) {
        if self.nodes.len() >= self.slots() || self.nodes[of].twin.is_some() {
            return;
        }
        let Some(copy) = self.nodes[of].save() else { return };
        let name = &self.nodes[of].name;
        let is_member = copy.image.group.as_ref().is_some_and(|g| g.member(name).is_some());
        if is_member && self.rng.percent(80) {
            // It would take the member of its name off the list, which takes an event.
            return;
        }
        let incarnation = copy.image.id().incarnation;
        let label = format!("{}'", self.nodes[of].label);
        note!(self, "{label} starts with a copy of the disk of {}", self.nodes[of].label);
        let node = self.nodes.len();
        let mut twin = Node::new(self.nodes[of].name.clone(), label);
        twin.twin = Some(of);
        // Where events may be used twice, it need not wait.
        let may_write = self.options.focus == Focus::Rollbacks;
        twin.copied_at = (!may_write).then_some(copy.image.replica.tick);
        self.nodes.push(twin);
        self.nodes[of].twin = Some(node);
        self.start(node, incarnation, Some(&copy), false);
        self.dial_all(node);
    }

    /// A node's process stands still for a while.
    pub(crate) fn freeze(&mut self, node: usize, for_ms: u64) {
        if !self.nodes[node].is_awake() {
            return;
        }
        note!(self, "{} stands still for {for_ms} ms", self.nodes[node].label);
        self.nodes[node].frozen = true;
        let process = self.nodes[node].process;
        let at = self.now() + for_ms;
        self.schedule.plan(at, Happening::Thaw { node, process });
    }

    pub(super) fn on_thaw(&mut self, node: usize, process: u32) {
        if self.nodes[node].process != process || !self.nodes[node].frozen {
            return;
        }
        note!(self, "{} goes on", self.nodes[node].label);
        self.nodes[node].frozen = false;
        let now = self.now();
        self.schedule.plan(now, Happening::Tick { node, process });
        for end in self.nodes[node].ends.clone() {
            self.to_look.push_back(end);
            self.plan_arrival(Network::other(end));
        }
        self.dial_all(node);
    }

    pub(super) fn on_renew(&mut self, node: usize, process: u32) {
        if self.nodes[node].process != process || !self.nodes[node].is_up() {
            return;
        }
        if self.nodes[node].frozen {
            let at = self.now() + 100;
            return self.schedule.plan(at, Happening::Renew { node, process });
        }
        let incarnation = self.next_incarnation();
        self.handle(node, Input::Renewed { incarnation });
        if self.nodes[node].copied_at.take().is_some() && self.nodes[node].engine.is_some() {
            // Now it may make events, like anybody.
            let patience = self.plan.delete.clone();
            self.change(node, |engine, out| {
                engine.handle(SetDeletePatience(&patience), NO_LATER, out);
            });
        }
        let at = &mut self.nodes[node];
        if at.disk.store.is_some() {
            // What the directory holds is not the record of the member that it was copied from.
            at.disk.replace(Some(incarnation.0), None);
        }
        // Peers must greet the new incarnation before they hear more.
        for end in self.nodes[node].ends.clone() {
            self.close_end(end, "is closed for the new incarnation");
        }
        debug_assert!(self.nodes[node].ends.is_empty());
    }
}

/// What is wrong with the state that a process's log gives, if anything. Versions that lost a
/// conflict on arrival, and what was heard of the others' clocks, need not be in it: both come
/// again.
fn difference(told: &Image, true_one: &Image) -> Option<&'static str> {
    let (told_of, known) = (told.knowledge(), true_one.knowledge());
    let entries = |image: &Image| -> BTreeMap<_, _> {
        let entries = image.replica.tree.all();
        entries.map(|(path, entry)| (path, (entry.newest(), entry.is_tombstone()))).collect()
    };
    [
        ("the id", told_of.id != known.id),
        ("the last tick", told_of.tick < known.tick),
        ("what was seen", !told_of.seen.difference(&known.seen).is_empty()),
        ("the mark", told_of.mark != known.mark),
        ("the member list", told_of.group != known.group),
        ("what was decided", told_of.decided != known.decided),
        ("the clock", told_of.tock > known.tock),
        ("the entries", entries(told) != entries(true_one)),
    ]
    .into_iter()
    .find_map(|(what, differs)| differs.then_some(what))
}

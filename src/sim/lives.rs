//! Nodes that come and go: starts, crashes, restarts, copied disks, frozen processes, and the
//! clock of each engine.

use super::cluster::{Cluster, Happening, node_label, node_name, note};
use super::network::Network;
use super::node::Node;
use super::oracle::shadow::Shadow;
use super::rng::Rng;
use crate::engine::{Config, Engine, Input};
use crate::model::defects::Defect;
use crate::model::ids::{Incarnation, NodeId};

impl Cluster<'_> {
    /// Adds a node and starts it.
    pub(super) fn add_node(&mut self, label: &str, founds: bool) -> usize {
        let node = self.nodes.len();
        self.nodes.push(Node::new(node_name(label), label.to_owned()));
        let incarnation = self.next_incarnation();
        self.start_empty(node, incarnation, founds);
        node
    }

    /// Starts a node's process without any state.
    fn start_empty(&mut self, node: usize, incarnation: Incarnation, founds: bool) {
        let at = &mut self.nodes[node];
        let id = NodeId { name: at.name.clone(), incarnation };
        let config = Config {
            chain_bound: self.plan.chain_bound,
            defects: self.options.defects,
            ..Config::new(id, self.plan.hash_seed ^ node as u64)
        };
        at.engine = Some(Engine::new(config));
        at.shadow = Shadow::default();
        self.begin_process(node);
        if founds {
            self.handle(node, Input::Found);
        } else {
            self.check(node);
        }
    }

    /// What every start of a process has in common.
    fn begin_process(&mut self, node: usize) {
        let at = &mut self.nodes[node];
        at.process += 1;
        at.frozen = false;
        at.serving = 0;
        let process = at.process;
        // Not all clocks strike together.
        let first = self.now() + self.rng.within(0, self.plan.tick_ms);
        self.schedule.plan(first, Happening::Tick { node, process });
        self.changed_at = self.now();
    }

    pub(super) fn on_tick(&mut self, node: usize, process: u32) {
        if self.nodes[node].process != process || !self.nodes[node].is_awake() {
            return;
        }
        self.handle(node, Input::Tick);
        let at = self.now() + self.plan.tick_ms;
        self.schedule.plan(at, Happening::Tick { node, process });
    }

    /// A node goes down, at once and without a word.
    pub(super) fn crash(&mut self, node: usize) {
        for end in self.nodes[node].ends.clone() {
            self.drop_end(end);
        }
        let at = &mut self.nodes[node];
        at.last_incarnation = at.engine.take().map(|engine| engine.id().incarnation);
        at.frozen = false;
        self.changed_at = self.now();
        // What is still under way to it arrives at nobody.
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
        let incarnation = match at.last_incarnation {
            Some(last) if self.has(Defect::TickReused) => last,
            _ => self.next_incarnation(),
        };
        // Somebody may start it as the first of a network, although there is one.
        let founds = rng.percent(10);
        note!(
            self,
            "{} comes back with nothing{}",
            self.nodes[node].label,
            if founds { ", on its own" } else { "" }
        );
        self.start_empty(node, incarnation, founds);
        self.dial_all(node);
    }

    /// A node that has not been there before joins.
    pub(super) fn join(&mut self) {
        if self.joined >= super::cluster::EXTRA_NODES_MAX || self.nodes.len() >= self.slots() {
            return;
        }
        self.joined += 1;
        let label = node_label(self.nodes.len());
        note!(self, "{label} joins");
        let node = self.add_node(&label, false);
        self.dial_all(node);
    }

    /// How many nodes there is room for.
    pub(super) fn slots(&self) -> usize {
        self.plan.nodes + super::cluster::EXTRA_NODES_MAX
    }

    /// A node says farewell and is gone for good.
    pub(super) fn leave(&mut self, node: usize) {
        note!(self, "{} leaves", self.nodes[node].label);
        self.change(node, |engine, out| engine.leave(out));
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
    /// it has found out, it makes no changes, because then nobody could tell them apart.
    pub(super) fn start_twin(&mut self, of: usize) {
        if self.nodes.len() >= self.slots() || self.nodes[of].twin.is_some() {
            return;
        }
        let Some(engine) = &self.nodes[of].engine else { return };
        let incarnation = engine.id().incarnation;
        let label = format!("{}'", self.nodes[of].label);
        note!(self, "{label} starts with a copy of the disk of {}", self.nodes[of].label);
        let node = self.nodes.len();
        let mut twin = Node::new(self.nodes[of].name.clone(), label);
        twin.twin = Some(of);
        twin.is_copy = true;
        self.nodes.push(twin);
        self.nodes[of].twin = Some(node);
        self.start_empty(node, incarnation, false);
        self.dial_all(node);
    }

    /// A node's process stands still for a while.
    pub(super) fn freeze(&mut self, node: usize, for_ms: u64) {
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
        self.nodes[node].is_copy = false;
        // Peers must greet the new incarnation before they hear more.
        for end in self.nodes[node].ends.clone() {
            self.close_end(end, "is closed for the new incarnation");
        }
        debug_assert!(self.nodes[node].ends.is_empty());
    }
}

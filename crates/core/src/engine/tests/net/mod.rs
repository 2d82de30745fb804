//! Engines whose network is moved by hand: frames wait in queues until a test delivers them, and the test
//! turns the clock. Every node's outputs are replayed as its log would ([`log`]). Tests drive it from Rust,
//! the scripts of [`super::interaction`] with commands; those have it tell what happens ([`show`]).
//!
//! For what a seed decides instead, and for faults of disks, clocks and processes, see the crate
//! `distkv-sim`.

mod forged;
mod frames;
mod log;
pub(super) mod show;

use std::collections::{BTreeMap, BTreeSet};

use frames::Pipe;
use log::LogReplay;

use super::{Write, write};
use crate::engine::changes::{
    BeginHandOver, BeginRetirement, Change, ForgetMember, InitRoot, KillNode, SayFarewell,
};
use crate::engine::delete::{DeleteSettings, ForgetError, RetireError};
use crate::engine::*;
use crate::model::ids::{NodeId, NodeName};
use crate::model::seen::{SeenById, export_seen};
use crate::protocol::peer::Digest;

struct Node {
    /// How the story calls it: its name, but for a copy.
    label: String,
    engine: Engine,
    log: LogReplay,
    /// By the link's name here: the pipe to the other end.
    pipes: BTreeMap<LinkId, Pipe>,
    /// The number of its life, which is its incarnation.
    life: u64,
    /// Its settings, for the next start.
    delete: DeleteSettings,
    /// What waits for a slow disk, oldest first; none: whatever is to be safe is so at once.
    unsafe_yet: Option<Vec<u64>>,
}

pub(super) struct Net {
    nodes: Vec<Node>,
    now: Millis,
    next_link: u64,
    /// The newest events of all losers that were reported.
    losers: Vec<EventKey>,
    renewals: usize,
    /// Who said that it is ready, in turn.
    pub(super) ready: Vec<usize>,
    /// What nodes reported, but for conflicts.
    pub(super) reports: Vec<(usize, Report)>,
    rng: u64,
    /// What engines draw from.
    seed: u64,
    /// Every event that was made.
    made: BTreeSet<EventKey>,
    /// Two nodes share an identity, or one kept its own, so an event may be used twice before they find out.
    cloned: bool,
    delete: DeleteSettings,
    lists: ListCaps,
    /// Digests that arrived, and from whom, since [`Net::listen`].
    digests: Option<Vec<(usize, Digest)>>,
    /// Who wanted to be told everything.
    pub(super) wanted: Vec<usize>,
    /// Who wanted a link closed, and why.
    pub(super) closed: Vec<(usize, CloseReason)>,
    /// Those that know nothing of times, as older versions: what they are told of them is ignored.
    pub(super) timeless: BTreeSet<usize>,
    /// What happened, in lines for people; of scripts alone.
    story: Option<Vec<String>>,
}

/// In networks that purge, a node that is away has a say for so long.
pub(super) const SAY_FOR_MS: Millis = 20_000;

/// A node that is a copy counts its lives from here on, so that none is one of the original's.
const COPIED_LIFE: u64 = 100;

/// An event by identity.
type EventKey = (NodeId, u64);

/// The random runs' checks know nothing of purges; `sim` has those.
fn no_purges() -> DeleteSettings {
    DeleteSettings { found_after_ms: Millis::MAX, ..DeleteSettings::default() }
}

type Content = (Vec<(Path, String)>, SeenById);

/// Making networks.
impl Net {
    /// Nodes `n0`, `n1` …, all founders, not connected.
    pub(crate) fn new(count: usize) -> Self {
        Self::with(count, no_purges(), ListCaps::default())
    }

    /// The same, whose nodes purge; `durable` ones have data directories.
    pub(crate) fn purging(count: usize, durable: bool) -> Self {
        Self::purging_as(count, durable, &DeleteSettings::default())
    }

    /// The same; rounds follow each other without a rest.
    pub(crate) fn purging_fast(count: usize) -> Self {
        let settings = DeleteSettings { interval_ms: 100, cycle_ms: 500, ..Default::default() };
        Self::purging_as(count, false, &settings)
    }

    fn purging_as(count: usize, durable: bool, settings: &DeleteSettings) -> Self {
        let mut net = Self::new(0);
        for node in 0..count {
            let store = durable.then_some(node as u64);
            net.delete = DeleteSettings { store, say_for_ms: SAY_FOR_MS, ..settings.clone() };
            net.join();
            net.handle(node, Input::Found);
        }
        net
    }

    /// The same with settings of the Delete group, and for how long lists may be.
    pub(crate) fn with(count: usize, delete: DeleteSettings, lists: ListCaps) -> Self {
        let mut net = Self {
            nodes: Vec::new(),
            now: 1,
            next_link: 1,
            losers: Vec::new(),
            renewals: 0,
            ready: Vec::new(),
            reports: Vec::new(),
            rng: 1,
            seed: 7,
            made: BTreeSet::new(),
            cloned: false,
            delete,
            lists,
            digests: None,
            wanted: Vec::new(),
            closed: Vec::new(),
            timeless: BTreeSet::new(),
            story: None,
        };
        for _ in 0..count {
            let node = net.join();
            net.handle(node, Input::Found);
        }
        net
    }

    /// No node yet; what happens is told.
    pub(crate) fn telling() -> Self {
        Self { story: Some(Vec::new()), now: 0, seed: 1, ..Self::new(0) }
    }

    /// What happened since the last call.
    pub(crate) fn take_story(&mut self) -> Vec<String> {
        self.story.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Adds a line to the story, if there is one.
    pub(crate) fn tell(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.story.is_some() {
            let line = line(self);
            self.story.iter_mut().for_each(|story| story.push(line.clone()));
        }
    }
}

/// Nodes that come and go.
impl Net {
    /// The configuration of a node's present life.
    fn config(&self, name: &NodeName, life: u64, delete: &DeleteSettings) -> Config {
        let id = NodeId { name: name.clone(), incarnation: Incarnation(life) };
        Config { delete: delete.clone(), lists: self.lists, ..Config::new(id, self.seed) }
    }

    /// A node of that name that is not ready, which the story calls `label`.
    pub(crate) fn add(&mut self, name: &str, label: &str, image: Option<&Image>) -> usize {
        let (name, delete) = (NodeName::new(name).unwrap(), self.delete.clone());
        let (engine, _) = started(self.config(&name, 1, &delete), image);
        self.nodes.push(Node {
            label: label.to_owned(),
            log: LogReplay::begin(&engine),
            engine,
            pipes: BTreeMap::new(),
            life: 1,
            delete,
            unsafe_yet: None,
        });
        self.nodes.len() - 1
    }

    /// A node of that name that is not ready, with settings of its own.
    pub(crate) fn add_with(&mut self, name: &str, delete: DeleteSettings) -> usize {
        self.delete = delete;
        self.add(name, name, None)
    }

    /// A node that is not ready.
    pub(crate) fn join(&mut self) -> usize {
        let name = format!("n{}", self.nodes.len());
        self.add(&name, &name, None)
    }

    /// A node that is not ready, with settings of its own.
    pub(crate) fn join_with(&mut self, delete: DeleteSettings) -> usize {
        self.delete = delete;
        self.join()
    }

    /// Nodes with data directories that are not ready.
    pub(crate) fn join_durable(&mut self, count: usize) -> Vec<usize> {
        (0..count)
            .map(|_| {
                let store = Some(self.nodes.len() as u64);
                self.join_with(DeleteSettings { store, ..self.delete.clone() })
            })
            .collect()
    }

    /// A second node with a node's name and first incarnation: a copied disk, with that state or empty.
    pub(crate) fn add_copy(&mut self, of: usize, label: &str, image: Option<&Image>) -> usize {
        self.cloned = true;
        let name = self.engine(of).id().name.to_string();
        self.delete = self.nodes[of].delete.clone();
        let node = self.add(&name, label, image);
        self.nodes[node].life = COPIED_LIFE;
        node
    }

    /// A second founder with the name and incarnation of another: a cloned disk.
    pub(crate) fn clone_identity(&mut self, of: usize) -> usize {
        let node = self.add_copy(of, "copy", None);
        assert_eq!(self.engine(of).id(), self.engine(node).id());
        self.handle(node, Input::Found);
        node
    }

    /// A node is gone without a word: its links are.
    pub(crate) fn crash(&mut self, node: usize) {
        for other in 0..self.nodes.len() {
            self.disconnect(node, other);
        }
    }

    /// A node that is gone comes back as a joiner, with a state or with nothing; in a new life unless it
    /// keeps the one that it had. Gives what it carried out at once, because that had been decided.
    pub(crate) fn restart(&mut self, node: usize, image: Option<&Image>, is_kept: bool) -> Outbox {
        self.cloned |= is_kept;
        let at = &mut self.nodes[node];
        at.life += u64::from(!is_kept);
        let (name, life, delete) = (at.engine.id().name.clone(), at.life, at.delete.clone());
        let (engine, out) = started(self.config(&name, life, &delete), image);
        let at = &mut self.nodes[node];
        at.log = LogReplay::begin(&engine);
        at.engine = engine;
        at.unsafe_yet = None;
        out
    }

    /// A node starts with another data directory: what is in it, if anything is, and its id. It goes on
    /// alone if nobody is there.
    pub(crate) fn restart_with(&mut self, node: usize, store: u64, image: Option<&Image>) {
        self.crash(node);
        self.nodes[node].delete.store = Some(store);
        let out = self.restart(node, image, false);
        assert!(out.is_empty(), "nothing was decided when it was saved");
    }

    /// A node that lost everything comes back under its name, as a joiner.
    pub(crate) fn restart_empty(&mut self, node: usize) {
        self.crash(node);
        self.restart(node, None, false);
        if !self.nodes.iter().any(|n| n.engine.is_ready()) {
            self.handle(node, Input::Found);
        }
    }

    /// A node says that it leaves, and is gone.
    pub(crate) fn leave(&mut self, node: usize) {
        self.handle(node, SayFarewell);
        self.deliver_all();
        self.crash(node);
    }
}

/// A process that starts with a state, or with nothing; and what it did with that.
fn started(config: Config, image: Option<&Image>) -> (Engine, Outbox) {
    let mut out = Outbox::new();
    let engine = match image {
        Some(image) => Engine::restore(config, image, &mut out).unwrap(),
        None => Engine::new(config),
    };
    (engine, out)
}

/// Looking at nodes.
impl Net {
    pub(crate) fn label(&self, node: usize) -> &str {
        &self.nodes[node].label
    }

    pub(crate) fn now(&self) -> Millis {
        self.now
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn engine(&self, node: usize) -> &Engine {
        &self.nodes[node].engine
    }

    pub(crate) fn engine_mut(&mut self, node: usize) -> &mut Engine {
        &mut self.nodes[node].engine
    }

    /// Names of the Delete group's members, as a node sees them.
    pub(crate) fn group(&self, node: usize) -> Vec<String> {
        let config = self.engine(node).group();
        config.iter().flat_map(|c| c.members()).map(|m| m.name.to_string()).collect()
    }

    pub(crate) fn conflicts(&self) -> usize {
        self.losers.len()
    }

    pub(crate) fn renewals(&self) -> usize {
        self.renewals
    }

    pub(crate) fn value(&self, node: usize, path: &str) -> Option<Vec<u8>> {
        let path: Path = path.parse().unwrap();
        self.engine(node).get(path.as_bytes())?.value().map(<[u8]>::to_vec)
    }

    /// All that is visible of a node, in a form that does not depend on local indices.
    pub(crate) fn content(&self, node: usize) -> Content {
        let engine = self.engine(node);
        let tree = engine
            .tree()
            .subtree(&Path::root())
            .map(|(path, entry)| {
                let chain: Vec<String> = entry
                    .events()
                    .map(|e| format!("{:?}.{}", engine.table().get(e.node), e.tick))
                    .collect();
                (path.clone(), format!("{:?} {} {chain:?}", entry.value(), entry.tock()))
            })
            .collect();
        (tree, export_seen(engine.table(), engine.seen()))
    }

    fn key(&self, node: usize, entry: &Entry) -> EventKey {
        let event = entry.newest();
        (self.engine(node).table().get(event.node).unwrap().clone(), event.tick.get())
    }
}

/// What nodes are asked to do, and what a shell does with their outputs.
impl Net {
    /// Anything that changes an engine.
    pub(crate) fn handle<C: Change>(&mut self, node: usize, change: C) -> C::Answer {
        let mut out = Outbox::new();
        let answer = self.nodes[node].engine.handle(change, self.now, &mut out);
        self.perform(node, out);
        answer
    }

    /// A client's change, which wants to be acknowledged; gives its tick.
    pub(crate) fn write(
        &mut self,
        node: usize,
        path: &str,
        value: Option<&[u8]>,
    ) -> Result<Tick, EngineWriteError> {
        self.write_as(node, path, write(path, value), true)?;
        Ok(self.engine(node).tick().unwrap_or_default())
    }

    /// A client's change.
    pub(crate) fn write_as(
        &mut self,
        node: usize,
        path: &str,
        mut write: Write<'_>,
        ack_wanted: bool,
    ) -> Result<(), EngineWriteError> {
        let mut out = Outbox::new();
        let result = self.nodes[node].engine.write(&mut write, ack_wanted, &mut out);
        self.tell(|net| {
            let at = &net.nodes[node];
            let what = match &result {
                Ok(written) => written.made().map_or_else(
                    || "nothing to delete".to_owned(),
                    |entry| show::entry(&path.parse().unwrap(), entry, at.engine.table()),
                ),
                Err(error) => error.to_string(),
            };
            format!("{}: {what}", at.label)
        });
        // Before anything that comes of it: an event may be another one's afterwards.
        let made = result.as_ref().ok().and_then(|written| written.made());
        let event = made.map(|entry| self.key(node, entry));
        self.perform(node, out);
        if let Some(event) = event {
            assert!(self.made.insert(event) || self.cloned, "an event was used twice");
        }
        result.map(drop)
    }

    pub(crate) fn init_root(
        &mut self,
        node: usize,
        value: &[u8],
    ) -> Result<bool, EngineWriteError> {
        self.handle(node, InitRoot(value))
    }

    pub(crate) fn forget(&mut self, node: usize, name: &str) -> Result<(), ForgetError> {
        self.handle(node, ForgetMember(&NodeName::new(name).unwrap()))
    }

    pub(crate) fn limit_memory(&mut self, node: usize, max: usize) {
        self.nodes[node].engine.config.memory_max = Some(max);
    }

    pub(crate) fn begin_hand_over(&mut self, node: usize) {
        self.handle(node, BeginHandOver);
    }

    /// A client removes a node from all views; tells whether it is removed.
    pub(crate) fn kill_node(&mut self, node: usize, name: &str) -> bool {
        self.handle(node, KillNode(&NodeName::new(name).unwrap()))
    }

    /// A node is to leave for good.
    pub(crate) fn retire(&mut self, node: usize) -> Result<(), RetireError> {
        self.handle(node, BeginRetirement)
    }

    /// A node's disk is slow, or no more: then all that waited is safe now.
    /// From now on a node is one that knows nothing of times.
    pub(crate) fn ignore_times(&mut self, node: usize) {
        self.timeless.insert(node);
    }

    pub(crate) fn slow_disk(&mut self, node: usize, is_slow: bool) {
        let next = is_slow.then(Vec::new);
        let waiting = std::mem::replace(&mut self.nodes[node].unsafe_yet, next);
        waiting.into_iter().flatten().for_each(|token| self.persisted(node, token));
    }

    fn persisted(&mut self, node: usize, token: u64) {
        self.tell(|net| format!("{} makes its state safe", net.nodes[node].label));
        self.handle(node, Input::Persisted { token });
    }

    /// What a shell does with outputs.
    fn perform(&mut self, node: usize, mut out: Outbox) {
        let outputs: Vec<Output> = out.drain().collect();
        let at = &mut self.nodes[node];
        outputs.iter().for_each(|output| at.log.note(output, &at.engine));
        at.log.check(&at.engine);
        for output in outputs {
            if let Some(story) = &mut self.story {
                let at = &self.nodes[node];
                story.extend(show::output(&at.label, &output, at.engine.table()));
            }
            match output {
                Output::Broadcast { frame } => self.queue_to_all(node, &frame),
                Output::Multicast { links, frame } => {
                    links.into_iter().for_each(|link| self.queue(node, link, Arc::clone(&frame)));
                }
                Output::Send { link, frame } => self.queue(node, link, frame),
                Output::Serve { link, job } => self.serve(node, link, *job),
                Output::NeedIncarnation => {
                    self.renewals += 1;
                    self.nodes[node].life += 1;
                    let incarnation = Incarnation(self.nodes[node].life);
                    self.handle(node, Input::Renewed { incarnation });
                }
                Output::Persist { token } => match &mut self.nodes[node].unsafe_yet {
                    Some(waiting) => waiting.push(token),
                    None => self.persisted(node, token),
                },
                Output::Report(Report::Conflict(c)) => {
                    self.losers.push(self.key(node, &c.loser));
                }
                Output::Report(report) => self.reports.push((node, report)),
                Output::Ready => self.ready.push(node),
                Output::Close { reason, .. } => self.closed.push((node, reason)),
                _ => {}
            }
        }
    }
}

/// Time.
impl Net {
    pub(crate) fn tick(&mut self) {
        let all: Vec<usize> = (0..self.nodes.len()).collect();
        self.tick_of(&all);
    }

    /// Time goes on; these nodes notice, in this order.
    pub(crate) fn tick_of(&mut self, nodes: &[usize]) {
        self.now += TICK_INTERVAL_MS;
        nodes.iter().for_each(|node| self.handle(*node, Input::Tick));
    }

    /// So much time passes; everything that is on its way arrives.
    pub(crate) fn pass(&mut self, ms: Millis) {
        self.deliver_all();
        for _ in 0..ms / TICK_INTERVAL_MS {
            self.tick();
            self.deliver_all();
        }
    }

    /// Time passes until something holds, a minute at most.
    pub(crate) fn pass_until(&mut self, holds: impl Fn(&Self) -> bool) {
        for _ in 0..60_000 / TICK_INTERVAL_MS {
            if holds(self) {
                return;
            }
            self.pass(TICK_INTERVAL_MS);
        }
        panic!("it never came to hold");
    }

    /// Twelve seconds in which everything that is on its way arrives.
    pub(crate) fn settle(&mut self) {
        self.pass(12_000);
        self.nodes.iter().for_each(|node| node.log.check_entries(&node.engine));
    }

    pub(crate) fn heal(&mut self) {
        self.lose_nothing();
        self.connect_all();
        self.settle();
    }
}

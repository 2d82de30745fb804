//! A network of engines: frames in queues instead of sockets, a clock that the test turns.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::log::LogReplay;
use super::write;
use crate::engine::delete::{DeleteSettings, ForgetError, RetireError};
use crate::engine::*;
use crate::model::chain::Chain;
use crate::model::entry::EntryParts;
use crate::model::ids::{NodeId, NodeName};
use crate::model::seen::{SeenById, export_seen};
use crate::model::tick_set::TickSet;
use crate::protocol::frame::{BODY_BYTES_MAX, split_frame};
use crate::protocol::peer::{Digest, PeerMessage, Unnamed};

/// One direction of a connection.
struct Pipe {
    to: usize,
    /// The link's name at the receiver.
    link_there: LinkId,
    frames: VecDeque<Arc<[u8]>>,
    losing: bool,
}

struct Node {
    engine: Engine,
    log: LogReplay,
    /// By the link's name here: the pipe to the other end.
    pipes: BTreeMap<LinkId, Pipe>,
}

pub(super) struct Net {
    nodes: Vec<Node>,
    now: Millis,
    next_link: u64,
    next_incarnation: u64,
    /// The newest events of all losers that were reported.
    losers: Vec<EventKey>,
    renewals: usize,
    /// Who said that it is ready, in turn.
    pub(super) ready: Vec<usize>,
    /// What nodes reported, but for conflicts.
    pub(super) reports: Vec<(usize, Report)>,
    rng: u64,
    /// Every event that was made.
    made: BTreeSet<EventKey>,
    /// Two nodes share an identity, so an event may be used twice before they find out.
    cloned: bool,
    delete: DeleteSettings,
    lists: ListCaps,
    /// Digests that arrived, and from whom, since [`Net::listen`].
    digests: Option<Vec<(usize, Digest)>>,
    /// Who wanted to be told everything.
    pub(super) wanted: Vec<usize>,
    /// Who wanted a link closed, and why.
    pub(super) closed: Vec<(usize, CloseReason)>,
}

/// In networks that purge, a node that is away has a say for so long.
pub(super) const SAY_FOR_MS: Millis = 20_000;

/// An event by identity.
type EventKey = (NodeId, u64);

/// The random runs' checks know nothing of purges; `sim` has those.
fn no_purges() -> DeleteSettings {
    DeleteSettings { found_after_ms: Millis::MAX, ..DeleteSettings::default() }
}

type Content = (Vec<(Path, String)>, SeenById);

impl Net {
    /// Nodes `n0`, `n1` …, all founders, not connected.
    pub(super) fn new(count: usize) -> Self {
        let mut net = Self {
            nodes: Vec::new(),
            now: 1,
            next_link: 1,
            next_incarnation: 1,
            losers: Vec::new(),
            renewals: 0,
            ready: Vec::new(),
            reports: Vec::new(),
            rng: 1,
            made: BTreeSet::new(),
            cloned: false,
            delete: no_purges(),
            lists: ListCaps::default(),
            digests: None,
            wanted: Vec::new(),
            closed: Vec::new(),
        };
        for _ in 0..count {
            let node = net.join();
            net.handle(node, Input::Found);
        }
        net
    }

    /// The same, whose nodes purge; `durable` ones have data directories.
    pub(super) fn purging(count: usize, durable: bool) -> Self {
        Self::purging_as(count, durable, &DeleteSettings::default())
    }

    /// The same; rounds follow each other without a rest.
    pub(super) fn purging_fast(count: usize) -> Self {
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
    pub(super) fn with(count: usize, delete: DeleteSettings, lists: ListCaps) -> Self {
        let mut net = Self::new(0);
        (net.delete, net.lists) = (delete, lists);
        for _ in 0..count {
            let node = net.join();
            net.handle(node, Input::Found);
        }
        net
    }

    /// A node that is not ready, with settings of its own.
    pub(super) fn join_with(&mut self, delete: DeleteSettings) -> usize {
        self.delete = delete;
        self.join()
    }

    /// A node takes in so many entries whose maker made a second change between each two that was
    /// overwritten, without what their maker knew: a range of its own for each.
    pub(super) fn load_every_other(&mut self, node: usize, name: &str, keys: u64) {
        let mut out = Outbox::new();
        let engine = &mut self.nodes[node].engine;
        let id = NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(77) };
        let maker = engine.replica.intern(&id).unwrap();
        for key in 0..keys {
            let path = format!("{name}.{key}").parse::<Path>().unwrap();
            let tick = Tick::new(2 * key + 1).unwrap();
            let chain = Chain::from_events([Event { node: maker, tick }], false).unwrap();
            let (value, tock) = (Some(&[1][..]), Tock::new(key + 1).unwrap());
            let parts =
                EntryParts { value, chain: &chain, tock, origin: None, time: None, extra: &[] };
            engine.take_entry(&path, &Entry::new(&parts), &Mark::default(), &mut out);
        }
        self.perform(node, out);
    }

    pub(super) fn engine_mut(&mut self, node: usize) -> &mut Engine {
        &mut self.nodes[node].engine
    }

    pub(super) fn forget(&mut self, node: usize, name: &str) -> Result<(), ForgetError> {
        let (mut out, name) = (Outbox::new(), NodeName::new(name).unwrap());
        let result = self.nodes[node].engine.forget_member(&name, &mut out);
        self.perform(node, out);
        result
    }

    /// Names of the Delete group's members, as a node sees them.
    pub(super) fn group(&self, node: usize) -> Vec<String> {
        let config = self.engine(node).group();
        config.iter().flat_map(|c| c.members()).map(|m| m.name.to_string()).collect()
    }

    pub(super) fn now(&self) -> Millis {
        self.now
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    fn fresh(&mut self, name: &str) -> Engine {
        let incarnation = Incarnation(self.next_incarnation);
        self.next_incarnation += 1;
        let id = NodeId { name: NodeName::new(name).unwrap(), incarnation };
        Engine::new(Config { delete: self.delete.clone(), lists: self.lists, ..Config::new(id, 7) })
    }

    /// A node that is not ready.
    pub(super) fn join(&mut self) -> usize {
        let engine = self.fresh(&format!("n{}", self.nodes.len()));
        self.nodes.push(Node { log: LogReplay::begin(&engine), engine, pipes: BTreeMap::new() });
        self.nodes.len() - 1
    }

    /// A second founder with the name and incarnation of another: a cloned disk.
    pub(super) fn clone_identity(&mut self, of: usize) -> usize {
        self.cloned = true;
        let id = self.nodes[of].engine.id().clone();
        let engine = Engine::new(Config { delete: self.delete.clone(), ..Config::new(id, 7) });
        self.nodes.push(Node { log: LogReplay::begin(&engine), engine, pipes: BTreeMap::new() });
        let node = self.nodes.len() - 1;
        self.handle(node, Input::Found);
        node
    }

    pub(super) fn engine(&self, node: usize) -> &Engine {
        &self.nodes[node].engine
    }

    pub(super) fn limit_memory(&mut self, node: usize, max: usize) {
        self.nodes[node].engine.config.memory_max = Some(max);
    }

    pub(super) fn conflicts(&self) -> usize {
        self.losers.len()
    }

    pub(super) fn renewals(&self) -> usize {
        self.renewals
    }

    pub(super) fn value(&self, node: usize, path: &str) -> Option<Vec<u8>> {
        let path: Path = path.parse().unwrap();
        self.engine(node).get(path.as_bytes())?.value().map(<[u8]>::to_vec)
    }

    /// All that is visible of a node, in a form that does not depend on local indices.
    pub(super) fn content(&self, node: usize) -> Content {
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

    pub(super) fn write(
        &mut self,
        node: usize,
        path: &str,
        value: Option<&[u8]>,
    ) -> Result<Tick, EngineWriteError> {
        let mut out = Outbox::new();
        let engine = &mut self.nodes[node].engine;
        let result = engine.write(write(path, value), true, &mut out);
        let tick = engine.tick().unwrap_or_default();
        self.perform(node, out);
        let written = result?;
        if let Some(entry) = written.made() {
            let event = self.key(node, entry);
            assert!(self.made.insert(event) || self.cloned, "an event was used twice");
        }
        Ok(tick)
    }

    pub(super) fn init_root(
        &mut self,
        node: usize,
        value: &[u8],
    ) -> Result<bool, EngineWriteError> {
        let mut out = Outbox::new();
        let result = self.nodes[node].engine.init_root(value, &mut out);
        self.perform(node, out);
        result
    }

    fn key(&self, node: usize, entry: &Entry) -> EventKey {
        let event = entry.newest();
        (self.engine(node).table().get(event.node).unwrap().clone(), event.tick.get())
    }

    pub(super) fn handle(&mut self, node: usize, input: Input<'_>) {
        let mut out = Outbox::new();
        self.nodes[node].engine.handle(input, self.now, &mut out);
        self.perform(node, out);
    }

    /// What a shell does with outputs.
    fn perform(&mut self, node: usize, mut out: Outbox) {
        let outputs: Vec<Output> = out.drain().collect();
        let at = &mut self.nodes[node];
        outputs.iter().for_each(|output| at.log.note(output, &at.engine));
        at.log.check(&at.engine);
        for output in outputs {
            match output {
                Output::Broadcast { frame } => {
                    for pipe in self.nodes[node].pipes.values_mut().filter(|p| !p.losing) {
                        pipe.frames.push_back(Arc::clone(&frame));
                    }
                }
                Output::Multicast { links, frame } => {
                    links.into_iter().for_each(|link| self.queue(node, link, Arc::clone(&frame)));
                }
                Output::Send { link, frame } => self.queue(node, link, frame),
                Output::Serve { link, mut job } => loop {
                    let mut frames = Vec::new();
                    let done = job.next_frames(2000, &mut frames);
                    let mut at = 0;
                    while let Some(frame) = split_frame(&frames[at..], BODY_BYTES_MAX).unwrap() {
                        self.queue(node, link, frames[at..at + frame.length].into());
                        at += frame.length;
                    }
                    if done {
                        break;
                    }
                },
                Output::NeedIncarnation => {
                    self.renewals += 1;
                    let incarnation = Incarnation(self.next_incarnation);
                    self.next_incarnation += 1;
                    self.handle(node, Input::Renewed { incarnation });
                }
                Output::Persist { token } => self.handle(node, Input::Persisted { token }),
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

    fn queue(&mut self, node: usize, link: LinkId, frame: Arc<[u8]>) {
        if let Some(pipe) = self.nodes[node].pipes.get_mut(&link)
            && !pipe.losing
        {
            pipe.frames.push_back(frame);
        }
    }

    fn is_connected(&self, a: usize, b: usize) -> bool {
        self.nodes[a].pipes.values().any(|p| p.to == b)
    }

    pub(super) fn connect(&mut self, a: usize, b: usize) {
        if a == b || self.is_connected(a, b) {
            return;
        }
        let (at_a, at_b) = (LinkId(self.next_link), LinkId(self.next_link + 1));
        self.next_link += 2;
        let pipe = |to, link_there| Pipe { to, link_there, frames: VecDeque::new(), losing: false };
        self.nodes[a].pipes.insert(at_a, pipe(b, at_b));
        self.nodes[b].pipes.insert(at_b, pipe(a, at_a));
        let (id_a, id_b) = (self.engine(a).id().clone(), self.engine(b).id().clone());
        self.handle(a, Input::LinkUp { link: at_a, peer: id_b });
        self.handle(b, Input::LinkUp { link: at_b, peer: id_a });
    }

    pub(super) fn connect_all(&mut self) {
        for a in 0..self.nodes.len() {
            for b in 0..a {
                self.connect(a, b);
            }
        }
    }

    pub(super) fn disconnect(&mut self, a: usize, b: usize) {
        for (x, y) in [(a, b), (b, a)] {
            let links: Vec<LinkId> =
                self.nodes[x].pipes.iter().filter(|(_, p)| p.to == y).map(|(l, _)| *l).collect();
            for link in links {
                self.nodes[x].pipes.remove(&link);
                self.handle(x, Input::LinkDown { link });
            }
        }
    }

    /// Frames from a to b are lost from now on, or no more: an overflowing queue.
    pub(super) fn lose_queued(&mut self, a: usize, b: usize, losing: bool) {
        for pipe in self.nodes[a].pipes.values_mut().filter(|p| p.to == b) {
            pipe.losing = losing;
        }
    }

    /// Delivers one frame of a random pipe; tells whether there was one.
    fn deliver_one(&mut self) -> bool {
        let waiting: Vec<(usize, LinkId)> = self
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(n, node)| node.pipes.iter().map(move |(l, p)| (n, *l, p)))
            .filter(|(_, _, p)| !p.frames.is_empty())
            .map(|(n, l, _)| (n, l))
            .collect();
        if waiting.is_empty() {
            return false;
        }
        let (from, link) = waiting[self.random(waiting.len())];
        self.deliver_of(from, link);
        true
    }

    /// Delivers the next frame of a pipe, if the link stands still.
    fn deliver_of(&mut self, from: usize, link: LinkId) {
        if self.nodes[from].pipes.get(&link).is_none_or(|pipe| pipe.frames.is_empty()) {
            return;
        }
        let pipe = self.nodes[from].pipes.get_mut(&link).unwrap();
        let (to, there) = (pipe.to, pipe.link_there);
        let bytes = pipe.frames.pop_front().unwrap();
        let frame = split_frame(&bytes, BODY_BYTES_MAX).unwrap().unwrap();
        let message = PeerMessage::decode(&frame).unwrap().unwrap();
        match (&message, &mut self.digests) {
            (PeerMessage::Digest(digest), Some(heard)) => heard.push((from, digest.clone())),
            (PeerMessage::DigestWanted, _) => self.wanted.push(from),
            _ => {}
        }
        self.handle(to, Input::Messages { link: there, messages: vec![message] });
    }

    pub(super) fn deliver_all(&mut self) {
        while self.deliver_one() {}
    }

    pub(super) fn deliver_some(&mut self, frames: usize) {
        for _ in 0..frames {
            self.deliver_one();
        }
    }

    /// Delivers all that waits now, but the last two frames of each pipe.
    pub(super) fn deliver_in_turn(&mut self) {
        let pipes = self.nodes.iter().enumerate();
        let waiting: Vec<(usize, LinkId, usize)> = pipes
            .flat_map(|(n, node)| node.pipes.iter().map(move |(l, p)| (n, *l, p.frames.len())))
            .collect();
        for (from, link, frames) in waiting {
            for _ in 2..frames {
                self.deliver_of(from, link);
            }
        }
    }

    pub(super) fn tick(&mut self) {
        self.now += TICK_INTERVAL_MS;
        for node in 0..self.nodes.len() {
            self.handle(node, Input::Tick);
        }
    }

    /// So much time passes; everything that is on its way arrives.
    pub(super) fn pass(&mut self, ms: Millis) {
        self.deliver_all();
        for _ in 0..ms / TICK_INTERVAL_MS {
            self.tick();
            self.deliver_all();
        }
    }

    /// Time passes until something holds, a minute at most.
    pub(super) fn pass_until(&mut self, holds: impl Fn(&Self) -> bool) {
        for _ in 0..60_000 / TICK_INTERVAL_MS {
            if holds(self) {
                return;
            }
            self.pass(TICK_INTERVAL_MS);
        }
        panic!("it never came to hold");
    }

    pub(super) fn begin_hand_over(&mut self, node: usize) {
        self.nodes[node].engine.begin_hand_over();
    }

    /// A client removes a node from all views; tells whether it is removed.
    pub(super) fn kill_node(&mut self, node: usize, name: &str) -> bool {
        let (mut out, name) = (Outbox::new(), NodeName::new(name).unwrap());
        let killed = self.nodes[node].engine.kill_node(&name, &mut out);
        self.perform(node, out);
        killed
    }

    /// A node is to leave for good.
    pub(super) fn retire(&mut self, node: usize) -> Result<(), RetireError> {
        let mut out = Outbox::new();
        let begun = self.nodes[node].engine.begin_retirement(&mut out);
        self.perform(node, out);
        begun
    }

    /// A node says that it leaves, and is gone.
    pub(super) fn leave(&mut self, node: usize) {
        let mut out = Outbox::new();
        self.nodes[node].engine.leave(&mut out);
        self.perform(node, out);
        self.deliver_all();
        for other in 0..self.nodes.len() {
            self.disconnect(node, other);
        }
    }

    /// Nodes with data directories that are not ready.
    pub(super) fn join_durable(&mut self, count: usize) -> Vec<usize> {
        (0..count)
            .map(|_| {
                let store = Some(self.nodes.len() as u64);
                self.delete = DeleteSettings { store, ..self.delete.clone() };
                self.join()
            })
            .collect()
    }

    /// Twelve seconds in which everything that is on its way arrives.
    pub(super) fn settle(&mut self) {
        self.deliver_all();
        for _ in 0..12_000 / TICK_INTERVAL_MS {
            self.tick();
            self.deliver_all();
        }
        self.nodes.iter().for_each(|node| node.log.check_entries(&node.engine));
    }

    pub(super) fn heal(&mut self) {
        for node in &mut self.nodes {
            for pipe in node.pipes.values_mut() {
                pipe.losing = false;
            }
        }
        self.connect_all();
        self.settle();
    }

    /// Notes digests from now on; gives those that arrived since the last call.
    pub(super) fn listen(&mut self) -> Vec<(usize, Digest)> {
        self.digests.replace(Vec::new()).unwrap_or_default()
    }

    /// A node knows of so many lives that are over and own nothing, each with three ticks.
    pub(super) fn make_history(&mut self, node: usize, name: &str, lives: u64) {
        let replica = &mut self.nodes[node].engine.replica;
        for incarnation in 1..=lives {
            let id = NodeId {
                name: NodeName::new(name).unwrap(),
                incarnation: Incarnation(incarnation << 32),
            };
            let index = replica.intern(&id).unwrap();
            for tick in 1..4 {
                replica.account_for(Event { node: index, tick: Tick::new(tick).unwrap() });
            }
        }
    }

    pub(super) fn account_for(&mut self, node: usize, event: Event) {
        self.nodes[node].engine.replica.account_for(event);
    }

    pub(super) fn forge_digest(&mut self, from: usize, to: usize, name: &str, highest: u64) {
        let id = NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(1) };
        let digest = Digest {
            ready: true,
            tock: Tock::default(),
            mark: Mark::default(),
            seen: vec![(id, TickSet::range(1, highest + 1).unwrap())],
            unnamed: Unnamed::Unsaid,
            contents: None,
        };
        let link = self.nodes[from].pipes.values().find(|p| p.to == to).unwrap().link_there;
        let messages = vec![PeerMessage::Digest(digest)];
        self.handle(to, Input::Messages { link, messages });
    }

    /// A change of a node that is not here, passed on by another.
    pub(super) fn forge_change(&mut self, from: usize, to: usize, name: &str, tick: u64) {
        let mut maker = self.fresh(name);
        maker.config.id.incarnation = Incarnation(1);
        maker = Engine::new(maker.config.clone());
        maker.handle(Input::Found, 0, &mut Outbox::new());
        let peer = self.engine(from).id().clone();
        maker.handle(Input::LinkUp { link: LinkId(0), peer }, 0, &mut Outbox::new());
        let mut out = Outbox::new();
        for n in 0..tick {
            out = Outbox::new();
            maker.write(write("forged", Some(&[n as u8])), false, &mut out).unwrap();
        }
        let frame = out.drain().find_map(|output| match output {
            Output::Broadcast { frame } => Some(frame),
            _ => None,
        });
        let link = self.nodes[from].pipes.values().find(|p| p.to == to).unwrap().link_there;
        let bytes = frame.unwrap();
        let frame = split_frame(&bytes, BODY_BYTES_MAX).unwrap().unwrap();
        let message = PeerMessage::decode(&frame).unwrap().unwrap();
        match (&message, &mut self.digests) {
            (PeerMessage::Digest(digest), Some(heard)) => heard.push((from, digest.clone())),
            (PeerMessage::DigestWanted, _) => self.wanted.push(from),
            _ => {}
        }
        self.handle(to, Input::Messages { link, messages: vec![message] });
    }

    fn random(&mut self, below: usize) -> usize {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        (self.rng >> 11) as usize % below.max(1)
    }

    /// A node starts with another data directory: what is in it, if anything is, and its id. It goes on
    /// alone if nobody is there.
    pub(super) fn restart_with(&mut self, node: usize, store: u64, image: Option<&Image>) {
        for other in 0..self.nodes.len() {
            self.disconnect(node, other);
        }
        let name = self.engine(node).id().name.to_string();
        let before = self.delete.clone();
        self.delete.store = Some(store);
        let mut engine = self.fresh(&name);
        self.delete = before;
        if let Some(image) = image {
            let mut out = Outbox::new();
            engine = Engine::restore(engine.config.clone(), image, &mut out).unwrap();
            assert!(out.is_empty(), "nothing was decided when it was saved");
        }
        self.nodes[node].log = LogReplay::begin(&engine);
        self.nodes[node].engine = engine;
    }

    /// A node that lost everything comes back under its name, as a joiner.
    pub(super) fn restart_empty(&mut self, node: usize) {
        for other in 0..self.nodes.len() {
            self.disconnect(node, other);
        }
        let name = self.engine(node).id().name.to_string();
        let engine = self.fresh(&name);
        self.nodes[node].log = LogReplay::begin(&engine);
        self.nodes[node].engine = engine;
        if !self.nodes.iter().any(|n| n.engine.is_ready()) {
            self.handle(node, Input::Found);
        }
    }
}

//! Whole networks of up to a thousand nodes with a virtual clock, to see how membership and
//! spreading behave as networks grow: time to form, time to spread, messages and bytes.
//!
//! Unlike the simulator above, whose networks break in all ways while a judge checks every step,
//! this one is plain: real engines and real SWIM machines, links that keep their order and take
//! some time, datagrams that may be lost, cuts and crashes. Links are made and ended as in
//! `node/link`, simplified ([`wires`]). Bandwidth and processors are not simulated: a frame takes
//! as long whatever its size, and handling takes no time.
//!
//! `cargo run --release --example cluster_scale` prints what is measured; `crates/sim/tests/sim/scale.rs` checks it.

mod figures;
mod wires;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

pub use figures::{Class, Traffic};

use super::rng::Rng;
use crate::engine::batch::write_one;
use crate::engine::{Config, Engine, Input, Outbox, Output, TICK_INTERVAL_MS};
use crate::membership::{Identity, NetworkName, Swim, SwimConfig, SwimInput, SwimOutput};
use crate::model::ids::{Incarnation, Millis, NodeId, NodeName};
use crate::model::path::Path;
use crate::replica::write::Write;
use crate::virtual_net::Schedule;
use wires::{Dropping, Wire};

/// Microseconds of the virtual clock.
pub(crate) type Micros = u64;

/// What a network is made with.
#[derive(Clone, Debug)]
pub struct ScaleOptions {
    /// Everything random comes from it.
    pub seed: u64,
    /// Networks of more nodes are not linked all with all.
    pub full_mesh_max: usize,
    /// How long a frame or a datagram takes, at least and at most.
    pub hop_us: (Micros, Micros),
    /// How many of a thousand datagrams are lost.
    pub datagram_loss_permille: u32,
    /// Bytes of a change's value; at least 16.
    pub value_bytes: usize,
    /// Without it there is membership alone.
    pub has_data: bool,
    /// This many of the first nodes have data directories: they are the Delete group.
    pub durable: usize,
}

impl Default for ScaleOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            full_mesh_max: crate::engine::overlay::FULL_MESH_MAX,
            hop_us: (200, 500),
            datagram_loss_permille: 0,
            value_bytes: 100,
            has_data: true,
            durable: 0,
        }
    }
}

enum Happening {
    /// A node's engine must be told that time has passed.
    Tick(usize),
    /// A node's SWIM does.
    Wake(usize),
    Datagram {
        from: SocketAddr,
        to: usize,
        bytes: Vec<u8>,
    },
    /// The next frame of that direction arrives.
    Arrive {
        wire: usize,
        side: usize,
    },
    /// A node looks whom to dial.
    Dial(usize),
    /// A dialled connection is greeted.
    Connect {
        from: usize,
        to: usize,
    },
    /// A node notices that a link is gone.
    Notice {
        wire: usize,
        side: usize,
    },
    /// The next change is made.
    Write,
}

struct Node {
    name: NodeName,
    addr: SocketAddr,
    engine: Option<Engine>,
    swim: Option<Swim>,
    wake_at: Option<Micros>,
    /// The links that stand as this node sees it, by the peer's number.
    links: BTreeMap<usize, usize>,
    dialling: BTreeSet<usize>,
    up: BTreeSet<NodeName>,
    sent: Traffic,
    /// Of a version that knows nothing of trees.
    is_old: bool,
}

/// When a member was reported down: by whom, whom, and the time.
pub(crate) type Death = (usize, NodeName, Micros);

/// A network.
pub struct Scale {
    options: ScaleOptions,
    schedule: Schedule<Happening>,
    rng: Rng,
    nodes: Vec<Node>,
    numbers: BTreeMap<SocketAddr, usize>,
    by_name: BTreeMap<NodeName, usize>,
    wires: Vec<Wire>,
    /// Nodes of different sides hear nothing of each other.
    sides: Option<BTreeSet<usize>>,
    dropping: Option<Dropping>,
    /// Pause between changes; none: nothing is written.
    write_every: Option<Micros>,
    writers: usize,
    writing: bool,
    written: u64,
    /// Of each change that is measured, how long it took until a node had it.
    latencies: Vec<u32>,
    measures: bool,
    deaths: Vec<Death>,
    outbox: Outbox,
}

impl Scale {
    /// An empty network.
    #[must_use]
    pub fn new(options: ScaleOptions) -> Self {
        Self {
            rng: Rng::new(options.seed, 0),
            options,
            schedule: Schedule::new(1_000_000),
            nodes: Vec::new(),
            numbers: BTreeMap::new(),
            by_name: BTreeMap::new(),
            wires: Vec::new(),
            sides: None,
            dropping: None,
            write_every: None,
            writers: usize::MAX,
            writing: false,
            written: 0,
            latencies: Vec::new(),
            measures: false,
            deaths: Vec::new(),
            outbox: Outbox::new(),
        }
    }

    /// Starts `count` nodes at once; all but the very first one join that one.
    pub fn grow(&mut self, count: usize) {
        self.grow_as(count, false);
    }

    /// The same, of an earlier version: they want to be linked with all, and neither send nor
    /// understand messages about trees.
    pub fn grow_old(&mut self, count: usize) {
        self.grow_as(count, true);
    }

    fn grow_as(&mut self, count: usize, is_old: bool) {
        for at in self.nodes.len()..self.nodes.len() + count {
            let name = NodeName::new(&format!("node-{at}")).expect("it is a name");
            let addr = SocketAddr::from(([10, 0, (at >> 8) as u8, at as u8], 27_587));
            self.numbers.insert(addr, at);
            self.by_name.insert(name.clone(), at);
            self.nodes.push(Node {
                name,
                addr,
                engine: None,
                swim: None,
                wake_at: None,
                links: BTreeMap::new(),
                dialling: BTreeSet::new(),
                up: BTreeSet::new(),
                sent: Traffic::default(),
                is_old,
            });
            self.boot(at);
        }
    }

    /// Starts a node's process.
    fn boot(&mut self, at: usize) {
        let incarnation = Incarnation(self.rng.next());
        let (seed, hash_seed) = (self.rng.next(), self.rng.next());
        let node = &mut self.nodes[at];
        let network = NetworkName::new("scale").expect("it is a name");
        let identity = Identity::new(node.addr, node.name.clone(), incarnation);
        let swim = Swim::new(SwimConfig::lan(network), identity, seed).expect("settings are good");
        node.swim = Some(swim);
        if self.options.has_data {
            let id = NodeId { name: node.name.clone(), incarnation };
            let full_mesh_max = if node.is_old { usize::MAX } else { self.options.full_mesh_max };
            let mut config = Config { full_mesh_max, ..Config::new(id, hash_seed) };
            config.delete.store = (at < self.options.durable).then_some(at as u64 + 1);
            node.engine = Some(Engine::new(config));
            let offset = self.rng.within(0, TICK_INTERVAL_MS * 1_000);
            let now = self.now();
            self.schedule.plan(now + offset, Happening::Tick(at));
            self.schedule.plan(now + 2_000 + offset, Happening::Dial(at));
        }
        self.give_swim(at, SwimInput::Tick);
        if at == 0 {
            self.handle(at, Input::Found);
        } else {
            let seed = self.nodes[0].addr;
            self.give_swim(at, SwimInput::Join(seed));
        }
    }

    /// Kills a node's process: its links break, and it says nothing any more.
    pub fn kill(&mut self, at: usize) {
        let now = self.now();
        self.nodes[at].engine = None;
        self.nodes[at].swim = None;
        self.nodes[at].up.clear();
        for wire in std::mem::take(&mut self.nodes[at].links).into_values() {
            self.break_wire(wire, now);
        }
    }

    /// From now on the first `count` nodes hear nothing of the others, and these nothing of them.
    pub fn cut(&mut self, count: usize) {
        self.sides = Some((0..count).collect());
        // A link over which nothing comes is closed after a while.
        let notices = self.now() + 6_000_000;
        for wire in 0..self.wires.len() {
            let [a, b] = self.wires[wire].nodes;
            if self.is_cut(a, b) {
                self.break_wire(wire, notices);
            }
        }
    }

    /// The cut is mended.
    pub fn heal(&mut self) {
        self.sides = None;
    }

    /// From now on this many of a thousand frames are lost on their way, which no link does: a
    /// lagging queue or a breaking link may lose the same.
    pub fn drop_frames(&mut self, permille: u32) {
        self.dropping = (permille > 0).then_some(Dropping { permille });
    }

    /// From now on this many changes per second are made, each at one of the first `writers` nodes.
    pub fn write(&mut self, per_second: u64, writers: usize) {
        self.write_every = (per_second > 0).then(|| 1_000_000 / per_second);
        self.writers = writers;
        if self.write_every.is_some() && !self.writing {
            self.writing = true;
            let now = self.now();
            self.schedule.plan(now, Happening::Write);
        }
    }

    /// Deletes at a node what the last change was about.
    pub fn delete_at(&mut self, at: usize) {
        self.write_value(at, None);
    }

    /// Makes a change at a node; it is measured if [`Scale::measure`] says so.
    pub fn write_at(&mut self, at: usize) {
        self.written += 1;
        let mut raw = vec![0xc4, (self.options.value_bytes.clamp(16, 250)) as u8];
        raw.extend_from_slice(&self.now().to_be_bytes());
        raw.push(u8::from(self.measures));
        raw.resize(2 + usize::from(raw[1]), 7);
        self.write_value(at, Some(&raw));
    }

    fn write_value(&mut self, at: usize, value: Option<&[u8]>) {
        let path = Path::root()
            .push("load")
            .and_then(|path| path.push((self.written % 100_000) as i64))
            .expect("it is a path");
        let write = Write::new(path, value);
        let Some(engine) = &mut self.nodes[at].engine else { return };
        let mut out = std::mem::take(&mut self.outbox);
        // Who is not ready yet makes none.
        let _ = write_one(engine, write, false, &mut out);
        self.perform(at, &mut out);
        self.outbox = out;
    }

    /// Whether the changes that are made from now on are measured.
    pub fn measure(&mut self, measures: bool) {
        self.measures = measures;
    }

    /// How long each measured change took to each of the other nodes, in microseconds, since the
    /// last call.
    pub fn take_latencies(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.latencies)
    }

    /// What all nodes have sent since the last call.
    pub fn take_traffic(&mut self) -> Traffic {
        let mut all = Traffic::default();
        self.nodes.iter_mut().for_each(|node| all.add(&std::mem::take(&mut node.sent)));
        all
    }

    /// The nodes that were reported down so far.
    #[must_use]
    pub fn deaths(&self) -> &[Death] {
        &self.deaths
    }

    /// The virtual clock.
    #[must_use]
    pub fn now(&self) -> Micros {
        self.schedule.now()
    }

    /// How many nodes there are, those that were killed included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The engines of those that live.
    pub fn engines(&self) -> impl Iterator<Item = (usize, &Engine)> {
        self.nodes.iter().enumerate().filter_map(|(at, node)| Some((at, node.engine.as_ref()?)))
    }

    /// Lets time pass, or until something holds, which is looked at every 10 ms; says whether it did.
    pub fn run(&mut self, millis: Millis, mut done: impl FnMut(&Self) -> bool) -> bool {
        let (until, mut look) = (self.now() + millis * 1_000, self.now());
        while self.now() < until {
            if self.now() >= look {
                look = self.now() + 10_000;
                if done(self) {
                    return true;
                }
            }
            let Some(happening) = self.schedule.next() else { break };
            self.happen(happening);
        }
        done(self)
    }

    /// Whether every living node sees exactly the other living ones.
    #[must_use]
    pub fn all_see_all(&self) -> bool {
        let living = self.nodes.iter().filter(|node| node.swim.is_some());
        let count = living.clone().count();
        living.clone().all(|node| node.up.len() + 1 == count)
    }

    /// Of what all living nodes should see of each other, how many thousandths they do.
    #[must_use]
    pub fn seen_permille(&self) -> usize {
        let living = self.nodes.iter().filter(|node| node.swim.is_some());
        let count = living.clone().count();
        let seen: usize = living.map(|node| node.up.len()).sum();
        seen * 1_000 / (count * count.saturating_sub(1)).max(1)
    }

    /// Whether every living node serves clients, and has the links that it wants and no others.
    #[must_use]
    pub fn all_linked(&self) -> bool {
        let living = self.engines().count();
        self.engines().all(|(at, engine)| {
            let has = &self.nodes[at].links;
            let wanted = match engine.wanted_links() {
                None => living - 1,
                Some(wanted) => wanted.len(),
            };
            // A node that wants to be linked with all is.
            let is_wanted_by_old =
                |peer: &&usize| self.nodes[**peer].is_old && !self.wants(engine, **peer);
            let wanted = wanted + has.keys().filter(is_wanted_by_old).count();
            engine.is_ready() && has.len() == wanted
        })
    }

    fn wants(&self, engine: &Engine, peer: usize) -> bool {
        let name = &self.nodes[peer].name;
        engine.wanted_links().is_none_or(|wanted| wanted.contains(name))
    }

    /// Whether all living nodes have accounted for the same, and hold as many entries.
    #[must_use]
    pub fn all_agree(&self) -> bool {
        let state = |engine: &Engine| {
            let table = engine.table();
            let seen: BTreeMap<NodeId, _> = engine
                .seen()
                .iter()
                .filter_map(|(node, ticks)| Some((table.get(node)?.clone(), ticks.clone())))
                .filter(|(_, ticks)| !ticks.is_empty())
                .collect();
            (engine.tree().len(), seen)
        };
        let mut engines = self.engines().map(|(_, engine)| engine);
        let Some(first) = engines.next().map(state) else { return true };
        engines.all(|engine| state(engine) == first)
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Tick(at) => {
                if self.nodes[at].engine.is_some() {
                    self.handle(at, Input::Tick);
                    let next = self.now() + TICK_INTERVAL_MS * 1_000;
                    self.schedule.plan(next, Happening::Tick(at));
                }
            }
            Happening::Wake(at) => {
                if self.nodes[at].wake_at.take_if(|wake| *wake <= self.schedule.now()).is_some() {
                    self.give_swim(at, SwimInput::Tick);
                }
            }
            Happening::Datagram { from, to, bytes } => {
                self.give_swim(to, SwimInput::Datagram { from, bytes: &bytes });
            }
            Happening::Arrive { wire, side } => self.on_arrive(wire, side),
            Happening::Dial(at) => self.on_dial(at),
            Happening::Connect { from, to } => self.on_connect(from, to),
            Happening::Notice { wire, side } => self.on_notice(wire, side),
            Happening::Write => match self.write_every {
                None => self.writing = false,
                Some(pause) => {
                    let at = self.rng.below(self.nodes.len().min(self.writers));
                    self.write_at(at);
                    let next = self.now() + pause;
                    self.schedule.plan(next, Happening::Write);
                }
            },
        }
    }

    fn is_cut(&self, a: usize, b: usize) -> bool {
        self.sides.as_ref().is_some_and(|side| side.contains(&a) != side.contains(&b))
    }

    fn give_swim(&mut self, at: usize, input: SwimInput<'_>) {
        let now = self.now();
        let node = &mut self.nodes[at];
        let Some(swim) = &mut node.swim else { return };
        let mut out = Vec::new();
        swim.handle(input, now / 1_000, &mut out);
        if let Some(deadline) = swim.next_deadline() {
            // Whole milliseconds, or the machine would be woken before its time.
            let wake = (deadline * 1_000).max(now);
            if node.wake_at.is_none_or(|planned| wake < planned) {
                node.wake_at = Some(wake);
                self.schedule.plan(wake, Happening::Wake(at));
            }
        }
        for output in out {
            match output {
                SwimOutput::Send { to, bytes } => self.send_datagram(at, to, bytes),
                SwimOutput::MemberUp { name, incarnation, .. } => {
                    self.nodes[at].up.insert(name.clone());
                    self.handle(at, Input::MemberUp { member: NodeId { name, incarnation } });
                }
                SwimOutput::MemberDown { name, incarnation, .. } => {
                    self.nodes[at].up.remove(&name);
                    self.deaths.push((at, name.clone(), now));
                    self.handle(at, Input::MemberDown { member: NodeId { name, incarnation } });
                }
                _ => {}
            }
        }
    }

    fn send_datagram(&mut self, at: usize, to: SocketAddr, bytes: Vec<u8>) {
        self.nodes[at].sent.note(Class::Datagram, bytes.len());
        let Some(&to) = self.numbers.get(&to) else { return };
        let is_lost = self.rng.below(1_000) < self.options.datagram_loss_permille as usize;
        if is_lost || self.is_cut(at, to) {
            return;
        }
        let arrives = self.now() + self.rng.within(self.options.hop_us.0, self.options.hop_us.1);
        let from = self.nodes[at].addr;
        self.schedule.plan(arrives, Happening::Datagram { from, to, bytes });
    }

    fn handle(&mut self, at: usize, input: Input<'_>) {
        let now = self.now() / 1_000;
        let Some(engine) = &mut self.nodes[at].engine else { return };
        let mut out = std::mem::take(&mut self.outbox);
        engine.handle(input, now, &mut out);
        self.perform(at, &mut out);
        self.outbox = out;
    }

    /// What a shell does with outputs.
    fn perform(&mut self, at: usize, out: &mut Outbox) {
        for output in out.drain() {
            match output {
                Output::Commit(change) => {
                    if let Some(entry) = change.entry.value() {
                        self.note_commit(entry);
                    }
                }
                Output::Broadcast { frame } => {
                    for wire in self.nodes[at].links.values().copied().collect::<Vec<_>>() {
                        self.send_frame(at, wire, frame.clone());
                    }
                }
                Output::Multicast { links, frame } => {
                    links.iter().for_each(|link| self.send_on(at, *link, frame.clone()));
                }
                Output::Send { link, frame } => self.send_on(at, link, frame),
                Output::Serve { link, job } => self.serve(at, link, *job),
                Output::Persist { token } => self.handle(at, Input::Persisted { token }),
                Output::Close { link, .. } => self.close(at, link),
                _ => {}
            }
        }
    }

    /// A change that is measured can be seen at a node.
    fn note_commit(&mut self, value: &[u8]) {
        if let Some((time, rest)) = value.get(2..).and_then(<[u8]>::split_first_chunk::<8>)
            && rest.first() == Some(&1)
        {
            let took = self.schedule.now().saturating_sub(u64::from_be_bytes(*time));
            // Nothing takes no time but to be written.
            if took > 0 {
                self.latencies.push(took.min(u64::from(u32::MAX)) as u32);
            }
        }
    }
}

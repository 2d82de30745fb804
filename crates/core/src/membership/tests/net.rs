//! A network in one thread with a virtual clock: seeded, with loss, delay and cuts. It drives
//! machines exactly as their owner threads would.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::super::*;
use crate::model::ids::{Incarnation, Millis, NodeName};
use crate::virtual_net::{Cuts, Schedule};

/// Slowest delivery, in milliseconds; the fastest takes 1.
const DELAY_MS_MAX: Millis = 3;

pub(super) struct Node {
    pub(super) addr: SocketAddr,
    pub(super) swim: Option<Swim>,
    /// All that came out but datagrams.
    pub(super) log: Vec<(Millis, SwimOutput)>,
    /// Who is up, going by what was reported; to check that each change is reported once.
    up: BTreeMap<SocketAddr, (NodeName, Incarnation)>,
    /// The earliest tick that is on the event heap.
    wake_at: Option<Millis>,
    /// Stopped: nothing is handled until it goes on.
    is_stopped: bool,
}

impl Node {
    fn note(&mut self, now: Millis, output: SwimOutput) {
        match &output {
            SwimOutput::MemberUp { name, incarnation, addr } => {
                let before = self.up.insert(*addr, (name.clone(), *incarnation));
                assert_eq!(before, None, "{addr} came up twice");
            }
            SwimOutput::MemberDown { name, incarnation, addr, .. } => {
                let before = self.up.remove(addr);
                assert_eq!(before, Some((name.clone(), *incarnation)), "{addr} was not up");
            }
            _ => {}
        }
        self.log.push((now, output));
    }
}

enum Event {
    Deliver { from: usize, to: usize, bytes: Vec<u8> },
    Wake(usize),
}

pub(super) struct Net {
    pub(super) nodes: Vec<Node>,
    pub(super) config: SwimConfig,
    pub(super) loss: f64,
    /// Further addresses of nodes, which they do not advertise.
    pub(super) aliases: BTreeMap<SocketAddr, usize>,
    /// What this node sends arrives at further addresses of others, and at none that they advertise.
    pub(super) by_alias_only: Option<usize>,
    cuts: Cuts,
    pub(super) bytes_sent: u64,
    /// What went over the wire, as sender, target and bytes, if wanted.
    pub(super) tap: Option<Vec<(usize, SocketAddr, Vec<u8>)>>,
    schedule: Schedule<Event>,
    rng: SmallRng,
}

impl Net {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            nodes: Vec::new(),
            config: SwimConfig::lan(NetworkName::new("test").unwrap()),
            loss: 0.0,
            aliases: BTreeMap::new(),
            by_alias_only: None,
            cuts: Cuts::default(),
            bytes_sent: 0,
            tap: None,
            schedule: Schedule::new(1_000),
            rng: SmallRng::seed_from_u64(seed ^ 0x5eed),
        }
    }

    pub(super) fn now(&self) -> Millis {
        self.schedule.now()
    }

    /// A network in which `count` nodes have joined the first one and all see each other.
    pub(super) fn joined(seed: u64, count: usize) -> Self {
        let mut net = Self::new(seed);
        net.grow(count);
        net.run_until_all_see_all(30_000);
        net
    }

    /// Restarts the process of a node and lets it join the first one, or the second if it is that.
    pub(super) fn restart(&mut self, at: usize) -> Incarnation {
        let incarnation = self.boot(at, self.config.clone(), &format!("n{at}"));
        self.join(at, usize::from(at == 0));
        incarnation
    }

    pub(super) fn join(&mut self, at: usize, to: usize) {
        let addr = self.nodes[to].addr;
        self.give(at, SwimInput::Join(addr));
    }

    /// Starts nodes and lets them join the first.
    pub(super) fn grow(&mut self, count: usize) {
        for at in self.nodes.len()..self.nodes.len() + count {
            self.start(&format!("n{at}"));
            if at > 0 {
                self.join(at, 0);
            }
        }
    }

    /// Starts a node at a new address, with a random incarnation.
    pub(super) fn start(&mut self, name: &str) -> usize {
        let at = self.nodes.len();
        let addr = SocketAddr::from(([10, 0, (at >> 8) as u8, at as u8], 27587));
        self.nodes.push(Node {
            addr,
            swim: None,
            log: Vec::new(),
            up: BTreeMap::new(),
            wake_at: None,
            is_stopped: false,
        });
        let config = self.config.clone();
        self.boot(at, config, name);
        at
    }

    /// Starts the process at an address again, as a new incarnation that remembers nothing.
    pub(super) fn boot(&mut self, at: usize, config: SwimConfig, name: &str) -> Incarnation {
        let incarnation = Incarnation(self.rng.random());
        self.boot_as(at, config, name, incarnation);
        incarnation
    }

    pub(super) fn boot_as(
        &mut self,
        at: usize,
        config: SwimConfig,
        name: &str,
        incarnation: Incarnation,
    ) {
        let name = NodeName::new(name).unwrap();
        let identity = Identity::new(self.nodes[at].addr, name, incarnation);
        self.nodes[at].swim = Some(Swim::new(config, identity, self.rng.random()).unwrap());
        self.nodes[at].up.clear();
        self.give(at, SwimInput::Tick);
    }

    pub(super) fn kill(&mut self, at: usize) {
        self.nodes[at].swim = None;
    }

    pub(super) fn stop(&mut self, at: usize) {
        self.nodes[at].is_stopped = true;
    }

    /// A stopped process goes on; what came meanwhile is lost.
    pub(super) fn go_on(&mut self, at: usize) {
        self.nodes[at].is_stopped = false;
        self.give(at, SwimInput::Tick);
    }

    pub(super) fn cut(&mut self, from: usize, to: usize) {
        self.cuts.cut(from, to);
    }

    /// Separates the first `count` nodes from the others.
    pub(super) fn split(&mut self, count: usize) {
        for a in 0..count {
            for b in count..self.nodes.len() {
                self.cuts.cut_both(a, b);
            }
        }
    }

    pub(super) fn heal(&mut self) {
        drop(self.cuts.heal());
    }

    pub(super) fn swim(&self, at: usize) -> &Swim {
        self.nodes[at].swim.as_ref().unwrap()
    }

    /// Hands an input to a node and puts what comes out on its way.
    pub(super) fn give(&mut self, at: usize, input: SwimInput<'_>) {
        let mut out = Vec::new();
        let Some(swim) = self.nodes[at].swim.as_mut() else { return };
        swim.handle(input, self.schedule.now(), &mut out);
        if let Some(deadline) = swim.next_deadline()
            && self.nodes[at].wake_at.is_none_or(|wake| deadline < wake)
        {
            self.nodes[at].wake_at = Some(deadline);
            self.schedule.plan(deadline, Event::Wake(at));
        }
        for output in out {
            if let SwimOutput::Send { to, bytes } = output {
                self.send(at, to, bytes);
            } else {
                self.nodes[at].note(self.schedule.now(), output);
            }
        }
    }

    /// Puts bytes on the wire as if `from` had sent them.
    pub(super) fn send(&mut self, from: usize, to: SocketAddr, bytes: Vec<u8>) {
        assert!(bytes.len() + TAG_BYTES <= DATAGRAM_BYTES_MAX);
        self.bytes_sent += bytes.len() as u64;
        if let Some(tap) = self.tap.as_mut() {
            tap.push((from, to, bytes.clone()));
        }
        let advertised = || self.nodes.iter().position(|node| node.addr == to);
        let alias = self.aliases.get(&to).copied();
        if alias.is_none() && self.by_alias_only == Some(from) {
            return;
        }
        let Some(to) = alias.or_else(advertised) else { return };
        if self.rng.random_bool(self.loss) {
            return;
        }
        let at = self.now() + self.rng.random_range(1..=DELAY_MS_MAX);
        self.schedule.plan(at, Event::Deliver { from, to, bytes });
    }

    /// Lets time pass up to `until`, or until `done` holds; says when it did.
    pub(super) fn run_until(
        &mut self,
        until: Millis,
        mut done: impl FnMut(&Self) -> bool,
    ) -> Option<Millis> {
        loop {
            if done(self) {
                return Some(self.now());
            }
            if self.schedule.next_at().is_none_or(|at| at > until) {
                self.schedule.turn_to(until);
                return None;
            }
            match self.schedule.next()? {
                Event::Deliver { from, to, bytes } => {
                    if !self.nodes[to].is_stopped && !self.cuts.is_cut(from, to) {
                        let from = self.nodes[from].addr;
                        self.give(to, SwimInput::Datagram { from, bytes: &bytes });
                    }
                }
                Event::Wake(node) => {
                    if self.nodes[node].wake_at == Some(self.now()) {
                        self.nodes[node].wake_at = None;
                        if !self.nodes[node].is_stopped {
                            self.give(node, SwimInput::Tick);
                        }
                    }
                }
            }
        }
    }

    pub(super) fn run_for(&mut self, millis: Millis) {
        self.run_until(self.now() + millis, |_| false);
    }

    /// Runs until every live node sees exactly the other live ones; how long that took.
    pub(super) fn run_until_all_see_all(&mut self, within: Millis) -> Millis {
        let start = self.now();
        let end = self.run_until(start + within, Self::all_see_all);
        end.unwrap_or_else(|| panic!("not all see all after {within} ms: {:?}", self.views()))
            - start
    }

    pub(super) fn all_see_all(&self) -> bool {
        let live = || self.nodes.iter().filter(|node| node.swim.is_some());
        let count = live().count();
        // Cheap first: this is asked after every event.
        live().all(|node| node.swim.as_ref().unwrap().foca.num_members() + 1 == count)
            && live().all(|node| self.up(node).len() + 1 == count)
    }

    fn up(&self, node: &Node) -> Vec<MemberInfo> {
        let mut members = node.swim.as_ref().unwrap().members();
        members.retain(|m| matches!(m.state, MemberState::Up | MemberState::Suspect));
        members
    }

    /// The names of the members that a node sees.
    pub(super) fn view(&self, at: usize) -> Vec<String> {
        self.up(&self.nodes[at]).iter().map(|member| member.name.to_string()).collect()
    }

    fn views(&self) -> Vec<Vec<String>> {
        let live = (0..self.nodes.len()).filter(|at| self.nodes[*at].swim.is_some());
        live.map(|at| self.view(at)).collect()
    }

    /// What a node reported since, in short, without times.
    pub(super) fn reports(&self, at: usize, since: Millis) -> Vec<String> {
        let short = |output: &SwimOutput| match output {
            SwimOutput::MemberUp { name, .. } => format!("{name} up"),
            SwimOutput::MemberDown { name, reason, .. } => format!("{name} {reason:?}"),
            SwimOutput::Refused { name, .. } => format!("refused {name}"),
            SwimOutput::IdentityRenewed { .. } => "renewed".to_owned(),
            SwimOutput::NetworkMismatch { network, .. } => format!("other network {network}"),
            SwimOutput::VersionMismatch { version, .. } => format!("other version {version}"),
            SwimOutput::Send { .. } => unreachable!(),
        };
        let log = &self.nodes[at].log;
        log.iter().filter(|(at, _)| *at >= since).map(|(_, output)| short(output)).collect()
    }

    /// Runs until every live node but the one named has reported that one down; the times that
    /// took, sorted.
    pub(super) fn times_until_down(&mut self, name: &str, within: Millis) -> Vec<Millis> {
        let start = self.now();
        let is_down = move |(at, output): &(Millis, SwimOutput)| {
            *at >= start
                && matches!(output, SwimOutput::MemberDown { name: n, .. } if n.as_str() == name)
        };
        let time =
            |node: &Node| node.log.iter().find(|entry| is_down(entry)).map(|(at, _)| at - start);
        let knows = |node: &Node| {
            node.swim.as_ref().is_none_or(|swim| swim.identity().name.as_str() == name)
                || time(node).is_some()
        };
        let end = self.run_until(start + within, |net| net.nodes.iter().all(knows));
        assert!(end.is_some(), "not all know after {within} ms that {name} is down");
        let mut times: Vec<_> = self.nodes.iter().filter_map(time).collect();
        times.sort_unstable();
        times
    }
}

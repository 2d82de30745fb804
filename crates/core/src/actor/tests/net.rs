//! A network of actors in one thread with a virtual clock: seeded, with loss, duplication, delay
//! (and so reordering) and cuts. It drives actors as an engine would.

use std::ops::Range;
use std::rc::Rc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::super::*;
use super::text;
use crate::virtual_net::{Cuts, Schedule};

/// An engine ticks so often.
const TICK_MS: Millis = 50;
/// After a heal, links come up within this time, each greeting as it does.
const LINK_UP_MS_MAX: Millis = 300;
/// Membership finds out that a member is gone after so long.
const DOWN_AFTER_MS: Range<Millis> = 2_500..7_000;

pub(super) struct Node {
    pub(super) name: NodeName,
    pub(super) role: Role,
    pub(super) actor: Option<Actor>,
    /// What was reported, in this life and former ones.
    pub(super) log: Vec<(Millis, ActorEvent)>,
    /// Ticks at deadlines; else, as an engine does, now and then.
    ticks_at_deadline: bool,
    /// The tick that is planned.
    wake_at: Millis,
    is_frozen: bool,
    is_tagged: bool,
}

enum Event {
    Deliver {
        from: usize,
        to: usize,
        ping: Rc<Ping>,
    },
    Tick(usize),
    /// A link stands: one end greets the other.
    Greet {
        from: usize,
        to: usize,
    },
    /// Membership tells a node that another is gone.
    Down {
        node: usize,
        gone: usize,
    },
}

/// What a channel does to messages.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    pub(super) loss: f64,
    pub(super) duplication: f64,
    pub(super) delay_ms: Range<Millis>,
}

impl Channel {
    pub(super) const CALM: Self = Self { loss: 0.0, duplication: 0.0, delay_ms: 1..4 };
    pub(super) const ROUGH: Self = Self { loss: 0.05, duplication: 0.05, delay_ms: 1..90 };
}

pub(super) struct Net {
    seed: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) channel: Channel,
    pub(super) config: ActorConfig,
    /// Whether links greet when they come up, and membership tells who is gone.
    pub(super) has_greetings: bool,
    pub(super) has_hints: bool,
    /// Which part of the nodes that are added ticks as an engine does.
    pub(super) engine_ticks: f64,
    pub(super) rng: SmallRng,
    cuts: Cuts,
    schedule: Schedule<Event>,
    in_flight: usize,
    pub(super) pings_sent: u64,
    /// Milliseconds in which nobody, one, or more than one held the tag.
    pub(super) tag_ms: [Millis; 3],
}

impl Net {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            nodes: Vec::new(),
            channel: Channel::CALM,
            config: ActorConfig { group: GroupId(1), shared: ConfigVersion::DEFAULT },
            has_greetings: true,
            has_hints: false,
            engine_ticks: 0.5,
            rng: SmallRng::seed_from_u64(seed ^ 0xac70),
            cuts: Cuts::default(),
            schedule: Schedule::new(1_000_000),
            in_flight: 0,
            pings_sent: 0,
            tag_ms: [0; 3],
        }
    }

    pub(super) fn now(&self) -> Millis {
        self.schedule.now()
    }

    /// A network of so many ready members, all started within 300 ms.
    pub(super) fn with(seed: u64, count: usize) -> Self {
        let mut net = Self::new(seed);
        for _ in 0..count {
            net.add(Role::Active, true);
        }
        net
    }

    /// Starts one more node.
    pub(super) fn add(&mut self, role: Role, is_ready: bool) -> usize {
        let at = self.nodes.len();
        self.nodes.push(Node {
            name: NodeName::new(&format!("n{at}")).unwrap(),
            role,
            actor: None,
            log: Vec::new(),
            ticks_at_deadline: !self.rng.random_bool(self.engine_ticks),
            wake_at: 0,
            is_frozen: false,
            is_tagged: false,
        });
        self.start(at, is_ready);
        at
    }

    /// Starts a node, or starts it again with nothing in memory.
    pub(super) fn start(&mut self, at: usize, is_ready: bool) {
        self.stop(at);
        let seed = self.rng.random();
        let first_tick = self.now() + self.rng.random_range(0..LINK_UP_MS_MAX);
        let node = &mut self.nodes[at];
        let mut actor = Actor::new(self.config, node.name.clone(), node.role, seed);
        actor.set_ready(is_ready);
        actor.set_value(at as u64 % 3);
        node.actor = Some(actor);
        self.wake(at, first_tick);
        for other in 0..self.nodes.len() {
            self.link_up(at, other);
        }
    }

    pub(super) fn stop(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.is_tagged = false;
        node.is_frozen = false;
        if node.actor.take().is_some() && self.has_hints {
            for other in 0..self.nodes.len() {
                self.hint(other, at);
            }
        }
    }

    pub(super) fn freeze(&mut self, at: usize, is_frozen: bool) {
        self.nodes[at].is_frozen = is_frozen;
        if !is_frozen {
            self.wake(at, self.now());
        }
    }

    pub(super) fn cut(&mut self, from: usize, to: usize) {
        if self.cuts.cut(from, to) && self.has_hints {
            self.hint(from, to);
            self.hint(to, from);
        }
    }

    /// Separates nodes of different parts; the one way only, if wanted: then parts hear those
    /// before them, and are not heard by them.
    pub(super) fn split(&mut self, parts: &[usize], is_one_way: bool) {
        for a in 0..parts.len() {
            for b in 0..parts.len() {
                if parts[a] != parts[b] && (!is_one_way || parts[a] > parts[b]) {
                    self.cut(a, b);
                }
            }
        }
    }

    pub(super) fn heal(&mut self) {
        for (a, b) in self.cuts.heal() {
            self.link_up(a, b);
        }
    }

    fn link_up(&mut self, a: usize, b: usize) {
        if self.has_greetings && a != b {
            for (from, to) in [(a, b), (b, a)] {
                let at = self.now() + self.rng.random_range(0..LINK_UP_MS_MAX);
                self.schedule.plan(at, Event::Greet { from, to });
            }
        }
    }

    fn hint(&mut self, node: usize, gone: usize) {
        if node != gone {
            let at = self.now() + self.rng.random_range(DOWN_AFTER_MS);
            self.schedule.plan(at, Event::Down { node, gone });
        }
    }

    fn send(&mut self, from: usize, to: usize, ping: &Rc<Ping>) {
        self.pings_sent += 1;
        let copies = 1 + usize::from(self.rng.random_bool(self.channel.duplication));
        for _ in 0..copies {
            if !self.rng.random_bool(self.channel.loss) {
                let at = self.now() + self.rng.random_range(self.channel.delay_ms.clone());
                self.in_flight += 1;
                self.schedule.plan(at, Event::Deliver { from, to, ping: Rc::clone(ping) });
            }
        }
    }

    pub(super) fn run_for(&mut self, millis: Millis) {
        self.run_with(millis, |_| {});
    }

    /// Lets time pass, and looks at the network after each event.
    pub(super) fn run_with(&mut self, millis: Millis, mut look: impl FnMut(&Self)) {
        let until = self.now() + millis;
        while let Some(at) = self.schedule.next_at().filter(|at| *at < until) {
            self.note_tags_until(at);
            let Some(event) = self.schedule.next() else { break };
            self.on_event(event);
            look(self);
        }
        self.note_tags_until(until);
        self.schedule.turn_to(until);
    }

    fn note_tags_until(&mut self, at: Millis) {
        let tagged = self.nodes.iter().filter(|node| node.is_tagged).count();
        self.tag_ms[tagged.min(2)] += at - self.now();
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Deliver { from, to, ping } => {
                self.in_flight -= 1;
                if !self.cuts.is_cut(from, to) && !self.nodes[to].is_frozen {
                    self.give(to, |actor, now, out| actor.on_ping(&ping, now, out));
                }
            }
            Event::Tick(node) => {
                if self.nodes[node].wake_at == self.now() && !self.nodes[node].is_frozen {
                    self.tick_now(node);
                }
            }
            Event::Greet { from, to } => {
                let is_cut = self.cuts.is_cut_somehow(from, to);
                if let (false, Some(actor)) = (is_cut, &self.nodes[from].actor) {
                    let ping = Rc::new(actor.greeting());
                    self.send(from, to, &ping);
                }
            }
            Event::Down { node, gone } => {
                let is_gone =
                    self.cuts.is_cut_somehow(node, gone) || self.nodes[gone].actor.is_none();
                if is_gone && !self.nodes[node].is_frozen {
                    let name = self.nodes[gone].name.clone();
                    if let Some(actor) = &mut self.nodes[node].actor {
                        actor.on_member_down(&name);
                    }
                    self.tick_now(node);
                }
            }
        }
    }

    /// A node ticks at once, because something was set that takes effect with a tick.
    pub(super) fn tick_now(&mut self, node: usize) {
        self.nodes[node].wake_at = 0;
        self.give(node, |actor, now, out| actor.on_tick(now, out));
    }

    fn wake(&mut self, node: usize, at: Millis) {
        self.nodes[node].wake_at = at;
        self.schedule.plan(at, Event::Tick(node));
    }

    /// Plans the next tick, or brings it forward.
    fn plan_tick(&mut self, node: usize) {
        let planned = self.nodes[node].wake_at;
        let deadline = self.nodes[node].actor.as_ref().and_then(Actor::next_deadline);
        let at = match deadline.filter(|_| self.nodes[node].ticks_at_deadline) {
            Some(deadline) => deadline.max(self.now() + 1),
            None => self.now() + TICK_MS,
        };
        if planned <= self.now() || (at < planned && self.nodes[node].ticks_at_deadline) {
            self.wake(node, at);
        }
    }

    pub(super) fn give(
        &mut self,
        at: usize,
        input: impl FnOnce(&mut Actor, Millis, &mut Vec<ActorOutput>),
    ) {
        let mut out = Vec::new();
        let now = self.now();
        let node = &mut self.nodes[at];
        let Some(actor) = node.actor.as_mut() else { return };
        input(actor, now, &mut out);
        for output in out {
            match output {
                ActorOutput::Event(event) => self.note(at, event),
                ActorOutput::Send(ping) => {
                    assert_eq!(self.nodes[at].role, Role::Active, "a passive member pinged");
                    let ping = Rc::new(ping);
                    for to in (0..self.nodes.len()).filter(|to| *to != at) {
                        self.send(at, to, &ping);
                    }
                }
            }
        }
        let node = &self.nodes[at];
        assert_eq!(node.actor.as_ref().unwrap().is_tagged(), node.is_tagged);
        self.plan_tick(at);
    }

    fn note(&mut self, at: usize, event: ActorEvent) {
        let node = &mut self.nodes[at];
        match &event {
            ActorEvent::Tagged => assert!(!std::mem::replace(&mut node.is_tagged, true)),
            ActorEvent::Untagged => assert!(std::mem::replace(&mut node.is_tagged, false)),
            ActorEvent::Recover { priority, ours, theirs } => {
                assert_eq!(*priority, ours.iter().position(|name| *name == node.name));
                assert!(!ours.is_empty() && !theirs.is_empty());
                assert!(ours.iter().all(|name| !theirs.contains(name)));
            }
            ActorEvent::ListChanged(_) | ActorEvent::ConfigChanged(_) => {}
        }
        node.log.push((self.schedule.now(), event));
    }

    pub(super) fn actor(&self, at: usize) -> &Actor {
        self.nodes[at].actor.as_ref().unwrap()
    }

    pub(super) fn actor_mut(&mut self, at: usize) -> &mut Actor {
        self.nodes[at].actor.as_mut().unwrap()
    }

    pub(super) fn list(&self, at: usize) -> Vec<NodeName> {
        self.actor(at).list().cloned().collect()
    }

    pub(super) fn index(name: &NodeName) -> usize {
        name.as_str()[1..].parse().unwrap()
    }

    pub(super) fn live(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.nodes.len()).filter(|at| self.nodes[*at].actor.is_some())
    }

    pub(super) fn recovers(&self, at: usize, since: Millis) -> Vec<&ActorEvent> {
        let log = self.nodes[at].log.iter().filter(|(at, _)| *at >= since);
        log.map(|(_, e)| e).filter(|e| matches!(e, ActorEvent::Recover { .. })).collect()
    }

    pub(super) fn recover_count(&self, since: Millis) -> usize {
        (0..self.nodes.len()).map(|at| self.recovers(at, since).len()).sum()
    }

    pub(super) fn list_changes(&self) -> usize {
        let logs = self.nodes.iter().flat_map(|node| &node.log);
        logs.filter(|(_, event)| matches!(event, ActorEvent::ListChanged(_))).count()
    }

    /// What happened to whom, for messages.
    pub(super) fn story(&self, since: Millis) -> String {
        let logs = self
            .nodes
            .iter()
            .flat_map(|node| node.log.iter().map(|(at, event)| (*at, &node.name, event)));
        let mut lines: Vec<_> = logs.filter(|(at, _, _)| *at >= since).collect();
        lines.sort_by_key(|(at, _, _)| *at);
        lines.iter().map(|(at, name, event)| format!("{at} {name}: {event:?}\n")).collect()
    }

    /// All lists, for messages.
    pub(super) fn views(&self) -> String {
        let mut views = format!("seed {}, {} members\n", self.seed, self.nodes.len());
        for at in self.live() {
            let actor = self.actor(at);
            let tag = if actor.is_tagged() { "*" } else { "" };
            let ready = if actor.is_ready() { "" } else { " (not ready)" };
            let list = text(self.list(at));
            let name = &self.nodes[at].name;
            views += &format!("  {name}{tag}{ready} turn {}: {list}\n", actor.turn());
        }
        views
    }

    /// How many should be on the list: those who can be elected, up to its length.
    pub(super) fn expected_len(&self, among: &[usize]) -> usize {
        let active = || among.iter().map(|at| self.actor(*at)).filter(|a| a.role() == Role::Active);
        let ready = active().filter(|actor| actor.is_ready()).count();
        let electable = if ready > 0 { ready } else { active().count() };
        electable.min(self.actor(among[0]).config().list_len)
    }

    /// Whether these have the same list, of the right length, with only those on it who should be.
    pub(super) fn agree(&self, among: &[usize]) -> bool {
        let list = self.list(among[0]);
        let has_ready = among.iter().any(|at| {
            let actor = self.actor(*at);
            actor.role() == Role::Active && actor.is_ready()
        });
        list.len() == self.expected_len(among)
            && list.iter().all(|name| {
                let at = Self::index(name);
                among.contains(&at) && (self.actor(at).is_ready() || !has_ready)
            })
            && among.iter().all(|at| self.list(*at) == list)
    }

    /// Runs until something holds; how long that took.
    pub(super) fn run_until(&mut self, within: Millis, done: impl Fn(&Self) -> bool) -> Millis {
        let start = self.now();
        while self.now() < start + within {
            if done(self) {
                return self.now() - start;
            }
            self.run_for(7);
        }
        panic!("not after {within} ms:\n{}", self.views());
    }

    /// Runs until all that live agree; how long that took.
    pub(super) fn run_until_agreed(&mut self, within: Millis) -> Millis {
        self.run_until(within, |net| net.agree(&net.live().collect::<Vec<_>>()))
    }

    /// Checks for ten cycles, with a calm channel, that nothing changes but turns: whenever
    /// nothing is on its way, all have the same list, and nobody but one holds the tag, and that
    /// most of the time.
    pub(super) fn assert_steady(&mut self) {
        let live: Vec<_> = self.live().collect();
        let cycle_ms = self.actor(live[0]).config().cycle_ms;
        let changes = self.list_changes();
        let start = self.now();
        self.tag_ms = [0; 3];
        self.run_with(10 * cycle_ms, |net| {
            if net.in_flight == 0 {
                assert!(net.agree(&live), "no agreement:\n{}", net.views());
            }
        });
        assert_eq!(self.list_changes(), changes, "the list changed");
        assert_eq!(self.recover_count(start), 0, "recover though nothing happened");
        let [_, one, more] = self.tag_ms;
        assert_eq!(more, 0, "more than one was tagged:\n{}", self.views());
        if self.expected_len(&live) > 0 {
            assert!(one >= 10 * cycle_ms / 2, "tagged for {one} ms only:\n{}", self.views());
        }
    }
}

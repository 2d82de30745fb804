//! Networks of doors in virtual time: pings and acknowledgements as SWIM sends them, with loss,
//! reordering, restarts, and an attacker who records everything, repeats it, changes it and adds garbage.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

pub(super) const ROUND_MS: u64 = 1_000;
/// An acknowledgement that takes longer is too late for SWIM.
const TIMELY_MS: u64 = 500;

/// What happens on the wire.
#[derive(Clone, Copy)]
pub(super) struct Wire {
    /// Of 100 datagrams.
    lost: u64,
    delay_ms_max: u64,
    /// How many recorded datagrams are sent again per datagram that is sent.
    replays: u64,
    /// How many datagrams are invented per datagram that is sent.
    garbage: u64,
}

pub(super) const CALM: Wire = Wire { lost: 0, delay_ms_max: 50, replays: 0, garbage: 0 };
/// Four ways, as from an `ask` to an acknowledgement, are still timely.
pub(super) const FAR: Wire = Wire { delay_ms_max: 120, ..CALM };
const STORM: Wire = Wire { lost: 30, delay_ms_max: 80, replays: 2, garbage: 2 };

pub(super) struct Node {
    pub(super) door: DatagramDoor,
    /// When each ping that waits for its acknowledgement was sent, and to whom.
    open_pings: BTreeMap<u64, (u64, usize)>,
}

pub(super) struct World {
    wire: Wire,
    pub(super) now: u64,
    random: Box<dyn FnMut() -> u64>,
    pub(super) nodes: Vec<Node>,
    lives: u64,
    /// By time and number: source, destination, bytes.
    flying: BTreeMap<(u64, u64), (SocketAddr, usize, Vec<u8>)>,
    flown: u64,
    /// All that was sent, and to whom.
    pub(super) recorded: Vec<(usize, Vec<u8>)>,
    /// Messages are numbered: for whom each is, and which were taken.
    meant_for: Vec<usize>,
    taken: BTreeSet<u64>,
    /// Pings of this round, and those acknowledged in time.
    pub(super) pings: usize,
    pub(super) acknowledged: BTreeSet<(usize, usize)>,
}

impl World {
    pub(super) fn new(nodes: usize, wire: Wire, seed: u64) -> Self {
        let mut world = Self {
            wire,
            now: 0,
            random: Box::new(numbers(seed)),
            nodes: Vec::new(),
            lives: seed << 32,
            flying: BTreeMap::new(),
            flown: 0,
            recorded: Vec::new(),
            meant_for: Vec::new(),
            taken: BTreeSet::new(),
            pings: 0,
            acknowledged: BTreeSet::new(),
        };
        for _ in 0..nodes {
            let node = world.life();
            world.nodes.push(node);
        }
        world
    }

    fn life(&mut self) -> Node {
        self.lives += 1;
        Node { door: door(self.lives), open_pings: BTreeMap::new() }
    }

    pub(super) fn restart(&mut self, node: usize) {
        self.nodes[node] = self.life();
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        (self.random)() % limit.max(1)
    }

    /// A message, kind `p` or `k`, about ping `ping`.
    fn say(&mut self, from: usize, to: usize, kind: char, ping: u64) {
        let number = self.meant_for.len();
        self.meant_for.push(to);
        let text = plain(&format!("{kind} {number} {ping}"));
        let mut out = Vec::new();
        self.nodes[from].door.seal(addr(to as u16), &text, self.now, &mut out);
        self.send(from, out);
    }

    fn send(&mut self, from: usize, out: Vec<Outgoing>) {
        for datagram in out {
            let to = usize::from(datagram.to.port());
            // An answer to a spoofed address.
            if to >= self.nodes.len() {
                continue;
            }
            self.recorded.push((to, datagram.bytes.clone()));
            if self.below(100) >= self.wire.lost {
                self.fly(addr(from as u16), to, datagram.bytes);
            }
            self.attack();
        }
    }

    fn fly(&mut self, from: SocketAddr, to: usize, bytes: Vec<u8>) {
        let at = self.now + 1 + self.below(self.wire.delay_ms_max);
        self.inject(at, from, to, bytes);
    }

    /// Something arrives at that moment.
    pub(super) fn inject(&mut self, at: u64, from: SocketAddr, to: usize, bytes: Vec<u8>) {
        self.flown += 1;
        self.flying.insert((at, self.flown), (from, to, bytes));
    }

    fn attack(&mut self) {
        let nodes = self.nodes.len() as u64;
        for _ in 0..self.wire.replays {
            let at = self.below(self.recorded.len() as u64) as usize;
            let (to, mut bytes) = self.recorded[at].clone();
            let from = self.below(2 * nodes) as u16;
            if self.below(4) == 0 {
                let bit = self.below(8 * bytes.len() as u64) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            self.fly(addr(from), to, bytes);
        }
        for _ in 0..self.wire.garbage {
            let to = self.below(nodes) as usize;
            let length = self.below(200) as usize;
            let mut bytes = b"dkvS\x01\x01".to_vec();
            bytes.extend((0..length).map(|_| (self.random)() as u8));
            let from = self.below(60_000) as u16;
            self.fly(addr(from), to, bytes);
        }
    }

    /// Every node pings `each` others; then all that flies arrives, until the round is over.
    pub(super) fn round(&mut self, each: usize) {
        (self.pings, self.acknowledged) = (0, BTreeSet::new());
        let end = self.now + ROUND_MS;
        let count = self.nodes.len();
        for from in 0..count {
            self.nodes[from].open_pings.clear();
            for turn in 0..each {
                let others = count as u64 - 1;
                let step = if each == count - 1 { turn as u64 } else { self.below(others) };
                let to = (from + 1 + step as usize) % count;
                let ping = self.meant_for.len() as u64;
                self.nodes[from].open_pings.insert(ping, (self.now, to));
                self.pings += 1;
                self.say(from, to, 'p', ping);
            }
        }
        while let Some((&(at, number), _)) = self.flying.first_key_value() {
            if at > end {
                break;
            }
            let (from, to, bytes) = self.flying.remove(&(at, number)).unwrap();
            self.now = at;
            self.arrive(from, to, &bytes);
        }
        self.now = end;
        self.check_bounds();
    }

    fn arrive(&mut self, from: SocketAddr, to: usize, bytes: &[u8]) {
        let (opened, out) = open(&mut self.nodes[to].door, from, bytes, self.now);
        self.send(to, out);
        let Opened::Datagram(plain) = opened else { return };
        let text = std::str::from_utf8(&plain[13..]).unwrap();
        let words: Vec<_> = text.split(' ').collect();
        let number: u64 = words[1].parse().unwrap();
        let ping: u64 = words[2].parse().unwrap();
        assert!(self.taken.insert(number), "message {number} is taken twice");
        assert_eq!(self.meant_for[number as usize], to, "message {number} is taken by another");
        if words[0] == "p" {
            // SWIM answers the identity in the ping, not the source.
            let sender =
                (0..self.nodes.len()).find(|node| self.nodes[*node].open_pings.contains_key(&ping));
            sender.into_iter().for_each(|sender| self.say(to, sender, 'k', ping));
        } else if let Some((since, whom)) = self.nodes[to].open_pings.remove(&ping)
            && self.now - since <= TIMELY_MS
        {
            self.acknowledged.insert((to, whom));
        }
    }

    fn check_bounds(&self) {
        for node in &self.nodes {
            let door = &node.door;
            assert!(door.peers.waiting() <= peers::WAITING_MAX * self.nodes.len());
            // Spoofed sources of genuine datagrams are remembered, too.
            assert!(door.peers.len() <= 2 * self.nodes.len());
            assert!(door.strangers.len() <= pace::STRANGERS_MAX);
            assert!(door.windows.len() as u64 <= self.lives & 0xffff_ffff);
        }
    }
}

#[test]
fn after_a_mass_restart_every_ping_is_answered_in_the_first_round() {
    for nodes in [3, 10, 50] {
        let mut world = World::new(nodes, CALM, 1);
        for restart in 0..3 {
            world.round(nodes - 1);
            assert_eq!(world.acknowledged.len(), world.pings, "{nodes} nodes, start {restart}");
            (0..nodes).for_each(|node| world.restart(node));
        }
    }
}

#[test]
fn after_the_restart_of_one_node_every_ping_is_answered_from_the_second_round_on() {
    for nodes in [3, 10, 50] {
        let mut world = World::new(nodes, CALM, 2);
        world.round(nodes - 1);
        world.restart(0);
        world.round(nodes - 1);
        // Pings for the former life are lost, and those of the new one are answered.
        let of_0 = world.acknowledged.iter().filter(|(from, _)| *from == 0).count();
        assert_eq!(of_0, nodes - 1);
        assert!(world.acknowledged.len() + (nodes - 1) >= world.pings);
        world.round(nodes - 1);
        assert_eq!(world.acknowledged.len(), world.pings, "{nodes} nodes");
    }
}

#[test]
fn nodes_that_restart_in_turn_are_heard_within_two_rounds() {
    let mut world = World::new(12, CALM, 3);
    for node in 0..12 {
        world.restart(node);
        world.round(11);
        world.round(11);
        assert_eq!(world.acknowledged.len(), world.pings, "after the restart of {node}");
    }
}

/// With 30 % loss, a ping and its acknowledgement get through in 49 of 100 cases without any door. With
/// doors it must be nearly as many from the fourth round on; and a pair of nodes that fails 20 times in a row
/// would be none of three in a million.
#[test]
fn in_a_storm_nothing_is_taken_twice_and_everybody_hears_everybody_after_a_mass_restart() {
    let (mut pings, mut answered) = (0, 0);
    for (nodes, seed) in [(3, 4), (3, 5), (8, 6), (11, 7)] {
        let mut world = World::new(nodes, STORM, seed);
        for start in 0..3 {
            let mut heard = BTreeSet::new();
            for round in 0..20 {
                world.round(nodes - 1);
                heard.extend(world.acknowledged.iter().copied());
                if round >= 3 {
                    pings += world.pings;
                    answered += world.acknowledged.len();
                }
            }
            let all = nodes * (nodes - 1);
            assert_eq!(heard.len(), all, "{nodes} nodes, start {start}");
            (0..nodes).for_each(|node| world.restart(node));
        }
    }
    assert!(answered * 100 >= pings * 46, "{answered} of {pings}");
}

#[test]
fn fifty_nodes_ping_three_each_through_a_storm_and_restarts() {
    let mut world = World::new(50, STORM, 8);
    let (mut pings, mut answered) = (0, 0);
    for round in 0..30 {
        world.round(3);
        if round == 10 {
            (0..50).for_each(|node| world.restart(node));
        } else if round % 7 == 0 {
            (0..5).for_each(|node| world.restart(node * 10 + round % 10));
        }
        // From the fifth round after the mass restart on.
        if round >= 15 {
            pings += world.pings;
            answered += world.acknowledged.len();
        }
    }
    assert!(answered * 100 >= pings * 30, "{answered} of {pings}");
}

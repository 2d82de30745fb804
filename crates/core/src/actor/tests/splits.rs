//! Networks that split and heal: each healed split is reported, once, and to those who drive the
//! repair; afterwards all have one list.

use std::collections::BTreeSet;

use rand::RngExt;

use super::super::*;
use super::net::{Channel, Net};
use super::{seeds, text};

/// A network of some members, active and passive, with its list; split into parts for a while.
struct Split {
    net: Net,
    /// Which part each node is of.
    parts: Vec<usize>,
    /// The list of each part just before the heal; empty for one without active members.
    lists: Vec<Vec<NodeName>>,
    split_at: Millis,
    healed_at: Millis,
}

impl Split {
    /// `seed` decides all but the number of parts.
    fn new(seed: u64, count: usize, part_count: usize, is_one_way: bool) -> Self {
        let mut net = Net::new(seed);
        net.has_greetings = seed % 4 != 3;
        net.has_hints = seed.is_multiple_of(2);
        let passive = if seed.is_multiple_of(5) { 0.2 } else { 0.0 };
        for _ in 0..count {
            let is_passive = net.rng.random_bool(passive);
            net.add(if is_passive { Role::Passive } else { Role::Active }, true);
        }
        net.run_for(10_000);
        let mut parts: Vec<_> = (0..count).map(|_| net.rng.random_range(0..part_count)).collect();
        for (part, of) in parts.iter_mut().take(part_count).enumerate() {
            *of = part; // none is empty
        }
        let split_at = net.now();
        net.split(&parts, is_one_way);
        let span = net.rng.random_range(30_000..90_000);
        net.run_for(span);
        Self { lists: vec![Vec::new(); part_count], parts, net, split_at, healed_at: 0 }
    }

    fn part(&self, part: usize) -> Vec<usize> {
        (0..self.parts.len()).filter(|at| self.parts[*at] == part).collect()
    }

    fn heal(&mut self) {
        for part in 0..self.lists.len() {
            self.lists[part] = self.net.list(self.part(part)[0]);
        }
        self.healed_at = self.net.now();
        self.net.heal();
    }

    /// Waits for a moment in which nothing is on its way, and heals.
    fn heal_steady(&mut self) {
        let parts: Vec<_> = (0..self.lists.len()).map(|part| self.part(part)).collect();
        self.net.run_until(4_000, |net| {
            parts.iter().all(|members| {
                let mut roles = members.iter().map(|at| net.nodes[*at].role);
                roles.all(|role| role == Role::Passive) || net.agree(members)
            })
        });
        self.heal();
    }

    fn first(&self, part: usize) -> Option<usize> {
        self.lists[part].first().map(Net::index)
    }

    /// The parts that are connected with the first one by what was reported.
    fn recovered_parts(&self) -> BTreeSet<usize> {
        let part_of = |name| self.parts[Net::index(name)];
        let mut links = Vec::new();
        for at in 0..self.parts.len() {
            for event in self.net.recovers(at, self.healed_at) {
                let ActorEvent::Recover { ours, theirs, .. } = event else { unreachable!() };
                links.push(ours.iter().chain(theirs).map(part_of).collect::<BTreeSet<_>>());
            }
        }
        let start = (0..self.lists.len()).find(|part| !self.lists[*part].is_empty());
        let mut found: BTreeSet<usize> = start.into_iter().collect();
        while let Some(at) = links.iter().position(|l| !l.is_disjoint(&found)) {
            found.extend(links.swap_remove(at));
        }
        found
    }
}

#[test]
fn two_parts_that_heal_report_it_once_to_each_on_both_lists() {
    let mut unclear = 0;
    for seed in seeds(32) {
        let count = [2, 3, 4, 5, 7, 12, 30, 50][seed as usize % 8];
        let mut split = Split::new(seed, count, 2, false);
        split.heal_steady();
        if seed.is_multiple_of(3) {
            split.net.channel = Channel::ROUGH;
        }
        split.net.run_for(15_000);
        split.net.channel = Channel::CALM;
        split.net.run_for(5_000);
        let (net, lists) = (&split.net, &split.lists);
        let both_past = lists.iter().all(|list| !list.is_empty());
        for at in 0..count {
            let recovers = net.recovers(at, split.healed_at);
            assert!(recovers.len() <= 1, "seed {seed}: n{at}: {recovers:?}");
            let part = split.parts[at];
            for event in &recovers {
                let ActorEvent::Recover { ours, theirs, .. } = event else { unreachable!() };
                let is_of = |name, part| split.parts[Net::index(name)] == part;
                assert!(ours.iter().all(|name| is_of(name, part)), "seed {seed}: {event:?}");
                assert!(theirs.iter().all(|name| is_of(name, 1 - part)), "seed {seed}: {event:?}");
            }
            let is_listed = lists[part].contains(&net.nodes[at].name);
            assert!(!(both_past && is_listed && recovers.is_empty()), "seed {seed}: n{at}");
            assert!(both_past || recovers.is_empty());
        }
        for part in 0..2 {
            let recovers = split.part(part).into_iter().flat_map(|at| net.recovers(at, 0));
            let is_first =
                |event: &_| matches!(event, ActorEvent::Recover { priority: Some(0), .. });
            let firsts = recovers.filter(|event| is_first(event)).count();
            // Two, or none, where a turn ended just between two that noticed.
            assert!(firsts <= 2 && (both_past || firsts == 0), "seed {seed}: {firsts}");
            unclear += usize::from(both_past && firsts != 1);
        }
        split.net.run_until_agreed(15_000);
        split.net.assert_steady();
    }
    println!("sides of which none, or two took themselves for the first: {unclear}");
}

#[test]
fn a_healed_split_is_noticed_at_the_first_greeting() {
    for seed in seeds(40).map(|seed| seed * 4) {
        let mut split = Split::new(seed, 5, 2, false);
        split.heal_steady();
        if split.lists.iter().any(Vec::is_empty) {
            continue;
        }
        // Links come up within 300 ms; then it is told within a gap or two.
        split.net.run_for(300 + 2 * 200);
        for part in 0..2 {
            let first = split.first(part).unwrap();
            let recovers = split.net.recovers(first, split.healed_at);
            assert_eq!(recovers.len(), 1, "seed {seed}");
        }
    }
}

#[test]
fn many_parts_that_heal_at_once_all_hear_of_each_other() {
    let mut most = 0;
    for seed in seeds(20) {
        let count = [6, 10, 20, 50][seed as usize % 4];
        let part_count = 3 + seed as usize % 3;
        let mut split = Split::new(seed, count, part_count, false);
        split.heal_steady();
        split.net.run_for(15_000);
        let past: Vec<_> = (0..part_count).filter(|p| !split.lists[*p].is_empty()).collect();
        if past.len() > 1 {
            let found = split.recovered_parts();
            assert!(past.iter().all(|p| found.contains(p)), "seed {seed}: {found:?}");
            for part in &past {
                let first = split.first(*part).unwrap();
                let story = || split.net.story(split.healed_at);
                assert!(
                    !split.net.recovers(first, split.healed_at).is_empty(),
                    "{seed}\n{}",
                    story()
                );
            }
        }
        for at in 0..count {
            let recovers = split.net.recovers(at, split.healed_at);
            most = most.max(recovers.len());
            assert!(recovers.len() < part_count, "seed {seed}: n{at}: {recovers:#?}");
        }
        split.net.run_until_agreed(15_000);
        split.net.assert_steady();
    }
    println!("most reports to one node: {most}");
}

#[test]
fn a_network_fallen_into_single_nodes_becomes_one_again() {
    for seed in seeds(3) {
        let count = 30;
        let mut net = Net::with(seed, count);
        net.has_greetings = seed.is_multiple_of(2);
        net.run_until_agreed(8_000);
        net.split(&(0..count).collect::<Vec<_>>(), false);
        net.run_for(60_000);
        assert!((0..count).all(|at| net.list(at).len() == 1 && net.actor(at).is_tagged()));
        let healed_at = net.now();
        net.heal();
        net.run_for(10_000);
        for at in 0..count {
            let recovers = net.recovers(at, healed_at).len();
            assert!((1..count).contains(&recovers), "seed {seed}: n{at} {recovers}");
        }
        net.run_until_agreed(10_000);
        net.assert_steady();
    }
}

#[test]
fn parts_that_heal_one_after_another_and_split_again_recover_each_time() {
    for seed in seeds(12) {
        let mut net = Net::with(seed, 9);
        net.has_hints = true;
        net.run_until_agreed(8_000);
        for round in 0..4 {
            let parts: Vec<_> = (0..9).map(|at| (at + round) % 3).collect();
            net.split(&parts, false);
            net.run_for(25_000);
            let lists: Vec<_> = (0..3)
                .map(|part| net.list(parts.iter().position(|p| *p == part).unwrap()))
                .collect();
            // Two of the three first, and the third while they may be at it.
            let healed_at = net.now();
            net.heal();
            let two: Vec<_> = parts.iter().map(|part| part / 2).collect();
            net.split(&two, false);
            let pause = net.rng.random_range(500..20_000);
            net.run_for(pause);
            net.heal();
            net.run_for(15_000);
            for list in &lists {
                let first = Net::index(&list[0]);
                let count = net.recovers(first, healed_at).len();
                assert!((1..=2).contains(&count), "seed {seed}, round {round}: {count}");
            }
            net.run_until_agreed(10_000);
            net.assert_steady();
        }
    }
}

#[test]
fn parts_of_which_one_hears_the_other_become_one_when_both_do() {
    for seed in seeds(20) {
        let count = [2, 3, 5, 12][seed as usize % 4];
        let mut split = Split::new(seed, count, 2, true);
        split.heal();
        let is_apart = split.lists[0].iter().all(|name| !split.lists[1].contains(name))
            && split.lists.iter().all(|list| !list.is_empty());
        split.net.run_for(20_000);
        if is_apart {
            for part in 0..2 {
                // Who could hear all the time may have reported it before the heal.
                let first = split.first(part).unwrap();
                let recovers = split.net.recovers(first, split.split_at);
                let lists: Vec<_> = split.lists.iter().cloned().map(text).collect();
                assert!(
                    !recovers.is_empty(),
                    "seed {seed}: {lists:?}\n{}",
                    split.net.story(split.split_at)
                );
            }
        }
        split.net.run_until_agreed(10_000);
        split.net.assert_steady();
    }
}

#[test]
fn while_one_way_is_cut_the_meeting_is_reported_only_now_and_then() {
    for seed in seeds(6) {
        let mut net = Net::with(seed, 6);
        net.run_until_agreed(8_000);
        net.split(&[0, 0, 0, 1, 1, 1], true);
        let start = net.now();
        net.run_for(600_000);
        for at in 0..6 {
            let count = net.recovers(at, start).len();
            assert!(count <= 600 / 17 + 1, "seed {seed}: n{at} {count}");
        }
    }
}

#[test]
fn a_split_shorter_than_the_lists_remember_is_none() {
    for seed in seeds(12) {
        let mut net = Net::with(seed, 6);
        net.run_until_agreed(8_000);
        net.split(&[0, 0, 0, 1, 1, 1], false);
        net.run_for(1_500);
        net.heal();
        net.run_until_agreed(10_000);
        assert_eq!(net.recover_count(0), 0, "seed {seed}");
    }
}

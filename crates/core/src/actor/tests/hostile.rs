//! Pings that say anything.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::super::*;
use super::net::Net;
use super::seeds;
use crate::model::ping::{HISTORY_LEN_MAX, LIST_LEN_MAX, Meeting, PING_MEETINGS_MAX, TURN_LIMIT};

/// A number that is small, in the middle, or at an edge.
fn number(rng: &mut SmallRng, middle: u64) -> u64 {
    match rng.random_range(0..6) {
        0 => rng.random_range(0..4),
        1 => [u64::MAX, TURN_LIMIT, TURN_LIMIT - 1, 1 << 40][rng.random_range(0..4)],
        _ => middle.saturating_add(rng.random_range(0..12)).saturating_sub(6),
    }
}

fn some_names(rng: &mut SmallRng) -> Vec<NodeName> {
    let count = [0, 1, 2, 4, 5, 17, 60][rng.random_range(0..7)];
    let name = |rng: &mut SmallRng| NodeName::new(&format!("n{}", rng.random_range(0..30)));
    (0..count).map(|_| name(rng).unwrap()).collect()
}

fn any_ping(rng: &mut SmallRng, turn: u64) -> Ping {
    let history = some_names(rng);
    let sender = history.first().filter(|_| rng.random_bool(0.7)).cloned();
    Ping {
        group: GroupId(u8::from(rng.random_bool(0.95))),
        sender: sender.unwrap_or_else(|| NodeName::new("n7").unwrap()),
        turn: number(rng, turn),
        value: rng.random_bool(0.8).then(|| number(rng, 3)),
        history,
        meetings: (0..[0, 0, 1, 9][rng.random_range(0..4)])
            .map(|_| Meeting { turn: number(rng, turn), sides: [some_names(rng), some_names(rng)] })
            .collect(),
        config: ConfigVersion {
            version: number(rng, 0),
            cycle_ms: number(rng, 1_000),
            gap_ms: number(rng, 200),
            list_len: number(rng, 4) as usize,
        },
    }
}

fn assert_orderly(ping: &Ping) {
    assert!(ping.history.len() <= HISTORY_LEN_MAX);
    assert!(ping.turn < TURN_LIMIT);
    assert!(ping.meetings.len() <= PING_MEETINGS_MAX);
    assert_eq!(ping.config.check(), Ok(()));
    let sides = ping.meetings.iter().flat_map(|meeting| &meeting.sides);
    for names in sides.chain([&ping.history]) {
        assert!(names.len() <= HISTORY_LEN_MAX);
        assert!((0..names.len()).all(|at| !names[..at].contains(&names[at])));
    }
}

#[test]
fn whatever_pings_say_the_actor_stays_orderly() {
    for seed in seeds(300) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let config = ActorConfig { group: GroupId(1), shared: ConfigVersion::DEFAULT };
        let mut actor = Actor::new(config, NodeName::new("n5").unwrap(), Role::Active, seed);
        let mut now = [0, 1_000_000, u64::MAX - 1_000_000][seed as usize % 3];
        let mut is_tagged = false;
        for _ in 0..300 {
            let pause_max = [3, 300, 3_000][rng.random_range(0..3)];
            now += rng.random_range(0..pause_max);
            let mut out = Vec::new();
            match rng.random_range(0..8) {
                0..4 => actor.on_ping(&any_ping(&mut rng, actor.turn()), now, &mut out),
                4 => actor.set_ready(rng.random()),
                5 => {
                    let name = format!("n{}", rng.random_range(0..30));
                    actor.on_member_down(&NodeName::new(&name).unwrap());
                }
                _ => {}
            }
            actor.on_tick(now, &mut out);
            assert!(actor.list().count() <= LIST_LEN_MAX.min(actor.config().list_len));
            assert!(actor.next_deadline().is_some_and(|at| at >= now));
            assert_orderly(&actor.greeting());
            for output in out {
                match output {
                    ActorOutput::Send(ping) => assert_orderly(&ping),
                    ActorOutput::Event(ActorEvent::Tagged) => {
                        assert!(!std::mem::replace(&mut is_tagged, true));
                    }
                    ActorOutput::Event(ActorEvent::Untagged) => {
                        assert!(std::mem::replace(&mut is_tagged, false));
                    }
                    ActorOutput::Event(ActorEvent::Recover { ours, theirs, .. }) => {
                        assert!(!ours.is_empty() && !theirs.is_empty());
                        assert!(ours.iter().all(|name| !theirs.contains(name)));
                    }
                    ActorOutput::Event(
                        ActorEvent::ListChanged(_) | ActorEvent::ConfigChanged(_),
                    ) => {}
                }
            }
            assert_eq!(actor.is_tagged(), is_tagged);
        }
    }
}

#[test]
fn a_network_comes_to_itself_after_a_peer_that_talks_nonsense() {
    for seed in seeds(60) {
        let mut net = Net::with(seed, 5);
        net.run_until_agreed(8_000);
        let mut rng = SmallRng::seed_from_u64(seed);
        for _ in 0..100 {
            let pause = rng.random_range(0..500);
            net.run_for(pause);
            let mut ping = any_ping(&mut rng, net.actor(0).turn());
            // A configuration that all have to follow is no nonsense.
            ping.config = ConfigVersion::DEFAULT;
            let to = rng.random_range(0..5);
            net.give(to, |actor, now, out| actor.on_ping(&ping, now, out));
        }
        net.run_for(60_000);
        net.assert_steady();
    }
}

#[test]
fn when_the_turns_are_used_up_all_start_again() {
    let mut net = Net::with(1, 4);
    net.run_until_agreed(8_000);
    let mut ping = net.actor(0).greeting();
    ping.sender = NodeName::new("broken").unwrap();
    ping.turn = TURN_LIMIT - 2;
    net.give(1, |actor, now, out| actor.on_ping(&ping, now, out));
    net.run_for(40_000);
    net.assert_steady();
    assert!(net.actor(0).turn() < 100);
}

#[test]
fn the_same_seed_gives_the_same_network() {
    let run = |seed| {
        let mut net = Net::with(seed, 8);
        net.channel = super::net::Channel::ROUGH;
        net.run_for(20_000);
        net.split(&[0, 0, 0, 0, 1, 1, 1, 1], false);
        net.run_for(20_000);
        net.heal();
        net.run_for(20_000);
        let logs: Vec<_> = net.nodes.into_iter().map(|node| node.log).collect();
        (logs, net.pings_sent)
    };
    assert_eq!(run(4), run(4));
    assert_ne!(run(4), run(5));
}

//! Networks in which pings are lost, doubled and late all the time, and members come and go.

use rand::RngExt;

use super::super::*;
use super::net::{Channel, Net};
use super::seeds;

#[test]
fn an_hour_of_losing_one_ping_in_twenty_is_no_split() {
    let (mut changes, mut tag_ms) = (0, [0; 3]);
    for seed in seeds(5) {
        let count = [2, 3, 5, 12, 4, 20, 8, 50][seed as usize % 8];
        let mut net = Net::with(seed, count);
        net.channel = Channel::ROUGH;
        net.has_greetings = !seed.is_multiple_of(3);
        net.run_for(10_000);
        net.tag_ms = [0; 3];
        let before = net.list_changes();
        net.run_for(3_600_000);
        assert_eq!(net.recover_count(0), 0, "{}{}", net.views(), net.story(0));
        changes += (net.list_changes() - before) / count;
        for (sum, ms) in tag_ms.iter_mut().zip(net.tag_ms) {
            *sum += ms;
        }
        net.channel = Channel::CALM;
        net.run_for(10_000);
        net.assert_steady();
    }
    let [nobody, one, more] = tag_ms;
    println!("list changes seen by a member: {changes}");
    println!("tag: nobody {nobody} ms, one {one} ms, more {more} ms");
    assert!(more * 20 < one, "more than one held the tag for {more} ms of {one}");
}

#[test]
fn members_that_come_and_go_are_no_split() {
    for seed in seeds(12) {
        let count = 3 + seed as usize % 10;
        let mut net = Net::with(seed, count);
        net.has_hints = seed.is_multiple_of(2);
        net.channel = Channel::ROUGH;
        net.run_for(10_000);
        for _ in 0..40 {
            let at = net.rng.random_range(0..count);
            // Two at least stay, so that there is somebody to come back to.
            if net.nodes[at].actor.is_none() {
                net.start(at, true);
            } else if net.live().count() > 2 {
                net.stop(at);
                if net.rng.random_bool(0.5) {
                    net.start(at, true);
                }
            }
            let pause = net.rng.random_range(100..20_000);
            net.run_for(pause);
        }
        assert_eq!(net.recover_count(0), 0, "{}{}", net.views(), net.story(0));
        net.channel = Channel::CALM;
        net.run_for(25_000);
        net.assert_steady();
    }
}

#[test]
fn after_any_trouble_all_have_one_list_and_one_holds_the_tag() {
    for seed in seeds(12) {
        let count = [2, 3, 5, 9, 16, 50][seed as usize % 6];
        let mut net = Net::with(seed, count);
        net.has_hints = seed.is_multiple_of(2);
        net.has_greetings = !seed.is_multiple_of(3);
        for _ in 0..30 {
            let at = net.rng.random_range(0..count);
            match net.rng.random_range(0..10) {
                0 => net.heal(),
                1 | 2 => {
                    let part_count = net.rng.random_range(2..5);
                    let parts: Vec<_> =
                        (0..count).map(|_| net.rng.random_range(0..part_count)).collect();
                    let is_one_way = net.rng.random_bool(0.3);
                    net.split(&parts, is_one_way);
                }
                3 => (0..count).for_each(|other| net.cut(at, other)),
                4 => net.start(at, true),
                5 => net.stop(at),
                6 => {
                    let is_frozen = net.rng.random_bool(0.5);
                    net.freeze(at, is_frozen);
                }
                7 => {
                    let is_ready = net.rng.random_bool(0.5);
                    if let Some(actor) = &mut net.nodes[at].actor {
                        actor.set_ready(is_ready);
                    }
                }
                8 => {
                    let late = net.rng.random_range(2..2_000);
                    let loss = f64::from(net.rng.random_range(0..50)) / 100.0;
                    net.channel = Channel { loss, duplication: loss, delay_ms: 1..late };
                }
                _ => {
                    let config = ConfigVersion {
                        version: net.rng.random_range(0..9),
                        cycle_ms: net.rng.random_range(400..2_000),
                        gap_ms: net.rng.random_range(60..130),
                        list_len: net.rng.random_range(2..=16),
                    };
                    if let Some(actor) = &mut net.nodes[at].actor {
                        actor.adopt_config(config).unwrap();
                    }
                }
            }
            let pause = net.rng.random_range(10..15_000);
            net.run_for(pause);
        }
        net.channel = Channel::CALM;
        net.heal();
        for at in 0..count {
            net.freeze(at, false);
            if net.nodes[at].actor.is_none() {
                net.start(at, true);
            }
        }
        net.run_for(120_000);
        net.assert_steady();
    }
}

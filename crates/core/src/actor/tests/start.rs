//! Networks that start, grow, shrink and change what they are told to do.

use super::super::*;
use super::net::{Channel, Net};
use super::seeds;

#[test]
fn one_alone_elects_itself() {
    let mut net = Net::with(1, 1);
    assert!(net.run_until_agreed(2_500) >= 1_000);
    net.assert_steady();
    assert!(net.actor(0).is_tagged());
    assert_eq!(net.recover_count(0), 0);
}

#[test]
fn any_number_of_members_has_its_list_within_seconds() {
    let mut slowest = 0;
    for seed in seeds(20) {
        for count in [2, 3, 5, 20, 50] {
            if count > 5 && seed % 10 != 0 {
                continue;
            }
            let mut net = Net::with(seed, count);
            slowest = slowest.max(net.run_until_agreed(8_000));
            net.assert_steady();
            assert_eq!(net.recover_count(0), 0, "seed {seed}, {count} members");
        }
    }
    println!("slowest start: {slowest} ms");
}

#[test]
fn a_late_comer_joins_without_disturbing_a_full_list() {
    for seed in seeds(20) {
        let mut net = Net::with(seed, 6);
        net.run_until_agreed(8_000);
        let changes = net.list_changes();
        let late = net.add(Role::Active, true);
        net.run_for(10_000);
        net.assert_steady();
        assert_eq!(net.list_changes(), changes + 1, "only the late comer's own");
        assert!(!net.list(0).contains(&net.nodes[late].name));
        assert_eq!(net.recover_count(0), 0);
    }
}

#[test]
fn the_place_of_one_that_dies_is_taken_by_another() {
    let mut slowest = [0; 2];
    for seed in seeds(20) {
        for has_hints in [false, true] {
            let mut net = Net::with(seed, 7);
            net.has_hints = has_hints;
            net.run_until_agreed(8_000);
            net.run_for(seed * 37 % 2_000);
            let victim = Net::index(&net.list(0)[seed as usize % 4]);
            net.stop(victim);
            let took = net.run_until_agreed(15_000);
            slowest[usize::from(has_hints)] = slowest[usize::from(has_hints)].max(took);
            net.assert_steady();
            assert_eq!(net.recover_count(0), 0);
        }
    }
    println!("slowest replacement, without and with hints: {slowest:?} ms");
}

#[test]
fn the_next_goes_on_within_a_cycle_and_two_gaps_when_the_one_whose_turn_it_is_dies() {
    for seed in seeds(20) {
        let mut net = Net::with(seed, 5);
        net.run_until_agreed(8_000);
        net.run_for(5_000);
        let turn = net.actor(0).turn();
        let next = Net::index(net.list(0).last().unwrap());
        net.stop(next);
        let seer = net.live().next().unwrap();
        net.run_for(1_000 + 2 * 200 + 60);
        assert!(net.actor(seer).turn() > turn, "seed {seed}");
    }
}

#[test]
fn if_the_whole_list_dies_others_make_a_new_one() {
    let mut slowest = 0;
    for seed in seeds(30) {
        let mut net = Net::with(seed, 10);
        net.has_hints = seed.is_multiple_of(2);
        net.run_until_agreed(8_000);
        for name in net.list(0) {
            net.stop(Net::index(&name));
        }
        slowest = slowest.max(net.run_until_agreed(30_000));
        net.assert_steady();
        assert_eq!(net.recover_count(0), 0, "seed {seed}");
    }
    println!("slowest new list: {slowest} ms");
}

#[test]
fn those_that_are_not_ready_are_elected_only_where_nobody_is() {
    for seed in seeds(20) {
        let mut net = Net::new(seed);
        let all: Vec<_> = (0..4).map(|_| net.add(Role::Active, false)).collect();
        net.run_until_agreed(40_000);
        net.assert_steady();
        let ready = net.add(Role::Active, true);
        net.run_until_agreed(15_000);
        assert_eq!(net.list(0), [net.nodes[ready].name.clone()]);
        net.assert_steady();
        // The others become ready, one after another, and the first one is no more.
        for at in &all {
            net.actor_mut(*at).set_ready(true);
            net.run_for(seed % 7 * 100);
        }
        net.run_until_agreed(15_000);
        net.actor_mut(ready).set_ready(false);
        net.tick_now(ready);
        assert!(!net.actor(ready).is_tagged());
        net.run_until_agreed(15_000);
        net.assert_steady();
        assert_eq!(net.recover_count(0), 0, "seed {seed}");
    }
}

#[test]
fn who_waited_long_without_being_ready_joins_those_who_are() {
    for seed in seeds(20) {
        let mut net = Net::new(seed);
        for at in 0..6 {
            net.add(Role::Active, at >= 3);
        }
        net.split(&[0, 0, 0, 1, 1, 1], false);
        net.run_for(60_000 + seed * 100);
        net.run_until(3_000, |net| net.agree(&[0, 1, 2]) && net.agree(&[3, 4, 5]));
        net.heal();
        net.run_for(2_000);
        assert!(net.list(0).iter().all(|name| Net::index(name) >= 3), "{}", net.views());
        net.run_until_agreed(5_000);
        net.assert_steady();
        assert_eq!(net.recover_count(0), 0, "seed {seed}");
    }
}

#[test]
fn passive_members_know_the_list_and_never_ping() {
    for seed in seeds(20) {
        let mut net = Net::new(seed);
        for at in 0..7_u32 {
            net.add(if at.is_multiple_of(2) { Role::Passive } else { Role::Active }, true);
        }
        net.run_until_agreed(8_000);
        net.assert_steady();
        for at in [1, 3, 5] {
            net.stop(at);
        }
        net.run_for(20_000);
        assert!(net.live().all(|at| net.list(at).is_empty()), "{}", net.views());
        net.start(3, true);
        net.run_until_agreed(3_000);
        net.actor_mut(3).set_role(Role::Passive);
        net.nodes[3].role = Role::Passive;
        net.tick_now(3);
        assert!(!net.actor(3).is_tagged());
        net.run_for(20_000);
        assert!(net.live().all(|at| net.list(at).is_empty()), "{}", net.views());
        assert_eq!(net.recover_count(0), 0);
    }
}

#[test]
fn a_greater_configuration_reaches_all_and_is_followed() {
    for seed in seeds(30) {
        let mut net = Net::with(seed, 12);
        net.add(Role::Passive, true);
        net.run_until_agreed(8_000);
        net.channel = Channel::ROUGH;
        // Whoever it is, on the list or not.
        let from = seed as usize % 12;
        let shared = ConfigVersion { version: 7, cycle_ms: 500, gap_ms: 150, list_len: 6 };
        assert_eq!(net.actor_mut(from).adopt_config(shared), Ok(true));
        assert_eq!(net.actor_mut(from).adopt_config(shared), Ok(false));
        net.run_for(5_000);
        assert!(net.live().all(|at| *net.actor(at).config() == shared), "seed {seed}");
        net.channel = Channel::CALM;
        net.run_for(5_000);
        net.run_until_agreed(5_000);
        net.assert_steady();
        assert_eq!(net.list(0).len(), 6);
        let shorter = ConfigVersion { version: 8, list_len: 2, ..shared };
        assert_eq!(net.actor_mut(from).adopt_config(shorter), Ok(true));
        net.run_for(2_000);
        net.assert_steady();
        assert_eq!(net.list(0).len(), 2);
        assert_eq!(net.recover_count(0), 0);
    }
}

#[test]
fn two_configurations_of_one_version_are_decided_alike_everywhere() {
    let mut net = Net::with(3, 6);
    net.run_until_agreed(8_000);
    let one = ConfigVersion { version: 7, list_len: 3, ..ConfigVersion::DEFAULT };
    let other = ConfigVersion { version: 7, list_len: 5, ..ConfigVersion::DEFAULT };
    net.actor_mut(0).adopt_config(other).unwrap();
    net.actor_mut(5).adopt_config(one).unwrap();
    net.run_for(5_000);
    assert!(net.live().all(|at| *net.actor(at).config() == other));
}

#[test]
fn silence_of_each_on_the_list_is_known() {
    let mut net = Net::with(3, 4);
    net.run_until_agreed(8_000);
    net.run_for(10_000);
    let seer = 0;
    let victim = (1..4).find(|at| !net.actor(*at).is_tagged()).unwrap();
    net.run_with(6_000, |net| {
        let turn_ms = 1_000 + 200;
        for member in net.actor(seer).list_members(net.now()) {
            assert!(member.silent_ms < 4 * turn_ms, "{member:?}");
            assert!(member.name != net.nodes[seer].name || member.silent_ms == 0);
        }
    });
    net.stop(victim);
    let stopped_at = net.now();
    net.run_for(2_500);
    let name = net.nodes[victim].name.clone();
    let silent = net.actor(seer).list_members(net.now()).find(|m| m.name == name).unwrap();
    assert!(silent.silent_ms >= net.now() - stopped_at);
}

#[test]
fn a_frozen_member_listens_before_it_does_anything() {
    for seed in seeds(20) {
        let mut net = Net::with(seed, 5);
        net.run_until_agreed(8_000);
        net.run_for(3_000);
        let holder = net.live().find(|at| net.actor(*at).is_tagged());
        let Some(holder) = holder else { continue };
        net.freeze(holder, true);
        net.run_for(30_000);
        net.freeze(holder, false);
        net.run_for(100);
        assert!(!net.actor(holder).is_tagged());
        net.run_until_agreed(10_000);
        net.assert_steady();
        assert_eq!(net.recover_count(0), 0, "seed {seed}");
    }
}

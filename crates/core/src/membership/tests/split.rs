//! What was cut apart finds together again, however long it took.

use super::super::*;
use super::net::Net;
use crate::membership::members::peers::RECENTLY_LOST_MS;

#[test]
fn two_nodes_that_lost_each_other_for_longer_than_foca_remembers_meet_again() {
    for seed in 0..10 {
        let mut net = Net::new(seed);
        net.config.remove_down_after_ms = 20_000;
        net.grow(2);
        net.run_until_all_see_all(2_000);
        net.split(1);
        net.run_for(60_000);
        assert_eq!((net.view(0).len(), net.view(1).len()), (0, 0));
        assert_eq!(net.swim(0).members(), [], "nobody is even remembered as down");
        assert_eq!(net.swim(0).peers()[0].addr, net.nodes[1].addr);
        net.heal();
        net.run_until_all_see_all(3_000);
    }
}

#[test]
fn halves_find_each_other_within_5_seconds() {
    for (count, part, seeds) in [(5, 2, 20), (3, 1, 10), (48, 24, 1), (48, 1, 1)] {
        for seed in 0..seeds {
            let mut net = Net::new(seed);
            net.config.remove_down_after_ms = 15_000;
            net.grow(count);
            net.run_until_all_see_all(5_000);
            net.split(part);
            // One node alone probes one of the others at a time until it knows that all are gone.
            net.run_for(if count < 10 && seed % 2 == 0 { 12_000 } else { 40_000 } + seed * 77);
            assert_eq!(net.view(0).len(), part - 1);
            assert_eq!(net.view(count - 1).len(), count - part - 1);
            net.heal();
            net.run_until_all_see_all(5_000);
        }
    }
}

#[test]
fn many_parts_find_together_under_loss() {
    let mut net = Net::joined(7, 5);
    net.loss = 0.02;
    (1..5).for_each(|count| net.split(count));
    net.run_for(30_000);
    assert!((0..5).all(|at| net.view(at).is_empty()));
    net.heal();
    net.run_until_all_see_all(8_000);
}

#[test]
fn a_direction_that_is_cut_between_two_of_five_is_worked_around() {
    let mut net = Net::joined(2, 5);
    net.run_for(3_000);
    let since = net.now();
    net.cut(1, 2);
    net.run_for(120_000);
    assert!((0..5).all(|at| net.reports(at, since).is_empty()));
}

#[test]
fn two_nodes_with_one_direction_cut_meet_again() {
    let mut net = Net::joined(2, 2);
    net.cut(0, 1);
    net.run_for(60_000);
    assert!(net.view(0).is_empty() || net.view(1).is_empty());
    net.heal();
    net.run_until_all_see_all(3_000);
    let healed = net.now() + 1;
    net.run_for(20_000);
    assert!(net.all_see_all());
    assert!((0..2).all(|at| net.reports(at, healed).is_empty()));
}

#[test]
fn a_stored_list_of_peers_brings_a_restarted_network_together() {
    let mut net = Net::joined(3, 3);
    let lists: Vec<_> = (0..3).map(|at| net.swim(at).peers()).collect();
    assert!(lists.iter().all(|list| list.len() == 2 && list.iter().all(|peer| peer.was_up)));
    (0..3).for_each(|at| net.kill(at));
    net.run_for(60_000);
    for (at, list) in lists.into_iter().enumerate() {
        net.boot(at, net.config.clone(), &format!("n{at}"));
        for peer in list {
            net.give(at, SwimInput::KnownPeer { name: peer.name, addr: peer.addr });
        }
    }
    net.run_until_all_see_all(3_000);
}

#[test]
fn a_peer_that_is_forgotten_is_not_called_again() {
    let mut net = Net::joined(3, 2);
    net.kill(1);
    net.run_for(10_000);
    let gone = net.nodes[1].addr;
    net.give(0, SwimInput::ForgetPeer(gone));
    net.tap = Some(Vec::new());
    net.run_for(10_000);
    assert_eq!(net.tap, Some(Vec::new()));
    assert_eq!(net.swim(0).peers(), []);
}

/// In one half, somebody starts a copy of a node's directory elsewhere and stops it again after a while; in the other half that
/// node itself lives on. Who met the copy has no address of the node any more, and believes that it is down; and
/// the node remembers that the other one left, which no later life of it beats. Only third ones know better.
#[test]
fn those_that_have_nobody_s_address_meet_through_others() {
    for seed in 0..10 {
        let mut net = Net::joined(seed, 4);
        net.give(3, SwimInput::Leave);
        net.run_for(300);
        net.kill(3);
        net.run_for(10_000);
        net.restart(2);
        net.run_until_all_see_all(3_000);
        net.split(2);
        net.boot(3, net.config.clone(), "n3");
        net.join(3, 2);
        net.run_for(20_000);
        assert_eq!((net.view(2), net.view(3)), (vec!["n3".into()], vec!["n2".into()]));
        let copy = net.start("n1");
        net.split(2);
        net.join(copy, 3);
        net.run_for(3_000);
        assert_eq!(net.view(3), ["n2", "n1"]);
        net.run_for(RECENTLY_LOST_MS);
        net.give(copy, SwimInput::Leave);
        net.run_for(300);
        net.kill(copy);
        net.run_for(3_000);
        // Nobody else remembers anything: those two are up for both.
        net.restart(0);
        net.restart(2);
        net.join(2, 3);
        net.run_for(3_000);
        let original = net.nodes[1].addr;
        assert!(net.swim(3).peers().iter().all(|peer| peer.addr != original), "seed {seed}");
        net.heal();
        net.run_until_all_see_all(15_000);
    }
}

/// Kills, restarts, stops, cuts and goodbyes in any order; whoever is there in the end is seen by
/// all. The network itself checks that every change is reported once.
#[test]
fn whatever_happens_those_that_live_find_together() {
    use rand::{RngExt, SeedableRng};
    for seed in 0..8 {
        let mut net = Net::joined(seed, 6);
        let mut rng = rand::rngs::SmallRng::seed_from_u64(seed);
        net.loss = 0.05;
        for _ in 0..25 {
            let (a, b) = (rng.random_range(0..6), rng.random_range(0..6));
            match rng.random_range(0..7) {
                0 => net.kill(a),
                1 => drop(net.restart(a)),
                2 => net.stop(a),
                3 => net.go_on(a),
                4 => net.cut(a, b),
                5 => net.heal(),
                _ => {
                    net.give(a, SwimInput::Leave);
                    net.run_for(300);
                    net.kill(a);
                }
            }
            let pause = rng.random_range(0..8_000);
            net.run_for(pause);
        }
        net.heal();
        for at in 0..6 {
            net.go_on(at);
            if net.nodes[at].swim.is_none() {
                net.restart(at);
            }
        }
        net.run_until_all_see_all(15_000);
    }
}

//! A name has one live node; the joiner is refused.

use super::super::*;
use super::net::Net;
use crate::membership::members::peers::RECENTLY_LOST_MS;
use crate::membership::receive::REFUSAL_PATIENCE_MS;
use crate::model::ids::Millis;

fn refused(net: &Net, at: usize) -> Option<Millis> {
    let is_refusal = |output: &SwimOutput| matches!(output, SwimOutput::Refused { .. });
    net.nodes[at].log.iter().find(|(_, output)| is_refusal(output)).map(|(at, _)| *at)
}

#[test]
fn a_joiner_with_the_name_of_a_live_node_is_refused_and_the_old_one_stays() {
    for seed in 0..10 {
        // It joins through the holder of the name, or through another.
        for through in [0, 1] {
            let mut net = Net::joined(seed, 4);
            net.run_for(6_000);
            let since = net.now();
            let joiner = net.start("n1");
            net.join(joiner, through);
            assert!(net.run_until(since + 1_500, |net| refused(net, joiner).is_some()).is_some());
            let (_, refusal) = net.nodes[joiner].log.last().unwrap();
            let SwimOutput::Refused { name, incarnation, holder } = refusal else { panic!() };
            assert_eq!((name.as_str(), *holder), ("n1", net.nodes[1].addr));
            assert_eq!(*incarnation, net.swim(1).identity().incarnation);
            net.run_for(20_000);
            assert!((0..4).all(|at| net.reports(at, since).is_empty()));
            assert_eq!(net.swim(joiner).next_deadline(), None, "and it is silent");
        }
    }
}

#[test]
fn the_first_node_keeps_its_name_when_it_is_alone() {
    for seed in 0..10 {
        let mut net = Net::new(seed);
        net.start("a");
        let joiner = net.start("a");
        net.join(joiner, 0);
        net.run_for(3_000);
        assert!(refused(&net, joiner).is_some());
        assert_eq!(net.reports(0, 0), [""; 0]);
    }
}

#[test]
fn a_node_that_died_makes_room_for_its_name_at_another_address() {
    for seed in 0..10 {
        let mut net = Net::joined(seed, 4);
        net.run_for(6_000);
        let since = net.now();
        net.kill(3);
        let heir = net.start("n3");
        net.join(heir, 0);
        net.run_until_all_see_all(10_000);
        assert_eq!(refused(&net, heir), None);
        for at in 0..3 {
            assert_eq!(net.reports(at, since), ["n3 Failed", "n3 up"], "in this order");
        }
        let old = net.nodes[3].addr;
        let is_known = |net: &Net| net.swim(0).peers().iter().any(|peer| peer.addr == old);
        assert!(is_known(&net), "it may come back there");
        // And until it is its turn to be called.
        net.run_for(RECENTLY_LOST_MS + 10_000);
        assert!(!is_known(&net), "it has moved");
    }
}

#[test]
fn a_joiner_that_cannot_reach_the_holder_is_refused_after_a_while() {
    let mut net = Net::joined(1, 4);
    net.run_for(6_000);
    let since = net.now();
    let joiner = net.start("n1");
    net.cut(1, joiner);
    net.cut(joiner, 1);
    net.join(joiner, 0);
    net.run_for(REFUSAL_PATIENCE_MS + 3_000);
    assert!(refused(&net, joiner).unwrap() >= since + REFUSAL_PATIENCE_MS);
    assert!((0..4).all(|at| net.reports(at, since).is_empty()));
}

#[test]
fn of_two_halves_with_one_name_each_exactly_one_keeps_it() {
    for seed in 0..20 {
        let mut net = Net::new(seed);
        let names = ["a", "b", "x", "c", "d", "x"];
        for name in names {
            net.start(name);
        }
        net.split(3);
        for (at, to) in [(1, 0), (2, 0), (4, 3), (5, 3)] {
            net.join(at, to);
        }
        net.run_for(20_000);
        net.heal();
        net.join(1, 4);
        let one_is_refused = |net: &Net| refused(net, 2).is_some() != refused(net, 5).is_some();
        assert!(net.run_until(net.now() + 5_000, one_is_refused).is_some(), "seed {seed}");
        net.kill(if refused(&net, 2).is_some() { 2 } else { 5 });
        net.run_until_all_see_all(10_000);
        net.run_for(20_000);
        assert!(one_is_refused(&net), "and the other stays");
        assert_eq!(net.view(0).iter().filter(|name| *name == "x").count(), 1);
    }
}

#[test]
fn a_process_that_was_stopped_while_another_took_its_name_elsewhere_has_to_go() {
    let mut net = Net::joined(1, 4);
    net.run_for(6_000);
    net.stop(3);
    net.times_until_down("n3", 8_000);
    let heir = net.start("n3");
    net.join(heir, 0);
    net.run_for(10_000);
    net.go_on(3);
    net.run_for(5_000);
    assert!(refused(&net, 3).is_some());
    assert_eq!(refused(&net, heir), None);
    assert_eq!(net.view(0), ["n1", "n2", "n3"]);
}

#[test]
fn a_process_that_stood_still_comes_back_when_who_took_its_name_meanwhile_is_gone() {
    for seed in 0..10 {
        let mut net = Net::joined(seed, 4);
        net.run_for(6_000);
        net.stop(3);
        net.times_until_down("n3", 8_000);
        let heir = net.start("n3");
        net.join(heir, 0);
        net.run_for(1_000);
        // It hears that it is down, takes another identity, and is refused because of its name.
        net.go_on(3);
        net.run_for(300);
        net.kill(heir);
        net.run_until_all_see_all(20_000);
        assert_eq!(refused(&net, 3), None);
    }
}

#[test]
fn a_process_that_stood_still_while_all_others_went_finds_who_came_in_their_place() {
    for seed in 0..10 {
        let mut net = Net::joined(seed, 3);
        net.run_for(6_000);
        net.stop(0);
        net.times_until_down("n0", 8_000);
        net.kill(1);
        net.run_for(8_000);
        let moved = net.start("n1");
        net.join(moved, 2);
        let namesake = net.start("n0");
        net.join(namesake, 2);
        net.run_for(1_000);
        // It takes another identity, and is refused because of its name; then nobody of before is left.
        net.go_on(0);
        net.run_for(300);
        net.kill(namesake);
        net.kill(2);
        // A link between the two tells them where the other one is.
        for (at, other) in [(0, moved), (moved, 0)] {
            let (name, addr) = (net.swim(other).identity().name.clone(), net.nodes[other].addr);
            net.give(at, SwimInput::KnownPeer { name: Some(name), addr });
        }
        net.run_until_all_see_all(30_000);
    }
}

#[test]
fn a_restarted_node_that_finds_its_name_taken_is_the_joiner() {
    for seed in 0..10 {
        let mut net = Net::joined(seed, 4);
        let peers = net.swim(3).peers();
        net.kill(3);
        net.times_until_down("n3", 8_000);
        let heir = net.start("n3");
        net.join(heir, 0);
        net.run_for(10_000);
        net.boot(3, net.config.clone(), "n3");
        for peer in peers {
            net.give(3, SwimInput::KnownPeer { name: peer.name, addr: peer.addr });
        }
        net.run_for(5_000);
        assert!(refused(&net, 3).is_some());
        assert_eq!(refused(&net, heir), None);
    }
}

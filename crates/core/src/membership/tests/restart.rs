//! A process that starts again at its old address gets in, whatever its incarnation.

use super::super::*;
use super::net::Net;
use crate::model::ids::{Incarnation, Millis};

/// Everybody but `at` reported exactly this about it since then.
fn everybody_reported(net: &Net, at: usize, since: Millis, expected: &[&str]) -> bool {
    (0..net.nodes.len())
        .filter(|other| *other != at)
        .all(|other| net.reports(other, since) == expected)
}

#[test]
fn a_restart_is_one_node_down_and_another_up_within_seconds() {
    let mut learnt = 0;
    for seed in 0..20 {
        let mut net = Net::joined(seed, 5);
        net.run_for(3_000 + seed * 37);
        let since = net.now();
        let before = net.swim(3).identity().incarnation;
        // At once: nobody has noticed yet that the old process is gone.
        let incarnation = net.restart(3);
        let seen = |net: &Net| everybody_reported(net, 3, since, &["n3 Replaced", "n3 up"]);
        assert!(net.run_until(since + 1_500, seen).is_some(), "seed {seed}");
        net.run_until_all_see_all(1_500);
        assert!(net.swim(0).members().iter().any(|member| member.incarnation == incarnation));
        learnt += usize::from(incarnation < before && net.swim(3).identity().generation > 0);
        net.run_for(20_000);
        assert!(everybody_reported(&net, 3, since, &["n3 Replaced", "n3 up"]), "and no more");
    }
    assert!((5..=15).contains(&learnt), "both kinds of incarnation were met: {learnt}");
}

#[test]
fn restarts_get_in_above_any_generation() {
    let mut net = Net::joined(1, 3);
    // Being declared down again and again makes the generation rise.
    for _ in 0..4 {
        net.stop(2);
        net.times_until_down("n2", 8_000);
        net.go_on(2);
        net.run_until_all_see_all(3_000);
    }
    let generation = net.swim(2).identity().generation;
    assert!(generation >= 4);
    net.boot_as(2, net.config.clone(), "n2", Incarnation(0)); // the lowest incarnation there is
    net.join(2, 0);
    net.run_until_all_see_all(1_500);
    assert!(net.swim(2).identity().generation > generation);
    assert!(net.swim(0).members().iter().any(|member| member.incarnation == Incarnation(0)));
}

#[test]
fn a_restart_after_it_was_seen_down_is_only_an_up() {
    for seed in 0..10 {
        let mut net = Net::joined(seed, 3);
        net.kill(1);
        net.times_until_down("n1", 8_000);
        net.run_for(1_000);
        let since = net.now();
        net.restart(1);
        net.run_until_all_see_all(1_500);
        net.run_for(10_000);
        assert!(everybody_reported(&net, 1, since, &["n1 up"]));
    }
}

#[test]
fn a_clean_stop_may_come_back_with_the_same_incarnation() {
    let mut net = Net::joined(2, 3);
    let incarnation = net.swim(1).identity().incarnation;
    let since = net.now() + 1;
    net.give(1, SwimInput::Leave);
    net.run_for(500);
    net.boot_as(1, net.config.clone(), "n1", incarnation);
    net.join(1, 0);
    net.run_until_all_see_all(1_500);
    net.run_for(10_000);
    assert!(everybody_reported(&net, 1, since, &["n1 Left", "n1 up"]));
}

#[test]
fn a_node_of_another_name_may_take_over_an_address() {
    let mut net = Net::joined(2, 3);
    let since = net.now() + 1;
    net.boot(1, net.config.clone(), "other");
    net.join(1, 0);
    let seen = |net: &Net| everybody_reported(net, 1, since, &["n1 Replaced", "other up"]);
    assert!(net.run_until(since + 1_500, seen).is_some());
    net.run_for(10_000);
    assert!(seen(&net));
    assert_eq!(net.view(0), ["other", "n2"]);
}

#[test]
fn a_restarted_first_node_is_found_by_the_others() {
    // It knows nobody and joins nobody; the others call it.
    let mut net = Net::joined(6, 3);
    net.kill(0);
    net.times_until_down("n0", 8_000);
    net.boot(0, net.config.clone(), "n0");
    net.run_until_all_see_all(4_000);
}

#[test]
fn a_node_can_be_joined_at_an_address_that_it_does_not_advertise() {
    let mut net = Net::new(1);
    net.start("n0");
    let alias = "127.0.0.1:27587".parse().unwrap();
    net.aliases.insert(alias, 0);
    net.start("n1");
    net.give(1, SwimInput::Join(alias));
    net.run_until_all_see_all(1_500);
    net.run_for(60_000);
    assert_eq!(net.reports(0, 0), ["n1 up"]);
    assert_eq!(net.reports(1, 0), ["n0 up"]);
}

//! Crashes are seen by all in time, and nothing else is taken for one.

use std::net::SocketAddr;

use super::super::*;
use super::net::Net;
use crate::model::ids::Millis;

/// "A killed member is seen as down by all within 8 s."
const HARD_BOUND_MS: Millis = 8_000;

/// How long everybody needs to see that one of `count` nodes is dead, over many seeds, sorted.
fn crash_times(count: usize, seeds: u64, loss: f64) -> Vec<Millis> {
    let mut times = Vec::new();
    for seed in 0..seeds {
        let mut net = Net::joined(seed, count);
        net.loss = loss;
        // Crashes fall on different points of the probe period.
        net.run_for(6_000 + seed * 37);
        net.kill(count - 1);
        times.extend(net.times_until_down(&format!("n{}", count - 1), HARD_BOUND_MS));
    }
    times.sort_unstable();
    times
}

fn median(times: &[Millis]) -> Millis {
    times[times.len() / 2]
}

fn max(times: &[Millis]) -> Millis {
    *times.last().unwrap()
}

#[test]
fn a_crash_in_a_small_network_is_seen_by_all_within_5_seconds() {
    for (count, seeds) in [(2, 60), (3, 60), (5, 60)] {
        for loss in [0.0, 0.02] {
            let times = crash_times(count, seeds, loss);
            println!("{count} nodes, loss {loss}: median {}, max {}", median(&times), max(&times));
            assert!(median(&times) <= 4_000, "{count} nodes: median {}", median(&times));
            assert!(max(&times) <= 5_000, "{count} nodes: max {}", max(&times));
        }
    }
}

#[test]
fn a_crash_in_a_large_network_is_seen_by_all_within_8_seconds() {
    for (count, seeds) in [(10, 8), (48, 4), (100, 1)] {
        let times = crash_times(count, seeds, 0.02);
        println!("{count} nodes, loss 0.02: median {}, max {}", median(&times), max(&times));
    }
}

#[test]
fn everybody_sees_everybody_soon_after_joining() {
    for (count, within) in [(2, 100), (3, 500), (5, 1_000), (48, 3_000), (100, 5_000)] {
        let mut net = Net::new(3);
        net.grow(count);
        let took = net.run_until_all_see_all(within);
        println!("{count} nodes join at once: {took} ms");
    }
}

#[test]
fn at_2_percent_loss_nobody_is_taken_for_dead_in_an_hour() {
    for (count, seeds) in [(2, 1), (3, 1), (5, 3)] {
        for seed in 0..seeds {
            let mut net = Net::joined(seed, count);
            net.loss = 0.02;
            let since = net.now() + 1;
            net.run_for(3_600_000);
            for at in 0..count {
                assert_eq!(net.reports(at, since), [""; 0], "{count} nodes, seed {seed}");
                assert_eq!(net.swim(at).counters().renewals, 0);
            }
        }
    }
}

/// Shows that the test above could fail: losses do reach the machines and do count.
#[test]
fn where_nearly_everything_is_lost_healthy_nodes_do_go_down() {
    let mut net = Net::joined(1, 3);
    net.loss = 0.9;
    let since = net.now() + 1;
    net.run_for(60_000);
    assert!(net.reports(0, since).iter().any(|report| report.ends_with("Failed")));
    net.loss = 0.0;
    net.run_until_all_see_all(5_000);
}

#[test]
fn a_refuted_suspicion_does_not_make_a_healthy_node_renew_itself() {
    // With two nodes there is no indirect probe, so every lost ping raises a suspicion.
    let mut net = Net::joined(4, 2);
    net.loss = 0.2;
    let (mut suspected, end) = (0, net.now() + 120_000);
    let is_suspect = |net: &Net| net.swim(0).members()[0].state == MemberState::Suspect;
    while net.run_until(end, is_suspect).is_some() {
        suspected += 1;
        net.run_until(end, |net| !is_suspect(net));
    }
    assert!(suspected > 5, "only {suspected} suspicions");
    assert_eq!(net.swim(1).counters().renewals, 0);
    assert_eq!(net.reports(0, 1_100), [""; 0]);
}

#[test]
fn a_stopped_process_is_seen_as_down_and_takes_nobody_for_dead_when_it_goes_on() {
    for seed in 0..10 {
        let mut net = Net::joined(seed, 5);
        net.run_for(6_000 + seed * 37);
        let since = net.now();
        net.stop(2);
        net.times_until_down("n2", HARD_BOUND_MS);
        net.run_for(12_000);
        net.go_on(2);
        net.run_until_all_see_all(3_000);
        net.run_for(10_000);
        assert_eq!(net.reports(2, since), ["renewed"]);
        assert_eq!(net.reports(0, since), ["n2 Failed", "n2 up"]);
    }
}

#[test]
fn a_suspicion_is_not_held_against_anybody_by_a_process_that_stood_still_meanwhile() {
    for seed in 0..10 {
        let mut net = Net::joined(seed, 2);
        net.run_for(6_000);
        let since = net.now();
        let is_suspect = |net: &Net| net.swim(0).members()[0].state == MemberState::Suspect;
        net.split(1);
        assert!(net.run_until(since + 5_000, is_suspect).is_some());
        // foca has said so as often as it will, and nothing got through.
        net.run_for(2_000);
        // It stops before an answer can come; the suspect's time is up long before it goes on.
        net.heal();
        net.stop(0);
        net.run_for(20_000);
        net.go_on(0);
        assert!(is_suspect(&net));
        assert!(net.run_until(net.now() + 5_000, |net| !is_suspect(net)).is_some());
        net.run_until_all_see_all(3_000);
        net.run_for(10_000);
        assert_eq!(net.reports(0, since), ["renewed"]);
    }
}

#[test]
fn a_leaving_node_is_seen_to_leave_at_once_and_is_not_called_again() {
    for seed in 0..10 {
        let mut net = Net::joined(seed, 5);
        net.loss = 0.02;
        net.run_for(3_000);
        let since = net.now();
        net.give(3, SwimInput::Leave);
        let left = |net: &Net| [0, 1, 2, 4].iter().all(|at| net.reports(*at, since) == ["n3 Left"]);
        assert!(net.run_until(since + 1_000, left).is_some());
        assert!(
            net.run_until(since + 1_000, |net| net.swim(3).next_deadline().is_none()).is_some()
        );
        assert_eq!(net.swim(0).members()[2].state, MemberState::Left);
        net.kill(3);
        net.run_for(500);

        net.tap = Some(Vec::new());
        net.run_for(30_000);
        let gone = net.nodes[3].addr;
        assert!(net.tap.take().unwrap().iter().all(|(_, to, _)| *to != gone));
        assert!(net.swim(0).peers().iter().all(|peer| peer.addr != gone));

        net.restart(3);
        net.run_until_all_see_all(5_000);
        net.run_for(3_000);
        assert_eq!(net.reports(0, since), ["n3 Left", "n3 up"]);
    }
}

#[test]
fn who_fails_while_leaving_still_left() {
    // Its goodbyes reach one member only; the others hear of it from that one.
    let mut net = Net::joined(5, 5);
    net.run_for(3_000);
    let since = net.now();
    (1..4).for_each(|at| net.cut(4, at));
    net.give(4, SwimInput::Leave);
    net.run_for(1_000);
    for at in 0..4 {
        assert_eq!(net.reports(at, since), ["n4 Left"]);
    }
}

#[test]
fn a_goodbye_that_was_lost_is_repeated_to_whoever_asks() {
    let mut net = Net::joined(5, 2);
    net.run_for(3_000);
    let since = net.now();
    net.cut(1, 0);
    net.give(1, SwimInput::Leave);
    net.run_for(1_000);
    assert_eq!(net.reports(0, since), [""; 0]);
    net.heal();
    net.run_for(1_000);
    assert_eq!(net.reports(0, since), ["n1 Left"]);
}

#[test]
fn the_same_seed_gives_the_same_story() {
    let story = || {
        let mut net = Net::joined(9, 5);
        net.loss = 0.1;
        net.split(2);
        net.run_for(10_000);
        net.heal();
        net.run_for(10_000);
        let logs: Vec<_> = net.nodes.iter().map(|node| node.log.clone()).collect();
        (logs, net.bytes_sent)
    };
    assert_eq!(story(), story());
}

#[test]
fn a_network_at_rest_is_quiet() {
    for count in [2, 5, 48] {
        let mut net = Net::joined(1, count);
        net.run_for(15_000);
        net.bytes_sent = 0;
        net.run_for(30_000);
        let rate = net.bytes_sent / 30 / count as u64;
        println!("{count} nodes at rest: {rate} B/s per node");
        assert!(rate < 600, "{count} nodes: {rate} B/s per node");
    }
}

/// Its calls arrive, because it calls others at addresses that they do not advertise; its answers do not.
#[test]
fn one_that_can_call_others_and_not_answer_them_does_not_come_up_again_and_again() {
    for seed in 0..10 {
        let mut net = Net::joined(seed, 3);
        let alias = |at: u8| SocketAddr::from(([10, 9, 9, at], 27587));
        net.aliases = (0..3u8).map(|at| (alias(at), usize::from(at))).collect();
        let since = net.now();
        net.by_alias_only = Some(net.start("n3"));
        for at in 0..3 {
            net.give(3, SwimInput::Join(alias(at)));
        }
        net.run_for(120_000);
        for at in 0..3 {
            let mut reports = net.reports(at, since);
            reports.retain(|report| report.starts_with("n3"));
            assert_eq!(reports, ["n3 up", "n3 Failed"], "seed {seed}, n{at}");
        }
        // Nothing is held against it.
        net.by_alias_only = None;
        net.run_until_all_see_all(10_000);
        // Nor against one that is started anew, and knows no other address.
        net.kill(3);
        net.times_until_down("n3", 8_000);
        net.boot(3, net.config.clone(), "n3");
        net.give(3, SwimInput::Join(alias(1)));
        net.run_until_all_see_all(3_000);
    }
}

//! Who is told to others, as a new link does it, comes up as soon as datagrams get through, whatever happened to it before.
//! Without that, members would be linked, and not up, for as long as the link lasts. Where what was told once can be lost, or
//! its turn is far off, it is told again, as a link does that stands.

use std::net::SocketAddr;

use super::super::*;
use super::net::Net;
use crate::membership::wire::datagram::{Envelope, Kind, encode_bye};
use crate::model::ids::Millis;

/// An address at which nobody came up in ten calls is called once a minute; and the calls of both sides count.
const SOON_MS: Millis = 65_000;
/// More than a day's troubles last: members that are down are forgotten after 10 minutes.
const LONG_MS: Millis = 20 * 60_000;

/// Both ends of a new link tell their machine who is at the other end.
fn link(net: &mut Net, a: usize, b: usize) {
    for (at, other) in [(a, b), (b, a)] {
        let (name, addr) = (net.swim(other).identity().name.clone(), net.nodes[other].addr);
        net.give(at, SwimInput::KnownPeer { name: Some(name), addr });
    }
}

/// How often a link that stands tells of a peer that is not up.
const AGAIN_MS: Millis = 10_000;

/// Lets time pass up to `within`, while both ends of a link tell of each other again and again.
fn run_linked_until_all_see_all(net: &mut Net, a: usize, b: usize, within: Millis) {
    let end = net.now() + within;
    while net.run_until(net.now() + AGAIN_MS, Net::all_see_all).is_none() {
        assert!(net.now() < end, "not all see all: {:?} and {:?}", net.view(a), net.view(b));
        for (at, other) in [(a, b), (b, a)] {
            let (name, addr) = (net.swim(other).identity().name.clone(), net.nodes[other].addr);
            net.give(at, SwimInput::Linked { name, addr });
        }
    }
}

#[test]
fn a_linked_peer_whose_first_call_was_lost_does_not_wait_for_hundreds_of_addresses_to_be_called() {
    for (seed, count) in [(1, 2), (2, 2), (3, 2)] {
        let mut net = Net::new(seed);
        (0..count).for_each(|at| _ = net.start(&format!("n{at}")));
        for at in 0..count {
            for away in 0..500u16 {
                let [high, low] = away.to_be_bytes();
                let addr = SocketAddr::from(([10, 1, high, low], 27587));
                net.give(at, SwimInput::KnownPeer { name: None, addr });
            }
        }
        net.split(1);
        link(&mut net, 0, 1);
        net.run_for(5_000);
        net.heal();
        run_linked_until_all_see_all(&mut net, 0, 1, SOON_MS);
    }
}

#[test]
fn goodbyes_of_the_lives_before_that_come_after_the_link_keep_neither_of_both_out() {
    for seed in 0..10 {
        let mut net = Net::joined(seed, 2);
        let before = [0, 1].map(|at| net.swim(at).identity().leaving());
        for at in [0, 1] {
            net.kill(at);
            net.boot(at, net.config.clone(), &format!("n{at}"));
        }
        link(&mut net, 0, 1);
        let envelope = Envelope::new(NetworkName::new("test").unwrap());
        for (from, to) in [(0, 1), (1, 0)] {
            let bytes = envelope.seal(Kind::Bye, &encode_bye(&before[from]).unwrap());
            net.give(to, SwimInput::Datagram { from: net.nodes[from].addr, bytes: &bytes });
        }
        run_linked_until_all_see_all(&mut net, 0, 1, SOON_MS);
    }
}

#[test]
fn of_whom_a_machine_is_told_that_has_just_been_refused_the_next_one_knows() {
    let mut net = Net::joined(1, 2);
    net.give(1, SwimInput::Leave);
    let addr = SocketAddr::from(([10, 1, 0, 1], 27587));
    net.give(1, SwimInput::KnownPeer { name: None, addr });
    assert!(net.swim(1).peers().iter().any(|peer| peer.addr == addr));
}

#[test]
fn an_address_that_cannot_be_called_is_never_on_the_list() {
    for has_left in [false, true] {
        let mut net = Net::joined(1, 2);
        if has_left {
            net.give(1, SwimInput::Leave);
        }
        let before = net.swim(1).peers();
        let name = net.swim(0).identity().name.clone();
        for addr in [net.nodes[1].addr, SocketAddr::from(([239, 1, 1, 1], 27587))] {
            net.give(1, SwimInput::KnownPeer { name: Some(name.clone()), addr });
            net.give(1, SwimInput::Linked { name: name.clone(), addr });
        }
        assert_eq!(net.swim(1).peers(), before, "has left: {has_left}");
    }
}

#[test]
fn one_direction_that_was_cut_for_long_leaves_nobody_out() {
    for (seed, count) in [(1, 2), (2, 2), (3, 3), (4, 3)] {
        let mut net = Net::new(seed);
        (0..count).for_each(|at| _ = net.start(&format!("n{at}")));
        // From the beginning: they have never met.
        for other in 1..count {
            net.cut(0, other);
            link(&mut net, 0, other);
        }
        net.run_for(LONG_MS);
        assert_eq!(net.view(0), [""; 0]);
        net.heal();
        net.run_until_all_see_all(SOON_MS);
    }
}

#[test]
fn datagrams_that_begin_to_get_through_long_after_the_link_bring_the_member_up() {
    for (seed, count) in [(1, 2), (2, 3), (3, 4)] {
        let mut net = Net::joined(seed, count);
        let late = net.start("late");
        net.split(late);
        (0..late).for_each(|at| link(&mut net, at, late));
        net.run_for(LONG_MS);
        assert_eq!(net.view(late), [""; 0]);
        net.heal();
        net.run_until_all_see_all(SOON_MS);
    }
}

#[test]
fn a_goodbye_of_the_life_before_that_comes_late_does_not_keep_the_next_one_out() {
    for seed in 0..10 {
        // Before the next life is up, and when it is.
        for waits in [0, 5_000] {
            let mut net = Net::joined(seed, 3);
            let before = net.swim(1).identity().leaving();
            net.kill(1);
            net.times_until_down("n1", 8_000);
            net.boot(1, net.config.clone(), "n1");
            [0, 2].into_iter().for_each(|at| link(&mut net, 1, at));
            net.run_for(waits);
            let envelope = Envelope::new(NetworkName::new("test").unwrap());
            let bye = envelope.seal(Kind::Bye, &encode_bye(&before).unwrap());
            for to in [0, 2] {
                let to = net.nodes[to].addr;
                net.send(1, to, bye.clone());
            }
            net.run_for(10);
            net.run_until_all_see_all(SOON_MS);
            net.run_for(20_000);
            assert!(net.all_see_all());
        }
    }
}

#[test]
fn a_member_that_moves_away_and_back_while_it_still_counts_as_up_elsewhere_comes_up() {
    for seed in 0..10 {
        let mut net = Net::joined(seed, 3);
        net.run_for(6_000);
        let home = 2;
        net.kill(home);
        let away = net.start("n2");
        net.join(away, 0);
        net.run_until_all_see_all(15_000);
        // Long enough for the old address to be forgotten.
        net.run_for(LONG_MS);
        net.kill(away);
        // At once: all still take it for up where it was.
        net.boot(home, net.config.clone(), "n2");
        (0..2).for_each(|at| link(&mut net, at, home));
        net.run_until_all_see_all(SOON_MS);
    }
}

#[test]
fn members_that_were_suspected_while_nearly_all_was_lost_are_up_again_when_nothing_is() {
    for seed in 0..10 {
        let mut net = Net::joined(seed, 4);
        (0..4).for_each(|a| (a + 1..4).for_each(|b| link(&mut net, a, b)));
        net.loss = 0.8;
        net.run_for(LONG_MS + seed * 777);
        net.loss = 0.0;
        net.run_until_all_see_all(SOON_MS);
        net.run_for(60_000);
        assert!(net.all_see_all());
    }
}

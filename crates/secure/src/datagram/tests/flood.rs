//! Somebody without the key who has recorded a network's datagrams for long sends them again, as fast as floods
//! are, from the addresses of its members and of strangers. Members that restart must meet all the same.

use super::simulation::{CALM, FAR, ROUND_MS, Wire, World};
use super::*;

/// Sent again to each node in a millisecond.
const PER_MS: u64 = 3;
const NODES: usize = 4;
const PAIRS: usize = NODES * (NODES - 1);
/// Lives of the nodes that were recorded.
const LIVES: u64 = 6;

/// What is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Asks,
    /// Asks, answers, and all that was ever meant for one of the lives.
    All,
}

/// From where it seems to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sources {
    Members,
    /// Members, and thousands of addresses of nobody.
    All,
}

/// An ask names no receiver, which everybody can see.
fn is_ask(bytes: &[u8]) -> bool {
    seal::read(bytes).is_ok_and(|read| read.nonce.receiver == 0)
}

/// A network that was recorded for some lives, and is well.
fn recorded(wire: Wire, seed: u64) -> World {
    let mut world = World::new(NODES, wire, seed);
    for life in 0..LIVES {
        if life > 0 {
            (0..NODES).for_each(|node| world.restart(node));
        }
        (0..5).for_each(|_| world.round(NODES - 1));
        assert_eq!(world.acknowledged.len(), world.pings);
    }
    world
}

/// A second of it. How much the nodes send each other meanwhile is bounded, whatever comes.
fn flood(world: &mut World, sources: Sources, tape: &[Vec<u8>]) {
    for at in 0..ROUND_MS {
        for to in 0..NODES {
            for _ in 0..PER_MS {
                let bytes = tape[world.below(tape.len() as u64) as usize].clone();
                let source = match sources {
                    Sources::All if world.below(2) == 0 => 100 + world.below(20_000) as u16,
                    _ => ((to as u64 + 1 + world.below(NODES as u64 - 1)) % NODES as u64) as u16,
                };
                world.inject(world.now + at, addr(source), to, bytes);
            }
        }
    }
    let before = world.recorded.len();
    world.round(NODES - 1);
    let sent = world.recorded.len() - before;
    // To each address 10 answers, 10 asks of its own, an answer to each of these, a ping, and its acknowledgement.
    let own = PAIRS * (3 * pace::PER_SECOND_MAX as usize + 2);
    let answered_once = NODES * tape.iter().filter(|bytes| is_ask(bytes)).count();
    assert!(sent <= own + answered_once, "{sent} for {}", PER_MS * ROUND_MS * NODES as u64);
}

/// All that an attacker would send again.
fn tape(world: &World, what: What) -> Vec<Vec<u8>> {
    let all = world.recorded.iter().map(|(_, bytes)| bytes);
    all.filter(|bytes| what == What::All || is_ask(bytes)).cloned().collect()
}

fn every_kind(check: impl Fn(What, Sources, Wire, u64)) {
    let mut seed = 20;
    for what in [What::Asks, What::All] {
        for sources in [Sources::Members, Sources::All] {
            for wire in [CALM, FAR] {
                seed += 1;
                check(what, sources, wire, seed);
            }
        }
    }
}

#[test]
fn a_node_that_restarts_in_a_flood_of_old_datagrams_is_heard_as_soon_as_without_it() {
    every_kind(|what, sources, wire, seed| {
        let mut world = recorded(wire, seed);
        let tape = tape(&world, what);
        flood(&mut world, sources, &tape);
        assert_eq!(world.acknowledged.len(), world.pings, "{what:?} {sources:?}: before");
        world.restart(0);
        flood(&mut world, sources, &tape);
        for round in 2..5 {
            flood(&mut world, sources, &tape);
            let (heard, pings) = (world.acknowledged.len(), world.pings);
            assert_eq!(heard, pings, "{what:?} from {sources:?}, round {round}");
        }
    });
}

#[test]
fn nodes_that_all_restart_in_a_flood_of_old_datagrams_hear_each_other_at_once() {
    every_kind(|what, sources, wire, seed| {
        let mut world = recorded(wire, seed);
        let tape = tape(&world, what);
        (0..NODES).for_each(|node| world.restart(node));
        flood(&mut world, sources, &tape);
        for round in 2..5 {
            flood(&mut world, sources, &tape);
            let (heard, pings) = (world.acknowledged.len(), world.pings);
            assert_eq!(heard, pings, "{what:?} from {sources:?}, round {round}");
        }
    });
}

/// The `ask`s of many lives of a node at A, one of each, to whomever.
fn asks(lives: std::ops::Range<u64>) -> Vec<Vec<u8>> {
    lives.map(|life| only(seal(&mut door(100 + life), addr(B), "x", 0))).collect()
}

/// How many answers a door gives to datagrams from that address, and how many questions it asks back.
fn answers(door: &mut DatagramDoor, from: u16, asks: &[Vec<u8>], now: u64) -> usize {
    let mut count = 0;
    for ask in asks {
        let (_, out) = open(door, addr(from), ask, now);
        let is_tell = |answer: &&Outgoing| !is_ask(&answer.bytes);
        assert!(out.iter().all(|answer| answer.bytes.len() <= ask.len()), "no amplification");
        count += out.iter().filter(is_tell).count();
    }
    count
}

#[test]
fn each_ask_that_was_recorded_counts_as_a_new_one_once_and_only_from_a_peer() {
    let (_, mut b) = acquainted();
    let share = pace::PER_SECOND_MAX as usize;
    let recorded = asks(0..500);
    // To a stranger go no more, however many different ones there are.
    assert_eq!(answers(&mut b, 500, &recorded, 1_000), share);
    let recorded = asks(500..1_000);
    assert_eq!(answers(&mut b, A, &recorded, 1_000), 500);
    // All that is sent again is one share, every second.
    for now in [1_000, 2_000, 3_000] {
        let expected = if now == 1_000 { 0 } else { share };
        assert_eq!(answers(&mut b, A, &recorded, now), expected);
    }
    // What is older than the newest of its sender is none either; the next one is.
    let mut a = door(9_999);
    let [old, new, next] = [0, 1, 2].map(|n| only(seal(&mut a, addr(B), "x", n)));
    let answered = [new, old, next].map(|ask| answers(&mut b, A, &[ask], 3_000));
    assert_eq!(answered, [1, 0, 1]);
}

#[test]
fn what_a_node_asked_before_something_of_it_was_taken_counts_as_old() {
    let (mut a, mut b) = acquainted();
    let ask_others = |a: &mut DatagramDoor, first: u16| -> Vec<Vec<u8>> {
        (first..first + 100).map(|other| only(seal(a, addr(other), "x", 1))).collect()
    };
    let old = ask_others(&mut a, 200);
    let sealed = only(seal(&mut a, addr(B), "later", 1));
    assert_eq!(open(&mut b, addr(A), &sealed, 1).0, Opened::Datagram(plain("later")));
    let share = pace::PER_SECOND_MAX as usize;
    assert_eq!(answers(&mut b, A, &old, 2_000), share);
    let later = ask_others(&mut a, 400);
    assert_eq!(answers(&mut b, A, &later, 2_000), 100);
}

#[test]
fn however_many_a_node_answers_it_does_not_forget_whom_it_asked() {
    let (mut a, mut b) = (door(1), door(2));
    let ask = only(seal(&mut a, addr(B), "first", 0));
    let tell = only(open(&mut b, addr(A), &ask, 0).1);
    let recorded = asks(0..2);
    let told = (100..1_000).map(|from| answers(&mut a, from, &recorded, 300)).sum::<usize>();
    assert!(told > peers::SENT_MAX, "{told}");
    let (opened, out) = open(&mut a, addr(B), &tell, 300);
    assert_eq!(opened, Opened::Handled);
    let opened = open(&mut b, addr(A), &only(out), 300).0;
    assert_eq!(opened, Opened::Datagram(plain("first")));
}

#[test]
fn of_more_new_asks_than_any_network_has_so_many_a_second_are_answered_and_remembered() {
    let (_, mut b) = acquainted();
    let most = (pace::PER_SECOND_MAX + pace::NEW_ASKS_PER_SECOND_MAX) as usize;
    let recorded = asks(0..asks::ASKERS_MAX as u64 + 10);
    assert_eq!(answers(&mut b, A, &recorded[..asks::ASKERS_MAX - 1], 1_000), most);
    // With the one by which they got acquainted.
    assert_eq!(b.asks.len(), asks::ASKERS_MAX);
    assert_eq!(answers(&mut b, A, &recorded[asks::ASKERS_MAX - 1..], 2_000), 11);
    assert_eq!(b.asks.len(), 11);
}

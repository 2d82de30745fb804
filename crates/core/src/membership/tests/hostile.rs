//! Strangers, garbage and forgeries.

use std::net::SocketAddr;

use foca::{Codec, Header, Member, Message};
use proptest::prelude::*;

use super::super::*;
use super::net::Net;
use crate::membership::swim::MEMBERS_MAX;
use crate::membership::wire::codec::IdentityCodec;
use crate::membership::wire::datagram::{Envelope, Kind};
use crate::model::ids::{Incarnation, NodeName};

fn envelope(network: &str) -> Envelope {
    Envelope::new(NetworkName::new(network).unwrap())
}

/// A datagram from an invented node to `to`, with news about more of them.
fn forged(to: &Identity, from: u32, others: std::ops::Range<u32>) -> Vec<u8> {
    let invented = |n: u32| {
        let addr = SocketAddr::from(([172, (n >> 16) as u8, (n >> 8) as u8, n as u8], 1));
        Identity::new(addr, NodeName::new(&format!("f{n}")).unwrap(), Incarnation(1))
    };
    let message = Message::Gossip;
    let header = Header { src: invented(from), src_incarnation: 0, dst: to.clone(), message };
    let mut body = Vec::new();
    IdentityCodec.encode_header(&header, &mut body).unwrap();
    body.extend((others.len() as u16).to_be_bytes());
    for n in others {
        IdentityCodec.encode_member(&Member::alive(invented(n)), &mut body).unwrap();
    }
    envelope("test").seal(Kind::Swim, &body)
}

#[test]
fn nodes_of_another_network_are_refused_both_ways_and_both_sides_say_so() {
    let mut net = Net::joined(1, 3);
    let since = net.now() + 1;
    let staging = net.start("staging1");
    let config = SwimConfig { network: NetworkName::new("staging").unwrap(), ..net.config.clone() };
    net.boot(staging, config, "staging1");
    net.join(staging, 0);
    net.run_for(30_000);
    assert_eq!(net.reports(0, since), ["other network staging"], "once, not with every datagram");
    assert_eq!(net.reports(staging, since), ["other network test"]);
    assert!(net.view(staging).is_empty());
    assert_eq!(net.view(0), ["n1", "n2"]);
    assert!(net.swim(0).counters().other_network > 20);

    // And the other way: a member of this network calls the other one.
    net.join(1, staging);
    net.run_for(3_000);
    assert_eq!(net.reports(1, since), ["other network staging"]);
    assert!(net.view(staging).is_empty());
}

#[test]
fn another_version_of_the_protocol_is_reported_and_dropped() {
    let mut net = Net::joined(1, 2);
    net.run_for(10);
    let since = net.now();
    let mut bytes = envelope("test").seal(Kind::Swim, b"who knows");
    bytes[4] = 2;
    for _ in 0..5 {
        let from = net.nodes[1].addr;
        net.give(0, SwimInput::Datagram { from, bytes: &bytes });
    }
    assert_eq!(net.reports(0, since), ["other version 2"]);
    assert_eq!(net.swim(0).counters().other_version, 5);
}

#[test]
fn garbage_does_nothing() {
    use rand::{Rng, RngExt, SeedableRng};
    let mut net = Net::joined(1, 3);
    net.run_for(10_000);
    let since = net.now();
    let mut rng = rand::rngs::SmallRng::seed_from_u64(1);
    let from = net.nodes[1].addr;
    let before = net.swim(0).counters();
    let mut given = 0;
    for len in (0..2_000).chain([65_507; 3]) {
        let mut noise = vec![0; len];
        rng.fill_bytes(&mut noise);
        let kind = [Kind::Swim, Kind::Conflict, Kind::Bye][rng.random_range(0..3)];
        let headed = envelope("test").seal(kind, noise.get(..len.min(1_000)).unwrap());
        let mut out = Vec::new();
        let swim = net.nodes[0].swim.as_mut().unwrap();
        for bytes in [noise, headed] {
            given += u64::from(!bytes.is_empty());
            swim.handle(SwimInput::Datagram { from, bytes: &bytes }, since, &mut out);
        }
        assert_eq!(out, []);
    }
    let after = net.swim(0).counters();
    assert_eq!(after.received - before.received, given);
    let dropped = |c: SwimCounters| c.malformed + c.misdirected;
    assert_eq!(dropped(after) - dropped(before), given);
    net.run_for(10_000);
    assert!((0..3).all(|at| net.reports(at, since).is_empty()));
}

#[test]
fn an_empty_datagram_only_wakes_the_owner() {
    let mut net = Net::joined(1, 2);
    let before = net.swim(0).counters();
    let from = net.nodes[0].addr;
    net.give(0, SwimInput::Datagram { from, bytes: &[] });
    assert_eq!(net.swim(0).counters(), before);
}

#[test]
fn invented_members_do_not_fill_the_memory_and_the_true_ones_are_kept() {
    let mut net = Net::joined(1, 3);
    let target = net.swim(0).identity().clone();
    let from = net.nodes[1].addr;
    for n in 0..1_000 {
        let bytes = forged(&target, n * 100, n * 100 + 1..n * 100 + 31);
        assert!(bytes.len() < DATAGRAM_BYTES_MAX);
        let mut out = Vec::new();
        let now = net.now();
        let swim = net.nodes[0].swim.as_mut().unwrap();
        swim.handle(SwimInput::Datagram { from, bytes: &bytes }, now, &mut out);
    }
    let swim = net.swim(0);
    assert!(swim.foca.iter_membership_state().len() < MEMBERS_MAX + 64);
    assert!(swim.members().len() < MEMBERS_MAX + 64);
    assert_eq!(swim.peers().len(), PEERS_MAX);
    assert!(swim.counters().table_full > 900);
    // True members still get through to it.
    let answered = swim.counters().received;
    net.run_for(3_000);
    assert!(net.swim(0).counters().received > answered);
    let view = net.view(0);
    assert!(view.contains(&"n1".to_owned()) && view.contains(&"n2".to_owned()));
}

#[test]
fn two_nodes_that_claim_one_address_do_not_fight_for_ever() {
    // The second advertises the first one's address by mistake, but sits elsewhere.
    let mut net = Net::joined(1, 3);
    net.run_for(6_000);
    let since = net.now();
    let wrong = net.start("wrong");
    let claimed = net.nodes[1].addr;
    let identity = Identity::new(claimed, NodeName::new("wrong").unwrap(), Incarnation(u64::MAX));
    net.nodes[wrong].swim = Some(Swim::new(net.config.clone(), identity, 1).unwrap());
    net.join(wrong, 0);
    net.run_for(30_000);
    assert!(net.swim(1).identity().generation < 5, "the true one renewed itself a few times");
    assert_eq!(net.view(0), ["n1", "n2"]);
    assert!(net.reports(0, since).len() <= 4, "{:?}", net.reports(0, since));
}

#[test]
fn what_cannot_be_reached_is_not_taken_as_identity_or_called() {
    let config = Net::new(1).config;
    let identity = |addr: &str| {
        Identity::new(addr.parse().unwrap(), NodeName::new("a").unwrap(), Incarnation(1))
    };
    for addr in ["0.0.0.0:5", "10.0.0.1:0", "[::]:5", "224.0.0.1:5"] {
        let refused = Swim::new(config.clone(), identity(addr), 1).map(|_| ());
        assert!(matches!(refused, Err(MembershipError::Address { .. })), "{addr}");
    }
    let mut swim = Swim::new(config, identity("10.0.0.1:5"), 1).unwrap();
    let mut out = Vec::new();
    for addr in ["0.0.0.0:5", "10.0.0.1:5", "[::ffff:10.0.0.1]:5", "10.0.0.2:0"] {
        swim.handle(SwimInput::Join(addr.parse().unwrap()), 0, &mut out);
    }
    assert_eq!((out, swim.peers()), (vec![], vec![]), "neither nowhere nor itself");
}

/// Every datagram of a network that joins, crashes, restarts, leaves and argues about names.
fn recorded() -> Vec<Vec<u8>> {
    let mut net = Net::new(11);
    net.tap = Some(Vec::new());
    net.loss = 0.1;
    net.grow(4);
    net.run_for(3_000);
    net.kill(3);
    let rival = net.start("n1");
    net.join(rival, 0);
    net.run_for(8_000);
    net.restart(3);
    net.run_for(1_000);
    net.give(2, SwimInput::Leave);
    net.run_for(1_000);
    net.tap.take().unwrap().into_iter().map(|(_, _, bytes)| bytes).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Replayed, cut, spliced and bent datagrams; a node may be misled by them, as long as nothing
    /// is signed, but it does not fall over, and it stays within its bounds.
    #[test]
    fn bent_datagrams_do_not_break_a_node(
        seed in 0u64..1_000,
        bends in prop::collection::vec((any::<prop::sample::Index>(), 0usize..4, any::<u16>(), any::<u8>()), 1..40),
    ) {
        static RECORDED: std::sync::LazyLock<Vec<Vec<u8>>> = std::sync::LazyLock::new(recorded);
        let mut net = Net::joined(seed, 3);
        let from = net.nodes[1].addr;
        for (which, how, at, byte) in bends {
            let mut bytes = which.get(&RECORDED).clone();
            let at = usize::from(at) % bytes.len();
            match how {
                0 => {}
                1 => bytes[at] = byte,
                2 => bytes.truncate(at),
                _ => bytes.insert(at, byte),
            }
            net.give(0, SwimInput::Datagram { from, bytes: &bytes });
            net.run_for(u64::from(byte));
        }
        prop_assert!(net.swim(0).foca.iter_membership_state().len() < 64);
        prop_assert!(net.swim(0).next_deadline().is_none_or(|at| at <= net.now() + 1_000));
    }
}

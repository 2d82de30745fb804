//! Lists that are longer than one message may be: they come in parts or not at all, and nobody takes
//! a part for the whole. Here a message holds four ranges, two names, three incarnations.

use super::net::{Net, SAY_FOR_MS};
use super::*;
use crate::engine::delete::DeleteSettings;
use crate::model::chain::Chain;
use crate::model::entry::EntryParts;
use crate::model::mark::{Component, Lineage};
use crate::model::seen_list::ListMax;
use crate::model::tick_set::TickSet;
use crate::protocol::frame::{BODY_BYTES_MAX, split_frame};
use crate::protocol::peer::{CatchUpAsk, CatchUpKnown, CatchUpNames, PairById, RefuseReason};
use crate::replica::across::NamesMax;
use crate::replica::purge::{PurgeDecision, TockPair};

/// Each is a range of its own: far more than a message holds.
const KEYS: u64 = 30;

const TINY: ListCaps = ListCaps {
    list: ListMax { incarnations: 3, ranges: 4 },
    counters: 1,
    names: NamesMax { events: 2, paths: 2, bytes: 8 },
    verdict_ranges: 4,
    digest_message: 2,
    digest: 3,
    known_ranges: 1_000,
};

fn net(count: usize, found_after_ms: Millis) -> Net {
    let delete = DeleteSettings { found_after_ms, say_for_ms: SAY_FOR_MS, ..Default::default() };
    Net::with(count, delete, TINY)
}

/// Long enough for holes to be given up as lost and for some rounds.
fn wait(net: &mut Net) {
    for _ in 0..4 {
        net.settle();
    }
}

#[test]
fn a_joiner_gets_all_of_a_state_that_was_loaded_without_knowledge() {
    let mut net = net(1, Millis::MAX);
    net.load_every_other(0, "old", KEYS);
    let joiner = net.join();
    net.connect_all();
    net.settle();
    assert!(net.engine(joiner).is_ready());
    assert_eq!(net.engine(joiner).tree().len(), KEYS as usize);
    assert_eq!(net.content(joiner), net.content(0));
    assert_eq!(net.engine(joiner).counters().catch_ups, 1, "all of it in one");
}

#[test]
fn nodes_whose_lists_are_too_long_for_a_digest_come_to_agree() {
    let mut net = net(3, Millis::MAX);
    net.load_every_other(0, "old", KEYS);
    net.load_every_other(1, "other", KEYS + 3);
    net.load_every_other(2, "old", KEYS + 5);
    net.connect_all();
    wait(&mut net);
    for node in 1..3 {
        assert_eq!(net.content(node), net.content(0));
    }
    assert!(net.engine(0).view().remote_missing().is_empty(), "and each knows it");
    let done = net.engine(0).counters().catch_ups;
    let wanted = net.wanted.len();
    wait(&mut net);
    assert_eq!(net.engine(0).counters().catch_ups, done, "nothing is left to ask for");
    assert_eq!(net.wanted.len(), wanted);
}

#[test]
fn what_was_purged_elsewhere_does_not_come_back_because_a_list_is_long() {
    let mut net = net(2, 5_000);
    net.load_every_other(0, "old", KEYS);
    net.connect_all();
    net.settle();
    // Behind all of that, in the order of the list.
    net.load_every_other(0, "zz", 2);
    net.settle();
    assert_eq!(net.value(1, "zz.1"), Some(vec![1]));
    net.disconnect(0, 1);
    net.write(0, "zz.1", None).unwrap();
    wait(&mut net);
    assert_eq!(net.engine(0).tree().tombstone_len(), 0, "it is purged");
    net.write(1, "old.3", Some(&[7])).unwrap();
    net.connect_all();
    net.settle();
    assert_eq!((net.value(1, "zz.1"), net.value(0, "zz.1")), (None, None), "it is not back");
    assert_eq!((net.value(0, "zz.0"), net.value(0, "old.3")), (Some(vec![1]), Some(vec![7])));
    assert_eq!(net.engine(1).counters().reissued, 0);
    assert_eq!(net.content(1), net.content(0));
    assert_eq!(net.engine(1).mark(), net.engine(0).mark());
}

#[test]
fn members_agree_to_purge_although_v_is_longer_than_a_message() {
    let settings = DeleteSettings::default();
    let mut net = Net::with(0, settings.clone(), TINY);
    for node in 0..3 {
        net.join_with(DeleteSettings { store: Some(node), ..settings.clone() });
        net.handle(node as usize, Input::Found);
    }
    net.load_every_other(1, "old", KEYS);
    net.connect_all();
    wait(&mut net);
    assert_eq!(net.group(0).len(), 3);
    net.write(2, "old.4", None).unwrap();
    net.write(1, "old.5", None).unwrap();
    wait(&mut net);
    for node in 0..3 {
        assert_eq!(net.engine(node).tree().tombstone_len(), 0, "n{node}");
        assert_eq!(net.engine(node).mark(), net.engine(0).mark());
        assert_eq!(net.content(node), net.content(0));
    }
    assert!(!net.engine(0).mark().is_empty());
}

/// What a node's seen is as V, after a way over the wire.
fn announced_by(net: &Net, node: usize) -> PairById {
    let engine = net.engine(node);
    let pair = TockPair {
        lineage: Lineage::default(),
        from: Component::default(),
        to: Tock::new(KEYS * 3).unwrap(),
        id: None,
        base: Vec::new(),
        seen: engine.seen().clone(),
    };
    let mut bytes = Vec::new();
    PeerMessage::Announce(engine.export_pair(&pair)).encode(engine.table(), &mut bytes);
    let frame = split_frame(&bytes, BODY_BYTES_MAX).unwrap().unwrap();
    match PeerMessage::decode(&frame).unwrap() {
        Some(PeerMessage::Announce(announced)) => announced,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nobody_applies_a_purge_without_having_seen_all_of_v() {
    let mut net = net(4, Millis::MAX);
    // Of the first all is seen at the second; the others lack something that is named in the
    // announcement, or something that is not.
    for (node, old, zz) in [(0, KEYS, 1), (1, KEYS, 1), (2, KEYS, 0), (3, KEYS - 1, 1)] {
        net.load_every_other(node, "old", old);
        net.load_every_other(node, "zz", zz);
    }
    let announced = announced_by(&net, 0);
    assert!(announced.rest.count == 1 && announced.seen.len() == 1, "{announced:?}");
    let mut applies = Vec::new();
    for node in 0..4 {
        let engine = net.engine_mut(node);
        let pair = engine.intern_pair(&announced);
        let decision = pair.map(|pair| engine.replica.decide_purge(&pair));
        applies.push(decision == Some(PurgeDecision::Apply));
    }
    assert_eq!(applies, [true, true, false, false]);
}

/// A node whose peer says what a test wants it to.
fn alone(is_ready: bool) -> Hand {
    let mut me = Hand::new(Config { lists: TINY, ..Config::new(id("me"), 1) });
    if is_ready {
        me.input(Input::Found);
    }
    me.link_up(1);
    me
}

/// What a node answers, in names of messages; verdicts and reports that matter.
fn answers(me: &mut Hand, message: PeerMessage<'_>) -> Vec<&'static str> {
    let mut said = Vec::new();
    for output in me.hear(1, message).0 {
        let mut bytes = Vec::new();
        match output {
            Output::Send { frame, .. } => bytes.extend_from_slice(&frame),
            Output::Serve { mut job, .. } => while !job.next_frames(1_000, &mut bytes) {},
            Output::Report(Report::CatchUpFailed { reason: CatchUpFailure::TooMuch, .. }) => {
                said.push("too much");
            }
            _ => {}
        }
        let Some(frame) = split_frame(&bytes, BODY_BYTES_MAX).unwrap() else { continue };
        said.push(match PeerMessage::decode(&frame).unwrap().unwrap() {
            PeerMessage::CatchUpAsk(_) => "ask",
            PeerMessage::CatchUpKnown(_) => "known",
            PeerMessage::CatchUpMissing { .. } => "missing",
            PeerMessage::CatchUpMore { .. } => "more",
            PeerMessage::CatchUpDone { .. } => "done",
            PeerMessage::CatchUpVerdict(_) => "verdict",
            PeerMessage::CatchUpRefused { reason: RefuseReason::TooLong, .. } => "too long",
            _ => continue,
        });
    }
    said
}

fn ready_digest() -> PeerMessage<'static> {
    PeerMessage::Digest(digest(Vec::new(), Mark::default()))
}

fn known(seen: &[(u64, u64)]) -> PeerMessage<'static> {
    let mut ticks = TickSet::new();
    seen.iter().for_each(|(from, to)| assert!(ticks.insert_range(*from, *to)));
    let id = NodeId { name: NodeName::new("old").unwrap(), incarnation: Incarnation(9) };
    let (tock, mark) = (Tock::default(), Mark::default());
    PeerMessage::CatchUpKnown(CatchUpKnown {
        id: 0,
        tock,
        mark,
        seen: vec![(id, ticks)],
        more: true,
    })
}

#[test]
fn parts_without_end_and_parts_without_news_are_given_up() {
    let mut me = alone(false);
    assert_eq!(answers(&mut me, ready_digest()), ["ask"]);
    assert_eq!(answers(&mut me, known(&[(1, 3)])), ["missing"]);
    assert_eq!(answers(&mut me, PeerMessage::CatchUpEnd { id: 0, entries: 0 }), ["more"]);
    assert_eq!(answers(&mut me, known(&[(2, 3)])), ["done", "too much"], "nothing is new");
    let many: Vec<(u64, u64)> = (1..=1_001).map(|n| (3 * n, 3 * n + 1)).collect();
    let mut me = alone(false);
    assert_eq!(answers(&mut me, ready_digest()), ["ask"]);
    assert_eq!(answers(&mut me, known(&many)), ["done", "too much"], "more than is kept");
    assert!(!me.engine.is_ready() && me.engine.seen().is_empty());
}

/// A ready node with [`KEYS`] entries, each in a range of its own, that was asked for a catch-up.
fn asked() -> Hand {
    let mut me = alone(true);
    let id = NodeId { name: NodeName::new("old").unwrap(), incarnation: Incarnation(77) };
    let node = me.engine.replica.intern(&id).unwrap();
    for key in 0..KEYS {
        let tick = Tick::new(2 * key + 1).unwrap();
        let chain = Chain::from_events([Event { node, tick }], false).unwrap();
        let (value, tock) = (Some(&[1][..]), Tock::new(key + 1).unwrap());
        let parts = EntryParts { value, chain: &chain, tock, origin: None, time: None, extra: &[] };
        let path = format!("k{key}").parse().unwrap();
        me.engine.take_entry(&path, &Entry::new(&parts), &Mark::default(), &mut Outbox::new());
    }
    let (mark, contiguous) = (Mark::default(), Vec::new());
    let ask = CatchUpAsk { id: 0, mark, contiguous, no_announcements: true };
    assert_eq!(answers(&mut me, PeerMessage::CatchUpAsk(ask)), ["known"]);
    me
}

#[test]
fn an_answer_that_would_be_too_long_is_refused_and_not_clipped() {
    let mut me = asked();
    let names = |highest| {
        let id = NodeId { name: NodeName::new("old").unwrap(), incarnation: Incarnation(77) };
        let events = vec![(id, TickSet::range(1, highest).unwrap())];
        PeerMessage::CatchUpNames(CatchUpNames { id: 0, events, paths: Vec::new() })
    };
    assert_eq!(answers(&mut me, names(9)), ["verdict"], "2, 4, 6 and 8 are gone");
    assert_eq!(answers(&mut me, names(11)), ["too long"]);
}

#[test]
fn whoever_asks_for_more_than_there_is_gets_nothing() {
    let mut me = asked();
    let mut parts = 1;
    while answers(&mut me, PeerMessage::CatchUpMore { id: 0 }) == ["known"] {
        parts += 1;
    }
    assert_eq!(parts, (KEYS as usize).div_ceil(TINY.list.ranges));
    assert!(answers(&mut me, PeerMessage::CatchUpMore { id: 0 }).is_empty());
    assert!(answers(&mut me, PeerMessage::CatchUpMore { id: 7 }).is_empty(), "of no ask");
}

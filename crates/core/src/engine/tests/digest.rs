//! What digests name and what they cover with a sum: that lives which are over cost nothing, and
//! that a difference among them is found all the same.

use super::net::Net;
use super::*;
use crate::model::seen_sum::SeenSum;
use crate::model::tick_set::TickSet;
use crate::protocol::frame::{BODY_BYTES_MAX, split_frame};
use crate::protocol::peer::{CatchUpKnown, Digest, Unnamed};

/// Long enough for everything to be old news.
fn grow_old(net: &mut Net) {
    for _ in 0..7 {
        net.settle();
    }
}

fn names_of(digests: &[(usize, Digest)], name: &str) -> usize {
    let named = digests.iter().flat_map(|(_, digest)| &digest.seen);
    named.filter(|(id, _)| id.name.as_str() == name).count()
}

#[test]
fn lives_that_are_over_leave_the_digests_and_stay_known() {
    let mut net = Net::new(3);
    net.connect_all();
    for life in 0..20 {
        net.write(2, "k", Some(&[life])).unwrap();
        net.settle();
        net.restart_empty(2);
        net.connect_all();
        net.settle();
    }
    grow_old(&mut net);
    net.listen();
    net.settle();
    let digests = net.listen();
    assert!(digests.len() >= 12, "a full one every 5 s from each to each: {}", digests.len());
    for (_, digest) in &digests {
        assert!(digest.seen.len() <= 3, "{:?}", digest.seen);
        // The last life has written nothing yet.
        assert!(matches!(digest.unnamed, Unnamed::Sum(sum) if sum.count == 20), "{digest:?}");
    }
    assert_eq!(names_of(&digests, "n2"), 0);
    assert_eq!(net.content(1).1.len(), 20);
    assert_eq!(net.content(1), net.content(0));
}

#[test]
fn a_digest_is_no_longer_with_five_thousand_lives_than_without() {
    let mut net = Net::new(2);
    for node in 0..2 {
        net.make_history(node, "old", 5_000);
    }
    net.connect_all();
    net.settle();
    net.listen();
    net.settle();
    let digests = net.listen();
    assert!(digests.iter().all(|(_, digest)| digest.seen.len() <= 2));
    assert_eq!(net.wanted.len(), 0, "both have the same, so nobody has to ask");
    assert!(net.engine(0).view().remote_missing().is_empty(), "and each knows it");
}

#[test]
fn a_difference_among_lives_that_are_over_is_found_by_the_sum() {
    let mut net = Net::new(4);
    // Each of two sides has what a third node wrote there before it was gone for good.
    net.connect(0, 2);
    net.connect(1, 3);
    net.write(2, "left", Some(&[1])).unwrap();
    net.write(3, "right", Some(&[2])).unwrap();
    net.settle();
    net.disconnect(0, 2);
    net.disconnect(1, 3);
    grow_old(&mut net);
    net.listen();
    net.connect(0, 1);
    net.settle();
    assert_eq!(net.value(1, "left"), Some(vec![1]));
    assert_eq!(net.value(0, "right"), Some(vec![2]));
    assert_eq!(net.content(0), net.content(1));
    let mut wanted = std::mem::take(&mut net.wanted);
    wanted.sort_unstable();
    assert!(wanted == [0, 1] || wanted == [0] || wanted == [1], "once each at most: {wanted:?}");
    grow_old(&mut net);
    assert!(net.wanted.is_empty(), "{:?}", net.wanted);
    assert!(net.engine(0).view().remote_missing().is_empty());
}

#[test]
fn a_node_that_has_caught_up_with_a_long_history_does_not_retell_it() {
    let mut net = Net::new(2);
    for node in 0..2 {
        net.make_history(node, "old", 3_000);
    }
    net.connect_all();
    grow_old(&mut net);
    let joiner = net.join();
    net.listen();
    net.connect_all();
    net.settle();
    assert!(net.engine(joiner).is_ready());
    assert_eq!(net.content(joiner), net.content(0));
    let digests = net.listen();
    assert!(digests.iter().any(|(from, _)| *from == joiner));
    assert_eq!(names_of(&digests, "old"), 0);
    assert!(net.engine(0).view().remote_missing().is_empty());
}

#[test]
fn holes_are_named_however_old_they_are() {
    let mut net = Net::new(2);
    net.make_history(0, "old", 1);
    let index = net.engine(0).table().find("old", Incarnation(1 << 32)).unwrap();
    net.account_for(0, Event { node: index, tick: Tick::new(7).unwrap() });
    grow_old(&mut net);
    net.connect_all();
    net.listen();
    net.settle();
    grow_old(&mut net);
    assert!(names_of(&net.listen(), "old") > 10);
    assert_eq!(net.content(0), net.content(1));
}

/// One engine whose peer says what a test wants it to.
struct Alone {
    engine: Engine,
    now: Millis,
}

const LINK: LinkId = LinkId(1);

impl Alone {
    fn new() -> Self {
        let id =
            |name: &str| NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(1) };
        let mut engine = Engine::new(Config::new(id("me"), 1));
        engine.handle(Input::Found, 0, &mut Outbox::new());
        engine.handle(Input::LinkUp { link: LINK, peer: id("peer") }, 0, &mut Outbox::new());
        Self { engine, now: 0 }
    }

    /// Messages that come out while `ms` go by, after these have come in.
    fn run(&mut self, messages: Vec<PeerMessage<'_>>, ms: Millis) -> Vec<PeerMessage<'static>> {
        let mut out = Outbox::new();
        self.engine.handle(Input::Messages { link: LINK, messages }, self.now, &mut out);
        for _ in 0..ms / TICK_INTERVAL_MS {
            self.now += TICK_INTERVAL_MS;
            self.engine.handle(Input::Tick, self.now, &mut out);
        }
        let mut said = Vec::new();
        for output in out.drain() {
            let (Output::Send { frame, .. } | Output::Broadcast { frame }) = output else {
                continue;
            };
            let frame = split_frame(&frame, BODY_BYTES_MAX).unwrap().unwrap();
            match PeerMessage::decode(&frame).unwrap().unwrap() {
                PeerMessage::Digest(digest) => said.push(PeerMessage::Digest(digest)),
                PeerMessage::DigestWanted => said.push(PeerMessage::DigestWanted),
                PeerMessage::CatchUpAsk(ask) => said.push(PeerMessage::CatchUpAsk(ask)),
                _ => {}
            }
        }
        said
    }

    fn wants(&mut self, hash: u64, ms: Millis) -> usize {
        let said = self.run(vec![digest(Unnamed::Sum(SeenSum { hash, count: 1 }))], ms);
        said.iter().filter(|message| **message == PeerMessage::DigestWanted).count()
    }
}

fn digest(unnamed: Unnamed) -> PeerMessage<'static> {
    let (tock, mark) = (Tock::default(), Mark::default());
    PeerMessage::Digest(Digest {
        ready: true,
        tock,
        mark,
        seen: Vec::new(),
        unnamed,
        contents: None,
    })
}

#[test]
fn another_sum_is_asked_about_every_few_seconds_until_it_is_understood() {
    let mut alone = Alone::new();
    assert_eq!(alone.wants(7, 1_000), 1);
    assert_eq!(
        (alone.wants(7, 1_000), alone.wants(8, 1_000)),
        (0, 0),
        "the answer may be on its way"
    );
    alone.run(Vec::new(), 3_000);
    assert_eq!(alone.wants(8, 1_000), 1, "no answer came");
    // Now it comes, in two parts.
    alone.run(vec![digest(Unnamed::Follows)], 0);
    alone.run(vec![digest(Unnamed::Sum(SeenSum::default()))], 10_000);
    assert_eq!(alone.wants(8, 10_000), 0, "understood, though it is not this node's own");
    assert_eq!(alone.wants(9, 1_000), 1, "another one");
}

#[test]
fn what_a_catch_up_left_missing_is_asked_for_again() {
    let mut alone = Alone::new();
    let ids = |said: Vec<PeerMessage<'_>>| -> Vec<u64> {
        let asks = said.into_iter().filter_map(|message| match message {
            PeerMessage::CatchUpAsk(ask) => Some(ask.id),
            _ => None,
        });
        asks.collect()
    };
    let sum = Unnamed::Sum(SeenSum { hash: 7, count: 1 });
    assert!(ids(alone.run(vec![digest(sum)], 1_000)).is_empty());
    let ghost = NodeId { name: NodeName::new("ghost").unwrap(), incarnation: Incarnation(5) };
    let (tock, mark) = (Tock::default(), Mark::default());
    let seen = vec![(ghost, TickSet::range(1, 9).unwrap())];
    let unnamed = Unnamed::Sum(SeenSum::default());
    let list = Digest { ready: true, tock, mark: mark.clone(), seen, unnamed, contents: None };
    let asked = ids(alone.run(vec![PeerMessage::Digest(list)], 1_000));
    assert_eq!(asked.len(), 1);
    // It says that it has nothing.
    let known = CatchUpKnown { id: asked[0], tock, mark, seen: Vec::new(), more: false };
    assert!(ids(alone.run(vec![PeerMessage::CatchUpKnown(known)], 5_000)).is_empty());
    assert_eq!(ids(alone.run(vec![digest(sum)], 1_000)).len(), 1, "it has named what it has");
}

#[test]
fn a_node_that_is_not_ready_asks_for_no_list_and_gives_none() {
    let mut alone = Alone::new();
    alone.engine.ready = false;
    assert_eq!(alone.wants(7, 1_000), 0);
    let said = alone.run(vec![PeerMessage::DigestWanted], 0);
    assert_eq!(said, []);
}

#[test]
fn whoever_asks_too_often_is_answered_every_few_seconds() {
    let mut alone = Alone::new();
    alone.run(Vec::new(), 5_000);
    let mut lists = 0;
    for _ in 0..40 {
        let whole = Unnamed::Sum(SeenSum::default());
        let said = alone.run(vec![PeerMessage::DigestWanted], 100);
        lists += said
            .iter()
            .filter(|m| matches!(m, PeerMessage::Digest(d) if d.unnamed == whole))
            .count();
    }
    assert!((2..=4).contains(&lists), "{lists} in 4 s");
}

#[test]
fn members_are_named_although_nothing_of_them_is_new() {
    let mut alone = Alone::new();
    let id = NodeId { name: NodeName::new("quiet").unwrap(), incarnation: Incarnation(5) };
    let node = alone.engine.replica.intern(&id).unwrap();
    alone.engine.replica.account_for(Event { node, tick: Tick::new(1).unwrap() });
    let named = |said: Vec<PeerMessage<'_>>| {
        said.iter()
            .filter_map(|m| match m {
                PeerMessage::Digest(d) if d.unnamed != Unnamed::Unsaid => Some(d),
                _ => None,
            })
            .map(|d| d.seen.iter().any(|(named, _)| *named == id))
            .collect::<Vec<_>>()
    };
    let first = named(alone.run(Vec::new(), 120_000));
    assert_eq!(first.iter().position(|is_named| !is_named), Some(12), "for a minute: {first:?}");
    let up = Input::MemberUp { member: id.clone() };
    alone.engine.handle(up, alone.now, &mut Outbox::new());
    assert_eq!(named(alone.run(Vec::new(), 10_000)), [true, true]);
    alone.engine.handle(Input::MemberDown { member: id.clone() }, alone.now, &mut Outbox::new());
    assert_eq!(named(alone.run(Vec::new(), 10_000)), [false, false]);
}

#[test]
fn what_nobody_noted_is_told_soon_all_the_same() {
    let mut alone = Alone::new();
    alone.run(Vec::new(), 5_000);
    let id = NodeId { name: NodeName::new("quiet").unwrap(), incarnation: Incarnation(5) };
    let node = alone.engine.replica.intern(&id).unwrap();
    alone.run(Vec::new(), 5_000);
    alone.engine.replica.account_for(Event { node, tick: Tick::new(1).unwrap() });
    let said = alone.run(Vec::new(), 1_000);
    let told = (id, TickSet::range(1, 2).unwrap());
    assert!(said.iter().any(|m| matches!(m, PeerMessage::Digest(d) if d.seen.contains(&told))));
}

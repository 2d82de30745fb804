//! What digests name and what they cover with a sum: that lives which are over cost nothing, and
//! that a difference among them is found all the same.

use super::net::Net;
use super::*;
use crate::model::seen_sum::{SeenSum, sum_of_rest};
use crate::model::tick_set::TickSet;
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

/// Messages that come out while `ms` go by, after these have come in.
fn run(me: &mut Hand, messages: Vec<PeerMessage<'_>>, ms: Millis) -> Vec<PeerMessage<'static>> {
    let mut came = me.hear_all(1, messages);
    came.0.extend(me.pass(ms).0);
    came.sent(|_, message| match message {
        PeerMessage::Digest(digest) => Some(PeerMessage::Digest(digest.clone())),
        PeerMessage::DigestWanted => Some(PeerMessage::DigestWanted),
        PeerMessage::CatchUpAsk(ask) => Some(PeerMessage::CatchUpAsk(ask.clone())),
        _ => None,
    })
}

fn wants(me: &mut Hand, hash: u64, ms: Millis) -> usize {
    let said = run(me, vec![digest(Unnamed::Sum(SeenSum { hash, count: 1 }))], ms);
    said.iter().filter(|message| **message == PeerMessage::DigestWanted).count()
}

fn digest(unnamed: Unnamed) -> PeerMessage<'static> {
    PeerMessage::Digest(Digest { unnamed, ..super::digest(Vec::new(), Mark::default()) })
}

#[test]
fn another_sum_is_asked_about_every_few_seconds_until_it_is_understood() {
    let mut me = Hand::with_peers(1);
    assert_eq!(wants(&mut me, 7, 1_000), 1);
    assert_eq!(
        (wants(&mut me, 7, 1_000), wants(&mut me, 8, 1_000)),
        (0, 0),
        "the answer may be on its way"
    );
    run(&mut me, Vec::new(), 3_000);
    assert_eq!(wants(&mut me, 8, 1_000), 1, "no answer came");
    // Now it comes, in two parts.
    run(&mut me, vec![digest(Unnamed::Follows)], 0);
    run(&mut me, vec![digest(Unnamed::Sum(SeenSum::default()))], 10_000);
    assert_eq!(wants(&mut me, 8, 10_000), 0, "understood, though it is not this node's own");
    assert_eq!(wants(&mut me, 9, 1_000), 1, "another one");
}

#[test]
fn what_a_catch_up_left_missing_is_asked_for_again() {
    let mut me = Hand::with_peers(1);
    let ids = |said: Vec<PeerMessage<'_>>| -> Vec<u64> {
        let asks = said.into_iter().filter_map(|message| match message {
            PeerMessage::CatchUpAsk(ask) => Some(ask.id),
            _ => None,
        });
        asks.collect()
    };
    let sum = Unnamed::Sum(SeenSum { hash: 7, count: 1 });
    assert!(ids(run(&mut me, vec![digest(sum)], 1_000)).is_empty());
    let ghost = NodeId { name: NodeName::new("ghost").unwrap(), incarnation: Incarnation(5) };
    let (tock, mark) = (Tock::default(), Mark::default());
    let seen = vec![(ghost, TickSet::range(1, 9).unwrap())];
    let unnamed = Unnamed::Sum(SeenSum::default());
    let list = Digest { ready: true, tock, mark: mark.clone(), seen, unnamed, contents: None };
    let asked = ids(run(&mut me, vec![PeerMessage::Digest(list)], 1_000));
    assert_eq!(asked.len(), 1);
    // It says that it has nothing.
    let known = CatchUpKnown { id: asked[0], tock, mark, seen: Vec::new(), more: false };
    assert!(ids(run(&mut me, vec![PeerMessage::CatchUpKnown(known)], 5_000)).is_empty());
    assert_eq!(ids(run(&mut me, vec![digest(sum)], 1_000)).len(), 1, "it has named what it has");
}

#[test]
fn a_node_that_is_not_ready_asks_for_no_list_and_gives_none() {
    let mut me = Hand::with_peers(1);
    me.engine.ready = false;
    assert_eq!(wants(&mut me, 7, 1_000), 0);
    let said = run(&mut me, vec![PeerMessage::DigestWanted], 0);
    assert_eq!(said, []);
}

#[test]
fn whoever_asks_too_often_is_answered_every_few_seconds() {
    let mut me = Hand::with_peers(1);
    run(&mut me, Vec::new(), 5_000);
    let mut lists = 0;
    for _ in 0..40 {
        let whole = Unnamed::Sum(SeenSum::default());
        let said = run(&mut me, vec![PeerMessage::DigestWanted], 100);
        lists += said
            .iter()
            .filter(|m| matches!(m, PeerMessage::Digest(d) if d.unnamed == whole))
            .count();
    }
    assert!((2..=4).contains(&lists), "{lists} in 4 s");
}

#[test]
fn members_are_named_although_nothing_of_them_is_new() {
    let mut me = Hand::with_peers(1);
    let id = NodeId { name: NodeName::new("quiet").unwrap(), incarnation: Incarnation(5) };
    let node = me.engine.replica.intern(&id).unwrap();
    me.engine.replica.account_for(Event { node, tick: Tick::new(1).unwrap() });
    let named = |said: Vec<PeerMessage<'_>>| {
        said.iter()
            .filter_map(|m| match m {
                PeerMessage::Digest(d) if d.unnamed != Unnamed::Unsaid => Some(d),
                _ => None,
            })
            .map(|d| d.seen.iter().any(|(named, _)| *named == id))
            .collect::<Vec<_>>()
    };
    let first = named(run(&mut me, Vec::new(), 120_000));
    assert_eq!(first.iter().position(|is_named| !is_named), Some(12), "for a minute: {first:?}");
    let up = Input::MemberUp { member: id.clone() };
    me.engine.handle(up, me.now, &mut Outbox::new());
    assert_eq!(named(run(&mut me, Vec::new(), 10_000)), [true, true]);
    me.engine.handle(Input::MemberDown { member: id.clone() }, me.now, &mut Outbox::new());
    assert_eq!(named(run(&mut me, Vec::new(), 10_000)), [false, false]);
}

#[test]
fn what_nobody_noted_is_told_soon_all_the_same() {
    let mut me = Hand::with_peers(1);
    run(&mut me, Vec::new(), 5_000);
    let id = NodeId { name: NodeName::new("quiet").unwrap(), incarnation: Incarnation(5) };
    let node = me.engine.replica.intern(&id).unwrap();
    run(&mut me, Vec::new(), 5_000);
    me.engine.replica.account_for(Event { node, tick: Tick::new(1).unwrap() });
    let said = run(&mut me, Vec::new(), 1_000);
    let told = (id, TickSet::range(1, 2).unwrap());
    assert!(said.iter().any(|m| matches!(m, PeerMessage::Digest(d) if d.seen.contains(&told))));
}

/// A life that is over, with ticks up to that one that nobody noted.
fn history(me: &mut Hand, name: &str, ticks: u64) -> NodeIndex {
    let id = NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(5) };
    let node = me.engine.replica.intern(&id).unwrap();
    (1..=ticks).for_each(|tick| account_for(me, node, tick));
    node
}

fn account_for(me: &mut Hand, node: NodeIndex, tick: u64) {
    me.engine.replica.account_for(Event { node, tick: Tick::new(tick).unwrap() });
}

/// What a peer says that has seen what this node has, and names these.
fn sum_without(me: &Hand, named: &[NodeIndex]) -> Unnamed {
    let named = named.iter().copied().collect();
    Unnamed::Sum(sum_of_rest(me.engine.table(), me.engine.seen(), &named))
}

/// The digests for a second peer, when it is linked.
fn second_peer(me: &mut Hand) -> Vec<PeerMessage<'static>> {
    me.link_up(2).sent(|_, message| match message {
        PeerMessage::Digest(digest) => Some(PeerMessage::Digest(digest.clone())),
        _ => None,
    })
}

/// How often messages name a life: in digests of all (true), or of changes.
fn naming(said: &[PeerMessage<'_>], name: &str, of_all: bool) -> usize {
    let digests = said.iter().filter_map(|message| match message {
        PeerMessage::Digest(digest) => Some(digest),
        _ => None,
    });
    let digests = digests.filter(|digest| (digest.unnamed != Unnamed::Unsaid) == of_all);
    digests.filter(|digest| digest.seen.iter().any(|(id, _)| id.name.as_str() == name)).count()
}

fn count(said: &[PeerMessage<'_>], is_it: fn(&PeerMessage<'_>) -> bool) -> usize {
    said.iter().filter(|message| is_it(message)).count()
}

fn asks(said: &[PeerMessage<'_>]) -> usize {
    count(said, |message| matches!(message, PeerMessage::CatchUpAsk(_)))
}

#[test]
fn a_new_life_is_in_the_next_digest_at_once() {
    let mut me = Hand::with_peers(1);
    run(&mut me, Vec::new(), 1_000);
    history(&mut me, "new", 2);
    assert_eq!(naming(&second_peer(&mut me), "new", true), 1);
}

#[test]
fn among_many_lives_too_what_nobody_noted_is_told_soon() {
    let mut me = Hand::with_peers(1);
    let lives: Vec<NodeIndex> =
        (0..3_000).map(|n| history(&mut me, &format!("old{n}"), 1)).collect();
    run(&mut me, Vec::new(), 71_000);
    account_for(&mut me, lives[2_500], 2);
    assert_eq!(naming(&run(&mut me, Vec::new(), 1_500), "old2500", false), 1);
}

#[test]
fn of_too_many_changed_lives_a_digest_names_those_that_matter() {
    let mut me = Hand::with_peers(1);
    me.engine.config.lists.digest = 10;
    let old: Vec<NodeIndex> = (0..1_100).map(|n| history(&mut me, &format!("old{n}"), 1)).collect();
    second_peer(&mut me);
    let late = me.engine.peers.get(LinkId(2)).unwrap().id.clone();
    let late = me.engine.table().find("p2", late.incarnation).unwrap();
    run(&mut me, Vec::new(), 5_100);
    old.iter().chain([&late]).for_each(|node| account_for(&mut me, *node, 2));
    account_for(&mut me, late, 1);
    let said = run(&mut me, Vec::new(), 1_500);
    assert_eq!((naming(&said, "p2", false), naming(&said, "old0", false)), (1, 0));
}

#[test]
fn what_a_full_digest_has_told_is_not_told_again() {
    let mut me = Hand::with_peers(1);
    run(&mut me, Vec::new(), 5_000);
    history(&mut me, "new", 1);
    let said = run(&mut me, Vec::new(), 1_000);
    assert_eq!((naming(&said, "new", true), naming(&said, "new", false)), (1, 0));
}

#[test]
fn where_there_are_many_members_they_are_not_named_merely_because_they_exist() {
    let mut me = Hand::with_peers(1);
    history(&mut me, "m0", 1);
    for n in 0..13 {
        let id =
            NodeId { name: NodeName::new(&format!("m{n}")).unwrap(), incarnation: Incarnation(5) };
        me.engine.handle(Input::MemberUp { member: id }, 0, &mut Outbox::new());
    }
    run(&mut me, Vec::new(), 70_000);
    assert_eq!(naming(&run(&mut me, Vec::new(), 20_000), "m0", true), 0);
}

#[test]
fn who_lacks_only_what_is_new_is_not_asked_for_its_list_until_that_is_old() {
    let mut me = Hand::with_peers(1);
    let [old, _] = ["old", "other"].map(|name| history(&mut me, name, 1));
    run(&mut me, Vec::new(), 70_000);
    let before = sum_without(&me, &[]);
    account_for(&mut me, old, 2);
    run(&mut me, Vec::new(), TICK_INTERVAL_MS);
    let mut wants = || {
        let said = run(&mut me, vec![digest(before)], 29_000);
        count(&said, |message| *message == PeerMessage::DigestWanted)
    };
    assert_eq!((wants(), wants()), (0, 0), "it would have said so, had it had anything else");
    assert_eq!(wants(), 1);
}

#[test]
fn a_peer_has_of_what_it_names_what_it_names_and_of_the_rest_what_its_sum_says() {
    let mut me = Hand::with_peers(1);
    let [named, rest] = ["named", "rest"].map(|name| history(&mut me, name, 2));
    let mut theirs = Digest {
        ready: true,
        tock: Tock::default(),
        mark: Mark::default(),
        seen: Vec::new(),
        unnamed: sum_without(&me, &[named]),
        contents: None,
    };
    theirs.seen.push((me.engine.table().id(named).clone(), TickSet::range(1, 2).unwrap()));
    run(&mut me, vec![PeerMessage::Digest(theirs)], 0);
    let copies = |node, tick| me.engine.copies_of(Event { node, tick: Tick::new(tick).unwrap() });
    assert_eq!((copies(named, 1), copies(named, 2), copies(rest, 2)), (1, 0, 1));
}

#[test]
fn a_list_that_is_too_long_is_learned_by_one_catch_up_after_a_moment() {
    let mut me = Hand::with_peers(1);
    run(&mut me, Vec::new(), 1_000);
    assert_eq!(wants(&mut me, 7, TICK_INTERVAL_MS), 1);
    assert_eq!(asks(&run(&mut me, vec![digest(Unnamed::TooLong)], 150)), 0, "it may be on its way");
    let said = run(&mut me, Vec::new(), 100);
    let Some(PeerMessage::CatchUpAsk(ask)) = said.last() else { panic!("{said:?}") };
    // The peer has nothing.
    let (tock, mark, seen) = (Tock::default(), Mark::default(), Vec::new());
    let known = CatchUpKnown { id: ask.id, tock, mark, seen, more: false };
    assert_eq!(asks(&run(&mut me, vec![PeerMessage::CatchUpKnown(known)], 2_000)), 0);
    assert_eq!(wants(&mut me, 7, 10_000), 0, "that sum is understood");
}

#[test]
fn a_list_that_is_too_long_is_not_needed_when_the_sums_are_the_same() {
    let mut me = Hand::with_peers(1);
    history(&mut me, "old", 1);
    run(&mut me, Vec::new(), 1_000);
    assert_eq!(wants(&mut me, 7, TICK_INTERVAL_MS), 1);
    let same = digest(sum_without(&me, &[]));
    assert_eq!(asks(&run(&mut me, vec![digest(Unnamed::TooLong), same], 2_000)), 0);
}

//! What a peer says of a clock that no network reaches: nothing of it is taken, in whatever message it comes.

use super::*;
use crate::engine::far_clock::{FOREIGN_CLOCK_MAX, FOREIGN_LEAD_MAX};
use crate::model::group::{GroupConfig, Member, RoundId};
use crate::model::mark::{Component, Implied};
use crate::model::seen_sum::SeenSum;
use crate::protocol::peer::{
    CatchUpAsk, CatchUpKnown, ChangeMessage, ContentsAsk, ContentsList, Digest, GroupHello, Listed,
    PairById, Proposal, Unnamed,
};
use crate::protocol::record::{EventRef, Record};

/// An entry of p1, which is at that place and has that tock.
fn record(at: &str, tick: u64, made: Tock) -> Record<'static> {
    let tick = Tick::new(tick).unwrap();
    let event = EventRef { name: "p1", incarnation: Incarnation(1), tick };
    Record {
        path: path(at),
        tock: made,
        events: [event].into_iter().collect(),
        chain_cut: false,
        time: None,
        value: Some(&[7]),
        origin: None,
        extra: Default::default(),
    }
}

fn change(at: &str, tick: u64, made: Tock, mark: Mark) -> PeerMessage<'static> {
    let record = record(at, tick, made);
    PeerMessage::Change(ChangeMessage { mark, ack_wanted: false, record })
}

fn first(to: Tock) -> Mark {
    Mark::from_components([(Lineage(None), to)])
}

fn pair(from: Tock, to: Tock, base: Tock) -> PairById {
    let component = |at| Component::new(at, None);
    let base = vec![(Lineage(Some((id("m"), Tick::new(1).unwrap()))), component(base))];
    let (seen, rest) = (Vec::new(), SeenSum::default());
    PairById { lineage: Lineage(None), from: component(from), to, id: None, base, seen, rest }
}

fn config(since: Tock) -> GroupConfig {
    let member = Member { name: id("p1").name, store: 7, durable: true };
    let config = GroupConfig::new(9, Lineage(None), vec![member]).unwrap();
    config.from_purge_on(Component::new(since, None))
}

fn group(since: Tock, implied: Vec<Implied>) -> PeerMessage<'static> {
    let member = Member { name: id("p1").name, store: 7, durable: true };
    PeerMessage::Group(GroupHello { member, config: Some(config(since)), implied })
}

fn proposal(pair: PairById, next: Option<GroupConfig>) -> PeerMessage<'static> {
    let round = RoundId { coordinator: id("p1"), number: 1, version: 1 };
    PeerMessage::Propose(Proposal { round, pair, next })
}

/// Each message of a peer that may carry a tock, with that one in each place in turn.
fn all_with(far: Tock) -> Vec<PeerMessage<'static>> {
    let near = tock(1);
    let digest = |tock, mark| Digest { tock, ..super::super::digest(Vec::new(), mark) };
    let digests = [digest(far, first(near)), digest(near, first(far))];
    assert!(digests.iter().all(|digest| digest.unnamed == Unnamed::Unsaid));
    let known = |tock, mark| {
        let seen = ticks("p1", 3);
        PeerMessage::CatchUpKnown(CatchUpKnown { id: 0, tock, mark, seen, more: false })
    };
    let part = |mark, made| {
        let records = vec![record("a", 1, near), record("b", 2, made)];
        PeerMessage::CatchUpPart { id: 0, mark, records }
    };
    let versions = |mark, made| {
        let records = vec![record("a", 1, near), record("b", 2, made)];
        PeerMessage::ContentsVersions { mark, records }
    };
    let list = |mark, made| {
        let (path, tick) = (path("a"), Tick::new(1).unwrap());
        PeerMessage::ContentsList(ContentsList {
            mark,
            differs: true,
            buckets: vec![1],
            last: true,
            answer_wanted: true,
            makers: vec![id("p1")],
            entries: vec![Listed { path, maker: 0, tick, tock: made, hash: 1 }],
        })
    };
    let implied = |component, at| {
        let (component, at) = (Component::new(component, None), Component::new(at, None));
        let by = Lineage(Some((id("m"), Tick::new(1).unwrap())));
        group(near, vec![Implied { lineage: Lineage(None), component, by, at }])
    };
    let ask = CatchUpAsk { id: 1, mark: first(far), contiguous: vec![], no_announcements: false };
    let sums = ContentsAsk { mark: first(far), seen: 1, differed: true, sums: vec![(1, 1)] };
    let mut all = vec![
        change("a", 1, far, first(near)),
        change("a", 1, near, first(far)),
        PeerMessage::CatchUpAsk(ask),
        known(far, first(near)),
        known(near, first(far)),
        part(first(near), far),
        part(first(far), near),
        versions(first(near), far),
        versions(first(far), near),
        PeerMessage::ContentsAsk(sums),
        list(first(far), near),
        list(first(near), far),
        group(far, Vec::new()),
        implied(far, near),
        implied(near, far),
        proposal(pair(near, near, near), Some(config(far))),
    ];
    for [from, to, base] in [[far, near, near], [near, far, near], [near, near, far]] {
        all.push(proposal(pair(from, to, base), None));
        all.push(PeerMessage::Announce(pair(from, to, base)));
    }
    all.extend(digests.map(PeerMessage::Digest));
    all
}

fn is_cut_off(came: &Came) -> bool {
    came.has(|output| {
        matches!(output, Output::Close { link: LinkId(1), reason: CloseReason::ClockTooFar })
    })
}

#[test]
fn a_peer_that_says_so_in_whatever_message_is_cut_off_and_nothing_changes() {
    for far in [tock(FOREIGN_CLOCK_MAX + 1), Tock::MAX] {
        for at in 0..all_with(far).len() {
            let mut me = Hand::with_peers(2);
            me.hear(1, PeerMessage::CatchUpInvite);
            let message = all_with(far).swap_remove(at);
            let what = format!("{message:?}");
            assert_eq!(message.top_tock(), far, "{what}");
            let before = me.engine.knowledge();
            // What came before it counts, and nothing that comes behind it.
            let (ahead, behind) = (tock(5), tock(6));
            let came = me.hear_all(
                1,
                vec![
                    change("ahead", 1, ahead, Mark::default()),
                    message,
                    change("behind", 2, behind, Mark::default()),
                ],
            );
            assert!(is_cut_off(&came), "{what}");
            assert!(me.holds("ahead") && !me.holds("a") && !me.holds("b"), "{what}");
            assert!(!me.holds("behind"), "{what}");
            assert_eq!(me.engine.tock(), ahead, "{what}");
            assert_eq!(
                (me.engine.mark(), me.engine.group()),
                (&before.mark, before.group.as_ref())
            );
            me.write("mine", Some(&[1]));
            assert_eq!(me.engine.used_up(), None);
        }
    }
}

#[test]
fn what_is_at_the_bound_is_taken() {
    for at in 0..all_with(tock(1)).len() {
        let mut me = Hand::with_peers(2);
        me.hear(1, PeerMessage::CatchUpInvite);
        let message = all_with(tock(FOREIGN_CLOCK_MAX)).swap_remove(at);
        assert!(!is_cut_off(&me.hear(1, message)));
    }
}

/// Who brings the clock to the bound must not have nodes refuse each other's changes.
#[test]
fn nodes_whose_clock_is_at_the_bound_go_on_together() {
    let mut me = Hand::with_peers(2);
    me.hear(1, change("a", 1, tock(FOREIGN_CLOCK_MAX), Mark::default()));
    assert!(me.engine.far_clock().is_some());
    let made = tock(FOREIGN_CLOCK_MAX + 1);
    assert!(!is_cut_off(&me.hear(1, change("b", 2, made, Mark::default()))));
    me.write("c", Some(&[1]));
    assert_eq!(me.engine.tock(), tock(FOREIGN_CLOCK_MAX + 2));
    let far = tock(FOREIGN_CLOCK_MAX + 2 + FOREIGN_LEAD_MAX);
    let further = far.next().unwrap();
    assert!(is_cut_off(&me.hear(1, change("d", 3, further, Mark::default()))));
    assert!(!is_cut_off(&me.hear(1, change("e", 4, far, Mark::default()))));
    assert!(me.holds("b") && !me.holds("d") && me.holds("e"));
}

#[test]
fn a_clock_that_a_network_reaches_is_nothing_to_warn_of() {
    let mut me = Hand::with_peers(1);
    me.hear(1, change("a", 1, tock(FOREIGN_CLOCK_MAX - 1), Mark::default()));
    assert_eq!((me.engine.far_clock(), me.engine.used_up()), (None, None));
}

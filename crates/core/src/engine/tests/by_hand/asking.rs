//! The asking side: whom it asks, which answers count, and what ends it.

use super::*;
use crate::engine::repair::ask::{AVOID_MS, PASSED_BYTES_MAX, SILENCE_MS};
use crate::protocol::peer::{CatchUpKnown, CatchUpVerdict, Edge, RefuseReason};
use crate::protocol::record::{EventRef, Record};

/// An entry of `other`, whose tock is its tick.
fn record(at: &str, tick: u64) -> Record<'static> {
    let tick_of = Tick::new(tick).unwrap();
    Record {
        path: path(at),
        tock: tock(tick),
        events: [EventRef { name: "other", incarnation: Incarnation(1), tick: tick_of }]
            .into_iter()
            .collect(),
        chain_cut: false,
        time: None,
        value: Some(&[7]),
        origin: None,
        extra: Default::default(),
    }
}

fn known(mark: &Mark) -> PeerMessage<'static> {
    let (mark, seen) = (mark.clone(), ticks("other", 3));
    PeerMessage::CatchUpKnown(CatchUpKnown {
        id: 0,
        tock: Tock::default(),
        mark,
        seen,
        more: false,
    })
}

fn part(mark: &Mark, records: Vec<Record<'static>>) -> PeerMessage<'static> {
    PeerMessage::CatchUpPart { id: 0, mark: mark.clone(), records }
}

fn end(entries: u64) -> PeerMessage<'static> {
    PeerMessage::CatchUpEnd { id: 0, entries }
}

/// A node that has asked p1, which knows three ticks of `other` and has applied this purge.
fn asked(mark: &Mark) -> Hand {
    let mut me = Hand::with_peers(2);
    assert_eq!(me.hear(1, PeerMessage::CatchUpInvite).asked_whom(), [1]);
    assert_eq!(missing_wanted(&me.hear(1, known(mark))), [1]);
    me
}

fn missing_wanted(came: &Came) -> Vec<u64> {
    came.sent(|link, m| matches!(m, PeerMessage::CatchUpMissing { .. }).then_some(link.0))
}

fn invited(came: &Came) -> Vec<u64> {
    came.sent(|link, m| matches!(m, PeerMessage::CatchUpInvite).then_some(link.0))
}

fn is_done(came: &Came) -> bool {
    !came.reports(|r| matches!(r, Report::CatchUpDone { .. }).then_some(())).is_empty()
}

fn failures(came: &Came) -> Vec<CatchUpFailure> {
    came.reports(|report| match report {
        Report::CatchUpFailed { reason, .. } => Some(*reason),
        _ => None,
    })
}

fn is_known(me: &Hand, tick: u64) -> bool {
    let node = me.engine.table().find("other", Incarnation(1)).unwrap();
    me.engine.seen().contains(Event { node, tick: Tick::new(tick).unwrap() })
}

#[test]
fn who_has_most_of_what_is_missing_is_asked_and_that_is_told() {
    let mut me = Hand::with_peers(3);
    for (peer, last) in [(1, 3), (2, 9), (3, 5)] {
        assert!(me.hear(peer, digest(ticks("other", last), Mark::default())).asked().is_empty());
    }
    let came = me.tick_at(300);
    assert_eq!(came.asked_whom(), [2]);
    let told = came.reports(|report| match report {
        Report::CatchUpStarted { peer, missing } => Some((peer.to_string(), *missing)),
        _ => None,
    });
    assert_eq!(told, [("p2".to_owned(), 9)]);
}

#[test]
fn who_invites_is_asked_before_who_has_more_as_soon_as_the_link_of_another_is_gone() {
    let mut me = Hand::with_peers(3);
    assert_eq!(me.hear(3, PeerMessage::CatchUpInvite).asked_whom(), [3]);
    me.hear(2, digest(ticks("other", 9), Mark::default()));
    me.now = 300;
    assert!(me.hear(1, PeerMessage::CatchUpInvite).asked().is_empty(), "one at a time");
    assert_eq!(me.input(Input::LinkDown { link: LinkId(3) }).asked_whom(), [1]);
}

#[test]
fn an_answer_counts_only_from_who_was_asked() {
    let mut me = Hand::with_peers(2);
    me.hear(1, PeerMessage::CatchUpInvite);
    assert!(missing_wanted(&me.hear(2, known(&Mark::default()))).is_empty());
    assert_eq!(missing_wanted(&me.hear(1, known(&Mark::default()))), [1]);
}

#[test]
fn an_answer_that_was_not_expected_now_changes_nothing() {
    let mut me = asked(&Mark::default());
    let verdict = CatchUpVerdict { id: 0, gone: Vec::new(), empty: vec![0] };
    assert!(me.hear(1, PeerMessage::CatchUpVerdict(verdict)).0.is_empty());
    me.hear(1, part(&Mark::default(), vec![record("a", 3)]));
    let came = me.hear(1, end(1));
    assert!(is_done(&came) && me.holds("a"));
    assert!(is_known(&me, 1), "what is overwritten is known now, too");
    assert!(!came.has(|output| matches!(output, Output::Ready)), "it was ready before");
}

#[test]
fn what_is_missing_is_asked_for_in_lists_each_of_which_has_a_stream_of_its_own() {
    let mut me = Hand::with_peers(1);
    me.engine.config.lists.list.ranges = 1;
    me.hear(1, PeerMessage::CatchUpInvite);
    let seen = vec![(id("other"), TickSet::from_ranges([(1, 2), (3, 4)]).unwrap())];
    let (mark, tock) = (Mark::default(), Tock::default());
    let known = CatchUpKnown { id: 0, tock, mark, seen, more: false };
    let mut came = me.hear(1, PeerMessage::CatchUpKnown(known));
    for (at, tick) in [("a", 1), ("b", 3)] {
        assert_eq!(missing_wanted(&came), [1], "{at}");
        me.hear(1, part(&Mark::default(), vec![record(at, tick)]));
        came = me.hear(1, end(1));
    }
    assert!(is_done(&came) && failures(&came).is_empty());
}

#[test]
fn below_a_purge_of_its_own_a_stream_is_refused_as_a_whole() {
    let mut me = asked(&Mark::default());
    me.reach(&mark(true, 20));
    me.hear(1, part(&Mark::default(), vec![record("a", 3)]));
    assert!(!me.holds("a"));
    assert_eq!(failures(&me.hear(1, end(1))), [CatchUpFailure::AcrossPurge]);
    assert!(!is_known(&me, 1));
}

/// On two lineages, where entries at empty paths are re-issued.
#[test]
fn of_a_stream_that_held_what_was_refused_nothing_more_is_known() {
    let theirs = mark(false, 10);
    for is_refused in [false, true] {
        let mut me = Hand::with_peers(2);
        me.reach(&mark(true, 20));
        me.hear(1, PeerMessage::CatchUpInvite);
        me.hear(1, known(&theirs));
        if is_refused {
            // Its identity is in doubt, so it cannot re-issue anything.
            let event = Event { node: me.engine.own(), tick: Tick::new(99).unwrap() };
            me.engine.replica.check_own(event);
        }
        me.hear(1, part(&theirs, vec![record("a", 3)]));
        let came = me.hear(1, end(1));
        assert_eq!((me.holds("a"), is_done(&came)), (!is_refused, !is_refused));
        assert_eq!((is_known(&me, 3), is_known(&me, 1)), (!is_refused, !is_refused));
        // What was re-issued on the other's behalf is to be fetched there at once.
        assert_eq!(invited(&came), if is_refused { vec![] } else { vec![1] });
    }
}

#[test]
fn who_is_told_of_announcements_that_do_not_help_asks_for_the_data_at_once() {
    let mut me = Hand::with_peers(1);
    me.hear(1, digest(Vec::new(), mark(true, 9)));
    let [(1, ask)] = &me.tick_at(300).asked()[..] else { panic!("it is behind") };
    assert!(!ask.no_announcements);
    let refused = PeerMessage::CatchUpRefused { id: ask.id, reason: RefuseReason::Announced };
    let [(1, again)] = &me.hear(1, refused).asked()[..] else { panic!("at once") };
    assert!(again.no_announcements && again.id != ask.id);
}

/// Announcements may be more than the link's queue holds: then the answer is lost with them, every time.
#[test]
fn who_gets_no_answer_asks_for_the_data_and_not_for_announcements() {
    let mut me = Hand::with_peers(1);
    me.hear(1, digest(Vec::new(), mark(true, 9)));
    let [(1, ask)] = &me.tick_at(300).asked()[..] else { panic!("it is behind") };
    assert!(!ask.no_announcements);
    let silent = me.tick_at(300 + SILENCE_MS);
    assert_eq!(failures(&silent), [CatchUpFailure::Silent]);
    let [(1, again)] = &me.tick_at(300 + SILENCE_MS + AVOID_MS).asked()[..] else {
        panic!("it is still behind")
    };
    assert!(again.no_announcements && again.id != ask.id);
    // What came of it: a purge that was applied here meanwhile. Announcements may help again.
    me.reach(&mark(true, 8));
    let late = 300 + 2 * (SILENCE_MS + AVOID_MS);
    me.tick_at(late);
    let [(1, third)] = &me.tick_at(late + AVOID_MS).asked()[..] else { panic!("still behind") };
    assert!(!third.no_announcements);
}

/// A line on which one message takes longer than a catch-up may be silent.
#[test]
fn while_bytes_pass_that_it_may_stand_behind_an_answer_is_waited_for() {
    let mut me = Hand::with_peers(2);
    me.hear(1, PeerMessage::CatchUpInvite);
    let passing = |me: &mut Hand, link, bytes| {
        me.input(Input::Passing { link: LinkId(link), bytes });
    };
    let step = SILENCE_MS / 2;
    for _ in 0..10 {
        passing(&mut me, 1, 1_000);
        assert_eq!(failures(&me.tick_at(me.now + step)), []);
    }
    // What passes elsewhere is nothing that it waits for.
    passing(&mut me, 2, 1_000);
    assert_eq!(failures(&me.tick_at(me.now + step)), [CatchUpFailure::Silent]);
}

#[test]
fn an_answer_before_which_more_has_passed_than_can_stand_there_is_lost() {
    let half = PASSED_BYTES_MAX / 2;
    for has_answered in [true, false] {
        let mut me = Hand::with_peers(1);
        me.hear(1, PeerMessage::CatchUpInvite);
        for at in 0..3 {
            if at == 2 && has_answered {
                me.hear(1, known(&mark(true, 8)));
            }
            me.input(Input::Passing { link: LinkId(1), bytes: half });
            me.now += SILENCE_MS / 2;
        }
        // The third of them counts only if something has come before it.
        let lost = if has_answered { vec![] } else { vec![CatchUpFailure::Silent] };
        assert_eq!(failures(&me.tick_at(me.now)), lost);
    }
}

#[test]
fn who_names_more_lives_than_there_is_room_for_is_cut_off() {
    let is_full = |came: &Came| {
        came.has(|output| {
            matches!(output, Output::Close { link: LinkId(1), reason: CloseReason::TableFull })
        })
    };
    let mut me = Hand::with_peers(1);
    me.hear(1, PeerMessage::CatchUpInvite);
    me.fill_table();
    assert!(is_full(&me.hear(1, known(&Mark::default()))));
    assert!(is_full(&me.hear(1, part(&Mark::default(), vec![record("a", 3)]))));
}

/// In a big network, where changes are not pushed over all links.
#[test]
fn what_was_missing_for_too_long_is_pushed_over_that_link_from_now_on() {
    for (last, grafts) in [(3, 1), (0, 0)] {
        let mut me = Hand::with_peers(2);
        me.engine.config.full_mesh_max = 1;
        for peer in ["p1", "p2", "p3"] {
            me.input(Input::MemberUp { member: id(peer) });
        }
        me.tick_at(100);
        me.hear(1, PeerMessage::Edge(Edge { wanted: true, eager: false, relays: true }));
        let before = me.engine.counters().grafts;
        if last > 0 {
            me.hear(1, digest(ticks("other", last), Mark::default()));
            assert_eq!(me.tick_at(10_000).asked_whom(), [1]);
        } else {
            me.now = 10_000;
            assert_eq!(me.hear(1, PeerMessage::CatchUpInvite).asked_whom(), [1]);
        }
        assert_eq!(me.engine.counters().grafts - before, grafts, "{last} missing");
    }
}

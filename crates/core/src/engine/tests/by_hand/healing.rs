//! A split heals: who leaves asking to whom, and for how long.

use super::*;
use crate::engine::repair::resync::PATIENCE_MS;
use crate::model::ping::{ConfigVersion, GroupId, Ping};
use crate::protocol::peer::ResyncStatus;

fn ping(turn: u64, history: &str) -> PeerMessage<'static> {
    let history: Vec<_> = history.split(' ').map(|name| NodeName::new(name).unwrap()).collect();
    PeerMessage::Ping(Ping {
        group: GroupId(1),
        sender: history[0].clone(),
        turn,
        value: Some(5),
        history,
        meetings: Vec::new(),
        config: ConfigVersion::DEFAULT,
    })
}

/// p1, p2 and `me` are the housekeepers of one side, in this order, and meet those of p3's at 1,000.
fn met() -> Hand {
    let mut me = Hand::with_peers(3);
    me.now = 1_000;
    me.hear(1, ping(90, "p1 p2 me"));
    let started = me.hear(3, ping(40, "p3 y z")).reports(|report| match report {
        Report::ResyncStarted { ours, .. } => Some(ours.len()),
        _ => None,
    });
    assert_eq!(started, [3]);
    me
}

fn status(is_done: bool) -> PeerMessage<'static> {
    PeerMessage::Resync(ResyncStatus { entries: 1, remaining: 0, is_done })
}

/// Until when it leaves asking to others, and to whom.
fn held(me: &Hand) -> (Millis, Option<String>) {
    let driver = me.engine.resync_view(me.now).unwrap().driver;
    let until = (me.now..).find(|now| !me.engine.resync.holds(*now)).unwrap();
    (until, driver.map(|name| name.to_string()))
}

fn is_over(came: &Came) -> bool {
    !came.reports(|r| matches!(r, Report::ResyncDone { .. }).then_some(())).is_empty()
}

#[test]
fn only_the_end_of_the_driver_s_link_makes_the_next_one_wait_less() {
    let mut me = met();
    assert_eq!(held(&me), (1_000 + 2 * PATIENCE_MS, None));
    me.hear(1, status(false));
    let driven = (1_000 + 3 * PATIENCE_MS, Some("p1".to_owned()));
    assert_eq!(held(&me), driven);
    me.input(Input::LinkDown { link: LinkId(2) });
    assert_eq!(held(&me), driven);
    me.input(Input::LinkDown { link: LinkId(1) });
    assert_eq!(held(&me), (1_000 + PATIENCE_MS, None));
}

#[test]
fn who_has_fetched_from_the_other_side_is_asked_before_who_has_more() {
    let mut me = met();
    assert!(me.hear(2, status(true)).asked().is_empty(), "it has nothing that is missing");
    me.hear(1, digest(ticks("other", 9), Mark::default()));
    me.hear(2, digest(ticks("other", 3), Mark::default()));
    assert_eq!(me.tick_at(1_300).asked_whom(), [2]);
}

#[test]
fn who_fetches_from_its_own_side_reports_no_progress() {
    let progress =
        |came: &Came| came.sent(|_, m| matches!(m, PeerMessage::Resync(_)).then_some(())).len();
    for (asks, reports) in [(1, 0), (3, 1)] {
        let mut me = met();
        me.hear(1, status(true));
        assert_eq!(me.hear(asks, PeerMessage::CatchUpInvite).asked_whom(), [asks]);
        assert_eq!(progress(&me.tick_at(1_100)), reports, "asks p{asks}");
    }
}

#[test]
fn a_resync_lasts_while_something_is_fetched_or_is_known_to_be_lacking() {
    let mut idle = met();
    assert!(!is_over(&idle.tick_at(2_900)));
    assert!(is_over(&idle.tick_at(3_000)));
    // A catch-up is under way, though nothing is known to be missing.
    let mut busy = met();
    assert_eq!(busy.hear(3, PeerMessage::CatchUpInvite).asked_whom(), [3]);
    assert!(!is_over(&busy.tick_at(3_000)));
    // A peer has applied a purge, and others are to fetch that.
    let mut behind = met();
    behind.now = 2_000;
    behind.hear(1, status(false));
    behind.hear(3, digest(Vec::new(), mark(true, 9)));
    assert!(behind.engine.catch_up_progress().is_none());
    assert!(!is_over(&behind.tick_at(3_000)));
}

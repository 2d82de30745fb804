//! Repair, one engine by hand: what it asks and answers, compares, and does when a split heals.

mod answering;
mod asking;
mod comparing;
mod far_clock;
mod healing;

use super::*;
use crate::model::mark::Lineage;
use crate::model::seen::SeenById;

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

fn tock(number: u64) -> Tock {
    Tock::new(number).unwrap()
}

/// A mark of one component: of the first lineage, or of another.
fn mark(is_first: bool, to: u64) -> Mark {
    let other = Some((id("m"), Tick::new(1).unwrap()));
    Mark::from_components([(Lineage(if is_first { None } else { other }), tock(to))])
}

/// The ticks from 1 to `last` of a life that is nobody's here.
fn ticks(name: &str, last: u64) -> SeenById {
    vec![(id(name), TickSet::range(1, last + 1).unwrap())]
}

fn digest(seen: SeenById, mark: Mark) -> PeerMessage<'static> {
    PeerMessage::Digest(super::digest(seen, mark))
}

impl Hand {
    fn holds(&self, at: &str) -> bool {
        self.engine.get(path(at).as_bytes()).is_some()
    }

    /// This node has applied a purge.
    fn reach(&mut self, mark: &Mark) {
        self.engine.replica.hear_tock(mark.top());
        self.engine.replica.raise_mark_early(mark);
    }
}

#[test]
fn a_time_that_goes_back_is_the_latest_one() {
    let mut me = Hand::with_peers(1);
    me.tick_at(10_000);
    me.now = 0;
    assert_eq!(me.hear(1, PeerMessage::CatchUpInvite).asked_whom(), [1]);
    let came = me.tick_at(10_100);
    let failed = came.reports(|r| matches!(r, Report::CatchUpFailed { .. }).then_some(()));
    assert!(failed.is_empty(), "it was asked a moment ago");
}

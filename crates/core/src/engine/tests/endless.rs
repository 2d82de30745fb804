//! Whatever a peer answers: where that brings a node nothing, the node asks no further without the clock
//! going on. Otherwise the two would keep a processor of each busy, as fast as their link is.

use super::*;
use crate::model::mark::Lineage;
use crate::model::tick_set::TickSet;
use crate::protocol::peer::{CatchUpKnown, RefuseReason};

/// More questions than this at one moment would have no end. A question may be put again in another way:
/// without announcements.
const ASKS_MAX: usize = 2;

/// How the peer answers.
#[derive(Clone, Copy, Debug)]
enum Way {
    Refuses(RefuseReason),
    /// It knows nothing, and has applied no purge.
    HasNothing,
    /// It knows what it said in its digest, and sends none of it.
    SendsNothing,
}

/// A node with a peer.
fn linked(is_ready: bool) -> Hand {
    let mut me = Hand::new(Config::new(id("me"), 1));
    if is_ready {
        me.input(Input::Found);
    }
    me.link_up(1);
    me
}

/// What the peer was heard to have, and what is missing here.
fn seen() -> crate::model::seen::SeenById {
    vec![(id("other"), TickSet::range(1, 4).unwrap())]
}

/// The catch-ups for which a node asks, and those of which it asks for the data (false).
fn asked(came: &Came) -> Vec<(u64, bool)> {
    came.sent(|_, message| match message {
        PeerMessage::CatchUpAsk(ask) => Some((ask.id, true)),
        PeerMessage::CatchUpMissing { id, .. } => Some((*id, false)),
        _ => None,
    })
}

/// How often a node asks at one moment.
fn asks_of(way: Way, is_ready: bool, has_purged: bool) -> usize {
    let mut me = linked(is_ready);
    // Of its purges it may have told nothing yet.
    let purged = has_purged.then(|| (Lineage(None), Tock::new(9).unwrap()));
    let told = digest(seen(), Mark::from_components(purged));
    let mut open = asked(&me.hear(1, PeerMessage::Digest(told)));
    me.now = 10 * TICK_INTERVAL_MS;
    if open.is_empty() {
        open = asked(&me.input(Input::Tick));
    }
    let mut asks = 0;
    while let Some((id, is_ask)) = open.pop() {
        asks += usize::from(is_ask);
        if asks > 100 * ASKS_MAX {
            break;
        }
        let known = |seen, mark| {
            let tock = Tock::default();
            PeerMessage::CatchUpKnown(CatchUpKnown { id, tock, mark, seen, more: false })
        };
        let end = PeerMessage::CatchUpEnd { id, entries: 0 };
        let messages = match way {
            Way::Refuses(reason) => vec![PeerMessage::CatchUpRefused { id, reason }],
            _ if !is_ask => vec![end],
            Way::HasNothing => vec![known(Vec::new(), Mark::default())],
            Way::SendsNothing => vec![known(seen(), Mark::default())],
        };
        open.extend(asked(&me.hear_all(1, messages)));
    }
    asks
}

#[test]
fn a_peer_whose_answers_bring_nothing_is_not_asked_again_at_once() {
    use RefuseReason::{Announced, Behind, Busy, NotReady, TooLong};
    let refusals = [Announced, Behind, Busy, NotReady, TooLong].map(Way::Refuses);
    let others = [Way::HasNothing, Way::SendsNothing];
    for way in refusals.into_iter().chain(others) {
        for (is_ready, has_purged) in [(true, true), (true, false), (false, true), (false, false)] {
            let asks = asks_of(way, is_ready, has_purged);
            let case = format!("{way:?}, ready: {is_ready}, purged: {has_purged}: {asks} asks");
            assert!((1..=ASKS_MAX).contains(&asks), "{case}");
        }
    }
}

//! Whatever a peer answers: where that brings a node nothing, the node asks no further without the clock
//! going on. Otherwise the two would keep a processor of each busy, as fast as their link is.

use super::*;
use crate::model::mark::Lineage;
use crate::model::tick_set::TickSet;
use crate::protocol::frame::{BODY_BYTES_MAX, split_frame};
use crate::protocol::peer::{CatchUpKnown, Digest, RefuseReason, Unnamed};

const LINK: LinkId = LinkId(1);
/// More questions than this at one moment would have no end. A question may be put again in another way:
/// without announcements.
const ASKS_MAX: usize = 2;

fn id(name: &str) -> NodeId {
    NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(1) }
}

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
fn linked(is_ready: bool) -> Engine {
    let mut engine = Engine::new(Config::new(id("me"), 1));
    let out = &mut Outbox::new();
    if is_ready {
        engine.handle(Input::Found, 0, out);
    }
    engine.handle(Input::LinkUp { link: LINK, peer: id("peer") }, 0, out);
    engine
}

/// What it was heard to have; of its purges perhaps nothing yet.
fn digest(has_purged: bool) -> PeerMessage<'static> {
    let purged = has_purged.then(|| (Lineage(None), Tock::new(9).unwrap()));
    PeerMessage::Digest(Digest {
        ready: true,
        tock: Tock::default(),
        mark: Mark::from_components(purged),
        seen: seen(),
        unnamed: Unnamed::Unsaid,
        contents: None,
    })
}

/// What the peer was heard to have, and what is missing here.
fn seen() -> crate::model::seen::SeenById {
    vec![(id("other"), TickSet::range(1, 4).unwrap())]
}

/// The catch-ups for which a node asks, and those of which it asks for the data (false).
fn asked(engine: &mut Engine, input: Input<'_>, now: Millis) -> Vec<(u64, bool)> {
    let mut out = Outbox::new();
    engine.handle(input, now, &mut out);
    let mut asked = Vec::new();
    for output in out.drain() {
        let Output::Send { frame, .. } = output else { continue };
        let frame = split_frame(&frame, BODY_BYTES_MAX).unwrap().unwrap();
        match PeerMessage::decode(&frame).unwrap().unwrap() {
            PeerMessage::CatchUpAsk(ask) => asked.push((ask.id, true)),
            PeerMessage::CatchUpMissing { id, .. } => asked.push((id, false)),
            _ => {}
        }
    }
    asked
}

/// How often a node asks at one moment.
fn asks_of(way: Way, is_ready: bool, has_purged: bool) -> usize {
    let mut engine = linked(is_ready);
    let said = |message| Input::Messages { link: LINK, messages: vec![message] };
    let mut open = asked(&mut engine, said(digest(has_purged)), 0);
    let now = 10 * TICK_INTERVAL_MS;
    if open.is_empty() {
        open = asked(&mut engine, Input::Tick, now);
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
        open.extend(asked(&mut engine, Input::Messages { link: LINK, messages }, now));
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

//! How changes and messages go on in a network that is too large for a full mesh: one node, whose peers say
//! what a test wants them to. And what it acknowledges, in networks of both kinds.

use std::sync::Arc;

use super::*;
use crate::engine::overlay::Mesh;
use crate::protocol::frame::{BODY_BYTES_MAX, split_frame};
use crate::protocol::peer::{CatchUpAsk, Edge, PeerMessage, Relayed, Unnamed};

/// What was said to whom: to a link, or, as 0, to clients here.
type Said = Vec<(u64, String)>;

/// Node `me`. Its peer over link 1 is `p1`, and so on.
struct Alone {
    hand: Hand,
}

/// A link that is part of the tree, as its peer sees it.
const EAGER: Edge = Edge { wanted: true, eager: true, relays: true };
const LAZY: Edge = Edge { eager: false, ..EAGER };

impl Alone {
    /// In a network of more nodes than are all linked with all, linked with so many members.
    fn tree(peers: u64) -> Self {
        let mut alone = Self::new(peers, 1);
        assert_eq!(alone.hand.engine.spread_view().mesh, Mesh::Tree);
        let wanted = Arc::clone(alone.hand.engine.wanted_links().unwrap());
        assert_eq!(wanted.len() as u64, peers, "all of them are neighbours");
        for link in 1..=peers {
            assert_eq!(edges(alone.edge(link, EAGER)), [], "it said so itself");
        }
        alone
    }

    /// In a network in which all are linked with all.
    fn full(peers: u64) -> Self {
        let alone = Self::new(peers, 48);
        assert_eq!(alone.hand.engine.spread_view().mesh, Mesh::Full);
        alone
    }

    fn new(peers: u64, full_mesh_max: usize) -> Self {
        let config = Config { full_mesh_max, ..Config::new(id("me"), 1) };
        let mut alone = Self { hand: Hand { now: 100_000, ..Hand::new(config) } };
        alone.handle(Input::Found);
        for link in 1..=peers {
            alone.handle(Input::MemberUp { member: id(&format!("p{link}")) });
        }
        alone.pass(TICK_INTERVAL_MS);
        for link in 1..=peers {
            alone.link_up(link);
        }
        alone
    }

    fn link_up(&mut self, link: u64) -> Said {
        let came = self.hand.link_up(link);
        self.said(came)
    }

    fn handle(&mut self, input: Input<'_>) -> Said {
        let came = self.hand.input(input);
        self.said(came)
    }

    fn hear(&mut self, link: u64, message: PeerMessage<'_>) -> Said {
        let came = self.hand.hear(link, message);
        self.said(came)
    }

    fn edge(&mut self, link: u64, edge: Edge) -> Said {
        self.hear(link, PeerMessage::Edge(edge))
    }

    fn hear_frame(&mut self, link: u64, frame: &[u8]) -> Said {
        let came = self.hand.hear_frame(link, frame);
        self.said(came)
    }

    fn pass(&mut self, ms: Millis) -> Said {
        let came = self.hand.pass(ms);
        self.said(came)
    }

    fn said(&self, came: Came) -> Said {
        let all = || self.hand.engine.peers.iter().map(|(link, _)| link).collect();
        let mut said = Vec::new();
        for output in came.0 {
            let (links, text): (Vec<LinkId>, String) = match output {
                Output::Broadcast { frame } => (all(), text(&frame)),
                Output::Multicast { links, frame } => {
                    assert!(!links.is_empty(), "to nobody: {}", text(&frame));
                    (links, text(&frame))
                }
                Output::Send { link, frame } => (vec![link], text(&frame)),
                Output::Close { link, reason } => (vec![link], format!("close {reason:?}")),
                Output::Topic { topic, .. } => (vec![LinkId(0)], format!("topic {topic}")),
                Output::AckProgress => (vec![LinkId(0)], "copies".into()),
                _ => continue,
            };
            said.extend(links.into_iter().map(|link| (link.0, text.clone())));
        }
        said
    }

    /// What it says when a client changes something, and the change's frame.
    fn write(&mut self, path: &str) -> (Said, Arc<[u8]>) {
        let came = self.hand.write(path, Some(&[1]));
        let frame = frame_of(&came);
        (self.said(came), frame)
    }

    fn lazy(&self) -> usize {
        self.hand.engine.spread_view().lazy
    }

    fn flood(&mut self, wide: bool) -> Said {
        let mut out = Outbox::new();
        let message = PeerMessage::Topic { topic: "t".parse().unwrap(), data: &[1] };
        self.hand.engine.flood(&message, wide, &mut out);
        self.said(Came::of(out))
    }

    /// Another node's message to all comes over a link.
    fn relayed(&mut self, link: u64, origin: &str, number: u64, wide: bool) -> Said {
        let topic = "t".parse().unwrap();
        let frame = encode(&PeerMessage::Topic { topic, data: &[1] }, self.hand.engine.table());
        let relayed = Relayed { origin: id(origin), number, wide, frame: &frame };
        self.hear(link, PeerMessage::Relayed(relayed))
    }
}

/// The frame of a change that was made.
fn frame_of(came: &Came) -> Arc<[u8]> {
    let frame = came.0.iter().find_map(|output| match output {
        Output::Broadcast { frame } | Output::Multicast { frame, .. } => Some(Arc::clone(frame)),
        _ => None,
    });
    frame.unwrap()
}

fn text(frame: &[u8]) -> String {
    let frame = split_frame(frame, BODY_BYTES_MAX).unwrap().unwrap();
    match PeerMessage::decode(&frame).unwrap().unwrap() {
        PeerMessage::Change(change) => format!("change {}", change.record.path),
        PeerMessage::Edge(edge) => {
            let eager = if edge.eager { "eager" } else { "lazy" };
            let relays = if edge.relays { "" } else { ", does not relay" };
            format!("edge {eager}{relays}")
        }
        PeerMessage::Relayed(relayed) => {
            let width = if relayed.wide { "wide" } else { "narrow" };
            format!("{width} {} {}", relayed.origin.name, text(relayed.frame))
        }
        PeerMessage::Topic { topic, .. } => format!("topic {topic}"),
        PeerMessage::Ack(tick) => format!("ack {tick}"),
        PeerMessage::Digest(digest) if digest.unnamed == Unnamed::Unsaid => "changes".into(),
        _ => "other".into(),
    }
}

fn of_kind(said: Said, kind: &str) -> Said {
    said.into_iter().filter(|(_, text)| text.starts_with(kind)).collect()
}

fn edges(said: Said) -> Said {
    of_kind(said, "edge")
}

fn is(said: &Said, expected: &[(u64, &str)]) {
    let said: Vec<(u64, &str)> = said.iter().map(|(link, text)| (*link, text.as_str())).collect();
    assert_eq!(said, expected);
}

/// Another node's changes, as frames.
struct Maker(Engine);

impl Maker {
    fn new(name: &str) -> Self {
        let mut maker = Hand::new(Config::new(id(name), 1));
        maker.input(Input::Found);
        maker.link_up(1);
        Self(maker.engine)
    }

    fn change(&mut self, path: &str, ack_wanted: bool) -> Arc<[u8]> {
        let mut out = Outbox::new();
        self.0.write(&mut write(path, Some(&[1])), ack_wanted, &mut out).unwrap();
        frame_of(&Came::of(out))
    }
}

#[test]
fn a_change_that_is_new_goes_on_over_eager_links_but_not_back_nor_to_its_maker() {
    let mut me = Alone::tree(4);
    me.edge(4, LAZY);
    let change = Maker::new("p2").change("k", false);
    is(&of_kind(me.hear_frame(1, &change), "change"), &[(3, "change k")]);
    assert_eq!(me.hand.engine.counters().relayed, 1);
    is(&me.hear_frame(1, &change), &[]);
}

#[test]
fn what_comes_from_one_who_does_not_pass_on_changes_is_not_passed_on_either() {
    let mut me = Alone::tree(3);
    me.edge(1, Edge { relays: false, ..EAGER });
    let change = Maker::new("p1").change("k", false);
    is(&me.hear_frame(1, &change), &[]);
    is(&me.hear_frame(2, &change), &[]);
    assert_eq!(me.lazy(), 0, "that link is not part of the tree, so there is no circle");
}

#[test]
fn a_link_that_brings_a_second_copy_is_told_that_it_is_lazy_and_again_every_second() {
    let mut me = Alone::tree(3);
    let mut far = Maker::new("far");
    let mut twice = |me: &mut Alone, path: &str| {
        let change = far.change(path, false);
        let pushed = of_kind(me.hear_frame(1, &change), "change");
        assert!(pushed.iter().all(|(link, _)| *link != 1), "{pushed:?}");
        is(&me.hear_frame(1, &change), &[]);
        me.hear_frame(2, &change)
    };
    is(&twice(&mut me, "a"), &[(2, "edge lazy")]);
    assert_eq!(
        (me.lazy(), me.hand.engine.counters().prunes, me.hand.engine.counters().duplicates),
        (1, 1, 1)
    );
    me.pass(500);
    is(&twice(&mut me, "b"), &[]);
    assert_eq!((me.hand.engine.counters().prunes, me.hand.engine.counters().duplicates), (1, 2));
    me.pass(500);
    is(&twice(&mut me, "c"), &[(2, "edge lazy")]);
    assert_eq!((me.lazy(), me.hand.engine.counters().prunes), (1, 2));
}

#[test]
fn a_circle_is_closed_only_if_its_other_half_stands() {
    let mut me = Alone::tree(3);
    let mut far = Maker::new("far");
    let change = far.change("a", false);
    me.hear_frame(1, &change);
    me.edge(1, LAZY);
    is(&me.hear_frame(2, &change), &[]);
    let change = far.change("b", false);
    me.hear_frame(3, &change);
    me.handle(Input::LinkDown { link: LinkId(3) });
    me.edge(1, EAGER);
    is(&me.hear_frame(2, &change), &[]);
    assert_eq!(me.lazy(), 0);
}

#[test]
fn own_changes_go_over_eager_links_and_to_those_who_do_not_relay_and_a_copy_closes_a_circle() {
    let mut me = Alone::tree(3);
    let (said, first) = me.write("a");
    is(&said, &[(1, "change a"), (2, "change a"), (3, "change a")]);
    is(&me.hear_frame(2, &first), &[(2, "edge lazy")]);
    me.edge(3, Edge { eager: false, relays: false, ..EAGER });
    is(&me.write("b").0, &[(1, "change b"), (3, "change b")]);
}

#[test]
fn a_lazy_link_that_brings_news_is_eager_again_unless_nobody_wants_it() {
    let mut me = Alone::tree(3);
    let mut far = Maker::new("far");
    me.edge(1, LAZY);
    me.hear_frame(1, &far.change("a", false));
    assert_eq!(me.lazy(), 0);
    // No member has that name, so nothing but the peer's wish keeps the link.
    me.link_up(9);
    me.edge(9, Edge { wanted: false, ..EAGER });
    me.pass(TICK_INTERVAL_MS);
    assert_eq!(me.lazy(), 1);
    me.hear_frame(9, &far.change("b", false));
    assert_eq!(me.lazy(), 1);
}

#[test]
fn a_link_is_closed_when_neither_side_has_wanted_it_for_a_while_and_nobody_catches_up() {
    let mut me = Alone::tree(3);
    me.edge(1, Edge { wanted: false, ..EAGER });
    for link in 7..=9 {
        is(&edges(me.link_up(link)), &[(link, "edge eager")]);
        me.edge(link, Edge { wanted: link == 7, ..EAGER });
    }
    let (mark, contiguous) = (Mark::default(), Vec::new());
    let ask = CatchUpAsk { id: 1, mark, contiguous, no_announcements: false };
    me.hear(8, PeerMessage::CatchUpAsk(ask));
    let closed = |said: Said| of_kind(said, "close");
    is(&closed(me.pass(5_000)), &[]);
    is(&closed(me.pass(TICK_INTERVAL_MS)), &[(9, "close Unneeded")]);
    me.handle(Input::LinkDown { link: LinkId(9) });
    is(&closed(me.pass(10_000)), &[]);
    me.hear(8, PeerMessage::CatchUpDone { id: 1 });
    is(&closed(me.pass(TICK_INTERVAL_MS)), &[(8, "close Unneeded")]);
}

#[test]
fn who_loses_an_eager_link_makes_the_lazy_ones_eager_and_tells_their_peers() {
    let mut me = Alone::tree(4);
    me.link_up(9);
    me.edge(9, Edge { wanted: false, ..EAGER });
    me.pass(TICK_INTERVAL_MS);
    me.edge(2, LAZY);
    let grafts = me.hand.engine.counters().grafts;
    is(&edges(me.handle(Input::LinkDown { link: LinkId(1) })), &[(2, "edge eager")]);
    // Link 9 is about to be closed.
    assert_eq!((me.lazy(), me.hand.engine.counters().grafts), (1, grafts + 1));
}

#[test]
fn the_loss_of_a_link_outside_of_the_tree_changes_nothing() {
    let mut me = Alone::tree(4);
    me.edge(1, LAZY);
    me.edge(2, LAZY);
    me.edge(3, Edge { relays: false, ..EAGER });
    is(&edges(me.handle(Input::LinkDown { link: LinkId(1) })), &[]);
    is(&edges(me.handle(Input::LinkDown { link: LinkId(3) })), &[]);
    assert_eq!(me.lazy(), 1);
}

#[test]
fn members_that_come_make_no_lazy_link_eager_and_nothing_is_said_twice() {
    let mut me = Alone::tree(3);
    me.edge(1, LAZY);
    me.handle(Input::MemberUp { member: id("p4") });
    is(&edges(me.pass(1_000)), &[]);
    assert_eq!(me.lazy(), 1);
}

#[test]
fn when_the_network_has_shrunk_each_maker_reaches_all_and_peers_are_told() {
    let mut me = Alone::tree(2);
    me.edge(1, LAZY);
    me.hand.engine.config.full_mesh_max = 48;
    me.handle(Input::MemberDown { member: id("p2") });
    let told = (1..=2).map(|link| (link, "edge eager, does not relay")).collect::<Vec<_>>();
    is(&edges(me.pass(1_000)), &told);
    assert_eq!((me.hand.engine.spread_view().mesh, me.lazy()), (Mesh::Full, 0));
}

/// A peer takes the network for large already.
#[test]
fn in_a_full_mesh_a_node_leaves_it_to_its_peers_which_links_are_eager() {
    let mut me = Alone::full(2);
    is(&edges(me.link_up(3)), &[]);
    for link in 1..=3 {
        is(&me.edge(link, LAZY), &[(link, "edge lazy, does not relay")]);
    }
    me.handle(Input::MemberUp { member: id("p3") });
    is(&edges(me.pass(1_000)), &[]);
    let mut out = Outbox::new();
    me.hand.engine.graft(LinkId(1), me.hand.now, &mut out);
    assert!(out.is_empty());
    me.edge(2, EAGER);
    is(&edges(me.handle(Input::LinkDown { link: LinkId(2) })), &[]);
    assert_eq!((me.lazy(), me.hand.engine.counters().grafts), (2, 0));
    is(&me.write("k").0, &[(1, "change k"), (3, "change k")]);
}

#[test]
fn a_link_that_was_missed_is_made_eager_also_if_only_the_peer_takes_it_for_lazy() {
    let mut me = Alone::tree(3);
    let mut out = Outbox::new();
    me.hand.engine.graft(LinkId(1), me.hand.now, &mut out);
    is(&me.said(Came::of(out)), &[(1, "edge eager")]);
}

#[test]
fn a_message_to_all_goes_in_an_envelope_to_all_who_know_of_edges() {
    let mut me = Alone::tree(3);
    me.edge(2, LAZY);
    // It is of an earlier version.
    me.link_up(9);
    is(&me.flood(false), &[(1, "narrow me topic t"), (3, "narrow me topic t"), (9, "topic t")]);
    let everybody = [1, 2, 3].map(|link| (link, "wide me topic t"));
    is(&me.flood(true), &[&everybody[..], &[(9, "topic t")]].concat());
    let mut me = Alone::full(2);
    is(&me.flood(true), &[(1, "topic t"), (2, "topic t")]);
}

#[test]
fn a_message_to_all_is_taken_and_passed_on_once() {
    let mut me = Alone::tree(4);
    me.edge(2, LAZY);
    me.edge(4, Edge { relays: false, ..EAGER });
    me.link_up(9);
    let narrow = [(0, "topic t"), (3, "narrow far topic t"), (4, "narrow far topic t")];
    is(&me.relayed(1, "far", 1, false), &narrow);
    is(&me.relayed(4, "far", 1, false), &[]);
    assert_eq!(me.lazy(), 1, "no tree goes over a link whose peer does not relay");
    is(&me.relayed(3, "far", 1, false), &[(3, "edge lazy")]);
    let wide = [0, 2, 3, 4].map(|link| match link {
        0 => (0, "topic t"),
        link => (link, "wide far topic t"),
    });
    is(&me.relayed(1, "far", 2, true), &wide);
    is(&me.relayed(4, "far", 2, true), &[]);
    assert_eq!(me.lazy(), 2, "these go over all links");
    is(&me.relayed(1, "me", 1, true), &[]);
}

#[test]
fn a_message_to_all_ends_where_no_other_link_is() {
    let mut me = Alone::tree(1);
    is(&me.relayed(1, "far", 1, true), &[(0, "topic t")]);
}

#[test]
fn digests_of_changes_go_where_the_changes_themselves_do_not() {
    let mut me = Alone::tree(4);
    me.edge(2, LAZY);
    me.edge(3, Edge { relays: false, ..EAGER });
    me.pass(6_000);
    me.write("k");
    is(&of_kind(me.pass(250), "changes"), &[(2, "changes"), (3, "changes")]);
    let mut me = Alone::full(2);
    me.edge(1, EAGER);
    me.pass(6_000);
    me.write("k");
    is(&of_kind(me.pass(250), "changes"), &[(1, "changes"), (2, "changes")]);
}

/// How many digests of changes go over link 1 within 3 s, while something changes all the time.
fn digests_of_changes(mut me: Alone) -> usize {
    me.edge(1, LAZY);
    me.pass(6_000);
    let mut said = Vec::new();
    for _ in 0..60 {
        me.write("k");
        said.extend(of_kind(me.pass(TICK_INTERVAL_MS), "changes"));
    }
    said.into_iter().filter(|(link, _)| *link == 1).count()
}

#[test]
fn digests_of_changes_are_rarer_where_each_goes_to_many() {
    assert_eq!(digests_of_changes(Alone::full(12)), 15, "every 200 ms");
    assert_eq!(digests_of_changes(Alone::full(25)), 5, "every 600 ms");
    // There they go over the few links only that are lazy.
    assert_eq!(digests_of_changes(Alone::new(25, 1)), 15);
}

#[test]
fn the_maker_of_a_change_that_waits_for_copies_is_answered_at_once_whoever_passed_it_on() {
    let mut me = Alone::tree(3);
    let acks = |said: Said| of_kind(said, "ack");
    is(&acks(me.hear_frame(1, &Maker::new("p3").change("a", false))), &[]);
    is(&acks(me.hear_frame(1, &Maker::new("p2").change("b", true))), &[(2, "ack 1")]);
    is(&acks(me.pass(200)), &[(3, "ack 1")]);
    is(&acks(me.pass(1_000)), &[]);
}

#[test]
fn acknowledgements_count_once_and_only_for_what_was_made_in_this_life() {
    let mut me = Alone::full(1);
    let tick = |tick| Tick::new(tick).unwrap();
    me.write("a");
    me.write("b");
    is(&me.hear(1, PeerMessage::Ack(tick(3))), &[]);
    assert_eq!(me.hand.engine.copies(tick(1)), 0, "no peer has more than was made");
    is(&me.hear(1, PeerMessage::Ack(tick(2))), &[(0, "copies")]);
    is(&me.hear(1, PeerMessage::Ack(tick(2))), &[]);
    assert_eq!((me.hand.engine.copies(tick(2)), me.hand.engine.unshared_changes()), (1, 0));
    me.handle(Input::Renewed { incarnation: Incarnation(2) });
    me.write("a");
    assert_eq!(me.hand.engine.unshared_changes(), 1);
    is(&me.hear(1, PeerMessage::Ack(tick(1))), &[]);
    assert_eq!((me.hand.engine.copies(tick(1)), me.hand.engine.unshared_changes()), (0, 1));
}

#[test]
fn more_copies_than_there_are_links_are_refused_in_a_large_network_only() {
    let copies = |me: &mut Alone, copies| {
        let op = WriteOp { copies, ..WriteOp::new(write("k", Some(&[1]))) };
        let (mut ops, mut out) = ([Operation::Write(op)], Outbox::new());
        let done = me.hand.engine.write_batch(&mut ops, BatchTerms::WHOLE, &mut out);
        match done.outcomes.into_iter().next().flatten() {
            Some(Outcome::Refused(error)) => Some(error),
            _ => None,
        }
    };
    let mut me = Alone::tree(2);
    let refused = EngineWriteError::TooManyCopies { wanted: 3, max: 2 };
    assert_eq!((copies(&mut me, 3), copies(&mut me, 2)), (Some(refused), None));
    assert_eq!(copies(&mut Alone::full(2), 3), None, "others may come");
}

#[test]
fn a_peer_is_known_as_soon_as_it_is_linked() {
    let me = Alone::full(1);
    assert!(me.hand.engine.table().find("p1", Incarnation(1)).is_some());
}

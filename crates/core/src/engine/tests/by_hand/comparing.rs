//! Replication rule 10: when sums are compared, and what is said of it.

use super::*;
use crate::protocol::peer::{ContentsAsk, ContentsList, ContentsTold};
use crate::tree::content_sums::BUCKET_COUNT;

/// The sums of a node with other contents than `me` has; equal ones but for those of two buckets.
fn sums(me: &Hand, differing: [u64; 2]) -> Vec<(u16, u64)> {
    let ours = me.engine.replica.contents().buckets().iter().enumerate();
    let theirs = ours.map(|(at, sum)| (at as u16, sum ^ differing.get(at).unwrap_or(&0)));
    theirs.collect()
}

/// p1 asks for a comparison; gives the buckets that are listed.
fn listed(me: &mut Hand, differed: bool, is_equal: bool, differing: [u64; 2]) -> Vec<Vec<u16>> {
    let seen = me.engine.replica.seen_fingerprint() ^ u64::from(!is_equal);
    let sums = sums(me, differing);
    let ask = ContentsAsk { mark: Mark::default(), seen, differed, sums };
    me.hear(1, PeerMessage::ContentsAsk(ask)).served(|message| match message {
        PeerMessage::ContentsList(list) => list.buckets.clone(),
        other => panic!("{other:?}"),
    })
}

fn told(came: &Came) -> Vec<String> {
    came.reports(|report| match report {
        Report::ContentsDiffer { peer } => Some(peer.to_string()),
        _ => None,
    })
}

#[test]
fn a_peer_that_differs_is_asked_every_two_seconds_at_most() {
    let mut me = Hand::with_peers(1);
    let theirs = ContentsTold { seen: me.engine.replica.seen_fingerprint(), sum: 1 };
    let mut asked = Vec::new();
    for now in [0, 1_000, 1_999, 2_000, 3_999, 4_000] {
        let mut out = Outbox::new();
        me.engine.on_contents_told(LinkId(1), &Mark::default(), theirs, now, &mut out);
        let came = Came::of(out);
        let is_asked =
            |_, m: &PeerMessage<'_>| matches!(m, PeerMessage::ContentsAsk(_)).then_some(());
        asked.extend(came.sent(is_asked).into_iter().map(|()| now));
    }
    assert_eq!(asked, [0, 2_000, 4_000]);
}

#[test]
fn buckets_that_differed_are_listed_and_others_only_if_neither_side_has_changed() {
    let mut me = Hand::with_peers(1);
    // The peer is certain, whatever has come here meanwhile.
    assert_eq!(listed(&mut me, true, false, [1, 1]), [[0, 1]]);
    // It is not: what differs may be under way.
    assert!(listed(&mut me, false, false, [1, 1]).is_empty());
    assert_eq!(listed(&mut me, false, false, [1, 1]), [[0, 1]]);
    assert_eq!(listed(&mut me, false, false, [2, 1]), [[1]], "one has changed there");
    assert_eq!(listed(&mut me, false, false, [2, 1]), [[0, 1]]);
    let bucket_of_k = bucket_of("k");
    assert!(bucket_of_k > 1);
    me.write("k", Some(&[1]));
    assert_eq!(listed(&mut me, false, false, [2, 1]), [[0, 1]]);
}

fn bucket_of(at: &str) -> u16 {
    crate::tree::content_sums::bucket_of(crate::tree::content_sums::path_hash(path(at).as_bytes()))
}

#[test]
fn a_bucket_that_has_changed_at_one_node_is_not_the_same() {
    let sums = |first: u64, second: u64| -> Box<[u64]> { Box::from([first, second]) };
    let is_same = crate::engine::repair::contents::is_same_bucket;
    let before = (sums(1, 2), sums(3, 4));
    for (now, same) in [
        ((sums(1, 2), sums(3, 4)), [true, true]),
        ((sums(9, 2), sums(3, 4)), [false, true]),
        ((sums(1, 2), sums(3, 9)), [true, false]),
    ] {
        assert_eq!([0, 1].map(|bucket| is_same(&before, &now, bucket)), same);
    }
}

#[test]
fn a_certain_difference_is_told_once_until_the_contents_are_equal_again() {
    let mut me = Hand::with_peers(1);
    let ask = |me: &Hand| {
        let seen = me.engine.replica.seen_fingerprint();
        let sums = sums(me, [1, 0]);
        PeerMessage::ContentsAsk(ContentsAsk { mark: Mark::default(), seen, differed: true, sums })
    };
    assert!(me.engine.contents_differ().is_empty());
    for (is_first, expected) in [(true, vec!["p1".to_owned()]), (false, Vec::new())] {
        let message = ask(&me);
        assert_eq!(told(&me.hear(1, message)), expected, "first: {is_first}");
        assert_eq!(me.engine.contents_differ(), [NodeName::new("p1").unwrap()]);
    }
    assert_eq!(me.engine.counters().contents_differed, 1);
    let equal = me.engine.contents_told().unwrap();
    me.engine.on_contents_told(LinkId(1), &Mark::default(), equal, 0, &mut Outbox::new());
    assert!(me.engine.contents_differ().is_empty());
}

#[test]
fn who_answers_a_list_with_its_own_says_nothing_of_a_difference() {
    let mut me = Hand::with_peers(1);
    me.write("k", Some(&[1]));
    let list = ContentsList {
        mark: Mark::default(),
        differs: false,
        buckets: (0..BUCKET_COUNT as u16).collect(),
        last: true,
        answer_wanted: true,
        makers: Vec::new(),
        entries: Vec::new(),
    };
    let came = me.hear(1, PeerMessage::ContentsList(list));
    assert!(told(&came).is_empty() && me.engine.contents_differ().is_empty());
    let answers = came.served(|message| match message {
        PeerMessage::ContentsList(list) => {
            (list.differs, list.answer_wanted, list.last, list.entries.len())
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(answers, [(false, false, true, 1)]);
}

//! Who finds a conflict.

use super::hand::Hand;
use super::net::Net;
use crate::engine::conflicts::FoundConflict;
use crate::engine::*;
use crate::protocol::peer::ChangeMessage;
use crate::protocol::record::{EventRef, Record};
use crate::replica::watch::WatchScope;

/// The conflicts in a node's list: the makers of winner and loser.
fn found(net: &Net, node: usize) -> Vec<(String, String)> {
    let engine = net.engine(node);
    let maker = |entry: &Entry| {
        let life = engine.table().get(entry.newest().node).unwrap();
        life.name.to_string()
    };
    let makers =
        |found: &Arc<FoundConflict>| (maker(&found.conflict.winner), maker(&found.conflict.loser));
    engine.conflicts().since(0).map(makers).collect()
}

#[test]
fn every_node_that_had_the_losing_version_finds_the_conflict_once() {
    let mut net = Net::new(5);
    net.connect_all();
    net.settle();
    for (a, b) in [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)] {
        net.disconnect(a, b);
    }
    net.write(0, "both", Some(&[1])).unwrap();
    net.write(3, "both", Some(&[2])).unwrap();
    net.settle();
    net.connect(1, 2);
    net.settle();
    net.connect_all();
    net.settle();
    // Equal tocks: the greater name wins.
    for loser_side in [0, 1] {
        assert_eq!(found(&net, loser_side), [("n3".to_owned(), "n0".to_owned())]);
        assert_eq!(net.engine(loser_side).counters().conflicts, 1);
    }
}

/// What watchers are told by a change of a peer that was cut off: paths of changes, numbers of
/// conflicts.
fn told(me: &mut Hand, path: &str, tick: u64, tock: u64) -> Vec<String> {
    let event =
        EventRef { name: "peer", incarnation: Incarnation(7), tick: Tick::new(tick).unwrap() };
    let record = Record {
        path: path.parse().unwrap(),
        tock: Tock::new(tock).unwrap(),
        events: [event].into_iter().collect(),
        chain_cut: false,
        time: None,
        value: Some(&[2]),
        origin: None,
        extra: Default::default(),
    };
    let change = ChangeMessage { mark: Mark::default(), ack_wanted: false, record };
    let came = me.hear(1, PeerMessage::Change(change));
    came.0
        .into_iter()
        .filter_map(|output| match output {
            Output::Notify { change, .. } => Some(change.path.to_string()),
            Output::NotifyConflict { number, .. } => Some(number.to_string()),
            _ => None,
        })
        .collect()
}

#[test]
fn watchers_are_told_of_a_conflict_after_the_change_that_it_made() {
    let mut me = Hand::with_peers(1);
    let scope = WatchScope { top: "a".parse().unwrap(), depth_min: 0, depth_max: None };
    me.engine.watch(scope).unwrap();
    for path in ["a.x", "a.y", "b"] {
        me.write(path, Some(&[1]));
    }
    assert_eq!(told(&mut me, "a.x", 1, 100), ["a.x", "1"]);
    assert!(told(&mut me, "b", 2, 100).is_empty(), "nobody watches there");
    assert_eq!(told(&mut me, "a.y", 3, 1), ["3"], "nothing was changed");
    assert!(told(&mut me, "a.y", 3, 1).is_empty(), "it is known");
    assert_eq!(me.engine.conflicts().last(), 3);
}

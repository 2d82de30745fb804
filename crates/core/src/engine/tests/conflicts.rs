//! Who finds a conflict.

use super::net::Net;
use super::write;
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
fn told(engine: &mut Engine, path: &str, tick: u64, tock: u64) -> Vec<String> {
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
    let messages = vec![PeerMessage::Change(change)];
    let mut out = Outbox::new();
    engine.handle(Input::Messages { link: LinkId(1), messages }, 1, &mut out);
    out.drain()
        .filter_map(|output| match output {
            Output::Notify { change, .. } => Some(change.path.to_string()),
            Output::NotifyConflict { number, .. } => Some(number.to_string()),
            _ => None,
        })
        .collect()
}

#[test]
fn watchers_are_told_of_a_conflict_after_the_change_that_it_made() {
    let id =
        |name: &str| NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(7) };
    let mut engine = Engine::new(Config::new(id("own"), 1));
    let mut out = Outbox::new();
    engine.handle(Input::Found, 0, &mut out);
    engine.handle(Input::LinkUp { link: LinkId(1), peer: id("peer") }, 0, &mut out);
    let scope = WatchScope { top: "a".parse().unwrap(), depth_min: 0, depth_max: None };
    engine.watch(scope).unwrap();
    for path in ["a.x", "a.y", "b"] {
        engine.write(write(path, Some(&[1])), false, &mut out).unwrap();
    }
    assert_eq!(told(&mut engine, "a.x", 1, 100), ["a.x", "1"]);
    assert!(told(&mut engine, "b", 2, 100).is_empty(), "nobody watches there");
    assert_eq!(told(&mut engine, "a.y", 3, 1), ["3"], "nothing was changed");
    assert!(told(&mut engine, "a.y", 3, 1).is_empty(), "it is known");
    assert_eq!(engine.conflicts().last(), 3);
}

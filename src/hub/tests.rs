//! The hub as its users see it: order, overflow, starting over.

use super::*;
use crate::engine::Config;
use crate::hub::inbox::{WATCH_QUEUE_MAX, Waiting};
use crate::model::ids::{Incarnation, NodeId, NodeName};
use crate::replica::write::{Precondition, Write};

fn hub() -> Hub {
    let id = NodeId { name: NodeName::new("a").unwrap(), incarnation: Incarnation(1) };
    let config = Config::new(id, 1);
    let hub = Hub::new(Engine::new(config));
    hub.handle(Input::Found, 0);
    hub
}

fn set(hub: &Hub, path: &str, value: Option<&[u8]>) {
    let write = Write {
        path: path.parse().unwrap(),
        value,
        precondition: Precondition::default(),
        idempotent: false,
    };
    hub.change(|engine, out| engine.write(write, false, out)).unwrap();
}

fn scope(top: &str) -> WatchScope {
    WatchScope { top: top.parse().unwrap(), depth_min: 0, depth_max: None }
}

#[test]
fn a_watch_gets_what_its_snapshot_lacks_and_nothing_else() {
    let hub = hub();
    set(&hub, "a.old", Some(&[1]));
    let inbox = Arc::new(Inbox::new());
    let (id, snapshot) = hub.watch(scope("a"), &inbox).unwrap();
    set(&hub, "a.new", Some(&[2]));
    set(&hub, "b", Some(&[3]));
    assert_eq!(snapshot.len(), 1);
    let Waiting::Changes(changes) = inbox.take_changes(id, 10) else { panic!("overflowed") };
    assert_eq!(changes.iter().map(|c| c.path.to_string()).collect::<Vec<_>>(), ["a.new"]);
    hub.unwatch(id);
    set(&hub, "a.new", Some(&[4]));
    assert_eq!(inbox.bytes(), 0);
}

#[test]
fn a_watch_that_overflows_starts_over_and_misses_nothing() {
    let hub = hub();
    set(&hub, "a.before", Some(&[1]));
    set(&hub, "a.gone", Some(&[1]));
    let inbox = Arc::new(Inbox::new());
    let (id, _) = hub.watch(scope("a"), &inbox).unwrap();
    set(&hub, "a.first", Some(&[2]));
    set(&hub, "a.gone", None);
    for i in 0..=WATCH_QUEUE_MAX {
        set(&hub, "a.busy", Some(&[(i & 0x7f) as u8]));
    }
    set(&hub, "a.last", Some(&[3]));
    assert!(matches!(inbox.take_changes(id, 10), Waiting::Overflowed));
    assert_eq!(inbox.bytes(), 0, "memory stays bounded");
    let (had, tree) = hub.resume_watch(id, &inbox).unwrap();
    let lacks: Vec<String> = tree
        .subtree(&"a".parse().unwrap())
        .filter(|(_, entry)| !had.contains(entry.newest()))
        .map(|(path, _)| path.to_string())
        .collect();
    assert_eq!(lacks, ["a.busy", "a.first", "a.gone", "a.last"]);
    set(&hub, "a.after", Some(&[4]));
    let Waiting::Changes(changes) = inbox.take_changes(id, 10) else { panic!("overflowed") };
    assert_eq!(changes.len(), 1);
}

#[test]
fn patterns_match_as_in_mqtt() {
    let matches = |pattern: &str, topic: &str| {
        topic_matches(&pattern.parse().unwrap(), &topic.parse().unwrap())
    };
    assert!(matches("a.b", "a.b") && !matches("a.b", "a") && !matches("a", "a.b"));
    assert!(matches("a.+", "a.b") && !matches("a.+", "a.b.c") && !matches("a.+", "a"));
    assert!(matches("a.#", "a.b.c") && matches("a.#", "a") && !matches("a.#", "b"));
}

#[test]
fn messages_reach_the_monitors_of_their_topic() {
    let hub = hub();
    let inbox = Arc::new(Inbox::new());
    let id = hub.monitor("t.#".parse().unwrap(), &inbox).unwrap();
    hub.change(|engine, out| engine.send_topic(&"t.x".parse().unwrap(), &[1], out));
    hub.change(|engine, out| engine.send_topic(&"u".parse().unwrap(), &[2], out));
    let (messages, dropped) = inbox.take_messages(id, 10);
    assert_eq!((messages.len(), dropped), (1, 0));
    hub.unmonitor(id);
    hub.change(|engine, out| engine.send_topic(&"t".parse().unwrap(), &[3], out));
    assert_eq!(inbox.take_messages(id, 10).0.len(), 0);
}

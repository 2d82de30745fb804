//! Watches, and entries that leave the tree without an event: purged, or dropped by replication rule 4a.
//! What purges is not part of this test; it pushes what the engine would push.

use distkv::engine::{Engine, Output};
use distkv::hub::gone::GONE_LOG_MAX;
use distkv::hub::inbox::WATCH_QUEUE_MAX;
use distkv::model::chain::Chain;
use distkv::model::entry::{Entry, EntryParts};
use distkv::model::ids::{Event, Tick, Tock};
use distkv::replica::Committed;

use crate::harness::{Client, Node, Value, array, fields, has, path, text};

/// Ticks that nobody has made.
pub(in crate::server) const UNHEARD: u64 = 1 << 30;

/// A version that is in no tree; none for a tombstone.
fn version(node: &Node, at: &str, tick: u64, value: Option<&[u8]>) -> Committed {
    let event = Event { node: node.hub.read(Engine::own), tick: Tick::new(tick).unwrap() };
    let entry = Entry::new(&EntryParts {
        value,
        chain: &Chain::first(event),
        tock: Tock::new(tick).unwrap(),
        origin: None,
        time: None,
        extra: &[],
    });
    Committed { path: at.parse().unwrap(), entry }
}

pub(in crate::server) fn deletion(node: &Node, at: &str, tick: u64) -> Committed {
    version(node, at, tick, None)
}

pub(in crate::server) fn value(node: &Node, at: &str, tick: u64) -> Committed {
    version(node, at, tick, Some(&[5]))
}

pub(in crate::server) fn leave_tree(node: &Node, purged: Vec<Committed>, dropped: Vec<Committed>) {
    node.hub.queue(Output::Gone { purged, dropped });
}

/// A watch of "w" whose client does not read, and which has overflowed.
fn lapsed(node: &Node) -> (Client, u64) {
    let mut client = node.connect_with_qlen(2);
    let seq = client.start(map! {"action": "watch", "path": path("w"), "restart": true});
    assert_eq!(text(&client.reply(seq), "state"), "start");
    // The window is full, so nothing is taken from the queue.
    let mut writer = node.connect();
    for round in 0..=WATCH_QUEUE_MAX {
        writer.start(map! {
            "action": "set_value", "path": path("w.busy"), "value": round as u64, "nchain": 0
        });
        if round % 256 == 0 {
            writer.ok(map! {"action": "get_tock"});
        }
    }
    writer.ok(map! {"action": "get_tock"});
    (client, seq)
}

/// The next message of a stream whose window is one message.
fn next(client: &mut Client, seq: u64, wseq: u64) -> Value {
    client.ack(seq, wseq - 1);
    let message = client.reply(seq);
    assert_eq!(message["wseq"].as_u64(), Some(wseq), "{message}");
    message
}

#[test]
fn a_dropped_value_is_told_as_a_deletion_and_a_purge_not_again() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let seq = client.start(map! {"action": "watch", "path": path("w"), "nchain": 1});
    assert_eq!(text(&client.reply(seq), "state"), "start");
    let (purged, dropped) = (deletion(&node, "w.p", 5), value(&node, "w.d", 7));
    leave_tree(&node, vec![purged], vec![dropped, value(&node, "elsewhere", 8)]);
    let gone = client.reply(seq);
    assert_eq!(fields(&gone), ["chain", "tock", "path", "depth", "seq"]);
    assert_eq!((&gone["path"], gone["tock"].as_u64()), (&array(["d"]), Some(7)));
    assert_eq!(gone["chain"], map! {"node": "n1~1", "tick": 7, "prev": Value::Nil});
    client.silence(seq);
}

#[test]
fn a_watch_that_starts_over_tells_what_is_gone_then_what_is_there() {
    let node = Node::found("n1");
    let (mut client, seq) = lapsed(&node);
    let purged = vec![deletion(&node, "w.p", UNHEARD), deletion(&node, "elsewhere", UNHEARD + 1)];
    // The event with which the client got to know the value.
    leave_tree(&node, purged, vec![value(&node, "w.d", 1)]);
    assert_eq!(text(&next(&mut client, seq, 2), "state"), "restart");
    for (wseq, key) in [(3, "p"), (4, "d")] {
        let gone = next(&mut client, seq, wseq);
        assert_eq!((&gone["path"], has(&gone, "value")), (&array([key]), false), "{gone}");
    }
    let there = next(&mut client, seq, 5);
    let last = WATCH_QUEUE_MAX as u64;
    assert_eq!((&there["path"], there["value"].as_u64()), (&array(["busy"]), Some(last)));
    client.ack(seq, 5);
    node.connect().set("w.after", 1);
    assert_eq!(client.reply(seq)["path"], array(["after"]));
}

#[test]
fn a_watch_for_which_too_much_is_gone_ends_and_says_what_to_do() {
    let node = Node::found("n1");
    let (mut client, seq) = lapsed(&node);
    let purged = (0..=GONE_LOG_MAX as u64)
        .map(|n| deletion(&node, &format!("w:{n}"), UNHEARD + n))
        .collect();
    leave_tree(&node, purged, Vec::new());
    let error = next(&mut client, seq, 2);
    assert_eq!(text(&error, "code"), "too_slow");
    assert!(text(&error, "error").contains("start the watch again"), "{error}");
    assert_eq!(text(&next(&mut client, seq, 3), "state"), "end");
    assert_eq!(node.hub.read(|e| e.watch_count()), 0);
    // And the connection is as good as ever.
    client.set("w.after", 1);
}

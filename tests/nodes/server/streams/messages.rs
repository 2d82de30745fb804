//! Messages through the network that leave nothing behind.

use crate::harness::{Client, Node, Value, array, fields, path, text};

fn monitor(client: &mut Client, topic: impl Into<Value>, raw: bool) -> u64 {
    let seq = client.start(map! {"action": "msg_monitor", "topic": topic.into(), "raw": raw});
    assert_eq!(text(&client.reply(seq), "state"), "start");
    seq
}

#[test]
fn a_message_reaches_whoever_monitors_its_topic() {
    let node = Node::found("n1");
    let (mut sender, mut receiver) = (node.connect(), node.connect());
    let decoded = monitor(&mut receiver, array(["t", "a"]), false);
    let raw = monitor(&mut receiver, path("t.#"), true);
    let one = monitor(&mut receiver, "t.+", false);
    let own = monitor(&mut sender, array(["t", "a"]), false);
    let sent = sender.ok(map! {
        "action": "msg_send", "topic": array(["t", "a"]), "data": array([Value::from("Hello"), 42.into()])
    });
    assert_eq!(fields(&sent), ["seq", "tock"]);
    let message = receiver.reply(decoded);
    assert_eq!(fields(&message), ["topic", "data", "seq", "tock"]);
    assert_eq!(message["topic"], array(["t", "a"]));
    assert_eq!(receiver.reply(raw)["raw"], Value::Binary(b"\x92\xa5Hello\x2a".to_vec()));
    assert_eq!(receiver.reply(one)["data"][1].as_i64(), Some(42));
    assert_eq!(sender.reply(own)["data"][1].as_i64(), Some(42));
}

#[test]
fn what_cannot_be_decoded_comes_raw_with_an_error() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let seq = monitor(&mut client, array(["t"]), false);
    for bad in [&b"\xc1\xff"[..], b"", b"\x01\x02", b"\xa5abc"] {
        client.ok(map! {"action": "msg_send", "topic": "t", "raw": Value::Binary(bad.to_vec())});
        let message = client.reply(seq);
        assert_eq!(fields(&message), ["topic", "raw", "error", "seq", "tock"]);
        assert_eq!(message["raw"], Value::Binary(bad.to_vec()));
    }
}

#[test]
fn topics_elements_are_strings_and_a_plain_string_is_one() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let dotted = monitor(&mut client, "a.b", false);
    let single = monitor(&mut client, array(["a.b"]), false);
    let number = monitor(&mut client, array(["1"]), false);
    client.ok(map! {"action": "msg_send", "topic": "a.b", "data": 1});
    assert_eq!(client.reply(single)["topic"], array(["a.b"]));
    client.ok(map! {"action": "msg_send", "topic": array([1]), "data": Value::Nil});
    assert_eq!(client.reply(number)["topic"], array(["1"]));
    let tuple = monitor(&mut client, array(["('x', 1)"]), false);
    let topic = array([array([Value::from("x"), 1.into()])]);
    client.ok(map! {"action": "msg_send", "topic": topic, "data": Value::Nil});
    assert_eq!(client.reply(tuple)["topic"], array(["('x', 1)"]));
    client.silence(dotted);
}

#[test]
fn a_message_needs_a_topic_and_something_to_send() {
    let node = Node::found("n1");
    let mut client = node.connect();
    for bad in [
        map! {"action": "msg_send", "topic": "t"},
        map! {"action": "msg_send", "data": 1},
        map! {"action": "msg_send", "topic": "t", "raw": "no bytes"},
        map! {"action": "msg_send", "topic": 5, "data": 1},
        map! {"action": "msg_monitor"},
    ] {
        assert_eq!(client.code(bad), "bad_request");
    }
}

#[test]
fn messages_obey_flow_control_and_lost_ones_are_counted_in_the_first_message_behind_them() {
    let node = Node::found("n1");
    let (mut sender, mut receiver) = (node.connect(), node.connect_with_qlen(5));
    let seq = monitor(&mut receiver, "t", false);
    let room = distkv::hub::inbox::MONITOR_QUEUE_MAX as u64;
    let mut send = |number: u64| {
        sender.ok(map! {"action": "msg_send", "topic": "t", "data": number});
    };
    let last = room + 500;
    (0..last).for_each(&mut send);
    let (mut got, mut lost, mut next, mut wseq) = (0, 0, 0, 1);
    while next <= last {
        let message = receiver.reply(seq);
        wseq += 1;
        assert_eq!(message["wseq"].as_u64(), Some(wseq));
        let dropped = message["dropped"].as_u64().unwrap_or(0);
        lost += dropped;
        next += dropped;
        // Those that waited before there was no room have lost nothing before them.
        assert_eq!(message["data"].as_u64(), Some(next));
        next += 1;
        got += 1;
        receiver.ack(seq, wseq);
        if got == room {
            // There is room again, and what was lost is told with the next message.
            send(last);
        }
    }
    assert!(lost > 0 && got >= room);
}

#[test]
fn the_longest_message_that_is_accepted_arrives_and_a_longer_one_is_refused() {
    let node = Node::found("n1");
    let (mut sender, mut receiver) = (node.connect(), node.connect());
    let topic = "t".repeat(1_000);
    let seq = monitor(&mut receiver, topic.as_str(), true);
    let longest = distkv::model::limits::VALUE_BYTES_MAX;
    for length in [longest - 100, longest] {
        let raw = Value::Binary(vec![7; length]);
        sender.ok(map! {"action": "msg_send", "topic": topic.as_str(), "raw": raw.clone()});
        let message = receiver.reply(seq);
        assert_eq!(fields(&message), ["topic", "raw", "seq", "tock"], "{length}");
        assert!(message["raw"] == raw, "{length}");
    }
    let raw = Value::Binary(vec![7; longest + 1]);
    let longer = map! {"action": "msg_send", "topic": topic.as_str(), "raw": raw};
    assert_eq!(sender.code(longer), "too_large");
}

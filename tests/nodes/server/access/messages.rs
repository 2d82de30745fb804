//! Topics: `r` for monitoring, `w` for sending, by message.

use super::Place;
use crate::harness::{Client, Value, array, path, text};

fn monitor(client: &mut Client, topic: &str) -> u64 {
    let seq = client.start(map! {"action": "msg_monitor", "topic": path(topic)});
    assert_eq!(text(&client.reply(seq), "state"), "start");
    seq
}

fn send(topic: &[&str], data: u64) -> Value {
    map! {"action": "msg_send", "topic": array(topic.iter().copied()), "data": data}
}

#[test]
fn a_monitor_of_many_topics_gets_those_that_the_user_may_read() {
    let mut place = Place::new();
    let mut user = place.user("joe", &[("::msg.t.open", "r"), ("::msg.t.shut", "w"), ("#", "rwx")]);
    let all = monitor(&mut user, "t.#");
    let one = monitor(&mut user, "t.+");
    let mut sent = 0;
    for topic in ["shut", "open", "shut", "open"] {
        sent += 1;
        place.admin.ok(send(&["t", topic], sent));
    }
    for seq in [all, one] {
        assert_eq!(user.reply(seq)["data"].as_u64(), Some(2));
        assert_eq!(user.reply(seq)["data"].as_u64(), Some(4));
        user.silence(seq);
    }
}

#[test]
fn a_topic_needs_its_letter() {
    let place = Place::new();
    let mut user = place.user("joe", &[("::msg.in", "r"), ("::msg.out", "w"), ("in", "rw")]);
    let request = |topic: &str| map! {"action": "msg_monitor", "topic": array([topic])};
    for shut in ["out", "other"] {
        assert_eq!(user.code(request(shut)), "denied", "{shut}");
    }
    monitor(&mut user, "in");
    // Nothing that matches could be read.
    assert_eq!(user.code(map! {"action": "msg_monitor", "topic": path("other.#")}), "denied");
    for (topic, may) in [("in", false), ("out", true), ("other", false)] {
        let reply = user.request(send(&[topic], 1));
        assert_eq!(reply["code"].as_str(), (!may).then_some("denied"), "{topic}");
    }
}

#[test]
fn a_monitor_stops_telling_what_is_revoked() {
    let mut place = Place::new();
    let mut user = place.user("joe", &[("::msg.t.#", "r")]);
    let seq = monitor(&mut user, "t.#");
    place.admin.ok(send(&["t", "a"], 1));
    assert_eq!(user.reply(seq)["data"].as_u64(), Some(1));
    place.list("joe", &[("::msg.t.a", "")]);
    for (topic, data) in [("a", 2), ("b", 3)] {
        place.admin.ok(send(&["t", topic], data));
    }
    assert_eq!(user.reply(seq)["data"].as_u64(), Some(3));
}

//! Watches: what they send first, what comes, starting over, ending.

use distkv::hub::inbox::WATCH_QUEUE_MAX;

use crate::harness::{Client, Node, Value, array, encode, fields, has, path, text};

fn watch(client: &mut Client, at: &str, fetch: bool) -> u64 {
    let seq = client.start(map! {"action": "watch", "path": path(at), "fetch": fetch});
    assert_eq!(text(&client.reply(seq), "state"), "start");
    seq
}

#[test]
fn a_watch_sends_the_state_then_says_so_then_the_changes() {
    let node = Node::found("n1");
    let (mut client, mut writer) = (node.connect(), node.connect());
    writer.set("w", "root");
    writer.set("w.k", "v");
    let seq = client.start(map! {
        "action": "watch", "path": path("w"), "fetch": true, "nchain": 1
    });
    let start = client.reply(seq);
    assert_eq!(fields(&start), ["state", "seq", "tock"]);
    let first = [client.reply(seq), client.reply(seq)];
    assert_eq!(fields(&first[0]), ["value", "chain", "tock", "path", "depth", "seq"]);
    assert_eq!(text(&client.reply(seq), "state"), "uptodate");
    writer.set("w.k", "w");
    writer.set("elsewhere", 1);
    let gone = writer.ok(map! {"action": "delete_value", "path": path("w.k")});
    let changed = client.reply(seq);
    assert_eq!((&changed["path"], changed["depth"].as_u64()), (&array::<Value>([]), Some(1)));
    let deleted = client.reply(seq);
    assert_eq!(fields(&deleted), ["chain", "tock", "path", "depth", "seq"]);
    assert_eq!((&deleted["chain"], &deleted["tock"]), (&gone["chain"], &gone["tock"]));
}

#[test]
fn a_watch_of_nothing_waits_for_something() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let seq = watch(&mut client, "x.y", true);
    assert_eq!(text(&client.reply(seq), "state"), "uptodate");
    client.set("x.y", 1);
    assert_eq!(client.reply(seq)["value"].as_i64(), Some(1));
}

/// Whole paths, below the watched one, of messages whose paths are shortened.
fn whole_paths(messages: &[Value]) -> Vec<Vec<Value>> {
    let mut last: Vec<Value> = Vec::new();
    let mut paths = Vec::new();
    for message in messages {
        last.truncate(message["depth"].as_u64().unwrap() as usize);
        last.extend(message["path"].as_array().unwrap().iter().cloned());
        paths.push(last.clone());
    }
    paths
}

#[test]
fn watches_that_are_told_together_are_each_told_all_of_it() {
    const SETS: u64 = 300;
    let node = Node::found("n1");
    let mut writer = node.connect();
    let mut watchers: Vec<(Client, u64)> = Vec::new();
    for (qlen, nchain, top) in
        [(0, 0, "w"), (0, 0, "w"), (1000, 0, "w"), (0, 1, "w"), (0, 0, "w.0")]
    {
        let mut client = node.connect_with_qlen(qlen);
        // So that each has another number.
        (0..watchers.len()).for_each(|_| drop(client.get("w")));
        let request = map! {"action": "watch", "path": path(top), "nchain": nchain};
        let seq = client.start(request);
        client.reply(seq);
        watchers.push((client, seq));
    }
    // One write: whole moments of changes come at once.
    let mut requests = Vec::new();
    for n in 0..SETS {
        let at = if n % 7 == 0 { "w.0.x".to_owned() } else { format!("w.{}.{}", n % 3, n / 2) };
        let set = map! {"action": "set_value", "seq": 10 + n, "path": path(&at), "value": n};
        requests.extend(encode(&set));
    }
    writer.send_bytes(&requests);
    let mut told = watchers.iter_mut().map(|(client, seq)| {
        let is_last = |message: &Value| message["value"].as_u64() == Some(SETS - 6);
        let mut messages = Vec::new();
        while !messages.last().is_some_and(is_last) {
            messages.push(client.reply(*seq));
        }
        messages
    });
    let first = told.next().unwrap();
    let values = |messages: &[Value]| -> Vec<u64> {
        messages.iter().map(|message| message["value"].as_u64().unwrap()).collect()
    };
    assert_eq!(values(&first), (0..=SETS - 6).collect::<Vec<_>>());
    let [same, counted, chained] = [(); 3].map(|()| told.next().unwrap());
    for (other, has_wseq) in [(&same, false), (&counted, true), (&chained, false)] {
        assert_eq!(values(other), values(&first));
        assert_eq!(whole_paths(other), whole_paths(&first));
        assert_eq!(has(&other[9], "wseq"), has_wseq);
    }
    assert!(has(&chained[9], "chain") && !has(&first[9], "chain"));
    let below = told.next().unwrap();
    let expected: Vec<Vec<Value>> = whole_paths(&first)
        .into_iter()
        .filter(|path| path[0].as_str() == Some("0"))
        .map(|path| path[1..].to_vec())
        .collect();
    assert_eq!(whole_paths(&below), expected);
}

#[test]
fn a_watch_keeps_to_its_depths() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let seq = client.start(map! {
        "action": "watch", "path": path("w"), "min_depth": 1, "max_depth": 1
    });
    client.reply(seq);
    client.set("w", "no");
    client.set("w.a.b", "no");
    client.set("w.a", "yes");
    assert_eq!(text(&client.reply(seq), "value"), "yes");
}

#[test]
fn internal_changes_are_seen_only_below_nil() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let all = watch(&mut client, ":", false);
    let internal = watch(&mut client, ":n", false);
    client.ok(map! {"action": "set_internal", "path": path("h"), "value": 1});
    client.set("seen", 2);
    assert_eq!(client.reply(all)["value"].as_i64(), Some(2));
    assert_eq!(client.reply(internal)["value"].as_i64(), Some(1));
    client.silence(internal);
}

#[test]
fn a_stop_is_answered_before_the_stream_ends() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let seq = watch(&mut client, "w", false);
    let stop = client.start(map! {"action": "stop", "task": seq});
    let reply = client.receive().unwrap();
    assert_eq!((reply["seq"].as_u64(), reply["result"].as_bool()), (Some(stop), Some(true)));
    let end = client.receive().unwrap();
    assert_eq!((end["seq"].as_u64(), text(&end, "state")), (Some(seq), "end"));
    client.set("w", 1);
    client.silence(seq);
    for task in [Value::from(seq), 99_999.into(), "x".into(), Value::Nil] {
        let reply = client.ok(map! {"action": "stop", "task": task});
        assert_eq!(reply["result"].as_bool(), Some(false));
    }
}

#[test]
fn errors_of_a_watch_come_within_its_stream() {
    let node = Node::found("n1");
    let mut client = node.connect();
    for request in [
        map! {"action": "watch"},
        map! {"action": "watch", "path": array([Value::Nil, Value::Nil])},
        map! {"action": "msg_monitor", "topic": 5},
    ] {
        let seq = client.start(request);
        assert_eq!(text(&client.reply(seq), "state"), "start");
        assert_eq!(text(&client.reply(seq), "code"), "bad_request");
        assert_eq!(text(&client.reply(seq), "state"), "end");
    }
}

/// Makes more changes than a watch's queue holds while its client reads nothing; the last one
/// of each path is told in the result.
fn overflow(node: &Node, writer: &mut Client) -> Vec<(String, i64)> {
    // Bigger than what the sockets and the connection take by themselves.
    let filler = "x".repeat(2000);
    let rounds = 2 * WATCH_QUEUE_MAX as i64 / 100;
    let mut started = Vec::new();
    for round in 0..rounds {
        for key in 0..100 {
            started.push(writer.start(map! {
                "action": "set_value", "path": path(&format!("w.k{key:02}")), "nchain": 0,
                "value": array([Value::from(round), filler.as_str().into()]),
            }));
        }
        for seq in started.drain(..) {
            writer.reply(seq);
        }
    }
    assert!(node.hub.read(|e| e.watch_count()) > 0);
    writer.ok(map! {"action": "delete_value", "path": path("w.gone")});
    (0..100).map(|key| (format!("k{key:02}"), rounds - 1)).collect()
}

/// Makes whole paths of a watch's shortened ones.
#[derive(Default)]
struct Follower(Vec<Value>);

impl Follower {
    /// The last element of a message's path; none for a state.
    fn key(&mut self, message: &Value) -> Option<String> {
        self.0.truncate(message["depth"].as_u64()? as usize);
        self.0.extend(message["path"].as_array().unwrap().iter().cloned());
        Some(self.0.last().unwrap().as_str().unwrap().to_owned())
    }
}

/// Reads a watch's messages until every path has its last value; checks that nothing older
/// follows something newer. Returns the states that came in between.
fn read_all(
    client: &mut Client,
    seq: u64,
    follower: &mut Follower,
    mut last: Vec<(String, i64)>,
) -> Vec<String> {
    let mut newest = std::collections::HashMap::new();
    let (mut states, mut gone) = (Vec::new(), false);
    while !last.is_empty() || !gone {
        let message = client.reply(seq);
        let Some(key) = follower.key(&message) else {
            states.push(text(&message, "state").to_owned());
            continue;
        };
        if !has(&message, "value") {
            assert_eq!(key, "gone");
            gone = true;
            continue;
        }
        let Some(round) = message["value"][0].as_i64() else { continue };
        let known = newest.entry(key.clone()).or_insert(-1);
        assert!(round > *known, "{round} of {key} after {known}");
        *known = round;
        last.retain(|(name, value)| !(*name == key && *value == round));
    }
    states
}

#[test]
fn a_watch_that_is_too_slow_starts_over_and_ends_up_current() {
    let node = Node::found("n1");
    let mut writer = node.connect();
    for tells in [false, true] {
        writer.set("w.gone", 1);
        let mut slow = node.connect();
        let request = map! {"action": "watch", "path": path("w"), "fetch": true, "restart": tells};
        let seq = slow.start(request);
        let mut follower = Follower::default();
        loop {
            let message = slow.reply(seq);
            if follower.key(&message).is_none() && text(&message, "state") == "uptodate" {
                break;
            }
        }
        let last = overflow(&node, &mut writer);
        let states = read_all(&mut slow, seq, &mut follower, last);
        assert_eq!(states, if tells { vec!["restart"] } else { vec![] });
        // From here on it goes on as ever.
        writer.set("w.after", 5);
        assert_eq!(slow.reply(seq)["value"].as_i64(), Some(5));
    }
}

#[test]
fn open_streams_end_when_the_client_goes() {
    let node = Node::found("n1");
    let mut client = node.connect_with_qlen(10);
    let seq = watch(&mut client, "w", false);
    client.finish();
    let end = client.reply(seq);
    assert_eq!((text(&end, "state"), end["wseq"].as_u64()), ("end", Some(2)));
    assert!(client.receive().is_none());
    assert_eq!(node.hub.read(|e| e.watch_count()), 0);
}

#[test]
fn a_client_that_vanishes_leaves_no_watch_behind() {
    let node = Node::found("n1");
    let mut witness = node.connect();
    for _ in 0..20 {
        let mut client = node.connect();
        watch(&mut client, "w", true);
        client.start(map! {"action": "msg_monitor", "topic": "t"});
    }
    // Nothing tells when the node has noticed; each round trip gives it time.
    while node.hub.read(|e| e.watch_count()) > 0 {
        witness.set("w", 1);
    }
}

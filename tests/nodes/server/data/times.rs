//! When an entry was changed: told to clients that ask, and to nobody else.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::harness::{Client, Node, Value, array, fields, has, path, text};

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

fn get(at: &str, nchain: u64) -> Value {
    map! {"action": "get_value", "path": path(at), "nchain": nchain, "with_time": true}
}

fn time(message: &Value) -> u64 {
    message["time"].as_u64().unwrap_or_else(|| panic!("no time in {message}"))
}

#[test]
fn it_is_told_with_a_value_and_without_a_chain_too_and_only_to_those_who_ask() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let before = now_ms();
    let reply = client.ok(map! {
        "action": "set_value", "path": path("k"), "value": 1, "with_time": true
    });
    let after = now_ms();
    assert_eq!(fields(&reply), ["changed", "chain", "tock", "seq"], "a write's reply has none");
    for nchain in [0, 1] {
        let reply = client.ok(get("k", nchain));
        assert!((before..=after).contains(&time(&reply)), "{reply}");
        let bare = client.ok(map! {"action": "get_value", "path": path("k"), "nchain": nchain});
        assert!(!has(&bare, "time"), "{bare}");
    }
    assert_eq!(fields(&client.ok(get("k", 0))), ["value", "tock", "time", "seq"]);
    assert_eq!(fields(&client.ok(get("k", 1))), ["value", "chain", "tock", "time", "seq"]);
    assert!(!has(&client.ok(get("never", 1)), "time"));
    // Of what was deleted, it is when that was.
    client.ok(map! {"action": "delete_value", "path": path("k")});
    let deleted = client.ok(get("k", 1));
    assert!(!has(&deleted, "value") && time(&deleted) >= after, "{deleted}");
    client.ok(map! {"action": "set_internal", "path": path("x"), "value": 1});
    let internal = map! {"action": "get_internal", "path": path("x"), "with_time": true};
    assert!(time(&client.ok(internal)) >= after);
}

#[test]
fn trees_watches_and_batches_tell_it_each_to_who_asked() {
    let node = Node::found("n1");
    let (mut client, mut writer) = (node.connect(), node.connect());
    writer.set("t.a", 1);
    let wanted = time(&client.ok(get("t.a", 0)));
    let tree = client.stream(map! {
        "action": "get_tree", "path": path("t"), "with_time": true
    });
    assert_eq!(fields(&tree[0]), ["value", "tock", "time", "path", "depth", "seq"]);
    assert_eq!(time(&tree[0]), wanted);
    let ops = array([get("t.a", 0), map! {"action": "get_value", "path": path("t.a")}]);
    let batch = client.ok(map! {"action": "batch", "ops": ops});
    assert_eq!(time(&batch["results"][0]), wanted);
    assert!(!has(&batch["results"][1], "time"), "{batch}");

    // Two watches of the same, which get their changes together.
    let watch = |client: &mut Client, with_time: bool| {
        let seq = client.start(map! {
            "action": "watch", "path": path("t"), "fetch": true, "with_time": with_time
        });
        assert_eq!(text(&client.reply(seq), "state"), "start");
        let first = client.reply(seq);
        assert_eq!(has(&first, "time"), with_time, "{first}");
        assert_eq!(text(&client.reply(seq), "state"), "uptodate");
        seq
    };
    let (with, without) = (watch(&mut client, true), watch(&mut client, false));
    let writes = ["t.b", "t.c"].map(|at| {
        map! {"action": "set_value", "path": path(at), "value": 2}
    });
    writer.ok(map! {"action": "batch", "ops": array(writes)});
    writer.ok(map! {"action": "delete_value", "path": path("t.a")});
    let told: Vec<Value> = (0..3).map(|_| client.reply(with)).collect();
    assert_eq!(time(&told[0]), time(&told[1]), "one batch has one time");
    assert!(!has(&told[2], "value") && time(&told[2]) >= time(&told[0]), "{told:?}");
    for message in (0..3).map(|_| client.reply(without)) {
        assert!(!has(&message, "time"), "{message}");
    }
}

//! What unmodified clients of the Python DistKV send, and what its command line lives on: `False` for a
//! number, anything for a flag, trees that are not there.

use crate::harness::{Client, Node, Value, array, fields, has, path, text};

fn floats(number: f64) -> [Value; 2] {
    [Value::F32(number as f32), Value::F64(number)]
}

/// What Python takes for false, and for true.
fn flags() -> ([Value; 9], [Value; 9]) {
    let no = [
        Value::Nil,
        false.into(),
        0.into(),
        Value::F64(0.0),
        "".into(),
        Value::Binary(vec![]),
        array::<Value>([]),
        map! {},
        Value::Ext(3, vec![]),
    ];
    let yes = [
        true.into(),
        1.into(),
        (-1).into(),
        Value::F64(0.5),
        "x".into(),
        "0".into(),
        Value::Binary(vec![0]),
        array([Value::Nil]),
        map! {"a": 1},
    ];
    (no, yes)
}

#[test]
fn the_length_of_a_chain_may_be_a_boolean_or_a_whole_float() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let set = |nchain: Value| map! {"action": "set_value", "path": path("a"), "value": 1, "nchain": nchain};
    for none in [Value::from(false), Value::F32(0.0), Value::F64(-0.0)] {
        assert!(!has(&client.ok(set(none)), "chain"));
    }
    for one in [Value::from(true), Value::F32(1.0), Value::F64(1.0)] {
        let reply = client.ok(set(one));
        assert_eq!(fields(&reply["chain"]), ["node", "tick", "prev"]);
    }
    let get = |nchain: Value| map! {"action": "get_value", "path": path("a"), "nchain": nchain};
    for [short, whole] in [[Value::from(false), true.into()], [Value::F64(0.0), Value::F64(-1.0)]] {
        assert!(!has(&client.ok(get(short)), "chain"));
        assert!(has(&client.ok(get(whole)), "chain"));
    }
    for nonsense in [Value::F64(1.5), Value::F64(f64::NAN), Value::F64(f64::INFINITY), "1".into()] {
        let error = client.error(set(nonsense.clone()));
        assert_eq!(text(&error, "code"), "bad_request", "{nonsense}");
        assert!(text(&error, "error").contains("'nchain'"), "{error}");
    }
}

#[test]
fn depths_ticks_tasks_and_windows_may_be_booleans_or_whole_floats() {
    let node = Node::found("n1");
    let mut client = node.connect();
    for at in ["t", "t.a", "t.a.b", "t.a.b.c"] {
        client.set(at, at);
    }
    let tree = |field: &str, depth: Value| {
        Value::Map(vec![
            ("action".into(), "get_tree".into()),
            ("path".into(), path("t")),
            (field.into(), depth),
        ])
    };
    assert_eq!(client.stream(tree("max_depth", false.into())).len(), 1);
    assert_eq!(client.stream(tree("min_depth", true.into())).len(), 3);
    for two in floats(2.0) {
        assert_eq!(client.stream(tree("max_depth", two.clone())).len(), 3);
        assert_eq!(client.stream(tree("min_depth", two)).len(), 2);
    }
    for one in [Value::from(true), Value::F64(1.0)] {
        let by_event = map! {"action": "get_value", "node": "n1~1", "tick": one.clone()};
        assert_eq!(text(&client.ok(by_event), "value"), "t");
        let some = map! {"action": "enum_node", "node": "n1~1", "max": one};
        assert_eq!(client.ok(some)["result"], array([1]));
    }
    let chain = map! {"node": "n1~1", "tick": Value::F64(1.0), "prev": Value::Nil};
    let set = map! {"action": "set_value", "path": path("t"), "value": 2, "chain": chain};
    assert!(has(&client.ok(set), "chain"));
    let mut fed = Client::new(node.address(), 0);
    fed.send(map! {"seq": 0, "qlen": Value::F64(3.0)});
    let seq = fed.start(tree("min_depth", false.into()));
    let next = |fed: &mut Client| fed.reply(seq)["wseq"].as_u64();
    assert_eq!((next(&mut fed), next(&mut fed)), (Some(1), Some(2)));
    fed.silence(seq);
    fed.send(map! {"seq": seq, "state": "ack", "ack": true});
    assert_eq!(next(&mut fed), Some(3));
    let stopped = fed.ok(map! {"action": "stop", "task": Value::F64(seq as f64)});
    assert_eq!(stopped["result"].as_bool(), Some(true));
}

#[test]
fn flags_are_what_python_takes_for_true() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.set("f.a.b", 1);
    let list = |flag: &Value| {
        map! {"action": "enum", "path": path("f"), "empty": flag.clone(), "with_data": flag.clone()}
    };
    let state = |flag: &Value| map! {"action": "get_state", "nodes": flag.clone()};
    let watch = |flag: &Value| map! {"action": "watch", "path": path("f"), "fetch": flag.clone()};
    let (no, yes) = flags();
    for (flags, is_set) in [(no, false), (yes, true)] {
        for flag in flags {
            let empty = if is_set {
                map! {"a": Value::Nil}
            } else {
                array::<Value>([])
            };
            assert_eq!(client.ok(list(&flag))["result"], empty, "{flag}");
            assert_eq!(has(&client.ok(state(&flag)), "nodes"), is_set, "{flag}");
            let seq = client.start(watch(&flag));
            assert_eq!(text(&client.reply(seq), "state"), "start");
            if is_set {
                assert_eq!(client.reply(seq)["value"].as_i64(), Some(1), "{flag}");
                assert_eq!(text(&client.reply(seq), "state"), "uptodate");
            } else {
                client.silence(seq);
            }
            client.ok(map! {"action": "stop", "task": seq});
        }
    }
}

#[test]
fn a_tree_where_nothing_is_is_empty() {
    let node = Node::found("n1");
    let mut client = node.connect();
    for (action, data, at) in [
        ("get_tree", "enum", "nowhere.at.all"),
        ("get_tree_internal", "enum_internal", "acl.nobody"),
    ] {
        let seq = client.start(map! {"action": action, "path": path(at), "nchain": false});
        let start = client.reply(seq);
        assert_eq!(fields(&start), ["state", "seq", "tock"]);
        assert_eq!(text(&start, "state"), "start");
        let end = client.reply(seq);
        assert_eq!(fields(&end), ["state", "seq", "tock"]);
        assert_eq!(text(&end, "state"), "end");
        for empty in [false, true] {
            let list = |with_data: bool| {
                map! {"action": data, "path": path(at), "empty": empty, "with_data": with_data}
            };
            assert_eq!(client.ok(list(false))["result"], array::<Value>([]));
            assert_eq!(client.ok(list(true))["result"], map! {});
        }
    }
    let get =
        client.ok(map! {"action": "get_internal", "path": array(["acl", "x"]), "nchain": false});
    assert_eq!(fields(&get), ["seq", "tock"]);
}

#[test]
fn deleting_a_tree_where_nothing_is_tells_so_in_a_message_with_the_usual_fields() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.set("gone.a", 1);
    client.ok(map! {"action": "delete_tree", "path": path("gone"), "nchain": false});
    for at in ["nowhere", "gone"] {
        let seq = client.start(map! {"action": "delete_tree", "path": path(at), "nchain": 3});
        assert_eq!(text(&client.reply(seq), "state"), "start");
        let messages = client.rest(seq);
        assert_eq!(messages.len(), 1, "{messages:?}");
        let order = ["node", "tick", "prev", "path", "tock", "seq", "depth"];
        assert_eq!(fields(&messages[0]), order);
        assert!(messages[0]["node"].is_nil() && messages[0]["tick"].is_nil());
        assert_eq!(messages[0]["path"], array::<Value>([]));
        client.silence(seq);
        let count = client.ok(map! {"action": "delete_tree", "path": path(at), "nchain": false});
        assert_eq!(count["changed"].as_u64(), Some(0));
    }
    assert_eq!(client.ok(map! {"action": "get_state", "nodes": true})["nodes"], map! {"n1~1": 2});
}

#[test]
fn what_a_node_tells_its_developers_is_empty() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let reply = client.ok(map! {"action": "get_state", "node_drop": true, "debug": true});
    assert_eq!(fields(&reply), ["node_drop", "debug", "node", "tock", "seq"]);
    assert_eq!(reply["debug"], map! {});
    let reply = client.ok(map! {"action": "get_state", "debugger": true});
    assert!(text(&reply, "debugger").contains("no debugger"));
}

#[test]
fn a_faked_message_of_a_node_is_refused_by_name_and_changes_nothing() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.set("a", 1);
    let state = map! {"action": "get_state", "nodes": true, "known": true, "deleted": true, "missing": true};
    let before = client.ok(state.clone());
    for action in ["fake_info", "fake_info_send"] {
        let ticks = map! {"n1": array([array([1, 9])])};
        let error = client.error(
            map! {"action": action, "node": "?", "deleted": ticks.clone(), "superseded": ticks},
        );
        assert_eq!(text(&error, "code"), "denied");
        assert!(text(&error, "error").contains(&format!("'{action}'")), "{error}");
    }
    let after = client.ok(state);
    for part in ["nodes", "known", "deleted", "missing"] {
        assert_eq!(before[part], after[part]);
    }
}

#[test]
fn topics_are_levels_as_with_the_originals_broker() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let patterns = [array(["a", "#"]), "a.#".into(), array(["a/b"]), path("a.b"), array(["#"])];
    let monitors = patterns.map(|topic| {
        let seq = client.start(map! {"action": "msg_monitor", "topic": topic});
        assert_eq!(text(&client.reply(seq), "state"), "start");
        seq
    });
    let sent =
        [array(["a"]), array(["a", "b"]), array(["a/b"]), array(["a", "b/c"]), array(["$x"])];
    for (number, topic) in sent.into_iter().enumerate() {
        client.ok(map! {"action": "msg_send", "topic": topic, "data": number as u64});
    }
    let told = monitors.map(|seq| {
        client.ok(map! {"action": "stop", "task": seq});
        let messages = client.rest(seq);
        let told = |m: &Value| (m["data"].as_u64().unwrap(), m["topic"].clone());
        messages.iter().map(told).collect::<Vec<_>>()
    });
    let (a, ab, abc) = (array(["a"]), array(["a", "b"]), array(["a", "b", "c"]));
    let below = vec![(1, ab.clone()), (2, ab.clone()), (3, abc.clone())];
    let exact = vec![(1, ab.clone()), (2, ab.clone())];
    let all = vec![(0, a), (1, ab.clone()), (2, ab), (3, abc)];
    assert_eq!(told, [below.clone(), below, exact.clone(), exact, all]);
    for empty in [array::<Value>([]), path(":"), "".into()] {
        for action in ["msg_send", "msg_monitor"] {
            let error = client.error(map! {"action": action, "topic": empty.clone(), "data": 1});
            assert_eq!(text(&error, "code"), "bad_request");
            assert!(text(&error, "error").contains("'topic'"), "{error}");
        }
    }
}

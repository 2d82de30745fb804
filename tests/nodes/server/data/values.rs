//! Single entries: get, set, delete, their preconditions, root, the internal tree.

use crate::harness::{Client, Node, Value, array, encode, fields, has, path, text};

/// A set that must fail: its code, and a word that clients look for in its text.
fn refusal(client: &mut Client, request: Value) -> (String, String) {
    let reply = client.error(request);
    (text(&reply, "code").to_owned(), text(&reply, "error").to_owned())
}

#[test]
fn the_greeting_is_the_originals_byte_for_byte() {
    let node = Node::found("n1");
    let client = node.connect();
    // But for the last two fields, which the original's clients ignore. The last is another one each time.
    let mut want = b"\x88\xa3seq\x00\xa7version\x93\x00\x41\x00\xa4node\xa2n1".to_vec();
    want.extend_from_slice(b"\xa4tick\x00\xa4tock\x00\xa4qlen\x0a\xa5clock");
    let Value::Map(mut fields) = client.hello.clone() else { panic!("no map") };
    let clock = fields.iter_mut().find(|(name, _)| name.as_str() == Some("clock"));
    let clock = std::mem::replace(&mut clock.unwrap().1, 5.into());
    assert!(clock.is_u64(), "{clock}");
    want.extend_from_slice(b"\x05\xa7network\xa4test");
    assert_eq!(encode(&Value::Map(fields)), want);
}

#[test]
fn what_is_not_there_is_told_with_and_without_a_chain() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let reply = client.ok(map! {"action": "get_value", "path": path("a")});
    assert_eq!(fields(&reply), ["seq", "tock"]);
    let reply = client.ok(map! {"action": "get_value", "path": path("a"), "nchain": 2});
    assert_eq!(fields(&reply), ["chain", "seq", "tock"]);
    assert!(reply["chain"].is_nil());
    client.set("a", 1);
    client.ok(map! {"action": "delete_value", "path": path("a")});
    let reply = client.ok(map! {"action": "get_value", "path": path("a"), "nchain": 2});
    assert_eq!(fields(&reply), ["chain", "tock", "seq"]);
    assert_eq!(reply["chain"]["tick"].as_u64(), Some(2));
}

#[test]
fn a_set_answers_in_the_originals_order() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let set = |value: i64, nchain: i64| {
        map! {"action": "set_value", "path": path("a.b"), "value": value, "nchain": nchain}
    };
    let reply = client.ok(set(1, 1));
    assert_eq!(
        encode(&reply),
        b"\x84\xa7changed\xc3\xa5chain\x83\xa4node\xa4n1~1\xa4tick\x01\xa4prev\xc0\xa4tock\x01\xa3seq\x01"
    );
    let reply = client.ok(set(1, 0));
    assert_eq!(fields(&reply), ["changed", "prev", "tock", "seq"]);
    assert_eq!((reply["changed"].as_bool(), reply["prev"].as_i64()), (Some(false), Some(1)));
    let idem = map! {"action": "set_value", "path": path("a.b"), "value": 1, "idem": true};
    let again = client.ok(idem);
    assert_eq!(fields(&again), ["tock", "changed", "chain", "seq"]);
    assert_eq!(again["tock"], reply["tock"]);
    let gone = client.ok(map! {"action": "delete_value", "path": path("never"), "nchain": 0});
    assert_eq!(fields(&gone), ["changed", "tock", "seq"]);
    assert_eq!(gone["changed"].as_bool(), Some(false));
}

#[test]
fn preconditions_say_what_is_wrong_in_words_that_clients_look_for() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let chain = client.set("k", "a")["chain"].clone();
    let set = |extra: (&str, Value)| {
        let request = map! {"action": "set_value", "path": path("k"), "value": "b"};
        let Value::Map(mut request) = request else { unreachable!() };
        request.push((extra.0.into(), extra.1));
        Value::Map(request)
    };
    let (code, words) = refusal(&mut client, set(("chain", Value::Nil)));
    assert_eq!((code.as_str(), words.as_str()), ("already_exists", "Entry already exists at k"));
    let wrong = map! {"node": "n1~1", "tick": 9};
    let (code, words) = refusal(&mut client, set(("chain", wrong.clone())));
    assert_eq!(
        (code.as_str(), words.as_str()),
        ("chain_mismatch", "Chain is n1~1:1 not n1~1:9 for k")
    );
    for unknown in ["nobody~1", "n1~2"] {
        let (code, words) = refusal(&mut client, set(("chain", map! {"node": unknown, "tick": 1})));
        let expected = format!("Chain is n1~1:1 not {unknown}:1 for k");
        assert_eq!((code.as_str(), words), ("chain_mismatch", expected));
    }
    // The right name and tick, but of which life?
    let (code, words) = refusal(&mut client, set(("chain", map! {"node": "n1", "tick": 1})));
    assert_eq!(code, "bad_request");
    assert!(words.contains("'chain'") && words.contains("n1~LIFE"), "{words}");
    assert_eq!(client.get("k"), Some("a".into()));
    let (code, words) = refusal(&mut client, set(("prev", "x".into())));
    assert_eq!(code, "data_mismatch");
    assert!(words.contains("Data is"), "{words}");
    let new = map! {"action": "set_value", "path": path("new"), "value": 1, "chain": wrong};
    let (code, words) = refusal(&mut client, new);
    assert_eq!((code.as_str(), words.as_str()), ("is_new", "Entry is new at new"));
    assert_eq!(client.get("k"), Some("a".into()));
    assert!(has(&client.ok(set(("chain", chain))), "chain"));
    assert_eq!(client.get("k"), Some("b".into()));
}

#[test]
fn the_version_of_a_deleted_entry_is_a_precondition_on_request() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.set("k", 1);
    let deleted = client.ok(map! {"action": "delete_value", "path": path("k"), "nchain": 1});
    let set = |more: &[(&str, Value)]| {
        let fields = more.iter().map(|(name, value)| ((*name).into(), value.clone()));
        let own = map! {"action": "set_value", "path": path("k"), "value": 2};
        let Value::Map(own) = own else { unreachable!() };
        Value::Map(own.into_iter().chain(fields).collect())
    };
    let chain = ("chain", deleted["chain"].clone());
    // As with the original, a deleted entry is new.
    assert_eq!(client.code(set(std::slice::from_ref(&chain))), "is_new");
    let asked = ("deleted", true.into());
    client.ok(set(&[chain.clone(), asked.clone()]));
    assert_eq!(client.code(set(&[chain, asked])), "chain_mismatch");
}

#[test]
fn a_map_is_the_one_that_was_read_whatever_the_order_of_its_pairs() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.ok(map! {"action": "set_value", "path": path("m"), "value": map! {"b": 1, "a": 2}});
    let set = |prev: Value| {
        map! {"action": "set_value", "path": path("m"), "value": map! {"a": 2, "b": 1}, "prev": prev}
    };
    let (code, words) = refusal(&mut client, set(map! {"a": 1, "b": 2}));
    assert_eq!(code, "data_mismatch");
    assert_eq!(words, "Data is a map, but not the one that was sent, at m; nothing was changed");
    let same = client.ok(set(map! {"a": 2, "b": 1}));
    assert_eq!(same["changed"].as_bool(), Some(false), "{same}");
}

#[test]
fn a_batch_of_requests_is_answered_in_order_and_sees_its_own_writes() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let mut batch = Vec::new();
    for seq in 1..=1000 {
        batch.extend(encode(
            &map! {"action": "set_value", "seq": seq, "path": path("x"), "value": seq},
        ));
        batch.extend(encode(&map! {"action": "get_value", "seq": 1000 + seq, "path": path("x")}));
    }
    client.send_bytes(&batch);
    for seq in 1..=1000 {
        assert_eq!(client.reply(seq)["chain"]["tick"].as_u64(), Some(seq));
        assert_eq!(client.reply(1000 + seq)["value"].as_u64(), Some(seq));
    }
}

#[test]
fn a_message_may_come_byte_by_byte_and_two_in_one_piece() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let set = encode(&map! {"action": "set_value", "seq": 7, "path": path("a"), "value": "v"});
    for byte in set {
        client.send_bytes(&[byte]);
    }
    assert_eq!(client.reply(7)["changed"].as_bool(), Some(true));
    let get = |seq: u64| encode(&map! {"action": "get_value", "seq": seq, "path": path("a")});
    let both = [get(8), get(9)].concat();
    client.send_bytes(&both[..both.len() - 5]);
    assert_eq!(client.reply(8)["value"].as_str(), Some("v"));
    client.send_bytes(&both[both.len() - 5..]);
    assert_eq!(client.reply(9)["value"].as_str(), Some("v"));
}

#[test]
fn values_come_back_byte_for_byte() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let raw: [&[u8]; 7] = [
        &[0xcc, 5],
        &[0xcf, 0, 0, 0, 0, 0, 0, 0, 1],
        &[0xd9, 1, b'x'],
        &[0xc4, 2, 0xff, 0xfe],
        &[0xd4, 0x2a, 7],
        &[0xc7, 0, 0x42],
        &[0x82, 0xa1, b'b', 2, 0xa1, b'a', 1],
    ];
    for value in raw {
        let mut set = b"\x84\xa6action\xa9set_value\xa3seq\x01\xa4path\x91\xa1k\xa5value".to_vec();
        set.extend_from_slice(value);
        client.send_bytes(&set);
        assert!(has(&client.reply(1), "changed"));
        client.send_bytes(b"\x83\xa6action\xa9get_value\xa3seq\x02\xa4path\x91\xa1k");
        let reply = client.receive_bytes().unwrap();
        let rest = reply.strip_prefix(b"\x83\xa5value").unwrap();
        assert!(rest.starts_with(value), "{rest:x?}");
    }
}

#[test]
fn a_session_moves_its_root_and_stays_there() {
    let node = Node::found("n1");
    let (mut inside, mut outside) = (node.connect(), node.connect());
    outside.set("r.a", 1);
    outside.set("r.a.b", 2);
    let reply = inside.ok(map! {"action": "root", "path": path("r.a")});
    assert_eq!(fields(&reply), ["value", "chain", "tock", "path", "seq"]);
    assert_eq!(reply["path"], array::<Value>([]));
    assert_eq!(inside.get("b"), Some(2.into()));
    inside.set("c", 3);
    assert_eq!(outside.get("r.a.c"), Some(3.into()));
    let tree = inside.stream(map! {"action": "get_tree", "path": array::<Value>([])});
    let values: Vec<_> = tree.iter().map(|m| m["value"].as_i64().unwrap()).collect();
    assert_eq!(values, [1, 2, 3]);
    assert!(tree.iter().all(|m| m["path"].is_array()));
    inside.ok(map! {"action": "root", "path": path("b")});
    assert_eq!(inside.get(":"), Some(2.into()));
    let chain = outside.ok(map! {"action": "get_value", "path": path("r.a.b"), "nchain": 1});
    let chain = &chain["chain"];
    let by_event = map! {
        "action": "get_value", "node": chain["node"].clone(), "tick": chain["tick"].clone()
    };
    assert_eq!(inside.ok(by_event)["path"], array::<Value>([]));
}

#[test]
fn the_internal_tree_lies_below_nil_whatever_the_root_is() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.set("a", 1);
    client.ok(map! {"action": "root", "path": path("a")});
    let reply = client.ok(map! {"action": "set_internal", "path": path("h.k"), "value": 5});
    assert_eq!(fields(&reply), ["changed", "chain", "tock", "seq"]);
    let reply = client.ok(map! {"action": "get_internal", "path": path("h.k")});
    assert_eq!(reply["value"].as_i64(), Some(5));
    let reply = client.ok(map! {"action": "enum_internal", "path": path("h")});
    assert_eq!(reply["result"], array(["k"]));
    let tree = client.stream(map! {"action": "get_tree_internal", "path": path("h")});
    assert_eq!((tree[0]["path"].clone(), tree[0]["value"].as_i64()), (array(["k"]), Some(5)));
    let mut other = node.connect();
    assert_eq!(other.get(":n.h.k"), Some(5.into()));
    let reply = client.ok(map! {"action": "delete_internal", "path": path("h.k")});
    assert_eq!(reply["prev"].as_i64(), Some(5));
}

#[test]
fn a_tock_that_is_asked_for_is_fresh() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let tocks: Vec<u64> =
        (0..5).map(|_| client.ok(map! {"action": "get_tock"})["tock"].as_u64().unwrap()).collect();
    assert_eq!(tocks, [1, 2, 3, 4, 5]);
    assert_eq!(fields(&client.ok(map! {"action": "get_tock"})), ["tock", "seq"]);
}

//! Types as clients meet them: made by `set_internal`, asked wherever a client writes, and nowhere else.

use std::thread;

use crate::harness::{Client, Node, Value, array, has, path, text};

/// An integer from 0, and below it one up to 9.
fn with_types() -> (Node, Client) {
    let node = Node::found("n1");
    let mut client = node.connect();
    let schema = map! {"type": "integer", "minimum": 0};
    let number = map! {"schema": schema, "good": array([0, 1]), "bad": array([-1])};
    client.ok(map! {"action": "set_internal", "path": path("type.n"), "value": number});
    let small = map! {
        "schema": map! {"maximum": 9}, "good": array([0, 9]), "bad": array([10])
    };
    client.ok(map! {"action": "set_internal", "path": path("type.n.small"), "value": small});
    let value = map! {"type": "n.small"};
    client.ok(map! {"action": "set_internal", "path": path("match.m.+.v"), "value": value});
    (node, client)
}

fn set(at: &str, value: impl Into<Value>) -> Value {
    map! {"action": "set_value", "path": path(at), "value": value.into()}
}

#[test]
fn what_does_not_fit_is_refused_by_every_action_that_writes() {
    let (_node, mut client) = with_types();
    client.ok(set("m.a.v", 3));
    let too_big = "<ValidationError: '10 is greater than the maximum of 9'>";
    let update = map! {"action": "update", "path": path("m.a.v"), "value": 10, "tock": 1_u64 << 40};
    for request in [set("m.a.v", 10), update] {
        let error = client.error(request);
        assert_eq!((text(&error, "code"), text(&error, "error")), ("type_mismatch", too_big));
    }
    let ops = array([set("m.b.v", 10), set("m.b.v", 9), set("m.b.v", -1)]);
    let results = client.ok(map! {"action": "batch", "ops": ops});
    assert_eq!(text(&results["results"][0], "code"), "type_mismatch");
    assert_eq!(results["results"][1]["changed"].as_bool(), Some(true));
    assert_eq!(text(&results["results"][2], "code"), "type_mismatch");
    assert_eq!(client.get("m.a.v"), Some(3.into()));
    // No number at all; and what the pattern does not match.
    assert_eq!(client.code(set("m.a.v", "x")), "type_mismatch");
    client.ok(set("m.v", "free"));
    // Deletions pass.
    client.ok(map! {"action": "delete_value", "path": path("m.a.v")});
}

#[test]
fn a_type_acts_from_the_moment_in_which_it_is_made_within_one_batch_too() {
    let (node, mut client) = with_types();
    let match_other = map! {
        "action": "set_internal", "path": path("match.o"), "value": map! {"type": "n"}
    };
    let ops = array([set("o", "text"), match_other, set("o", "other"), set("o", 5)]);
    let results = client.ok(map! {"action": "batch", "ops": ops});
    let codes: Vec<&str> =
        (0..4).map(|at| results["results"][at]["code"].as_str().unwrap_or("ok")).collect();
    assert_eq!(codes, ["ok", "ok", "type_mismatch", "ok"]);
    // Without its match an entry is free again; what is stored was never checked.
    client.ok(map! {"action": "delete_internal", "path": path("match.o")});
    client.ok(set("o", "other"));
    assert_eq!(node.connect().get("o"), Some("other".into()));
}

#[test]
fn a_type_or_match_that_is_none_is_refused_with_the_originals_words() {
    let (_node, mut client) = with_types();
    let code = map! {"code": "return True", "good": array([1, 2]), "bad": array([3])};
    let few = map! {"schema": map! {}, "good": array([1]), "bad": array([3])};
    let cases = [
        ("type.x", code, "JSON Schema only"),
        ("type.x", few, "Must have check-good values"),
        ("match.x", map! {"type": "nope"}, "This type does not exist"),
        ("match.x", map! {"type": 5}, "Type of 5 is not a list"),
        ("type", map! {}, "This node can't have data."),
    ];
    for (at, value, words) in cases {
        let set = map! {"action": "set_internal", "path": path(at), "value": value};
        let error = client.error(set);
        assert_eq!(text(&error, "code"), "type_mismatch", "{at}");
        assert!(text(&error, "error").contains(words), "{error}");
    }
    // A match is kept as a path, also if it came as text.
    let kept = client.ok(map! {"action": "get_internal", "path": path("match.m.+.v")});
    assert!(matches!(kept["value"]["type"], Value::Ext(3, _)), "{kept}");
}

#[test]
fn a_check_that_takes_long_holds_up_only_the_client_that_writes() {
    let node = Node::found("n1");
    let mut slow = node.connect();
    // As many comparisons as items times constants.
    let constants = array((0..2_000_i64).map(|number| array([number])));
    let one_of_many = map! {
        "schema": map! {"items": map! {"enum": constants}},
        "good": array([array::<i64>([]), array([array([0])])]), "bad": array([array([-1])])
    };
    slow.ok(map! {"action": "set_internal", "path": path("type.many"), "value": one_of_many});
    let value = map! {"type": "many"};
    slow.ok(map! {"action": "set_internal", "path": path("match.many"), "value": value});
    let written = slow.start(set("many", array((0..20_000).map(|_| array([1_999])))));
    let (is_written, mut others) = (thread::spawn(move || slow.reply(written)), 0);
    let mut other = node.connect();
    while !is_written.is_finished() {
        other.ok(map! {"action": "get_tock"});
        others += 1;
    }
    let reply = is_written.join().expect("an answer");
    assert!(has(&reply, "changed"), "{reply}");
    assert!(others >= 100, "{others} requests of others while one value was checked");
}

//! What the replies to a user's writes tell of what was there, and what refusals say.

use super::Place;
use crate::harness::{Value, array, has, path, text};
use crate::server::streams::conflicts::Peer;

fn with(request: Value, more: &[(&str, Value)]) -> Value {
    let Value::Map(mut fields) = request else { panic!("no map") };
    fields.extend(more.iter().map(|(key, value)| (Value::from(*key), value.clone())));
    Value::Map(fields)
}

fn set(at: &str, value: u64, more: &[(&str, Value)]) -> Value {
    with(map! {"action": "set_value", "path": path(at), "value": value}, more)
}

#[test]
fn whoever_may_write_and_not_read_learns_nothing_of_what_was_there() {
    let mut place = Place::new();
    // Another node's event, which chains go back to.
    Peer::new(&place.node).push("a", Some(b"\xcd\x12\x67"), 1000);
    let get = map! {"action": "get_value", "path": path("a"), "nchain": 9};
    let newest = place.admin.ok(get)["chain"].clone();
    let mut user = place.user("joe", &[("a", "wcd"), ("b", "wcd")]);
    for more in [("prev", Value::from(4711)), ("prev", Value::from(1)), ("idem", Value::from(true))]
    {
        for at in ["a", "b"] {
            assert_eq!(
                user.code(set(at, 5, std::slice::from_ref(&more))),
                "denied",
                "{more:?} at {at}"
            );
        }
    }
    // Equal, whatever was there: a value, the same value, or nothing.
    for (at, value) in [("a", 5), ("a", 5), ("b", 5)] {
        let reply = user.ok(set(at, value, &[("nchain", 9.into())]));
        assert!(!has(&reply, "prev"), "{reply}");
        assert_eq!(reply["changed"].as_bool(), Some(true));
        assert!(!has(&reply["chain"], "prev") || reply["chain"]["prev"].is_nil(), "{reply}");
    }
    // The chain that it guesses is not told when it is wrong.
    place.admin.set("a", 4711);
    let wrong = user.error(set("a", 6, &[("chain", newest)]));
    assert_eq!(text(&wrong, "code"), "chain_mismatch");
    assert!(!text(&wrong, "error").contains("is n1~1:"), "{wrong}");
    let deletion = user.ok(map! {"action": "delete_value", "path": path("a"), "nchain": 9});
    assert!(!has(&deletion, "prev") && !has(&deletion["chain"], "prev"), "{deletion}");
    // In a batch it is the same.
    place.admin.set("a", 4711);
    let batch = user.ok(map! {"action": "batch", "ops": Value::Array(vec![set("a", 7, &[])])});
    assert!(!has(&batch["results"][0], "prev"), "{batch}");
}

#[test]
fn another_clients_write_is_not_told_to_those_who_may_not_make_it() {
    let mut place = Place::new();
    Peer::new(&place.node).push("a", Some(&[1]), 1000);
    let wid = ("wid", Value::Binary(vec![7; 16]));
    place.admin.ok(set("a", 4711, std::slice::from_ref(&wid)));
    let mut user = place.user("joe", &[("a", "r"), ("b", "wc")]);
    assert_eq!(user.code(set("a", 4711, std::slice::from_ref(&wid))), "denied");
    let mut blind = place.user("jim", &[("a", "wc")]);
    let again = blind.ok(set("a", 4711, &[wid.clone(), ("nchain", 9.into())]));
    assert_eq!(again["repeated"].as_bool(), Some(true));
    assert!(!has(&again["chain"], "prev"), "{again}");
    // Of a write somewhere else, not even where.
    let reused = user.error(set("b", 4711, &[wid]));
    assert_eq!(text(&reused, "code"), "wid_reused");
    assert!(!text(&reused, "error").contains("4711"), "{reused}");
}

/// What an error says of a refusal, besides its text: for commands that tell how to look into it.
fn explain(user: &str, at: &str) -> Value {
    array([user, at])
}

#[test]
fn a_refusal_says_who_may_not_do_what_where_and_for_want_of_which_letter() {
    let mut place = Place::new();
    for at in ["b.c", "b.blind", "b.deep"] {
        place.admin.set(at, 1);
    }
    let list = [
        ("b", "rxn"),
        ("b.c", "rc"),
        ("b.w", "rw"),
        ("b.blind", "c"),
        ("b.shut", "r"),
        ("b.shut.x", "rwx"),
        ("#", ""),
    ];
    let mut user = place.user("joe", &list);
    let get = |at: &str| map! {"action": "get_value", "path": path(at)};
    let long = format!("c.{}", "x".repeat(1000));
    let cut = format!("'c.{}…'", "x".repeat(198));
    let by_list = "the access list 'joe' does not allow";
    for (request, at, says) in [
        (get("c.x"), "c.x", format!("read 'c.x': {by_list} r there")),
        (
            get("b.shut.x"),
            "b.shut.x",
            format!("read 'b.shut.x': {by_list} x at 'b.shut', which leads there"),
        ),
        (get(&long), "", format!("read {cut}: {by_list} r there")),
        (
            set("b.x", 1, &[]),
            "b.x",
            format!("set 'b.x': {by_list} w there (c, where there is no value)"),
        ),
        // Who may read knows what is there; to others, both cases look the same.
        (set("b.c", 2, &[]), "b.c", format!("set 'b.c': {by_list} w there, and there is a value")),
        (set("b.w", 2, &[]), "b.w", format!("set 'b.w': {by_list} c there, and there is no value")),
        (
            set("b.blind", 2, &[]),
            "b.blind",
            format!("set 'b.blind': {by_list} w there (c, where there is no value)"),
        ),
        (
            set("b.blind", 2, &[("prev", Value::from(1))]),
            "b.blind",
            format!("set 'b.blind': {by_list} r there, and 'prev' and 'idem' tell what is there"),
        ),
        (
            set("b.shut.x", 2, &[]),
            "b.shut.x",
            format!(
                "set 'b.shut.x': {by_list} x (n, where it makes something) at all that leads there"
            ),
        ),
        (
            map! {"action": "delete_value", "path": path("b.c")},
            "b.c",
            format!("delete 'b.c': {by_list} d there"),
        ),
        (
            map! {"action": "delete_tree", "path": path("b"), "nchain": 0},
            "b",
            format!("delete 'b' with all that is below: {by_list} d there"),
        ),
        (
            map! {"action": "enum", "path": path("b")},
            "b",
            format!(
                "list 'b': {by_list} the letter e at the path itself; ask for a path below that has it"
            ),
        ),
        (
            map! {"action": "msg_send", "topic": path("t"), "data": 1},
            "::msg.t",
            format!("send to the topic 't': {by_list} w of '::msg.t'"),
        ),
        (
            map! {"action": "get_value", "path": path(":n.auth")},
            "",
            String::from("read ':n.auth': only admins may"),
        ),
    ] {
        let reads = ["read ", "list ", "monitor "].iter().any(|word| says.starts_with(word));
        let done = if reads { "" } else { "; nothing was done" };
        let refusal = user.error(request);
        assert_eq!(text(&refusal, "code"), "denied", "{refusal}");
        let whole = format!("user 'joe' may not {says}{done}");
        assert_eq!(text(&refusal, "error"), whole);
        match at {
            "" => assert!(!has(&refusal, "explain"), "{refusal}"),
            at => assert_eq!(refusal["explain"], explain("joe", at)),
        }
    }
    // In a batch, each operation says it for itself.
    let ops = vec![set("b.w.x", 1, &[]), set("c", 1, &[])];
    let batch = user.ok(map! {"action": "batch", "ops": Value::Array(ops)});
    let refused = &batch["results"][1];
    assert!(text(refused, "error").contains("may not set 'c'"), "{batch}");
    assert_eq!(refused["explain"], explain("joe", "c"));
}

#[test]
fn a_refusal_says_so_where_a_user_has_no_access_list_or_too_little_of_a_role() {
    let place = Place::new();
    place.put(":n.auth.password.user.amy", Some(map! {"role": "user"}));
    place.record("bob", "user");
    let get = map! {"action": "get_value", "path": path("a")};
    let refusal = |name: &str, request: Value| place.login(name, 0).error(request);
    let of = |name: &str, request: Value| text(&refusal(name, request), "error").to_owned();
    assert_eq!(of("amy", get.clone()), "user 'amy' may not read 'a': that user has no access list");
    assert_eq!(of("bob", get), "user 'bob' may not read 'a': there is no access list 'bob'");
    let needs = "needs the role 'admin', and that user's is 'user'; nothing was done";
    let set = map! {"action": "set_internal", "path": path("acl.x.a"), "value": "r"};
    assert_eq!(of("bob", set), format!("user 'bob' may not set ':n.acl.x.a': that {needs}"));
    let leave = map! {"action": "leave"};
    assert_eq!(of("bob", leave), format!("user 'bob' may not do that: 'leave' {needs}"));
}

//! Users: made, changed, listed, removed; by whom.

use distkv::model::path::{Element, Path};
use distkv::replica::write::Write;

use super::{admin, limited, logged_in, login, password, pattern, secured};
use crate::harness::{Client, Node, Value, fields, has, path, text};

#[test]
fn users_are_made_changed_listed_and_removed() {
    let node = secured();
    let mut admin = admin(&node);
    let reply = admin.ok(map! {
        "action": "auth_set", "typ": "password", "kind": "user", "ident": "joe", "chain": Value::Nil,
        "secret": "test123",
    });
    assert_eq!(fields(&reply), ["changed", "chain", "tock", "seq"], "the original's order");
    let again = map! {
        "action": "auth_set", "typ": "password", "ident": "joe", "chain": Value::Nil, "secret": "x",
    };
    assert_eq!(admin.code(again), "already_exists");
    admin.ok(limited("amy", "test123", "lamps"));
    let get =
        |user: &str| map! {"action": "auth_get", "typ": "password", "ident": user, "nchain": 2};
    let joe = admin.ok(get("joe"));
    assert_eq!(joe["chain"], reply["chain"]);
    assert_eq!((text(&joe, "name"), text(&joe, "role")), ("joe", "admin"));
    let amy = admin.ok(get("amy"));
    assert_eq!((text(&amy, "role"), text(&amy, "acl")), ("user", "lamps"));
    assert_eq!(admin.code(get("nn")), "not_found");
    // The original sends one message more than it should, unless it is told that a stream is expected.
    let list = map! {"action": "auth_list", "typ": "password", "kind": "user"};
    let seq = admin.start(list.clone());
    assert_eq!(text(&admin.reply(seq), "state"), "start");
    let users = admin.rest(seq);
    let names: Vec<&str> = users.iter().map(|user| text(user, "ident")).collect();
    assert_eq!(names, ["amy", "joe"]);
    assert_eq!(fields(&users[1]), ["typ", "kind", "ident", "role", "seq", "tock"]);
    assert_eq!(fields(&admin.reply(seq)), ["seq", "tock"]);
    let Value::Map(mut stream) = list else { panic!("no map") };
    stream.push(("state".into(), "start".into()));
    assert_eq!(admin.stream(Value::Map(stream)).len(), 2);
    admin.ok(map! {"action": "get_tock"});
    let one = map! {"action": "auth_list", "typ": "password", "ident": "joe", "nchain": 1};
    let seq = admin.start(one);
    assert_eq!(admin.reply(seq)["chain"]["tick"], reply["chain"]["tick"]);
    assert_eq!(fields(&admin.reply(seq)), ["seq", "tock"]);

    let remove = || map! {"action": "auth_delete", "typ": "password", "ident": "joe"};
    assert_eq!(admin.ok(remove())["changed"].as_bool(), Some(true));
    assert_eq!(admin.code(remove()), "not_found");
    assert_eq!(admin.code(get("joe")), "not_found");
    assert_eq!(node.connect().code(login("password", "joe", "test123")), "auth_failed");
    // Who is made again logs in again.
    admin.ok(password("joe", "test125"));
    logged_in(&node, "password", "joe", "test125");
}

#[test]
fn who_gets_a_list_is_a_user_from_then_on_and_without_it_again_no_admin() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(password("joe", "test123"));
    admin.ok(pattern("pub", "pub.#", "rwcxen"));
    admin.ok(pattern("pub", "pub", "xn"));
    // As the original's command line does it.
    let acl = || path("auth.password.user.joe.acl");
    admin.ok(map! {"action": "set_internal", "path": acl(), "value": map! {"key": "pub"}});
    let mut joe = logged_in(&node, "password", "joe", "test123");
    joe.set("pub.a", 1);
    assert_eq!(joe.code(map! {"action": "set_value", "path": path("sec.a"), "value": 1}), "denied");
    admin.ok(map! {"action": "delete_internal", "path": acl()});
    assert_eq!(joe.code(map! {"action": "get_value", "path": path("sec.a")}), "denied");
    let get = map! {"action": "auth_get", "typ": "password", "ident": "joe"};
    assert_eq!(text(&admin.ok(get), "role"), "user");
    // By ours, at once; a role says otherwise.
    admin.ok(map! {"action": "auth_set", "typ": "password", "ident": "joe", "role": "admin"});
    joe.set("sec.a", 1);
    admin.ok(map! {"action": "auth_set", "typ": "password", "ident": "joe", "acl": "pub"});
    assert_eq!(joe.code(map! {"action": "get_value", "path": path("sec.a")}), "denied");
    admin.ok(map! {"action": "auth_set", "typ": "password", "ident": "joe", "acl": "-"});
    assert_eq!(joe.code(map! {"action": "get_value", "path": path("pub.a")}), "denied");
}

/// What a request says of who is there holds for all that it changes: also where the record itself stays as it is.
#[test]
fn nothing_of_a_user_is_changed_by_a_request_that_says_that_it_is_new_or_another_one() {
    let node = secured();
    let mut admin = admin(&node);
    let secret = "0123456789abcdef0123456789abcdef";
    let set = |name: &str, chain: &Value, fields: &[(&str, &str)]| {
        let same = [("action", "auth_set"), ("typ", "token"), ("ident", name)];
        let fields = same.iter().chain(fields).map(|(name, text)| ((*name).into(), (*text).into()));
        Value::Map(fields.chain([("chain".into(), chain.clone())]).collect())
    };
    let user = || map! {"action": "auth_get", "typ": "token", "ident": "panel", "nchain": 1};
    admin.ok(set("panel", &Value::Nil, &[("secret", secret), ("acl", "lamps")]));
    let stale = admin.ok(user())["chain"].clone();
    admin.ok(set("panel", &stale, &[("role", "operator")]));
    let before = admin.ok(user());
    let made_up = map! {"node": "n1~1", "tick": 7};
    let of_another = admin.set("x", 1)["chain"].clone();
    let new = Value::Nil;
    let (list, none, role) = (("acl", "*"), ("acl", "-"), ("role", "operator"));
    let whole = [("secret", secret), list, role];
    for (chain, code) in [
        (&new, "already_exists"),
        (&stale, "chain_mismatch"),
        (&made_up, "chain_mismatch"),
        (&of_another, "chain_mismatch"),
    ] {
        for change in [&[list][..], &[none], &[list, role], &[("role", "user")], &whole, &[]] {
            assert_eq!(admin.code(set("panel", chain, change)), code, "{chain} {change:?}");
            let after = admin.ok(user());
            for field in ["chain", "role", "acl"] {
                assert_eq!(after[field], before[field], "{chain} {change:?}");
            }
        }
        // Who is to be changed and is not there is not made; no list is left of it.
        if !chain.is_nil() {
            assert_eq!(admin.code(set("nobody", chain, &[list])), "is_new");
            let left: Path = ":n.auth.token.user.nobody.acl".parse().unwrap();
            assert!(node.hub.read(|engine| engine.get(left.as_bytes()).is_none()), "{chain}");
        }
    }
    // A token that is made for who is new cannot be told again: that is no repetition.
    assert_eq!(admin.code(set("panel", &new, &[("acl", "lamps")])), "already_exists");
    // What a request leaves out is meant as well: somebody without a list, and an admin.
    for left_out in [&[("secret", secret)][..], &[("secret", secret), role]] {
        assert_eq!(admin.code(set("panel", &new, left_out)), "already_exists", "{left_out:?}");
    }
    let present = before["chain"].clone();
    assert_eq!(admin.ok(set("panel", &present, &[list]))["changed"].as_bool(), Some(true));
    assert_eq!(text(&admin.ok(user()), "acl"), "*");
}

/// Of a request whose answer was lost nobody knows whether it was carried out: it can be sent again.
#[test]
fn a_request_that_was_carried_out_is_taken_again_and_changes_nothing() {
    let node = secured();
    let mut admin = admin(&node);
    let secret = "0123456789abcdef0123456789abcdef";
    let user = || map! {"action": "auth_get", "typ": "token", "ident": "panel", "nchain": 1};
    let add = map! {
        "action": "auth_set", "typ": "token", "ident": "panel", "secret": secret, "acl": "lamps",
        "chain": Value::Nil,
    };
    assert_eq!(admin.ok(add.clone())["changed"].as_bool(), Some(true));
    let before = admin.ok(user());
    assert_eq!(admin.ok(add)["changed"].as_bool(), Some(false));
    let change = map! {
        "action": "auth_set", "typ": "token", "ident": "panel", "role": "operator", "acl": "-",
        "chain": before["chain"].clone(),
    };
    assert_eq!(admin.ok(change.clone())["changed"].as_bool(), Some(true));
    let after = admin.ok(user());
    assert_eq!(admin.ok(change)["changed"].as_bool(), Some(false));
    let last = admin.ok(user());
    assert!(last["chain"] == after["chain"] && !has(&last, "acl"), "{last}");
}

/// For a user, these names mean something else, or nothing.
#[test]
fn lists_have_names_that_can_be_given_to_users_and_others_that_are_there_can_be_deleted() {
    let node = secured();
    let mut admin = admin(&node);
    for name in ["*", "-", ""] {
        let at = |first: &[&str]| {
            let elements = first.iter().copied().chain(["acl", name, "#"]);
            Value::Array(elements.map(Value::from).collect())
        };
        let internal = || map! {"action": "set_internal", "path": at(&[]), "value": "r"};
        let error = admin.error(internal());
        assert_eq!(text(&error, "code"), "bad_request");
        assert!(text(&error, "error").contains("no access list can be named"), "{error}");
        let batch = map! {"action": "batch", "ops": Value::Array(vec![internal()])};
        assert_eq!(admin.ok(batch)["results"][0]["code"], "bad_request".into());
        // One that was there before.
        let whole = Path::system_root()
            .join(
                &Path::from_elements([Element::Str("acl"), Element::Str(name), Element::Str("#")])
                    .unwrap(),
            )
            .unwrap();
        node.hub.write(Write::new(&whole, Some(b"\xa1r")), false).0.unwrap();
        let get = || map! {"action": "get_internal", "path": at(&[])};
        assert_eq!(admin.ok(get())["value"], "r".into());
        admin.ok(map! {"action": "delete_internal", "path": at(&[])});
        assert!(!has(&admin.ok(get()), "value"), "{name}");
    }
    admin.ok(pattern("lamps", "*.-", "r"));
}

#[test]
fn nobody_is_said_to_be_an_admin_who_has_an_access_list() {
    let node = secured();
    let mut admin = admin(&node);
    let set = |fields: &[(&str, &str)]| {
        let same = [("action", "auth_set"), ("typ", "password"), ("ident", "joe")];
        let fields = same.iter().chain(fields);
        Value::Map(fields.map(|(name, text)| ((*name).into(), (*text).into())).collect())
    };
    let get = || map! {"action": "auth_get", "typ": "password", "ident": "joe"};
    for list in ["pub", "*"] {
        let both = [("secret", "test123"), ("acl", list), ("role", "admin")];
        assert_eq!(admin.code(set(&both)), "bad_request");
        assert_eq!(admin.code(get()), "not_found");
    }
    admin.ok(limited("joe", "test123", "pub"));
    let error = admin.error(set(&[("role", "admin")]));
    assert_eq!(text(&error, "code"), "bad_request");
    assert!(text(&error, "error").contains("distkv-node user acl"), "{error}");
    admin.ok(set(&[("role", "operator")]));
    // Without the list; also at once, and for who is made again and whose list was another one's.
    admin.ok(set(&[("role", "admin"), ("acl", "-")]));
    assert_eq!(text(&admin.ok(get()), "role"), "admin");
    admin.ok(set(&[("acl", "pub")]));
    admin.ok(map! {"action": "auth_delete", "typ": "password", "ident": "joe"});
    let acl = path("auth.password.user.joe.acl");
    admin.ok(map! {"action": "set_internal", "path": acl, "value": map! {"key": "pub"}});
    admin.ok(set(&[("secret", "test123"), ("role", "admin")]));
    assert_eq!(text(&admin.ok(get()), "role"), "admin");
}

#[test]
fn a_user_changes_its_own_password_and_nothing_else() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "*"));
    admin.ok(limited("amy", "test123", "*"));
    let mut joe = logged_in(&node, "password", "joe", "test123");
    for refused in [
        password("amy", "test124"),
        password("new", "test124"),
        limited("joe", "test124", "*"),
        map! {"action": "auth_set", "typ": "password", "ident": "joe", "role": "admin"},
        map! {"action": "auth_set", "typ": "password", "ident": "joe", "acl": "x"},
        map! {"action": "auth_set", "typ": "token", "ident": "joe"},
        map! {"action": "auth_delete", "typ": "password", "ident": "joe"},
        map! {"action": "auth_get", "typ": "password", "ident": "joe"},
        map! {"action": "auth_list", "typ": "password"},
        map! {"action": "set_auth_typ"},
        pattern("x", "#", "r"),
        map! {"action": "set_value", "path": path(":n.acl.x.#"), "value": "r"},
        map! {"action": "get_internal", "path": path("auth.password.user.joe")},
        map! {"action": "delete_tree", "path": path(":n.auth")},
    ] {
        assert_eq!(joe.code(refused.clone()), "denied", "{refused}");
    }
    assert_eq!(joe.ok(password("joe", "test124"))["changed"].as_bool(), Some(true));
    joe.set("a", 1);
    assert_eq!(node.connect().code(login("password", "joe", "test123")), "auth_failed");
    logged_in(&node, "password", "joe", "test124").set("a", 2);
}

#[test]
fn a_connection_whose_secret_was_replaced_sets_no_new_one() {
    let replaced = |client: &mut Client, request: Value| {
        let error = client.error(request);
        assert_eq!(text(&error, "code"), "denied");
        assert!(text(&error, "error").contains("the secret was replaced since"), "{error}");
    };
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "*"));
    let token = |fields: &[(&str, &str)]| {
        let of = [("action", "auth_set"), ("typ", "token"), ("ident", "robot")];
        let all = of.iter().chain(fields).map(|(key, value)| ((*key).into(), (*value).into()));
        Value::Map(all.collect())
    };
    let old = text(&admin.ok(token(&[("acl", "*")])), "token").to_owned();
    let mut thief = logged_in(&node, "password", "joe", "test123");
    let mut robber = logged_in(&node, "token", "robot", &old);
    // A change of something else is none of the secret.
    admin.ok(map! {"action": "auth_set", "typ": "password", "ident": "joe", "acl": "x"});
    admin.ok(map! {"action": "auth_set", "typ": "password", "ident": "joe", "acl": "*"});
    let mut owner = logged_in(&node, "password", "joe", "test123");
    // The connection that has set the new one knows it.
    for secret in ["test124", "test125"] {
        owner.ok(password("joe", secret));
        replaced(&mut thief, password("joe", "stolen12"));
    }
    let new = text(&admin.ok(token(&[])), "token").to_owned();
    replaced(&mut robber, token(&[]));
    replaced(&mut robber, token(&[("secret", &"t".repeat(40))]));
    logged_in(&node, "token", "robot", &new).ok(token(&[]));
    // It goes on otherwise, and an admin sets anybody's secret.
    thief.set("a", 1);
    admin.ok(password("joe", "test126"));
    replaced(&mut owner, password("joe", "test127"));
    logged_in(&node, "password", "joe", "test126").ok(password("joe", "test127"));
}

#[test]
fn a_method_in_force_has_users_and_a_name_that_is_known() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let on = |method: &str| map! {"action": "set_auth_typ", "typ": method};
    let error = client.error(on("password"));
    assert!(text(&error, "error").contains("You didn't configure this method yet"), "{error}");
    assert_eq!(client.code(on("odd")), "bad_request");
    assert_eq!(client.code(password("", "x")), "bad_request");
    assert_eq!(
        client.code(map! {"action": "auth_set", "typ": "odd", "ident": "joe"}),
        "bad_request"
    );
    assert_eq!(
        client.code(map! {"action": "auth_set", "typ": "root", "ident": "joe"}),
        "bad_request"
    );
    let bare = map! {"action": "auth_set", "typ": "password", "ident": "joe"};
    assert_eq!(client.code(bare), "bad_request");
    client.ok(password("joe", "test123"));
    let off = map! {"action": "set_auth_typ", "typ": Value::Nil};
    let reply = client.ok(off.clone());
    assert!(!has(&reply, "prev"), "{reply}");
    let current = || node.hub.read(|engine| engine.login().map(|login| login.name().to_owned()));
    assert_eq!(current(), None);
    client.ok(on("password"));
    assert_eq!(current().as_deref(), Some("password"));
    let mut joe = logged_in(&node, "password", "joe", "test123");
    assert_eq!(joe.ok(off)["prev"], map! {"current": "password"});
    assert_eq!(current(), None);
    node.connect().set("a", 1);
}

#[test]
fn everybody_on_an_open_node_changes_users_and_lists_while_no_login_is_needed() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.ok(pattern("lim", "pub", "rx"));
    let at: Path = ":n.acl.lim.pub".parse().unwrap();
    assert!(node.hub.read(|engine| engine.get(at.as_bytes()).is_some()));
    client.ok(map! {"action": "delete_tree", "path": path(":n.acl")});
    client.ok(map! {"action": "auth_set", "typ": "_test", "ident": "std", "chain": Value::Nil});
    client.ok(map! {"action": "set_value", "path": path(":n.auth"), "value": map! {"current": Value::Nil}});
}

#[test]
fn a_dialogue_of_the_originals_clients_makes_a_user() {
    let node = Node::found("n1");
    let mut client = node.connect_with_qlen(10);
    let seq = client.start(map! {
        "action": "auth_set", "typ": "_test", "kind": "user", "ident": "std", "state": "start", "wseq": 1,
    });
    assert_eq!(text(&client.reply(seq), "state"), "start");
    assert_eq!(text(&client.reply(seq), "step"), "GiveName");
    client
        .send(map! {"step": "HasName", "name": "std", "chain": Value::Nil, "wseq": 2, "seq": seq});
    let made = client.reply(seq);
    assert_eq!(made["chain"]["prev"], Value::Nil, "{made}");
    assert_eq!(made["wseq"].as_u64(), Some(3));
    assert_eq!(text(&client.reply(seq), "state"), "end");
    client.send(map! {"seq": seq, "state": "end"});
    // Nothing else is said of it.
    client.silence(seq);
    let users = client.stream(map! {"action": "auth_list", "typ": "_test", "state": "start"});
    assert_eq!(users.len(), 1, "{users:?}");
}

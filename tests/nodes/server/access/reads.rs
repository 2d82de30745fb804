//! Other ways to data: the root, an entry's event, what is told of shards, `test_acl`; and what needs more than a
//! user.

use super::Place;
use crate::harness::{Value, array, fields, has, path, text};

#[test]
fn the_entry_at_a_new_root_is_told_to_those_who_may_read_it() {
    let mut place = Place::new();
    for at in ["a", "a.b", "shut.b"] {
        place.admin.set(at, 7);
    }
    let mut user = place.user("joe", &[("a", "x"), ("a.b", "rx"), ("shut.b", "rx"), ("shut", "r")]);
    let blind = user.ok(map! {"action": "root", "path": path("a")});
    assert!(!has(&blind, "value") && blind["chain"].is_nil(), "{blind}");
    let seen = user.ok(map! {"action": "root", "path": path("b")});
    assert_eq!(seen["value"].as_i64(), Some(7));
    let mut user = place.login("joe", 0);
    for at in ["shut.b", "shut", "nothing"] {
        assert_eq!(user.code(map! {"action": "root", "path": path(at)}), "denied", "{at}");
    }
}

#[test]
fn an_entry_is_found_by_its_event_only_if_it_may_be_read() {
    let mut place = Place::new();
    let open = place.admin.set("a", 1)["chain"]["tick"].clone();
    let shut = place.admin.set("b", 2)["chain"]["tick"].clone();
    let behind = place.admin.set("b.c", 3)["chain"]["tick"].clone();
    let mut user = place.user("joe", &[("a", "r"), ("b", "w"), ("b.c", "r")]);
    let ask = |tick: &Value| map! {"action": "get_value", "node": "n1~1", "tick": tick.clone()};
    assert_eq!(user.ok(ask(&open))["value"].as_i64(), Some(1));
    let nobody = user.error(ask(&Value::from(4711)));
    for tick in [&shut, &behind] {
        let refusal = user.error(ask(tick));
        assert_eq!(text(&refusal, "code"), text(&nobody, "code"));
        let no_tick = text(&nobody, "error").replace("4711", &tick.to_string());
        assert_eq!(text(&refusal, "error"), no_tick);
    }
}

#[test]
fn users_are_told_which_events_a_node_has_not_heard_of_and_no_more() {
    let mut place = Place::new();
    let shut = place.admin.set("shut", 1)["chain"]["tick"].clone();
    let user = place.user("joe", &[("open.#", "r")]);
    place.record("opa", "operator");
    let operator = place.login("opa", 0);
    for (mut client, told) in
        [(user, vec!["missing"]), (operator, vec!["present", "known", "deleted", "missing"])]
    {
        let asked = map! {"n1~1": array([shut.clone(), 4711.into()]), "nobody~9": array([7])};
        let reply = client.ok(map! {"action": "check_deleted", "nodes": asked});
        assert_eq!(fields(&reply), [told, vec!["seq", "tock"]].concat());
        assert_eq!(reply["missing"], map! {"n1~1": array([4711]), "nobody~9": array([7])});
    }
}

#[test]
fn users_get_no_figures_of_all_data() {
    let mut place = Place::new();
    place.admin.set("a.b", 1);
    let lists = [("#", "rwcdxena")];
    let mut user = place.user("joe", &lists);
    assert!(!user.ok(map! {"action": "list_shards"})["result"].as_array().unwrap().is_empty());
    let detail = || map! {"action": "list_shards", "detail": true};
    assert_eq!(user.code(detail()), "denied");
    place.record("opa", "operator");
    let mut operator = place.login("opa", 0);
    assert!(!operator.ok(detail())["result"].as_array().unwrap().is_empty());
    let nodes = user.ok(map! {"action": "cluster"});
    assert!(has(&nodes, "nodes"), "{nodes}");
    for action in ["status", "members", "get_state", "enum_node"] {
        let request = || map! {"action": action, "node": "n1~1", "nodes": true, "known": true};
        assert_eq!(user.code(request()), "denied", "{action}");
        let reply = operator.request(request());
        assert_ne!(reply["code"].as_str(), Some("denied"), "{action}");
    }
}

#[test]
fn what_concerns_files_the_network_and_all_data_is_an_admins() {
    let mut place = Place::new();
    place.admin.set("a", 1);
    let mut user = place.user("joe", &[("#", "rwcdxena"), (":", "rwcdxena")]);
    place.record("opa", "operator");
    place.list("opa", &[("#", "rwcdxena")]);
    let mut operator = place.login("opa", 0);
    let actions = [
        "save",
        "log",
        "update",
        "snapshot",
        "log_start",
        "log_stop",
        "get_snapshot",
        "restore",
        "leave",
        "kill_node",
        "forget_member",
        "key_list",
        "key_add",
        "key_use",
        "key_remove",
        "fake_info",
        "set_internal",
        "delete_internal",
        "get_internal",
    ];
    for action in actions {
        let request = || {
            map! {
                "action": action, "path": path("auth.x"), "value": 1, "node": "n9", "tick": 1, "tock": 9,
                "start": true, "data": Value::Binary(vec![1]), "file": "x", "prev": Value::Nil,
                "secret": Value::Binary(vec![7; 32]), "ident": "00000000",
            }
        };
        // Some take the name of a file, and have no whole path.
        let request = || match action {
            "delete_internal" => map! {"action": action, "path": path("auth.x")},
            "save" | "log" | "snapshot" | "log_start" => {
                map! {"action": action, "path": "x", "file": "x"}
            }
            _ => request(),
        };
        assert_eq!(user.code(request()), "denied", "{action}");
        assert_eq!(operator.code(request()), "denied", "{action}");
    }
    assert_eq!(user.get("a"), Some(1.into()));
}

#[test]
fn a_list_tells_its_letters_only_where_it_has_the_one_for_that() {
    let mut place = Place::new();
    place.admin.set("a.hidden", 1);
    let mut user = place.user("joe", &[("a", "rxa"), ("a.b", "rwx"), ("c.#", "a")]);
    place.list("other", &[("a.#", "rxw"), ("a", "rx"), ("c", "a")]);
    let ask = |at: &str, mode: Option<&str>, acl: Option<&str>| {
        let mut request = vec![("action".into(), "test_acl".into()), ("path".into(), path(at))];
        request.extend(mode.map(|mode| ("mode".into(), mode.into())));
        request.extend(acl.map(|acl| ("acl".into(), acl.into())));
        Value::Map(request)
    };
    assert_eq!(user.ok(ask("a", None, None))["access"].as_str(), Some("rxa"));
    for at in ["a.b", "z", "c.d.e", ":n.auth"] {
        assert_eq!(user.ok(ask(at, Some("r"), None))["access"].as_bool(), Some(false), "{at}");
    }
    // Its own list a user may ask by name, with a letter; of any other one it learns nothing, not even whether it is there.
    for (at, mode, may) in
        [("a.b", "xr", true), ("a", "w", false), ("a", "q", false), ("z", "r", false)]
    {
        let reply = user.ok(ask(at, Some(mode), Some("joe")));
        assert_eq!(reply["access"].as_bool(), Some(may), "{mode} at {at}");
    }
    let letters = user.ok(ask("a", Some("r"), Some("joe")))["access"].clone();
    assert_eq!(letters.as_str(), Some("rxa"));
    assert_eq!(user.code(ask(":n.auth", None, Some("joe"))), "bad_request");
    let other = Some("other");
    place.record("ann", "operator");
    let mut operator = place.login("ann", 0);
    for client in [&mut user, &mut operator] {
        for at in ["a", "a.hidden", "z"] {
            for mode in [Some("r"), Some("W"), None] {
                let mut refused = |acl: &str| {
                    let reply = client.request(ask(at, mode, Some(acl)));
                    let error = text(&reply, "error").replace(acl, "NAME");
                    (text(&reply, "code").to_owned(), error, fields(&reply).len())
                };
                let (there, not_there) = (refused("other"), refused("none"));
                assert_eq!(there.0, "not_found", "{mode:?} at {at}");
                assert_eq!(there, not_there, "{mode:?} at {at}");
            }
        }
        assert_eq!(client.code(ask(":n.auth", None, other)), "bad_request");
    }
    assert_eq!(place.admin.ok(ask("a", Some("w"), None))["access"].as_bool(), Some(true));
    for (at, mode, may) in
        [("a", "w", false), ("a", "r", true), ("a.b", "xr", true), ("z", "r", false)]
    {
        let reply = place.admin.ok(ask(at, Some(mode), other));
        assert_eq!(reply["access"].as_bool(), Some(may), "{mode} at {at}");
    }
    assert_eq!(place.admin.code(ask("a", None, Some("none"))), "not_found");
}

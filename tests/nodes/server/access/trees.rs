//! `get_tree` and `enum` of parts that a user may not see; type checks, which all may.

use super::{Place, at, entries, numbers};
use crate::harness::{Value, array, path};

#[test]
fn siblings_and_forbidden_subtrees_are_not_in_a_tree() {
    let mut place = Place::new();
    for (n, at) in ["a", "a.open", "a.open.x", "a.shut", "a.shut.x", "b.x"].iter().enumerate() {
        place.admin.set(at, n as i64);
    }
    let lists = [("a", "rxe"), ("a.open.#", "r"), ("a.open", "rxe"), ("a.shut.x", "r")];
    let mut user = place.user("joe", &lists);
    let tree = user.stream(map! {"action": "get_tree", "path": path("a")});
    // The way to `a.shut.x` may be passed, but not be listed.
    assert_eq!(entries(&tree), numbers(&[(":", 0), ("open", 1), ("open.x", 2)]));
    assert_eq!(user.get("a.shut.x"), Some(4.into()));
    let list = |empty: bool| map! {"action": "enum", "path": path("a"), "empty": empty};
    assert_eq!(user.ok(list(false))["result"], array(["open"]));
    // It leads to something: but not what it is itself.
    assert_eq!(user.ok(list(true))["result"], array(["open", "shut"]));
    let with_data = map! {"action": "enum", "path": path("a"), "empty": true, "with_data": true};
    assert_eq!(user.ok(with_data)["result"], map! {"open": 1, "shut": Value::Nil});
    for at in [":", "b", "a.shut", "a.shut.x"] {
        assert_eq!(user.code(map! {"action": "get_tree", "path": path(at)}), "denied", "{at}");
        assert_eq!(user.code(map! {"action": "enum", "path": path(at)}), "denied", "{at}");
        let why = user.error(map! {"action": "get_tree", "path": path(at)});
        assert!(why["error"].as_str().unwrap().contains("letter e at the path itself"), "{why}");
    }
    // The way there is what is closed.
    let why = user.error(map! {"action": "get_tree", "path": path("q.r")});
    assert!(!why["error"].as_str().unwrap().contains("letter e"), "{why}");
}

#[test]
fn who_may_list_the_root_sees_what_the_list_allows_and_no_other_name() {
    let mut place = Place::new();
    for at in ["site.lamp", "private.plans", "other"] {
        place.admin.set(at, 1);
    }
    let lists = [(":", "xen"), ("site", "xen"), ("site.#", "rwcdxen")];
    let mut user = place.user("joe", &lists);
    let tree = user.stream(map! {"action": "get_tree", "path": path(":"), "empty": true});
    let paths: Vec<_> = entries(&tree).into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, [at(":"), at("site"), at("site.lamp")]);
    let names = map! {"action": "enum", "path": path(":"), "empty": true};
    assert_eq!(user.ok(names)["result"], array(["site"]));
}

#[test]
fn a_tree_with_empty_places_has_no_trace_of_what_is_hidden() {
    let mut place = Place::new();
    place.admin.set("a.b.shut.deep", 1);
    place.admin.set("a.b.open.deep", 2);
    place.admin.set("a.shut.deep", 3);
    let mut user =
        place.user("joe", &[("a.#", "rxe"), ("a.b.shut.#", ""), ("a.shut.#", "xe"), ("a", "xe")]);
    let seen = user.stream(map! {"action": "get_tree", "path": path("a"), "empty": true});
    let paths: Vec<_> = entries(&seen).into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, [at(":"), at("b"), at("b.open"), at("b.open.deep")]);
    let tock =
        place.admin.ok(map! {"action": "get_value", "path": path("a.b.open.deep"), "nchain": 1});
    // Nor when it was changed.
    assert!(seen.iter().all(|message| message["tock"] == tock["tock"]), "{seen:?}");
}

#[test]
fn the_deepest_paths_and_all_kinds_of_elements_are_told_apart() {
    let mut place = Place::new();
    let deep = vec!["d"; 64].join(".");
    let twins = ["e:1", "e:t", "e:1.0", "e.1", "e.+", "e.#"];
    place.admin.set(&deep, 7);
    for (n, at) in twins.iter().enumerate() {
        place.admin.set(at, n as i64);
    }
    // A pattern has no more room than a path, and stands below its list's name.
    let pattern = [vec!["d"; 60].join("."), "#".into()].join(".");
    let mut user = place.user("joe", &[("#", "xe"), ("e:t", "r"), (&pattern, "rxe")]);
    let tree = user.stream(map! {"action": "get_tree", "path": path("e")});
    assert_eq!(entries(&tree), numbers(&[(":t", 1)]));
    let tree = user.stream(map! {"action": "get_tree", "path": path("d")});
    assert_eq!(entries(&tree).len(), 1);
    assert_eq!(user.get(&deep), Some(7.into()));
}

#[test]
fn users_read_type_checks_and_shard_preferences_and_nothing_else_below_nil() {
    let place = Place::new();
    place.put(":n.type.int", Some(map! {"schema": map! {"type": "integer"}}));
    place.put(":n.match.a", Some(map! {"type": "int"}));
    place.put(":n.shards:5", Some("n1".into()));
    let mut user = place.user("joe", &[("#", "rwcdxena"), (":", "rwcdxena")]);
    for at in ["type.int", "match.a", "shards:5"] {
        user.ok(map! {"action": "get_internal", "path": path(at)});
    }
    let types = user.stream(map! {"action": "get_tree_internal", "path": path("type")});
    assert_eq!(types.len(), 1);
    let list = user.ok(map! {"action": "enum_internal", "path": path("match")});
    assert_eq!(list["result"], array(["a"]));
    for at in ["auth", "auth.password.user.joe", "acl.joe", "acl", ":"] {
        for action in ["get_internal", "get_tree_internal", "enum_internal"] {
            let request = map! {"action": action, "path": path(at)};
            assert_eq!(user.code(request), "denied", "{action} of {at}");
        }
    }
    // By way of paths that begin with nil, or of a root there, it is the same.
    for at in [":n.auth", ":n.auth.password.user.joe", ":n.acl.joe.#"] {
        assert_eq!(user.code(map! {"action": "get_value", "path": path(at)}), "denied");
        assert_eq!(user.code(map! {"action": "watch", "path": path(at)}), "denied");
        assert_eq!(user.code(map! {"action": "root", "path": path(at)}), "denied");
    }
    let write = map! {"action": "set_internal", "path": path("type.int"), "value": 1};
    assert_eq!(user.code(write), "denied");
    // Not even the tree of everything has it.
    assert!(user.stream(map! {"action": "get_tree", "path": path(":")}).is_empty());
}

//! What changes of users, lists and logins do to those who are connected.

use distkv::engine::Engine;

use super::sides::{elsewhere, heal, serve, steal};
use super::{admin, get, last_error, limited, logged_in, login, password, pattern, secured};
use crate::harness::{Node, Value, array, has, path, text};

#[test]
fn who_is_removed_is_closed_whatever_it_is_doing_and_is_told_why() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "*"));
    admin.ok(limited("amy", "test123", "*"));
    let mut idle = logged_in(&node, "password", "joe", "test123");
    let mut watcher = logged_in(&node, "password", "joe", "test123");
    let mut amy = logged_in(&node, "password", "amy", "test123");
    let watch = watcher.start(map! {"action": "watch", "path": path("a")});
    assert_eq!(text(&watcher.reply(watch), "state"), "start");
    admin.ok(map! {"action": "auth_delete", "typ": "password", "ident": "joe"});
    admin.set("a.b", 1);
    for client in [&mut idle, &mut watcher] {
        let error = last_error(client);
        assert_eq!(text(&error, "code"), "auth_required");
        assert!(text(&error, "error").contains("\"joe\""), "{error}");
    }
    amy.set("c", 1);
    // The same of one that the original's tools delete.
    admin.ok(map! {"action": "delete_internal", "path": path("auth.password.user.amy")});
    assert_eq!(text(&last_error(&mut amy), "code"), "auth_required");
}

#[test]
fn who_loses_its_list_may_do_nothing_with_data_and_stays_connected() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "pub"));
    admin.ok(pattern("pub", "#", "rwcdxen"));
    admin.ok(pattern("pub", "a", "rwcdxen"));
    let mut joe = logged_in(&node, "password", "joe", "test123");
    joe.set("a", 1);
    admin.ok(map! {"action": "delete_internal", "path": path("auth.password.user.joe.acl")});
    assert_eq!(joe.code(get("a")), "denied");
    joe.ok(map! {"action": "get_tock"});
    admin.ok(map! {"action": "auth_set", "typ": "password", "ident": "joe", "acl": "pub"});
    assert_eq!(joe.get("a"), Some(1.into()));
    admin.ok(pattern("pub", "a", "w"));
    assert_eq!(joe.code(get("a")), "denied");
}

#[test]
fn who_is_demoted_in_the_middle_of_a_batch_is_refused_the_rest_of_it() {
    let node = secured();
    admin(&node).ok(password("joe", "test123"));
    let mut joe = logged_in(&node, "password", "joe", "test123");
    let acl = path("auth.password.user.joe.acl");
    let ops = Value::Array(vec![
        map! {"action": "set_value", "path": path("a"), "value": 1},
        map! {"action": "set_internal", "path": acl, "value": map! {"key": "none"}},
        map! {"action": "set_value", "path": path("b"), "value": 1},
        map! {"action": "get_value", "path": path("a")},
        map! {"action": "set_internal", "path": path("acl.none.#"), "value": "r"},
    ]);
    let results = joe.ok(map! {"action": "batch", "ops": ops})["results"].clone();
    let results = results.as_array().unwrap();
    assert_eq!(results.len(), 5);
    for (at, is_denied) in [false, false, true, true, true].into_iter().enumerate() {
        assert_eq!(results[at]["code"].as_str() == Some("denied"), is_denied, "{at}: {results:?}");
    }
    assert!(node.hub.read(|engine| engine.get(b"\xa1b").is_none()));
}

#[test]
fn requests_that_were_sent_before_a_demotion_and_arrive_behind_it_are_refused() {
    let node = secured();
    admin(&node).ok(password("joe", "test123"));
    let mut joe = logged_in(&node, "password", "joe", "test123");
    let acl = path("auth.password.user.joe.acl");
    let demote =
        joe.start(map! {"action": "set_internal", "path": acl, "value": map! {"key": "none"}});
    let behind: Vec<u64> = (0..50)
        .map(|n| {
            joe.start(map! {"action": "set_value", "path": path(&format!("x:{n}")), "value": n})
        })
        .collect();
    assert!(!has(&joe.reply(demote), "error"));
    for seq in behind {
        assert_eq!(text(&joe.reply(seq), "code"), "denied");
    }
}

#[test]
fn connections_without_a_login_end_when_one_is_needed_and_the_one_that_said_so_gets_its_reply() {
    let node = Node::found("n1");
    let (mut idle, mut busy, mut client) = (node.connect(), node.connect(), node.connect());
    busy.set("a", 1);
    client.ok(map! {"action": "auth_set", "typ": "root", "ident": "*", "chain": Value::Nil});
    let mut known = node.connect();
    known.stream(map! {"action": "auth", "typ": "root", "ident": "*"});
    let reply = client.ok(map! {"action": "set_auth_typ", "typ": "root"});
    assert_eq!(reply["changed"].as_bool(), Some(true));
    assert!(client.receive().is_none(), "no error follows");
    for client in [&mut idle, &mut busy] {
        assert!(text(&last_error(client), "error").contains(":n.auth"));
    }
    // Who had logged in before stays.
    known.set("a", 2);
}

/// By a slip anybody could lock out everybody, for ever: an open node takes all that it is told.
#[test]
fn no_client_writes_a_method_by_which_nobody_can_log_in() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let at = || path(":n.auth");
    let stored = |value: Value| map! {"action": "update", "path": at(), "value": value, "tock": 99};
    for wrong in
        [Value::from(5), array(["password"]), map! {"current": 5}, map! {"current": "pasword"}]
    {
        let set = map! {"action": "set_value", "path": at(), "value": wrong.clone()};
        for request in [set, stored(wrong)] {
            let refused = client.error(request.clone());
            assert_eq!(text(&refused, "code"), "bad_request", "{request}: {refused}");
        }
    }
    client.set("others", 1);
    let mut other = node.connect();
    other.set("others", 2);
    // What switches logins off, or changes nothing, is taken as before.
    for right in [map! {"current": Value::Nil}, map! {}, Value::Nil] {
        client.ok(map! {"action": "set_value", "path": at(), "value": right});
    }
}

#[test]
fn users_of_a_method_that_is_not_in_force_any_more_are_closed_on_an_open_node() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.ok(map! {"action": "auth_set", "typ": "root", "ident": "*", "chain": Value::Nil});
    client.ok(password("joe", "test123"));
    client.ok(map! {"action": "set_auth_typ", "typ": "root"});
    let mut root = node.connect();
    root.stream(map! {"action": "auth", "typ": "root", "ident": "*"});
    let mut other = node.connect();
    other.stream(map! {"action": "auth", "typ": "root", "ident": "*"});
    root.ok(map! {"action": "set_auth_typ", "typ": "password"});
    assert!(root.receive().is_none());
    assert!(text(&last_error(&mut other), "error").contains("by this method"));
    logged_in(&node, "password", "joe", "test123").set("a", 1);
}

#[test]
fn a_removal_wins_over_a_password_change_that_did_not_know_of_it() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "*"));
    let other = elsewhere(&node);
    let cut_off = serve(other);
    admin.ok(map! {"action": "auth_delete", "typ": "password", "ident": "joe"});
    // There, joe is a user still, and takes a new password, later.
    let mut joe = logged_in(&cut_off, "password", "joe", "test123");
    for n in 0..5 {
        joe.set("x", n);
    }
    joe.ok(password("joe", "test124"));
    heal(&cut_off.hub, &node.hub);
    heal(&node.hub, &cut_off.hub);
    for side in [&node, &cut_off] {
        for secret in ["test123", "test124"] {
            assert_eq!(side.connect().code(login("password", "joe", secret)), "auth_failed");
        }
    }
    assert_eq!(text(&last_error(&mut joe), "code"), "auth_required");
}

#[test]
fn of_a_change_of_a_user_and_its_own_at_a_node_that_is_cut_off_the_greater_tock_counts() {
    let node = secured();
    let mut admin = admin(&node);
    let joe = |secret: &str, role: &str| {
        map! {
            "action": "auth_set", "typ": "password", "ident": "joe", "secret": secret, "acl": "*",
            "role": role,
        }
    };
    admin.ok(joe("test123", "operator"));
    let cut_off = serve(elsewhere(&node));
    steal(&cut_off, "test123");
    // Later, but on the side on which less was changed.
    admin.ok(joe("new12345", "user"));
    let before = node.hub.read(Engine::counters).conflicts;
    heal(&cut_off.hub, &node.hub);
    // So a secret that was stolen, and a role, are taken away by removing the user.
    assert_eq!(node.connect().code(login("password", "joe", "new12345")), "auth_failed");
    let mut thief = logged_in(&node, "password", "joe", "stolen12");
    assert_eq!(thief.ok(map! {"action": "auth_info"})["role"].as_str(), Some("operator"));
    assert_eq!(node.hub.read(Engine::counters).conflicts, before + 1);
}

#[test]
fn a_change_of_a_list_counts_where_it_has_come_and_not_before() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "lamps"));
    admin.ok(pattern("lamps", "lamp", "rwc"));
    let cut_off = serve(elsewhere(&node));
    admin.ok(pattern("lamps", "lamp", "r"));
    let mut here = logged_in(&node, "password", "joe", "test123");
    let mut there = logged_in(&cut_off, "password", "joe", "test123");
    let set = || map! {"action": "set_value", "path": path("lamp"), "value": 1};
    assert_eq!(here.code(set()), "denied");
    there.ok(set());
    heal(&node.hub, &cut_off.hub);
    assert_eq!(there.code(set()), "denied");
    // What was written there meanwhile stays.
    heal(&cut_off.hub, &node.hub);
    assert_eq!(here.get("lamp"), Some(1.into()));
}

#[test]
fn what_a_removed_user_writes_at_a_node_that_is_cut_off_stays() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "*"));
    admin.set("lamp", "of admin");
    let cut_off = serve(elsewhere(&node));
    let mut joe = logged_in(&cut_off, "password", "joe", "test123");
    admin.ok(map! {"action": "auth_delete", "typ": "password", "ident": "joe"});
    assert_eq!(node.connect().code(login("password", "joe", "test123")), "auth_failed");
    // Nobody has told this node: joe goes on, and gets in anew.
    joe.set("lamp", "of joe");
    logged_in(&cut_off, "password", "joe", "test123").set("other", "of joe");
    heal(&node.hub, &cut_off.hub);
    heal(&cut_off.hub, &node.hub);
    assert_eq!(text(&last_error(&mut joe), "code"), "auth_required");
    assert_eq!(cut_off.connect().code(login("password", "joe", "test123")), "auth_failed");
    // What was written is not taken back: the greater tock wins, whoever made it.
    assert_eq!(admin.get("lamp"), Some("of joe".into()));
    assert_eq!(admin.get("other"), Some("of joe".into()));
}

#[test]
fn of_changes_of_one_list_on_two_sides_one_is_lost_and_that_is_reported() {
    let node = secured();
    let mut here = admin(&node);
    here.ok(limited("joe", "test123", "lamps"));
    here.ok(pattern("lamps", "lamp", "r"));
    let cut_off = serve(elsewhere(&node));
    let mut there = admin(&cut_off);
    // Here joe is shut out; there, knowing nothing of that, he gets more.
    here.ok(pattern("lamps", "lamp", ""));
    for letters in ["rw", "rwc"] {
        there.ok(pattern("lamps", "lamp", letters));
    }
    let before = node.hub.read(Engine::counters).conflicts;
    heal(&cut_off.hub, &node.hub);
    heal(&node.hub, &cut_off.hub);
    for side in [&node, &cut_off] {
        let mut joe = logged_in(side, "password", "joe", "test123");
        joe.ok(map! {"action": "set_value", "path": path("lamp"), "value": 1});
    }
    assert_eq!(node.hub.read(Engine::counters).conflicts, before + 1);
}

/// Each pattern is an entry of its own, so there is nothing of which one could be lost.
#[test]
fn changes_of_different_patterns_of_one_list_on_two_sides_are_merged_without_a_report() {
    let node = secured();
    let mut here = admin(&node);
    here.ok(limited("joe", "test123", "plant"));
    for (at, letters) in [("plant", "xen"), ("plant.#", "rwcdxen")] {
        here.ok(pattern("plant", at, letters));
    }
    let cut_off = serve(elsewhere(&node));
    here.ok(pattern("plant", "plant.#", "r"));
    let mut there = admin(&cut_off);
    for (at, letters) in [("plant.door", "xen"), ("plant.door.#", "rwcdxen")] {
        there.ok(pattern("plant", at, letters));
    }
    let before = node.hub.read(Engine::counters).conflicts;
    heal(&cut_off.hub, &node.hub);
    heal(&node.hub, &cut_off.hub);
    for side in [&node, &cut_off] {
        let mut joe = logged_in(side, "password", "joe", "test123");
        let set = |at| map! {"action": "set_value", "path": path(at), "value": 1};
        assert_eq!(joe.code(set("plant.lamp")), "denied", "what was tightened");
        // What was loosened beside it.
        joe.ok(set("plant.door.x"));
        assert_eq!(side.hub.read(Engine::counters).conflicts, before);
    }
}

#[test]
fn a_user_who_was_made_on_the_other_side_cannot_log_in_before_that_has_come() {
    let node = secured();
    let cut_off = serve(elsewhere(&node));
    admin(&node).ok(limited("joe", "test123", "*"));
    assert_eq!(cut_off.connect().code(login("password", "joe", "test123")), "auth_failed");
    heal(&node.hub, &cut_off.hub);
    logged_in(&cut_off, "password", "joe", "test123").set("a", 1);
}

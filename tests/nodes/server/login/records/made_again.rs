//! Users who are removed and made again, while others have not heard of it.

use crate::harness::{Client, Value, has, path, text};
use crate::server::login::sides::{elsewhere, heal, serve, steal};
use crate::server::login::{admin, get, last_error, limited, logged_in, login, password, secured};

#[test]
fn who_was_removed_and_made_again_is_not_logged_in_by_a_secret_that_did_not_know_of_it() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "*"));
    let cut_off = serve(elsewhere(&node));
    let mut thief = steal(&cut_off, "test123");
    admin.ok(map! {"action": "auth_delete", "typ": "password", "ident": "joe"});
    admin.ok(limited("joe", "new12345", "*"));
    logged_in(&node, "password", "joe", "new12345").set("a", 1);
    heal(&cut_off.hub, &node.hub);
    heal(&node.hub, &cut_off.hub);
    assert_eq!(text(&last_error(&mut thief), "code"), "auth_required");
    for side in [&node, &cut_off] {
        for secret in ["test123", "stolen12"] {
            assert_eq!(side.connect().code(login("password", "joe", secret)), "auth_failed");
        }
    }
    let warnings = admin.ok(map! {"action": "status"})["warnings"].to_string();
    assert!(warnings.contains("was removed, and somebody who did not know of it"), "{warnings}");
    // A list alone does not bring a stolen secret back. Another one makes the user anew, at both.
    let list = map! {"action": "auth_set", "typ": "password", "ident": "joe", "acl": "*"};
    assert_eq!(admin.code(list), "bad_request");
    admin.ok(limited("joe", "last1234", "*"));
    heal(&node.hub, &cut_off.hub);
    for side in [&node, &cut_off] {
        logged_in(side, "password", "joe", "last1234").set("a", 2);
        assert_eq!(side.connect().code(login("password", "joe", "stolen12")), "auth_failed");
    }
    // What the user changes from then on is as good as ever, and so is another removal.
    let mut joe = logged_in(&cut_off, "password", "joe", "last1234");
    joe.ok(password("joe", "own12345"));
    heal(&cut_off.hub, &node.hub);
    logged_in(&node, "password", "joe", "own12345").set("a", 3);
    admin.ok(map! {"action": "auth_delete", "typ": "password", "ident": "joe"});
    joe.ok(password("joe", "own23456"));
    heal(&cut_off.hub, &node.hub);
    assert_eq!(node.connect().code(login("password", "joe", "own23456")), "auth_failed");
}

#[test]
fn a_record_that_is_not_in_force_is_no_user_whoever_is_made_anew_or_removed() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "*"));
    let cut_off = serve(elsewhere(&node));
    let remove = || map! {"action": "auth_delete", "typ": "password", "ident": "joe"};
    let with = |chain: Value, secret: &str| {
        map! {
            "action": "auth_set", "typ": "password", "ident": "joe", "secret": secret, "acl": "*",
            "chain": chain,
        }
    };
    for secret in ["test123", "stolen12"] {
        steal(&cut_off, secret);
        admin.ok(remove());
        heal(&cut_off.hub, &node.hub);
        let told = |admin: &mut Client| {
            let warnings = admin.ok(map! {"action": "status"})["warnings"].to_string();
            warnings.contains(
                "somebody who did not know of it, or a node of an older version, changed the user",
            )
        };
        assert!(told(&mut admin));
        // Who changes joe, and has not heard that joe was removed, does not make one.
        let record = map! {
            "action": "get_internal", "path": path("auth.password.user.joe"), "nchain": 1,
        };
        let chain = admin.ok(record)["chain"].clone();
        assert!(!chain.is_nil());
        assert_eq!(admin.code(with(chain, "new12345")), "is_new");
        // One of the two that `status` advises.
        admin.ok(remove());
        assert!(!told(&mut admin));
        assert_eq!(admin.code(remove()), "not_found");
        // The other.
        heal(&node.hub, &cut_off.hub);
        admin.ok(with(Value::Nil, "test123"));
        heal(&node.hub, &cut_off.hub);
        steal(&cut_off, "test123");
        admin.ok(remove());
        heal(&cut_off.hub, &node.hub);
        assert!(told(&mut admin));
        let made = admin.ok(with(Value::Nil, "new12345"));
        assert!(!told(&mut admin));
        logged_in(&node, "password", "joe", "new12345").set("a", 1);
        assert_eq!(node.connect().code(login("password", "joe", "stolen12")), "auth_failed");
        assert_eq!(admin.code(with(Value::Nil, "other123")), "already_exists");
        admin.ok(with(made["chain"].clone(), "stolen12"));
        heal(&node.hub, &cut_off.hub);
    }
}

#[test]
fn who_is_made_again_gets_nothing_from_a_record_that_did_not_know_of_the_removal() {
    let node = secured();
    let mut admin = admin(&node);
    let made = map! {
        "action": "auth_set", "typ": "password", "ident": "joe", "secret": "test123",
        "acl": "*", "role": "operator",
    };
    admin.ok(made);
    let cut_off = serve(elsewhere(&node));
    steal(&cut_off, "test123");
    admin.ok(map! {"action": "auth_delete", "typ": "password", "ident": "joe"});
    heal(&cut_off.hub, &node.hub);
    admin.ok(limited("joe", "new12345", "*"));
    let joe = logged_in(&node, "password", "joe", "new12345").ok(map! {"action": "auth_info"});
    assert_eq!(joe["role"].as_str(), Some("user"));
}

#[test]
fn who_is_made_again_without_a_list_has_none_that_was_given_where_the_removal_was_not_known() {
    let node = secured();
    let mut boss = admin(&node);
    boss.ok(limited("joe", "test123", "*"));
    let cut_off = serve(elsewhere(&node));
    boss.ok(map! {"action": "auth_delete", "typ": "password", "ident": "joe"});
    let mut other = admin(&cut_off);
    for list in ["-", "*"] {
        other.ok(map! {"action": "auth_set", "typ": "password", "ident": "joe", "acl": list});
    }
    heal(&cut_off.hub, &node.hub);
    boss.ok(map! {
        "action": "auth_set", "typ": "password", "ident": "joe", "secret": "new12345", "role": "user",
    });
    let mut joe = logged_in(&node, "password", "joe", "new12345");
    assert!(!has(&joe.ok(map! {"action": "auth_info"}), "acl"));
    assert_eq!(joe.code(get("a")), "denied");
}

#[test]
fn a_user_whose_record_was_deleted_by_the_originals_tools_stays_removed_in_a_split() {
    for delete in [
        map! {"action": "delete_internal", "path": path("auth.password.user.joe")},
        map! {"action": "delete_tree", "path": path(":n.auth.password.user.joe")},
    ] {
        let node = secured();
        let mut admin = admin(&node);
        admin.ok(limited("joe", "test123", "*"));
        let cut_off = serve(elsewhere(&node));
        steal(&cut_off, "test123");
        admin.ok(delete);
        heal(&cut_off.hub, &node.hub);
        assert_eq!(node.connect().code(login("password", "joe", "stolen12")), "auth_failed");
        admin.ok(limited("joe", "new12345", "*"));
        logged_in(&node, "password", "joe", "new12345").set("a", 1);
    }
}

/// Who is logged in as another user than the one of that name who is there now.
#[test]
fn a_connection_of_who_was_removed_and_made_again_ends_also_where_both_are_heard_of_at_once() {
    let node = secured();
    let mut admin = admin(&node);
    let cut_off = serve(elsewhere(&node));
    let token = |secret: &str| {
        map! {
            "action": "auth_set", "typ": "token", "ident": "panel", "secret": secret, "acl": "*",
        }
    };
    let secrets: Vec<String> = (0..3).map(|n| format!("{n}").repeat(32)).collect();
    admin.ok(limited("joe", &secrets[0], "*"));
    admin.ok(token(&secrets[0]));
    heal(&node.hub, &cut_off.hub);
    // The second time, the user who is removed was made again before.
    for pair in secrets.windows(2) {
        let (old, new) = (&pair[0], &pair[1]);
        let mut thieves: Vec<Client> = [("password", "joe"), ("token", "panel")]
            .into_iter()
            .flat_map(|(method, user)| {
                let idle = logged_in(&cut_off, method, user, old);
                let mut watcher = logged_in(&cut_off, method, user, old);
                let watch = watcher.start(map! {"action": "watch", "path": path("a")});
                assert_eq!(text(&watcher.reply(watch), "state"), "start");
                [idle, watcher]
            })
            .collect();
        for (method, user) in [("password", "joe"), ("token", "panel")] {
            admin.ok(map! {"action": "auth_delete", "typ": method, "ident": user});
        }
        admin.ok(limited("joe", new, "*"));
        admin.ok(token(new));
        heal(&node.hub, &cut_off.hub);
        for thief in &mut thieves {
            assert_eq!(text(&last_error(thief), "code"), "auth_required");
        }
    }
    // Who has another secret, role or list is the same user, and stays connected.
    let mut joe = logged_in(&cut_off, "password", "joe", &secrets[2]);
    admin.ok(limited("joe", "other123", "*"));
    admin.ok(limited("joe", "other234", "some"));
    heal(&node.hub, &cut_off.hub);
    joe.ok(map! {"action": "get_tock"});
    assert_eq!(joe.code(get("a")), "denied");
}

#[test]
fn a_removal_wins_over_a_new_user_of_that_name_who_was_made_where_it_was_not_known() {
    let remove = || map! {"action": "auth_delete", "typ": "password", "ident": "joe"};
    let removals = |admin: &mut Client| {
        let below = path("auth.revoked.password.joe");
        let names = admin.ok(map! {"action": "enum_internal", "path": below})["result"].clone();
        names.as_array().unwrap().len()
    };
    // Whichever is the later one.
    for (here_first, there_first) in [(0, 20), (20, 0)] {
        let node = secured();
        let mut here = admin(&node);
        here.ok(limited("joe", "test123", "*"));
        let cut_off = serve(elsewhere(&node));
        let mut there = admin(&cut_off);
        for (admin, count) in [(&mut here, here_first), (&mut there, there_first)] {
            for n in 0..count {
                admin.set("x", n);
            }
        }
        here.ok(remove());
        there.ok(remove());
        there.ok(limited("joe", "new12345", "*"));
        assert_eq!(removals(&mut there), 0);
        let mut joe = logged_in(&cut_off, "password", "joe", "new12345");
        heal(&cut_off.hub, &node.hub);
        heal(&node.hub, &cut_off.hub);
        assert_eq!(text(&last_error(&mut joe), "code"), "auth_required");
        for side in [&node, &cut_off] {
            for secret in ["test123", "new12345"] {
                assert_eq!(side.connect().code(login("password", "joe", secret)), "auth_failed");
            }
        }
        let warnings = here.ok(map! {"action": "status"})["warnings"].to_string();
        let is_left = there_first > here_first;
        assert_eq!(warnings.contains("changed the user or made it again"), is_left, "{warnings}");
        // Who is removed once more is removed once; who is made again, now that all know of it, is there.
        if is_left {
            here.ok(remove());
        }
        assert_eq!(removals(&mut here), 1);
        here.ok(limited("joe", "last1234", "*"));
        assert_eq!(removals(&mut here), 0);
        heal(&node.hub, &cut_off.hub);
        for side in [&node, &cut_off] {
            logged_in(side, "password", "joe", "last1234").set("a", 1);
        }
    }
}

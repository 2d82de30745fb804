//! What a change of an entry, as of any data, may not do to users and logins: a record's secret is shown to nobody, so
//! whoever stores a record again wipes it.

use distkv::model::path::Path;
use distkv::replica::write::Write;

use crate::harness::{Client, Node, Value, array, path, text};
use crate::server::login::{admin, logged_in, password, secured};

/// The same change by each action that stores a value.
fn stored(at: &str, value: &Value) -> Vec<Value> {
    let below = at.strip_prefix(":n.").unwrap();
    let set = || map! {"action": "set_value", "path": path(at), "value": value.clone()};
    vec![
        set(),
        map! {"action": "set_internal", "path": path(below), "value": value.clone()},
        map! {"action": "set_internal", "path": path(below), "value": value.clone(), "chain": Value::Nil},
        map! {"action": "set_value", "path": path(at), "value": value.clone(), "idem": true},
        map! {"action": "update", "path": path(at), "value": value.clone(), "tock": 1_000_000},
        map! {"action": "batch", "ops": array([set()])},
    ]
}

/// The same deletion by each action.
fn deleted(at: &str) -> Vec<Value> {
    let below = at.strip_prefix(":n.").unwrap();
    let delete = || map! {"action": "delete_internal", "path": path(below)};
    vec![
        delete(),
        map! {"action": "delete_value", "path": path(at)},
        map! {"action": "update", "path": path(at), "tock": 1_000_000},
        map! {"action": "delete_tree", "path": path(at)},
        map! {"action": "delete_tree", "path": path(at), "nchain": 1},
        map! {"action": "batch", "ops": array([delete()])},
    ]
}

/// The error of a request, or of the only operation of a batch.
fn refused(client: &mut Client, request: &Value) -> Value {
    if text(request, "action") == "batch" {
        return client.ok(request.clone())["results"][0].clone();
    }
    client.error(request.clone())
}

/// Each is refused, and says how it is done instead.
fn assert_refused(client: &mut Client, requests: &[Value], code: &str, says: &[&str]) {
    for request in requests {
        let error = refused(client, request);
        assert_eq!(text(&error, "code"), code, "{request}: {error}");
        for part in says.iter().copied().chain(["nothing was changed"]) {
            assert!(text(&error, "error").contains(part), "{request}: {part}: {error}");
        }
    }
}

#[test]
fn a_user_s_record_is_not_stored_as_an_entry_since_nobody_is_shown_its_secret() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(password("boss", "test123"));
    let user = || map! {"action": "auth_get", "typ": "password", "ident": "boss", "nchain": 1};
    let before = admin.ok(user());
    let commands = ["distkv-node user add", "user role", "user password", "user token"];
    for value in [map! {}, map! {"role": "admin"}, 1.into(), Value::Nil] {
        for at in [":n.auth.password.user.boss", ":n.auth.token.user.new"] {
            assert_refused(&mut admin, &stored(at, &value), "denied", &commands);
        }
    }
    let after = admin.ok(user());
    assert_eq!((&after["chain"], text(&after, "role")), (&before["chain"], "admin"));
    let new = map! {"action": "auth_get", "typ": "token", "ident": "new"};
    assert_eq!(admin.code(new), "not_found");
    logged_in(&node, "password", "boss", "test123").set("a", 1);
    // An access list's name is stored so, by the original's tools.
    let list = map! {"key": "none"};
    let at = path("auth.password.user.boss.acl");
    admin.ok(map! {"action": "set_internal", "path": at, "value": list});
    assert_eq!(text(&admin.ok(user()), "role"), "user");
}

#[test]
fn how_clients_log_in_is_not_changed_as_an_entry_whoever_there_is() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let commands = ["`distkv-node auth on METHOD`", "`distkv-node auth off`"];
    let on = map! {"current": "password"};
    let current = || node.hub.read(|engine| engine.login().map(|login| login.name().to_owned()));
    // Nobody could log in.
    assert_refused(&mut client, &stored(":n.auth", &on), "bad_request", &commands);
    // Nor is the client's own answer lost where somebody could.
    client.ok(password("boss", "test123"));
    assert_refused(&mut client, &stored(":n.auth", &on), "bad_request", &commands);
    assert_eq!(current(), None);
    client.set("a", 1);
    client.ok(map! {"action": "set_auth_typ", "typ": "password"});
    let mut boss = logged_in(&node, "password", "boss", "test123");
    // Nobody opens the network unasked, either.
    for value in [map! {"current": Value::Nil}, map! {}, Value::Nil, map! {"current": "root"}] {
        assert_refused(&mut boss, &stored(":n.auth", &value), "bad_request", &commands);
    }
    assert_refused(&mut boss, &deleted(":n.auth"), "bad_request", &commands);
    assert_eq!(current().as_deref(), Some("password"));
    // What says the same is taken.
    boss.ok(map! {"action": "set_value", "path": path(":n.auth"), "value": on});
    boss.ok(map! {"action": "set_auth_typ", "typ": Value::Nil});
    boss.ok(map! {"action": "delete_value", "path": path(":n.auth")});
}

#[test]
fn the_last_admin_who_can_log_in_is_not_deleted_as_an_entry() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.ok(password("boss", "test123"));
    client.ok(crate::server::login::limited("joe", "test123", "*"));
    let robot = map! {"action": "auth_set", "typ": "_test", "ident": "robot"};
    client.ok(robot);
    client.ok(map! {"action": "set_auth_typ", "typ": "password"});
    let mut boss = logged_in(&node, "password", "boss", "test123");
    let says = ["last admin", "distkv-node user role NAME admin", "distkv-node user remove"];
    assert_refused(&mut boss, &deleted(":n.auth.password.user.boss"), "bad_request", &says);
    for tree in [":n.auth.password", ":n.auth.password.user"] {
        let tree = map! {"action": "delete_tree", "path": path(tree)};
        assert_refused(&mut boss, &[tree], "bad_request", &says);
    }
    logged_in(&node, "password", "joe", "test123").set("a", 1);
    // Others may be, and this one as soon as there is another admin.
    boss.ok(map! {"action": "delete_internal", "path": path("auth._test.user.robot")});
    boss.ok(password("amy", "test123"));
    let mut amy = logged_in(&node, "password", "amy", "test123");
    amy.ok(map! {"action": "delete_internal", "path": path("auth.password.user.boss")});
    let one_more = map! {"action": "delete_internal", "path": path("auth.password.user.amy")};
    assert_refused(&mut amy, &[one_more], "bad_request", &says);
    // Where nobody needs to log in, or the key does it, there is nobody to keep.
    amy.ok(map! {"action": "set_auth_typ", "typ": Value::Nil});
    amy.ok(map! {"action": "delete_tree", "path": path(":n.auth")});
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(password("boss", "test123"));
    admin.ok(map! {"action": "set_auth_typ", "typ": "password"});
    admin.ok(map! {"action": "delete_internal", "path": path("auth.password.user.boss")});
}

/// Peers and files may have what clients may not store.
#[test]
fn what_is_there_already_can_be_deleted() {
    let node = secured();
    let mut admin = admin(&node);
    let at: Path = ":n.auth.password.user.odd".parse().unwrap();
    node.hub.write(Write::new(&at, Some(b"\x01")), false).0.unwrap();
    admin.ok(map! {"action": "delete_internal", "path": path("auth.password.user.odd")});
    assert!(node.hub.read(|engine| engine.get(at.as_bytes()).is_none_or(|e| e.is_tombstone())));
}

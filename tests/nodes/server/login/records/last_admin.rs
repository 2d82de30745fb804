//! Whoever may change users cannot leave a network that asks for logins without an admin by a slip, by whichever action.

use distkv::engine::{Config, Input};
use distkv::model::ids::{Incarnation, NodeId, NodeName};
use distkv::server::ServerConfig;

use crate::harness::{Client, Node, Value, array, path, text};
use crate::server::login::{admin, limited, logged_in, password, secured};

/// An open node where clients must log in; `boss` is its only admin who can, beside others who are none.
fn with_one_admin() -> (Node, Client) {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.ok(password("boss", "test123"));
    client.ok(limited("joe", "test123", "*"));
    // Admins by a method that is not in force.
    client.ok(map! {"action": "auth_set", "typ": "_test", "ident": "robot"});
    client.ok(map! {"action": "set_auth_typ", "typ": "password"});
    let boss = logged_in(&node, "password", "boss", "test123");
    (node, boss)
}

fn of_boss(action: &str, more: &[(&str, Value)]) -> Value {
    let of = map! {"action": action, "typ": "password", "kind": "user", "ident": "boss"};
    let Value::Map(mut fields) = of else { unreachable!("it is a map") };
    fields.extend(more.iter().map(|(name, value)| ((*name).into(), value.clone())));
    Value::Map(fields)
}

/// What is stored at a path by each action that does so.
fn stored(at: Value, value: &Value) -> Vec<Value> {
    let set = || map! {"action": "set_value", "path": at.clone(), "value": value.clone()};
    vec![
        set(),
        map! {"action": "set_value", "path": at.clone(), "value": value.clone(), "chain": Value::Nil},
        map! {"action": "update", "path": at.clone(), "value": value.clone(), "tock": 1_000_000},
        map! {"action": "batch", "ops": array([set()])},
    ]
}

/// Where a user's removal is stored by the nodes themselves.
fn removal_of(user: &str) -> Value {
    let names = ["auth", "revoked", "password", user].map(Value::from);
    array([&[Value::Nil][..], &names, &[Value::Binary(vec![7; 16])]].concat())
}

/// All that would take the last admin's rights away.
fn slips() -> Vec<Value> {
    let acl = path(":n.auth.password.user.boss.acl");
    let revoked = path(":n.auth.revoked.password.boss");
    [
        vec![
            of_boss("auth_delete", &[]),
            of_boss("auth_set", &[("role", "user".into())]),
            of_boss("auth_set", &[("role", "operator".into())]),
            of_boss("auth_set", &[("acl", "*".into())]),
            of_boss("auth_set", &[("acl", "-".into())]),
            of_boss("auth_set", &[("acl", "*".into()), ("secret", "another1".into())]),
            map! {"action": "set_auth_typ", "typ": "_late"},
        ],
        stored(acl.clone(), &map! {"key": "*"}),
        stored(acl, &Value::Nil),
        stored(revoked.clone(), &map! {}),
        stored(revoked, &map! {"again": Value::Binary(vec![1; 16])}),
        stored(removal_of("boss"), &map! {}),
    ]
    .concat()
}

/// The error of a request, or of the only operation of a batch.
fn refused(client: &mut Client, request: &Value) -> Value {
    if text(request, "action") == "batch" {
        return client.ok(request.clone())["results"][0].clone();
    }
    client.error(request.clone())
}

#[test]
fn the_last_admin_stays_one_whatever_a_client_does_to_users() {
    let (node, mut boss) = with_one_admin();
    // A method by which a user can log in, and no admin.
    boss.ok(map! {"action": "auth_set", "typ": "root", "ident": "*", "acl": "*"});
    let slips = slips().into_iter().map(|slip| match text(&slip, "action") {
        "set_auth_typ" => map! {"action": "set_auth_typ", "typ": "root"},
        _ => slip,
    });
    for slip in slips {
        let error = refused(&mut boss, &slip);
        assert_eq!(text(&error, "code"), "bad_request", "{slip}: {error}");
        for part in ["admin", "distkv-node user role NAME admin", "force", "nothing was changed"] {
            assert!(text(&error, "error").contains(part), "{slip}: {part}: {error}");
        }
    }
    boss.set("a", 1);
    let mut again = logged_in(&node, "password", "boss", "test123");
    assert_eq!(text(&again.ok(of_boss("auth_get", &[])), "role"), "admin");
    // What takes nothing away is taken.
    again.ok(of_boss("auth_set", &[("role", "admin".into())]));
    again.ok(map! {"action": "set_auth_typ", "typ": "password"});
    again.ok(password("boss", "another1"));
    again.ok(map! {"action": "auth_delete", "typ": "password", "ident": "joe"});
}

#[test]
fn the_last_admin_goes_where_that_is_said_to_be_meant_or_another_one_is_there() {
    let force = || ("force", Value::from(true));
    for meant in [
        of_boss("auth_delete", &[force()]),
        of_boss("auth_set", &[("role", "user".into()), force()]),
        of_boss("auth_set", &[("acl", "*".into()), force()]),
        map! {"action": "set_auth_typ", "typ": "_test", "force": true},
        map! {"action": "set_auth_typ", "typ": Value::Nil},
    ] {
        let (_node, mut boss) = with_one_admin();
        boss.ok(meant);
    }
    for slip in slips() {
        if text(&slip, "action") == "set_auth_typ" {
            continue;
        }
        let (node, mut boss) = with_one_admin();
        boss.ok(password("amy", "test123"));
        // Who is no admin any more has no answer.
        let mut amy = logged_in(&node, "password", "amy", "test123");
        let answer = amy.ok(slip.clone());
        assert!(!answer.to_string().contains("error"), "{slip}: {answer}");
    }
}

/// Nobody needs to log in yet, so everybody is an admin: nobody would be one.
#[test]
fn logins_are_not_switched_on_where_no_admin_could_log_in() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.ok(limited("joe", "test123", "*"));
    let on = |more: bool| map! {"action": "set_auth_typ", "typ": "password", "force": more};
    let error = client.error(on(false));
    assert!(text(&error, "error").contains("no admin can log in"), "{error}");
    assert_eq!(text(&error, "code"), "bad_request");
    client.set("a", 1);
    client.ok(on(true));
    // There is none to keep any more.
    let mut joe = logged_in(&node, "password", "joe", "test123");
    assert_eq!(joe.code(of_boss("auth_delete", &[])), "denied");
}

/// Whoever has the network's key is an admin, and the operator of a node that ignores logins can make one.
#[test]
fn where_somebody_is_always_an_admin_nobody_is_kept() {
    let with_key = secured();
    let mut admin = admin(&with_key);
    let id = NodeId { name: NodeName::new("n2").unwrap(), incarnation: Incarnation(1) };
    let engine = Config { ignore_auth: true, ..Config::new(id, 1) };
    let ignoring =
        Node::with(engine, ServerConfig { ignore_auth: true, ..ServerConfig::default() });
    ignoring.hub.handle(Input::Found, 0);
    for client in [&mut admin, &mut ignoring.connect()] {
        client.ok(limited("joe", "test123", "*"));
        client.ok(map! {"action": "set_auth_typ", "typ": "password"});
        client.ok(password("boss", "test123"));
        client.ok(of_boss("auth_set", &[("acl", "*".into())]));
        client.ok(of_boss("auth_delete", &[]));
    }
}

/// Two admins who are deleted by one request of many entries, and one after the other by two.
#[test]
fn of_admins_who_are_deleted_together_one_stays() {
    let (node, mut boss) = with_one_admin();
    boss.ok(password("amy", "test123"));
    let delete = |user: &str| {
        map! {"action": "delete_value", "path": path(&format!(":n.auth.password.user.{user}"))}
    };
    let done = boss.ok(map! {"action": "batch", "ops": array([delete("amy"), delete("boss")])});
    let codes: Vec<bool> =
        (0..2).map(|at| done["results"][at].to_string().contains("bad_request")).collect();
    assert_eq!(codes, [false, true], "{done}");
    let tree = map! {"action": "delete_tree", "path": path(":n.auth.password.user")};
    assert_eq!(boss.code(tree), "bad_request");
    logged_in(&node, "password", "boss", "test123").set("a", 1);
}

//! What each action says to sessions of each role, and to those that have not logged in, against a table written
//! apart from the code; and that the comparison misses none of the checks, if one is left out.

use distkv::protocol::client::Action;
use distkv::server::access::Identity;
use distkv::server::access::mistakes::Mistake;

use super::Place;
use crate::harness::{Client, Node, Value, path};

/// Who asks, the most powerful last.
const SESSIONS: [&str; 4] = ["nobody", "user", "operator", "admin"];

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    Login,
    Role,
}

/// Whom an action is for: an index of [`SESSIONS`]. Users may do `auth_set` for a new secret of their own only, and
/// `auth_disconnect` of themselves only.
fn least(action: &str) -> usize {
    match action {
        "auth" | "diffie_hellman" => 0,
        "get_value" | "set_value" | "delete_value" | "delete_tree" | "get_tree" | "enum"
        | "watch" | "batch" | "conflicts" | "msg_send" | "msg_monitor" | "root" | "stop"
        | "get_tock" | "cluster" | "watch_cluster" | "list_shards" | "check_deleted"
        | "test_acl" | "auth_info" => 1,
        "status" | "members" | "get_state" | "enum_node" => 2,
        _ => 3,
    }
}

/// A request that is refused only for who asks.
fn request(action: Action) -> Value {
    let name = action.name();
    let internal = || map! {"action": name, "path": path("auth.x")};
    match name {
        "delete_internal" | "get_internal" | "enum_internal" | "get_tree_internal" => internal(),
        "check_deleted" => map! {"action": name, "nodes": map! {}},
        "save" | "log" | "snapshot" | "log_start" => {
            map! {"action": name, "path": "x", "file": "x"}
        }
        "msg_send" => map! {"action": name, "topic": path("t"), "data": 1},
        "msg_monitor" => map! {"action": name, "topic": path("t")},
        "stop" => map! {"action": name, "task": 999},
        "batch" => map! {"action": name, "ops": Value::Array(Vec::new())},
        "get_value" | "delete_value" | "delete_tree" | "get_tree" | "enum" | "watch" | "root" => {
            map! {"action": name, "path": path("a")}
        }
        "history" => map! {"action": name, "path": path("a")},
        "test_acl" => map! {"action": name, "path": path("a")},
        "set_value" => map! {"action": name, "path": path("a"), "value": 1},
        "auth_set" => map! {
            "action": name, "typ": "password", "kind": "user", "ident": "joe", "role": "user",
        },
        "auth_get" | "auth_delete" | "auth_disconnect" => {
            map! {"action": name, "typ": "password", "kind": "user", "ident": "joe"}
        }
        "auth_list" => map! {"action": name, "typ": "password", "kind": "user"},
        "set_auth_typ" => map! {"action": name, "typ": "password"},
        "auth" => map! {"action": name, "typ": "password", "ident": "joe"},
        _ => map! {
            "action": name, "path": path("auth.x"), "value": 1, "node": "n9", "tick": 1, "tock": 9,
            "start": true, "data": Value::Binary(vec![1]), "prev": Value::Nil,
            "secret": Value::Binary(vec![7; 32]), "ident": "00000000",
        },
    }
}

/// What a session says to a request that it refuses for who asks; none if it does not.
fn refusal(client: &mut Client, request: Value) -> Option<Refusal> {
    let seq = client.start(request);
    let mut found = None;
    // An error within a stream comes behind the answer to what was asked meanwhile.
    for _ in 0..2 {
        let fence = client.start(map! {"action": "get_tock"});
        // A node that leaves, or wants a login, ends the connection.
        while let Some(message) = client.receive() {
            if message["seq"].as_u64() == Some(fence) {
                break;
            }
            if message["seq"].as_u64() != Some(seq) {
                continue;
            }
            let error = message["error"].as_str().unwrap_or_default();
            match message["code"].as_str() {
                Some("auth_required") => found = Some(Refusal::Login),
                // Other things are denied to everybody: this node has no directory, for one.
                Some("denied") if error.contains("needs the role") => found = Some(Refusal::Role),
                _ => {}
            }
        }
    }
    found
}

/// Asks for something as somebody, of a node that may leave a check out.
fn asked(who: &str, request: Value, mistake: Option<Mistake>) -> Option<Refusal> {
    let place = Place::of(Node::found("n1"));
    if let Some(mistake) = mistake {
        place.node.server.plant(mistake);
    }
    place.put("a.b", Some(1.into()));
    let mut client = match who {
        "nobody" => {
            place.node.server.assume(Identity::Unknown);
            place.node.connect()
        }
        "admin" => place.node.connect(),
        role => {
            place.record("amy", role);
            place.list("amy", &[("#", "rwcdxena"), (":", "rwcdxena")]);
            place.login("amy", 0)
        }
    };
    refusal(&mut client, request)
}

/// Whether an action says to somebody what it should.
fn is_as_it_should(who: &str, action: Action, mistake: Option<Mistake>) -> bool {
    let is_for = SESSIONS.iter().position(|session| *session == who) >= Some(least(action.name()));
    let expected = match who {
        _ if is_for => None,
        "nobody" => Some(Refusal::Login),
        _ => Some(Refusal::Role),
    };
    asked(who, request(action), mistake) == expected
}

#[test]
fn each_action_is_for_whom_the_table_says() {
    for action in Action::ALL {
        for who in SESSIONS {
            assert!(is_as_it_should(who, *action, None), "{} as {who}", action.name());
        }
    }
}

#[test]
fn no_check_of_a_role_that_is_left_out_is_missed() {
    let mut planted = 0;
    for action in Action::ALL {
        let name = action.name();
        for who in SESSIONS.iter().take(least(name)).skip(1) {
            let mistake = Some(Mistake::Action(*action));
            assert!(!is_as_it_should(who, *action, mistake), "{name} as {who}");
            planted += 1;
        }
    }
    let details = || map! {"action": "list_shards", "detail": true};
    for (who, expected) in [("user", Some(Refusal::Role)), ("operator", None)] {
        assert_eq!(asked(who, details(), None), expected, "details as {who}");
    }
    let mistake = Some(Mistake::Each(Action::ListShards));
    assert_eq!(asked("user", details(), mistake), None);
    planted += 1;
    println!("{planted} checks left out, each found");
    assert!(planted > 50, "{planted}");
}

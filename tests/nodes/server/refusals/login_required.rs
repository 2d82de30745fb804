//! Never fail open: where the data says that clients must log in, and they cannot yet, no client is served,
//! by any action; and what this version does not enforce takes no changes.

use std::sync::atomic::{AtomicU64, Ordering};

use distkv::engine::NO_LATER;
use distkv::engine::batch::write_one;
use distkv::engine::changes::{LoadImage, MintTock};
use distkv::engine::{Config, Engine, Input};
use distkv::hub::Hub;
use distkv::model::ids::{Incarnation, NodeId, NodeName};
use distkv::model::path::Path;
use distkv::model::value::Value as Stored;
use distkv::protocol::client::Action;
use distkv::replica::write::Write;
use distkv::server::ServerConfig;

use crate::harness::{Client, Node, Value, array, has, path, text};

/// `{current: "password"}`
const PASSWORD: &[u8] = b"\x81\xa7current\xa8password";
const AUTH: &str = ":n.auth";
/// The next life of whoever makes changes elsewhere: no event is made twice.
static LIVES: AtomicU64 = AtomicU64::new(9);

/// A change as it comes from a peer, or out of a file: not from a client.
fn from_elsewhere(hub: &Hub, at: &str, value: Option<&[u8]>) {
    let incarnation = Incarnation(LIVES.fetch_add(1, Ordering::SeqCst));
    let id = NodeId { name: NodeName::new("elsewhere").unwrap(), incarnation };
    let mut other = Engine::new(Config { ignore_auth: true, ..Config::new(id, 1) });
    let mut out = distkv::engine::Outbox::new();
    other.handle(Input::Found, 0, &mut out);
    let path: Path = at.parse().unwrap();
    // Above what is there.
    let tock = hub.read(Engine::tock);
    while other.tock() <= tock {
        other.handle(MintTock, NO_LATER, &mut out);
    }
    if value.is_none() {
        write_one(&mut other, Write::new(&path, Some(&[0xc0])), false, &mut out).unwrap();
    }
    write_one(&mut other, Write::new(&path, value), false, &mut out).unwrap();
    let image = other.image();
    hub.handle(LoadImage(&image), NO_LATER).unwrap();
}

fn closed() -> Node {
    let node = Node::found("n1");
    let mut early = node.connect();
    early.set("secret", 42);
    from_elsewhere(&node.hub, AUTH, Some(PASSWORD));
    // Until those that were connected are cut off: a client that comes just before that is cut off, too.
    while early.receive().is_some() {}
    node
}

/// A node that serves all the same.
fn ignoring() -> Node {
    let id = NodeId { name: NodeName::new("n1").unwrap(), incarnation: Incarnation(1) };
    let config = Config { ignore_auth: true, ..Config::new(id, 1) };
    let node = Node::with(config, ServerConfig { ignore_auth: true, ..ServerConfig::default() });
    node.hub.handle(Input::Found, 0);
    node
}

/// A request for an action, with every field that any of them needs.
fn anything(action: &str) -> Value {
    map! {
        "action": action, "path": path("secret"), "value": 1, "task": 1, "node": "n1~1", "tick": 1,
        "nodes": true, "topic": array(["t"]), "data": Value::Binary(vec![1]), "tock": 1, "ops": array(Vec::<Value>::new()),
        "typ": "root", "ident": "*", "start": true, "nchain": 3, "fetch": true, "known": true,
    }
}

/// The first error among what a request gets, and whether it came in a stream.
fn refusal(client: &mut Client, request: Value) -> (Value, bool) {
    let seq = client.start(request);
    let mut in_stream = false;
    loop {
        let reply = client.reply(seq);
        if has(&reply, "error") {
            return (reply, in_stream);
        }
        assert!(has(&reply, "state"), "{reply}");
        in_stream = true;
    }
}

#[test]
fn no_action_is_served_without_a_login() {
    let node = closed();
    let mut client = node.connect();
    assert_eq!(client.hello["auth"], array(["password"]), "as the original tells it");
    for action in Action::ALL.iter().copied() {
        let (reply, in_stream) = refusal(&mut client, anything(action.name()));
        assert_eq!(text(&reply, "code"), "auth_required", "{}: {reply}", action.name());
        // A client that waits for a stream to start would wait for ever.
        assert_eq!(in_stream, action.errs_in_stream(), "{}", action.name());
        let error = text(&reply, "error");
        assert!(error.contains(AUTH) && error.contains("password"), "{error}");
        assert!(error.contains("--ignore-auth"), "{error}");
        assert!(!has(&reply, "value") && !has(&reply, "result"), "{reply}");
    }
    assert_eq!(node.hub.read(|e| e.get(b"\xa6secret").unwrap().value().unwrap().to_vec()), [42]);
    assert!(!node.info.left.load(Ordering::SeqCst));
}

#[test]
fn who_is_connected_is_cut_off_when_authorisation_comes_and_is_told_why() {
    let node = Node::found("n1");
    let (mut watcher, mut idle, mut other) = (node.connect(), node.connect(), node.connect());
    other.set("secret", 41);
    let watch = map! {"action": "watch", "path": path(":"), "fetch": true};
    let seq = watcher.start(watch);
    assert_eq!(text(&watcher.reply(seq), "state"), "start");
    assert_eq!(watcher.reply(seq)["value"].as_u64(), Some(41));
    assert_eq!(text(&watcher.reply(seq), "state"), "uptodate");
    from_elsewhere(&node.hub, AUTH, Some(PASSWORD));
    from_elsewhere(&node.hub, "secret", Some(&[42]));
    for client in [&mut watcher, &mut idle, &mut other] {
        let mut last = client.receive().expect("it is told why");
        while !has(&last, "error") {
            assert!(!has(&last, "value"), "{last}");
            last = client.receive().expect("it is told why");
        }
        assert_eq!(text(&last, "code"), "auth_required", "{last}");
        assert!(text(&last, "error").contains(AUTH), "{last}");
        assert!(client.receive().is_none());
    }
    // Whoever comes again is told with each request, and served when that is over.
    let mut again = node.connect();
    let get = || map! {"action": "get_value", "path": path("secret")};
    assert_eq!(again.code(get()), "auth_required");
    from_elsewhere(&node.hub, AUTH, Some(b"\x80"));
    assert_eq!(again.get("secret"), Some(42.into()));
    from_elsewhere(&node.hub, AUTH, Some(PASSWORD));
    assert_eq!(text(&again.receive().unwrap(), "code"), "auth_required");
    from_elsewhere(&node.hub, AUTH, None);
    assert_eq!(node.connect().get("secret"), Some(42.into()));
}

#[test]
fn a_write_in_flight_is_not_made_after_authorisation_came() {
    let node = closed();
    let path: Path = "secret".parse().unwrap();
    let value = Stored::new(&[1][..]).unwrap();
    let written = node.hub.write(Write::new(&path, Some(value.as_bytes())), false).0;
    assert!(written.unwrap_err().to_string().contains("authorisation"));
}

#[test]
fn a_node_that_is_told_to_serves_everybody_and_warns() {
    let node = ignoring();
    from_elsewhere(&node.hub, AUTH, Some(PASSWORD));
    from_elsewhere(&node.hub, ":n.codec.int", Some(b"\x80"));
    let mut client = node.connect();
    client.set("a", 1);
    for action in ["status", "members"] {
        let reply = client.ok(map! {"action": action});
        let warnings = reply["warnings"].to_string();
        assert!(warnings.contains("--ignore-auth") && warnings.contains("password"), "{warnings}");
        assert!(warnings.contains(":n.codec"), "{warnings}");
    }
    // From its own machine it can be switched off for good, and not on again.
    let below = |name: &str| path(name);
    client.ok(map! {"action": "delete_internal", "path": below("auth")});
    assert!(!node.hub.read(|engine| engine.login().is_some()));
    let on =
        map! {"action": "set_internal", "path": below("auth"), "value": map! {"current": "root"}};
    assert_eq!(client.code(on), "not_implemented");
    client.ok(map! {"action": "delete_tree", "path": path(":n.codec")});
    let warnings = client.ok(map! {"action": "status"})["warnings"].to_string();
    assert!(!warnings.contains(":n."), "{warnings}");
}

#[test]
fn what_is_not_enforced_takes_no_changes_by_any_action() {
    let node = Node::found("n1");
    let mut client = node.connect();
    for family in ["auth", "acl", "codec", "conv"] {
        from_elsewhere(&node.hub, &format!(":n.{family}.old"), Some(b"\x80"));
        let (whole, below) = (format!(":n.{family}.old"), format!("{family}.old"));
        let (whole, below) = (|| path(&whole), || path(&below));
        let v = || map! {"type": "x"};
        let batch = |op: Value| map! {"action": "batch", "ops": array([op])};
        let requests = [
            map! {"action": "set_value", "path": whole(), "value": v()},
            map! {"action": "set_internal", "path": below(), "value": v()},
            map! {"action": "set_internal", "path": path(family), "value": v()},
            map! {"action": "delete_value", "path": whole()},
            map! {"action": "delete_internal", "path": below()},
            map! {"action": "delete_tree", "path": whole()},
            map! {"action": "delete_tree", "path": path(&format!(":n.{family}"))},
            map! {"action": "update", "path": whole(), "value": v(), "tock": 1_000_000},
            map! {"action": "update", "path": whole(), "tock": 1_000_000},
        ];
        for request in requests {
            let error = client.error(request.clone());
            assert_eq!(text(&error, "code"), "not_implemented", "{request}: {error}");
            let told = text(&error, "error");
            assert!(told.contains(&format!("':n.{family}'")), "{told}");
            assert!(told.contains("nothing was changed"), "{told}");
        }
        for op in [
            map! {"action": "set_value", "path": whole(), "value": v()},
            map! {"action": "set_internal", "path": below(), "value": v()},
            map! {"action": "delete_value", "path": whole()},
            map! {"action": "delete_internal", "path": below()},
        ] {
            let reply = client.ok(batch(op.clone()));
            assert_eq!(text(&reply["results"][0], "code"), "not_implemented", "{op}: {reply}");
        }
        let got = client.ok(map! {"action": "get_internal", "path": below()});
        assert_eq!(got["value"], Value::Map(Vec::new()), "{family}: what was loaded stays");
        let warnings = client.ok(map! {"action": "status"})["warnings"].to_string();
        assert!(warnings.contains(&format!(":n.{family}")), "{warnings}");
    }
    // A session's root is no way around it.
    client.ok(map! {"action": "root", "path": path(":n")});
    let set = map! {"action": "set_value", "path": path("codec.x"), "value": 1};
    assert_eq!(client.code(set), "not_implemented");
    let other = map! {"action": "set_internal", "path": path("shards:1"), "value": "n1"};
    client.ok(other);
}

#[test]
fn questions_about_authorisation_are_answered_as_by_the_original_without_it() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let reply = client.ok(map! {"action": "auth_info"});
    assert_eq!(crate::harness::fields(&reply), ["seq", "tock"]);
    let reply = client.ok(map! {"action": "test_acl", "path": path("a.b"), "mode": "w"});
    assert_eq!(crate::harness::fields(&reply), ["access", "seq", "tock"]);
    assert_eq!(reply["access"].as_bool(), Some(true));
}

#[test]
fn an_access_list_that_is_not_enforced_can_be_tested() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let test = |at: &str, mode: &str, list: &str| {
        map! {"action": "test_acl", "path": path(at), "mode": mode, "acl": list}
    };
    assert_eq!(client.code(test("pub", "w", "lim")), "not_found");
    let flags: [(&str, &[u8]); 7] = [
        (":n.acl.lim.pub", b"\xa3rxe"),
        (":n.acl.lim.pub.#", b"\xa7rwdcxen"),
        (":n.acl.lim.wild.+", b"\xa2xe"),
        (":n.acl.lim.wild.+.on", b"\xa2rw"),
        (":n.acl.lim.wild.#", b"\xa2re"),
        (":n.acl.lim.shut.#", b"\xa0"),
        (":n.acl.lim.odd", b"\x05"),
    ];
    for (at, flags) in flags {
        from_elsewhere(&node.hub, at, Some(flags));
    }
    for at in ["pub.a", "wild.lamp.on", "wild.lamp.off", "shut.a"] {
        client.set(at, 1);
    }
    let cases = [
        ("pub", "r", true),
        ("pub", "w", false),
        ("pub.a", "w", true),
        ("pub.a", "q", false),
        ("pub.a", "rw", true),
        ("pub.a", "wr", false),
        // Where nothing is, it is made on the way.
        ("pub.new", "w", false),
        ("pub.a.new", "w", true),
        ("wild.lamp.on", "w", true),
        ("wild.lamp.off", "w", false),
        ("wild.lamp.off", "r", true),
        ("wild.lamp.off.deeper", "r", false),
        ("shut", "r", true),
        ("shut.a", "x", false),
        // What a client without a list of its own may not do.
        ("free", "a", false),
        // Where no pattern has a value, everything is allowed.
        ("free.q", "d", true),
        ("pub.a", "W", false),
        ("free.q", "W", true),
        ("odd", "r", false),
        (":", "r", true),
    ];
    for (at, mode, access) in cases {
        let reply = client.ok(test(at, mode, "lim"));
        assert_eq!(crate::harness::fields(&reply), ["access", "seq", "tock"]);
        assert_eq!(reply["access"].as_bool(), Some(access), "{at} {mode}");
    }
    let through =
        map! {"action": "test_acl", "path": path("shut.a"), "mode": Value::Nil, "acl": "lim"};
    assert_eq!(client.ok(through)["access"].as_bool(), Some(false), "x is asked for");
    assert_eq!(client.code(test(":n.x", "r", "lim")), "bad_request");
    // The path is the session's; the list is not.
    client.ok(map! {"action": "root", "path": path("pub")});
    assert_eq!(client.ok(test("a", "w", "lim"))["access"].as_bool(), Some(true));
    // What was deleted is no list.
    for (at, _) in flags {
        from_elsewhere(&node.hub, at, None);
    }
    assert_eq!(client.code(test("a", "w", "lim")), "not_found");
}

#[test]
fn patterns_of_an_access_list_are_each_followed_once() {
    let node = Node::found("n1");
    let mut client = node.connect();
    // `#` may stand for any number of elements, so there are very many ways through these.
    let mut pattern = String::from(":n.acl.wide");
    for _ in 0..60 {
        pattern.push_str(".#");
        from_elsewhere(&node.hub, &pattern, Some(b"\xa2nr"));
    }
    let deep = vec!["a"; 60].join(".");
    let test = map! {"action": "test_acl", "path": path(&deep), "mode": "r", "acl": "wide"};
    assert_eq!(client.ok(test)["access"].as_bool(), Some(true));
}

#[test]
fn messages_wait_until_it_is_known_whether_clients_must_log_in() {
    let node = Node::waiting("n1", ServerConfig { ready_wait_ms: 0, ..ServerConfig::default() });
    let mut client = node.connect();
    let send = map! {"action": "msg_send", "topic": array(["t"]), "data": 1};
    assert_eq!(client.code(send), "not_ready");
    let monitor = map! {"action": "msg_monitor", "topic": array(["t"])};
    assert_eq!(client.code(monitor), "not_ready");
}

//! Logins that are switched on with a grace: who has not logged in goes on until it is over, and no longer.

use std::sync::Arc;

use distkv::engine::{Config, Input};
use distkv::hub::log_queue::LogQueue;
use distkv::model::ids::{Incarnation, NodeId, NodeName};
use distkv::model::meta::{AUTH_PATH, grace_end};
use distkv::rt;
use distkv::server::ServerConfig;

use super::{last_error, login, password};
use crate::harness::{Client, Node, Value, has, path, text};

/// A node whose data has a user, joe, and no login yet.
fn open() -> Node {
    let node = Node::found("n1");
    node.connect().ok(password("joe", "test123"));
    node
}

fn switch_on(client: &mut Client, grace_ms: u64) {
    client.ok(map! {"action": "set_auth_typ", "typ": "password", "grace_ms": grace_ms});
}

fn logins(client: &mut Client) -> (Value, u64) {
    let logins = client.ok(map! {"action": "status"})["logins"].clone();
    (logins["grace_ms"].clone(), logins["without_login"].as_u64().unwrap())
}

/// Waits until so many clients have not logged in: connections that were closed just now may still count.
fn wait_for(client: &mut Client, without: u64) {
    let deadline = std::time::Instant::now() + crate::harness::PATIENCE;
    while logins(client).1 != without {
        assert!(std::time::Instant::now() < deadline, "{:?}", logins(client));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn who_has_not_logged_in_goes_on_and_is_counted() {
    let node = open();
    let mut old = node.connect();
    old.set("a", 1);
    switch_on(&mut node.connect(), 600_000);
    old.set("a", 2);
    let mut new = node.connect();
    new.set("a", 3);
    let mut joe = node.connect();
    joe.stream(login("password", "joe", "test123"));
    let (left, _) = logins(&mut joe);
    assert!((1..=600_000).contains(&left.as_u64().unwrap()), "{left}");
    wait_for(&mut joe, 2);
    // The one that asks does not count itself.
    wait_for(&mut new, 1);
    // Without a grace, it is over at once.
    joe.ok(map! {"action": "set_auth_typ", "typ": "password"});
    for client in [&mut old, &mut new] {
        assert_eq!(text(&last_error(client), "code"), "auth_required");
    }
    assert_eq!(joe.get("a"), Some(3.into()));
    assert_eq!(logins(&mut joe).0, Value::Nil);
    wait_for(&mut joe, 0);
}

#[test]
fn the_warning_counts_those_that_are_to_log_in_as_the_status_does() {
    let node = open();
    switch_on(&mut node.connect(), 600_000);
    let mut asking = node.connect();
    wait_for(&mut asking, 0);
    let warning = |asking: &mut Client, action: &str| {
        let reply = asking.ok(map! {"action": action});
        let warnings = reply["warnings"].as_array().unwrap().clone();
        let is_it = |text: &&str| text.starts_with("logins are switched on");
        warnings.iter().filter_map(Value::as_str).find(is_it).unwrap().to_owned()
    };
    for action in ["status", "members"] {
        let told = warning(&mut asking, action);
        assert!(told.ends_with("no such client is connected to this node"), "{told}");
    }
    let (mut idle, _other) = (node.connect(), node.connect());
    idle.set("a", 1);
    wait_for(&mut asking, 2);
    for action in ["status", "members"] {
        let told = warning(&mut asking, action);
        assert!(told.ends_with("2 such clients are connected to this node"), "{told}");
    }
    // Who has logged in is none of them.
    let mut joe = node.connect();
    joe.stream(login("password", "joe", "test123"));
    drop((asking, idle));
    wait_for(&mut joe, 1);
    let told = warning(&mut joe, "status");
    assert!(told.ends_with("1 such client is connected to this node"), "{told}");
}

#[test]
fn when_it_is_over_idle_and_watching_connections_are_closed_and_new_ones_must_log_in() {
    let node = open();
    let (mut idle, mut watcher) = (node.connect(), node.connect());
    let watch = watcher.start(map! {"action": "watch", "path": path("a")});
    assert_eq!(text(&watcher.reply(watch), "state"), "start");
    idle.set("b", 1);
    let mut joe = node.connect();
    joe.stream(login("password", "joe", "test123"));
    switch_on(&mut node.connect(), 1_000);
    for client in [&mut idle, &mut watcher] {
        assert_eq!(text(&last_error(client), "code"), "auth_required");
    }
    let mut late = node.connect();
    assert_eq!(late.code(map! {"action": "get_value", "path": path("b")}), "auth_required");
    assert_eq!(joe.get("b"), Some(1.into()));
}

#[test]
fn a_grace_that_is_over_is_taken_out_of_the_data() {
    let node = open();
    switch_on(&mut node.connect(), 1_000);
    let mut joe = node.connect();
    joe.stream(login("password", "joe", "test123"));
    let value =
        || node.hub.read(|engine| engine.get(AUTH_PATH)?.value().map(<[u8]>::to_vec)).unwrap();
    let deadline = std::time::Instant::now() + crate::harness::PATIENCE;
    while grace_end(&value()).is_some() {
        assert!(std::time::Instant::now() < deadline, "{:?}", value());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(value(), crate::harness::encode(&map! {"current": "password"}));
    assert_eq!(
        node.connect().code(map! {"action": "get_value", "path": path("b")}),
        "auth_required"
    );
}

#[test]
fn a_grace_that_was_over_before_a_restart_stays_over_when_the_clock_is_set_back() {
    // The log has a time that the clock says is still to come.
    let log = LogQueue::new(false).continuing_from(rt::wall_clock_ms() + 3_600_000);
    let id = NodeId { name: NodeName::new("n1").unwrap(), incarnation: Incarnation(1) };
    let node = Node::logged(Config::new(id, 1), ServerConfig::default(), Some(Arc::new(log)));
    node.hub.handle(Input::Found, 0);
    node.connect().ok(password("joe", "test123"));
    // One that is granted now is one, whatever the clock was before.
    switch_on(&mut node.connect(), 600_000);
    node.connect().set("a", 1);
    // The same data, found at a start.
    let again = node.bind_again("127.0.0.1:0").unwrap();
    let mut client = Client::new(again.address(), 0);
    assert_eq!(client.code(map! {"action": "get_value", "path": path("a")}), "auth_required");
}

#[test]
fn a_grace_that_is_too_long_is_refused_and_off_has_none() {
    let node = open();
    let mut client = node.connect();
    let set = |typ: Value, ms: Value| map! {"action": "set_auth_typ", "typ": typ, "grace_ms": ms};
    let week = 604_800_000_u64;
    assert_eq!(client.code(set("password".into(), (week + 1).into())), "bad_request");
    assert_eq!(client.code(set("password".into(), (-1).into())), "bad_request");
    assert!(!has(&client.ok(set("password".into(), week.into())), "error"));
    client.ok(set(Value::Nil, 5.into()));
    assert_eq!(logins(&mut client).0, Value::Nil);
    client.set("a", 1);
}

#[test]
fn a_node_with_a_key_asks_for_logins_whatever_the_data_grants() {
    let node = super::secured();
    let mut admin = super::admin(&node);
    admin.ok(password("joe", "test123"));
    switch_on(&mut admin, 600_000);
    let get = map! {"action": "get_value", "path": path("a")};
    assert_eq!(node.connect().code(get), "auth_required");
    assert_eq!(logins(&mut admin).0, Value::Nil);
}

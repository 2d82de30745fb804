//! Clients that have not logged in: what they may do, how many there may be, what the greeting tells them.

use std::time::{Duration, Instant};

use distkv::client::{Client as SmartClient, ClientConfig, HostPort, Login};
use distkv::protocol::client::Action;
use distkv::rt;
use distkv::server::ServerConfig;
use distkv::server::access::cluster_key::ClusterKeys;
use distkv::server::access::strangers::{LOGIN_MS_MAX, STRANGER_BYTES_MAX, STRANGERS_MAX};

use super::{
    KEY, admin, key_login, last_error, logged_in, login, password, secured, secured_config,
};
use crate::harness::{Client, Node, PATIENCE, Value, array, has, path, text};

#[test]
fn each_action_before_a_login_is_refused_by_a_secured_node_and_ends_the_connection() {
    let node = secured();
    let mut first = admin(&node);
    first.set("secret", 42);
    for action in Action::ALL {
        if matches!(action, Action::Auth | Action::DiffieHellman) {
            continue;
        }
        let mut client = node.connect();
        client.send(map! {"seq": 0, "qlen": 10});
        client.send(map! {
            "seq": 1, "action": action.name(), "path": path("secret"), "value": 1, "task": 1,
            "node": "n1~1", "tick": 1, "nodes": true, "topic": array(["t"]), "tock": 1,
            "data": Value::Binary(vec![1]), "ops": array(Vec::<Value>::new()), "typ": "password",
            "ident": "joe", "start": true, "known": true,
        });
        let mut messages = Vec::new();
        while let Some(message) = client.receive() {
            messages.push(message);
        }
        let error = messages.iter().find(|message| has(message, "error")).unwrap();
        assert_eq!(text(error, "code"), "auth_required", "{error}");
        assert!(messages.iter().all(|m| !has(m, "value") && !has(m, "result")), "{messages:?}");
        drop(client);
        while node.server.connections() > 1 {
            std::thread::yield_now();
        }
    }
    assert_eq!(first.get("secret"), Some(42.into()));
}

#[test]
fn what_is_no_request_before_a_login_ends_the_connection_too() {
    let node = secured();
    for bytes in [&b"\xc1"[..], b"\x81\xa3seq\x01", b"\x82\xa3seq\x01\xa6action\xa4nope"] {
        let mut client = node.connect();
        client.send_bytes(bytes);
        assert!(has(&client.receive().unwrap(), "error"));
        assert!(client.receive().is_none());
    }
}

#[test]
fn a_client_may_log_in_and_go_on_in_one_go() {
    let node = secured();
    let mut client = node.connect();
    let (login, _) = key_login(&client, &KEY);
    let login = client.start(login);
    let set = client.start(map! {"action": "set_value", "path": path("a"), "value": 1});
    assert_eq!(text(&client.reply(login), "state"), "start");
    assert_eq!(client.reply(set)["changed"].as_bool(), Some(true));
}

#[test]
fn a_smart_client_that_may_not_log_in_is_told_at_once() {
    let node = secured();
    let joe = Login::user(Some("password"), "joe", Some("hunter2"));
    for login in [None, Some(joe), Some(Login::key([9; 32]))] {
        let config = ClientConfig::new().connect_deadline(PATIENCE);
        let config = login.clone().map_or(config.clone(), |login| config.login(login));
        let since = Instant::now();
        let connecting = SmartClient::connect([HostPort::from(node.address())], config);
        let error = rt::block_on(connecting).unwrap_err();
        assert_eq!(error.code(), Some("no_access"), "{login:?}: {error}");
        assert!(since.elapsed() < PATIENCE / 2, "{login:?}: {:?}", since.elapsed());
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[test]
fn before_a_login_a_client_may_send_little() {
    let node = secured();
    let mut client = node.connect();
    // A message that is never whole.
    client.send_bytes(b"\x82\xa3seq\x01\xa6action\xdb\x00\x10\x00\x00");
    client.send_bytes(&vec![b'x'; STRANGER_BYTES_MAX]);
    let error = last_error(&mut client);
    assert_eq!(text(&error, "code"), "auth_required");
    assert!(text(&error, "error").contains("65536 bytes"), "{error}");
    // Who is logged in may send more.
    let mut client = admin(&node);
    client.set("a", Value::Binary(vec![1; 2 * STRANGER_BYTES_MAX]));
}

#[test]
fn who_does_not_log_in_in_time_is_closed() {
    let node = secured();
    let mut client = node.connect();
    let since = Instant::now();
    let error = last_error(&mut client);
    assert!(text(&error, "error").contains("no login within 10 s"), "{error}");
    let least = Duration::from_millis(LOGIN_MS_MAX - 1_000);
    assert!(since.elapsed() > least, "{:?}", since.elapsed());
}

#[test]
fn of_as_many_connections_that_are_not_logged_in_as_may_be_the_oldest_gives_way() {
    let node = secured();
    let mut known = admin(&node);
    let mut strangers: Vec<Client> = (0..STRANGERS_MAX).map(|_| node.connect()).collect();
    // While the others of this address are new, too, it is refused; then one of them is closed.
    let greeted = || {
        let mut client = Client::silent(node.address());
        let first = client.receive().unwrap();
        if !has(&first, "error") {
            return Some(client);
        }
        assert_eq!(text(&first, "code"), "too_many", "{first}");
        assert!(client.receive().is_none());
        None
    };
    let since = Instant::now();
    let mut one_more = loop {
        if let Some(client) = greeted() {
            break client;
        }
        assert!(since.elapsed() < PATIENCE, "nobody gives way");
    };
    let error = last_error(&mut strangers[0]);
    assert_eq!(text(&error, "code"), "too_many", "{error}");
    assert!(text(&error, "error").contains("without having logged in"), "{error}");
    known.set("a", 1);
    one_more.send(map! {"seq": 1, "action": "get_value", "path": path("a")});
    assert_eq!(text(&one_more.receive().unwrap(), "code"), "auth_required");
    // Who logs in makes room.
    let (login, _) = key_login(&strangers[9], &KEY);
    strangers[9].stream(login);
    strangers[9].set("a", 2);
    node.connect();
}

#[test]
fn strangers_give_way_where_there_is_no_room_for_another_connection() {
    // Fewer than strangers there may be.
    const ROOM: usize = 12;
    let node = Node::found_with("n1", ServerConfig { connections_max: ROOM, ..secured_config() });
    let mut known = admin(&node);
    for _ in 0..3 {
        let mut strangers: Vec<Client> = (1..ROOM).map(|_| node.connect()).collect();
        assert_eq!(node.server.connections(), ROOM);
        let since = Instant::now();
        let mut other = loop {
            let mut client = Client::silent(node.address());
            let first = client.receive().unwrap();
            if !has(&first, "error") {
                client.hello = first;
                break client;
            }
            // They are new, and of the same address.
            assert_eq!(text(&first, "code"), "too_many", "{first}");
            assert!(since.elapsed() < PATIENCE, "nobody gives way");
        };
        let (login, _) = key_login(&other, &KEY);
        other.stream(login);
        other.set("a", 1);
        known.set("a", 2);
        let error = last_error(&mut strangers[0]);
        assert!(text(&error, "error").contains("without having logged in"), "{error}");
        drop((strangers, other));
        while node.server.connections() > 1 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn the_greeting_names_the_method_in_force_first_and_then_the_others() {
    let node = Node::found("n1");
    let mut client = node.connect();
    assert!(!has(&client.hello, "auth") && !has(&client.hello, "nonce"));
    for (method, user) in [("root", "*"), ("_test", "std")] {
        client.ok(map! {"action": "auth_set", "typ": method, "ident": user, "chain": Value::Nil});
    }
    client.ok(password("joe", "geheim"));
    let mut client = node.connect();
    let nil = Value::Nil;
    assert_eq!(
        client.hello["auth"],
        array([nil, "_test".into(), "password".into(), "root".into()])
    );
    client.ok(map! {"action": "set_auth_typ", "typ": "password"});
    assert_eq!(node.connect().hello["auth"], array(["password", "_test", "root"]));
}

#[test]
fn a_secured_node_asks_for_a_login_whatever_the_data_says() {
    let node = secured();
    let greeting = node.connect().hello;
    assert_eq!(greeting["auth"], array(["token"]));
    assert_eq!(greeting["nonce"].as_slice().unwrap().len(), 32);
    assert_ne!(greeting["nonce"], node.connect().hello["nonce"]);
    admin(&node).ok(password("joe", "geheim"));
    assert_eq!(node.connect().hello["auth"], array(["password"]));
    logged_in(&node, "password", "joe", "geheim");
}

#[test]
fn a_secured_node_without_data_lets_nobody_in_but_who_has_its_key() {
    let config =
        ServerConfig { cluster_keys: Some(ClusterKeys::new(vec![KEY])), ..ServerConfig::default() };
    let node = Node::waiting("n1", config);
    let mut client = node.connect();
    assert_eq!(client.hello["auth"], array(["token"]));
    assert_eq!(client.code(login("password", "joe", "geheim")), "not_ready");
    assert_eq!(client.code(login("token", "joe", "geheim")), "not_ready");
    let (wrong, _) = key_login(&client, &[8; 32]);
    assert_eq!(client.code(wrong), "auth_failed");
    let mut admin = admin(&node);
    assert!(!has(&admin.ok(map! {"action": "status"}), "error"));
}

#[test]
fn what_a_client_says_of_waiting_before_its_login_holds_behind_it() {
    let node = Node::waiting("n1", ServerConfig { ready_wait_ms: 3_600_000, ..secured_config() });
    let mut client = Client::new(node.address(), 0);
    client.send(map! {"seq": 0, "qlen": 10, "nowait": true});
    let (login, _) = key_login(&client, &KEY);
    client.stream(login);
    assert_eq!(client.code(map! {"action": "get_value", "path": path("a")}), "not_ready");
}

//! A user, or an address, leaves watches and monitors to the others, and a user connections, and gets its own back however
//! they end.

use std::sync::Arc;

use distkv::engine::Engine;
use distkv::hub::Hub;
use distkv::hub::inbox::{Inbox, WatchContent};
use distkv::hub::shares::Holder;
use distkv::replica::watch::WatchScope;
use distkv::server::ServerConfig;
use distkv::server::access::Identity;

use super::Place;
use crate::harness::{Client, Node, PATIENCE, Value, has, path, text};
use crate::server::login::{admin, limited, login, secured_config};

/// How many a test's clients begin by themselves.
const BY_CLIENTS: usize = 100;

/// Watches, or monitors.
struct Kind {
    /// As many as one may have where nobody else has any.
    half: usize,
    request: Value,
    /// What somebody is told who has as many.
    told: &'static str,
    begin: fn(&Hub, &Arc<Inbox>, &Holder) -> bool,
    count: fn(&Hub) -> usize,
}

impl Kind {
    fn all() -> [Self; 2] {
        let begin_watch = |hub: &Hub, inbox: &Arc<Inbox>, holder: &Holder| {
            let scope = WatchScope { top: "a".parse().unwrap(), depth_min: 0, depth_max: None };
            hub.watch(scope, WatchContent::Changes, inbox, holder).is_ok()
        };
        let begin_monitor = |hub: &Hub, inbox: &Arc<Inbox>, holder: &Holder| {
            hub.monitor("t".parse().unwrap(), inbox, holder).is_ok()
        };
        [
            Self {
                half: 32_768,
                request: map! {"action": "watch", "path": path("a")},
                told: "32768 of the 65536 watches",
                begin: begin_watch,
                count: |hub| hub.read(Engine::watch_count),
            },
            Self {
                half: 16_384,
                request: map! {"action": "msg_monitor", "topic": path("t")},
                told: "16384 of the 32768 monitors",
                begin: begin_monitor,
                count: Hub::monitor_count,
            },
        ]
    }

    /// Takes all that one may have but those that clients begin.
    fn take_most(&self, node: &Node, holder: &Holder) {
        let inbox = Arc::new(Inbox::new());
        for _ in 0..self.half - BY_CLIENTS {
            assert!((self.begin)(&node.hub, &inbox, holder));
        }
    }

    /// Begins one; its number, or the error.
    fn begin(&self, client: &mut Client) -> Result<u64, Value> {
        let seq = client.start(self.request.clone());
        assert_eq!(text(&client.reply(seq), "state"), "start");
        client.due(seq).map_or(Ok(seq), Err)
    }

    fn begin_some(&self, client: &mut Client, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.begin(client).unwrap()).collect()
    }

    fn assert_refused(&self, client: &mut Client, who: &str) {
        let error = self.begin(client).expect_err("it was let in");
        assert_eq!(text(&error, "code"), "too_many");
        let words = text(&error, "error");
        assert!(words.starts_with(who) && words.contains(self.told), "{words}");
    }
}

fn warns(client: &mut Client, words: &str) -> bool {
    let status = client.ok(map! {"action": "status"});
    let mut warnings = status["warnings"].as_array().unwrap().iter();
    warnings.any(|warning| warning.as_str().unwrap().contains(words))
}

#[test]
fn a_user_shuts_no_other_out_and_what_ends_is_its_own_again() {
    for kind in Kind::all() {
        let mut place = Place::new();
        let joe = Holder::User { method: "password".into(), name: "joe".into() };
        kind.take_most(&place.node, &joe);
        let lists = [("a", "x"), ("::msg.t", "r")];
        let mut first = place.user("joe", &lists);
        let mut second = place.login("joe", 0);
        let open = kind.begin_some(&mut first, BY_CLIENTS / 2);
        kind.begin_some(&mut second, BY_CLIENTS / 2);
        for client in [&mut first, &mut second] {
            kind.assert_refused(client, "the user 'joe' has");
        }
        assert!(warns(&mut place.admin, "that they may have while others have 0"));
        // The others are let in, whoever they are.
        let mut jim = place.user("jim", &lists);
        for other in [&mut jim, &mut place.admin] {
            let seq = kind.begin(other).unwrap();
            other.ok(map! {"action": "stop", "task": seq});
        }
        // One that ends makes room for one, on whatever connection.
        first.ok(map! {"action": "stop", "task": open[0]});
        kind.begin(&mut second).unwrap();
        kind.assert_refused(&mut second, "the user 'joe' has");
        // So does a connection that is gone.
        drop(first);
        while kind.begin(&mut second).is_err() {}
        // So does a removal.
        place.put(":n.auth.revoked.password.joe", Some(true.into()));
        while (kind.count)(&place.node.hub) > kind.half - BY_CLIENTS {
            place.admin.ok(map! {"action": "get_tock"});
        }
        let inbox = Arc::new(Inbox::new());
        let again = (0..).take_while(|_| (kind.begin)(&place.node.hub, &inbox, &joe)).count();
        assert_eq!(again, BY_CLIENTS);
    }
}

#[test]
fn clients_of_one_address_that_need_not_log_in_leave_watches_and_monitors_to_others() {
    for kind in Kind::all() {
        let node = Node::found("n1");
        kind.take_most(&node, &Holder::Host([127, 0, 0, 1].into()));
        let mut clients = [node.connect(), node.connect()];
        for client in &mut clients {
            kind.begin_some(client, BY_CLIENTS / 2);
        }
        for client in &mut clients {
            kind.assert_refused(client, "clients on this machine have");
        }
        node.server.assume(Identity::KeyHolder);
        kind.begin(&mut node.connect()).unwrap();
    }
}

#[test]
fn a_user_leaves_connections_to_others() {
    let node = Node::found_with("n1", ServerConfig { connections_max: 40, ..secured_config() });
    let mut first_admin = admin(&node);
    first_admin.ok(limited("joe", "geheim", "joe"));
    first_admin.ok(limited("jim", "geheim", "jim"));
    let log_in = |user: &str| {
        let mut client = node.connect();
        let seq = client.start(login("password", user, "geheim"));
        assert_eq!(text(&client.reply(seq), "state"), "start");
        let reply = client.reply(seq);
        if has(&reply, "error") { Err(text(&reply, "error").to_owned()) } else { Ok(client) }
    };
    // The admin has one of forty, so joe gets half of the others.
    let mut own: Vec<Client> = (0..20).map(|_| log_in("joe").unwrap()).collect();
    let told = log_in("joe").err().unwrap();
    assert!(told.starts_with("the user 'joe' has 20 of the 40 connections"), "{told}");
    assert!(warns(&mut first_admin, "have 20 of the 20 connections that they may have"));
    let _jim = log_in("jim").unwrap();
    let _second_admin = admin(&node);
    // With three that others have, its share is less by one: two must end before another one begins.
    drop(own.split_off(18));
    let again = std::iter::repeat_with(|| log_in("joe")).find_map(Result::ok);
    assert!(again.is_some());
    assert!(log_in("joe").is_err());
}

#[test]
fn who_fills_the_clients_memory_is_closed_and_others_are_let_in() {
    /// Of a request that never ends: less than what a connection is closed for otherwise.
    const SENT: usize = 50_000;
    let config = ServerConfig { client_memory_max: 1 << 20, ..secured_config() };
    let node = Node::found_with("n1", config);
    let mut first_admin = admin(&node);
    for user in ["joe", "jim"] {
        first_admin.ok(limited(user, "geheim", user));
    }
    let log_in = |user: &str| {
        let mut client = node.connect();
        client.stream(login("password", user, "geheim"));
        client
    };
    let memory = node.hub.client_memory();
    let since = std::time::Instant::now();
    let mut open = Vec::new();
    while memory.view().closed == 0 {
        let mut client = node.connect();
        // Refused where the memory is full already.
        client.stream(login("password", "joe", "geheim"));
        let value =
            [&b"\x83\xa6action\xa9set_value\xa5value\xc6\x00\x01\x00\x00"[..], &[7; SENT]].concat();
        client.send_bytes(&value);
        open.push(client);
        assert!(since.elapsed() < PATIENCE, "{:?}", memory.view());
    }
    let mut jim = log_in("jim");
    assert_eq!(jim.code(map! {"action": "get_value", "path": path("a")}), "denied");
    first_admin.set("a", 1);
    assert!(open.len() > 10, "{}", open.len());
}

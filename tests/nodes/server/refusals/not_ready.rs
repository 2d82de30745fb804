//! Clients of a node that still catches up with its network: they wait for it, within bounds.

use std::time::Duration;

use distkv::engine::Input;
use distkv::rt;
use distkv::server::ServerConfig;

use crate::harness::{
    Client, Node, PATIENCE, Value, array, encode, fields, has, path, refusing, text,
};

/// A node that its clients wait for, longer than any test.
fn waiting() -> Node {
    Node::waiting("n1", ServerConfig { ready_wait_ms: 3_600_000, ..ServerConfig::default() })
}

/// Sees that requests sent before wait, by one behind them that need not, and is the only one to be answered.
fn see_that_they_wait(client: &mut Client) {
    let seq = client.start(map! {"action": "status"});
    let first = client.receive().unwrap();
    assert_eq!(
        (first["seq"].as_u64(), first["ready"].as_bool()),
        (Some(seq), Some(false)),
        "{first}"
    );
    see_that_nothing_comes(client);
}

fn see_that_nothing_comes(client: &mut Client) {
    client.stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let nothing = std::io::Read::read(&mut client.stream, &mut [0; 1]);
    let kind = nothing.unwrap_err().kind();
    assert!(matches!(kind, std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut));
    client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
}

#[test]
fn requests_wait_for_the_node_and_are_carried_out_in_order() {
    let node = waiting();
    let mut client = node.connect();
    assert!(client.hello["tick"].is_nil());
    let set = client.start(map! {"action": "set_value", "path": path("a.b"), "value": 1});
    let get = client.start(map! {"action": "get_value", "path": path("a.b")});
    let batch = client.start(map! {"action": "batch", "ops": array([
        map! {"action": "get_value", "path": path("a.b")},
    ])});
    let list = client.start(map! {"action": "enum", "path": path("a")});
    let tree = client.start(map! {"action": "get_tree", "path": path("a")});
    let watch = client.start(map! {"action": "watch", "path": path("a"), "fetch": true});
    see_that_they_wait(&mut client);
    node.hub.handle(Input::Found, 0);
    assert_eq!(client.reply(set)["changed"].as_bool(), Some(true));
    assert_eq!(client.reply(get)["value"].as_i64(), Some(1));
    assert_eq!(client.reply(batch)["results"][0]["value"].as_i64(), Some(1));
    assert_eq!(client.reply(list)["result"], array(["b"]));
    assert_eq!(text(&client.reply(tree), "state"), "start");
    assert_eq!(client.rest(tree).len(), 1);
    assert_eq!(text(&client.reply(watch), "state"), "start");
    assert_eq!(client.reply(watch)["value"].as_i64(), Some(1));
}

#[test]
fn what_needs_no_data_is_answered_at_once() {
    let node = waiting();
    let mut client = node.connect();
    for action in ["status", "members", "cluster", "get_state", "get_tock"] {
        client.ok(map! {"action": action});
    }
    // Behind one that waits, a write is not mistaken for one that need not.
    let tock = client.start(map! {"action": "get_tock"});
    let set = client.start(map! {"action": "set_value", "path": path("a"), "value": 1});
    assert!(client.reply(tock)["tock"].is_u64());
    see_that_they_wait(&mut client);
    for action in ["members", "cluster", "get_state", "get_tock", "conflicts"] {
        client.start(map! {"action": action});
        assert!(!has(&client.receive().unwrap(), "error"), "{action}");
    }
    assert_eq!(text(&client.receive().unwrap(), "state"), "end", "of the conflicts");
    // Messages wait: the data may say that clients must log in.
    let sent = client.start(map! {"action": "msg_send", "topic": "t", "data": 1});
    node.hub.handle(Input::Found, 0);
    assert_eq!(client.reply(set)["changed"].as_bool(), Some(true));
    assert!(client.reply(sent)["tock"].is_u64());
}

#[test]
fn requests_wait_in_order_also_where_more_come_than_may_be_put_aside() {
    let node = waiting();
    let mut client = node.connect();
    let (value, count) = ("v".repeat(1_000), 200);
    let append =
        |i: i32| map! {"action": "set_value", "path": path("a"), "value": format!("{value}{i}")};
    let seqs: Vec<u64> = (0..count).map(|i| client.start(append(i))).collect();
    let get = client.start(map! {"action": "get_value", "path": path("a")});
    // The one behind them waits with them: it stays in the connection's input.
    let status = client.start(map! {"action": "status"});
    see_that_nothing_comes(&mut client);
    node.hub.handle(Input::Found, 0);
    for (i, seq) in seqs.into_iter().enumerate() {
        let reply = client.receive().unwrap();
        assert_eq!(reply["seq"].as_u64(), Some(seq));
        let before = i.checked_sub(1).map(|i| Value::from(format!("{value}{i}")));
        assert_eq!(has(&reply, "prev").then(|| reply["prev"].clone()), before);
    }
    assert_eq!(client.reply(get)["value"], Value::from(format!("{value}{}", count - 1)));
    assert_eq!(client.reply(status)["ready"].as_bool(), Some(true));
}

#[test]
fn where_the_root_of_a_session_is_still_to_be_moved_what_depends_on_it_waits_too() {
    let node = waiting();
    let mut client = node.connect();
    let root = client.start(map! {"action": "root", "path": path("a")});
    let conflicts = client.start(map! {"action": "conflicts"});
    let acl = client.start(map! {"action": "test_acl", "path": path("b")});
    see_that_they_wait(&mut client);
    node.hub.handle(Input::Found, 0);
    assert_eq!(client.receive().unwrap()["seq"].as_u64(), Some(root));
    assert_eq!(client.reply(acl)["access"].as_bool(), Some(true));
    assert_eq!(text(&client.reply(conflicts), "state"), "start");
}

#[test]
fn a_request_that_waits_can_be_stopped() {
    let node = waiting();
    let mut client = Client::new(node.address(), 0);
    client.send(map! {"seq": 0, "qlen": 5});
    let set = client.start(map! {"action": "set_value", "path": path("a"), "value": 1});
    let watch = client.start(map! {"action": "watch", "path": path("a"), "fetch": true});
    let get = client.start(map! {"action": "get_value", "path": path("a")});
    let stop = |task: u64| map! {"action": "stop", "task": task};
    assert_eq!(client.ok(stop(watch))["result"].as_bool(), Some(true));
    for (state, wseq) in [("start", 1), ("end", 2)] {
        let message = client.reply(watch);
        assert_eq!((text(&message, "state"), message["wseq"].as_u64()), (state, Some(wseq)));
    }
    assert_eq!(client.ok(stop(set))["result"].as_bool(), Some(true));
    assert_eq!(text(&client.reply(set), "code"), "not_ready");
    assert_eq!(client.ok(stop(watch))["result"].as_bool(), Some(false), "it is over");
    see_that_they_wait(&mut client);
    node.hub.handle(Input::Found, 0);
    assert!(!has(&client.reply(get), "value"), "nothing was set");
}

#[test]
fn streams_have_the_window_of_when_they_were_asked_for() {
    let node = waiting();
    let mut client = Client::new(node.address(), 0);
    client.send(map! {"seq": 0, "qlen": 5});
    let counted = client.start(map! {"action": "get_tree", "path": path("a")});
    client.send(map! {"seq": 0, "qlen": 0});
    let plain = client.start(map! {"action": "get_tree", "path": path("a")});
    see_that_they_wait(&mut client);
    node.hub.handle(Input::Found, 0);
    assert!(has(&client.reply(counted), "wseq"));
    assert!(!has(&client.reply(plain), "wseq"));
}

#[test]
fn who_has_waited_long_enough_is_refused_and_may_wait_again() {
    let node = Node::waiting("n1", ServerConfig { ready_wait_ms: 50, ..ServerConfig::default() });
    let mut client = node.connect();
    for _ in 0..2 {
        let get = client.start(map! {"action": "get_value", "path": path("a")});
        let set = client.start(map! {"action": "set_value", "path": path("a"), "value": 1});
        let tree = client.start(map! {"action": "get_tree", "path": path("a")});
        assert_eq!(text(&client.reply(get), "code"), "not_ready");
        assert_eq!(text(&client.reply(set), "code"), "not_ready");
        assert_eq!(text(&client.reply(tree), "state"), "start");
        assert_eq!(text(&client.rest(tree)[0], "code"), "not_ready");
    }
    node.hub.handle(Input::Found, 0);
    client.set("a", 1);
}

#[test]
fn a_client_that_does_not_want_to_wait_is_refused_at_once() {
    let node = waiting();
    let mut client = Client::new(node.address(), 0);
    client.send(map! {"seq": 0, "qlen": 0, "nowait": true});
    let get = map! {"action": "get_value", "path": path("a")};
    assert_eq!(client.code(get.clone()), "not_ready");
    client.send(map! {"seq": 0, "qlen": 10});
    let seq = client.start(get);
    see_that_they_wait(&mut client);
    node.hub.handle(Input::Found, 0);
    assert!(!has(&client.reply(seq), "error"));
}

#[test]
fn who_hangs_up_while_waiting_is_forgotten() {
    let node = waiting();
    for _ in 0..20 {
        let mut client = node.connect();
        client.start(map! {"action": "set_value", "path": path("a"), "value": 1});
    }
    let deadline = rt::now() + PATIENCE.as_millis() as u64;
    while node.server.connections() > 0 {
        assert!(rt::now() < deadline, "{} connections", node.server.connections());
        std::thread::yield_now();
    }
    // One that sends nothing more, but reads, learns that it was not carried out.
    let mut client = node.connect();
    let seq = client.start(map! {"action": "set_value", "path": path("a"), "value": 1});
    client.finish();
    assert_eq!(text(&client.reply(seq), "code"), "not_ready");
    assert_eq!(client.receive(), None);
    node.hub.handle(Input::Found, 0);
    assert_eq!(node.connect().get("a"), None);
}

#[test]
fn a_node_that_stops_keeps_nobody_waiting() {
    let node = waiting();
    let mut client = node.connect();
    let seqs: Vec<u64> = (0..600)
        .map(|i| client.start(map! {"action": "set_value", "path": path("a"), "value": i}))
        .collect();
    see_that_they_wait(&mut client);
    rt::block_on(node.server.stop(PATIENCE));
    for seq in seqs {
        assert_eq!(text(&client.reply(seq), "code"), "not_ready");
    }
    assert_eq!(client.receive(), None);
}

#[test]
fn refusals_without_room_do_not_hold_up_a_node_that_stops() {
    let config = ServerConfig {
        ready_wait_ms: 3_600_000,
        output_bytes_max: 1_000,
        ..ServerConfig::default()
    };
    let node = Node::waiting("n1", config);
    let mut client = node.connect();
    for i in 0..600 {
        client.start(map! {"action": "set_value", "path": path("a"), "value": i});
    }
    see_that_they_wait(&mut client);
    rt::block_on(node.server.stop(PATIENCE));
    let mut refused = 0;
    while let Some(message) = client.receive() {
        assert_eq!(text(&message, "code"), "not_ready");
        refused += 1;
    }
    assert!(refused > 0);
    assert_eq!(node.server.connections(), 0);
}

#[test]
fn what_waits_is_bounded_by_the_connections_input() {
    let node = waiting();
    let mut client = node.connect();
    // More than a connection's input and the system's buffers hold: the rest is not read.
    let value = Value::Binary(vec![7; 1 << 20]);
    let message = encode(&map! {
        "action": "set_value", "path": path("big"), "value": value, "seq": 1
    });
    client.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut stopped = false;
    for _ in 0..64 {
        if std::io::Write::write_all(&mut client.stream, &message).is_err() {
            stopped = true;
            break;
        }
    }
    assert!(stopped, "the node read 64 MiB that it could not carry out");
    drop(client);
    node.hub.handle(Input::Found, 0);
    node.connect().set("a", 1);
}

#[test]
fn a_wait_of_no_time_is_a_refusal() {
    let node = Node::waiting("n1", refusing());
    let error = node.connect().error(map! {"action": "get_value", "path": path("a")});
    assert_eq!(fields(&error), ["error", "code", "seq", "tock"]);
    assert_eq!(text(&error, "code"), "not_ready");
}

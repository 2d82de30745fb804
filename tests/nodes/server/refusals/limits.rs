//! What one client may do, and what a node that is not ready, read-only or full says.

use distkv::engine::{Config, Input};
use distkv::model::ids::{Incarnation, NodeId, NodeName};
use distkv::model::limits::VALUE_BYTES_MAX;
use distkv::server::{Server, ServerConfig, ServerError};

use crate::harness::{Client, Node, Value, array, path, refusing, text};

#[test]
fn a_node_that_is_not_ready_says_so_and_answers_when_it_is() {
    let node = Node::waiting("n1", refusing());
    let mut client = node.connect();
    assert!(client.hello["tick"].is_nil());
    for action in ["get_value", "delete_value", "get_tree", "enum", "watch", "root"] {
        assert_eq!(client.code(map! {"action": action, "path": path("a")}), "not_ready");
    }
    client.ok(map! {"action": "get_state", "nodes": true});
    assert_eq!(client.ok(map! {"action": "status"})["ready"].as_bool(), Some(false));
    node.hub.handle(Input::Found, 0);
    client.set("a", 1);
    assert_eq!(node.connect().hello["tick"].as_u64(), Some(1));
}

fn special(read_only: bool, memory_max: Option<usize>) -> Node {
    let id = NodeId { name: NodeName::new("n1").unwrap(), incarnation: Incarnation(1) };
    let config = Config { read_only, memory_max, ..Config::new(id, 1) };
    let node = Node::with(config, ServerConfig::default());
    node.hub.handle(Input::Found, 0);
    node
}

#[test]
fn a_read_only_node_and_a_full_one_refuse_writes() {
    let node = special(true, None);
    let mut client = node.connect();
    let set = map! {"action": "set_value", "path": path("a"), "value": 1};
    assert_eq!(client.code(set.clone()), "read_only");
    assert_eq!(client.get("a"), None);
    let node = special(false, Some(1000));
    let mut client = node.connect();
    client.set("big", "x".repeat(2000));
    assert_eq!(client.code(set), "memory_full");
    client.ok(map! {"action": "delete_value", "path": path("big")});
    client.set("a", 1);
}

#[test]
fn a_full_node_takes_what_does_not_grow_and_warns() {
    let node = special(false, Some(1000));
    let mut client = node.connect();
    assert_eq!(client.ok(map! {"action": "status"})["warnings"].as_array().unwrap().len(), 0);
    client.set("big", "x".repeat(2000));
    let set =
        |length| map! {"action": "set_value", "path": path("big"), "value": "y".repeat(length)};
    assert_eq!(client.code(set(2001)), "memory_full");
    client.set("big", "y".repeat(2000));
    client.set("big", "y".repeat(1500));
    assert_eq!(client.code(set(1600)), "memory_full");
    let warnings = client.ok(map! {"action": "status"})["warnings"].clone();
    assert!(warnings[0].as_str().unwrap().contains("--max-memory is 1000 B"), "{warnings}");
    client.ok(map! {"action": "delete_value", "path": path("big")});
    client.set("big", "z".repeat(500));
    assert_eq!(client.ok(map! {"action": "status"})["warnings"].as_array().unwrap().len(), 0);
}

#[test]
fn a_value_at_its_limit_is_kept_and_one_beyond_is_refused() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let value = "x".repeat(VALUE_BYTES_MAX - 5);
    client.set("a", value.as_str());
    assert_eq!(client.get("a"), Some(value.as_str().into()));
    // With what it is expected to be: the longest request that clients send.
    let both = map! {"action": "set_value", "path": path("a"), "value": value.as_str(), "prev": value.as_str()};
    client.ok(both);
    let set = |value: Value| map! {"action": "set_value", "path": path("a"), "value": value};
    assert_eq!(client.code(set(format!("{value}y").into())), "too_large");
    let mut deep = Value::Nil;
    for _ in 0..65 {
        deep = array([deep]);
    }
    assert_eq!(client.code(set(deep)), "too_large");
    let long = array((0..65).map(Value::from));
    let set = map! {"action": "set_value", "path": long, "value": 1};
    assert_eq!(client.code(set), "bad_request");
}

#[test]
fn replies_that_together_exceed_the_output_come_all_the_same() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.set("a", "x".repeat(1 << 20));
    let seqs: Vec<u64> =
        (0..40).map(|_| client.start(map! {"action": "get_value", "path": path("a")})).collect();
    for seq in seqs {
        assert_eq!(text(&client.reply(seq), "value").len(), 1 << 20);
    }
}

#[test]
fn only_so_many_streams_are_open_and_no_number_twice() {
    let config = ServerConfig { open_requests_max: 5, ..ServerConfig::default() };
    let node = Node::found_with("n1", config);
    let mut client = node.connect();
    let watch = || map! {"action": "watch", "path": path("a")};
    let first = client.start(watch());
    client.reply(first);
    client.send(map! {"action": "watch", "path": path("a"), "seq": first});
    assert_eq!(text(&client.reply(first), "code"), "bad_request");
    for _ in 0..4 {
        let seq = client.start(watch());
        assert_eq!(text(&client.reply(seq), "state"), "start");
    }
    // Clients of streams wait for a stream, also where it is only an error.
    let refused = client.start(watch());
    assert_eq!(text(&client.reply(refused), "state"), "start");
    assert_eq!(text(&client.reply(refused), "code"), "too_many");
    assert_eq!(text(&client.reply(refused), "state"), "end");
    client.ok(map! {"action": "stop", "task": first});
    let seq = client.start(watch());
    assert_eq!(text(&client.reply(seq), "state"), "start");
}

#[test]
fn ten_thousand_watches_of_one_connection_hear_of_their_entry_each() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let at = |i: u64| array([Value::from("w"), i.into()]);
    let seqs: Vec<u64> =
        (0..10_000).map(|i| client.start(map! {"action": "watch", "path": at(i)})).collect();
    for seq in &seqs {
        assert_eq!(text(&client.reply(*seq), "state"), "start");
    }
    let mut writer = node.connect();
    for i in (0..10_000).step_by(99) {
        writer.ok(map! {"action": "set_value", "path": at(i), "value": i});
        assert_eq!(client.reply(seqs[i as usize])["value"].as_u64(), Some(i));
    }
}

#[test]
fn a_message_that_is_too_much_is_answered_and_the_connection_stays() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let mut deep = Value::Nil;
    for _ in 0..200 {
        deep = array([deep]);
    }
    let long = Value::Binary(vec![7; 20 << 20]);
    for value in [deep, long] {
        // The number comes last, as clients of the original send it.
        client.send(map! {"action": "set_value", "path": path("a"), "value": value, "seq": 700});
        client.send(map! {"action": "get_value", "path": path("a"), "seq": 701});
        let error = client.receive().unwrap();
        assert_eq!((error["seq"].as_u64(), text(&error, "code")), (Some(700), "too_large"));
        assert_eq!(client.receive().unwrap()["seq"].as_u64(), Some(701));
    }
    client.set("a", 1);
}

#[test]
fn one_connection_too_many_is_told_so() {
    let config = ServerConfig { connections_max: 2, ..ServerConfig::default() };
    let node = Node::found_with("n1", config);
    let (mut a, b) = (node.connect(), node.connect());
    let mut third = Client::silent(node.address());
    assert_eq!(text(&third.receive().unwrap(), "code"), "too_many");
    assert!(third.receive().is_none());
    a.set("a", 1);
    drop(b);
    // As soon as the node has noticed, there is room again.
    loop {
        let mut again = Client::silent(node.address());
        if again.receive().unwrap()["seq"].as_u64() == Some(0) {
            break;
        }
    }
}

#[test]
fn who_is_refused_is_told_why_however_many_are() {
    let config = ServerConfig { connections_max: 1, refusals_max: 0, ..ServerConfig::default() };
    let node = Node::found_with("n1", config);
    let _only = node.connect();
    for _ in 0..20 {
        let mut other = Client::silent(node.address());
        assert_eq!(text(&other.receive().expect("an error"), "code"), "too_many");
        assert!(other.receive().is_none());
    }
}

#[test]
fn a_client_of_the_node_s_own_machine_may_look_where_there_is_no_room() {
    let config =
        ServerConfig { connections_max: 1, kept_connections: 1, ..ServerConfig::default() };
    let node = Node::found_with("n1", config);
    let mut only = node.connect();
    only.set("a", 1);
    let mut looking = node.connect();
    let status = looking.ok(map! {"action": "status"});
    let counts = ["connections", "connections_max", "connections_kept"];
    assert_eq!(counts.map(|name| status[name].as_u64()), [Some(2), Some(1), Some(1)]);
    looking.ok(map! {"action": "members"});
    looking.ok(map! {"action": "clients"});
    // There is no other place, not even to look.
    let mut third = Client::silent(node.address());
    assert_eq!(text(&third.receive().unwrap(), "code"), "too_many");
    // It has no place among the others: when one of those is free, somebody else gets it.
    drop(only);
    let mut other = loop {
        let mut other = Client::silent(node.address());
        if other.receive().unwrap()["seq"].as_u64() == Some(0) {
            break other;
        }
    };
    other.set("a", 2);
    // What came before something else is answered; that is refused, and its place is free for the next.
    let before = looking.start(map! {"action": "status"});
    let refused = looking.error(map! {"action": "get_value", "path": path("a")});
    assert_eq!(text(&refused, "code"), "too_many");
    assert!(text(&refused, "error").contains("answers status, members and clients all the same"));
    assert_eq!(text(&looking.reply(before), "name"), "n1");
    // Also whoever asks more without waiting is told.
    let last = looking.receive().unwrap();
    assert_eq!((last["seq"].as_u64(), text(&last, "code")), (None, "too_many"));
    assert!(looking.receive().is_none());
    loop {
        let mut next = Client::silent(node.address());
        if next.receive().unwrap()["seq"].as_u64() == Some(0) {
            break;
        }
    }
}

#[test]
fn a_port_in_use_and_an_address_that_is_none_are_told_apart() {
    let node = Node::found("n1");
    let address = node.address().to_string();
    let error = node.bind_again(&address).err().unwrap();
    assert!(matches!(&error, ServerError::InUse { address: a } if *a == address));
    assert!(error.to_string().contains("in use"), "{error}");
    for bad in ["nonsense", "127.0.0.1", "127.0.0.1:99999", "256.0.0.1:1"] {
        let error = node.bind_again(bad).err().unwrap();
        assert!(matches!(error, ServerError::Bind { .. }), "{error}");
    }
}

#[test]
fn clients_are_served_over_ipv6_and_by_name() {
    let node = Node::found("n1");
    for address in ["[::1]:0", "localhost:0"] {
        let server: Server = match node.bind_again(address) {
            Ok(server) => server,
            Err(ServerError::Bind { error, .. }) if address.starts_with('[') => {
                // Some machines have no IPv6 at all.
                assert_eq!(error.kind(), std::io::ErrorKind::AddrNotAvailable);
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        Client::new(server.address(), 0).set("a", 1);
    }
}

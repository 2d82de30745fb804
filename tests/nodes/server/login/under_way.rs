//! What goes on of a connection while a login of it is under way, and what waits for that.

use super::{admin, boxed_joe, get, login, password, secured};
use crate::harness::{Client, Node, Value, encode, path, text};

/// Sends messages in one piece, so that they are looked at together.
fn send_together(client: &mut Client, messages: impl IntoIterator<Item = Value>) {
    let bytes: Vec<u8> = messages.into_iter().flat_map(|message| encode(&message)).collect();
    client.send_bytes(&bytes);
}

/// A request with a number that no other one has.
fn numbered(seq: u64, request: Value) -> Value {
    let Value::Map(mut fields) = request else { panic!("no map") };
    fields.push((Value::from("seq"), Value::from(seq)));
    Value::Map(fields)
}

/// The requests of the messages that come, until that one has ended a stream (without an error).
fn until_end_of(client: &mut Client, seq: u64) -> Vec<u64> {
    let mut seen = Vec::new();
    loop {
        let message = client.receive().expect("the server closed the connection");
        let of = message["seq"].as_u64().unwrap_or(0);
        seen.push(of);
        if of == seq {
            assert!(message["error"].is_nil(), "{message}");
            if message["state"].as_str() == Some("end") {
                return seen;
            }
        }
    }
}

/// A secured node with this user, and an admin's connection. On that one, only logins of the original's form are looked at.
fn with_joe() -> (Node, Client) {
    let node = secured();
    let mut client = admin(&node);
    client.ok(password("joe", "test123"));
    (node, client)
}

fn get_tock() -> Value {
    map! {"action": "get_tock"}
}

#[test]
fn who_is_known_already_is_answered_while_another_login_is_under_way() {
    let (_node, mut client) = with_joe();
    let joe = boxed_joe(&mut client);
    send_together(
        &mut client,
        [numbered(101, joe), numbered(102, get_tock()), numbered(103, get("x"))],
    );
    assert_eq!(until_end_of(&mut client, 101), [102, 103, 101, 101]);
}

#[test]
fn a_second_login_at_once_waits_for_the_first_and_what_is_behind_it_for_both() {
    let (_node, mut client) = with_joe();
    let joe = boxed_joe(&mut client);
    let joe = |seq| numbered(seq, joe.clone());
    send_together(
        &mut client,
        [joe(101), numbered(102, get_tock()), joe(103), numbered(104, get_tock())],
    );
    assert_eq!(until_end_of(&mut client, 101), [102, 101, 101]);
    // The second one is remembered, so it is answered at once.
    assert_eq!(until_end_of(&mut client, 103), [103, 103]);
    assert_eq!(client.receive().unwrap()["seq"].as_u64(), Some(104));
}

#[test]
fn streams_go_on_while_a_login_is_under_way_also_of_who_is_not_known_yet() {
    let (node, mut client) = with_joe();
    for n in 0..20 {
        client.set(&format!("tree.k{n:02}"), n);
    }
    // Clients need not log in there, so requests behind a login are those of the user.
    let open = Node::found("n1");
    let mut anybody = open.connect_with_qlen(4);
    anybody.ok(password("joe", "test123"));
    for n in 0..20 {
        anybody.set(&format!("tree.k{n:02}"), n);
    }
    let mut known = Client::new(node.address(), 4);
    known.send(numbered(1, super::key_login(&known, &super::KEY).0));
    until_end_of(&mut known, 1);
    for client in [&mut known, &mut anybody] {
        let joe = boxed_joe(client);
        let watch = map! {"action": "watch", "path": path("tree"), "fetch": true};
        client.send(numbered(100, watch));
        // It is paused there.
        for _ in 0..3 {
            assert_eq!(client.receive().unwrap()["seq"].as_u64(), Some(100));
        }
        client.silence(100);
        let ack = map! {"seq": 100, "state": "ack", "ack": 3};
        send_together(client, [numbered(101, joe), ack]);
        assert_eq!(until_end_of(client, 101), [100, 100, 100, 101, 101]);
    }
}

#[test]
fn what_is_behind_a_login_that_says_who_the_client_is_waits_for_it() {
    let (node, mut client) = with_joe();
    client.set("x", 1);
    let joe = |seq| numbered(seq, login("password", "joe", "test123"));
    // Many bytes, too: they do not come before the login.
    let long = || map! {"action": "set_value", "path": path("y"), "value": "x".repeat(200_000)};
    let mut stranger = node.connect();
    send_together(&mut stranger, [joe(101), numbered(102, get("x")), numbered(103, long())]);
    assert_eq!(until_end_of(&mut stranger, 101), [101, 101]);
    assert_eq!(stranger.receive().unwrap()["value"].as_i64(), Some(1));
    let written = stranger.receive().unwrap();
    assert!(written["seq"].as_u64() == Some(103) && written["error"].is_nil(), "{written}");
    // Who need not log in is somebody else behind it.
    let open = Node::found("n1");
    let mut anybody = open.connect();
    anybody.ok(password("joe", "test123"));
    send_together(&mut anybody, [joe(101), numbered(102, get_tock())]);
    assert_eq!(until_end_of(&mut anybody, 101), [101, 101]);
    assert_eq!(anybody.receive().unwrap()["seq"].as_u64(), Some(102));
}

#[test]
fn a_login_under_way_is_answered_to_a_client_that_has_closed_its_side() {
    let (node, mut client) = with_joe();
    for client in [&mut client, &mut node.connect()] {
        let joe = boxed_joe(client);
        send_together(client, [numbered(101, joe), numbered(102, get_tock())]);
        client.finish();
        let mut seen = Vec::new();
        while let Some(message) = client.receive() {
            assert!(message["error"].is_nil(), "{message}");
            seen.push(message["seq"].as_u64().unwrap());
        }
        seen.sort_unstable();
        assert_eq!(seen, [101, 101, 102]);
    }
}

#[test]
fn among_many_logins_at_once_a_connection_is_served_while_its_own_waits() {
    let (node, mut known) = with_joe();
    for n in 0..12 {
        known.ok(password(&format!("user{n}"), "test123"));
    }
    let joe = boxed_joe(&mut known);
    let watch = map! {"action": "watch", "path": path("x")};
    known.send(numbered(100, watch));
    assert_eq!(text(&known.receive().unwrap(), "state"), "start");
    let mut others: Vec<Client> = (0..12).map(|_| node.connect()).collect();
    for (n, other) in others.iter_mut().enumerate() {
        other.send(numbered(1, login("password", &format!("user{n}"), "test123")));
    }
    let set = map! {"action": "set_value", "path": path("x"), "value": 1};
    send_together(&mut known, [numbered(101, joe), numbered(102, set)]);
    let seen = until_end_of(&mut known, 101);
    assert_eq!(seen[0], 102);
    assert!(seen[1..].contains(&100), "{seen:?}");
    for other in &mut others {
        until_end_of(other, 1);
    }
}

//! Users whose open connections somebody ends: at every node, whatever they do, and the users stay.

use distkv::engine::{Engine, Input, LinkId};
use distkv::model::ids::{Incarnation, NodeId, NodeName};
use distkv::protocol::peer::PeerMessage;
use distkv::replica::write::Write;

use super::sides::{elsewhere, heal, serve, steal};
use super::{admin, last_error, limited, logged_in, login, password, secured};
use crate::harness::{Client, Node, Value, array, has, path, text};

/// Ends the open connections of a user with a password.
fn disconnect(user: &str) -> Value {
    map! {"action": "auth_disconnect", "typ": "password", "kind": "user", "ident": user}
}

/// A peer that confirms nothing by itself.
fn link(node: &Node, name: &str) -> LinkId {
    let (link, _) = node.hub.add_link();
    let peer = NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(1) };
    node.hub.handle(Input::LinkUp { link, peer }, 0);
    link
}

/// The same, and the user gets another password.
fn disconnect_with(user: &str, secret: &str) -> Value {
    map! {
        "action": "auth_disconnect", "typ": "password", "kind": "user", "ident": user, "secret": secret,
    }
}

/// An idle connection of joe's, and one that watches.
fn idle_and_watching(node: &Node, secret: &str) -> [Client; 2] {
    let idle = logged_in(node, "password", "joe", secret);
    let mut watcher = logged_in(node, "password", "joe", secret);
    let watch = watcher.start(map! {"action": "watch", "path": path("a")});
    assert_eq!(text(&watcher.reply(watch), "state"), "start");
    [idle, watcher]
}

/// They are closed, and told why.
fn are_ended(clients: &mut [Client]) {
    for client in clients {
        let error = last_error(client);
        assert_eq!(text(&error, "code"), "auth_required");
        let why = text(&error, "error");
        assert!(why.contains("\"joe\"") && why.contains("log in again"), "{why}");
    }
}

#[test]
fn connections_that_somebody_ends_end_at_every_node_that_hears_of_it_and_may_log_in_again() {
    let node = secured();
    let mut admin = admin(&node);
    for user in ["joe", "amy"] {
        admin.ok(limited(user, "test123", "*"));
    }
    let other = serve(elsewhere(&node));
    let mut amy = logged_in(&other, "password", "amy", "test123");
    // Who was disconnected before can be disconnected again.
    for n in 0..2 {
        let mut here = idle_and_watching(&node, "test123");
        let mut there = idle_and_watching(&other, "test123");
        assert_eq!(admin.ok(disconnect("joe"))["changed"].as_bool(), Some(true));
        are_ended(&mut here);
        there[0].ok(map! {"action": "get_tock"});
        heal(&node.hub, &other.hub);
        are_ended(&mut there);
        for side in [&node, &other] {
            logged_in(side, "password", "joe", "test123").set("a", n);
        }
    }
    amy.set("b", 1);
    // What an admin changes of the user afterwards ends nothing.
    let mut joe = logged_in(&other, "password", "joe", "test123");
    admin.ok(limited("joe", "test124", "*"));
    admin.ok(map! {"action": "auth_set", "typ": "password", "ident": "joe", "role": "operator"});
    heal(&node.hub, &other.hub);
    assert_eq!(text(&joe.ok(map! {"action": "auth_info"}), "role"), "operator");
}

#[test]
fn nobody_is_made_by_it_and_users_without_a_password_are_disconnected_as_well() {
    let node = secured();
    let mut admin = admin(&node);
    assert_eq!(admin.code(disconnect("joe")), "not_found");
    assert_eq!(admin.code(disconnect_with("joe", "test123")), "not_found");
    admin.ok(limited("joe", "test123", "*"));
    admin.ok(map! {"action": "auth_delete", "typ": "password", "ident": "joe"});
    assert_eq!(admin.code(disconnect_with("joe", "test123")), "not_found");
    let old = "t".repeat(40);
    let of_token = |action: &str, secret: Option<&str>| {
        map! {"action": action, "typ": "token", "ident": "panel", "secret": secret.map_or(Value::Nil, Value::from)}
    };
    admin.ok(of_token("auth_set", Some(&old)));
    let mut panel = logged_in(&node, "token", "panel", &old);
    let reply = admin.ok(of_token("auth_disconnect", None));
    assert!(!has(&reply, "token"), "the token stays: {reply}");
    assert_eq!(text(&last_error(&mut panel), "code"), "auth_required");
    let mut panel = logged_in(&node, "token", "panel", &old);
    admin.ok(of_token("auth_disconnect", Some(&"n".repeat(40))));
    assert_eq!(text(&last_error(&mut panel), "code"), "auth_required");
    assert_eq!(node.connect().code(login("token", "panel", &old)), "auth_failed");
    logged_in(&node, "token", "panel", &"n".repeat(40));
}

#[test]
fn a_new_secret_and_the_end_of_all_connections_are_one_change() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "*"));
    let other = serve(elsewhere(&node));
    let mut thieves = idle_and_watching(&other, "test123");
    let tick = || node.hub.read(Engine::tick).unwrap().get();
    let before = tick();
    admin.ok(disconnect_with("joe", "new12345"));
    assert_eq!(tick(), before + 1);
    heal(&node.hub, &other.hub);
    are_ended(&mut thieves);
    for side in [&node, &other] {
        assert_eq!(side.connect().code(login("password", "joe", "test123")), "auth_failed");
        logged_in(side, "password", "joe", "new12345").set("a", 1);
    }
}

#[test]
fn a_user_ends_its_own_connections_and_nobody_else_s_and_only_with_the_present_secret() {
    let node = secured();
    let mut admin = admin(&node);
    for user in ["joe", "amy"] {
        admin.ok(limited(user, "test123", "*"));
    }
    let mut joe = logged_in(&node, "password", "joe", "test123");
    assert_eq!(joe.code(disconnect("amy")), "denied");
    assert_eq!(joe.code(disconnect_with("amy", "new12345")), "denied");
    // The connection that asks for it gets its answer, and ends with the others.
    let mut others = idle_and_watching(&node, "test123");
    joe.ok(disconnect("joe"));
    assert!(joe.receive().is_none(), "no error follows");
    are_ended(&mut others);
    let mut joe = logged_in(&node, "password", "joe", "test123");
    let mut thief = logged_in(&node, "password", "joe", "test123");
    joe.ok(disconnect_with("joe", "new12345"));
    assert!(joe.receive().is_none(), "no error follows");
    are_ended(std::slice::from_mut(&mut thief));
    // With a secret that was replaced, nobody ends the connections of who has the new one.
    let mut thief = logged_in(&node, "password", "joe", "new12345");
    let mut joe = logged_in(&node, "password", "joe", "new12345");
    joe.ok(password("joe", "own12345"));
    assert_eq!(thief.code(disconnect("joe")), "denied");
    joe.set("a", 1);
}

/// Whoever has it done can see whether it still counts: another node's change may have won.
#[test]
fn the_id_of_the_last_end_is_told_and_an_admin_sees_whether_it_is_still_that_one() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "*"));
    let id = |reply: &Value| reply["disconnect"].as_slice().map(<[u8]>::to_vec);
    let get = || map! {"action": "auth_get", "typ": "password", "ident": "joe"};
    assert_eq!(id(&admin.ok(get())), None);
    let cut_off = serve(elsewhere(&node));
    let mut thief = steal(&cut_off, "test123");
    let made = id(&admin.ok(disconnect("joe")));
    assert_eq!(made.as_ref().map(Vec::len), Some(16));
    assert_eq!(id(&admin.ok(get())), made);
    heal(&cut_off.hub, &node.hub);
    assert_eq!(id(&admin.ok(get())), None, "the thief's change has won");
    let again = id(&admin.ok(disconnect("joe")));
    assert!(again.is_some() && again != made);
    // What an admin changes afterwards keeps it.
    admin.ok(limited("joe", "test124", "*"));
    assert_eq!(id(&admin.ok(get())), again);
    heal(&node.hub, &cut_off.hub);
    are_ended(std::slice::from_mut(&mut thief));
}

#[test]
fn its_answer_waits_for_those_that_are_linked_if_it_is_asked_to_and_there_are_none_here() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "*"));
    let waits = map! {
        "action": "auth_disconnect", "typ": "password", "ident": "joe", "timeout": 3_600,
    };
    let told = admin.ok(waits);
    assert_eq!(told["confirmed"].as_bool(), Some(true));
    assert!(!has(&told, "own"), "the connection goes on: {told}");
    assert!(!has(&admin.ok(disconnect("joe")), "confirmed"));
    // Whose own connection ends is told that nothing else comes over it.
    let mut joe = logged_in(&node, "password", "joe", "test123");
    assert_eq!(joe.ok(disconnect("joe"))["own"].as_bool(), Some(true));
}

#[test]
fn its_answer_waits_until_all_that_are_linked_have_it_and_tells_whether_they_do() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "*"));
    let [one, two] = ["p", "q"].map(|name| link(&node, name));
    let waits = |seconds: f64| {
        map! {
            "action": "auth_disconnect", "typ": "password", "ident": "joe", "timeout": seconds,
        }
    };
    let mut joe = logged_in(&node, "password", "joe", "test123");
    let late = admin.ok(waits(0.05));
    assert_eq!((&late["confirmed"], &late["changed"]), (&false.into(), &true.into()));
    are_ended(std::slice::from_mut(&mut joe));
    let seq = admin.start(waits(3_600.0));
    admin.silence(seq);
    // It is made here already, and others do not wait for it.
    admin.set("a", 1);
    let tick = node.hub.read(Engine::tick).unwrap();
    let confirm = |link| {
        let messages = vec![PeerMessage::Ack(tick)];
        node.hub.handle(Input::Messages { link, messages }, 1);
    };
    confirm(one);
    admin.silence(seq);
    confirm(two);
    assert_eq!(admin.reply(seq)["confirmed"].as_bool(), Some(true));
    // Whoever ends its own connection gets its answer all the same.
    let mut joe = logged_in(&node, "password", "joe", "test123");
    let told = joe.ok(waits(3_600.0));
    assert_eq!((&told["confirmed"], &told["own"]), (&false.into(), &true.into()));
    assert!(joe.receive().is_none(), "no error follows");
    // A peer that is not linked any more is not waited for.
    let seq = admin.start(waits(3_600.0));
    admin.silence(seq);
    for link in [one, two] {
        node.hub.handle(Input::LinkDown { link }, 2);
    }
    assert_eq!(admin.reply(seq)["confirmed"].as_bool(), Some(true));
}

#[test]
fn members_that_are_not_linked_are_named_and_it_is_not_confirmed() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "*"));
    let peer = link(&node, "p");
    let waits = |seconds: f64| {
        map! {
            "action": "auth_disconnect", "typ": "password", "ident": "joe", "timeout": seconds,
        }
    };
    let unreached = |names: &[&str]| {
        *node.info.unreached.lock().unwrap() = names.iter().map(ToString::to_string).collect();
    };
    let confirm = || {
        let messages = vec![PeerMessage::Ack(node.hub.read(Engine::tick).unwrap())];
        node.hub.handle(Input::Messages { link: peer, messages }, 1);
    };
    // They are those of the moment of the answer, and nobody waits for them.
    let seq = admin.start(waits(3_600.0));
    admin.silence(seq);
    unreached(&["q", "r"]);
    confirm();
    let told = admin.reply(seq);
    assert_eq!((&told["confirmed"], &told["unreached"]), (&false.into(), &array(["q", "r"])));
    assert!(!has(&told, "unconfirmed") && !has(&told, "unreached_more"), "{told}");
    // A linked one that is late is told apart.
    let late = admin.ok(waits(0.05));
    assert_eq!((&late["confirmed"], &late["unconfirmed"]), (&false.into(), &1.into()));
    assert_eq!(late["unreached"], array(["q", "r"]));
    // Whoever ends its own connection is told, too.
    let mut joe = logged_in(&node, "password", "joe", "test123");
    assert_eq!(joe.ok(waits(3_600.0))["unreached"], array(["q", "r"]));
    // Of many, some, and how many more.
    let many: Vec<String> = (0..70).map(|n| format!("m{n:02}")).collect();
    unreached(&many.iter().map(String::as_str).collect::<Vec<_>>());
    let told = admin.ok(waits(0.05));
    assert_eq!(told["unreached"], array(many[..64].iter().map(String::as_str)));
    assert_eq!(told["unreached_more"], 6.into());
    // They are back.
    let seq = admin.start(waits(3_600.0));
    admin.silence(seq);
    unreached(&[]);
    confirm();
    let told = admin.reply(seq);
    assert_eq!(told["confirmed"].as_bool(), Some(true));
    assert!(!has(&told, "unreached"), "{told}");
    // Without a time to wait for, nothing is said of others.
    unreached(&["q"]);
    assert!(!has(&admin.ok(disconnect("joe")), "unreached"));
}

#[test]
fn it_changes_neither_role_nor_list_and_says_so() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "*"));
    let mut joe = logged_in(&node, "password", "joe", "test123");
    for (field, value) in [("acl", "lamps"), ("role", "operator")] {
        let mut request = disconnect("joe");
        let Value::Map(fields) = &mut request else { panic!("it is a map") };
        fields.push((field.into(), value.into()));
        let error = admin.error(request);
        assert_eq!(text(&error, "code"), "bad_request");
        assert!(text(&error, "error").contains(&format!("bad field '{field}'")), "{error}");
    }
    joe.set("a", 1);
}

#[test]
fn where_nobody_must_log_in_the_answer_says_so() {
    let open = Node::found("n1");
    let mut admin = open.connect();
    admin.ok(limited("joe", "test123", "*"));
    assert_eq!(admin.ok(disconnect("joe"))["open"].as_bool(), Some(true));
    let node = secured();
    let mut admin = super::admin(&node);
    admin.ok(limited("joe", "test123", "*"));
    assert!(!has(&admin.ok(disconnect("joe")), "open"));
}

/// As if a node of an older version had made the record, which knows nothing of it.
#[test]
fn a_record_without_that_field_ends_the_connections_that_knew_of_it_and_logs_in_all_the_same() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "*"));
    let stored = || {
        let at: distkv::model::path::Path = ":n.auth.password.user.joe".parse().unwrap();
        node.hub.read(|engine| engine.get(at.as_bytes()).unwrap().value().unwrap().to_vec())
    };
    let before = stored();
    admin.ok(disconnect("joe"));
    assert_ne!(stored(), before);
    let mut joe = logged_in(&node, "password", "joe", "test123");
    let at = ":n.auth.password.user.joe".parse().unwrap();
    node.hub.write(Write::new(&at, Some(&before)), false).0.unwrap();
    are_ended(std::slice::from_mut(&mut joe));
    logged_in(&node, "password", "joe", "test123").set("a", 1);
}

#[test]
fn of_two_admins_who_end_connections_on_two_sides_both_end_those_that_the_other_has_let_in() {
    let node = secured();
    let mut here = admin(&node);
    here.ok(limited("joe", "test123", "*"));
    let cut_off = serve(elsewhere(&node));
    let mut there = admin(&cut_off);
    let mut old = idle_and_watching(&cut_off, "test123");
    // Here, connections are ended, and the thief comes back; there, the secret is replaced, too, and that wins.
    here.ok(disconnect("joe"));
    let mut thief = logged_in(&node, "password", "joe", "test123");
    for n in 0..20 {
        there.set("x", n);
    }
    there.ok(disconnect_with("joe", "new12345"));
    are_ended(&mut old);
    let mut joe = logged_in(&cut_off, "password", "joe", "new12345");
    heal(&node.hub, &cut_off.hub);
    heal(&cut_off.hub, &node.hub);
    are_ended(std::slice::from_mut(&mut thief));
    joe.set("a", 1);
}

#[test]
fn a_change_of_the_user_that_wins_and_did_not_know_of_it_keeps_connections_at_its_side() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "*"));
    let cut_off = serve(elsewhere(&node));
    // The thief sets another secret there, and that has the greater tock.
    let mut thief = steal(&cut_off, "test123");
    admin.ok(disconnect_with("joe", "new12345"));
    let mut joe = logged_in(&node, "password", "joe", "new12345");
    let before = node.hub.read(Engine::counters).conflicts;
    heal(&cut_off.hub, &node.hub);
    heal(&node.hub, &cut_off.hub);
    assert_eq!(node.hub.read(Engine::counters).conflicts, before + 1);
    thief.set("a", 1);
    are_ended(std::slice::from_mut(&mut joe));
    // Once more, now that both know of both.
    admin.ok(disconnect_with("joe", "last1234"));
    heal(&node.hub, &cut_off.hub);
    are_ended(std::slice::from_mut(&mut thief));
    logged_in(&cut_off, "password", "joe", "last1234").set("a", 2);
}

//! Watches of users: each change by the rights of the moment in which it is sent, whatever other watches share
//! with it, however late it is sent, and with conflicts.

use super::{Place, at, entries, failed, numbers};
use crate::harness::{Client, Value, array, has, path, text};
use crate::server::streams::conflicts::Peer;
use crate::server::streams::watches_and_purges::{UNHEARD, deletion, leave_tree};

fn watch(client: &mut Client, at: &str) -> u64 {
    let seq = client.start(map! {"action": "watch", "path": path(at)});
    assert_eq!(text(&client.reply(seq), "state"), "start");
    seq
}

fn set(at: &str, value: u64) -> Value {
    map! {"action": "set_value", "path": path(at), "value": value}
}

fn delete(at: &str) -> Value {
    map! {"action": "delete_value", "path": path(at)}
}

/// Changes that are made together.
fn together(client: &mut Client, ops: Vec<Value>) {
    let done = client.ok(map! {"action": "batch", "ops": Value::Array(ops)});
    assert!(
        done["results"].as_array().unwrap().iter().all(|result| !has(result, "error")),
        "{done}"
    );
}

/// What a watch has sent so far; it ends.
fn sent(client: &mut Client, seq: u64) -> Vec<(super::Elements, Option<Value>)> {
    client.ok(map! {"action": "stop", "task": seq});
    entries(&client.rest(seq))
}

#[test]
fn watches_that_share_changes_send_each_its_own_part_with_paths_that_fit() {
    let mut place = Place::new();
    let mut users = [
        place.user("joe", &[("a", "rx"), ("a.one.#", "rx"), ("a.one", "rx")]),
        place.user("jim", &[("a", "rx"), ("a.two.#", "rx"), ("a.two", "x")]),
        place.login("joe", 0),
    ];
    let mut admins = [place.node.connect(), place.node.connect()];
    let users_watch = users.each_mut().map(|user| watch(user, "a"));
    let admins_watch = admins.each_mut().map(|admin| watch(admin, "a"));
    let paths = ["a.one.x", "a.two.x", "a.one.y", "a.two", "a.two.y", "a", "a.one", "b"];
    together(&mut place.admin, paths.iter().zip(1..).map(|(at, n)| set(at, n)).collect());
    let joe = numbers(&[("one.x", 1), ("one.y", 3), (":", 6), ("one", 7)]);
    let jim = numbers(&[("two.x", 2), ("two.y", 5), (":", 6)]);
    let expected = [joe.clone(), jim, joe];
    for ((user, seq), expected) in users.iter_mut().zip(users_watch).zip(expected) {
        assert_eq!(sent(user, seq), expected);
    }
    for (admin, seq) in admins.iter_mut().zip(admins_watch) {
        assert_eq!(sent(admin, seq).len(), 7);
    }
}

#[test]
fn rights_that_change_amid_changes_that_were_made_together_count_for_the_rest() {
    let mut place = Place::new();
    let mut other = place.node.connect();
    let others = watch(&mut other, "a");
    // An admin until a list is set.
    place.put(":n.auth.password.user.ada", Some(map! {"role": "admin"}));
    let mut ada = place.login("ada", 4);
    let seq = watch(&mut ada, "a");
    let paths = ["a.b.x", "a.c.y", "a.b.y", "a.c.z", "a.b.z"];
    together(&mut place.admin, paths.iter().zip(1..).map(|(at, n)| set(at, n)).collect());
    let mut got = vec![ada.reply(seq), ada.reply(seq)];
    ada.silence(seq);
    place.list("ada", &[("a", "x"), ("a.b.#", "rx"), ("a.b", "x")]);
    place.record("ada", "user");
    for acked in 3..=4 {
        ada.ack(seq, acked);
        got.push(ada.reply(seq));
    }
    assert_eq!(entries(&got), numbers(&[("b.x", 1), ("c.y", 2), ("b.y", 3), ("b.z", 5)]));
    assert_eq!(sent(&mut other, others).len(), 5);
}

#[test]
fn a_deletion_is_told_only_of_what_could_be_read() {
    let mut place = Place::new();
    let mut user = place.user("joe", &[("a.#", "rx"), ("a", "x"), ("a.shut.#", "x")]);
    for at in ["a.x", "a.shut.x"] {
        place.admin.set(at, 1);
    }
    let seq = watch(&mut user, "a");
    together(&mut place.admin, vec![delete("a.shut.x"), delete("a.x"), set("a.shut.y", 1)]);
    // What is not readable any more is not told as if it were gone.
    assert_eq!(sent(&mut user, seq), [(at("x"), None)]);
}

#[test]
fn a_backlog_is_sent_by_the_rights_of_later() {
    let mut place = Place::new();
    let mut user = place.user_with_qlen("joe", &[("a.#", "rx"), ("a", "x")], 3);
    let seq = watch(&mut user, "a");
    for n in 0..20 {
        place.admin.ok(set(&format!("a:{n}"), n));
    }
    assert_eq!(user.reply(seq)["value"].as_u64(), Some(0));
    user.silence(seq);
    place.list("joe", &[("a.+", ""), ("a:17", "r")]);
    user.ack(seq, 2);
    assert_eq!(user.reply(seq)["value"].as_u64(), Some(17));
    user.ack(seq, 3);
    user.silence(seq);
}

#[test]
fn a_watch_that_starts_over_sends_what_may_be_seen_then() {
    let mut place = Place::new();
    for at in ["a.shut.gone", "a.gone", "a.late.gone"] {
        place.admin.set(at, 1);
    }
    let lists = [("a.#", "rx"), ("a", "x"), ("a.shut.#", "x")];
    let mut user = place.user_with_qlen("joe", &lists, 2);
    let request = map! {"action": "watch", "path": path("a"), "restart": true};
    let seq = user.start(request);
    assert_eq!(text(&user.reply(seq), "state"), "start");
    // More than may wait for a watch.
    let big = "x".repeat(1 << 20);
    for n in 0..6 {
        for part in ["open", "shut", "late"] {
            place.admin.set(&format!("a.{part}:{n}"), big.as_str());
        }
    }
    together(
        &mut place.admin,
        vec![delete("a.shut.gone"), delete("a.gone"), delete("a.late.gone")],
    );
    place.list("joe", &[("a.late.#", "")]);
    // Entries that are in no tree any more.
    let at_ticks = ["a.shut.purged", "a.purged", "a.late.purged"].into_iter().zip(UNHEARD..);
    let purged = at_ticks.map(|(at, tick)| deletion(&place.node, at, tick)).collect();
    leave_tree(&place.node, purged, Vec::new());
    let (mut messages, mut acked) = (Vec::new(), 1);
    let is_done = |messages: &[Value]| {
        let seen: Vec<_> = entries(messages).into_iter().map(|(path, _)| path).collect();
        seen.contains(&at("open:5")) && seen.contains(&at("gone"))
    };
    while !is_done(&messages) {
        user.ack(seq, acked);
        acked += 1;
        messages.push(user.reply(seq));
    }
    assert_eq!(text(&messages[0], "state"), "restart");
    user.ack(seq, 100);
    user.ok(map! {"action": "stop", "task": seq});
    messages.extend(user.rest(seq));
    let mut seen: Vec<_> = entries(&messages).into_iter().map(|(path, _)| path).collect();
    seen.sort();
    let mut expected: Vec<_> = (0..6).map(|n| at(&format!("open:{n}"))).collect();
    expected.extend([at("gone"), at("purged")]);
    expected.sort();
    assert_eq!(seen, expected);
}

#[test]
fn only_conflicts_of_what_may_be_read_are_told() {
    let mut place = Place::new();
    let mut user = place.user("joe", &[("a.#", "rx"), ("a", "x"), ("a.shut.#", "x")]);
    let request = map! {"action": "watch", "path": path("a"), "conflicts": true};
    let seq = user.start(request);
    assert_eq!(text(&user.reply(seq), "state"), "start");
    for at in ["a.shut.x", "a.open"] {
        place.admin.set(at, "ours");
    }
    let mut peer = Peer::new(&place.node);
    peer.push("a.open", Some(&[6]), 100);
    peer.push("a.shut.x", Some(&[5]), 200);
    let told: Vec<Value> = (0..3).map(|_| user.reply(seq)).collect();
    assert!(
        told.iter()
            .all(|message| message["path"] == array(["open"]) || message["depth"] == 1.into()),
        "{told:?}"
    );
    assert_eq!(told.iter().filter(|message| has(message, "conflict")).count(), 1);
    assert!(sent(&mut user, seq).is_empty());

    let recent = |limit: u64| map! {"action": "conflicts", "path": path(":"), "limit": limit};
    for limit in [1, 10] {
        let told = user.stream(recent(limit));
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0]["conflict"]["loser"]["value"].as_str(), Some("ours"));
    }
    assert_eq!(place.admin.stream(recent(10)).len(), 2);
    place.list("joe", &[("a.#", "x")]);
    assert!(user.stream(recent(10)).is_empty());
}

#[test]
fn a_watch_whose_top_is_lost_ends_and_others_go_on() {
    let mut place = Place::new();
    let mut user = place.user("joe", &[("a", "x"), ("a.#", "rx"), ("b", "x"), ("b.#", "rx")]);
    let (lost, kept) = (watch(&mut user, "a"), watch(&mut user, "b"));
    // Nothing else happens: the watch idles.
    place.list("joe", &[("a", "r")]);
    assert_eq!(entries(&user.rest(lost)), [failed("denied")]);
    place.admin.ok(set("b.c", 1));
    assert_eq!(user.reply(kept)["value"].as_u64(), Some(1));
}

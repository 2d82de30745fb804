//! Rights that are taken away while something runs.

mod lasting;

use super::{Place, entries, failed, numbers};
use crate::harness::{Client, Value, has, path, text};

fn set(at: &str, value: u64) -> Value {
    map! {"action": "set_value", "path": path(at), "value": value}
}

/// The connection ends, and says why.
fn assert_ends(user: &mut Client) {
    let mut last = Value::Nil;
    while let Some(message) = user.receive() {
        last = message;
    }
    assert_eq!(text(&last, "code"), "auth_required");
    assert!(text(&last, "error").contains("was removed"), "{last}");
}

/// How a user is removed, in words and in deed.
type Removal = (&'static str, fn(&Place));

#[test]
fn a_watch_that_began_before_a_revocation_tells_nothing_more() {
    let mut place = Place::new();
    let mut user = place.user("joe", &[("a.#", "rx"), ("a", "x")]);
    let seq = user.start(map! {"action": "watch", "path": path("a")});
    assert_eq!(text(&user.reply(seq), "state"), "start");
    place.admin.ok(set("a.b", 1));
    assert_eq!(user.reply(seq)["value"].as_u64(), Some(1));
    place.list("joe", &[("a.b", "x")]);
    for n in 2..50 {
        place.admin.ok(set("a.b", n));
    }
    place.admin.ok(set("a.c", 50));
    assert_eq!(user.reply(seq)["value"].as_u64(), Some(50));
    // What is given back is told: first what the user missed, then what follows.
    place.list("joe", &[("a.b", "r")]);
    assert_eq!(user.reply(seq)["value"].as_u64(), Some(49));
    place.admin.ok(set("a.b", 51));
    assert_eq!(user.reply(seq)["value"].as_u64(), Some(51));
}

#[test]
fn what_is_written_after_a_revocation_is_never_told_however_close_they_are() {
    let mut place = Place::new();
    let mut user = place.user("joe", &[("a", "x"), ("a.+", "r"), ("::msg.#", "r")]);
    let watch = user.start(map! {"action": "watch", "path": path("a")});
    assert_eq!(text(&user.reply(watch), "state"), "start");
    let monitor = user.start(map! {"action": "msg_monitor", "topic": path("t.#")});
    assert_eq!(text(&user.reply(monitor), "state"), "start");
    let send = |n: u64, data: u64| {
        let topic = Value::Array(vec!["t".into(), n.to_string().into()]);
        map! {"action": "msg_send", "topic": topic, "data": data}
    };
    for n in 0..200 {
        // The stream's turn for these is perhaps under way while those of after the revocation are written.
        place.admin.ok(set(&format!("a:{n}"), 2 * n));
        place.admin.ok(send(n, 2 * n));
        place.list("joe", &[(&format!("a:{n}"), ""), (&format!("::msg.t.{n}"), "")]);
        place.admin.ok(set(&format!("a:{n}"), 1));
        place.admin.ok(send(n, 1));
    }
    let last = 1_000_000;
    place.admin.ok(set("a.last", last));
    place.admin.ok(send(last, last));
    for (seq, field) in [(watch, "value"), (monitor, "data")] {
        loop {
            let got = user.reply(seq)[field].as_u64().unwrap();
            assert_eq!(got % 2, 0, "what was written after the right was taken");
            if got == last {
                break;
            }
        }
    }
}

#[test]
fn a_revocation_amid_a_walk_counts_for_its_rest() {
    let mut place = Place::new();
    for n in 0..200 {
        place.admin.ok(set(&format!("a:{n}"), n));
    }
    for (action, fetch) in [("get_tree", false), ("watch", true)] {
        let name = format!("of_{action}");
        let mut user = place.user_with_qlen(&name, &[("a.#", "rx"), ("a", "xe")], 4);
        let seq = user.start(map! {"action": action, "path": path("a"), "fetch": fetch});
        assert_eq!(text(&user.reply(seq), "state"), "start");
        let mut got = vec![user.reply(seq), user.reply(seq)];
        user.silence(seq);
        place.list(&name, &[("a.+", ""), ("a:150", "r")]);
        user.ack(seq, 3);
        got.push(user.reply(seq));
        assert_eq!(entries(&got), numbers(&[(":0", 0), (":1", 1), (":150", 150)]), "{action}");
        user.ack(seq, 4);
        let last = user.reply(seq);
        let state = if fetch { "uptodate" } else { "end" };
        assert_eq!(text(&last, "state"), state);
    }
}

#[test]
fn places_on_the_way_to_what_is_revoked_are_not_sent_any_more() {
    let mut place = Place::new();
    place.admin.ok(set("a.b.c.d", 1));
    let mut user = place.user_with_qlen("joe", &[("a", "xe"), ("a.#", "rxe")], 3);
    let seq = user.start(map! {"action": "get_tree", "path": path("a"), "empty": true});
    assert_eq!(text(&user.reply(seq), "state"), "start");
    assert!(!has(&user.reply(seq), "value"), "the top");
    user.silence(seq);
    place.list("joe", &[("a.b.c.d", "")]);
    user.ack(seq, 2);
    assert_eq!(text(&user.reply(seq), "state"), "end");
}

#[test]
fn a_walk_whose_top_is_lost_ends_with_an_error() {
    let mut place = Place::new();
    for n in 0..20 {
        place.admin.ok(set(&format!("a:{n}"), n));
    }
    let mut user = place.user_with_qlen("joe", &[("a.#", "rx"), ("a", "xe")], 3);
    let seq = user.start(map! {"action": "get_tree", "path": path("a")});
    assert_eq!(text(&user.reply(seq), "state"), "start");
    user.reply(seq);
    place.list("joe", &[("a", "r")]);
    user.ack(seq, 2);
    assert_eq!(entries(&user.rest(seq)), [failed("denied")]);
}

#[test]
fn a_user_that_is_removed_is_cut_off_while_its_streams_idle() {
    let place = Place::new();
    let removals: [Removal; 3] = [
        ("revoked", |place| place.put(":n.auth.revoked.password.revoked", Some(true.into()))),
        ("deleted", |place| place.put(":n.auth.password.user.deleted", None)),
        ("broken", |place| place.put(":n.auth.password.user.broken", Some(1.into()))),
    ];
    for (name, remove) in removals {
        let mut user = place.user(name, &[("a.#", "rx"), ("a", "x")]);
        let mut quiet = place.login(name, 0);
        quiet.ok(map! {"action": "get_tock"});
        let seq = user.start(map! {"action": "watch", "path": path("a")});
        assert_eq!(text(&user.reply(seq), "state"), "start");
        remove(&place);
        assert_ends(&mut user);
        // Also one that has nothing open.
        assert_ends(&mut quiet);
        // The next one with that name gets nothing either.
        let code = place.login(name, 0).code(map! {"action": "get_value", "path": path("a.b")});
        assert_eq!(code, "auth_required");
    }
}

#[test]
fn a_user_whose_list_is_lost_may_do_nothing_but_stays() {
    let mut place = Place::new();
    place.admin.ok(set("a.b", 1));
    let mut user = place.user("joe", &[("#", "rwcdxen")]);
    let seq = user.start(map! {"action": "watch", "path": path("a")});
    assert_eq!(text(&user.reply(seq), "state"), "start");
    assert_eq!(user.get("a.b"), Some(1.into()));
    place.put(":n.auth.password.user.joe.acl", None);
    assert_eq!(entries(&user.rest(seq)), [failed("denied")]);
    assert_eq!(user.code(map! {"action": "get_value", "path": path("a.b")}), "denied");
    // The entry that clients read when they start.
    assert_eq!(user.get(":.distkv.config"), None);
}

#[test]
fn an_admin_that_becomes_a_user_amid_a_deletion_deletes_no_more() {
    let mut place = Place::new();
    let ops = |from: u64| (from..from + 1000).map(|n| set(&format!("a:{n}"), n)).collect();
    for from in [0, 1000] {
        place.admin.ok(map! {"action": "batch", "ops": Value::Array(ops(from))});
    }
    place.put(":n.auth.password.user.ada", Some(map! {"role": "admin"}));
    let mut ada = place.login("ada", 3);
    let seq = ada.start(map! {"action": "delete_tree", "path": path("a"), "nchain": 1});
    assert_eq!(text(&ada.reply(seq), "state"), "start");
    ada.reply(seq);
    place.record("ada", "user");
    let mut acked = 2;
    let end = loop {
        ada.ack(seq, acked);
        acked += 1;
        let message = ada.reply(seq);
        if has(&message, "error") {
            break message;
        }
    };
    assert_eq!(text(&end, "code"), "denied");
    let left = place.admin.stream(map! {"action": "get_tree", "path": path("a")});
    assert!(left.len() >= 1000, "{} are left", left.len());
}

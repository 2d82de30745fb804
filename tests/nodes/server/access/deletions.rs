//! `delete_tree` of users: `d` at the top and at each entry.

use super::{Place, entries, failed, numbers};
use crate::harness::{Value, fields, has, path, text};
use crate::server::streams::conflicts::Peer;

fn delete(at: &str, chain: u64) -> Value {
    map! {"action": "delete_tree", "path": path(at), "nchain": chain}
}

#[test]
fn what_may_not_be_deleted_stays_and_the_end_says_so_without_naming_it() {
    let lists = [("a.#", "rxde"), ("a", "dx"), ("a.shut.#", "rx"), ("a.blind", "d")];
    for nchain in [0, 3] {
        let mut place = Place::new();
        let mut user = place.user("joe", &lists);
        for (n, at) in ["a", "a.b", "a.blind", "a.shut.x", "a.z"].iter().enumerate() {
            place.admin.set(at, n as i64);
        }
        // Something that the chain tells of the time before: another node's event.
        let mut peer = Peer::new(&place.node);
        peer.push("a.b", Some(&[1]), 1000);
        peer.push("a.blind", Some(&[2]), 1000);
        if nchain == 0 {
            let refusal = user.error(delete("a", 0));
            assert_eq!(text(&refusal, "code"), "denied");
            assert!(text(&refusal, "error").contains("4 were deleted"), "{refusal}");
            assert!(!text(&refusal, "error").contains("shut"), "{refusal}");
            assert_eq!(refusal["made"].as_bool(), Some(true), "{refusal}");
            // Nothing is left that it may delete.
            let refusal = user.error(delete("a", 0));
            assert!(text(&refusal, "error").contains("0 were deleted"), "{refusal}");
            assert!(!has(&refusal, "made"), "{refusal}");
        } else {
            let told = user.stream(delete("a", nchain));
            let values = told.iter().map(|m| has(m, "old_value").then(|| m["old_value"].as_i64()));
            // Of what the user may not read, there is neither the value nor what was before.
            let old = [None, Some(Some(1)), None, Some(Some(4)), None];
            assert_eq!(values.collect::<Vec<_>>(), old);
            assert!(!has(&told[2], "prev") && has(&told[1], "prev"), "{told:?}");
            assert_eq!(entries(&told).pop(), Some(failed("denied")));
            assert_eq!(told.last().unwrap()["made"].as_bool(), Some(true), "{told:?}");
        }
        let left = place.admin.stream(map! {"action": "get_tree", "path": path("a")});
        assert_eq!(entries(&left), numbers(&[("shut.x", 3)]));
    }
}

#[test]
fn the_top_needs_the_letter_and_a_whole_tree_is_counted() {
    let mut place = Place::new();
    for at in ["a", "a.b", "a.c"] {
        place.admin.set(at, 1);
    }
    let mut user = place.user("joe", &[("a.#", "d"), ("a", "x"), ("b.#", "dx"), ("b", "dx")]);
    assert_eq!(user.code(delete("a", 0)), "denied");
    assert_eq!(user.ok(delete("a.b", 0))["changed"].as_u64(), Some(1));
    for at in ["b.x", "b.y.z"] {
        place.admin.set(at, 1);
    }
    let reply = user.ok(delete("b", 0));
    assert_eq!(
        (reply["changed"].as_u64(), fields(&reply)),
        (Some(2), vec!["changed", "seq", "tock"])
    );
    // What is there no more is nobody's to withhold.
    assert_eq!(user.ok(delete("b", 0))["changed"].as_u64(), Some(0));
}

#[test]
fn a_deletion_stops_where_the_right_is_lost() {
    let mut place = Place::new();
    let set = |n: u64| map! {"action": "set_value", "path": path(&format!("a:{n}")), "value": n};
    for from in [0, 1000, 2000] {
        let ops = (from..from + 1000).map(set).collect();
        place.admin.ok(map! {"action": "batch", "ops": Value::Array(ops)});
    }
    let mut user = place.user_with_qlen("joe", &[("a.#", "rdx"), ("a", "dx")], 4);
    let seq = user.start(delete("a", 1));
    assert_eq!(text(&user.reply(seq), "state"), "start");
    assert_eq!(user.reply(seq)["old_value"].as_u64(), Some(0));
    place.list("joe", &[("a:2990", "r")]);
    let mut acked = 2;
    let end = loop {
        acked += 1;
        user.ack(seq, acked);
        let message = user.reply(seq);
        if has(&message, "error") {
            break message;
        }
    };
    assert_eq!(text(&end, "code"), "denied");
    assert!(text(&end, "error").contains("2999 were deleted"), "{end}");
    assert_eq!(end["made"].as_bool(), Some(true), "{end}");
    let left = place.admin.stream(map! {"action": "get_tree", "path": path("a")});
    assert_eq!(entries(&left), numbers(&[(":2990", 2990)]));

    place.list("joe", &[("a", "x")]);
    assert_eq!(user.code(delete("a", 1)), "denied");
}

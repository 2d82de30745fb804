//! What the replies to a user's writes tell of what was there.

use super::Place;
use crate::harness::{Value, has, path, text};
use crate::server::streams::conflicts::Peer;

fn with(request: Value, more: &[(&str, Value)]) -> Value {
    let Value::Map(mut fields) = request else { panic!("no map") };
    fields.extend(more.iter().map(|(key, value)| (Value::from(*key), value.clone())));
    Value::Map(fields)
}

fn set(at: &str, value: u64, more: &[(&str, Value)]) -> Value {
    with(map! {"action": "set_value", "path": path(at), "value": value}, more)
}

#[test]
fn whoever_may_write_and_not_read_learns_nothing_of_what_was_there() {
    let mut place = Place::new();
    // Another node's event, which chains go back to.
    Peer::new(&place.node).push("a", Some(b"\xcd\x12\x67"), 1000);
    let get = map! {"action": "get_value", "path": path("a"), "nchain": 9};
    let newest = place.admin.ok(get)["chain"].clone();
    let mut user = place.user("joe", &[("a", "wcd"), ("b", "wcd")]);
    for more in [("prev", Value::from(4711)), ("prev", Value::from(1)), ("idem", Value::from(true))]
    {
        for at in ["a", "b"] {
            assert_eq!(
                user.code(set(at, 5, std::slice::from_ref(&more))),
                "denied",
                "{more:?} at {at}"
            );
        }
    }
    // Equal, whatever was there: a value, the same value, or nothing.
    for (at, value) in [("a", 5), ("a", 5), ("b", 5)] {
        let reply = user.ok(set(at, value, &[("nchain", 9.into())]));
        assert!(!has(&reply, "prev"), "{reply}");
        assert_eq!(reply["changed"].as_bool(), Some(true));
        assert!(!has(&reply["chain"], "prev") || reply["chain"]["prev"].is_nil(), "{reply}");
    }
    // The chain that it guesses is not told when it is wrong.
    place.admin.set("a", 4711);
    let wrong = user.error(set("a", 6, &[("chain", newest)]));
    assert_eq!(text(&wrong, "code"), "chain_mismatch");
    assert!(!text(&wrong, "error").contains("is n1~1:"), "{wrong}");
    let deletion = user.ok(map! {"action": "delete_value", "path": path("a"), "nchain": 9});
    assert!(!has(&deletion, "prev") && !has(&deletion["chain"], "prev"), "{deletion}");
    // In a batch it is the same.
    place.admin.set("a", 4711);
    let batch = user.ok(map! {"action": "batch", "ops": Value::Array(vec![set("a", 7, &[])])});
    assert!(!has(&batch["results"][0], "prev"), "{batch}");
}

#[test]
fn another_clients_write_is_not_told_to_those_who_may_not_make_it() {
    let mut place = Place::new();
    Peer::new(&place.node).push("a", Some(&[1]), 1000);
    let wid = ("wid", Value::Binary(vec![7; 16]));
    place.admin.ok(set("a", 4711, std::slice::from_ref(&wid)));
    let mut user = place.user("joe", &[("a", "r"), ("b", "wc")]);
    assert_eq!(user.code(set("a", 4711, std::slice::from_ref(&wid))), "denied");
    let mut blind = place.user("jim", &[("a", "wc")]);
    let again = blind.ok(set("a", 4711, &[wid.clone(), ("nchain", 9.into())]));
    assert_eq!(again["repeated"].as_bool(), Some(true));
    assert!(!has(&again["chain"], "prev"), "{again}");
    // Of a write somewhere else, not even where.
    let reused = user.error(set("b", 4711, &[wid]));
    assert_eq!(text(&reused, "code"), "wid_reused");
    assert!(!text(&reused, "error").contains("4711"), "{reused}");
}

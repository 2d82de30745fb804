//! A client's changes come in its own order, at whichever nodes it makes them (`above`, `own`).

use crate::harness::{Client, Node, Value, array, fields, has, path, text};

fn with(request: Value, more: &[(&str, Value)]) -> Value {
    let Value::Map(mut fields) = request else { panic!("no map") };
    fields.extend(more.iter().map(|(key, value)| (Value::from(*key), value.clone())));
    Value::Map(fields)
}

fn set(at: &str, above: u64) -> Value {
    map! {"action": "set_value", "path": path(at), "value": 1, "above": above}
}

fn delete(at: &str, above: u64) -> Value {
    map! {"action": "delete_value", "path": path(at), "above": above}
}

fn tock(reply: &Value) -> u64 {
    reply["tock"].as_u64().unwrap()
}

fn clock(client: &mut Client) -> u64 {
    tock(&client.ok(map! {"action": "get_value", "path": path("nothing")}))
}

#[test]
fn a_change_comes_after_what_its_client_has_heard_of() {
    let node = Node::found("n1");
    let mut client = node.connect();
    assert_eq!(tock(&client.ok(set("a", 0))), 1);
    assert_eq!(tock(&client.ok(set("a", 59))), 60);
    // The node's own clock is further already.
    assert_eq!(tock(&client.ok(set("a", 7))), 61);
    assert_eq!(tock(&client.ok(with(set("a", 0), &[("above", Value::Nil)]))), 62);
    assert_eq!(tock(&client.ok(delete("a", 100))), 101);
    // Nobody else's is behind.
    assert_eq!(tock(&client.ok(set("b", 0))), 102);
    let internal = map! {"action": "set_internal", "path": array(["x"]), "value": 1, "above": 200};
    assert_eq!(tock(&client.ok(internal)), 201);
    let update =
        map! {"action": "update", "path": path("u"), "value": 1, "tock": 500, "above": 300};
    assert_eq!(tock(&client.ok(update)), 301);
}

#[test]
fn so_does_each_change_of_a_batch_and_each_of_a_tree() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let ops = [set("t", 10), map! {"action": "get_value", "path": path("t")}, set("t.a", 5)];
    let reply = client.ok(map! {"action": "batch", "ops": array(ops)});
    let tocks: Vec<u64> = reply["results"].as_array().unwrap().iter().map(tock).collect();
    assert_eq!((tocks, tock(&reply)), (vec![11, 11, 12], 12));
    // An operation that is refused moves nothing.
    let ops = [with(set("t", 50), &[("chain", Value::Nil)]), set("t.b", 0)];
    let reply = client.ok(map! {"action": "batch", "ops": array(ops)});
    assert_eq!((text(&reply["results"][0], "code"), tock(&reply)), ("already_exists", 13));
    let tree = map! {"action": "delete_tree", "path": path("t"), "nchain": 1, "above": 90};
    let told = client.stream(tree);
    let deleted: Vec<u64> = told.iter().filter(|told| has(told, "depth")).map(tock).collect();
    assert_eq!(deleted, [91, 92, 93]);
}

#[test]
fn what_seems_to_be_done_is_done_where_the_clients_own_change_is_not_known() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.ok(set("a", 0));
    let idem = |own: u64| with(set("a", 20), &[("idem", true.into()), ("own", own.into())]);
    assert_eq!(tock(&client.ok(idem(1))), 1, "the change is known here");
    assert_eq!(tock(&client.ok(idem(20))), 21);
    assert_eq!(tock(&client.ok(idem(20))), 21);
    let gone = |own: u64| with(delete("gone", 40), &[("own", own.into())]);
    let reply = client.ok(gone(0));
    assert!(reply["chain"].is_nil(), "{reply}");
    let reply = client.ok(gone(40));
    assert_eq!(fields(&reply), ["changed", "chain", "tock", "seq"]);
    assert_eq!((reply["changed"].as_bool(), tock(&reply)), (Some(false), 41));
    assert_eq!(tock(&client.ok(gone(40))), 41, "it is done");
}

#[test]
fn a_write_that_comes_again_is_answered_as_before_whatever_was_heard_since() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let wid = |above| with(set("a", above), &[("wid", Value::Binary(vec![1; 16]))]);
    assert_eq!(tock(&client.ok(wid(9))), 10);
    let again = client.ok(wid(70));
    assert_eq!((again["repeated"].as_bool(), tock(&again)), (Some(true), 10));
    assert_eq!(clock(&mut client), 10);
}

#[test]
fn what_no_network_could_have_told_moves_no_clock_and_refuses_no_change() {
    let node = Node::found("n1");
    let mut client = node.connect();
    assert_eq!(tock(&client.ok(set("a", (1 << 62) - 1))), 1);
    assert_eq!(tock(&client.ok(set("a", 1 << 40))), 2);
    assert_eq!(tock(&client.ok(set("a", 1 << 31))), (1 << 31) + 1);
}

#[test]
fn what_is_no_tock_is_refused() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let wrong = [Value::from(-1), (1_u64 << 62).into(), u64::MAX.into(), "x".into(), 1.5.into()];
    for wrong in wrong {
        for name in ["above", "own"] {
            let request = map! {"action": "set_value", "path": path("a"), "value": 1};
            let code = client.code(with(request, &[(name, wrong.clone())]));
            assert_eq!(code, "bad_request", "{name} {wrong}");
        }
    }
    assert_eq!(client.get("a"), None);
}

//! Writes that come again, known by their id (`wid`).

use distkv::engine::Config;
use distkv::model::ids::{Incarnation, NodeId, NodeName};
use distkv::model::write_id::WritePlace;

use crate::harness::{Client, Node, Value, array, fields, path, refusing, text};

fn id(byte: u8) -> Value {
    Value::Binary(vec![byte; 16])
}

/// A request with further fields.
fn with(request: Value, more: &[(&str, Value)]) -> Value {
    let Value::Map(mut fields) = request else { panic!("no map") };
    fields.extend(more.iter().map(|(key, value)| (Value::from(*key), value.clone())));
    Value::Map(fields)
}

fn set(at: &str, value: u64, wid: u8) -> Value {
    map! {"action": "set_value", "path": path(at), "value": value, "wid": id(wid)}
}

fn delete(at: &str, wid: u8) -> Value {
    map! {"action": "delete_value", "path": path(at), "wid": id(wid)}
}

fn tick(reply: &Value) -> u64 {
    reply["chain"]["tick"].as_u64().unwrap()
}

fn own_tick(client: &mut Client) -> u64 {
    client.ok(map! {"action": "status"})["tick"].as_u64().unwrap()
}

#[test]
fn a_write_that_comes_again_is_answered_as_done_and_not_made() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.set("a", 0);
    let first = client.ok(set("a", 1, 1));
    assert_eq!(fields(&first), ["changed", "prev", "chain", "tock", "seq"]);
    let again = client.ok(set("a", 1, 1));
    assert_eq!(fields(&again), ["changed", "chain", "tock", "repeated", "seq"]);
    assert_eq!((again["changed"].as_bool(), again["repeated"].as_bool()), (Some(true), Some(true)));
    assert_eq!((&again["chain"], &again["tock"]), (&first["chain"], &first["tock"]));
    assert_eq!(own_tick(&mut client), 2);
    let none = client.ok(with(set("a", 1, 1), &[("nchain", 0.into())]));
    assert_eq!(fields(&none), ["changed", "tock", "repeated", "seq"]);
    // From another connection as well.
    assert_eq!(node.connect().ok(set("a", 1, 1))["repeated"].as_bool(), Some(true));
}

#[test]
fn the_chain_is_told_from_that_write_on_as_far_as_the_entry_still_has_it() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let first = client.ok(set("a", 1, 1));
    client.set("a", 2);
    // One life's later event takes the place of its earlier one: what followed is not known.
    let again = client.ok(with(set("a", 1, 1), &[("nchain", (-1).into())]));
    assert_eq!(tick(&again), tick(&first));
    assert_eq!(fields(&again["chain"]), ["node", "tick"]);
    // Who asks for a few gets an end in any case.
    let few = client.ok(with(set("a", 1, 1), &[("nchain", 5.into())]));
    assert_eq!(fields(&few["chain"]), ["node", "tick", "prev"]);
    assert_eq!(again["tock"], first["tock"], "its own, not that of what is there now");
    assert_eq!(client.get("a"), Some(2.into()));
}

#[test]
fn preconditions_are_not_asked_again() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let new = with(set("a", 1, 1), &[("chain", Value::Nil)]);
    let first = client.ok(new.clone());
    assert_eq!(client.ok(new.clone())["repeated"].as_bool(), Some(true));
    let next = with(set("a", 2, 2), &[("chain", first["chain"].clone())]);
    client.ok(next.clone());
    assert_eq!(client.ok(next)["repeated"].as_bool(), Some(true));
    let prev = with(set("a", 3, 3), &[("prev", 2.into())]);
    client.ok(prev.clone());
    assert_eq!(client.ok(prev.clone())["repeated"].as_bool(), Some(true));
    client.ok(map! {"action": "delete_value", "path": path("a")});
    assert_eq!(client.ok(prev)["repeated"].as_bool(), Some(true));
    assert_eq!(client.ok(new)["repeated"].as_bool(), Some(true));
    // Another write has to keep to them.
    assert_eq!(client.code(with(set("a", 4, 4), &[("prev", 2.into())])), "data_mismatch");
}

#[test]
fn deletions_can_be_sent_again_also_below_nil() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.set("a", 1);
    client.ok(delete("a", 1));
    assert_eq!(client.ok(delete("a", 1))["repeated"].as_bool(), Some(true));
    client.set("a", 2);
    assert_eq!(client.ok(delete("a", 1))["repeated"].as_bool(), Some(true));
    assert_eq!(client.get("a"), Some(2.into()));
    // Nothing was deleted, so nothing was made that could be known.
    assert_eq!(client.ok(delete("b", 2))["changed"].as_bool(), Some(false));
    assert_eq!(client.ok(delete("b", 2))["changed"].as_bool(), Some(false));
    let internal = map! {
        "action": "set_internal", "path": array(["x"]), "value": 1, "wid": id(3),
    };
    client.ok(internal.clone());
    assert_eq!(client.ok(internal)["repeated"].as_bool(), Some(true));
    // The same path as sent, but below nil: another one.
    assert_eq!(client.code(set("x", 1, 3)), "wid_reused");
}

#[test]
fn an_id_is_of_one_path_and_value() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.ok(set("a", 1, 1));
    for other in [set("a", 2, 1), set("b", 1, 1), delete("a", 1)] {
        let error = client.error(other);
        assert_eq!(text(&error, "code"), "wid_reused");
        assert!(text(&error, "error").contains("wid"), "{error}");
    }
    assert_eq!((client.get("a"), client.get("b")), (Some(1.into()), None));
    assert_eq!(own_tick(&mut client), 1);
}

#[test]
fn what_is_no_write_id_is_refused_and_changes_nothing() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let request = map! {"action": "set_value", "path": path("a"), "value": 1};
    for bad in [
        Value::Binary(Vec::new()),
        Value::Binary(vec![1; 15]),
        Value::Binary(vec![1; 17]),
        Value::Binary(vec![1; 70_000]),
        Value::from("sixteen bytes it"),
        Value::from(1),
        Value::from(true),
        array([1, 2]),
        Value::Ext(3, vec![1; 16]),
    ] {
        let error = client.error(with(request.clone(), &[("wid", bad)]));
        assert_eq!(text(&error, "code"), "bad_request");
        assert!(text(&error, "error").contains("'wid'"), "{error}");
    }
    assert_eq!(client.get("a"), None);
    client.ok(with(request, &[("wid", Value::Nil)]));
}

#[test]
fn a_node_that_takes_no_changes_still_knows_what_was_made() {
    let own = NodeId { name: NodeName::new("n1").unwrap(), incarnation: Incarnation(1) };
    let config = Config { memory_max: Some(2_000), ..Config::new(own, 1) };
    let node = Node::with(config, refusing());
    let mut client = node.connect();
    assert_eq!(client.code(set("a", 1, 1)), "not_ready");
    node.hub.handle(distkv::engine::Input::Found, 0);
    client.ok(set("a", 1, 1));
    client.set("b", "x".repeat(3_000));
    assert_eq!(client.code(set("c", 1, 2)), "memory_full");
    assert_eq!(client.ok(set("a", 1, 1))["repeated"].as_bool(), Some(true));
    assert_eq!(client.code(set("a", 2, 1)), "wid_reused");
}

#[test]
fn a_write_is_known_until_65536_such_writes_have_come_after_it() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.ok(set("a", 1, 1));
    for batch in 0..64_u32 {
        let again = client.ok(set("a", 1, 1));
        assert_eq!(again["repeated"].as_bool(), Some(true), "after {batch} times 1024");
        let mut bytes = Vec::new();
        for at in 0..1024_u32 {
            let wid = [batch.to_be_bytes(), at.to_be_bytes(), [7; 4], [7; 4]].concat();
            bytes.extend(crate::harness::encode(&map! {
                "action": "set_value", "path": path("w"), "value": 1, "nchain": 0,
                "wid": Value::Binary(wid), "seq": 1000 + u64::from(at),
            }));
        }
        client.send_bytes(&bytes);
        (0..1024).for_each(|at| drop(client.reply(1000 + at)));
    }
    // Now it is made again, as documented.
    let again = client.ok(set("a", 1, 1));
    assert!(again["repeated"].is_nil() && tick(&again) > 1, "{again}");
}

/// A write by a client that numbers them, and says below which number it waits for none any more.
fn numbered(at: &str, number: u32, settled: u32) -> Value {
    let id = WritePlace { client: 7, number, settled }.to_id();
    map! {"action": "set_value", "path": path(at), "value": number, "wid": Value::Binary(id.0.to_vec())}
}

#[test]
fn a_write_that_its_client_has_given_up_is_refused_and_others_are_made_however_late() {
    let node = Node::found("n1");
    let (mut client, mut late) = (node.connect(), node.connect());
    client.ok(numbered("a", 5, 3));
    let refused = late.error(numbered("a", 2, 2));
    assert_eq!(text(&refused, "code"), "given_up");
    assert!(text(&refused, "error").contains("too late"), "{refused}");
    assert_eq!(client.get("a"), Some(5.into()));
    // Two calls at once: the client waits for this one.
    late.ok(numbered("a", 3, 3));
    assert_eq!(client.get("a"), Some(3.into()));
    // What was made is known, whatever the client has given up since.
    client.ok(numbered("b", 9, 9));
    assert_eq!(late.ok(numbered("a", 5, 3))["repeated"].as_bool(), Some(true));
    // In a batch, the one operation is refused. Any other request settles nothing.
    let ops = array([numbered("a", 4, 4), numbered("a", 10, 10)]);
    let batch = late.ok(map! {"action": "batch", "ops": ops});
    let codes = batch["results"].as_array().unwrap().iter().map(|r| r["code"].as_str());
    assert_eq!(codes.collect::<Vec<_>>(), [Some("given_up"), None]);
    assert_eq!(client.get("a"), Some(10.into()));
}

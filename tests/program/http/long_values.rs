//! Values of very many small parts: what they cost a node that tells them as JSON, and that nothing of them is lost.

use rmpv::Value;
use serde_json::json;

use super::api::Open;
use super::asking::{ALONE, ask, get};
use super::http;
use crate::processes::{NodeProcess, field};

/// Parts of the value; as MessagePack each takes a byte, as JSON three.
const PARTS: usize = 1_000_000;

/// A node that has such a value at `big.value`, and its JSON.
fn start() -> (NodeProcess, String) {
    let node = NodeProcess::start("n1", &ALONE);
    node.connect().set(&["big", "value"], Value::Array(vec![Value::Map(Vec::new()); PARTS]));
    (node, format!("[{}]", vec!["{}"; PARTS].join(",")))
}

/// What all clients cost, bytes.
fn client_memory(node: &NodeProcess) -> u64 {
    let status = node.connect().call("status", &[]);
    field(&field(&status, "client_memory").unwrap(), "used").unwrap().as_u64().unwrap()
}

#[test]
fn who_reads_a_long_value_slowly_has_the_node_keep_the_value_and_not_its_text() {
    let (node, text) = start();
    let slow = ask(http(&node), "GET", "/v1/kv/big/value").begin();
    // The rest is in no buffer of the system's either: it takes no more than a part.
    let kept = client_memory(&node);
    assert!((PARTS as u64..2 * PARTS as u64).contains(&kept), "{kept} bytes are kept");
    let answer = String::from_utf8(slow.rest()).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("content-length: {}", text.len() + 1)), "{head}");
    assert!(body.strip_suffix('\n') == Some(text.as_str()), "{} bytes", body.len());
}

#[test]
fn those_who_read_one_long_value_as_messagepack_share_it() {
    const READERS: usize = 16;
    const BYTES: usize = 4_000_000;
    let node = NodeProcess::start("n1", &ALONE);
    node.connect().set(&["big"], Value::Array(vec![Value::from(1); BYTES]));
    let (host, before) = (http(&node), peak_bytes(&node));
    let read = |_| ask(host, "GET", "/v1/kv/big").field("Accept", "application/msgpack").begin();
    let readers: Vec<_> = (0..READERS).map(read).collect();
    // A copy for each would be four times this.
    let grown = peak_bytes(&node).saturating_sub(before);
    assert!(grown < READERS * BYTES / 4, "{grown} bytes");
    // What only asks whether it is still the same, or how long it is, costs no more.
    let head = ask(host, "HEAD", "/v1/kv/big").field("Accept", "application/msgpack").send();
    assert_eq!(head.fields["content-length"], (5 + BYTES).to_string());
    let same = ask(host, "GET", "/v1/kv/big").field("If-None-Match", &head.fields["etag"]).send();
    assert_eq!((same.status, same.body.len()), (304, 0));
    for reader in readers {
        let answer = reader.rest();
        let at = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
        assert_eq!(answer.len() - at, 5 + BYTES);
        assert_eq!(answer[at], 0xdd);
        assert!(answer[at + 5..].iter().all(|part| *part == 1));
    }
}

#[test]
fn a_long_value_is_told_whole_wherever_it_is_told_whole_and_elsewhere_its_beginning() {
    let (node, text) = start();
    let head = ask(http(&node), "HEAD", "/v1/kv/big/value").send();
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.fields["content-length"], (text.len() + 1).to_string());
    let value = format!("\"value\":{text},");
    let tree = get(http(&node), "/v1/kv/big?tree");
    assert!(tree.text().contains(&value) && tree.lines().len() == 1, "{} bytes", tree.body.len());
    let mut events = ask(http(&node), "GET", "/v1/kv/big?watch&fetch").events();
    assert_eq!(events.expect("entry")["value"].as_array().unwrap().len(), PARTS);
    events.expect("uptodate");
    let children = get(http(&node), "/v1/kv/big?children").json();
    assert_eq!(children["items"][0]["start"], text[..200]);
    assert_eq!(children["items"][0].get("value"), None);
    assert_eq!(children["next"], json!(null));
}

/// The most memory that it has had until now, bytes.
fn peak_bytes(node: &NodeProcess) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn a_long_body_of_many_parts_is_read_without_a_tree_of_them() {
    let open = Open::start(&[]);
    let parts = 2_700_000;
    let before = peak_bytes(&open.node);
    let put = open.put("/v1/kv/big/lists", format!("[{}]", vec!["[]"; parts].join(",")));
    assert_eq!(put.status, 201, "{}", put.text());
    // The body, the value, and what carries it into the engine; as a tree, its parts would take 500 MiB.
    let grown = peak_bytes(&open.node) - before;
    assert!(grown < 200 << 20, "{grown} bytes");
    let value = open.node.connect().get(&["big", "lists"]);
    assert!(value == Some(Value::Array(vec![Value::Array(Vec::new()); parts])));
}

#[test]
fn an_error_repeats_only_the_beginning_of_a_long_integer() {
    let refused = Open::start(&[]).put("/v1/kv/a", "7".repeat(1_000_000));
    assert_eq!((refused.status, refused.code().as_str()), (400, "bad_request"));
    assert!(refused.body.len() < 1_000, "{} bytes", refused.body.len());
    assert!(refused.text().contains("7… is past 64 bits"), "{}", refused.text());
}

//! A network in which a node is linked to few others, as it is with more than 48: it knows the addresses of no more.

use std::net::TcpListener;
use std::sync::{Arc, Barrier};
use std::thread;

use distkv::client::{Fields, Message};
use distkv::model::value::write_array_len;
use serde_json::Value as Json;

use crate::cli::command::{Done, cli_with};
use crate::cli::fake::{FakeNode, state};

/// The row of `members` about a node: by its address, where it is linked to it.
fn row(name: &str, state: &str, address: Option<&str>) -> Vec<u8> {
    let mut row = Fields::new();
    row.str("name", name).str("state", state).bool("linked", address.is_some());
    let is_told = state == "self" || address.is_some();
    row.bool("ready", is_told).bool("secured", is_told);
    if let Some(address) = address {
        row.str("client", address);
    }
    row.encode()
}

fn node(name: &'static str, rows: Vec<Vec<u8>>) -> FakeNode {
    let mut members = Vec::new();
    write_array_len(rows.len(), &mut members);
    members.extend(rows.concat());
    FakeNode::start_as(name, move |request: &Message| match request.str("action") {
        Some("members") => vec![Fields::new().raw("result", &members).clone()],
        Some("status") => vec![Fields::new().bool("ready", true).clone()],
        _ => vec![state("start"), state("end")],
    })
}

/// `n1`, which is linked to `n2` alone, which is linked to `n3`; nobody is linked to `n4`.
fn chain() -> FakeNode {
    let at = |node: &FakeNode| node.address.to_string();
    let own = |name| row(name, "self", None);
    let far = |name| row(name, "up", None);
    let n3 = node("n3", vec![far("n1"), far("n2"), own("n3"), far("n4")]);
    let n2 = node("n2", vec![far("n1"), own("n2"), row("n3", "up", Some(&at(&n3))), far("n4")]);
    node("n1", vec![own("n1"), row("n2", "up", Some(&at(&n2))), far("n3"), far("n4")])
}

fn lines(done: &Done) -> Vec<Json> {
    done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn top_asks_every_node_whose_address_any_node_tells() {
    let done =
        cli_with(&chain(), &["top", "--once", "--json", "--every", "100ms", "--timeout", "60s"]);
    assert_eq!(done.code, 0, "{done:?}");
    let rows = lines(&done);
    let text = |row: &Json, name| row[name].as_str().unwrap().to_owned();
    let told: Vec<_> =
        rows.iter().map(|row| text(row, "node") + " " + &text(row, "state")).collect();
    assert_eq!(told[0], "n4 no address");
    for name in ["n1", "n2", "n3"] {
        assert!(told.contains(&format!("{name} ok")), "{told:?}");
    }
    assert_eq!((&rows[0]["answers"], &rows[0]["seen_as"]), (&false.into(), &"up".into()));
}

#[test]
fn conflicts_asks_every_node_whose_address_any_node_tells() {
    let done = cli_with(&chain(), &["conflicts", "--all"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert_eq!(done.stderr.matches("left out").count(), 1, "{done:?}");
    assert!(done.stderr.contains("n4 is left out: no node that could be asked"), "{done:?}");
    assert!(done.stderr.contains("no conflicts were found at n1, n2, n3 "), "{done:?}");
}

/// Nodes that answer when all three of them are asked.
fn asked_together() -> FakeNode {
    let all = Arc::new(Barrier::new(3));
    let others = ["n2", "n3", "n4"].map(|name| {
        let (all, members) = (Arc::clone(&all), [b"\x91", &*row(name, "self", None)].concat());
        FakeNode::start_as(name, move |request| {
            all.wait();
            match request.str("action") {
                Some("members") => vec![Fields::new().raw("result", &members).clone()],
                _ => vec![state("start"), state("end")],
            }
        })
    });
    let rows = ["n2", "n3", "n4"].iter().zip(&others);
    let rows = rows.map(|(name, node)| row(name, "up", Some(&node.address.to_string())));
    node("n1", [row("n1", "self", None)].into_iter().chain(rows).collect())
}

#[test]
fn conflicts_asks_all_nodes_at_once() {
    let done = cli_with(&asked_together(), &["conflicts", "--all", "--timeout", "5s"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("no conflicts were found at n1, n2, n3, n4 "), "{done:?}");
}

#[test]
fn conflicts_waits_for_silent_nodes_together() {
    // They end their connections without a greeting when each has one.
    let all = Arc::new(Barrier::new(3));
    let silent = ["n2", "n3", "n4"].map(|name| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, all) = (listener.local_addr().unwrap().to_string(), Arc::clone(&all));
        thread::spawn(move || {
            let met = listener.accept().unwrap();
            all.wait();
            drop(met);
        });
        row(name, "up", Some(&address))
    });
    let first = node("n1", [row("n1", "self", None)].into_iter().chain(silent).collect());
    let done = cli_with(&first, &["conflicts", "--all", "--timeout", "5s"]);
    assert_eq!(done.code, 1, "{done:?}");
    let ended = done.stderr.matches("closed the connection without a greeting").count();
    assert_eq!(ended, 3, "{done:?}");
}

#[test]
fn conflicts_says_how_many_nodes_are_too_many_to_be_asked() {
    let names: Vec<_> = (2..=1_030).map(|number| format!("n{number:04}")).collect();
    let others = names.iter().map(|name| row(name, "up", None));
    let rows = [row("n1", "self", None)].into_iter().chain(others).collect();
    let done = cli_with(&node("n1", rows), &["conflicts", "--all"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stderr.contains("n1024 is left out: no node"), "{done:?}");
    assert!(!done.stderr.contains("n1025 is left out"), "{done:?}");
    assert!(done.stderr.contains("6 nodes are left out: no more than 1024 are asked"), "{done:?}");
}

#[test]
fn what_only_a_link_tells_of_a_member_is_unknown_without_one() {
    let chain = chain();
    let done = cli_with(&chain, &["members", "--json"]);
    let rows = lines(&done);
    let told: Vec<_> = rows.iter().map(|row| (&row["ready"], &row["secured"])).collect();
    let (yes, unknown) = ((&Json::Bool(true), &Json::Bool(true)), (&Json::Null, &Json::Null));
    assert_eq!(told, [yes, yes, unknown, unknown]);
    let table = cli_with(&chain, &["members"]).stdout;
    let ready = |row: &str| row.split_whitespace().nth(4).unwrap().to_owned();
    let ready: Vec<_> = table.lines().map(ready).collect();
    assert_eq!(ready, ["READY", "yes", "yes", "-", "-"], "{table}");
}

//! `verify`: nodes of one network that hold the same, and nodes that do not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value as Json;

use crate::cli::command::{Done, cli, run};
use crate::processes::NodeProcess;

fn verify(a: &NodeProcess, b: &NodeProcess, arguments: &[&str]) -> Done {
    let (a, b) = (a.client.to_string(), b.client.to_string());
    run(&[&["verify", &a, &b], arguments].concat(), &[], b"")
}

/// The text without the lives behind the nodes' names, which are other ones each time.
fn without_lives(text: &str) -> String {
    let mut parts = text.split('~');
    let first = parts.next().unwrap_or_default().to_owned();
    let is_digit = |c: char| c.is_ascii_hexdigit();
    parts.fold(first, |text, part| text + part.trim_start_matches(is_digit))
}

fn set(node: &NodeProcess, path: &str, value: &str) {
    let address = node.client.to_string();
    let done = run(&["set", path, value, "--connect", &address], &[], b"");
    assert_eq!(done.code, 0, "{}", done.stderr);
}

/// The same of what belongs to the system.
fn set_system(node: &NodeProcess, path: &str, value: &str) {
    let address = node.client.to_string();
    let done = run(&["set", path, value, "--system", "--connect", &address], &[], b"");
    assert_eq!(done.code, 0, "{}", done.stderr);
}

fn delete(node: &NodeProcess, path: &str) {
    let address = node.client.to_string();
    assert_eq!(run(&["delete", path, "--connect", &address], &[], b"").code, 0);
}

#[test]
fn nodes_of_one_network_are_equal_also_in_what_is_deleted() {
    let n1 = NodeProcess::run("n1");
    for key in 0..20 {
        set(&n1, &format!("k{key}.x"), "1");
    }
    delete(&n1, "k3.x");
    let n2 = NodeProcess::join("n2", &[&n1]);
    set(&n2, "k4.x", "2");
    set_system(&n1, ":n.a", "2");
    let done = verify(&n1, &n2, &["--patience", "60s"]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{}", done.stdout);
    assert!(done.stdout.starts_with("n1 and n2 are equal: 21 entries"), "{}", done.stdout);
    let done = verify(&n1, &n2, &["--json"]);
    let verdict: Json = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(verdict["equal"], Json::Bool(true));
    assert_eq!((&verdict["a"]["node"], &verdict["b"]["entries"]), (&"n1".into(), &21.into()));
    assert_eq!(
        (verdict["looks"].as_u64(), verdict["shards"].as_array().unwrap().len()),
        (Some(1), 0)
    );
}

#[test]
fn what_differs_is_found_also_what_is_deleted_and_what_is_the_system_s() {
    let (a, b) = (NodeProcess::run("a"), NodeProcess::run("b"));
    for node in [&a, &b] {
        set(node, "both.x", "1");
        set(node, "gone", "1");
    }
    set(&a, "here", "{\"on\": true}");
    delete(&a, "gone");
    set_system(&b, ":n.sys", "5");
    let done = verify(&a, &b, &["--patience", "0s"]);
    assert_eq!((done.code, done.stderr.as_str()), (1, ""), "{}", done.stdout);
    for line in [
        "a and b differ in 4 of 1024 shards:",
        "both.x  (shard ",
        "   a  1  a:1  tock 1",
        "   b  1  b:1  tock 1",
        "gone  (shard ",
        "   a  (deleted)  a:4  tock 4",
        "here  (shard ",
        "   a  {\"on\":true}  a:3  tock 3",
        "   b  (nothing)",
        ":n.sys  (shard ",
        "entries that differ: 4",
    ] {
        let text = without_lives(&done.stdout);
        assert!(text.lines().any(|l| l.starts_with(line)), "{line}: {text}");
    }

    let done = verify(&a, &b, &["--patience", "0s", "--json", "--limit", "1"]);
    let text = without_lives(&done.stdout);
    let lines: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((done.code, lines.len()), (1, 2));
    assert_eq!(lines[0]["path"], "both.x");
    assert_eq!(lines[0]["a"], serde_json::json!({"value": 1, "chain": ["a:1"], "tock": 1}));
    assert_eq!((&lines[1]["equal"], &lines[1]["differing"]), (&false.into(), &4.into()));
    assert_eq!(lines[1]["shards"].as_array().unwrap().len(), 4);
}

#[test]
fn nodes_whose_entries_only_look_alike_are_not_equal() {
    // Two networks, each with a node of that name: other lives.
    let (a, b) = (NodeProcess::run("n1"), NodeProcess::run("n1"));
    for node in [&a, &b] {
        set(node, "k", "1");
    }
    let done = verify(&a, &b, &["--patience", "0s"]);
    assert_eq!(done.code, 1);
    assert!(done.stdout.contains("entries that differ: 1\n"), "{done:?}");
    let makers: Vec<&str> =
        done.stdout.split_whitespace().filter(|word| word.starts_with("n1~")).collect();
    assert_eq!(makers.len(), 2, "{done:?}");
    assert_ne!(makers[0], makers[1]);
    // Names do not tell them apart.
    let start = format!("n1 ({}) and n1 ({}) differ in 1 of 1024 shards:", a.client, b.client);
    assert!(done.stdout.starts_with(&start), "{done:?}");
}

#[test]
fn a_network_that_is_written_to_is_equal_all_the_same() {
    let n1 = NodeProcess::run("n1");
    let n2 = NodeProcess::join("n2", &[&n1]);
    let stop = Arc::new(AtomicBool::new(false));
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for (node, key) in [(&n1, "a"), (&n2, "b")] {
            let (stop, client) = (Arc::clone(&stop), node.client);
            scope.spawn(move || {
                let mut connection = crate::processes::Client::connect(client);
                let mut number = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    number += 1;
                    connection.set(&[&format!("{key}{}", number % 50)], number.into());
                }
            });
        }
        let done = verify(&n1, &n2, &["--patience", "60s"]);
        stop.store(true, Ordering::Relaxed);
        if done.code != 0 || !done.stdout.starts_with("n1 and n2 are equal") {
            *failed.lock().unwrap() = Some(done);
        }
    });
    assert!(failed.lock().unwrap().is_none(), "{failed:?}");
    let done = verify(&n1, &n2, &[]);
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn a_node_that_cannot_be_asked_is_named() {
    let n1 = NodeProcess::run("n1");
    let address = n1.client.to_string();
    let done = cli(&["verify", &address, "127.0.0.1:1"]);
    assert_eq!(done.code, 6);
    assert!(done.stderr.contains("127.0.0.1:1"), "{}", done.stderr);
    assert_eq!(cli(&["verify", &address]).code, 2);
    assert_eq!(cli(&["verify", &address, "a:b:c:d"]).code, 2);
    assert_eq!(cli(&["verify", &address, &address, "--connect", &address]).code, 2);
}

#[test]
fn one_node_is_not_compared_with_itself_and_two_of_one_name_are_told_apart() {
    let (n1, other) = (NodeProcess::run("n1"), NodeProcess::run("n1"));
    let (a, b) = (n1.client.to_string(), other.client.to_string());
    let again = format!("localhost:{}", n1.client.port());
    let done = cli(&["verify", &a, &again]);
    assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{}", done.stderr);
    for said in [&a, &again, "one node, n1"] {
        assert!(done.stderr.contains(said), "{}", done.stderr);
    }
    let done = cli(&["verify", &a, &b]);
    let equal = format!("n1 ({a}) and n1 ({b}) are equal: ");
    assert!(done.code == 0 && done.stdout.starts_with(&equal), "{done:?}");
}

#[test]
fn a_gossip_port_is_told_as_such() {
    let (n1, n2) = (NodeProcess::run("n1"), NodeProcess::run("n2"));
    let (client, gossip) = (n1.client.to_string(), n2.gossip.to_string());
    let done = run(&["verify", &client, &gossip, "--timeout", "60s"], &[], b"");
    assert_eq!(done.code, 6, "{done:?}");
    assert!(done.stderr.contains("give its client port"), "{done:?}");
}

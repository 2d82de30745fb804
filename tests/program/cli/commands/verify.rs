//! `verify`: nodes of one network that hold the same, and nodes that do not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use distkv::client::{Fields, Message};
use distkv::model::shard::shard_of;
use distkv::model::value::{write_array_len, write_map_len, write_str, write_u64};
use serde_json::Value as Json;

use crate::cli::command::{Done, cli, note, run};
use crate::cli::fake::{FakeNode, item, state};
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

/// The life of the node that has made all entries of a [`Partner`].
const MAKER: &str = "n1~a00000000001";

/// One of two scripted nodes of one network. All its entries are changes of [`MAKER`].
#[derive(Clone, Default)]
struct Partner {
    life: &'static str,
    /// Its last look at the other one's changes: the highest tick that it has heard of, and half-open ranges of what it lacks.
    heard: u64,
    missing: Vec<(u64, u64)>,
    /// Path, tick and value.
    entries: Vec<(&'static str, u64, u8)>,
    /// Lives of members.
    members: Vec<&'static str>,
    /// How it sees them.
    sees_them: &'static str,
}

impl Partner {
    fn answer(&self, request: &Message) -> Vec<Fields> {
        let mut reply = Fields::new();
        match request.str("action") {
            Some("list_shards") => {
                let mut rows = Vec::new();
                write_array_len(self.entries.len(), &mut rows);
                let mut sorted = self.entries.clone();
                sorted.sort_by_key(|(path, ..)| shard_of(&path.parse().unwrap()));
                for (path, tick, value) in sorted {
                    let hash = tick * 256 + u64::from(value);
                    let shard = shard_of(&path.parse().unwrap());
                    write_map_len(3, &mut rows);
                    for (name, n) in [("shard", u64::from(shard)), ("entries", 1), ("hash", hash)] {
                        write_str(name, &mut rows);
                        write_u64(n, &mut rows);
                    }
                }
                vec![reply.raw("result", &rows).clone()]
            }
            Some("get_state") => {
                let (mut nodes, mut missing) = (Vec::new(), Vec::new());
                write_map_len(1, &mut nodes);
                write_str(MAKER, &mut nodes);
                write_u64(self.heard, &mut nodes);
                write_map_len(1, &mut missing);
                write_str(MAKER, &mut missing);
                write_array_len(self.missing.len(), &mut missing);
                for (from, to) in &self.missing {
                    write_array_len(2, &mut missing);
                    write_u64(*from, &mut missing);
                    write_u64(*to, &mut missing);
                }
                reply.raw("nodes", &nodes).raw("missing", &missing).str("node", self.life);
                vec![reply]
            }
            Some("members") => {
                let mut rows = Vec::new();
                write_array_len(self.members.len(), &mut rows);
                for life in &self.members {
                    write_map_len(2, &mut rows);
                    for (name, text) in [("life", life), ("state", &self.sees_them)] {
                        write_str(name, &mut rows);
                        write_str(text, &mut rows);
                    }
                }
                vec![reply.raw("result", &rows).clone()]
            }
            Some("get_tree") => {
                let entry = |(path, tick, value): &(&str, u64, u8)| {
                    let mut entry = item(0, path, Some(&[*value]));
                    let mut chain = Vec::new();
                    write_map_len(2, &mut chain);
                    write_str("node", &mut chain);
                    write_str(MAKER, &mut chain);
                    write_str("tick", &mut chain);
                    write_u64(*tick, &mut chain);
                    entry.raw("chain", &chain).clone()
                };
                let entries = self.entries.iter().map(entry);
                [state("start")].into_iter().chain(entries).chain([state("end")]).collect()
            }
            _ => vec![state("start"), state("end")],
        }
    }
}

/// Four changes at `n1`, of which the other node lacks the last three: two it has heard of, and one it has not.
fn lagging() -> (Partner, Partner) {
    let n1 = Partner {
        life: MAKER,
        heard: 4,
        missing: Vec::new(),
        entries: vec![("a", 1, 1), ("b", 2, 2), ("c", 3, 3), ("d", 4, 4)],
        members: vec!["n3~a00000000003"],
        sees_them: "up",
    };
    let n3 = Partner {
        life: "n3~a00000000003",
        heard: 3,
        missing: vec![(2, 4)],
        entries: vec![("a", 1, 1)],
        members: vec![MAKER],
        sees_them: "up",
    };
    (n1, n3)
}

fn verify_fakes(n1: &FakeNode, n3: &FakeNode, words: &[&str]) -> Done {
    let (a, b) = (n1.address.to_string(), n3.address.to_string());
    run(&[&["verify", &a, &b, "--timeout", "60s"], words].concat(), &[], b"")
}

fn fake(name: &'static str, partner: Partner) -> FakeNode {
    FakeNode::start_as(name, move |request| partner.answer(request))
}

/// It took two healthy nodes, of which one was catching up, for nodes that differ.
#[test]
fn nodes_of_which_one_still_lacks_changes_are_not_comparable_yet() {
    let (n1, n3) = lagging();
    let (n1, n3) = (fake("n1", n1), fake("n3", n3));
    let done = verify_fakes(&n1, &n3, &["--patience", "0s"]);
    assert_eq!((done.code, &*done.stderr), (6, ""), "{}", done.stdout);
    assert_eq!(
        done.stdout,
        "n3 still lacks 3 changes that n1 has: ask again later, or with --patience 1m\n\
         entries that differ until then: 3; no other does\n"
    );
    // The other way round.
    let done = verify_fakes(&n3, &n1, &["--patience", "0s", "--json"]);
    assert_eq!((done.code, &*done.stderr), (6, ""), "{}", done.stdout);
    let verdict: Json = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&verdict["equal"], &verdict["comparable"]), (&false.into(), &false.into()));
    assert_eq!(verdict["lacks"], serde_json::json!({"a": 3, "b": 0}));
    assert_eq!((&verdict["differing"], &verdict["differing_until_then"]), (&0.into(), &3.into()));
}

#[test]
fn what_no_missing_change_explains_differs_also_while_one_still_lacks_some() {
    let (n1, mut n3) = lagging();
    n3.entries[0] = ("a", 1, 9);
    let (n1, n3) = (fake("n1", n1), fake("n3", n3));
    let done = verify_fakes(&n1, &n3, &["--patience", "0s"]);
    assert_eq!((done.code, &*done.stderr), (1, ""), "{}", done.stdout);
    let shard = shard_of(&"a".parse().unwrap());
    assert_eq!(
        done.stdout,
        format!(
            "n3 still lacks 3 changes that n1 has; what none of them explains differs, too:\n\
             a  (shard {shard})\n   n1  1  {MAKER}:1 …  tock 7\n   n3  9  {MAKER}:1 …  tock 7\n\
             entries that differ: 1\n\
             entries that differ because of changes still to come: 3\n"
        )
    );
    let done = verify_fakes(&n1, &n3, &["--patience", "0s", "--json"]);
    let lines: Vec<Json> =
        done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((done.code, lines.len(), &lines[0]["path"]), (1, 2, &"a".into()));
    assert_eq!((&lines[1]["comparable"], &lines[1]["differing"]), (&true.into(), &1.into()));
    assert_eq!(lines[1]["lacks"], serde_json::json!({"a": 0, "b": 3}));
}

/// Nodes of two networks lack all that the other has, and will not get it.
#[test]
fn what_nobody_will_send_is_not_waited_for() {
    let (mut n1, mut n3) = lagging();
    n3.missing.clear();
    n3.heard = 1;
    n1.members.clear();
    n3.members.clear();
    let done = verify_fakes(&fake("n1", n1), &fake("n3", n3), &["--patience", "0s"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.starts_with("n1 and n3 differ in 3 of 1024 shards:\n"), "{done:?}");
    assert!(done.stdout.contains("entries that differ: 3\n"), "{done:?}");
}

/// The second node has all that the first one has after 12 looks.
fn verify_until_it_has_come(n1: Partner, n3: Partner, words: &[&str]) -> Done {
    let (late, now, looks) = (n3.clone(), n1.clone(), AtomicU64::new(0));
    let n3 = FakeNode::start_as("n3", move |request| {
        if request.str("action") == Some("list_shards") {
            looks.fetch_add(1, Ordering::Relaxed);
        }
        let has_come = looks.load(Ordering::Relaxed) > 12;
        let here = Partner { life: late.life, ..now.clone() };
        if has_come { here.answer(request) } else { late.answer(request) }
    });
    verify_fakes(&fake("n1", n1), &n3, &[&["--patience", "300s"], words].concat())
}

/// 12 looks are 3 s, and after 2 s in which nothing changes, nothing is under way any more: but for what a node lacks.
#[test]
fn what_a_node_lacks_is_waited_for_as_long_as_it_may_come() {
    let (n1, n3) = lagging();
    let done = verify_until_it_has_come(n1, n3, &[]);
    assert_eq!((done.code, &*done.stderr), (0, ""), "{}", done.stdout);
    assert!(done.stdout.starts_with("n1 and n3 are equal: 4 entries\n"), "{}", done.stdout);
}

/// Nothing was said for 30 s of why what one of them lacked did not come.
#[test]
fn of_nodes_that_do_not_see_each_other_it_is_said_at_once_what_is_waited_for() {
    let waits = "what one of them lacks comes when they meet again; waiting for that, up to 5 m 0 s (--patience)";
    for (of_n1, of_n3, expected) in [
        ("down", "down", Some("n1 and n3 do not see each other")),
        ("down", "up", Some("n1 does not see n3")),
        ("suspect", "down", Some("n3 does not see n1")),
        ("suspect", "left", None),
    ] {
        let (mut n1, mut n3) = lagging();
        (n1.sees_them, n3.sees_them) = (of_n1, of_n3);
        let done = verify_until_it_has_come(n1, n3, &["--json"]);
        assert_eq!(done.code, 0, "{done:?}");
        let said = expected.map(|what| format!("{what}: {waits}"));
        let notes: Vec<String> = done.stderr.lines().map(note).collect();
        assert_eq!(notes, Vec::from_iter(said), "{done:?}");
    }
}

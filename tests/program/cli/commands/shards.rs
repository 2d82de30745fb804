//! `shards`: what is asked for and how it is printed, and a preference that spreads.

use distkv::client::{Fields, Message};
use serde_json::Value as Json;

use crate::cli::command::{cli, cli_with, run};
use crate::cli::fake::{FakeNode, changed, error};
use crate::processes::{NodeProcess, wait_until};

/// A node's rows: shard, entries, reads, preferred node.
fn table(rows: &[(u64, u64, u64, Option<&str>)], next: Option<u64>) -> Vec<Fields> {
    let mut result = vec![0x90 | u8::try_from(rows.len()).unwrap()];
    for (shard, entries, reads, prefer) in rows {
        let mut row = Fields::new();
        row.u64("shard", *shard).u64("entries", *entries).u64("tombstones", 1);
        row.u64("bytes", 2048).u64("reads", *reads).u64("writes", 3).u64("hash", 0xabcd);
        match prefer {
            Some(name) => row.str("prefer", name),
            None => row.nil("prefer"),
        };
        result.extend(row.encode());
    }
    let mut reply = Fields::new();
    reply.raw("result", &result).u64("tock", 7);
    match next {
        Some(next) => reply.u64("next", next),
        None => reply.nil("next"),
    };
    vec![reply]
}

/// Two pages, and what stands among the preferences.
fn scripted(request: &Message) -> Vec<Fields> {
    match (request.str("action"), request.u64("after")) {
        (Some("list_shards"), None) => table(&[(3, 20, 0, None), (5, 2, 90, Some("n2"))], Some(5)),
        (Some("list_shards"), Some(5)) => table(&[(900, 7, 1, None)], None),
        (Some("enum_internal"), _) => {
            let mut reply = Fields::new();
            reply.raw("result", b"\x82\x05\xa2n2\xa1x\xa2n2");
            vec![reply]
        }
        _ => vec![error("nothing is there", "not_found")],
    }
}

#[test]
fn all_pages_make_one_table_and_what_is_ignored_is_told() {
    let node = FakeNode::start(scripted);
    let done = cli_with(&node, &["shards"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let rows: Vec<Vec<&str>> =
        done.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0].join(" "), "SHARD ENTRIES DELETED BYTES READS WRITES HASH PREFER");
    let second = rows[2].join(" ");
    assert!(
        second.starts_with("5 2 1 2") && second.ends_with("90 3 000000000000abcd n2"),
        "{second}"
    );
    assert_eq!((rows.len(), rows[3][0]), (4, "900"));
    assert_eq!(done.stderr, "warning: :n.shards.x is ignored: it names no shard (0 to 1023)\n");
    let json = cli_with(&node, &["shards", "list", "--json"]).stdout;
    let first: Json = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    let expected = serde_json::json!({"shard": 3, "entries": 20, "tombstones": 1, "bytes": 2048,
        "reads": 0, "writes": 3, "hash": "000000000000abcd", "prefer": null});
    assert_eq!((first, json.lines().count()), (expected, 3));
}

#[test]
fn the_busiest_are_those_that_are_asked_for() {
    let node = FakeNode::start(scripted);
    let shards = |arguments: &[&str]| -> Vec<String> {
        let done = cli_with(&node, &[&["shards", "top"], arguments].concat());
        assert_eq!((done.code, done.stderr.as_str()), (0, ""));
        let lines = done.stdout.lines().skip(1);
        lines.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
    };
    assert_eq!(shards(&[]), ["5", "900", "3"]);
    assert_eq!(shards(&["--by", "entries", "--count", "2"]), ["3", "900"]);
    assert_eq!(cli_with(&node, &["shards", "top", "--by", "x"]).code, 2);
}

#[test]
fn a_preference_is_an_entry_of_the_system_s_own_tree() {
    let node = FakeNode::start(|request| match request.str("action") {
        Some("members") => {
            let mut reply = Fields::new();
            reply.raw("result", b"\x91\x81\xa4name\xa2n1");
            vec![reply]
        }
        _ => vec![changed(true)],
    });
    let done = cli_with(&node, &["shards", "prefer", "861", "n2"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, "shard 861: clients prefer n2\n"));
    assert!(done.stderr.starts_with("warning: no member is called n2;"), "{}", done.stderr);
    let set = node.asked("set_internal");
    assert_eq!(set.str("value"), Some("n2"));
    let path = b"\xc7\x0a\x03\xa6shards\xcd\x03\x5d";
    assert_eq!(set.get("path"), Some(&path[..]));
    let done = cli_with(&node, &["shards", "prefer", "861", "--none", "--json"]);
    assert_eq!(done.stdout, "{\"shard\":861,\"prefer\":null}\n");
    assert_eq!(node.asked("delete_internal").get("path"), Some(&path[..]));
}

#[test]
fn a_preference_that_makes_no_sense_is_refused_without_asking() {
    for bad in [
        &["shards", "prefer", "1024", "n1"][..],
        &["shards", "prefer", "-1", "n1"],
        &["shards", "prefer", "5"],
        &["shards", "prefer", "5", "n1", "--none"],
        &["shards", "prefer", "5", "two words"],
        &["shards", "of", "a..b"],
    ] {
        assert_eq!(cli(bad).code, 2, "{bad:?}");
    }
}

#[test]
fn a_preference_spreads_and_can_be_taken_back() {
    let n1 = NodeProcess::run("n1");
    let n2 = NodeProcess::join("n2", &[&n1]);
    let at = |node: &NodeProcess, arguments: &[&str]| {
        let address = node.client.to_string();
        let done = run(&[arguments, &["--connect", &address]].concat(), &[], b"");
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{arguments:?}");
        done.stdout
    };
    assert_eq!(
        at(&n1, &["shards", "of", "site.lamp"]),
        "site.lamp: shard 571, no node is set as preferred\n"
    );
    at(&n1, &["shards", "prefer", "571", "n2"]);
    let told = || at(&n2, &["shards", "of", "site.lamp", "--json"]);
    wait_until("the preference is at n2", || told().contains("\"prefer\":\"n2\"").then_some(()));
    at(&n2, &["set", "site.lamp", "1"]);
    let line = at(&n2, &["shards"]);
    assert!(line.lines().any(|l| l.starts_with("571 ") && l.ends_with(" n2")), "{line}");
    at(&n2, &["shards", "prefer", "571", "--none"]);
    wait_until("it is gone at n1", || {
        at(&n1, &["shards", "of", "site.lamp"]).contains("no node is set").then_some(())
    });
}

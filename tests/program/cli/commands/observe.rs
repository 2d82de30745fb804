//! `clients`, `top` and `history` against real nodes; what an interrupted `import` says; and how `get` prints a long value.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use rmpv::Value;
use serde_json::Value as Json;

use crate::cli::command::{at, at_with, cli, ok, program, run};
use crate::processes::{NodeProcess, PROGRAM, array, signal, wait_until};

fn json(text: &str) -> Vec<Json> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn clients_tells_who_is_connected_and_what_each_asks() {
    let node = NodeProcess::run("n1");
    let mut busy = node.connect();
    for n in 0..10 {
        busy.set(&["a"], Value::from(n));
    }
    busy.get(&["a"]);
    busy.send("watch", &[("path", array(&["a"]))]).unwrap();
    busy.receive().unwrap();
    let _idle = node.connect();
    let rows = json(&ok(&node, &["clients", "--json"]));
    assert_eq!(rows.len(), 3, "with this command itself: {rows:?}");
    let first = &rows[0];
    assert_eq!(first["requests"], serde_json::json!({"get": 1, "set": 10, "watch": 1}));
    assert_eq!((&first["asked"], &first["watches"]), (&12.into(), &1.into()));
    assert!(first["received"].as_u64() > Some(100) && first["sent"].as_u64() > Some(100));
    assert_eq!((&first["tls"], &first["user"]), (&false.into(), &Json::Null));
    assert!(first["address"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert_eq!(rows[1]["asked"], 0);
    // The command before may be told of for a moment.
    let table = wait_until("the command before is gone", || {
        let table = ok(&node, &["clients"]);
        table.ends_with("3 connections\n").then_some(table)
    });
    assert!(table.starts_with("ADDRESS "), "{table}");
    assert!(table.contains("set 10, get 1, watch 1"), "{table}");
    let first = ok(&node, &["clients", "--limit", "1"]);
    assert!(first.ends_with("1 connection, and there are more\n"), "{first}");
}

#[test]
fn clients_tells_what_is_asked_for_most_by_the_beginnings_of_paths() {
    let node = NodeProcess::run("n1");
    let nothing = ok(&node, &["clients", "--prefixes"]);
    assert_eq!(nothing, "too little was asked for lately to tell\n");
    let mut client = node.connect();
    // Each thread of the node looks at one of 64: with so many, each of at most 64 threads has looked.
    for n in 0..64 * 64 {
        let name = (n % 50).to_string();
        client.send("get_value", &[("path", array(&["site", "lamps", &name]))]).unwrap();
    }
    for _ in 0..64 * 64 {
        client.receive().unwrap();
    }
    let rows = json(&ok(&node, &["clients", "--prefixes", "--json"]));
    assert_eq!(rows[0]["path"], "site.lamps", "{rows:?}");
    assert!(rows[0]["requests"].as_u64() >= Some(64), "{rows:?}");
    let table = ok(&node, &["clients", "--prefixes", "--limit", "1"]);
    assert!(table.starts_with("REQUESTS ") && table.contains("site.lamps\n"), "{table}");
}

#[test]
fn history_tells_the_changes_of_an_entry_with_what_was_before() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap().to_owned();
    let network = format!("history-{}", std::process::id());
    let any = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--peer-wait", "0s"];
    let more = ["run", "--sync", "every-batch", "--data-dir", &dir];
    let start = || NodeProcess::start_in(&network, "n1", &[&more[..], &any].concat());
    let mut node = start();
    ok(&node, &["set", "lamp", "1"]);
    ok(&node, &["set", "other", "9"]);
    ok(&node, &["snapshot", "save"]);
    ok(&node, &["set", "lamp", "{\"on\": true}"]);
    ok(&node, &["delete", "lamp"]);
    node.signal("TERM");
    assert!(node.wait().success());
    let node = start();
    ok(&node, &["set", "lamp", "2"]);
    let told = at(&node, &["history", "lamp", "--json"]);
    assert_eq!(told.code, 0, "{}", told.stderr);
    let rows = json(&told.stdout);
    let changes: Vec<_> = rows
        .iter()
        .map(|row| (row["what"].as_str().unwrap(), &row["before"], &row["after"]))
        .collect();
    let (null, on) = (Json::Null, serde_json::json!({"on": true}));
    let (one, two) = (Json::from(1), Json::from(2));
    let expected =
        [("set", &null, &one), ("set", &one, &on), ("deleted", &on, &null), ("set", &null, &two)];
    assert_eq!(changes, expected);
    assert!(rows.iter().all(|row| row["event"].as_str().unwrap().starts_with("n1~")), "{rows:?}");
    assert_ne!(rows[0]["event"].as_str().unwrap()[..8], rows[3]["event"].as_str().unwrap()[..8]);
    assert!(told.stderr.contains("this node's past begins at "), "{}", told.stderr);
    // Between the third and the fourth it was off.
    let was_off = "nothing was logged (this node did not run,";
    assert!(told.stderr.contains(was_off), "{}", told.stderr);
    let text = ok(&node, &["history", "lamp"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].contains("  set      1 -> {\"on\":true}  (n1~"), "{text}");
    assert!(lines[2].contains("  deleted  was {\"on\":true}  (n1~"), "{text}");
    // The last ones, and since a moment.
    let last = at(&node, &["history", "lamp", "--limit", "2", "--json"]);
    assert_eq!(json(&last.stdout), rows[2..]);
    assert!(last.stderr.contains("there are older changes"), "{}", last.stderr);
    let since = rows[3]["time"].as_str().unwrap();
    let since = at(&node, &["history", "lamp", "--since", since, "--json"]);
    assert_eq!(json(&since.stdout), rows[3..]);
    assert!(!since.stderr.contains(was_off), "{}", since.stderr);
    let nothing = at(&node, &["history", "nobody", "--since", "1h"]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (0, ""));
    assert!(nothing.stderr.contains("nobody: no changes since "), "{}", nothing.stderr);
}

#[test]
fn a_node_without_a_data_directory_says_that_it_has_no_past() {
    let node = NodeProcess::run("n1");
    ok(&node, &["set", "lamp", "1"]);
    let done = at(&node, &["history", "lamp"]);
    assert_eq!((done.code, done.stdout.as_str()), (3, ""));
    assert!(done.stderr.contains("remembers no past"), "{}", done.stderr);
}

#[test]
fn top_shows_all_nodes_and_first_the_one_that_does_not_answer() {
    let first = NodeProcess::run("n1");
    let mut second = NodeProcess::join("n2", &[&first]);
    ok(&first, &["wait", "--members", "2"]);
    ok(&first, &["set", "a", "1", "--copies", "1"]);
    let both = |rows: &[Json]| rows.iter().all(|row| row["answers"] == true) && rows.len() == 2;
    // A node that is only slow answers, too.
    let top = ["top", "--once", "--every", "100ms", "--timeout", "60s"];
    let rows = json(&ok(&first, &[&top[..], &["--json"]].concat()));
    assert!(both(&rows), "{rows:?}");
    assert!(rows.iter().all(|row| row["state"] == "ok" && row["requests_per_s"].is_number()));
    assert_eq!(rows[0]["behind"], 0);
    let table = ok(&first, &top);
    let names: Vec<_> = table.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(names, ["NODE", "n1", "n2"]);
    second.kill();
    wait_until("n2 does not answer", || {
        let rows = json(&ok(&first, &["top", "--once", "--json", "--every", "100ms"]));
        (rows[0]["node"] == "n2" && rows[0]["state"] == "no answer").then_some(())
    });
}

#[test]
fn top_leaves_the_terminal_as_it_was() {
    let node = NodeProcess::run("n1");
    let command = format!("{PROGRAM} top --every 100ms --connect {}; stty -a", node.client);
    // A terminal of its own.
    let mut script = Command::new("script")
        .args(["-qefc", &command, "/dev/null"])
        .env_remove("DISTKV_CONNECT")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script: apt-get install bsdutils");
    let mut output = script.stdout.take().unwrap();
    let mut shown = String::new();
    let mut read_until = |wanted: &str| {
        let mut buffer = [0; 4096];
        while !shown.contains(wanted) {
            let count = output.read(&mut buffer).unwrap();
            assert!(count > 0, "it has ended before {wanted:?}: {shown}");
            shown.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        shown.clone()
    };
    // The other screen, and a table on it, twice.
    let live = read_until("q ends");
    assert!(live.contains("\u{1b}[?1049h"), "{live:?}");
    let mut input = script.stdin.take().unwrap();
    input.write_all(b"q").unwrap();
    let after = read_until("-extproc").replace("\r\n", " ");
    let after = after.rsplit("\u{1b}[?1049l").next().unwrap();
    assert!(
        after.contains(" icanon ") && after.contains(" echo ") && after.contains(" isig "),
        "{after}"
    );
    drop(input);
    let mut rest = String::new();
    let _ = output.read_to_string(&mut rest);
    script.wait().unwrap();
}

#[test]
fn top_at_a_terminal_that_moves_no_cursor_prints_one_table() {
    let node = NodeProcess::run("n1");
    let top = format!("timeout 60 {PROGRAM} top --every 100ms --connect {}", node.client);
    let mut script = Command::new("script");
    script.args(["-qefc", &top, "/dev/null"]).env("TERM", "dumb").env_remove("DISTKV_CONNECT");
    let done = script.stdin(Stdio::null()).output().expect("script: apt-get install bsdutils");
    let shown = String::from_utf8(done.stdout).unwrap();
    assert_eq!(done.status.code(), Some(0), "{shown}");
    assert!(shown.starts_with("NODE ") && !shown.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn an_interrupted_import_tells_what_is_done() {
    let node = NodeProcess::run("n1");
    let address = node.client.to_string();
    let mut import = program(&["import", "-", "--connect", &address]).spawn().unwrap();
    // Its input stays open, so that it does not end by itself.
    let mut input = import.stdin.take().unwrap();
    for n in 0..2_000 {
        writeln!(input, "{{\"path\": \"a.k{n}\", \"value\": {n}}}").unwrap();
    }
    input.flush().unwrap();
    let entries = || {
        let status = json(&ok(&node, &["status", "--json"]));
        status[0]["live_entries"].as_u64().unwrap()
    };
    wait_until("it has begun", || (entries() > 0).then_some(()));
    signal(import.id(), "INT");
    let done = import.wait_with_output().unwrap();
    let (said, why) =
        (String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap());
    assert_eq!(done.status.code(), Some(130), "{why}");
    assert_eq!(said, format!("{} set, 0 unchanged\n", entries()));
    assert!(why.contains("interrupted: the lines behind these were not imported"), "{why}");
    drop(input);
}

#[test]
fn an_interrupted_move_tells_what_is_done_and_is_finished_by_force() {
    const ENTRIES: usize = 20_000;
    let node = NodeProcess::run("n1");
    let lines: String =
        (0..ENTRIES).map(|n| format!("{{\"path\": \"a.k{n}\", \"value\": {n}}}\n")).collect();
    let import =
        run(&["import", "-", "--connect", &node.client.to_string()], &[], lines.as_bytes());
    assert_eq!(import.code, 0, "{}", import.stderr);
    let count = |path: &str| ok(&node, &["tree", path, "--json"]).lines().count();
    let address = node.client.to_string();
    let moving = program(&["mv", "a", "b", "--recursive", "--connect", &address]).spawn().unwrap();
    wait_until("it has begun", || (at(&node, &["get", "b.k0"]).code == 0).then_some(()));
    signal(moving.id(), "INT");
    let done = moving.wait_with_output().unwrap();
    let why = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(130), "{why}");
    let moved = count("b");
    assert!((1..ENTRIES).contains(&moved));
    let said = String::from_utf8(done.stdout).unwrap();
    assert_eq!(said, format!("{moved} entries moved from a to b\n"));
    assert!(why.contains("interrupted: the rest is where it was"), "{why}");
    assert_eq!(count("a"), ENTRIES - moved);
    ok(&node, &["mv", "a", "b", "--recursive", "--force"]);
    assert_eq!((count("a"), count("b")), (0, ENTRIES));
}

/// So many levels around so many numbers.
fn deep(levels: usize, items: u32) -> Vec<u8> {
    let mut value = vec![0x91; levels];
    value.push(0xdd);
    value.extend(items.to_be_bytes());
    value.resize(value.len() + items as usize, 7);
    value
}

/// Indented, a value within bounds would be a thousand times as long as it is.
#[test]
fn a_long_value_is_printed_on_one_line() {
    let node = NodeProcess::run("n1");
    let get = |value: &[u8]| {
        let set = at_with(&node, &["set", "deep", "--msgpack", "-"], value);
        assert_eq!(set.code, 0, "{set:?}");
        ok(&node, &["get", "deep"])
    };
    let short = get(&deep(60, 1_000));
    assert!(short.lines().count() > 1_000 && short.lines().nth(100).unwrap().ends_with("  7,"));
    let text = |levels, items| {
        let items = vec!["7"; items].join(",");
        format!("{}[{items}]{}\n", "[".repeat(levels), "]".repeat(levels))
    };
    assert!(get(&deep(60, 100_000)) == text(60, 100_000), "one line");
    // What nobody sees is escaped, and what is printed can be set.
    let rest = "x".repeat(70_000);
    let long = format!(r#"{{"a":"\u202e\n{rest}","b":{{"$int":"9007199254740993"}}}}"#);
    assert_eq!(at_with(&node, &["set", "long", "-"], long.as_bytes()).code, 0);
    assert!(ok(&node, &["get", "long"]) == format!("{long}\n"), "as it was set");
    let help = cli(&["get", "--help"]).stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("One of more than 64 KiB (as MessagePack) is one line"), "{help}");
}

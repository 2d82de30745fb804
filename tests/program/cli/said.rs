//! What commands say besides what they print: lines for people; with `--json`, one object per line.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use distkv::client::Fields;
use distkv::model::value::{write_array_len, write_map_len, write_str};
use serde_json::Value as Json;

use crate::cli::command::{
    at, at_with, bench, cli, cli_until_asked, cli_with, ok, program, run, until_met,
};
use crate::cli::fake::{CLOCK, FakeNode, changed, error, item, state};
use crate::processes::{NodeProcess, signal, wait_until};

/// Each line's only key.
fn kinds(said: &str) -> Vec<String> {
    let kind = |line: &str| {
        let said: Json = serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        let said = said.as_object().unwrap();
        assert!(said.len() == 1 && said.values().all(Json::is_string), "{line}");
        said.keys().next().unwrap().clone()
    };
    said.lines().map(kind).collect()
}

fn scripted(request: &distkv::client::Message) -> Vec<Fields> {
    let mut reply = Fields::new();
    match request.str("action") {
        Some("watch" | "get_tree") => {
            let mut entry = item(0, "x", Some(b"\x01"));
            entry.raw("chain", b"\x82\xa4node\xa2n1\xa4tick\x05");
            if request.bool("fetch").is_some() {
                return vec![state("start"), entry];
            }
            vec![state("start"), entry, state("end")]
        }
        Some("msg_monitor") => {
            let mut message = Fields::new();
            message.raw("topic", b"\x91\xa1a").raw("data", b"\x01");
            vec![state("start"), message]
        }
        Some("conflicts") => vec![state("start"), state("end")],
        Some("history") => {
            reply.raw("result", b"\x90").bool("gaps", true);
            vec![reply]
        }
        Some("members") => {
            let mut warnings = Vec::new();
            write_array_len(1, &mut warnings);
            write_str("n3 is away", &mut warnings);
            reply.raw("result", b"\x90").raw("warnings", &warnings);
            vec![reply]
        }
        Some("enum_internal") => {
            let mut children = Vec::new();
            write_map_len(1, &mut children);
            write_str("x", &mut children);
            write_str("n1", &mut children);
            vec![reply.raw("result", &children).clone()]
        }
        Some("status") => vec![reply.u64("time", 1_000_000).clone()],
        _ => vec![changed(true)],
    }
}

#[test]
fn with_json_notes_and_warnings_are_json_too() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty").to_str().unwrap().to_owned();
    fs::write(&empty, "").unwrap();
    for (arguments, expected) in [
        (&["watch", "a", "--count", "1"][..], &["note"][..]),
        (&["monitor", "a", "--count", "1"], &["note"]),
        // Programs asked for just those.
        (&["tree", "a", "--depth", "0"], &[]),
        (&["delete", "a", "--recursive", "--dry-run"], &[]),
        (&["apply", &empty, "--below", "a", "--dry-run"], &[]),
        (&["history", "a"], &["note", "note"]),
        (&["history", "a", "--since", "10m"], &["note", "note", "note"]),
        (&["conflicts", "a"], &["note"]),
        (&["members"], &["warning"]),
        (&["shards", "prefer", "5", "n9"], &["warning"]),
    ] {
        let node = FakeNode::start(scripted);
        let people = cli_with(&node, arguments);
        assert_eq!(people.code, 0, "{arguments:?}: {}", people.stderr);
        assert!(!people.stderr.contains('{'), "{arguments:?}: {}", people.stderr);
        let programs = cli_with(&node, &[arguments, &["--json"]].concat());
        assert_eq!(programs.code, 0, "{arguments:?}: {}", programs.stderr);
        assert_eq!(kinds(&programs.stderr), expected, "{arguments:?}: {}", programs.stderr);
    }
}

#[test]
fn what_is_refused_has_not_begun() {
    // As for clients of the Python DistKV, it begins before it is refused.
    let node = FakeNode::start(|request| match request.str("action") {
        Some("watch" | "msg_monitor") => vec![state("start"), error("not for you", "denied")],
        _ => vec![error("nor is this", "auth_required")],
    });
    for arguments in [&["watch", "a"][..], &["monitor"], &["conflicts", "--follow"]] {
        let done = cli_with(&node, arguments);
        let refusal = "error: the node refuses: not for you (denied)\n";
        assert_eq!((done.code, &*done.stderr), (3, refusal), "{arguments:?}");
    }
}

#[test]
fn of_what_only_reads_nothing_may_have_been_done() {
    // It greets, and answers nothing.
    let node = FakeNode::start(|_| Vec::new());
    for arguments in
        [&["status"][..], &["acl", "explain", "joe", "k"], &["get", "a"], &["user", "show", "joe"]]
    {
        let done = cli_with(&node, &[arguments, &["--timeout", "200ms"]].concat());
        assert_eq!(done.code, 6, "{arguments:?}: {}", done.stderr);
    }
    let done = cli_until_asked(&node, "set_value", &["set", "a", "1", "--timeout", "200ms"]);
    assert_eq!(done.code, 7, "{}", done.stderr);
}

#[test]
fn what_a_command_changes_counts_for_as_long_as_it_waits() {
    let node = FakeNode::start(|_| vec![changed(true)]);
    let commands: [(&[&str], &str); 4] = [
        (&["set", "a", "1"], "set_value"),
        (&["delete", "a"], "delete_value"),
        (&["delete", "a", "--recursive"], "delete_tree"),
        (&["send", "t", "1"], "msg_send"),
    ];
    for (arguments, action) in commands {
        cli_with(&node, &[arguments, &["--timeout", "50s"]].concat());
        let by = node.asked(action).u64("by").unwrap();
        // Connecting takes of the time, but on no machine half a minute, and the whole command no ten minutes.
        assert!((CLOCK + 20_000..CLOCK + 650_000).contains(&by), "{action}: {by}");
    }
    cli_with(&node, &["get", "a"]);
    assert_eq!(node.asked("get_value").u64("by"), None);
    // It may take ten minutes, but it begins soon.
    let node = FakeNode::start(|_| vec![changed(true)]);
    cli_with(&node, &["delete", "a", "--recursive"]);
    let by = node.asked("delete_tree").u64("by").unwrap();
    assert!((CLOCK + 1..CLOCK + 510_000).contains(&by), "{by}");
}

#[test]
fn a_node_has_no_more_time_than_timeout_says() {
    let (silent, other) = (FakeNode::start(|_| Vec::new()), FakeNode::start(|_| Vec::new()));
    let b = other.address.to_string();
    let soon = ["--timeout", "200ms"];
    for arguments in [
        &["shards"][..],
        &["shards", "top"],
        &["shards", "of", "a"],
        &["shards", "prefer", "5", "n2"],
        &["members"],
        &["members", "forget", "n2", "--yes"],
        &["status"],
    ] {
        let done = until_met(|| cli_with(&silent, &[arguments, &soon].concat()));
        let said = format!("{} did not answer within 200ms", silent.address);
        assert!(done.stderr.contains(&said), "{arguments:?}: {}", done.stderr);
    }
    let a = silent.address.to_string();
    let done = until_met(|| cli(&[&["verify", &a, &b][..], &soon].concat()));
    assert!(done.stderr.contains("did not answer within 200ms"), "{}", done.stderr);
}

/// A node's only row of shards, behind which there are more.
fn shard_row(shard: u64) -> Fields {
    let (mut row, mut reply) = (Fields::new(), Fields::new());
    row.u64("shard", shard).u64("entries", 1).u64("hash", 1).nil("prefer");
    reply.raw("result", &[vec![0x91], row.encode()].concat()).u64("next", shard).u64("tock", 7);
    reply
}

#[test]
fn requests_of_one_command_have_their_time_together() {
    // Each answer comes soon, and there are many.
    let node = FakeNode::start(|request| {
        let after = request.u64("after").unwrap_or(0);
        sleep(Duration::from_millis(30));
        vec![shard_row(after + 1)]
    });
    let done = until_met(|| cli_with(&node, &["shards", "--timeout", "300ms"]));
    assert_eq!(done.code, 6, "{}", done.stderr);
    assert!(done.stderr.contains("did not answer within 300ms"), "{}", done.stderr);
}

#[test]
fn a_preference_that_is_set_stays_so_where_the_members_cannot_be_looked_up() {
    let node = FakeNode::start(|request| match request.str("action") {
        Some("set_internal") => vec![changed(true)],
        _ => Vec::new(),
    });
    let done = wait_until("it is set in time", || {
        let done = cli_with(&node, &["shards", "prefer", "5", "n2", "--timeout", "300ms"]);
        // Who has set it looks for the members.
        let is_late = done.code != 0 && !node.is_asked("members");
        (!is_late).then_some(done)
    });
    assert_eq!((done.code, &*done.stdout), (0, "shard 5: clients prefer n2\n"), "{}", done.stderr);
}

#[test]
fn a_refusal_behind_a_try_that_may_have_been_made_leaves_the_fate_open() {
    let (not_confirmed, words) =
        ("0 of 1 nodes have it", "Data is 2, not 0, at a; nothing was changed");
    for (arguments, code, words) in [
        (&["set", "a", "1", "--if-value", "0"][..], "data_mismatch", words),
        (&["delete", "a", "--if-value", "0"], "data_mismatch", words),
        (&["set", "a", "1", "--if-new"], "already_exists", "Entry already exists at a"),
        (&["set", "a", "1"], "denied", "not for you; nothing was changed"),
    ] {
        let run = |more: &[&str]| {
            let tries = AtomicUsize::new(0);
            let node = FakeNode::start(move |request| match request.str("action") {
                Some("set_value" | "delete_value") => match tries.fetch_add(1, Ordering::SeqCst) {
                    0 => vec![error(not_confirmed, "unknown_fate")],
                    _ => vec![error(words, code)],
                },
                // One of our time: it heeds write ids.
                Some("cluster") => {
                    let id = Fields::new().str("name", "fake").u64("incarnation", 7).encode();
                    vec![Fields::new().raw("id", &id).clone()]
                }
                _ => vec![error("no such action", "unknown_action")],
            });
            let several = format!("{0},{0}", node.address);
            cli(&[arguments, more, &["--connect", &several]].concat())
        };
        let people = run(&[]);
        assert_eq!(people.code, 7, "{arguments:?}: {people:?}");
        assert!(!people.stderr.contains("nothing was changed"), "{people:?}");
        let told = format!("({code}) (at fake, 2 tries, done but not confirmed)\n");
        assert!(people.stderr.starts_with("error: an earlier try may have done it"), "{people:?}");
        assert!(people.stderr.ends_with(&told), "{people:?}");
        let programs = run(&["--json"]);
        let told: Json = serde_json::from_str(&programs.stderr).unwrap();
        let found = (programs.code, &told["outcome"], &told["code"], &told["exit_code"]);
        assert_eq!(found, (7, &"unknown_fate".into(), &code.into(), &7.into()), "{programs:?}");
    }
}

#[test]
fn nothing_that_a_terminal_obeys_is_printed() {
    // Nor what nobody sees.
    let node = NodeProcess::run("n\u{202e}\u{200b}\u{e4}");
    let value = "\u{9b}31m\u{202e}\u{7f}\u{200b}\u{feff}\u{e0041}\u{e4}";
    assert_eq!(at(&node, &["set", "--string", "a", value]).code, 0);
    let commands = [
        &["get", "a", "--json"][..],
        &["tree", "--json"],
        &["get", "a"],
        &["get", "a", "--chain"],
        &["tree", "--chain"],
        &["members"],
        &["status"],
        &["clients"],
    ];
    for command in commands {
        let done = at(&node, command);
        let hidden = ['\u{202e}', '\u{200b}', '\u{feff}', '\u{e0041}'];
        let bad = |c: char| c != '\n' && (c.is_control() || hidden.contains(&c));
        assert!(done.code == 0 && !done.stdout.contains(bad), "{command:?}: {:?}", done.stdout);
        assert!(done.stdout.contains('\u{e4}') || command == ["clients"], "{command:?}");
        if command.contains(&"--json") {
            let told: Json = serde_json::from_str(&done.stdout).unwrap();
            assert_eq!(told["value"], value);
        }
    }
}

/// Each of them in one line, whatever a name has in it, and with the same escapes.
#[test]
fn the_end_of_a_line_in_a_path_ends_no_line() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().display().to_string();
    let ports = ["run", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--data-dir", &data];
    let node = NodeProcess::start("n1", &ports);
    let (path, other, escaped) = ("v.new\nline", "v.other\nline", "v.new:u000aline");
    ok(&node, &["acl", "set", "reads", "a", "r"]);
    let acl = |words: &[&'static str]| [&["acl"], words].concat();
    let commands: [Vec<&str>; 26] = [
        vec!["get", path],
        vec!["set", path, "1"],
        vec!["set", path, "1"],
        vec!["set", path, "2", "--if-new"],
        vec!["set", path, "2", "--if-value", "7"],
        vec!["ls", "v"],
        vec!["tree"],
        vec!["edit", path],
        vec!["history", other],
        vec!["watch", path, "--fetch", "--count", "1"],
        vec!["conflicts", path],
        vec!["shards", "of", path],
        vec!["cp", path, other],
        vec!["cp", path, other],
        vec!["cp", "v.nothing\nthere", other],
        vec!["cp", "v.nothing\nthere", other, "--recursive"],
        vec!["delete", other],
        vec!["set", "v.new\nline.below", "1"],
        vec!["delete", path],
        vec!["delete", path],
        vec!["delete", path, "--recursive"],
        vec!["delete", path, "--recursive"],
        acl(&["set", "reads", path, "r"]),
        acl(&["test", "reads", path]),
        acl(&["delete", "reads", path]),
        acl(&["delete", "reads", path]),
    ];
    let client = node.client.to_string();
    for arguments in commands {
        let all = [&arguments[..], &["--connect", &client]].concat();
        let done = run(&all, &[("EDITOR", "true"), ("VISUAL", "")], b"");
        let said = format!("{}{}", done.stdout, done.stderr);
        // A command that is to be typed has it as shells take it.
        let shown = said.replace("\\012", ":u000a");
        let named = arguments.iter().find(|word| word.contains('\n')).unwrap_or(&path);
        assert!(!said.contains(named), "{arguments:?}: {said}");
        let is_named = shown.contains(&named.replace('\n', ":u000a")) || shown.contains(escaped);
        assert!(is_named, "{arguments:?}: {said}");
        assert!(said.lines().all(|line| !line.starts_with("line")), "{arguments:?}: {said}");
    }
    // What is there may have such a name, too.
    let lines = "{\"path\": \"v.new\\nline\", \"value\": 1}\n";
    let below = at_with(&node, &["diff", "--below", "other\nplace", "-"], lines.as_bytes());
    let twice = at_with(&node, &["diff", "-"], lines.repeat(2).as_bytes());
    for done in [below, twice] {
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
        assert!(done.stderr.contains(escaped), "{}", done.stderr);
    }
}

#[test]
fn of_a_bench_too() {
    let node = NodeProcess::run("n1");
    let load = ["--keys", "10", "--warm-up", "0s", "--count", "10", "--json"];
    let done = at(&node, &[&["bench"], &load[..]].concat());
    assert_eq!((done.code, &*kinds(&done.stderr).join(" ")), (0, "note"), "{}", done.stderr);
    let client = node.client.to_string();
    let done = bench(&[&["--connect", &client, "--keep"], &load[..]].concat());
    assert_eq!((done.code, &*kinds(&done.stderr).join(" ")), (0, "note"), "{}", done.stderr);
    let done = bench(&["--connect", "127.0.0.1:1", "--json"]);
    assert_eq!(done.code, 6, "{}", done.stderr);
    let told: Json = serde_json::from_str(&done.stderr).expect("one line of JSON");
    assert_eq!(told["outcome"], "unreachable");
}

#[test]
fn a_second_ctrl_c_is_told_like_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let line = folder.path().join("line.jsonl").to_str().unwrap().to_owned();
    fs::write(&line, "{\"path\": \"a.x\", \"value\": 1}\n").unwrap();
    for form in [&[][..], &["--json"]] {
        let node = FakeNode::start(|_| Vec::new());
        let connect = node.address.to_string();
        let arguments = [&["import", &line, "--connect", &connect], form].concat();
        let mut running = program(&arguments).spawn().unwrap();
        wait_until("it waits for the node", || node.is_asked("set_value").then_some(()));
        // One that is heard at once is no second one, and nobody sees when the first was heard: a second one comes
        // sooner or later.
        wait_until("it has ended", || {
            signal(running.id(), "INT");
            running.try_wait().unwrap()
        });
        let done = running.wait_with_output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(130), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        let text = "interrupted: ended at once, so line 1 may have been imported";
        if form.is_empty() {
            assert_eq!(said.trim_end(), text);
        } else {
            let told: Json = serde_json::from_str(&said).unwrap();
            assert_eq!((&told["error"], &told["exit_code"]), (&text.into(), &130.into()));
        }
    }
}

//! Commands on what lies below a path, and on one entry in an editor, against real nodes.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use serde_json::Value as Json;

use crate::cli::command::{Done, at, ok, run};
use crate::processes::NodeProcess;

fn with(node: &NodeProcess, arguments: &[&str], environment: &[(&str, &str)]) -> Done {
    let connect = node.client.to_string();
    run(&[arguments, &["--connect", &connect]].concat(), environment, b"")
}

/// All entries: paths and values.
fn all(node: &NodeProcess) -> BTreeMap<String, Json> {
    let lines = ok(node, &["tree", "--json"]);
    let rows = lines.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    rows.map(|row| (row["path"].as_str().unwrap().to_owned(), row["value"].clone())).collect()
}

fn site() -> NodeProcess {
    let node = NodeProcess::run("n1");
    for (path, value) in [("site", "0"), ("site.lamp", "1"), ("site.hall.fan", "2"), ("x:1.y", "3")]
    {
        ok(&node, &["set", path, value]);
    }
    node
}

#[test]
fn what_is_directly_below_a_path_is_listed() {
    let node = site();
    assert_eq!(ok(&node, &["ls"]), "site\nx\n");
    assert_eq!(ok(&node, &["ls", "site"]), "site.hall\nsite.lamp\n");
    let long = ok(&node, &["ls", "site", "--long"]);
    let start = "site.hall\t(no value; there are entries below)\nsite.lamp\t1\t(";
    assert!(long.starts_with(start) && long.ends_with("Z)\n"), "{long}");
    let json = ok(&node, &["ls", "x:1", "--json"]);
    let start = "{\"path\":\"x:1.y\",\"has_value\":true,\"time\":\"";
    assert!(json.starts_with(start) && json.ends_with("Z\"}\n"), "{json}");
    assert_eq!(ok(&node, &["ls", "nothing"]), "");
    let rows = ok(&node, &["ls", "site", "--long", "--json"]);
    let rows: Vec<Json> = rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    assert_eq!((&rows[0]["path"], rows[0].get("value")), (&"site.hall".into(), None));
    assert_eq!((&rows[1]["path"], rows[1].get("value")), (&"site.lamp".into(), Some(&1.into())));
    assert!(rows[1]["time"].is_string(), "{rows:?}");
}

/// Two entries that would look alike if a control character were shown as something that may stand in a name, too.
#[test]
fn paths_that_are_printed_can_be_typed_back_whatever_is_in_them() {
    let node = NodeProcess::run("n1");
    let entries = [
        ("amb.t\tx", "1"),
        (r"amb.t\u0009x", "2"),
        ("amb.t::u0009x", "3"),
        ("amb:1.\u{9b}\u{202e}\u{e0041}", "4"),
    ];
    for (path, value) in entries {
        ok(&node, &["set", path, value]);
    }
    let listed = ok(&node, &["ls", "amb"]);
    assert_eq!(listed, "amb:1\namb.t:u0009x\namb.t::u0009x\namb.t\\u0009x\n");
    let tree = ok(&node, &["tree", "amb"]);
    let rows = tree.lines().map(|row| row.split_once("  ").unwrap());
    let rows: Vec<(&str, &str)> = rows.map(|(path, value)| (path, value.trim())).collect();
    let values: Vec<&str> = rows.iter().map(|(_, value)| *value).collect();
    assert_eq!(values, ["4", "1", "3", "2"], "{tree}");
    assert_eq!(rows[0].0, "amb:1.:u009b:u202e:u{e0041}");
    for (path, value) in &rows {
        assert_eq!(ok(&node, &["get", path]), format!("{value}\n"), "{path}");
    }
    // What the others print, too.
    let history = at(&node, &["get", "amb.no\nthing"]);
    assert!(history.stderr.contains("amb.no:u000athing has no value"), "{history:?}");
    let refused = at(&node, &["set", "amb.t\tx", "5", "--if-value", "7"]);
    assert!(refused.stderr.contains("amb.t:u0009x"), "{refused:?}");
    // The one that is named goes, and no other.
    let first = listed.lines().nth(1).unwrap();
    ok(&node, &["delete", first]);
    let left: Vec<String> = all(&node).into_keys().collect();
    assert_eq!(left, ["amb.t::u0009x", r"amb.t\u0009x", "amb:1.\u{9b}\u{202e}\u{e0041}"]);
}

/// A slash behind the name of what has only something below it was also the end of another entry's name, which
/// `delete --recursive` then deleted.
#[test]
fn what_ls_prints_is_the_path_and_nothing_else() {
    let node = NodeProcess::run("n1");
    ok(&node, &["set", "f.a.b", "1"]);
    ok(&node, &["set", "f.a/", "2"]);
    let listed = ok(&node, &["ls", "f"]);
    assert_eq!(listed, "f.a\nf.a/\n");
    let trees: Vec<String> = listed.lines().map(|path| ok(&node, &["tree", path])).collect();
    assert_eq!(trees, ["f.a.b  1\n", "f.a/  2\n"]);
    // The columns of --long stand behind tabs, which no path has when it is printed.
    let long = ok(&node, &["ls", "f", "--long"]);
    let columns: Vec<Vec<&str>> = long.lines().map(|line| line.split('\t').collect()).collect();
    let paths: Vec<&str> = columns.iter().map(|columns| columns[0]).collect();
    assert_eq!(paths, ["f.a", "f.a/"]);
    assert_eq!(columns[0][1..], ["(no value; there are entries below)"]);
    assert_eq!((columns[1][1], columns[1].len()), ("2", 3), "{long}");
    let [first, _] = &*listed.lines().collect::<Vec<_>>() else { panic!("{listed}") };
    assert_eq!(ok(&node, &["delete", "--recursive", first]), "f.a: 1 deleted\n");
    assert_eq!(ok(&node, &["tree", "f"]), "f.a/  2\n");
}

#[test]
fn what_was_deleted_is_not_listed() {
    let node = site();
    for path in ["site.lamp", "x:1.y"] {
        ok(&node, &["delete", path]);
    }
    assert_eq!(ok(&node, &["ls"]), "site\n");
    assert_eq!(
        ok(&node, &["ls", "site", "--json"]),
        "{\"path\":\"site.hall\",\"has_value\":false}\n"
    );
    // Above what is still there stands a name, whether that itself was deleted or not.
    ok(&node, &["delete", "site"]);
    assert_eq!(ok(&node, &["ls"]), "site\n");
    for number in 0..100 {
        ok(&node, &["set", &format!("many.n{number}"), "1"]);
    }
    for number in 0..98 {
        ok(&node, &["delete", &format!("many.n{number}")]);
    }
    assert_eq!(ok(&node, &["ls", "many"]), "many.n98\nmany.n99\n");
}

#[test]
fn entries_and_trees_are_copied_and_replace_nothing_unless_forced() {
    let node = site();
    assert_eq!(
        ok(&node, &["cp", "site.lamp", "spare"]),
        "1 entry copied from site.lamp to spare\n"
    );
    let done = at(&node, &["cp", "site.hall", "hall"]);
    assert!(done.code == 1 && done.stderr.contains("--recursive"), "{}", done.stderr);
    let done = at(&node, &["cp", "-r", "site", "site.hall"]);
    assert!(done.code == 2 && done.stderr.contains("below site itself"), "{}", done.stderr);
    let done = at(&node, &["cp", "-r", ":n.auth", "a"]);
    assert!(done.code == 2 && done.stderr.contains("belongs to the system"), "{}", done.stderr);

    ok(&node, &["set", "old.lamp", "7"]);
    ok(&node, &["set", "old.only", "8"]);
    let done = at(&node, &["cp", "-r", "site", "old"]);
    assert!(done.code == 5 && done.stderr.contains("old.lamp"), "{}", done.stderr);
    assert!(done.stderr.contains("--force replaces"), "{}", done.stderr);
    assert_eq!(ok(&node, &["get", "old.lamp"]), "7\n");
    assert_eq!(ok(&node, &["cp", "-rf", "site", "old", "--json"]), "{\"copied\":3}\n");
    let expected = [
        ("old", 0),
        ("old.hall.fan", 2),
        ("old.lamp", 1),
        ("old.only", 8),
        ("site", 0),
        ("site.hall.fan", 2),
        ("site.lamp", 1),
        ("spare", 1),
        ("x:1.y", 3),
    ];
    assert_eq!(all(&node), expected.map(|(path, value)| (path.to_owned(), value.into())).into());
}

#[test]
fn a_move_that_is_refused_half_way_says_what_is_where_and_how_to_go_on() {
    let arguments =
        ["run", "--peer-wait", "0s", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let node = NodeProcess::start("n1", &[&arguments[..], &["--max-memory", "500KB"]].concat());
    let value = "x".repeat(100);
    let lines: String = (0..1_500)
        .map(|n| format!("{{\"path\": \"s.n:{n}\", \"value\": \"{value}\"}}\n"))
        .collect();
    let connect = node.client.to_string();
    let done = run(&["import", "-", "--connect", &connect], &[], lines.as_bytes());
    assert_eq!(done.code, 0, "{}", done.stderr);
    let done = at(&node, &["mv", "s", "t", "--recursive"]);
    assert!(done.code == 3 && done.stderr.contains("memory limit"), "{done:?}");
    let count = |top: &str| ok(&node, &["tree", top, "--json"]).lines().count();
    let (old, new) = (count("s"), count("t"));
    let both = old + new - 1_500;
    assert!(new > 0 && old > both, "{old} {new}");
    assert_eq!(done.stdout, format!("{} entries moved from s to t\n", new - both));
    let told = if both == 0 { String::new() } else { format!("{both} entr") };
    assert!(done.stderr.contains(&told), "{both}: {}", done.stderr);
    assert!(done.stderr.contains("`distkv-node mv s t --recursive --connect "), "{done:?}");
    assert!(done.stderr.contains("goes on from there, at this node or at another one"), "{done:?}");
}

#[test]
fn whoever_moves_an_entry_does_so_at_the_node_that_is_preferred_for_it() {
    let n1 = NodeProcess::run("n1");
    let n2 = NodeProcess::join("n2", &[&n1]);
    let n3 = NodeProcess::join("n3", &[&n1, &n2]);
    let client = |node: &NodeProcess| node.client.to_string();
    let from = |first: usize| {
        let mut addresses = [client(&n1), client(&n2), client(&n3)];
        addresses.rotate_left(first);
        addresses.join(",")
    };
    // Long enough that a node that is only slow counts.
    let by = |addresses: &str, arguments: &[&str]| {
        run(&[arguments, &["--timeout", "60s", "--connect", addresses]].concat(), &[], b"")
    };
    for node in [&n1, &n2, &n3] {
        let ready = by(&client(node), &["wait", "--members", "3"]);
        assert_eq!(ready.code, 0, "{ready:?}");
    }
    let movers = |first: usize| {
        let set = by(&from(0), &["set", "jobs.x", "1", "--json"]);
        assert_eq!(set.code, 0, "{set:?}");
        // Each names another node first.
        let moved = thread::scope(|scope| {
            let place = |k: usize| format!("taken.{first}.{k}");
            let mover = |k| scope.spawn(move || by(&from(k), &["mv", "jobs.x", &place(k)]));
            let movers: Vec<_> = (0..3).map(mover).collect();
            movers.into_iter().map(|mover| mover.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(moved.iter().filter(|done| done.code == 0).count(), 1, "{moved:?}");
        assert_eq!(moved.iter().filter(|done| done.code == 1).count(), 2, "{moved:?}");
        // All that was done, was done where the entry's writers meet.
        let maker =
            |line: &Json| line["chain"][0].as_str().unwrap().split('~').next().unwrap().to_owned();
        let set: Json = serde_json::from_str(&set.stdout).unwrap();
        let tree = by(&from(0), &["tree", &format!("taken.{first}"), "--chain", "--json"]);
        for line in tree.stdout.lines() {
            assert_eq!(maker(&serde_json::from_str(line).unwrap()), maker(&set), "{line}");
        }
    };
    (0..5).for_each(movers);
}

#[test]
fn a_tree_is_moved_and_more_of_it_than_goes_at_once() {
    let node = site();
    let lines: String =
        (0..300).map(|n| format!("{{\"path\": \"site.n:{n}\", \"value\": {n}}}\n")).collect();
    let connect = node.client.to_string();
    let done = run(&["import", "-", "--connect", &connect], &[], lines.as_bytes());
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(
        ok(&node, &["mv", "-r", "site", "plant.site"]),
        "303 entries moved from site to plant.site\n"
    );
    let after = all(&node);
    assert_eq!(after.len(), 304);
    assert_eq!(after["plant.site.n:299"], 299);
    assert!(!after.keys().any(|path| path.starts_with("site")), "{after:?}");
    assert_eq!(at(&node, &["mv", "site", "b"]).code, 1);
}

#[test]
fn a_deletion_of_a_tree_is_shown_before_it_is_done() {
    let node = site();
    let shown = at(&node, &["delete", "site", "--recursive", "--dry-run"]);
    assert_eq!((shown.code, &*shown.stdout), (0, "site\nsite.hall.fan\nsite.lamp\n"));
    assert_eq!(shown.stderr, "3 entries would be deleted\n");
    let shown = at(&node, &["delete", "site", "--recursive", "--dry-run", "--json"]);
    assert_eq!((shown.code, &*shown.stderr), (0, ""));
    let lines: Vec<&str> = shown.stdout.lines().collect();
    let counts = r#"{"changed":3,"dry_run":true}"#;
    let expected =
        [r#"{"path":"site"}"#, r#"{"path":"site.hall.fan"}"#, r#"{"path":"site.lamp"}"#, counts];
    assert_eq!(lines, expected);
    let nothing = at(&node, &["delete", "gone", "--recursive", "--dry-run", "--json"]);
    assert_eq!(nothing.stdout, "{\"changed\":0,\"dry_run\":true}\n");
    assert_eq!(all(&node).len(), 4);
    assert_eq!(at(&node, &["delete", "site", "--dry-run"]).code, 2, "one entry needs no rehearsal");
    assert_eq!(ok(&node, &["delete", "site.hall", "--recursive"]), "site.hall: 1 deleted\n");
    assert_eq!(
        ok(&node, &["delete", "site", "--recursive", "--json"]),
        "{\"path\":\"site\",\"changed\":2,\"dry_run\":false}\n"
    );
}

#[test]
fn the_root_is_not_deleted_with_all_below_it_and_nothing_says_that_it_would_be() {
    let node = site();
    for words in [&["delete", ":", "--recursive"][..], &["delete", ":", "--recursive", "--dry-run"]]
    {
        let done = at(&node, words);
        assert_eq!((done.code, &*done.stdout), (2, ""), "{}", done.stderr);
        assert!(done.stderr.contains("the root is not deleted"), "{}", done.stderr);
    }
    let set = ok(&node, &["set", ":", "0"]);
    assert!(set.starts_with("the root: set ("), "{set}");
    let done = ok(&node, &["delete", ":"]);
    assert!(done.ends_with("; 4 entries below it stay\n"), "{done}");
    assert_eq!(all(&node).len(), 4);
}

#[test]
fn a_network_is_made_what_a_file_says_and_nothing_else_is_touched() {
    let node = site();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.jsonl");
    let file = file.to_str().unwrap();
    let write = |lines: &[&str]| fs::write(file, lines.join("\n")).unwrap();
    fs::write(file, ok(&node, &["tree", "site", "--json"])).unwrap();
    let below = ["--below", "site"];
    let with = |words: &[&str]| at(&node, &[words, &below].concat());
    assert_eq!(with(&["diff", file]).code, 0);
    assert_eq!(with(&["apply", file, "--delete"]).stdout, "0 set, 0 deleted\n");

    let [hall, lamp] =
        [r#"{"path": "site.hall.fan", "value": 5}"#, r#"{"path": "site.lamp", "value": 1}"#];
    write(&[hall, lamp, r#"{"path": "site.new", "value": [true]}"#, ""]);
    let differences = "- site  0\n~ site.hall.fan  2 -> 5\n+ site.new  [true]\n";
    let done = with(&["diff", file]);
    assert_eq!((done.code, &*done.stdout), (1, differences), "{}", done.stderr);
    let done = with(&["apply", file, "--delete", "--dry-run"]);
    assert_eq!(
        (done.code, &*done.stdout, &*done.stderr),
        (0, differences, "3 entries would be changed: 2 set, 1 deleted\n")
    );
    // For programs, the same numbers as when it is done.
    let done = with(&["apply", file, "--delete", "--dry-run", "--json"]);
    assert_eq!((done.code, &*done.stderr), (0, ""));
    let told: Vec<Json> =
        done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let numbers =
        serde_json::json!({"set": 2, "deleted": 1, "changed_meanwhile": 0, "dry_run": true});
    assert_eq!((told.len(), &told[3]), (4, &numbers));
    assert_eq!((&told[0]["path"], &told[0]["change"]), (&"site".into(), &"remove".into()));
    assert_eq!(all(&node)["site.hall.fan"], 2, "nothing was done");
    assert_eq!(with(&["apply", file]).stdout, "2 set, 0 deleted\n");
    assert_eq!(with(&["diff", file]).stdout, "- site  0\n");
    assert_eq!(
        with(&["apply", file, "--delete", "--json"]).stdout,
        "{\"set\":0,\"deleted\":1,\"changed_meanwhile\":0,\"dry_run\":false}\n"
    );
    let expected =
        serde_json::json!({"site.hall.fan": 5, "site.lamp": 1, "site.new": [true], "x:1.y": 3});
    assert_eq!(serde_json::to_value(all(&node)).unwrap(), expected);

    // A file that makes no sense changes nothing.
    for (lines, why) in [
        (&[lamp, lamp][..], "stands in the file twice"),
        (&[lamp, r#"{"path": "x:1.y", "value": 1}"#], "x:1.y is not below site"),
        // Of the two lines, that of the file is named.
        (&[lamp, "{"], "line 2: not JSON: EOF while parsing an object at column 1\n"),
    ] {
        write(lines);
        let done = with(&["apply", file, "--delete"]);
        assert!(done.code == 1 && done.stderr.contains(why), "{}", done.stderr);
        assert_eq!(serde_json::to_value(all(&node)).unwrap(), expected);
    }
    // Nor does a pipe: the command that writes it may fail at any line.
    let address = node.client.to_string();
    let from_stdin = ["apply", "-", "--delete", "--connect", &address, "--below", "site"];
    let piped =
        |words: &[&str]| run(&[&from_stdin, words].concat(), &[], format!("{lamp}\n").as_bytes());
    let done = piped(&[]);
    assert!(done.code == 1 && done.stderr.contains("--allow-pipe"), "{}", done.stderr);
    assert_eq!(serde_json::to_value(all(&node)).unwrap(), expected);
    let done = piped(&["--dry-run"]);
    assert_eq!((done.code, &*done.stderr), (0, "2 entries would be changed: 0 set, 2 deleted\n"));
    assert_eq!(piped(&["--allow-pipe"]).stdout, "0 set, 2 deleted\n");
    ok(&node, &["set", "site.hall.fan", "5"]);
    ok(&node, &["set", "site.new", "[true]"]);
    // Nor does an empty one, which a command that failed in a pipe leaves.
    write(&["", ""]);
    for words in [&["apply", file, "--delete"][..], &["apply", file, "--delete", "--dry-run"]] {
        let done = with(words);
        assert!(done.code == 1 && done.stderr.contains("--allow-empty"), "{}", done.stderr);
        assert_eq!(serde_json::to_value(all(&node)).unwrap(), expected);
    }
    assert_eq!(with(&["apply", file]).stdout, "0 set, 0 deleted\n");
    assert_eq!(with(&["diff", file]).code, 1);
    assert_eq!(with(&["apply", file, "--allow-empty"]).code, 2, "it says what to do with --delete");
    let done = with(&["apply", file, "--delete", "--allow-empty"]);
    assert_eq!(done.stdout, "0 set, 3 deleted\n", "{}", done.stderr);
    write(&[r#"{"path": ":n.auth.current", "value": "root"}"#]);
    let done = at(&node, &["apply", file]);
    assert!(done.code == 1 && done.stderr.contains("belongs to the system"), "{}", done.stderr);
}

#[test]
fn what_somebody_else_changes_meanwhile_is_left_alone() {
    let node = site();
    // Where the two meet is up to the machine. Wherever that is: what the other has set stays, and is counted.
    let lines: String = (0..2_000)
        .map(|n| format!("{{\"path\": \"many.n:{n}\", \"value\": \"file\"}}\n"))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("many.jsonl");
    fs::write(&file, &lines).unwrap();
    let connect = node.client.to_string();
    let others = lines.replace("file", "other");
    for _ in 0..4 {
        ok(&node, &["delete", "many", "--recursive"]);
        let (connect, others) = (connect.clone(), others.clone());
        let writer = std::thread::spawn(move || {
            run(&["import", "-", "--if-new", "--connect", &connect], &[], others.as_bytes())
        });
        let done = at(&node, &["apply", file.to_str().unwrap(), "--below", "many", "--json"]);
        assert_eq!(writer.join().unwrap().code, 0);
        let counts: Json = serde_json::from_str(&done.stdout).unwrap();
        let changed = counts["changed_meanwhile"].as_u64().unwrap();
        assert_eq!(done.code, i32::from(changed > 0), "{}", done.stderr);
        let kept = all(&node).values().filter(|value| **value == "other").count();
        assert_eq!(kept as u64, changed, "what the other has set stays");
    }
}

/// A script that stands for somebody at an editor.
fn editor(folder: &Path, script: &str) -> String {
    let path = folder.join("editor");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_value_is_changed_in_an_editor_unless_somebody_else_was_faster() {
    let node = site();
    let folder = tempfile::tempdir().unwrap();
    let drafts = folder.path().join("drafts");
    fs::create_dir(&drafts).unwrap();
    let edit = |path: &str, script: &str| {
        let editor = editor(folder.path(), script);
        let environment =
            [("EDITOR", &*editor), ("VISUAL", ""), ("TMPDIR", drafts.to_str().unwrap())];
        with(&node, &["edit", path], &environment)
    };
    let left =
        || fs::read_dir(&drafts).unwrap().map(|file| file.unwrap().path()).collect::<Vec<_>>();

    let done = edit("site.lamp", "test \"$(stat -c %a \"$1\")\" = 600 && sed -i s/1/10/ \"$1\"");
    assert!(done.code == 0 && done.stdout.starts_with("site.lamp: set ("), "{done:?}");
    assert_eq!(ok(&node, &["get", "site.lamp"]), "10\n");
    assert_eq!(edit("site.lamp", "true").stdout, "site.lamp: not changed\n");
    assert_eq!(edit("new", "echo '[1, \"two\"]' > \"$1\"").code, 0);
    assert_eq!(all(&node)["new"], serde_json::json!([1, "two"]));
    assert_eq!(edit("nothing", "true").stdout, "nothing: not changed\n");
    let done = edit("site.lamp", "exit 3");
    assert!(done.code == 1 && done.stderr.contains("nothing was changed"), "{}", done.stderr);
    assert_eq!(left(), Vec::<std::path::PathBuf>::new(), "no draft stays");

    // What cannot be set is not lost.
    let done = edit("site.lamp", "echo '{\"on\": ' > \"$1\"");
    assert!(done.code == 1 && done.stderr.contains("your text is in"), "{}", done.stderr);
    let [draft] = &*left() else { panic!("{:?}", left()) };
    assert_eq!(fs::read_to_string(draft).unwrap(), "{\"on\": \n");
    fs::remove_file(draft).unwrap();

    let program = env!("CARGO_BIN_EXE_distkv-node");
    let faster =
        format!("{program} set site.lamp 11 --connect {} && echo 12 > \"$1\"", node.client);
    let done = edit("site.lamp", &faster);
    assert!(done.code == 5 && done.stderr.contains("(chain_mismatch)"), "{}", done.stderr);
    assert_eq!(ok(&node, &["get", "site.lamp"]), "11\n");
    let [draft] = &*left() else { panic!("{:?}", left()) };
    assert!(done.stderr.contains(draft.to_str().unwrap()), "{}", done.stderr);
    assert_eq!(fs::read_to_string(draft).unwrap(), "12\n");
}

#[test]
fn bash_completes_commands_options_and_their_values() {
    const SCRIPT: &str = r#"source /dev/stdin
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _distkv__node distkv-node "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        echo "${COMPREPLY[*]}""#;
    let text = run(&["completions", "bash"], &[], b"").stdout;
    for (typed, completed) in [
        (&["snap"][..], "snapshot"),
        (&["snapshot", "sa"], "save"),
        (&["snapshot", "save", "--tom"], "--tombstones"),
        (&["snapshot", "save", "--format", ""], "snapshot distkv jsonl"),
        (&["--connect", "n1", "get", "--ra"], "--raw"),
        (&["run", "--sync", ""], "never every-second every-batch"),
        (&["start", "--log", "d"], "debug"),
        (&["user", "add", "joe", "--method", ""], "password token root"),
        (&["help", "key", "ro"], "rotate"),
        // Files, which bash itself completes where there is nothing else.
        (&["import", ""], ""),
        (&["diff", "--below", "site", ""], ""),
        (&["import", "--if"], "--if-new"),
        (&["user", "role", "joe", ""], "user operator admin"),
        (&["user", "role", "joe", "o"], "operator"),
        (&["user", "role", "joe", "--f"], "--force"),
    ] {
        let mut bash = Command::new("bash");
        bash.args(["-c", SCRIPT, "bash", "distkv-node"]).args(typed);
        let mut bash = bash.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        bash.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let said = bash.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), completed, "{typed:?}");
    }
}

#[test]
fn every_shell_gets_completions_that_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let done = run(&["completions", shell], &[], b"");
        assert_eq!(done.code, 0, "{}", done.stderr);
        for word in ["snapshot", "recursive", "distkv-node"] {
            assert!(done.stdout.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(run(&["completions", "tcsh"], &[], b"").code, 2);
}

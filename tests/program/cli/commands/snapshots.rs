//! `snapshot` and `import` against real nodes, and with files alone.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::cli::command::{at, at_with, cli, ok};
use crate::processes::{DISTKV_FILES, NodeProcess, SAVED_STATE, wait_until};

/// A folder for the files of one test.
struct Files(TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Names of all that is there.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn done(arguments: &[&str]) -> String {
    let done = cli(arguments);
    assert_eq!(done.code, 0, "{arguments:?}: {}", done.stderr);
    done.stdout
}

fn json(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// All values of a node, as `path=value`.
fn values(node: &NodeProcess) -> Vec<String> {
    let value = |line: &str| {
        let entry = json(line);
        format!("{}={}", entry["path"].as_str().unwrap(), entry["value"])
    };
    ok(node, &["tree", "--json"]).lines().map(value).collect()
}

#[test]
fn an_old_snapshot_adds_what_is_missing_and_nothing_else() {
    let files = Files::new();
    let n1 = NodeProcess::run("n1");
    let n2 = NodeProcess::join("n2", &[&n1]);
    let n3 = NodeProcess::join("n3", &[&n1, &n2]);
    let network = [&n1, &n2, &n3];
    for node in network {
        ok(node, &["wait", "--members", "3"]);
    }
    for (node, path) in [(&n1, "newer"), (&n2, "purged"), (&n3, "deleted"), (&n1, "away")] {
        ok(node, &["set", path, "1", "--copies", "2"]);
    }
    let old = files.text("old.dkv");
    ok(&n2, &["snapshot", "save", "--to", &old]);

    // A part of the network that is cut off for good begins with the old state.
    let arguments = ["run", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let apart = NodeProcess::start_in(&n1.network, "apart", &arguments);
    ok(&apart, &["snapshot", "restore", &old]);
    assert_eq!(values(&apart), ["away=1", "deleted=1", "newer=1", "purged=1"]);
    ok(&apart, &["set", "away", "2"]);
    ok(&apart, &["set", "only-there", "1"]);
    let there = files.text("there.dkv");
    ok(&apart, &["snapshot", "save", "--to", &there]);

    ok(&n3, &["set", "newer", "2", "--copies", "2"]);
    ok(&n3, &["delete", "purged", "--copies", "2"]);
    for node in network {
        wait_until("the deleted entry is purged", || {
            (json(&ok(node, &["status", "--json"]))["tombstones"] == 0).then_some(())
        });
    }
    ok(&n1, &["delete", "deleted", "--copies", "2"]);

    // What it had all along.
    let restored = json(&ok(&n1, &["snapshot", "restore", &old, "--json"]));
    assert_eq!(
        (&restored["entries"], &restored["taken"], &restored["made"]),
        (&4.into(), &0.into(), &0.into())
    );
    for node in network {
        assert_eq!(values(node), ["away=1", "newer=2"]);
    }
    // What nobody here had.
    let text = ok(&n2, &["snapshot", "restore", &there]);
    assert!(text.contains("there.dkv: ") && text.contains("2 were taken in"), "{text}");
    for node in network {
        wait_until("all have what was missing", || {
            (values(node) == ["away=2", "newer=2", "only-there=1"]).then_some(())
        });
    }
    // Once more changes nothing, wherever, also what was deleted since.
    ok(&n2, &["delete", "only-there", "--copies", "2"]);
    for node in network {
        wait_until("it is known here what there is", || {
            let restored = json(&ok(node, &["snapshot", "restore", &there, "--json"]));
            (restored["taken"] == 0 && restored["made"] == 0).then_some(())
        });
        assert_eq!(values(node), ["away=2", "newer=2"]);
    }
    let conflicts = ok(&n1, &["conflicts", "--all", "--json"]);
    assert_eq!(conflicts, "", "nothing was lost");
}

#[test]
fn a_running_node_is_saved_in_every_form() {
    let files = Files::new();
    let node = NodeProcess::run("n1");
    // It was here lately and agrees to nothing, so what is deleted is not purged, however long the commands take.
    let witness = NodeProcess::join("n2", &[&node]);
    ok(&node, &["wait", "--members", "2"]);
    witness.freeze();
    ok(&node, &["set", "site.lamp", "{\"on\": true}"]);
    ok(&node, &["set", "site:1", "\"one\""]);
    ok(&node, &["set", "gone", "1"]);
    ok(&node, &["delete", "gone"]);
    let (dkv, bin, lines) = (files.text("a.dkv"), files.text("a.bin"), files.text("a.jsonl"));
    let told = ok(&node, &["snapshot", "save", "--to", &dkv]);
    assert!(told.contains("a.dkv: 3 entries"), "{told}");
    ok(&node, &["snapshot", "save", "--to", &bin, "--format", "distkv"]);
    let report = ok(&node, &["snapshot", "save", "--to", &lines, "--format", "jsonl", "--json"]);
    assert_eq!(json(&report)["entries"], 2);
    assert_eq!(files.names(), ["a.bin", "a.dkv", "a.jsonl"], "nothing is left over");

    let verified = done(&["snapshot", "verify", &dkv, &bin, &lines]);
    assert_eq!(verified.matches(": good (").count(), 3, "{verified}");
    for other in [&bin, &lines] {
        assert_eq!(done(&["snapshot", "diff", &dkv, other]), "");
    }
    let inspected = json(&done(&["snapshot", "inspect", &dkv, "--json"]));
    assert_eq!((&inspected["name"], &inspected["live_entries"]), (&"n1".into(), &2.into()));
    assert_eq!(inspected["network"], node.network);
    // Besides the four changes, the first list of the Delete group may have been made by then.
    assert!([4, 5].contains(&inspected["nodes"][0]["tick"].as_u64().unwrap()), "{inspected}");
    let shown = done(&["snapshot", "inspect", &dkv]);
    assert!(shown.contains("3 (2 with a value, 1 deleted)"), "{shown}");

    // To standard output, without anything else in it.
    let printed =
        ok(&node, &["snapshot", "save", "--to", "-", "--format", "jsonl", "--below", "site"]);
    let paths: Vec<Json> = printed.lines().map(|line| json(line)["path"].clone()).collect();
    assert_eq!(paths, ["site:1", "site.lamp"]);
}

#[test]
fn files_of_the_python_distkv_go_in_and_come_out() {
    let files = Files::new();
    let node = NodeProcess::run("fresh");
    let saved = SAVED_STATE.to_owned();
    let done_so = at(&node, &["snapshot", "restore", &saved, "--json"]);
    assert_eq!(done_so.code, 0, "{}", done_so.stderr);
    assert!(!done_so.stderr.contains("left out"), "{}", done_so.stderr);
    assert_eq!(json(&done_so.stdout)["taken"], 1306);
    assert_eq!(json(&ok(&node, &["get", "hf4e31b06.sv.a.b.c", "--json"]))["value"], 3);
    let out = files.text("out.bin");
    let report = ok(&node, &["snapshot", "save", "--to", &out, "--format", "distkv", "--json"]);
    assert_eq!((&json(&report)["entries"], &json(&report)["left_out"]), (&1306.into(), &0.into()));
    assert_eq!(done(&["snapshot", "diff", &saved, &out]), "");
    // With a map in the place of the number in `('t', 1)`, which nobody can have in a path.
    let mut content = fs::read(&saved).unwrap();
    let array = content.windows(4).position(|bytes| bytes == b"\x92\xa1t\x01").unwrap();
    content[array + 3] = 0x80;
    fs::write(files.path("bad.bin"), content).unwrap();
    let fresh = NodeProcess::run("fresh");
    let done_so = at(&fresh, &["snapshot", "restore", &files.text("bad.bin"), "--json"]);
    assert_eq!(done_so.code, 0, "{}", done_so.stderr);
    assert!(done_so.stderr.contains("maps cannot be path elements"), "{}", done_so.stderr);
    assert_eq!(json(&done_so.stdout)["taken"], 1305);
    // A log, up to its end.
    let log = format!("{DISTKV_FILES}/change-log.bin");
    let diff = cli(&["snapshot", "diff", &saved, &log]);
    assert_eq!(diff.code, 1);
    assert_eq!(diff.stdout, "+ ha9210dd7.lg.b  2\n+ ha9210dd7.lg.before  0\n");
}

#[test]
fn what_differs_is_printed_and_told_by_the_exit_code() {
    let files = Files::new();
    let line = |path: &str, value: &str, tick: u64| {
        format!(
            "{{\"path\":\"{path}\",\"value\":{value},\"chain\":[\"a~7:{tick}\"],\"tock\":{tick}}}\n"
        )
    };
    let a = [line("x", "1", 1), line("y.z", "[1]", 2), line("same", "0", 3)].concat();
    let b = [line("x", "2", 4), line("new", "null", 5), line("same", "0", 6)].concat();
    fs::write(files.path("a"), a).unwrap();
    fs::write(files.path("b"), b).unwrap();
    let (a, b) = (files.text("a"), files.text("b"));
    let diff = cli(&["snapshot", "diff", &a, &b]);
    assert_eq!((diff.code, diff.stdout.as_str()), (1, "+ new  null\n~ x  1 -> 2\n- y.z  [1]\n"));
    let lines = cli(&["snapshot", "diff", &a, &b, "--json", "--versions"]).stdout;
    let changes: Vec<Json> = lines.lines().map(|line| json(line)["change"].clone()).collect();
    assert_eq!(changes, ["added", "version", "changed", "removed"]);
    assert_eq!(
        cli(&["snapshot", "diff", &a, &b, "--below", "y", "--json"]).stdout.lines().count(),
        1
    );
    assert_eq!(cli(&["snapshot", "diff", &a, &a]).code, 0);
}

#[test]
fn damage_is_found_and_nothing_of_it_is_taken_in() {
    let files = Files::new();
    let node = NodeProcess::run("n1");
    ok(&node, &["set", "a", "1"]);
    let good = files.text("good.dkv");
    ok(&node, &["snapshot", "save", "--to", &good]);
    let mut bytes = fs::read(&good).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let bad = files.text("bad.dkv");
    fs::write(&bad, &bytes).unwrap();
    let verified = cli(&["snapshot", "verify", &good, &bad]);
    assert_eq!(verified.code, 1);
    assert!(verified.stdout.contains("bad.dkv: BAD: "), "{}", verified.stdout);
    assert!(verified.stdout.contains("good.dkv: good"), "{}", verified.stdout);
    assert_eq!(cli(&["snapshot", "inspect", &bad]).code, 1);
    ok(&node, &["set", "a", "2"]);
    assert_eq!(at(&node, &["snapshot", "restore", &bad]).code, 1);
    assert_eq!(values(&node), ["a=2"]);
}

#[test]
fn all_snapshots_and_logs_of_a_directory_are_verified() {
    let files = Files::new();
    let data = files.text("data");
    let any = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let node = NodeProcess::start("n1", &[&["run", "--data-dir", &data][..], &any].concat());
    ok(&node, &["set", "a", "1"]);
    ok(&node, &["snapshot", "save"]);
    let verified = done(&["snapshot", "verify", &data]);
    for good in ["log-1.dkv: good (event log", "snapshot-2.dkv: good (snapshot", "log-2.dkv: good"]
    {
        assert!(verified.contains(good), "{good}: {verified}");
    }
    fs::write(files.path("data/log-1.dkv"), "damaged").unwrap();
    let verified = cli(&["snapshot", "verify", &data]);
    assert_eq!(verified.code, 1);
    assert!(verified.stdout.contains("log-1.dkv: BAD: "), "{}", verified.stdout);

    fs::create_dir(files.path("empty")).unwrap();
    let verified = cli(&["snapshot", "verify", &files.text("empty")]);
    assert_eq!(verified.code, 1);
    assert!(verified.stderr.contains("empty: no file here is named *.dkv"), "{}", verified.stderr);
}

#[test]
fn a_saved_state_of_the_python_distkv_that_was_cut_off_is_bad() {
    let files = Files::new();
    let whole = fs::read(SAVED_STATE).unwrap();
    let verify = |bytes: &[u8]| {
        fs::write(files.path("cut.bin"), bytes).unwrap();
        cli(&["snapshot", "verify", &files.text("cut.bin")])
    };
    assert_eq!(verify(&whole).code, 0);
    // In the first record, in one of the others, and in the last.
    for bytes in [1, 20, 200, whole.len() / 2, whole.len() - 1] {
        let done = verify(&whole[..bytes]);
        assert_eq!(done.code, 1, "{bytes}: {}", done.stdout);
        assert!(done.stdout.contains("cut.bin: BAD: "), "{bytes}: {}", done.stdout);
        assert!(done.stdout.contains("the file ends within a record"), "{bytes}: {}", done.stdout);
    }
    assert_eq!(verify(b"").code, 1);
    // The format has no end mark: what ends between two entries lacks some, and that is all that can be told.
    let done = verify(&whole[..173]);
    assert_eq!(done.code, 0, "{}", done.stdout);
    assert!(done.stdout.contains("changes that its node knew"), "{}", done.stdout);

    // A log that is still written, or whose server was killed, may end anywhere.
    let log = fs::read("tests/fixtures/distkv-files/change-log.bin").unwrap();
    for bytes in [log.len(), log.len() - 1] {
        let done = verify(&log[..bytes]);
        assert_eq!(done.code, 0, "{}", done.stdout);
        assert!(done.stdout.contains("good (DistKV change log, "), "{}", done.stdout);
        let is_noted = done.stdout.contains("the file ends within a record");
        assert_eq!(is_noted, bytes < log.len(), "{}", done.stdout);
    }
}

#[test]
fn the_mark_before_a_text_is_no_part_of_it() {
    let node = NodeProcess::run("n1");
    let files = Files::new();
    let marked = |name: &str, text: &str| {
        fs::write(files.path(name), format!("\u{feff}{text}")).unwrap();
        files.text(name)
    };
    let lines =
        marked("lines.jsonl", "{\"path\":\"a\",\"value\":1}\n{\"path\":\"b\",\"value\":2}\n");
    assert!(at(&node, &["diff", &lines]).stdout.contains("+ a  1"));
    assert_eq!(ok(&node, &["import", &lines]), "2 set, 0 unchanged\n");
    assert!(ok(&node, &["apply", &lines]).contains("0 "));
    let set = at_with(&node, &["set", "c", "-"], "\u{feff}3".as_bytes());
    assert_eq!(set.code, 0, "{}", set.stderr);
    // A string is stored byte by byte.
    let set = at_with(&node, &["set", "d", "-", "--string"], "\u{feff}4".as_bytes());
    assert_eq!(set.code, 0, "{}", set.stderr);
    assert_eq!(values(&node), ["a=1", "b=2", "c=3", "d=\"\u{feff}4\""]);
    let schema = marked("schema.json", "{\"type\": \"number\"}");
    let examples = ["--good", "1", "--good", "2", "--bad", "\"x\""];
    ok(&node, &[&["type", "set", "number", "--schema-file", &schema][..], &examples].concat());

    let saved = ok(&node, &["snapshot", "save", "--to", "-", "--format", "jsonl"]);
    let saved = marked("saved.jsonl", &saved);
    assert!(done(&["snapshot", "verify", &saved]).contains("good (lines of JSON, "));
    // Only before the text.
    fs::write(files.path("within.jsonl"), "{\"path\":\"a\"}\n\u{feff}{}\n").unwrap();
    assert_eq!(at(&node, &["import", &files.text("within.jsonl")]).code, 1);
}

#[test]
fn a_snapshot_of_another_network_needs_a_word_more() {
    let files = Files::new();
    let (one, other) = (NodeProcess::run("n1"), NodeProcess::run("n1"));
    ok(&one, &["set", "a", "1"]);
    let file = files.text("one.dkv");
    ok(&one, &["snapshot", "save", "--to", &file]);
    let refused = at(&other, &["snapshot", "restore", &file]);
    assert_eq!(refused.code, 3);
    assert!(refused.stderr.contains("--any-network"), "{}", refused.stderr);
    assert_eq!(values(&other), [] as [&str; 0]);
    ok(&other, &["snapshot", "restore", &file, "--any-network"]);
    assert_eq!(values(&other), ["a=1"]);
}

/// A node's state as lines, with one thing in them replaced.
fn edited(lines: &str, from: &str, to: &str) -> String {
    assert_eq!(lines.matches(from).count(), 1, "{from} in {lines}");
    lines.replace(from, to)
}

fn conflicts(node: &NodeProcess) -> u64 {
    json(&ok(node, &["status", "--json"]))["counters"]["conflicts"].as_u64().unwrap()
}

#[test]
fn a_network_is_moved_without_a_warning() {
    let files = Files::new();
    let node = NodeProcess::run("n0");
    ok(&node, &["set", "site.lamp", "1"]);
    ok(&node, &["set", "site.door", "1"]);
    ok(&node, &["delete", "site.door"]);
    let monday = files.text("monday.dkv");
    ok(&node, &["snapshot", "save", "--to", &monday]);
    let data = files.text("moved");
    let any = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let restore = ["snapshot", "restore", &monday, "--into", &data, "--name", "n1"];
    let restore = [&restore[..], &["--network", "plant"]].concat();
    let run = [&["run", "--data-dir", &data][..], &any].concat();
    // The second time, on top of what a node has left there, under another name of the network.
    for stops in 1..=2 {
        let more: &[&str] = if stops == 1 { &[] } else { &["--any-network"] };
        let restored = cli(&[&restore[..], more].concat());
        assert_eq!((restored.code, restored.stderr.as_str()), (0, ""), "{}", restored.stderr);
        let n1 = NodeProcess::start_in("plant", "n1", &run);
        assert_eq!(values(&n1), ["site.lamp=1"]);
        let gossip = n1.gossip.to_string();
        let n2 = files.text(&format!("n2-{stops}"));
        let join = [&["join", &gossip, "--data-dir", &n2][..], &any].concat();
        let n2 = NodeProcess::start_in("plant", "n2", &join);
        ok(&n1, &["wait", "--members", "2"]);
        for node in [&n1, &n2] {
            let warnings: Vec<String> =
                node.log().into_iter().filter(|line| line.contains(" WARN ")).collect();
            assert_eq!(warnings, [""; 0], "{stops}");
            let shown = ok(node, &["status"]) + &ok(node, &["members"]);
            assert!(!shown.contains("warning"), "{stops}: {shown}");
        }
        ok(&n2, &["leave"]);
        ok(&n1, &["leave"]);
    }
}

/// The same event must never have two values, also where lines of JSON are edited and restored at
/// two nodes that do not know of each other.
#[test]
fn an_edited_line_is_a_change_of_its_own() {
    let files = Files::new();
    let node = NodeProcess::run("n0");
    ok(&node, &["set", "x", "1"]);
    ok(&node, &["set", "same", "7"]);
    let lines = ok(&node, &["snapshot", "save", "--to", "-", "--format", "jsonl"]);
    drop(node);
    let network = ["--network", "edits"];
    let into = |name: &str, value: &str| {
        let text =
            edited(&lines, r#""path":"x","value":1"#, &format!(r#""path":"x","value":{value}"#));
        let file = files.text(&format!("{name}.jsonl"));
        fs::write(&file, text).unwrap();
        let data = files.text(name);
        let to = ["snapshot", "restore", &file, "--into", &data, "--name", name];
        let restored = cli(&[&to[..], &network].concat());
        assert_eq!(restored.code, 0, "{}", restored.stderr);
        assert!(restored.stderr.contains("1 line was edited"), "{}", restored.stderr);
        data
    };
    let (a, b) = (into("a", "2"), into("b", "3"));
    let any = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let run = [&["run", "--data-dir", &a][..], &any].concat();
    let a = NodeProcess::start_in("edits", "a", &run);
    assert_eq!(values(&a), ["same=7", "x=2"]);
    let gossip = a.gossip.to_string();
    let join = [&["join", &gossip, "--data-dir", &b][..], &any].concat();
    let b = NodeProcess::start_in("edits", "b", &join);
    wait_until("both have one value, and say that there were two", || {
        let same = values(&a) == values(&b);
        (same && conflicts(&a) + conflicts(&b) > 0).then_some(())
    });
    assert!(["x=2", "x=3"].contains(&values(&a)[1].as_str()), "{:?}", values(&a));
}

#[test]
fn edited_lines_are_restored_on_top_of_what_they_were_made_from() {
    let files = Files::new();
    let node = NodeProcess::run("n1");
    let other = NodeProcess::join("n2", &[&node]);
    for path in ["edited", "moved", "newer", "gone", "kept"] {
        ok(&node, &["set", path, "1"]);
    }
    let mut lines = ok(&node, &["snapshot", "save", "--to", "-", "--format", "jsonl"]);
    ok(&node, &["set", "newer", "2"]);
    ok(&node, &["set", "newer", "3"]);
    for (path, value) in [("edited", "5"), ("newer", "5"), ("gone", "5")] {
        let line = |value: &str| format!(r#""path":"{path}","value":{value}"#);
        lines = edited(&lines, &line("1"), &line(value));
    }
    lines = edited(&lines, r#""path":"gone","value":5"#, r#""path":"gone","deleted":true"#);
    lines = edited(&lines, r#""path":"moved""#, r#""path":"copied""#);
    let file = files.text("edited.jsonl");
    fs::write(&file, &lines).unwrap();
    let restored = json(&ok(&node, &["snapshot", "restore", &file, "--json"]));
    assert_eq!(restored["conflicts"], 1, "only what was changed since: {restored}");
    let expected = ["copied=1", "edited=5", "kept=1", "moved=1", "newer=3"];
    assert_eq!(values(&node), expected);
    wait_until("the other node has it", || (values(&other) == expected).then_some(()));
    // Once more changes nothing, here or there.
    for node in [&node, &other] {
        let again = json(&ok(node, &["snapshot", "restore", &file, "--json"]));
        assert_eq!(
            (&again["taken"], &again["made"], &again["conflicts"]),
            (&0.into(), &0.into(), &0.into())
        );
    }
}

#[test]
fn ticks_that_an_edited_line_makes_up_hide_no_change() {
    let files = Files::new();
    let (node, other) = (NodeProcess::run("n1"), NodeProcess::run("n2"));
    ok(&node, &["set", "a", "1"]);
    let lines = ok(&node, &["snapshot", "save", "--to", "-", "--format", "jsonl"]);
    let id = json(lines.lines().next().unwrap())["chain"][0].as_str().unwrap().to_owned();
    let (life, _) = id.rsplit_once(':').unwrap();
    let file = files.text("edited.jsonl");
    // As if the node had made its next change at another path.
    let text = edited(&lines, &id, &format!("{life}:2"));
    fs::write(&file, edited(&text, r#""path":"a""#, r#""path":"b""#)).unwrap();
    ok(&other, &["snapshot", "restore", &file]);
    ok(&node, &["set", "a", "2"]);
    let all = files.text("all.dkv");
    ok(&node, &["snapshot", "save", "--to", &all]);
    ok(&other, &["snapshot", "restore", &all, "--any-network"]);
    assert_eq!(values(&other), ["a=2", "b=1"]);
}

#[test]
fn options_that_make_no_sense_together_are_refused() {
    let saved = SAVED_STATE.to_owned();
    for arguments in [
        &["snapshot", "convert", &saved, "--to", "-", "--below", "a"][..],
        &["snapshot", "save", "--format", "distkv"],
        &["snapshot", "save", "--to", "x", "--format", "xml"],
        &["snapshot", "inspect"],
        &["snapshot"],
    ] {
        assert_eq!(cli(arguments).code, 2, "{arguments:?}");
    }
    assert_eq!(cli(&["snapshot", "inspect", "/no/such/file"]).code, 1);
}

#[test]
fn what_can_be_read_only_once_is_refused_and_not_waited_for() {
    let files = Files::new();
    let pipe = files.text("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let to = files.text("to");
    let commands: [&[&str]; 5] = [
        &["snapshot", "inspect", &pipe],
        &["snapshot", "verify", &pipe],
        &["snapshot", "diff", &pipe, SAVED_STATE],
        &["snapshot", "convert", &pipe, "--to", &to],
        &["log", "inspect", &pipe],
    ];
    for arguments in commands {
        let done = cli(arguments);
        // `verify` prints what each file is.
        let said = done.stdout + &done.stderr;
        assert_eq!(done.code, 1, "{arguments:?}: {said}");
        let says = format!("{pipe} is no plain file, and this command reads");
        assert!(said.contains(&says), "{arguments:?}: {said}");
    }
    assert_eq!(files.names(), ["pipe"]);
}

#[test]
fn a_node_that_is_to_load_a_snapshot_says_how_it_is_done_and_none_starts_from_an_empty_file() {
    let files = Files::new();
    let snapshot = files.text("s.dkv");
    done(&["snapshot", "convert", SAVED_STATE, "--to", &snapshot]);
    let ports = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let empty = files.text("empty");
    fs::write(&empty, "").unwrap();
    for (file, says) in
        [(&snapshot, "snapshot restore FILE --into DIR"), (&empty, "cannot be loaded: it is empty")]
    {
        let start = ["run", "--name", "n1", "--network", "loads-a-file", "--load", file];
        let refused = cli(&[&start[..], &ports].concat());
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        assert!(refused.stderr.contains(says), "{}", refused.stderr);
    }
}

/// Such a file has no end mark; what its entries refer to, and is not there, shows it.
#[test]
fn a_saved_state_that_was_cut_between_two_entries_is_warned_of_wherever_it_is_taken_in() {
    let files = Files::new();
    let whole = fs::read(SAVED_STATE).unwrap();
    let mut rest = &whole[..];
    let mut ends = Vec::new();
    while rmpv::decode::read_value(&mut rest).is_ok() {
        ends.push(whole.len() - rest.len());
    }
    assert_eq!(ends.last(), Some(&whole.len()));
    let cut = files.text("cut.bin");
    fs::write(&cut, &whole[..ends[ends.len() / 2]]).unwrap();
    let warns = |text: &str| text.contains("that its node knew are missing: the file was cut off");
    let node = NodeProcess::run("n1");
    let into = files.text("into");
    for (arguments, of_whole) in [
        (&["snapshot", "verify"][..], false),
        (&["snapshot", "restore", "--connect", &node.client.to_string()], false),
        (&["snapshot", "restore", "--into", &into, "--name", "n9"], false),
        (&["snapshot", "inspect"], false),
    ] {
        for (file, expected) in [(&*cut, true), (SAVED_STATE, of_whole)] {
            let told = cli(&[arguments, &[file]].concat());
            let said = told.stdout + &told.stderr;
            assert_eq!((told.code, warns(&said)), (0, expected), "{arguments:?} {file}: {said}");
        }
    }
    for (file, expected) in [(&*cut, true), (SAVED_STATE, false)] {
        let own =
            ["run", "--peer-wait", "0s", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
        let network = format!("cut-{}", std::process::id());
        let loads = NodeProcess::start_in(&network, "n1", &[&own[..], &["--load", file]].concat());
        let loaded = || loads.log().iter().any(|line| line.contains(" loaded ")).then_some(());
        wait_until("it is loaded", loaded);
        let is_warned = |line: &String| line.contains("WARN") && warns(line);
        assert_eq!(loads.log().iter().any(is_warned), expected, "{file}: {:?}", loads.log());
    }
}

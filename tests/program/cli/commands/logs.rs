//! `log`, `import`, and what looks into a data directory.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::cli::command::{at_with, cli, note, ok, program};
use crate::processes::{DISTKV_FILES, NodeProcess, wait_until};

const ANY: [&str; 5] = ["run", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];

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
}

fn ok_with(node: &NodeProcess, arguments: &[&str], input: &[u8]) -> String {
    let done = at_with(node, arguments, input);
    assert_eq!(done.code, 0, "{arguments:?}: {}", done.stderr);
    done.stdout
}

fn done(arguments: &[&str]) -> String {
    let done = cli(arguments);
    assert_eq!(done.code, 0, "{arguments:?}: {}", done.stderr);
    done.stdout
}

fn json(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

fn values(text: &str) -> Vec<String> {
    let value = |line: &str| {
        let entry = json(line);
        format!("{}={}", entry["path"].as_str().unwrap(), entry["value"])
    };
    text.lines().map(value).collect()
}

/// Starts a node on a data directory. Everything it does is in its log at once.
fn durable(name: &str, data: &str) -> NodeProcess {
    NodeProcess::start(name, &[&ANY[..], &["--data-dir", data, "--sync", "every-batch"]].concat())
}

fn tock(node: &NodeProcess, path: &str) -> u64 {
    json(&ok(node, &["get", path, "--json"]))["tock"].as_u64().unwrap()
}

#[test]
fn the_past_is_looked_into_and_written_anew() {
    let files = Files::new();
    let data = files.text("data");
    let mut node = durable("n1", &data);
    ok(&node, &["set", "site.lamp", "1"]);
    ok(&node, &["set", "site.gone", "1"]);
    let then = tock(&node, "site.gone").to_string();
    let before = done(&["log", "inspect", &files.text("data/log-1.dkv"), "--json"]);
    ok(&node, &["set", "site.lamp", "2"]);
    ok(&node, &["delete", "site.gone"]);
    ok(&node, &["set", "later", "1"]);

    let lines = ["--to", "-", "--format", "jsonl"];
    let replay = |more: &[&str]| done(&[&["log", "replay", &data][..], &lines, more].concat());
    assert_eq!(values(&replay(&[])), ["later=1", "site.lamp=2"]);
    assert_eq!(values(&replay(&["--until-tock", &then])), ["site.gone=1", "site.lamp=1"]);
    let last = json(&before)["last"].as_str().unwrap().to_owned();
    let at_that_time = replay(&["--until-time", &last, "--below", "site"]);
    assert_eq!(values(&at_that_time), ["site.gone=1", "site.lamp=1"]);
    let too_early = cli(&[&["log", "replay", &data, "--until-time", "@1"][..], &lines].concat());
    assert_eq!(too_early.code, 1);

    // What the past says becomes new changes, also where something was deleted.
    let report = ok_with(&node, &["import", "-"], at_that_time.as_bytes());
    assert_eq!(report, "2 set, 0 unchanged\n");
    let now = ["later=1", "site.gone=1", "site.lamp=1"];
    assert_eq!(values(&ok(&node, &["tree", "--json"])), now);

    // A whole state, from the directory and from its files; when nothing changes any more.
    node.signal("TERM");
    node.wait();
    let (a, b) = (files.text("a.dkv"), files.text("b.dkv"));
    done(&["log", "replay", &data, "--to", &a]);
    done(&["log", "replay", &files.text("data/log-1.dkv"), "--to", &b]);
    for other in [&b, &data] {
        assert_eq!(done(&["snapshot", "diff", &a, other, "--versions"]), "");
    }
    let inspected = |file: &str| {
        let mut json = json(&done(&["snapshot", "inspect", file, "--json"]));
        for field in ["time", "time_ms", "bytes"] {
            json[field].take();
        }
        json
    };
    assert_eq!(inspected(&a), inspected(&b));
    assert_eq!(
        done(&["snapshot", "verify", &files.text("data/log-1.dkv")]).matches("good").count(),
        1
    );
}

/// A wrong deletion, and the natural thing to do next: to save what there is. What was deleted can
/// still be brought back.
#[test]
fn a_snapshot_made_after_a_wrong_deletion_does_not_end_the_past() {
    let files = Files::new();
    let data = files.text("data");
    let node = durable("n1", &data);
    ok(&node, &["set", "site.lamp", "1"]);
    let then = tock(&node, "site.lamp").to_string();
    let before = done(&["log", "inspect", &files.text("data/log-1.dkv"), "--json"]);
    let last = json(&before)["last"].as_str().unwrap().to_owned();
    ok(&node, &["delete", "site.lamp"]);
    let lines = ["--to", "-", "--format", "jsonl"];
    // More snapshots than are kept by their number: what they follow is kept for its age.
    for _ in 0..4 {
        ok(&node, &["snapshot", "save"]);
        for until in [["--until-tock", &then], ["--until-time", &last]] {
            let arguments = [&["log", "replay", &data][..], &until, &lines].concat();
            assert_eq!(values(&done(&arguments)), ["site.lamp=1"]);
        }
    }
    let reach = json(&done(&["log", "inspect", &data, "--json"]))["past"].clone();
    assert_eq!(reach["tock"], 0);
    let since = reach["time"].as_str().unwrap().to_owned();
    assert_eq!(json(&ok(&node, &["status", "--json"]))["storage"]["past_tock"], 0);
    let shown = ok(&node, &["status"]);
    let line = shown.lines().find(|line| line.starts_with("past since"));
    assert!(line.is_some_and(|line| line.ends_with(&format!("{since} (tock 0)"))), "{shown}");
    let too_early = cli(&[&["log", "replay", &data, "--until-time", "@1"][..], &lines].concat());
    assert_eq!(too_early.code, 1);
    assert!(too_early.stderr.contains(&since), "{}", too_early.stderr);
    assert!(!too_early.stderr.contains("discard-damaged"), "{}", too_early.stderr);
}

/// With a short past, one snapshot more than is asked for stays; before that there is nothing, and
/// that is what is said.
#[test]
fn what_is_before_the_past_is_said_to_be_before_it() {
    let files = Files::new();
    let data = files.text("data");
    let keep = ["--data-dir", &data, "--keep-snapshots", "1", "--keep-for", "0"];
    let node = NodeProcess::start("n1", &[&ANY[..], &keep].concat());
    let mut tocks = Vec::new();
    for value in ["1", "2", "3", "4"] {
        ok(&node, &["set", "a", value]);
        tocks.push(tock(&node, "a").to_string());
        ok(&node, &["snapshot", "save"]);
    }
    let lines = ["--to", "-", "--format", "jsonl"];
    let replay =
        |tock: &str| cli(&[&["log", "replay", &data, "--until-tock", tock][..], &lines].concat());
    // The newest snapshot has 4, the one before it 3.
    assert_eq!(values(&replay(&tocks[2]).stdout), ["a=3"]);
    let reach = json(&done(&["log", "inspect", &data, "--json"]))["past"].clone();
    assert_eq!(reach["tock"].to_string(), tocks[2]);
    let told = replay(&tocks[1]);
    assert_eq!(told.code, 1);
    let since = reach["time"].as_str().unwrap();
    assert!(told.stderr.contains(&format!("tock {}", tocks[2])), "{}", told.stderr);
    assert!(told.stderr.contains(since) && told.stderr.contains("--keep-for"), "{}", told.stderr);
    assert!(!told.stderr.contains("discard-damaged"), "{}", told.stderr);
    // A file that is missing from the past is another matter.
    let shown = done(&["log", "inspect", &data]);
    assert!(shown.contains(since) && shown.contains("snapshots"), "{shown}");
}

/// The disk had failed: a log ends in what is not whole, and the next one goes on from a snapshot.
#[test]
fn a_moment_at_which_nothing_was_logged_is_told_as_what_it_is() {
    let files = Files::new();
    let (data, saved) = (files.text("data"), files.text("saved.dkv"));
    let mut node = durable("n1", &data);
    ok(&node, &["set", "site.lamp", "1"]);
    ok(&node, &["snapshot", "save", "--to", &saved]);
    node.signal("TERM");
    node.wait();
    let first = files.path("data/log-1.dkv");
    let between = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let between = format!("@{}.{:03}", between.as_secs(), between.subsec_millis());
    done(&["snapshot", "restore", &saved, "--into", &data]);
    let mut node = durable("n1", &data);
    ok(&node, &["set", "site.lamp", "2"]);
    node.signal("TERM");
    node.wait();
    let torn = [&fs::read(&first).unwrap()[..], b"\x40\x00\x00\x00torn"].concat();
    fs::write(&first, torn).unwrap();

    let replay = |until: &str| {
        let lines = ["--to", "-", "--format", "jsonl"];
        cli(&[&["log", "replay", &data, "--until-time", until][..], &lines].concat())
    };
    let gap = replay(&between);
    assert_eq!((gap.code, values(&gap.stdout)), (0, vec!["site.lamp=1".into()]), "{}", gap.stderr);
    for part in ["from 20", "nothing was logged in the ", " s between ", "log-1.dkv", "log-2.dkv"] {
        assert!(gap.stderr.contains(part), "{part}: {}", gap.stderr);
    }
    let all = done(&["log", "replay", &data, "--to", "-", "--format", "jsonl"]);
    assert_eq!(values(&all), ["site.lamp=2"]);
}

#[test]
fn a_log_is_inspected_change_by_change() {
    let files = Files::new();
    let node = durable("n1", &files.text("data"));
    ok(&node, &["set", "a", "[1]"]);
    ok(&node, &["set", "b", "2"]);
    ok(&node, &["delete", "a"]);
    let log = files.text("data/log-1.dkv");
    let shown = done(&["log", "inspect", &log]);
    assert!(shown.contains("3 (2 set, 1 deleted, 0 purged)"), "{shown}");
    assert!(shown.contains("continues  nothing"), "{shown}");
    let changes = done(&["log", "inspect", &log, "--changes"]);
    let words: Vec<&str> = changes.lines().map(|l| l.split_whitespace().nth(1).unwrap()).collect();
    assert_eq!(words, ["set", "set", "deleted"]);
    let last = changes.lines().last().unwrap();
    let since = ["--since", last.split_whitespace().next().unwrap()];
    let inspect = ["log", "inspect", &log, "--changes"];
    assert_eq!(done(&[&inspect[..], &since].concat()), format!("{last}\n"));
    assert_eq!(done(&[&inspect[..], &["--since", "1h ago"]].concat()), changes);
    let follow = ["log", "follow", &files.text("data"), "--count", "1"];
    assert_eq!(done(&[&follow[..], &since].concat()), format!("{last}\n"));
    assert_eq!(cli(&["log", "inspect", &log, "--since", "1h"]).code, 2);
    let lines = done(&["log", "inspect", &log, "--changes", "--json", "--below", "a"]);
    let (set, deleted) = lines.split_once('\n').unwrap();
    assert_eq!((&json(set)["value"][0], &json(deleted)["deleted"]), (&1.into(), &true.into()));
    // They are what `snapshot restore` takes.
    fs::write(files.path("changes.jsonl"), &lines).unwrap();
    let other = NodeProcess::run("other");
    let restored = ok(&other, &["snapshot", "restore", &files.text("changes.jsonl"), "--json"]);
    assert_eq!(json(&restored)["taken"], 1);
    assert_eq!(ok(&other, &["tree", "--json"]), "");
    // A log that is cut in the middle of a change is not damaged; one with another byte is.
    let bytes = fs::read(&log).unwrap();
    fs::write(files.path("torn.dkv"), &bytes[..bytes.len() - 3]).unwrap();
    let torn = done(&["log", "inspect", &files.text("torn.dkv")]);
    assert!(torn.contains("of a change that was not written whole"), "{torn}");
    let mut bad = bytes.clone();
    *bad.last_mut().unwrap() ^= 1;
    fs::write(files.path("bad.dkv"), &bad).unwrap();
    let refused = cli(&["log", "inspect", &files.text("bad.dkv")]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("damaged at byte"), "{}", refused.stderr);
}

#[test]
fn parts_of_a_history_claim_to_know_no_more_than_they_hold() {
    let files = Files::new();
    let rotating = ["--data-dir", &files.text("data"), "--log-rotate-bytes", "64KiB"];
    let sync = ["--sync", "every-batch"];
    let node = NodeProcess::start("n1", &[&ANY[..], &rotating, &sync].concat());
    let second = files.path("data/log-2.dkv");
    let mut count = 0;
    wait_until("the log goes on in another file", || {
        count += 1;
        ok(&node, &["set", &format!("a:{count}"), &format!("\"{}\"", "x".repeat(8000))]);
        second.exists().then_some(())
    });
    ok(&node, &["set", "in-the-second", "1"]);
    let (first, second) = (files.text("data/log-1.dkv"), files.text("data/log-2.dkv"));
    let (whole, part) = (files.text("whole.dkv"), files.text("part.dkv"));
    done(&["log", "replay", &first, &second, "--to", &whole]);
    assert_eq!(cli(&["snapshot", "diff", &whole, &files.text("data")]).stdout, "");
    let alone = cli(&["log", "replay", &second, "--to", &part]);
    assert_eq!(alone.code, 0, "{}", alone.stderr);
    assert!(alone.stderr.contains("does not go on from"), "{}", alone.stderr);
    // In a network that has nothing else, the first log's entries can still come.
    let fresh = NodeProcess::run("fresh");
    ok(&fresh, &["snapshot", "restore", &part, "--any-network"]);
    let restored = json(&ok(&fresh, &["snapshot", "restore", &whole, "--any-network", "--json"]));
    assert!(restored["taken"].as_u64() > Some(0), "{restored}");
    assert_eq!(json(&ok(&fresh, &["status", "--json"]))["live_entries"], count + 1);
}

#[test]
fn changes_are_followed_into_the_next_log() {
    let files = Files::new();
    let data = files.text("data");
    let rotating = ["--data-dir", &data, "--log-rotate-bytes", "64KiB", "--sync", "every-batch"];
    let node = NodeProcess::start("n1", &[&ANY[..], &rotating].concat());
    ok(&node, &["set", "before", "1"]);
    let arguments = ["log", "follow", &data, "--json", "--below", "a", "--count", "40"];
    let mut follower = program(&arguments).spawn().unwrap();
    let mut said = String::new();
    let mut stderr = BufReader::new(follower.stderr.take().unwrap());
    stderr.read_line(&mut said).unwrap();
    assert!(note(&said).starts_with("following"), "{said}");
    let big = format!("\"{}\"", "x".repeat(8000));
    for i in 0..40 {
        ok(&node, &["set", &format!("a:{i}"), &big]);
        ok(&node, &["set", "elsewhere", &i.to_string()]);
    }
    let output = follower.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let paths: Vec<String> =
        text.lines().map(|line| json(line)["path"].as_str().unwrap().to_owned()).collect();
    assert_eq!(paths, (0..40).map(|i| format!("a:{i}")).collect::<Vec<_>>());
    assert!(files.path("data/log-2.dkv").exists());
}

#[test]
fn a_state_is_put_into_a_directory_and_a_node_starts_with_it() {
    let files = Files::new();
    let saved = format!("{DISTKV_FILES}/saved-state.bin");
    let data = files.text("data");
    let put = done(&["snapshot", "restore", &saved, "--into", &data, "--name", "n9", "--json"]);
    assert_eq!((&json(&put)["entries"], &json(&put)["merged"]), (&1306.into(), &false.into()));
    let mut node = durable("n9", &data);
    assert_eq!(json(&ok(&node, &["get", "hf4e31b06.sv.a.b.c", "--json"]))["value"], 3);
    ok(&node, &["set", "hf4e31b06.sv.h", "\"new\""]);
    ok(&node, &["delete", "hf4e31b06.sv.a.d"]);
    // Not while a node uses it.
    let refused = cli(&["snapshot", "restore", &saved, "--into", &data]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("another node uses"), "{}", refused.stderr);
    node.signal("TERM");
    node.wait();
    // On top of what is there: nothing newer is undone, nothing deleted comes back.
    let log = format!("{DISTKV_FILES}/change-log.bin");
    let merged = done(&["snapshot", "restore", &saved, &log, "--into", &data, "--json"]);
    assert_eq!(json(&merged)["merged"], true);
    let other = cli(&["snapshot", "restore", &saved, "--into", &data, "--name", "other"]);
    assert_eq!(other.code, 2);
    let node = durable("n9", &data);
    assert_eq!(json(&ok(&node, &["get", "hf4e31b06.sv.h", "--json"]))["value"], "new");
    assert_eq!(at_with(&node, &["get", "hf4e31b06.sv.a.d"], b"").code, 1);
    assert_eq!(json(&ok(&node, &["get", "ha9210dd7.lg.b", "--json"]))["value"], 2);
}

#[test]
fn lines_are_imported_as_new_changes() {
    let node = NodeProcess::run("n1");
    ok(&node, &["set", "there", "1"]);
    let lines = "\
{\"path\": \"there\", \"value\": 1}\n\
\n\
{\"path\": \"a:1.b\", \"value\": {\"$bin\": \"aGk=\"}, \"tock\": 5}\n\
{\"path\": \"there.not\", \"deleted\": true}\n";
    let report = json(&ok_with(&node, &["import", "-", "--json"], lines.as_bytes()));
    let numbers = ["lines", "changed", "set", "deleted", "unchanged", "deletions_left_out"]
        .map(|n| report[n].clone());
    assert_eq!(numbers, [3, 1, 1, 0, 1, 1]);
    assert_eq!(json(&ok(&node, &["get", "a:1.b", "--json"]))["value"]["$bin"], "aGk=");
    ok_with(&node, &["import", "-", "--below", "copy", "--if-new"], lines.as_bytes());
    assert_eq!(json(&ok(&node, &["get", "copy.there", "--json"]))["value"], 1);
    let newer = "{\"path\": \"there\", \"value\": 2}\n";
    let report = ok_with(&node, &["import", "-", "--if-new"], newer.as_bytes());
    assert_eq!(report, "0 set, 1 unchanged\n");
    // What is not there is not deleted.
    let gone = |path: &str| format!("{{\"path\": \"{path}\", \"deleted\": true}}\n");
    let new = "{\"path\": \"new\", \"value\": 1}\n";
    let deletions = [gone("there"), gone("there.not"), new.to_owned()].concat();
    let report = ok_with(&node, &["import", "-", "--deletions"], deletions.as_bytes());
    assert_eq!(report, "1 set, 1 deleted, 1 unchanged\n");
    let deletions = [gone("new"), gone("there"), newer.to_owned()].concat();
    let report = ok_with(&node, &["import", "-", "--deletions", "--json"], deletions.as_bytes());
    let numbers = ["lines", "changed", "set", "deleted", "unchanged", "deletions_left_out"]
        .map(|n| json(&report)[n].clone());
    assert_eq!(numbers, [3, 2, 1, 1, 1, 0]);
    ok_with(&node, &["import", "-", "--deletions"], gone("there").as_bytes());
    assert_eq!(at_with(&node, &["get", "there"], b"").code, 1);

    // It stops at the first bad line, and what stands before it is done.
    let mut many: String =
        (0..100).map(|i| format!("{{\"path\":\"many:{i}\",\"value\":{i}}}\n")).collect();
    many.push_str("{\"path\": \"x\"}\n{\"path\":\"never\",\"value\":1}\n");
    let stopped = at_with(&node, &["import", "-"], many.as_bytes());
    assert_eq!(stopped.code, 1);
    assert!(stopped.stderr.contains("line 101"), "{}", stopped.stderr);
    assert_eq!(stopped.stdout, "100 set, 0 unchanged\n");
    assert_eq!(at_with(&node, &["get", "never"], b"").code, 1);
}

/// The second of two keys of Redis, `user:16` and `user:x10`, replaced what the first one had set, without a word.
#[test]
fn an_import_says_which_lines_set_an_entry_that_an_earlier_one_had_set() {
    let node = NodeProcess::run("n1");
    let line = |path: &str, value: u64| format!("{{\"path\":\"{path}\",\"value\":{value}}}\n");
    let import = |lines: &str, words: &[&str]| {
        let done = at_with(&node, &[&["import", "-"], words].concat(), lines.as_bytes());
        assert_eq!(done.code, 0, "{done:?}");
        done
    };
    let one = [line("k:16", 1), line("k:17", 2), line("k:x10", 3)].concat();
    let done = import(&one, &[]);
    assert_eq!(done.stdout, "3 set, 0 unchanged\n");
    assert_eq!(
        done.stderr,
        "note: 1 line replaced what an earlier line of this input had set; it is line 3 (k:16)\n"
    );
    assert_eq!(ok(&node, &["get", "k:16"]), "3\n");
    // Once more: the first line sets it back, so one of the values is lost again.
    let two = [&one, &*line("k:17", 4)].concat();
    let done = import(&two, &["--json"]);
    assert_eq!(
        (&json(&done.stdout)["repeated"], &json(&done.stdout)["set"]),
        (&2.into(), &3.into())
    );
    assert_eq!(json(&done.stdout)["repeated_not_checked"], 0);
    assert_eq!(
        note(&done.stderr),
        "2 lines replaced what earlier lines of this input had set; the first is line 3 (k:16)"
    );
    // Nothing is lost of two lines that say the same, nor where one is deleted in between, which the file says.
    let same = [line("same", 1), line("same", 1), line("gone", 1)].concat();
    let deleted = [&same, "{\"path\":\"gone\",\"deleted\":true}\n", &*line("gone", 2)].concat();
    let done = import(&deleted, &["--deletions", "--json"]);
    assert_eq!((&json(&done.stdout)["repeated"], &*done.stderr), (&0.into(), ""));
    // With --if-new, it is the earlier value that stays.
    let new = [line("new:16", 1), line("new:x10", 2)].concat();
    let done = import(&new, &["--if-new"]);
    assert_eq!(done.stdout, "1 set, 1 unchanged\n");
    assert_eq!(
        done.stderr,
        "note: 1 line left out: an earlier line of this input had set the entry; it is line 2 (new:16)\n"
    );
    assert_eq!(ok(&node, &["get", "new:16"]), "1\n");
}

#[test]
fn options_of_logs_that_make_no_sense_are_refused() {
    let files = Files::new();
    fs::create_dir(files.path("empty")).unwrap();
    fs::write(files.path("a.jsonl"), "{\"path\":\"a\"}").unwrap();
    let (empty, lines) = (files.text("empty"), files.text("a.jsonl"));
    let log = format!("{DISTKV_FILES}/change-log.bin");
    for (arguments, code) in [
        (&["log"][..], 2),
        (&["log", "replay", &empty], 2),
        (&["log", "replay", &log, "--to", "-", "--until-time", "yesterday"], 2),
        (&["log", "replay", &log, "--to", "-", "--until-time", "2026-01-01"], 2),
        (&["log", "replay", &log, "--to", "-", "--name", "x"], 2),
        (&["log", "replay", &empty, "--to", "-"], 1),
        (&["log", "replay", &lines, "--to", "-"], 2),
        (&["log", "inspect", &lines], 2),
        (&["log", "follow", &empty], 1),
        (&["log", "follow", "/no/such"], 1),
        (&["import", "/no/such"], 1),
    ] {
        assert_eq!(cli(arguments).code, code, "{arguments:?}");
    }
    let inspected = done(&["log", "inspect", &log, "--json"]);
    assert_eq!(
        (&json(&inspected)["tombstones"], &json(&inspected)["tock"]),
        (&1.into(), &4432.into())
    );
    let until =
        cli(&["log", "replay", &log, "--until-tock", "4426", "--to", "-", "--format", "jsonl"]);
    assert!(
        until.stdout.contains("ha9210dd7.lg.a\"") && !until.stdout.contains("ha9210dd7.lg.b\"")
    );
}

#[test]
fn a_node_saves_and_logs_where_its_operator_lets_it() {
    let files = Files::new();
    let (data, allowed) = (files.text("data"), files.text("allowed"));
    fs::create_dir(files.path("allowed")).unwrap();
    let options = ["--data-dir", &data, "--client-files", &allowed];
    let mut node = NodeProcess::start("n1", &[&ANY[..], &options].concat());
    ok(&node, &["set", "before", "1"]);
    let saved = ok(&node, &["snapshot", "save"]);
    assert!(saved.contains("snapshot-") && saved.contains(" 1 entry"), "{saved}");
    assert_eq!(ok(&node, &["log", "stop"]), "no log was running\n");
    ok(&node, &["log", "start", "all.dkv", "--fetch"]);
    ok(&node, &["set", "after", "2"]);
    // Another one takes its place.
    ok(&node, &["log", "start", "rest.dkv"]);
    ok(&node, &["delete", "before"]);
    assert_eq!(ok(&node, &["log", "stop"]), "the log has ended\n");
    ok(&node, &["set", "not-logged", "3"]);
    let refused = at_with(&node, &["log", "start", "../evil.dkv"], b"");
    assert_eq!(refused.code, 3, "it is the name that is wrong");
    assert!(refused.stderr.contains("cannot be a file's name here"), "{}", refused.stderr);
    node.signal("TERM");
    node.wait();

    let (all, rest) = (files.text("allowed/all.dkv"), files.text("allowed/rest.dkv"));
    let lines = ["--to", "-", "--format", "jsonl"];
    let replay = |logs: &[&str]| {
        let done = cli(&[&["log", "replay"][..], logs, &lines].concat());
        assert_eq!(done.code, 0, "{}", done.stderr);
        values(&done.stdout)
    };
    assert_eq!(replay(&[&all]), ["after=2", "before=1"]);
    assert_eq!(replay(&[&all, &rest]), ["after=2"]);
    assert_eq!(replay(&[&data]), ["after=2", "not-logged=3"]);
    // What was replayed is a state to start with.
    let into = files.text("into");
    done(&["log", "replay", &all, "--into", &into, "--network", "elsewhere", "--name", "n2"]);
    let arguments = [&ANY[..], &["--data-dir", &into]].concat();
    let node = NodeProcess::start_in("elsewhere", "n2", &arguments);
    assert_eq!(values(&ok(&node, &["tree", "--json"])), ["after=2", "before=1"]);
}

//! What differs is told to people with long values cut, and to programs with all of them.

use std::fs;

use serde_json::Value as Json;

use crate::cli::command::{Done, at, cli, ok};
use crate::processes::NodeProcess;

/// A long text with this at a place.
fn long(at: usize, text: &str) -> String {
    format!("{}{text}{}", "a".repeat(at), "z".repeat(5_000))
}

fn line(path: &str, value: &str) -> String {
    let version = r#""chain":["a~7:1"],"tock":1"#;
    format!("{{\"path\": \"{path}\", \"value\": \"{value}\", {version}}}\n")
}

/// No line is long, and each shows what differs.
fn is_short(done: &Done, count: usize) {
    assert_eq!(done.stdout.lines().count(), count, "{done:?}");
    for line in done.stdout.lines() {
        assert!(line.chars().count() < 300 && line.contains('…'), "{line}");
        if line.starts_with('~') {
            assert!(line.contains("one") && line.contains("two"), "{line}");
        }
    }
}

/// All of them is there.
fn is_whole(done: &Done, names: [&str; 2]) {
    let lines = done.stdout.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    let changes: Vec<Json> = lines.filter(|line| line.get("change").is_some()).collect();
    assert!(!changes.is_empty(), "{done:?}");
    for change in changes {
        let values = names.map(|name| change.get(name).and_then(Json::as_str));
        assert!(values.iter().flatten().all(|value| value.len() > 5_000), "{change}");
    }
}

#[test]
fn of_long_values_that_differ_people_see_where_and_programs_see_all() {
    let node = NodeProcess::run("n1");
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (old, new) = (file("old.jsonl"), file("new.jsonl"));
    let is = [
        line("v.early", &long(5, "one")),
        line("v.late", &long(3_000, "one")),
        line("v.old", &long(5, "one")),
    ];
    fs::write(&old, is.concat()).unwrap();
    let then = [
        line("v.early", &long(5, "two")),
        line("v.late", &long(3_000, "two")),
        line("v.new", &long(5, "one")),
    ];
    fs::write(&new, then.concat()).unwrap();
    ok(&node, &["import", &old]);

    let diff = at(&node, &["diff", &new, "--below", "v"]);
    is_short(&diff, 4);
    is_whole(&at(&node, &["diff", &new, "--below", "v", "--json"]), ["now", "then"]);
    let apply = ["apply", &new, "--below", "v", "--delete", "--dry-run"];
    let dry = at(&node, &apply);
    is_short(&dry, 4);
    assert_eq!(dry.stdout, diff.stdout);
    is_whole(&at(&node, &[&apply[..], &["--json"]].concat()), ["now", "then"]);

    is_short(&cli(&["snapshot", "diff", &old, &new]), 4);
    is_whole(&cli(&["snapshot", "diff", &old, &new, "--json"]), ["old", "new"]);
    for command in [&["diff"][..], &["apply"], &["snapshot", "diff"]] {
        let help = cli(&[command, &["--help"]].concat()).stdout;
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("Long values are cut; with --json they are whole"), "{help}");
    }
}

#[test]
fn get_writes_a_value_of_many_parts_as_tree_does() {
    let node = NodeProcess::run("n1");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.jsonl");
    let part = r#"{"n":[9007199254740993,"\u202e\"é"]},{"$map":[[1,{"$bin":"aGk="}]]}"#;
    let long = vec![part; 5_000].join(",");
    let lines = [("a.long", format!("[{long}]")), ("a.short", String::from("5"))]
        .map(|(path, value)| format!("{{\"path\":\"{path}\",\"value\":{value}}}\n"));
    fs::write(&file, lines.concat()).unwrap();
    ok(&node, &["import", file.to_str().unwrap()]);
    for options in [&["--json"][..], &["--json", "--chain"]] {
        let of = |words: &[&str]| ok(&node, &[words, options].concat());
        let entries = ["a.long", "a.short"].map(|path| of(&["get", path]));
        assert!(entries[0].len() > long.len());
        // Not told by `assert_eq`: it is long.
        assert!(entries.concat() == of(&["tree", "a"]), "{options:?}");
    }
}

#[test]
fn a_path_that_is_too_long_is_not_repeated_as_a_whole() {
    let path = vec!["abcdefghi"; 900].join(".");
    let done = cli(&["get", &path]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.chars().count() < 400 && done.stderr.contains("abcdefghi.abc"), "{done:?}");
    assert!(done.stderr.contains("…' for '<PATH>': "), "{done:?}");
    let told = cli(&["get", &path, "--json"]);
    let error: Json = serde_json::from_str(&told.stderr).unwrap();
    assert!(error["error"].as_str().unwrap().chars().count() < 400, "{error}");
}

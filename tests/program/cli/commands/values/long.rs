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

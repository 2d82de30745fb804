//! A path with a wildcard, as other stores take it, is a name like others: who watches or deletes one is told.

use std::io::{BufRead as _, BufReader};

use crate::cli::command::{at, note, ok, program};
use crate::processes::NodeProcess;

const NO_PATTERNS: &str = "paths have no wildcards";

/// What a watch says on standard error besides that it has begun. It is ended by a change, which must be told.
fn watched(node: &NodeProcess, path: &str, more: &[&str]) -> Vec<String> {
    let connect = node.client.to_string();
    let at = if more.contains(&"--connect") { &[][..] } else { &["--connect", &*connect] };
    let watch = [&["watch", path, "--count", "1"], at, more].concat();
    let mut watching = program(&watch).spawn().unwrap();
    let mut said = Vec::new();
    let mut lines = BufReader::new(watching.stderr.take().unwrap()).lines().map(Result::unwrap);
    said.extend(lines.by_ref().take_while(|line| !line.contains("watching ")));
    ok(node, &["set", path, "1"]);
    said.extend(lines);
    assert!(watching.wait().unwrap().success());
    said
}

#[test]
fn a_watch_of_what_looks_like_a_pattern_says_once_that_it_is_none_and_what_to_watch() {
    let node = NodeProcess::run("n1");
    ok(&node, &["set", "app.x", "1"]);
    for (path, instead) in [
        ("app*", "watch : --connect"),
        ("site.lamp.*", "watch site.lamp --connect"),
        ("site.l?.x", "watch site --connect"),
        ("?", "watch : --connect"),
    ] {
        let said = watched(&node, path, &[]);
        let [said] = &said[..] else { panic!("{path}: {said:?}") };
        assert!(said.starts_with("note: ") && said.contains(NO_PATTERNS), "{path}: {said}");
        assert!(said.contains(&format!("`distkv-node {instead}")), "{path}: {said}");
        // Now there is an entry of that name, so it is one that somebody means.
        let said = watched(&node, path, &[]);
        assert!(said.is_empty(), "{path}: {said:?}");
        ok(&node, &["delete", path]);
        let said = watched(&node, path, &["--json"]);
        let [said] = &said[..] else { panic!("{path}: {said:?}") };
        assert!(note(said).contains(NO_PATTERNS), "{path}: {said}");
    }
    for plain in ["nothere", "wh?t.x"] {
        assert!(watched(&node, plain, &[]).is_empty(), "{plain}");
    }
}

#[test]
fn a_watch_at_several_nodes_says_so_too() {
    let node = NodeProcess::run("n1");
    let connect = format!("{0},{0}", node.client);
    let said = watched(&node, "app*", &["--connect", &connect]);
    let [said] = &said[..] else { panic!("{said:?}") };
    assert!(said.contains(NO_PATTERNS) && said.contains("`distkv-node watch : "), "{said}");
    assert!(watched(&node, "app*", &["--connect", &connect]).is_empty());
}

#[test]
fn a_deletion_of_what_looks_like_a_pattern_deletes_nothing_and_says_that_it_is_none() {
    let node = NodeProcess::run("n1");
    ok(&node, &["set", "app.x", "1"]);
    let all = [&["delete", "app*"][..], &["delete", "ap?", "-r"], &["delete", "*", "-r", "-n"]];
    for arguments in all {
        let done = at(&node, arguments);
        assert_eq!(done.code, 0, "{arguments:?}: {done:?}");
        assert!(done.stderr.contains(NO_PATTERNS), "{arguments:?}: {done:?}");
        assert!(done.stderr.contains("`distkv-node ls`"), "{arguments:?}: {done:?}");
        let recursive = "`distkv-node delete PATH --recursive`";
        assert!(done.stderr.contains(recursive), "{arguments:?}: {done:?}");
        assert!(!at(&node, &[arguments, &["--json"]].concat()).stderr.contains(NO_PATTERNS));
    }
    assert_eq!(at(&node, &["delete", "nothere"]).stderr, "");
    // One of that name is deleted, or is below it.
    ok(&node, &["set", "app*", "1"]);
    ok(&node, &["set", "ap?.y", "1"]);
    for arguments in [&["delete", "app*"][..], &["delete", "ap?"], &["delete", "ap?", "-r"]] {
        let done = at(&node, arguments);
        assert!(!done.stderr.contains(NO_PATTERNS), "{arguments:?}: {done:?}");
    }
    assert_eq!(ok(&node, &["tree"]), "app.x  1\n");
}

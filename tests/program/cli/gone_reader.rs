//! Commands that change something whose reader goes away: they do all the same what they were asked to, and their exit code
//! tells how that went. And outputs that nobody is meant to read.

use std::fs::{self, OpenOptions};

use crate::cli::command::{ok, program, run_with_closed_output};
use crate::processes::NodeProcess;

#[test]
fn all_files_are_restored_though_nobody_reads_what_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (first, second, none) = (path("first.dkv"), path("second.dkv"), path("none.dkv"));
    for (file, key) in [(&first, "a"), (&second, "b")] {
        let node = NodeProcess::run("n1");
        ok(&node, &["set", key, "1"]);
        ok(&node, &["snapshot", "save", "--to", file]);
    }
    let node = NodeProcess::run("n2");
    let client = node.client.to_string();
    let restore = ["snapshot", "restore", "--any-network", "--connect", &client];
    let done = run_with_closed_output(&[&restore[..], &[&first, &second]].concat());
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
    assert_eq!((ok(&node, &["get", "a"]).trim(), ok(&node, &["get", "b"]).trim()), ("1", "1"));
    // What goes wrong behind the first one is told.
    let done = run_with_closed_output(&[&restore[..], &[&first, &none]].concat());
    assert_eq!(done.code, 1, "{}", done.stderr);
    assert!(done.stderr.contains("none.dkv"), "{}", done.stderr);
}

#[test]
fn what_a_change_has_come_to_is_told_though_nobody_reads_what_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (list, wrong) = (path("list.jsonl"), path("wrong.jsonl"));
    let good = "{\"path\": \"in.a\", \"value\": 1}\n";
    fs::write(&list, good).unwrap();
    fs::write(&wrong, format!("{good}no JSON\n")).unwrap();
    let node = NodeProcess::run("n1");
    let client = node.client.to_string();
    let closed =
        |arguments: &[&str]| run_with_closed_output(&[arguments, &["--connect", &client]].concat());
    for (arguments, says) in [
        (&["import", &wrong][..], "line 2"),
        (&["mv", "nothing", "other"], "nothing"),
        (&["cp", "nothing", "other"], "nothing"),
    ] {
        let done = closed(arguments);
        assert_eq!(done.code, 1, "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains(says), "{arguments:?}: {}", done.stderr);
    }
    assert_eq!(ok(&node, &["get", "in.a"]).trim(), "1");
    assert_eq!(closed(&["apply", &list, "--below", "in"]).code, 0);
}

/// As Python's `subprocess.DEVNULL`.
#[test]
fn dev_null_may_be_opened_for_reading_too() {
    let node = NodeProcess::run("n1");
    let client = node.client.to_string();
    for arguments in [
        &["user", "add", "bob", "--method", "token"][..],
        &["user", "token", "bob"],
        &["snapshot", "save", "--to", "-"],
        &["snapshot", "save", "--to", "-", "--format", "jsonl"],
    ] {
        let null = OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
        let mut command = program(&[arguments, &["--connect", &client]].concat());
        let done = command.stdout(null).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(0), "{arguments:?}: {said}");
    }
    assert!(ok(&node, &["user", "list"]).contains("bob"));
}

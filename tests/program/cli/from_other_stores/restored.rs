//! What `snapshot restore` says of entries that were changed since the file was written: it merges, so they stay.

use crate::cli::command::{at_with, cli, ok};
use crate::processes::NodeProcess;

#[test]
fn a_restore_says_what_it_has_not_set_back_and_how_that_is_done() {
    let node = NodeProcess::run("n1");
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("it's old.dkv").to_str().unwrap().to_owned();
    for path in ["site.a", "site.b", "site.c"] {
        ok(&node, &["set", path, "1"]);
    }
    ok(&node, &["snapshot", "save", "--to", &old]);
    let unchanged = ok(&node, &["snapshot", "restore", &old]);
    assert!(
        unchanged.ends_with("it's old.dkv: 3 entries, of which 0 were taken in\n"),
        "{unchanged}"
    );

    ok(&node, &["set", "site.a", "2"]);
    let one = ok(&node, &["snapshot", "restore", &old]);
    assert!(
        one.contains("\n1 entry of it has another value now, or none, and is kept like that; "),
        "{one}"
    );
    ok(&node, &["delete", "site.b"]);
    let two = ok(&node, &["snapshot", "restore", &old]);
    assert!(
        two.contains("\n2 entries of it have another value now, or none, and are kept like that; "),
        "{two}"
    );
    let told = ok(&node, &["snapshot", "restore", &old, "--json"]);
    assert!(told.contains("\"kept\":2"), "{told}");
    assert_eq!(ok(&node, &["tree"]), "site.a  2\nsite.c  1\n");

    // What it says sets them back.
    let quoted = old.replace('\'', r"'\''");
    let convert =
        format!("`distkv-node snapshot convert '{quoted}' --to - --format jsonl --below PATH | ");
    let import =
        format!("distkv-node import - --connect {}` sets those at and below PATH", node.client);
    assert!(two.contains(&format!("{convert}{import}")), "{two}");
    let lines =
        cli(&["snapshot", "convert", &old, "--to", "-", "--format", "jsonl", "--below", "site"]);
    assert_eq!(lines.code, 0, "{lines:?}");
    let set = at_with(&node, &["import", "-"], lines.stdout.as_bytes());
    assert_eq!(set.code, 0, "{set:?}");
    assert_eq!(ok(&node, &["tree"]), "site.a  1\nsite.b  1\nsite.c  1\n");
    let all = ok(&node, &["snapshot", "restore", &old]);
    assert!(!all.contains("is kept") && !all.contains("are kept"), "{all}");
}

#[test]
fn an_edited_line_replaces_what_is_there_and_is_not_said_to_have_been_missing() {
    let node = NodeProcess::run("n1");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("edited.jsonl");
    ok(&node, &["set", "a", "1"]);
    let lines = ok(&node, &["snapshot", "save", "--to", "-", "--format", "jsonl"]);
    std::fs::write(&file, lines.replace(r#""value":1"#, r#""value":2"#)).unwrap();
    let told = ok(&node, &["snapshot", "restore", file.to_str().unwrap()]);
    assert!(told.contains("1 entry, of which 1 was taken in"), "{told}");
    assert_eq!(ok(&node, &["tree"]), "a  2\n");
}

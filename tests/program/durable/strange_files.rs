//! Files in a data directory that are not what their names say: another node's, links that lead nowhere, folders, damaged ones. The node
//! starts where it has everything without them, and commands that read the directory agree with it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::holes::{copy_of, flip, place, verify};
use super::place::Place;
use crate::cli::command::{at, cli, ok};
use crate::processes::wait_until;

/// The bad lines of `snapshot verify`: file and error.
fn bad_lines(directory: &Path) -> Vec<(String, String)> {
    let (_, lines) = verify(directory);
    let text = |line: &Json, field: &str| line[field].as_str().unwrap_or_default().to_owned();
    let bad = lines.iter().filter(|line| line["good"] == false);
    bad.map(|line| (text(line, "file"), text(line, "error"))).collect()
}

/// What somebody does to a file.
type Damage = fn(&Path);

/// Puts another node's snapshot in the place of the newest one.
fn foreign(file: &Path) {
    let other = Place::new("other", "every-batch");
    let mut node = other.run();
    ok(&node, &["set", "k", "666"]);
    ok(&node, &["snapshot", "save"]);
    node.signal("TERM");
    node.wait();
    fs::copy(other.dir.join("snapshot-2.dkv"), file).unwrap();
}

fn dead_link(file: &Path) {
    link(Path::new("nowhere"), file);
}

fn own_link(file: &Path) {
    link(file, file);
}

fn link(to: &Path, file: &Path) {
    fs::remove_file(file).unwrap();
    symlink(to, file).unwrap();
}

fn folder(file: &Path) {
    fs::remove_file(file).unwrap();
    fs::create_dir(file).unwrap();
    fs::write(file.join("kept"), "").unwrap();
}

#[test]
fn a_node_starts_without_a_newest_snapshot_that_is_of_no_use_and_says_so() {
    let place = place();
    let damages: [(&str, Damage); 4] = [
        ("it belongs to node \"other\"", foreign),
        ("cannot open", dead_link),
        ("cannot open", own_link),
        ("cannot open: it is a folder, not a file", folder),
    ];
    for (why, damage) in damages {
        let copy = copy_of(&place);
        damage(&copy.join("snapshot-5.dkv"));
        let directory = copy.to_str().unwrap();
        // Whoever reads the directory has the same, and changes nothing there.
        let replayed = cli(&["log", "replay", directory, "--to", "-", "--format", "jsonl"]);
        assert_eq!(replayed.code, 0, "{why}: {}", replayed.stderr);
        assert!(replayed.stdout.contains("\"value\":5"), "{why}: {}", replayed.stdout);
        assert!(replayed.stderr.contains(why), "{why}: {}", replayed.stderr);
        let says = "a node that starts with the directory sets it aside";
        assert!(replayed.stderr.contains(says), "{why}: {}", replayed.stderr);
        let inspected = cli(&["log", "inspect", directory]);
        assert_eq!(inspected.code, 0, "{why}: {}", inspected.stderr);
        let mut copied = Place::at(copy.clone(), &place.network, &place.name, place.sync);
        copied.options.clone_from(&place.options);
        let mut node = copied.run();
        wait_until("the log names its port", || {
            node.log().iter().any(|line| line.contains("client=")).then_some(())
        });
        let is_warning = |line: &&String| {
            let parts = ["WARN", "snapshot-5.dkv: ", why, "set aside as snapshot-5.dkv.bad"];
            parts.iter().all(|part| line.contains(part))
        };
        assert_eq!(node.log().iter().filter(is_warning).count(), 1, "{:?}", node.log());
        assert_eq!(ok(&node, &["get", "k"]), "5\n");
        assert!(fs::symlink_metadata(copy.join("snapshot-5.dkv.bad")).is_ok());
        node.signal("TERM");
        node.wait();
    }
}

#[test]
fn a_node_does_not_start_where_it_lacks_what_such_a_snapshot_should_have() {
    let place = place();
    let damages: [(&str, Damage); 3] = [
        ("move it away (`mv`)", foreign),
        ("a symbolic link that leads nowhere", own_link),
        ("it is a folder, not a file; move it away (`mv`)", folder),
    ];
    for (advice, damage) in damages {
        let copy = copy_of(&place);
        for file in ["log-1.dkv", "log-2.dkv", "log-3.dkv", "log-4.dkv", "snapshot-4.dkv"] {
            fs::remove_file(copy.join(file)).unwrap();
        }
        damage(&copy.join("snapshot-5.dkv"));
        let copied = Place::at(copy, &place.network, &place.name, place.sync);
        let refused = copied.refusal_with(2, &["run"]);
        assert!(refused.contains("snapshot-5.dkv: ") && refused.contains(advice), "{refused}");
    }
}

#[test]
fn the_line_of_a_directory_agrees_with_that_of_a_log_that_only_the_history_needs() {
    let place = place();
    let copy = copy_of(&place);
    flip(&copy.join("log-2.dkv"));
    let bad = bad_lines(&copy);
    let [(file, _), (whole, error)] = &bad[..] else { panic!("{bad:?}") };
    assert!(file.ends_with("log-2.dkv") && *whole == copy.to_str().unwrap(), "{bad:?}");
    for part in ["a node starts with the directory", "all data is there", "log-2.dkv"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let (_, lines) = verify(&copy);
    assert_eq!(lines.last().unwrap()["holes"].as_array().map(Vec::len), Some(1), "{lines:?}");
    // Besides a hole of which a start knows.
    fs::remove_file(copy.join("log-3.dkv")).unwrap();
    let (_, lines) = verify(&copy);
    let whole = lines.last().unwrap();
    assert_eq!(whole["holes_count"], 2, "{whole}");
    let error = whole["error"].as_str().unwrap();
    assert!(error.contains("log-2.dkv") && error.contains("log-3.dkv"), "{error}");
    // Snapshots that nobody needs.
    let damages: [(u64, Damage); 5] =
        [(4, flip), (5, flip), (5, foreign), (5, dead_link), (5, folder)];
    for (number, damage) in damages {
        let copy = copy_of(&place);
        let name = format!("snapshot-{number}.dkv");
        damage(&copy.join(&name));
        let bad = bad_lines(&copy);
        let [(file, _), (whole, error)] = &bad[..] else { panic!("{bad:?}") };
        assert!(file.ends_with(&name) && *whole == copy.to_str().unwrap(), "{bad:?}");
        assert!(error.contains("a node starts") && error.contains(&name), "{bad:?}");
    }
}

#[test]
fn commands_find_out_whose_a_directory_is_besides_links_to_nowhere_and_files_of_others() {
    let place = place();
    let copy = copy_of(&place);
    let directory = copy.to_str().unwrap();
    fs::remove_file(copy.join("identity")).unwrap();
    dead_link(&copy.join("log-5.dkv"));
    let inspected = cli(&["log", "inspect", directory, "--json"]);
    assert_eq!(inspected.code, 0, "{}", inspected.stderr);
    let told: Json = serde_json::from_str(&inspected.stdout).unwrap();
    assert_eq!((&told["name"], &told["network"]), (&"n1".into(), &place.network.clone().into()));
    // The past begins with the node's own files: log 1, or else snapshot 4.
    let begins = |directory: &Path| {
        let done = cli(&["log", "inspect", directory.to_str().unwrap(), "--json"]);
        assert_eq!(done.code, 0, "{}", done.stderr);
        serde_json::from_str::<Json>(&done.stdout).unwrap()["past"]["time_ms"].as_u64().unwrap()
    };
    let copy = copy_of(&place);
    let first = begins(&copy);
    fs::remove_file(copy.join("log-1.dkv")).unwrap();
    let without = begins(&copy);
    assert!(without > first);
    let others = other_log();
    fs::copy(&others.1, copy.join("log-1.dkv")).unwrap();
    assert_eq!(begins(&copy), without);
    // So says the node.
    let mut copied = Place::at(copy, &place.network, &place.name, place.sync);
    copied.options.clone_from(&place.options);
    let node = copied.run();
    let told: Json = serde_json::from_str(&ok(&node, &["status", "--json"])).unwrap();
    assert!(told.to_string().contains(&without.to_string()), "{told}");
}

/// The first log of another node; with what keeps it.
fn other_log() -> (Place, PathBuf) {
    let other = Place::new("other", "every-batch");
    let mut node = other.run();
    node.signal("TERM");
    node.wait();
    let file = other.dir.join("log-1.dkv");
    (other, file)
}

#[test]
fn a_history_in_json_has_a_line_for_each_hole() {
    let place = place();
    let copy = copy_of(&place);
    fs::remove_file(copy.join("log-2.dkv")).unwrap();
    let mut copied = Place::at(copy, &place.network, &place.name, place.sync);
    copied.options.clone_from(&place.options);
    let node = copied.run();
    let lines = |arguments: &[&str]| -> Vec<Json> {
        let json = ok(&node, arguments);
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let all = lines(&["history", "k", "--json"]);
    let (hole, changes) = all.split_last().unwrap();
    assert!(changes.iter().all(|line| line["what"] == "set"), "{all:?}");
    assert_eq!(hole["what"], "hole", "{hole}");
    assert!(hole["hole"].as_str().unwrap().contains("log-2.dkv"), "{hole}");
    // Whoever reads the fields of a change finds nothing in them.
    let fields = |line: &Json| line.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    for field in fields(&changes[0]) {
        assert!(
            fields(hole).contains(&field) && !hole[&field].is_string() || field == "what",
            "{hole}"
        );
    }
    // Not with what was not lost, and not in the lines for people.
    let since = lines(&["history", "k", "--json", "--limit", "2"]);
    assert!(since.iter().all(|line| line["what"] == "set"), "{since:?}");
    assert!(!at(&node, &["history", "k"]).stdout.contains("hole"));
}

//! A log that only the history of a data directory needs is missing, cut or damaged: the node starts, as a newer snapshot has
//! the data, and whoever asks for the past or checks the directory is told.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::place::Place;
use crate::cli::command::{Done, at, cli, ok};
use crate::http::asking;
use crate::processes::wait_until;

/// The directory of a node that has set `k` to n in log n, for 1 to 5, and has two snapshots left, of 4 and 5.
pub(super) fn place() -> Place {
    let mut place = Place::new("n1", "every-batch");
    place.options = ["--http", "127.0.0.1:0"].map(str::to_owned).to_vec();
    let mut node = place.run();
    for value in 1..=5 {
        ok(&node, &["set", "k", &value.to_string()]);
        if value < 5 {
            ok(&node, &["snapshot", "save"]);
        }
    }
    node.signal("TERM");
    node.wait();
    for number in [2, 3] {
        fs::remove_file(place.dir.join(format!("snapshot-{number}.dkv"))).unwrap();
    }
    place
}

pub(super) fn verify(directory: &Path) -> (Done, Vec<Json>) {
    let done = cli(&["snapshot", "verify", directory.to_str().unwrap(), "--json"]);
    let lines = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (done, lines)
}

/// A copy of a directory, in the place of the copy before.
pub(super) fn copy_of(place: &Place) -> PathBuf {
    let copy = place.dir.with_extension("damaged");
    if copy.exists() {
        fs::remove_dir_all(&copy).unwrap();
    }
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(&place.dir).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    copy
}

/// The same, with one log changed.
fn damaged(place: &Place, log: u64, damage: Damage) -> PathBuf {
    let copy = copy_of(place);
    damage(&copy.join(format!("log-{log}.dkv")));
    copy
}

fn remove(file: &Path) {
    fs::remove_file(file).unwrap();
}

/// Its last change is not whole any more.
fn cut(file: &Path) {
    let bytes = fs::read(file).unwrap();
    fs::write(file, &bytes[..bytes.len() - 3]).unwrap();
}

/// A bit of its last change is flipped.
pub(super) fn flip(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let last = bytes.len() - 3;
    bytes[last] ^= 1;
    fs::write(file, bytes).unwrap();
}

type Damage = fn(&Path);

const DAMAGES: [(&str, Damage); 3] = [("gone", remove), ("cut", cut), ("flipped", flip)];

#[test]
fn a_directory_whose_history_has_a_hole_is_bad_and_the_advice_helps() {
    let place = place();
    let (good, lines) = verify(&place.dir);
    assert_eq!(good.code, 0, "{}", good.stdout);
    assert_eq!(lines.last().unwrap()["kind"], "data directory");
    for (what, damage) in DAMAGES {
        let copy = damaged(&place, 2, damage);
        let (done, lines) = verify(&copy);
        assert_eq!(done.code, 1, "{what}: {}", done.stdout);
        let bad: Vec<&Json> = lines.iter().filter(|line| line["good"] == false).collect();
        let file = bad[0]["file"].as_str().unwrap();
        let error = bad[0]["error"].as_str().unwrap();
        assert!(error.contains("log-2.dkv"), "{what}: {error}");
        assert!(!error.contains("--discard-damaged"), "{what}: it does nothing here: {error}");
        if what != "gone" {
            assert!(file.ends_with("log-2.dkv"), "{}", done.stdout);
            assert!(error.contains("only the history"), "{error}");
        }
        let count = if what == "gone" { 1 } else { 2 };
        assert_eq!(bad.len(), count, "{}", done.stdout);
        // Of a flipped bit, a start does not know.
        if what != "flipped" {
            let whole = bad.last().unwrap();
            assert_eq!(whole["file"], copy.to_str().unwrap(), "{}", done.stdout);
            let whole = whole["error"].as_str().unwrap();
            for part in ["all data is there", "snapshot-4.dkv", "less than 4"] {
                assert!(whole.contains(part), "{what}: {part}: {whole}");
            }
        }
        for number in 1..4 {
            let log = copy.join(format!("log-{number}.dkv"));
            assert!(fs::remove_file(log).is_ok() || what == "gone" && number == 2);
        }
        let (done, _) = verify(&copy);
        assert_eq!(done.code, 0, "{what}: {}", done.stdout);
    }
}

#[test]
fn a_history_across_a_hole_says_so_where_it_is_and_which_log_it_is() {
    let place = place();
    for (what, damage) in DAMAGES {
        // Behind the hole, a log has the next change; or only the next snapshot knows what it had come to.
        for (log, value) in [(2, 3), (3, 3)] {
            let copy = damaged(&place, log, damage);
            let name = format!("log-{log}.dkv");
            let mut copied = Place::at(copy, &place.network, &place.name, place.sync);
            copied.options.clone_from(&place.options);
            let mut node = copied.run();
            // The log is read by a thread of its own: what comes behind the warnings is waited for.
            wait_until("the log names its port", || {
                node.log().iter().any(|line| line.contains("client=")).then_some(())
            });
            let warned = |line: &&String| line.contains("WARN") && line.contains(&name);
            // A start reads only the heads of such logs.
            let warnings = usize::from(what != "flipped");
            assert_eq!(node.log().iter().filter(warned).count(), warnings, "{:?}", node.log());
            assert_eq!(ok(&node, &["get", "k"]), "5\n");
            let told = at(&node, &["history", "k"]);
            assert_eq!(told.code, 0, "{what}: {}", told.stderr);
            let text = &told.stdout;
            let behind = format!("  ? -> {value}  ");
            assert_eq!(text.matches(&behind).count(), 1, "{what}: {text}");
            assert_eq!(text.matches("(unknown)").count(), usize::from(log == 3), "{what}: {text}");
            assert_eq!(text.lines().count() as u64, log + 2, "{what}: {text}");
            assert!(text.lines().last().unwrap().contains("  4 -> 5  "), "{what}: {text}");
            assert!(told.stderr.contains(&name), "{what}: {}", told.stderr);
            assert!(!told.stderr.contains("did not run"), "{what}: {}", told.stderr);
            let json = ok(&node, &["history", "k", "--json"]);
            let unknown = |line: &str| {
                let line: Json = serde_json::from_str(line).unwrap();
                assert!(line["before"].is_null() || line["before_unknown"] == false, "{line}");
                line["before_unknown"] == true
            };
            assert_eq!(json.lines().filter(|line| unknown(line)).count(), 1, "{json}");
            let answer = asking::get(node.http.unwrap(), "/v1/history?path=k").json();
            assert_eq!(answer["gaps"], true, "{answer}");
            let holes = answer["holes"].as_array().unwrap();
            assert!(holes.len() == 1 && holes[0].as_str().unwrap().contains(&name), "{answer}");
            let items = answer["items"].as_array().unwrap();
            let unknown = items.iter().filter(|item| item["before_unknown"] == true);
            assert_eq!(
                unknown.map(|item| &item["value"]).collect::<Vec<_>>(),
                [&Json::from(value)]
            );
            node.signal("TERM");
            node.wait();
        }
    }
}

/// A file of the directory was put in the place of another, or something that is no file.
#[test]
fn a_directory_whose_logs_were_mixed_up_names_each_of_them_and_no_other() {
    let place = place();
    let copy = damaged(&place, 2, remove);
    fs::create_dir(copy.join("log-2.dkv")).unwrap();
    fs::copy(place.dir.join("log-5.dkv"), copy.join("log-3.dkv")).unwrap();
    let (done, lines) = verify(&copy);
    assert_eq!(done.code, 1, "{}", done.stdout);
    let bad: Vec<(&str, &str)> = lines
        .iter()
        .filter(|line| line["good"] == false)
        .map(|line| (line["file"].as_str().unwrap(), line["error"].as_str().unwrap()))
        .collect();
    let [folder, number, whole] = &bad[..] else { panic!("{}", done.stdout) };
    assert!(folder.0.ends_with("log-2.dkv") && folder.1.contains("it is a folder"), "{folder:?}");
    assert!(number.0.ends_with("log-3.dkv") && number.1.contains("its number is 5"), "{number:?}");
    assert!(!number.1.contains("give it its name back"), "{number:?}");
    for part in [
        "2 holes: ",
        "log-2.dkv: cannot open: it is a folder",
        "log-3.dkv: it says",
        "snapshot-4.dkv on",
    ] {
        assert!(whole.1.contains(part), "{part}: {}", whole.1);
    }
    assert!(!whole.1.contains("log-5") && !whole.1.contains("log-4"), "{}", whole.1);
    let told = lines.last().unwrap()["holes"].as_array().unwrap();
    assert_eq!(told.len(), 2, "{}", done.stdout);
    // A node starts with it, and tells what it knows.
    let mut copied = Place::at(copy, &place.network, &place.name, place.sync);
    copied.options.clone_from(&place.options);
    let mut node = copied.run();
    let told = at(&node, &["history", "k"]);
    assert_eq!(told.code, 0, "{}", told.stderr);
    let value = |line: &str| {
        let (_, shown) = line.split_once("  set ")?;
        shown.trim_start().split_once("  (").map(|(value, _)| value.to_owned())
    };
    let values: Vec<String> = told.stdout.lines().filter_map(value).collect();
    assert_eq!(values, ["1", "? -> 3", "3 -> 4", "4 -> 5"], "{}", told.stdout);
    assert!(
        told.stderr.contains("log-2.dkv: ") && told.stderr.contains("log-3.dkv: "),
        "{}",
        told.stderr
    );
    let answer = asking::get(node.http.unwrap(), "/v1/history?path=k").json();
    assert_eq!(answer["holes"].as_array().map(Vec::len), Some(2), "{answer}");
    node.signal("TERM");
    node.wait();
}

/// Nothing has run there yet: it has a snapshot only.
#[test]
fn a_directory_that_was_prepared_for_a_node_is_checked_as_one() {
    let place = place();
    let snapshot = place.dir.join("snapshot-5.dkv");
    let new = place.dir.with_extension("new");
    let new_text = new.to_str().unwrap();
    let restored = cli(&["snapshot", "restore", snapshot.to_str().unwrap(), "--into", new_text]);
    assert_eq!(restored.code, 0, "{}", restored.stderr);
    let (done, lines) = verify(&new);
    assert_eq!(done.code, 0, "{}", done.stdout);
    let last = lines.last().unwrap();
    assert_eq!((&last["file"], &last["kind"]), (&new_text.into(), &"data directory".into()));
}

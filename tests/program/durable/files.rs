//! Files that clients have written by a real node.

use std::fs;
use std::path::Path;

use distkv::engine::Image;
use distkv::storage::snapshot::read_snapshot;
use distkv::storage::{LogReader, LogStart, Replay};
use rmpv::Value;

use super::place::{Place, code, status, storage};
use crate::processes::{Client, NodeProcess, array, field, file_names, wait_until};

/// A node whose clients may have files.
fn start(folder: &Path) -> (Place, NodeProcess) {
    let mut place = Place::new("n1", "every-second");
    place.options = vec!["--client-files".into(), folder.to_str().unwrap().into()];
    let node = place.run();
    (place, node)
}

fn fill(client: &mut Client) {
    for n in 0..300 {
        client.set(&["k", &n.to_string()], Value::from(n));
    }
    client.call("delete_value", &[("path", array(&["k", "5"]))]);
}

fn names(folder: &Path) -> Vec<String> {
    let mut names = file_names(folder);
    names.retain(|name| !name.starts_with('.'));
    names
}

fn file(name: &str) -> (&str, Value) {
    ("path", Value::from(name))
}

/// Values by path, of a node that begins with a file.
fn loaded(path: &Path) -> Vec<(String, Option<Value>)> {
    let mut place = Place::new("other", "never");
    place.options = vec!["--load".into(), path.to_str().unwrap().into()];
    let node = place.run();
    values(&mut node.connect())
}

fn values(client: &mut Client) -> Vec<(String, Option<Value>)> {
    client.tree(&[]).into_iter().map(|(path, entry)| (path, field(&entry, "value"))).collect()
}

#[test]
fn a_saved_state_is_one_that_can_be_begun_with() {
    let folder = tempfile::tempdir().unwrap();
    let (_place, node) = start(folder.path());
    let mut client = node.connect();
    fill(&mut client);
    for _ in 0..2 {
        let reply = client.call("save", &[file("state.bin"), ("full", Value::from(true))]);
        assert_eq!(field(&reply, "result"), Some(Value::from(true)), "{reply}");
    }
    assert_eq!(names(folder.path()), ["state.bin"]);
    assert_eq!(loaded(&folder.path().join("state.bin")), values(&mut client));
}

#[test]
fn no_request_writes_outside_or_over_what_is_there() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("files");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("mine"), "precious").unwrap();
    fs::write(outer.path().join("victim"), "precious").unwrap();
    std::os::unix::fs::symlink(outer.path().join("victim"), folder.join("link")).unwrap();
    let (_place, node) = start(&folder);
    let mut client = node.connect();
    let absolute = outer.path().join("victim");
    let evil = [
        "../victim",
        "/tmp/evil",
        absolute.to_str().unwrap(),
        "link",
        "mine",
        ".made-by-clients",
        "",
        "a/b",
        "./a",
        "..",
        "a\0b",
    ];
    for name in evil {
        for action in ["save", "log", "snapshot", "log_start"] {
            let reply = client.call(action, &[file(name)]);
            // It is the name that is wrong, not the disk.
            assert_eq!(code(&reply).as_deref(), Some("bad_request"), "{action} {name:?}: {reply}");
        }
    }
    assert_eq!(names(&folder), ["link", "mine"]);
    for kept in [outer.path().join("victim"), folder.join("mine")] {
        assert_eq!(fs::read_to_string(kept).unwrap(), "precious");
    }
    assert_eq!(names(outer.path()), ["files", "victim"]);
}

#[test]
fn without_a_directory_for_them_there_are_no_files() {
    let place = Place::new("n1", "never");
    let node = place.run();
    let mut client = node.connect();
    for action in ["save", "log", "log_start", "log_stop"] {
        let reply = client.call(action, &[file("a")]);
        assert_eq!(code(&reply).as_deref(), Some("denied"), "{reply}");
    }
    let reply = client.call("snapshot", &[]);
    assert_eq!(code(&reply), None, "{reply}");
    let memory = NodeProcess::run("m1");
    let reply = memory.connect().call("snapshot", &[]);
    assert_eq!(code(&reply).as_deref(), Some("denied"), "{reply}");
}

#[test]
fn a_log_has_what_changed_and_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let (_place, mut node) = start(folder.path());
    let mut client = node.connect();
    fill(&mut client);
    let reply = client.call("log", &[file("changes"), ("fetch", Value::from(true))]);
    assert_eq!(field(&reply, "result"), Some(Value::from(true)), "{reply}");
    client.set(&["k", "1000"], Value::from("later"));
    client.set(&["k", "5"], Value::from("back"));
    client.call("delete_value", &[("path", array(&["k", "6"]))]);
    client.set(&["k", "1001"], Value::from("last"));
    let path = folder.path().join("changes");
    wait_until("the last change is written", || {
        let content = fs::read(&path).unwrap();
        content.windows(4).any(|bytes| bytes == b"last").then_some(())
    });
    let log = field(&status(&mut client, "client_log"), "file").unwrap();
    assert_eq!(log.as_str(), Some("changes"));
    let expected = values(&mut client);
    node.kill();
    assert_eq!(loaded(&path), expected);
}

#[test]
fn a_log_ends_when_it_is_told_to_or_another_one_begins() {
    let folder = tempfile::tempdir().unwrap();
    let (_place, node) = start(folder.path());
    let mut client = node.connect();
    let length = |name: &str| fs::metadata(folder.path().join(name)).unwrap().len();
    client.call("log", &[file("first")]);
    client.set(&["a"], Value::from("in the first"));
    let reply = client.call("log", &[file("second")]);
    assert_eq!(code(&reply), None, "{reply}");
    client.set(&["b"], Value::from("in the second"));
    wait_until("the second has it", || {
        let content = fs::read(folder.path().join("second")).unwrap();
        content.windows(13).any(|bytes| bytes == b"in the second").then_some(())
    });
    let first = fs::read(folder.path().join("first")).unwrap();
    assert!(first.windows(12).any(|bytes| bytes == b"in the first"));
    assert!(!first.windows(13).any(|bytes| bytes == b"in the second"));
    let reply = client.call("save", &[file("second")]);
    assert_eq!(code(&reply).as_deref(), Some("bad_request"), "a log is being written there");
    // A log that cannot begin does not end the one that goes on.
    let reply = client.call("log", &[file("../x")]);
    assert_eq!(code(&reply).as_deref(), Some("bad_request"), "{reply}");
    let before = length("second");
    client.set(&["c"], Value::from(1));
    wait_until("the second goes on", || (length("second") > before).then_some(()));
    assert_eq!(field(&client.call("log", &[]), "result"), Some(Value::from(true)));
    assert!(status(&mut client, "client_log").is_nil());
    let reply = client.call("log_stop", &[]);
    assert_eq!(field(&reply, "result"), Some(Value::from(false)), "there is none any more");
}

/// What a log gives that needs nothing else.
fn replayed(path: &Path) -> Image {
    let source = Box::new(fs::File::open(path).unwrap());
    let mut reader = LogReader::new("log", source).unwrap();
    assert_eq!(reader.start(), LogStart::Empty);
    let mut replay = Replay::new(1);
    while let Some(batch) = reader.next().unwrap() {
        replay.apply(batch, reader.table());
    }
    replay.take_table(reader.into_table());
    replay.into_image().unwrap()
}

#[test]
fn a_log_in_our_own_form_can_be_replayed_and_a_snapshot_read() {
    let folder = tempfile::tempdir().unwrap();
    let (_place, node) = start(folder.path());
    let mut client = node.connect();
    fill(&mut client);
    let reply = client.call("log_start", &[file("own.dkv"), ("fetch", Value::from(true))]);
    assert_eq!(code(&reply), None, "{reply}");
    client.set(&["k", "1000"], Value::from(7));
    assert_eq!(field(&client.call("log_stop", &[]), "result"), Some(Value::from(true)));
    // It is not replaced by the next one, unless that is said.
    let length = || fs::metadata(folder.path().join("own.dkv")).unwrap().len();
    let before = length();
    let reply = client.call("log_start", &[file("own.dkv")]);
    assert_eq!(code(&reply).as_deref(), Some("bad_request"), "{reply}");
    assert_eq!(length(), before);
    let reply = client.call("log_start", &[file("other.dkv")]);
    assert_eq!(code(&reply), None, "{reply}");
    let forced = [file("other.dkv"), ("force", Value::from(true))];
    assert_eq!(code(&client.call("log_start", &forced)), None);
    let saved = client.call("snapshot", &[file("state.dkv")]);
    let result = field(&saved, "result").unwrap();
    assert_eq!(field(&result, "entries"), Some(Value::from(301)), "{saved}");
    let source = Box::new(fs::File::open(folder.path().join("state.dkv")).unwrap());
    let (_, snapshot) = read_snapshot("state.dkv", source, 1, &mut |_| {}).unwrap();
    let log = replayed(&folder.path().join("own.dkv"));
    let entries = |image: &Image| {
        let mut all: Vec<_> = image.replica.tree.all().collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    };
    assert!(entries(&log) == entries(&snapshot));
    assert_eq!(log.knowledge().tick, snapshot.knowledge().tick);

    let made = client.call("snapshot", &[]);
    let name = field(&field(&made, "result").unwrap(), "file").unwrap();
    let last = storage(&mut client, "snapshot");
    assert_eq!(field(&last, "file"), Some(name));
    assert_eq!(field(&last, "entries"), Some(Value::from(301)));
}

#[test]
fn a_directory_that_cannot_be_used_is_an_error_at_the_start() {
    let mut place = Place::new("n1", "never");
    place.options = vec!["--client-files".into(), "/no/such/place".into()];
    let said = place.refusal_with(2, &["run"]);
    assert!(said.contains("/no/such/place") && said.contains("clients' files"), "{said}");
    // Else a client could write what the next start takes for the node's own.
    let dir = place.dir.to_str().unwrap();
    place.options = vec!["--client-files".into(), format!("{dir}/../data/.")];
    let said = place.refusal_with(2, &["run"]);
    assert!(said.contains("is the data directory"), "{said}");
}

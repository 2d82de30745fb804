//! Files on the server: what `save`, `log`, `snapshot`, `log_start`, `log_stop` ask the node for, what
//! they answer; `update`; how the disk is.

use distkv::server::{FileFormat, FileJob, FileRefusal, FileReport, StorageStatus};

use crate::harness::{Client, Node, Value, fields, path, refusing, text};

fn report(name: &str) -> FileReport {
    let name = Some(name.into());
    FileReport { name, entries: Some(7), bytes: Some(99), ..FileReport::default() }
}

#[test]
fn requests_for_files_become_jobs_of_the_node() {
    let node = Node::found("n1");
    let mut client = node.connect();
    *node.info.answer.lock().unwrap() = Some(Ok(report("f")));
    let save = client.ok(map! {"action": "save", "path": "f", "full": true});
    assert_eq!(
        (fields(&save), save["result"].as_bool()),
        (vec!["result", "seq", "tock"], Some(true))
    );
    let log = client.ok(map! {"action": "log", "path": "g", "fetch": true});
    assert_eq!(log["result"].as_bool(), Some(true));
    client.ok(map! {"action": "log"});
    client.ok(map! {"action": "log", "path": Value::Nil});
    let made = client.ok(map! {"action": "snapshot"});
    assert_eq!(made["result"]["file"].as_str(), Some("f"));
    assert_eq!(made["result"]["entries"].as_u64(), Some(7));
    client.ok(map! {"action": "snapshot", "path": "h"});
    client.ok(map! {"action": "log_start", "path": "i"});
    client.ok(map! {"action": "log_start", "path": "j", "format": "distkv", "fetch": true});
    client.ok(map! {"action": "log_start", "path": "k", "force": true});
    assert_eq!(client.ok(map! {"action": "log_stop"})["result"].as_bool(), Some(true));
    let save = |name: &str, format, internal| FileJob::Save { name: name.into(), format, internal };
    let log = |name: &str, format, fetch, replaces| FileJob::LogStart {
        name: name.into(),
        format,
        fetch,
        replaces,
    };
    let (own, distkv) = (FileFormat::Own, FileFormat::Distkv);
    let expected = [
        save("f", distkv, true),
        log("g", distkv, true, true),
        FileJob::LogStop,
        FileJob::LogStop,
        FileJob::Snapshot,
        save("h", own, true),
        log("i", own, false, false),
        log("j", distkv, true, false),
        log("k", own, false, true),
        FileJob::LogStop,
    ];
    assert_eq!(*node.info.jobs.lock().unwrap(), expected);
}

#[test]
fn what_the_node_refuses_is_an_error_that_says_what_to_do() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let mut code = |refusal: FileRefusal, hint: &str| {
        *node.info.answer.lock().unwrap() = Some(Err(refusal));
        let error = client.error(map! {"action": "save", "path": "f"});
        assert!(text(&error, "error").contains(hint), "{error}");
        text(&error, "code").to_owned()
    };
    assert_eq!(code(FileRefusal::NotAllowed, "--client-files"), "denied");
    assert_eq!(code(FileRefusal::NoDataDirectory, "--data-dir"), "denied");
    assert_eq!(code(FileRefusal::Busy, "try again"), "too_many");
    assert_eq!(code(FileRefusal::Name("no such name".into()), "no such name"), "bad_request");
    assert_eq!(code(FileRefusal::Failed("no room".into()), "no room"), "storage_failed");
    let jobs = node.info.jobs.lock().unwrap().len();
    for bad in [
        map! {"action": "save"},
        map! {"action": "save", "path": 5},
        map! {"action": "log", "path": path("a.b")},
        map! {"action": "log_start"},
        map! {"action": "log_start", "path": "f", "format": "xml"},
    ] {
        assert_eq!(client.code(bad), "bad_request");
    }
    assert_eq!(node.info.jobs.lock().unwrap().len(), jobs, "nothing of that reached the node");
}

#[test]
fn a_node_that_is_not_ready_writes_no_files() {
    let node = Node::waiting("n1", refusing());
    let mut client = node.connect();
    assert_eq!(client.code(map! {"action": "save", "path": "f"}), "not_ready");
    assert!(node.info.jobs.lock().unwrap().is_empty());
}

fn update(at: &str, value: Option<u64>, tock: u64) -> Value {
    let mut change = map! {
        "action": "update", "path": path(at), "node": "n9", "tick": 5, "prev": Value::Nil,
        "tock": tock, "depth": 0,
    };
    if let (Some(value), Value::Map(fields)) = (value, &mut change) {
        fields.push(("value".into(), value.into()));
    }
    change
}

fn changed(client: &mut Client, change: Value) -> bool {
    client.ok(change)["changed"].as_bool().unwrap()
}

#[test]
fn a_stored_change_is_made_again_only_if_it_is_newer_than_what_is_there() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let tock = client.set("a", 1)["tock"].as_u64().unwrap();
    assert!(!changed(&mut client, update("a", Some(2), tock)));
    assert!(!changed(&mut client, update("a", None, tock)));
    assert_eq!(client.get("a"), Some(1.into()));
    let made = client.ok(update("a", Some(2), tock + 1_000));
    assert_eq!(made["changed"].as_bool(), Some(true));
    assert_eq!(made["chain"]["node"].as_str(), Some("n1~1"), "nobody can speak for another node");
    assert!(made["tock"].as_u64().unwrap() < tock + 1_000, "nor use the counters up");
    assert_eq!(client.get("a"), Some(2.into()));
    assert!(changed(&mut client, update("a", None, 1 << 40)));
    assert_eq!(client.get("a"), None);
    assert!(changed(&mut client, update("new", Some(3), 1)));
    assert!(!changed(&mut client, update("new", Some(3), 1 << 40)), "it is there already");
    let mut deep = update("a", Some(1), 9);
    if let Value::Map(fields) = &mut deep {
        fields.retain(|(key, _)| key.as_str() != Some("depth"));
        fields.push(("depth".into(), 2.into()));
    }
    assert_eq!(client.code(deep), "bad_request");
    assert_eq!(client.code(update("a", Some(1), 1 << 62)), "bad_request");
    assert_eq!(client.code(update(":n.codec.x", Some(1), 1 << 40)), "not_implemented");
}

#[test]
fn how_the_disk_is_can_be_seen_and_a_failing_one_is_warned_of() {
    let node = Node::found("n1");
    let mut client = node.connect();
    assert!(client.ok(map! {"action": "status"})["storage"].is_nil());
    assert!(client.ok(map! {"action": "get_state", "storage": true})["storage"].is_nil());
    let status = StorageStatus {
        directory: "/data".into(),
        sync: "every-second",
        store: 5,
        appended: 12,
        written: 11,
        synced: 10,
        waiting_bytes: 100,
        failure: Some(("no space left".into(), 2_000)),
        failures: 1,
        log: None,
        bytes: Some(5_000),
        room: Some((3_000, 9_000)),
        room_warning: None,
        since_snapshot_bytes: 900,
        past: Some((1_000, 7)),
        snapshot: None,
        is_saving: false,
        snapshot_failure: None,
    };
    *node.info.storage.lock().unwrap() = Some(status.clone());
    for reply in [
        client.ok(map! {"action": "status"}),
        client.ok(map! {"action": "get_state", "storage": true, "nodes": true}),
    ] {
        let storage = &reply["storage"];
        assert_eq!(
            (text(storage, "sync"), text(storage, "failed")),
            ("every-second", "no space left")
        );
        let numbers = [
            "appended",
            "written",
            "synced",
            "bytes",
            "failed_ms",
            "disk_free_bytes",
            "disk_size_bytes",
        ];
        let numbers = numbers.map(|key| storage[key].as_u64().unwrap());
        assert_eq!(numbers, [12, 11, 10, 5_000, 2_000, 3_000, 9_000]);
        assert!(storage["log"].is_nil() && storage["log_bytes"].is_nil(), "there is none");
    }
    for action in ["status", "members"] {
        let reply = client.ok(map! {"action": action});
        let warnings = reply["warnings"].as_array().unwrap();
        let warning = warnings[0].as_str().unwrap();
        assert!(warning.contains("no space left") && warning.contains("nothing is logged"));
    }
    let room_warning = Some(String::from("the disk is nearly full"));
    *node.info.storage.lock().unwrap() =
        Some(StorageStatus { room_warning, failure: None, ..status.clone() });
    let reply = client.ok(map! {"action": "status"});
    assert_eq!(reply["warnings"].as_array().unwrap(), &["the disk is nearly full".into()]);
    let refusing = StorageStatus { sync: "every-batch", ..status.clone() };
    assert!(refusing.log_warning().unwrap().contains("refused"));
    let failure = None;
    let unsaved = StorageStatus { failure, snapshot_failure: Some("broken".into()), ..status };
    assert!(unsaved.snapshot_warning().unwrap().contains("the log goes on: broken"));
    assert_eq!(unsaved.log_warning(), None);
}

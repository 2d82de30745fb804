//! A node whose changes must be on disk before anybody hears of them (sync policy `every batch`),
//! with a log that the test writes, or does not.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use distkv::engine::Config;
use distkv::hub::log_queue::{LogItem, LogQueue};
use distkv::model::defects::Defects;
use distkv::model::ids::{Incarnation, NodeId, NodeName};
use distkv::server::ServerConfig;

use crate::harness::{Client, Node, PATIENCE, Value, path, text};

struct Gated {
    node: Node,
    log: Arc<LogQueue>,
}

impl Gated {
    fn start(gates: bool, bytes_max: usize) -> Self {
        let id = NodeId { name: NodeName::new("n1").unwrap(), incarnation: Incarnation(1) };
        let log = Arc::new(LogQueue::bounded(gates, bytes_max, Defects::default()));
        let node =
            Node::logged(Config::new(id, 1), ServerConfig::default(), Some(Arc::clone(&log)));
        node.hub.handle(distkv::engine::Input::Found, 0);
        Self { node, log }
    }

    /// Writes what waits; gives the number of the last batch.
    fn write(&self) -> u64 {
        let items = self.log.take(Duration::ZERO).items;
        let numbers = items.iter().map(|item| match item {
            LogItem::Batch { number, .. } => *number,
            LogItem::Cut(_) => 0,
        });
        let last = numbers.max().unwrap_or(0);
        self.log.publish_written(last);
        last
    }

    fn sync(&self) {
        self.log.publish_synced(self.write());
    }

    /// The reply to a request, of which everything is on disk as soon as it is made.
    fn reply_synced(&self, client: &mut Client, seq: u64) -> Value {
        client.stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        while client.stream.peek(&mut [0]).is_err() {
            self.sync();
        }
        client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        client.reply(seq)
    }

    /// Waits until so many changes are made.
    fn wait_for(&self, number: u64) {
        while self.log.appended() < number {
            std::thread::yield_now();
        }
    }
}

fn set(client: &mut Client, at: &str, value: u64) -> u64 {
    client.start(map! {"action": "set_value", "path": path(at), "value": value})
}

/// Nothing arrives for a moment; other requests would only wait, too.
fn nothing_comes(client: &Client) {
    client.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let kind = client.stream.peek(&mut [0]).unwrap_err().kind();
    assert!(matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{kind}");
    client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
}

fn code(reply: &Value) -> &str {
    if reply["error"].is_nil() { "none" } else { text(reply, "code") }
}

#[test]
fn a_change_is_acknowledged_and_shown_to_others_only_when_it_is_on_disk() {
    let gated = Gated::start(true, 1 << 20);
    let (mut writer, mut reader) = (gated.node.connect(), gated.node.connect());
    let mut watcher = gated.node.connect();
    let watch = watcher.start(map! {"action": "watch", "path": path(":")});
    assert_eq!(text(&watcher.reply(watch), "state"), "start");
    let write = set(&mut writer, "a", 1);
    gated.wait_for(1);
    let read = reader.start(map! {"action": "get_value", "path": path("a")});
    gated.write();
    for client in [&writer, &reader, &watcher] {
        nothing_comes(client);
    }
    gated.log.publish_synced(1);
    assert_eq!(writer.reply(write)["changed"].as_bool(), Some(true));
    assert_eq!(reader.reply(read)["value"].as_u64(), Some(1));
    assert_eq!(watcher.reply(watch)["value"].as_u64(), Some(1));
    assert_eq!(reader.get("a"), Some(1.into()), "and then nothing waits");
}

#[test]
fn where_the_disk_may_lag_behind_nobody_waits_for_it() {
    let gated = Gated::start(false, 1 << 20);
    let mut client = gated.node.connect();
    client.set("a", 1);
    gated.log.fail("no room");
    client.set("a", 2);
    assert_eq!(client.get("a"), Some(2.into()), "a disk that fails is another matter");
}

#[test]
fn when_the_disk_fails_what_is_in_flight_gets_an_error_and_reads_go_on() {
    let gated = Gated::start(true, 1 << 20);
    let mut client = gated.node.connect();
    let first = set(&mut client, "a", 1);
    gated.wait_for(1);
    gated.sync();
    assert_eq!(code(&client.reply(first)), "none");

    let (second, read) =
        (set(&mut client, "a", 2), client.start(map! {"action": "get_value", "path": path("a")}));
    gated.wait_for(2);
    gated.log.fail("no space left");
    let error = client.reply(second);
    assert_eq!(code(&error), "storage_failed");
    assert!(text(&error, "error").contains("no space left"), "{error}");
    assert_eq!(client.reply(read)["value"].as_u64(), Some(2), "it is made in memory");

    for action in ["set_value", "delete_value"] {
        let mut request = map! {"action": action, "path": path("a")};
        if action == "set_value"
            && let Value::Map(fields) = &mut request
        {
            fields.push(("value".into(), 3.into()));
        }
        let error = client.error(request);
        assert_eq!(code(&error), "storage_failed");
        assert!(text(&error, "error").contains("nothing was changed"), "{error}");
    }
    let error = client.error(map! {"action": "delete_tree", "path": path("a")});
    assert_eq!(code(&error), "storage_failed");
    assert_eq!(client.get("a"), Some(2.into()));
    assert_eq!(code(&client.ok(map! {"action": "get_tock"})), "none");

    gated.node.hub.cut_log(distkv::hub::log_queue::CutPurpose::Anew);
    let write = client.error(map! {"action": "set_value", "path": path("a"), "value": 4});
    assert_eq!(code(&write), "storage_failed", "not before it is safe again");
    gated.log.recover(gated.log.appended());
    let write = set(&mut client, "a", 5);
    gated.wait_for(3);
    gated.sync();
    assert_eq!(code(&client.reply(write)), "none");
}

#[test]
fn a_deleted_tree_is_told_of_when_that_is_on_disk_or_not_at_all() {
    for with_chain in [0, 1] {
        let gated = Gated::start(true, 1 << 20);
        let mut client = gated.node.connect();
        for n in 0..3 {
            let write = set(&mut client, &format!("t:{n}"), n);
            gated.wait_for(n + 1);
            gated.sync();
            client.reply(write);
        }
        let request = map! {"action": "delete_tree", "path": path("t"), "nchain": with_chain};
        let seq = client.start(request);
        gated.wait_for(4);
        nothing_comes(&client);
        gated.log.fail("broken");
        let replies: Vec<Value> = match with_chain {
            0 => vec![client.reply(seq)],
            _ => (0..5).map(|_| client.reply(seq)).collect(),
        };
        let codes: Vec<&str> = replies.iter().map(code).collect();
        match with_chain {
            0 => assert_eq!(codes, ["storage_failed"]),
            _ => {
                let failed = "storage_failed";
                assert_eq!(codes, ["none", failed, failed, failed, "none"]);
                assert_eq!(text(&replies[4], "state"), "end");
            }
        }
    }
}

#[test]
fn a_client_that_writes_waits_while_the_disk_does_not_keep_up_and_one_that_reads_does_not() {
    let gated = Gated::start(false, 1_000);
    let (mut writer, mut reader) = (gated.node.connect(), gated.node.connect());
    while gated.log.has_room() {
        writer.set("a", 1);
    }
    let made = gated.log.appended();
    let waiting = set(&mut writer, "a", 2);
    nothing_comes(&writer);
    assert_eq!(reader.get("a"), Some(1.into()));
    assert_eq!(gated.log.appended(), made);
    gated.write();
    assert_eq!(code(&writer.reply(waiting)), "none");
}

#[test]
fn a_write_that_comes_again_is_not_told_of_before_the_first_one_is_on_disk() {
    let gated = Gated::start(true, 1 << 20);
    let (mut client, mut other) = (gated.node.connect(), gated.node.connect());
    let write = || {
        map! {
            "action": "set_value", "path": path("a"), "value": 1,
            "wid": Value::Binary(vec![1; 16]),
        }
    };
    let first = client.start(write());
    gated.wait_for(1);
    let again = other.start(write());
    nothing_comes(&other);
    gated.log.fail("no space left");
    for reply in [client.reply(first), other.reply(again)] {
        assert_eq!(code(&reply), "storage_failed");
    }
    assert_eq!(client.code(write()), "storage_failed", "nobody knows whether it stays");
    gated.node.hub.cut_log(distkv::hub::log_queue::CutPurpose::Anew);
    gated.log.recover(gated.log.appended());
    assert_eq!(client.ok(write())["repeated"].as_bool(), Some(true));
}

#[test]
fn a_deletion_of_a_tree_that_the_disk_ends_in_its_middle_says_how_far_it_has_come() {
    // Its queue has room for the first part of the deletion.
    let gated = Gated::start(true, 1 << 14);
    let mut client = gated.node.connect();
    for from in [0, 200] {
        let set =
            |n| map! {"action": "set_value", "path": path(&format!("t:{}", from + n)), "value": 1};
        let ops = crate::harness::array((0..200).map(set));
        let seq = client.start(map! {"action": "batch", "ops": ops});
        let reply = gated.reply_synced(&mut client, seq);
        assert_eq!(codes(&reply), ["none"; 200]);
    }
    let before = gated.log.appended();
    let seq = client.start(map! {"action": "delete_tree", "path": path("t"), "nchain": 0});
    gated.wait_for(before + 1);
    nothing_comes(&client);
    gated.log.fail("no space left");
    let error = client.reply(seq);
    assert_eq!(code(&error), "storage_failed");
    assert_eq!(error["made"].as_bool(), Some(true), "{error}");
    let told = text(&error, "error");
    assert!(told.contains("nothing more was changed"), "{told}");
    let deleted =
        told.rsplit_once('(').and_then(|(_, told)| told.strip_suffix(" were deleted before)"));
    let deleted: u64 = deleted.expect(told).parse().unwrap();

    let delete = || map! {"action": "delete_tree", "path": path("t"), "nchain": 0};
    let again = client.error(delete());
    assert!(text(&again, "error").contains("nothing was changed"), "{again}");
    assert!(again["made"].is_nil(), "{again}");
    gated.node.hub.cut_log(distkv::hub::log_queue::CutPurpose::Anew);
    gated.log.recover(gated.log.appended());
    let seq = client.start(delete());
    assert_eq!(gated.reply_synced(&mut client, seq)["changed"].as_u64(), Some(400 - deleted));
}

/// A batch: a read, a write, a read.
fn batch(client: &mut Client, value: u64) -> u64 {
    let get = || map! {"action": "get_value", "path": path("a")};
    let set = map! {"action": "set_value", "path": path("a"), "value": value};
    client.start(map! {"action": "batch", "ops": crate::harness::array([get(), set, get()])})
}

/// The codes of its results.
fn codes(reply: &Value) -> Vec<&str> {
    reply["results"].as_array().unwrap().iter().map(code).collect()
}

#[test]
fn in_a_batch_each_write_waits_for_the_disk_and_has_its_own_error() {
    let gated = Gated::start(true, 1 << 20);
    let mut client = gated.node.connect();
    let seq = batch(&mut client, 1);
    gated.wait_for(1);
    nothing_comes(&client);
    gated.sync();
    assert_eq!(codes(&client.reply(seq)), ["none"; 3]);

    let seq = batch(&mut client, 2);
    gated.wait_for(2);
    gated.log.fail("no space left");
    let reply = client.reply(seq);
    assert_eq!(codes(&reply), ["none", "storage_failed", "none"]);
    assert_eq!(reply["results"][2]["value"].as_u64(), Some(2), "it is made in memory");
    assert_eq!(reply["seq"].as_u64(), Some(seq));

    let seq = batch(&mut client, 3);
    let reply = client.reply(seq);
    assert_eq!(codes(&reply), ["none", "storage_failed", "none"]);
    assert!(text(&reply["results"][1], "error").contains("nothing was changed"), "{reply}");
    assert_eq!(reply["results"][2]["value"].as_u64(), Some(2));
}

#[test]
fn a_batch_that_writes_waits_while_the_disk_does_not_keep_up() {
    let gated = Gated::start(false, 1_000);
    let (mut writer, mut reader) = (gated.node.connect(), gated.node.connect());
    while gated.log.has_room() {
        writer.set("a", 1);
    }
    let waiting = batch(&mut writer, 2);
    nothing_comes(&writer);
    let get = map! {"action": "get_value", "path": path("a")};
    let reply = reader.ok(map! {"action": "batch", "ops": crate::harness::array([get])});
    assert_eq!(reply["results"][0]["value"].as_u64(), Some(1), "one that only reads does not");
    gated.write();
    assert_eq!(codes(&writer.reply(waiting)), ["none"; 3]);
}

#[test]
fn a_batch_waits_in_its_middle_while_the_disk_does_not_keep_up() {
    let gated = Gated::start(false, 1_000);
    let mut client = gated.node.connect();
    while gated.log.has_room() {
        client.set("a", 1);
    }
    let made = gated.log.appended();
    let get = || map! {"action": "get_value", "path": path("a")};
    let set = |value: u64| map! {"action": "set_value", "path": path("a"), "value": value};
    // More reads than are carried out at once.
    let ops = (0..300).map(|_| get()).chain([set(2), get()]);
    let ops = crate::harness::array(ops);
    let seq = client.start(map! {"action": "batch", "ops": ops});
    let behind = client.start(set(3));
    nothing_comes(&client);
    assert_eq!(gated.log.appended(), made);
    gated.write();
    let reply = client.reply(seq);
    assert_eq!(codes(&reply), ["none"; 302]);
    let value = |at: usize| reply["results"][at]["value"].as_u64();
    assert_eq!((value(0), value(299), value(301)), (Some(1), Some(1), Some(2)));
    assert_eq!(code(&client.reply(behind)), "none");
    assert_eq!(client.get("a"), Some(3.into()));
}

#[test]
fn in_a_long_batch_each_write_that_the_disk_does_not_take_has_its_own_error() {
    let gated = Gated::start(true, 1 << 20);
    let mut client = gated.node.connect();
    let deep = ".x".repeat(50) + &"y".repeat(50);
    let set =
        |n: u64| map! {"action": "set_value", "path": path(&format!("w{n}{deep}")), "value": n};
    let get = |n: u64| map! {"action": "get_value", "path": path(&format!("w{n}{deep}"))};
    let ops = crate::harness::array((0..500).flat_map(|n| [set(n), get(n)]));
    let seq = client.start(map! {"action": "batch", "ops": ops});
    while gated.node.hub.read(|engine| engine.tick().is_none_or(|tick| tick.get() < 500)) {
        std::thread::yield_now();
    }
    nothing_comes(&client);
    gated.log.fail("no space left");
    let reply = client.reply(seq);
    assert_eq!(codes(&reply), ["storage_failed", "none"].repeat(500));
    for (n, pair) in reply["results"].as_array().unwrap().chunks(2).enumerate() {
        assert_eq!(pair[0]["made"].as_bool(), Some(true));
        assert_eq!(pair[1]["value"].as_u64(), Some(n as u64), "it is made in memory");
    }
}

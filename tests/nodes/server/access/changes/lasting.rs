//! What takes longer than a moment, of a client that loses the right to it meanwhile: each action, by a table that has
//! all of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use distkv::engine::{Config, Input};
use distkv::hub::log_queue::LogQueue;
use distkv::model::defects::Defects;
use distkv::model::ids::{Incarnation, NodeId, NodeName};
use distkv::protocol::client::Action;
use distkv::server::{FileReport, ServerConfig};

use super::super::{Place, entries, failed};
use crate::harness::{Client, Node, PATIENCE, Value, array, has, path, text};
use crate::server::streams::conflicts::Peer;

/// How long an action takes, and what is told of it to a client that has lost the right to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Course {
    /// Within one turn.
    AtOnce,
    /// A stream: nothing more, but an error.
    Stream,
    /// The same, which is for all who have logged in: the others are shut out. It goes on, without what its client may not
    /// be shown.
    StreamOfAll,
    /// A thread works on it, and it tells of data: an error, before it begins and when it has ended.
    Reads,
    /// The same of a change: an error before it begins. Of one that is made, the client is told.
    Changes,
}

/// There is no arm for all others: a new action has to be put somewhere.
fn course(action: Action) -> Course {
    use Action as A;
    match action {
        A::GetTree
        | A::GetTreeInternal
        | A::DeleteTree
        | A::Watch
        | A::MsgMonitor
        | A::GetSnapshot
        | A::AuthList => Course::Stream,
        A::Conflicts | A::WatchCluster => Course::StreamOfAll,
        // One that is looked for by its event: a single one otherwise.
        A::GetValue
        | A::Enum
        | A::EnumInternal
        | A::GetState
        | A::EnumNode
        | A::CheckDeleted
        | A::History
        | A::ListShards => Course::Reads,
        A::Restore
        | A::Save
        | A::Log
        | A::Snapshot
        | A::LogStart
        | A::LogStop
        | A::KeyAdd
        | A::KeyUse
        | A::KeyRemove
        | A::KillNode
        | A::Leave => Course::Changes,
        // Each operation of a batch is one of its own; of a long one, the last test here.
        A::Batch
        | A::SetValue
        | A::DeleteValue
        | A::Stop
        | A::GetTock
        | A::Root
        | A::GetInternal
        | A::SetInternal
        | A::DeleteInternal
        | A::MsgSend
        | A::Status
        | A::Members
        | A::Clients
        | A::Cluster
        | A::ForgetMember
        | A::KeyList
        | A::Update
        | A::FakeInfo
        | A::FakeInfoSend
        | A::DiffieHellman
        | A::Auth
        | A::AuthInfo
        | A::AuthSet
        | A::AuthDisconnect
        | A::AuthGet
        | A::AuthDelete
        | A::SetAuthTyp
        | A::TestAcl => Course::AtOnce,
    }
}

/// All that take such a course.
fn of_course(wanted: Course) -> impl Iterator<Item = Action> {
    Action::ALL.iter().copied().filter(move |action| course(*action) == wanted)
}

/// A request that takes long, or has much to tell, where there is what [`fill`] makes.
fn request(action: Action) -> Value {
    let name = action.name();
    match action {
        Action::GetTree | Action::Watch => {
            map! {"action": name, "path": path("a"), "fetch": true}
        }
        Action::GetTreeInternal => map! {"action": name, "path": path("acl")},
        Action::DeleteTree => map! {"action": name, "path": path("d"), "nchain": 1},
        Action::MsgMonitor => map! {"action": name, "topic": path("t")},
        Action::AuthList => map! {"action": name, "typ": "password", "kind": "user"},
        Action::Conflicts => map! {"action": name, "path": path("c")},
        Action::GetValue => map! {"action": name, "node": "n1~1", "tick": 1},
        Action::Enum => map! {"action": name, "path": path("many")},
        Action::EnumInternal => map! {"action": name, "path": path("acl.many")},
        Action::GetState => map! {"action": name, "present": true, "known": true},
        Action::EnumNode => map! {"action": name, "node": "n1~1"},
        Action::CheckDeleted => map! {"action": name, "nodes": map! {}},
        Action::History => map! {"action": name, "path": path("a")},
        Action::ListShards => map! {"action": name, "detail": true},
        Action::Restore => map! {"action": name, "start": true, "data": Value::Binary(vec![1])},
        Action::KillNode => map! {"action": name, "node": "peer"},
        Action::GetSnapshot => map! {"action": name},
        Action::Leave => map! {"action": name, "for_good": true},
        Action::KeyAdd | Action::KeyUse | Action::KeyRemove => {
            map! {"action": name, "secret": Value::Binary(vec![7; 32]), "ident": "00000000"}
        }
        _ => map! {"action": name, "path": "x", "file": "x"},
    }
}

/// More of everything than goes into a window, or into a piece of a snapshot.
fn fill(place: &mut Place) {
    let set =
        |at: &str, value: Value| map! {"action": "set_value", "path": path(at), "value": value};
    for n in 0..8 {
        place.admin.ok(set(&format!("a:{n}"), Value::Binary(vec![n as u8; 64 << 10])));
        place.admin.ok(set(&format!("d:{n}"), n.into()));
        place.record(&format!("user{n}"), "user");
        place.list(&format!("user{n}"), &[("#", "r")]);
    }
    for top in ["many", ":n.acl.many"] {
        for n in 0..10_000 {
            place.put(&format!("{top}:{n}"), Some("".into()));
        }
    }
    let mut peer = Peer::new(&place.node);
    for n in 0..8 {
        place.admin.ok(set(&format!("c:{n}"), 1.into()));
        peer.push(&format!("c:{n}"), Some(&[2]), 100_000 + n);
    }
}

/// Somebody who may do everything.
fn boss(place: &Place, name: &str, qlen: u64) -> Client {
    place.put(&format!(":n.auth.password.user.{name}"), Some(map! {"role": "admin"}));
    let mut boss = place.login(name, qlen);
    assert_eq!(text(&boss.ok(map! {"action": "auth_info"}), "role"), "admin");
    boss
}

/// From now on, that user may do nothing.
fn strip(place: &Place, name: &str) {
    place.put(&format!(":n.auth.password.user.{name}.acl"), Some(map! {"key": "none"}));
    place.put(&format!(":n.auth.password.user.{name}"), Some(map! {"role": "user"}));
}

#[test]
fn a_stream_ends_at_the_message_at_which_its_client_has_no_right_to_it_any_more() {
    let mut place = Place::new();
    fill(&mut place);
    for action in of_course(Course::Stream) {
        let name = action.name();
        let mut boss = boss(&place, name, 3);
        let seq = boss.start(request(action));
        assert_eq!(text(&boss.reply(seq), "state"), "start", "{name}");
        for n in 0..3 {
            place.admin.ok(map! {"action": "msg_send", "topic": array(["t"]), "data": n});
        }
        let first = boss.reply(seq);
        assert!(!has(&first, "error") && !has(&first, "state"), "{name}: {first}");
        strip(&place, name);
        assert_eq!(text(&boss.ok(map! {"action": "auth_info"}), "role"), "user", "{name}");
        boss.silence(seq);
        boss.ack(seq, 2);
        let rest = boss.rest(seq);
        assert_eq!(entries(&rest), [failed("denied")], "{name}");
        assert!(text(&rest[0], "error").contains("may not continue"), "{name}: {rest:?}");
    }
}

#[test]
fn a_stream_of_all_goes_on_without_what_its_client_may_not_be_shown() {
    let mut place = Place::new();
    fill(&mut place);
    for action in of_course(Course::StreamOfAll) {
        let mut boss = boss(&place, action.name(), 3);
        let seq = boss.start(request(action));
        assert_eq!(text(&boss.reply(seq), "state"), "start");
        assert!(!has(&boss.reply(seq), "state"));
        strip(&place, action.name());
        boss.ack(seq, 2);
        if action == Action::WatchCluster {
            boss.silence(seq);
            let stop = map! {"action": "stop", "task": seq};
            assert_eq!(boss.ok(stop)["result"].as_bool(), Some(true));
        }
        assert_eq!(boss.rest(seq), [], "{}", action.name());
    }
}

/// Waits for something that is under way.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

/// How many requests of that user this node has carried out, or has begun to.
fn asked(admin: &mut Client, name: &str) -> u64 {
    let rows = admin.ok(map! {"action": "clients"})["result"].clone();
    let rows = rows.as_array().unwrap();
    rows.iter().find(|row| row["user"].as_str() == Some(name)).unwrap()["asked"].as_u64().unwrap()
}

#[test]
fn what_waits_for_a_thread_is_not_begun_for_a_client_that_has_lost_the_right_to_it() {
    let mut place = Place::new();
    fill(&mut place);
    *place.node.info.answer.lock().unwrap() = Some(Ok(FileReport::default()));
    let info = Arc::clone(&place.node.info);
    let gate = info.gate.lock().unwrap();
    // As many as there may be at once.
    let mut busy = [boss(&place, "busy1", 0), boss(&place, "busy2", 0)];
    let running: Vec<u64> =
        busy.iter_mut().map(|boss| boss.start(request(Action::Snapshot))).collect();
    let jobs = || place.node.info.jobs.lock().unwrap().len();
    until("two jobs", || jobs() == 2);
    let mut waiting = Vec::new();
    for action in of_course(Course::Reads).chain(of_course(Course::Changes)) {
        // A node that is gone, and has no entries: there is none here.
        if action != Action::KillNode {
            let mut boss = boss(&place, action.name(), 0);
            let before = asked(&mut place.admin, action.name());
            let seq = boss.start(request(action));
            until("it came", || asked(&mut place.admin, action.name()) > before);
            strip(&place, action.name());
            waiting.push((action, boss, seq));
        }
    }
    drop(gate);
    for (action, mut boss, seq) in waiting {
        let reply = boss.reply(seq);
        let (name, error) = (action.name(), reply["error"].as_str().unwrap_or_default());
        // These are for all. What they tell is another thing by now, so it must be asked for again.
        let for_all = [Action::GetValue, Action::CheckDeleted, Action::ListShards];
        let code = if for_all.contains(&action) { "not_ready" } else { "denied" };
        assert_eq!(reply["code"].as_str(), Some(code), "{name}: {reply}");
        assert_eq!(error.contains("may not continue"), code == "denied", "{name}: {reply}");
    }
    for (boss, seq) in busy.iter_mut().zip(running) {
        assert!(has(&boss.reply(seq), "result"));
    }
    assert_eq!((jobs(), info.recalls.load(Ordering::SeqCst)), (2, 0));
}

#[test]
fn what_a_thread_has_read_is_not_told_to_a_client_that_has_lost_the_right_to_it() {
    let place = Place::new();
    let info = Arc::clone(&place.node.info);
    let gate = info.gate.lock().unwrap();
    let mut boss = boss(&place, "ada", 0);
    let seq = boss.start(request(Action::History));
    until("it is read", || info.recalls.load(Ordering::SeqCst) == 1);
    strip(&place, "ada");
    drop(gate);
    let reply = boss.reply(seq);
    assert!(text(&reply, "error").contains("may not continue"), "{reply}");
    assert_eq!(text(&reply, "code"), "denied");
}

#[test]
fn a_change_that_is_made_is_told_to_its_client_whatever_that_may_do_by_then() {
    let place = Place::new();
    *place.node.info.answer.lock().unwrap() = Some(Ok(FileReport::default()));
    let info = Arc::clone(&place.node.info);
    let gate = info.gate.lock().unwrap();
    let mut boss = boss(&place, "ada", 0);
    let seq = boss.start(request(Action::Save));
    until("it is written", || info.jobs.lock().unwrap().len() == 1);
    strip(&place, "ada");
    drop(gate);
    assert_eq!(boss.reply(seq)["result"].as_bool(), Some(true));
}

#[test]
fn what_a_long_batch_has_read_is_not_told_to_a_client_that_has_lost_the_right_to_it() {
    let id = NodeId { name: NodeName::new("n1").unwrap(), incarnation: Incarnation(1) };
    let log = Arc::new(LogQueue::bounded(false, 1_000, Defects::default()));
    let node = Node::logged(Config::new(id, 1), ServerConfig::default(), Some(Arc::clone(&log)));
    node.hub.handle(Input::Found, 0);
    let place = Place::of(node);
    for at in ["a", "b"] {
        place.put(at, Some("there".into()));
    }
    let mut joe = place.user("joe", &[("+", "rwcx"), (":", "xn")]);
    while log.has_room() {
        place.put("filled", Some(1.into()));
    }
    let get = |at: &str| map! {"action": "get_value", "path": path(at)};
    let set = |value: u64| map! {"action": "set_value", "path": path("c"), "value": value};
    // More than are carried out at once: they are read, and then the batch waits for the disk.
    let reads = (0..300).map(|n| get(if n % 2 == 0 { "a" } else { "b" }));
    let ops = array(reads.chain([set(1), set(2), get("a"), get("b")]));
    let mut admin = place.node.connect();
    let before = asked(&mut admin, "joe");
    let seq = joe.start(map! {"action": "batch", "ops": ops});
    until("it is begun", || asked(&mut admin, "joe") > before);
    place.list("joe", &[("a", "")]);
    let waiting = log.take(std::time::Duration::ZERO).items.len() as u64;
    assert!(waiting > 0);
    log.publish_written(log.appended());
    let results = joe.reply(seq)["results"].clone();
    let results = results.as_array().unwrap();
    assert_eq!(results.len(), 304);
    for (at, result) in results.iter().enumerate() {
        let is_write = at == 300 || at == 301;
        let is_denied = result["code"].as_str() == Some("denied");
        assert_eq!(is_denied, at % 2 == 0 && !is_write, "{at}: {result}");
        if !is_denied && !is_write {
            assert_eq!(text(result, "value"), "there", "{at}");
        }
    }
    assert_eq!(joe.get("c"), Some(2.into()));
}

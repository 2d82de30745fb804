//! One event has one spelling: in every command's output, at every node, before and after the node
//! that made it was restarted; and what is typed back names that event or is refused.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;

use distkv::testing::free_addrs;
use rmpv::Value;
use serde_json::Value as Json;

use crate::cli::command::{at, cli, note, ok, program};
use crate::processes::{NodeProcess, array, field, wait_until};

fn json(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// Sets an entry; the spelling of the change's event.
fn set(node: &NodeProcess, path: &str, value: &str) -> String {
    let written = json(&ok(node, &["set", path, value, "--json"]));
    written["chain"][0].as_str().unwrap().to_owned()
}

/// All words of a text that look like an event, or a life, of one of these nodes.
fn spellings(text: &str, name: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '~' | ':' | '.');
    let words = text.split(|c| !is_part(c)).filter(|word| word.starts_with(name));
    let is_event = |word: &&str| word[name.len()..].starts_with(['~', ':', '.']);
    words.filter(is_event).map(str::to_owned).collect()
}

fn life_of(event: &str) -> &str {
    event.rsplit_once(':').unwrap().0
}

fn tick_of(event: &str) -> u64 {
    event.rsplit_once(':').unwrap().1.parse().unwrap()
}

#[test]
fn a_compare_and_set_with_an_event_of_an_earlier_life_does_not_lose_an_update() {
    let x1 = NodeProcess::run("x1");
    let mut x3 = NodeProcess::join("x3", &[&x1]);
    ok(&x3, &["wait", "--members", "2"]);
    let first = set(&x3, "kk", "1");
    let (client, gossip) = (x3.client, x3.gossip);
    x3.kill();
    let x3 = NodeProcess::join_at("x3", &[&x1], client, gossip);
    ok(&x3, &["wait", "--members", "2"]);
    let second = set(&x3, "kk", "2");
    assert_ne!(first, second, "two events, two spellings");
    assert_eq!((tick_of(&first), tick_of(&second)), (1, 1), "that differ in the life alone");
    wait_until("x1 has the update", || (ok(&x1, &["get", "kk"]) == "2\n").then_some(()));

    let stale = at(&x1, &["set", "kk", "3", "--chain", &first]);
    assert_eq!(stale.code, 5, "{}", stale.stdout);
    assert!(stale.stderr.contains(&format!("Chain is {second} not {first} for kk")), "{stale:?}");
    // What a client may have been told in other days, or makes up.
    let bare = at(&x1, &["set", "kk", "3", "--chain", "x3:1"]);
    assert_eq!(bare.code, 2, "{}", bare.stdout);
    assert!(bare.stderr.contains("x3~LIFE"), "{bare:?}");
    let chain = Value::Map(vec![("node".into(), "x3".into()), ("tick".into(), 1.into())]);
    let fields = [("path", array(&["kk"])), ("value", 3.into()), ("chain", chain)];
    let reply = x1.connect().call("set_value", &fields);
    assert_eq!(field(&reply, "code"), Some("bad_request".into()), "{reply}");
    for node in [&x1, &x3] {
        assert_eq!(ok(node, &["get", "kk"]), "2\n");
    }
    ok(&x1, &["set", "kk", "3", "--chain", &second]);
}

/// Everything that tells of the newest event of `path`, where the tree still has it.
fn told_of(node: &NodeProcess, path: &str, data: &Path, folder: &Path) -> Vec<(String, String)> {
    let lines = folder.join("lines").display().to_string();
    let snapshot = folder.join("snapshot").display().to_string();
    ok(node, &["snapshot", "save", "--force", "--to", &lines, "--format", "jsonl"]);
    ok(node, &["snapshot", "save", "--force", "--to", &snapshot]);
    let lines = std::fs::read_to_string(&lines).unwrap();
    let is_it = |line: &&str| json(line)["path"] == path;
    let line = lines.lines().find(is_it).unwrap().to_owned();
    let python = folder.join("python").display().to_string();
    ok(node, &["snapshot", "save", "--force", "--to", &python, "--format", "distkv"]);
    let back = cli(&["snapshot", "convert", &python, "--format", "jsonl", "--to", "-"]).stdout;
    let back = back.lines().find(is_it).unwrap().to_owned();
    let empty = folder.join("empty").display().to_string();
    std::fs::write(
        &empty,
        format!("{{\"path\":\"{path}\",\"value\":0,\"chain\":[\"z~1:1\"],\"tock\":1}}\n"),
    )
    .unwrap();
    let mut told = vec![
        (String::from("get --chain"), ok(node, &["get", path, "--chain"])),
        (String::from("get --json"), ok(node, &["get", path, "--chain", "--json"])),
        (String::from("tree --json"), ok(node, &["tree", path, "--chain", "--json"])),
        (String::from("jsonl"), line),
        (String::from("to Python and back"), back),
    ];
    let mut logs: Vec<_> = std::fs::read_dir(data).unwrap().map(|e| e.unwrap().path()).collect();
    logs.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with("log-"));
    logs.sort();
    for log in logs {
        let log = log.display().to_string();
        for more in [&["--changes"][..], &["--changes", "--json"]] {
            let done = cli(&[&["log", "inspect", &log, "--below", path], more].concat());
            assert_eq!(done.code, 0, "{done:?}");
            told.push((format!("log inspect {more:?}"), done.stdout));
        }
    }
    told
}

/// Checks that wherever the newest event of `path` is told, it is spelled so.
fn check(node: &NodeProcess, path: &str, event: &str, data: &Path, folder: &Path) {
    let mut seen = 0;
    for (what, text) in told_of(node, path, data, folder) {
        let all = spellings(&text, "n1");
        seen += all.len();
        assert!(all.iter().all(|word| word == event), "{what} at {}: {text}", node.name);
        let is_log = what.starts_with("log");
        assert!(is_log || !all.is_empty(), "{what} at {} tells nothing: {text}", node.name);
    }
    assert!(seen >= 7, "{seen}");
    let state = json(&ok(node, &["state", "--json"]));
    let tick = tick_of(event);
    let present = state["present"][life_of(event)].as_array().unwrap();
    let holds = |range: &Json| match range.as_array() {
        Some(ends) => (ends[0].as_u64().unwrap()..ends[1].as_u64().unwrap()).contains(&tick),
        None => range.as_u64() == Some(tick),
    };
    assert!(present.iter().any(holds), "{state}");
    assert!(ok(node, &["state"]).contains(&format!("{}  ", life_of(event))));
}

/// Starts a node on a data directory, whose log has everything at once.
fn durable(network: &str, data: &str, client: SocketAddr, gossip: SocketAddr) -> NodeProcess {
    let (client, gossip) = (client.to_string(), gossip.to_string());
    let at = ["run", "--client", &client, "--gossip", &gossip];
    NodeProcess::start_in(
        network,
        "n1",
        &[&at[..], &["--data-dir", data, "--sync", "every-batch"]].concat(),
    )
}

/// The newest event of `n1`, which `set` and `status` spell the same. The node makes some of its own in between, now and
/// then: of the member list of the Delete group.
fn newest(n1: &NodeProcess) -> String {
    wait_until("status tells the newest event as it was told", || {
        let event = set(n1, "newest", "1");
        let status = json(&ok(n1, &["status", "--json"]));
        assert_eq!(status["name"], "n1");
        let by_status = format!("{}:{}", status["life"].as_str().unwrap(), status["tick"]);
        (by_status == event).then_some(event)
    })
}

#[test]
fn an_event_is_spelled_the_same_by_all_commands_at_all_nodes_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let network = format!("spelling-{}", std::process::id());
    // It is started there again.
    let [client, gossip] = free_addrs();
    let mut n1 = durable(&network, data.to_str().unwrap(), client, gossip);
    let n2 = NodeProcess::join("n2", &[&n1]);
    for node in [&n1, &n2] {
        ok(node, &["wait", "--members", "2"]);
    }

    // The same event, as it is told while it happens.
    let address = n2.client.to_string();
    let mut watch =
        program(&["watch", "k", "--chain", "--json", "--count", "1", "--connect", &address])
            .spawn()
            .unwrap();
    let mut heard = String::new();
    BufReader::new(watch.stderr.take().unwrap()).read_line(&mut heard).unwrap();
    assert!(note(&heard).starts_with("watching k"), "{heard}");
    let event = set(&n1, "k", "1");
    let watched = String::from_utf8(watch.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(spellings(&watched, "n1"), std::slice::from_ref(&event), "{watched}");
    assert_eq!(life_of(&newest(&n1)), life_of(&event));
    let life_by = |node: &NodeProcess| -> String {
        let members = ok(node, &["members", "--json"]);
        let alive = |line: &Json| {
            line["name"] == "n1" && ["self", "up"].iter().any(|s| line["state"] == *s)
        };
        let row = members.lines().map(json).find(alive).unwrap();
        row["life"].as_str().unwrap().to_owned()
    };
    assert_eq!((life_by(&n1), life_by(&n2)), (life_of(&event).into(), life_of(&event).into()));

    // Another network's version meets it: a conflict, in the list and in the log.
    let other = NodeProcess::run("n9");
    let foreign = set(&other, "c", "2");
    let file = folder.path().join("other").display().to_string();
    ok(&other, &["snapshot", "save", "--to", &file]);
    let ours = set(&n1, "c", "1");
    ok(&n1, &["snapshot", "restore", &file, "--any-network"]);
    let conflicts = ok(&n1, &["conflicts", "--json"]);
    let conflict = json(conflicts.lines().next().unwrap());
    let mut both =
        [&conflict["winner"], &conflict["loser"]].map(|v| v["chain"][0].as_str().unwrap());
    both.sort_unstable();
    assert_eq!(both, [&ours[..], &foreign[..]]);
    let text = ok(&n1, &["conflicts"]);
    assert_eq!(spellings(&text, "n1"), std::slice::from_ref(&ours), "{text}");
    let logged = wait_until("the conflict is logged", || {
        n1.log().into_iter().find(|line| line.contains("conflict:"))
    });
    // `kept` or `lost`, and its chain.
    assert_eq!(spellings(&logged, "n1"), [ours.clone(), ours.clone()], "{logged}");

    // Two nodes that differ are told with who made what.
    let (a, b) = (n1.client.to_string(), other.client.to_string());
    let verify = cli(&["verify", &a, &b, "--patience", "0s", "--json"]);
    let difference = verify.stdout.lines().map(json).find(|line| line["path"] == "k").unwrap();
    assert_eq!(difference["a"]["chain"], serde_json::json!([event]));

    wait_until("n2 has it", || (at(&n2, &["get", "c"]).code == 0).then_some(()));
    for node in [&n1, &n2] {
        check(node, "k", &event, &data, folder.path());
    }

    // Killed, so it cannot prove where it stopped, and comes back as another life.
    let (client, gossip) = (n1.client, n1.gossip);
    n1.kill();
    let n1 = durable(&network, data.to_str().unwrap(), client, gossip);
    for node in [&n1, &n2] {
        ok(node, &["wait", "--members", "2"]);
    }
    let later = set(&n1, "later", "1");
    assert_ne!(life_of(&later), life_of(&event));
    wait_until("n2 has it", || (at(&n2, &["get", "later"]).code == 0).then_some(()));
    for node in [&n1, &n2] {
        check(node, "k", &event, &data, folder.path());
        check(node, "later", &later, &data, folder.path());
    }
    wait_until("n2 sees the new life", || (life_by(&n2) == life_of(&later)).then_some(()));
    assert_eq!(life_by(&n1), life_of(&later));
    assert_eq!(life_of(&newest(&n1)), life_of(&later));
    // What was told before the restart is still good.
    ok(&n2, &["set", "k", "2", "--chain", &event]);
}

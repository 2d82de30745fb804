//! A `watch` whose node comes back without all that it had, or tells less than all: nothing that is new is passed over, and
//! what it prints says whether everything follows again.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value as Json, json};

use super::restarted::Watch;
use crate::cli::command::{at, cli_with};
use crate::cli::fake::{FakeNode, error, item, state};
use crate::processes::{NodeProcess, freeze, signal};

/// What a line says: `path=value`, or else all of it.
fn short(line: &Json) -> String {
    match line["path"].as_str() {
        Some(path) => format!("{path}={}", line["value"]),
        None => line.to_string(),
    }
}

/// The lines of a watch up to the one about this path, without it.
fn told_until(watch: &mut Watch, path: &str) -> Vec<Json> {
    let lines = std::iter::repeat_with(|| watch.line());
    lines.take_while(|line| line["path"] != path).collect()
}

/// What they say, in the order of their texts.
fn sorted(lines: &[Json]) -> Vec<String> {
    let mut texts: Vec<String> = lines.iter().map(short).collect();
    texts.sort();
    texts
}

fn set(node: &NodeProcess, path: &str, value: u64) {
    let elements: Vec<&str> = path.split('.').collect();
    node.connect().set(&elements, value.into());
}

/// Starts a node again, at its addresses and without others.
fn alone(node: &NodeProcess, more: &[&str]) -> NodeProcess {
    let [client, gossip] = [node.client, node.gossip].map(|address| address.to_string());
    let arguments = ["run", "--peer-wait", "0s", "--client", &client, "--gossip", &gossip];
    NodeProcess::start_in(&node.network, &node.name, &[&arguments, more].concat())
}

const RESTART: &str = r#"{"state":"restart","all":true}"#;
const UP_TO_DATE: &str = r#"{"state":"uptodate"}"#;

#[test]
fn all_that_a_node_in_memory_has_after_its_end_is_new_whether_it_is_less_or_more_than_before() {
    for count in [2, 30] {
        let mut n1 = NodeProcess::run("n1");
        (0..10).for_each(|number| set(&n1, &format!("a.old{number}"), 1));
        let (mut plain, mut whole) = (Watch::start(&n1, &[]), Watch::start(&n1, &["--fetch"]));
        set(&n1, "a.last", 1);
        assert!(told_until(&mut plain, "a.last").is_empty());
        let before = told_until(&mut whole, "a.last");
        assert_eq!(short(&before[0]), "a.old0=1");

        // Neither looks for the node before all is as it is to be.
        freeze(plain.child.id());
        freeze(whole.child.id());
        n1.kill();
        n1 = alone(&n1, &[]);
        // As the first one was before: with the same tock.
        set(&n1, "a.old0", 2);
        (0..count).for_each(|number| set(&n1, &format!("a.new{number}"), 3));
        let said = [&mut plain, &mut whole].map(|watch| {
            signal(watch.child.id(), "CONT");
            let mut said = std::iter::repeat_with(|| watch.heard());
            said.find(|line| line.contains("(node n1) again")).unwrap()
        });
        set(&n1, "a.zz", 4);
        let mut new: Vec<String> = (0..count).map(|number| format!("a.new{number}=3")).collect();
        new.push(String::from("a.old0=2"));
        new.sort();

        // This one knows all that it has printed, and need not begin anew.
        let told = told_until(&mut whole, "a.zz");
        set(&n1, "a.end", 5);
        let rest = told_until(&mut whole, "a.end");
        let old = told.iter().find(|line| line["path"] == "a.old0");
        let tock = old.map(|line| &line["tock"]);
        assert_eq!(tock, Some(&before[0]["tock"]), "{count}: {:?}", sorted(&told));
        let mut expected: Vec<String> =
            (1..10).map(|number| format!("a.old{number}=null")).collect();
        expected.extend([String::from("a.last=null")]);
        expected.extend(new.clone());
        expected.sort();
        assert_eq!(sorted(&[told, rest].concat()), expected, "{count}");

        // This one does not. The change may come before all is told, or after it.
        let told = [told_until(&mut plain, "a.zz"), told_until(&mut plain, "a.end")].concat();
        // It is seen when the node greets, or else in what it has.
        assert_eq!(said[0].contains(": the node lacks changes"), count == 2, "{said:?}");
        let begun = told.first().map(short);
        assert_eq!(begun.as_deref(), Some(RESTART), "{count}: {:?}", sorted(&told));
        new.push(String::from(UP_TO_DATE));
        new.sort();
        assert_eq!(sorted(&told[1..]), new, "{count}");
    }
}

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(done.unwrap().success());
}

#[test]
fn an_old_copy_of_a_data_directory_is_another_past_and_a_restart_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let [data, old] = ["n1", "old"].map(|name| folder.path().join(name));
    let on_disk = ["--data-dir", data.to_str().unwrap(), "--sync", "every-batch"];
    let mut n1 = NodeProcess::run("n1");
    n1.kill();
    n1 = alone(&n1, &on_disk);
    let end = |node: &mut NodeProcess| {
        node.signal("TERM");
        assert!(node.wait().success());
    };
    set(&n1, "a.old", 1);
    set(&n1, "a.back", 1);
    end(&mut n1);
    copy(&data, &old);

    n1 = alone(&n1, &on_disk);
    let mut watch = Watch::start(&n1, &[]);
    set(&n1, "a.back", 2);
    set(&n1, "a.gone", 2);
    end(&mut n1);
    n1 = alone(&n1, &on_disk);
    assert!(watch.heard().contains("connecting again"));
    let said = watch.heard();
    assert!(said.contains(" again: what changed meanwhile follows"), "{said}");
    n1.kill();
    n1 = alone(&n1, &on_disk);
    assert!(watch.heard().contains("connecting again"));
    let said = watch.heard();
    assert!(said.contains(" again: what changed meanwhile follows"), "{said}");
    set(&n1, "a.zz", 2);
    assert_eq!(sorted(&told_until(&mut watch, "a.zz")), ["a.back=2", "a.gone=2"]);

    n1.kill();
    fs::remove_dir_all(&data).unwrap();
    copy(&old, &data);
    n1 = alone(&n1, &on_disk);
    assert!(watch.heard().contains("connecting again"));
    let said = watch.heard();
    assert!(said.contains(" again, from the beginning: the node lacks changes"), "{said}");
    set(&n1, "a.zz", 3);
    let told: Vec<String> = told_until(&mut watch, "a.zz").iter().map(short).collect();
    assert_eq!(told, [RESTART, "a.back=1", "a.old=1", UP_TO_DATE]);
}

/// The states that are printed, each with how many entries follow it.
fn states(lines: &str) -> Vec<(Json, usize)> {
    let mut states = vec![(Json::Null, 0)];
    for line in lines.lines() {
        if line.starts_with(r#"{"state":"#) {
            states.push((serde_json::from_str(line).unwrap(), 0));
        } else if let Some((_, count)) = states.last_mut() {
            *count += 1;
        }
    }
    states
}

/// A node whose first watch ends before, or behind, the end of its first state. The second one has an entry more, and
/// there is no third.
fn ending(count: usize, is_whole: bool) -> FakeNode {
    let watches = AtomicUsize::new(0);
    FakeNode::start(move |request| match request.str("action") {
        Some("watch") => {
            let number = watches.fetch_add(1, Ordering::SeqCst);
            if number > 1 {
                return vec![error("that was all", "denied")];
            }
            let mut told = vec![state("start")];
            let entries = (0..count + number).map(|number| format!("e{number}"));
            told.extend(entries.map(|path| item(0, &path, Some(b"\x01"))));
            told.extend((number == 1 || is_whole).then(|| state("uptodate")));
            told.push(state("end"));
            told
        }
        _ => vec![error("there is no such action", "unknown_action")],
    })
}

#[test]
fn a_watch_that_has_printed_more_than_it_remembers_starts_over_where_the_past_is_another_one() {
    // One more than it remembers. Their tock is greater than that with which the node greets.
    let count = 65_537;
    let done = cli_with(&ending(count, true), &["watch", "a", "--fetch", "--json"]);
    assert_eq!(done.code, 3, "{}", done.stderr);
    let is_up_to_date = json!({"state": "uptodate"});
    let expected = [
        (Json::Null, count),
        (is_up_to_date.clone(), 0),
        (json!({"state": "restart", "all": true}), count + 1),
        (is_up_to_date, 0),
    ];
    assert_eq!(states(&done.stdout), expected, "{}", done.stderr);
    assert!(done.stderr.contains("from the beginning: the node lacks changes"), "{}", done.stderr);
}

#[test]
fn a_restart_says_whether_all_entries_follow() {
    // What was printed counts on.
    let behind = FakeNode::start(|request| match request.str("action") {
        Some("watch") => {
            vec![state("start"), item(0, "x", Some(b"\x01")), state("restart"), item(0, "x", None)]
        }
        _ => vec![error("there is no such action", "unknown_action")],
    });
    let done = cli_with(&behind, &["watch", "a", "--json", "--count", "2"]);
    let lapsed = json!({"state": "restart", "all": false});
    assert_eq!(states(&done.stdout), [(Json::Null, 1), (lapsed, 1)], "{}", done.stderr);
    let done = cli_with(&behind, &["watch", "a", "--count", "2"]);
    let text = "(not all changes were told: the latest version of what was missed follows)";
    assert!(done.stdout.contains(text), "{}", done.stdout);

    // It does not, at one node and at several.
    let all = json!({"state": "restart", "all": true});
    let done = cli_with(&ending(1, false), &["watch", "a", "--fetch", "--json", "--count", "3"]);
    assert_eq!(states(&done.stdout), [(Json::Null, 1), (all.clone(), 2)], "{}", done.stderr);
    let several = ["watch", "a", "--json", "--count", "2", "--connect", "127.0.0.1:1"];
    let done = cli_with(&ending(1, false), &several);
    assert_eq!(states(&done.stdout), [(Json::Null, 0), (all, 2)], "{}", done.stderr);
    let done = cli_with(&ending(1, false), &["watch", "a", "--fetch", "--count", "3"]);
    assert!(done.stdout.contains("(restarted: all entries follow)"), "{}", done.stdout);
}

#[test]
fn what_a_node_says_while_it_catches_up_is_not_taken_for_its_past() {
    // At the second connection it has begun to serve when it is asked, and has what it had.
    let clocks = |number| match number {
        1 => (None, 0),
        _ => (Some(1), 7),
    };
    let watches = AtomicUsize::new(0);
    let node = FakeNode::start_with("fake", clocks, move |request| match request.str("action") {
        Some("watch") => match watches.fetch_add(1, Ordering::SeqCst) {
            0 => vec![state("start"), item(0, "x", Some(b"\x01")), state("end")],
            1 => vec![state("start"), item(0, "x", Some(b"\x01")), state("uptodate")],
            _ => vec![
                state("start"),
                item(0, "x", Some(b"\x01")),
                state("uptodate"),
                item(0, "y", Some(b"\x01")),
            ],
        },
        _ => vec![error("there is no such action", "unknown_action")],
    });
    let done = cli_with(&node, &["watch", "a", "--json", "--count", "2"]);
    assert_eq!(states(&done.stdout), [(Json::Null, 2)], "{}", done.stderr);
    assert!(done.stderr.contains(" again: what changed meanwhile follows"), "{}", done.stderr);
}

#[test]
fn a_watch_that_finds_no_room_at_its_node_says_so() {
    let few = ["--max-connections", "16"];
    let mut node = NodeProcess::run("n1");
    node.kill();
    node = alone(&node, &few);
    let _others = [(); 16].map(|()| node.connect());
    let done = at(&node, &["watch", "a"]);
    assert_eq!(done.code, 3, "{}", done.stderr);
    assert!(done.stderr.contains("(too_many)"), "{}", done.stderr);
}

//! `undo` and `snapshot save --at`: a node's past, asked for by a client of another node's network.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use distkv::client::Fields;
use distkv::rt::wall_clock_ms;
use serde_json::Value as Json;

use crate::cli::command::{at, cli_with, note, ok, run, run_with_closed_output};
use crate::cli::fake::{FakeNode, error};
use crate::hosts::{Hosts, client_addr, gossip_addr, inside_own_network};
use crate::processes::{NodeProcess, PROGRAM, wait_until};

fn import(node: &NodeProcess, lines: &str) {
    let connect = node.client.to_string();
    let done = run(&["import", "-", "--connect", &connect], &[], lines.as_bytes());
    assert_eq!(done.code, 0, "{}", done.stderr);
}

fn with_data(name: &str, network: &str, dir: &Path) -> NodeProcess {
    let dir = dir.to_str().unwrap();
    let any = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--peer-wait", "0s"];
    NodeProcess::start_in(network, name, &[&["run", "--data-dir", dir][..], &any].concat())
}

/// A moment after all that was changed so far and before all that is changed later, as the node's log has them: its
/// times are those of batches, to the millisecond.
fn moment() -> String {
    let before = wall_clock_ms();
    wait_until("the clock goes on", || (wall_clock_ms() > before + 1).then_some(()));
    format!("@{}.{:03}", (before + 1) / 1_000, (before + 1) % 1_000)
}

#[test]
fn a_wrong_deletion_is_undone_from_any_client_and_what_came_later_stays() {
    let folder = tempfile::tempdir().unwrap();
    let network = format!("undo-{}", std::process::id());
    let n1 = with_data("n1", &network, folder.path());
    let n2 = NodeProcess::join("n2", &[&n1]);
    let lines: String =
        (0..2_000).map(|n| format!("{{\"path\": \"site.n:{n}\", \"value\": {n}}}\n")).collect();
    import(&n1, &lines);
    // The other node has all of it, before it deletes what it has.
    ok(&n1, &["set", "other", "1", "--copies", "1"]);
    let too_early = "@1600000000";
    let then = moment();
    ok(&n2, &["delete", "site", "--recursive"]);
    ok(&n2, &["set", "site.n:7", "\"new\""]);
    ok(&n2, &["set", "site.more", "true"]);
    ok(&n2, &["set", "other", "2", "--copies", "1"]);

    // Only who has a data directory remembers; the error says so.
    let undo = ["undo", "--below", "site", "--at", &then];
    let done = at(&n2, &undo);
    assert!(done.code == 3 && done.stderr.contains("--data-dir"), "{}", done.stderr);
    let done = at(&n1, &["undo", "--below", "site", "--at", too_early]);
    assert!(done.code == 1 && done.stderr.contains("begins at 20"), "{}", done.stderr);
    // Somebody has mistyped it, or has a clock that is wrong: nothing to undo is not the answer.
    let done = at(&n1, &["undo", "--below", "site", "--at", "2999-01-01"]);
    assert!(done.code == 1 && done.stderr.contains("still to come"), "{}", done.stderr);
    let done = at(&n1, &["undo", "--below", ":n.auth", "--at", &then]);
    assert_eq!(done.code, 2, "{}", done.stderr);

    let shown = ok(&n1, &[&undo[..], &["--dry-run"]].concat());
    let rows: Vec<&str> = shown.lines().collect();
    assert_eq!(rows.len(), 1_999 + 2 + 1, "{shown}");
    assert!(rows.contains(&"+ site.n:8  8") && rows.contains(&"kept site.n:7  \"new\" (was 7)"));
    assert!(rows.contains(&"kept site.more  true (is new)"));
    assert!(rows[2_001].starts_with("1999 entries would be set as of "), "{}", rows[2_001]);
    assert_eq!(at(&n1, &["get", "site.n:8"]).code, 1, "nothing was done");

    let told = ok(&n1, &[&undo[..], &["--json"]].concat());
    let last: Json = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    let expected = serde_json::json!({
        "restored": 1_999, "kept": 2, "changed_meanwhile": 0, "dry_run": false,
    });
    assert_eq!(last, expected, "{told}");
    wait_until("the other node has it, too", || {
        (at(&n2, &["get", "site.n:1999"]).stdout == "1999\n").then_some(())
    });
    assert_eq!(ok(&n2, &["get", "site.n:7"]), "\"new\"\n");
    assert_eq!(ok(&n2, &["get", "site.more"]), "true\n");
    assert_eq!(ok(&n2, &["get", "other"]), "2\n", "it is not below the path");
    // Again, and there is nothing left to do; what was changed is set back only if that is said.
    let told = ok(&n1, &undo);
    assert!(told.contains("\n0 entries set as of "), "{told}");
    ok(&n1, &[&undo[..], &["--overwrite"]].concat());
    assert_eq!(ok(&n1, &["get", "site.n:7"]), "7\n");
    assert_eq!(ok(&n1, &["get", "site.more"]), "true\n", "nothing is deleted");
    assert_eq!(ok(&n1, &["get", "other"]), "2\n");
}

#[test]
fn what_would_be_undone_is_shown_with_the_beginning_of_long_values_and_told_whole_to_programs() {
    let folder = tempfile::tempdir().unwrap();
    let network = format!("undo-long-{}", std::process::id());
    let n1 = with_data("n1", &network, folder.path());
    let (gone, old, new) = ("g".repeat(3_000), "o".repeat(3_000), "n".repeat(3_000));
    import(
        &n1,
        &format!(
            "{{\"path\": \"a.b\", \"value\": \"{gone}\"}}\n{{\"path\": \"a.c\", \"value\": \"{old}\"}}\n"
        ),
    );
    let then = moment();
    ok(&n1, &["delete", "a.b"]);
    ok(&n1, &["set", "a.c", &format!("\"{new}\"")]);
    for flags in [&["--dry-run"][..], &["--dry-run", "--overwrite"]] {
        let undo = [&["undo", "--below", "a", "--at", &then], flags].concat();
        let shown = ok(&n1, &undo);
        assert!(shown.lines().all(|line| line.chars().count() < 300), "{shown}");
        for part in ["+ a.b  \"ggg", "nnn…", "ooo…"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let told = ok(&n1, &[&undo[..], &["--json"]].concat());
        assert!([&gone, &old, &new].iter().all(|value| told.contains(*value)), "{told}");
    }
}

#[test]
fn what_would_be_undone_is_shown_where_it_differs() {
    let folder = tempfile::tempdir().unwrap();
    let network = format!("undo-late-{}", std::process::id());
    let n1 = with_data("n1", &network, folder.path());
    let value = |end: &str| format!("\"{}{end}\"", "v".repeat(1_000));
    import(&n1, &format!("{{\"path\": \"a\", \"value\": {}}}\n", value("before")));
    let then = moment();
    ok(&n1, &["set", "a", &value("after")]);
    let undo = ["undo", "--below", ":", "--at", &then, "--dry-run"];
    let begin = String::from("…") + &"v".repeat(20);
    let kept = ok(&n1, &undo);
    let expected = format!("kept a  {begin}after\" (was {begin}before\")");
    assert!(kept.lines().any(|line| line == expected), "{kept}");
    let restored = ok(&n1, &[&undo[..], &["--overwrite"]].concat());
    let expected = format!("~ a  {begin}after\" -> {begin}before\"");
    assert!(restored.lines().any(|line| line == expected), "{restored}");
}

#[test]
fn what_was_deleted_comes_back_though_nobody_reads_what_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let network = format!("undo-unread-{}", std::process::id());
    let n1 = with_data("n1", &network, folder.path());
    import(&n1, "{\"path\": \"a.b\", \"value\": 1}\n{\"path\": \"a.c\", \"value\": 1}\n");
    let then = moment();
    ok(&n1, &["delete", "a.b"]);
    ok(&n1, &["set", "a.c", "2"]);
    // That a.c is kept is printed before anything is done.
    let connect = n1.client.to_string();
    let undo = ["undo", "--below", "a", "--at", &then, "--connect", &connect];
    let done = run_with_closed_output(&undo);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
    assert_eq!(ok(&n1, &["get", "a.b"]).trim(), "1");
}

#[test]
fn a_past_state_is_saved_by_a_client() {
    let folder = tempfile::tempdir().unwrap();
    let network = format!("past-{}", std::process::id());
    let n1 = with_data("n1", &network, &folder.path().join("n1"));
    ok(&n1, &["set", "a", "1"]);
    // Also across a snapshot.
    let then = moment();
    ok(&n1, &["set", "a", "2"]);
    ok(&n1, &["snapshot", "save"]);
    ok(&n1, &["set", "a", "3"]);
    let file = folder.path().join("then.jsonl");
    let to = ["snapshot", "save", "--to", file.to_str().unwrap(), "--format", "jsonl"];
    ok(&n1, &[&to[..], &["--at", &then]].concat());
    let text = std::fs::read_to_string(&file).unwrap();
    let line: Json = serde_json::from_str(text.trim()).unwrap();
    assert_eq!((&line["path"], &line["value"]), (&"a".into(), &1.into()), "{text}");
    assert_eq!(ok(&n1, &["get", "a"]), "3\n");
    assert_eq!(at(&n1, &["snapshot", "save", "--at", &then]).code, 2, "without --to");
}

/// What a node does not know of a moment is no state to go back to: changes of other nodes came to it later.
#[test]
fn a_moment_at_which_the_node_was_off_is_told_and_nothing_is_set_back_to_it_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let network = format!("off-{}", std::process::id());
    let dir = folder.path().join("n1");
    let mut n1 = with_data("n1", &network, &dir);
    ok(&n1, &["set", "cfg.a", "1"]);
    let on = moment();
    n1.signal("TERM");
    n1.wait();
    let off = moment();
    let n1 = with_data("n1", &network, &dir);
    ok(&n1, &["set", "cfg.a", "2"]);

    let undo = ["undo", "--below", "cfg", "--overwrite", "--at"];
    let refused = at(&n1, &[&undo[..], &[&off]].concat());
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{}", refused.stderr);
    for part in ["from 20", " to 20", "did not run", "--allow-gap", "--connect", "nothing was"] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    assert_eq!(ok(&n1, &["get", "cfg.a"]), "2\n");
    // Who only looks is told of it.
    let shown = at(&n1, &[&undo[..], &[&off, "--dry-run", "--json"]].concat());
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let told = note(shown.stderr.lines().next().unwrap());
    assert!(told.contains("did not run") && told.contains("from 20"), "{told}");
    let last: Json = serde_json::from_str(shown.stdout.lines().last().unwrap()).unwrap();
    let time = |end: &str| last["gap"][end].as_str().unwrap().to_owned();
    assert!(time("from") < time("to") && last["restored"] == 1, "{last}");
    let file = folder.path().join("then.dkv");
    let save = ["snapshot", "save", "--to", file.to_str().unwrap(), "--force", "--at"];
    let saved = at(&n1, &[&save[..], &[&off]].concat());
    assert_eq!(saved.code, 0, "{}", saved.stderr);
    assert!(saved.stderr.contains("note: ") && saved.stderr.contains("did not run"));
    let saved: Json =
        serde_json::from_str(&ok(&n1, &[&save[..], &[&off, "--json"]].concat())).unwrap();
    assert_eq!((&saved["gap"], &saved["entries"]), (&last["gap"], &1.into()), "{saved}");
    // Where the node knows its state, there is nothing to say.
    let saved = at(&n1, &[&save[..], &[&on, "--json"]].concat());
    let said: Json = serde_json::from_str(&saved.stdout).unwrap();
    assert!(saved.stderr.is_empty() && said.get("gap").is_none(), "{saved:?}");

    let done = at(&n1, &[&undo[..], &[&off, "--allow-gap"]].concat());
    assert!(done.code == 0 && done.stderr.contains("did not run"), "{}", done.stderr);
    assert_eq!(ok(&n1, &["get", "cfg.a"]), "1\n");
    ok(&n1, &["set", "cfg.a", "3"]);
    let done = at(&n1, &[&undo[..], &[&on]].concat());
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
    assert_eq!(ok(&n1, &["get", "cfg.a"]), "1\n");
}

/// "10m" is ten minutes before now by the clock of the node whose past it is. By this machine's it could be an hour of
/// changes set back, because one of the two clocks is wrong.
#[test]
fn times_before_now_are_counted_by_the_node_s_clock() {
    const AHEAD_MS: u64 = 3_600_000 + 30_000;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("then.dkv");
    let file = file.to_str().unwrap();
    let commands: [(&[&str], &str, &str, &str); 3] = [
        (&["undo", "--below", "a"], "--at", "get_snapshot", "time"),
        (&["snapshot", "save", "--to", file], "--at", "get_snapshot", "time"),
        (&["history", "a"], "--since", "history", "since"),
    ];
    for (command, option, action, field) in commands {
        for (moment, ahead_ms, told) in [
            ("10m", AHEAD_MS, "is 1 h 0 m ahead of this machine's; '10m' is counted by it"),
            ("@1600000000", AHEAD_MS, ""),
            // From before nodes told their time.
            ("10m", 0, ""),
        ] {
            let node = FakeNode::start(move |request| {
                let mut fields = Fields::new();
                match request.str("action") {
                    Some("status") if ahead_ms > 0 => {
                        fields.u64("time", wall_clock_ms() + ahead_ms);
                    }
                    Some("status") => {
                        fields.str("name", "n1");
                    }
                    _ => fields = error("that is enough", "bad_request"),
                }
                vec![fields]
            });
            let before = wall_clock_ms();
            let done = cli_with(&node, &[command, &[option, moment]].concat());
            let after = wall_clock_ms();
            assert!(done.stderr.contains("that is enough"), "{}", done.stderr);
            assert!(done.stderr.contains(told), "{}", done.stderr);
            assert_eq!(done.stderr.contains("clock"), !told.is_empty(), "{}", done.stderr);
            let asked = node.asked(action).u64(field).unwrap();
            let expected = match moment {
                "10m" => before + ahead_ms - 600_000..=after + ahead_ms - 600_000,
                _ => 1_600_000_000_000..=1_600_000_000_000,
            };
            assert!(expected.contains(&asked), "{command:?} {moment}: {asked} in {expected:?}");
        }
    }
}

/// A colleague deletes too much, and it is undone from another machine, which has no node. On request with as many
/// entries as somebody would miss; then it must also be as soon as promised:
///
/// ```sh
/// DISTKV_TEST_UNDO_ENTRIES=50000 cargo test --profile measure --test program undone_from_another -- --nocapture
/// ```
#[test]
fn a_wrong_deletion_is_undone_from_another_machine_in_one_command() {
    const VARIABLE: &str = "DISTKV_TEST_UNDO_ENTRIES";
    const WITHIN: Duration = Duration::from_secs(10);
    inside_own_network(
        test_name!("a_wrong_deletion_is_undone_from_another_machine_in_one_command"),
        || {
            let asked = std::env::var(VARIABLE).ok();
            let entries: usize = asked.as_ref().map_or(500, |number| number.parse().unwrap());
            let hosts = Hosts::new(&[0, 0, 1]);
            let folder = tempfile::tempdir().unwrap();
            let start = |host: usize| {
                let dir = folder.path().join(format!("n{host}")).to_str().unwrap().to_owned();
                let (client, gossip) =
                    (client_addr(host).to_string(), gossip_addr(host).to_string());
                let first = gossip_addr(0).to_string();
                let mut arguments = if host == 0 { vec!["run"] } else { vec!["join", &first] };
                arguments.extend(["--insecure", "--client", "0.0.0.0:27586", "--gossip", &gossip]);
                arguments.extend(["--data-dir", &dir]);
                let node =
                    NodeProcess::start_by(&hosts.prefix(host), &format!("n{host}"), &arguments);
                (node, client)
            };
            let nodes: Vec<(NodeProcess, String)> = (0..2).map(start).collect();
            let lines: String = (0..entries)
                .map(|n| format!("{{\"path\": \"site.n:{n}\", \"value\": {n}}}\n"))
                .collect();
            let done = run(&["import", "-", "--connect", &nodes[0].1], &[], lines.as_bytes());
            assert_eq!(done.code, 0, "{}", done.stderr);
            let then = moment();
            // The third machine has no node. It speaks to the others over the network that they share.
            let mut there = hosts.prefix(2);
            there.extend([PROGRAM, "--connect"].map(String::from));
            let at = |host: usize, arguments: &[&str]| {
                let address = format!("{}:27586", gossip_addr(host).ip());
                let command = [&there[..], &[address]].concat();
                let output =
                    Command::new(&command[0]).args(&command[1..]).args(arguments).output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.success(), "{arguments:?}: {said}");
                String::from_utf8(output.stdout).unwrap()
            };
            at(1, &["delete", "-r", "site"]);
            at(1, &["set", "site.n:7", "\"new\"", "--copies", "1"]);
            let began = Instant::now();
            let told = at(0, &["undo", "--below", "site", "--at", &then]);
            let took = began.elapsed();
            println!("{entries} entries: undone in {took:?}");
            assert!(told.contains(&format!("\n{} entries set as of ", entries - 1)), "{told}");
            assert!(told.contains("kept site.n:7  \"new\" (was 7)"), "{told}");
            assert!(asked.is_none() || took < WITHIN, "{took:?}");
            wait_until("the other node has it, too", || {
                (at(1, &["tree", "site", "--json"]).lines().count() == entries).then_some(())
            });
        },
    );
}

//! Ctrl-C while a node is silent: a command that changes something gives up soon, and says what it knows.

use std::fs;
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use distkv::client::Fields;

use crate::cli::command::{cli, ok, program};
use crate::cli::fake::{FakeNode, item, state};
use crate::processes::{NodeProcess, SAVED_STATE, file_names, signal, wait_until};

/// Less than the ten seconds that a node has to answer, and more than the two that it has after Ctrl-C.
const SOON: Duration = Duration::from_secs(8);

/// Waits until a command is connected that has asked the node for nothing. Those that have ended may be told of for a
/// moment, but have asked for something; the one that looks has not been answered yet.
fn wait_for_who_asks_nothing(node: &NodeProcess) {
    wait_until("it is connected", || {
        let clients = ok(node, &["clients", "--json"]);
        let silent = clients.lines().filter(|line| line.contains("\"asked\":0,")).count();
        (silent >= 2).then_some(())
    });
}

#[test]
fn commands_that_change_something_end_soon_after_ctrl_c_though_the_node_is_silent() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (line, snapshot) = (path("line.jsonl"), path("all.dkv"));
    fs::write(&line, "{\"path\": \"a.x\", \"value\": 1}\n").unwrap();
    let real = NodeProcess::run("n1");
    ok(&real, &["set", "a", "1"]);
    ok(&real, &["snapshot", "save", "--to", &snapshot]);

    let (nothing, again) = ("nothing was changed", "` goes on from there, at this node or");
    for (command, waits_for, told) in [
        (
            &["import", &line][..],
            "set_value",
            ["the node did not answer: line 1 may have been imported; ", again],
        ),
        (
            &["apply", &line, "--below", "a"],
            "set_value",
            ["the node did not answer: a.x may have been changed; ", again],
        ),
        (&["apply", &line, "--below", "a"], "get_tree", [nothing, "interrupted"]),
        (
            &["cp", "-r", "a", "b"],
            "set_value",
            ["the node did not answer: a.y may have been copied; the rest was not copied; ", again],
        ),
        (
            &["mv", "-r", "a", "b"],
            "delete_value",
            [
                "the node did not answer: a.y may have been deleted at the old path; ",
                "at most 1 entry is at both paths, the rest is where it was",
            ],
        ),
        (&["snapshot", "restore", &snapshot], "restore", ["nothing of ", " was restored"]),
        (&["undo", "--below", "a", "--at", "1h"], "status", [nothing, "interrupted: "]),
    ] {
        let node = FakeNode::start(move |request| match request.str("action") {
            Some(action) if action == waits_for => Vec::new(),
            Some("get_tree") => {
                let mut entry = item(0, "y", Some(b"\x01"));
                entry.raw("chain", b"\x82\xa4node\xa2n1\xa4tick\x05");
                vec![state("start"), entry, state("end")]
            }
            _ => vec![crate::cli::fake::changed(true)],
        });
        let connect = node.address.to_string();
        let is_json = command[0] != "mv" && command[0] != "undo";
        let form: &[&str] = if is_json { &["--json"] } else { &[] };
        let arguments = [command, &["--connect", &connect], form].concat();
        let running = program(&arguments).spawn().unwrap();
        wait_until("it waits for the node", || node.is_asked(waits_for).then_some(()));
        let began = Instant::now();
        signal(running.id(), "INT");
        let done = running.wait_with_output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(began.elapsed() < SOON, "{command:?}: {:?}: {said}", began.elapsed());
        assert_eq!(done.status.code(), Some(130), "{command:?}: {said}");
        assert!(told.iter().all(|text| said.contains(text)), "{command:?}: {said}");
        let lines: Vec<&str> = said.lines().collect();
        let [line] = lines[..] else { panic!("{command:?}: {said}") };
        if is_json {
            let error: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(
                (&error["outcome"], &error["exit_code"]),
                (&"interrupted".into(), &130.into())
            );
        }
        assert_eq!(is_json, !line.starts_with("interrupted: "), "{command:?}: {said}");
    }
}

#[test]
fn who_interrupts_an_import_or_an_apply_is_told_which_part_of_the_file_is_in_doubt() {
    let folder = tempfile::tempdir().unwrap();
    let lines = folder.path().join("lines").to_str().unwrap().to_owned();
    let line = |n: u32| format!("{{\"path\": \"a.n{n:03}\", \"value\": 1}}\n");
    fs::write(&lines, (1..=200).map(line).collect::<String>()).unwrap();
    let imported = "lines 65 to 128 may have been imported; the lines behind these were not imported; `distkv-node import ";
    let applied =
        "a.n065 to a.n128 may have been changed; the rest was left as it is; `distkv-node apply ";
    for (command, form, told, counts) in [
        (&["import"][..], &[][..], imported, "64 set, 0 unchanged\n"),
        (&["apply", "--below", "a"], &[], applied, "64 set, 0 deleted\n"),
        (&["import"], &["--json"], imported, "\"set\":64"),
        (&["apply", "--below", "a"], &["--json"], applied, "\"set\":64"),
    ] {
        let asked = Arc::new(AtomicUsize::new(0));
        let sets = Arc::clone(&asked);
        // It carries out the requests that come together first, and says nothing about the next ones.
        let node = FakeNode::start(move |request| match request.str("action") {
            Some("get_tree") => vec![state("start"), state("end")],
            Some("set_value") if sets.fetch_add(1, Ordering::Relaxed) < 64 => {
                vec![crate::cli::fake::changed(true)]
            }
            _ => Vec::new(),
        });
        let connect = node.address.to_string();
        let arguments = [command, &[&lines, "--connect", &connect], form].concat();
        let running = program(&arguments).spawn().unwrap();
        wait_until("it waits for the node", || {
            (asked.load(Ordering::Relaxed) == 128).then_some(())
        });
        signal(running.id(), "TERM");
        let done = running.wait_with_output().unwrap();
        let [out, said] = [done.stdout, done.stderr].map(|it| String::from_utf8(it).unwrap());
        assert_eq!(done.status.code(), Some(130), "{arguments:?}: {said}");
        let told = format!("the node did not answer: {told}");
        assert!(said.contains(&told), "{arguments:?}: {said}");
        assert!(out.contains(counts), "{arguments:?}: {out}");
    }
}

#[test]
fn who_interrupts_a_copy_or_a_move_is_told_how_far_it_is_and_which_entries_are_in_doubt() {
    let copied = "a.n064 to a.n127 may have been copied; the rest was not copied; `distkv-node cp ";
    let set = "a.n064 to a.n127 may have been copied to the new path; the rest is where it was; `distkv-node mv ";
    let deleted = "a.n064 to a.n127 may have been deleted at the old path; \
        at most 64 entries are at both paths, the rest is where it was; `distkv-node mv ";
    for (command, silent_at, sets, told, out) in [
        ("cp", "set_value", 128, copied, "64 entries copied from a to b\n"),
        ("mv", "set_value", 128, set, "64 entries moved from a to b\n"),
        ("mv", "delete_value", 128, deleted, "64 entries moved from a to b\n"),
    ] {
        for again in [false, true] {
            let asked = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&asked);
            // It carries out those that come together first, and says nothing about the next ones.
            let node = FakeNode::start(move |request| match request.str("action") {
                Some("get_tree") => {
                    let entry = |n: usize| {
                        let mut entry = item(0, &format!("n{n:03}"), Some(b"\x01"));
                        entry.raw("chain", b"\x82\xa4node\xa2n1\xa4tick\x05");
                        entry
                    };
                    let mut all = vec![state("start")];
                    all.extend((0..200).map(entry));
                    all.push(state("end"));
                    all
                }
                Some(action) if action == silent_at => {
                    match count.fetch_add(1, Ordering::Relaxed) < 64 {
                        true => vec![crate::cli::fake::changed(true)],
                        false => Vec::new(),
                    }
                }
                _ => vec![crate::cli::fake::changed(true)],
            });
            let connect = node.address.to_string();
            let mut running =
                program(&[command, "-r", "a", "b", "--connect", &connect]).spawn().unwrap();
            wait_until("it waits for the node", || {
                (asked.load(Ordering::Relaxed) == sets).then_some(())
            });
            signal(running.id(), "INT");
            if again {
                // The second one ends it at once. It may come while the first is not heard yet: then it is the first.
                wait_until("it has ended", || {
                    signal(running.id(), "INT");
                    running.try_wait().unwrap()
                });
            }
            let done = running.wait_with_output().unwrap();
            let [printed, said] =
                [done.stdout, done.stderr].map(|it| String::from_utf8(it).unwrap());
            assert_eq!(done.status.code(), Some(130), "{command}: {said}");
            match said.starts_with("interrupted: the node did not answer: ") {
                true => {
                    let told = format!("interrupted: the node did not answer: {told}");
                    assert!(said.starts_with(&told), "{command}: {said}");
                    assert_eq!(printed, out, "{command}: {said}");
                }
                false => {
                    let which = told.split(';').next().unwrap();
                    let told = format!("interrupted: ended at once, so {which}");
                    assert!(again && said.starts_with(&told), "{command}: {said}");
                }
            }
        }
    }
}

#[test]
fn what_waits_for_a_pipe_that_nobody_writes_to_ends_soon_after_ctrl_c_and_goes_on_when_somebody_does()
 {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe").to_str().unwrap().to_owned();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let node = NodeProcess::run("n1");
    let connect = node.client.to_string();
    for (command, value, told) in [
        ("import", "1", "interrupted: the lines behind these were not imported"),
        ("apply", "2", "interrupted: nothing was changed\n"),
        ("diff", "2", "interrupted: the comparison had not ended, so no difference was printed\n"),
    ] {
        let begin = || program(&[command, &pipe, "--connect", &connect]).spawn().unwrap();
        let running = begin();
        // It is connected: so it has opened the pipe, and waits for it.
        wait_for_who_asks_nothing(&node);
        let began = Instant::now();
        signal(running.id(), "INT");
        let done = running.wait_with_output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(130), "{command}: {said}");
        assert!(said.starts_with(told), "{command}: {said}");
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());

        let running = begin();
        fs::write(&pipe, format!("{{\"path\": \"a\", \"value\": {value}}}\n")).unwrap();
        let done = running.wait_with_output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        assert_eq!(ok(&node, &["get", "a"]).trim(), value);
    }
}

#[test]
fn commands_that_wait_for_a_node_s_greeting_say_that_nothing_was_done() {
    let folder = tempfile::tempdir().unwrap();
    let line = folder.path().join("line.jsonl").to_str().unwrap().to_owned();
    fs::write(&line, "{\"path\": \"a.x\", \"value\": 1}\n").unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    for (command, told) in [
        (&["import", &line, "--connect", &address][..], "nothing was imported"),
        (&["apply", &line, "--connect", &address], "nothing was changed"),
        (
            &["diff", &line, "--connect", &address],
            "the comparison had not ended, so no difference was printed",
        ),
        (&["cp", "a", "b", "--connect", &address], "nothing was copied"),
        (&["mv", "a", "b", "--connect", &address], "nothing was moved"),
        (&["verify", &address, &address], "nothing was compared yet"),
        (&["delete", "-r", "a", "--connect", &address], "nothing was deleted"),
        (&["snapshot", "save", "--connect", &address], "nothing was saved"),
        (&["snapshot", "restore", SAVED_STATE, "--connect", &address], "nothing was restored"),
    ] {
        let running = program(command).spawn().unwrap();
        let met = silent.accept().unwrap();
        signal(running.id(), "INT");
        let done = running.wait_with_output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(130), "{command:?}: {said}");
        assert_eq!(said, format!("interrupted: {told}\n"), "{command:?}");
        drop(met);
        // It may have called more than once, and is not to be taken for the next one.
        silent.set_nonblocking(true).unwrap();
        while silent.accept().is_ok() {}
        silent.set_nonblocking(false).unwrap();
    }
}

#[test]
fn who_was_told_to_ignore_that_the_terminal_goes_does_so() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe").to_str().unwrap().to_owned();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let node = NodeProcess::run("n1");
    // As by nohup.
    let script = format!(
        "trap '' HUP; exec {} import {pipe} --connect {}",
        env!("CARGO_BIN_EXE_distkv-node"),
        node.client
    );
    let running = Command::new("sh").args(["-c", &script]).spawn().unwrap();
    wait_for_who_asks_nothing(&node);
    signal(running.id(), "HUP");
    fs::write(&pipe, "{\"path\": \"a\", \"value\": 1}\n").unwrap();
    let done = running.wait_with_output().unwrap();
    assert!(done.status.success(), "{:?}", done.status);
    assert_eq!(ok(&node, &["get", "a"]).trim(), "1");
}

#[test]
fn of_a_snapshot_that_is_interrupted_nothing_stays() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("all").to_str().unwrap().to_owned();
    for form in ["snapshot", "jsonl"] {
        // The snapshot begins, and does not go on.
        let node = FakeNode::start(|_| vec![state("start"), item(0, "data", None)]);
        let connect = node.address.to_string();
        let save = ["snapshot", "save", "--to", &to, "--format", form, "--connect", &connect];
        let running = program(&save).spawn().unwrap();
        wait_until("it has begun a file", || {
            fs::read_dir(folder.path()).unwrap().next().map(Result::unwrap)
        });
        signal(running.id(), "TERM");
        let done = running.wait_with_output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!((done.status.code(), &*said), (Some(130), "interrupted: nothing was written\n"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn of_a_ticket_that_is_interrupted_nothing_stays_but_what_may_be_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("robot.ticket").to_str().unwrap().to_owned();
    // A node that does not say whether it has set a new secret.
    let node = FakeNode::start(|request| match request.str("action") {
        Some("auth_set") => Vec::new(),
        Some("auth_get") => vec![crate::cli::fake::changed(true)],
        _ => vec![Fields::new().str("network", "plant").clone()],
    });
    let connect = node.address.to_string();
    let ticket = ["user", "ticket", "robot", "--to", &to, "--connect", &connect];
    let by_password = ["--method", "password", "--new-secret-file", "-"];
    for (is_asking, name, more, expected) in [
        (true, "INT", &by_password[..], "interrupted: nothing was written\n"),
        (false, "TERM", &["--method", "token"], "interrupted: robot may have a new secret: if so,"),
    ] {
        let mut running = program(&[&ticket[..], more].concat()).spawn().unwrap();
        // Open until it has ended: the end of the input would be an empty secret, which may come before the signal.
        let _input = running.stdin.take();
        wait_until("it has begun a file, and waits", || {
            let has_begun = !file_names(folder.path()).is_empty();
            (has_begun && (is_asking || node.is_asked("auth_set"))).then_some(())
        });
        signal(running.id(), name);
        let done = running.wait_with_output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(130), "{said}");
        assert!(said.starts_with(expected), "{said}");
        assert_eq!(node.is_asked("auth_set"), !is_asking);
        let kept: &[&str] = if is_asking { &[] } else { &["robot.ticket.new"] };
        assert_eq!(file_names(folder.path()), kept);
        assert_eq!(said.contains(&format!("--ticket @{to}.new` tells")), !is_asking, "{said}");
    }
}

#[test]
fn a_ticket_that_cannot_be_written_is_refused_before_anybody_is_asked_for_a_secret() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(path("dir")).unwrap();
    fs::write(path("file"), "precious").unwrap();
    for (to, expected) in [
        (path("dir"), "is a directory; name a file in it"),
        (path("none/"), "is a directory; name a file in it"),
        (path("none/robot.ticket"), "cannot write"),
        (path("file"), "exists already; take another name, or replace it with --force"),
        (String::from("-"), "is no plain file"),
        (String::from("/dev/null"), "is no plain file"),
    ] {
        // Neither the secret nor the node is there.
        let (secret, connect) = (path("none.secret"), "127.0.0.1:1");
        let ticket = ["user", "ticket", "joe", "--method", "password", "--to", &to];
        let more = ["--new-secret-file", &secret, "--connect", connect];
        let done = cli(&[&ticket[..], &more].concat());
        assert_eq!(done.code, 1, "{to}: {}", done.stderr);
        assert!(done.stderr.contains(expected), "{to}: {}", done.stderr);
    }
    assert_eq!(file_names(folder.path()), ["dir", "file"]);
    assert_eq!(fs::read_to_string(path("file")).unwrap(), "precious");
}

#[test]
fn what_a_killed_command_left_is_removed_by_the_next_and_what_one_writes_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("all").to_str().unwrap().to_owned();
    let node = FakeNode::start(|_| vec![state("start"), item(0, "data", None)]);
    let connect = node.address.to_string();
    let begin = |form: &str, files: usize| {
        let save = ["snapshot", "save", "--to", &to, "--format", form, "--connect", &connect];
        let running = program(&save).spawn().unwrap();
        wait_until("it has begun a file", || {
            (file_names(folder.path()).len() == files).then_some(())
        });
        running
    };
    let mut running = begin("snapshot", 1);
    let kept = file_names(folder.path()).remove(0);
    for form in ["snapshot", "jsonl"] {
        let mut killed = begin(form, 2);
        killed.kill().unwrap();
        killed.wait().unwrap();
        assert_eq!(file_names(folder.path()).len(), 2, "{form}");
        let done = cli(&["snapshot", "convert", SAVED_STATE, "--to", &to, "--force"]);
        assert_eq!(done.code, 0, "{}", done.stderr);
        assert_eq!(file_names(folder.path()), [&*kept, "all"], "{form}");
        fs::remove_file(&to).unwrap();
    }
    running.kill().unwrap();
    running.wait().unwrap();
}

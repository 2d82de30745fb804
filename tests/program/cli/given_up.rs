//! Commands that are ended by a signal while a node does what it was asked, which it does to its end all the same, and commands
//! whose node is lost meanwhile: they say so, and how to go on.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use distkv::client::Fields;
use distkv::rt::wall_clock_ms;

use crate::cli::command::{Done, ok, program, run};
use crate::cli::fake::{FakeNode, error};
use crate::processes::{NodeProcess, PROGRAM, file_names, signal, wait_until};

/// Its exit code after this signal, and what it has said.
fn ended_by(name: &str, running: Child) -> (Option<i32>, String) {
    signal(running.id(), name);
    let done = running.wait_with_output().unwrap();
    (done.status.code(), String::from_utf8(done.stderr).unwrap())
}

#[test]
fn who_ends_the_deletion_of_a_tree_at_a_silent_node_is_told_what_may_be_deleted_and_how_to_undo_it()
{
    for signal in ["INT", "TERM", "HUP"] {
        let node = FakeNode::start(|_| Vec::new());
        let at = node.address.to_string();
        let running = program(&["delete", "-r", "it's", "--connect", &at]).spawn().unwrap();
        wait_until("it waits for the node", || node.is_asked("delete_tree").then_some(()));
        let (code, said) = ended_by(signal, running);
        assert_eq!(code, Some(130), "{signal}: {said}");
        let told = "interrupted: the node did not answer: what is at and below it's may be deleted, all of it or a part; `";
        assert!(said.starts_with(told), "{signal}: {said}");
        assert!(node.is_asked("stop"), "{signal}");
        let undo = said.split('`').nth(1).unwrap_or_default();
        let begin = r"distkv-node undo --below 'it'\''s' --at 20";
        assert!(undo.starts_with(begin) && undo.contains(&at), "{signal}: {said}");
    }
}

/// The node has deleted a part when it is asked to stop.
#[test]
fn ctrl_c_stops_the_deletion_of_a_tree_and_tells_how_many_entries_are_deleted() {
    let told = "interrupted: 256 entries were deleted, and the others are left; `distkv-node undo --below a --at 20";
    // A node of an older version stops, too, and does not say how many it has deleted.
    let untold =
        "interrupted: some of it may be deleted; `distkv-node delete a --recursive --connect ";
    let json = "{\"path\":\"a\",\"changed\":256,\"dry_run\":false}\n";
    for (form, changed, out, text) in [
        (&[][..], Some(256), "a: 256 deleted\n", told),
        (&["--json"], Some(256), json, told),
        (&[], None, "", untold),
    ] {
        let stopped = move |seq: u64| {
            let mut error = error("stopped", "unknown_fate");
            error.u64("seq", seq);
            if let Some(changed) = changed {
                error.u64("changed", changed);
            }
            error
        };
        let (code, printed, said) = wait_until("the node answers in time", || {
            let asked = AtomicU64::new(0);
            let node = FakeNode::start(move |request| match request.str("action") {
                Some("delete_tree") => {
                    asked.store(request.u64("seq").unwrap(), Ordering::Relaxed);
                    Vec::new()
                }
                Some("stop") if request.u64("task") == Some(asked.load(Ordering::Relaxed)) => {
                    vec![stopped(asked.load(Ordering::Relaxed))]
                }
                _ => Vec::new(),
            });
            let at = node.address.to_string();
            let arguments = [&["delete", "-r", "a", "--connect", &at], form].concat();
            let running = program(&arguments).spawn().unwrap();
            wait_until("it waits for the node", || node.is_asked("delete_tree").then_some(()));
            signal(running.id(), "INT");
            let done = running.wait_with_output().unwrap();
            let [printed, said] =
                [done.stdout, done.stderr].map(|it| String::from_utf8(it).unwrap());
            let is_answered = !said.contains("the node did not answer");
            is_answered.then(|| (done.status.code(), printed, said))
        });
        assert_eq!((code, &*printed), (Some(130), out), "{said}");
        assert!(said.contains(text), "{said}");
    }
}

#[test]
fn the_command_that_undoes_a_deletion_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").to_str().unwrap().to_owned();
    let run = ["run", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--data-dir", &data];
    let node = NodeProcess::start("n1", &run);
    ok(&node, &["set", "a.b", "1"]);
    // What the command says of a node that is silent is of use at the one that has done it.
    let silent = FakeNode::start(|_| Vec::new());
    let at = silent.address.to_string();
    let running = program(&["delete", "-r", "a", "--connect", &at, "--json"]).spawn().unwrap();
    wait_until("it waits for the node", || silent.is_asked("delete_tree").then_some(()));
    let (code, said) = ended_by("INT", running);
    let error: serde_json::Value = serde_json::from_str(&said).expect(&said);
    assert_eq!((code, &error["outcome"]), (Some(130), &"interrupted".into()), "{said}");
    ok(&node, &["delete", "-r", "a"]);
    let text = error["error"].as_str().unwrap();
    let undo = text.split('`').nth(1).unwrap().replace(&at, &node.client.to_string());
    let undo = undo.replacen("distkv-node", PROGRAM, 1);
    let done = Command::new("sh").args(["-c", &undo]).output().unwrap();
    assert!(done.status.success(), "{undo}: {}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(ok(&node, &["get", "a.b"]).trim(), "1");
}

#[test]
fn who_ends_a_save_is_told_that_the_node_makes_the_snapshot_all_the_same() {
    for (signal, form) in [("INT", None), ("TERM", None), ("HUP", None), ("TERM", Some("--json"))] {
        let node = FakeNode::start(|_| Vec::new());
        let at = node.address.to_string();
        let mut command = program(&["snapshot", "save", "--connect", &at]);
        let running = command.args(form).spawn().unwrap();
        wait_until("it waits for the node", || node.is_asked("snapshot").then_some(()));
        let (code, said) = ended_by(signal, running);
        assert_eq!(code, Some(130), "{signal}: {said}");
        assert!(said.contains("the node makes the snapshot all the same"), "{signal}: {said}");
        assert_eq!(said.starts_with("{\"error\":"), form.is_some(), "{said}");
    }
}

#[test]
fn a_text_to_edit_that_cannot_be_written_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let node = FakeNode::start(|_| vec![Fields::new().raw("value", b"\xa5hello").clone()]);
    // No file may get longer than nothing: as on a full disk.
    let script = format!("ulimit -f 0; exec {PROGRAM} edit a --connect {}", node.address);
    let mut command = Command::new("sh");
    command.args(["-c", &script]).env("TMPDIR", folder.path()).env("EDITOR", "true");
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write"), "{said}");
    assert_eq!(file_names(folder.path()), [""; 0]);
}

/// A way to a node on which the first request with these bytes is the last that its client hears of: it is lost, and comes to the
/// node all the same if `arrives`. Those that come later pass.
fn cut_at(node: &NodeProcess, bytes: &'static [u8], arrives: bool) -> SocketAddr {
    let (listener, to) = (TcpListener::bind("127.0.0.1:0").unwrap(), node.client);
    let address = listener.local_addr().unwrap();
    let is_cut = Arc::new(AtomicBool::new(false));
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let node = TcpStream::connect(to).unwrap();
            let (mut back, mut to_client) =
                (node.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || {
                let mut chunk = [0; 1 << 16];
                while let Ok(count @ 1..) = back.read(&mut chunk) {
                    // The node goes on, whether its client is there or not.
                    let _ = to_client.write_all(&chunk[..count]);
                }
                let _ = to_client.shutdown(Shutdown::Both);
            });
            let is_cut = Arc::clone(&is_cut);
            thread::spawn(move || forward(client, node, (bytes, arrives), &is_cut));
        }
    });
    address
}

fn forward(
    mut client: TcpStream,
    mut node: TcpStream,
    (bytes, arrives): (&[u8], bool),
    is_cut: &AtomicBool,
) {
    let (mut chunk, mut seen) = ([0; 1 << 16], Vec::new());
    while let Ok(count @ 1..) = client.read(&mut chunk) {
        // What is looked for may come in two pieces.
        seen.drain(..seen.len().saturating_sub(bytes.len()));
        seen.extend_from_slice(&chunk[..count]);
        let is_here = seen.windows(bytes.len()).any(|window| window == bytes);
        if is_here && !is_cut.swap(true, Ordering::SeqCst) {
            // First, so that no answer comes.
            client.shutdown(Shutdown::Both).unwrap();
            if arrives {
                node.write_all(&chunk[..count]).unwrap();
            } else {
                node.shutdown(Shutdown::Both).unwrap();
            }
            return;
        }
        if node.write_all(&chunk[..count]).is_err() {
            return;
        }
    }
    let _ = node.shutdown(Shutdown::Write);
}

/// Types a command that was printed.
fn typed(command: &str) -> Done {
    let command = command.replacen("distkv-node", PROGRAM, 1);
    let done = Command::new("sh").args(["-c", &command]).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Done { code: done.status.code().unwrap(), stdout: text(done.stdout), stderr: text(done.stderr) }
}

/// The commands in an error's text, in their order.
fn commands(said: &str) -> Vec<&str> {
    said.split('`').skip(1).step_by(2).collect()
}

#[test]
fn who_loses_the_node_while_it_changes_much_is_told_how_to_go_on_and_that_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (data, saved) = (path("data"), path("all.dkv"));
    let started =
        ["run", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--data-dir", &data];
    let node = NodeProcess::start("n1", &started);
    let values = || ok(&node, &["tree", "a"]);
    for n in 0..5 {
        ok(&node, &["set", &format!("a.n{n}"), "1"]);
    }
    let all = values();
    ok(&node, &["snapshot", "save", "--to", &saved]);
    // The log has times to the millisecond.
    let then = wall_clock_ms();
    wait_until("the clock goes on", || (wall_clock_ms() > then + 1).then_some(()));
    let then = format!("@{}.{:03}", (then + 1) / 1_000, (then + 1) % 1_000);
    for arrives in [true, false] {
        let lost = |bytes, arguments: &[&str]| {
            let connect = cut_at(&node, bytes, arrives).to_string();
            let done = run(&[arguments, &["--connect", &connect]].concat(), &[], b"");
            assert_eq!(done.code, 7, "{arguments:?}: {done:?}");
            done.stderr
        };
        let said = lost(b"delete_tree", &["delete", "-r", "a"]);
        let [delete, undo] = commands(&said)[..] else { panic!("{said}") };
        assert!(said.contains("some of it may be deleted; "), "{said}");
        let done = typed(delete);
        assert!(done.code == 0 && values().is_empty(), "{delete}: {done:?}");
        assert!(undo.starts_with("distkv-node undo --below a --at 20"), "{undo}");

        let said = lost(b"set_value", &["undo", "--below", "a", "--at", &then]);
        let [undo] = commands(&said)[..] else { panic!("{said}") };
        assert!(said.contains("goes on from there, at this node or at another one"), "{said}");
        // A time before now would be another one.
        assert!(undo.starts_with("distkv-node undo --below a --at 20"), "{undo}");
        let done = typed(undo);
        assert!(done.code == 0 && values() == all, "{undo}: {done:?}");

        let said = lost(b"\xa4last\xc3", &["snapshot", "restore", "--any-network", &saved]);
        let [restore] = commands(&said)[..] else { panic!("{said}") };
        assert!(said.contains("or all of it, may be restored; "), "{said}");
        assert!(restore.contains("--any-network"), "{restore}");
        // It may be taking in the first one still.
        let done =
            wait_until("it takes it in", || Some(typed(restore)).filter(|done| done.code == 0));
        assert!(done.stdout.contains("of which 0 were taken in") && values() == all, "{done:?}");
    }
}

/// Typed once more, the command does what is left of it, and no other options are needed: what it has done itself is in nobody's
/// way.
#[test]
fn who_loses_the_node_while_it_copies_applies_or_imports_is_told_the_command_that_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let lines = folder.path().join("it's.jsonl").to_str().unwrap().to_owned();
    let node = NodeProcess::run("n1");
    let written = |top: &str| -> String {
        (0..100).map(|n| format!("{{\"path\": \"{top}n{n:03}\", \"value\": {n}}}\n")).collect()
    };
    let tree = |top: &str| ok(&node, &["tree", top, "--json"]).lines().count();
    let ends = "goes on from there, at this node or at another one (--connect)";
    let lost_at: [(&[u8], bool); 4] = [
        (b"set_value", true),
        (b"set_value", false),
        (b"delete_value", true),
        (b"delete_value", false),
    ];
    for (bytes, arrives) in lost_at {
        let sets = bytes == b"set_value";
        let goes_on = |arguments: &[&str], begins: &str| {
            let connect = cut_at(&node, bytes, arrives).to_string();
            let done = run(&[arguments, &["--connect", &connect]].concat(), &[], b"");
            assert_eq!(done.code, 7, "{arguments:?}: {done:?}");
            assert!(done.stderr.contains(ends), "{arguments:?}: {done:?}");
            let [command] = commands(&done.stderr)[..] else { panic!("{done:?}") };
            assert!(command.starts_with(begins), "{command}");
            let again = typed(command);
            assert_eq!(again.code, 0, "{command}: {again:?}");
        };
        std::fs::write(&lines, written("a.")).unwrap();
        ok(&node, &["import", &lines]);
        if sets {
            goes_on(&["cp", "-r", "a", "b"], "distkv-node cp a b --recursive --connect ");
            assert_eq!((tree("a"), tree("b")), (100, 100));
            ok(&node, &["delete", "-r", "b"]);
            goes_on(&["cp", "a.n005", "b"], "distkv-node cp a.n005 b --connect ");
            ok(&node, &["delete", "-r", "b"]);
        }
        goes_on(&["mv", "-r", "a", "b"], "distkv-node mv a b --recursive --connect ");
        assert_eq!((tree("a"), tree("b")), (0, 100));

        std::fs::write(&lines, if sets { written("b.x.") } else { written("b.n007.") }).unwrap();
        goes_on(&["apply", &lines, "--below", "b", "--delete"], "distkv-node apply ");
        assert_eq!(tree("b"), 100);
        let deletions: String =
            (0..100).map(|n| format!("{{\"path\": \"c.n{n}\", \"deleted\": true}}\n")).collect();
        std::fs::write(&lines, if sets { written("c.") } else { deletions }).unwrap();
        goes_on(&["import", &lines, "--deletions"], "distkv-node import ");
        ok(&node, &["delete", "-r", "b"]);
    }
    // What somebody else has put there stays.
    ok(&node, &["set", "a.x", "1"]);
    ok(&node, &["set", "d.x", "2"]);
    let done = run(&["mv", "-r", "a", "d", "--connect", &node.client.to_string()], &[], b"");
    assert!(done.code == 5 && !done.stderr.contains("goes on"), "{done:?}");
    assert_eq!(ok(&node, &["get", "a.x"]) + &ok(&node, &["get", "d.x"]), "1\n2\n");
}

#[test]
fn an_import_whose_node_is_lost_names_the_lines_that_may_have_been_imported() {
    let folder = tempfile::tempdir().unwrap();
    let lines = folder.path().join("lines").to_str().unwrap().to_owned();
    let written = (1..=3).map(|n| format!("{{\"path\": \"a.n{n}\", \"value\": 1}}\n"));
    std::fs::write(&lines, written.collect::<String>()).unwrap();
    let node = FakeNode::start(|_| Vec::new());
    let connect = node.address.to_string();
    let done = run(&["import", &lines, "--connect", &connect, "--timeout", "1s"], &[], b"");
    assert_eq!(done.code, 7, "{done:?}");
    assert!(done.stderr.starts_with("error: line 1 (a.n1): "), "{done:?}");
    let told = "lines 1 to 3 may have been imported; the lines behind these were not imported; `distkv-node import ";
    assert!(done.stderr.contains(told), "{done:?}");
}

#[test]
fn a_snapshot_that_was_not_sent_whole_is_not_restored_and_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("all.dkv").to_str().unwrap().to_owned();
    let node = NodeProcess::run("n1");
    ok(&node, &["set", "a", "1"]);
    ok(&node, &["snapshot", "save", "--to", &saved]);
    let connect = cut_at(&node, b"\xa5start\xc3", true).to_string();
    let done = run(&["snapshot", "restore", &saved, "--connect", &connect], &[], b"");
    assert_eq!(done.code, 6, "nothing may have been done: {done:?}");
    assert!(done.stderr.contains(&format!("nothing of {saved} was restored")), "{done:?}");
}

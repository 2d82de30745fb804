//! Commands that are ended by a signal while a node does what it was asked, which it does to its end all the same: they say so.

use std::process::{Child, Command};

use distkv::client::Fields;

use crate::cli::command::{ok, program};
use crate::cli::fake::FakeNode;
use crate::processes::{NodeProcess, PROGRAM, file_names, signal, wait_until};

/// Its exit code after this signal, and what it has said.
fn ended_by(name: &str, running: Child) -> (Option<i32>, String) {
    signal(running.id(), name);
    let done = running.wait_with_output().unwrap();
    (done.status.code(), String::from_utf8(done.stderr).unwrap())
}

#[test]
fn who_ends_the_deletion_of_a_tree_is_told_that_the_node_goes_on_and_how_to_undo_it() {
    for signal in ["INT", "TERM", "HUP"] {
        let node = FakeNode::start(|_| Vec::new());
        let at = node.address.to_string();
        let running = program(&["delete", "-r", "it's", "--connect", &at]).spawn().unwrap();
        wait_until("it waits for the node", || node.is_asked("delete_tree").then_some(()));
        let (code, said) = ended_by(signal, running);
        assert_eq!(code, Some(130), "{signal}: {said}");
        assert!(said.starts_with("interrupted: the node goes on"), "{signal}: {said}");
        let undo = said.split('`').nth(1).unwrap_or_default();
        let begin = r"distkv-node undo --below 'it'\''s' --at 20";
        assert!(undo.starts_with(begin) && undo.contains(&at), "{signal}: {said}");
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
    let done = command.args(["-c", &script]).env("TMPDIR", folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write"), "{said}");
    assert_eq!(file_names(folder.path()), [""; 0]);
}

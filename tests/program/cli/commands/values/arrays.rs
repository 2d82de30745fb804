//! Arrays as elements of paths, typed and shown: on real nodes that replicate and keep them, and in
//! files.

use std::fs;

use crate::cli::command::run;
use crate::processes::{NodeProcess, wait_until};

/// As they are typed, as they are shown, in the order of paths.
const PATHS: [(&str, &str); 6] = [
    ("el:()", "el:()"),
    ("el:1,(2,b'x')", "el:1,(2,:_b'x')"),
    ("el:1,(2,b'x').below", "el:1,(2,:_b'x').below"),
    ("el:(\"t\",)", "el:('t',)"),
    ("el:'t',1", "el:'t',1"),
    ("el:(b'x',1:.5,None,)", "el:(b'x',:_1:.5,:_None)"),
];

fn at(node: &NodeProcess, arguments: &[&str]) -> String {
    let address = node.client.to_string();
    let done = run(&[arguments, &["--connect", &address]].concat(), &[], b"");
    assert_eq!(done.code, 0, "{arguments:?}: {}", done.stderr);
    done.stdout
}

/// All that is below `el`, as path and value.
fn tree(node: &NodeProcess) -> Vec<(String, String)> {
    let text = at(node, &["tree", "el"]);
    let pair = |line: &str| line.rsplit_once(' ').map(|(p, v)| (p.trim().into(), v.into()));
    text.lines().filter_map(pair).collect()
}

fn expected() -> Vec<(String, String)> {
    let pair = |(number, (_, shown)): (usize, &(&str, &str))| ((*shown).into(), number.to_string());
    PATHS.iter().enumerate().map(pair).collect()
}

fn set_all(node: &NodeProcess) {
    for (number, (typed, shown)) in PATHS.iter().enumerate() {
        let said = at(node, &["set", typed, &number.to_string()]);
        assert!(said.starts_with(&format!("{shown}: set ")), "{said}");
    }
}

fn wait_for_all(node: &NodeProcess) {
    wait_until("all entries are there", || (tree(node) == expected()).then_some(()));
}

#[test]
fn arrays_in_paths_are_typed_shown_and_replicated() {
    let n1 = NodeProcess::run("n1");
    let n2 = NodeProcess::join("n2", &[&n1]);
    set_all(&n1);
    wait_for_all(&n2);
    for (number, (typed, shown)) in PATHS.iter().enumerate() {
        for path in [typed, shown] {
            assert_eq!(at(&n2, &["get", path]).trim(), number.to_string(), "{path}");
        }
    }
    // A late one gets them by a catch-up.
    let n3 = NodeProcess::join("n3", &[&n2]);
    wait_for_all(&n3);
    assert!(at(&n3, &["delete", "el:()"]).starts_with("el:(): deleted"));
    wait_until("the deletion is there", || (tree(&n1).len() == PATHS.len() - 1).then_some(()));
    let (first, third) = (n1.client.to_string(), n3.client.to_string());
    let verified = run(&["verify", &first, &third], &[], b"");
    assert_eq!(verified.code, 0, "{}", verified.stdout);
}

#[test]
fn arrays_in_paths_survive_a_restart_and_all_kinds_of_files() {
    let files = tempfile::tempdir().unwrap();
    let name = |name: &str| files.path().join(name).display().to_string();
    let data = name("data");
    let mut arguments = vec!["run", "--peer-wait", "0s", "--data-dir", &data];
    arguments.extend([
        "--sync",
        "every-batch",
        "--client",
        "127.0.0.1:0",
        "--gossip",
        "127.0.0.1:0",
    ]);
    let network = format!("arrays-{}", std::process::id());
    let start = || NodeProcess::start_in(&network, "n1", &arguments);
    let mut node = start();
    set_all(&node);
    node.kill();
    // From the log.
    let mut node = start();
    assert_eq!(tree(&node), expected());
    at(&node, &["snapshot", "save"]);
    for format in ["jsonl", "distkv", "snapshot"] {
        at(&node, &["snapshot", "save", "--to", &name(format), "--format", format]);
    }
    let lines = fs::read_to_string(name("jsonl")).unwrap();
    assert!(lines.contains(r#"{"path":"el:'t',1","value":4,"#), "{lines}");
    node.kill();
    // From the snapshot.
    let node = start();
    assert_eq!(tree(&node), expected());
    for format in ["jsonl", "distkv", "snapshot"] {
        let fresh = NodeProcess::run("fresh");
        at(&fresh, &["snapshot", "restore", &name(format), "--any-network"]);
        assert_eq!(tree(&fresh), expected(), "{format}");
    }
    let fresh = NodeProcess::run("fresh");
    at(&fresh, &["import", &name("jsonl")]);
    assert_eq!(tree(&fresh), expected());
}

//! After a theft: a wholly new key file in place of the old one, at a node whose keys were changed over the network before.

use std::fs;

use super::{Keys, copy, key, lines, program, wait_for_log};
use crate::processes::{NodeProcess, wait_until};

/// Whether this key file makes its holder an admin of the node.
fn gets_in(node: &NodeProcess, file: &str, ca: &str) -> bool {
    let client = node.client.to_string();
    let (code, said) = program(&[
        "whoami",
        "--key",
        file,
        "--node-ca",
        ca,
        "--connect",
        &client,
        "--timeout",
        "20s",
    ]);
    assert!(matches!(code, Some(0 | 3)), "{code:?}: {said}");
    assert_eq!(code == Some(3), said.contains("cluster key"), "{said}");
    code == Some(0)
}

#[test]
fn a_file_with_none_of_the_keys_before_replaces_them_all_wherever_these_were_ordered() {
    let keys = Keys::new();
    let (file, _) = keys.make("a");
    let node = keys.run("a", &["--key", &file]);
    let (code, said) = key(&node, &file, &["rotate", "--remove-old"]);
    assert_eq!(code, Some(0), "{said}");
    let (stolen, ca) = (keys.path("stolen"), keys.path("ca.pem"));
    copy(&file, &stolen);
    let (code, said) =
        program(&["key", "cert", "--ca", "--key", &file, "--to", ca.trim_end_matches(".pem")]);
    assert_eq!(code, Some(0), "{said}");
    let (made, new) = keys.make("made");
    let before = fs::read_to_string(&made).unwrap();
    copy(&made, &file);

    // Until the node has read it, what is ordered over the network goes into no file: a thief could order it.
    let (code, said) = key(&node, &stolen, &["rotate"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("none of the keys that the node uses"), "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), before);

    node.signal("HUP");
    wait_for_log(&node, &["WARN", "has none of the keys before", "replaces them all"]);
    wait_until("the new key is in use", || gets_in(&node, &file, &ca).then_some(()));
    assert!(!gets_in(&node, &stolen, &ca), "who has the stolen file is shut out");
    assert_eq!(lines(&file), lines(&made));

    // Further orders go into the new file.
    let (code, said) = program(&[
        "key",
        "rotate",
        "--remove-old",
        "--key",
        &file,
        "--node-ca",
        &ca,
        "--connect",
        &node.client.to_string(),
    ]);
    assert_eq!(code, Some(0), "{said}");
    let is_removed = |line: &String| line.starts_with(&format!("removed {new}"));
    assert!(lines(&file).iter().any(is_removed), "{:?}", lines(&file));
}

//! Keys that only one member has, because somebody added them there by hand, and files of `--key` that could not be written
//! in the middle of a rotation: both are brought to an end from any node, and what is left is never passed over.

use std::fs;

use serde_json::Value as Json;

use super::{Network, key, lines, listed, wait_for_keys};
use crate::processes::wait_until;
use crate::secure::{copy, program};

/// Adds a key to the file of a node by hand, and waits until the first node has heard of it; its id.
fn add_by_hand(network: &Network, place: usize) -> String {
    let (code, said) = program(&["key", "add", &network.files[place]]);
    assert_eq!(code, Some(0), "{said}");
    let stray = said.split_whitespace().nth(1).unwrap().to_owned();
    network.nodes[place].signal("HUP");
    wait_until("a has heard of the key", || has(network, place, &stray).then_some(()));
    stray
}

/// Whether a node has a key, as the first one has heard.
fn has(network: &Network, place: usize, id: &str) -> bool {
    let rows = listed(&network.nodes[0], &network.files[0]);
    let keys = rows[&network.nodes[place].name]["keys"].as_array().cloned();
    keys.into_iter().flatten().any(|key| key == id)
}

#[test]
fn a_key_that_only_another_member_has_is_removed_from_any_node() {
    let network = Network::start();
    let stray = add_by_hand(&network, 2);
    // Nothing but a member that has it makes a key one that can be removed.
    let (code, said) = key(&network.nodes[0], &network.files[0], &["remove", "00000000"]);
    assert!(code == Some(1) && said.contains("there is no key 00000000"), "{code:?} {said}");
    let (code, said) = key(&network.nodes[0], &network.files[0], &["use", &stray]);
    assert!(code == Some(1) && said.contains("; it is at c"), "{code:?} {said}");
    let (code, said) = key(&network.nodes[0], &network.files[0], &["remove", &stray]);
    assert!(code == Some(0) && said.contains(&format!("key {stray} is removed")), "{said}");
    wait_for_keys(&network.nodes[0], &network.files[0], &["a", "b", "c"], &[&network.old]);
    wait_until("it is not in the file of c", || {
        let is_gone = |line: &String| !line.starts_with(&format!("key {stray}"));
        lines(&network.files[2]).iter().all(is_gone).then_some(())
    });
    // Once more, it is as removed as any other.
    let (code, said) = key(&network.nodes[0], &network.files[0], &["remove", &stray, "--json"]);
    assert!(code == Some(0) && said.contains("\"changed\":false"), "{said}");
}

#[test]
fn a_rotation_removes_older_keys_of_all_members_and_names_one_that_somebody_is_about_to_use() {
    let network = Network::start();
    let older = add_by_hand(&network, 2);
    let (code, said) = network.rotate(&[]);
    assert!(code == Some(0) && said.contains(&format!("key remove {older}")), "{said}");
    let (code, said) = network.rotate(&["--remove-old"]);
    assert!(code == Some(0) && said.contains("and no other is left"), "{said}");
    let new = network.new_key();
    wait_for_keys(&network.nodes[0], &network.files[0], &["a", "b", "c"], &[&new]);

    // By hand, a key is added at one node after the other: that is not to be undone without a word.
    let (code, said) = network.rotate(&[]);
    assert_eq!(code, Some(0), "{said}");
    let next = add_by_hand(&network, 1);
    let (code, said) = network.rotate(&["--remove-old"]);
    assert_eq!(code, Some(1), "{said}");
    let words =
        [&format!("key {next}"), "by hand, at b,", &format!("distkv-node key remove {next}")];
    assert!(words.iter().all(|word| said.contains(*word)), "{said}");
    assert!(!said.contains("no other is left"), "{said}");
    assert!(has(&network, 1, &next));
    let (code, said) = key(&network.nodes[0], &network.files[0], &["remove", &next]);
    assert_eq!(code, Some(0), "{said}");
    let used = lines(&network.files[0])[0].split(' ').nth(1).unwrap().to_owned();
    wait_for_keys(&network.nodes[2], &network.files[2], &["a", "b", "c"], &[&used]);
}

#[test]
fn a_rotation_whose_file_could_not_be_written_for_a_time_is_ended_by_the_same_command() {
    let network = Network::start();
    let admin = network.keys.path("of-admin/key");
    fs::create_dir(network.keys.path("of-admin")).unwrap();
    copy(&network.files[0], &admin);
    let rotate =
        |options: &[&str]| key(&network.nodes[0], &admin, &[&["rotate"], options].concat());
    let (code, said) = key(&network.nodes[0], &admin, &["add"]);
    assert_eq!(code, Some(0), "{said}");
    // Where the new file would be written lies something else. (Permissions do not stop who is root.)
    let in_the_way = format!("{admin}.new");
    fs::create_dir(&in_the_way).unwrap();
    fs::write(format!("{in_the_way}/file"), "").unwrap();
    let (code, said) = rotate(&[]);
    let words = ["cannot be written", "type the same command again"];
    assert!(code == Some(1) && words.iter().all(|word| said.contains(word)), "{code:?} {said}");
    // It says so for as long as it is so, and takes the old key from nobody.
    let (code, said) = rotate(&["--remove-old"]);
    assert!(code == Some(1) && said.contains("cannot be written"), "{code:?} {said}");
    assert!(has(&network, 2, &network.old));
    fs::remove_dir_all(&in_the_way).unwrap();
    let (code, said) = rotate(&["--remove-old", "--json"]);
    assert_eq!(code, Some(0), "{said}");
    let new = network.new_key();
    let said: Json = serde_json::from_str(&said).unwrap();
    assert!(said["made"] == false && said["key"] == new.as_str(), "{said}");
    assert!(lines(&admin)[0].starts_with(&format!("key {new} primary")), "{:?}", lines(&admin));
    wait_for_keys(&network.nodes[0], &admin, &["a", "b", "c"], &[&new]);
}

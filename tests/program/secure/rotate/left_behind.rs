//! `key rotate --remove-old` while a member is away that uses the new key already: it removes the old one later, and until then
//! the exit code says so, and the same command makes no other key.

use std::path::Path;

use super::{Network, lines, wait_for_keys};

#[test]
fn an_old_key_that_a_member_still_has_is_told_and_the_same_command_goes_on_with_that() {
    let mut network = Network::start();
    let (code, said) = network.rotate(&[]);
    assert_eq!(code, Some(0), "{said}");
    let new = network.new_key();
    network.nodes[2].kill();
    let (code, said) = network.rotate(&["--remove-old", "--wait", "1s"]);
    assert_eq!(code, Some(1), "{said}");
    let words = ["c (", "still has it", "type the same command again", "members forget NAME"];
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
    let in_use = format!("key {new} primary shared");
    assert_eq!(lines(&network.files[0])[0], in_use);

    // Nothing has changed, and no other key is made.
    let (code, said) = network.rotate(&["--remove-old", "--wait", "1s"]);
    assert!(code == Some(1) && said.contains("still has it"), "{code:?} {said}");
    assert_eq!(lines(&network.files[0])[0], in_use);

    network.restart(2);
    wait_for_keys(&network.nodes[0], &network.files[0], &["a", "b", "c"], &[&new]);
    let (code, said) = network.rotate(&["--remove-old"]);
    let words = ["no other is left", "no other key was made"];
    assert!(code == Some(0) && words.iter().all(|word| said.contains(word)), "{code:?} {said}");
    assert_eq!(lines(&network.files[0])[0], in_use);
}

#[test]
fn by_force_a_member_that_still_has_the_old_key_is_told_and_the_same_command_is_not_advised() {
    let mut network = Network::start();
    let (code, said) = network.rotate(&[]);
    assert_eq!(code, Some(0), "{said}");
    let new = network.new_key();
    network.nodes[2].kill();
    let (code, said) = network.rotate(&["--remove-old", "--force", "--wait", "1s"]);
    assert_eq!(code, Some(0), "{said}");
    let words = ["c (", "still has it", "`distkv-node key list` shows", "members forget NAME"];
    assert!(words.iter().all(|word| said.contains(word)) && !said.contains("again"), "{said}");
    // It would make another key: the rotation has ended.
    assert!(!Path::new(&format!("{}.last-step", network.files[0])).exists());
    let (code, said) = network.rotate(&["--force", "--wait", "1s"]);
    assert_eq!(code, Some(0), "{said}");
    let in_use = format!("key {new} primary");
    let has_another = !lines(&network.files[0]).iter().any(|line| line.starts_with(&in_use));
    assert!(said.contains("is added") && has_another, "{said}");
}

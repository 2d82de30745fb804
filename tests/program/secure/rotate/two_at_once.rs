//! Two rotations at once: the one whose key is not in use yet stops, and either is ended by the next one.

use std::process::{Command, Stdio};

use super::{Network, key, lines, wait_for_keys};
use crate::processes::{PROGRAM, wait_until};

#[test]
fn a_rotation_stops_where_somebody_else_has_put_another_key_to_use_meanwhile() {
    let network = Network::start();
    // It has added its key, and waits for c.
    network.nodes[2].freeze();
    let client = network.nodes[0].client.to_string();
    let rotate =
        ["key", "rotate", "--wait", "5m", "--key", &network.files[0], "--connect", &client];
    let mut command = Command::new(PROGRAM);
    command.args(rotate).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = command.spawn().unwrap();
    wait_until("b has a second key", || (lines(&network.files[1]).len() == 2).then_some(()));
    let first = network.new_key();
    // Somebody else does not wait.
    let (code, said) = key(&network.nodes[1], &network.files[1], &["add", "--json"]);
    let added: serde_json::Value = serde_json::from_str(&said).expect(&said);
    let second = added["key"].as_str().unwrap();
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = key(&network.nodes[1], &network.files[1], &["use", second, "--force"]);
    assert_eq!(code, Some(0), "{said}");
    let done = running.wait_with_output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    let words = [
        &format!("stopped before key {first} is used: somebody else has changed the key meanwhile"),
        &format!("the nodes use key {second} from now on"),
        &format!("`distkv-node key remove {first} "),
    ];
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(words.iter().all(|word| said.contains(*word)), "{said}");
    network.nodes[2].signal("CONT");
    // Nobody goes on with a key that has been superseded.
    for place in [0, 1] {
        let (node, file) = (&network.nodes[place], &network.files[place]);
        let (code, said) = key(node, file, &["rotate", "--wait", "60s"]);
        let told = format!("all nodes use key {second}. No other key was made");
        assert!(code == Some(0) && said.contains(&told), "{said}");
    }
    let (code, said) = network.rotate(&["--remove-old", "--wait", "60s"]);
    assert_eq!(code, Some(0), "{said}");
    wait_for_keys(&network.nodes[0], &network.files[0], &["a", "b", "c"], &[second]);
}

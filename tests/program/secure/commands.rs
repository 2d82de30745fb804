//! Commands at nodes with a cluster key, as somebody types them who looks after users.

use super::{Keys, copy, program};

#[test]
fn a_command_whose_primary_key_the_node_does_not_have_yet_uses_another_one_of_its_file() {
    let keys = Keys::new();
    let (file, _) = keys.make("key");
    let ahead = keys.path("ahead");
    copy(&file, &ahead);
    let node = keys.run("n1", &["--key", &file]);
    let address = node.client.to_string();
    let whoami = |key: &str| program(&["whoami", "--connect", &address, "--key", key]);
    // The operator's file is a step ahead: it uses a key that the node has not read yet.
    let (_, said) = program(&["key", "add", &ahead]);
    let new = said.split_whitespace().nth(1).unwrap().to_owned();
    let (code, said) = program(&["key", "use", &new, &ahead]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = whoami(&ahead);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the holder of the cluster's key, role admin"), "{said}");
    // A file without any key of the node's gets nowhere.
    let (stranger, _) = keys.make("stranger");
    let (code, said) = whoami(&stranger);
    assert_eq!(code, Some(1), "{said}");
}

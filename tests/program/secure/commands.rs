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

#[test]
fn a_user_s_ticket_is_all_that_its_program_needs_and_the_secret_before_is_worthless() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let node = keys.run("n1", &["--key", &key]);
    let address = node.client.to_string();
    let as_admin = |arguments: &[&str]| {
        program(&[arguments, &["--connect", &address, "--key", &key]].concat())
    };
    let (code, said) = as_admin(&["user", "add", "robot", "--method", "token", "--acl", "*"]);
    assert_eq!(code, Some(0), "{said}");
    let first = said.lines().last().unwrap().to_owned();
    let (ticket, secret) = (keys.path("robot.ticket"), keys.path("first.secret"));
    std::fs::write(&secret, first).unwrap();
    let whoami = |options: &[&str]| program(&[&["whoami", "--json"], options].concat());
    // A ticket that an operator puts together from the key file and a secret.
    let made = ["ticket", "new", &address, "--key", &key, "--user", "robot", "--secret", &secret];
    let (code, by_hand) = program(&made);
    assert_eq!(code, Some(0), "{by_hand}");
    let (code, said) = whoami(&["--ticket", by_hand.trim()]);
    assert!(code == Some(0) && said.contains("\"user\":\"robot\""), "{said}");

    let (code, said) = as_admin(&["user", "ticket", "robot", "--to", &ticket]);
    assert_eq!(code, Some(0), "{said}");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&ticket).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let at_file = format!("@{ticket}");
    let (code, said) = whoami(&["--ticket", &at_file]);
    assert!(code == Some(0) && said.contains("\"user\":\"robot\""), "{said}");
    let (code, said) = program(&["ticket", "show", &at_file]);
    assert!(code == Some(0) && said.contains(&keys.network) && said.contains("sha256:"), "{said}");
    let (code, said) = whoami(&["--ticket", by_hand.trim()]);
    assert_eq!(code, Some(1), "{said}");

    // A file that is there is not replaced, and then the secret is not either.
    let (code, said) = as_admin(&["user", "ticket", "robot", "--to", &ticket]);
    assert!(code == Some(1) && said.contains("--force"), "{said}");
    assert_eq!(whoami(&["--ticket", &at_file]).0, Some(0));
    let (code, said) = as_admin(&["user", "ticket", "nobody", "--to", &keys.path("x")]);
    assert!(code == Some(1) && said.contains("there is no user \"nobody\""), "{said}");
}

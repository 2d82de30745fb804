//! What a thief of a key file has besides the keys: the CA. A rotation leaves it, a running node keeps it, and only nodes that
//! are started with a file of another CA take nothing any more that was signed with it.

use std::fs;

use super::{Network, key};
use crate::processes::{NodeProcess, wait_until};
use crate::secure::{Keys, program, wait_for_links, wait_for_log};

/// Who that is for a node that shows a certificate of the CA in `file`, who has one for "boss" of the CA in `signer`.
fn whoami(keys: &Keys, node: &NodeProcess, file: &str, signer: &str) -> (Option<i32>, String) {
    let (to, client) = (keys.path("boss"), node.client.to_string());
    let (cert, cert_key) = (format!("{to}.pem"), format!("{to}.key"));
    for old in [&cert, &cert_key] {
        let _ = fs::remove_file(old);
    }
    let (code, said) = program(&["key", "cert", "boss", "--key", signer, "--to", &to]);
    assert_eq!(code, Some(0), "{said}");
    let made = ["ticket", "new", &client, "--key", file, "--cert", &cert, "--cert-key", &cert_key];
    let (code, ticket) = program(&made);
    assert_eq!(code, Some(0), "{ticket}");
    program(&["whoami", "--ticket", ticket.trim()])
}

/// The file, with the CA of another one, as the guide to security says it.
fn take_ca(file: &str, other: &str) {
    let lines = |path: &str, of_ca: bool| {
        let text = fs::read_to_string(path).unwrap();
        let is_it = |line: &&str| line.starts_with("ca ") == of_ca;
        text.lines().filter(is_it).map(|line| format!("{line}\n")).collect::<String>()
    };
    assert_eq!(lines(other, true).lines().count(), 2);
    fs::write(file, lines(file, false) + &lines(other, true)).unwrap();
}

#[test]
fn who_has_an_old_key_file_passes_for_any_user_until_the_nodes_are_started_with_another_ca() {
    let mut network = Network::start();
    let (stale, file) = (network.stale.clone(), network.files[0].clone());
    let (other, _) = network.keys.make("other");
    let (code, said) = key(&network.nodes[0], &file, &["rotate", "--remove-old"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("The CA in the key files stays"), "{said}");
    let add = ["user", "add", "boss", "--method", "token", "--key", &file];
    let client = network.nodes[0].client.to_string();
    let (code, said) = program(&[&add[..], &["--connect", &client]].concat());
    assert_eq!(code, Some(0), "{said}");
    let is_boss = |(code, said): (Option<i32>, String)| {
        assert!(code == Some(0) && said.contains("boss (token), role admin"), "{code:?} {said}");
    };
    is_boss(whoami(&network.keys, &network.nodes[0], &stale, &stale));

    // Another CA in the file: a running node says that it goes on with the one that it has.
    take_ca(&file, &other);
    network.nodes[0].signal("HUP");
    wait_for_log(&network.nodes[0], &["WARN", "another CA", "restarted"]);
    is_boss(whoami(&network.keys, &network.nodes[0], &stale, &stale));
    // Started with it, it has that one; the links do not depend on it.
    network.nodes[0].kill();
    network.restart(0);
    wait_for_links(&network.nodes.each_ref(), true);
    wait_until("the user is there again", || {
        let (code, _) = whoami(&network.keys, &network.nodes[0], &file, &other);
        (code == Some(0)).then_some(())
    });
    let (code, said) = whoami(&network.keys, &network.nodes[0], &stale, &stale);
    assert!(code == Some(3) && said.contains("wrong CA"), "{code:?} {said}");
    let (code, said) = whoami(&network.keys, &network.nodes[0], &file, &stale);
    assert!(code == Some(3) && !said.contains("boss (token)"), "{code:?} {said}");
    is_boss(whoami(&network.keys, &network.nodes[0], &file, &other));
    // The others still have the old one.
    is_boss(whoami(&network.keys, &network.nodes[1], &stale, &stale));
}

#[test]
fn commands_that_take_a_key_out_of_use_say_that_the_ca_stays() {
    let keys = Keys::new();
    let (file, old) = keys.make("key");
    let of_file = |arguments: &[&str]| {
        let (code, said) = program(&[&["key"], arguments, &[file.as_str()]].concat());
        assert_eq!(code, Some(0), "{said}");
        said
    };
    let said = of_file(&["add"]);
    assert!(!said.contains("CA"), "{said}");
    let new = said.split_whitespace().nth(1).unwrap().to_owned();
    assert!(!of_file(&["use", &new]).contains("CA"));
    let with_both = fs::read_to_string(&file).unwrap();
    let said = of_file(&["remove", &old]);
    let is_said =
        |said: &str| said.contains("The CA in the key files stays") && said.contains("`key new`");
    assert!(is_said(&said) && said.lines().count() == 2, "{said}");
    fs::write(&file, &with_both).unwrap();
    let said = of_file(&["remove", &old, "--json"]);
    assert!(!said.contains("CA") && said.lines().count() == 1, "{said}");
    // A file without a CA has none that stays.
    let without = with_both.lines().filter(|line| !line.starts_with("ca"));
    fs::write(&file, without.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    assert!(!of_file(&["remove", &old]).contains("CA"));
}

//! Key files and the command `key`, and what a node says of a file that it does not take.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Command;

use super::{Keys, counter, processes, program, wait_for_log};

const NOWHERE: [&str; 4] = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];

/// Starts a node that is expected not to start: its exit code, and what it said.
fn start(options: &[&str]) -> (Option<i32>, String) {
    program(&[&["run", "--name", "n1"], options].concat())
}

#[test]
fn a_key_file_is_made_once_and_only_for_its_owner() {
    let keys = Keys::new();
    let (path, id) = keys.make("key");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(&format!("network {}\nkey {id} ", keys.network)), "{text}");
    let new = ["key", "new", "--network", &keys.network, "--to", &path];
    let (code, said) = program(&new);
    assert!(code == Some(1) && said.contains("--force"), "{said}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "it is as it was");
    let (code, said) = program(&[&new[..], &["--force"]].concat());
    assert_eq!(code, Some(0), "{said}");
    assert_ne!(fs::read_to_string(&path).unwrap(), text);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    let (code, said) = program(&["key", "new", "--network", "", "--to", &keys.path("other")]);
    assert!(code == Some(2) && said.contains("--network"), "{said}");
    assert!(!fs::exists(keys.path("other")).unwrap());
}

#[test]
fn keys_are_added_used_and_removed_and_no_command_shows_a_secret() {
    let keys = Keys::new();
    let (path, old) = keys.make("key");
    let key = |arguments: &[&str]| {
        let (code, said) = program(&[&["key"], arguments, &[path.as_str()]].concat());
        assert!(!said.contains(&secret_of(&path)), "{said}");
        (code, said)
    };
    let (code, said) = key(&["add"]);
    assert_eq!(code, Some(0), "{said}");
    let new = said.split_whitespace().nth(1).unwrap().to_owned();
    let (_, list) = key(&["list"]);
    assert!(
        list.contains(&format!("{old}  yes")) && list.contains(&format!("{new}  no")),
        "{list}"
    );
    let (code, said) = key(&["remove", &old]);
    assert!(code == Some(1) && said.contains("is the primary; use another one first"), "{said}");
    assert_eq!(key(&["use", &new]).0, Some(0));
    assert_eq!(key(&["remove", &old]).0, Some(0));
    assert!(key(&["remove", &old]).1.contains("is removed already"));
    let (_, list) = key(&["list", "--json"]);
    let line: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!(line, serde_json::json!({"network": keys.network, "key": new, "primary": true}),);
    let (code, said) = key(&["use", "00000000"]);
    assert!(code == Some(1) && said.contains("there is no key 00000000"), "{said}");
    assert_eq!(key(&["use", "nonsense"]).0, Some(2));
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
}

fn secret_of(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap();
    let line = text.lines().find(|line| line.starts_with("key ")).unwrap();
    line.split(' ').nth(2).unwrap().to_owned()
}

#[test]
fn a_node_does_not_start_with_a_file_that_others_can_read_or_that_is_damaged() {
    let keys = Keys::new();
    let (path, _) = keys.make("key");
    let at = |path: &str| start(&[&["--key", path], &NOWHERE[..]].concat());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let (code, said) = at(&path);
    assert!(code == Some(2) && said.contains(&format!("chmod 600 {path}")), "{code:?} {said}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let secret = secret_of(&path);
    let other = if secret.starts_with('0') { "1" } else { "0" };
    fs::write(&path, text.replace(&secret, &format!("{other}{}", &secret[1..]))).unwrap();
    let (code, said) = at(&path);
    let place = format!("{path}, line 4: the secret has the id ");
    assert!(code == Some(2) && said.contains(&place), "{code:?} {said}");
    assert!(!said.contains(&secret[1..]), "{said}");
    let (code, said) = at(&keys.path("none"));
    assert!(code == Some(2) && said.contains("key new --network NAME --to FILE"), "{said}");
}

#[test]
fn the_network_is_the_files_and_no_other() {
    let keys = Keys::new();
    let (path, id) = keys.make("key");
    let (code, said) = start(&[&["--key", &path, "--network", "other"], &NOWHERE[..]].concat());
    assert!(code == Some(2) && said.contains("--network says \"other\""), "{code:?} {said}");
    let options = [&["run", "--key", &path, "--peer-wait", "0s"], &NOWHERE[..]].concat();
    let node = processes::NodeProcess::start("n1", &options);
    let status = node.connect().call("status", &[]);
    let network = processes::field(&status, "network").unwrap();
    assert_eq!(network.as_str(), Some(keys.network.as_str()));
    wait_for_log(&node, &["started", &format!("key={id}")]);
}

#[test]
fn ports_that_other_machines_reach_need_a_key_or_a_word() {
    let open = ["0.0.0.0:0", "[::]:0"];
    for (option, other) in [("--client", "--gossip"), ("--gossip", "--client")] {
        for at in open {
            let (code, said) = start(&[option, at, other, "127.0.0.1:0"]);
            assert_eq!(code, Some(2), "{said}");
            let words =
                [&option[2..], "port", "key new --network distkv", "--key FILE", "--insecure"];
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
    }
    let keys = Keys::new();
    let (path, _) = keys.make("key");
    let any = ["run", "--peer-wait", "0s", "--client", "0.0.0.0:0", "--gossip", "0.0.0.0:0"];
    drop(processes::NodeProcess::start("n1", &[&any[..], &["--insecure"]].concat()));
    drop(processes::NodeProcess::start("n1", &[&any[..], &["--key", &path]].concat()));
    let (code, said) = start(&[&["--key", &path, "--insecure"], &NOWHERE[..]].concat());
    assert!(code == Some(2) && said.contains("--insecure is for nodes without --key"), "{said}");
    let http = ["--key", &path, "--http", "127.0.0.1:0"];
    let token_file = ["--http-token-file", "none"];
    for (options, named) in [
        (&token_file[..], "--http-token-file is"),
        (&["--http-write"], "--http-write is"),
        (&["--http-write", token_file[0], token_file[1]], "--http-write and --http-token-file are"),
    ] {
        let (code, said) = start(&[&http, options, &NOWHERE[..]].concat());
        let expected = format!("error: {named} for a node without --key;");
        assert!(code == Some(2) && said.contains(&expected), "{said}");
    }
    let (code, said) = start(&[&["--plaintext-peers"], &NOWHERE[..]].concat());
    assert!(code == Some(2) && said.contains("--plaintext-peers needs --key"), "{said}");
}

#[test]
fn a_bad_file_at_sighup_is_a_warning_and_the_keys_stay() {
    let keys = Keys::new();
    let (path, _) = keys.make("key");
    let good = fs::read_to_string(&path).unwrap();
    let (own, _) = keys.make("own");
    let a = keys.run("a", &["--key", &path]);
    fs::write(&path, "network nonsense").unwrap();
    a.signal("HUP");
    wait_for_log(&a, &["WARN", "the keys stay as they are", &path]);
    fs::write(&path, good.replace(&keys.network, "another")).unwrap();
    a.signal("HUP");
    wait_for_log(&a, &["WARN", "the keys stay as they are", "is of network another"]);
    fs::write(&own, &good).unwrap();
    let b = keys.join("b", &a, &["--key", &own]);
    assert_eq!(counter(&b, "links_secured"), 1);
    fs::write(&path, &good).unwrap();
    a.signal("HUP");
    wait_for_log(&a, &["INFO", "it is as it was"]);
}

#[test]
fn nobody_waits_for_a_pipe_in_the_place_of_the_key_file() {
    let keys = Keys::new();
    let (path, _) = keys.make("key");
    let mut a = keys.run("a", &["--key", &path]);
    let pipe = || {
        fs::remove_file(&path).unwrap();
        assert!(Command::new("mkfifo").args(["-m", "600", &path]).status().unwrap().success());
    };
    pipe();
    a.signal("HUP");
    wait_for_log(&a, &["WARN", "the keys stay as they are", "it is not a file"]);
    a.signal("TERM");
    assert_eq!(a.wait().code(), Some(0));
    let (code, said) = program(&["get", "a", "--key", &path]);
    assert!(code == Some(2) && said.contains("it is not a file"), "{said}");
    let (code, said) = start(&[&["--key", &path], &NOWHERE[..]].concat());
    assert!(code == Some(2) && said.contains("it is not a file"), "{said}");
}

//! Commands at nodes with a cluster key, as somebody types them who looks after users.

use std::os::unix::fs::PermissionsExt as _;

use super::{Keys, copy, program};
use crate::processes::wait_until;

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
    assert_eq!(code, Some(3), "{said}");
}

#[test]
fn where_a_key_asks_for_logins_auth_does_not_say_that_clients_need_none() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let node = keys.run("n1", &["--key", &key]);
    let address = node.client.to_string();
    let as_admin = |arguments: &[&str]| {
        let (code, said) = program(&[arguments, &["--connect", &address, "--key", &key]].concat());
        assert_eq!(code, Some(0), "{said}");
        said
    };
    // No admin; but whoever has the key is one.
    as_admin(&["user", "add", "robot", "--method", "token", "--role", "operator"]);
    let asks = "n1 has a key, so it asks its clients for a login whatever the data says";
    for arguments in
        [&["auth", "on", "token"][..], &["auth", "on", "token", "--grace", "10m"], &["auth", "off"]]
    {
        let said = as_admin(arguments);
        assert!(said.contains(asks), "{said}");
        assert!(!said.contains("go on") && !said.contains("need not"), "{said}");
    }
}

#[test]
fn status_says_that_a_node_with_a_key_is_up_and_how_to_log_in() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let node = keys.run("n1", &["--key", &key]);
    let address = node.client.to_string();
    let (code, said) = program(&["status", "--connect", &address]);
    let asks = "n1 is up and asks for a login: use --key, --ticket, or --user and --secret-file\n\
                It says: nothing was done: clients of this node must log in\n";
    assert_eq!((code, said.as_str()), (Some(1), asks));
    let (code, said) = program(&["status", "--connect", &address, "--key", &key]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn commands_without_a_login_say_that_one_is_needed() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let node = keys.run("n1", &["--key", &key]);
    let address = node.client.to_string();
    let both = format!("{address},localhost:{}", node.client.port());
    for command in [
        &["get", "a"][..],
        &["set", "a", "1"],
        &["tree"],
        &["watch", "a"],
        &["monitor"],
        &["members"],
        &["members", "forget", "n2"],
        &["conflicts"],
        &["conflicts", "--follow"],
        &["wait", "--timeout", "1h"],
    ] {
        for at in [&address, &both] {
            let (code, said) = program(&[command, &["--connect", at]].concat());
            assert_eq!(code, Some(3), "{command:?}: {said}");
            assert!(
                said.contains("log in with --") && said.contains("--key"),
                "{command:?}: {said}"
            );
            // It has not begun.
            assert_eq!(said.lines().count(), 1, "{command:?}: {said}");
        }
    }
}

#[test]
fn wait_ends_at_once_where_a_node_refuses_its_client() {
    let keys = Keys::new();
    let ((key, _), (stranger, _)) = (keys.make("key"), keys.make("stranger"));
    let node = keys.run("n1", &["--key", &key]);
    let address = node.client.to_string();
    let (secret, wrong) = (keys.path("joe.secret"), keys.path("wrong.secret"));
    std::fs::write(&wrong, "another one\n").unwrap();
    let at = |arguments: &[&str]| program(&[arguments, &["--connect", &address]].concat());
    let add = ["user", "add", "joe", "--acl", "*", "--new-secret-file", &secret, "--key", &key];
    assert_eq!(at(&add).0, Some(0));
    let no_ca = ["ticket", "new", &address, "--ca-hash"];
    let hash = format!("sha256:{}", "0".repeat(64));
    let other_ca = program(&[&no_ca[..], &[&hash]].concat()).1;
    let as_joe = |secret| ["--user", "joe", "--secret-file", secret];
    for (options, what) in [
        (&["--key", &stranger][..], "wrong CA"),
        (&as_joe(&wrong), "no user \"joe\", or its secret is another one"),
        (&["--user", "amy", "--secret-file", &wrong], "no user \"amy\""),
        (&["--ticket", other_ca.trim()], "wrong CA"),
        // Who may not see the node's state.
        (&as_joe(&secret), "(denied)"),
    ] {
        let (code, said) = at(&[&["wait", "--timeout", "1h"], options].concat());
        assert_eq!(code, Some(3), "{options:?}: {said}");
        let (code, told) = at(&[&["status"], options].concat());
        assert_eq!((code, &said), (Some(3), &told), "{options:?}: as other commands");
        assert!(said.contains(what), "{options:?}: {said}");
    }
    let (code, said) = at(&["wait", "--key", &key]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_user_with_a_password_logs_in_where_the_network_asks_for_tokens() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let node = keys.run("n1", &["--key", &key]);
    let address = node.client.to_string();
    let secret = keys.path("joe.secret");
    let at = |arguments: &[&str]| program(&[arguments, &["--connect", &address]].concat());
    let as_admin = |arguments: &[&str]| at(&[arguments, &["--key", &key]].concat());
    let add = ["user", "add", "joe", "--acl", "*", "--new-secret-file", &secret];
    assert_eq!(as_admin(&add).0, Some(0));
    let boss = ["user", "add", "boss", "--role", "admin", "--method", "token"];
    assert_eq!(as_admin(&boss).0, Some(0));
    let (code, said) = as_admin(&["auth", "on", "token"]);
    assert_eq!(code, Some(0), "{said}");
    for more in [&[][..], &["--login", "password"], &["--login", "token"]] {
        let whoami = ["whoami", "--user", "joe", "--secret-file", &secret];
        let (code, said) = at(&[&whoami[..], more].concat());
        assert!(code == Some(0) && said.contains("joe"), "{more:?}: {said}");
    }
}

#[test]
fn bench_logs_in_and_says_so_where_it_may_not() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let node = keys.run("n1", &["--key", &key]);
    let address = node.client.to_string();
    let bench = |options: &[&str]| {
        let load = ["bench", "--connect", &address, "--keys", "50", "-c", "3", "--warm-up", "0s"];
        program(&[&load[..], &["--count", "200", "--json"], options].concat())
    };
    let (code, said) = bench(&["--key", &key]);
    assert!(code == Some(0) && said.contains("\"errors\":0"), "{code:?} {said}");
    let add = ["user", "add", "robot", "--method", "token", "--role", "admin", "--key", &key];
    let (code, said) = program(&[&add[..], &["--connect", &address]].concat());
    assert_eq!(code, Some(0), "{said}");
    let secret = keys.path("robot.secret");
    std::fs::write(&secret, said.lines().last().unwrap()).unwrap();
    let robot = ["--user", "robot", "--login", "token", "--secret-file", &secret];
    let (code, said) = bench(&robot);
    assert!(code == Some(0) && said.contains("\"errors\":0"), "{code:?} {said}");
    let (code, said) = bench(&[]);
    assert!(code == Some(3) && said.contains("log in"), "{code:?} {said}");
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
    assert!(said.contains("loopback addresses only"), "{said}");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&ticket).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let at_file = format!("@{ticket}");
    let (code, said) = whoami(&["--ticket", &at_file]);
    assert!(code == Some(0) && said.contains("\"user\":\"robot\""), "{said}");
    let (code, said) = program(&["ticket", "show", &at_file]);
    assert!(code == Some(0) && said.contains(&keys.network) && said.contains("sha256:"), "{said}");
    let (code, said) = whoami(&["--ticket", by_hand.trim()]);
    assert_eq!(code, Some(3), "{said}");

    // A file that is there is not replaced, and then the secret is not either.
    let (code, said) = as_admin(&["user", "ticket", "robot", "--to", &ticket]);
    assert!(code == Some(1) && said.contains("--force"), "{said}");
    assert_eq!(whoami(&["--ticket", &at_file]).0, Some(0));
    let (code, said) = as_admin(&["user", "ticket", "nobody", "--to", &keys.path("x")]);
    assert!(code == Some(1) && said.contains("there is no user \"nobody\""), "{said}");
}

#[test]
fn a_node_that_is_alone_for_too_long_lets_no_user_log_in() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let alone = ["--key", key.as_str(), "--isolated-logins", "1s"];
    let n1 = keys.run("n1", &alone);
    let mut n2 = keys.join("n2", &n1, &alone);
    let address = n1.client.to_string();
    let secret = keys.path("joe.secret");
    std::fs::write(&secret, "a secret of joe\n").unwrap();
    let at = |arguments: &[&str]| program(&[arguments, &["--connect", &address]].concat());
    let as_joe = || at(&["whoami", "--user", "joe", "--secret-file", &secret]);
    let add = ["user", "add", "joe", "--acl", "*", "--new-secret-file", &secret, "--key", &key];
    let (code, said) = at(&add);
    assert_eq!(code, Some(0), "{said}");
    // Where the machine stands still, n1 may be alone for a moment.
    wait_until("joe can log in", || (as_joe().0 == Some(0)).then_some(()));
    n2.kill();
    let said = wait_until("joe cannot log in", || {
        let (code, said) = as_joe();
        (code != Some(0)).then_some(said)
    });
    assert!(said.contains("(not_ready)") && said.contains("--isolated-logins"), "{said}");
    // An admin can, and is told.
    let (code, said) = at(&["status", "--key", &key]);
    assert!(code == Some(0) && said.contains("--isolated-logins"), "{said}");
    let back = ["join", &n1.gossip.to_string(), "--client", "127.0.0.1:0"];
    let back = [&back[..], &["--gossip", "127.0.0.1:0"], &alone].concat();
    let _n2 = crate::processes::NodeProcess::start_in(&keys.network, "n2", &back);
    wait_until("joe is let in again", || (as_joe().0 == Some(0)).then_some(()));
}

#[test]
fn a_secret_that_is_not_there_is_made_for_its_owner_only_and_stays_only_if_it_is_taken() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let node = keys.run("n1", &["--key", &key]);
    let address = node.client.to_string();
    let secret = keys.path("joe.secret");
    let add = || {
        let user = ["user", "add", "joe", "--acl", "*", "--new-secret-file", &secret];
        program(&[&user[..], &["--connect", &address, "--key", &key]].concat())
    };
    let (code, said) = add();
    assert!(code == Some(0) && said.contains("the secret was made"), "{said}");
    let mode = std::fs::metadata(&secret).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read_to_string(&secret).unwrap();
    assert!(text.trim().len() == 32 && !said.contains(text.trim()), "{said}");
    let login = ["whoami", "--connect", &address, "--user", "joe", "--secret-file", &secret];
    let (code, said) = program(&login);
    assert!(code == Some(0) && said.contains("joe (password)"), "{said}");
    // There is a joe already: whose secret this would be, nobody would know.
    std::fs::remove_file(&secret).unwrap();
    let (code, said) = add();
    assert_ne!(code, Some(0), "{said}");
    assert!(!std::fs::exists(&secret).unwrap());
}

#[test]
fn an_entry_s_past_shows_no_secret_either() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let (data, secret) = (keys.path("data"), keys.path("secret"));
    let node = keys.run("a", &["--key", &key, "--data-dir", &data]);
    let client = node.client.to_string();
    let ask = |arguments: &[&str]| {
        let (code, said) = program(&[arguments, &["--key", &key, "--connect", &client]].concat());
        assert_eq!(code, Some(0), "{said}");
        said
    };
    for (user, method) in [("joe", "password"), ("panel", "token")] {
        std::fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
        let options = ["--method", method, "--acl", "*", "--new-secret-file", &secret];
        ask(&[&["user", "add", user][..], &options].concat());
        let at = format!(":n.auth.{method}.user.{user}");
        for more in [&[][..], &["--json"]] {
            let said = ask(&[&["history", &at][..], more].concat());
            assert_eq!(said.matches("set").count(), 1, "{said}");
            for word in ["argon2", "password\":", "token\":", "role"] {
                assert!(!said.contains(word), "{said}");
            }
        }
    }
    let said = ask(&["history", ":n.auth.password.user.joe.acl"]);
    assert!(said.contains("key"), "a list's name is no secret: {said}");
}

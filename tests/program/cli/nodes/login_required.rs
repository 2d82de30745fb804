//! Data of a Python DistKV that had authorisation switched on: served to nobody without a login, whatever way
//! it comes, while nodes go on replicating; and the ways out that an operator has.

use std::net::SocketAddr;

use distkv::protocol::client::Action;
use rmpv::Value;

use crate::cli::command::{Done, cli, run};
use crate::processes::{Client, NodeProcess, array, field, wait_until};

/// A state that a Python server saved while its clients had to log in by password; and its change log.
const SAVED: [&str; 2] = [
    "tests/fixtures/distkv-files/password-auth.bin",
    "tests/fixtures/distkv-files/password-auth-log.bin",
];
const SECRET: &str = "for joe only";

fn at(client: SocketAddr, arguments: &[&str]) -> Done {
    run(&[arguments, &["--connect", &client.to_string()]].concat(), &[], b"")
}

fn load(file: &str, more: &[&str]) -> NodeProcess {
    let own = ["run", "--peer-wait", "0s", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let network = format!("closed-{}-{:?}", std::process::id(), std::thread::current().id());
    NodeProcess::start_in(&network, "n1", &[&own[..], &["--load", file], more].concat())
}

fn ignoring(name: &str, peer: &NodeProcess) -> NodeProcess {
    let gossip = peer.gossip.to_string();
    let own = ["join", &gossip, "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    NodeProcess::start_in(&peer.network, name, &[&own[..], &["--ignore-auth"]].concat())
}

/// Every field that some action needs; the values that they have for most.
fn fields_for(action: Action) -> Vec<(&'static str, Value)> {
    let nodes = match action {
        Action::CheckDeleted => Value::Map(Vec::new()),
        _ => Value::from(true),
    };
    vec![
        ("path", array(&["site", "secret"])),
        ("nodes", nodes),
        ("node", "n1~1".into()),
        ("topic", array(&["t"])),
        ("data", Value::Binary(vec![1])),
        ("tick", 1.into()),
        ("tock", 1.into()),
        ("task", 1.into()),
        ("ops", Value::Array(Vec::new())),
        ("typ", "password".into()),
        ("ident", "joe".into()),
        ("fetch", true.into()),
        ("start", true.into()),
    ]
}

/// Asks for everything; nothing may come but refusals.
fn is_served_by_no_action(node: &NodeProcess) {
    for action in Action::ALL.iter().copied() {
        if matches!(action, Action::Auth | Action::DiffieHellman) {
            continue;
        }
        // It is closed with the refusal.
        let mut client = node.connect();
        let mut fields = fields_for(action);
        if action == Action::SetValue || action == Action::SetInternal {
            fields.push(("value", 1.into()));
        }
        let seq = client.send(action.name(), &fields).unwrap();
        let (mut is_open, mut is_refused) = (false, false);
        while is_open || !is_refused {
            let reply = client.receive().unwrap();
            let name = action.name();
            assert_eq!(field(&reply, "seq"), Some(seq.into()), "{name}: {reply}");
            assert_eq!(field(&reply, "value"), None, "{name}: {reply}");
            match field(&reply, "state").as_ref().and_then(Value::as_str) {
                Some(state) => is_open = state != "end",
                None => {
                    let code = field(&reply, "code");
                    assert_eq!(code, Some("auth_required".into()), "{name}: {reply}");
                    is_refused = true;
                }
            }
        }
    }
}

#[test]
fn a_network_that_was_loaded_with_authorisation_on_is_served_to_nobody_without_a_login() {
    for file in SAVED {
        let n1 = load(file, &[]);
        let n2 = NodeProcess::join("n2", &[&n1]);
        for node in [&n1, &n2] {
            is_served_by_no_action(node);
            let status = at(node.client, &["status"]);
            assert_eq!(status.code, 1);
            let asks = format!(
                "{} is up and asks for a login: use --ticket, or --user and --secret-file",
                node.name
            );
            assert!(status.stdout.starts_with(&asks), "{}", status.stdout);
            for fact in [":n.auth", "password", "must log in"] {
                assert!(status.stdout.contains(fact), "{}", status.stdout);
            }
            let json = at(node.client, &["status", "--json"]);
            let told: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
            assert_eq!((json.code, told["ready"].as_bool()), (1, Some(false)));
            assert!(told["closed"].as_str().unwrap().contains("password"));
            let get = at(node.client, &["get", "site.secret"]);
            assert_eq!((get.code, get.stdout.as_str()), (3, ""));
            assert!(get.stderr.contains("(auth_required)"), "{}", get.stderr);
            wait_until("the log says why", || {
                let log = node.log().join("\n");
                log.contains("so clients must log in").then_some(())
            });
        }
    }
}

#[test]
fn a_node_that_ignores_authorisation_serves_what_peers_have_and_can_switch_it_off() {
    let n1 = load(SAVED[0], &[]);
    let n2 = ignoring("n2", &n1);
    let get = at(n2.client, &["get", "site.secret"]);
    assert_eq!(get.stdout.trim(), format!("{SECRET:?}"), "{}", get.stderr);
    let status = at(n2.client, &["status"]);
    assert_eq!(status.code, 0);
    let warning = "--ignore-auth: every client may read";
    assert!(status.stdout.contains(warning), "{}", status.stdout);
    wait_until("the log warns", || {
        n2.log().iter().any(|l| l.contains("WARN") && l.contains("--ignore-auth")).then_some(())
    });
    // Nodes replicate all the same, in both directions.
    assert_eq!(at(n2.client, &["set", "site.lamp", "7", "--copies", "1"]).code, 0);
    assert_eq!(at(n1.client, &["get", "site.lamp"]).code, 3);
    // It can be switched off there.
    let deleted = at(n2.client, &["delete", ":n.auth", "--system", "--copies", "1"]);
    assert_eq!(deleted.code, 0, "{}", deleted.stderr);
    assert_eq!(at(n1.client, &["get", "site.lamp"]).stdout.trim(), "7");
    let all = at(n2.client, &["delete", ":n.auth", "--recursive", "--system"]);
    assert_eq!(all.stdout, ":n.auth: 1 deleted\n");
}

#[test]
fn a_snapshot_that_switches_authorisation_on_is_restored_only_if_that_is_wanted() {
    let (n1, folder) = (NodeProcess::run("n1"), tempfile::tempdir().unwrap());
    assert_eq!(at(n1.client, &["set", "own", "1"]).code, 0);
    let restore = at(n1.client, &["snapshot", "restore", SAVED[0]]);
    assert_eq!(restore.code, 3);
    for fact in ["--with-auth", "nothing was taken in", "password"] {
        assert!(restore.stderr.contains(fact), "{}", restore.stderr);
    }
    assert_eq!(at(n1.client, &["get", "site.secret"]).code, 1);
    // Without that one entry it is data like any other.
    let lines = cli(&["snapshot", "convert", SAVED[0], "--format", "jsonl", "--to", "-"]);
    let open: Vec<&str> =
        lines.stdout.lines().filter(|line| !line.starts_with("{\"path\":\":n.auth\",")).collect();
    let file = folder.path().join("open.jsonl");
    std::fs::write(&file, open.join("\n")).unwrap();
    let restore = at(n1.client, &["snapshot", "restore", file.to_str().unwrap()]);
    assert_eq!(restore.code, 0, "{}", restore.stderr);
    assert_eq!(at(n1.client, &["get", "site.lamp"]).code, 0);
    // What comes in is kept, and whoever is connected is told.
    let mut client = Client::connect(n1.client);
    assert_eq!(client.get(&["own"]), Some(1.into()));
    let restore = at(n1.client, &["snapshot", "restore", SAVED[0], "--with-auth"]);
    assert_eq!(restore.code, 0, "{}", restore.stderr);
    for fact in ["entries, of which", ":n.auth, method \"password\"", "login", "--ignore-auth"] {
        assert!(restore.stdout.contains(fact), "{}", restore.stdout);
    }
    let last = client.receive().unwrap();
    assert_eq!(field(&last, "code"), Some("auth_required".into()), "{last}");
    assert!(client.receive().is_err(), "the connection is closed");
    is_served_by_no_action(&n1);
}

#[test]
fn a_restore_that_closes_the_network_tells_programs_so_and_takes_one_file() {
    let n1 = NodeProcess::run("n1");
    let two = at(n1.client, &["snapshot", "restore", SAVED[0], SAVED[1], "--with-auth"]);
    assert_eq!(two.code, 2, "{}", two.stderr);
    assert!(two.stderr.contains("one file"), "{}", two.stderr);
    let restore = at(n1.client, &["snapshot", "restore", SAVED[0], "--with-auth", "--json"]);
    assert_eq!(restore.code, 0, "{}", restore.stderr);
    let told: serde_json::Value = serde_json::from_str(&restore.stdout).unwrap();
    assert_eq!(told["auth"], "password");
    assert!(told["entries"].as_u64() > Some(0));
    is_served_by_no_action(&n1);
}

#[test]
fn a_data_directory_stays_closed_over_restarts_and_can_be_read_on_its_machine() {
    let folder = tempfile::tempdir().unwrap();
    let (data, back) = (folder.path().join("data"), folder.path().join("back.bin"));
    let data = data.to_str().unwrap();
    {
        let mut n1 = load(SAVED[0], &["--data-dir", data]);
        is_served_by_no_action(&n1);
        let leave = at(n1.client, &["leave"]);
        assert!(leave.code == 3 && leave.stderr.contains("SIGTERM"), "{}", leave.stderr);
        n1.signal("TERM");
        assert!(n1.wait().success());
    }
    let n1 = load(SAVED[0], &["--data-dir", data]);
    is_served_by_no_action(&n1);
    let back = back.to_str().unwrap();
    let convert = cli(&["snapshot", "convert", data, "--format", "distkv", "--to", back]);
    assert_eq!(convert.code, 0, "{}", convert.stderr);
    let diff = cli(&["snapshot", "diff", SAVED[0], back]);
    assert_eq!(diff.code, 0, "nothing is lost: {}", diff.stdout);
}

#[test]
fn a_node_that_is_begun_with_a_file_of_others_says_that_users_came_with_it() {
    let node = load(SAVED[0], &[]);
    wait_until("the log says it", || {
        let says = |line: &String| {
            line.contains("WARN") && line.contains("users=1") && line.contains("log in")
        };
        node.log().iter().any(says).then_some(())
    });
}

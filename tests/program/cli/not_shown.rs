//! A secret that stands where something else is wanted, such as a key in place of the key file's name: no message shows
//! it. What is shown says which setting it is, and in which line.

use serde_json::Value as Json;

use crate::cli::command::{Done, at, cli, ok, program, run};
use crate::processes::{NodeProcess, file_names};

/// Two ports that are free, and a name.
const SETTINGS: &str =
    "client = \"127.0.0.1:0\"\ngossip = \"127.0.0.1:0\"\nname = \"n1\"\nfound = true\n";
const HEX: &str = "9eb2acd88a30c4d57ed91a7e6ec50537e516d0e496690153dee7de2148dc14be";
const BASE64: &str = "1lti+xGz3Ob+wQGlZqbUTKS7mxhgGrsODB/mAkNaQG0=";
const PEM: &str = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgMIGHAgEAMBMGByqG\n\
                   SM49AgEGCCqGSM49AwEHBG0wawIBAQQg\n-----END PRIVATE KEY-----\n";

/// A ticket with a user's secret.
fn ticket() -> String {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "geheim12\n").unwrap();
    let new = ["ticket", "new", "n1", "--user", "joe", "--secret", secret.to_str().unwrap()];
    cli(&new).stdout.trim().to_owned()
}

/// Of each secret, a part that would give it away.
fn shows(said: &str, secret: &str) -> bool {
    let pieces = secret.split_whitespace().filter(|piece| !piece.contains('-') && piece.len() > 7);
    pieces.into_iter().any(|piece| said.contains(&piece[piece.len() - 8..]))
}

fn all_of(done: &Done) -> String {
    format!("{}{}", done.stdout, done.stderr)
}

#[test]
fn a_check_of_a_configuration_file_names_the_line_and_shows_no_secret() {
    let (folder, ticket) = (tempfile::tempdir().unwrap(), ticket());
    let file = folder.path().join("node.toml");
    let path = file.to_str().unwrap();
    let quoted = |secret: &str| format!("'''{secret}'''");
    let mut lines = Vec::new();
    for secret in [HEX, BASE64, &ticket, PEM] {
        for key in ["key", "cert-key"] {
            let more = if key == "cert-key" { format!("\ncert = {path:?}") } else { String::new() };
            lines.push((key, format!("{key} = {}{more}", quoted(secret)), secret));
        }
    }
    for secret in [HEX, BASE64, &ticket] {
        let http = "\nhttp = \"127.0.0.1:0\"\nhttp-write = true";
        let token = format!("http-token-file = {secret:?}{http}");
        lines.push(("http-token-file", token, secret));
        lines.push(("peers", format!("peers = [{secret:?}]"), secret));
        lines.push(("", format!("key = {secret}"), secret));
        lines.push((secret, format!("{secret:?} = 1"), secret));
    }
    lines.push(("key", String::from("key = 1234567890"), "1234567890"));
    for (key, line, secret) in lines {
        std::fs::write(&file, format!("{SETTINGS}{line}\n")).unwrap();
        let done = cli(&["config", "check", path]);
        let all = all_of(&done);
        assert!(!shows(&all, secret), "{line}\n{all}");
        assert_eq!(done.code, 2, "{line}\n{all}");
        let expected = match key {
            "" => format!("{path}:5: error: "),
            key if key == secret => format!("{path}:5: error: ["),
            // A certificate is read before its key.
            "cert-key" => format!("{path}:"),
            key => format!("{path}:5: error: {key}: "),
        };
        assert!(all.starts_with(&expected), "{line}\n{all}");
        let json = cli(&["config", "check", path, "--json"]);
        assert!(!shows(&all_of(&json), secret), "{line}\n{}", json.stdout);
        let told: Json = serde_json::from_str(&json.stdout).unwrap();
        assert!(told["findings"][0]["line"].as_u64().is_some_and(|line| line >= 5), "{told}");
        let start = cli(&["start", "--config", path]);
        assert!(start.code != 0 && !shows(&all_of(&start), secret), "{line}\n{}", start.stderr);
    }
    // A file's name is shown.
    std::fs::write(&file, format!("{SETTINGS}key = \"/etc/distkv/no-key\"\n")).unwrap();
    let done = cli(&["config", "check", path]);
    assert!(done.stdout.contains("key: the key file /etc/distkv/no-key: No such"), "{done:?}");
}

#[test]
fn no_error_of_a_command_shows_a_secret_in_place_of_a_file_s_name_or_an_address() {
    let ticket = ticket();
    let at_file = format!("@{ticket}");
    let with_equals = format!("--node-ca={ticket}");
    let commands: &[(&[&str], &str)] = &[
        (&["status", "--key", HEX], HEX),
        (&["status", "--key", BASE64], BASE64),
        (&["status", "--key", &ticket], &ticket),
        (&["key", "list", HEX], HEX),
        (&["status", "--ticket", &at_file], &ticket),
        (&["status", &with_equals], &ticket),
        (&["status", "--user", "joe", "--secret-file", HEX], HEX),
        (&["status", "--user", "joe", "--secret-file", &ticket], &ticket),
        (&["status", "--user", "joe", "--secret-env", HEX], HEX),
        (&["status", "--connect", &ticket], &ticket),
        (&["status", "--connect", HEX], HEX),
        (&["join", &ticket, "--name", "n1"], &ticket),
        (&["join", HEX, "--name", "n1"], HEX),
        (&["run", "--key", HEX], HEX),
        (&["run", "--http-write", "--http-token-file", HEX, "--http", "127.0.0.1:0"], HEX),
        (&["start", "--config", &ticket], &ticket),
        (&["config", "check", HEX], HEX),
        (&["import", &ticket], &ticket),
        (&["snapshot", "inspect", &ticket], &ticket),
        (&["ticket", "new", "n1", "--ca", &ticket], &ticket),
        (&["ticket", "show", &at_file], &ticket),
        // Those are errors of the command line itself.
        (&[&ticket], &ticket),
        (&["status", &ticket], &ticket),
        (&["status", "--timeout", HEX], HEX),
        (&["run", "--init", &ticket], &ticket),
    ];
    for (arguments, secret) in commands {
        for json in [&[][..], &["--json"]] {
            let is_of_node = ["run", "join", "start"].contains(&arguments[0]);
            if is_of_node && !json.is_empty() {
                continue;
            }
            let done = cli(&[*arguments, json].concat());
            assert_ne!(done.code, 0, "{arguments:?}");
            let all = all_of(&done);
            assert!(!shows(&all, secret), "{arguments:?}: {all}");
            assert!(all.contains("not shown"), "{arguments:?}: {all}");
        }
    }
    for (name, value, secret) in [
        ("DISTKV_KEY", HEX, HEX),
        ("DISTKV_TICKET", &at_file, &ticket),
        ("DISTKV_CONNECT", &ticket, &ticket),
        ("DISTKV_NODE_CA", &ticket, &ticket),
    ] {
        let all = all_of(&run(&["status"], &[(name, value)], b""));
        assert!(all.contains("not shown") && !shows(&all, secret), "{name}: {all}");
    }
    // Names of files and hosts are shown, and hashes, which are no secrets.
    let hash = format!("sha256:{HEX}x");
    for (arguments, shown) in [
        (&["status", "--key", "/var/lib/Plant-1/key"][..], "/var/lib/Plant-1/key"),
        (&["status", "--connect", "distkv1.example.invalid"], "distkv1.example.invalid"),
        (&["ticket", "new", "n1", "--ca-hash", &hash], &hash),
    ] {
        let done = cli(arguments);
        assert!(done.code != 0 && done.stderr.contains(shown), "{}", done.stderr);
    }
}

/// A node tells of values and paths, which may look like anything: only what was typed in place of a name is left out.
#[test]
fn a_secret_in_place_of_a_name_is_not_shown_where_a_node_knows_none_of_that_name() {
    let node = NodeProcess::run("n1");
    for secret in [HEX, BASE64, &HEX[..32], &ticket()] {
        for words in [
            &["user", "show", secret][..],
            &["user", "remove", secret],
            &["user", "acl", secret, "l"],
            &["user", "role", secret, "operator"],
            &["user", "disconnect", secret],
            &["user", "ticket", secret, "--to", "nowhere"],
            &["acl", "show", secret],
            &["acl", "delete", secret, "a"],
            &["acl", "test", secret, "a"],
            &["members", "forget", secret],
            &["auth", "on", secret],
        ] {
            for json in [&[][..], &["--json"]] {
                let done = at(&node, &[words, json].concat());
                let all = all_of(&done);
                assert!(done.code != 0 && !shows(&all, secret), "{words:?}: {all}");
                assert!(all.contains("not shown"), "{words:?}: {all}");
            }
        }
    }
    // Elements of paths are often hashes.
    let done = at(&node, &["get", &format!("cache.{HEX}")]);
    assert!(done.stderr.contains(&format!("cache.{HEX} has no value")), "{done:?}");
    assert!(at(&node, &["get", HEX]).stderr.contains(HEX));
    ok(&node, &["set", "a", &format!("{HEX:?}")]);
    let done = at(&node, &["set", "a", "2", "--if-value", "3"]);
    assert!(done.code == 5 && done.stderr.contains(HEX), "{done:?}");
}

#[test]
fn a_secret_in_place_of_its_file_s_name_makes_no_file_of_that_name() {
    let (node, folder) = (NodeProcess::run("n1"), tempfile::tempdir().unwrap());
    let connect = ["--connect", &node.client.to_string()];
    for secret in [HEX, &HEX[..32], &ticket()] {
        let add = ["user", "add", "joe", "--new-secret-file", secret];
        let mut command = program(&[&add[..], &connect].concat());
        let output = command.current_dir(folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("--new-secret-file") && said.contains("not shown"), "{said}");
        assert!(!shows(&said, secret), "{said}");
        assert_eq!(file_names(folder.path()), [""; 0]);
    }
}

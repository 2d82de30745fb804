//! Tickets in files: they are written for their owner only, and one that is given can be read once.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use crate::cli::command::{cli, run};
use crate::processes::NodeProcess;

#[test]
fn a_new_ticket_s_file_is_its_owner_s_only_and_replaces_nothing_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (to, given) = (path("joe.ticket"), format!("@{}", path("joe.ticket")));
    fs::write(path("secret"), "geheim12\n").unwrap();
    let secret = path("secret");
    let new = |address: &str, more: &[&str]| {
        let new = ["ticket", "new", address, "--user", "joe", "--secret", &secret, "--to", &to];
        cli(&[&new[..], more].concat())
    };
    let done = new("n1", &[]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(done.stdout, format!("the ticket is in {to}\n"));
    assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, 0o600);
    let text = fs::read_to_string(&to).unwrap();
    assert_eq!(text.trim_end().len() + 1, text.len(), "one line: {text}");
    assert!(cli(&["ticket", "show", &given]).stdout.contains("nodes        n1:27586"));
    // One that is there stays, unless it was asked for.
    let again = new("n2", &[]);
    assert_eq!(again.code, 1, "{}", again.stdout);
    assert!(again.stderr.contains("exists already; take another name"), "{}", again.stderr);
    assert_eq!(fs::read_to_string(&to).unwrap(), text);
    let replaced = new("n2", &["--force", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&replaced.stdout).unwrap();
    assert_eq!(told, serde_json::json!({"ticket_file": to}));
    assert!(cli(&["ticket", "show", &given]).stdout.contains("nodes        n2:27586"));
    // What cannot be in a ticket leaves no file, and so does a place for none.
    let bad = cli(&["ticket", "new", "n1", "--network", &"x".repeat(2_000), "--to", &path("bad")]);
    assert_eq!(bad.code, 2, "{}", bad.stdout);
    for (to, why) in [("/dev/null", "no plain file"), ("-", "no plain file"), (&path(""), "dir")] {
        let done = cli(&["ticket", "new", "n1", "--to", to]);
        assert!(done.code == 1 && done.stderr.contains(why), "{to}: {}", done.stderr);
    }
    let force = cli(&["ticket", "new", "n1", "--force"]);
    assert!(force.code == 2 && force.stderr.contains("--to"), "{}", force.stderr);
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["joe.ticket", "secret"]);
}

#[test]
fn no_ticket_is_for_a_network_whose_name_no_node_can_have() {
    for name in ["a b", "", "a\u{1b}b", &"x".repeat(300)] {
        let new = cli(&["ticket", "new", "n1", "--network", name]);
        assert_eq!((new.code, new.stdout.as_str()), (2, ""), "{name:?}: {}", new.stderr);
        assert!(new.stderr.contains("--network"), "{name:?}: {}", new.stderr);
        let run = cli(&["run", "--name", "n1", "--network", name, "--client", "127.0.0.1:0"]);
        assert_eq!(run.code, 2, "{name:?}: {}", run.stderr);
    }
    assert_eq!(cli(&["ticket", "new", "n1", "--network", "plant"]).code, 0);
}

#[test]
fn a_ticket_that_can_be_read_only_once_is_enough_for_a_command() {
    let node = NodeProcess::run("n1");
    let ticket = cli(&["ticket", "new", &node.client.to_string()]).stdout;
    let two = cli(&["ticket", "new", &node.client.to_string(), &node.client.to_string()]).stdout;
    for arguments in [
        &["set", "a", "5"][..],
        &["get", "a"],
        &["tree", "a"],
        &["status"],
        &["wait"],
        &["conflicts"],
        &["type", "list"],
        &["whoami"],
    ] {
        for ticket in [&ticket, &two] {
            let given = [arguments, &["--ticket", "@/dev/stdin"]].concat();
            let done = run(&given, &[], ticket.as_bytes());
            assert_eq!(done.code, 0, "{arguments:?}: {}", done.stderr);
            let by_variable = [("DISTKV_TICKET", "@/dev/stdin")];
            let done = run(arguments, &by_variable, ticket.as_bytes());
            assert_eq!(done.code, 0, "{arguments:?}, by a variable: {}", done.stderr);
        }
    }
    let script = "\"$0\" get a --ticket @<(printf '%s' \"$1\")";
    let mut bash = Command::new("bash");
    bash.args(["-c", script, crate::processes::PROGRAM, &ticket]);
    let done = bash.env_remove("DISTKV_CONNECT").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stdout), "5\n", "{done:?}");
}

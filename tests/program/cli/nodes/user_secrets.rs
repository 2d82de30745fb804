//! Tokens that commands make or take: none is lost in silence, and nobody is said to be added who was there already.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path as FilePath;
use std::str::FromStr as _;

use distkv::client::Fields;
use distkv_tls::Ticket;

use super::users::Machine;
use crate::cli::command::{cli, program, run_with_closed_output};
use crate::cli::fake::{FakeNode, changed, error};
use crate::processes::file_names;

#[test]
fn who_is_added_again_with_the_same_token_stays_or_is_refused_and_is_never_said_to_be_added() {
    let machine = Machine::new();
    let (panel, boss) =
        (machine.secret("panel", &"p".repeat(40)), machine.secret("boss", &"b".repeat(40)));
    let add = |name: &str, file: &str, more: &[&str]| {
        let add = ["user", "add", name, "--method", "token", "--new-secret-file", file];
        machine.run(&[&add[..], more].concat())
    };
    let stays = |name: &str, file: &str, more: &[&str], as_what: &str| {
        let done = add(name, file, more);
        let says = format!("{name} (token) is there already, and so it stays: {as_what}\n");
        assert_eq!((done.code, done.stdout), (0, says), "{more:?}: {}", done.stderr);
        let json = add(name, file, &[more, &["--json"]].concat());
        assert!(json.stdout.contains("\"changed\":false"), "{}", json.stdout);
    };
    let differs = |name: &str, file: &str, more: &[&str]| {
        let shown = machine.ok(&["user", "show", name]);
        let done = add(name, file, more);
        assert_eq!(done.code, 5, "{more:?}: {} {}", done.stdout, done.stderr);
        assert!(done.stderr.contains("already exists"), "{more:?}: {}", done.stderr);
        assert_eq!(machine.ok(&["user", "show", name]), shown, "{more:?}");
    };
    assert_eq!(add("panel", &panel, &["--acl", "lamps"]).stdout, "panel (token) added\n");
    stays("panel", &panel, &["--acl", "lamps"], "role user, access list lamps");
    // Without a list and a role, an admin is meant.
    for other in [
        &[][..],
        &["--acl", "*"],
        &["--acl", "-"],
        &["--role", "user"],
        &["--role", "operator", "--acl", "lamps"],
    ] {
        differs("panel", &panel, other);
    }
    differs("panel", &boss, &["--acl", "lamps"]);
    assert_eq!(add("boss", &boss, &[]).stdout, "boss (token) added\n");
    stays("boss", &boss, &[], "role admin, no access list");
    stays("boss", &boss, &["--role", "admin"], "role admin, no access list");
    machine.ok(&["user", "role", "boss", "operator"]);
    differs("boss", &boss, &[]);
    stays("boss", &boss, &["--role", "operator"], "role operator, no access list");
    machine.ok(&["user", "acl", "boss", "lamps"]);
    differs("boss", &boss, &["--role", "operator"]);
    // Who was removed meanwhile is added.
    machine.ok(&["user", "remove", "panel"]);
    assert_eq!(add("panel", &panel, &["--acl", "lamps"]).stdout, "panel (token) added\n");
    stays("panel", &panel, &["--acl", "lamps"], "role user, access list lamps");
}

#[test]
fn a_token_that_nobody_could_read_is_an_error() {
    let machine = Machine::new();
    let client = machine.node.client.to_string();
    machine.ok(&["user", "add", "robot", "--method", "token"]);
    for command in [["token", "robot"].as_slice(), &["add", "bot", "--method", "token"]] {
        let arguments = [&["user"], command, &["--connect", &client]].concat();
        let closed = run_with_closed_output(&arguments);
        assert_eq!(closed.code, 1, "{command:?}: {}", closed.stderr);
        let says = format!("`distkv-node user token {} --to FILE --connect {client}`", command[1]);
        assert!(closed.stderr.contains("is lost") && closed.stderr.contains(&says), "{closed:?}");
        let mut full =
            program(&[&["user", "token", command[1]], &["--connect", &*client][..]].concat());
        let full = full.stdout(File::create("/dev/full").unwrap()).output().unwrap();
        let said = String::from_utf8(full.stderr).unwrap();
        assert!(full.status.code() == Some(1) && said.contains(&says), "{said}");
    }
}

#[test]
fn a_new_token_s_file_is_its_owner_s_only_and_replaces_nothing_unasked() {
    let machine = Machine::new();
    let (to, boss) = (machine.path("robot.token"), machine.secret("boss", "adminpw1"));
    machine.ok(&["user", "add", "boss", "--new-secret-file", &boss]);
    machine.ok(&["user", "add", "robot", "--method", "token", "--role", "operator"]);
    machine.ok(&["auth", "on", "password"]);
    let as_boss = ["--user", "boss", "--secret-file", &boss];
    let token = |more: &[&str]| {
        machine.run(&[&["user", "token", "robot", "--to", &to], more, &as_boss].concat())
    };
    let logs_in = || machine.ok(&["whoami", "--user", "robot", "--secret-file", &to]);
    let done = token(&[]);
    let says = format!("robot (token) has a new token, which is in {to}\n");
    assert_eq!((done.code, done.stdout), (0, says), "{}", done.stderr);
    assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, 0o600);
    assert!(logs_in().contains("role operator"));
    let again = token(&[]);
    assert!(again.code == 1 && again.stderr.contains("exists already"), "{again:?}");
    logs_in();
    let before = fs::read(&to).unwrap();
    let replaced = token(&["--force", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&replaced.stdout).unwrap();
    assert_eq!((&told["token_file"], told.get("token")), (&to.as_str().into(), None));
    assert_ne!(fs::read(&to).unwrap(), before);
    logs_in();
}

#[test]
fn a_role_that_there_is_not_is_told_before_a_secret_is_asked_for() {
    let machine = Machine::new();
    let made = machine.path("made");
    for more in [&[][..], &["--new-secret-file", &made], &["--method", "token"]] {
        let done = machine.run(&[&["user", "add", "joe", "--role", "boss"][..], more].concat());
        assert_eq!(done.code, 2, "{done:?}");
        let why = "there is no role boss: give user, operator or admin";
        assert!(done.stderr.contains(why) && !done.stderr.contains("secret"), "{done:?}");
    }
    assert!(!fs::exists(made).unwrap());
}

/// A node that has been sent a change of a user, and is gone then: nobody knows what came of it. `code`: it refuses the change
/// instead, with this word.
fn node_that_is_lost(code: Option<&'static str>) -> FakeNode {
    FakeNode::start(move |request| match (request.str("action"), code) {
        (Some("auth_set" | "auth_disconnect"), Some(code)) => vec![error("no", code)],
        // The thread that would have answered ends, and the connection with it.
        (Some("auth_set" | "auth_disconnect"), None) => panic!("it is lost"),
        (Some("auth_get"), _) => vec![changed(true)],
        _ => vec![Fields::new().str("network", "plant").clone()],
    })
}

/// The commands that give a user a new secret which is nowhere else than in the file that they make; the file, what is
/// written there beside it where nobody knows whether the secret is in force, and the command that tells.
fn made_secrets(folder: &FilePath) -> Vec<(Vec<String>, String, String, String)> {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let all = |words: &str, options: &[&str]| {
        words.split(' ').chain(options.iter().copied()).map(str::to_owned).collect::<Vec<_>>()
    };
    let (ticket, token, own) = (path("a.ticket"), path("a.token"), path("own"));
    let by_ticket = format!("`distkv-node whoami --ticket @{ticket}.new` tells");
    let by_secret = |method: &str, file: &str| {
        format!("`distkv-node whoami --user joe --login {method} --secret-file {file} --connect ")
    };
    let to_ticket = ["--to", &*ticket, "--force"];
    let with_own = ["--method", "password", "--new-secret-file", &own];
    vec![
        (
            all("user ticket joe --method token", &to_ticket),
            ticket.clone(),
            format!("{ticket}.new"),
            by_ticket.clone(),
        ),
        (
            all("user ticket joe", &[&with_own[..], &to_ticket].concat()),
            ticket.clone(),
            format!("{ticket}.new"),
            by_ticket,
        ),
        (
            all("user token joe", &["--to", &token, "--force"]),
            token.clone(),
            format!("{token}.new"),
            by_secret("token", &format!("{token}.new")),
        ),
        (
            all("user password joe", &["--new-secret-file", &own]),
            own.clone(),
            own.clone(),
            by_secret("password", &own),
        ),
        (
            all("user add joe", &["--acl", "l", "--new-secret-file", &own]),
            own.clone(),
            own.clone(),
            by_secret("password", &own),
        ),
    ]
}

#[test]
fn a_secret_that_may_be_in_force_is_in_a_file_that_is_named_and_the_file_before_stays() {
    let scratch = tempfile::tempdir().unwrap();
    for (command, file, kept, tells) in made_secrets(scratch.path()) {
        let is_beside = file != kept;
        if is_beside {
            fs::write(&file, "the one before").unwrap();
        }
        let node = node_that_is_lost(None);
        let connect = node.address.to_string();
        let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        let run = |more: &[&str]| cli(&[&arguments[..], &["--connect", &connect], more].concat());
        let done = run(&[]);
        assert_eq!(done.code, 7, "{command:?}: {done:?}");
        assert!(done.stderr.contains(&kept) && done.stderr.contains(&tells), "{done:?}");
        let sent = node.asked("auth_set").str("secret").unwrap().to_owned();
        let text = fs::read_to_string(&kept).unwrap();
        let secret = match Ticket::from_str(text.trim()) {
            Ok(ticket) => ticket.login.unwrap().secret.unwrap(),
            Err(_) => text.trim().to_owned(),
        };
        assert_eq!(secret, sent, "{command:?}");
        assert_eq!(fs::metadata(&kept).unwrap().mode() & 0o777, 0o600, "{command:?}");
        if is_beside {
            assert_eq!(fs::read_to_string(&file).unwrap(), "the one before", "{command:?}");
            // One more leaves the first as it is.
            run(&[]);
            assert_eq!(fs::read_to_string(&kept).unwrap(), text, "{command:?}");
            let name = format!("{}-", FilePath::new(&kept).file_name().unwrap().to_str().unwrap());
            let names = file_names(scratch.path());
            let more = names.iter().filter(|other| other.starts_with(&name)).count();
            assert_eq!(more, 1, "{command:?}: {names:?}");
        }
        for name in file_names(scratch.path()) {
            fs::remove_file(scratch.path().join(name)).unwrap();
        }
    }
}

#[test]
fn a_secret_that_is_surely_not_in_force_leaves_no_file_and_the_one_before() {
    let scratch = tempfile::tempdir().unwrap();
    for (command, file, kept, _) in made_secrets(scratch.path()) {
        let is_beside = file != kept;
        if is_beside {
            fs::write(&file, "the one before").unwrap();
        }
        let node = node_that_is_lost(Some("denied"));
        let connect = node.address.to_string();
        let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        let done = cli(&[&arguments[..], &["--connect", &connect]].concat());
        assert_eq!(done.code, 3, "{command:?}: {done:?}");
        let left = file_names(scratch.path());
        assert_eq!(left.len(), usize::from(is_beside), "{command:?}: {left:?}");
        if is_beside {
            assert_eq!(fs::read_to_string(&file).unwrap(), "the one before", "{command:?}");
            fs::remove_file(&file).unwrap();
        }
    }
}

#[test]
fn a_token_that_is_printed_and_lost_on_its_way_is_told_with_how_to_make_another_one() {
    let node = node_that_is_lost(None);
    let connect = node.address.to_string();
    for command in [&["user", "token", "joe"][..], &["user", "add", "joe", "--method", "token"]] {
        let done = cli(&[command, &["--connect", &connect]].concat());
        assert_eq!(done.code, 7, "{command:?}: {done:?}");
        let another = format!("`distkv-node user token joe --to FILE --connect {connect}` makes");
        assert!(done.stderr.contains("lost: ") && done.stderr.contains(&another), "{done:?}");
    }
}

/// Such a node would take the new secret, and end no connections, if it were asked as for a new secret alone.
#[test]
fn a_node_that_ends_no_connections_of_who_stays_changes_nothing_and_the_command_says_so() {
    let scratch = tempfile::tempdir().unwrap();
    let ticket = scratch.path().join("joe.ticket").to_str().unwrap().to_owned();
    let node = FakeNode::start(|request| match request.str("action") {
        Some("auth_get") => vec![changed(true)],
        Some("status") => vec![Fields::new().str("network", "plant").clone()],
        Some("auth_set") => panic!("it must not be asked for half of it"),
        _ => vec![error("there is no such action", "unknown_action")],
    });
    let connect = node.address.to_string();
    for command in [
        &["disconnect", "joe", "--method", "token"][..],
        &["token", "joe", "--disconnect"],
        &["ticket", "joe", "--method", "token", "--disconnect", "--to", &ticket],
    ] {
        let done = cli(&[&["user"], command, &["--connect", &connect]].concat());
        assert_eq!(done.code, 3, "{command:?}: {done:?}");
        let says = ["of an older version", "nothing was changed", "user remove joe --method token"];
        assert!(says.iter().all(|says| done.stderr.contains(says)), "{done:?}");
        assert_eq!(
            (done.stdout.as_str(), file_names(scratch.path()).len()),
            ("", 0),
            "{command:?}"
        );
    }
}

#[test]
fn the_end_of_connections_whose_answer_is_lost_may_be_asked_for_again() {
    let node = node_that_is_lost(None);
    let connect = node.address.to_string();
    let method = ["--method", "token", "--connect", &connect];
    let done = cli(&[&["user", "disconnect", "joe"], &method[..]].concat());
    assert_eq!(done.code, 7, "{done:?}");
    assert!(done.stderr.contains("to be sure, type the command again"), "{done:?}");
    let token = ["user", "token", "joe", "--disconnect", "--connect", &connect];
    let done = cli(&token);
    assert_eq!(done.code, 7, "{done:?}");
    assert!(done.stderr.contains("lost: "), "{done:?}");
}

#[test]
fn whoever_gives_a_new_user_s_secret_as_the_own_one_is_told_the_option_for_it() {
    let machine = Machine::new();
    let secret = machine.secret("joe", "geheim12");
    let own = ["--secret-file", &secret];
    let told = |words: &[&str]| {
        let done = machine.run(&[words, &own].concat());
        assert!(done.code == 2 && done.stderr.contains("--user NAME, or DISTKV_USER"), "{done:?}");
        done.stderr.contains("the user's new secret goes with --new-secret-file")
    };
    assert!(told(&["user", "add", "joe", "--role", "user"]));
    assert!(told(&["user", "password", "joe", "--new-secret-file", &secret]));
    assert!(!told(&["user", "list"]) && !told(&["get", "a"]));
    assert!(!machine.ok(&["user", "list"]).contains("joe"));
}

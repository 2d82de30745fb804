//! Tokens that commands make or take: none is lost in silence, and nobody is said to be added who was there already.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;

use super::users::Machine;
use crate::cli::command::{program, run_with_closed_output};

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

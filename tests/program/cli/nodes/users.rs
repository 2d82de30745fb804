//! `user`, `acl`, `auth`, `whoami`, and commands that log in.

mod disconnected;

use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::time::{Duration, Instant};

use distkv::client::Fields;

use crate::cli::command::{Done, cli, program, run};
use crate::cli::fake::{FakeNode, error};
use crate::processes::{NodeProcess, wait_until};

pub(super) struct Machine {
    pub(super) node: NodeProcess,
    folder: tempfile::TempDir,
}

impl Machine {
    pub(super) fn new() -> Machine {
        Machine { node: NodeProcess::run("n1"), folder: tempfile::tempdir().unwrap() }
    }

    /// The name of a file with a secret.
    pub(super) fn secret(&self, name: &str, secret: &str) -> String {
        let file = self.path(name);
        fs::write(&file, format!("{secret}\n")).unwrap();
        file
    }

    /// The name of a file that is not there.
    pub(super) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Done {
        run(&[arguments, &["--connect", &self.node.client.to_string()]].concat(), &[], b"")
    }

    /// What a command prints that must work.
    pub(super) fn ok(&self, arguments: &[&str]) -> String {
        let done = self.run(arguments);
        assert_eq!(done.code, 0, "{arguments:?}: {}", done.stderr);
        done.stdout
    }

    /// What a command says that must fail.
    pub(super) fn refused(&self, arguments: &[&str]) -> String {
        let done = self.run(arguments);
        assert!(matches!(done.code, 1 | 3 | 5), "{arguments:?}: {} {}", done.stdout, done.stderr);
        done.stderr
    }
}

#[test]
fn a_network_without_a_key_advises_no_key() {
    let machine = Machine::new();
    let boss = machine.secret("boss", "adminpw1");
    machine.ok(&["user", "add", "boss", "--role", "admin", "--new-secret-file", &boss]);
    machine.ok(&["auth", "on", "password"]);
    for command in [&["get", "a"][..], &["members"], &["watch", "a"]] {
        let said = machine.refused(command);
        let advice = "(auth_required); log in with --ticket, or --user and --secret-file\n";
        assert!(said.ends_with(advice), "{command:?}: {said}");
    }
}

#[test]
fn users_are_not_imported_and_the_refusal_says_what_to_do() {
    let machine = Machine::new();
    let (joe, saved) = (machine.secret("joe", "geheim12"), machine.path("saved.jsonl"));
    machine.ok(&["user", "add", "joe", "--new-secret-file", &joe]);
    machine.ok(&["set", "a", "1"]);
    machine.ok(&["snapshot", "save", "--to", &saved, "--format", "jsonl"]);
    let said = machine.refused(&["import", &saved]);
    assert!(said.contains("leave out the lines below :n.auth, or take in the whole"), "{said}");
    assert!(machine.ok(&["snapshot", "restore", &saved]).contains("0 were taken in"));
}

#[test]
fn a_network_that_asks_for_logins_takes_its_own_backup_and_none_that_asks_otherwise() {
    let machine = Machine::new();
    let (boss, robot) = (machine.secret("boss", "adminpw1"), machine.path("robot"));
    let as_boss = ["--user", "boss", "--secret-file", &boss];
    machine.ok(&["user", "add", "boss", "--new-secret-file", &boss]);
    machine.ok(&["set", "a", "1"]);
    machine.ok(&["auth", "on", "password"]);
    let with = |user: &[&str], arguments: &[&str]| machine.ok(&[arguments, user].concat());
    let backups: Vec<String> = ["snapshot", "jsonl", "distkv"]
        .map(|form| {
            let file = machine.path(form);
            with(&as_boss, &["snapshot", "save", "--to", &file, "--format", form]);
            file
        })
        .into();
    for file in &backups {
        let told = with(&as_boss, &["snapshot", "restore", file]);
        assert!(told.contains("0 were taken in") && !told.contains("logins are on"), "{told}");
    }
    // They would log in by password again.
    let token = ["--method", "token", "--new-secret-file", &robot];
    with(&as_boss, &[&["user", "add", "robot"][..], &token].concat());
    with(&as_boss, &["auth", "on", "token"]);
    let as_robot = ["--user", "robot", "--secret-file", &robot];
    with(&as_robot, &["get", "a"]);
    for file in &backups {
        let said = machine.refused(&[&["snapshot", "restore", file][..], &as_robot].concat());
        for part in
            ["method \"password\"", "method \"token\"", "nothing was taken in", "--with-auth"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains("switches logins on"), "{said}");
    }
    // Without logins, it is what switches them on.
    with(&as_robot, &["auth", "off"]);
    let said = machine.refused(&["snapshot", "restore", &backups[0]]);
    assert!(said.contains("switches logins on (:n.auth, method \"password\")"), "{said}");
}

#[test]
fn an_operator_sets_up_users_and_lists_and_each_command_logs_in() {
    let machine = Machine::new();
    let (boss, joe) = (machine.secret("boss", "adminpw1"), machine.secret("joe", "geheim12"));
    assert!(machine.ok(&["whoami"]).contains("asks for no login"));
    machine.ok(&["user", "add", "boss", "--new-secret-file", &boss]);
    let to_come = "there is no access list lamps yet";
    let added = machine.run(&["user", "add", "joe", "--acl", "lamps", "--new-secret-file", &joe]);
    assert!(added.code == 0 && added.stderr.contains(to_come), "{}", added.stderr);
    let given = machine.run(&["user", "acl", "joe", "lamps"]);
    assert!(given.code == 0 && given.stderr.contains(to_come), "{}", given.stderr);
    let again = machine.refused(&["user", "add", "joe", "--new-secret-file", &joe]);
    assert!(again.contains("already exists"), "{again}");
    let added = machine.ok(&["user", "add", "robot", "--method", "token", "--role", "operator"]);
    let token = added.lines().last().unwrap().to_owned();
    assert_eq!(token.len(), 64);
    machine.ok(&["acl", "set", "lamps", "site.#", "rwcdxen"]);
    machine.ok(&["acl", "set", "lamps", "site", "xen"]);
    assert_eq!(machine.run(&["acl", "set", "lamps", "site", "q"]).code, 2);
    assert!(machine.ok(&["acl", "list"]).contains("lamps  2"));
    assert_eq!(machine.run(&["user", "acl", "joe", "lamps"]).stderr, "");
    assert!(machine.ok(&["acl", "show", "lamps"]).contains("site.#   rwcdxen"));
    assert!(machine.ok(&["acl", "test", "lamps", "site.lamp", "w"]).contains("allows w"));
    let explained = machine.ok(&["acl", "explain", "joe", "site.lamp"]);
    assert!(explained.contains("rwcdxen") && explained.contains("the pattern site.# of lamps"));
    let explained = machine.ok(&["acl", "explain", "joe", "other", "--json"]);
    let explained: serde_json::Value = serde_json::from_str(&explained).unwrap();
    assert_eq!((&explained["letters"], &explained["role"]), (&"".into(), &"user".into()));
    assert!(machine.ok(&["acl", "explain", "boss", "other"]).contains("the role admin"));

    machine.ok(&["auth", "on", "password"]);
    let needed = machine.refused(&["get", "site.lamp"]);
    assert!(needed.contains("must log in") && needed.contains("--user"), "{needed}");
    let as_joe = ["--user", "joe", "--secret-file", &joe];
    let with = |user: &[&str], arguments: &[&str]| machine.ok(&[arguments, user].concat());
    assert!(with(&as_joe, &["whoami"]).contains("role user, access list lamps"));
    with(&as_joe, &["set", "site.lamp", "5"]);
    assert_eq!(with(&as_joe, &["get", "site.lamp"]), "5\n");
    let other = machine.refused(&["get", "other", "--user", "joe", "--secret-file", &joe]);
    let refused = "user 'joe' may not read 'other': the access list 'lamps' does not allow r there; \
                   an admin sees why with `distkv-node acl explain joe other` (denied)";
    assert!(other.contains(refused), "{other}");
    let shut = machine.path("shut");
    std::fs::write(&shut, "{\"path\":\"site.a\",\"value\":1}\n{\"path\":\"b:_c\",\"value\":1}\n")
        .unwrap();
    // The node closes the connection of who has not logged in, and does nothing of what else was sent over it.
    let stranger = machine.refused(&["import", &shut]);
    assert!(stranger.contains("line 1 (site.a)") && stranger.contains("must log in"), "{stranger}");
    assert!(!stranger.contains("may have been imported"), "{stranger}");
    let import = machine.refused(&[&["import", &shut][..], &as_joe].concat());
    assert!(
        import.contains("line 2 (b:_c): the node refuses: user 'joe' may not set 'b:_c': the access list 'lamps'")
            && import.contains("with `distkv-node acl explain joe b:_c` (denied)"),
        "{import}"
    );
    let wrong = machine.refused(&["get", "other", "--user", "joe", "--secret-file", &boss]);
    assert!(wrong.contains("no user \"joe\", or its secret is another one"), "{wrong}");
    let list = machine.refused(&["user", "list", "--user", "joe", "--secret-file", &joe]);
    assert!(list.contains("role 'admin'"), "{list}");
    let own = machine.secret("own", "geheim13");
    with(&as_joe, &["user", "password", "joe", "--new-secret-file", &own]);
    machine.refused(&["get", "site.lamp", "--user", "joe", "--secret-file", &joe]);
    let address = machine.node.client.to_string();
    let env = [("DISTKV_USER", "joe"), ("DISTKV_SECRET", "geheim13")];
    let get = run(&["get", "site.lamp", "--connect", &address], &env, b"");
    assert_eq!(get.stdout, "5\n", "{}", get.stderr);
    let robot = machine.secret("robot", &token);
    assert!(with(&["--user", "robot", "--secret-file", &robot], &["status"]).contains("n1"));

    let as_boss = ["--user", "boss", "--secret-file", &boss];
    let users = with(&as_boss, &["user", "list", "--json"]);
    assert_eq!(users.lines().count(), 3);
    with(&as_boss, &["user", "acl", "joe", "-"]);
    assert!(with(&as_boss, &["user", "show", "joe"]).contains("no access list"));
    with(&as_boss, &["user", "role", "joe", "operator"]);
    with(&as_boss, &["user", "remove", "joe"]);
    let gone = machine.refused(&[&["user", "show", "joe"][..], &as_boss].concat());
    assert!(gone.contains("there is no user \"joe\""), "{gone}");
    // Nothing is said to be done that does not hold: a list makes an admin a user.
    with(&as_boss, &["user", "add", "jim", "--acl", "lamps", "--new-secret-file", &joe]);
    let jill = machine.path("jill");
    let both = ["user", "add", "jill", "--acl", "*", "--role", "admin", "--new-secret-file", &jill];
    for change in [&both[..], &["user", "role", "jim", "admin"]] {
        let said = machine.refused(&[change, &as_boss].concat());
        assert!(said.contains("no admin") && said.contains("distkv-node user acl"), "{said}");
    }
    assert!(!fs::exists(&jill).unwrap());
    with(&as_boss, &["user", "acl", "jim", "-"]);
    with(&as_boss, &["user", "role", "jim", "admin"]);
    assert!(with(&as_boss, &["user", "show", "jim"]).contains("role admin"));
    with(&as_boss, &["user", "remove", "jim"]);
    let last = [
        ["user", "remove", "boss", "--json"],
        ["user", "role", "boss", "user"],
        ["user", "acl", "boss", "*"],
    ];
    for change in last {
        let said = machine.refused(&[&change[..], &as_boss].concat());
        let is_last = "\"boss\" (method \"password\") is the last admin";
        assert!(said.replace("\\\"", "\"").contains(is_last), "{said}");
        assert!(said.contains("add --force") && said.contains("nothing was changed"), "{said}");
    }
    with(&as_boss, &["user", "role", "boss", "admin"]);
    assert!(with(&as_boss, &["acl", "delete", "lamps"]).contains("2 patterns"));
    // As it is where a user is removed, or a type or a match is deleted, that is not there.
    for (what, told) in [
        (&["lamps"][..], "there is no access list \"lamps\"; nothing was changed"),
        (
            &["lamps", "site.#"],
            "the access list \"lamps\" has no pattern site.#; nothing was changed",
        ),
    ] {
        let said = machine.run(&[&["acl", "delete"], what, &as_boss].concat());
        assert_eq!((said.code, &*said.stderr), (1, &*format!("error: {told}\n")));
        assert_eq!(said.stdout, "");
    }
    assert_eq!(machine.run(&[&["user", "remove", "nobody"], &as_boss[..]].concat()).code, 1);
    for command in ["status", "members"] {
        let said = machine.run(&[&[command][..], &as_boss].concat());
        assert!(!said.stdout.contains("warning"), "{command}: {said:?}");
        assert_eq!(said.stderr, "", "{command}");
    }
    with(&as_boss, &["auth", "off"]);
    assert_eq!(machine.ok(&["get", "site.lamp"]), "5\n");
    // Without logins, nobody is shut out.
    machine.ok(&["user", "role", "boss", "operator"]);
    let refused = machine.refused(&["auth", "on", "password"]);
    assert!(refused.contains("no admin can log in") && refused.contains("--force"), "{refused}");
    assert_eq!(machine.ok(&["get", "site.lamp"]), "5\n");
    let switched = machine.ok(&["auth", "on", "password", "--force"]);
    assert!(switched.contains("No admin can log in"), "{switched}");
    machine.refused(&["get", "site.lamp"]);
}

#[test]
fn who_is_added_and_is_there_already_keeps_everything() {
    let machine = Machine::new();
    let added = machine.ok(&["user", "add", "panel", "--method", "token", "--acl", "lamps"]);
    assert!(added.contains("added"), "{added}");
    for more in
        [&["--acl", "*"][..], &["--acl", "lamps"], &["--acl", "-"], &["--role", "user"], &[]]
    {
        let add = [&["user", "add", "panel", "--method", "token"][..], more].concat();
        let done = machine.run(&add);
        assert!(done.code == 5 && done.stderr.contains("already exists"), "{more:?}: {done:?}");
        let shown = machine.ok(&["user", "show", "panel"]);
        assert_eq!(shown, "panel (token): role user, access list lamps\n", "{more:?}");
    }
}

#[test]
fn a_user_without_a_secret_is_told_how_to_give_it_and_nothing_is_asked() {
    let machine = Machine::new();
    let boss = machine.secret("boss", "adminpw1");
    machine.ok(&["user", "add", "boss", "--new-secret-file", &boss]);
    // Where no login is needed, none is made.
    machine.ok(&["whoami", "--user", "boss"]);
    machine.ok(&["auth", "on", "password"]);
    for more in [&[][..], &["--login", "password"], &["--login", "token"]] {
        let done = machine.run(&[&["whoami", "--user", "boss"][..], more].concat());
        assert_eq!(done.code, 3, "{done:?}");
        assert!(
            done.stderr.contains("--secret-file") && !done.stderr.contains("bad_request"),
            "{done:?}"
        );
    }
}

#[test]
fn no_list_gets_a_name_that_cannot_be_given_to_a_user() {
    let machine = Machine::new();
    for name in ["*", "-", ""] {
        let done = machine.run(&["acl", "set", name, "site.#", "r"]);
        assert!(done.code == 2 && done.stderr.contains("no access list can be named"), "{done:?}");
        let done = machine.run(&["set", &format!(":n.acl.{name}.site"), "\"r\"", "--system"]);
        assert!(name.is_empty() || done.stderr.contains("no access list can be named"), "{done:?}");
        assert_ne!(done.code, 0);
    }
    assert!(machine.ok(&["acl", "list"]).contains("there are no"));
}

#[test]
fn the_last_admin_goes_by_force_only() {
    let machine = Machine::new();
    let boss = machine.secret("boss", "adminpw1");
    let as_boss = ["--user", "boss", "--secret-file", &boss];
    machine.ok(&["user", "add", "boss", "--new-secret-file", &boss]);
    let switched = machine.ok(&["auth", "on", "password"]);
    assert!(!switched.contains("admin"), "{switched}");
    machine.refused(&[&["user", "remove", "boss"][..], &as_boss].concat());
    // Another one who can log in: a token does, where passwords are asked for.
    machine.ok(&[&["user", "add", "robot", "--method", "token"][..], &as_boss].concat());
    machine.ok(&[&["user", "role", "boss", "operator"][..], &as_boss].concat());
    let again = machine.refused(&[&["user", "remove", "robot"][..], &as_boss].concat());
    assert!(again.contains("role 'admin'"), "{again}");
    let machine = Machine::new();
    machine.ok(&["user", "add", "boss", "--new-secret-file", &boss]);
    machine.ok(&["auth", "on", "password"]);
    machine.ok(&[&["user", "remove", "boss", "--force"][..], &as_boss].concat());
    for change in [["role", "boss", "user"], ["acl", "boss", "*"]] {
        let machine = Machine::new();
        machine.ok(&["user", "add", "boss", "--new-secret-file", &boss]);
        machine.ok(&["auth", "on", "password"]);
        machine.refused(&[&["user"][..], &change, &as_boss].concat());
        machine.ok(&[&["user"][..], &change, &["--force"], &as_boss].concat());
    }
}

#[test]
fn a_snapshot_that_leaves_no_admin_is_restored_only_if_that_is_meant() {
    let (machine, elsewhere) = (Machine::new(), Machine::new());
    let boss = machine.secret("boss", "adminpw1");
    let as_boss = ["--user", "boss", "--secret-file", &boss];
    // Lines do not say of which network they are.
    let (before, after) = (machine.path("before.jsonl"), machine.path("after.jsonl"));
    let save = |to| machine.ok(&["snapshot", "save", "--format", "jsonl", "--to", to]);
    machine.ok(&["user", "add", "boss", "--new-secret-file", &boss]);
    save(&before);
    machine.ok(&["user", "role", "boss", "user"]);
    save(&after);
    elsewhere.ok(&["snapshot", "restore", &before]);
    elsewhere.ok(&["auth", "on", "password"]);
    let restore = [&["snapshot", "restore", &after][..], &as_boss].concat();
    let said = elsewhere.refused(&restore);
    for part in ["last admin", "nothing was taken in", "--with-auth"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(elsewhere.ok(&[&["user", "show", "boss"][..], &as_boss].concat()).contains("admin"));
    // One that leaves everything as it is is taken.
    elsewhere.ok(&[&["snapshot", "restore", &before][..], &as_boss].concat());
    elsewhere.ok(&[&restore[..], &["--with-auth"]].concat());
}

#[test]
fn users_of_another_network_come_along_only_if_that_is_meant() {
    let (machine, elsewhere) = (Machine::new(), Machine::new());
    let (boss, admin) = (machine.secret("boss", "adminpw1"), machine.secret("admin", "adminpw2"));
    let as_boss = ["--user", "boss", "--secret-file", &boss];
    let as_admin = ["--user", "admin", "--secret-file", &admin];
    let saved = machine.path("saved.dkv");
    machine.ok(&["set", "a", "1"]);
    machine.ok(&["acl", "set", "lamps", "#", "rwcdxen"]);
    machine.ok(&["user", "add", "boss", "--new-secret-file", &boss]);
    machine.ok(&["user", "add", "joe", "--acl", "lamps", "--new-secret-file", &boss]);
    machine.ok(&["auth", "on", "password"]);
    machine.ok(&[&["snapshot", "save", "--to", &saved][..], &as_boss].concat());
    // Users of its own, who log in the same way: nothing else is asked.
    elsewhere.ok(&["user", "add", "admin", "--new-secret-file", &admin]);
    elsewhere.ok(&["auth", "on", "password"]);
    let restore = [&["snapshot", "restore", &saved, "--any-network"][..], &as_admin].concat();
    let done = elsewhere.run(&restore);
    for part in ["left out (2 users and 1 access list)", "--with-auth takes them in"] {
        assert!(done.code == 0 && done.stdout.contains(part), "{part}: {}", done.stdout);
    }
    // They are left out with the rest.
    assert!(!done.stderr.contains("logins are switched on"), "{}", done.stderr);
    // What it would do is said with what was asked for.
    let only = ["snapshot", "restore", &saved, "--with-auth"];
    let refused = elsewhere.refused(&[&only[..], &as_admin].concat());
    assert!(refused.contains("takes it nevertheless, with its users"), "{refused}");
    assert_eq!(elsewhere.ok(&[&["get", "a"][..], &as_admin].concat()), "1\n");
    elsewhere.refused(&[&["get", "a"][..], &as_boss].concat());
    let users = || elsewhere.ok(&[&["user", "list"][..], &as_admin].concat());
    assert!(!users().contains("boss") && !users().contains("joe"), "{}", users());
    assert!(elsewhere.ok(&[&["acl", "list"][..], &as_admin].concat()).contains("there are no"));
    let told = elsewhere.ok(&[&restore[..], &["--json"]].concat());
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["users"], &told["lists"]), (&2.into(), &1.into()), "{told}");
    assert_eq!(told["access_left_out"], true);
    // What was left out can still come.
    let done = elsewhere.run(&[&restore[..], &["--with-auth"]].concat());
    assert!(done.stdout.contains("2 users and 1 access list are in it"), "{}", done.stdout);
    assert!(done.stdout.contains("logins are on in this network now"), "{}", done.stdout);
    assert!(!done.stderr.contains("logins are switched on"), "it is said once: {}", done.stderr);
    assert_eq!(elsewhere.ok(&[&["get", "a"][..], &as_boss].concat()), "1\n");
    assert!(users().contains("joe") && users().contains("admin"), "{}", users());
}

#[test]
fn users_of_another_network_come_into_its_directory_only_if_that_is_meant() {
    let machine = Machine::new();
    let (boss, saved) = (machine.secret("boss", "adminpw1"), machine.path("saved.dkv"));
    machine.ok(&["set", "a", "1"]);
    machine.ok(&["user", "add", "boss", "--new-secret-file", &boss]);
    machine.ok(&["acl", "set", "lamps", "#", "r"]);
    machine.ok(&["snapshot", "save", "--to", &saved]);
    let lines = machine.path("lines.jsonl");
    fs::write(&lines, "{\"path\":\"b\",\"value\":1,\"chain\":[\"n9~7:1\"],\"tock\":1}\n").unwrap();
    let done = |words: &[&str]| {
        let done = cli(words);
        assert_eq!(done.code, 0, "{words:?}: {}", done.stderr);
        done.stdout
    };
    let paths = |data: &str| {
        let lines = done(&["snapshot", "convert", data, "--format", "jsonl", "--to", "-"]);
        let path = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["path"].as_str().unwrap().to_owned()
        };
        lines.lines().map(path).collect::<Vec<_>>()
    };
    let all = [":n.acl.lamps.#", ":n.auth.password.user.boss", "a", "b"];
    for (name, replays) in [("restored", false), ("replayed", true)] {
        let into = machine.path(name);
        done(&["snapshot", "restore", &lines, "--into", &into, "--name", "n9", "--network", "own"]);
        let mut put = match replays {
            false => vec!["snapshot", "restore", &saved],
            true => vec!["log", "replay", &saved],
        };
        put.extend(["--into", &into, "--any-network"]);
        let told = done(&put);
        assert!(told.contains("left out (1 user and 1 access list)"), "{told}");
        assert!(!told.contains("--key"), "{told}");
        assert_eq!(paths(&into), ["a", "b"]);
        put.push("--with-auth");
        let told = done(&put);
        assert!(told.contains("1 user and 1 access list are in it"), "{told}");
        assert_eq!(paths(&into), all);
    }
    // A network that moves takes its users with it, and says so.
    let moved = machine.path("moved");
    let told = done(&["snapshot", "restore", &saved, "--into", &moved, "--network", "next"]);
    assert!(told.contains("1 user and 1 access list are in it"), "{told}");
    assert!(told.ends_with("--network next; if the network has a key, add --key FILE\n"), "{told}");
    assert_eq!(paths(&moved).len(), 3);
}

#[test]
fn lines_for_what_belongs_to_the_system_are_imported_only_if_that_is_meant() {
    let machine = Machine::new();
    let lines = machine.path("lines.jsonl");
    fs::write(
        &lines,
        "{\"path\": \"a\", \"value\": 1}\n{\"path\": \":n.acl.lamps.site\", \"value\": \"r\"}\n",
    )
    .unwrap();
    let said = machine.refused(&["import", &lines]);
    for part in ["line 2", ":n.acl.lamps.site", "belongs to the system", "`acl`", "--system"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(machine.ok(&["get", "a"]), "1\n");
    assert!(machine.ok(&["acl", "list"]).contains("there are no"));
    machine.ok(&["import", &lines, "--system"]);
    assert!(machine.ok(&["acl", "show", "lamps"]).contains("site"));
}

#[test]
fn nobody_is_made_by_a_change_of_who_is_not_there() {
    let machine = Machine::new();
    let (joe, made) = (machine.secret("joe", "geheim12"), machine.path("made"));
    machine.ok(&["user", "add", "joe", "--acl", "lamps", "--new-secret-file", &joe]);
    machine.ok(&["user", "remove", "joe"]);
    for name in ["joe", "jeo"] {
        for change in [
            &["password", name, "--new-secret-file", &joe][..],
            &["password", name, "--new-secret-file", &made],
            &["token", name],
            &["ticket", name, "--to", &made],
            &["ticket", name, "--to", &made, "--method", "token"],
            &["role", name, "operator"],
            &["role", name, "operator", "--method", "token"],
            &["acl", name, "lamps"],
            &["acl", name, "lamps", "--method", "token"],
            &["remove", name],
            &["remove", name, "--method", "password"],
            &["show", name],
        ] {
            let done = machine.run(&[&["user"][..], change].concat());
            assert_eq!(done.code, 1, "{change:?}: {done:?}");
            let told = format!("there is no user \"{name}\"");
            assert!(done.stderr.contains(&told), "{change:?}: {}", done.stderr);
            assert!(!fs::exists(&made).unwrap(), "{change:?}: a secret that is nobody's");
            assert_eq!(machine.ok(&["user", "list"]), "there are no users\n", "{change:?}");
        }
    }
}

#[test]
fn a_ticket_for_a_user_with_a_password_may_have_one_that_is_made() {
    let machine = Machine::new();
    let (joe, made, to) =
        (machine.secret("joe", "geheim12"), machine.path("made"), machine.path("t"));
    machine.ok(&["user", "add", "joe", "--acl", "lamps", "--new-secret-file", &joe]);
    machine.ok(&["user", "add", "boss", "--new-secret-file", &joe]);
    machine.ok(&["user", "ticket", "joe", "--new-secret-file", &made, "--to", &to]);
    machine.ok(&["auth", "on", "password"]);
    let whoami = ["whoami", "--user", "joe", "--secret-file", &made];
    assert!(machine.ok(&whoami).contains("joe"));
    let by_ticket = cli(&["whoami", "--ticket", &format!("@{to}")]);
    assert!(by_ticket.stdout.contains("joe"), "{by_ticket:?}");
}

#[test]
fn who_is_removed_while_it_is_changed_is_not_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (secret, ticket) = (path("secret"), path("ticket"));
    fs::write(&secret, "geheim12\n").unwrap();
    let chain: &[u8] = b"\x82\xa4node\xa4n1~2\xa4tick\x05";
    for (code, exit, told) in [
        ("is_new", 1, "there is no user \"joe\""),
        ("chain_mismatch", 5, "was changed by somebody else at this moment; nothing was changed"),
    ] {
        for change in [
            &["password", "joe", "--new-secret-file", &secret][..],
            &["token", "joe"],
            &["ticket", "joe", "--to", &ticket, "--method", "token"],
            &["role", "joe", "operator", "--method", "token"],
            &["acl", "joe", "lamps", "--method", "token"],
        ] {
            let node = FakeNode::start(move |request| match request.str("action") {
                Some("auth_get") => {
                    vec![Fields::new().str("role", "user").raw("chain", chain).clone()]
                }
                Some("auth_set") => vec![error("the record is another one", code)],
                _ => vec![Fields::new()],
            });
            let connect = node.address.to_string();
            let done = run(&[&["user"][..], change, &["--connect", &connect]].concat(), &[], b"");
            assert_eq!(node.asked("auth_set").get("chain"), Some(chain), "{change:?}");
            assert!(done.code == exit && done.stderr.contains(told), "{change:?}: {done:?}");
        }
    }
}

#[test]
fn who_was_removed_and_changed_elsewhere_is_made_anew_or_removed_as_status_says() {
    let machine = Machine::new();
    let joe = machine.secret("joe", "geheim12");
    // What comes of a change at a node that had not heard of the removal, and was ahead.
    let ahead = Cell::new(0);
    let change_elsewhere = |method: &str| {
        machine.ok(&["user", "remove", "joe", "--method", method]);
        let elsewhere = Machine::new();
        let (many, saved) = (elsewhere.path("many.jsonl"), elsewhere.path("saved"));
        ahead.set(ahead.get() + 100);
        let line = |n| format!("{{\"path\":\"x:{n}\",\"value\":{n}}}\n");
        fs::write(&many, (0..ahead.get()).map(line).collect::<String>()).unwrap();
        elsewhere.ok(&["import", &many]);
        elsewhere.ok(&["user", "add", "joe", "--method", method, "--new-secret-file", &joe]);
        elsewhere.ok(&["snapshot", "save", "--to", &saved]);
        machine.ok(&["snapshot", "restore", &saved, "--any-network", "--with-auth"]);
        let warning = machine.ok(&["status"]);
        for advised in ["`distkv-node user add`", "`distkv-node user remove`"] {
            assert!(warning.contains(advised), "{warning}");
        }
        assert!(warning.contains(&format!("with `--method {method}`")), "{warning}");
    };
    let is_told = || machine.ok(&["status"]).contains("did not know of it");
    let add = |method: &str| {
        let add = ["user", "add", "joe", "--acl", "lamps", "--method", method];
        machine.ok(&[&add[..], &["--new-secret-file", &joe]].concat());
    };
    machine.ok(&["acl", "set", "lamps", "#", "rwcdxen"]);
    fs::write(&joe, "0123456789abcdef0123456789abcdef\n").unwrap();
    for method in ["password", "token"] {
        add(method);
        change_elsewhere(method);
        for change in [&["role", "joe", "operator"][..], &["acl", "joe", "*"], &["show", "joe"]] {
            let said = machine.refused(&[&["user"][..], change].concat());
            assert!(said.contains("there is no user \"joe\""), "{said}");
        }
        add(method);
        assert!(!is_told());
        let shown = machine.ok(&["user", "show", "joe"]);
        assert_eq!(shown, format!("joe ({method}): role user, access list lamps\n"));
        change_elsewhere(method);
        let removed = machine.ok(&["user", "remove", "joe", "--method", method]);
        assert_eq!(removed, format!("joe ({method}) is removed\n"));
        assert!(!is_told());
        // Without the method, where there is no other user of that name.
        add(method);
        change_elsewhere(method);
        assert_eq!(machine.ok(&["user", "remove", "joe"]), removed);
        assert!(!is_told());
    }
    // Who is a user by another method stays, unless nothing else can be meant.
    add("token");
    add("password");
    change_elsewhere("password");
    machine.ok(&["user", "remove", "joe", "--method", "password"]);
    assert!(machine.ok(&["user", "show", "joe"]).starts_with("joe (token)"));
}

#[test]
fn all_commands_of_a_user_that_is_removed_end_soon_however_many_they_are() {
    let machine = Machine::new();
    let (boss, joe) = (machine.secret("boss", "adminpw1"), machine.secret("joe", "geheim12"));
    machine.ok(&["user", "add", "boss", "--new-secret-file", &boss]);
    machine.ok(&["user", "add", "joe", "--acl", "all", "--new-secret-file", &joe]);
    machine.ok(&["acl", "set", "all", "#", "rwcdxen"]);
    machine.ok(&["acl", "set", "all", ":", "rwcdxen"]);
    machine.ok(&["auth", "on", "password"]);
    let address = machine.node.client.to_string();
    let twice = format!("{address},{address}");
    let watch = &["watch", "k"][..];
    let kinds = [(watch, &address), (&["monitor", "k"], &address), (watch, &twice)];
    // More than a node lets guess.
    let mut running = Vec::new();
    for (command, at) in kinds.into_iter().cycle().take(18) {
        let as_joe = ["--user", "joe", "--secret-file", &joe, "--connect", at];
        let mut child = program(&[command, &as_joe].concat()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.contains("watching k") || line.contains("monitoring k"), "{line}");
        running.push((child, said));
    }
    machine.ok(&["user", "remove", "joe", "--user", "boss", "--secret-file", &boss]);
    let removed = Instant::now();
    for (mut child, mut said) in running {
        wait_until("a command of a removed user ends", || child.try_wait().unwrap());
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(3), "{rest}");
        let told = rest.lines().last().unwrap_or_default();
        assert!(told.contains("joe") && !told.contains("again until"), "{rest}");
    }
    assert!(removed.elapsed() < Duration::from_secs(20), "{:?}", removed.elapsed());
}

#[test]
fn what_was_removed_is_told_although_the_rest_fails() {
    let node = FakeNode::start(|request| match (request.str("action"), request.str("typ")) {
        (Some("auth_get"), _) => vec![error("there is no such user", "not_found")],
        (_, Some("password")) => vec![Fields::new().bool("changed", true).clone()],
        _ => vec![error("the disk is full", "disk_full")],
    });
    let connect = node.address.to_string();
    let done = run(&["user", "remove", "joe", "--connect", &connect], &[], b"");
    assert!(done.code != 0 && done.stderr.contains("the disk is full"), "{done:?}");
    assert_eq!(done.stdout, "joe (password) is removed\n");
}

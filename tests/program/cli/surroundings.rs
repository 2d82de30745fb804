//! What surrounds a command: variables of the environment that are no text, and an output that cannot be written.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

use crate::cli::command::{at, ok, program, run, run_with_closed_output};
use crate::processes::{NodeProcess, PROGRAM, wait_until};

#[test]
fn a_variable_that_is_no_text_is_an_error_and_not_as_if_it_were_not_set() {
    for name in ["DISTKV_CONNECT", "DISTKV_TICKET", "DISTKV_USER"] {
        let mut command = program(&["get", "a"]);
        command.env(name, OsStr::from_bytes(b"n1\xff"));
        let done = command.output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(2), "{name}: {said}");
        assert!(said.contains(&format!("the variable {name} is no UTF-8")), "{said}");
    }
    let mut command = program(&["get", "a", "--user", "joe", "--secret-env", "OWN"]);
    command.env("OWN", OsStr::from_bytes(b"\xff"));
    let done = command.output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.code() == Some(2) && said.contains("the variable OWN"), "{said}");
}

#[test]
fn what_is_wrong_in_a_variable_is_told_by_its_name_and_what_is_typed_by_its_option() {
    let run = ["run", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let typed = [&run[..], &["--log", "loud"]].concat();
    let get = &["get", "a"][..];
    for (arguments, variable, says) in [
        (&run[..], Some(("DISTKV_LOG", "loud")), "error: DISTKV_LOG: \"loud\" is no level"),
        (&typed, None, "error: --log: \"loud\" is no level"),
        (get, Some(("DISTKV_KEY", "/none/key")), "error: DISTKV_KEY: the key file /none/key: "),
        (&["get", "a", "--key", "/none/key"], None, "error: the key file /none/key: "),
        (get, Some(("DISTKV_TICKET", "@/none/t")), "error: DISTKV_TICKET: cannot read /none/t: "),
    ] {
        let done = program(arguments).envs(variable).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(2), "{variable:?}: {said}");
        assert!(said.starts_with(says), "{variable:?}: {said}");
    }
}

#[test]
fn a_node_that_hangs_is_not_said_not_to_run() {
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = hangs.local_addr().unwrap().to_string();
    let done =
        program(&["get", "a", "--connect", &address, "--timeout", "100ms"]).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(6), "{said}");
    assert!(said.contains("no greeting within 100ms") && said.contains("it hangs"), "{said}");
    assert!(!said.contains("start a node"), "{said}");
}

#[test]
fn who_cannot_print_that_a_change_was_made_says_that_it_may_have_been() {
    let node = NodeProcess::run("n1");
    let mut command = program(&["set", "a", "1", "--connect", &node.client.to_string()]);
    command.stdout(File::create("/dev/full").unwrap());
    let done = command.spawn().unwrap().wait_with_output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(1), "{said}");
    let says = "cannot write to standard output";
    assert!(said.contains(says) && said.contains("may have been done"), "{said}");
    assert_eq!(ok(&node, &["get", "a"]).trim(), "1");
}

#[test]
fn a_node_that_cannot_print_where_it_is_says_nothing_of_changes() {
    let ports = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--insecure"];
    let mut command = program(&[&["run", "--name", "n1"], &ports[..]].concat());
    command.stdout(File::create("/dev/full").unwrap()).stderr(std::process::Stdio::piped());
    let done = command.spawn().unwrap().wait_with_output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write to standard output"), "{said}");
    assert!(said.contains("the node has ended"), "{said}");
    assert!(!said.contains("may have been done"), "{said}");
}

#[test]
fn a_reader_that_stops_early_has_no_whole_snapshot_and_the_command_says_so() {
    let node = NodeProcess::run("n1");
    // More than a pipe holds.
    ok(&node, &["set", "a", "--string", &"x".repeat(100_000)]);
    let script = format!(
        "{} snapshot save --to - --connect {} | head -c 10 > /dev/null; echo ${{PIPESTATUS[0]}}",
        env!("CARGO_BIN_EXE_distkv-node"),
        node.client
    );
    let done = Command::new("bash").args(["-c", &script]).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(String::from_utf8(done.stdout).unwrap().trim(), "1", "{said}");
    assert!(said.contains("what it has is not whole"), "{said}");
}

#[test]
fn a_closed_standard_input_is_not_an_empty_one() {
    let node = NodeProcess::run("n1");
    let run = |command: &str, input: &str| {
        let program = env!("CARGO_BIN_EXE_distkv-node");
        let script = format!("{program} {command} --connect {} {input}", node.client);
        let done = Command::new("bash").args(["-c", &script]).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    for command in [
        "set k -",
        "set k --string -",
        "set k --raw-file -",
        "set k --msgpack -",
        "send a --string -",
        "import -",
        "apply - --delete --allow-empty",
        "diff -",
    ] {
        // Nothing tells the two apart: the other one is Python's `subprocess.DEVNULL`.
        for input in ["<&-", "<>/dev/null"] {
            let (code, said) = run(command, input);
            let says = "error: cannot read standard input: it is closed, or it is /dev/null";
            assert!(code == Some(1) && said.starts_with(says), "{command} {input}: {said}");
        }
    }
    assert_eq!(at(&node, &["get", "k"]).code, 1);
    for input in ["</dev/null", "< <(printf '')", "<<<''"] {
        assert_eq!(run("set k --string -", input).0, Some(0), "{input}");
    }
    assert_eq!(ok(&node, &["get", "k"]).trim(), "\"\\n\"");
}

#[test]
fn a_closed_standard_output_ends_a_command_that_would_wait_for_what_comes() {
    let node = NodeProcess::run("n1");
    let run = |command: &str, output: &str| {
        let program = env!("CARGO_BIN_EXE_distkv-node");
        let script = format!("timeout 30 {program} {command} --connect {} {output}", node.client);
        let done = Command::new("bash").args(["-c", &script]).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    for command in ["watch a", "watch a --fetch", "monitor", "conflicts --follow"] {
        let (code, said) = run(command, ">&-");
        assert!(code == Some(1) && said.contains("it is closed"), "{command}: {code:?} {said}");
    }
    // Somebody may wait for that many only.
    ok(&node, &["set", "a", "1"]);
    for output in [">&-", ">/dev/null"] {
        assert_eq!(run("watch a --fetch --count 1", output).0, Some(0));
    }
}

#[test]
fn help_that_cannot_be_written_is_an_error() {
    for word in ["--help", "--version"] {
        let done = program(&[word]).stdout(File::create("/dev/full").unwrap()).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{said}");
        assert!(said.contains("cannot write to standard output"), "{said}");
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_not_taken_for_another_one() {
    let (node, folder) = (NodeProcess::run("n1"), tempfile::tempdir().unwrap());
    let second = NodeProcess::join("n2", &[&node]);
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (at, saved, config) = (node.client.to_string(), path("saved.dkv"), path("node.toml"));
    let other = path("other.dkv");
    ok(&node, &["snapshot", "save", "--to", &saved]);
    ok(&node, &["set", "a", "1", "--copies", "1"]);
    ok(&node, &["snapshot", "save", "--to", &other]);
    let at_second = second.client.to_string();
    std::fs::write(&config, "name = \"n1\"\nfound = true\n").unwrap();
    let (key, lines) = (path("key"), path("lines.jsonl"));
    assert_eq!(run(&["key", "new", "--network", "plant", "--to", &key], &[], b"").code, 0);
    let ticket = run(&["ticket", "new", "127.0.0.1", "--key", &key], &[], b"");
    std::fs::write(&lines, "{\"path\": \"a\", \"value\": 2}\n").unwrap();
    ok(&node, &["user", "add", "robot", "--method", "token", "--acl", "lamps"]);
    ok(&node, &["acl", "set", "lamps", "site.#", "r"]);
    let [schema, good, bad] = ["{\"type\": \"number\"}", "1", "\"x\""];
    let examples = ["--schema", schema, "--good", good, "--good", "2", "--bad", bad];
    ok(&node, &[&["type", "set", "number"][..], &examples].concat());
    ok(&node, &["match", "set", "number.#", "number"]);
    for (arguments, answer) in [
        (&["verify", &at, &at_second][..], 0),
        (&["get", "a", "--connect", &at], 0),
        (&["members", "--connect", &at], 0),
        (&["ls", "--connect", &at], 0),
        (&["tree", "--connect", &at], 0),
        (&["tree", "--json", "--connect", &at], 0),
        (&["shards", "--connect", &at], 0),
        (&["whoami", "--connect", &at], 0),
        (&["user", "list", "--connect", &at], 0),
        (&["user", "list", "--json", "--connect", &at], 0),
        (&["user", "show", "robot", "--connect", &at], 0),
        (&["acl", "list", "--connect", &at], 0),
        (&["acl", "show", "lamps", "--connect", &at], 0),
        (&["acl", "test", "lamps", "site.x", "r", "--connect", &at], 0),
        (&["acl", "explain", "robot", "site.x", "--connect", &at], 0),
        (&["auth", "--connect", &at], 0),
        (&["type", "--connect", &at], 0),
        (&["type", "list", "--json", "--connect", &at], 0),
        (&["type", "show", "number", "--connect", &at], 0),
        (&["match", "--connect", &at], 0),
        (&["state", "--connect", &at], 0),
        (&["state", "--resync", "--connect", &at], 0),
        (&["ticket", "show", ticket.stdout.trim()], 0),
        (&["key", "list", &key], 0),
        (&["delete", "-r", "a", "--dry-run", "--connect", &at], 0),
        (&["apply", &lines, "--dry-run", "--connect", &at], 0),
        (&["diff", &lines, "--connect", &at], 1),
        (&["snapshot", "inspect", &saved], 0),
        (&["completions", "bash"], 0),
        (&["clients", "--connect", &at], 0),
        (&["top", "--once", "--timeout", "60s", "--connect", &at], 0),
        (&["snapshot", "save", "--to", "-", "--connect", &at], 1),
        (&["status", "--connect", &at], 0),
        (&["snapshot", "verify", &saved], 0),
        (&["snapshot", "diff", &saved, &other], 1),
        (&["config", "check", &config], 0),
    ] {
        let mut command = program(arguments);
        command.stdout(File::create("/dev/full").unwrap());
        let done = command.spawn().unwrap().wait_with_output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(8), "{arguments:?}: {said}");
        assert!(said.contains("cannot write to standard output"), "{arguments:?}: {said}");
        assert!(!said.contains("may have been done"), "{arguments:?}: {said}");
        // Whoever does not read it has the exit code.
        assert_eq!(run_with_closed_output(arguments).code, answer, "{arguments:?}");
    }
}

#[test]
fn who_may_open_hardly_any_file_is_told_so() {
    for args in ["status", "run --name n1"] {
        let program = env!("CARGO_BIN_EXE_distkv-node");
        let script = format!("ulimit -n 8; exec {program} {args}");
        let done = Command::new("sh").args(["-c", &script]).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{said}");
        assert!(said.contains("may open only 8 files at once, and needs 16"), "{said}");
    }
}

#[test]
fn a_command_that_waits_for_what_comes_ends_with_who_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap().to_owned();
    let node = NodeProcess::start(
        "n1",
        &["run", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--data-dir", &data],
    );
    ok(&node, &["set", "a", "1"]);
    let address = node.client.to_string();
    let at = ["--connect", address.as_str()];
    let commands: [&[&str]; 4] = [
        &[&["watch", "a", "--fetch"][..], &at].concat(),
        &[&["monitor"][..], &at].concat(),
        &[&["conflicts", "--follow"][..], &at].concat(),
        &["log", "follow", &data],
    ];
    for arguments in commands {
        let mut child = program(arguments).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        // It has begun, and nothing more will come.
        said.next().unwrap().unwrap();
        assert_eq!(child.try_wait().unwrap(), None, "{arguments:?}");
        drop(child.stdout.take());
        let ended = wait_until("it has ended", || child.try_wait().unwrap());
        assert_eq!(ended.code(), Some(0), "{arguments:?}");
        assert_eq!(said.map(Result::unwrap).collect::<Vec<_>>(), [""; 0], "{arguments:?}");
    }
}

#[test]
fn an_exit_code_that_is_an_answer_is_given_also_where_nobody_reads_what_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let node = NodeProcess::run("n1");
    let (before, after, no) = (file("before.dkv"), file("after.dkv"), file("no.dkv"));
    ok(&node, &["snapshot", "save", "--to", &before]);
    ok(&node, &["set", "a", "1"]);
    ok(&node, &["snapshot", "save", "--to", &after]);
    let list = file("list.jsonl");
    std::fs::write(&list, "{\"path\":\"b\",\"value\":1}\n").unwrap();
    let config = file("node.toml");
    std::fs::write(&config, "name = 5\n").unwrap();
    let address = node.client.to_string();
    let commands: [(&[&str], i32); 6] = [
        (&["snapshot", "diff", &before, &after], 1),
        (&["snapshot", "diff", &before, &before], 0),
        (&["snapshot", "verify", &before, &no], 1),
        (&["diff", &list, "--connect", &address], 1),
        (&["config", "check", &config], 2),
        (&["status", "--connect", &address], 0),
    ];
    for (arguments, code) in commands {
        let done = run_with_closed_output(arguments);
        assert_eq!(done.code, code, "{arguments:?}: {}", done.stderr);
    }
}

#[test]
fn a_program_that_forgets_a_member_on_a_terminal_is_not_asked_in_the_middle_of_its_json() {
    // Nobody listens there: it is said before anything is done.
    let typed = format!("{PROGRAM} members forget n3 --json --connect 127.0.0.1:1");
    let on_terminal = |typed: &str| {
        let mut terminal = Command::new("script");
        terminal.args(["-qec", typed, "/dev/null"]).stdin(std::process::Stdio::null());
        let done = terminal.output().unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap())
    };
    let (code, said) = on_terminal(&typed);
    let error: serde_json::Value = serde_json::from_str(said.trim()).expect(&said);
    assert_eq!((code, &error["outcome"]), (Some(2), &"usage".into()), "{said}");
    assert!(said.contains("--yes is missing"), "{said}");
    let (code, said) = on_terminal(&format!("{typed} --yes"));
    assert_eq!(code, Some(6), "{said}");
}

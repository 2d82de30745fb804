//! The command line: its help, its errors and exit codes, what it asks a node for and how it
//! prints the answers (against a scripted node), and whole networks of real processes.

mod bench;
pub(crate) mod command;
mod commands;
mod directories;
mod fake;
mod files;
mod from_other_stores;
mod given;
mod given_up;
mod gone_reader;
mod nodes;
mod not_shown;
mod other_network;
mod said;
mod shut_out;
mod surroundings;
mod tickets;

use command::{cli, cli_until_asked, cli_with, cli_with_input};
use distkv::client::Fields;
use distkv::testing::free_addrs;
use fake::{FakeNode, changed, error, item, state};

/// One reply.
fn one(fields: Fields) -> Vec<Fields> {
    vec![fields]
}

#[test]
fn help_tells_how_to_begin_and_what_exit_codes_mean() {
    let help = cli(&["--help"]);
    assert_eq!(help.code, 0);
    for fact in [
        "distkv-node demo",
        "Exit codes:",
        "DISTKV_CONNECT",
        "DISTKV_LOG",
        "Paths:",
        "\"$bin\"",
        "distkv-node key new --network plant --to key",
        "distkv-node join --key key --name n2",
    ] {
        assert!(help.stdout.contains(fact), "{fact} is not in {}", help.stdout);
    }
    assert_eq!(cli(&[]).code, 2);
    let version = cli(&["--version"]);
    assert_eq!(version.stdout.trim(), concat!("distkv-node ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_help_of_each_command_has_examples_that_are_commands() {
    let commands = [
        "run",
        "join",
        "demo",
        "get",
        "set",
        "delete",
        "tree",
        "watch",
        "send",
        "monitor",
        "status",
        "members",
        "conflicts",
        "shards",
        "verify",
        "state",
        "wait",
        "snapshot",
        "log",
        "import",
        "leave",
        "user",
        "acl",
        "auth",
        "whoami",
        "bench",
    ];
    for command in commands {
        for flag in ["-h", "--help"] {
            let help = cli(&[command, flag]);
            assert_eq!(help.code, 0, "{command}");
            assert!(help.stdout.contains("Examples:"), "{command} {flag}");
            assert!(help.stdout.contains(&format!("distkv-node {command}")), "{command} {flag}");
        }
    }
    for command in ["run", "join"] {
        let help = cli(&[command, "--help"]).stdout;
        for fact in [
            "127.0.0.1:27586",
            "127.0.0.1:27587",
            "SIGHUP",
            "peer-file",
            "max-memory =",
            "--data-dir",
            "every-batch ",
        ] {
            assert!(help.contains(fact), "{command}: {fact}");
        }
    }
    assert!(cli(&["run", "-h"]).stdout.contains("--init"));
    assert!(!cli(&["join", "-h"]).stdout.contains("--init"));
}

#[test]
fn the_help_s_configuration_file_is_one() {
    let help = cli(&["run", "--help"]).stdout;
    let from = help.find("    name = ").unwrap();
    let to = help.find("Data on disk").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    // Its own error proves that all of the rest was understood.
    std::fs::write(&file, format!("{}\nunheard-of = 1", &help[from..to])).unwrap();
    let run = cli(&["run", "--config", file.to_str().unwrap()]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("unknown key \"unheard-of\""), "{}", run.stderr);
}

#[test]
fn nonsense_is_one_line_that_says_what_to_do_and_exit_code_2() {
    for (arguments, advice) in [
        (&["get", "a..b"][..], "the root is ':'"),
        (&["get", ""], "the root is ':'"),
        (&["set", "a", "hello"], "--string"),
        (&["set", "a"], "--msgpack"),
        (&["set", "a", "{\"a\":"], "not JSON"),
        (&["set", "a", "1", "--if-value", "x"], "quotes"),
        (&["set", "a", "1", "--chain", "n1"], "n3~e9001b2c3d4e:43"),
        (&["set", "a", "1", "--chain", "n1:5"], "n1~LIFE"),
        (&["get", "a", "--connect", "localhost:x"], "65535"),
        (&["get", "a", "--connect", ":1"], "HOST:PORT"),
        (&["get", "a", "--connect", "localhost:0"], "nothing listens at port 0"),
        (&["verify", "localhost:0", "localhost:1"], "nothing listens at port 0"),
        (&["get", "a", "--timeout", "5y"], "ms, s, m, h or d"),
        (&["run", "--name", "a b"], "white space"),
        (&["run", "--client", "localhost"], "HOST:PORT"),
        (&["run", "--gossip", "[::1"], "[ADDRESS]:PORT"),
        (&["run", "--max-memory", "5Q"], "MiB"),
        (&["run", "--max-connections", "0"], "at least 1"),
        (&["run", "--init", "{"], "not JSON"),
        (&["run", "--name", "n", "--log", "loud"], "trace"),
        (&["join"], "`run`"),
        (&["join", "a b"], "host name"),
        (&["join", "localhost:0"], "nothing listens at port 0"),
        (&["run", "--name", "n", "--peer", "[::1]:0"], "nothing listens at port 0"),
        (&["demo", "--port", "65535"], "no room"),
        (&["--connect", "127.0.0.1:1", "demo"], "do not connect to a node"),
        (&["demo", "--nodes", "0"], "1..=16"),
    ] {
        let done = cli(arguments);
        assert_eq!(done.code, 2, "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.starts_with("error: "), "{arguments:?}: {}", done.stderr);
        assert_eq!(done.stderr.lines().count(), 1, "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains(advice), "{arguments:?}: {}", done.stderr);
        assert_eq!(done.stdout, "", "{arguments:?}");
    }
    for arguments in [
        &["dance"][..],
        &["get"],
        &["get", "a", "--frob"],
        &["join", "127.0.0.1", "--init", "5"],
        &["set", "a", "1", "--if-new", "--chain", "new"],
        &["delete", "a", "--recursive", "--if-value", "1"],
    ] {
        let done = cli(arguments);
        assert_eq!(done.code, 2, "{arguments:?}");
        assert!(done.stderr.contains("Usage: distkv-node"), "{arguments:?}: {}", done.stderr);
    }
}

#[test]
fn a_configuration_file_s_mistake_is_told_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    std::fs::write(&file, "name = \"n1\"\n\nread-olny = true\n").unwrap();
    let run = cli(&["run", "--config", file.to_str().unwrap()]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("node.toml, line 3: unknown key \"read-olny\""), "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);

    let missing = folder.path().join("missing.toml");
    let run = cli(&["run", "--config", missing.to_str().unwrap()]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("missing.toml"), "{}", run.stderr);
}

#[test]
fn where_no_node_is_the_error_says_so() {
    let [address] = free_addrs().map(|address| address.to_string());
    let get = cli(&["get", "a", "--connect", &address]);
    assert_eq!(get.code, 6);
    assert!(get.stderr.contains(&address) && get.stderr.contains("--connect"), "{}", get.stderr);

    let get = cli(&["get", "a", "--connect", "no..such:1"]);
    assert_eq!(get.code, 6);
    assert!(get.stderr.contains("cannot look up no..such:1"), "{}", get.stderr);

    let wait = cli(&["wait", "--timeout", "200ms", "--connect", &address]);
    assert_eq!(wait.code, 1);
    assert!(wait.stderr.contains("timed out after 200 ms"), "{}", wait.stderr);
}

#[test]
fn a_node_that_does_not_answer_is_given_up() {
    let node = FakeNode::start(|_| Vec::new());
    let get = cli_with(&node, &["get", "a", "--timeout", "100ms"]);
    // A read leaves nothing behind that somebody would have to look for; a change may.
    assert_eq!(get.code, 6);
    assert!(get.stderr.contains("--timeout"), "{}", get.stderr);
    let set = cli_until_asked(&node, "set_value", &["set", "a", "1", "--timeout", "100ms"]);
    assert_eq!(set.code, 7, "{}", set.stderr);
    let tree = cli_with(&node, &["tree", "a", "--timeout", "100ms"]);
    assert_eq!(tree.code, 6);
}

#[test]
fn get_prints_json_and_finds_nothing_with_exit_code_1() {
    let node = FakeNode::start(|request| {
        let mut reply = Fields::new();
        reply.u64("tock", 7);
        if request.u64("nchain").is_some() {
            reply.raw(
                "chain",
                b"\x83\xa4node\xa2n1\xa4tick\x05\xa4prev\x82\xa4node\xa2n2\xa4tick\x03",
            );
        }
        match distkv::model::path::Path::from_msgpack_value(request.get("path").unwrap()) {
            Ok(path) if path.to_string() == "a.b" => {
                one(reply.raw("value", b"\x81\xa1x\x92\x01\xc4\x01\xff").clone())
            }
            Ok(path) if path.to_string() == "s" => one(reply.raw("value", b"\xa5hel\x1bo").clone()),
            _ => one(reply),
        }
    });
    let get = cli_with(&node, &["get", "a.b", "--json", "--chain"]);
    assert_eq!(
        get.stdout,
        "{\"path\":\"a.b\",\"value\":{\"x\":[1,{\"$bin\":\"/w==\"}]},\"chain\":[\"n1:5\",\"n2:3\"],\"tock\":7}\n"
    );
    let get = cli_with(&node, &["get", "a.b", "--chain"]);
    assert!(get.stdout.starts_with("{\n  \"x\": [\n"), "{}", get.stdout);
    assert!(get.stdout.ends_with("# n1:5 n2:3 …\n"), "{}", get.stdout);
    assert_eq!(cli_with(&node, &["get", "s"]).stdout, "\"hel\\u001bo\"\n");
    assert_eq!(cli_with(&node, &["get", "s", "--raw"]).stdout, "hel\u{1b}o");

    let nothing = cli_with(&node, &["get", "nothing"]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (1, ""));
    assert_eq!(nothing.stderr, "error: nothing has no value\n");
}

#[test]
fn values_go_through_files_byte_by_byte() {
    // An extension of an unknown type, and an integer wider than it must be.
    let value = b"\x92\xd4\x2a\x07\xcd\x00\x05";
    let node = FakeNode::start(|request| match request.str("action") {
        Some("set_value") => one(changed(true)),
        _ => one(Fields::new().raw("value", value).clone()),
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("value.bin");
    let get = cli_with(&node, &["get", "a", "--msgpack", file.to_str().unwrap()]);
    assert_eq!((get.code, get.stdout.as_str()), (0, ""));
    assert_eq!(std::fs::read(&file).unwrap(), value);
    let set = cli_with(&node, &["set", "a", "--msgpack", file.to_str().unwrap()]);
    assert_eq!(set.code, 0, "{}", set.stderr);
    assert_eq!(node.asked("set_value").get("value").unwrap(), value);

    std::fs::write(&file, b"\x92\x01").unwrap();
    let set = cli_with(&node, &["set", "a", "--msgpack", file.to_str().unwrap()]);
    assert_eq!(set.code, 2);
    assert!(set.stderr.contains("value.bin"), "{}", set.stderr);
}

#[test]
fn set_asks_for_what_its_options_say() {
    let node = FakeNode::start(|_| one(changed(true)));
    let arguments = ["set", "a:1", "-5", "--if-new", "--if-value", "-1", "--idem", "--copies", "2"];
    let set = cli_with(&node, &arguments);
    assert_eq!(set.stdout, "a:1: set (n1:5)\n", "{}", set.stderr);
    let asked = node.asked("set_value");
    assert_eq!(asked.get("path").unwrap(), b"\xc7\x03\x03\xa1a\x01");
    assert_eq!(asked.get("value").unwrap(), b"\xfb");
    assert_eq!(asked.get("chain").unwrap(), b"\xc0");
    assert_eq!(asked.get("prev").unwrap(), b"\xff");
    assert_eq!(asked.bool("idem"), Some(true));
    assert_eq!(asked.u64("copies"), Some(2));
    assert_eq!(asked.get("timeout").unwrap(), b"\xcb\x40\x24\0\0\0\0\0\0", "10.0 s");

    let node = FakeNode::start(|_| one(changed(false)));
    let set = cli_with(&node, &["set", "a", "hello", "-s", "--chain", "n1~ab:17", "--json"]);
    assert_eq!(set.stdout, "{\"path\":\"a\",\"changed\":false,\"chain\":[\"n1:5\"],\"tock\":9}\n");
    let asked = node.asked("set_value");
    assert_eq!(asked.get("value").unwrap(), b"\xa5hello");
    assert_eq!(asked.get("chain").unwrap(), b"\x82\xa4node\xa5n1~ab\xa4tick\x11");

    let node = FakeNode::start(|_| one(changed(true)));
    let set = cli_with_input(&node, &["set", "a", "-"], b"[1, {\"$ext\": [42, \"Bw==\"]}]");
    assert_eq!(set.code, 0, "{}", set.stderr);
    assert_eq!(node.asked("set_value").get("value").unwrap(), b"\x92\x01\xd4\x2a\x07");
}

#[test]
fn of_a_path_that_looks_like_options_the_tip_is_what_works() {
    let node = FakeNode::start(|_| one(changed(true)));
    let refused = cli_with(&node, &["set", "-dash", "1"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("unexpected argument '-dash' found"), "{}", refused.stderr);
    assert!(refused.stderr.contains("use '-- -dash'"), "{}", refused.stderr);
    let address = node.address.to_string();
    let set = cli(&["set", "--connect", &address, "--", "-dash", "1"]);
    assert_eq!((set.code, set.stdout.as_str()), (0, "-dash: set (n1:5)\n"), "{}", set.stderr);
}

#[test]
fn a_value_that_is_too_long_is_refused_in_one_way() {
    const MOST: u64 = (4 << 20) - 5;
    let folder = tempfile::tempdir().unwrap();
    let node = FakeNode::start(|_| one(changed(true)));
    let file = |name: &str, bytes: u64| {
        let path = folder.path().join(name);
        std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let fits = cli_with(&node, &["set", "a", "--raw-file", &file("fits", MOST)]);
    assert_eq!(fits.code, 0, "{}", fits.stderr);
    let mut all = Vec::new();
    for bytes in [MOST + 1, MOST + 5, MOST + 6, 2 * MOST] {
        let file = file("raw", bytes);
        all.push(cli_with(&node, &["set", "a", "--raw-file", &file]));
    }
    all.push(cli_with(&node, &["set", "a", "--msgpack", &file("msgpack", MOST + 6)]));
    let text = "x".repeat(MOST as usize + 1);
    all.push(cli_with_input(&node, &["set", "a", "--string", "-"], text.as_bytes()));
    all.push(cli_with_input(&node, &["set", "a", "-"], format!("\"{text}\"").as_bytes()));
    let why = "too long: encoded as MessagePack, a value has at most 4194304 bytes, so a string or byte string has at \
               most 4194299";
    for done in all {
        assert_eq!(done.code, 2, "{}", done.stderr);
        assert!(done.stderr.contains(why) && done.stderr.lines().count() == 1, "{}", done.stderr);
    }
}

#[test]
fn with_json_an_error_is_json_and_says_how_it_ended() {
    for (word, code, outcome) in [
        ("chain_mismatch", 5, "precondition"),
        ("denied", 3, "refused"),
        ("not_ready", 6, "unreachable"),
        ("unknown_fate", 7, "unknown_fate"),
        ("internal", 1, "failed"),
    ] {
        let node = FakeNode::start(move |_| one(error("no \"way\"", word)));
        let set = cli_with(&node, &["set", "a", "1", "--json"]);
        assert_eq!((set.code, set.stdout.as_str()), (code, ""), "{word}: {}", set.stderr);
        let told: serde_json::Value = serde_json::from_str(&set.stderr).expect("one line of JSON");
        assert!(told["error"].as_str().unwrap().contains("no \"way\""), "{told}");
        assert_eq!((told["outcome"].as_str(), told["code"].as_str()), (Some(outcome), Some(word)));
        assert_eq!(told["exit_code"], code);
    }
    let gone = cli(&["get", "a", "--json", "--connect", "no..such:1"]);
    let told: serde_json::Value = serde_json::from_str(&gone.stderr).expect("one line of JSON");
    assert_eq!((gone.code, told["outcome"].as_str()), (6, Some("unreachable")));
    let wrong = cli(&["set", "a", "not json", "--json"]);
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
}

#[test]
fn a_refusal_is_told_with_its_code() {
    let node = FakeNode::start(|_| one(error("Entry is new", "not_new")));
    let set = cli_with(&node, &["set", "a", "1", "--chain", "n1~ab:1"]);
    assert_eq!((set.code, set.stdout.as_str()), (3, ""));
    assert_eq!(set.stderr, "error: the node refuses: Entry is new (not_new)\n");

    // A bare name would be whichever life the node has now: no node is asked.
    let set = cli_with(&node, &["set", "a", "1", "--chain", "n1:1"]);
    assert_eq!((set.code, set.stdout.as_str()), (2, ""));
    assert!(set.stderr.contains("n1~LIFE"), "{}", set.stderr);
    let delete = cli_with(&node, &["delete", "a", "--chain", "n1~00ab:1"]);
    assert_eq!(delete.code, 2, "{}", delete.stderr);
}

#[test]
fn the_system_s_tree_is_reached_below_n() {
    let node = FakeNode::start(|request| match request.str("action") {
        Some("get_tree_internal") => {
            vec![state("start"), item(0, "x", Some(b"\x01")), state("end")]
        }
        Some("get_internal") => one(Fields::new().raw("value", b"\x05").clone()),
        _ => one(changed(true)),
    });
    assert_eq!(cli_with(&node, &["get", ":n.a.b"]).stdout, "5\n");
    assert_eq!(node.asked("get_internal").get("path").unwrap(), b"\xd6\x03\xa1a\xa1b");
    for words in [&["set", ":n.a", "1"][..], &["set", ":n", "1"], &["edit", ":n.a"]] {
        let refused = cli_with(&node, words);
        assert_eq!(refused.code, 2, "{words:?}: {}", refused.stderr);
        for said in ["belongs to the system", "`user`", "`type`", "--system"] {
            assert!(refused.stderr.contains(said), "{words:?}: {}", refused.stderr);
        }
    }
    assert!(!node.is_asked("set_internal"));
    assert_eq!(cli_with(&node, &["set", ":n.a", "1", "--system"]).code, 0);
    assert_eq!(node.asked("set_internal").get("path").unwrap(), b"\xd5\x03\xa1a");
    for words in
        [&["delete", ":n.a"][..], &["delete", ":n.a", "-r"], &["import", "-", "--below", ":n.a"]]
    {
        let refused = cli_with(&node, words);
        assert_eq!(refused.code, 2, "{words:?}: {}", refused.stderr);
        for said in [":n.a belongs to the system", "`user`", "`type`", "--system"] {
            assert!(refused.stderr.contains(said), "{words:?}: {}", refused.stderr);
        }
    }
    for words in [
        &["apply", "-", "--below", ":n.a", "--delete", "--allow-empty"][..],
        &["mv", "a", ":n.a"],
        &["mv", "-r", ":n.a", "a"],
        &["cp", "-f", "a", ":n.a"],
    ] {
        let refused = cli_with(&node, words);
        assert_eq!(refused.code, 2, "{words:?}: {}", refused.stderr);
        for said in [":n.a belongs to the system", "nothing was changed", "`user`"] {
            assert!(refused.stderr.contains(said), "{words:?}: {}", refused.stderr);
        }
    }
    for action in ["delete_internal", "delete_value", "delete_tree", "get_tree", "get_value"] {
        assert!(!node.is_asked(action), "{action}");
    }
    assert_eq!(cli_with(&node, &["delete", ":n.a", "--system"]).code, 0);
    node.asked("delete_internal");
    cli_with(&node, &["delete", ":n.a", "-r", "--system"]);
    node.asked("delete_tree");
    assert_eq!(cli_with(&node, &["tree", ":n"]).stdout, ":n.x  1\n");
}

#[test]
fn delete_takes_one_entry_or_a_tree() {
    let node = FakeNode::start(|request| match request.str("action") {
        Some("delete_tree") => one(Fields::new().u64("changed", 3).clone()),
        _ => one(changed(false)),
    });
    assert_eq!(cli_with(&node, &["delete", "a"]).stdout, "a: nothing to delete\n");
    assert_eq!(cli_with(&node, &["delete", "a", "-r"]).stdout, "a: 3 deleted\n");
    let json = cli_with(&node, &["delete", "b", "--json"]).stdout;
    assert_eq!(json, "{\"path\":\"b\",\"changed\":false,\"chain\":[\"n1:5\"],\"tock\":9}\n");
}

#[test]
fn a_tree_that_may_be_deleted_in_part_only_is_refused_with_the_number_of_what_is_gone() {
    let text = "not for all entries here: 3 were deleted, the others are left";
    let node = FakeNode::start(move |_| one(error(text, "denied").bool("made", true).clone()));
    let delete = cli_with(&node, &["delete", "a", "-r"]);
    assert_eq!((delete.code, delete.stdout.as_str()), (3, ""), "{}", delete.stderr);
    let told = format!("error: the node refuses: {text} (denied)");
    assert!(delete.stderr.starts_with(&told), "{}", delete.stderr);
    assert!(!delete.stderr.contains("may have been done"), "{}", delete.stderr);
    let delete = cli_with(&node, &["delete", "a", "-r", "--json"]);
    assert!(delete.stderr.contains("\"outcome\":\"refused\""), "{}", delete.stderr);
    assert_eq!(delete.code, 3, "{}", delete.stderr);
}

#[test]
fn tree_prints_whole_paths_aligned() {
    let answer = |request: &distkv::client::Message| {
        // Then whether there is more below.
        if request.u64("max_depth").is_none() {
            return vec![state("start"), state("end")];
        }
        assert_eq!(request.u64("max_depth"), Some(2));
        vec![
            state("start"),
            item(0, ":", Some(b"\xc3")),
            item(0, "b.long", Some(b"\x01")),
            item(1, "c", Some(b"\xa1x")),
            item(0, ":5", None),
            state("end"),
        ]
    };
    let node = FakeNode::start(answer);
    let tree = cli_with(&node, &["tree", "a", "--depth", "2"]);
    assert_eq!(tree.stdout, "a         true\na.b.long  1\na.b.c     \"x\"\na:5       -\n");
    let tree = cli_with(&FakeNode::start(answer), &["tree", "a", "--depth", "2", "--json"]);
    let lines: Vec<_> = tree.stdout.lines().collect();
    assert_eq!(lines[1], "{\"path\":\"a.b.long\",\"value\":1,\"tock\":7}");
    assert_eq!(lines[3], "{\"path\":\"a:5\",\"tock\":7}");
}

#[test]
fn watch_ends_after_its_count() {
    let answer = |request: &distkv::client::Message| match request.str("action") {
        Some("watch") => vec![
            state("start"),
            item(0, "b", Some(b"\x01")),
            state("uptodate"),
            item(0, "b", Some(b"\x02")),
            item(1, ":", None),
            item(0, "never printed", None),
        ],
        _ => one(Fields::new()),
    };
    let node = FakeNode::start(answer);
    let watch = cli_with(&node, &["watch", "a", "--fetch", "--count", "3"]);
    assert_eq!(watch.stdout, "is       a.b  1\n(up to date)\nset      a.b  2\ndeleted  a.b\n");
    assert!(watch.stderr.starts_with("watching a at "), "{}", watch.stderr);
    assert_eq!(node.asked("watch").bool("fetch"), Some(true));

    let node = FakeNode::start(answer);
    let watch = cli_with(&node, &["watch", "a", "--count", "3", "--json"]);
    assert_eq!(watch.code, 0);
    let lines: Vec<_> = watch.stdout.lines().collect();
    assert_eq!(lines[1], "{\"state\":\"uptodate\"}");
    assert_eq!(lines[3], "{\"path\":\"a.b\",\"tock\":7,\"deleted\":true}");
    assert_eq!(node.asked("watch").bool("fetch"), Some(false));
}

#[test]
fn a_watch_that_the_node_ends_is_a_failure() {
    let node = FakeNode::start(|_| vec![state("start"), state("end")]);
    let watch = cli_with(&node, &["watch", "--no-reconnect"]);
    assert_eq!(watch.code, 1);
    assert!(watch.stderr.contains("the node ended the watch"), "{}", watch.stderr);
}

#[test]
fn monitor_prints_what_can_be_decoded_and_what_cannot() {
    let node = FakeNode::start(|request| {
        let message = |name: &str, value: &[u8]| {
            let mut fields = Fields::new();
            fields.raw("topic", b"\x92\xa1a\xa1b").raw(name, value);
            fields
        };
        match request.str("action") {
            Some("msg_monitor") => vec![
                state("start"),
                message("data", b"\x81\xa1x\x01"),
                message("raw", b"\xc4\x01\xc1").str("error", "FormatError()").clone(),
            ],
            _ => one(Fields::new()),
        }
    });
    let monitor = cli_with(&node, &["monitor", "a", "--count", "2", "--json"]);
    assert_eq!(
        monitor.stdout,
        "{\"topic\":\"a.b\",\"data\":{\"x\":1}}\n\
         {\"topic\":\"a.b\",\"raw\":{\"$bin\":\"wQ==\"},\"error\":\"FormatError()\"}\n"
    );
    let asked = node.asked("msg_monitor");
    assert_eq!(asked.get("topic").unwrap(), b"\x91\xa1a");
    assert_eq!(asked.bool("raw"), Some(false));
}

#[test]
fn a_monitor_says_how_many_messages_were_lost_before_one() {
    let node = FakeNode::start(|_| {
        let mut fields = Fields::new();
        fields.raw("topic", b"\x91\xa1a").raw("data", b"\x01").u64("dropped", 2);
        vec![state("start"), fields]
    });
    let people = cli_with(&node, &["monitor", "a", "--count", "1"]);
    assert_eq!((people.code, &*people.stdout), (0, "a  1\n"));
    assert!(people.stderr.contains("warning: 2 messages were lost here"), "{}", people.stderr);
    let programs = cli_with(&node, &["monitor", "a", "--count", "1", "--json"]);
    assert_eq!(programs.stdout, "{\"topic\":\"a\",\"data\":1,\"dropped\":2}\n");
}

#[test]
fn send_takes_json_or_a_file_s_bytes() {
    let node = FakeNode::start(|_| one(Fields::new()));
    assert_eq!(cli_with(&node, &["send", "a.b", "{\"x\": 1}"]).stdout, "a.b: sent\n");
    assert_eq!(node.asked("msg_send").get("data").unwrap(), b"\x81\xa1x\x01");
    let node = FakeNode::start(|_| one(Fields::new()));
    let send = cli_with_input(&node, &["send", "a.b", "--raw-file", "-"], b"\xc1\xff");
    assert_eq!(send.code, 0, "{}", send.stderr);
    assert_eq!(node.asked("msg_send").get("raw").unwrap(), b"\xc4\x02\xc1\xff");
}

#[test]
fn status_is_an_exit_code_too() {
    let status = |ready: bool| {
        move |_: &distkv::client::Message| {
            let mut fields = Fields::new();
            fields.str("name", "n1").str("network", "plant").bool("ready", ready);
            fields.u64("uptime_ms", 200_000).u64("memory_bytes", 2048).nil("memory_max");
            fields.raw("counters", b"\x81\xa6writes\x05").nil("catching_up");
            one(fields)
        }
    };
    let ready = cli_with(&FakeNode::start(status(true)), &["status"]);
    assert_eq!(ready.code, 0);
    for line in
        ["node          n1", "ready         yes", "up for        3 m 20 s", "writes        5"]
    {
        assert!(ready.stdout.contains(line), "{}", ready.stdout);
    }
    assert!(!ready.stdout.contains("catching up"), "{}", ready.stdout);
    let not_ready = cli_with(&FakeNode::start(status(false)), &["status", "--json"]);
    assert_eq!((not_ready.code, not_ready.stderr.as_str()), (1, ""));
    assert!(not_ready.stdout.starts_with("{\"name\":\"n1\",\"network\":\"plant\",\"ready\":false"));
}

#[test]
fn members_are_a_table_or_lines_of_json() {
    let answer = |_: &distkv::client::Message| {
        let mut first = Fields::new();
        first.str("name", "n1").str("state", "self").u64("acked", 0).bool("ready", true);
        let mut second = Fields::new();
        second.str("name", "n2").str("state", "up").bool("linked", true).bool("lagging", false);
        second.u64("acked", 17).u64("since_ms", 5000).str("gossip", "127.0.0.1:1").nil("client");
        let list = [b"\x92".to_vec(), first.encode(), second.encode()].concat();
        one(Fields::new().raw("result", &list).clone())
    };
    let members = cli_with(&FakeNode::start(answer), &["members"]);
    let lines: Vec<_> = members.stdout.lines().collect();
    assert!(lines[0].starts_with("NAME  STATE  FOR  LINK  READY  ACKED"), "{}", members.stdout);
    assert!(lines[1].starts_with("n1    self   -    -     yes    -"), "{}", members.stdout);
    assert!(lines[2].starts_with("n2    up     5 s  yes   -      17"), "{}", members.stdout);
    let json = cli_with(&FakeNode::start(answer), &["members", "--json"]);
    assert_eq!(json.stdout.lines().count(), 2);
    assert!(json.stdout.contains("\"client\":null"), "{}", json.stdout);
}

#[test]
fn the_environment_names_the_node_and_the_option_wins() {
    let node = FakeNode::start(|_| one(Fields::new().raw("value", b"\x05").clone()));
    let address = node.address.to_string();
    let get = command::run(&["get", "a"], &[("DISTKV_CONNECT", address.as_str())], b"");
    assert_eq!(get.stdout, "5\n");
    for both in [["get", "a", "--connect", &address], ["--connect", &address, "get", "a"]] {
        let get = command::run(&both, &[("DISTKV_CONNECT", "no..such:1")], b"");
        assert_eq!(get.stdout, "5\n");
    }
    // As scripts unset one: `DISTKV_KEY= distkv-node get a`.
    let empty = ["KEY", "TICKET", "CONNECT", "USER", "SECRET", "SECRET_FILE"];
    let empty = empty.map(|name| format!("DISTKV_{name}"));
    let empty = empty.each_ref().map(|name| (name.as_str(), ""));
    let get = command::run(&["get", "a", "--connect", &address], &empty, b"");
    assert_eq!((get.stdout.as_str(), get.stderr.as_str()), ("5\n", ""));
    let get = command::run(&["get", "a", "--timeout", "1ms"], &empty, b"");
    assert!(!get.stderr.contains("DISTKV_CONNECT"), "{}", get.stderr);
    let get = command::run(&["get", "a"], &[("DISTKV_CONNECT", "a:b")], b"");
    assert_eq!((get.code, get.stderr.contains("DISTKV_CONNECT: ")), (2, true));
}

#[test]
fn a_closed_output_ends_a_command_quietly() {
    let node = FakeNode::start(|_| {
        let mut messages = vec![state("start")];
        // More than the program keeps before it writes; fewer than flow control lets through.
        let value = [b"\xda\x10\x00".to_vec(), vec![b'x'; 0x1000]].concat();
        messages.extend((0..50).map(|_| item(0, "a", Some(&value))));
        messages.push(state("end"));
        messages
    });
    let done = command::run_with_closed_output(&["tree", "--connect", &node.address.to_string()]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
}

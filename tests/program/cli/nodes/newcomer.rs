//! What a newcomer does in the first afternoon, with real nodes: the mistakes that people make,
//! and what the program says about them.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use distkv::testing::free_addrs;

use crate::cli::command::{at, at_with, bench, bench_program, cli, ok, program, until_met};
use crate::processes::{NodeProcess, PROGRAM, signal, wait_until};

#[test]
fn delete_says_what_stays_below_the_path() {
    let node = NodeProcess::run("n1");
    ok(&node, &["set", "site.lamp", "true"]);
    let nothing = ok(&node, &["delete", "site"]);
    let command = format!("`distkv-node delete site --recursive --connect {}`", node.client);
    assert_eq!(
        nothing,
        format!("site: nothing to delete; 1 entry below it stays: {command} deletes that too\n")
    );
    ok(&node, &["set", "site.count", "5"]);
    ok(&node, &["set", "site", "1"]);
    let deleted = ok(&node, &["delete", "site"]);
    assert!(deleted.starts_with("site: deleted (n1~"), "{deleted}");
    assert!(
        deleted.ends_with(&format!("; 2 entries below it stay: {command} deletes them too\n")),
        "{deleted}"
    );
    let json = ok(&node, &["delete", "site", "--json"]);
    assert!(json.contains("\"changed\":false") && json.contains("\"below\":2"), "{json}");
    // A path that a shell would take apart is quoted.
    ok(&node, &["set", "it's.on", "1"]);
    let quoted = ok(&node, &["delete", "it's"]);
    assert!(quoted.contains(r"`distkv-node delete 'it'\''s' --recursive "), "{quoted}");

    assert_eq!(ok(&node, &["delete", "site", "-r"]), "site: 2 deleted\n");
    assert_eq!(ok(&node, &["delete", "site", "-r"]), "site: nothing to delete\n");
    assert_eq!(ok(&node, &["delete", "site"]), "site: nothing to delete\n");
}

#[test]
fn the_words_of_other_programs_do_the_same_or_name_the_command_that_does() {
    let node = NodeProcess::run("n1");
    ok(&node, &["put", "a.b", "1"]);
    assert_eq!(ok(&node, &["get", "a.b"]), "1\n");
    assert!(ok(&node, &["rm", "a.b"]).starts_with("a.b: deleted ("));
    ok(&node, &["put", "a.b", "1"]);
    ok(&node, &["put", "a.c", "1"]);
    assert_eq!(ok(&node, &["del", "a", "-r"]), "a: 2 deleted\n");
    for (word, commands) in [
        ("keys", &["`distkv-node ls`", "`distkv-node tree`"][..]),
        ("scan", &["`distkv-node ls`", "`distkv-node tree`"]),
        ("list", &["`distkv-node ls`", "`distkv-node tree`"]),
        ("save", &["`distkv-node snapshot save --to FILE`"]),
        ("backup", &["`distkv-node snapshot save --to FILE`"]),
        ("restore", &["`distkv-node snapshot restore FILE`"]),
    ] {
        for form in [&[][..], &["--json"]] {
            let done = cli(&[&[word, "x"][..], form].concat());
            assert_eq!(done.code, 2, "{done:?}");
            for command in commands {
                assert!(done.stderr.contains(command), "{word}: {command}: {}", done.stderr);
            }
            assert!(!done.stderr.contains("similar"), "{}", done.stderr);
        }
    }
    // They are not in the help, and say nothing where another command is wrong.
    let help = cli(&["--help"]).stdout;
    let lists = |word: &str| help.lines().any(|line| line.split_whitespace().next() == Some(word));
    assert!(lists("set") && !lists("put") && !lists("rm") && !lists("keys"), "{help}");
    assert!(!cli(&["key", "save"]).stderr.contains("snapshot"));
    assert!(cli(&["memberz"]).stderr.contains("'members'"));
}

#[test]
fn a_tree_that_is_cut_off_says_so() {
    let node = NodeProcess::run("n1");
    ok(&node, &["set", "site.lamp", "true"]);
    let nothing = at(&node, &["tree", "--depth", "1"]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (0, ""));
    assert_eq!(
        nothing.stderr,
        "note: there are entries deeper than --depth 1; --empty prints the paths that lead there\n"
    );
    ok(&node, &["set", "count", "5"]);
    let partly = at(&node, &["tree", "--depth", "1"]);
    assert_eq!(partly.stdout, "count  5\n");
    assert!(partly.stderr.contains("deeper than --depth 1"), "{}", partly.stderr);
    let all = at(&node, &["tree", "--depth", "2"]);
    assert_eq!((all.stdout.lines().count(), all.stderr.as_str()), (2, ""));
    let led = at(&node, &["tree", "--depth", "1", "--empty"]);
    assert_eq!((led.stdout.as_str(), led.stderr.as_str()), (":      -\ncount  5\nsite   -\n", ""));
}

#[test]
fn a_raw_string_comes_back_byte_by_byte() {
    let node = NodeProcess::run("n1");
    for text in ["a\nb\n\n", "no line end", "", "\u{1b}[0m\r\n", "grün"] {
        let set = at_with(&node, &["set", "text", "--string", "-"], text.as_bytes());
        assert_eq!(set.code, 0, "{}", set.stderr);
        assert_eq!(ok(&node, &["get", "text", "--raw"]), text);
    }
    let set = at_with(&node, &["set", "text", "--string", "-"], b"\xff\xfe");
    assert_eq!(set.code, 2);
    assert!(
        set.stderr.contains("not UTF-8") && set.stderr.contains("--raw-file"),
        "{}",
        set.stderr
    );
    // What is no string is JSON, which has lines.
    ok(&node, &["set", "text", "5"]);
    assert_eq!(ok(&node, &["get", "text", "--raw"]), "5\n");
}

#[test]
fn a_file_s_bytes_are_stored_as_they_are() {
    let node = NodeProcess::run("n1");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.bin");
    std::fs::write(&file, b"a\0\xff\n").unwrap();
    let stored = ok(&node, &["set", "plan", "--raw-file", file.to_str().unwrap()]);
    assert!(stored.starts_with("plan: set ("), "{stored}");
    assert!(ok(&node, &["get", "plan", "--json"]).contains(r#""value":{"$bin":"YQD/Cg=="}"#));
    let set = at_with(&node, &["set", "plan", "--raw-file", "-", "--idem"], b"\0no line end");
    assert_eq!(set.code, 0, "{}", set.stderr);
    assert_eq!(ok(&node, &["get", "plan", "--raw"]), "\0no line end");
    let both = at_with(&node, &["set", "plan", "5", "--raw-file", "-"], b"");
    assert_eq!(both.code, 2, "{}", both.stderr);
}

#[test]
fn integers_that_programs_would_round_are_text_for_them_and_digits_for_people() {
    let node = NodeProcess::run("n1");
    let (great, text) = ("9007199254740993", r#"{"$int":"9007199254740993"}"#);
    ok(&node, &["set", "a.great", great]);
    ok(&node, &["set", "a.list", "[-9007199254740992, 9007199254740991]"]);
    assert_eq!(ok(&node, &["get", "a.great"]), format!("{great}\n"));
    let value = format!("\"value\":{text}");
    assert!(ok(&node, &["get", "a.great", "--json"]).contains(&value));
    let tree = ok(&node, &["tree", "a", "--json"]);
    assert!(tree.contains(&value), "{tree}");
    assert!(tree.contains(r#"[{"$int":"-9007199254740992"},9007199254740991]"#), "{tree}");
    let saved = ok(&node, &["snapshot", "save", "--to", "-", "--format", "jsonl"]);
    assert!(saved.contains(&value), "{saved}");
    // Both forms come back as what was there.
    let numbers = format!("{{\"path\":\"a.great\",\"value\":{great}}}\n");
    for lines in [&tree, &saved, &numbers] {
        let import = ["import", "-", "--below", "copy"];
        assert_eq!(at_with(&node, &import, lines.as_bytes()).code, 0);
        assert_eq!(ok(&node, &["get", "copy.a.great"]), format!("{great}\n"));
        ok(&node, &["delete", "copy", "--recursive"]);
    }
    let same = at_with(&node, &["diff", "-", "--below", "a"], tree.as_bytes());
    assert_eq!((same.code, same.stdout.as_str()), (0, ""), "{}", same.stderr);
}

#[test]
fn a_node_has_one_name_in_all_commands() {
    let node = NodeProcess::run("n1");
    let state = ok(&node, &["state"]);
    assert!(state.starts_with("as n1 sees it, at tock "), "{state}");
    assert!(state.lines().nth(1).unwrap().starts_with("LIFE "), "{state}");
    let resync = ok(&node, &["state", "--resync"]);
    assert!(resync.starts_with("n1: no split is healing"), "{resync}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.dkv");
    let file = file.to_str().unwrap();
    ok(&node, &["snapshot", "save", "--to", file]);
    let inspected = cli(&["snapshot", "inspect", file]).stdout;
    let rows: Vec<Vec<&str>> =
        inspected.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1], ["node", "n1"], "{inspected}");
    assert!(rows[2][0] == "life" && rows[2][1].starts_with("n1~"), "{inspected}");
    assert!(inspected.contains("\nLIFE "), "{inspected}");
}

#[test]
fn a_port_that_is_mistaken_for_the_other_one_is_named() {
    let node = NodeProcess::run("n1");
    let gossip = node.gossip.to_string();
    let status = cli(&["status", "--connect", &gossip]);
    assert_eq!(status.code, 6);
    for part in [gossip.as_str(), "gossip port", "27586"] {
        assert!(status.stderr.contains(part), "{part}: {}", status.stderr);
    }
    // A newcomer that is given a client port would never get in: it ends, and says why; also one with a key.
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key").display().to_string();
    assert_eq!(cli(&["key", "new", "--network", "keyed", "--to", &key]).code, 0);
    let keyed = ["--network", "keyed", "--key", &key];
    let run = ["run", "--peer-wait", "0s", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let run = [&run[..], &["--key", &key, "--http", "127.0.0.1:0"]].concat();
    let secured = NodeProcess::start_program(PROGRAM, "keyed", "n1", &run);
    let tls_only = [&run[..], &["--client-plaintext", "none"]].concat();
    let tls_only = NodeProcess::start_program(PROGRAM, "keyed", "n1", &tls_only);
    let none: &[&str] = &[];
    let (client, http) = ("a client port", "an HTTP port");
    let calls = [
        (node.client, client, none),
        (secured.client, client, &keyed),
        (tls_only.client, client, &keyed),
        (tls_only.client, client, none),
        (secured.http.unwrap(), http, &keyed),
        (secured.http.unwrap(), http, none),
    ];
    std::thread::scope(|scope| {
        for (address, what, more) in calls {
            scope.spawn(move || {
                let address = address.to_string();
                let any = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
                let join = cli(&[&["join", &address, "--name", "n2"][..], &any, more].concat());
                assert_eq!(join.code, 3, "{}", join.stderr);
                let last = join.stderr.lines().last().unwrap();
                assert_eq!(
                    last,
                    format!(
                        "error: no peer accepts this node: {address} is {what}; give the gossip port of that node \
                         (default 27587)"
                    )
                );
            });
        }
    });
}

#[test]
fn nodes_that_join_at_once_are_linked_with_all_and_warn_of_nothing() {
    const JOINING: usize = 7;
    let first = NodeProcess::run("n1");
    let joined: Vec<NodeProcess> = std::thread::scope(|scope| {
        let first = &first;
        let join = |n| scope.spawn(move || NodeProcess::join(&format!("n{n}"), &[first]));
        let joining: Vec<_> = (2..2 + JOINING).map(join).collect();
        joining.into_iter().map(|node| node.join().unwrap()).collect()
    });
    let nodes: Vec<&NodeProcess> = std::iter::once(&first).chain(&joined).collect();
    wait_until("each is linked with each", || {
        let is_linked = |node: &&NodeProcess| {
            let links = node.log().iter().filter(|line| line.contains("linked peer=")).count();
            links >= JOINING
        };
        nodes.iter().all(is_linked).then_some(())
    });
    for node in nodes {
        let warned: Vec<String> =
            node.log().into_iter().filter(|line| line.contains(" WARN ")).collect();
        assert_eq!(warned, [""; 0], "{}", node.name);
    }
}

#[test]
fn a_name_that_does_not_exist_ends_a_command_at_once_and_a_newcomer_soon() {
    // No name has an empty label, so this does not depend on a name service.
    let status = cli(&["status", "--connect", "n1..invalid"]);
    assert_eq!(status.code, 6);
    for part in ["n1..invalid:27586", "check its spelling"] {
        assert!(status.stderr.contains(part), "{part}: {}", status.stderr);
    }
    let waited = cli(&["wait", "--connect", "n1..invalid", "--timeout", "100ms"]);
    assert_eq!(waited.code, 1, "{}", waited.stderr);
    let any = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let join = cli(&[&["join", "n1..invalid", "n2..invalid", "--name", "n3"][..], &any].concat());
    // Not the code of what will never do: the name may come to exist.
    assert_eq!(join.code, 1, "{}", join.stderr);
    let last = join.stderr.lines().last().unwrap();
    assert!(last.starts_with("error: no peer can be called: n"), "{last}");
    assert!(last.contains("..invalid:27587: the name cannot be looked up"), "{last}");
    let warned = |name: &str| {
        let is_of = |line: &&str| line.contains("WARN") && line.contains(name);
        join.stderr.lines().filter(is_of).count()
    };
    assert_eq!([warned("n1..invalid"), warned("n2..invalid")], [1, 1], "{}", join.stderr);
}

#[test]
fn a_first_node_founds_no_second_network_where_the_names_of_its_peers_do_not_exist() {
    let any = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--name", "n1"];
    let peers = ["--peer", "n2..invalid", "--peer", "n3..invalid"];
    let mut run = program(&[&["run"][..], &peers, &any].concat()).spawn().unwrap();
    let mut said = String::new();
    // One that serves says so, and would not end.
    BufReader::new(run.stdout.take().unwrap()).read_line(&mut said).unwrap();
    if !said.is_empty() {
        run.kill().unwrap();
    }
    let run = run.wait_with_output().unwrap();
    let errors = String::from_utf8(run.stderr).unwrap();
    assert_eq!((run.status.code(), said.as_str()), (Some(1), ""), "{errors}");
    let last = errors.lines().last().unwrap();
    assert!(last.starts_with("error: no peer can be called: n"), "{last}");
    assert!(last.ends_with("; the first node of a new network is started without peers"), "{last}");
    // Its own data is no other network.
    let folder = tempfile::tempdir().unwrap();
    let data = ["--data-dir", folder.path().to_str().unwrap(), "--peer-wait", "0s"];
    let mut node = NodeProcess::start("n1", &[&["run"][..], &data, &any[..4]].concat());
    ok(&node, &["set", "a", "1"]);
    node.signal("TERM");
    assert!(node.wait().success());
    let again = [&["run"][..], &peers, &data[..2], &["--peer-wait", "1s"], &any[..4]].concat();
    let node = NodeProcess::start("n1", &again);
    assert_eq!(ok(&node, &["get", "a"]), "1\n");
    let is_told = |line: &String| line.contains("WARN") && line.contains("continues alone");
    assert!(node.log().iter().any(is_told), "{:#?}", node.log());
}

#[test]
fn a_node_that_serves_keeps_looking_up_the_names_of_its_peers_and_says_so_once() {
    let any = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let arguments = ["run", "--peer", "n2..invalid", "--peer-wait", "0s"];
    let node = NodeProcess::start("n1", &[&arguments[..], &any].concat());
    ok(&node, &["set", "a", "1"]);
    let warnings = || {
        let is_it = |line: &&String| line.contains("WARN") && line.contains("looked up");
        node.log().iter().filter(is_it).count()
    };
    wait_until("it says so", || (warnings() > 0).then_some(()));
    assert_eq!(warnings(), 1);
    assert_eq!(ok(&node, &["get", "a"]), "1\n");
}

#[test]
fn a_node_that_joins_only_itself_ends_and_says_how_to_begin() {
    let [client, gossip] = free_addrs().map(|addr| addr.to_string());
    let join = ["join", &gossip, "--client", &client, "--gossip", &gossip, "--name", "n1"];
    let join = cli(&join);
    assert_eq!(join.code, 3, "{}", join.stderr);
    let last = join.stderr.lines().last().unwrap();
    let why = "is this node itself; start the first node of a network with `run`, or with \
               `start --found` and no peers";
    assert_eq!(last, format!("error: no peer accepts this node: {gossip} {why}"));
}

#[test]
fn a_file_on_standard_output_is_not_called_a_dash() {
    let node = NodeProcess::run("n1");
    ok(&node, &["set", "a", "1"]);
    let saved = at(&node, &["snapshot", "save", "--to", "-", "--format", "jsonl"]);
    assert!(saved.stderr.starts_with("standard output: 1 entry, "), "{}", saved.stderr);
}

#[test]
fn import_counts_in_plain_words() {
    let node = NodeProcess::run("n1");
    let lines = b"{\"path\":\"a\",\"value\":1}\n{\"path\":\"b\",\"value\":2}\n";
    let done = at_with(&node, &["import", "-"], lines);
    assert_eq!(done.stdout, "2 set, 0 unchanged\n", "{}", done.stderr);
    let done = at_with(&node, &["import", "-"], lines);
    assert_eq!(done.stdout, "0 set, 2 unchanged\n", "{}", done.stderr);
}

#[test]
fn a_condition_that_fails_says_what_is_there() {
    let node = NodeProcess::run("n1");
    ok(&node, &["set", "lock.a", "\"you\""]);
    let refused = at(&node, &["set", "lock.a", "\"us\"", "--if-value", "\"me\""]);
    assert_eq!(refused.code, 5);
    assert_eq!(
        refused.stderr,
        "error: the node refuses: Data is \"you\", not \"me\", at lock.a; nothing was changed \
         (data_mismatch)\n"
    );
    let refused = at(&node, &["set", "lock.b", "1", "--if-value", "5"]);
    let text = "Data is missing, not 5, at lock.b; nothing was changed (data_mismatch)\n";
    assert!(refused.stderr.ends_with(text), "{}", refused.stderr);
    let refused = at(&node, &["delete", "lock.a", "--if-value", "\"me\""]);
    assert!(
        refused.stderr.contains("Data is \"you\", not \"me\", at lock.a"),
        "{}",
        refused.stderr
    );
}

#[test]
fn bench_writes_in_a_place_of_its_own_and_leaves_nothing() {
    let node = NodeProcess::run("n1");
    ok(&node, &["set", "lamp", "true"]);
    let load = ["bench", "--keys", "200", "-c", "2", "--warm-up", "0s", "--count", "300"];
    let done = at(&node, &load);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(
        done.stderr.contains("writes below distkv-bench, and deletes that again"),
        "{}",
        done.stderr
    );
    assert_eq!(ok(&node, &["tree"]), "lamp  true\n");

    let client = node.client.to_string();
    let propagation = ["propagation", "--watch", &client, "--changes", "5"];
    let watchers = ["watchers", "--count", "2", "--duration", "200ms", "--warm-up", "0s"];
    for measured in [&propagation[..], &watchers] {
        let done = bench(&[measured, &["--connect", &client]].concat());
        assert_eq!(done.code, 0, "{}", done.stderr);
    }
    assert_eq!(ok(&node, &["tree"]), "lamp  true\n");

    // What is to be listed afterwards stays.
    ok(&node, &[&load[..], &["--keep"]].concat());
    let kept = ok(&node, &["tree", "distkv-bench", "--json"]);
    assert_eq!(kept.lines().count(), 200);
    assert!(kept.contains("\"distkv-bench.key-000000000199\""));
    ok(&node, &["bench", "--keys", "200", "--no-fill", "--warm-up", "0s", "--count", "10"]);
    assert_eq!(ok(&node, &["tree"]), "lamp  true\n");
}

#[test]
fn an_interrupted_bench_deletes_what_it_has_written() {
    let node = NodeProcess::run("n1");
    ok(&node, &["set", "lamp", "true"]);
    let client = node.client.to_string();
    let load = ["--keys", "100", "--duration", "300s", "--connect", &client];
    let of_node = program(&[&["bench"], &load[..]].concat());
    let of_bench = bench_program(&[&["watchers", "--count", "2"], &load[..]].concat());
    for (kind, mut running) in [("bench", of_node), ("watchers", of_bench)] {
        let running = running.stdout(Stdio::null()).spawn().unwrap();
        wait_until("it writes", || (ok(&node, &["tree"]).lines().count() > 1).then_some(()));
        signal(running.id(), "INT");
        let done = running.wait_with_output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(130), "{kind}: {said}");
        assert!(said.ends_with("note: interrupted; distkv-bench is deleted\n"), "{said}");
        assert_eq!(ok(&node, &["tree"]), "lamp  true\n", "{kind}");
    }
}

#[test]
fn messages_fit_what_they_are_about() {
    let node = NodeProcess::run("n1");
    let copies = until_met(|| at(&node, &["set", "a", "1", "--copies", "2", "--timeout", "100ms"]));
    assert_eq!(copies.code, 7);
    assert!(
        copies.stderr.starts_with("error: the change is made here"),
        "no refusal: {}",
        copies.stderr
    );
    let twice = at(&node, &["set", "a", r#"{"b":1,"b":2}"#]);
    assert_eq!(twice.code, 2);
    assert!(twice.stderr.contains("twice") && !twice.stderr.contains("quotes"), "{}", twice.stderr);
    let import = at_with(&node, &["import", "-"], b"nonsense\n");
    assert!(import.stderr.contains("error: standard input: line 1:"), "{}", import.stderr);
    // Where nothing could be written, nothing is deleted.
    let load = cli(&["bench", "--connect", "127.0.0.1:1"]);
    assert_eq!(load.code, 6);
    assert!(!load.stderr.contains("distkv-bench"), "{}", load.stderr);
}

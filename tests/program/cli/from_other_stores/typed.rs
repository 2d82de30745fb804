//! What somebody types who comes from Redis, etcd or Consul: the error says what to type here, and no tip misleads.

use crate::cli::command::{Done, cli, cli_with, ok, run};
use crate::cli::fake::{FakeNode, error, state};
use crate::processes::NodeProcess;

/// What a command line says that makes no sense, for people and for programs.
fn refused(typed: &str) -> String {
    let words: Vec<&str> = typed.split(' ').collect();
    let done = run(&words, &[], b"");
    assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{typed}: {done:?}");
    let programs = run(&[&words[..], &["--json"]].concat(), &[], b"");
    assert_eq!(programs.code, 2, "{typed}: {programs:?}");
    let said: serde_json::Value = serde_json::from_str(&programs.stderr).unwrap();
    assert_eq!(said["outcome"], "usage", "{typed}: {said}");
    done.stderr
}

#[test]
fn an_option_of_another_store_is_answered_with_what_there_is() {
    for (typed, expected) in [
        ("set app.x 1 --ex 10", "entries do not expire"),
        ("set app.x 1 --ex=10", "entries do not expire"),
        ("set app.x 1 --px 10", "entries do not expire"),
        ("put app.x 1 --ttl 10", "entries do not expire"),
        ("get app.x --ex 10", "entries do not expire"),
        ("set app.x 1 --expire 10", "entries do not expire"),
        ("set app.x 1 --lease 5", "entries do not expire"),
        ("set app.x 1 --nx", "`--if-new`"),
        ("set app.x 1 --xx", "`--if-value JSON`"),
        ("get app --prefix", "`distkv-node tree PATH`"),
        ("delete app --prefix", "`--recursive`"),
        ("watch app --prefix", "all below PATH"),
        ("tree app --keys-only", "`distkv-node ls PATH`"),
        ("tree app --count-only", "`distkv-node tree PATH --json | wc -l`"),
        ("tree app --limit 5", "`| head -n 5`"),
        ("get app --rev 5", "`distkv-node history PATH`"),
        ("watch app --from-revision 5", "`distkv-node history PATH`"),
        ("status --endpoints n1", "`--connect ADDR:PORT`"),
        ("get a --password x", "`--secret-file FILE`"),
        ("get a --cacert x", "`--node-ca FILE`"),
        // `ls` prints one level.
        ("ls app --prefix", "`distkv-node tree PATH`"),
        ("get app --from-key", "there are no ranges"),
        ("delete app --from-key", "there are no ranges"),
        ("watch app --range-end x", "there are no ranges"),
        ("del app --prev-kv", "`distkv-node history PATH`"),
        ("watch app --prev-kv", "`distkv-node history PATH`"),
        ("get app --print-value-only", "`--raw`"),
        ("tree app --sort-by key", "`| sort`"),
        ("get app --order descend", "`| sort`"),
        ("get app --consistency s", "what it holds"),
        ("get app --stale", "what it holds"),
        ("get app --dial-timeout 5s", "`--timeout TIME`"),
        ("members --http-addr n1", "`--connect ADDR:PORT`"),
        ("get app -w json", "`--json`"),
        ("members -w table", "`--json`"),
        ("status -o json", "`--json`"),
        ("get app -p 6379", "`--connect ADDR:PORT`"),
        ("-s n1 get app", "`--connect ADDR:PORT`"),
        ("get app -recurse", "`distkv-node tree PATH`"),
        ("get app -format=json", "`--json`"),
        ("get app -keys", "`distkv-node ls PATH`"),
        ("set app.x 1 EX 10", "entries do not expire"),
        ("set app.x 1 px 10", "entries do not expire"),
        ("set app.x 1 KEEPTTL", "entries do not expire"),
        ("set app.x 1 NX", "`--if-new`"),
        ("set app.x 1 XX", "`--if-value JSON`"),
    ] {
        let said = refused(typed);
        let is_option = |word: &&str| {
            let foreign = ["EX", "px", "KEEPTTL", "NX", "XX"];
            word.starts_with('-') || foreign.contains(word)
        };
        let option = typed.split([' ', '=']).find(is_option).unwrap();
        let begins = format!("error: there is no option {option}: ");
        assert!(said.starts_with(&begins) && said.contains(expected), "{typed}: {said}");
        assert!(!said.contains("tip:") && !said.contains("plaintext"), "{typed}: {said}");
    }
}

/// Several keys, or a key in several words.
#[test]
fn a_second_word_where_one_path_is_wanted_is_answered_with_how_paths_are_written() {
    for (typed, meant) in [
        ("get a b", Some("'a.b'")),
        ("del a b", Some("'a.b'")),
        ("del a b c", Some("'a.b.c'")),
        ("get site:1 :t lamp", Some("'site:1:t.lamp'")),
        ("ls a b", Some("'a.b'")),
        ("tree a b", Some("'a.b'")),
        ("watch a b", Some("'a.b'")),
        ("history a b", Some("'a.b'")),
        ("get --timeout 1s a b --raw", Some("'a.b'")),
        ("get a --timeout 1s b", None),
        ("get a a..b", None),
    ] {
        let said = refused(typed);
        let tip = said.lines().find(|line| line.starts_with("  tip: ")).unwrap_or_default();
        assert!(tip.contains("joined by dots"), "{typed}: {said}");
        assert!(tip.ends_with(meant.unwrap_or("'a.b'")), "{typed}: {said}");
    }
    // Those take something else there, or nothing.
    for typed in ["set a b c", "send a b c", "cp a b c", "status a", "user show a b"] {
        assert!(!refused(typed).contains("dots"), "{typed}");
    }
}

/// A word by itself, where it is the value of an option.
#[test]
fn a_word_too_many_that_is_an_options_value_is_answered_with_the_option() {
    for (typed, expected) in [
        ("undo a.b", "`--below a.b`"),
        ("snapshot save x.dkv", "`--to x.dkv`"),
        ("snapshot save x.dkv --format jsonl", "`--to x.dkv`"),
        ("key new plant", "`--network plant`"),
        ("key rotate plant.key", "`--key plant.key`"),
        ("type set lamp {\"type\":\"integer\"}", "`--schema '{\"type\":\"integer\"}'`"),
        ("user ticket joe joe.ticket", "`--to joe.ticket`"),
        ("wait 30s", "`--timeout 30s`"),
        ("run n1", "`--name n1`"),
    ] {
        let said = refused(typed);
        let tip = said.lines().find(|line| line.starts_with("  tip: ")).unwrap_or_default();
        assert!(tip.ends_with(&format!(", type {expected}")), "{typed}: {said}");
    }
    // What is there already is not told; and that may be anything.
    for typed in
        ["snapshot save x.dkv --to y.dkv", "undo --below=a b", "type set a b", "user add joe x"]
    {
        assert!(!refused(typed).contains(", type `--"), "{typed}");
    }
    assert!(refused("type show a b").contains("`type show` takes one path"));
}

#[test]
fn a_command_of_another_store_is_answered_with_what_there_is() {
    for (typed, expected) in [
        ("incr a", "--if-value JSON`, which is refused"),
        ("expire a 10", "entries do not expire"),
        ("lease grant 10", "entries do not expire"),
        ("info", "`distkv-node status`"),
        ("ping", "`distkv-node status`"),
        ("dbsize", "`distkv-node tree PATH --json | wc -l`"),
        ("role", "`distkv-node user role NAME ROLE`"),
        ("lock a", "there are no locks"),
        ("elect a", "there are no locks"),
        ("endpoint status", "`distkv-node status`"),
        ("exists a", "`distkv-node get PATH`"),
        ("mget a b", "`distkv-node tree PATH`"),
        ("publish a 1", "`distkv-node send TOPIC VALUE`"),
        ("subscribe a", "`distkv-node monitor TOPIC`"),
        ("txn", "there are no transactions"),
        ("member list", "`distkv-node members`"),
        ("kv ls", "`watch`"),
        ("kv watch a", "`watch`"),
        ("stream add", "are not stored"),
        ("consumer next", "are not stored"),
        ("req a 1", "are not stored"),
        ("make-mirror n2", "`distkv-node tree PATH --json | distkv-node import -"),
        ("move-leader 1", "there is no leader"),
        ("operator raft", "there is no leader"),
        ("catalog nodes", "`distkv-node members`"),
        ("context add", "DISTKV_CONNECT"),
        ("select 1", "`distkv-node run --network NAME`"),
        ("move a 1", "`distkv-node mv FROM TO`"),
        ("copy a b", "`distkv-node cp FROM TO`"),
        ("check perf", "`distkv-node bench`"),
        ("debug", "`distkv-node status`"),
        ("exit", "ends by itself"),
        ("quit", "ends by itself"),
    ] {
        let said = refused(typed);
        let word = typed.split(' ').next().unwrap();
        let begins = format!("error: there is no command {word}: ");
        assert!(said.starts_with(&begins) && said.contains(expected), "{typed}: {said}");
        assert!(!said.contains("tip:"), "{typed}: {said}");
    }
}

/// Commands that are there have others of another store below them.
#[test]
fn a_command_below_one_that_is_here_too_is_answered_with_what_there_is() {
    for (typed, expected) in [
        ("auth enable", "`distkv-node auth on METHOD`"),
        ("auth disable", "`distkv-node auth off`"),
        ("auth status", "`distkv-node whoami`"),
        ("user passwd joe", "`distkv-node user password NAME`"),
        ("user delete joe", "`distkv-node user remove NAME`"),
        ("user get joe", "`distkv-node user show NAME`"),
        ("user grant-role joe r", "`distkv-node user acl NAME LIST`"),
        ("acl token list", "`distkv-node user`"),
        ("acl setuser joe", "`distkv-node user`"),
        ("snapshot status f", "`distkv-node snapshot inspect FILE`"),
        ("config get x", "`distkv-node run --help`"),
        ("members add n2", "`distkv-node join ADDR`"),
        ("members remove n2", "`distkv-node leave`"),
    ] {
        let said = refused(typed);
        let words: Vec<&str> = typed.split(' ').take(2).collect();
        let begins = format!("error: there is no command {}: ", words.join(" "));
        assert!(said.starts_with(&begins) && said.contains(expected), "{typed}: {said}");
        assert!(!said.contains("tip:"), "{typed}: {said}");
    }
    // Elsewhere the words mean nothing.
    assert!(refused("acl enable").contains("unrecognized"));
}

/// The tip was `-- --foo`, which is a path that nobody has.
#[test]
fn of_an_option_that_there_is_not_nothing_is_said_but_where_it_may_be_a_value() {
    for typed in [
        "get a --foo",
        "get --foo",
        "delete a --foo",
        "tree --foo",
        "watch a --foo=3",
        "user add a --foo",
        // Here the value is given already.
        "set a 1 --foo",
        "send t 1 --foo",
    ] {
        let said = refused(typed);
        assert!(said.contains("unexpected argument '--foo'"), "{typed}: {said}");
        assert!(!said.contains("tip:"), "{typed}: {said}");
    }
    for typed in ["set a --foo", "send t --foo"] {
        assert!(refused(typed).contains("use '-- --foo'"), "{typed}");
    }
}

#[test]
fn a_tip_names_only_what_is_nearly_the_same_and_nothing_that_weakens_security() {
    for typed in [
        // These were answered with `config`, `ls`, `delete`, `--secret-env`.
        "continent",
        "classic",
        "deltoid a",
        "get a --cert x",
        // What was meant sends a password in plain text.
        "get a --plaintext-logn",
        "run --client-plaintxt n1",
    ] {
        let said = refused(typed);
        assert!(!said.contains("tip:"), "{typed}: {said}");
    }
    for (typed, near) in [
        ("set a 1 --if-nw", "'--if-new'"),
        ("bench --conn n1", "'--connect'"),
        ("get a --timout 5s", "'--timeout'"),
        ("memberz", "'members'"),
        ("snapshto save", "'snapshot'"),
        ("snapshot svae", "'save'"),
    ] {
        assert!(refused(typed).contains(near), "{typed}");
    }
}

/// Other tools take a name and a password like this.
#[test]
fn whoever_adds_a_user_with_a_colon_is_told_that_it_is_part_of_the_name() {
    let node = NodeProcess::run("n1");
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret").to_str().unwrap().to_owned();
    let add = |name: &str, form: &[&str]| {
        let add = ["user", "add", name, "--new-secret-file", &secret];
        let done = crate::cli::command::at(&node, &[&add[..], form].concat());
        assert_eq!(done.code, 0, "{done:?}");
        done
    };
    let warned = add("root:pw", &[]).stderr;
    let begins = "warning: the user's name is root:pw, with the colon: ";
    assert!(warned.starts_with(begins), "{warned}");
    assert!(warned.contains("--new-secret-file"), "{warned}");
    assert!(warned.contains("`distkv-node user remove root:pw "), "{warned}");
    let programs = add("boss:pw", &["--json"]).stderr;
    assert!(programs.starts_with("{\"warning\":"), "{programs}");
    assert!(!add("joe", &[]).stderr.contains("warning"));
    // It is a name like others: the original takes it, too.
    let show = ok(&node, &["user", "show", "root:pw"]);
    assert!(show.starts_with("root:pw (password): role admin"), "{show}");
}

/// What a listing says, and that it goes well.
fn said_of(node: &NodeProcess, arguments: &[&str]) -> (String, String) {
    let done = crate::cli::command::at(node, arguments);
    assert_eq!(done.code, 0, "{arguments:?}: {done:?}");
    (done.stdout, done.stderr)
}

#[test]
fn a_listing_without_a_line_says_that_there_is_nothing() {
    let node = NodeProcess::run("n1");
    ok(&node, &["set", "app.x", "1"]);
    for (arguments, expected) in [
        (&["tree", "nothere"][..], "note: nothing to show at or below nothere\n"),
        (&["ls", "nothere"], "note: nothing to show below nothere\n"),
        // There is an entry, and nothing below it.
        (&["ls", "app.x"], "note: nothing to show below app.x\n"),
        (
            &["tree", "app.x", "--min-depth", "1"],
            "note: nothing to show 1 level or more below app.x\n",
        ),
        (
            &["tree", "app", "--depth", "0"],
            "note: there are entries deeper than --depth 0; --empty prints the paths that lead there\n",
        ),
        (&["tree", "nothere", "--depth", "3"], "note: nothing to show at or below nothere\n"),
        (&["tree", "app"], ""),
        (&["ls", "app"], ""),
    ] {
        let (printed, said) = said_of(&node, arguments);
        assert_eq!(said, expected, "{arguments:?}: {printed}");
        assert_eq!(printed.is_empty(), !expected.is_empty(), "{arguments:?}: {printed}");
        // Programs see it.
        let (_, said) = said_of(&node, &[arguments, &["--json"]].concat());
        assert_eq!(said, "", "{arguments:?}");
    }
}

#[test]
fn whoever_takes_a_path_for_a_pattern_is_told_that_there_are_none() {
    let node = NodeProcess::run("n1");
    ok(&node, &["set", "app.x", "1"]);
    let no_patterns = "paths have no wildcards";
    for arguments in [
        ["tree", "app*"],
        ["ls", "app*"],
        ["tree", "app.+"],
        ["tree", "app.#"],
        ["tree", "ap?"],
        ["ls", "ap?.x"],
    ] {
        let (printed, said) = said_of(&node, &arguments);
        assert!(printed.is_empty() && said.contains(no_patterns), "{arguments:?}: {said}");
        assert!(said.contains("`distkv-node ls`"), "{arguments:?}: {said}");
    }
    let get = crate::cli::command::at(&node, &["get", "app*"]);
    assert_eq!((get.code, get.stdout.as_str()), (1, ""));
    assert!(get.stderr.contains("app* has no value; paths have no wildcards"), "{}", get.stderr);
    let get = crate::cli::command::at(&node, &["get", "app"]);
    assert!(!get.stderr.contains(no_patterns), "{}", get.stderr);
    // It is a letter like others.
    ok(&node, &["set", "app*", "2"]);
    assert_eq!(said_of(&node, &["tree", "app*"]), (String::from("app*  2\n"), String::new()));
    assert_eq!(ok(&node, &["get", "app*"]), "2\n");
}

/// `user acl NAME -` takes a list away, so people type this.
#[test]
fn a_dash_in_the_place_of_letters_is_answered_with_what_takes_a_pattern_away() {
    let node = FakeNode::start(|_| vec![state("end"), error("not asked", "internal")]);
    let said = |done: Done| {
        assert_eq!(done.code, 2, "{done:?}");
        done.stderr
    };
    let dash = said(cli_with(&node, &["acl", "set", "L", "#", "-"]));
    assert!(dash.contains("'-' is no letter of access lists: there are rwcdxena"), "{dash}");
    assert!(dash.contains("`distkv-node acl delete L '#' --connect "), "{dash}");
    assert!(dash.contains("` deletes the pattern"), "{dash}");
    assert!(dash.contains("'' allows nothing"), "{dash}");
    let other = said(cli_with(&node, &["acl", "set", "L", "#", "rq"]));
    assert!(other.contains("'q' is no letter") && !other.contains("delete L"), "{other}");
    assert!(cli(&["acl", "set", "--help"]).stdout.contains("acl delete"));
}

//! `config check`: everything that is wrong, with its line; and what it says of a file is what a start does.

use std::os::unix::fs::chown;

use serde_json::Value as Json;

use crate::cli::command::{Done, run};

use super::{Service, write};

fn check(file: &str) -> Done {
    run(&["config", "check", file], &[], b"")
}

fn findings(file: &str) -> (i32, Json) {
    let done = run(&["config", "check", file, "--json"], &[], b"");
    (done.code, serde_json::from_str(&done.stdout).unwrap())
}

#[test]
fn a_good_file_is_good_and_its_node_starts() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("not/yet/there");
    let text = format!(
        "name = \"n1\"\nclient = \"127.0.0.1:0\"\ngossip = \"127.0.0.1:0\"\ndata-dir = {data:?}\nfound = true\n\
         network = \"plant\"\n"
    );
    let file = write(&folder.path().join("node.toml"), &text);
    let done = check(&file);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{}", done.stdout);
    assert_eq!(done.stdout, format!("{file}: a node would start with it\n"));
    assert!(!data.exists(), "the check makes nothing");
    let (code, json) = findings(&file);
    assert_eq!(
        (code, &json["ok"], &json["findings"]),
        (0, &Json::Bool(true), &Json::Array(vec![]))
    );
    let mut node = Service::start(&["start", "--config", &file], &[]);
    node.wait_for("started");
    // While it runs, too: ports that it has are not in the way.
    assert_eq!(check(&file).code, 0);
    node.end();
    // Under another name it does not start with these data, and the check says so.
    let other = write(&folder.path().join("node.toml"), &text.replace("\"n1\"", "\"n2\""));
    let (code, json) = findings(&other);
    assert_eq!(code, 2);
    assert!(json["findings"][0]["text"].as_str().unwrap().contains("n1"), "{json}");
    let mut refused = Service::start(&["start", "--config", &other], &[]);
    assert_ne!(refused.ended(), Some(0));
    // A key that cannot be read leaves open which network it is for: that is one mistake, not two.
    let text = text.replace("network = \"plant\"", "key = \"no-key\"");
    let (code, json) = findings(&write(&folder.path().join("node.toml"), &text));
    let found = json["findings"].as_array().unwrap();
    assert!(code == 2 && found.len() == 1 && found[0]["key"] == "key", "{json}");
}

#[test]
fn a_directory_that_no_system_can_have_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let base = "name = \"n1\"\nclient = \"127.0.0.1:0\"\ngossip = \"127.0.0.1:0\"\nfound = true\n";
    let cases = [("data-dir", ""), ("snapshot-dir", "snapshot-schedule = \"daily 03:00\"\n")];
    for (key, more) in cases {
        let text = format!("{base}{key} = \"a\\u0000b\"\n{more}");
        let file = write(&folder.path().join("node.toml"), &text);
        let (code, json) = findings(&file);
        let found = &json["findings"][0];
        assert_eq!((code, &found["line"], &found["key"]), (2, &5.into(), &key.into()), "{json}");
        assert!(found["text"].as_str().unwrap().contains("null character"), "{json}");
        let mut refused = Service::start(&["start", "--config", &file], &[]);
        assert_eq!(refused.ended(), Some(2), "{}", refused.log());
        assert!(refused.log().contains("null character"), "{}", refused.log());
    }
}

#[test]
fn what_root_may_read_is_not_said_to_be_what_the_service_s_user_may() {
    const OTHER: Option<u32> = Some(12_345);
    let folder = tempfile::tempdir().unwrap();
    let [data, key] = ["data", "key"].map(|name| folder.path().join(name));
    let made = run(&["key", "new", "--network", "plant", "--to", key.to_str().unwrap()], &[], b"");
    assert_eq!(made.code, 0, "{made:?}");
    std::fs::create_dir(&data).unwrap();
    let text = format!(
        "name = \"n1\"\nclient = \"127.0.0.1:0\"\ngossip = \"127.0.0.1:0\"\ndata-dir = {data:?}\nfound = true\nkey = {key:?}\n"
    );
    let file = write(&folder.path().join("node.toml"), &text);
    let (code, json) = findings(&file);
    assert_eq!((code, &json["findings"]), (0, &Json::Array(vec![])), "{json}");
    // Only root can give files away, and is not what it looks at for.
    if chown(&key, OTHER, None).is_err() {
        return;
    }
    let warning = |key: &str| {
        let (code, json) = findings(&file);
        let found = json["findings"].as_array().unwrap();
        assert!(code == 0 && found.len() == 1, "{json}");
        assert_eq!(
            (&found[0]["key"], &found[0]["kind"]),
            (&key.into(), &"warning".into()),
            "{json}"
        );
        found[0]["text"].as_str().unwrap().to_owned()
    };
    let foreign = "belongs to another user (uid 12345), who can read and change it";
    assert!(warning("key").contains(foreign));
    let mut node = Service::start(&["start", "--config", &file], &[]);
    node.wait_for("started");
    assert!(node.log().contains(foreign), "{}", node.log());
    node.end();
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::create_dir(&data).unwrap();
    chown(&data, OTHER, None).unwrap();
    let text = warning("data-dir");
    assert!(text.contains("root, who may read") && !text.contains("cannot read"), "{text}");
    chown(&key, Some(0), None).unwrap();
    let text = warning("data-dir");
    assert!(text.contains("that user cannot read the key file"), "{text}");
}

#[test]
fn all_that_is_wrong_is_told_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let occupied = write(&folder.path().join("file"), "");
    let lines = [
        "name = \"n1\"".to_owned(),
        "client = \"192.0.2.1:27586\"".to_owned(),
        "gossip = \"0.0.0.0:0\"".to_owned(),
        format!("key = {:?}", folder.path().join("no-key")),
        format!("data-dir = \"{occupied}\""),
        format!("cert = {:?}", folder.path().join("no.pem")),
        format!("cert-key = {:?}", folder.path().join("no.key")),
        "peers = [\"no-such-host.invalid\"]".to_owned(),
        format!("audit = {:?}", folder.path().join("no/folder/audit")),
        "max-conections = 5".to_owned(),
        "keep-for = \"7 days\"".to_owned(),
        "keep-for = \"7d\"".to_owned(),
        "advertise-client = \"10.0.0.300\"".to_owned(),
    ];
    let file = write(&folder.path().join("node.toml"), &lines.join("\n"));
    let (code, json) = findings(&file);
    assert_eq!((code, &json["ok"]), (2, &Json::Bool(false)));
    let found = json["findings"].as_array().unwrap().iter();
    let found: Vec<(u64, &str, &str)> = found
        .map(|f| {
            (
                f["line"].as_u64().unwrap(),
                f["key"].as_str().unwrap_or(""),
                f["kind"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = [
        (2, "client", "error"),
        (4, "key", "error"),
        (5, "data-dir", "error"),
        (6, "cert", "error"),
        (8, "peers", "warning"),
        (9, "audit", "error"),
        (10, "max-conections", "error"),
        (11, "keep-for", "error"),
        (12, "", "error"),
        (13, "advertise-client", "error"),
    ];
    assert_eq!(found, expected, "{json:#}");
    let done = check(&file);
    assert_eq!(done.code, 2);
    assert!(
        done.stdout.contains(&format!("{file}:10: error: max-conections: unknown key")),
        "{}",
        done.stdout
    );
}

#[test]
fn what_a_start_refuses_the_check_refuses_in_the_same_words() {
    let folder = tempfile::tempdir().unwrap();
    let ports = "name = \"n1\"\nclient = \"127.0.0.1:0\"\n";
    for (text, words) in [
        ("gossip = \"0.0.0.0:0\"\nfound = true\n", "nothing protects it"),
        ("gossip = \"127.0.0.1:0\"\n", "has no data and knows no other node"),
        ("gossip = \"127.0.0.1:0\"\nfound = true\nkeep-snapshots = 1\n", "needs --data-dir"),
        ("gossip = \"127.0.0.1:0\"\nfound = true\nhttp = \"0.0.0.0:0\"\n", "http port"),
        ("gossip = \"127.0.0.1:0\"\ninit = 5\n", "founds the network"),
        ("gossip = \"127.0.0.1:0\"\nfound = true\nthreads = 0\n", "--threads must be"),
        (
            "gossip = \"127.0.0.1:0\"\nfound = true\nadvertise = \"no-such.invalid\"\n",
            "no-such.invalid",
        ),
        (
            "gossip = \"127.0.0.1:0\"\nfound = true\nadvertise = \"[fe80::1%lo]:37587\"\n",
            "advertised address \"[fe80::1%lo]:37587\" cannot be used: it is a link-local address",
        ),
        ("gossip = \"[fe80::1]:0\"\nfound = true\n", "give its zone, like [fe80::1%eth0]:0"),
        (
            "gossip = \"127.0.0.1:0\"\nfound = true\nadvertise-client = \"0.0.0.0:37586\"\n",
            "advertised client address \"0.0.0.0:37586\" cannot be used",
        ),
        (
            "gossip = \"127.0.0.1:0\"\nfound = true\nadvertise-client = \"n1.example.org:0\"\n",
            "clients cannot connect to port 0; leave the port out",
        ),
        (
            "gossip = \"127.0.0.1:0\"\nfound = true\nadvertise-client = \"n1:n2\"\n",
            "--advertise-client: \"n1:n2\"",
        ),
    ] {
        let file = write(&folder.path().join("node.toml"), &format!("{ports}{text}"));
        let done = check(&file);
        assert_eq!(done.code, 2, "{text}: {}", done.stdout);
        assert!(done.stdout.contains(words), "{text}: {}", done.stdout);
        let mut node = Service::start(&["start", "--config", &file], &[]);
        assert_ne!(node.ended(), Some(0), "{text}");
        assert!(node.log().contains(words), "{text}: {}", node.log());
    }
}

const NODE: &str =
    "name = \"n1\"\nclient = \"127.0.0.1:0\"\ngossip = \"127.0.0.1:0\"\nfound = true\n";

#[test]
fn files_that_a_start_cannot_use_the_check_refuses_at_their_line_and_neither_makes_any() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let file = at("node.toml");
    write(&at("lines"), "{\"path\": \"a\", \"value\": 1}\n");
    write(&at("nothing"), "");
    write(&at("open-token"), &"t".repeat(40));
    std::os::unix::fs::symlink("nowhere", at("link")).unwrap();
    std::fs::create_dir(at("folder")).unwrap();
    let with_data = format!("data-dir = {:?}\n", at("data"));
    let schedule = format!("{with_data}snapshot-schedule = \"daily 03:00\"\n");
    let token = "http = \"127.0.0.1:0\"\nhttp-write = true\n";
    for (before, key, value, words) in [
        (&*with_data, "audit", at("no/audit"), "the audit log"),
        (&with_data, "audit", at("folder"), "no regular file"),
        (&with_data, "audit", at("nothing/audit"), "Not a directory"),
        (&schedule, "snapshot-dir", at("data"), "it is used for other files"),
        (&schedule, "snapshot-dir", at("folder/../data"), "it is used for other files"),
        ("", "data-dir", "".into(), "an empty name"),
        ("", "audit", "".into(), "an empty name"),
        ("", "data-dir", "/proc/x/y".into(), "/proc/x/y"),
        ("", "data-dir", at("nothing/data"), "nothing/data"),
        (&schedule, "snapshot-dir", "/proc/x".into(), "/proc/x"),
        (&schedule, "snapshot-dir", at("nothing/snapshots"), "nothing/snapshots"),
        (&with_data, "client-files", at("none"), "none"),
        (&with_data, "client-files", at("nothing"), "nothing"),
        (&with_data, "client-files", at("data"), "it is the data directory"),
        ("", "load", at("lines"), "lines of JSON, and --load"),
        ("", "load", at("nothing"), "cannot be loaded"),
        ("", "load", at("none"), "cannot be loaded"),
        (token, "http-token-file", at("no/token"), "make the directory"),
        (token, "http-token-file", at("open-token"), "others may read the token"),
    ] {
        let line = NODE.lines().count() + before.lines().count() + 1;
        let text = format!("{NODE}{before}{key} = {value:?}\n");
        let file = write(&file, &text);
        let (code, json) = findings(&file);
        assert_eq!(code, 2, "{text}");
        let found = json["findings"].as_array().unwrap();
        assert_eq!(found.len(), 1, "{text}: {json:#}");
        assert_eq!((&found[0]["line"], &found[0]["key"]), (&line.into(), &key.into()), "{json:#}");
        assert!(found[0]["text"].as_str().unwrap().contains(words), "{text}: {json:#}");
        let mut node = Service::start(&["start", "--config", &file], &[]);
        // It is not started again until somebody changes something.
        assert_eq!(node.ended(), Some(2), "{text}: {}", node.log());
        assert!(node.log().contains(words), "{text}: {}", node.log());
        let _ = std::fs::remove_dir_all(at("data")).map(|()| assert!(key != "audit"));
    }
}

/// A disk that is mounted later, say: whoever manages the service starts the node again.
#[test]
fn what_may_pass_by_itself_has_another_exit_code_than_what_somebody_has_to_change() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::os::unix::fs::symlink(at("disk"), at("link")).unwrap();
    let schedule = "snapshot-schedule = \"daily 03:00\"\n";
    let mut files = Vec::new();
    for (before, key, value) in [
        ("", "data-dir", at("link/data")),
        ("", "client-files", at("link")),
        ("", "audit", at("link/audit")),
        (schedule, "snapshot-dir", at("link/snapshots")),
    ] {
        let text = format!("{NODE}{before}{key} = {value:?}\n");
        let file = write(&at(&format!("{key}.toml")), &text);
        assert_eq!(check(&file).code, 2, "{text}");
        let mut node = Service::start(&["start", "--config", &file], &[]);
        assert_eq!(node.ended(), Some(1), "{text}: {}", node.log());
        files.push(file);
    }
    // Once the disk is there, they start as they are.
    std::fs::create_dir(at("disk")).unwrap();
    for file in files {
        let mut node = Service::start(&["start", "--config", &file], &[]);
        node.wait_for("started");
        node.end();
    }
}

#[test]
fn what_a_start_makes_or_does_not_need_the_check_does_not_ask_for() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (data, audit, load) = (at("new/data"), at("new/audit"), at("load"));
    let lines = "{\"path\":\"x\",\"value\":1,\"chain\":[\"a~7:1\"],\"tock\":1}\n";
    let (lines, to) = (write(&at("lines"), lines), load.to_str().unwrap());
    let made = run(&["snapshot", "convert", &lines, "--format", "distkv", "--to", to], &[], b"");
    assert_eq!(made.code, 0, "{}", made.stderr);
    let text = format!(
        "{NODE}data-dir = {data:?}\naudit = {audit:?}\nload = {load:?}\nhttp = \"127.0.0.1:0\"\nhttp-write = true\n\
         http-token-file = {:?}\n",
        at("token")
    );
    let file = write(&at("node.toml"), &text);
    let done = check(&file);
    assert_eq!(done.code, 0, "{}", done.stdout);
    assert!(!at("token").exists() && !at("new").exists(), "the check makes nothing");
    let mut node = Service::start(&["start", "--config", &file], &[]);
    node.wait_for("founds");
    node.end();
    // A network's data are there: the file to begin with is not read any more.
    std::fs::remove_file(&load).unwrap();
    let done = check(&file);
    assert_eq!((done.code, at("token").exists()), (0, true), "{}", done.stdout);
    let mut node = Service::start(&["start", "--config", &file], &[]);
    node.wait_for("the file is not loaded");
    node.wait_for("started");
    node.end();
}

#[test]
fn addresses_that_are_told_without_a_port_take_the_one_that_the_system_chooses() {
    let folder = tempfile::tempdir().unwrap();
    let told = "advertise = \"127.0.0.1\"\nadvertise-client = \"no-such-host.invalid\"\n";
    let file = write(&folder.path().join("node.toml"), &format!("{NODE}{told}"));
    let done = check(&file);
    assert_eq!(done.code, 0, "{}", done.stdout);
    let mut node = Service::start(&["start", "--config", &file], &[]);
    node.wait_for("started");
    node.end();
}

#[test]
fn a_directory_whose_node_has_only_waited_for_a_network_is_no_data_for_the_check_either() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let text = format!("{NODE}data-dir = {data:?}\n").replace("found = true\n", "");
    let with_peers = format!("{text}peers = [\"127.0.0.1:1\"]\n");
    let file = write(&folder.path().join("node.toml"), &with_peers);
    let mut node = Service::start(&["start", "--config", &file], &[]);
    node.wait_for("started");
    node.end();
    assert_eq!(check(&file).code, 0);
    let file = write(&folder.path().join("node.toml"), &text);
    let (done, words) = (check(&file), "has no data and knows no other node");
    assert!(done.code == 2 && done.stdout.contains(words), "{}", done.stdout);
    let mut node = Service::start(&["start", "--config", &file], &[]);
    assert_ne!(node.ended(), Some(0));
    assert!(node.log().contains(words), "{}", node.log());
}

#[test]
fn wrong_options_are_told_as_json_where_json_is_asked_for() {
    for arguments in [
        &["get", "--json"][..],
        &["status", "--json", "--no-such-option"],
        &["run", "--json", "--sync", "x"],
    ] {
        let done = run(arguments, &[], b"");
        assert_eq!(done.code, 2, "{arguments:?}: {}", done.stderr);
        let told: Json = serde_json::from_str(&done.stderr).unwrap();
        assert_eq!((&told["outcome"], &told["exit_code"]), (&"usage".into(), &2.into()), "{told}");
        assert!(!told["error"].as_str().unwrap().starts_with("error"), "{told}");
    }
    let done = run(&["get", "--json"], &[], b"");
    assert!(done.stderr.contains("<PATH>"), "{}", done.stderr);
    let done = run(&["ticket", "show", "nonsense", "--json"], &[], b"");
    assert!(done.stderr.contains("ticket") && !done.stderr.contains("before"), "{}", done.stderr);
    assert!(!done.stderr.contains("do not connect"), "{}", done.stderr);
}

#[test]
fn a_file_that_is_not_there_is_a_usage_error() {
    let done = check("/nowhere/node.toml");
    assert_eq!(done.code, 2, "{}", done.stderr);
    assert!(done.stderr.contains("/nowhere/node.toml"), "{}", done.stderr);
}

//! `config check`: everything that is wrong, with its line; and what it says of a file is what a start does.

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
        "name = \"n1\"\nclient = \"127.0.0.1:0\"\ngossip = \"127.0.0.1:0\"\ndata-dir = {data:?}\nfound = true\n"
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
        (10, "max-conections", "error"),
        (11, "keep-for", "error"),
        (12, "", "error"),
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

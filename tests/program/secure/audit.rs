//! The audit log of a real node: who did what, from where, with what outcome, and never a secret or a value.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::{Keys, counter, program};
use crate::processes::{NodeProcess, PROGRAM, wait_until};

/// The lines of the file, whole ones only.
fn lines(path: &str) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits for a line in which these fields have these texts.
fn wait_for_line(path: &str, fields: &[(&str, &str)]) -> Value {
    wait_until(&format!("a line with {fields:?}"), || {
        let is_it = |line: &Value| fields.iter().all(|(name, text)| line[*name] == *text);
        lines(path).into_iter().find(is_it)
    })
}

/// Runs a command at a node; its exit code.
fn at(node: &NodeProcess, arguments: &[&str]) -> Option<i32> {
    let address = node.client.to_string();
    let (code, said) = program(&[arguments, &["--connect", &address]].concat());
    println!("{arguments:?}: {said}");
    code
}

#[test]
fn logins_refusals_and_changes_are_recorded_with_who_and_where_and_without_secrets() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let audit = keys.path("audit");
    let secret = keys.path("joe.secret");
    fs::write(&secret, "a secret of joe\n").unwrap();
    let wrong = keys.path("wrong");
    fs::write(&wrong, "a wrong secret\n").unwrap();
    let mut node = keys.run("n1", &["--key", &key, "--audit", &audit]);
    assert_eq!(fs::metadata(&audit).unwrap().mode() & 0o777, 0o600);
    let as_admin = |arguments: &[&str]| at(&node, &[arguments, &["--key", &key]].concat());
    let as_joe = |arguments: &[&str], secret: &str| {
        at(&node, &[arguments, &["--user", "joe", "--secret-file", secret]].concat())
    };
    assert_eq!(as_admin(&["acl", "set", "lamps", "site.#", "rwcdxen"]), Some(0));
    assert_eq!(as_admin(&["acl", "set", "lamps", "site", "xen"]), Some(0));
    let add = ["user", "add", "joe", "--acl", "lamps", "--new-secret-file", &secret];
    assert_eq!(as_admin(&add), Some(0));
    assert_eq!(as_joe(&["set", "site.lamp", "\"a value of joe\""], &secret), Some(0));
    assert_eq!(as_joe(&["get", "site.lamp"], &wrong), Some(3));
    assert_eq!(as_joe(&["get", "private.plans"], &secret), Some(3));
    assert_eq!(as_joe(&["members"], &secret), Some(3));
    // A list that is there, and not joe's, is like one that is not; joe's own may be asked.
    assert_eq!(as_admin(&["acl", "set", "desks", "site.#", "r"]), Some(0));
    assert_eq!(as_joe(&["acl", "test", "desks", "site.lamp"], &secret), Some(1));
    assert_eq!(as_joe(&["acl", "test", "lamps", "site.lamp"], &secret), Some(0));
    assert_eq!(as_joe(&["monitor", "alarms"], &secret), Some(3));
    // They may be asked for, so they are no line: those that only an admin may see are not asked for.
    assert_eq!(as_joe(&["conflicts"], &secret), Some(0));
    assert_eq!(as_joe(&["members", "forget", "n9"], &secret), Some(3));
    assert_eq!(as_admin(&["members", "forget", "n9"]), Some(1));
    assert_eq!(as_admin(&["user", "remove", "joe"]), Some(0));
    assert_eq!(as_joe(&["get", "site.lamp"], &secret), Some(3));

    let here = [("node", "n1"), ("address", "127.0.0.1")];
    let wait = |fields: &[(&str, &str)]| wait_for_line(&audit, &[&here[..], fields].concat());
    let line = wait(&[("event", "login"), ("method", "key"), ("outcome", "accepted")]);
    assert_eq!(line["user"], Value::Null);
    assert!(line["time"].as_str().unwrap().ends_with('Z') && line["count"] == 1, "{line}");
    wait(&[("event", "acl"), ("target", ":n.acl.lamps.site.#"), ("outcome", "done")]);
    let line = wait(&[("event", "user"), ("action", "auth_set"), ("target", "joe")]);
    assert_eq!(line["detail"], "method password, new secret, access list lamps");
    wait(&[("event", "login"), ("user", "joe"), ("outcome", "accepted"), ("method", "password")]);
    wait(&[("event", "login"), ("user", "joe"), ("outcome", "refused"), ("detail", "auth_failed")]);
    let line = wait(&[("event", "denied"), ("user", "joe"), ("target", "private.plans")]);
    assert_eq!(
        (line["action"].as_str(), line["detail"].as_str()),
        (Some("get_value"), Some("access list"))
    );
    wait(&[("event", "denied"), ("user", "joe"), ("target", "alarms"), ("action", "msg_monitor")]);
    wait(&[("event", "denied"), ("user", "joe"), ("action", "members"), ("detail", "role")]);
    wait(&[
        ("event", "denied"),
        ("user", "joe"),
        ("action", "test_acl"),
        ("target", ":n.acl.desks"),
    ]);
    wait(&[("event", "admin"), ("method", "key"), ("action", "forget_member"), ("target", "n9")]);
    wait(&[("event", "user"), ("action", "auth_delete"), ("target", "joe"), ("outcome", "done")]);

    // Another key for the node: that is recorded, too.
    let (_, said) = program(&["key", "add", &key]);
    let new = said.split_whitespace().nth(1).unwrap().to_owned();
    node.signal("HUP");
    let line = wait_for_line(&audit, &[("event", "key"), ("outcome", "done")]);
    assert!(line["detail"].as_str().unwrap().contains(&new), "{line}");

    node.signal("TERM");
    assert!(node.wait().success(), "{:#?}", node.log());
    let all = lines(&audit);
    let ends = [all.first(), all.last()].map(|line| line.unwrap()["outcome"].as_str().unwrap());
    assert_eq!(ends, ["begun", "ended"]);
    assert!(all.iter().all(|line| line["action"] != "conflicts"), "{all:#?}");
    let text = fs::read_to_string(&audit).unwrap();
    for secret in ["a secret of joe", "a wrong secret", "a value of joe"] {
        assert!(!text.contains(secret), "{text}");
    }
}

/// What somebody types for a user's name, or names an entry by, is anything.
#[test]
fn a_secret_in_the_wrong_place_is_not_recorded_and_what_nobody_sees_is_escaped() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let audit = keys.path("audit");
    let secret = keys.path("joe.secret");
    fs::write(&secret, "a secret of joe\n").unwrap();
    let node = keys.run("n1", &["--key", &key, "--audit", &audit]);
    let as_admin = |arguments: &[&str]| at(&node, &[arguments, &["--key", &key]].concat());
    assert_eq!(as_admin(&["acl", "set", "lamps", "site.#", "rwcdxen"]), Some(0));
    let add = ["user", "add", "joe", "--acl", "lamps", "--new-secret-file", &secret];
    assert_eq!(as_admin(&add), Some(0));
    let as_user = |user: &str, arguments: &[&str]| {
        at(&node, &[arguments, &["--user", user, "--secret-file", &secret]].concat())
    };
    let ticket = "distkv1.gqlhZGRyZXNzZXORqG4xOjI3NTg2p25ldHdvcmugO9jvFg";
    let made = "9eb2acd88a30c4d57ed91a7e6ec50537e516d0e496690153dee7de2148dc14be";
    let unseen = "jo\u{202e}\u{9b}2J\u{85}\u{7f}\u{200b}\u{e0041}e";
    let long = "n".repeat(200);
    for user in [ticket, made, unseen, &long] {
        assert_eq!(as_user(user, &["get", "a"]), Some(3));
    }
    // Those of one action are counted together, with the last path.
    let at_unseen = format!("b.{unseen}");
    for arguments in [&["get", ticket][..], &["set", made, "1"], &["delete", &at_unseen]] {
        assert_eq!(as_user("joe", arguments), Some(3));
    }

    let refused = [("event", "login"), ("outcome", "refused")];
    let denied = [("event", "denied"), ("user", "joe")];
    for hidden in ["[a ticket, not shown]", "[not shown: it looks like a secret]"] {
        wait_for_line(&audit, &[&refused[..], &[("user", hidden)]].concat());
        wait_for_line(&audit, &[&denied[..], &[("target", hidden)]].concat());
    }
    // Who reads the file as JSON has what was sent.
    wait_for_line(&audit, &[&refused[..], &[("user", unseen)]].concat());
    wait_for_line(&audit, &[&denied[..], &[("target", &at_unseen)]].concat());
    // A name that was only claimed is told as far as one needs it to see who mistypes.
    let begin = format!("{}…", "n".repeat(64));
    wait_for_line(&audit, &[&refused[..], &[("user", &begin)]].concat());
    let text = fs::read_to_string(&audit).unwrap();
    assert!(!text.contains(ticket) && !text.contains(made), "{text}");
    let is_escaped = |c: char| c == '\n' || c == '…' || (' '..='~').contains(&c);
    assert!(text.chars().all(is_escaped), "{text:?}");
}

#[test]
fn keys_that_are_changed_over_the_network_are_recorded_by_their_ids_and_never_themselves() {
    let keys = Keys::new();
    let (key, old) = keys.make("key");
    let audit = keys.path("audit");
    let node = keys.run("n1", &["--key", &key, "--audit", &audit]);
    assert_eq!(at(&node, &["key", "rotate", "--remove-old", "--key", &key]), Some(0));
    let file = fs::read_to_string(&key).unwrap();
    let line = file.lines().find(|line| line.starts_with("key ")).unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let (new, secret) = (words[1], words[2]);
    assert!(new != old && secret.len() == 64, "{new}");
    for (action, target) in [("key_add", new), ("key_use", new), ("key_remove", &old)] {
        let line = wait_for_line(&audit, &[("event", "key"), ("action", action)]);
        assert_eq!((&line["target"], &line["method"]), (&target.into(), &"key".into()), "{line}");
    }
    assert!(!fs::read_to_string(&audit).unwrap().contains(secret));
}

#[test]
fn a_log_that_was_moved_goes_on_in_a_new_file_at_sighup() {
    let keys = Keys::new();
    let (audit, old) = (keys.path("audit"), keys.path("audit.1"));
    let node = keys.run("n1", &["--audit", &audit]);
    assert_eq!(at(&node, &["acl", "set", "lamps", "site", "r"]), Some(0));
    wait_for_line(&audit, &[("event", "acl"), ("target", ":n.acl.lamps.site")]);
    fs::rename(&audit, &old).unwrap();
    node.signal("HUP");
    wait_until("there is a new file", || fs::metadata(&audit).ok());
    assert_eq!(fs::metadata(&audit).unwrap().mode() & 0o777, 0o600);
    assert_eq!(at(&node, &["acl", "set", "lamps", "garden", "r"]), Some(0));
    wait_for_line(&audit, &[("event", "acl"), ("target", ":n.acl.lamps.garden")]);
    assert!(lines(&old).iter().all(|line| line["target"] != ":n.acl.lamps.garden"));
    // The signal has no other meaning there: no line of the log says that the level is another one.
    assert!(!node.log().iter().any(|line| line.contains("the log level is")), "{:#?}", node.log());
}

#[test]
fn a_node_does_not_start_without_the_log_that_it_was_told_to_keep() {
    let keys = Keys::new();
    let nowhere = keys.path("none/audit");
    let own = ["run", "--name", "n1", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let (code, said) = program(&[&own[..], &["--audit", &nowhere]].concat());
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("the audit log") && said.contains("none/audit"), "{said}");
}

/// A real node that does not belong to a network, and calls it until this is dropped.
struct Stranger(Child);

impl Stranger {
    fn call(peer: &NodeProcess, name: &str, options: &[&str]) -> Self {
        Self::call_at(peer.gossip, name, options)
    }

    fn call_at(gossip: SocketAddr, name: &str, options: &[&str]) -> Self {
        let gossip = gossip.to_string();
        let mut command = Command::new(PROGRAM);
        command.args(["join", &gossip, "--name", name]).args(options);
        command.args(["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_log_in_the_place_of_a_file_that_the_node_reads_is_refused_and_the_file_stays() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let config = keys.path("node.toml");
    fs::write(&config, "log = \"info\"\n").unwrap();
    let linked = keys.path("linked");
    fs::hard_link(&key, &linked).unwrap();
    for (audit, option) in [(&key, "--key"), (&linked, "--key"), (&config, "--config")] {
        let before = fs::read(audit).unwrap();
        let arguments = ["run", "--key", &key, "--config", &config, "--audit", audit];
        let (code, said) = program(&arguments);
        let told = format!("--audit and {option} are the same file");
        assert!(code == Some(2) && said.contains(&told), "{said}");
        assert_eq!(fs::read(audit).unwrap(), before);
    }
}

/// Of lines about refused peers: each with its reason, what the peer calls itself or its key, and the count.
fn refusals(path: &str) -> Vec<(String, Option<String>, u64)> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let all = lines(path).into_iter().filter(|line| line["event"] == "peer");
    all.map(|line| {
        assert_eq!((&line["outcome"], &line["address"]), (&"refused".into(), &"127.0.0.1".into()));
        assert_eq!([&line["user"], &line["method"], &line["action"]], [&Value::Null; 3]);
        (text(&line["detail"]).unwrap(), text(&line["target"]), line["count"].as_u64().unwrap())
    })
    .collect()
}

#[test]
fn peers_that_are_refused_are_recorded_with_the_reason_and_members_are_not() {
    let keys = Keys::new();
    let (key, id) = keys.make("key");
    let (wrong, wrong_id) = keys.make("wrong");
    let (other, _) = keys.make("other");
    // The same key under the name of another network, without the CA, which names the network, too.
    let text = fs::read_to_string(&key).unwrap();
    let text: Vec<&str> = text.lines().filter(|line| !line.starts_with("ca ")).collect();
    fs::write(&other, text.join("\n").replace(&keys.network, "another")).unwrap();
    let audit = keys.path("audit");
    let a = keys.run("a", &["--key", &key, "--audit", &audit]);
    let strangers = [
        Stranger::call(&a, "x", &["--key", &wrong]),
        Stranger::call(&a, "y", &["--key", &other]),
        Stranger::call(&a, "z", &["--network", &keys.network]),
    ];
    let member = keys.join("b", &a, &["--key", &key]);
    for (reason, target) in [
        ("unknown key", Some(format!("key {wrong_id}"))),
        ("wrong key or other network", Some(format!("key {id}"))),
        ("no key", None),
        ("datagram: unknown key", None),
        ("datagram: no key", None),
    ] {
        wait_until(reason, || {
            let all = refusals(&audit);
            all.into_iter().find(|(said, to, _)| (said.as_str(), to) == (reason, &target))
        });
    }
    super::wait_for_links(&[&a, &member], true);
    drop(strangers);
    // The member has caused no line: each reason is one of the strangers' own.
    let reasons = ["unknown key", "wrong key or other network", "no key", "datagram: unknown key"];
    let expected = [&reasons[..], &["datagram: no key", "datagram: other network"]].concat();
    for (reason, ..) in refusals(&audit) {
        assert!(expected.contains(&reason.as_str()), "{reason}");
    }
}

#[test]
fn peers_that_this_node_calls_are_recorded_where_they_are_not_what_they_should_be() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let (wrong, _) = keys.make("wrong");
    let (sealed, open) = (keys.run("a", &["--key", &key]), keys.run("b", &[]));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let elsewhere = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // What is not read would break the connection, and the answer with it.
            let _ = (&stream).read(&mut [0; 4_096]);
            let _ = (&stream).write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let cases = [
        (sealed.gossip, &["--key", &wrong][..], "it refuses the key of this node"),
        (open.gossip, &["--key", &key], "no key"),
        (elsewhere, &["--key", &key], "handshake: not of this protocol"),
        (elsewhere, &["--network", &keys.network], "greeting: not of this protocol"),
    ];
    for (number, (gossip, options, reason)) in cases.into_iter().enumerate() {
        let audit = keys.path(&format!("audit-{number}"));
        let options = [options, &["--audit", &audit]].concat();
        let _caller = Stranger::call_at(gossip, "x", &options);
        wait_until("it records", || fs::metadata(&audit).ok());
        let line = wait_for_line(&audit, &[("event", "peer"), ("action", "dial")]);
        let told = ["outcome", "address", "detail"].map(|field| line[field].as_str().unwrap());
        assert_eq!(told, ["refused", "127.0.0.1", reason]);
    }
}

#[test]
fn a_flood_at_the_gossip_port_is_a_few_lines_that_count_all_of_it() {
    const CALLS: usize = 300;
    const DATAGRAMS: usize = 2_000;
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let audit = keys.path("audit");
    let mut a = keys.run("a", &["--key", &key, "--audit", &audit]);
    for number in 0..CALLS {
        let mut stream = TcpStream::connect(a.gossip).unwrap();
        stream.write_all(format!("GET /{number} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
        // It is closed without a word once it is refused.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sealed = [b"dkvS\x01\x01".as_slice(), &[7; 60]].concat();
    for number in 1..=DATAGRAMS as u64 {
        socket.send_to(&sealed, a.gossip).unwrap();
        if number % 100 == 0 {
            // Else the system drops some of them.
            wait_until("they are taken", || {
                (counter(&a, "datagrams_unknown_key") == number).then_some(())
            });
        }
    }
    // The end of the node is the end of the time in which they are counted together.
    a.signal("TERM");
    assert!(a.wait().success(), "{:#?}", a.log());
    let mut told = refusals(&audit);
    told.sort();
    let of = |reason: &str, counts: [usize; 2]| {
        counts.map(|count| (reason.to_owned(), None, count as u64))
    };
    let calls = of("handshake: not of this protocol", [1, CALLS - 1]);
    let datagrams = of("datagram: unknown key", [1, DATAGRAMS - 1]);
    assert_eq!(told, [datagrams, calls].concat());
}

#[test]
fn an_open_node_records_who_has_a_key_and_who_is_of_another_network() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let audit = keys.path("audit");
    let a = keys.run("a", &["--audit", &audit]);
    let strangers = [
        Stranger::call(&a, "x", &["--key", &key]),
        Stranger::call(&a, "y", &["--network", "another"]),
    ];
    for (reason, target) in
        [("it uses a key, and this node does not", None), ("other network", Some("y"))]
    {
        wait_until(reason, || {
            let all = refusals(&audit);
            all.into_iter().find(|(said, to, _)| (said.as_str(), to.as_deref()) == (reason, target))
        });
    }
    drop(strangers);
}

#[test]
fn what_goes_into_no_file_is_counted_as_lost_and_warned_of_until_the_file_can_be_made_anew() {
    let keys = Keys::new();
    let (folder, audit) = (keys.path("log"), keys.path("log/audit"));
    fs::create_dir(&folder).unwrap();
    let node = keys.run("n1", &["--audit", &audit, "--http", "127.0.0.1:0"]);
    wait_for_line(&audit, &[("event", "audit"), ("outcome", "begun")]);
    let status = || {
        let address = node.client.to_string();
        let (_, said) = program(&["status", "--json", "--connect", &address]);
        serde_json::from_str::<Value>(said.lines().next().unwrap()).unwrap()
    };
    let warns = || status()["warnings"].to_string().contains("cannot be made anew");
    assert!(!warns());
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(at(&node, &["acl", "set", "lamps", "site.#", "rwcdxen"]), Some(0));
    wait_until("it warns", || warns().then_some(()));
    let counted = || status()["counters"].clone();
    wait_until("it counts what is lost", || (counted()["audit_lost"] == 1).then_some(()));
    assert_eq!(counted()["audit_written"], 1);
    fs::create_dir(&folder).unwrap();
    wait_until("it does not warn any more", || (!warns()).then_some(()));
    let line = wait_for_line(&audit, &[("event", "audit"), ("outcome", "dropped")]);
    assert_eq!(line["count"], 1);
    assert_eq!(at(&node, &["acl", "set", "desks", "site.#", "rwcdxen"]), Some(0));
    wait_for_line(&audit, &[("event", "acl"), ("target", ":n.acl.desks.site.#")]);
}

#[test]
fn what_was_restored_is_recorded_with_its_size_its_network_and_its_counts() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let (audit, saved) = (keys.path("audit"), keys.path("saved.dkv"));
    let mut node = keys.run("n1", &["--key", &key, "--audit", &audit]);
    let as_admin = |arguments: &[&str]| at(&node, &[arguments, &["--key", &key]].concat());
    assert_eq!(as_admin(&["set", "a", "1"]), Some(0));
    assert_eq!(as_admin(&["acl", "set", "lamps", "#", "r"]), Some(0));
    assert_eq!(as_admin(&["snapshot", "save", "--to", &saved]), Some(0));
    assert_eq!(as_admin(&["snapshot", "restore", &saved]), Some(0));
    let bytes = fs::metadata(&saved).unwrap().len();
    let restore = [("event", "admin"), ("action", "restore"), ("method", "key")];
    let line = wait_for_line(&audit, &[&restore[..], &[("outcome", "done")]].concat());
    let network = &node.network;
    let expected = format!(
        "{bytes} bytes, of network {network}: 2 entries, 0 missing; 0 users and 1 access list in it"
    );
    assert_eq!((line["detail"].as_str(), line["target"].as_str()), (Some(&*expected), Some("n1")));
    // One of another network is refused when all of it has come.
    let into = keys.path("into");
    let (code, said) = program(&[
        "snapshot",
        "restore",
        &saved,
        "--into",
        &into,
        "--name",
        "n9",
        "--network",
        "other",
    ]);
    assert_eq!(code, Some(0), "{said}");
    let other = fs::read_dir(&into).unwrap().map(|entry| entry.unwrap().path());
    let other =
        other.filter(|path| path.extension().is_some_and(|end| end == "dkv")).last().unwrap();
    assert_eq!(as_admin(&["snapshot", "restore", other.to_str().unwrap()]), Some(3));
    wait_for_line(
        &audit,
        &[&restore[..], &[("outcome", "refused"), ("detail", "bad_request")]].concat(),
    );
    node.signal("TERM");
    node.wait();
}

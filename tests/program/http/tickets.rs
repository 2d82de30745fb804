//! The HTTP API where clients must log in: tickets say who asks, and access lists what that user gets.

use std::net::SocketAddr;
use std::process::Command;

use distkv_tls::ticket::Ticket;
use rmpv::Value;
use serde_json::json;

use super::asking::{ALONE, Answer, Ask, ask, get};
use crate::processes::{Client, NodeProcess, PROGRAM, wait_until};

/// A secured node with data, and users.
pub struct Secured {
    node: NodeProcess,
    folder: tempfile::TempDir,
}

pub fn command(arguments: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

impl Secured {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key").to_str().unwrap().to_owned();
        let network = format!(
            "http-{}",
            folder.path().file_name().unwrap().to_string_lossy().trim_start_matches('.')
        );
        command(&["key", "new", "--network", &network, "--to", &key]);
        let options = [&ALONE[..], &["--key", &key]].concat();
        Self { node: NodeProcess::start_in(&network, "n1", &options), folder }
    }

    pub fn http(&self) -> SocketAddr {
        self.node.http.unwrap()
    }

    pub fn admin(&self, arguments: &[&str]) -> String {
        let (address, key) = (self.node.client.to_string(), self.node.key.clone().unwrap());
        command(&[arguments, &["--connect", &address, "--key", &key]].concat())
    }

    /// A new user's ticket.
    pub fn user(&self, name: &str, more: &[&str]) -> String {
        self.admin(&[&["user", "add", name, "--method", "token"], more].concat());
        let file = self.folder.path().join(format!("{name}.ticket"));
        self.admin(&["user", "ticket", name, "--to", file.to_str().unwrap()]);
        std::fs::read_to_string(file).unwrap().trim().to_owned()
    }

    pub fn client(&self) -> Client {
        self.node.connect()
    }

    pub fn ask(&self, ticket: &str, method: &'static str, target: &str) -> Ask {
        ask(self.http(), method, target).bearer(ticket)
    }

    pub fn get(&self, ticket: &str, target: &str) -> Answer {
        self.ask(ticket, "GET", target).send()
    }
}

#[test]
fn nobody_gets_anything_without_a_ticket_but_metrics_and_health() {
    let secured = Secured::start();
    secured.client().set(&["a"], Value::from(1));
    for target in [
        "/v1/kv/a",
        "/v1/kv/none",
        "/v1/kv/a?tree",
        "/v1/kv/a?watch",
        "/v1/kv/?children",
        "/v1/status",
        "/v1/members",
        "/v1/conflicts",
        "/v1/shards",
        "/v1/live",
    ] {
        let refused = get(secured.http(), target);
        assert_eq!((refused.status, refused.code().as_str()), (401, "auth_required"), "{target}");
        assert!(refused.fields["www-authenticate"].starts_with("Bearer"), "{target}");
    }
    for method in ["PUT", "DELETE"] {
        assert_eq!(ask(secured.http(), method, "/v1/kv/a").send().status, 401, "{method}");
    }
    for target in ["/livez", "/readyz", "/metrics", "/v1/", "/v1/openapi.json"] {
        assert_eq!(get(secured.http(), target).status, 200, "{target}");
    }
    let ticket = secured.user("robot", &["--acl", "*"]);
    assert_eq!(secured.get(&ticket, "/v1/kv/a").text(), "1\n");
    // What needs no login names no path, no value and no user.
    secured.client().set(&["hidden-place"], Value::from("hidden-value"));
    secured.get(&ticket, "/v1/kv/hidden-place");
    for target in ["/livez", "/readyz?write", "/metrics"] {
        let told = get(secured.http(), target);
        for word in ["hidden-place", "hidden-value", "robot"] {
            assert!(!told.text().contains(word), "{word} in {target}");
        }
    }
    let damaged = &ticket[..ticket.len() - 1];
    let refused = secured.get(damaged, "/v1/kv/a");
    assert_eq!((refused.status, refused.code().as_str()), (401, "auth_failed"));
    // The secret in a ticket is worthless when the user has a new one.
    let file = secured.folder.path().join("robot.ticket");
    secured.admin(&["user", "ticket", "robot", "--force", "--to", file.to_str().unwrap()]);
    let refused = secured.get(&ticket, "/v1/kv/a");
    assert_eq!((refused.status, refused.code().as_str()), (401, "auth_failed"));
}

#[test]
fn a_user_gets_what_the_access_list_allows_and_hears_of_nothing_else() {
    let secured = Secured::start();
    let mut client = secured.client();
    for path in [&["a", "open"][..], &["a", "closed"], &["a", "closed", "below"], &["b"]] {
        client.set(path, Value::from(1));
    }
    for (pattern, letters) in
        [("a", "rxen"), ("a.open", "rwcdxe"), ("a.open.#", "rwcdxen"), ("a.new", "c")]
    {
        secured.admin(&["acl", "set", "some", pattern, letters]);
    }
    let ticket = secured.user("joe", &["--acl", "some"]);
    let status = |method: &'static str, target: &str| {
        let answer =
            secured.ask(&ticket, method, target).body(if method == "PUT" { "2" } else { "" });
        let answer = answer.send();
        (answer.status, if answer.status < 400 { String::new() } else { answer.code() })
    };
    let denied = (403, String::from("denied"));
    assert_eq!(status("GET", "/v1/kv/a/open").0, 200);
    for target in [
        "/v1/kv/a/closed",
        "/v1/kv/a/none",
        "/v1/kv/b",
        "/v1/kv/none",
        "/v1/kv/b?tree",
        "/v1/kv/b?watch",
        "/v1/kv/b?children",
        "/v1/kv/:n/auth",
        "/v1/kv/:n?tree",
        "/v1/status",
        "/v1/members",
        "/v1/shards?detail",
    ] {
        assert_eq!(status("GET", target), denied, "{target}");
    }
    for target in ["/v1/kv/a/closed", "/v1/kv/a", "/v1/kv/b", "/v1/kv/:n/acl/some"] {
        assert_eq!(status("PUT", target), denied, "{target}");
        assert_eq!(status("DELETE", target), denied, "{target}");
    }
    let tree = secured.get(&ticket, "/v1/kv/a?tree").lines();
    let paths: Vec<_> = tree.iter().map(|line| line["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["a.open"]);
    let children = secured.get(&ticket, "/v1/kv/a?children").json();
    let names: Vec<_> =
        children["items"].as_array().unwrap().iter().map(|item| item["name"].clone()).collect();
    assert_eq!(names, [json!("open")]);
    let mut events = secured.ask(&ticket, "GET", "/v1/kv/a?watch&fetch&conflicts").events();
    assert_eq!(events.expect("entry")["path"], "a.open");
    events.expect("uptodate");
    client.set(&["a", "closed"], Value::from(2));
    client.set(&["a", "closed", "below"], Value::from(2));
    assert_eq!(status("PUT", "/v1/kv/a/open").0, 200);
    let next = events.expect("entry");
    assert_eq!(
        (&next["path"], &next["value"]),
        (&json!("a.open"), &json!(2)),
        "nothing was told in between"
    );
    // A user that may create and not read learns nothing by preconditions.
    let made = secured.ask(&ticket, "PUT", "/v1/kv/a/new").body("1").send();
    assert_eq!(made.status, 201, "{made:?}");
    let stale =
        secured.ask(&ticket, "PUT", "/v1/kv/a/new").field("If-None-Match", "*").body("2").send();
    assert!(stale.status >= 400, "{stale:?}");
    assert!(!stale.text().contains("\"value\""), "{stale:?}");
    // A list that changes counts at once, also for streams that are open.
    secured.admin(&["acl", "set", "some", "a.open", "x"]);
    assert_eq!(status("GET", "/v1/kv/a/open"), denied);
    client.set(&["a", "open"], Value::from(3));
    secured.admin(&["acl", "set", "some", "a.open", "rx"]);
    // What it may read again has changed meanwhile.
    events.expect("restart");
    assert_eq!(events.expect("entry")["value"], 3);
    client.set(&["a", "open"], Value::from(4));
    assert_eq!(events.expect("entry")["value"], 4);
    secured.admin(&["acl", "set", "some", "a", "r"]);
    let last = events.expect("failed");
    assert_eq!(last["code"], "denied");
    assert_eq!(events.next(), None);
}

#[test]
fn of_a_child_that_may_be_read_and_not_listed_nothing_is_told_of_what_is_below() {
    let secured = Secured::start();
    let mut client = secured.client();
    for path in [&["a", "1"][..], &["a", "1", "below"], &["a", "2"]] {
        client.set(path, Value::from(1));
    }
    for letters in ["r", "rx", "rwcdx"] {
        let list = format!("only-{letters}");
        for (pattern, letters) in [(":", "xen"), ("a", "xen"), ("a.#", letters)] {
            secured.admin(&["acl", "set", &list, pattern, letters]);
        }
        let ticket = secured.user(&format!("joe-{letters}"), &["--acl", &list]);
        let children = secured.get(&ticket, "/v1/kv/a?children").json();
        let items = children["items"].as_array().unwrap();
        let told: Vec<_> = items.iter().map(|item| (&item["name"], &item["more"])).collect();
        let no = json!(false);
        assert_eq!(told, [(&json!("1"), &no), (&json!("2"), &no)], "{letters}");
    }
}

#[test]
fn requests_at_once_with_a_password_are_all_answered() {
    let secured = Secured::start();
    secured.client().set(&["a"], Value::from(1));
    let secret = secured.folder.path().join("secret");
    std::fs::write(&secret, "correct horse\n").unwrap();
    let secret = secret.to_str().unwrap();
    secured.admin(&["acl", "set", "all", "a", "r"]);
    secured.admin(&["user", "add", "joe", "--acl", "all", "--new-secret-file", secret]);
    let file = secured.folder.path().join("joe.ticket");
    let file = file.to_str().unwrap();
    secured.admin(&["user", "ticket", "joe", "--new-secret-file", secret, "--to", file]);
    let ticket = std::fs::read_to_string(file).unwrap();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let ask = || secured.get(ticket.trim(), "/v1/kv/a").status;
        let asking: Vec<_> = (0..10).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    assert_eq!(statuses, [200; 10]);
}

#[test]
fn conflicts_are_told_to_those_who_may_read_there() {
    // A state that did not know of the secured node's changes, nor they of it.
    let other = NodeProcess::run("other");
    let secured = Secured::start();
    for path in [["a", "closed"], ["a", "open"]] {
        other.connect().set(&path, Value::from("theirs"));
        secured.client().set(&path, Value::from("ours"));
    }
    let file = secured.folder.path().join("other.dkv");
    let file = file.to_str().unwrap();
    command(&["snapshot", "save", "--to", file, "--connect", &other.client.to_string()]);
    for (pattern, letters) in [("a", "x"), ("a.open", "r")] {
        secured.admin(&["acl", "set", "some", pattern, letters]);
    }
    let joe = secured.user("joe", &["--acl", "some"]);
    let all = secured.user("all", &["--acl", "*"]);
    let mut events = secured.ask(&joe, "GET", "/v1/kv/a?watch&conflicts=only").events();
    secured.admin(&["snapshot", "restore", file, "--any-network"]);
    let told = events.expect("conflict");
    assert_eq!(told["path"], "a.open", "the other one comes first, and is not told");
    let values = [&told["winner"]["value"], &told["loser"]["value"]];
    assert!(values.contains(&&json!("theirs")) && values.contains(&&json!("ours")), "{told}");
    assert!(told["winner"]["etag"].is_string() && told["loser"]["chain"].is_array(), "{told}");
    let paths = |ticket: &str, target: &str| -> Vec<String> {
        let lines = secured.get(ticket, target).lines();
        lines.iter().map(|line| line["path"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(paths(&joe, "/v1/conflicts"), ["a.open"]);
    assert_eq!(paths(&all, "/v1/conflicts"), ["a.closed", "a.open"]);
    assert_eq!(paths(&all, "/v1/conflicts?limit=1"), ["a.open"]);
    assert_eq!(paths(&all, "/v1/conflicts?path=a.closed"), ["a.closed"]);
    assert_eq!(paths(&all, "/v1/conflicts?since=2"), [""; 0]);
}

#[test]
fn who_is_removed_is_out_in_the_middle_of_a_stream_and_guesses_are_slowed_down() {
    let secured = Secured::start();
    let ticket = secured.user("joe", &["--acl", "*"]);
    let mut events = secured.ask(&ticket, "GET", "/v1/kv/a?watch").events();
    secured.admin(&["user", "remove", "joe"]);
    let last = events.expect("failed");
    assert_eq!(last["code"], "auth_required");
    assert_eq!(events.next(), None);
    // The same ticket over and over keeps nobody out.
    for _ in 0..20 {
        let refused = secured.get(&ticket, "/v1/kv/a");
        assert_eq!((refused.status, &*refused.code()), (401, "auth_failed"), "{refused:?}");
    }
    // Another secret each time: the user has to wait.
    let mut numbers = 0..;
    let codes = || {
        let mut guess: Ticket = ticket.parse().unwrap();
        let secret = format!("guess {}", numbers.next().unwrap());
        guess.login.as_mut().unwrap().secret = Some(secret);
        let refused = secured.get(&guess.to_text().unwrap(), "/v1/kv/a");
        assert!(matches!(refused.status, 401 | 429), "{refused:?}");
        let is_slowed = refused.code() == "too_many";
        // For how long, programs are told, too.
        let text = refused.json()["error"].as_str().unwrap().to_owned();
        let wait = text.split_once("try again in ").map(|(_, wait)| wait.trim_end_matches(" s"));
        assert_eq!(refused.fields.get("retry-after").map(String::as_str), wait, "{refused:?}");
        is_slowed.then_some(())
    };
    wait_until("it is slowed down", codes);
    // Others come from the same address with a secret that was checked before, or wait for a moment.
    let other = secured.user("other", &["--role", "operator"]);
    let status = || (secured.get(&other, "/v1/status").status == 200).then_some(());
    wait_until("an operator looks at the node", status);
}

#[test]
fn an_open_node_asks_for_tickets_as_soon_as_logins_are_switched_on() {
    let folder = tempfile::tempdir().unwrap();
    let node = NodeProcess::start("n1", &ALONE);
    let (http, address) = (node.http.unwrap(), node.client.to_string());
    node.connect().set(&["a"], Value::from(1));
    assert_eq!(get(http, "/v1/kv/a").status, 200);
    let mut events = ask(http, "GET", "/v1/kv/a?watch").events();
    let admin = |arguments: &[&str]| command(&[arguments, &["--connect", &address]].concat());
    admin(&["user", "add", "root", "--method", "token", "--role", "admin"]);
    let file = folder.path().join("root.ticket");
    let file = file.to_str().unwrap();
    admin(&["user", "ticket", "root", "--to", file, "--address", &address]);
    let ticket = std::fs::read_to_string(file).unwrap().trim().to_owned();
    admin(&["auth", "on", "token"]);
    assert_eq!(events.expect("failed")["code"], "auth_required");
    assert_eq!(get(http, "/v1/kv/a").status, 401);
    assert_eq!(ask(http, "GET", "/v1/kv/a").bearer(&ticket).send().text(), "1\n");
    // Who has logged in needs no token of the node's; a page of another place gets nowhere.
    let put = || ask(http, "PUT", "/v1/kv/a").bearer(&ticket).body("2");
    assert_eq!(put().field("Origin", "http://evil.example").send().status, 403);
    assert_eq!(put().send().status, 200);
}

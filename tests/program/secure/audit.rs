//! The audit log of a real node: who did what, from where, with what outcome, and never a secret or a value.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde_json::Value;

use super::{Keys, program};
use crate::processes::{NodeProcess, wait_until};

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
    wait(&[("event", "denied"), ("user", "joe"), ("action", "members"), ("detail", "role")]);
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
    let text = fs::read_to_string(&audit).unwrap();
    for secret in ["a secret of joe", "a wrong secret", "a value of joe"] {
        assert!(!text.contains(secret), "{text}");
    }
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
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the audit log") && said.contains("none/audit"), "{said}");
}

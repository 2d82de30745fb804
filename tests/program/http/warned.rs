//! Warnings of what an operator has chosen have kinds of their own, so that alerts can leave them out.

use super::{metric, status};
use crate::cli::command::ok;
use crate::processes::{NodeProcess, field, wait_until};

const OWN: [&str; 6] = ["run", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--http"];

fn of_kind(node: &NodeProcess, kind: &str) -> f64 {
    metric(node, &format!("distkv_warnings{{kind=\"{kind}\"}}"))
}

/// Whether `status` warns of this.
fn warns_of(node: &NodeProcess, what: &str) -> bool {
    let warnings = field(&status(node), "warnings").unwrap();
    warnings.as_array().unwrap().iter().any(|text| text.as_str().unwrap().contains(what))
}

#[test]
fn a_time_without_logins_that_somebody_has_allowed_is_no_warning_of_logins() {
    let node = NodeProcess::start("n1", &[&OWN[..], &["127.0.0.1:0"]].concat());
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    let secret = secret.to_str().unwrap();
    ok(&node, &["user", "add", "joe", "--role", "admin", "--new-secret-file", secret]);
    ok(&node, &["auth", "on", "password", "--grace", "10m"]);
    assert!(warns_of(&node, "of the time are left"));
    assert_eq!((of_kind(&node, "grace"), of_kind(&node, "logins")), (1.0, 0.0));
    ok(&node, &["auth", "off"]);
    wait_until("it is over", || (of_kind(&node, "grace") == 0.0).then_some(()));
}

#[test]
fn what_was_loaded_and_is_not_obeyed_is_no_warning_of_access() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.jsonl");
    let line = |path: &str, value: &str, tick: u8| {
        format!(
            "{{\"path\":\"{path}\",\"value\":{value},\"chain\":[\"old~1:{tick}\"],\"tock\":{tick}}}\n"
        )
    };
    let auth = line(":n.auth", "{\"current\":\"password\"}", 1);
    let codec = line(":n.codec.int", "{\"in\":[]}", 2);
    for (state, ignores, (unenforced, access)) in
        [(codec.clone(), false, (1.0, 0.0)), (auth + &codec, true, (1.0, 1.0))]
    {
        std::fs::write(&file, state).unwrap();
        let mut options = vec!["127.0.0.1:0"];
        options.extend(ignores.then_some("--ignore-auth"));
        let node = NodeProcess::start("n1", &[&OWN[..], &options].concat());
        let file = file.to_str().unwrap();
        ok(&node, &["snapshot", "restore", file, "--with-auth"]);
        assert!(warns_of(&node, "keeps and does not enforce"));
        assert_eq!(warns_of(&node, "--ignore-auth: every client may"), ignores);
        assert_eq!((of_kind(&node, "unenforced"), of_kind(&node, "access")), (unenforced, access));
    }
}

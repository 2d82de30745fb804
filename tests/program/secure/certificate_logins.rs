//! Clients that log in by a certificate of the network's CA, which is in its key file.

use std::fs;

use distkv_secure::key_file::KeyFile;
use distkv_tls::Ca;

use super::{Keys, program};
use crate::processes::{NodeProcess, wait_until};

/// A ticket with a certificate for a user, issued by the CA in a key file; its text.
fn ticket(keys: &Keys, key: &str, node: &NodeProcess, user: &str) -> String {
    let now = distkv::rt::wall_clock_ms() / 1_000;
    let file = KeyFile::parse(&fs::read_to_string(key).unwrap()).unwrap();
    let ca = file.ca.as_ref().unwrap();
    let ca = Ca::load(file.ring.network().as_str(), &ca.key, &ca.certificate).unwrap();
    let identity = ca.issue_user(user, 1, now).unwrap();
    let (chain, private) = identity.pem().unwrap();
    let (cert, cert_key) = (keys.path("user.pem"), keys.path("user.key"));
    fs::write(&cert, chain).unwrap();
    fs::write(&cert_key, private).unwrap();
    let address = node.client.to_string();
    let made = ["ticket", "new", &address, "--key", key, "--cert", &cert, "--cert-key", &cert_key];
    let (code, said) = program(&made);
    assert_eq!(code, Some(0), "{said}");
    said.trim().to_owned()
}

#[test]
fn a_certificate_logs_its_user_in_as_long_as_there_is_that_user() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let audit = keys.path("audit");
    let node = keys.run("n1", &["--key", &key, "--audit", &audit]);
    let address = node.client.to_string();
    let as_admin = |arguments: &[&str]| {
        let (code, said) = program(&[arguments, &["--connect", &address, "--key", &key]].concat());
        assert_eq!(code, Some(0), "{said}");
    };
    let joe = ticket(&keys, &key, &node, "joe");
    let whoami = |options: &[&str]| program(&[&["whoami"], options].concat());
    // A certificate makes no user.
    let (code, said) = whoami(&["--ticket", &joe]);
    assert!(code == Some(3) && said.contains("log in"), "{said}");
    as_admin(&["acl", "set", "lamps", "site", "xen"]);
    as_admin(&["acl", "set", "lamps", "site.#", "rwcdxen"]);
    as_admin(&["user", "add", "joe", "--method", "token", "--acl", "lamps"]);
    let (code, said) = whoami(&["--ticket", &joe]);
    assert!(
        code == Some(0) && said.contains("joe (token), role user, access list lamps"),
        "{said}"
    );
    let (code, said) = program(&["set", "site.lamp", "1", "--ticket", &joe]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = program(&["set", "private.plans", "1", "--ticket", &joe]);
    assert!(code == Some(3) && said.contains("(denied)"), "{said}");
    wait_until("the login is recorded", || {
        let text = fs::read_to_string(&audit).unwrap();
        text.contains("\"user\":\"joe\",\"method\":\"certificate\"").then_some(())
    });
    // A login with a secret on the same connection is what counts.
    let secret = keys.path("amy.secret");
    fs::write(&secret, "a secret of amy\n").unwrap();
    as_admin(&["user", "add", "amy", "--role", "operator", "--new-secret-file", &secret]);
    let (code, said) = whoami(&["--ticket", &joe, "--user", "amy", "--secret-file", &secret]);
    assert!(code == Some(0) && said.contains("amy (password), role operator"), "{said}");

    as_admin(&["user", "remove", "joe"]);
    let (code, said) = whoami(&["--ticket", &joe]);
    assert!(code == Some(3) && said.contains("log in"), "{said}");
}

#[test]
fn a_certificate_of_another_ca_gets_nowhere() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let (stranger, _) = keys.make("stranger");
    let node = keys.run("n1", &["--key", &key]);
    let address = node.client.to_string();
    let add = ["user", "add", "joe", "--method", "token", "--acl", "*"];
    let (code, said) = program(&[&add[..], &["--connect", &address, "--key", &key]].concat());
    assert_eq!(code, Some(0), "{said}");
    // The nodes' own CA, so that the client takes them, and a certificate of another one.
    let other = ticket(&keys, &stranger, &node, "joe");
    let (cert, cert_key) = (keys.path("user.pem"), keys.path("user.key"));
    let made = ["ticket", "new", &address, "--key", &key, "--cert", &cert, "--cert-key", &cert_key];
    let (code, mixed) = program(&made);
    assert_eq!(code, Some(0), "{mixed}");
    for ticket in [other.as_str(), mixed.trim()] {
        let (code, said) = program(&["whoami", "--ticket", ticket]);
        assert_eq!(code, Some(3), "{said}");
        assert!(!said.contains("joe (token)"), "{said}");
    }
}

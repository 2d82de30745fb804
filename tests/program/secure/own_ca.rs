//! Nodes with a key file and a certificate of a CA of the operator's own: commands are told by which CA they are known.

use std::process::Command;

use super::{Keys, program};
use crate::processes::{NodeProcess, PROGRAM};

/// A node with a key file, and a certificate of another CA for 127.0.0.1; the key file, and the CA's certificate.
fn with_own_ca(keys: &Keys) -> (NodeProcess, String, String) {
    let ((key, _), (other, _)) = (keys.make("key"), keys.make("other"));
    let (own, ca) = (keys.path("own"), keys.path("ca"));
    for made in [&["--server", "127.0.0.1", "--to", &own][..], &["--ca", "--to", &ca]] {
        let (code, said) = program(&[&["key", "cert", "--key", &other], made].concat());
        assert_eq!(code, Some(0), "{said}");
    }
    let [cert, secret] = [".pem", ".key"].map(|end| format!("{own}{end}"));
    let node = keys.run("a", &["--key", &key, "--cert", &cert, "--cert-key", &secret]);
    (node, key, format!("{ca}.pem"))
}

#[test]
fn who_has_the_key_file_is_told_by_which_ca_the_nodes_are_known_and_takes_no_other() {
    let keys = Keys::new();
    let (node, key, ca) = with_own_ca(&keys);
    let address = node.client.to_string();
    let set = |more: &[&str]| {
        program(&[&["set", "a", "5", "--connect", &address, "--key", &key], more].concat())
    };
    let (code, said) = set(&[]);
    assert!(code == Some(3) && said.contains("wrong CA") && said.contains("--node-ca"), "{said}");
    let (code, said) = set(&["--node-ca", &ca]);
    assert_eq!(code, Some(0), "{said}");
    // In the key file's stead, and not besides: of its CA there is a certificate for whoever has a copy of the file.
    let key_ca = keys.path("key-ca");
    let (code, said) = program(&["key", "cert", "--ca", "--key", &key, "--to", &key_ca]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = set(&["--node-ca", &format!("{key_ca}.pem")]);
    assert!(code == Some(3) && said.contains("wrong CA"), "{said}");
    let (code, said) = set(&["--node-ca", &key]);
    assert!(
        code == Some(2) && said.contains("--node-ca") && said.contains("CERTIFICATE"),
        "{said}"
    );
    // Others may have a certificate of such a CA, for other names.
    let port = node.client.port();
    let get =
        ["get", "a", "--connect", &format!("localhost:{port}"), "--key", &key, "--node-ca", &ca];
    let (code, said) = program(&get);
    assert!(code == Some(3) && said.contains("wrong name"), "{said}");
    let by_environment = |name: &str| {
        let mut get = Command::new(PROGRAM);
        get.args(["get", "a", "--connect", &address]).env("DISTKV_KEY", &key).env(name, &ca);
        get.output().unwrap()
    };
    assert!(!by_environment("DISTKV_OTHER").status.success());
    assert_eq!(by_environment("DISTKV_NODE_CA").stdout, b"5\n");
}

#[test]
fn tickets_that_the_node_makes_have_the_ca_that_was_named_and_users_need_none_of_the_key() {
    let keys = Keys::new();
    let (node, key, ca) = with_own_ca(&keys);
    let (address, ticket, secret) =
        (node.client.to_string(), keys.path("ticket"), keys.path("secret"));
    let by_key = ["--connect", &address, "--key", &key, "--node-ca", &ca];
    let as_admin = |arguments: &[&str]| {
        let (code, said) = program(&[arguments, &by_key].concat());
        assert_eq!(code, Some(0), "{said}");
    };
    as_admin(&["user", "add", "panel", "--method", "token", "--acl", "*"]);
    as_admin(&["user", "ticket", "panel", "--to", &ticket]);
    as_admin(&["user", "add", "joe", "--acl", "*", "--new-secret-file", &secret]);
    let ticket = format!("@{ticket}");
    let (code, said) = program(&["set", "a", "5", "--ticket", &ticket]);
    assert_eq!(code, Some(0), "{said}");
    let as_joe = ["--user", "joe", "--secret-file", &secret, "--connect", &address];
    let (code, said) = program(&[&["get", "a", "--node-ca", &ca][..], &as_joe].concat());
    assert!(code == Some(0) && said == "5\n", "{said}");
    let (code, said) = program(&["get", "a", "--ticket", &ticket, "--node-ca", &ca]);
    assert!(code == Some(2) && said.contains("cannot be used with"), "{said}");
    let (code, said) = program(&["--ticket", &ticket, "get", "a", "--node-ca", &ca]);
    assert!(code == Some(2) && said.contains("--node-ca"), "{said}");
}

//! Nodes with a key file and a certificate of a CA of the operator's own: commands are told by which CA they are known.

use std::process::Command;

use super::{Keys, program};
use crate::processes::{NodeProcess, PROGRAM};

/// A key file; the certificate of another CA for this name, and its key; and the CA's certificate.
fn files(keys: &Keys, name: &str) -> [String; 4] {
    let ((key, _), (other, _)) = (keys.make("key"), keys.make("other"));
    let (own, ca) = (keys.path("own"), keys.path("ca"));
    for made in [&["--server", name, "--to", &own][..], &["--ca", "--to", &ca]] {
        let (code, said) = program(&[&["key", "cert", "--key", &other], made].concat());
        assert_eq!(code, Some(0), "{said}");
    }
    [key, format!("{own}.pem"), format!("{own}.key"), format!("{ca}.pem")]
}

/// A node with a key file, and a certificate of another CA for 127.0.0.1; the key file, and the CA's certificate.
fn with_own_ca(keys: &Keys) -> (NodeProcess, String, String) {
    let [key, cert, secret, ca] = files(keys, "127.0.0.1");
    let node = keys.run("a", &["--key", &key, "--cert", &cert, "--cert-key", &secret]);
    (node, key, ca)
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
fn a_ca_that_can_be_read_only_once_is_enough_for_commands_that_connect_twice() {
    let keys = Keys::new();
    let (node, key, ca) = with_own_ca(&keys);
    for command in ["top --once --timeout 60s", "conflicts --all", "ls"] {
        let script = format!(
            "{PROGRAM} {command} --connect {} --key {key} --node-ca <(cat {ca})",
            node.client
        );
        let done = Command::new("bash").args(["-c", &script]).output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{command}: {done:?}");
        assert!(!String::from_utf8_lossy(&done.stdout).contains("no answer"), "{done:?}");
    }
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
    for both in [
        ["get", "a", "--ticket", &ticket, "--node-ca", &ca],
        ["get", "a", "--node-ca", &ca, "--ticket", &ticket],
        ["--ticket", &ticket, "get", "a", "--node-ca", &ca],
    ] {
        let (code, said) = program(&both);
        let why = "a ticket says itself by which CA the nodes are known";
        assert!(code == Some(2) && said.contains("--node-ca") && said.contains(why), "{said}");
    }
}

#[test]
fn nodes_that_have_certificates_for_names_only_are_reached_by_the_names_that_they_advertise() {
    let keys = Keys::new();
    let [key, cert, secret, ca] = files(&keys, "localhost");
    let own = ["--gossip", "127.0.0.1:0", "--key", &key, "--cert", &cert, "--cert-key", &secret];
    let start = |name: &str, first: &[&str], options: &[&str]| {
        NodeProcess::start_in(&keys.network, name, &[first, &own, options].concat())
    };
    for (options, is_reached) in [
        (&["--client", "0.0.0.0:0"][..], false),
        // A node that listens at all addresses takes the host that it tells peers.
        (&["--client", "0.0.0.0:0", "--advertise", "localhost"], true),
        (&["--client", "127.0.0.1:0", "--advertise-client", "localhost"], true),
    ] {
        let n1 = start("n1", &["run", "--peer-wait", "0s"], options);
        let n2 = start("n2", &["join", &n1.gossip.to_string()], options);
        let at = format!("localhost:{}", n1.client.port());
        let by_key = ["--connect", &at, "--key", &key, "--node-ca", &ca];
        let run = |arguments: &[&str]| program(&[arguments, &by_key].concat());
        let (code, said) = run(&["wait", "--members", "2"]);
        assert_eq!(code, Some(0), "{said} {:#?}", n2.log());
        let advice = "--advertise-client NAME";
        let (code, said) = run(&["conflicts", "--all"]);
        let is_told = said.contains("n2 is left out") && said.contains("wrong name");
        assert_eq!((code, is_told), (Some(i32::from(!is_reached)), !is_reached), "{said}");
        assert_eq!(said.contains(advice), !is_reached, "{said}");
        let (code, said) = run(&["top", "--once", "--timeout", "60s"]);
        assert_eq!((code, said.contains("no answer")), (Some(0), !is_reached), "{said}");
        let is_told = said.contains("n2: cannot get into") && said.contains("wrong name");
        assert_eq!((is_told, said.contains(advice)), (!is_reached, !is_reached), "{said}");
        let (code, said) = run(&["top", "--once", "--json", "--timeout", "60s"]);
        assert_eq!((code, said.contains("\"why\":\"cannot get into")), (Some(0), !is_reached));
    }
}

//! Another cluster key while the network is cut in two: nothing is used before both sides have it, and the same
//! command goes on when the cable is back.

use std::process::{Command, Stdio};

use rmpv::Value;

use super::cluster::{Cluster, check_own_paths, start_node};
use super::hosts::{Hosts, client_addr, inside_own_network};
use crate::processes::{NodeProcess, PROGRAM, field};

/// Runs `key …`: the exit code, and all that it said.
fn key(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(PROGRAM);
    let output = command.arg("key").args(arguments).stdin(Stdio::null()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

/// How many keys a file has, and the one that is marked.
fn keys_of(file: &str) -> (usize, String) {
    let text = std::fs::read_to_string(file).unwrap();
    let keys: Vec<&str> = text.lines().filter(|line| line.starts_with("key ")).collect();
    let primary = keys.iter().find(|line| line.contains(" primary")).unwrap();
    (keys.len(), primary.split(' ').nth(1).unwrap().to_owned())
}

#[test]
fn a_key_is_not_used_before_both_sides_of_a_split_have_it_and_then_no_write_is_lost() {
    let name = test_name!(
        "a_key_is_not_used_before_both_sides_of_a_split_have_it_and_then_no_write_is_lost"
    );
    inside_own_network(name, || {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let files: Vec<String> = (0..4).map(|node| path(&format!("key-{node}"))).collect();
        let (code, said) = key(&["new", "--network", "split", "--to", &files[0]]);
        assert_eq!(code, Some(0), "{said}");
        for file in &files[1..] {
            std::fs::copy(&files[0], file).unwrap();
        }
        let (_, old) = keys_of(&files[0]);

        let hosts = Hosts::new(&[0, 0, 1, 1]);
        let start = |host: usize| {
            let options = ["--key", files[host].as_str(), "--client-plaintext", "0.0.0.0/0"];
            start_node(&hosts, host, &options)
        };
        let nodes: Vec<NodeProcess> = (0..4).map(start).collect();
        let clients = nodes.iter().map(NodeProcess::connect).collect();
        let mut cluster = Cluster { hosts, nodes, clients };
        cluster
            .wait("all are linked and up", |cluster| (0..4).all(|n| cluster.peers(n).len() == 3));
        let rotate = |node: usize, options: &[&str]| {
            let at = client_addr(node).to_string();
            let how = ["--key", &files[node], "--connect", &at];
            key(&[&["rotate"], &how[..], options].concat())
        };

        // A key comes by TLS only: who can listen to this client would have it.
        let secret = Value::Binary(vec![7; 32]);
        let reply = cluster.clients[1].call("key_add", &[("secret", secret)]);
        assert_eq!(field(&reply, "code").unwrap().as_str(), Some("denied"), "{reply}");

        let writers = cluster.write_everywhere();
        cluster.hosts.cut();
        cluster.wait("the other side is down", |cluster| {
            let states = cluster.members(0);
            ["n2", "n3"].iter().all(|name| states.get(*name).is_some_and(|state| state == "down"))
        });
        // Somebody rotates on each side.
        for (node, others) in [(0, ["n2", "n3"]), (3, ["n0", "n1"])] {
            let (code, said) = rotate(node, &["--wait", "1s", "--remove-old"]);
            assert_eq!(code, Some(1), "{said}");
            for other in others {
                assert!(
                    said.contains(&format!("{other} (")) && said.contains("does not have it"),
                    "{said}"
                );
            }
        }
        // The command waits for a second, which may be too short for the node beside it.
        cluster.wait("all have their side's key", |_| files.iter().all(|f| keys_of(f).0 == 2));
        for file in &files {
            assert_eq!(keys_of(file), (2, old.clone()), "both have their own, and use the old one");
        }
        cluster.hosts.mend();
        cluster
            .wait("all are linked and up", |cluster| (0..4).all(|n| cluster.peers(n).len() == 3));
        // Each side's key is handed to the other: the command that ends this must know of both.
        cluster.wait("all have both keys", |_| files.iter().all(|file| keys_of(file).0 == 3));
        // The rings of the two sides have the keys in different orders. Whoever repeats the command first puts one of them to use,
        // and who does so on the other side puts no other one to use.
        let (code, said) = rotate(0, &["--wait", "60s"]);
        assert_eq!(code, Some(0), "{said}");
        let (_, new) = keys_of(&files[0]);
        assert_ne!(new, old);
        for node in [3, 0] {
            let (code, said) = rotate(node, &["--wait", "60s"]);
            let told = format!("all nodes use key {new}. No other key was made");
            assert!(code == Some(0) && said.contains(&told), "{node}: {said}");
        }
        let (code, said) = rotate(3, &["--wait", "60s", "--remove-old"]);
        assert_eq!(code, Some(0), "{said}");
        let (written, count) = writers.stop();
        cluster.wait("every file has the new key alone", |_| {
            files.iter().all(|file| keys_of(file) == (1, new.clone()))
        });
        cluster.wait("all are equal", Cluster::is_equal);
        check_own_paths(&cluster.equal_tree(), &written);
        println!("{count} writes across the split and the rotation, none failed, none lost");
    });
}

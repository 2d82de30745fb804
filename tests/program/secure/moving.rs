//! A running open network moves to a key, node by node, and goes on meanwhile.

use std::net::SocketAddr;

use super::{Keys, links, program, up, wait_for_links, wait_for_log};
use crate::processes::{NodeProcess, field, wait_until};

/// Restarts a node where it was, with these options.
fn restart(keys: &Keys, node: &mut NodeProcess, peers: [SocketAddr; 2], options: &[&str]) {
    node.signal("TERM");
    assert!(node.wait().success(), "{:#?}", node.log());
    let (client, gossip) = (node.client.to_string(), node.gossip.to_string());
    let peers = peers.map(|peer| peer.to_string());
    let own = ["join", &peers[0], &peers[1], "--client", &client, "--gossip", &gossip];
    let arguments = [&own[..], options].concat();
    *node = NodeProcess::start_in(&keys.network, &node.name.clone(), &arguments);
}

/// Writes at a node, and counts what it has acknowledged.
fn write(node: &NodeProcess, written: &mut i64, count: i64) {
    let mut client = node.connect();
    for _ in 0..count {
        let reply = client.set(&["kept", &written.to_string()], (*written).into());
        assert!(field(&reply, "error").is_none(), "{reply}");
        *written += 1;
    }
}

/// Restarts all three, one after the other; the next one takes writes meanwhile.
fn restart_all(keys: &Keys, nodes: &mut [NodeProcess; 3], written: &mut i64, options: &[&str]) {
    for place in 0..3 {
        let gossip = nodes.each_ref().map(|node| node.gossip);
        let peers = [gossip[(place + 1) % 3], gossip[(place + 2) % 3]];
        let mut client = nodes[(place + 1) % 3].connect();
        let name = nodes[place].name.clone();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let first = *written;
                for number in first..first + 100 {
                    let reply = client.set(&["kept", &number.to_string()], number.into());
                    assert!(field(&reply, "error").is_none(), "{reply}");
                }
                *written += 100;
            });
            restart(keys, &mut nodes[place], peers, options);
            writer.join().unwrap();
        });
        wait_until(&format!("{name} is linked and up again"), || {
            let others = |node: &NodeProcess| links(node).len() == 2 && up(node).len() == 2;
            nodes.iter().all(others).then_some(())
        });
    }
}

#[test]
fn an_open_network_moves_to_a_key_node_by_node_without_a_stop() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let a = keys.run("a", &[]);
    let b = keys.join("b", &a, &[]);
    let c = keys.join("c", &a, &[]);
    let mut nodes = [a, b, c];
    wait_for_links(&nodes.each_ref(), false);
    let mut written = 0;
    write(&nodes[0], &mut written, 50);

    let moving = ["--key", &key, "--plaintext-peers"];
    restart_all(&keys, &mut nodes, &mut written, &moving);
    for node in &nodes {
        wait_for_log(node, &["WARN", "--plaintext-peers", "nothing is protected yet"]);
    }
    wait_for_links(&nodes.each_ref(), true);

    restart_all(&keys, &mut nodes, &mut written, &["--key", &key]);
    wait_for_links(&nodes.each_ref(), true);
    write(&nodes[1], &mut written, 50);

    assert_eq!(written, 700);
    for node in &nodes {
        wait_until(&format!("{} has all", node.name), || {
            let tree = node.connect().tree(&["kept"]);
            let values = tree.iter().filter(|(_, v)| field(v, "value").is_some_and(|v| v.is_i64()));
            (values.count() == 700).then_some(())
        });
    }
    // Now nobody gets in without the key.
    let (code, said) = keys.refused(&nodes[0], &["--network", &keys.network]);
    assert_eq!(code, Some(3), "{said}");
}

#[test]
fn who_uses_the_key_too_soon_is_told_that_the_network_is_still_moving() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let node = keys.run("a", &["--key", &key, "--plaintext-peers"]);
    let connect = node.client.to_string();
    let (code, said) = program(&["members", "--key", &key, "--connect", &connect]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("it has none (--key), or") && said.contains("still moving"), "{said}");
    let (code, said) = program(&["members", "--connect", &connect]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_ticket_without_a_ca_is_said_to_end_with_the_move_and_one_with_the_ca_works_before_and_after_it()
 {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let data = keys.path("data");
    let data = ["--data-dir", &data];
    let moving = ["--key", &key, "--plaintext-peers"];
    let mut node = keys.run("a", &[&moving[..], &data].concat());
    let connect = node.client.to_string();
    let (code, said) =
        program(&["user", "add", "prog", "--method", "token", "--connect", &connect]);
    assert_eq!(code, Some(0), "{said}");
    let (bare, good) = (keys.path("bare"), keys.path("good"));
    let ticket = |to: &str, more: &[&str]| {
        let new = ["user", "ticket", "prog", "--to", to, "--connect", &connect];
        let (code, said) = program(&[&new[..], more].concat());
        assert_eq!(code, Some(0), "{said}");
        said
    };
    // On the node's own machine, plain text stays.
    assert!(!ticket(&bare, &["--force"]).contains("--node-ca"));
    let said = ticket(&bare, &["--force", "--address", "n1.example.org"]);
    let words = ["without a CA", "takes other machines by TLS only", "--node-ca", "key cert --ca"];
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
    let (code, said) = program(&["key", "cert", "--ca", "--key", &key, "--to", &keys.path("ca")]);
    assert_eq!(code, Some(0), "{said}");
    let said = ticket(&good, &["--node-ca", &keys.path("ca.pem")]);
    assert!(!said.contains("without a CA"), "{said}");
    let (code, said) = program(&["set", "a", "1", "--ticket", &format!("@{good}")]);
    assert_eq!(code, Some(0), "{said}");
    node.signal("TERM");
    assert!(node.wait().success(), "{:#?}", node.log());
    let at =
        [&["run", "--peer-wait", "0s", "--client", &connect, "--key", &key][..], &data].concat();
    let _node = NodeProcess::start_in(&keys.network, "a", &at);
    let (code, said) = program(&["whoami", "--ticket", &format!("@{good}")]);
    assert!(code == Some(0) && said.contains("prog (token)"), "{said}");
}

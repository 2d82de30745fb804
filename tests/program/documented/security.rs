//! The guide to security (docs/security.md): a new network, an old one that moves to a key, and what is done after a loss.

use super::stage::{Row, down, follow, hidden, hidden_up, run, run_to, up};

const N1: &str = "node n1 of network plant";

pub const ROWS: &[Row] = &[
    // A new network.
    run(0, "distkv-node key new --network plant --to key", &[" of network plant is in key\n"]),
    hidden(0, "rm -f joe.secret other.secret new.secret ca.pem"),
    up(
        0,
        "distkv-node run --key key --name n1 --client 0.0.0.0:27586 --gossip 0.0.0.0:27587 \
         --cert-name n1.example.org --audit audit.log --http 0.0.0.0:27585",
        N1,
    ),
    up(
        1,
        "distkv-node join n1.example.org --key key --name n2 --client 0.0.0.0:27586 --gossip 0.0.0.0:27587 \
         --cert-name n2.example.org",
        "node n2 of network plant",
    ),
    run(0, "distkv-node acl set plant-floor : xen", &[": allows xen"]),
    run(0, "distkv-node acl set plant-floor site xen", &["plant-floor: site allows xen"]),
    run(0, "distkv-node acl set plant-floor 'site.#' rwcdxen", &["allows rwcdxen"]),
    run(0, "distkv-node user add joe --acl plant-floor --new-secret-file joe.secret", &["joe"]),
    run(0, "distkv-node user add panel --method token --acl plant-floor", &["panel (token) added"]),
    run(
        0,
        "distkv-node user ticket panel --to panel.ticket --address n1.example.org --address n2.example.org",
        &["the ticket with a new secret is in panel.ticket"],
    ),
    hidden(0, "test $(stat -c %a panel.ticket) = 600"),
    hidden(0, "distkv-node ticket show @panel.ticket | grep 'network      plant'"),
    run(0, "distkv-node set site.lamp true --ticket @panel.ticket", &["site.lamp: set"]),
    // By HTTP, from another machine.
    run(0, "distkv-node key cert --ca --key key", &["the certificate of the CA is in ca.pem"]),
    run(2, "curl --cacert ca.pem https://n1.example.org:27585/readyz", &["serving: ok"]),
    run(
        2,
        "curl --cacert ca.pem -H \"Authorization: Bearer $(cat panel.ticket)\" https://n1.example.org:27585/v1/kv/site/lamp",
        &["true"],
    ),
    hidden(
        2,
        "test $(curl -s -o /dev/null -w '%{http_code}' --cacert ca.pem https://n1.example.org:27585/v1/kv/site/lamp) = 401",
    ),
    hidden(2, "curl -s http://n1.example.org:27585/readyz | grep 'ask by https'"),
    // From a machine without a node.
    hidden(2, "distkv-node get site.lamp --ticket @panel.ticket | grep true"),
    hidden(2, "distkv-node whoami --ticket @panel.ticket | grep 'panel (token)'"),
    follow(
        2,
        "distkv-node tunnel --ticket @panel.ticket",
        "tunnel at 127.0.0.1:27586 to n1.example.org",
    ),
    follow(
        2,
        "distkv-node tunnel --key key --connect n1.example.org",
        "tunnel at 127.0.0.1:27586 to n1.example.org",
    ),
    run_to(
        2,
        "distkv-node get site.lamp --connect n2.example.org --user nobody --secret-file joe.secret",
        &[3],
        &["there is no user \"nobody\""],
    ),
    // In plain text, nobody from another machine gets anywhere.
    hidden(2, "! env -u DISTKV_KEY distkv-node get site.lamp --connect n2.example.org"),
    // A stolen password.
    run(
        0,
        "distkv-node user password joe --new-secret-file other.secret --disconnect",
        &["joe (password) has a new password; its open connections are ended"],
    ),
    hidden(0, "cp panel.ticket stolen.ticket"),
    run(
        0,
        "distkv-node user ticket panel --to panel.ticket --force --disconnect --address n1.example.org \
         --address n2.example.org",
        &["the ticket with a new secret is in panel.ticket; its open connections are ended"],
    ),
    hidden(2, "distkv-node get site.lamp --ticket @panel.ticket"),
    hidden(2, "! distkv-node get site.lamp --ticket @stolen.ticket"),
    // A lost laptop.
    hidden(0, "cp panel.ticket lost.ticket"),
    run(0, "distkv-node user remove panel", &["panel (token) is removed"]),
    run(0, "distkv-node user add panel --method token --acl plant-floor", &["panel (token) added"]),
    run(
        0,
        "distkv-node user ticket panel --to panel.ticket --force --address n1.example.org --address n2.example.org",
        &["the ticket with a new secret is in panel.ticket"],
    ),
    run(0, "distkv-node user remove joe", &["joe (password) is removed"]),
    run(0, "distkv-node user add joe --acl plant-floor --new-secret-file new.secret", &["joe"]),
    hidden(2, "distkv-node get site.lamp --ticket @panel.ticket"),
    hidden(2, "! distkv-node get site.lamp --ticket @lost.ticket"),
    hidden(
        0,
        "for try in $(seq 100); do grep '\"user\":\"panel\"' audit.log && exit 0; sleep 0.1; done; exit 1",
    ),
    // Tickets for others, from the key file.
    run(2, "distkv-node ticket new n1.example.org --key key", &["distkv1."]),
    hidden(0, "distkv-node user add robot --method token --acl '*'"),
    run(0, "distkv-node user ticket robot --to robot.ticket", &["is in robot.ticket"]),
    run(
        0,
        "distkv-node user ticket robot --to robot.ticket --force --address n1.example.org --address n2.example.org",
        &["is in robot.ticket"],
    ),
    run(
        0,
        "distkv-node user ticket robot --to robot.ticket --force --disconnect",
        &["is in robot.ticket; its open connections are ended"],
    ),
    // A stolen key, and a rotation.
    run(0, "distkv-node key new --network plant --to new-key", &["is in new-key\n"]),
    run(0, "distkv-node key add key", &["is added"]),
    run(0, "distkv-node key list key", &["plant"]),
    down(1),
    down(0),
    // An old network, of two nodes, that moves to a key.
    run(0, "distkv-node key new --network distkv --to moving.key", &["network distkv"]),
    hidden_up(0, "distkv-node run --insecure --name n1 --gossip 0.0.0.0:27587", "node n1 of"),
    hidden_up(
        1,
        "distkv-node join n1.example.org --insecure --name n2 --gossip 0.0.0.0:27587",
        "node n2 of",
    ),
    hidden(1, "distkv-node set site.lamp true"),
    down(0),
    up(
        0,
        "distkv-node join n2.example.org --key moving.key --plaintext-peers --name n1 --client 0.0.0.0:27586 \
         --gossip 0.0.0.0:27587 --cert-name n1.example.org",
        "node n1 of network distkv",
    ),
    hidden(0, "distkv-node get site.lamp | grep true"),
    hidden(0, "! distkv-node members | grep 'n2 .* secured'"),
    down(1),
    hidden_up(
        1,
        "distkv-node join n1.example.org --key moving.key --plaintext-peers --name n2 --gossip 0.0.0.0:27587",
        "node n2 of",
    ),
    run(0, "distkv-node members", &["secured"]),
    hidden(0, "rm ca.pem"),
    run(0, "distkv-node key cert --ca --key moving.key", &["is in ca.pem"]),
    hidden(0, "distkv-node acl set plant-floor 'site.#' rwcdxen"),
    // Said before.
    hidden(0, "distkv-node user add panel --method token --acl plant-floor"),
    hidden(
        0,
        "distkv-node user ticket panel --to bare.ticket --address n1.example.org | grep 'without --plaintext-peers'",
    ),
    run(
        0,
        "distkv-node user ticket panel --to moved.ticket --node-ca ca.pem --address n1.example.org \
         --address n2.example.org",
        &["the ticket with a new secret is in moved.ticket\n"],
    ),
    hidden(2, "distkv-node get site.lamp --ticket @moved.ticket | grep true"),
    run(0, "distkv-node auth on token --grace 1h", &["those without a login go on"]),
    run(0, "distkv-node auth", &["clients must log in (method token)", "served until then"]),
    hidden(1, "distkv-node get site.lamp | grep true"),
    down(0),
    up(
        0,
        "distkv-node join n2.example.org --key moving.key --name n1 --client 0.0.0.0:27586 --gossip 0.0.0.0:27587 \
         --cert-name n1.example.org",
        "node n1 of network distkv",
    ),
    hidden(0, "! distkv-node get site.lamp"),
    hidden(0, "distkv-node get site.lamp --key moving.key | grep true"),
    hidden(2, "distkv-node get site.lamp --ticket @moved.ticket | grep true"),
    hidden(2, "distkv-node whoami --ticket @moved.ticket | grep 'panel (token)'"),
];

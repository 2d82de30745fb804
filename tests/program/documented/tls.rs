//! TLS for clients: docs/keys-and-users.md, and the examples of `ticket` and `tunnel`.

use super::stage::{Row, follow, hidden, run, up};

pub const ROWS: &[Row] = &[
    up(
        0,
        "distkv-node run --name n1 --client 0.0.0.0:27586 --gossip 0.0.0.0:27587 \
         --cert node.pem --cert-key node.key --insecure",
        "node n1 of network distkv",
    ),
    // On its own machine a node takes plain text.
    hidden(0, "distkv-node set site.lamp true"),
    // joe as docs/keys-and-users.md makes him, with a password.
    hidden(0, "distkv-node acl set lamps 'site.#' rwcdxen && distkv-node acl set lamps site xen"),
    hidden(0, "distkv-node user add joe --acl lamps --new-secret-file joe.secret"),
    hidden(0, "distkv-node user add boss --new-secret-file boss.secret"),
    hidden(0, "distkv-node auth on password"),
    hidden(1, "distkv-node ticket new n1.example.org --ca ca.pem > bare.ticket"),
    hidden(1, "! distkv-node get site.lamp --ticket @bare.ticket"),
    hidden(1, "distkv-node ticket show @bare.ticket | grep 'network      not named'"),
    run(
        1,
        "distkv-node ticket new n1.example.org n2.example.org --ca ca.pem \
         --user joe --secret joe.secret --to joe.ticket",
        &["the ticket is in joe.ticket"],
    ),
    hidden(1, "rm joe.ticket"),
    run(
        1,
        "distkv-node ticket new n1.example.org n2.example.org --ca ca.pem \
         --user joe --method password --secret joe.secret --to joe.ticket",
        &["the ticket is in joe.ticket"],
    ),
    hidden(1, "test $(stat -c %a joe.ticket) = 600"),
    run(1, "distkv-node ticket show @joe.ticket", &["joe", "n1.example.org:27586"]),
    run(1, "distkv-node get site.lamp --ticket @joe.ticket", &["true"]),
    follow(
        1,
        "distkv-node tunnel --ticket @joe.ticket",
        "tunnel at 127.0.0.1:27586 to n1.example.org",
    ),
    follow(
        1,
        "distkv-node tunnel --ticket @joe.ticket --listen 127.0.0.1:27600",
        "tunnel at 127.0.0.1:27600 to n1.example.org",
    ),
    run(
        1,
        "distkv-node ticket new n1.example.org --ca ca.pem --to all.ticket",
        &["the ticket is in all.ticket"],
    ),
    run(
        1,
        "distkv-node ticket new 10.0.0.1 10.0.0.2:27600 --ca ca.pem \
         --user joe --method password --secret joe.secret",
        &["distkv1."],
    ),
    run(
        1,
        "distkv-node ticket new n1.example.org --ca ca.pem --cert joe.pem --cert-key joe.key",
        &["distkv1."],
    ),
];

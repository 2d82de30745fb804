//! docs/operating.md, "As a service", scheduled snapshots, and the help of `start` and `config`.

use super::stage::{Row, down, follow, hidden, hidden_up, parse, run};

const N1: &str = "node n1 of network distkv";

pub const ROWS: &[Row] = &[
    hidden(
        0,
        "printf 'name = \"n1\"\nfound = true\ndata-dir = \"/var/lib/distkv/data\"\n' > node.toml",
    ),
    run(0, "distkv-node config check node.toml", &["node.toml: a node would start with it"]),
    run(0, "distkv-node config check node.toml --json", &["\"ok\":true"]),
    follow(0, "distkv-node start --config node.toml", N1),
    // packaging/test-deb.sh has that file.
    parse("distkv-node config check"),
    parse("distkv-node config check /etc/distkv/node.toml"),
    parse("distkv-node start --config /etc/distkv/node.toml"),
    follow(0, "distkv-node start --name n1 --data-dir /var/lib/distkv/n1 --found", N1),
    follow(
        0,
        "distkv-node run --name n1 --data-dir /var/lib/distkv/n1 \
         --snapshot-schedule 'daily 03:00' --snapshot-dir /var/lib/distkv/backup",
        "a scheduled snapshot was made and verified",
    ),
    hidden(0, "distkv-node snapshot verify /var/lib/distkv/backup/n1-*.dkv"),
    hidden(0, "distkv-node key new --network plant --to key"),
    hidden_up(0, "distkv-node run --key key --name n1 --gossip 0.0.0.0:27587", "of network plant"),
    follow(
        1,
        "distkv-node start --name n2 --data-dir /var/lib/distkv/n2 --peer n1.example.org --key key \
         --gossip 0.0.0.0:27587",
        "node n2 of network plant",
    ),
    down(0),
];

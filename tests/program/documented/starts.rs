//! How nodes are started: the examples of `run` and `join`, and of the whole program's help.

use super::stage::{Row, down, follow, hidden, hidden_up, up};

const N1: &str = "node n1 of network distkv";
const N2: &str = "node n2 of network distkv";

pub const ROWS: &[Row] = &[
    follow(0, "distkv-node run --name n1", N1),
    follow(0, "distkv-node run --name n1 --init '{\"site\": \"main\"}' --load saved-state.bin", N1),
    follow(0, "distkv-node run --load saved-state.bin", "of network distkv"),
    follow(0, "distkv-node run --name n1 --peer n2.example.org --peer-file peers.txt", N1),
    follow(0, "distkv-node run --name n1 --data-dir /var/lib/distkv/n1", N1),
    hidden(0, "test -f /var/lib/distkv/n1/log-1.dkv"),
    // A cluster as the program's own help begins one.
    up(0, "distkv-node run  --name n1 --gossip 0.0.0.0:27587", N1),
    up(1, "distkv-node join --name n2 --gossip 0.0.0.0:27587 n1.example.org", N2),
    up(
        2,
        "distkv-node join --name n3 --gossip 0.0.0.0:27587 n1.example.org",
        "node n3 of network distkv",
    ),
    hidden(1, "distkv-node wait --members 3"),
    down(1),
    follow(
        1,
        "distkv-node join n1.example.org n3.example.org:27587 --gossip 0.0.0.0:27587",
        "of network distkv",
    ),
    down(2),
    // Another address of n1.
    follow(1, "distkv-node join 10.0.0.1 --name n2 --gossip 0.0.0.0:27587", N2),
    follow(
        1,
        "distkv-node join n1.example.org --name n2 --gossip 0.0.0.0:27587 \
         --data-dir /var/lib/distkv/n2",
        N2,
    ),
    hidden(1, "test -f /var/lib/distkv/n2/log-1.dkv"),
    down(0),
    hidden_up(0, "distkv-node run --name n1 --client 127.0.0.1:27586", N1),
    follow(
        0,
        "distkv-node join 127.0.0.1 --name n2 --client 127.0.0.1:27596 --gossip 127.0.0.1:27597",
        "node n2 of network distkv: clients at 127.0.0.1:27596",
    ),
    down(0),
    follow(0, "distkv-node run --name n1 --client 0.0.0.0:27586 --gossip 0.0.0.0:27587", N1),
];

//! How nodes are started: the examples of `run` and `join`, and of the whole program's help.

use super::stage::{Row, down, follow, hidden, hidden_up, run, up};

const N1: &str = "node n1 of network distkv";
const N2: &str = "node n2 of network distkv";
/// With the key file.
const PLANT_1: &str = "node n1 of network plant";
const PLANT_2: &str = "node n2 of network plant";

pub const ROWS: &[Row] = &[
    follow(0, "distkv-node run --name n1", N1),
    follow(0, "distkv-node run --name n1 --init '{\"site\": \"main\"}' --load saved-state.bin", N1),
    follow(0, "distkv-node run --load saved-state.bin", "of network distkv"),
    follow(0, "distkv-node run --name n1 --peer n2.example.org --peer-file peers.txt", N1),
    follow(0, "distkv-node run --name n1 --data-dir /var/lib/distkv/n1", N1),
    hidden(0, "test -f /var/lib/distkv/n1/log-1.dkv"),
    // Key files, with keys whose ids the help has.
    run(0, "distkv-node key new --network plant --to key", &[" of network plant is in key\n"]),
    run(0, "distkv-node key new --network plant --to new-key --force", &["is in new-key\n"]),
    run(0, "distkv-node key list key", &["plant", " yes\n"]),
    run(0, "distkv-node key add key", &["is added; a running node reads the file at SIGHUP"]),
    hidden(
        0,
        "secret() { printf \"$1%.0s\" $(seq 32); }; \
         printf 'network plant\\nkey 4db59c1b %s primary\\nkey 2ab3cf64 %s\\n' \
         $(secret ab) $(secret cd) > key",
    ),
    run(0, "distkv-node key use 2ab3cf64 key", &["key 2ab3cf64 is in use"]),
    run(0, "distkv-node key remove 4db59c1b key", &["key 4db59c1b is removed"]),
    // A cluster as the program's own help begins one.
    up(0, "distkv-node run  --key key --name n1 --gossip 0.0.0.0:27587", PLANT_1),
    up(1, "distkv-node join --key key --name n2 --gossip 0.0.0.0:27587 n1.example.org", PLANT_2),
    up(
        2,
        "distkv-node join --key key --name n3 --gossip 0.0.0.0:27587 n1.example.org",
        "node n3 of network plant",
    ),
    hidden(1, "distkv-node wait --members 3"),
    down(1),
    follow(
        1,
        "distkv-node join n1.example.org n3.example.org:27587 --key key --gossip 0.0.0.0:27587",
        "of network plant",
    ),
    down(2),
    // Another address of n1.
    follow(1, "distkv-node join 10.0.0.1 --key key --name n2 --gossip 0.0.0.0:27587", PLANT_2),
    follow(
        1,
        "distkv-node join n1.example.org --key key --name n2 --gossip 0.0.0.0:27587 \
         --data-dir /var/lib/distkv/n2",
        PLANT_2,
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
    follow(0, "distkv-node run --key key --name n1 --gossip 0.0.0.0:27587", PLANT_1),
    follow(0, "distkv-node run --insecure --name n1 --gossip 0.0.0.0:27587", N1),
];

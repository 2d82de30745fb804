//! The keys of a running network, and certificates: the examples of `key`.

use super::stage::{Row, hidden, hidden_up, run};

pub const ROWS: &[Row] = &[
    // A key file with keys whose ids the help has.
    hidden(0, "distkv-node key new --network plant --to key"),
    hidden(
        0,
        "secret() { printf \"$1%.0s\" $(seq 32); }; \
         sed -i \"s/^key .*/key 4db59c1b $(secret ab) primary\\nkey 2ab3cf64 $(secret cd)/\" key",
    ),
    // Others are there, for the examples of `ticket`.
    hidden(0, "rm -f joe.pem joe.key ca.pem"),
    run(0, "distkv-node key cert joe --key key", &["joe.pem, its private key in joe.key"]),
    run(0, "distkv-node key cert joe --key key --days 30 --to joe-2", &["joe-2.pem"]),
    run(
        0,
        "distkv-node key cert --server lb.example.org --server 10.0.0.9 --key key",
        &["of lb.example.org is in lb.example.org.pem"],
    ),
    run(0, "distkv-node key cert --ca --key key", &["is in ca.pem"]),
    hidden_up(
        0,
        "distkv-node run --key key --name n1 --client 0.0.0.0:27586 --gossip 0.0.0.0:27587",
        "node n1 of network plant",
    ),
    hidden_up(
        1,
        "distkv-node join --key key --name n2 --client 0.0.0.0:27586 --gossip 0.0.0.0:27587 n1",
        "node n2 of network plant",
    ),
    hidden(
        0,
        "for i in $(seq 300); do distkv-node key list --key key | grep -c 4db59c1b | grep -q 2 && exit; \
         sleep 0.1; done; exit 1",
    ),
    hidden(0, "distkv-node wait --members 2 --key key"),
    run(0, "distkv-node key list --key key", &["n1    self", "n2    up", "4db59c1b  2ab3cf64"]),
    run(0, "distkv-node key list --key key --connect n1.example.org", &["n2    up"]),
    run(0, "distkv-node key list --key key --json", &["\"primary\":\"4db59c1b\""]),
    run(0, "distkv-node key use 2ab3cf64 --key key", &["key 2ab3cf64 is in use"]),
    hidden(
        0,
        "for i in $(seq 300); do distkv-node key list --key key --json | \
         grep -c '\"primary\":\"2ab3cf64\"' | grep -q 2 && exit; sleep 0.1; done; exit 1",
    ),
    run(0, "distkv-node key remove 4db59c1b --key key", &["key 4db59c1b is removed"]),
    run(0, "distkv-node key add --key key", &[" is added; `key list` shows which nodes have it"]),
    run(
        0,
        "distkv-node key rotate --key key",
        &["2 of 2 nodes use key", "key remove 2ab3cf64 --key key\n"],
    ),
    run(0, "distkv-node key rotate --key key --wait 5m", &["key remove 2ab3cf64 --key key\n"]),
    run(
        0,
        "distkv-node key rotate --key key --connect n1.example.org --remove-old",
        &["and no other is left"],
    ),
];

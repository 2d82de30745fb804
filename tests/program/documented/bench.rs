//! `distkv-node bench` and `distkv-bench`. What takes minutes is only understood here; `tests/program/cli/bench.rs` measures the same with
//! smaller numbers.

use super::stage::{Row, hidden, hidden_up, parse, run};

pub const ROWS: &[Row] = &[
    hidden_up(
        0,
        "distkv-node run --name n1 --client 0.0.0.0:27586 --gossip 0.0.0.0:27587 --insecure",
        "node n1 of network distkv",
    ),
    hidden_up(
        1,
        "distkv-node join n1 --name n2 --client 0.0.0.0:27586 --gossip 0.0.0.0:27587 --insecure",
        "node n2 of network distkv",
    ),
    hidden(0, "distkv-node set a.b.c 1 --copies 1"),
    run(0, "distkv-bench propagation --connect n1 --watch n2", &["P50"]),
    run(0, "distkv-bench propagation --connect a --watch b", &["P50"]),
    run(0, "distkv-bench --keys 100000 --reads 1 --count 1 --keep", &["PER SECOND"]),
    run(0, "distkv-bench tree --path distkv-bench", &["100000"]),
    run(0, "distkv-bench tree", &["10000"]),
    run(0, "distkv-bench tree --path a.b --runs 20 --json", &["\"run\":20,"]),
    run(0, "distkv-node delete distkv-bench --recursive", &["distkv-bench: 100000 deleted"]),
    run(0, "distkv-bench catch-up 127.0.0.1:27587", &["median"]),
    run(0, "distkv-bench catch-up n1", &["median"]),
    run(0, "distkv-bench catch-up b.example.org --runs 5 --connect a.example.org", &["median"]),
    parse("distkv-node bench"),
    parse("distkv-node bench --depth 16 --reads 1"),
    parse("distkv-node bench --connect n1 --depth 16"),
    parse("distkv-bench"),
    parse("distkv-bench --depth 16 --reads 1"),
    parse("distkv-bench --target a --target b"),
    parse("distkv-node bench --target a --target b"),
    parse("distkv-bench --protocol redis --target 127.0.0.1:6379"),
    parse("distkv-bench propagation --watch b --changes 100000 --json"),
    parse("distkv-bench watchers --count 100"),
    parse("distkv-bench watchers --count 1000 --watch b"),
    parse("distkv-bench echo"),
    parse("distkv-bench echo --depth 16"),
    parse("distkv-bench compare"),
    parse("distkv-bench compare --quick"),
    parse("distkv-bench compare --only requests --with redis"),
    parse("distkv-bench compare --rounds 3 --duration 3s --keys 100000 --markdown"),
    parse("distkv-bench secured"),
    parse("distkv-bench secured --only tls --pairs 9"),
    parse("distkv-bench secured --only open --before path/to/an/older/distkv-node"),
    parse("distkv-bench secured --only strangers --strangers 10000 --duration 10s"),
];

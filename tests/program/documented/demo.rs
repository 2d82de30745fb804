//! README, "Start", and what else is done with three nodes in one process.

use super::stage::{Row, down, follow, hidden, run, up};

pub const ROWS: &[Row] = &[
    up(0, "distkv-node demo", "Ctrl-C stops all nodes."),
    // The page's editor does the same.
    hidden(
        0,
        "token=$(sed -n 's/.*this token: //p' ../output-1); test ${#token} = 64 && \
         curl -s -X PUT -H \"Authorization: Bearer $token\" -d 1 http://127.0.0.1:27608/v1/kv/of.page | grep '\"changed\":true'",
    ),
    hidden(0, "curl -s -X PUT -d 1 http://127.0.0.1:27588/v1/kv/of.page | grep auth_required"),
    run(0, "alias dk=target/release/distkv-node", &[]),
    run(
        0,
        "dk --connect 127.0.0.1:27586 set lamp.kitchen '{\"on\": true}'",
        &["lamp.kitchen: set (n1~"],
    ),
    run(0, "dk --connect 127.0.0.1:27596 get lamp.kitchen", &["\"on\": true"]),
    follow(0, "dk --connect 127.0.0.1:27606 watch lamp --fetch", "(up to date)"),
    run(
        0,
        "distkv-node verify 127.0.0.1:27586 127.0.0.1:27596 --patience 1m",
        &["n1 and n2 are equal"],
    ),
    run(0, "distkv-node leave --connect 127.0.0.1:27596", &["n2 has left"]),
    run(0, "distkv-node leave --for-good --connect 127.0.0.1:27606", &["n3 has left for good"]),
    down(0),
    follow(0, "distkv-node demo --nodes 5 --port 31000", "clients at 127.0.0.1:31040"),
    follow(0, "distkv-node demo --port 0", "Ctrl-C stops all nodes."),
    follow(0, "distkv-node demo --secure", "Ctrl-C stops all nodes, and removes these files."),
];

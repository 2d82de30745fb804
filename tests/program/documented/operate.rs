//! docs/monitoring.md, "Metrics and health".

use super::stage::{Row, down, run, up};

pub const ROWS: &[Row] = &[
    up(0, "distkv-node run --name n1 --http", "HTTP at 127.0.0.1:27585"),
    run(
        0,
        "curl -s http://127.0.0.1:27585/metrics",
        &["distkv_ready 1\n", "distkv_conflicts_total 0\n", "distkv_members{state=\"up\"} 1\n"],
    ),
    run(0, "curl -s http://127.0.0.1:27585/livez", &["timer: ok\n", "membership: ok\n"]),
    run(0, "curl -s http://127.0.0.1:27585/readyz", &["serving: ok\n"]),
    run(
        0,
        "curl -s 'http://127.0.0.1:27585/readyz?write'",
        &["serving: ok\n", "memory: ok\n", "disk: ok\n"],
    ),
    down(0),
];

//! Snapshots, logs and data directories: those of docs/data.md, and of the help, where a node's data
//! directory is `/var/lib/distkv` itself.

use super::stage::{Row, down, follow, hidden, hidden_up, run, run_to, up};

/// Files differ.
const DIFFERENT: &[i32] = &[1];
/// Whether there was a state at a printed time depends on what day it is.
const BY_DATE: &[i32] = &[0, 1];

pub const README: &[Row] = &[
    hidden(0, "distkv-node key new --network plant --to key"),
    up(
        0,
        "distkv-node run  --key key --name n1 --gossip 0.0.0.0:27587 --data-dir /var/lib/distkv/n1",
        "node n1 of network plant",
    ),
    up(
        1,
        "distkv-node join --key key --name n2 --gossip 0.0.0.0:27587 n1.example.org \
         --data-dir /var/lib/distkv/n2 --sync every-batch",
        "node n2 of network plant",
    ),
    hidden_up(
        2,
        "distkv-node join n1 --key key --name n3 --gossip 0.0.0.0:27587 \
         --data-dir /var/lib/distkv/n3",
        "node n3 of network plant",
    ),
    hidden(0, "for n in $(seq 14); do distkv-node set site.lamp $n; done"),
    hidden(0, "distkv-node wait --members 3"),
    run(0, "distkv-node snapshot save --to monday.dkv", &["monday.dkv: ", "(snapshot)"]),
    run(0, "distkv-node snapshot inspect monday.dkv", &["node        n1\n", "site.lamp"]),
    run(0, "distkv-node snapshot verify *.dkv", &["monday.dkv: good"]),
    hidden(0, "distkv-node set site.lamp 15; distkv-node set site.door true"),
    hidden(0, "distkv-node snapshot save --to friday.dkv"),
    run_to(
        0,
        "distkv-node snapshot diff monday.dkv friday.dkv",
        DIFFERENT,
        &["~ site.lamp", "+ site.door"],
    ),
    run(
        0,
        "distkv-node snapshot save --to - --format jsonl | jq -c '{path, value}'",
        &["{\"path\":\"site.lamp\",\"value\":15}\n"],
    ),
    run(0, "distkv-node snapshot restore monday.dkv", &["monday.dkv: "]),
    hidden(0, "test $(distkv-node get site.lamp) = 15"),
    run(0, "distkv-node log inspect /var/lib/distkv/n1", &["past since"]),
    follow(0, "distkv-node log follow /var/lib/distkv/n1", "following"),
    run(
        0,
        "distkv-node log inspect /var/lib/distkv/n1/log-1.dkv --changes --below site",
        &["site.lamp"],
    ),
    run(
        0,
        "distkv-node log replay /var/lib/distkv/n1 --until-tock 12 --to noon.dkv",
        &["noon.dkv: "],
    ),
    run_to(0, "distkv-node snapshot diff noon.dkv /var/lib/distkv/n1", DIFFERENT, &["~ site.lamp"]),
    run(
        0,
        "distkv-node snapshot convert noon.dkv --format jsonl --below site --to - | \
         distkv-node import -",
        &["1 set, 0 unchanged\n"],
    ),
    hidden(0, "test $(distkv-node get site.lamp) != 15"),
    run(0, "distkv-node snapshot save --to back.bin --format distkv", &["back.bin: "]),
    run(
        0,
        "distkv-node snapshot convert monday.dkv --to monday.bin --format distkv",
        &["monday.bin"],
    ),
    run(0, "distkv-node snapshot restore saved-state.bin", &["saved-state.bin: "]),
    // A member that is lost, and forgotten. A lost one is not asked first.
    hidden(
        0,
        "until [ $(distkv-node members --json | jq -s 'map(select(.delete_member)) | length') = 3 ]; \
         do sleep 0.1; done",
    ),
    down(2),
    run(
        0,
        "distkv-node members forget n3",
        &["n3: forgotten; the Delete group goes on without it"],
    ),
    run(
        0,
        "distkv-node members forget n3 --yes",
        &["n3: not in the Delete group; this node does not miss it any more"],
    ),
    // Another network begins with the state of this one.
    run(
        2,
        "distkv-node snapshot restore monday.dkv --into /var/lib/distkv/moved --name n1 \
         --network plant",
        &["/var/lib/distkv/moved: "],
    ),
    up(
        2,
        "distkv-node run --key key --data-dir /var/lib/distkv/moved --name n1",
        "node n1 of network plant",
    ),
    hidden(2, "test $(distkv-node get site.lamp) = 14"),
    hidden(2, "! distkv-node status | grep warning"),
];

pub const HELP: &[Row] = &[
    hidden(0, "mkdir files"),
    hidden_up(
        0,
        "distkv-node run --name n1 --data-dir /var/lib/distkv --client-files files",
        "node n1 of network distkv",
    ),
    hidden(
        0,
        "for n in $(seq 6); do distkv-node set site.lamp $n && distkv-node snapshot save || exit 1; \
         done",
    ),
    hidden(0, "distkv-node set site.lamp 6"),
    run(0, "distkv-node snapshot save", &["snapshot-8.dkv: "]),
    run(0, "distkv-node history site.lamp", &["  set      5 -> 6  (n1~"]),
    run(0, "distkv-node history site.lamp --since 10m", &["  set      5 -> 6  (n1~"]),
    run(0, "distkv-node history site.lamp --json | jq -r '[.time, .event] | @tsv'", &["Z\tn1~"]),
    // This node is too young to remember that moment, and says so.
    run_to(0, "distkv-node undo --below site --at 10m --dry-run", &[1], &["begins at 20"]),
    run_to(0, "distkv-node undo --below site --at 10m", &[1], &["begins at 20"]),
    run_to(0, "distkv-node undo --below site --at '10m ago' --overwrite", &[1], &["begins at 20"]),
    run_to(0, "distkv-node snapshot save --to before.dkv --at 10m", &[1], &["begins at 20"]),
    hidden(0, "cp /var/lib/distkv/{snapshot-6,log-6,log-7}.dkv ."),
    hidden(0, "for n in monday a; do distkv-node snapshot save --to $n.dkv; done"),
    hidden(0, "distkv-node delete site.lamp; distkv-node set site.door true"),
    hidden(0, "for n in friday b; do distkv-node snapshot save --to $n.dkv; done"),
    run(0, "distkv-node snapshot save --to monday.bin --format distkv", &["monday.bin: "]),
    run(0, "distkv-node snapshot save --to - --format jsonl | jq .path", &["\"site.door\"\n"]),
    run(0, "distkv-node snapshot inspect monday.dkv --depth 3 --top 20", &["site.lamp"]),
    run(0, "distkv-node snapshot inspect monday.dkv --json | jq .entries", &["1\n"]),
    run(0, "distkv-node snapshot verify monday.dkv", &["monday.dkv: good"]),
    run(0, "distkv-node snapshot verify /var/lib/distkv", &["log-7.dkv: good"]),
    run_to(
        0,
        "distkv-node snapshot diff monday.dkv friday.dkv --below site --json",
        DIFFERENT,
        &["\"removed\""],
    ),
    run(
        0,
        "distkv-node snapshot diff monday.dkv friday.dkv --json | \
         jq -c 'select(.change == \"removed\") | {path, value: .old}' | distkv-node import -",
        &["1 set, 0 unchanged\n"],
    ),
    hidden(0, "test $(distkv-node get site.lamp) = 6"),
    run(0, "distkv-node snapshot restore a.dkv b.dkv", &["a.dkv: ", "b.dkv: "]),
    hidden(0, "rm monday.bin"),
    run(
        0,
        "distkv-node snapshot convert monday.dkv --format distkv --to monday.bin",
        &["monday.bin: "],
    ),
    run(0, "distkv-node snapshot convert saved-state.bin --to moved.dkv", &["moved.dkv: "]),
    run(0, "distkv-node snapshot convert monday.dkv --format jsonl --to - | jq .value", &["6\n"]),
    run(
        1,
        "distkv-node snapshot restore monday.dkv --into /var/lib/new --name n1",
        &["/var/lib/new: "],
    ),
    follow(1, "distkv-node run --data-dir /var/lib/new --name n1", "node n1 of network distkv"),
    // Logs.
    run(0, "distkv-node log inspect /var/lib/distkv", &["past since"]),
    run(
        0,
        "distkv-node log inspect /var/lib/distkv/log-7.dkv",
        &["event log 7", "node       n1\n"],
    ),
    run(0, "distkv-node log inspect /var/lib/distkv/log-7.dkv --changes", &["site.lamp"]),
    run(0, "distkv-node log inspect /var/lib/distkv/log-7.dkv --changes --below site", &[]),
    run(
        0,
        "distkv-node log inspect /var/lib/distkv/log-7.dkv --changes --since 10m",
        &["site.lamp"],
    ),
    run(
        0,
        "distkv-node log inspect /var/lib/distkv/log-7.dkv --changes --json | jq -r .path | sort | \
         uniq -c",
        &[],
    ),
    follow(0, "distkv-node log follow /var/lib/distkv", "following"),
    follow(0, "distkv-node log follow /var/lib/distkv --below site --json", "following"),
    follow(0, "distkv-node log follow /var/lib/distkv --since 10m", "following"),
    follow(0, "distkv-node log follow /var/lib/distkv/log-7.dkv --all", "following"),
    run_to(
        0,
        "distkv-node log replay /var/lib/distkv --to noon.dkv --until-time 2026-11-20T12:00",
        BY_DATE,
        &[],
    ),
    run(
        0,
        "distkv-node log replay /var/lib/distkv --until-tock 4711 --to then.dkv",
        &["then.dkv: "],
    ),
    run(
        0,
        "distkv-node log replay /var/lib/distkv --until-tock 4711 --to - --format jsonl --below site",
        &["\"site.door\""],
    ),
    run(
        0,
        "distkv-node log replay snapshot-6.dkv log-6.dkv log-7.dkv --to state.dkv",
        &["state.dkv: "],
    ),
    hidden(0, "rm state.dkv"),
    run(0, "distkv-node log replay changes.bin --to state.dkv", &["state.dkv: "]),
    run(0, "distkv-node log replay /var/lib/distkv --into /var/lib/new", &["/var/lib/new: "]),
    run_to(
        0,
        "distkv-node log replay /var/lib/distkv --until-time 2026-11-20 --to - --format jsonl \
         --below site | distkv-node import -",
        BY_DATE,
        &[],
    ),
    run(0, "distkv-node log start audit.dkv", &["audit.dkv"]),
    run(0, "distkv-node log start moving.bin --format distkv --fetch", &["moving.bin"]),
    run(0, "distkv-node log stop", &[]),
];

//! `state`: which changes of which node are known, deleted or missing.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::Value as Json;

use super::resync;
use crate::cli::error::CliError;
use crate::cli::remote::RemoteArgs;
use crate::cli::terminal::output::{Output, Table, json_of, printable};
use crate::client::message::{array_items, as_str, as_u64, map_items};
use crate::client::{Fields, Message};
use crate::model::spelling::LifeRef;

/// The parts that `get_state` has, and how they are shown.
const PARTS: [(&str, &str); 5] = [
    ("present", "PRESENT"),
    ("known", "SUPERSEDED"),
    ("deleted", "DELETED"),
    ("missing", "MISSING"),
    ("remote_missing", "MISSING ELSEWHERE"),
];

/// Longest list of ranges that is shown in a table; --json has all.
const RANGES_SHOWN: usize = 6;

/// Print which changes a node has, and which it still lacks
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node state                    # all of it
  distkv-node state --missing          # only what is missing
  distkv-node state --resync           # whether a split is healing
  distkv-node state --resync --follow  # until it is healed
  distkv-node state --json

Each start of a node begins a new life, which counts its changes 1, 2, 3 …: TICK is the last \
change of that life that is known here. A change is PRESENT (some entry has it), SUPERSEDED \
by a later one, DELETED together with its entry, or MISSING here. In the table, ranges \
include both ends; with --json, [5, 8] is 5, 6 and 7. Retired lives that own no entries are \
hidden unless --over is given.

--follow waits while members are down, goes on while a split heals, and ends when all \
members have been up for a moment and nothing is healing any more. Ctrl-C ends it earlier.")]
pub(in crate::cli) struct StateArgs {
    /// Show changes that stand in an entry
    #[arg(long)]
    present: bool,

    /// Show changes that a later one has superseded
    #[arg(long, visible_alias = "superseded")]
    known: bool,

    /// Show changes whose entries are deleted
    #[arg(long)]
    deleted: bool,

    /// Show changes that this node misses
    #[arg(long)]
    missing: bool,

    /// Show changes that other nodes miss
    #[arg(long)]
    remote_missing: bool,

    /// Also show retired lives of nodes that own no entries
    #[arg(long)]
    over: bool,

    /// Show how the healing of a split goes, instead of changes
    #[arg(long, conflicts_with_all = ["present", "known", "deleted", "missing", "remote_missing", "over"])]
    resync: bool,

    /// Keep showing it until no split is left to heal
    #[arg(long, requires = "resync")]
    follow: bool,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

pub(in crate::cli) async fn run(args: StateArgs) -> Result<(), CliError> {
    if args.resync {
        return resync::run(&args.remote, args.follow).await;
    }
    let asked = [args.present, args.known, args.deleted, args.missing, args.remote_missing];
    let is_all = !asked.contains(&true);
    let parts: Vec<_> =
        PARTS.iter().zip(asked).filter(|(_, is_asked)| is_all || *is_asked).collect();
    let mut fields = Fields::new();
    fields.bool("nodes", true).bool("over", args.over);
    for ((name, _), _) in &parts {
        fields.bool(name, true);
    }
    let remote = args.remote.connect_in_time().await?;
    let reply = remote.request("get_state", &fields).await?;
    let mut output = Output::of_read(args.remote.json);
    if output.json {
        let fields = reply.fields().filter(|(name, _)| *name != "seq");
        let json: Json = fields.map(|(name, value)| (name.to_owned(), json_of(value))).collect();
        output.json_line(json)?;
        return output.flush();
    }
    let columns: Vec<_> = parts.iter().map(|((name, head), _)| (*name, *head)).collect();
    let node = node_name(reply.str("node").unwrap_or("?"));
    let tock = reply.u64("tock").unwrap_or(0);
    output.line(&format!("as {} sees it, at tock {tock}", printable(node)))?;
    match table_of(&reply, &columns, is_all) {
        Some(table) => table.print(&mut output)?,
        None => {
            let heads: Vec<&str> = columns.iter().map(|(_, head)| *head).collect();
            output.line(&format!("{}: none", heads.join(", ")))?;
        }
    }
    output.flush()
}

/// The name of a node, of which `get_state` tells the life.
pub(super) fn node_name(life: &str) -> &str {
    LifeRef::parse(life).map_or(life, |life| life.name)
}

/// One row per life of a node, one column per part. `is_all`: also rows without any changes; none if there is no row.
fn table_of(reply: &Message, columns: &[(&str, &str)], is_all: bool) -> Option<Table> {
    let part = |name: &str| -> BTreeMap<&str, &[u8]> {
        let items = map_items(reply.get(name).unwrap_or_default());
        items.filter_map(|(node, value)| Some((as_str(node)?, value))).collect()
    };
    let nodes = part("nodes");
    let ranges: Vec<_> = columns.iter().map(|(name, _)| part(name)).collect();
    let mut head = vec!["LIFE", "TICK"];
    head.extend(columns.iter().map(|(_, head)| *head));
    let mut table = Table::with_head(&head);
    // A node may be missing from `nodes` and still have ranges.
    let parts = ranges.iter().flatten();
    let some = parts.filter(|(_, ticks)| array_items(ticks).next().is_some());
    let mut names: Vec<&str> = some.map(|(name, _)| *name).collect();
    if is_all {
        names.extend(nodes.keys().copied());
    }
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return None;
    }
    for name in names {
        let tick = nodes.get(name).and_then(|tick| as_u64(tick));
        let mut cells = vec![name.to_owned(), tick.map(|t| t.to_string()).unwrap_or_default()];
        let text = |part: &BTreeMap<&str, &[u8]>| part.get(name).map(|r| ranges_text(r));
        cells.extend(ranges.iter().map(|part| text(part).unwrap_or_default()));
        table.row(cells);
    }
    Some(table)
}

/// Ranges for people, both ends included: `1-4, 7, 9-12 … (30 ranges)`.
fn ranges_text(bytes: &[u8]) -> String {
    let mut shown = Vec::new();
    let mut count = 0;
    for range in array_items(bytes) {
        count += 1;
        if shown.len() < RANGES_SHOWN {
            shown.push(range_text(range));
        }
    }
    let text = shown.join(", ");
    if count > RANGES_SHOWN { format!("{text} … ({count} ranges)") } else { text }
}

fn range_text(range: &[u8]) -> String {
    if let Some(tick) = as_u64(range) {
        return tick.to_string();
    }
    let ends: Vec<_> = array_items(range).filter_map(as_u64).collect();
    match ends.as_slice() {
        [first, end] if *end == first + 1 => first.to_string(),
        [first, end] => format!("{first}-{}", end.saturating_sub(1)),
        _ => String::from("?"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_shown_with_both_ends() {
        // [[103, 105), 154, [1, 2)]
        assert_eq!(ranges_text(b"\x93\x92\x67\x69\xcc\x9a\x92\x01\x02"), "103-104, 154, 1");
        assert_eq!(ranges_text(b"\x90"), "");
        assert_eq!(
            ranges_text(b"\x98\x01\x03\x05\x07\x09\x0b\x0d\x0f"),
            "1, 3, 5, 7, 9, 11 … (8 ranges)"
        );
        assert_eq!(ranges_text(b"\x91\xc0"), "?");
    }

    #[test]
    fn the_table_has_a_row_per_node() {
        let lines = |missing: &[u8], is_all| {
            let mut fields = Fields::new();
            fields.raw("nodes", b"\x82\xa2n1\x05\xa2n2\xc0").raw("missing", missing);
            let reply = Message::new(&fields.encode()).unwrap();
            let table = table_of(&reply, &[("missing", "MISSING")], is_all);
            table.map(|table| table.lines())
        };
        assert_eq!(
            lines(b"\x81\xa2n3\x91\x02", true).unwrap(),
            ["LIFE  TICK  MISSING", "n1    5     -", "n2    -     -", "n3    -     2"]
        );
        // Where a part is asked for, without those that have nothing of it.
        let some = lines(b"\x81\xa2n3\x91\x02", false).unwrap();
        assert_eq!(some, ["LIFE  TICK  MISSING", "n3    -     2"]);
        assert_eq!(lines(b"\x81\xa2n3\x90", false), None);
    }
}

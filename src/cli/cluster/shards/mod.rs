//! `shards`: what is in each virtual shard, how much it is used, and which node is preferred for it.

mod prefer;
pub(in crate::cli) mod table;

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use crate::cli::error::CliError;
use crate::cli::remote::{Remote, RemoteArgs, parse_path};
use crate::cli::terminal::output::{Output, Table, printable, shown_path};
use crate::cli::terminal::units::show_bytes;
use crate::model::path::Path;
use crate::model::shard::shard_of;
use prefer::{PreferArgs, preference, warn_of_ignored};
use table::{Row, read_rows};

/// How long a node may take for its sums unless `--timeout` says so: the first time it walks over all entries.
pub(in crate::cli) const SUMS_TIMEOUT: Duration = Duration::from_secs(15);
/// Rows that `top` prints unless told otherwise.
const TOP_COUNT: usize = 10;

/// Print the virtual shards, or which node is preferred for one
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node shards                 # those that hold anything, or were used
  distkv-node shards top --by bytes  # the ten biggest
  distkv-node shards of site.lamp    # which shard a path is in
  distkv-node shards prefer 571 n2   # let clients use n2 for shard 571
  distkv-node shards --json | jq -r 'select(.prefer) | .shard'

All paths with the same first element are in one of 1024 virtual shards. Every node holds \
all shards: a shard only tells clients which node to prefer, so that the writers of one path \
meet on one node.

ENTRIES counts all entries of the shard at that node, DELETED those of them that are only \
remembered as deleted; READS and WRITES count what clients asked this node for since it \
started. Nodes with the same HASH hold the same in that shard; `distkv-node verify A B` \
compares all of them. The sums are kept from the first request on, which may take a moment: unless \
--timeout says otherwise, the node may take 15 s.

With --json, one object per line.")]
pub(in crate::cli) struct ShardsArgs {
    #[command(subcommand)]
    what: Option<What>,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    List(ListArgs),
    Top(TopArgs),
    Of(OfArgs),
    Prefer(PreferArgs),
}

/// Print the shards that hold anything or were used; the same as `shards` alone
#[derive(Debug, Clone, Args)]
struct ListArgs {
    #[command(flatten)]
    remote: RemoteArgs,
}

/// Print the busiest shards
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node shards top  # most reads and writes
  distkv-node shards top --by entries --count 3")]
struct TopArgs {
    /// What counts [default: reads and writes together]
    #[arg(long, value_name = "WHAT")]
    by: Option<By>,

    /// How many to print
    #[arg(long, value_name = "N", default_value_t = TOP_COUNT)]
    count: usize,

    #[command(flatten)]
    remote: RemoteArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Entries,
    Bytes,
    Reads,
    Writes,
}

/// Print which shard a path is in, and which node is preferred for it
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node shards of site.lamp
  distkv-node shards of site.lamp --json | jq .shard")]
struct OfArgs {
    /// The path
    #[arg(value_parser = parse_path)]
    path: Path,

    #[command(flatten)]
    remote: RemoteArgs,
}

pub(in crate::cli) async fn run(args: ShardsArgs) -> Result<(), CliError> {
    match args.what {
        None => list(&args.remote).await,
        Some(What::List(list_args)) => list(&list_args.remote.or(args.remote)).await,
        Some(What::Top(top_args)) => {
            let remote = top_args.remote.clone().or(args.remote);
            top(&top_args, &remote).await
        }
        Some(What::Of(of_args)) => {
            let remote = of_args.remote.or(args.remote);
            of(&of_args.path, &remote).await
        }
        Some(What::Prefer(prefer_args)) => prefer::run(prefer_args, args.remote).await,
    }
}

/// The first answer may have to wait for a walk over all entries.
async fn connect(remote: &RemoteArgs) -> Result<Remote, CliError> {
    let mut remote = remote.clone();
    remote.answer = Some(SUMS_TIMEOUT);
    remote.connect_in_time().await
}

async fn list(remote: &RemoteArgs) -> Result<(), CliError> {
    let connection = connect(remote).await?;
    let rows = read_rows(&connection).await?;
    print_rows(&rows, remote.json)?;
    warn_of_ignored(&connection).await;
    Ok(())
}

async fn top(args: &TopArgs, remote: &RemoteArgs) -> Result<(), CliError> {
    let mut rows = read_rows(&connect(remote).await?).await?;
    order(&mut rows, args.by);
    rows.truncate(args.count);
    print_rows(&rows, remote.json)
}

/// The greatest first; those that are the same by their number. Those with nothing are left out.
fn order(rows: &mut Vec<Row>, by: Option<By>) {
    let figure = |row: &Row| match by {
        None => row.reads.saturating_add(row.writes),
        Some(By::Entries) => row.entries,
        Some(By::Bytes) => row.bytes,
        Some(By::Reads) => row.reads,
        Some(By::Writes) => row.writes,
    };
    rows.retain(|row| figure(row) > 0);
    rows.sort_by_key(|row| (std::cmp::Reverse(figure(row)), row.shard));
}

fn print_rows(rows: &[Row], json: bool) -> Result<(), CliError> {
    let mut output = Output::of_read(json);
    if json {
        rows.iter().try_for_each(|row| output.json_line(row.json()))?;
        return output.flush();
    }
    let head = ["SHARD", "ENTRIES", "DELETED", "BYTES", "READS", "WRITES", "HASH", "PREFER"];
    let mut table = Table::with_head(&head);
    for row in rows {
        table.row([
            row.shard.to_string(),
            row.entries.to_string(),
            row.tombstones.to_string(),
            show_bytes(row.bytes),
            row.reads.to_string(),
            row.writes.to_string(),
            format!("{:016x}", row.hash),
            row.prefer.clone().unwrap_or_default(),
        ]);
    }
    table.print(&mut output)?;
    output.flush()
}

async fn of(path: &Path, remote: &RemoteArgs) -> Result<(), CliError> {
    let shard = shard_of(path);
    let prefer = preference(&remote.connect_in_time().await?, shard).await?;
    let mut output = Output::of_read(remote.json);
    output.either(
        || json!({"path": path.to_string(), "shard": shard, "prefer": prefer}),
        || {
            let whom = match &prefer {
                Some(name) => format!("clients prefer {}", printable(name)),
                None => String::from("no node is set as preferred"),
            };
            format!("{}: shard {shard}, {whom}", shown_path(path))
        },
    )?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(shard: u16, entries: u64, reads: u64, writes: u64) -> Row {
        Row { shard, entries, bytes: entries * 10, reads, writes, ..Row::default() }
    }

    #[test]
    fn the_busiest_come_first_and_idle_ones_not_at_all() {
        let rows = [row(1, 9, 0, 0), row(2, 1, 3, 1), row(3, 0, 0, 4), row(4, 0, 0, 9)];
        let ordered = |by| {
            let mut rows = rows.to_vec();
            order(&mut rows, by);
            rows.iter().map(|row| row.shard).collect::<Vec<_>>()
        };
        assert_eq!(ordered(None), [4, 2, 3]);
        assert_eq!(ordered(Some(By::Entries)), [1, 2]);
        assert_eq!(ordered(Some(By::Bytes)), [1, 2]);
        assert_eq!(ordered(Some(By::Reads)), [2]);
        assert_eq!(ordered(Some(By::Writes)), [4, 3, 2]);
    }
}

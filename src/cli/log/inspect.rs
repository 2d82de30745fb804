//! `log inspect`: what is in an event log.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path as FilePath, PathBuf};

use clap::Args;
use serde_json::{Value as Json, json};

use super::changes::print_changes;
use crate::cli::error::CliError;
use crate::cli::files::directory::{check_identity, moment_text, owner_of, reading_failure};
use crate::cli::files::new_file::is_special;
use crate::cli::files::read::{notes_of, read_saved_states};
use crate::cli::files::{FileKind, Format, cannot, kind_of};
use crate::cli::remote::parse_path;
use crate::cli::terminal::output::{Output, Table, count_of};
use crate::cli::terminal::progress::ProgressBar;
use crate::cli::terminal::times::{parse_time, show_time};
use crate::cli::terminal::units::show_bytes;
use crate::model::path::Path;
use crate::storage;
use crate::storage::past::{reach, read_past};
use crate::storage::recover::Files;
use crate::storage::{Directory, DiskEntry, LogReader, LogStart, Op};

/// Print what is in an event log, or how far back a data directory reaches
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node log inspect /var/lib/distkv  # how far back there is
  distkv-node log inspect /var/lib/distkv/log-7.dkv
  distkv-node log inspect /var/lib/distkv/log-7.dkv --changes --below site
  distkv-node log inspect /var/lib/distkv/log-7.dkv --changes --since 10m
  distkv-node log inspect /var/lib/distkv/log-7.dkv --changes --json |
    jq -r .path | sort | uniq -c

With --changes, one line for each change: when it came to the node whose log it is, what was \
changed, and who made it. With --json, these are objects as `import` and `snapshot restore` \
take them, with the time.

Of a directory, not all is read: `snapshot verify DIR` finds out whether it is whole.

Exit code: 0 done, 1 the log is damaged or cannot be read, 2 usage, 8 what is found cannot be written.")]
pub(super) struct InspectArgs {
    /// The log; also a change log of the Python DistKV, or a data directory
    #[arg(value_name = "LOG|DIR")]
    file: PathBuf,

    /// Print the changes, one per line
    #[arg(long)]
    changes: bool,

    /// With --changes: only at and below this path
    #[arg(long, value_name = "PATH", value_parser = parse_path, default_value = ":")]
    below: Path,

    /// With --changes: only what came to the node since this moment, like 2026-11-20T12:00 (UTC), 'yesterday
    /// 14:00', or 10m for 10 minutes ago
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "changes")]
    since: Option<u64>,

    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// What a log holds, in numbers.
#[derive(Debug, Default)]
struct Counts {
    batches: u64,
    set: u64,
    deleted: u64,
    purged: u64,
    first_ms: Option<u64>,
    last_ms: Option<u64>,
    is_stopped: bool,
    tock: u64,
}

pub(super) fn run(args: &InspectArgs, json: bool) -> Result<(), CliError> {
    if args.file.is_dir() {
        return inspect_directory(args, json);
    }
    match kind_of(&args.file)? {
        FileKind::Log => inspect(args, json),
        FileKind::State(Format::Distkv) => inspect_saved(args, json),
        FileKind::State(format) => Err(no_log(&args.file, format)),
    }
}

fn no_log(path: &FilePath, format: Format) -> CliError {
    let path = path.display();
    CliError::Usage(format!("{path}: {format}, not an event log; `snapshot inspect` looks into it"))
}

/// Opens an event log.
pub(super) fn open(path: &FilePath) -> Result<(LogReader, u64), CliError> {
    // What comes through a pipe can be read once.
    if !is_special(path)
        && let FileKind::State(format) = kind_of(path)?
    {
        return Err(no_log(path, format));
    }
    let file = File::open(path).map_err(|error| cannot("open", path, error))?;
    let bytes = file.metadata().map_err(|error| cannot("read", path, error))?.len();
    let name = path.display().to_string();
    Ok((LogReader::new(&name, Box::new(file)).map_err(reading_failure)?, bytes))
}

fn inspect(args: &InspectArgs, json: bool) -> Result<(), CliError> {
    let (mut log, bytes) = open(&args.file)?;
    let mut output = Output::of_read(json);
    let mut bar =
        ProgressBar::new(format!("reading {}", args.file.display()), json || args.changes);
    let mut counts = Counts::default();
    let read = loop {
        let batch = match log.next() {
            Ok(Some(batch)) => batch,
            Ok(None) => break Ok(()),
            Err(error) => break Err(reading_failure(error)),
        };
        counts.batches += 1;
        counts.first_ms.get_or_insert(batch.time_ms);
        (counts.last_ms, counts.is_stopped) = (Some(batch.time_ms), batch.is_stop);
        for op in &batch.ops {
            match op {
                Op::Put(change) => {
                    counts.tock = counts.tock.max(change.entry.tock().get());
                    match change.entry.is_tombstone() {
                        true => counts.deleted += 1,
                        false => counts.set += 1,
                    }
                }
                Op::Gone { .. } => counts.purged += 1,
            }
        }
        if let Some(knowledge) = &batch.knowledge {
            counts.tock = counts.tock.max(knowledge.tock.get());
        }
        if args.changes && args.since.is_none_or(|since| batch.time_ms >= since) {
            print_changes(&batch, log.table(), &args.below, &mut output)?;
        }
        bar.bytes(batch.end, bytes);
    };
    drop(bar);
    if !args.changes {
        if json {
            output.json_line(counts_json(&log, &counts, bytes))?;
        } else {
            print(&log, &counts, bytes, &mut output)?;
        }
    }
    output.flush()?;
    read
}

fn start_text(start: LogStart) -> String {
    match start {
        LogStart::Empty => String::from("nothing"),
        LogStart::After { number, bytes } => format!("the end of log {number}, at byte {bytes}"),
        LogStart::Snapshot => String::from("the snapshot of its number"),
    }
}

fn print(
    log: &LogReader,
    counts: &Counts,
    bytes: u64,
    output: &mut Output,
) -> Result<(), CliError> {
    let header = log.header();
    let mut table = Table::default();
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("file", format!("event log {}, {}", header.number, show_bytes(bytes)));
    row("node", header.id.name.to_string());
    row("life", header.id.to_string());
    row("network", header.network.clone());
    row("store", format!("{:016x}", header.store));
    row("continues", start_text(log.start()));
    let time = |ms: Option<u64>| ms.map(show_time).unwrap_or_default();
    row("from, to", format!("{}, {}", time(counts.first_ms), time(counts.last_ms)));
    row("batches", counts.batches.to_string());
    let Counts { set, deleted, purged, .. } = counts;
    row(
        "changes",
        format!("{} ({set} set, {deleted} deleted, {purged} purged)", set + deleted + purged),
    );
    row("tock", counts.tock.to_string());
    row("stopped", if counts.is_stopped { "yes".into() } else { "no".into() });
    if log.end() < bytes {
        let rest = bytes - log.end();
        row(
            "incomplete",
            format!(
                "{} at the end, of a change that was not written whole",
                count_of(rest, "byte", "bytes")
            ),
        );
    }
    table.print(output)
}

fn counts_json(log: &LogReader, counts: &Counts, bytes: u64) -> Json {
    let header = log.header();
    json!({
        "format": "log",
        "number": header.number,
        "bytes": bytes,
        "whole_bytes": log.end(),
        "name": header.id.name.as_str(),
        "life": header.id.to_string(),
        "network": header.network,
        "store": format!("{:016x}", header.store),
        "goes_on_from": start_text(log.start()),
        "first": counts.first_ms.map(show_time),
        "last": counts.last_ms.map(show_time),
        "batches": counts.batches,
        "set": counts.set,
        "deleted": counts.deleted,
        "purged": counts.purged,
        "tock": counts.tock,
        "stopped": counts.is_stopped,
    })
}

/// A node's data directory: what is in it, and how far back it reaches.
fn inspect_directory(args: &InspectArgs, json: bool) -> Result<(), CliError> {
    let directory = args.file.display();
    if args.changes {
        let text = format!("{directory}: --changes prints those of one log, like log-1.dkv in it");
        return Err(CliError::Usage(text));
    }
    let disk = Directory::new(&args.file);
    let owner = owner_of(&disk).map_err(reading_failure)?.ok_or_else(|| {
        CliError::Failure(format!("{directory}: this is not the data directory of a node"))
    })?;
    let files = Files::list(&disk).map_err(reading_failure)?;
    let own = storage::Owner { network: &owner.network, name: owner.name.as_str() };
    let past = read_past(&disk, || reach(&disk, own)).map_err(reading_failure)?;
    // How far back there is does not depend on it.
    let identity = check_identity(&disk).map_err(reading_failure);
    let bytes = |files: &BTreeMap<u64, DiskEntry>| files.values().map(|file| file.bytes).sum();
    let (snapshot_bytes, log_bytes): (u64, u64) = (bytes(&files.snapshots), bytes(&files.logs));
    let (snapshots, logs) = (files.snapshots.len(), files.logs.len());
    let mut output = Output::of_read(json);
    if json {
        let past = past.map(|past| {
            json!({"time": show_time(past.time_ms), "time_ms": past.time_ms, "tock": past.tock.get()})
        });
        let line = json!({
            "format": "directory",
            "name": owner.name.as_str(),
            "network": owner.network,
            "snapshots": snapshots,
            "snapshot_bytes": snapshot_bytes,
            "logs": logs,
            "log_bytes": log_bytes,
            "set_aside": files.set_aside.len(),
            "past": past,
        });
        output.json_line(line)?;
        output.flush()?;
        return identity;
    }
    let mut table = Table::default();
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("node", owner.name.to_string());
    row("network", owner.network);
    row("snapshots", format!("{snapshots} ({})", show_bytes(snapshot_bytes)));
    row("logs", format!("{logs} ({})", show_bytes(log_bytes)));
    if !files.set_aside.is_empty() {
        let count = count_of(files.set_aside.len() as u64, "file", "files");
        row("damaged", format!("{count}, set aside"));
    }
    row("past since", past.map_or_else(|| "nothing is whole".into(), |past| moment_text(&past)));
    table.print(&mut output)?;
    output.flush()?;
    identity
}

/// A change log of the Python DistKV, which has neither checksums nor times.
fn inspect_saved(args: &InspectArgs, json: bool) -> Result<(), CliError> {
    if args.changes {
        let text = "the Python DistKV's logs hold no times; `snapshot convert --format jsonl` prints \
            the entries";
        return Err(CliError::Usage(text.to_owned()));
    }
    let saved = read_saved_states(&[&args.file], None)?;
    let replica = &saved.image.replica;
    let (live, deleted) = (replica.tree.live_len(), replica.tree.tombstone_len());
    let notes = notes_of(&saved);
    let mut output = Output::of_read(json);
    if json {
        output.json_line(json!({
            "format": "distkv",
            "name": replica.id.name.as_str(),
            "changes": saved.changes.taken,
            "live_entries": live,
            "tombstones": deleted,
            "tock": replica.tock.get(),
            "notes": notes,
        }))?;
        return output.flush();
    }
    let mut table = Table::default();
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("file", String::from("change log or saved state of the Python DistKV"));
    row("node", replica.id.name.to_string());
    row("changes", saved.changes.taken.to_string());
    row("entries", format!("{live} with a value, {deleted} deleted, at the end"));
    row("tock", replica.tock.to_string());
    table.print(&mut output)?;
    notes.iter().try_for_each(|note| output.line(&format!("note: {note}")))?;
    output.flush()
}

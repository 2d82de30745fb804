//! `snapshot save`: a running node's state as a file.

use std::io::Write as _;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;
use std::{env, fs};

use clap::Args;

use super::convert::{FormArgs, tell_written};
use crate::cli::error::CliError;
use crate::cli::files::gap::Gap;
use crate::cli::files::new_file::{NewFile, tidy_when_interrupted};
use crate::cli::files::read::read_state;
use crate::cli::files::write::{Written, write_state};
use crate::cli::files::{Format, cannot};
use crate::cli::remote::{Remote, RemoteArgs};
use crate::cli::say;
use crate::cli::terminal::interrupt::Interrupt;
use crate::cli::terminal::output::{Output, count_of, json_of, printable};
use crate::cli::terminal::progress::ProgressBar;
use crate::cli::terminal::times::{Moment, parse_moment};
use crate::cli::terminal::units::show_bytes;
use crate::client::{Fields, Message, StreamEvent};
use crate::protocol::client::Action;
use crate::rt;
use crate::storage::{SnapshotSummary, verify_snapshot};

/// How long a node may take to find a state of its past: it reads its snapshots and logs.
pub(in crate::cli) const PAST_TIMEOUT: Duration = Duration::from_secs(600);

/// Save a running node's state
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node snapshot save --to monday.dkv  # as a file on this machine
  distkv-node snapshot save --to monday.bin --format distkv
  distkv-node snapshot save --to - --format jsonl | jq .path
  distkv-node snapshot save                  # in the node's data directory
  distkv-node snapshot save --to before.dkv --at 10m  # 10 minutes ago

The node goes on serving meanwhile; the file holds the state at one moment. Without --to the \
node makes a snapshot in its own data directory, as it does by itself from time to time. A \
file on this machine is written under a temporary name and renamed once it is complete and \
verified. One that is there already is replaced with --force only.

With --at, it is what the node had logged up to that moment. Where it had not run then, or its disk had \
failed, or its clock leapt over the moment, a note says so, and the state is that before that time. If the clock \
was set back, and showed the moment more than once, a note says so, too, and the state is the last that \
can be meant. Where a log that the state needs is missing or damaged, nothing is saved, and the error says before \
which moment, and from which on, states are available.

Exit code: 0 saved, 1 failed, 2 usage, 3 refused, 6 no node was reached, 8 standard output (--to -) cannot be \
written, 130 interrupted (without --to, the node makes the snapshot all the same).")]
pub(super) struct SaveArgs {
    /// The file to write, on this machine; '-' is standard output
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,

    /// With --to: the state at this moment of the node's past, like 2026-11-20T12:00 (UTC) or 10m
    #[arg(long, value_name = "TIME", value_parser = parse_moment, requires = "to")]
    at: Option<Moment>,

    #[command(flatten)]
    form: FormArgs,

    #[command(flatten)]
    pub(super) remote: RemoteArgs,
}

pub(super) async fn run(args: &SaveArgs, remote: &RemoteArgs) -> Result<(), CliError> {
    args.form.check()?;
    let Some(to) = &args.to else {
        if args.form.format != Format::Snapshot {
            let text = "the node's data directory holds snapshots only; --to writes another file";
            return Err(CliError::Usage(text.to_owned()));
        }
        return save_there(remote).await;
    };
    let existing = args.form.existing();
    existing.check(to)?;
    tidy_when_interrupted(remote.json)?;
    let mut remote = remote.clone();
    if args.at.is_some() {
        remote.answer = Some(PAST_TIMEOUT);
    }
    let (node, json) = (remote.connect().await?, remote.json);
    let mut wanted = Fields::new();
    if let Some(at) = &args.at {
        wanted.u64("time", at.of_node(&node).await?);
    }
    if args.form.format == Format::Snapshot && to != FilePath::new("-") {
        let mut new = NewFile::create(to, existing)?;
        let written = fetch(&mut new, to, &node, &wanted, json).await?;
        new.finish()?;
        return tell(to, Format::Snapshot, &written, json);
    }
    // By way of a snapshot: it alone can be verified.
    let is_stdout = to == FilePath::new("-");
    let beside = if is_stdout { env::temp_dir().join("distkv-snapshot") } else { to.clone() };
    let mut new = NewFile::scratch(&beside)?;
    let fetched = fetch(&mut new, &beside, &node, &wanted, json).await?;
    let path = new.temporary();
    let (form, to) = (args.form.clone(), to.clone());
    let written = rt::spawn_blocking(move || {
        let state = read_state(&path, json)?;
        let written = write_state(&to, existing, &form.to_write(&state), json)?;
        let written = Written { gap: fetched.gap, ..written };
        Ok::<_, CliError>((to, form.format, written))
    })
    .await;
    // The snapshot goes.
    drop(new);
    let (to, format, written) = written?;
    tell(&to, format, &written, json)
}

/// Says what was written, and what it lacks.
fn tell(to: &FilePath, format: Format, written: &Written, json: bool) -> Result<(), CliError> {
    if let Some(gap) = &written.gap {
        say::note(&gap.note());
    }
    tell_written(to, format, written, json)
}

/// Fetches a snapshot, and verifies what came. `wanted`: of which moment, and of what.
pub(in crate::cli) async fn fetch(
    new: &mut NewFile,
    to: &FilePath,
    node: &Remote,
    wanted: &Fields,
    json: bool,
) -> Result<Written, CliError> {
    let mut stream = node.stream(Action::GetSnapshot.name(), wanted).await.map_err(too_old)?;
    let mut bar = ProgressBar::new("fetching", json);
    let mut written = Written::default();
    while let Some(event) = node.next(&mut stream).await? {
        let StreamEvent::Item { message, .. } = event else { continue };
        written.gap = written.gap.or_else(|| Gap::of(&message));
        let data = message.get("data").and_then(bytes_of).unwrap_or_default();
        new.file.write_all(data).map_err(|error| new.give_up(&error))?;
        written.bytes += data.len() as u64;
        bar.bytes(written.bytes, 0);
    }
    new.file.flush().map_err(|error| new.give_up(&error))?;
    drop(bar);
    let (path, name) = (new.temporary(), to.display().to_string());
    let verified = rt::spawn_blocking(move || verify(&path, &name, json)).await?;
    written.entries = verified.entries;
    Ok(written)
}

fn verify(path: &FilePath, name: &str, json: bool) -> Result<SnapshotSummary, CliError> {
    let file = fs::File::open(path).map_err(|error| cannot("read back", path, error))?;
    let mut bar = ProgressBar::new(format!("verifying {name}"), json);
    let mut look =
        |progress: crate::storage::Progress| bar.entries(progress.entries, progress.total);
    verify_snapshot(name, Box::new(file), &mut look)
        .map_err(|error| CliError::Failure(format!("the received snapshot is damaged: {error}")))
}

fn bytes_of(value: &[u8]) -> Option<&[u8]> {
    crate::model::value::Reader::new(value).read_bin().ok()
}

/// The node makes a snapshot where it keeps its own.
async fn save_there(remote: &RemoteArgs) -> Result<(), CliError> {
    let interrupt = Interrupt::heed()?;
    let connected = interrupt.or_before(remote.connect()).await;
    let connected: Remote = connected.map_err(|error| error.left("nothing was saved"))?;
    let fields = Fields::new();
    let made = interrupt.or(connected.request(Action::Snapshot.name(), &fields)).await;
    let reply = made.map_err(|error| {
        error.left("the node makes the snapshot all the same, in its data directory")
    })?;
    let result = reply.get("result").unwrap_or_default();
    let mut output = Output::new(remote.json);
    output.either(
        || json_of(result),
        || {
            let fields = Message::new(result).ok();
            let number = |name: &str| fields.as_ref().and_then(|fields| fields.u64(name));
            let (entries, bytes) = (number("entries"), number("bytes").map(show_bytes));
            let file = fields.as_ref().and_then(|fields| fields.str("file")).unwrap_or("saved");
            let known = entries.map(|entries| {
                let entries = count_of(entries, "entry", "entries");
                format!(" {entries}, {}", bytes.unwrap_or_default())
            });
            format!("{}:{}", printable(file), known.unwrap_or_default())
        },
    )?;
    output.flush()
}

/// A node of an earlier version has no such action.
fn too_old(error: CliError) -> CliError {
    if !error.has_code("unknown_action") {
        return error;
    }
    error.said(|text| {
        format!("{text}: the node is of an earlier version; `tree --json` prints its entries")
    })
}

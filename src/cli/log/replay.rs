//! `log replay`: a state of the past, from logs.

use std::path::{Path as FilePath, PathBuf};

use clap::Args;

use super::inspect::open;
use crate::cli::error::CliError;
use crate::cli::files::directory::{Given, put_into, read_directory, reading_failure};
use crate::cli::files::new_file::{StateInto, tidy_when_interrupted};
use crate::cli::files::read::{StateFile, notes_of, read_saved_states, read_state};
use crate::cli::files::write::{Written, write_state};
use crate::cli::files::{FileKind, Format, kind_of};
use crate::cli::snapshot::convert::{FormArgs, tell_notes, tell_written};
use crate::cli::snapshot::restore::{IntoArgs, tell_put};
use crate::cli::terminal::progress::ProgressBar;
use crate::cli::terminal::times::parse_time;
use crate::engine::exchange::entries_alone;
use crate::model::count::count_of;
use crate::model::ids::Tock;
use crate::rt;
use crate::storage::moment::{Cut, Doubt, Passes};
use crate::storage::{FileHeader, LogStart, Replay, Until};

/// Make a state of event logs, up to a moment in the past
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node log replay /var/lib/distkv --to noon.dkv \\
    --until-time 2026-11-20T12:00
  distkv-node log replay /var/lib/distkv --until-tock 4711 \\
    --to - --format jsonl --below site
  distkv-node log replay snapshot-6.dkv log-6.dkv log-7.dkv --to state.dkv
  distkv-node log replay changes.bin --to state.dkv  # of the Python DistKV
  distkv-node log replay /var/lib/distkv --into /var/lib/new

With a directory, replay begins at the newest snapshot that is old enough; a node may use \
the directory meanwhile. How far back that reaches depends on how many old snapshots and \
logs the node keeps. With files, a snapshot comes first, then the logs that continue it, in \
order; without a snapshot, or with a gap, the state holds only what the logs themselves \
hold. Times are those at which changes came to the node whose log it is; tocks are the \
network's. At a moment at which nothing was logged, because the disk had failed, the node did not \
run, or its clock leapt ahead, a note says so and the state is the last one before it. If the \
node's clock was set back, and showed a moment more than once, a note says so, too, and the state is \
the last that can be meant. The file of --to is replaced with --force only, if it is there already.

Exit code: 0 done, 1 a log is damaged or does not reach back so far, 2 usage, 3 refused (--into a directory of \
another network), 130 interrupted.")]
pub(super) struct ReplayArgs {
    /// A node's data directory; or a snapshot and logs; or logs of the Python DistKV
    #[arg(value_name = "DIR|FILE", required = true)]
    from: Vec<PathBuf>,

    /// Up to this moment, like 2026-11-20T12:00 (UTC), 'yesterday 14:00', or 10m for 10 minutes ago
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "until_tock")]
    until_time: Option<u64>,

    /// Up to this tock: all before the first change that has a later one
    #[arg(long, value_name = "N", value_parser = parse_tock)]
    until_tock: Option<Tock>,

    /// The file to write; '-' is standard output
    #[arg(long, value_name = "FILE", required_unless_present = "into", conflicts_with = "into")]
    to: Option<PathBuf>,

    #[command(flatten)]
    form: FormArgs,

    /// With --into: also where the directory is of a network with another name
    #[arg(long, conflicts_with = "to")]
    any_network: bool,

    /// With --any-network: also users, logins and access lists of the other network
    #[arg(long, requires = "any_network")]
    with_auth: bool,

    #[command(flatten)]
    into: IntoArgs,

    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: ReplayArgs, json: bool) -> Result<(), CliError> {
    let json = json || args.json;
    args.form.check()?;
    args.into.check()?;
    let until = match (args.until_time, args.until_tock) {
        (Some(time_ms), _) => Some(Until::Time(time_ms)),
        (None, Some(tock)) => Some(Until::Tock(tock)),
        (None, None) => None,
    };
    if let Some(to) = &args.to {
        args.form.existing().check(to)?;
    }
    tidy_when_interrupted(json)?;
    let into = args.into.into.as_deref().map(StateInto::begin);
    let state = read(&args.from, until, json)?;
    tell_notes(&state.notes);
    if let Some(into) = into {
        let from = args.from.first().map_or(FilePath::new(""), PathBuf::as_path);
        let wanted = args.into.wanted(args.any_network, args.with_auth);
        let put = put_into(&into, vec![Given { from, state }], wanted, json)?;
        let directory = into.directory;
        drop(into);
        return tell_put(directory, &put, json);
    }
    let Some(to) = &args.to else { return Ok(()) };
    let written = write_state(to, args.form.existing(), &args.form.to_write(&state), json)?;
    let written = Written { gap: state.gap, ..written };
    tell_written(to, args.form.format, &written, json)
}

fn read(from: &[PathBuf], until: Option<Until>, json: bool) -> Result<StateFile, CliError> {
    let (Some(first), rest) = (from.first(), from.get(1..).unwrap_or_default()) else {
        return Err(CliError::Usage(String::from("there is nothing to replay")));
    };
    if first.is_dir() {
        if !rest.is_empty() {
            return Err(CliError::Usage(String::from("give one directory, or files")));
        }
        return read_directory(first, until, json);
    }
    match kind_of(first)? {
        FileKind::State(Format::Distkv) => read_distkv(from, until),
        FileKind::State(Format::Jsonl) => Err(CliError::Usage(format!(
            "{}: lines of JSON are a state, and there is no log that goes on from them",
            first.display()
        ))),
        FileKind::State(Format::Snapshot) => {
            let state = read_state(first, json)?;
            let (cut, doubt) = cut_of(rest, until)?;
            check_base(first, &state, until, cut)?;
            replay(Some(state), rest, cut, json).map(|state| state.with_doubt(doubt))
        }
        FileKind::Log => {
            let (cut, doubt) = cut_of(from, until)?;
            replay(None, from, cut, json).map(|state| state.with_doubt(doubt))
        }
    }
}

fn read_distkv(from: &[PathBuf], until: Option<Until>) -> Result<StateFile, CliError> {
    let until = match until {
        None => None,
        Some(Until::Tock(tock)) => Some(tock),
        Some(Until::Time(_)) => {
            let text = "the Python DistKV's logs hold no times; use --until-tock";
            return Err(CliError::Usage(text.to_owned()));
        }
    };
    let paths: Vec<&FilePath> = from.iter().map(PathBuf::as_path).collect();
    let saved = read_saved_states(&paths, until)?;
    let notes = notes_of(&saved);
    let (image, format) = (saved.image, Format::Distkv);
    Ok(StateFile { image, format, header: None, bytes: 0, notes, login_note: None, gap: None })
}

/// Where logs end at a moment, and whether that is in doubt; they are numbered in the order in which they are
/// given, from 1 on.
fn cut_of(
    logs: &[PathBuf],
    until: Option<Until>,
) -> Result<(Option<Cut>, Option<Doubt>), CliError> {
    let time_ms = match until {
        None => return Ok((None, None)),
        Some(Until::Tock(tock)) => return Ok((Some(Cut::Tock(tock)), None)),
        Some(Until::Time(time_ms)) => time_ms,
    };
    let mut passes = Passes::new(time_ms);
    for (number, path) in (1..).zip(logs) {
        let (log, _) = open(path)?;
        passes.read(number, log).map_err(reading_failure)?;
    }
    let (cut, doubt) = Cut::behind(passes.end());
    Ok((Some(cut), doubt))
}

/// Where logs end that have nothing up to a moment.
const NOTHING: Cut = Cut::Behind { number: 0, end: 0 };

/// A snapshot that is later than what is wanted is nothing to begin with.
fn check_base(
    path: &FilePath,
    state: &StateFile,
    until: Option<Until>,
    cut: Option<Cut>,
) -> Result<(), CliError> {
    let is_later = match (until, &state.header) {
        // What follows it may have an earlier time: then the clock was set back.
        (Some(Until::Time(time_ms)), Some(header)) => {
            header.time_ms > time_ms && cut == Some(NOTHING)
        }
        (Some(Until::Tock(tock)), _) => state.image.replica.tock > tock,
        (Some(Until::Time(_)), None) | (None, _) => false,
    };
    if !is_later {
        return Ok(());
    }
    let path = path.display();
    Err(CliError::Failure(format!(
        "{path}: the snapshot is of a later moment; begin with an older one"
    )))
}

/// Replays logs on top of a snapshot, or of nothing.
fn replay(
    base: Option<StateFile>,
    logs: &[PathBuf],
    cut: Option<Cut>,
    json: bool,
) -> Result<StateFile, CliError> {
    let mut header = base.as_ref().and_then(|base| base.header.clone());
    let mut notes = Vec::new();
    // The end that the next log must go on from.
    let mut end: Option<(u64, u64)> = None;
    let mut base_number = header.as_ref().map(|header| header.number);
    let mut is_whole = true;
    let mut replay = match base {
        Some(base) => Replay::from_image(base.image, rt::random_u64()),
        None => Replay::new(rt::random_u64()),
    };
    let mut bytes = 0;
    for (place, path) in (1..).zip(logs) {
        let (mut log, length) = open(path)?;
        bytes += length;
        let number = log.header().number;
        let goes_on = match log.start() {
            LogStart::Empty => base_number.is_none() && end.is_none(),
            LogStart::After { number: before, bytes } => {
                base_number == Some(number) || end == Some((before, bytes))
            }
            LogStart::Snapshot => base_number == Some(number),
        };
        if !goes_on {
            is_whole = false;
            notes.push(format!(
                "{}: it does not go on from what is before it; the state has only what the logs hold",
                path.display()
            ));
        }
        base_number = None;
        log.name_into(replay.lend_table());
        let mut bar = ProgressBar::new(format!("replaying {}", path.display()), json);
        let mut is_enough = false;
        while let Some(mut batch) = log.next().map_err(reading_failure)? {
            is_enough = cut.is_some_and(|cut| cut.apply(place, &mut batch));
            bar.bytes(batch.end, length);
            replay.apply(batch, log.table());
            if is_enough {
                break;
            }
        }
        end = Some((number, log.end()));
        if !is_enough && log.end() < length {
            let rest = count_of(length - log.end(), "byte is", "bytes are");
            let path = path.display();
            notes.push(format!("{path}: the last {rest} of a change without its end"));
        }
        let own = log.header().clone();
        header = Some(FileHeader { number: 0, store: 0, time_ms: rt::wall_clock_ms(), ..own });
        replay.take_table(log.into_table());
        if is_enough {
            break;
        }
    }
    let image = replay.into_image().ok_or_else(|| {
        CliError::Failure(String::from("the logs hold nothing up to that moment"))
    })?;
    let image = if is_whole { image } else { entries_alone(image) };
    Ok(StateFile {
        image,
        format: Format::Snapshot,
        header,
        bytes,
        notes,
        login_note: None,
        gap: None,
    })
}

fn parse_tock(text: &str) -> Result<Tock, String> {
    let tock = text.parse().ok().and_then(Tock::new);
    tock.ok_or_else(|| String::from("a tock is a number below 2^62"))
}

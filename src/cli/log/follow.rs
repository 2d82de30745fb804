//! `log follow`: changes as they are logged.

use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use clap::Args;

use super::changes::print_changes;
use super::inspect::open;
use crate::cli::error::CliError;
use crate::cli::files::directory::reading_failure;
use crate::cli::remote::parse_path;
use crate::cli::say;
use crate::cli::terminal::output::{Output, end_with_reader};
use crate::cli::terminal::times::parse_time;
use crate::model::path::Path;
use crate::rt;
use crate::storage::log::log_name;
use crate::storage::recover::Files;
use crate::storage::{Directory, LogReader, StorageError};

/// From one look at a log to the next.
const INTERVAL: Duration = Duration::from_millis(200);

/// Print changes as a node logs them
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node log follow /var/lib/distkv
  distkv-node log follow /var/lib/distkv --below site --json
  distkv-node log follow /var/lib/distkv --since 10m  # the last 10 minutes
  distkv-node log follow /var/lib/distkv/log-7.dkv --all  # from its beginning

It reads the files that the node writes, every 200 ms, and asks the node nothing: what the \
node has not written yet is not seen (see --sync). With a directory, it continues with the next log when \
one begins. `distkv-node watch` asks a node instead.

Exit code: 0 --count was reached, 1 a log is damaged or cannot be read, 2 usage, 8 it cannot be written.")]
pub(super) struct FollowArgs {
    /// A node's data directory, or one log
    #[arg(value_name = "DIR|LOG")]
    from: PathBuf,

    /// Begin with what is in the log already
    #[arg(long)]
    all: bool,

    /// Begin with what came to the node since this moment, like 2026-11-20T12:00 (UTC), 'yesterday 14:00', or 10m
    /// for 10 minutes ago, and is in the log, of a directory in the newest one
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "all")]
    since: Option<u64>,

    /// Only at and below this path
    #[arg(long, value_name = "PATH", value_parser = parse_path, default_value = ":")]
    below: Path,

    /// End after this many changes
    #[arg(long, value_name = "N")]
    count: Option<u64>,

    /// Print JSON, one object per change
    #[arg(long)]
    pub(super) json: bool,
}

/// A log that is being followed.
struct Followed {
    /// Where the next ones are, if there are such.
    directory: Option<Directory>,
    number: u64,
    log: LogReader,
}

pub(super) async fn run(args: &FollowArgs, json: bool) -> Result<(), CliError> {
    let mut followed = begin(&args.from)?;
    if !args.all && args.since.is_none() {
        // The incarnations that it names are needed all the same.
        while followed.log.next().map_err(reading_failure)?.is_some() {}
    }
    end_with_reader(args.count.is_some())?;
    say::line(&format!("following {}", args.from.display()));
    let mut output = Output::of_read(json);
    let mut left = args.count;
    while left != Some(0) {
        // Looked for before the log is found to have no more: what comes in between is in this one.
        let next = followed.next_number()?;
        match followed.log.next().map_err(reading_failure)? {
            Some(batch) if args.since.is_some_and(|since| batch.time_ms < since) => {}
            Some(batch) => {
                let count = print_changes(&batch, followed.log.table(), &args.below, &mut output)?;
                left = left.map(|left| left.saturating_sub(count));
            }
            None => {
                output.flush()?;
                match next {
                    Some(next) => followed.go_on(next)?,
                    None => rt::sleep(INTERVAL).await,
                }
            }
        }
    }
    output.flush()
}

fn begin(from: &FilePath) -> Result<Followed, CliError> {
    if !from.is_dir() {
        let (log, _) = open(from)?;
        return Ok(Followed { directory: None, number: log.header().number, log });
    }
    let directory = Directory::new(from);
    let files = Files::list(&directory).map_err(reading_failure)?;
    let newest = files.logs.keys().next_back().copied().ok_or_else(|| {
        CliError::Failure(format!("{}: this directory has no event log", from.display()))
    })?;
    let log = LogReader::open(&directory, newest).map_err(reading_failure)?;
    Ok(Followed { directory: Some(directory), number: newest, log })
}

impl Followed {
    /// The number of the log that goes on from this one, if it has begun.
    fn next_number(&self) -> Result<Option<u64>, CliError> {
        let Some(directory) = &self.directory else { return Ok(None) };
        let files = Files::list(directory).map_err(reading_failure)?;
        Ok(files.logs.range(self.number + 1..).next().map(|(number, _)| *number))
    }

    /// Logs that the node has removed, because snapshots have what they had, before this one was read to its end.
    fn tell_of_gap(&self, next: u64) {
        let missing = match (self.number + 1, next - 1) {
            (first, last) if first > last => return,
            (first, last) if first == last => log_name(first),
            (first, last) => format!("{} to {}", log_name(first), log_name(last)),
        };
        say::warning(&format!(
            "changes are missing here: {missing} came and went meanwhile; let the node keep more of its past \
             (--keep-for)"
        ));
    }

    fn go_on(&mut self, number: u64) -> Result<(), CliError> {
        let Some(directory) = &self.directory else { return Ok(()) };
        match LogReader::open(directory, number) {
            Ok(log) => {
                self.tell_of_gap(number);
                (self.number, self.log) = (number, log);
                say::line(&format!("continuing with {}", log_name(number)));
                Ok(())
            }
            // It is only just being begun.
            Err(StorageError::Incomplete { .. }) => Ok(()),
            Err(error) => Err(reading_failure(error)),
        }
    }
}

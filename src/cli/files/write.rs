//! An image as a file of any kind.

use std::io::{self, Write};
use std::path::Path as FilePath;

use super::gap::Gap;
use super::new_file::{Existing, NewFile, write_to_stdout};
use super::{Format, cannot};
use crate::cli::error::CliError;
use crate::cli::say;
use crate::cli::terminal::output::{count_of, printable, shown_path};
use crate::cli::terminal::progress::ProgressBar;
use crate::engine::Image;
use crate::engine::exchange::lines::LinesExport;
use crate::engine::exchange::saved_state_out::{
    ExportReport, LEFT_OUT_NAMED_MAX, SavedStateExport,
};
use crate::model::path::Path;
use crate::storage::snapshot::write_snapshot_to;
use crate::storage::{FileHeader, FileId};

/// What is written.
pub(in crate::cli) struct ToWrite<'a> {
    /// The state.
    pub(in crate::cli) image: &'a Image,
    /// As what.
    pub(in crate::cli) format: Format,
    /// What a snapshot says of itself.
    pub(in crate::cli) header: FileHeader,
    /// For lines: only what is at and below this path.
    pub(in crate::cli) below: Path,
    /// For lines: tombstones too.
    pub(in crate::cli) with_tombstones: bool,
}

/// What was written.
#[derive(Debug, Clone, Default)]
pub(in crate::cli) struct Written {
    /// The file's length.
    pub(in crate::cli) bytes: u64,
    /// Entries in it.
    pub(in crate::cli) entries: u64,
    /// What a file for the Python DistKV lacks.
    pub(in crate::cli) report: Option<ExportReport>,
    /// If it may not be the state of the moment that was asked for.
    pub(in crate::cli) gap: Option<Gap>,
}

/// Writes to a file; `-` is standard output.
pub(in crate::cli) fn write_state(
    to: &FilePath,
    existing: Existing,
    what: &ToWrite<'_>,
    json: bool,
) -> Result<Written, CliError> {
    if to == FilePath::new("-") {
        let mut out = Counting { out: io::stdout().lock(), bytes: 0 };
        let mut bar = ProgressBar::new("writing", json);
        let written = write_to_stdout(|| {
            let written = write_to(&mut out, FileId::default(), what, &mut bar)?;
            out.flush().map(|()| written)
        });
        let written = written.map_err(|error| match CliError::of_output(&error) {
            // Half a list is for its reader to decide; half a backup is none.
            CliError::OutputClosed => CliError::Failure(String::from(
                "whoever reads standard output stopped before the end: what it has is not whole",
            )),
            _ => CliError::Unwritten(format!("cannot write to standard output: {error}")),
        })?;
        return Ok(Written { bytes: out.bytes, ..written });
    }
    let mut new = NewFile::create(to, existing)?;
    let mut bar = ProgressBar::new(format!("writing {}", to.display()), json);
    let metadata = new.file.metadata().map_err(|error| cannot("look at", to, error))?;
    let mut out = Counting { out: &mut new.file, bytes: 0 };
    let written = write_to(&mut out, FileId::of(&metadata), what, &mut bar);
    let bytes = out.bytes;
    match written {
        Ok(written) => {
            new.finish()?;
            Ok(Written { bytes, ..written })
        }
        Err(error) => Err(new.give_up(&error)),
    }
}

fn write_to(
    out: &mut dyn Write,
    id: FileId,
    what: &ToWrite<'_>,
    bar: &mut ProgressBar,
) -> io::Result<Written> {
    let mut written = Written::default();
    let tree = &what.image.replica.tree;
    let (total, live) = (tree.len() as u64, tree.live_len() as u64);
    let mut piece = Vec::new();
    match what.format {
        Format::Snapshot => {
            let mut look = |progress: crate::storage::Progress| {
                bar.entries(progress.entries, progress.total);
            };
            let info = write_snapshot_to(out, &what.header, id, what.image, &mut look)?;
            written.entries = info.entries;
        }
        Format::Distkv => {
            let mut export = SavedStateExport::new(what.image.clone());
            let mut done = 0;
            while export.next_piece(&mut piece) {
                out.write_all(&piece)?;
                done += piece.len() as u64;
                piece.clear();
                bar.bytes(done, 0);
            }
            out.write_all(&piece)?;
            written.entries = export.report().entries;
            written.report = Some(export.report().clone());
        }
        Format::Jsonl => {
            let mut export = LinesExport::new(what.image, &what.below, what.with_tombstones);
            loop {
                let (more, lines) = export.next_piece(&mut piece);
                written.entries += lines;
                out.write_all(&piece)?;
                piece.clear();
                if !more {
                    break;
                }
                bar.entries(written.entries, if what.with_tombstones { total } else { live });
            }
        }
    }
    Ok(written)
}

/// Says what a file for the Python DistKV lacks, on standard error.
pub(in crate::cli) fn tell_report(report: &ExportReport) {
    for (path, why) in &report.named {
        let why = why.to_string();
        say::line(&format!("left out: {}: {}", shown_path(path), printable(&why)));
    }
    let more = report.left_out.saturating_sub(LEFT_OUT_NAMED_MAX as u64);
    if more > 0 {
        say::line(&format!("left out: {more} more, for such reasons"));
    }
    if report.missing > 0 {
        say::warning(&format!(
            "{} not there yet when this was saved; a Python server that loads the file alone needs \
             --authoritative to start",
            count_of(report.missing, "change was", "changes were")
        ));
    }
}

/// Counts what is written.
struct Counting<W> {
    out: W,
    bytes: u64,
}

impl<W: Write> Write for Counting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

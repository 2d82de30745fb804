//! An image as a file of any kind. A file is written under another name, synced and then renamed:
//! whoever looks sees the old one or the new one, whole. A file that is there already is replaced only if
//! that was asked for.

use std::fs;
use std::io::{self, Write};
use std::path::{Path as FilePath, PathBuf};
use std::process;

use distkv_command::signals::on_signals;
use parking_lot::Mutex;

use super::{Format, cannot};
use crate::cli::error::CliError;
use crate::cli::say;
use crate::cli::terminal::output::{count_of, printable};
use crate::cli::terminal::progress::ProgressBar;
use crate::engine::Image;
use crate::engine::exchange::lines::LinesExport;
use crate::engine::exchange::saved_state_out::{
    ExportReport, LEFT_OUT_NAMED_MAX, SavedStateExport,
};
use crate::model::path::Path;
use crate::rt;
use crate::storage::snapshot::write_snapshot_to;
use crate::storage::{Directory, Disk, DiskFile, FileHeader, FileId};

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
        let written = write_to(&mut out, FileId::default(), what, &mut bar);
        let written = written.and_then(|written| out.flush().map(|()| written));
        let written = written.map_err(|error| CliError::of_output(&error))?;
        return Ok(Written { bytes: out.bytes, ..written });
    }
    let mut new = NewFile::create(to, existing)?;
    let mut bar = ProgressBar::new(format!("writing {}", to.display()), json);
    let id = new.file.id().map_err(|error| cannot("look at", to, error))?;
    let mut out = Counting { out: &mut *new.file, bytes: 0 };
    let written = write_to(&mut out, id, what, &mut bar);
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
        let path = path.to_string();
        let why = why.to_string();
        say::line(&format!("left out: {}: {}", printable(&path), printable(&why)));
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

/// What becomes of a file that has the name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Existing {
    /// It stays, and nothing is written.
    Keep,
    /// It is replaced (`--force`).
    Replace,
}

impl Existing {
    /// As `--force` says.
    pub(in crate::cli) fn of_force(force: bool) -> Existing {
        if force { Existing::Replace } else { Existing::Keep }
    }

    /// Checks that a file may get this name, before anything is done for it; `-` is standard output.
    pub(in crate::cli) fn check(self, to: &FilePath) -> Result<(), CliError> {
        if to == FilePath::new("-") {
            return Ok(());
        }
        if to.is_dir() || to.as_os_str().as_encoded_bytes().ends_with(b"/") {
            let text = format!("{} is a directory; name a file in it", to.display());
            return Err(CliError::Failure(text));
        }
        if is_special(to) {
            let text = format!("{} is no plain file; `-` is standard output", to.display());
            return Err(CliError::Failure(text));
        }
        // A link is there, too, also one that leads nowhere.
        match fs::symlink_metadata(to) {
            Ok(_) if self == Existing::Keep => Err(exists(to)),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// Where files are that are not whole yet: one or two.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// From now on, a signal that ends this command removes what it has not finished. For commands that do nothing but
/// write files; others look at an [`Interrupt`](crate::cli::terminal::interrupt::Interrupt).
///
/// # Errors
/// The system has no room for it.
pub(in crate::cli) fn tidy_when_interrupted(json: bool) -> Result<(), CliError> {
    on_signals(move |_| {
        let unfinished = UNFINISHED.lock();
        for file in unfinished.iter() {
            let _ = fs::remove_file(file);
        }
        // Where there is nothing, all is done, or was not begun.
        let what = if unfinished.is_empty() { "" } else { "nothing was written" };
        process::exit(i32::from(CliError::Interrupted(what.to_owned()).tell(json)));
    })
}

/// Whether it is a pipe, a device or the like: it cannot be replaced, and has nothing that is lost.
pub(in crate::cli) fn is_special(path: &FilePath) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

fn exists(to: &FilePath) -> CliError {
    let to = to.display();
    CliError::Failure(format!("{to} exists already; take another name, or replace it with --force"))
}

/// A file that is being written next to the one that it will be.
pub(in crate::cli) struct NewFile {
    to: PathBuf,
    existing: Existing,
    disk: Directory,
    temporary: String,
    name: String,
    /// What is written to.
    pub(in crate::cli) file: Box<dyn DiskFile>,
    is_done: bool,
}

impl NewFile {
    /// Begins one. Behind a symbolic link, it is the file that the link leads to that is replaced, and not the link:
    /// that may be anybody's, like /dev/stdout.
    pub(in crate::cli) fn create(to: &FilePath, existing: Existing) -> Result<NewFile, CliError> {
        existing.check(to)?;
        let is_link = fs::symlink_metadata(to).is_ok_and(|metadata| metadata.is_symlink());
        let real = if is_link { Some(fs::canonicalize(to)) } else { None };
        let real = real.transpose().map_err(|error| cannot("follow the link", to, error))?;
        let to = real.as_deref().unwrap_or(to);
        let name = to
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(|| CliError::Usage(format!("{} is no name for a file", to.display())))?;
        let folder = match to.parent() {
            Some(folder) if folder != FilePath::new("") => folder,
            _ => FilePath::new("."),
        };
        let disk = Directory::new(folder);
        let temporary = format!(".{name}.{:08x}.tmp", rt::random_u64() as u32);
        let file = {
            // Before a signal is heard that would miss it.
            let mut unfinished = UNFINISHED.lock();
            let file = disk.create(&temporary).map_err(|error| cannot("write", to, error))?;
            unfinished.push(disk.path().join(&temporary));
            file
        };
        let name = name.to_owned();
        let to = to.to_owned();
        Ok(NewFile { to, existing, disk, temporary, name, file, is_done: false })
    }

    /// Where it is while it is written.
    pub(in crate::cli) fn temporary(&self) -> PathBuf {
        self.disk.path().join(&self.temporary)
    }

    /// All is written: makes it safe, and gives it its name.
    pub(in crate::cli) fn finish(mut self) -> Result<(), CliError> {
        let named = self.file.sync().and_then(|()| {
            // From here on, a signal finds it as it should be.
            let mut unfinished = UNFINISHED.lock();
            self.take_name()?;
            forget(&mut unfinished, &self.temporary());
            Ok(())
        });
        match named.and_then(|()| self.disk.sync_dir()) {
            Ok(()) => {
                self.is_done = true;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists(&self.to)),
            Err(error) => Err(self.give_up(&error)),
        }
    }

    /// Another file may have got the name meanwhile.
    fn take_name(&self) -> io::Result<()> {
        let (from, to) = (self.temporary(), self.disk.path().join(&self.name));
        if self.existing == Existing::Keep {
            match fs::hard_link(&from, &to) {
                Ok(()) => return fs::remove_file(from),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
                // Not every file system has links.
                Err(_) if fs::symlink_metadata(&to).is_ok() => {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                Err(_) => {}
            }
        }
        self.disk.rename(&self.temporary, &self.name)
    }

    /// The error for what could not be written. The file goes, too.
    pub(in crate::cli) fn give_up(&self, error: &io::Error) -> CliError {
        cannot("write", &self.to, error)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_done {
            // It takes room, and nobody needs it. What went wrong is told already.
            let _ = self.disk.remove(&self.temporary);
        }
        forget(&mut UNFINISHED.lock(), &self.temporary());
    }
}

fn forget(unfinished: &mut Vec<PathBuf>, temporary: &FilePath) {
    unfinished.retain(|file| file != temporary);
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_stays_and_the_file_behind_it_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let write = |to: &FilePath| -> Result<(), CliError> {
            let mut new = NewFile::create(to, Existing::Replace)?;
            new.file.write_all(b"new").unwrap();
            new.finish()
        };
        fs::create_dir(at("elsewhere")).unwrap();
        fs::write(at("elsewhere/file"), "old").unwrap();
        symlink(at("elsewhere/file"), at("link")).unwrap();
        write(&at("link")).unwrap();
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(at("elsewhere/file")).unwrap(), "new");
        // Where it would be written cannot be told.
        symlink(at("nowhere"), at("dangling")).unwrap();
        let error = write(&at("dangling")).unwrap_err().to_string();
        assert!(error.contains("cannot follow the link"), "{error}");
        let error = write(&at("none/")).unwrap_err().to_string();
        assert!(error.contains("is a directory; name a file in it"), "{error}");
        // Standard output is a pipe or a terminal in most cases, which cannot be replaced.
        symlink("/dev/null", at("device")).unwrap();
        let error = write(&at("device")).unwrap_err().to_string();
        assert!(error.contains("no plain file"), "{error}");
        assert!(fs::symlink_metadata(at("device")).unwrap().is_symlink());
    }
}

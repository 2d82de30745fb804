//! `snapshot verify`: whether files are good.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path as FilePath, PathBuf};

use clap::Args;
use serde_json::json;

use crate::cli::error::CliError;
use crate::cli::files::directory::{Checked, HoleText, broken_in, check_directory};
use crate::cli::files::read::{notes_of, notes_on_meta, read_saved_states, read_state};
use crate::cli::files::{FileKind, Format, cannot, kind_of};
use crate::cli::terminal::output::{Output, count_of, printable};
use crate::cli::terminal::progress::ProgressBar;
use crate::storage::{LogReader, Progress, StorageError, verify_snapshot};

/// Check whether files are whole and undamaged
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node snapshot verify monday.dkv
  distkv-node snapshot verify /var/lib/distkv  # its files, and as a whole

Every byte of a snapshot and of an event log is covered by a checksum. Files of the Python \
DistKV and lines of JSON have none: they are only checked for being readable. A log that \
ends in the middle of a change is good, as its node was killed, or is still writing; a note \
says how much of that change is there. A snapshot that ends too early is not. A \
saved state of the Python DistKV has no end mark: where it ends between two entries, only a \
note says that changes are missing.

A node's data directory is also read as the node reads it at its start, whether that runs or \
not: its identity, how it was stopped, and whether each log goes on where the one before it \
ended. The last line says whether a node would start with it, and if not, what it would say. \
It is BAD, too, if a node would start with all data, but a log that leads from an older \
snapshot to a newer one is missing or cut, is another node's or one of another number, or cannot \
be read, or damaged: `history` and past states need it. With --json, `holes` has what is wrong with \
each, up to 8. \
A directory is a node's if it has a log, or a file `identity` or `lock`. \
After a crash of the machine, bytes that are no change may follow the last change of the last \
log: zeros, say. The start cuts them off, so the directory's log is good, with a note; in a \
log that is named by itself they are damage.

Exit code: 0 all are good, 1 one is not or cannot be read, 2 usage, 8 what was found cannot be written.")]
pub(super) struct VerifyArgs {
    /// The files; of a directory, all snapshots and event logs (*.dkv) in it, and whether they belong together
    #[arg(value_name = "FILE|DIR", required = true)]
    files: Vec<PathBuf>,

    /// Print JSON, one object per file
    #[arg(long)]
    pub(super) json: bool,
}

/// Most files that the line of a directory names, as of holes; of the others, their number.
const NAMED_MAX: usize = 8;

/// What was found in a good file.
struct Good {
    what: &'static str,
    /// None where they are not counted.
    entries: Option<u64>,
    /// What is remarkable, but no damage.
    notes: Vec<String>,
}

pub(super) fn run(args: &VerifyArgs, json: bool) -> Result<(), CliError> {
    let mut output = Output::of_verdict(json);
    let mut is_bad = false;
    for given in &args.files {
        // Read before its files, whose lines come first: without any, it says why.
        let whole = match given.is_dir() {
            true => check_directory(given, json).transpose(),
            false => None,
        };
        let broken = if whole.is_some() { broken_in(given) } else { BTreeMap::new() };
        let mut files = match all_files(given) {
            Err(_) if whole.is_some() => Vec::new(),
            files => files?,
        };
        // What is there, and is no file.
        files.extend(broken.keys().map(|name| given.join(name)).filter(|path| is_there(path)));
        files.sort();
        files.dedup();
        // What is wrong with files of the directory of which its own check does not know.
        let mut besides = Vec::new();
        for path in files {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let found = match &whole {
                Some(whole) if broken.contains_key(&*name) => {
                    let text = if whole.is_ok() {
                        StorageError::for_history
                    } else {
                        StorageError::to_string
                    };
                    Err(CliError::Failure(broken.get(&*name).map(text).unwrap_or_default()))
                }
                Some(Ok(checked)) if is_among(&path, &checked.unborn) => Ok(unborn()),
                Some(Ok(Checked { torn: Some((name, end)), .. })) if is_named(&path, name) => {
                    verify_log(&path, Some(*end), StorageError::to_string, json)
                }
                // A start goes without what is damaged there, and without an option.
                Some(Ok(_)) => verify(&path, StorageError::for_history, json),
                _ => verify(&path, StorageError::to_string, json),
            };
            if found.is_err() && path != *given && !is_there(&path) {
                // It was listed, and its node has removed it since: nobody needs it.
                continue;
            }
            if let Err(CliError::Failure(why) | CliError::Usage(why)) = &found
                && is_of_history(&name)
                && (!broken.contains_key(&*name) || name.starts_with("snapshot-"))
            {
                besides.push((name.into_owned(), why.clone()));
            }
            is_bad |= !tell(&path, found, &mut output)?;
        }
        if let Some(whole) = whole {
            is_bad |= match whole {
                Ok(Checked { hole, .. }) if hole.is_some() || !besides.is_empty() => {
                    tell_hole(given, &with_besides(hole, besides), &mut output)?;
                    true
                }
                Ok(Checked { notes, .. }) => {
                    let good = Good { what: "data directory", entries: None, notes };
                    !tell(given, Ok(good), &mut output)?
                }
                Err(error) => !tell(given, Err(error), &mut output)?,
            };
        }
    }
    output.flush()?;
    if is_bad { Err(CliError::Told) } else { Ok(()) }
}

/// Prints what was found; returns whether it is good.
fn tell(
    path: &FilePath,
    found: Result<Good, CliError>,
    output: &mut Output,
) -> Result<bool, CliError> {
    let name = path.display().to_string();
    match found {
        Ok(Good { what, entries, notes }) => {
            output.either(
                || {
                    json!({
                        "file": name, "good": true, "kind": what, "entries": entries,
                        "notes": notes,
                    })
                },
                || {
                    let entries = entries.map(|count| count_of(count, "entry", "entries"));
                    let entries = entries.map(|entries| format!(", {entries}")).unwrap_or_default();
                    let notes: String =
                        notes.iter().map(|note| format!("; {}", printable(note))).collect();
                    format!("{name}: good ({what}{entries}{notes})")
                },
            )?;
            Ok(true)
        }
        Err(CliError::Failure(why) | CliError::Usage(why)) => {
            output.either(
                || json!({ "file": name, "good": false, "error": why }),
                || format!("{name}: BAD: {}", printable(&why)),
            )?;
            Ok(false)
        }
        Err(other) => Err(other),
    }
}

/// Whether there is something of that name, if only a link that leads nowhere.
fn is_there(path: &FilePath) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Whether a file is one that a directory's past states and history are made of, by its name.
fn is_of_history(name: &str) -> bool {
    name.starts_with("log-") || name.starts_with("snapshot-")
}

/// What is wrong with a directory that a node starts with: the holes of which a start knows, and files whose content is damaged,
/// by their names, and what their own lines say.
fn with_besides(hole: Option<HoleText>, besides: Vec<(String, String)>) -> HoleText {
    let names: Vec<&str> = besides.iter().map(|(name, _)| name.as_str()).take(NAMED_MAX).collect();
    let names = match besides.len() - names.len() {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    };
    let mut told = match hole {
        None => HoleText {
            text: format!(
                "a node starts with the directory, and all data is there, but the history may not be whole: see the line of \
                 {names}"
            ),
            named: Vec::new(),
            count: 0,
        },
        Some(hole) if besides.is_empty() => hole,
        Some(hole) => {
            HoleText { text: format!("{}. See also the line of {names}", hole.text), ..hole }
        }
    };
    told.count += besides.len();
    let room = NAMED_MAX.saturating_sub(told.named.len());
    told.named.extend(besides.into_iter().take(room).map(|(_, why)| why));
    told
}

/// Prints that the history of a directory has holes.
fn tell_hole(path: &FilePath, hole: &HoleText, output: &mut Output) -> Result<(), CliError> {
    let name = path.display().to_string();
    output.either(
        || {
            json!({
                "file": name, "good": false, "error": hole.text, "holes": hole.named,
                "holes_count": hole.count,
            })
        },
        || format!("{name}: BAD: {}", printable(&hole.text)),
    )
}

/// Whether it is one of these in its directory.
fn is_among(path: &FilePath, names: &[String]) -> bool {
    names.iter().any(|name| is_named(path, name))
}

fn is_named(path: &FilePath, name: &str) -> bool {
    path.file_name() == Some(OsStr::new(name))
}

/// A log that was never begun.
fn unborn() -> Good {
    let note = "it was being begun when the node or the machine stopped, or the disk failed or was full; nothing is \
                in it, and nothing goes on from it";
    Good { what: "event log", entries: Some(0), notes: vec![note.to_owned()] }
}

/// The file, or those in the directory: snapshots and event logs, by their names' end.
fn all_files(path: &FilePath) -> Result<Vec<PathBuf>, CliError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| cannot("list", path, error))? {
        let file = entry.map_err(|error| cannot("list", path, error))?.path();
        if file.extension().is_some_and(|end| end == "dkv") && file.is_file() {
            found.push(file);
        }
    }
    if found.is_empty() {
        let text = format!("{}: no file here is named *.dkv; name the files", path.display());
        return Err(CliError::Failure(text));
    }
    found.sort();
    Ok(found)
}

/// `log_error` says what is wrong with an event log, and what to do.
fn verify(
    path: &FilePath,
    log_error: fn(&StorageError) -> String,
    json: bool,
) -> Result<Good, CliError> {
    match kind_of(path)? {
        FileKind::State(Format::Snapshot) => {
            let mut bar = ProgressBar::new(format!("verifying {}", path.display()), json);
            let file = File::open(path).map_err(|error| cannot("open", path, error))?;
            let name = path.display().to_string();
            let mut look = |progress: Progress| bar.entries(progress.entries, progress.total);
            let summary = verify_snapshot(&name, Box::new(file), &mut look)
                .map_err(|error| CliError::Failure(error.to_string()))?;
            Ok(Good { what: "snapshot", entries: Some(summary.entries), notes: Vec::new() })
        }
        FileKind::Log => verify_log(path, None, log_error, json),
        FileKind::State(Format::Distkv) => verify_distkv(path),
        FileKind::State(Format::Jsonl) => {
            let state = read_state(path, json)?;
            let entries = state.image.replica.tree.len() as u64;
            Ok(Good { what: "lines of JSON", entries: Some(entries), notes: state.notes })
        }
    }
}

/// A saved state or a change log of the Python DistKV.
fn verify_distkv(path: &FilePath) -> Result<Good, CliError> {
    let saved = read_saved_states(&[path], None)?;
    if let Some(error) = saved.cut_off.as_ref().filter(|_| !saved.is_log) {
        return Err(CliError::Failure(format!("{}: {error}", path.display())));
    }
    let mut notes = notes_of(&saved);
    notes.extend(notes_on_meta(&saved.image));
    let what = if saved.is_log { "DistKV change log" } else { "DistKV saved state" };
    let entries = Some(saved.image.replica.tree.len() as u64);
    Ok(Good { what, entries, notes })
}

/// An event log. `torn`: its node's start cuts it off behind that byte. `log_error` says what is wrong with it, and what to
/// do.
fn verify_log(
    path: &FilePath,
    torn: Option<u64>,
    log_error: fn(&StorageError) -> String,
    json: bool,
) -> Result<Good, CliError> {
    let mut bar = ProgressBar::new(format!("verifying {}", path.display()), json);
    let file = File::open(path).map_err(|error| cannot("open", path, error))?;
    let bytes = file.metadata().map_err(|error| cannot("read", path, error))?.len();
    let name = path.display().to_string();
    let bad = |error: StorageError| CliError::Failure(log_error(&error));
    let mut log = LogReader::new(&name, Box::new(file)).map_err(bad)?;
    let (mut entries, mut notes) = (0, Vec::new());
    loop {
        match log.next() {
            Ok(Some(batch)) => {
                entries += batch.ops.len() as u64;
                bar.bytes(batch.end, bytes);
            }
            Ok(None) => break,
            Err(_) if torn == Some(log.end()) => {
                let end = log.end();
                notes.push(format!(
                    "cut off behind byte {end}, as after a crash; the node drops what follows at its start"
                ));
                break;
            }
            Err(error) => return Err(bad(error)),
        }
    }
    if notes.is_empty() && log.end() < bytes {
        let (end, rest) = (log.end(), count_of(bytes - log.end(), "byte", "bytes"));
        notes.push(format!("the last {rest}, from {end} on: a change without its end"));
    }
    Ok(Good { what: "event log", entries: Some(entries), notes })
}

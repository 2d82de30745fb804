//! Files that hold a node's state: finding out which kind one is, reading any of them, and writing
//! them.
//!
//! | file | what |
//! |---|---|
//! | this one | the kinds of file, and how they are told apart |
//! | `directory` | a node's data directory as an image, and an image put into one |
//! | `gap` | a time in which a node does not surely know its state of a moment |
//! | `new_file` | a file that is written beside its place, and gets its name when it is whole |
//! | `read` | a file of any kind as an image |
//! | `ticket_file` | a file with a ticket |
//! | `write` | an image as a file of any kind |

pub(super) mod directory;
pub(super) mod gap;
pub(super) mod new_file;
pub(super) mod read;
pub(super) mod ticket_file;
pub(super) mod write;

use std::borrow::Borrow;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path as FilePath;

use clap::ValueEnum;

use super::error::CliError;
use crate::storage::header::START_BYTES;
use crate::storage::{self, header};

/// What a state can be kept as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// A snapshot of distkv-node: everything, checksummed
    Snapshot,
    /// A saved state of the Python DistKV
    Distkv,
    /// Lines of JSON: one entry per line
    Jsonl,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileKind {
    /// Something that holds a state.
    State(Format),
    /// An event log of distkv-node.
    Log,
}

impl Format {
    /// The word after `--format`.
    pub(super) fn word(self) -> &'static str {
        match self {
            Format::Snapshot => "snapshot",
            Format::Distkv => "distkv",
            Format::Jsonl => "jsonl",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Snapshot => "snapshot",
            Format::Distkv => "saved state of the Python DistKV",
            Format::Jsonl => "lines of JSON",
        })
    }
}

/// Finds out what a file is, by its beginning.
pub(super) fn kind_of(path: &FilePath) -> Result<FileKind, CliError> {
    if new_file::is_special(path) {
        return Err(CliError::Failure(format!(
            "{} is no plain file, and this command reads what it is given more than once; write it to a file first",
            path.display()
        )));
    }
    let mut start = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(START_BYTES as u64).read_to_end(&mut start));
    read.map_err(|error| cannot("read", path, error))?;
    if start.is_empty() {
        return Err(CliError::Failure(format!("{}: the file is empty", path.display())));
    }
    kind_of_start(&start).ok_or_else(|| {
        CliError::Failure(format!(
            "{}: neither a snapshot nor an event log of distkv-node, nor a saved state of the \
             Python DistKV, nor lines of JSON",
            path.display()
        ))
    })
}

fn kind_of_start(start: &[u8]) -> Option<FileKind> {
    match header::kind_of_start(start) {
        Some(storage::FileKind::Snapshot) => return Some(FileKind::State(Format::Snapshot)),
        Some(storage::FileKind::Log) => return Some(FileKind::Log),
        Some(storage::FileKind::Identity) | None => {}
    }
    let start = start.strip_prefix("\u{feff}".as_bytes()).unwrap_or(start);
    match start.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => Some(FileKind::State(Format::Jsonl)),
        // A MessagePack map.
        Some(0x80..=0x8f | 0xde | 0xdf) => Some(FileKind::State(Format::Distkv)),
        Some(_) | None => None,
    }
}

/// The error of something that the system refuses.
pub(super) fn cannot(action: &str, path: &FilePath, error: impl Borrow<io::Error>) -> CliError {
    let error = error.borrow();
    let hint = match (action, error.kind(), path.parent()) {
        // It is there, and takes no files: /proc, say.
        ("write", io::ErrorKind::NotFound, Some(parent)) if parent.is_dir() => {
            String::from("; name another place")
        }
        ("write", io::ErrorKind::NotFound, Some(parent)) => {
            format!("; make the directory {} first", parent.display())
        }
        // One that leads nowhere, where a new secret was to be.
        ("write", io::ErrorKind::AlreadyExists, _) if new_file::is_link(path) => {
            format!("; it{}", new_file::LINK_ADVICE)
        }
        _ => String::new(),
    };
    CliError::Failure(format!("cannot {action} {}: {error}{hint}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_to_be_made_only_where_there_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let told = |file: &str| {
            let error = io::Error::from(io::ErrorKind::NotFound);
            cannot("write", &folder.path().join(file), error).to_string()
        };
        assert!(told("none/file").ends_with("none first"), "{}", told("none/file"));
        // As in /proc.
        assert!(told("file").ends_with("; name another place"), "{}", told("file"));
    }

    #[test]
    fn files_are_told_apart_by_how_they_begin() {
        let state = |format| Some(FileKind::State(format));
        assert_eq!(
            kind_of_start(b"\x85\0\0\0abcd\xafdistkv-snapshot\x01"),
            state(Format::Snapshot)
        );
        assert_eq!(kind_of_start(b"\x85\0\0\0abcd\xaadistkv-log\x01"), Some(FileKind::Log));
        assert_eq!(kind_of_start(b" \n{\"path\""), state(Format::Jsonl));
        assert_eq!(kind_of_start("\u{feff}{\"path\"".as_bytes()), state(Format::Jsonl));
        assert_eq!(kind_of_start(b"\x85\xa5nodes"), state(Format::Distkv));
        assert_eq!(kind_of_start(b""), None);
        assert_eq!(kind_of_start(b"PK\x03\x04"), None);
    }
}

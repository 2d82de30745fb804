//! What can go wrong with files. Every message says which file, where in it, what is wrong, and
//! what to do.

pub(crate) mod absent;

use std::fmt;
use std::io;

use crate::error::absent::{is_folder, is_no_file, leads_nowhere};
use crate::log::log_name;
use crate::model::ids::NameError;
use crate::model::path::PathError;
use crate::model::value::ReadError;

/// Which kind of file something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A snapshot.
    Snapshot,
    /// An event log.
    Log,
    /// A data directory's `identity`.
    Identity,
}

impl FileKind {
    fn name(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot",
            Self::Log => "event log",
            Self::Identity => "identity file",
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a file could not be written or read. Each function says what this means for the files on
/// disk; nothing in memory was changed.
#[derive(Debug)]
pub enum StorageError {
    /// The system refused.
    Io {
        /// Which file.
        file: String,
        /// The operation: "read", "write" …
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Bytes are not as they were written.
    Damaged {
        /// Which file.
        file: String,
        /// What the file should be.
        kind: FileKind,
        /// Where the damaged frame begins.
        offset: u64,
        /// What is wrong.
        problem: FormatError,
    },
    /// The file ends too early: it was not written to its end.
    Incomplete {
        /// Which file.
        file: String,
        /// What the file should be.
        kind: FileKind,
        /// Where the missing part would begin.
        offset: u64,
    },
    /// Made by a later version.
    FutureVersion {
        /// Which file.
        file: String,
        /// What the file is.
        kind: FileKind,
        /// Its version.
        found: u64,
        /// The latest that is known here.
        known: u64,
    },
    /// Something whole that is of no kind that is known here.
    UnknownKind {
        /// Which file.
        file: String,
        /// What the file is.
        kind: FileKind,
        /// Where the frame with it begins.
        offset: u64,
        /// What is not known.
        problem: FormatError,
    },
    /// Not such a file at all.
    NotOne {
        /// Which file.
        file: String,
        /// What the file should be.
        kind: FileKind,
    },
    /// Something of another node or network.
    OtherOwner {
        /// Which file.
        file: String,
        /// Whose it is.
        found_name: Box<str>,
        /// Of which network.
        found_network: Box<str>,
        /// Whose it should be.
        name: Box<str>,
        /// Of which network.
        network: Box<str>,
    },
    /// The number in a file is not that in its name.
    Misnamed {
        /// Which file.
        file: String,
        /// The number in it.
        found: u64,
    },
    /// A log is missing between others.
    Missing {
        /// Which file; of several, the last.
        file: String,
        /// The first of several. Only the last is known to have been there: a number may be left out.
        first: Option<String>,
    },
    /// A log does not go on where the one before it ends.
    Shortened {
        /// The log that is too short.
        file: String,
        /// How long it is.
        offset: u64,
        /// How long it was.
        expected: u64,
    },
    /// A log continues a snapshot that is missing or damaged.
    NeedsSnapshot {
        /// The log.
        file: String,
        /// The snapshot that it needs.
        number: u64,
    },
    /// There are snapshots, but none is valid, and the logs do not reach back to the beginning.
    NoGoodSnapshot {
        /// The directory's newest snapshot.
        file: String,
        /// What is wrong with it.
        newest: Box<StorageError>,
    },
    /// The newest snapshot is not valid, and no log was begun with it: what it has may be nowhere else.
    OnlyCopy {
        /// The snapshot.
        file: String,
        /// What is wrong with it.
        problem: Box<StorageError>,
    },
    /// A file that is needed to tell of the past was removed while it was read, and so were others, each time.
    Removed {
        /// What the last reading has said.
        problem: Box<StorageError>,
    },
    /// What happened around a moment of the past was in a log that is missing or damaged.
    PastLost {
        /// What is wrong with the log.
        problem: Box<StorageError>,
        /// There are states of moments before this one, milliseconds since 1970; none: of no moment before.
        before_ms: Option<u64>,
        /// There are states from this moment on; none: of no moment behind.
        from_ms: Option<u64>,
    },
    /// An earlier write failed; the file must not be used on.
    Given {
        /// Which file.
        file: String,
        /// Where the file ends.
        offset: u64,
    },
    /// Another process uses the directory.
    Locked {
        /// Which directory.
        directory: String,
        /// By which process, if the lock file says it.
        by: Option<u32>,
    },
    /// A state was being put into a directory that has nothing else of a node.
    Unfinished {
        /// What was written of it.
        file: String,
    },
    /// A directory has files of something else, and none of a node.
    Foreign {
        /// Which directory.
        directory: String,
        /// Some of them, for people.
        names: String,
    },
    /// A directory cannot be made, as there is a symbolic link that leads to nothing.
    DanglingLink {
        /// Which directory.
        directory: String,
        /// The link: the directory's name, or one above it.
        link: String,
        /// Where it leads.
        to: String,
    },
    /// A directory in use was moved away, or another was put in its place.
    Replaced {
        /// Where it was.
        directory: String,
    },
    /// A log in use was removed, replaced or truncated.
    LogGone {
        /// Which file.
        file: String,
    },
    /// A file that was just written cannot be read back.
    NotVerified {
        /// Which file.
        file: String,
    },
}

/// What to do where a state of the past is lost.
const PAST_LOST: &str =
    "the state at that moment is lost, unless a good copy of the file is put back";

/// What to do about a file that is listed, and that nobody can open.
const DEAD_LINK: &str = "it is a symbolic link that leads nowhere: put back what it leads to (is the disk mounted?), or put a \
                         good copy of the file in its place";

/// What to do about a folder, or whatever else is no file, of that name.
const NO_FILE: &str =
    "move it away (`mv`), and put back the file that belongs there, if there was one";

/// Whether the process, or the whole system, has as many files open as it may (EMFILE, ENFILE): no fault of the disk.
pub(crate) fn is_too_many_files(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

impl std::error::Error for StorageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Damaged { problem, .. } | Self::UnknownKind { problem, .. } => Some(problem),
            Self::NoGoodSnapshot { newest, .. } => Some(newest),
            Self::PastLost { problem, .. }
            | Self::Removed { problem }
            | Self::OnlyCopy { problem, .. } => Some(problem),
            _ => None,
        }
    }
}

/// Which file, where, what is wrong; then what to do.
impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what(), self.advice())
    }
}

impl StorageError {
    /// Which file, where in it, and what is wrong.
    #[must_use]
    pub(crate) fn what(&self) -> String {
        match self {
            Self::Io { file, action, source } => format!("{file}: cannot {action}: {source}"),
            Self::Damaged { file, kind, offset, problem } => {
                format!("{file}: the {kind} is damaged at byte {offset}: {problem}")
            }
            Self::Incomplete { file, kind, offset } => {
                format!("{file}: the {kind} is not whole: something is missing at byte {offset}")
            }
            Self::FutureVersion { file, kind, found, known } => format!(
                "{file}: the {kind} has format version {found} (at byte 0), and this program \
                 reads up to {known}"
            ),
            Self::UnknownKind { file, kind, offset, problem } => format!(
                "{file}: the {kind} has (at byte {offset}) {problem}: its hash is right, so it is not damaged, and a \
                 newer version of distkv-node has perhaps written it; nothing was changed"
            ),
            Self::NotOne { file, kind } => {
                format!("{file}: this is no distkv {kind} (byte 0 is not the start of one)")
            }
            Self::OtherOwner { file, found_name, found_network, name, network } => format!(
                "{file}: it belongs to node {found_name:?} of network {found_network:?}, not to {name:?} of \
                 {network:?}"
            ),
            Self::Misnamed { file, found } => {
                format!("{file}: it says (at byte 0) that its number is {found}")
            }
            Self::Missing { file, first: None } => {
                format!("{file} is missing, all of it from byte 0: the next one goes on from it")
            }
            Self::Missing { file, first: Some(first) } => format!(
                "{file} is missing, all of it from byte 0: the next one goes on from it; any log from {first} up to it is \
                 missing, too"
            ),
            Self::Shortened { file, offset, expected } if offset > expected => format!(
                "{file}: it has {offset} bytes, but had {expected} when the next log was begun, so one of the two is not what \
                 it was"
            ),
            Self::Shortened { file, offset, expected } => {
                format!("{file}: it ends at byte {offset}, but had {expected} bytes")
            }
            Self::NeedsSnapshot { file, number } => format!(
                "{file}: it goes on (at byte 0) from snapshot {number}, which is missing or damaged"
            ),
            Self::NoGoodSnapshot { newest, .. } => {
                format!("no snapshot is good: {}", newest.what())
            }
            Self::OnlyCopy { problem, .. } => format!(
                "{}; no node has begun with this snapshot yet, so what it has may be nowhere else",
                problem.what()
            ),
            Self::PastLost { problem, .. } => problem.what(),
            Self::Removed { problem } => {
                format!("{}: old files are being removed", problem.what())
            }
            Self::Given { file, offset } => {
                format!("{file}: an earlier write failed (behind byte {offset})")
            }
            Self::Locked { directory, by: Some(process) } => {
                format!("{directory}: another node uses this data directory (process {process})")
            }
            Self::Locked { directory, by: None } => format!(
                "{directory}: another node uses this data directory (its file 'lock' is locked)"
            ),
            Self::Unfinished { file } => format!(
                "{file}: a state was being put into this directory (`snapshot restore --into`, or the like) when that was \
                 broken off, and nothing else of a node is in it; nothing was changed"
            ),
            Self::Foreign { directory, names } => format!(
                "{directory}: this is not the data directory of a node: it has other files ({names}) and \
                 none of a node"
            ),
            Self::DanglingLink { directory, link, to } => {
                let link = if link == directory { "it" } else { link };
                format!(
                    "{directory}: {link} is a symbolic link to {to}, which does not exist (is the disk mounted?)"
                )
            }
            Self::Replaced { directory } => format!(
                "{directory}: the directory, or the file 'lock' in it, was moved away, removed or replaced while \
                 the node was running"
            ),
            Self::LogGone { file } => {
                format!(
                    "{file}: the log in use was removed, replaced or truncated by another program"
                )
            }
            Self::NotVerified { file } => {
                format!("{file}: what was just written (from byte 0) reads back differently")
            }
        }
    }

    /// What to do.
    #[must_use]
    fn advice(&self) -> &'static str {
        match self {
            Self::Io { action: "make", source, .. }
                if source.kind() == io::ErrorKind::AlreadyExists =>
            {
                "it is a file, and a directory is needed: name another one"
            }
            Self::Io { source, .. } if is_too_many_files(source) => {
                "raise the limit on open files (ulimit -n)"
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                "name another directory, or, under systemd, let the service write there (`ReadWritePaths=`)"
            }
            Self::Io { action: "open", source, .. } if leads_nowhere(source) => DEAD_LINK,
            Self::Io { source, .. } if is_no_file(source) || is_folder(source) => NO_FILE,
            Self::Io { .. } => {
                "check that the disk works, has room, and can be written by this user"
            }
            Self::Damaged { kind: FileKind::Snapshot, .. }
            | Self::Incomplete { kind: FileKind::Snapshot, .. } => {
                "put back a good copy of the file, or use another snapshot"
            }
            Self::Damaged { .. } | Self::Incomplete { .. } | Self::Shortened { .. } => {
                "put back a good copy of the file, or start with --discard-damaged, which truncates \
                 at the first corruption (the node then catches up)"
            }
            Self::FutureVersion { .. } | Self::UnknownKind { .. } => {
                "use the program that wrote it, or a newer one"
            }
            Self::NotOne { .. } => "check the name, or put back a good copy if it was one",
            Self::OtherOwner { file, .. } if file.starts_with("snapshot-") => {
                "start with that name and network, or use another directory; or, if somebody has copied the file here, move it \
                 away (`mv`) and put back the one that this node had written"
            }
            Self::OtherOwner { .. } => "start with that name and network, or use another directory",
            Self::Misnamed { .. } => "give it its name back",
            Self::Missing { .. } | Self::NeedsSnapshot { .. } => {
                "put it back, or start with --discard-damaged, which keeps what is before it (the \
                 node then catches up)"
            }
            Self::NoGoodSnapshot { .. } => {
                "put back a good one, or start with --discard-damaged, which begins with nothing \
                 (the node then catches up, if there is a network)"
            }
            Self::OnlyCopy { .. } => {
                "put back a good one, or start with --discard-damaged, which begins with what was there before it"
            }
            Self::PastLost { .. } => PAST_LOST,
            Self::Removed { .. } => "try again",
            Self::Given { .. } => "begin a new file",
            Self::Locked { .. } => "stop that node, or use another directory",
            Self::Unfinished { .. } => {
                "type that command again; or remove the file, and a node begins here with nothing"
            }
            Self::Foreign { .. } => "name an empty directory, or one that does not exist yet",
            Self::DanglingLink { .. } => {
                "mount the disk that should be there, make what is missing, or name another directory"
            }
            Self::Replaced { .. } => {
                "put it back, or restart the node with the directory that it is to use"
            }
            Self::LogGone { .. } => {
                "keep other programs out of the data directory; the node begins anew with all that it holds"
            }
            Self::NotVerified { .. } => "check the disk",
        }
    }

    /// The same for whoever only reads files of a node: how to start the node is no advice for them, and it may well
    /// run without what is missing here.
    #[must_use]
    pub fn for_reader(&self) -> String {
        let advice = match self {
            Self::Damaged { .. } | Self::Incomplete { .. } | Self::Shortened { .. } => {
                "put back a good copy of the file"
            }
            Self::Missing { .. } | Self::NeedsSnapshot { .. } => "put it back",
            Self::NoGoodSnapshot { .. } | Self::OnlyCopy { .. } => "put back a good one",
            Self::OtherOwner { .. } | Self::Misnamed { .. } => {
                "put back the one that this node had written"
            }
            _ => self.advice(),
        };
        format!("{}; {advice}", self.what())
    }

    /// The same for whoever wants a state of the past. `show` makes a text of a moment, milliseconds since 1970.
    #[must_use]
    pub fn for_past(&self, show: &dyn Fn(u64) -> String) -> String {
        let Self::PastLost { before_ms, from_ms, .. } = self else { return self.for_reader() };
        let told = match (before_ms.map(show), from_ms.map(show)) {
            (Some(before), Some(from)) => format!("before {before} and from {from} on"),
            (Some(before), None) => format!("before {before}"),
            (None, Some(from)) => format!("from {from} on"),
            (None, None) => return self.to_string(),
        };
        format!("{self}. States {told} are available")
    }

    /// The same of a log that no start needs, as a newer snapshot has what it did.
    #[must_use]
    pub fn for_history(&self) -> String {
        if !self.is_of_the_file() {
            return self.to_string();
        }
        // Of a snapshot's content, its own check tells.
        if matches!(self, Self::OtherOwner { .. } | Self::Misnamed { .. } | Self::Io { .. })
            && self.file().is_some_and(|file| file.starts_with("snapshot-"))
        {
            let advice = "nobody needs it: a start and the history go without it. Move it away";
            return format!("{}; {advice}", self.what());
        }
        let advice = "only the history needs it: a node starts without it, and has all data. Put back a good copy of the \
                      file, or move all logs and snapshots with its number, or a smaller one, away: then the history is \
                      shorter";
        format!("{}; {advice}", self.what())
    }

    /// What is wrong with a frame whose hash is right, or is not.
    pub(crate) fn in_frame(file: &str, kind: FileKind, offset: u64, problem: FormatError) -> Self {
        let file = file.to_owned();
        match problem {
            FormatError::Unknown(..) => Self::UnknownKind { file, kind, offset, problem },
            problem => Self::Damaged { file, kind, offset, problem },
        }
    }

    /// What the system said about a file.
    pub(crate) fn io(file: &str, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { file: file.to_owned(), action, source }
    }

    /// The log of a number is missing, and all before it from another number on.
    pub(crate) fn missing(first: u64, number: u64) -> Self {
        let first = first.max(1);
        Self::Missing { file: log_name(number), first: (first < number).then(|| log_name(first)) }
    }

    /// Whether a file is damaged, is another one than its name says, or cannot be read, so that whoever tells of the past can go
    /// without it. A start takes another node's files for a mistake about the directory.
    #[must_use]
    pub(crate) fn is_of_the_file(&self) -> bool {
        self.is_damage() || matches!(self, Self::OtherOwner { .. })
    }

    /// The file that is at fault, if it is one; of several, the newest.
    #[must_use]
    pub(crate) fn file(&self) -> Option<&str> {
        match self {
            Self::Io { file, .. }
            | Self::Damaged { file, .. }
            | Self::Incomplete { file, .. }
            | Self::FutureVersion { file, .. }
            | Self::UnknownKind { file, .. }
            | Self::NotOne { file, .. }
            | Self::OtherOwner { file, .. }
            | Self::Misnamed { file, .. }
            | Self::Missing { file, .. }
            | Self::Shortened { file, .. }
            | Self::NeedsSnapshot { file, .. }
            | Self::NoGoodSnapshot { file, .. }
            | Self::OnlyCopy { file, .. }
            | Self::Given { file, .. }
            | Self::LogGone { file }
            | Self::Unfinished { file }
            | Self::NotVerified { file } => Some(file),
            Self::PastLost { problem, .. } | Self::Removed { problem } => problem.file(),
            Self::Locked { .. }
            | Self::Foreign { .. }
            | Self::DanglingLink { .. }
            | Self::Replaced { .. } => None,
        }
    }

    /// Whether it is the files that are at fault, so that going on with less is a way out.
    #[must_use]
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::Io { .. }
            | Self::Damaged { .. }
            | Self::Incomplete { .. }
            | Self::NotOne { .. }
            | Self::Misnamed { .. }
            | Self::Missing { .. }
            | Self::Shortened { .. }
            | Self::NeedsSnapshot { .. }
            | Self::NoGoodSnapshot { .. }
            | Self::OnlyCopy { .. } => true,
            Self::FutureVersion { .. }
            | Self::UnknownKind { .. }
            | Self::OtherOwner { .. }
            | Self::Given { .. }
            | Self::Locked { .. }
            | Self::Unfinished { .. }
            | Self::Foreign { .. }
            | Self::DanglingLink { .. }
            | Self::Replaced { .. }
            | Self::LogGone { .. }
            | Self::PastLost { .. }
            | Self::Removed { .. }
            | Self::NotVerified { .. } => false,
        }
    }

    /// Whether a frame is not as it was written. Damage of that kind may be what a power cut leaves
    /// of a write; bad content in a good frame is not.
    pub(crate) fn is_bad_frame(&self) -> bool {
        match self {
            Self::Damaged { problem, .. } => {
                matches!(problem, FormatError::Head | FormatError::Length(_) | FormatError::Hash)
            }
            Self::Incomplete { .. } => true,
            _ => false,
        }
    }

    /// Whether the disk is full (or the quota used up).
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        ))
    }
}

/// What is wrong with bytes of a file.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FormatError {
    /// A frame's length does not match the check beside it.
    #[error("a frame's length and its check do not match")]
    Head,
    /// A frame's length is out of range.
    #[error("a frame of {0} bytes is announced; 1 to {max} are allowed", max = super::frame::FRAME_BYTES_MAX)]
    Length(usize),
    /// A frame's content does not match its hash.
    #[error("a frame's content and its hash do not match")]
    Hash,
    /// Not the MessagePack that belongs there.
    #[error("bad content: {0}")]
    Read(#[from] ReadError),
    /// A path that is not canonical or breaks a limit.
    #[error("bad path: {0}")]
    Path(#[from] PathError),
    /// Paths that do not rise.
    #[error("an entry's path is not behind that of the entry before it")]
    Order,
    /// A name that no node can have.
    #[error("bad name: {0}")]
    Name(#[from] NameError),
    /// A counter out of range.
    #[error("the counter {0} is out of range")]
    Counter(u64),
    /// Tick ranges that are empty or out of range.
    #[error("bad ranges of ticks")]
    Ticks,
    /// An incarnation that the file has not named.
    #[error("incarnation number {0} was not named before")]
    Incarnation(u64),
    /// More incarnations than a node can keep track of.
    #[error("more incarnations than the {max} that a node keeps track of",
        max = crate::model::ids::NODE_TABLE_MAX)]
    TooManyIncarnations,
    /// A chain without events or with too many of them.
    #[error("a chain of {0} numbers")]
    Chain(usize),
    /// A list that is too long.
    #[error("{0} {1}")]
    TooMany(usize, &'static str),
    /// A member list that breaks a rule.
    #[error("bad member list")]
    Members,
    /// A kind of frame or record that a newer version may have written.
    #[error("{0} of kind {1}, which this program does not know")]
    Unknown(&'static str, u64),
    /// A kind of frame or record that does not belong there.
    #[error("{0} of kind {1}, which does not belong here")]
    Kind(&'static str, u64),
    /// Something that must be there is not.
    #[error("no {0}")]
    Lacks(&'static str),
    /// Counts at the end that differ from what was read.
    #[error("{what}: {found} were found, {said} were written")]
    Count {
        /// Of what.
        what: &'static str,
        /// How many were found.
        found: u64,
        /// How many there must be.
        said: u64,
    },
    /// The hash of the whole file is another one.
    #[error("the content and the hash of the whole file do not match")]
    FileHash,
    /// Extra bytes after the end.
    #[error("something follows the end")]
    Trailing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_descriptors_is_not_told_to_look_at_its_disk() {
        let text = |source| {
            let file = String::from("log-7.dkv");
            StorageError::Io { file, action: "make", source }.to_string()
        };
        for code in [23, 24] {
            let said = text(io::Error::from_raw_os_error(code));
            assert!(said.contains("ulimit -n") && !said.contains("disk"), "{said}");
        }
        assert!(text(io::Error::from_raw_os_error(28)).contains("check that the disk works"));
    }
}

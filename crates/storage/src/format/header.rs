//! The first frame of every file: what it is, of which version, and whose.
//!
//! MessagePack values one after the other: the magic text, the format's version, then, in version
//! 1: number, network, name, incarnation, store, time, the file's own id (device, inode, birth),
//! then in a log how it starts, in a snapshot the number of its entries. The first two values and
//! the form of frames are the same in all versions.

use crate::disk::FileId;
use crate::error::{FileKind, FormatError, StorageError};
use crate::frame::{FrameReader, Step};
use crate::model::ids::{Incarnation, NodeId, NodeName};
use crate::model::value::{Reader, write_array_len, write_str, write_u64};

/// The version of the formats that is written here, and the latest that can be read.
pub(crate) const FORMAT_VERSION: u64 = 1;
const SNAPSHOT_MAGIC: &str = "distkv-snapshot";
const LOG_MAGIC: &str = "distkv-log";
const IDENTITY_MAGIC: &str = "distkv-identity";
/// Most bytes of a network's name.
pub(crate) const NETWORK_BYTES_MAX: usize = 1024;

const START_EMPTY: u64 = 0;
const START_AFTER: u64 = 1;
const START_SNAPSHOT: u64 = 2;

/// Bytes at a file's start that [`kind_of_start`] needs.
pub const START_BYTES: usize = 256;

/// Whether a file that starts like this is a snapshot or a log of ours; none if it is neither. The words stand behind the
/// head of the first frame, so a damaged file still says what it was.
#[must_use]
pub fn kind_of_start(start: &[u8]) -> Option<FileKind> {
    let start = start.get(..START_BYTES).unwrap_or(start);
    let has = |word: &str| start.windows(word.len()).any(|window| window == word.as_bytes());
    if has(SNAPSHOT_MAGIC) {
        return Some(FileKind::Snapshot);
    }
    has(LOG_MAGIC).then_some(FileKind::Log)
}

/// Whose a file is, and when it was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHeader {
    /// Its number: snapshot n is the state at the very beginning of log n.
    pub number: u64,
    /// The network's name.
    pub network: String,
    /// The node, in which of its lives.
    pub id: NodeId,
    /// The id of the data directory; 0 for a file that was made elsewhere.
    pub store: u64,
    /// When it was begun, milliseconds since 1970.
    pub time_ms: u64,
}

/// What the state was when a log began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStart {
    /// Nothing at all: the first log of a node.
    Empty,
    /// What another log ended with.
    After {
        /// Its number.
        number: u64,
        /// Its length in bytes.
        bytes: u64,
    },
    /// That of the snapshot of the same number, and nothing else will do: changes between the log
    /// before and this one were not logged.
    Snapshot,
}

/// What a header says of this kind of file only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Log(LogStart),
    /// The number of its entries, for reports of progress.
    Snapshot(u64),
}

/// Appends the payload of a first frame.
pub(crate) fn write_header(header: &FileHeader, file: FileId, content: Content, out: &mut Vec<u8>) {
    let is_log = matches!(content, Content::Log(_));
    write_str(if is_log { LOG_MAGIC } else { SNAPSHOT_MAGIC }, out);
    write_u64(FORMAT_VERSION, out);
    write_u64(header.number, out);
    write_str(&header.network, out);
    write_str(header.id.name.as_str(), out);
    write_u64(header.id.incarnation.0, out);
    write_u64(header.store, out);
    write_u64(header.time_ms, out);
    write_file_id(file, out);
    match content {
        Content::Snapshot(entries) => write_u64(entries, out),
        Content::Log(LogStart::Empty) => {
            write_array_len(1, out);
            write_u64(START_EMPTY, out);
        }
        Content::Log(LogStart::After { number, bytes }) => {
            write_array_len(3, out);
            write_u64(START_AFTER, out);
            write_u64(number, out);
            write_u64(bytes, out);
        }
        Content::Log(LogStart::Snapshot) => {
            write_array_len(1, out);
            write_u64(START_SNAPSHOT, out);
        }
    }
}

pub(crate) fn write_file_id(file: FileId, out: &mut Vec<u8>) {
    write_u64(file.device, out);
    write_u64(file.inode, out);
    write_u64(file.born_ns, out);
}

pub(crate) fn read_file_id(r: &mut Reader<'_>) -> Result<FileId, FormatError> {
    Ok(FileId { device: r.read_u64()?, inode: r.read_u64()?, born_ns: r.read_u64()? })
}

/// What the first frame says.
#[derive(Debug, Clone)]
pub(crate) struct ReadHeader {
    pub(crate) header: FileHeader,
    pub(crate) file: FileId,
    pub(crate) content: Content,
}

/// Reads the first frame of a file that should be of that kind.
pub(crate) fn read_header(
    frames: &mut FrameReader,
    kind: FileKind,
) -> Result<ReadHeader, StorageError> {
    let file = frames.file().to_owned();
    let problem = match frames.next()? {
        Step::Frame { .. } => None,
        Step::End | Step::Incomplete => {
            return Err(StorageError::Incomplete { file, kind, offset: 0 });
        }
        Step::Bad(problem) => Some(problem),
    };
    if let Some(problem) = problem {
        // A flipped bit leaves the rest of the magic text standing; rubbish has none of it.
        let damaged = frames.looks_like(magic(kind).as_bytes());
        return Err(if damaged {
            StorageError::Damaged { file, kind, offset: 0, problem }
        } else {
            StorageError::NotOne { file, kind }
        });
    }
    let mut reader = Reader::new(frames.payload());
    if reader.read_str() != Ok(magic(kind)) {
        return Err(StorageError::NotOne { file, kind });
    }
    let damaged = |problem| StorageError::in_frame(&file, kind, 0, problem);
    let found = reader.read_u64().map_err(|error| damaged(error.into()))?;
    if found != FORMAT_VERSION {
        let known = FORMAT_VERSION;
        return Err(StorageError::FutureVersion { file, kind, found, known });
    }
    read_fields(reader, kind).map_err(damaged)
}

/// The text that a kind of file begins with.
pub(crate) fn magic(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Snapshot => SNAPSHOT_MAGIC,
        FileKind::Log => LOG_MAGIC,
        FileKind::Identity => IDENTITY_MAGIC,
    }
}

fn read_fields(mut r: Reader<'_>, kind: FileKind) -> Result<ReadHeader, FormatError> {
    let number = r.read_u64()?;
    let network = r.read_str()?;
    if network.len() > NETWORK_BYTES_MAX {
        return Err(FormatError::TooMany(network.len(), "bytes of a network's name"));
    }
    let network = network.to_owned();
    let name = NodeName::new(r.read_str()?)?;
    let id = NodeId { name, incarnation: Incarnation(r.read_u64()?) };
    let (store, time_ms) = (r.read_u64()?, r.read_u64()?);
    let file = read_file_id(&mut r)?;
    let content = match kind {
        FileKind::Log => Content::Log(read_start(&mut r)?),
        FileKind::Snapshot | FileKind::Identity => Content::Snapshot(r.read_u64()?),
    };
    r.finish()?;
    let header = FileHeader { number, network, id, store, time_ms };
    Ok(ReadHeader { header, file, content })
}

fn read_start(r: &mut Reader<'_>) -> Result<LogStart, FormatError> {
    let fields = r.read_array_len()?;
    match (r.read_u64()?, fields) {
        (START_EMPTY, 1) => Ok(LogStart::Empty),
        (START_AFTER, 3) => Ok(LogStart::After { number: r.read_u64()?, bytes: r.read_u64()? }),
        (START_SNAPSHOT, 1) => Ok(LogStart::Snapshot),
        (known @ (START_EMPTY | START_AFTER | START_SNAPSHOT), _) => {
            Err(FormatError::Kind("a start", known))
        }
        (other, _) => Err(FormatError::Unknown("a start", other)),
    }
}

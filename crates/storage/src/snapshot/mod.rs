//! The snapshot: a node's whole state at one moment.
//!
//! A header frame ([`super::header`]); frames of kind 3 with the incarnations and all that the
//! node knew ([`super::format::knowledge`]); frames of kind 4 with the entries, tombstones included, in the
//! order of their paths; a last frame of kind 5 with the counts of entries, of tombstones and of
//! incarnations, and the xxHash64 (seed 0) of all bytes before it. Payloads begin with the kind.

mod reader;
mod writer;

pub use reader::{SnapshotReader, SnapshotSummary, read_snapshot, verify_snapshot};
pub use writer::{SnapshotInfo, write_snapshot, write_snapshot_to};

const KNOWLEDGE: u64 = 3;
const ENTRIES: u64 = 4;
const END: u64 = 5;

/// The progress of a long piece of work. Reported once per frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Entries that are done.
    pub entries: u64,
    /// The total, if it is known.
    pub total: u64,
    /// Bytes that are done.
    pub(crate) bytes: u64,
}

/// The name of a snapshot's file.
#[must_use]
pub fn snapshot_name(number: u64) -> String {
    format!("snapshot-{number}.dkv")
}

/// The name that a file has while it is being written.
#[must_use]
pub fn temporary_name(name: &str) -> String {
    format!("{name}.tmp")
}

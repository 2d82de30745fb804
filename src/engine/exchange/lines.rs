//! An image as lines of JSON ([`crate::protocol::lines`]), and back. An image of such a file knows of
//! no change but those in the chains of its entries: the "other file" of RULES 9.

use std::sync::Arc;

use xxhash_rust::xxh64::xxh64;

use super::super::Image;
use super::{Entries, PIECE_BYTES};
use crate::model::ids::{Incarnation, NodeId, NodeName, NodeTable, Tick, Tock};
use crate::model::path::Path;
use crate::model::seen::{Mark, Seen};
use crate::model::tree::Tree;
use crate::protocol::lines::{LineError, decode_version, write_line};
use crate::replica::come_back::ReplicaImage;

/// Makes the file, piece by piece, in the order of the tree.
pub struct LinesExport {
    table: Arc<NodeTable>,
    entries: Entries,
    with_tombstones: bool,
}

impl LinesExport {
    /// Of what is at and below a path.
    #[must_use]
    pub fn new(image: &Image, top: &Path, with_tombstones: bool) -> Self {
        let table = Arc::clone(&image.replica.table);
        Self { table, entries: Entries::below(&image.replica.tree, top), with_tombstones }
    }

    /// Appends the next piece of the file; tells whether there is more, and how many lines came.
    pub fn next_piece(&mut self, out: &mut Vec<u8>) -> (bool, u64) {
        let (from, mut lines) = (out.len(), 0);
        while out.len() - from < PIECE_BYTES {
            let Some((path, entry)) = self.entries.next() else { return (false, lines) };
            if self.with_tombstones || !entry.is_tombstone() {
                write_line(&path, &entry, &self.table, out);
                lines += 1;
            }
        }
        (true, lines)
    }
}

/// Why lines make no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinesImageError {
    /// A line is not what it must be.
    #[error("line {line}: {error}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong.
        error: LineError,
    },
    /// They name more nodes than a node can keep track of.
    #[error("line {0}: more nodes than a node can keep track of")]
    TableFull(u64),
}

/// Gathers lines into an image.
pub struct LinesImport {
    table: NodeTable,
    tree: Tree,
    seen: Seen,
    tock: Tock,
    lines: u64,
    hash: u64,
}

impl Default for LinesImport {
    fn default() -> Self {
        Self::new()
    }
}

impl LinesImport {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            table: NodeTable::new(),
            tree: Tree::new(0),
            seen: Seen::new(),
            tock: Tock::default(),
            lines: 0,
            hash: 0,
        }
    }

    /// Takes the next line; empty ones count but say nothing. Of two versions of an entry the
    /// greater stays.
    ///
    /// # Errors
    /// [`LinesImageError`].
    pub fn take(&mut self, text: &str) -> Result<(), LinesImageError> {
        self.lines += 1;
        self.hash = xxh64(text.as_bytes(), self.hash);
        if text.trim().is_empty() {
            return Ok(());
        }
        let line = self.lines;
        let decoded = decode_version(text);
        let (said, version) = decoded.map_err(|error| LinesImageError::Line { line, error })?;
        let entry = version.entry(said.value.as_ref(), &mut self.table);
        let entry = entry.ok_or(LinesImageError::TableFull(line))?;
        for event in entry.events() {
            self.seen.insert(event);
        }
        self.tock = self.tock.max(entry.tock());
        let old = self.tree.get(said.path.as_bytes());
        if !old.is_some_and(|old| entry.compare(old, &self.table).is_le()) {
            self.tree.insert(&said.path, entry);
        }
        Ok(())
    }

    /// The image. It is nobody's: `name` is for those who must put one into a file.
    #[must_use]
    pub fn finish(mut self, name: NodeName) -> Image {
        let id = NodeId { name, incarnation: Incarnation(self.hash) };
        // A file of ours names its node. It made no change, so a full table does no harm.
        let _ = self.table.intern(&id);
        Image {
            replica: ReplicaImage {
                id,
                table: Arc::new(self.table),
                tree: self.tree,
                seen: self.seen,
                mark: Mark::default(),
                tick: Tick::default(),
                tock: self.tock,
            },
            group: None,
            decided: None,
        }
    }
}

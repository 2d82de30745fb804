//! An image as lines of JSON ([`crate::protocol::lines`]), and back. An image of such a file knows of
//! no change but those that its entries account for: the "other file" of replication rule 9.
//!
//! Edited lines are changes by somebody who had the file, and knew nothing later. So the file gets
//! a node of its own, `edited`, under an incarnation that is derived from its content: the same
//! file brings the same changes everywhere, another file brings others. Their tock is above all
//! tocks of the file. A line with another value continues the version that it names. If a line
//! names another version than it was written from (or another path), only its path and value are
//! used: ticks that it made up would hide real changes for ever.

use std::sync::Arc;

use xxhash_rust::xxh64::xxh64;

use crate::engine::Image;
use crate::engine::exchange::{Entries, PIECE_BYTES};
use crate::model::chain::{Chain, ChainBound};
use crate::model::entry::{Entry, EntryParts};
use crate::model::ids::{Event, Incarnation, NodeId, NodeName, NodeTable, Tick, Tock};
use crate::model::left_out::{LeftOut, accounted_events};
use crate::model::path::Path;
use crate::model::seen::{Mark, Seen};
use crate::model::value::Value;
use crate::protocol::lines::{Line, LineError, Standing, decode_version, write_line};
use crate::replica::come_back::ReplicaImage;
use crate::tree::Tree;

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

    /// Appends the next piece of the file; returns whether there is more, and the number of lines
    /// added.
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
    /// A line is malformed.
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

/// The name under which edited lines are changes.
const EDITOR: &str = "edited";

/// A line that was edited.
struct Edit {
    path: Path,
    value: Option<Value>,
    /// The version that it goes on from, but for its value.
    base: Option<Entry>,
}

/// Gathers lines into an image.
pub struct LinesImport {
    table: NodeTable,
    tree: Tree,
    seen: Seen,
    tock: Tock,
    lines: u64,
    hash: u64,
    edits: Vec<Edit>,
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
            edits: Vec::new(),
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
        let full = LinesImageError::TableFull(line);
        let Line { path, value } = said;
        match version.standing {
            Standing::AsWritten => {
                let entry = version.entry(value.as_ref(), &mut self.table).ok_or(full)?;
                self.tock = self.tock.max(entry.tock());
                self.insert(&path, entry);
            }
            Standing::OtherValue => {
                let base = version.base(&mut self.table).ok_or(full)?;
                self.tock = self.tock.max(version.tock);
                self.edits.push(Edit { path, value, base: Some(base) });
            }
            Standing::OtherVersion => self.edits.push(Edit { path, value, base: None }),
        }
        Ok(())
    }

    /// How many lines were edited.
    #[must_use]
    pub fn edited(&self) -> u64 {
        self.edits.len() as u64
    }

    fn insert(&mut self, path: &Path, entry: Entry) {
        for event in accounted_events(&entry) {
            self.seen.insert(event);
        }
        let old = self.tree.get(path.as_bytes());
        if !old.is_some_and(|old| entry.compare(old, &self.table).is_le()) {
            self.tree.insert(path, entry);
        }
    }

    /// Makes changes of the lines that were edited.
    fn make_changes(&mut self) -> Option<()> {
        let edits = std::mem::take(&mut self.edits);
        if edits.is_empty() {
            return Some(());
        }
        let id = NodeId {
            name: NodeName::new(EDITOR).ok()?,
            incarnation: Incarnation::of_random(self.hash),
        };
        let node = self.table.intern(&id)?;
        self.tock = self.tock.next()?;
        let mut tick = Tick::default();
        for Edit { path, value, base } in edits {
            tick = tick.next()?;
            let event = Event { node, tick };
            let bound = ChainBound::default();
            let (chain, left_out) = match &base {
                Some(base) => {
                    let left_out = LeftOut::on_top_of(base, event, bound);
                    (base.chain().extended(event, bound), left_out)
                }
                None => (Chain::first(event), LeftOut::default()),
            };
            let value = value.as_ref().map(Value::as_bytes);
            let entry = Entry::new(&EntryParts {
                value,
                chain: &chain,
                tock: self.tock,
                origin: None,
                time: None,
                extra: &left_out.put_into(&[]),
            });
            self.insert(&path, entry);
        }
        Some(())
    }

    /// The image. It belongs to no node: `name` is for callers that must put one into a file.
    ///
    /// # Errors
    /// [`LinesImageError::TableFull`].
    pub fn finish(mut self, name: NodeName) -> Result<Image, LinesImageError> {
        self.make_changes().ok_or(LinesImageError::TableFull(self.lines))?;
        let id = NodeId { name, incarnation: Incarnation::of_random(self.hash) };
        // A file of ours names its node. It made no change, so a full table does no harm.
        let _ = self.table.intern(&id);
        Ok(Image {
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
        })
    }
}

//! Reads a snapshot, entry by entry: at a start, and for tools that inspect one.

use std::io::Read;
use std::sync::Arc;

use super::{END, ENTRIES, KNOWLEDGE, Progress, snapshot_name};
use crate::disk::Disk;
use crate::engine::{Image, Knowledge};
use crate::error::{FileKind, FormatError, StorageError};
use crate::format::knowledge::KnowledgeParts;
use crate::format::record::{Dictionary, Record};
use crate::frame::{FrameReader, Step};
use crate::header::{Content, FileHeader, read_header};
use crate::model::ids::{NodeTable, Tock};
use crate::model::path::Path;
use crate::model::value::Reader;
use crate::recovery::bulk::BulkTree;
use crate::replica::Committed;
use crate::replica::come_back::ReplicaImage;

/// A snapshot that is being read. Its contents can be trusted only when [`SnapshotReader::next`]
/// has returned `None`: only then has all of it been read and compared with its last frame.
pub struct SnapshotReader {
    frames: FrameReader,
    header: FileHeader,
    total: u64,
    nodes: Dictionary,
    knowledge: Knowledge,
    /// Where the frame begins that is being read.
    offset: u64,
    /// How much of its payload was read.
    at: usize,
    /// The path of the last entry.
    last: Option<Path>,
    entries: u64,
    tombstones: u64,
    is_done: bool,
}

/// What is in a snapshot.
#[derive(Clone)]
pub struct SnapshotSummary {
    /// Whose it is.
    pub header: FileHeader,
    /// The node's knowledge; in the indices of `table`.
    pub knowledge: Knowledge,
    /// The incarnations that its node knew.
    pub(crate) table: NodeTable,
    /// Its entries, tombstones included.
    pub entries: u64,
    /// The tombstones among them.
    pub tombstones: u64,
    /// Its length in bytes.
    pub(crate) bytes: u64,
}

impl SnapshotReader {
    /// Opens a snapshot by its number, and reads the header and what the node knew.
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn open(disk: &dyn Disk, number: u64) -> Result<Self, StorageError> {
        let name = snapshot_name(number);
        let source = disk.open(&name).map_err(StorageError::io(&name, "open"))?;
        Self::new(&name, source)
    }

    /// Reads the header and what the node knew. `name` is for messages.
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn new(name: &str, source: Box<dyn Read + Send>) -> Result<Self, StorageError> {
        let mut frames = FrameReader::new(name, source).hashing();
        let read = read_header(&mut frames, FileKind::Snapshot)?;
        let total = match read.content {
            Content::Snapshot(entries) => entries,
            Content::Log(_) => 0,
        };
        let mut nodes = Dictionary::new(NodeTable::new());
        let mut parts = KnowledgeParts::default();
        loop {
            let offset = next_frame(&mut frames)?;
            let damaged = |problem| damaged(name, offset, problem);
            let mut reader = Reader::new(frames.payload());
            let kind = reader.read_u64().map_err(|error| damaged(error.into()))?;
            if kind == KNOWLEDGE {
                read_knowledge(&mut nodes, &mut parts, reader).map_err(damaged)?;
                continue;
            }
            if kind != ENTRIES && kind != END {
                return Err(damaged(FormatError::Unknown("a frame", kind)));
            }
            // The first frame of entries, or the end, is looked at again in `next`.
            let knowledge = parts.take().ok_or(FormatError::Lacks("state")).map_err(damaged)?;
            return Ok(Self {
                header: read.header,
                total,
                nodes,
                knowledge,
                frames,
                offset,
                at: 0,
                last: None,
                entries: 0,
                tombstones: 0,
                is_done: false,
            });
        }
    }

    /// Whose it is.
    #[must_use]
    pub fn header(&self) -> &FileHeader {
        &self.header
    }

    /// The node's knowledge; in the indices of [`SnapshotReader::table`].
    #[must_use]
    pub(crate) fn knowledge(&self) -> &Knowledge {
        &self.knowledge
    }

    /// How far it was read.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress { entries: self.entries, total: self.total, bytes: self.frames.position() }
    }

    /// The next entry, in the order of paths; `None` at the end of a complete and valid snapshot.
    ///
    /// # Errors
    /// [`StorageError`]; then nothing that was read before can be trusted either.
    #[allow(
        clippy::should_implement_trait,
        reason = "what an iterator gave could be believed at once"
    )]
    pub(crate) fn next(&mut self) -> Result<Option<Committed>, StorageError> {
        if self.is_done {
            return Ok(None);
        }
        if self.at >= self.frames.payload().len() {
            self.offset = next_frame(&mut self.frames)?;
            self.at = 0;
        }
        let read = self.read_next();
        match read.map_err(|problem| damaged(self.frames.file(), self.offset, problem))? {
            Some(entry) => Ok(Some(entry)),
            None => self.finish().map(|()| None),
        }
    }

    /// Reads all of it, and keeps the entries; if a path is given, only those at and below it: that is a state to look at, and
    /// not to continue. The seed is for the tree's hashes.
    ///
    /// # Errors
    /// [`StorageError`]; nothing of it may be used.
    pub(crate) fn into_image(
        mut self,
        below: Option<&Path>,
        hash_seed: u64,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(FileHeader, Image), StorageError> {
        // Of a part nobody knows how much it is.
        let expected = if below.is_some() { 0 } else { self.total };
        let expected = usize::try_from(expected).unwrap_or(usize::MAX);
        let mut tree = BulkTree::new(hash_seed, expected);
        let mut tock = Tock::default();
        self.read_all(progress, |Committed { path, entry }| {
            tock = tock.max(entry.tock());
            if below.is_none_or(|below| path.strip_prefix(below).is_some()) {
                let is_tombstone = entry.is_tombstone();
                tree.push(path, entry, is_tombstone);
            }
        })?;
        let SnapshotSummary { header, knowledge, table, .. } = self.into_summary();
        let Knowledge { id, tick, tock: own_tock, seen, mark, group, decided } = knowledge;
        let (table, tock) = (Arc::new(table), own_tock.max(tock).max(mark.top()));
        let tree = tree.finish();
        let replica = ReplicaImage { id, table, tree, seen, mark, tick, tock };
        Ok((header, Image { replica, group, decided }))
    }

    /// Reads all of it without keeping its entries.
    ///
    /// # Errors
    /// [`StorageError`] says what is wrong with it.
    pub(crate) fn verify(
        mut self,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<SnapshotSummary, StorageError> {
        self.read_all(progress, |_| {})?;
        Ok(self.into_summary())
    }

    /// Gives all entries, and tells the progress once per frame.
    fn read_all(
        &mut self,
        progress: &mut dyn FnMut(Progress),
        mut take: impl FnMut(Committed),
    ) -> Result<(), StorageError> {
        let mut frame = self.offset;
        while let Some(entry) = self.next()? {
            take(entry);
            if frame != self.offset {
                frame = self.offset;
                progress(self.progress());
            }
        }
        progress(self.progress());
        Ok(())
    }

    /// All that is known of a snapshot that was read to its end.
    #[must_use]
    pub(crate) fn into_summary(self) -> SnapshotSummary {
        SnapshotSummary {
            header: self.header,
            knowledge: self.knowledge,
            table: self.nodes.into_table(),
            entries: self.entries,
            tombstones: self.tombstones,
            bytes: self.frames.position(),
        }
    }

    /// An entry, or `None` after the last frame's counts.
    fn read_next(&mut self) -> Result<Option<Committed>, FormatError> {
        let payload = self.frames.payload();
        let mut reader = Reader::new(payload.get(self.at..).unwrap_or_default());
        if self.at == 0 {
            match reader.read_u64()? {
                ENTRIES => {}
                END => return self.check_end(reader).map(|()| None),
                KNOWLEDGE => return Err(FormatError::Kind("a frame", KNOWLEDGE)),
                other => return Err(FormatError::Unknown("a frame", other)),
            }
        }
        let Record::Entry { path, entry } = self.nodes.read(&mut reader)? else {
            return Err(FormatError::Kind("a record", ENTRIES));
        };
        self.at = payload.len() - reader.rest().len();
        if self.last.as_ref().is_some_and(|last| *last >= path) {
            return Err(FormatError::Order);
        }
        self.entries += 1;
        self.tombstones += u64::from(entry.is_tombstone());
        self.last = Some(path.clone());
        Ok(Some(Committed { path, entry }))
    }

    fn check_end(&self, mut r: Reader<'_>) -> Result<(), FormatError> {
        let counts = [
            ("entries", self.entries),
            ("tombstones", self.tombstones),
            ("incarnations", self.nodes.len() as u64),
        ];
        for (what, found) in counts {
            let said = r.read_u64()?;
            if said != found {
                return Err(FormatError::Count { what, found, said });
            }
        }
        if r.read_u64()? != self.frames.hash_before() {
            return Err(FormatError::FileHash);
        }
        Ok(r.finish()?)
    }

    /// Nothing may follow the last frame.
    fn finish(&mut self) -> Result<(), StorageError> {
        let end = self.frames.position();
        if !matches!(self.frames.next()?, Step::End) {
            return Err(damaged(self.frames.file(), end, FormatError::Trailing));
        }
        self.is_done = true;
        Ok(())
    }
}

fn read_knowledge(
    nodes: &mut Dictionary,
    parts: &mut KnowledgeParts,
    mut r: Reader<'_>,
) -> Result<(), FormatError> {
    while !r.is_at_end() {
        match nodes.read(&mut r)? {
            Record::Node => {}
            Record::Knowledge { kind, fields } => parts.read(kind, fields, nodes, &mut r)?,
            Record::Entry { .. } | Record::Gone { .. } => {
                return Err(FormatError::Kind("a record", KNOWLEDGE));
            }
        }
    }
    Ok(())
}

/// The next frame's position; there must be one.
fn next_frame(frames: &mut FrameReader) -> Result<u64, StorageError> {
    let kind = FileKind::Snapshot;
    match frames.next()? {
        Step::Frame { offset } => Ok(offset),
        Step::End | Step::Incomplete => Err(StorageError::Incomplete {
            file: frames.file().to_owned(),
            kind,
            offset: frames.position(),
        }),
        Step::Bad(problem) => Err(damaged(frames.file(), frames.position(), problem)),
    }
}

fn damaged(file: &str, offset: u64, problem: FormatError) -> StorageError {
    StorageError::in_frame(file, FileKind::Snapshot, offset, problem)
}

/// Reads a whole snapshot. The seed is for the tree's hashes.
///
/// # Errors
/// [`StorageError`]; nothing of it may be used.
pub fn read_snapshot(
    name: &str,
    source: Box<dyn Read + Send>,
    hash_seed: u64,
    progress: &mut dyn FnMut(Progress),
) -> Result<(FileHeader, Image), StorageError> {
    SnapshotReader::new(name, source)?.into_image(None, hash_seed, progress)
}

/// Reads a whole snapshot without keeping its entries.
///
/// # Errors
/// [`StorageError`] says what is wrong with it.
pub fn verify_snapshot(
    name: &str,
    source: Box<dyn Read + Send>,
    progress: &mut dyn FnMut(Progress),
) -> Result<SnapshotSummary, StorageError> {
    SnapshotReader::new(name, source)?.verify(progress)
}

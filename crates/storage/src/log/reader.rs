//! Reads an event log, batch by batch: at a start, and for tools that inspect one.

use std::io::Read;

use super::{LAST, MORE, STOPPED, log_name};
use crate::batch::Op;
use crate::disk::{Disk, FileId};
use crate::engine::Knowledge;
use crate::error::{FileKind, FormatError, StorageError};
use crate::format::knowledge::KnowledgeParts;
use crate::format::record::{Dictionary, Record};
use crate::frame::{Beyond, FrameReader, Step};
use crate::header::{Content, FileHeader, LogStart, read_header};
use crate::model::ids::{Incarnation, NodeTable};
use crate::model::value::Reader;
use crate::replica::Committed;

/// A log that is being read.
pub struct LogReader {
    frames: FrameReader,
    header: FileHeader,
    file_id: FileId,
    start: LogStart,
    /// The node's, as far as was read: it may renew itself while it runs, and says so.
    life: Incarnation,
    nodes: Dictionary,
    /// The position after the last complete batch, or after the header.
    end: u64,
    /// The frames that were read since belong to a batch whose end was not there yet.
    partial: LogBatch,
    parts: KnowledgeParts,
}

/// A batch as it is in a log; see [`super::super::Batch`]. Events are in the indices of
/// [`LogReader::table`].
#[derive(Debug, Default)]
pub struct LogBatch {
    /// Where its first frame begins, in bytes.
    pub offset: u64,
    /// Where its last frame ends.
    pub end: u64,
    /// When it happened, milliseconds since 1970.
    pub time_ms: u64,
    /// A position up to which the log had been synced when this was written.
    pub synced: u64,
    /// What happened to the tree, in order.
    pub ops: Vec<Op>,
    /// The node's knowledge, where it was written down.
    pub knowledge: Option<Knowledge>,
    /// Whether the node said with it that it stops.
    pub is_stop: bool,
}

impl LogReader {
    /// Opens a log by its number.
    ///
    /// # Errors
    /// [`StorageError`], of its header too.
    pub fn open(disk: &dyn Disk, number: u64) -> Result<Self, StorageError> {
        let name = log_name(number);
        let source = disk.open(&name).map_err(StorageError::io(&name, "open"))?;
        Self::new(&name, source)
    }

    /// Reads a log from anywhere; `name` is for messages.
    ///
    /// # Errors
    /// [`StorageError`], of its header too.
    pub fn new(name: &str, source: Box<dyn Read + Send>) -> Result<Self, StorageError> {
        let mut frames = FrameReader::new(name, source);
        let read = read_header(&mut frames, FileKind::Log)?;
        let start = match read.content {
            Content::Log(start) => start,
            Content::Snapshot(_) => LogStart::Snapshot,
        };
        Ok(Self {
            end: frames.position(),
            life: read.header.id.incarnation,
            header: read.header,
            file_id: read.file,
            start,
            nodes: Dictionary::new(NodeTable::new()),
            frames,
            partial: LogBatch::default(),
            parts: KnowledgeParts::default(),
        })
    }

    /// Whose log it is.
    #[must_use]
    pub fn header(&self) -> &FileHeader {
        &self.header
    }

    /// Which file it was written as.
    #[must_use]
    pub(crate) fn file_id(&self) -> FileId {
        self.file_id
    }

    /// The state that it continues.
    #[must_use]
    pub fn start(&self) -> LogStart {
        self.start
    }

    /// The life that the node was in at the end of what was read; at first, the one in which it began this log.
    #[must_use]
    pub(crate) fn life(&self) -> Incarnation {
        self.life
    }

    /// The incarnations named so far.
    #[must_use]
    pub fn table(&self) -> &NodeTable {
        self.nodes.table()
    }

    /// The incarnations that it names are added to this table. To be called before the first
    /// batch is read.
    pub fn name_into(&mut self, table: NodeTable) {
        self.nodes = Dictionary::new(table);
    }

    /// Gives the table back, for reading the next file.
    #[must_use]
    pub fn into_table(self) -> NodeTable {
        self.nodes.into_table()
    }

    /// The position after the last complete batch.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The next batch; `None` where no whole one follows (yet: of a file that is still being
    /// written more may come).
    ///
    /// # Errors
    /// [`StorageError::Damaged`]; nothing more can be read.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator could not say that more may come"
    )]
    pub fn next(&mut self) -> Result<Option<LogBatch>, StorageError> {
        loop {
            match self.frames.next()? {
                Step::Frame { offset } => {
                    if self.read_frame(offset).map_err(|problem| self.damaged(offset, problem))? {
                        self.end = self.frames.position();
                        let mut batch = std::mem::take(&mut self.partial);
                        batch.end = self.end;
                        batch.knowledge = self.parts.take();
                        if let Some(knowledge) = &batch.knowledge {
                            self.life = knowledge.id.incarnation;
                        }
                        return Ok(Some(batch));
                    }
                }
                Step::End | Step::Incomplete => return Ok(None),
                Step::Bad(problem) => return Err(self.damaged(self.frames.position(), problem)),
            }
        }
    }

    /// Tells where each batch ends, and its time, milliseconds since 1970, as far as whole batches can be read. To be called
    /// before the first batch is read.
    ///
    /// # Errors
    /// [`StorageError::Io`]: the file cannot be read.
    pub(crate) fn times(mut self, tell: &mut dyn FnMut(u64, u64)) -> Result<(), StorageError> {
        while let Step::Frame { .. } = self.frames.next()? {
            let Ok(prefix) = read_prefix(&mut Reader::new(self.frames.payload())) else { break };
            if prefix.kind != MORE {
                tell(self.frames.position(), self.time_of(&prefix));
            }
        }
        Ok(())
    }

    /// When the batch happened whose frame this is, milliseconds since 1970.
    fn time_of(&self, prefix: &Prefix) -> u64 {
        let time = i128::from(self.header.time_ms) + i128::from(prefix.time);
        u64::try_from(time).unwrap_or(0)
    }

    /// After an error of [`LogReader::next`]: what follows the invalid frame.
    pub(crate) fn look_beyond(&mut self) -> Result<Beyond, StorageError> {
        self.frames.look_beyond(|payload| {
            read_prefix(&mut Reader::new(payload)).map_or(0, |prefix| prefix.claim)
        })
    }

    fn damaged(&self, offset: u64, problem: FormatError) -> StorageError {
        StorageError::in_frame(self.frames.file(), FileKind::Log, offset, problem)
    }

    /// Takes in a frame; returns whether it ends a batch.
    fn read_frame(&mut self, offset: u64) -> Result<bool, FormatError> {
        let mut reader = Reader::new(self.frames.payload());
        let r = &mut reader;
        let prefix = read_prefix(r)?;
        // What follows may be of another form.
        if prefix.kind > STOPPED {
            return Err(FormatError::Unknown("a frame", prefix.kind));
        }
        if self.partial.end == 0 {
            self.partial.offset = offset;
            self.partial.end = offset;
        }
        self.partial.time_ms = self.time_of(&prefix);
        self.partial.synced = prefix.claim;
        while !r.is_at_end() {
            match self.nodes.read(r)? {
                Record::Entry { path, entry } => {
                    self.partial.ops.push(Op::Put(Committed { path, entry }));
                }
                Record::Gone { path, newest } => self.partial.ops.push(Op::Gone { path, newest }),
                Record::Node => {}
                Record::Knowledge { kind, fields } => {
                    self.parts.read(kind, fields, &self.nodes, r)?;
                }
            }
        }
        match prefix.kind {
            MORE => return Ok(false),
            LAST => {}
            STOPPED => self.partial.is_stop = true,
            other => return Err(FormatError::Unknown("a frame", other)),
        }
        Ok(true)
    }
}

/// What each frame after the header begins with.
struct Prefix {
    kind: u64,
    time: i64,
    claim: u64,
}

fn read_prefix(r: &mut Reader<'_>) -> Result<Prefix, FormatError> {
    Ok(Prefix { kind: r.read_u64()?, time: r.read_i64()?, claim: r.read_u64()? })
}

//! Writes an event log.

use std::io::{self, Write};

use super::{LAST, MORE, STOPPED, log_name};
use crate::batch::{Batch, Op};
use crate::disk::{Disk, DiskFile, FileId};
use crate::engine::Knowledge;
use crate::error::StorageError;
use crate::format::framing::Framing;
use crate::format::knowledge::write_knowledge;
use crate::format::record::{write_entry, write_gone, write_node};
use crate::header::{Content, FileHeader, LogStart, write_header};
use crate::model::ids::NodeTable;
use crate::model::invariant::OrBroken;
use crate::model::value::{write_i64, write_u64};

/// Batches are gathered up to this many bytes before they are written, unless a write is requested
/// sooner. Fewer in tests, so that they have longer batches.
const BUFFER_BYTES: usize = if cfg!(test) { 128 << 10 } else { 1 << 20 };

/// A log that is being written.
/// After an error the file has what was synced before, and possibly some of the rest. Then nothing
/// more can be appended: begin another log that starts from a snapshot.
pub struct LogWriter {
    file: Box<dyn DiskFile>,
    name: String,
    header: FileHeader,
    framing: Framing,
    /// How many of the table's incarnations the file has named.
    nodes: usize,
    /// Up to where the file was synced.
    synced: u64,
    failed: bool,
}

/// A log that its node has stopped with: what proves that nothing came after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoppedLog {
    /// Its number.
    pub(crate) number: u64,
    /// Its length in bytes.
    pub(crate) bytes: u64,
}

impl LogWriter {
    /// Begins a log; all that it starts with is synced, its name too. The one before must have been
    /// closed with [`LogWriter::close`], unless this one starts from a snapshot.
    ///
    /// # Errors
    /// [`StorageError`]; there may be a file with that number, if the disk does not let it be removed.
    pub fn create(
        disk: &dyn Disk,
        header: &FileHeader,
        start: LogStart,
        knowledge: &Knowledge,
        table: &NodeTable,
    ) -> Result<Self, StorageError> {
        Self::create_as(&log_name(header.number), disk, header, start, knowledge, table)
    }

    /// The same under any name: for a log that is no data directory's.
    ///
    /// # Errors
    /// As [`LogWriter::create`].
    pub(crate) fn create_as(
        name: &str,
        disk: &dyn Disk,
        header: &FileHeader,
        start: LogStart,
        knowledge: &Knowledge,
        table: &NodeTable,
    ) -> Result<Self, StorageError> {
        let file = disk.create(name).map_err(StorageError::io(name, "create"))?;
        let mut writer = Self {
            file,
            name: name.to_owned(),
            header: header.clone(),
            framing: Framing::new(),
            nodes: 0,
            synced: 0,
            failed: false,
        };
        match writer.begin(disk, start, knowledge, table) {
            Ok(()) => Ok(writer),
            Err(error) => {
                // Nothing is in it, and a log that was not begun is of no use. On a disk that is full this works. The
                // first error is the one to report.
                let _ = disk.remove(name);
                let _ = disk.sync_dir();
                Err(error)
            }
        }
    }

    /// Writes and syncs all that it starts with, and its name.
    fn begin(
        &mut self,
        disk: &dyn Disk,
        start: LogStart,
        knowledge: &Knowledge,
        table: &NodeTable,
    ) -> Result<(), StorageError> {
        let id = self.file.id().map_err(StorageError::io(&self.name, "look at"))?;
        self.framing.frame(|out| write_header(&self.header, id, Content::Log(start), out));
        self.put_batch(LAST, self.header.time_ms, table, &[], Some(knowledge))?;
        self.sync()?;
        disk.sync_dir().map_err(StorageError::io(&self.name, "sync the directory of"))
    }

    /// The file's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is in this file, as far as it is synced. A file of which nothing is known is taken for it.
    #[must_use]
    pub(crate) fn is_in(&self, file: &FileId, bytes: u64) -> bool {
        bytes >= self.synced && self.file.id().map_or(true, |id| id.is_same(file))
    }

    /// Its number, and whose it is.
    #[must_use]
    pub fn header(&self) -> &FileHeader {
        &self.header
    }

    /// Its length with all that was appended, in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a log has a header")]
    pub fn len(&self) -> u64 {
        self.framing.position()
    }

    /// The position up to which it is synced, in bytes.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn synced(&self) -> u64 {
        self.synced
    }

    /// Appends a batch; gives back how many bytes it takes. It may stay in a buffer until
    /// [`LogWriter::flush`] or [`LogWriter::sync`].
    ///
    /// # Errors
    /// [`StorageError`]; the log cannot be used on.
    pub fn append(&mut self, batch: &Batch) -> Result<u64, StorageError> {
        self.check()?;
        let before = self.len();
        let Batch { time_ms, table, ops, knowledge } = batch;
        self.put_batch(LAST, *time_ms, table, ops, knowledge.as_ref())?;
        if self.framing.bytes().len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(self.len() - before)
    }

    /// Hands all that was appended to the system: it survives this process, but perhaps not a
    /// power cut.
    ///
    /// # Errors
    /// [`StorageError`]; the log cannot be used on.
    pub fn flush(&mut self) -> Result<(), StorageError> {
        self.check()?;
        if self.framing.bytes().is_empty() {
            return Ok(());
        }
        if let Err(error) = self.file.write_all(self.framing.bytes()) {
            self.failed = true;
            return Err(StorageError::io(&self.name, "write")(error));
        }
        self.framing.clear();
        Ok(())
    }

    /// Makes safe all that was appended.
    ///
    /// # Errors
    /// [`StorageError`]; the log cannot be used on.
    pub fn sync(&mut self) -> Result<(), StorageError> {
        self.flush()?;
        if self.synced == self.len() {
            return Ok(());
        }
        if let Err(error) = self.file.sync() {
            // The system may have dropped what it could not write: another sync proves nothing.
            self.failed = true;
            return Err(StorageError::io(&self.name, "sync")(error));
        }
        self.synced = self.len();
        Ok(())
    }

    /// Ends a log that another one continues: syncs it, and returns how the other one starts.
    ///
    /// # Errors
    /// [`StorageError`]; the next log must start from a snapshot.
    pub(crate) fn close(mut self) -> Result<LogStart, StorageError> {
        self.sync()?;
        Ok(LogStart::After { number: self.header.number, bytes: self.len() })
    }

    /// Ends a log because the node stops: nothing will come after this, so that its incarnation may
    /// be used on.
    ///
    /// # Errors
    /// [`StorageError`]; the log does not say that the node stopped.
    pub(crate) fn stop(
        mut self,
        time_ms: u64,
        knowledge: &Knowledge,
        table: &NodeTable,
    ) -> Result<StoppedLog, StorageError> {
        // Synced before, so that the last frame can claim it.
        self.sync()?;
        self.put_batch(STOPPED, time_ms, table, &[], Some(knowledge))?;
        self.sync()?;
        Ok(StoppedLog { number: self.header.number, bytes: self.len() })
    }

    fn check(&self) -> Result<(), StorageError> {
        if self.failed {
            return Err(StorageError::Given { file: self.name.clone(), offset: self.synced });
        }
        Ok(())
    }

    /// Puts a batch into frames; what does not fit the buffer is written. `kind` is that of the last
    /// frame.
    fn put_batch(
        &mut self,
        kind: u64,
        time_ms: u64,
        table: &NodeTable,
        ops: &[Op],
        knowledge: Option<&Knowledge>,
    ) -> Result<(), StorageError> {
        let time = i128::from(time_ms) - i128::from(self.header.time_ms);
        let mut frames = BatchFrames {
            framing: &mut self.framing,
            file: &mut *self.file,
            time: i64::try_from(time).unwrap_or(0),
            claim: self.synced,
            kind_at: 0,
            written: Ok(()),
        };
        frames.begin();
        if table.len() > self.nodes {
            for (_, id) in table.iter().skip(self.nodes) {
                frames.record(|out| write_node(id, out));
            }
            self.nodes = table.len();
        }
        for op in ops {
            frames.record(|out| match op {
                Op::Put(change) => write_entry(change.path.as_bytes(), &change.entry, out),
                Op::Gone { path, newest } => write_gone(path.as_bytes(), *newest, out),
            });
        }
        if let Some(knowledge) = knowledge {
            write_knowledge(knowledge, table, |write| frames.record(write));
        }
        let written = frames.end(kind);
        self.failed |= written.is_err();
        written.map_err(StorageError::io(&self.name, "write"))
    }
}

/// One batch on its way into frames.
struct BatchFrames<'a> {
    framing: &'a mut Framing,
    file: &'a mut dyn DiskFile,
    time: i64,
    claim: u64,
    /// Where the open frame's kind is.
    kind_at: usize,
    /// The first failure. Nothing is written after it.
    written: io::Result<()>,
}

impl BatchFrames<'_> {
    fn begin(&mut self) {
        self.framing.begin();
        let out = self.framing.payload();
        self.kind_at = out.len();
        write_u64(MORE, out);
        write_i64(self.time, out);
        write_u64(self.claim, out);
    }

    /// Adds a record, in a new frame if the open one is long enough. A batch can be as long as a
    /// whole tree, so its first frames are written before its last ones are made.
    fn record(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.framing.is_full() {
            self.framing.end();
            if self.framing.bytes().len() >= BUFFER_BYTES {
                if self.written.is_ok() {
                    self.written = self.file.write_all(self.framing.bytes());
                }
                self.framing.clear();
            }
            self.begin();
        }
        write(self.framing.payload());
    }

    fn end(self, kind: u64) -> io::Result<()> {
        // All kinds are MessagePack integers of one byte.
        let slot = self.framing.payload().get_mut(self.kind_at);
        *slot.or_broken("an open frame begins with its kind") = kind as u8;
        self.framing.end();
        self.written
    }
}

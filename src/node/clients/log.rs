//! A log that a client has started, beside the node's own: a thread that writes one file, in our
//! own format or in that of the Python DistKV, until it is stopped or fails. Nothing waits for it:
//! if its disk does not keep up, it ends with a warning.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;

use super::files::{ClientFiles, OneFile};
use crate::engine::exchange::saved_state_out::SavedStateExport;
use crate::engine::{Image, Knowledge};
use crate::hub::Hub;
use crate::hub::log_queue::{CutPurpose, LogItem, LogQueue, Taken};
use crate::model::defects::Defects;
use crate::model::ids::{Millis, Tick, Tock};
use crate::model::path::Path;
use crate::model::seen::{Mark, Seen};
use crate::node::config::SyncPolicy;
use crate::protocol::saved_state::{SavedStateWriter, python};
use crate::replica::Committed;
use crate::rt;
use crate::server::{FileFormat, FileRefusal};
use crate::storage::{Batch, FileHeader, LogStart, LogWriter, Op, StorageError};
use crate::tree::Tree;

/// While more bytes than this wait for the file, and four times as much, it is still written.
const QUEUE_BYTES_MAX: usize = 16 << 20;
/// How long the thread sleeps when nothing comes.
const IDLE: Duration = Duration::from_millis(500);
/// How long the caller that ends a log waits for its last bytes.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// Entries of the state at the beginning that go into one batch of the log.
const STATE_BATCH: usize = 256;
/// Written changes are handed to the system from this many bytes on, or when no more wait.
const WRITE_BYTES: usize = 256 << 10;

/// The source of the log, and its file.
#[derive(Clone, Debug)]
pub(in crate::node) struct ClientLogOrder {
    pub(in crate::node) name: String,
    pub(in crate::node) format: FileFormat,
    /// First the state as it is.
    pub(in crate::node) fetch: bool,
    pub(in crate::node) sync: SyncPolicy,
    pub(in crate::node) network: String,
}

/// A log that is being written.
pub(in crate::node) struct ClientLog {
    pub(in crate::node) name: String,
    queue: Arc<LogQueue>,
    /// Why it has ended, if it has.
    failure: Arc<Mutex<Option<String>>>,
    /// Closed when its thread has ended.
    over: Mutex<Receiver<()>>,
}

impl ClientLog {
    /// Starts a log, and waits until its file is there.
    ///
    /// # Errors
    /// [`FileRefusal`]: why it could not be started.
    pub(in crate::node) fn start(
        hub: &Arc<Hub>,
        files: &Arc<ClientFiles>,
        order: ClientLogOrder,
    ) -> Result<Self, FileRefusal> {
        // A problem with the name is reported before anything is begun.
        drop(files.begin(&order.name)?);
        let queue = LogQueue::bounded(false, QUEUE_BYTES_MAX, Defects::default());
        let queue = Arc::new(queue.stamped_by(Box::new(rt::wall_clock_ms)));
        let failure = Arc::new(Mutex::new(None));
        let name = order.name.clone();
        hub.add_extra_log(&queue);
        let (told, begun) = sync_channel(1);
        let (alive, over) = sync_channel(1);
        let thread = Thread {
            queue: Arc::clone(&queue),
            files: Arc::clone(files),
            failure: Arc::clone(&failure),
            order,
        };
        let log = Self { name, queue, failure, over: Mutex::new(over) };
        let started = rt::spawn_thread("client log", move || {
            let _alive = alive;
            thread.run(&told);
        });
        let result = match started {
            Ok(_) => wait(&begun),
            Err(error) => Err(format!("the system has no thread for it: {error}")),
        };
        if result.is_err() {
            hub.remove_extra_log(&log.queue);
            log.queue.close();
        }
        result.map(|()| log).map_err(FileRefusal::Failed)
    }

    /// Why it has ended, if it has failed.
    pub(in crate::node) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Ends it; changes up to now are written. Waits for that, for a while. Gives why it has failed, if it has.
    pub(in crate::node) fn end(self, hub: &Hub) -> Option<String> {
        hub.remove_extra_log(&self.queue);
        // Nothing is ever sent: it is closed, or it takes too long.
        let _ = self.over.lock().recv_timeout(END_PATIENCE);
        self.failure()
    }
}

fn wait(begun: &Receiver<Result<(), String>>) -> Result<(), String> {
    begun.recv().unwrap_or_else(|_| Err("the log's thread has ended".into()))
}

struct Thread {
    queue: Arc<LogQueue>,
    files: Arc<ClientFiles>,
    failure: Arc<Mutex<Option<String>>>,
    order: ClientLogOrder,
}

impl Thread {
    fn run(self, told: &SyncSender<Result<(), String>>) {
        let written = self.write(told);
        // Later changes are not counted.
        self.queue.close();
        if let Err(why) = written {
            let name = &self.order.name;
            // If the log has not begun, the client that asked for it gets the error; otherwise the
            // operator does.
            if told.try_send(Err(why.clone())).is_err() {
                tracing::error!(name, "the log that a client started has ended: {why}");
            }
            *self.failure.lock() = Some(why);
        }
    }

    fn write(&self, told: &SyncSender<Result<(), String>>) -> Result<(), String> {
        let Some(LogItem::Cut(cut)) = self.queue.take(IDLE).items.into_iter().next() else {
            return Err("there is no state to begin with".into());
        };
        let mut new = self.files.begin(&self.order.name).map_err(|error| error.to_string())?;
        let handle = new.handle().map_err(|error| error.to_string())?;
        let mut log = Writing::begin(handle, &self.order, cut.image).map_err(|e| self.told(e))?;
        log.sync().map_err(|error| self.told(error))?;
        let file = new.file();
        file.flush().map_err(|error| error.to_string())?;
        new.finish().map_err(|error| error.to_string())?;
        let _ = told.send(Ok(()));
        self.go_on(&mut log).map_err(|error| self.told(error))?;
        self.queue.failure().map_or(Ok(()), |failure| Err(failure.why.to_string()))
    }

    /// What has failed, with the file's name as the client has it: writers give files names of their own.
    fn told(&self, error: StorageError) -> String {
        match error {
            StorageError::Io { action, source, .. } => {
                StorageError::Io { file: self.order.name.clone(), action, source }.to_string()
            }
            other => other.to_string(),
        }
    }

    /// Until it is stopped, or the queue fails.
    fn go_on(&self, log: &mut Writing) -> Result<(), StorageError> {
        let mut unsynced_since: Option<Millis> = None;
        loop {
            let Taken { items, is_over, .. } = self.queue.take(IDLE);
            if self.queue.failure().is_some() {
                return Ok(());
            }
            let now = rt::now();
            for item in items {
                match item {
                    LogItem::Batch { batch, .. } => {
                        unsynced_since.get_or_insert(now);
                        log.append(batch)?;
                    }
                    LogItem::Cut(cut) if cut.purpose == CutPurpose::Stop => return log.sync(),
                    LogItem::Cut(_) => {}
                }
            }
            log.flush()?;
            let is_due = unsynced_since.is_some_and(|since| match self.order.sync {
                SyncPolicy::Never => false,
                SyncPolicy::EverySecond => now.saturating_sub(since) >= 500,
                SyncPolicy::EveryBatch => true,
            });
            if is_due {
                log.sync()?;
                unsynced_since = None;
            }
            if is_over {
                return log.sync();
            }
        }
    }
}

/// The file, in one of the forms.
enum Writing {
    Own(Box<LogWriter>),
    Distkv(Box<DistkvLog>),
}

struct DistkvLog {
    file: File,
    writer: SavedStateWriter,
    /// The tree as the log has it: a deletion needs the version that it replaced.
    tree: Tree,
    out: Vec<u8>,
    /// Changes that the form cannot hold.
    left_out: u64,
}

impl Writing {
    fn begin(file: File, order: &ClientLogOrder, image: Image) -> Result<Self, StorageError> {
        match order.format {
            FileFormat::Own => begin_own(file, order, &image).map(|log| Self::Own(Box::new(log))),
            FileFormat::Distkv => DistkvLog::begin(file, order.fetch, image)
                .map(|log| Self::Distkv(Box::new(log)))
                .map_err(cannot_write),
        }
    }

    fn append(&mut self, batch: Batch) -> Result<(), StorageError> {
        match self {
            Self::Own(log) => log.append(&batch).map(drop),
            Self::Distkv(log) => log.append(&batch).map_err(cannot_write),
        }
    }

    fn flush(&mut self) -> Result<(), StorageError> {
        match self {
            Self::Own(log) => log.flush(),
            Self::Distkv(log) => log.flush().map_err(cannot_write),
        }
    }

    fn sync(&mut self) -> Result<(), StorageError> {
        match self {
            Self::Own(log) => log.sync(),
            Self::Distkv(log) => {
                log.flush().and_then(|()| log.file.sync_data()).map_err(cannot_write)
            }
        }
    }
}

/// Of the one file that there is; [`Thread::told`] names it.
fn cannot_write(source: io::Error) -> StorageError {
    StorageError::Io { file: String::new(), action: "write", source }
}

/// A log in our own format, without a data directory. With the state at the beginning it is
/// complete for a replay.
fn begin_own(file: File, order: &ClientLogOrder, image: &Image) -> Result<LogWriter, StorageError> {
    let replica = &image.replica;
    let header = FileHeader {
        number: 0,
        network: order.network.clone(),
        id: replica.id.clone(),
        store: 0,
        time_ms: rt::wall_clock_ms(),
    };
    let disk = OneFile::new(file);
    let knowledge = image.knowledge();
    if !order.fetch {
        let (start, table) = (LogStart::Snapshot, &replica.table);
        return LogWriter::create(&disk, &header, start, &knowledge, table);
    }
    // Data before knowledge: it begins empty, and the knowledge comes last.
    let nothing = Knowledge {
        tick: Tick::default(),
        tock: Tock::default(),
        seen: Seen::new(),
        mark: Mark::default(),
        group: None,
        decided: None,
        ..knowledge.clone()
    };
    let (start, table) = (LogStart::Empty, &replica.table);
    let mut log = LogWriter::create(&disk, &header, start, &nothing, table)?;
    let batch = |ops, knowledge| {
        let table = Arc::clone(&replica.table);
        Batch { time_ms: header.time_ms, table, ops, knowledge }
    };
    let mut walk = replica.tree.walk(&Path::root());
    loop {
        let entries = walk.next_batch(STATE_BATCH);
        if entries.is_empty() {
            break;
        }
        let put = |(path, entry)| Op::Put(Committed { path, entry });
        log.append(&batch(entries.into_iter().map(put).collect(), None))?;
    }
    log.append(&batch(Vec::new(), Some(knowledge)))?;
    Ok(log)
}

impl DistkvLog {
    fn begin(file: File, fetch: bool, image: Image) -> io::Result<Self> {
        let tree = image.replica.tree.clone();
        let mut export = SavedStateExport::new(image);
        let (mut file, mut out) = (file, Vec::new());
        export.write_state(&mut out);
        let mut is_more = fetch;
        while is_more {
            is_more = export.next_piece(&mut out);
            file.write_all(&out)?;
            out.clear();
        }
        let mut log = Self { file, writer: export.into_writer(), tree, out, left_out: 0 };
        log.flush()?;
        Ok(log)
    }

    fn append(&mut self, batch: &Batch) -> io::Result<()> {
        for op in &batch.ops {
            match op {
                Op::Put(change) => {
                    let (path, entry) = (&change.path, &change.entry);
                    let replaced = self.tree.insert(path, entry.clone());
                    let value = entry.value();
                    if value.is_some_and(|v| python::check_entry(&self.tree, path, v).is_err()) {
                        self.note_left_out(path);
                        continue;
                    }
                    let table = &batch.table;
                    let (replaced, tree) = (replaced.as_ref(), &self.tree);
                    let out = &mut self.out;
                    if !self.writer.write_change(path, entry, replaced, tree, table, out) {
                        self.note_left_out(path);
                    }
                }
                // The original has no word for it: it was deleted there, too.
                Op::Gone { path, .. } => drop(self.tree.remove(path)),
            }
        }
        if self.out.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    /// Entries that the original could not load are not in its log; the first one is reported.
    fn note_left_out(&mut self, path: &Path) {
        self.left_out += 1;
        if self.left_out == 1 {
            tracing::warn!(
                %path,
                "a change is not in the log that a client started: its form cannot hold it"
            );
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = self.file.write_all(&self.out);
        self.out.clear();
        written
    }
}

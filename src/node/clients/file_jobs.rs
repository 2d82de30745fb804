//! What clients may have this node write: files in the directory for that ([`super::files`]),
//! snapshots in the data directory, one log beside the node's own ([`super::log`]).

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use parking_lot::Mutex;

use super::files::{ClientFileError, ClientFiles};
use super::log::{ClientLog, ClientLogOrder};
use super::past;
use crate::engine::exchange::saved_state_out::SavedStateExport;
use crate::engine::{Engine, Image};
use crate::hub::Hub;
use crate::model::path::Path;
use crate::node::config::SyncPolicy;
use crate::node::durable::Durable;
use crate::protocol::client::request::PastMoment;
use crate::rt;
use crate::server::{
    ClientLogStatus, FileFormat, FileJob, FileRefusal, FileReport, PastRefusal, PastState,
};
use crate::storage::history::History;
use crate::storage::snapshot::write_snapshot_to;
use crate::storage::{FileHeader, FileId, verify_snapshot};

/// See the module.
pub(in crate::node) struct Saving {
    hub: Arc<Hub>,
    network: String,
    durable: Option<Arc<Durable>>,
    files: Option<Arc<ClientFiles>>,
    sync: SyncPolicy,
    /// One file at a time is written for clients.
    turn: Mutex<()>,
    /// One past state at a time is read: each may need as much memory as the node's own.
    past_turn: Mutex<()>,
    log: Mutex<Option<ClientLog>>,
}

impl Saving {
    /// `sync`: when logs of clients are made safe.
    pub(in crate::node) fn new(
        hub: Arc<Hub>,
        network: String,
        durable: Option<Arc<Durable>>,
        files: Option<ClientFiles>,
        sync: SyncPolicy,
    ) -> Self {
        let files = files.map(Arc::new);
        let (turn, past_turn, log) = (Mutex::new(()), Mutex::new(()), Mutex::new(None));
        Self { hub, network, durable, files, sync, turn, past_turn, log }
    }

    /// Does it. Takes as long as that takes.
    pub(in crate::node) fn carry_out(&self, job: FileJob) -> Result<FileReport, FileRefusal> {
        match job {
            FileJob::Snapshot => self.snapshot(),
            FileJob::Save { name, format, internal } => {
                let _turn = self.turn.try_lock().ok_or(FileRefusal::Busy)?;
                self.save(&name, format, internal)
            }
            FileJob::LogStart { name, format, fetch, replaces } => {
                let _turn = self.turn.try_lock().ok_or(FileRefusal::Busy)?;
                if !replaces && self.files()?.has(&name) {
                    return Err(FileRefusal::Name(format!(
                        "{name:?} is there already; choose another name, or have it replaced (--force)"
                    )));
                }
                self.start_log(name, format, fetch)
            }
            FileJob::LogStop => {
                self.files()?;
                let _turn = self.turn.try_lock().ok_or(FileRefusal::Busy)?;
                Ok(self.end_log().unwrap_or_default())
            }
        }
    }

    /// The state of a past moment. Takes as long as reading it takes; one at a time is read.
    pub(in crate::node) fn past(
        &self,
        at: PastMoment,
        below: &Path,
    ) -> Result<PastState, PastRefusal> {
        let durable = self.durable.as_ref().ok_or(PastRefusal::NoDataDirectory)?;
        let _turn = self.past_turn.lock();
        durable.wait_written();
        let id = self.hub.read(|engine| engine.id().clone());
        let failing_ms = || durable.failing_ms(rt::now());
        past::recall(durable.directory(), (&self.network, &id.name), at, below, &failing_ms)
    }

    /// See [`past::history`].
    ///
    /// # Errors
    /// [`PastRefusal`].
    pub(in crate::node) fn history(
        &self,
        path: &Path,
        since_ms: u64,
        limit: usize,
    ) -> Result<History, PastRefusal> {
        let durable = self.durable.as_ref().ok_or(PastRefusal::NoDataDirectory)?;
        let _turn = self.past_turn.lock();
        durable.wait_written();
        let id = self.hub.read(|engine| engine.id().clone());
        let failing_ms = || durable.failing_ms(rt::now());
        past::history(
            durable.directory(),
            (&self.network, &id.name),
            path,
            since_ms,
            limit,
            &failing_ms,
        )
    }

    /// Ends the file being written, because the node stops. May wait for the disk.
    pub(in crate::node) fn end(&self) {
        self.end_log();
    }

    /// The log that a client started, and why it has ended if it has failed.
    pub(in crate::node) fn client_log(&self) -> Option<ClientLogStatus> {
        let log = self.log.lock();
        log.as_ref().map(|log| ClientLogStatus { file: log.name.clone(), failure: log.failure() })
    }

    fn files(&self) -> Result<&Arc<ClientFiles>, FileRefusal> {
        self.files.as_ref().ok_or(FileRefusal::NotAllowed)
    }

    /// A snapshot in the data directory.
    fn snapshot(&self) -> Result<FileReport, FileRefusal> {
        let durable = self.durable.as_ref().ok_or(FileRefusal::NoDataDirectory)?;
        let stops = || FileRefusal::Failed("this node stops".into());
        let (wish, answer) = sync_channel(1);
        durable.wish(wish).then_some(()).ok_or_else(stops)?;
        let info = answer.recv().map_err(|_| stops())?.map_err(FileRefusal::Failed)?;
        let (entries, bytes) = (Some(info.entries), Some(info.bytes));
        Ok(FileReport { name: Some(info.name), entries, bytes, ..FileReport::default() })
    }

    fn save(
        &self,
        name: &str,
        format: FileFormat,
        internal: bool,
    ) -> Result<FileReport, FileRefusal> {
        let mut new = self.files()?.begin(name)?;
        if self.log.lock().as_ref().is_some_and(|log| log.name == name) {
            let text =
                format!("a log is being written to {name:?}; end it, or choose another name");
            return Err(FileRefusal::Name(text));
        }
        let mut image = self.hub.read(Engine::image);
        let failed = |error: io::Error| FileRefusal::Failed(format!("{name}: {error}"));
        let mut report = match format {
            FileFormat::Own => {
                let mut file = BufWriter::new(new.file());
                let report = self.save_own(&mut file, &image).map_err(failed)?;
                file.flush().map_err(failed)?;
                report
            }
            FileFormat::Distkv => {
                if !internal {
                    leave_out_internal(&mut image);
                }
                save_distkv(new.file(), image).map_err(failed)?
            }
        };
        if format == FileFormat::Own {
            let source = new.reader()?;
            let verified = verify_snapshot(name, Box::new(source), &mut |_| {});
            verified.map_err(|error| FileRefusal::Failed(error.to_string()))?;
        }
        new.finish()?;
        report.name = Some(name.to_owned());
        Ok(report)
    }

    fn save_own(&self, file: &mut dyn Write, image: &Image) -> io::Result<FileReport> {
        let header = FileHeader {
            number: 0,
            network: self.network.clone(),
            id: image.id().clone(),
            store: 0,
            time_ms: rt::wall_clock_ms(),
        };
        let info = write_snapshot_to(file, &header, FileId::default(), image, &mut |_| {})?;
        let (entries, bytes) = (Some(info.entries), Some(info.bytes));
        Ok(FileReport { entries, bytes, ..FileReport::default() })
    }

    fn start_log(
        &self,
        name: String,
        format: FileFormat,
        fetch: bool,
    ) -> Result<FileReport, FileRefusal> {
        let files = self.files()?;
        let (sync, network) = (self.sync, self.network.clone());
        // As in the original, the old log continues until the new one exists. Unless it is the same
        // file: then two would write it.
        if self.log.lock().as_ref().is_some_and(|log| log.name == name) {
            self.end_log();
        }
        let order = ClientLogOrder { name: name.clone(), format, fetch, sync, network };
        let log = ClientLog::start(&self.hub, files, order)?;
        self.end_log();
        *self.log.lock() = Some(log);
        tracing::info!(name, "a client has started a log");
        Ok(FileReport { name: Some(name), ..FileReport::default() })
    }

    fn end_log(&self) -> Option<FileReport> {
        let log = self.log.lock().take()?;
        let name = Some(log.name.clone());
        let failed = log.end(&self.hub);
        Some(FileReport { name, failed, ..FileReport::default() })
    }
}

/// Removes the entries below nil.
fn leave_out_internal(image: &mut Image) {
    let top = Path::system_root();
    let paths: Vec<Path> = image.replica.tree.subtree(&top).map(|(path, _)| path.clone()).collect();
    for path in paths {
        image.replica.tree.remove(&path);
    }
}

fn save_distkv(file: &mut dyn Write, image: Image) -> io::Result<FileReport> {
    let mut export = SavedStateExport::new(image);
    let (entries, left_out) = (Some(export.report().entries), export.report().left_out);
    let (mut out, mut bytes) = (Vec::new(), 0);
    let mut is_more = true;
    while is_more {
        is_more = export.next_piece(&mut out);
        file.write_all(&out)?;
        bytes += out.len() as u64;
        out.clear();
    }
    Ok(FileReport { entries, left_out, bytes: Some(bytes), ..FileReport::default() })
}

impl From<ClientFileError> for FileRefusal {
    fn from(error: ClientFileError) -> Self {
        match error {
            ClientFileError::Name(_) | ClientFileError::Exists(_) => Self::Name(error.to_string()),
            ClientFileError::TooMany | ClientFileError::Io { .. } => {
                Self::Failed(error.to_string())
            }
        }
    }
}

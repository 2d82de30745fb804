//! What a node starts with: the state that its data directory holds, a new incarnation (replication rule
//! 9), and the log that is begun before anything leaves.

use std::sync::Arc;

use super::age_clock::Known;
use super::logger::{Found, LogFiles, Logged, Logger};
use super::{LogSettings, SyncPolicy, System};
use crate::engine::delete::DeleteSettings;
use crate::engine::{self, Engine, Image, Knowledge, Outbox, Output};
use crate::hub::Hub;
use crate::hub::log_queue::LogQueue;
use crate::model::defects::Defect;
use crate::model::ids::{Incarnation, Millis, NodeId, NodeName, Tock};
use crate::storage::recover::Files;
use crate::storage::{
    Batch, DataDir, FileHeader, LogStart, LogWriter, NextLog, Op, RecoverOptions, Recovered,
    StorageError, Warning,
};

/// A start that takes longer says so this often.
const PROGRESS_INTERVAL_MS: Millis = 5_000;

/// A data directory that was opened and read.
pub struct Opened {
    dir: DataDir,
    settings: LogSettings,
    system: Arc<dyn System>,
    network: String,
    recovered: Recovered,
    found: Found,
}

/// A node that can begin: its log records everything that may leave it from now on.
pub struct Prepared {
    engine: Engine,
    queue: Arc<LogQueue>,
    log: PendingLog,
}

/// More incarnations are in the directory than the node's table holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the data directory names more incarnations than a node can know")]
pub struct TableFull;

/// What the log's thread begins with.
struct PendingLog {
    settings: LogSettings,
    files: LogFiles,
    log: Option<LogWriter>,
    found: Found,
}

impl Opened {
    /// Reads a data directory. Takes as long as that takes.
    ///
    /// # Errors
    /// [`StorageError`]; the node must not start with this directory.
    pub fn read(
        dir: DataDir,
        settings: LogSettings,
        (network, name): (&str, &NodeName),
        system: Arc<dyn System>,
    ) -> Result<Self, StorageError> {
        let options = RecoverOptions {
            discard_damaged: settings.discard_damaged,
            hash_seed: system.random(),
            new_store: system.random(),
            until: None,
            below: None,
            puts_state: false,
        };
        let began = system.now();
        let mut told = began;
        let recovered = dir.recover(network, name.as_str(), &options, &mut |file, progress| {
            let now = system.now();
            if now.saturating_sub(told) >= PROGRESS_INTERVAL_MS {
                told = now;
                tracing::info!(file, entries = progress.entries, "reading the data directory");
            }
        })?;
        tell(&recovered, settings.sync, system.now().saturating_sub(began));
        let known = match (recovered.last_logged_ms, recovered.certain_ms) {
            (None, _) => Known::Nothing,
            (Some(_), None) => Known::Doubtful,
            (Some(_), Some(certain_ms)) => Known::Since(certain_ms),
        };
        let found = Found { known, ..look(&dir) };
        let network = network.to_owned();
        Ok(Self { dir, settings, system, network, recovered, found })
    }

    /// Whether there was anything of a network. A node that was started and has neither founded nor joined one has
    /// begun a log all the same; nothing is in it, and it must not be taken for a network's data.
    #[must_use]
    pub fn has_data(&self) -> bool {
        self.recovered.image.as_ref().is_some_and(|image| {
            let Image { replica, group, .. } = image;
            !replica.tree.is_empty() || replica.tock > Tock::default() || group.is_some()
        })
    }

    /// Makes the node's engine and begins its log. `name` is the node's; `configure` says how the
    /// engine is made under an identity.
    ///
    /// # Errors
    /// [`TableFull`]; nothing was written.
    pub fn prepare(
        self,
        name: &NodeName,
        configure: impl Fn(NodeId) -> engine::Config,
    ) -> Result<Prepared, TableFull> {
        let Self { dir, settings, system, network, recovered, found } = self;
        let Recovered { image, store, next, last_logged_ms, .. } = recovered;
        // Replication rule 9: never the one that the directory names, however that life ended. The directory may
        // have been set back to an earlier moment, and nothing in it could tell.
        let mut id =
            NodeId { name: name.clone(), incarnation: Incarnation::of_random(system.random()) };
        if let Some(image) = &image
            && settings.defects.has(Defect::LifeReused)
        {
            id = image.id().clone();
        }
        let (engine, gone) = begin_engine(&configure, id.clone(), store, image.as_ref())?;
        let dir = Arc::new(dir);
        let clock = Arc::clone(&system);
        let files = LogFiles { dir, network, id, store, number: next.number, system };
        let gates = settings.sync == SyncPolicy::EveryBatch;
        let queue = LogQueue::bounded(gates, settings.queue_bytes, settings.defects);
        let queue = queue.stamped_by(Box::new(move || clock.wall_clock_ms()));
        let queue = Arc::new(queue.continuing_from(last_logged_ms.unwrap_or_default()));
        let begun = match &image {
            // The decision is carried out in the log as in the engine: after it began with what the
            // directory holds. A crash in between does it again.
            Some(image) if image.decided.is_some() && !next.needs_snapshot => {
                begin_decided_log(&files, &engine, next, image, gone)
            }
            Some(_) | None => begin_log(&files, &engine, next),
        };
        let log = begun.map_err(|error| queue.fail(&error.to_string()));
        let log = PendingLog { settings, files, log: log.ok(), found };
        Ok(Prepared { engine, queue, log })
    }
}

impl PendingLog {
    fn logger(self, hub: &Arc<Hub>, queue: Arc<LogQueue>) -> Logger {
        let Self { settings, files, log, found } = self;
        Logger::new(Arc::clone(hub), queue, settings, files, log, found)
    }
}

impl Prepared {
    /// The hub, and the writer of its log.
    #[must_use]
    pub fn into_logger(self) -> (Arc<Hub>, Logger) {
        let Self { engine, queue, log, .. } = self;
        let hub = Arc::new(Hub::with_log(engine, Some(Arc::clone(&queue))));
        let logger = log.logger(&hub, queue);
        (hub, logger)
    }
}

/// A node's engine, and what a decision in its image has taken out of the tree.
fn begin_engine(
    configure: &impl Fn(NodeId) -> engine::Config,
    id: NodeId,
    store: u64,
    image: Option<&Image>,
) -> Result<(Engine, Vec<Op>), TableFull> {
    let mut config = configure(id);
    config.delete = DeleteSettings { store: Some(store), ..config.delete };
    let Some(image) = image else { return Ok((Engine::new(config), Vec::new())) };
    let mut out = Outbox::new();
    let engine = Engine::restore(config, image, &mut out).ok_or(TableFull)?;
    let mut ops = Vec::new();
    for output in out.drain() {
        if let Output::Gone { purged, dropped } = output {
            ops.extend(purged.iter().chain(&dropped).map(Op::gone));
        }
    }
    Ok((engine, ops))
}

/// The log of a node that has carried out a decision of its image: it begins with what the image
/// knew, and has what the decision did as its first batch, all of it synced.
fn begin_decided_log(
    files: &LogFiles,
    engine: &Engine,
    next: NextLog,
    image: &Image,
    ops: Vec<Op>,
) -> Result<LogWriter, StorageError> {
    let header: FileHeader = files.header();
    let after = engine.knowledge();
    let Knowledge { tock, mark, group, decided, .. } = image.knowledge();
    let before = Knowledge { tock, mark, group, decided, ..after.clone() };
    let mut log = files.dir.begin_log(&header, next.start, &before, engine.table())?;
    let (time_ms, table) = (header.time_ms, Arc::clone(engine.table()));
    log.append(&Batch { time_ms, table, ops, knowledge: Some(after) })?;
    log.sync()?;
    Ok(log)
}

/// The log that records everything from now on; with the snapshot that it starts from, if it needs
/// one.
fn begin_log(files: &LogFiles, engine: &Engine, next: NextLog) -> Result<LogWriter, StorageError> {
    let header: FileHeader = files.header();
    let mut start = next.start;
    if next.needs_snapshot {
        files.dir.save(&header, &engine.image(), &mut |_| {})?;
        start = LogStart::Snapshot;
    }
    files.dir.begin_log(&header, start, &engine.knowledge(), engine.table())
}

/// What there is, about.
fn look(dir: &DataDir) -> Found {
    let Ok(files) = Files::list(&**dir.disk()) else { return Found::default() };
    let (from, snapshot_bytes) =
        files.snapshots.last_key_value().map_or((0, 0), |(number, entry)| (*number, entry.bytes));
    let logs = files.logs.range(from..);
    let bytes = logs.clone().map(|(_, entry)| entry.bytes).sum();
    let logged = Logged { bytes, files: logs.count() };
    Found { logged, snapshot_bytes, known: Known::Nothing }
}

/// Reports to the operator what was found.
fn tell(recovered: &Recovered, sync: SyncPolicy, took_ms: Millis) {
    for warning in &recovered.warnings {
        tracing::warn!("{warning}");
    }
    let has = |is: fn(&Warning) -> bool| recovered.warnings.iter().any(is);
    let Some(image) = &recovered.image else {
        match has(|warning| matches!(warning, Warning::Older { .. })) {
            true => tracing::warn!(
                "the data directory has neither a log nor a snapshot any more: this node begins with nothing, but for \
                 what other nodes have; stop it, and put the files back from a backup, if there is one"
            ),
            false => tracing::info!("the data directory is empty; a new one begins"),
        }
        return;
    };
    let entries = image.replica.tree.len();
    if recovered.is_prepared {
        tracing::info!(entries, took_ms, "loaded the state that was put into the data directory");
        return;
    }
    if recovered.stopped_cleanly {
        tracing::info!(entries, took_ms, "loaded the data directory");
        return;
    }
    let lacks =
        |warning: &Warning| matches!(warning, Warning::Discarded(_) | Warning::Older { .. });
    if has(|warning| matches!(warning, Warning::Copied)) && !has(lacks) {
        // How the node ended that the copy was made of is not known here.
        tracing::info!(entries, took_ms, "loaded the data directory; it has what the copy has");
        return;
    }
    let missing = if has(|warning| matches!(warning, Warning::Discarded(_))) {
        "what was damaged is missing"
    } else if has(|warning| matches!(warning, Warning::Older { .. })) {
        "what was in the log that is gone is missing, but for what other nodes have; `distkv-node snapshot restore` \
         takes it from a complete copy of the directory"
    } else {
        match sync {
            SyncPolicy::EveryBatch => {
                "no change that was acknowledged is missing, unless the directory was set back to an older state \
                 (sync every-batch)"
            }
            SyncPolicy::EverySecond => {
                "if the power failed, changes of the last second may be missing (sync every-second)"
            }
            SyncPolicy::Never => {
                "if the power failed, changes of the last half a minute or more may be missing (sync never)"
            }
        }
    };
    tracing::warn!(
        entries,
        took_ms,
        "the node was not stopped cleanly; it continues with what the data directory holds: {missing}"
    );
}

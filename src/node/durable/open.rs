//! What a node starts with: the state that its data directory holds, under which identity it goes
//! on (RULES 9), and the log that is begun before anything leaves.

use std::sync::Arc;

use super::logger::{LogFiles, Logger};
use super::{Durable, LogSettings};
use crate::engine::delete::DeleteSettings;
use crate::engine::{self, Engine, Image};
use crate::hub::Hub;
use crate::hub::log_queue::LogQueue;
use crate::model::ids::{Incarnation, Millis, NodeId, NodeName};
use crate::node::config::{DataConfig, SyncPolicy};
use crate::node::error::NodeError;
use crate::rt;
use crate::storage::recover::Files;
use crate::storage::{
    DataDir, FileHeader, LogStart, LogWriter, NextLog, RecoverOptions, Recovered, StorageError,
    Warning,
};

/// A start that takes longer says so this often.
const PROGRESS_INTERVAL_MS: Millis = 5_000;

/// A data directory that was opened and read.
pub(in crate::node) struct Opened {
    dir: DataDir,
    config: DataConfig,
    network: String,
    recovered: Recovered,
    /// Bytes of log that a start reads.
    replayed: u64,
}

/// A node that can begin: everything that may leave it from now on is told by its log.
pub(in crate::node) struct Prepared {
    engine: Engine,
    queue: Arc<LogQueue>,
    log: PendingLog,
    config: DataConfig,
}

/// What the log's thread begins with.
struct PendingLog {
    settings: LogSettings,
    files: LogFiles,
    log: Option<LogWriter>,
    replayed: u64,
}

impl Opened {
    /// Opens and reads a data directory. Takes as long as that takes.
    ///
    /// # Errors
    /// [`NodeError::Storage`].
    pub(in crate::node) fn open(
        config: &DataConfig,
        network: &str,
        name: &NodeName,
    ) -> Result<Self, NodeError> {
        Self::read(DataDir::open(&config.dir)?, config, network, name)
    }

    /// Reads a data directory.
    pub(super) fn read(
        dir: DataDir,
        config: &DataConfig,
        network: &str,
        name: &NodeName,
    ) -> Result<Self, NodeError> {
        let options = RecoverOptions {
            discard_damaged: config.discard_damaged,
            hash_seed: rt::random_u64(),
            new_store: rt::random_u64(),
            until: None,
        };
        let began = rt::now();
        let mut told = began;
        let recovered = dir.recover(network, name.as_str(), &options, &mut |file, progress| {
            let now = rt::now();
            if now.saturating_sub(told) >= PROGRESS_INTERVAL_MS {
                told = now;
                tracing::info!(file, entries = progress.entries, "reading the data directory");
            }
        })?;
        tell(&recovered, rt::now().saturating_sub(began));
        let replayed = replayed_bytes(&dir);
        let (config, network) = (config.clone(), network.to_owned());
        Ok(Self { dir, config, network, recovered, replayed })
    }

    /// Whether there was anything.
    pub(in crate::node) fn has_data(&self) -> bool {
        self.recovered.image.is_some()
    }

    /// Makes the node's engine and begins its log. `name` is the node's; `configure` says how the
    /// engine is made under an identity.
    ///
    /// # Errors
    /// [`NodeError::TableFull`].
    pub(in crate::node) fn prepare(
        self,
        name: &NodeName,
        configure: impl Fn(NodeId) -> engine::Config,
    ) -> Result<Prepared, NodeError> {
        let Self { dir, config, network, recovered, replayed } = self;
        let Recovered { image, keeps_incarnation, store, next, .. } = recovered;
        let begin = |id: NodeId| begin_engine(&configure, id, store, image.as_ref());
        let fresh = || NodeId { name: name.clone(), incarnation: Incarnation(rt::random_u64()) };
        let kept = image.as_ref().map(|image| image.id().clone()).filter(|_| keeps_incarnation);
        let mut engine = begin(kept.clone().unwrap_or_else(fresh))?;
        let id = engine.id().clone();
        let dir = Arc::new(dir);
        let mut files = LogFiles { dir, network, id, store, number: next.number };
        let queue = Arc::new(LogQueue::new(config.sync == SyncPolicy::EveryBatch));
        let log = begin_log(&files, &engine, next).map_err(|error| {
            queue.fail(&error.to_string());
        });
        if log.is_err() && kept.is_some() {
            // It goes on, loudly; but not as what the directory says has stopped there: nothing
            // would tell what it has done since.
            engine = begin(fresh())?;
            files.id = engine.id().clone();
        }
        let settings = LogSettings::from(&config);
        let log = PendingLog { settings, files, log: log.ok(), replayed };
        Ok(Prepared { engine, queue, log, config })
    }
}

impl PendingLog {
    fn logger(self, hub: &Arc<Hub>, queue: Arc<LogQueue>) -> Logger {
        let Self { settings, files, log, replayed } = self;
        Logger::new(Arc::clone(hub), queue, settings, files, log, replayed)
    }
}

impl Prepared {
    /// The hub, and who writes its log.
    pub(super) fn into_logger(self) -> (Arc<Hub>, Logger) {
        let Self { engine, queue, log, .. } = self;
        let hub = Arc::new(Hub::with_log(engine, Some(Arc::clone(&queue))));
        let logger = log.logger(&hub, queue);
        (hub, logger)
    }

    /// The hub, with its log running.
    ///
    /// # Errors
    /// [`NodeError::System`]: there is no thread for it.
    pub(in crate::node) fn into_hub(self) -> Result<(Arc<Hub>, Durable), NodeError> {
        let config = self.config.clone();
        let (hub, logger) = self.into_logger();
        let failed = |source| NodeError::System { what: "the log's thread", source };
        Ok((hub, Durable::launch(logger, &config).map_err(failed)?))
    }
}

fn begin_engine(
    configure: &impl Fn(NodeId) -> engine::Config,
    id: NodeId,
    store: u64,
    image: Option<&Image>,
) -> Result<Engine, NodeError> {
    let mut config = configure(id);
    config.delete = DeleteSettings { store: Some(store), ..config.delete };
    match image {
        None => Ok(Engine::new(config)),
        Some(image) => Engine::restore(config, image).ok_or(NodeError::TableFull),
    }
}

/// The log that tells of everything from now on; with the snapshot that it starts from, where it
/// needs one.
fn begin_log(files: &LogFiles, engine: &Engine, next: NextLog) -> Result<LogWriter, StorageError> {
    let header: FileHeader = files.header();
    let mut start = next.start;
    if next.needs_snapshot {
        files.dir.save(&header, &engine.image(), &mut |_| {})?;
        start = LogStart::Snapshot;
    }
    files.dir.begin_log(&header, start, &engine.knowledge(), engine.table())
}

/// What a start has read of logs, about.
fn replayed_bytes(dir: &DataDir) -> u64 {
    let Ok(files) = Files::list(&**dir.disk()) else { return 0 };
    let from = files.snapshots.keys().next_back().copied().unwrap_or(0);
    files.logs.range(from..).map(|(_, entry)| entry.bytes).sum()
}

/// Tells the operator what was found.
fn tell(recovered: &Recovered, took_ms: Millis) {
    for warning in &recovered.warnings {
        tracing::warn!("{warning}");
    }
    let Some(image) = &recovered.image else {
        tracing::info!("the data directory is empty; a new one begins");
        return;
    };
    let entries = image.replica.tree.len();
    if recovered.keeps_incarnation {
        tracing::info!(entries, took_ms, "went on with what the data directory holds");
        return;
    }
    let discarded = recovered.warnings.iter().any(|w| matches!(w, Warning::Discarded(_)));
    let missing = if discarded {
        "what was damaged is missing"
    } else {
        "if the power failed, up to a second of changes is missing that it had made under the sync \
         policy every-second, or more under never; under every-batch nothing that was acknowledged"
    };
    tracing::warn!(
        entries,
        took_ms,
        "the node had not been stopped in an orderly way; it goes on with what the data directory \
         holds, under a new incarnation: {missing}"
    );
}

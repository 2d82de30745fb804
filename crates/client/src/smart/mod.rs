//! The smart client: a program talks to the cluster, and need not know which node is up.
//!
//! Every node holds everything, so the choice of a node is a matter of affinity only: the writers
//! of a path meet at one node, conflicts become rare, and a client reads its own writes. A failed
//! request is retried at the next node, as long as that is safe and there is time.
//!
//! All operations work on any executor and from plain threads, can be dropped at any await, and
//! are [`Send`].
//!
//! | module | what |
//! |---|---|
//! | `config`, `error` | how a client behaves; what a call can end with |
//! | `observer`, `tracing` | what others are told of calls |
//! | `environment` | connecting as a ticket, or the environment, says |
//! | `closing` | the end |
//! | `operations` | get, put, delete, trees, batches, conflicts, any other request |
//! | `streams` | watches and messages, which continue at another node |
//! | `choice` | which node is asked, how long, and whose answer counts |

mod choice;
mod closing;
mod config;
#[cfg(feature = "tls")]
mod environment;
mod error;
mod observer;
mod operations;
mod streams;
#[cfg(feature = "tracing")]
mod tracing;

use std::sync::{Arc, Weak};

use crate::connection::group::Group;
use crate::connection::start_runtime;
use crate::error::ClientError;
use crate::model::host_port::HostPort;
use crate::pool::ConnectionPool;
use crate::rt;
use crate::shard_map::ShardMapConfig;
use crate::stats::{ClientStats, Counts, RouterStats};
use crate::topology::{ClusterView, TopologyChange, TopologyListener, TopologyManager};
use choice::own_writes::OwnWrites;
use choice::shard_table::{Table, follow_table, new_table};
pub use closing::Closing;
use closing::Door;
pub use config::{ClientConfig, ReadMode, ReadModeError};
pub use error::{At, CallError, Fate};
pub use observer::{CallEnd, CallObserver, Observer};
pub use operations::batch::{BATCH_OPS_MAX, Batch, BatchReply};
pub use operations::conflicts::{Conflict, ConflictStream, ConflictsFound};
pub use operations::entry::{Entry, Repeated, TreeEntry, Written};
pub use operations::options::{DeleteTreeOptions, GetOptions, PutOptions, TreeOptions, WriteId};
pub use operations::request::RawRequest;
pub use operations::shards::place_of;
pub use operations::tree::{TREE_ENTRIES_MAX, TreeStream};
use operations::write_places::WritePlaces;
pub use streams::messages::{Monitor, MonitorEvent, TopicMessage};
pub use streams::watch::{Change, Watch, WatchEvent, WatchOptions};
#[cfg(feature = "tracing")]
pub use tracing::TracingObserver;

/// Most seeds of a client.
pub const SEEDS_MAX: usize = 1024;

/// A client of a cluster; clones share everything. It ends when the last clone and the last stream
/// are dropped, or with [`Client::close`].
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: ClientConfig,
    pool: ConnectionPool,
    topology: TopologyManager,
    table: Arc<Table>,
    own_writes: OwnWrites,
    write_places: WritePlaces,
    counts: Counts,
    /// The calls that are open.
    calls: Group,
    door: Door,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Its task holds it, and waits for this.
        self.table.close();
        // Listeners that are still kept must not keep connections.
        self.pool.close();
    }
}

impl Client {
    /// Connects: returns as soon as one of the seeds can be reached and has told which nodes exist.
    ///
    /// # Errors
    /// [`CallError::Usage`] without seeds, where one of them is no address of a node, or where the configuration makes no
    /// sense; [`CallError::NoAccess`], at once, when all of them refuse this client or are of
    /// another network than [`ClientConfig::network`];
    /// [`CallError::Unavailable`] when none could be reached in [`ClientConfig::connect_deadline`], and, at once, where
    /// the system has no thread or no file descriptor left for the client. Nothing is left running.
    pub async fn connect(
        seeds: impl IntoIterator<Item = HostPort>,
        config: ClientConfig,
    ) -> Result<Client, CallError> {
        let seeds: Vec<HostPort> = seeds.into_iter().take(SEEDS_MAX).collect();
        let Some(first) = seeds.first().cloned() else {
            return Err(CallError::Usage(String::from("a client needs the address of a node")));
        };
        for seed in &seeds {
            let judged = HostPort::parse_remote(&seed.to_string(), None);
            judged.map_err(|error| CallError::Usage(error.to_string()))?;
        }
        config.check()?;
        start_runtime(&first).map_err(|error| {
            let at = At { node: Some(first.to_string()), attempts: 0, fate: Fate::NotDone };
            CallError::Unavailable { error, at }
        })?;
        let pool = ConnectionPool::new(config.pool.clone(), config.access_in_all());
        let patience = Some(config.connect_deadline);
        let topology =
            TopologyManager::start_within(patience, seeds, pool.clone(), config.topology);
        let own_writes = OwnWrites::new(config.own_writes_max);
        let counts = Counts::default();
        let inner = Arc::new_cyclic(|inner| {
            let refresh_every = Some(config.shard_table_age);
            let table = ShardMapConfig { refresh_every, ..ShardMapConfig::default() };
            let table = new_table(Weak::clone(inner), pool.tasks().clone(), table);
            let write_places = WritePlaces::new();
            let (calls, door) = (Group::default(), Door::default());
            Inner { config, pool, topology, table, own_writes, write_places, counts, calls, door }
        });
        let client = Client { inner };
        client.wait_for_view(&first).await?;
        let inner = &client.inner;
        follow_table(Arc::clone(&inner.table), inner.pool.tasks(), Arc::downgrade(inner));
        Ok(client)
    }

    /// Waits for the first view as long as the configuration says.
    async fn wait_for_view(&self, first: &HostPort) -> Result<(), CallError> {
        let topology = &self.inner.topology;
        let patience = self.inner.config.connect_deadline;
        let at = |error: &ClientError| {
            let node = error.address().map_or_else(|| first.to_string(), str::to_owned);
            At { node: Some(node), attempts: topology.asked().max(1), fate: Fate::NotDone }
        };
        match rt::timeout(patience, topology.first_view_if_let_in()).await {
            Some(Ok(())) => return Ok(()),
            Some(Err(error @ ClientError::NoDescriptor { .. })) => {
                return Err(CallError::Unavailable { at: at(&error), error });
            }
            Some(Err(error)) => return Err(CallError::NoAccess { at: at(&error), error }),
            None => {}
        }
        let error = topology.failure().unwrap_or_else(|| ClientError::Connect {
            address: first.to_string(),
            reason: format!("no answer within {patience:?}"),
        });
        Err(CallError::Unavailable { at: at(&error), error })
    }

    /// Which nodes there are.
    #[must_use]
    pub fn cluster_view(&self) -> Arc<ClusterView> {
        self.inner.topology.view()
    }

    /// Calls `listener` for each view of the nodes that differs from the one before, and when preferred
    /// nodes move, until what this returns is dropped. It is called on the client's own task, once at a
    /// time: it must be quick and must not block. If it panics, that stops nothing.
    ///
    /// ```
    /// # use distkv::testing::{TestCluster, block_on};
    /// use distkv_client::{Client, ClientConfig};
    ///
    /// # block_on(async {
    /// # let cluster = TestCluster::start(1).await?;
    /// # let seeds = cluster.seeds();
    /// let client = Client::connect(seeds, ClientConfig::new()).await?;
    /// let listener = client.on_topology_change(|change| {
    ///     for node in &change.added {
    ///         println!("{} came with view {}", node.name, change.epoch);
    ///     }
    ///     println!("{} shards moved", change.moved.len());
    /// })?;
    /// drop(listener); // It is not called any more.
    /// # cluster.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`CallError::Usage`] when there are too many listeners.
    pub fn on_topology_change(
        &self,
        listener: impl Fn(&TopologyChange) + Send + Sync + 'static,
    ) -> Result<TopologyListener, CallError> {
        let listener = self.inner.topology.listen(listener);
        listener.ok_or_else(|| CallError::Usage(String::from("there are too many listeners")))
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        let inner = &self.inner;
        let router = RouterStats {
            overrides: inner.topology.preferences().len() as u64,
            nodes: inner.topology.node_stats(),
            shards: inner.topology.routing().shards_by_node(),
            ..inner.counts.router()
        };
        ClientStats {
            router,
            pool: inner.pool.stats(),
            topology: inner.topology.stats(),
            retry: inner.counts.retry(),
            reads: inner.counts.reads(),
            watches: inner.counts.watches(),
            shards: inner.table.stats(),
            tasks: inner.pool.tasks().len(),
        }
    }
}

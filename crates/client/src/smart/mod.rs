//! The smart client: a program talks to the cluster, and need not know which node is up.
//!
//! Every node holds everything, so the choice of a node is a matter of affinity only: the writers
//! of a path meet at one node, conflicts become rare, and a client reads its own writes. A failed
//! request is retried at the next node, as long as that is safe and there is time.
//!
//! ```
//! use distkv_client::{Client, ClientConfig, PutOptions};
//! use distkv::testing::{TestCluster, block_on};
//!
//! block_on(async {
//!     let cluster = TestCluster::start(2).await.unwrap();
//!     let seed = cluster.node(0).client_addr().into();
//!     let client = Client::connect([seed], ClientConfig::new()).await.unwrap();
//!     let path = "hits.today".parse().unwrap();
//!     let first = client.put(&path, &1).await.unwrap();
//!     assert_eq!(client.get::<u64>(&path).await.unwrap(), Some(1));
//!     // Only if nobody has written since.
//!     let unchanged = PutOptions::new().chain(first.chain.unwrap());
//!     client.put_with(&path, &2, &unchanged).await.unwrap();
//!     assert!(client.put_with(&path, &3, &unchanged).await.unwrap_err().is_precondition());
//!     client.close();
//!     cluster.shutdown().await;
//! });
//! ```
//!
//! All operations work on any executor and from plain threads, can be dropped at any await, and
//! are [`Send`].
//!
//! | module | what |
//! |---|---|
//! | `config`, `error` | how a client behaves; what a call can end with |
//! | `operations` | get, put, delete, trees, batches, conflicts, any other request |
//! | `streams` | watches and messages, which continue at another node |
//! | `choice` | which node is asked, how long, and whose answer counts |

mod choice;
mod config;
mod error;
mod operations;
mod streams;

use std::sync::{Arc, Weak};

use crate::error::ClientError;
use crate::model::host_port::HostPort;
use crate::pool::ConnectionPool;
use crate::rt;
use crate::shard_map::ShardMapConfig;
use crate::stats::{ClientStats, Counts};
use crate::topology::{ClusterView, TopologyEvent, TopologyListener, TopologyManager};
use choice::own_writes::OwnWrites;
use choice::shard_table::{Table, follow_table, new_table};
pub use config::{ClientConfig, ReadMode, ReadModeError};
pub use error::{At, CallError, Fate};
pub use operations::batch::{BATCH_OPS_MAX, Batch, BatchReply};
pub use operations::conflicts::{Conflict, ConflictsFound};
pub use operations::entry::{Entry, Repeated, TreeEntry, Written};
pub use operations::ops::{DeleteTreeOptions, PutOptions, TREE_ENTRIES_MAX, TreeOptions, WriteId};
pub use operations::request::RawRequest;
pub use streams::messages::{Monitor, MonitorEvent, TopicMessage};
pub use streams::watch::{Change, Watch, WatchEvent, WatchOptions};

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
    counts: Counts,
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
    /// [`CallError::Usage`] without seeds, [`CallError::Unavailable`] when none could be reached in
    /// [`ClientConfig::connect_deadline`]. Nothing is left running.
    pub async fn connect(
        seeds: impl IntoIterator<Item = HostPort>,
        config: ClientConfig,
    ) -> Result<Client, CallError> {
        let seeds: Vec<HostPort> = seeds.into_iter().take(SEEDS_MAX).collect();
        let Some(first) = seeds.first().cloned() else {
            return Err(CallError::Usage(String::from("a client needs the address of a node")));
        };
        let pool = ConnectionPool::new(config.pool.clone());
        let topology = TopologyManager::start(seeds, pool.clone(), config.topology);
        let own_writes = OwnWrites::new(config.own_writes_max);
        let counts = Counts::default();
        let inner = Arc::new_cyclic(|inner| {
            let refresh_every = Some(config.shard_table_age);
            let table = ShardMapConfig { refresh_every, ..ShardMapConfig::default() };
            let table = new_table(Weak::clone(inner), table);
            Inner { config, pool, topology, table, own_writes, counts }
        });
        let client = Client { inner };
        client.wait_for_view(&first).await?;
        follow_table(Arc::clone(&client.inner.table), Arc::downgrade(&client.inner));
        Ok(client)
    }

    /// Waits for the first view as long as the configuration says.
    async fn wait_for_view(&self, first: &HostPort) -> Result<(), CallError> {
        let topology = &self.inner.topology;
        let patience = self.inner.config.connect_deadline;
        if rt::timeout(patience, topology.newer_than(0)).await.is_some() {
            return Ok(());
        }
        let error = topology.failure().unwrap_or_else(|| ClientError::Connect {
            address: first.to_string(),
            reason: format!("no answer within {patience:?}"),
        });
        let at = At { node: Some(first.to_string()), attempts: 1, fate: Fate::NotDone };
        Err(CallError::Unavailable { error, at })
    }

    /// Which nodes there are.
    #[must_use]
    pub fn cluster_view(&self) -> Arc<ClusterView> {
        self.inner.topology.view()
    }

    /// Calls `listener` for each node that comes, goes or changes, and for preferred nodes that
    /// move, until what this returns is dropped. It is called on the client's own task: it must be quick,
    /// must not block and must not panic.
    ///
    /// # Errors
    /// [`CallError::Usage`] when there are too many listeners.
    pub fn on_topology_change(
        &self,
        listener: impl Fn(&TopologyEvent) + Send + Sync + 'static,
    ) -> Result<TopologyListener, CallError> {
        let listener = self.inner.topology.listen(listener);
        listener.ok_or_else(|| CallError::Usage(String::from("there are too many listeners")))
    }

    /// Fetches the table of overrides of preferred nodes again, which happens by itself now and then.
    /// Returns when it is here; for how long to wait is the caller's concern.
    pub async fn refresh_shards(&self) {
        let table = &self.inner.table;
        table.invalidate(table.now(), None);
        let _ = table.ready().await;
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        let inner = &self.inner;
        let overrides = inner.topology.preferences().len() as u64;
        ClientStats {
            router: inner.counts.router(overrides),
            pool: inner.pool.stats(),
            topology: inner.topology.stats(),
            retry: inner.counts.retry(),
            reads: inner.counts.reads(),
            watches: inner.counts.watches(),
            shards: inner.table.stats(),
        }
    }

    /// Closes the client, with all its clones: pending calls fail, watches end, and nothing new
    /// begins.
    pub fn close(&self) {
        self.inner.table.close();
        self.inner.topology.stop();
        self.inner.pool.close();
    }

    /// Whether it was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.pool.is_closed()
    }
}

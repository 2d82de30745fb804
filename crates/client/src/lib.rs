//! The client library. Programs use [`Client`], which talks to a cluster; it is built on the client
//! side of the client protocol, one multiplexed connection to a node.
//!
//! ```
//! use distkv_client::{Client, ClientConfig, PutOptions};
//! use distkv::testing::{TestCluster, block_on};
//!
//! block_on(async {
//!     let cluster = TestCluster::start(2).await.unwrap();
//!     // Yours: `["n1:27586".parse()?, "n2:27586".parse()?]`.
//!     let client = Client::connect(cluster.seeds(), ClientConfig::new()).await.unwrap();
//!     let path = "site.lamps".parse().unwrap();
//!     client.put(&path, &3).await.unwrap();
//!     let entry = client.get_entry(&path).await.unwrap().unwrap();
//!     // Only if nobody has written since.
//!     let options = PutOptions::new().chain(entry.chain.clone().unwrap());
//!     client.put_with(&path, &(entry.get::<u32>().unwrap() + 1), &options).await.unwrap();
//!     assert_eq!(client.get::<u32>(&path).await.unwrap(), Some(4));
//!     cluster.shutdown().await;
//! });
//! ```
//!
//! | module | pure? | what |
//! |---|---|---|
//! | [`credentials`] | yes | whether by TLS, and as whom |
//! | [`chain`] | yes | a chain as clients see it |
//! | [`connection`] | no | connect, request, stream |
//! | `deviations` | yes | rules that tests can have broken |
//! | [`error`] | yes | what can go wrong |
//! | `group` | no | what goes on at the same time, counted |
//! | [`login`] | no | as whom a connection works |
//! | [`message`] | yes | requests to bytes, bytes to messages |
//! | [`pool`] | no | a few connections per node, shared |
//! | [`retry`] | yes | whether a failed request is retried, when and where |
//! | [`router`] | yes | which node serves a path, and which ones come next |
//! | [`shard_map`] | no | the table of shards, cached and refreshed |
//! | [`smart`] | no | the client of a cluster |
//! | [`splitter`] | yes | where one message ends and the next begins |
//! | [`stats`] | no | counters |
//! | [`topology`] | no | the nodes of the network, kept up to date |
//! | [`wire`] | no | the bytes of a connection, in plain text or by TLS |

use distkv_model as model;
use distkv_runtime as rt;

pub mod chain;
pub mod connection;
pub mod credentials;
mod deviations;
pub mod error;
mod group;
pub mod login;
pub mod message;
pub mod pool;
pub mod retry;
pub mod router;
pub mod shard_map;
pub mod smart;
pub mod splitter;
pub mod stats;
pub mod topology;
#[cfg(test)]
mod vectors;
pub mod wire;

pub use crate::model::host_port::{AddressError, HostPort};
pub use crate::model::path::{Element, Path, PathBuilder, PathError};
pub use crate::model::shard::{SHARD_COUNT, shard_of};
pub use crate::model::value::{Value, ValueError};
pub use crate::rt::block_on;
pub use chain::{Chain, ChainEvent};
pub use connection::{Connection, Options, ReplyStream, StreamEvent};
pub use credentials::Access;
#[cfg(feature = "tls")]
pub use distkv_tls::ticket::TicketError;
#[cfg(feature = "tls")]
pub use distkv_tls::{CaHash, ClientTls, Ticket, TlsError, Trust};
pub use error::{ClientError, ServerError};
pub use login::Login;
pub use message::{Fields, Greeting, Message};
pub use pool::{ConnectionPool, NodeIdentity, PoolConfig, PoolStats, PooledConnection};
pub use retry::{Decision, ErrorClass, Idempotency, Reason, RetryPolicy, Sent};
pub use router::{Candidate, Router};
pub use shard_map::{ShardMap, ShardMapConfig, ShardMapState, ShardMapStats, ShardRow};
#[cfg(feature = "tracing")]
pub use smart::TracingObserver;
pub use smart::{
    At, BATCH_OPS_MAX, Batch, BatchReply, CallEnd, CallError, CallObserver, Change, Client,
    ClientConfig, Closing, Conflict, ConflictStream, ConflictsFound, DeleteTreeOptions, Entry,
    Fate, GetOptions, Monitor, MonitorEvent, Observer, PutOptions, RawRequest, ReadMode,
    ReadModeError, Repeated, SEEDS_MAX, TREE_ENTRIES_MAX, TopicMessage, TreeEntry, TreeOptions,
    TreeStream, Watch, WatchEvent, WatchOptions, WriteId, Written, place_of,
};
pub use stats::{
    ClientStats, LATENCY_BUCKETS, NodeStats, ReadStats, RetryStats, RouterStats, WatchStats,
};
pub use topology::{
    ClusterView, NodeChange, NodeState, NodeView, PreferenceMove, Preferences, TopologyChange,
    TopologyConfig, TopologyListener, TopologyManager, TopologyStats,
};

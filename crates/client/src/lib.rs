//! The client library. Programs use [`Client`], which talks to a cluster; it is built on the client
//! side of the client protocol, one multiplexed connection to a node.
//!
//! ```
//! # use distkv::testing::{TestCluster, block_on};
//! use distkv_client::*;
//!
//! # block_on(async {
//! # let cluster = TestCluster::start(2).await?;
//! # let seeds = cluster.seeds();
//! // Yours: `["n1:27586".parse()?, "n2:27586".parse()?]`.
//! let client = Client::connect(seeds, ClientConfig::new()).await?;
//! let path: Path = "site.lamps".parse()?;
//! client.put(&path, &3).await?;
//! let entry = client.get_entry(&path).await?.ok_or("somebody deleted it")?;
//! // Only if nobody has written since.
//! let unchanged = PutOptions::new().chain(entry.chain.clone().ok_or("its version is unknown")?);
//! client.put_with(&path, &(entry.get::<u32>()? + 1), &unchanged).await?;
//! assert_eq!(client.get::<u32>(&path).await?, Some(4));
//! client.close().await;
//! # cluster.shutdown().await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! `crates/client/README.md` has every option, the errors, and what replaces calls of other clients.
//!
//! | module | pure? | what |
//! |---|---|---|
//! | [`credentials`] | no | whether by TLS, and as whom |
//! | [`chain`] | yes | a chain as clients see it |
//! | [`connection`] | no | connect, request, stream |
//! | [`error`] | yes | what can go wrong |
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
pub mod error;

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
pub mod wire;

pub use crate::model::host_port::{AddressError, HostPort};
pub use crate::model::path::{Element, Path, PathBuilder, PathError};
pub use crate::model::shard::{SHARD_COUNT, shard_of};
pub use crate::model::value::{Value, ValueError};
pub use crate::rt::{block_on, sleep};
pub use chain::{Chain, ChainEvent};
pub use connection::{Connection, Options, OwnNetwork, ReplyStream, ShutOut, StreamEvent};
pub use credentials::Access;
#[cfg(feature = "tls")]
pub use distkv_tls::ticket::TicketError;
#[cfg(feature = "tls")]
pub use distkv_tls::{CaHash, ClientTls, Ticket, TlsError, Trust};
pub use error::{ClientError, ServerError, WRONG_TIME};
#[cfg(feature = "tls")]
pub use login::read_ticket_file;
pub use login::{Login, PLAINTEXT_LOGIN};
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

/// The examples of the README, so that they are compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    /// The fields of a struct, or the methods of a block, that are public.
    fn public<'a>(source: &'a str, begin: &str, prefix: &str) -> Vec<&'a str> {
        let (_, body) = source.split_once(begin).unwrap();
        let (body, _) = body.split_once("\n}\n").unwrap();
        let names = body.lines().filter_map(|line| line.trim().strip_prefix(prefix));
        names.map(|rest| rest.split([':', '(']).next().unwrap()).collect()
    }

    #[test]
    fn the_readme_has_every_option() {
        let readme = include_str!("../README.md");
        let (_, options) = readme.split_once("## Options").unwrap();
        let (options, _) = options.split_once("## Errors").unwrap();
        let config = public(include_str!("smart/config.rs"), "impl ClientConfig {", "pub fn ");
        let retry = public(include_str!("retry.rs"), "pub struct RetryPolicy {", "pub ");
        let pool = public(include_str!("pool.rs"), "pub struct PoolConfig {", "pub ");
        let topology =
            public(include_str!("topology/config.rs"), "pub struct TopologyConfig {", "pub ");
        let all = [config, retry, pool, topology].concat();
        assert!(all.len() > 35, "{all:?}");
        for name in all.into_iter().filter(|name| *name != "new") {
            assert!(options.contains(&format!("`{name}`")), "{name} is not in the README");
        }
    }
}

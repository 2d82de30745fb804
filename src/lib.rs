//! distkv: a masterless, gossip-replicated, in-memory key-value node.
//!
//! The layers, from the bottom; `tests/pure/tidy.rs` enforces who may import whom.
//!
//! | module or crate | pure? | what |
//! |---|---|---|
//! | [`model`] | yes | the vocabulary: paths, values, ticks, chains, entries |
//! | [`protocol`] | yes | bytes to types and back: frames, peer messages, client messages |
//! | [`tree`] | yes | all entries of a node, by path, and the sums over them |
//! | `actor` | yes | the election: short lists, who holds the tag, healed splits |
//! | [`replica`] | yes | the replicated state: which version wins, catch-up, purges, contents compared |
//! | [`engine`] | yes | the composition: one state, `&self` methods read, `handle` and `write_batch` change |
//! | [`membership`] | yes | SWIM (foca) wrapped as data in, data out |
//! | [`rt`] | no | the only file that names the async runtime and the clock |
//! | [`access`](distkv_access) | yes | who may do what: users, their secrets, access lists |
//! | [`crowd`] | yes (it has locks) | who gives way, and how much each may have, where there is not enough for all |
//! | [`hub`] | yes (it has locks) | the one lock around the engine, and the queues in which outputs leave |
//! | [`storage`] | no | snapshots and event logs on disk, and what they give back at a start |
//! | [`durable`](distkv_durable) | yes | what a data directory's node starts with, and who writes its log |
//! | [`metrics`](distkv_metrics) | yes | the table of metrics, and their text |
//! | [`tls`](distkv_tls) | but for randomness | TLS, certificates, tickets |
//! | [`http`](distkv_http) | no | the HTTP port |
//! | [`secure`] | yes | the cluster key, key files, sealed links and datagrams |
//! | [`server`] | no | client connections |
//! | [`api`] | yes | the HTTP API: each request is one of a client in the same process |
//! | [`node`] | no | owns the engine; timers, peer links, configuration, shutdown |
//! | [`client`] | no | the client library |
//! | [`command`](distkv_command) | no | what the command lines of all programs share |
//! | [`bench`](distkv_bench) | no | the load generator |
//! | [`cli`] | no | the command line |
//! | [`testing`] | no | a node and a cluster in process, for users' own tests |

pub use distkv_client as client;
pub use distkv_core::{engine, membership, protocol, replica, tree};
use distkv_crowd as crowd;
pub use distkv_hub as hub;
pub use distkv_model as model;
pub use distkv_runtime as rt;
pub use distkv_secure as secure;
pub use distkv_storage as storage;

pub mod api;
pub mod cli;
pub mod node;
pub mod server;
pub mod testing;

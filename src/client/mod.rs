//! The client side of the client protocol: one multiplexed connection to a node, and the pure
//! parts that it is made of. It is the ground that the smart client stands on.
//!
//! | module | pure? | what |
//! |---|---|---|
//! | [`chain`] | yes | a chain as clients see it |
//! | [`connection`] | no | connect, request, stream |
//! | [`error`] | yes | what can go wrong |
//! | [`message`] | yes | requests to bytes, bytes to messages |
//! | [`retry`] | yes | whether a failed request is tried again, when and where |
//! | [`router`] | yes | which node serves a path, and which ones come next |
//! | [`shard_map`] | no | the table of shards, cached and refreshed, whatever lists them |
//! | [`splitter`] | yes | where one message ends and the next begins |

pub mod chain;
pub mod connection;
pub mod error;
pub mod message;
pub mod retry;
pub mod router;
pub mod shard_map;
pub mod splitter;

pub use crate::model::host_port::HostPort;
pub use chain::Chain;
pub use connection::{Connection, Options, ReplyStream, StreamEvent};
pub use error::{ClientError, ServerError};
pub use message::{Fields, Greeting, Message};
pub use retry::{Decision, ErrorClass, Idempotency, Reason, RetryPolicy, Sent};
pub use router::{Candidate, Router};
pub use shard_map::{ShardMap, ShardMapConfig, ShardMapState, ShardRow};

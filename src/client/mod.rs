//! The client side of the client protocol: one multiplexed connection to a node, and the pure
//! parts that it is made of. It is the ground that the smart client stands on.
//!
//! | module | pure? | what |
//! |---|---|---|
//! | [`chain`] | yes | a chain as clients see it |
//! | [`connection`] | no | connect, request, stream |
//! | [`error`] | yes | what can go wrong |
//! | [`message`] | yes | requests to bytes, bytes to messages |
//! | [`pool`] | no | a few connections per node, shared |
//! | [`router`] | yes | which node serves a path, and which ones come next |
//! | [`splitter`] | yes | where one message ends and the next begins |
//! | [`topology`] | no | which nodes there are, kept up to date |

pub mod chain;
pub mod connection;
pub mod error;
pub mod message;
pub mod pool;
pub mod router;
pub mod splitter;
pub mod topology;

pub use crate::model::host_port::HostPort;
pub use chain::Chain;
pub use connection::{Connection, Options, ReplyStream, StreamEvent};
pub use error::{ClientError, ServerError};
pub use message::{Fields, Greeting, Message};
pub use pool::{ConnectionPool, NodeIdentity, PoolConfig, PoolStats, PooledConnection};
pub use router::{Candidate, Router};

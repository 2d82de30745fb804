//! What clients are sent: the writer of messages, errors, chains, and the shortened paths of streams.

pub mod chain;
pub mod error;
pub mod reply;
pub mod shorten;

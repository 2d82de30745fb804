//! Streams of the client port: watches, conflicts, messages, and how they share a connection.

pub(super) mod conflicts;
mod flow_control;
mod messages;
mod watches;
pub(super) mod watches_and_purges;

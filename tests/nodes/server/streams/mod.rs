//! Streams of the client port: watches, conflicts, messages, and how they share a connection.

mod conflicts;
mod flow_control;
mod messages;
mod watches;
mod watches_and_purges;

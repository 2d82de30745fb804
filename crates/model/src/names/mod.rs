//! Names of nodes, lives, events, writes and hosts, and how they are spelled.

pub mod host_port;
pub mod ids;
pub mod spelling;
pub mod write_id;

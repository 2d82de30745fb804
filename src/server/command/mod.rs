//! What the actions do, one file per family: on entries (`data`), on nodes and the network (`cluster`),
//! on files (`files`), on access control (`access`), and messages.

pub(super) mod access;
pub(super) mod cluster;
pub(super) mod data;
mod files;
mod message;

//! Clusters of engines, without the parts around them ([`super::whole`] has those): nodes, their disks,
//! links and lives, and the end of a run, when everything is repaired.

pub(super) mod cluster;
pub(super) mod disk;
mod endless_talk;
mod event_log;
pub(super) mod healing;
mod links;
mod lives;
mod members;
mod network;
mod node;
pub(super) mod steps;

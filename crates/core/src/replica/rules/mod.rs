//! The replication rules (docs/replication-rules.md), one file each or two; the table is in
//! [`super`].

pub mod across;
pub mod apply;
pub mod catch_up;
pub mod come_back;
pub mod contents;
pub(crate) mod crossing;
pub mod decide;
pub mod purge;
pub(in crate::replica) mod reissue;
pub mod write;

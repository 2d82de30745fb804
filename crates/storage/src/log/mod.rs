//! The event log: the changes of a node's state, batch by batch, in order.
//!
//! A log is a header frame ([`super::header`]) and frames of records ([`super::format::record`]). The
//! payload of each of those begins with three numbers:
//!
//! | value | what |
//! |---|---|
//! | kind | 0: the batch continues in the next frame; 1: the batch ends here; 2: the log was closed
//! by a node that stopped |
//! | time | when, milliseconds after the header's time; may be negative |
//! | claim | a position up to which the file was synced when this was written |
//!
//! A batch counts only if the frame that ends it is there. The first batch has all that the node
//! knows ([`super::format::knowledge`]), so that each log is self-contained; so has one of kind 2.

mod reader;
mod writer;

pub use reader::{LogBatch, LogReader};
pub use writer::LogWriter;

pub(super) const MORE: u64 = 0;
pub(super) const LAST: u64 = 1;
pub(super) const STOPPED: u64 = 2;

/// The name of a log's file.
#[must_use]
pub fn log_name(number: u64) -> String {
    format!("log-{number}.dkv")
}

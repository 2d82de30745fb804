//! Commands on data: entries, watches, messages, and how they are read and printed.

pub(super) mod delete;
pub(super) mod edit;
pub(super) mod entry;
pub(super) mod get;
pub(super) mod history;
pub(super) mod monitor;
mod nothing;
pub(in crate::cli) mod rewatch;
pub(super) mod send;
pub(super) mod set;
mod system;
pub(super) mod trees;
pub(super) mod value_input;
pub(super) mod watch;
